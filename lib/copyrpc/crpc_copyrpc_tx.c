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
	return left > ep->trailer ? at + left - ep->trailer : NULL;
}

/* The open batch of a lane gets what is known at its end. */
static inline void
lane_close(const struct crpc_copyrpc_ep *ep, struct tx_lane *lane)
{
	struct pending *batch;

	if (lane->npend == 0)
		return;
	batch = &lane->pend[lane->npend - 1];
	batch->len = (uint32_t)(lane_prod(lane) - batch->pos) + ep->trailer;
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
		lane_close(ep, lane);
		if (p->start != lane_end(ep, lane))
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

/* So many batches of one message are taken for a sign that the next one is too. */
#define LONE_BATCHES 8

/*
 * CLOCKED: whether a message may go at once, as flush() would send it at the end of the turn and,
 * by what came of late, nothing will join it until then. A second one in the turn shows that this
 * was wrong.
 */
static bool
lone_due(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns)
{
	uint32_t which = (uint32_t)(lane - ep->tx);

	if (ep->lone[which] < LONE_BATCHES)
		return false;
	if (ep->lone_ns[which] == now_ns) {
		ep->lone[which] = 0;
		return false;
	}
	ep->lone_ns[which] = now_ns;
	return ep->tx[WIRE_REQ].npend + ep->tx[WIRE_RESP].npend == 1 &&
	       ep_outstanding(ep) < ep->ctx->conf.max_outstanding;
}

crpc_noinline void
__crpc_copyrpc_ep_queued(struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;

	if (conf->flush != CRPC_COPYRPC_IMMEDIATE &&
			!(conf->flush == CRPC_COPYRPC_CLOCKED && lone_due(ep, lane, now_ns))) {
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
	uint32_t mask = ep->req_mask, room;

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
	room = req[-1].end - (uint32_t)ep->released;
	if (crpc_unlikely(ep->memory))
		__crpc_copyrpc_rx_clear(ep, WIRE_REQ, ep->released, ep->released + room);
	ep->released += room;
	ep->req_head = head + (uint64_t)(req - first);
	if (req == end && ep->req_head != next) {
		/* once more, from the table's start */
		__crpc_copyrpc_ep_release(ep, now_ns);
		return;
	}
	if (ep->flow == CRPC_COPYRPC_FLOW_READ) {
		/* the peer reads it when it wants to; release: after it, the bytes are its own */
		crpc_store_release(&ep->rx_words[WIRE_WORD_RELEASED / 8], ep->released);
		ep->told = ep->released;
	}
}

/* What tells a receiver that looks at its memory that all of the batch is there. */
static void
seal_put(uint8_t *at, const struct pending *batch, uint32_t epoch)
{
	const struct wire_seal seal = {.pos = batch->pos, .len = batch->len, .epoch = epoch};

	memcpy(at, &seal, sizeof(seal));
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
			/* where news of it has a way of its own, this is none */
			.released = ep->flow == CRPC_COPYRPC_FLOW_NOTIFY ? ep->told : ep->released,
	};

	memcpy(lane->stage + off, &head, sizeof(head));
	if (ep->memory)
		seal_put(lane->stage + off + batch->len - ep->trailer, batch, ep->peer_epoch);
	wr->op = ep->memory ? CRPC_RDMA_WRITE : CRPC_RDMA_WRITE_IMM;
	wr->flags = batch->len <= ep->ctx->inline_max ? CRPC_RDMA_WR_INLINE : 0;
	wr->num_sge = 1;
	wr->imm = wire_imm((enum wire_imm)which, batch->len);
	wr->raddr = lane->raddr + off;
	wr->rkey = ep->rkey;
	wr->wr_id = (ep->flush_seq + 1) & WR_SERIAL_MASK;
	wr->sge[0].addr = lane->stage + off;
	wr->sge[0].len = batch->len;
	wr->sge[0].lkey = ep->stage_lkey;
}

/* News of released room, alone: in an immediate, or as a word of the peer's memory. */
static inline void
update_wr(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr)
{
	_Atomic uint64_t *word = &ep->tx_words[WIRE_WORD_TOLD / 8];

	wr->imm = wire_imm(WIRE_IMM_UPDATE, ep->released);
	wr->rkey = ep->rkey;
	wr->wr_id = (ep->flush_seq + 1) & WR_SERIAL_MASK;
	if (ep->memory) {
		crpc_store_relaxed(word, ep->released);
		wr->op = CRPC_RDMA_WRITE;
		wr->flags = ep->ctx->inline_max >= sizeof(*word) ? CRPC_RDMA_WR_INLINE : 0;
		wr->num_sge = 1;
		wr->raddr = ep->words_raddr + WIRE_WORD_TOLD;
		wr->sge[0].addr = (const void *)(uintptr_t)word;
		wr->sge[0].len = sizeof(*word);
		wr->sge[0].lkey = ep->stage_lkey;
		return;
	}
	wr->op = CRPC_RDMA_WRITE_IMM;
	wr->flags = 0;
	wr->num_sge = 0;
	wr->raddr = ep->tx[WIRE_REQ].raddr;
}

/* READ flow: ask for the peer's released position, if room is short and none is asked for yet. */
static crpc_noinline void
position_read(struct crpc_copyrpc_ep *ep)
{
	uint64_t used = lane_end(ep, &ep->tx[WIRE_REQ]) - ep->peer_released;
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_READ,
			.flags = CRPC_RDMA_WR_SIGNAL,
			.num_sge = 1,
			.raddr = ep->words_raddr + WIRE_WORD_RELEASED,
			.rkey = ep->rkey,
			.wr_id = (uint32_t)WR_POSITION << WR_KIND_SHIFT};

	if (ep->reading || ep->peer_released == ep->tx[WIRE_REQ].sent ||
			(!ep->want_read && used <= ep->ring_size / 4 * 3))
		return;
	wr.sge[0].addr = (const void *)(uintptr_t)&ep->tx_words[WIRE_WORD_RELEASED / 8];
	wr.sge[0].len = sizeof(uint64_t);
	wr.sge[0].lkey = ep->stage_lkey;
	if (crpc_rdma_post(ep->qp, &wr, 1) != 1)
		return;
	ep->reading = true;
	ep->want_read = false;
	ep->ctx->stats.reads_sent++;
}

