/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: completions of the device, arrived batches, completions of calls, requests.
 *
 * Ring memory is the peer's to write at any time. Every head is loaded once (wire_*_load()),
 * checked against what only we know (positions, the immediate, the size of the ring, our own
 * calls), and only the copy is used. Each loop is bounded by a length that was checked before.
 */
#include "copyrpc_lane.h"
#include "crpc_dma.h"

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
		/*
		 * where news has two ways, that of one may be older than the other's by any amount
		 */
		if ((int64_t)step < 0 && (0 - step <= ep->ring_size || ep->memory ||
							 ep->flow == CRPC_COPYRPC_FLOW_READ))
			return true;
	}
	__crpc_copyrpc_ep_lie(
		ep, "released position is not what was sent", ep->tx[WIRE_REQ].sent, released);
	return false;
}

/* The same from a word of memory, which may be as old as the connection: only newer news counts. */
static inline bool
word_take(struct crpc_copyrpc_ep *ep, uint64_t released)
{
	return (int64_t)(released - ep->peer_released) <= 0 || released_take(ep, released);
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
	uint32_t off, room;
	uint64_t pos;

	if (crpc_unlikely(len != byte_len)) {
		__crpc_copyrpc_ep_lie(ep, "immediate and bytes written differ", byte_len, len);
		return false;
	}
	if (crpc_unlikely(len < WIRE_HEAD + WIRE_STRIDE_MIN + ep->trailer || len > ep->ring_size)) {
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
	room = len - WIRE_HEAD - ep->trailer;
	if (crpc_unlikely(head->count == 0 || head->count > room / WIRE_STRIDE_MIN)) {
		__crpc_copyrpc_ep_lie(ep, "message count for the batch's length",
				room / WIRE_STRIDE_MIN, head->count);
		return false;
	}
	*at = off + WIRE_HEAD;
	return released_take(ep, head->released);
}

/* Why a request does not fit its batch. */
static crpc_noinline void
request_lie(struct crpc_copyrpc_ep *ep, uint64_t w0, size_t left)
{
	if (left < WIRE_STRIDE_MIN)
		__crpc_copyrpc_ep_lie(ep, "message within its batch", WIRE_STRIDE_MIN, left);
	else
		__crpc_copyrpc_ep_lie(
			ep, "request length", crpc_min(ep->max_msg, left), w0 >> 32);
}

/* Requests that follow each other and ask for the same largest reply. */
struct asked {
	uint64_t w1; /* second word of their heads */
	uint32_t reply_end, worst;
	const struct req_entry *first; /* not yet counted in owed from here on */
};

/* Count a run's replies in. False: their caller has reserved more room than it has. */
static bool
asked_end(struct crpc_copyrpc_ep *ep, struct asked *asked, const struct req_entry *end)
{
	uint64_t n = (uint64_t)(end - asked->first) & ep->req_mask;

	asked->first = end;
	/* room for the largest one again is asked for with the first of them */
	if (n != 0 && (!__crpc_copyrpc_room_fits(&ep->owed, asked->worst, ep->ring_size) ||
				      n * asked->worst > ep->owed.left)) {
		__crpc_copyrpc_ep_lie(ep, "replies reserved by the caller", ep->ring_size,
				room_sum(&ep->owed, ep->ring_size) + n * asked->worst);
		return false;
	}
	ep->owed.left -= n * asked->worst;
	return true;
}

/* A request that is not like the one before it. Sets where the next one is. False: it lies. */
static crpc_noinline bool
request_check(struct crpc_copyrpc_ep *ep, const struct req_entry *req, const uint8_t *p,
		const uint8_t *end, const uint8_t **next, struct asked *asked, uint64_t w0,
		uint64_t w1)
{
	uint32_t len = (uint32_t)(w0 >> 32), resp_max = (uint32_t)w1;
	uint32_t index = (uint32_t)(req - ep->reqs) - (uint32_t)ep->req_tail;
	bool oneway = resp_max == WIRE_ONEWAY;
	bool large = (len & WIRE_LARGE) || (resp_max > ep->max_msg && !oneway);

	*next = p + (len & WIRE_LARGE ? WIRE_STRIDE_MIN : wire_stride(len));
	if (*next > end || (!(len & WIRE_LARGE) && len > ep->max_msg)) {
		request_lie(ep, w0, (size_t)(end - p));
		return false;
	}
	if (!asked_end(ep, asked, req))
		return false;
	if (large && !__crpc_copyrpc_large_check(
				     ep, ep->req_tail + (index & ep->req_mask), len, resp_max))
		return false;
	/* a large one is unlike any that follows; no other request has a bit there */
	asked->w1 = w1 | (uint64_t)large << 63;
	asked->reply_end = oneway ? 0 : (uint32_t)crpc_min(resp_max, ep->max_msg) + 1;
	asked->worst = oneway ? 0 : (uint32_t)ep_worst(ep, resp_max);
	return true;
}

/*
 * Note the requests of a batch. They count only once all of them are good: nothing of a batch that
 * lies is ever given to the user. A head is loaded before it is known to be within the batch, but
 * then it still is within our memory: other rings follow this one.
 */
static crpc_noinline void
requests_take(struct crpc_copyrpc_ep *ep, const struct wire_batch *head, uint32_t at,
		uint64_t now_ns)
{
	const uint8_t *p = ep->rx[WIRE_REQ] + at, *next;
	const uint8_t *end = p + head->len - WIRE_HEAD - ep->trailer;
	uint64_t number = ep->req_tail, behind = head->pos + head->len, w0, w1;
	uint32_t pos = (uint32_t)(head->pos + WIRE_HEAD) - (uint32_t)(uintptr_t)p;
	uint32_t left = head->count, mask = ep->req_mask, max = ep->max_msg;
	struct req_entry *req = &ep->reqs[number & mask], *last = &ep->reqs[mask];
	/* w1 of the first one: something that it is not */
	struct asked asked = {.w1 = ~wire_word(p + 8), .first = req};

	if (crpc_unlikely(behind - ep->released > ep->ring_size)) {
		__crpc_copyrpc_ep_lie(ep, "request batch beyond the window",
				ep->released + ep->ring_size, behind);
		return;
	}
	for (; left != 0; left--, p = next, req = req == last ? ep->reqs : req + 1) {
		w0 = wire_word(p);
		w1 = wire_word(p + 8);
		next = p + msg_stride((uint32_t)(w0 >> 32), true);
		/* the same reply, and not empty: then its stride was right */
		if (crpc_unlikely(next > end || w1 != asked.w1 ||
				    (uint32_t)(w0 >> 32) - 1 >= max) &&
				!request_check(ep, req, p, end, &next, &asked, w0, w1))
			return;
		req->data = p + sizeof(struct wire_msg);
		memcpy(&req->id, &w0, sizeof(w0));
		memcpy(&req->reply_end, &asked.reply_end, sizeof(uint64_t));
		req->arrived = (uint32_t)now_ns;
		req->end = (uint32_t)(uintptr_t)next + pos;
	}
	if (crpc_unlikely(p != end)) {
		__crpc_copyrpc_ep_lie(
			ep, "bytes behind the last message", 0, (uint64_t)(end - p));
		return;
	}
	if (!asked_end(ep, &asked, req))
		return;
	(req == ep->reqs ? last : req - 1)->end = (uint32_t)behind; /* with the seal */
	if (crpc_unlikely(ep->large.arrived != 0)) {
		req = &ep->reqs[ep->large.req_at[WIRE_REQ] & mask];
		req->data = __crpc_copyrpc_large_area(ep, LARGE_RX_REQ);
		req->len = ep->large.arrived;
		ep->large.arrived = 0;
	}
	ep->rx_pos[WIRE_REQ] = behind;
	ep->req_tail = number + head->count;
	ep->ctx->stats.requests += head->count;
	ep_mark_ready(ep);
}

_Static_assert(offsetof(struct req_entry, len) == offsetof(struct req_entry, id) + 4,
		"as in a message's head: they are copied in one move");
_Static_assert(offsetof(struct req_entry, worst) == offsetof(struct req_entry, reply_end) + 4 &&
				offsetof(struct asked, worst) ==
						offsetof(struct asked, reply_end) + 4,
		"they are copied in one move");

/* A batch has arrived. Requests are noted at once; a response batch becomes the current one. */
static void
batch_take(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len, uint32_t byte_len,
		uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct wire_batch head;
	uint32_t at;

	if (!batch_check(ep, lane, len, byte_len, &head, &at))
		return;
	ctx->stats.batches_received++;
	ctx->stats.messages_received += head.count;
	if (lane == WIRE_REQ) {
		requests_take(ep, &head, at, now_ns);
		return;
	}
	ep->rx_pos[WIRE_RESP] = head.pos + head.len;
	ctx->cur = ep;
	ctx->cur_off = at;
	ctx->cur_end = at - WIRE_HEAD + head.len - ep->trailer;
	ctx->cur_left = head.count;
}

/* What an immediate announces. */
static inline void
imm_take(struct crpc_copyrpc_ep *ep, uint32_t imm, uint32_t byte_len, uint64_t now_ns)
{
	uint32_t kind = imm >> WIRE_IMM_BITS, units = imm & WIRE_IMM_MASK;

	if (kind == WIRE_IMM_UPDATE) {
		update_take(ep, units, byte_len);
		return;
	}
	if (kind == WIRE_IMM_ALIVE) {
		__crpc_copyrpc_alive_take(ep, units, byte_len);
		return;
	}
	if (crpc_unlikely(units > ep->ring_size / WIRE_UNIT || ep->memory)) {
		__crpc_copyrpc_ep_lie(ep, "immediate", ep->ring_size / WIRE_UNIT, imm);
		return;
	}
	batch_take(ep, (enum wire_lane)kind, units * WIRE_UNIT, byte_len, now_ns);
}

/* Bytes of the shortest batch with a seal. */
#define MEMORY_BATCH_MIN (WIRE_HEAD + WIRE_STRIDE_MIN + (uint32_t)sizeof(struct wire_seal))

void
__crpc_copyrpc_rx_clear(
	const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t from, uint64_t to)
{
	uint32_t off = (uint32_t)from & (ep->ring_size - 1);
	uint64_t first = crpc_min(to - from, ep->ring_size - off);

	memset(ep->rx[lane] + off, 0, first);
	memset(ep->rx[lane], 0, to - from - first);
}

/*
 * Whether a whole batch lies at a position: the head is that of this position and life, and behind
 * the length it gives is the seal of the same. Anything else may still be on its way, so it is no
 * lie yet. Nor is it looked for where the peer may not write yet: what lies there is what the user
 * reads, and the rest of the ring is zero, so no data is taken for a batch. Returns the length, or
 * 0.
 */
static uint32_t
memory_peek(const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t pos)
{
	uint32_t off = (uint32_t)pos & (ep->ring_size - 1);
	uint64_t free = lane == WIRE_REQ ? ep->released : ep->cleared;
	const uint8_t *seal;
	struct wire_batch head;
	uint64_t word;

	if (pos - free > ep->ring_size - MEMORY_BATCH_MIN)
		return 0;
	head = wire_batch_load(ep->rx[lane] + off);
	if (head.magic != WIRE_MAGIC || head.pos != pos || head.epoch != ep->epoch ||
			head.len % WIRE_UNIT != 0 || head.len > ep->ring_size - off ||
			head.len < MEMORY_BATCH_MIN)
		return 0;
	seal = ep->rx[lane] + off + head.len - sizeof(struct wire_seal);
	if (wire_word(seal) != pos)
		return 0;
	/* acquire: pairs with the device, which writes a batch in order and its seal last */
	word = crpc_load_acquire((const _Atomic uint64_t *)(const void *)(seal + 8));
	if (word != ((uint64_t)ep->epoch << 32 | head.len))
		return 0;
	crpc_dma_rmb();
	return head.len;
}

/* The next batch of a lane lies behind the one before, or at the start of the ring. */
static bool
memory_lane(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t now_ns)
{
	uint64_t pos = ep->rx_pos[lane];
	uint32_t tail = ep->ring_size - ((uint32_t)pos & (ep->ring_size - 1)), len = 0;

	if (tail >= MEMORY_BATCH_MIN)
		len = memory_peek(ep, lane, pos);
	if (len == 0 && tail != ep->ring_size)
		len = memory_peek(ep, lane, pos + tail);
	if (len == 0)
		return false;
	batch_take(ep, lane, len, len, now_ns);
	return true;
}

/* Request batches of one endpoint in a row: then others have their turns. */
#define MEMORY_TURN 4

/* Look at the rings of one endpoint. */
static void
memory_take(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	uint64_t told = crpc_load_acquire(&ep->rx_words[WIRE_WORD_TOLD / 8]);
	uint32_t i;

	if (!word_take(ep, told))
		return;
	for (i = 0; i < MEMORY_TURN && ep->err == 0; i++) {
		if (!memory_lane(ep, WIRE_REQ, now_ns))
			break;
	}
	if (ep->err == 0)
		memory_lane(ep, WIRE_RESP, now_ns);
}

/*
 * Calls that went in one batch, at one time, and whose requests waited equally long at the peer:
 * responses come in such runs, because both sides read the clock once per turn. What is equal is
 * checked, and the parts of the round trip are recorded, once.
 */
struct run {
	uint64_t call_ns;
	uint64_t w1; /* second word of the responses' heads: status and the peer's part */
	uint64_t queue_ns;
	uint64_t kind; /* struct call_kind */
	const struct crpc_done *first; /* not yet recorded and held from here on */
	uint32_t resp_max; /* 0: no response goes on with it */
	uint32_t worst;
	uint32_t hold;
	bool timed;
};

/* Round trip in three: what we waited, what the peer needed, the rest. */
static void
run_end(struct crpc_copyrpc *ctx, struct run *run, uint64_t now_ns, const struct crpc_done *end)
{
	uint64_t total = now_ns - run->call_ns, turn = run->w1 >> 32, ours = run->queue_ns;
	uint32_t n = (uint32_t)(end - run->first);

	run->first = end;
	run->hold += n * run->worst;
	if (n != 0 && run->timed && !ctx->untimed) {
		crpc_hist_record_n(&ctx->stats.queue, ours, n);
		crpc_hist_record_n(&ctx->stats.peer, turn, n);
		crpc_hist_record_n(&ctx->stats.wire,
				total > ours + turn ? total - ours - turn : 0, n);
	}
}

/* Number of the batch with the request of this slot. */
static inline uint32_t
slot_batch(const struct call_slot *slot)
{
	return slot->kind.batch ^ (slot->large & CALL_LARGE_REQ ? BATCH_LARGE : 0);
}

/*
 * Whether the request of this slot is at the peer, so that a response may come: whether its batch
 * is older than those that wait. A call may be older than half of all numbers.
 */
static inline bool
slot_is_sent(const struct crpc_copyrpc_ep *ep, const struct call_slot *slot)
{
	uint32_t newest = ep->kind.batch;

	/* the batch of a large request is known when it is announced */
	if ((slot->large & CALL_LARGE_REQ) && ep->large.tx[WIRE_REQ].len != 0)
		return false;
	return newest - slot_batch(slot) >= newest - ep->batch_sent;
}

/*
 * A response to no open call: late, unknown, or a second one. The bytes of a late one lie between
 * completions that the user may read, so its room is free with theirs and not before.
 */
static void
response_drop(struct crpc_copyrpc_ep *ep, struct call_slot *slot, uint32_t id, struct run *run)
{
	struct crpc_copyrpc_stats *stats = &ep->ctx->stats;

	if (slot->id != id || slot->call_ns != SLOT_EXPIRED || !slot_is_sent(ep, slot)) {
		stats->unknown_responses++;
		return;
	}
	stats->late_responses++;
	run->hold += (uint32_t)ep_worst(ep, slot->kind.resp_max);
	__crpc_copyrpc_large_end(ep, slot, 0);
	slot_free(ep, slot);
}

/*
 * A response that is not like the one before it. Returns 1 if its call is complete (it then begins
 * a run), 2 if it is and done is filled (errors, large replies), 0 if it is to no call of ours, -1
 * if the peer lies.
 */
static crpc_noinline int
response_check(struct crpc_copyrpc_ep *ep, struct call_slot *slot, uint64_t w0, uint64_t w1,
		struct run *run, uint64_t now_ns, struct crpc_done *done)
{
	uint32_t len = (uint32_t)(w0 >> 32), resp_max = slot->kind.resp_max;
	uint32_t batch = slot_batch(slot);
	bool large = (len & WIRE_LARGE) != 0;
	int32_t status = (int32_t)(uint32_t)w1;

	if (slot->id != (uint32_t)w0 || !slot_is_open(slot)) {
		response_drop(ep, slot, (uint32_t)w0, run);
		return 0;
	}
	if (!slot_is_sent(ep, slot)) {
		ep->ctx->stats.unknown_responses++;
		return 0;
	}
	len &= ~WIRE_LARGE;
	if (len > resp_max || (len > ep->max_msg) != large) {
		__crpc_copyrpc_ep_lie(ep, "reply length for what was reserved", resp_max, len);
		return -1;
	}
	if (status > 0 || status < WIRE_STATUS_MIN || (status != 0 && len != 0)) {
		__crpc_copyrpc_ep_lie(ep, "status of a response", 0, (uint32_t)status);
		return -1;
	}
	run_end(ep->ctx, run, now_ns, done);
	/* what was sent before the newest requests has arrived, as they have */
	if (batch == ep->batch_sent && (int32_t)(ep->req_seq - ep->done_seq) > 0)
		ep->done_seq = ep->req_seq;
	run->call_ns = slot->call_ns;
	run->kind = kind_word(&slot->kind);
	run->resp_max = status == 0 && !large ? resp_max : 0;
	run->worst = (uint32_t)ep_worst(ep, resp_max);
	/* only successes are timed; and not those of batches so old that their time is forgotten */
	run->timed = status == 0 && ep->batch_sent - batch < BATCH_TIMES &&
		     slot->call_ns != SLOT_CANCELED;
	run->w1 = w1;
	run->queue_ns = ep->batch_ns[batch & (BATCH_TIMES - 1)] - slot->call_ns;
	*done = (struct crpc_done){.cookie = slot->cookie, .status = status};
	if (large) {
		done->data = __crpc_copyrpc_large_area(ep, LARGE_RX_RESP);
		done->len = len;
	}
	if (slot->large != 0)
		__crpc_copyrpc_large_end(ep, slot, large ? CALL_LARGE_RESP : 0);
	return status == 0 && !large ? 1 : 2;
}

/* The current batch is read up to p; or it is at its end, which p then must be too. */
static void
cur_advance(struct crpc_copyrpc *ctx, const uint8_t *p, uint32_t left, const uint8_t *end)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;

	ctx->cur_off = (uint32_t)(p - ep->rx[WIRE_RESP]);
	ctx->cur_left = left;
	if (left != 0)
		return;
	ctx->cur = NULL;
	if (crpc_unlikely(p != end))
		__crpc_copyrpc_ep_lie(
			ep, "bytes behind the last message", 0, (uint64_t)(end - p));
}

