/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: completions of the device, arrived batches, completions of calls, deadlines, requests.
 *
 * Ring memory is the peer's to write at any time. Every head is loaded once (wire_*_load()),
 * checked against what only we know (positions, the immediate, the size of the ring, our own
 * calls), and only the copy is used. Each loop is bounded by a length that was checked before.
 */
#include "copyrpc_pvt.h"

/* The peer has released our request lane up to here; repeated and old news changes nothing. */
static inline bool
released_take(struct crpc_copyrpc_ep *ep, uint64_t released)
{
	uint64_t step = released - ep->peer_released;

	if (crpc_likely(step % WIRE_UNIT == 0)) {
		if (crpc_likely(step <= ep->tx[WIRE_REQ].sent - ep->peer_released)) {
			ep->peer_released = released;
			return true;
		}
		if ((int64_t)step < 0 && 0 - step <= ep->ring_size)
			return true;
	}
	__crpc_copyrpc_ep_lie(
		ep, "released position is not what was sent", ep->tx[WIRE_REQ].sent, released);
	return false;
}

/* A window update: the low bits of the released position. */
static void
update_take(struct crpc_copyrpc_ep *ep, uint32_t units, uint32_t byte_len)
{
	uint32_t known = (uint32_t)(ep->peer_released / WIRE_UNIT);
	uint32_t step = (units - known) & WIRE_IMM_MASK;
	int64_t bytes = (int64_t)step * WIRE_UNIT;

	if (byte_len != 0) {
		__crpc_copyrpc_ep_lie(ep, "window update with data", 0, byte_len);
		return;
	}
	if (step > WIRE_IMM_MASK / 2)
		bytes -= (int64_t)(WIRE_IMM_MASK + 1u) * WIRE_UNIT;
	if (released_take(ep, ep->peer_released + (uint64_t)bytes))
		ep->ctx->stats.updates_received++;
}

/* Load and check a batch's head. Returns false, with the endpoint broken, if it lies. */
static inline bool
batch_check(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len, uint32_t byte_len,
		struct wire_batch *head, uint32_t *at)
{
	uint64_t pos;
	uint32_t off;

	if (crpc_unlikely(len != byte_len)) {
		__crpc_copyrpc_ep_lie(ep, "immediate and bytes written differ", byte_len, len);
		return false;
	}
	if (crpc_unlikely(len < WIRE_HEAD + WIRE_STRIDE_MIN || len > ep->ring_size)) {
		__crpc_copyrpc_ep_lie(ep, "batch length is out of range", ep->ring_size, len);
		return false;
	}
	pos = wire_batch_pos(ep->rx_pos[lane], len, ep->ring_size);
	off = (uint32_t)pos & (ep->ring_size - 1);
	*head = wire_batch_load(ep->rx[lane] + off);
	if (crpc_unlikely(head->magic != WIRE_MAGIC || head->version != WIRE_VERSION ||
			    head->lane != lane)) {
		__crpc_copyrpc_ep_lie(ep, "batch magic, version and lane",
				WIRE_MAGIC | WIRE_VERSION << 16 | (uint32_t)lane << 24,
				head->magic | (uint32_t)head->version << 16 |
						(uint32_t)head->lane << 24);
		return false;
	}
	if (crpc_unlikely(head->epoch != ep->epoch)) {
		__crpc_copyrpc_ep_lie(ep, "epoch", ep->epoch, head->epoch);
		return false;
	}
	if (crpc_unlikely(head->len != len || head->pos != pos)) {
		__crpc_copyrpc_ep_lie(ep, head->len != len ? "batch length" : "batch position",
				head->len != len ? len : pos,
				head->len != len ? head->len : head->pos);
		return false;
	}
	if (crpc_unlikely(head->count == 0 || head->count > (len - WIRE_HEAD) / WIRE_STRIDE_MIN)) {
		__crpc_copyrpc_ep_lie(ep, "message count for the batch's length",
				(len - WIRE_HEAD) / WIRE_STRIDE_MIN, head->count);
		return false;
	}
	*at = off + WIRE_HEAD;
	return released_take(ep, head->released);
}

