/* SPDX-License-Identifier: BSD-3-Clause */
#include "priv.h"

/* Packets of responses that one queue pair sends in one pass, however fast its requester is. */
#define SERVE_PACKETS 32u

/* Where a receive WQE exists that belongs to a refused message. */
static crpc_noinline void
recv_error(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd)
{
	struct sm_wc wc = {
		.op = SM_CQE_RESP_ERR,
		.syndrome = synd,
		.counter = qp->rx.counter,
	};

	qp->rx.open = false;
	sm_cq_push(nic, qp->recv_cq, qp, &wc);
	if (qp->type == SM_QPT_UC)
		sm_qp_fail(nic, qp, -1);
}

void
sm_recv_abandon(struct sm_qp *qp)
{
	if (qp->rx.open && qp->rx.pkt == SM_PKT_SEND) {
		if (qp->srq == NULL)
			qp->rq_tail--;
		else
			sm_srq_return(qp->srq, qp->rx.counter);
	}
	qp->rx.open = false;
}

static void
answer_later(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->answering)
		return;
	qp->answering = true;
	TAILQ_INSERT_TAIL(&nic->answers, qp, answer_link);
}

/*
 * Refuse the packet at hand: nothing behind it counts until the requester goes back to it. What
 * came of its message stays, unless it is refused for good.
 */
static crpc_noinline void
refuse(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, enum sm_nak nak)
{
	bool fatal = nak >= SM_NAK_INVALID && nak <= SM_NAK_OP;

	if (qp->type == SM_QPT_UC || (fatal && qp->dct != NULL))
		sm_recv_abandon(qp);
	if (qp->type == SM_QPT_UC) { /* The rest is dropped: nobody is told. */
		if (nak == SM_NAK_OP)
			sm_qp_fail(nic, qp, -1);
		return;
	}
	qp->nak = (uint8_t)nak;
	qp->refusing = true;
	qp->refuse_epoch = (uint8_t)(h->dst >> 24);
	answer_later(nic, qp);
	if (fatal && qp->dct == NULL)
		sm_qp_fail(nic, qp,
			nak == SM_NAK_INVALID         ? SM_EVENT_QP_REQ_ERR
				: nak == SM_NAK_ACCESS ? SM_EVENT_QP_ACCESS_ERR
						       : -1);
}

/* The last @packets of a message were received. */
static inline void
message_done(struct sm_nic *nic, struct sm_qp *qp, uint32_t packets)
{
	qp->rx.open = false;
	qp->psn_rx = (qp->psn_rx + packets) & SM_PSN_MASK;
	qp->msn++;
	qp->unacked++;
	answer_later(nic, qp);
}

/* A piece of a message was received that others follow. */
static inline void
piece_done(struct sm_nic *nic, struct sm_qp *qp, uint32_t len)
{
	qp->psn_rx = (qp->psn_rx + sm_psn_packets(qp, len)) & SM_PSN_MASK;
	if (nic->lossy) { /* The requester need not send again what is here. */
		qp->unacked++;
		answer_later(nic, qp);
	}
}

/* The message completed a receive WQE. */
static inline void
recv_done(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	enum sm_cqe_op op, uint32_t flags, const uint8_t *data)
{
	struct sm_wc wc = {
		.op = (uint8_t)op,
		.solicited = (flags & SM_PKT_SE) != 0,
		.counter = qp->rx.counter,
		.imm = (flags & (SM_PKT_IMM | SM_PKT_INV)) != 0 ? h->imm : 0,
		.len = qp->rx.off,
		.src_qpn = qp->dest_qpn,
		.data = data,
	};

	qp->rx.open = false;
	if (crpc_unlikely(!sm_cq_push(nic, qp->recv_cq, qp, &wc))) {
		refuse(nic, qp, h, SM_NAK_OP);
		return;
	}
	message_done(nic, qp, sm_psn_packets(qp, len));
}

/*
 * Account a packet of @len bytes to the message, which has @total, or, if not @exact, at most so
 * many; false: the lengths contradict each other, or the two sides differ about the path's MTU.
 */
static inline bool
message_step(struct sm_qp *qp, uint32_t len, uint32_t flags, uint32_t total, bool exact)
{
	struct sm_recv *rx = &qp->rx;

	if (crpc_unlikely(len > total - rx->off))
		return false;
	rx->off += len;
	if (crpc_likely((flags & SM_PKT_LAST) != 0))
		return !exact || rx->off == total;
	return len != 0 && (len & ((1u << qp->mtu_shift) - 1)) == 0;
}

