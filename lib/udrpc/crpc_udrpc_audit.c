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

/* One call; adds up what is out. */
static bool
call_check(const struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t *out,
	uint32_t *open)
{
	bool free = slot_test(ep->free_slots, c->index), end = slot_test(ep->ending, c->index);

	if (!rule(ep, "a call slot is in the free map if it is free", c->state == CALL_FREE, free))
		return false;
	*open += end;
	if (!rule(ep, "a slot that ends is open", end, end && c->state == CALL_OPEN))
		return false;
	if (c->state == CALL_DRAIN)
		return rule(ep, "a draining slot is looked at", 1, slot_test(ep->want, c->index));
	if (c->state != CALL_OPEN)
		return true;
	*out += c->num_tx - c->num_rx;
	*open += !c->muted;
	return rule(ep, "answered, sent and total packets are in order", 1,
		       c->num_rx <= c->num_tx && c->num_tx <= c->num_hi &&
			       c->num_hi <= c->total) &&
	       rule(ep, "a call that can go on is looked at", 1,
		       ep->err != 0 || (c->num_rx != c->total &&
					       (c->num_tx == c->total ||
						       slot_test(ep->want, c->index)))) &&
	       rule(ep, "an endpoint with open calls has a timer", 1,
		       ep->rto.at != NULL || ep->err != 0);
}

static bool
ep_check(const struct crpc_udrpc_ep *ep)
{
	uint32_t out = 0, open = 0, i;

	for (i = 0; i < ep->slots; i++) {
		if (!call_check(ep, &ep->calls[i], &out, &open))
			return false;
	}
	return rule(ep, "credits at home and out", ep->ctx->conf.credits, ep->credits + out) &&
	       rule(ep, "calls whose users wait", open, ep->open) &&
	       rule(ep, "an endpoint that wants to send is in the list or on the wheel", 1,
		       slot_none(ep->want) || ep->in_tx || ep->pace.at != NULL) &&
	       rule(ep, "an endpoint that owes replies is in the list", 1,
		       slot_none(ep->owe) || ep->in_tx) &&
	       rule(ep, "an endpoint with calls to end is in the list", !slot_none(ep->ending),
		       ep->in_end);
}

static bool
ep_rests(const struct crpc_udrpc_ep *ep)
{
	uint32_t i, taken = 0, busy = 0;

	for (i = 0; i < ep->slots; i++)
		taken += ep->calls[i].state != CALL_FREE;
	for (i = 0; i < ep->ctx->conf.slots; i++)
		busy += ep->serves[i].state != SERVE_IDLE && ep->serves[i].state != SERVE_DONE;
	return rule(ep, "at rest: credits at home", ep->ctx->conf.credits, ep->credits) &&
	       rule(ep, "at rest: call slots taken", 0, taken) &&
	       rule(ep, "at rest: requests begun and not answered", 0, busy) &&
	       rule(ep, "at rest: calls whose users wait", 0, ep->open) &&
	       rule(ep, "at rest: nothing wants to be sent", 1,
		       slot_none(ep->want) && slot_none(ep->owe));
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
	if (at_rest && (ctx->nbatch != 0 || ctx->ready != NULL)) {
		crpc_err("audit: at rest: expected nothing queued, found %u datagrams%s",
			ctx->nbatch, ctx->ready != NULL ? " and requests" : "");
		return -EFAULT;
	}
	return 0;
}

static void
call_dump(const struct udrpc_call *c, uint64_t now_ns, FILE *out)
{
	if (c->state == CALL_DRAIN)
		fprintf(out, "    call slot %u: request %u has ended, its copies are to leave\n",
			c->index, c->req);
	if (c->state != CALL_OPEN)
		return;
	fprintf(out,
		"    call slot %u: request %u of %u bytes, packets %u answered, %u sent, %u known, "
		"open for %" PRIu64 " ns%s%s%s\n",
		c->index, c->req, c->len, c->num_rx, c->num_tx, c->total, now_ns - c->call_ns,
		c->again ? ", sent again" : "", c->drain ? ", drains" : "",
		c->muted ? ", given up" : "");
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
			ep->id, ep->user_id, ep->err, ep->credits, ctx->conf.credits, ep->open,
			ep->timely.rate, ep->silent);
		for (k = 0; k < ep->slots; k++)
			call_dump(&ep->calls[k], ctx->now_ns, out);
		for (k = 0; k < ctx->conf.slots; k++)
			serve_dump(&ep->serves[k], out);
	}
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}
