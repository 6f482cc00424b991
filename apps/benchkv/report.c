/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_json.h"
#include "report.h"

static const char *const dists[] = {"uniform", "zipf", "latest"};
static const char *const paths[KV_PATHS] = {
	[KV_LOCAL] = "local", [KV_FORWARDED] = "forwarded", [KV_REMOTE] = "remote"};

/* What of the rate is missing, per cent. */
static double
cost_pct(double share)
{
	return 100 * (1 - share);
}

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

/* What a plain run has not. */
static void
print_mix(FILE *out, const struct kv_options *o)
{
	if (o->key_sizes_text != NULL)
		fprintf(out, ", key sizes %s", o->key_sizes_text);
	if (o->value_sizes != NULL)
		fprintf(out, ", value sizes %s", o->value_sizes);
	if (o->scan != 0)
		fprintf(out, ", reads scan 1 to %llu keys", (unsigned long long)o->scan);
	if (o->rmw)
		fprintf(out, ", writes %s", o->cas ? "compare and swap" : "after a read");
	if (o->ttl_ms != 0)
		fprintf(out, ", values live %llu ms", (unsigned long long)o->ttl_ms);
	if (o->rate > 0)
		fprintf(out, ", open loop of %g ops/s each", o->rate);
}

/* How requests travel; the flush policy is copyrpc's. */
static void
print_backend(FILE *out, const struct kv_options *o, const struct kv_result *r, uint32_t ranks)
{
	if (ranks == 1 && o->backend == KV_BACKEND_COPYRPC && r->device[0] == '\0')
		return;
	fprintf(out, ", backend %s", kv_backend_names[o->backend]);
	if (o->backend == KV_BACKEND_UCX)
		fprintf(out, " over %s", o->ucx_tls == NULL ? "what UCX chooses" : o->ucx_tls);
	if (r->device[0] != '\0')
		fprintf(out, " on %s", r->device);
	if (r->device[0] != '\0' && o->backend != KV_BACKEND_ERPC)
		fprintf(out, ", %s flush", kv_flush_names[o->flush]);
}

void
kv_report_head(FILE *out, const struct kv_options *o, const struct kv_conditions *cond,
	const struct kv_result *r, uint32_t ranks)
{
	char cpu[128];

	app_env_cpu(cpu, sizeof(cpu));
	fprintf(out, "%s %s (%s), %s, lcores %s of rank 0\n", cond->app, CRPC_VERSION,
		app_env_commit(), cpu, r->lcores);
	fprintf(out,
		"%u rank%s of %u daemon%s, %u clients x QD %u each, %u keys each of %u B, values %u B, %g reads, %g "
		"deletes, %s keys",
		ranks, ranks == 1 ? "" : "s", (unsigned int)o->daemons,
		o->daemons == 1 ? "" : "s", (unsigned int)o->clients, (unsigned int)o->qd,
		(unsigned int)o->keys, (unsigned int)o->key_size, (unsigned int)o->value_size,
		o->read_ratio, o->delete_ratio, dists[o->dist]);
	print_mix(out, o);
	print_backend(out, o, r, ranks);
	fprintf(out, "%s\n", o->verify ? ", every answer verified" : "");
	fflush(out);
}

/* Open loop: what came in went out, but for the noise of a Poisson process. */
static bool
keeps_up(const struct kv_result *r)
{
	return kv_result_ops(r) > r->offered * (1 - KV_LITTLE_TOLERANCE);
}

static void
print_latency(FILE *out, const char *what, const struct crpc_hist *h)
{
	if (h->count == 0)
		return;
	fprintf(out, "  %-15s p50 %8.2f  p90 %8.2f  p99 %8.2f  p99.9 %8.2f  max %9.2f us\n", what,
		(double)crpc_hist_quantile(h, 0.5) / 1e3, (double)crpc_hist_quantile(h, 0.9) / 1e3,
		(double)crpc_hist_quantile(h, 0.99) / 1e3,
		(double)crpc_hist_quantile(h, 0.999) / 1e3, (double)h->max / 1e3);
}

