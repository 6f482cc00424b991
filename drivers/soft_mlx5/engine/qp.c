/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "crpc_log.h"
#include "priv.h"

_Static_assert((int)SM_QPS_ERR == (int)IBV_QPS_ERR && (int)SM_QPS_RTS == (int)IBV_QPS_RTS, "verbs");
_Static_assert((int)IBV_MTU_256 == 1 && (int)IBV_MTU_4096 == 5, "verbs");
_Static_assert((int)SM_QPT_RC == (int)IBV_QPT_RC && (int)SM_QPT_UD == (int)IBV_QPT_UD, "verbs");
_Static_assert((int)SM_EVENT_QP_ACCESS_ERR == (int)IBV_EVENT_QP_ACCESS_ERR, "verbs");
_Static_assert((int)SM_EVENT_QP_LAST_WQE_REACHED == (int)IBV_EVENT_QP_LAST_WQE_REACHED, "verbs");

/* QP numbers 0 and 1 have a meaning of their own; ours start well above. */
#define QP_FIRST 64u
#define SQ_NBB_MAX 32768u
#define RQ_NWQE_MAX 32768u

/*
 *             INIT attrs        RTR attrs        RTS attrs
 *     RESET ------------> INIT ---------> RTR ---------> RTS <----> SQD
 *       ^                                                 |          |
 *       +---------------- ERR <--- any state, or a failed WQE -------+
 */
struct transition {
	uint8_t from, to;
	uint32_t needs;
	uint32_t may;
};

#define ALT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define INIT_ATTRS (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_ATTRS                                                                                  \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_ATTRS                                                                                  \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
		IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_MAY (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT)

