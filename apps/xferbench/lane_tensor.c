/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/tensor_bulk: a message is an array of f32 that is put into the other side's memory, with
 * operations on it there; it is over when their statuses are back. Over the wire it is f32 or bf16,
 * which this side narrows and the peer's engine widens. Operations are fused into the request
 * that brings the array, or each but the first is a request of its own, which waits for the one
 * before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_bulk.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_tensor_convert.h"
#include "crpc_tensor_bulk.h"
#include "xb.h"

#define RING_SIZE 65536
#define DONES     16
/* Of the endpoint for heads. */
#define HEADS   1
#define OP_FILL CRPC_TENSOR_OP_USER

/* Elements that an operation fills: operation i those from i * OP_ELEMS on. */
#define OP_ELEMS 32

/* A message that is under way. */
struct request {
	bool open, waits; /* `waits`: for room, to make its next request. */
	uint64_t message;
	uint32_t op; /* The next one. */
};

struct end {
	struct xb_wire wire;
	struct crpc_copyrpc_ep *ep;
	struct crpc_tensor_runner *runner;
	struct crpc_tensor_bulk *net;
	uint16_t *half; /* What is sent in place of f32. */
	struct crpc_tensor_batch batch;
	struct request request[XB_DEPTH_MAX];
	uint64_t served; /* Requests of the slices before. */
};

/* What two sides exchange. */
struct both_addr {
	uint8_t ep[CRPC_COPYRPC_ADDR_LEN];
	uint8_t conn[CRPC_BULK_ADDR_LEN];
};

static bool
is_half(const struct app_lane *l)
{
	return l->c->transport == XB_TENSOR_BF16;
}

static float
op_value(uint32_t i)
{
	return (float)i + 1.5f;
}

/* An operation that costs next to nothing: the request is measured. */
static int
op_fill(void *ctx, const struct crpc_tensor_call *call)
{
	float *y = call->ptr[0];
	uint64_t n = crpc_tensor_elems(call->t[0]);

	if (call->t[0]->dtype != CRPC_TENSOR_F32 || !crpc_tensor_is_contiguous(call->t[0]))
		return -EINVAL;
	for (uint64_t i = 0; i < n; i++)
		y[i] = (float)call->value;
	return 0;
}

/* ---- open, meet, close ---- */

static int
end_bulk(struct app_lane *l, struct end *e)
{
	struct crpc_bulk_conf conf = {
		.rendezvous_min = l->c->path == XB_EAGER ? UINT64_MAX : 1, .shared = true};
	int rc = xb_wire_open(l, &e->wire, RING_SIZE);

	if (rc != 0)
		return rc;
	e->ep = crpc_copyrpc_ep_create(e->wire.ctx, HEADS);
	if (e->ep == NULL)
		return app_lane_fail(l, -errno, "endpoint: %s", crpc_log_last());
	return xb_wire_bulk(l, &e->wire, &conf);
}

static int
end_net(struct app_lane *l, struct end *e, int side)
{
	const struct crpc_tensor_runner_conf run = {0};
	struct crpc_tensor_bulk_conf conf = {.ctx = e->wire.ctx,
		.ep = e->ep,
		.bulk = e->wire.b,
		.conn = e->wire.conn,
		.block = l->c->mem[side].recv};

	if (conf.block != NULL)
		conf.block_len = l->c->size * l->c->depth;
	e->runner = crpc_tensor_runner_create(&run);
	if (e->runner == NULL ||
		crpc_tensor_runner_add(e->runner, OP_FILL, 0, 1, op_fill, NULL) != 0)
		return app_lane_fail(l, -ENOMEM, "no memory");
	conf.runner = e->runner;
	e->net = crpc_tensor_bulk_create(&conf);
	if (e->net == NULL)
		return app_lane_fail(l, -errno, "%s", crpc_log_last());
	return 0;
}

