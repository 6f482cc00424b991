/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer ipc: options, and which lanes are compared with each other. */
#include <errno.h>
#include <string.h>

#include "app_fail.h"
#include "ipc.h"

enum ipc_preset { PRESET_NONE, PRESET_TARGETS };

static const char *const transports[] = {
	"ipc", "unix_socket", "pipe", "ucx_posix", "zmq_ipc", "zmq_tcp", NULL};
static const char *const modes[] = {"sync", "async", "oneway", NULL};
static const char *const presets[] = {"none", "targets", NULL};

static struct ipc_opt opt = {
	.modes = {.n = 2, .v = {LANE_SYNC, LANE_ASYNC}},
	.clients = {.n = 1, .v = {1}},
	.depths = {.n = 1, .v = {32}},
	.sizes = {.n = 1, .v = {32}},
	.burst = 32,
	.active = 8,
	.slice_ms = 60,
	.repeat = 5,
};

static const struct app_opt opts[] = {
	{"transport", APP_OPT_CHOICES, "LIST",
		"ipc, unix_socket, pipe, ucx_posix, zmq_ipc, zmq_tcp, or all (all that are built)",
		&opt.transports, 0, 0, transports},
	{"mode", APP_OPT_CHOICES, "LIST",
		"sync: round trips; async: rate; oneway: rate without answers",
		&opt.modes, 0, 0, modes},
	{"clients", APP_OPT_UINTS, "LIST", "clients, on one lcore", &opt.clients, 1,
		LANE_CLIENTS_MAX, NULL},
	{"depth", APP_OPT_UINTS, "LIST", "async: open calls of each client", &opt.depths, 1,
		LANE_DEPTH_MAX, NULL},
	{"size", APP_OPT_UINTS, "LIST", "bytes of a request and of its answer, multiples of 8",
		&opt.sizes, 8, LANE_SIZE_MAX, NULL},
	{"burst", APP_OPT_UINT, "N", "async: calls that a client makes at a stretch", &opt.burst, 1,
		LANE_BURST_MAX, NULL},
	{"connected", APP_OPT_UINT, "N",
		"what idle clients cost: N connected of which --active call, beside only those",
		&opt.connected, 1, LANE_CLIENTS_MAX, NULL},
	{"active", APP_OPT_UINT, "M", "with --connected: clients that call", &opt.active, 1,
		LANE_CLIENTS_MAX, NULL},
	{"slice-ms", APP_OPT_UINT, "MS", "length of a slice", &opt.slice_ms, 1, 10000, NULL},
	{"seconds", APP_OPT_REAL, "S", "slices of each lane in a round, together; 0: one slice",
		&opt.seconds, 0, 3600, NULL},
	{"repeat", APP_OPT_UINT, "N", "rounds over all lanes", &opt.repeat, 1, 1000, NULL},
	{"check", APP_OPT_FLAG, NULL, "prove answers, in slices of their own that are not timed",
		&opt.check, 0, 0, NULL},
	{"counters", APP_OPT_FLAG, NULL,
		"the CPU's counters per call of the client's lcore, where it has any",
		&opt.counters, 0, 0, NULL},
	{"percentiles", APP_OPT_FLAG, NULL, "sync: also clock every call, in slices of their own",
		&opt.percentiles, 0, 0, NULL},
	{"preset", APP_OPT_CHOICE, "NAME",
		"targets: what has to be reached, with a verdict for each line", &opt.preset, 0, 0,
		presets},
	{"json", APP_OPT_STRING, "FILE", "append one object per result", &opt.json, 0, 0, NULL},
};

static void
ipc_help(FILE *out)
{
	size_t i;

	fprintf(out, "usage: rpcbench [EAL arguments] -- ipc [options]\n\n"
		     "Round trip and rate of calls between two processes, a server on the second "
		     "lcore and\nall clients on the first, beside what people use instead.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), out);
	for (i = 0; i < LANE_TRANSPORTS; i++)
		if (!lane_ops[i]->built)
			fprintf(out, "\n%s is not in this build: it needs %s.\n", lane_ops[i]->name,
				lane_ops[i]->package);
}

/* All that are built, unless the user chose. */
static int
transports_default(void)
{
	const struct lane_ops *ops;
	uint32_t i;

	for (i = 0; i < opt.transports.n; i++) {
		ops = lane_ops[opt.transports.v[i]];
		if (!ops->built && opt.transports.n < LANE_TRANSPORTS)
			return app_fail("--transport %s is not in this build; install %s and build "
					"again",
				ops->name, ops->package);
	}
	if (opt.transports.n != 0)
		return 0;
	for (i = 0; i < LANE_TRANSPORTS; i++)
		if (lane_ops[i]->built)
			opt.transports.v[opt.transports.n++] = i;
	return 0;
}

static int
ipc_parse(int argc, char **argv)
{
	uint32_t i;
	int rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);

	if (rc != 0)
		return rc;
	for (i = 0; i < opt.sizes.n; i++)
		if (opt.sizes.v[i] % 8 != 0)
			return app_fail("--size %lu is not a multiple of 8; give 8 to %d",
				(unsigned long)opt.sizes.v[i], LANE_SIZE_MAX);
	if (opt.connected != 0 && opt.active > opt.connected)
		return app_fail("--active %lu is more than --connected %lu; give 1 to %lu",
			(unsigned long)opt.active, (unsigned long)opt.connected,
			(unsigned long)opt.connected);
	rc = transports_default();
	if (rc == 0 && opt.json != NULL)
		rc = app_json_check("json", opt.json);
	return rc;
}

