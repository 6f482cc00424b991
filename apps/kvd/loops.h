/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_LOOPS_H
#define KVD_LOOPS_H

/**
 * @file
 * The poll loops: daemon i on worker lcore i, so that nothing else of kvd runs there. With fewer
 * worker lcores several daemons take turns on one; with none they take turns with the control work
 * on the main lcore.
 *
 *     kvd_loops_start(&loops, &conf)      on the main lcore, which is the control thread's
 *     kvd_loops_turn(&loops)              now and then: what runs on the main lcore
 *     kvd_loop_pause(&loops, i) ... kvd_loop_resume(&loops, i)      it is between two turns
 *     kvd_loops_stop(&loops)
 */

#include "crpc_idle.h"
#include "crpc_kv_server.h"

/** A loop: of one lcore. */
struct kvd_loop {
	/** Number k of loop i of n is number i + k * n of the server. */
	struct crpc_kv_daemon *daemon[CRPC_KV_DAEMONS_MAX];
	uint32_t daemons;
	unsigned int lcore;
	struct crpc_idle idle;
	uint64_t watch_ns;
	/** The control thread adds 1: odd, the loop must stand between two turns; even, run. */
	_Atomic uint32_t word;
	_Atomic uint32_t stands; /**< The odd word for which it stands. */
	_Atomic uint32_t end;    /**< 1: it is to end, 2: it has. */
	_Atomic uint64_t busy_ns; /**< When it did something last. */
} crpc_aligned(CRPC_CACHE_GUARD);

struct kvd_loops {
	struct kvd_loop loop[CRPC_KV_DAEMONS_MAX];
	uint32_t n;
	bool on_main; /**< The control thread runs them, or they have ended. */
};

/** The lcore that a daemon gets. */
unsigned int kvd_loops_lcore(uint32_t daemon, uint32_t daemons);

/** Give every daemon a loop and let them run. */
void kvd_loops_start(struct kvd_loops *l, struct crpc_kv_server *s, uint32_t daemons,
	enum crpc_idle_policy policy);

/** Without worker lcores: run the daemons for a millisecond. Else, and after the end, nothing. */
void kvd_loops_turn(struct kvd_loops *l);

/** Let a loop stand between two turns. @return 0, or -ETIMEDOUT: it runs on. */
int kvd_loop_pause(struct kvd_loops *l, uint32_t i);
void kvd_loop_resume(struct kvd_loops *l, uint32_t i);

/** End them; their daemons belong to the control thread then. */
void kvd_loops_stop(struct kvd_loops *l);

#endif
