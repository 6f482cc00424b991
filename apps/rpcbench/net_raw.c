/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single work requests through lib/rdma: what a message costs that has a WQE of its own.
 *
 * write_imm: messages of `size` bytes, inline, 32 WQEs to a doorbell, at most `depth` of them ahead
 * of the server, which says every CREDIT messages how many it has seen, by a write with immediate
 * without data. write_imm_lat: one at a time, and one back. write, read: one at a time of `size`
 * bytes, until it is complete.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "lane.h"
#include "net.h"

#define BURST  32
#define CREDIT 256u

/* What each end publishes to its peer. */
struct raw_addr {
	uint8_t qp[CRPC_RDMA_ADDR_LEN];
	uint64_t raddr;
	uint64_t rkey;
};

struct net_raw {
	struct crpc_rdma *dev;
	struct crpc_rdma_qp *qp;
	struct crpc_rdma_mr mr;
	struct raw_addr peer;
	uint64_t posted;
	uint64_t ended;  /* Client: seen by the server. Server: seen, */
	uint64_t credited; /* and reported to the peer. */
	uint64_t *buf;
};

static void
raw_close(struct net_end *e)
{
	struct net_raw *s = e->priv;

	crpc_rdma_qp_free(s->qp);
	if (s->mr.addr != NULL)
		crpc_rdma_mr_dereg(s->dev, &s->mr);
	crpc_rdma_close(s->dev);
	free(s->buf);
	free(s);
}

static int
raw_make(struct net_end *e, struct net_raw *s)
{
	struct crpc_rdma_conf conf = {.device = net_device(), .gid_index = -1, .cq_depth = 8192};
	struct crpc_rdma_qp_conf qp = {.sq_depth = NET_DEPTH_MAX,
		.rq_depth = 2 * NET_DEPTH_MAX,
		.inline_max = e->conf.size <= 256 ? e->conf.size : 0};
	size_t len = crpc_max(e->conf.size, 4096u);

	s->buf = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	if (s->buf == NULL)
		return -ENOMEM;
	memset(s->buf, 0, len);
	s->dev = crpc_rdma_open(&conf);
	if (s->dev == NULL)
		return -errno;
	if (crpc_rdma_mr_reg(s->dev, s->buf, len, &s->mr) != 0)
		return -ENOMEM;
	s->qp = crpc_rdma_qp_create(s->dev, &qp);
	return s->qp != NULL ? 0 : -errno;
}

static int
raw_open(struct net_end *e)
{
	struct net_raw *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	e->priv = s;
	rc = raw_make(e, s);
	if (rc != 0) {
		net_why(e, "%s", crpc_log_last());
		raw_close(e);
	}
	return rc;
}

static void
raw_addr(const struct net_end *e, uint32_t i, uint8_t addr[NET_ADDR_LEN])
{
	const struct net_raw *s = e->priv;
	struct raw_addr mine = {.raddr = (uint64_t)(uintptr_t)s->buf, .rkey = s->mr.rkey};

	crpc_rdma_qp_addr(s->qp, mine.qp);
	memcpy(addr, &mine, sizeof(mine));
}

static int
raw_connect(struct net_end *e, uint32_t i, const uint8_t addr[NET_ADDR_LEN])
{
	struct net_raw *s = e->priv;
	int rc;

	memcpy(&s->peer, addr, sizeof(s->peer));
	rc = crpc_rdma_qp_connect(s->qp, s->peer.qp);
	if (rc != 0)
		net_why(e, "%s", crpc_log_last());
	return rc;
}

static struct crpc_rdma_wr
raw_wr(const struct net_end *e, enum crpc_rdma_op op)
{
	const struct net_raw *s = e->priv;

	return (struct crpc_rdma_wr){.op = (uint8_t)op,
		.flags = e->conf.size <= 256 ? CRPC_RDMA_WR_INLINE : 0,
		.num_sge = 1,
		.raddr = s->peer.raddr,
		.rkey = (uint32_t)s->peer.rkey,
		.sge = {{.addr = s->buf, .len = e->conf.size, .lkey = s->mr.lkey}}};
}

/* Take completions: sends that ended, messages that came, the newest immediate among them. */
static void
raw_poll(struct net_end *e, uint32_t *sends, uint32_t *recvs, uint32_t *imm)
{
	struct net_raw *s = e->priv;
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint16_t n = crpc_rdma_poll(s->dev, cqe, CRPC_BURST_MAX), i;

	for (i = 0; i < n; i++) {
		if (cqe[i].type == CRPC_RDMA_CQE_SEND) {
			*sends += 1;
		} else if (cqe[i].type == CRPC_RDMA_CQE_RECV) {
			*recvs += 1;
			*imm = cqe[i].imm;
		} else {
			net_break(e, "the queue pair failed: status %d, syndrome 0x%x",
				cqe[i].status, cqe[i].syndrome);
		}
	}
}

