/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "sim.h"

/* Clients of a daemon that is not there try again after this. */
#define DEAD_NS 20000u

/* ---- queues by time ---- */

static bool
queue_init(struct sim_queue *q, uint32_t n)
{
	uint32_t size = (uint32_t)crpc_pow2_ceil(n);

	q->v = calloc(size, sizeof(*q->v));
	q->mask = size - 1;
	return q->v != NULL;
}

/* Most come in order: only a client whose core is busy asks later than another one behind it. */
static void
queue_add(struct sim_queue *q, const struct sim_call *calls, uint32_t n)
{
	const struct sim_call *c;
	uint32_t i;

	for (i = q->tail++; i != q->head; i--) {
		c = &calls[q->v[(i - 1) & q->mask]];
		if (c->at <= calls[n].at || c->state == SIM_CALL_QUEUED)
			break;
		q->v[i & q->mask] = q->v[(i - 1) & q->mask];
	}
	q->v[i & q->mask] = n;
}

static uint64_t
queue_next(const struct sim_queue *q, const struct sim_call *calls)
{
	return q->head == q->tail ? UINT64_MAX : calls[q->v[q->head & q->mask]].at;
}

/* ---- what a turn costs ---- */

void
sim_count_net(struct sim_counts *c, const struct app_end_parts *p)
{
	const struct crpc_rpc_counts *rpc = p->udrpc != NULL ? &crpc_udrpc_stats(p->udrpc)->rpc
							     : &crpc_copyrpc_stats(p->copyrpc)->rpc;
	struct crpc_rdma_stats nic;

	crpc_rdma_stats_get(p->device, &nic);
	c->remote += rpc->calls;
	c->served += rpc->replies;
	c->messages_in += rpc->requests + rpc->completions;
	c->messages_out += rpc->calls + rpc->replies;
	c->batches += p->udrpc != NULL ? crpc_udrpc_stats(p->udrpc)->packets_sent
				       : crpc_copyrpc_stats(p->copyrpc)->batches_sent;
	c->cqes += nic.send_cqes + nic.recv_cqes;
	c->wqes += nic.wqes;
	c->doorbells += nic.doorbells;
}

/* A card that is software works on the daemon's core. */
static bool
card_is_soft(const struct sim_host *h)
{
	return h->world->opt->model.cpu.recv != 0;
}

void
sim_host_count(const struct sim_host *h, struct sim_counts *c)
{
	*c = h->past;
	c->taken += h->now.taken;
	c->answered += h->now.answered;
	c->made += h->now.made;
	c->turns += h->now.turns;
	c->busy += h->now.busy;
	if (h->parts.device != NULL)
		sim_count_net(c, &h->parts);
}

/* A request of a client is served here or sent on. */
uint64_t
sim_cost(const struct sim_host *h, const struct sim_counts *b, const struct sim_counts *c)
{
	bool ring = h->world->opt->backend == SIM_BACKEND_DELEGATION;
	const struct sim_cpu *cpu = &h->world->opt->model.cpu;
	int64_t stores = (int64_t)(c->taken - b->taken + c->served - b->served) -
		(int64_t)(c->remote - b->remote);
	uint64_t turn = card_is_soft(h) ? 0 : cpu->turn;

	return (h->begin < h->slow ? SIM_SLOW : 1) *
		(turn + (stores > 0 ? (uint64_t)stores * cpu->store : 0) +
			(c->taken - b->taken) * (ring ? cpu->ring_in : cpu->client_in) +
			(c->answered - b->answered) * cpu->client_out +
			(c->made - b->made) * cpu->client +
			(c->messages_in - b->messages_in) * cpu->message_in +
			(c->messages_out - b->messages_out) * cpu->message_out +
			(c->cqes - b->cqes) * cpu->cqe + (c->wqes - b->wqes) * cpu->wqe +
			(c->doorbells - b->doorbells) * cpu->doorbell);
}

uint64_t
sim_host_clock(void *arg)
{
	const struct sim_host *h = arg;
	struct sim_counts c = {0};

	sim_host_count(h, &c);
	return (h->free + sim_cost(h, &h->before, &c)) / SIM_PS;
}

/* ---- shared memory: the daemon's front, the clients' link ---- */

static uint64_t
hop(const struct sim_host *h)
{
	return h->world->opt->colocate ? 0 : h->world->opt->model.cpu.hop / SIM_PS;
}

