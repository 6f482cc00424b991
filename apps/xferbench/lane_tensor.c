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

#define RING_SIZE   65536
#define PATIENCE_NS UINT64_C(60000000000)
/* The peer may be away from its core. */
#define CONFIRM_NS UINT64_C(10000000000)
#define DONES       16
/* Of the endpoint for heads. */
#define HEADS 1
#define OP_FILL CRPC_TENSOR_OP_USER

/* A message that is under way. */
struct slot {
	bool open, waits; /* `waits`: for room, to make its next request. */
	uint64_t message;
	uint32_t op; /* The next one. */
};

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	struct crpc_tensor_runner *runner;
	struct crpc_tensor_bulk *net;
	uint16_t *half; /* What is sent in place of f32. */
	struct slot slot[XB_DEPTH_MAX];
	struct crpc_tensor_batch batch;
	uint64_t to_send, sent, to_serve;
	uint32_t open;
};

/* What two sides exchange. */
struct both_addr {
	uint8_t ep[CRPC_COPYRPC_ADDR_LEN];
	uint8_t conn[CRPC_BULK_ADDR_LEN];
};

static bool
is_half(const struct xb_lane *l)
{
	return l->point.transport == XB_TENSOR_BF16;
}

/* An operation that costs next to nothing: the request is measured. */
static int
op_fill(void *ctx, const struct crpc_tensor_call *call)
{
	float *y = call->ptr[0];
	uint64_t i, n = crpc_tensor_elems(call->t[0]);

	if (call->t[0]->dtype != CRPC_TENSOR_F32 || !crpc_tensor_is_contiguous(call->t[0]))
		return -EINVAL;
	for (i = 0; i < n; i++)
		y[i] = (float)call->value;
	return 0;
}

/* ---- open, meet, close ---- */

static int
end_bulk(struct xb_lane *l, struct end *e)
{
	const struct xb_point *p = &l->point;
	const struct crpc_copyrpc_conf rpc = {
		.dev = e->dev, .ring_size = RING_SIZE, .timeout_ns = PATIENCE_NS};
	struct crpc_bulk_conf conf = {.chunk = p->chunk,
		.slots = p->window,
		.tx_chunks = xb_tx_chunks(p),
		.rendezvous_min = p->path == XB_EAGER ? UINT64_MAX : 1,
		.timeout_ns = PATIENCE_NS,
		.confirm_ns = CONFIRM_NS,
		.shared = true};

	e->ctx = crpc_copyrpc_create(&rpc);
	if (e->ctx == NULL)
		return xb_lane_fail(l, -errno, "context: %s", crpc_log_last());
	conf.port[0] = (struct crpc_bulk_port){.ctx = e->ctx, .dev = e->dev};
	e->ep = crpc_copyrpc_ep_create(e->ctx, HEADS);
	e->b = e->ep == NULL ? NULL : crpc_bulk_create(&conf);
	e->conn = e->b == NULL ? NULL : crpc_bulk_conn_create(e->b, p->rails, 0);
	if (e->conn == NULL)
		return xb_lane_fail(l, -errno, "connection: %s", crpc_log_last());
	return 0;
}

static int
end_net(struct xb_lane *l, struct end *e, int side)
{
	const struct crpc_tensor_runner_conf run = {0};
	struct crpc_tensor_bulk_conf conf = {.ctx = e->ctx, .ep = e->ep, .bulk = e->b,
		.conn = e->conn, .block = l->mem[side].recv};

	if (conf.block != NULL)
		conf.block_len = l->point.size * l->point.depth;
	e->runner = crpc_tensor_runner_create(&run);
	if (e->runner == NULL ||
		crpc_tensor_runner_add(e->runner, OP_FILL, 0, 1, op_fill, NULL) != 0)
		return xb_lane_fail(l, -ENOMEM, "no memory");
	conf.runner = e->runner;
	e->net = crpc_tensor_bulk_create(&conf);
	if (e->net == NULL)
		return xb_lane_fail(l, -errno, "%s", crpc_log_last());
	return 0;
}