static void
print_net(FILE *out, const struct kv_result *r)
{
	const struct kv_net_counts *n = &r->net;

	if (n->batches == 0)
		return;
	/* Backends that count neither have none to show. */
	if (n->wire.count != 0)
		fprintf(out,
			"  round trip      call to flush %.2f  flush to completion %.2f  turnaround "
			"at the peer %.2f us (means)\n",
			crpc_hist_mean(&n->queue) / 1e3, crpc_hist_mean(&n->wire) / 1e3,
			crpc_hist_mean(&n->peer) / 1e3);
	fprintf(out, "  network         %.2f messages per batch",
		ratio(n->messages, n->batches));
	if (n->doorbells != 0)
		fprintf(out,
			"; per remote operation: %.3f doorbells, %.3f WQE blocks, %.3f CQEs",
			ratio(n->doorbells, r->counts.ops[KV_REMOTE]),
			ratio(n->wqebbs, r->counts.ops[KV_REMOTE]),
			ratio(n->send_cqes + n->recv_cqes, r->counts.ops[KV_REMOTE]));
	fputc('\n', out);
}

/* Requests of clients in a turn that took at least one. */
static double
per_turn(const struct kv_daemon_counts *c)
{
	uint64_t turns = 0, requests = 0;
	uint32_t i;

	for (i = 0; i < KV_TAKEN_BUCKETS; i++)
		turns += c->taken[i];
	for (i = 0; i < KV_PATHS; i++)
		requests += c->path[i];
	return ratio(requests, turns);
}

/* What came from where, one line for each daemon of a rank, or for all. */
static void
print_daemon(FILE *out, const char *name, const struct kv_daemon_counts *c)
{
	fprintf(out,
		"  %-15s of clients: %llu local, %llu by flux, %llu remote; of daemons %llu; of "
		"ranks %llu",
		name, (unsigned long long)c->path[KV_LOCAL],
		(unsigned long long)c->path[KV_FORWARDED], (unsigned long long)c->path[KV_REMOTE],
		(unsigned long long)c->mates, (unsigned long long)c->ranks);
	if (c->relayed != 0)
		fprintf(out, " (%llu passed on)", (unsigned long long)c->relayed);
	fprintf(out, "; %.0f %% of the turns empty\n",
		c->turns == 0 ? 0 : 100.0 * (double)(c->turns - c->busy) / (double)c->turns);
}

/* Where a turn's time goes, and how much it takes at once. */
static void
print_loop(FILE *out, const struct kv_result *r)
{
	const struct kv_daemon_counts *c = &r->sum;
	const char *sep = "";
	uint32_t i;

	if (c->timed == 0)
		return;
	fprintf(out, "  loop            mean of a turn: ");
	for (i = 0; i < KV_TURN_PHASES; i++) {
		if (c->phase_ns[i] == 0)
			continue;
		fprintf(out, "%s%s %.0f", sep, kv_turn_phase_name(i),
			ratio(c->phase_ns[i], c->timed));
		sep = ", ";
	}
	fprintf(out,
		" ns; %.0f %% of the turns empty, %.1f requests of clients in a turn that took any; "
		"%llu waited for room\n",
		100 * ratio(c->turns - c->busy, c->turns), per_turn(c),
		(unsigned long long)c->waited);
}

/* The lcores' counters; what this CPU lacks is left out. */
static void
print_counters(FILE *out, const struct kv_result *r)
{
	double ops = (double)kv_counts_ops(&r->counts);
	uint32_t i, printed = 0;

	if (r->counters_rc != 0)
		fprintf(out, "  counters        this machine has none for us (%s)\n",
			strerror(-r->counters_rc));
	for (i = 0; i < APP_COUNTERS && ops > 0; i++)
		if (r->counter[i] != 0)
			fprintf(out, "%s%.1f %s", printed++ == 0 ? "  counters        " : ", ",
				(double)r->counter[i] / ops, app_counter_names[i]);
	if (printed != 0)
		fprintf(out, " per operation, all lcores\n");
}

