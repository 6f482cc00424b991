/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages of a transfer: how its two requests find each other, and how they end together.
 */
#include "bulk_pvt.h"
#include "crpc_crc32c.h"

/* ---- receiver: offers ---- */

struct bulk_peer *
__crpc_bulk_peer_find(struct crpc_bulk_conn *conn, uint64_t id)
{
	struct bulk_peer *peer;

	if ((id & 0xffff) >= conn->peer_requests) {
		__crpc_bulk_proto(conn, "the slot of an id", id, id & 0xffff, conn->peer_requests);
		return NULL;
	}
	peer = &conn->peer[id & 0xffff];
	if (peer->id == id)
		return peer->state != PEER_FREE ? peer : NULL;
	if (id >> 16 > peer->id >> 16 || id >> 16 == 0)
		__crpc_bulk_proto(conn, "an id that never was", id, id, peer->id);
	return NULL;
}

static void
peer_free(struct bulk_peer *peer, struct crpc_bulk_conn *conn)
{
	peer->state = PEER_FREE;
	peer->req = NULL;
	conn->peers_busy--;
}

/* The verdict is to be told. */
static void
peer_end(struct bulk_peer *peer, struct crpc_bulk_conn *conn, int32_t status)
{
	if (peer->state == PEER_OFFERED)
		TAILQ_REMOVE(&conn->offers, peer, link);
	peer->state = PEER_ENDED;
	peer->status = status;
	peer->ended_ns = conn->b->now;
	peer->end_owed = true;
	conn->peers_owed++;
}

static struct bulk_peer *
peer_of(const struct bulk_req *req)
{
	return &req->conn->peer[req->id & 0xffff];
}

/* How it moves, of what both allow; 0: not at all. */
static uint8_t
path_choose(const struct bulk_req *req, const struct bulk_peer *peer)
{
	uint32_t both = req->flags & peer->flags & PATHS;

	if (both & CRPC_BULK_WRITE)
		return CRPC_BULK_WRITE;
	return (uint8_t)(both & CRPC_BULK_READ ? CRPC_BULK_READ : both & CRPC_BULK_EAGER);
}

/* 0, or why the two do not fit. */
static int32_t
match_check(struct bulk_req *req, const struct bulk_peer *peer)
{
	bool fits = (req->flags & CRPC_BULK_UP_TO) != 0 ? peer->len <= req->max
							: peer->len == req->max;
	int rc;

	if (!fits || peer->len % crpc_unpack_elem(req_op(req), true) != 0) {
		crpc_err("connection %u, tag 0x%llx: a message of %llu bytes, expected %llu",
				req->conn->index, (unsigned long long)req->tag,
				(unsigned long long)peer->len, (unsigned long long)req->max);
		return -EMSGSIZE;
	}
	req->path = path_choose(req, peer);
	if (req->path == CRPC_BULK_WRITE || req->path == CRPC_BULK_READ) {
		rc = __crpc_bulk_req_register(req);
		if (rc != 0 && (req->flags & peer->flags & CRPC_BULK_EAGER) == 0)
			return rc;
		if (rc != 0)
			req->path = CRPC_BULK_EAGER;
	}
	if (req->path == 0) {
		crpc_err("connection %u, tag 0x%llx: paths 0x%x are offered, expected some of 0x%x",
				req->conn->index, (unsigned long long)req->tag,
				peer->flags & PATHS, req->flags & PATHS);
		return -EOPNOTSUPP;
	}
	return 0;
}

static void
match(struct bulk_req *req, struct bulk_peer *peer)
{
	struct crpc_bulk_conn *conn = req->conn;
	int32_t status;

	TAILQ_REMOVE(&conn->offers, peer, link);
	TAILQ_REMOVE(&conn->posted, req, link);
	TAILQ_INSERT_TAIL(&conn->recvs, req, link);
	peer->state = PEER_MATCHED;
	peer->req = req;
	req->id = peer->id;
	req->len = peer->len;
	req->raddr = peer->raddr;
	memcpy(req->rkey, peer->rkey, sizeof(req->rkey));
	req->flags |= peer->flags & CRPC_BULK_CRC;
	req->state = CRPC_BULK_ACTIVE;
	req->matched_ns = bulk_clock(conn->b);
	req->moved_ns = conn->b->now;
	status = match_check(req, peer);
	req->chunk = req->path == CRPC_BULK_EAGER ? conn->eager_chunk : conn->b->conf.chunk;
	req->nchunks = chunks_of(req->len, req->chunk);
	if (status != 0)
		__crpc_bulk_req_stop(req, status);
}

