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

#include "app_room.h"
#include "lane.h"

/* A wait ends after this to look at the clock, ms. */
#define WAIT_MS 20
#define ID_MAX  256
/* What ZeroMQ opens and maps, and for each client; it aborts where it cannot. */
#define ZMQ_FILES     16
#define ZMQ_FILES_ONE 3
#define ZMQ_MIB       64

/* ---- both sides ---- */

static void *
socket_new(void *context, int type)
{
	void *s = zmq_socket(context, type);
	int zero = 0, wait = WAIT_MS;

	if (s == NULL)
		return NULL;
	/* No limit on what is queued: the depth of the clients is the limit. */
	zmq_setsockopt(s, ZMQ_SNDHWM, &zero, sizeof(zero));
	zmq_setsockopt(s, ZMQ_RCVHWM, &zero, sizeof(zero));
	zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &wait, sizeof(wait));
	return s;
}

static const char *
zmq_lacks(const struct lane_conf *c)
{
	return app_room_lacks(ZMQ_FILES + c->clients * ZMQ_FILES_ONE, ZMQ_MIB);
}

static void *
context_new(uint32_t sockets)
{
	void *context = zmq_ctx_new();

	if (context != NULL)
		zmq_ctx_set(context, ZMQ_MAX_SOCKETS, (int)sockets + 8);
	return context;
}

/* ---- second process ---- */

struct zmq_server {
	void *context;
	void *router;
	uint32_t size;
	uint8_t *mem;
};

static void
zmq_serve_close(void *server)
{
	struct zmq_server *s = server;

	if (s->router != NULL)
		zmq_close(s->router);
	if (s->context != NULL)
		zmq_ctx_term(s->context);
	free(s->mem);
	free(s);
}

