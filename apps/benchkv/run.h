/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RUN_H
#define KV_RUN_H

/**
 * @file
 * The life of a run on one rank: warm-up, measured window, drain, and staying until the others are
 * done.
 *
 *     warm-up --- measured window --- drain --- linger --- end
 *                                     |         |
 *                                     |         serves the ranks that are not done yet; ends when
 *                                     |         all have met, or a rank is lost
 *                                     no new calls; ends when every call is answered
 *
 * The daemon owns the main lcore; clients run on the other lcores, or on the main one between the
 * daemon's turns.
 */

#include <signal.h>

#include "app_boot.h"
#include "crpc_idle.h"
#include "daemon.h"
#include "options.h"
#include "result.h"

/** Client loops of one rank at most. */
#define KV_LOOPS_MAX 128

/** One client loop and the lcore it runs on. */
struct kv_worker {
	struct kv_run *run;
	struct kv_loop loop;
	struct crpc_idle idle;
	_Atomic int drained; /**< Every call is answered; the loop has ended. */
	unsigned int lcore;
};

/** A run. */
struct kv_run {
	const struct kv_options *opt;
	struct app_boot *boot;
	struct kv_daemon *daemon;
	struct crpc_idle idle;
	struct kv_worker *worker; /**< Array of workers. */
	uint32_t workers;
	bool colocated;    /**< worker[0] runs on the main lcore. */
	_Atomic int phase; /**< enum kv_phase for the client loops. */
	_Atomic int quit;  /**< Loops end although calls are open. */

	uint64_t measure_at, stop_at, deadline; /**< ns. */
	uint64_t window_from, window_to;
	uint64_t cpu_begin; /**< CPU time of the daemon's thread at window_from. */
	double away_pct;    /**< Part of the window in which that thread did not run. */
	bool interrupted;
	uint32_t lost_at_end; /**< Peers lost before the window's end was reached by all. */
	double *slice;
	uint64_t slices, slices_max, slice_at, slice_ops;
	uint64_t progress_at, progress_ops;
	struct crpc_rdma_stats rdma_begin;
	uint64_t waited_begin;
	struct kv_net_counts net; /**< Of the window. */
};

/** Set by the signal handler. */
extern _Atomic int kv_run_signal;

/** Catch SIGINT and SIGTERM: a clean stop. */
void kv_run_catch_signals(void);

/**
 * Run from warm-up to end; returns when all ranks are done, or are not to be waited for.
 *
 * @param run
 *   Set: opt, boot, daemon, workers, idle policies.
 * @return
 *   0, or -ENOMEM.
 */
int kv_run_loop(struct kv_run *run);

#endif
