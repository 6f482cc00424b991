/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_KEYS_H
#define APP_KEYS_H

/**
 * @file
 * Random numbers and key distributions for load generators.
 *
 * A distribution is built once and shared, read-only, by any number of generators; each generator
 * is its own random state. Drawing a key costs one multiplication (uniform) or one table line
 * (zipf).
 *
 * zipf: the i-th most popular of n keys is drawn with probability proportional to 1/i^s. Popular
 * keys lie scattered over the key space (a seeded shuffle), so that the hot keys are not
 * neighbours. Drawn by the alias method (A. J. Walker 1977; the linear-time set-up is M. D. Vose's,
 * 1991): exact for any n, no rejection, no logarithm on the path.
 *
 * latest: the same probabilities without the shuffle: what is drawn is an age, 0 the newest. Which
 * key has that age is the caller's to know.
 */

#include "crpc_util.h"

/** Which keys are drawn. */
enum app_dist {
	APP_DIST_UNIFORM,
	APP_DIST_ZIPF,
	APP_DIST_LATEST,
};

/** One column of the alias table: keep this key below `keep`, else take `alias`. */
struct app_keys_col {
	uint32_t keep;
	uint32_t alias;
};

/** A distribution over 0..n-1. Read-only after app_keys_init(). */
struct app_keys {
	uint32_t n;
	struct app_keys_col *col; /**< NULL: uniform. */
};

/**
 * Build a distribution.
 *
 * @param keys
 *   Filled.
 * @param dist
 *   Which.
 * @param n
 *   Keys, 1 to 2^32 - 1.
 * @param skew
 *   zipf, latest: the exponent s, above 0.
 * @param seed
 *   zipf: of the shuffle. Ranks that give the same seed get the same hot keys.
 * @return
 *   0, -EINVAL, -ENOMEM.
 */
int app_keys_init(
	struct app_keys *keys, enum app_dist dist, uint32_t n, double skew, uint64_t seed);

/** Free the table. */
void app_keys_fini(struct app_keys *keys);

/**
 * Draw a key, 0..n-1, and 32 random bits beside it, which cost nothing where the keys are drawn
 * evenly: a key takes half of a random word.
 */
static inline uint32_t
app_keys_next_with(const struct app_keys *keys, uint64_t *rng, uint32_t *also)
{
	uint64_t r = crpc_random(rng);
	uint32_t k = (uint32_t)(((r >> 32) * keys->n) >> 32);

	if (crpc_likely(keys->col == NULL)) {
		*also = (uint32_t)r;
		return k;
	}
	*also = (uint32_t)crpc_random(rng);
	return (uint32_t)r < keys->col[k].keep ? k : keys->col[k].alias;
}

#endif
