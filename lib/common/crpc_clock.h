/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CLOCK_H
#define CRPC_CLOCK_H

/**
 * @file
 * Nanoseconds from the time-stamp counter.
 *
 * Protocol code never reads a clock: time comes in as an argument, in nanoseconds, so that a test
 * can run it step by step. Poll loops read this clock once per turn and pass it down. It is
 * monotonic, starts near zero at crpc_clock_init(), and is comparable between threads of a process,
 * not between processes or hosts.
 *
 * Call crpc_clock_init() once before threads start: it compares the counter with CLOCK_MONOTONIC,
 * for about 20 ms. Before, crpc_clock_ns() is 0.
 */

#include <stdint.h>
#include <time.h>

#include "crpc_config.h"

CRPC_BEGIN_DECLS

/** Written by crpc_clock_init(), read-only afterwards. */
struct crpc_clock {
	uint64_t base; /**< Counter at init. */
	uint64_t mult; /**< ns = ((counter - base) * mult) >> 32. */
};

extern struct crpc_clock crpc_clock;

/** Calibrate. May be called again, by any thread; the later calls do nothing. */
void crpc_clock_init(void);

/**
 * CLOCK_MONOTONIC, which all processes of a host share: for histories, and for what waits where
 * crpc_clock_init() may not have been called.
 */
uint64_t crpc_clock_monotonic_ns(void);

/** Sleep for @p ns nanoseconds, below a second, or until a signal comes. */
void crpc_nap(uint32_t ns);

/** The raw counter. */
static inline uint64_t
crpc_clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	return crpc_clock_monotonic_ns();
#endif
}

/** Nanoseconds of @p ticks of the counter. */
static inline uint64_t
crpc_clock_ticks_to_ns(uint64_t ticks)
{
	return (uint64_t)(((unsigned __int128)ticks * crpc_clock.mult) >> 32);
}

/** Ticks of the counter in @p ns nanoseconds; after crpc_clock_init(). */
static inline double
crpc_clock_ns_to_ticks(double ns)
{
	return ns * 4294967296.0 / (double)crpc_clock.mult;
}

/** Nanoseconds since crpc_clock_init(). */
static inline uint64_t
crpc_clock_ns(void)
{
	return crpc_clock_ticks_to_ns(crpc_clock_ticks() - crpc_clock.base);
}

CRPC_END_DECLS

#endif
