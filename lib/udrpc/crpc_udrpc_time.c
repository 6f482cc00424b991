/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What time does: the rate holds packets back, and what is not answered is sent again, when no copy
 * of it is in the send queue any more.
 */
#include "udrpc_pvt.h"

/* Bytes that packet number k moves: its own, or those that it asks for. */
static uint32_t
packet_weight(const struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k)
{
	return WIRE_HEAD +
		(k < c->parts ? wire_piece(c->len, ep->piece, k)
			      : wire_piece(c->resp_len, ep->piece, k - c->parts + 1));
}

bool
__crpc_udrpc_pace(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k)
{
	struct crpc_udrpc *ctx = ep->ctx;
	uint64_t from;

	if (ep->next_tx_ns > ctx->now_ns) {
		ctx->stats.paced += !ep->paced;
		ep->paced = true;
		return false;
	}
	ep->paced = false;
	/* after a late poll it may catch up a little */
	from = crpc_max(ep->next_tx_ns, crpc_max(ctx->now_ns, PACE_BURST_NS) - PACE_BURST_NS);
	ep->next_tx_ns = from + (uint64_t)(packet_weight(ep, c, k) * 1e9 / ep->timely.rate);
	return true;
}

void
__crpc_udrpc_timer_start(struct crpc_udrpc_ep *ep)
{
	ep->timed = true;
	ep->look_ns = ep->ctx->now_ns + ep->ctx->conf.rto_ns / 4 + 1;
	TAILQ_INSERT_TAIL(&ep->ctx->timers, ep, timer);
}

void
__crpc_udrpc_timer_stop(struct crpc_udrpc_ep *ep)
{
	if (ep->timed)
		TAILQ_REMOVE(&ep->ctx->timers, ep, timer);
	ep->timed = false;
}

/* Nothing has come for this call: all that is unanswered goes again, when its copies have left. */
static void
go_back(struct crpc_udrpc_ep *ep, struct udrpc_call *c)
{
	struct crpc_udrpc *ctx = ep->ctx;

	ctx->stats.rtos++;
	ctx->stats.repeated += c->num_tx - c->num_rx;
	ep->credits += c->num_tx - c->num_rx;
	c->num_tx = c->num_rx;
	c->drain = true;
	c->again = true;
	__crpc_udrpc_want(ep, c);
}

/* The timer of an endpoint. */
static void
rto(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct udrpc_call *c;
	bool back = false;

	for (uint32_t i = 0; i < ep->slots; i++) {
		c = call_at(ep, i);
		if (c->call.deadline_ns == RPC_FREE || c->num_tx == c->num_rx ||
			ctx->now_ns - c->progress_ns < ctx->conf.rto_ns)
			continue;
		go_back(ep, c);
		back = true;
	}
	if (ep->heard)
		ep->silent = 0;
	else if (back)
		ep->silent++;
	ep->heard = false;
	if (ep->silent > ctx->conf.retries) {
		crpc_err("endpoint %u (peer %u): no answer to %u repetitions: the peer is declared "
			 "dead",
			ep->id, ep->user_id, ctx->conf.retries);
		ctx->stats.ep_errors++;
		__crpc_udrpc_ep_break(ep, -ETIMEDOUT);
	} else if (rpc_calls_in_use(&ep->calls) != 0) {
		__crpc_udrpc_timer_start(ep);
	}
}

void
__crpc_udrpc_timers_run(struct crpc_udrpc *ctx)
{
	struct crpc_udrpc_ep *ep;

	ctx->busy_ns = 0;
	while ((ep = timer_due(ctx)) != NULL) {
		__crpc_udrpc_timer_stop(ep);
		rto(ep);
	}
}
