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

#include "mlx5_copyrpc.h"

/** The segment after @p seg. */
static inline uint8_t *
crpc_mlx5_seg_next(const struct crpc_mlx5_sq *sq, uint8_t *seg)
{
	seg += CRPC_MLX5_SEG;
	return crpc_unlikely(seg == sq->end) ? sq->buf : seg;
}

/** Copies the payload behind an inline header at @p seg; the number of segments, -1 if too long. */
static inline int
crpc_mlx5_inline_put(const struct crpc_mlx5_sq *sq, uint8_t *seg, const struct crpc_rdma_sge *sge,
	uint32_t num_sge, uint64_t len)
{
	struct crpc_mlx5_inline *head = (void *)seg;
	uint8_t *dst = seg + sizeof(*head);
	const uint8_t *src;
	uint32_t i, n, room;

	if (crpc_unlikely(len > sq->inline_max))
		return -1;
	head->byte_count = htobe32(MLX5_INLINE_SEG | (uint32_t)len);
	for (i = 0; i < num_sge; i++) {
		src = sge[i].addr;
		n = sge[i].len;
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

/** Writes a data segment per element that is not empty; their number, or -1 if one is too long. */
static inline int
crpc_mlx5_gather_put(const struct crpc_mlx5_sq *sq, uint8_t *seg, const struct crpc_rdma_sge *sge,
	uint32_t num_sge)
{
	struct crpc_mlx5_data *data;
	int n = 0;
	uint32_t i;

	for (i = 0; i < num_sge; i++) {
		/* A byte count of 0 would be read as 2^31. */
		if (sge[i].len == 0)
			continue;
		if (crpc_unlikely(sge[i].len > CRPC_MLX5_MSG_MAX))
			return -1;
		data = (void *)seg;
		data->byte_count = htobe32(sge[i].len);
		data->lkey = htobe32(sge[i].lkey);
		data->addr = htobe64((uintptr_t)sge[i].addr);
		seg = crpc_mlx5_seg_next(sq, seg);
		n++;
	}
	return n;
}

/**
 * Writes the payload at @p seg, inline or as data segments. The number of segments, or -1 if it
 * cannot be built.
 */
static inline int
crpc_mlx5_payload_put(const struct crpc_mlx5_sq *sq, uint8_t *seg, const struct crpc_rdma_sge *sge,
	uint32_t num_sge, bool inl)
{
	uint64_t len = 0;
	uint32_t i;

	if (!inl)
		return crpc_mlx5_gather_put(sq, seg, sge, num_sge);
	for (i = 0; i < num_sge; i++)
		len += sge[i].len;
	return len != 0 ? crpc_mlx5_inline_put(sq, seg, sge, num_sge, len) : 0;
}

/** The opcode of a WR, or 0 (NOP, which no WR asks for) if there is none. */
static inline uint32_t
crpc_mlx5_opcode(const struct crpc_rdma_wr *wr)
{
	switch (wr->op) {
	case CRPC_RDMA_WRITE_IMM:
		return MLX5_OPCODE_RDMA_WRITE_IMM;
	case CRPC_RDMA_WRITE:
		return MLX5_OPCODE_RDMA_WRITE;
	case CRPC_RDMA_READ:
		return wr->flags & CRPC_RDMA_WR_INLINE ? 0 : MLX5_OPCODE_RDMA_READ;
	default:
		return 0;
	}
}

/**
 * Build one WQE at the queue's producer index. Does not move the index.
 *
 * @param sq
 *   The queue; room for the WQE was checked.
 * @param wr
 *   What to build.
 * @param signal
 *   Ask the device for a completion.
 * @return
 *   Segments of the WQE, or 0 if the WR cannot be built: unknown operation, too many elements, too
 *   long, an inline READ. The ring's content is then undefined at this index, and nothing reads it.
 */
static inline uint32_t
crpc_mlx5_wqe_build(const struct crpc_mlx5_sq *sq, const struct crpc_rdma_wr *wr, bool signal)
{
	uint8_t *at = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
	struct crpc_mlx5_ctrl *ctrl = (void *)at;
	/* A block holds both: only what follows them can lie behind the end. */
	struct crpc_mlx5_raddr *raddr = (void *)(at + CRPC_MLX5_SEG);
	uint8_t *seg = at + 2 * CRPC_MLX5_SEG;
	uint32_t opcode = crpc_mlx5_opcode(wr);
	uint32_t ds;
	int segments;

	if (crpc_unlikely(opcode == 0 || wr->num_sge > CRPC_RDMA_SGE_MAX))
		return 0;
	segments = crpc_mlx5_payload_put(
		sq, seg, wr->sge, wr->num_sge, wr->flags & CRPC_RDMA_WR_INLINE);
	if (crpc_unlikely(segments < 0))
		return 0;
	ds = 2 + (uint32_t)segments;
	raddr->raddr = htobe64(wr->raddr);
	raddr->rkey = htobe32(wr->rkey);
	raddr->reserved = 0;
	ctrl->opmod_idx_opcode = htobe32((sq->pi & CRPC_MLX5_WQE_CTR_MASK) << 8 | opcode);
	ctrl->qpn_ds = htobe32(sq->qpn_shl8 | ds);
	ctrl->flags = signal ? htobe32(MLX5_WQE_CTRL_CQ_UPDATE) : 0;
	ctrl->imm = opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? htobe32(wr->imm) : 0;
	return ds;
}

/**
 * Build the WQE of one datagram at the queue's producer index: as crpc_mlx5_wqe_build().
 *
 * @param mtu
 *   Bytes that a datagram may have.
 */
static inline uint32_t
crpc_mlx5_ud_wqe_build(const struct crpc_mlx5_sq *sq, const struct crpc_rdma_dgram *dgram,
	uint32_t mtu, bool signal)
{
	uint8_t *at = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
	const struct crpc_mlx5_ah *ah = (const struct crpc_mlx5_ah *)(const void *)dgram->ah;
	struct crpc_mlx5_ctrl *ctrl = (void *)at;
	uint64_t len = 0;
	int segments;
	uint32_t ds, i;

	if (crpc_unlikely(ah == NULL || dgram->num_sge > CRPC_RDMA_SGE_MAX))
		return 0;
	for (i = 0; i < dgram->num_sge; i++)
		len += dgram->sge[i].len;
	if (crpc_unlikely(len > mtu))
		return 0;
	/* Control and address fill the first block; what follows may lie behind the end. */
	memcpy(at + CRPC_MLX5_SEG, &ah->av, sizeof(ah->av));
	at += CRPC_MLX5_BB;
	segments = crpc_mlx5_payload_put(sq, crpc_unlikely(at == sq->end) ? sq->buf : at,
		dgram->sge, dgram->num_sge, dgram->flags & CRPC_RDMA_WR_INLINE);
	if (crpc_unlikely(segments < 0))
		return 0;
	ds = CRPC_MLX5_BB / CRPC_MLX5_SEG + (uint32_t)segments;
	ctrl->opmod_idx_opcode =
		htobe32((sq->pi & CRPC_MLX5_WQE_CTR_MASK) << 8 | MLX5_OPCODE_SEND_IMM);
	ctrl->qpn_ds = htobe32(sq->qpn_shl8 | ds);
	ctrl->flags = signal ? htobe32(MLX5_WQE_CTRL_CQ_UPDATE) : 0;
	ctrl->imm = htobe32(dgram->imm);
	return ds;
}

/**
 * Build one WQE of a DC queue pair at the producer index of its initiator's queue: as
 * crpc_mlx5_wqe_build().
 */
static inline uint32_t
crpc_mlx5_dc_wqe_build(const struct crpc_mlx5_sq *sq, const struct crpc_mlx5_dc *dc,
	const struct crpc_rdma_wr *wr, bool signal)
{
	uint8_t *at = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
	struct crpc_mlx5_ctrl *ctrl = (void *)at;
	uint8_t *seg = at + CRPC_MLX5_SEG + dc->av_len;
	uint32_t opcode = crpc_mlx5_opcode(wr), ds;
	struct crpc_mlx5_raddr *raddr;
	int segments;

	if (crpc_unlikely(opcode == 0 || wr->num_sge > CRPC_RDMA_SGE_MAX))
		return 0;
	memcpy(at + CRPC_MLX5_SEG, &dc->av, dc->av_len);
	if (seg == sq->end)
		seg = sq->buf;
	raddr = (void *)seg;
	segments = crpc_mlx5_payload_put(sq, crpc_mlx5_seg_next(sq, seg), wr->sge, wr->num_sge,
		wr->flags & CRPC_RDMA_WR_INLINE);
	if (crpc_unlikely(segments < 0))
		return 0;
	ds = 2 + dc->av_len / CRPC_MLX5_SEG + (uint32_t)segments;
	raddr->raddr = htobe64(wr->raddr);
	raddr->rkey = htobe32(wr->rkey);
	raddr->reserved = 0;
	ctrl->opmod_idx_opcode = htobe32((sq->pi & CRPC_MLX5_WQE_CTR_MASK) << 8 | opcode);
	ctrl->qpn_ds = htobe32(sq->qpn_shl8 | ds);
	ctrl->flags = signal ? htobe32(MLX5_WQE_CTRL_CQ_UPDATE) : 0;
	ctrl->imm = opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? htobe32(wr->imm) : 0;
	return ds;
}

/** Blocks of a WQE of @p ds segments. */
static inline uint32_t
crpc_mlx5_ds_to_bb(uint32_t ds)
{
	return (ds * CRPC_MLX5_SEG + CRPC_MLX5_BB - 1) / CRPC_MLX5_BB;
}

#endif
