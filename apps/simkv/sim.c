/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"
#include "app_stop.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "sim.h"

/* Bytes of the addresses of a host, at most: it has one daemon. */
#define ADDRESS_MAX 1024
/* Calls that are still open so long after the last one was made have no end. */
#define DRAIN_NS UINT64_C(20000000)

/* ---- who is next ---- */

static bool
is_before(const struct sim_actor *a, const struct sim_actor *b)
{
	return a->at != b->at ? a->at < b->at : a->tie < b->tie;
}

static void
heap_put(struct sim_world *w, struct sim_actor *a, uint32_t i)
{
	w->heap[i] = a;
	a->heap = i;
}

static void
heap_up(struct sim_world *w, struct sim_actor *a)
{
	uint32_t i = a->heap, up;

	for (; i != 0 && is_before(a, w->heap[up = (i - 1) / 2]); i = up)
		heap_put(w, w->heap[up], i);
	heap_put(w, a, i);
}

static void
heap_down(struct sim_world *w, struct sim_actor *a)
{
	uint32_t i = a->heap, down;

	while ((down = 2 * i + 1) < w->actors) {
		down += down + 1 < w->actors && is_before(w->heap[down + 1], w->heap[down]);
		if (!is_before(w->heap[down], a))
			break;
		heap_put(w, w->heap[down], i);
		i = down;
	}
	heap_put(w, a, i);
}

void
sim_wake(struct sim_actor *a, uint64_t at)
{
	if (at >= a->at)
		return;
	a->at = at;
	a->tie = crpc_random(&a->host->world->rng);
	heap_up(a->host->world, a);
}

/* Until all clocks have passed a time, or all calls have ended. */
static void
run_until(struct sim_world *w, uint64_t end)
{
	struct sim_actor *a;
	uint64_t next, now;

	while (app_stopped() == 0 && w->rc == 0) {
		a = w->heap[0];
		next = crpc_paper_next(&w->net);
		now = crpc_min(crpc_min(a->at, next), w->look_ns);
		if (now >= end)
			return;
		if (now == w->look_ns) {
			sim_fault_turn(w, now);
			continue;
		}
		if (now == next) {
			crpc_paper_advance(&w->net, now);
			continue;
		}
		sim_actor_turn(a);
		a->tie = crpc_random(&w->rng);
		heap_down(w, a);
	}
}

/* ---- the cluster ---- */

/* Keys of each host. @return the most that one has; 0: no memory. */
static uint32_t
capacity(const struct sim_world *w)
{
	uint32_t *n = calloc(w->hosts, sizeof(*n)), most = 1;
	uint8_t key[CRPC_KV_KEY_MIN];

	for (uint32_t id = 0; n != NULL && id < w->load.keys.n; id++) {
		kv_key_write(key, sizeof(key), id);
		most = (uint32_t)crpc_max(most, ++n[kv_owner(kv_hash(key, sizeof(key)), w->hosts)]);
	}
	free(n);
	return n == NULL ? 0 : most;
}

static int
fill(struct sim_world *w)
{
	uint8_t key[CRPC_KV_KEY_MIN];
	uint64_t word;
	int rc = 0;

	for (uint32_t id = 0; id < w->load.keys.n && rc == 0; id++) {
		kv_key_write(key, sizeof(key), id);
		word = app_word(id, 0, 1);
		rc = crpc_kv_server_load(
			w->host[kv_owner(kv_hash(key, sizeof(key)), w->hosts)].server, key,
			sizeof(key), &word, sizeof(word));
	}
	return rc == 0 ? 0 : app_fail("the keys do not fit the stores: %s", strerror(-rc));
}

void
sim_watch(struct sim_host *h, uint64_t now)
{
	h->world->net.clock_arg = h;
	crpc_kv_daemon_watch(h->daemon, crpc_max(now, h->begin));
}

/* Our address for another host. @return its bytes, or -errno. */
static int64_t
address(struct sim_host *h, uint32_t to, uint8_t blob[ADDRESS_MAX], uint64_t now)
{
	int64_t len = crpc_kv_server_address(h->server, to, blob, ADDRESS_MAX);

	if (len != -EAGAIN)
		return len;
	sim_watch(h, now); /* It makes the endpoints. */
	return crpc_kv_server_address(h->server, to, blob, ADDRESS_MAX);
}

