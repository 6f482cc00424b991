/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Key generators: uniform draws are even, zipf draws have the frequencies of the formula, hot keys
 * are scattered and the same for equal seeds, every key of the space is drawn and none outside.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app_keys.h"

static uint32_t
next_key(const struct app_keys *keys, uint64_t *rng)
{
	uint32_t also;

	return app_keys_next_with(keys, rng, &also);
}

#define SEED  20250101
#define DRAWS 2000000

static uint32_t *
count_draws(const struct app_keys *keys, uint64_t seed)
{
	uint32_t *count = calloc(keys->n, sizeof(*count)), i, k;

	assert_non_null(count);
	for (i = 0; i < DRAWS; i++) {
		k = next_key(keys, &seed);
		assert_true(k < keys->n);
		count[k]++;
	}
	return count;
}

/* Each of 1000 keys gets its share of draws within six standard deviations. */
static void
uniform_is_even(void **state)
{
	struct app_keys keys;
	double want = DRAWS / 1000.0;
	uint32_t *count, i;

	assert_int_equal(app_keys_init(&keys, APP_DIST_UNIFORM, 1000, 0, 0), 0);
	count = count_draws(&keys, SEED);
	for (i = 0; i < keys.n; i++)
		assert_true(fabs(count[i] - want) < 6 * sqrt(want));
	free(count);
	app_keys_fini(&keys);
}

static int
cmp_down(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y) - (x > y);
}

/* The i-th most drawn key has the probability 1/i^s over the sum of all. */
static void
zipf_follows_the_formula(void **state)
{
	static const double skews[] = {0.5, 0.99, 1.0, 1.4};
	struct app_keys keys;
	double sum, want;
	uint32_t *count, i;
	size_t s;

	for (s = 0; s < CRPC_DIM(skews); s++) {
		assert_int_equal(app_keys_init(&keys, APP_DIST_ZIPF, 1000, skews[s], SEED), 0);
		count = count_draws(&keys, SEED);
		qsort(count, keys.n, sizeof(*count), cmp_down);
		for (sum = 0, i = 0; i < keys.n; i++)
			sum += pow(i + 1, -skews[s]);
		for (i = 0; i < 10; i++) {
			want = DRAWS * pow(i + 1, -skews[s]) / sum;
			assert_true(fabs(count[i] - want) < 6 * sqrt(want) + want / 100);
		}
		free(count);
		app_keys_fini(&keys);
	}
}

/* The ten hottest keys of zipf do not sit together at the start of the space. */
static void
zipf_scatters_hot_keys(void **state)
{
	struct app_keys keys;
	uint32_t *count, i, hot = 0;

	assert_int_equal(app_keys_init(&keys, APP_DIST_ZIPF, 10000, 0.99, SEED), 0);
	count = count_draws(&keys, SEED);
	for (i = 0; i < 100; i++)
		hot += count[i] > DRAWS / 1000;
	assert_true(hot < 5);
	free(count);
	app_keys_fini(&keys);
}

/* latest draws ages: the youngest most, then each a little less, in order. */
static void
latest_is_in_order(void **state)
{
	struct app_keys keys;
	uint32_t *count, i;

	assert_int_equal(app_keys_init(&keys, APP_DIST_LATEST, 1000, 0, SEED), -EINVAL);
	assert_int_equal(app_keys_init(&keys, APP_DIST_LATEST, 1000, 0.99, SEED), 0);
	count = count_draws(&keys, SEED);
	for (i = 1; i < 20; i++)
		assert_true(count[i] < count[i - 1]);
	assert_true(count[0] > 100 * count[500]);
	free(count);
	app_keys_fini(&keys);
}

static void
equal_seeds_draw_the_same(void **state)
{
	struct app_keys a, b;
	uint64_t ra = SEED, rb = SEED;
	uint32_t i, same = 0;

	assert_int_equal(app_keys_init(&a, APP_DIST_ZIPF, 5000, 0.99, 7), 0);
	assert_int_equal(app_keys_init(&b, APP_DIST_ZIPF, 5000, 0.99, 7), 0);
	for (i = 0; i < 1000; i++)
		assert_int_equal(next_key(&a, &ra), next_key(&b, &rb));
	app_keys_fini(&b);
	assert_int_equal(app_keys_init(&b, APP_DIST_ZIPF, 5000, 0.99, 8), 0);
	for (i = 0; i < 1000; i++)
		same += next_key(&a, &ra) == next_key(&b, &rb);
	assert_true(same < 900);
	app_keys_fini(&a);
	app_keys_fini(&b);
}

static void
edges_and_refusals(void **state)
{
	struct app_keys keys;
	uint64_t r = SEED;
	uint32_t i;

	assert_int_equal(app_keys_init(&keys, APP_DIST_UNIFORM, 0, 0, 0), -EINVAL);
	assert_int_equal(app_keys_init(&keys, APP_DIST_ZIPF, 10, 0, 0), -EINVAL);
	assert_int_equal(app_keys_init(&keys, APP_DIST_ZIPF, 1, 0.99, 0), 0);
	for (i = 0; i < 100; i++)
		assert_int_equal(next_key(&keys, &r), 0);
	app_keys_fini(&keys);
	assert_int_equal(app_keys_init(&keys, APP_DIST_UNIFORM, UINT32_MAX, 0, 0), 0);
	for (i = 0; i < 1000; i++)
		assert_true(next_key(&keys, &r) < UINT32_MAX);
	app_keys_fini(&keys);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uniform_is_even),
		cmocka_unit_test(zipf_follows_the_formula),
		cmocka_unit_test(zipf_scatters_hot_keys),
		cmocka_unit_test(latest_is_in_order),
		cmocka_unit_test(equal_seeds_draw_the_same),
		cmocka_unit_test(edges_and_refusals),
	};

	return cmocka_run_group_tests_name("benchkv_keys", tests, NULL, NULL);
}
