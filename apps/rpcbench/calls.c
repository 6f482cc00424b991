/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes of calls. A slice: all clients warm up, call for a while, and wait for what is open; the
 * server answers until that is over.
 */
#include <stdlib.h>

#include "app_fail.h"
#include "lane_loop.h"

#define WARM_NS   1000000u
#define HELLO_NS  2000000u
#define SETTLE_NS 100000000u
#define HELLO_MAX 1000 /* tries */
#define CHECK_NS  10000000u
#define DRAIN_NS  UINT64_C(20000000000)
/* Of a drain between two looks at the peer. */
#define DRAIN_LOOK_NS 100000000u
/* Steps between two looks at the clock, where an lcore has one side alone. */
#define STEPS 8

static const struct lane_way *
way_of(const struct app_lane *l)
{
	return (const struct lane_way *)l->way;
}

void *
lane_end_new(struct app_lane *l, int side, size_t size)
{
	size_t room = (size_t)crpc_align_up(size, sizeof(uint64_t));
	struct lane_end *e = app_lane_state(
		l, side, room + l->c->clients * sizeof(struct lane_one));

	if (e == NULL)
		return NULL;
	e->one = (struct lane_one *)(void *)((uint8_t *)e + room);
	e->conf = *l->c;
	e->lane = l;
	e->server = side == 1;
	e->oneway = l->c->mode == LANE_ONEWAY;
	return e;
}

/* ---- a slice ---- */

static int
call_start(struct app_lane *base, int side)
{
	struct call_lane *l = (struct call_lane *)base;

	if (side == 0 || way_of(base)->step != NULL)
		((struct lane_end *)base->state[side])->check = l->check;
	if (side == 0) {
		l->phase = CALL_WARM;
		l->until_ns = crpc_clock_ns() + WARM_NS;
	}
	return 0;
}

static int
phase_next(struct call_lane *l, struct lane_end *e, uint64_t now)
{
	switch (l->phase++) {
	case CALL_WARM:
		e->hist = l->slice_hist;
		l->away_ns = app_measure_away_ns();
		l->since_ns = crpc_clock_ns();
		l->until_ns = l->since_ns + l->slice_ns;
		return 0;
	case CALL_TIMED:
		l->report[0].base.ns = now - l->since_ns;
		l->report[0].base.away_ns = app_measure_away_ns() - l->away_ns;
		l->until_ns = now + DRAIN_NS;
		e->hist = NULL;
		return 0;
	default:
		if (e->open != 0)
			return lane_break(
				e, "%lu calls were never answered", (unsigned long)e->open);
		if (e->bad != 0)
			return lane_break(e, "%lu answers were wrong", (unsigned long)e->bad);
		return 1;
	}
}

/* Take answers, make no calls, until none is open or `end` is reached. */
static void
drain(struct lane_end *e, uint64_t end, const struct lane_loop *loop)
{
	do {
		loop->begin(e);
		e->open = 0;
		for (uint32_t i = 0; i < e->conf.active; i++) {
			if (e->one[i].seq != e->one[i].ack)
				loop->take(e, i, e->conf.size, false);
			if (e->one[i].seq - e->one[i].ack > e->unsaid)
				e->open += e->one[i].seq - e->one[i].ack;
		}
	} while (e->open != 0 && crpc_clock_ticks() < end && !e->broken);
}

/* A part of the client's phase: calls that ended. */
static uint64_t
client_go(struct call_lane *l, struct lane_end *e)
{
	const struct lane_way *way = way_of(&l->base);
	uint64_t now = crpc_clock_ns(), left = l->until_ns > now ? l->until_ns - now : 0, end;

	left = l->phase < CALL_DRAIN ? left : crpc_min(left, DRAIN_LOOK_NS);
	end = crpc_clock_ticks() + (uint64_t)crpc_clock_ns_to_ticks((double)left);
	if (l->phase < CALL_DRAIN)
		return way->go(e, end, e->check);
	drain(e, end, way->loop);
	if (e->open != 0 && app_party_look(l->base.party, 0) != 0)
		l->until_ns = 0;
	return 0;
}