int
sim_connect(struct sim_host *a, struct sim_host *b, uint64_t now)
{
	uint32_t rank_a = sim_rank(a), rank_b = sim_rank(b);
	uint8_t of_a[ADDRESS_MAX], of_b[ADDRESS_MAX];
	int64_t len_a = address(a, rank_b, of_a, now), len_b = address(b, rank_a, of_b, now);
	int rc;

	if (len_a < 0 || len_b < 0)
		return (int)crpc_min(len_a, len_b);
	rc = crpc_kv_server_connect(a->server, rank_b, of_b, (size_t)len_b);
	if (rc == 0)
		rc = crpc_kv_server_connect(b->server, rank_a, of_a, (size_t)len_a);
	sim_watch(a, now);
	sim_watch(b, now);
	a->world->connections++;
	return rc;
}

static int
connect_all(struct sim_world *w)
{
	bool own = sim_own(w->opt);
	int rc = own ? sim_own_connect(w) : 0;

	for (uint32_t i = 0; i < w->hosts && rc == 0 && !own && app_stopped() == 0; i++)
		for (uint32_t k = i + 1; k < w->hosts && rc == 0; k++)
			rc = sim_connect(&w->host[i], &w->host[k], SIM_BEGIN_NS);
	return rc == 0 ? 0
		       : app_fail("the hosts cannot be connected: %s (%s)", strerror(-rc),
				 crpc_log_last());
}

static int
world_open(struct sim_world *w)
{
	const struct sim_options *o = w->opt;
	uint32_t keys = 0;
	int rc = 0;

	app_load_ratios(&w->load, o->read_ratio, 1 - o->read_ratio - o->delete_ratio);
	if (app_keys_init(
		    &w->load.keys, APP_DIST_UNIFORM, (uint32_t)o->keys * w->hosts, 1, o->seed) == 0)
		keys = capacity(w);
	w->host = calloc(w->hosts, sizeof(*w->host));
	w->heap = calloc((1 + (size_t)o->clients) * w->hosts, sizeof(*w->heap));
	if (keys == 0 || w->host == NULL || w->heap == NULL)
		return app_fail("no memory for %u hosts; give fewer", w->hosts);
	for (uint32_t i = 0; i < w->hosts && rc == 0; i++)
		rc = sim_host_open(&w->host[i], w, i, keys);
	for (uint32_t i = 0; i < w->hosts && rc == 0; i++)
		for (uint32_t k = 0; k < w->hosts; k++) {
			crpc_kv_server_here(w->host[i].server, k, true);
			w->host[i].other[k].epoch = w->host[k].epoch;
		}
	if (rc == 0)
		rc = fill(w);
	if (rc == 0 && w->opt->connect == APP_CONNECT_START)
		rc = connect_all(w);
	for (uint32_t i = 0; i < w->hosts && rc == 0; i++)
		rc = sim_host_join(&w->host[i], i);
	return rc;
}

static void
actor_start(struct sim_world *w, struct sim_actor *a)
{
	a->at = SIM_BEGIN_NS + 1000;
	a->tie = crpc_random(&w->rng);
	a->heap = w->actors++;
	heap_put(w, a, a->heap);
	heap_up(w, a);
}

/* Where daemons are in their polling when the run begins is drawn. */
static void
world_start(struct sim_world *w)
{
	struct sim_host *h;

	for (uint32_t i = 0; i < w->hosts; i++) {
		h = &w->host[i];
		h->free = SIM_BEGIN_NS * 1000 + crpc_random(&w->rng) % 1000000;
		h->watched = SIM_BEGIN_NS;
		actor_start(w, &h->turn);
		if (h->client == NULL)
			actor_start(w, &h->clients);
		for (uint32_t k = 0; h->client != NULL && k < w->opt->clients; k++) {
			h->client[k].free = h->free;
			actor_start(w, &h->client[k].turn);
		}
	}
}

