/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post and poll. One cache line of CQE and one or two of WQE are touched per request besides the
 * queue's own state; nothing here allocates, locks or enters the kernel.
 *
 * Order of the records that a poll writes: first the CQ's consumer index, then the receive
 * counters. A receive that is handed out again before the device knows that its completion was read
 * could overrun the CQ.
 */
#include "crpc_log.h"
#include "mlx5_doorbell.h"
#include "mlx5_wqe.h"

#ifdef CRPC_DEBUG
/* The address of a thread-local object names the thread without a system call. */
static _Thread_local char thread_mark;

static void
owner_check(struct crpc_mlx5_dev *dev)
{
	if (dev->owner == NULL)
		dev->owner = &thread_mark;
	if (dev->owner == &thread_mark)
		return;
	crpc_err("device %p: used by a second thread; a device and its queue pairs belong to one",
		(void *)dev);
	__builtin_trap();
}
#else
#define owner_check(dev)
#endif

/* Notes what its completion will need to know, and counts the WQE in. */
static inline void
sent_add(struct crpc_mlx5_sq *sq, uint32_t wr_id, uint8_t flags, uint32_t bb)
{
	struct crpc_mlx5_sent *sent = &sq->sent[sq->pi & sq->bb_mask];

	sent->wr_id = wr_id;
	sent->seq = sq->posted++;
	sent->user = flags & CRPC_RDMA_WR_SIGNAL;
	sq->pi += bb;
}

/* As crpc_mlx5_sq_ring(), in place. */
static inline void
ring(struct crpc_mlx5_dev *dev, struct crpc_mlx5_sq *sq, uint16_t n, uint32_t start,
	const uint8_t *wqe, uint32_t bb)
{
	dev->stats.wqes += n;
	dev->stats.wqebbs += sq->pi - start;
	dev->stats.doorbells++;
	dev->stats.blueflame += crpc_mlx5_ring(sq, wqe, n == 1 ? bb : 0);
	/*
	 * A card acts on its doorbell at once; a NIC in software does with the time that it is
	 * lent.
	 */
	if (dev->progress != NULL)
		dev->progress(dev->context);
}

void
crpc_mlx5_sq_ring(struct crpc_mlx5_dev *dev, struct crpc_mlx5_sq *sq, uint16_t n, uint32_t start,
	const uint8_t *wqe, uint32_t bb)
{
	ring(dev, sq, n, start, wqe, bb);
}

uint16_t
crpc_mlx5_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_mlx5_qp *qp = crpc_container_of(base, struct crpc_mlx5_qp, base);
	struct crpc_mlx5_dev *dev = crpc_container_of(base->dev, struct crpc_mlx5_dev, base);
	struct crpc_mlx5_sq *sq = &qp->sq;
	uint32_t room = sq->depth - (sq->posted - sq->retired);
	uint32_t start = sq->pi, ds, bb = 0;
	const uint8_t *wqe = NULL;
	uint16_t i;
	bool signal;

	owner_check(dev);
	if (crpc_unlikely(qp->state != CRPC_MLX5_QP_READY))
		return crpc_mlx5_dc_post(qp, wr, n);
	if (n > room)
		n = (uint16_t)room;
	for (i = 0; i < n; i++) {
		/* The last WR of a stretch is signalled, so among depth outstanding ones there is
		 * always one whose completion makes room again. */
		signal = (wr[i].flags & CRPC_RDMA_WR_SIGNAL) ||
			sq->unsignalled + 1 >= sq->signal_every;
		ds = crpc_mlx5_wqe_build(sq, &wr[i], signal);
		if (crpc_unlikely(ds == 0)) {
			crpc_mlx5_qp_fault(qp, -EINVAL, wr[i].wr_id, "a work request is not valid");
			break;
		}
		sq->unsignalled = signal ? 0 : sq->unsignalled + 1;
		wqe = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
		bb = crpc_mlx5_ds_to_bb(ds);
		sent_add(sq, wr[i].wr_id, wr[i].flags, bb);
	}
	if (crpc_unlikely(i == 0))
		return 0;
	ring(dev, sq, i, start, wqe, bb);
	return i;
}

