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
		n = crpc_rdma_ud_post(ctx->ud, ctx->batch, n);
	ctx->stats.bursts += n != 0;
	ctx->stats.packets_sent += n;
	ctx->nbatch -= n;
	if (crpc_unlikely(ctx->nbatch != 0) && n != 0)
		memmove(ctx->batch, ctx->batch + n, ctx->nbatch * sizeof(ctx->batch[0]));
}

void
__crpc_udrpc_tx_want(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (ep->in_tx)
		return;
	ep->in_tx = true;
	ep->tx_next = NULL;
	*ctx->tx_tail = ep;
	ctx->tx_tail = &ep->tx_next;
}

/* Replies first: they wait for nothing but room. */
static void
owed_send(struct crpc_udrpc_ep *ep)
{
	uint32_t i;

	while ((i = slot_first(ep->owe)) != CRPC_UDRPC_SLOTS_MAX) {
		if (!__crpc_udrpc_resp_send(ep, &ep->serves[i], 0))
			return;
		slot_clear(ep->owe, i);
	}
}

/* From the call that was short of credits or room, once around: so none waits for ever. */
static void
wanted_send(struct crpc_udrpc_ep *ep)
{
	uint32_t first = ep->turn / 64, k, w, i;
	uint64_t from = UINT64_MAX << ep->turn % 64, left;

	for (k = 0; k <= SLOT_WORDS; k++) {
		w = (first + k) % SLOT_WORDS;
		left = ep->want[w];
		if (k == 0)
			left &= from;
		else if (k == SLOT_WORDS)
			left &= ~from;
		for (; left != 0; left &= left - 1) {
			i = w * 64 + (uint32_t)__builtin_ctzll(left);
			if (!__crpc_udrpc_call_send(ep, call_at(ep, i))) {
				slot_clear(ep->want, i);
			} else if (ep->credits == 0 || ep->ctx->nbatch >= TX_BURST) {
				ep->turn = i;
				return;
			}
		}
	}
}

void
__crpc_udrpc_tx_run(struct crpc_udrpc *ctx)
{
	struct crpc_udrpc_ep *ep = ctx->tx_list, *next;

	ctx->tx_list = NULL;
	ctx->tx_tail = &ctx->tx_list;
	for (; ep != NULL; ep = next) {
		next = ep->tx_next;
		ep->in_tx = false;
		if (crpc_unlikely(ep->bye))
			__crpc_udrpc_tx_bye(ep);
		if (!ep->live)
			continue;
		if (ep->err == 0)
			owed_send(ep);
		wanted_send(ep);
		/* who is held back by its rate comes back by the wheel */
		if (!slot_none(ep->owe) || (!slot_none(ep->want) && ep->pace.at == NULL))
			__crpc_udrpc_tx_want(ep);
	}
}

bool
__crpc_udrpc_tx_short(struct crpc_udrpc_ep *ep, enum wire_type type, uint16_t slot, uint32_t req,
	uint16_t pkt)
{
	struct wire_pkt *h = tx_put(ep, NULL, 0);

	if (h == NULL) {
		ep->ctx->stats.tx_full++;
		return false;
	}
	h->kind = wire_kind(type);
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

void
__crpc_udrpc_drain(struct crpc_udrpc_ep *ep, uint64_t seq)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (ctx->retired >= seq || ctx->signalled >= seq || !tx_room(ctx))
		return;
	signal_next(ctx);
	if (__crpc_udrpc_tx_short(ep, WIRE_NOP, 0, 0, 0))
		ctx->stats.drains++;
}

void
__crpc_udrpc_tx_bye(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;

	ep->bye = !tx_room(ctx);
	if (ep->bye) {
		__crpc_udrpc_tx_want(ep);
		return;
	}
	signal_next(ctx);
	__crpc_udrpc_tx_short(ep, WIRE_BYE, 0, 0, 0);
	__crpc_udrpc_tx_post(ctx);
}
