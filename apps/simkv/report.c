/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_opt.h"
#include "report.h"

#define INT(n) ((json_int_t)(n))

/*
 * What was published: by the authors of copyrpc, github.com/namachan10777/copyrpc, its folder
 * benchkv and figures/benchkv_throughput.csv. Each is of 1 to 3 runs; the rates of the paper are
 * those of its first host times the number of hosts. 0: not published.
 */
struct published {
	uint32_t preset, hosts, clients, backend;
	int flush;
	double rate; /* M operations per second. */
	double rtt;  /* Median, us: a call to the other host, without the clients' part. */
};

static const struct published table[] = {
	{SIM_PRESET_SEED001, 2, 1, SIM_BACKEND_COPYRPC, CRPC_COPYRPC_DEFERRED, 0.75, 4.20},
	{SIM_PRESET_SEED001, 2, 2, SIM_BACKEND_COPYRPC, CRPC_COPYRPC_DEFERRED, 1.61, 4.30},
	{SIM_PRESET_SEED001, 2, 4, SIM_BACKEND_COPYRPC, CRPC_COPYRPC_DEFERRED, 3.01, 4.60},
	{SIM_PRESET_SEED001, 2, 8, SIM_BACKEND_COPYRPC, CRPC_COPYRPC_DEFERRED, 4.15, 6.95},
	{SIM_PRESET_SEED001, 2, 16, SIM_BACKEND_COPYRPC, CRPC_COPYRPC_DEFERRED, 4.50, 13.90},
	{SIM_PRESET_PAPER, 2, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_HOLD, 14.86, 0},
	{SIM_PRESET_PAPER, 4, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_HOLD, 21.10, 0},
	{SIM_PRESET_PAPER, 8, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_HOLD, 11.18, 0},
	{SIM_PRESET_PAPER, 16, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_HOLD, 19.63, 0},
	{SIM_PRESET_PAPER, 32, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_HOLD, 39.24, 0},
	{SIM_PRESET_PAPER, 2, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_DEFERRED, 13.97, 0},
	{SIM_PRESET_PAPER, 4, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_DEFERRED, 22.11, 0},
	{SIM_PRESET_PAPER, 8, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_DEFERRED, 8.26, 0},
	{SIM_PRESET_PAPER, 16, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_DEFERRED, 14.86, 0},
	{SIM_PRESET_PAPER, 32, 46, SIM_BACKEND_DELEGATION, CRPC_COPYRPC_DEFERRED, 27.25, 0},
	{SIM_PRESET_PAPER, 2, 46, SIM_BACKEND_DIRECT, CRPC_COPYRPC_CLOCKED, 2.83, 0},
	{SIM_PRESET_PAPER, 4, 46, SIM_BACKEND_DIRECT, CRPC_COPYRPC_CLOCKED, 7.37, 0},
	{SIM_PRESET_PAPER, 8, 46, SIM_BACKEND_DIRECT, CRPC_COPYRPC_CLOCKED, 15.42, 0},
	{SIM_PRESET_PAPER, 16, 46, SIM_BACKEND_DIRECT, CRPC_COPYRPC_CLOCKED, 29.72, 0},
	{SIM_PRESET_PAPER, 32, 46, SIM_BACKEND_DIRECT, CRPC_COPYRPC_CLOCKED, 62.71, 0},
};

static const struct published *
published(const struct sim_options *o)
{
	const struct published *p;

	for (p = table; p != table + CRPC_DIM(table); p++)
		if (p->preset == o->preset && p->hosts == o->hosts && p->clients == o->clients &&
			p->backend == o->backend && p->flush == (int)o->flush && o->depth == 1)
			return p;
	return NULL;
}

static double
ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static void
add_published(json_t *row, const char *of, double value, double predicted)
{
	char key[3][32];

	if (!(value > 0))
		return;
	snprintf(key[0], sizeof(key[0]), "published_%s", of);
	snprintf(key[1], sizeof(key[1]), "predicted_%s", of);
	snprintf(key[2], sizeof(key[2]), "error_%s", of);
	app_row_set(row, "{s:f,s:f,s:f}", key[0], value, key[1], predicted, key[2],
		predicted / value - 1);
}