/* Server of write_imm: count, and say so now and then, or at once if nothing more comes. */
static uint32_t
rate_serve(struct net_end *e)
{
	struct net_raw *s = e->priv;
	uint32_t sends = 0, recvs = 0, imm;
	struct crpc_rdma_wr wr = raw_wr(e, CRPC_RDMA_WRITE_IMM);

	raw_poll(e, &sends, &recvs, &imm);
	s->ended += recvs;
	if (s->ended - s->credited < CREDIT && (recvs != 0 || s->ended == s->credited))
		return recvs;
	wr.num_sge = 0;
	wr.flags = 0;
	wr.imm = (uint32_t)s->ended;
	if (crpc_rdma_post(s->qp, &wr, 1) == 1)
		s->credited = s->ended;
	return recvs;
}

static uint32_t
rate_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_raw *s = e->priv;
	uint32_t sends = 0, recvs = 0, imm = (uint32_t)s->ended, i, n;
	struct crpc_rdma_wr wr[BURST];

	if (e->server)
		return rate_serve(e);
	raw_poll(e, &sends, &recvs, &imm);
	n = imm - (uint32_t)s->ended;
	s->ended += n;
	e->open = s->posted - s->ended;
	if (!more || e->conf.depth - e->open < BURST)
		return n;
	for (i = 0; i < BURST; i++) {
		wr[i] = raw_wr(e, CRPC_RDMA_WRITE_IMM);
		wr[i].imm = (uint32_t)s->posted + i;
	}
	lane_fill(s->buf, e->conf.size, s->posted);
	s->posted += crpc_rdma_post(s->qp, wr, BURST);
	e->open = s->posted - s->ended;
	return n;
}

/* There, and back: the client's turn ends with a round trip, and the next one begins. */
static uint32_t
lat_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_raw *s = e->priv;
	uint32_t sends = 0, recvs = 0, imm;
	struct crpc_rdma_wr wr;

	raw_poll(e, &sends, &recvs, &imm);
	if (!e->server) {
		e->open -= recvs;
		if (!more || e->open != 0)
			return recvs;
	} else if (recvs == 0) {
		return 0;
	}
	lane_fill(s->buf, e->conf.size, s->posted);
	wr = raw_wr(e, CRPC_RDMA_WRITE_IMM);
	if (crpc_rdma_post(s->qp, &wr, 1) != 1)
		net_break(e, "the send queue is full");
	s->posted++;
	e->open += !e->server;
	return recvs;
}

static uint32_t
bulk_step(struct net_end *e, bool more, enum crpc_rdma_op op)
{
	struct net_raw *s = e->priv;
	uint32_t sends = 0, recvs = 0, imm;
	struct crpc_rdma_wr wr;

	raw_poll(e, &sends, &recvs, &imm);
	if (e->server)
		return 0;
	e->open -= sends;
	if (!more || e->open != 0)
		return sends;
	wr = raw_wr(e, op);
	wr.flags = CRPC_RDMA_WR_SIGNAL;
	e->open += crpc_rdma_post(s->qp, &wr, 1);
	return sends;
}

static uint32_t
write_step(struct net_end *e, uint64_t now, bool more)
{
	return bulk_step(e, more, CRPC_RDMA_WRITE);
}

static uint32_t
read_step(struct net_end *e, uint64_t now, bool more)
{
	return bulk_step(e, more, CRPC_RDMA_READ);
}

static void
raw_ledger(const struct net_end *e, struct net_ledger *l)
{
	const struct net_raw *s = e->priv;

	*l = (struct net_ledger){0};
	net_ledger_of(s->dev, l);
}

#define RAW_OPS(id, text, what, turn)                                                              \
	const struct net_ops net_ops_##id = {                                                      \
		.name = text,                                                                      \
		.unit = what,                                                                      \
		.built = true,                                                                     \
		.open = raw_open,                                                                  \
		.close = raw_close,                                                                \
		.addr = raw_addr,                                                                  \
		.connect = raw_connect,                                                            \
		.step = turn,                                                                      \
		.ledger = raw_ledger,                                                              \
	}

RAW_OPS(write_imm, "write_imm", NET_RATE, rate_step);
RAW_OPS(write_imm_lat, "write_imm_lat", NET_LATENCY, lat_step);
RAW_OPS(write, "write", NET_BYTES, write_step);
RAW_OPS(read, "read", NET_BYTES, read_step);
