/* SPDX-License-Identifier: BSD-3-Clause */

/* The send queue's way out: doorbells, WQEs, request packets. What comes back is for answer.c. */
#include "cq.h"
#include "fault.h"

/* Packets that one queue pair sends in one pass before another has its turn. */
#define SERVE_PACKETS 32u
/* Packets that a requester has open where they overflow somewhere: of a socket here. */
#define PACE 64

/* Units of 16 bytes of a UMR WQE that count: control, key, and the memory that it names. */
#define UMR_UNITS 8u

/* What an opcode becomes on the wire. */
struct op {
	uint8_t types; /* Queue pairs that have it: of enum sm_qp_type. */
	uint8_t pkt;   /* enum sm_pkt_type. */
	uint8_t last;  /* Flags of the last packet. */
	uint8_t units; /* 16-byte units between the ctrl segment and the data segments. */
	uint8_t wait;  /* What completes it. */
	bool simple;   /* May take the short way. */
	uint8_t kind;  /* enum sm_kind. */
	uint8_t spare; /* To a power of two, by which an index is scaled at once. */
};

#define CONNECTED (SM_RC | SM_DCI)
#define WRITERS   (CONNECTED | SM_UC)
#define ALL       (WRITERS | SM_UD)
#define LAST      SM_PKT_LAST

static const struct op ops[64] = {
	[MLX5_OPCODE_NOP] = {ALL, SM_PKT_PAD, 0, 0, SM_SWR_DONE},
	[MLX5_OPCODE_SEND] = {ALL, SM_PKT_SEND, LAST, 0, SM_SWR_ACK, true, SM_KIND_SEND},
	[MLX5_OPCODE_SEND_IMM] = {ALL, SM_PKT_SEND, LAST | SM_PKT_IMM, 0, SM_SWR_ACK, true,
		SM_KIND_SEND_IMM},
	[MLX5_OPCODE_SEND_INVAL] = {CONNECTED, SM_PKT_SEND, LAST | SM_PKT_INV, 0, SM_SWR_ACK, false,
		SM_KIND_SEND_IMM},
	[MLX5_OPCODE_RDMA_WRITE] = {WRITERS, SM_PKT_WRITE, LAST, 1, SM_SWR_ACK, true,
		SM_KIND_WRITE},
	[MLX5_OPCODE_RDMA_WRITE_IMM] = {WRITERS, SM_PKT_WRITE, LAST | SM_PKT_IMM, 1, SM_SWR_ACK,
		true, SM_KIND_WRITE_IMM},
	[MLX5_OPCODE_RDMA_READ] = {CONNECTED, SM_PKT_READ, LAST, 1, SM_SWR_RESPONSE, false,
		SM_KIND_READ},
	[MLX5_OPCODE_ATOMIC_CS] = {CONNECTED, SM_PKT_CMP_SWAP, LAST, 2, SM_SWR_RESPONSE, false,
		SM_KIND_ATOMIC},
	[MLX5_OPCODE_ATOMIC_FA] = {CONNECTED, SM_PKT_FETCH_ADD, LAST, 2, SM_SWR_RESPONSE, false,
		SM_KIND_ATOMIC},
	[MLX5_OPCODE_UMR] = {SM_RC, SM_PKT_PAD, 0, 0, SM_SWR_DONE},
};

static inline uint8_t *
sq_wqe(const struct sm_qp *qp, uint16_t bb)
{
	return qp->made.sq_buf + (size_t)(bb & (qp->made.sq_nwqebb - 1)) * SM_WQEBB;
}

/* Unit @i of 16 bytes of the WQE at @bb. */
static inline const uint8_t *
sq_unit(const struct sm_qp *qp, uint16_t bb, uint32_t i)
{
	const uint8_t *end = qp->made.sq_buf + (size_t)qp->made.sq_nwqebb * SM_WQEBB;
	const uint8_t *seg = sq_wqe(qp, bb) + 16 * (size_t)i;

	return seg >= end ? qp->made.sq_buf + (seg - end) : seg;
}

/* Units of the address vector of a WQE, which follows ctrl. */
static inline uint32_t
av_units(const struct sm_qp *qp, const uint8_t *wqe, uint8_t op)
{
	if (!sm_qp_has_av(qp) || op == MLX5_OPCODE_NOP)
		return 0;
	return (wqe[16 + offsetof(struct mlx5_wqe_av, dqp_dct)] & 0x80) != 0 ? 3 : 1;
}