/* A SEND that fits into its CQE, from where the driver copies it; false: it does not. */
static bool
send_into_cqe(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags, const uint8_t *payload)
{
	uint8_t data[2 * SM_INLINE_SCATTER_MAX];

	uint32_t room = qp->recv_cq->log_size == 7 ? 2 * SM_INLINE_SCATTER_MAX
						   : SM_INLINE_SCATTER_MAX;

	if (len == 0 || len > room ||
		(flags & (SM_PKT_FIRST | SM_PKT_LAST | SM_PKT_INV)) != (SM_PKT_FIRST | SM_PKT_LAST))
		return false;
	memcpy(data, payload, len);
	qp->rx.off = len;
	recv_done(nic, qp, h, len,
		(flags & SM_PKT_IMM) != 0 ? SM_CQE_RESP_SEND_IMM : SM_CQE_RESP_SEND, flags, data);
	return true;
}

static enum sm_cqe_op
send_cqe_op(uint32_t flags)
{
	return (flags & SM_PKT_INV) != 0    ? SM_CQE_RESP_SEND_INV
		: (flags & SM_PKT_IMM) != 0 ? SM_CQE_RESP_SEND_IMM
					    : SM_CQE_RESP_SEND;
}

/*
 * The bytes that a packet refers to are not to be had: as if it had not come. The requester sends
 * them again, and through the ring if that was the reason, or finds out what became of its memory.
 */
static crpc_noinline void
refuse_stale(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	if ((h->head >> 24 & SM_PKT_FIRST) != 0)
		sm_recv_abandon(qp);
	refuse(nic, qp, h, SM_NAK_STALE);
}

/* A packet with its bytes, or one that refers to them: each caller has one of both, a constant. */
static inline __attribute__((always_inline)) void
send_any(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags, const uint8_t *payload, struct sm_pull *pull)
{
	struct sm_recv *rx = &qp->rx;
	struct sm_cursor before;
	uint32_t synd;

	if ((flags & SM_PKT_FIRST) != 0) {
		if (!sm_recv_take(nic, qp)) {
			refuse(nic, qp, h, SM_NAK_RNR);
			return;
		}
		sm_recv_cursor(qp);
		rx->open = true;
		rx->pkt = SM_PKT_SEND;
		rx->off = 0;
	}
	sm_count_piece(&qp->n.rx, len,
		(flags & SM_PKT_IMM) != 0 ? SM_KIND_SEND_IMM : SM_KIND_SEND,
		(flags & SM_PKT_LAST) != 0, qp->mtu_shift);
	if (pull == NULL && qp->scatter_cqe && send_into_cqe(nic, qp, h, len, flags, payload))
		return;
	if (pull == NULL) {
		synd = sm_scatter(nic, qp, sm_recv_pd(qp), &rx->cur, payload, len);
	} else {
		before = rx->cur;
		synd = sm_scatter_pull(nic, qp, sm_recv_pd(qp), &rx->cur, pull, rx->off);
		if (crpc_unlikely(synd == 0 && pull->syndrome != 0)) {
			rx->cur = before;
			refuse_stale(nic, qp, h);
			return;
		}
	}
	if (crpc_unlikely(synd != 0)) {
		recv_error(nic, qp, (uint8_t)synd);
		refuse(nic, qp, h, synd == SM_SYND_LOCAL_LENGTH ? SM_NAK_INVALID : SM_NAK_OP);
		return;
	}
	if (!message_step(qp, len, flags, SM_MSG_MAX, false)) {
		recv_error(nic, qp, SM_SYND_LOCAL_QP_OP);
		refuse(nic, qp, h, SM_NAK_INVALID);
		return;
	}
	if ((flags & SM_PKT_INV) != 0 && !sm_mw_invalidate(nic, qp, __builtin_bswap32(h->imm))) {
		recv_error(nic, qp, SM_SYND_LOCAL_QP_OP);
		refuse(nic, qp, h, SM_NAK_ACCESS);
		return;
	}
	if ((flags & SM_PKT_LAST) != 0)
		recv_done(nic, qp, h, len, send_cqe_op(flags), flags, NULL);
	else
		piece_done(nic, qp, len);
}

