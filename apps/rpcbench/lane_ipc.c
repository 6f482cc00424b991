/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ours. Each client is an object of its own, all of them driven by one thread; the server is the
 * other process. The lives of clients are looked after between the slices, not in them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_idle.h"
#include "crpc_ipc.h"
#include "crpc_log.h"
#include "lane.h"

#define BURST CRPC_BURST_MAX
/* Calls of reap() that look at every client once. */
#define REAPS (CRPC_IPC_CLIENTS_MAX / CRPC_IPC_REAP_BURST)
/* Longer than a run: the clients ask nobody whether the server lives. This program does. */
#define PROBE_MS 3600000
/* Empty polls between two looks at the clock of a client that waits for one answer. */
#define WAIT_POLLS 4096

/* ---- second process ---- */

static int
ipc_serve_open(struct rpb_pair *p, const struct lane_conf *c, void **server)
{
	struct crpc_ipc_server_conf conf = {.name = c->name, .max_clients = c->clients,
		.depth = c->depth, .req_max = c->size, .resp_max = c->size};
	uint64_t end = crpc_clock_ns() + LANE_MEET_MS * UINT64_C(1000000);
	struct crpc_ipc_server_stats st;
	struct crpc_ipc_server *s = crpc_ipc_server_create(&conf);
	struct crpc_req req;

	if (s == NULL)
		return rpb_pair_fail(p, -errno, "%s", crpc_log_last());
	do {
		crpc_ipc_server_recv(s, &req, 1);
		crpc_ipc_server_reap(s);
		crpc_ipc_server_stats(s, &st);
		if (rpb_pair_stopped(p) || crpc_clock_ns() > end) {
			crpc_ipc_server_free(s);
			return rpb_pair_fail(p, -ETIMEDOUT, "%u of %u clients connected",
				st.clients, c->clients);
		}
	} while (st.clients < c->clients);
	*server = s;
	return 0;
}

LANE_INLINE uint32_t
ipc_turn(struct crpc_ipc_server *s)
{
	struct crpc_req req[BURST];
	uint16_t n = crpc_ipc_server_recv(s, req, BURST), i;

	for (i = 0; i < n; i++)
		crpc_ipc_server_reply(s, req[i].token, req[i].data, req[i].len);
	return n;
}

/* With the clock read after every turn: what a turn costs, with and without requests. */
static void
ipc_serve_clocked(struct rpb_pair *p, struct crpc_ipc_server *s, struct lane_served *out)
{
	uint64_t then = crpc_clock_ticks(), now, most = lane_ticks(LANE_TURN_MAX_NS);
	uint32_t n;

	while (!rpb_pair_stopped(p)) {
		n = ipc_turn(s);
		now = crpc_clock_ticks();
		lane_turn(out, n, now - then, most);
		then = now;
	}
}

static void
ipc_serve(struct rpb_pair *p, void *server, struct lane_served *out)
{
	struct crpc_ipc_server_stats st;
	uint64_t calls = 0;
	uint32_t i;

	for (i = 0; i < REAPS; i++)
		crpc_ipc_server_reap(server);
	crpc_ipc_server_stats(server, &st);
	rpb_pair_set_ready(p);
	/* Many more are connected than call: this is about the poll. */
	if (out->clocked) {
		ipc_serve_clocked(p, server, out);
		return;
	}
	while (!rpb_pair_stopped(p))
		calls += ipc_turn(server);
	out->calls = calls;
}

static void
ipc_serve_close(void *server)
{
	crpc_ipc_server_free(server);
}

/* ---- first process ---- */

/* One client. Open calls are counted here: the loop needs no call to know them. */
struct ipc_one {
	struct crpc_ipc_client *c;
	uint64_t seq;
	uint32_t open;
};

struct ipc_clients {
	struct lane_client base;
	struct ipc_one one[];
};

/* A server that was killed leaves its segment; one that starts over it takes it along. */
static void
ipc_sweep(const struct lane_conf *c)
{
	const struct crpc_ipc_server_conf conf = {.name = c->name, .max_clients = 1, .depth = 1};

	crpc_ipc_server_free(crpc_ipc_server_create(&conf));
}

static void
ipc_close(struct lane_client *base)
{
	struct ipc_clients *cl = (struct ipc_clients *)base;
	uint32_t i;

	for (i = 0; i < base->conf.clients; i++)
		crpc_ipc_client_close(cl->one[i].c);
	if (!rpb_pair_alive(base->pair))
		ipc_sweep(&base->conf);
	free(cl);
}

static struct lane_client *
ipc_open(struct rpb_pair *p, const struct lane_conf *c)
{
	struct crpc_ipc_client_conf conf = {
		.name = c->name, .timeout_ms = LANE_MEET_MS, .probe_ms = PROBE_MS};
	struct ipc_clients *cl = calloc(1, sizeof(*cl) + c->clients * sizeof(cl->one[0]));
	uint32_t i;

	if (cl == NULL) {
		lane_why("no memory");
		return NULL;
	}
	cl->base.conf = *c;
	cl->base.pair = p;
	for (i = 0; i < c->clients; i++) {
		cl->one[i].c = crpc_ipc_client_connect(&conf);
		if (cl->one[i].c == NULL) {
			lane_why("client %u: %s", i, crpc_log_last());
			ipc_close(&cl->base);
			return NULL;
		}
	}
	return &cl->base;
}