static void
print_daemons(FILE *out, const struct kv_result *r)
{
	char name[32];
	uint32_t i;

	if (r->daemons <= r->ranks || r->daemons < 2)
		return;
	for (i = 0; i < r->daemons && r->daemon[i].turns != 0; i++) {
		snprintf(name, sizeof(name), "daemon %u", i);
		print_daemon(out, name, &r->daemon[i]);
	}
	if (i == 0)
		print_daemon(out, "daemons", &r->sum);
}

static void
print_faults(FILE *out, const struct kv_result *r)
{
	uint32_t f;

	for (f = 0; f < KV_FAULTS; f++)
		if (r->faults[f] != 0)
			fprintf(out, ", %llu %s", (unsigned long long)r->faults[f],
				kv_fault_name(f));
}

/* Only --flush compare has slices of a third kind. */
static bool
is_flush(const struct kv_compared *c)
{
	return c->ops[2] > 0;
}

/* Clocked against the better of the two others. */
static const struct kv_share *
of_better(const struct kv_compared *c)
{
	return &c->of[c->of[1].median < c->of[2].median ? 1 : 2];
}

static void
print_compared(FILE *out, const struct kv_compared *c)
{
	const struct kv_share *clocked = of_better(c);

	if (is_flush(c))
		fprintf(out,
			"  flush           clocked %.3f, immediate %.3f, deferred %.3f M ops/s; "
			"clocked / the better %.3f (quarters %.3f and %.3f), %llu pairs of slices\n",
			c->ops[0] / 1e6, c->ops[1] / 1e6, c->ops[2] / 1e6, clocked->median,
			clocked->low, clocked->high, (unsigned long long)c->pairs);
	else
		fprintf(out,
			"  insight         costs %.2f %% (quarters %.2f and %.2f) over %llu pairs of "
			"slices\n",
			cost_pct(c->of[1].median), cost_pct(c->of[1].high),
			cost_pct(c->of[1].low), (unsigned long long)c->pairs);
}

/* Operations that ended in another way than most. */
static void
print_other(FILE *out, uint64_t n, const char *what)
{
	if (n != 0)
		fprintf(out, ", %llu %s", (unsigned long long)n, what);
}

