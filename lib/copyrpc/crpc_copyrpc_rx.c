/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives: completions of the device, released positions, heads of batches, requests.
 *
 * Ring memory is the peer's to write at any time. Every head is loaded once (wire_*_load()),
 * checked against what only we know (positions, the immediate, the size of the ring, our own
 * calls), and only the copy is used. Each loop is bounded by a length that was checked before.
 */
#include "copyrpc_large.h"
#include "copyrpc_modes.h"

/* A value that a correct peer sends. */
static inline bool
is_true(struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found)
{
	if (crpc_likely(expected == found))
		return true;
	return __crpc_copyrpc_lie(ep, rule, expected, found);
}

/* The peer has released our request lane up to here; repeated and old positions change nothing. */
static bool
released_take(struct crpc_copyrpc_ep *ep, uint64_t released)
{
	struct conn *conn = ep->conn;
	uint64_t step = released - conn->peer_released;

	if (crpc_likely(step % WIRE_UNIT == 0)) {
		if (crpc_likely(step <= ep->tx[WIRE_REQ].sent - conn->peer_released)) {
			conn->peer_released = released;
			return true;
		}
		/* where it has two ways, one may be slower than the other by any amount */
		if ((int64_t)step < 0 &&
			(0 - step <= ep->ring_size || conn->in_memory ||
				conn->conf.flow == CRPC_COPYRPC_FLOW_READ))
			return true;
	}
	return is_true(
		ep, "released position is not what was sent", ep->tx[WIRE_REQ].sent, released);
}

bool
__crpc_copyrpc_word_take(struct crpc_copyrpc_ep *ep, uint64_t released)
{
	return (int64_t)(released - ep->conn->peer_released) <= 0 || released_take(ep, released);
}

/* A window update: the low bits of the released position. */
static void
update_take(struct crpc_copyrpc_ep *ep, uint32_t units, uint32_t byte_len)
{
	uint32_t known = (uint32_t)(ep->conn->peer_released / WIRE_UNIT);
	/* signed: the bits above are gone */
	int32_t step = (int32_t)((units - known) << (32 - WIRE_IMM_BITS)) >> (32 - WIRE_IMM_BITS);

	if (is_true(ep, "window update with data", 0, byte_len) &&
		released_take(ep, ep->conn->peer_released + (uint64_t)((int64_t)step * WIRE_UNIT)))
		ep->ctx->stats.updates_received++;
}

/* Load and check a batch's head. False, with the endpoint broken: it lies. */
static bool
batch_check(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len, uint32_t byte_len,
	struct wire_batch *head)
{
	uint32_t room = len - WIRE_HEAD - ep->trailer;
	uint64_t pos;

	if (!is_true(ep, "immediate and bytes written differ", byte_len, len) ||
		!is_true(ep, "batch length is out of range",
			crpc_min(crpc_max(len, WIRE_HEAD + WIRE_STRIDE_MIN + ep->trailer),
				ep->ring_size),
			len))
		return false;
	pos = wire_batch_pos(ep->conn->rx_pos[lane], len, ep->ring_size);
	*head = wire_batch_load(ep->rx[lane] + (pos & (ep->ring_size - 1)));
	return is_true(ep, "batch magic, version and lane",
		       WIRE_MAGIC | WIRE_VERSION << 16 | (uint32_t)lane << 24,
		       head->magic | (uint32_t)head->version << 16 | (uint32_t)head->lane << 24) &&
		is_true(ep, "epoch", ep->conn->epoch, head->epoch) &&
		is_true(ep, "batch length", len, head->len) &&
		is_true(ep, "batch position", pos, head->pos) &&
		is_true(ep, "message count for the batch's length",
			crpc_min(crpc_max(head->count, 1), room / WIRE_STRIDE_MIN), head->count) &&
		released_take(ep, head->released);
}

/*
 * Consecutive requests that allow the same largest reply. What they need of the response ring is
 * computed and counted once per run: that saves 25 instructions of a call, a tenth.
 */
struct run {
	uint64_t first; /* number of the first request that is not yet counted in peer_resv */
	uint32_t resp_max;
	uint32_t len_end; /* a shorter request continues the run; 0: none does */
	uint32_t reply_end, worst;
};