static int
tensor_open(struct xb_lane *l, int side)
{
	const struct crpc_rdma_conf rdma = {.device = l->opt->device, .gid_index = -1};
	struct both_addr *addr = (struct both_addr *)(void *)l->addr[side].bytes;
	struct end *e = calloc(1, sizeof(*e));
	int rc;

	l->state[side] = e;
	if (e == NULL)
		return xb_lane_fail(l, -ENOMEM, "no memory");
	e->dev = crpc_rdma_open(&rdma);
	if (e->dev == NULL)
		return xb_lane_fail(l, -errno,
			"%s; usertools/soft-mlx5 starts a program on a software device",
			crpc_log_last());
	if (is_half(l)) {
		e->half = aligned_alloc(CRPC_CACHE_LINE,
			crpc_align_up(l->point.size * l->point.depth / 2, CRPC_CACHE_LINE));
		if (e->half == NULL)
			return xb_lane_fail(l, -ENOMEM, "no memory for an array of bf16");
		memset(e->half, 1, l->point.size * l->point.depth / 2);
	}
	rc = end_bulk(l, e);
	if (rc == 0)
		rc = end_net(l, e, side);
	if (rc != 0)
		return rc;
	crpc_copyrpc_ep_addr(e->ep, addr->ep);
	crpc_bulk_conn_addr(e->conn, addr->conn);
	l->addr[side].len = sizeof(*addr);
	return 0;
}

static int
tensor_meet(struct xb_lane *l, int side)
{
	const struct both_addr *addr = (const struct both_addr *)(const void *)l->addr[!side].bytes;
	struct end *e = l->state[side];
	int rc = -EPROTO;

	if (l->addr[!side].len == sizeof(*addr))
		rc = crpc_copyrpc_ep_connect(e->ep, addr->ep);
	if (rc == 0)
		rc = crpc_bulk_conn_connect(e->conn, addr->conn);
	return rc == 0 ? 0 : xb_lane_fail(l, rc, "connect: %s", crpc_log_last());
}

static void
tensor_close(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];

	if (e == NULL)
		return;
	crpc_tensor_bulk_free(e->net);
	crpc_bulk_free(e->b);
	crpc_copyrpc_free(e->ctx);
	crpc_rdma_close(e->dev);
	crpc_tensor_runner_free(e->runner);
	free(e->half);
	free(e);
}

/* ---- a slice ---- */

static int
tensor_start(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];
	uint64_t each = l->point.separate ? l->point.ops : 1;

	e->to_send = xb_sends(l, side);
	e->to_serve = crpc_tensor_bulk_stats(e->net)->served + xb_recvs(l, side) * each;
	return 0;
}

/* Operation i fills its own elements of the message. */
static int
batch_op(struct xb_lane *l, struct end *e, const struct slot *s, uint32_t i)
{
	const uint64_t elems = XB_OP_ELEMS;
	uint64_t at = s->message % l->point.depth * l->point.size + i * elems * sizeof(float);
	struct crpc_tensor_args args = {.nout = 1, .value = xb_op_value(i)};
	struct crpc_tensor t;
	int rc = crpc_tensor_init(&t, CRPC_TENSOR_F32, 1, &elems, 0, at);

	if (rc != 0)
		return rc;
	args.arg[0] = crpc_tensor_batch_array(&e->batch, &t);
	rc = crpc_tensor_batch_op(&e->batch, OP_FILL, &args);
	return rc < 0 ? rc : 0;
}

static int
put_make(struct xb_lane *l, int side, const struct slot *s, struct crpc_tensor_bulk_put *put)
{
	struct end *e = l->state[side];
	const uint8_t *from = xb_place(l, l->mem[side].send, s->message);
	uint64_t place = s->message % l->point.depth, elems = l->point.size / sizeof(float);

	put->data = from;
	put->dtype = CRPC_TENSOR_F32;
	if (is_half(l)) {
		put->data = e->half + place * elems;
		put->dtype = CRPC_TENSOR_BF16;
		/* If it waited for room it is there. */
		if (!s->waits)
			crpc_tensor_f32_to_bf16(e->half + place * elems,
				(const float *)(const void *)from, elems);
	}
	return crpc_tensor_init(&put->dst, CRPC_TENSOR_F32, 1, &elems, 0, place * l->point.size);
}

