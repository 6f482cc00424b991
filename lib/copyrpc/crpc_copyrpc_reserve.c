/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls and replies that do not just continue the open batch, replies in two halves (reserve and
 * commit), notifications, errors, releases.
 */
#include "copyrpc_conn.h"
#include "copyrpc_large.h"
#include "rpc_copy.h"

static int
again(struct crpc_copyrpc_ep *ep, uint64_t *cause)
{
	ep->ctx->stats.rpc.again++;
	(*cause)++;
	return -EAGAIN;
}

/* Where a message goes. Takes nothing. */
static int
place_find(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint32_t len, struct place *p)
{
	struct tx_lane *lane = &ep->tx[which];

	*p = (struct place){.pos = lane_prod(lane), .stride = (uint32_t)wire_stride(len)};
	return lane->next + p->stride <= lane->limit ? 0 : __crpc_copyrpc_lane_find(ep, which, p);
}

static void *
place_data(const struct crpc_copyrpc_ep *ep, enum wire_lane which, const struct place *p)
{
	return lane_at(ep, &ep->tx[which], p->pos) + sizeof(struct wire_msg);
}

/* Put a message whose data is in place, and send it if it is to go at once. */
static void
place_put(struct crpc_copyrpc_ep *ep, enum wire_lane which, const struct place *p,
	const struct wire_msg *msg, uint32_t resv, uint64_t now_ns)
{
	__crpc_copyrpc_lane_put(ep, which, p, msg, resv, now_ns);
	if (p->slow)
		__crpc_copyrpc_lane_queued(ep, which, now_ns);
}

/* A slot, room for the reply, a place for the request. Takes nothing. */
static int
call_find(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, struct place *p, void **data)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t worst;
	int rc;

	if (ep->err != 0)
		return ep_refusal(ep);
	if (crpc_max(len, resp_max) > ep->max_msg) {
		rc = __crpc_copyrpc_large_ask(ep, len, resp_max);
		if (rc != 0)
			return rc == -EAGAIN ? again(ep, &stats->again_large) : rc;
	}
	if (ep->calls.free == NULL)
		return again(ep, &stats->again_inflight);
	worst = ep_worst(ep, resp_max);
	if (!room_fits(&ep->resv, worst))
		return again(ep, &stats->again_reply);
	ep->last_resp_max = resp_max;
	ep->last_worst = resp_max <= ep->max_msg ? worst : UINT32_MAX;
	if (len > ep->max_msg) { /* it needs a place when its fragments are on their way */
		*data = __crpc_copyrpc_large_area(ep, LARGE_TX_REQ);
		return 0;
	}
	if (place_find(ep, WIRE_REQ, len, p) != 0)
		return again(ep, &stats->again_window);
	*data = place_data(ep, WIRE_REQ, p);
	return 0;
}

/* Take what call_find() found. */
static void
call_put(struct crpc_copyrpc_ep *ep, const struct place *p, uint32_t len, uint32_t resp_max,
	uint64_t now_ns, uint64_t cookie)
{
	struct wire_msg msg = {.len = len, .arg = resp_max};
	struct call_slot *slot = call_take(ep, now_ns, resp_max, ep_worst(ep, resp_max), cookie);

	msg.id = slot->call.id;
	if (crpc_max(len, resp_max) > ep->max_msg)
		__crpc_copyrpc_large_call(ep, slot, &msg, now_ns);
	if (len > ep->max_msg)
		return;
	slot->batch += p->opens; /* the one that this message opens */
	place_put(ep, WIRE_REQ, p, &msg, 0, now_ns);
}

crpc_noinline int
__crpc_copyrpc_call_slow(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct place p;
	void *data;
	int rc = call_find(ep, len, resp_max, &p, &data);

	if (rc != 0)
		return rc;
	rpc_copy(data, buf, len);
	call_put(ep, &p, len, resp_max, now_ns, cookie);
	return 0;
}

