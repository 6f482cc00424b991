/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rare side of the completion queue: its memory, taken over from rdma-core; compressed
 * sessions, which are written out as single entries; the entries of a queue pair that is destroyed.
 */
#include <errno.h>
#include <string.h>

#include "crpc_dma.h"
#include "crpc_log.h"
#include "mlx5_ring.h"

/* Whether the device can compress completions in the format that we read. */
static bool
can_compress(struct ibv_context *context)
{
	struct mlx5dv_context attr = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};

	return mlx5dv_query_device(context, &attr) == 0 &&
		(attr.comp_mask & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) != 0 &&
		attr.cqe_comp_caps.max_num > 1 &&
		(attr.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_HASH) != 0;
}

int
crpc_mlx5_cq_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	uint32_t depth = conf->cq_depth;
	struct mlx5dv_cq_init_attr dv_attr = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		.cqe_size = CRPC_MLX5_CQE,
	};
	/* rdma-core adds one before it rounds to a power of two. */
	struct ibv_cq_init_attr_ex attr = {.cqe = depth > 1 ? depth - 1 : 1};
	struct crpc_mlx5_cq *cq = &dev->dp.cq;
	struct mlx5dv_cq raw = {0};
	struct mlx5dv_obj obj = {.cq = {.out = &raw}};
	struct ibv_cq_ex *ex;

	dev->compressed = conf->cqe_compression && can_compress(dev->dp.context);
	if (dev->compressed) {
		dv_attr.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
		dv_attr.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH;
	} else if (conf->cqe_compression) {
		crpc_notice("open: device %s does not compress completions",
			ibv_get_device_name(dev->dp.context->device));
	}
	ex = mlx5dv_create_cq(dev->dp.context, &attr, &dv_attr);
	if (ex == NULL)
		return crpc_fail(errno == EINVAL ? -EINVAL : -ENOMEM,
			"open: a completion queue of %u: %s", depth, strerror(errno));
	dev->cq = ibv_cq_ex_to_cq(ex);
	obj.cq.in = dev->cq;
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

/* One completion of a session, as the device would have written it alone. */
static void
mini_write(const struct crpc_mlx5_cq *cq, uint32_t at, const union crpc_mlx5_cqe *title,
	const struct crpc_mlx5_mini_cqe *mini, uint32_t place)
{
	union crpc_mlx5_cqe cqe = *title;
	bool owner = (at & (cq->mask + 1)) != 0;

	cqe.ok.byte_cnt = mini->byte_cnt;
	if (title->ok.op_own >> 4 == MLX5_CQE_REQ) {
		cqe.ok.wqe_counter = mini->wqe_counter;
		cqe.ok.sop_drop_qpn = htobe32((be32toh(title->ok.sop_drop_qpn) & CRPC_IB_QPN_MASK) |
			(uint32_t)mini->wqe_opcode << 24);
	} else {
		cqe.ok.wqe_counter = htobe16((uint16_t)(be16toh(title->ok.wqe_counter) + place));
	}
	cqe.ok.op_own = (uint8_t)((title->ok.op_own & 0xf0) | owner);
	cq->buf[at & cq->mask] = cqe;
}

bool
crpc_mlx5_cq_expand(struct crpc_mlx5_cq *cq)
{
	struct crpc_mlx5_mini_cqe mini[CRPC_MLX5_MINI_PER_CQE];
	union crpc_mlx5_cqe title = cq->buf[cq->ci & cq->mask];
	uint32_t count = be32toh(title.ok.byte_cnt), from;

	if (count < 2 || count > cq->mask + 1)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (i % CRPC_MLX5_MINI_PER_CQE == 0) {
			/* Aside, as it lies where its own completions will. */
			from = cq->ci + (i != 0 ? i : 1);
			memcpy(mini, &cq->buf[from & cq->mask], sizeof(mini));
		}
		mini_write(cq, cq->ci + i, &title, &mini[i % CRPC_MLX5_MINI_PER_CQE], i);
	}
	return true;
}

/* Looks past the next unread completion; sessions are written out on the way. False: there is
 * none. */
static bool
cqe_ahead(struct crpc_mlx5_cq *walk, const struct crpc_mlx5_cq *cq)
{
	uint64_t tail;

	if (walk->ci - cq->ci > walk->mask || crpc_mlx5_cqe_next(walk, &tail) == NULL)
		return false;
	crpc_dma_rmb();
	if (CRPC_MLX5_TAIL_FORMAT(tail) == CRPC_MLX5_CQE_COMPRESSED)
		crpc_mlx5_cq_expand(walk);
	walk->ci++;
	return true;
}

void
crpc_mlx5_cq_forget(struct crpc_mlx5_cq *cq, uint32_t qpn)
{
	struct crpc_mlx5_cq walk = *cq;
	const union crpc_mlx5_cqe *from;
	union crpc_mlx5_cqe *cqe;
	uint32_t to;

	while (cqe_ahead(&walk, cq))
		;
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
