/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DC initiators, the datapath: one send queue for the WRs of many queue pairs.
 *
 * Which one. A queue pair stays on its initiator while it has WRs outstanding there, so its own
 * order holds; else it takes the one with the fewest blocks in use.
 *
 * Completions. They are asked for per send queue, not per queue pair: each retires all WRs before
 * it, whoever's they are. A queue pair asks by itself only if nobody else has since its oldest WR
 * that is still without an answer.
 *
 * Errors. An initiator goes to another target only when the one before has acknowledged all. So
 * when a WR fails, those before it are done, those of the same queue pair behind it are lost with
 * it, and those of others behind it were never sent: they are posted once more after the initiator
 * was reset. That happens when the device has given back the last of them, so each is executed
 * exactly once.
 *
 * Ends. The WRs of a queue pair that goes cannot be taken out of the initiator's ring. It takes no
 * new ones until those that are there are done (DRAINING): others choose another initiator, unless
 * they have something outstanding here, which waits behind the same target in any case. Nobody
 * waits inside a call: the polls see the completions, and a target that takes nothing for drain_ns
 * has the initiator stopped, which is one more error.
 *
 * An initiator that the device does not take out of an error is given up. Queue pairs use the
 * others; once all are given up each breaks when it posts. crpc_mlx5_dc_create() replaces those
 * that were given up: no control command of it runs inside a poll.
 */
#include <errno.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "mlx5_doorbell.h"
#include "mlx5_wqe.h"

/* Blocks kept for the WR whose completion ends DRAINING. */
#define DRAIN_BLOCKS 2
/* Polls, at least, before the device is overdue. */
#define REST_LOOKS 16

static inline uint32_t
blocks_used(const struct crpc_mlx5_dci *dci)
{
	return dci->qp.dp.sq.pi - dci->ci;
}

static inline uint32_t
wrs_outstanding(const struct crpc_mlx5_dc *dc)
{
	return dc->qp.dp.sq.posted - dc->qp.dp.sq.retired;
}

/* The initiator for the next WRs, or NULL if it drains or is being reset. */
static inline struct crpc_mlx5_dci *
dci_choose(const struct crpc_mlx5_dev *dev, struct crpc_mlx5_dc *dc)
{
	struct crpc_mlx5_dci *best = NULL, *dci;
	uint32_t i;

	if (wrs_outstanding(dc) != 0)
		return dc->dci->qp.dp.state == CRPC_MLX5_QP_READY ? dc->dci : NULL;
	for (i = 0; i < dev->num_dcis; i++) {
		dci = dev->dci[i];
		if (dci->qp.dp.state != CRPC_MLX5_QP_READY)
			continue;
		/* At equal load it stays: the device may still have its connection open. */
		if (best == NULL || blocks_used(dci) < blocks_used(best) ||
			(blocks_used(dci) == blocks_used(best) && dci == dc->dci))
			best = dci;
	}
	if (best != NULL)
		dc->dci = best;
	return best;
}

/* Without an initiator that will ever be ready again a queue pair breaks. */
static crpc_noinline void
post_refuse(const struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, uint32_t wr_id)
{
	uint32_t i;

	for (i = 0; i < dev->num_dcis; i++) {
		if (!crpc_mlx5_dci_is_gone(dev->dci[i]))
			return;
	}
	crpc_mlx5_qp_fault(qp, -EIO, wr_id, "the device's DC initiators were all given up");
}

/* Whether this WR has to give a completion. */
static inline bool
signal_due(struct crpc_mlx5_dci *dci, struct crpc_mlx5_dc *dc, bool wanted)
{
	struct crpc_mlx5_sq *sq = &dc->qp.dp.sq;

	if (dc->signals != dci->signals) { /* Somebody's covers all of ours so far. */
		dc->signals = dci->signals;
		sq->unsignalled = 0;
	}
	if (!wanted && ++dci->unsignalled < dci->signal_every &&
		++sq->unsignalled < sq->signal_every)
		return false;
	dci->unsignalled = 0;
	sq->unsignalled = 0;
	dc->signals = ++dci->signals;
	return true;
}

static inline void
dc_sent_add(struct crpc_mlx5_dci *dci, struct crpc_mlx5_dc *owner, uint32_t wr_id, bool user,
	uint32_t bb)
{
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t at = sq->pi & sq->bb_mask;

	/* The number of a WR is where it starts: running free, and rising. */
	sq->sent[at] = (struct crpc_mlx5_sent){.wr_id = wr_id, .seq = sq->pi, .user = user};
	dci->sent[at] = (struct crpc_mlx5_dc_sent){.owner = owner, .bb = bb};
	dci->newest = sq->pi;
	sq->pi += bb;
}

