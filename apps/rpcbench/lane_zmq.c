/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ZeroMQ: a DEALER for each client, one ROUTER as the server, over ipc:// or tcp://. Each process
 * has ZeroMQ's own I/O thread beside the thread that calls, on the same core; so both sides wait in
 * the kernel rather than spin, which would keep the core from it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "app_zmq.h"
#include "lane.h"

/* A wait ends after this to look at the clock, ms. */
#define WAIT_MS 20
#define ID_MAX  256

extern const struct lane_way lane_zmq_ipc, lane_zmq_tcp;

static void *
context_new(uint32_t sockets)
{
	void *context = zmq_ctx_new();

	if (context != NULL)
		zmq_ctx_set(context, ZMQ_MAX_SOCKETS, (int)sockets + 8);
	return context;
}

/* ---- side 1 ---- */

struct zmq_server {
	void *context;
	void *router;
	uint32_t size;
	uint8_t *mem;
};

static int
server_open(struct app_lane *l, int side)
{
	struct zmq_server *s = app_lane_state(l, 1, sizeof(*s));
	const char *name = l->way == &lane_zmq_ipc.base ? l->c->name : NULL;

	if (s == NULL || (s->mem = malloc(l->c->size)) == NULL)
		return app_lane_fail(l, -ENOMEM, "no memory");
	s->size = l->c->size;
	s->context = context_new(1);
	s->router = app_zmq_socket(s->context, ZMQ_ROUTER, WAIT_MS);
	if (s->router == NULL ||
		app_zmq_bind(
			s->router, name, false, (char *)l->addr[1].bytes, LANE_ADDR_MAX) != 0)
		return app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
	return 0;
}

/* Answer one request: 1, or 0 if none came in time. */
static uint32_t
router_turn(struct zmq_server *s, int flags)
{
	char id[ID_MAX];
	int id_len = zmq_recv(s->router, id, sizeof(id), flags), len;

	if (id_len <= 0 || id_len > ID_MAX)
		return 0;
	len = zmq_recv(s->router, s->mem, s->size, 0);
	if (len != (int)s->size)
		return 0;
	zmq_send(s->router, id, (size_t)id_len, ZMQ_SNDMORE);
	zmq_send(s->router, s->mem, s->size, 0);
	return 1;
}

static void
zmq_serve(struct app_lane *l, const _Atomic uint32_t *over, struct lane_served *out)
{
	out->clocked = false;
	while (crpc_load_acquire(over) == 0)
		out->calls += router_turn(l->state[1], 0);
}

/* ---- side 0 ---- */

struct zmq_one {
	void *dealer;
	uint64_t seq;
	uint64_t ack;
};

struct zmq_clients {
	struct lane_end base;
	void *context;
	uint64_t *msg;
	zmq_pollitem_t *item;
	struct zmq_one one[];
};

static int
clients_open(struct app_lane *l, int side)
{
	uint32_t n = l->c->clients;
	struct zmq_clients *cl =
		lane_end_new(l, 0, sizeof(*cl) + n * sizeof(cl->one[0]));

	if (cl == NULL)
		return -ENOMEM;
	cl->context = context_new(n);
	cl->msg = malloc(l->c->size);
	cl->item = calloc(n, sizeof(*cl->item));
	if (cl->context == NULL || cl->msg == NULL || cl->item == NULL)
		return app_lane_fail(l, -ENOMEM, "no memory");
	return 0;
}

static int
clients_meet(struct app_lane *l, int side)
{
	struct zmq_clients *cl = l->state[0];
	const char *address = (const char *)l->addr[1].bytes;
	struct zmq_one *o;

	for (uint32_t i = 0; i < l->c->clients; i++) {
		o = &cl->one[i];
		o->dealer = app_zmq_socket(cl->context, ZMQ_DEALER, WAIT_MS);
		if (o->dealer == NULL || app_zmq_connect(o->dealer, address) != 0)
			return app_lane_fail(l, -EIO, "ZeroMQ: %s: %s", address, app_zmq_why());
		cl->item[i] = (zmq_pollitem_t){.socket = o->dealer, .events = ZMQ_POLLIN};
	}
	return 0;
}

