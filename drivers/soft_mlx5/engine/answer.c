/* SPDX-License-Identifier: BSD-3-Clause */

/* The send queue's way back: acknowledgements, responses, refusals, and what is then sent again. */
#include "cq.h"

/* How often a requester tries again whose timeout attribute is 0, "for ever". */
#define RETRY_FOREVER_NS UINT64_C(10000000)
/*
 * A requester that finds no queue pair asks so often within one timeout: the peer is most often
 * about to be ready, and a card's timeouts of tenths of a second are meant for networks.
 */
#define LOST_PARTS 32u

/*
 * A WQE failed, and all before it are complete. If that ends its stream alone, the next WQE begins
 * with the number behind it, which its CONNECT carries. False: the queue pair ends.
 */
static bool
goes_on_behind(struct sm_qp *qp, const struct sm_swr *w)
{
	if (!sm_dci_stream_fail(qp, w))
		return false;
	/* The response was bad: WQEs behind it are under way already. */
	if (qp->req.wr_done != qp->req.wr_tx || qp->req.tx.started)
		return true;
	qp->req.acked = w->psn & SM_PSN_MASK;
	qp->req.psn = (w->psn + 1) & SM_PSN_MASK;
	qp->req.resume = 0;
	qp->req.halted = false;
	qp->req.retries = qp->attr.retry_cnt;
	qp->req.rnr_retries = qp->attr.rnr_retry;
	qp->dc.connected = false;
	return true;
}

void
sm_sq_complete(struct sm_nic *nic, struct sm_qp *qp)
{
	while (qp->req.wr_done != qp->req.wr_tx) {
		const struct sm_swr *w = &qp->req.swr[qp->req.wr_done & (qp->made.sq_nwqebb - 1)];
		struct sm_wc wc = {.op = MLX5_CQE_REQ, .wqe_op = w->op, .counter = w->bb};

		if (w->wait == SM_SWR_RESPONSE ||
			(w->wait == SM_SWR_ACK && sm_psn_diff(qp->req.acked, w->psn) < 0))
			return;
		qp->req.wr_done++;
		if (crpc_unlikely(w->syndrome != 0)) {
			sm_direct_withdraw(nic, qp); /* Now its memory is the program's. */
			sm_sq_error(nic, qp, w);
			if (goes_on_behind(qp, w))
				continue;
			sm_qp_fail(nic, qp, -1);
			return;
		}
		wc.len = w->len;
		if (w->signaled && crpc_unlikely(!sm_cq_push(nic, qp->made.send_cq, qp, &wc))) {
			sm_qp_fail(nic, qp, IBV_EVENT_QP_FATAL);
			return;
		}
	}
}

