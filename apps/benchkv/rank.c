/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_lcore.h"
#include "crpc_log.h"
#include "rank.h"

/* Runs on one host at a time that need not be named. */
#define SEGMENT_ATTEMPTS 64

static uint32_t
keys_total(const struct kv_rank *r)
{
	return (uint32_t)(r->opt.keys * r->boot.size);
}

static bool
owned(const struct kv_rank *r, const void *key)
{
	return kv_owner(kv_hash(key, (uint32_t)r->opt.key_size), r->boot.size) == r->boot.rank;
}

/* Every key exists from the start: written by writer 0. */
static int
load_store(struct kv_rank *r)
{
	uint8_t key[KV_KEY_MAX], value[KV_VALUE_MAX];
	uint32_t id, len = (uint32_t)r->opt.value_size;
	int rc;

	for (id = 0; id < keys_total(r); id++) {
		kv_key_write(key, (uint32_t)r->opt.key_size, id);
		if (!owned(r, key))
			continue;
		kv_value_fill(value, len, kv_word(id, 0, 1));
		rc = kv_store_load(r->daemon->store, key, value, len);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int
open_store(struct kv_rank *r)
{
	struct kv_store_conf conf = {
		.name = "kv",
		.key_size = (uint32_t)r->opt.key_size,
		.value_max = (uint32_t)r->opt.value_size,
		.socket = SOCKET_ID_ANY,
	};
	uint8_t key[KV_KEY_MAX];
	uint32_t id;

	for (id = 0; id < keys_total(r); id++) {
		kv_key_write(key, conf.key_size, id);
		conf.capacity += owned(r, key);
	}
	if (conf.capacity == 0)
		conf.capacity = 1;
	r->daemon->store = kv_store_create(&conf);
	if (r->daemon->store == NULL || load_store(r) != 0)
		return app_fail(
			"the store of %u keys takes about %llu MiB of EAL memory and did not get "
			"it; give more with -m MIB before the --, or fewer --keys",
			conf.capacity, (unsigned long long)(kv_store_bytes(&conf) >> 20) + 1);
	return 0;
}

static void
segment_name(const struct kv_rank *r, uint32_t attempt, char *buf, size_t len)
{
	if (r->opt.name == NULL)
		snprintf(buf, len, "benchkv.%u.%u", attempt, r->boot.rank);
	else if (r->boot.size == 1)
		snprintf(buf, len, "%s", r->opt.name);
	else
		snprintf(buf, len, "%s.%u", r->opt.name, r->boot.rank);
}

/*
 * Without a name from the user: the first number that no living run has. So a killed run's leftover
 * is replaced by the next run, and several runs fit one host.
 */
static struct crpc_ipc_server *
create_segment(struct kv_rank *r, struct crpc_ipc_server_conf *conf, char *name, size_t len)
{
	struct crpc_ipc_server *ipc;
	uint32_t i, attempts = r->opt.name == NULL ? SEGMENT_ATTEMPTS : 1;

	for (i = 0; i < attempts; i++) {
		segment_name(r, i, name, len);
		crpc_log_clear();
		ipc = crpc_ipc_server_create(conf);
		if (ipc != NULL || (errno != EADDRINUSE && errno != EACCES))
			return ipc;
	}
	return NULL;
}

static int
open_segment(struct kv_rank *r)
{
	char name[256];
	struct crpc_ipc_server_conf conf = {
		.name = name,
		.max_clients = (uint32_t)(r->opt.clients + r->opt.serve),
		.depth = (uint32_t)(r->opt.serve != 0 ? KV_QD_MAX : r->opt.qd),
		.req_max =
			(uint32_t)(sizeof(struct kv_req_hdr) + r->opt.key_size + r->opt.value_size),
		.resp_max = (uint32_t)(sizeof(struct kv_resp_hdr) +
			crpc_max(r->opt.value_size, sizeof(struct kv_info))),
	};

	r->daemon->ipc = create_segment(r, &conf, name, sizeof(name));
	if (r->daemon->ipc == NULL)
		return app_fail(
			"cannot create the clients' segment '%s' in /dev/shm: %s (%s); free "
			"space there, end the run that holds it, or give another --name",
			name, strerror(errno), crpc_log_last());
	if (r->opt.serve != 0) {
		printf("rank %u serves clients of other processes: benchkv-client --attach %s\n",
			r->boot.rank, name);
		fflush(stdout);
	}
	return 0;
}

static int
open_net(struct kv_rank *r)
{
	uint32_t depth = (uint32_t)(r->opt.serve != 0 ? KV_QD_MAX : r->opt.qd);
	struct kv_net_conf conf = {
		.device = r->opt.device,
		.flush = (enum crpc_copyrpc_flush_policy)r->opt.flush,
		.max_inflight = (uint32_t)(r->opt.clients + r->opt.serve) * depth,
		.req_max =
			(uint32_t)(sizeof(struct kv_req_hdr) + r->opt.key_size + r->opt.value_size),
		.resp_max = (uint32_t)(sizeof(struct kv_resp_hdr) + r->opt.value_size),
	};
	int rc;

	/* Alone there is nobody to talk to; a device that was named is looked at all the same. */
	if (r->boot.size == 1 && r->opt.device == NULL)
		return 0;
	r->net_open = true;
	rc = kv_net_open(&r->net, &r->boot, &conf);
	if (rc == 0 && r->boot.size > 1)
		r->daemon->net = &r->net;
	return rc;
}

int
kv_rank_open(struct kv_rank *r)
{
	uint32_t ranks = r->boot.size, clients = (uint32_t)r->opt.clients, part;
	struct kv_daemon *d =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*d), CRPC_CACHE_GUARD));
	int rc;

	if (d == NULL)
		return app_fail("no memory for the daemon; free some and start again");
	*d = (struct kv_daemon){
		.rank = r->boot.rank,
		.ranks = ranks,
		.key_size = (uint32_t)r->opt.key_size,
		.value_size = (uint32_t)r->opt.value_size,
	};
	/*
	 * Writer ids: 0 loads, then the clients of all ranks, then equal parts for client
	 * processes.
	 */
	part = r->opt.serve == 0 ? 0 : (KV_WRITERS_MAX - 1 - ranks * clients) / ranks;
	d->info = (struct kv_info){
		.ranks = ranks,
		.rank = r->boot.rank,
		.keys = keys_total(r),
		.key_size = d->key_size,
		.value_size = d->value_size,
		.writer = 1 + ranks * clients + r->boot.rank * part,
		.writers = 1 + ranks * (clients + part),
		.preloaded = 1,
	};
	d->writer_end = d->info.writer + part;
	r->daemon = d;
	rc = open_net(r);
	if (rc == 0)
		rc = open_store(r);
	if (rc == 0)
		rc = open_segment(r);
	return rc;
}

