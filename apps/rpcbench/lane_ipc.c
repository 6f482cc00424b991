/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ours. Each client is an object of its own, all of them driven by one thread; the server is the
 * other process. The lives of clients are looked after between the slices, not in them.
 */
#include <stdlib.h>

#include "crpc_ipc.h"
#include "crpc_log.h"
#include "lane_loop.h"

#define BURST CRPC_BURST_MAX
/* Calls of reap() that look at every client once. */
#define REAPS (CRPC_IPC_CLIENTS_MAX / CRPC_IPC_REAP_BURST)
/* Larger answers are made of the request where it lies, smaller ones side by side for a burst. */
#define GATHER_MAX 256

/* ---- side 1 ---- */

struct ipc_served {
	struct crpc_ipc_server *s;
	uint32_t size;
	bool oneway;
	uint8_t answers[BURST * GATHER_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

static int
server_open(struct app_lane *l, int side)
{
	const struct app_case *c = l->c;
	struct crpc_ipc_server_conf conf = {.name = c->name,
		.max_clients = c->clients,
		.depth = c->depth,
		.req_max = c->size,
		.resp_max = c->size};
	struct ipc_served *v = aligned_alloc(CRPC_CACHE_LINE, sizeof(*v));

	l->state[1] = v;
	if (v == NULL)
		return app_lane_fail(l, -ENOMEM, "no memory");
	v->size = c->size;
	v->oneway = c->mode == LANE_ONEWAY;
	v->s = crpc_ipc_server_create(&conf);
	return v->s != NULL ? 0 : app_lane_fail(l, -errno, "%s", crpc_log_last());
}

/* Admit all clients. */
static int
server_meet(struct app_lane *l, int side)
{
	return rpb_admit(l, ((struct ipc_served *)l->state[1])->s, l->c->clients);
}

int
rpb_admit(struct app_lane *l, struct crpc_ipc_server *s, uint32_t clients)
{
	uint64_t end = crpc_clock_ns() + RPB_MEET_MS * UINT64_C(1000000);
	struct crpc_ipc_server_stats st;

	do {
		crpc_ipc_server_reap(s);
		crpc_ipc_server_stats(s, &st);
		if (st.clients >= clients)
			return 0;
	} while (app_party_look(l->party, 1) == 0 && crpc_clock_ns() < end);
	return app_lane_fail(l, -ETIMEDOUT, "%u of %u clients connected", st.clients, clients);
}

LANE_INLINE uint32_t
ipc_turn(struct ipc_served *v, uint32_t size)
{
	struct crpc_req req[BURST];
	uint64_t now = crpc_clock_ns();
	uint16_t n = crpc_ipc_server_recv(v->s, now, req, BURST);

	if (n == 0)
		return 0;
	if (n == 1 || size > GATHER_MAX) {
		for (uint16_t i = 0; i < n; i++)
			crpc_ipc_server_reply(v->s, now, req[i].token, req[i].data, size);
		return n;
	}
	for (uint16_t i = 0; i < n; i++)
		memcpy(v->answers + (size_t)i * size, req[i].data, size);
	crpc_ipc_server_reply_burst(v->s, now, req, v->answers, size, n);
	return n;
}

/* One-way messages are read and let go. */
static uint64_t
ipc_swallow(struct ipc_served *v)
{
	struct crpc_req req[BURST];
	uint64_t now = crpc_clock_ns();
	uint16_t n = crpc_ipc_server_recv(v->s, now, req, BURST);

	for (uint16_t i = 0; i < n; i++) {
		app_msg_read(req[i].data, v->size, false, 0);
		crpc_ipc_server_release(v->s, now, req[i].token);
	}
	return n;
}

/* With the clock read after every turn: what a turn costs, with and without requests. */
static void
ipc_serve_clocked(struct ipc_served *v, const _Atomic uint32_t *over, struct lane_served *out)
{
	uint64_t then = crpc_clock_ticks(), now,
		 most = (uint64_t)crpc_clock_ns_to_ticks(LANE_TURN_MAX_NS);
	uint32_t n;

	while (crpc_load_acquire(over) == 0) {
		n = ipc_turn(v, v->size);
		now = crpc_clock_ticks();
		lane_turn(out, n, now - then, most);
		then = now;
	}
}

/* An instance for the size that is measured most, which is what a program that knows its messages
 * has, and one for all. */
static void
ipc_serve(struct app_lane *l, const _Atomic uint32_t *over, struct lane_served *out)
{
	struct ipc_served *v = l->state[1];
	uint64_t calls = 0;

	for (uint32_t i = 0; i < REAPS; i++)
		crpc_ipc_server_reap(v->s);
	if (out->clocked) {
		ipc_serve_clocked(v, over, out);
		return;
	}
	if (v->oneway)
		while (crpc_load_acquire(over) == 0)
			calls += ipc_swallow(v);
	else if (v->size == 32)
		while (crpc_load_acquire(over) == 0)
			calls += ipc_turn(v, 32);
	else
		while (crpc_load_acquire(over) == 0)
			calls += ipc_turn(v, v->size);
	out->calls = calls;
}

/* ---- side 0 ---- */

struct ipc_clients {
	struct lane_end base;
	uint64_t now;
	uint64_t *msgs; /* A burst. */
	struct crpc_ipc_client *c[];
};

static int
clients_open(struct app_lane *l, int side)
{
	const struct app_case *c = l->c;
	struct ipc_clients *cl = lane_end_new(l, 0, sizeof(*cl) + c->clients * sizeof(cl->c[0]));

	if (cl == NULL)
		return -ENOMEM;
	cl->msgs = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up((uint64_t)c->burst * c->size, CRPC_CACHE_LINE));
	return cl->msgs != NULL ? 0 : app_lane_fail(l, -ENOMEM, "no memory");
}

static int
clients_meet(struct app_lane *l, int side)
{
	struct ipc_clients *cl = l->state[0];
	struct crpc_ipc_client_conf conf = {.name = l->c->name, .timeout_ms = RPB_MEET_MS};

	for (uint32_t i = 0; i < l->c->clients; i++) {
		cl->c[i] = crpc_ipc_client_connect(&conf);
		if (cl->c[i] == NULL)
			return app_lane_fail(l, -errno, "client %u: %s", i, crpc_log_last());
	}
	return 0;
}

LANE_INLINE void
ipc_begin(struct lane_end *e)
{
	((struct ipc_clients *)e)->now = crpc_clock_ns();
}

LANE_INLINE void
ipc_take(struct lane_end *e, uint32_t id, uint32_t size, bool check)
{
	struct ipc_clients *cl = (struct ipc_clients *)e;
	struct crpc_done done[BURST];
	uint16_t n = crpc_ipc_client_poll(cl->c[id], cl->now, done, BURST);

	for (uint16_t i = 0; i < n; i++) {
		if (crpc_unlikely(done[i].status != 0 || done[i].len != size)) {
			lane_break(e, "a call ended with status %d and %u bytes", done[i].status,
				done[i].len);
			continue;
		}
		e->bad += app_msg_read(done[i].data, size, check, done[i].cookie);
	}
	e->one[id].ack += n;
	e->calls += n;
}

LANE_INLINE void
ipc_issue(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n)
{
	struct ipc_clients *cl = (struct ipc_clients *)e;
	uint64_t cookie[BURST];
	uint32_t i;

	for (i = 0; i < n; i++) {
		cookie[i] = lane_word(id, e->one[id].seq + i);
		app_msg_fill(cl->msgs + (size_t)i * (size / 8), size, cookie[i]);
	}
	i = crpc_ipc_client_call_burst(
		cl->c[id], cl->now, cl->msgs, size, size, cookie, (uint16_t)n);
	e->one[id].seq += i;
	if (crpc_unlikely(i != n && crpc_ipc_client_status(cl->c[id]) != 0))
		lane_break(e, "call: %s", crpc_log_last());
}

/*
 * A single call, which has a way of its own in the library when no other is open: call() and poll()
 * rather than call_sync(), which would copy the answer once more.
 */
LANE_INLINE void
ipc_issue_one(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n)
{
	struct ipc_clients *cl = (struct ipc_clients *)e;
	uint64_t word = lane_word(id, e->one[id].seq);
	int rc;

	app_msg_fill(cl->msgs, size, word);
	rc = crpc_ipc_client_call(cl->c[id], crpc_clock_ns(), cl->msgs, size, size, word);
	if (crpc_likely(rc == 0))
		e->one[id].seq++;
	else
		lane_break(e, "call: %s (%d)", strerror(-rc), rc);
}

/* A place comes back in a poll after the server has let go of the message. */
LANE_INLINE void
ipc_notify(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n)
{
	struct ipc_clients *cl = (struct ipc_clients *)e;
	struct lane_one *o = &e->one[id];
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		app_msg_fill(cl->msgs, size, lane_word(id, o->seq));
		rc = crpc_ipc_client_notify(cl->c[id], cl->now, cl->msgs, size);
		o->seq += rc == 0;
	}
	e->calls += o->seq - o->ack;
	o->ack = o->seq;
	if (crpc_unlikely(rc != 0 && rc != -EAGAIN))
		lane_break(e, "a message: %s (%d)", strerror(-rc), rc);
}

