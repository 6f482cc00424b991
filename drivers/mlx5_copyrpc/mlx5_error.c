/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors: syndromes in words, and what is reported to the user. Per broken QP that is the cause
 * first, then each send that was still outstanding; receives hold nothing, so of their flushes only
 * one that comes first is reported.
 */
#include <errno.h>

#include "crpc_log.h"
#include "mlx5_ring.h"

static const struct crpc_mlx5_syndrome syndromes[] = {
	{MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, -EIO, "local length error"},
	{MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, -EIO, "local QP operation error"},
	{MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, -EACCES, "local protection error"},
	{MLX5_CQE_SYNDROME_WR_FLUSH_ERR, -ECANCELED, "flushed"},
	{MLX5_CQE_SYNDROME_MW_BIND_ERR, -EACCES, "memory window bind error"},
	{MLX5_CQE_SYNDROME_BAD_RESP_ERR, -EIO, "bad response"},
	{MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, -EACCES, "local access error"},
	{MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, -EIO, "remote invalid request"},
	{MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, -EACCES, "remote access error"},
	{MLX5_CQE_SYNDROME_REMOTE_OP_ERR, -EIO, "remote operation error"},
	{MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, -ECONNRESET,
		"the peer does not answer (transport retries exceeded)"},
	{MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, -ECONNRESET,
		"the peer takes no message (receiver-not-ready retries exceeded)"},
	{MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, -ECONNRESET, "remote aborted"},
};

const struct crpc_mlx5_syndrome *
crpc_mlx5_syndrome_find(uint8_t number)
{
	static const struct crpc_mlx5_syndrome unknown = {0, -EIO, "unknown syndrome"};

	for (size_t i = 0; i < CRPC_DIM(syndromes); i++) {
		if (syndromes[i].number == number)
			return &syndromes[i];
	}
	return &unknown;
}

crpc_noinline void
crpc_mlx5_cqe_fault(struct crpc_mlx5_qp *qp, const char *why)
{
	struct crpc_mlx5_dci *dci = crpc_container_of(qp, struct crpc_mlx5_dci, qp);

	if (qp->ib.kind != CRPC_IB_DCI)
		crpc_ib_fault(&qp->ib, -EIO, 0, why);
	else if (!crpc_mlx5_dci_is_gone(dci))
		crpc_mlx5_dci_give_up(dci, why);
}

void
crpc_mlx5_error_log(const struct crpc_mlx5_qp *qp, const struct crpc_mlx5_sq *sq,
	const union crpc_mlx5_cqe *cqe)
{
	bool send = cqe->ok.op_own >> 4 == MLX5_CQE_REQ_ERR;
	char text[256];
	uint32_t counter = be16toh(cqe->ok.wqe_counter);

	if (qp->ib.is_failed)
		return;
	if (cqe->err.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR)
		crpc_warn("qp 0x%x (id %u): %s flushed: the QP went to the error state", qp->ib.qpn,
			qp->ib.base.id, send ? "a send was" : "receives were");
	else
		crpc_err("qp 0x%x (id %u): %s on %s %u (syndrome 0x%02x, vendor 0x%02x)",
			qp->ib.qpn, qp->ib.base.id,
			crpc_mlx5_syndrome_find(cqe->err.syndrome)->name,
			send ? "send WQE" : "receive", counter, cqe->err.syndrome,
			cqe->err.vendor_err_synd);
	crpc_mlx5_cqe_text(cqe, text, sizeof(text));
	crpc_info("%s", text);
	if (!send || sq->buf == NULL)
		return;
	crpc_mlx5_wqe_text(
		sq->buf, sq->bb_mask + 1, counter, qp->ib.kind == CRPC_IB_DC, text, sizeof(text));
	crpc_info("%s", text);
}

uint16_t
crpc_mlx5_error_report(struct crpc_mlx5_qp *qp, const union crpc_mlx5_cqe *cqe,
	const struct crpc_mlx5_sent *sent, struct crpc_rdma_cqe *out)
{
	qp->ib.is_failed = true;
	*out = (struct crpc_rdma_cqe){
		.type = CRPC_RDMA_CQE_ERROR,
		.syndrome = cqe->err.syndrome,
		.status = crpc_mlx5_syndrome_find(cqe->err.syndrome)->status,
		.qp_id = qp->ib.base.id,
		.wr_id = sent != NULL ? sent->wr_id : 0,
		.wrs = sent != NULL ? crpc_ib_report_take(&qp->ib) : 0,
	};
	return 1;
}

crpc_noinline uint16_t
crpc_mlx5_error_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp,
	const union crpc_mlx5_cqe *in, struct crpc_rdma_cqe *out)
{
	/* Its entry may go back to the device before we are done: crpc_mlx5_cq_forget(). */
	const union crpc_mlx5_cqe copy = *in, *cqe = &copy;
	uint8_t opcode = cqe->ok.op_own >> 4;
	struct crpc_mlx5_sq *sq = &qp->own;
	const struct crpc_mlx5_sent *sent = NULL;

	if (opcode != MLX5_CQE_REQ_ERR && opcode != MLX5_CQE_RESP_ERR) {
		crpc_mlx5_cqe_fault(qp, "a completion of a kind that was not requested");
		return 0;
	}
	dev->ib.base.stats.error_cqes++;
	if (qp->ib.kind == CRPC_IB_DCI)
		return crpc_mlx5_dci_error(
			dev, crpc_container_of(qp, struct crpc_mlx5_dci, qp), cqe, out);
	crpc_mlx5_error_log(qp, sq, cqe);
	/* A target may go on after an error, and one of a datagram that is sent stops the send
	 * queue only (SQER). A queue pair does not go on. */
	if (qp->ib.kind != CRPC_IB_RC && qp->ib.state != CRPC_IB_ERROR)
		crpc_mlx5_qp_to_error(&qp->ib);
	qp->ib.state = CRPC_IB_ERROR;
	if (opcode == MLX5_CQE_REQ_ERR)
		sent = crpc_mlx5_sent_find(sq, be16toh(cqe->ok.wqe_counter));
	if (sent != NULL)
		crpc_mlx5_retire_to(sq, sent->start);
	/* Reported: the first one whatever it is, any cause, and every send that was flushed. */
	if (qp->ib.is_failed && sent == NULL && cqe->err.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR)
		return 0;
	return crpc_mlx5_error_report(qp, cqe, sent, out);
}
