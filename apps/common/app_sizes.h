/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_SIZES_H
#define APP_SIZES_H

/**
 * @file
 * Sizes of values: one, evenly from a range, or a mix of some.
 *
 *     1000            every value
 *     8-1024          any size from 8 to 1024, each as often
 *     8:9,1024:1      9 of 10 values have 8 bytes, 1 has 1024
 *
 * The size of a value follows from its first word, which no two values share. So who reads one
 * knows what size it must have, and a cut or grown value shows.
 */

#include <stdbool.h>
#include <stdint.h>

#define APP_SIZES_MAX 8

/** A distribution. */
struct app_sizes {
	uint32_t min, max;
	uint32_t n; /**< Of the mix; 0: evenly from min to max. */
	struct {
		/** Of 2^32: a draw below this has this size, if it has no other. */
		uint32_t below;
		uint32_t size;
	} mix[APP_SIZES_MAX];
};

/** Every value has the same size. */
static inline bool
app_sizes_fixed(const struct app_sizes *s)
{
	return s->min == s->max;
}

/** The size of the value with this first word. */
uint32_t app_sizes_of(const struct app_sizes *s, uint64_t word);

/**
 * Read one of the forms above.
 *
 * @param min, max
 *   What a size may be.
 * @return
 *   0, or -EINVAL.
 */
int app_sizes_parse(struct app_sizes *s, const char *text, uint32_t min, uint32_t max);

#endif
