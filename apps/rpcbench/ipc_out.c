/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of a group: a table for people, a line of JSON for each lane. */

#include "ipc.h"

static const char *const mode_names[LANE_MODES] = {"sync", "async", "oneway"};

void
ipc_out_limits(const struct ipc_run *run)
{
	app_out_machine("lcores", run->rpb->lcores);
	printf("machine: line ping-pong %.0f ns round trip (%s), %.0f M lines/s one way\n",
		run->line_ns, run->line_ns < APP_LINE_NEAR_NS ? "near" : "far", run->line_rate);
	fflush(stdout);
}

void
ipc_out_clients(const struct lane_conf *c, char *buf, size_t len)
{
	if (c->active != c->clients)
		snprintf(buf, len, "%u of %u clients", c->active, c->clients);
	else
		snprintf(buf, len, "%u client%s", c->clients, c->clients == 1 ? "" : "s");
}

/* Ours, which others are compared with; NULL if it has no figures. */
static const struct ipc_lane *
ours(const struct ipc_group *g)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		if (g->lane[i].conf.transport == LANE_IPC)
			return g->lane[i].value.n != 0 ? &g->lane[i] : NULL;
	return NULL;
}

/* How many times better ours is than this lane; 0 if one of them has no figure. */
static double
ratio_ipc(const struct ipc_group *g, const struct app_figure *f, enum lane_mode mode)
{
	const struct ipc_lane *o = ours(g);
	struct app_figure mine;

	if (o == NULL || !(f->median > 0))
		return 0;
	ipc_lane_figure(g, &o->value, &mine);
	if (!(mine.median > 0))
		return 0;
	return mode == LANE_SYNC ? f->median / mine.median : mine.median / f->median;
}

static double
ratio_line(const struct ipc_group *g, const struct ipc_lane *l, const struct app_figure *f)
{
	double line = app_series_line_ns(&l->value, g->trial.state);

	return l->conf.mode == LANE_SYNC && line > 0 ? f->median / line : 0;
}

static double
quantile_ns(const struct crpc_hist *h, double q)
{
	return (double)crpc_hist_quantile(h, q) * (double)crpc_clock.mult / 4294967296.0;
}

static void
print_lane(const struct ipc_group *g, const struct ipc_lane *l)
{
	static struct crpc_hist hist;
	struct app_figure f, extra;
	double ratio;
	char clients[32];

	ipc_lane_figure(g, &l->value, &f);
	snprintf(clients, sizeof(clients), "%u/%u", l->conf.active, l->conf.clients);
	printf("  %-12s %9s %10.2f %10.2f %10.2f %6u ", l->ops->name, clients, f.median, f.min,
		f.max, f.n);
	ratio = ratio_ipc(g, &f, l->conf.mode);
	if (ratio > 0)
		printf("%8.2f", ratio);
	else
		printf("%8s", "-");
	ratio = ratio_line(g, l, &f);
	if (ratio > 0)
		printf("  %.2f of the line", ratio);
	if (l->cost.n != 0) {
		ipc_lane_figure(g, &l->cost, &extra);
		printf("  server %.1f ns per call", extra.median);
		ipc_lane_figure(g, &l->empty, &extra);
		printf(", %.1f ns per empty poll", extra.median);
	}
	if (ipc_lane_hist(g, l, &hist))
		printf("  p50 %.0f, p99 %.0f, p99.9 %.0f ns", quantile_ns(&hist, 0.5),
			quantile_ns(&hist, 0.99), quantile_ns(&hist, 0.999));
	if (l->conf.mode != g->lane[0].conf.mode)
		printf("  %s", mode_names[l->conf.mode]);
	printf("\n");
}

static void
json_percentiles(json_t *obj, const struct crpc_hist *h)
{
	static const struct {
		const char *key;
		double q;
	} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}};
	json_t *lat = json_object();
	size_t i;

	for (i = 0; i < CRPC_DIM(quantiles); i++)
		json_object_set_new(
			lat, quantiles[i].key, json_real(quantile_ns(h, quantiles[i].q)));
	json_object_set_new(obj, "lat_ns", lat);
}