uint16_t
crpc_mlx5_dc_post(struct crpc_mlx5_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_mlx5_dc *dc = crpc_container_of(qp, struct crpc_mlx5_dc, qp.dp);
	struct crpc_mlx5_dev *dev = crpc_container_of(qp->base.dev, struct crpc_mlx5_dev, base);
	struct crpc_mlx5_dci *dci;
	uint32_t room = qp->sq.depth - (qp->sq.posted - qp->sq.retired);
	uint32_t start, most, ds, bb = 0;
	const uint8_t *wqe = NULL;
	struct crpc_mlx5_sq *sq;
	uint16_t i;

	if (qp->state != CRPC_MLX5_QP_DC_READY)
		return 0;
	dci = dci_choose(dev, dc);
	if (crpc_unlikely(dci == NULL)) {
		if (n != 0)
			post_refuse(dev, qp, wr->wr_id);
		return 0;
	}
	sq = &dci->qp.dp.sq;
	start = sq->pi;
	most = sq->bb_mask + 1 - DRAIN_BLOCKS - dc->wqebb_max;
	n = (uint16_t)crpc_min(n, room);
	sq->inline_max = dc->inline_max;
	for (i = 0; i < n && blocks_used(dci) <= most; i++) {
		ds = crpc_mlx5_dc_wqe_build(
			sq, dc, &wr[i], signal_due(dci, dc, wr[i].flags & CRPC_RDMA_WR_SIGNAL));
		if (crpc_unlikely(ds == 0)) {
			crpc_mlx5_qp_fault(qp, -EINVAL, wr[i].wr_id, "a work request is not valid");
			/* The completion that it would have given will not come. */
			dci->unsignalled = dci->signal_every;
			break;
		}
		wqe = sq->buf + (size_t)(sq->pi & sq->bb_mask) * CRPC_MLX5_BB;
		bb = crpc_mlx5_ds_to_bb(ds);
		dc_sent_add(dci, dc, wr[i].wr_id, wr[i].flags & CRPC_RDMA_WR_SIGNAL, bb);
		qp->sq.posted++;
	}
	if (crpc_unlikely(i == 0))
		return 0;
	crpc_mlx5_sq_ring(dev, sq, i, start, wqe, bb);
	return i;
}

/* Takes the oldest WR off the queue, done or lost; its owner, or NULL. */
static inline struct crpc_mlx5_dc *
retire_one(struct crpc_mlx5_dci *dci)
{
	const struct crpc_mlx5_dc_sent *s = &dci->sent[dci->ci & dci->qp.dp.sq.bb_mask];

	dci->ci += s->bb;
	if (s->owner != NULL)
		s->owner->qp.dp.sq.retired++;
	return s->owner;
}

/* Whether block `at` is the first of a WR that is outstanding. */
static inline bool
is_outstanding(const struct crpc_mlx5_dci *dci, uint32_t at)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;

	return sq->sent[at].seq - dci->ci < sq->pi - dci->ci &&
		(sq->sent[at].seq & sq->bb_mask) == at;
}

/* WRs of a queue pair that were retired since it was told last. */
static inline uint32_t
wrs_to_tell(struct crpc_mlx5_dc *dc)
{
	uint32_t wrs = dc->qp.dp.sq.retired - dc->qp.dp.sq.reported;

	dc->qp.dp.sq.reported = dc->qp.dp.sq.retired;
	return wrs;
}

/* Whether the owner of a WR is to hear nothing of it. */
static inline bool
is_retired(const struct crpc_mlx5_dc *owner)
{
	return owner != NULL && owner->qp.dp.state == CRPC_MLX5_QP_RETIRED;
}

/* Nothing of what is outstanding can be known, and nothing will be taken. */
static void
dci_give_up(struct crpc_mlx5_dci *dci, const char *why)
{
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_dc *owner;

	crpc_err("DC initiator 0x%x: %s: it is used no more, and what it had to send is lost",
		dci->qp.dp.qpn, why);
	dci->qp.dp.state = CRPC_MLX5_QP_ERROR;
	/* Before memory counts as free: in RESET the device has let go of it, in ERR it may not
	 * have. */
	if (crpc_mlx5_state_set(dci->qp.ibqp, IBV_QPS_RESET) != 0)
		crpc_mlx5_state_set(dci->qp.ibqp, IBV_QPS_ERR);
	while (dci->ci != sq->pi) {
		owner = retire_one(dci);
		if (owner != NULL && owner->qp.dp.state == CRPC_MLX5_QP_DC_READY)
			crpc_mlx5_qp_fault(&owner->qp.dp, -EIO, 0, why);
	}
	dci->flushed = dci->ci;
}

