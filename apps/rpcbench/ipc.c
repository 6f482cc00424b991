/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer ipc: options, which lanes are compared with each other, rows and targets. */
#include "app_fail.h"
#include "lane.h"

enum ipc_preset { PRESET_NONE, PRESET_TARGETS };

/** What is compared. */
enum ipc_transport { LANE_IPC, LANE_UNIX, LANE_PIPE, LANE_UCX, LANE_ZMQ_IPC, LANE_ZMQ_TCP };

extern const struct lane_way lane_ipc, lane_unix, lane_pipe, lane_ucx, lane_zmq_ipc, lane_zmq_tcp;

static const struct app_way *const ways[] = {
	[LANE_IPC] = &lane_ipc.base,
	[LANE_UNIX] = &lane_unix.base,
	[LANE_PIPE] = &lane_pipe.base,
	[LANE_UCX] = &lane_ucx.base,
	[LANE_ZMQ_IPC] = &lane_zmq_ipc.base,
	[LANE_ZMQ_TCP] = &lane_zmq_tcp.base,
};

/* Where a peer's package was not there, its name and package remain. */
#ifndef RPB_HAVE_UCX
const struct lane_way lane_ucx = {.base = {"ucx_posix", "libucx-dev"}};
#endif
#ifndef RPB_HAVE_ZMQ
const struct lane_way lane_zmq_ipc = {.base = {"zmq_ipc", "libzmq3-dev"}};
const struct lane_way lane_zmq_tcp = {.base = {"zmq_tcp", "libzmq3-dev"}};
#endif

static const char *const modes[] = {"sync", "async", "oneway", NULL};
static const char *const presets[] = {"none", "targets", NULL};

static struct rpb_opt opt = {
	.modes = {2, {LANE_SYNC, LANE_ASYNC}},
	.clients = {1, {1}},
	.depths = {1, {32}},
	.sizes = {1, {32}},
	.burst = 32,
	.active = 8,
	.length = APP_LENGTH_DEFAULT,
};

static const struct app_opt opts[] = {
	APP_TRANSPORT(&opt.transports, "calls; without it all that are built", rpb_transports),
	APP_CHOICE("mode", &opt.modes, "round trips, rate, or rate without answers", modes),
	APP_CLIENTS(&opt.clients, "on one lcore", 1, CRPC_IPC_CLIENTS_MAX),
	APP_DEPTH(&opt.depths, "each client; async only", CRPC_IPC_DEPTH_MAX),
	APP_SIZE(&opt.sizes, "a request and of its answer, a multiple of 8", 8, CRPC_IPC_MSG_MAX,
		.unit = 8),
	APP_BURST(&opt.burst, "that a client sends at a stretch; async only"),
	APP_OPT("connected", "N", &opt.connected,
		"what idle clients cost: N connected of which --active call, and only those", 1,
		CRPC_IPC_CLIENTS_MAX),
	APP_OPT("active", "N", &opt.active, "with --connected: clients that call", 1,
		CRPC_IPC_CLIENTS_MAX),
	APP_LENGTH(&opt.length, "", "lanes"),
	APP_VERIFY(&opt.verify, "every answer, in slices of their own that are not timed"),
	APP_CPU_COUNTERS(&opt.counters, "call of the client's lcore"),
	APP_FLAG("percentiles", &opt.percentiles,
		"sync: also clock every call, in slices of their own"),
	APP_PRESET(
		&opt.preset, "targets: what has to be reached, with a verdict for each", presets),
	APP_JSON(&opt.json),
};

static int
ipc_check(void)
{
	if (opt.connected != 0 && opt.active > opt.connected)
		return app_fail("--active %lu is more than --connected %lu; give 1 to %lu",
			(unsigned long)opt.active, (unsigned long)opt.connected,
			(unsigned long)opt.connected);
	return 0;
}

/* The transports side by side: each with those clients, or with the active and with all of them. */
static int
run_case(struct rpb_run *run, struct app_case *c)
{
	struct app_group g = call_group(run);
	uint32_t clients = c->clients;

	c->active = opt.connected != 0 ? (uint32_t)opt.active : clients;
	c->clocked = opt.connected != 0;
	for (uint32_t i = 0; i < opt.transports.n; i++) {
		c->transport = (uint32_t)opt.transports.v[i];
		c->clients = c->active;
		call_add(run, &g, c);
		c->clients = clients;
		if (clients != c->active)
			call_add(run, &g, c);
	}
	return call_run(&g);
}

static int
run_all(struct rpb_run *run)
{
	const struct app_list one = {1, {1}}, connected = {1, {opt.connected}};
	struct app_case c = {0};
	const struct app_axis axes[] = {{&opt.sizes, &c.size}, {&opt.depths, &c.depth},
		{opt.connected != 0 ? &connected : &opt.clients, &c.clients}};
	struct app_axis sync[] = {axes[0], {&one, &c.depth}, axes[2]};
	int rc = 0;

	for (uint32_t m = 0; m < opt.modes.n; m++) {
		c.mode = (uint32_t)opt.modes.v[m];
		for (uint32_t at = 0; rc == 0 && !app_party_stopped(run->party) &&
			app_axes_set(c.mode == LANE_SYNC ? sync : axes, CRPC_DIM(axes), at);
			at++) {
			c.burst = (uint32_t)crpc_min(opt.burst, c.depth);
			rc = run_case(run, &c);
		}
	}
	return rc;
}