/* Count what a run needs. False: its caller has reserved more room than it has. */
static bool
run_end(struct crpc_copyrpc_ep *ep, struct run *run, uint64_t end)
{
	struct conn *conn = ep->conn;
	uint64_t n = end - run->first, bytes = n * run->worst;

	/* room for the largest one again is checked with the first of them */
	if (n != 0 && (!room_fits(&conn->peer_resv, run->worst) || bytes > conn->peer_resv.left))
		return __crpc_copyrpc_lie(ep, "replies reserved by the caller", ep->ring_size,
			room_sum(&conn->peer_resv) + bytes);
	conn->peer_resv.left -= bytes;
	run->first = end;
	return true;
}

/* A request that does not continue a run; @p left bytes of the batch follow. False: it lies. */
static crpc_noinline bool
request_check(struct crpc_copyrpc_ep *ep, struct run *run, uint32_t resp_max, size_t left,
	uint64_t number)
{
	struct req_entry *req = &ep->reqs[number & ep->req_mask];
	bool large = (req->len & WIRE_LARGE) != 0, notification = resp_max == WIRE_ONEWAY;

	if (left < WIRE_STRIDE_MIN)
		return __crpc_copyrpc_lie(ep, "message within its batch", WIRE_STRIDE_MIN, left);
	if (!large && (req->len > ep->max_msg || wire_stride(req->len) > left))
		return __crpc_copyrpc_lie(
			ep, "request length", crpc_min(ep->max_msg, left), req->len);
	if (!run_end(ep, run, number))
		return false;
	large |= resp_max > ep->max_msg && !notification;
	run->resp_max = resp_max;
	run->len_end = large ? 0 : ep->max_msg + 1;
	req->reply_end = run->reply_end = notification ? 0 : resp_max + 1;
	req->worst = run->worst = notification ? 0 : ep_worst(ep, resp_max);
	return !large || __crpc_copyrpc_large_check(ep, number, req);
}

/*
 * Note the requests of a batch. They count only once all of them are good: nothing of a batch that
 * lies is ever given to the user. A head is loaded before it is known to be within the batch, but
 * then it still is within our memory: other rings follow this one.
 */
static crpc_noinline void
requests_take(struct crpc_copyrpc_ep *ep, const struct wire_batch *head, uint64_t now_ns)
{
	const uint8_t *start = ep->rx[WIRE_REQ] + (head->pos & (ep->ring_size - 1));
	const uint8_t *p = start + WIRE_HEAD, *end = start + head->len - ep->trailer, *next;
	uint64_t number = ep->req_tail, last = number + head->count;
	uint64_t behind = head->pos + head->len;
	uint32_t pos = (uint32_t)head->pos - (uint32_t)(uintptr_t)start;
	struct run run = {.first = number};
	struct req_entry *req = NULL;
	struct wire_msg msg;

	if (crpc_unlikely(behind - ep->conn->released > ep->ring_size)) {
		__crpc_copyrpc_lie(ep, "request batch beyond the window",
			ep->conn->released + ep->ring_size, behind);
		return;
	}
	for (; number != last; number++, p = next) {
		req = &ep->reqs[number & ep->req_mask];
		msg = wire_msg_load(p);
		next = p + wire_stride(msg.len);
		req->data = p + sizeof(msg);
		req->id = msg.id;
		req->len = msg.len;
		req->arrived = (uint32_t)now_ns;
		req->reply_end = run.reply_end;
		req->worst = run.worst;
		if (crpc_unlikely(
			    msg.arg != run.resp_max || msg.len >= run.len_end || next > end)) {
			next = p + wire_msg_bytes(&msg);
			if (!request_check(ep, &run, msg.arg, (size_t)(end - p), number))
				return;
		}
		req->end = (uint32_t)(uintptr_t)next + pos;
	}
	if (!is_true(ep, "bytes behind the last message", 0, (uint64_t)(end - p)) ||
		!run_end(ep, &run, number))
		return;
	req->end = (uint32_t)behind; /* with the seal */
	ep->conn->rx_pos[WIRE_REQ] = behind;
	ep->req_tail = number;
	ep_list_add(ep, ready);
}

