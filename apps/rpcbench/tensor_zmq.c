/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What people use instead: ZeroMQ over ipc:// or tcp://, with the array as it is, as one msgpack
 * binary, or as a msgpack array element by element. ZeroMQ is given the message's memory and
 * copies nothing on the way in; what the receiver uses in place, it uses in place.
 */
#include <errno.h>
#include <stdlib.h>

#include <msgpack.h>
#include <zmq.h>

#include "app_zmq.h"
#include "crpc_clock.h"
#include "tensor.h"

#define WAIT_MS 20

/* One side. */
struct zmq_way {
	enum tensor_form form;
	uint32_t elems;
	float *x;               /* The array, unless it is used in the message. */
	msgpack_sbuffer packed; /* Side 0. */
	zmq_msg_t msg;          /* Side 1. */
	void *context, *sock;
};

/* Side 0 asks, side 1 answers. */
static int
zmq_way_open(struct app_lane *base, int side)
{
	struct zmq_way *s = app_lane_state(base, side, sizeof(*s));
	struct tensor_lane *l = (struct tensor_lane *)base;

	if (s == NULL)
		return -ENOMEM;
	msgpack_sbuffer_init(&s->packed);
	zmq_msg_init(&s->msg);
	s->form = tensor_way(l)->form;
	s->elems = l->elems;
	s->x = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up(l->elems * sizeof(float), CRPC_CACHE_LINE));
	if (side == 0)
		l->array = s->x;
	s->context = zmq_ctx_new();
	s->sock = app_zmq_socket(s->context, side == 0 ? ZMQ_REQ : ZMQ_REP, WAIT_MS);
	if (s->x != NULL && s->sock != NULL &&
		(side == 0 ||
			app_zmq_bind(s->sock, tensor_way(l)->ipc ? l->name : NULL,
				l->base.party->ip, (char *)l->base.addr[1].bytes,
				TENSOR_ADDR_MAX) == 0))
		return 0;
	return tensor_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
}

static int
zmq_way_meet(struct app_lane *l, int side)
{
	const char *address = (const char *)l->addr[1].bytes;
	struct zmq_way *s = l->state[side];

	if (zmq_connect(s->sock, address) == 0)
		return 0;
	return app_lane_fail(l, -EIO, "ZeroMQ: %s: %s", address, app_zmq_why());
}

static void
zmq_way_close(struct app_lane *l, int side)
{
	struct zmq_way *s = l->state[side];

	zmq_msg_close(&s->msg);
	app_zmq_end(s->context, s->sock, NULL);
	msgpack_sbuffer_destroy(&s->packed);
	free(s->x);
	free(s);
}

/* ---- side 0 ---- */

/* The message's memory is kept: ZeroMQ has sent it when the answer is there. */
static void
keep(void *data, void *hint)
{
}

/* Make the message: where it lies. */
static const void *
serialize(struct zmq_way *s, size_t *len)
{
	msgpack_packer pk;

	*len = s->elems * sizeof(float);
	if (s->form == TENSOR_RAW)
		return s->x;
	msgpack_sbuffer_clear(&s->packed);
	msgpack_packer_init(&pk, &s->packed, msgpack_sbuffer_write);
	if (s->form == TENSOR_BIN) {
		msgpack_pack_bin(&pk, *len);
		msgpack_pack_bin_body(&pk, s->x, *len);
	} else {
		msgpack_pack_array(&pk, s->elems);
		for (uint32_t i = 0; i < s->elems; i++)
			msgpack_pack_float(&pk, s->x[i]);
	}
	*len = s->packed.size;
	return s->packed.data;
}

