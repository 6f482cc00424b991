/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "cq.h"
#include "crpc_log.h"
#include "fault.h"
#include "roce.h"

_Static_assert((int)SM_QPS_ERR == (int)IBV_QPS_ERR && (int)SM_QPS_RTS == (int)IBV_QPS_RTS, "verbs");
_Static_assert((int)IBV_MTU_256 == 1 && (int)IBV_MTU_4096 == 5, "verbs");
_Static_assert((int)SM_QPT_RC == (int)IBV_QPT_RC && (int)SM_QPT_UD == (int)IBV_QPT_UD, "verbs");
_Static_assert((int)SM_EVENT_QP_ACCESS_ERR == (int)IBV_EVENT_QP_ACCESS_ERR, "verbs");
_Static_assert((int)SM_EVENT_QP_LAST_WQE_REACHED == (int)IBV_EVENT_QP_LAST_WQE_REACHED, "verbs");

/* QP numbers 0 and 1 have a meaning of their own; ours start well above. */
#define QP_FIRST 64u
#define SQ_NBB_MAX 32768u
#define RQ_NWQE_MAX 32768u

/* Between the numbers of two lives of a DCI: more than it can have under way. */
#define PSN_LIFE 0x10000u

static const struct sm_qp_kind kinds[] = {
	{SM_QPT_RC, SM_RC, "RC", SM_ROCE_RC, SM_SENDS_TO_PEER, SM_TAKES_IN_ORDER, true},
	{SM_QPT_UC, SM_UC, "UC", SM_ROCE_UC, SM_SENDS_TO_PEER, SM_TAKES_NEWEST, false},
	{SM_QPT_UD, SM_UD, "UD", SM_ROCE_UD, SM_SENDS_DATAGRAMS, SM_TAKES_DATAGRAMS, false},
	{SM_QPT_DCI, SM_DCI, "DCI", SM_ROCE_DC, SM_SENDS_TO_TARGETS, SM_TAKES_NOTHING, true},
	{SM_QPT_DCT, SM_DCT, "DCT", SM_ROCE_DC, SM_SENDS_NOTHING, SM_TAKES_IN_ORDER, true},
};

/*
 *             INIT attrs        RTR attrs        RTS attrs
 *     RESET ------------> INIT ---------> RTR ---------> RTS <----> SQD
 *       ^                                                 |          |
 *       +---------------- ERR <--- any state, or a failed WQE -------+
 */
struct transition {
	uint32_t types; /* Of enum sm_qp_bit. */
	uint8_t from, to;
	uint32_t needs;
	uint32_t may;
};

#define ALT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define PORT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RETRIES                                                                                    \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define RC_MAY (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT)
#define UC_MAY (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | ALT)
#define UD_MAY (IBV_QP_CUR_STATE | IBV_QP_QKEY)

