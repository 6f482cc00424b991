/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_LIVE_H
#define KV_LIVE_H

/**
 * @file
 * Telemetry of benchkv, /crpc/benchkv/stats: the counters of the rank's daemons
 * (crpc_kv_tel_stats()) and those of its own clients.
 *
 *     lcore with clients                           telemetry's thread
 *     every millisecond: kv_live_load()  -- words -> /crpc/benchkv/stats
 *
 * A reader gets each counter as it was a millisecond ago. Counters only grow, from the start of the
 * run on, which in a sweep is one of several; gauges say what is now.
 */

#include "crpc_atomic.h"
#include "app_load.h"

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

/** Register the command, before rte_eal_init() of this rank ends or later. @return 0 or -errno. */
int kv_live_start(uint32_t rank, uint32_t daemons);

/**
 * Publish what the clients of seat number @p seat count; every millisecond or two, its thread.
 *
 * @param carry
 *   Instead keep it, before app_load_measure() forgets it at the same time.
 */
void kv_live_load(uint32_t seat, const struct app_load *load, uint64_t now, bool carry);

#endif