void
__crpc_bulk_match(struct bulk_req *req)
{
	struct bulk_peer *peer;

	TAILQ_FOREACH(peer, &req->conn->offers, link) {
		if (peer->tag == req->tag) {
			match(req, peer);
			return;
		}
	}
}

void
__crpc_bulk_offer_take(struct crpc_bulk_conn *conn, const struct bulk_wire_offer *offer)
{
	uint64_t id = offer->head.id;
	struct bulk_peer *peer;
	struct bulk_req *req;

	if ((id & 0xffff) >= conn->peer_requests) {
		__crpc_bulk_proto(conn, "the slot of an offer", id, id & 0xffff,
				conn->peer_requests);
		return;
	}
	peer = &conn->peer[id & 0xffff];
	if (peer->state != PEER_FREE || id >> 16 <= peer->id >> 16) {
		__crpc_bulk_proto(conn, "an offer in a slot whose id", id, peer->id, 0);
		return;
	}
	if (offer->len > CRPC_BULK_LEN_MAX || (offer->flags & PATHS) == 0 ||
			(offer->flags & ~(PATHS | CRPC_BULK_CRC)) != 0) {
		__crpc_bulk_proto(conn, "the length or flags of an offer", id,
				offer->len > CRPC_BULK_LEN_MAX ? offer->len : offer->flags, 0);
		return;
	}
	*peer = (struct bulk_peer){.state = PEER_OFFERED,
			.id = id,
			.tag = offer->tag,
			.len = offer->len,
			.raddr = offer->raddr,
			.flags = offer->flags};
	memcpy(peer->rkey, offer->rkey, sizeof(peer->rkey));
	conn->peers_busy++;
	TAILQ_INSERT_TAIL(&conn->offers, peer, link);
	TAILQ_FOREACH(req, &conn->posted, link) {
		if (req->tag == peer->tag) {
			match(req, peer);
			return;
		}
	}
}

/* The verdict is told or will be, and nothing touches the buffer any more. */
static void
recv_end(struct bulk_req *req, struct bulk_peer *peer)
{
	struct crpc_bulk_conn *conn = req->conn;

	__crpc_bulk_slots_drop(req);
	peer->req = NULL;
	if (peer->end_got && !peer->end_owed)
		peer_free(peer, conn);
	if (req->path == CRPC_BULK_WRITE && req->status == 0)
		conn->b->stats.bytes_received += req->len;
	__crpc_bulk_req_done(req, req->status);
}

void
__crpc_bulk_s_end_take(struct crpc_bulk_conn *conn, const struct bulk_wire_end *end)
{
	struct bulk_peer *peer = __crpc_bulk_peer_find(conn, end->head.id);
	int32_t status = end->status;

	if (peer == NULL)
		return;
	if (status > 0 || status < -4095) {
		__crpc_bulk_proto(conn, "the status of an end", peer->id, (uint32_t)status, 0);
		return;
	}
	if (peer->state == PEER_OFFERED && status == 0) {
		__crpc_bulk_proto(conn, "the end of what was not accepted", peer->id, 0, 1);
		return;
	}
	peer->end_got = true;
	if (peer->state == PEER_OFFERED) {
		peer_end(peer, conn, status);
	} else if (peer->req != NULL) {
		peer->req->end_got = true;
		peer->req->peer_crc = end->crc;
		if (status != 0)
			__crpc_bulk_req_stop(peer->req, status);
	}
	if (peer->state != PEER_ENDED || peer->end_owed)
		return;
	/* the sender may use its slot again at once */
	if (peer->req != NULL)
		recv_end(peer->req, peer);
	else
		peer_free(peer, conn);
}

/* Tell verdicts. */
static void
r_ends_send(struct crpc_bulk_conn *conn)
{
	struct bulk_wire_end end = {0};
	struct bulk_peer *peer;
	uint32_t i;

	for (i = 0; i < conn->peer_requests && conn->peers_owed != 0; i++) {
		peer = &conn->peer[i];
		if (peer->state != PEER_ENDED || !peer->end_owed)
			continue;
		end.head = bulk_wire_head(BULK_R_END, sizeof(end), peer->id);
		end.status = peer->status;
		if (!__crpc_bulk_msg(conn, &end, sizeof(end)))
			return;
		peer->end_owed = false;
		conn->peers_owed--;
		if (peer->end_got && peer->req == NULL)
			peer_free(peer, conn);
	}
}

static bool
accept_send(struct bulk_req *req)
{
	struct crpc_bulk_conn *conn = req->conn;
	struct bulk_wire_accept accept = {
			.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), req->id),
			.path = req->path};
	uint32_t i;

	if (req->path == CRPC_BULK_WRITE) {
		accept.raddr = (uintptr_t)req->buf;
		for (i = 0; i < conn->b->conf.nports && req->mr[i] != NULL; i++)
			accept.rkey[i] = req->mr[i]->rkey;
	}
	req->offered = __crpc_bulk_msg(conn, &accept, sizeof(accept));
	return req->offered;
}

