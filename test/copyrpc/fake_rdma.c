/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_rdma_driver.h"
#include "rnd.h"

/* One WR in its queue pair; inline data is copied at post, other data read when carried out. */
struct fake_wr {
	struct crpc_rdma_wr wr;
	bool signal;
	uint8_t data[1024];
};

struct fake_qp {
	struct crpc_rdma_qp base;
	struct fake_dev *dev;
	struct fake_qp *peer;
	uint32_t index; /* in the world */
	uint32_t sq_depth, rq_depth;
	uint32_t posted, done, acked, polled; /* WRs, free running; polled: slots given back */
	uint32_t unsignalled;
	uint32_t receives;
	bool broken;
	struct fake_wr *sq;
};

struct fake_dev {
	struct crpc_rdma base;
	struct fake_world *world;
	uint32_t inline_max;
	uint32_t post_limit;
	struct crpc_rdma_mr mrs[FAKE_MRS];
	uint32_t nmrs;
	struct crpc_rdma_cqe cq[FAKE_CQ];
	uint32_t head, tail;
	struct fake_counts counts;
	struct crpc_rdma_stats stats;
};

uint64_t
fake_rnd(struct fake_world *w)
{
	return rnd(&w->rng) * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static void
cq_push(struct fake_dev *dev, const struct crpc_rdma_cqe *cqe)
{
	if (dev->tail - dev->head >= FAKE_CQ)
		abort();
	dev->cq[dev->tail++ % FAKE_CQ] = *cqe;
}

static struct crpc_rdma_mr *
mr_find(struct fake_dev *dev, uint32_t key, uint64_t addr, uint64_t len)
{
	struct crpc_rdma_mr *mr;

	if (key == 0 || key > dev->nmrs)
		return NULL;
	mr = &dev->mrs[key - 1];
	if (mr->addr == NULL || addr < (uintptr_t)mr->addr ||
			addr + len > (uintptr_t)mr->addr + mr->len)
		return NULL;
	return mr;
}

static void
qp_error(struct fake_qp *qp, int16_t status)
{
	struct crpc_rdma_cqe cqe = {.type = CRPC_RDMA_CQE_ERROR,
			.status = status,
			.syndrome = 0x15,
			.qp_id = qp->base.id};

	if (qp->broken)
		return;
	qp->broken = true;
	cq_push(qp->dev, &cqe);
}

static uint32_t
wr_bytes(const struct crpc_rdma_wr *wr)
{
	uint32_t len = 0, i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sge[i].len;
	return len;
}

/* Copy between the WR's pieces and remote memory; false: a local key or bound is wrong. */
static bool
wr_copy(struct fake_qp *qp, const struct fake_wr *slot)
{
	const struct crpc_rdma_wr *wr = &slot->wr;
	uint8_t *remote = (uint8_t *)(uintptr_t)wr->raddr, *local;
	uint32_t at = 0, i, len;

	for (i = 0; i < wr->num_sge; at += len, i++) {
		len = wr->sge[i].len;
		local = (uint8_t *)(uintptr_t)wr->sge[i].addr;
		if (wr->flags & CRPC_RDMA_WR_INLINE)
			memcpy(remote + at, slot->data + at, len);
		else if (mr_find(qp->dev, wr->sge[i].lkey, (uintptr_t)local, len) == NULL)
			return false;
		else if (wr->op == CRPC_RDMA_READ)
			memcpy(local, remote + at, len);
		else
			memcpy(remote + at, local, len);
	}
	return true;
}

/* Carry the oldest WR out. False: the peer has no receive posted. */
static bool
wr_run(struct fake_qp *qp)
{
	struct fake_wr *slot = &qp->sq[qp->done % qp->sq_depth];
	const struct crpc_rdma_wr *wr = &slot->wr;
	struct fake_qp *peer = qp->peer;
	struct fake_world *w = qp->dev->world;
	uint32_t len = wr_bytes(wr);
	struct crpc_rdma_cqe cqe = {.type = CRPC_RDMA_CQE_RECV, .imm = wr->imm, .byte_len = len};
	bool imm = wr->op == CRPC_RDMA_WRITE_IMM;

	if (peer == NULL || peer->broken) {
		qp_error(qp, -ECONNRESET);
		return true;
	}
	if (imm && peer->receives == 0)
		return false;
	if ((len != 0 && mr_find(peer->dev, wr->rkey, wr->raddr, len) == NULL) ||
			!wr_copy(qp, slot)) {
		qp_error(qp, -EACCES);
		return true;
	}
	if (w->mutate != NULL && wr->op != CRPC_RDMA_READ)
		w->mutate(w, (uint8_t *)(uintptr_t)wr->raddr, len, &cqe.imm, &cqe.byte_len);
	if (imm) {
		cqe.qp_id = peer->base.id;
		peer->receives--;
		cq_push(peer->dev, &cqe);
	}
	qp->done++;
	return true;
}

static void
wr_ack(struct fake_qp *qp)
{
	struct fake_wr *slot = &qp->sq[qp->acked % qp->sq_depth];
	struct crpc_rdma_cqe cqe = {
			.type = CRPC_RDMA_CQE_SEND, .qp_id = qp->base.id, .wr_id = slot->wr.wr_id};

	qp->acked++;
	if (!slot->signal)
		return;
	cqe.wrs = qp->acked; /* turned into a count when it is polled */
	cq_push(qp->dev, &cqe);
}

bool
fake_step(struct fake_world *w)
{
	uint32_t start, i;
	struct fake_qp *qp;
	bool run, ack;

	if (w->frozen || w->nqps == 0)
		return false;
	start = (uint32_t)(fake_rnd(w) % w->nqps);
	for (i = 0; i < w->nqps; i++) {
		qp = w->qps[(start + i) % w->nqps];
		if (qp == NULL || qp->broken)
			continue;
		run = qp->done != qp->posted;
		ack = qp->acked != qp->done && !w->hold_acks;
		if (ack && (!run || fake_rnd(w) % 2)) {
			wr_ack(qp);
			return true;
		}
		if (run && wr_run(qp))
			return true;
		if (ack) {
			wr_ack(qp);
			return true;
		}
	}
	return false;
}

void
fake_run(struct fake_world *w)
{
	while (fake_step(w))
		;
}

static uint16_t
fake_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	struct fake_dev *dev = qp->dev;
	struct fake_wr *slot;
	uint32_t at, j;
	uint16_t i;

	for (i = 0; i < n && !qp->broken; i++) {
		if (qp->posted - qp->polled >= qp->sq_depth || dev->post_limit == 0)
			break;
		dev->post_limit -= dev->post_limit != UINT32_MAX;
		slot = &qp->sq[qp->posted++ % qp->sq_depth];
		slot->wr = wr[i];
		dev->counts.asked += (wr[i].flags & CRPC_RDMA_WR_SIGNAL) != 0;
		slot->signal = (wr[i].flags & CRPC_RDMA_WR_SIGNAL) ||
			       ++qp->unsignalled >= qp->sq_depth / 2;
		if (slot->signal)
			qp->unsignalled = 0;
		if (wr[i].flags & CRPC_RDMA_WR_INLINE) {
			if (wr_bytes(&wr[i]) > dev->inline_max)
				abort();
			for (at = 0, j = 0; j < wr[i].num_sge; at += wr[i].sge[j++].len)
				memcpy(slot->data + at, wr[i].sge[j].addr, wr[i].sge[j].len);
			dev->counts.inlined++;
		}
		dev->counts.writes += wr[i].op == CRPC_RDMA_WRITE;
		dev->counts.write_imms += wr[i].op == CRPC_RDMA_WRITE_IMM;
		dev->counts.reads += wr[i].op == CRPC_RDMA_READ;
	}
	if (i != 0)
		dev->counts.posts++;
	dev->counts.wrs_max = crpc_max(dev->counts.wrs_max, i);
	dev->stats.doorbells += i != 0;
	dev->stats.wqes += i;
	return i;
}

