/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One group: lanes opened side by side, then slice after slice, each lane in turn, with a line
 * ping-pong before and after. Of two ranks each does its side, and both know the same behind each
 * step.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_room.h"
#include "crpc_clock.h"
#include "xb.h"

/* Both sides go on this long after a slice, so that the last words arrive. */
#define LINGER_NS   300000u
/* No message ended for so long. */
#define STUCK_NS UINT64_C(60000000000)
/* Messages of the first slice, which decides how many a slice has. */
#define FIRST_MESSAGES 2
/* Turns between two looks at the other rank. */
#define LINK_EVERY 64

/* ---- one slice ---- */

/* True while the slice must go on for this side; the other is looked at, too. */
static bool
slice_stuck(struct xb_lane *l, int side, uint64_t now)
{
	if (now - l->begin_ns[side] < STUCK_NS)
		return false;
	xb_lane_fail(l, -ETIMEDOUT, "side %d: %" PRIu64 " messages are not done after %d s", side,
		l->messages, (int)(STUCK_NS / 1000000000u));
	return true;
}

/* After a side's part: its messages' last words, until the other side is over as well. */
static int
side_linger(struct xb_lane *l, int side)
{
	uint64_t until = 0, now;
	int rc = 0;

	crpc_store_release(&l->over[side], 1); /* R72 */
	do {
		rc = l->ops->turn(l, side);
		now = crpc_clock_ns();
		/* A72 pairs with R72: no thread waits for this one. */
		if (until == 0 && crpc_load_acquire(&l->over[!side]) != 0)
			until = now + LINGER_NS;
	} while (rc >= 0 && (until == 0 || now < until) && crpc_load_relaxed(&l->failed) == 0);
	return rc < 0 ? rc : 0;
}

/* Two lcores: each its side. */
static int
side_slice(void *arg, int side)
{
	struct xb_lane *l = arg;
	uint64_t away = app_measure_away_ns();
	uint32_t turns = 0;
	int rc;

	rc = l->ops->start(l, side);
	xb_team_barrier(l->team);
	l->begin_ns[side] = crpc_clock_ns();
	while (rc == 0) {
		rc = l->ops->turn(l, side);
		if (crpc_load_relaxed(&l->failed) != 0)
			rc = -EIO;
		else if (++turns % 4096 == 0 && slice_stuck(l, side, crpc_clock_ns()))
			rc = -ETIMEDOUT;
	}
	l->end_ns[side] = crpc_clock_ns();
	l->report[side].away_ns = app_measure_away_ns() - away;
	if (xb_copies(l->point.transport))
		return 0;
	if (rc >= 0)
		rc = side_linger(l, side);
	return rc < 0 ? rc : 0;
}

/* One lcore: the sides take turns. */
static int
both_slice(struct xb_lane *l)
{
	int rc[XB_SIDES] = {0, 0}, side;
	uint64_t away = app_measure_away_ns(), until;
	uint32_t turns = 0;

	for (side = 0; side < XB_SIDES && rc[0] == 0; side++)
		rc[0] = l->ops->start(l, side);
	l->begin_ns[0] = l->begin_ns[1] = crpc_clock_ns();
	for (side = 0; rc[0] >= 0 && rc[1] >= 0 && !(rc[0] == 1 && rc[1] == 1); side = !side) {
		rc[side] = l->ops->turn(l, side);
		if (++turns % 4096 == 0 && slice_stuck(l, 0, crpc_clock_ns()))
			rc[side] = -ETIMEDOUT;
	}
	l->end_ns[0] = l->end_ns[1] = until = crpc_clock_ns();
	l->report[0].away_ns = app_measure_away_ns() - away;
	if (xb_copies(l->point.transport))
		return 0;
	while (rc[0] >= 0 && rc[1] >= 0 && crpc_clock_ns() - until < LINGER_NS)
		for (side = 0; side < XB_SIDES; side++)
			rc[side] = l->ops->turn(l, side);
	return rc[0] < 0 ? rc[0] : rc[1] < 0 ? rc[1] : 0;
}

/* ---- the same of two ranks ---- */

