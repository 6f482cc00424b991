/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_WQE_H
#define CRPC_MLX5_WQE_H

/**
 * @file
 * Builds send WQEs in place, in the ring that the device reads. It touches nothing but the ring: a
 * test runs it on plain memory.
 *
 * A WQE may start near the end of the ring and go on at its start. Segments are 16 bytes and the
 * ring is a multiple of that, so only inline bytes can be cut at the end.
 */

#include <string.h>

#include "mlx5_ring.h"

/** A request of either kind, as the builder takes it. */
struct crpc_mlx5_req {
	uint32_t opcode; /**< 0 (NOP, which none asks for): the request is not valid. */
	uint32_t flags;
	uint32_t imm;
	uint32_t wr_id;
	const struct mlx5_wqe_av *av; /**< To whom: of a datagram, and of a DC queue pair. */
	uint32_t av_len;              /**< Bytes of it that the WQE needs; 0: none. */
	uint32_t rkey;
	uint64_t raddr; /**< Of all but datagrams. */
	const struct crpc_rdma_sge *sge;
	uint32_t num_sge;
	uint32_t inline_max;
};

/** The segment after @p seg. */
static inline uint8_t *
crpc_mlx5_seg_next(const struct crpc_mlx5_sq *sq, uint8_t *seg)
{
	seg += CRPC_MLX5_SEG;
	return crpc_unlikely(seg == sq->end) ? sq->buf : seg;
}

/** Bytes of all elements. */
static inline uint64_t
crpc_mlx5_sge_len(const struct crpc_rdma_sge *sge, uint32_t num_sge)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < num_sge; i++)
		len += sge[i].len;
	return len;
}

/** Copies the payload behind an inline header at @p seg; the number of segments, -1 if too long. */
static inline int
crpc_mlx5_inline_put(const struct crpc_mlx5_sq *sq, uint8_t *seg, const struct crpc_mlx5_req *req)
{
	struct mlx5_wqe_inl_data_seg *head = (void *)seg;
	uint64_t len = crpc_mlx5_sge_len(req->sge, req->num_sge);
	uint8_t *dst = seg + sizeof(*head);
	const uint8_t *src;
	uint32_t n, room;

	if (len == 0)
		return 0;
	if (crpc_unlikely(len > req->inline_max))
		return -1;
	head->byte_count = htobe32(MLX5_INLINE_SEG | (uint32_t)len);
	for (uint32_t i = 0; i < req->num_sge; i++) {
		src = req->sge[i].addr;
		n = req->sge[i].len;
		if (n == 0)
			continue;
		room = (uint32_t)(sq->end - dst);
		if (crpc_unlikely(n > room)) {
			memcpy(dst, src, room);
			dst = sq->buf;
			src += room;
			n -= room;
		}
		memcpy(dst, src, n);
		dst += n;
	}
	return (int)(((uint32_t)(sizeof(*head) + len) + CRPC_MLX5_SEG - 1) / CRPC_MLX5_SEG);
}

/**
 * Writes the payload at @p seg, inline or as a data segment per element that is not empty. The
 * number of segments, or -1 if it cannot be built.
 */
static inline int
crpc_mlx5_payload_put(const struct crpc_mlx5_sq *sq, uint8_t *seg, const struct crpc_mlx5_req *req)
{
	struct mlx5_wqe_data_seg *data;
	const struct crpc_rdma_sge *sge;
	int n = 0;

	if (req->flags & CRPC_RDMA_WR_INLINE)
		return crpc_mlx5_inline_put(sq, seg, req);
	for (sge = req->sge; sge < req->sge + req->num_sge; sge++) {
		/* A byte count of 0 would be read as 2^31. */
		if (sge->len == 0)
			continue;
		if (crpc_unlikely(sge->len > CRPC_MLX5_MSG_MAX))
			return -1;
		data = (void *)seg;
		data->byte_count = htobe32(sge->len);
		data->lkey = htobe32(sge->lkey);
		data->addr = htobe64((uintptr_t)sge->addr);
		seg = crpc_mlx5_seg_next(sq, seg);
		n++;
	}
	return n;
}

/** The opcode of a WR, or 0 if there is none. */
static inline uint32_t
crpc_mlx5_opcode(const struct crpc_rdma_wr *wr)
{
	static const uint8_t opcodes[] = {
		[CRPC_RDMA_WRITE] = MLX5_OPCODE_RDMA_WRITE,
		[CRPC_RDMA_WRITE_IMM] = MLX5_OPCODE_RDMA_WRITE_IMM,
		[CRPC_RDMA_READ] = MLX5_OPCODE_RDMA_READ,
	};

	if (wr->op >= CRPC_DIM(opcodes) || wr->num_sge > CRPC_RDMA_SGE_MAX ||
		(wr->op == CRPC_RDMA_READ && wr->flags & CRPC_RDMA_WR_INLINE))
		return 0;
	return opcodes[wr->op];
}

