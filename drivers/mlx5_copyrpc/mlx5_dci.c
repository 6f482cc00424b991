/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DC initiators, the datapath: one send queue for the WRs of many queue pairs.
 *
 * Choice. A queue pair stays on its initiator while it has WRs outstanding there, so its own
 * order holds; else it takes the one with the fewest blocks in use.
 *
 * Errors. An initiator goes to another target only when the one before has acknowledged all. So
 * when a WR fails, those before it are done, those of the same queue pair behind it are lost with
 * it, and those of others behind it were never sent: they are posted once more after the initiator
 * was reset. That happens when the device has flushed the last of them, so each is executed
 * exactly once.
 *
 * Ends. The WRs of a queue pair that goes cannot be taken out of the initiator's ring. It takes no
 * new ones until those that are there are done (DRAINING): others choose another initiator, unless
 * they have something outstanding here, which waits behind the same target in any case. No call
 * waits: the polls see the completions, and a target that takes nothing for drain_ns has the
 * initiator stopped, which is one more error.
 *
 * An initiator that the device does not take out of an error is given up. Queue pairs use the
 * others; once all are given up each breaks when it posts. crpc_mlx5_dcis_make() replaces those
 * that were given up: no control command of it runs inside a poll.
 */
#include <errno.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "mlx5_wqe.h"

/* Polls, at least, before the device is overdue. */
#define REST_LOOKS 16
/* What was flushed completes at once, if it does: some devices say so only of what asked for it. */
#define FLUSH_NS UINT64_C(20000000)

bool
crpc_mlx5_dci_is_gone(const struct crpc_mlx5_dci *dci)
{
	return dci->qp.ib.state == CRPC_IB_ERROR && crpc_mlx5_sq_used(&dci->qp.own) == 0;
}

/* The initiator of a ring. */
static inline struct crpc_mlx5_dci *
dci_of(struct crpc_mlx5_sq *sq)
{
	return crpc_container_of(sq, struct crpc_mlx5_dci, qp.own);
}

/* Without an initiator that will ever be ready again a queue pair breaks. */
static crpc_noinline void
post_refuse(const struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, uint32_t wr_id)
{
	for (uint32_t i = 0; i < dev->num_dcis; i++) {
		if (!crpc_mlx5_dci_is_gone(dev->dci[i]))
			return;
	}
	crpc_ib_fault(&qp->ib, -EIO, wr_id, "the device's DC initiators were all given up");
}

bool
crpc_mlx5_dci_choose(struct crpc_mlx5_qp *qp, uint32_t wr_id)
{
	const struct crpc_mlx5_dev *dev = crpc_mlx5_dev(qp->ib.base.dev);
	struct crpc_mlx5_sq *best = NULL, *sq;

	if (crpc_unlikely(qp->ib.state != CRPC_IB_READY))
		return false;
	if (crpc_ib_outstanding(&qp->ib) != 0)
		return dci_of(qp->sq)->qp.ib.state == CRPC_IB_READY;
	for (uint32_t i = 0; i < dev->num_dcis; i++) {
		sq = &dev->dci[i]->qp.own;
		if (dev->dci[i]->qp.ib.state != CRPC_IB_READY)
			continue;
		/* At equal load it stays: the device may still have its connection open. */
		if (best == NULL || crpc_mlx5_sq_used(sq) < crpc_mlx5_sq_used(best) ||
			(crpc_mlx5_sq_used(sq) == crpc_mlx5_sq_used(best) && sq == qp->sq))
			best = sq;
	}
	if (crpc_unlikely(best == NULL)) {
		post_refuse(dev, qp, wr_id);
		return false;
	}
	qp->sq = best;
	return true;
}

