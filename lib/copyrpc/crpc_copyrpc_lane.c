/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: batches are opened in the staging ring and posted when the flush policy says so. Positions
 * advance only for what the device took: a full send queue loses nothing.
 */
#include "copyrpc_large.h"
#include "copyrpc_modes.h"
#include "rpc_copy.h"

/** Batches, two of each lane, and one window update. */
#define FLUSH_WRS 5

bool
__crpc_copyrpc_room_grow(struct room *r, uint64_t worst)
{
	uint64_t sum = room_sum(r), max = sum == 0 ? worst : crpc_max(r->max, worst);

	if (sum + worst + max > r->size)
		return false;
	r->max = max;
	r->left = r->size - sum - max;
	return true;
}

/* Position where the next batch may start. */
static inline uint64_t
lane_end(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane)
{
	return lane_prod(lane) + (lane->npend != 0 ? ep->trailer : 0);
}

/*
 * A batch never crosses the end of the ring. The open one continues if the message fits before the
 * end; else a new batch starts, behind it or, skipping the tail, at the start of the ring. The
 * receiver derives the same from the batch's length (wire_batch_pos()): a new batch is at least as
 * long as its first message, and a batch that continues never passes the end.
 */
int
__crpc_copyrpc_lane_find(struct crpc_copyrpc_ep *ep, enum wire_lane which, struct place *p)
{
	struct tx_lane *lane = &ep->tx[which];
	uint32_t off = (uint32_t)lane_prod(lane) & (ep->ring_size - 1),
		 need = p->stride + ep->trailer;

	p->slow = true;
	p->opens = lane->npend == 0 || off == 0 || need > ep->ring_size - off;
	if (p->opens)
		p->pos = WIRE_HEAD +
			wire_batch_pos(lane_end(ep, lane), WIRE_HEAD + need, ep->ring_size);
	if (which == WIRE_RESP || p->pos + need - ep->conn->peer_released <= ep->ring_size)
		return 0;
	if (ep->conn->conf.flow == CRPC_COPYRPC_FLOW_READ)
		__crpc_copyrpc_read_wanted(ep);
	return -EAGAIN;
}

/* How far the open batch may go before a message needs the window and the policy again. */
static uint32_t
lane_left(const struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t pos)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint64_t left = ep->ring_size - (pos & (ep->ring_size - 1));
	uint64_t queued = pos - ep->tx[which].sent;

	if (ep->ctx->flush->at_once || queued >= conf->batch_max ||
		ep->max_msg < RPC_COPY_SHORT_MAX)
		return 0;
	if (which == WIRE_REQ)
		left = crpc_min(left, ep->ring_size - (pos - ep->conn->peer_released));
	return (uint32_t)crpc_min(left - ep->trailer, conf->batch_max - 1 - queued);
}

/* A message does not just continue the open batch. */
static void
lane_open(struct crpc_copyrpc_ep *ep, enum wire_lane which, const struct place *p, uint64_t now_ns)
{
	struct tx_lane *lane = &ep->tx[which];

	if (!ep_pending(ep))
		ep->conn->queued_ns = now_ns;
	if (p->opens) {
		if (p->pos - WIRE_HEAD != lane_end(ep, lane))
			ep->ctx->stats.wraps++;
		if (lane->npend != 0) {
			lane->closed = lane->open;
			lane->closed.len = (uint32_t)(lane_end(ep, lane) - lane->open.pos);
		}
		lane->open = (struct pending){.pos = p->pos - WIRE_HEAD};
		lane->npend++;
		ep->batch += which == WIRE_REQ;
	}
	lane->lap = p->pos & ~(uint64_t)(ep->ring_size - 1);
	lane->next = lane_at(ep, lane, p->pos);
	lane->limit = lane->next + crpc_max(lane_left(ep, which, p->pos), p->stride);
	ep_list_add(ep, dirty);
}

void
__crpc_copyrpc_lane_put(struct crpc_copyrpc_ep *ep, enum wire_lane which, const struct place *p,
	const struct wire_msg *msg, uint32_t resv, uint64_t now_ns)
{
	struct tx_lane *lane = &ep->tx[which];

	if (p->slow)
		lane_open(ep, which, p, now_ns);
	lane->open.resv += resv;
	memcpy(lane_append(lane, p->stride), msg, sizeof(*msg));
}

/* Areas and entries of requests that are done, from the oldest on, are free. */
void
__crpc_copyrpc_release(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct conn *conn = ep->conn;
	uint64_t head = ep->req_head, released = conn->released;

	if (crpc_unlikely(ep->large != NULL))
		__crpc_copyrpc_large_release(ep);
	while (head != ep->req_next && req_is_done(&ep->reqs[head & ep->req_mask]))
		head++;
	if (head == ep->req_head)
		return;
	if (conn->released == conn->reported)
		conn->released_ns = now_ns;
	ep->req_head = head;
	conn->released += ep->reqs[(head - 1) & ep->req_mask].end - (uint32_t)released;
	if (crpc_unlikely(conn->in_memory))
		__crpc_copyrpc_memory_clear(ep, WIRE_REQ, released, conn->released);
	if (crpc_unlikely(conn->conf.flow == CRPC_COPYRPC_FLOW_READ))
		__crpc_copyrpc_read_released(ep);
}