/* The next bytes of a message for its checksum. True: all are in it. */
static bool
crc_turn(struct bulk_req *req, uint64_t upto)
{
	uint64_t n = crpc_min(upto - req->crc_at, CRC_TURN);

	req->crc = crpc_crc32c(req->crc, req->buf + req->crc_at, n);
	req->crc_at += n;
	req->moved_ns = req->conn->b->now;
	return req->crc_at == upto;
}

/* All is there: is it right? Eager chunks were checked one by one. */
static void
judge(struct bulk_req *req)
{
	if (req->landed != req->nchunks || !req->end_got)
		return;
	if ((req->flags & CRPC_BULK_CRC) != 0 && req->path != CRPC_BULK_EAGER) {
		if (!crc_turn(req, req->len))
			return;
		if (req->crc != req->peer_crc) {
			crpc_err("connection %u, tag 0x%llx: checksum 0x%x, expected 0x%x",
					req->conn->index, (unsigned long long)req->tag, req->crc,
					req->peer_crc);
			req->status = -EBADMSG;
		}
	}
	req->judged = true;
}

void
__crpc_bulk_recvs_turn(struct crpc_bulk_conn *conn)
{
	struct bulk_req *req, *next;
	struct bulk_peer *peer;

	for (req = TAILQ_FIRST(&conn->recvs); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		peer = peer_of(req);
		if (!req->offered && !req->stopping && !accept_send(req))
			continue;
		if (req->path == CRPC_BULK_WRITE && req->end_got && !req->stopping)
			req->landed = req->nchunks;
		if (!req->judged)
			judge(req);
		if (!req->judged || req->ops != 0 || req->jobs != 0)
			continue;
		if (!req->end_sent) {
			peer_end(peer, conn, req->status);
			req->end_sent = true;
		}
		/* a peer that writes into the buffer must have stopped */
		if (req->path == CRPC_BULK_WRITE && req->offered && !req->end_got)
			continue;
		recv_end(req, peer);
	}
	if (conn->peers_owed != 0)
		r_ends_send(conn);
}

/* ---- sender ---- */

/* The request that an id of ours names; NULL: none, and the connection broke. */
static struct bulk_req *
send_find(struct crpc_bulk_conn *conn, uint64_t id)
{
	struct bulk_req *req = NULL;

	if ((id & 0xffff) < conn->b->conf.requests)
		req = &conn->send[id & 0xffff];
	if (req == NULL || req->handle == 0 || req->id != id || !req->offered ||
			req->state == CRPC_BULK_DONE) {
		__crpc_bulk_proto(conn, "an id of ours", id, id, req != NULL ? req->id : 0);
		return NULL;
	}
	return req;
}

void
__crpc_bulk_accept_take(struct crpc_bulk_conn *conn, const struct bulk_wire_accept *accept)
{
	struct bulk_req *req = send_find(conn, accept->head.id);
	uint32_t path = accept->path;

	if (req == NULL)
		return;
	if (req->state != CRPC_BULK_POSTED || (path & req->flags & PATHS) == 0 ||
			(path & (path - 1)) != 0) {
		__crpc_bulk_proto(conn, "an accepted path", req->id, path, req->flags & PATHS);
		return;
	}
	req->state = CRPC_BULK_ACTIVE;
	req->path = (uint8_t)path;
	req->chunk = path == CRPC_BULK_EAGER ? conn->eager_chunk : conn->b->conf.chunk;
	req->nchunks = chunks_of(req->len, req->chunk);
	req->raddr = accept->raddr;
	memcpy(req->rkey, accept->rkey, sizeof(req->rkey));
	req->matched_ns = bulk_clock(conn->b);
	req->moved_ns = conn->b->now;
	if (path == CRPC_BULK_READ)
		req->state = CRPC_BULK_TRANSMITTING;
}

void
__crpc_bulk_r_end_take(struct crpc_bulk_conn *conn, const struct bulk_wire_end *end)
{
	struct bulk_req *req = send_find(conn, end->head.id);
	int32_t status = end->status;

	if (req == NULL)
		return;
	if (req->judged || status > 0 || status < -4095) {
		__crpc_bulk_proto(conn, "the status of a verdict", req->id, (uint32_t)status, 0);
		return;
	}
	if (status == 0 && (req->path == 0 || (req->path != CRPC_BULK_READ &&
						      req->next != req->nchunks))) {
		__crpc_bulk_proto(conn, "a verdict of success after chunks", req->id, req->next,
				req->nchunks);
		return;
	}
	if (!req->stopping) {
		req->stopping = true;
		req->stop_ns = conn->b->now;
	}
	req->judged = true;
	req->status = status;
}

