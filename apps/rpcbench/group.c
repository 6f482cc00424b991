/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One group: lanes opened side by side, then slice after slice, each lane in turn, with a line
 * ping-pong before and after.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app_fail.h"
#include "ipc.h"

#define WARM_NS 1000000u
#define HELLO_NS 2000000u
#define SETTLE_NS 100000000u
#define HELLO_MAX 1000
#define CHECK_NS 10000000u
#define DRAIN_NS 100000000u
#define DRAIN_TRIES 200
#define JOIN_MS 10000
#define SLICE_TRIES 10

/* ---- second process ---- */

static struct {
	const struct lane_ops *ops;
	void *server;
} served[LANE_MAX];

static void
serve_quit(void)
{
	uint32_t i;

	for (i = 0; i < LANE_MAX; i++)
		if (served[i].server != NULL)
			served[i].ops->serve_close(served[i].server);
}

static int
serve_open(struct rpb_pair *p, void *arg)
{
	const struct lane_conf *c = arg;
	int rc;

	rpb_pair_on_quit(serve_quit);
	served[c->index].ops = lane_ops[c->transport];
	rc = lane_ops[c->transport]->serve_open(p, c, &served[c->index].server);
	if (rc != 0)
		served[c->index].server = NULL;
	return rc;
}

struct serve_arg {
	uint32_t index;
	bool clocked;
};

static int
serve_slice(struct rpb_pair *p, void *arg)
{
	const struct serve_arg *a = arg;
	struct lane_served out = {.clocked = a->clocked};
	uint64_t before = app_measure_away_ns();

	served[a->index].ops->serve(p, served[a->index].server, &out);
	out.away_ns = app_measure_away_ns() - before;
	return rpb_pair_show(p, RPB_SECOND, &out, sizeof(out));
}

static int
serve_close(struct rpb_pair *p, void *arg)
{
	uint32_t i = *(uint32_t *)arg;

	served[i].ops->serve_close(served[i].server);
	served[i].server = NULL;
	return 0;
}

/* ---- open and close ---- */

/* The lane is of no use; say so and go on without it. */
static void
lane_lost(struct ipc_group *g, struct ipc_lane *l, const char *why)
{
	char clients[48];

	ipc_out_clients(&l->conf, clients, sizeof(clients));
	app_note("%s with %s, depth %u, %u bytes: %s; it is left out", l->ops->name, clients,
		l->conf.depth, l->conf.size, why);
	g->run->failed++;
}

static void
lane_end(struct ipc_group *g, struct ipc_lane *l)
{
	struct rpb_pair *p = g->run->rpb->pair;

	if (l->client == NULL)
		return;
	l->ops->close(l->client);
	l->client = NULL;
	if (rpb_pair_run(p, serve_close, &l->conf.index, sizeof(l->conf.index)) == 0)
		rpb_pair_join(p, JOIN_MS);
}

static void
lane_begin(struct ipc_group *g, struct ipc_lane *l)
{
	struct rpb_pair *p = g->run->rpb->pair;
	char why[800];
	int rc;

	l->conf.index = (uint32_t)(l - g->lane);
	snprintf(l->conf.name, sizeof(l->conf.name), "rpcbench.%ld.%u", (long)getpid(),
		g->run->lanes++);
	rc = rpb_pair_run(p, serve_open, &l->conf, sizeof(l->conf));
	if (rc != 0) {
		lane_lost(g, l, rpb_pair_why(p));
		return;
	}
	l->client = l->ops->open(p, &l->conf);
	if (l->client == NULL)
		rpb_pair_stop(p);
	rc = rpb_pair_join(p, LANE_MEET_MS + JOIN_MS);
	if (rc == 0 && l->client != NULL)
		return;
	/* Either may have failed because of the other. */
	snprintf(why, sizeof(why), "%s%s%s", lane_why_take(),
		rpb_pair_why(p)[0] != '\0' ? "; the second process: " : "", rpb_pair_why(p));
	lane_lost(g, l, why);
	if (l->client != NULL)
		l->ops->close(l->client);
	l->client = NULL;
	if (rc == 0 && rpb_pair_run(p, serve_close, &l->conf.index, sizeof(l->conf.index)) == 0)
		rpb_pair_join(p, JOIN_MS);
}

/* ---- slices ---- */

/* A slice that is not only timed. */
struct slice_how {
	bool check;
	struct crpc_hist *hist;
	struct app_perf *perf; /* Open. */
};

struct timed {
	uint64_t calls;
	uint64_t ns;
	uint64_t away_ns;
	uint64_t counter[APP_COUNTERS];
	struct lane_served served;
};

