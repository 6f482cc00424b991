/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy_ud.h"

#include <string.h>

#include "copy_dev.h"

#define DEVS 2
#define CQ   8192u

struct copy_ud {
	struct crpc_rdma base;
	struct crpc_rdma_ud ud;
	uint32_t index;
	uint32_t head, tail;
	struct crpc_rdma_cqe cq[CQ];
	uint8_t buf[CQ][COPY_MTU];
};

struct copy_ah {
	struct crpc_rdma_ah base;
	struct copy_ud *to;
};

static struct copy_ud *devs[DEVS];
static uint32_t ndevs;

static uint16_t
copy_ud_post(struct crpc_rdma_ud *base, const struct crpc_rdma_dgram *d, uint16_t n)
{
	struct copy_ud *from = (struct copy_ud *)base->dev, *to;
	struct crpc_rdma_cqe *cqe;
	uint32_t len, j;
	uint16_t i;

	for (i = 0; i < n; i++) {
		to = ((const struct copy_ah *)d[i].ah)->to;
		for (len = 0, j = 0; j < d[i].num_sge; len += d[i].sge[j++].len)
			memcpy(to->buf[to->tail % CQ] + len, d[i].sge[j].addr, d[i].sge[j].len);
		cqe = &to->cq[to->tail % CQ];
		cqe->type = CRPC_RDMA_CQE_DGRAM;
		cqe->byte_len = len;
		cqe->data = to->buf[to->tail++ % CQ];
		cqe = &from->cq[from->tail++ % CQ];
		cqe->type = CRPC_RDMA_CQE_SEND;
		cqe->wrs = 1;
	}
	return n;
}

static uint16_t
copy_ud_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct copy_ud *dev = (struct copy_ud *)base;
	uint32_t wrs = 0;
	uint16_t k = 0;

	/* as if one in many were signalled: those that were not cost nothing */
	while (k + 1 < n && dev->head != dev->tail) {
		cqe[k] = dev->cq[dev->head++ % CQ];
		if (cqe[k].type == CRPC_RDMA_CQE_SEND)
			wrs++;
		else
			k++;
	}
	if (wrs != 0)
		cqe[k++] = (struct crpc_rdma_cqe){.type = CRPC_RDMA_CQE_SEND, .wrs = wrs};
	return k;
}

static struct crpc_rdma_ud *
copy_create(struct crpc_rdma *dev, const struct crpc_rdma_ud_conf *conf)
{
	struct copy_ud *ud = (struct copy_ud *)dev;

	ud->ud = (struct crpc_rdma_ud){.dev = dev, .id = conf->id};
	return &ud->ud;
}

static void
copy_free(struct crpc_rdma_ud *ud)
{
}

static void
copy_addr(const struct crpc_rdma_ud *ud, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	memcpy(addr, &((const struct copy_ud *)ud->dev)->index, sizeof(uint32_t));
}

static struct crpc_rdma_ah *
copy_ah_create(struct crpc_rdma_ud *ud, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct copy_ah *ah = calloc(1, sizeof(*ah));
	uint32_t index;

	if (ah == NULL)
		return NULL;
	memcpy(&index, addr, sizeof(index));
	ah->base.dev = ud->dev;
	ah->to = devs[index % DEVS];
	return &ah->base;
}

static void
copy_ah_free(struct crpc_rdma_ah *ah)
{
	free(ah);
}

static const struct crpc_rdma_ops ops = {
	.name = "copy",
	.close = copy_close,
	.info_get = copy_info,
	.mr_reg = copy_mr_reg,
	.mr_dereg = copy_mr_dereg,
	.ud_create = copy_create,
	.ud_free = copy_free,
	.ud_addr = copy_addr,
	.ah_create = copy_ah_create,
	.ah_free = copy_ah_free,
};

struct crpc_rdma *
copy_ud_open(void)
{
	struct copy_ud *dev = ndevs < DEVS ? calloc(1, sizeof(*dev)) : NULL;

	if (dev == NULL)
		return NULL;
	dev->base.fp.ud_post = copy_ud_post;
	dev->base.fp.poll = copy_ud_poll;
	dev->base.ops = &ops;
	dev->index = ndevs;
	devs[ndevs++] = dev;
	return &dev->base;
}