/* Work requests for the batches of a lane; their heads are written last, with what we know now. */
static uint16_t
lane_wrs(struct crpc_copyrpc_ep *ep, enum wire_lane which, struct crpc_rdma_wr *wr)
{
	struct conn *conn = ep->conn;
	struct tx_lane *lane = &ep->tx[which];
	struct wire_batch head = {.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.lane = (uint8_t)which,
		.epoch = conn->peer_epoch,
		.released = flow_in_batches(conn) ? conn->released : conn->reported};
	const struct pending *batch = lane->npend == 2 ? &lane->closed : &lane->open;
	uint16_t n = 0;
	uint8_t *at;

	if (lane->npend == 0)
		return 0;
	lane->open.len = (uint32_t)(lane_end(ep, lane) - lane->open.pos);
	for (; n < lane->npend; n++, wr++, batch = &lane->open) {
		at = lane_at(ep, lane, batch->pos);
		head.len = batch->len;
		head.count = batch->count;
		head.pos = batch->pos;
		memcpy(at, &head, sizeof(head));
		wr->op = CRPC_RDMA_WRITE_IMM;
		wr->flags = batch->len <= ep->ctx->inline_max ? CRPC_RDMA_WR_INLINE : 0;
		wr->num_sge = 1;
		wr->imm = wire_imm((enum wire_imm)which, batch->len);
		wr->raddr = lane->raddr + (batch->pos & (ep->ring_size - 1));
		wr->rkey = conn->rkey;
		wr->wr_id = (ep->flush_seq + 1) & WR_SERIAL_MASK;
		wr->sge[0].addr = at;
		wr->sge[0].len = batch->len;
		wr->sge[0].lkey = conn->tx_mr.lkey;
		if (crpc_unlikely(conn->in_memory))
			__crpc_copyrpc_memory_batch(ep, batch, wr);
	}
	return n;
}

/* The released position, alone. */
static void
update_wr(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr)
{
	const struct conn *conn = ep->conn;

	wr->op = CRPC_RDMA_WRITE_IMM;
	wr->flags = 0;
	wr->num_sge = 0;
	wr->imm = wire_imm(WIRE_IMM_UPDATE, conn->released);
	wr->raddr = ep->tx[WIRE_REQ].raddr;
	wr->rkey = conn->rkey;
	wr->wr_id = (ep->flush_seq + 1) & WR_SERIAL_MASK;
	if (conn->in_memory)
		__crpc_copyrpc_memory_update(ep, wr);
}

/* The device took the oldest batch of a lane: only now do positions and counters move. */
static inline void
batch_sent(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	struct tx_lane *lane = &ep->tx[which];
	const struct pending *batch = lane->npend == 2 ? &lane->closed : &lane->open;
	uint32_t bucket = 31 - (uint32_t)__builtin_clz(batch->count);

	stats->batches_sent++;
	stats->messages_sent += batch->count;
	stats->bytes_sent += batch->len;
	stats->batch_size[crpc_min(bucket, CRPC_COPYRPC_BATCH_BUCKETS - 1)]++;
	lane->sent = batch->pos + batch->len;
	lane->limit =
		NULL; /* until the next message opens a batch or finds where it may continue */
	if (--lane->npend == 0)
		lane->next += ep->trailer;
	if (which == WIRE_RESP) {
		ep->conn->peer_resv.left += batch->resv;
		if (room_sum(&ep->conn->peer_resv) ==
			0) /* the largest of the past counts no more */
			ep->conn->peer_resv =
				(struct room){.left = ep->ring_size, .size = ep->ring_size};
		return;
	}
	ep->batch_sent++;
	ep->batch_ns[ep->batch_sent & ep->batch_mask] = now_ns;
}

/*
 * CLOCKED: whether a flush is one that the next may have to wait for. Responses alone are not: they
 * come in batches because the requests did, and only a completion for each would report their
 * arrival. Over DC every flush is, since each requests a completion.
 */
static inline bool
flush_counts(const struct crpc_copyrpc_ep *ep, uint32_t requests)
{
	return ep->ctx->flush->clocked &&
		(requests != 0 || ep->conn->conf.transport == CRPC_RDMA_DC);
}

