/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_lcore.h"
#include "crpc_log.h"
#include "map.h"

/* Clients that one daemon is home of, at most: the same for all, as all rings must be. */
static uint32_t
homed(const struct kv_rank *r)
{
	return kv_home_max((uint32_t)r->opt.clients, r->daemons) + (uint32_t)r->opt.serve;
}

static uint32_t
resp_max(const struct kv_rank *r)
{
	return (uint32_t)(sizeof(struct kv_resp_hdr) + r->opt.value_size);
}

unsigned int
kv_rank_lcore(const struct kv_rank *r, uint32_t daemon)
{
	uint32_t i;

	for (i = 0; i < r->seats; i++)
		if (daemon >= r->place[i].daemon_from && daemon < r->place[i].daemon_to)
			return r->lcore[i];
	return rte_get_main_lcore();
}

void
kv_rank_segment_name(
	const struct kv_rank *r, uint32_t attempt, uint32_t daemon, char *buf, size_t len)
{
	size_t used;

	if (r->opt.name == NULL)
		used = (size_t)snprintf(buf, len, "benchkv.%u.%u", attempt, r->boot.rank);
	else if (r->boot.size == 1 && r->daemons == 1)
		used = (size_t)snprintf(buf, len, "%s", r->opt.name);
	else
		used = (size_t)snprintf(buf, len, "%s.%u", r->opt.name, r->boot.rank);
	if (r->daemons > 1 && used < len)
		snprintf(buf + used, len - used, ".%u", daemon);
}

/*
 * Without a name from the user: the first number that no living run has. So a killed run's leftover
 * is replaced by the next run, and several runs fit one host.
 */
static struct crpc_ipc_server *
create_segment(struct kv_rank *r, uint32_t daemon, struct crpc_ipc_server_conf *conf, char *name,
	size_t len)
{
	struct crpc_ipc_server *ipc;
	uint32_t i, attempts = r->opt.name == NULL ? KV_SEGMENT_ATTEMPTS : 1;

	for (i = 0; i < attempts; i++) {
		kv_rank_segment_name(r, i, daemon, name, len);
		crpc_log_clear();
		ipc = crpc_ipc_server_create(conf);
		if (ipc != NULL || (errno != EADDRINUSE && errno != EACCES))
			return ipc;
	}
	return NULL;
}

