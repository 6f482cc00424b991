/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What people use instead: ZeroMQ over ipc:// or tcp://, with the array as it is, as one msgpack
 * binary, or as a msgpack array element by element. ZeroMQ is given the message's memory and
 * copies nothing on the way in; what the receiver uses in place, it uses in place.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>
#ifdef RPB_HAVE_MSGPACK
#include <msgpack.h>
#endif

#include "app_room.h"
#include "tensor.h"

#define WAIT_MS 20
/* What ZeroMQ opens and maps beside the arrays; it aborts where it cannot. */
#define ZMQ_FILES 16
#define ZMQ_MIB   64

enum form { FORM_RAW, FORM_BIN, FORM_ELEMS };

static enum form
form_of(enum tensor_way_id way)
{
	if (way == TENSOR_RAW_IPC || way == TENSOR_RAW_TCP)
		return FORM_RAW;
	return way == TENSOR_BIN_IPC || way == TENSOR_BIN_TCP ? FORM_BIN : FORM_ELEMS;
}

static bool
is_ipc(enum tensor_way_id way)
{
	return way == TENSOR_RAW_IPC || way == TENSOR_BIN_IPC || way == TENSOR_ELEMS_IPC;
}

/* An array as msgpack elements and its copies: 32 bytes for each element. */
static const char *
zmq_lacks(const struct tensor_conf *c)
{
	return app_room_lacks(ZMQ_FILES, ZMQ_MIB + ((uint64_t)c->elems * 32 >> 20));
}

/* A REQ or REP socket that waits WAIT_MS. */
static void *
socket_new(void *context, int type)
{
	void *s = context == NULL ? NULL : zmq_socket(context, type);
	int zero = 0, wait = WAIT_MS;

	if (s == NULL)
		return NULL;
	zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &wait, sizeof(wait));
	return s;
}

/* ---- first process ---- */

struct zmq_sender {
	enum form form;
	uint32_t elems;
	float *x;
	void *context;
	void *req;
	struct rpb_pair *pair;
#ifdef RPB_HAVE_MSGPACK
	msgpack_sbuffer packed;
#endif
};

static void
sender_close(void *client)
{
	struct zmq_sender *s = client;

	if (s->req != NULL)
		zmq_close(s->req);
	if (s->context != NULL)
		zmq_ctx_term(s->context);
#ifdef RPB_HAVE_MSGPACK
	msgpack_sbuffer_destroy(&s->packed);
#endif
	free(s->x);
	free(s);
}

static void *
sender_open(struct rpb_pair *p, const struct tensor_conf *c)
{
	const char *lacks = zmq_lacks(c);
	struct zmq_sender *s;
	char address[128] = "";
	int rc;

	if (lacks != NULL) {
		tensor_why(-EMFILE, "ZeroMQ: %s", lacks);
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		tensor_why(-ENOMEM, "no memory");
		return NULL;
	}
#ifdef RPB_HAVE_MSGPACK
	msgpack_sbuffer_init(&s->packed);
#endif
	s->pair = p;
	s->form = form_of(c->way);
	s->elems = c->elems;
	s->x = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up(c->elems * sizeof(float), CRPC_CACHE_LINE));
	s->context = zmq_ctx_new();
	s->req = socket_new(s->context, ZMQ_REQ);
	rc = rpb_pair_see(p, RPB_FIRST, address, sizeof(address) - 1, TENSOR_MEET_MS);
	if (rc > 0 && s->x != NULL && s->req != NULL && zmq_connect(s->req, address) == 0)
		return s;
	tensor_why(-EIO, "ZeroMQ %s: %s", address,
		rc < 0 ? strerror(-rc) : zmq_strerror(zmq_errno()));
	sender_close(s);
	return NULL;
}

static float *
sender_array(void *client)
{
	return ((struct zmq_sender *)client)->x;
}

/* The message's memory is kept: ZeroMQ has sent it when the answer is there. */
static void
keep(void *data, void *hint)
{
}

