/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The caller's side of sending: call slots, reservations, requests.
 */
#include "copyrpc_lane.h"

/* Room in the request lane. Takes nothing. */
static int
request_place(struct crpc_copyrpc_ep *ep, uint32_t stride, struct place *p)
{
	if (ep->err != 0)
		return ep->err;
	*p = lane_place(ep, &ep->tx[WIRE_REQ], stride);
	if (!place_in_window(ep, p)) {
		ep->ctx->stats.again_window++;
		if (ep->flow == CRPC_COPYRPC_FLOW_READ) {
			ep->want_read = true;
			ep_mark_dirty(ep);
		}
		return -EAGAIN;
	}
	return 0;
}

/* Areas that a call needs. */
static uint32_t
call_areas(const struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max)
{
	return (len > ep->max_msg ? CALL_LARGE_REQ : 0) |
	       (resp_max > ep->max_msg ? CALL_LARGE_RESP : 0);
}

/* A slot, room for the reply and room for the request. Takes nothing. */
static int
call_place(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, struct place *p)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;

	if (ep->err != 0)
		return ep->err;
	if (crpc_max(len, resp_max) > crpc_max(ep->max_msg, ep->large.max))
		return -EMSGSIZE;
	if (ep->large.taken & call_areas(ep, len, resp_max)) {
		stats->again_large++;
		return -EAGAIN;
	}
	if (ep->free == NULL) {
		stats->again_inflight++;
		return -EAGAIN;
	}
	if (!__crpc_copyrpc_room_fits(&ep->resv, ep_worst(ep, resp_max), ep->ring_size)) {
		stats->again_reply++;
		return -EAGAIN;
	}
	/* a large request asks for its place when its fragments are on their way */
	return len > ep->max_msg ? 0 : request_place(ep, (uint32_t)wire_stride(len), p);
}

/* Take a call slot for a request of the newest batch. */
static inline struct call_slot *
slot_take(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	struct call_slot *slot = ep->free;

	ep->free = slot->next;
	slot->cookie = cookie;
	slot->call_ns = now_ns;
	slot->kind = ep->kind;
	ep->calls++;
	return slot;
}

/* Take a slot and room for the reply, of a kind that need not be that of the call before. */
static struct call_slot *
kind_take(struct crpc_copyrpc_ep *ep, uint32_t resp_max, uint64_t now_ns, uint64_t cookie)
{
	ep->kind.resp_max = resp_max;
	ep->kind_worst = ep_worst(ep, resp_max);
	ep->resv.left -= ep->kind_worst;
	return slot_take(ep, now_ns, cookie);
}

/* The call takes areas. Nothing that follows may be taken for a call of its kind. */
static void
area_take(struct crpc_copyrpc_ep *ep, struct call_slot *slot, uint32_t areas)
{
	slot->large = areas;
	ep->large.taken |= areas;
	kind_forget(ep);
}

/* Take what call_place() found. */
static uint8_t *
call_put(struct crpc_copyrpc_ep *ep, const struct place *p, uint32_t len, uint32_t resp_max,
		uint64_t now_ns, uint64_t cookie)
{
	struct call_slot *slot;

	__crpc_copyrpc_lane_put(
		ep, &ep->tx[WIRE_REQ], p, (uint32_t)wire_stride(len), 0, now_ns);
	slot = kind_take(ep, resp_max, now_ns, cookie);
	if (resp_max > ep->max_msg)
		area_take(ep, slot, CALL_LARGE_RESP);
	return msg_put(p->at, slot->id, len, resp_max, 0);
}

/* Take a slot for a large request that lies in its area; its fragments go with the next flushes. */
static void
call_put_large(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, uint64_t now_ns,
		uint64_t cookie)
{
	struct call_slot *slot = kind_take(ep, resp_max, now_ns, cookie);
	const struct large_tx tx = {.len = len, .id = slot->id, .arg = resp_max};

	slot->kind.batch ^= BATCH_LARGE;
	area_take(ep, slot, call_areas(ep, len, resp_max));
	__crpc_copyrpc_large_start(ep, WIRE_REQ, &tx, now_ns);
}

static int call_long(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie);

