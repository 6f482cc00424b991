/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "app_keys.h"

/* weight[i]: probability of the i-th most popular key times n. */
static void
zipf_weights(double *weight, uint32_t n, double skew)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		weight[i] = pow((double)i + 1, -skew);
		sum += weight[i];
	}
	for (uint32_t i = 0; i < n; i++)
		weight[i] *= (double)n / sum;
}

/* Popularity scattered over the key space. */
static void
shuffle(double *weight, uint32_t n, uint64_t seed)
{
	uint32_t j;
	double t;

	for (uint32_t i = n - 1; i > 0; i--) {
		j = (uint32_t)(crpc_random(&seed) % ((uint64_t)i + 1));
		t = weight[i];
		weight[i] = weight[j];
		weight[j] = t;
	}
}

/* Vose's set-up: pair each column below the mean with one above it, until all are level. */
static void
alias_fill(struct app_keys_col *col, double *weight, uint32_t *work, uint32_t n)
{
	uint32_t small = 0, large = n, s, l;

	for (uint32_t i = 0; i < n; i++) {
		if (weight[i] < 1.0)
			work[small++] = i;
		else
			work[--large] = i;
	}
	/* work[0..small) is a stack of light columns, work[large..n) one of heavy columns. */
	while (small > 0 && large < n) {
		s = work[--small];
		l = work[large];
		col[s].keep = (uint32_t)(weight[s] * 4294967296.0);
		col[s].alias = l;
		weight[l] -= 1.0 - weight[s];
		if (weight[l] < 1.0) {
			large++;
			work[small++] = l;
		}
	}
	/* What is left is level but for rounding. */
	while (small > 0) {
		s = work[--small];
		col[s] = (struct app_keys_col){.keep = UINT32_MAX, .alias = s};
	}
	for (; large < n; large++)
		col[work[large]] = (struct app_keys_col){.keep = UINT32_MAX, .alias = work[large]};
}

int
app_keys_init(struct app_keys *keys, enum app_dist dist, uint32_t n, double skew, uint64_t seed)
{
	struct app_keys_col *col;
	double *weight;
	uint32_t *work;

	if (n == 0 || (dist != APP_DIST_UNIFORM && !(skew > 0)))
		return -EINVAL;
	*keys = (struct app_keys){.n = n};
	if (dist == APP_DIST_UNIFORM)
		return 0;
	col = calloc(n, sizeof(*col));
	weight = calloc(n, sizeof(*weight));
	work = calloc(n, sizeof(*work));
	if (col == NULL || weight == NULL || work == NULL) {
		free(col);
		free(weight);
		free(work);
		return -ENOMEM;
	}
	zipf_weights(weight, n, skew);
	if (dist == APP_DIST_ZIPF)
		shuffle(weight, n, seed);
	alias_fill(col, weight, work, n);
	free(weight);
	free(work);
	keys->col = col;
	return 0;
}

void
app_keys_fini(struct app_keys *keys)
{
	free(keys->col);
	keys->col = NULL;
}
