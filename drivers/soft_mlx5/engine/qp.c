/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "cq.h"
#include "fault.h"
#include "roce.h"

_Static_assert((int)IBV_MTU_256 == 1 && (int)IBV_MTU_4096 == 5, "verbs");

/* QP numbers 0 and 1 have a meaning of their own; ours start well above. */
#define QP_FIRST 64u
#define SQ_NBB_MAX 32768u
#define RQ_NWQE_MAX 32768u

/* Between the numbers of two lives of a DCI: more than it can have under way. */
#define PSN_LIFE 0x10000u

/* Attributes that types of queue pairs have. */
#define ALT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define PORT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RETRIES                                                                                    \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define DRAINS (IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)
#define UD_HAS (DRAINS | PORT | IBV_QP_QKEY | IBV_QP_SQ_PSN)
#define UC_HAS (DRAINS | PORT | IBV_QP_ACCESS_FLAGS | PATH | ALT | IBV_QP_SQ_PSN)
#define RC_HAS (UC_HAS | RETRIES | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
/* Of DC it is what a driver of mlx5 may set, and must: a DCI has no peer to agree with. */
#define DC_HAS (PORT | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER)

static const struct sm_qp_kind kinds[] = {
	{SM_RC, "RC", SM_ROCE_RC, SM_SENDS_TO_PEER, SM_TAKES_IN_ORDER, true, RC_HAS},
	{SM_UC, "UC", SM_ROCE_UC, SM_SENDS_TO_PEER, SM_TAKES_NEWEST, false, UC_HAS},
	{SM_UD, "UD", SM_ROCE_UD, SM_SENDS_DATAGRAMS, SM_TAKES_DATAGRAMS, false, UD_HAS},
	{SM_DCI, "DCI", SM_ROCE_DC, SM_SENDS_TO_TARGETS, SM_TAKES_NOTHING, true,
		DC_HAS | RETRIES | IBV_QP_SQ_PSN},
	{SM_DCT, "DCT", SM_ROCE_DC, SM_SENDS_NOTHING, SM_TAKES_IN_ORDER, true,
		DC_HAS | IBV_QP_ACCESS_FLAGS},
};

/*
 *             INIT attrs        RTR attrs        RTS attrs
 *     RESET ------------> INIT ---------> RTR ---------> RTS <----> SQD
 *       ^                                                 |          |
 *       +---------------- ERR <--- any state, or a failed WQE -------+
 */
struct transition {
	uint32_t types; /* Of enum sm_qp_type. */
	uint8_t from, to;
	uint32_t needs; /* Of what the type has. */
	uint32_t may;
};

#define VERBS (SM_RC | SM_UC | SM_UD)
#define BEGIN (PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY)
#define MAY                                                                                        \
	(IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT | IBV_QP_QKEY)