void
sim_world_close(struct sim_world *w)
{
	w->net.clock = NULL; /* udrpc sends goodbyes, and the hosts whose clock it was are gone. */
	for (uint32_t i = 0; i < w->hosts && w->host != NULL; i++)
		sim_host_close(&w->host[i]);
	app_keys_fini(&w->load.keys);
	free(w->host);
	free(w->heap);
	crpc_paper_name(NULL);
}

/* ---- a run ---- */

/* With the clients that have ends of their own. */
static void
count_all(const struct sim_host *h, struct sim_counts *c)
{
	sim_host_count(h, c);
	for (uint32_t k = 0; h->client != NULL && k < h->world->loads; k++)
		sim_count_net(c, &h->client[k].parts);
}

static void
stats_reset(const struct app_end_parts *p)
{
	if (p->copyrpc != NULL)
		crpc_copyrpc_stats_reset(p->copyrpc);
	if (p->udrpc != NULL)
		crpc_udrpc_stats_reset(p->udrpc);
}

static void
rtt_add(struct sim_result *r, const struct app_end_parts *p)
{
	if (p->copyrpc != NULL)
		crpc_hist_merge(&r->rtt, &crpc_copyrpc_stats(p->copyrpc)->wire);
	if (p->udrpc != NULL)
		crpc_hist_merge(&r->rtt, &crpc_udrpc_stats(p->udrpc)->wire);
}

/* The warm-up is over. */
static void
measure(struct sim_world *w, uint64_t now)
{
	struct sim_host *h;

	for (uint32_t i = 0; i < w->hosts * w->loads; i++)
		app_load_measure(sim_load(w, i), now);
	for (h = w->host; h != w->host + w->hosts; h++) {
		stats_reset(&h->parts);
		for (uint32_t k = 0; h->client != NULL && k < w->loads; k++)
			stats_reset(&h->client[k].parts);
		count_all(h, &h->start);
	}
}

static void
take(struct sim_world *w, uint64_t now, struct sim_result *r)
{
	struct sim_counts c = {0};
	struct sim_host *h;
	struct app_load *l;

	for (uint32_t i = 0; i < w->hosts * w->loads; i++) {
		l = sim_load(w, i);
		app_load_freeze(l, now);
		app_load_counts_add(&r->load, &l->counts);
		r->quiet_min = crpc_min(r->quiet_min, app_load_counts_ops(&l->counts));
	}
	for (h = w->host; h != w->host + w->hosts; h++) {
		count_all(h, &c);
		app_words_add(&r->sum, &c, sizeof(c), 1);
		app_words_add(&r->sum, &h->start, sizeof(c), -1);
		rtt_add(r, &h->parts);
		for (uint32_t k = 0; h->client != NULL && k < w->loads; k++)
			rtt_add(r, &h->client[k].parts);
	}
	if (r->load.window_ns != 0)
		r->open_mean = (double)r->load.lat_sum / (double)r->load.window_ns;
}

/* One context; of the first host, what it takes of the card. */
static int
context_prove(struct sim_result *r, const struct app_end_parts *p, bool first)
{
	const struct crpc_paper_counts *nic = crpc_paper_counts(p->device);

	r->cache_misses += nic->cache_misses;
	r->dc_switches += nic->dc_switches;
	r->retries += nic->retries;
	if (first) {
		r->queue_pairs += nic->queues;
		r->mr_bytes += nic->mr_bytes;
	}
	if (p->udrpc != NULL)
		r->retries += crpc_udrpc_stats(p->udrpc)->repeated;
	return p->copyrpc == NULL ? 0 : crpc_copyrpc_check(p->copyrpc, r->open == 0);
}