static void
request_send(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags, const uint8_t *payload)
{
	send_any(nic, qp, h, len, flags, payload, NULL);
}

/* A piece of a WRITE that is more than one TLP, or nothing. */
static crpc_noinline void
write_count_long(struct sm_qp *qp, uint32_t len)
{
	qp->n.write_tlps += sm_count_more(len, 8);
	qp->n.rx.packets += sm_count_more(len, qp->mtu_shift);
	if (len == 0)
		qp->n.write_pieces--; /* Only its message is counted. */
}

/* No receive WQE for an immediate: its packet, the last one, comes again. Writing twice is
 * harmless. */
static crpc_noinline void
write_unready(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags)
{
	qp->rx.off -= len;
	if ((flags & SM_PKT_FIRST) != 0)
		qp->rx.open = false;
	refuse(nic, qp, h, SM_NAK_RNR);
}

/* Of a WRITE's piece, what it refers to; false: not to be had, and refused. */
static bool
write_pull(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, void *dst,
	struct sm_pull *pull)
{
	uint32_t len = pull->ref.len, more = sm_count_more(len, SM_COUNT_FRAG);

	if (crpc_unlikely(!sm_pull_to(pull, &(struct iovec){dst, len}, 1))) {
		qp->rx.off -= len;
		refuse_stale(nic, qp, h);
		return false;
	}
	/* As the packets of a ring that bring so much: each begins a write of its own. */
	qp->n.write_pieces += more;
	qp->n.write_tlps -= more;
	return true;
}

/* As send_any(). */
static inline __attribute__((always_inline)) void
write_any(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags, const uint8_t *payload, struct sm_pull *pull)
{
	struct sm_recv *rx = &qp->rx;
	void *dst = NULL;
	bool ok = true;

	if ((flags & SM_PKT_FIRST) != 0) {
		rx->open = true;
		rx->pkt = SM_PKT_WRITE;
		rx->off = 0;
		rx->raddr = h->raddr;
		rx->rkey = h->rkey;
		rx->len = (flags & SM_PKT_LAST) != 0 ? len : h->imm;
		if ((flags & SM_PKT_LAST) == 0)
			ok = sm_mem(nic, qp->pd, rx->rkey, rx->raddr, rx->len,
				     SM_ACCESS_REMOTE_WRITE) != NULL;
	}
	if (len != 0)
		dst = sm_mem(nic, qp->pd, rx->rkey, rx->raddr + rx->off, len,
			SM_ACCESS_REMOTE_WRITE);
	ok = ok && (len == 0 || dst != NULL) && (qp->access & SM_ACCESS_REMOTE_WRITE) != 0;
	if (crpc_unlikely(!ok)) {
		/* What refers is more than one packet, and the immediate came with the last one. */
		if ((flags & SM_PKT_IMM) != 0 && (pull == NULL || (flags & SM_PKT_FIRST) == 0) &&
			qp->type != SM_QPT_UC && sm_recv_take(nic, qp))
			recv_error(nic, qp, SM_SYND_LOCAL_ACCESS);
		refuse(nic, qp, h, SM_NAK_ACCESS);
		return;
	}
	if (crpc_unlikely(!message_step(qp, len, flags, rx->len, true))) {
		refuse(nic, qp, h, SM_NAK_INVALID);
		return;
	}
	if (pull != NULL) {
		if (!write_pull(nic, qp, h, dst, pull))
			return;
	} else if (len != 0) {
		sm_copy(dst, payload, len);
	}
	qp->n.write_payload += len;
	if (crpc_unlikely(len - 1 >= SM_TLP_PAYLOAD)) /* Or 0. */
		write_count_long(qp, len);
	if ((flags & SM_PKT_LAST) == 0) {
		qp->n.rx.packets++; /* And a piece written; the last one is its message's. */
		qp->n.write_pieces++;
		piece_done(nic, qp, len);
		return;
	}
	qp->n.rx.kind[(flags & SM_PKT_IMM) / SM_PKT_IMM]++; /* enum sm_kind */
	if ((flags & SM_PKT_IMM) == 0)
		message_done(nic, qp, sm_psn_packets(qp, len));
	else if (crpc_likely(sm_recv_take(nic, qp)))
		recv_done(nic, qp, h, len, SM_CQE_RESP_WR_IMM, flags, NULL);
	else
		write_unready(nic, qp, h, len, flags);
}

