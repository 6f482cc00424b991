/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow modes: how the released position returns to the sender of requests. In the default, WINDOW,
 * the heads of batches carry it, and nothing else is to be done. READ and NOTIFY are for
 * comparison.
 */
#include "copyrpc_modes.h"

void
__crpc_copyrpc_read_wanted(struct crpc_copyrpc_ep *ep)
{
	ep->conn->want_read = true;
	ep_list_add(ep, dirty);
}

/* The peer reads it when it wants to. Release: after it, the bytes are the peer's. */
void
__crpc_copyrpc_read_released(struct crpc_copyrpc_ep *ep)
{
	struct conn *conn = ep->conn;

	crpc_store_release(&conn->rx_words[WIRE_WORD_RELEASED / 8], conn->released);
	conn->reported = conn->released;
}

/* READ the peer's released position, if room is short and no READ is on its way. */
void
__crpc_copyrpc_read_flushed(struct crpc_copyrpc_ep *ep)
{
	struct conn *conn = ep->conn;
	uint64_t used = lane_prod(&ep->tx[WIRE_REQ]) - conn->peer_released;
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_READ,
		.flags = CRPC_RDMA_WR_SIGNAL,
		.num_sge = 1,
		.raddr = conn->words_raddr + WIRE_WORD_RELEASED,
		.rkey = conn->rkey,
		.wr_id = (uint32_t)WR_POSITION << WR_KIND_SHIFT};

	if (conn->reading || conn->peer_released == ep->tx[WIRE_REQ].sent ||
		(!conn->want_read && used <= ep->ring_size / 4 * 3))
		return;
	wr.sge[0].addr = (const void *)(uintptr_t)&conn->tx_words[WIRE_WORD_RELEASED / 8];
	wr.sge[0].len = sizeof(uint64_t);
	wr.sge[0].lkey = conn->tx_mr.lkey;
	if (crpc_rdma_post(conn->qp, &wr, 1) != 1)
		return;
	conn->reading = true;
	conn->want_read = false;
	ep->ctx->stats.reads_sent++;
}

void
__crpc_copyrpc_position_take(struct crpc_copyrpc_ep *ep)
{
	ep->conn->reading = false;
	__crpc_copyrpc_word_take(
		ep, crpc_load_relaxed(&ep->conn->tx_words[WIRE_WORD_RELEASED / 8]));
	if (ep->conn->want_read)
		ep_list_add(ep, dirty);
}