void
sm_sq_acked(struct sm_nic *nic, struct sm_qp *qp, uint32_t psn)
{
	if (crpc_unlikely(qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
		return;
	/* An open READ is acknowledged by its response alone. */
	if (qp->req.rd_head != qp->req.rd_tail) {
		uint32_t wr = qp->req.rd_wr[qp->req.rd_head % SM_RD_MAX];
		uint32_t rd = sm_swr_first(qp, &qp->req.swr[wr & (qp->made.sq_nwqebb - 1)]) +
			(qp->req.rd_off >> qp->mtu_shift);

		if (sm_psn_diff(psn, rd) >= 0)
			psn = (rd - 1) & SM_PSN_MASK;
	}
	if (sm_psn_diff(psn, qp->req.acked) <= 0 || sm_psn_diff(psn, qp->req.psn) >= 0)
		return;
	qp->req.acked = psn;
	qp->req.retries = qp->attr.retry_cnt;
	qp->req.rnr_retries = qp->attr.rnr_retry;
	sm_sq_complete(nic, qp);
	/* It may have waited for this, or to go elsewhere, or to bind. */
	if (crpc_unlikely(qp->req.wakes || nic->udp != NULL))
		sm_sq_activate(nic, qp);
}

/* The WQE @w is the next one, and goes on behind what the peer acknowledged of it. */
static void
rewind_into(const struct sm_nic *nic, struct sm_qp *qp, const struct sm_swr *w)
{
	uint32_t next = (qp->req.acked + 1) & SM_PSN_MASK, first = sm_swr_first(qp, w);

	qp->req.resume = sm_psn_diff(next, first) > 0 ? (next - first) & SM_PSN_MASK : 0;
	qp->req.psn = (first + qp->req.resume) & SM_PSN_MASK;
	sm_qp_way(nic, qp);
}

/* Go back to the oldest packet that was not acknowledged. */
static void
sq_rewind(const struct sm_nic *nic, struct sm_qp *qp)
{
	uint32_t wr = qp->req.wr_done;
	const struct sm_swr *w;

	for (; wr != qp->req.wr_tx; wr++) {
		w = &qp->req.swr[wr & (qp->made.sq_nwqebb - 1)];
		if (sm_psn_diff(w->psn, qp->req.acked) > 0 && w->syndrome == 0)
			break;
	}
	if (wr != qp->req.wr_tx) {
		qp->req.taken = w->bb;
		qp->req.wr_tx = wr;
		qp->req.halted = false;
		rewind_into(nic, qp, w);
	} else if (qp->req.tx.started) { /* It is the one of which the last packets are not sent. */
		rewind_into(nic, qp, &qp->req.tx.swr);
	}
	while (qp->req.rd_tail != qp->req.rd_head &&
		(int32_t)(qp->req.rd_wr[(qp->req.rd_tail - 1) % SM_RD_MAX] - qp->req.wr_tx) >= 0)
		qp->req.rd_tail--;
	if (qp->req.rd_head == qp->req.rd_tail && qp->req.resume == 0)
		qp->req.rd_off = 0;
	qp->req.tx.started = false;
	qp->dc.connected = false;
	qp->req.epoch++;
}

/* The oldest message that was not acknowledged fails. */
static void
sq_fail_oldest(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd)
{
	sm_turn_del(nic, qp, SM_TURN_WAIT);
	sq_rewind(nic, qp);
	if (qp->req.taken != qp->req.head)
		sm_sq_fail(nic, qp, synd);
	sm_sq_activate(nic, qp); /* Other streams of a DCI go on. */
}

void
sm_sq_peer_dead(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	if (!qp->kind->reliable)
		return;
	if (qp->kind->sends == SM_SENDS_TO_TARGETS && qp->req.wr_done == qp->req.wr_tx &&
		!qp->req.tx.started)
		sm_dci_leave(nic, qp); /* The next WQE may go elsewhere. */
	else if (qp->req.wr_done != qp->req.wr_tx || qp->req.taken != qp->req.head)
		sq_fail_oldest(nic, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

static void
sq_wait(struct sm_nic *nic, struct sm_qp *qp, uint64_t ns)
{
	sm_turn_del(nic, qp, SM_TURN_SEND);
	qp->req.retry_at = nic->now + ns;
	sm_turn_add(nic, qp, SM_TURN_WAIT);
}

/* One time less; false: that was the last one, and it failed. */
static bool
retry_take(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->req.retries == 0) {
		sq_fail_oldest(nic, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		return false;
	}
	qp->req.retries--;
	return true;
}

void
sm_sq_timer(struct sm_nic *nic, struct sm_qp *qp)
{
	if ((int64_t)(nic->now - qp->req.retry_at) < 0)
		return;
	sm_turn_del(nic, qp, SM_TURN_WAIT);
	if (!qp->req.lost || qp->attr.timeout == 0 || ++qp->req.lost_tries % LOST_PARTS != 0 ||
		retry_take(nic, qp))
		sm_sq_activate(nic, qp);
}

/* What was not acknowledged is sent again, now. */
static void
sq_again(struct sm_nic *nic, struct sm_qp *qp)
{
	sq_rewind(nic, qp);
	sm_sq_activate(nic, qp);
}

void
sm_sq_timeout(struct sm_nic *nic, struct sm_qp *qp, bool counts)
{
	if (!counts || qp->attr.timeout == 0 || retry_take(nic, qp))
		sq_again(nic, qp);
}

static bool
is_dci(const struct sm_qp *qp)
{
	return qp->kind->sends == SM_SENDS_TO_TARGETS;
}

/* A DCT does not know the connection, or the address: an earlier CONNECT's cookie may come late. */
static void
nak_connect(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, bool open)
{
	if (!is_dci(qp) || (h->imm == SM_NAK_COOKIE && !open))
		return;
	if (h->imm == SM_NAK_COOKIE)
		qp->peer->cookie = h->raddr;
	sq_again(nic, qp);
}

static void
answer_nak(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	static const uint8_t synd[] = {
		[SM_NAK_INVALID] = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		[SM_NAK_ACCESS] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
		[SM_NAK_OP] = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
	};

	/* Of something that is open. */
	bool open = sm_psn_diff(h->psn, qp->req.acked) > 0 && sm_psn_diff(h->psn, qp->req.psn) <= 0;

	if (!qp->kind->reliable)
		return;
	if (h->imm == SM_NAK_RECONNECT || h->imm == SM_NAK_COOKIE) {
		nak_connect(nic, qp, h, open);
		return;
	}
	if (h->imm == SM_NAK_LOST) {
		sq_rewind(nic, qp);
		qp->req.lost = true;
		sq_wait(nic, qp, qp->attr.timeout == 0
				? RETRY_FOREVER_NS
				: (UINT64_C(4096) << qp->attr.timeout) / LOST_PARTS);
		return;
	}
	if (!open || (h->imm == SM_NAK_RNR && qp->on[SM_TURN_WAIT])) /* It came twice. */
		return;
	sm_sq_acked(nic, qp, (h->psn - 1) & SM_PSN_MASK);
	if (qp->state == IBV_QPS_ERR)
		return;
	/* If a response before it is missing, a DCT refuses it again: then it is the oldest. */
	if (h->imm == SM_NAK_SEQUENCE || h->imm == SM_NAK_STALE ||
		(h->imm != SM_NAK_RNR && nic->lossy && is_dci(qp) &&
			qp->req.acked != ((h->psn - 1) & SM_PSN_MASK))) {
		sq_again(nic, qp);
		return;
	}
	if (h->imm != SM_NAK_RNR) {
		if (h->imm < CRPC_DIM(synd) && synd[h->imm] != 0)
			sq_fail_oldest(nic, qp, synd[h->imm]);
		return;
	}
	if (qp->req.rnr_retries == 0) {
		sq_fail_oldest(nic, qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->req.rnr_retries != 7)
		qp->req.rnr_retries--;
	sq_rewind(nic, qp);
	qp->req.lost = false;
	sq_wait(nic, qp, sm_retry_rnr_ns(h->rkey));
}

/*
 * A response @ahead of the one that is expected: that one, or the answer to what was asked before,
 * is lost. Behind it: it comes again.
 */
static crpc_noinline void
response_missed(struct sm_nic *nic, struct sm_qp *qp, int32_t ahead)
{
	if (!nic->lossy || ahead < 0 || qp->req.gap || qp->on[SM_TURN_WAIT])
		return;
	qp->req.gap = true;
	sq_again(nic, qp);
}

/* A packet of the response to the oldest READ or atomic, or what refers to its bytes. */
static void
answer_response(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	const uint8_t *payload, struct sm_pull *pull)
{
	uint32_t flags = h->head >> 24, synd, psn;
	struct sm_swr *w;

	if (qp->req.rd_head == qp->req.rd_tail)
		return;
	w = &qp->req.swr[qp->req.rd_wr[qp->req.rd_head % SM_RD_MAX] & (qp->made.sq_nwqebb - 1)];
	psn = (sm_swr_first(qp, w) + (qp->req.rd_off >> qp->mtu_shift)) & SM_PSN_MASK;
	if (crpc_unlikely(psn != h->psn)) {
		response_missed(nic, qp, sm_psn_diff(h->psn, psn));
		return;
	}
	if (len > w->len - qp->req.rd_off)
		return;
	qp->req.gap = false;
	if (qp->req.rd_off == 0)
		sm_sq_cursor(qp, w->bb, &qp->req.rd_cur);
	sm_count_piece(&qp->n.rx, w->op == MLX5_OPCODE_RDMA_READ ? len : 0,
		w->op == MLX5_OPCODE_RDMA_READ ? SM_KIND_READ_RESP : SM_KIND_ATOMIC_RESP,
		qp->req.rd_off == 0, qp->mtu_shift);
	if (pull != NULL)
		pull->at = qp->req.rd_off;
	synd = sm_scatter(nic, qp, qp->made.pd, &qp->req.rd_cur, payload, len, pull);
	qp->req.rd_off += len;
	if (synd == 0 && ((flags & SM_PKT_LAST) != 0
				? qp->req.rd_off != w->len
				: len == 0 || (len & ((1u << qp->mtu_shift) - 1)) != 0))
		synd = MLX5_CQE_SYNDROME_BAD_RESP_ERR;
	if (synd == 0 && (flags & SM_PKT_LAST) == 0) {
		sm_sq_acked(nic, qp, (psn + sm_psn_packets(qp, len) - 1) & SM_PSN_MASK);
		return;
	}
	qp->req.rd_off = 0;
	qp->req.rd_head++;
	w->wait = SM_SWR_DONE;
	w->syndrome = (uint8_t)synd;
	sm_sq_acked(nic, qp, w->psn & SM_PSN_MASK);
	sm_sq_complete(nic, qp);
	sm_sq_activate(nic, qp); /* It may have waited for this one. */
}

void
sm_sq_answer(struct sm_nic *nic, const struct sm_peer *peer, const struct sm_hdr *h,
	const uint8_t *payload, struct sm_pull *pull)
{
	struct sm_qp *qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	uint32_t type = sm_pkt_type(h->head);

	if (qp == NULL || qp->peer != peer || qp->far != h->src)
		return;
	if (type == SM_PKT_ACK) {
		qp->n.rx.kind[SM_KIND_ACK]++;
		sm_sq_acked(nic, qp, h->psn & SM_PSN_MASK);
		return;
	}
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	/* What answers something sent before the last rewind is answered again; where packets get
	 * lost their numbers alone decide. */
	if (!nic->lossy && h->dst >> 24 != qp->req.epoch)
		return;
	if (type == SM_PKT_NAK) {
		qp->n.rx.kind[SM_KIND_ACK]++;
		answer_nak(nic, qp, h);
		return;
	}
	answer_response(nic, qp, h, pull != NULL ? (uint32_t)pull->ref.len : h->head & 0xffff,
		payload, pull);
}
