/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane for each transport, and one for the machine's own line rate: from slices to rows. Each
 * slice has rings, or nodes, of its own.
 */
#include <string.h>

#include <rte_launch.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_mem.h"
#include "rb.h"

#define SLICE_NS 60e6
#define CHECK_NS 10e6
#define LINE_NS  5000000u

struct ring_lane {
	struct app_lane base;
	struct app_case c;
	struct app_report report[APP_SIDES];
	struct rb_slice *s;
	bool verify, counters;
	uint64_t messages; /* of the last slice */
	uint64_t counted;  /* messages whose lcores' CPUs were asked */
};

static struct ring_lane *
ring_lane(struct app_lane *l)
{
	return (struct ring_lane *)l;
}

/* ---- slices ---- */

/* The third lcore and more of flux and mesh. */
static int
more_run(void *arg)
{
	struct rb_slice *s = arg;
	uint64_t before = app_measure_away_ns();

	rb_nodes_run(s, 2 + crpc_fetch_add_relaxed(&s->more, 1));
	crpc_fetch_add_relaxed(&s->away_ns, app_measure_away_ns() - before);
	return 0;
}

static int
ring_turn(struct app_lane *base, int side)
{
	struct ring_lane *l = ring_lane(base);

	if (l->c.pattern >= RB_FLUX)
		rb_nodes_run(l->s, (uint32_t)side);
	else
		rb_ring_run(l->s, side);
	if (side == 0)
		crpc_store_relaxed(&l->s->stop, 1);
	return 1;
}

static int
run(struct ring_lane *l)
{
	bool nodes = l->c.pattern >= RB_FLUX;
	int rc = nodes ? rb_nodes_open(l->s) : rb_ring_open(l->s);

	if (rc != 0)
		return app_lane_fail(&l->base, rc, "%s",
			crpc_log_last()[0] != '\0' ? crpc_log_last() : strerror(-rc));
	app_eal_mem_report();
	for (uint32_t i = 2; i < l->c.nlcores; i++)
		rte_eal_remote_launch(more_run, l->s, rb_lcore[i]);
	rc = app_lane_slice(&l->base);
	rte_eal_mp_wait_lcore();
	l->messages = crpc_load_relaxed(&l->s->done);
	l->counted += l->base.counts ? l->messages : 0;
	l->report[0].away_ns += crpc_load_relaxed(&l->s->away_ns);
	if (rc == 0 && l->s->bad != 0)
		rc = app_lane_fail(&l->base, -EBADMSG, "%lu wrong of %lu messages",
			(unsigned long)l->s->bad, (unsigned long)l->messages);
	if (nodes)
		rb_nodes_close(l->s);
	else
		rb_ring_close(l->s);
	return rc;
}

static int
slice(struct ring_lane *l, uint64_t ticks)
{
	int rc;

	l->s = crpc_mem_alloc("slice", sizeof(*l->s), CRPC_CACHE_GUARD, NULL);
	if (l->s == NULL)
		return app_lane_fail(&l->base, -ENOMEM, "no memory");
	l->s->c = l->c;
	l->s->c.ticks = ticks;
	l->s->c.check = ticks != l->c.ticks;
	l->base.counts = l->counters && !l->s->c.check;
	rc = run(l);
	crpc_mem_free(l->s);
	return rc;
}

/* --verify: a slice with another length, which does not count. */
static int
ring_begin(struct app_lane *l)
{
	uint64_t ticks = crpc_min(
		ring_lane(l)->c.ticks - 1, (uint64_t)crpc_clock_ns_to_ticks(CHECK_NS));

	return ring_lane(l)->verify ? slice(ring_lane(l), ticks) : 0;
}

static int
ring_slice(struct app_lane *l)
{
	return slice(ring_lane(l), ring_lane(l)->c.ticks);
}

static bool
ring_keep(struct app_lane *base)
{
	double ns = (double)(base->end_ns[0] - base->begin_ns[0]);
	struct ring_lane *l = ring_lane(base);
	double messages = (double)l->messages;

	if (l->messages == 0) /* Something else had a core all the time. */
		return false;
	app_lane_keep(
		base, 0, l->c.pattern == RB_LATENCY ? ns / messages : messages * 1e3 / ns, ns);
	return true;
}

/* ---- rows ---- */

/* What the transport is compared with: rte_ring's best API at this burst, in the same state. */
static double
rte_best(const struct app_group *g, bool latency)
{
	double best = 0, v;

	for (uint32_t i = 1; i < g->n; i++) {
		v = app_series_median(&g->lane[i]->series[0], g->trial.state);
		if (strncmp(g->lane[i]->name, "rte_ring", 8) == 0 && v > 0 &&
			(best == 0 || (latency ? v < best : v > best)))
			best = v;
	}
	return best;
}

/* Lines that an operation moves at the least, both directions together: messages fill lines. */
static double
lines_of(const struct app_case *c)
{
	return (c->pattern == RB_STREAM ? 1.0 : 2.0) * c->size / CRPC_CACHE_LINE;
}