/* Check one request's head and note it in entry number `number`. */
static inline bool
request_take(struct crpc_copyrpc_ep *ep, const struct wire_msg *msg, uint32_t left, uint64_t number,
		uint32_t end, uint64_t now_ns)
{
	struct req_entry *req = &ep->reqs[number & ep->req_mask];

	if (crpc_unlikely(msg->len > ep->max_msg || wire_stride(msg->len) > left)) {
		__crpc_copyrpc_ep_lie(ep, "request length", crpc_min(ep->max_msg, left), msg->len);
		return false;
	}
	if (crpc_likely(msg->id != 0)) {
		if (crpc_unlikely(msg->arg > ep->max_msg)) {
			__crpc_copyrpc_ep_lie(ep, "largest reply", ep->max_msg, msg->arg);
			return false;
		}
		if (crpc_unlikely(!room_fits(&ep->owed, wire_worst(msg->arg), ep->ring_size))) {
			__crpc_copyrpc_ep_lie(ep, "replies reserved by the caller", ep->ring_size,
					(uint64_t)room_sum(&ep->owed, ep->ring_size) +
							wire_worst(msg->arg));
			return false;
		}
		room_add(&ep->owed, wire_worst(msg->arg));
	}
	req->arrived_ns = now_ns;
	req->id = msg->id;
	req->len = msg->len;
	req->resp_max = msg->arg;
	req->end = end;
	req->state = REQ_ARRIVED;
	return true;
}

/*
 * Note the requests of a batch. They count only once all of them are good: nothing of a batch that
 * lies is ever given to the user.
 */
static void
requests_take(struct crpc_copyrpc_ep *ep, const struct wire_batch *head, uint32_t at,
		uint64_t now_ns)
{
	const uint8_t *ring = ep->rx[WIRE_REQ];
	uint64_t number = ep->req_tail, behind = head->pos + head->len;
	uint32_t left = head->len - WIRE_HEAD, stride, i;
	struct wire_msg msg;

	if (crpc_unlikely(behind - ep->released > ep->ring_size)) {
		__crpc_copyrpc_ep_lie(ep, "request batch beyond the window",
			ep->released + ep->ring_size, behind);
		return;
	}
	for (i = 0; i < head->count; i++, number++) {
		if (crpc_unlikely(left < WIRE_STRIDE_MIN)) {
			__crpc_copyrpc_ep_lie(
				ep, "message within its batch", WIRE_STRIDE_MIN, left);
			return;
		}
		msg = wire_msg_load(ring + at);
		stride = wire_stride(msg.len);
		crpc_prefetch(ring + at + stride + CRPC_CACHE_LINE);
		if (!request_take(ep, &msg, left, number, (uint32_t)behind - left + stride, now_ns))
			return;
		left -= stride;
		at += stride;
	}
	if (crpc_unlikely(left != 0)) {
		__crpc_copyrpc_ep_lie(ep, "bytes behind the last message", 0, left);
		return;
	}
	ep->rx_pos[WIRE_REQ] = behind;
	ep->req_tail = number;
	ep->ctx->stats.requests += head->count;
	ep_mark_ready(ep);
}

