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
#include "copyrpc_large.h"

#include "copyrpc_modes.h"

/* A fragment: long enough that its own cost does not show, short enough to let others pass. */
#define FRAGMENT_LEN (64u << 10)
/* Fragments of one flush, at most. */
#define FRAGMENTS_BURST 8

uint8_t *
__crpc_copyrpc_large_area(const struct crpc_copyrpc_ep *ep, enum large_area which)
{
	uint8_t *half = which < LARGE_TX_REQ ? ep->rx[WIRE_REQ] : ep->tx[WIRE_REQ].stage;

	return half + WIRE_AREAS(ep->ring_size) + which % 2 * wire_area(ep->ctx->conf.max_large);
}

void
__crpc_copyrpc_large_connect(struct crpc_copyrpc_ep *ep, const struct wire_addr *peer)
{
	struct large *large = ep->large;

	if (large == NULL)
		return;
	large->taken = large->served = 0;
	large->max = (uint32_t)crpc_min(peer->large_max, ep->ctx->conf.max_large);
	if (large->max <= ep->max_msg)
		large->max = 0;
	large->rkey = peer->large_rkey;
	large->raddr[WIRE_REQ] = peer->large_raddr;
	large->raddr[WIRE_RESP] = peer->large_raddr + wire_area(peer->large_max);
}

/* Post the next fragments of one message. Returns true when all of them are posted. */
static bool
fragments_post(struct crpc_copyrpc_ep *ep, enum wire_lane which)
{
	struct large *large = ep->large;
	struct large_tx *tx = &large->tx[which];
	const uint8_t *area = __crpc_copyrpc_large_area(ep, LARGE_TX_REQ + which);
	struct crpc_rdma_wr wr[FRAGMENTS_BURST];
	uint32_t at = tx->posted, len;
	uint16_t n, posted;

	for (n = 0; n < FRAGMENTS_BURST && at < tx->msg.len; n++, at += len) {
		len = (uint32_t)crpc_min(tx->msg.len - at, FRAGMENT_LEN);
		wr[n] = (struct crpc_rdma_wr){.op = CRPC_RDMA_WRITE,
			.num_sge = 1,
			.raddr = large->raddr[which] + at,
			.rkey = large->rkey,
			.sge = {{.addr = area + at, .len = len, .lkey = ep->conn->tx_mr.lkey}}};
	}
	posted = n == 0 ? 0 : crpc_rdma_post(ep->conn->qp, wr, n);
	for (uint16_t i = 0; i < posted; i++)
		tx->posted += wr[i].sge[0].len;
	ep->ctx->stats.fragments_sent += posted;
	return tx->posted == tx->msg.len;
}

/* Announce a message whose fragments are posted, unless the ring has no room yet. */
static void
announce(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct large_tx *tx = &ep->large->tx[which];
	struct wire_msg msg = tx->msg;
	struct place p = {.pos = lane_prod(&ep->tx[which]), .stride = WIRE_STRIDE_MIN};

	if (__crpc_copyrpc_lane_find(ep, which, &p) != 0)
		return;
	msg.len |= WIRE_LARGE;
	__crpc_copyrpc_lane_put(ep, which, &p, &msg, tx->resv, now_ns);
	if (which == WIRE_REQ)
		ep->slots[rpc_call_index(&ep->calls, msg.id)].batch = ep->batch;
	*tx = (struct large_tx){0};
}

void
__crpc_copyrpc_large_pump(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	for (enum wire_lane which = 0; which < WIRE_LANES; which++)
		if (ep->large->tx[which].msg.len != 0 && fragments_post(ep, which))
			announce(ep, which, now_ns);
}

bool
__crpc_copyrpc_large_sending(const struct crpc_copyrpc_ep *ep)
{
	return (ep->large->tx[WIRE_REQ].msg.len | ep->large->tx[WIRE_RESP].msg.len) != 0;
}

void
__crpc_copyrpc_large_send(struct crpc_copyrpc_ep *ep, enum wire_lane which,
	const struct wire_msg *msg, uint32_t resv, uint64_t now_ns)
{
	ep->large->tx[which] = (struct large_tx){.msg = *msg, .resv = resv};
	ep_list_add(ep, dirty);
	if (ep->ctx->flush->at_once)
		__crpc_copyrpc_large_pump(ep, now_ns);
}

