/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_clock.h"

#include <pthread.h>

/* Long enough that the two clock reads' jitter (under 1 us) is below 1/10,000 of it. */
#define CALIBRATE_NS UINT64_C(20000000)

struct crpc_clock crpc_clock;

uint64_t
crpc_clock_monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void
crpc_nap(uint32_t ns)
{
	const struct timespec ts = {.tv_nsec = ns};

	nanosleep(&ts, NULL);
}

static void
calibrate(void)
{
	uint64_t t0 = crpc_clock_monotonic_ns(), t1, c0 = crpc_clock_ticks(), c1;

	do {
		t1 = crpc_clock_monotonic_ns();
		c1 = crpc_clock_ticks();
	} while (t1 - t0 < CALIBRATE_NS);
	crpc_clock.base = c0;
	crpc_clock.mult = (uint64_t)(((unsigned __int128)(t1 - t0) << 32) / (c1 - c0));
}

void
crpc_clock_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, calibrate);
}
