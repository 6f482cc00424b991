/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_MAP_H
#define KV_MAP_H

/**
 * @file
 * Where the parts of a run sit, as a small text map: lcores, NUMA nodes, daemons with their share
 * of the keys, their queue pairs and clients. Each rank writes its own part, rank 0 prints all.
 *
 * It also says what sits apart: a store, a daemon's memory or a NIC on another NUMA node than the
 * lcore that polls it.
 */

#include "rank.h"

/** The NUMA node of the CPU that a lcore runs on; the lcore's number is just a name. */
unsigned int kv_map_node(unsigned int lcore);

/** The NUMA node of a NIC; below 0: not known. */
int kv_map_device_node(const char *device);

/** Publish this rank's part; a fence of all ranks follows. @return 0, -EIO or -ENOMEM. */
int kv_map_publish(struct kv_rank *r);

/** Print the parts of all ranks, after that fence. */
void kv_map_print(struct kv_rank *r, FILE *out);

#endif