static int
group_finish(struct ipc_group *g)
{
	int rc = g->n == 0 ? 0 : ipc_group_measure(g);

	if (g->n != 0 && ipc_out_group(g) != 0)
		rc = -EIO;
	ipc_group_fini(g);
	return rc;
}

/* The transports side by side. */
static int
run_case(struct ipc_run *run, struct lane_conf *c)
{
	struct ipc_group g = {.run = run};
	uint32_t i;

	for (i = 0; i < opt.transports.n; i++) {
		c->transport = (enum lane_transport)opt.transports.v[i];
		ipc_group_add(&g, c);
	}
	return group_finish(&g);
}

/* Each transport with only the active clients, and with all the idle ones. */
static int
run_connected(struct ipc_run *run, struct lane_conf *c)
{
	struct ipc_group g = {.run = run, .clocked = true};
	uint32_t i;

	c->active = (uint32_t)opt.active;
	for (i = 0; i < opt.transports.n; i++) {
		c->transport = (enum lane_transport)opt.transports.v[i];
		c->clients = (uint32_t)opt.active;
		ipc_group_add(&g, c);
		c->clients = (uint32_t)opt.connected;
		if (opt.connected != opt.active)
			ipc_group_add(&g, c);
	}
	return group_finish(&g);
}

/* Every client count at one mode, depth and size. */
static int
run_clients(struct ipc_run *run, const struct lane_conf *conf)
{
	struct lane_conf c = *conf;
	uint32_t i;
	int rc = 0;

	if (opt.connected != 0)
		return run_connected(run, &c);
	for (i = 0; i < opt.clients.n && rc == 0 && !rpb_interrupted(); i++) {
		c.clients = c.active = (uint32_t)opt.clients.v[i];
		rc = run_case(run, &c);
	}
	return rc;
}

static int
run_all(struct ipc_run *run)
{
	struct lane_conf c = {0};
	uint32_t m, s, d;
	int rc = 0;

	for (m = 0; m < opt.modes.n; m++)
		for (s = 0; s < opt.sizes.n; s++)
			for (d = 0; d < opt.depths.n && rc == 0 && !rpb_interrupted(); d++) {
				c.mode = (enum lane_mode)opt.modes.v[m];
				c.size = (uint32_t)opt.sizes.v[s];
				c.depth = c.mode == LANE_SYNC ? 1 : (uint32_t)opt.depths.v[d];
				c.burst = (uint32_t)crpc_min(opt.burst, c.depth);
				if (c.mode == LANE_SYNC && d > 0)
					continue;
				rc = run_clients(run, &c);
			}
	return rc;
}

static int
ipc_layer_run(struct rpb *rpb)
{
	struct ipc_run run = {.opt = &opt, .rpb = rpb};
	int rc = 0;

	if (opt.json != NULL) {
		run.json = app_json_open("json", opt.json);
		if (run.json == NULL)
			return APP_EXIT_USAGE;
	}
	run.line_ns = rpb_pair_line_ns(rpb->pair);
	run.line_rate = rpb_pair_line_rate(rpb->pair);
	ipc_out_limits(&run);
	rc = opt.preset == PRESET_TARGETS ? ipc_targets(&run) : run_all(&run);
	if (run.json != NULL)
		fclose(run.json);
	if (rc != 0 && !rpb_pair_alive(rpb->pair))
		app_note("%s", rpb_pair_why(rpb->pair));
	else if (rc != 0)
		app_note("a result could not be written to %s", opt.json);
	if (rpb_interrupted())
		app_note("interrupted: results so far");
	return rc != 0 || run.failed != 0 ? APP_EXIT_RUN : APP_EXIT_OK;
}

const struct rpb_layer rpb_layer_ipc = {
	.name = "ipc",
	.what = "between two processes of a host, through shared memory",
	.pair = true,
	.help = ipc_help,
	.parse = ipc_parse,
	.run = ipc_layer_run,
};
