/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RND_H
#define RND_H

/**
 * @file
 * Randomness of tests: xorshift, after Marsaglia. A test begins with a seed of its own that is the
 * same in every run, or with rnd_seed().
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/** The seed of a test: SEED of the environment, or the same in every run. It is printed, and never
 *  0. */
static inline uint64_t
rnd_seed(void)
{
	const char *text = getenv("SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 0;

	if (seed == 0)
		seed = 20260101;
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

/** The next one; a state is never 0. */
static inline uint64_t
rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/** One of 0 to n - 1. */
static inline uint32_t
rnd_below(uint64_t *s, uint32_t n)
{
	return (uint32_t)((rnd(s) >> 20) % n);
}

#endif