static inline bool
is_datagram(const struct sm_qp *qp)
{
	return qp->kind->sends == SM_SENDS_DATAGRAMS;
}

void
sm_sq_cursor(const struct sm_qp *qp, uint16_t bb, struct sm_cursor *cur)
{
	const uint8_t *wqe = sq_wqe(qp, bb);
	uint32_t ds = sm_be32(wqe + 4) & 0x3f, op = wqe[3];
	uint32_t units = 1 + ops[op & (CRPC_DIM(ops) - 1)].units + av_units(qp, wqe, wqe[3]);

	*cur = (struct sm_cursor){
		.seg = sq_unit(qp, bb, units),
		.wrap = qp->made.sq_buf + (size_t)qp->made.sq_nwqebb * SM_WQEBB,
		.base = qp->made.sq_buf,
		.left = ds > units ? ds - units : 0,
	};
}

void
sm_sq_activate(struct sm_nic *nic, struct sm_qp *qp)
{
	if (!qp->req.halted && !qp->on[SM_TURN_WAIT] && qp->state == IBV_QPS_RTS &&
		(qp->req.taken != qp->req.head || qp->req.tx.started))
		sm_turn_add(nic, qp, SM_TURN_SEND);
}

void
sm_sq_ring(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->state != IBV_QPS_RTS || qp->made.sq_nwqebb == 0)
		return;
	qp->req.head = (uint16_t)sm_dbrec(&qp->dbrec[1]);
	if (crpc_unlikely((uint16_t)(qp->req.head - qp->req.taken) > qp->made.sq_nwqebb)) {
		sm_qp_fail(nic, qp, IBV_EVENT_QP_FATAL);
		return;
	}
	if (qp->on[SM_TURN_SEND] || qp->req.halted || qp->on[SM_TURN_WAIT])
		return;
	if (sm_sq_serve(nic, qp))
		sm_sq_activate(nic, qp);
}

void
sm_sq_taken(struct sm_qp *qp)
{
	qp->req.swr[qp->req.wr_tx & (qp->made.sq_nwqebb - 1)] = qp->req.tx.swr;
	qp->req.wr_tx++;
	qp->req.taken = (uint16_t)(qp->req.taken + qp->req.tx.nbb);
	qp->req.tx.started = false;
}

/* The address vector in @units at @bb; its first unit lies in the block of ctrl. */
static void
av_parse(const struct sm_nic *nic, const struct sm_qp *qp, uint16_t bb, uint32_t units,
	struct sm_av *av)
{
	const uint8_t *base = sq_wqe(qp, bb) + 16, *more = sq_unit(qp, bb, 2);
	uint32_t flow;

	av->qpn = sm_be32(base + 8) & SM_PSN_MASK;
	av->dlid = sm_be16(base + 14);
	av->grh = 0;
	av->kind = 0;
	if (qp->kind->sends == SM_SENDS_TO_TARGETS) {
		av->key = sm_be64(base);
	} else {
		av->key = sm_be32(base);
		if ((av->key >> 31) != 0) /* A privileged key: the queue pair's own. */
			av->key = qp->attr.qkey;
	}
	if (units != 3)
		return;
	flow = sm_be32(more + 12);
	/* On Ethernet there is always one, and no bit for it. */
	if (flow >> 30 == 0 && !nic->attr.ethernet)
		return;
	av->kind = sm_gid_kind(nic, (uint8_t)(flow >> 20));
	av->grh = SM_GRH_PRESENT | (uint64_t)more[11] << 32 | (uint32_t)more[10] << 20 |
		(flow & 0xfffff);
	av->dgid = sq_unit(qp, bb, 3);
}