static inline void
request_write(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	uint32_t flags, const uint8_t *payload)
{
	write_any(nic, qp, h, len, flags, payload, NULL);
}

/* Answers to what came twice, or before the requester went back, fill the queue: it asks again. */
static bool
answers_full(const struct sm_nic *nic, const struct sm_qp *qp)
{
	return nic->lossy &&
		qp->ans_tail - qp->ans_head >= qp->attr.max_dest_rd_atomic;
}

static void
request_read(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	struct sm_rd *rd = &qp->ans[qp->ans_tail % SM_RD_MAX];

	if (answers_full(nic, qp))
		return;
	if (qp->ans_tail - qp->ans_head >= qp->attr.max_dest_rd_atomic || h->imm > SM_MSG_MAX) {
		refuse(nic, qp, h, SM_NAK_INVALID);
		return;
	}
	if ((qp->access & SM_ACCESS_REMOTE_READ) == 0 ||
		(h->imm != 0 && sm_mem(nic, qp->pd, h->rkey, h->raddr, h->imm,
					SM_ACCESS_REMOTE_READ) == NULL)) {
		refuse(nic, qp, h, SM_NAK_ACCESS);
		return;
	}
	*rd = (struct sm_rd){
		.pkt = SM_PKT_READ_RESP,
		.epoch = (uint8_t)(h->dst >> 24),
		.psn = qp->psn_rx,
		.rkey = h->rkey,
		.raddr = h->raddr,
		.len = h->imm,
	};
	qp->n.rx.kind[SM_KIND_READ]++;
	qp->ans_tail++;
	message_done(nic, qp, sm_psn_packets(qp, h->imm));
}

static void
request_atomic(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, bool cas,
	const uint8_t *payload)
{
	struct sm_rd *rd = &qp->ans[qp->ans_tail % SM_RD_MAX];
	_Atomic uint64_t *word;
	uint64_t arg[2];

	if (answers_full(nic, qp))
		return;
	if (qp->ans_tail - qp->ans_head >= qp->attr.max_dest_rd_atomic || h->raddr % 8 != 0) {
		refuse(nic, qp, h, SM_NAK_INVALID);
		return;
	}
	word = sm_mem(nic, qp->pd, h->rkey, h->raddr, sizeof(*word), SM_ACCESS_REMOTE_ATOMIC);
	if (word == NULL || (uintptr_t)word % 8 != 0 ||
		(qp->access & SM_ACCESS_REMOTE_ATOMIC) == 0) {
		refuse(nic, qp, h, SM_NAK_ACCESS);
		return;
	}
	memcpy(arg, payload, sizeof(arg));
	*rd = (struct sm_rd){
		.pkt = SM_PKT_ATOMIC_RESP,
		.epoch = (uint8_t)(h->dst >> 24),
		.psn = qp->psn_rx,
		.len = sizeof(rd->value),
	};
	if (cas) {
		rd->value = arg[1];
		crpc_cas_acq_rel(word, &rd->value, arg[0]);
	} else {
		rd->value = crpc_fetch_add_acq_rel(word, arg[0]);
	}
	qp->atomics[qp->natomics % SM_RD_MAX].psn = rd->psn;
	qp->atomics[qp->natomics++ % SM_RD_MAX].value = rd->value;
	qp->n.rx.kind[SM_KIND_ATOMIC]++;
	sm_count_read(&qp->n, sizeof(rd->value));
	sm_count_write(&qp->n, sizeof(rd->value));
	qp->ans_tail++;
	message_done(nic, qp, 1);
}

/*
 * A message that begins abandons one that was not finished, and whatever number it has is the one
 * that was expected. False: the packet belongs to a message that was lost.
 */
static bool
uc_resume(struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	struct sm_recv *rx = &qp->rx;

	if ((h->head >> 24 & SM_PKT_FIRST) == 0)
		return rx->open && rx->pkt == type && h->psn == qp->psn_rx;
	sm_recv_abandon(qp);
	qp->psn_rx = h->psn & SM_PSN_MASK;
	return type == SM_PKT_SEND || type == SM_PKT_WRITE;
}

