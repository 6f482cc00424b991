/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

/**
 * @file
 * Options of simkv.
 */

#include "app_load.h"
#include "fault.h"
#include "profile.h"

/** --preset. */
enum sim_preset {
	SIM_PRESET_NONE,
	SIM_PRESET_SEED001,
	SIM_PRESET_PAPER,
};

/** --backend, as benchkv's. */
enum sim_backend {
	SIM_BACKEND_COPYRPC,
	SIM_BACKEND_DELEGATION,
	SIM_BACKEND_DIRECT,
	SIM_BACKEND_ERPC,
};

/** What was given. */
struct sim_options {
	uint64_t hosts, clients, depth, keys, seed, ring;
	unsigned int backend, flush, flow, transport, connect, preset;
	double read_ratio, hold_us, warmup_ms, virtual_ms;
	bool verify, colocate;
	uint64_t timeout_ns, watch_ns; /**< timeout_ns 0: that of lib/kv_server. */
	const char *fault;
	struct sim_faults faults; /**< The same, read. */
	uint64_t chaos, seeds;

	/* of --chaos */
	double delete_ratio;
	bool cas;
	uint64_t initial_pos, refuse;
	uint64_t notice_ns; /**< From the end of a process until others know of it. */

	const char *nic, *cpu, *set, *sweep, *json;
	struct sim_model model;
};

/** Whether each client has an end of its own, to all daemons. */
static inline bool
sim_own(const struct sim_options *o)
{
	return o->backend == SIM_BACKEND_DIRECT || o->backend == SIM_BACKEND_ERPC;
}

/** Names of the choices; each ends with NULL. */
extern const char *const sim_presets[];
extern const char *const sim_backends[];
extern const char *const sim_transports[]; /**< In the order of enum crpc_rdma_transport. */

/** What --set gives is one value among many of the help. */
void sim_options_help(int argc, char *const *argv);

/**
 * Parse, and read the profiles.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int sim_options_parse(struct sim_options *o, int argc, char *const *argv);

#endif