static int
tensor_open(struct app_lane *l, int side)
{
	struct both_addr *addr = (struct both_addr *)(void *)l->addr[side].bytes;
	struct end *e = app_lane_state(l, side, sizeof(*e));
	int rc;

	if (e == NULL)
		return -ENOMEM;
	if (is_half(l)) {
		e->half = aligned_alloc(CRPC_CACHE_LINE,
			crpc_align_up(l->c->size * l->c->depth / 2, CRPC_CACHE_LINE));
		if (e->half == NULL)
			return app_lane_fail(l, -ENOMEM, "no memory for an array of bf16");
		memset(e->half, 1, l->c->size * l->c->depth / 2);
	}
	rc = end_bulk(l, e);
	if (rc == 0)
		rc = end_net(l, e, side);
	if (rc != 0)
		return rc;
	crpc_copyrpc_ep_addr(e->ep, addr->ep);
	crpc_bulk_conn_addr(e->wire.conn, addr->conn);
	l->addr[side].len = sizeof(*addr);
	return 0;
}

static int
tensor_meet(struct app_lane *l, int side)
{
	const struct both_addr *addr = (const struct both_addr *)(const void *)l->addr[!side].bytes;
	struct end *e = l->state[side];
	int rc = -EPROTO;

	if (l->addr[!side].len == sizeof(*addr))
		rc = crpc_copyrpc_ep_connect(e->ep, addr->ep);
	if (rc == 0)
		rc = crpc_bulk_conn_connect(e->wire.conn, addr->conn);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "connect: %s", crpc_log_last());
}

static void
tensor_close(struct app_lane *l, int side)
{
	struct end *e = l->state[side];

	crpc_tensor_bulk_free(e->net);
	xb_wire_close(&e->wire);
	crpc_tensor_runner_free(e->runner);
	free(e->half);
	free(e);
}

/* ---- a slice ---- */

/* Operation i fills its own elements of the message. */
static int
batch_op(struct app_lane *l, struct end *e, const struct request *s, uint32_t i)
{
	const uint64_t elems = OP_ELEMS;
	uint64_t at = s->message % l->c->depth * l->c->size + i * elems * sizeof(float);
	struct crpc_tensor_args args = {.nout = 1, .value = op_value(i)};
	struct crpc_tensor t;
	int rc = crpc_tensor_init(&t, CRPC_TENSOR_F32, 1, &elems, 0, at);

	if (rc != 0)
		return rc;
	args.arg[0] = crpc_tensor_batch_array(&e->batch, &t);
	rc = crpc_tensor_batch_op(&e->batch, OP_FILL, &args);
	return rc < 0 ? rc : 0;
}

static int
put_make(struct app_lane *l, int side, const struct request *s, struct crpc_tensor_bulk_put *put)
{
	struct end *e = l->state[side];
	const uint8_t *from = xb_place(l->c, l->c->mem[side].send, s->message);
	uint64_t place = s->message % l->c->depth, elems = l->c->size / sizeof(float);

	put->data = from;
	put->dtype = CRPC_TENSOR_F32;
	if (is_half(l)) {
		put->data = e->half + place * elems;
		put->dtype = CRPC_TENSOR_BF16;
		/* If it waited for room it is there. */
		if (!s->waits)
			crpc_tensor_f32_to_bf16(
				e->half + place * elems, (const float *)(const void *)from, elems);
	}
	return crpc_tensor_init(&put->dst, CRPC_TENSOR_F32, 1, &elems, 0, place * l->c->size);
}

/* The next request of a message, which waits if there is no room for it: 0 or -errno. */
static int
request(struct app_lane *l, int side, struct request *s)
{
	uint32_t first = s->op, last = l->c->separate ? first + 1 : l->c->ops;
	struct end *e = l->state[side];
	struct crpc_tensor_bulk_put put;
	int rc = 0;

	crpc_tensor_batch_init(&e->batch, 0);
	for (uint32_t i = first; i < last && rc == 0; i++)
		rc = batch_op(l, e, s, i);
	if (rc == 0 && first == 0)
		rc = put_make(l, side, s, &put);
	if (rc == 0)
		rc = crpc_tensor_bulk_call(e->net, crpc_clock_ns(), first == 0 ? &put : NULL,
			first == 0, &e->batch, (uint64_t)(s - e->request));
	s->waits = rc == -EAGAIN;
	if (rc == 0)
		s->op = last;
	return s->waits ? 0 : rc;
}

