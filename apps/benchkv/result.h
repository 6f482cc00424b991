/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RESULT_H
#define KV_RESULT_H

/**
 * @file
 * What one rank measured, as one block of bytes that the ranks exchange, and the sum over ranks.
 */

#include <math.h>

#include "app_measure.h"
#include "app_perf.h"
#include "app_backend.h"

/** Little's law holds if throughput times latency is within this of the calls in flight. */
#define KV_LITTLE_TOLERANCE 0.05
/** Slices of a run's time line that are kept. */
#define KV_SLICES_MAX 1024

/** One daemon in the measured window, and where it sits. */
struct kv_daemon_counts {
	struct crpc_kv_stats of;
	uint32_t lcore, cpu;
	int32_t node;     /**< NUMA node of its lcore; -1: unknown. */
	uint32_t clients; /**< That it is home of. */
	uint32_t keys;    /**< That it owns. */
	uint32_t peers;   /**< Endpoints to other ranks. */
};

/** One rank, or all of them. About 90 KiB. */
struct kv_result {
	uint64_t size; /**< Of this struct: another build is refused. */
	uint32_t rank;
	uint32_t ranks; /**< That are in the sum. */
	uint32_t clients, qd;
	uint32_t lost_peers;
	uint32_t interrupted;
	char lcores[128];
	char device[64];
	char driver[32]; /**< Of the device of the service. */
	uint64_t window_ns; /**< Measured time. */
	double in_flight;   /**< Closed loop: calls open all the time, clients x qd. */
	double offered;     /**< Open loop: operations per second that were due. */
	struct app_load_counts counts;
	/* From here to `served` words of which a total is the sum. */
	struct app_net_counts net;
	uint64_t sent, answered; /**< By all clients since their start. */
	uint64_t faults[APP_FAULTS];
	uint64_t rss_kib;
	uint64_t counter[APP_COUNTERS]; /**< Of all lcores in the window, with --counters. */
	uint64_t slice[KV_SLICES_MAX]; /**< The first slices, in order: operations per second. */
	uint64_t served; /**< Requests that the daemons were sent, by whomever. */
	uint32_t daemons;
	struct kv_daemon_counts daemon[CRPC_KV_DAEMONS_MAX]; /**< Of one rank; not in the total. */
	struct kv_daemon_counts sum;                     /**< Of all of them. */
	struct app_figure rate;     /**< In slices, millions of operations per second. */
	/** Part of all moments at which a daemon's next turn was further away than
	 *  app_pause_us[i]; the worst daemon of a rank, the sum over ranks. */
	double pause_over[APP_PAUSES];
	double steal_pct;
	double away_pct; /**< Time in which something else had the daemon's core; largest of all. */
	/** Why there are none; 0: there are some, or none asked. */
	int counters_rc;
};

/** Whether what another rank gave is a result that can be read. Ends its texts. */
bool kv_result_take(struct kv_result *r);

/** Wrong answers of all kinds. */
uint64_t kv_result_faults(const struct kv_result *r);

/** Latencies of all ways together. */
void kv_result_lat(const struct kv_result *r, struct crpc_hist *all);

/** Operations per second that a store answered. */
double kv_result_ops(const struct kv_result *r);

/** Add what a daemon counted. */
void kv_result_add_daemon(struct kv_result *r, const struct kv_daemon_counts *counts,
	const struct app_net_counts *net);

/** Add the clients of a loop that has stopped. */
void kv_result_add_load(struct kv_result *r, const struct app_load *loop);

/** Add a rank to the total; the total starts zeroed. */
void kv_result_add(struct kv_result *total, const struct kv_result *r);

/**
 * X x R / N: throughput times mean latency over the calls that were open. 1 if Little's law holds;
 * anything else means that calls or time were lost in the measurement. 0 if nothing was measured.
 */
double kv_result_little(const struct kv_result *r);

/**
 * The verdict on such a ratio. A call that is open at the begin of the window counts with all its
 * time and one at its end with none, so the longest call, as part of the window, is the error.
 */
static inline bool
kv_little_holds(double little, double longest)
{
	return fabs(little - 1) < KV_LITTLE_TOLERANCE + longest;
}

/** The same of a result. */
bool kv_result_little_holds(const struct kv_result *r);

/** True if the machine was not quiet: the figures are no verdict. */
bool kv_result_noisy(const struct kv_result *r, enum app_state state);

/**
 * Whether a run that nothing disturbed lost or invented calls: Little's law does not hold. One that
 * was interrupted is too short for a verdict.
 */
bool kv_result_distrusted(const struct kv_result *r, enum app_state state);

/** Median, least and most of the slices of a run. */
void kv_result_slices(struct kv_result *r, double *slice, uint64_t n);

#endif
