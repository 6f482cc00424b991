/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and replies beyond max_msg: they are written in fragments into an area of the peer that
 * is set aside for them, and then announced by a message of their lane that carries no data.
 *
 *     call(len > max_msg)             peer's request area        peer's request ring
 *       copy to the staging area
 *       flush: WRITE, WRITE, ...  ->  [ fragments ]
 *       flush: batch              ------------------------->   [ id, LARGE | len ]  -> recv()
 *
 * One connection delivers in order, so the announcement finds the fragments in place: nothing is
 * assembled or copied at the receiver. Each direction has one area for requests and one for
 * replies, and so one large message of each kind at a time: an area is taken by the call that needs
 * it and free again when that call has ended (a reply's, when poll() was called once more).
 */
#include <stdlib.h>

#include "copyrpc_lane.h"

/* A fragment: long enough that its own cost does not show, short enough to let others pass. */
#define FRAGMENT_LEN (64u << 10)
/* Fragments of one flush, at most. */
#define FRAGMENTS_BURST 8

uint8_t *
__crpc_copyrpc_large_area(const struct crpc_copyrpc_ep *ep, enum large_area which)
{
	return ep->large.mem + which * wire_area(ep->ctx->conf.max_large);
}

int
__crpc_copyrpc_large_init(struct crpc_copyrpc_ep *ep)
{
	size_t half = 2 * wire_area(ep->ctx->conf.max_large);
	struct large *large = &ep->large;
	int rc;

	if (half == 0)
		return 0;
	large->mem = aligned_alloc(WIRE_AREA_UNIT, 2 * half);
	if (large->mem == NULL)
		return -ENOMEM;
	memset(large->mem, 0, 2 * half);
	rc = crpc_rdma_mr_reg(ep->ctx->dev, large->mem, half, &large->rx_mr);
	if (rc != 0)
		goto err_mem;
	rc = crpc_rdma_mr_reg(ep->ctx->dev, large->mem + half, half, &large->tx_mr);
	if (rc != 0)
		goto err_rx;
	return 0;
err_rx:
	crpc_rdma_mr_dereg(ep->ctx->dev, &large->rx_mr);
err_mem:
	free(large->mem);
	large->mem = NULL;
	return rc;
}

void
__crpc_copyrpc_large_fini(struct crpc_copyrpc_ep *ep)
{
	if (ep->large.mem == NULL)
		return;
	crpc_rdma_mr_dereg(ep->ctx->dev, &ep->large.tx_mr);
	crpc_rdma_mr_dereg(ep->ctx->dev, &ep->large.rx_mr);
	free(ep->large.mem);
	ep->large.mem = NULL;
}

/* Post the next fragments of one message. Returns true when all of them are posted. */
static bool
fragments_post(struct crpc_copyrpc_ep *ep, enum wire_lane which)
{
	struct large_tx *tx = &ep->large.tx[which];
	const uint8_t *area = __crpc_copyrpc_large_area(ep, LARGE_TX_REQ + which);
	struct crpc_rdma_wr wr[FRAGMENTS_BURST];
	uint32_t at = tx->posted, len;
	uint16_t n, i, posted;

	for (n = 0; n < FRAGMENTS_BURST && at < tx->len; n++, at += len) {
		len = (uint32_t)crpc_min(tx->len - at, FRAGMENT_LEN);
		wr[n].op = CRPC_RDMA_WRITE;
		wr[n].flags = 0;
		wr[n].num_sge = 1;
		wr[n].imm = 0;
		wr[n].raddr = ep->large.raddr[which] + at;
		wr[n].rkey = ep->large.rkey;
		wr[n].wr_id = 0;
		wr[n].sge[0].addr = area + at;
		wr[n].sge[0].len = len;
		wr[n].sge[0].lkey = ep->large.tx_mr.lkey;
	}
	if (n == 0)
		return true;
	posted = crpc_rdma_post(ep->qp, wr, n);
	for (i = 0; i < posted; i++)
		tx->posted += wr[i].sge[0].len;
	ep->ctx->stats.fragments_sent += posted;
	return tx->posted == tx->len;
}

/* Announce a message whose fragments are posted. False: the ring has no room yet. */
static bool
announce(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct large_tx *tx = &ep->large.tx[which];
	struct tx_lane *lane = &ep->tx[which];
	struct place p = lane_place(ep, lane, WIRE_STRIDE_MIN);

	if (which == WIRE_REQ && !place_in_window(ep, &p)) {
		ep->want_read = true;
		return false;
	}
	__crpc_copyrpc_lane_put(ep, lane, &p, WIRE_STRIDE_MIN, tx->owed, now_ns);
	msg_put(p.at, tx->id, tx->len | WIRE_LARGE, tx->arg, tx->turn_ns);
	if (which == WIRE_REQ)
		ep->slots[tx->id & ep->ctx->slot_mask].kind.batch = ep->kind.batch ^ BATCH_LARGE;
	tx->len = 0;
	tx->owed = 0;
	return true;
}

void
__crpc_copyrpc_large_pump(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	enum wire_lane which;

	for (which = 0; which < WIRE_LANES; which++) {
		if (ep->large.tx[which].len != 0 && fragments_post(ep, which))
			announce(ep, which, now_ns);
	}
}

void
__crpc_copyrpc_large_start(struct crpc_copyrpc_ep *ep, enum wire_lane which,
		const struct large_tx *tx, uint64_t now_ns)
{
	ep->large.tx[which] = *tx;
	ep_mark_dirty(ep);
	if (ep->ctx->conf.flush == CRPC_COPYRPC_IMMEDIATE)
		__crpc_copyrpc_large_pump(ep, now_ns);
}

bool
__crpc_copyrpc_large_check(
	struct crpc_copyrpc_ep *ep, uint64_t number, uint32_t len, uint32_t resp_max)
{
	struct large *large = &ep->large;
	uint32_t takes = 0;

	if (len & WIRE_LARGE) {
		len &= ~WIRE_LARGE;
		if (len <= ep->max_msg || len > large->max || resp_max == WIRE_ONEWAY) {
			__crpc_copyrpc_ep_lie(ep, "length of a large request", large->max, len);
			return false;
		}
		takes |= CALL_LARGE_REQ;
		large->arrived = len;
		large->req_at[WIRE_REQ] = number;
	}
	if (resp_max > ep->max_msg && resp_max != WIRE_ONEWAY) {
		if (resp_max > large->max) {
			__crpc_copyrpc_ep_lie(ep, "largest reply",
					crpc_max(large->max, ep->max_msg), resp_max);
			return false;
		}
		takes |= CALL_LARGE_RESP;
		large->reply_max = resp_max;
		large->req_at[WIRE_RESP] = number;
	}
	if (takes & large->served) {
		__crpc_copyrpc_ep_lie(ep, "large messages at a time, by area", 0,
				takes & large->served);
		return false;
	}
	large->served |= takes;
	return true;
}

void
__crpc_copyrpc_large_release(struct crpc_copyrpc_ep *ep)
{
	struct large *large = &ep->large;
	uint64_t number;
	uint32_t which;
	bool open;

	for (which = 0; which < WIRE_LANES; which++) {
		number = large->req_at[which];
		open = number - ep->req_head < ep->req_tail - ep->req_head &&
		       (number - ep->req_head >= ep->req_next - ep->req_head ||
				       !req_is_done(&ep->reqs[number & ep->req_mask]));
		/* the reply's is not free before its last fragment has left ours */
		if (!open && !(which == WIRE_RESP && large->tx[WIRE_RESP].len != 0))
			large->served &= ~(1u << which);
	}
}

void
__crpc_copyrpc_large_end(struct crpc_copyrpc_ep *ep, struct call_slot *slot, uint32_t held)
{
	ep->large.taken &= ~(slot->large & ~held);
	ep->large.held |= held;
	slot->large = 0;
}
