/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The auditor and the dump: what copyrpc_pvt.h draws, recomputed from the tables and compared.
 */
#include <inttypes.h>

#include "copyrpc_pvt.h"

/* One rule. Names the endpoint, the rule, expected and found. */
static bool
rule(const struct crpc_copyrpc_ep *ep, const char *name, uint64_t expected, uint64_t found)
{
	if (expected == found)
		return true;
	crpc_err("audit: endpoint %u (peer %u): %s: expected %" PRIu64 ", found %" PRIu64, ep->id,
			ep->user_id, name, expected, found);
	return false;
}

static bool
rule_most(const struct crpc_copyrpc_ep *ep, const char *name, uint64_t most, uint64_t found)
{
	return rule(ep, name, found <= most ? found : most, found);
}

/* Call slots: states, free list, and the sum of what they reserve. */
static bool
calls_check(const struct crpc_copyrpc_ep *ep)
{
	uint32_t usable = ep->ctx->conf.max_inflight, used = 0, open = 0, listed = 0, i;
	const struct call_slot *slot;
	uint64_t sum = ep->hold;

	for (i = 0; i <= ep->ctx->slot_mask; i++) {
		slot = &ep->slots[i];
		open += slot_is_open(slot);
		if (slot->call_ns == SLOT_FREE)
			continue;
		used++;
		sum += ep_worst(ep, slot->kind.resp_max);
	}
	if (!rule(ep, "open calls", open, ep_open(ep)))
		return false;
	if (!rule_most(ep, "room left for replies", ep->ring_size, ep->resv.left) ||
			!rule_most(ep, "room left for owed", ep->ring_size, ep->owed.left) ||
			!rule(ep, "bytes reserved for replies", sum,
					room_sum(&ep->resv, ep->ring_size)))
		return false;
	for (slot = ep->free; slot != NULL && listed <= usable; slot = slot->next)
		listed++;
	return rule(ep, "free call slots in the list", usable - used, listed);
}

/* Lanes we send: positions in order, pending batches side by side, inside the window. */
static bool
lanes_check(const struct crpc_copyrpc_ep *ep)
{
	const struct tx_lane *lane;
	uint64_t pos, most;
	uint32_t l, i, len;
	bool last;

	for (l = 0; l < WIRE_LANES; l++) {
		lane = &ep->tx[l];
		if (!rule_most(ep, "pending batches", 2, lane->npend) ||
				!rule_most(ep, "queued bytes of a lane", ep->ring_size,
						lane_queued(lane)))
			return false;
		for (pos = lane->sent, i = 0; i < lane->npend; i++) {
			len = i + 1 == lane->npend ? (uint32_t)(lane_prod(lane) - lane->pend[i].pos)
						   : lane->pend[i].len;
			last = i + 1 == lane->npend;
			pos = wire_batch_pos(pos, len + (last ? ep->trailer : 0), ep->ring_size);
			if (!rule(ep, "position of a pending batch", pos, lane->pend[i].pos))
				return false;
			pos += len;
		}
		most = lane->npend == 0 ? 0 : ep->ring_size - (pos & (ep->ring_size - 1));
		if (l == WIRE_REQ)
			most = crpc_min(
				most, ep->ring_size - (lane_prod(lane) - ep->peer_released));
		if (lane->limit != NULL &&
				!rule_most(ep, "room of the open batch", most,
						(uint64_t)(lane->limit - lane->next)))
			return false;
		if (ep->err == 0 && !rule(ep, "end of the pending batches", pos, lane_prod(lane)))
			return false;
	}
	return rule_most(ep, "request window", ep->ring_size,
			lane_prod(&ep->tx[WIRE_REQ]) - ep->peer_released);
}

/* Requests: counters in order, released position and owed replies as the table says. */
static bool
requests_check(const struct crpc_copyrpc_ep *ep)
{
	const struct tx_lane *lane = &ep->tx[WIRE_RESP];
	const struct req_entry *req;
	uint64_t i, owed = 0;

	if (!rule_most(ep, "requests in the table", ep->req_mask + 1,
			    ep->req_tail - ep->req_head) ||
			!rule_most(ep, "requests open", ep->req_tail - ep->req_head,
					ep->req_next - ep->req_head) ||
			!rule_most(ep, "bytes held of the request ring", ep->ring_size,
					ep->rx_pos[WIRE_REQ] - ep->released) ||
			!rule_most(ep, "bytes released and not told", ep->ring_size,
					ep->released - ep->told))
		return false;
	for (i = 0; i < lane->npend; i++)
		owed += i + 1 == lane->npend ? lane->owed : lane->pend[i].owed;
	for (i = ep->req_head; i != ep->req_tail; i++) {
		req = &ep->reqs[i & ep->req_mask];
		if (i >= ep->req_next || !req_is_done(req))
			owed += req->worst;
		if (i < ep->req_next && !req_is_done(req) &&
				!rule(ep, "token of an open request", token_make(ep->id, i),
						req->token))
			return false;
	}
	owed += ep->large.tx[WIRE_RESP].owed;
	return ep->err != 0 ||
	       rule(ep, "bytes owed as replies", owed, room_sum(&ep->owed, ep->ring_size));
}