/* Keep depth messages open: 0 or -errno. */
static int
requests(struct app_lane *l, struct end *e, int side)
{
	struct xb_flow *f = &l->c->flow[side];
	uint32_t n = crpc_min(l->c->depth, (uint32_t)CRPC_TENSOR_BULK_CALLS);
	int rc = 0;

	for (struct request *r = e->request; r < e->request + n && rc == 0; r++) {
		if (r->open && r->waits)
			rc = request(l, side, r);
		if (r->open || f->to_send == 0)
			continue;
		*r = (struct request){.open = true, .message = f->sent++};
		f->to_send--;
		f->sends++;
		rc = request(l, side, r);
	}
	return rc;
}

static int
done_take(struct app_lane *l, int side, const struct crpc_tensor_bulk_done *done)
{
	struct end *e = l->state[side];
	struct request *r = &e->request[done->cookie % XB_DEPTH_MAX];
	int rc = done->status;

	for (uint32_t i = 0; i < done->nops && rc == 0; i++)
		rc = done->op[i];
	if (rc != 0)
		return rc;
	if (r->op < l->c->ops)
		return request(l, side, r);
	r->open = false;
	l->c->flow[side].sends--;
	return 0;
}

static int
progress(struct app_lane *l, struct end *e, int side)
{
	struct crpc_tensor_bulk_done done[DONES];
	uint32_t n;
	int rc = 0;

	crpc_tensor_bulk_progress(e->net, crpc_clock_ns());
	n = crpc_tensor_bulk_poll(e->net, done, DONES);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = done_take(l, side, &done[i]);
	return rc == 0 && crpc_tensor_bulk_stats(e->net)->refused != 0 ? -EIO : rc;
}

/* This side's part is done when its requests are answered and it has served all of the peer's. */
static int
tensor_turn(struct app_lane *l, int side)
{
	struct xb_flow *f = &l->c->flow[side];
	struct end *e = l->state[side];
	uint64_t to_serve = f->to_recv * (l->c->separate ? l->c->ops : 1), served;
	int rc = requests(l, e, side);

	if (rc == 0)
		rc = progress(l, e, side);
	if (rc != 0)
		return app_lane_fail(l, rc, "a request: %s: %s", strerror(-rc), crpc_log_last());
	served = crpc_tensor_bulk_stats(e->net)->served;
	if (f->to_send + f->sends != 0 || served - e->served < to_serve)
		return 0;
	e->served += to_serve;
	f->to_recv = 0;
	return 1;
}

/* What has to be there: narrowed and widened, and what the operations have made. */
static void
tensor_expect(const struct app_lane *l, uint8_t *p)
{
	uint64_t elems = l->c->size / sizeof(float);
	uint16_t *half = is_half(l) ? malloc(elems * sizeof(*half)) : NULL;
	float *f = (float *)(void *)p;

	if (half != NULL) {
		crpc_tensor_f32_to_bf16(half, f, elems);
		crpc_tensor_bf16_to_f32(f, half, elems);
	}
	free(half);
	for (uint32_t i = 0; i < l->c->ops * OP_ELEMS; i++)
		f[i] = op_value(i / OP_ELEMS);
}

static void
tensor_report(struct app_lane *l, int side)
{
	l->c->report[side].memory = xb_wire_memory(&((struct end *)l->state[side])->wire);
}

#define TENSOR_WAY(way, text)                                                                      \
	const struct xb_way way = {                                                                \
		.base = APP_WAY(text, tensor_open, tensor_meet, tensor_close),                     \
		.turn = tensor_turn,                                                               \
		.expect = tensor_expect,                                                           \
		.report = tensor_report,                                                           \
	}

TENSOR_WAY(xb_way_tensor, "tensor_net");
TENSOR_WAY(xb_way_tensor_bf16, "tensor_net_bf16");