/* The other rank may have ended its part, which is fine; not so if it failed, or is lost. */
static int
rank_look(struct xb_lane *l)
{
	const int32_t *over;
	int rc = 0;

	over = xb_link_poll(l->team->link, &rc);
	if (rc != 0)
		return xb_team_lost(l->team, rc);
	return over != NULL && *over != 0 ? -EIO : 0;
}

/* The other rank's part, and its messages' last words. */
static int
rank_linger(struct xb_lane *l, int side, int *rc)
{
	int32_t theirs = 0;
	uint64_t until = 0;
	int lost = -EAGAIN;

	do {
		if (*rc >= 0 && !xb_copies(l->point.transport))
			*rc = l->ops->turn(l, side);
		if (lost == -EAGAIN) {
			lost = xb_link_take(l->team->link, &theirs, sizeof(theirs));
			until = crpc_clock_ns() + LINGER_NS;
		}
		if (l->team->shared)
			sched_yield();
	} while (lost == -EAGAIN || (lost == 0 && *rc >= 0 && crpc_clock_ns() < until));
	if (lost == 0 && theirs != 0 && *rc >= 0)
		*rc = -EIO;
	return lost == 0 ? 0 : xb_team_lost(l->team, lost);
}

static int
rank_turns(struct xb_lane *l, int side)
{
	uint32_t turns = 0;
	int rc = 0;

	while (rc == 0) {
		rc = l->ops->turn(l, side);
		if (l->team->shared)
			sched_yield();
		if (rc == 0 && ++turns % LINK_EVERY == 0)
			rc = rank_look(l);
		if (rc == 0 && turns % 4096 == 0 && slice_stuck(l, side, crpc_clock_ns()))
			rc = -ETIMEDOUT;
	}
	return rc;
}

static int
rank_slice(void *arg, int side)
{
	struct xb_lane *l = arg;
	uint64_t away = app_measure_away_ns();
	int rc = l->ops->start(l, side), lost = xb_team_barrier(l->team);
	int32_t over;

	l->begin_ns[side] = crpc_clock_ns();
	if (rc == 0)
		rc = lost == 0 ? rank_turns(l, side) : lost;
	l->end_ns[side] = crpc_clock_ns();
	l->report[side].away_ns = app_measure_away_ns() - away;
	over = rc < 0 ? rc : 0;
	if (lost == 0 && (lost = xb_link_tell(l->team->link, &over, sizeof(over))) != 0)
		xb_team_lost(l->team, lost);
	if (lost == 0)
		lost = rank_linger(l, side, &rc);
	return lost != 0 ? lost : rc < 0 ? rc : 0;
}

/* What this rank thinks of a step. */
struct verdict {
	int32_t rc;
	char why[sizeof(((struct xb_lane *)NULL)->why)];
};

/* Both ranks go on, or neither: the first error of both, with its cause. Alone: rc. */
static int
lane_agree(struct xb_lane *l, int rc)
{
	struct verdict mine = {.rc = rc}, theirs = {0};

	if (l->team->link == NULL)
		return rc;
	snprintf(mine.why, sizeof(mine.why), "%s", l->why);
	if (xb_team_swap(l->team, &mine, &theirs, sizeof(mine)) != 0)
		return rc != 0 ? rc : xb_lane_fail(l, -ECONNRESET, "the other rank is lost");
	theirs.why[sizeof(theirs.why) - 1] = '\0';
	/* Ours may have failed only because the peer's has. */
	if (theirs.rc != 0)
		xb_lane_fail(l, theirs.rc, "%s", theirs.why);
	return rc != 0 ? rc : theirs.rc;
}

/* ---- a slice, whoever plays it ---- */

/* What both sides saw; two ranks exchange it. */
static int
reports(struct xb_lane *l, int rc)
{
	struct xb_team *t = l->team;
	struct xb_report *r;
	int side;

	for (side = 0; side < XB_SIDES; side++) {
		if (!xb_team_plays(t, side))
			continue;
		r = &l->report[side];
		r->ns = l->end_ns[side] - l->begin_ns[side];
		r->stop = xb_signaled();
		if (l->ops->report != NULL && rc == 0)
			l->ops->report(l, side);
	}
	if (t->link == NULL || t->stop)
		return rc;
	rc = lane_agree(l, rc);
	if (xb_team_swap(t, &l->report[t->side], &l->report[!t->side], sizeof(*r)) != 0)
		return xb_lane_fail(l, -ECONNRESET, "the other rank is lost");
	r = &l->report[!t->side];
	r->engine[sizeof(r->engine) - 1] = '\0';
	t->stop |= l->report[0].stop != 0 || l->report[1].stop != 0;
	return rc;
}

