/* SPDX-License-Identifier: BSD-3-Clause */
/* Layers net and raw: options, and which lanes are compared with each other. */
#include <errno.h>
#include <string.h>

#include "app_fail.h"
#include "net.h"

enum net_preset { PRESET_ORIGINAL, PRESET_TARGETS };

#define RAW_DEPTH 1024u

static const char *const net_transports[] = {"copyrpc_rc", "copyrpc_dc", "udrpc", NULL};
static const char *const raw_transports[] = {"write_imm", "write_imm_lat", "write", "read", "send",
	"send_blueflame", "send_lat", "ud_send", "ud_lat", "write_relaxed", "read_relaxed", NULL};
static const char *const flushes[] = {"clocked", "immediate", "deferred", "hold", NULL};
static const char *const flows[] = {"window", "read", "notify", NULL};
static const char *const arrivals[] = {"imm", "memory", NULL};
static const char *const presets[] = {"original", "targets", NULL};

static struct net_opt opt = {
	.sizes = {.n = 1, .v = {32}},
	.flushes = {.n = 1, .v = {CRPC_COPYRPC_CLOCKED}},
	.flows = {.n = 1, .v = {CRPC_COPYRPC_FLOW_WINDOW}},
	.arrivals = {.n = 1, .v = {CRPC_COPYRPC_IMM}},
	.slice_ms = 60,
	.repeat = 5,
};

/* What both layers have. */
#define OPTS_COMMON                                                                                \
	{"device", APP_OPT_STRING, "NAME", "RDMA device (the first one)", &opt.device, 0, 0,       \
		NULL},                                                                             \
		{"slice-ms", APP_OPT_UINT, "MS", "length of a slice", &opt.slice_ms, 1, 10000,     \
			NULL},                                                                     \
		{"repeat", APP_OPT_UINT, "N", "rounds over all lanes", &opt.repeat, 1, 1000,       \
			NULL},                                                                     \
		{"json", APP_OPT_STRING, "FILE", "append one object per result", &opt.json, 0, 0,  \
			NULL}

static const struct app_opt net_opts[] = {
	{"transport", APP_OPT_CHOICES, "LIST",
		"copyrpc_rc, copyrpc_dc, udrpc, or all (all that are built)", &opt.transports, 0, 0,
		net_transports},
	{"preset", APP_OPT_CHOICE, "NAME",
		"original: 1x1, 1x32 and 8x256, unless endpoints or depth are given; targets: what "
		"has to be reached, with a verdict for each line",
		&opt.preset, 0, 0, presets},
	{"endpoints", APP_OPT_UINTS, "LIST", "connections, of one client", &opt.endpoints, 1,
		NET_ENDPOINTS_MAX, NULL},
	{"active", APP_OPT_UINT, "N", "of these, with calls (all)", &opt.active, 1,
		NET_ENDPOINTS_MAX, NULL},
	{"depth", APP_OPT_UINTS, "LIST", "open calls of each", &opt.depths, 1, NET_DEPTH_MAX, NULL},
	{"size", APP_OPT_UINTS, "LIST", "bytes of a request and of its answer, multiples of 8",
		&opt.sizes, 8, NET_SIZE_MAX, NULL},
	{"flush", APP_OPT_CHOICES, "LIST", "copyrpc: clocked, immediate, deferred, hold",
		&opt.flushes, 0, 0, flushes},
	{"flow", APP_OPT_CHOICES, "LIST", "copyrpc: window, read, notify", &opt.flows, 0, 0, flows},
	{"arrival", APP_OPT_CHOICES, "LIST", "copyrpc: imm, memory", &opt.arrivals, 0, 0, arrivals},
	{"ring", APP_OPT_UINT, "BYTES", "copyrpc: of a ring, a power of two (as the depth needs)",
		&opt.ring, CRPC_COPYRPC_RING_MIN, 1 << 26, NULL},
	{"oneway", APP_OPT_FLAG, NULL, "requests without an answer", &opt.oneway, 0, 0, NULL},
	{"check", APP_OPT_FLAG, NULL, "compare every word of the answers", &opt.check, 0, 0, NULL},
	OPTS_COMMON,
};

