/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rare side of the completion queue: its memory, taken over from rdma-core; the entries of a
 * queue pair that is destroyed.
 */
#include <errno.h>
#include <string.h>

#include "crpc_dma.h"
#include "crpc_log.h"
#include "mlx5_ring.h"

int
crpc_mlx5_cq_init(struct crpc_mlx5_dev *dev, uint32_t depth)
{
	struct mlx5dv_cq_init_attr dv_attr = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		.cqe_size = CRPC_MLX5_CQE,
	};
	/* rdma-core adds one before it rounds to a power of two. */
	struct ibv_cq_init_attr_ex attr = {.cqe = depth > 1 ? depth - 1 : 1};
	struct crpc_mlx5_cq *cq = &dev->cq;
	struct mlx5dv_cq raw = {0};
	struct mlx5dv_obj obj = {.cq = {.out = &raw}};
	struct ibv_cq_ex *ex;

	ex = mlx5dv_create_cq(dev->ib.context, &attr, &dv_attr);
	if (ex == NULL)
		return crpc_fail(errno == EINVAL ? -EINVAL : -ENOMEM,
			"open: a completion queue of %u: %s", depth, strerror(errno));
	dev->ib.cq = ibv_cq_ex_to_cq(ex);
	obj.cq.in = dev->ib.cq;
	/* This also makes rdma-core leave the queue alone when a QP is destroyed: its own
	 * consumer index never moved, and it would write that one back. */
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ) != 0 || raw.cqe_size != CRPC_MLX5_CQE ||
		!crpc_is_pow2(raw.cqe_cnt) || raw.cqe_cnt < depth)
		return crpc_fail(-EINVAL,
			"open: rdma-core gave a completion queue of %u entries of %u bytes, needed "
			"are %u of %u",
			raw.cqe_cnt, raw.cqe_size, depth, CRPC_MLX5_CQE);
	cq->buf = raw.buf;
	/* The first lap's owner is 0: what the device has not written yet must not have it. */
	for (uint32_t i = 0; i < raw.cqe_cnt; i++)
		cq->buf[i].ok.op_own |= MLX5_CQE_OWNER_MASK;
	cq->dbrec = (_Atomic uint32_t *)(void *)&raw.dbrec[0];
	cq->mask = raw.cqe_cnt - 1;
	dev->ib.cq_depth = depth;
	return 0;
}

void
crpc_mlx5_cq_forget(struct crpc_mlx5_cq *cq, uint32_t qpn)
{
	struct crpc_mlx5_cq walk = *cq;
	const union crpc_mlx5_cqe *from;
	union crpc_mlx5_cqe *cqe;
	uint64_t tail;
	uint32_t to;

	while (walk.ci - cq->ci <= walk.mask && crpc_mlx5_cqe_next(&walk, &tail) != NULL)
		walk.ci++;
	crpc_dma_rmb();
	/* Those of other queue pairs are moved towards the newest, as rdma-core does it. */
	for (to = walk.ci; walk.ci != cq->ci;) {
		from = &cq->buf[--walk.ci & cq->mask];
		if ((be32toh(from->ok.sop_drop_qpn) & CRPC_IB_QPN_MASK) == qpn || --to == walk.ci)
			continue;
		cqe = &cq->buf[to & cq->mask];
		*cqe = *from;
		cqe->ok.op_own = (uint8_t)((cqe->ok.op_own & ~MLX5_CQE_OWNER_MASK) |
			((to & (cq->mask + 1)) != 0));
	}
	if (to == cq->ci)
		return;
	cq->ci = to;
	/* Release: as in refill_flush(). */
	crpc_store_release(cq->dbrec, htobe32(to & CRPC_MLX5_CQE_CTR_MASK));
}
