/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "qp.h"

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
	SM_LOCKED(nic);
	s = sm_obj_new(
		nic, SM_OBJ_SRQ, sizeof(*s) + attr->nwqe * sizeof(s->back[0]), attr->pd);
	if (s == NULL)
		return ENOMEM;
	s->attr = *attr;
	*srqn = s->obj.number;
	*srq = s;
	return 0;
}

static void
limit_check(struct sm_nic *nic, struct sm_srq *s)
{
	uint16_t posted = (uint16_t)(sm_dbrec(s->attr.dbrec) - s->taken);

	if (s->attr.limit == 0 || posted >= s->attr.limit)
		return;
	s->attr.limit = 0;
	nic->attr.async_event(s->attr.user, IBV_EVENT_SRQ_LIMIT_REACHED);
}

int
sm_srq_limit(struct sm_nic *nic, struct sm_srq *srq, uint32_t limit)
{
	if (limit >= srq->attr.nwqe)
		return EINVAL;
	SM_LOCKED(nic);
	srq->attr.limit = limit;
	limit_check(nic, srq);
	return 0;
}

struct sm_srq_attr
sm_srq_query(struct sm_nic *nic, const struct sm_srq *srq)
{
	SM_LOCKED(nic);
	return srq->attr;
}

void
sm_srq_return(struct sm_srq *s, uint16_t counter)
{
	/* Unless more were announced than there can be. */
	if (crpc_likely(s->nback < s->attr.nwqe))
		s->back[s->nback++] = counter;
}

static bool
srq_take(struct sm_nic *nic, struct sm_qp *qp, struct sm_srq *s)
{
	const uint8_t *wqe;

	if (crpc_unlikely(s->nback != 0)) {
		qp->resp.rx.counter = s->back[--s->nback];
		return true;
	}
	if ((uint16_t)(sm_dbrec(s->attr.dbrec) - s->taken) == 0)
		return false;
	wqe = s->attr.buf + ((size_t)s->next << s->attr.wqe_shift);
	qp->resp.rx.counter = s->next;
	s->taken++;
	/* The link is read when the WQE is used: the program sets it when it posts. */
	s->next = (uint16_t)(sm_be16(wqe + 2) & (s->attr.nwqe - 1));
	if (crpc_unlikely(s->attr.limit != 0))
		limit_check(nic, s);
	return true;
}

bool
sm_recv_take(struct sm_nic *nic, struct sm_qp *qp)
{
	const struct sm_qp_attr *a = &qp->made;
	struct sm_responder *r = &qp->resp;

	if (a->srq != NULL)
		return srq_take(nic, qp, a->srq);
	if (r->tail == r->head && a->rq_nwqe != 0)
		r->head = (uint16_t)sm_dbrec(&qp->dbrec[0]);
	if (r->tail == r->head)
		return false;
	r->rx.counter = r->tail++;
	return true;
}

void
sm_recv_cursor(struct sm_qp *qp)
{
	const struct sm_qp_attr *a = &qp->made;
	struct sm_responder *r = &qp->resp;
	uint32_t shift = a->srq != NULL ? a->srq->attr.wqe_shift : a->rq_wqe_shift;
	uint32_t skip = a->srq != NULL ? 16 : 0; /* The link of an SRQ's WQE. */
	const uint8_t *wqe = a->srq != NULL
		? a->srq->attr.buf + ((size_t)r->rx.counter << shift)
		: a->rq_buf + ((size_t)(r->rx.counter & (a->rq_nwqe - 1)) << shift);

	r->rx.cur = (struct sm_cursor){
		.seg = wqe + skip,
		.base = wqe,
		.wrap = wqe + (1u << shift) + 1, /* A receive WQE never goes round its queue. */
		.left = ((1u << shift) - skip) / 16,
	};
}