/* The device took this batch: only now do positions and counters move. */
static inline void
batch_sent(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	struct tx_lane *lane = &ep->tx[which];
	uint32_t count = lane->pend[0].count, len = lane->pend[0].len;
	uint32_t bucket = 31 - (uint32_t)__builtin_clz(count);

	stats->batches_sent++;
	stats->messages_sent += count;
	stats->bytes_sent += len;
	stats->batch_size[crpc_min(bucket, CRPC_COPYRPC_BATCH_BUCKETS - 1)]++;
	lane->sent = lane->pend[0].pos + len;
	if (which == WIRE_REQ) {
		ep_count_calls(ep);
		ep->batch_sent++;
		ep->batch_ns[ep->batch_sent & (BATCH_TIMES - 1)] = now_ns;
	} else {
		stats->replies += count;
		room_sub(&ep->owed, lane->pend[0].owed);
		if (room_sum(&ep->owed, ep->ring_size) == 0)
			room_reset(&ep->owed, ep->ring_size);
	}
	if (crpc_likely(lane->npend == 1))
		lane->next += ep->trailer;
	else
		lane->pend[0] = lane->pend[1];
	lane->npend--;
	lane->limit = NULL; /* until the next message opens a batch or asks where it may go on */
}

/*
 * HOLD: requests go with every flush; replies wait until there is one for each peer, or no request
 * is left to answer, or a time has passed that follows from how fast messages go. This is
 * the adaptive batch hold of the original, for comparison.
 */
static bool
hold_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	return ep->tx[WIRE_REQ].npend != 0 || ctx->hold_off || ep->req_head == ep->req_tail ||
	       ep->tx[WIRE_RESP].count >= ctx->neps || now_ns - ep->queued_ns >= ctx->hold_ns;
}

