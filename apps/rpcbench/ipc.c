/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer ipc: options, which lanes are compared with each other, rows. */
#include "app_fail.h"
#include "lane.h"

extern const struct lane_way lane_ipc, lane_unix, lane_pipe, lane_ucx, lane_zmq_ipc, lane_zmq_tcp;

static const struct app_way *const ways[] = {&lane_ipc.base, &lane_unix.base, &lane_pipe.base,
	&lane_ucx.base, &lane_zmq_ipc.base, &lane_zmq_tcp.base};

/* Where a peer's package was not there, its name and package remain. */
#ifndef RPB_HAVE_UCX
const struct lane_way lane_ucx = {.base = {"ucx_posix", "libucx-dev"}};
#endif
#ifndef RPB_HAVE_ZMQ
const struct lane_way lane_zmq_ipc = {.base = {"zmq_ipc", "libzmq3-dev"}};
const struct lane_way lane_zmq_tcp = {.base = {"zmq_tcp", "libzmq3-dev"}};
#endif

static const char *const modes[] = {"sync", "async", "oneway", NULL};

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
ipc_run(void *arg)
{
	struct rpb_run *run = arg;
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
	double mine = app_series_median(&g->lane[0]->series[LANE_VALUE], g->trial.state);

	if (g->lane[0]->way != &lane_ipc.base || !(mine > 0) || !(figure > 0))
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

const struct rpb_layer rpb_layer_ipc = {
	.name = "ipc",
	.what = "between two processes of a host, through shared memory",
	.about = "Round trip and rate of calls between two processes, a server on the second\n"
		 "lcore and all clients on the first, compared with what people use.\n",
	RPB_TABLES(&opt, opts, ways),
	.check = ipc_check,
	.run = ipc_run,
	.row = ipc_row,
};