uint16_t
crpc_mlx5_ud_post(struct crpc_rdma_ud *base, const struct crpc_rdma_dgram *dgram, uint16_t n)
{
	struct crpc_mlx5_ud *ud = crpc_container_of(base, struct crpc_mlx5_ud, base);
	struct crpc_mlx5_dev *dev = crpc_container_of(base->dev, struct crpc_mlx5_dev, base);
	struct crpc_mlx5_sq *sq = &ud->qp->sq;
	uint32_t room = sq->depth - (sq->posted - sq->retired);
	uint32_t start = sq->pi, ds, bb = 0;
	const uint8_t *wqe = NULL;
	uint16_t i;
	bool signal;

	owner_check(dev);
	if (crpc_unlikely(ud->qp->state != CRPC_MLX5_QP_READY))
		return 0;
	if (n > room)
		n = (uint16_t)room;
	for (i = 0; i < n; i++) {
		signal = (dgram[i].flags & CRPC_RDMA_WR_SIGNAL) ||
			sq->unsignalled + 1 >= sq->signal_every;
		ds = crpc_mlx5_ud_wqe_build(sq, &dgram[i], ud->mtu, signal);
		if (crpc_unlikely(ds == 0)) {
			crpc_mlx5_qp_fault(
				ud->qp, -EINVAL, dgram[i].wr_id, "a datagram is not valid");
			break;
		}
		sq->unsignalled = signal ? 0 : sq->unsignalled + 1;
		wqe = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
		bb = crpc_mlx5_ds_to_bb(ds);
		sent_add(sq, dgram[i].wr_id, dgram[i].flags, bb);
	}
	if (crpc_unlikely(i == 0))
		return 0;
	ring(dev, sq, i, start, wqe, bb);
	return i;
}

/* A send is done, and so are all before it. */
static inline uint16_t
send_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, uint64_t tail,
	struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_sq *sq = &qp->sq;
	const struct crpc_mlx5_sent *sent = &sq->sent[CRPC_MLX5_TAIL_COUNTER(tail) & sq->bb_mask];
	uint32_t seq = sent->seq + 1;

	dev->stats.send_cqes++;
	if (crpc_unlikely(seq - sq->retired - 1 >= sq->posted - sq->retired)) {
		if (qp->kind == CRPC_MLX5_DCI)
			return crpc_mlx5_dci_take(
				crpc_container_of(qp, struct crpc_mlx5_dci, qp.dp), tail, out);
		crpc_mlx5_qp_fault(qp, -EIO, 0, "a completion names a WQE that is not outstanding");
		return 0;
	}
	sq->retired = seq;
	if (!sent->user)
		return 0;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_SEND,
		.qp_id = qp->base.id,
		.wr_id = sent->wr_id,
		.wrs = seq - sq->reported,
	};
	sq->reported = seq;
	return 1;
}

/* One poll's receive queues that have to be told to the device. */
struct refill {
	uint32_t num;
	struct crpc_mlx5_qp *qp[CRPC_BURST_MAX];
};

/* A write with immediate arrived: its receive goes straight back, as it holds nothing. */
static inline uint16_t
recv_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, const struct crpc_mlx5_cqe *cqe,
	struct crpc_rdma_cqe *out, struct refill *refill)
{
	dev->stats.recv_cqes++;
	dev->stats.recv_posted++;
	qp->rq.posted++;
	if (!qp->rq.dirty) {
		qp->rq.dirty = true;
		refill->qp[refill->num++] = qp;
	}
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_RECV,
		.qp_id = qp->base.id,
		.imm = be32toh(cqe->imm),
		.byte_len = be32toh(cqe->byte_cnt),
	};
	return 1;
}