/* A batch has arrived. Requests are noted at once; a response batch becomes the current one. */
static void
batch_take(struct crpc_copyrpc_ep *ep, uint32_t imm, uint32_t byte_len, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint32_t kind = imm >> WIRE_IMM_BITS, units = imm & WIRE_IMM_MASK, at;
	struct wire_batch head;

	if (kind == WIRE_IMM_UPDATE) {
		update_take(ep, units, byte_len);
		return;
	}
	if (crpc_unlikely(kind > WIRE_IMM_UPDATE || units > ep->ring_size / WIRE_UNIT)) {
		__crpc_copyrpc_ep_lie(ep, "immediate", ep->ring_size / WIRE_UNIT, imm);
		return;
	}
	if (!batch_check(ep, (enum wire_lane)kind, units * WIRE_UNIT, byte_len, &head, &at))
		return;
	ctx->stats.batches_received++;
	ctx->stats.messages_received += head.count;
	if (kind == WIRE_IMM_REQ) {
		requests_take(ep, &head, at, now_ns);
		return;
	}
	ep->rx_pos[WIRE_RESP] = head.pos + head.len;
	ctx->cur = ep;
	ctx->cur_off = at;
	ctx->cur_end = at - WIRE_HEAD + head.len;
	ctx->cur_left = head.count;
}

/* The response's bytes stay until the next poll: so does their reservation. */
static inline void
slot_end(struct crpc_copyrpc_ep *ep, struct call_slot *slot)
{
	ep->hold += wire_worst(slot->resp_max);
	ep_slot_free(ep, slot);
}

/* Round trip in three: what we waited, what the peer needed, the rest. */
static inline void
split_record(struct crpc_copyrpc_stats *stats, const struct call_slot *slot, uint32_t turn_ns,
		uint64_t now_ns)
{
	uint64_t total = now_ns - slot->call_ns, ours = slot->queue_ns;

	crpc_hist_record(&stats->queue, ours);
	crpc_hist_record(&stats->peer, turn_ns);
	crpc_hist_record(&stats->wire, total > ours + turn_ns ? total - ours - turn_ns : 0);
}

/* One response: complete its call. Returns 1 if *done was filled, 0 if not, -1 if the peer lies. */
static inline int
response_take(struct crpc_copyrpc_ep *ep, const struct wire_msg *msg, const uint8_t *data,
		uint64_t now_ns, struct crpc_done *done)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct call_slot *slot = &ep->slots[msg->id & ctx->slot_mask];
	int32_t status = (int32_t)msg->arg;

	if (crpc_unlikely(slot->id != msg->id || !(slot->state & SLOT_SENT))) {
		ctx->stats.unknown_responses++;
		return 0;
	}
	if (crpc_unlikely(msg->len > slot->resp_max)) {
		__crpc_copyrpc_ep_lie(
			ep, "reply length for what was reserved", slot->resp_max, msg->len);
		return -1;
	}
	if (crpc_unlikely(status != 0 &&
			    (status > 0 || status < WIRE_STATUS_MIN || msg->len != 0))) {
		__crpc_copyrpc_ep_lie(ep, "status of a response", 0, msg->arg);
		return -1;
	}
	if (crpc_unlikely(slot->state & SLOT_EXPIRED)) {
		ctx->stats.late_responses++;
		slot_end(ep, slot);
		return 0;
	}
	done->cookie = slot->cookie;
	done->data = status == 0 ? data : NULL;
	done->len = msg->len;
	done->status = status;
	if (crpc_likely(status == 0))
		split_record(&ctx->stats, slot, msg->turn_ns, now_ns);
	slot_end(ep, slot);
	return 1;
}

/* The messages of the current batch, until it ends or done[] is full. */
static inline uint16_t
responses_parse(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;
	const uint8_t *ring = ep->rx[WIRE_RESP];
	uint32_t off = ctx->cur_off, left, stride;
	struct wire_msg msg;
	uint16_t k = 0;
	int rc;

	while (ctx->cur_left != 0 && k < n) {
		left = ctx->cur_end - off;
		if (crpc_unlikely(left < WIRE_STRIDE_MIN)) {
			__crpc_copyrpc_ep_lie(
				ep, "message within its batch", WIRE_STRIDE_MIN, left);
			return k;
		}
		msg = wire_msg_load(ring + off);
		stride = wire_stride(msg.len);
		if (crpc_unlikely(msg.len > ep->max_msg || stride > left)) {
			__crpc_copyrpc_ep_lie(
				ep, "response length", crpc_min(ep->max_msg, left), msg.len);
			return k;
		}
		crpc_prefetch(ring + off + stride + CRPC_CACHE_LINE);
		rc = response_take(ep, &msg, ring + off + sizeof(msg), now_ns, &done[k]);
		if (crpc_unlikely(rc < 0))
			return k;
		k += (uint16_t)rc;
		off += stride;
		ctx->cur_left--;
	}
	ctx->cur_off = off;
	if (ctx->cur_left == 0) {
		ctx->cur = NULL;
		if (crpc_unlikely(off != ctx->cur_end))
			__crpc_copyrpc_ep_lie(
				ep, "bytes behind the last message", ctx->cur_end, off);
	}
	return k;
}

