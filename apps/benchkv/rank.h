/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RANK_H
#define KV_RANK_H

/**
 * @file
 * Everything that one rank consists of: daemons with their stores, segments and endpoints, the
 * clients, and the lcores that run them. Built in this order, torn down in the reverse.
 */

#include "run.h"

/** One rank. */
struct kv_rank {
	struct kv_options opt;
	struct app_boot boot;
	cpu_set_t cores;
	char lcores[128];
	char device[64];
	char driver[32];
	bool shared; /**< Another rank uses one of our cores. */
	uint32_t daemons;
	struct crpc_kv_server_conf conf; /**< Of the service. */
	struct crpc_kv_server *service;
	struct crpc_kv_daemon *daemon[CRPC_KV_DAEMONS_MAX]; /**< Its daemons. */
	bool disturbed; /**< Another rank was lost, or interrupted. */
	const struct app_backend *backend;
	struct kv_wire wire; /**< Ends of a backend that has some. */
	struct kv_place place[KV_SEATS_MAX];
	unsigned int lcore[KV_SEATS_MAX];
	uint32_t seats;
	struct kv_window window[CRPC_KV_DAEMONS_MAX];
	uint32_t keys[CRPC_KV_DAEMONS_MAX];       /**< That each daemon owned at the start. */
	struct app_records records[KV_SEATS_MAX]; /**< --history. */
	bool recorded_load;
	struct app_load_conf load_conf;
	struct kv_run run;
};

/** Keys of all ranks. */
static inline uint32_t
kv_rank_keys(const struct kv_rank *r)
{
	return (uint32_t)(r->opt.keys * r->boot.size);
}

/** Daemons of all ranks. */
static inline uint32_t
kv_rank_owners(const struct kv_rank *r)
{
	return r->boot.size * r->daemons;
}

/** Whether there are values that do not fit ipc's slots. */
static inline bool
kv_rank_large(const struct kv_rank *r)
{
	return r->opt.value_size > CRPC_KV_VALUE_INLINE;
}

/** Build all that needs no other rank. @return 0, or APP_EXIT_USAGE after app_fail(). */
int kv_rank_open(struct kv_rank *r);

/** Connect to the other ranks and start the clients. @return as kv_rank_open(). */
int kv_rank_connect(struct kv_rank *r);

/** The lcore that runs a daemon. */
unsigned int kv_rank_lcore(const struct kv_rank *r, uint32_t daemon);

/** --history: close it. @return 0, or an exit code after one line: it had too little room. */
int kv_rank_history_end(struct kv_rank *r);

/** Fill in what this rank measured. */
void kv_rank_result(const struct kv_rank *r, struct kv_result *out);

/** Tear everything down, however far it was built. */
void kv_rank_close(struct kv_rank *r);

#endif
