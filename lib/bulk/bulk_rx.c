/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Eager chunks that arrive: checked, unpacked, consumed, and their slots given back.
 */
#include "bulk_conn.h"

/* Bytes that one turn submits, if the engine works in submit(): devices have to be polled, too. */
#define UNPACK_TURN (UINT64_C(1) << 20)

void
__crpc_bulk_rx_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct bulk_rx *rx = &conn->rx;

	TAILQ_INIT(&rx->arrived);
	TAILQ_INIT(&rx->unpacking);
	TAILQ_INIT(&rx->consumed);
	units_init(&rx->units, conf->chunk, conf->slots);
	for (uint32_t i = 0; i < conf->slots; i++) {
		rx->slot[i].state = SLOT_FREE;
		rx->slot[i].req = NULL;
		rx->slot[i].token = 0;
	}
}

/* ---- slots ---- */

/* It is the sender's again, as soon as CONSUMED is sent. */
static void
slot_release(struct rx_slot *slot)
{
	struct bulk_rx *rx = &slot->conn->rx;

	units_give(&rx->units, slot->piece, slot->npieces);
	if (slot->in_chunks)
		TAILQ_REMOVE(&slot->conn->b->chunks, slot, given);
	slot->in_chunks = false;
	slot->token = 0;
	slot->req = NULL;
	slot->state = SLOT_CONSUMED;
	TAILQ_INSERT_TAIL(&rx->consumed, slot, link);
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

	if (!req->recv || req->path != CRPC_BULK_EAGER || req->landed == req->nchunks)
		return;
	for (uint32_t i = 0; i < conn->b->conf.slots; i++) {
		slot = &conn->rx.slot[i];
		if (slot->req != req)
			continue;
		if (slot->state == SLOT_ARRIVED)
			TAILQ_REMOVE(&conn->rx.arrived, slot, link);
		conn->b->stats.chunks_dropped++;
		slot_release(slot);
	}
}

static void
consumed_send(struct crpc_bulk_conn *conn)
{
	struct bulk_rx *rx = &conn->rx;
	struct bulk_wire_consumed msg;
	struct rx_slot *slot;
	uint32_t len;

	while (!TAILQ_EMPTY(&rx->consumed)) {
		msg.count = 0;
		TAILQ_FOREACH(slot, &rx->consumed, link)
		{
			if (msg.count == BULK_CONSUMED_MAX)
				break;
			msg.slot[msg.count++] = slot->turn << 8 | (uint32_t)(slot - rx->slot);
		}
		len = (uint32_t)offsetof(struct bulk_wire_consumed, slot) + 4 * msg.count;
		msg.head = bulk_wire_head(BULK_CONSUMED, len, 0);
		if (!__crpc_bulk_msg(conn, NULL, &msg.head))
			return;
		while (msg.count-- != 0) {
			slot = TAILQ_FIRST(&rx->consumed);
			TAILQ_REMOVE(&rx->consumed, slot, link);
			slot->state = SLOT_FREE;
		}
	}
}

/* ---- arrival ---- */

/* Does a chunk lie where it may? Takes its units. False: the connection broke. */
static bool
pieces_take(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	uint64_t all = (uint64_t)conn->b->conf.slots * conn->b->conf.chunk, off, sum = 0;
	uint64_t id = data->head.id;
	const struct bulk_wire_piece *piece;

	for (uint32_t i = 0; i < data->npieces; i++) {
		piece = &data->piece[i];
		off = (uint64_t)piece->line * 64;
		if (piece->len == 0 || off % conn->rx.units.size != 0 || off >= all ||
			piece->len > all - off)
			return __crpc_bulk_proto(conn, "the end of a piece in bounce memory", id,
				off + piece->len, all);
		if (!units_mark(&conn->rx.units, piece, true))
			return __crpc_bulk_proto(
				conn, "a piece in memory that is not consumed, at", id, off, 0);
		sum += piece->len;
	}
	return sum == data->len ||
		__crpc_bulk_proto(conn, "the sum of a chunk's pieces", id, sum, data->len);
}

static bool
slot_check(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	uint32_t at = data->slot & 0xff;

	if (data->npieces == 0 || data->npieces > CRPC_BULK_PIECES_MAX ||
		data->head.len != offsetof(struct bulk_wire_data, piece) + 8 * data->npieces)
		return __crpc_bulk_proto(conn, "the number of pieces", data->head.id, data->npieces,
			CRPC_BULK_PIECES_MAX);
	return (at < conn->b->conf.slots && conn->rx.slot[at].state == SLOT_FREE) ||
		__crpc_bulk_proto(conn, "a slot that is not free, or not there,", data->head.id, at,
			conn->b->conf.slots);
}