void
kv_report_block(FILE *out, const char *label, const struct kv_result *r, bool verify)
{
	const struct kv_counts *c = &r->counts;

	fprintf(out, "%s\n", label);
	fprintf(out, "  throughput      %.3f M ops/s: local %.3f", kv_result_ops(r) / 1e6,
		mops(c->ops[KV_LOCAL], r));
	if (c->ops[KV_FORWARDED] != 0)
		fprintf(out, ", forwarded %.3f", mops(c->ops[KV_FORWARDED], r));
	fprintf(out, ", remote %.3f", mops(c->ops[KV_REMOTE], r));
	if (r->slices != 0)
		fprintf(out, "; slices of 100 ms: median %.3f, least %.3f, most %.3f",
			r->slice_median / 1e6, r->slice_min / 1e6, r->slice_max / 1e6);
	fputc('\n', out);
	print_latency(out, "local latency", &c->lat[KV_LOCAL]);
	print_latency(out, "forwarded lat.", &c->lat[KV_FORWARDED]);
	print_latency(out, "remote latency", &c->lat[KV_REMOTE]);
	print_net(out, r);
	print_loop(out, r);
	print_daemons(out, r);
	print_counters(out, r);
	if (r->compared.pairs != 0)
		print_compared(out, &r->compared);
	if (r->in_flight > 0)
		fprintf(out, "  Little's law    X * R / N = %.4f over %.2f s: %s\n",
			kv_result_little(r), (double)r->window_ns / 1e9,
			kv_little_holds(kv_result_little(r))
				? "holds"
				: "does NOT hold; do not trust this run");
	if (r->offered > 0)
		fprintf(out,
			"  open loop       %.3f M ops/s offered, %.1f %% of them served; %.1f us behind at "
			"the end%s\n",
			r->offered / 1e6, 100 * kv_result_ops(r) / r->offered,
			(double)c->lag_ns / 1e3,
			keeps_up(r) ? ""
				    : ": does NOT keep up, latency is that of a growing queue");
	if (r->offered > 0)
		fprintf(out,
			"  pauses          the lcores stood still: 1 of 100 operations that need %s "
			"waits %g us and more for that alone\n",
			r->ranks > 1 ? "all ranks" : "one",
			app_env_pause_floor(r->pause_over, 0.01));
	fprintf(out, "  operations      %llu sent, %llu answered", (unsigned long long)r->sent,
		(unsigned long long)r->answered);
	print_other(out, r->served, "served by the daemons");
	print_other(out, c->failed_of[KV_CAUSE_LOST], "failed (lost rank)");
	print_other(out, c->failed_of[KV_CAUSE_TIME], "failed (no answer in time)");
	print_other(out, c->failed_of[KV_CAUSE_MEMORY], "failed (no memory for the value)");
	print_other(out, c->failed_of[KV_CAUSE_OTHER], "failed (other errors)");
	print_other(out, c->scans, "scans");
	print_other(out, c->misses, "not found");
	print_other(out, c->conflicts, "conflicts");
	print_other(out, c->refused, "refused (no space)");
	if (verify || kv_result_faults(r) != 0)
		fprintf(out, "; %llu verification errors", (unsigned long long)kv_result_faults(r));
	print_faults(out, r);
	fprintf(out, "; %.0f MiB resident\n", (double)r->rss_kib / 1024);
	fflush(out);
}

static json_t *
json_latency(const struct crpc_hist *h)
{
	json_t *o = json_object();

	json_object_set_new(o, "p50", json_real((double)crpc_hist_quantile(h, 0.5) / 1e3));
	json_object_set_new(o, "p90", json_real((double)crpc_hist_quantile(h, 0.9) / 1e3));
	json_object_set_new(o, "p99", json_real((double)crpc_hist_quantile(h, 0.99) / 1e3));
	json_object_set_new(o, "p999", json_real((double)crpc_hist_quantile(h, 0.999) / 1e3));
	json_object_set_new(o, "max", json_real((double)h->max / 1e3));
	return o;
}

