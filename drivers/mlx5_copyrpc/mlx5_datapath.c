/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post and poll. One cache line of CQE and one or two of WQE are touched per request besides the
 * queue's own state; nothing here allocates, locks or enters the kernel.
 *
 * Order of the records that a poll writes: first the CQ's consumer index, then the receive
 * counters. A receive that is handed out again before the device knows that its completion was read
 * could overrun the CQ.
 */
#include <errno.h>

#include "mlx5_doorbell.h"
#include "mlx5_wqe.h"

void
crpc_mlx5_sq_ring(struct crpc_mlx5_dev *dev, struct crpc_mlx5_sq *sq, uint16_t n, uint32_t start)
{
	dev->ib.base.stats.wqes += n;
	dev->ib.base.stats.wqebbs += sq->pi - start;
	dev->ib.base.stats.doorbells++;
	dev->ib.base.stats.blueflame +=
		crpc_mlx5_ring(sq, crpc_mlx5_block(sq, sq->newest), n == 1 ? sq->pi - start : 0);
	/* A card acts on its doorbell at once; a NIC in software uses the caller's time. */
	if (dev->ib.progress != NULL)
		dev->ib.progress(dev->ib.context);
}

/*
 * Whether the next WQE has to give a completion. A completion retires all WQEs of the ring before
 * it, so a queue pair requests one by itself only if there was none since its oldest outstanding
 * WR: among as many as it may have outstanding there is always one that makes room again.
 */
static inline bool
signal_due(struct crpc_mlx5_sq *sq, struct crpc_mlx5_qp *qp, bool wanted)
{
	if (qp->signals != sq->signals) { /* Another queue pair's covers all of ours so far. */
		qp->signals = sq->signals;
		qp->ib.unsignalled = 0;
	}
	if (!wanted && ++sq->unsignalled < sq->signal_every &&
		++qp->ib.unsignalled < qp->ib.signal_every)
		return false;
	sq->unsignalled = 0;
	qp->ib.unsignalled = 0;
	qp->signals = ++sq->signals;
	return true;
}

/* The loop of all kinds: the requests are datagrams of ud, or else writes and reads of qp. */
crpc_inline uint16_t
post(struct crpc_mlx5_qp *qp, const struct crpc_mlx5_ud *ud, const struct crpc_rdma_wr *wr,
	uint16_t n)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(qp->ib.base.dev);
	struct crpc_mlx5_sq *sq = qp->sq;
	uint32_t most = sq->bb_mask + 1 - sq->reserved - qp->bb_max, start = sq->pi, ds;
	struct crpc_mlx5_req req;
	uint16_t i;
	bool user;

	crpc_owner_check(&dev->ib.base.owner, "RDMA device");
	if (crpc_unlikely(qp->ib.state != CRPC_IB_READY))
		return 0;
	n = (uint16_t)crpc_min(n, qp->ib.depth - crpc_ib_outstanding(&qp->ib));
	for (i = 0; i < n && crpc_mlx5_sq_used(sq) <= most; i++) {
		req = ud != NULL ? crpc_mlx5_dgram_req(ud, &wr[i]) : crpc_mlx5_wr_req(qp, &wr[i]);
		user = req.flags & CRPC_RDMA_WR_SIGNAL;
		ds = crpc_mlx5_wqe_build(sq, &req, signal_due(sq, qp, user));
		if (crpc_unlikely(ds == 0)) {
			crpc_ib_fault(&qp->ib, -EINVAL, req.wr_id, "a work request is not valid");
			/* The completion that it would have given will not come. */
			sq->unsignalled = sq->signal_every;
			break;
		}
		crpc_mlx5_sent_add(sq, qp, req.wr_id, user, crpc_mlx5_ds_to_bb(ds));
		qp->ib.posted++;
	}
	if (crpc_likely(i != 0))
		crpc_mlx5_sq_ring(dev, sq, i, start);
	return i;
}

/* Of datagrams; apart, so that the other kinds do not save its registers. */
static crpc_noinline uint16_t
ud_post(struct crpc_mlx5_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n)
{
	return post(qp, crpc_container_of(qp, struct crpc_mlx5_ud, qp), wr, n);
}

