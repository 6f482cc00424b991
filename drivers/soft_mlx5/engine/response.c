/* SPDX-License-Identifier: BSD-3-Clause */

/* What a responder answers: acknowledgements, refusals, responses of READs and atomics. */
#include "cq.h"

/* Packets of responses that one queue pair sends in one pass, however fast its requester is. */
#define SERVE_PACKETS 32u

static void
response_count(struct sm_qp *qp, const struct sm_rd *rd, uint32_t len)
{
	if (rd->pkt == SM_PKT_ATOMIC_RESP) {
		qp->n.tx.kind[SM_KIND_ATOMIC_RESP]++;
		return;
	}
	sm_count_piece(&qp->n.tx, len, SM_KIND_READ_RESP, rd->off == 0, qp->mtu_shift);
	if (len != 0)
		sm_count_parts(&qp->n, rd->off, len, sm_count_read);
}

/* A grant for the next piece of a READ's response; NULL, and not @full: through the ring. */
static struct sm_grant *
response_grant(struct sm_nic *nic, struct sm_qp *qp, const struct sm_rd *rd, bool *full)
{
	const struct sm_mkey *k;
	struct sm_grant *g;

	*full = false;
	if (rd->pkt != SM_PKT_READ_RESP || rd->rkey >> 8 >= nic->nkeys)
		return NULL;
	k = &nic->keys[rd->rkey >> 8];
	if (k->pd != qp->made.pd || k->key != rd->rkey) /* A window: it may go without a word. */
		return NULL;
	g = sm_direct_begin(nic, qp, rd->len - rd->off, full);
	if (g == NULL)
		return NULL;
	g->key[0] = rd->rkey >> 8;
	g->seg[0].len = g->len;
	g->nseg = 1;
	return g;
}

/* One packet of the oldest open response; false: no room. */
static bool
response_send(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_rd *rd = &qp->resp.ans[qp->resp.ans_head % SM_RD_MAX];
	uint32_t len = (uint32_t)crpc_min(rd->len - rd->off, SM_FRAG), bytes;
	struct sm_tx *tx = &qp->peer->tx;
	const void *src = &rd->value;
	struct sm_pkt_room room;
	struct sm_grant *g;
	struct sm_hdr h;
	bool last, full;

	g = response_grant(nic, qp, rd, &full);
	if (g != NULL)
		len = g->len;
	bytes = g != NULL ? (uint32_t)sizeof(struct sm_ref) : len;
	if (full || !sm_tx_room(tx, bytes, 0, &room))
		return false;
	nic->serving = qp;
	if (rd->pkt == SM_PKT_READ_RESP && len != 0)
		src = sm_mem(nic, qp->made.pd, rd->rkey, rd->raddr + rd->off, len,
			IBV_ACCESS_REMOTE_READ);
	if (src == NULL) { /* The region went while the response was under way. */
		qp->resp.psn = (rd->psn + (rd->off >> qp->mtu_shift)) & SM_PSN_MASK;
		qp->resp.ans_tail = qp->resp.ans_head;
		sm_resp_nak(
			nic, qp, &(struct sm_hdr){.dst = (uint32_t)rd->epoch << 24}, SM_NAK_ACCESS);
		return true;
	}
	if (g != NULL) {
		g->seg[0].addr = (uintptr_t)src;
		sm_direct_put(nic, qp, g, room.payload);
	} else {
		sm_copy(room.payload, src, len);
	}
	response_count(qp, rd, len);
	h = (struct sm_hdr){
		.dst = qp->dest_qpn | (uint32_t)rd->epoch << 24,
		.src = qp->from,
		.psn = (rd->psn + (rd->off >> qp->mtu_shift)) & SM_PSN_MASK,
		.raddr = rd->off,
		.imm = qp->resp.msn,
	};
	rd->off += len;
	last = rd->off == rd->len;
	sm_tx_commit(tx, &room, &h, bytes, g != NULL ? SM_PKT_READ_RESP_REF : rd->pkt,
		last ? SM_PKT_LAST : 0);
	if (!last)
		return true;
	qp->resp.ans_head++;
	/* A response acknowledges its request and all before it. */
	if (((rd->psn + sm_psn_packets(qp, rd->len)) & SM_PSN_MASK) == qp->resp.psn)
		qp->resp.unacked = qp->resp.held = 0;
	return true;
}

/*
 * The requester is one of our own: no packet is needed. Not while a READ of it is open: the
 * response is in the ring, and what overtakes it would be capped there and never said again.
 */
static bool
ack_own(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_qp *far = sm_qp_find(nic, qp->dest_qpn);

	if (far != NULL && far->dest_qpn == qp->qpn) {
		if (far->req.rd_head != far->req.rd_tail)
			return false;
		qp->n.tx.kind[SM_KIND_ACK]++;
		far->n.rx.kind[SM_KIND_ACK]++;
		sm_sq_acked(nic, far, (qp->resp.psn - 1) & SM_PSN_MASK);
	}
	qp->resp.unacked = 0;
	qp->resp.held = 0;
	return true;
}

bool
sm_resp_serve(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_hdr h;

	if (crpc_unlikely(qp->peer->dead || !qp->kind->reliable)) {
		qp->resp.unacked = 0;
		return true;
	}
	/* In the order of the requests: a READ is answered before anything behind it is. */
	for (uint32_t i = 0; qp->resp.ans_head != qp->resp.ans_tail; i++)
		if (i == SERVE_PACKETS || !response_send(nic, qp))
			return false;
	if (qp->resp.nak == 0 && qp->resp.unacked == 0)
		return true;
	if (qp->peer->self && qp->resp.nak == 0 && nic->pcap == NULL && ack_own(nic, qp))
		return true;
	h = (struct sm_hdr){
		.dst = qp->dest_qpn | (uint32_t)qp->resp.refuse_epoch << 24,
		.src = qp->from,
		.psn = qp->resp.nak != 0 ? qp->resp.psn : (qp->resp.psn - 1) & SM_PSN_MASK,
		.raddr = qp->resp.msn,
		.rkey = qp->attr.min_rnr_timer,
		.imm = qp->resp.nak,
	};
	if (!sm_tx_send(&qp->peer->tx, 0, &h, h.imm != 0 ? SM_PKT_NAK : SM_PKT_ACK))
		return false;
	qp->n.tx.kind[SM_KIND_ACK]++;
	qp->resp.nak = 0;
	qp->resp.unacked = 0;
	qp->resp.held = 0;
	return true;
}

void
sm_resp_settle(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_hdr h = {.src = qp->far, .dst = qp->qpn};
	bool settled;

	if (!qp->on[SM_TURN_ANSWER] || qp->peer == &nic->nowhere)
		return;
	nic->settling = true;
	settled = sm_resp_serve(nic, qp);
	nic->settling = false;
	if (settled)
		return;
	/* No room: let the requester find out by asking again. */
	h.dst |= (uint32_t)(qp->resp.ans_head != qp->resp.ans_tail
				 ? qp->resp.ans[qp->resp.ans_head % SM_RD_MAX].epoch
				 : qp->resp.refuse_epoch)
		<< 24;
	sm_peer_nak(qp->peer, &h, SM_NAK_LOST);
}