/* Is it a chunk that its request waits for? */
static bool
chunk_check(
	struct crpc_bulk_conn *conn, const struct bulk_req *req, const struct bulk_wire_data *data)
{
	if (req->path != CRPC_BULK_EAGER || !req->offered)
		return __crpc_bulk_proto(conn, "a chunk for a path that was not accepted", req->id,
			req->path, CRPC_BULK_EAGER);
	if (data->index >= req->nchunks || window_has(&req->window, data->index) ||
		data->index - req->window.low >= WINDOW_CHUNKS)
		return __crpc_bulk_proto(
			conn, "a chunk's index", req->id, data->index, req->window.low);
	return data->len == chunk_len(req, data->index) ||
		__crpc_bulk_proto(
			conn, "a chunk's length", req->id, data->len, chunk_len(req, data->index));
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
	TAILQ_INSERT_TAIL(&conn->rx.arrived, slot, link);
	req->moved_ns = b->now;
	if (req->state != CRPC_BULK_TRANSMITTING) {
		req->state = CRPC_BULK_TRANSMITTING;
		req->first_ns = slot->at_ns;
	}
	if (req->flags & CRPC_BULK_MANUAL) {
		slot->token = ++b->serial << 18 | (uint64_t)conn->index << 8 |
			(uint64_t)(slot - conn->rx.slot);
		slot->in_chunks = true;
		TAILQ_INSERT_TAIL(&b->chunks, slot, given);
	}
}

bool
__crpc_bulk_data_arrive(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data)
{
	struct bulk_peer *peer = __crpc_bulk_peer_find(conn, data->head.id);
	struct rx_slot *slot;

	if (conn->err != 0)
		return false;
	if (peer != NULL && peer->state == PEER_OFFERED)
		return __crpc_bulk_proto(
			conn, "a chunk of what was not accepted, slot", peer->id, data->slot, 0);
	slot = &conn->rx.slot[data->slot & 0xff];
	if (peer == NULL || peer->req == NULL || peer->req->judged) {
		conn->b->stats.chunks_dropped++;
		slot_release(slot);
		return true;
	}
	if (!chunk_check(conn, peer->req, data))
		return false;
	slot_arrive(slot, peer->req, data);
	return true;
}

/*
 * Pages that the kernel has may be of any number and size. Conversions need whole elements, and a
 * chunk that is given to the user has few pieces.
 */
static bool
may_map(struct crpc_bulk_conn *conn, uint64_t id)
{
	const struct bulk_peer *peer = __crpc_bulk_peer_find(conn, id);

	return conn->rx.map != NULL && peer != NULL && peer->req != NULL &&
		req_op(peer->req) == CRPC_UNPACK_COPY && (peer->req->flags & CRPC_BULK_MANUAL) == 0;
}

bool
__crpc_bulk_data_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	const struct bulk_wire_data *data = &msg->data;
	struct rx_slot *slot;

	if (!slot_check(conn, data) || !pieces_take(conn, data))
		return false;
	slot = &conn->rx.slot[data->slot & 0xff];
	slot->turn = data->slot >> 8;
	slot->npieces = data->npieces;
	slot->nfrags = 0;
	memcpy(slot->piece, data->piece, sizeof(slot->piece));
	if (conn->b->link->has_payload) {
		slot->state = SLOT_DUE;
		slot->maps = may_map(conn, data->head.id);
		return conn->err == 0;
	}
	for (uint32_t i = 0; i < slot->npieces; i++)
		rx_frag_add(slot, conn->rx.bounce + (uint64_t)slot->piece[i].line * 64,
			slot->piece[i].len);
	return __crpc_bulk_data_arrive(conn, data);
}

void
__crpc_bulk_data_lose(struct rx_slot *slot)
{
	units_give(&slot->conn->rx.units, slot->piece, slot->npieces);
	slot->state = SLOT_FREE;
}

/* ---- unpacking ---- */

uint32_t
__crpc_bulk_slot_descs(const struct rx_slot *slot, struct crpc_unpack_desc *desc)
{
	const struct bulk_req *req = slot->req;
	uint32_t op = req_op(req);
	uint8_t *dst = req->buf + crpc_unpack_out_len(op, chunk_off(req, slot->index));

	for (uint32_t i = 0; i < slot->nfrags; i++) {
		desc[i] = (struct crpc_unpack_desc){.src = slot->frag[i].at,
			.dst = dst,
			.len = slot->frag[i].len,
			.op = op};
		dst += crpc_unpack_out_len(op, slot->frag[i].len);
	}
	return slot->nfrags;
}

/* The checksum is taken where the bytes end up, unless they are others there, or out of reach. */
static bool
crc_in_bounce(const struct rx_slot *slot)
{
	const struct crpc_unpack_ops *ops = crpc_unpack_engine(slot->conn->b->engine);

	return req_op(slot->req) != CRPC_UNPACK_COPY || (ops->flags & CRPC_UNPACK_DEVICE_MEMORY);
}

/* The message can not be received any more. */
static void
slot_fail(struct rx_slot *slot, const char *cause, int rc)
{
	crpc_err("connection %u, tag 0x%llx, chunk %u: the engine %s %s (%d)", slot->conn->index,
		(unsigned long long)slot->req->tag, slot->index,
		crpc_unpack_engine(slot->conn->b->engine)->name, cause, rc);
	__crpc_bulk_req_stop(slot->req, rc);
}