static const struct app_opt raw_opts[] = {
	{"transport", APP_OPT_CHOICES, "LIST",
		"write_imm, write_imm_lat, write, read, send, send_blueflame, send_lat, ud_send, "
		"ud_lat, write_relaxed, read_relaxed, or all",
		&opt.transports, 0, 0, raw_transports},
	{"size", APP_OPT_UINTS, "LIST", "bytes of a message, multiples of 8; not of write and read",
		&opt.sizes, 8, 256, NULL},
	OPTS_COMMON,
};

static void
net_help(FILE *out)
{
	fprintf(out, "usage: rpcbench [EAL arguments] -- net [options]\n\n"
		     "Calls between two ends with a device context each: on two lcores, on one, or "
		     "in two\nranks under mpirun.\n\n");
	app_opt_help(net_opts, CRPC_DIM(net_opts), out);
}

static void
raw_help(FILE *out)
{
	fprintf(out, "usage: rpcbench [EAL arguments] -- raw [options]\n\n"
		     "Single operations of the device, as layer net's calls are made of.\n\n");
	app_opt_help(raw_opts, CRPC_DIM(raw_opts), out);
}

static int
sizes_check(void)
{
	uint32_t i;

	for (i = 0; i < opt.sizes.n; i++)
		if (opt.sizes.v[i] % 8 != 0)
			return app_fail("--size %lu is not a multiple of 8",
				(unsigned long)opt.sizes.v[i]);
	return opt.json != NULL ? app_json_check("json", opt.json) : 0;
}

/* All that are built, unless the user chose. */
static int
transports_default(uint32_t from, uint32_t to)
{
	uint32_t i;

	for (i = 0; i < opt.transports.n; i++) {
		opt.transports.v[i] += from;
		if (!net_ops[opt.transports.v[i]]->built && opt.transports.n < to - from)
			return app_fail("--transport %s is not in this build",
				net_ops[opt.transports.v[i]]->name);
	}
	if (opt.transports.n != 0)
		return 0;
	for (i = from; i < to; i++)
		if (net_ops[i]->built)
			opt.transports.v[opt.transports.n++] = i;
	return 0;
}

static int
net_parse(int argc, char **argv)
{
	int rc = app_opt_parse(net_opts, CRPC_DIM(net_opts), argc, argv);

	if (rc == 0 && (opt.ring & (opt.ring - 1)) != 0)
		return app_fail("--ring %lu is not a power of two", (unsigned long)opt.ring);
	if (rc == 0)
		rc = sizes_check();
	return rc != 0 ? rc : transports_default(0, NET_TRANSPORTS);
}

static int
raw_parse(int argc, char **argv)
{
	int rc = app_opt_parse(raw_opts, CRPC_DIM(raw_opts), argc, argv);

	if (rc == 0)
		rc = sizes_check();
	return rc != 0 ? rc : transports_default(NET_TRANSPORTS, NET_ALL);
}

static int
group_finish(struct net_group *g)
{
	int rc = g->n == 0 ? 0 : net_group_measure(g);

	if (g->n != 0 && net_out_group(g) != 0)
		rc = -EIO;
	net_group_fini(g);
	return rc;
}

/* Every transport, and of copyrpc every mode that was asked for, side by side. */
static void
group_fill(struct net_group *g, struct net_conf *c)
{
	uint32_t t, f, w, a;
	bool modes;

	for (t = 0; t < opt.transports.n; t++) {
		c->transport = (uint32_t)opt.transports.v[t];
		modes = c->transport == NET_COPYRPC_RC || c->transport == NET_COPYRPC_DC;
		for (f = 0; f < (modes ? opt.flushes.n : 1); f++)
			for (w = 0; w < (modes ? opt.flows.n : 1); w++)
				for (a = 0; a < (modes ? opt.arrivals.n : 1); a++) {
					c->flush = modes ? (uint32_t)opt.flushes.v[f] : 0;
					c->flow = modes ? (uint32_t)opt.flows.v[w] : 0;
					c->arrival = modes ? (uint32_t)opt.arrivals.v[a] : 0;
					net_group_add(g, c);
				}
	}
}

static int
net_case(struct net_run *run, uint32_t endpoints, uint32_t depth, uint32_t size)
{
	struct net_group g = {.run = run};
	struct net_conf c = {.endpoints = endpoints,
		.active = opt.active != 0 ? (uint32_t)crpc_min(opt.active, endpoints) : endpoints,
		.depth = depth,
		.size = size,
		.ring_size = (uint32_t)opt.ring,
		.oneway = opt.oneway,
		.check = opt.check};

	group_fill(&g, &c);
	return group_finish(&g);
}