/* The response to a READ of which the packet @psn is a part, if it is under way; or NULL. */
static struct sm_rd *
response_of(struct sm_qp *qp, uint32_t psn)
{
	struct sm_rd *rd;
	uint32_t i;

	for (i = qp->ans_head; i != qp->ans_tail; i++) {
		rd = &qp->ans[i % SM_RD_MAX];
		if (rd->pkt == SM_PKT_READ_RESP &&
			((psn - rd->psn) & SM_PSN_MASK) < sm_psn_packets(qp, rd->len))
			return rd;
	}
	return NULL;
}

/*
 * The response to a request whose own was lost. A READ is made again, an atomic is remembered. A
 * response that is under way begins anew where it was asked for: its rest is of no use, and if it
 * is long, the requester would not wait for what comes behind it.
 */
static void
respond_again(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	struct sm_rd *rd = type == SM_PKT_READ ? response_of(qp, h->psn & SM_PSN_MASK) : NULL;
	struct sm_rd again = {
		.pkt = type == SM_PKT_READ ? SM_PKT_READ_RESP : SM_PKT_ATOMIC_RESP,
		.epoch = (uint8_t)(h->dst >> 24),
		.psn = h->psn & SM_PSN_MASK,
		.rkey = h->rkey,
		.raddr = h->raddr,
		.len = type == SM_PKT_READ ? h->imm : sizeof(again.value),
	};
	uint32_t i = 1, n = (uint32_t)crpc_min(qp->natomics, SM_RD_MAX);

	if (type != SM_PKT_READ) {
		/* From the newest on: numbers come again. */
		while (i <= n && qp->atomics[(qp->natomics - i) % SM_RD_MAX].psn != again.psn)
			i++;
		if (i > n)
			return;
		again.value = qp->atomics[(qp->natomics - i) % SM_RD_MAX].value;
	} else if ((qp->access & SM_ACCESS_REMOTE_READ) == 0 || h->imm > SM_MSG_MAX ||
		(h->imm != 0 && sm_mem(nic, qp->pd, h->rkey, h->raddr, h->imm,
					SM_ACCESS_REMOTE_READ) == NULL)) {
		return;
	}
	if (rd == NULL && qp->ans_tail - qp->ans_head >= SM_RD_MAX)
		return;
	if (rd == NULL)
		rd = &qp->ans[qp->ans_tail++ % SM_RD_MAX];
	*rd = again;
	answer_later(nic, qp);
}

/*
 * Not the number that is expected. On a good network it never will be. On a bad one a higher number
 * tells of a loss, and what came before is acknowledged or answered again.
 */
static crpc_noinline void
out_of_order(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	if (!nic->lossy) {
		refuse(nic, qp, h, SM_NAK_LOST);
	} else if (sm_psn_diff(h->psn, qp->psn_rx) > 0) {
		refuse(nic, qp, h, SM_NAK_SEQUENCE);
	} else if (type != SM_PKT_SEND && type != SM_PKT_WRITE) {
		respond_again(nic, qp, h, type);
	} else {
		qp->unacked++;
		answer_later(nic, qp);
	}
}

bool
sm_resp_refuse(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why)
{
	uint32_t flags = h->head >> 24, type = h->head >> 16 & 0xff;
	struct sm_qp *qp;

	if (type < SM_PKT_SEND || type > SM_PKT_FETCH_ADD)
		return false;
	if (why == SM_NAK_RNR && (type != SM_PKT_SEND || (flags & SM_PKT_FIRST) == 0) &&
		(type != SM_PKT_WRITE || (~flags & (SM_PKT_LAST | SM_PKT_IMM)) != 0))
		return false;
	qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	/* After a refusal the same comes again, with the number that is expected. */
	if (qp == NULL || qp->type != SM_QPT_RC || qp->peer != peer || qp->dest_qpn != h->src ||
		qp->state < SM_QPS_RTR || qp->state == SM_QPS_ERR || h->psn != qp->psn_rx)
		return false;
	refuse(nic, qp, h, why);
	return true;
}

/*
 * After a refusal: true if the requester has not gone back yet. Where packets come late it may go
 * back further than it was told, to what is only to be acknowledged.
 */
static crpc_noinline bool
still_refused(const struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	if (!nic->lossy)
		qp->refusing = qp->refuse_epoch == h->dst >> 24;
	else if (h->psn == qp->psn_rx)
		qp->refusing = false;
	else
		return sm_psn_diff(h->psn, qp->psn_rx) > 0;
	return qp->refusing;
}