static uint64_t
steps(const struct app_lane *l, struct lane_end *e, bool more)
{
	uint32_t n = app_party_two(l->party) ? STEPS : 1;
	uint64_t calls = 0;

	for (uint32_t i = 0; i < n; i++)
		calls += way_of(l)->step(e, crpc_clock_ns(), more);
	return calls;
}

static int
call_turn(struct app_lane *base, int side)
{
	struct call_lane *l = (struct call_lane *)base;
	const struct lane_way *way = way_of(base);
	struct lane_end *e = base->state[side];
	bool more = side == 1 || l->phase < CALL_DRAIN;
	uint64_t now, n;

	if (side == 1 && way->serve != NULL) {
		l->report[1].served.clocked = l->c.clocked && !l->check;
		way->serve(base, &base->party->flag[0].over, &l->report[1].served);
		return 1;
	}
	n = way->step != NULL ? steps(base, e, more) : client_go(l, e);
	if (e->broken)
		return -EIO;
	if (side == 1 || l->phase == CALL_REST)
		return 1;
	l->report[0].all += n;
	l->report[0].calls += l->phase == CALL_TIMED ? n : 0;
	now = crpc_clock_ns();
	if (now < l->until_ns && (more || e->open != 0))
		return 0;
	return phase_next(l, e, now);
}

static void
call_report(struct app_lane *base, int side)
{
	if (way_of(base)->ledger != NULL)
		way_of(base)->ledger(
			base->state[side], &((struct call_lane *)base)->report[side].ledger);
}

/* ---- slices that count ---- */

/* What both ends' devices did since the last time. */
static void
account(struct call_lane *l)
{
	for (uint32_t side = 0; side < APP_SIDES; side++) {
		for (uint32_t i = 0; i < LANE_COUNTS; i++)
			l->sum[side].n[i] += l->report[side].ledger.n[i] - l->at[side].n[i];
		l->sum[side].card = l->report[side].ledger.card;
		l->at[side] = l->report[side].ledger;
	}
	l->calls += l->report[0].all;
}

/* First calls: they set up what is set up late, and a server learns who is idle. */
static int
call_begin(struct app_lane *base)
{
	struct call_lane *l = (struct call_lane *)base;
	bool proves = l->run->opt->verify;
	int rc = 0;

	l->check = proves && way_of(base)->step != NULL;
	l->slice_ns = l->c.active < l->c.clients ? SETTLE_NS : HELLO_NS;
	for (uint32_t i = 0; i < HELLO_MAX && rc == 0 && l->report[0].calls == 0; i++)
		rc = app_lane_slice(base);
	if (rc != 0 || l->report[0].calls == 0)
		return app_lane_fail(base, -EIO, "no call was answered");
	if (proves && !l->check) { /* Where a check makes calls dearer: a stretch of its own. */
		l->check = true;
		l->slice_ns = CHECK_NS;
		rc = app_lane_slice(base);
		l->check = false;
	}
	account(l);
	memset(l->sum, 0, sizeof(l->sum));
	l->calls = 0;
	l->slice_ns = l->run->opt->length.slice_ms * 1000000;
	return rc;
}

static bool
call_keep(struct app_lane *base)
{
	struct call_lane *l = (struct call_lane *)base;
	const struct lane_served *v = &l->report[1].served;
	double calls = (double)l->report[0].calls, ns = (double)l->report[0].base.ns;

	account(l);
	if (l->report[0].calls == 0)
		return false;
	app_lane_keep(base, LANE_VALUE,
		l->unit == LANE_LATENCY         ? ns / calls
			: l->unit == LANE_BYTES ? calls * l->c.size / ns
						: calls * 1e3 / ns,
		ns);
	if (v->clocked && v->busy_calls != 0)
		app_lane_keep(base, LANE_COST,
			(double)crpc_clock_ticks_to_ns(v->busy_ticks) / (double)v->busy_calls, ns);
	if (v->clocked && v->empty_turns != 0)
		app_lane_keep(base, LANE_EMPTY,
			(double)crpc_clock_ticks_to_ns(v->empty_ticks) / (double)v->empty_turns,
			ns);
	return true;
}

