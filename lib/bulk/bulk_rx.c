/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Eager chunks that arrive: checked, unpacked, consumed, and their slots given back.
 */
#include "bulk_pvt.h"
#include "crpc_crc32c.h"

/* Bytes that one turn submits, if the engine works in submit(): the NIC wants its turn too. */
#define UNPACK_TURN (UINT64_C(1) << 20)

void
__crpc_bulk_rx_init(struct crpc_bulk_conn *conn)
{
	uint32_t i;

	TAILQ_INIT(&conn->waiting);
	TAILQ_INIT(&conn->unpacking);
	memset(conn->unit_held, 0, sizeof(conn->unit_held));
	memset(conn->peer, 0, CRPC_BULK_REQUESTS_MAX * sizeof(*conn->peer));
	conn->nconsumed = 0;
	for (i = 0; i < conn->b->conf.slots; i++) {
		conn->rx_slot[i].state = SLOT_FREE;
		conn->rx_slot[i].untold = false;
		conn->rx_slot[i].token = 0;
	}
}

/* ---- slots ---- */

/* Mark the units of a piece. False: one is taken. */
static bool
units_mark(struct crpc_bulk_conn *conn, const struct bulk_wire_piece *piece, bool held)
{
	uint32_t u, first, n;

	first = (uint32_t)((uint64_t)piece->line * 64 / conn->unit);
	n = chunks_of(piece->len, conn->unit);
	for (u = first; u < first + n; u++) {
		if (held && (conn->unit_held[u / 64] >> u % 64 & 1) != 0)
			return false;
		if (held)
			conn->unit_held[u / 64] |= UINT64_C(1) << u % 64;
		else
			conn->unit_held[u / 64] &= ~(UINT64_C(1) << u % 64);
	}
	return true;
}

/* It is the sender's again, as soon as it is told. */
static void
slot_release(struct rx_slot *slot)
{
	struct crpc_bulk_conn *conn = slot->conn;
	uint32_t i;

	for (i = 0; i < slot->npieces; i++)
		units_mark(conn, &slot->piece[i], false);
	if (slot->in_chunks)
		TAILQ_REMOVE(&conn->b->chunks, slot, given);
	slot->in_chunks = false;
	slot->token = 0;
	slot->req = NULL;
	slot->state = SLOT_FREE;
	slot->untold = true;
	conn->consumed[conn->nconsumed++] = slot->turn << 8 | (uint32_t)(slot - conn->rx_slot);
}

static void
slot_consume(struct rx_slot *slot)
{
	struct crpc_bulk *b = slot->conn->b;

	stage_add(&b->stats.consume, slot->at_ns, bulk_clock(b));
	slot->req->landed++;
	slot->req->moved_ns = b->now;
	b->stats.chunks_received++;
	b->stats.bytes_received += slot->len;
	slot_release(slot);
}

void
__crpc_bulk_slots_drop(struct bulk_req *req)
{
	struct crpc_bulk_conn *conn = req->conn;
	struct rx_slot *slot;
	uint32_t i;

	if (!req->recv || req->path != CRPC_BULK_EAGER || req->landed == req->nchunks)
		return;
	for (i = 0; i < conn->b->conf.slots; i++) {
		slot = &conn->rx_slot[i];
		if (slot->state == SLOT_FREE || slot->req != req)
			continue;
		if (slot->state == SLOT_ARRIVED)
			TAILQ_REMOVE(&conn->waiting, slot, link);
		conn->b->stats.chunks_dropped++;
		slot_release(slot);
	}
}

static void
consumed_send(struct crpc_bulk_conn *conn)
{
	struct bulk_wire_consumed msg = {0};
	uint32_t len, i;

	while (conn->nconsumed != 0) {
		msg.count = (uint32_t)crpc_min(conn->nconsumed, BULK_CONSUMED_MAX);
		len = (uint32_t)offsetof(struct bulk_wire_consumed, slot) + 4 * msg.count;
		msg.head = bulk_wire_head(BULK_CONSUMED, len, 0);
		memcpy(msg.slot, &conn->consumed[conn->nconsumed - msg.count], 4 * msg.count);
		if (!__crpc_bulk_msg(conn, &msg, len))
			return;
		conn->nconsumed -= msg.count;
		for (i = 0; i < msg.count; i++)
			conn->rx_slot[msg.slot[i] & 0xff].untold = false;
	}
}