/* Whether the next request is there: that of delegation when its client has had the ring's line. */
static bool
has_asked(struct sim_host *h, uint64_t now)
{
	struct sim_call *c = &h->call[h->asked.v[h->asked.head & h->asked.mask]];

	if (queue_next(&h->asked, h->call) > now)
		return false;
	if (h->world->opt->backend == SIM_BACKEND_DELEGATION && c->state == SIM_CALL_ASKED) {
		h->line = crpc_max(h->line, (c->at - hop(h)) * SIM_PS) +
			h->world->opt->model.cpu.line;
		c->at = sim_ns(h->line) + hop(h);
		c->state = SIM_CALL_QUEUED;
	}
	return c->at <= now;
}

static uint32_t
front_recv(void *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct sim_host *h = end;
	uint32_t k, i;

	for (k = 0; k < n && has_asked(h, now); k++) {
		i = h->asked.v[h->asked.head++ & h->asked.mask];
		h->call[i].state = SIM_CALL_TAKEN;
		req[k] = (struct crpc_req){.token = i,
			.data = h->req + (size_t)i * h->world->req_max,
			.len = h->call[i].len};
	}
	h->now.taken += k;
	return k;
}

static void
answer(struct sim_host *h, uint64_t token, int status, const void *msg, uint32_t len)
{
	struct sim_call *c = &h->call[token];

	if (c->state != SIM_CALL_TAKEN) {
		h->world->answered_twice++;
		return;
	}
	h->now.answered++;
	c->state = SIM_CALL_ENDED;
	c->status = status;
	c->len = len;
	c->at = sim_host_clock(h) + hop(h);
	h->longest = crpc_max(h->longest, crpc_max(c->at, c->begin) - c->begin);
	if (len != 0)
		memcpy(h->resp + token * h->world->resp_max, msg, len);
	queue_add(&h->answered, h->call, (uint32_t)token);
	sim_wake(&h->clients, c->at);
}

static int
front_reply(void *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct sim_host *h = end;

	if (len > h->world->resp_max)
		return -EMSGSIZE;
	answer(h, token, 0, msg, len);
	return 0;
}

static void
front_fail(void *end, uint64_t now, uint64_t token, int status)
{
	answer(end, token, status, NULL, 0);
}

static void
nothing(void *end, uint64_t now)
{
}

static const struct crpc_kv_front front = {.passes = true,
	.recv = front_recv,
	.reply = front_reply,
	.fail = front_fail,
	.flush = nothing,
	.watch = nothing};

/* When a call of a client is made: one after the other, on a core of its own or of the daemon. */
static uint64_t
call_begin(struct sim_host *h, uint32_t client, uint64_t now)
{
	if (h->world->opt->colocate) {
		h->now.made++;
		return now;
	}
	h->busy[client] = crpc_max(h->busy[client], now) + h->world->opt->model.cpu.client / SIM_PS;
	return h->busy[client];
}

static int
link_call(void *link, uint64_t now, uint32_t to, const void *msg, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct sim_host *h = link;
	uint32_t client = (uint32_t)(cookie >> 8);
	uint32_t i = client * (uint32_t)h->world->opt->depth + (uint32_t)(cookie & 0xff);
	uint64_t begin;

	begin = call_begin(h, client, now);
	h->call[i] = (struct sim_call){.begin = begin,
		.at = begin + hop(h),
		.cookie = cookie,
		.len = len,
		.state = SIM_CALL_ASKED};
	if (h->dead) {
		h->call[i].at += DEAD_NS;
		h->call[i].status = -EHOSTUNREACH;
		h->call[i].len = 0;
		h->call[i].state = SIM_CALL_ENDED;
		queue_add(&h->answered, h->call, i);
		return 0;
	}
	memcpy(h->req + (size_t)i * h->world->req_max, msg, len);
	queue_add(&h->asked, h->call, i);
	sim_wake(&h->turn, h->call[i].at);
	return 0;
}

static uint32_t
link_poll(void *link, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct sim_host *h = link;
	const struct sim_call *c;
	uint32_t k, i;

	for (k = 0; k < n && queue_next(&h->answered, h->call) <= now; k++) {
		i = h->answered.v[h->answered.head++ & h->answered.mask];
		c = &h->call[i];
		done[k] = (struct crpc_done){.cookie = c->cookie,
			.status = c->status,
			.data = h->resp + (size_t)i * h->world->resp_max,
			.len = c->len};
	}
	return k;
}

static const struct app_load_ops link_ops = {
	.passes = true, .call = link_call, .poll = link_poll, .flush = nothing};

/* ---- turns ---- */

/* Hosts that a request waits for. It takes no virtual time. */
static void
connect_wanted(struct sim_host *h)
{
	struct sim_world *w = h->world;
	uint32_t r;

	while ((r = crpc_kv_server_wanted(h->server)) != w->hosts && w->rc == 0) {
		if (w->look_ns != UINT64_MAX)
			h->other[r].reconnect = true; /* The control threads do it, if they can. */
		else if (sim_connect(h, &w->host[r], h->begin) != 0)
			w->rc = app_fail("two hosts cannot be connected: %s", crpc_log_last());
		w->net.clock_arg = h;
	}
}