/* The messages of the current batch, until it ends or done[] is full. */
static crpc_noinline uint16_t
responses_parse(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;
	const uint8_t *ring = ep->rx[WIRE_RESP], *p = ring + ctx->cur_off, *next;
	const uint8_t *end = ring + ctx->cur_end;
	uint32_t left = ctx->cur_left, mask = ctx->slot_mask, chunk;
	struct call_slot *slots = ep->slots, *free = ep->free;
	struct crpc_done *d = done;
	struct run run = {.first = done};
	struct call_slot *slot;
	uint64_t w0, w1, len;
	int rc;

again:
	chunk = (uint32_t)crpc_min(left, n - (uint64_t)(d - done));
	for (left -= chunk; chunk != 0; chunk--, p = next) {
		/* within our memory even if it is not within the batch: other rings follow */
		w0 = wire_word(p);
		w1 = wire_word(p + 8);
		next = p + msg_stride((uint32_t)(w0 >> 32), true);
		slot = &slots[(uint32_t)w0 & mask];
		/* not empty: then its stride was right */
		if (crpc_unlikely(next > end || slot->id != (uint32_t)w0 || w1 != run.w1 ||
				    kind_word(&slot->kind) != run.kind ||
				    slot->call_ns != run.call_ns ||
				    (uint32_t)(w0 >> 32) - 1 >= run.resp_max)) {
			next = p + (w0 >> 63 ? WIRE_STRIDE_MIN : wire_stride((uint32_t)(w0 >> 32)));
			if (next > end) {
				__crpc_copyrpc_ep_lie(ep, "response length", (uint64_t)(end - p),
						w0 >> 32);
				goto out;
			}
			ep->free = free;
			rc = response_check(ep, slot, w0, w1, &run, now_ns, d);
			free = ep->free;
			if (rc < 0)
				goto out;
			if (rc == 0)
				continue;
			if (rc == 2)
				goto ended;
		}
		len = w0 >> 32;
		d->cookie = slot->cookie;
		d->data = p + sizeof(struct wire_msg);
		memcpy(&d->len, &len, sizeof(len)); /* and status 0 */
ended:
		d++;
		/* slot_free() */
		slot->call_ns = SLOT_FREE;
		slot->id = (uint32_t)w0 + mask + 1;
		slot->next = free;
		free = slot;
	}
	if (crpc_unlikely(left != 0 && d != done + n))
		goto again; /* some were dropped */
out:
	ep->free = free;
	run_end(ctx, &run, now_ns, d);
	if (ep->hold == 0 && run.hold != 0)
		ctx->held[ctx->nheld++] = ep->id;
	ep->hold += run.hold;
	if (crpc_likely(ep->err == 0)) /* if it broke, there is no current batch any more */
		cur_advance(ctx, p, left, end);
	return (uint16_t)(d - done);
}