/* Areas that a call needs. */
static uint32_t
call_areas(const struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max)
{
	return (len > ep->max_msg ? LARGE_REQ : 0) | (resp_max > ep->max_msg ? LARGE_RESP : 0);
}

int
__crpc_copyrpc_large_ask(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max)
{
	if (ep->large == NULL || crpc_max(len, resp_max) > ep->large->max)
		return -EMSGSIZE;
	return ep->large->taken & call_areas(ep, len, resp_max) ? -EAGAIN : 0;
}

void
__crpc_copyrpc_large_call(struct crpc_copyrpc_ep *ep, struct call_slot *slot,
	const struct wire_msg *msg, uint64_t now_ns)
{
	slot->areas = call_areas(ep, msg->len, msg->arg);
	slot->resp_max |= WIRE_LARGE;
	ep->large->taken |= slot->areas;
	if (slot->areas & LARGE_REQ)
		__crpc_copyrpc_large_send(ep, WIRE_REQ, msg, 0, now_ns);
}

bool
__crpc_copyrpc_large_waits(const struct crpc_copyrpc_ep *ep, const struct call_slot *slot)
{
	return (slot->areas & LARGE_REQ) && ep->large->tx[WIRE_REQ].msg.len != 0;
}

const void *
__crpc_copyrpc_large_end(
	struct crpc_copyrpc_ep *ep, struct call_slot *slot, bool large, const void *data)
{
	uint32_t held = large ? LARGE_RESP : 0;

	ep->large->taken &= ~(slot->areas & ~held);
	ep->large->held |= held;
	slot->areas = 0;
	return large ? __crpc_copyrpc_large_area(ep, LARGE_RX_RESP) : data;
}

void
__crpc_copyrpc_large_given(struct crpc_copyrpc_ep *ep)
{
	ep->large->taken &= ~ep->large->held;
	ep->large->held = 0;
}

bool
__crpc_copyrpc_large_check(struct crpc_copyrpc_ep *ep, uint64_t number, struct req_entry *req)
{
	struct large *large = ep->large;
	uint32_t max = large != NULL ? large->max : 0, len = req->len & ~WIRE_LARGE, takes = 0;

	if (req->len & WIRE_LARGE) {
		if (len <= ep->max_msg || len > max || req->reply_end == 0)
			return __crpc_copyrpc_lie(ep, "length of a large request", max, len);
		takes |= LARGE_REQ;
		req->len = len;
		req->data = __crpc_copyrpc_large_area(ep, LARGE_RX_REQ);
		large->req_at[WIRE_REQ] = number;
	}
	if (req->reply_end > ep->max_msg + 1) {
		if (req->reply_end > max + 1)
			return __crpc_copyrpc_lie(ep, "largest reply", crpc_max(max, ep->max_msg),
				req->reply_end - 1);
		takes |= LARGE_RESP;
		large->reply_max = req->reply_end - 1;
		large->req_at[WIRE_RESP] = number;
	}
	if (takes & large->served)
		return __crpc_copyrpc_lie(
			ep, "large messages at a time, by area", 0, takes & large->served);
	large->served |= takes;
	return true;
}

uint32_t
__crpc_copyrpc_large_reply_max(const struct crpc_copyrpc_ep *ep, const struct req_entry *req)
{
	const struct large *large = ep->large;

	/* while the reply is being sent, its request's entry may be another one's */
	if (large == NULL || !(large->served & LARGE_RESP) || large->tx[WIRE_RESP].msg.len != 0 ||
		req != &ep->reqs[large->req_at[WIRE_RESP] & ep->req_mask])
		return 0;
	return large->reply_max;
}

void
__crpc_copyrpc_large_release(struct crpc_copyrpc_ep *ep)
{
	struct large *large = ep->large;
	uint64_t number;
	bool open;

	for (uint32_t which = 0; large->served != 0 && which < WIRE_LANES; which++) {
		number = large->req_at[which];
		open = number - ep->req_head < ep->req_tail - ep->req_head &&
			(number - ep->req_head >= ep->req_next - ep->req_head ||
				!req_is_done(&ep->reqs[number & ep->req_mask]));
		/* the reply's is not free before its last fragment has left ours */
		if (!open && !(which == WIRE_RESP && large->tx[WIRE_RESP].msg.len != 0))
			large->served &= ~(1u << which);
	}
}
