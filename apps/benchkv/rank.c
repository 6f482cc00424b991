/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "app_driver.h"
#include "app_lcore.h"
#include "crpc_clock.h"
#include "crpc_mem.h"
#include "map.h"

unsigned int
kv_rank_lcore(const struct kv_rank *r, uint32_t daemon)
{
	for (uint32_t i = 0; i < r->seats; i++)
		if (daemon >= r->place[i].daemon_from && daemon < r->place[i].daemon_to)
			return r->lcore[i];
	return rte_get_main_lcore();
}

/* Count the keys that each daemon owns. @return the most that one has. */
static uint32_t
keys_count(struct kv_rank *r)
{
	uint32_t key_len = (uint32_t)r->opt.key_size, most = 1, mate;
	uint8_t key[CRPC_KV_KEY_MAX];

	memset(r->keys, 0, sizeof(r->keys));
	for (uint32_t id = 0; id < kv_rank_keys(r); id++) {
		kv_key_write(key, key_len, id);
		mate = kv_owner(kv_hash(key, key_len), kv_rank_owners(r)) -
			r->boot.rank * r->daemons;
		if (mate < r->daemons)
			most = (uint32_t)crpc_max(most, ++r->keys[mate]);
	}
	return most;
}

/* Every key exists from the start: written by writer 0. */
static int
load_stores(struct kv_rank *r)
{
	uint8_t key[CRPC_KV_KEY_MAX], *value = malloc(r->opt.value_size);
	uint32_t len, key_len = (uint32_t)r->opt.key_size;
	int rc = value == NULL ? -ENOMEM : 0;

	crpc_kv_server_version_begin(r->service, app_kv_version());
	for (uint32_t id = 0; id < kv_rank_keys(r) && rc == 0; id++) {
		kv_key_write(key, key_len, id);
		if (!crpc_kv_server_owns(r->service, key, key_len))
			continue;
		len = app_sizes_of(&r->opt.sizes, app_word(id, 0, 1));
		app_value_fill(value, len, app_word(id, 0, 1));
		rc = crpc_kv_server_load(r->service, key, key_len, value, len);
	}
	free(value);
	return rc == 0 ? 0
		       : app_fail("%u keys do not fit the stores: %s; give fewer --keys",
				 kv_rank_keys(r), strerror(-rc));
}

/* The service's sizes, as all ranks have them. */
static void
fill_conf(struct kv_rank *r)
{
	const struct kv_options *o = &r->opt;
	/* Of one daemon at most: the same for all, as all rings must be. */
	uint32_t homed = kv_home_max((uint32_t)o->clients, r->daemons);
	bool all = o->route == KV_ROUTE_CLIENT && r->daemons > 1;

	r->conf = (struct crpc_kv_server_conf){
		.rank = r->boot.rank,
		.ranks = r->boot.size,
		.daemons = r->daemons,
		.key_size = (uint32_t)o->key_size,
		.value_max = (uint32_t)o->value_size,
		.capacity = keys_count(r),
		.clients = all ? (uint32_t)o->clients : homed,
		.depth = (uint32_t)o->qd,
		.calls = homed * (uint32_t)o->qd,
		.plain = !o->cas && o->ttl_ms == 0,
		.huge = true,
		.device = o->device,
		.link = {.transport = (enum crpc_rdma_transport)o->transport,
			.flow = (enum crpc_copyrpc_flow)o->flow},
		.flush = (enum crpc_copyrpc_flush_policy)o->flush,
		.hold_ns = (uint64_t)(o->hold_us * 1e3),
		.timeout_ns = kv_timeout_ns(&r->boot),
		.by_number = o->delegate == KV_DELEGATE_FLUX,
		.keys = kv_rank_keys(r),
	};
	if (r->backend->ipc)
		return;
	r->conf.clients = 0;
	r->conf.front = &r->backend->front;
}