void
crpc_mlx5_dci_give_up(struct crpc_mlx5_dci *dci, const char *why)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	struct crpc_mlx5_qp *owner;

	crpc_err("DC initiator 0x%x: %s: it is used no more, and what it had to send is lost",
		dci->qp.ib.qpn, why);
	dci->qp.ib.state = CRPC_IB_ERROR;
	/* Before memory counts as free: in RESET the device has released it, in ERR it may not
	 * have. */
	if (crpc_ib_state_set(dci->qp.ib.ibqp, IBV_QPS_RESET) != 0)
		crpc_ib_state_set(dci->qp.ib.ibqp, IBV_QPS_ERR);
	while (crpc_mlx5_sq_used(sq) != 0) {
		owner = crpc_mlx5_retire_one(sq);
		if (owner != NULL && owner->ib.state == CRPC_IB_READY)
			crpc_ib_fault(&owner->ib, -EIO, 0, why);
	}
	dci->flushed = sq->ci;
}

/* The device has so much time to complete what is outstanding. */
static void
rest_wait(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci, uint64_t ns)
{
	dci->rest_ns = ns;
	dci->rest_part_ns = ns / REST_LOOKS + 1;
	dci->looked_ns = crpc_clock_ns();
	crpc_store_relaxed(&dev->ib.attention, 1);
}

/* Whether that time is over. Of the time between two polls a part counts: a device in software
 * does nothing in it, and what a card completed meanwhile is not read yet. */
static bool
rest_is_overdue(struct crpc_mlx5_dci *dci)
{
	uint64_t now = crpc_clock_ns();
	uint64_t ns = crpc_min(now - dci->looked_ns, dci->rest_part_ns);

	dci->looked_ns = now;
	if (ns < dci->rest_ns) {
		dci->rest_ns -= ns;
		return false;
	}
	return true;
}

/* ---- errors ---- */

/* Saves what is outstanding and still has an owner, in order; the number of WQEs. */
static uint32_t
wqes_save(struct crpc_mlx5_dci *dci)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	const struct crpc_mlx5_sent *sent;
	uint32_t to = 0, num = 0;

	for (uint32_t i = sq->ci; i != sq->pi; i += sent->bb) {
		sent = &sq->sent[i & sq->bb_mask];
		if (sent->owner == NULL)
			continue;
		for (uint32_t b = 0; b < sent->bb; b++, to++)
			memcpy(dci->copy + (size_t)to * CRPC_MLX5_BB, crpc_mlx5_block(sq, i + b),
				CRPC_MLX5_BB);
		dci->again[num++] = *sent;
	}
	return num;
}

/* Posts the saved ones again, from the start of the ring. The last gives a completion. */
static void
wqes_post(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci, uint32_t num)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	struct crpc_mlx5_ctrl *ctrl = NULL;

	for (const struct crpc_mlx5_sent *s = dci->again; s < dci->again + num; s++) {
		/* The ring is empty and starts at 0: nothing is cut at its end. */
		ctrl = (void *)crpc_mlx5_block(sq, sq->pi);
		memcpy(ctrl, dci->copy + (size_t)sq->pi * CRPC_MLX5_BB,
			(size_t)s->bb * CRPC_MLX5_BB);
		ctrl->opmod_idx_opcode =
			htobe32((be32toh(ctrl->opmod_idx_opcode) & 0xffu) | sq->pi << 8);
		crpc_mlx5_sent_add(sq, s->owner, s->wr_id, s->user, s->bb);
	}
	if (num == 0)
		return;
	ctrl->flags = htobe32(MLX5_WQE_CTRL_CQ_UPDATE);
	sq->signals++;
	crpc_mlx5_sq_ring(dev, sq, (uint16_t)num, 0);
	crpc_info("DC initiator 0x%x: posted %u work requests of other queue pairs again",
		dci->qp.ib.qpn, num);
}

/* What lies before this block was flushed, and has no completion of its own. Of a broken queue pair
 * it is lost, of others it is kept. */
static void
flush_skip(struct crpc_mlx5_dci *dci, uint32_t end)
{
	struct crpc_mlx5_sent *sent;

	while (dci->flushed != end) {
		sent = &dci->qp.own.sent[dci->flushed & dci->qp.own.bb_mask];
		dci->flushed += sent->bb;
		if (sent->owner == NULL || sent->owner->ib.state == CRPC_IB_READY)
			continue;
		sent->owner->ib.retired++;
		sent->owner = NULL;
	}
}