void
sim_turn_begin(const struct sim_world *w, uint64_t *free, uint64_t at)
{
	uint64_t turn = crpc_max(w->opt->model.cpu.turn, SIM_PS);

	if (at > sim_ns(*free))
		*free += (at * SIM_PS - *free + turn - 1) / turn * turn;
}

/*
 * A card that is software takes messages in before the daemon polls, and those that land meanwhile:
 * one poll finds them all. So the loop's own cost is paid after a turn, not before what it sends.
 * @return false: there was nothing.
 */
static bool
card_turn(struct sim_host *h)
{
	uint64_t busy = card_is_soft(h) ? h->landed * h->world->opt->model.cpu.recv : 0;

	h->landed = 0;
	h->free += busy;
	h->turn.at = sim_ns(h->free);
	return busy != 0;
}

static void
daemon_turn(struct sim_host *h)
{
	struct sim_counts c = {0};
	uint64_t next;
	bool busy;

	sim_turn_begin(h->world, &h->free, h->turn.at);
	if (card_turn(h))
		return;
	h->begin = h->free / SIM_PS;
	h->world->net.clock_arg = h;
	sim_host_count(h, &h->before);
	crpc_kv_daemon_turn(h->daemon, h->begin);
	connect_wanted(h);
	if (h->world->opt->colocate)
		app_load_turn(h->load, sim_host_clock(h));
	sim_host_count(h, &c);
	busy = memcmp(&c, &h->before, sizeof(c)) != 0;
	h->free += crpc_max(sim_cost(h, &h->before, &c), SIM_PS) +
		(card_is_soft(h) ? h->world->opt->model.cpu.turn : 0);
	h->before = c;
	h->now.turns++;
	h->now.busy += busy;
	if (h->begin - h->watched >= h->world->opt->watch_ns) {
		h->watched = h->begin;
		crpc_kv_daemon_watch(h->daemon, h->begin);
	}
	next = h->free / SIM_PS;
	if (!busy)
		next = crpc_min(next + SIM_IDLE_NS, queue_next(&h->asked, h->call));
	h->turn.at = crpc_max(next, sim_ns(h->free));
}

void
sim_actor_turn(struct sim_actor *a)
{
	struct sim_host *h = a->host;

	if (a->client != NULL) {
		sim_client_turn(a->client);
		return;
	}
	if (!a->clients && (h->dead || h->paused > a->at)) {
		a->at = h->dead ? UINT64_MAX : h->paused;
		return;
	}
	if (!a->clients) {
		daemon_turn(h);
		return;
	}
	/* On the daemon's core they have a turn after each of its own. */
	if (h->world->opt->colocate && !h->dead) {
		a->at = UINT64_MAX;
		return;
	}
	app_load_turn(h->load, a->at);
	a->at = queue_next(&h->answered, h->call);
}

/* A completion was written: an idle daemon finds it. */
static void
wake_daemon(void *host, uint64_t now_ns, bool received)
{
	struct sim_host *h = host;

	h->landed += received;
	sim_wake(&h->turn, crpc_max(now_ns, sim_ns(h->free)));
}

/* ---- making one ---- */

static bool
memory(struct sim_host *h)
{
	const struct sim_options *o = h->world->opt;
	size_t calls = (size_t)(o->clients * o->depth), loads = h->world->loads * sizeof(*h->load);

	h->load = aligned_alloc(CRPC_CACHE_GUARD, loads);
	if (h->load != NULL)
		memset(h->load, 0, loads);
	h->call = calloc(calls, sizeof(*h->call));
	h->req = calloc(calls, h->world->req_max);
	h->resp = calloc(calls, h->world->resp_max);
	h->busy = calloc(o->clients, sizeof(*h->busy));
	h->other = calloc(h->world->hosts, sizeof(*h->other));
	return h->load != NULL && h->other != NULL && h->call != NULL && h->req != NULL &&
		h->resp != NULL && h->busy != NULL && queue_init(&h->asked, (uint32_t)calls) &&
		queue_init(&h->answered, (uint32_t)calls);
}