static int
open_segment(struct kv_rank *r, uint32_t daemon)
{
	bool all = r->opt.route == KV_ROUTE_CLIENT && r->daemons > 1;
	char name[256];
	struct crpc_ipc_server_conf conf = {
		.name = name,
		.max_clients = all ? (uint32_t)(r->opt.clients + r->opt.serve) : homed(r),
		.depth = kv_rank_depth(r),
		.req_max = (uint32_t)crpc_min(kv_rank_req_max(r), KV_REQ_MAX),
		.resp_max = (uint32_t)crpc_max(crpc_min(resp_max(r), KV_RESP_MAX),
			sizeof(struct kv_resp_hdr) + sizeof(struct kv_info)),
		.arena = r->daemon[daemon]->blocks.cache,
	};

	r->daemon[daemon]->ipc = create_segment(r, daemon, &conf, name, sizeof(name));
	if (r->daemon[daemon]->ipc == NULL)
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
open_net(struct kv_rank *r, uint32_t daemon)
{
	struct kv_net_conf conf = {
		.device = r->opt.device,
		.flush = r->opt.flush == KV_FLUSH_COMPARE
			? CRPC_COPYRPC_CLOCKED
			: (enum crpc_copyrpc_flush_policy)r->opt.flush,
		.hold_ns = (uint64_t)(r->opt.hold_us * 1e3),
		.daemon = daemon,
		.daemons = r->daemons,
		.by_number = r->opt.delegate == KV_DELEGATE_FLUX,
		.max_inflight = homed(r) * kv_rank_depth(r),
		.req_max = kv_rank_req_max(r),
		.resp_max = resp_max(r),
		.large = kv_rank_large(r),
		.fate = &r->fate,
	};
	int rc;

	if (!r->backend->passes)
		return 0;
	/* A single rank has no peer; a device that was named is checked all the same. */
	if (r->boot.size == 1 && r->opt.device == NULL)
		return 0;
	rc = kv_net_open(&r->net[daemon], &r->boot, &conf);
	if (rc == 0 && r->boot.size > 1)
		r->daemon[daemon]->net = &r->net[daemon];
	if (rc == 0)
		snprintf(r->device, sizeof(r->device), "%s", r->net[daemon].device);
	return rc;
}

/* The flux between the daemons. What other ranks may send us counts too if we pass it on. */
static int
open_hops(struct kv_rank *r)
{
	uint32_t calls = homed(r) * kv_rank_depth(r), i,
		 msg = (uint32_t)crpc_max(kv_rank_req_max(r), resp_max(r));
	struct crpc_flux_attr attr;
	struct kv_hop_conf conf = {.daemons = r->daemons, .msg_max = msg};
	int rc = 0;

	if (r->daemons == 1 || !r->backend->passes)
		return 0;
	conf.calls = r->opt.delegate == KV_DELEGATE_FLUX
		? calls + (r->boot.size - 1) * kv_net_inflight(calls)
		: calls;
	attr = kv_hop_flux_attr(r->daemons, conf.calls, msg);
	crpc_log_clear();
	r->flux = crpc_flux_create(&attr);
	conf.flux = r->flux;
	if (r->flux == NULL)
		rc = -errno;
	for (i = 0; i < r->daemons && rc == 0; i++) {
		conf.daemon = i;
		kv_map_near(kv_rank_lcore(r, i));
		rc = kv_hop_open(&r->hop[i], &conf);
		r->daemon[i]->hop = &r->hop[i];
	}
	for (i = 0; i < r->daemons && rc == 0; i++)
		rc = kv_hop_connect(&r->hop[i], i);
	if (rc == 0)
		return 0;
	return app_fail("cannot connect the %u daemons of a rank with each other: %s (%s); give "
			"fewer --daemons or --clients",
		r->daemons, strerror(-rc), crpc_log_last());
}

static struct kv_daemon *
create_daemon(struct kv_rank *r, uint32_t i, uint32_t part)
{
	uint32_t ranks = r->boot.size, self = r->boot.rank * r->daemons + i;
	struct kv_daemon *d =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*d), CRPC_CACHE_GUARD));

	if (d == NULL)
		return NULL;
	*d = (struct kv_daemon){
		.self = self,
		.first = r->boot.rank * r->daemons,
		.daemons = r->daemons,
		.owners = kv_rank_owners(r),
		.relay = r->opt.delegate == KV_DELEGATE_FLUX && r->daemons > 1,
		.key_size = (uint32_t)r->opt.key_size,
		.key_min = r->opt.key_sizes.min,
		.value_size = (uint32_t)r->opt.value_size,
		.fate = &r->fate,
	};
	/*
	 * Writer ids: 0 loads, then the clients of all ranks, then equal parts for client
	 * processes.
	 */
	d->info = (struct kv_info){
		.ranks = ranks,
		.rank = r->boot.rank,
		.daemons = r->daemons,
		.daemon = i,
		.keys = kv_rank_keys(r),
		.key_size = d->key_size,
		.value_size = d->value_size,
		.writer = 1 + ranks * (uint32_t)r->opt.clients + self * part,
		.writers = 1 + ranks * (uint32_t)r->opt.clients + kv_rank_owners(r) * part,
		.preloaded = r->opt.restore == NULL && r->opt.ttl_ms == 0 && !r->opt.empty,
	};
	d->writer_first = d->info.writer;
	d->writer_end = d->info.writer + part;
	return d;
}

