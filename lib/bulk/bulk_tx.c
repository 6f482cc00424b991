/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks that our device moves: eager and written ones at the sender, read ones at the receiver.
 */
#include "bulk_pvt.h"
#include "crpc_crc32c.h"

#define TURN_MASK ((1u << 30) - 1)

void
__crpc_bulk_tx_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint32_t i;

	for (i = 0; i < conf->tx_chunks; i++) {
		conn->op[i].req = NULL;
		conn->op_free[i] = (uint16_t)(conf->tx_chunks - 1 - i);
	}
	conn->nop_free = conf->tx_chunks;
	conn->unfinished = NULL;
	conn->tx_bytes = 0;
	memset(conn->tx_slot, 0, CRPC_BULK_SLOTS_MAX * sizeof(*conn->tx_slot));
	for (i = 0; i < conn->peer_slots; i++)
		conn->slot_free[i] = (uint16_t)(conn->peer_slots - 1 - i);
	conn->nslot_free = conn->peer_slots;
	conn->nunits = conn->peer_slots * CRPC_BULK_PIECES_MAX;
	conn->nunits_free = conn->nunits;
	memset(conn->unit_free, 0, sizeof(conn->unit_free));
	for (i = 0; i < conn->nunits; i++)
		conn->unit_free[i / 64] |= UINT64_C(1) << i % 64;
}

/* ---- the receiver's bounce memory ---- */

static void
units_give(struct crpc_bulk_conn *conn, struct tx_slot *slot)
{
	uint32_t i, u, first, n;

	for (i = 0; i < slot->npieces; i++) {
		first = (uint32_t)((uint64_t)slot->piece[i].line * 64 / conn->peer_unit);
		n = chunks_of(slot->piece[i].len, conn->peer_unit);
		for (u = first; u < first + n; u++)
			conn->unit_free[u / 64] |= UINT64_C(1) << u % 64;
		conn->nunits_free += n;
	}
	slot->npieces = 0;
}

static void
slot_give(struct crpc_bulk_conn *conn, struct tx_slot *slot)
{
	units_give(conn, slot);
	slot->taken = slot->announced = false;
	conn->slot_free[conn->nslot_free++] = (uint16_t)(slot - conn->tx_slot);
}

/*
 * Take units for len bytes, which are free; neighbours are one piece. The lowest ones first: they
 * were used lately, and the caches of the receiver may still have them.
 */
static void
units_take(struct crpc_bulk_conn *conn, struct tx_slot *slot, uint32_t len)
{
	struct bulk_wire_piece *piece = NULL;
	uint32_t u, word = 0, last = NONE, part;

	slot->npieces = 0;
	while (len != 0) {
		while (conn->unit_free[word] == 0)
			word++;
		u = word * 64 + (uint32_t)__builtin_ctzll(conn->unit_free[word]);
		part = (uint32_t)crpc_min(len, conn->peer_unit);
		if (piece == NULL || u != last + 1) {
			piece = &slot->piece[slot->npieces++];
			piece->line = (uint32_t)((uint64_t)u * conn->peer_unit / 64);
			piece->len = 0;
		}
		piece->len += part;
		len -= part;
		conn->unit_free[word] &= conn->unit_free[word] - 1;
		conn->nunits_free--;
		last = u;
	}
}

void
__crpc_bulk_consumed_take(
		struct crpc_bulk_conn *conn, const struct bulk_wire_consumed *consumed)
{
	struct crpc_bulk *b = conn->b;
	struct tx_slot *slot;
	struct bulk_req *req;
	uint32_t i, at;

	if (consumed->count == 0 || consumed->count > BULK_CONSUMED_MAX ||
			consumed->head.len != offsetof(struct bulk_wire_consumed, slot) +
							      4 * consumed->count) {
		__crpc_bulk_proto(conn, "the count of consumed slots", 0, consumed->count,
				BULK_CONSUMED_MAX);
		return;
	}
	for (i = 0; i < consumed->count; i++) {
		at = consumed->slot[i] & 0xff;
		slot = &conn->tx_slot[at];
		if (at >= conn->peer_slots || !slot->announced ||
				slot->turn != consumed->slot[i] >> 8) {
			__crpc_bulk_proto(conn, "a consumed slot", slot->id, consumed->slot[i],
					slot->turn << 8 | at);
			return;
		}
		slot_give(conn, slot);
		stage_add(&b->stats.wire, slot->post_ns, bulk_clock(b));
		req = slot->req;
		if (req->id == slot->id && req->handle != 0 &&
			!window_has(&req->window, slot->index)) {
			window_set(&req->window, slot->index);
			req->landed++;
			req->moved_ns = b->now;
		}
	}
}

