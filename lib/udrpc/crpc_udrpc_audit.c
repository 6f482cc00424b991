/* SPDX-License-Identifier: BSD-3-Clause */
/* The auditor: what udrpc_pvt.h draws, recomputed and compared. */
#include <inttypes.h>

#include "udrpc_pvt.h"

/* One rule. Names the endpoint, the rule, expected and found. */
static bool
rule(const struct crpc_udrpc_ep *ep, const char *name, uint64_t expected, uint64_t found)
{
	return expected == found ||
		crpc_fail(false,
			"audit: endpoint %u (peer %u): %s: expected %" PRIu64 ", found %" PRIu64,
			ep->id, ep->user_id, name, expected, found);
}

static bool
ep_check(const struct crpc_udrpc_ep *ep)
{
	uint32_t out = 0, open = 0, used = 0;
	const struct udrpc_call *c;

	for (uint32_t i = 0; i < ep->calls.size; i++) {
		c = call_at(ep, i);
		if (c->call.deadline_ns == RPC_FREE)
			continue;
		used++;
		open += rpc_call_is_open(&c->call);
		out += c->num_tx - c->num_rx;
		if (ep->err == 0 &&
			!rule(ep, "a call that can go on is looked at", 1,
				c->num_rx != c->total && (c->num_tx == c->total || c->wants)))
			return false;
	}
	return rule(ep, "open calls", open, ep->calls.open) &&
		rule(ep, "call slots in use", used, rpc_calls_in_use(&ep->calls)) &&
		rule(ep, "an endpoint that ended with calls is in the list",
			ep->err != 0 && used != 0, ep->in_ending) &&
		(ep->err != 0 ||
			(rule(ep, "credits at home and out", ep->ctx->conf.credits,
				 ep->credits + out) &&
				rule(ep, "an endpoint with calls has a timer", used != 0,
					used != 0 && ep->rto.at != NULL)));
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
			ep->err != 0 || (TAILQ_EMPTY(&ep->want) && TAILQ_EMPTY(&ep->unsent))) &&
		rule(ep, "at rest: datagrams queued", 0, ep->ctx->nbatch);
}

int
crpc_udrpc_check(const struct crpc_udrpc *ctx, bool at_rest)
{
	const struct crpc_udrpc_ep *ep;

	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (ep->live && (!ep_check(ep) || (at_rest && !ep_rests(ep))))
			return -EFAULT;
	}
	return 0;
}
