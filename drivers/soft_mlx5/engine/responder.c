/* SPDX-License-Identifier: BSD-3-Clause */

/* Requests: what they do to memory and receive queues. response.c sends the answers. */
#include "cq.h"

/* A request at hand. What handles one returns 0 or why it is refused, an enum sm_nak. */
struct request {
	const struct sm_hdr *h;
	uint32_t len; /* Of its payload ... */
	uint32_t flags;
	const uint8_t *payload; /* ... which is here, or ... */
	struct sm_pull *pull;   /* ... referred to. */
};

/* Where a receive WQE exists that belongs to a message that is refused; @nak. */
static crpc_noinline uint32_t
recv_error(struct sm_nic *nic, struct sm_qp *qp, uint32_t synd, uint32_t nak)
{
	qp->resp.rx.open = false;
	sm_cq_error(nic, qp, MLX5_CQE_RESP_ERR, (uint8_t)synd, qp->resp.rx.counter, 0);
	if (!qp->kind->reliable)
		sm_qp_fail(nic, qp, -1);
	return nak;
}

void
sm_recv_abandon(struct sm_qp *qp)
{
	if (qp->resp.rx.open && qp->resp.rx.pkt == SM_PKT_SEND) {
		if (qp->made.srq == NULL)
			qp->resp.tail--;
		else
			sm_srq_return(qp->made.srq, qp->resp.rx.counter);
	}
	qp->resp.rx.open = false;
}

void
sm_resp_nak(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, enum sm_nak nak)
{
	static const int event[] = {
		[SM_NAK_INVALID] = IBV_EVENT_QP_REQ_ERR,
		[SM_NAK_ACCESS] = IBV_EVENT_QP_ACCESS_ERR,
		[SM_NAK_OP] = -1,
	};
	bool fatal = nak >= SM_NAK_INVALID && nak <= SM_NAK_OP;

	if (!qp->kind->reliable || (fatal && qp->dc.dct != NULL))
		sm_recv_abandon(qp);
	if (!qp->kind->reliable) { /* The rest is dropped without an answer. */
		if (nak == SM_NAK_OP)
			sm_qp_fail(nic, qp, -1);
		return;
	}
	qp->resp.nak = (uint8_t)nak;
	qp->resp.refusing = true;
	qp->resp.refuse_epoch = (uint8_t)(h->dst >> 24);
	sm_turn_add(nic, qp, SM_TURN_ANSWER);
	if (fatal && qp->dc.dct == NULL)
		sm_qp_fail(nic, qp, event[nak]);
}

/* The last @packets of a message were received. */
static inline uint32_t
message_done(struct sm_nic *nic, struct sm_qp *qp, uint32_t packets)
{
	qp->resp.rx.open = false;
	qp->resp.psn = (qp->resp.psn + packets) & SM_PSN_MASK;
	qp->resp.msn++;
	qp->resp.unacked++;
	sm_turn_add(nic, qp, SM_TURN_ANSWER);
	return 0;
}

/* A piece of a message was received that others follow. */
static inline uint32_t
piece_done(struct sm_nic *nic, struct sm_qp *qp, uint32_t len)
{
	qp->resp.psn = (qp->resp.psn + sm_psn_packets(qp, len)) & SM_PSN_MASK;
	if (nic->lossy) { /* The requester need not send again what is here. */
		qp->resp.unacked++;
		sm_turn_add(nic, qp, SM_TURN_ANSWER);
	}
	return 0;
}

/* The message completed a receive WQE. */
static inline uint32_t
recv_done(struct sm_nic *nic, struct sm_qp *qp, const struct request *r, uint8_t op,
	const uint8_t *data)
{
	struct sm_wc wc = {
		.op = op,
		.solicited = (r->flags & SM_PKT_SE) != 0,
		.counter = qp->resp.rx.counter,
		.imm = (r->flags & (SM_PKT_IMM | SM_PKT_INV)) != 0 ? r->h->imm : 0,
		.len = qp->resp.rx.off,
		.src_qpn = qp->dest_qpn,
		.data = data,
	};

	qp->resp.rx.open = false;
	if (crpc_unlikely(!sm_cq_push(nic, qp->made.recv_cq, qp, &wc)))
		return SM_NAK_OP;
	return message_done(nic, qp, sm_psn_packets(qp, r->len));
}