/* A datagram arrived: its buffer is the user's until the next poll. */
static uint16_t
dgram_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, const struct crpc_mlx5_cqe *cqe,
	uint64_t tail, struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_ud *ud = qp->rq.ud;
	uint32_t len = be32toh(cqe->byte_cnt);

	dev->stats.recv_cqes++;
	if (crpc_unlikely(ud == NULL || len < CRPC_MLX5_GRH ||
			  len > CRPC_MLX5_GRH + CRPC_MLX5_UD_LEN_MAX)) {
		crpc_mlx5_qp_fault(qp, -EIO, 0, "a completion names a message of no known kind");
		return 0;
	}
	if (ud->held++ == 0) {
		ud->next_held = dev->held;
		dev->held = ud;
		crpc_store_relaxed(&dev->attention, 1);
	}
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_DGRAM,
		.qp_id = qp->base.id,
		.imm = be32toh(cqe->imm),
		.byte_len = len - CRPC_MLX5_GRH,
		.data = ud->buf + (size_t)(CRPC_MLX5_TAIL_COUNTER(tail) & ud->mask) * ud->stride +
			CRPC_MLX5_UD_PAYLOAD,
	};
	return 1;
}

/* Hands the buffers of the last poll's datagrams back: their completions were read long ago. */
static void
held_return(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_ud *ud;
	struct crpc_mlx5_rq *rq;

	/* Without it the device could write over a payload that is still being read. */
	crpc_dma_wmb();
	for (ud = dev->held; ud != NULL; ud = ud->next_held) {
		rq = &ud->qp->rq;
		rq->posted += ud->held;
		dev->stats.recv_posted += ud->held;
		ud->held = 0;
		/* Release: what was read of the buffers was read before. */
		crpc_store_release(rq->dbrec, htobe32(rq->posted & CRPC_MLX5_WQE_CTR_MASK));
	}
	dev->held = NULL;
}

/* What a poll has to do first, now and then. */
static crpc_noinline uint16_t
attend(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t n)
{
	uint16_t got;
	bool again;

	/* Acquire: pairs with the question's R2. First, as what comes later must stay. */
	crpc_exchange_acq_rel(&dev->attention, 0);
	held_return(dev);
	got = crpc_mlx5_faults_take(dev, out, n);
	again = crpc_mlx5_dcis_turn(dev);
	again |= crpc_mlx5_ending_take(dev);
	if (again || dev->faults != NULL)
		crpc_store_relaxed(&dev->attention, 1);
	if (dev->tel != NULL)
		crpc_mlx5_tel_answer(dev);
	return got;
}

static inline uint16_t
cqe_take(struct crpc_mlx5_dev *dev, const struct crpc_mlx5_cqe *cqe, uint64_t tail,
	struct crpc_rdma_cqe *out, struct refill *refill)
{
	struct crpc_mlx5_qp *qp = crpc_mlx5_table_find(&dev->table, CRPC_MLX5_TAIL_QPN(tail));
	uint32_t opcode = CRPC_MLX5_TAIL_OPCODE(tail);

	if (crpc_unlikely(qp == NULL))
		return 0;
	if (crpc_likely(opcode == MLX5_CQE_RESP_WR_IMM))
		return recv_take(dev, qp, cqe, out, refill);
	if (crpc_likely(opcode == MLX5_CQE_REQ))
		return send_take(dev, qp, tail, out);
	if (opcode == MLX5_CQE_RESP_SEND_IMM || opcode == MLX5_CQE_RESP_SEND)
		return dgram_take(dev, qp, cqe, tail, out);
	return crpc_mlx5_error_take(dev, qp, cqe, out);
}

/* Hands the receives back: one store per queue and burst, and no way to fail. */
static inline void
refill_flush(struct crpc_mlx5_dev *dev, struct refill *refill)
{
	struct crpc_mlx5_rq *rq;
	uint32_t i;

	/* Release: the device may overwrite the entries only after they were read. */
	crpc_store_release(dev->cq.dbrec, htobe32(dev->cq.ci & CRPC_MLX5_CQE_CTR_MASK));
	if (refill->num == 0)
		return;
	/* Without it the device could see the new receives while it still takes the CQ for full. */
	crpc_dma_wmb();
	for (i = 0; i < refill->num; i++) {
		rq = &refill->qp[i]->rq;
		rq->dirty = false;
		crpc_store_release(rq->dbrec, htobe32(rq->posted & CRPC_MLX5_WQE_CTR_MASK));
	}
}