int
sim_host_start(struct sim_host *h)
{
	struct sim_world *w = h->world;
	const struct sim_options *o = w->opt;
	uint32_t rank = sim_rank(h);
	bool own = sim_own(o);
	struct crpc_kv_parts parts;
	struct crpc_kv_server_conf conf = {
		.rank = rank,
		.ranks = w->hosts,
		.capacity = h->capacity,
		.calls = (uint32_t)(o->clients * o->depth),
		.plain = !o->cas,
		.device = h->card,
		.link = {.transport = own ? CRPC_RDMA_RC : (enum crpc_rdma_transport)o->transport,
			.flow = (enum crpc_copyrpc_flow)o->flow},
		.flush = (enum crpc_copyrpc_flush_policy)o->flush,
		.hold_ns = (uint64_t)(o->hold_us * 1e3),
		.on_use = o->connect == APP_CONNECT_USE,
		.ring_size = (uint32_t)o->ring,
		.timeout_ns = o->timeout_ns,
		.initial_pos = o->initial_pos,
		.front = own ? sim_own_front(w) : &front,
		.keys = w->load.keys.n,
	};

	h->server = crpc_kv_server_create(&conf);
	if (h->server == NULL)
		return app_fail("host %u of %u cannot be made: %s (%s); give fewer --hosts or "
				"--keys, or a smaller --ring",
			rank, w->hosts, strerror(errno), crpc_log_last());
	crpc_kv_server_version_begin(h->server, ((uint64_t)h->epoch++ << 40) + 1);
	h->daemon = crpc_kv_server_daemon(h->server, 0);
	crpc_kv_daemon_insight(h->daemon, false);
	crpc_kv_daemon_parts(h->daemon, &parts);
	if (parts.copyrpc != NULL)
		crpc_copyrpc_stats_round_trips(parts.copyrpc, true);
	h->parts = (struct app_end_parts){.device = parts.device, .copyrpc = parts.copyrpc};
	if (!own)
		crpc_kv_server_front(h->server, 0, h, 0, 1);
	else if (sim_own_open(h) != 0)
		return APP_EXIT_USAGE;
	if (h->parts.device != NULL)
		crpc_paper_on_cqe(h->parts.device, wake_daemon, h);
	return 0;
}

int
sim_host_open(struct sim_host *h, struct sim_world *w, uint32_t rank, uint32_t capacity)
{
	h->world = w;
	h->turn = (struct sim_actor){.host = h};
	h->clients = (struct sim_actor){.host = h, .clients = true};
	h->capacity = capacity;
	snprintf(h->card, sizeof(h->card), "paper%u", rank);
	return memory(h) ? sim_host_start(h)
			 : app_fail("no memory for host %u; give fewer --hosts or --clients", rank);
}

void
sim_host_crash(struct sim_host *h, uint64_t now)
{
	uint32_t calls = (uint32_t)(h->world->opt->clients * h->world->opt->depth);

	h->dead = true;
	h->died = now;
	h->paused = h->slow = 0;
	h->free = crpc_max(h->free, now * SIM_PS);
	h->asked.head = h->asked.tail;
	for (uint32_t i = 0; i < calls; i++) {
		if (h->call[i].state == SIM_CALL_ENDED)
			continue;
		h->call[i].state = SIM_CALL_TAKEN;
		answer(h, i, -EHOSTDOWN, NULL, 0);
	}
	sim_host_count(h, &h->past);
	h->now = (struct sim_counts){0};
	crpc_kv_server_free(h->server);
	h->server = NULL;
	h->parts = (struct app_end_parts){0};
}

int
sim_host_join(struct sim_host *h, uint32_t rank)
{
	uint32_t clients = (uint32_t)h->world->opt->clients, loads = h->world->loads;
	struct app_load *load;
	int rc = 0;

	h->load_conf = h->world->load;
	h->load_conf.first = rank;
	if (h->client == NULL) {
		h->load->link = h;
		h->load->ops = &link_ops;
	}
	for (uint32_t i = 0; i < loads && rc == 0; i++)
		rc = app_load_init(&h->load[i], &h->load_conf, clients / loads);
	if (rc == 0 && h->world->records != NULL)
		app_load_record(h->load, h->world->records);
	for (uint32_t i = 0; i < clients && rc == 0; i++) {
		load = &h->load[i % loads];
		rc = app_load_join(load, i / loads, NULL, 0, rank, 1 + rank * clients + i);
	}
	return rc == 0 ? 0 : app_fail("no memory for the clients of host %u; give fewer", rank);
}

void
sim_host_close(struct sim_host *h)
{
	for (uint32_t i = 0; h->load != NULL && i < h->world->loads; i++)
		app_load_fini(&h->load[i]);
	sim_own_close(h);
	crpc_kv_server_free(h->server);
	free(h->call);
	free(h->req);
	free(h->resp);
	free(h->busy);
	free(h->load);
	free(h->other);
	free(h->asked.v);
	free(h->answered.v);
}
