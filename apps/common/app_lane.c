/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_lane.h"
#include "app_room.h"
#include "app_stop.h"
#include "crpc_clock.h"

/* Both sides go on this long after a slice, so that the last messages arrive. */
#define LINGER_NS 300000u
/* Nothing was done for so long. */
#define STUCK_NS UINT64_C(60000000000)
/* Turns between two looks at the peer and at the clock. */
#define LOOK_EVERY 64
/* Slices until one counts. */
#define SLICE_TRIES 50

int
app_lane_fail(struct app_lane *l, int rc, const char *fmt, ...)
{
	va_list ap;

	/* The first one writes; the other side fails for the same cause, or because of this one. */
	if (crpc_exchange_acq_rel(&l->failed, 1) != 0)
		return rc;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	return rc;
}

void *
app_lane_state(struct app_lane *l, int side, size_t size)
{
	l->state[side] = calloc(1, size);
	if (l->state[side] == NULL)
		app_lane_fail(l, -ENOMEM, "no memory");
	return l->state[side];
}

/* What this side makes of a step. */
struct verdict {
	int32_t rc;
	char why[sizeof(((struct app_lane *)NULL)->why)];
};

int
app_lane_agree(struct app_lane *l, int rc)
{
	struct verdict mine = {.rc = rc}, theirs = {0};

	snprintf(mine.why, sizeof(mine.why), "%s", l->why);
	if (app_party_swap(l->party, &mine, &theirs, sizeof(mine)) != 0)
		return rc != 0 ? rc : app_lane_fail(l, -ECONNRESET, "the other side is lost");
	theirs.why[sizeof(theirs.why) - 1] = '\0';
	/* Ours may have failed only because the peer's has. */
	if (theirs.rc != 0)
		app_lane_fail(l, theirs.rc, "%s", theirs.why);
	return rc != 0 ? rc : theirs.rc;
}

/* ---- one slice ---- */

static bool
stuck(struct app_lane *l, int side)
{
	if (crpc_clock_ns() - l->begin_ns[side] < STUCK_NS)
		return false;
	app_lane_fail(l, -ETIMEDOUT, "side %d is not done after %d s", side,
		(int)(STUCK_NS / 1000000000u));
	return true;
}

/* This side's part. The peer's may be over before, which is fine; not so if it failed. */
static int
side_turns(struct app_lane *l, int side)
{
	uint32_t turns = 0;
	int rc;

	do {
		rc = l->ops->turn(l, side);
		if (l->party->shared)
			sched_yield();
		if (rc != 0 || ++turns % LOOK_EVERY != 0)
			continue;
		rc = app_party_look(l->party, side);
		if (rc >= 0)
			rc = stuck(l, side) ? -ETIMEDOUT : 0;
	} while (rc == 0);
	return rc;
}

/* The same, counted by the CPU. */
static int
counted_turns(struct app_lane *l, int side)
{
	uint64_t counter[APP_COUNTERS];
	static bool reported;
	struct app_perf perf;
	int lacks = app_perf_open(&perf), rc;

	if (lacks != 0) {
		if (side == 0 && !reported)
			app_note("counters: this machine has none for us (%s)", strerror(-lacks));
		reported |= side == 0;
		return side_turns(l, side);
	}
	rc = side_turns(l, side);
	app_perf_read(&perf, counter);
	app_perf_close(&perf);
	for (uint32_t i = 0; i < APP_COUNTERS; i++)
		l->counter[side][i] += counter[i];
	return rc;
}

/* The peer's part, and its last messages. */
static int
side_linger(struct app_lane *l, int side, int rc)
{
	bool often = l->party->shared || l->whole || rc < 0;
	uint32_t every = often ? 1 : LOOK_EVERY, turns = 0;
	uint64_t until = 0;
	int peer = 0;

	do {
		if (rc >= 0 && !l->whole)
			rc = l->ops->turn(l, side);
		if (l->party->shared)
			sched_yield();
		if (peer == 0 && ++turns % every == 0) {
			peer = app_party_look(l->party, side);
			until = crpc_clock_ns() + LINGER_NS;
		}
	} while (peer == 0 || (peer == 1 && rc >= 0 && !l->whole && crpc_clock_ns() < until));
	return rc < 0 ? rc : peer < 0 ? peer : 0;
}