/* Retires all up to the WR that starts at block @seq; its owner, or NULL. */
static inline struct crpc_mlx5_dc *
retire_to(struct crpc_mlx5_dci *dci, uint32_t seq)
{
	struct crpc_mlx5_dc *owner;
	bool last;

	do {
		last = dci->ci == seq;
		owner = retire_one(dci);
	} while (!last);
	return owner;
}

static inline uint16_t
send_tell(struct crpc_mlx5_dc *owner, const struct crpc_mlx5_sent *sent, struct crpc_rdma_cqe *out)
{
	if (owner == NULL || !sent->user)
		return 0;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_SEND,
		.qp_id = owner->qp.dp.base.id,
		.wr_id = sent->wr_id,
		.wrs = wrs_to_tell(owner),
	};
	return 1;
}

/* A completion of an initiator that is not simply ready, or one that cannot be. */
static crpc_noinline uint16_t
take_rare(struct crpc_mlx5_dci *dci, uint32_t at, struct crpc_rdma_cqe *out)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_dc *owner;

	if (dci->qp.dp.state == CRPC_MLX5_QP_ERROR)
		return 0;
	if (!is_outstanding(dci, at)) {
		dci_give_up(dci, "a completion names a WQE that is not outstanding");
		return 0;
	}
	owner = retire_to(dci, sq->sent[at].seq);
	if (dci->ci == sq->pi)
		dci->qp.dp.state = CRPC_MLX5_QP_READY;
	if (is_retired(owner))
		return 0;
	return send_tell(owner, &sq->sent[at], out);
}

uint16_t
crpc_mlx5_dci_take(struct crpc_mlx5_dci *dci, uint64_t tail, struct crpc_rdma_cqe *out)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t at = CRPC_MLX5_TAIL_COUNTER(tail) & sq->bb_mask;

	if (crpc_unlikely(!is_outstanding(dci, at) || dci->qp.dp.state != CRPC_MLX5_QP_READY))
		return take_rare(dci, at, out);
	return send_tell(retire_to(dci, sq->sent[at].seq), &sq->sent[at], out);
}

/* The device has drain_ns to give back what is outstanding. */
static void
rest_wait(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	dci->rest_ns = dev->drain_ns;
	dci->looked_ns = crpc_clock_ns();
	crpc_store_relaxed(&dev->attention, 1);
}

/* Whether that time is over. Of the time between two polls a part counts: a device in software
 * does nothing in it, and what a card gave back meanwhile is not read yet. */
static bool
rest_is_overdue(const struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	uint64_t now = crpc_clock_ns();
	uint64_t ns = crpc_min(now - dci->looked_ns, dev->drain_ns / REST_LOOKS + 1);

	dci->looked_ns = now;
	if (ns < dci->rest_ns) {
		dci->rest_ns -= ns;
		return false;
	}
	return true;
}

/* ---- errors ---- */

/* Copies what is outstanding and still somebody's aside, in order; the number of WRs. */
static uint32_t
wqes_save(struct crpc_mlx5_dci *dci)
{
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t at, i, b, to = 0, num = 0;

	for (i = dci->ci; i != sq->pi; i += dci->sent[i & sq->bb_mask].bb) {
		at = i & sq->bb_mask;
		if (dci->sent[at].owner == NULL)
			continue;
		for (b = 0; b < dci->sent[at].bb; b++)
			memcpy(dci->copy + (size_t)(to + b) * CRPC_MLX5_BB,
				sq->buf + (size_t)((i + b) & sq->bb_mask) * CRPC_MLX5_BB,
				CRPC_MLX5_BB);
		dci->again[num] = dci->sent[at];
		dci->again_sent[num++] = sq->sent[at];
		to += dci->sent[at].bb;
	}
	return num;
}

/* Posts the saved ones again, from the start of the ring. The last gives a completion. */
static void
wqes_post(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci, uint32_t num)
{
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_ctrl *ctrl = NULL;
	const struct crpc_mlx5_dc_sent *s;
	uint32_t i;

	for (i = 0; i < num; i++) {
		s = &dci->again[i];
		/* The ring is empty and starts at 0: nothing is cut at its end. */
		ctrl = (void *)(sq->buf + (size_t)sq->pi * CRPC_MLX5_BB);
		memcpy(ctrl, dci->copy + (size_t)sq->pi * CRPC_MLX5_BB,
			(size_t)s->bb * CRPC_MLX5_BB);
		ctrl->opmod_idx_opcode =
			htobe32((be32toh(ctrl->opmod_idx_opcode) & 0xffu) | sq->pi << 8);
		dc_sent_add(
			dci, s->owner, dci->again_sent[i].wr_id, dci->again_sent[i].user, s->bb);
	}
	if (num == 0)
		return;
	ctrl->flags = htobe32(MLX5_WQE_CTRL_CQ_UPDATE);
	dci->signals++;
	crpc_mlx5_sq_ring(dev, sq, (uint16_t)num, 0, (const uint8_t *)ctrl, 0);
	crpc_info(
		"DC initiator 0x%x: posted %u work requests of others again", dci->qp.dp.qpn, num);
}

