/* SPDX-License-Identifier: BSD-3-Clause */

/* This file is long because sending, answers and going back share the state of a send queue. */
#include "priv.h"

/* Packets that one queue pair sends in one pass before another has its turn. */
#define SERVE_PACKETS 32u
/* How often a requester tries again whose timeout attribute is 0, "for ever". */
#define RETRY_FOREVER_NS UINT64_C(10000000)
/* Packets that a requester has open where they overflow somewhere: of a socket here. */
#define PACE 64
/*
 * Who finds nobody asks so often within one timeout: the far side is most often about to be ready,
 * and a card's timeouts of tenths of a second are meant for networks.
 */
#define LOST_PARTS 32u

/* Units of 16 bytes of a UMR WQE that count: control, key, and the memory that it names. */
#define UMR_UNITS 8u

/* What an opcode becomes on the wire. */
struct op {
	uint8_t pkt;   /* enum sm_pkt_type; NONE: not an opcode of ours. */
	uint8_t last;  /* Flags of the last packet. */
	uint8_t units; /* 16-byte units between the ctrl segment and the data segments. */
	uint8_t wait;  /* What completes it. */
	bool simple;   /* May take the short way. */
	uint8_t kind;  /* enum sm_kind. */
	uint8_t spare[2]; /* To a power of two, by which an index is scaled at once. */
};

static const struct op ops[64] = {
	[SM_OP_NOP] = {SM_PKT_PAD, 0, 0, SM_SWR_DONE, false, 0},
	[SM_OP_SEND] = {SM_PKT_SEND, SM_PKT_LAST, 0, SM_SWR_ACK, true, SM_KIND_SEND},
	[SM_OP_SEND_IMM] = {SM_PKT_SEND, SM_PKT_LAST | SM_PKT_IMM, 0, SM_SWR_ACK, true,
		SM_KIND_SEND_IMM},
	[SM_OP_SEND_INV] = {SM_PKT_SEND, SM_PKT_LAST | SM_PKT_INV, 0, SM_SWR_ACK, false,
		SM_KIND_SEND_IMM},
	[SM_OP_WRITE] = {SM_PKT_WRITE, SM_PKT_LAST, 1, SM_SWR_ACK, true, SM_KIND_WRITE},
	[SM_OP_WRITE_IMM] = {SM_PKT_WRITE, SM_PKT_LAST | SM_PKT_IMM, 1, SM_SWR_ACK, true,
		SM_KIND_WRITE_IMM},
	[SM_OP_READ] = {SM_PKT_READ, SM_PKT_LAST, 1, SM_SWR_RESPONSE, false, SM_KIND_READ},
	[SM_OP_ATOMIC_CS] = {SM_PKT_CMP_SWAP, SM_PKT_LAST, 2, SM_SWR_RESPONSE, false,
		SM_KIND_ATOMIC},
	[SM_OP_ATOMIC_FA] = {SM_PKT_FETCH_ADD, SM_PKT_LAST, 2, SM_SWR_RESPONSE, false,
		SM_KIND_ATOMIC},
	[SM_OP_UMR] = {SM_PKT_PAD, 0, 0, SM_SWR_DONE, false, 0},
};

/* What a type of queue pair can send, a bit for each opcode. */
#define BIT(op) (1u << (op))
#define CAN_UD (BIT(SM_OP_NOP) | BIT(SM_OP_SEND) | BIT(SM_OP_SEND_IMM))
#define CAN_UC (CAN_UD | BIT(SM_OP_WRITE) | BIT(SM_OP_WRITE_IMM))

static inline uint8_t *
sq_wqe(const struct sm_qp *qp, uint16_t bb)
{
	return qp->sq + (size_t)(bb & (qp->sq_nbb - 1)) * SM_WQEBB;
}

/* Unit @i of 16 bytes of the WQE at @bb. */
static inline const uint8_t *
sq_unit(const struct sm_qp *qp, uint16_t bb, uint32_t i)
{
	const uint8_t *end = qp->sq + (size_t)qp->sq_nbb * SM_WQEBB;
	const uint8_t *seg = sq_wqe(qp, bb) + 16 * (size_t)i;

	return seg >= end ? qp->sq + (seg - end) : seg;
}

/* The data segments of the WQE at @bb, behind ctrl and the @units that the opcode has. */
static void
sq_cursor(const struct sm_qp *qp, uint16_t bb, uint32_t units, uint32_t left,
	struct sm_cursor *cur)
{
	*cur = (struct sm_cursor){
		.seg = sq_unit(qp, bb, 1 + units),
		.wrap = qp->sq + (size_t)qp->sq_nbb * SM_WQEBB,
		.base = qp->sq,
		.left = left,
	};
}