/* ---- arrival ---- */

/* Does a chunk lie where it may? Takes its units. False: the connection broke. */
static bool
pieces_take(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	uint64_t all = (uint64_t)conn->b->conf.slots * conn->b->conf.chunk, off, sum = 0;
	const struct bulk_wire_piece *piece;
	uint32_t i;

	for (i = 0; i < data->npieces; i++) {
		piece = &data->piece[i];
		off = (uint64_t)piece->line * 64;
		if (piece->len == 0 || off % conn->unit != 0 || off >= all ||
				piece->len > all - off) {
			__crpc_bulk_proto(conn, "the end of a piece in bounce memory",
					data->head.id, off + piece->len, all);
			return false;
		}
		if (!units_mark(conn, piece, true)) {
			__crpc_bulk_proto(conn, "a piece in memory that is not consumed, at",
					data->head.id, off, 0);
			return false;
		}
		sum += piece->len;
	}
	if (sum != data->len) {
		__crpc_bulk_proto(conn, "the sum of a chunk's pieces", data->head.id, sum,
				data->len);
		return false;
	}
	return true;
}

static bool
slot_check(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	uint32_t at = data->slot & 0xff;

	if (data->npieces == 0 || data->npieces > CRPC_BULK_PIECES_MAX ||
			data->head.len != offsetof(struct bulk_wire_data, piece) +
							  8 * data->npieces) {
		__crpc_bulk_proto(conn, "the number of pieces", data->head.id, data->npieces,
				CRPC_BULK_PIECES_MAX);
		return false;
	}
	if (at >= conn->b->conf.slots || conn->rx_slot[at].state != SLOT_FREE ||
			conn->rx_slot[at].untold) {
		__crpc_bulk_proto(conn, "a slot that is not free, or not there,", data->head.id, at,
				conn->b->conf.slots);
		return false;
	}
	return true;
}

/* Is it a chunk that its request waits for? */
static bool
chunk_check(struct crpc_bulk_conn *conn, const struct bulk_req *req,
		const struct bulk_wire_data *data)
{
	if (req->path != CRPC_BULK_EAGER || !req->offered) {
		__crpc_bulk_proto(conn, "a chunk for a path that was not accepted", req->id,
				req->path, CRPC_BULK_EAGER);
		return false;
	}
	if (data->index >= req->nchunks || window_has(&req->window, data->index) ||
			data->index - req->window.low >= WINDOW_CHUNKS) {
		__crpc_bulk_proto(conn, "a chunk's index", req->id, data->index, req->window.low);
		return false;
	}
	if (data->len != chunk_len(req, data->index)) {
		__crpc_bulk_proto(conn, "a chunk's length", req->id, data->len,
				chunk_len(req, data->index));
		return false;
	}
	return true;
}

static void
slot_arrive(struct rx_slot *slot, struct bulk_req *req, const struct bulk_wire_data *data)
{
	struct crpc_bulk_conn *conn = slot->conn;
	struct crpc_bulk *b = conn->b;

	window_set(&req->window, data->index);
	slot->req = req;
	slot->index = data->index;
	slot->len = data->len;
	slot->crc = data->crc;
	slot->at_ns = bulk_clock(b);
	slot->state = SLOT_ARRIVED;
	TAILQ_INSERT_TAIL(&conn->waiting, slot, link);
	req->moved_ns = b->now;
	if (req->state != CRPC_BULK_TRANSMITTING) {
		req->state = CRPC_BULK_TRANSMITTING;
		req->first_ns = slot->at_ns;
	}
	if (req->flags & CRPC_BULK_MANUAL) {
		slot->token = ++b->serial << 18 | (uint64_t)conn->index << 8 |
			      (uint64_t)(slot - conn->rx_slot);
		slot->in_chunks = true;
		TAILQ_INSERT_TAIL(&b->chunks, slot, given);
	}
}

