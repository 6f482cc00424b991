/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ZeroMQ: a DEALER for each client, one ROUTER as the server, over ipc:// or tcp://. Each process
 * has ZeroMQ's own I/O thread beside the thread that calls, on the same core; so both sides wait in
 * the kernel rather than spin, which would keep the core from it.
 */
#include <stdlib.h>

#include <zmq.h>

#include "app_zmq.h"
#include "lane_loop.h"

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
	uint8_t mem[];
};

static int
server_open(struct app_lane *l, int side)
{
	struct zmq_server *s = app_lane_state(l, 1, sizeof(*s) + l->c->size);
	const char *name = l->way == &lane_zmq_ipc.base ? l->c->name : NULL;

	if (s == NULL)
		return -ENOMEM;
	s->size = l->c->size;
	s->context = context_new(1);
	s->router = app_zmq_socket(s->context, ZMQ_ROUTER, WAIT_MS);
	if (s->router == NULL ||
		app_zmq_bind(s->router, name, l->party->ip, (char *)l->addr[1].bytes,
			LANE_ADDR_MAX) != 0)
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

struct zmq_clients {
	struct lane_end base;
	void *context;
	uint64_t *msg;
	uint64_t before; /* Calls at the last turn. */
	int flags;       /* Of a receive. */
	zmq_pollitem_t item[];
};

static int
clients_open(struct app_lane *l, int side)
{
	uint32_t n = l->c->clients;
	struct zmq_clients *cl = lane_end_new(l, 0, sizeof(*cl) + n * sizeof(cl->item[0]));

	if (cl == NULL)
		return -ENOMEM;
	cl->context = context_new(n);
	cl->msg = malloc(l->c->size);
	if (cl->context == NULL || cl->msg == NULL)
		return app_lane_fail(l, -ENOMEM, "no memory");
	return 0;
}

static int
clients_meet(struct app_lane *l, int side)
{
	struct zmq_clients *cl = l->state[0];
	const char *address = (const char *)l->addr[1].bytes;
	void *dealer;

	for (uint32_t i = 0; i < l->c->clients; i++) {
		dealer = app_zmq_socket(cl->context, ZMQ_DEALER, WAIT_MS);
		cl->item[i] = (zmq_pollitem_t){.socket = dealer, .events = ZMQ_POLLIN};
		if (dealer == NULL || zmq_connect(dealer, address) != 0)
			return app_lane_fail(l, -EIO, "ZeroMQ: %s: %s", address, app_zmq_why());
	}
	return 0;
}

/* Where no answer came, wait for one. */
static void
zmq_begin(struct lane_end *e)
{
	struct zmq_clients *cl = (struct zmq_clients *)e;

	if (cl->before == e->calls && cl->flags != 0)
		zmq_poll(cl->item, (int)e->conf.active, WAIT_MS);
	cl->before = e->calls;
}

/* An answer of that length: true; false if none came in time. */
static bool
zmq_take_one(struct zmq_clients *cl, uint32_t id, uint32_t size)
{
	int n = zmq_recv(cl->item[id].socket, cl->msg, size, cl->flags);

	if (n < 0 && zmq_errno() != EAGAIN && zmq_errno() != EINTR)
		lane_break(&cl->base, "ZeroMQ: %s", app_zmq_why());
	else if (n >= 0 && n != (int)size)
		lane_break(&cl->base, "ZeroMQ: an answer of %d bytes", n);
	return n == (int)size;
}

static void
zmq_take(struct lane_end *e, uint32_t id, uint32_t size, bool check)
{
	struct zmq_clients *cl = (struct zmq_clients *)e;
	struct lane_one *o = &e->one[id];

	for (uint32_t k = 0; k < e->conf.burst && o->seq != o->ack; k++, o->ack++, e->calls++) {
		if (!zmq_take_one(cl, id, size))
			return;
		e->bad += app_msg_read(cl->msg, size, check, lane_word(id, o->ack));
	}
}

static void
zmq_issue(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n)
{
	struct zmq_clients *cl = (struct zmq_clients *)e;

	for (; n != 0 && !e->broken; n--) {
		app_msg_fill(cl->msg, size, lane_word(id, e->one[id].seq++));
		if (zmq_send(cl->item[id].socket, cl->msg, size, 0) < 0)
			lane_break(e, "ZeroMQ: %s", app_zmq_why());
	}
}

static const struct lane_loop loop = {zmq_begin, zmq_take, zmq_issue, .waits = 1, .turns = 1};

static uint64_t
zmq_go(struct lane_end *e, uint64_t end, bool check)
{
	struct zmq_clients *cl = (struct zmq_clients *)e;

	cl->flags = e->conf.mode == LANE_ASYNC ? ZMQ_DONTWAIT : 0;
	cl->before = UINT64_MAX;
	return lane_calls(e, end, e->conf.size, check, &loop);
}

/* ---- both ---- */

static void
server_close(struct app_lane *l, int side)
{
	struct zmq_server *s = l->state[1];

	app_zmq_end(s->context, s->router, NULL);
	free(s);
}

static void
clients_close(struct app_lane *l, int side)
{
	struct zmq_clients *cl = l->state[0];

	for (uint32_t i = 1; i < l->c->clients; i++)
		if (cl->item[i].socket != NULL)
			zmq_close(cl->item[i].socket);
	app_zmq_end(cl->context, cl->item[0].socket, NULL);
	free(cl->msg);
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
		.loop = &loop,                                                                     \
	}

ZMQ_LANE(lane_zmq_ipc, "zmq_ipc");
ZMQ_LANE(lane_zmq_tcp, "zmq_tcp");