/* Give every daemon and client its lcore. */
static void
take_seats(struct kv_rank *r)
{
	uint32_t n = 0, i;
	int node[KV_SEATS_MAX];
	unsigned int id;

	r->lcore[n++] = rte_get_main_lcore();
	RTE_LCORE_FOREACH_WORKER(id)
	if (n < KV_SEATS_MAX)
		r->lcore[n++] = id;
	for (i = 0; i < n; i++)
		node[i] = (int)kv_map_node(r->lcore[i]);
	r->seats = kv_place(
		r->place, n, r->daemons, (uint32_t)r->opt.clients, r->opt.colocate);
	kv_place_order(r->lcore, node, n, kv_map_device_node(r->opt.device), r->seats, r->daemons,
		r->opt.numa_isolate);
	if (!r->opt.numa_isolate)
		return;
	for (i = r->daemons; i < r->seats && node[i] != node[0]; i++)
		;
	if (i < r->seats || r->seats <= r->daemons)
		app_note("rank %u: --numa-isolate: too few lcores on other NUMA nodes than the "
			 "daemons'; give more with -l",
			r->boot.rank);
}

int
kv_rank_open(struct kv_rank *r)
{
	uint32_t used, part, i;
	int rc = 0;

	memset(&r->fate, 0, sizeof(r->fate));
	r->daemons = (uint32_t)r->opt.daemons;
	r->backend = kv_backend(r->opt.backend);
	if (r->backend->package != NULL)
		return app_fail("backend %s is not built in; install %s, set the build folder up "
				"again and build, or choose another --backend",
			r->backend->name, r->backend->package);
	if (!r->backend->ipc && r->opt.serve != 0)
		return app_fail("--serve: clients of other processes need ipc, which backend %s "
				"does not have; take --backend copyrpc",
			r->backend->name);
	if (!r->backend->ipc && kv_rank_large(r))
		return app_fail("--value-size: values above %d bytes need ipc, which backend %s "
				"does not have; take --backend copyrpc",
			KV_VALUE_INLINE, r->backend->name);
	if (kv_rank_large(r) && r->opt.serve != 0 && r->opt.name == NULL)
		return app_fail("--serve with values above %d bytes needs a --name, by which "
				"clients find them",
			KV_VALUE_INLINE);
	take_seats(r);
	used = 1 + r->boot.size * (uint32_t)r->opt.clients;
	part = r->opt.serve == 0 ? 0 : (KV_WRITERS_MAX - used) / kv_rank_owners(r);
	for (i = 0; i < r->daemons && rc == 0; i++) {
		kv_map_near(kv_rank_lcore(r, i));
		r->daemon[i] = create_daemon(r, i, part);
		rc = r->daemon[i] == NULL
			? app_fail("no memory for the daemons; free some and start again")
			: open_net(r, i);
	}
	if (rc == 0)
		rc = open_hops(r);
	if (rc == 0)
		rc = kv_rank_open_stores(r);
	for (i = 0; i < r->daemons && rc == 0 && r->backend->ipc; i++) {
		kv_map_near(kv_rank_lcore(r, i));
		rc = open_segment(r, i);
	}
	kv_map_near_end();
	for (i = 0; i < r->daemons && rc == 0 && kv_rank_large(r); i++)
		crpc_arena_hand_over(r->daemon[i]->blocks.cache); /* to its lcore */
	if (rc == 0 && kv_live_start(r->boot.rank, r->daemons) != 0)
		app_note("rank %u: telemetry refused /crpc/benchkv/stats; the run goes on without",
			r->boot.rank);
	return rc;
}

