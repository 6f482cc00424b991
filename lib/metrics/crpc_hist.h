/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_HIST_H
#define CRPC_HIST_H

/**
 * @file
 * A log-linear histogram: constant-time record, bounded relative error, fixed size.
 *
 * Values below 2^CRPC_HIST_SUB_BITS have a bucket each; above, every power of two is cut into
 * 2^CRPC_HIST_SUB_BITS equal buckets, so that a quantile is at most 1/64 (1.6 %) above the true
 * value and never below it. This is the bucket scheme of HdrHistogram (G. Tene), and
 * crpc_hist_print_hgrm() writes the text form that its plotters read.
 *
 * A histogram belongs to one thread. Another thread merges a copy of it (crpc_hist_merge()) after
 * the owner stopped. Recording never allocates.
 */

#include <stdint.h>
#include <stdio.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

#define CRPC_HIST_SUB_BITS 6
/** Values from 2^CRPC_HIST_MAX_BITS on are counted in the last bucket; max stays exact. */
#define CRPC_HIST_MAX_BITS 40
#define CRPC_HIST_SUBS (1u << CRPC_HIST_SUB_BITS)
#define CRPC_HIST_BUCKETS ((CRPC_HIST_MAX_BITS - CRPC_HIST_SUB_BITS + 1) * CRPC_HIST_SUBS)

/** Zero it (or crpc_hist_reset()) before use. About 18 KiB. */
struct crpc_hist {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t min; /**< Of the recorded values; meaningless while count is 0. */
	uint64_t bucket[CRPC_HIST_BUCKETS];
};

/** The bucket of @p v where every power of two is cut into 2^bits. */
static inline uint32_t
crpc_hist_log_index(uint64_t v, uint32_t bits)
{
	uint32_t exp;

	if (v >> bits == 0)
		return (uint32_t)v;
	exp = 63 - (uint32_t)__builtin_clzll(v) - bits;
	return (exp << bits) + (uint32_t)(v >> exp);
}

/** The largest value of such a bucket. */
static inline uint64_t
crpc_hist_log_max(uint32_t i, uint32_t bits)
{
	uint32_t exp = i >> bits;

	if (exp < 2)
		return i;
	return (((uint64_t)(i & ((1u << bits) - 1)) + (1u << bits) + 1) << (exp - 1)) - 1;
}

/** The bucket that counts @p v. */
static inline uint32_t
crpc_hist_index(uint64_t v)
{
	if (crpc_unlikely(v >> CRPC_HIST_MAX_BITS))
		return CRPC_HIST_BUCKETS - 1;
	return crpc_hist_log_index(v, CRPC_HIST_SUB_BITS);
}

/** The largest value that bucket @p i counts. */
static inline uint64_t
crpc_hist_bucket_max(uint32_t i)
{
	return crpc_hist_log_max(i, CRPC_HIST_SUB_BITS);
}

/** Count @p n values of @p v; n at least 1. */
static inline void
crpc_hist_record_n(struct crpc_hist *h, uint64_t v, uint64_t n)
{
	if (h->count == 0 || v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
	h->count += n;
	h->sum += v * n;
	h->bucket[crpc_hist_index(v)] += n;
}

/** Count one value. */
static inline void
crpc_hist_record(struct crpc_hist *h, uint64_t v)
{
	crpc_hist_record_n(h, v, 1);
}

/** Forget everything. */
void crpc_hist_reset(struct crpc_hist *h);

/** Add @p src to @p dst. */
void crpc_hist_merge(struct crpc_hist *dst, const struct crpc_hist *src);

/**
 * The value at quantile @p q.
 *
 * @param h
 *   The histogram.
 * @param q
 *   0 to 1; 0.999 is p99.9.
 * @return
 *   The smallest bucket bound that at least q of the values do not exceed, at most max; 0 if empty.
 */
uint64_t crpc_hist_quantile(const struct crpc_hist *h, double q);

/** The mean; 0 if empty. */
double crpc_hist_mean(const struct crpc_hist *h);

/**
 * Write the percentile distribution in the .hgrm text form.
 *
 * @param h
 *   The histogram.
 * @param out
 *   Where to.
 * @param scale
 *   Values are divided by it: 1000 prints nanoseconds as microseconds.
 * @return
 *   0, or -EIO if a write failed.
 */
int crpc_hist_print_hgrm(const struct crpc_hist *h, FILE *out, double scale);

CRPC_END_DECLS

#endif
