/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_IDLE_H
#define CRPC_IDLE_H

/**
 * @file
 * What a poll loop does when a turn found no work.
 *
 * `poll` is for a dedicated lcore: spin with a pause. `yield` is for a lcore that shares its core
 * with something that must also run (another rank, the launcher): after a stretch of empty turns it
 * gives the core away at each further empty turn, so that no thread waits for the scheduler's
 * tick.
 *
 *     struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
 *     for (;;)
 *             crpc_idle_turn(&idle, work_done());
 */

#include <sched.h>
#include <stdint.h>

/** What to do on an empty turn. */
enum crpc_idle_policy {
	CRPC_IDLE_POLL,  /**< Spin; the core is ours alone. */
	CRPC_IDLE_YIELD, /**< Spin a little, then sched_yield() at every empty turn. */
};

/** Empty turns that a yielding loop spins before it gives the core away. */
#define CRPC_IDLE_SPINS 64

/** State of one loop; zero it, set the policy. Belongs to one thread. */
struct crpc_idle {
	enum crpc_idle_policy policy;
	uint32_t empty;   /**< Empty turns in a row. */
	uint64_t yields;  /**< Times the core was given away. */
};

/** Spin-wait hint to the core. */
static inline void
crpc_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

/**
 * End one turn of a poll loop.
 *
 * @param idle
 *   The loop's state.
 * @param work
 *   Number of things that this turn did; 0 is an empty turn.
 */
static inline void
crpc_idle_turn(struct crpc_idle *idle, uint32_t work)
{
	if (work != 0) {
		idle->empty = 0;
		return;
	}
	if (idle->empty < CRPC_IDLE_SPINS) {
		idle->empty++;
		crpc_pause();
	} else if (idle->policy == CRPC_IDLE_YIELD) {
		idle->yields++;
		sched_yield();
	} else {
		crpc_pause();
	}
}

#endif