/* All that was outstanding was flushed: leaves the error, and goes on with what others posted. */
static void
dci_restart(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	struct ibv_qp_attr attr = crpc_ib_attr(&dev->ib, 0, 0);
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	uint32_t num = wqes_save(dci);

	if (crpc_ib_state_set(dci->qp.ib.ibqp, IBV_QPS_RESET) != 0 ||
		crpc_ib_move(CRPC_IB_DCI, dci->qp.ib.ibqp, &attr, IBV_QPS_RTS) != 0) {
		crpc_mlx5_dci_give_up(dci, "it cannot be reset");
		return;
	}
	/* What it flushed late, or said twice, is over. */
	crpc_mlx5_cq_forget(&dev->cq, dci->qp.ib.qpn);
	dci->resets++;
	/* Indexes start again: no old one may look like one of these. */
	for (uint32_t i = 0; i <= sq->bb_mask; i++)
		sq->sent[i].start = ~i;
	sq->pi = 0;
	sq->ci = 0;
	sq->unsignalled = 0;
	dci->flushed = 0;
	dci->qp.ib.state = CRPC_IB_READY;
	wqes_post(dev, dci, num);
}

/* The first error: the WR's queue pair breaks; the initiator waits for the rest to be flushed. */
static uint16_t
fault_first(struct crpc_mlx5_dci *dci, const struct crpc_mlx5_sent *sent,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	struct crpc_mlx5_qp *owner;

	dci->qp.ib.state = CRPC_IB_ERROR;
	owner = crpc_mlx5_retire_to(sq, sent->start);
	dci->flushed = sq->ci;
	if (crpc_mlx5_is_silent(owner))
		return 0;
	crpc_mlx5_error_log(owner, sq, cqe);
	owner->ib.state = CRPC_IB_ERROR;
	crpc_mlx5_qp_to_error(&owner->ib);
	return crpc_mlx5_error_report(owner, cqe, sent, out);
}

/* One that was flushed behind it. Those of a broken queue pair are lost, others are kept. */
static uint16_t
fault_next(struct crpc_mlx5_dci *dci, struct crpc_mlx5_sent *sent, const union crpc_mlx5_cqe *cqe,
	struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_qp *owner = sent->owner;

	dci->flushed += sent->bb;
	if (owner == NULL || owner->ib.state == CRPC_IB_READY)
		return 0;
	sent->owner = NULL;
	owner->ib.retired++;
	return crpc_mlx5_is_silent(owner) ? 0 : crpc_mlx5_error_report(owner, cqe, sent, out);
}

uint16_t
crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	struct crpc_mlx5_sent *sent = crpc_mlx5_sent_find(sq, be16toh(cqe->ok.wqe_counter));
	bool first = dci->qp.ib.state != CRPC_IB_ERROR;
	uint16_t got;

	if (cqe->ok.op_own >> 4 != MLX5_CQE_REQ_ERR || sent == NULL ||
		(!first && sent->start - dci->flushed >= sq->pi - dci->flushed)) {
		crpc_mlx5_cqe_fault(&dci->qp, "an error names a WQE that is not outstanding");
		return 0;
	}
	if (!first)
		flush_skip(dci, sent->start);
	got = first ? fault_first(dci, sent, cqe, out) : fault_next(dci, sent, cqe, out);
	if (dci->flushed == sq->pi)
		dci_restart(dev, dci);
	else if (first)
		rest_wait(dev, dci, crpc_min(FLUSH_NS, dev->ib.conf.drain_ns));
	return got;
}

/* ---- the end of a queue pair ---- */

/* Whether a queue pair that is in use has anything outstanding on the ring. */
static bool
is_wanted(const struct crpc_mlx5_sq *sq)
{
	for (uint32_t i = sq->ci; i != sq->pi; i += sq->sent[i & sq->bb_mask].bb) {
		if (!crpc_mlx5_is_silent(sq->sent[i & sq->bb_mask].owner))
			return true;
	}
	return false;
}