static bool
rest_check(const struct crpc_copyrpc_ep *ep)
{
	if (ep->err != 0)
		return rule(ep, "open calls at rest", 0, ep_open(ep));
	return rule(ep, "pending at rest", 0, ep_pending(ep)) &&
	       /* fewer than there may be give no completion */
	       rule(ep, "flushes outstanding at rest are too many", 0,
		       ep_outstanding(ep) != 0 &&
			       ep_outstanding(ep) >= ep->ctx->conf.max_outstanding) &&
	       rule(ep, "open calls at rest", 0, ep_open(ep)) &&
	       rule(ep, "open requests at rest", ep->req_tail, ep->req_head) &&
	       rule(ep, "released at rest", ep->rx_pos[WIRE_REQ], ep->released) &&
	       rule(ep, "told at rest", ep->released, ep->told) &&
	       (ep->flow == CRPC_COPYRPC_FLOW_READ ||
			       rule(ep, "peer's released at rest", ep->tx[WIRE_REQ].sent,
					       ep->peer_released)) &&
	       rule(ep, "gets and puts at rest", ep->op_tail, ep->op_head) &&
	       rule(ep, "large messages at rest", 0,
			       (ep->large.taken & ~ep->large.held) | ep->large.served |
					       ep_large_sending(ep)) &&
	       rule(ep, "replies owed at rest", 0, room_sum(&ep->owed, ep->ring_size)) &&
	       rule(ep, "replies reserved at rest", ep->hold, room_sum(&ep->resv, ep->ring_size));
}

/* A list of endpoints holds exactly those that carry its flag. */
static int
list_check(const struct crpc_copyrpc *ctx, const struct ep_list *list, size_t next_at,
		uint32_t flag, const char *name)
{
	uint32_t flagged = 0, listed = 0, i;
	uint16_t id = list->head;

	for (i = 0; i < ctx->conf.max_eps; i++)
		flagged += ctx->eps[i] != NULL && (ctx->eps[i]->flags & flag);
	for (; listed < list->n && id < ctx->conf.max_eps && ctx->eps[id] != NULL; listed++)
		id = *(const uint16_t *)((const char *)ctx->eps[id] + next_at);
	if (listed == list->n && flagged == list->n)
		return 0;
	crpc_err("audit: list of %s endpoints: expected %u, found %u linked, %u flagged", name,
			list->n, listed, flagged);
	return -EFAULT;
}

int
crpc_copyrpc_check(const struct crpc_copyrpc *ctx, bool at_rest)
{
	const struct crpc_copyrpc_ep *ep;
	uint32_t i;

	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = ctx->eps[i];
		if (ep == NULL)
			continue;
		if (!calls_check(ep) || !lanes_check(ep) || !requests_check(ep) ||
				(at_rest && !rest_check(ep)))
			return -EFAULT;
		if (ep->err == 0 && (ep_pending(ep) || ep->told != ep->released) &&
				!rule(ep, "dirty flag", EP_DIRTY, ep->flags & EP_DIRTY))
			return -EFAULT;
	}
	if (list_check(ctx, &ctx->dirty, offsetof(struct crpc_copyrpc_ep, dirty_next), EP_DIRTY,
			    "dirty") ||
			list_check(ctx, &ctx->ready, offsetof(struct crpc_copyrpc_ep, ready_next),
					EP_READY, "ready"))
		return -EFAULT;
	return list_check(ctx, &ctx->broken, offsetof(struct crpc_copyrpc_ep, broken_next),
			EP_BROKEN, "broken");
}