/* ---- ops ---- */

static void
op_free(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	conn->tx_bytes -= op->len;
	op->req->ops--;
	op->req->moved_ns = conn->b->now;
	op->req = NULL;
	conn->op_free[conn->nop_free++] = (uint16_t)(op - conn->op);
}

/* The chunk is where it belongs. */
static void
op_done(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct crpc_bulk *b = conn->b;
	struct bulk_req *req = op->req;

	__crpc_bulk_rail_unload(conn, op->rail, op->len, true);
	if (op->slot == NONE) {
		req->landed++;
		stage_add(&b->stats.wire, op->post_ns, bulk_clock(b));
	}
	if (req->recv) {
		b->stats.chunks_received++;
		b->stats.bytes_received += op->len;
	} else {
		b->stats.bytes_sent += op->len;
	}
	op_free(conn, op);
}

void
__crpc_bulk_op_take(struct crpc_bulk_conn *conn, uint32_t index, uint32_t turn)
{
	struct bulk_op *op;

	/* of a connection that broke nothing is under way, whatever still comes */
	if (index >= conn->b->conf.tx_chunks || conn->err != 0)
		return;
	op = &conn->op[index];
	if (op->req == NULL || (op->turn & TURN_MASK) != turn || op->puts == 0)
		return;
	if (--op->puts == 0 && op->complete)
		op_done(conn, op);
}

static int
data_send(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct tx_slot *slot = &conn->tx_slot[op->slot];
	const struct bulk_req *req = op->req;
	uint32_t len = offsetof(struct bulk_wire_data, piece) + 8 * slot->npieces;
	struct bulk_wire_data data = {.head = bulk_wire_head(BULK_DATA, len, req->id),
			.index = op->index,
			.len = op->len,
			.slot = slot->turn << 8 | op->slot,
			.npieces = slot->npieces};

	if (req->flags & CRPC_BULK_CRC)
		data.crc = crpc_crc32c(0, req->buf + chunk_off(req, op->index), op->len);
	memcpy(data.piece, slot->piece, sizeof(data.piece));
	slot->announced = __crpc_bulk_data_msg(conn, op, &data, len);
	return slot->announced ? 0 : -EAGAIN;
}

/* One get or put. */
static int
piece_post(struct crpc_bulk_conn *conn, struct bulk_op *op, uint64_t off, uint32_t len,
		uint64_t raddr, uint32_t rkey)
{
	struct bulk_req *req = op->req;
	struct crpc_copyrpc_ep *ep = conn->rail[op->rail].ep;
	const struct crpc_rdma_mr *mr = req->mr[op->rail % conn->b->conf.nports];
	uint64_t cookie = (uint64_t)CRPC_BULK_COOKIE << 48 | (uint64_t)conn->index << 38 |
			  (uint64_t)(op - conn->op) << 30 | (op->turn & TURN_MASK);
	int rc;

	rc = req->recv ? crpc_copyrpc_get(ep, mr, req->buf + off, len, raddr, rkey, cookie)
		       : crpc_copyrpc_put(ep, mr, req->buf + off, len, raddr, rkey, cookie);
	if (rc == 0)
		op->puts++;
	else if (rc != -EAGAIN)
		__crpc_bulk_rail_break(conn, op->rail, rc);
	return rc;
}

static int
eager_post(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	const struct tx_slot *slot = &conn->tx_slot[op->slot];
	uint64_t off = chunk_off(op->req, op->index);
	uint32_t i;
	int rc;

	for (i = 0; i < op->posted; i++)
		off += slot->piece[i].len;
	for (; op->posted < slot->npieces; off += slot->piece[op->posted++].len) {
		rc = piece_post(conn, op, off, slot->piece[op->posted].len,
				conn->peer_bounce + (uint64_t)slot->piece[op->posted].line * 64,
				conn->peer_rkey[op->rail % conn->peer_ports]);
		if (rc != 0)
			return rc;
	}
	return data_send(conn, op);
}

