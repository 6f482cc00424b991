/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The auditor: what copyrpc_path.h draws, recomputed from the tables and compared.
 */
#include <inttypes.h>

#include "copyrpc_large.h"
#include "copyrpc_modes.h"

/* One rule. Names the endpoint, the rule, expected and found. */
static bool
rule(const struct crpc_copyrpc_ep *ep, const char *name, uint64_t expected, uint64_t found)
{
	if (expected == found)
		return true;
	return crpc_fail(false,
		"audit: endpoint %u (peer %u): %s: expected %" PRIu64 ", found %" PRIu64, ep->id,
		ep->user_id, name, expected, found);
}

static bool
rule_most(const struct crpc_copyrpc_ep *ep, const char *name, uint64_t most, uint64_t found)
{
	return rule(ep, name, found <= most ? found : most, found);
}

/* Call slots: states, free list, and the sum of what they reserve. */
static bool
calls_check(const struct crpc_copyrpc_ep *ep)
{
	uint32_t size = ep->calls.size, used = 0, open = 0, listed = 0;
	const struct rpc_call *call;
	uint64_t sum = ep->hold;

	for (uint32_t i = 1; i <= size; i++) {
		call = &ep->slots[i].call;
		if (call->deadline_ns == RPC_FREE)
			continue;
		open += rpc_call_is_open(call);
		used++;
		sum += slot_worst(ep, &ep->slots[i]);
	}
	for (call = ep->calls.free; call != NULL && listed <= size; call = call->next)
		listed++;
	return rule(ep, "open calls", open, ep->calls.open) &&
		rule_most(ep, "room reserved for replies", ep->ring_size,
			ep->resv.size - ep->resv.left) &&
		rule_most(ep, "room reserved by the peer", ep->ring_size,
			ep->conn->peer_resv.size - ep->conn->peer_resv.left) &&
		rule(ep, "bytes reserved for replies", sum, room_sum(&ep->resv)) &&
		(ep->last_worst == UINT32_MAX ||
			rule_most(ep, "room of the newest call", ep->resv.max, ep->last_worst)) &&
		rule(ep, "free call slots in the list", size - used, listed);
}

/* Lanes we send: positions in order, pending batches side by side, inside the window. */
static bool
lanes_check(const struct crpc_copyrpc_ep *ep)
{
	const struct tx_lane *lane;
	uint64_t pos, len, most;

	for (uint32_t l = 0; l < WIRE_LANES; l++) {
		lane = &ep->tx[l];
		pos = lane->sent;
		most = 0;
		if (!rule_most(ep, "pending batches", 2, lane->npend) ||
			!rule_most(ep, "queued bytes of a lane", ep->ring_size,
				lane_prod(lane) - lane->sent))
			return false;
		if (lane->npend == 2) {
			len = lane->closed.len;
			pos = wire_batch_pos(pos, (uint32_t)len, ep->ring_size);
			if (!rule(ep, "position of the closed batch", pos, lane->closed.pos))
				return false;
			pos += len;
		}
		if (lane->npend != 0) {
			len = lane_prod(lane) - lane->open.pos;
			pos = wire_batch_pos(pos, (uint32_t)len + ep->trailer, ep->ring_size);
			if (!rule(ep, "position of the open batch", pos, lane->open.pos))
				return false;
			pos += len;
			most = ep->ring_size - (pos & (ep->ring_size - 1));
			if (l == WIRE_REQ)
				most = crpc_min(most,
					ep->ring_size -
						(lane_prod(lane) - ep->conn->peer_released));
		}
		if (!rule_most(ep, "room of the open batch", most,
			    lane->limit == NULL ? 0 : (uint64_t)(lane->limit - lane->next)) ||
			(ep->err == 0 &&
				!rule(ep, "end of the pending batches", pos, lane_prod(lane))))
			return false;
	}
	return rule_most(ep, "request window", ep->ring_size,
		lane_prod(&ep->tx[WIRE_REQ]) - ep->conn->peer_released);
}

/* Requests: counters in order, released position and the peer's reservations as in the table. */
static bool
requests_check(const struct crpc_copyrpc_ep *ep)
{
	const struct conn *conn = ep->conn;
	const struct tx_lane *lane = &ep->tx[WIRE_RESP];
	const struct req_entry *req;
	uint64_t resv = 0;

	if (!rule_most(
		    ep, "requests in the table", ep->req_mask + 1, ep->req_tail - ep->req_head) ||
		!rule_most(ep, "requests open", ep->req_tail - ep->req_head,
			ep->req_next - ep->req_head) ||
		!rule_most(ep, "bytes held of the request ring", ep->ring_size,
			conn->rx_pos[WIRE_REQ] - conn->released) ||
		!rule_most(ep, "bytes released and not reported", ep->ring_size,
			conn->released - conn->reported))
		return false;
	resv += lane->npend != 0 ? lane->open.resv : 0;
	resv += lane->npend == 2 ? lane->closed.resv : 0;
	for (uint64_t i = ep->req_head; i != ep->req_tail; i++) {
		req = &ep->reqs[i & ep->req_mask];
		if (i >= ep->req_next || !req_is_done(req))
			resv += req->worst;
		if (i < ep->req_next && !req_is_done(req) &&
			!rule(ep, "token of an open request", token_make(ep->id, i), req->token))
			return false;
	}
	resv += ep->large != NULL ? ep->large->tx[WIRE_RESP].resv : 0;
	return ep->err != 0 ||
		rule(ep, "bytes reserved by the peer", resv, room_sum(&conn->peer_resv));
}

/* Areas that are taken, and large messages that are being sent. */
static uint32_t
large_busy(const struct crpc_copyrpc_ep *ep)
{
	const struct large *large = ep->large;

	return large == NULL
		? 0
		: (large->taken & ~large->held) | large->served | __crpc_copyrpc_large_sending(ep);
}

