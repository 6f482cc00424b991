/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/bulk: a device, a context and a bulk object for each side, and one connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_bulk.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_unpack_gpudev.h"
#include "xb.h"

/* Of a rail, for control messages, which are small. */
#define RING_SIZE     65536u
#define RING_SIZE_MIN 4096u
/* What was not polled while other lanes had their turn must not count as lost. */
#define PATIENCE_NS UINT64_C(60000000000)
/* The peer may be away from its core. */
#define CONFIRM_NS UINT64_C(10000000000)
#define RESULTS 16

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_unpack *engine;
	uint8_t *device; /* Memory of a GPU that messages end in; NULL: they end in ours. */
	bool proved;     /* What it has was copied to ours. */
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	const char *unpacks; /* Name of the engine. */
	uint64_t to_send, to_recv; /* Of this slice: not posted yet. */
	uint64_t sent, received;   /* Posted so far, over all slices: places, and tags. */
	uint32_t sends, recvs;     /* Open. */
};

/* ---- a GPU ---- */

#ifdef XB_HAVE_GPUDEV
static uint64_t
end_len(const struct xb_lane *l)
{
	return l->point.size * l->point.depth;
}

static int
end_device(struct xb_lane *l, struct end *e)
{
	int rc;

	e->device = crpc_unpack_gpudev_alloc(l->opt->gpu, end_len(l));
	if (e->device == NULL)
		return xb_lane_fail(l, -errno, "device memory: %s", crpc_log_last());
	rc = crpc_unpack_attach(e->engine, e->device, end_len(l));
	return rc == 0 ? 0 : xb_lane_fail(l, rc, "device memory: %s", crpc_log_last());
}

static int
end_prove(struct xb_lane *l, struct end *e, int side)
{
	int rc = crpc_unpack_gpudev_read(l->opt->gpu, l->mem[side].recv, e->device, end_len(l));

	e->proved = true;
	return rc == 0 ? 0 : xb_lane_fail(l, rc, "device memory: %s", crpc_log_last());
}

static void
end_device_free(struct xb_lane *l, struct end *e)
{
	crpc_unpack_gpudev_free(l->opt->gpu, e->device);
}
#else
/* There is no such engine, so this is not reached. */
static int
end_device(struct xb_lane *l, struct end *e)
{
	return -ENODEV;
}

static int
end_prove(struct xb_lane *l, struct end *e, int side)
{
	return -ENODEV;
}

static void
end_device_free(struct xb_lane *l, struct end *e)
{
}
#endif

/* ---- opening ---- */

/* A side that receives nothing needs none, and devices are few. */
static int
end_engine(struct xb_lane *l, struct end *e, int side)
{
	bool needed = l->point.path == XB_EAGER && (side == 1 || l->point.both);
	enum xb_engine which = needed ? l->point.engine : XB_CPU;
	const struct crpc_unpack_conf conf = {.arg = which == XB_DMADEV ? l->opt->dma
			: which == XB_GPUDEV                            ? l->opt->gpu
									: NULL};

	e->engine = crpc_unpack_create(xb_engine_names[which], &conf);
	if (e->engine == NULL)
		return xb_lane_fail(l, -errno, "engine: %s", crpc_log_last());
	e->unpacks = xb_engine_names[which];
	return which == XB_GPUDEV ? end_device(l, e) : 0;
}

/* All rails together take what one would: memory beyond the buffers has a limit. */
static uint32_t
ring_size(uint32_t rails)
{
	uint32_t size = RING_SIZE;

	while (size * rails > RING_SIZE)
		size /= 2;
	return rails > 4 ? RING_SIZE_MIN : size;
}

static int
end_bulk(struct xb_lane *l, struct end *e, int side)
{
	const struct xb_point *p = &l->point;
	const struct crpc_copyrpc_conf rpc = {
		.dev = e->dev, .ring_size = ring_size(p->rails), .timeout_ns = PATIENCE_NS};
	struct crpc_bulk_conf conf = {.chunk = p->chunk,
		.slots = p->window,
		.tx_chunks = xb_tx_chunks(p),
		.timeout_ns = PATIENCE_NS,
		.confirm_ns = CONFIRM_NS,
		.engine = e->engine,
		.clock_ns = crpc_clock_ns};

	e->ctx = crpc_copyrpc_create(&rpc);
	if (e->ctx == NULL)
		return xb_lane_fail(l, -errno, "context: %s", crpc_log_last());
	conf.port[0] = (struct crpc_bulk_port){.ctx = e->ctx, .dev = e->dev};
	e->b = crpc_bulk_create(&conf);
	if (e->b == NULL)
		return xb_lane_fail(l, -errno, "bulk: %s", crpc_log_last());
	e->conn = crpc_bulk_conn_create(e->b, p->rails, 0);
	if (e->conn == NULL)
		return xb_lane_fail(l, -errno, "connection: %s", crpc_log_last());
	crpc_bulk_conn_addr(e->conn, l->addr[side].bytes);
	l->addr[side].len = CRPC_BULK_ADDR_LEN;
	return 0;
}

static int
bulk_open(struct xb_lane *l, int side)
{
	const struct crpc_rdma_conf rdma = {.device = l->opt->device, .gid_index = -1};
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
	rc = end_engine(l, e, side);
	return rc != 0 ? rc : end_bulk(l, e, side);
}