static int
fill_work(struct kv_rank *r)
{
	const struct kv_options *o = &r->opt;
	double puts = 1 - o->read_ratio - o->delete_ratio;

	r->work = (struct kv_work){
		.ranks = r->boot.size,
		.rank = r->boot.rank,
		.key_size = (uint32_t)o->key_size,
		.value_size = (uint32_t)o->value_size,
		.qd = (uint32_t)o->qd,
		.writers = r->daemon->info.writers,
		.seed = o->seed,
		.verify = o->verify,
		.may_miss = o->delete_ratio > 0 || o->serve > 0,
	};
	kv_work_ratios(&r->work, o->read_ratio, puts);
	if (app_keys_init(&r->work.keys, (enum app_dist)o->dist, keys_total(r), o->skew, o->seed) !=
		0)
		return app_fail("no memory for the distribution of %u keys; give fewer --keys",
			keys_total(r));
	return 0;
}

static enum crpc_idle_policy
idle_policy(const struct kv_rank *r)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (r->opt.idle == KV_IDLE_POLL)
		return CRPC_IDLE_POLL;
	if (r->opt.idle == KV_IDLE_YIELD || r->shared)
		return CRPC_IDLE_YIELD;
	/* Client processes need a core too. */
	return r->opt.serve != 0 && CPU_COUNT(&r->cores) >= online ? CRPC_IDLE_YIELD
								   : CRPC_IDLE_POLL;
}

