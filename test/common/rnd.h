/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RND_H
#define RND_H

/**
 * @file
 * Randomness of tests: xorshift, after Marsaglia. A test prints its seed, so that any failure can
 * be run again.
 */

#include <stdint.h>

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
