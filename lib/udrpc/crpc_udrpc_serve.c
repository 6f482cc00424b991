/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's side: pieces of requests, what recv() gives, replies and their pieces. It sends in
 * answer only and has no timer.
 */
#include "udrpc_pvt.h"

bool
__crpc_udrpc_resp_send(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint32_t pkt)
{
	struct wire_pkt *h = tx_put(ep, s->resp_buf + pkt * ep->piece,
		wire_piece(s->resp_len, ep->piece, pkt));

	if (h == NULL)
		return false;
	h->kind = wire_kind(WIRE_RESP);
	h->slot = s->index;
	h->req = s->req;
	h->pkt = (uint16_t)pkt;
	h->status = s->status;
	h->len = s->resp_len;
	h->arg = s->turn_ns;
	return true;
}

/* Answer a piece, for the first time or again. */
static void
req_answer(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint16_t pkt)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (pkt + 1u == s->parts && s->state == SERVE_DONE) {
		if (!__crpc_udrpc_resp_send(ep, s, 0))
			ctx->stats.tx_full++;
	} else if (__crpc_udrpc_tx_short(ep, WIRE_CR, s->index, s->req, pkt)) {
		ctx->stats.credit_returns++;
	}
}

static void
ready_push(struct crpc_udrpc *ctx, struct udrpc_serve *s)
{
	s->next = NULL;
	*ctx->ready_tail = s;
	ctx->ready_tail = &s->next;
}

/* The last piece has come. */
static void
req_whole(struct crpc_udrpc_ep *ep, struct udrpc_serve *s)
{
	s->state = SERVE_READY;
	s->whole_ns = ep->ctx->now_ns;
	ready_push(ep->ctx, s);
}

/* Whether the piece is one of the slot's request, or the first of its next; counts if not. */
static bool
req_begin(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, const struct wire_pkt *h, uint32_t parts)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;

	if (h->req == s->req && s->state != SERVE_IDLE) {
		if (h->len == s->len && h->arg == s->resp_max)
			return true;
		stats->rpc.malformed++;
		return false;
	}
	if (crpc_unlikely(h->req != s->req + 1)) {
		stats->stale++;
		return false;
	}
	/* a client that begins a request before the answer to the last one is none of ours */
	if (crpc_unlikely(s->state != SERVE_IDLE && s->state != SERVE_DONE)) {
		stats->rpc.malformed++;
		return false;
	}
	if (crpc_unlikely(h->pkt != 0)) {
		stats->out_of_order++;
		return false;
	}
	/* the reply of the last request has arrived, or there would be no new one */
	slot_clear(ep->owe, s->index);
	s->state = SERVE_PARTS;
	s->req = h->req;
	s->num_rx = 0;
	s->parts = parts;
	s->len = h->len;
	s->resp_max = h->arg;
	return true;
}

void
__crpc_udrpc_rx_req(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, const uint8_t *data,
	uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	uint32_t parts = wire_pkts(h->len, ep->piece);
	struct udrpc_serve *s;

	if (crpc_unlikely(h->slot >= ep->slots || h->len > ep->max_msg ||
		    (h->arg > ep->max_msg && h->arg != WIRE_ONEWAY) || h->pkt >= parts ||
		    bytes != wire_piece(h->len, ep->piece, h->pkt))) {
		stats->rpc.malformed++;
		return;
	}
	s = &ep->serves[h->slot];
	if (!req_begin(ep, s, h, parts))
		return;
	if (crpc_unlikely(h->pkt > s->num_rx)) {
		stats->out_of_order++;
		return;
	}
	if (crpc_unlikely(h->pkt < s->num_rx)) {
		stats->duplicates++;
		req_answer(ep, s, h->pkt);
		return;
	}
	rpc_copy(s->req_buf + h->pkt * ep->piece, data, bytes);
	s->num_rx++;
	if (crpc_likely(s->num_rx == parts))
		req_whole(ep, s);
	else
		req_answer(ep, s, h->pkt);
}