/* Without a name from the user: one that no other process of this host has. */
static struct crpc_kv_server *
create_service(struct kv_rank *r)
{
	struct crpc_mem_place place[CRPC_KV_DAEMONS_MAX];
	struct crpc_kv_server *s;
	char name[32];

	for (uint32_t i = 0; i < r->daemons; i++)
		place[i] = (struct crpc_mem_place){.node = (int)kv_map_node(kv_rank_lcore(r, i)),
			.lcore = (int)kv_rank_lcore(r, i)};
	r->conf.place = place;
	r->conf.name = r->opt.name == NULL ? name : r->opt.name;
	if (r->opt.name == NULL)
		crpc_shm_sweep(NULL, "benchkv."); /* Of runs that were killed. */
	snprintf(name, sizeof(name), "benchkv.%ld", (long)getpid());
	crpc_log_clear();
	s = crpc_kv_server_create(&r->conf);
	r->conf.place = NULL;
	return s;
}

static int
open_service(struct kv_rank *r)
{
	struct crpc_kv_parts parts;
	struct crpc_rdma_info info;

	fill_conf(r);
	r->service = create_service(r);
	if (r->service == NULL && (errno == ENODEV || errno == ENOENT))
		return app_device_fail(r->opt.device);
	if (r->service == NULL)
		return app_fail("cannot make the service%s%s: %s (%s)",
			r->opt.name == NULL ? "" : " ", r->opt.name == NULL ? "" : r->opt.name,
			strerror(errno), crpc_log_last());
	for (uint32_t i = 0; i < r->daemons; i++) {
		r->daemon[i] = crpc_kv_server_daemon(r->service, i);
		crpc_kv_daemon_parts(r->daemon[i], &parts);
		if (parts.device != NULL) {
			crpc_rdma_info_get(parts.device, &info);
			snprintf(r->device, sizeof(r->device), "%s", info.name);
			snprintf(r->driver, sizeof(r->driver), "%s", info.driver);
		}
	}
	return load_stores(r);
}

/* Give every daemon and client its lcore. */
static void
take_seats(struct kv_rank *r)
{
	uint32_t n = 0;
	int node[KV_SEATS_MAX];
	unsigned int id;

	r->lcore[n++] = rte_get_main_lcore();
	RTE_LCORE_FOREACH_WORKER(id)
	if (n < KV_SEATS_MAX)
		r->lcore[n++] = id;
	for (uint32_t i = 0; i < n; i++)
		node[i] = (int)kv_map_node(r->lcore[i]);
	r->seats = kv_place(
		r->place, n, r->daemons, (uint32_t)r->opt.clients, r->opt.colocate);
	kv_place_order(r->lcore, node, n, kv_map_device_node(r->opt.device));
}

int
kv_rank_open(struct kv_rank *r)
{
	int rc;

	r->disturbed = false;
	r->daemons = (uint32_t)r->opt.daemons;
	r->backend = kv_backend(r->opt.backend);
	if (r->backend->package != NULL)
		return app_fail("backend %s is not built in; install %s, set the build folder up "
				"again and build, or choose another --backend",
			r->backend->name, r->backend->package);
	if (!r->backend->ipc && kv_rank_large(r))
		return app_fail("--value-size: values above %d bytes need ipc, which backend %s "
				"does not have; take --backend copyrpc",
			CRPC_KV_VALUE_INLINE, r->backend->name);
	take_seats(r);
	rc = r->boot.size == 1 && r->backend->front.passes ? app_driver_check(r->opt.device, NULL)
							   : app_driver_choose();
	if (rc == 0)
		rc = open_service(r);
	if (rc == 0 && crpc_kv_tel_start("/crpc/benchkv/stats", r->boot.rank, r->daemons) != 0)
		app_note("rank %u: telemetry refused /crpc/benchkv/stats; the run goes on without",
			r->boot.rank);
	return rc;
}

