/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RUN_H
#define KV_RUN_H

/**
 * @file
 * The life of a run on one rank: warm-up, measured window, drain, and staying until the others are
 * done.
 *
 *     warm-up --- measured window --- cool-down --- drain --- linger --- end
 *                                     |             |         |
 *                                     |             |         serves the ranks that are not done
 *                                     |             |         yet; ends when all have met, or a
 *                                     |             |         rank is lost
 *                                     |             no new calls; ends when each is answered
 *                                     the load goes on, but does not count
 *
 * Each lcore of the rank has a seat: daemons, clients, or both in turn (place.h). The main lcore's
 * seat, which has daemon 0, also decides where in the run the rank is; the others follow its word.
 */

#include "crpc_idle.h"
#include "backend.h"

/** What a daemon, or a link, counted in the measured window; before its end: until its begin. */
struct kv_window {
	struct crpc_kv_stats stats;
	struct app_net_counts net;
};

/** What one lcore runs. */
struct kv_seat {
	struct kv_run *run;
	struct crpc_kv_daemon **daemon;  /**< Array of daemons. */
	void **port;                     /**< Of each; NULL: it has ipc. */
	struct kv_window *window;        /**< Of each. */
	uint32_t daemons;
	struct app_load load;  /**< Its clients; loop.n may be 0. */
	struct kv_window link; /**< Of their link. */
	struct crpc_idle idle;
	enum app_load_phase phase;
	bool stop_sent;
	unsigned int lcore;
	uint64_t measure_from, away_begin; /**< Begin of the window; app_measure_away_ns() then. */
	double away_pct;      /**< Part of the window in which the thread waited for its core. */
	struct app_perf perf; /**< With --counters. */
	uint64_t turn_at;     /**< When this turn began. */
	double pause_over[APP_PAUSES]; /**< app_env_pause() in the window; then parts of it. */
	int perf_rc;          /**< Why there are none; 0: there are some. */
	uint64_t counter_begin[APP_COUNTERS], counter[APP_COUNTERS]; /**< In the window. */
	_Atomic int frozen;   /**< Its figures of the window are fixed. */
	_Atomic int drained;  /**< Every call of its clients is answered. */
	_Atomic int left;     /**< Its loop has ended. */
} crpc_aligned(CRPC_CACHE_GUARD);

/** A run. */
struct kv_run {
	const struct kv_options *opt;
	struct app_boot *boot;
	const struct app_backend *backend;
	struct crpc_kv_server *service;
	struct kv_seat *seat; /**< Array of seats; seat[0] is the main lcore's. */
	uint32_t seats;
	_Atomic int phase;   /**< enum app_load_phase for the seats. */
	_Atomic int quit;    /**< Client loops end although calls are open. */
	_Atomic int leaving; /**< Peers may leave without harm: they are not asked any more. */
	_Atomic int send_stop; /**< Links notify every daemon that the run was interrupted. */
	_Atomic int end;     /**< Daemons end too. */

	uint64_t measure_at, stop_at, cool_until, deadline; /**< ns. */
	uint64_t window_from;
	bool interrupted;
	uint32_t lost;                   /**< Ranks whose loss was reported. */
	uint8_t reported[APP_RANKS_MAX]; /**< Which. */
	uint32_t lost_at_end; /**< Peers lost before the window's end was reached by all. */
	double *slice;
	uint64_t slices, slices_max, slice_at, slice_ops;
	uint64_t progress_at, progress_ops;
};

/**
 * Run from warm-up to end; returns when all ranks are done, or are not to be waited for.
 *
 * @param run
 *   Set: opt, boot, service, seats, idle policies.
 * @return
 *   0, or -ENOMEM.
 */
int kv_run_loop(struct kv_run *run);

#endif