/* Read the ctrl segment of the next WQE into qp->req.tx; false: it is malformed. */
static bool
wqe_parse(const struct sm_nic *nic, struct sm_qp *qp)
{
	const uint8_t *wqe = sq_wqe(qp, qp->req.taken), *seg;
	struct sm_send *t = &qp->req.tx;
	uint32_t w0 = sm_be32(wqe), w1 = sm_be32(wqe + 4), ds = w1 & 0x3f;
	uint32_t nbb = (ds + 3) / 4;
	uint8_t op = (uint8_t)w0, fm = wqe[11];
	uint32_t av = av_units(qp, wqe, op);
	bool ok = (uint16_t)(w0 >> 8) == qp->req.taken && w1 >> 8 == qp->qpn && ds != 0 &&
		nbb <= (uint16_t)(qp->req.head - qp->req.taken) && w0 >> 24 == 0 &&
		op < CRPC_DIM(ops) && (ops[op].types & qp->kind->type) != 0 &&
		ds > av + ops[op].units;

	t->nbb = (uint8_t)(nbb == 0 || nbb > (uint16_t)(qp->req.head - qp->req.taken) ? 1 : nbb);
	t->swr = (struct sm_swr){
		.psn = qp->req.psn,
		.bb = qp->req.taken,
		.op = op,
		.signaled = (fm & MLX5_WQE_CTRL_CQ_UPDATE) != 0,
		.stream = sm_be16(wqe + offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id)),
	};
	if (!ok)
		return false;
	t->swr.wait = is_datagram(qp) ? SM_SWR_DONE : ops[op].wait;
	t->pkt = ops[op].pkt;
	t->last = (uint8_t)(ops[op].last | ((fm & MLX5_WQE_CTRL_SOLICITED) ? SM_PKT_SE : 0));
	t->fence = fm >> 5 >= 2;
	memcpy(&t->imm, wqe + 12, sizeof(t->imm));
	t->off = 0;
	sm_sq_cursor(qp, qp->req.taken, &t->cur);
	if (av != 0)
		av_parse(nic, qp, qp->req.taken, av, &t->av);
	if (ops[op].units != 0) {
		seg = sq_unit(qp, qp->req.taken, 1 + av);
		t->raddr = sm_be64(seg);
		t->rkey = sm_be32(seg + 8);
	}
	if (ops[op].units == 2) {
		seg = sq_unit(qp, qp->req.taken, 2 + av);
		t->atomic[0] = sm_be64(seg);
		t->atomic[1] = sm_be64(seg + 8);
	}
	return true;
}

/*
 * The length of the WQE at hand, which was read, and so the number of its last packet; the peer may
 * have the first ones. UINT64_MAX: it has none.
 */
static uint64_t
wqe_span(struct sm_qp *qp)
{
	struct sm_send *t = &qp->req.tx;
	uint64_t total = sm_cursor_total(&t->cur);

	t->swr.len = (uint32_t)total;
	if (total <= SM_MSG_MAX)
		t->swr.psn = (t->swr.psn - qp->req.resume + sm_psn_packets(qp, t->swr.len) - 1) &
			SM_PSN_MASK;
	return total;
}

enum sm_step
sm_sq_fail(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd)
{
	/* What is flushed never left: it has one number, however long it is. */
	if (synd != MLX5_CQE_SYNDROME_WR_FLUSH_ERR && !qp->req.tx.started && wqe_parse(nic, qp))
		wqe_span(qp);
	qp->req.tx.swr.wait = SM_SWR_DONE;
	qp->req.tx.swr.syndrome = synd;
	qp->req.halted = true;
	sm_sq_taken(qp);
	sm_sq_complete(nic, qp);
	return qp->req.halted ? SM_STEP_BLOCKED : SM_STEP_FULL;
}

/* Bind or invalidate a memory window: 0 or a syndrome. */
static crpc_noinline uint32_t
wqe_umr(struct sm_nic *nic, struct sm_qp *qp)
{
	uint8_t umr[UMR_UNITS * 16] = {0};
	uint32_t units = (uint32_t)crpc_min(qp->req.tx.cur.left, UMR_UNITS);

	for (uint32_t i = 0; i < units; i++)
		memcpy(umr + (size_t)i * 16, sq_unit(qp, qp->req.taken, 1 + i), 16);
	return sm_mw_umr(nic, qp, __builtin_bswap32(qp->req.tx.imm), umr, units);
}

/* The peer has the first packets of the WQE at hand; false: it has changed since. */
static crpc_noinline bool
wqe_resume(const struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->req.tx;
	uint64_t off = (uint64_t)qp->req.resume << qp->mtu_shift;

	qp->req.resume = 0;
	sm_qp_way(nic, qp);
	if (off >= t->swr.len)
		return false;
	t->off = (uint32_t)off;
	return sm_cursor_skip(&t->cur, t->off);
}

