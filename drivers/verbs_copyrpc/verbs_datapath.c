/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post and poll. A burst is one linked list of work requests, so the provider rings once; receives
 * go back the same way. Nothing here allocates, locks or enters the kernel by itself.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "crpc_log.h"
#include "verbs_copyrpc.h"

/* ---- send ---- */

/* Fills the elements of a work request, without the empty ones; false: it cannot be sent. */
static inline bool
payload_fill(const struct crpc_verbs_qp *qp, struct ibv_send_wr *to, struct ibv_sge *sge,
	const struct crpc_rdma_sge *from, uint32_t num, uint8_t flags)
{
	uint64_t len = 0;

	if (crpc_unlikely(num > CRPC_RDMA_SGE_MAX))
		return false;
	to->sg_list = sge;
	to->num_sge = 0;
	for (uint32_t i = 0; i < num; i++) {
		if (from[i].len == 0)
			continue;
		len += from[i].len;
		sge[to->num_sge++] = (struct ibv_sge){
			.addr = (uintptr_t)from[i].addr,
			.length = from[i].len,
			.lkey = from[i].lkey,
		};
	}
	to->send_flags = flags & CRPC_RDMA_WR_INLINE && len != 0 ? IBV_SEND_INLINE : 0;
	return len <= (flags & CRPC_RDMA_WR_INLINE ? qp->ib.inline_max : qp->msg_max);
}

static inline bool
wr_fill(const struct crpc_verbs_qp *qp, struct ibv_send_wr *to, struct ibv_sge *sge,
	const struct crpc_rdma_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[CRPC_RDMA_WRITE] = IBV_WR_RDMA_WRITE,
		[CRPC_RDMA_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[CRPC_RDMA_READ] = IBV_WR_RDMA_READ,
		[CRPC_RDMA_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	};
	bool ud = qp->ib.kind == CRPC_IB_UD;
	const struct crpc_verbs_ah *ah;

	if (crpc_unlikely(wr->op >= CRPC_DIM(opcodes) || (wr->op == CRPC_RDMA_SEND_IMM) != ud ||
		    (wr->op == CRPC_RDMA_READ && wr->flags & CRPC_RDMA_WR_INLINE)))
		return false;
	to->opcode = opcodes[wr->op];
	to->imm_data = htobe32(wr->imm);
	if (ud) {
		ah = (const struct crpc_verbs_ah *)(const void *)wr->ah;
		if (crpc_unlikely(ah == NULL))
			return false;
		to->wr.ud.ah = ah->ib.ibah;
		to->wr.ud.remote_qpn = ah->qpn;
		to->wr.ud.remote_qkey = ah->qkey;
	} else {
		to->wr.rdma.remote_addr = wr->raddr;
		to->wr.rdma.rkey = wr->rkey;
	}
	return payload_fill(qp, to, sge, wr->sge, wr->num_sge, wr->flags);
}

/* Posts the list of n; how many the device took. */
static inline uint16_t
list_post(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, uint16_t n)
{
	struct ibv_send_wr *bad = NULL;
	uint32_t first = qp->ib.posted;
	int rc;

	if (n == 0)
		return 0;
	dev->wr[n - 1].next = NULL;
	rc = ibv_post_send(qp->ib.ibqp, dev->wr, &bad);
	if (crpc_unlikely(rc != 0)) {
		n = bad != NULL ? (uint16_t)(bad - dev->wr) : 0;
		/* The completion that the rest would have given does not come. */
		qp->ib.unsignalled = qp->ib.signal_every;
		/* A provider may need more room than we count; there is some after a completion. */
		if (rc != ENOMEM || n + qp->ib.posted == qp->ib.retired)
			crpc_ib_fault(&qp->ib, rc == EINVAL ? -EINVAL : -EIO,
				qp->sent[(first + n) & qp->sent_mask].wr_id, strerror(rc));
	}
	qp->ib.posted += n;
	dev->ib.base.stats.wqes += n;
	dev->ib.base.stats.doorbells += n != 0;
	if (dev->ib.progress != NULL)
		dev->ib.progress(dev->ib.context);
	return n;
}

/* A completion retires all WRs before it: among as many as may be outstanding one gives it. */
static inline bool
signal_due(struct crpc_verbs_qp *qp, bool wanted)
{
	if (!wanted && ++qp->ib.unsignalled < qp->ib.signal_every)
		return false;
	qp->ib.unsignalled = 0;
	return true;
}

/* At most CRPC_BURST_MAX. */
static uint16_t
burst_post(struct crpc_verbs_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(qp->ib.base.dev);
	struct crpc_verbs_sent *sent;
	struct ibv_send_wr *to;
	uint16_t i;

	for (i = 0; i < n; i++) {
		to = &dev->wr[i];
		sent = &qp->sent[(qp->ib.posted + i) & qp->sent_mask];
		*sent = (struct crpc_verbs_sent){wr[i].wr_id, wr[i].flags & CRPC_RDMA_WR_SIGNAL};
		if (crpc_unlikely(!wr_fill(qp, to, dev->sge[i], &wr[i]))) {
			crpc_ib_fault(&qp->ib, -EINVAL, sent->wr_id, "a work request is not valid");
			break;
		}
		to->wr_id = qp->tag | (qp->ib.posted + i);
		to->next = to + 1;
		if (signal_due(qp, sent->user))
			to->send_flags |= IBV_SEND_SIGNALED;
	}
	return list_post(dev, qp, i);
}

uint16_t
crpc_verbs_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_verbs_qp *qp = crpc_verbs_qp(base);
	uint16_t done = 0, part, got;

	crpc_owner_check(&qp->ib.base.dev->owner, "RDMA device");
	n = (uint16_t)crpc_min(n, qp->ib.depth - (qp->ib.posted - qp->ib.retired));
	while (done < n && qp->ib.state == CRPC_IB_READY) {
		part = (uint16_t)crpc_min(n - done, CRPC_BURST_MAX);
		got = burst_post(qp, wr + done, part);
		done = (uint16_t)(done + got);
		if (got != part)
			break;
	}
	return done;
}

