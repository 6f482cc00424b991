/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ZeroMQ over tcp: a PUSH and a PULL socket for each direction, a context for each side, whose I/O
 * thread shares the side's core; so a side waits in the kernel rather than spin. A message is the
 * buffer itself at the sender, and used in place by the receiver: nothing of ours is copied.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "app_zmq.h"
#include "xb.h"

#define WAIT_MS 1

struct zmq_side {
	void *context, *push, *pull;
	zmq_msg_t last; /* The message that came last. */
	bool have;
	uint64_t moved;        /* Messages, both ways, when it was looked at last. */
	_Atomic uint64_t gone; /* Sent messages whose buffer is ours again. */
};

/* The I/O thread starts with the first socket, on this side's core. */
static int
zmq_lane_open(struct app_lane *l, int side)
{
	struct zmq_side *s = app_lane_state(l, side, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->context = zmq_ctx_new();
	s->pull = app_zmq_socket(s->context, ZMQ_PULL, -1);
	s->push = app_zmq_socket(s->context, ZMQ_PUSH, -1);
	l->addr[side].len = XB_ADDR_MAX;
	if (s->pull != NULL && s->push != NULL &&
		app_zmq_bind(
			s->pull, NULL, l->party->ip, (char *)l->addr[side].bytes, XB_ADDR_MAX) == 0)
		return 0;
	return app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
}

static int
zmq_lane_meet(struct app_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	if (zmq_connect(s->push, (const char *)l->addr[!side].bytes) == 0)
		return 0;
	return app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
}

/* By the I/O thread. */
static void
message_gone(void *data, void *arg)
{
	struct zmq_side *s = arg;

	crpc_fetch_add_acq_rel(&s->gone, 1); /* R73 */
}

static int
zmq_send_one(struct app_lane *l, struct zmq_side *s, uint8_t *p)
{
	zmq_msg_t msg;

	if (zmq_msg_init_data(&msg, p, l->c->size, message_gone, s) != 0 ||
		zmq_msg_send(&msg, s->push, 0) < 0)
		return app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
	return 0;
}

/* A message is received when it is there, not posted before. */
static int
zmq_recv_one(struct app_lane *l, struct zmq_side *s, uint8_t *p)
{
	if (s->have)
		zmq_msg_close(&s->last);
	zmq_msg_init(&s->last);
	s->have = true;
	if (zmq_msg_recv(&s->last, s->pull, ZMQ_DONTWAIT) < 0)
		return zmq_errno() == EAGAIN ? -EAGAIN
					     : app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
	if (zmq_msg_size(&s->last) != l->c->size)
		return app_lane_fail(l, -EMSGSIZE, "ZeroMQ: a message of %zu bytes came",
			zmq_msg_size(&s->last));
	if (l->c->prove)
		memcpy(p, zmq_msg_data(&s->last), l->c->size);
	return 0;
}

crpc_inline int
zmq_post(struct app_lane *l, int side, bool recv, uint64_t tag, uint8_t *p)
{
	return (recv ? zmq_recv_one : zmq_send_one)(l, l->state[side], p);
}

/* Let the I/O threads have the core. */
static void
give_way(struct app_lane *l, struct zmq_side *s, bool receives)
{
	zmq_pollitem_t item = {.socket = s->pull, .events = ZMQ_POLLIN};

	if (app_party_two(l->party) && receives)
		zmq_poll(&item, 1, WAIT_MS);
	else
		sched_yield();
}

crpc_inline int
zmq_progress(struct app_lane *l, struct xb_flow *f, int side)
{
	struct zmq_side *s = l->state[side];
	uint64_t moved = f->sent + f->received;

	f->recvs = 0;
	/* A73 pairs with R73: the buffer was read to its end. */
	f->sends = (uint32_t)(f->sent - crpc_load_acquire(&s->gone));
	if (moved == s->moved && f->to_send + f->to_recv + f->sends != 0)
		give_way(l, s, f->to_recv != 0);
	s->moved = moved;
	return 0;
}

static int
zmq_turn(struct app_lane *l, int side)
{
	return xb_turn(l, side, zmq_post, zmq_progress);
}

static void
zmq_lane_close(struct app_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	if (s->have)
		zmq_msg_close(&s->last);
	app_zmq_end(s->context, s->push, s->pull);
	free(s);
}

const struct xb_way xb_way_zmq = {
	.base = APP_WAY("zmq_tcp", zmq_lane_open, zmq_lane_meet, zmq_lane_close, .sleeps = true,
		.files = APP_ZMQ_FILES, .mib = APP_ZMQ_MIB),
	.turn = zmq_turn,
};