void
__crpc_bulk_data_take(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	struct bulk_peer *peer;
	struct rx_slot *slot;

	if (!slot_check(conn, data) || !pieces_take(conn, data))
		return;
	peer = __crpc_bulk_peer_find(conn, data->head.id);
	if (conn->err != 0)
		return;
	slot = &conn->rx_slot[data->slot & 0xff];
	slot->turn = data->slot >> 8;
	slot->npieces = data->npieces;
	memcpy(slot->piece, data->piece, sizeof(slot->piece));
	if (peer != NULL && peer->state == PEER_OFFERED) {
		__crpc_bulk_proto(conn, "a chunk of what was not accepted, slot", peer->id,
				data->slot, 0);
		return;
	}
	if (peer == NULL || peer->req == NULL || peer->req->judged) {
		conn->b->stats.chunks_dropped++;
		slot_release(slot);
		return;
	}
	if (chunk_check(conn, peer->req, data))
		slot_arrive(slot, peer->req, data);
}

/* ---- unpacking ---- */

static uint32_t
slot_descs(const struct rx_slot *slot, struct crpc_unpack_desc *desc)
{
	const struct bulk_req *req = slot->req;
	uint32_t i, op = req_op(req);
	uint8_t *dst = req->buf + crpc_unpack_out_len(op, chunk_off(req, slot->index));

	for (i = 0; i < slot->npieces; i++) {
		desc[i] = (struct crpc_unpack_desc){
				.src = slot->conn->bounce + (uint64_t)slot->piece[i].line * 64,
				.dst = dst,
				.len = slot->piece[i].len,
				.op = op};
		dst += crpc_unpack_out_len(op, slot->piece[i].len);
	}
	return slot->npieces;
}

/* The checksum is taken where the bytes end up, unless they are others there, or out of reach. */
static bool
crc_in_bounce(const struct rx_slot *slot)
{
	const struct crpc_unpack_ops *ops = crpc_unpack_engine(slot->conn->b->engine);

	return req_op(slot->req) != CRPC_UNPACK_COPY || (ops->flags & CRPC_UNPACK_DEVICE_MEMORY);
}

static bool
crc_fits(struct rx_slot *slot, const struct crpc_unpack_desc *desc, uint32_t n)
{
	uint32_t i, crc = 0;

	for (i = 0; i < n; i++)
		crc = crpc_crc32c(crc, crc_in_bounce(slot) ? desc[i].src : desc[i].dst,
				desc[i].len);
	if (crc == slot->crc)
		return true;
	crpc_err("connection %u, tag 0x%llx, chunk %u: checksum 0x%x, expected 0x%x",
			slot->conn->index, (unsigned long long)slot->req->tag, slot->index, crc,
			slot->crc);
	__crpc_bulk_req_stop(slot->req, -EBADMSG);
	return false;
}

static void
slot_unpacked(struct rx_slot *slot, int rc)
{
	struct crpc_bulk_conn *conn = slot->conn;
	struct crpc_unpack_desc desc[CRPC_BULK_PIECES_MAX];
	struct bulk_req *req = slot->req;
	uint64_t now = bulk_clock(conn->b);

	TAILQ_REMOVE(&conn->unpacking, slot, link);
	stage_add(&conn->b->stats.unpack, slot->at_ns, now);
	slot->at_ns = now;
	slot->state = SLOT_UNPACKED;
	req->jobs--;
	req->moved_ns = conn->b->now;
	if (rc != 0 && conn->err == 0) {
		crpc_err("connection %u, tag 0x%llx, chunk %u: the engine %s failed (%d)",
				conn->index, (unsigned long long)req->tag, slot->index,
				crpc_unpack_engine(conn->b->engine)->name, rc);
		__crpc_bulk_req_stop(req, rc);
	} else if (rc == 0 && (req->flags & CRPC_BULK_CRC) != 0 && !crc_in_bounce(slot)) {
		crc_fits(slot, desc, slot_descs(slot, desc));
	}
	if (rc != 0 || req->stopping)
		slot_release(slot);
	else if ((req->flags & CRPC_BULK_MANUAL) == 0)
		slot_consume(slot);
}