static bool
offer_send(struct bulk_req *req)
{
	struct crpc_bulk_conn *conn = req->conn;
	struct bulk_wire_offer offer = {
			.head = bulk_wire_head(BULK_OFFER, sizeof(offer), req->id),
			.tag = req->tag,
			.len = req->len,
			.flags = req->flags};
	uint32_t i;

	if (req->flags & CRPC_BULK_READ) {
		offer.raddr = (uintptr_t)req->buf;
		for (i = 0; i < conn->b->conf.nports && req->mr[i] != NULL; i++)
			offer.rkey[i] = req->mr[i]->rkey;
	}
	req->offered = __crpc_bulk_msg(conn, &offer, sizeof(offer));
	return req->offered;
}

/* Nothing of ours is under way any more to or from the buffers, and nothing will be. */
static bool
s_end_due(struct bulk_req *req)
{
	const struct bulk_op *unfinished = req->conn->unfinished;
	bool posted = (unfinished == NULL || unfinished->req != req) && req->again == 0;

	if (req->stopping)
		return req->path == CRPC_BULK_EAGER ? posted : req->ops == 0;
	if (req->path == CRPC_BULK_EAGER)
		return req->next == req->nchunks && posted;
	if (req->path == CRPC_BULK_WRITE)
		return req->next == req->nchunks && req->ops == 0;
	if (req->path == CRPC_BULK_READ)
		return (req->flags & CRPC_BULK_CRC) == 0 || crc_turn(req, req->len);
	return false;
}

static void
s_end_send(struct bulk_req *req)
{
	struct bulk_wire_end end = {
			.head = bulk_wire_head(BULK_S_END, sizeof(end), req->id),
			.status = req->stopping ? req->status : 0,
			.crc = req->path != CRPC_BULK_EAGER ? req->crc : 0};

	req->end_sent = __crpc_bulk_msg(req->conn, &end, sizeof(end));
	if (req->end_sent)
		req->moved_ns = req->conn->b->now;
}

void
__crpc_bulk_sends_turn(struct crpc_bulk_conn *conn)
{
	struct bulk_req *req, *next;

	for (req = TAILQ_FIRST(&conn->sends); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		/* in order: their tags are matched in it */
		if (!req->offered && !offer_send(req))
			return;
		if (!req->end_sent && s_end_due(req))
			s_end_send(req);
		if (req->judged && req->end_sent && req->ops == 0) {
			conn->b->stats.bytes_sent += req->path == CRPC_BULK_READ ? req->len : 0;
			__crpc_bulk_req_done(req, req->status);
		}
	}
}

/* ---- news of progress ---- */

void
__crpc_bulk_moves_take(struct crpc_bulk_conn *conn, const struct bulk_wire_head *head)
{
	bool sender = head->type == BULK_S_MOVES;
	struct bulk_peer *peer = sender ? __crpc_bulk_peer_find(conn, head->id) : NULL;
	struct bulk_req *req = sender ? NULL : send_find(conn, head->id);

	if (conn->err != 0 || (sender && peer == NULL))
		return;
	if (sender ? peer->state == PEER_OFFERED : req->path == 0) {
		__crpc_bulk_proto(conn, "progress of what was not accepted, id", head->id, head->id,
				0);
		return;
	}
	if (sender)
		req = peer->req;
	if (req != NULL)
		req->moved_ns = conn->b->now;
}

/*
 * Only the end that works tells, and not of what it was told itself, so that two ends at which
 * nothing moves do not keep each other waiting.
 */
static bool
moves_tells(const struct bulk_req *req)
{
	if (req->stopping || req->judged || !req->offered)
		return false;
	if (req->recv)
		return req->path == CRPC_BULK_READ || req->end_got;
	return req->path != 0 && req->path != CRPC_BULK_READ && !req->end_sent;
}

void
__crpc_bulk_moves_tell(struct bulk_req *req)
{
	const struct crpc_bulk_conf *conf = &req->conn->b->conf;
	uint64_t now = req->conn->b->now, last = crpc_max(req->told_ns, req->posted_ns);
	struct bulk_wire_head msg;

	if (req->moved_ns <= last ||
		now - last < crpc_min(conf->timeout_ns / 4, conf->confirm_ns) || !moves_tells(req))
		return;
	msg = bulk_wire_head(req->recv ? BULK_R_MOVES : BULK_S_MOVES, sizeof(msg), req->id);
	if (__crpc_bulk_msg(req->conn, &msg, sizeof(msg)))
		req->told_ns = now;
}