static int
bulk_meet(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];
	int rc = -EPROTO;

	if (l->addr[!side].len == CRPC_BULK_ADDR_LEN)
		rc = crpc_bulk_conn_connect(e->conn, l->addr[!side].bytes);
	return rc == 0 ? 0 : xb_lane_fail(l, rc, "connect: %s", crpc_log_last());
}

static int
bulk_start(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];

	e->to_send = xb_sends(l, side);
	e->to_recv = xb_recvs(l, side);
	e->proved = e->device == NULL || !l->prove || e->to_recv == 0;
	return 0;
}

static uint32_t
path_flag(enum xb_path path)
{
	static const uint32_t flag[XB_PATHS] = {CRPC_BULK_EAGER, CRPC_BULK_WRITE, CRPC_BULK_READ};

	return flag[path];
}

static int
post_one(struct xb_lane *l, int side, uint64_t now, bool recv)
{
	struct end *e = l->state[side];
	uint64_t tag = recv ? e->received : e->sent, req;
	const struct xb_mem *mem = &l->mem[side];
	uint8_t *to = e->device != NULL ? e->device : mem->recv;
	int rc;

	if (recv)
		rc = crpc_bulk_irecv(e->conn, now, tag, xb_place(l, to, tag), l->point.size,
			path_flag(l->point.path), 0, &req);
	else
		rc = crpc_bulk_isend(e->conn, now, tag, xb_place(l, mem->send, tag), l->point.size,
			path_flag(l->point.path), 0, &req);
	if (rc == 0)
		(*(recv ? &e->received : &e->sent))++;
	return rc;
}

/* Keep depth requests open each way. */
static int
post(struct xb_lane *l, int side, uint64_t now)
{
	struct end *e = l->state[side];
	int rc = 0;

	while (rc == 0 && e->to_recv != 0 && e->recvs < l->point.depth) {
		rc = post_one(l, side, now, true);
		if (rc == 0) {
			e->to_recv--;
			e->recvs++;
		}
	}
	while (rc == 0 && e->to_send != 0 && e->sends < l->point.depth) {
		rc = post_one(l, side, now, false);
		if (rc == 0) {
			e->to_send--;
			e->sends++;
		}
	}
	return rc == -EAGAIN ? 0 : rc;
}

static int
bulk_turn(struct xb_lane *l, int side)
{
	struct crpc_bulk_result result[RESULTS];
	struct end *e = l->state[side];
	uint64_t now = crpc_clock_ns();
	uint16_t i, n;
	int rc = post(l, side, now);

	if (rc != 0)
		return xb_lane_fail(l, rc, "request: %s: %s", strerror(-rc), crpc_log_last());
	if (crpc_bulk_progress(e->b, now) == 0)
		return e->to_send + e->to_recv + e->sends + e->recvs == 0;
	n = crpc_bulk_test_burst(e->b, result, RESULTS);
	for (i = 0; i < n; i++) {
		if (result[i].status != 0)
			return xb_lane_fail(l, result[i].status, "a %s ended with %s: %s",
				result[i].recv ? "receive" : "send", strerror(-result[i].status),
				crpc_log_last());
		(*(result[i].recv ? &e->recvs : &e->sends))--;
	}
	if (e->to_send + e->to_recv + e->sends + e->recvs != 0)
		return 0;
	rc = e->proved ? 0 : end_prove(l, e, side);
	return rc != 0 ? rc : 1;
}

static void
bulk_close(struct xb_lane *l, int side)
{
	struct end *e = l->state[side];

	if (e == NULL)
		return;
	crpc_bulk_free(e->b);
	crpc_unpack_free(e->engine);
	end_device_free(l, e);
	crpc_copyrpc_free(e->ctx);
	crpc_rdma_close(e->dev);
	free(e);
}

static struct xb_sum
sum_of(const struct crpc_bulk_stage *s)
{
	return (struct xb_sum){.n = s->n, .ns = s->sum_ns};
}

/*
 * Whoever posts chunks knows the first two stages, whoever gets them by the eager path the others.
 */
static void
bulk_report(struct xb_lane *l, int side)
{
	const struct end *e = l->state[side];
	const struct crpc_bulk_stats *s = crpc_bulk_stats(e->b);
	struct xb_report *r = &l->report[side];
	uint64_t bounce, more;

	r->stage[XB_POST] = sum_of(&s->post);
	r->stage[XB_WIRE] = sum_of(&s->wire);
	r->stage[XB_UNPACK] = sum_of(&s->unpack);
	r->stage[XB_CONSUME] = sum_of(&s->consume);
	r->chunks = s->post.n;
	r->occupancy = s->occupancy_sum;
	r->blocked_window = s->blocked_window;
	r->blocked_slots = s->blocked_slots;
	r->blocked_queue = s->blocked_queue;
	crpc_bulk_stats_reset(e->b);
	crpc_bulk_memory(e->b, &bounce, &more);
	r->memory = bounce + more;
	snprintf(r->engine, sizeof(r->engine), "%s", e->unpacks);
}

const struct xb_lane_ops xb_lane_bulk = {
	.built = true,
	.open = bulk_open,
	.meet = bulk_meet,
	.start = bulk_start,
	.turn = bulk_turn,
	.report = bulk_report,
	.close = bulk_close,
};
