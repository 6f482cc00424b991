/* SPDX-License-Identifier: BSD-3-Clause */
/* What has to be reached: each line is a figure of one group, with a bound and a verdict. */
#include <errno.h>

#include "ipc.h"

/* Calls open where one client is to be as fast as it can: two bursts, which stay in the caches. */
#define PIPE_BURST 32
#define PIPE_DEPTH (2 * PIPE_BURST)
#define IDLE_CLIENTS 1024
#define LANES 3
#define TARGETS 3

/* What is made of a group's first lane, and of another one. */
enum target_of {
	OF_LINE,  /* Latency / the line's ping-pong. */
	OF_VALUE, /* The figure. */
	OF_PEER,  /* How many times better than the other. */
	OF_COST,  /* The server's time per call in the other / in the first. */
};

struct target {
	const char *what;
	enum target_of of;
	double bound;
	bool at_most; /* Else at least. */
	uint32_t other;
};

struct target_group {
	struct lane_conf lane[LANES]; /* The first of size 0 ends them. */
	struct target target[TARGETS]; /* Likewise without a text. */
	bool clocked;
};

#define LANE(lane, how, n, act, deep, many)                                                        \
	{                                                                                          \
		.transport = (lane), .mode = (how), .clients = (n), .active = (act),               \
		.depth = (deep), .burst = (many), .size = 32                                       \
	}
#define SYNC(lane) LANE(lane, LANE_SYNC, 1, 1, 1, 1)
#define ASYNC(lane, n, act, deep, many) LANE(lane, LANE_ASYNC, n, act, deep, many)
#define ONEWAY(lane, n, act, deep, many) LANE(lane, LANE_ONEWAY, n, act, deep, many)

static const struct target_group groups[] = {
	{.lane = {SYNC(LANE_IPC), SYNC(LANE_UCX)},
		.target = {{"synchronous round trip, 32 bytes / line ping-pong", OF_LINE, 1.5,
				   true},
			{"UCX posix round trip / ours", OF_PEER, 1.0, false, 1}}},
	{.lane = {ASYNC(LANE_IPC, 1, 1, PIPE_DEPTH, PIPE_BURST),
		 ASYNC(LANE_UCX, 1, 1, PIPE_DEPTH, PIPE_BURST),
		 ONEWAY(LANE_UCX, 1, 1, PIPE_DEPTH, PIPE_BURST)},
		.target = {{"1 client, 32 bytes, bursts of 32, M calls/s", OF_VALUE, 100, false},
			{"the same / calls of UCX posix", OF_PEER, 5.0, false, 1},
			{"the same / one-way messages of UCX posix", OF_PEER, 5.0, false, 2}}},
	{.lane = {ASYNC(LANE_IPC, 16, 16, 4, 4), ASYNC(LANE_UCX, 16, 16, 4, 4)},
		.target = {{"16 clients on one lcore, depth 4, M calls/s", OF_VALUE, 60, false}}},
	{.lane = {ASYNC(LANE_IPC, 8, 8, 4, 4), ASYNC(LANE_IPC, IDLE_CLIENTS, 8, 4, 4)},
		.target = {{"8 active of 1024 clients / 8 of 8: server time per call", OF_COST, 1.3,
			true, 1}},
		.clocked = true},
};

static double
median(const struct ipc_group *g, const struct app_series *s)
{
	struct app_figure f;

	ipc_lane_figure(g, s, &f);
	return f.median;
}

/* The figure, or below 0 if a lane that it needs has none. */
static double
target_value(const struct ipc_group *g, const struct target *t)
{
	const struct ipc_lane *mine = &g->lane[0], *other = &g->lane[t->other];
	double value = g->n > 0 ? median(g, &mine->value) : 0, line;

	if (!(value > 0) || t->other >= g->n)
		return -1;
	switch (t->of) {
	case OF_LINE:
		line = app_series_line_ns(&mine->value, g->trial.state);
		return line > 0 ? value / line : -1;
	case OF_VALUE:
		return value;
	case OF_PEER:
		if (other->value.n == 0)
			return -1;
		return mine->conf.mode == LANE_SYNC ? median(g, &other->value) / value
						    : value / median(g, &other->value);
	case OF_COST:
		if (mine->cost.n == 0 || other->cost.n == 0)
			return -1;
		return median(g, &other->cost) / median(g, &mine->cost);
	}
	return -1;
}

static int
target_print(const struct ipc_group *g, const struct target *t)
{
	struct app_json_base base = app_out_base(&g->trial, "rpcbench", g->run->rpb->lcores,
		g->n > 0 ? g->lane[0].value.n : 0);
	const struct app_target target = {.what = t->what,
		.value = target_value(g, t),
		.bound = t->bound,
		.at_most = t->at_most,
		.unmeasured = t->of == OF_PEER ? "no peer" : NULL};
	json_t *obj = g->run->json != NULL ? app_json_new(&base) : NULL;

	if (obj != NULL)
		json_object_set_new(obj, "layer", json_string("ipc"));
	return app_out_target(&target, g->trial.noisy, obj, g->run->json);
}

/* Measure all, then print: the verdicts stand together at the end. */
int
ipc_targets(struct ipc_run *run)
{
	struct ipc_group g[CRPC_DIM(groups)] = {0};
	uint32_t i, k, done;
	int rc = 0;

	for (i = 0; i < CRPC_DIM(groups) && rc == 0 && !rpb_interrupted(); i++) {
		g[i].run = run;
		g[i].clocked = groups[i].clocked;
		for (k = 0; k < LANES && groups[i].lane[k].size != 0; k++)
			ipc_group_add(&g[i], &groups[i].lane[k]);
		rc = ipc_group_measure(&g[i]);
		if (ipc_out_group(&g[i]) != 0)
			rc = -EIO;
	}
	done = i;
	printf("\ntargets\n");
	for (i = 0; i < done; i++) {
		for (k = 0; k < TARGETS; k++)
			if (groups[i].target[k].what != NULL &&
				target_print(&g[i], &groups[i].target[k]) != 0)
				rc = -EIO;
		ipc_group_fini(&g[i]);
	}
	fflush(stdout);
	return rc;
}
