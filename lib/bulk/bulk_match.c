/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages of a transfer: how its two requests find each other, and how they end together.
 */
#include "bulk_conn.h"

/* Bytes that one turn makes a checksum of. */
#define CRC_TURN (UINT64_C(1) << 20)

/* ---- receiver: offers ---- */

/* The entry in which an id of the peer belongs; NULL: there is none, and the connection broke. */
static struct bulk_peer *
peer_slot(struct crpc_bulk_conn *conn, uint64_t id)
{
	if ((id & 0xffff) < conn->peer_requests)
		return &conn->peer[id & 0xffff];
	__crpc_bulk_proto(conn, "the slot of an id", id, id & 0xffff, conn->peer_requests);
	return NULL;
}

struct bulk_peer *
__crpc_bulk_peer_find(struct crpc_bulk_conn *conn, uint64_t id)
{
	struct bulk_peer *peer = peer_slot(conn, id);

	if (peer == NULL)
		return NULL;
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

/* The verdict is to be sent. */
static void
peer_end(struct bulk_peer *peer, struct crpc_bulk_conn *conn, int32_t status)
{
	if (peer->state == PEER_OFFERED)
		TAILQ_REMOVE(&conn->offers, peer, link);
	peer->state = PEER_ENDED;
	peer->status = status;
	peer->ended_ns = conn->b->now;
	peer->end_due = true;
	conn->ends_due++;
}

/* How it moves, of what both allow; 0: not at all. */
static uint8_t
path_choose(const struct bulk_req *req, const struct bulk_peer *peer)
{
	uint32_t both = req->flags & peer->offer.flags & PATHS;

	if (both & CRPC_BULK_WRITE)
		return CRPC_BULK_WRITE;
	return (uint8_t)(both & CRPC_BULK_READ ? CRPC_BULK_READ : both & CRPC_BULK_EAGER);
}

/* 0, or why the two do not fit. */
static int32_t
match_check(struct bulk_req *req, const struct bulk_peer *peer)
{
	uint64_t len = peer->offer.len;
	bool fits = (req->flags & CRPC_BULK_UP_TO) != 0 ? len <= req->max : len == req->max;
	int rc;

	if (!fits || len % crpc_unpack_elem(req_op(req), true) != 0)
		return crpc_fail(-EMSGSIZE,
			"connection %u, tag 0x%llx: a message of %llu bytes, expected %llu",
			req->conn->index, (unsigned long long)req->tag, (unsigned long long)len,
			(unsigned long long)req->max);
	req->path = path_choose(req, peer);
	if (req->path == CRPC_BULK_WRITE || req->path == CRPC_BULK_READ) {
		rc = __crpc_bulk_req_register(req);
		if (rc != 0 && (req->flags & peer->offer.flags & CRPC_BULK_EAGER) == 0)
			return rc;
		if (rc != 0)
			req->path = CRPC_BULK_EAGER;
	}
	if (req->path == 0)
		return crpc_fail(-EOPNOTSUPP,
			"connection %u, tag 0x%llx: paths 0x%x are offered, expected some of 0x%x",
			req->conn->index, (unsigned long long)req->tag, peer->offer.flags & PATHS,
			req->flags & PATHS);
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
	req->len = peer->offer.len;
	req->raddr = peer->offer.raddr;
	memcpy(req->rkey, peer->offer.rkey, sizeof(req->rkey));
	req->flags |= peer->offer.flags & CRPC_BULK_CRC;
	status = match_check(req, peer);
	__crpc_bulk_req_activate(req, req->path);
	if (status != 0)
		__crpc_bulk_req_stop(req, status);
}

void
__crpc_bulk_match(struct bulk_req *req)
{
	struct bulk_peer *peer;

	TAILQ_FOREACH(peer, &req->conn->offers, link)
	{
		if (peer->offer.tag == req->tag) {
			match(req, peer);
			return;
		}
	}
}

bool
__crpc_bulk_offer_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	const struct bulk_wire_offer *offer = &msg->offer;
	uint64_t id = offer->head.id;
	struct bulk_peer *peer = peer_slot(conn, id);
	struct bulk_req *req;

	if (peer == NULL)
		return false;
	if (peer->state != PEER_FREE || id >> 16 <= peer->id >> 16)
		return __crpc_bulk_proto(conn, "an offer in a slot whose id", id, peer->id, 0);
	if (offer->len > CRPC_BULK_LEN_MAX)
		return __crpc_bulk_proto(
			conn, "the length of an offer", id, offer->len, CRPC_BULK_LEN_MAX);
	if ((offer->flags & PATHS) == 0 || (offer->flags & ~(PATHS | CRPC_BULK_CRC)) != 0)
		return __crpc_bulk_proto(conn, "the flags of an offer", id, offer->flags, PATHS);
	*peer = (struct bulk_peer){.state = PEER_OFFERED, .id = id, .offer = *offer};
	conn->peers_busy++;
	TAILQ_INSERT_TAIL(&conn->offers, peer, link);
	TAILQ_FOREACH(req, &conn->posted, link)
	{
		if (req->tag == offer->tag) {
			match(req, peer);
			break;
		}
	}
	return true;
}