/* The next request of a message: 0, -EAGAIN, -errno. */
static int
request(struct xb_lane *l, int side, struct slot *s)
{
	uint32_t first = s->op, last = l->point.separate ? first + 1 : l->point.ops, i;
	struct end *e = l->state[side];
	struct crpc_tensor_bulk_put put;
	int rc = 0;

	crpc_tensor_batch_init(&e->batch, 0);
	for (i = first; i < last && rc == 0; i++)
		rc = batch_op(l, e, s, i);
	if (rc == 0 && first == 0)
		rc = put_make(l, side, s, &put);
	if (rc == 0)
		rc = crpc_tensor_bulk_call(e->net, crpc_clock_ns(), first == 0 ? &put : NULL,
			first == 0, &e->batch, (uint64_t)(s - e->slot));
	s->waits = rc == -EAGAIN;
	if (rc == 0)
		s->op = last;
	return rc;
}

static int
requests(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];
	uint32_t i, n = (uint32_t)crpc_min(l->point.depth, CRPC_TENSOR_BULK_CALLS);
	struct slot *s;
	int rc = 0;

	for (i = 0; i < n && rc == 0; i++) {
		s = &e->slot[i];
		if (s->open && s->waits)
			rc = request(l, side, s);
		if (s->open || e->to_send == 0)
			continue;
		*s = (struct slot){.open = true, .message = e->sent++};
		e->to_send--;
		e->open++;
		rc = request(l, side, s);
	}
	return rc == -EAGAIN ? 0 : rc;
}

static int
done_take(struct xb_lane *l, int side, const struct crpc_tensor_bulk_done *done)
{
	struct end *e = l->state[side];
	struct slot *s = &e->slot[done->cookie % XB_DEPTH_MAX];
	int rc = done->status;
	uint32_t i;

	for (i = 0; i < done->nops && rc == 0; i++)
		rc = done->op[i];
	if (rc != 0)
		return rc;
	if (s->op < l->point.ops) {
		rc = request(l, side, s);
		return rc == -EAGAIN ? 0 : rc;
	}
	s->open = false;
	e->open--;
	return 0;
}

static int
tensor_turn(struct xb_lane *l, int side)
{
	struct crpc_tensor_bulk_done done[DONES];
	struct end *e = l->state[side];
	int rc = requests(l, side);
	uint32_t i, n;

	crpc_tensor_bulk_progress(e->net, crpc_clock_ns());
	n = crpc_tensor_bulk_poll(e->net, done, DONES);
	for (i = 0; i < n && rc == 0; i++)
		rc = done_take(l, side, &done[i]);
	if (rc != 0)
		return xb_lane_fail(l, rc, "a request: %s: %s", strerror(-rc), crpc_log_last());
	if (crpc_tensor_bulk_stats(e->net)->refused != 0)
		return xb_lane_fail(l, -EIO, "a request was refused: %s", crpc_log_last());
	return e->to_send == 0 && e->open == 0 &&
		crpc_tensor_bulk_stats(e->net)->served >= e->to_serve;
}

/* What has to be there: narrowed and widened, and what the operations have made. */
static void
tensor_expect(const struct xb_lane *l, uint8_t *p)
{
	uint64_t elems = l->point.size / sizeof(float);
	uint16_t *half = is_half(l) ? malloc(elems * sizeof(*half)) : NULL;
	float *f = (float *)(void *)p;

	if (half != NULL) {
		crpc_tensor_f32_to_bf16(half, f, elems);
		crpc_tensor_bf16_to_f32(f, half, elems);
	}
	free(half);
	xb_ops_expect(l, p);
}

static void
tensor_report(struct xb_lane *l, int side)
{
	const struct end *e = l->state[side];
	uint64_t bounce, more;

	crpc_bulk_memory(e->b, &bounce, &more);
	l->report[side].memory = bounce + more;
}

const struct xb_lane_ops xb_lane_tensor = {
	.built = true,
	.open = tensor_open,
	.meet = tensor_meet,
	.start = tensor_start,
	.turn = tensor_turn,
	.expect = tensor_expect,
	.report = tensor_report,
	.close = tensor_close,
};
