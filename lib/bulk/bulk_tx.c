/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks that our device moves: eager and written ones at the sender, read ones at the receiver.
 */
#include "bulk_conn.h"

static void
slot_give(struct bulk_tx *tx, struct tx_slot *slot)
{
	units_give(&tx->units, slot->piece, slot->npieces);
	slot->npieces = 0;
	slot->announced = false;
	SLIST_INSERT_HEAD(&tx->slot_free, slot, link);
	tx->nslot_free++;
}

static void
op_give(struct bulk_tx *tx, struct bulk_op *op)
{
	op->req = NULL;
	SLIST_INSERT_HEAD(&tx->op_free, op, link);
	tx->nop_free++;
}

void
__crpc_bulk_tx_init(struct crpc_bulk_conn *conn, uint32_t chunk, uint32_t slots)
{
	struct bulk_tx *tx = &conn->tx;
	struct bulk_op *op = tx->op;

	memset(tx, 0, sizeof(*tx));
	tx->op = op;
	tx->nslots = slots;
	units_init(&tx->units, chunk, slots);
	for (uint32_t i = conn->b->conf.tx_chunks; i-- != 0;)
		op_give(tx, &tx->op[i]);
	for (uint32_t i = slots; i-- != 0;)
		slot_give(tx, &tx->slot[i]);
}

bool
__crpc_bulk_consumed_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	const struct bulk_wire_consumed *consumed = &msg->consumed;
	struct crpc_bulk *b = conn->b;
	struct tx_slot *slot;
	struct bulk_req *req;
	uint32_t at;

	if (consumed->count == 0 || consumed->count > BULK_CONSUMED_MAX ||
		consumed->head.len !=
			offsetof(struct bulk_wire_consumed, slot) + 4 * consumed->count)
		return __crpc_bulk_proto(
			conn, "the count of consumed slots", 0, consumed->count, BULK_CONSUMED_MAX);
	for (uint32_t i = 0; i < consumed->count; i++) {
		at = consumed->slot[i] & 0xff;
		slot = &conn->tx.slot[at];
		if (!slot->announced || slot->turn != consumed->slot[i] >> 8)
			return __crpc_bulk_proto(conn, "a consumed slot", slot->id,
				consumed->slot[i], slot->turn << 8 | at);
		slot_give(&conn->tx, slot);
		stage_add(&b->stats.wire, slot->post_ns, bulk_clock(b));
		req = slot->req;
		if (req->id == slot->id && req->handle != 0 &&
			!window_has(&req->window, slot->index)) {
			window_set(&req->window, slot->index);
			req->landed++;
			req->moved_ns = b->now;
		}
	}
	return true;
}

/* ---- ops ---- */

static void
op_free(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	op->req->ops--;
	op->req->moved_ns = conn->b->now;
	op_give(&conn->tx, op);
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
	op = &conn->tx.op[index];
	if (op->req == NULL || (op->turn & TURN_MASK) != turn || op->puts == 0)
		return;
	if (--op->puts == 0 && op->complete)
		op_done(conn, op);
}

static int
data_send(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct tx_slot *slot = &conn->tx.slot[op->slot];
	const struct bulk_req *req = op->req;
	uint32_t len = offsetof(struct bulk_wire_data, piece) + 8 * slot->npieces;
	struct bulk_wire_data data = {.head = bulk_wire_head(BULK_DATA, len, req->id),
		.index = op->index,
		.len = op->len,
		.slot = slot->turn << 8 | op->slot,
		.npieces = slot->npieces};

	if (req->flags & CRPC_BULK_CRC)
		data.crc = __crpc_bulk_crc(0, req->buf + chunk_off(req, op->index), op->len);
	memcpy(data.piece, slot->piece, sizeof(data.piece));
	slot->announced = __crpc_bulk_msg(conn, op, &data.head);
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
		(uint64_t)(op - conn->tx.op) << 30 | (op->turn & TURN_MASK);
	int rc = req->recv
		? crpc_copyrpc_get(ep, conn->b->now, mr, req->buf + off, len, raddr, rkey, cookie)
		: crpc_copyrpc_put(ep, conn->b->now, mr, req->buf + off, len, raddr, rkey, cookie);

	if (rc == 0)
		op->puts++;
	else if (rc != -EAGAIN)
		__crpc_bulk_rail_break(conn, op->rail, rc);
	return rc;
}

static int
eager_post(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	const struct tx_slot *slot = &conn->tx.slot[op->slot];
	uint64_t off = chunk_off(op->req, op->index);
	int rc;

	if (conn->b->link->has_payload) {
		rc = data_send(conn, op);
		op->puts = rc == 0; /* until the peer has taken it */
		return rc;
	}
	for (uint32_t i = 0; i < op->posted; i++)
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
		/* what was begun on a rail that broke is begun again */
		conn->tx.unfinished = conn->rail[op->rail].state == RAIL_UP ? op : NULL;
		return false;
	}
	conn->tx.unfinished = NULL;
	op->complete = true;
	if (!op->counted) {
		op->counted = true;
		b->stats.chunks_sent += !req->recv;
		b->stats.occupancy_sum += b->conf.tx_chunks - conn->tx.nop_free;
		stage_add(&b->stats.post, op->post_ns, bulk_clock(b));
	}
	if (op->puts == 0)
		op_done(conn, op);
	return true;
}

static void
slot_take(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct bulk_tx *tx = &conn->tx;
	struct tx_slot *slot = SLIST_FIRST(&tx->slot_free);

	SLIST_REMOVE_HEAD(&tx->slot_free, link);
	tx->nslot_free--;
	op->slot = (uint32_t)(slot - tx->slot);
	slot->turn = (slot->turn + 1) & 0xffffff;
	slot->req = op->req;
	slot->id = op->req->id;
	slot->index = op->index;
	slot->post_ns = op->post_ns;
	slot->npieces = units_take(&tx->units, op->len, slot->piece);
	conn->b->stats.pieces += slot->npieces;
}

