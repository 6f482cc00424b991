/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: messages are appended to a batch in the staging ring, and batches are posted when the flush
 * policy says so. Positions advance only for what the device took: a full send queue loses nothing.
 */
#include "copyrpc_pvt.h"

/** Where a message goes. */
struct place {
	uint64_t end;   /* position behind the message */
	uint8_t *at;    /* its head in the staging ring */
	uint64_t start; /* position of a new batch's head; UINT64_MAX: the open batch goes on */
};

#define NO_BATCH UINT64_MAX

/*
 * A batch never crosses the end of the ring. The open one goes on if the message fits before the end;
 * else a new batch starts, behind it or, skipping the tail, at the start of the ring. The receiver
 * derives the same from the batch's length (wire_batch_pos()): a new batch is at least as long as its first
 * message, and a batch that goes on never passes the end.
 */
static inline struct place
lane_place(const struct tx_lane *lane, uint32_t stride, uint32_t ring_size)
{
	uint32_t off = (uint32_t)lane->prod & (ring_size - 1);
	struct place p;

	if (lane->npend != 0 && off != 0 && stride <= ring_size - off) {
		p.start = NO_BATCH;
		p.end = lane->prod + stride;
		p.at = lane->stage + off;
		return p;
	}
	p.start = wire_batch_pos(lane->prod, WIRE_HEAD + stride, ring_size);
	p.end = p.start + WIRE_HEAD + stride;
	p.at = lane->stage + ((uint32_t)p.start & (ring_size - 1)) + WIRE_HEAD;
	return p;
}

/* Append the message to its batch. The data is written by the caller, behind the head. */
static inline void
lane_put(struct crpc_copyrpc_ep *ep, struct tx_lane *lane, const struct place *p, struct wire_msg msg,
	uint32_t owed, uint64_t now_ns)
{
	struct pending *batch;

	if (!ep_pending(ep))
		ep->queued_ns = now_ns;
	if (p->start != NO_BATCH) {
		batch = &lane->pend[lane->npend++];
		batch->pos = p->start;
		batch->count = 0;
		batch->owed = 0;
		if (p->start != lane->prod)
			ep->ctx->stats.wraps++;
	} else {
		batch = &lane->pend[lane->npend - 1];
	}
	memcpy(p->at, &msg, sizeof(msg));
	batch->count++;
	batch->owed += owed;
	batch->len = (uint32_t)(p->end - batch->pos);
	lane->prod = p->end;
	ep_mark_dirty(ep);
}

/* After a message was queued: what the policy sends without waiting for flush(). */
static inline void
ep_queued(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;

	if (crpc_likely(conf->flush != CRPC_COPYRPC_IMMEDIATE)) {
		if (crpc_likely(lane_queued(lane) < conf->batch_max))
			return;
		ep->ctx->stats.full_flushes++;
	}
	ep_post(ep, now_ns);
}

/* Room for a request and, with reply, for its answer. Takes nothing. */
static inline int
call_place(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, bool reply, struct place *p)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;

	if (crpc_unlikely(ep->err != 0))
		return ep->err;
	if (crpc_unlikely(len > ep->max_msg || resp_max > ep->max_msg))
		return -EMSGSIZE;
	if (reply) {
		ep_hold_end(ep);
		if (crpc_unlikely(ep->free_head == NIL)) {
			stats->again_inflight++;
			return -EAGAIN;
		}
		if (crpc_unlikely(!room_fits(&ep->resv, wire_worst(resp_max), ep->ring_size))) {
			stats->again_reply++;
			return -EAGAIN;
		}
	}
	*p = lane_place(&ep->tx[WIRE_REQ], wire_stride(len), ep->ring_size);
	if (crpc_unlikely(p->end - ep->peer_released > ep->ring_size)) {
		stats->again_window++;
		return -EAGAIN;
	}
	return 0;
}