/* A call that opens a batch, is of another kind than the one before, has to wait, or is refused. */
static crpc_noinline int
call_slow(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie)
{
	size_t worst = ep_worst(ep, resp_max);
	struct place p;
	int rc;

	if (resp_max != ep->kind.resp_max && resp_max <= ep->max_msg &&
			__crpc_copyrpc_room_fits(&ep->resv, worst, ep->ring_size)) {
		/* of another kind, and maybe no more: it may go on in the open batch */
		ep->kind.resp_max = resp_max;
		ep->kind_worst = worst;
		return call_long(ep, now_ns, buf, len, resp_max, cookie);
	}
	rc = call_place(ep, len, resp_max, &p);
	if (rc != 0)
		return rc;
	if (len > ep->max_msg) {
		memcpy(__crpc_copyrpc_large_area(ep, LARGE_TX_REQ), buf, len);
		call_put_large(ep, len, resp_max, now_ns, cookie);
		return 0;
	}
	data_put(call_put(ep, &p, len, resp_max, now_ns, cookie), buf, len, false);
	__crpc_copyrpc_ep_queued(ep, &ep->tx[WIRE_REQ], now_ns);
	return 0;
}

static inline int
call_any(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie, bool is_short)
{
	struct tx_lane *lane = &ep->tx[WIRE_REQ];
	uint8_t *at = lane->next, *end = at + msg_stride(len, is_short);
	struct call_slot *slot;
	uint64_t left;

	/* a call like the one before needs no more than a slot, and room for its reply */
	if (crpc_unlikely(end > lane->limit || resp_max != ep->kind.resp_max || ep->free == NULL ||
			    __builtin_sub_overflow(ep->resv.left, ep->kind_worst, &left) ||
			    (!is_short && len > ep->max_msg)))
		return call_slow(ep, now_ns, buf, len, resp_max, cookie);
	ep->resv.left = left;
	lane_append(lane, end);
	slot = slot_take(ep, now_ns, cookie);
	data_put(msg_put(at, slot->id, len, resp_max, 0), buf, len, is_short);
	return 0;
}

/* A call whose data is not short. */
static crpc_noinline int
call_long(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie)
{
	return call_any(ep, now_ns, buf, len, resp_max, cookie, false);
}

int
crpc_copyrpc_call(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie)
{
	copyrpc_owner_check(ep->ctx);
	if (crpc_unlikely(!data_is_short(len)))
		return call_long(ep, now_ns, buf, len, resp_max, cookie);
	return call_any(ep, now_ns, buf, len, resp_max, cookie, true);
}

int
crpc_copyrpc_call_reserve(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, void **data)
{
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_place(ep, len, resp_max, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	ep->put_len = len;
	ep->put_resp_max = resp_max;
	*data = len > ep->max_msg ? __crpc_copyrpc_large_area(ep, LARGE_TX_REQ)
				  : p.at + sizeof(struct wire_msg);
	return 0;
}

void
crpc_copyrpc_call_commit(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	struct tx_lane *lane = &ep->tx[WIRE_REQ];
	struct place p;

	if (ep->put_len > ep->max_msg) {
		call_put_large(ep, ep->put_len, ep->put_resp_max, now_ns, cookie);
		return;
	}
	/* as call_reserve found it */
	p = lane_place(ep, lane, (uint32_t)wire_stride(ep->put_len));
	call_put(ep, &p, ep->put_len, ep->put_resp_max, now_ns, cookie);
	__crpc_copyrpc_ep_queued(ep, lane, now_ns);
}

int
crpc_copyrpc_send(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	struct tx_lane *lane = &ep->tx[WIRE_REQ];
	uint8_t *at = lane->next, *end = at + wire_stride(len);
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	ep->ctx->stats.sends++;
	if (crpc_likely(end <= lane->limit && len <= ep->max_msg)) {
		lane_append(lane, end);
		data_put(msg_put(at, 0, len, WIRE_ONEWAY, 0), buf, len, false);
		return 0;
	}
	rc = ep->err == 0 && len > ep->max_msg
			? -EMSGSIZE
			: request_place(ep, (uint32_t)wire_stride(len), &p);
	if (rc != 0) {
		ep->ctx->stats.sends--;
		return rc;
	}
	__crpc_copyrpc_lane_put(ep, lane, &p, (uint32_t)wire_stride(len), 0, now_ns);
	data_put(msg_put(p.at, 0, len, WIRE_ONEWAY, 0), buf, len, false);
	__crpc_copyrpc_ep_queued(ep, lane, now_ns);
	return 0;
}

uint32_t
crpc_copyrpc_cancel(struct crpc_copyrpc_ep *ep, uint64_t cookie)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct call_slot *slot;
	uint32_t i, found = 0;

	copyrpc_owner_check(ctx);
	if (ep->err != 0)
		return 0; /* they end with the endpoint's error anyway */
	for (i = 1; i <= ctx->conf.max_inflight; i++) {
		slot = &ep->slots[i];
		if (!slot_is_open(slot) || slot->cookie != cookie ||
				slot->call_ns == SLOT_CANCELED)
			continue;
		slot->call_ns = SLOT_CANCELED;
		found++;
	}
	if (found != 0)
		__crpc_copyrpc_sweep_ask(ctx);
	return found;
}