/*
 * Move n messages each way, or a few more so that every place has as many: 0 sets the elapsed time.
 */
static int
slice_run(struct xb_lane *l, uint64_t n, double *ns)
{
	bool ranks = l->team->link != NULL;
	uint64_t begin, end;
	int rc;

	l->messages = (n + l->point.depth - 1) / l->point.depth * l->point.depth;
	memset(l->report, 0, sizeof(l->report));
	crpc_store_relaxed(&l->over[0], 0);
	crpc_store_relaxed(&l->over[1], 0);
	rc = ranks ? xb_team_both(l->team, rank_slice, l)
		: xb_team_two(l->team) ? xb_team_both(l->team, side_slice, l)
				       : both_slice(l);
	rc = reports(l, rc);
	if (rc != 0)
		return xb_lane_fail(l, rc, "%s", strerror(-rc));
	begin = crpc_min(l->begin_ns[0], l->begin_ns[1]);
	end = crpc_max(l->end_ns[0], l->end_ns[1]);
	/* Clocks of two hosts differ: both began together, and the later end counts. */
	*ns = ranks ? (double)crpc_max(l->report[0].ns, l->report[1].ns)
		    : (double)(end - begin + (end == begin));
	return 0;
}

/* ---- content ---- */

/* Whether a side's buffers are this process's: each rank has those of its own copies. */
static bool
holds(const struct xb_lane *l, int side)
{
	return xb_team_plays(l->team, side) || xb_copies(l->point.transport);
}

static void
content_make(struct xb_lane *l, uint64_t seed)
{
	uint64_t len = l->point.size * l->point.depth;
	int side;

	for (side = 0; side < XB_SIDES; side++) {
		if (!holds(l, side))
			continue;
		if (xb_sends(l, side) != 0)
			xb_fill(l->mem[side].send, len, seed + (uint64_t)side);
		if (xb_recvs(l, side) != 0)
			memset(l->mem[side].recv, 0x5a, len);
	}
}

/* The same where what arrives is not what was sent. */
static uint64_t
compare_expected(const struct xb_lane *l, int side, uint64_t seed)
{
	uint64_t len = l->point.size * l->point.depth, i, at = 0;
	uint8_t *want = aligned_alloc(CRPC_CACHE_LINE, crpc_align_up(len, CRPC_CACHE_LINE));

	if (want == NULL)
		return 1;
	xb_fill(want, len, seed);
	for (i = 0; i < l->point.depth; i++)
		l->ops->expect(l, want + i * l->point.size);
	for (i = 0; i < len && at == 0; i++)
		at = l->mem[side].recv[i] != want[i] ? i + 1 : 0;
	free(want);
	return at;
}

static int
content_check(struct xb_lane *l, uint64_t seed)
{
	uint64_t len = l->point.size * l->point.depth, at;
	int side;

	for (side = 0; side < XB_SIDES; side++) {
		if (!holds(l, side) || xb_recvs(l, side) == 0)
			continue;
		at = l->ops->expect == NULL
			? xb_compare(l->mem[side].recv, len, seed + (uint64_t)!side)
			: compare_expected(l, side, seed + (uint64_t)!side);
		if (at != 0)
			return xb_lane_fail(l, -EBADMSG,
				"what arrived differs from what was sent, from byte %" PRIu64 " on",
				at - 1);
	}
	return 0;
}

/* A slice whose content is proved. */
static int
slice_verified(struct xb_lane *l, uint64_t n, double *ns)
{
	static uint64_t seed;
	int rc;

	seed += 2;
	l->messages = n;
	content_make(l, seed);
	l->prove = true;
	rc = slice_run(l, n, ns);
	l->prove = false;
	return rc != 0 ? rc : lane_agree(l, content_check(l, seed));
}

/* ---- lanes ---- */

static int
side_open(void *arg, int side)
{
	struct xb_lane *l = arg;

	return l->ops->open(l, side);
}

