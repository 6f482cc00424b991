/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_RESULT_H
#define KV_RESULT_H

/**
 * @file
 * What one rank measured, as one block of bytes that the ranks exchange, and the sum over ranks.
 */

#include "app_env.h"
#include "app_perf.h"
#include "client.h"

/** Little's law holds if throughput times latency is within this of the calls in flight. */
#define KV_LITTLE_TOLERANCE 0.05
/** Buckets of the histogram of requests per turn: bucket i counts 2^i to 2^(i+1)-1. */
#define KV_TAKEN_BUCKETS 7
/** Slices of a run's time line that are kept. */
#define KV_SLICES_MAX 1024
/** Buckets of the histogram of messages per batch, likewise. */
#define KV_BATCH_BUCKETS 16

/** Figures of the network in the measured window. */
struct kv_net_counts {
	uint64_t calls, messages, batches, updates, bytes;
	uint64_t doorbells, wqes, wqebbs, send_cqes, recv_cqes;
	uint64_t waited;                    /**< Requests that waited in a backlog. */
	uint64_t again; /**< Calls that were refused for now and made again later. */
	uint64_t repeated; /**< Backend erpc: packets that were sent again. */
	uint64_t batch_size[KV_BATCH_BUCKETS];
	struct crpc_hist queue, wire, peer; /**< Round trips in three parts, ns. */
};

/** Phases of a daemon's turn, in their order (daemon.h). */
enum kv_turn_phase {
	KV_TURN_NET_POLL,
	KV_TURN_NET_RECV,
	KV_TURN_MATES,
	KV_TURN_CLIENTS,
	KV_TURN_SEND,
	KV_TURN_PHASES,
};

/** A phase in one word. */
const char *kv_turn_phase_name(uint32_t phase);

/** One daemon in the measured window, and where it sits. */
struct kv_daemon_counts {
	uint64_t turns, busy;    /**< Turns of its loop; of these: with work. */
	uint64_t path[KV_PATHS]; /**< Its clients' requests, by the way they went. */
	uint64_t ranks;          /**< Requests of other ranks. */
	uint64_t relayed;        /**< Of these: passed to another daemon. */
	uint64_t mates;          /**< Requests of other daemons of the rank. */
	uint64_t failed;         /**< Requests that ended with an error. */
	uint64_t bad;            /**< Malformed requests. */
	uint64_t waited;         /**< Requests that waited for room. */
	uint64_t timed;          /**< Turns whose phases were timed. */
	uint64_t phase_ns[KV_TURN_PHASES]; /**< In those. */
	uint64_t taken[KV_TAKEN_BUCKETS];  /**< Turns by the requests of clients that they took. */
	uint32_t lcore, cpu;
	int32_t node;     /**< NUMA node of its lcore; -1: unknown. */
	uint32_t clients; /**< That it is home of. */
	uint32_t keys;    /**< That it owns. */
	uint32_t peers;   /**< Endpoints to other ranks. */
};

/** Kinds of slices that a run can compare. */
#define KV_KINDS_MAX 4

/** Median and quarters. */
struct kv_share {
	double median, low, high;
};

/**
 * Slices of kind 0 against those before and after, which are of other kinds, so that the moods of
 * the machine cancel out.
 */
struct kv_compared {
	uint64_t pairs;
	struct kv_share of[KV_KINDS_MAX]; /**< Rate in kind 0 / in neighbours of that kind. */
	double ops[KV_KINDS_MAX];         /**< Of each kind: the median per second. */
};

/** One rank, or all of them. About 150 KiB. */
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
	double in_flight;   /**< Closed loop: calls open all the time, clients x qd. */
	double offered;     /**< Open loop: operations per second that were due. */
	struct kv_counts counts;
	struct kv_net_counts net;
	uint64_t sent, answered; /**< By all clients since their start. */
	uint64_t faults[KV_FAULTS];
	uint64_t served; /**< Requests that the daemons were sent, by whomever. */
	uint32_t daemons;
	struct kv_daemon_counts daemon[KV_DAEMONS_MAX];  /**< Of one rank; not in the total. */
	struct kv_daemon_counts sum;                     /**< Of all of them. */
	double slice_median, slice_min, slice_max; /**< Operations per second in slices. */
	uint64_t slices;
	float slice[KV_SLICES_MAX]; /**< The first of them, in order. */
	/** Part of all moments at which a daemon's next turn was further away than
	 *  app_pause_us[i]; the worst daemon of a rank, the sum over ranks. */
	double pause_over[APP_PAUSES];
	struct kv_compared compared; /**< --insight ab, --flush compare. */
	uint64_t rss_kib;
	uint64_t yields;
	double steal_pct;
	double away_pct; /**< Time in which something else had the daemon's core; largest of all. */
	uint64_t counter[APP_COUNTERS]; /**< Of all lcores in the window, with --counters. */
	/** Why there are none; 0: there are some, or none asked. */
	int counters_rc;
};

/** Whether @p len bytes that another rank gave are a result that can be read. Ends its texts. */
bool kv_result_take(struct kv_result *r, size_t len);

/** Wrong answers of all kinds. */
uint64_t kv_result_faults(const struct kv_result *r);

/** Operations answered by a store. */
uint64_t kv_counts_ops(const struct kv_counts *c);

/** The same per second. */
double kv_result_ops(const struct kv_result *r);

/** Add what a daemon counted. */
void kv_result_add_daemon(struct kv_result *r, const struct kv_daemon_counts *counts,
	const struct kv_net_counts *net);

/** Add the clients of a loop that has stopped. */
void kv_result_add_loop(struct kv_result *r, const struct kv_loop *loop);

/** Add a rank to the total; the total starts zeroed. */
void kv_result_add(struct kv_result *total, const struct kv_result *r);

/**
 * X x R / N: throughput times mean latency over the calls that were open. 1 if Little's law holds;
 * anything else means that calls or time were lost in the measurement. 0 if nothing was measured.
 */
double kv_result_little(const struct kv_result *r);

/** The verdict on such a ratio. */
bool kv_little_holds(double little);

/** True if the machine was not quiet: the figures are no verdict. */
bool kv_result_noisy(const struct kv_result *r, const char *state);

/**
 * Whether a run that nothing disturbed lost or invented calls: Little's law does not hold. One that
 * was interrupted is too short for a verdict.
 */
bool kv_result_distrusted(const struct kv_result *r, const char *state);

/** Compare the kinds of slices; before kv_result_slices(), which puts them in another order. */
void kv_result_compare(struct kv_result *r, const double *slice, const uint8_t *kind, uint64_t n);

/** Median, least and most of the slices of a run. */
void kv_result_slices(struct kv_result *r, double *slice, uint64_t n);

#endif