/* Every call has ended once, and every invariant of every context holds. */
static int
prove(struct sim_world *w, struct sim_result *r)
{
	struct app_load *l;
	struct sim_host *h;
	int rc = 0;

	for (uint32_t i = 0; i < w->hosts * w->loads; i++) {
		l = sim_load(w, i);
		r->open += app_load_open(l);
		app_load_audit(l);
		for (uint32_t c = 0; c < l->n; c++) {
			r->sent += l->client[c].sent;
			r->answered += l->client[c].answered;
			for (uint32_t f = 0; f < APP_FAULTS; f++)
				r->faults += l->client[c].verify.faults[f];
		}
	}
	for (h = w->host; h != w->host + w->hosts; h++) {
		if (h->parts.device == NULL)
			continue;
		r->lost += crpc_kv_server_lost(h->server);
		rc |= context_prove(r, &h->parts, h == w->host);
		for (uint32_t k = 0; h->client != NULL && k < w->loads; k++)
			rc |= context_prove(r, &h->client[k].parts, h == w->host);
	}
	if (rc == 0 && r->faults == 0 && w->answered_twice == 0)
		return 0;
	app_fail("%llu of %llu calls have no answer or a wrong one, %llu have two: %s",
		(unsigned long long)r->faults, (unsigned long long)r->sent,
		(unsigned long long)w->answered_twice,
		rc == 0 ? "the contexts are sound" : crpc_log_last());
	return APP_EXIT_RUN;
}

static bool
any_open(const struct sim_world *w)
{
	for (uint32_t i = 0; i < w->hosts * w->loads; i++)
		if (app_load_open(sim_load(w, i)) != 0)
			return true;
	return false;
}

static int
run(struct sim_world *w, struct sim_result *r)
{
	uint64_t from = SIM_BEGIN_NS + 1000 + (uint64_t)(w->opt->warmup_ms * 1e6);
	uint64_t to = from + (uint64_t)(w->opt->virtual_ms * 1e6);
	/* A client's core may be busy with all its calls before the last one is made. */
	uint64_t last = to + DRAIN_NS + 2 * w->opt->depth * w->opt->model.cpu.client / 1000;

	world_start(w);
	run_until(w, from);
	measure(w, from);
	run_until(w, to);
	take(w, to, r);
	for (uint32_t i = 0; i < w->hosts * w->loads; i++)
		app_load_stop(sim_load(w, i), to);
	for (; to < last && any_open(w) && app_stopped() == 0 && w->rc == 0;
		to += SIM_WATCH_NS / 10)
		run_until(w, to);
	run_until(w, to + SIM_WATCH_NS / 10); /* Positions are reported. */
	r->connections = w->connections;
	return app_stopped() != 0 || w->rc != 0 ? w->rc : prove(w, r);
}

static void
world_init(struct sim_world *w, const struct sim_options *o)
{
	bool faults = o->fault != NULL || o->chaos != 0;

	*w = (struct sim_world){.opt = o,
		.hosts = (uint32_t)o->hosts,
		.loads = sim_own(o) ? (uint32_t)o->clients : 1,
		.rng = o->seed,
		.net = {.rng = ~o->seed,
			.time = &o->model.nic,
			.clock = sim_host_clock,
			.refuse = (uint32_t)o->refuse},
		.load = {.owners = (uint32_t)o->hosts,
			.daemons = 1,
			.key_size = CRPC_KV_KEY_MIN,
			.value_size = CRPC_KV_VALUE_MIN,
			.sizes = {.min = CRPC_KV_VALUE_MIN, .max = CRPC_KV_VALUE_MIN},
			.depth = (uint32_t)o->depth,
			.writers = (uint32_t)(1 + o->hosts * o->clients),
			.seed = o->seed,
			.rmw = o->cas,
			.cas = o->cas,
			.may_miss = o->delete_ratio > 0 || faults,
			.verify = o->verify},
		.look_ns = faults ? SIM_BEGIN_NS : UINT64_MAX,
		.records = w->records,
		.faults = o->faults,
		.req_max = sizeof(struct kv_req_hdr) + CRPC_KV_KEY_MIN + CRPC_KV_VALUE_MIN +
			CRPC_KV_EXTRAS_MAX,
		.resp_max = sizeof(struct kv_resp_hdr) + CRPC_KV_VALUE_MIN};
}

int
sim_world_run(struct sim_world *w, const struct sim_options *o, struct sim_result *r)
{
	int rc;

	world_init(w, o);
	*r = (struct sim_result){.quiet_min = UINT64_MAX};
	crpc_paper_name(&w->net);
	rc = world_open(w);
	return rc == 0 ? run(w, r) : rc;
}

int
sim_run(const struct sim_options *o, struct sim_result *r)
{
	struct sim_world w = {.records = NULL};
	int rc = sim_world_run(&w, o, r);

	sim_world_close(&w);
	return rc;
}
