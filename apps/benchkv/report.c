/* SPDX-License-Identifier: BSD-3-Clause */

#include "app_fail.h"
#include "app_opt.h"
#include "app_out.h"
#include "report.h"

static const char *const paths[CRPC_KV_PATHS] = {
	[CRPC_KV_LOCAL] = "local", [CRPC_KV_FORWARDED] = "forwarded", [CRPC_KV_REMOTE] = "remote"};

static double
mops(uint64_t ops, const struct kv_result *r)
{
	return r->window_ns == 0 ? 0 : (double)ops * 1e3 / (double)r->window_ns;
}

static double
ratio(uint64_t a, uint64_t b)
{
	return b == 0 ? 0 : (double)a / (double)b;
}

static json_t *
json_counts(const uint64_t *n, uint32_t len)
{
	json_t *o = json_array();

	for (uint32_t i = 0; i < len; i++)
		json_array_append_new(o, json_integer((json_int_t)n[i]));
	return o;
}

/* Latencies of each way: pairs of the most that a bucket holds, us, and its count. */
static json_t *
json_hist(const struct kv_result *r)
{
	const struct crpc_hist *lat = r->counts.lat;
	json_t *o = json_object(), *a;

	for (uint32_t path = 0; path < CRPC_KV_PATHS; path++) {
		if (lat[path].count == 0)
			continue;
		a = json_array();
		for (uint32_t i = 0; i < CRPC_HIST_BUCKETS; i++)
			if (lat[path].bucket[i] != 0)
				json_array_append_new(a,
					json_pack("[f, I]", (double)crpc_hist_bucket_max(i) / 1e3,
						(json_int_t)lat[path].bucket[i]));
		json_object_set_new(o, paths[path], a);
	}
	return o;
}

/* Where in a sweep this run is. */
static json_t *
json_point(const struct app_sweep_point *p)
{
	json_t *at = json_object();

	app_sweep_add(p, at);
	return json_pack("{s:s,s:o,s:i,s:b}", "axis", p->sweep->axis[0].option + 2, "at", at,
		"pass", p->pass, "rising", p->rising);
}

#define INT(name) (json_int_t)(name)

static void
add_net(json_t *row, const struct kv_result *r)
{
	const struct app_net_counts *n = &r->net;
	uint64_t remote = r->counts.ops[CRPC_KV_REMOTE];

	app_row_set(row, "{s:{s:f,s:f,s:f},s:f,s:{s:f,s:f,s:f}}", "rtt_split_us", "queue",
		ratio(n->queue_ns, n->round_trips) / 1e3, "wire",
		ratio(n->wire_ns, n->round_trips) / 1e3, "peer",
		ratio(n->peer_ns, n->round_trips) / 1e3, "batch_mean",
		ratio(n->messages, n->batches), "per_op", "doorbells", ratio(n->doorbells, remote),
		"wqebb", ratio(n->wqebbs, remote), "cqes",
		ratio(n->send_cqes + n->recv_cqes, remote));
	app_row_set(row, "{s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}}", "net",
		"calls", INT(n->calls), "messages", INT(n->messages), "batches", INT(n->batches),
		"window_updates", INT(n->updates), "bytes", INT(n->bytes), "doorbells",
		INT(n->doorbells), "wqes", INT(n->wqes), "wqebb", INT(n->wqebbs), "send_cqes",
		INT(n->send_cqes), "recv_cqes", INT(n->recv_cqes), "waited", INT(n->waited),
		"again", INT(n->again), "repeated", INT(n->repeated), "batch_size",
		json_counts(n->batch_size, CRPC_COPYRPC_BATCH_BUCKETS));
}

/* Pairs: us, and the part of all moments that wait longer. */
static json_t *
json_pauses(const struct kv_result *r)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < APP_PAUSES; i++)
		json_array_append_new(a, json_pack("[f, f]", app_pause_us[i], r->pause_over[i]));
	return a;
}

/* What is asked. */
static void
add_work(json_t *row, const struct kv_options *opt)
{
	app_row_set(row, "{s:I,s:I,s:I,s:s*,s:f,s:s,s:b,s:I,s:b}", "keys", INT(opt->keys),
		"key_size", INT(opt->key_size), "value_size",
		INT(opt->value_size), "value_sizes", opt->value_sizes, "read_ratio",
		opt->read_ratio, "dist", kv_dist_names[opt->dist], "rmw", opt->rmw, "scan",
		INT(opt->scan), "verify", opt->verify);
}

/* How requests to other ranks travel; only copyrpc has all of it. */
static void
add_policies(json_t *row, const struct kv_options *opt)
{
	app_row_set(row, "{s:s,s:s,s:s}", "flush", app_flush_names[opt->flush], "transport",
		app_transport_names[opt->transport], "flow", app_flow_names[opt->flow]);
}