/* Take one answer: 1, or 0 if there is none (in time). */
static uint32_t
zmq_take(struct zmq_clients *cl, uint32_t id, int flags, bool check)
{
	uint32_t size = cl->base.conf.size;
	struct zmq_one *o = &cl->one[id];
	int n = zmq_recv(o->dealer, cl->msg, size, flags);

	if (n < 0) {
		if (zmq_errno() != EAGAIN && zmq_errno() != EINTR)
			lane_break(&cl->base, "ZeroMQ: %s", app_zmq_why());
		return 0;
	}
	if (n != (int)size) {
		lane_break(&cl->base, "ZeroMQ: an answer of %d bytes", n);
		return 0;
	}
	cl->base.bad += lane_read(cl->msg, size, check, lane_word(id, o->ack));
	o->ack++;
	return 1;
}

static void
zmq_issue(struct zmq_clients *cl, uint32_t id)
{
	struct zmq_one *o = &cl->one[id];

	lane_fill(cl->msg, cl->base.conf.size, lane_word(id, o->seq));
	if (zmq_send(o->dealer, cl->msg, cl->base.conf.size, 0) < 0)
		lane_break(&cl->base, "ZeroMQ: %s", app_zmq_why());
	else
		o->seq++;
}

static uint64_t
zmq_async(struct zmq_clients *cl, uint64_t end, bool check)
{
	const struct app_case *c = &cl->base.conf;
	uint64_t calls = 0, before;

	do {
		before = calls;
		for (uint32_t i = 0; i < c->active; i++) {
			for (uint32_t k = 0;
				k < c->burst && zmq_take(cl, i, ZMQ_DONTWAIT, check) != 0; k++)
				calls++;
			for (uint32_t k = 0;
				k < c->burst && cl->one[i].seq - cl->one[i].ack < c->depth; k++)
				zmq_issue(cl, i);
		}
		if (calls == before)
			zmq_poll(cl->item, (int)c->active, WAIT_MS);
	} while (crpc_clock_ticks() < end && !cl->base.broken);
	return calls;
}

static uint64_t
zmq_sync(struct zmq_clients *cl, uint64_t end, bool check)
{
	uint64_t calls = 0, then = crpc_clock_ticks();
	uint32_t i = 0;

	do {
		if (cl->one[i].seq == cl->one[i].ack) /* Else one is left from before. */
			zmq_issue(cl, i);
		while (zmq_take(cl, i, 0, check) == 0)
			if (crpc_clock_ticks() >= end || cl->base.broken)
				return calls;
		calls++;
		lane_call_ended(&cl->base, &then);
		i = i + 1 == cl->base.conf.active ? 0 : i + 1;
	} while (crpc_clock_ticks() < end && !cl->base.broken);
	return calls;
}

static uint64_t
zmq_go(struct lane_end *base, uint64_t end, bool check)
{
	struct zmq_clients *cl = (struct zmq_clients *)base;

	return base->conf.mode == LANE_ASYNC ? zmq_async(cl, end, check) : zmq_sync(cl, end, check);
}

static void
zmq_drain(struct lane_end *base, uint64_t end)
{
	struct zmq_clients *cl = (struct zmq_clients *)base;
	uint32_t i;

	for (base->open = 0, i = 0; i < base->conf.active; i++) {
		while (cl->one[i].seq != cl->one[i].ack && crpc_clock_ticks() < end &&
			!base->broken)
			zmq_take(cl, i, 0, false);
		base->open += cl->one[i].seq - cl->one[i].ack;
	}
}

/* ---- both ---- */

static void
server_close(struct app_lane *l, int side)
{
	struct zmq_server *s = l->state[1];

	app_zmq_end(s->context, s->router, NULL);
	free(s->mem);
	free(s);
}

static void
clients_close(struct app_lane *l, int side)
{
	struct zmq_clients *cl = l->state[0];

	for (uint32_t i = 1; i < l->c->clients; i++)
		if (cl->one[i].dealer != NULL)
			zmq_close(cl->one[i].dealer);
	app_zmq_end(cl->context, cl->one[0].dealer, NULL);
	free(cl->msg);
	free(cl->item);
	free(cl);
}

#define ZMQ_LANE(lane, text)                                                                       \
	const struct lane_way lane = {                                                             \
		.base = APP_WAY_SIDES(text, clients_open, server_open, clients_meet, NULL,         \
			clients_close, server_close, .sleeps = true, .files = APP_ZMQ_FILES,       \
			.mib = APP_ZMQ_MIB),                                                       \
		.files_client = 3,                                                                 \
		.serve = zmq_serve,                                                                \
		.go = zmq_go,                                                                      \
		.drain = zmq_drain,                                                                \
	}

ZMQ_LANE(lane_zmq_ipc, "zmq_ipc");
ZMQ_LANE(lane_zmq_tcp, "zmq_tcp");
