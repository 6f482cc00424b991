/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: messages are appended to a batch in the staging ring, and batches are posted when the
 * flush policy says so. Positions advance only for what the device took: a full send queue loses
 * nothing.
 */
#include "copyrpc_lane.h"

bool
__crpc_copyrpc_room_fits(struct room *r, size_t worst, uint32_t ring_size)
{
	uint64_t grow;

	if (room_fits(r, worst))
		return true;
	if (room_sum(r, ring_size) == 0)
		room_reset(r, ring_size);
	if (worst > r->max) {
		grow = worst - r->max;
		if (r->left < grow + worst)
			return false;
		r->max = worst;
		r->left -= grow;
	}
	return worst <= r->left;
}

/*
 * How far the open batch may go before the next message needs lane_place() and the policy again;
 * prod is the position behind it, at the same place in the staging ring.
 */
static uint8_t *
lane_limit(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t prod, uint8_t *at)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint32_t off = (uint32_t)prod & (ep->ring_size - 1);
	uint64_t queued = prod - lane->sent, left;

	/* short messages are not compared with max_msg on the fast path */
	if (off == 0 || conf->flush == CRPC_COPYRPC_IMMEDIATE || queued >= conf->batch_max ||
			ep->max_msg < WIRE_STRIDE_MIN)
		return NULL;
	left = crpc_min(ep->ring_size - off, conf->batch_max - 1 - queued);
	if (lane == &ep->tx[WIRE_REQ])
		left = crpc_min(left, ep->ring_size - (prod - ep->peer_released));
	return at + left;
}

/* The open batch of a lane gets what is known at its end. */
static inline void
lane_close(struct tx_lane *lane)
{
	struct pending *batch;

	if (lane->npend == 0)
		return;
	batch = &lane->pend[lane->npend - 1];
	batch->len = (uint32_t)(lane_prod(lane) - batch->pos);
	batch->count = lane->count;
	batch->owed = lane->owed;
}

crpc_noinline void
__crpc_copyrpc_lane_put(struct crpc_copyrpc_ep *ep, struct tx_lane *lane, const struct place *p,
		uint32_t stride, uint32_t owed, uint64_t now_ns)
{
	if (!ep_pending(ep))
		ep->queued_ns = now_ns;
	if (p->anew) {
		lane_close(lane);
		if (p->start != lane_prod(lane))
			ep->ctx->stats.wraps++;
		lane->pend[lane->npend++].pos = p->start;
		lane->count = 0;
		lane->owed = 0;
		ep->kind.batch += lane == &ep->tx[WIRE_REQ];
		lane->lap = p->start & ~(uint64_t)(ep->ring_size - 1);
	}
	lane->next = p->at + stride;
	lane->limit = lane_limit(ep, lane, p->end, lane->next);
	lane->count++;
	lane->owed += owed;
	ep_mark_dirty(ep);
}

crpc_noinline void
__crpc_copyrpc_ep_queued(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;

	if (conf->flush != CRPC_COPYRPC_IMMEDIATE) {
		if (lane_queued(lane) < conf->batch_max)
			return;
		ep->ctx->stats.full_flushes++;
	}
	__crpc_copyrpc_ep_release(ep, now_ns);
	__crpc_copyrpc_ep_post(ep, now_ns);
}

crpc_noinline void
__crpc_copyrpc_ep_release(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	uint64_t head = ep->req_head, next = ep->req_next;

	const struct req_entry *first = &ep->reqs[head & ep->req_mask], *req = first, *end;
	uint32_t mask = ep->req_mask;

	if (crpc_unlikely(ep->large.served != 0))
		__crpc_copyrpc_large_release(ep);
	/* to the end of the table, or of the open ones */
	end = req + crpc_min(next - head, mask + 1 - (head & mask));
	while (req != end && req_is_done(req))
		req++;
	if (req == first)
		return;
	if (ep->released == ep->told)
		ep->released_ns = now_ns;
	ep->released += req[-1].end - (uint32_t)ep->released;
	ep->req_head = head + (uint64_t)(req - first);
	if (req == end && ep->req_head != next)
		__crpc_copyrpc_ep_release(ep, now_ns); /* once more, from the table's start */
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
		ep->batch_sent++;
		ep->batch_ns[ep->batch_sent & (BATCH_TIMES - 1)] = now_ns;
	} else {
		stats->replies += lane->pend[0].count;
		room_sub(&ep->owed, lane->pend[0].owed);
		if (room_sum(&ep->owed, ep->ring_size) == 0)
			room_reset(&ep->owed, ep->ring_size);
	}
	lane->pend[0] = lane->pend[1];
	lane->npend--;
	lane->limit = NULL; /* until the next message opens a batch or asks where it may go on */
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
	uint64_t untold;

	__crpc_copyrpc_ep_release(ep, now_ns);
	untold = ep->released - ep->told;
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
__crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	uint32_t left, flushes = 0;
	struct crpc_copyrpc_ep *ep;

	/* once around: those that stay dirty go to the end of the list */
	for (left = ctx->dirty.n; left != 0; left--) {
		ep = ctx->eps[ctx->dirty.head];
		ctx->dirty.head = ep->dirty_next;
		ctx->dirty.n--;
		ep->flags &= ~EP_DIRTY;
		if (crpc_unlikely(ep->err != 0))
			continue;
		if (crpc_unlikely(ep_large_sending(ep)))
			__crpc_copyrpc_large_pump(ep, now_ns);
		if (ep_due(ep, now_ns))
			flushes += __crpc_copyrpc_ep_post(ep, now_ns);
		if (ep_pending(ep) || ep->told != ep->released || ep_large_sending(ep))
			ep_mark_dirty(ep);
	}
	return flushes;
}

uint32_t
crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	copyrpc_owner_check(ctx);
	return __crpc_copyrpc_flush(ctx, now_ns);
}