void
__crpc_copyrpc_batch_take(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len,
	uint32_t byte_len, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct wire_batch head;

	if (!batch_check(ep, lane, len, byte_len, &head))
		return;
	ctx->stats.batches_received++;
	ctx->stats.messages_received += head.count;
	if (lane == WIRE_REQ) {
		requests_take(ep, &head, now_ns);
		return;
	}
	if (crpc_unlikely(head.count > ep->calls.size)) {
		__crpc_copyrpc_lie(ep, "responses for open calls", ep->calls.size, head.count);
		return;
	}
	ep->conn->rx_pos[WIRE_RESP] = head.pos + head.len;
	ctx->cur = ep;
	ctx->cur_off = ((uint32_t)head.pos & (ep->ring_size - 1)) + WIRE_HEAD;
	ctx->cur_end = ctx->cur_off - WIRE_HEAD + head.len - ep->trailer;
	ctx->cur_left = head.count;
}

/* What an immediate announces. */
static inline void
imm_take(struct crpc_copyrpc_ep *ep, uint32_t imm, uint32_t byte_len, uint64_t now_ns)
{
	uint32_t kind = imm >> WIRE_IMM_BITS, units = imm & WIRE_IMM_MASK;

	if (kind == WIRE_IMM_UPDATE)
		update_take(ep, units, byte_len);
	else if (kind == WIRE_IMM_ALIVE)
		__crpc_copyrpc_alive_take(ep, units, byte_len);
	else if (crpc_unlikely(units > ep->ring_size / WIRE_UNIT || ep->conn->in_memory))
		__crpc_copyrpc_lie(ep, "immediate", ep->ring_size / WIRE_UNIT, imm);
	else
		__crpc_copyrpc_batch_take(
			ep, (enum wire_lane)kind, units * WIRE_UNIT, byte_len, now_ns);
}

/* A signalled work request is done. Returns 1 if *done was filled. */
static inline uint16_t
send_take(struct crpc_copyrpc_ep *ep, uint32_t wr_id, struct crpc_done *done)
{
	uint32_t behind;

	switch (wr_id >> WR_KIND_SHIFT) {
	case WR_FLUSH:
		/* only serial numbers that are outstanding can complete */
		behind = (ep->flush_seq - wr_id) & WR_SERIAL_MASK;
		if (behind < ep_outstanding(ep))
			ep->done_seq = ep->flush_seq - behind;
		return 0;
	case WR_POSITION:
		__crpc_copyrpc_position_take(ep);
		return 0;
	default:
		return __crpc_copyrpc_onesided_take(ep, done);
	}
}

uint16_t
__crpc_copyrpc_cqe_take(struct crpc_copyrpc *ctx, const struct crpc_rdma_cqe *cqe, uint64_t now_ns,
	struct crpc_done *done)
{
	struct crpc_copyrpc_ep *ep;

	if (crpc_unlikely(cqe->qp_id >= ctx->conf.max_eps))
		return 0;
	ep = ctx->eps[cqe->qp_id];
	if (crpc_unlikely(ep == NULL || ep->err != 0))
		return 0;
	switch (cqe->type) {
	case CRPC_RDMA_CQE_RECV:
		imm_take(ep, cqe->imm, cqe->byte_len, now_ns);
		return 0;
	case CRPC_RDMA_CQE_SEND:
		return send_take(ep, cqe->wr_id, done);
	default:
		crpc_err("endpoint %u (peer %u): queue pair failed: status %d, syndrome 0x%x; the "
			 "peer has gone or refused access: its calls end with -ECONNRESET",
			ep->id, ep->user_id, cqe->status, cqe->syndrome);
		__crpc_copyrpc_break(ep, -ECONNRESET);
		return 0;
	}
}

void
__crpc_copyrpc_given(struct crpc_copyrpc_ep *ep)
{
	if (ep->conn->in_memory)
		__crpc_copyrpc_memory_given(ep);
	if (ep->large != NULL)
		__crpc_copyrpc_large_given(ep);
}
