/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "priv.h"

/* A CQE as it is composed here: big endian already. */
struct cqe {
	uint8_t inl[22];
	uint16_t slid;
	uint32_t flags_rqpn;
	uint32_t rsvd28;
	uint32_t srqn_uidx;
	uint32_t imm;
	uint32_t app;
	uint32_t byte_cnt;
	uint64_t timestamp; /* Of an error: vendor syndrome in byte 54, syndrome in byte 55. */
	uint32_t op_qpn;
	uint16_t counter;
	uint8_t signature;
	uint8_t op_own;
};
_Static_assert(sizeof(struct cqe) == 64 && sizeof(struct mlx5_cqe64) == 64, "one line");
_Static_assert(offsetof(struct cqe, slid) == offsetof(struct mlx5_cqe64, slid), "PRM");
_Static_assert(offsetof(struct cqe, flags_rqpn) == offsetof(struct mlx5_cqe64, flags_rqpn), "PRM");
_Static_assert(offsetof(struct cqe, srqn_uidx) == offsetof(struct mlx5_cqe64, srqn_uidx), "PRM");
_Static_assert(offsetof(struct cqe, imm) == offsetof(struct mlx5_cqe64, imm_inval_pkey), "PRM");
_Static_assert(offsetof(struct cqe, byte_cnt) == offsetof(struct mlx5_cqe64, byte_cnt), "PRM");
_Static_assert(offsetof(struct cqe, timestamp) == offsetof(struct mlx5_cqe64, timestamp), "PRM");
_Static_assert(offsetof(struct cqe, op_qpn) == offsetof(struct mlx5_cqe64, sop_drop_qpn), "PRM");
_Static_assert(offsetof(struct cqe, counter) == offsetof(struct mlx5_cqe64, wqe_counter), "PRM");
_Static_assert(offsetof(struct cqe, op_own) == offsetof(struct mlx5_cqe64, op_own), "PRM");
_Static_assert(offsetof(struct mlx5_err_cqe, vendor_err_synd) == 54, "PRM");
_Static_assert(offsetof(struct mlx5_err_cqe, syndrome) == 55, "PRM");
_Static_assert((int)MLX5_CQE_REQ_ERR == SM_CQE_REQ_ERR, "PRM");
_Static_assert((int)MLX5_CQE_RESP_ERR == SM_CQE_RESP_ERR, "PRM");
_Static_assert((int)MLX5_CQE_RESP_SEND_INV == SM_CQE_RESP_SEND_INV, "PRM");
_Static_assert((int)MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR == SM_SYND_REMOTE_INVAL, "PRM");
_Static_assert((int)MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR == SM_SYND_RNR_EXC, "PRM");

#define CI_MASK 0xffffffu
#define ARM_POISON 0xffffffffu

int
sm_cq_create(struct sm_nic *nic, const struct sm_cq_attr *attr, struct sm_cq **cq, uint32_t *cqn)
{
	struct sm_cq *c;

	if (attr->buf == NULL || attr->dbrec == NULL || !crpc_is_pow2(attr->ncqe) ||
		attr->ncqe > SM_CQE_MAX || (attr->cqe_size != 64 && attr->cqe_size != 128) ||
		(uintptr_t)attr->buf % 64 != 0 || (uintptr_t)attr->dbrec % 8 != 0)
		return EINVAL;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return ENOMEM;
	/* In a 128-byte CQE the upper half is the one that counts. */
	c->cqe = (uint8_t *)attr->buf + (attr->cqe_size - 64);
	c->dbrec = attr->dbrec;
	c->ncqe = attr->ncqe;
	c->log_ncqe = crpc_log2(attr->ncqe);
	c->log_size = crpc_log2(attr->cqe_size);
	c->ignore_overrun = attr->ignore_overrun;
	c->user = attr->user;
	c->arm = ARM_POISON;
	if (sm_lock_live(nic) != 0) {
		free(c);
		return EIO;
	}
	crpc_store_relaxed(&c->dbrec[1], ARM_POISON);
	c->cqn = nic->next_cqn++ & CI_MASK;
	TAILQ_INSERT_TAIL(&nic->cqs, c, link);
	*cqn = c->cqn;
	*cq = c;
	sm_unlock(nic);
	return 0;
}

