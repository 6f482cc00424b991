/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunk and window to take: first chunks beside each other at the given window, then windows
 * at the chunk that won. Of those whose rate is next to the best, the one that needs least memory
 * wins; their rows, and what bounds each, stand before it.
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

/* The lane that needs least of those next to the best one; NULL without figures. */
static const struct app_lane *
pick(const struct app_group *g)
{
	double rate[APP_LANES_MAX], best = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		rate[i] = app_series_median(&g->lane[i]->series[XB_RATE], g->trial.state);
		best = fmax(best, rate[i]);
	}
	for (uint32_t i = 0; i < g->n && best > 0; i++)
		if (rate[i] >= NEXT_TO * best)
			return g->lane[i];
	return NULL;
}

static int
print_best(const struct app_group *g, const char *name, const struct app_lane *l)
{
	json_t *row = app_row(&g->party->out, "tuned", &g->trial), *rows = json_array();
	char bound[96];

	app_row_set(row, "{s:s,s:s,s:I,s:i,s:i}", "tuned", name, "path", xb_path_names[l->c->path],
		"size", (json_int_t)l->c->size, "chunk", l->c->chunk, "window", l->c->window);
	app_row_series(row, "bandwidth", &l->series[XB_RATE], &g->trial, "GB/s");
	app_row_set(row, "{s:s}", "bound", xb_bound(l, bound, sizeof(bound)));
	json_array_append_new(rows, row);
	return app_out_rows(&g->party->out, "tuned", &g->trial, rows);
}

/* Vary one thing of a case, ascending in memory: set it to what is best. */
static int
tune_one(struct xb_run *run, struct app_case *p, const char *name, uint32_t *to,
	const uint32_t *value, uint32_t n)
{
	struct app_group g = xb_group(run);
	const struct app_lane *best;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		*to = value[i];
		/* A chunk larger than the message is the message. */
		if (i == 0 || p->chunk <= p->size || to != &p->chunk)
			xb_group_add(run, &g, p);
	}
	rc = app_group_run(&g);
	best = pick(&g);
	if (best != NULL) {
		p->chunk = best->c->chunk;
		p->window = best->c->window;
	}
	if (rc == 0 && !app_party_stopped(run->party))
		rc = best != NULL ? print_best(&g, name, best) : -ENODATA;
	fflush(stdout);
	app_group_fini(&g);
	return rc;
}

int
xb_tune(struct xb_run *run)
{
	const struct xb_opt *o = run->opt;
	struct app_case p = xb_options_case(o);
	int rc = 0;

	for (uint32_t i = 0; i < o->paths.n && rc == 0 && !app_party_stopped(run->party); i++) {
		p.path = (uint32_t)o->paths.v[i];
		p.window = (uint32_t)o->windows.v[0];
		rc = tune_one(run, &p, "chunk", &p.chunk, chunks, CRPC_DIM(chunks));
		if (rc == 0 && !app_party_stopped(run->party))
			rc = tune_one(run, &p, "window", &p.window, windows, CRPC_DIM(windows));
		if (rc == 0 && !app_party_stopped(run->party))
			printf("%s, %" PRIu64 " bytes: take --chunk %" PRIu32 " --window %" PRIu32
			       "\n",
				xb_path_names[p.path], p.size, p.chunk, p.window);
	}
	return rc;
}