/* Post what is left of an op. False: the device's queue, or the control lane, is full. */
static bool
op_post(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct crpc_bulk *b = conn->b;
	struct bulk_req *req = op->req;
	uint64_t off = chunk_off(req, op->index);
	int rc;

	if (op->slot != NONE)
		rc = eager_post(conn, op);
	else
		rc = piece_post(conn, op, off, op->len, req->raddr + off,
				req->rkey[op->rail % conn->peer_ports]);
	if (rc != 0) {
		b->stats.blocked_queue++;
		/* what a rail that broke has begun is begun anew */
		conn->unfinished = conn->rail[op->rail].state == RAIL_UP ? op : NULL;
		return false;
	}
	conn->unfinished = NULL;
	op->complete = true;
	if (!op->counted) {
		op->counted = true;
		b->stats.chunks_sent += !req->recv;
		b->stats.occupancy_sum += b->conf.tx_chunks - conn->nop_free;
		stage_add(&b->stats.post, op->post_ns, bulk_clock(b));
	}
	if (op->puts == 0)
		op_done(conn, op);
	return true;
}

static void
slot_take(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct tx_slot *slot;

	op->slot = conn->slot_free[--conn->nslot_free];
	slot = &conn->tx_slot[op->slot];
	slot->taken = true;
	slot->turn = (slot->turn + 1) & 0xffffff;
	slot->req = op->req;
	slot->id = op->req->id;
	slot->index = op->index;
	slot->post_ns = op->post_ns;
	units_take(conn, slot, op->len);
	conn->b->stats.pieces += slot->npieces;
}

/* Start the next chunk of a request. False: nothing more can be posted now. */
static bool
chunk_post(struct crpc_bulk_conn *conn, struct bulk_req *req)
{
	struct bulk_op *op = &conn->op[conn->op_free[--conn->nop_free]];
	uint32_t len = chunk_len(req, req->next);
	uint32_t rail = __crpc_bulk_rail_choose(conn, len);

	*op = (struct bulk_op){.req = req,
			.turn = op->turn + 1,
			.index = req->next++,
			.len = len,
			.slot = NONE,
			.rail = (uint8_t)rail,
			.post_ns = bulk_clock(conn->b)};
	__crpc_bulk_rail_load(conn, rail, len);
	conn->tx_bytes += len;
	req->ops++;
	if (req->state != CRPC_BULK_TRANSMITTING || req->first_ns == 0) {
		req->state = CRPC_BULK_TRANSMITTING;
		req->first_ns = op->post_ns;
	}
	if (!req->recv && req->path == CRPC_BULK_EAGER)
		slot_take(conn, op);
	else if (!req->recv && (req->flags & CRPC_BULK_CRC) != 0)
		req->crc = crpc_crc32c(req->crc, req->buf + chunk_off(req, op->index), len);
	return op_post(conn, op);
}

/* ---- ops of a rail that broke ---- */

/* It is not wanted any more, and nobody knows of it. */
static void
op_drop(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	if (op->slot != NONE)
		slot_give(conn, &conn->tx_slot[op->slot]);
	op->req->again--;
	conn->nagain--;
	op->again = false;
	op_free(conn, op);
}

bool
__crpc_bulk_op_unannounce(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct tx_slot *slot = &conn->tx_slot[op->slot];

	if (!slot->announced || slot->id != op->req->id || slot->index != op->index) {
		__crpc_bulk_proto(conn, "a chunk that was consumed and not taken, index",
				op->req->id, op->index, slot->index);
		return false;
	}
	slot->announced = false;
	op->complete = false;
	return true;
}

void
__crpc_bulk_ops_again(struct crpc_bulk_conn *conn, uint32_t rail)
{
	struct bulk_op *op;
	uint32_t i;

	for (i = 0; i < conn->b->conf.tx_chunks; i++) {
		op = &conn->op[i];
		if (op->req == NULL || op->again || op->rail != rail)
			continue;
		/* its DATA was taken, so all of it was there before */
		if (op->slot != NONE && op->complete) {
			op_done(conn, op);
			continue;
		}
		__crpc_bulk_rail_unload(conn, rail, op->len, false);
		op->turn++; /* completions of before are not its own */
		op->puts = 0;
		op->posted = 0;
		op->complete = false;
		op->again = true;
		op->req->again++;
		conn->nagain++;
	}
}