static int
fill_work(struct kv_rank *r)
{
	const struct kv_options *o = &r->opt;
	double puts = 1 - o->read_ratio - o->delete_ratio;

	r->work = (struct kv_work){
		.rank = r->boot.rank,
		.owners = kv_rank_owners(r),
		.first = r->boot.rank * r->daemons,
		.daemons = r->daemons,
		.key_size = (uint32_t)o->key_size,
		.key_sizes = o->key_sizes,
		.value_size = (uint32_t)o->value_size,
		.sizes = o->sizes,
		.qd = (uint32_t)o->qd,
		.writers = r->daemon[0]->info.writers,
		.seed = o->seed,
		.gap_ns = o->rate > 0 ? (double)o->clients * 1e9 / o->rate : 0,
		.latest = o->dist == APP_DIST_LATEST,
		.scan = (uint32_t)o->scan,
		.rmw = o->rmw,
		.cas = o->cas,
		.ttl_ms = o->ttl_ms,
		.verify = o->verify,
		.may_miss = o->delete_ratio > 0 || o->serve > 0 || o->ttl_ms > 0 || o->empty ||
			o->restore != NULL,
		.may_refuse = o->serve > 0 || o->empty || o->capacity != 0 || o->memory_mib != 0 ||
			o->restore != NULL || o->value_size > KV_VALUE_INLINE,
		.restored = o->restore != NULL,
	};
	kv_work_ratios(&r->work, o->read_ratio, puts);
	if (app_keys_init(
		    &r->work.keys, (enum app_dist)o->dist, kv_rank_keys(r), o->skew, o->seed) != 0)
		return app_fail("no memory for the distribution of %u keys; give fewer --keys",
			kv_rank_keys(r));
	return 0;
}

static enum crpc_idle_policy
idle_policy(const struct kv_rank *r)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (r->opt.idle == KV_IDLE_POLL)
		return CRPC_IDLE_POLL;
	/* Another rank, or another lcore of ours, uses the same core. */
	if (r->opt.idle == KV_IDLE_YIELD || r->shared || CPU_COUNT(&r->cores) < (int)r->seats)
		return CRPC_IDLE_YIELD;
	/* Client processes need a core too. */
	return r->opt.serve != 0 && CPU_COUNT(&r->cores) >= online ? CRPC_IDLE_YIELD
								   : CRPC_IDLE_POLL;
}

/* Connect one client: to its home, or to all daemons of the rank. */
static int
join_client(struct kv_rank *r, const struct kv_place *place, struct kv_loop *loop, uint32_t i)
{
	struct crpc_ipc_client_conf conf[KV_DAEMONS_MAX] = {0};
	uint32_t clients = (uint32_t)r->opt.clients, client = place->client_from + i, k, conns;
	uint32_t home = kv_home(client, clients, r->daemons);
	int rc;

	for (k = 0; k < r->daemons; k++) {
		conf[k].server = r->daemon[k]->ipc;
		conf[k].arena = loop->blocks[k].cache;
		conf[k].colocated = k >= place->daemon_from && k < place->daemon_to;
	}
	conns = r->opt.route == KV_ROUTE_CLIENT ? r->daemons : 1;
	if (!r->backend->ipc)
		conns = 0;
	rc = kv_loop_join(loop, i, conns > 1 ? conf : &conf[home], conns, r->work.first + home,
		1 + r->boot.rank * clients + client);
	if (rc != 0)
		return app_fail("cannot connect client %u: %s (%s); give fewer --clients", client,
			strerror(-rc), crpc_log_last());
	return 0;
}

/* The history begins with what the stores were loaded with; one file has that. */
static void
record_load(const struct kv_rank *r, struct kv_records *records)
{
	static const struct kv_resp_hdr done = {.status = KV_OK};
	struct app_history_op op = {.kind = APP_HISTORY_PUT};

	for (op.key = 0; op.key < kv_rank_keys(r) && op.key < records->keys; op.key++) {
		op.value = kv_word((uint32_t)op.key, 0, 1);
		kv_records_answer(records, kv_records_call(records, &op), &done, 0);
	}
}