static void
set_uint(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *
json_counts(const uint64_t *n, uint32_t len)
{
	json_t *o = json_array();
	uint32_t i;

	for (i = 0; i < len; i++)
		json_array_append_new(o, json_integer((json_int_t)n[i]));
	return o;
}

/* Latencies of all ways: pairs of the most that a bucket holds, us, and its count. */
static json_t *
json_hist(const struct kv_counts *c)
{
	json_t *o = json_array();
	uint64_t n;
	uint32_t i, k;

	for (i = 0; i < CRPC_HIST_BUCKETS; i++) {
		for (n = 0, k = 0; k < KV_PATHS; k++)
			n += c->lat[k].bucket[i];
		if (n == 0)
			continue;
		json_array_append_new(o, json_real((double)crpc_hist_bucket_max(i) / 1e3));
		json_array_append_new(o, json_integer((json_int_t)n));
	}
	return o;
}

static json_t *
json_slices(const struct kv_result *r)
{
	json_t *o = json_array();
	uint64_t i;

	for (i = 0; i < r->slices && i < KV_SLICES_MAX; i++)
		json_array_append_new(o, json_integer((json_int_t)r->slice[i]));
	return o;
}

/* Where in a sweep this run is. */
static json_t *
json_point(const struct kv_sweep_point *p)
{
	json_t *o = json_object(), *at = json_object();
	const struct kv_axis *axis;
	uint32_t i;

	for (i = 0; i < p->sweep->axes; i++) {
		axis = &p->sweep->axis[i];
		json_object_set_new(at, axis->option + 2, json_string(axis->value[p->at[i]]));
	}
	json_object_set_new(o, "axis", json_string(p->sweep->axis[0].option + 2));
	json_object_set_new(o, "at", at);
	json_object_set_new(o, "pass", json_integer(p->pass));
	json_object_set_new(o, "rising", json_boolean(p->rising));
	return o;
}

static json_t *
json_net(const struct kv_net_counts *n)
{
	json_t *o = json_object();

	set_uint(o, "calls", n->calls);
	set_uint(o, "messages", n->messages);
	set_uint(o, "batches", n->batches);
	set_uint(o, "window_updates", n->updates);
	set_uint(o, "bytes", n->bytes);
	set_uint(o, "doorbells", n->doorbells);
	set_uint(o, "wqes", n->wqes);
	set_uint(o, "wqebb", n->wqebbs);
	set_uint(o, "send_cqes", n->send_cqes);
	set_uint(o, "recv_cqes", n->recv_cqes);
	set_uint(o, "waited", n->waited);
	set_uint(o, "again", n->again);
	set_uint(o, "repeated", n->repeated);
	json_object_set_new(o, "batch_size", json_counts(n->batch_size, KV_BATCH_BUCKETS));
	return o;
}

static void
json_add_net(json_t *o, const struct kv_result *r)
{
	const struct kv_net_counts *n = &r->net;
	json_t *split = json_object(), *per_op = json_object();

	json_object_set_new(split, "queue", json_real(crpc_hist_mean(&n->queue) / 1e3));
	json_object_set_new(split, "wire", json_real(crpc_hist_mean(&n->wire) / 1e3));
	json_object_set_new(split, "peer", json_real(crpc_hist_mean(&n->peer) / 1e3));
	json_object_set_new(o, "rtt_split_us", split);
	json_object_set_new(o, "batch_mean", json_real(ratio(n->messages, n->batches)));
	json_object_set_new(
		per_op, "doorbells", json_real(ratio(n->doorbells, r->counts.ops[KV_REMOTE])));
	json_object_set_new(per_op, "wqebb", json_real(ratio(n->wqebbs, r->counts.ops[KV_REMOTE])));
	json_object_set_new(per_op, "cqes",
		json_real(ratio(n->send_cqes + n->recv_cqes, r->counts.ops[KV_REMOTE])));
	json_object_set_new(o, "per_op", per_op);
	json_object_set_new(o, "net", json_net(n));
}

static json_t *
json_counters(const struct kv_result *r)
{
	double ops = (double)kv_counts_ops(&r->counts);
	json_t *o = json_object();
	uint32_t i;

	for (i = 0; i < APP_COUNTERS; i++)
		if (r->counter[i] != 0 && ops > 0)
			json_object_set_new(
				o, app_counter_names[i], json_real((double)r->counter[i] / ops));
	return o;
}

/* Pairs: us, and the part of all moments that wait longer. */
static json_t *
json_pauses(const struct kv_result *r)
{
	json_t *a = json_array();
	uint32_t i;

	for (i = 0; i < APP_PAUSES; i++)
		json_array_append_new(
			a, json_pack("[f, f]", app_pause_us[i], r->pause_over[i]));
	return a;
}

static void
json_add_load(json_t *o, const struct kv_options *opt, const struct kv_result *r)
{
	set_uint(o, "ranks", r->ranks);
	set_uint(o, "clients", r->clients);
	set_uint(o, "qd", r->qd);
	set_uint(o, "keys", opt->keys);
	set_uint(o, "key_size", opt->key_size);
	if (opt->key_sizes_text != NULL)
		json_object_set_new(o, "key_sizes", json_string(opt->key_sizes_text));
	set_uint(o, "value_size", opt->value_size);
	if (opt->value_sizes != NULL)
		json_object_set_new(o, "value_sizes", json_string(opt->value_sizes));
	json_object_set_new(o, "read_ratio", json_real(opt->read_ratio));
	json_object_set_new(o, "dist", json_string(dists[opt->dist]));
	json_object_set_new(o, "rmw", json_boolean(opt->rmw));
	set_uint(o, "scan", opt->scan);
	json_object_set_new(o, "pauses", json_pauses(r));
	json_object_set_new(o, "offered_ops_per_s", json_real(r->offered));
	json_object_set_new(o, "lag_us", json_real((double)r->counts.lag_ns / 1e3));
	json_object_set_new(o, "verify", json_boolean(opt->verify));
	json_object_set_new(o, "seconds", json_real((double)r->window_ns / 1e9));
	json_object_set_new(o, "interrupted", json_boolean(r->interrupted != 0));
	set_uint(o, "lost_peers", r->lost_peers);
	set_uint(o, "failed", r->counts.failed);
	set_uint(o, "failed_lost", r->counts.failed_of[KV_CAUSE_LOST]);
	set_uint(o, "failed_time", r->counts.failed_of[KV_CAUSE_TIME]);
	set_uint(o, "failed_memory", r->counts.failed_of[KV_CAUSE_MEMORY]);
	set_uint(o, "scans", r->counts.scans);
	set_uint(o, "not_found", r->counts.misses);
	set_uint(o, "conflicts", r->counts.conflicts);
	set_uint(o, "no_space", r->counts.refused);
	set_uint(o, "sent", r->sent);
	set_uint(o, "answered", r->answered);
	set_uint(o, "rss_kib", r->rss_kib);
	json_object_set_new(o, "away_pct", json_real(r->away_pct));
	if (opt->counters)
		json_object_set_new(o, "counters_per_op", json_counters(r));
}

static json_t *
json_requests(const struct kv_daemon_counts *c)
{
	json_t *o = json_object();

	set_uint(o, "local", c->path[KV_LOCAL]);
	set_uint(o, "forwarded", c->path[KV_FORWARDED]);
	set_uint(o, "remote", c->path[KV_REMOTE]);
	set_uint(o, "of_daemons", c->mates);
	set_uint(o, "of_ranks", c->ranks);
	set_uint(o, "relayed", c->relayed);
	set_uint(o, "failed", c->failed);
	set_uint(o, "bad", c->bad);
	set_uint(o, "waited", c->waited);
	set_uint(o, "turns", c->turns);
	set_uint(o, "busy_turns", c->busy);
	return o;
}

static json_t *
json_loop(const struct kv_daemon_counts *c)
{
	json_t *o = json_object(), *mean = json_object();
	uint32_t i;

	for (i = 0; i < KV_TURN_PHASES; i++)
		json_object_set_new(mean, kv_turn_phase_name(i),
			json_real(ratio(c->phase_ns[i], c->timed)));
	json_object_set_new(o, "phase_mean_ns", mean);
	set_uint(o, "timed_turns", c->timed);
	json_object_set_new(o, "taken_per_turn", json_counts(c->taken, KV_TAKEN_BUCKETS));
	return o;
}

static void
json_add_compared(json_t *o, const struct kv_compared *c)
{
	json_t *rates;
	uint32_t i;

	if (!is_flush(c)) {
		app_json_figure(o, "insight_pct", cost_pct(c->of[1].median),
			cost_pct(c->of[1].high), cost_pct(c->of[1].low), "%");
		set_uint(o, "insight_pairs", c->pairs);
		return;
	}
	app_json_figure(o, "clocked_of_better", of_better(c)->median, of_better(c)->low,
		of_better(c)->high, "ratio");
	set_uint(o, "clocked_pairs", c->pairs);
	rates = json_object();
	for (i = 0; i < 3; i++)
		json_object_set_new(rates, kv_flush_names[i], json_real(c->ops[i]));
	json_object_set_new(o, "flush_ops_per_s", rates);
}

int
kv_report_json(FILE *out, const struct kv_conditions *cond, const struct kv_options *opt,
	const char *scope, const struct kv_result *r)
{
	struct app_json_base base = {
		.app = cond->app,
		.lcores = r->lcores,
		.state = cond->state,
		.steal_pct = r->steal_pct,
		.noisy = kv_result_noisy(r, cond->state),
		.repeats = r->slices,
	};
	json_t *o = app_json_new(&base), *lat = json_object();
	char key[32];
	uint32_t i;

	json_object_set_new(o, "scope", json_string(scope));
	if (strcmp(scope, "rank") == 0)
		set_uint(o, "rank", r->rank);
	json_object_set_new(o, "backend", json_string(cond->backend));
	json_object_set_new(o, "ops_per_s", json_real(kv_result_ops(r)));
	for (i = 0; i < KV_PATHS; i++) {
		snprintf(key, sizeof(key), "%s_ops_per_s", paths[i]);
		json_object_set_new(o, key, json_real(mops(r->counts.ops[i], r) * 1e6));
		json_object_set_new(lat, paths[i], json_latency(&r->counts.lat[i]));
	}
	app_json_figure(o, "slices", r->slice_median, r->slice_min, r->slice_max, "ops/s");
	json_object_set_new(o, "lat_us", lat);
	json_add_net(o, r);
	json_object_set_new(o, "little_ratio", json_real(kv_result_little(r)));
	set_uint(o, "verify_errors", kv_result_faults(r));
	json_add_load(o, opt, r);
	set_uint(o, "daemons", r->daemons);
	json_object_set_new(o, "requests", json_requests(&r->sum));
	json_object_set_new(o, "loop", json_loop(&r->sum));
	if (r->compared.pairs != 0)
		json_add_compared(o, &r->compared);
	if (strcmp(scope, "total") == 0) {
		json_object_set_new(o, "flush", json_string(kv_flush_names[opt->flush]));
		json_object_set_new(o, "lat_hist_us", json_hist(&r->counts));
		json_object_set_new(o, "slice_ops_per_s", json_slices(r));
		if (cond->point != NULL)
			json_object_set_new(o, "sweep", json_point(cond->point));
	}
	return app_json_write(out, o);
}

int
kv_report_json_daemon(FILE *out, const struct kv_conditions *cond, const struct kv_result *r,
	uint32_t daemon)
{
	const struct kv_daemon_counts *c = &r->daemon[daemon];
	char cpu[16];
	struct app_json_base base = {
		.app = cond->app,
		.lcores = cpu,
		.state = cond->state,
		.steal_pct = r->steal_pct,
		.noisy = kv_result_noisy(r, cond->state),
		.repeats = 1,
	};
	json_t *o;

	snprintf(cpu, sizeof(cpu), "%u", c->cpu);
	o = app_json_new(&base);
	json_object_set_new(o, "scope", json_string("daemon"));
	set_uint(o, "rank", r->rank);
	set_uint(o, "daemon", daemon);
	json_object_set_new(o, "backend", json_string(cond->backend));
	set_uint(o, "lcore", c->lcore);
	json_object_set_new(o, "node", json_integer(c->node));
	set_uint(o, "clients", c->clients);
	set_uint(o, "keys", c->keys);
	set_uint(o, "endpoints", c->peers);
	json_object_set_new(o, "seconds", json_real((double)r->window_ns / 1e9));
	json_object_set_new(o, "requests", json_requests(c));
	json_object_set_new(o, "loop", json_loop(c));
	return app_json_write(out, o);
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
	uint32_t i;
	int rc;

	all = lat[KV_LOCAL];
	crpc_hist_merge(&all, &lat[KV_FORWARDED]);
	crpc_hist_merge(&all, &lat[KV_REMOTE]);
	rc = write_hgrm(path, &all);
	if (lat[KV_FORWARDED].count == 0 && lat[KV_REMOTE].count == 0)
		return rc;
	for (i = 0; i < KV_PATHS && rc == 0; i++) {
		if (lat[i].count == 0)
			continue;
		hgrm_part(part, sizeof(part), path, paths[i]);
		rc = write_hgrm(part, &lat[i]);
	}
	return rc;
}