/* Post them anew. False: nothing more can be posted now. */
static bool
again_post(struct crpc_bulk_conn *conn)
{
	struct bulk_op *op;
	uint32_t i;

	for (i = 0; i < conn->b->conf.tx_chunks && conn->nagain != 0; i++) {
		op = &conn->op[i];
		if (op->req == NULL || !op->again)
			continue;
		if (op->req->stopping) {
			op_drop(conn, op);
			continue;
		}
		op->again = false;
		op->req->again--;
		conn->nagain--;
		op->rail = (uint8_t)__crpc_bulk_rail_choose(conn, op->len);
		__crpc_bulk_rail_load(conn, op->rail, op->len);
		conn->b->stats.chunks_again++;
		if (!op_post(conn, op))
			return false;
	}
	return true;
}

enum may {
	MAY_POST,
	MAY_NOT,     /* this one has nothing, or waits for its own */
	MAY_NOBODY,  /* the window of all is full */
};

/* Is it one whose chunks our device moves, with some left? */
static bool
has_chunks(const struct bulk_req *req)
{
	return !req->stopping && req->next != req->nchunks && req->path != 0 &&
	       (req->recv ? req->path == CRPC_BULK_READ && req->offered
			  : req->path != CRPC_BULK_READ);
}

static bool
window_full(const struct crpc_bulk_conn *conn, uint32_t len)
{
	return conn->nop_free == 0 || conn->tx_bytes + len > conn->b->conf.tx_bytes;
}

static bool
slots_full(const struct crpc_bulk_conn *conn, uint32_t len)
{
	return conn->nslot_free == 0 || chunks_of(len, conn->peer_unit) > conn->nunits_free;
}

bool
__crpc_bulk_waits_for_others(const struct bulk_req *req)
{
	const struct crpc_bulk_conn *conn = req->conn;
	uint32_t len;

	if (!has_chunks(req) || has_under_way(req))
		return false;
	len = chunk_len(req, req->next);
	return window_full(conn, len) || (req->path == CRPC_BULK_EAGER && slots_full(conn, len));
}

static enum may
chunk_may(struct crpc_bulk_conn *conn, const struct bulk_req *req)
{
	struct crpc_bulk_stats *stats = &conn->b->stats;
	uint32_t len;

	if (!has_chunks(req))
		return MAY_NOT;
	len = chunk_len(req, req->next);
	if (window_full(conn, len)) {
		stats->blocked_window++;
		return MAY_NOBODY;
	}
	if (req->path != CRPC_BULK_EAGER)
		return MAY_POST;
	if (slots_full(conn, len) || req->next - req->window.low >= WINDOW_CHUNKS) {
		stats->blocked_slots++;
		return MAY_NOT;
	}
	return MAY_POST;
}

/* One chunk of each request of a list. False: nothing more can be posted now. */
static bool
list_post(struct crpc_bulk_conn *conn, struct bulk_reqs *list, bool *any)
{
	struct bulk_req *req;
	enum may may;

	TAILQ_FOREACH(req, list, link) {
		may = chunk_may(conn, req);
		if (may == MAY_NOBODY)
			return false;
		if (may == MAY_NOT)
			continue;
		*any = true;
		if (!chunk_post(conn, req))
			return false;
	}
	return true;
}

void
__crpc_bulk_chunks_post(struct crpc_bulk_conn *conn)
{
	bool any = true;

	/* no message may go, so no chunk begins */
	if (conn->nclosing != 0)
		return;
	if (conn->unfinished != NULL && !op_post(conn, conn->unfinished))
		return;
	if (conn->nagain != 0 && !again_post(conn))
		return;
	while (any && conn->err == 0 && conn->nclosing == 0) {
		any = false;
		if (!list_post(conn, &conn->sends, &any) || !list_post(conn, &conn->recvs, &any))
			return;
	}
}