/* Each table ends with a transition to RESET, which none needs. */
static const struct transition rc_transitions[] = {
	{SM_QPS_RESET, SM_QPS_INIT, INIT_ATTRS, 0},
	{SM_QPS_INIT, SM_QPS_INIT, 0, INIT_ATTRS},
	{SM_QPS_INIT, SM_QPS_RTR, RTR_ATTRS, ALT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{SM_QPS_RTR, SM_QPS_RTS, RTS_ATTRS, RTS_MAY},
	{SM_QPS_RTS, SM_QPS_RTS, 0, RTS_MAY},
	{SM_QPS_RTS, SM_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{SM_QPS_SQD, SM_QPS_RTS, 0, RTS_MAY},
	{SM_QPS_SQD, SM_QPS_SQD, 0,
		RTS_MAY | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_PKEY_INDEX},
	{0},
};

static const struct transition uc_transitions[] = {
	{SM_QPS_RESET, SM_QPS_INIT, INIT_ATTRS, 0},
	{SM_QPS_INIT, SM_QPS_INIT, 0, INIT_ATTRS},
	{SM_QPS_INIT, SM_QPS_RTR,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		ALT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{SM_QPS_RTR, SM_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | ALT},
	{SM_QPS_RTS, SM_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | ALT},
	{SM_QPS_RTS, SM_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{SM_QPS_SQD, SM_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | ALT},
	{SM_QPS_SQD, SM_QPS_SQD, 0, IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | ALT},
	{0},
};

/* Between the numbers of two lives of a DCI: more than it can have under way. */
#define PSN_LIFE 0x10000u

#define UD_INIT_ATTRS (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

static const struct transition ud_transitions[] = {
	{SM_QPS_RESET, SM_QPS_INIT, UD_INIT_ATTRS, 0},
	{SM_QPS_INIT, SM_QPS_INIT, 0, UD_INIT_ATTRS},
	{SM_QPS_INIT, SM_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{SM_QPS_RTR, SM_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{SM_QPS_RTS, SM_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{SM_QPS_RTS, SM_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{SM_QPS_SQD, SM_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{SM_QPS_SQD, SM_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{0},
};

/* What a driver of mlx5 may set, and what it must: the sender has no peer to agree with. */
static const struct transition dci_transitions[] = {
	{SM_QPS_RESET, SM_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
	{SM_QPS_INIT, SM_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
	{SM_QPS_INIT, SM_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
	{SM_QPS_RTR, SM_QPS_RTS,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			IBV_QP_SQ_PSN,
		IBV_QP_MIN_RNR_TIMER},
	{SM_QPS_RTS, SM_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER},
	{0},
};

static const struct transition dct_transitions[] = {
	{SM_QPS_RESET, SM_QPS_INIT, INIT_ATTRS, 0},
	{SM_QPS_INIT, SM_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
	{0},
};

static const struct transition *
transitions_of(const struct sm_qp *qp)
{
	switch (qp->type) {
	case SM_QPT_UC:
		return uc_transitions;
	case SM_QPT_UD:
		return ud_transitions;
	case SM_QPT_DCI:
		return dci_transitions;
	case SM_QPT_DCT:
		return dct_transitions;
	default:
		return rc_transitions;
	}
}

static int
attr_check(const struct sm_qp_attr *a)
{
	if (a->type != SM_QPT_RC && a->type != SM_QPT_UC && a->type != SM_QPT_UD &&
		a->type != SM_QPT_DCI && a->type != SM_QPT_DCT) {
		crpc_err("queue pairs of type %d are not supported: RC, UC, UD and DC are",
			(int)a->type);
		return EOPNOTSUPP;
	}
	if (a->pd == NULL || a->send_cq == NULL || a->recv_cq == NULL)
		return EINVAL;
	if (a->type == SM_QPT_DCT)
		return a->srq != NULL && a->sq_nwqebb == 0 && a->rq_nwqe == 0 ? 0 : EINVAL;
	if (a->dbrec == NULL || (a->type == SM_QPT_DCI && (a->srq != NULL || a->rq_nwqe != 0)))
		return EINVAL;
	if (a->sq_nwqebb != 0 && (a->sq_buf == NULL || !crpc_is_pow2(a->sq_nwqebb) ||
					 a->sq_nwqebb > SQ_NBB_MAX))
		return EINVAL;
	if (a->srq == NULL && a->rq_nwqe != 0 &&
		(a->rq_buf == NULL || !crpc_is_pow2(a->rq_nwqe) || a->rq_nwqe > RQ_NWQE_MAX ||
			a->rq_wqe_shift < 4 || a->rq_wqe_shift > 16))
		return EINVAL;
	return 0;
}

uint32_t
sm_qp_number_first(uint32_t gen)
{
	return QP_FIRST + (gen * 4093u) % (SM_QPS_MAX - QP_FIRST);
}

/* Numbers return late, so that a packet for an earlier queue pair finds nobody. */
static uint32_t
qpn_alloc(struct sm_nic *nic)
{
	for (uint32_t n = 0; n < SM_QPS_MAX - QP_FIRST; n++) {
		uint32_t i = nic->next_qp;

		nic->next_qp = i + 1 == SM_QPS_MAX ? QP_FIRST : i + 1;
		if (nic->qps[i] == NULL)
			return i;
	}
	return 0;
}

static struct sm_uar *
uar_find(struct sm_nic *nic, uint32_t id)
{
	for (uint32_t i = 0; i < nic->nuars; i++)
		if (nic->uars[i]->id == id)
			return nic->uars[i];
	return NULL;
}

static void
qp_fill(struct sm_qp *qp, const struct sm_qp_attr *a)
{
	qp->sq = a->sq_buf;
	qp->sq_nbb = a->sq_nwqebb;
	qp->dbrec = a->dbrec;
	qp->rq = a->rq_buf;
	qp->rq_nwqe = a->srq == NULL ? a->rq_nwqe : 0;
	qp->rq_shift = a->rq_wqe_shift;
	qp->srq = a->srq;
	qp->pd = a->pd;
	qp->send_cq = a->send_cq;
	qp->recv_cq = a->recv_cq;
	qp->uidx = a->uidx;
	qp->user = a->user;
	qp->type = (uint8_t)a->type;
	qp->refusing = a->type == SM_QPT_UC || a->type == SM_QPT_DCI;
	qp->scatter_cqe = a->scatter_cqe && (a->type == SM_QPT_RC || a->type == SM_QPT_DCT);
	qp->with_av = a->type == SM_QPT_UD || a->type == SM_QPT_DCI;
	qp->wakes = a->type == SM_QPT_DCI;
	qp->dc_key = a->dc_key;
	qp->state = SM_QPS_RESET;
}

/*
 * A send queue begins with the number @p psn. That of a DCI goes on behind all that it sent in
 * earlier lives, whatever it was told. A packet of one that comes late is then taken for what came
 * before; and a packet of this one that finds the connection of an earlier one, as its CONNECT was
 * lost, for what comes too early: neither is done, and neither is acknowledged without being done.
 * (RC leaves that to the program, which connects both sides.)
 */
static void
psn_begin(struct sm_qp *qp, uint32_t psn)
{
	if (qp->type == SM_QPT_DCI)
		psn += qp->psn_tx;
	qp->psn_tx = psn & SM_PSN_MASK;
	qp->psn_acked = (qp->psn_tx - 1) & SM_PSN_MASK;
}

void
sm_qp_way(const struct sm_nic *nic, struct sm_qp *qp)
{
	qp->simple_qpn = qp->with_av || qp->resume != 0 || nic->paced || sm_fault_local(nic->fault)
		? ~0u
		: qp->qpn;
}

int
sm_qp_create(struct sm_nic *nic, const struct sm_qp_attr *a, struct sm_qp **qpp, uint32_t *qpn)
{
	int rc = attr_check(a);
	struct sm_qp *qp;
	uint32_t i;

	if (rc != 0)
		return rc;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return ENOMEM;
	if (a->sq_nwqebb != 0)
		qp->swr = calloc(a->sq_nwqebb, sizeof(*qp->swr));
	if (a->sq_nwqebb != 0 && qp->swr == NULL) {
		free(qp);
		return ENOMEM;
	}
	qp_fill(qp, a);
	sm_lock(nic);
	rc = nic->orphan ? EIO : 0;
	qp->uar = uar_find(nic, a->uar_page);
	if (rc == 0 && qp->uar == NULL && a->sq_nwqebb != 0)
		rc = EINVAL;
	i = rc == 0 ? qpn_alloc(nic) : 0;
	if (rc == 0 && i == 0)
		rc = ENOMEM;
	if (rc != 0) {
		sm_unlock(nic);
		free(qp->swr);
		free(qp);
		return rc;
	}
	qp->qpn = nic->slot << 16 | i;
	sm_qp_way(nic, qp);
	qp->peer = &nic->nowhere;
	qp->dc_life = nic->dc_lives++;
	psn_begin(qp, qp->dc_life * PSN_LIFE);
	nic->qps[i] = qp;
	if (qp->uar != NULL) {
		TAILQ_INSERT_TAIL(&qp->uar->qps, qp, uar_link);
		qp->uar->nqps++;
		sm_uar_forget(qp->uar);
	}
	qp->pd->users++;
	qp->send_cq->users++;
	qp->recv_cq->users++;
	if (qp->srq != NULL)
		qp->srq->users++;
	*qpn = qp->qpn;
	*qpp = qp;
	sm_unlock(nic);
	return 0;
}

/* Take a queue pair out of all work. */
static void
qp_quiesce(struct sm_nic *nic, struct sm_qp *qp)
{
	sm_resp_settle(nic, qp);
	sm_recv_abandon(qp);
	sm_direct_withdraw(nic, qp);
	sm_nic_flush(nic); /* Packets say of which queue pair they are. */
	if (qp->active)
		TAILQ_REMOVE(&nic->active, qp, active_link);
	if (qp->answering)
		TAILQ_REMOVE(&nic->answers, qp, answer_link);
	if (qp->failed)
		TAILQ_REMOVE(&nic->failed, qp, failed_link);
	sm_sq_unwait(nic, qp);
	qp->active = qp->answering = qp->failed = false;
	if (qp->type == SM_QPT_DCT)
		sm_dct_drop(nic, qp);
	if (qp->type == SM_QPT_DCI)
		sm_dci_leave(nic, qp);
	else
		sm_peer_leave(nic, qp);
}

/* The counters of RESET; the program clears its doorbell records after the command. */
static void
qp_reset(struct sm_nic *nic, struct sm_qp *qp)
{
	qp_quiesce(nic, qp);
	qp->sq_head = qp->sq_tx = 0;
	qp->wr_tx = qp->wr_done = 0;
	qp->rd_head = qp->rd_tail = qp->rd_off = 0;
	qp->resume = 0;
	sm_qp_way(nic, qp);
	qp->gap = false;
	qp->msn = 0;
	qp->rq_head = qp->rq_tail = 0;
	qp->ans_head = qp->ans_tail = 0;
	qp->natomics = 0;
	qp->rto_at = 0;
	qp->unacked = qp->held = 0;
	qp->nak = 0;
	qp->halted = false;
	qp->refusing = qp->type == SM_QPT_UC || qp->type == SM_QPT_DCI;
	memset(&qp->tx, 0, sizeof(qp->tx));
	memset(&qp->rx, 0, sizeof(qp->rx));
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->access = 0;
	qp->dc_life = nic->dc_lives++;
	psn_begin(qp, PSN_LIFE);
	qp->state = SM_QPS_RESET;
	if (qp->uar != NULL)
		sm_uar_forget(qp->uar);
}

int
sm_qp_destroy(struct sm_nic *nic, struct sm_qp *qp)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	qp_quiesce(nic, qp);
	sm_ledger_keep(nic, qp);
	nic->qps[qp->qpn & (SM_QPS_MAX - 1)] = NULL;
	if (qp->uar != NULL) {
		if (qp->uar->sweep == qp)
			qp->uar->sweep = TAILQ_NEXT(qp, uar_link);
		TAILQ_REMOVE(&qp->uar->qps, qp, uar_link);
		qp->uar->nqps--;
	}
	qp->pd->users--;
	qp->send_cq->users--;
	qp->recv_cq->users--;
	if (qp->srq != NULL)
		qp->srq->users--;
	sm_unlock(nic);
	free(qp->swr);
	free(qp);
	return 0;
}

static int
transition_check(const struct sm_qp *qp, const struct sm_qp_mod *m, uint8_t to)
{
	uint32_t mask = m->mask & ~(uint32_t)IBV_QP_STATE;

	if ((m->mask & IBV_QP_CUR_STATE) != 0 && m->cur_state != qp->state)
		return EINVAL;
	/* As mlx5_ib: nothing goes from RESET to ERR, and a target has no state behind RTR. */
	if (to == SM_QPS_ERR && qp->state == SM_QPS_RESET)
		return EINVAL;
	if ((to == SM_QPS_RESET || to == SM_QPS_ERR) && qp->type != SM_QPT_DCT)
		return (mask & ~(uint32_t)IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
	for (const struct transition *t = transitions_of(qp); t->to != SM_QPS_RESET; t++) {
		if (t->from == qp->state && t->to == to)
			return (mask & t->needs) == t->needs && (mask & ~(t->needs | t->may)) == 0
				? 0
				: EINVAL;
	}
	return EINVAL;
}

static int
values_check(const struct sm_nic *nic, const struct sm_qp_mod *m)
{
	if ((m->mask & IBV_QP_PORT) != 0 && m->port != 1)
		return EINVAL;
	if ((m->mask & IBV_QP_AV) != 0 && m->port > 1)
		return EINVAL;
	if ((m->mask & IBV_QP_PKEY_INDEX) != 0 && m->pkey_index != 0)
		return EINVAL;
	if ((m->mask & IBV_QP_PATH_MTU) != 0 &&
		(m->path_mtu < IBV_MTU_256 || m->path_mtu > nic->mtu))
		return EINVAL;
	if ((m->mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && m->max_rd_atomic > SM_RD_MAX)
		return EINVAL;
	if ((m->mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && m->max_dest_rd_atomic > SM_RD_MAX)
		return EINVAL;
	if (((m->mask & IBV_QP_TIMEOUT) != 0 && m->timeout > 31) ||
		((m->mask & IBV_QP_RETRY_CNT) != 0 && m->retry_cnt > 7) ||
		((m->mask & IBV_QP_RNR_RETRY) != 0 && m->rnr_retry > 7) ||
		((m->mask & IBV_QP_MIN_RNR_TIMER) != 0 && m->min_rnr_timer > 31))
		return EINVAL;
	return 0;
}

static void
attrs_take(struct sm_qp *qp, const struct sm_qp_mod *m)
{
	struct sm_qp_mod *a = &qp->attr;

#define TAKE(bit, field)                                                                           \
	do {                                                                                       \
		if ((m->mask & (bit)) != 0)                                                        \
			a->field = m->field;                                                       \
	} while (0)
	TAKE(IBV_QP_ACCESS_FLAGS, access);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_DEST_QPN, dest_qpn);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_AV, dlid);
	TAKE(IBV_QP_AV, is_global);
	TAKE(IBV_QP_AV, sgid_index);
	TAKE(IBV_QP_PORT, port);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef TAKE
	if ((m->mask & IBV_QP_AV) != 0)
		memcpy(a->dgid, m->dgid, sizeof(a->dgid));
	a->mask |= m->mask;
	qp->access = a->access;
	qp->mtu_shift = (uint8_t)(a->path_mtu != 0 ? 7 + a->path_mtu : 12);
	qp->headers = SM_WIRE_BASE + (a->is_global ? SM_WIRE_GRH : 0);
	if (qp->type != SM_QPT_DCI)
		qp->dest_qpn = a->dest_qpn & SM_PSN_MASK;
	if ((m->mask & IBV_QP_RQ_PSN) != 0)
		qp->psn_rx = m->rq_psn & SM_PSN_MASK;
	if ((m->mask & IBV_QP_SQ_PSN) != 0)
		psn_begin(qp, m->sq_psn);
	qp->retries = a->retry_cnt;
	qp->rnr_retries = a->rnr_retry;
}

static int
qp_modify(struct sm_nic *nic, struct sm_qp *qp, const struct sm_qp_mod *m)
{
	uint8_t to = (m->mask & IBV_QP_STATE) != 0 ? (uint8_t)m->state : qp->state;
	int rc = transition_check(qp, m, to);

	if (rc == 0)
		rc = values_check(nic, m);
	if (rc != 0)
		return rc;
	if (to == SM_QPS_RESET) {
		qp_reset(nic, qp);
		return 0;
	}
	if (to == SM_QPS_ERR) {
		if (qp->state != SM_QPS_ERR)
			sm_qp_fail(nic, qp, -1);
		return 0;
	}
	if (to == SM_QPS_RTR && qp->state == SM_QPS_INIT &&
		(qp->type == SM_QPT_RC || qp->type == SM_QPT_UC)) {
		struct sm_peer *peer;

		rc = sm_peer_get(nic, m, &peer);
		if (rc != 0)
			return rc;
		qp->peer = peer;
		sm_peer_join(peer, qp);
	}
	attrs_take(qp, m);
	qp->state = to;
	if (to == SM_QPS_RTS)
		sm_sq_ring(nic, qp);
	return 0;
}

int
sm_qp_modify(struct sm_nic *nic, struct sm_qp *qp, const struct sm_qp_mod *mod)
{
	int rc;

	rc = sm_lock_live(nic);
	if (rc != 0)
		return rc;
	rc = qp_modify(nic, qp, mod);
	sm_unlock(nic);
	return rc;
}

int
sm_qp_query(struct sm_nic *nic, struct sm_qp *qp, struct sm_qp_mod *out)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	*out = qp->attr;
	out->state = out->cur_state = (enum sm_qp_state)qp->state;
	out->sq_psn = qp->psn_tx;
	out->rq_psn = qp->psn_rx;
	sm_unlock(nic);
	return 0;
}

/* Everything posted to the send queue and not completed. */
static uint32_t
flush_sq(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_wc wc = {.op = SM_CQE_REQ_ERR, .syndrome = SM_SYND_FLUSH};
	uint32_t n = 0;

	for (; qp->wr_done != qp->wr_tx; qp->wr_done++, n++) {
		const struct sm_swr *w = &qp->swr[qp->wr_done & (qp->sq_nbb - 1)];

		wc.counter = w->bb;
		wc.wqe_op = w->op;
		sm_cq_push(nic, qp->send_cq, qp, &wc);
	}
	if (qp->sq_nbb == 0)
		return n;
	qp->sq_head = (uint16_t)sm_dbrec(&qp->dbrec[1]);
	if ((uint16_t)(qp->sq_head - qp->sq_tx) > qp->sq_nbb)
		qp->sq_tx = qp->sq_head; /* The record is nonsense: believe none of it. */
	while (qp->sq_tx != qp->sq_head) {
		const uint8_t *wqe = qp->sq + (qp->sq_tx & (qp->sq_nbb - 1)) * SM_WQEBB;
		uint32_t nbb = ((sm_be32(wqe + 4) & 0x3f) + 3) / 4;

		wc.counter = qp->sq_tx;
		wc.wqe_op = wqe[3];
		sm_cq_push(nic, qp->send_cq, qp, &wc);
		if (nbb == 0 || nbb > (uint16_t)(qp->sq_head - qp->sq_tx))
			nbb = 1;
		qp->sq_tx = (uint16_t)(qp->sq_tx + nbb);
		n++;
	}
	return n;
}

static uint32_t
flush_rq(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_wc wc = {.op = SM_CQE_RESP_ERR, .syndrome = SM_SYND_FLUSH};
	uint32_t n = 0;

	if (qp->rq_nwqe == 0)
		return 0;
	qp->rq_head = (uint16_t)sm_dbrec(&qp->dbrec[0]);
	if ((uint16_t)(qp->rq_head - qp->rq_tail) > qp->rq_nwqe)
		qp->rq_tail = qp->rq_head;
	for (; qp->rq_tail != qp->rq_head; qp->rq_tail++, n++) {
		wc.counter = qp->rq_tail;
		sm_cq_push(nic, qp->recv_cq, qp, &wc);
	}
	return n;
}

uint32_t
sm_qp_flush(struct sm_nic *nic, struct sm_qp *qp)
{
	return flush_sq(nic, qp) + flush_rq(nic, qp);
}

void
sm_qp_fail(struct sm_nic *nic, struct sm_qp *qp, int event)
{
	struct sm_wc wc = {.op = SM_CQE_RESP_ERR, .syndrome = SM_SYND_FLUSH};
	uint8_t was = qp->state;

	if (was == SM_QPS_ERR)
		return;
	qp->state = SM_QPS_ERR;
	sm_direct_withdraw(nic, qp);
	if (qp->type == SM_QPT_DCT)
		sm_dct_drop(nic, qp);
	qp->halted = true;
	qp->tx.started = false;
	sm_sq_unwait(nic, qp);
	if (qp->active)
		TAILQ_REMOVE(&nic->active, qp, active_link);
	qp->active = false;
	if (event >= 0)
		nic->async_event(qp->user, (enum sm_async_type)event);
	if (qp->rx.open && qp->rx.pkt == SM_PKT_SEND) { /* It holds a WQE. */
		wc.counter = qp->rx.counter;
		sm_cq_push(nic, qp->recv_cq, qp, &wc);
	}
	qp->rx.open = false;
	if (was != SM_QPS_RESET)
		sm_qp_flush(nic, qp);
	if (qp->srq != NULL)
		nic->async_event(qp->user, SM_EVENT_QP_LAST_WQE_REACHED);
	qp->failed = true;
	TAILQ_INSERT_TAIL(&nic->failed, qp, failed_link);
}

static bool
is_connected(const struct sm_qp *qp)
{
	return qp != NULL && qp->state >= SM_QPS_RTR && qp->state != SM_QPS_ERR;
}

int
sm_nic_break(struct sm_nic *nic, uint32_t which)
{
	uint32_t i, n = 0;
	int rc = sm_lock_live(nic);

	if (rc != 0)
		return rc;
	for (i = 0; i < SM_QPS_MAX; i++)
		n += is_connected(nic->qps[i]);
	which = n != 0 ? which % n : 0;
	for (i = 0; i < SM_QPS_MAX; i++)
		if (is_connected(nic->qps[i]) && which-- == 0)
			break;
	if (i != SM_QPS_MAX)
		sm_qp_fail(nic, nic->qps[i], SM_EVENT_QP_FATAL);
	sm_unlock(nic);
	return i != SM_QPS_MAX ? 0 : ENOENT;
}