static int
side_meet(void *arg, int side)
{
	struct xb_lane *l = arg;

	return l->ops->meet == NULL ? 0 : l->ops->meet(l, side);
}

static int
side_close(void *arg, int side)
{
	struct xb_lane *l = arg;

	l->ops->close(l, side);
	l->state[side] = NULL;
	return 0;
}

static void
lane_close(struct xb_lane *l)
{
	if (!l->open)
		return;
	xb_team_both(l->team, side_close, l);
	l->open = false;
}

static void
lane_lost(struct xb_group *g, struct xb_lane *l)
{
	if (xb_team_plays(l->team, 0) && !(l->team->link != NULL && l->team->stop))
		app_note("%s, %s, %" PRIu64 " bytes: %s; it is left out", l->name,
			xb_path_names[l->point.path], l->point.size, l->why);
	g->run->failed++;
	lane_close(l);
}

/* Of the sides that this process plays, with the messages that they may copy. */
static int
lane_room(struct xb_lane *l)
{
	uint32_t sides = l->team->link == NULL ? XB_SIDES : 1;
	uint64_t copies = (2 * l->point.size * l->point.depth) >> 20;
	const char *lacks;

	if (l->ops->files == 0)
		return 0;
	lacks = app_room_lacks(sides * l->ops->files, sides * (l->ops->mib + copies));
	return lacks == NULL ? 0 : xb_lane_fail(l, -EMFILE, "%s", lacks);
}

/* Open both sides and exchange their addresses. */
static int
lane_open(struct xb_lane *l)
{
	struct xb_team *t = l->team;
	int rc;

	l->open = true;
	rc = lane_room(l);
	if (rc == 0)
		rc = xb_team_both(t, side_open, l);
	rc = lane_agree(l, rc);
	if (rc == 0 && t->link != NULL && l->ops->meet != NULL)
		rc = xb_team_swap(t, &l->addr[t->side], &l->addr[!t->side], sizeof(l->addr[0]));
	if (rc == 0)
		rc = lane_agree(l, xb_team_both(t, side_meet, l));
	return rc;
}

/* Opened, met, and its first messages proved. How many messages a slice has is known then. */
static uint64_t
lane_begin(struct xb_group *g, struct xb_lane *l)
{
	double ns = 0, want = (double)g->run->opt->slice_ms * 1e6;
	int rc = lane_open(l);

	if (rc == 0)
		rc = slice_verified(l, FIRST_MESSAGES, &ns);
	if (rc == 0)
		rc = slice_run(l, FIRST_MESSAGES, &ns);
	/* Small messages: the first few mean little. */
	if (rc == 0 && ns * 8 < want)
		rc = slice_run(l, (uint64_t)(FIRST_MESSAGES * want / ns / 8) + 1, &ns);
	if (rc != 0) {
		lane_lost(g, l);
		return 0;
	}
	memcpy(l->engine, l->report[1].engine, sizeof(l->engine));
	l->memory = crpc_max(l->report[0].memory, l->report[1].memory);
	return crpc_max((uint64_t)((double)l->messages * want / ns), 1);
}

static void
counts_add(struct xb_counts *c, const struct xb_report *r)
{
	c->chunks += r->chunks;
	c->occupancy += r->occupancy;
	c->blocked_window += r->blocked_window;
	c->blocked_slots += r->blocked_slots;
	c->blocked_queue += r->blocked_queue;
}

static void
lane_keep(struct xb_lane *l, double ns, const double line[2])
{
	struct app_slice s = {.line_ns = {line[0], line[1]}, .ns = ns,
		.away_ns = l->report[0].away_ns + l->report[1].away_ns};
	uint64_t moved = l->messages * l->point.size;
	const struct xb_report *a = &l->report[0], *b = &l->report[1];
	uint64_t n;
	uint32_t i;

	if (l->point.both)
		moved *= 2;
	s.value = (double)moved / ns;
	app_series_add(&l->rate, &s);
	s.value = ns / (double)l->messages / 1e3;
	app_series_add(&l->each, &s);
	counts_add(&l->counts, a);
	counts_add(&l->counts, b);
	for (i = 0; i < XB_STAGES; i++) {
		n = a->stage[i].n + b->stage[i].n;
		if (n == 0)
			continue;
		s.value = (double)(a->stage[i].ns + b->stage[i].ns) / (double)n / 1e3;
		app_series_add(&l->stage[i], &s);
	}
}