void
kv_report_head(const struct kv_options *o, const struct kv_conditions *cond,
	const struct kv_result *r, uint32_t ranks)
{
	bool device = r->device[0] != '\0';
	json_t *row = json_object();
	struct app_out out = {0};
	char lcores[200];

	snprintf(lcores, sizeof(lcores), "%s of rank 0", r->lcores);
	app_out_open(&out, cond->app, "lcores", lcores, NULL);
	printf("%u rank%s of %u daemon%s, %u clients x QD %u each\n", ranks, ranks == 1 ? "" : "s",
		(unsigned int)o->daemons, o->daemons == 1 ? "" : "s", (unsigned int)o->clients,
		(unsigned int)o->qd);
	add_work(row, o);
	app_row_set(row, "{s:f,s:b,s:I,s:f}", "delete_ratio", o->delete_ratio, "cas", o->cas,
		"ttl_ms", INT(o->ttl_ms), "rate", o->rate);
	if (ranks > 1 || o->backend != KV_BACKEND_COPYRPC || device)
		app_row_set(row, "{s:s,s:s*,s:s*,s:s*}", "backend", kv_backend_names[o->backend],
			"ucx_tls", o->ucx_tls, "device", device ? r->device : NULL, "driver",
			r->driver[0] != '\0' ? r->driver : NULL);
	if (device && o->backend != KV_BACKEND_ERPC)
		add_policies(row, o);
	app_out_pairs(row, NULL);
	json_decref(row);
	fflush(stdout);
}

static void
add_load(json_t *row, const struct kv_options *opt, const struct kv_result *r)
{
	const struct app_load_counts *c = &r->counts;

	app_row_set(row, "{s:i,s:i,s:i}", "ranks", r->ranks, "clients", r->clients, "depth", r->qd);
	add_work(row, opt);
	app_row_set(row, "{s:o,s:f,s:f,s:f,s:b,s:i,s:I}", "pauses", json_pauses(r),
		"offered_ops_per_s", r->offered, "lag_us", (double)c->lag_ns / 1e3, "seconds",
		(double)r->window_ns / 1e9, "interrupted", r->interrupted != 0, "lost_peers",
		r->lost_peers, "rss_kib", INT(r->rss_kib));
	app_row_set(row, "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "sent", INT(r->sent),
		"answered", INT(r->answered), "failed", INT(c->failed), "failed_lost",
		INT(c->failed_of[APP_LOAD_LOST]), "failed_time", INT(c->failed_of[APP_LOAD_TIME]),
		"failed_memory", INT(c->failed_of[APP_LOAD_MEMORY]), "scans", INT(c->scans),
		"not_found", INT(c->misses), "conflicts", INT(c->conflicts), "no_space",
		INT(c->refused));
	if (!opt->counters)
		return;
	app_row_counters(row, "counters_per_op", r->counter, (double)app_load_counts_ops(c));
	app_row_set(row, "{s:s*}", "counters_error",
		r->counters_rc != 0 ? strerror(-r->counters_rc) : NULL);
}

/* What says whether the run can be trusted. */
static void
add_checks(json_t *row, const struct kv_result *r)
{
	json_t *faults = json_object();

	for (uint32_t f = 0; f < APP_FAULTS; f++)
		if (r->faults[f] != 0)
			json_object_set_new(
				faults, app_fault_name(f), json_integer(INT(r->faults[f])));
	app_row_set(row, "{s:f,s:I,s:o,s:I,s:I}", "little_ratio", kv_result_little(r),
		"verify_errors", INT(kv_result_faults(r)), "faults", faults, "served",
		INT(r->served), "failed_other", INT(r->counts.failed_of[APP_LOAD_OTHER]));
	if (r->in_flight > 0)
		app_row_set(row, "{s:s}", "little",
			kv_result_little_holds(r)
				? "holds"
				: "does NOT hold; do not trust this run");
	/* Open loop: what came in went out, but for the noise of a Poisson process. */
	if (r->offered > 0)
		app_row_set(row, "{s:b,s:f}", "keeps_up",
			kv_result_ops(r) > r->offered * (1 - KV_LITTLE_TOLERANCE), "pause_us",
			app_env_pause_floor(r->pause_over, 0.01));
}