void
__crpc_udrpc_rx_rfr(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	struct udrpc_serve *s;

	if (h->slot >= ep->slots || bytes != 0) {
		stats->rpc.malformed++;
		return;
	}
	s = &ep->serves[h->slot];
	if (h->req != s->req || s->state != SERVE_DONE) {
		stats->stale++;
		return;
	}
	if (h->pkt == 0 || h->pkt >= wire_pkts(s->resp_len, ep->piece)) {
		stats->rpc.malformed++;
		return;
	}
	if (!__crpc_udrpc_resp_send(ep, s, h->pkt))
		stats->tx_full++;
}

void
__crpc_udrpc_ready_purge(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct udrpc_serve **at = &ctx->ready;

	while (*at != NULL) {
		if ((*at)->ep == ep) {
			(*at)->state = SERVE_IDLE;
			*at = (*at)->next;
		} else {
			at = &(*at)->next;
		}
	}
	ctx->ready_tail = at;
}

uint16_t
crpc_udrpc_recv(struct crpc_udrpc *ctx, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	struct udrpc_serve *s;
	uint16_t k;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	for (k = 0; k < n && (s = ctx->ready) != NULL; k++) {
		ctx->ready = s->next;
		s->state = SERVE_OPEN;
		s->token = ctx->next_token++ << (TOKEN_EP_BITS + TOKEN_SLOT_BITS) |
			   (uint64_t)s->index << TOKEN_EP_BITS | s->ep->id;
		req[k] = (struct crpc_req){.token = s->token,
			.data = s->req_buf,
			.len = s->len,
			.peer = s->ep->user_id};
	}
	if (ctx->ready == NULL)
		ctx->ready_tail = &ctx->ready;
	ctx->stats.rpc.requests += k;
	return k;
}

/* The open request that a token names, or NULL. */
static struct udrpc_serve *
serve_of(const struct crpc_udrpc *ctx, uint64_t token)
{
	uint32_t id = token & (CRPC_UDRPC_EPS_MAX - 1);
	uint32_t slot = token >> TOKEN_EP_BITS & (CRPC_UDRPC_SLOTS_MAX - 1);
	struct udrpc_serve *s;

	if (id >= ctx->conf.max_eps || slot >= ctx->conf.slots)
		return NULL;
	s = &ctx->eps[id].serves[slot];
	return s->state == SERVE_OPEN && s->token == token ? s : NULL;
}

int64_t
crpc_udrpc_reply_max(const struct crpc_udrpc *ctx, uint64_t token)
{
	const struct udrpc_serve *s = serve_of(ctx, token);

	if (s == NULL)
		return -ENOENT;
	return s->resp_max != WIRE_ONEWAY ? (int64_t)s->resp_max : -EOPNOTSUPP;
}

/* End a request, and send the first piece of the answer. */
crpc_inline int
serve_end(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len,
	int32_t status, bool release)
{
	struct udrpc_serve *s = serve_of(ctx, token);
	uint64_t took;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	if (crpc_unlikely(s == NULL))
		return -ENOENT;
	if (crpc_unlikely(s->resp_max == WIRE_ONEWAY && !release))
		return -EOPNOTSUPP;
	if (crpc_unlikely(s->ep->err != 0)) {
		s->state = SERVE_IDLE;
		ctx->stats.rpc.replies++;
		return -ECONNRESET;
	}
	if (crpc_unlikely(len > s->resp_max))
		return -EMSGSIZE;
	rpc_copy(s->resp_buf, buf, len);
	took = now_ns - s->whole_ns;
	s->state = SERVE_DONE;
	s->resp_len = len;
	s->status = (uint16_t)-status;
	s->turn_ns = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
	ctx->stats.rpc.replies++;
	if (crpc_likely(__crpc_udrpc_resp_send(s->ep, s, 0)))
		return 0;
	slot_set(s->ep->owe, s->index);
	__crpc_udrpc_tx_want(s->ep);
	return 0;
}

int
crpc_udrpc_reply(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf,
	uint32_t len)
{
	return serve_end(ctx, now_ns, token, buf, len, 0, false);
}

int
crpc_udrpc_fail(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status)
{
	if (status >= 0 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	return serve_end(ctx, now_ns, token, NULL, 0, status, false);
}

int
crpc_udrpc_release(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token)
{
	return serve_end(ctx, now_ns, token, NULL, 0, 0, true);
}