/** A WR of an RC or DC queue pair. */
crpc_inline struct crpc_mlx5_req
crpc_mlx5_wr_req(const struct crpc_mlx5_qp *qp, const struct crpc_rdma_wr *wr)
{
	return (struct crpc_mlx5_req){
		.opcode = crpc_mlx5_opcode(wr),
		.flags = wr->flags,
		.imm = wr->op == CRPC_RDMA_WRITE_IMM ? wr->imm : 0,
		.wr_id = wr->wr_id,
		.av = &qp->av,
		.av_len = qp->av_len,
		.rkey = wr->rkey,
		.raddr = wr->raddr,
		.sge = wr->sge,
		.num_sge = wr->num_sge,
		.inline_max = qp->ib.inline_max,
	};
}

/** A datagram. */
crpc_inline struct crpc_mlx5_req
crpc_mlx5_dgram_req(const struct crpc_mlx5_ud *ud, const struct crpc_rdma_wr *wr)
{
	const struct crpc_mlx5_ah *ah = (const struct crpc_mlx5_ah *)(const void *)wr->ah;
	bool valid = wr->op == CRPC_RDMA_SEND_IMM && ah != NULL &&
		wr->num_sge <= CRPC_RDMA_SGE_MAX &&
		crpc_mlx5_sge_len(wr->sge, wr->num_sge) <= ud->mtu;

	return (struct crpc_mlx5_req){
		.opcode = valid ? MLX5_OPCODE_SEND_IMM : 0,
		.flags = wr->flags,
		.imm = wr->imm,
		.wr_id = wr->wr_id,
		.av = valid ? &ah->av : NULL,
		.av_len = sizeof(ah->av),
		.sge = wr->sge,
		.num_sge = wr->num_sge,
		.inline_max = ud->qp.ib.inline_max,
	};
}

/**
 * Build one WQE at the ring's producer index. Does not move the index.
 *
 * @param sq
 *   The ring; room for the WQE was checked.
 * @param req
 *   What to build.
 * @param signal
 *   Request a completion from the device.
 * @return
 *   Segments of the WQE, or 0 if it cannot be built: a request that is not valid, or too long. The
 *   ring's content is then undefined at this index, and nothing reads it.
 */
crpc_inline uint32_t
crpc_mlx5_wqe_build(const struct crpc_mlx5_sq *sq, const struct crpc_mlx5_req *req, bool signal)
{
	struct crpc_mlx5_ctrl *ctrl = (void *)crpc_mlx5_block(sq, sq->pi);
	bool remote = req->opcode != MLX5_OPCODE_SEND_IMM;
	uint8_t *seg = (uint8_t *)ctrl + CRPC_MLX5_SEG;
	struct mlx5_wqe_raddr_seg *raddr;
	int segments;
	uint32_t ds;

	if (crpc_unlikely(req->opcode == 0))
		return 0;
	if (req->av_len != 0) {
		/* Control and vector fill at most one block: only what follows may be cut off. */
		memcpy(seg, req->av, req->av_len);
		seg += req->av_len;
		if (crpc_unlikely(seg == sq->end))
			seg = sq->buf;
	}
	if (remote) {
		raddr = (void *)seg;
		raddr->raddr = htobe64(req->raddr);
		raddr->rkey = htobe32(req->rkey);
		raddr->reserved = 0;
		seg = crpc_mlx5_seg_next(sq, seg);
	}
	segments = crpc_mlx5_payload_put(sq, seg, req);
	if (crpc_unlikely(segments < 0))
		return 0;
	ds = 1 + req->av_len / CRPC_MLX5_SEG + remote + (uint32_t)segments;
	ctrl->opmod_idx_opcode = htobe32((sq->pi & CRPC_MLX5_WQE_CTR_MASK) << 8 | req->opcode);
	ctrl->qpn_ds = htobe32(sq->qpn_shl8 | ds);
	ctrl->flags = signal ? htobe32(MLX5_WQE_CTRL_CQ_UPDATE) : 0;
	ctrl->imm = htobe32(req->imm);
	return ds;
}

/** Blocks of a WQE of @p ds segments. */
static inline uint32_t
crpc_mlx5_ds_to_bb(uint32_t ds)
{
	return (ds * CRPC_MLX5_SEG + CRPC_MLX5_BB - 1) / CRPC_MLX5_BB;
}

#endif
