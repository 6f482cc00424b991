/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "cq.h"

/* sm_cq_push() in cq.h writes these offsets. */
#define AT(member, at) (offsetof(struct mlx5_cqe64, member) == (at))
_Static_assert(sizeof(struct mlx5_cqe64) == 64 && AT(slid, 22) && AT(flags_rqpn, 24) &&
		AT(srqn_uidx, 32) && AT(imm_inval_pkey, 36) && AT(byte_cnt, 44) &&
		AT(timestamp, 48) && AT(sop_drop_qpn, 56) && AT(wqe_counter, 60) && AT(op_own, 63),
	"PRM");
_Static_assert(offsetof(struct mlx5_err_cqe, vendor_err_synd) == 54 &&
		offsetof(struct mlx5_err_cqe, syndrome) == 55,
	"PRM");
_Static_assert(MLX5_INLINE_SCATTER_32 == 4 && MLX5_INLINE_SCATTER_64 == 8, "PRM");

#define CQE_MAX (1u << 22)
#define ARM_POISON 0xffffffffu

/* What both commands that name a buffer check. */
static bool
buffer_ok(const void *buf, uint32_t ncqe, uint32_t cqe_size)
{
	return buf != NULL && (uintptr_t)buf % 64 == 0 && crpc_is_pow2(ncqe) &&
		ncqe <= CQE_MAX && (cqe_size == 64 || cqe_size == 128);
}

static void
buffer_set(struct sm_cq *c, void *buf, uint32_t ncqe, uint32_t cqe_size)
{
	/* In a 128-byte CQE the upper half is the one that counts. */
	c->cqe = (uint8_t *)buf + (cqe_size - 64);
	c->ncqe = ncqe;
	c->log_ncqe = crpc_log2(ncqe);
	c->log_size = crpc_log2(cqe_size);
}

int
sm_cq_create(struct sm_nic *nic, const struct sm_cq_attr *attr, struct sm_cq **cq, uint32_t *cqn)
{
	struct sm_cq *c;

	if (!buffer_ok(attr->buf, attr->ncqe, attr->cqe_size) || attr->dbrec == NULL ||
		(uintptr_t)attr->dbrec % 8 != 0)
		return EINVAL;
	SM_LOCKED(nic);
	c = sm_obj_new(nic, SM_OBJ_CQ, sizeof(*c), NULL);
	if (c == NULL)
		return ENOMEM;
	buffer_set(c, attr->buf, attr->ncqe, attr->cqe_size);
	c->dbrec = attr->dbrec;
	c->ignore_overrun = attr->ignore_overrun;
	c->user = attr->user;
	c->arm = ARM_POISON;
	crpc_store_relaxed(&c->dbrec[1], ARM_POISON);
	*cqn = c->obj.number;
	*cq = c;
	return 0;
}

int
sm_cq_resize(struct sm_nic *nic, struct sm_cq *cq, void *buf, uint32_t ncqe, uint32_t cqe_size)
{
	uint32_t pending;
	uint64_t *line;
	uint8_t own;

	if (!buffer_ok(buf, ncqe, cqe_size))
		return EINVAL;
	SM_LOCKED(nic);
	pending = (cq->pi - sm_dbrec(&cq->dbrec[0])) & SM_CQ_CI_MASK;
	/* The CQE that ends the old buffer takes an entry of both. */
	if (cq->failed || pending >= cq->ncqe || pending >= ncqe)
		return EINVAL;
	line = (uint64_t *)(void *)(cq->cqe +
		((size_t)(cq->pi & (cq->ncqe - 1)) << cq->log_size));
	memset(line, 0, 63);
	own = MLX5_CQE_RESIZE_CQ << 4 | ((cq->pi >> cq->log_ncqe) & 1);
	/* C0, as in sm_cq_push(). */
	crpc_store_release((_Atomic uint8_t *)line + 63, own);
	cq->pi++;
	cq->ci = (cq->pi - pending - 1) & SM_CQ_CI_MASK;
	buffer_set(cq, buf, ncqe, cqe_size);
	return 0;
}

void
sm_cq_error(struct sm_nic *nic, struct sm_qp *qp, uint8_t op, uint8_t syndrome, uint16_t counter,
	uint8_t wqe_op)
{
	struct sm_cq *cq = op == MLX5_CQE_REQ_ERR ? qp->made.send_cq : qp->made.recv_cq;
	const struct sm_wc wc = {
		.op = op, .syndrome = syndrome, .counter = counter, .wqe_op = wqe_op};

	sm_cq_push(nic, cq, qp, &wc);
}

void
sm_cq_forget(struct sm_nic *nic, const struct sm_cq *cq)
{
	struct sm_cq **p = &nic->touched;

	while (*p != NULL && *p != cq)
		p = &(*p)->next_touched;
	if (*p != NULL)
		*p = cq->next_touched;
}

void
sm_cq_overrun(struct sm_nic *nic, struct sm_cq *cq)
{
	cq->failed = true;
	cq->ci = cq->pi - cq->ncqe; /* Stays full. */
	nic->attr.async_event(cq->user, IBV_EVENT_CQ_ERR);
}

bool
sm_cq_full(struct sm_nic *nic, struct sm_cq *cq)
{
	if (cq->failed)
		return true;
	cq->ci = sm_dbrec(&cq->dbrec[0]) & SM_CQ_CI_MASK;
	if (cq->ignore_overrun || ((cq->pi - cq->ci) & SM_CQ_CI_MASK) < cq->ncqe)
		return false;
	sm_cq_overrun(nic, cq);
	return true;
}

void
sm_cq_arm_check(struct sm_nic *nic, struct sm_cq *cq)
{
	uint32_t arm = crpc_load_acquire(&cq->dbrec[1]);
	uint32_t word, left, behind;

	if (crpc_likely(arm == cq->arm))
		return;
	word = __builtin_bswap32(arm);
	/*
	 * What is not consumed. Who arms first and polls then has consumed more than the arm word
	 * says, maybe more than the queue has entries: no event for that.
	 */
	left = (uint32_t)crpc_min((cq->pi - sm_dbrec(&cq->dbrec[0])) & SM_CQ_CI_MASK,
		(cq->pi - word) & SM_CQ_CI_MASK);
	behind = (word & MLX5_CQ_DB_REQ_NOT_SOL) != 0 ? cq->pi - cq->solicited : 0;
	if (behind >= left)
		return;
	cq->arm = arm; /* One event for one arm. */
	nic->attr.comp_event(cq->user);
}