_Static_assert(offsetof(struct crpc_done, status) == offsetof(struct crpc_done, len) + 4,
		"they are written in one move");

/* Complete calls from the current batch. */
static uint16_t
responses_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep = ctx->cur;
	uint16_t k;

	k = responses_parse(ctx, now_ns, done, n);
	ep->ended += k;
	ctx->stats.completions += k;
	return k;
}

/* The READ of the peer's position is back. */
static void
position_take(struct crpc_copyrpc_ep *ep)
{
	ep->reading = false;
	word_take(ep, crpc_load_relaxed(&ep->tx_words[WIRE_WORD_RELEASED / 8]));
	if (ep->want_read)
		ep_mark_dirty(ep);
}

/* A signalled WR is done. Returns 1 if *done was filled. */
static inline uint16_t
send_take(struct crpc_copyrpc_ep *ep, uint32_t wr_id, struct crpc_done *done)
{
	uint32_t behind;

	switch (wr_id >> WR_KIND_SHIFT) {
	case WR_FLUSH:
		/* only serial numbers that are out can come back */
		behind = (ep->flush_seq - wr_id) & WR_SERIAL_MASK;
		if (behind < ep_outstanding(ep))
			ep->done_seq = ep->flush_seq - behind;
		return 0;
	case WR_POSITION:
		position_take(ep);
		return 0;
	default:
		if (ep->op_head == ep->op_tail)
			return 0;
		__crpc_copyrpc_onesided_take(ep, done);
		return 1;
	}
}