uint16_t
crpc_mlx5_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_mlx5_qp *qp = crpc_mlx5_qp(crpc_ib_qp_of(base));

	if (qp->ib.kind != CRPC_IB_RC) {
		if (qp->ib.kind == CRPC_IB_UD)
			return ud_post(qp, wr, n);
		if (n == 0 || !crpc_mlx5_dci_choose(qp, wr->wr_id))
			return 0;
	}
	return post(qp, NULL, wr, n);
}

/* A send is done, and so are all before it in the ring. */
static inline uint16_t
send_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, uint64_t tail,
	struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_sq *sq = &qp->own;
	const struct crpc_mlx5_sent *sent = crpc_mlx5_sent_find(sq, CRPC_MLX5_TAIL_COUNTER(tail));
	struct crpc_mlx5_qp *owner;

	dev->ib.base.stats.send_cqes++;
	if (crpc_unlikely(sent == NULL)) {
		crpc_mlx5_cqe_fault(qp, "a completion names a WQE that is not outstanding");
		return 0;
	}
	owner = crpc_mlx5_retire_to(sq, sent->start);
	if (crpc_unlikely(qp->ib.state == CRPC_IB_DRAINING) && crpc_mlx5_sq_used(sq) == 0)
		qp->ib.state = CRPC_IB_READY;
	if (!sent->user || crpc_mlx5_is_silent(owner))
		return 0;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_SEND,
		.qp_id = owner->ib.base.id,
		.wr_id = sent->wr_id,
		.wrs = crpc_ib_report_take(&owner->ib),
	};
	return 1;
}

/* Receive queues that one poll has to report to the device. */
struct refill {
	uint32_t num;
	struct crpc_mlx5_qp *qp[CRPC_BURST_MAX];
};

/* A write with immediate arrived: its receive goes straight back, as it holds nothing. */
static inline uint16_t
recv_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, const union crpc_mlx5_cqe *cqe,
	struct crpc_rdma_cqe *out, struct refill *refill)
{
	dev->ib.base.stats.recv_cqes++;
	if (crpc_likely(qp->rq.state == CRPC_MLX5_RQ_CLEAN)) {
		qp->rq.state = CRPC_MLX5_RQ_DIRTY;
		refill->qp[refill->num++] = qp;
	} else if (crpc_unlikely(qp->rq.state == CRPC_MLX5_RQ_NO_IMM)) {
		crpc_mlx5_cqe_fault(qp, "a completion names a message of no known kind");
		return 0;
	}
	dev->ib.base.stats.recv_posted++;
	qp->rq.posted++;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_RECV,
		.qp_id = qp->ib.base.id,
		.imm = be32toh(cqe->ok.imm_inval_pkey),
		.byte_len = be32toh(cqe->ok.byte_cnt),
	};
	return 1;
}

/* A datagram arrived: its buffer is the user's until the next poll. */
static uint16_t
dgram_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, const union crpc_mlx5_cqe *cqe,
	uint64_t tail, struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_ud *ud = qp->rq.ud;
	uint32_t len = be32toh(cqe->ok.byte_cnt);

	dev->ib.base.stats.recv_cqes++;
	if (crpc_unlikely(
		    ud == NULL || len < CRPC_IB_GRH || len > CRPC_IB_GRH + CRPC_IB_UD_LEN_MAX)) {
		crpc_mlx5_cqe_fault(qp, "a completion names a message of no known kind");
		return 0;
	}
	if (ud->held++ == 0) {
		ud->next_held = dev->held;
		dev->held = ud;
		crpc_store_relaxed(&dev->ib.attention, 1);
	}
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_DGRAM,
		.qp_id = qp->ib.base.id,
		.imm = be32toh(cqe->ok.imm_inval_pkey),
		.byte_len = len - CRPC_IB_GRH,
		.data = ud->buf +
			(size_t)(CRPC_MLX5_TAIL_COUNTER(tail) & ud->mask) * CRPC_IB_UD_STRIDE +
			CRPC_IB_UD_PAYLOAD,
	};
	return 1;
}

