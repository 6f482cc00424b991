/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Retransmission. The wire of shared memory loses nothing, so a requester waits for answers without
 * a clock. Over UDP, and where the network is to be bad, each requester has the timer of a card:
 * after the timeout without progress it goes back to the oldest packet that was not acknowledged,
 * as often as retry_cnt allows.
 */
#include "fault.h"
#include "qp.h"

/* How often the timers are looked at. */
#define TIMERS_NS UINT64_C(50000)
/*
 * The most that counts of the time between two looks. Who had no core for longer did not see what
 * came, and the other side, which may share the core, could not answer: on a busy machine both have
 * more time in the same measure.
 */
#define AWAKE_NS UINT64_C(5000000)
/* Timeouts of a silent peer that count as one. */
#define SILENT_TIMEOUTS 8u

/* RNR timer codes, in units of 10 us (InfiniBand specification, table "RNR NAK timer"). */
static const uint32_t rnr_units[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
	192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
	32768, 49152};

uint64_t
sm_retry_rnr_ns(uint32_t code)
{
	return rnr_units[code & 31] * UINT64_C(10000);
}

static uint64_t
timeout_ns(const struct sm_qp *qp)
{
	return qp->attr.timeout == 0 ? UINT64_C(10000000) : UINT64_C(4096) << qp->attr.timeout;
}

static void
timer(struct sm_nic *nic, struct sm_qp *qp)
{
	uint64_t mark =
		(uint64_t)qp->req.acked << 32 ^ (uint64_t)qp->req.rd_head << 16 ^ qp->req.rd_off;

	bool open = ((qp->req.acked + 1) & SM_PSN_MASK) != qp->req.psn;

	if (!open || qp->on[SM_TURN_WAIT] || mark != qp->req.rto_mark || qp->req.rto_at == 0) {
		qp->req.rto_mark = mark;
		qp->req.rto_at = nic->awake + timeout_ns(qp);
		return;
	}
	if (nic->awake < qp->req.rto_at)
		return;
	qp->req.rto_at = nic->awake + timeout_ns(qp);
	/* A peer that says nothing at all may wait for a core: it gets more time. */
	if (qp->peer->spoke != qp->req.rto_spoke)
		qp->req.rto_silent = 0;
	else
		qp->req.rto_silent++;
	qp->req.rto_spoke = qp->peer->spoke;
	sm_sq_timeout(nic, qp, qp->req.rto_silent % SILENT_TIMEOUTS == 0);
}

void
sm_retry_timers(struct sm_nic *nic)
{
	struct sm_peer *p;
	struct sm_qp *qp, *next;

	if (nic->now < nic->retry_timers_at)
		return;
	nic->awake += crpc_min(nic->now - nic->retry_timers_at + TIMERS_NS, AWAKE_NS);
	nic->retry_timers_at = nic->now + TIMERS_NS;
	sm_fault_release(nic);
	TAILQ_FOREACH(p, &nic->peers, link)
		SM_FOREACH_SAFE (qp, &p->qps, peer_link, next)
			if (!p->dead && qp->dc.dct == NULL && qp->kind->reliable &&
				(qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD))
				timer(nic, qp);
}
