/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The histogram: buckets tile the number line, quantiles bound the true value from above by at most
 * 1/64, merge equals recording everything in one, and the .hgrm text ends with the totals.
 */
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "crpc_hist.h"
#include "rnd.h"

static uint64_t rng_state = 42;

TEST(buckets_tile_without_gap)
{
	for (uint32_t i = 0; i < CRPC_HIST_BUCKETS - 1; i++) {
		assert_int_equal(crpc_hist_index(crpc_hist_bucket_max(i)), i);
		assert_int_equal(crpc_hist_index(crpc_hist_bucket_max(i) + 1), i + 1);
	}
	assert_int_equal(crpc_hist_index(UINT64_MAX), CRPC_HIST_BUCKETS - 1);
}

static int
cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

TEST(quantiles_are_within_bound)
{
	static const double qs[] = {0, 0.01, 0.5, 0.9, 0.99, 0.999, 1};
	static uint64_t v[20000];
	struct crpc_hist *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	for (size_t i = 0; i < CRPC_DIM(v); i++) {
		v[i] = rnd(&rng_state) >> (rnd(&rng_state) % 40 + 24);
		crpc_hist_record(h, v[i]);
	}
	qsort(v, CRPC_DIM(v), sizeof(v[0]), cmp_u64);
	for (size_t i = 0; i < CRPC_DIM(qs); i++) {
		size_t rank = (size_t)(qs[i] * (double)CRPC_DIM(v) + 0.9999);
		uint64_t want = v[rank == 0 ? 0 : rank - 1];
		uint64_t got = crpc_hist_quantile(h, qs[i]);

		assert_in_range(got, want, want + want / 64 + 1);
	}
	assert_int_equal(h->min, v[0]);
	assert_int_equal(crpc_hist_quantile(h, 1), v[CRPC_DIM(v) - 1]);
	free(h);
}

TEST(merge_equals_recording_in_one)
{
	struct crpc_hist *h = calloc(3, sizeof(*h));

	assert_non_null(h);
	for (int i = 0; i < 1000; i++) {
		uint64_t v = rnd(&rng_state) % 100000;

		crpc_hist_record(&h[i & 1], v);
		crpc_hist_record(&h[2], v);
	}
	crpc_hist_merge(&h[0], &h[1]);
	assert_memory_equal(&h[0], &h[2], sizeof(*h));
	crpc_hist_reset(&h[0]);
	assert_int_equal(crpc_hist_quantile(&h[0], 0.5), 0);
	free(h);
}

TEST(hgrm_ends_with_totals)
{
	struct crpc_hist *h = calloc(1, sizeof(*h));
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(h);
	assert_non_null(f);
	crpc_hist_record_n(h, 1000, 99);
	crpc_hist_record(h, 50000);
	assert_int_equal(crpc_hist_print_hgrm(h, f, 1000), 0);
	fclose(f);
	assert_non_null(strstr(text, "50.000 1.000000000000        100\n"));
	assert_non_null(strstr(text, "#[Max     =       50.000, Total count    =          100]\n"));
	free(text);
	free(h);
}

TEST_MAIN(NULL, NULL)
