/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RESULT_H
#define KV_RESULT_H

/**
 * @file
 * What one rank measured, as one block of bytes that the ranks exchange, and the sum over ranks.
 */

#include "client.h"

/** Figures of the network in the measured window. */
struct kv_net_counts {
	uint64_t calls, messages, batches, updates, bytes;
	uint64_t doorbells, wqes, wqebbs, send_cqes, recv_cqes;
	uint64_t waited;                    /**< Requests that waited in a backlog. */
	struct crpc_hist queue, wire, peer; /**< Round trips in three parts, ns. */
};

/** One rank, or all of them. About 100 KiB. */
struct kv_result {
	uint64_t size; /**< Of this struct: another build is refused. */
	uint32_t rank;
	uint32_t ranks; /**< That are in the sum. */
	uint32_t clients, qd;
	uint32_t lost_peers;
	uint32_t interrupted;
	char lcores[128];
	char device[64];
	uint64_t window_ns; /**< Measured time. */
	double in_flight;   /**< Calls open all the time: clients x qd. */
	struct kv_counts counts;
	struct kv_net_counts net;
	uint64_t sent, answered; /**< By all clients since their start. */
	uint64_t faults[KV_FAULTS];
	uint64_t served; /**< Requests of client processes and ranks, by this daemon. */
	double slice_median, slice_min, slice_max; /**< Operations per second in slices. */
	uint64_t slices;
	uint64_t rss_kib;
	uint64_t yields, turns, busy_turns;
	double steal_pct;
	double away_pct; /**< Time in which something else had the daemon's core; largest of all. */
};

/** Wrong answers of all kinds. */
uint64_t kv_result_faults(const struct kv_result *r);

/** Operations answered by a store, per second. */
double kv_result_ops(const struct kv_result *r);

/** Add the clients of a loop that has stopped. */
void kv_result_add_loop(struct kv_result *r, const struct kv_loop *loop);

/** Add a rank to the total; the total starts zeroed. */
void kv_result_add(struct kv_result *total, const struct kv_result *r);

/**
 * X x R / N: throughput times mean latency over the calls that were open. 1 if Little's law holds;
 * anything else means that calls or time were lost in the measurement. 0 if nothing was measured.
 */
double kv_result_little(const struct kv_result *r);

/** True if the machine was not quiet: the figures are no verdict. */
bool kv_result_noisy(const struct kv_result *r, const char *state);

/** Median, least and most of the slices of a run. */
void kv_result_slices(struct kv_result *r, double *slice, uint64_t n);

#endif
