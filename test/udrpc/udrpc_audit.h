/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDRPC_AUDIT_H
#define UDRPC_AUDIT_H

/* The auditor: what udrpc_pvt.h draws, recomputed and compared. */

#include "rpc_audit.h"
#include "udrpc_pvt.h"

static inline bool
ep_check(const struct crpc_udrpc_ep *ep)
{
	uint32_t out = 0, open = 0, used = 0, idle = 0;
	const struct udrpc_call *c;

	for (uint32_t i = 0; i < ep->calls.size; i++) {
		c = call_at(ep, i);
		if (c->call.deadline_ns == RPC_FREE)
			continue;
		used++;
		open += rpc_call_is_open(&c->call);
		out += c->num_tx - c->num_rx;
		idle += c->num_rx == c->total || (c->num_tx != c->total && !c->wants);
	}
	return rpc_rules_hold(ep->id, ep->user_id,
		       (const struct rpc_rule[]){{"open calls", open, ep->calls.open},
			       {"call slots in use", used, rpc_calls_in_use(&ep->calls)},
			       {"an endpoint that ended with calls is in the list",
				       ep->err != 0 && used != 0, ep->in_ending},
			       {0}}) &&
		(ep->err != 0 ||
			rpc_rules_hold(ep->id, ep->user_id,
				(const struct rpc_rule[]){
					{"calls that can go on and are not looked at", 0, idle},
					{"credits at home and out", ep->ctx->conf.credits,
						ep->credits + out},
					{"an endpoint with calls has a timer", used != 0,
						used != 0 && ep->timed},
					{0}}));
}

static inline bool
ep_rests(const struct crpc_udrpc_ep *ep)
{
	bool quiet = ep->err != 0 || (TAILQ_EMPTY(&ep->want) && TAILQ_EMPTY(&ep->unsent));
	uint32_t busy = 0;

	for (uint32_t i = 0; i < ep->ctx->conf.slots; i++)
		busy += ep->serves[i].state != SERVE_IDLE && ep->serves[i].state != SERVE_DONE;
	return rpc_rules_hold(ep->id, ep->user_id,
		(const struct rpc_rule[]){
			{"at rest: call slots in use", 0, rpc_calls_in_use(&ep->calls)},
			{"at rest: requests begun and not answered", 0, busy},
			{"at rest: nothing wants to be sent", true, quiet},
			{"at rest: datagrams queued", 0, ep->ctx->nbatch}, {0}});
}

/*
 * Do the invariants hold that hold between any two calls? 0, or -EFAULT: the log names the
 * endpoint, the rule, expected and found. At rest all credits must be home, all slots free, and
 * nothing queued.
 */
static inline int
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

#endif
