/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RANK_H
#define KV_RANK_H

/**
 * @file
 * Everything that one rank consists of: store, segment, endpoints, clients. Built in this order,
 * torn down in the reverse.
 */

#include "run.h"

/** One rank. */
struct kv_rank {
	struct kv_options opt;
	struct app_boot boot;
	cpu_set_t cores;
	char lcores[128];
	bool shared; /**< Another rank uses one of our cores. */
	struct kv_daemon *daemon;
	struct kv_net net;
	bool net_open;
	struct kv_work work;
	struct kv_run run;
};

/** Build all that needs no other rank. @return 0, or APP_EXIT_USAGE after app_fail(). */
int kv_rank_open(struct kv_rank *r);

/** Connect to the other ranks and start the clients. @return as kv_rank_open(). */
int kv_rank_connect(struct kv_rank *r);

/** Fill in what this rank measured. */
void kv_rank_result(const struct kv_rank *r, struct kv_result *out);

/** Tear everything down, however far it was built. */
void kv_rank_close(struct kv_rank *r);

#endif
