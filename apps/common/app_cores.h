/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_CORES_H
#define APP_CORES_H

/**
 * @file
 * In which order cores are taken, and which node things are on, as sysfs has it.
 */

#include <sched.h>
#include <stdint.h>

/** Cores of a set, best first: at most CPU_SETSIZE. */
struct app_cores {
	uint32_t n;
	uint16_t cpu[CPU_SETSIZE];
};

/**
 * The order in which loops that never sleep should take cores: those on @p node first, and there
 * one hardware thread of each core before the second of any; then the other nodes' likewise.
 *
 * @param sys
 *   Where sysfs is, "/sys".
 * @param set
 *   Cores that may be used.
 * @param node
 *   Node to be near to; below 0: none is better.
 */
void app_cores_order(const char *sys, const cpu_set_t *set, int node, struct app_cores *cores);

/** NUMA node of a core; below 0: not known. */
int app_cores_node(const char *sys, int cpu);

/**
 * NUMA node of an RDMA device, what follows a comma left out; NULL: the first. Below 0: not known.
 */
int app_cores_device_node(const char *sys, const char *device);

#endif
