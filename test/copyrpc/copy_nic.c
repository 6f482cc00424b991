/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy_nic.h"

#include <string.h>

#include "copy_dev.h"

#define QPS 16384

struct copy_qp {
	struct crpc_rdma_qp base;
	struct copy_qp *peer;
	uint32_t index;
};

static struct copy_qp *qps[QPS];
static uint32_t nqps;

static void
push(struct copy_qp *qp, uint8_t type, uint32_t imm, uint32_t len, uint32_t wr_id)
{
	struct copy_nic *nic = (struct copy_nic *)qp->base.dev;

	nic->cq[nic->tail++ % COPY_NIC_CQ] = (struct crpc_rdma_cqe){.type = type,
			.qp_id = qp->base.id,
			.imm = imm,
			.byte_len = len,
			.wr_id = wr_id,
			.wrs = 1};
}

static uint16_t
copy_nic_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct copy_qp *qp = (struct copy_qp *)base;
	uint32_t len;
	uint16_t i;

	for (i = 0; i < n; i++) {
		len = wr[i].num_sge != 0 ? wr[i].sge[0].len : 0;
		if (len != 0 && wr[i].op == CRPC_RDMA_READ)
			memcpy((void *)(uintptr_t)wr[i].sge[0].addr,
					(const void *)(uintptr_t)wr[i].raddr, len);
		else if (len != 0)
			memcpy((void *)(uintptr_t)wr[i].raddr, wr[i].sge[0].addr, len);
		if (wr[i].op == CRPC_RDMA_WRITE_IMM)
			push(qp->peer, CRPC_RDMA_CQE_RECV, wr[i].imm, len, 0);
		if (wr[i].flags & CRPC_RDMA_WR_SIGNAL)
			push(qp, CRPC_RDMA_CQE_SEND, 0, 0, wr[i].wr_id);
	}
	return n;
}

static uint16_t
copy_nic_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct copy_nic *nic = (struct copy_nic *)base;
	uint16_t k = 0;

	while (k < n && nic->head != nic->tail)
		cqe[k++] = nic->cq[nic->head++ % COPY_NIC_CQ];
	return k;
}

static struct crpc_rdma_qp *
copy_qp_create(struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf)
{
	struct copy_qp *qp = nqps < QPS ? calloc(1, sizeof(*qp)) : NULL;

	if (qp == NULL)
		return NULL;
	qp->base = (struct crpc_rdma_qp){.dev = dev, .id = conf->id};
	qp->index = nqps;
	qps[nqps++] = qp;
	return &qp->base;
}

static void
copy_qp_free(struct crpc_rdma_qp *qp)
{
	free(qp);
}

static void
copy_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	memcpy(addr, &((const struct copy_qp *)qp)->index, sizeof(uint32_t));
}

static int
copy_qp_connect(struct crpc_rdma_qp *base, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	uint32_t index;

	memcpy(&index, addr, sizeof(index));
	((struct copy_qp *)base)->peer = qps[index];
	return 0;
}

static const struct crpc_rdma_ops ops = {
		.name = "copy",
		.close = copy_close,
		.info_get = copy_info,
		.mr_reg = copy_mr_reg,
		.mr_dereg = copy_mr_dereg,
		.qp_create = copy_qp_create,
		.qp_free = copy_qp_free,
		.qp_addr = copy_qp_addr,
		.qp_connect = copy_qp_connect,
};

struct copy_nic *
copy_nic_open(void)
{
	struct copy_nic *nic = calloc(1, sizeof(*nic));

	if (nic != NULL)
		nic->base = (struct crpc_rdma){.fp = {copy_nic_post, copy_nic_poll}, .ops = &ops};
	return nic;
}