static enum sm_step
wqe_begin(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->req.tx;
	uint64_t total;

	if (crpc_unlikely(!wqe_parse(nic, qp)))
		return sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	if (t->fence && qp->req.rd_head != qp->req.rd_tail)
		return SM_STEP_BLOCKED;
	if (crpc_unlikely(t->swr.op == MLX5_OPCODE_UMR)) {
		uint32_t synd;

		if (qp->req.wr_done != qp->req.wr_tx) { /* So that it is never done again. */
			qp->req.wakes = true;
			return SM_STEP_BLOCKED;
		}
		synd = wqe_umr(nic, qp);
		if (synd != 0) {
			t->started = true;
			return sm_sq_fail(nic, qp, (uint8_t)synd);
		}
	}
	if (t->pkt == SM_PKT_PAD) { /* Completes in its turn, is not seen on the wire. */
		sm_sq_taken(qp);
		sm_sq_complete(nic, qp);
		return SM_STEP_ON;
	}
	if (t->swr.wait == SM_SWR_RESPONSE && qp->attr.max_rd_atomic != 0 &&
		qp->req.rd_tail - qp->req.rd_head >= qp->attr.max_rd_atomic)
		return SM_STEP_BLOCKED;
	if (crpc_unlikely(qp->kind->sends == SM_SENDS_TO_TARGETS)) {
		enum sm_step step = sm_dci_connect(nic, qp);

		if (step != SM_STEP_ON)
			return step;
	}
	t->started = true;
	total = wqe_span(qp);
	if (crpc_unlikely(nic->fault != NULL) && sm_fault_prot(nic->fault, qp))
		return sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	if (crpc_unlikely(total == UINT64_MAX ||
		    (t->swr.wait == SM_SWR_RESPONSE && qp->attr.max_rd_atomic == 0) ||
		    (qp->req.resume != 0 && !wqe_resume(nic, qp))))
		return sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	if (crpc_unlikely(total > (is_datagram(qp) ? 128u << nic->attr.mtu : SM_MSG_MAX) ||
		    (ops[t->swr.op].units == 2 && total != 8)))
		return sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	return SM_STEP_ON;
}

/* Payload of the next packet of the WQE at hand. */
static inline uint32_t
packet_len(const struct sm_send *t)
{
	if (!sm_pkt_kinds[t->pkt].data)
		return t->pkt == SM_PKT_READ ? 0 : sizeof(t->atomic);
	return (uint32_t)crpc_min(t->swr.len - t->off, SM_FRAG);
}

/*
 * A grant for the next piece of the WQE at hand, and its segments behind that piece; NULL, and not
 * @full: its bytes go through the ring, which also finds out what may be wrong with them.
 */
static struct sm_grant *
wqe_grant(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, bool *full)
{
	struct sm_grant *g = sm_direct_begin(nic, qp, qp->req.tx.swr.len - qp->req.tx.off, full);

	*cur = qp->req.tx.cur;
	return g != NULL && sm_gather(nic, qp, cur, NULL, g->len, g) == 0 ? g : NULL;
}

static void
wqe_grant_put(struct sm_nic *nic, struct sm_qp *qp, struct sm_grant *g, void *payload)
{
	uint32_t at = qp->req.tx.off;

	for (uint32_t i = 0; i < g->nseg; i++) {
		sm_count_parts(&qp->n, at, (uint32_t)g->seg[i].len, sm_count_read);
		at += (uint32_t)g->seg[i].len;
	}
	sm_direct_put(nic, qp, g, payload);
}

