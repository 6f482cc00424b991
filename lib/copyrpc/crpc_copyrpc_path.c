/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The default path, top to bottom: call, poll, recv, reply.
 *
 * What a message needs only sometimes is behind a function of another file: it opens a batch, is
 * long or refused (reserve); a batch is posted (lane); completions of the device, heads of batches
 * and requests are checked (rx); it is larger than max_msg (large); an endpoint is broken (ep) or
 * its memory is looked at (memory).
 */
#include "copyrpc_path.h"
#include "crpc_tel.h"
#include "rpc_copy.h"

/** Polls that give a whole burst, of which one sends. */
#define BURSTS_JOINED 4

/* The data is copied first: what follows it needs so few registers that none is saved. */
int
crpc_copyrpc_call(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct tx_lane *lane = &ep->tx[WIRE_REQ];
	struct wire_msg *msg;

	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	/* only an endpoint that works has an open batch with a limit */
	if (crpc_unlikely(!rpc_copy_is_short(len) || lane->next + wire_stride(len) > lane->limit ||
		    resp_max != ep->last_resp_max || ep->last_worst > ep->resv.left ||
		    ep->calls.free == NULL))
		return __crpc_copyrpc_call_slow(ep, now_ns, buf, len, resp_max, cookie);
	msg = lane_append(lane, wire_stride(len));
	rpc_copy_short(msg + 1, buf, len);
	msg->id = call_take(ep, now_ns, resp_max, ep->last_worst, cookie)->call.id;
	msg->len = len;
	msg->arg = resp_max;
	msg->turn_ns = 0;
	return 0;
}

/*
 * Consecutive responses that share call time, batch, status and the peer's time, as both sides read
 * the clock once per turn. What is equal is checked, and the parts of the round trip are recorded,
 * once per run: that saves 60 instructions of a call, a fifth.
 */
struct run {
	uint64_t arg_turn; /* of the responses */
	uint64_t deadline_ns;
	uint32_t batch;
	uint32_t resp_max; /* UINT32_MAX: no response continues it */
	uint32_t worst;
	uint32_t hold; /* of this run and those before it */
	bool timed;
	const struct crpc_done *first; /* not yet recorded and held from here on */
	uint64_t now_ns;
};

/* Round trip in three: what we waited, what the peer needed, the rest. */
static void
run_end(struct crpc_copyrpc_ep *ep, struct run *run, const struct crpc_done *end)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;
	uint32_t n = (uint32_t)(end - run->first);
	uint64_t call_ns, queue, turn, total;

	if (n == 0)
		return;
	run->first = end;
	run->hold += n * run->worst;
	if (!run->timed || ep->ctx->untimed)
		return;
	call_ns = run->deadline_ns - ep->ctx->conf.timeout_ns;
	queue = ep->batch_ns[run->batch & ep->batch_mask] - call_ns;
	turn = run->arg_turn >> 32;
	total = run->now_ns - call_ns;
	crpc_hist_record_n(&stats->queue, queue, n);
	crpc_hist_record_n(&stats->peer, turn, n);
	crpc_hist_record_n(&stats->wire, total > queue + turn ? total - queue - turn : 0, n);
}

/* The peer has the request of this slot if its batch is older than those that wait. */
static bool
slot_is_sent(const struct crpc_copyrpc_ep *ep, const struct call_slot *slot)
{
	return (slot->areas == 0 || !__crpc_copyrpc_large_waits(ep, slot)) &&
		ep->batch - slot->batch >= ep->batch - ep->batch_sent;
}

/*
 * A response that does not continue a run. Returns 1 if done was filled, 0 if nothing completes, -1
 * if the peer lies; a response like this one may continue the run that begins here.
 */
static crpc_noinline int
response_take(struct crpc_copyrpc_ep *ep, struct wire_msg msg, const void *data, struct run *run,
	struct crpc_done *done)
{
	struct call_slot *slot = (struct call_slot *)rpc_calls_find(&ep->calls, msg.id);
	uint32_t len = msg.len & ~WIRE_LARGE, resp_max;
	bool large = len != msg.len, complete;