/* Take a call slot and put the head of the request. */
static inline void
call_take(struct crpc_copyrpc_ep *ep, const struct place *p, uint32_t len, uint32_t resp_max,
	uint64_t now_ns, uint64_t cookie)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint16_t index = ep->free_head;
	struct call_slot *slot = &ep->slots[index];
	struct wire_msg msg = {.len = len, .arg = resp_max};

	ep->free_head = slot->next;
	slot->id += ctx->slot_mask + 1;
	if (crpc_unlikely(slot->id <= ctx->slot_mask))
		slot->id += ctx->slot_mask + 1; /* generation 0 is never used: id 0 is one-way */
	slot->cookie = cookie;
	slot->call_ns = now_ns;
	slot->resp_max = resp_max;
	slot->state = SLOT_QUEUED;
	slot->next = ep->queued_head;
	ep->queued_head = index;
	ep->used++;
	ep->open++;
	ctx->open++;
	room_add(&ep->resv, wire_worst(resp_max));
	ctx->stats.calls++;
	msg.id = slot->id;
	lane_put(ep, &ep->tx[WIRE_REQ], p, msg, 0, now_ns);
}

static inline void
copy_in(void *to, const void *from, uint32_t len)
{
	if (crpc_likely(len != 0))
		memcpy(to, from, len);
}

