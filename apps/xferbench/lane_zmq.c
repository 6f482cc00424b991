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

#include "xb_zmq.h"

#define WAIT_MS 1

struct zmq_side {
	void *context, *push, *pull;
	zmq_msg_t last; /* The message that came last. */
	bool have;
	uint64_t to_send, to_recv, sent, received;
	_Atomic uint64_t gone; /* Sent messages whose buffer is ours again. */
};

/* The I/O thread starts with the first socket, on this side's core. */
static int
zmq_lane_open(struct xb_lane *l, int side)
{
	struct zmq_side *s = calloc(1, sizeof(*s));

	l->state[side] = s;
	if (s == NULL)
		return xb_lane_fail(l, -ENOMEM, "no memory");
	s->context = zmq_ctx_new();
	s->pull = s->context == NULL ? NULL : xb_zmq_socket(s->context, ZMQ_PULL);
	s->push = s->pull == NULL ? NULL : xb_zmq_socket(s->context, ZMQ_PUSH);
	if (s->push == NULL)
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	return xb_zmq_bind(l, side, s->pull);
}

static int
zmq_lane_meet(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	return xb_zmq_connect(l, side, s->push);
}

static int
zmq_lane_start(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	s->to_send = xb_sends(l, side);
	s->to_recv = xb_recvs(l, side);
	return 0;
}

/* By the I/O thread. */
static void
message_gone(void *data, void *arg)
{
	struct zmq_side *s = arg;

	crpc_fetch_add_acq_rel(&s->gone, 1); /* R73 */
}

static int
zmq_send_one(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];
	zmq_msg_t msg;

	if (zmq_msg_init_data(&msg, xb_place(l, l->mem[side].send, s->sent), l->point.size,
		    message_gone, s) != 0 ||
		zmq_msg_send(&msg, s->push, 0) < 0)
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	s->sent++;
	s->to_send--;
	return 0;
}

static int
zmq_recv_one(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	if (s->have)
		zmq_msg_close(&s->last);
	zmq_msg_init(&s->last);
	s->have = true;
	if (zmq_msg_recv(&s->last, s->pull, ZMQ_DONTWAIT) < 0)
		return zmq_errno() == EAGAIN ? -EAGAIN
					     : xb_lane_fail(l, -EIO, "ZeroMQ: %s",
						       zmq_strerror(zmq_errno()));
	if (zmq_msg_size(&s->last) != l->point.size)
		return xb_lane_fail(l, -EMSGSIZE, "ZeroMQ: a message of %zu bytes came",
			zmq_msg_size(&s->last));
	if (l->prove)
		memcpy(xb_place(l, l->mem[side].recv, s->received), zmq_msg_data(&s->last),
			l->point.size);
	s->received++;
	s->to_recv--;
	return 0;
}

/* Let the I/O threads have the core. */
static void
give_way(struct xb_lane *l, struct zmq_side *s)
{
	zmq_pollitem_t item = {.socket = s->pull, .events = ZMQ_POLLIN};

	if (xb_team_two(l->team) && s->to_recv != 0)
		zmq_poll(&item, 1, WAIT_MS);
	else
		sched_yield();
}

static int
zmq_lane_turn(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];
	bool idle = true;
	int rc = 0;

	/* A73 pairs with R73: the buffer was read to its end. */
	while (rc == 0 && s->to_send != 0 &&
		s->sent - crpc_load_acquire(&s->gone) < l->point.depth) {
		rc = zmq_send_one(l, side);
		idle = false;
	}
	if (rc == 0 && s->to_recv != 0) {
		rc = zmq_recv_one(l, side);
		idle &= rc == -EAGAIN;
	}
	if (rc != 0 && rc != -EAGAIN)
		return rc;
	if (s->to_send + s->to_recv == 0 && s->sent == crpc_load_acquire(&s->gone))
		return 1;
	if (idle)
		give_way(l, s);
	return 0;
}

static void
zmq_lane_close(struct xb_lane *l, int side)
{
	struct zmq_side *s = l->state[side];

	if (s == NULL)
		return;
	if (s->have)
		zmq_msg_close(&s->last);
	if (s->push != NULL)
		zmq_close(s->push);
	if (s->pull != NULL)
		zmq_close(s->pull);
	if (s->context != NULL)
		zmq_ctx_term(s->context);
	free(s);
}

const struct xb_lane_ops xb_lane_zmq = {
	.package = "libzmq3-dev",
	.built = true,
	.files = 16,
	.mib = 64,
	.sleeps = true,
	.open = zmq_lane_open,
	.meet = zmq_lane_meet,
	.start = zmq_lane_start,
	.turn = zmq_lane_turn,
	.close = zmq_lane_close,
};