#define IPC_LOOP(how)                                                                              \
	{                                                                                          \
		ipc_begin, ipc_take, how, .waits = 4096, .turns = 64                               \
	}
static const struct lane_loop loop = IPC_LOOP(ipc_issue);

/* Instances with a constant size, which is what a program that knows its messages has. */
LANE_INLINE uint64_t
ipc_calls(struct lane_end *e, uint64_t end, uint32_t size, bool check)
{
	static const struct lane_loop one = IPC_LOOP(ipc_issue_one);

	return e->conf.mode == LANE_ASYNC ? lane_async(e, end, size, check, &loop)
					  : lane_sync(e, end, size, check, &one);
}

static uint64_t
ipc_go(struct lane_end *e, uint64_t end, bool check)
{
	static const struct lane_loop oneway = IPC_LOOP(ipc_notify);
	uint32_t size = e->conf.size;

	if (e->oneway)
		return lane_async(e, end, size, check, &oneway);
	if (check)
		return ipc_calls(e, end, size, true);
	return size == 32    ? ipc_calls(e, end, 32, false)
		: size == 64 ? ipc_calls(e, end, 64, false)
			     : ipc_calls(e, end, size, false);
}

/* ---- both ---- */

static void
server_close(struct app_lane *l, int side)
{
	struct ipc_served *v = l->state[1];

	crpc_ipc_server_free(v->s);
	free(v);
}

static void
clients_close(struct app_lane *l, int side)
{
	struct ipc_clients *cl = l->state[0];

	for (uint32_t i = 0; i < l->c->clients; i++)
		crpc_ipc_client_close(cl->c[i]);
	free(cl->msgs);
	free(cl);
}

const struct lane_way lane_ipc = {
	.base = APP_WAY_SIDES("ipc", clients_open, server_open, clients_meet, server_meet,
		clients_close, server_close),
	.oneway = true,
	.serve = ipc_serve,
	.go = ipc_go,
	.loop = &loop,
};
