/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunk and window to take: first chunks beside each other at the given window, then windows
 * at the chunk that won. Of those whose rate is next to the best, the one that needs least memory
 * wins. The reason follows from what its neighbours did.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "xb.h"

/* A rate that is as good as the best one. */
#define NEXT_TO 0.97

static const uint32_t chunks[] = {16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20,
	2 << 20, 4 << 20};
static const uint32_t windows[] = {1, 2, 4, 8, 12, 16, 32, 64};

/* What varies, ascending in memory. */
struct scale {
	const char *name;
	const uint32_t *value;
	uint32_t n;
	bool chunk;
};

static const struct scale scales[] = {
	{"chunk", chunks, CRPC_DIM(chunks), true},
	{"window", windows, CRPC_DIM(windows), false},
};

static double
rate(const struct app_group *g, int i)
{
	if (i < 0 || i >= (int)g->n)
		return 0;
	return app_series_median(&g->lane[i]->series[XB_RATE], g->trial.state);
}

/* The lane that needs least of those next to the best one; -1 without figures. */
static int
pick(const struct app_group *g)
{
	double best = 0;

	for (int i = 0; i < (int)g->n; i++)
		best = fmax(best, rate(g, i));
	for (int i = 0; i < (int)g->n && best > 0; i++)
		if (rate(g, i) >= NEXT_TO * best)
			return i;
	return -1;
}

static uint32_t
value_of(const struct scale *s, const struct app_group *g, int i)
{
	const struct app_case *p = g->lane[i]->c;

	return s->chunk ? p->chunk >> 10 : p->window;
}

/* One neighbour: what it gave, and what stopped it. */
static size_t
why_neighbour(
	const struct scale *s, const struct app_group *g, int best, int i, char *buf, size_t len)
{
	double r = rate(g, i), mine = rate(g, best);
	char text[96];
	int n;

	if (!(r > 0))
		return 0;
	n = snprintf(buf, len, "; %" PRIu32 "%s: %+.0f %%%s%s", value_of(s, g, i),
		s->chunk ? " KiB" : "", 100 * (r / mine - 1), i < best ? ", bound by " : "",
		i < best ? xb_bound(g->lane[i], text, sizeof(text)) : " for more memory");
	return n > 0 ? crpc_min((size_t)n, len - 1) : 0;
}

/* What a chunk costs beside its bytes: from the best one and the smallest. */
static void
why_chunk(const struct app_group *g, int best, char *buf, size_t len)
{
	double small = rate(g, 0), mine = rate(g, best), size = (double)g->lane[0]->c->size, us;

	if (best == 0 || !(small > 0))
		return;
	us = size * (1 / small - 1 / mine) / 1e3 /
		(size / g->lane[0]->c->chunk - size / g->lane[best]->c->chunk);
	if (us > 0)
		snprintf(buf, len, "; a chunk costs %.2f us beside its bytes", us);
}

static int
print_best(const struct scale *s, const struct app_group *g, int best)
{
	char why[512] = "";
	size_t used;

	used = why_neighbour(s, g, best, best - 1, why, sizeof(why));
	used += why_neighbour(s, g, best, best + 1, why + used, sizeof(why) - used);
	if (s->chunk)
		why_chunk(g, best, why + used, sizeof(why) - used);
	return xb_out_tuned(g, s->name, g->lane[best], why[0] != '\0' ? why + 2 : "");
}

/* Vary one thing of a case: set it to what is best. */
static int
tune_one(struct xb_run *run, const struct scale *s, struct app_case *p)
{
	struct app_group g = xb_group(run);
	struct app_case q = *p;
	int best, rc;

	for (uint32_t i = 0; i < s->n; i++) {
		*(s->chunk ? &q.chunk : &q.window) = s->value[i];
		/* A chunk larger than the message is the message. */
		if (!s->chunk || i == 0 || s->value[i] <= p->size)
			xb_group_add(run, &g, &q);
	}
	rc = app_group_run(&g);
	best = pick(&g);
	if (rc == 0 && best >= 0 && !app_party_stopped(run->party)) {
		*(s->chunk ? &p->chunk : &p->window) =
			s->chunk ? g.lane[best]->c->chunk : g.lane[best]->c->window;
		rc = print_best(s, &g, best);
	} else if (best < 0) {
		rc = rc != 0 ? rc : -ENODATA;
	}
	fflush(stdout);
	app_group_fini(&g);
	return rc;
}

int
xb_tune(struct xb_run *run)
{
	const struct xb_opt *o = run->opt;
	struct app_case p;
	int rc = 0;

	for (uint32_t i = 0; i < o->paths.n && rc == 0; i++) {
		p = xb_options_case(o);
		p.path = (enum xb_path)o->paths.v[i];
		for (uint32_t k = 0;
			k < CRPC_DIM(scales) && rc == 0 && !app_party_stopped(run->party); k++)
			rc = tune_one(run, &scales[k], &p);
		if (rc == 0 && !app_party_stopped(run->party))
			printf("%s, %" PRIu64 " bytes: take --chunk %" PRIu32 " --window %" PRIu32
			       "\n",
				xb_path_names[p.path], p.size, p.chunk, p.window);
	}
	return rc;
}