/* The responder of a request that may be done now, or NULL: it was answered, or is dropped. */
static inline __attribute__((always_inline)) struct sm_qp *
request_admit(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, uint8_t type)
{
	struct sm_qp *qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	uint32_t flags = h->head >> 24;

	if (crpc_unlikely(qp == NULL || qp->peer != peer || qp->dest_qpn != h->src)) {
		qp = sm_dct_conn(nic, qp, peer, h);
		if (qp == NULL)
			return NULL;
	}
	nic->serving = qp;
	if (crpc_unlikely(qp->refusing)) {
		if (qp->type == SM_QPT_DCI)
			return NULL;
		if (qp->type == SM_QPT_UC ? !uc_resume(qp, h, type) : still_refused(nic, qp, h))
			return NULL;
	}
	if (crpc_unlikely(qp->state < SM_QPS_RTR || qp->state == SM_QPS_ERR)) {
		sm_peer_nak(peer, h, SM_NAK_LOST);
		return NULL;
	}
	if (crpc_unlikely(h->psn != qp->psn_rx)) {
		out_of_order(nic, qp, h, type);
		return NULL;
	}
	if (crpc_unlikely((flags & SM_PKT_FIRST) ? qp->rx.open
						 : !qp->rx.open || qp->rx.pkt != type)) {
		refuse(nic, qp, h, SM_NAK_INVALID); /* Begun twice, or not at all. */
		return NULL;
	}
	return qp;
}

void
sm_resp_direct(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, struct sm_pull *pull)
{
	uint32_t len = pull->ref.len, flags = h->head >> 24;
	uint8_t type = h->head >> 16 & 0xff;
	struct sm_qp *qp = request_admit(nic, peer, h, type);

	if (qp == NULL)
		return;
	if (type == SM_PKT_WRITE)
		write_any(nic, qp, h, len, flags, NULL, pull);
	else
		send_any(nic, qp, h, len, flags, NULL, pull);
}

void
sm_resp_request(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, const uint8_t *payload)
{
	uint32_t len = h->head & 0xffff, flags = h->head >> 24;
	uint8_t type = h->head >> 16 & 0xff;
	struct sm_qp *qp = request_admit(nic, peer, h, type);

	if (crpc_unlikely(qp == NULL))
		return;
	if (type == SM_PKT_WRITE)
		request_write(nic, qp, h, len, flags, payload);
	else if (type == SM_PKT_SEND)
		request_send(nic, qp, h, len, flags, payload);
	else if (type == SM_PKT_READ)
		request_read(nic, qp, h);
	else if (len == 16)
		request_atomic(nic, qp, h, type == SM_PKT_CMP_SWAP, payload);
	else
		refuse(nic, qp, h, SM_NAK_INVALID);
}

static void
response_count(struct sm_qp *qp, const struct sm_rd *rd, uint32_t len)
{
	if (rd->pkt == SM_PKT_ATOMIC_RESP) {
		qp->n.tx.kind[SM_KIND_ATOMIC_RESP]++;
		return;
	}
	sm_count_piece(&qp->n.tx, len, SM_KIND_READ_RESP, rd->off == 0, qp->mtu_shift);
	if (len != 0)
		sm_count_reads(&qp->n, rd->off, len);
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
	if (k->pd != qp->pd || k->key != rd->rkey) /* A window: it may go without a word. */
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
	struct sm_rd *rd = &qp->ans[qp->ans_head % SM_RD_MAX];
	uint32_t len = (uint32_t)crpc_min(rd->len - rd->off, SM_FRAG), bytes;
	struct sm_tx *tx = &qp->peer->tx;
	const void *src = &rd->value;
	struct sm_pkt_room room;
	struct sm_hdr h = {0};
	struct sm_grant *g;
	bool last, full;

	g = response_grant(nic, qp, rd, &full);
	if (g != NULL)
		len = g->len;
	bytes = g != NULL ? sm_direct_bytes(qp->peer, g) : len;
	if (full || !sm_tx_room(tx, bytes, 0, &room))
		return false;
	nic->serving = qp;
	if (rd->pkt == SM_PKT_READ_RESP && len != 0)
		src = sm_mem(
			nic, qp->pd, rd->rkey, rd->raddr + rd->off, len, SM_ACCESS_REMOTE_READ);
	if (src == NULL) { /* The region went while the response was under way. */
		qp->psn_rx = (rd->psn + (rd->off >> qp->mtu_shift)) & SM_PSN_MASK;
		qp->ans_tail = qp->ans_head;
		refuse(nic, qp, &(struct sm_hdr){.dst = (uint32_t)rd->epoch << 24}, SM_NAK_ACCESS);
		return true;
	}
	if (g != NULL) {
		g->seg[0].addr = (uintptr_t)src;
		sm_direct_put(nic, qp, g, room.payload, bytes);
	} else {
		sm_copy(room.payload, src, len);
	}
	response_count(qp, rd, len);
	rd->off += len;
	last = rd->off == rd->len;
	h.dst = qp->dest_qpn | (uint32_t)rd->epoch << 24;
	h.src = qp->qpn;
	h.psn = (rd->psn + ((rd->off - len) >> qp->mtu_shift)) & SM_PSN_MASK;
	h.raddr = rd->off - len;
	h.imm = qp->msn;
	sm_pkt_put(room.pkt, &h);
	sm_tx_commit(tx, &room, bytes, g != NULL ? SM_PKT_READ_RESP_REF : rd->pkt,
		last ? SM_PKT_LAST : 0);
	if (!last)
		return true;
	qp->ans_head++;
	/* A response acknowledges its request and all before it. */
	if (((rd->psn + sm_psn_packets(qp, rd->len)) & SM_PSN_MASK) == qp->psn_rx)
		qp->unacked = qp->held = 0;
	return true;
}