/* Of DC it is what a driver of mlx5 may set, and must: a DCI has no peer to agree with. */
static const struct transition transitions[] = {
	{SM_RC | SM_UC | SM_DCT, SM_QPS_RESET, SM_QPS_INIT, PORT | IBV_QP_ACCESS_FLAGS, 0},
	{SM_UD, SM_QPS_RESET, SM_QPS_INIT, PORT | IBV_QP_QKEY, 0},
	{SM_DCI, SM_QPS_RESET, SM_QPS_INIT, PORT, 0},
	{SM_RC | SM_UC, SM_QPS_INIT, SM_QPS_INIT, 0, PORT | IBV_QP_ACCESS_FLAGS},
	{SM_UD, SM_QPS_INIT, SM_QPS_INIT, 0, PORT | IBV_QP_QKEY},
	{SM_DCI, SM_QPS_INIT, SM_QPS_INIT, 0, PORT},
	{SM_RC, SM_QPS_INIT, SM_QPS_RTR, PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		ALT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{SM_UC, SM_QPS_INIT, SM_QPS_RTR, PATH, ALT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{SM_UD, SM_QPS_INIT, SM_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{SM_DCI, SM_QPS_INIT, SM_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
	{SM_DCT, SM_QPS_INIT, SM_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
	{SM_RC, SM_QPS_RTR, SM_QPS_RTS, RETRIES | IBV_QP_SQ_PSN, RC_MAY},
	{SM_UC, SM_QPS_RTR, SM_QPS_RTS, IBV_QP_SQ_PSN, UC_MAY},
	{SM_UD, SM_QPS_RTR, SM_QPS_RTS, IBV_QP_SQ_PSN, UD_MAY},
	{SM_DCI, SM_QPS_RTR, SM_QPS_RTS, RETRIES | IBV_QP_SQ_PSN, IBV_QP_MIN_RNR_TIMER},
	{SM_RC, SM_QPS_RTS, SM_QPS_RTS, 0, RC_MAY},
	{SM_UC, SM_QPS_RTS, SM_QPS_RTS, 0, UC_MAY},
	{SM_UD, SM_QPS_RTS, SM_QPS_RTS, 0, UD_MAY},
	{SM_DCI, SM_QPS_RTS, SM_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER},
	{SM_RC | SM_UC | SM_UD, SM_QPS_RTS, SM_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{SM_RC, SM_QPS_SQD, SM_QPS_RTS, 0, RC_MAY},
	{SM_UC, SM_QPS_SQD, SM_QPS_RTS, 0, UC_MAY},
	{SM_UD, SM_QPS_SQD, SM_QPS_RTS, 0, UD_MAY},
	{SM_RC, SM_QPS_SQD, SM_QPS_SQD, 0,
		RC_MAY | RETRIES | PORT | IBV_QP_AV | IBV_QP_MAX_DEST_RD_ATOMIC},
	{SM_UC, SM_QPS_SQD, SM_QPS_SQD, 0,
		IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | ALT},
	{SM_UD, SM_QPS_SQD, SM_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
};

static const struct sm_qp_kind *
kind_of(enum sm_qp_type type)
{
	for (uint32_t i = 0; i < CRPC_DIM(kinds); i++)
		if (kinds[i].type == type)
			return &kinds[i];
	crpc_err("queue pairs of type %d are not supported: RC, UC, UD and DC are", (int)type);
	return NULL;
}

static int
attr_check(const struct sm_qp_attr *a, const struct sm_qp_kind *kind)
{
	if (kind == NULL)
		return EOPNOTSUPP;
	if (a->pd == NULL || a->send_cq == NULL || a->recv_cq == NULL)
		return EINVAL;
	if (kind->sends == SM_SENDS_NOTHING)
		return a->srq != NULL && a->sq_nwqebb == 0 && a->rq_nwqe == 0 ? 0 : EINVAL;
	if (a->dbrec == NULL ||
		(kind->takes == SM_TAKES_NOTHING && (a->srq != NULL || a->rq_nwqe != 0)))
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

/* Numbers return late, so that a packet for an earlier queue pair finds none. */
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

static void
qp_fill(struct sm_qp *qp, const struct sm_qp_kind *kind, const struct sm_qp_attr *a)
{
	qp->kind = kind;
	qp->made = *a;
	if (a->srq != NULL)
		qp->made.rq_nwqe = 0;
	qp->made.scatter_cqe &= kind->takes == SM_TAKES_IN_ORDER;
	qp->dbrec = a->dbrec;
	qp->resp.refusing = kind->takes != SM_TAKES_IN_ORDER;
	qp->req.wakes = kind->sends == SM_SENDS_TO_TARGETS;
	qp->dc.key = a->dc_key;
	qp->state = SM_QPS_RESET;
}

/*
 * A send queue begins with the number @p psn. That of a DCI goes on behind all that it sent in
 * earlier lives, whatever the command said. A late packet of one is then taken for what came
 * before; and a packet of this one that finds the connection of an earlier one, as its CONNECT was
 * lost, for what comes too early: neither is done, and neither is acknowledged without being done.
 * (RC leaves that to the program, which connects both sides.)
 */
static void
psn_begin(struct sm_qp *qp, uint32_t psn)
{
	if (qp->kind->sends == SM_SENDS_TO_TARGETS)
		psn += qp->req.psn;
	qp->req.psn = psn & SM_PSN_MASK;
	qp->req.acked = (qp->req.psn - 1) & SM_PSN_MASK;
}

void
sm_qp_way(const struct sm_nic *nic, struct sm_qp *qp)
{
	qp->req.simple_qpn =
		sm_qp_has_av(qp) || qp->req.resume != 0 || nic->paced || sm_fault_local(nic->fault)
		? ~0u
		: qp->qpn;
}

/* It is one user of its objects, or (@more -1) none any more. */
static void
users_count(struct sm_qp *qp, int more)
{
	qp->made.pd->obj.users += (uint32_t)more;
	qp->made.send_cq->obj.users += (uint32_t)more;
	qp->made.recv_cq->obj.users += (uint32_t)more;
	if (qp->made.srq != NULL)
		qp->made.srq->obj.users += (uint32_t)more;
}

int
sm_qp_create(struct sm_nic *nic, const struct sm_qp_attr *a, struct sm_qp **qpp, uint32_t *qpn)
{
	const struct sm_qp_kind *kind = kind_of(a->type);
	int rc = attr_check(a, kind);
	struct sm_qp *qp;
	uint32_t i;

	if (rc != 0)
		return rc;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return ENOMEM;
	rc = sm_lock_live(nic);
	if (rc != 0) {
		free(qp);
		return rc;
	}
	qp_fill(qp, kind, a);
	if (a->sq_nwqebb != 0)
		qp->req.swr = calloc(a->sq_nwqebb, sizeof(*qp->req.swr));
	i = qpn_alloc(nic);
	if (i == 0 || (a->sq_nwqebb != 0 && qp->req.swr == NULL))
		rc = ENOMEM;
	else if (!sm_uar_join(nic, qp, a->uar_page) && a->sq_nwqebb != 0)
		rc = EINVAL;
	if (rc != 0) {
		sm_unlock(nic);
		free(qp->req.swr);
		free(qp);
		return rc;
	}
	qp->qpn = nic->slot << 16 | i;
	sm_qp_way(nic, qp);
	qp->peer = &nic->nowhere;
	qp->dc.life = nic->dc_lives++;
	psn_begin(qp, qp->dc.life * PSN_LIFE);
	nic->qps[i] = qp;
	users_count(qp, 1);
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
	for (uint32_t i = 0; i < SM_TURNS; i++)
		sm_turn_del(nic, qp, (enum sm_turn)i);
	sm_dct_drop(nic, qp);
	if (qp->kind->sends == SM_SENDS_TO_TARGETS)
		sm_dci_leave(nic, qp);
	else
		sm_peer_leave(nic, qp);
}

/* The counters of RESET; the program clears its doorbell records after the command. */
static void
qp_reset(struct sm_nic *nic, struct sm_qp *qp)
{
	qp_quiesce(nic, qp);
	qp->req = (struct sm_requester){
		.swr = qp->req.swr,
		.psn = qp->req.psn, /* A DCI goes on from there. */
		.epoch = qp->req.epoch,
		.wakes = qp->kind->sends == SM_SENDS_TO_TARGETS,
	};
	qp->resp = (struct sm_responder){.refusing = qp->kind->takes != SM_TAKES_IN_ORDER};
	sm_qp_way(nic, qp);
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->dc.life = nic->dc_lives++;
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
	sm_uar_leave(qp);
	users_count(qp, -1);
	sm_unlock(nic);
	free(qp->req.swr);
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
	if ((to == SM_QPS_RESET || to == SM_QPS_ERR) && qp->kind->sends != SM_SENDS_NOTHING)
		return (mask & ~(uint32_t)IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
	for (uint32_t i = 0; i < CRPC_DIM(transitions); i++) {
		const struct transition *t = &transitions[i];

		if ((t->types & qp->kind->bit) != 0 && t->from == qp->state &&
			t->to == to)
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
	qp->resp.access = a->access;
	qp->mtu_shift = (uint8_t)(a->path_mtu != 0 ? 7 + a->path_mtu : 12);
	qp->headers = SM_WIRE_BASE + (a->is_global ? SM_WIRE_GRH : 0);
	if (qp->kind->sends != SM_SENDS_TO_TARGETS)
		qp->dest_qpn = a->dest_qpn & SM_PSN_MASK;
	if ((m->mask & IBV_QP_RQ_PSN) != 0)
		qp->resp.psn = m->rq_psn & SM_PSN_MASK;
	if ((m->mask & IBV_QP_SQ_PSN) != 0)
		psn_begin(qp, m->sq_psn);
	qp->req.retries = a->retry_cnt;
	qp->req.rnr_retries = a->rnr_retry;
}

static int
qp_modify(struct sm_nic *nic, struct sm_qp *qp, const struct sm_qp_mod *m)
{
	uint8_t to = (m->mask & IBV_QP_STATE) != 0 ? m->state : qp->state;
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
	if (to == SM_QPS_RTR && qp->kind->sends == SM_SENDS_TO_PEER) {
		struct sm_peer *peer;

		rc = sm_peer_get(nic, m, &peer);
		if (rc != 0)
			return rc;
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
	out->state = out->cur_state = qp->state;
	out->sq_psn = qp->req.psn;
	out->rq_psn = qp->resp.psn;
	sm_unlock(nic);
	return 0;
}

/* Everything posted to the send queue and not completed. */
static uint32_t
flush_sq(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_wc wc = {.op = SM_CQE_REQ_ERR, .syndrome = SM_SYND_FLUSH};
	uint32_t n = 0;

	for (; qp->req.wr_done != qp->req.wr_tx; qp->req.wr_done++, n++) {
		const struct sm_swr *w = &qp->req.swr[qp->req.wr_done & (qp->made.sq_nwqebb - 1)];

		wc.counter = w->bb;
		wc.wqe_op = w->op;
		sm_cq_push(nic, qp->made.send_cq, qp, &wc);
	}
	if (qp->made.sq_nwqebb == 0)
		return n;
	qp->req.head = (uint16_t)sm_dbrec(&qp->dbrec[1]);
	if ((uint16_t)(qp->req.head - qp->req.taken) > qp->made.sq_nwqebb)
		qp->req.taken = qp->req.head; /* The record is nonsense: believe none of it. */
	while (qp->req.taken != qp->req.head) {
		const uint8_t *wqe =
			qp->made.sq_buf + (qp->req.taken & (qp->made.sq_nwqebb - 1)) * SM_WQEBB;
		uint32_t nbb = ((sm_be32(wqe + 4) & 0x3f) + 3) / 4;

		wc.counter = qp->req.taken;
		wc.wqe_op = wqe[3];
		sm_cq_push(nic, qp->made.send_cq, qp, &wc);
		if (nbb == 0 || nbb > (uint16_t)(qp->req.head - qp->req.taken))
			nbb = 1;
		qp->req.taken = (uint16_t)(qp->req.taken + nbb);
		n++;
	}
	return n;
}

static uint32_t
flush_rq(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_wc wc = {.op = SM_CQE_RESP_ERR, .syndrome = SM_SYND_FLUSH};
	uint32_t n = 0;

	if (qp->made.rq_nwqe == 0)
		return 0;
	qp->resp.head = (uint16_t)sm_dbrec(&qp->dbrec[0]);
	if ((uint16_t)(qp->resp.head - qp->resp.tail) > qp->made.rq_nwqe)
		qp->resp.tail = qp->resp.head;
	for (; qp->resp.tail != qp->resp.head; qp->resp.tail++, n++) {
		wc.counter = qp->resp.tail;
		sm_cq_push(nic, qp->made.recv_cq, qp, &wc);
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
	sm_dct_drop(nic, qp);
	qp->req.halted = true;
	qp->req.tx.started = false;
	sm_turn_del(nic, qp, SM_TURN_WAIT);
	sm_turn_del(nic, qp, SM_TURN_SEND);
	if (event >= 0)
		nic->async_event(qp->made.user, (enum sm_async_type)event);
	if (qp->resp.rx.open && qp->resp.rx.pkt == SM_PKT_SEND) { /* It holds a WQE. */
		wc.counter = qp->resp.rx.counter;
		sm_cq_push(nic, qp->made.recv_cq, qp, &wc);
	}
	qp->resp.rx.open = false;
	if (was != SM_QPS_RESET)
		sm_qp_flush(nic, qp);
	if (qp->made.srq != NULL)
		nic->async_event(qp->made.user, SM_EVENT_QP_LAST_WQE_REACHED);
	sm_turn_add(nic, qp, SM_TURN_FLUSH);
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