/* --history: a file for the clients of each lcore. */
static int
open_records(struct kv_rank *r, struct kv_seat *s)
{
	struct kv_records *records = &r->records[s - r->run.seat];
	char path[PATH_MAX];
	int rc;

	if (r->opt.history == NULL || s->loop.n == 0)
		return 0;
	snprintf(path, sizeof(path), "%s.%u.%u", r->opt.history, r->boot.rank, s->lcore);
	rc = kv_records_open(records, path, r->opt.history_ops, (uint32_t)r->opt.history_keys);
	if (rc != 0)
		return app_fail("--history: cannot make %s of %llu MiB: %s; give another PATH, or "
				"fewer --history-ops",
			path, (unsigned long long)(r->opt.history_ops * sizeof(*records->op) >> 20),
			strerror(-rc));
	s->loop.records = records;
	s->loop.plain = false;
	if (r->boot.rank == 0 && !r->recorded_load)
		record_load(r, records);
	r->recorded_load = true;
	return 0;
}

int
kv_rank_history_end(struct kv_rank *r)
{
	uint64_t lost = 0;
	uint32_t i;

	for (i = 0; i < r->run.seats; i++) {
		r->run.seat[i].loop.records = NULL;
		lost += kv_records_close(&r->records[i]);
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
	uint32_t i, n = place->client_to - place->client_from;
	int rc = 0;

	s->run = &r->run;
	s->daemon = &r->daemon[place->daemon_from];
	s->daemons = place->daemon_to - place->daemon_from;
	s->idle.policy = idle_policy(r);
	s->loop.link = r->wire.link[place - r->place];
	s->loop.passes = r->backend->passes;
	if (kv_loop_init(&s->loop, &r->work, n) != 0)
		return app_fail("no memory for the clients; give fewer --clients");
	rc = open_records(r, s);
	for (i = 0; i < r->daemons && n != 0 && rc == 0 && kv_rank_large(r); i++)
		if (crpc_kv_blocks_join(&s->loop.blocks[i], &r->daemon[i]->blocks) != 0)
			rc = app_fail("the clients of lcore %u cannot join the arena of daemon "
				      "%u: %s (%s)",
				s->lcore, i, strerror(errno), crpc_log_last());
	for (i = 0; i < n && rc == 0; i++)
		rc = join_client(r, place, &s->loop, i);
	return rc;
}

static int
fill_seats(struct kv_rank *r)
{
	uint32_t i;
	int rc = 0;

	r->run.seat = aligned_alloc(CRPC_CACHE_GUARD, r->seats * sizeof(*r->run.seat));
	if (r->run.seat == NULL)
		return app_fail("no memory for the clients; give fewer --clients");
	memset(r->run.seat, 0, r->seats * sizeof(*r->run.seat));
	r->run.seats = r->seats;
	for (i = 0; i < r->seats && rc == 0; i++) {
		r->run.seat[i].lcore = r->lcore[i];
		rc = fill_seat(r, &r->run.seat[i], &r->place[i]);
	}
	return rc;
}

/* The ends of a backend that has some. */
static int
open_wire(struct kv_rank *r)
{
	struct kv_end_conf conf = {
		.opt = &r->opt,
		.fate = &r->fate,
		.req_max = kv_rank_req_max(r),
		.resp_max = resp_max(r),
	};
	uint32_t i;
	int rc;

	if (r->backend->ipc)
		return 0;
	rc = kv_backend_open(&r->wire, &r->boot, &conf, r->place, r->seats);
	for (i = 0; i < r->daemons && rc == 0; i++) {
		r->daemon[i]->port = r->wire.port[i];
		r->daemon[i]->link_first = r->backend->passes ? 0 : r->wire.first_link;
		r->daemon[i]->links = r->wire.links;
	}
	if (rc == 0 && r->backend->device != NULL)
		snprintf(r->device, sizeof(r->device), "%s",
			r->backend->device(r->wire.port[0]));
	return rc == 0 ? kv_backend_connect(&r->wire) : rc;
}

static int
connect_net(struct kv_rank *r)
{
	uint32_t i;
	int rc = 0;

	if (r->boot.size == 1 || !r->backend->passes)
		return 0;
	for (i = 0; i < r->daemons && rc == 0; i++)
		rc = kv_net_publish(&r->net[i], &r->boot);
	if (rc == 0)
		rc = app_boot_fence(&r->boot, KV_NET_EXCHANGE_MS);
	if (rc != 0)
		return app_fail(
			"the ranks could not exchange addresses: %s; start again", strerror(-rc));
	for (i = 0; i < r->daemons && rc == 0; i++)
		rc = kv_net_connect(&r->net[i], &r->boot);
	return rc;
}

int
kv_rank_connect(struct kv_rank *r)
{
	int rc = fill_work(r);

	r->run.opt = &r->opt;
	r->run.boot = &r->boot;
	r->run.fate = &r->fate;
	r->run.clients = (uint32_t)r->opt.clients;
	if (rc == 0)
		rc = kv_rank_restored(r);
	if (rc == 0)
		rc = connect_net(r);
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
	struct kv_daemon_counts c;
	unsigned int lcore;
	uint32_t i;

	for (i = 0; i < r->daemons; i++) {
		c = r->daemon[i]->counts;
		lcore = kv_rank_lcore(r, i);
		c.lcore = lcore;
		c.cpu = kv_map_cpu(lcore);
		c.node = (int32_t)kv_map_node(lcore);
		c.clients = kv_home_first(i + 1, r->run.clients, r->daemons) -
			kv_home_first(i, r->run.clients, r->daemons);
		c.keys = r->daemon[i]->keys;
		c.peers = r->net[i].peers;
		kv_result_add_daemon(out, &c, &r->daemon[i]->net_counts);
	}
}

void
kv_rank_result(const struct kv_rank *r, struct kv_result *out)
{
	const struct kv_run *run = &r->run;
	uint32_t i, k;

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
	add_daemons(r, out);
	for (i = 0; i < run->seats; i++) {
		kv_result_add_loop(out, &run->seat[i].loop);
		if (r->wire.link[i] != NULL)
			r->backend->counts(r->wire.link[i], &out->net);
		out->yields += run->seat[i].idle.yields;
		for (k = 0; k < APP_PAUSES && run->seat[i].daemons != 0; k++)
			if (run->seat[i].pause_over[k] > out->pause_over[k])
				out->pause_over[k] = run->seat[i].pause_over[k];
		if (run->seat[i].daemons != 0 && run->seat[i].away_pct > out->away_pct)
			out->away_pct = run->seat[i].away_pct;
		for (k = 0; k < APP_COUNTERS; k++)
			out->counter[k] += run->seat[i].counter[k];
		if (run->seat[i].perf_rc != 0)
			out->counters_rc = run->seat[i].perf_rc;
	}
	if (run->slice != NULL && kv_run_compares(run->opt))
		kv_result_compare(out, run->slice, run->slice_kind, run->slices);
	kv_result_slices(out, run->slice, run->slices);
}

void
kv_rank_close(struct kv_rank *r)
{
	uint32_t i;

	for (i = 0; i < r->run.seats; i++)
		kv_loop_fini(&r->run.seat[i].loop);
	free(r->run.seat);
	free(r->run.slice);
	free(r->run.slice_kind);
	app_keys_fini(&r->work.keys);
	kv_backend_close(&r->wire);
	for (i = 0; i < r->daemons; i++) {
		if (r->daemon[i] == NULL)
			continue;
		if (r->daemon[i]->blocks.cache != NULL)
			crpc_arena_hand_over(r->daemon[i]->blocks.cache);
		crpc_ipc_server_free(r->daemon[i]->ipc);
		kv_store_free(r->daemon[i]->store);
		crpc_kv_blocks_close(&r->daemon[i]->blocks);
		kv_hop_close(&r->hop[i]);
		kv_net_close(&r->net[i]);
		kv_snapshot_release(&r->snapshot[i]);
		free(r->daemon[i]);
	}
	crpc_flux_free(r->flux);
	/*
	 * As before kv_rank_open(), for the next run of a sweep; what happened to it can be asked.
	 */
	memset(r->daemon, 0, sizeof(r->daemon));
	r->flux = NULL;
	r->work = (struct kv_work){0};
	memset(&r->run, 0, sizeof(r->run));
	r->daemons = 0;
}