/* Make the message: where it lies. */
static const void *
serialize(struct zmq_sender *s, size_t *len)
{
#ifdef RPB_HAVE_MSGPACK
	msgpack_packer pk;
	uint32_t i;
#endif

	*len = s->elems * sizeof(float);
	if (s->form == FORM_RAW)
		return s->x;
#ifdef RPB_HAVE_MSGPACK
	msgpack_sbuffer_clear(&s->packed);
	msgpack_packer_init(&pk, &s->packed, msgpack_sbuffer_write);
	if (s->form == FORM_BIN) {
		msgpack_pack_bin(&pk, *len);
		msgpack_pack_bin_body(&pk, s->x, *len);
	} else {
		msgpack_pack_array(&pk, s->elems);
		for (i = 0; i < s->elems; i++)
			msgpack_pack_float(&pk, s->x[i]);
	}
	*len = s->packed.size;
	return s->packed.data;
#else
	return NULL;
#endif
}

/* Wait for the times of the pass. */
static int
sender_wait(struct zmq_sender *s, struct tensor_answer *a)
{
	uint64_t end = crpc_clock_ns() + TENSOR_MEET_MS * UINT64_C(1000000);
	int n;

	for (;;) {
		n = zmq_recv(s->req, a, sizeof(*a), 0);
		if (n == (int)sizeof(*a))
			return 0;
		if (n >= 0)
			return tensor_why(-EIO, "ZeroMQ: an answer of %d bytes", n);
		if (zmq_errno() != EAGAIN && zmq_errno() != EINTR)
			return tensor_why(-EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
		if (!rpb_pair_alive(s->pair)) /* ZeroMQ would go on trying. */
			return tensor_why(-ECHILD, "%s", rpb_pair_why(s->pair));
		if (crpc_clock_ns() > end)
			return tensor_why(-ETIMEDOUT, "ZeroMQ: no answer in %d s",
				TENSOR_MEET_MS / 1000);
	}
}

static int
sender_pass(void *client, struct tensor_pass *t)
{
	struct zmq_sender *s = client;
	const void *data;
	zmq_msg_t msg;
	size_t len;

	t->begin = crpc_clock_ticks();
	data = serialize(s, &len);
	t->serialized = crpc_clock_ticks();
	/* The library's parameter is not const, but it only reads. */
	if (zmq_msg_init_data(&msg, (void *)(uintptr_t)data, len, keep, NULL) != 0 ||
		zmq_msg_send(&msg, s->req, 0) < 0)
		return tensor_why(-EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	t->sent = crpc_clock_ticks();
	return sender_wait(s, &t->answer);
}

/* ---- second process ---- */

struct zmq_receiver {
	enum form form;
	uint32_t elems;
	float *x;
	void *context;
	void *rep;
	zmq_msg_t msg;
};

static void
receiver_close(void *server)
{
	struct zmq_receiver *r = server;

	zmq_msg_close(&r->msg);
	if (r->rep != NULL)
		zmq_close(r->rep);
	if (r->context != NULL)
		zmq_ctx_term(r->context);
	free(r->x);
	free(r);
}

static void *
receiver_open(struct rpb_pair *p, const struct tensor_conf *c)
{
	const char *lacks = zmq_lacks(c);
	struct zmq_receiver *r;
	char address[128] = "tcp://127.0.0.1:*";
	size_t len = sizeof(address);

	if (lacks != NULL) {
		rpb_pair_fail(p, -EMFILE, "ZeroMQ: %s", lacks);
		return NULL;
	}
	r = calloc(1, sizeof(*r));
	if (r == NULL) {
		rpb_pair_fail(p, -ENOMEM, "no memory");
		return NULL;
	}
	zmq_msg_init(&r->msg);
	r->form = form_of(c->way);
	r->elems = c->elems;
	r->x = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up(c->elems * sizeof(float), CRPC_CACHE_LINE));
	r->context = zmq_ctx_new();
	r->rep = socket_new(r->context, ZMQ_REP);
	/* A name that begins with '@' is in no folder, so nothing is left behind. */
	if (is_ipc(c->way))
		snprintf(address, sizeof(address), "ipc://@%s", c->name);
	if (r->x != NULL && r->rep != NULL && zmq_bind(r->rep, address) == 0 &&
		zmq_getsockopt(r->rep, ZMQ_LAST_ENDPOINT, address, &len) == 0 &&
		rpb_pair_show(p, RPB_SECOND, address, len) == 0)
		return r;
	rpb_pair_fail(p, -EIO, "ZeroMQ: %s: %s", address, zmq_strerror(zmq_errno()));
	receiver_close(r);
	return NULL;
}

#ifdef RPB_HAVE_MSGPACK
/* The array in the message, as f32 in memory of ours: 0 or -EPROTO. */
static int
unpack(struct zmq_receiver *r, const char *data, size_t len)
{
	const msgpack_object *o;
	msgpack_unpacked u;
	uint32_t i;
	int rc = -EPROTO;

	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, data, len, NULL) != MSGPACK_UNPACK_SUCCESS)
		goto end;
	o = &u.data;
	if (r->form == FORM_BIN && o->type == MSGPACK_OBJECT_BIN &&
		o->via.bin.size == r->elems * sizeof(float)) {
		memcpy(r->x, o->via.bin.ptr, o->via.bin.size); /* not aligned in the message */
		rc = 0;
	} else if (r->form == FORM_ELEMS && o->type == MSGPACK_OBJECT_ARRAY &&
		   o->via.array.size == r->elems) {
		for (i = 0; i < r->elems; i++)
			r->x[i] = (float)o->via.array.ptr[i].via.f64;
		rc = 0;
	}