/* With the server in its loop: warm up, then the timed part, then wait for what is open. */
static void
slice_call(struct rpb_pair *p, struct ipc_lane *l, double ns, struct slice_how how, struct timed *t)
{
	uint64_t t0 = crpc_clock_ticks(), before, counter[APP_COUNTERS];
	uint32_t i;

	l->ops->go(l->client, t0 + lane_ticks(WARM_NS), how.check);
	l->client->hist = how.hist;
	before = app_measure_away_ns();
	if (how.perf != NULL)
		app_perf_read(how.perf, counter);
	t0 = crpc_clock_ticks();
	t->calls = l->ops->go(l->client, t0 + lane_ticks(ns), how.check);
	t->ns = crpc_clock_ticks_to_ns(crpc_clock_ticks() - t0);
	if (how.perf != NULL)
		app_perf_read(how.perf, t->counter);
	for (i = 0; i < APP_COUNTERS && how.perf != NULL; i++)
		t->counter[i] -= counter[i];
	t->away_ns = app_measure_away_ns() - before;
	l->client->hist = NULL;
	for (i = 0; i < DRAIN_TRIES && (i == 0 || l->client->open != 0); i++) {
		l->ops->drain(l->client, crpc_clock_ticks() + lane_ticks(DRAIN_NS));
		if (l->client->open != 0 && !rpb_pair_alive(p))
			break;
	}
	if (l->client->open != 0)
		lane_break(l->client, "%lu calls were never answered",
			(unsigned long)l->client->open);
}

/* One slice: false if the lane is of no use any more. */
static bool
slice_run(struct ipc_group *g, struct ipc_lane *l, double ns, struct slice_how how,
	struct timed *t)
{
	struct rpb_pair *p = g->run->rpb->pair;
	struct serve_arg arg = {.index = l->conf.index, .clocked = g->clocked && !how.check};
	int rc;

	memset(t, 0, sizeof(*t));
	rc = rpb_pair_run(p, serve_slice, &arg, sizeof(arg));
	while (rc == 0 && !rpb_pair_ready(p))
		if (!rpb_pair_alive(p))
			rc = -ECHILD;
	if (rc == 0) {
		slice_call(p, l, ns, how, t);
		rpb_pair_stop(p);
		rc = rpb_pair_join(p, JOIN_MS);
	}
	if (rc == 0 && rpb_pair_see(p, RPB_FIRST, &t->served, sizeof(t->served), 0) !=
			       (int)sizeof(t->served))
		rc = -EIO;
	if (!rpb_pair_alive(p)) { /* Unanswered calls follow from that. */
		l->client->broken = false;
		rc = -ECHILD;
	}
	if (rc != 0)
		lane_break(l->client, "the server: %s",
			rpb_pair_why(p)[0] != '\0' ? rpb_pair_why(p) : strerror(-rc));
	if (!l->client->broken && l->client->bad != 0)
		lane_break(l->client, "%lu answers were wrong", (unsigned long)l->client->bad);
	if (!l->client->broken)
		return true;
	lane_lost(g, l, l->client->why);
	lane_end(g, l);
	return false;
}

static void
slice_keep(struct ipc_lane *l, const struct timed *t, const double line[2])
{
	struct app_slice s = {.line_ns = {line[0], line[1]}, .away_ns = t->away_ns,
		.ns = (double)t->ns};
	const struct lane_served *v = &t->served;

	s.away_ns += v->away_ns;
	s.value = l->conf.mode == LANE_SYNC ? (double)t->ns / (double)t->calls
					    : (double)t->calls * 1e3 / (double)t->ns;
	app_series_add(&l->value, &s);
	if (!v->clocked)
		return;
	if (v->busy_calls != 0) {
		s.value = (double)crpc_clock_ticks_to_ns(v->busy_ticks) / (double)v->busy_calls;
		app_series_add(&l->cost, &s);
	}
	if (v->empty_turns != 0) {
		s.value = (double)crpc_clock_ticks_to_ns(v->empty_ticks) / (double)v->empty_turns;
		app_series_add(&l->empty, &s);
	}
}

/*
 * First calls: they set up what is set up late, and a server learns who is idle. With check, also
 * prove a stretch of answers.
 */
static void
lane_hello(struct ipc_group *g, struct ipc_lane *l)
{
	const struct slice_how plain = {0}, check = {.check = true};
	double ns = l->conf.active < l->conf.clients ? SETTLE_NS : HELLO_NS;
	struct timed t = {0};
	uint32_t i;

	for (i = 0; i < HELLO_MAX && t.calls == 0; i++)
		if (!slice_run(g, l, ns, plain, &t))
			return;
	if (t.calls == 0) {
		lane_lost(g, l, "no call was answered");
		lane_end(g, l);
	} else if (g->run->opt->check) {
		slice_run(g, l, CHECK_NS, check, &t);
	}
}

/*
 * A slice that counts, between two ping-pongs. One in which something else had a core all the time
 * and no call was answered is tried again.
 */
static void
lane_slice(struct ipc_group *g, struct ipc_lane *l, double ns, double line[2])
{
	const struct slice_how plain = {0};
	struct timed t = {0};
	uint32_t i;

	for (i = 0; i < SLICE_TRIES && l->client != NULL && t.calls == 0; i++) {
		if (!slice_run(g, l, ns, plain, &t))
			return;
		line[1] = rpb_pair_line_ns(g->run->rpb->pair);
		if (t.calls != 0 && line[1] >= 0)
			slice_keep(l, &t, line);
		line[0] = line[1];
	}
}

/*
 * A slice in which each call is clocked, which makes calls dearer: it is none of those that count.
 */
