/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One group: lanes opened side by side, then slice after slice, each lane in turn, with a line
 * ping-pong before and after where there are two lcores.
 */
#include <string.h>

#include "app_fail.h"
#include "crpc_idle.h"
#include "net.h"

#define WARM_NS  1000000u
#define HELLO_NS 5000000u
#define HELLO_MAX 400 /* tries */
#define SLICE_TRIES 50
#define DRAIN_NS UINT64_C(5000000000)
#define TURNS    8

/* The lane is of no use; say so and go on without it. */
static void
lane_lost(struct net_group *g, struct net_lane *l, const char *why)
{
	char text[96];

	net_out_case(&l->conf, text, sizeof(text));
	app_note("%s, %s: %s; it is left out", l->ops->name, text, why);
	g->run->failed++;
}

static void
lane_end(struct net_group *g, struct net_lane *l)
{
	if (l->end == NULL)
		return;
	net_end_close(l->end);
	l->end = NULL;
	net_far_end_close(&g->run->far, l->conf.index);
}

/* Exchange addresses, both ways, endpoint by endpoint. */
static int
lane_connect(struct net_far *far, struct net_lane *l, char *why, size_t len)
{
	uint8_t ours[NET_ADDR_LEN] = {0}, theirs[NET_ADDR_LEN];
	uint32_t i;
	int rc = 0;

	for (i = 0; i < l->conf.endpoints && rc == 0; i++) {
		l->ops->addr(l->end, i, ours);
		rc = net_far_connect(far, l->conf.index, i, ours, theirs);
		snprintf(why, len, "%s", far->why);
		if (rc == 0)
			rc = l->ops->connect(l->end, i, theirs);
		if (rc != 0 && why[0] == '\0')
			snprintf(why, len, "%s",
				l->end->why[0] != '\0' ? l->end->why : strerror(-rc));
	}
	return rc;
}

static void
lane_begin(struct net_group *g, struct net_lane *l)
{
	struct net_far *far = &g->run->far;
	char why[224] = "";

	l->conf.index = (uint32_t)(l - g->lane);
	if (net_far_end_open(far, &l->conf) != 0) {
		lane_lost(g, l, far->why);
		return;
	}
	l->end = net_end_open(&l->conf, false, why, sizeof(why));
	if (l->end == NULL) {
		net_far_end_close(far, l->conf.index);
		lane_lost(g, l, why);
	} else if (lane_connect(far, l, why, sizeof(why)) != 0) {
		lane_end(g, l);
		lane_lost(g, l, why);
	}
}

/* ---- slices ---- */

struct timed {
	uint64_t calls; /* Of the timed part. */
	uint64_t all;   /* And of what stands before and behind it. */
	uint64_t ns;
	uint64_t away_ns;
	struct net_ledger far;
};

/* Both ends step until the time is over, or until nothing is open: how many calls ended. */
static uint64_t
steps(struct net_far *far, struct net_end *e, uint64_t end_ns, bool more, struct crpc_idle *idle)
{
	uint32_t (*step)(struct net_end *, uint64_t, bool) = e->ops->step;
	uint64_t now, calls = 0;
	uint32_t n = 0, i;

	do {
		for (i = 0; i < TURNS; i++) {
			now = crpc_clock_ns();
			n = step(e, now, more);
			calls += n;
			net_far_turn(far, now);
		}
		if (idle->policy == CRPC_IDLE_YIELD)
			crpc_idle_turn(idle, n);
	} while (now < end_ns && !e->broken && (more || e->open != 0));
	return calls;
}

/* One slice: false if the lane is of no use any more. */
static bool
slice_run(struct net_group *g, struct net_lane *l, uint64_t ns, struct timed *t)
{
	struct net_far *far = &g->run->far;
	struct crpc_idle idle = {
		.policy = far->rpb->shared ? CRPC_IDLE_YIELD : CRPC_IDLE_POLL};
	struct net_end *e = l->end;
	uint64_t start, before;
	int rc = net_far_start(far, l->conf.index);

	*t = (struct timed){0};
	if (rc == 0) {
		t->all = steps(far, e, crpc_clock_ns() + WARM_NS, true, &idle);
		before = app_measure_away_ns();
		start = crpc_clock_ns();
		t->calls = steps(far, e, start + ns, true, &idle);
		t->ns = crpc_clock_ns() - start;
		t->away_ns = app_measure_away_ns() - before;
		t->all += t->calls + steps(far, e, crpc_clock_ns() + DRAIN_NS, false, &idle);
		rc = net_far_stop(far, &t->far);
		t->away_ns += far->away_ns;
	}
	if (rc != 0)
		net_break(e, "the far end: %s", far->why[0] != '\0' ? far->why : strerror(-rc));
	if (e->open != 0)
		net_break(e, "%lu calls did not end", (unsigned long)e->open);
	if (e->bad != 0)
		net_break(e, "%lu answers were wrong", (unsigned long)e->bad);
	if (!e->broken)
		return true;
	lane_lost(g, l, e->why);
	lane_end(g, l);
	return false;
}