/* What one completion of the device says. Returns 1 if *done was filled. */
static inline uint16_t
cqe_take(struct crpc_copyrpc *ctx, const struct crpc_rdma_cqe *cqe, uint64_t now_ns,
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
		break;
	case CRPC_RDMA_CQE_SEND:
		return send_take(ep, cqe->wr_id, done);
	default:
		crpc_err("endpoint %u (peer %u): queue pair failed: status %d, syndrome 0x%x; the "
			 "peer has gone or refused access: its calls end with -ECONNRESET",
				ep->id, ep->user_id, cqe->status, cqe->syndrome);
		__crpc_copyrpc_ep_break(ep, -ECONNRESET);
		break;
	}
	return 0;
}

/* done[] is full. Rings that were not looked at are first the next time; then completions are. */
static void
device_full(struct crpc_copyrpc *ctx)
{
	ctx->memory_first = ctx->memory_at != ctx->nmemory;
	if (!ctx->memory_first)
		ctx->memory_at = 0;
}

/*
 * Work through the device's completions, in their order, and the rings that are looked at, as long
 * as done[] has room.
 */
static uint16_t
device_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	bool polled = false;
	uint16_t k = 0;

	for (;;) {
		if (ctx->cur != NULL)
			k += responses_take(ctx, now_ns, done + k, n - k);
		if (k == n) {
			device_full(ctx);
			return k;
		}
		if (ctx->cqe_i == ctx->cqe_n && !polled) {
			polled = true;
			ctx->cqe_i = 0;
			ctx->cqe_n = crpc_rdma_poll(ctx->dev, ctx->cqe, CRPC_BURST_MAX);
		}
		if (ctx->cqe_i != ctx->cqe_n &&
				(!ctx->memory_first || ctx->memory_at == ctx->nmemory)) {
			k += cqe_take(ctx, &ctx->cqe[ctx->cqe_i++], now_ns, done + k);
		} else if (ctx->memory_at < ctx->nmemory) {
			memory_take(ctx->eps[ctx->memory[ctx->memory_at++]], now_ns);
		} else {
			ctx->memory_at = 0;
			ctx->memory_first = false;
			return k;
		}
	}
}

