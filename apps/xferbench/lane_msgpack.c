/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lib/tensor_bulk is compared with: the same requests serialised with msgpack, over ZeroMQ's
 * tcp. A request is [place, array as binary or nil, [[first element, elements, value], ...]], its
 * answer [status, ...]. The array is copied into its place, as it is not aligned in the message.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>
#include <zmq.h>

#include "xb_zmq.h"

#define WAIT_MS 1

/* A message that is under way. */
struct slot {
	bool open;
	uint64_t message;
	uint32_t op; /* The next one. */
};

struct zm_side {
	void *context, *call, *serve; /* A socket for requests of ours, one for the other side's. */
	struct slot slot[XB_DEPTH_MAX];
	uint64_t to_send, sent, to_serve, served;
	uint32_t open;
};

static int
zm_open(struct xb_lane *l, int side)
{
	struct zm_side *s = calloc(1, sizeof(*s));

	l->state[side] = s;
	if (s == NULL)
		return xb_lane_fail(l, -ENOMEM, "no memory");
	s->context = zmq_ctx_new();
	s->serve = s->context == NULL ? NULL : xb_zmq_socket(s->context, ZMQ_PAIR);
	s->call = s->serve == NULL ? NULL : xb_zmq_socket(s->context, ZMQ_PAIR);
	if (s->call == NULL)
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	return xb_zmq_bind(l, side, s->serve);
}

static int
zm_meet(struct xb_lane *l, int side)
{
	struct zm_side *s = l->state[side];

	return xb_zmq_connect(l, side, s->call);
}

static int
zm_start(struct xb_lane *l, int side)
{
	struct zm_side *s = l->state[side];

	s->to_send = xb_sends(l, side);
	s->to_serve = s->served + xb_recvs(l, side) * (l->point.separate ? l->point.ops : 1);
	return 0;
}

static void
buffer_gone(void *data, void *hint)
{
	free(data);
}

/* Send what was packed, and give it away. */
static int
send_packed(struct xb_lane *l, void *sock, msgpack_sbuffer *buf)
{
	size_t len = buf->size;
	char *data = msgpack_sbuffer_release(buf);
	zmq_msg_t msg;

	if (zmq_msg_init_data(&msg, data, len, buffer_gone, NULL) != 0 ||
		zmq_msg_send(&msg, sock, 0) < 0)
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	return 0;
}

/* ---- requests ---- */

/* The next request of a message. */
static int
request(struct xb_lane *l, int side, struct slot *s)
{
	uint32_t first = s->op, last = l->point.separate ? first + 1 : l->point.ops, i;
	struct zm_side *z = l->state[side];
	msgpack_sbuffer buf;
	msgpack_packer pk;

	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 3);
	msgpack_pack_uint64(&pk, s->message % l->point.depth);
	if (first == 0) {
		msgpack_pack_bin(&pk, l->point.size);
		msgpack_pack_bin_body(&pk, xb_place(l, l->mem[side].send, s->message),
			l->point.size);
	} else {
		msgpack_pack_nil(&pk);
	}
	msgpack_pack_array(&pk, last - first);
	for (i = first; i < last; i++) {
		msgpack_pack_array(&pk, 3);
		msgpack_pack_uint64(&pk, i * XB_OP_ELEMS);
		msgpack_pack_uint64(&pk, XB_OP_ELEMS);
		msgpack_pack_double(&pk, xb_op_value(i));
	}
	s->op = last;
	return send_packed(l, z->call, &buf);
}

static int
requests(struct xb_lane *l, int side)
{
	struct zm_side *z = l->state[side];
	uint32_t i;
	int rc = 0;

	for (i = 0; i < l->point.depth && rc == 0 && z->to_send != 0; i++) {
		if (z->slot[i].open)
			continue;
		z->slot[i] = (struct slot){.open = true, .message = z->sent++};
		z->to_send--;
		z->open++;
		rc = request(l, side, &z->slot[i]);
	}
	return rc;
}

/* An answer: [place, status, ...]. */
static int
answer_take(struct xb_lane *l, int side, const msgpack_object *o)
{
	struct zm_side *z = l->state[side];
	struct slot *s;
	uint32_t i;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size < 1 ||
		o->via.array.ptr[0].via.u64 >= l->point.depth)
		return -EPROTO;
	for (i = 1; i < o->via.array.size; i++)
		if (o->via.array.ptr[i].via.i64 != 0)
			return -EIO;
	for (i = 0; i < l->point.depth; i++) {
		s = &z->slot[i];
		if (s->open && s->message % l->point.depth == o->via.array.ptr[0].via.u64)
			break;
	}
	if (i == l->point.depth)
		return -EPROTO;
	if (s->op < l->point.ops)
		return request(l, side, s);
	s->open = false;
	z->open--;
	return 0;
}

