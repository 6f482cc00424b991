/* SPDX-License-Identifier: BSD-3-Clause */
/* Layers net and raw: options, which lanes are compared with each other, rows. */
#include "app_fail.h"
#include "crpc_log.h"
#include "net.h"

#define RAW_DEPTH 1024u
/** Limits of what a lane is asked for. */
#define NET_ENDPOINTS_MAX 2048
/** Bytes of a bulk transfer. */
#define NET_BULK (1u << 20)

static const struct app_way *const net_ways[] = {
	&net_copyrpc_rc.base, &net_copyrpc_dc.base, &net_udrpc.base};
static const struct app_way *const raw_ways[] = {&net_write_imm.base, &net_write_imm_lat.base,
	&net_write.base, &net_read.base, &net_send.base, &net_send_bf.base, &net_send_lat.base,
	&net_ud_send.base, &net_ud_lat.base, &net_poll.base};

static const char *const arrivals[] = {"imm", "memory", NULL};
static const char *const presets[] = {"original", NULL};

static struct rpb_opt opt = {
	.sizes = {1, {32}},
	.flushes = {1, {CRPC_COPYRPC_CLOCKED}},
	.flows = {1, {CRPC_COPYRPC_FLOW_WINDOW}},
	.arrivals = {1, {CRPC_COPYRPC_IMM}},
	.length = APP_LENGTH_DEFAULT,
};
static struct rpb_opt raw_opt = {.sizes = {1, {32}}, .length = APP_LENGTH_DEFAULT};

/* What both layers have. */
#define OPTS_COMMON(opt)                                                                           \
	APP_DEVICE(&opt.device), APP_LENGTH(&opt.length, "", "lanes"), APP_JSON(&opt.json)

static const struct app_opt net_opts[] = {
	APP_TRANSPORT(&opt.transports, "calls; without it all that are built", rpb_transports),
	APP_PRESET(&opt.preset,
		"original: 1x1, 1x32 and 8x256, unless endpoints or depth are given", presets),
	APP_OPT("endpoints", "N", &opt.clients, "connections, of one client", 1, NET_ENDPOINTS_MAX),
	APP_OPT("active", "N", &opt.active, "endpoints with calls; without it all", 1,
		NET_ENDPOINTS_MAX),
	APP_DEPTH(&opt.depths, "each endpoint", NET_DEPTH_MAX),
	APP_SIZE(&opt.sizes, "a request and of its answer, a multiple of 8", 8, NET_SIZE_MAX,
		.unit = 8),
	APP_FLUSH(&opt.flushes, "; copyrpc"),
	APP_FLOW(&opt.flows),
	APP_CHOICE("arrival", &opt.arrivals, "copyrpc: how a batch is found", arrivals),
	APP_OPT("ring", "BYTES", &opt.ring,
		"copyrpc: size of a ring, a power of two; without it as the depth needs",
		CRPC_COPYRPC_RING_MIN, 1 << 26, .pow2 = true),
	APP_FLAG("oneway", &opt.oneway, "requests without an answer"),
	APP_VERIFY(&opt.verify, "every word of the answers"),
	OPTS_COMMON(opt),
};

static const struct app_opt raw_opts[] = {
	APP_TRANSPORT(&raw_opt.transports, "messages", rpb_transports),
	APP_SIZE(&raw_opt.sizes,
		"a message, a multiple of 8; SEND: at most 256; not of write and read", 8,
		NET_RAW_MAX, .unit = 8),
	OPTS_COMMON(raw_opt),
};

static struct crpc_rdma_info device;

const char *
net_device(void)
{
	return device.name;
}

void
net_ledger_of(const struct crpc_rdma *dev, struct lane_ledger *l)
{
	struct crpc_rdma_stats s;
	struct crpc_rdma_card card;

	l->card = crpc_rdma_card_get(dev, &card) == 0;
	if (l->card) {
		l->n[LANE_DOORBELLS] = card.doorbells;
		l->n[LANE_WQEBBS] = card.wqebbs;
		l->n[LANE_CQES] = card.cqes;
		l->n[LANE_PCIE_BYTES] = card.pcie_bytes;
		l->n[LANE_PACKETS] = card.packets;
		return;
	}
	crpc_rdma_stats_get(dev, &s);
	l->n[LANE_DOORBELLS] = s.doorbells;
	l->n[LANE_WQEBBS] = s.wqebbs;
	l->n[LANE_CQES] = s.send_cqes + s.recv_cqes + s.error_cqes;
}

