/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's side: requests in turns, tokens, replies, and requests that end without one.
 */
#include "copyrpc_lane.h"

/* Put the endpoint whose turn it was behind the others. */
static inline void
ready_next(struct crpc_copyrpc *ctx, struct crpc_copyrpc_ep *ep)
{
	ctx->ready.head = ep->ready_next;
	ctx->ready.n--;
	ep->flags &= ~EP_READY;
	if (ep->req_next != ep->req_tail)
		ep_mark_ready(ep);
}

/* Give the next requests of one endpoint, at most n. */
static inline uint16_t
recv_ep(struct crpc_copyrpc_ep *ep, struct crpc_req *req, uint16_t n)
{
	uint64_t token = token_make(ep->id, ep->req_next);
	struct req_entry *entry = &ep->reqs[ep->req_next & ep->req_mask];
	const struct req_entry *last = &ep->reqs[ep->req_mask];
	const struct crpc_req *end;
	uint32_t peer = ep->user_id;

	for (end = req + n; req != end; req++) {
		req->token = token;
		req->data = entry->data;
		req->len = entry->len;
		req->peer = peer;
		entry->token = token;
		entry = entry == last ? ep->reqs : entry + 1;
		token += 1u << TOKEN_EP_BITS; /* the caller stops before it wraps */
	}
	ep->req_next += n;
	ep->turn += n;
	return n;
}

uint16_t
crpc_copyrpc_recv(struct crpc_copyrpc *ctx, struct crpc_req *req, uint16_t n)
{
	struct crpc_copyrpc_ep *ep;
	uint64_t most;
	uint16_t k = 0;

	copyrpc_owner_check(ctx);
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	while (ctx->ready.n != 0 && k < n) {
		ep = ctx->eps[ctx->ready.head];
		most = crpc_min(RECV_TURN - ep->turn, ep->req_tail - ep->req_next);
		most = crpc_min(most, TOKEN_SERIALS - (ep->req_next & (TOKEN_SERIALS - 1)));
		k += recv_ep(ep, req + k, (uint16_t)crpc_min(most, (uint64_t)n - k));
		if (ep->turn == RECV_TURN || ep->req_next == ep->req_tail)
			ready_next(ctx, ep);
	}
	return k;
}

/* The open request of a token, or NULL. */
static inline struct req_entry *
token_find(const struct crpc_copyrpc *ctx, uint64_t token, struct crpc_copyrpc_ep **found)
{
	struct crpc_copyrpc_ep *ep = ctx->by_token[token & TOKEN_EP_MASK];
	struct req_entry *req;

	*found = ep;
	req = &ep->reqs[token >> TOKEN_EP_BITS & ep->req_mask];
	return crpc_likely(req->token == token) ? req : NULL;
}

/* The request ends. Its room goes back when the next flush looks at the endpoint. */
static inline void
req_end(struct req_entry *req)
{
	req->token = ~req->token;
}

/*
 * Whether a reply of len bytes may be put, and where. Has ended the request of a broken endpoint.
 */
static int
reply_place(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint32_t len, struct place *p)
{
	int err = ep->err;

	if (err != 0) {
		req_end(req);
		__crpc_copyrpc_ep_release(ep, 0);
		return err;
	}
	if (req->reply_end == 0)
		return -EOPNOTSUPP;
	if (len > ep->max_msg && req_is_large(ep, req) && len <= ep->large.reply_max)
		return 0; /* to its area, where there always is room */
	if (len >= req->reply_end)
		return -EMSGSIZE;
	*p = lane_place(ep, &ep->tx[WIRE_RESP], (uint32_t)wire_stride(len));
	return 0;
}

/* Write the head of a response and end its request. Returns where the data goes. */
static inline uint8_t *
reply_take(struct req_entry *req, uint8_t *at, uint32_t len, int32_t status, uint64_t now_ns)
{
	req_end(req);
	return msg_put(at, req->id, len, (uint32_t)status, (uint32_t)now_ns - req->arrived);
}

/* Take what reply_place() found. */
static uint8_t *
reply_put(struct crpc_copyrpc_ep *ep, struct req_entry *req, const struct place *p, uint32_t len,
		int32_t status, uint64_t now_ns)
{
	__crpc_copyrpc_lane_put(ep, &ep->tx[WIRE_RESP], p, (uint32_t)wire_stride(len), req->worst,
			now_ns);
	return reply_take(req, p->at, len, status, now_ns);
}

/* End a request with the large reply that lies in its area. */
static void
reply_put_large(
	struct crpc_copyrpc_ep *ep, struct req_entry *req, uint32_t len, uint64_t now_ns)
{
	const struct large_tx tx = {.len = len,
			.id = req->id,
			.turn_ns = (uint32_t)now_ns - req->arrived,
			.owed = req->worst};