static int
side_slice(void *arg, int side)
{
	struct app_lane *l = arg;
	uint64_t away = app_measure_away_ns();
	int rc, lost;

	app_party_begin(l->party, side);
	rc = l->ops->start == NULL ? 0 : l->ops->start(l, side);
	lost = app_party_barrier(l->party);
	l->begin_ns[side] = crpc_clock_ns();
	if (rc == 0 && lost == 0)
		rc = l->counts ? counted_turns(l, side) : side_turns(l, side);
	l->end_ns[side] = crpc_clock_ns();
	if (l->report[side]->ns == 0)
		l->report[side]->away_ns = app_measure_away_ns() - away;
	if (lost == 0)
		lost = app_party_over(l->party, side, rc);
	return lost != 0 ? lost : side_linger(l, side, rc);
}

/* One lcore: the sides take turns. */
static int
same_slice(struct app_lane *l)
{
	int rc[APP_SIDES] = {0, 0};
	uint64_t away = app_measure_away_ns(), until;
	uint32_t turns = 0;

	for (int side = 0; side < APP_SIDES && rc[0] == 0; side++)
		rc[0] = l->ops->start == NULL ? 0 : l->ops->start(l, side);
	l->begin_ns[0] = l->begin_ns[1] = crpc_clock_ns();
	for (int side = 0; rc[0] >= 0 && rc[1] >= 0 && !(rc[0] == 1 && rc[1] == 1); side = !side) {
		rc[side] = l->ops->turn(l, side);
		if (++turns % LOOK_EVERY == 0 && stuck(l, 0))
			rc[side] = -ETIMEDOUT;
	}
	l->end_ns[0] = l->end_ns[1] = until = crpc_clock_ns();
	if (l->report[0]->ns == 0)
		l->report[0]->away_ns = app_measure_away_ns() - away;
	while (!l->whole && rc[0] >= 0 && rc[1] >= 0 && crpc_clock_ns() - until < LINGER_NS)
		for (int side = 0; side < APP_SIDES; side++)
			rc[side] = l->ops->turn(l, side);
	return rc[0] < 0 ? rc[0] : rc[1] < 0 ? rc[1] : 0;
}

/* What both sides saw; two processes exchange it. */
static int
reports(struct app_lane *l, int rc)
{
	struct app_party *p = l->party;

	for (int side = 0; side < APP_SIDES; side++) {
		if (!app_party_plays(p, side))
			continue;
		if (l->report[side]->ns == 0)
			l->report[side]->ns = l->end_ns[side] - l->begin_ns[side];
		l->report[side]->stop = app_stopped() != 0;
		if (l->ops->report != NULL && rc == 0)
			l->ops->report(l, side);
	}
	if (!app_party_apart(p) || p->stop)
		return rc;
	rc = app_lane_agree(l, rc);
	if (app_party_swap(p, l->report[p->side], l->report[!p->side], l->report_len) != 0)
		return app_lane_fail(l, -ECONNRESET, "the other side is lost");
	p->stop |= l->report[0]->stop != 0 || l->report[1]->stop != 0;
	return rc;
}

int
app_lane_slice(struct app_lane *l)
{
	int rc;

	memset(l->report[0], 0, l->report_len);
	memset(l->report[1], 0, l->report_len);
	rc = l->party->place == APP_PLACE_SAME ? same_slice(l)
					       : app_party_both(l->party, side_slice, l);
	rc = reports(l, rc);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "%s", strerror(-rc));
}

/* Clocks of two hosts differ: both began together, and the later end counts. */
double
app_lane_ns(const struct app_lane *l)
{
	uint64_t begin = crpc_min(l->begin_ns[0], l->begin_ns[1]);
	uint64_t end = crpc_max(l->end_ns[0], l->end_ns[1]);

	if (app_party_apart(l->party))
		return (double)crpc_max(l->report[0]->ns, l->report[1]->ns);
	return (double)crpc_max(end - begin, UINT64_C(1));
}

/* ---- lanes ---- */

static int
side_open(void *arg, int side)
{
	struct app_lane *l = arg;

	app_party_begin(l->party, side);
	return l->way->open[side] == NULL ? 0 : l->way->open[side](l, side);
}

static int
side_meet(void *arg, int side)
{
	struct app_lane *l = arg;
	int rc = l->way->meet[side] == NULL ? 0 : l->way->meet[side](l, side);

	if (rc != 0)
		app_party_fail(l->party, side);
	return rc;
}

