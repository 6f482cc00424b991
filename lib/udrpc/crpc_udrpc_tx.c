/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: the batch of datagrams that one doorbell moves, and endpoints that wait for room,
 * credits or their turn.
 */
#include "udrpc_pvt.h"

void
__crpc_udrpc_tx_post(struct crpc_udrpc *ctx)
{
	uint64_t out = ctx->put - ctx->nbatch - ctx->retired;
	uint16_t n;

	if (ctx->nbatch == 0 || ctx->err != 0)
		return;
	/* a device may take more than it was asked to, but a head's place is taken until it left */
	n = (uint16_t)crpc_min(ctx->nbatch, ctx->conf.sq_depth - out);
	if (n != 0)
		n = crpc_rdma_post(ctx->ud, ctx->batch, n);
	ctx->stats.bursts += n != 0;
	ctx->stats.packets_sent += n;
	ctx->nbatch -= n;
	if (crpc_unlikely(ctx->nbatch != 0) && n != 0)
		memmove(ctx->batch, ctx->batch + n, ctx->nbatch * sizeof(ctx->batch[0]));
}

/* Have tx_run() look at an endpoint. */
static void
tx_want(struct crpc_udrpc_ep *ep)
{
	if (!ep->in_sending)
		TAILQ_INSERT_TAIL(&ep->ctx->sending, ep, sending);
	ep->in_sending = true;
}

void
__crpc_udrpc_want(struct crpc_udrpc_ep *ep, struct udrpc_call *c)
{
	if (!c->wants)
		TAILQ_INSERT_TAIL(&ep->want, c, want);
	c->wants = true;
	tx_want(ep);
}

void
__crpc_udrpc_resp_later(struct udrpc_serve *s)
{
	s->unsent = true;
	TAILQ_INSERT_TAIL(&s->ep->unsent, s, list);
	tx_want(s->ep);
}

/* Replies first: they wait for nothing but room. */
static void
unsent_send(struct crpc_udrpc_ep *ep)
{
	struct udrpc_serve *s;

	while ((s = TAILQ_FIRST(&ep->unsent)) != NULL && __crpc_udrpc_resp_send(ep, s, 0)) {
		TAILQ_REMOVE(&ep->unsent, s, list);
		s->unsent = false;
	}
}

/* Each call that wants to send has one turn; what it could not send waits behind the others. */
static void
wanted_send(struct crpc_udrpc_ep *ep)
{
	struct udrpc_call *c, *last = TAILQ_LAST(&ep->want, call_list);
	bool more;

	while ((c = TAILQ_FIRST(&ep->want)) != NULL) {
		more = __crpc_udrpc_call_send(ep, c);
		TAILQ_REMOVE(&ep->want, c, want);
		if (more)
			TAILQ_INSERT_TAIL(&ep->want, c, want);
		c->wants = more;
		if (c == last || (more && (ep->credits == 0 || ep->ctx->nbatch >= TX_BURST)))
			return;
	}
}

void
__crpc_udrpc_tx_run(struct crpc_udrpc *ctx)
{
	struct crpc_udrpc_ep *ep, *last = TAILQ_LAST(&ctx->sending, ep_list);

	while ((ep = TAILQ_FIRST(&ctx->sending)) != NULL) {
		TAILQ_REMOVE(&ctx->sending, ep, sending);
		ep->in_sending = false;
		if (crpc_unlikely(ep->bye))
			__crpc_udrpc_tx_bye(ep);
		if (ep->err == 0) {
			unsent_send(ep);
			if (!ep->paced || ctx->now_ns >= ep->next_tx_ns)
				wanted_send(ep);
			if (!TAILQ_EMPTY(&ep->unsent) || !TAILQ_EMPTY(&ep->want))
				tx_want(ep);
		}
		if (ep == last)
			return;
	}
}

bool
__crpc_udrpc_tx_short(
	struct crpc_udrpc_ep *ep, enum wire_type type, uint16_t slot, uint32_t req, uint16_t pkt)
{
	struct wire_pkt *h = tx_put(ep, NULL, 0);

	if (h == NULL) {
		ep->ctx->stats.tx_full++;
		return false;
	}
	h->kind = WIRE_KIND(type);
	h->slot = slot;
	h->req = req;
	h->pkt = pkt;
	h->status = 0;
	h->len = 0;
	h->arg = 0;
	return true;
}

/* Have the next datagram that is put signalled. */
static void
signal_next(struct crpc_udrpc *ctx)
{
	ctx->unsignalled = ctx->signal_every;
}

bool
__crpc_udrpc_drained(struct crpc_udrpc_ep *ep, uint64_t seq)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (ctx->retired < seq && ctx->signalled < seq && tx_room(ctx)) {
		signal_next(ctx);
		if (__crpc_udrpc_tx_short(ep, WIRE_NOP, 0, 0, 0))
			ctx->stats.drains++;
	}
	return ctx->retired >= seq;
}

void
__crpc_udrpc_tx_bye(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;

	ep->bye = !tx_room(ctx);
	if (ep->bye) {
		tx_want(ep);
		return;
	}
	signal_next(ctx);
	__crpc_udrpc_tx_short(ep, WIRE_BYE, 0, 0, 0);
	__crpc_udrpc_tx_post(ctx);
}