/* Complete calls from the current batch. */
static uint16_t
responses_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;
	uint16_t k;

	ep_hold_end(ep);
	ep->hold_seq = ctx->poll_seq;
	k = responses_parse(ctx, now_ns, done, n);
	ep->open -= k;
	ctx->stats.completions += k;
	return k;
}

/* Fail the open calls of broken endpoints, as far as done[] has room. */
static uint16_t
broken_take(struct crpc_copyrpc *ctx, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep;
	struct call_slot *slot;
	uint16_t k = 0;

	while (ctx->broken.n != 0) {
		ep = ctx->eps[ctx->broken.head];
		for (; ep->fail_at <= ctx->slot_mask; ep->fail_at++) {
			slot = &ep->slots[ep->fail_at];
			if (slot->state == SLOT_FREE)
				continue;
			if (!(slot->state & SLOT_EXPIRED)) {
				if (k == n)
					return k;
				done[k++] = (struct crpc_done){
						.cookie = slot->cookie, .status = -ECONNRESET};
				ep->open--;
				ctx->stats.completions++;
				ctx->stats.resets++;
			}
			room_sub(&ep->resv, wire_worst(slot->resp_max));
			ep_slot_free(ep, slot);
		}
		ep->flags &= ~EP_BROKEN;
		ctx->broken.head = ep->broken_next;
		ctx->broken.n--;
	}
	return k;
}

/* Expire the overdue calls among the next slots of one endpoint. Returns slots looked at. */
static uint32_t
sweep_ep(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint32_t budget, struct crpc_done *done,
		uint16_t n, uint16_t *filled)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint32_t i, seen = 0;
	struct call_slot *slot;

	for (i = ctx->sweep_slot; i <= ctx->slot_mask && seen < budget && *filled < n;
			i++, seen++) {
		slot = &ep->slots[i];
		if (slot->state != SLOT_QUEUED && slot->state != SLOT_SENT)
			continue;
		if (now_ns - slot->call_ns < ctx->conf.timeout_ns)
			continue;
		slot->state |= SLOT_EXPIRED;
		done[(*filled)++] =
				(struct crpc_done){.cookie = slot->cookie, .status = -ETIMEDOUT};
		ep->open--;
		ctx->stats.completions++;
		ctx->stats.timeouts++;
	}
	ctx->sweep_slot = i;
	return seen;
}

/*
 * Deadlines: every eighth of the timeout a sweep over the slots of endpoints with open calls
 * starts, and each poll carries it on by a bounded number of slots. So a call costs nothing for its
 * deadline.
 */
static uint16_t
sweep(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint32_t budget = SWEEP_SLOTS, seen;
	struct crpc_copyrpc_ep *ep;
	uint16_t k = 0;

	if (!ctx->sweeping) {
		ctx->sweep_ns = now_ns + ctx->conf.timeout_ns / 8;
		ctx->sweep_ep = 0;
		ctx->sweep_slot = 0;
		ctx->sweeping = true;
	}
	while (ctx->sweep_ep < ctx->conf.max_eps) {
		if (budget == 0 || k == n)
			return k;
		ep = ctx->eps[ctx->sweep_ep];
		if (ep != NULL && ep->open != 0 && ep->err == 0) {
			seen = sweep_ep(ep, now_ns, budget, done, n, &k);
			budget -= seen;
			if (ctx->sweep_slot <= ctx->slot_mask)
				continue;
		} else {
			budget--;
		}
		ctx->sweep_ep++;
		ctx->sweep_slot = 0;
	}
	ctx->sweeping = false;
	return k;
}