/* Start the next chunk of a request. False: nothing more can be posted now. */
static bool
chunk_post(struct crpc_bulk_conn *conn, struct bulk_req *req)
{
	struct bulk_op *op = SLIST_FIRST(&conn->tx.op_free);
	uint32_t len = chunk_len(req, req->next);
	uint32_t rail = __crpc_bulk_rail_choose(conn, len);

	SLIST_REMOVE_HEAD(&conn->tx.op_free, link);
	conn->tx.nop_free--;
	*op = (struct bulk_op){.req = req,
		.turn = op->turn + 1,
		.index = req->next++,
		.len = len,
		.slot = NONE,
		.rail = (uint8_t)rail,
		.post_ns = bulk_clock(conn->b)};
	__crpc_bulk_rail_load(conn, rail, len);
	req->ops++;
	if (req->state != CRPC_BULK_TRANSMITTING || req->first_ns == 0) {
		req->state = CRPC_BULK_TRANSMITTING;
		req->first_ns = op->post_ns;
	}
	if (!req->recv && req->path == CRPC_BULK_EAGER)
		slot_take(conn, op);
	else if (!req->recv && (req->flags & CRPC_BULK_CRC) != 0)
		req->crc = __crpc_bulk_crc(req->crc, req->buf + chunk_off(req, op->index), len);
	return op_post(conn, op);
}

/* ---- ops of a rail that broke ---- */

/* Its request stops, and the peer does not know of the chunk. */
static void
op_drop(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	if (op->slot != NONE)
		slot_give(&conn->tx, &conn->tx.slot[op->slot]);
	op->req->again--;
	conn->tx.nagain--;
	op->again = false;
	op_free(conn, op);
}

bool
__crpc_bulk_op_unannounce(struct crpc_bulk_conn *conn, struct bulk_op *op)
{
	struct tx_slot *slot = &conn->tx.slot[op->slot];

	if (!slot->announced || slot->id != op->req->id || slot->index != op->index)
		return __crpc_bulk_proto(conn, "a chunk that was consumed and not taken, index",
			op->req->id, op->index, slot->index);
	slot->announced = false;
	op->complete = false;
	return true;
}

void
__crpc_bulk_ops_again(struct crpc_bulk_conn *conn, uint32_t rail)
{
	struct bulk_op *op;

	for (uint32_t i = 0; i < conn->b->conf.tx_chunks; i++) {
		op = &conn->tx.op[i];
		if (op->req == NULL || op->again || op->rail != rail)
			continue;
		/* its DATA was taken, so all of it had arrived before */
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
		conn->tx.nagain++;
	}
}

/* Post them again. False: nothing more can be posted now. */
static bool
again_post(struct crpc_bulk_conn *conn)
{
	struct bulk_op *op;

	for (uint32_t i = 0; i < conn->b->conf.tx_chunks && conn->tx.nagain != 0; i++) {
		op = &conn->tx.op[i];
		if (op->req == NULL || !op->again)
			continue;
		if (op->req->stopping) {
			op_drop(conn, op);
			continue;
		}
		op->again = false;
		op->req->again--;
		conn->tx.nagain--;
		op->rail = (uint8_t)__crpc_bulk_rail_choose(conn, op->len);
		__crpc_bulk_rail_load(conn, op->rail, op->len);
		conn->b->stats.chunks_again++;
		if (!op_post(conn, op))
			return false;
	}
	return true;
}

/* Is it one whose chunks our device moves, with some left? */
static bool
has_chunks(const struct bulk_req *req)
{
	return !req->stopping && req->next != req->nchunks && req->path != 0 &&
		(req->recv ? req->path == CRPC_BULK_READ && req->offered
			   : req->path != CRPC_BULK_READ);
}

enum bulk_wait
__crpc_bulk_waits_for(const struct bulk_req *req)
{
	const struct bulk_tx *tx = &req->conn->tx;

	if (!has_chunks(req))
		return WAIT_CHUNKS;
	if (tx->nop_free == 0)
		return WAIT_WINDOW;
	if (req->path == CRPC_BULK_EAGER &&
		(tx->nslot_free == 0 || req->next - req->window.low >= WINDOW_CHUNKS ||
			units_of(&tx->units, chunk_len(req, req->next)) >
				tx->units.n - tx->units.used))
		return WAIT_SLOTS;
	return WAIT_NOTHING;
}

/* One chunk of each request of a list. False: nothing more can be posted now. */
static bool
list_post(struct crpc_bulk_conn *conn, struct bulk_reqs *list, bool *any)
{
	struct bulk_req *req;
	enum bulk_wait wait;

	TAILQ_FOREACH(req, list, link)
	{
		wait = __crpc_bulk_waits_for(req);
		conn->b->stats.blocked_window += wait == WAIT_WINDOW;
		conn->b->stats.blocked_slots += wait == WAIT_SLOTS;
		*any = *any || wait == WAIT_NOTHING;
		if (wait == WAIT_WINDOW || (wait == WAIT_NOTHING && !chunk_post(conn, req)))
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
	if (conn->tx.unfinished != NULL && !op_post(conn, conn->tx.unfinished))
		return;
	if (conn->tx.nagain != 0 && !again_post(conn))
		return;
	while (any && conn->err == 0 && conn->nclosing == 0) {
		any = false;
		if (!list_post(conn, &conn->sends, &any) || !list_post(conn, &conn->recvs, &any))
			return;
	}
}
