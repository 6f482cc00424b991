/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_CQ_H
#define SOFT_MLX5_ENGINE_CQ_H

/**
 * @file
 * Completion queues: CQEs, and the events of armed queues.
 */

#include "prm.h"
#include "qp.h"

struct sm_cq {
	struct sm_obj obj; /**< Its users: queue pairs that complete to it. */
	uint8_t *cqe; /**< The 64 bytes that are written of entry 0. */
	_Atomic uint32_t *dbrec;
	uint32_t pi;
	uint32_t ci; /**< As last read from the doorbell record. */
	uint32_t ncqe;
	uint32_t log_ncqe;
	uint32_t log_size;
	uint32_t arm;       /**< The arm word that was served last. */
	uint32_t solicited; /**< pi behind the newest solicited or error CQE. */
	bool ignore_overrun;
	bool failed;
	bool touched; /**< Got a CQE in this pass. */
	void *user;
	struct sm_cq *next_touched;
};

/** Fields of a completion in native endian; what is 0 is written as 0. */
struct sm_wc {
	uint8_t op; /**< MLX5_CQE_... */
	uint8_t syndrome;
	bool solicited;
	uint8_t wqe_op;   /**< Requester: opcode of the WQE. */
	uint16_t counter;
	uint32_t imm;     /**< Big endian. */
	uint32_t len;
	uint32_t src_qpn;
	/** The payload, if it goes into the CQE: up to 32 bytes, or 64 if CQEs have 128. */
	const uint8_t *data;
};

/** The queue has no room, or looks so: true if it overran and is in error. */
bool sm_cq_full(struct sm_nic *nic, struct sm_cq *cq);

/**
 * Write a CQE; false: the queue overran and is in error.
 *
 * Always inlined: @p wc is made of constants and registers at each call, and the line is written by
 * whole words, which a reader's wider loads can be served from.
 */
static inline __attribute__((always_inline)) bool
sm_cq_push(struct sm_nic *nic, struct sm_cq *cq, struct sm_qp *qp, const struct sm_wc *wc)
{
	uint64_t *line, stamp = __builtin_bswap64(nic->now);
	uint32_t own;

	if (crpc_unlikely(((cq->pi - cq->ci) & SM_CQ_CI_MASK) >= cq->ncqe) && sm_cq_full(nic, cq))
		return false;
	if (wc->syndrome != 0) /* Bytes 54, vendor syndrome, and 55. */
		stamp = (uint64_t)wc->syndrome << 56;
	line = (uint64_t *)(void *)(cq->cqe + ((size_t)(cq->pi & (cq->ncqe - 1)) << cq->log_size));
	own = wc->op << 4 | (wc->solicited ? 2 : 0) | ((cq->pi >> cq->log_ncqe) & 1);
	line[0] = 0;
	line[1] = 0;
	line[2] = (uint64_t)__builtin_bswap16(SM_LID) << 48;
	line[3] = __builtin_bswap32(wc->src_qpn);
	line[4] = __builtin_bswap32(qp->made.uidx) | (uint64_t)wc->imm << 32;
	line[5] = (uint64_t)__builtin_bswap32(wc->len) << 32;
	line[6] = stamp;
	((uint32_t *)line)[14] = __builtin_bswap32((uint32_t)wc->wqe_op << 24 | qp->qpn);
	((uint16_t *)line)[30] = __builtin_bswap16(wc->counter);
	((uint8_t *)line)[62] = 0;
	if (wc->data != NULL) {
		bool wide = cq->log_size == 7; /* In the half before. */

		memcpy(line - (wide ? 8 : 0), wc->data, wc->len);
		own |= wide ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32;
	}
	cq->pi++;
	qp->n.cqes[wc->op != MLX5_CQE_REQ && wc->op != MLX5_CQE_REQ_ERR]++;
	/* C0: the CQE, and the data that it announces, come before the owner bit in its last byte;
	 * pairs with the barrier of the reader, crpc_dma_rmb(). */
	crpc_store_release((_Atomic uint8_t *)line + 63, (uint8_t)own);
	if (wc->solicited || wc->syndrome != 0)
		cq->solicited = cq->pi;
	if (!cq->touched) {
		cq->touched = true;
		cq->next_touched = nic->touched;
		nic->touched = cq;
	}
	return true;
}

/**
 * Complete a WQE in error, with @p syndrome: of the send queue (@p op MLX5_CQE_REQ_ERR), whose
 * opcode is @p wqe_op, or of the receive queue (MLX5_CQE_RESP_ERR).
 */
void sm_cq_error(struct sm_nic *nic, struct sm_qp *qp, uint8_t op, uint8_t syndrome,
	uint16_t counter, uint8_t wqe_op);
/** The queue goes. */
void sm_cq_forget(struct sm_nic *nic, const struct sm_cq *cq);
/** The queue overran: it is in error, and nothing is written to it any more. */
void sm_cq_overrun(struct sm_nic *nic, struct sm_cq *cq);
/** Raise the event of an armed queue that has something. */
void sm_cq_arm_check(struct sm_nic *nic, struct sm_cq *cq);

#endif