end:
	msgpack_unpacked_destroy(&u);
	return rc;
}
#else
static int
unpack(struct zmq_receiver *r, const char *data, size_t len)
{
	return -ENOSYS;
}
#endif

static int
receiver_serve(void *server, struct tensor_user *u)
{
	struct zmq_receiver *r = server;
	int n = zmq_msg_recv(&r->msg, r->rep, 0), rc;

	u->answer.received = crpc_clock_ticks();
	if (n < 0)
		return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? 0 : -zmq_errno();
	if (r->form == FORM_RAW) {
		if ((size_t)n != r->elems * sizeof(float))
			return -EPROTO;
		tensor_use(u, zmq_msg_data(&r->msg));
	} else {
		rc = unpack(r, zmq_msg_data(&r->msg), (size_t)n);
		if (rc != 0)
			return rc;
		tensor_use(u, r->x);
	}
	return zmq_send(r->rep, &u->answer, sizeof(u->answer), 0) < 0 ? -zmq_errno() : 0;
}

#ifdef RPB_HAVE_MSGPACK
#define HAVE_MSGPACK true
#else
#define HAVE_MSGPACK false
#endif

#define ZMQ_WAY(way, text, packages, is_built)                                                     \
	const struct tensor_way way = {                                                            \
		.name = text,                                                                      \
		.package = packages,                                                               \
		.built = is_built,                                                                 \
		.sleeps = true,                                                                    \
		.open = sender_open,                                                               \
		.array = sender_array,                                                             \
		.pass = sender_pass,                                                               \
		.close = sender_close,                                                             \
		.serve_open = receiver_open,                                                       \
		.serve = receiver_serve,                                                           \
		.serve_close = receiver_close,                                                     \
	}

ZMQ_WAY(tensor_raw_ipc, "raw_zmq_ipc", "libzmq3-dev", true);
ZMQ_WAY(tensor_raw_tcp, "raw_zmq_tcp", "libzmq3-dev", true);
ZMQ_WAY(tensor_bin_ipc, "msgpack_bin_zmq_ipc", "libzmq3-dev libmsgpack-dev", HAVE_MSGPACK);
ZMQ_WAY(tensor_bin_tcp, "msgpack_bin_zmq_tcp", "libzmq3-dev libmsgpack-dev", HAVE_MSGPACK);
ZMQ_WAY(tensor_elems_ipc, "msgpack_elements_zmq_ipc", "libzmq3-dev libmsgpack-dev", HAVE_MSGPACK);
ZMQ_WAY(tensor_elems_tcp, "msgpack_elements_zmq_tcp", "libzmq3-dev libmsgpack-dev", HAVE_MSGPACK);