void
crpc_copyrpc_ep_positions(const struct crpc_copyrpc_ep *ep, struct crpc_copyrpc_positions *p)
{
	*p = (struct crpc_copyrpc_positions){
		.requests_queued = lane_prod(&ep->tx[WIRE_REQ]),
		.requests_sent = ep->tx[WIRE_REQ].sent,
		.requests_released_by_peer = ep->peer_released,
		.responses_sent = ep->tx[WIRE_RESP].sent,
		.requests_arrived = ep->rx_pos[WIRE_REQ],
		.requests_released = ep->released,
		.released_told = ep->told,
		.responses_arrived = ep->rx_pos[WIRE_RESP],
		.reply_room_reserved = room_sum(&ep->resv, ep->ring_size) - ep->hold,
		.reply_room_owed = room_sum(&ep->owed, ep->ring_size),
	};
}

/* One rule of a pair. */
static bool
pair_rule(const char *name, uint64_t expected, uint64_t found)
{
	if (expected == found)
		return true;
	crpc_err("audit of both ends: %s: expected %" PRIu64 ", found %" PRIu64, name, expected,
			found);
	return false;
}

/* What one end sent is what the other one has, and its room is back. */
static bool
half_match(const struct crpc_copyrpc_positions *a, const struct crpc_copyrpc_positions *b,
		enum crpc_copyrpc_flow flow)
{
	return pair_rule("requests queued and sent", a->requests_queued, a->requests_sent) &&
		pair_rule("requests sent and arrived", a->requests_sent, b->requests_arrived) &&
		pair_rule("requests arrived and released", b->requests_arrived,
			b->requests_released) &&
		pair_rule("requests released and told", b->requests_released, b->released_told) &&
		(flow == CRPC_COPYRPC_FLOW_READ
				? pair_rule("order of released and known", 1,
					  b->requests_released >= a->requests_released_by_peer)
				: pair_rule("requests released and known", b->requests_released,
					  a->requests_released_by_peer)) &&
		pair_rule("responses sent and arrived", a->responses_sent, b->responses_arrived) &&
		pair_rule("reply room reserved", 0, a->reply_room_reserved) &&
		pair_rule("reply room owed", 0, a->reply_room_owed);
}

int
crpc_copyrpc_positions_match(const struct crpc_copyrpc_positions *ours,
		const struct crpc_copyrpc_positions *theirs, enum crpc_copyrpc_flow flow)
{
	return half_match(ours, theirs, flow) && half_match(theirs, ours, flow) ? 0 : -EFAULT;
}

int
crpc_copyrpc_dump(const struct crpc_copyrpc *ctx, FILE *out)
{
	const struct crpc_copyrpc_ep *ep;
	uint32_t i;

	fprintf(out, "context: endpoints %u, dirty %u, ready %u, broken %u\n", ctx->neps,
			ctx->dirty.n, ctx->ready.n, ctx->broken.n);
	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = ctx->eps[i];
		if (ep == NULL)
			continue;
		fprintf(out, "endpoint %u: peer %u, status %d, epoch %u, ring %u, open calls %u\n",
			ep->id, ep->user_id, ep->err, ep->epoch, ep->ring_size, ep_open(ep));
		fprintf(out,
			"  send requests: released by peer %" PRIu64 ", sent %" PRIu64
			", queued to %" PRIu64 " in %u batches\n",
			ep->peer_released, ep->tx[WIRE_REQ].sent, lane_prod(&ep->tx[WIRE_REQ]),
			ep->tx[WIRE_REQ].npend);
		fprintf(out,
				"  send responses: sent %" PRIu64 ", queued to %" PRIu64
				" in %u batches; owed %u bytes\n",
				ep->tx[WIRE_RESP].sent, lane_prod(&ep->tx[WIRE_RESP]),
				ep->tx[WIRE_RESP].npend, room_sum(&ep->owed, ep->ring_size));
		fprintf(out,
				"  receive requests: told %" PRIu64 ", released %" PRIu64
				", arrived %" PRIu64 "; waiting %" PRIu64 ", open or held %" PRIu64
				"\n",
				ep->told, ep->released, ep->rx_pos[WIRE_REQ],
				ep->req_tail - ep->req_next, ep->req_next - ep->req_head);
		fprintf(out,
				"  receive responses: arrived %" PRIu64
				"; reserved %u bytes, largest %" PRIu64 "\n",
				ep->rx_pos[WIRE_RESP], room_sum(&ep->resv, ep->ring_size),
				ep->resv.max);
		fprintf(out,
				"  flushes outstanding %u, gets and puts open %u, flow %u%s, large "
				"areas taken %u by calls, %u by requests\n",
				ep_outstanding(ep), ep->op_tail - ep->op_head, ep->flow,
				ep->memory ? ", arrivals in memory" : "", ep->large.taken,
				ep->large.served);
	}
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}