static int
side_close(void *arg, int side)
{
	struct app_lane *l = arg;

	if (l->state[side] != NULL)
		l->way->close[side](l, side);
	l->state[side] = NULL;
	return 0;
}

static void
lane_close(struct app_lane *l)
{
	if (!l->open)
		return;
	app_party_both(l->party, side_close, l);
	free(l->addr[0].bytes);
	free(l->addr[1].bytes);
	l->addr[0].bytes = l->addr[1].bytes = NULL;
	l->open = false;
}

static void
lane_lost(struct app_group *g, struct app_lane *l)
{
	if (app_party_plays(g->party, 0) && !g->party->lost)
		app_note("%s: %s; it is left out", l->text, l->why);
	++g->party->failed;
	l->ready = false;
	lane_close(l);
}

/* Of the sides that this process plays. */
static int
lane_room(struct app_lane *l)
{
	uint32_t sides = app_party_apart(l->party) ? 1 : APP_SIDES;
	const char *lacks = NULL;

	if (l->files != 0)
		lacks = app_room_lacks(sides * l->files, (uint64_t)sides * l->mib);
	return lacks == NULL ? 0 : app_lane_fail(l, -EMFILE, "%s", lacks);
}

/* Open both sides and exchange their addresses. */
static int
lane_open(struct app_lane *l)
{
	struct app_party *p = l->party;
	int rc = lane_room(l);

	l->open = true;
	l->addr[0].bytes = calloc(1, l->addr_max + 1);
	l->addr[1].bytes = calloc(1, l->addr_max + 1);
	if (l->addr[0].bytes == NULL || l->addr[1].bytes == NULL)
		rc = app_lane_fail(l, -ENOMEM, "no memory");
	if (rc == 0)
		rc = app_party_both(p, side_open, l);
	rc = app_lane_agree(l, rc);
	if (rc != 0 || l->way->meet[0] == NULL)
		return rc;
	rc = app_party_swap(p, &l->addr[p->side].len, &l->addr[!p->side].len, sizeof(uint32_t));
	if (rc == 0)
		rc = app_party_swap(
			p, l->addr[p->side].bytes, l->addr[!p->side].bytes, l->addr_max);
	return rc != 0 ? rc : app_lane_agree(l, app_party_both(p, side_meet, l));
}

/* Slices between two ping-pongs, until one counts. */
static int
round_slices(struct app_lane *l)
{
	bool kept = false;
	int rc;

	for (uint32_t i = 0; i < SLICE_TRIES && !kept; i++) {
		rc = l->ops->slice != NULL ? l->ops->slice(l) : app_lane_slice(l);
		if (rc != 0)
			return rc;
		l->line_ns[1] = app_party_line_ns(l->party);
		kept = l->ops->keep(l);
		l->line_ns[0] = l->line_ns[1];
	}
	return l->ops->more == NULL ? 0 : l->ops->more(l);
}

static void
lane_round(struct app_group *g, struct app_lane *l, double *line_ns)
{
	int rc = l->brief ? lane_open(l) : 0;

	l->line_ns[0] = *line_ns;
	if (rc == 0)
		rc = round_slices(l);
	*line_ns = l->line_ns[0];
	if (rc != 0)
		lane_lost(g, l);
	else if (l->brief)
		lane_close(l);
}

void
app_group_measure(struct app_group *g)
{
	struct app_party *p = g->party;
	struct app_series series[APP_LANES_MAX];
	struct app_trial *trial = &g->trial;
	struct app_lane *l;
	double line_ns;

	for (uint32_t i = 0; i < g->n && !app_party_stopped(p); i++) {
		l = g->lane[i];
		l->ready = l->brief ||
			(lane_open(l) == 0 && (l->ops->begin == NULL || l->ops->begin(l) == 0));
		if (!l->ready)
			lane_lost(g, l);
	}
	app_eal_mem_report();
	line_ns = app_party_line_ns(p);
	app_trial_begin(trial);
	for (uint64_t done = 0; done < g->rounds && !app_party_stopped(p); done++) {
		if (app_party_plays(p, 0))
			app_out_progress(g->what, done, g->rounds);
		for (uint32_t i = 0; i < g->n && !app_party_stopped(p); i++)
			if (g->lane[i]->ready)
				lane_round(g, g->lane[i], &line_ns);
	}
	if (app_party_plays(p, 0))
		app_out_progress("", g->rounds, g->rounds);
	for (uint32_t i = 0; i < g->n; i++) {
		series[i] = g->lane[i]->series[0];
		lane_close(g->lane[i]);
	}
	app_trial_end(trial, series, g->n);
	/* Noise at either side is noise. */
	trial->steal_pct = app_party_max(p, trial->steal_pct);
	trial->noisy = app_party_max(p, trial->noisy) > 0;
}

