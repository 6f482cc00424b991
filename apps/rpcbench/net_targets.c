/* SPDX-License-Identifier: BSD-3-Clause */
/* What has to be reached: each line is a figure of one group, with a bound and a verdict. */
#include <errno.h>

#include "app_fail.h"
#include "net.h"

#define LANES   3
#define TARGETS 5
#define RING_TINY 4096u
/* Turns that fill a ring while the far end stands still. */
#define FILL_TURNS 64

/* What is made of a group's first lane, and of another one. */
enum target_of {
	OF_RATE,     /* Rate of the first / of the other. */
	OF_LATENCY,  /* Round trip of the first, which is one call at a time, / of the other. */
	OF_COST,     /* Time per call of the other / of the first. */
	OF_DOORBELL, /* From here on counts. Of both ends together, per call; */
	OF_WQEBB,
	OF_CQE,
	OF_PCIE, /* of the dearer end; */
	OF_READ,
	OF_RING, /* Usable part of a ring, per cent. */
};

struct target {
	const char *what;
	enum target_of of;
	double bound;
	bool at_most; /* Else at least. */
	uint32_t other;
};

struct target_group {
	struct net_conf lane[LANES];   /* The first of size 0 ends them. */
	struct target target[TARGETS]; /* Likewise without a text. */
};

#define CALLS(n, act, deep)                                                                        \
	{                                                                                          \
		.transport = NET_COPYRPC_RC, .endpoints = (n), .active = (act), .depth = (deep),   \
		.size = 32                                                                         \
	}
#define OTHER(lane, n, deep)                                                                       \
	{                                                                                          \
		.transport = (lane), .endpoints = (n), .active = (n), .depth = (deep), .size = 32  \
	}
#define ONEWAY(how)                                                                                \
	{                                                                                          \
		.transport = NET_COPYRPC_RC, .endpoints = 1, .active = 1, .depth = 64, .size = 32, \
		.oneway = true, .ring_size = RING_TINY, .flow = (how)                              \
	}

static const struct target_group groups[] = {
	{.lane = {CALLS(8, 8, 256), OTHER(NET_WRITE_IMM, 1, NET_DEPTH_MAX)},
		.target = {{"8 x 256, 32 bytes: calls / raw WRITE_IMM, a WQE each", OF_RATE, 4,
				   false, 1},
			{"  doorbells per call", OF_DOORBELL, 1. / 16, true, 0},
			{"  WQE blocks per call", OF_WQEBB, 1. / 8, true, 0},
			{"  CQEs per call", OF_CQE, 1. / 16, true, 0},
			{"  PCIe bytes per call and side", OF_PCIE, 160, true, 0}}},
	{.lane = {CALLS(1, 1, 32), OTHER(NET_UDRPC, 1, 32)},
		.target = {{"1 x 32: calls of copyrpc / of udrpc", OF_RATE, 3, false, 1}}},
	{.lane = {CALLS(1, 1, 1), OTHER(NET_WRITE_IMM_LAT, 1, 1)},
		.target = {{"1 x 1: round trip / of raw WRITE_IMM", OF_LATENCY, 1.35, true, 1}}},
	{.lane = {ONEWAY(CRPC_COPYRPC_FLOW_WINDOW), ONEWAY(CRPC_COPYRPC_FLOW_READ)},
		.target = {{"one way, ring of 4 KiB: window / READ flow", OF_RATE, 1, false, 1},
			{"  READs of the window's", OF_READ, 0, true, 0}}},
	{.lane = {CALLS(8, 8, 4), CALLS(1000, 8, 4)},
		.target = {{"8 active of 1000 endpoints / 8 of 8: time per call", OF_COST, 1.3,
			true, 1}}},
	{.lane = {ONEWAY(CRPC_COPYRPC_FLOW_WINDOW)},
		.target = {{"usable part of a ring of 4 KiB, %", OF_RING, 95, false, 0}}},
};

static double
median(const struct net_group *g, uint32_t i)
{
	struct app_figure f;

	net_lane_figure(g, &g->lane[i], &f);
	return f.median;
}