/*
 * Account a packet to the message, which has @total bytes, or, if not @exact, at most so many;
 * false: the lengths contradict each other, or the two sides differ about the path's MTU.
 */
static inline bool
message_step(struct sm_qp *qp, const struct request *r, uint32_t total, bool exact)
{
	struct sm_recv *rx = &qp->resp.rx;

	if (crpc_unlikely(r->len > total - rx->off))
		return false;
	rx->off += r->len;
	if (crpc_likely((r->flags & SM_PKT_LAST) != 0))
		return !exact || rx->off == total;
	return r->len != 0 && (r->len & ((1u << qp->mtu_shift) - 1)) == 0;
}

static uint8_t
send_cqe_op(uint32_t flags)
{
	return (flags & SM_PKT_INV) != 0    ? MLX5_CQE_RESP_SEND_INV
		: (flags & SM_PKT_IMM) != 0 ? MLX5_CQE_RESP_SEND_IMM
					    : MLX5_CQE_RESP_SEND;
}

/* A SEND that fits into its CQE, from where the driver copies it. */
static bool
fits_cqe(const struct sm_qp *qp, const struct request *r)
{
	uint32_t room = SM_INLINE_SCATTER_MAX << (qp->made.recv_cq->log_size == 7);
	uint32_t one = SM_PKT_FIRST | SM_PKT_LAST;

	return qp->made.scatter_cqe && r->pull == NULL && r->len != 0 && r->len <= room &&
		(r->flags & (one | SM_PKT_INV)) == one;
}

/*
 * The bytes that a packet refers to are not to be had: as if it had not come. The requester sends
 * them again, or finds out what became of its memory.
 */
static crpc_noinline uint32_t
stale(struct sm_qp *qp, const struct request *r)
{
	if ((r->flags & SM_PKT_FIRST) != 0)
		sm_recv_abandon(qp);
	return SM_NAK_STALE;
}

static uint32_t
request_send(struct sm_nic *nic, struct sm_qp *qp, const struct request *r)
{
	struct sm_recv *rx = &qp->resp.rx;
	uint8_t data[2 * SM_INLINE_SCATTER_MAX];
	struct sm_cursor before;
	uint32_t synd;

	if ((r->flags & SM_PKT_FIRST) != 0) {
		if (!sm_recv_take(nic, qp))
			return SM_NAK_RNR;
		sm_recv_cursor(qp);
		rx->open = true;
		rx->pkt = SM_PKT_SEND;
		rx->off = 0;
	}
	sm_count_piece(&qp->n.rx, r->len,
		(r->flags & SM_PKT_IMM) != 0 ? SM_KIND_SEND_IMM : SM_KIND_SEND,
		(r->flags & SM_PKT_LAST) != 0, qp->mtu_shift);
	if (fits_cqe(qp, r)) {
		memcpy(data, r->payload, r->len);
		rx->off = r->len;
		return recv_done(nic, qp, r, send_cqe_op(r->flags), data);
	}
	before = rx->cur;
	if (crpc_unlikely(r->pull != NULL))
		r->pull->at = rx->off;
	synd = sm_scatter(nic, qp, sm_recv_pd(qp), &rx->cur, r->payload, r->len, r->pull);
	if (crpc_unlikely(r->pull != NULL && r->pull->syndrome != 0)) {
		rx->cur = before;
		return stale(qp, r);
	}
	if (crpc_unlikely(synd != 0))
		return recv_error(nic, qp, synd,
			synd == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR ? SM_NAK_INVALID : SM_NAK_OP);
	if (!message_step(qp, r, SM_MSG_MAX, false))
		return recv_error(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, SM_NAK_INVALID);
	if ((r->flags & SM_PKT_INV) != 0 &&
		!sm_mw_invalidate(nic, qp, __builtin_bswap32(r->h->imm)))
		return recv_error(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, SM_NAK_ACCESS);
	if ((r->flags & SM_PKT_LAST) == 0)
		return piece_done(nic, qp, r->len);
	return recv_done(nic, qp, r, send_cqe_op(r->flags), NULL);
}

