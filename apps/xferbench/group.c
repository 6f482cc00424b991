/* SPDX-License-Identifier: BSD-3-Clause */
/* One group: lanes that move messages, and whether what arrives is what was sent. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "xb.h"

/* Messages of the first slice, which decides how many a slice has. */
#define FIRST_MESSAGES 2

static const struct xb_way *
way_of(const struct app_lane *l)
{
	return (const struct xb_way *)l->way;
}

/* Move n messages each way, or a few more so that every place has as many. */
static int
slice_run(struct app_lane *l, uint64_t n)
{
	l->c->messages = (n + l->c->depth - 1) / l->c->depth * l->c->depth;
	return app_lane_slice(l);
}

/* ---- content ---- */

/* Whether a side's buffers are this process's: each rank has those of its own copies. */
static bool
holds(const struct app_lane *l, int side)
{
	return app_party_plays(l->party, side) || xb_copies(l->c->transport);
}

static bool
sends(const struct app_case *c, int side)
{
	return side == 0 || c->both;
}

static void
content_make(struct app_lane *l, uint64_t seed)
{
	const struct app_case *c = l->c;
	uint64_t len = c->size * c->depth;

	for (int side = 0; side < APP_SIDES; side++) {
		if (!holds(l, side))
			continue;
		if (sends(c, side))
			xb_fill(c->mem[side].send, len, seed + (uint64_t)side);
		if (sends(c, !side))
			memset(c->mem[side].recv, 0x5a, len);
	}
}

/* The same where what arrives is not what was sent. */
static uint64_t
compare_expected(const struct app_lane *l, int side, uint64_t seed)
{
	uint64_t len = l->c->size * l->c->depth, at = 0;
	uint8_t *want = aligned_alloc(CRPC_CACHE_LINE, crpc_align_up(len, CRPC_CACHE_LINE));

	if (want == NULL)
		return 1;
	xb_fill(want, len, seed);
	for (uint64_t i = 0; i < l->c->depth; i++)
		way_of(l)->expect(l, want + i * l->c->size);
	for (uint64_t i = 0; i < len && at == 0; i++)
		at = l->c->mem[side].recv[i] != want[i] ? i + 1 : 0;
	free(want);
	return at;
}

static int
content_check(struct app_lane *l, uint64_t seed)
{
	uint64_t len = l->c->size * l->c->depth, at;

	for (int side = 0; side < APP_SIDES; side++) {
		if (!holds(l, side) || !sends(l->c, !side))
			continue;
		at = way_of(l)->expect == NULL
			? xb_compare(l->c->mem[side].recv, len, seed + (uint64_t)!side)
			: compare_expected(l, side, seed + (uint64_t)!side);
		if (at != 0)
			return app_lane_fail(l, -EBADMSG,
				"what arrived differs from what was sent, from byte %" PRIu64 " on",
				at - 1);
	}
	return 0;
}

/* A slice whose content is proved. */
static int
slice_verified(struct app_lane *l, uint64_t n)
{
	static uint64_t seed;
	int rc;

	seed += 2;
	content_make(l, seed);
	l->c->prove = true;
	rc = slice_run(l, n);
	l->c->prove = false;
	return rc != 0 ? rc : app_lane_agree(l, content_check(l, seed));
}

/* ---- a slice ---- */

static int
xb_start(struct app_lane *l, int side)
{
	struct xb_flow *f = &l->c->flow[side];

	f->to_send = sends(l->c, side) ? l->c->messages : 0;
	f->to_recv = sends(l->c, !side) ? l->c->messages : 0;
	return 0;
}

static int
lane_turn(struct app_lane *l, int side)
{
	return way_of(l)->turn(l, side);
}

static void
xb_report(struct app_lane *l, int side)
{
	if (way_of(l)->report != NULL)
		way_of(l)->report(l, side);
}

/* ---- slices that count ---- */

