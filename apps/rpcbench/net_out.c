/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of a group: a table for people, a line of JSON for each lane. */

#include "net.h"

static const char *const flushes[] = {"clocked", "immediate", "deferred", "hold"};
static const char *const flows[] = {"window", "read", "notify"};
static const char *const arrivals[] = {"imm", "memory"};
static const char *const units[] = {"Mops/s", "ns", "GB/s"};

void
net_out_limits(struct net_run *run)
{
	static const char *const places[] = {
		"both ends on lcore", "lcores", "two ranks, ours on lcore"};
	double line = net_far_line_ns(&run->far);

	app_out_machine(places[run->far.place], run->far.rpb->lcores);
	if (run->far.place == NET_LCORE)
		printf("machine: line ping-pong %.0f ns round trip (%s)\n", line,
			line < APP_LINE_NEAR_NS ? "near" : "far");
	printf("machine: device %s\n", net_device());
	fflush(stdout);
}

static bool
is_copyrpc(const struct net_conf *c)
{
	return c->transport == NET_COPYRPC_RC || c->transport == NET_COPYRPC_DC;
}

void
net_out_case(const struct net_conf *c, char *buf, size_t len)
{
	int n;

	if (c->active != c->endpoints)
		n = snprintf(buf, len, "%u of %u x %u", c->active, c->endpoints, c->depth);
	else
		n = snprintf(buf, len, "%u x %u", c->endpoints, c->depth);
	if (is_copyrpc(c))
		n += snprintf(buf + n, len - (size_t)n, " %s %s %s", flushes[c->flush],
			flows[c->flow], arrivals[c->arrival]);
	if (c->oneway && (size_t)n < len)
		snprintf(buf + n, len - (size_t)n, " one-way");
}

static void
print_ledger(const struct net_lane *l)
{
	const struct net_ledger *side[2] = {&l->near, &l->far};
	static const char *const names[] = {"client", "server"};
	double calls = (double)l->calls;
	uint32_t i;

	for (i = 0; i < 2 && l->calls != 0; i++) {
		printf("    %s, per call: %.4f doorbells, %.4f WQE blocks, %.4f CQEs", names[i],
			(double)side[i]->doorbells / calls, (double)side[i]->wqebbs / calls,
			(double)side[i]->cqes / calls);
		if (side[i]->card)
			printf(", %.1f PCIe bytes, %.4f packets",
				(double)side[i]->pcie_bytes / calls,
				(double)side[i]->packets / calls);
		if (side[i]->batches != 0)
			printf("; %.1f messages per batch",
				(double)side[i]->messages / (double)side[i]->batches);
		if (side[i]->repeated != 0)
			printf("; %lu packets repeated", (unsigned long)side[i]->repeated);
		if (side[i]->reads != 0)
			printf("; %lu READs", (unsigned long)side[i]->reads);
		printf("\n");
	}
}

static void
print_lane(const struct net_group *g, const struct net_lane *l)
{
	struct app_figure f;
	char text[96];

	net_lane_figure(g, l, &f);
	net_out_case(&l->conf, text, sizeof(text));
	printf("  %-15s %-36s %10.3f %10.3f %10.3f %-6s %4u\n", l->ops->name, text, f.median, f.min,
		f.max, units[l->ops->unit], f.n);
	print_ledger(l);
}

static json_t *
json_ledger(const struct net_ledger *a, const struct net_ledger *b, uint64_t calls)
{
	json_t *o = json_object();
	double n = (double)calls;

	json_object_set_new(o, "doorbells", json_real((double)(a->doorbells + b->doorbells) / n));
	json_object_set_new(o, "wqebb", json_real((double)(a->wqebbs + b->wqebbs) / n));
	json_object_set_new(o, "cqes", json_real((double)(a->cqes + b->cqes) / n));
	json_object_set_new(o, "pcie_bytes",
		a->card ? json_real((double)(a->pcie_bytes + b->pcie_bytes) / n) : json_null());
	json_object_set_new(o, "packets",
		a->card ? json_real((double)(a->packets + b->packets) / n) : json_null());
	json_object_set_new(o, "reads", json_real((double)(a->reads + b->reads) / n));
	return o;
}

static void
json_ledgers(json_t *obj, const struct net_lane *l)
{
	static const struct net_ledger none;
	struct net_ledger none_near = none, none_far = none;

	none_near.card = l->near.card;
	none_far.card = l->far.card;
	if (l->calls == 0) {
		json_object_set_new(obj, "ledger", json_null());
		return;
	}
	json_object_set_new(obj, "ledger", json_ledger(&l->near, &l->far, l->calls));
	json_object_set_new(obj, "ledger_client", json_ledger(&l->near, &none_near, l->calls));
	json_object_set_new(obj, "ledger_server", json_ledger(&l->far, &none_far, l->calls));
}

static int
json_lane(const struct net_group *g, const struct net_lane *l)
{
	const struct net_run *run = g->run;
	const struct net_conf *c = &l->conf;
	struct app_json_base base;
	struct app_figure f;
	json_t *obj;

	net_lane_figure(g, l, &f);
	base = app_out_base(&g->trial, "rpcbench", run->far.rpb->lcores, f.n);
	obj = app_json_new(&base);
	json_object_set_new(obj, "layer", json_string(run->layer));
	json_object_set_new(obj, "transport", json_string(l->ops->name));
	json_object_set_new(obj, "clients", json_integer(1));
	json_object_set_new(obj, "endpoints", json_integer(c->endpoints));
	json_object_set_new(obj, "active", json_integer(c->active));
	json_object_set_new(obj, "depth", json_integer(c->depth));
	json_object_set_new(obj, "size", json_integer(c->size));
	json_object_set_new(obj, "mode", json_string(c->oneway ? "oneway"
							: c->depth == 1 ? "sync" : "async"));
	json_object_set_new(obj, "stage", json_null());
	json_object_set_new(obj, "ratio_line", json_null());
	if (is_copyrpc(c)) {
		json_object_set_new(obj, "flush", json_string(flushes[c->flush]));
		json_object_set_new(obj, "flow", json_string(flows[c->flow]));
		json_object_set_new(obj, "arrival", json_string(arrivals[c->arrival]));
	}
	app_json_figure(obj, l->ops->unit == NET_LATENCY ? "latency" : "rate", f.median, f.min,
		f.max, units[l->ops->unit]);
	json_ledgers(obj, l);
	return app_json_write(run->json, obj);
}

int
net_out_group(const struct net_group *g)
{
	uint32_t i;
	int rc = 0;

	printf("\n%s, %u bytes: ", g->run->layer, g->lane[0].conf.size);
	app_out_trial(&g->trial);
	printf("  %-15s %-36s %10s %10s %10s %-6s %s\n", "transport", "endpoints x depth", "median",
		"min", "max", "", "slices");
	for (i = 0; i < g->n; i++) {
		if (g->lane[i].value.n == 0)
			continue;
		print_lane(g, &g->lane[i]);
		if (g->run->json != NULL && rc == 0)
			rc = json_lane(g, &g->lane[i]);
	}
	fflush(stdout);
	return rc;
}