const uint8_t *
net_peer(struct app_lane *l, int side)
{
	const struct app_addr *theirs = &l->addr[!side];

	if (theirs->len == l->c->clients * NET_ADDR_LEN)
		return theirs->bytes;
	app_lane_fail(l, -EPROTO, "the peer has other endpoints");
	return NULL;
}

/* The device that all ends of this process open. */
static int
net_prepare(void *arg)
{
	const struct rpb_run *run = arg;
	const struct crpc_rdma_conf conf = {.device = run->opt->device};
	struct crpc_rdma *dev = crpc_rdma_open(&conf);

	if (dev == NULL)
		return app_fail("%s", crpc_log_last());
	crpc_rdma_info_get(dev, &device);
	crpc_rdma_close(dev);
	return 0;
}

static bool
is_copyrpc(const struct app_way *way)
{
	return way == &net_copyrpc_rc.base || way == &net_copyrpc_dc.base;
}

/* Every transport, and of copyrpc every mode that was asked for, side by side. */
static int
net_case(struct rpb_run *run, uint32_t endpoints, uint32_t depth, uint32_t size)
{
	struct app_group g = call_group(run);
	struct app_case c = {.clients = endpoints,
		.active = opt.active != 0 ? (uint32_t)crpc_min(opt.active, endpoints) : endpoints,
		.depth = depth,
		.size = size,
		.ring_size = (uint32_t)opt.ring,
		.mode = opt.oneway ? LANE_ONEWAY : LANE_ASYNC};
	const struct app_axis axes[] = {{&opt.transports, &c.transport}, {&opt.flushes, &c.flush},
		{&opt.flows, &c.flow}, {&opt.arrivals, &c.arrival}};
	const uint32_t modes = opt.flushes.n * opt.flows.n * opt.arrivals.n;
	struct call_lane *l;
	bool copyrpc;
	size_t used;

	for (uint32_t at = 0; app_axes_set(axes, CRPC_DIM(axes), at); at++) {
		copyrpc = is_copyrpc(net_ways[c.transport]);
		if (!copyrpc && at % modes != 0)
			continue;
		l = call_add(run, &g, &c);
		if (l == NULL || !copyrpc)
			continue;
		used = strlen(l->base.text);
		snprintf(l->base.text + used, sizeof(l->base.text) - used, ", %s %s %s",
			app_flush_names[c.flush], app_flow_names[c.flow], arrivals[c.arrival]);
	}
	return call_run(&g);
}

static int
net_cases(struct rpb_run *run, uint32_t size)
{
	static const struct app_list one = {1, {1}};
	static const uint32_t original[][2] = {{1, 1}, {1, 32}, {8, 256}};
	bool preset = opt.clients.n == 0 && opt.depths.n == 0;
	uint32_t endpoints, depth;
	const struct app_axis axes[] = {{opt.clients.n == 0 ? &one : &opt.clients, &endpoints},
		{opt.depths.n == 0 ? &one : &opt.depths, &depth}};
	int rc = 0;

	for (uint32_t at = 0; rc == 0 && !app_party_stopped(run->party); at++) {
		if (preset ? at == CRPC_DIM(original) : !app_axes_set(axes, CRPC_DIM(axes), at))
			break;
		rc = net_case(run, preset ? original[at][0] : endpoints,
			preset ? original[at][1] : depth, size);
	}
	return rc;
}

/* The operations of one unit, at all sizes, side by side: as many as are measured together. */
static int
raw_group(struct rpb_run *run, enum lane_unit unit, const struct app_list *sizes)
{
	struct app_group g = call_group(run);
	struct app_case c = {.clients = 1,
		.active = 1,
		.depth = unit == LANE_RATE ? RAW_DEPTH : 1,
		.mode = LANE_ASYNC};
	const struct app_axis axes[] = {{sizes, &c.size}, {&raw_opt.transports, &c.transport}};
	int rc = 0;

	for (uint32_t at = 0; rc == 0 && app_axes_set(axes, CRPC_DIM(axes), at); at++) {
		if (((const struct lane_way *)run->layer->ways[c.transport])->unit != unit)
			continue;
		call_add(run, &g, &c);
		if (g.n == APP_LANES_MAX) {
			rc = call_run(&g);
			g = call_group(run);
		}
	}
	return rc == 0 && !app_party_stopped(run->party) ? call_run(&g) : rc;
}