static int
zmq_serve_open(struct rpb_pair *p, const struct lane_conf *c, void **server)
{
	const char *lacks = zmq_lacks(c);
	struct zmq_server *s;
	char address[128] = "tcp://127.0.0.1:*";
	size_t len = sizeof(address);

	if (lacks != NULL)
		return rpb_pair_fail(p, -EMFILE, "ZeroMQ: %s", lacks);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return rpb_pair_fail(p, -ENOMEM, "no memory");
	s->size = c->size;
	s->mem = malloc(c->size);
	s->context = context_new(1);
	s->router = s->context == NULL ? NULL : socket_new(s->context, ZMQ_ROUTER);
	/* A name that begins with '@' is in no folder, so nothing is left behind. */
	if (c->transport == LANE_ZMQ_IPC)
		snprintf(address, sizeof(address), "ipc://@%s", c->name);
	if (s->mem == NULL || s->router == NULL || zmq_bind(s->router, address) != 0 ||
		zmq_getsockopt(s->router, ZMQ_LAST_ENDPOINT, address, &len) != 0) {
		rpb_pair_fail(p, -EIO, "ZeroMQ: %s: %s", address, zmq_strerror(zmq_errno()));
		zmq_serve_close(s);
		return -EIO;
	}
	*server = s;
	return rpb_pair_show(p, RPB_SECOND, address, len);
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
zmq_serve(struct rpb_pair *p, void *server, struct lane_served *out)
{
	out->clocked = false;
	rpb_pair_set_ready(p);
	while (!rpb_pair_stopped(p))
		out->calls += router_turn(server, 0);
}

/* ---- first process ---- */

struct zmq_one {
	void *dealer;
	uint64_t seq;
	uint64_t ack;
};

struct zmq_clients {
	struct lane_client base;
	void *context;
	uint64_t *msg;
	zmq_pollitem_t *item;
	struct zmq_one one[];
};

static void
zmq_clients_close(struct lane_client *base)
{
	struct zmq_clients *cl = (struct zmq_clients *)base;
	uint32_t i;

	for (i = 0; i < base->conf.clients; i++)
		if (cl->one[i].dealer != NULL)
			zmq_close(cl->one[i].dealer);
	if (cl->context != NULL)
		zmq_ctx_term(cl->context);
	free(cl->msg);
	free(cl->item);
	free(cl);
}

static int
dealer_open(struct zmq_clients *cl, uint32_t i, const char *address)
{
	struct zmq_one *o = &cl->one[i];

	o->dealer = socket_new(cl->context, ZMQ_DEALER);
	if (o->dealer == NULL || zmq_connect(o->dealer, address) != 0)
		return -zmq_errno();
	cl->item[i] = (zmq_pollitem_t){.socket = o->dealer, .events = ZMQ_POLLIN};
	return 0;
}

static struct lane_client *
zmq_clients_open(struct rpb_pair *p, const struct lane_conf *c)
{
	const char *lacks = zmq_lacks(c);
	struct zmq_clients *cl;
	char address[128] = "";
	uint32_t i;
	int rc = -ENOMEM;

	if (lacks != NULL) {
		lane_why("ZeroMQ: %s", lacks);
		return NULL;
	}
	cl = calloc(1, sizeof(*cl) + c->clients * sizeof(cl->one[0]));
	if (cl == NULL) {
		lane_why("no memory");
		return NULL;
	}
	cl->base.conf = *c;
	cl->base.pair = p;
	cl->context = context_new(c->clients);
	cl->msg = malloc(c->size);
	cl->item = calloc(c->clients, sizeof(*cl->item));
	if (cl->context == NULL || cl->msg == NULL || cl->item == NULL)
		goto err_clients;
	rc = rpb_pair_see(p, RPB_FIRST, address, sizeof(address) - 1, LANE_MEET_MS);
	for (i = 0, rc = rc < 0 ? rc : 0; rc == 0 && i < c->clients; i++)
		rc = dealer_open(cl, i, address);
	if (rc == 0)
		return &cl->base;
err_clients:
	lane_why("ZeroMQ %s: %s", address, zmq_strerror(-rc));
	zmq_clients_close(&cl->base);
	return NULL;
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
			lane_break(&cl->base, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
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
		lane_break(&cl->base, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	else
		o->seq++;
}

static uint64_t
zmq_async(struct zmq_clients *cl, uint64_t end, bool check)
{
	const struct lane_conf *c = &cl->base.conf;
	uint64_t calls = 0, before;
	uint32_t i, k;

	do {
		before = calls;
		for (i = 0; i < c->active; i++) {
			for (k = 0; k < c->burst && zmq_take(cl, i, ZMQ_DONTWAIT, check) != 0; k++)
				calls++;
			for (k = 0; k < c->burst && cl->one[i].seq - cl->one[i].ack < c->depth; k++)
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
zmq_go(struct lane_client *base, uint64_t end, bool check)
{
	struct zmq_clients *cl = (struct zmq_clients *)base;

	return base->conf.mode == LANE_ASYNC ? zmq_async(cl, end, check) : zmq_sync(cl, end, check);
}

static void
zmq_drain(struct lane_client *base, uint64_t end)
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

#define ZMQ_LANE(lane, text)                                                                       \
	const struct lane_ops lane = {                                                             \
		.name = text,                                                                      \
		.package = "libzmq3-dev",                                                          \
		.built = true,                                                                     \
		.sleeps = true,                                                                    \
		.clients_max = LANE_CLIENTS_MAX,                                                   \
		.serve_open = zmq_serve_open,                                                      \
		.serve = zmq_serve,                                                                \
		.serve_close = zmq_serve_close,                                                    \
		.open = zmq_clients_open,                                                          \
		.go = zmq_go,                                                                      \
		.drain = zmq_drain,                                                                \
		.close = zmq_clients_close,                                                        \
	}

ZMQ_LANE(lane_zmq_ipc, "zmq_ipc");
ZMQ_LANE(lane_zmq_tcp, "zmq_tcp");