static void
lane_slice_clocked(struct ipc_group *g, struct ipc_lane *l, double ns, double line[2])
{
	static struct crpc_hist hist;
	const struct slice_how clocked = {.hist = &hist};
	struct timed t;

	if (l->client == NULL || l->conf.mode != LANE_SYNC)
		return;
	if (l->hist == NULL)
		l->hist = calloc(APP_STATES, sizeof(*l->hist));
	crpc_hist_reset(&hist);
	if (l->hist == NULL || !slice_run(g, l, ns, clocked, &t))
		return;
	line[1] = rpb_pair_line_ns(g->run->rpb->pair);
	crpc_hist_merge(&l->hist[app_state_of(line[0], line[1])], &hist);
	line[0] = line[1];
}

/* A slice that the CPU counts: none of those that count. */
static void
lane_slice_counted(struct ipc_group *g, struct ipc_lane *l, double ns)
{
	static bool printed;
	struct app_perf perf;
	const struct slice_how counted = {.perf = &perf};
	struct timed t;
	uint32_t i;
	int rc;

	if (l->client == NULL)
		return;
	rc = app_perf_open(&perf);
	if (rc != 0) {
		if (!printed)
			app_note("counters: this machine has none for us (%s)", strerror(-rc));
		printed = true;
		return;
	}
	if (slice_run(g, l, ns, counted, &t)) {
		l->counted += t.calls;
		for (i = 0; i < APP_COUNTERS; i++)
			l->counter[i] += t.counter[i];
	}
	app_perf_close(&perf);
}

static void
lane_round(struct ipc_group *g, struct ipc_lane *l, double ns, double line[2])
{
	lane_slice(g, l, ns, line);
	if (g->run->opt->percentiles)
		lane_slice_clocked(g, l, ns, line);
	if (g->run->opt->counters)
		lane_slice_counted(g, l, ns);
}

int
ipc_group_measure(struct ipc_group *g)
{
	const struct ipc_opt *o = g->run->opt;
	double ns = (double)o->slice_ms * 1e6, line[2];
	uint64_t slices = (uint64_t)(o->seconds * 1e9 / ns + 0.5), done, all;
	struct app_series value[LANE_MAX];
	uint32_t i;

	for (i = 0; i < g->n && !rpb_interrupted(); i++) {
		lane_begin(g, &g->lane[i]);
		if (g->lane[i].client != NULL)
			lane_hello(g, &g->lane[i]);
	}
	all = o->repeat * crpc_max(slices, 1);
	line[0] = rpb_pair_line_ns(g->run->rpb->pair);
	app_trial_begin(&g->trial);
	for (done = 0; done < all && !rpb_interrupted(); done++) {
		app_out_progress(g->lane[0].ops->name, done, all);
		for (i = 0; i < g->n && !rpb_interrupted(); i++)
			lane_round(g, &g->lane[i], ns, line);
	}
	app_out_progress("", all, all);
	for (i = 0; i < g->n; i++) {
		value[i] = g->lane[i].value;
		lane_end(g, &g->lane[i]);
	}
	app_trial_end(&g->trial, value, g->n);
	return rpb_pair_alive(g->run->rpb->pair) ? 0 : -EIO;
}

bool
ipc_group_add(struct ipc_group *g, const struct lane_conf *conf)
{
	const struct lane_ops *ops = lane_ops[conf->transport];
	static bool reported[LANE_TRANSPORTS]; /* What is missing, once each. */

	if (!ops->built && !reported[conf->transport])
		app_note("%s is not in this build; install %s and build again", ops->name,
			ops->package);
	else if (ops->built && conf->mode == LANE_ONEWAY && !ops->oneway &&
		!reported[conf->transport])
		app_note("%s has no one-way mode here; it is left out of that", ops->name);
	if (!ops->built || (conf->mode == LANE_ONEWAY && !ops->oneway))
		reported[conf->transport] = true;
	if (!ops->built || g->n == LANE_MAX || (conf->mode == LANE_ONEWAY && !ops->oneway))
		return false;
	g->lane[g->n++] = (struct ipc_lane){
		.conf = *conf, .ops = ops, .value.sleeps = ops->sleeps};
	return true;
}

void
ipc_group_fini(struct ipc_group *g)
{
	uint32_t i;

	for (i = 0; i < g->n; i++) {
		app_series_fini(&g->lane[i].value);
		app_series_fini(&g->lane[i].cost);
		app_series_fini(&g->lane[i].empty);
		free(g->lane[i].hist);
	}
	g->n = 0;
}

void
ipc_lane_figure(const struct ipc_group *g, const struct app_series *s, struct app_figure *figure)
{
	app_series_figure(s, g->trial.state, figure);
}

bool
ipc_lane_hist(const struct ipc_group *g, const struct ipc_lane *l, struct crpc_hist *hist)
{
	uint32_t i;

	crpc_hist_reset(hist);
	for (i = 0; l->hist != NULL && i < APP_STATES; i++)
		if (g->trial.state == APP_STATE_MIXED || i == (uint32_t)g->trial.state)
			crpc_hist_merge(hist, &l->hist[i]);
	return hist->count != 0;
}