static int
fill_work(struct kv_rank *r)
{
	const struct kv_options *o = &r->opt;

	r->load_conf = (struct app_load_conf){
		.owners = kv_rank_owners(r),
		.first = r->boot.rank * r->daemons,
		.daemons = r->daemons,
		.key_size = (uint32_t)o->key_size,
		.value_size = (uint32_t)o->value_size,
		.sizes = o->sizes,
		.writers = 1 + r->boot.size * (uint32_t)o->clients,
		.may_miss = o->delete_ratio > 0 || o->ttl_ms > 0,
		.may_refuse = kv_rank_large(r),
	};
	if (kv_options_load(o, &r->load_conf, kv_rank_keys(r)) != 0)
		return app_fail("no memory for the distribution of %u keys; give fewer --keys",
			kv_rank_keys(r));
	return 0;
}

/* Connect one client: to its home, or to all daemons of the rank. */
static int
join_client(struct kv_rank *r, const struct kv_place *place, struct app_load *loop, uint32_t i)
{
	struct crpc_ipc_client_conf conf[CRPC_KV_DAEMONS_MAX] = {0};
	struct crpc_kv_parts parts;
	uint32_t clients = (uint32_t)r->opt.clients, client = place->client_from + i, conns;
	uint32_t home = kv_home(client, clients, r->daemons);
	int rc;

	for (uint32_t k = 0; k < r->daemons; k++) {
		crpc_kv_daemon_parts(r->daemon[k], &parts);
		conf[k].server = parts.ipc;
		conf[k].arena = loop->blocks[k].cache;
	}
	conns = r->opt.route == KV_ROUTE_CLIENT ? r->daemons : 1;
	if (!r->backend->ipc)
		conns = 0;
	rc = app_load_join(loop, i, conns > 1 ? conf : &conf[home], conns,
		r->load_conf.first + home, 1 + r->boot.rank * clients + client);
	if (rc != 0)
		return app_fail("cannot connect client %u: %s (%s); give fewer --clients", client,
			strerror(-rc), crpc_log_last());
	return 0;
}

/* The history begins with what the stores were loaded with; one file has that. */
static void
record_load(const struct kv_rank *r, struct app_records *records)
{
	static const struct kv_resp_hdr done = {.status = CRPC_KV_OK};
	struct app_history_op op = {.kind = APP_HISTORY_PUT};

	for (op.key = 0; op.key < kv_rank_keys(r) && op.key < records->keys; op.key++) {
		op.value = app_word((uint32_t)op.key, 0, 1);
		app_records_answer(records, app_records_call(records, &op), &done, 0);
	}
}

/* --history: a file for the clients of each lcore. */
static int
open_records(struct kv_rank *r, struct kv_seat *s)
{
	struct app_records *records = &r->records[s - r->run.seat];
	char path[PATH_MAX];
	int rc;

	if (r->opt.history == NULL || s->load.n == 0)
		return 0;
	snprintf(path, sizeof(path), "%s.%u.%u", r->opt.history, r->boot.rank, s->lcore);
	rc = app_records_open(records, path, r->opt.history_ops, (uint32_t)r->opt.history_keys,
		crpc_clock_monotonic_ns);
	if (rc != 0)
		return app_fail("--history: cannot make %s of %llu MiB: %s; give another PATH, or "
				"fewer --history-ops",
			path, (unsigned long long)(r->opt.history_ops * sizeof(*records->op) >> 20),
			strerror(-rc));
	app_load_record(&s->load, records);
	if (r->boot.rank == 0 && !r->recorded_load)
		record_load(r, records);
	r->recorded_load = true;
	return 0;
}

int
kv_rank_history_end(struct kv_rank *r)
{
	uint64_t lost = 0;

	for (uint32_t i = 0; i < r->run.seats; i++) {
		r->run.seat[i].load.records = NULL;
		lost += app_records_close(&r->records[i]);
	}
	if (lost == 0)
		return 0;
	return app_fail_once(
		"--history: %llu operations had no room, so it cannot be checked; give more "
		"--history-ops, a --rate, or fewer --history-keys",
		(unsigned long long)lost);
}