static void
add_counts(json_t *row, const struct sim_result *r, double ops)
{
	const struct sim_counts *c = &r->sum;

	app_row_set(row, "{s:{s:f,s:f,s:f,s:f,s:f,s:f},s:f}", "per_op", "turns",
		ratio((double)c->turns, ops), "busy_turns", ratio((double)c->busy, ops), "messages",
		ratio((double)c->messages_out, ops), "batches", ratio((double)c->batches, ops),
		"doorbells", ratio((double)c->doorbells, ops), "cqes", ratio((double)c->cqes, ops),
		"batch_mean", ratio((double)c->messages_out, (double)c->batches));
	app_row_set(row, "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "sent", INT(r->sent), "answered",
		INT(r->answered), "failed", INT(r->load.failed), "not_found", INT(r->load.misses),
		"open", INT(r->open), "verify_errors", INT(r->faults), "cache_misses",
		INT(r->cache_misses), "retries", INT(r->retries));
	app_row_set(row, "{s:I,s:I,s:f}", "connections", INT(r->connections), "queue_pairs",
		INT(r->queue_pairs), "registered_mib", (double)r->mr_bytes / 1048576);
}

static double
us(const struct crpc_hist *h, double q)
{
	return (double)crpc_hist_quantile(h, q) / 1e3;
}

json_t *
sim_report_row(const struct app_out *out, const struct sim_options *o, const struct sim_result *r,
	const struct app_sweep_point *point)
{
	const struct app_trial trial = {0};
	const struct published *p = published(o);
	double ops = (double)app_load_counts_ops(&r->load), rtt = us(&r->rtt, 0.5);
	double rate = ratio(ops * 1e3, (double)r->load.window_ns);
	json_t *row = app_row(out, "result", &trial), *lat = json_object();

	app_sweep_add(point, row);
	app_row_set(row, "{s:b,s:b,s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:s}", "virtual", 1, "colocate",
		o->colocate, "preset",
		sim_presets[o->preset], "hosts", INT(o->hosts), "clients", INT(o->clients), "depth",
		INT(o->depth), "backend", sim_backends[o->backend], "flush",
		app_flush_names[o->flush], "transport", sim_transports[o->transport], "flow",
		app_flow_names[o->flow]);
	app_row_set(row, "{s:s,s:s,s:s*,s:s*,s:I,s:f}", "nic", o->nic, "cpu_model", o->cpu, "set",
		o->set, "fault", o->fault, "seed", INT(o->seed), "virtual_ms", o->virtual_ms);
	app_row_figure(row, "rate",
		&(struct app_figure){.median = rate, .min = rate, .max = rate, .n = 1}, "Mops/s");
	app_row_figure(row, "latency_remote",
		&(struct app_figure){.median = us(&r->load.lat[CRPC_KV_REMOTE], 0.5),
			.min = us(&r->load.lat[CRPC_KV_REMOTE], 0),
			.max = us(&r->load.lat[CRPC_KV_REMOTE], 1),
			.n = r->load.ops[CRPC_KV_REMOTE] != 0},
		"us");
	app_row_hist(lat, "local", &r->load.lat[CRPC_KV_LOCAL], 1e-3);
	app_row_hist(lat, "remote", &r->load.lat[CRPC_KV_REMOTE], 1e-3);
	app_row_hist(lat, "rtt", &r->rtt, 1e-3);
	app_row_set(row, "{s:o}", "lat_us", lat);
	add_counts(row, r, ops);
	app_row_set(row, "{s:f}", "little_ratio",
		ratio(r->open_mean, (double)(o->hosts * o->clients * o->depth)));
	if (p == NULL)
		return row;
	app_row_set(row, "{s:I}", "changed_numbers", INT(o->model.changed));
	add_published(row, "mops", p->rate, rate);
	add_published(row, "rtt_us", p->rtt, rtt);
	return row;
}
