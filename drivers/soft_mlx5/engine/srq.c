/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "priv.h"

#define WQE_SHIFT_MAX 16u

_Static_assert(offsetof(struct mlx5_wqe_srq_next_seg, next_wqe_index) == 2, "PRM");
_Static_assert(sizeof(struct mlx5_wqe_srq_next_seg) == 16, "PRM");

int
sm_srq_create(
	struct sm_nic *nic, const struct sm_srq_attr *attr, struct sm_srq **srq, uint32_t *srqn)
{
	struct sm_srq *s;

	if (attr->pd == NULL || attr->buf == NULL || attr->dbrec == NULL ||
		!crpc_is_pow2(attr->nwqe) || attr->nwqe > 32768 || attr->wqe_shift < 5 ||
		attr->wqe_shift > WQE_SHIFT_MAX)
		return EINVAL;
	s = calloc(1, sizeof(*s) + attr->nwqe * sizeof(s->back[0]));
	if (s == NULL)
		return ENOMEM;
	s->pd = attr->pd;
	s->buf = attr->buf;
	s->dbrec = attr->dbrec;
	s->nwqe = attr->nwqe;
	s->wqe_shift = attr->wqe_shift;
	s->max_sge = attr->max_sge;
	s->limit = attr->limit;
	s->user = attr->user;
	if (sm_lock_live(nic) != 0) {
		free(s);
		return EIO;
	}
	s->pd->users++;
	s->srqn = nic->next_srqn++ & 0xffffff;
	TAILQ_INSERT_TAIL(&nic->srqs, s, link);
	*srqn = s->srqn;
	*srq = s;
	sm_unlock(nic);
	return 0;
}

static void
limit_check(struct sm_nic *nic, struct sm_srq *s)
{
	uint16_t posted = (uint16_t)(sm_dbrec(&s->dbrec[0]) - s->taken);

	if (s->limit == 0 || posted >= s->limit)
		return;
	s->limit = 0;
	nic->async_event(s->user, SM_EVENT_SRQ_LIMIT_REACHED);
}

int
sm_srq_limit(struct sm_nic *nic, struct sm_srq *srq, uint32_t limit)
{
	if (limit >= srq->nwqe)
		return EINVAL;
	if (sm_lock_live(nic) != 0)
		return EIO;
	srq->limit = limit;
	limit_check(nic, srq);
	sm_unlock(nic);
	return 0;
}

int
sm_srq_destroy(struct sm_nic *nic, struct sm_srq *srq)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	if (srq->users != 0) {
		sm_unlock(nic);
		return EBUSY;
	}
	srq->pd->users--;
	TAILQ_REMOVE(&nic->srqs, srq, link);
	sm_unlock(nic);
	free(srq);
	return 0;
}

void
sm_srq_return(struct sm_srq *s, uint16_t counter)
{
	if (crpc_likely(s->nback < s->nwqe)) /* Unless more were announced than there can be. */
		s->back[s->nback++] = counter;
}

static bool
srq_take(struct sm_nic *nic, struct sm_qp *qp, struct sm_srq *s)
{
	const uint8_t *wqe;

	if (crpc_unlikely(s->nback != 0)) {
		qp->rx.counter = s->back[--s->nback];
		return true;
	}
	if ((uint16_t)(sm_dbrec(&s->dbrec[0]) - s->taken) == 0)
		return false;
	wqe = s->buf + ((size_t)s->next << s->wqe_shift);
	qp->rx.counter = s->next;
	s->taken++;
	/* The link is read when the WQE is used: the program sets it when it posts. */
	s->next = (uint16_t)(sm_be16(wqe + 2) & (s->nwqe - 1));
	if (crpc_unlikely(s->limit != 0))
		limit_check(nic, s);
	return true;
}

bool
sm_recv_more(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->srq != NULL)
		return srq_take(nic, qp, qp->srq);
	if (qp->rq_nwqe == 0)
		return false;
	qp->rq_head = (uint16_t)sm_dbrec(&qp->dbrec[0]);
	if (qp->rq_tail == qp->rq_head)
		return false;
	qp->rx.counter = qp->rq_tail++;
	return true;
}

void
sm_recv_cursor(struct sm_qp *qp)
{
	uint32_t shift = qp->srq != NULL ? qp->srq->wqe_shift : qp->rq_shift;
	uint32_t skip = qp->srq != NULL ? 16 : 0; /* The link of an SRQ's WQE. */
	const uint8_t *wqe = qp->srq != NULL
		? qp->srq->buf + ((size_t)qp->rx.counter << shift)
		: qp->rq + ((size_t)(qp->rx.counter & (qp->rq_nwqe - 1)) << shift);

	qp->rx.cur = (struct sm_cursor){
		.seg = wqe + skip,
		.base = wqe,
		.wrap = wqe + (1u << shift) + 1, /* A receive WQE never goes round its queue. */
		.left = ((1u << shift) - skip) / 16,
	};
}