/* ---- receive ---- */

void
crpc_verbs_recv_link(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, uint32_t at)
{
	struct ibv_recv_wr *wr = &qp->recv[at];

	wr->next = NULL;
	if (qp->back != NULL) {
		qp->back_last->next = wr;
	} else {
		qp->back = wr;
		qp->next_back = dev->back[qp->ib.kind];
		dev->back[qp->ib.kind] = qp;
	}
	qp->back_last = wr;
	dev->ib.base.stats.recv_posted++;
}

void
crpc_verbs_recv_return(struct crpc_verbs_dev *dev, uint8_t kind)
{
	struct crpc_verbs_qp *qp;
	struct ibv_recv_wr *bad;
	int rc;

	while (dev->back[kind] != NULL) {
		qp = dev->back[kind];
		dev->back[kind] = qp->next_back;
		rc = ibv_post_recv(qp->ib.ibqp, qp->back, &bad);
		qp->back = NULL;
		if (crpc_unlikely(rc != 0) && qp->ib.state != CRPC_IB_ERROR)
			crpc_ib_fault(&qp->ib, -EIO, 0, "a receive cannot be posted again");
	}
}

/* ---- completions ---- */

static int16_t
status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_ACCESS_ERR:
		return -EACCES;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

/* All sends up to position at are done; false: none of that position is outstanding. */
static inline bool
retire(struct crpc_verbs_qp *qp, uint32_t at)
{
	if (crpc_unlikely(at - qp->ib.retired >= qp->ib.posted - qp->ib.retired))
		return false;
	qp->ib.retired = at + 1;
	return true;
}

/* Reported: the first error whatever it is, any cause, and every send that was flushed. */
static crpc_noinline uint16_t
error_take(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, const struct ibv_wc *wc,
	struct crpc_rdma_cqe *out)
{
	bool send = (wc->wr_id & CRPC_VERBS_RECV) == 0;
	bool flushed = wc->status == IBV_WC_WR_FLUSH_ERR;
	uint32_t at = (uint32_t)wc->wr_id;

	dev->ib.base.stats.error_cqes++;
	if (!qp->ib.is_failed && flushed)
		crpc_warn("qp 0x%x (id %u): %s flushed: the QP went to the error state",
			qp->ib.ibqp->qp_num, qp->ib.base.id, send ? "a send was" : "receives were");
	else if (!qp->ib.is_failed)
		crpc_err("qp 0x%x (id %u): %s of %s %u (vendor 0x%x)", qp->ib.ibqp->qp_num,
			qp->ib.base.id, ibv_wc_status_str(wc->status), send ? "send" : "receive",
			at, wc->vendor_err);
	/* An error of a datagram that is sent stops the send queue only. */
	if (qp->ib.kind == CRPC_IB_UD && qp->ib.state != CRPC_IB_ERROR)
		crpc_ib_to_error(&qp->ib);
	qp->ib.state = CRPC_IB_ERROR;
	send = send && retire(qp, at);
	if (qp->ib.is_failed && !send && flushed)
		return 0;
	qp->ib.is_failed = true;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_ERROR,
		.syndrome = (uint8_t)wc->status,
		.status = status_of(wc->status),
		.qp_id = qp->ib.base.id,
		.wr_id = send ? qp->sent[at & qp->sent_mask].wr_id : 0,
		.wrs = send ? crpc_ib_report_take(&qp->ib) : 0,
	};
	return 1;
}

static inline uint16_t
send_take(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, uint32_t at,
	struct crpc_rdma_cqe *out)
{
	const struct crpc_verbs_sent *sent = &qp->sent[at & qp->sent_mask];