static int
fill_seat(struct kv_rank *r, struct kv_seat *s, const struct kv_place *place)
{
	uint32_t n = place->client_to - place->client_from;
	struct crpc_kv_parts parts;
	int rc = 0;

	for (uint32_t i = place->daemon_from; i < place->daemon_to; i++) {
		crpc_kv_daemon_insight(r->daemon[i], r->opt.insight == KV_INSIGHT_ON);
		for (uint32_t k = i + 1; k < place->daemon_to; k++)
			crpc_kv_daemon_join(r->daemon[i], r->daemon[k]);
	}
	s->run = &r->run;
	s->daemon = &r->daemon[place->daemon_from];
	s->port = &r->wire.port[place->daemon_from];
	s->window = &r->window[place->daemon_from];
	s->daemons = place->daemon_to - place->daemon_from;
	s->idle.policy = app_lcore_idle(r->opt.idle,
		r->shared || CPU_COUNT(&r->cores) < (int)r->seats, &r->cores, false);
	s->load.link = r->wire.link[place - r->place];
	s->load.ops = &r->backend->load;
	if (app_load_init(&s->load, &r->load_conf, n) != 0)
		return app_fail("no memory for the clients; give fewer --clients");
	rc = open_records(r, s);
	for (uint32_t i = 0; i < r->daemons && n != 0 && rc == 0 && kv_rank_large(r); i++) {
		crpc_kv_daemon_parts(r->daemon[i], &parts);
		if (crpc_kv_blocks_join(&s->load.blocks[i], parts.blocks) != 0)
			rc = app_fail("the clients of lcore %u cannot join the arena of daemon "
				      "%u: %s (%s)",
				s->lcore, i, strerror(errno), crpc_log_last());
	}
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = join_client(r, place, &s->load, i);
	return rc;
}

static int
fill_seats(struct kv_rank *r)
{
	int rc = 0;

	r->run.seat = aligned_alloc(CRPC_CACHE_GUARD, r->seats * sizeof(*r->run.seat));
	if (r->run.seat == NULL)
		return app_fail("no memory for the clients; give fewer --clients");
	memset(r->run.seat, 0, r->seats * sizeof(*r->run.seat));
	r->run.seats = r->seats;
	for (uint32_t i = 0; i < r->seats && rc == 0; i++) {
		r->run.seat[i].lcore = r->lcore[i];
		rc = fill_seat(r, &r->run.seat[i], &r->place[i]);
	}
	return rc;
}

/* The ends of a backend that has some. */
static int
open_wire(struct kv_rank *r)
{
	struct app_end_conf conf = {
		.device = r->opt.device,
		.flush = (enum crpc_copyrpc_flush_policy)r->opt.flush,
		.hold_ns = (uint64_t)(r->opt.hold_us * 1e3),
		.daemons = r->daemons,
		.depth = (uint32_t)r->opt.qd,
		.seed = r->opt.seed,
		.ucx_tls = r->opt.ucx_tls,
		.service = r->service,
		.req_max = (uint32_t)(sizeof(struct kv_req_hdr) + r->opt.key_size +
			r->opt.value_size + (r->conf.plain ? 0 : CRPC_KV_EXTRAS_MAX)),
		.resp_max = (uint32_t)(sizeof(struct kv_resp_hdr) + r->opt.value_size),
	};
	int rc;

	if (r->backend->ipc)
		return 0;
	r->wire.backend = r->backend;
	rc = kv_backend_open(&r->wire, &r->boot, &conf, r->place, r->seats);
	for (uint32_t i = 0; i < r->daemons && rc == 0; i++)
		crpc_kv_server_front(r->service, i, r->wire.port[i],
			r->backend->front.passes ? 0 : r->wire.first_link, r->wire.links);
	if (rc == 0 && r->backend->device != NULL)
		snprintf(r->device, sizeof(r->device), "%s",
			r->backend->device(r->wire.port[0]));
	return rc == 0 ? kv_backend_connect(&r->wire) : rc;
}

