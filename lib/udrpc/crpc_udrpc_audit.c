/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The auditor and the dump: what udrpc_pvt.h draws, recomputed and compared.
 */
#include <inttypes.h>

#include "udrpc_pvt.h"

/* One rule. Names the endpoint, the rule, expected and found. */
static bool
rule(const struct crpc_udrpc_ep *ep, const char *name, uint64_t expected, uint64_t found)
{
	if (expected == found)
		return true;
	crpc_err("audit: endpoint %u (peer %u): %s: expected %" PRIu64 ", found %" PRIu64, ep->id,
		ep->user_id, name, expected, found);
	return false;
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
	uint32_t out = 0, open = 0, ended = 0, free = 0, i;
	const struct rpc_call *call;

	for (i = 1; i <= ep->calls.size; i++) {
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
	uint32_t i, busy = 0;

	for (i = 0; i < ep->ctx->conf.slots; i++)
		busy += ep->serves[i].state != SERVE_IDLE && ep->serves[i].state != SERVE_DONE;
	return rule(ep, "at rest: call slots in use", 0, calls_in_use(ep)) &&
		rule(ep, "at rest: requests begun and not answered", 0, busy) &&
		rule(ep, "at rest: nothing wants to be sent", 1,
			ep->err != 0 || (TAILQ_EMPTY(&ep->want) && TAILQ_EMPTY(&ep->unsent)));
}

int
crpc_udrpc_check(const struct crpc_udrpc *ctx, bool at_rest)
{
	const struct crpc_udrpc_ep *ep;
	uint32_t i;

	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (!ep->live)
			continue;
		if (!ep_check(ep) || (at_rest && !ep_rests(ep)))
			return -EFAULT;
	}
	if (ctx->retired > ctx->put || ctx->nbatch > TX_MAX) {
		crpc_err("audit: %" PRIu64 " datagrams put, %" PRIu64 " have left, %u wait",
			ctx->put, ctx->retired, ctx->nbatch);
		return -EFAULT;
	}
	if (at_rest && (ctx->nbatch != 0 || !TAILQ_EMPTY(&ctx->ready))) {
		crpc_err("audit: at rest: expected nothing queued, found %u datagrams%s",
			ctx->nbatch, TAILQ_EMPTY(&ctx->ready) ? "" : " and requests");
		return -EFAULT;
	}
	return 0;
}

static void
call_dump(const struct udrpc_call *c, uint64_t now_ns, FILE *out)
{
	if (c->call.deadline_ns == RPC_FREE)
		return;
	fprintf(out,
		"    call slot %u: request %u of %u bytes, packets %u answered, %u sent, %u known, "
		"open for %" PRIu64 " ns%s%s%s\n",
		c->index, c->req, c->len, c->num_rx, c->num_tx, c->total, now_ns - c->call_ns,
		c->again ? ", sent again" : "", c->drain ? ", drains" : "",
		c->oneway                            ? ", a notification"
			: rpc_call_is_open(&c->call) ? ""
						     : ", ended early");
}

static void
serve_dump(const struct udrpc_serve *s, FILE *out)
{
	static const char *const names[] = {"idle", "in pieces", "whole", "given", "answered"};

	if (s->state == SERVE_IDLE || s->state == SERVE_DONE)
		return;
	fprintf(out, "    server slot %u: request %u of %u bytes, %u of %u pieces, %s\n", s->index,
		s->req, s->len, s->num_rx, s->parts, names[s->state]);
}

int
crpc_udrpc_dump(const struct crpc_udrpc *ctx, FILE *out)
{
	const struct crpc_udrpc_ep *ep;
	uint32_t i, k;

	fprintf(out, "udrpc: %" PRIu64 " datagrams put, %" PRIu64 " have left, %u wait%s\n",
		ctx->put, ctx->retired, ctx->nbatch, ctx->err != 0 ? ", the queue is broken" : "");
	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (!ep->live)
			continue;
		fprintf(out,
			"  endpoint %u (peer %u): status %d, %u of %u credits at home, %u calls "
			"open, %.0f bytes/s, %u looks without a sign of life\n",
			ep->id, ep->user_id, ep->err, ep->credits, ctx->conf.credits,
			ep->calls.open, ep->timely.rate, ep->silent);
		for (k = 0; k < ep->slots; k++)
			call_dump(call_at(ep, k), ctx->now_ns, out);
		for (k = 0; k < ctx->conf.slots; k++)
			serve_dump(&ep->serves[k], out);
	}
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}