/* Wait for the times of the pass. */
static int
sender_wait(struct tensor_lane *l, struct zmq_way *s, struct tensor_answer *a)
{
	uint64_t end = crpc_clock_ns() + RPB_MEET_MS * UINT64_C(1000000);
	int n;

	for (;;) {
		n = zmq_recv(s->sock, a, sizeof(*a), 0);
		if (n == (int)sizeof(*a))
			return 0;
		if (n >= 0)
			return tensor_fail(l, -EIO, "ZeroMQ: an answer of %d bytes", n);
		if (zmq_errno() != EAGAIN && zmq_errno() != EINTR)
			return tensor_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
		if (app_party_look(l->base.party, 0) != 0) /* ZeroMQ would go on trying. */
			return -ECONNRESET;
		if (crpc_clock_ns() > end)
			return tensor_fail(
				l, -ETIMEDOUT, "ZeroMQ: no answer in %d s", RPB_MEET_MS / 1000);
	}
}

static int
sender_pass(struct tensor_lane *l, struct tensor_pass *t)
{
	struct zmq_way *s = l->base.state[0];
	const void *data;
	zmq_msg_t msg;
	size_t len;

	t->begin = crpc_clock_ticks();
	data = serialize(s, &len);
	t->serialized = crpc_clock_ticks();
	/* The library's parameter is not const, but it only reads. */
	if (zmq_msg_init_data(&msg, (void *)(uintptr_t)data, len, keep, NULL) != 0 ||
		zmq_msg_send(&msg, s->sock, 0) < 0)
		return tensor_fail(l, -EIO, "ZeroMQ: %s", app_zmq_why());
	t->sent = crpc_clock_ticks();
	return sender_wait(l, s, &t->answer);
}

/* ---- side 1 ---- */

/* The array in the message, as f32 in memory of ours: 0 or -EPROTO. */
static int
unpack(struct zmq_way *r, const char *data, size_t len)
{
	const msgpack_object *o;
	msgpack_unpacked u;
	int rc = -EPROTO;

	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, data, len, NULL) != MSGPACK_UNPACK_SUCCESS)
		goto end;
	o = &u.data;
	if (r->form == TENSOR_BIN && o->type == MSGPACK_OBJECT_BIN &&
		o->via.bin.size == r->elems * sizeof(float)) {
		memcpy(r->x, o->via.bin.ptr, o->via.bin.size); /* not aligned in the message */
		rc = 0;
	} else if (r->form == TENSOR_ELEMS && o->type == MSGPACK_OBJECT_ARRAY &&
		o->via.array.size == r->elems) {
		for (uint32_t i = 0; i < r->elems; i++)
			r->x[i] = (float)o->via.array.ptr[i].via.f64;
		rc = 0;
	}
end:
	msgpack_unpacked_destroy(&u);
	return rc;
}

static int
receiver_serve(struct tensor_lane *l)
{
	struct zmq_way *r = l->base.state[1];
	struct tensor_user *u = &l->user;
	int n = zmq_msg_recv(&r->msg, r->sock, 0), rc;

	u->answer.received = crpc_clock_ticks();
	if (n < 0)
		return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? 0 : -zmq_errno();
	if (r->form == TENSOR_RAW) {
		if ((size_t)n != r->elems * sizeof(float))
			return -EPROTO;
		tensor_use(u, zmq_msg_data(&r->msg));
	} else {
		rc = unpack(r, zmq_msg_data(&r->msg), (size_t)n);
		if (rc != 0)
			return rc;
		tensor_use(u, r->x);
	}
	return zmq_send(r->sock, &u->answer, sizeof(u->answer), 0) < 0 ? -zmq_errno() : 0;
}

/* Elements as msgpack objects take 32 bytes, and copies of these. */
#define ZMQ_WAY(text, what, over_ipc)                                                              \
	{                                                                                          \
		.base = APP_WAY_SIDES(text, zmq_way_open, zmq_way_open, zmq_way_meet, NULL,        \
			zmq_way_close, zmq_way_close, .sleeps = true, .files = APP_ZMQ_FILES,      \
			.mib = APP_ZMQ_MIB),                                                       \
		.form = what, .ipc = over_ipc, .elem_bytes = 32, .pass = sender_pass,              \
		.serve = receiver_serve                                                            \
	}

const struct tensor_way tensor_zmq[TENSOR_ZMQ] = TENSOR_ZMQ_WAYS(ZMQ_WAY);
