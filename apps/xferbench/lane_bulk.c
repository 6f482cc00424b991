/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/bulk: a device, a context and a bulk object for each side, and one connection; or the same
 * over TCP, without a device.
 */
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
#define RESULTS    16

struct end {
	struct xb_wire wire;
	struct crpc_unpack *engine;
	uint8_t *device;     /* Memory of a GPU that messages end in; NULL: they end in ours. */
	uint64_t proved;     /* So many messages, as what it has was copied to ours. */
};

/* ---- a GPU ---- */

#ifdef XB_HAVE_GPUDEV
static uint64_t
end_len(const struct app_lane *l)
{
	return l->c->size * l->c->depth;
}

static int
end_device(struct app_lane *l, struct end *e)
{
	int rc;

	e->device = crpc_unpack_gpudev_alloc(l->c->opt->gpu, end_len(l));
	if (e->device == NULL)
		return app_lane_fail(l, -errno, "device memory: %s", crpc_log_last());
	rc = crpc_unpack_attach(e->engine, e->device, end_len(l));
	return rc == 0 ? 0 : app_lane_fail(l, rc, "device memory: %s", crpc_log_last());
}

static int
bulk_end(struct app_lane *l, int side)
{
	struct end *e = l->state[side];
	uint64_t received = l->c->flow[side].received;
	int rc = 0;

	if (e->device != NULL && l->c->prove && e->proved != received)
		rc = crpc_unpack_gpudev_read(
			l->c->opt->gpu, l->c->mem[side].recv, e->device, end_len(l));
	e->proved = received;
	return rc == 0 ? 1 : app_lane_fail(l, rc, "device memory: %s", crpc_log_last());
}
#endif

/* ---- opening ---- */

int
xb_wire_open(struct app_lane *l, struct xb_wire *w, uint32_t ring_size)
{
	const struct crpc_rdma_conf rdma = {.device = l->c->opt->device};
	struct crpc_copyrpc_conf rpc = {.ring_size = ring_size, .timeout_ns = PATIENCE_NS};

	w->dev = crpc_rdma_open(&rdma);
	if (w->dev == NULL)
		return app_lane_fail(l, -errno,
			"%s; usertools/soft-mlx5 starts a program on a software device",
			crpc_log_last());
	rpc.dev = w->dev;
	w->ctx = crpc_copyrpc_create(&rpc);
	return w->ctx != NULL ? 0 : app_lane_fail(l, -errno, "context: %s", crpc_log_last());
}

int
xb_wire_bulk(struct app_lane *l, struct xb_wire *w, struct crpc_bulk_conf *conf)
{
	conf->chunk = l->c->chunk;
	conf->slots = l->c->window;
	conf->tx_chunks = xb_tx_chunks(l->c);
	conf->timeout_ns = PATIENCE_NS;
	conf->confirm_ns = CONFIRM_NS;
	conf->port[0] = (struct crpc_bulk_port){.ctx = w->ctx, .dev = w->dev};
	if (l->c->transport == XB_BULK_TCP) {
		conf->port[0] = (struct crpc_bulk_port){0};
		memcpy(conf->port[0].tcp, l->party->ip, sizeof(l->party->ip));
	}
	w->b = crpc_bulk_create(conf);
	if (w->b == NULL)
		return app_lane_fail(l, -errno, "bulk: %s", crpc_log_last());
	w->conn = crpc_bulk_conn_create(w->b, l->c->rails, 0);
	return w->conn != NULL ? 0 : app_lane_fail(l, -errno, "connection: %s", crpc_log_last());
}

uint64_t
xb_wire_memory(const struct xb_wire *w)
{
	uint64_t bounce, more;

	crpc_bulk_memory(w->b, &bounce, &more);
	return bounce + more;
}

void
xb_wire_close(struct xb_wire *w)
{
	crpc_bulk_free(w->b);
	crpc_copyrpc_free(w->ctx);
	crpc_rdma_close(w->dev);
}

/* A side that receives nothing needs none, and devices are few. */
static int
end_engine(struct app_lane *l, struct end *e, int side)
{
	bool needed = l->c->path == XB_EAGER && (side == 1 || l->c->both);
	uint32_t which = needed ? l->c->engine : XB_CPU;
	const char *arg = which == XB_DMADEV ? l->c->opt->dma
		: which == XB_GPUDEV         ? l->c->opt->gpu
					     : NULL;

	e->engine = xb_unpack_create(needed ? l->c->unpack : XB_BATCHED, which, arg);
	if (e->engine == NULL)
		return app_lane_fail(l, -errno, "engine: %s", crpc_log_last());
#ifdef XB_HAVE_GPUDEV
	if (which == XB_GPUDEV)
		return end_device(l, e);
#endif
	return 0;
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
bulk_open(struct app_lane *l, int side)
{
	struct end *e = app_lane_state(l, side, sizeof(*e));
	struct crpc_bulk_conf conf = {.clock_ns = crpc_clock_ns};
	int rc;

	if (e == NULL)
		return -ENOMEM;
	rc = l->c->transport == XB_BULK_TCP
		? 0
		: xb_wire_open(l, &e->wire, ring_size(l->c->rails));
	if (rc == 0)
		rc = end_engine(l, e, side);
	conf.engine = e->engine;
	if (rc == 0)
		rc = xb_wire_bulk(l, &e->wire, &conf);
	if (rc != 0)
		return rc;
	crpc_bulk_conn_addr(e->wire.conn, l->addr[side].bytes);
	l->addr[side].len = CRPC_BULK_ADDR_LEN;
	return 0;
}

static int
bulk_meet(struct app_lane *l, int side)
{
	struct end *e = l->state[side];
	int rc = -EPROTO;

	if (l->addr[!side].len == CRPC_BULK_ADDR_LEN)
		rc = crpc_bulk_conn_connect(e->wire.conn, l->addr[!side].bytes);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "connect: %s", crpc_log_last());
}