/* The next completion if the device has written it: its owner bit tells the lap, see PRM "CQE
 * Ownership". An entry never written has that of the lap before, by cq_init(). */
static inline struct crpc_mlx5_cqe *
cqe_next(const struct crpc_mlx5_cq *cq, uint64_t *tail)
{
	struct crpc_mlx5_cqe *cqe = &cq->buf[cq->ci & cq->mask];

	/* Acquire: pairs with the device's store of the entry's last bytes, a release where the
	 * device is a program. */
	*tail = be64toh(crpc_load_acquire(&cqe->tail));
	if (CRPC_MLX5_TAIL_OWNER(*tail) != !!(cq->ci & (cq->mask + 1)))
		return NULL;
	return cqe;
}

/* A session that cannot be read: what else it told is lost with it. */
static crpc_noinline void
session_refuse(struct crpc_mlx5_dev *dev, uint64_t tail)
{
	struct crpc_mlx5_qp *qp = crpc_mlx5_table_find(&dev->table, CRPC_MLX5_TAIL_QPN(tail));

	if (qp != NULL && qp->kind != CRPC_MLX5_DCI)
		crpc_mlx5_qp_fault(qp, -EIO, 0, "a compressed completion has no count");
}

/* One completion of a session, as the device would have written it alone. */
static void
mini_write(const struct crpc_mlx5_cq *cq, uint32_t at, const struct crpc_mlx5_cqe *title,
	const struct crpc_mlx5_mini_cqe *mini, uint32_t place)
{
	struct crpc_mlx5_cqe cqe = *title;
	bool owner = (at & (cq->mask + 1)) != 0;

	cqe.byte_cnt = mini->byte_cnt;
	if (title->op_own >> 4 == MLX5_CQE_REQ) {
		cqe.wqe_counter = mini->wqe_counter;
		cqe.opcode_qpn = htobe32((be32toh(title->opcode_qpn) & CRPC_MLX5_QPN_MASK) |
			(uint32_t)mini->wqe_opcode << 24);
	} else {
		cqe.wqe_counter = htobe16((uint16_t)(be16toh(title->wqe_counter) + place));
	}
	cqe.op_own = (uint8_t)((title->op_own & 0xf0) | owner);
	cq->buf[at & cq->mask] = cqe;
}

crpc_noinline bool
crpc_mlx5_cq_expand(struct crpc_mlx5_cq *cq)
{
	struct crpc_mlx5_mini_cqe mini[CRPC_MLX5_MINI_PER_CQE];
	struct crpc_mlx5_cqe title = cq->buf[cq->ci & cq->mask];
	uint32_t count = be32toh(title.byte_cnt), i, from;

	if (count < 2 || count > cq->mask + 1)
		return false;
	for (i = 0; i < count; i++) {
		if (i % CRPC_MLX5_MINI_PER_CQE == 0) {
			/* Aside, as it lies where its own completions will. */
			from = cq->ci + (i != 0 ? i : 1);
			memcpy(mini, &cq->buf[from & cq->mask], sizeof(mini));
		}
		mini_write(cq, cq->ci + i, &title, &mini[i % CRPC_MLX5_MINI_PER_CQE], i);
	}
	return true;
}

/* Made twice, so that who has no compression does not look for it. */
crpc_inline uint16_t
drain(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t got, uint16_t n, bool zip)
{
	struct crpc_mlx5_cq *cq = &dev->cq;
	const struct crpc_mlx5_cqe *cqe;
	struct refill refill;
	uint32_t start = cq->ci;
	uint64_t tail;

	refill.num = 0;
	/* Entries without an outcome for the user do not fill the array; the index that the device
	 * knows is only moved below, so there are never more of them than the ring has. */
	while (got < n) {
		cqe = cqe_next(cq, &tail);
		if (cqe == NULL)
			break;
		/* Without it the fields below could be read before the owner bit, and be old. */
		crpc_dma_rmb();
		if (zip && (tail & CRPC_MLX5_CQE_COMPRESSED) == CRPC_MLX5_CQE_COMPRESSED) {
			if (!crpc_mlx5_cq_expand(cq)) {
				session_refuse(dev, tail);
				cq->ci++;
				continue;
			}
			cqe_next(cq, &tail);
		}
		cq->ci++;
		got += cqe_take(dev, cqe, tail, &out[got], &refill);
	}
	if (cq->ci != start)
		refill_flush(dev, &refill);
	return got;
}