static void
lane_slice(struct xb_group *g, struct xb_lane *l, uint64_t n, double line[2])
{
	double ns = 0;
	int rc;

	rc = g->run->opt->verify ? slice_verified(l, n, &ns) : slice_run(l, n, &ns);
	if (rc != 0) {
		lane_lost(g, l);
		return;
	}
	line[1] = xb_team_line_ns(l->team);
	lane_keep(l, ns, line);
	line[0] = line[1];
}

/* ---- the group ---- */

int
xb_group_measure(struct xb_group *g)
{
	uint64_t n[XB_LANES_MAX] = {0}, done, all = g->run->opt->repeat;
	struct app_series rate[XB_LANES_MAX];
	double line[2];
	uint32_t i;

	for (i = 0; i < g->n && !xb_interrupted(); i++)
		n[i] = lane_begin(g, &g->lane[i]);
	line[0] = xb_team_line_ns(g->run->team);
	app_trial_begin(&g->trial);
	for (done = 0; done < all && !xb_interrupted(); done++) {
		if (xb_team_plays(g->run->team, 0))
			app_out_progress("xferbench", done, all);
		for (i = 0; i < g->n && !xb_interrupted(); i++)
			if (g->lane[i].open && n[i] != 0)
				lane_slice(g, &g->lane[i], n[i], line);
	}
	if (xb_team_plays(g->run->team, 0))
		app_out_progress("", all, all);
	for (i = 0; i < g->n; i++) {
		rate[i] = g->lane[i].rate;
		lane_close(&g->lane[i]);
	}
	app_trial_end(&g->trial, rate, g->n);
	/* Noise at either end is noise. */
	g->trial.steal_pct = xb_team_max(g->run->team, g->trial.steal_pct);
	g->trial.noisy = xb_team_max(g->run->team, g->trial.noisy) > 0;
	return 0;
}

bool
xb_group_add(struct xb_group *g, const struct xb_point *p)
{
	const struct xb_lane_ops *ops = xb_lane_ops[p->transport];
	static bool reported[XB_TRANSPORTS]; /* What is missing, once each. */
	struct xb_lane *l;

	if (!ops->built && !reported[p->transport] && xb_team_plays(g->run->team, 0))
		app_note("%s is not in this build; install %s and build again",
			xb_transport_names[p->transport], ops->package);
	reported[p->transport] = !ops->built;
	if (!ops->built || g->n == XB_LANES_MAX)
		return false;
	/* Cores of two hosts share no memory. */
	if (p->transport == XB_MEMCPY_TWO && g->run->team->link != NULL && !g->run->team->one_host)
		return false;
	l = &g->lane[g->n++];
	memset(l, 0, sizeof(*l));
	l->point = *p;
	/* The limit is one copy, whatever is compared with it. */
	l->point.both &= !xb_copies(p->transport);
	/* Engines convert bounce memory. */
	if (p->transport == XB_TENSOR_BF16)
		l->point.path = XB_EAGER;
	l->ops = ops;
	l->rate.sleeps = ops->sleeps;
	l->opt = g->run->opt;
	l->team = g->run->team;
	l->mem = g->run->mem;
	snprintf(l->name, sizeof(l->name), "%s", xb_transport_names[p->transport]);
	return true;
}

void
xb_group_fini(struct xb_group *g)
{
	uint32_t i, k;

	for (i = 0; i < g->n; i++) {
		app_series_fini(&g->lane[i].rate);
		app_series_fini(&g->lane[i].each);
		for (k = 0; k < XB_STAGES; k++)
			app_series_fini(&g->lane[i].stage[k]);
	}
	g->n = 0;
}

void
xb_figure(const struct xb_group *g, const struct app_series *s, struct app_figure *f)
{
	app_series_figure(s, g->trial.state, f);
}

double
xb_ratio(const struct xb_group *g, const struct app_series *a, const struct app_series *b)
{
	return app_series_ratio(a, b, g->trial.state);
}

const struct xb_lane *
xb_group_find(const struct xb_group *g, enum xb_transport t)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		if (g->lane[i].point.transport == t && g->lane[i].rate.n != 0)
			return &g->lane[i];
	return NULL;
}