/* ---- rows ---- */

/* How many times better this lane is than ours; 0 if one of them has no figure. */
static double
ratio_ipc(const struct app_group *g, double figure, uint32_t mode)
{
	double mine = g->lane[0]->c->transport == LANE_IPC ? call_median(g, 0, LANE_VALUE) : 0;

	if (!(mine > 0) || !(figure > 0))
		return 0;
	return mode == LANE_SYNC ? mine / figure : figure / mine;
}

static void
ipc_row(const struct app_group *g, const struct app_lane *base, json_t *row)
{
	const struct call_lane *l = (const struct call_lane *)base;
	double line_ns = app_series_line_ns(&base->series[LANE_VALUE], g->trial.state);
	bool sync = l->c.mode == LANE_SYNC;
	static struct crpc_hist hist;
	struct app_figure f = app_series_figure(&base->series[LANE_VALUE], g->trial.state);

	app_row_set(row, "{s:s,s:i,s:i,s:i,s:i,s:i}", "mode", modes[l->c.mode], "clients",
		l->c.clients, "active", l->c.active, "depth", l->c.depth, "burst", l->c.burst,
		"size", l->c.size);
	app_row_figure(row, sync ? "latency" : "rate", &f, sync ? "ns" : "Mops/s");
	app_row_ratio(row, "ratio_ipc", ratio_ipc(g, f.median, l->c.mode));
	app_row_ratio(row, "ratio_line", sync && f.median > 0 ? line_ns / f.median : 0);
	app_row_series(row, "time_server_call", &base->series[LANE_COST], &g->trial, "ns");
	app_row_series(row, "time_server_empty_poll", &base->series[LANE_EMPTY], &g->trial, "ns");
	app_row_set(row, "{s:f}", "line_ns", line_ns);
	if (call_hist(g, base, &hist)) /* Of ticks. */
		app_row_hist(row, "lat_ns", &hist, (double)crpc_clock.mult / 4294967296.0);
	if (base->counter[0][0] != 0)
		app_row_counters(row, "counters_per_call", base->counter[0], (double)l->counted);
}

/* ---- targets ---- */

/* Calls open where one client is to be as fast as it can: two bursts, which stay in the caches. */
#define PIPE_BURST   32
#define PIPE_DEPTH   (2 * PIPE_BURST)
#define IDLE_CLIENTS 1024

#define LANE(lane, how, n, act, deep, many)                                                        \
	{                                                                                          \
		.transport = (lane), .mode = (how), .clients = (n), .active = (act),               \
		.depth = (deep), .burst = (many), .size = 32                                       \
	}
#define SYNC(lane)                       LANE(lane, LANE_SYNC, 1, 1, 1, 1)
#define ASYNC(lane, n, act, deep, many)  LANE(lane, LANE_ASYNC, n, act, deep, many)
#define ONEWAY(lane, n, act, deep, many) LANE(lane, LANE_ONEWAY, n, act, deep, many)

static const struct call_goals goals[] = {
	{.lane = {SYNC(LANE_IPC), SYNC(LANE_UCX)},
		.target = {{"synchronous round trip, 32 bytes / line ping-pong", CALL_LINE, 1.5,
				   true},
			{"UCX posix round trip / ours", CALL_BETTER, 1.0, false, 1,
				.unmeasured = "no peer"}}},
	{.lane = {ASYNC(LANE_IPC, 1, 1, PIPE_DEPTH, PIPE_BURST),
		 ASYNC(LANE_UCX, 1, 1, PIPE_DEPTH, PIPE_BURST),
		 ONEWAY(LANE_UCX, 1, 1, PIPE_DEPTH, PIPE_BURST)},
		.target = {{"1 client, 32 bytes, bursts of 32, M calls/s", CALL_RATE, 100, false},
			{"the same / calls of UCX posix", CALL_BETTER, 5.0, false, 1,
				.unmeasured = "no peer"},
			{"the same / one-way messages of UCX posix", CALL_BETTER, 5.0, false, 2,
				.unmeasured = "no peer"}}},
	{.lane = {ASYNC(LANE_IPC, 16, 16, 4, 4), ASYNC(LANE_UCX, 16, 16, 4, 4)},
		.target = {{"16 clients on one lcore, depth 4, M calls/s", CALL_RATE, 60, false}}},
	{.lane = {ASYNC(LANE_IPC, 8, 8, 4, 4), ASYNC(LANE_IPC, IDLE_CLIENTS, 8, 4, 4)},
		.target = {{"8 active of 1024 clients / 8 of 8: server time per call", CALL_COST,
			1.3, true, 1}},
		.clocked = true},
};

static int
ipc_run(void *run)
{
	return opt.preset == PRESET_TARGETS ? call_targets(run, goals, CRPC_DIM(goals))
					    : run_all(run);
}

const struct rpb_layer rpb_layer_ipc = {
	.name = "ipc",
	.what = "between two processes of a host, through shared memory",
	.about = "Round trip and rate of calls between two processes, a server on the second\n"
		 "lcore and all clients on the first, compared with what people use.\n",
	RPB_TABLES(&opt, opts, ways, CRPC_DIM(ways)),
	.check = ipc_check,
	.run = ipc_run,
	.row = ipc_row,
};
