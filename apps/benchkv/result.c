/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_env.h"
#include "result.h"

const char *
kv_turn_phase_name(uint32_t phase)
{
	static const char *const names[KV_TURN_PHASES] = {
		[KV_TURN_NET_POLL] = "net_poll",
		[KV_TURN_NET_RECV] = "net_recv",
		[KV_TURN_MATES] = "daemons",
		[KV_TURN_CLIENTS] = "clients",
		[KV_TURN_SEND] = "send",
	};

	return phase < KV_TURN_PHASES ? names[phase] : "unknown";
}

bool
kv_result_take(struct kv_result *r, size_t len)
{
	if (len != sizeof(*r) || r->size != sizeof(*r) || r->daemons > KV_DAEMONS_MAX)
		return false;
	r->lcores[sizeof(r->lcores) - 1] = '\0';
	r->device[sizeof(r->device) - 1] = '\0';
	return true;
}

uint64_t
kv_result_faults(const struct kv_result *r)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < KV_FAULTS; i++)
		sum += r->faults[i];
	return sum;
}

uint64_t
kv_counts_ops(const struct kv_counts *c)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < KV_PATHS; i++)
		sum += c->ops[i];
	return sum;
}

double
kv_result_ops(const struct kv_result *r)
{
	if (r->window_ns == 0)
		return 0;
	return (double)kv_counts_ops(&r->counts) * 1e9 / (double)r->window_ns;
}

static void
counts_add(struct kv_counts *to, const struct kv_counts *from)
{
	uint32_t i;

	for (i = 0; i < KV_PATHS; i++) {
		to->ops[i] += from->ops[i];
		crpc_hist_merge(&to->lat[i], &from->lat[i]);
	}
	to->failed += from->failed;
	for (i = 0; i < KV_CAUSES; i++)
		to->failed_of[i] += from->failed_of[i];
	to->misses += from->misses;
	to->refused += from->refused;
	to->conflicts += from->conflicts;
	to->scans += from->scans;
	to->lat_sum += from->lat_sum;
	to->window_ns = crpc_max(to->window_ns, from->window_ns);
	to->lag_ns = crpc_max(to->lag_ns, from->lag_ns);
}

void
kv_result_add_loop(struct kv_result *r, const struct kv_loop *loop)
{
	const struct kv_client *c;
	uint32_t i, f;

	counts_add(&r->counts, &loop->counts);
	r->window_ns = crpc_max(r->window_ns, loop->counts.window_ns);
	r->clients += loop->n;
	if (loop->work->gap_ns > 0)
		r->offered += (double)loop->n * 1e9 / loop->work->gap_ns;
	else
		r->in_flight += (double)loop->n * loop->work->qd;
	for (i = 0; i < loop->n; i++) {
		c = &loop->client[i];
		r->sent += c->sent;
		r->answered += c->answered;
		for (f = 0; f < KV_FAULTS; f++)
			r->faults[f] += c->history.faults[f];
	}
}

static void
net_add(struct kv_net_counts *to, const struct kv_net_counts *from)
{
	uint32_t i;

	to->calls += from->calls;
	to->messages += from->messages;
	to->batches += from->batches;
	to->updates += from->updates;
	to->bytes += from->bytes;
	to->doorbells += from->doorbells;
	to->wqes += from->wqes;
	to->wqebbs += from->wqebbs;
	to->send_cqes += from->send_cqes;
	to->recv_cqes += from->recv_cqes;
	to->waited += from->waited;
	to->again += from->again;
	to->repeated += from->repeated;
	for (i = 0; i < KV_BATCH_BUCKETS; i++)
		to->batch_size[i] += from->batch_size[i];
	crpc_hist_merge(&to->queue, &from->queue);
	crpc_hist_merge(&to->wire, &from->wire);
	crpc_hist_merge(&to->peer, &from->peer);
}

static void
daemon_add(struct kv_daemon_counts *to, const struct kv_daemon_counts *from)
{
	uint32_t i;

	to->turns += from->turns;
	to->busy += from->busy;
	for (i = 0; i < KV_PATHS; i++)
		to->path[i] += from->path[i];
	to->ranks += from->ranks;
	to->relayed += from->relayed;
	to->mates += from->mates;
	to->failed += from->failed;
	to->bad += from->bad;
	to->waited += from->waited;
	to->timed += from->timed;
	for (i = 0; i < KV_TURN_PHASES; i++)
		to->phase_ns[i] += from->phase_ns[i];
	for (i = 0; i < KV_TAKEN_BUCKETS; i++)
		to->taken[i] += from->taken[i];
	to->clients += from->clients;
	to->keys += from->keys;
	to->peers += from->peers;
}

void
kv_result_add_daemon(
	struct kv_result *r, const struct kv_daemon_counts *counts, const struct kv_net_counts *net)
{
	uint32_t i;

	if (r->daemons < KV_DAEMONS_MAX)
		r->daemon[r->daemons] = *counts;
	r->daemons++;
	daemon_add(&r->sum, counts);
	net_add(&r->net, net);
	for (i = 0; i < KV_PATHS; i++)
		r->served += counts->path[i];
	r->served += counts->ranks + counts->mates;
}