/* Units of the address vector of a WQE, which follows ctrl. */
static inline uint32_t
av_units(const struct sm_qp *qp, const uint8_t *wqe, uint8_t op)
{
	if (!qp->with_av || op == SM_OP_NOP)
		return 0;
	return (wqe[16 + offsetof(struct mlx5_wqe_av, dqp_dct)] & 0x80) != 0 ? 3 : 1;
}

void
sm_sq_activate(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->active || qp->halted || qp->waiting || qp->state != SM_QPS_RTS ||
		(qp->sq_tx == qp->sq_head && !qp->tx.started))
		return;
	qp->active = true;
	TAILQ_INSERT_TAIL(&nic->active, qp, active_link);
}

void
sm_sq_ring(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->state != SM_QPS_RTS || qp->sq_nbb == 0)
		return;
	qp->sq_head = (uint16_t)sm_dbrec(&qp->dbrec[1]);
	if (crpc_unlikely((uint16_t)(qp->sq_head - qp->sq_tx) > qp->sq_nbb)) {
		sm_qp_fail(nic, qp, SM_EVENT_QP_FATAL);
		return;
	}
	if (qp->active || qp->halted || qp->waiting)
		return;
	if (sm_sq_serve(nic, qp))
		sm_sq_activate(nic, qp);
}

void
sm_sq_taken(struct sm_qp *qp)
{
	qp->swr[qp->wr_tx & (qp->sq_nbb - 1)] = qp->tx.swr;
	qp->wr_tx++;
	qp->sq_tx = (uint16_t)(qp->sq_tx + qp->tx.nbb);
	qp->tx.started = false;
}