	run_end(ep, run, done);
	run->resp_max = UINT32_MAX;
	if (slot == NULL || !slot_is_sent(ep, slot)) {
		ep->ctx->stats.rpc.malformed++;
		return 0;
	}
	resp_max = slot->resp_max & ~WIRE_LARGE;
	if (len > resp_max || (len > ep->max_msg) != large) {
		__crpc_copyrpc_lie(ep, "reply length for what was reserved", resp_max, len);
		return -1;
	}
	if (msg.arg != 0 && (msg.arg < (uint32_t)WIRE_STATUS_MIN || len != 0)) {
		__crpc_copyrpc_lie(ep, "status of a response", 0, msg.arg);
		return -1;
	}
	/* what was sent before the newest requests has arrived, as they have */
	if (slot->batch == ep->batch_sent && (int32_t)(ep->req_seq - ep->done_seq) > 0)
		ep->done_seq = ep->req_seq;
	run->arg_turn = msg.arg_turn;
	run->deadline_ns = slot->call.deadline_ns;
	run->batch = slot->batch;
	run->worst = slot_worst(ep, slot);
	/* only successes are timed; and not those of batches so old that their time is forgotten */
	run->timed = msg.arg == 0 && ep->batch_sent - slot->batch <= ep->batch_mask &&
		run->deadline_ns < RPC_CANCELED;
	if (run->timed)
		run->resp_max = resp_max;
	if (slot->areas != 0)
		data = __crpc_copyrpc_large_end(ep, slot, large, data);
	complete = rpc_calls_reply(&ep->calls, &slot->call, msg.arg == 0 ? data : NULL, len,
		(int32_t)msg.arg, &ep->ctx->stats.rpc, done);
	if (!complete) /* its bytes lie among those that the user may read */
		run->hold += run->worst;
	return complete;
}

/* Complete calls from the current batch, until it ends or done[] is full. */
static crpc_noinline uint16_t
responses_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;
	const uint8_t *p = ep->rx[WIRE_RESP] + ctx->cur_off, *next;
	const uint8_t *end = ep->rx[WIRE_RESP] + ctx->cur_end;
	struct crpc_done *d = done;
	uint32_t turn = (uint32_t)crpc_min(ctx->cur_left, n), mask = ep->calls.mask, len;
	struct run run = {.first = done, .now_ns = now_ns};
	struct call_slot *slot;
	struct wire_msg msg;
	int rc = 0;

	ctx->cur_left -= turn;
	for (; turn != 0; turn--, p = next) {
		/* within our memory even if it is not within the batch: other rings follow */
		msg = wire_msg_load(p);
		len = msg.len;
		next = p + wire_stride(len);
		slot = &ep->slots[msg.id & mask];
		if (crpc_likely(next <= end && slot->call.id == msg.id &&
			    msg.arg_turn == run.arg_turn &&
			    slot->call.deadline_ns == run.deadline_ns && slot->batch == run.batch &&
			    slot->resp_max == run.resp_max && len <= run.resp_max)) {
			rpc_calls_fill(&ep->calls, &slot->call, p + sizeof(msg), len, 0, d++);
			rpc_calls_free_first(&ep->calls, &slot->call);
			continue;
		}
		next = p + wire_msg_bytes(&msg);
		if (next > end) {
			__crpc_copyrpc_lie(ep, "response length", (uint64_t)(end - p), len);
			break;
		}
		rc = response_take(ep, msg, p + sizeof(msg), &run, d);
		if (rc < 0)
			break;
		d += rc;
	}
	run_end(ep, &run, d);
	n = (uint16_t)(d - done);
	ctx->sweep.taken += n;
	ep->hold += run.hold;
	if (run.hold != 0)
		ep_list_add(ep, held);
	if (crpc_unlikely(ep->err != 0))
		return n; /* there is no current batch any more */
	ctx->cur_off = (uint32_t)(p - ep->rx[WIRE_RESP]);
	if (ctx->cur_left != 0)
		return n;
	ctx->cur = NULL;
	if (crpc_unlikely(p != end))
		__crpc_copyrpc_lie(ep, "bytes behind the last message", 0, (uint64_t)(end - p));
	return n;
}

/* The last poll's completions may be overwritten now: take their bytes out of the reservations. */
static inline void
holds_end(struct crpc_copyrpc *ctx)
{
	struct crpc_copyrpc_ep *ep;

	while ((ep = TAILQ_FIRST(&ctx->held)) != NULL) {
		ep_list_del(ep, held);
		ep->resv.left += ep->hold;
		ep->hold = 0;
		if (crpc_unlikely(ep->given_matters))
			__crpc_copyrpc_given(ep);
	}
}

/*
 * Completions of the device, in their order, then a look at each ring that is looked at, as long as
 * done[] has room. What is left is first the next time.
 */
static uint16_t
arrivals_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	bool polled = false;
	uint16_t k = 0;

	for (;;) {
		while (ctx->cur != NULL && k != n)
			k += responses_take(ctx, now_ns, done + k, n - k);
		if (k == n)
			return k;
		if (ctx->cqe_i != ctx->cqe_n) {
			k += __crpc_copyrpc_cqe_take(
				ctx, &ctx->cqe[ctx->cqe_i++], now_ns, done + k);
		} else if (crpc_unlikely(ctx->memory_at != NULL)) {
			__crpc_copyrpc_memory_look(ctx, now_ns);
		} else if (!polled) {
			polled = true;
			ctx->cqe_i = 0;
			ctx->cqe_n = crpc_rdma_poll(ctx->dev, ctx->cqe, CRPC_BURST_MAX);
			/* and the burst itself, of which nothing is taken yet */
			rpc_sweep_saw(&ctx->sweep, ctx->cqe_n,
				CRPC_BURST_MAX +
					(uint64_t)ctx->neps *
						(ctx->conf.sq_depth + ctx->conf.rq_depth));
			ctx->memory_at = TAILQ_FIRST(&ctx->memory);
		} else {
			return k;
		}
	}
}