static enum sm_step
wqe_send(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->req.tx;
	struct sm_tx *tx = &qp->peer->tx;
	uint32_t len = packet_len(t), flags = t->off == 0 ? SM_PKT_FIRST : 0, synd, bytes = len;
	bool data = sm_pkt_kinds[t->pkt].data, full = false;
	struct sm_grant *g = NULL;
	struct sm_cursor cur;
	struct sm_pkt_room room;
	struct sm_hdr h;

	if (data)
		g = wqe_grant(nic, qp, &cur, &full);
	if (g != NULL) {
		len = g->len;
		bytes = sizeof(struct sm_ref);
	}
	if (full || !sm_tx_room(tx, bytes, SM_RING_RESERVE, &room))
		return SM_STEP_FULL;
	if (g != NULL) {
		wqe_grant_put(nic, qp, g, room.payload);
		t->cur = cur;
		t->off += len;
	} else if (data) {
		synd = sm_gather(nic, qp, &t->cur, room.payload, len, NULL);
		if (crpc_unlikely(synd != 0))
			return sm_sq_fail(nic, qp, (uint8_t)synd);
		t->off += len;
	} else if (len != 0) {
		memcpy(room.payload, t->atomic, sizeof(t->atomic));
	}
	if (!data || t->off == t->swr.len)
		flags |= t->last | (data ? 0 : SM_PKT_FIRST);
	h.dst = qp->dest_qpn | (uint32_t)qp->req.epoch << 24;
	h.src = qp->from;
	h.psn = qp->req.psn;
	h.raddr = t->raddr;
	h.rkey = t->rkey;
	h.imm = data && (flags & SM_PKT_LAST) != 0 ? t->imm : t->swr.len;
	if (!data && t->off != 0) { /* The rest of a READ. */
		h.raddr += t->off;
		h.imm -= t->off;
	}
	sm_tx_commit(tx, &room, &h, bytes, g == NULL ? t->pkt : sm_pkt_kinds[t->pkt].ref, flags);
	sm_count_piece(&qp->n.tx, data ? len : 0, ops[t->swr.op].kind, (flags & SM_PKT_FIRST) != 0,
		qp->mtu_shift);
	if ((flags & SM_PKT_LAST) == 0) {
		qp->req.psn = (qp->req.psn + sm_psn_packets(qp, len)) & SM_PSN_MASK;
		return SM_STEP_ON;
	}
	if (!data)
		qp->req.rd_wr[qp->req.rd_tail++ % SM_RD_MAX] = qp->req.wr_tx;
	qp->req.psn = (t->swr.psn + 1) & SM_PSN_MASK;
	sm_sq_taken(qp);
	return SM_STEP_ON;
}

/* The data of the WQE at hand if it is one piece of one packet: NULL if not, or not to be had. */
static inline const void *
wqe_data_simple(struct sm_nic *nic, const struct sm_qp *qp, const uint8_t *seg, uint32_t left,
	uint32_t *len)
{
	uint32_t count = sm_be32(seg);

	if ((count & MLX5_INLINE_SEG) != 0) {
		*len = count & 0x3ff;
		return (4 + *len + 15) / 16 == left ? seg + 4 : NULL;
	}
	*len = count;
	return left == 1 && count - 1 < SM_FRAG
		? sm_mem(nic, qp->made.pd, sm_be32(seg + 4), sm_be64(seg + 8), count, 0)
		: NULL;
}

/*
 * The short way of a well-formed SEND or WRITE of one packet. Whatever is not that returns false
 * with nothing done and takes the long way, which knows all cases and names the errors.
 */
