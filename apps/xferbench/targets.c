/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has to be reached, measured in one group: each line is a figure with a bound and a verdict.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "xb.h"

#define MIB (1u << 20)
#define TARGET_SIZE (UINT64_C(64) * MIB)
#define SMALL_CHUNK 4096u
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

/* The result of a line, and the text of its cause. */
struct line {
	struct app_target t;
	char why[128];
};

static const struct {
	enum xb_transport transport;
	enum xb_path path;
	uint32_t chunk, window;
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

/*
 * The lane of this number; NULL if it has no figures. Lanes that are not built are not in the
 * group.
 */
static const struct xb_lane *
lane(const struct xb_group *g, const int *index, int which)
{
	return index[which] >= 0 && g->lane[index[which]].rate.n != 0 ? &g->lane[index[which]]
								      : NULL;
}

static double
ratio(const struct xb_group *g, const struct xb_lane *a, const struct xb_lane *b)
{
	double r = a != NULL && b != NULL ? xb_ratio(g, &a->rate, &b->rate) : 0;

	return r > 0 ? r : -1;
}

/*
 * The software NIC copies each byte once, and an engine once more. Both cores at once copy so much
 * in this run; a transfer that comes close to its share of that is bounded by it.
 */
static void
line_bounded(struct line *line, const struct xb_group *g, const int *index, int which)
{
	double copies = lanes[which].path == XB_EAGER ? 2 : 1;
	double share = ratio(g, lane(g, index, which), lane(g, index, COPY_TWO)) * copies;
	size_t used = strlen(line->why);

	if (share < 0)
		return;
	line->t.bounded = share >= BOUNDED;
	snprintf(line->why + used, sizeof(line->why) - used,
		"%s%.0f %% of what both cores copy at once%s", used != 0 ? "; " : "", 100 * share,
		copies > 1 ? " / 2 copies" : "");
}

static void
line_ratio(struct line *line, const struct xb_group *g, const int *index, const char *what, int a,
	int b, double bound)
{
	const struct xb_lane *peer = lane(g, index, b);

	*line = (struct line){.t = {.what = what, .bound = bound}};
	line->t.value = ratio(g, lane(g, index, a), peer);
	if (peer != NULL && b == UCX)
		snprintf(line->why, sizeof(line->why), "%s", peer->name);
	line_bounded(line, g, index, a);
}

/* Elapsed time per chunk more, in us, when the same bytes go in small chunks. */
static void
line_chunk(struct line *line, const struct xb_group *g, const int *index, const char *what,
	int large, int small)
{
	const struct xb_lane *a = lane(g, index, large), *b = lane(g, index, small);
	double chunks, us;
	struct app_figure f[2];

	*line = (struct line){
		.t = {.what = what, .value = -1, .bound = 2, .at_most = true, .unit = "us"}};
	if (a == NULL || b == NULL)
		return;
	xb_figure(g, &a->rate, &f[0]);
	xb_figure(g, &b->rate, &f[1]);
	if (!(f[0].median > 0) || !(f[1].median > 0))
		return;
	chunks = (double)TARGET_SIZE * (1.0 / SMALL_CHUNK - 1.0 / a->point.chunk);
	us = (double)TARGET_SIZE * (1 / f[1].median - 1 / f[0].median) / 1e3 / chunks;
	line->t.value = fmax(us, 0);
	snprintf(line->why, sizeof(line->why), "4 KiB chunks beside 512 KiB; all of one: %.2f us",
		SMALL_CHUNK / f[1].median / 1e3);
}

static void
line_memory(struct line *line, const struct xb_group *g, const int *index)
{
	const struct xb_lane *l = lane(g, index, EAGER);

	*line = (struct line){.t = {.what = "memory beyond the user's buffers",
		.value = -1, .at_most = true, .counted = true, .unit = "MiB"}};
	if (l == NULL)
		return;
	line->t.bound = (double)l->point.window * l->point.chunk / MIB + 1;
	line->t.value = (double)l->memory / MIB;
}

static int
tell_all(const struct xb_group *g, const int *index)
{
	struct line line[9];
	uint32_t i;
	int rc = 0;

	line_ratio(&line[0], g, index, "64 MiB, rendezvous / memcpy", RENDEZVOUS, COPY, 0.6);
	line_ratio(&line[1], g, index, "64 MiB, eager with cpu unpack / memcpy", EAGER, COPY, 0.35);
	line_ratio(
		&line[2], g, index, "64 MiB, rendezvous / UCX, rendezvous", RENDEZVOUS, UCX, 1.2);
	line_ratio(&line[3], g, index, "64 MiB, rendezvous / ZeroMQ tcp", RENDEZVOUS, ZMQ, 5);
	line_ratio(&line[4], g, index, "window of 16 / window of 1, rendezvous", RENDEZVOUS,
		RENDEZVOUS_1, 2);
	line_ratio(&line[5], g, index, "window of 16 / window of 1, eager", EAGER, EAGER_1, 2);
	line_memory(&line[6], g, index);
	line_chunk(&line[7], g, index, "time per chunk outside copying, rendezvous", RENDEZVOUS,
		RENDEZVOUS_SMALL);
	line_chunk(&line[8], g, index, "time per chunk outside copying, eager", EAGER, EAGER_SMALL);
	printf("\ntargets\n");
	for (i = 0; i < CRPC_DIM(line) && rc == 0; i++) {
		line[i].t.why = line[i].why;
		rc = xb_out_target(g, &line[i].t);
	}
	fflush(stdout);
	return rc;
}

int
xb_targets(struct xb_run *run)
{
	struct xb_group *g = calloc(1, sizeof(*g));
	struct xb_point p;
	int index[LANES], i, rc;

	if (g == NULL)
		return -ENOMEM;
	g->run = run;
	for (i = 0; i < LANES; i++) {
		p = (struct xb_point){.transport = lanes[i].transport, .path = lanes[i].path,
			.engine = XB_CPU, .size = TARGET_SIZE, .chunk = lanes[i].chunk,
			.window = lanes[i].window, .rails = 1, .depth = 1};
		index[i] = xb_group_add(g, &p) ? (int)g->n - 1 : -1;
	}
	rc = xb_group_measure(g);
	if (rc == 0)
		rc = xb_out_group(g);
	if (rc == 0)
		rc = tell_all(g, index);
	xb_group_fini(g);
	free(g);
	return rc;
}