static bool
rest_check(const struct crpc_copyrpc_ep *ep)
{
	const struct conn *conn = ep->conn;

	if (!rule(ep, "open calls at rest", 0, ep->calls.open))
		return false;
	if (ep->err != 0)
		return true;
	return rule(ep, "pending at rest", 0, ep_pending(ep)) &&
		/* fewer than there may be give no completion */
		rule(ep, "flushes outstanding at rest are too many", 0,
			ep_outstanding(ep) != 0 &&
				ep_outstanding(ep) >= ep->ctx->conf.max_outstanding) &&
		rule(ep, "open requests at rest", ep->req_tail, ep->req_head) &&
		rule(ep, "released at rest", conn->rx_pos[WIRE_REQ], conn->released) &&
		rule(ep, "reported at rest", conn->released, conn->reported) &&
		(conn->flow->may_be_old ||
			rule(ep, "peer's released at rest", ep->tx[WIRE_REQ].sent,
				conn->peer_released)) &&
		rule(ep, "gets and puts at rest", conn->onesided.tail, conn->onesided.head) &&
		rule(ep, "large messages at rest", 0, large_busy(ep)) &&
		rule(ep, "reserved by the peer at rest", 0, room_sum(&conn->peer_resv)) &&
		rule(ep, "replies reserved at rest", ep->hold, room_sum(&ep->resv));
}

/* A list holds exactly the endpoints whose links, so far from their starts, say so. */
static bool
list_check(const struct crpc_copyrpc *ctx, const struct ep_list *list, size_t link)
{
	const struct crpc_copyrpc_ep *ep = list->tqh_first;
	uint32_t linked = 0, listed = 0;
	const struct ep_link *at;

	for (; ep != NULL && listed <= ctx->neps; listed++) {
		at = (const struct ep_link *)((const char *)ep + link);
		ep = at->tqe_next;
	}
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		at = (const struct ep_link *)((const char *)ctx->eps[i] + link);
		linked += ctx->eps[i] != NULL && at->tqe_prev != NULL;
	}
	if (listed != linked)
		crpc_err("audit: list of endpoints: expected %u, found %u", linked, listed);
	return listed == linked;
}

#define LIST(member) &ctx->member, offsetof(struct crpc_copyrpc_ep, member)

int
crpc_copyrpc_check(const struct crpc_copyrpc *ctx, bool at_rest)
{
	const struct crpc_copyrpc_ep *ep;

	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		ep = ctx->eps[i];
		if (ep == NULL)
			continue;
		if (!calls_check(ep) || !lanes_check(ep) || !requests_check(ep) ||
			(at_rest && !rest_check(ep)))
			return -EFAULT;
		if (ep->err == 0 && (ep_pending(ep) || ep->conn->reported != ep->conn->released) &&
			!rule(ep, "dirty", 1, ep->dirty.tqe_prev != NULL))
			return -EFAULT;
	}
	return list_check(ctx, LIST(dirty)) && list_check(ctx, LIST(ready)) &&
			list_check(ctx, LIST(broken)) && list_check(ctx, LIST(held))
		? 0
		: -EFAULT;
}

void
crpc_copyrpc_ep_positions(const struct crpc_copyrpc_ep *ep, struct crpc_copyrpc_positions *p)
{
	const struct conn *conn = ep->conn;

	*p = (struct crpc_copyrpc_positions){
		.requests_queued = lane_prod(&ep->tx[WIRE_REQ]),
		.requests_sent = ep->tx[WIRE_REQ].sent,
		.requests_released_by_peer = conn->peer_released,
		.responses_sent = ep->tx[WIRE_RESP].sent,
		.requests_arrived = conn->rx_pos[WIRE_REQ],
		.requests_released = conn->released,
		.requests_reported = conn->reported,
		.responses_arrived = conn->rx_pos[WIRE_RESP],
		.reply_room_reserved = room_sum(&ep->resv) - ep->hold,
		.reply_room_reserved_by_peer = room_sum(&conn->peer_resv),
	};
}

/* What one end sent is what its peer has received, and the room is free again. */
static bool
half_match(const struct crpc_copyrpc_positions *a, const struct crpc_copyrpc_positions *b,
	enum crpc_copyrpc_flow flow)
{
	bool behind = flow == CRPC_COPYRPC_FLOW_READ && /* what was read may be old */
		a->requests_released_by_peer <= b->requests_released;
	const struct {
		const char *rule;
		uint64_t expected, found;
	} all[] = {{"requests queued and sent", a->requests_queued, a->requests_sent},
		{"requests sent and arrived", a->requests_sent, b->requests_arrived},
		{"requests arrived and released", b->requests_arrived, b->requests_released},
		{"requests released and reported", b->requests_released, b->requests_reported},
		{"requests released and known",
			behind ? a->requests_released_by_peer : b->requests_released,
			a->requests_released_by_peer},
		{"responses sent and arrived", a->responses_sent, b->responses_arrived},
		{"reply room reserved", 0, a->reply_room_reserved},
		{"reply room reserved by the peer", 0, a->reply_room_reserved_by_peer}};

	for (size_t i = 0; i < CRPC_DIM(all); i++)
		if (all[i].expected != all[i].found)
			return crpc_fail(false,
				"audit of both ends: %s: expected %" PRIu64 ", found %" PRIu64,
				all[i].rule, all[i].expected, all[i].found);
	return true;
}

int
crpc_copyrpc_positions_match(const struct crpc_copyrpc_positions *ours,
	const struct crpc_copyrpc_positions *theirs, enum crpc_copyrpc_flow flow)
{
	return half_match(ours, theirs, flow) && half_match(theirs, ours, flow) ? 0 : -EFAULT;
}