#define HOLD_NS_MIN 500
#define HOLD_NS_MAX 100000

/* The hold is the time in which as many messages pass as there are peers. */
static void
hold_adapt(struct crpc_copyrpc *ctx, uint32_t messages, uint64_t now_ns)
{
	uint64_t gap = (now_ns - ctx->hold_last_ns) / crpc_max(messages, 1);

	ctx->hold_gap_ns = (ctx->hold_gap_ns * 7 + gap) / 8;
	if (ctx->conf.hold_ns != 0) {
		ctx->hold_ns = ctx->conf.hold_ns;
		/* And hold_off stays false: the fixed hold does not look at the last batch. */
		return;
	}
	ctx->hold_ns = crpc_min(
		crpc_max(ctx->neps * ctx->hold_gap_ns, HOLD_NS_MIN), HOLD_NS_MAX);
	ctx->hold_last_ns = now_ns;
	ctx->hold_off = messages >= ctx->neps;
}

/*
 * CLOCKED: whether a flush is one that the next may have to wait for. Responses alone are not: they
 * come in batches because the requests did, and nothing would tell of their arrival but a
 * completion for each. Over DC every flush is, since each asks for a completion.
 */
static inline bool
flush_counts(const struct crpc_copyrpc_ep *ep, bool has_requests)
{
	return ep->ctx->conf.flush == CRPC_COPYRPC_CLOCKED &&
	       (has_requests || ep->transport == CRPC_RDMA_DC);
}

/*
 * CLOCKED: the flush after which requests may not be sent asks for a completion: the clock of the
 * next one. Those before it need none, as completions are in order; the answer to a request says as
 * much. Over DC each flush asks, so that its initiator is soon known to be free for others.
 */
static inline void
flush_signal(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *last, bool has_requests)
{
	if (flush_counts(ep, has_requests) &&
			(ep_outstanding(ep) + 1 >= ep->ctx->conf.max_outstanding ||
					ep->transport == CRPC_RDMA_DC))
		last->flags |= CRPC_RDMA_WR_SIGNAL;
}

/* All of a flush is at the device. */
static inline void
flush_count(struct crpc_copyrpc_ep *ep, bool has_requests)
{
	if (!flush_counts(ep, has_requests))
		return;
	ep->flush_seq++;
	if (has_requests)
		ep->req_seq = ep->flush_seq;
}

/*
 * Responses go first: a peer waits for them. All WRs go down in one post, so one doorbell rings. If
 * the send queue cuts the list short, nothing of the rest has moved, and the endpoint stays in the
 * dirty list.
 */
static crpc_noinline uint32_t
post_all(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t resps = ep->tx[WIRE_RESP].npend, reqs = ep->tx[WIRE_REQ].npend;
	struct crpc_rdma_wr wr[FLUSH_WRS];
	uint16_t posted, n = 0;
	uint32_t i;

	lane_close(ep, &ep->tx[WIRE_RESP]);
	lane_close(ep, &ep->tx[WIRE_REQ]);
	for (i = 0; i < resps; i++)
		batch_wr(ep, WIRE_RESP, &ep->tx[WIRE_RESP].pend[i], &wr[n++]);
	for (i = 0; i < reqs; i++)
		batch_wr(ep, WIRE_REQ, &ep->tx[WIRE_REQ].pend[i], &wr[n++]);
	if (n == 0 || (ep->flow == CRPC_COPYRPC_FLOW_NOTIFY && ep->told != ep->released))
		update_wr(ep, &wr[n++]);
	flush_signal(ep, &wr[n - 1], reqs != 0);
	posted = crpc_rdma_post(ep->qp, wr, n);
	if (posted == n)
		flush_count(ep, reqs != 0);
	else
		stats->sq_full++;
	if (posted == 0)
		return 0;
	if (ep->ctx->conf.flush == CRPC_COPYRPC_HOLD)
		hold_adapt(ep->ctx, resps != 0 ? ep->tx[WIRE_RESP].count : 1, now_ns);
	for (i = 0; i < posted && i < resps; i++)
		batch_sent(ep, WIRE_RESP, now_ns);
	for (; i < posted && i < resps + reqs; i++)
		batch_sent(ep, WIRE_REQ, now_ns);
	stats->updates_sent += posted - i;
	stats->flushes++;
	if (ep->flow != CRPC_COPYRPC_FLOW_NOTIFY || posted != i)
		ep->told = ep->released;
	return 1;
}