/* Shares: the mean of the ranks, as they come. Rates: the sum. */
static void
compared_add(struct kv_compared *total, const struct kv_compared *c, uint32_t ranks)
{
	uint32_t i;

	total->pairs += c->pairs;
	for (i = 0; i < KV_KINDS_MAX; i++) {
		total->of[i].median += (c->of[i].median - total->of[i].median) / ranks;
		total->of[i].low += (c->of[i].low - total->of[i].low) / ranks;
		total->of[i].high += (c->of[i].high - total->of[i].high) / ranks;
		total->ops[i] += c->ops[i];
	}
}

void
kv_result_add(struct kv_result *total, const struct kv_result *r)
{
	uint32_t f;

	total->size = sizeof(*total);
	total->ranks++;
	total->clients += r->clients;
	total->qd = r->qd;
	total->lost_peers += r->lost_peers;
	total->interrupted |= r->interrupted;
	total->window_ns = crpc_max(total->window_ns, r->window_ns);
	total->in_flight += r->in_flight;
	total->offered += r->offered;
	counts_add(&total->counts, &r->counts);
	net_add(&total->net, &r->net);
	total->sent += r->sent;
	total->answered += r->answered;
	for (f = 0; f < KV_FAULTS; f++)
		total->faults[f] += r->faults[f];
	total->served += r->served;
	total->daemons += r->daemons;
	daemon_add(&total->sum, &r->sum);
	total->slice_median += r->slice_median;
	total->slice_min += r->slice_min;
	total->slice_max += r->slice_max;
	total->slices = crpc_max(total->slices, r->slices);
	for (f = 0; f < KV_SLICES_MAX; f++)
		total->slice[f] += r->slice[f];
	for (f = 0; f < APP_PAUSES; f++)
		total->pause_over[f] += r->pause_over[f];
	compared_add(&total->compared, &r->compared, total->ranks);
	total->rss_kib += r->rss_kib;
	total->yields += r->yields;
	total->steal_pct = r->steal_pct > total->steal_pct ? r->steal_pct : total->steal_pct;
	total->away_pct = r->away_pct > total->away_pct ? r->away_pct : total->away_pct;
	for (f = 0; f < APP_COUNTERS; f++)
		total->counter[f] += r->counter[f];
	total->counters_rc = r->counters_rc != 0 ? r->counters_rc : total->counters_rc;
}

bool
kv_result_noisy(const struct kv_result *r, const char *state)
{
	return r->steal_pct > APP_STEAL_PCT_NOISY || r->away_pct > APP_AWAY_PCT_NOISY ||
		strcmp(state, "mixed") == 0;
}

double
kv_result_little(const struct kv_result *r)
{
	if (r->window_ns == 0 || !(r->in_flight > 0))
		return 0;
	/* X x R = (calls / window) x (sum of latencies / calls). */
	return (double)r->counts.lat_sum / (double)r->window_ns / r->in_flight;
}

bool
kv_little_holds(double little)
{
	return little > 1 - KV_LITTLE_TOLERANCE && little < 1 + KV_LITTLE_TOLERANCE;
}

bool
kv_result_distrusted(const struct kv_result *r, const char *state)
{
	return r->in_flight > 0 && r->interrupted == 0 && r->lost_peers == 0 &&
		!kv_result_noisy(r, state) && !kv_little_holds(kv_result_little(r));
}

static int
cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts @v. */
static struct kv_share
quarters(double *v, uint64_t n)
{
	if (n == 0)
		return (struct kv_share){0};
	qsort(v, n, sizeof(*v), cmp_double);
	return (struct kv_share){.low = v[n / 4], .median = v[n / 2], .high = v[n * 3 / 4]};
}

void
kv_result_compare(struct kv_result *r, const double *slice, const uint8_t *kind, uint64_t n)
{
	double *v = calloc(2 * n + 1, sizeof(*v));
	struct kv_compared *c = &r->compared;
	uint64_t i, k;
	uint8_t what;

	for (what = 0; v != NULL && what < KV_KINDS_MAX; what++) {
		for (i = k = 0; i < n; i++)
			if (kind[i] == what)
				v[k++] = slice[i];
		c->ops[what] = quarters(v, k).median;
		for (i = k = 0; what != 0 && i + 1 < n; i++) {
			if (kind[i] == 0 && kind[i + 1] == what && slice[i + 1] > 0)
				v[k++] = slice[i] / slice[i + 1];
			if (kind[i] == what && kind[i + 1] == 0 && slice[i] > 0)
				v[k++] = slice[i + 1] / slice[i];
		}
		c->of[what] = quarters(v, k);
		c->pairs += k;
	}
	free(v);
}

void
kv_result_slices(struct kv_result *r, double *slice, uint64_t n)
{
	uint64_t i;

	r->slices = n;
	for (i = 0; i < n && i < KV_SLICES_MAX; i++)
		r->slice[i] = (float)slice[i];
	if (n == 0)
		return;
	qsort(slice, n, sizeof(*slice), cmp_double);
	r->slice_median = slice[n / 2];
	r->slice_min = slice[0];
	r->slice_max = slice[n - 1];
}