/* All that was outstanding came back: out of the error, and on with what others wanted. */
static void
dci_restart(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t num = wqes_save(dci), i;
	int rc;

	rc = crpc_mlx5_state_set(dci->qp.ibqp, IBV_QPS_RESET);
	if (rc == 0)
		rc = crpc_mlx5_dci_start(dci);
	if (rc != 0) {
		dci_give_up(dci, "it cannot be reset");
		return;
	}
	dci->resets++;
	/* Numbers start anew: no old one may look like one of these. */
	for (i = 0; i <= sq->bb_mask; i++)
		sq->sent[i].seq = ~i;
	sq->pi = 0;
	dci->ci = 0;
	dci->flushed = 0;
	dci->unsignalled = 0;
	dci->qp.dp.state = CRPC_MLX5_QP_READY;
	wqes_post(dev, dci, num);
}

/* One error of a queue pair to the user. */
static uint16_t
error_tell(struct crpc_mlx5_dc *dc, const struct crpc_mlx5_cqe *cqe, uint32_t wr_id, uint32_t wrs,
	struct crpc_rdma_cqe *out)
{
	dc->qp.dp.reported = true;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_ERROR,
		.syndrome = cqe->syndrome,
		.status = crpc_mlx5_syndrome_errno(cqe->syndrome),
		.qp_id = dc->qp.dp.base.id,
		.wr_id = wr_id,
		.wrs = wrs,
	};
	return 1;
}

/*
 * The first error: the WR's queue pair breaks, and the initiator waits for the rest to come back.
 */
static uint16_t
fault_first(struct crpc_mlx5_dci *dci, uint32_t at, const struct crpc_mlx5_cqe *cqe,
	struct crpc_rdma_cqe *out)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_dc *owner;

	dci->qp.dp.state = CRPC_MLX5_QP_ERROR;
	owner = retire_to(dci, sq->sent[at].seq);
	dci->flushed = dci->ci;
	if (owner == NULL || is_retired(owner))
		return 0;
	if (!owner->qp.dp.reported)
		crpc_mlx5_error_log(&owner->qp.dp, sq, true, cqe);
	owner->qp.dp.state = CRPC_MLX5_QP_ERROR;
	crpc_mlx5_dct_end(owner);
	return error_tell(owner, cqe, sq->sent[at].wr_id, wrs_to_tell(owner), out);
}

/* One that came back behind it. Those of a broken queue pair are lost, others are kept. */
static uint16_t
fault_next(struct crpc_mlx5_dci *dci, uint32_t at, const struct crpc_mlx5_cqe *cqe,
	struct crpc_rdma_cqe *out)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_dc_sent *s = &dci->sent[at];
	struct crpc_mlx5_dc *owner = s->owner;

	dci->flushed += s->bb;
	if (owner == NULL || owner->qp.dp.state == CRPC_MLX5_QP_DC_READY)
		return 0;
	s->owner = NULL;
	owner->qp.dp.sq.retired++;
	if (is_retired(owner))
		return 0;
	return error_tell(owner, cqe, sq->sent[at].wr_id, wrs_to_tell(owner), out);
}

uint16_t
crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const struct crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t at = be16toh(cqe->wqe_counter) & sq->bb_mask;
	bool first = dci->qp.dp.state != CRPC_MLX5_QP_ERROR;
	uint16_t got;

	if (cqe->op_own >> 4 != MLX5_CQE_REQ_ERR || !is_outstanding(dci, at) ||
		(!first && sq->sent[at].seq != dci->flushed)) {
		if (first || dci->ci != sq->pi)
			dci_give_up(dci, "an error names a WQE that is not outstanding");
		return 0;
	}
	got = first ? fault_first(dci, at, cqe, out) : fault_next(dci, at, cqe, out);
	if (dci->flushed == sq->pi)
		dci_restart(dev, dci);
	else if (first)
		rest_wait(dev, dci);
	return got;
}

/* ---- the end of a queue pair ---- */