LANE_INLINE uint64_t
ipc_take(struct ipc_clients *cl, struct ipc_one *o, uint32_t size, bool check)
{
	struct crpc_done done[BURST];
	uint16_t n = crpc_ipc_client_poll(o->c, done, BURST), i;

	for (i = 0; i < n; i++) {
		if (crpc_unlikely(done[i].status != 0 || done[i].len != size)) {
			lane_break(&cl->base, "a call ended with status %d and %u bytes",
				done[i].status, done[i].len);
			continue;
		}
		cl->base.bad += lane_read(done[i].data, size, check, done[i].cookie);
	}
	o->open -= n;
	return n;
}

LANE_INLINE void
ipc_issue(struct ipc_clients *cl, struct ipc_one *o, uint32_t id, uint32_t size, uint32_t n)
{
	uint64_t msg[LANE_SIZE_MAX / 8], word;
	uint32_t i;
	int rc;

	for (i = 0; i < n; i++) {
		word = lane_word(id, o->seq);
		lane_fill(msg, size, word);
		rc = crpc_ipc_client_call(o->c, msg, size, word);
		if (crpc_unlikely(rc != 0)) {
			lane_break(&cl->base, "call: %s (%d)", strerror(-rc), rc);
			return;
		}
		o->seq++;
		o->open++;
	}
}

LANE_INLINE uint64_t
ipc_async(struct ipc_clients *cl, uint64_t end, uint32_t size, bool check)
{
	uint32_t active = cl->base.conf.active, depth = cl->base.conf.depth;
	uint32_t burst = cl->base.conf.burst, i, room, turn = 0;
	uint64_t calls = 0;

	do {
		for (i = 0; i < active; i++) {
			calls += ipc_take(cl, &cl->one[i], size, check);
			room = depth - cl->one[i].open;
			if (room != 0)
				ipc_issue(cl, &cl->one[i], i, size, room < burst ? room : burst);
		}
	} while (!lane_over(&turn, end) && !cl->base.broken);
	return calls;
}

LANE_INLINE uint64_t
ipc_sync(struct ipc_clients *cl, uint64_t end, uint32_t size, bool check)
{
	uint32_t active = cl->base.conf.active, i = 0, turn = 0, polls;
	uint64_t calls = 0, then = crpc_clock_ticks();

	do {
		if (cl->one[i].open == 0) /* Else one is left from before. */
			ipc_issue(cl, &cl->one[i], i, size, 1);
		for (polls = 1; ipc_take(cl, &cl->one[i], size, check) == 0; polls++)
			if (polls % WAIT_POLLS == 0 &&
				(crpc_clock_ticks() >= end || cl->base.broken))
				return calls;
		calls++;
		lane_call_ended(&cl->base, &then);
		i = i + 1 == active ? 0 : i + 1;
	} while (!lane_over(&turn, end) && !cl->base.broken);
	return calls;
}

/* Instances with a constant size, which is what a program that knows its messages has. */
#define GO(mode, size)                                                                             \
	static uint64_t mode##_##size(struct ipc_clients *cl, uint64_t end)                        \
	{                                                                                          \
		return mode(cl, end, size, false);                                                 \
	}
GO(ipc_async, 32)
GO(ipc_async, 64)
GO(ipc_sync, 32)
GO(ipc_sync, 64)

static uint64_t
ipc_go(struct lane_client *base, uint64_t end, bool check)
{
	struct ipc_clients *cl = (struct ipc_clients *)base;
	bool async = base->conf.mode == LANE_ASYNC;

	if (check)
		return async ? ipc_async(cl, end, base->conf.size, true)
			     : ipc_sync(cl, end, base->conf.size, true);
	switch (base->conf.size) {
	case 32:
		return async ? ipc_async_32(cl, end) : ipc_sync_32(cl, end);
	case 64:
		return async ? ipc_async_64(cl, end) : ipc_sync_64(cl, end);
	default:
		return async ? ipc_async(cl, end, base->conf.size, false)
			     : ipc_sync(cl, end, base->conf.size, false);
	}
}

static void
ipc_drain(struct lane_client *base, uint64_t end)
{
	struct ipc_clients *cl = (struct ipc_clients *)base;
	uint32_t i;

	for (i = 0; i < base->conf.active; i++)
		while (cl->one[i].open != 0 && crpc_clock_ticks() < end)
			ipc_take(cl, &cl->one[i], base->conf.size, false);
	for (base->open = 0, i = 0; i < base->conf.active; i++)
		base->open += cl->one[i].open;
}

const struct lane_ops lane_ipc = {
	.name = "ipc",
	.built = true,
	.clients_max = LANE_CLIENTS_MAX,
	.serve_open = ipc_serve_open,
	.serve = ipc_serve,
	.serve_close = ipc_serve_close,
	.open = ipc_open,
	.go = ipc_go,
	.drain = ipc_drain,
	.close = ipc_close,
};
