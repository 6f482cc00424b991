/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "crpc_hist.h"

/* Lines printed per halving of the distance to 100 %, as HdrHistogram's own printer does. */
#define HGRM_TICKS_PER_HALF 5

_Static_assert(CRPC_HIST_BUCKETS * sizeof(uint64_t) < 32 * 1024, "a histogram stays small");

void
crpc_hist_reset(struct crpc_hist *h)
{
	memset(h, 0, sizeof(*h));
}

void
crpc_hist_merge(struct crpc_hist *dst, const struct crpc_hist *src)
{
	if (src->count == 0)
		return;
	if (dst->count == 0 || src->min < dst->min)
		dst->min = src->min;
	dst->max = crpc_max(dst->max, src->max);
	dst->count += src->count;
	dst->sum += src->sum;
	for (uint32_t i = 0; i < CRPC_HIST_BUCKETS; i++)
		dst->bucket[i] += src->bucket[i];
}

/*
 * Walks on from bucket *i, where *seen values were counted below it, to the bucket of value number
 * `rank`.
 */
static uint64_t
walk_to(const struct crpc_hist *h, uint64_t rank, uint32_t *i, uint64_t *seen)
{
	while (*i < CRPC_HIST_BUCKETS - 1 && *seen + h->bucket[*i] < rank) {
		*seen += h->bucket[*i];
		(*i)++;
	}
	if (*i == CRPC_HIST_BUCKETS - 1)
		return h->max;
	return crpc_min(crpc_hist_bucket_max(*i), h->max);
}

static uint64_t
rank_of(const struct crpc_hist *h, double q)
{
	double r = ceil(q * (double)h->count);

	if (r < 1)
		return 1;
	return r >= (double)h->count ? h->count : (uint64_t)r;
}

uint64_t
crpc_hist_quantile(const struct crpc_hist *h, double q)
{
	uint64_t seen = 0;
	uint32_t i = 0;

	if (h->count == 0)
		return 0;
	return walk_to(h, rank_of(h, q), &i, &seen);
}

double
crpc_hist_mean(const struct crpc_hist *h)
{
	return h->count == 0 ? 0 : (double)h->sum / (double)h->count;
}

/* From the buckets' bounds, so as exact as they are. */
static double
std_deviation(const struct crpc_hist *h)
{
	double mean = crpc_hist_mean(h), sum = 0, d;

	for (uint32_t i = 0; i < CRPC_HIST_BUCKETS; i++) {
		d = (double)crpc_hist_bucket_max(i) - mean;
		sum += d * d * (double)h->bucket[i];
	}
	return h->count == 0 ? 0 : sqrt(sum / (double)h->count);
}

int
crpc_hist_print_hgrm(const struct crpc_hist *h, FILE *out, double scale)
{
	uint64_t seen = 0, rank, v;
	uint32_t i = 0;
	double q = 0, left = 1;
	int tick = 0;

	fprintf(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount",
		"1/(1-Percentile)");
	while (h->count != 0) {
		rank = rank_of(h, q);
		v = walk_to(h, rank, &i, &seen);
		if (rank == h->count)
			break;
		fprintf(out, "%12.3f %2.12f %10llu %14.2f\n", (double)v / scale, q,
			(unsigned long long)(seen + h->bucket[i]), 1 / (1 - q));
		q += left / (2 * HGRM_TICKS_PER_HALF);
		if (++tick == HGRM_TICKS_PER_HALF) {
			tick = 0;
			left /= 2;
		}
	}
	fprintf(out, "%12.3f %2.12f %10llu\n", (double)h->max / scale, 1.0,
		(unsigned long long)h->count);
	fprintf(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", crpc_hist_mean(h) / scale,
		std_deviation(h) / scale);
	fprintf(out, "#[Max     = %12.3f, Total count    = %12llu]\n", (double)h->max / scale,
		(unsigned long long)h->count);
	fprintf(out, "#[Buckets = %12d, SubBuckets     = %12u]\n",
		CRPC_HIST_MAX_BITS - CRPC_HIST_SUB_BITS, CRPC_HIST_SUBS);
	return ferror(out) ? -EIO : 0;
}