/*
 * Post what is pending, and the released position. Returns 1 if anything was posted. Responses go
 * first: a peer waits for them. All work requests go down in one post, so one doorbell rings. If
 * the send queue cuts the list short, nothing of the rest has moved, and the endpoint stays dirty.
 *
 * CLOCKED: the flush after which requests may not be sent requests a completion: the clock of the
 * next one. Those before it need none, as completions are in order; the answer to a request is as
 * good. Over DC each flush does, so that its initiator is soon known to be free for others.
 */
static uint32_t
ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct conn *conn = ep->conn;
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t requests = ep->tx[WIRE_REQ].npend;
	struct crpc_rdma_wr wr[FLUSH_WRS];
	uint16_t resps, batches, posted, n, i;

	resps = n = lane_wrs(ep, WIRE_RESP, wr);
	n += lane_wrs(ep, WIRE_REQ, wr + n);
	batches = n;
	if (n == 0 || (!flow_in_batches(conn) && conn->reported != conn->released))
		update_wr(ep, &wr[n++]);
	if (flush_counts(ep, requests) &&
		(ep_outstanding(ep) + 1 >= ep->ctx->conf.max_outstanding ||
			conn->conf.transport == CRPC_RDMA_DC))
		wr[n - 1].flags |= CRPC_RDMA_WR_SIGNAL;
	posted = crpc_rdma_post(conn->qp, wr, n);
	stats->sq_full += posted != n;
	if (posted == 0)
		return 0;
	if (posted == n && flush_counts(ep, requests)) {
		ep->flush_seq++;
		if (requests != 0)
			ep->req_seq = ep->flush_seq;
	}
	ep->ctx->flush->sending(ep, now_ns);
	for (i = 0; i < posted && i < batches; i++)
		batch_sent(ep, i < resps ? WIRE_RESP : WIRE_REQ, now_ns);
	stats->updates_sent += posted - i;
	stats->flushes++;
	if (flow_in_batches(conn) || posted > batches)
		conn->reported = conn->released;
	return 1;
}

void
__crpc_copyrpc_lane_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	if (!ep->ctx->flush->queued(ep, which, now_ns)) {
		if (lane_prod(&ep->tx[which]) - ep->tx[which].sent < ep->ctx->conf.batch_max)
			return;
		ep->ctx->stats.full_flushes++;
	}
	__crpc_copyrpc_release(ep, now_ns);
	ep_post(ep, now_ns);
}

/* Whether a released position should not wait for a batch that carries it. */
static inline bool
update_due(const struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	const struct conn *conn = ep->conn;
	uint64_t held = conn->rx_pos[WIRE_REQ] - conn->reported,
		 unreported = conn->released - conn->reported;

	if (unreported == 0)
		return false;
	if (unreported >= ep->ring_size / 4 ||
		now_ns - conn->released_ns >= ep->ctx->conf.update_ns)
		return true;
	/* the peer sees less than a quarter of its room: it may be waiting */
	return held > ep->ring_size / 4 * 3 &&
		(unreported >= ep->ring_size / 16 || unreported == held);
}

/* What flush() does for one endpoint. Returns the doorbells. */
static uint32_t
ep_flush(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct conn *conn = ep->conn;
	bool due, large = ep->large != NULL;
	uint32_t flushes = 0;

	if (crpc_unlikely(large))
		__crpc_copyrpc_large_pump(ep, now_ns);
	if (crpc_unlikely(conn->alive != 0))
		__crpc_copyrpc_alive_post(ep);
	if (large ||
		(ep->req_head != ep->req_next &&
			req_is_done(&ep->reqs[ep->req_head & ep->req_mask])))
		__crpc_copyrpc_release(ep, now_ns);
	due = ep_pending(ep) && ep->ctx->flush->due(ep, now_ns);
	if (due || (!(ep_pending(ep) && ep->ctx->flush->holds) && update_due(ep, now_ns)))
		flushes = ep_post(ep, now_ns);
	if (crpc_unlikely(conn->conf.flow == CRPC_COPYRPC_FLOW_READ))
		__crpc_copyrpc_read_flushed(ep);
	if (ep_pending(ep) || conn->reported != conn->released || conn->alive != 0 ||
		(large && __crpc_copyrpc_large_sending(ep)))
		ep_list_add(ep, dirty);
	return flushes;
}

uint32_t
__crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep, *last = TAILQ_LAST(&ctx->dirty, ep_list);
	uint32_t flushes = 0;

	/* once around: those that stay dirty go to the end of the list */
	while ((ep = TAILQ_FIRST(&ctx->dirty)) != NULL) {
		ep_list_del(ep, dirty);
		if (crpc_likely(ep->err == 0))
			flushes += ep_flush(ep, now_ns);
		if (ep == last)
			break;
	}
	return flushes;
}

uint32_t
crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	crpc_owner_check(&ctx->owner, "copyrpc context");
	return __crpc_copyrpc_flush(ctx, now_ns);
}