/* The verdict is sent or due, and nothing touches the buffer any more. */
static void
recv_end(struct bulk_req *req, struct bulk_peer *peer)
{
	struct crpc_bulk_conn *conn = req->conn;

	__crpc_bulk_slots_drop(req);
	peer->req = NULL;
	if (peer->end_got && !peer->end_due)
		peer_free(peer, conn);
	if (req->path == CRPC_BULK_WRITE && req->status == 0)
		conn->b->stats.bytes_received += req->len;
	__crpc_bulk_req_done(req, req->status);
}

/* Is it an end with a status that there is? */
static bool
end_check(struct crpc_bulk_conn *conn, const struct bulk_wire_end *end)
{
	return (end->status <= 0 && end->status >= -4095) ||
		__crpc_bulk_proto(
			conn, "the status of an end", end->head.id, (uint32_t)end->status, 0);
}

bool
__crpc_bulk_s_end_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	struct bulk_peer *peer = __crpc_bulk_peer_find(conn, msg->head.id);
	int32_t status = msg->end.status;

	if (peer == NULL || !end_check(conn, &msg->end))
		return conn->err == 0;
	if (peer->state == PEER_OFFERED && status == 0)
		return __crpc_bulk_proto(conn, "the end of what was not accepted", peer->id, 0, 1);
	peer->end_got = true;
	if (peer->state == PEER_OFFERED) {
		peer_end(peer, conn, status);
	} else if (peer->req != NULL) {
		peer->req->end_got = true;
		peer->req->peer_crc = msg->end.crc;
		if (status != 0)
			__crpc_bulk_req_stop(peer->req, status);
	}
	if (peer->state != PEER_ENDED || peer->end_due)
		return true;
	/* the sender may use its slot again at once */
	if (peer->req != NULL)
		recv_end(peer->req, peer);
	else
		peer_free(peer, conn);
	return true;
}

/* Send verdicts. */
static void
r_ends_send(struct crpc_bulk_conn *conn)
{
	struct bulk_wire_end end = {0};
	struct bulk_peer *peer;

	for (uint32_t i = 0; i < conn->peer_requests && conn->ends_due != 0; i++) {
		peer = &conn->peer[i];
		if (peer->state != PEER_ENDED || !peer->end_due)
			continue;
		end.head = bulk_wire_head(BULK_R_END, sizeof(end), peer->id);
		end.status = peer->status;
		if (!__crpc_bulk_msg(conn, NULL, &end.head))
			return;
		peer->end_due = false;
		conn->ends_due--;
		if (peer->end_got && peer->req == NULL)
			peer_free(peer, conn);
	}
}

/* Where the device of the peer may write or read a message. */
static void
keys_put(const struct bulk_req *req, uint64_t *raddr, uint32_t rkey[CRPC_BULK_PORTS_MAX])
{
	*raddr = (uintptr_t)req->buf;
	for (uint32_t i = 0; i < req->conn->b->conf.nports && req->mr[i] != NULL; i++)
		rkey[i] = req->mr[i]->rkey;
}

static bool
accept_send(struct bulk_req *req)
{
	struct bulk_wire_accept accept = {
		.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), req->id), .path = req->path};

	if (req->path == CRPC_BULK_WRITE)
		keys_put(req, &accept.raddr, accept.rkey);
	req->offered = __crpc_bulk_msg(req->conn, NULL, &accept.head);
	return req->offered;
}

/* The next bytes of a message for its checksum. True: all are in it. */
static bool
crc_turn(struct bulk_req *req, uint64_t upto)
{
	uint64_t n = crpc_min(upto - req->crc_at, CRC_TURN);

	req->crc = __crpc_bulk_crc(req->crc, req->buf + req->crc_at, n);
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
	struct bulk_req *next;
	struct bulk_peer *peer;

	for (struct bulk_req *req = TAILQ_FIRST(&conn->recvs); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		peer = &conn->peer[req->id & 0xffff];
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
	if (conn->ends_due != 0)
		r_ends_send(conn);
}

/* ---- sender ---- */

/* The request that an id of ours names; NULL: none, and the connection broke. */
static struct bulk_req *
send_find(struct crpc_bulk_conn *conn, uint64_t id)
{
	struct bulk_req *req = NULL;

	if ((id & 0xffff) < conn->b->conf.requests)
		req = &conn->req[id & 0xffff];
	if (req != NULL && req->handle != 0 && req->id == id && req->offered &&
		req->state != CRPC_BULK_DONE)
		return req;
	__crpc_bulk_proto(conn, "an id of ours", id, id, req != NULL ? req->id : 0);
	return NULL;
}

bool
__crpc_bulk_accept_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	struct bulk_req *req = send_find(conn, msg->head.id);
	uint32_t path = msg->accept.path;

	if (req == NULL)
		return false;
	if (req->state != CRPC_BULK_POSTED || (path & req->flags & PATHS) == 0 ||
		(path & (path - 1)) != 0)
		return __crpc_bulk_proto(
			conn, "an accepted path", req->id, path, req->flags & PATHS);
	__crpc_bulk_req_activate(req, (uint8_t)path);
	req->raddr = msg->accept.raddr;
	memcpy(req->rkey, msg->accept.rkey, sizeof(req->rkey));
	if (path == CRPC_BULK_READ)
		req->state = CRPC_BULK_TRANSMITTING;
	return true;
}

