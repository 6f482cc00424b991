/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single work requests through lib/rdma: what a message costs that has a WQE of its own. A message
 * is a WRITE WITH IMMEDIATE, inline if it is short; the immediate is its number.
 */
/* The number is in the immediate. */
#define CREDIT_LEN 0
#include "net_messages.h"

/* What each end publishes to its peer. */
struct raw_addr {
	uint8_t qp[CRPC_RDMA_ADDR_LEN];
	uint64_t raddr;
	uint64_t rkey;
};

struct net_raw {
	struct messages base;
	struct crpc_rdma_qp *qp;
	struct raw_addr peer;
};

static void
raw_close(struct app_lane *l, int side)
{
	struct net_raw *s = l->state[side];

	crpc_rdma_qp_free(s->qp);
	messages_close(&s->base);
}

static int
raw_make(const struct app_case *c, struct net_raw *s)
{
	struct crpc_rdma_qp_conf qp = {.sq_depth = NET_DEPTH_MAX,
		.rq_depth = 2 * NET_DEPTH_MAX,
		.inline_max = (uint32_t)crpc_min(c->size, NET_INLINE_MAX)};
	int rc = messages_open(&s->base, c->size);

	if (rc != 0)
		return rc;
	s->qp = crpc_rdma_qp_create(s->base.dev, &qp);
	return s->qp != NULL ? 0 : -errno;
}

static int
raw_open(struct app_lane *l, int side)
{
	struct net_raw *s = lane_end_new(l, side, sizeof(*s));
	struct raw_addr mine = {0};
	int rc = s == NULL ? -ENOMEM : raw_make(l->c, s);

	if (rc != 0)
		return app_lane_fail(l, rc, "%s", crpc_log_last());
	mine.raddr = (uint64_t)(uintptr_t)s->base.buf;
	mine.rkey = s->base.mr.rkey;
	crpc_rdma_qp_addr(s->qp, mine.qp);
	memcpy(l->addr[side].bytes, &mine, sizeof(mine));
	l->addr[side].len = NET_ADDR_LEN;
	return 0;
}

static int
raw_meet(struct app_lane *l, int side)
{
	const uint8_t *addr = net_peer(l, side);
	struct net_raw *s = l->state[side];
	int rc;

	if (addr == NULL)
		return -EPROTO;
	memcpy(&s->peer, addr, sizeof(s->peer));
	rc = crpc_rdma_qp_connect(s->qp, s->peer.qp);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "%s", crpc_log_last());
}

static uint32_t
message_post(struct lane_end *e, uint32_t len, uint32_t n, uint64_t number)
{
	struct net_raw *s = (struct net_raw *)e;
	struct crpc_rdma_wr wr[MESSAGES];

	app_msg_fill(s->base.buf, len, number);
	for (uint32_t i = 0; i < n; i++)
		wr[i] = (struct crpc_rdma_wr){.op = CRPC_RDMA_WRITE_IMM,
			.flags = len != 0 && len <= NET_INLINE_MAX ? CRPC_RDMA_WR_INLINE : 0,
			.num_sge = len != 0,
			.imm = (uint32_t)number + i,
			.raddr = s->peer.raddr,
			.rkey = (uint32_t)s->peer.rkey,
			.sge = {{.addr = s->base.buf, .len = len, .lkey = s->base.mr.lkey}}};
	return crpc_rdma_post(s->qp, wr, (uint16_t)n);
}

static void
message_poll(struct lane_end *e, uint32_t *sends, uint32_t *recvs, uint32_t *number)
{
	struct net_raw *s = (struct net_raw *)e;
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint16_t n = crpc_rdma_poll(s->base.dev, cqe, CRPC_BURST_MAX);

	for (uint16_t i = 0; i < n; i++) {
		if (cqe[i].type == CRPC_RDMA_CQE_SEND) {
			*sends += 1;
		} else if (cqe[i].type == CRPC_RDMA_CQE_RECV) {
			*recvs += 1;
			*number = cqe[i].imm;
		} else {
			lane_break(e, "the queue pair failed: status %d, syndrome 0x%x",
				cqe[i].status, cqe[i].syndrome);
		}
	}
}

/* One write or read at a time of the peer's memory, until it is complete. */
static uint32_t
bulk_step(struct lane_end *e, bool more, uint8_t op)
{
	struct net_raw *s = (struct net_raw *)e;
	const struct crpc_rdma_wr wr = {.op = op,
		.flags = CRPC_RDMA_WR_SIGNAL,
		.num_sge = 1,
		.raddr = s->peer.raddr,
		.rkey = (uint32_t)s->peer.rkey,
		.sge = {{.addr = s->base.buf, .len = e->conf.size, .lkey = s->base.mr.lkey}}};
	uint32_t sends = 0, recvs = 0, number;

	message_poll(e, &sends, &recvs, &number);
	if (e->server)
		return 0;
	e->open -= sends;
	if (more && e->open == 0 && !e->broken)
		e->open += crpc_rdma_post(s->qp, &wr, 1);
	return sends;
}

static uint32_t
write_step(struct lane_end *e, uint64_t now, bool more)
{
	return bulk_step(e, more, CRPC_RDMA_WRITE);
}

static uint32_t
read_step(struct lane_end *e, uint64_t now, bool more)
{
	return bulk_step(e, more, CRPC_RDMA_READ);
}

/* A look at the completion queue while nothing is under way. */
static uint32_t
poll_step(struct lane_end *e, uint64_t now, bool more)
{
	uint32_t sends = 0, recvs = 0, number;

	message_poll(e, &sends, &recvs, &number);
	return !e->server && more;
}

NET_WAY(net_poll, raw, "poll", LANE_LATENCY, poll_step);
NET_WAY(net_write_imm, raw, "write_imm", LANE_RATE, rate_step);
NET_WAY(net_write_imm_lat, raw, "write_imm_lat", LANE_LATENCY, lat_step);
NET_WAY(net_write, raw, "write", LANE_BYTES, write_step);
NET_WAY(net_read, raw, "read", LANE_BYTES, read_step);