/* ---- the other side's ---- */

static int
op_run(const struct xb_lane *l, uint8_t *place, const msgpack_object *op)
{
	const msgpack_object *arg = op->via.array.ptr;
	float *y = (float *)(void *)place;
	uint64_t i, first, n;

	if (op->type != MSGPACK_OBJECT_ARRAY || op->via.array.size != 3)
		return -EINVAL;
	first = arg[0].via.u64;
	n = arg[1].via.u64;
	if (first + n > l->point.size / sizeof(float))
		return -ERANGE;
	for (i = first; i < first + n; i++)
		y[i] = (float)arg[2].via.f64;
	return 0;
}

static int
request_serve(struct xb_lane *l, int side, const msgpack_object *o)
{
	const msgpack_object *part = o->via.array.ptr;
	struct zm_side *z = l->state[side];
	msgpack_sbuffer buf;
	msgpack_packer pk;
	uint8_t *place;
	uint32_t i;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size != 3 ||
		part[0].via.u64 >= l->point.depth || part[2].type != MSGPACK_OBJECT_ARRAY ||
		(part[1].type == MSGPACK_OBJECT_BIN && part[1].via.bin.size != l->point.size))
		return -EPROTO;
	place = l->mem[side].recv + part[0].via.u64 * l->point.size;
	if (part[1].type == MSGPACK_OBJECT_BIN)
		memcpy(place, part[1].via.bin.ptr, l->point.size);
	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 1 + part[2].via.array.size);
	msgpack_pack_uint64(&pk, part[0].via.u64);
	for (i = 0; i < part[2].via.array.size; i++)
		msgpack_pack_int32(&pk, op_run(l, place, &part[2].via.array.ptr[i]));
	z->served++;
	return send_packed(l, z->serve, &buf);
}

/* ---- the loop ---- */

/* One message of a socket: 1, 0 (none), or -errno. */
static int
take(struct xb_lane *l, int side, void *sock,
	int (*fn)(struct xb_lane *l, int side, const msgpack_object *o))
{
	msgpack_unpacked u;
	zmq_msg_t msg;
	int rc = -EPROTO;

	zmq_msg_init(&msg);
	if (zmq_msg_recv(&msg, sock, ZMQ_DONTWAIT) < 0) {
		zmq_msg_close(&msg);
		return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? 0 : -EIO;
	}
	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, zmq_msg_data(&msg), zmq_msg_size(&msg), NULL) ==
		MSGPACK_UNPACK_SUCCESS)
		rc = fn(l, side, &u.data);
	msgpack_unpacked_destroy(&u);
	zmq_msg_close(&msg);
	return rc != 0 ? rc : 1;
}

/* Let the I/O threads have the core. */
static void
give_way(struct xb_lane *l, struct zm_side *z)
{
	zmq_pollitem_t item[2] = {{.socket = z->call, .events = ZMQ_POLLIN},
		{.socket = z->serve, .events = ZMQ_POLLIN}};

	if (xb_team_two(l->team))
		zmq_poll(item, 2, WAIT_MS);
	else
		sched_yield();
}

static int
zm_turn(struct xb_lane *l, int side)
{
	struct zm_side *z = l->state[side];
	int rc = requests(l, side), had = 0;

	if (rc == 0)
		rc = had = take(l, side, z->call, answer_take);
	if (rc >= 0) {
		rc = take(l, side, z->serve, request_serve);
		had |= rc;
	}
	if (rc < 0)
		return xb_lane_fail(l, rc, "a request: %s", strerror(-rc));
	if (z->to_send == 0 && z->open == 0 && z->served >= z->to_serve)
		return 1;
	if (had == 0)
		give_way(l, z);
	return 0;
}

static void
zm_close(struct xb_lane *l, int side)
{
	struct zm_side *z = l->state[side];

	if (z == NULL)
		return;
	if (z->call != NULL)
		zmq_close(z->call);
	if (z->serve != NULL)
		zmq_close(z->serve);
	if (z->context != NULL)
		zmq_ctx_term(z->context);
	free(z);
}

const struct xb_lane_ops xb_lane_msgpack = {
	.package = "libzmq3-dev libmsgpack-dev",
	.built = true,
	.files = 16,
	.mib = 64,
	.sleeps = true,
	.open = zm_open,
	.meet = zm_meet,
	.start = zm_start,
	.turn = zm_turn,
	.expect = xb_ops_expect,
	.close = zm_close,
};