/* Whether anything that is outstanding on the initiator is still wanted. */
static bool
is_wanted(const struct crpc_mlx5_dci *dci)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	const struct crpc_mlx5_dc_sent *s;
	uint32_t i;

	for (i = dci->ci; i != sq->pi; i += s->bb) {
		s = &dci->sent[i & sq->bb_mask];
		if (s->owner != NULL && !is_retired(s->owner))
			return true;
	}
	return false;
}

/* Empties an initiator by force. All that it has outstanding is lost. */
static void
dci_empty(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	crpc_mlx5_state_set(dci->qp.ibqp, IBV_QPS_RESET);
	crpc_mlx5_cq_forget(&dev->cq, dci->qp.dp.qpn);
	while (dci->ci != dci->qp.dp.sq.pi)
		retire_one(dci);
	dci_restart(dev, dci);
}

/* A write of nothing to the same peer comes back when all before it is over. */
static void
dci_drain(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci, const struct crpc_mlx5_dc *dc)
{
	const struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE};
	struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	uint32_t start = sq->pi, bb;

	bb = crpc_mlx5_ds_to_bb(crpc_mlx5_dc_wqe_build(sq, dc, &wr, true));
	dc_sent_add(dci, NULL, 0, false, bb);
	dci->signals++;
	dci->unsignalled = 0;
	dci->qp.dp.state = CRPC_MLX5_QP_DRAINING;
	dci->stopped = false;
	rest_wait(dev, dci);
	crpc_mlx5_sq_ring(dev, sq, 1, start,
		sq->buf + (size_t)(start & sq->bb_mask) * CRPC_MLX5_BB, 0);
}

/* In ERROR the device has stopped. What it gave back is not posted again; what it will give back
 * needs its room in the completion queue until then. */
static void
disown(struct crpc_mlx5_dci *dci, struct crpc_mlx5_dc *dc)
{
	const struct crpc_mlx5_sq *sq = &dci->qp.dp.sq;
	struct crpc_mlx5_dc_sent *s;
	uint32_t i;

	for (i = dci->ci; i != dci->flushed; i += s->bb) {
		s = &dci->sent[i & sq->bb_mask];
		if (s->owner != dc)
			continue;
		s->owner = NULL;
		dc->qp.dp.sq.retired++;
	}
}

bool
crpc_mlx5_dc_idle(const struct crpc_mlx5_dc *dc)
{
	return wrs_outstanding(dc) == 0;
}

bool
crpc_mlx5_dc_retire(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dc *dc)
{
	struct crpc_mlx5_dci *dci = dc->dci;

	dc->qp.dp.state = CRPC_MLX5_QP_RETIRED;
	if (wrs_outstanding(dc) == 0)
		return true;
	if (dci->qp.dp.state == CRPC_MLX5_QP_ERROR)
		disown(dci, dc);
	else if (!is_wanted(dci))
		dci_empty(dev, dci);
	else if (dci->qp.dp.state == CRPC_MLX5_QP_READY)
		dci_drain(dev, dci, dc);
	return wrs_outstanding(dc) == 0;
}

/* The time is over: the device gives back what it has, or is used no more. */
static void
dci_overdue(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci)
{
	if (dci->stopped || dci->qp.dp.state == CRPC_MLX5_QP_ERROR) {
		dci_give_up(dci, "it has stopped and gives nothing back");
		return;
	}
	crpc_warn("DC initiator 0x%x: %llu ms after a queue pair was freed a target still takes "
		  "nothing: it is stopped, and who waits for that target breaks",
		dci->qp.dp.qpn, (unsigned long long)(dev->drain_ns / 1000000));
	dci->stopped = true;
	rest_wait(dev, dci);
	if (crpc_mlx5_state_set(dci->qp.ibqp, IBV_QPS_ERR) != 0)
		dci_give_up(dci, "it cannot be stopped");
}

bool
crpc_mlx5_dcis_turn(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_dci *dci;
	bool some = false;
	uint32_t i;

	for (i = 0; i < dev->num_dcis; i++) {
		dci = dev->dci[i];
		if (dci->qp.dp.state == CRPC_MLX5_QP_READY || crpc_mlx5_dci_is_gone(dci))
			continue;
		some = true;
		if (rest_is_overdue(dev, dci))
			dci_overdue(dev, dci);
	}
	return some;
}

void
crpc_mlx5_dcis_stop(struct crpc_mlx5_dev *dev)
{
	uint32_t i;

	for (i = 0; i < dev->num_dcis; i++) {
		if (blocks_used(dev->dci[i]) != 0)
			dci_empty(dev, dev->dci[i]);
	}
}