static int
raw_run(void *arg)
{
	static const struct app_list bulk = {1, {NET_BULK}};
	struct rpb_run *run = arg;
	int rc;

	printf("machine: device %s, driver %s\n", device.name, device.driver);
	rc = raw_group(run, LANE_RATE, &raw_opt.sizes);
	if (rc == 0 && !app_party_stopped(run->party))
		rc = raw_group(run, LANE_LATENCY, &raw_opt.sizes);
	if (rc == 0 && !app_party_stopped(run->party))
		rc = raw_group(run, LANE_BYTES, &bulk);
	return rc;
}

/* ---- rows ---- */

/* What a call asked of the devices: of one, or of both. */
static json_t *
ledger(const struct lane_ledger *a, const struct lane_ledger *b, uint64_t calls)
{
	static const char *const keys[] = {
		"doorbells", "wqebb", "cqes", "reads", "pcie_bytes", "packets"};
	json_t *o = json_object();
	uint64_t n[LANE_COUNTS];

	for (uint32_t i = 0; i < LANE_COUNTS; i++)
		n[i] = a->n[i] + b->n[i];
	for (uint32_t i = 0; i < (a->card ? CRPC_DIM(keys) : LANE_PCIE_BYTES); i++)
		app_row_set(o, "{s:f}", keys[i], (double)n[i] / (double)calls);
	if (n[LANE_BATCHES] != 0)
		app_row_set(o, "{s:f}", "messages_per_batch",
			(double)n[LANE_MESSAGES] / (double)n[LANE_BATCHES]);
	if (n[LANE_REPEATED] != 0)
		app_row_set(o, "{s:I}", "repeated", (json_int_t)n[LANE_REPEATED]);
	return o;
}

static void
net_row(const struct app_group *g, const struct app_lane *base, json_t *row)
{
	static const char *const keys[] = {"rate", "latency", "bandwidth"};
	static const char *const units[] = {"Mops/s", "ns", "GB/s"};
	const struct call_lane *l = (const struct call_lane *)base;
	static const struct lane_ledger none;
	const struct app_case *c = base->c;

	app_row_set(row, "{s:i,s:i,s:i,s:i,s:s}", "endpoints", c->clients, "active", c->active,
		"depth", c->depth, "size", c->size, "mode",
		c->mode == LANE_ONEWAY  ? "oneway"
			: c->depth == 1 ? "sync"
					: "async");
	if (is_copyrpc(base->way))
		app_row_set(row, "{s:s,s:s,s:s}", "flush", app_flush_names[c->flush], "flow",
			app_flow_names[c->flow], "arrival", arrivals[c->arrival]);
	app_row_series(row, keys[l->unit], &base->series[LANE_VALUE], &g->trial, units[l->unit]);
	if (l->calls != 0)
		app_row_set(row, "{s:o,s:o,s:o}", "ledger",
			ledger(&l->sum[0], &l->sum[1], l->calls), "ledger_client",
			ledger(&l->sum[0], &none, l->calls), "ledger_server",
			ledger(&l->sum[1], &none, l->calls));
}

static int
net_run(void *arg)
{
	struct rpb_run *run = arg;
	int rc = 0;

	printf("machine: device %s, driver %s\n", device.name, device.driver);
	for (uint32_t i = 0; i < opt.sizes.n && rc == 0; i++)
		rc = net_cases(run, (uint32_t)opt.sizes.v[i]);
	return rc;
}

const struct rpb_layer rpb_layer_net = {
	.name = "net",
	.what = "between nodes: copyrpc and udrpc, with what each call asks of the NIC",
	.about = "Calls between two ends with a device context each: on two lcores, on one, or\n"
		 "in two ranks under mpirun.\n",
	RPB_TABLES(&opt, net_opts, net_ways),
	.device = true,
	.prepare = net_prepare,
	.run = net_run,
	.row = net_row,
};

const struct rpb_layer rpb_layer_raw = {
	.name = "raw",
	.what = "single operations of the same NIC",
	.about = "Single operations of the device, as layer net's calls are made of.\n",
	RPB_TABLES(&raw_opt, raw_opts, raw_ways),
	.device = true,
	.prepare = net_prepare,
	.run = raw_run,
	.row = net_row,
};