/* The first messages are proved. How many messages a slice has is known then. */
static int
xb_begin(struct app_lane *l)
{
	double want = (double)l->c->opt->length.slice_ms * 1e6;
	struct xb_lane *x = (struct xb_lane *)l;
	int rc = slice_verified(l, FIRST_MESSAGES);

	if (rc == 0)
		rc = slice_run(l, FIRST_MESSAGES);
	/* Small messages: the first few mean little. */
	if (rc == 0 && app_lane_ns(l) * 8 < want)
		rc = slice_run(l, (uint64_t)(FIRST_MESSAGES * want / app_lane_ns(l) / 8) + 1);
	if (rc != 0)
		return rc;
	x->memory = crpc_max(l->c->report[0].memory, l->c->report[1].memory);
	x->usual = crpc_max((uint64_t)((double)l->c->messages * want / app_lane_ns(l)), 1);
	return 0;
}

static int
xb_slice(struct app_lane *l)
{
	uint64_t n = ((struct xb_lane *)l)->usual;

	return l->c->opt->verify ? slice_verified(l, n) : slice_run(l, n);
}

static bool
xb_keep(struct app_lane *l)
{
	struct xb_lane *x = (struct xb_lane *)l;
	const struct xb_report *a = &l->c->report[0], *b = &l->c->report[1];
	double ns = app_lane_ns(l), messages = (double)l->c->messages;
	uint64_t n;

	app_lane_keep(l, XB_RATE, messages * (double)l->c->size * (l->c->both ? 2 : 1) / ns, ns);
	app_lane_keep(l, XB_EACH, ns / messages / 1e3, ns);
	for (uint32_t i = 0; i < XB_COUNTS; i++)
		x->count[i] += a->count[i] + b->count[i];
	for (uint32_t i = 0; i < XB_STAGES; i++) {
		n = a->stage[i].n + b->stage[i].n;
		if (n != 0)
			app_lane_keep(l, XB_STAGE + i,
				(double)(a->stage[i].ns + b->stage[i].ns) / (double)n / 1e3, ns);
	}
	return true;
}

static const struct app_lane_ops lane_ops = {
	.start = xb_start,
	.turn = lane_turn,
	.report = xb_report,
	.begin = xb_begin,
	.slice = xb_slice,
	.keep = xb_keep,
	.row = xb_row,
};

/* ---- the group ---- */

struct app_group
xb_group(struct xb_run *run)
{
	return (struct app_group){.party = run->party,
		.ops = &lane_ops,
		.rounds = app_length_slices(&run->opt->length),
		.what = "xferbench"};
}

int
xb_group_run(struct app_group *g)
{
	int rc = app_group_run(g);

	app_group_fini(g);
	return rc;
}

/* Ways may need memory for copies of all messages. */
struct xb_lane *
xb_group_add(struct xb_run *run, struct app_group *g, const struct app_case *c)
{
	const struct app_way *way = xb_ways[c->transport];
	struct xb_lane *l;

	/* Cores of two hosts share no memory. */
	if (c->transport == XB_MEMCPY_TWO && !run->party->one_host)
		return NULL;
	l = (struct xb_lane *)app_group_add(g, way, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->c = *c;
	l->c.opt = run->opt;
	l->c.mem = run->mem;
	/* The limit is one copy, whatever is compared with it. */
	l->c.both &= !xb_copies(c->transport);
	/* Engines convert bounce memory, and TCP writes nothing else. */
	if (c->transport == XB_TENSOR_BF16 || c->transport == XB_BULK_TCP)
		l->c.path = XB_EAGER;
	l->base.c = &l->c;
	l->base.report[0] = &l->c.report[0].base;
	l->base.report[1] = &l->c.report[1].base;
	l->base.report_len = sizeof(l->c.report[0]);
	l->base.addr_max = XB_ADDR_MAX;
	l->base.mib += (uint32_t)((2 * c->size * c->depth) >> 20);
	l->base.whole = xb_copies(c->transport);
	snprintf(l->base.text, sizeof(l->base.text), "%s, %s, %" PRIu64 " bytes", way->name,
		xb_path_names[l->c.path], c->size);
	return l;
}

const struct app_lane *
xb_group_find(const struct app_group *g, enum xb_transport t)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->lane[i]->c->transport == t && g->lane[i]->series[XB_RATE].n != 0)
			return g->lane[i];
	return NULL;
}
