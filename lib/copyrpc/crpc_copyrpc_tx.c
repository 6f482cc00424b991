/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: messages are appended to a batch in the staging ring, and batches are posted when the
 * flush policy says so. Positions advance only for what the device took: a full send queue loses
 * nothing.
 */
#include "copyrpc_pvt.h"

bool
__crpc_copyrpc_room_fits_slow(struct room *r, uint32_t worst, uint32_t ring_size)
{
	uint32_t grow;

	if (room_sum(r, ring_size) == 0)
		room_reset(r, ring_size);
	if (worst > r->max) {
		grow = worst - r->max;
		if (r->left < (uint64_t)grow + worst)
			return false;
		r->max = worst;
		r->left -= grow;
	}
	return worst <= r->left;
}

/** Where a message goes. */
struct place {
	uint8_t *at;    /* its head in the staging ring; NULL: in the open batch, at lane->next */
	uint64_t start; /* position of a new batch's head */
	uint64_t end;   /* position behind the message */
	bool anew;      /* a new batch starts */
};

/*
 * A batch never crosses the end of the ring. The open one goes on if the message fits before the
 * end; else a new batch starts, behind it or, skipping the tail, at the start of the ring. The
 * receiver derives the same from the batch's length (wire_batch_pos()): a new batch is at least as
 * long as its first message, and a batch that goes on never passes the end.
 */
static inline struct place
lane_place(const struct tx_lane *lane, uint32_t stride, uint32_t ring_size)
{
	uint32_t off = (uint32_t)lane->prod & (ring_size - 1);
	struct place p;

	p.anew = lane->npend == 0 || off == 0 || stride > ring_size - off;
	if (!p.anew) {
		p.start = lane->prod;
		p.end = lane->prod + stride;
		p.at = lane->stage + off;
		return p;
	}
	p.start = wire_batch_pos(lane->prod, WIRE_HEAD + stride, ring_size);
	p.end = p.start + WIRE_HEAD + stride;
	p.at = lane->stage + ((uint32_t)p.start & (ring_size - 1)) + WIRE_HEAD;
	return p;
}

/* What the open batch can take before the next message needs lane_place() and the policy again. */
static uint32_t
lane_left(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint32_t off = (uint32_t)lane->prod & (ep->ring_size - 1);
	uint64_t queued = lane_queued(lane), left;

	if (lane->npend == 0 || off == 0 || conf->flush == CRPC_COPYRPC_IMMEDIATE ||
			queued >= conf->batch_max)
		return 0;
	left = crpc_min(ep->ring_size - off, conf->batch_max - 1 - queued);
	if (lane == &ep->tx[WIRE_REQ])
		left = crpc_min(left, ep->ring_size - (lane->prod - ep->peer_released));
	return (uint32_t)left;
}

/* The open batch of a lane gets its length. */
static inline void
lane_close(struct tx_lane *lane)
{
	struct pending *batch;

	if (lane->npend == 0)
		return;
	batch = &lane->pend[lane->npend - 1];
	batch->len = (uint32_t)(lane->prod - batch->pos);
}

/* Open a batch where the place says, or go on with the open one; then see how far that goes. */
static crpc_noinline void
lane_put_slow(struct crpc_copyrpc_ep *ep, struct tx_lane *lane, const struct place *p,
		uint64_t now_ns)
{
	struct pending *batch;

	if (!ep_pending(ep))
		ep->queued_ns = now_ns;
	if (p->anew) {
		lane_close(lane);
		batch = &lane->pend[lane->npend++];
		batch->pos = p->start;
		batch->count = 0;
		batch->owed = 0;
		if (p->start != lane->prod)
			ep->ctx->stats.wraps++;
	}
	lane->prod = p->end;
	lane->left = lane_left(ep, lane);
	ep_mark_dirty(ep);
}

/* Append the message to its batch; its data is written by the caller. Returns where. */
static inline uint8_t *
lane_put(struct crpc_copyrpc_ep *ep, struct tx_lane *lane, const struct place *p, uint32_t stride,
		struct wire_msg msg, uint32_t owed, uint64_t now_ns)
{
	struct pending *batch;
	uint8_t *at = p->at;

	if (crpc_likely(at == NULL)) {
		at = lane->next;
		lane->prod += stride;
		lane->left -= stride;
	} else {
		lane_put_slow(ep, lane, p, now_ns);
	}
	lane->next = at + stride;
	batch = &lane->pend[lane->npend - 1];
	batch->count++;
	batch->owed += owed;
	memcpy(at, &msg, sizeof(msg));
	return at + sizeof(msg);
}

/* After a message that did not just go on: what the policy sends without waiting for flush(). */
static crpc_noinline void
ep_queued_slow(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;

	if (conf->flush != CRPC_COPYRPC_IMMEDIATE) {
		if (lane_queued(lane) < conf->batch_max)
			return;
		ep->ctx->stats.full_flushes++;
	}
	__crpc_copyrpc_ep_post(ep, now_ns);
}

