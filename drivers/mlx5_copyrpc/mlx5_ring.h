/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_RING_H
#define CRPC_MLX5_RING_H

/**
 * @file
 * What the datapath knows of its queues: which WQEs of a send ring are outstanding and whose they
 * are, the next completion, and the queue pair of a QPN.
 */

#include "mlx5_copyrpc.h"

/** The block of a send ring that free-running index @p at names. */
static inline uint8_t *
crpc_mlx5_block(const struct crpc_mlx5_sq *sq, uint32_t at)
{
	return sq->buf + (size_t)(at & sq->bb_mask) * CRPC_MLX5_BB;
}

/** Blocks in use. */
static inline uint32_t
crpc_mlx5_sq_used(const struct crpc_mlx5_sq *sq)
{
	return sq->pi - sq->ci;
}

/** Records the WQE that was built at the producer index, and moves the index past it. */
static inline void
crpc_mlx5_sent_add(
	struct crpc_mlx5_sq *sq, struct crpc_mlx5_qp *owner, uint32_t wr_id, bool user, uint32_t bb)
{
	sq->sent[sq->pi & sq->bb_mask] = (struct crpc_mlx5_sent){
		.owner = owner,
		.start = sq->pi,
		.wr_id = wr_id,
		.bb = (uint8_t)bb,
		.user = user,
	};
	sq->newest = sq->pi;
	sq->pi += bb;
}

/** The outstanding WQE that a completion names by its counter, 16 bits of the index of its first
 *  block; NULL: there is none. */
static inline struct crpc_mlx5_sent *
crpc_mlx5_sent_find(const struct crpc_mlx5_sq *sq, uint32_t counter)
{
	uint32_t used = crpc_mlx5_sq_used(sq);
	struct crpc_mlx5_sent *sent;

	if (crpc_unlikely(used == 0)) /* Also where there is no ring at all. */
		return NULL;
	sent = &sq->sent[counter & sq->bb_mask];
	if (crpc_unlikely((sent->start & CRPC_MLX5_WQE_CTR_MASK) != counter ||
		    sent->start - sq->ci >= used))
		return NULL;
	return sent;
}

/** Takes the oldest WQE off the ring, done or lost; its owner, or NULL. */
static inline struct crpc_mlx5_qp *
crpc_mlx5_retire_one(struct crpc_mlx5_sq *sq)
{
	const struct crpc_mlx5_sent *sent = &sq->sent[sq->ci & sq->bb_mask];

	sq->ci += sent->bb;
	if (sent->owner != NULL)
		sent->owner->ib.retired++;
	return sent->owner;
}

/** Retires all up to the outstanding WQE that starts at block @p start; its owner, or NULL. */
static inline struct crpc_mlx5_qp *
crpc_mlx5_retire_to(struct crpc_mlx5_sq *sq, uint32_t start)
{
	while (sq->ci != start)
		crpc_mlx5_retire_one(sq);
	return crpc_mlx5_retire_one(sq);
}

/** Whether the user gets no completion of a WQE. */
static inline bool
crpc_mlx5_is_silent(const struct crpc_mlx5_qp *owner)
{
	return owner == NULL || owner->ib.state == CRPC_IB_RETIRED;
}

/** The next completion if the device has written it: its owner bit names the lap, see PRM "CQE
 *  Ownership". An entry never written has that of the lap before, by crpc_mlx5_cq_init(). */
static inline union crpc_mlx5_cqe *
crpc_mlx5_cqe_next(const struct crpc_mlx5_cq *cq, uint64_t *tail)
{
	union crpc_mlx5_cqe *cqe = &cq->buf[cq->ci & cq->mask];

	/* Acquire: pairs with the device's store of the entry's last bytes, a release where the
	 * device is a program. */
	*tail = be64toh(crpc_load_acquire(&cqe->tail));
	if (CRPC_MLX5_TAIL_OWNER(*tail) != !!(cq->ci & (cq->mask + 1)))
		return NULL;
	return cqe;
}

/** The first place to look for @p qpn. The multiplier is 2^32 / golden ratio: neighbours spread. */
static inline uint32_t
crpc_mlx5_table_home(const struct crpc_mlx5_table *t, uint32_t qpn)
{
	return (qpn * 0x9e3779b1u) >> t->shift;
}

/** The queue pair of @p qpn, or NULL (it was freed). */
static inline struct crpc_mlx5_qp *
crpc_mlx5_table_find(const struct crpc_mlx5_table *t, uint32_t qpn)
{
	uint32_t i = crpc_mlx5_table_home(t, qpn);

	for (;; i = (i + 1) & t->mask) {
		if (crpc_likely(t->slot[i].qpn == qpn))
			return t->slot[i].qp;
		if (t->slot[i].qpn == 0)
			return NULL;
	}
}

#endif