static int
net_cases(struct net_run *run, uint32_t size)
{
	static const uint32_t original[][2] = {{1, 1}, {1, 32}, {8, 256}};
	uint32_t i, k;
	int rc = 0;

	if (opt.endpoints.n == 0 && opt.depths.n == 0) {
		for (i = 0; i < CRPC_DIM(original) && rc == 0 && !rpb_interrupted(); i++)
			rc = net_case(run, original[i][0], original[i][1], size);
		return rc;
	}
	if (opt.endpoints.n == 0)
		opt.endpoints = (struct app_list){.n = 1, .v = {1}};
	if (opt.depths.n == 0)
		opt.depths = (struct app_list){.n = 1, .v = {1}};
	for (i = 0; i < opt.endpoints.n; i++)
		for (k = 0; k < opt.depths.n && rc == 0 && !rpb_interrupted(); k++)
			rc = net_case(run, (uint32_t)opt.endpoints.v[i], (uint32_t)opt.depths.v[k],
				size);
	return rc;
}

static int
net_all(struct net_run *run)
{
	uint32_t i;
	int rc = 0;

	if (opt.preset == PRESET_TARGETS)
		return net_targets(run);
	for (i = 0; i < opt.sizes.n && rc == 0; i++)
		rc = net_cases(run, (uint32_t)opt.sizes.v[i]);
	return rc;
}

/* The operations of one unit, at one size. */
static int
raw_group(struct net_run *run, enum net_unit unit, uint32_t size)
{
	struct net_group g = {.run = run};
	struct net_conf c = {.endpoints = 1, .active = 1, .size = size,
		.depth = unit == NET_RATE ? RAW_DEPTH : 1};
	uint32_t i;

	for (i = 0; i < opt.transports.n; i++) {
		c.transport = (uint32_t)opt.transports.v[i];
		if (net_ops[c.transport]->unit == unit)
			net_group_add(&g, &c);
	}
	return group_finish(&g);
}

static int
raw_all(struct net_run *run)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < opt.sizes.n && rc == 0 && !rpb_interrupted(); i++) {
		rc = raw_group(run, NET_RATE, (uint32_t)opt.sizes.v[i]);
		if (rc == 0 && !rpb_interrupted())
			rc = raw_group(run, NET_LATENCY, (uint32_t)opt.sizes.v[i]);
	}
	return rc == 0 && !rpb_interrupted() ? raw_group(run, NET_BYTES, NET_BULK) : rc;
}

/* Rank 1 serves; everybody else measures. */
static int
layer_run(struct rpb *rpb, const char *layer, int (*all)(struct net_run *run))
{
	struct net_run run = {.opt = &opt, .layer = layer};
	int rc = net_device_choose(opt.device);

	if (rc != 0)
		return rc;
	if (rpb->boot.rank == 1)
		return net_far_serve(rpb);
	rc = net_far_open(&run.far, rpb);
	if (rc != 0)
		return rc;
	if (opt.json != NULL) {
		run.json = app_json_open("json", opt.json);
		if (run.json == NULL)
			rc = APP_EXIT_USAGE;
	}
	if (rc == 0) {
		net_out_limits(&run);
		if (all(&run) != 0) {
			app_note("a result could not be written to %s", opt.json);
			rc = APP_EXIT_RUN;
		}
		if (rpb_interrupted())
			app_note("interrupted: results so far");
	}
	if (run.json != NULL)
		fclose(run.json);
	net_far_close(&run.far);
	return rc == 0 && run.failed != 0 ? APP_EXIT_RUN : rc;
}

static int
net_layer_run(struct rpb *rpb)
{
	return layer_run(rpb, "net", net_all);
}

static int
raw_layer_run(struct rpb *rpb)
{
	return layer_run(rpb, "raw", raw_all);
}

const struct rpb_layer rpb_layer_net = {
	.name = "net",
	.what = "between nodes: copyrpc and udrpc, with what each call asks of the NIC",
	.ranks = true,
	.help = net_help,
	.parse = net_parse,
	.run = net_layer_run,
};

const struct rpb_layer rpb_layer_raw = {
	.name = "raw",
	.what = "single operations of the same NIC",
	.ranks = true,
	.help = raw_help,
	.parse = raw_parse,
	.run = raw_layer_run,
};