static double
slice_value(const struct net_lane *l, const struct timed *t)
{
	switch (l->ops->unit) {
	case NET_LATENCY:
		return (double)t->ns / (double)t->calls;
	case NET_BYTES:
		return (double)t->calls * l->conf.size / (double)t->ns;
	default:
		return (double)t->calls * 1e3 / (double)t->ns;
	}
}

/* What both ends' devices did since the last time. */
static void
lane_account(struct net_lane *l, const struct timed *t)
{
	struct net_ledger now = {0};

	l->ops->ledger(l->end, &now);
	net_ledger_add(&l->near, &l->near_at, &now);
	net_ledger_add(&l->far, &l->far_at, &t->far);
	l->calls += t->all;
	l->near_at = now;
	l->far_at = t->far;
}

/* First calls set up what is set up late. */
static void
lane_hello(struct net_group *g, struct net_lane *l)
{
	struct timed t = {0};
	uint32_t i;

	for (i = 0; i < HELLO_MAX && l->end != NULL && t.calls == 0; i++)
		if (!slice_run(g, l, HELLO_NS, &t))
			return;
	if (l->end == NULL)
		return;
	if (t.calls == 0) {
		lane_end(g, l);
		lane_lost(g, l, "no call ended");
		return;
	}
	lane_account(l, &t);
	l->near = l->far = (struct net_ledger){0};
	l->calls = 0;
}

/* A slice in which something else had a core, so that no call ended, is tried again. */
static void
lane_slice(struct net_group *g, struct net_lane *l, uint64_t ns, double *line)
{
	struct app_slice s = {0};
	struct timed t = {0};
	uint32_t i;

	for (i = 0; i < SLICE_TRIES && l->end != NULL && t.calls == 0; i++) {
		if (!slice_run(g, l, ns, &t))
			return;
		lane_account(l, &t);
		s.line_ns[0] = *line;
		*line = s.line_ns[1] = net_far_line_ns(&g->run->far);
	}
	if (t.calls == 0)
		return;
	s.ns = (double)t.ns;
	s.away_ns = t.away_ns;
	s.value = slice_value(l, &t);
	app_series_add(&l->value, &s);
}

int
net_group_measure(struct net_group *g)
{
	const struct net_opt *o = g->run->opt;
	struct app_series value[NET_LANES_MAX];
	uint64_t round;
	double line;
	uint32_t i;

	for (i = 0; i < g->n && !rpb_interrupted(); i++) {
		lane_begin(g, &g->lane[i]);
		if (g->lane[i].end != NULL)
			lane_hello(g, &g->lane[i]);
	}
	line = net_far_line_ns(&g->run->far);
	app_trial_begin(&g->trial);
	for (round = 0; round < o->repeat && !rpb_interrupted(); round++) {
		app_out_progress(g->run->layer, round, o->repeat);
		for (i = 0; i < g->n && !rpb_interrupted(); i++)
			lane_slice(g, &g->lane[i], o->slice_ms * 1000000, &line);
	}
	app_out_progress("", o->repeat, o->repeat);
	for (i = 0; i < g->n; i++) {
		value[i] = g->lane[i].value;
		lane_end(g, &g->lane[i]);
	}
	app_trial_end(&g->trial, value, g->n);
	return 0;
}

bool
net_group_add(struct net_group *g, const struct net_conf *conf)
{
	const struct net_ops *ops = net_ops[conf->transport];
	static bool reported[NET_ALL]; /* What is missing, once each. */

	if (!ops->built && !reported[conf->transport]) {
		app_note("%s is not in this build", ops->name);
		reported[conf->transport] = true;
	}
	if (!ops->built || g->n == NET_LANES_MAX)
		return false;
	g->lane[g->n++] = (struct net_lane){.conf = *conf, .ops = ops};
	return true;
}

void
net_group_fini(struct net_group *g)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		app_series_fini(&g->lane[i].value);
	g->n = 0;
}

void
net_lane_figure(const struct net_group *g, const struct net_lane *l, struct app_figure *f)
{
	app_series_figure(&l->value, g->trial.state, f);
}