int
kv_rank_connect(struct kv_rank *r)
{
	int rc = fill_work(r);

	r->run.opt = &r->opt;
	r->run.boot = &r->boot;
	r->run.backend = r->backend;
	r->run.service = r->service;
	if (rc == 0 && r->backend->front.passes)
		rc = app_kv_connect(&r->boot, r->service);
	if (rc == 0)
		rc = open_wire(r);
	if (rc == 0)
		rc = fill_seats(r);
	if (rc == 0 && r->boot.size > 1 && kv_map_publish(r) != 0)
		rc = app_fail("the ranks could not exchange their placement; start again");
	return rc;
}

static void
add_daemons(const struct kv_rank *r, struct kv_result *out)
{
	uint32_t clients = (uint32_t)r->opt.clients;
	struct crpc_kv_parts parts;
	struct kv_daemon_counts c;
	unsigned int lcore;

	for (uint32_t i = 0; i < r->daemons; i++) {
		c = (struct kv_daemon_counts){.of = r->window[i].stats};
		lcore = kv_rank_lcore(r, i);
		c.lcore = lcore;
		c.cpu = (uint32_t)app_eal_core_of(lcore);
		c.node = (int32_t)kv_map_node(lcore);
		c.clients = kv_home_first(i + 1, clients, r->daemons) -
			kv_home_first(i, clients, r->daemons);
		c.keys = r->keys[i];
		crpc_kv_daemon_parts(r->daemon[i], &parts);
		c.peers = parts.endpoints;
		kv_result_add_daemon(out, &c, &r->window[i].net);
	}
}

void
kv_rank_result(const struct kv_rank *r, struct kv_result *out)
{
	const struct kv_run *run = &r->run;

	*out = (struct kv_result){
		.size = sizeof(*out),
		.rank = r->boot.rank,
		.qd = (uint32_t)r->opt.qd,
		.interrupted = run->interrupted,
		.lost_peers = run->lost_at_end,
		.rss_kib = app_env_rss_kib(),
	};
	snprintf(out->lcores, sizeof(out->lcores), "%s", r->lcores);
	snprintf(out->device, sizeof(out->device), "%s", r->device);
	snprintf(out->driver, sizeof(out->driver), "%s", r->driver);
	add_daemons(r, out);
	for (uint32_t i = 0; i < run->seats; i++) {
		kv_result_add_load(out, &run->seat[i].load);
		app_words_add(&out->net, &run->seat[i].link.net, sizeof(out->net), 1);
		for (uint32_t k = 0; k < APP_PAUSES && run->seat[i].daemons != 0; k++)
			if (run->seat[i].pause_over[k] > out->pause_over[k])
				out->pause_over[k] = run->seat[i].pause_over[k];
		if (run->seat[i].away_pct > out->away_pct)
			out->away_pct = run->seat[i].away_pct;
		for (uint32_t k = 0; k < APP_COUNTERS; k++)
			out->counter[k] += run->seat[i].counter[k];
		if (run->seat[i].perf_rc != 0)
			out->counters_rc = run->seat[i].perf_rc;
	}
	kv_result_slices(out, run->slice, run->slices);
}

void
kv_rank_close(struct kv_rank *r)
{
	for (uint32_t i = 0; i < r->run.seats; i++)
		app_load_fini(&r->run.seat[i].load);
	free(r->run.seat);
	free(r->run.slice);
	app_keys_fini(&r->load_conf.keys);
	kv_backend_close(&r->wire);
	r->disturbed = r->service != NULL &&
		(crpc_kv_server_lost(r->service) != 0 || crpc_kv_server_stopped(r->service));
	crpc_kv_server_free(r->service);
	r->service = NULL;
	/* As before kv_rank_open(), for the next run of a sweep. */
	memset(r->daemon, 0, sizeof(r->daemon));
	r->load_conf = (struct app_load_conf){0};
	memset(&r->run, 0, sizeof(r->run));
	r->daemons = 0;
}