static void
ring_row(const struct app_group *g, const struct app_lane *base, json_t *row)
{
	const struct ring_lane *l = (const struct ring_lane *)base;
	const struct app_case *c = &l->c;
	bool latency = c->pattern == RB_LATENCY, nodes = c->pattern >= RB_FLUX;
	double line_ns = app_series_line_ns(&base->series[0], g->trial.state), ns;
	double rte = rte_best(g, latency);
	double line = app_series_median(&g->lane[0]->series[0], g->trial.state);
	struct app_figure f = app_series_figure(&base->series[0], g->trial.state);

	app_row_set(row, "{s:s,s:i,s:i,s:i,s:i,s:i}", "pattern", rb_pattern_names[c->pattern],
		"size", c->size, "burst", c->burst, "depth", c->inflight, "slots", c->depth,
		"nodes", nodes ? c->nodes : 2);
	app_row_figure(row, latency ? "latency" : "rate", &f, latency ? "ns" : "Mops/s");
	app_row_ratio(row, "ratio_rte_ring",
		!(rte > 0 && f.median > 0) ? 0
			: latency          ? rte / f.median
					   : f.median / rte);
	app_row_ratio(row, "ratio_line", latency && f.median > 0 ? line_ns / f.median : 0);
	app_row_ratio(row, "ratio_line_rate",
		!latency && line > 0 && (!nodes || c->nodes == 2) ? f.median * lines_of(c) / line
								  : 0);
	ns = latency ? f.median : f.median > 0 ? 1e3 / f.median : 0;
	app_row_set(row, "{s:f,s:f,s:f}", "cycles", crpc_clock_ns_to_ticks(ns),
		"line_ns", line_ns, "line_rate_mlps", line);
	if (base->counter[0][0] != 0) {
		app_row_counters(row, "first_lcore", base->counter[0], (double)l->counted);
		app_row_counters(row, "second_lcore", base->counter[1], (double)l->counted);
	}
}

static const struct app_lane_ops ring_ops = {
	.turn = ring_turn,
	.begin = ring_begin,
	.slice = ring_slice,
	.keep = ring_keep,
	.row = ring_row,
};

/* ---- the machine's line rate, in the direction or directions of the pattern ---- */

static int
line_slice(struct app_lane *l)
{
	uint64_t before = app_measure_away_ns();

	ring_lane(l)->messages = (uint64_t)(1e3 *
		rb_env_line_rate(l->party,
			ring_lane(l)->c.pattern == RB_STREAM ? RB_ONE_WAY : RB_BOTH_WAYS, LINE_NS));
	l->report[0]->away_ns = app_measure_away_ns() - before;
	return 0;
}

static bool
line_keep(struct app_lane *l)
{
	double thousands = (double)ring_lane(l)->messages;

	if (thousands > 0)
		app_lane_keep(l, 0, thousands / 1e3, LINE_NS);
	return thousands > 0;
}

static const struct app_lane_ops line_ops = {.slice = line_slice, .keep = line_keep};

/* ---- cases ---- */

static void
lane_add(struct app_group *g, const struct app_case *c, const struct rb_opt *o, const char *name,
	const struct app_lane_ops *ops)
{
	/* A lane has no state of its own: each slice opens what it needs. */
	static const struct app_way way = {.built = true, .name = ""};
	struct app_lane *l = app_group_add(g, &way, sizeof(struct ring_lane));

	if (l == NULL)
		return;
	ring_lane(l)->c = *c;
	ring_lane(l)->verify = o->verify;
	ring_lane(l)->counters = o->counters;
	l->c = &ring_lane(l)->c;
	l->ops = ops;
	l->whole = true;
	l->report[0] = &ring_lane(l)->report[0];
	l->report[1] = &ring_lane(l)->report[1];
	l->report_len = sizeof(struct app_report);
	snprintf(l->name, sizeof(l->name), "%s", name);
	snprintf(l->text, sizeof(l->text), "%s, %s, %u bytes, burst %u", name,
		rb_pattern_names[c->pattern], c->size, c->burst);
}

int
rb_case_run(const struct rb_opt *o, const struct app_case *of, struct app_party *p)
{
	uint64_t slices = (uint64_t)(o->seconds * 1e9 / SLICE_NS + 0.5);
	struct app_group g = {.party = p,
		.ops = &ring_ops,
		.rounds = o->repeat * crpc_max(slices, UINT64_C(1)),
		.what = "ringbench"};
	struct app_case c = *of;
	const char *lacks;
	int rc;

	c.ticks = (uint64_t)crpc_clock_ns_to_ticks(slices == 0 ? o->seconds * 1e9 : SLICE_NS);
	c.nlcores = c.pattern >= RB_FLUX ? crpc_min(c.nodes, rb_lcores) : 2;
	lane_add(&g, &c, o, "line", &line_ops);
	for (uint32_t i = 0; i < o->transports.n; i++) {
		c.transport = (uint32_t)o->transports.v[i];
		lacks = rb_transport_lacks(c.transport, c.pattern, c.size);
		if (lacks == NULL)
			lane_add(&g, &c, o, rb_transport_names[c.transport], &ring_ops);
		else
			printf("%s %s\n", rb_transport_names[c.transport], lacks);
	}
	rc = app_group_run(&g);
	app_group_fini(&g);
	return rc;
}
