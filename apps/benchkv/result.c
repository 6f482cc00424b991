/* SPDX-License-Identifier: BSD-3-Clause */
#include "result.h"

bool
kv_result_take(struct kv_result *r)
{
	if (r->size != sizeof(*r) || r->daemons > CRPC_KV_DAEMONS_MAX)
		return false;
	r->lcores[sizeof(r->lcores) - 1] = '\0';
	r->device[sizeof(r->device) - 1] = '\0';
	r->driver[sizeof(r->driver) - 1] = '\0';
	return true;
}

uint64_t
kv_result_faults(const struct kv_result *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < APP_FAULTS; i++)
		sum += r->faults[i];
	return sum;
}

void
kv_result_lat(const struct kv_result *r, struct crpc_hist *all)
{
	*all = r->counts.lat[CRPC_KV_LOCAL];
	crpc_hist_merge(all, &r->counts.lat[CRPC_KV_FORWARDED]);
	crpc_hist_merge(all, &r->counts.lat[CRPC_KV_REMOTE]);
}

double
kv_result_ops(const struct kv_result *r)
{
	if (r->window_ns == 0)
		return 0;
	return (double)app_load_counts_ops(&r->counts) * 1e9 / (double)r->window_ns;
}

void
kv_result_add_load(struct kv_result *r, const struct app_load *loop)
{
	const struct app_load_client *c;

	app_load_counts_add(&r->counts, &loop->counts);
	r->window_ns = crpc_max(r->window_ns, loop->counts.window_ns);
	r->clients += loop->n;
	if (loop->conf->gap_ns > 0)
		r->offered += (double)loop->n * 1e9 / loop->conf->gap_ns;
	else
		r->in_flight += (double)loop->n * loop->conf->depth;
	for (uint32_t i = 0; i < loop->n; i++) {
		c = &loop->client[i];
		r->sent += c->sent;
		r->answered += c->answered;
		for (uint32_t f = 0; f < APP_FAULTS; f++)
			r->faults[f] += c->verify.faults[f];
	}
}

static void
daemon_add(struct kv_daemon_counts *to, const struct kv_daemon_counts *from)
{
	app_words_add(&to->of, &from->of, sizeof(to->of), 1);
	to->clients += from->clients;
	to->keys += from->keys;
	to->peers += from->peers;
}

void
kv_result_add_daemon(struct kv_result *r, const struct kv_daemon_counts *counts,
	const struct app_net_counts *net)
{
	if (r->daemons < CRPC_KV_DAEMONS_MAX)
		r->daemon[r->daemons] = *counts;
	r->daemons++;
	daemon_add(&r->sum, counts);
	app_words_add(&r->net, net, sizeof(*net), 1);
	for (uint32_t i = CRPC_KV_STAT_LOCAL; i <= CRPC_KV_STAT_OF_RANKS; i++)
		r->served += counts->of.stat[i];
}

void
kv_result_add(struct kv_result *total, const struct kv_result *r)
{
	const size_t words = offsetof(struct kv_result, net);

	total->size = sizeof(*total);
	total->ranks++;
	total->clients += r->clients;
	total->qd = r->qd;
	total->lost_peers += r->lost_peers;
	total->interrupted |= r->interrupted;
	total->window_ns = crpc_max(total->window_ns, r->window_ns);
	total->in_flight += r->in_flight;
	total->offered += r->offered;
	app_load_counts_add(&total->counts, &r->counts);
	app_words_add((uint8_t *)total + words, (const uint8_t *)r + words,
		offsetof(struct kv_result, served) + sizeof(r->served) - words, 1);
	total->daemons += r->daemons;
	daemon_add(&total->sum, &r->sum);
	total->rate.median += r->rate.median;
	total->rate.min += r->rate.min;
	total->rate.max += r->rate.max;
	total->rate.n = (uint32_t)crpc_max(total->rate.n, r->rate.n);
	for (uint32_t f = 0; f < APP_PAUSES; f++)
		total->pause_over[f] += r->pause_over[f];
	total->steal_pct = r->steal_pct > total->steal_pct ? r->steal_pct : total->steal_pct;
	total->away_pct = r->away_pct > total->away_pct ? r->away_pct : total->away_pct;
	total->counters_rc = r->counters_rc != 0 ? r->counters_rc : total->counters_rc;
}

bool
kv_result_noisy(const struct kv_result *r, enum app_state state)
{
	return r->steal_pct > APP_STEAL_PCT_NOISY || r->away_pct > APP_AWAY_PCT_NOISY ||
		state == APP_STATE_MIXED;
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
kv_result_little_holds(const struct kv_result *r)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < CRPC_DIM(r->counts.lat); i++)
		longest = crpc_max(longest, r->counts.lat[i].max);
	return kv_little_holds(kv_result_little(r),
		(double)longest / (double)crpc_max(r->window_ns, 1u));
}

bool
kv_result_distrusted(const struct kv_result *r, enum app_state state)
{
	return r->in_flight > 0 && r->interrupted == 0 && r->lost_peers == 0 &&
		!kv_result_noisy(r, state) && !kv_result_little_holds(r);
}

void
kv_result_slices(struct kv_result *r, double *slice, uint64_t n)
{
	for (uint64_t i = 0; i < n && i < KV_SLICES_MAX; i++)
		r->slice[i] = (uint64_t)slice[i];
	for (uint64_t i = 0; i < n; i++)
		slice[i] /= 1e6;
	r->rate = app_figure_of(slice, (uint32_t)n);
}