/* Empties an initiator by force. All that it has outstanding is lost. */
static void
dci_empty(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	crpc_ib_state_set(dci->qp.ib.ibqp, IBV_QPS_RESET);
	crpc_mlx5_cq_forget(&dev->cq, dci->qp.ib.qpn);
	while (crpc_mlx5_sq_used(&dci->qp.own) != 0)
		crpc_mlx5_retire_one(&dci->qp.own);
	dci_restart(dev, dci);
}

/* An empty write to the same peer completes when all before it is over. */
static void
dci_drain(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci, const struct crpc_mlx5_qp *qp)
{
	const struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE};
	struct crpc_mlx5_req req = crpc_mlx5_wr_req(qp, &wr);
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	uint32_t start = sq->pi;

	crpc_mlx5_sent_add(
		sq, NULL, 0, false, crpc_mlx5_ds_to_bb(crpc_mlx5_wqe_build(sq, &req, true)));
	sq->signals++;
	sq->unsignalled = 0;
	dci->qp.ib.state = CRPC_IB_DRAINING;
	dci->stopped = false;
	rest_wait(dev, dci, dev->ib.conf.drain_ns);
	crpc_mlx5_sq_ring(dev, sq, 1, start);
}

/* In ERROR the device has stopped. What it flushed is not posted again; what it will flush needs
 * its room in the completion queue until then. */
static void
disown(struct crpc_mlx5_dci *dci, struct crpc_mlx5_qp *qp)
{
	struct crpc_mlx5_sq *sq = &dci->qp.own;
	struct crpc_mlx5_sent *sent;

	for (uint32_t i = sq->ci; i != dci->flushed; i += sent->bb) {
		sent = &sq->sent[i & sq->bb_mask];
		if (sent->owner != qp)
			continue;
		sent->owner = NULL;
		qp->ib.retired++;
	}
}

bool
crpc_mlx5_dc_retire(struct crpc_mlx5_qp *qp)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(qp->ib.base.dev);
	struct crpc_mlx5_dci *dci = dci_of(qp->sq);

	if (crpc_ib_outstanding(&qp->ib) == 0)
		return true;
	if (dci->qp.ib.state == CRPC_IB_ERROR)
		disown(dci, qp);
	else if (!is_wanted(qp->sq))
		dci_empty(dev, dci);
	else if (dci->qp.ib.state == CRPC_IB_READY)
		dci_drain(dev, dci, qp);
	return crpc_ib_outstanding(&qp->ib) == 0;
}

/* The time is over: what was flushed will not complete, the device flushes what it has, or is used
 * no more. */
static void
dci_overdue(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	if (dci->qp.ib.state == CRPC_IB_ERROR) {
		flush_skip(dci, dci->qp.own.pi);
		dci_restart(dev, dci);
		return;
	}
	if (dci->stopped) {
		crpc_mlx5_dci_give_up(dci, "it has stopped and flushes nothing");
		return;
	}
	crpc_warn("DC initiator 0x%x: %llu ms after a queue pair was freed a target still takes "
		  "nothing: it is stopped, and queue pairs that wait for that target break",
		dci->qp.ib.qpn, (unsigned long long)(dev->ib.conf.drain_ns / 1000000));
	dci->stopped = true;
	rest_wait(dev, dci, dev->ib.conf.drain_ns);
	if (crpc_ib_state_set(dci->qp.ib.ibqp, IBV_QPS_ERR) != 0)
		crpc_mlx5_dci_give_up(dci, "it cannot be stopped");
}

bool
crpc_mlx5_dcis_turn(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_dci *dci;
	bool some = false;

	for (uint32_t i = 0; i < dev->num_dcis; i++) {
		dci = dev->dci[i];
		if (dci->qp.ib.state == CRPC_IB_READY || crpc_mlx5_dci_is_gone(dci))
			continue;
		some = true;
		if (rest_is_overdue(dci))
			dci_overdue(dev, dci);
	}
	return some;
}

void
crpc_mlx5_dcis_stop(struct crpc_mlx5_dev *dev)
{
	for (uint32_t i = 0; i < dev->num_dcis; i++) {
		if (crpc_mlx5_sq_used(&dev->dci[i]->qp.own) != 0)
			dci_empty(dev, dev->dci[i]);
	}
}