/* The same for one batch and nothing beside it. */
static inline uint32_t
post_one(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct tx_lane *lane = &ep->tx[which];
	struct crpc_rdma_wr wr;

	lane_close(ep, lane);
	batch_wr(ep, which, &lane->pend[0], &wr);
	flush_signal(ep, &wr, which == WIRE_REQ);
	if (crpc_unlikely(crpc_rdma_post(ep->qp, &wr, 1) != 1)) {
		ep->ctx->stats.sq_full++;
		return 0;
	}
	flush_count(ep, which == WIRE_REQ);
	if (lane->count != 1)
		ep->lone[which] = 0;
	else if (ep->lone[which] < LONE_BATCHES)
		ep->lone[which]++;
	batch_sent(ep, which, now_ns);
	ep->ctx->stats.flushes++;
	ep->told = ep->released;
	return 1;
}

uint32_t
__crpc_copyrpc_ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	uint32_t resps = ep->tx[WIRE_RESP].npend, reqs = ep->tx[WIRE_REQ].npend;

	if (crpc_unlikely(resps + reqs != 1 || ep->flow == CRPC_COPYRPC_FLOW_NOTIFY ||
			    ep->ctx->conf.flush == CRPC_COPYRPC_HOLD))
		return post_all(ep, now_ns);
	return resps != 0 ? post_one(ep, WIRE_RESP, now_ns) : post_one(ep, WIRE_REQ, now_ns);
}

/* Whether news of released room should not wait for a batch that carries it. */
static inline bool
update_due(const struct crpc_copyrpc_ep *ep, uint64_t untold, uint64_t now_ns)
{
	uint64_t held = ep->rx_pos[WIRE_REQ] - ep->told;

	if (untold >= ep->ring_size / 4 || now_ns - ep->released_ns >= ep->ctx->conf.update_ns)
		return true;
	/* the peer sees less than a quarter of its room: it may be waiting */
	return held > ep->ring_size / 4 * 3 && (untold >= ep->ring_size / 16 || untold == held);
}

/* Whether the policy sends for this endpoint now. */
static inline bool
ep_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint64_t untold;

	if ((ep->req_head != ep->req_next &&
			    req_is_done(&ep->reqs[ep->req_head & ep->req_mask])) ||
			crpc_unlikely(ep->large.served != 0))
		__crpc_copyrpc_ep_release(ep, now_ns);
	untold = ep->released - ep->told;
	if (ep_pending(ep)) {
		if (conf->flush == CRPC_COPYRPC_HOLD)
			return hold_due(ep, now_ns);
		/* requests go along with responses: that is one doorbell */
		if (conf->flush != CRPC_COPYRPC_CLOCKED || ep->tx[WIRE_RESP].npend != 0 ||
				ep_outstanding(ep) < conf->max_outstanding)
			return true;
		if (lane_queued(&ep->tx[WIRE_REQ]) >= conf->batch_max) {
			ep->ctx->stats.full_flushes++;
			return true;
		}
		if (now_ns - ep->queued_ns >= conf->age_ns) {
			ep->ctx->stats.age_flushes++;
			return true;
		}
	}
	return untold != 0 && update_due(ep, untold, now_ns);
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
		if (crpc_unlikely(ep->flags & EP_ALIVE_MASK))
			__crpc_copyrpc_alive_post(ep);
		if (ep_due(ep, now_ns))
			flushes += __crpc_copyrpc_ep_post(ep, now_ns);
		if (ep->flow == CRPC_COPYRPC_FLOW_READ)
			position_read(ep);
		if (ep_pending(ep) || ep->told != ep->released || ep_large_sending(ep) ||
				(ep->flags & EP_ALIVE_MASK))
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
