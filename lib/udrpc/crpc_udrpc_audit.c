/* SPDX-License-Identifier: BSD-3-Clause */
/* The auditor: what udrpc_pvt.h draws, recomputed and compared. */
#include <inttypes.h>

#include "udrpc_pvt.h"

/* One rule. Names the endpoint, the rule, expected and found. */
static bool
rule(const struct crpc_udrpc_ep *ep, const char *name, uint64_t expected, uint64_t found)
{
	if (expected == found)
		return true;
	return crpc_fail(false,
		"audit: endpoint %u (peer %u): %s: expected %" PRIu64 ", found %" PRIu64, ep->id,
		ep->user_id, name, expected, found);
}

/* One call that is open or has ended early; adds up what is out. */
static bool
call_check(const struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t *out)
{
	*out += c->num_tx - c->num_rx;
	return rule(ep, "answered, sent and total packets are in order", 1,
		       c->num_rx <= c->num_tx && c->num_tx <= c->num_hi && c->num_hi <= c->total) &&
		rule(ep, "a call that can go on is looked at", 1,
			c->num_rx != c->total && (c->num_tx == c->total || c->wants));
}

static bool
ep_check(const struct crpc_udrpc_ep *ep)
{
	uint32_t out = 0, open = 0, ended = 0, free = 0;
	const struct rpc_call *call;

	for (uint32_t i = 1; i <= ep->calls.size; i++) {
		call = rpc_call_at(&ep->calls, i);
		open += rpc_call_is_open(call);
		ended += call->deadline_ns == RPC_ENDED;
		if (call->deadline_ns != RPC_FREE && ep->err == 0 &&
			!call_check(ep, call_at(ep, i - 1), &out))
			return false;
	}
	for (call = ep->calls.free; call != NULL && free <= ep->calls.size; call = call->next)
		free++;
	if (!rule(ep, "open calls", open, ep->calls.open) ||
		!rule(ep, "calls that ended early", ended, ep->calls.ended) ||
		!rule(ep, "free call slots", ep->calls.size - open - ended, free) ||
		!rule(ep, "an endpoint that ended with calls is in the list",
			ep->err != 0 && open + ended != 0, ep->in_ending))
		return false;
	if (ep->err != 0)
		return true;
	return rule(ep, "credits at home and out", ep->ctx->conf.credits, ep->credits + out) &&
		rule(ep, "an endpoint with calls has a timer", 1,
			ep->rto.at != NULL || open + ended == 0) &&
		rule(ep, "an endpoint that wants to send is in the list or on the wheel", 1,
			TAILQ_EMPTY(&ep->want) || ep->in_sending || ep->pace.at != NULL) &&
		rule(ep, "an endpoint with replies to send is in the list", 1,
			TAILQ_EMPTY(&ep->unsent) || ep->in_sending);
}

static bool
ep_rests(const struct crpc_udrpc_ep *ep)
{
	uint32_t busy = 0;

	for (uint32_t i = 0; i < ep->ctx->conf.slots; i++)
		busy += ep->serves[i].state != SERVE_IDLE && ep->serves[i].state != SERVE_DONE;
	return rule(ep, "at rest: call slots in use", 0, rpc_calls_in_use(&ep->calls)) &&
		rule(ep, "at rest: requests begun and not answered", 0, busy) &&
		rule(ep, "at rest: nothing wants to be sent", 1,
			ep->err != 0 || (TAILQ_EMPTY(&ep->want) && TAILQ_EMPTY(&ep->unsent)));
}

int
crpc_udrpc_check(const struct crpc_udrpc *ctx, bool at_rest)
{
	const struct crpc_udrpc_ep *ep;

	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (!ep->live)
			continue;
		if (!ep_check(ep) || (at_rest && !ep_rests(ep)))
			return -EFAULT;
	}
	if (ctx->retired > ctx->put || ctx->nbatch > TX_MAX)
		return crpc_fail(-EFAULT,
			"audit: %" PRIu64 " datagrams put, %" PRIu64 " have left, %u wait",
			ctx->put, ctx->retired, ctx->nbatch);
	if (at_rest && (ctx->nbatch != 0 || !TAILQ_EMPTY(&ctx->ready)))
		return crpc_fail(-EFAULT,
			"audit: at rest: expected nothing queued, found %u datagrams%s",
			ctx->nbatch, TAILQ_EMPTY(&ctx->ready) ? "" : " and requests");
	return 0;
}