	req_end(req);
	__crpc_copyrpc_large_start(ep, WIRE_RESP, &tx, now_ns);
}

/* A reply that opens a batch, is large, or is refused. */
static crpc_noinline int
reply_slow(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint64_t now_ns, const void *buf,
		uint32_t len)
{
	struct place p;
	int rc;

	rc = reply_place(ep, req, len, &p);
	if (rc != 0)
		return rc;
	if (len > ep->max_msg) {
		memcpy(__crpc_copyrpc_large_area(ep, LARGE_TX_RESP), buf, len);
		reply_put_large(ep, req, len, now_ns);
		return 0;
	}
	data_put(reply_put(ep, req, &p, len, 0, now_ns), buf, len, false);
	__crpc_copyrpc_ep_queued(ep, &ep->tx[WIRE_RESP], now_ns);
	return 0;
}

static inline int
reply_any(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len,
		bool is_short)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req;
	struct tx_lane *lane;
	uint8_t *at, *end;

	req = token_find(ctx, token, &ep);
	if (crpc_unlikely(req == NULL))
		return -ENOENT;
	lane = &ep->tx[WIRE_RESP];
	at = lane->next;
	end = at + msg_stride(len, is_short);
	if (crpc_unlikely(end > lane->limit || len >= req->reply_end))
		return reply_slow(ep, req, now_ns, buf, len);
	lane->next = end;
	lane->count++;
	lane->owed += req->worst;
	data_put(reply_take(req, at, len, 0, now_ns), buf, len, is_short);
	return 0;
}

/* A reply whose data is not short. */
static crpc_noinline int
reply_long(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	return reply_any(ctx, now_ns, token, buf, len, false);
}

int
crpc_copyrpc_reply(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf,
		uint32_t len)
{
	copyrpc_owner_check(ctx);
	if (crpc_unlikely(!data_is_short(len)))
		return reply_long(ctx, now_ns, token, buf, len);
	return reply_any(ctx, now_ns, token, buf, len, true);
}

int
crpc_copyrpc_reply_reserve(struct crpc_copyrpc *ctx, uint64_t token, uint32_t len, void **data)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req;
	struct place p;
	int rc;

	copyrpc_owner_check(ctx);
	req = token_find(ctx, token, &ep);
	if (crpc_unlikely(req == NULL))
		return -ENOENT;
	rc = reply_place(ep, req, len, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	ctx->put_ep = ep;
	ctx->put_req = req;
	ctx->put_len = len;
	*data = len > ep->max_msg ? __crpc_copyrpc_large_area(ep, LARGE_TX_RESP)
				  : p.at + sizeof(struct wire_msg);
	return 0;
}

void
crpc_copyrpc_reply_commit(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep = ctx->put_ep;
	struct tx_lane *lane = &ep->tx[WIRE_RESP];
	struct place p;

	if (ctx->put_len > ep->max_msg) {
		reply_put_large(ep, ctx->put_req, ctx->put_len, now_ns);
		return;
	}
	/* as reply_reserve found it */
	p = lane_place(ep, lane, (uint32_t)wire_stride(ctx->put_len));
	reply_put(ep, ctx->put_req, &p, ctx->put_len, 0, now_ns);
	__crpc_copyrpc_ep_queued(ep, lane, now_ns);
}

int
crpc_copyrpc_reject(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req;
	struct place p;
	int rc;

	copyrpc_owner_check(ctx);
	if (status >= 0 || status < WIRE_STATUS_MIN)
		return -EINVAL;
	req = token_find(ctx, token, &ep);
	if (crpc_unlikely(req == NULL))
		return -ENOENT;
	rc = reply_place(ep, req, 0, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	reply_put(ep, req, &p, 0, status, now_ns);
	__crpc_copyrpc_ep_queued(ep, &ep->tx[WIRE_RESP], now_ns);
	return 0;
}

int
crpc_copyrpc_release(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req;

	copyrpc_owner_check(ctx);
	req = token_find(ctx, token, &ep);
	if (crpc_unlikely(req == NULL))
		return -ENOENT;
	if (req->reply_end != 0)
		return crpc_copyrpc_reject(ctx, now_ns, token, -ECANCELED);
	req_end(req);
	__crpc_copyrpc_ep_release(ep, now_ns); /* it may be long until the next flush */
	ep_mark_dirty(ep); /* of a broken one, the next flush takes it out again */
	return ep->err;
}

int64_t
crpc_copyrpc_reply_max(const struct crpc_copyrpc *ctx, uint64_t token)
{
	struct crpc_copyrpc_ep *ep;
	const struct req_entry *req = token_find(ctx, token, &ep);

	if (req == NULL)
		return -ENOENT;
	if (req_is_large(ep, req))
		return ep->large.reply_max;
	return req->reply_end == 0 ? -EOPNOTSUPP : (int64_t)req->reply_end - 1;
}