/* Calls that end without a reply: of broken endpoints, by their deadline, canceled. */
static inline uint16_t
ends_take(
	struct crpc_copyrpc *ctx, uint64_t now_ns, bool drained, struct crpc_done *done, uint16_t n)
{
	uint16_t k = 0;

	if (crpc_unlikely(!TAILQ_EMPTY(&ctx->broken)))
		k = __crpc_copyrpc_broken_take(ctx, done, n);
	return k + rpc_sweep_turn(&ctx->sweep, now_ns, drained, done + k, n - k);
}

/*
 * After a whole burst more is there: what the user makes of it goes in one batch with what it makes
 * of the next bursts, of BURSTS_JOINED at most.
 */
static inline bool
flush_waits(struct crpc_copyrpc *ctx, uint16_t k)
{
	if (k == CRPC_BURST_MAX && ++ctx->bursts < BURSTS_JOINED)
		return true;
	ctx->bursts = 0;
	return false;
}

uint16_t
crpc_copyrpc_poll(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t k = 0;
	bool drained;

	crpc_owner_check(&ctx->owner, "copyrpc context");
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	holds_end(ctx);
	if (crpc_unlikely(ctx->full)) /* replies do not leave them out */
		k = ends_take(ctx, now_ns, false, done, n);
	k += arrivals_take(ctx, now_ns, done + k, n - k);
	/* a poll of the device that was full may have left replies there */
	drained = k < n && ctx->cqe_n < CRPC_BURST_MAX;
	k += ends_take(ctx, now_ns, drained, done + k, n - k);
	ctx->full = k == n || !drained;
	ctx->stats.rpc.completions += k;
	if (crpc_unlikely(now_ns >= ctx->alive_ns))
		__crpc_copyrpc_alive_turn(ctx, now_ns);
	if (!TAILQ_EMPTY(&ctx->dirty) && !flush_waits(ctx, k))
		__crpc_copyrpc_flush(ctx, now_ns);
	if (crpc_unlikely(crpc_tel_asked(ctx->tel)))
		__crpc_copyrpc_tel_answer(ctx);
	return k;
}

/* Give the next requests of one endpoint, at most n. */
static inline void
recv_ep(struct crpc_copyrpc_ep *ep, struct crpc_req *req, uint32_t n)
{
	uint64_t number = ep->req_next, last = number + n;
	struct req_entry *entry;

	ep->turn += n;
	ep->req_next = last;
	for (; number != last; number++, req++) {
		entry = &ep->reqs[number & ep->req_mask];
		req->data = entry->data;
		req->len = entry->len;
		req->peer = ep->user_id;
		req->token = entry->token = token_make(ep->id, number);
	}
}

uint16_t
crpc_copyrpc_recv(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	struct crpc_copyrpc_ep *ep;
	uint64_t most;
	uint16_t k = 0;

	crpc_owner_check(&ctx->owner, "copyrpc context");
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	while (k < n && (ep = TAILQ_FIRST(&ctx->ready)) != NULL) {
		most = crpc_min(RECV_TURN - ep->turn, ep->req_tail - ep->req_next);
		most = crpc_min(most, n - k);
		recv_ep(ep, req + k, (uint32_t)most);
		k += (uint16_t)most;
		if (ep->turn != RECV_TURN && ep->req_next != ep->req_tail)
			break;
		ep->turn = 0;
		ep_list_del(ep, ready);
		if (ep->req_next != ep->req_tail)
			ep_list_add(ep, ready);
	}
	ctx->stats.rpc.requests += k;
	return k;
}

int
crpc_copyrpc_reply(
	struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	struct crpc_copyrpc_ep *ep;
	struct req_entry *req = token_find(ctx, token, &ep);
	struct tx_lane *lane;
	struct wire_msg *msg;

	crpc_owner_check(&ctx->owner, "copyrpc context");
	if (crpc_unlikely(req == NULL))
		return -ENOENT;
	lane = &ep->tx[WIRE_RESP];
	if (crpc_unlikely(!rpc_copy_is_short(len) || lane->next + wire_stride(len) > lane->limit ||
		    len >= req->reply_end))
		return __crpc_copyrpc_reply_slow(ep, req, now_ns, buf, len);
	msg = lane_append(lane, wire_stride(len));
	rpc_copy_short(msg + 1, buf, len);
	msg->id = req->id;
	msg->len = len;
	msg->arg = 0;
	msg->turn_ns = (uint32_t)now_ns - req->arrived;
	lane->open.resv += req->worst;
	req_end(ctx, req);
	return 0;
}