int
crpc_copyrpc_notify(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	const struct wire_msg msg = {.len = len, .arg = WIRE_ONEWAY};
	struct place p;

	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	if (ep->err != 0)
		return ep_refusal(ep);
	if (len > ep->max_msg)
		return -EMSGSIZE;
	if (place_find(ep, WIRE_REQ, len, &p) != 0)
		return again(ep, &ep->ctx->stats.again_window);
	rpc_copy(place_data(ep, WIRE_REQ, &p), buf, len);
	place_put(ep, WIRE_REQ, &p, &msg, 0, now_ns);
	ep->ctx->stats.rpc.notifies++;
	return 0;
}

/* A request of a broken endpoint ends. No flush looks at that. */
static int
req_end_broken(struct crpc_copyrpc_ep *ep, struct req_entry *req)
{
	req_end(ep->ctx, req);
	__crpc_copyrpc_release(ep, 0);
	return -ECONNRESET;
}

/* A place for the reply to an open request. Takes nothing, but ends one of a broken endpoint. */
static int
reply_find(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint32_t len, struct place *p,
	void **data)
{
	if (req->reply_end == 0)
		return -EOPNOTSUPP;
	if (ep->err != 0)
		return req_end_broken(ep, req);
	if (len <= crpc_min(req->reply_end - 1, ep->max_msg)) {
		place_find(ep, WIRE_RESP, len, p);
		*data = place_data(ep, WIRE_RESP, p);
		return 0;
	}
	if (len > __crpc_copyrpc_large_reply_max(ep, req))
		return -EMSGSIZE;
	*data = __crpc_copyrpc_large_area(ep, LARGE_TX_RESP);
	return 0;
}

/* Take what reply_find() found, and end the request. */
static void
reply_put(struct crpc_copyrpc_ep *ep, struct req_entry *req, const struct place *p, uint32_t len,
	int32_t status, uint64_t now_ns)
{
	const struct wire_msg msg = {.id = req->id,
		.len = len,
		.arg = (uint32_t)status,
		.turn_ns = (uint32_t)now_ns - req->arrived};

	req_end(ep->ctx, req);
	if (len > ep->max_msg)
		__crpc_copyrpc_large_send(ep, WIRE_RESP, &msg, req->worst, now_ns);
	else
		place_put(ep, WIRE_RESP, p, &msg, req->worst, now_ns);
}

crpc_noinline int
__crpc_copyrpc_reply_slow(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint64_t now_ns,
	const void *buf, uint32_t len)
{
	struct place p;
	void *data;
	int rc = reply_find(ep, req, len, &p, &data);

	if (rc != 0)
		return rc;
	rpc_copy(data, buf, len);
	reply_put(ep, req, &p, len, 0, now_ns);
	return 0;
}

int
crpc_copyrpc_reply_reserve(
	struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, uint32_t len, void **data)
{
	struct place p;

	crpc_owner_check(&ctx->owner, "copyrpc context");
	ctx->put_req = token_find(ctx, token, &ctx->put_ep);
	ctx->put_len = len;
	return ctx->put_req == NULL ? -ENOENT
				    : reply_find(ctx->put_ep, ctx->put_req, len, &p, data);
}

/* The place is the same again: nothing of the context was called in between. */
void
crpc_copyrpc_reply_commit(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct place p;

	if (ctx->put_len <= ctx->put_ep->max_msg)
		place_find(ctx->put_ep, WIRE_RESP, ctx->put_len, &p);
	reply_put(ctx->put_ep, ctx->put_req, &p, ctx->put_len, 0, now_ns);
}

int
crpc_copyrpc_fail(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req = token_find(ctx, token, &ep);
	struct place p;
	void *data;
	int rc;

	crpc_owner_check(&ctx->owner, "copyrpc context");
	if (status >= 0 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	if (req == NULL)
		return -ENOENT;
	rc = reply_find(ep, req, 0, &p, &data);
	if (rc == 0)
		reply_put(ep, req, &p, 0, status, now_ns);
	return rc;
}

int
crpc_copyrpc_release(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req = token_find(ctx, token, &ep);

	if (req == NULL || req->reply_end != 0)
		return crpc_copyrpc_reply(ctx, now_ns, token, NULL, 0);
	crpc_owner_check(&ctx->owner, "copyrpc context");
	if (ep->err != 0)
		return req_end_broken(ep, req);
	req_end(ctx, req);
	__crpc_copyrpc_release(ep, now_ns); /* it may be long until the next flush */
	ep_list_add(ep, dirty);
	return 0;
}