static bool
wqe_simple(struct sm_nic *nic, struct sm_qp *qp)
{
	const uint8_t *wqe = sq_wqe(qp, qp->req.taken);
	const uint8_t *end = qp->made.sq_buf + (size_t)qp->made.sq_nwqebb * SM_WQEBB;
	uint32_t w0 = sm_be32(wqe), w1 = sm_be32(wqe + 4), ds = w1 & 0x3f, len, flags;
	uint32_t nbb = (ds + 3) / 4;
	const struct op *op = &ops[w0 & (CRPC_DIM(ops) - 1)];
	struct sm_pkt_room room;
	struct sm_swr *swr;
	struct sm_hdr h;
	const uint8_t *data;
	const void *src;
	uint8_t fm = wqe[11];

	if (!op->simple || (w0 & 0xff) >= CRPC_DIM(ops) || w0 >> 8 != qp->req.taken ||
		w1 >> 8 != qp->req.simple_qpn || fm >> 5 >= 2 || ds < 2u + op->units ||
		(size_t)(end - wqe) < 16 * (size_t)ds ||
		nbb > (uint16_t)(qp->req.head - qp->req.taken))
		return false;
	data = wqe + 16 + 16 * op->units;
	src = wqe_data_simple(nic, qp, data, ds - 1 - op->units, &len);
	if (src == NULL || !sm_tx_room(&qp->peer->tx, len, SM_RING_RESERVE, &room))
		return false;
	if (src != data + 4) /* Inline data came with the WQE. */
		sm_count_read(&qp->n, len);
	sm_copy(room.payload, src, len);
	flags = SM_PKT_FIRST | op->last | ((fm & MLX5_WQE_CTRL_SOLICITED) ? SM_PKT_SE : 0);
	memcpy(&h.imm, wqe + 12, sizeof(h.imm));
	h.dst = qp->dest_qpn | (uint32_t)qp->req.epoch << 24;
	h.src = qp->req.simple_qpn; /* The same here, and at hand. */
	h.psn = qp->req.psn;
	h.raddr = sm_be64(wqe + 16); /* Of a SEND: not looked at. */
	h.rkey = sm_be32(wqe + 24);
	sm_tx_commit(&qp->peer->tx, &room, &h, len, op->pkt, flags);
	swr = &qp->req.swr[qp->req.wr_tx++ & (qp->made.sq_nwqebb - 1)];
	sm_count_piece(&qp->n.tx, len, op->kind, true, qp->mtu_shift);
	swr->psn = h.psn + sm_psn_packets(qp, len) - 1;
	qp->req.psn = (swr->psn + 1) & SM_PSN_MASK;
	swr->len = len;
	swr->bb = qp->req.taken;
	swr->op = (uint8_t)w0;
	swr->wait = SM_SWR_ACK;
	swr->syndrome = 0;
	swr->signaled = (fm & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
	qp->req.taken = (uint16_t)(qp->req.taken + nbb);
	return true;
}

/* The peer is dead. True: something can go on nevertheless. */
static crpc_noinline bool
serve_dead(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->kind->reliable) {
		sm_sq_peer_dead(nic, qp);
		return qp->peer == &nic->nowhere;
	}
	/* It never learns. */
	if (!qp->req.tx.started && wqe_begin(nic, qp) != SM_STEP_ON)
		return false;
	qp->req.tx.swr.wait = SM_SWR_DONE;
	if (qp->req.tx.started)
		sm_sq_taken(qp);
	return true;
}

/* A packet of a WQE for which the short way is none. */
static crpc_noinline enum sm_step
wqe_long(struct sm_nic *nic, struct sm_qp *qp)
{
	enum sm_step step = SM_STEP_ON;

	/* On till it hears of them. */
	if (crpc_unlikely(nic->udp != NULL) && qp->kind->reliable &&
		sm_psn_diff(qp->req.psn, qp->req.acked) > PACE)
		return SM_STEP_BLOCKED;
	if (!qp->req.tx.started)
		step = wqe_begin(nic, qp);
	if (step != SM_STEP_ON || !qp->req.tx.started)
		return step;
	return is_datagram(qp) ? sm_datagram_send(nic, qp) : wqe_send(nic, qp);
}

static inline bool
sq_serve(struct sm_nic *nic, struct sm_qp *qp)
{
	for (uint32_t i = 0; i < SERVE_PACKETS; i++) {
		enum sm_step step;

		if (!qp->req.tx.started && qp->req.taken == qp->req.head)
			return false;
		if (qp->req.halted || qp->on[SM_TURN_WAIT] ||
			(qp->state != IBV_QPS_RTS && !qp->req.tx.started))
			return false;
		if (crpc_unlikely(qp->peer->dead))
			return serve_dead(nic, qp);
		if (qp->req.tx.started || !wqe_simple(nic, qp)) {
			step = wqe_long(nic, qp);
			if (step != SM_STEP_ON)
				return step == SM_STEP_FULL;
		}
		nic->work++;
	}
	return true;
}

bool
sm_sq_serve(struct sm_nic *nic, struct sm_qp *qp)
{
	uint16_t first = qp->req.taken, run;
	bool more = sq_serve(nic, qp);

	/* WQEs that lie together are fetched together. */
	run = (uint16_t)(qp->req.taken - first);
	if (crpc_likely(run - 1u < qp->made.sq_nwqebb)) {
		qp->n.wqe_blocks += run;
		qp->n.wqe_reads += (run + SM_TLP_READ / SM_WQEBB - 1u) / (SM_TLP_READ / SM_WQEBB);
	}
	if (crpc_unlikely(!qp->kind->reliable)) { /* Sent is done. */
		qp->req.acked = (qp->req.psn - 1) & SM_PSN_MASK;
		sm_sq_complete(nic, qp);
	}
	return more;
}