/* Of a ring that is looked at, what was given is cleared before the peer may write there again. */
static crpc_noinline void
responses_clear(struct crpc_copyrpc_ep *ep)
{
	uint64_t given = ep->rx_pos[WIRE_RESP];

	if (ep->ctx->cur == ep)
		given -= ep->ctx->cur_end + ep->trailer - ep->ctx->cur_off;
	__crpc_copyrpc_rx_clear(ep, WIRE_RESP, ep->cleared, given);
	ep->cleared = given;
}

/* The last poll's completions may be overwritten now: take their bytes out of the reservations. */
static inline void
holds_end(struct crpc_copyrpc *ctx)
{
	struct crpc_copyrpc_ep *ep;

	while (ctx->nheld != 0) {
		ep = ctx->eps[ctx->held[--ctx->nheld]];
		room_sub(&ep->resv, ep->hold);
		ep->hold = 0;
		if (crpc_unlikely(ep->memory))
			responses_clear(ep);
		ep->large.taken &= ~ep->large.held;
		ep->large.held = 0;
	}
}

/* There is room for calls that end without a reply. */
static inline uint16_t
ends_take(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	ctx->full_ns = 0;
	if (crpc_likely(ctx->broken.n == 0 && !ctx->sweeping &&
			    (int64_t)(now_ns - ctx->sweep_ns) < 0))
		return 0;
	return __crpc_copyrpc_ends_take(ctx, now_ns, done, n);
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

	copyrpc_owner_check(ctx);
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	holds_end(ctx);
	if (crpc_unlikely(ctx->full_ns != 0))
		k = __crpc_copyrpc_ends_starved(ctx, now_ns, done, n);
	if (crpc_likely(k < n)) {
		k += device_take(ctx, now_ns, done + k, n - k);
		if (crpc_unlikely(k == n))
			ctx->full_ns = ctx->full_ns != 0 ? ctx->full_ns : now_ns | 1;
		else
			k += ends_take(ctx, now_ns, done + k, n - k);
	}
	if (ctx->dirty.n != 0 && !flush_waits(ctx, k))
		__crpc_copyrpc_flush(ctx, now_ns);
	if (crpc_unlikely(crpc_tel_asked(ctx->tel)))
		__crpc_copyrpc_tel_answer(ctx);
	return k;
}