static uint16_t
fake_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	struct fake_qp *qp;
	uint16_t k = 0;

	if (dev->head == dev->tail && dev->world->autorun)
		fake_run(dev->world);
	dev->stats.polls++;
	for (; k < n && dev->head != dev->tail; dev->head++) {
		cqe[k] = dev->cq[dev->head % FAKE_CQ];
		qp = fake_qp_find(base, cqe[k].qp_id);
		if (qp == NULL)
			continue;
		if (cqe[k].type == CRPC_RDMA_CQE_SEND) {
			cqe[k].wrs -= qp->polled;
			qp->polled += cqe[k].wrs;
		} else if (cqe[k].type == CRPC_RDMA_CQE_RECV) {
			qp->receives++;
		}
		k++;
	}
	return k;
}

static void
fake_close(struct crpc_rdma *base)
{
	free(base);
}

static void
fake_info(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	info->inline_max = ((const struct fake_dev *)base)->inline_max;
	info->sge_max = CRPC_RDMA_SGE_MAX;
}

static void
fake_stats(const struct crpc_rdma *base, struct crpc_rdma_stats *stats)
{
	*stats = ((const struct fake_dev *)base)->stats;
}

static int
fake_mr_reg(struct crpc_rdma *base, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	struct fake_dev *dev = (struct fake_dev *)base;

	uint32_t i;

	for (i = 0; i < dev->nmrs && dev->mrs[i].addr != NULL; i++)
		;
	if (i == FAKE_MRS)
		return -ENOMEM;
	if (i == dev->nmrs)
		dev->nmrs++;
	*mr = (struct crpc_rdma_mr){.addr = addr, .len = len, .lkey = i + 1, .rkey = i + 1};
	dev->mrs[i] = *mr;
	mr->priv = &dev->mrs[i];
	return 0;
}