static const uint32_t path_flag[XB_PATHS] = {CRPC_BULK_EAGER, CRPC_BULK_WRITE, CRPC_BULK_READ};

crpc_inline int
bulk_post(struct app_lane *l, int side, bool recv, uint64_t tag, uint8_t *p)
{
	struct end *e = l->state[side];
	uint64_t now = crpc_clock_ns(), req;
	int rc;

	if (recv && e->device != NULL)
		p = xb_place(l->c, e->device, tag);
	if (recv)
		rc = crpc_bulk_irecv(
			e->wire.conn, now, tag, p, l->c->size, path_flag[l->c->path], 0, &req);
	else
		rc = crpc_bulk_isend(
			e->wire.conn, now, tag, p, l->c->size, path_flag[l->c->path], 0, &req);
	return rc == 0 || rc == -EAGAIN
		? rc
		: app_lane_fail(l, rc, "request: %s: %s", strerror(-rc), crpc_log_last());
}

crpc_inline int
bulk_progress(struct app_lane *l, struct xb_flow *f, int side)
{
	struct crpc_bulk_result result[RESULTS];
	struct end *e = l->state[side];
	uint16_t n;

	if (crpc_bulk_progress(e->wire.b, crpc_clock_ns()) == 0)
		return 0;
	n = crpc_bulk_test_burst(e->wire.b, result, RESULTS);
	for (uint16_t i = 0; i < n; i++) {
		if (result[i].status != 0)
			return app_lane_fail(l, result[i].status, "a %s ended with %s: %s",
				result[i].recv ? "receive" : "send", strerror(-result[i].status),
				crpc_log_last());
		(*(result[i].recv ? &f->recvs : &f->sends))--;
	}
	return 0;
}

static int
bulk_turn(struct app_lane *l, int side)
{
	int rc = xb_turn(l, side, bulk_post, bulk_progress);

#ifdef XB_HAVE_GPUDEV
	if (rc == 1)
		rc = bulk_end(l, side);
#endif
	return rc;
}

static void
bulk_close(struct app_lane *l, int side)
{
	struct end *e = l->state[side];

	xb_wire_close(&e->wire);
	crpc_unpack_free(e->engine);
#ifdef XB_HAVE_GPUDEV
	crpc_unpack_gpudev_free(l->c->opt->gpu, e->device);
#endif
	free(e);
}

/*
 * Whoever posts chunks knows the first two stages, whoever gets them by the eager path the others.
 */
static void
bulk_report(struct app_lane *l, int side)
{
	const struct end *e = l->state[side];
	const struct crpc_bulk_stats *s = crpc_bulk_stats(e->wire.b);
	const struct crpc_bulk_stage *stage[XB_STAGES] = {
		&s->post, &s->wire, &s->unpack, &s->consume};
	struct xb_report *r = &l->c->report[side];

	for (uint32_t i = 0; i < XB_STAGES; i++) {
		r->stage[i].n = stage[i]->n;
		r->stage[i].ns = stage[i]->sum_ns;
	}
	r->count[XB_CHUNKS] = s->post.n;
	r->count[XB_OCCUPANCY] = s->occupancy_sum;
	r->count[XB_BLOCKED_WINDOW] = s->blocked_window;
	r->count[XB_BLOCKED_SLOTS] = s->blocked_slots;
	r->count[XB_BLOCKED_QUEUE] = s->blocked_queue;
	r->count[XB_ZERO_COPY] = s->bytes_zero_copy;
	crpc_bulk_stats_reset(e->wire.b);
	r->memory = xb_wire_memory(&e->wire);
}

const struct xb_way xb_way_bulk = {
	.base = APP_WAY("bulk", bulk_open, bulk_meet, bulk_close),
	.turn = bulk_turn,
	.report = bulk_report,
};

const struct xb_way xb_way_bulk_tcp = {
	.base = APP_WAY("bulk_tcp", bulk_open, bulk_meet, bulk_close),
	.turn = bulk_turn,
	.report = bulk_report,
};
