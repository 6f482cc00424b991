/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_LIVE_H
#define KV_LIVE_H

/**
 * @file
 * Counters of the daemons, and of the rank's own clients, that can be read while they run: DPDK
 * telemetry, /crpc/benchkv/stats.
 *
 *     daemon's lcore                                    telemetry's thread
 *     counts as it goes, plain words
 *     every millisecond: kv_live_publish()  -- words -> /crpc/benchkv/stats[,daemon]
 *
 *     lcore with clients
 *     every millisecond: kv_live_load()     -- words -> /crpc/benchkv/stats
 *
 * The datapath knows nothing of this: no lock, no system call, no shared line. A reader gets each
 * counter as it was a millisecond ago; two counters of one answer may differ by that much. Counters
 * only grow, from the start of the run on, which in a sweep is one of several; gauges say what is
 * now.
 *
 * The time of each phase of the loop is measured in one turn of KV_PHASE_SAMPLE.
 */

#include "crpc_atomic.h"
#include "crpc_copyrpc.h"
#include "result.h"

/** One turn in this many is timed; a power of two. */
#define KV_PHASE_SAMPLE 64
/** A client is active if it asked something within this many looks, about 0.1 s. */
#define KV_LIVE_ACTIVE_WATCHES 100
/** Words that a daemon publishes. Names and meaning stand in live.c, in this order. */
enum kv_live_word {
	KV_LIVE_LOCAL,
	KV_LIVE_FORWARDED,
	KV_LIVE_REMOTE,
	KV_LIVE_OF_DAEMONS,
	KV_LIVE_OF_RANKS,
	KV_LIVE_RELAYED,
	KV_LIVE_FAILED,
	KV_LIVE_BAD,
	KV_LIVE_TURNS,
	KV_LIVE_EMPTY,
	KV_LIVE_CLIENTS,
	KV_LIVE_ACTIVE,
	KV_LIVE_OPEN,
	KV_LIVE_WAITING,
	KV_LIVE_WAITED,
	KV_LIVE_FLUX_AGAIN,
	KV_LIVE_TIMED,
	KV_LIVE_KEYS,
	KV_LIVE_NET, /**< From here on: of copyrpc, KV_LIVE_NET_WORDS. */
};

#define KV_LIVE_NET_WORDS 17
#define KV_LIVE_WORDS     (KV_LIVE_NET + KV_LIVE_NET_WORDS)

/** What one daemon publishes. */
struct kv_live {
	_Atomic uint64_t word[KV_LIVE_WORDS];
	_Atomic uint64_t phase_ns[KV_TURN_PHASES];
	_Atomic uint64_t taken[KV_TAKEN_BUCKETS];
	_Atomic uint64_t batch[CRPC_COPYRPC_BATCH_BUCKETS];
} crpc_aligned(CRPC_CACHE_GUARD);

/** Counters of copyrpc from before they were set to zero for the measured window. */
struct kv_live_carry {
	uint64_t word[KV_LIVE_NET_WORDS];
	uint64_t batch[CRPC_COPYRPC_BATCH_BUCKETS];
};

/**
 * Words that the clients of one lcore publish, for Little's law while they run. Names stand in
 * live.c.
 */
enum kv_load_word {
	KV_LOAD_OPS,    /**< Answered by a store. */
	KV_LOAD_FAILED, /**< Ended with an error. */
	KV_LOAD_LAT_NS, /**< Sum of the latencies of both. */
	/** Closed loop: calls open x time; the law says it is the same. Open loop: 0. */
	KV_LOAD_OPEN_NS,
	KV_LOAD_CALLS, /**< Gauge. Closed loop: calls open all the time. Open loop: 0. */
	KV_LOAD_WORDS,
};

/** What the clients of one lcore publish. */
struct kv_live_load {
	_Atomic uint64_t word[KV_LOAD_WORDS];
	/* Of the lcore alone: what had been counted when the loop forgot it, and when that was. */
	uint64_t before[KV_LOAD_WORDS];
	uint64_t from;
} crpc_aligned(CRPC_CACHE_GUARD);

struct kv_daemon;

/** Register the commands, before rte_eal_init() of this rank ends or later. @return 0 or -errno. */
int kv_live_start(uint32_t rank, uint32_t daemons);

/** Keep what copyrpc has counted, before it is set to zero. */
void kv_live_carry(struct kv_daemon *d);

/** Publish; every millisecond or two, the daemon's thread. */
void kv_live_publish(struct kv_daemon *d);

/** Publish what the clients of seat number @p seat count; every millisecond or two, its thread. */
void kv_live_load(uint32_t seat, const struct kv_loop *loop, uint64_t now);

/** Keep what they have counted, before kv_loop_measure() forgets it, at the same time. */
void kv_live_load_carry(uint32_t seat, const struct kv_loop *loop, uint64_t now);

#endif