/*
 * The requester is one of our own: tell it, without a packet. Not while a READ of it is open: the
 * response is in the ring, and what overtakes it would be capped there and never said again.
 */
static bool
ack_own(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_qp *far = sm_qp_find(nic, qp->dest_qpn);

	if (far != NULL && far->dest_qpn == qp->qpn) {
		if (far->rd_head != far->rd_tail)
			return false;
		qp->n.tx.kind[SM_KIND_ACK]++;
		far->n.rx.kind[SM_KIND_ACK]++;
		sm_sq_acked(nic, far, (qp->psn_rx - 1) & SM_PSN_MASK);
	}
	qp->unacked = 0;
	qp->held = 0;
	return true;
}

bool
sm_resp_serve(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_pkt_room room;
	struct sm_hdr h;

	if (crpc_unlikely(qp->peer->dead || qp->type == SM_QPT_UC)) {
		qp->unacked = 0;
		return true;
	}
	/* In the order of the requests: a READ is answered before anything behind it is. */
	for (uint32_t i = 0; qp->ans_head != qp->ans_tail; i++)
		if (i == SERVE_PACKETS || !response_send(nic, qp))
			return false;
	if (qp->nak == 0 && qp->unacked == 0)
		return true;
	if (qp->peer->self && qp->nak == 0 && nic->pcap == NULL && ack_own(nic, qp))
		return true;
	if (!sm_tx_room(&qp->peer->tx, 0, 0, &room))
		return false;
	h.dst = qp->dest_qpn | (uint32_t)qp->refuse_epoch << 24;
	h.src = qp->qpn;
	h.psn = qp->nak != 0 ? qp->psn_rx : (qp->psn_rx - 1) & SM_PSN_MASK;
	h.raddr = qp->msn;
	h.rkey = qp->attr.min_rnr_timer;
	h.imm = qp->nak;
	sm_pkt_put(room.pkt, &h);
	sm_tx_commit(&qp->peer->tx, &room, 0, qp->nak != 0 ? SM_PKT_NAK : SM_PKT_ACK, 0);
	qp->n.tx.kind[SM_KIND_ACK]++;
	qp->nak = 0;
	qp->unacked = 0;
	qp->held = 0;
	return true;
}

void
sm_resp_settle(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_hdr h = {.src = qp->dest_qpn, .dst = qp->qpn};
	bool settled;

	if (!qp->answering || qp->peer == &nic->nowhere)
		return;
	nic->settling = true;
	settled = sm_resp_serve(nic, qp);
	nic->settling = false;
	if (settled)
		return;
	/* No room: let the requester find out by asking again. */
	h.dst |= (uint32_t)(qp->ans_head != qp->ans_tail ? qp->ans[qp->ans_head % SM_RD_MAX].epoch
							 : qp->refuse_epoch) << 24;
	sm_peer_nak(qp->peer, &h, SM_NAK_LOST);
}
