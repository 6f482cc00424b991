/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_ud.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_rdma_driver.h"
#include "rnd.h"

#define MTU_MAX  4096
#define INLINE   256
#define ADDR_TAG 0x46414b45u

struct fake_wr {
	struct crpc_rdma_dgram d;
	bool signal;
	uint8_t data[INLINE]; /* inline bytes, copied at post */
};

struct fake_ah {
	struct crpc_rdma_ah base;
	uint32_t to; /* index of the device */
};

struct fake_ud {
	struct crpc_rdma_ud base;
	struct fake_dev *dev;
	uint32_t sq_depth, rq_depth;
	uint32_t posted, done, polled; /* free running; polled: slots given back */
	uint32_t unsignalled;
	uint32_t buffers; /* receives posted */
	struct fake_wr *sq;
};

struct fake_dev {
	struct crpc_rdma base;
	struct fake_world *world;
	uint32_t index, inline_max, mtu, post_limit;
	bool dead, broken;
	struct fake_ud *ud;
	struct crpc_rdma_mr mr;
	struct crpc_rdma_cqe cq[FAKE_CQ];
	uint32_t head, tail;
	void *lent[CRPC_BURST_MAX]; /* buffers of the last poll */
	uint32_t nlent;
	uint32_t ahs;
};

uint64_t
fake_rnd(struct fake_world *w)
{
	return rnd(&w->rng) * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static bool
chance(struct fake_world *w, uint32_t of_10000)
{
	return of_10000 != 0 && fake_rnd(w) % 10000 < of_10000;
}

static void
cq_push(struct fake_dev *dev, const struct crpc_rdma_cqe *cqe)
{
	if (dev->tail - dev->head >= FAKE_CQ)
		abort();
	dev->cq[dev->tail++ % FAKE_CQ] = *cqe;
}

/* Into a receive buffer, if there is one. */
static void
arrive(struct fake_dev *dev, const uint8_t *data, uint32_t len)
{
	struct crpc_rdma_cqe cqe = {.type = CRPC_RDMA_CQE_DGRAM, .byte_len = len};
	uint8_t *copy;

	if (dev->ud == NULL || dev->dead || dev->broken || dev->ud->buffers == 0)
		return;
	dev->ud->buffers--;
	copy = malloc(len != 0 ? len : 1);
	if (copy == NULL)
		abort();
	if (len != 0)
		memcpy(copy, data, len);
	cqe.data = copy;
	cqe.qp_id = dev->ud->base.id;
	dev->world->delivered++;
	cq_push(dev, &cqe);
}

static void
flight_add(struct fake_world *w, struct fake_dev *to, uint8_t *data, uint32_t len)
{
	if (w->nflight == FAKE_FLIGHT)
		abort();
	w->flight[w->nflight++] = (struct fake_packet){.to = to, .data = data, .len = len};
}

/* Bytes of another length, as no working network gives them. */
static void
arrive_resized(struct fake_world *w, const struct fake_packet *p)
{
	uint8_t other[MTU_MAX];
	uint32_t len = (uint32_t)(fake_rnd(w) % (p->to->mtu + 1));

	memset(other, 0x5a, sizeof(other));
	memcpy(other, p->data, crpc_min(len, p->len));
	w->resized++;
	arrive(p->to, other, len);
}

static void
flight_step(struct fake_world *w)
{
	uint32_t i = chance(w, w->reorder) ? (uint32_t)(fake_rnd(w) % w->nflight) : 0;
	struct fake_packet p = w->flight[i];

	if (p.to != NULL && chance(w, w->lose)) {
		w->lost++;
	} else if (p.to != NULL && chance(w, w->twice)) {
		w->doubled++;
		arrive(p.to, p.data, p.len);
		return;
	} else if (p.to != NULL && chance(w, w->resize)) {
		arrive_resized(w, &p);
	} else if (p.to != NULL) {
		arrive(p.to, p.data, p.len);
	}
	free(p.data);
	w->nflight--;
	memmove(&w->flight[i], &w->flight[i + 1], (w->nflight - i) * sizeof(p));
}

static bool
in_mr(const struct fake_dev *dev, const struct crpc_rdma_sge *sge)
{
	return sge->lkey == dev->mr.lkey && (uintptr_t)sge->addr >= (uintptr_t)dev->mr.addr &&
	       (uintptr_t)sge->addr + sge->len <= (uintptr_t)dev->mr.addr + dev->mr.len;
}

/* Read the oldest datagram of the send queue and put it into the network. */
static void
sq_step(struct fake_dev *dev)
{
	struct fake_world *w = dev->world;
	struct fake_ud *ud = dev->ud;
	struct fake_wr *wr = &ud->sq[ud->done % ud->sq_depth];
	struct crpc_rdma_cqe cqe = {
		.type = CRPC_RDMA_CQE_SEND, .qp_id = ud->base.id, .wr_id = wr->d.wr_id};
	uint8_t *data = malloc(MTU_MAX);
	uint32_t len = 0, i;

	if (data == NULL)
		abort();
	for (i = 0; i < wr->d.num_sge; i++) {
		if (len + wr->d.sge[i].len > dev->mtu)
			abort();
		if (wr->d.flags & CRPC_RDMA_WR_INLINE)
			memcpy(data + len, wr->data + len, wr->d.sge[i].len);
		else if (in_mr(dev, &wr->d.sge[i]))
			memcpy(data + len, wr->d.sge[i].addr, wr->d.sge[i].len);
		else
			abort();
		len += wr->d.sge[i].len;
	}
	ud->done++;
	if (wr->signal) {
		cqe.wrs = ud->done; /* turned into a count when it is polled */
		cq_push(dev, &cqe);
	}
	if (w->tap != NULL)
		w->tap(w, data, len);
	flight_add(w, w->devs[((const struct fake_ah *)wr->d.ah)->to], data, len);
}

bool
fake_step(struct fake_world *w)
{
	uint32_t start = (uint32_t)(fake_rnd(w) % (FAKE_DEVS + 1)), i, k;
	struct fake_dev *dev;

	for (i = 0; i <= FAKE_DEVS; i++) {
		k = (start + i) % (FAKE_DEVS + 1);
		if (k == FAKE_DEVS && w->nflight != 0) {
			flight_step(w);
			return true;
		}
		dev = k < FAKE_DEVS ? w->devs[k] : NULL;
		if (dev == NULL || dev->ud == NULL || dev->dead || dev->broken ||
			dev->ud->done == dev->ud->posted)
			continue;
		if (!chance(w, w->slow_sq))
			sq_step(dev);
		return true;
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
fake_post(struct crpc_rdma_ud *base, const struct crpc_rdma_dgram *d, uint16_t n)
{
	struct fake_ud *ud = (struct fake_ud *)base;
	struct fake_dev *dev = ud->dev;
	struct fake_wr *wr;
	uint32_t at, j;
	uint16_t i;

	for (i = 0; i < n && !dev->broken; i++) {
		if (ud->posted - ud->polled >= ud->sq_depth || dev->post_limit == 0)
			break;
		dev->post_limit -= dev->post_limit != UINT32_MAX;
		wr = &ud->sq[ud->posted++ % ud->sq_depth];
		wr->d = d[i];
		wr->signal = (d[i].flags & CRPC_RDMA_WR_SIGNAL) ||
			     ++ud->unsignalled >= ud->sq_depth / 2;
		if (wr->signal)
			ud->unsignalled = 0;
		for (at = 0, j = 0; j < d[i].num_sge && d[i].flags & CRPC_RDMA_WR_INLINE; j++) {
			if (at + d[i].sge[j].len > dev->inline_max)
				abort();
			memcpy(wr->data + at, d[i].sge[j].addr, d[i].sge[j].len);
			at += d[i].sge[j].len;
		}
	}
	return i;
}

static void
lent_free(struct fake_dev *dev)
{
	while (dev->nlent != 0) {
		free(dev->lent[--dev->nlent]);
		dev->ud->buffers++;
	}
}

static uint16_t
fake_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	uint16_t k;

	if (dev->ud != NULL)
		lent_free(dev);
	if (dev->head == dev->tail && dev->world->autorun)
		fake_run(dev->world);
	for (k = 0; k < n && dev->head != dev->tail; k++) {
		cqe[k] = dev->cq[dev->head++ % FAKE_CQ];
		if (cqe[k].type == CRPC_RDMA_CQE_SEND) {
			cqe[k].wrs -= dev->ud->polled;
			dev->ud->polled += cqe[k].wrs;
		} else if (cqe[k].type == CRPC_RDMA_CQE_DGRAM) {
			dev->lent[dev->nlent++] = (void *)(uintptr_t)cqe[k].data;
		}
	}
	return k;
}

static void
fake_close(struct crpc_rdma *base)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	struct fake_world *w = dev->world;
	uint32_t i;

	if (dev->ahs != 0)
		abort();
	for (i = 0; i < w->nflight; i++) {
		if (w->flight[i].to == dev)
			w->flight[i].to = NULL;
	}
	w->devs[dev->index] = NULL;
	free(dev);
}

static void
fake_info(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct fake_dev *dev = (const struct fake_dev *)base;

	info->inline_max = dev->inline_max;
	info->sge_max = CRPC_RDMA_SGE_MAX;
	info->mtu = dev->mtu;
}

static int
fake_mr_reg(struct crpc_rdma *base, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	struct fake_dev *dev = (struct fake_dev *)base;

	if (dev->mr.addr != NULL)
		return -ENOMEM;
	dev->mr = (struct crpc_rdma_mr){.addr = addr, .len = len, .lkey = 7, .rkey = 7};
	*mr = dev->mr;
	mr->priv = dev;
	return 0;
}

static void
fake_mr_dereg(struct crpc_rdma *base, struct crpc_rdma_mr *mr)
{
	((struct fake_dev *)base)->mr.addr = NULL;
}

static struct crpc_rdma_ud *
fake_ud_create(struct crpc_rdma *base, const struct crpc_rdma_ud_conf *conf)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	struct fake_ud *ud = calloc(1, sizeof(*ud));

	if (ud == NULL || dev->ud != NULL)
		abort();
	ud->base = (struct crpc_rdma_ud){.dev = base, .id = conf->id};
	ud->dev = dev;
	ud->sq_depth = conf->sq_depth;
	ud->rq_depth = ud->buffers = conf->rq_depth;
	ud->sq = calloc(conf->sq_depth, sizeof(*ud->sq));
	if (ud->sq == NULL)
		abort();
	dev->ud = ud;
	return &ud->base;
}

