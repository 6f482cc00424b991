/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The ledger: what the counters of queue pairs (count.h) come to on a card. See soft_mlx5.h for
 * what is counted and how. And the report of it, with where queues stand, for whoever wonders why
 * nothing moves.
 */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "cq.h"
#include "fault.h"

/* What a TLP has besides its payload: framing, sequence number, LCRC, and a header of four words
 * or, of a completion, three. */
#define TLP_REQUEST 24u
#define TLP_COMPLETION 20u
#define DOORBELL_BYTES 8u
#define LINE 64u

#define LEDGER_WORDS (sizeof(struct soft_mlx5_ledger) / sizeof(uint64_t))

static uint64_t
less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Bytes of a receive WQE. */
static uint64_t
recv_stride(const struct sm_qp *qp)
{
	return UINT64_C(1) << (qp->made.srq != NULL ? qp->made.srq->attr.wqe_shift
						    : qp->made.rq_wqe_shift);
}

static uint64_t
cqe_size(const struct sm_cq *cq)
{
	return UINT64_C(1) << cq->log_size;
}

/* The reads: their number, bytes, requests and completions. */
static void
reads_of(const struct sm_qp *qp, const struct sm_count *n, struct soft_mlx5_ledger *l)
{
	/* A BlueFlame doorbell brought its WQE: what was taken by itself was not fetched. */
	uint64_t fetches = less(n->wqe_reads, n->blueflame);
	uint64_t recv_bytes = n->cqes[1] * recv_stride(qp);
	uint64_t recv_reads = (recv_bytes + LINE - 1) / LINE;
	uint64_t wqe_bytes = less(n->wqe_blocks, n->blueflame_blocks) * SM_WQEBB;
	uint64_t requests = n->reads + n->read_requests + fetches + recv_reads;
	uint64_t completions = n->reads + n->read_tlps + recv_reads +
		crpc_max(fetches, (wqe_bytes + SM_TLP_PAYLOAD - 1) / SM_TLP_PAYLOAD);

	l->wqe_blocks = wqe_bytes / SM_WQEBB;
	l->recv_wqes = n->cqes[1];
	l->dma_reads = n->reads + fetches + recv_reads;
	l->dma_read_bytes = n->read_bytes + wqe_bytes + recv_bytes;
	l->pcie_to_host += requests * TLP_REQUEST;
	l->pcie_to_card += l->dma_read_bytes + completions * TLP_COMPLETION;
}

/* The writes: payload and CQEs. */
static void
writes_of(const struct sm_qp *qp, const struct sm_count *n, struct soft_mlx5_ledger *l)
{
	uint64_t cqe_bytes =
		n->cqes[0] * cqe_size(qp->made.send_cq) + n->cqes[1] * cqe_size(qp->made.recv_cq);

	l->cqes = n->cqes[0] + n->cqes[1];
	l->dma_writes = l->cqes + n->writes;
	l->dma_write_bytes = cqe_bytes + n->write_bytes;
	l->pcie_to_host += l->dma_write_bytes + (l->dma_writes + n->write_tlps) * TLP_REQUEST;
}

/* Packets, and their bytes with all headers. */
static void
way_of(const struct sm_qp *qp, const struct sm_way *w, uint64_t *packets, uint64_t *bytes)
{
	/* RETH, immediate, AETH (of a READ's response on its first and last packet, counted once),
	 * atomic request and answer, DETH; a DC packet's are not known to the public. */
	static const uint8_t headers[SM_KINDS] = {
		[SM_KIND_WRITE] = 16,
		[SM_KIND_WRITE_IMM] = 16 + 4,
		[SM_KIND_SEND_IMM] = 4,
		[SM_KIND_READ] = 16,
		[SM_KIND_ATOMIC] = 28,
		[SM_KIND_READ_RESP] = 4,
		[SM_KIND_ATOMIC_RESP] = 4 + 8,
		[SM_KIND_ACK] = 4,
		[SM_KIND_DATAGRAM] = 8,
		[SM_KIND_DATAGRAM_IMM] = 8 + 4,
	};

	*packets = w->packets;
	*bytes = w->payload + w->grhs * SM_WIRE_GRH;
	for (uint32_t i = 0; i < SM_KINDS; i++) {
		*packets += w->kind[i];
		*bytes += w->kind[i] * headers[i];
	}
	*bytes += *packets * qp->headers;
}

static void
ledger_of(const struct sm_qp *qp, struct soft_mlx5_ledger *l)
{
	const struct sm_qp *c;
	struct sm_count n = qp->n;

	LIST_FOREACH(c, &qp->dc.conns, dc.link)
		sm_count_add(&n, &c->n, SM_COUNT_WORDS);
	memset(l, 0, sizeof(*l));
	l->doorbells = n.doorbells;
	l->blueflame = n.blueflame;
	l->blueflame_blocks = n.blueflame_blocks;
	way_of(qp, &n.tx, &l->tx_packets, &l->tx_bytes);
	way_of(qp, &n.rx, &l->rx_packets, &l->rx_bytes);
	l->pcie_to_card = less(n.doorbells, n.blueflame) * (DOORBELL_BYTES + TLP_REQUEST) +
		n.blueflame_blocks * (SM_WQEBB + TLP_REQUEST);
	reads_of(qp, &n, l);
	writes_of(qp, &n, l);
}

void
sm_ledger_keep(struct sm_nic *nic, const struct sm_qp *qp)
{
	struct soft_mlx5_ledger l;

	ledger_of(qp, &l);
	sm_count_add(&nic->gone, &l, LEDGER_WORDS);
}