static uint16_t
cq_drain(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t got, uint16_t n)
{
	return drain(dev, out, got, n, false);
}

static uint16_t
cq_drain_zip(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t got, uint16_t n)
{
	return drain(dev, out, got, n, true);
}

crpc_inline uint16_t
poll(struct crpc_rdma *base, struct crpc_rdma_cqe *out, uint16_t n,
	uint16_t (*const take)(struct crpc_mlx5_dev *, struct crpc_rdma_cqe *, uint16_t, uint16_t))
{
	struct crpc_mlx5_dev *dev = crpc_container_of(base, struct crpc_mlx5_dev, base);
	uint32_t start = dev->cq.ci;
	uint16_t got = 0;

	owner_check(dev);
	if (n > CRPC_BURST_MAX)
		n = CRPC_BURST_MAX;
	dev->stats.polls++;
	if (crpc_load_relaxed(&dev->attention) != 0)
		got = attend(dev, out, n);
	got = take(dev, out, got, n);
	/*
	 * A NIC in software works on our time: whenever the queue ran dry, not only when it was
	 * empty from the start. Under load it never is, and what was posted would wait for turns.
	 */
	if (dev->progress != NULL && got < n && dev->progress(dev->context) != 0)
		got = take(dev, out, got, n);
	dev->stats.empty_polls += dev->cq.ci == start;
	return got;
}

uint16_t
crpc_mlx5_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *out, uint16_t n)
{
	return poll(base, out, n, cq_drain);
}

uint16_t
crpc_mlx5_poll_zip(struct crpc_rdma *base, struct crpc_rdma_cqe *out, uint16_t n)
{
	return poll(base, out, n, cq_drain_zip);
}

/* A look ahead: on behind the next unread completion; sessions are written out on the way. False:
 * there is none. */
static bool
cqe_ahead(struct crpc_mlx5_cq *walk, const struct crpc_mlx5_cq *cq)
{
	uint64_t tail;

	if (walk->ci - cq->ci > walk->mask || cqe_next(walk, &tail) == NULL)
		return false;
	crpc_dma_rmb();
	if ((tail & CRPC_MLX5_CQE_COMPRESSED) == CRPC_MLX5_CQE_COMPRESSED)
		crpc_mlx5_cq_expand(walk);
	walk->ci++;
	return true;
}

void
crpc_mlx5_cq_forget(struct crpc_mlx5_cq *cq, uint32_t qpn)
{
	struct crpc_mlx5_cq walk = *cq;
	const struct crpc_mlx5_cqe *from;
	struct crpc_mlx5_cqe *cqe;
	uint32_t to;

	while (cqe_ahead(&walk, cq))
		;
	/* What others have is moved towards the newest, as rdma-core does it. */
	for (to = walk.ci; walk.ci != cq->ci;) {
		from = &cq->buf[--walk.ci & cq->mask];
		if ((be32toh(from->opcode_qpn) & CRPC_MLX5_QPN_MASK) == qpn || --to == walk.ci)
			continue;
		cqe = &cq->buf[to & cq->mask];
		*cqe = *from;
		cqe->op_own = (uint8_t)((cqe->op_own & ~MLX5_CQE_OWNER_MASK) |
			((to & (cq->mask + 1)) != 0));
	}
	if (to == cq->ci)
		return;
	cq->ci = to;
	/* Release: as in refill_flush(). */
	crpc_store_release(cq->dbrec, htobe32(to & CRPC_MLX5_CQE_CTR_MASK));
}