static const struct transition transitions[] = {
	{VERBS | SM_DCI | SM_DCT, IBV_QPS_RESET, IBV_QPS_INIT, BEGIN, 0},
	{VERBS | SM_DCI, IBV_QPS_INIT, IBV_QPS_INIT, 0, BEGIN},
	{VERBS, IBV_QPS_INIT, IBV_QPS_RTR, PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		ALT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{SM_DCI, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
	{SM_DCT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
	{VERBS | SM_DCI, IBV_QPS_RTR, IBV_QPS_RTS, RETRIES | IBV_QP_SQ_PSN, MAY},
	{VERBS | SM_DCI, IBV_QPS_RTS, IBV_QPS_RTS, 0, MAY},
	{VERBS, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{VERBS, IBV_QPS_SQD, IBV_QPS_RTS, 0, MAY},
	{SM_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
		MAY | RETRIES | PORT | IBV_QP_AV | IBV_QP_MAX_DEST_RD_ATOMIC},
	{SM_UC | SM_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0,
		IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | ALT | IBV_QP_QKEY},
};

static const struct sm_qp_kind *
kind_of(enum sm_qp_type type)
{
	for (uint32_t i = 0; i < CRPC_DIM(kinds); i++)
		if (kinds[i].type == type)
			return &kinds[i];
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
qp_fill(struct sm_nic *nic, struct sm_qp *qp, const struct sm_qp_kind *kind,
	const struct sm_qp_attr *a)
{
	qp->kind = kind;
	qp->peer = &nic->nowhere;
	qp->made = *a;
	if (a->srq != NULL)
		qp->made.rq_nwqe = 0;
	qp->made.scatter_cqe &= kind->takes == SM_TAKES_IN_ORDER;
	qp->dbrec = a->dbrec;
	qp->dc.key = a->dc_key;
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
	qp->req.simple_qpn = sm_qp_has_av(qp) || qp->req.resume != 0 || nic->udp != NULL ||
			qp->from != qp->qpn || sm_fault_local(nic->fault)
		? ~0u
		: qp->qpn;
}

/* The counters of RESET; the program clears its doorbell records after the command. */
static void
qp_clear(struct sm_nic *nic, struct sm_qp *qp)
{
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
	qp->dc.nbad = 0;
	qp->state = IBV_QPS_RESET;
}

/* It is one user of its queues, or (@more -1) none any more. */
static void
users_count(struct sm_qp *qp, int more)
{
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
	SM_LOCKED(nic);
	qp = sm_obj_new(nic, SM_OBJ_QP, sizeof(*qp), a->pd);
	if (qp == NULL)
		return ENOMEM;
	qp_fill(nic, qp, kind, a);
	users_count(qp, 1);
	if (a->sq_nwqebb != 0)
		qp->req.swr = calloc(a->sq_nwqebb, sizeof(*qp->req.swr));
	i = qpn_alloc(nic);
	if (i == 0 || (a->sq_nwqebb != 0 && qp->req.swr == NULL))
		rc = ENOMEM;
	else if (!sm_uar_join(nic, qp, a->uar_page) && a->sq_nwqebb != 0)
		rc = EINVAL;
	if (rc != 0) {
		sm_obj_free(nic, &qp->obj);
		return rc;
	}
	qp->qpn = nic->slot << 16 | i;
	qp->from = qp->qpn;
	qp_clear(nic, qp);
	psn_begin(qp, qp->dc.life * PSN_LIFE);
	nic->qps[i] = qp;
	*qpn = qp->qpn;
	*qpp = qp;
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

static void
qp_reset(struct sm_nic *nic, struct sm_qp *qp)
{
	qp_quiesce(nic, qp);
	qp_clear(nic, qp);
	psn_begin(qp, PSN_LIFE);
	if (qp->uar != NULL)
		sm_uar_forget(qp->uar);
}

void
sm_qp_forget(struct sm_nic *nic, struct sm_qp *qp)
{
	qp_quiesce(nic, qp);
	sm_ledger_keep(nic, qp);
	nic->qps[qp->qpn & (SM_QPS_MAX - 1)] = NULL;
	sm_uar_leave(qp);
	users_count(qp, -1);
	free(qp->req.swr);
}

static int
transition_check(const struct sm_qp *qp, const struct ib_uverbs_modify_qp *m, uint8_t to)
{
	/* Of path migration there is one state, which the kernel lets be set at any time. */
	uint32_t mask = m->attr_mask & ~(uint32_t)(IBV_QP_STATE | IBV_QP_PATH_MIG_STATE);

	if ((m->attr_mask & IBV_QP_CUR_STATE) != 0 && m->cur_qp_state != qp->state)
		return EINVAL;
	/* As mlx5_ib: nothing goes from RESET to ERR, and a target has no state behind RTR. */
	if (to == IBV_QPS_ERR && qp->state == IBV_QPS_RESET)
		return EINVAL;
	if ((to == IBV_QPS_RESET || to == IBV_QPS_ERR) && qp->kind->sends != SM_SENDS_NOTHING)
		return (mask & ~(uint32_t)IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
	for (uint32_t i = 0; i < CRPC_DIM(transitions); i++) {
		const struct transition *t = &transitions[i];
		uint32_t has = qp->kind->attrs, needs = t->needs & has;

		if ((t->types & qp->kind->type) != 0 && t->from == qp->state && t->to == to)
			return (needs & ~mask) == 0 && (mask & ~(needs | (t->may & has))) == 0
				? 0
				: EINVAL;
	}
	return EINVAL;
}

static int
values_check(const struct sm_nic *nic, const struct ib_uverbs_modify_qp *m)
{
	const struct {
		uint32_t bit, value, least, most;
	} ranges[] = {
		{IBV_QP_PORT, m->port_num, 1, 1},
		{IBV_QP_AV, m->port_num, 0, 1},
		{IBV_QP_PKEY_INDEX, m->pkey_index, 0, nic->attr.pkeys - 1},
		{IBV_QP_PATH_MTU, m->path_mtu, IBV_MTU_256, nic->attr.mtu},
		{IBV_QP_MAX_QP_RD_ATOMIC, m->max_rd_atomic, 0, SM_RD_MAX},
		{IBV_QP_MAX_DEST_RD_ATOMIC, m->max_dest_rd_atomic, 0, SM_RD_MAX},
		{IBV_QP_TIMEOUT, m->timeout, 0, 31},
		{IBV_QP_RETRY_CNT, m->retry_cnt, 0, 7},
		{IBV_QP_RNR_RETRY, m->rnr_retry, 0, 7},
		{IBV_QP_MIN_RNR_TIMER, m->min_rnr_timer, 0, 31},
	};

	for (uint32_t i = 0; i < CRPC_DIM(ranges); i++)
		if ((m->attr_mask & ranges[i].bit) != 0 &&
			(ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most))
			return EINVAL;
	/* As the kernel. */
	return (m->attr_mask & IBV_QP_AV) != 0 && nic->attr.grh_required && !m->dest.is_global
		? EINVAL
		: 0;
}

static void
attrs_take(const struct sm_nic *nic, struct sm_qp *qp, const struct ib_uverbs_modify_qp *m)
{
	struct ib_uverbs_modify_qp *a = &qp->attr;
	uint32_t kind;

#define TAKE(bit, field)                                                                           \
	do {                                                                                       \
		if ((m->attr_mask & (bit)) != 0)                                                   \
			a->field = m->field;                                                       \
	} while (0)
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_AV, dest);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef TAKE
	/* As with mlx5_ib, which gives the card a logarithm: 0 is 1. */
	if (qp->kind->sends == SM_SENDS_TO_TARGETS)
		a->max_rd_atomic = (uint8_t)crpc_max(a->max_rd_atomic, 1);
	kind = a->dest.is_global ? sm_gid_kind(nic, a->dest.sgid_index) : 0;
	qp->mtu_shift = (uint8_t)(a->path_mtu != 0 ? 7 + a->path_mtu : 12);
	qp->headers = SM_WIRE_BASE + (a->dest.is_global ? SM_WIRE_GRH : 0);
	if (qp->kind->sends != SM_SENDS_TO_TARGETS) {
		qp->dest_qpn = a->dest_qp_num & SM_PSN_MASK;
		sm_qp_names(nic, qp, kind);
		sm_qp_way(nic, qp); /* Its short form has no room for a kind. */
	}
	if ((m->attr_mask & IBV_QP_RQ_PSN) != 0)
		qp->resp.psn = m->rq_psn & SM_PSN_MASK;
	if ((m->attr_mask & IBV_QP_SQ_PSN) != 0)
		psn_begin(qp, m->sq_psn);
	qp->req.retries = a->retry_cnt;
	qp->req.rnr_retries = a->rnr_retry;
}

int
sm_qp_modify(struct sm_nic *nic, struct sm_qp *qp, const struct ib_uverbs_modify_qp *m)
{
	uint8_t to;
	int rc;

	SM_LOCKED(nic);
	to = (m->attr_mask & IBV_QP_STATE) != 0 ? m->qp_state : qp->state;
	rc = transition_check(qp, m, to);
	if (rc == 0)
		rc = values_check(nic, m);
	if (rc != 0)
		return rc;
	if (to == IBV_QPS_RESET) {
		qp_reset(nic, qp);
		return 0;
	}
	if (to == IBV_QPS_ERR) {
		if (qp->state != IBV_QPS_ERR)
			sm_qp_fail(nic, qp, -1);
		return 0;
	}
	if (to == IBV_QPS_RTR && qp->kind->sends == SM_SENDS_TO_PEER) {
		struct sm_peer *peer;

		rc = sm_peer_get(nic, m, &peer);
		if (rc != 0)
			return rc;
		sm_peer_join(peer, qp);
	}
	attrs_take(nic, qp, m);
	qp->state = to;
	if (to == IBV_QPS_RTS)
		sm_sq_ring(nic, qp);
	return 0;
}

void
sm_qp_query(struct sm_nic *nic, struct sm_qp *qp, struct ib_uverbs_modify_qp *out)
{
	SM_LOCKED(nic);
	*out = qp->attr;
	out->qp_state = out->cur_qp_state = qp->state;
	out->sq_psn = qp->req.psn;
	out->rq_psn = qp->resp.psn;
}

void
sm_sq_error(struct sm_nic *nic, struct sm_qp *qp, const struct sm_swr *w)
{
	/* Some cards report a flush only where a completion was asked for. */
	if (w->syndrome != MLX5_CQE_SYNDROME_WR_FLUSH_ERR || w->signaled ||
		!nic->attr.flush_signalled)
		sm_cq_error(nic, qp, MLX5_CQE_REQ_ERR, w->syndrome, w->bb, w->op);
}

/* Everything posted to the send queue and not completed. */
static uint32_t
flush_sq(struct sm_nic *nic, struct sm_qp *qp)
{
	uint32_t n = 0;

	for (; qp->req.wr_done != qp->req.wr_tx; qp->req.wr_done++, n++) {
		struct sm_swr *w = &qp->req.swr[qp->req.wr_done & (qp->made.sq_nwqebb - 1)];

		w->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
		sm_sq_error(nic, qp, w);
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

		sm_sq_error(nic, qp, &(struct sm_swr){
			.bb = qp->req.taken,
			.op = wqe[3],
			.syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
			.signaled = (wqe[11] & MLX5_WQE_CTRL_CQ_UPDATE) != 0,
		});
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
	uint32_t n = 0;

	if (qp->made.rq_nwqe == 0)
		return 0;
	qp->resp.head = (uint16_t)sm_dbrec(&qp->dbrec[0]);
	if ((uint16_t)(qp->resp.head - qp->resp.tail) > qp->made.rq_nwqe)
		qp->resp.tail = qp->resp.head;
	for (; qp->resp.tail != qp->resp.head; qp->resp.tail++, n++)
		sm_cq_error(nic, qp, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
			qp->resp.tail, 0);
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
	uint8_t was = qp->state;

	if (was == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	sm_direct_withdraw(nic, qp);
	sm_dct_drop(nic, qp);
	qp->req.halted = true;
	qp->req.tx.started = false;
	sm_turn_del(nic, qp, SM_TURN_WAIT);
	sm_turn_del(nic, qp, SM_TURN_SEND);
	if (event >= 0)
		nic->attr.async_event(qp->made.user, (enum ibv_event_type)event);
	if (qp->resp.rx.open && qp->resp.rx.pkt == SM_PKT_SEND) /* It holds a WQE. */
		sm_cq_error(nic, qp, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
			qp->resp.rx.counter, 0);
	qp->resp.rx.open = false;
	if (was != IBV_QPS_RESET)
		sm_qp_flush(nic, qp);
	if (qp->made.srq != NULL)
		nic->attr.async_event(qp->made.user, IBV_EVENT_QP_LAST_WQE_REACHED);
	sm_turn_add(nic, qp, SM_TURN_FLUSH);
}

static bool
is_connected(const struct sm_qp *qp)
{
	return qp != NULL && qp->state >= IBV_QPS_RTR && qp->state != IBV_QPS_ERR;
}

int
sm_nic_break(struct sm_nic *nic, uint32_t which)
{
	uint32_t n = 0;

	SM_LOCKED(nic);
	for (uint32_t i = 0; i < SM_QPS_MAX; i++)
		n += is_connected(nic->qps[i]);
	if (n == 0)
		return ENOENT;
	which %= n;
	for (uint32_t i = 0; i < SM_QPS_MAX; i++)
		if (is_connected(nic->qps[i]) && which-- == 0) {
			sm_qp_fail(nic, nic->qps[i], IBV_EVENT_QP_FATAL);
			break;
		}
	return 0;
}