int
crpc_copyrpc_call(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_place(ep, len, resp_max, true, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	call_take(ep, &p, len, resp_max, now_ns, cookie);
	copy_in(p.at + sizeof(struct wire_msg), buf, len);
	ep_queued(ep, &ep->tx[WIRE_REQ], now_ns);
	return 0;
}

int
crpc_copyrpc_call_reserve(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, void **data)
{
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_place(ep, len, resp_max, true, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	ep->put_len = len;
	ep->put_resp_max = resp_max;
	*data = p.at + sizeof(struct wire_msg);
	return 0;
}

void
crpc_copyrpc_call_commit(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	struct tx_lane *lane = &ep->tx[WIRE_REQ];
	struct place p = lane_place(lane, wire_stride(ep->put_len), ep->ring_size);

	call_take(ep, &p, ep->put_len, ep->put_resp_max, now_ns, cookie);
	ep_queued(ep, lane, now_ns);
}

int
crpc_copyrpc_send(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	struct wire_msg msg = {.len = len};
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_place(ep, len, 0, false, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	lane_put(ep, &ep->tx[WIRE_REQ], &p, msg, 0, now_ns);
	copy_in(p.at + sizeof(struct wire_msg), buf, len);
	ep->ctx->stats.sends++;
	ep_queued(ep, &ep->tx[WIRE_REQ], now_ns);
	return 0;
}

/* The open request of a token, or NULL. */
static inline struct req_entry *
token_find(const struct crpc_copyrpc *ctx, uint64_t token, struct crpc_copyrpc_ep **found)
{
	uint64_t id = token >> TOKEN_EP_SHIFT;
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req;
	uint64_t behind;

	if (crpc_unlikely(id >= ctx->conf.max_eps))
		return NULL;
	ep = ctx->eps[id];
	if (crpc_unlikely(ep == NULL))
		return NULL;
	/* compared modulo 2^48, as the token holds the low bits of the request's number */
	behind = (token - ep->req_head) & ((UINT64_C(1) << TOKEN_EP_SHIFT) - 1);
	if (crpc_unlikely(behind >= ep->req_next - ep->req_head))
		return NULL;
	req = &ep->reqs[(ep->req_head + behind) & ep->req_mask];
	if (crpc_unlikely(req->state != REQ_OPEN))
		return NULL;
	*found = ep;
	return req;
}

/* A request ends: its room, and that of ended ones behind it, goes back to the peer. */
static inline void
req_end(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint64_t now_ns)
{
	uint64_t before = ep->released;

	req->state = REQ_DONE;
	while (ep->req_head != ep->req_next) {
		req = &ep->reqs[ep->req_head & ep->req_mask];
		if (req->state != REQ_DONE)
			break;
		ep->released += (uint32_t)(req->end - (uint32_t)ep->released);
		ep->req_head++;
	}
	if (ep->released == before || ep->err != 0)
		return;
	if (before == ep->told)
		ep->released_ns = now_ns;
	ep_mark_dirty(ep);
}

/* Queue the head of a response and end its request. */
static inline void
reply_take(struct crpc_copyrpc_ep *ep, struct req_entry *req, const struct place *p, uint32_t len,
	int32_t status, uint64_t now_ns)
{
	uint64_t turn = now_ns - req->arrived_ns;
	struct wire_msg msg = {.id = req->id, .len = len, .arg = (uint32_t)status};

	msg.turn_ns = turn > UINT32_MAX ? UINT32_MAX : (uint32_t)turn;
	lane_put(ep, &ep->tx[WIRE_RESP], p, msg, wire_worst(req->resp_max), now_ns);
	ep->ctx->stats.replies++;
	req_end(ep, req, now_ns);
}

/* Whether a reply of len bytes may be put, and where. Has ended the request of a broken endpoint. */
static inline int
reply_place(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint32_t len, struct place *p)
{
	if (crpc_unlikely(ep->err != 0)) {
		req_end(ep, req, 0);
		return ep->err;
	}
	if (crpc_unlikely(req->id == 0))
		return -EOPNOTSUPP;
	if (crpc_unlikely(len > req->resp_max))
		return -EMSGSIZE;
	*p = lane_place(&ep->tx[WIRE_RESP], wire_stride(len), ep->ring_size);
	return 0;
}

int
crpc_copyrpc_reply(
	struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
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
	copy_in(p.at + sizeof(struct wire_msg), buf, len);
	reply_take(ep, req, &p, len, 0, now_ns);
	ep_queued(ep, &ep->tx[WIRE_RESP], now_ns);
	return 0;
}

int
crpc_copyrpc_reply_reserve(
	struct crpc_copyrpc *ctx, uint64_t token, uint32_t len, void **data)
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
	ctx->put_req = (uint64_t)(req - ep->reqs);
	ctx->put_len = len;
	*data = p.at + sizeof(struct wire_msg);
	return 0;
}

void
crpc_copyrpc_reply_commit(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep = ctx->put_ep;
	struct tx_lane *lane = &ep->tx[WIRE_RESP];
	struct place p = lane_place(lane, wire_stride(ctx->put_len), ep->ring_size);

	reply_take(ep, &ep->reqs[ctx->put_req], &p, ctx->put_len, 0, now_ns);
	ep_queued(ep, lane, now_ns);
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
	reply_take(ep, req, &p, 0, status, now_ns);
	ep_queued(ep, &ep->tx[WIRE_RESP], now_ns);
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
	if (req->id != 0)
		return crpc_copyrpc_reject(ctx, now_ns, token, -ECANCELED);
	req_end(ep, req, now_ns);
	return ep->err;
}

int64_t
crpc_copyrpc_reply_max(const struct crpc_copyrpc *ctx, uint64_t token)
{
	struct crpc_copyrpc_ep *ep;
	const struct req_entry *req = token_find(ctx, token, &ep);

	if (req == NULL)
		return -ENOENT;
	return req->id == 0 ? -EOPNOTSUPP : (int64_t)req->resp_max;
}

/* One WR for one pending batch; its head is written last, with what we know now. */
static inline void
batch_wr(const struct crpc_copyrpc_ep *ep, enum wire_lane which, const struct pending *batch,
	struct crpc_rdma_wr *wr)
{
	const struct tx_lane *lane = &ep->tx[which];
	uint32_t off = (uint32_t)batch->pos & (ep->ring_size - 1);
	const struct wire_batch head = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.lane = (uint8_t)which,
		.epoch = ep->peer_epoch,
		.len = batch->len,
		.count = batch->count,
		.pos = batch->pos,
		.released = ep->released,
	};

	memcpy(lane->stage + off, &head, sizeof(head));
	wr->op = CRPC_RDMA_WRITE_IMM;
	wr->flags = batch->len <= ep->ctx->inline_max ? CRPC_RDMA_WR_INLINE : 0;
	wr->num_sge = 1;
	wr->imm = wire_imm((enum wire_imm)which, batch->len);
	wr->raddr = lane->raddr + off;
	wr->rkey = ep->rkey;
	wr->wr_id = ep->flush_seq + 1;
	wr->sge[0].addr = lane->stage + off;
	wr->sge[0].len = batch->len;
	wr->sge[0].lkey = ep->stage_lkey;
}

static inline void
update_wr(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr)
{
	wr->op = CRPC_RDMA_WRITE_IMM;
	wr->flags = 0;
	wr->num_sge = 0;
	wr->imm = wire_imm(WIRE_IMM_UPDATE, ep->released);
	wr->raddr = ep->tx[WIRE_REQ].raddr;
	wr->rkey = ep->rkey;
	wr->wr_id = ep->flush_seq + 1;
}

/* The queued calls are on their way: from now on a response may come. */
static inline void
calls_sent(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct call_slot *slot;
	uint64_t queue;
	uint16_t i;

	for (i = ep->queued_head; i != NIL; i = slot->next) {
		slot = &ep->slots[i];
		queue = now_ns - slot->call_ns;
		slot->queue_ns = queue > UINT32_MAX ? UINT32_MAX : (uint32_t)queue;
		slot->state = SLOT_SENT | (slot->state & SLOT_EXPIRED);
	}
	ep->queued_head = NIL;
}

/* The device took this batch: only now do positions and counters move. */
static inline void
batch_sent(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	struct tx_lane *lane = &ep->tx[which];
	uint32_t bucket = 31 - (uint32_t)__builtin_clz(lane->pend[0].count);

	stats->batches_sent++;
	stats->messages_sent += lane->pend[0].count;
	stats->bytes_sent += lane->pend[0].len;
	stats->batch_size[crpc_min(bucket, CRPC_COPYRPC_BATCH_BUCKETS - 1)]++;
	lane->sent = lane->pend[0].pos + lane->pend[0].len;
	if (which == WIRE_REQ)
		calls_sent(ep, now_ns);
	else
		room_sub(&ep->owed, lane->pend[0].owed);
	lane->pend[0] = lane->pend[1];
	lane->npend--;
}

/*
 * Responses go first: a peer waits for them. All WRs go down in one post, so one doorbell rings. The last
 * one asks for a completion: the clock of the next flush. If the send queue cuts the list short, nothing
 * of the rest has moved, and the endpoint stays in the dirty list.
 */
uint32_t
ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t resps = ep->tx[WIRE_RESP].npend, reqs = ep->tx[WIRE_REQ].npend;
	struct crpc_rdma_wr wr[FLUSH_WRS];
	uint16_t posted, n = 0;
	uint32_t i;

	for (i = 0; i < resps; i++)
		batch_wr(ep, WIRE_RESP, &ep->tx[WIRE_RESP].pend[i], &wr[n++]);
	for (i = 0; i < reqs; i++)
		batch_wr(ep, WIRE_REQ, &ep->tx[WIRE_REQ].pend[i], &wr[n++]);
	if (n == 0)
		update_wr(ep, &wr[n++]);
	if (ep->ctx->conf.flush == CRPC_COPYRPC_CLOCKED)
		wr[n - 1].flags |= CRPC_RDMA_WR_SIGNAL;
	posted = crpc_rdma_post(ep->qp, wr, n);
	if (crpc_unlikely(posted != n)) {
		stats->sq_full++;
		if (posted == 0)
			return 0;
	} else if (wr[n - 1].flags & CRPC_RDMA_WR_SIGNAL) {
		ep->flush_seq++;
	}
	for (i = 0; i < posted && i < resps; i++)
		batch_sent(ep, WIRE_RESP, now_ns);
	for (; i < posted && i < resps + reqs; i++)
		batch_sent(ep, WIRE_REQ, now_ns);
	stats->updates_sent += posted - i;
	stats->flushes++;
	ep->told = ep->released;
	return 1;
}