static inline void
ep_queued(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, const struct place *p,
		uint64_t now_ns)
{
	if (crpc_unlikely(p->at != NULL))
		ep_queued_slow(ep, lane, now_ns);
}

/* Room in the request lane. Takes nothing. */
static crpc_noinline int
call_place_slow(struct crpc_copyrpc_ep *ep, uint32_t stride, struct place *p)
{
	if (ep->err != 0)
		return ep->err;
	*p = lane_place(&ep->tx[WIRE_REQ], stride, ep->ring_size);
	if (p->end - ep->peer_released > ep->ring_size) {
		ep->ctx->stats.again_window++;
		return -EAGAIN;
	}
	return 0;
}

static inline int
call_place(struct crpc_copyrpc_ep *ep, uint32_t stride, struct place *p)
{
	p->at = NULL;
	/* a broken endpoint has left 0 */
	return crpc_likely(stride <= ep->tx[WIRE_REQ].left) ? 0 : call_place_slow(ep, stride, p);
}

/* Why a call slot or the room for its reply is missing. */
static crpc_noinline int
call_refuse(struct crpc_copyrpc_ep *ep)
{
	if (ep->err != 0)
		return ep->err;
	if (ep->free_head == NIL)
		ep->ctx->stats.again_inflight++;
	else
		ep->ctx->stats.again_reply++;
	return -EAGAIN;
}

/* A slot, room for the reply and room for the request. Takes nothing. */
static inline int
call_check(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, struct place *p)
{
	if (crpc_unlikely(len > ep->max_msg || resp_max > ep->max_msg))
		return ep->err != 0 ? ep->err : -EMSGSIZE;
	ep_hold_end(ep);
	if (crpc_unlikely(ep->free_head == NIL ||
			    !room_fits(&ep->resv, wire_worst(resp_max), ep->ring_size)))
		return call_refuse(ep);
	return call_place(ep, wire_stride(len), p);
}

/* Take a call slot and put the head of the request. Returns where the data goes. */
static inline uint8_t *
call_take(struct crpc_copyrpc_ep *ep, const struct place *p, uint32_t len, uint32_t resp_max,
		uint64_t now_ns, uint64_t cookie)
{
	uint32_t step = ep->ctx->slot_mask + 1;
	uint16_t index = ep->free_head;
	struct call_slot *slot = &ep->slots[index];
	struct wire_msg msg = {.len = len, .arg = resp_max};

	ep->free_head = slot->next;
	slot->id += step;
	if (crpc_unlikely(slot->id < step))
		slot->id += step; /* generation 0 is never used: id 0 is one-way */
	slot->cookie = cookie;
	slot->call_ns = now_ns;
	slot->resp_max = resp_max;
	slot->state = SLOT_QUEUED;
	slot->next = ep->queued_head;
	ep->queued_head = index;
	ep->open++;
	room_add(&ep->resv, wire_worst(resp_max));
	ep->ctx->stats.calls++;
	msg.id = slot->id;
	return lane_put(ep, &ep->tx[WIRE_REQ], p, wire_stride(len), msg, 0, now_ns);
}

static inline void
copy_in(void *to, const void *from, uint32_t len)
{
	if (crpc_likely(len != 0))
		memcpy(to, from, len);
}

/* Where the data of a message will go. */
static inline uint8_t *
place_data(const struct tx_lane *lane, const struct place *p)
{
	return (p->at != NULL ? p->at : lane->next) + sizeof(struct wire_msg);
}

