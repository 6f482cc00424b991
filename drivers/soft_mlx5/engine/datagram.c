/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Unreliable datagrams: one packet each, to whom the WQE's address vector names, complete when they
 * are sent. No such queue pair, no receive WQE, another Q_Key: dropped silently.
 *
 * A ring that is full stands for a network that is: what is sent waits as long as its reader takes
 * something now and then, and is dropped if it does not, so that others get theirs.
 */
#include "cq.h"
#include "roce.h"

#define GRH_VERSION 6u
#define GRH_NEXT_IBA 0x1bu
#define SM_IPV4_BYTES 20u

/* How long a datagram waits for a reader that takes nothing. */
#define FULL_NS SM_ALIVE_NS

/* There is no room in the ring to @p peer: true if there was none for so long that it is lost. */
static crpc_noinline bool
is_lost(struct sm_nic *nic, struct sm_peer *peer)
{
	if (peer->full_limit != peer->tx.limit) {
		peer->full_limit = peer->tx.limit;
		peer->full_at = nic->now;
	}
	if (nic->now - peer->full_at < FULL_NS)
		return false;
	nic->datagrams_dropped++;
	return true;
}

enum sm_step
sm_datagram_send(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->req.tx;
	struct sm_pkt_room room = {.payload = nic->waste};
	struct sm_peer *peer;
	struct sm_hdr h;
	uint32_t synd;

	if (crpc_unlikely(sm_peer_av(nic, &t->av, &peer) != 0))
		return sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	if (peer != NULL && !sm_tx_room(&peer->tx, t->swr.len, SM_RING_RESERVE, &room)) {
		if (!is_lost(nic, peer))
			return SM_STEP_FULL;
		peer = NULL;
	}
	synd = sm_gather(nic, qp, &t->cur, room.payload, t->swr.len, NULL);
	if (crpc_unlikely(synd != 0))
		return sm_sq_fail(nic, qp, (uint8_t)synd);
	sm_count_piece(&qp->n.tx, t->swr.len,
		(t->last & SM_PKT_IMM) != 0 ? SM_KIND_DATAGRAM_IMM : SM_KIND_DATAGRAM, true,
		qp->mtu_shift);
	qp->n.tx.grhs += t->av.grh >> 63;
	if (peer != NULL) {
		h.dst = t->av.qpn;
		h.src = qp->from | t->av.kind;
		h.psn = qp->req.psn;
		h.raddr = nic->udp != NULL /* To ourselves. */
			? SM_GRH_PRESENT | SM_GRH_IPV4 | nic->attr.udp_addr
			: t->av.grh | (uint64_t)nic->attr.device << SM_GRH_DEVICE_SHIFT;
		h.rkey = (uint32_t)t->av.key;
		h.imm = t->imm;
		sm_tx_commit(&peer->tx, &room, &h, t->swr.len, SM_PKT_DATAGRAM,
			SM_PKT_FIRST | t->last);
	}
	qp->req.psn = (qp->req.psn + 1) & SM_PSN_MASK;
	sm_sq_taken(qp);
	sm_sq_complete(nic, qp);
	return SM_STEP_ON;
}

/* The 40 bytes before the payload: the GRH of an InfiniBand packet, or nothing known. */
static void
grh_make(const struct sm_nic *nic, const struct sm_hdr *h, uint8_t grh[SM_GRH_BYTES])
{
	uint64_t guid;
	uint32_t words[2];
	/* BTH, DETH, payload and ICRC. */
	uint32_t len = 12 + 8 + ((h->head >> 24 & SM_PKT_IMM) != 0 ? 4 : 0) +
		(uint32_t)crpc_align_up(h->head & 0xffff, 4) + 4;

	memset(grh, 0, SM_GRH_BYTES);
	if ((h->raddr & SM_GRH_PRESENT) == 0)
		return;
	if ((h->raddr & SM_GRH_IPV4) != 0) { /* RoCEv2: the header of IPv4 lies at the end. */
		struct sm_roce_path path = {(uint32_t)h->raddr, nic->attr.udp_addr, 0, 0};
		uint8_t headers[SM_ROCE_IP_UDP];

		sm_roce_ip_udp(&path, len, headers);
		memcpy(grh + SM_GRH_BYTES - SM_IPV4_BYTES, headers, SM_IPV4_BYTES);
		return;
	}
	words[0] = __builtin_bswap32(GRH_VERSION << 28 | SM_GRH_CLASS_FLOW(h->raddr));
	words[1] = __builtin_bswap32(len << 16 | GRH_NEXT_IBA << 8 | SM_GRH_HOPS(h->raddr));
	memcpy(grh, words, sizeof(words));
	memcpy(grh + 8, nic->attr.gid, 8);
	guid = __builtin_bswap64(
		sm_be64(nic->attr.gid + 8) - nic->attr.device + SM_GRH_DEVICE(h->raddr));
	memcpy(grh + 16, &guid, sizeof(guid));
	memcpy(grh + 24, nic->attr.gid, sizeof(nic->attr.gid));
}

void
sm_datagram_receive(struct sm_nic *nic, const struct sm_hdr *h, const uint8_t *payload)
{
	struct sm_qp *qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	uint32_t len = h->head & 0xffff, flags = h->head >> 24, synd;
	bool imm = (flags & SM_PKT_IMM) != 0;
	uint8_t grh[SM_GRH_BYTES];
	struct sm_wc wc;

	if (qp == NULL || qp->kind->takes != SM_TAKES_DATAGRAMS || qp->state < IBV_QPS_RTR ||
		qp->state == IBV_QPS_ERR ||
		((h->src ^ qp->far) & (SM_SRC_PKEY | SM_SRC_LIMITED)) != 0 ||
		h->rkey != qp->attr.qkey || len > SM_MTU_BYTES || !sm_recv_take(nic, qp))
		return;
	sm_count_piece(&qp->n.rx, len, imm ? SM_KIND_DATAGRAM_IMM : SM_KIND_DATAGRAM, true,
		qp->mtu_shift);
	qp->n.rx.grhs += h->raddr >> 63;
	sm_recv_cursor(qp);
	grh_make(nic, h, grh);
	synd = sm_scatter(nic, qp, sm_recv_pd(qp), &qp->resp.rx.cur, grh, sizeof(grh), NULL);
	if (synd == 0)
		synd = sm_scatter(nic, qp, sm_recv_pd(qp), &qp->resp.rx.cur, payload, len, NULL);
	wc = (struct sm_wc){
		.op = imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
		.solicited = (flags & SM_PKT_SE) != 0,
		.counter = qp->resp.rx.counter,
		.imm = imm ? h->imm : 0,
		.len = len + SM_GRH_BYTES,
		.src_qpn =
			(h->src & SM_PSN_MASK) | ((h->raddr & SM_GRH_PRESENT) != 0 ? 1u << 28 : 0),
	};
	if (crpc_unlikely(synd != 0))
		sm_cq_error(nic, qp, MLX5_CQE_RESP_ERR, (uint8_t)synd, wc.counter, 0);
	if (crpc_unlikely(synd != 0 || !sm_cq_push(nic, qp->made.recv_cq, qp, &wc)))
		sm_qp_fail(nic, qp, -1);
}