/* Whether the policy sends for this endpoint now. */
static inline bool
ep_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint64_t untold = ep->released - ep->told;

	if (ep_pending(ep)) {
		if (conf->flush != CRPC_COPYRPC_CLOCKED ||
			ep_outstanding(ep) < conf->max_outstanding)
			return true;
		if (lane_queued(&ep->tx[WIRE_REQ]) >= conf->batch_max ||
			lane_queued(&ep->tx[WIRE_RESP]) >= conf->batch_max) {
			ep->ctx->stats.full_flushes++;
			return true;
		}
		if (now_ns - ep->queued_ns >= conf->age_ns) {
			ep->ctx->stats.age_flushes++;
			return true;
		}
	}
	return untold != 0 && (untold >= ep->ring_size / 4 ||
				      now_ns - ep->released_ns >= conf->update_ns);
}

uint32_t
crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	uint32_t left, flushes = 0;
	struct crpc_copyrpc_ep *ep;

	copyrpc_owner_check(ctx);
	/* once around: those that stay dirty go to the end of the list */
	for (left = ctx->dirty.n; left != 0; left--) {
		ep = ctx->eps[ctx->dirty.head];
		ctx->dirty.head = ep->dirty_next;
		ctx->dirty.n--;
		ep->flags &= ~EP_DIRTY;
		if (ep->err == 0 && ep_due(ep, now_ns))
			flushes += ep_post(ep, now_ns);
		if (ep->err == 0 && (ep_pending(ep) || ep->told != ep->released))
			ep_mark_dirty(ep);
	}
	return flushes;
}