/* Lcores for client loops: all but the daemon's, at most one per client. */
static uint32_t
assign_lcores(struct kv_rank *r, unsigned int *lcore)
{
	uint32_t n = 0, max = (uint32_t)crpc_min(r->opt.clients, KV_LOOPS_MAX);
	unsigned int id;

	if (r->opt.clients == 0)
		return 0;
	if (!r->opt.colocate)
		RTE_LCORE_FOREACH_WORKER(id)
	if (n < max)
		lcore[n++] = id;
	r->run.colocated = n == 0;
	if (n == 0)
		lcore[n++] = rte_get_main_lcore();
	return n;
}

static int
start_clients(struct kv_rank *r)
{
	struct crpc_ipc_client_conf conf = {.server = r->daemon->ipc};
	uint32_t i, n, from, to, clients = (uint32_t)r->opt.clients;
	unsigned int lcore[KV_LOOPS_MAX];
	struct kv_worker *w;
	int rc;

	n = assign_lcores(r, lcore);
	if (n == 0)
		return 0;
	w = aligned_alloc(CRPC_CACHE_GUARD, n * sizeof(*w));
	if (w == NULL)
		return app_fail("no memory for the clients; give fewer --clients");
	memset(w, 0, n * sizeof(*w));
	r->run.worker = w;
	for (i = 0; i < n; i++, r->run.workers++) {
		from = i * clients / n;
		to = (i + 1) * clients / n;
		w[i].run = &r->run;
		w[i].lcore = lcore[i];
		w[i].idle.policy = r->run.idle.policy;
		rc = kv_loop_init(
			&w[i].loop, &r->work, &conf, to - from, 1 + r->boot.rank * clients + from);
		if (rc != 0) {
			r->run.workers = i + 1;
			return app_fail("cannot connect client %u: %s (%s); give fewer --clients",
				from, strerror(-rc), crpc_log_last());
		}
	}
	return 0;
}

int
kv_rank_connect(struct kv_rank *r)
{
	int rc = fill_work(r);

	r->run.opt = &r->opt;
	r->run.boot = &r->boot;
	r->run.daemon = r->daemon;
	r->run.idle.policy = idle_policy(r);
	if (rc == 0 && r->daemon->net != NULL)
		rc = kv_net_connect(r->daemon->net, &r->boot);
	if (rc == 0)
		rc = start_clients(r);
	return rc;
}

void
kv_rank_result(const struct kv_rank *r, struct kv_result *out)
{
	const struct kv_run *run = &r->run;
	uint32_t i;

	*out = (struct kv_result){
		.size = sizeof(*out),
		.rank = r->boot.rank,
		.qd = (uint32_t)r->opt.qd,
		.interrupted = run->interrupted,
		.lost_peers = run->lost_at_end,
		.net = run->net,
		.served = r->daemon->stats.local + r->daemon->stats.served,
		.rss_kib = app_env_rss_kib(),
		.yields = run->idle.yields,
		.turns = r->daemon->stats.turns,
		.busy_turns = r->daemon->stats.busy,
		.away_pct = run->away_pct,
	};
	snprintf(out->lcores, sizeof(out->lcores), "%s", r->lcores);
	snprintf(out->device, sizeof(out->device), "%s", r->net_open ? r->net.device : "");
	for (i = 0; i < run->workers; i++)
		kv_result_add_loop(out, &run->worker[i].loop);
	if (run->workers == 0)
		out->window_ns = run->window_to - run->window_from;
	kv_result_slices(out, run->slice, run->slices);
}

void
kv_rank_close(struct kv_rank *r)
{
	uint32_t i;

	for (i = 0; i < r->run.workers; i++)
		kv_loop_fini(&r->run.worker[i].loop);
	free(r->run.worker);
	free(r->run.slice);
	app_keys_fini(&r->work.keys);
	if (r->daemon != NULL) {
		crpc_ipc_server_free(r->daemon->ipc);
		kv_store_free(r->daemon->store);
	}
	if (r->net_open)
		kv_net_close(&r->net);
	free(r->daemon);
	r->daemon = NULL;
}
