/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The state of a context as text: what stands where, for whoever wonders why nothing moves.
 */
#include <inttypes.h>

#include "cq.h"
#include "fault.h"

static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

/* What a requester waits for. */
static const char *
sq_waits(const struct sm_qp *qp)
{
	if (qp->req.halted)
		return "halted";
	if (qp->on[SM_TURN_WAIT])
		return qp->req.lost ? "waits: no answer" : "waits: receiver not ready";
	if (qp->on[SM_TURN_SEND])
		return "has more to send";
	return qp->req.wr_done != qp->req.wr_tx ? "waits for acknowledgements" : "idle";
}

static void
qp_dump(const struct sm_qp *qp, FILE *out)
{
	const struct sm_qp *c;

	fprintf(out, "  qp 0x%x %s %s to 0x%x at slot %u%s\n", qp->qpn, qp->kind->name,
		states[qp->state], qp->dest_qpn, qp->peer->slot, qp->peer->dead ? " (dead)" : "");
	if (qp->made.sq_nwqebb != 0)
		fprintf(out,
			"    send: %u blocks, posted %u, taken %u; WQEs taken %u, completed %u; "
			"psn next %u, acknowledged %u; epoch %u; retries left %u, RNR %u; %s\n",
			qp->made.sq_nwqebb, qp->req.head, qp->req.taken, qp->req.wr_tx,
			qp->req.wr_done, qp->req.psn, qp->req.acked, qp->req.epoch, qp->req.retries,
			qp->req.rnr_retries, sq_waits(qp));
	if (qp->req.rd_head != qp->req.rd_tail)
		fprintf(out, "    reads and atomics open: %u, %u bytes of the oldest are here\n",
			qp->req.rd_tail - qp->req.rd_head, qp->req.rd_off);
	if (qp->kind->takes != SM_TAKES_NOTHING)
		fprintf(out,
			"    receive: %u WQEs, posted %u, used %u; psn expected %u%s%s; "
			"answers pending %u%s\n",
			qp->made.rq_nwqe, qp->resp.head, qp->resp.tail, qp->resp.psn,
			qp->resp.rx.open ? ", within a message" : "",
			qp->resp.refusing ? ", refusing" : "",
			qp->resp.ans_tail - qp->resp.ans_head,
			qp->resp.nak != 0 ? " and a NAK" : "");
	LIST_FOREACH(c, &qp->dc.conns, dc.link)
		fprintf(out, "    connection from 0x%x at slot %u, psn expected %u\n", c->dest_qpn,
			c->peer->slot, c->resp.psn);
}

static void
cq_dump(const struct sm_cq *cq, FILE *out)
{
	uint32_t ci = sm_dbrec(&cq->dbrec[0]) & SM_CQ_CI_MASK;

	fprintf(out, "  cq %u: %u entries of %u bytes, written %u, read %u%s%s\n", cq->obj.number,
		cq->ncqe, 1u << cq->log_size, cq->pi & SM_CQ_CI_MASK, ci,
		cq->failed ? ", overrun" : "",
		cq->arm != crpc_load_relaxed(&cq->dbrec[1]) ? ", armed" : "");
}

static void
peer_dump(const struct sm_nic *nic, const struct sm_peer *p, FILE *out)
{
	const struct sm_qp *qp;
	uint32_t n = 0;

	TAILQ_FOREACH(qp, &p->qps, peer_link)
		n++;
	fprintf(out,
		"  peer at slot %u%s%s: %u queue pairs; sent to %" PRIu64 ", room to %" PRIu64
		"; read to %" PRIu64 "; large payloads to it by %s, from it by %s\n",
		p->slot, p->self ? " (we)" : "", p->dead ? " (dead)" : "", n, p->tx.pos,
		p->tx.limit, p->rx.pos,
		p->tx.ring != NULL && crpc_load_relaxed(&p->tx.ring->direct) == 1 ? "memcpy"
										   : "ring",
		p->rx.grants != NULL ? "memcpy" : "ring");
}

void
sm_nic_dump(struct sm_nic *nic, FILE *out)
{
	const struct sm_obj *obj;
	const struct sm_srq *srq;
	const struct sm_peer *p;

	sm_lock(nic);
	fprintf(out, "context at slot %u, time %" PRIu64 " ns; faults: {", nic->slot, nic->now);
	sm_fault_print(nic->fault, out);
	fprintf(out, "}\n");
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_QP], link)
		qp_dump((const struct sm_qp *)obj, out);
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_CQ], link)
		cq_dump((const struct sm_cq *)obj, out);
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_SRQ], link) {
		srq = (const struct sm_srq *)obj;
		fprintf(out, "  srq %u: %u WQEs, used %u of %u posted\n", srq->obj.number,
			srq->attr.nwqe, srq->taken, (uint16_t)sm_dbrec(srq->attr.dbrec));
	}
	TAILQ_FOREACH(p, &nic->peers, link)
		peer_dump(nic, p, out);
	sm_unlock(nic);
}