/* The quantile of times in buckets, ns; 0: there are none. */
static json_t *
time_quantile(const uint64_t bucket[CRPC_KV_TIME_BUCKETS], double q)
{
	uint64_t n = 0, seen;
	uint32_t i;

	for (i = 0; i < CRPC_KV_TIME_BUCKETS; i++)
		n += bucket[i];
	for (i = 0, seen = bucket[0]; (double)seen < q * (double)n; seen += bucket[i])
		i++;
	return json_integer(INT(crpc_hist_log_max(i, CRPC_KV_TIME_BITS)));
}

/* What a daemon, or all of them, did. */
static void
add_requests(json_t *row, const struct crpc_kv_stats *c)
{
	json_t *mean = json_object(), *p50 = json_object(), *p99 = json_object();
	const char *name;
	uint64_t sum = 0, ns;
	bool turn;

	/* The turn comes behind its phases, whose sum it is. */
	for (uint32_t i = 0; i <= CRPC_KV_TURN_PHASES; i++) {
		turn = i == CRPC_KV_TURN_PHASES;
		name = turn ? "turn" : crpc_kv_phase_name(i);
		ns = turn ? sum : c->phase_ns[i];
		sum += turn ? 0 : ns;
		json_object_set_new(mean, name, json_real(ratio(ns, c->timed)));
		json_object_set_new(p50, name, time_quantile(c->phase_time[i], 0.5));
		json_object_set_new(p99, name, time_quantile(c->phase_time[i], 0.99));
	}
	app_row_set(row, "{s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}}", "requests", "local",
		INT(c->stat[CRPC_KV_STAT_LOCAL]), "forwarded", INT(c->stat[CRPC_KV_STAT_FORWARDED]),
		"remote", INT(c->stat[CRPC_KV_STAT_REMOTE]), "of_daemons",
		INT(c->stat[CRPC_KV_STAT_OF_DAEMONS]), "of_ranks",
		INT(c->stat[CRPC_KV_STAT_OF_RANKS]), "relayed", INT(c->relayed), "failed",
		INT(c->stat[CRPC_KV_STAT_FAILED]), "bad", INT(c->stat[CRPC_KV_STAT_BAD]), "waited",
		INT(c->waited), "turns", INT(c->turns), "busy_turns", INT(c->busy));
	app_row_set(row, "{s:{s:o,s:o,s:o,s:f,s:I,s:o}}", "loop", "phase_mean_ns", mean,
		"phase_p50_ns", p50, "phase_p99_ns", p99, "busy_time", ratio(c->busy_ns, sum),
		"timed_turns", INT(c->timed), "taken_per_turn",
		json_counts(c->taken, CRPC_KV_TAKEN_BUCKETS));
}

static struct app_trial
trial_of(const struct kv_conditions *cond, const struct kv_result *r)
{
	return (struct app_trial){.state = cond->state,
		.steal_pct = r->steal_pct,
		.away_pct = r->away_pct,
		.noisy = kv_result_noisy(r, cond->state)};
}

static json_t *
row_of(const struct kv_conditions *cond, const char *record, const struct kv_result *r,
	const char *lcores)
{
	const struct app_out out = {.app = cond->app, .lcores = lcores};
	const struct app_trial t = trial_of(cond, r);
	json_t *row = app_row(&out, record, &t);

	app_row_set(row, "{s:s,s:s*}", "backend", cond->backend, "driver",
		r->driver[0] != '\0' ? r->driver : NULL);
	return row;
}

/* A row for each way of an operation, and what did not go well. */
static void
print(const struct kv_conditions *cond, const char *label, const struct kv_result *r,
	const json_t *row)
{
	static const char *const shown[] = {"sent", "answered", "served", "failed", "failed_lost",
		"failed_time", "failed_memory", "failed_other", "scans", "not_found", "conflicts",
		"no_space", "verify_errors", "faults", "little", "little_ratio",
		"offered_ops_per_s", "keeps_up", "lag_us", "pause_us", "counters_per_op",
		"counters_error", NULL};
	const struct app_trial t = trial_of(cond, r);
	json_t *rows = json_array(), *way;
	const struct crpc_hist *h;
	char title[320];

	for (uint32_t i = 0; i < CRPC_KV_PATHS; i++) {
		h = &r->counts.lat[i];
		if (r->counts.ops[i] == 0)
			continue;
		way = json_pack(
			"{s:s,s:f}", "path", paths[i], "M ops/s", mops(r->counts.ops[i], r));
		app_row_set(way, "{s:f,s:f,s:f,s:f,s:f}", "p50 us",
			(double)crpc_hist_quantile(h, 0.5) / 1e3, "p90 us",
			(double)crpc_hist_quantile(h, 0.9) / 1e3, "p99 us",
			(double)crpc_hist_quantile(h, 0.99) / 1e3, "p99.9 us",
			(double)crpc_hist_quantile(h, 0.999) / 1e3, "max us", (double)h->max / 1e3);
		json_array_append_new(rows, way);
	}
	snprintf(title, sizeof(title),
		"%.150s: %.4g M ops/s in %.4g s; median of %u slices %.4g, %.4g to %.4g", label,
		kv_result_ops(r) / 1e6, (double)r->window_ns / 1e9, r->rate.n, r->rate.median,
		r->rate.min, r->rate.max);
	app_out_table(title, rows);
	app_out_pairs(row, app_opt_verbose ? NULL : shown);
	app_out_verdict(&t);
	fflush(stdout);
}