static void
ledger_total(const struct sm_nic *nic, struct soft_mlx5_ledger *sum)
{
	const struct sm_obj *obj;
	struct soft_mlx5_ledger l;

	*sum = nic->gone;
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_QP], link) {
		ledger_of((const struct sm_qp *)obj, &l);
		sm_count_add(sum, &l, LEDGER_WORDS);
	}
}

int
sm_nic_ledger(struct sm_nic *nic, uint32_t qpn, struct soft_mlx5_ledger *out)
{
	const struct sm_qp *qp;

	SM_LOCKED(nic);
	qp = sm_qp_find(nic, qpn);
	if (qpn != 0 && qp == NULL)
		return ENOENT;
	if (qpn == 0)
		ledger_total(nic, out);
	else
		ledger_of(qp, out);
	return 0;
}

static void
ledger_print(FILE *f, const struct soft_mlx5_ledger *l)
{
	static const char *const names[LEDGER_WORDS] = {"doorbells", "blueflame",
		"blueflame_blocks", "wqe_blocks", "recv_wqes", "cqes", "dma_reads",
		"dma_read_bytes", "dma_writes", "dma_write_bytes", "pcie_to_host", "pcie_to_card",
		"tx_packets", "tx_bytes", "rx_packets", "rx_bytes"};
	const uint64_t *v = (const uint64_t *)(const void *)l;

	for (uint32_t i = 0; i < LEDGER_WORDS; i++)
		fprintf(f, "%s\"%s\":%" PRIu64, i == 0 ? "{" : ",", names[i], v[i]);
	fprintf(f, "}");
}

/* What a requester waits for. */
static const char *
sq_waits(const struct sm_qp *qp)
{
	if (qp->req.halted)
		return "halted";
	if (qp->on[SM_TURN_WAIT])
		return qp->req.lost ? "no answer" : "receiver not ready";
	if (qp->on[SM_TURN_SEND])
		return "room";
	return qp->req.wr_done != qp->req.wr_tx ? "acknowledgements" : "";
}

static void
qp_print(FILE *f, const struct sm_qp *qp)
{
	const struct sm_requester *s = &qp->req;
	const struct sm_responder *r = &qp->resp;
	struct soft_mlx5_ledger l;

	fprintf(f,
		"{\"qpn\":%u,\"type\":\"%s\",\"state\":%u,\"dest\":%u,\"slot\":%u,\"dead\":%u,"
		"\"connections\":%u,\"waits_for\":\"%s\",\"posted\":%u,\"taken\":%u,"
		"\"unfinished\":%u,\"psn\":%u,\"psn_acked\":%u,\"reads_open\":%u,"
		"\"retries_left\":%u,\"rnr_retries_left\":%u,\"recv_posted\":%u,"
		"\"recv_used\":%u,\"psn_expected\":%u,\"in_message\":%u,\"refusing\":%u,"
		"\"answers\":%u,\"ledger\":",
		qp->qpn, qp->kind->name, qp->state, qp->dest_qpn, qp->peer->slot, qp->peer->dead,
		qp->dc.nconns, sq_waits(qp), s->head, s->taken, s->wr_tx - s->wr_done, s->psn,
		s->acked, s->rd_tail - s->rd_head, s->retries, s->rnr_retries, r->head, r->tail,
		r->psn, r->rx.open, r->refusing, r->ans_tail - r->ans_head);
	ledger_of(qp, &l);
	ledger_print(f, &l);
	fprintf(f, "}");
}

static void
cq_print(FILE *f, const struct sm_cq *cq)
{
	fprintf(f,
		"{\"cqn\":%u,\"entries\":%u,\"bytes\":%u,\"written\":%u,\"read\":%u,"
		"\"overrun\":%u,\"armed\":%u}",
		cq->obj.number, cq->ncqe, 1u << cq->log_size, cq->pi & SM_CQ_CI_MASK,
		sm_dbrec(&cq->dbrec[0]) & SM_CQ_CI_MASK, cq->failed,
		cq->arm != crpc_load_relaxed(&cq->dbrec[1]));
}

void
sm_nic_stat(struct sm_nic *nic, FILE *f)
{
	struct soft_mlx5_ledger l;
	const struct sm_obj *obj;

	SM_LOCKED(nic);
	ledger_total(nic, &l);
	fprintf(f, "\"pid\":%d,\"slot\":%u,\"faults\":{", (int)getpid(), nic->slot);
	sm_fault_print(nic->fault, f);
	fprintf(f,
		"},\"direct\":{\"from\":%u,\"sent\":%" PRIu64 ",\"sent_bytes\":%" PRIu64
		",\"received_bytes\":%" PRIu64 ",\"withdrawn\":%" PRIu64
		"},\"datagrams_dropped\":%" PRIu64 ",\"total\":",
		nic->attr.direct, nic->direct.sent, nic->direct.sent_bytes,
		nic->direct.received_bytes, nic->direct.withdrawn, nic->datagrams_dropped);
	ledger_print(f, &l);
	fprintf(f, ",\"qps\":[");
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_QP], link) {
		qp_print(f, (const struct sm_qp *)obj);
		fputs(TAILQ_NEXT(obj, link) != NULL ? ",\n" : "", f);
	}
	fprintf(f, "],\"cqs\":[");
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_CQ], link) {
		cq_print(f, (const struct sm_cq *)obj);
		fputs(TAILQ_NEXT(obj, link) != NULL ? ",\n" : "", f);
	}
	fprintf(f, "]");
}