int
sm_cq_destroy(struct sm_nic *nic, struct sm_cq *cq)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	if (cq->users != 0) {
		sm_unlock(nic);
		return EBUSY;
	}
	TAILQ_REMOVE(&nic->cqs, cq, link);
	sm_unlock(nic);
	free(cq);
	return 0;
}

static crpc_noinline bool
cq_full(struct sm_nic *nic, struct sm_cq *cq)
{
	if (cq->failed)
		return true;
	cq->ci = sm_dbrec(&cq->dbrec[0]) & CI_MASK;
	if (cq->ignore_overrun || ((cq->pi - cq->ci) & CI_MASK) < cq->ncqe)
		return false;
	cq->failed = true;
	nic->async_event(cq->user, SM_EVENT_CQ_ERR);
	return true;
}

static void
cqe_error(struct cqe *e, const struct sm_wc *wc)
{
	uint8_t *b = (uint8_t *)&e->timestamp;

	memset(b, 0, sizeof(e->timestamp));
	b[6] = 0; /* Vendor syndrome: nothing to add. */
	b[7] = wc->syndrome;
}

bool
sm_cq_push(struct sm_nic *nic, struct sm_cq *cq, const struct sm_qp *qp, const struct sm_wc *wc)
{
	uint8_t owner = (cq->pi >> cq->log_ncqe) & 1;
	struct cqe e;
	uint8_t *slot;

	if (crpc_unlikely(((cq->pi - cq->ci) & CI_MASK) >= cq->ncqe || cq->failed) &&
		cq_full(nic, cq))
		return false;
	memset(e.inl, 0, sizeof(e.inl));
	e.slid = __builtin_bswap16(SM_LID);
	e.flags_rqpn = __builtin_bswap32(wc->src_qpn);
	e.rsvd28 = 0;
	e.srqn_uidx = __builtin_bswap32(qp->uidx);
	e.imm = wc->imm;
	e.app = 0;
	e.byte_cnt = __builtin_bswap32(wc->len);
	e.timestamp = __builtin_bswap64(nic->now);
	e.op_qpn = __builtin_bswap32((uint32_t)wc->wqe_op << 24 | qp->qpn);
	e.counter = __builtin_bswap16(wc->counter);
	e.signature = 0;
	if (crpc_unlikely(wc->syndrome != 0))
		cqe_error(&e, wc);
	slot = cq->cqe + ((size_t)(cq->pi & (cq->ncqe - 1)) << cq->log_size);
	memcpy(slot, &e, offsetof(struct cqe, op_own));
	cq->pi++;
	/* C0: the CQE, and the data that it announces, come before the owner bit; pairs with the
	 * barrier of the reader, crpc_dma_rmb(). */
	crpc_store_release((_Atomic uint8_t *)slot + offsetof(struct cqe, op_own),
		(uint8_t)(wc->op << 4 | (wc->solicited ? 2 : 0) | owner));
	if (wc->solicited || wc->syndrome != 0)
		cq->solicited = cq->pi;
	if (!cq->touched) {
		cq->touched = true;
		cq->next_touched = nic->touched;
		nic->touched = cq;
	}
	return true;
}

void
sm_cq_arm_check(struct sm_nic *nic, struct sm_cq *cq)
{
	uint32_t arm = crpc_load_acquire(&cq->dbrec[1]);
	uint32_t word, pending;

	if (crpc_likely(arm == cq->arm))
		return;
	word = __builtin_bswap32(arm);
	pending = (word & MLX5_CQ_DB_REQ_NOT_SOL) != 0 ? cq->solicited : cq->pi;
	pending = (pending - word) & CI_MASK;
	if (pending == 0 || pending > cq->ncqe)
		return;
	cq->arm = arm; /* One event for one arm. */
	nic->comp_event(cq->user);
}