int
kv_report(FILE *json, const struct kv_conditions *cond, const struct kv_options *opt,
	const char *record, const char *label, const struct kv_result *r)
{
	json_t *row = row_of(cond, record, r, r->lcores), *lat = json_object();
	char key[32];

	if (strcmp(record, "rank") == 0)
		app_row_set(row, "{s:i}", "rank", r->rank);
	app_row_set(row, "{s:f}", "ops_per_s", kv_result_ops(r));
	for (uint32_t i = 0; i < CRPC_KV_PATHS; i++) {
		snprintf(key, sizeof(key), "%s_ops_per_s", paths[i]);
		json_object_set_new(row, key, json_real(mops(r->counts.ops[i], r) * 1e6));
		app_row_hist(lat, paths[i], &r->counts.lat[i], 1e-3);
	}
	app_row_figure(row, "rate", &r->rate, "Mops/s");
	add_net(row, r);
	app_row_set(row, "{s:o,s:i}", "lat_us", lat, "daemons", r->daemons);
	add_load(row, opt, r);
	add_checks(row, r);
	add_requests(row, &r->sum.of);
	if (strcmp(record, "total") == 0) {
		add_policies(row, opt);
		app_row_set(row, "{s:o,s:o}", "lat_hist_us", json_hist(r), "slice_ops_per_s",
			json_counts(r->slice, (uint32_t)crpc_min(r->rate.n, KV_SLICES_MAX)));
		if (cond->point != NULL)
			app_row_set(row, "{s:o}", "sweep", json_point(cond->point));
	}
	if (label != NULL)
		print(cond, label, r, row);
	return app_json_write(json, row);
}

int
kv_report_daemon(
	FILE *json, const struct kv_conditions *cond, const struct kv_result *r, uint32_t daemon)
{
	const struct kv_daemon_counts *c = &r->daemon[daemon];
	char cpu[16];
	json_t *row;

	snprintf(cpu, sizeof(cpu), "%u", c->cpu);
	row = row_of(cond, "daemon", r, cpu);
	app_row_set(row, "{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f}", "rank", r->rank, "daemon", daemon,
		"lcore", c->lcore, "node", c->node, "clients", c->clients, "keys", c->keys,
		"endpoints", c->peers, "seconds", (double)r->window_ns / 1e9);
	add_requests(row, &c->of);
	if (app_opt_verbose)
		app_out_pairs(row, NULL);
	return app_json_write(json, row);
}

static int
write_hgrm(const char *path, const struct crpc_hist *h)
{
	FILE *f = fopen(path, "w");
	int rc;

	if (f == NULL) {
		rc = -errno;
		app_fail("--hgrm: cannot write '%s': %s; give a file in a folder you may write",
			path, strerror(errno));
		return rc;
	}
	rc = crpc_hist_print_hgrm(h, f, 1000);
	if (fclose(f) != 0 || rc != 0) {
		app_fail("--hgrm: writing '%s' failed: is the disk full?", path);
		return -EIO;
	}
	return 0;
}

/* "dir/x.hgrm" and "local" make "dir/x.local.hgrm". */
static void
hgrm_part(char *buf, size_t len, const char *path, const char *part)
{
	const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');

	if (dot == NULL || (slash != NULL && dot < slash))
		dot = path + strlen(path);
	snprintf(buf, len, "%.*s.%s%s", (int)(dot - path), path, part, dot);
}

int
kv_report_hgrm(const char *path, const struct kv_result *r)
{
	static struct crpc_hist all;
	const struct crpc_hist *lat = r->counts.lat;
	char part[4096];
	int rc;

	kv_result_lat(r, &all);
	rc = write_hgrm(path, &all);
	if (lat[CRPC_KV_FORWARDED].count == 0 && lat[CRPC_KV_REMOTE].count == 0)
		return rc;
	for (uint32_t i = 0; i < CRPC_KV_PATHS && rc == 0; i++) {
		if (lat[i].count == 0)
			continue;
		hgrm_part(part, sizeof(part), path, paths[i]);
		rc = write_hgrm(part, &lat[i]);
	}
	return rc;
}