static double
ledger_value(const struct net_lane *l, enum target_of of)
{
	const struct net_ledger *a = &l->near, *b = &l->far;
	double n = (double)l->calls;

	switch (of) {
	case OF_DOORBELL:
		return (double)(a->doorbells + b->doorbells) / n;
	case OF_WQEBB:
		return (double)(a->wqebbs + b->wqebbs) / n;
	case OF_CQE:
		return (double)(a->cqes + b->cqes) / n;
	case OF_PCIE:
		return a->card ? (double)crpc_max(a->pcie_bytes, b->pcie_bytes) / n : -1;
	default:
		return (double)(a->reads + b->reads);
	}
}

/* Fill a ring that is not emptied: the part that was taken before -EAGAIN, per cent; or -1. */
static double
ring_part(const struct net_conf *conf)
{
	uint8_t addr[2][NET_ADDR_LEN];
	struct net_end *end[2];
	char why[224] = "";
	double part = -1;
	uint32_t i;

	end[0] = net_end_open(conf, false, why, sizeof(why));
	end[1] = end[0] == NULL ? NULL : net_end_open(conf, true, why, sizeof(why));
	for (i = 0; i < 2 && end[1] != NULL; i++)
		end[i]->ops->addr(end[i], 0, addr[i]);
	if (end[1] == NULL || end[0]->ops->connect(end[0], 0, addr[1]) != 0 ||
		end[1]->ops->connect(end[1], 0, addr[0]) != 0) {
		app_note("a ring to fill: %s", why[0] != '\0' ? why : "cannot connect");
	} else {
		for (i = 0; i < FILL_TURNS; i++)
			end[0]->ops->step(end[0], crpc_clock_ns(), true);
		part = 100 * net_copyrpc_ring_part(end[0]);
	}
	net_end_close(end[0]);
	net_end_close(end[1]);
	return part;
}

/* The figure, or below 0 if a lane that it needs has none. */
static double
target_value(const struct net_group *g, const struct target *t)
{
	double mine, other;

	if (t->of == OF_RING)
		return ring_part(&groups[CRPC_DIM(groups) - 1].lane[0]);
	if (t->other >= g->n || g->lane[0].value.n == 0 || g->lane[t->other].value.n == 0)
		return -1;
	mine = median(g, 0);
	other = median(g, t->other);
	switch (t->of) {
	case OF_RATE:
	case OF_COST:
		return other > 0 ? mine / other : -1;
	case OF_LATENCY:
		return mine > 0 && other > 0 ? 1e3 / mine / other : -1;
	default:
		return g->lane[0].calls == 0 ? -1 : ledger_value(&g->lane[0], t->of);
	}
}

static int
target_print(const struct net_group *g, const struct target *t)
{
	struct app_json_base base = app_out_base(&g->trial, "rpcbench", g->run->far.rpb->lcores,
		g->n > 0 ? g->lane[0].value.n : 1);
	const struct app_target target = {.what = t->what,
		.value = target_value(g, t),
		.bound = t->bound,
		.at_most = t->at_most,
		.counted = t->of >= OF_DOORBELL};
	json_t *obj = g->run->json != NULL ? app_json_new(&base) : NULL;

	if (obj != NULL)
		json_object_set_new(obj, "layer", json_string("net"));
	return app_out_target(&target, g->trial.noisy, obj, g->run->json);
}

/* Measure all, then print: the verdicts stand together at the end. */
int
net_targets(struct net_run *run)
{
	static struct net_group g[CRPC_DIM(groups)];
	uint32_t i, k, done;
	int rc = 0;

	for (i = 0; i < CRPC_DIM(groups) && rc == 0 && !rpb_interrupted(); i++) {
		g[i].run = run;
		if (groups[i].target[0].of == OF_RING)
			continue;
		for (k = 0; k < LANES && groups[i].lane[k].size != 0; k++)
			net_group_add(&g[i], &groups[i].lane[k]);
		rc = net_group_measure(&g[i]);
		if (net_out_group(&g[i]) != 0)
			rc = -EIO;
	}
	done = i;
	printf("\ntargets\n");
	for (i = 0; i < done; i++) {
		for (k = 0; k < TARGETS; k++)
			if (groups[i].target[k].what != NULL &&
				target_print(&g[i], &groups[i].target[k]) != 0)
				rc = -EIO;
		net_group_fini(&g[i]);
	}
	printf("  %-56s %10s     <= %-7d tests copyrpc_instructions, copyrpc_instructions_nic\n",
		"8 x 256: instructions of our own code per call", "counted", 200);
	fflush(stdout);
	return rc;
}
