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

#include "app_zmq.h"
#include "xb.h"

#define WAIT_MS 1

struct zm_side {
	void *context, *call, *serve; /* A socket for requests of ours, one for the other side's. */
	uint64_t served;
};

static int
zm_open(struct app_lane *l, int side)
{
	struct zm_side *s = app_lane_state(l, side, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->context = zmq_ctx_new();
	s->serve = app_zmq_socket(s->context, ZMQ_PAIR, -1);
	s->call = app_zmq_socket(s->context, ZMQ_PAIR, -1);
	return xb_zmq_bind(l, side, s->serve, s->call);
}

static int
zm_meet(struct app_lane *l, int side)
{
	struct zm_side *s = l->state[side];

	return xb_zmq_meet(l, side, s->call);
}

static uint64_t
zm_served(const struct app_lane *l, int side)
{
	return ((struct zm_side *)l->state[side])->served;
}

static void
buffer_gone(void *data, void *hint)
{
	free(data);
}

/* Send what was packed, and give it away. */
static int
send_packed(struct app_lane *l, void *sock, msgpack_sbuffer *buf)
{
	size_t len = buf->size;
	char *data = msgpack_sbuffer_release(buf);
	zmq_msg_t msg;

	if (zmq_msg_init_data(&msg, data, len, buffer_gone, NULL) != 0 ||
		zmq_msg_send(&msg, sock, 0) < 0)
		return app_lane_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
	return 0;
}

/* ---- requests ---- */

/* The next request of a message. */
static int
zm_request(struct app_lane *l, int side, struct xb_request *s)
{
	uint32_t first = s->op, last = l->c->separate ? first + 1 : l->c->ops;
	struct zm_side *z = l->state[side];
	msgpack_sbuffer buf;
	msgpack_packer pk;

	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 3);
	msgpack_pack_uint64(&pk, s->message % l->c->depth);
	if (first == 0) {
		msgpack_pack_bin(&pk, l->c->size);
		msgpack_pack_bin_body(&pk, xb_place(l->c, l->c->mem[side].send, s->message),
			l->c->size);
	} else {
		msgpack_pack_nil(&pk);
	}
	msgpack_pack_array(&pk, last - first);
	for (uint32_t i = first; i < last; i++) {
		msgpack_pack_array(&pk, 3);
		msgpack_pack_uint64(&pk, i * XB_OP_ELEMS);
		msgpack_pack_uint64(&pk, XB_OP_ELEMS);
		msgpack_pack_double(&pk, xb_op_value(i));
	}
	s->op = last;
	return send_packed(l, z->call, &buf);
}

/* An answer: [place, status, ...]. */
static int
answer_take(struct app_lane *l, int side, const msgpack_object *o)
{
	struct xb_request *s = l->c->flow[side].request;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size < 1 ||
		o->via.array.ptr[0].via.u64 >= l->c->depth)
		return -EPROTO;
	for (uint32_t i = 1; i < o->via.array.size; i++)
		if (o->via.array.ptr[i].via.i64 != 0)
			return -EIO;
	for (uint32_t i = 0; i < l->c->depth; i++, s++)
		if (s->open && s->message % l->c->depth == o->via.array.ptr[0].via.u64)
			return xb_answered(l, side, s);
	return -EPROTO;
}

/* ---- the other side's ---- */

static int
op_run(const struct app_lane *l, uint8_t *place, const msgpack_object *op)
{
	const msgpack_object *arg = op->via.array.ptr;
	float *y = (float *)(void *)place;
	uint64_t first, n;

	if (op->type != MSGPACK_OBJECT_ARRAY || op->via.array.size != 3)
		return -EINVAL;
	first = arg[0].via.u64;
	n = arg[1].via.u64;
	if (first + n > l->c->size / sizeof(float))
		return -ERANGE;
	for (uint64_t i = first; i < first + n; i++)
		y[i] = (float)arg[2].via.f64;
	return 0;
}

static int
request_serve(struct app_lane *l, int side, const msgpack_object *o)
{
	const msgpack_object *part = o->via.array.ptr;
	struct zm_side *z = l->state[side];
	msgpack_sbuffer buf;
	msgpack_packer pk;
	uint8_t *place;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size != 3 ||
		part[0].via.u64 >= l->c->depth || part[2].type != MSGPACK_OBJECT_ARRAY ||
		(part[1].type == MSGPACK_OBJECT_BIN && part[1].via.bin.size != l->c->size))
		return -EPROTO;
	place = l->c->mem[side].recv + part[0].via.u64 * l->c->size;
	if (part[1].type == MSGPACK_OBJECT_BIN)
		memcpy(place, part[1].via.bin.ptr, l->c->size);
	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 1 + part[2].via.array.size);
	msgpack_pack_uint64(&pk, part[0].via.u64);
	for (uint32_t i = 0; i < part[2].via.array.size; i++)
		msgpack_pack_int32(&pk, op_run(l, place, &part[2].via.array.ptr[i]));
	z->served++;
	return send_packed(l, z->serve, &buf);
}

/* ---- the loop ---- */

/* One message of a socket: 1, 0 (none), or -errno. */
static int
take(struct app_lane *l, int side, void *sock,
	int (*fn)(struct app_lane *l, int side, const msgpack_object *o))
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
give_way(struct app_lane *l, struct zm_side *z)
{
	zmq_pollitem_t item[2] = {{.socket = z->call, .events = ZMQ_POLLIN},
		{.socket = z->serve, .events = ZMQ_POLLIN}};

	if (app_party_two(l->party))
		zmq_poll(item, 2, WAIT_MS);
	else
		sched_yield();
}

static int
zm_progress(struct app_lane *l, int side)
{
	struct xb_flow *f = &l->c->flow[side];
	struct zm_side *z = l->state[side];
	int rc = take(l, side, z->call, answer_take), had = rc;

	if (rc >= 0) {
		rc = take(l, side, z->serve, request_serve);
		had |= rc;
	}
	if (rc < 0)
		return app_lane_fail(l, rc, "a request: %s", strerror(-rc));
	if (had == 0 && (f->to_send + f->sends != 0 || z->served < f->to_serve))
		give_way(l, z);
	return 0;
}

static void
zm_close(struct app_lane *l, int side)
{
	struct zm_side *z = l->state[side];

	app_zmq_end(z->context, z->call, z->serve);
	free(z);
}

const struct xb_way xb_way_msgpack = {
	.base = APP_WAY("msgpack_zmq_tcp", zm_open, zm_meet, zm_close, .sleeps = true,
		.files = APP_ZMQ_FILES, .mib = APP_ZMQ_MIB),
	.request = zm_request,
	.progress = zm_progress,
	.served = zm_served,
	.open_max = XB_DEPTH_MAX,
	.expect = xb_ops_expect,
};