static void
crc_check(struct rx_slot *slot, const struct crpc_unpack_desc *desc, uint32_t n)
{
	uint32_t crc = 0;

	for (uint32_t i = 0; i < n; i++)
		crc = __crpc_bulk_crc(
			crc, crc_in_bounce(slot) ? desc[i].src : desc[i].dst, desc[i].len);
	if (crc == slot->crc)
		return;
	crpc_err("connection %u, tag 0x%llx, chunk %u: checksum 0x%x, expected 0x%x",
		slot->conn->index, (unsigned long long)slot->req->tag, slot->index, crc, slot->crc);
	__crpc_bulk_req_stop(slot->req, -EBADMSG);
}

static void
slot_unpacked(struct rx_slot *slot, int rc)
{
	struct crpc_bulk_conn *conn = slot->conn;
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
	struct bulk_req *req = slot->req;
	uint64_t now = bulk_clock(conn->b);

	TAILQ_REMOVE(&conn->rx.unpacking, slot, link);
	stage_add(&conn->b->stats.unpack, slot->at_ns, now);
	slot->at_ns = now;
	slot->state = SLOT_UNPACKED;
	req->jobs--;
	req->moved_ns = conn->b->now;
	if (rc != 0 && conn->err == 0)
		slot_fail(slot, "failed", rc);
	else if (rc == 0 && (req->flags & CRPC_BULK_CRC) != 0 && !crc_in_bounce(slot))
		crc_check(slot, desc, __crpc_bulk_slot_descs(slot, desc));
	if (rc != 0 || req->stopping)
		slot_release(slot);
	else if ((req->flags & CRPC_BULK_MANUAL) == 0)
		slot_consume(slot);
}

void
__crpc_bulk_jobs_turn(struct crpc_bulk_conn *conn)
{
	struct rx_slot *next;
	int rc;

	for (struct rx_slot *slot = TAILQ_FIRST(&conn->rx.unpacking); slot != NULL; slot = next) {
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

	for (uint32_t i = 0; i < b->conns; i++)
		while (b->conn[i] != NULL &&
			(slot = TAILQ_FIRST(&b->conn[i]->rx.unpacking)) != NULL)
			slot_unpacked(slot, -EIO);
}

/* Give a chunk to the engine. False: it has no room now. */
static bool
slot_submit(struct rx_slot *slot)
{
	struct crpc_bulk_conn *conn = slot->conn;
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
	struct bulk_req *req = slot->req;
	uint32_t n = __crpc_bulk_slot_descs(slot, desc);
	int rc = 0;

	if ((req->flags & CRPC_BULK_CRC) != 0 && crc_in_bounce(slot) && !req->stopping)
		crc_check(slot, desc, n);
	slot->at_ns = bulk_clock(conn->b);
	if (!req->stopping)
		rc = crpc_unpack_submit(conn->b->engine, desc, n, &slot->job);
	if (rc == -EAGAIN)
		return false;
	TAILQ_REMOVE(&conn->rx.arrived, slot, link);
	if (rc != 0)
		slot_fail(slot, "refused", rc);
	if (req->stopping) {
		slot_release(slot);
		return true;
	}
	slot->state = SLOT_UNPACKING;
	TAILQ_INSERT_TAIL(&conn->rx.unpacking, slot, link);
	req->jobs++;
	return true;
}

void
__crpc_bulk_unpack_turn(struct crpc_bulk_conn *conn)
{
	struct rx_slot *slot;
	uint64_t bytes = 0;

	while (bytes < UNPACK_TURN && !conn->b->stopping &&
		(slot = TAILQ_FIRST(&conn->rx.arrived)) != NULL) {
		bytes += slot->len;
		if (!slot_submit(slot))
			break;
	}
	__crpc_bulk_jobs_turn(conn);
	consumed_send(conn);
}

/* ---- the user's part ---- */

uint16_t
crpc_bulk_chunks(struct crpc_bulk *b, struct crpc_bulk_chunk *chunk, uint16_t n)
{
	struct rx_slot *slot;
	uint16_t i;

	for (i = 0; i < n && (slot = TAILQ_FIRST(&b->chunks)) != NULL; i++) {
		TAILQ_REMOVE(&b->chunks, slot, given);
		slot->in_chunks = false;
		chunk[i] = (struct crpc_bulk_chunk){.token = slot->token,
			.req = slot->req->handle,
			.off = chunk_off(slot->req, slot->index),
			.len = slot->len,
			.index = slot->index,
			.npieces = slot->nfrags};
		for (uint32_t p = 0; p < slot->nfrags; p++) {
			chunk[i].piece[p].data = slot->frag[p].at;
			chunk[i].piece[p].len = slot->frag[p].len;
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
	slot = &conn->rx.slot[token & 0xff];
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