/* ---- groups ---- */

void
app_lane_keep(struct app_lane *l, uint32_t series, double value, double ns)
{
	const struct app_slice s = {.value = value,
		.line_ns = {l->line_ns[0], l->line_ns[1]},
		.ns = ns,
		.away_ns = l->report[0]->away_ns + l->report[1]->away_ns};

	app_series_add(&l->series[series], &s);
}

/* Once for each way. */
static void
report_lacking(const struct app_way *way)
{
	static const struct app_way *reported[APP_LIST_MAX];

	for (uint32_t i = 0; i < APP_LIST_MAX && reported[i] != way; i++)
		if (reported[i] == NULL) {
			reported[i] = way;
			app_note("%s is not in this build; install %s and build again", way->name,
				way->package);
			return;
		}
}

/* A lane that was asked for and has no row: said, and a failure of the run. */
static void
lane_missing(struct app_group *g, const char *name, const char *why)
{
	if (app_party_plays(g->party, 0))
		app_note("%s is left out: %s", name, why);
	++g->party->failed;
}

struct app_lane *
app_group_add(struct app_group *g, const struct app_way *way, size_t size)
{
	struct app_lane *l = NULL;

	if (!way->built) {
		if (app_party_plays(g->party, 0))
			report_lacking(way);
		return NULL;
	}
	if (g->n < APP_LANES_MAX)
		l = calloc(1, size);
	if (l == NULL) {
		lane_missing(g, way->name, "no room beside the others; give fewer values");
		return NULL;
	}
	l->way = way;
	l->ops = g->ops;
	l->party = g->party;
	l->files = way->files;
	l->mib = way->mib;
	l->series[0].sleeps = way->sleeps;
	snprintf(l->name, sizeof(l->name), "%s", way->name);
	g->lane[g->n++] = l;
	return l;
}

int
app_group_run(struct app_group *g)
{
	json_t *rows = json_array(), *row;
	const struct app_lane *l;

	app_group_measure(g);
	for (uint32_t i = 0; i < g->n; i++) {
		l = g->lane[i];
		if (l->series[0].n == 0 && l->ready && app_party_plays(g->party, 0) &&
			!app_party_stopped(g->party))
			lane_missing(g, l->name, "no slice gave a figure");
		if (l->series[0].n == 0 || l->ops->row == NULL)
			continue;
		row = app_row(&g->party->out, "result", &g->trial);
		app_row_set(row, "{s:s}", "transport", l->name);
		l->ops->row(g, l, row);
		json_array_append_new(rows, row);
	}
	return app_out_rows(&g->party->out, NULL, &g->trial, rows);
}

void
app_group_fini(struct app_group *g)
{
	for (uint32_t i = 0; i < g->n; i++) {
		for (uint32_t k = 0; k < APP_SERIES_MAX; k++)
			app_series_fini(&g->lane[i]->series[k]);
		free(g->lane[i]);
	}
	g->n = 0;
}

/* ---- ways ---- */

int
app_ways_choose(struct app_list *list, const struct app_way *const *ways, uint32_t n)
{
	bool chosen = list->n != 0;

	for (uint32_t i = 0; i < list->n && list->n < n; i++)
		if (!ways[list->v[i]]->built)
			return app_fail_once(
				"--transport %s is not in this build; install %s and build again",
				ways[list->v[i]]->name, ways[list->v[i]]->package);
	for (uint32_t i = 0; i < n && !chosen; i++)
		if (ways[i]->built)
			list->v[list->n++] = i;
	return 0;
}

void
app_ways_names(const char **names, const struct app_way *const *ways, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		names[i] = ways[i]->name;
	names[n] = NULL;
}

void
app_ways_help(const struct app_way *const *ways, uint32_t n, FILE *out)
{
	for (uint32_t i = 0; i < n; i++)
		if (!ways[i]->built)
			fprintf(out, "\n%s is not built in; it needs %s.\n", ways[i]->name,
				ways[i]->package);
}