/* What one completion of the device says. */
static inline void
cqe_take(struct crpc_copyrpc *ctx, const struct crpc_rdma_cqe *cqe, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep;

	if (crpc_unlikely(cqe->qp_id >= ctx->conf.max_eps))
		return;
	ep = ctx->eps[cqe->qp_id];
	if (crpc_unlikely(ep == NULL || ep->err != 0))
		return;
	switch (cqe->type) {
	case CRPC_RDMA_CQE_RECV:
		batch_take(ep, cqe->imm, cqe->byte_len, now_ns);
		break;
	case CRPC_RDMA_CQE_SEND:
		/* only serial numbers that are out can come back */
		if (ep->flush_seq - cqe->wr_id < ep_outstanding(ep))
			ep->done_seq = cqe->wr_id;
		break;
	default:
		crpc_err("endpoint %u (peer %u): queue pair failed: status %d, syndrome 0x%x; the "
			 "peer has gone or refused access: its calls end with -ECONNRESET",
				ep->id, ep->user_id, cqe->status, cqe->syndrome);
		__crpc_copyrpc_ep_break(ep, -ECONNRESET);
		break;
	}
}

/* Work through the device's completions, in their order, as long as done[] has room. */
static uint16_t
device_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	bool polled = false;
	uint16_t k = 0;

	for (;;) {
		if (ctx->cur != NULL)
			k += responses_take(ctx, now_ns, done + k, n - k);
		if (k == n)
			return k;
		if (ctx->cqe_i == ctx->cqe_n) {
			if (polled)
				return k;
			polled = true;
			ctx->cqe_i = 0;
			ctx->cqe_n = crpc_rdma_poll(ctx->dev, ctx->cqe, CRPC_BURST_MAX);
			if (ctx->cqe_n == 0)
				return k;
		}
		cqe_take(ctx, &ctx->cqe[ctx->cqe_i++], now_ns);
	}
}

uint16_t
crpc_copyrpc_poll(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t k;

	copyrpc_owner_check(ctx);
	ctx->poll_seq++;
	k = device_take(ctx, now_ns, done, n);
	if (crpc_unlikely(ctx->broken.n != 0))
		k += broken_take(ctx, done + k, n - k);
	if (k < n && (ctx->sweeping || (int64_t)(now_ns - ctx->sweep_ns) >= 0))
		k += sweep(ctx, now_ns, done + k, n - k);
	if (ctx->dirty.n != 0)
		crpc_copyrpc_flush(ctx, now_ns);
	return k;
}

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

uint16_t
crpc_copyrpc_recv(struct crpc_copyrpc *ctx, struct crpc_req *req, uint16_t n)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *entry;
	uint32_t start;
	uint16_t k = 0;

	copyrpc_owner_check(ctx);
	while (ctx->ready.n != 0 && k < n) {
		ep = ctx->eps[ctx->ready.head];
		for (; k < n && ep->turn < RECV_TURN && ep->req_next != ep->req_tail; k++) {
			entry = &ep->reqs[ep->req_next & ep->req_mask];
			entry->state = REQ_OPEN;
			start = entry->end - wire_stride(entry->len);
			req[k].token = token_make(ep->id, ep->req_next);
			req[k].data = ep->rx[WIRE_REQ] + (start & (ep->ring_size - 1)) +
				      sizeof(struct wire_msg);
			req[k].len = entry->len;
			req[k].peer = ep->user_id;
			ep->req_next++;
			ep->turn++;
		}
		if (ep->turn == RECV_TURN || ep->req_next == ep->req_tail)
			ready_next(ctx, ep);
	}
	return k;
}