static json_t *
json_counters(const struct ipc_lane *l)
{
	json_t *o = json_object();
	uint32_t i;

	for (i = 0; i < APP_COUNTERS; i++)
		if (l->counter[i] != 0)
			json_object_set_new(o, app_counter_names[i],
				json_real((double)l->counter[i] / (double)l->counted));
	return o;
}

/* What the CPU counted; what it lacks is left out. */
static void
print_counters(const struct ipc_lane *l)
{
	uint32_t i;

	if (l->counted == 0)
		return;
	printf("  %-12s", "");
	for (i = 0; i < APP_COUNTERS; i++)
		if (l->counter[i] != 0)
			printf(" %.1f %s", (double)l->counter[i] / (double)l->counted,
				app_counter_names[i]);
	printf(" per call\n");
}

static int
json_lane(const struct ipc_group *g, const struct ipc_lane *l)
{
	const struct ipc_run *run = g->run;
	const struct lane_conf *c = &l->conf;
	static struct crpc_hist hist;
	struct app_json_base base;
	struct app_figure f;
	json_t *obj;

	ipc_lane_figure(g, &l->value, &f);
	base = app_out_base(&g->trial, "rpcbench", run->rpb->lcores, f.n);
	obj = app_json_new(&base);
	json_object_set_new(obj, "layer", json_string("ipc"));
	json_object_set_new(obj, "transport", json_string(l->ops->name));
	json_object_set_new(obj, "clients", json_integer(c->clients));
	json_object_set_new(obj, "active", json_integer(c->active));
	json_object_set_new(obj, "endpoints", json_integer(c->clients));
	json_object_set_new(obj, "depth", json_integer(c->depth));
	json_object_set_new(obj, "burst", json_integer(c->burst));
	json_object_set_new(obj, "size", json_integer(c->size));
	json_object_set_new(obj, "mode", json_string(mode_names[c->mode]));
	json_object_set_new(obj, "stage", json_null());
	json_object_set_new(obj, "ledger", json_null());
	if (c->mode == LANE_SYNC)
		app_json_figure(obj, "latency", f.median, f.min, f.max, "ns");
	else
		app_json_figure(obj, "rate", f.median, f.min, f.max, "Mops/s");
	app_json_ratio(obj, "ratio_ipc", ratio_ipc(g, &f, c->mode));
	app_json_ratio(obj, "ratio_line", ratio_line(g, l, &f));
	json_object_set_new(
		obj, "line_ns", json_real(app_series_line_ns(&l->value, g->trial.state)));
	json_object_set_new(obj, "line_rate_mlps", json_real(run->line_rate));
	if (l->cost.n != 0) {
		ipc_lane_figure(g, &l->cost, &f);
		app_json_figure(obj, "server_call", f.median, f.min, f.max, "ns");
		ipc_lane_figure(g, &l->empty, &f);
		app_json_figure(obj, "server_empty_poll", f.median, f.min, f.max, "ns");
	}
	if (ipc_lane_hist(g, l, &hist))
		json_percentiles(obj, &hist);
	if (l->counted != 0)
		json_object_set_new(obj, "counters_per_call", json_counters(l));
	return app_json_write(run->json, obj);
}

int
ipc_out_group(const struct ipc_group *g)
{
	const struct lane_conf *c = &g->lane[0].conf;
	uint32_t i;
	int rc = 0;

	printf("\n%s, depth %u, ", mode_names[c->mode], c->depth);
	if (c->mode != LANE_SYNC)
		printf("burst %u, ", c->burst);
	printf("%u bytes: ", c->size);
	app_out_trial(&g->trial);
	printf("  %-12s %9s %10s %10s %10s %6s %8s\n", "transport", "clients",
		c->mode == LANE_SYNC ? "ns" : "Mops/s", "min", "max", "slices",
		c->mode == LANE_SYNC ? "it/ipc" : "ipc/it");
	for (i = 0; i < g->n; i++) {
		if (g->lane[i].value.n == 0)
			continue;
		print_lane(g, &g->lane[i]);
		print_counters(&g->lane[i]);
		if (g->run->json != NULL && rc == 0)
			rc = json_lane(g, &g->lane[i]);
	}
	fflush(stdout);
	return rc;
}