/* Hands the buffers of the last poll's datagrams back: their completions were read long ago. */
static void
held_return(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_rq *rq;

	/* Without it the device could write over a payload that is still being read. */
	crpc_dma_wmb();
	for (struct crpc_mlx5_ud *ud = dev->held; ud != NULL; ud = ud->next_held) {
		rq = &ud->qp.rq;
		rq->posted += ud->held;
		dev->ib.base.stats.recv_posted += ud->held;
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

	/* Acquire: pairs with the question's R2, and with set_failed(). First, as what comes later
	 * must stay. */
	crpc_exchange_acq_rel(&dev->ib.attention, 0);
	held_return(dev);
	got = crpc_ib_faults_take(&dev->ib, out, n, crpc_mlx5_qp_to_error);
	again = crpc_mlx5_dcis_turn(dev);
	again |= crpc_mlx5_ending_take(dev);
	if (again)
		crpc_store_relaxed(&dev->ib.attention, 1);
	if (dev->tel != NULL && crpc_tel_asked(dev->tel))
		crpc_mlx5_tel_answer(dev);
	return got;
}

static inline uint16_t
cqe_take(struct crpc_mlx5_dev *dev, const union crpc_mlx5_cqe *cqe, uint64_t tail,
	struct crpc_rdma_cqe *out, struct refill *refill)
{
	struct crpc_mlx5_qp *qp = crpc_mlx5_table_find(&dev->table, CRPC_MLX5_TAIL_QPN(tail));
	uint32_t opcode = CRPC_MLX5_TAIL_OPCODE(tail);

	if (crpc_unlikely(qp == NULL))
		return 0;
	if (crpc_unlikely(CRPC_MLX5_TAIL_FORMAT(tail) != 0)) {
		crpc_mlx5_cqe_fault(qp, "a completion holds data, or is compressed");
		return 0;
	}
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

	/* Release: the device may overwrite the entries only after they were read. */
	crpc_store_release(dev->cq.dbrec, htobe32(dev->cq.ci & CRPC_MLX5_CQE_CTR_MASK));
	if (refill->num == 0)
		return;
	/* Without it the device could see the new receives while it still takes the CQ for full. */
	crpc_dma_wmb();
	for (uint32_t i = 0; i < refill->num; i++) {
		rq = &refill->qp[i]->rq;
		rq->state = CRPC_MLX5_RQ_CLEAN;
		crpc_store_release(rq->dbrec, htobe32(rq->posted & CRPC_MLX5_WQE_CTR_MASK));
	}
}

static uint16_t
drain(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t got, uint16_t n)
{
	struct crpc_mlx5_cq *cq = &dev->cq;
	const union crpc_mlx5_cqe *cqe;
	struct refill refill;
	uint32_t start = cq->ci;
	uint64_t tail;

	refill.num = 0;
	/* Entries without an outcome for the user do not fill the array; the index that the device
	 * knows is only moved below, so there are never more of them than the ring has. */
	while (got < n) {
		cqe = crpc_mlx5_cqe_next(cq, &tail);
		if (cqe == NULL)
			break;
		/* Without it the fields below could be read before the owner bit, and be old. */
		crpc_dma_rmb();
		cq->ci++;
		got += cqe_take(dev, cqe, tail, &out[got], &refill);
	}
	if (cq->ci != start)
		refill_flush(dev, &refill);
	return got;
}

uint16_t
crpc_mlx5_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *out, uint16_t n)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(base);
	uint32_t start = dev->cq.ci;
	uint16_t got = 0;

	crpc_owner_check(&dev->ib.base.owner, "RDMA device");
	if (n > CRPC_BURST_MAX)
		n = CRPC_BURST_MAX;
	dev->ib.base.stats.polls++;
	if (crpc_load_relaxed(&dev->ib.attention) != 0)
		got = attend(dev, out, n);
	got = drain(dev, out, got, n);
	/*
	 * A NIC in software works on our time: whenever the queue ran dry, not only when it was
	 * empty from the start. Under load it never is, and what was posted would wait for turns.
	 */
	if (dev->ib.progress != NULL && got < n && dev->ib.progress(dev->ib.context) != 0)
		got = drain(dev, out, got, n);
	dev->ib.base.stats.empty_polls += dev->cq.ci == start;
	return got;
}