static bool
op_allowed(const struct sm_qp *qp, uint8_t op)
{
	uint32_t can = qp->type == SM_QPT_UD ? CAN_UD : qp->type == SM_QPT_UC ? CAN_UC : ~0u;

	if (op >= 32)
		return op == SM_OP_UMR && qp->type == SM_QPT_RC;
	return ops[op].pkt != SM_PKT_NONE && (can & BIT(op)) != 0;
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
	if (qp->type == SM_QPT_DCI) {
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
	if (flow >> 30 == 0 && nic->udp == NULL)
		return;
	av->grh = SM_GRH_PRESENT | (uint64_t)more[11] << 32 | (uint32_t)more[10] << 20 |
		(flow & 0xfffff);
	av->dgid = sq_unit(qp, bb, 3);
}

/* Read the ctrl segment of the next WQE into qp->tx; false: it is malformed. */
static bool
wqe_parse(const struct sm_nic *nic, struct sm_qp *qp)
{
	const uint8_t *wqe = sq_wqe(qp, qp->sq_tx), *seg;
	struct sm_send *t = &qp->tx;
	uint32_t w0 = sm_be32(wqe), w1 = sm_be32(wqe + 4), ds = w1 & 0x3f;
	uint32_t nbb = (ds + 3) / 4, units;
	uint8_t op = (uint8_t)w0, fm = wqe[11];
	uint32_t av = av_units(qp, wqe, op);
	bool ok = (uint16_t)(w0 >> 8) == qp->sq_tx && w1 >> 8 == qp->qpn && ds != 0 &&
		nbb <= (uint16_t)(qp->sq_head - qp->sq_tx) && w0 >> 24 == 0 &&
		op_allowed(qp, op) && ds > av + ops[op].units;

	t->nbb = (uint8_t)(nbb == 0 || nbb > (uint16_t)(qp->sq_head - qp->sq_tx) ? 1 : nbb);
	t->swr = (struct sm_swr){
		.psn = qp->psn_tx,
		.bb = qp->sq_tx,
		.op = op,
		.signaled = (fm & MLX5_WQE_CTRL_CQ_UPDATE) != 0,
	};
	if (!ok)
		return false;
	t->swr.wait = qp->type == SM_QPT_UD ? SM_SWR_DONE : ops[op].wait;
	t->pkt = ops[op].pkt;
	t->last = (uint8_t)(ops[op].last | ((fm & MLX5_WQE_CTRL_SOLICITED) ? SM_PKT_SE : 0));
	t->fence = fm >> 5 >= 2;
	memcpy(&t->imm, wqe + 12, sizeof(t->imm));
	t->off = 0;
	units = av + ops[op].units;
	sq_cursor(qp, qp->sq_tx, units, ds - 1 - units, &t->cur);
	if (av != 0)
		av_parse(nic, qp, qp->sq_tx, av, &t->av);
	if (ops[op].units != 0) {
		seg = sq_unit(qp, qp->sq_tx, 1 + av);
		t->raddr = sm_be64(seg);
		t->rkey = sm_be32(seg + 8);
	}
	if (ops[op].units == 2) {
		seg = sq_unit(qp, qp->sq_tx, 2 + av);
		t->atomic[0] = sm_be64(seg);
		t->atomic[1] = sm_be64(seg + 8);
	}
	return true;
}

void
sm_sq_fail(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd)
{
	if (!qp->tx.started)
		wqe_parse(nic, qp);
	qp->tx.swr.wait = SM_SWR_DONE;
	qp->tx.swr.syndrome = synd;
	qp->halted = true;
	sm_sq_taken(qp);
	sm_sq_complete(nic, qp);
}

/* Bind or invalidate a memory window: 0 or a syndrome. */
static crpc_noinline uint32_t
wqe_umr(struct sm_nic *nic, struct sm_qp *qp)
{
	uint8_t umr[UMR_UNITS * 16] = {0};
	uint32_t units = (uint32_t)crpc_min(qp->tx.cur.left, UMR_UNITS);

	for (uint32_t i = 0; i < units; i++)
		memcpy(umr + (size_t)i * 16, sq_unit(qp, qp->sq_tx, 1 + i), 16);
	return sm_mw_umr(nic, qp, __builtin_bswap32(qp->tx.imm), umr, units);
}

/* The far side has the first packets of the WQE at hand; false: it has changed since. */
static crpc_noinline bool
wqe_resume(const struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->tx;
	uint64_t off = (uint64_t)qp->resume << qp->mtu_shift;

	t->swr.psn = (t->swr.psn - qp->resume) & SM_PSN_MASK;
	qp->resume = 0;
	sm_qp_way(nic, qp);
	if (off >= t->swr.len)
		return false;
	t->off = (uint32_t)off;
	return sm_cursor_skip(&t->cur, t->off);
}

static enum sm_step
wqe_begin(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->tx;
	uint64_t total;

	if (crpc_unlikely(!wqe_parse(nic, qp))) {
		sm_sq_fail(nic, qp, SM_SYND_LOCAL_QP_OP);
		return SM_STEP_BLOCKED;
	}
	if (t->fence && qp->rd_head != qp->rd_tail)
		return SM_STEP_BLOCKED;
	if (crpc_unlikely(t->swr.op == SM_OP_UMR)) {
		uint32_t synd;

		if (qp->wr_done != qp->wr_tx) { /* So that it is never done again. */
			qp->wakes = true;
			return SM_STEP_BLOCKED;
		}
		synd = wqe_umr(nic, qp);
		if (synd != 0) {
			t->started = true;
			sm_sq_fail(nic, qp, (uint8_t)synd);
			return SM_STEP_BLOCKED;
		}
	}
	if (t->pkt == SM_PKT_PAD) { /* Completes in its turn, is not seen on the wire. */
		sm_sq_taken(qp);
		sm_sq_complete(nic, qp);
		return SM_STEP_ON;
	}
	if (t->swr.wait == SM_SWR_RESPONSE && qp->attr.max_rd_atomic != 0 &&
		qp->rd_tail - qp->rd_head >= qp->attr.max_rd_atomic)
		return SM_STEP_BLOCKED;
	if (crpc_unlikely(qp->type == SM_QPT_DCI)) {
		enum sm_step step = sm_dci_connect(nic, qp);

		if (step != SM_STEP_ON)
			return step;
	}
	t->started = true;
	if (crpc_unlikely(nic->fault != NULL) && sm_fault_prot(nic->fault, qp)) {
		sm_sq_fail(nic, qp, SM_SYND_LOCAL_PROT);
		return SM_STEP_BLOCKED;
	}
	total = sm_cursor_total(&t->cur);
	t->swr.len = (uint32_t)total;
	if (crpc_unlikely(total == UINT64_MAX ||
		(t->swr.wait == SM_SWR_RESPONSE && qp->attr.max_rd_atomic == 0)))
		sm_sq_fail(nic, qp, SM_SYND_LOCAL_QP_OP);
	else if (crpc_unlikely(qp->resume != 0 && !wqe_resume(nic, qp)))
		sm_sq_fail(nic, qp, SM_SYND_LOCAL_QP_OP);
	else if (crpc_unlikely(total > (qp->type == SM_QPT_UD ? 128u << nic->mtu : SM_MSG_MAX) ||
		(t->pkt == SM_PKT_CMP_SWAP && total != 8) ||
		(t->pkt == SM_PKT_FETCH_ADD && total != 8)))
		sm_sq_fail(nic, qp, SM_SYND_LOCAL_LENGTH);
	if (qp->halted)
		return SM_STEP_BLOCKED;
	t->swr.psn = (t->swr.psn + sm_psn_packets(qp, t->swr.len) - 1) & SM_PSN_MASK;
	return SM_STEP_ON;
}

/* Payload of the next packet of the WQE at hand. */
static inline uint32_t
packet_len(const struct sm_send *t)
{
	if (t->pkt == SM_PKT_READ)
		return 0;
	if (t->pkt == SM_PKT_CMP_SWAP || t->pkt == SM_PKT_FETCH_ADD)
		return sizeof(t->atomic);
	return (uint32_t)crpc_min(t->swr.len - t->off, SM_FRAG);
}

/*
 * A grant for the next piece of the WQE at hand, and its segments behind that piece; NULL, and not
 * @full: its bytes go through the ring, which also finds out what may be wrong with them.
 */
static struct sm_grant *
wqe_grant(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, bool *full)
{
	struct sm_grant *g = sm_direct_begin(nic, qp, qp->tx.swr.len - qp->tx.off, full);

	*cur = qp->tx.cur;
	return g != NULL && sm_gather_refs(nic, qp, cur, g) ? g : NULL;
}

static void
wqe_grant_put(
	struct sm_nic *nic, struct sm_qp *qp, struct sm_grant *g, void *payload, uint32_t bytes)
{
	uint32_t at = qp->tx.off;

	for (uint32_t i = 0; i < g->nseg; i++) {
		sm_count_reads(&qp->n, at, (uint32_t)g->seg[i].len);
		at += (uint32_t)g->seg[i].len;
	}
	sm_direct_put(nic, qp, g, payload, bytes);
}

static enum sm_step
wqe_send(struct sm_nic *nic, struct sm_qp *qp)
{
	struct sm_send *t = &qp->tx;
	struct sm_tx *tx = &qp->peer->tx;
	uint32_t len = packet_len(t), flags = t->off == 0 ? SM_PKT_FIRST : 0, synd, bytes = len;
	bool data = t->pkt == SM_PKT_SEND || t->pkt == SM_PKT_WRITE, full = false;
	struct sm_grant *g = NULL;
	struct sm_cursor cur;
	struct sm_pkt_room room;
	struct sm_hdr h;

	if (data)
		g = wqe_grant(nic, qp, &cur, &full);
	if (g != NULL) {
		len = g->len;
		bytes = sm_direct_bytes(qp->peer, g);
	}
	if (full || !sm_tx_room(tx, bytes, SM_RING_RESERVE, &room))
		return SM_STEP_FULL;
	if (g != NULL) {
		wqe_grant_put(nic, qp, g, room.payload, bytes);
		t->cur = cur;
		t->off += len;
	} else if (data) {
		synd = sm_gather(nic, qp, &t->cur, room.payload, len);
		if (crpc_unlikely(synd != 0)) {
			sm_sq_fail(nic, qp, (uint8_t)synd);
			return SM_STEP_BLOCKED;
		}
		t->off += len;
	} else if (len != 0) {
		memcpy(room.payload, t->atomic, sizeof(t->atomic));
	}
	if (!data || t->off == t->swr.len)
		flags |= t->last | (data ? 0 : SM_PKT_FIRST);
	h.dst = qp->dest_qpn | (uint32_t)qp->epoch << 24;
	h.src = qp->qpn;
	h.psn = qp->psn_tx;
	h.raddr = t->raddr;
	h.rkey = t->rkey;
	h.imm = data && (flags & SM_PKT_LAST) != 0 ? t->imm : t->swr.len;
	if (!data && t->off != 0) { /* The rest of a READ. */
		h.raddr += t->off;
		h.imm -= t->off;
	}
	sm_pkt_put(room.pkt, &h);
	sm_tx_commit(tx, &room, bytes,
		g == NULL                   ? t->pkt
			: t->pkt == SM_PKT_SEND ? SM_PKT_SEND_REF
						: SM_PKT_WRITE_REF, flags);
	sm_count_piece(&qp->n.tx, data ? len : 0, ops[t->swr.op].kind,
		(flags & SM_PKT_FIRST) != 0, qp->mtu_shift);
	if ((flags & SM_PKT_LAST) == 0) {
		qp->psn_tx = (qp->psn_tx + sm_psn_packets(qp, len)) & SM_PSN_MASK;
		return SM_STEP_ON;
	}
	if (!data)
		qp->rd_wr[qp->rd_tail++ % SM_RD_MAX] = qp->wr_tx;
	qp->psn_tx = (t->swr.psn + 1) & SM_PSN_MASK;
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
		? sm_mem(nic, qp->pd, sm_be32(seg + 4), sm_be64(seg + 8), count, 0)
		: NULL;
}

/*
 * The short way of a well-formed SEND or WRITE of one packet. Whatever is not that returns false
 * with nothing done and takes the long way, which knows all cases and names the errors.
 */
static bool
wqe_simple(struct sm_nic *nic, struct sm_qp *qp)
{
	const uint8_t *wqe = sq_wqe(qp, qp->sq_tx);
	const uint8_t *end = qp->sq + (size_t)qp->sq_nbb * SM_WQEBB;
	uint32_t w0 = sm_be32(wqe), w1 = sm_be32(wqe + 4), ds = w1 & 0x3f, len, flags;
	uint32_t nbb = (ds + 3) / 4, more;
	const struct op *op = &ops[w0 & (CRPC_DIM(ops) - 1)];
	struct sm_pkt_room room;
	struct sm_swr *swr;
	struct sm_hdr h;
	const uint8_t *data;
	const void *src;
	uint8_t fm = wqe[11];

	if (!op->simple || (w0 & 0xff) >= CRPC_DIM(ops) || w0 >> 8 != qp->sq_tx ||
		w1 >> 8 != qp->simple_qpn || fm >> 5 >= 2 || ds < 2u + op->units ||
		(size_t)(end - wqe) < 16 * (size_t)ds ||
		nbb > (uint16_t)(qp->sq_head - qp->sq_tx))
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
	h.dst = qp->dest_qpn | (uint32_t)qp->epoch << 24;
	h.src = qp->simple_qpn; /* The same here, and at hand. */
	h.psn = qp->psn_tx;
	h.raddr = sm_be64(wqe + 16); /* Of a SEND: not looked at. */
	h.rkey = sm_be32(wqe + 24);
	sm_pkt_put(room.pkt, &h);
	sm_tx_commit(&qp->peer->tx, &room, len, op->pkt, flags);
	swr = &qp->swr[qp->wr_tx++ & (qp->sq_nbb - 1)];
	qp->n.tx.kind[w0 & 3]++; /* enum sm_kind */
	qp->n.tx.payload += len;
	if (crpc_unlikely(len > SM_TLP_PAYLOAD)) {
		more = sm_count_more(len, qp->mtu_shift);
		qp->n.tx.packets += more;
		h.psn += more;
	}
	swr->psn = h.psn;
	qp->psn_tx = (h.psn + 1) & SM_PSN_MASK;
	swr->len = len;
	swr->bb = qp->sq_tx;
	swr->op = (uint8_t)w0;
	swr->wait = SM_SWR_ACK;
	swr->syndrome = 0;
	swr->signaled = (fm & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
	qp->sq_tx = (uint16_t)(qp->sq_tx + nbb);
	return true;
}

/* Nobody is there any more. True: something can go on nevertheless. */
static crpc_noinline bool
serve_dead(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->type != SM_QPT_UC) {
		sm_sq_peer_dead(nic, qp);
		return qp->peer == &nic->nowhere;
	}
	/* It never learns. */
	if (!qp->tx.started && wqe_begin(nic, qp) != SM_STEP_ON)
		return false;
	qp->tx.swr.wait = SM_SWR_DONE;
	if (qp->tx.started)
		sm_sq_taken(qp);
	return true;
}

/* A packet of a WQE for which the short way is none. */
static crpc_noinline enum sm_step
wqe_long(struct sm_nic *nic, struct sm_qp *qp)
{
	enum sm_step step = SM_STEP_ON;

	/* On till it hears of them. */
	if (crpc_unlikely(nic->paced) && qp->type != SM_QPT_UC && qp->type != SM_QPT_UD &&
		sm_psn_diff(qp->psn_tx, qp->psn_acked) > PACE)
		return SM_STEP_BLOCKED;
	if (!qp->tx.started)
		step = wqe_begin(nic, qp);
	if (step != SM_STEP_ON || !qp->tx.started)
		return step;
	return qp->type == SM_QPT_UD ? sm_datagram_send(nic, qp) : wqe_send(nic, qp);
}

static inline bool
sq_serve(struct sm_nic *nic, struct sm_qp *qp)
{
	for (uint32_t i = 0; i < SERVE_PACKETS; i++) {
		enum sm_step step;

		if (!qp->tx.started && qp->sq_tx == qp->sq_head)
			return false;
		if (qp->halted || qp->waiting || (qp->state != SM_QPS_RTS && !qp->tx.started))
			return false;
		if (crpc_unlikely(qp->peer->dead))
			return serve_dead(nic, qp);
		if (qp->tx.started || !wqe_simple(nic, qp)) {
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
	uint16_t first = qp->sq_tx, run;
	bool more = sq_serve(nic, qp);

	/* WQEs that lie together are fetched together. */
	run = (uint16_t)(qp->sq_tx - first);
	if (crpc_likely(run - 1u < qp->sq_nbb)) {
		qp->n.wqe_blocks += run;
		qp->n.wqe_reads += (run + SM_TLP_READ / SM_WQEBB - 1u) / (SM_TLP_READ / SM_WQEBB);
	}
	if (crpc_unlikely(qp->type == SM_QPT_UC)) { /* Sent is done. */
		qp->psn_acked = (qp->psn_tx - 1) & SM_PSN_MASK;
		sm_sq_complete(nic, qp);
	}
	return more;
}

void
sm_sq_complete(struct sm_nic *nic, struct sm_qp *qp)
{
	while (qp->wr_done != qp->wr_tx) {
		const struct sm_swr *w = &qp->swr[qp->wr_done & (qp->sq_nbb - 1)];
		struct sm_wc wc = {.op = SM_CQE_REQ, .wqe_op = w->op, .counter = w->bb};

		if (w->wait == SM_SWR_RESPONSE ||
			(w->wait == SM_SWR_ACK && sm_psn_diff(qp->psn_acked, w->psn) < 0))
			return;
		qp->wr_done++;
		if (crpc_unlikely(w->syndrome != 0)) {
			wc.op = SM_CQE_REQ_ERR;
			wc.syndrome = w->syndrome;
			sm_direct_withdraw(nic, qp); /* Now its memory is the program's. */
			sm_cq_push(nic, qp->send_cq, qp, &wc);
			sm_qp_fail(nic, qp, -1);
			return;
		}
		wc.len = w->len;
		if (w->signaled && crpc_unlikely(!sm_cq_push(nic, qp->send_cq, qp, &wc))) {
			sm_qp_fail(nic, qp, SM_EVENT_QP_FATAL);
			return;
		}
	}
}

void
sm_sq_acked(struct sm_nic *nic, struct sm_qp *qp, uint32_t psn)
{
	if (crpc_unlikely(qp->state != SM_QPS_RTS && qp->state != SM_QPS_SQD))
		return;
	if (qp->rd_head != qp->rd_tail) { /* An open READ is acknowledged by its response alone. */
		uint32_t wr = qp->rd_wr[qp->rd_head % SM_RD_MAX];
		uint32_t rd = sm_swr_first(qp, &qp->swr[wr & (qp->sq_nbb - 1)]) +
			(qp->rd_off >> qp->mtu_shift);

		if (sm_psn_diff(psn, rd) >= 0)
			psn = (rd - 1) & SM_PSN_MASK;
	}
	if (sm_psn_diff(psn, qp->psn_acked) <= 0 || sm_psn_diff(psn, qp->psn_tx) >= 0)
		return;
	qp->psn_acked = psn;
	qp->retries = qp->attr.retry_cnt;
	qp->rnr_retries = qp->attr.rnr_retry;
	sm_sq_complete(nic, qp);
	/* It may have waited for this, or to go elsewhere, or to bind. */
	if (crpc_unlikely(qp->wakes || nic->paced))
		sm_sq_activate(nic, qp);
}

/* The WQE @w is the next one, and goes on behind what the far side acknowledged of it. */
static void
rewind_into(const struct sm_nic *nic, struct sm_qp *qp, const struct sm_swr *w)
{
	uint32_t next = (qp->psn_acked + 1) & SM_PSN_MASK, first = sm_swr_first(qp, w);

	qp->resume = sm_psn_diff(next, first) > 0 ? (next - first) & SM_PSN_MASK : 0;
	qp->psn_tx = (first + qp->resume) & SM_PSN_MASK;
	sm_qp_way(nic, qp);
}

/* Go back to the oldest packet that was not acknowledged. */
static void
sq_rewind(const struct sm_nic *nic, struct sm_qp *qp)
{
	uint32_t wr = qp->wr_done;
	const struct sm_swr *w;

	for (; wr != qp->wr_tx; wr++) {
		w = &qp->swr[wr & (qp->sq_nbb - 1)];
		if (sm_psn_diff(w->psn, qp->psn_acked) > 0 && w->syndrome == 0)
			break;
	}
	if (wr != qp->wr_tx) {
		qp->sq_tx = w->bb;
		qp->wr_tx = wr;
		qp->halted = false;
		rewind_into(nic, qp, w);
	} else if (qp->tx.started) { /* It is the one of which the last packets are not sent. */
		rewind_into(nic, qp, &qp->tx.swr);
	}
	while (qp->rd_tail != qp->rd_head &&
		(int32_t)(qp->rd_wr[(qp->rd_tail - 1) % SM_RD_MAX] - qp->wr_tx) >= 0)
		qp->rd_tail--;
	if (qp->rd_head == qp->rd_tail && qp->resume == 0)
		qp->rd_off = 0;
	qp->tx.started = false;
	qp->connected = false;
	qp->epoch++;
}

/* The oldest message that was not acknowledged fails. */
static void
sq_fail_oldest(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd)
{
	sm_sq_unwait(nic, qp);
	sq_rewind(nic, qp);
	if (qp->sq_tx != qp->sq_head)
		sm_sq_fail(nic, qp, synd);
}

void
sm_sq_peer_dead(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->state != SM_QPS_RTS && qp->state != SM_QPS_SQD)
		return;
	if (qp->type == SM_QPT_UC)
		return;
	if (qp->type == SM_QPT_DCI && qp->wr_done == qp->wr_tx && !qp->tx.started)
		sm_dci_leave(nic, qp); /* The next WQE may go elsewhere. */
	else if (qp->wr_done != qp->wr_tx || qp->sq_tx != qp->sq_head)
		sq_fail_oldest(nic, qp, SM_SYND_RETRY_EXC);
}

static void
sq_wait(struct sm_nic *nic, struct sm_qp *qp, uint64_t ns)
{
	if (qp->active)
		TAILQ_REMOVE(&nic->active, qp, active_link);
	qp->active = false;
	qp->retry_at = nic->now + ns;
	if (!qp->waiting)
		TAILQ_INSERT_TAIL(&nic->waiting, qp, wait_link);
	qp->waiting = true;
}

void
sm_sq_unwait(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->waiting)
		TAILQ_REMOVE(&nic->waiting, qp, wait_link);
	qp->waiting = false;
}

void
sm_sq_timer(struct sm_nic *nic, struct sm_qp *qp)
{
	if ((int64_t)(nic->now - qp->retry_at) < 0)
		return;
	sm_sq_unwait(nic, qp);
	if (qp->lost && qp->attr.timeout != 0 && ++qp->lost_tries % LOST_PARTS == 0) {
		if (qp->retries == 0) {
			sq_fail_oldest(nic, qp, SM_SYND_RETRY_EXC);
			return;
		}
		qp->retries--;
	}
	sm_sq_activate(nic, qp);
}

void
sm_sq_timeout(struct sm_nic *nic, struct sm_qp *qp, bool counts)
{
	if (counts && qp->attr.timeout != 0) {
		if (qp->retries == 0) {
			sq_fail_oldest(nic, qp, SM_SYND_RETRY_EXC);
			return;
		}
		qp->retries--;
	}
	sq_rewind(nic, qp);
	sm_sq_activate(nic, qp);
}

static void
answer_nak(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h)
{
	static const uint8_t synd[] = {
		[SM_NAK_INVALID] = SM_SYND_REMOTE_INVAL,
		[SM_NAK_ACCESS] = SM_SYND_REMOTE_ACCESS,
		[SM_NAK_OP] = SM_SYND_REMOTE_OP,
	};

	if (qp->type == SM_QPT_UC)
		return;
	if (h->imm == SM_NAK_SEQUENCE || h->imm == SM_NAK_STALE) {
		if (sm_psn_diff(h->psn, qp->psn_acked) <= 0 || sm_psn_diff(h->psn, qp->psn_tx) > 0)
			return;
		sm_sq_acked(nic, qp, (h->psn - 1) & SM_PSN_MASK);
		if (qp->state != SM_QPS_ERR) {
			sq_rewind(nic, qp);
			sm_sq_activate(nic, qp);
		}
		return;
	}
	if (h->imm == SM_NAK_RECONNECT || h->imm == SM_NAK_COOKIE) {
		/* An earlier CONNECT's cookie may come late. */
		bool late = h->imm == SM_NAK_COOKIE &&
			(sm_psn_diff(h->psn, qp->psn_acked) <= 0 ||
				sm_psn_diff(h->psn, qp->psn_tx) > 0);

		if (qp->type != SM_QPT_DCI || late)
			return;
		if (h->imm == SM_NAK_COOKIE)
			qp->peer->cookie = h->raddr;
		sq_rewind(nic, qp);
		sm_sq_activate(nic, qp);
		return;
	}
	if (h->imm == SM_NAK_LOST) {
		sq_rewind(nic, qp);
		qp->lost = true;
		sq_wait(nic, qp, qp->attr.timeout == 0
				? RETRY_FOREVER_NS
				: (UINT64_C(4096) << qp->attr.timeout) / LOST_PARTS);
		return;
	}
	if (sm_psn_diff(h->psn, qp->psn_acked) <= 0 || sm_psn_diff(h->psn, qp->psn_tx) > 0)
		return;
	if (h->imm == SM_NAK_RNR && qp->waiting) /* It came twice. */
		return;
	sm_sq_acked(nic, qp, (h->psn - 1) & SM_PSN_MASK);
	if (qp->state == SM_QPS_ERR)
		return;
	if (h->imm != SM_NAK_RNR) {
		if (h->imm < CRPC_DIM(synd) && synd[h->imm] != 0)
			sq_fail_oldest(nic, qp, synd[h->imm]);
		return;
	}
	if (qp->rnr_retries == 0) {
		sq_fail_oldest(nic, qp, SM_SYND_RNR_EXC);
		return;
	}
	if (qp->rnr_retries != 7)
		qp->rnr_retries--;
	sq_rewind(nic, qp);
	qp->lost = false;
	sq_wait(nic, qp, sm_retry_rnr_ns(h->rkey));
}

/*
 * A response @ahead of the one that is expected: that one, or the answer to what was asked before,
 * is lost. Behind it: it comes again.
 */
static crpc_noinline void
response_missed(struct sm_nic *nic, struct sm_qp *qp, int32_t ahead)
{
	if (!nic->lossy || ahead < 0 || qp->gap || qp->waiting)
		return;
	qp->gap = true;
	sq_rewind(nic, qp);
	sm_sq_activate(nic, qp);
}

/* A packet of the response to the oldest READ or atomic, or what refers to its bytes. */
static inline __attribute__((always_inline)) void
answer_any(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, uint32_t len,
	const uint8_t *payload, struct sm_pull *pull)
{
	uint32_t flags = h->head >> 24, synd, psn;
	struct sm_swr *w;

	if (qp->rd_head == qp->rd_tail)
		return;
	w = &qp->swr[qp->rd_wr[qp->rd_head % SM_RD_MAX] & (qp->sq_nbb - 1)];
	psn = (sm_swr_first(qp, w) + (qp->rd_off >> qp->mtu_shift)) & SM_PSN_MASK;
	if (crpc_unlikely(psn != h->psn)) {
		response_missed(nic, qp, sm_psn_diff(h->psn, psn));
		return;
	}
	if (len > w->len - qp->rd_off)
		return;
	qp->gap = false;
	if (qp->rd_off == 0) {
		const uint8_t *wqe = sq_wqe(qp, w->bb);
		uint32_t ds = sm_be32(wqe + 4) & 0x3f;
		uint32_t units = ops[w->op].units + av_units(qp, wqe, w->op);

		sq_cursor(qp, w->bb, units, ds > units + 1 ? ds - 1 - units : 0, &qp->rd_cur);
	}
	sm_count_piece(&qp->n.rx, w->op == SM_OP_READ ? len : 0,
		w->op == SM_OP_READ ? SM_KIND_READ_RESP : SM_KIND_ATOMIC_RESP, qp->rd_off == 0,
		qp->mtu_shift);
	if (pull == NULL)
		synd = sm_scatter(nic, qp, qp->pd, &qp->rd_cur, payload, len);
	else
		synd = sm_scatter_pull(nic, qp, qp->pd, &qp->rd_cur, pull, qp->rd_off);
	if (pull != NULL && synd == 0)
		synd = pull->syndrome;
	qp->rd_off += len;
	if (synd == 0 && ((flags & SM_PKT_LAST) != 0
				? qp->rd_off != w->len
				: len == 0 || (len & ((1u << qp->mtu_shift) - 1)) != 0))
		synd = SM_SYND_BAD_RESP;
	if (synd == 0 && (flags & SM_PKT_LAST) == 0) {
		sm_sq_acked(nic, qp, (psn + sm_psn_packets(qp, len) - 1) & SM_PSN_MASK);
		return;
	}
	qp->rd_off = 0;
	qp->rd_head++;
	w->wait = SM_SWR_DONE;
	w->syndrome = (uint8_t)synd;
	sm_sq_acked(nic, qp, w->psn & SM_PSN_MASK);
	sm_sq_complete(nic, qp);
	sm_sq_activate(nic, qp); /* It may have waited for this one. */
}

static void
answer_response(
	struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, const uint8_t *payload)
{
	answer_any(nic, qp, h, h->head & 0xffff, payload, NULL);
}

void
sm_sq_answer_direct(struct sm_nic *nic, const struct sm_hdr *h, struct sm_pull *pull)
{
	struct sm_qp *qp = sm_qp_find(nic, h->dst & SM_PSN_MASK);

	if (qp == NULL || qp->peer != pull->peer || qp->dest_qpn != h->src ||
		(qp->state != SM_QPS_RTS && qp->state != SM_QPS_SQD) ||
		(!nic->lossy && h->dst >> 24 != qp->epoch))
		return;
	answer_any(nic, qp, h, pull->ref.len, NULL, pull);
}

void
sm_sq_answer(
	struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, const uint8_t *payload)
{
	uint8_t type = h->head >> 16 & 0xff;

	if (type == SM_PKT_ACK) {
		qp->n.rx.kind[SM_KIND_ACK]++;
		sm_sq_acked(nic, qp, h->psn & SM_PSN_MASK);
		return;
	}
	if (qp->state != SM_QPS_RTS && qp->state != SM_QPS_SQD)
		return;
	/* What answers something sent before the last rewind is answered again; where packets get
	 * lost their numbers alone tell. */
	if (!nic->lossy && h->dst >> 24 != qp->epoch)
		return;
	if (type == SM_PKT_NAK) {
		qp->n.rx.kind[SM_KIND_ACK]++;
		answer_nak(nic, qp, h);
		return;
	}
	answer_response(nic, qp, h, payload);
}