static void
fake_ud_free(struct crpc_rdma_ud *base)
{
	struct fake_ud *ud = (struct fake_ud *)base;
	struct fake_dev *dev = ud->dev;

	lent_free(dev);
	for (; dev->head != dev->tail; dev->head++) {
		if (dev->cq[dev->head % FAKE_CQ].type == CRPC_RDMA_CQE_DGRAM)
			free((void *)(uintptr_t)dev->cq[dev->head % FAKE_CQ].data);
	}
	dev->ud = NULL;
	free(ud->sq);
	free(ud);
}

static void
fake_ud_addr(const struct crpc_rdma_ud *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const uint32_t words[2] = {ADDR_TAG, ((const struct fake_ud *)base)->dev->index};

	memcpy(addr, words, sizeof(words));
}

static struct crpc_rdma_ah *
fake_ah_create(struct crpc_rdma_ud *base, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct fake_ah *ah;
	uint32_t words[2];

	memcpy(words, addr, sizeof(words));
	if (words[0] != ADDR_TAG || words[1] >= FAKE_DEVS) {
		errno = EPROTO;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		abort();
	ah->base.dev = base->dev;
	ah->to = words[1];
	((struct fake_dev *)base->dev)->ahs++;
	return &ah->base;
}

static void
fake_ah_free(struct crpc_rdma_ah *ah)
{
	((struct fake_dev *)ah->dev)->ahs--;
	free(ah);
}

static const struct crpc_rdma_ops fake_ops = {
	.name = "fake",
	.close = fake_close,
	.info_get = fake_info,
	.mr_reg = fake_mr_reg,
	.mr_dereg = fake_mr_dereg,
	.ud_create = fake_ud_create,
	.ud_free = fake_ud_free,
	.ud_addr = fake_ud_addr,
	.ah_create = fake_ah_create,
	.ah_free = fake_ah_free,
};

struct crpc_rdma *
fake_open(struct fake_world *w, uint32_t inline_max, uint32_t mtu)
{
	struct fake_dev *dev = calloc(1, sizeof(*dev));
	uint32_t i;

	for (i = 0; i < FAKE_DEVS && w->devs[i] != NULL; i++)
		;
	if (dev == NULL || i == FAKE_DEVS || inline_max > INLINE || mtu > MTU_MAX)
		abort();
	dev->base.fp.ud_post = fake_post;
	dev->base.fp.poll = fake_poll;
	dev->base.ops = &fake_ops;
	dev->world = w;
	dev->index = i;
	dev->inline_max = inline_max;
	dev->mtu = mtu;
	dev->post_limit = UINT32_MAX;
	w->devs[i] = dev;
	return &dev->base;
}

void
fake_forge(struct crpc_rdma *dev, const void *data, uint32_t len)
{
	arrive((struct fake_dev *)dev, data, len);
}

void
fake_kill(struct crpc_rdma *dev)
{
	((struct fake_dev *)dev)->dead = true;
}

void
fake_fail(struct crpc_rdma *base)
{
	struct fake_dev *dev = (struct fake_dev *)base;
	struct crpc_rdma_cqe cqe = {.type = CRPC_RDMA_CQE_ERROR, .status = -EIO, .syndrome = 4};

	dev->broken = true;
	cq_push(dev, &cqe);
}

void
fake_post_limit(struct crpc_rdma *dev, uint32_t datagrams)
{
	((struct fake_dev *)dev)->post_limit = datagrams;
}

void
fake_world_fini(struct fake_world *w)
{
	while (w->nflight != 0)
		free(w->flight[--w->nflight].data);
}