	dev->ib.base.stats.send_cqes++;
	if (crpc_unlikely(!retire(qp, at))) {
		crpc_ib_fault(
			&qp->ib, -EIO, 0, "a completion names a send that is not outstanding");
		return 0;
	}
	if (!sent->user)
		return 0;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_SEND,
		.qp_id = qp->ib.base.id,
		.wr_id = sent->wr_id,
		.wrs = crpc_ib_report_take(&qp->ib),
	};
	return 1;
}

/* A write with immediate, or a datagram, whose buffer is the user's until the next poll. */
static inline uint16_t
recv_take(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, const struct ibv_wc *wc,
	struct crpc_rdma_cqe *out)
{
	bool ud = qp->ib.kind == CRPC_IB_UD;
	uint32_t at = (uint32_t)wc->wr_id;

	dev->ib.base.stats.recv_cqes++;
	if (crpc_unlikely(at != qp->recv_next ||
		    wc->opcode != (ud ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM) ||
		    (ud && wc->byte_len - CRPC_IB_GRH > CRPC_IB_UD_LEN_MAX))) {
		crpc_ib_fault(&qp->ib, -EIO, 0, "a completion names a message of no known kind");
		return 0;
	}
	qp->recv_next = at + 1 < qp->ib.rq_depth ? at + 1 : 0;
	crpc_verbs_recv_link(dev, qp, at);
	*out = (struct crpc_rdma_cqe){
		.type = ud ? CRPC_RDMA_CQE_DGRAM : CRPC_RDMA_CQE_RECV,
		.qp_id = qp->ib.base.id,
		.imm = be32toh(wc->imm_data),
		.byte_len = wc->byte_len - (ud ? CRPC_IB_GRH : 0),
		.data = ud ? qp->buf + (size_t)at * CRPC_IB_UD_STRIDE + CRPC_IB_UD_PAYLOAD : NULL,
	};
	return 1;
}

static inline uint16_t
wc_take(struct crpc_verbs_dev *dev, const struct ibv_wc *wc, struct crpc_rdma_cqe *out)
{
	struct crpc_verbs_qp *qp = crpc_verbs_find(dev, wc->wr_id);

	if (crpc_unlikely(qp == NULL))
		return 0;
	if (crpc_unlikely(wc->status != IBV_WC_SUCCESS))
		return error_take(dev, qp, wc, out);
	if (wc->wr_id & CRPC_VERBS_RECV)
		return recv_take(dev, qp, wc, out);
	return send_take(dev, qp, (uint32_t)wc->wr_id, out);
}

/* What has no completion: faults, and those that were taken ahead. */
static crpc_noinline uint16_t
attend(struct crpc_verbs_dev *dev, struct crpc_rdma_cqe *out, uint16_t n)
{
	uint16_t got;

	/* Acquire: pairs with set_failed(). */
	crpc_exchange_acq_rel(&dev->ib.attention, 0);
	got = crpc_ib_faults_take(&dev->ib, out, n, crpc_ib_to_error);
	while (dev->ahead_first != dev->ahead_end && got < n)
		got += wc_take(dev, &dev->ahead[dev->ahead_first++], &out[got]);
	return got;
}

static uint16_t
drain(struct crpc_verbs_dev *dev, struct crpc_rdma_cqe *out, uint16_t got, uint16_t n)
{
	struct ibv_wc wc[CRPC_BURST_MAX];
	int num, wanted;

	do {
		wanted = n - got;
		num = wanted != 0 ? ibv_poll_cq(dev->ib.cq, wanted, wc) : 0;
		for (int i = 0; i < num; i++)
			got += wc_take(dev, &wc[i], &out[got]);
		/* Those without an outcome for the user do not fill the array. */
	} while (num > 0 && num == wanted);
	if (crpc_unlikely(num < 0))
		crpc_ib_all_fault(&dev->ib);
	return got;
}

uint16_t
crpc_verbs_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *out, uint16_t n)
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(base);
	uint16_t got = 0;

	crpc_owner_check(&dev->ib.base.owner, "RDMA device");
	if (n > CRPC_BURST_MAX)
		n = CRPC_BURST_MAX;
	dev->ib.base.stats.polls++;
	crpc_verbs_recv_return(dev, CRPC_IB_UD);
	if (crpc_unlikely(dev->ahead_first != dev->ahead_end ||
		    crpc_load_relaxed(&dev->ib.attention) != 0))
		got = attend(dev, out, n);
	got = drain(dev, out, got, n);
	if (dev->ib.progress != NULL && got < n && dev->ib.progress(dev->ib.context) != 0)
		got = drain(dev, out, got, n);
	crpc_verbs_recv_return(dev, CRPC_IB_RC);
	dev->ib.base.stats.empty_polls += got == 0;
	return got;
}