/*
 * A slice in which each call is clocked, which makes calls dearer: it is none of those that count.
 */
static int
slice_clocked(struct call_lane *l)
{
	double *line_ns = l->base.line_ns;
	static struct crpc_hist hist;
	int rc;

	crpc_hist_reset(&hist);
	l->slice_hist = &hist;
	rc = app_lane_slice(&l->base);
	l->slice_hist = NULL;
	line_ns[1] = app_party_line_ns(l->base.party);
	crpc_hist_merge(&l->hist[app_state_of(line_ns[0], line_ns[1])], &hist);
	line_ns[0] = line_ns[1];
	return rc;
}

/* A slice that the CPU counts: none of those that count. */
static int
slice_counted(struct call_lane *l)
{
	int rc;

	l->base.counts = true;
	rc = app_lane_slice(&l->base);
	l->base.counts = false;
	l->counted += l->report[0].all;
	return rc;
}

static int
call_more(struct app_lane *base)
{
	struct call_lane *l = (struct call_lane *)base;
	const struct rpb_opt *o = l->run->opt;
	int rc = o->percentiles && l->c.mode == LANE_SYNC ? slice_clocked(l) : 0;

	return rc == 0 && o->counters ? slice_counted(l) : rc;
}

static void
call_row(const struct app_group *g, const struct app_lane *l, json_t *row)
{
	((const struct call_lane *)l)->run->layer->row(g, l, row);
}

static const struct app_lane_ops lane_ops = {
	.start = call_start,
	.turn = call_turn,
	.report = call_report,
	.begin = call_begin,
	.keep = call_keep,
	.more = call_more,
	.row = call_row,
};

/* ---- the group ---- */

struct app_group
call_group(struct rpb_run *run)
{
	return (struct app_group){.party = run->party,
		.ops = &lane_ops,
		.rounds = app_length_slices(&run->opt->length),
		.what = run->layer->name};
}

struct call_lane *
call_add(struct rpb_run *run, struct app_group *g, const struct app_case *c)
{
	const struct lane_way *way = (const struct lane_way *)run->layer->ways[c->transport];
	bool lacks = way->base.built && c->mode == LANE_ONEWAY && !way->oneway;
	static bool reported[APP_LIST_MAX];
	struct call_lane *l = NULL;

	if (lacks && run->party->side == 0 && !reported[c->transport])
		app_note("%s has no one-way mode here; it is left out of that", way->base.name);
	reported[c->transport] |= lacks;
	if (!lacks)
		l = (struct call_lane *)app_group_add(g, &way->base, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->c = *c;
	l->run = run;
	l->unit = way->step == NULL && c->mode == LANE_SYNC ? LANE_LATENCY : way->unit;
	snprintf(l->c.name, sizeof(l->c.name), "rpcbench.%ld.%u", run->party->id, run->lanes++);
	l->base.c = &l->c;
	l->base.report[0] = &l->report[0].base;
	l->base.report[1] = &l->report[1].base;
	l->base.report_len = sizeof(l->report[0]);
	l->base.addr_max = way->step == NULL ? LANE_ADDR_MAX : c->clients * NET_ADDR_LEN;
	l->base.files += way->files_client * c->clients;
	l->base.whole = way->serve != NULL;
	snprintf(l->base.text, sizeof(l->base.text), "%s, %u of %u clients, depth %u, %u bytes",
		way->base.name, c->active, c->clients, c->depth, c->size);
	return l;
}

int
call_run(struct app_group *g)
{
	int rc = g->n == 0 ? 0 : app_group_run(g);

	app_group_fini(g);
	return rc;
}

bool
call_hist(const struct app_group *g, const struct app_lane *l, struct crpc_hist *hist)
{
	const struct crpc_hist *mine = ((const struct call_lane *)l)->hist;

	crpc_hist_reset(hist);
	for (uint32_t i = 0; i < APP_STATES; i++)
		if (g->trial.state == APP_STATE_MIXED || i == (uint32_t)g->trial.state)
			crpc_hist_merge(hist, &mine[i]);
	return hist->count != 0;
}