int
crpc_copyrpc_call(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
		uint32_t resp_max, uint64_t cookie)
{
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_check(ep, len, resp_max, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	copy_in(call_take(ep, &p, len, resp_max, now_ns, cookie), buf, len);
	ep_queued(ep, &ep->tx[WIRE_REQ], &p, now_ns);
	return 0;
}

int
crpc_copyrpc_call_reserve(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max, void **data)
{
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	rc = call_check(ep, len, resp_max, &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	ep->put_len = len;
	ep->put_resp_max = resp_max;
	*data = place_data(&ep->tx[WIRE_REQ], &p);
	return 0;
}

void
crpc_copyrpc_call_commit(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	struct place p;

	call_place(ep, wire_stride(ep->put_len), &p); /* as call_reserve found it */
	call_take(ep, &p, ep->put_len, ep->put_resp_max, now_ns, cookie);
	ep_queued(ep, &ep->tx[WIRE_REQ], &p, now_ns);
}

int
crpc_copyrpc_send(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	struct wire_msg msg = {.len = len};
	struct place p;
	int rc;

	copyrpc_owner_check(ep->ctx);
	if (crpc_unlikely(len > ep->max_msg))
		return ep->err != 0 ? ep->err : -EMSGSIZE;
	rc = call_place(ep, wire_stride(len), &p);
	if (crpc_unlikely(rc != 0))
		return rc;
	copy_in(lane_put(ep, &ep->tx[WIRE_REQ], &p, wire_stride(len), msg, 0, now_ns), buf, len);
	ep->ctx->stats.sends++;
	ep_queued(ep, &ep->tx[WIRE_REQ], &p, now_ns);
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
	uint64_t head = ep->req_head, next = ep->req_next, released = ep->released;

	req->state = REQ_DONE;
	if (req != &ep->reqs[head & ep->req_mask])
		return;
	do {
		released += (uint32_t)(req->end - (uint32_t)released);
		req = &ep->reqs[++head & ep->req_mask];
	} while (head != next && req->state == REQ_DONE);
	if (ep->released == ep->told)
		ep->released_ns = now_ns;
	ep->req_head = head;
	ep->released = released;
	ep_mark_dirty(ep); /* of a broken one, the next flush takes it out again */
}

/*
 * Whether a reply of len bytes may be put, and where. Has ended the request of a broken endpoint.
 */
static inline int
reply_place(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint32_t len, struct place *p)
{
	uint32_t stride = wire_stride(len);

	p->at = NULL;
	if (crpc_unlikely(ep->err != 0)) {
		req_end(ep, req, 0);
		return ep->err;
	}
	if (crpc_unlikely(req->id == 0))
		return -EOPNOTSUPP;
	if (crpc_unlikely(len > req->resp_max))
		return -EMSGSIZE;
	if (crpc_unlikely(stride > ep->tx[WIRE_RESP].left))
		*p = lane_place(&ep->tx[WIRE_RESP], stride, ep->ring_size);
	return 0;
}

/* Queue the head of a response and end its request. Returns where the data goes. */
static inline uint8_t *
reply_take(struct crpc_copyrpc_ep *ep, struct req_entry *req, const struct place *p, uint32_t len,
		int32_t status, uint64_t now_ns)
{
	uint64_t turn = now_ns - req->arrived_ns;
	struct wire_msg msg = {.id = req->id, .len = len, .arg = (uint32_t)status};
	uint8_t *data;

	msg.turn_ns = turn > UINT32_MAX ? UINT32_MAX : (uint32_t)turn;
	data = lane_put(ep, &ep->tx[WIRE_RESP], p, wire_stride(len), msg, wire_worst(req->resp_max),
			now_ns);
	req_end(ep, req, now_ns);
	return data;
}

int
crpc_copyrpc_reply(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf,
		uint32_t len)
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
	copy_in(reply_take(ep, req, &p, len, 0, now_ns), buf, len);
	ep_queued(ep, &ep->tx[WIRE_RESP], &p, now_ns);
	return 0;
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
	ctx->put_req = (uint64_t)(req - ep->reqs);
	ctx->put_len = len;
	*data = place_data(&ep->tx[WIRE_RESP], &p);
	return 0;
}

void
crpc_copyrpc_reply_commit(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep = ctx->put_ep;
	struct req_entry *req = &ep->reqs[ctx->put_req];
	struct place p;

	reply_place(ep, req, ctx->put_len, &p); /* as reply_reserve found it */
	reply_take(ep, req, &p, ctx->put_len, 0, now_ns);
	ep_queued(ep, &ep->tx[WIRE_RESP], &p, now_ns);
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
	ep_queued(ep, &ep->tx[WIRE_RESP], &p, now_ns);
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
	if (which == WIRE_REQ) {
		calls_sent(ep, now_ns);
	} else {
		stats->replies += lane->pend[0].count;
		room_sub(&ep->owed, lane->pend[0].owed);
		if (room_sum(&ep->owed, ep->ring_size) == 0)
			room_reset(&ep->owed, ep->ring_size);
	}
	lane->pend[0] = lane->pend[1];
	lane->npend--;
	lane->left = 0; /* until the next message opens a batch or asks where it may go on */
}

/*
 * Responses go first: a peer waits for them. All WRs go down in one post, so one doorbell rings.
 * The last one asks for a completion: the clock of the next flush. If the send queue cuts the list
 * short, nothing of the rest has moved, and the endpoint stays in the dirty list.
 */
uint32_t
__crpc_copyrpc_ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t resps = ep->tx[WIRE_RESP].npend, reqs = ep->tx[WIRE_REQ].npend;
	struct crpc_rdma_wr wr[FLUSH_WRS];
	uint16_t posted, n = 0;
	uint32_t i;

	lane_close(&ep->tx[WIRE_RESP]);
	lane_close(&ep->tx[WIRE_REQ]);
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
	return untold != 0 &&
	       (untold >= ep->ring_size / 4 || now_ns - ep->released_ns >= conf->update_ns);
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
			flushes += __crpc_copyrpc_ep_post(ep, now_ns);
		if (ep->err == 0 && (ep_pending(ep) || ep->told != ep->released))
			ep_mark_dirty(ep);
	}
	return flushes;
}
