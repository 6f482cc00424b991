/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a packet may be. Any host can send one, with any bytes: here they are compared with the
 * state of this side, and what does not fit is counted and dropped. And packets that are no part of
 * a message of one packet that arrives once: repetitions, credits, pieces of responses, ends.
 */
#include "udrpc_pvt.h"

/* Counts a packet that does not fit. Returns nothing: NULL, or false. */
static crpc_noinline void *
dropped(uint64_t *counter)
{
	++*counter;
	return NULL;
}

/* ---- to the client ---- */

/* The call that a packet to slot and request answers; NULL, counted: none. */
static struct udrpc_call *
call_of(struct crpc_udrpc_ep *ep, const struct wire_pkt *h)
{
	struct udrpc_call *c;

	if (crpc_unlikely(h->slot >= ep->slots))
		return dropped(&ep->ctx->stats.rpc.malformed);
	c = call_at(ep, h->slot);
	if (crpc_unlikely(c->call.deadline_ns == RPC_FREE || c->req != h->req))
		return dropped(&ep->ctx->stats.stale);
	return c;
}

struct udrpc_call *
__crpc_udrpc_resp_check(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	struct udrpc_call *c = call_of(ep, h);
	uint32_t k;

	if (crpc_unlikely(c == NULL))
		return NULL;
	k = c->parts - 1 + h->pkt;
	if (h->len > c->resp_max || h->status > CRPC_ERRNO_MAX || (h->status != 0 && h->len != 0) ||
		h->pkt >= wire_pkts(h->len, ep->piece) ||
		bytes != wire_piece(h->len, ep->piece, h->pkt) ||
		(h->pkt != 0 && k < c->total && h->len != c->resp_len))
		return dropped(&stats->rpc.malformed);
	if (crpc_unlikely(k < c->num_rx || k >= c->num_hi))
		return dropped(&stats->stale);
	/* the first piece answers all of the request; those behind it come one by one */
	if (crpc_unlikely(h->pkt != 0 && k != c->num_rx))
		return dropped(&stats->out_of_order);
	return c;
}

/* The credit of a piece of a request comes home. */
static void
credit_take(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct udrpc_call *c = call_of(ep, h);
	struct crpc_udrpc *ctx = ep->ctx;
	uint32_t k = h->pkt;

	if (c == NULL)
		return;
	if (bytes != 0 || k >= c->parts)
		ctx->stats.rpc.malformed++;
	else if (k == c->parts - 1)
		return; /* the server has all of it and works: no credit, but a sign of life */
	else if (k < c->num_rx || k >= c->num_hi)
		ctx->stats.stale++;
	else
		answered(ep, c, k, 0);
}

/* ---- to the server ---- */

void
__crpc_udrpc_req_answer(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint16_t pkt)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (pkt + 1u == s->parts && s->state == SERVE_DONE) {
		if (!__crpc_udrpc_resp_send(ep, s, 0))
			ctx->stats.tx_full++;
	} else if (__crpc_udrpc_tx_short(ep, WIRE_CR, s->index, s->req, pkt)) {
		ctx->stats.credit_returns++;
	}
}

/* Whether the piece is one of the slot's request, or the first of its next; counts if not. */
static bool
req_begin(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, const struct wire_pkt *h, uint32_t parts)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;

	if (h->req == s->req && s->state != SERVE_IDLE) {
		if (h->len == s->len && h->arg == s->resp_max)
			return true;
		return dropped(&stats->rpc.malformed);
	}
	if (crpc_unlikely(h->req != s->req + 1))
		return dropped(&stats->stale);
	/* no correct client begins a request before the answer to its last one */
	if (crpc_unlikely(s->state != SERVE_IDLE && s->state != SERVE_DONE))
		return dropped(&stats->rpc.malformed);
	if (crpc_unlikely(h->pkt != 0))
		return dropped(&stats->out_of_order);
	/* the reply of the last request has arrived, or there would be no new one */
	if (s->unsent)
		TAILQ_REMOVE(&ep->unsent, s, list);
	s->unsent = false;
	s->state = SERVE_PARTS;
	s->req = h->req;
	s->num_rx = 0;
	s->parts = parts;
	s->len = h->len;
	s->resp_max = h->arg;
	return true;
}

struct udrpc_serve *
__crpc_udrpc_req_check(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	uint32_t parts = wire_pkts(h->len, ep->piece);
	struct udrpc_serve *s;

	if (crpc_unlikely(h->slot >= ep->slots || h->len > ep->max_msg ||
		    (h->arg > ep->max_msg && h->arg != WIRE_ONEWAY) || h->pkt >= parts ||
		    bytes != wire_piece(h->len, ep->piece, h->pkt)))
		return dropped(&stats->rpc.malformed);
	s = &ep->serves[h->slot];
	if (!req_begin(ep, s, h, parts))
		return NULL;
	if (crpc_likely(h->pkt == s->num_rx))
		return s;
	if (h->pkt > s->num_rx)
		return dropped(&stats->out_of_order);
	__crpc_udrpc_req_answer(ep, s, h->pkt);
	return dropped(&stats->duplicates);
}

/* The client asks for a piece of a response behind the first. */
static void
piece_send(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	struct udrpc_serve *s;

	if (h->slot >= ep->slots || bytes != 0) {
		stats->rpc.malformed++;
		return;
	}
	s = &ep->serves[h->slot];
	if (h->req != s->req || s->state != SERVE_DONE)
		stats->stale++;
	else if (h->pkt == 0 || h->pkt >= wire_pkts(s->resp_len, ep->piece))
		stats->rpc.malformed++;
	else if (!__crpc_udrpc_resp_send(ep, s, h->pkt))
		stats->tx_full++;
}

void
__crpc_udrpc_packet_other(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	switch (h->kind) {
	case WIRE_KIND(WIRE_CR):
		credit_take(ep, h, bytes);
		return;
	case WIRE_KIND(WIRE_RFR):
		piece_send(ep, h, bytes);
		return;
	case WIRE_KIND(WIRE_NOP):
		return;
	case WIRE_KIND(WIRE_BYE):
		ep->ctx->stats.ep_errors++;
		__crpc_udrpc_ep_break(ep, -ECONNRESET);
		return;
	default:
		ep->ctx->stats.rpc.malformed++;
	}
}