static inline uint32_t
request_write(struct sm_nic *nic, struct sm_qp *qp, const struct request *r)
{
	bool first = (r->flags & SM_PKT_FIRST) != 0, last = (r->flags & SM_PKT_LAST) != 0;
	bool imm = (r->flags & SM_PKT_IMM) != 0;
	struct sm_recv *rx = &qp->resp.rx;
	void *dst = NULL;
	bool ok = true;

	if (first) {
		rx->open = true;
		rx->pkt = SM_PKT_WRITE;
		rx->off = 0;
		rx->raddr = r->h->raddr;
		rx->rkey = r->h->rkey;
		rx->len = last ? r->len : r->h->imm;
		if (!last)
			ok = sm_mem(nic, qp->made.pd, rx->rkey, rx->raddr, rx->len,
				     IBV_ACCESS_REMOTE_WRITE) != NULL;
	}
	if (r->len != 0)
		dst = sm_mem(nic, qp->made.pd, rx->rkey, rx->raddr + rx->off, r->len,
			IBV_ACCESS_REMOTE_WRITE);
	ok = ok && (r->len == 0 || dst != NULL) &&
		(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
	if (crpc_unlikely(!ok)) {
		/* What refers is more than one packet, and the immediate came with the last one. */
		if (imm && (r->pull == NULL || !first) && qp->kind->reliable &&
			sm_recv_take(nic, qp))
			recv_error(nic, qp, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, 0);
		return SM_NAK_ACCESS;
	}
	if (crpc_unlikely(!message_step(qp, r, rx->len, true)))
		return SM_NAK_INVALID;
	if (crpc_unlikely(r->pull != NULL)) {
		if (!sm_pull_to(r->pull, dst, r->len)) {
			rx->off -= r->len;
			return stale(qp, r);
		}
		sm_count_parts(&qp->n, rx->off - r->len, r->len, sm_count_write);
	} else if (r->len != 0) {
		sm_copy(dst, r->payload, r->len);
		sm_count_write(&qp->n, r->len);
	}
	sm_count_piece(&qp->n.rx, r->len, imm ? SM_KIND_WRITE_IMM : SM_KIND_WRITE, last,
		qp->mtu_shift);
	if (!last)
		return piece_done(nic, qp, r->len);
	if (!imm)
		return message_done(nic, qp, sm_psn_packets(qp, r->len));
	if (crpc_likely(sm_recv_take(nic, qp)))
		return recv_done(nic, qp, r, MLX5_CQE_RESP_WR_IMM, NULL);
	/* The packet comes again. Writing twice is harmless. */
	rx->off -= r->len;
	rx->open = !first;
	return SM_NAK_RNR;
}

/* The response to a READ or an atomic. */
static struct sm_rd
rd_make(const struct sm_hdr *h, bool read)
{
	return (struct sm_rd){
		.pkt = read ? SM_PKT_READ_RESP : SM_PKT_ATOMIC_RESP,
		.epoch = (uint8_t)(h->dst >> 24),
		.psn = h->psn & SM_PSN_MASK,
		.rkey = h->rkey,
		.raddr = h->raddr,
		.len = read ? h->imm : sizeof(uint64_t),
	};
}

static bool
read_allowed(const struct sm_nic *nic, const struct sm_qp *qp, const struct sm_hdr *h)
{
	return (qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0 &&
		(h->imm == 0 ||
			sm_mem(nic, qp->made.pd, h->rkey, h->raddr, h->imm,
				IBV_ACCESS_REMOTE_READ) != NULL);
}

/* How many more responses may be pending. */
static uint32_t
answers_room(const struct sm_qp *qp)
{
	uint32_t pending = qp->resp.ans_tail - qp->resp.ans_head, max = qp->attr.max_dest_rd_atomic;

	return pending < max ? max - pending : 0;
}

static uint32_t
request_read(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	if (answers_room(qp) == 0 || h->imm > SM_MSG_MAX)
		return SM_NAK_INVALID;
	if (!read_allowed(nic, qp, h))
		return SM_NAK_ACCESS;
	qp->resp.ans[qp->resp.ans_tail++ % SM_RD_MAX] = rd_make(h, true);
	qp->n.rx.kind[SM_KIND_READ]++;
	return message_done(nic, qp, sm_psn_packets(qp, h->imm));
}

/* What the atomic did that is @n-th from the last one on. */
static struct sm_atomic *
atomic_before(struct sm_qp *qp, uint32_t n)
{
	return &qp->resp.atomics[(qp->resp.natomics - n) % SM_RD_MAX];
}

static uint32_t
request_atomic(struct sm_nic *nic, struct sm_qp *qp, const struct request *r, bool cas)
{
	struct sm_rd *rd = &qp->resp.ans[qp->resp.ans_tail % SM_RD_MAX];
	const struct sm_hdr *h = r->h;
	_Atomic uint64_t *word;
	uint64_t arg[2];

	if (r->len != sizeof(arg) || answers_room(qp) == 0 || h->raddr % 8 != 0)
		return SM_NAK_INVALID;
	word = sm_mem(nic, qp->made.pd, h->rkey, h->raddr, sizeof(*word), IBV_ACCESS_REMOTE_ATOMIC);
	if (word == NULL || (uintptr_t)word % 8 != 0 ||
		(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0)
		return SM_NAK_ACCESS;
	memcpy(arg, r->payload, sizeof(arg));
	*rd = rd_make(h, false);
	if (cas) {
		rd->value = arg[1];
		crpc_cas_acq_rel(word, &rd->value, arg[0]);
	} else {
		rd->value = crpc_fetch_add_acq_rel(word, arg[0]);
	}
	qp->resp.natomics++;
	*atomic_before(qp, 1) = (struct sm_atomic){rd->psn, rd->value};
	qp->n.rx.kind[SM_KIND_ATOMIC]++;
	sm_count_read(&qp->n, sizeof(rd->value));
	sm_count_write(&qp->n, sizeof(rd->value));
	qp->resp.ans_tail++;
	return message_done(nic, qp, 1);
}

/*
 * A message that begins abandons one that was not finished, and whatever number it has is the one
 * that was expected. False: the packet belongs to a message that was lost.
 */
static bool
uc_resume(struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	struct sm_recv *rx = &qp->resp.rx;

	if ((h->head >> 24 & SM_PKT_FIRST) == 0)
		return rx->open && rx->pkt == type && h->psn == qp->resp.psn;
	sm_recv_abandon(qp);
	qp->resp.psn = h->psn & SM_PSN_MASK;
	return sm_pkt_kinds[type].data;
}

/* The response to a READ of which the packet @psn is a part, if it is under way; or NULL. */
static struct sm_rd *
response_of(struct sm_qp *qp, uint32_t psn)
{
	struct sm_rd *rd;

	for (uint32_t i = qp->resp.ans_head; i != qp->resp.ans_tail; i++) {
		rd = &qp->resp.ans[i % SM_RD_MAX];
		if (rd->pkt == SM_PKT_READ_RESP &&
			((psn - rd->psn) & SM_PSN_MASK) < sm_psn_packets(qp, rd->len))
			return rd;
	}
	return NULL;
}

/*
 * The response to a request whose own was lost. A READ is made again, an atomic is remembered. A
 * response that is under way begins again where it was asked for: its rest is of no use, and if it
 * is long, the requester would not wait for what comes behind it.
 */
static void
respond_again(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	bool read = type == SM_PKT_READ;
	struct sm_rd *rd = read ? response_of(qp, h->psn & SM_PSN_MASK) : NULL;
	struct sm_rd again = rd_make(h, read);
	uint32_t i = 1, n = (uint32_t)crpc_min(qp->resp.natomics, SM_RD_MAX);

	if (read && (h->imm > SM_MSG_MAX || !read_allowed(nic, qp, h)))
		return;
	if (!read) {
		/* From the newest on: numbers come again. */
		while (i <= n && atomic_before(qp, i)->psn != again.psn)
			i++;
		if (i > n)
			return;
		again.value = atomic_before(qp, i)->value;
	}
	if (rd == NULL && qp->resp.ans_tail - qp->resp.ans_head >= SM_RD_MAX)
		return;
	if (rd == NULL)
		rd = &qp->resp.ans[qp->resp.ans_tail++ % SM_RD_MAX];
	*rd = again;
	sm_turn_add(nic, qp, SM_TURN_ANSWER);
}

/*
 * Not the number that is expected. On a good network it never will be. On a bad one a higher number
 * shows a loss, and what came before is acknowledged or answered again.
 */
static crpc_noinline void
out_of_order(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint8_t type)
{
	if (!nic->lossy) {
		sm_resp_nak(nic, qp, h, SM_NAK_LOST);
	} else if (sm_psn_diff(h->psn, qp->resp.psn) > 0) {
		sm_resp_nak(nic, qp, h, SM_NAK_SEQUENCE);
	} else if (!sm_pkt_kinds[type].data) {
		respond_again(nic, qp, h, type);
	} else {
		qp->resp.unacked++;
		sm_turn_add(nic, qp, SM_TURN_ANSWER);
	}
}

bool
sm_resp_refuse(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why)
{
	uint32_t flags = h->head >> 24, type = sm_pkt_type(h->head);
	struct sm_qp *qp;

	if (sm_pkt_kind(h->head)->group != SM_PKTS_REQUEST)
		return false;
	if (why == SM_NAK_RNR && (type != SM_PKT_SEND || (flags & SM_PKT_FIRST) == 0) &&
		(type != SM_PKT_WRITE || (~flags & (SM_PKT_LAST | SM_PKT_IMM)) != 0))
		return false;
	qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	/* After a refusal the same comes again, with the number that is expected. */
	if (qp == NULL || qp->kind->takes != SM_TAKES_IN_ORDER || qp->peer != peer ||
		qp->far != h->src || qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR ||
		h->psn != qp->resp.psn)
		return false;
	sm_resp_nak(nic, qp, h, why);
	return true;
}

/*
 * After a refusal: true if the requester has not gone back yet. Where packets come late it may go
 * back further than it was asked to, to what is only to be acknowledged.
 */
static crpc_noinline bool
still_refused(const struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	if (!nic->lossy)
		qp->resp.refusing = qp->resp.refuse_epoch == h->dst >> 24;
	else if (h->psn == qp->resp.psn)
		qp->resp.refusing = false;
	else
		return sm_psn_diff(h->psn, qp->resp.psn) > 0;
	return qp->resp.refusing;
}

/* The responder of a request that may be done now, or NULL: it was answered, or is dropped. */
static inline __attribute__((always_inline)) struct sm_qp *
request_admit(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, uint8_t type)
{
	struct sm_qp *qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);
	uint32_t flags = h->head >> 24;

	if (crpc_unlikely(qp == NULL || qp->peer != peer || qp->far != h->src)) {
		qp = sm_dct_conn(nic, qp, peer, h);
		if (qp == NULL)
			return NULL;
	}
	nic->serving = qp;
	if (crpc_unlikely(qp->resp.refusing)) {
		if (qp->kind->takes == SM_TAKES_NOTHING)
			return NULL;
		if (qp->kind->takes == SM_TAKES_NEWEST ? !uc_resume(qp, h, type)
						       : still_refused(nic, qp, h))
			return NULL;
	}
	if (crpc_unlikely(qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR)) {
		sm_peer_nak(peer, h, SM_NAK_LOST);
		return NULL;
	}
	if (crpc_unlikely(h->psn != qp->resp.psn)) {
		out_of_order(nic, qp, h, type);
		return NULL;
	}
	if (crpc_unlikely((flags & SM_PKT_FIRST) ? qp->resp.rx.open
						 : !qp->resp.rx.open || qp->resp.rx.pkt != type)) {
		sm_resp_nak(nic, qp, h, SM_NAK_INVALID); /* Begun twice, or not at all. */
		return NULL;
	}
	return qp;
}

void
sm_resp_request(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h,
	const uint8_t *payload, struct sm_pull *pull)
{
	struct request r = {
		.h = h,
		.len = crpc_likely(pull == NULL) ? h->head & 0xffff : (uint32_t)pull->ref.len,
		.flags = h->head >> 24,
		.payload = payload,
		.pull = pull,
	};
	uint8_t type = (uint8_t)sm_pkt_type(h->head);
	struct sm_qp *qp = request_admit(nic, peer, h, type);
	uint32_t nak;

	if (crpc_unlikely(qp == NULL))
		return;
	if (type == SM_PKT_WRITE)
		nak = request_write(nic, qp, &r);
	else if (type == SM_PKT_SEND)
		nak = request_send(nic, qp, &r);
	/* What came twice, or before the requester went back, fills the queue: it asks again. */
	else if (nic->lossy && answers_room(qp) == 0)
		return;
	else if (type == SM_PKT_READ)
		nak = request_read(nic, qp, h);
	else
		nak = request_atomic(nic, qp, &r, type == SM_PKT_CMP_SWAP);
	if (crpc_unlikely(nak != 0))
		sm_resp_nak(nic, qp, h, (enum sm_nak)nak);
}