static void
fake_mr_dereg(struct crpc_rdma *base, struct crpc_rdma_mr *mr)
{
	((struct crpc_rdma_mr *)mr->priv)->addr = NULL;
}

static struct crpc_rdma_qp *
fake_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	struct fake_world *w = dev->world;
	struct fake_qp *qp;
	uint32_t i;

	for (i = 0; i < w->nqps && w->qps[i] != NULL; i++)
		;
	if (i == FAKE_QPS) {
		errno = ENOSPC;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return NULL;
	qp->base = (struct crpc_rdma_qp){.dev = base, .id = conf->id};
	qp->dev = dev;
	qp->index = i;
	qp->sq_depth = conf->sq_depth;
	qp->rq_depth = conf->rq_depth;
	qp->receives = conf->rq_depth;
	qp->sq = calloc(conf->sq_depth, sizeof(*qp->sq));
	if (qp->sq == NULL)
		abort();
	w->qps[i] = qp;
	if (i == w->nqps)
		w->nqps++;
	return &qp->base;
}

static int
fake_qp_drain(struct crpc_rdma_qp *base)
{
	return ((struct fake_qp *)base)->dev->world->undrained ? -EAGAIN : 0;
}

static void
fake_qp_free(struct crpc_rdma_qp *base)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	uint32_t i;

	qp->dev->world->qps[qp->index] = NULL;
	for (i = qp->dev->head; i != qp->dev->tail; i++) {
		if (qp->dev->cq[i % FAKE_CQ].qp_id == base->id)
			qp->dev->cq[i % FAKE_CQ].qp_id = UINT32_MAX;
	}
	for (i = 0; i < qp->dev->world->nqps; i++) {
		if (qp->dev->world->qps[i] != NULL && qp->dev->world->qps[i]->peer == qp)
			qp->dev->world->qps[i]->peer = NULL;
	}
	free(qp->sq);
	free(qp);
}

static void
fake_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	memcpy(addr, &((const struct fake_qp *)base)->index, sizeof(uint32_t));
}

static int
fake_qp_connect(struct crpc_rdma_qp *base, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct fake_qp *qp = (struct fake_qp *)base;
	uint32_t index;

	memcpy(&index, addr, sizeof(index));
	if (index >= qp->dev->world->nqps || qp->dev->world->qps[index] == NULL)
		return -EPROTO;
	if (qp->broken)
		return -EIO;
	qp->peer = qp->dev->world->qps[index];
	return 0;
}

static const struct crpc_rdma_ops fake_ops = {
		.name = "fake",
		.close = fake_close,
		.info_get = fake_info,
		.stats_get = fake_stats,
		.mr_reg = fake_mr_reg,
		.mr_dereg = fake_mr_dereg,
		.qp_create = fake_qp_create,
		.qp_free = fake_qp_free,
		.qp_drain = fake_qp_drain,
		.qp_addr = fake_qp_addr,
		.qp_connect = fake_qp_connect,
};

struct crpc_rdma *
fake_open(struct fake_world *w, uint32_t inline_max)
{
	struct fake_dev *dev = calloc(1, sizeof(*dev));

	if (dev == NULL)
		return NULL;
	dev->base.fp.post = fake_post;
	dev->base.fp.poll = fake_poll;
	dev->base.ops = &fake_ops;
	dev->world = w;
	dev->inline_max = inline_max;
	dev->post_limit = UINT32_MAX;
	return &dev->base;
}

struct fake_qp *
fake_qp_find(struct crpc_rdma *base, uint32_t id)
{
	struct fake_world *w = ((struct fake_dev *)base)->world;
	uint32_t i;

	for (i = 0; i < w->nqps; i++) {
		if (w->qps[i] != NULL && w->qps[i]->base.dev == base && w->qps[i]->base.id == id)
			return w->qps[i];
	}
	return NULL;
}

void
fake_post_limit(struct crpc_rdma *base, uint32_t wrs)
{
	((struct fake_dev *)base)->post_limit = wrs;
}

void
fake_qp_fail(struct fake_qp *qp)
{
	qp_error(qp, -ECONNRESET);
}

void
fake_forge(struct fake_qp *qp, uint32_t imm, uint32_t byte_len)
{
	struct crpc_rdma_cqe cqe = {.type = CRPC_RDMA_CQE_RECV,
			.qp_id = qp->base.id,
			.imm = imm,
			.byte_len = byte_len};

	qp->receives--;
	cq_push(qp->dev, &cqe);
}

const struct fake_counts *
fake_counts(const struct crpc_rdma *base)
{
	return &((const struct fake_dev *)base)->counts;
}