bool
__crpc_bulk_r_end_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	struct bulk_req *req = send_find(conn, msg->head.id);
	int32_t status = msg->end.status;

	if (req == NULL || !end_check(conn, &msg->end))
		return false;
	if (req->judged)
		return __crpc_bulk_proto(
			conn, "a second verdict", req->id, (uint32_t)status, (uint32_t)req->status);
	if (status == 0 &&
		(req->path == 0 || (req->path != CRPC_BULK_READ && req->next != req->nchunks)))
		return __crpc_bulk_proto(conn, "a verdict of success after chunks", req->id,
			req->next, req->nchunks);
	if (!req->stopping) {
		req->stopping = true;
		req->stop_ns = conn->b->now;
	}
	req->judged = true;
	req->status = status;
	return true;
}

static bool
offer_send(struct bulk_req *req)
{
	struct bulk_wire_offer offer = {.head = bulk_wire_head(BULK_OFFER, sizeof(offer), req->id),
		.tag = req->tag,
		.len = req->len,
		.flags = req->flags};

	if (req->flags & CRPC_BULK_READ)
		keys_put(req, &offer.raddr, offer.rkey);
	req->offered = __crpc_bulk_msg(req->conn, NULL, &offer.head);
	return req->offered;
}

/* Nothing of ours is under way any more to or from the buffers, and nothing will be. */
static bool
s_end_due(struct bulk_req *req)
{
	const struct bulk_op *unfinished = req->conn->tx.unfinished;
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
	struct bulk_wire_end end = {.head = bulk_wire_head(BULK_S_END, sizeof(end), req->id),
		.status = req->stopping ? req->status : 0,
		.crc = req->path != CRPC_BULK_EAGER ? req->crc : 0};

	req->end_sent = __crpc_bulk_msg(req->conn, NULL, &end.head);
	if (req->end_sent)
		req->moved_ns = req->conn->b->now;
}

void
__crpc_bulk_sends_turn(struct crpc_bulk_conn *conn)
{
	struct bulk_req *next;

	for (struct bulk_req *req = TAILQ_FIRST(&conn->sends); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		/* in order: their tags are matched in it */
		if (!req->offered && !offer_send(req))
			return;
		if (!req->end_sent && s_end_due(req))
			s_end_send(req);
		if (req->judged && req->end_sent && req->ops == 0) {
			if (req->path == CRPC_BULK_READ && req->status == 0)
				conn->b->stats.bytes_sent += req->len;
			__crpc_bulk_req_done(req, req->status);
		}
	}
}

/* ---- reports of progress ---- */

bool
__crpc_bulk_moves_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	bool sender = msg->head.type == BULK_S_MOVES;
	struct bulk_peer *peer = sender ? __crpc_bulk_peer_find(conn, msg->head.id) : NULL;
	struct bulk_req *req = sender ? NULL : send_find(conn, msg->head.id);

	if (conn->err != 0 || (sender && peer == NULL))
		return conn->err == 0;
	if (sender ? peer->state == PEER_OFFERED : req->path == 0)
		return __crpc_bulk_proto(conn, "progress of what was not accepted, id",
			msg->head.id, msg->head.id, 0);
	if (sender)
		req = peer->req;
	if (req != NULL)
		req->moved_ns = conn->b->now;
	return true;
}

/*
 * Only the end that moves chunks reports, and not progress that was reported to it, so that two
 * ends at which nothing moves do not keep each other waiting.
 */
static bool
moves_reports(const struct bulk_req *req)
{
	if (req->stopping || req->judged || !req->offered)
		return false;
	if (req->recv)
		return req->path == CRPC_BULK_READ || req->end_got;
	return req->path != 0 && req->path != CRPC_BULK_READ && !req->end_sent;
}

void
__crpc_bulk_moves_report(struct bulk_req *req)
{
	const struct crpc_bulk_conf *conf = &req->conn->b->conf;
	uint64_t now = req->conn->b->now, last = crpc_max(req->report_ns, req->posted_ns);
	struct bulk_wire_head msg;

	if (req->moved_ns <= last || !moves_reports(req) ||
		now - last < crpc_min(conf->timeout_ns / 4, conf->confirm_ns))
		return;
	msg = bulk_wire_head(req->recv ? BULK_R_MOVES : BULK_S_MOVES, sizeof(msg), req->id);
	if (__crpc_bulk_msg(req->conn, NULL, &msg))
		req->report_ns = now;
}