void
__crpc_bulk_jobs_turn(struct crpc_bulk_conn *conn)
{
	struct rx_slot *slot, *next;
	int rc;

	for (slot = TAILQ_FIRST(&conn->unpacking); slot != NULL; slot = next) {
		next = TAILQ_NEXT(slot, link);
		rc = crpc_unpack_done(conn->b->engine, slot->job);
		if (rc != -EAGAIN)
			slot_unpacked(slot, rc);
	}
}

void
__crpc_bulk_jobs_fail(struct crpc_bulk *b)
{
	struct rx_slot *slot;
	uint32_t i;

	for (i = 0; i < b->conns; i++) {
		while (b->conn[i] != NULL && (slot = TAILQ_FIRST(&b->conn[i]->unpacking)) != NULL)
			slot_unpacked(slot, -EIO);
	}
}

/* Give a chunk to the engine. False: it has no room now. */
static bool
slot_submit(struct rx_slot *slot)
{
	struct crpc_bulk_conn *conn = slot->conn;
	struct crpc_unpack_desc desc[CRPC_BULK_PIECES_MAX];
	struct bulk_req *req = slot->req;
	uint32_t n = slot_descs(slot, desc);
	int rc = 0;

	if ((req->flags & CRPC_BULK_CRC) != 0 && crc_in_bounce(slot) && !req->stopping)
		crc_fits(slot, desc, n);
	slot->at_ns = bulk_clock(conn->b);
	if (!req->stopping)
		rc = crpc_unpack_submit(conn->b->engine, desc, n, &slot->job);
	if (rc == -EAGAIN)
		return false;
	TAILQ_REMOVE(&conn->waiting, slot, link);
	if (rc != 0) {
		crpc_err("connection %u, tag 0x%llx, chunk %u: the engine %s refused (%d)",
				conn->index, (unsigned long long)req->tag, slot->index,
				crpc_unpack_engine(conn->b->engine)->name, rc);
		__crpc_bulk_req_stop(req, rc);
	}
	if (req->stopping) {
		slot_release(slot);
		return true;
	}
	slot->state = SLOT_UNPACKING;
	TAILQ_INSERT_TAIL(&conn->unpacking, slot, link);
	req->jobs++;
	return true;
}

void
__crpc_bulk_unpack_turn(struct crpc_bulk_conn *conn)
{
	struct rx_slot *slot;
	uint64_t bytes = 0;

	while (bytes < UNPACK_TURN && !conn->b->stopping &&
			(slot = TAILQ_FIRST(&conn->waiting)) != NULL) {
		bytes += slot->len;
		if (!slot_submit(slot))
			break;
	}
	__crpc_bulk_jobs_turn(conn);
	if (conn->nconsumed != 0)
		consumed_send(conn);
}

/* ---- the user's part ---- */

uint16_t
crpc_bulk_chunks(struct crpc_bulk *b, struct crpc_bulk_chunk *chunk, uint16_t n)
{
	struct rx_slot *slot;
	uint16_t i;
	uint32_t p;

	for (i = 0; i < n && (slot = TAILQ_FIRST(&b->chunks)) != NULL; i++) {
		TAILQ_REMOVE(&b->chunks, slot, given);
		slot->in_chunks = false;
		chunk[i] = (struct crpc_bulk_chunk){.token = slot->token,
				.req = slot->req->handle,
				.off = chunk_off(slot->req, slot->index),
				.len = slot->len,
				.index = slot->index,
				.npieces = slot->npieces};
		for (p = 0; p < slot->npieces; p++) {
			chunk[i].piece[p].data =
				slot->conn->bounce + (uint64_t)slot->piece[p].line * 64;
			chunk[i].piece[p].len = slot->piece[p].len;
		}
	}
	return i;
}

int
crpc_bulk_consumed(struct crpc_bulk *b, uint64_t now_ns, uint64_t token)
{
	struct crpc_bulk_conn *conn = b->conn[token >> 8 & 0x3ff];
	struct rx_slot *slot;

	if (token == 0 || conn == NULL || (token & 0xff) >= b->conf.slots)
		return -ENOENT;
	slot = &conn->rx_slot[token & 0xff];
	if (slot->token != token)
		return -ENOENT;
	if (slot->state != SLOT_UNPACKED) {
		b->stats.early_consumed++;
		return -EBUSY;
	}
	b->now = now_ns;
	slot_consume(slot);
	return 0;
}
