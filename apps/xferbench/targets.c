/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has to be reached, measured in one group: each line is a figure with a bound and a verdict.
 */
#include <math.h>
#include <string.h>

#include "xb.h"

#define MIB          (1u << 20)
#define TARGET_SIZE  (UINT64_C(64) * MIB)
#define SMALL_CHUNK  4096u
#define SMALL_WINDOW 64u
/* From this share on of what both cores can copy, it is the copies that bound a transfer. */
#define BOUNDED 0.85

/* The lanes, in this order. */
enum {
	RENDEZVOUS,
	EAGER,
	RENDEZVOUS_1,
	EAGER_1,
	RENDEZVOUS_SMALL,
	EAGER_SMALL,
	COPY,
	COPY_TWO,
	UCX,
	ZMQ,
	LANES
};

static const struct {
	uint32_t transport, path, chunk, window;
} lanes[LANES] = {
	[RENDEZVOUS] = {XB_BULK, XB_WRITE, 512 << 10, 16},
	[EAGER] = {XB_BULK, XB_EAGER, 512 << 10, 16},
	[RENDEZVOUS_1] = {XB_BULK, XB_WRITE, 512 << 10, 1},
	[EAGER_1] = {XB_BULK, XB_EAGER, 512 << 10, 1},
	[RENDEZVOUS_SMALL] = {XB_BULK, XB_WRITE, SMALL_CHUNK, SMALL_WINDOW},
	[EAGER_SMALL] = {XB_BULK, XB_EAGER, SMALL_CHUNK, SMALL_WINDOW},
	[COPY] = {XB_MEMCPY, XB_WRITE, 0, 0},
	[COPY_TWO] = {XB_MEMCPY_TWO, XB_WRITE, 0, 0},
	[UCX] = {XB_UCX, XB_WRITE, 0, 0},
	[ZMQ] = {XB_ZMQ, XB_EAGER, 0, 0},
};

/* What is made of lanes a and b. */
enum of { OF_RATIO, OF_MEMORY, OF_CHUNK };

static const struct app_target lines[] = {
	{"64 MiB, rendezvous / memcpy", OF_RATIO, 0.6, false, COPY, RENDEZVOUS},
	{"64 MiB, eager with cpu unpack / memcpy", OF_RATIO, 0.35, false, COPY, EAGER},
	{"64 MiB, rendezvous / UCX, rendezvous", OF_RATIO, 1.2, false, UCX, RENDEZVOUS},
	{"64 MiB, rendezvous / ZeroMQ tcp", OF_RATIO, 5, false, ZMQ, RENDEZVOUS},
	{"window of 16 / window of 1, rendezvous", OF_RATIO, 2, false, RENDEZVOUS_1, RENDEZVOUS},
	{"window of 16 / window of 1, eager", OF_RATIO, 2, false, EAGER_1, EAGER},
	{"memory beyond the user's buffers", OF_MEMORY, 0, true, EAGER, EAGER, .counted = true,
		.unit = "MiB"},
	{"time per chunk outside copying, rendezvous", OF_CHUNK, 2, true, RENDEZVOUS_SMALL,
		RENDEZVOUS, .unit = "us"},
	{"time per chunk outside copying, eager", OF_CHUNK, 2, true, EAGER_SMALL, EAGER,
		.unit = "us"},
};

/* By lane. NULL: it is not built, or has no figures. */
struct measured {
	const struct app_group *g;
	const struct app_lane *lane[LANES];
};

static double
ratio(const struct measured *m, int a, int b)
{
	double r = m->lane[a] == NULL || m->lane[b] == NULL
		? 0
		: app_series_ratio(&m->lane[a]->series[XB_RATE], &m->lane[b]->series[XB_RATE],
			  m->g->trial.state);

	return r > 0 ? r : -1;
}

/*
 * The software NIC copies each byte once, and an engine once more. Both cores at once copy so much
 * in this run; a transfer that comes close to its share of that is bounded by it.
 */
static void
line_ratio(const struct measured *m, struct app_target *t, char *why, size_t len)
{
	double copies = lanes[t->mine].path == XB_EAGER ? 2 : 1;
	double share = ratio(m, (int)t->mine, COPY_TWO) * copies;
	const char *peer = t->other == UCX && m->lane[UCX] != NULL ? m->lane[UCX]->name : "";

	t->value = ratio(m, (int)t->mine, (int)t->other);
	t->bounded = share >= BOUNDED;
	if (share < 0)
		snprintf(why, len, "%s", peer);
	else
		snprintf(why, len, "%s%s%.0f %% of what both cores copy at once%s", peer,
			peer[0] != '\0' ? "; " : "", 100 * share, copies > 1 ? " / 2 copies" : "");
}

/* Elapsed time per chunk more, in us, when the same bytes go in small chunks. */
static double
chunk_us(const struct measured *m, const struct app_lane *a, const struct app_lane *b, char *why,
	size_t len)
{
	double fast = app_series_median(&a->series[XB_RATE], m->g->trial.state);
	double slow = app_series_median(&b->series[XB_RATE], m->g->trial.state);
	double chunks = (double)TARGET_SIZE * (1.0 / SMALL_CHUNK - 1.0 / a->c->chunk);

	if (!(fast > 0) || !(slow > 0))
		return -1;
	snprintf(why, len, "4 KiB chunks beside 512 KiB; all of one: %.2f us",
		SMALL_CHUNK / slow / 1e3);
	return fmax((double)TARGET_SIZE * (1 / slow - 1 / fast) / 1e3 / chunks, 0);
}

static void
line_fill(const void *arg, struct app_target *t)
{
	const struct measured *m = arg;
	const struct app_lane *l = m->lane[t->mine];
	static char why[128];

	why[0] = '\0';
	t->why = why;
	t->value = -1;
	if (t->of == OF_RATIO) {
		line_ratio(m, t, why, sizeof(why));
	} else if (t->of == OF_CHUNK && l != NULL && m->lane[t->other] != NULL) {
		t->value = chunk_us(m, l, m->lane[t->other], why, sizeof(why));
	} else if (t->of == OF_MEMORY && l != NULL) {
		t->bound = (double)l->c->window * l->c->chunk / MIB + 1;
		t->value = (double)((const struct xb_lane *)l)->memory / MIB;
	}
}

int
xb_targets(struct xb_run *run)
{
	struct app_group g = xb_group(run);
	struct measured m = {.g = &g};
	struct xb_lane *added[LANES];
	struct app_case p;
	int rc;

	for (int i = 0; i < LANES; i++) {
		p = (struct app_case){.transport = lanes[i].transport,
			.path = lanes[i].path,
			.engine = XB_CPU,
			.size = TARGET_SIZE,
			.chunk = lanes[i].chunk,
			.window = lanes[i].window,
			.rails = 1,
			.depth = 1};
		added[i] = xb_group_add(run, &g, &p);
	}
	rc = app_group_run(&g);
	for (int i = 0; i < LANES; i++)
		if (added[i] != NULL && added[i]->base.series[XB_RATE].n != 0)
			m.lane[i] = &added[i]->base;
	printf("\ntargets\n");
	if (rc == 0)
		rc = app_out_targets(&run->party->out, &g.trial, lines, CRPC_DIM(lines),
			line_fill, &m);
	fflush(stdout);
	app_group_fini(&g);
	return rc;
}
