/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The auditor: what copyrpc_path.h draws, recomputed from the tables and compared.
 */
#include "copyrpc_large.h"
#include "copyrpc_modes.h"
#include "rpc_audit.h"

/* Call slots: how many are open, and the sum of what they reserve. */
static bool
calls_check(const struct crpc_copyrpc_ep *ep)
{
	uint64_t sum = ep->hold, open = 0;

	for (uint32_t i = 1; i <= ep->calls.size; i++) {
		if (ep->slots[i].call.deadline_ns == RPC_FREE)
			continue;
		open += rpc_call_is_open(&ep->slots[i].call);
		sum += slot_worst(ep, &ep->slots[i]);
	}
	return rpc_rules_hold(ep->id, ep->user_id,
		(const struct rpc_rule[]){{"open calls", open, ep->calls.open},
			{"bytes reserved for replies", sum, room_sum(&ep->resv)}, {0}});
}

/* Requests in the table and replies in batches: what the peer has reserved for them. */
static uint64_t
requests_worst(const struct crpc_copyrpc_ep *ep)
{
	const struct tx_lane *lane = &ep->tx[WIRE_RESP];
	uint64_t sum = ep->large != NULL ? ep->large->tx[WIRE_RESP].resv : 0;
	const struct req_entry *req;

	sum += lane->npend != 0 ? lane->open.resv : 0;
	sum += lane->npend == 2 ? lane->closed.resv : 0;
	for (uint64_t i = ep->req_head; i != ep->req_tail; i++) {
		req = &ep->reqs[i & ep->req_mask];
		if (i >= ep->req_next || !req_is_done(req))
			sum += req->worst;
	}
	return sum;
}

/* Positions in order, within the rings, and what is not at rest in a list. */
static bool
lanes_check(const struct crpc_copyrpc_ep *ep)
{
	const struct conn *conn = ep->conn;
	uint64_t ring = ep->ring_size, window = lane_prod(&ep->tx[WIRE_REQ]) - conn->peer_released,
		 held = conn->rx_pos[WIRE_REQ] - conn->released,
		 unreported = conn->released - conn->reported;
	bool busy = ep_pending(ep) || unreported != 0;
	const struct rpc_rule rules[] = {{"request window", crpc_min(window, ring), window},
		{"bytes held of the request ring", crpc_min(held, ring), held},
		{"bytes released and not reported", crpc_min(unreported, ring), unreported},
		{"bytes reserved by the peer", requests_worst(ep), room_sum(&conn->peer_resv)},
		{"dirty", busy || ep->dirty.tqe_prev != NULL, ep->dirty.tqe_prev != NULL}, {0}};

	return rpc_rules_hold(ep->id, ep->user_id, rules);
}

static bool
rest_check(const struct crpc_copyrpc_ep *ep)
{
	const struct large *large = ep->large;
	const struct conn *conn = ep->conn;
	uint64_t areas = large == NULL
		? 0
		: (large->taken & ~large->held) | large->served | __crpc_copyrpc_large_sending(ep);
	const struct rpc_rule calls[] = {{"open calls at rest", 0, ep->calls.open}, {0}};
	const struct rpc_rule rules[] = {{"pending at rest", 0, ep_pending(ep)},
		{"open requests at rest", ep->req_tail, ep->req_head},
		{"released at rest", conn->rx_pos[WIRE_REQ], conn->released},
		{"reported at rest", conn->released, conn->reported},
		{"peer's released at rest",
			conn->conf.flow == CRPC_COPYRPC_FLOW_READ ? conn->peer_released
								  : ep->tx[WIRE_REQ].sent,
			conn->peer_released},
		{"gets and puts at rest", 0, conn->onesided.open},
		{"large messages at rest", 0, areas},
		{"replies reserved at rest", ep->hold, room_sum(&ep->resv)}, {0}};

	return rpc_rules_hold(ep->id, ep->user_id, calls) &&
		(ep->err != 0 || rpc_rules_hold(ep->id, ep->user_id, rules));
}

int
crpc_copyrpc_check(const struct crpc_copyrpc *ctx, bool at_rest)
{
	const struct crpc_copyrpc_ep *ep;

	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		ep = ctx->eps[i];
		if (ep != NULL &&
			(!calls_check(ep) || (ep->err == 0 && !lanes_check(ep)) ||
				(at_rest && !rest_check(ep))))
			return -EFAULT;
	}
	return 0;
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
