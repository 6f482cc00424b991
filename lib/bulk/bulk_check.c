/* SPDX-License-Identifier: BSD-3-Clause */
/* The auditor. */
#include "bulk_conn.h"

/* 0, or -EFAULT after a line. */
static int
same(const struct crpc_bulk_conn *conn, const char *rule, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return 0;
	return crpc_fail(-EFAULT, "connection %u: %s: %llu, expected %llu", conn->index, rule,
		(unsigned long long)found, (unsigned long long)expected);
}

static uint32_t
units_count(const struct units *units)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < UNITS_MAX / 64; i++)
		n += (uint32_t)__builtin_popcountll(units->bits[i]);
	return n;
}

static uint32_t
pieces_units(const struct units *units, const struct bulk_wire_piece *piece, uint32_t n)
{
	uint32_t sum = 0;

	while (n-- != 0)
		sum += units_of(units, piece[n].len);
	return sum;
}

static int
check_requests(const struct crpc_bulk_conn *conn)
{
	const struct bulk_reqs *lists[] = {&conn->sends, &conn->recvs, &conn->posted,
		&conn->free[0], &conn->free[1], &conn->b->done};
	uint32_t listed[2] = {0, 0}, nfree[2] = {0, 0};
	const struct bulk_req *req;

	for (uint32_t i = 0; i < CRPC_DIM(lists); i++) {
		TAILQ_FOREACH(req, lists[i], link)
		{
			listed[req->recv] += req->conn == conn;
			nfree[req->recv] += req->conn == conn && req->handle == 0;
		}
	}
	return same(conn, "sends open, done and free", listed[0], conn->b->conf.requests) |
		same(conn, "receives open, done and free", listed[1], conn->b->conf.requests) |
		same(conn, "sends free", nfree[0], conn->nfree[0]) |
		same(conn, "receives free", nfree[1], conn->nfree[1]);
}

/* What is under way, counted from both sides. */
static int
check_tx(const struct crpc_bulk_conn *conn)
{
	uint32_t ops = 0, counted = 0, taken = 0, units = 0;
	const struct bulk_tx *tx = &conn->tx;
	const struct bulk_req *req;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < conn->b->conf.tx_chunks; i++) {
		if (tx->op[i].req == NULL)
			continue;
		ops++;
		bytes += tx->op[i].len;
	}
	TAILQ_FOREACH(req, &conn->sends, link)
	counted += req->ops;
	TAILQ_FOREACH(req, &conn->recvs, link)
	counted += req->ops;
	for (uint32_t i = 0; i < tx->nslots; i++) {
		taken += tx->slot[i].npieces != 0;
		units += pieces_units(&tx->units, tx->slot[i].piece, tx->slot[i].npieces);
	}
	return same(conn, "ops taken and free", ops + tx->nop_free, conn->b->conf.tx_chunks) |
		same(conn, "bytes of the ops", bytes, tx->bytes) |
		same(conn, "ops of the requests", counted, ops) |
		same(conn, "slots taken and free", taken + tx->nslot_free, tx->nslots) |
		same(conn, "units of the slots", units, tx->units.used) |
		same(conn, "units taken", units_count(&tx->units), tx->units.used);
}

static uint32_t
sents_count(const struct bulk_sents *list)
{
	const struct bulk_sent *sent;
	uint32_t n = 0;

	TAILQ_FOREACH(sent, list, link)
	n++;
	return n;
}

/* Chunks and messages of each rail, and those that wait for another one. */
static int
check_rails(const struct crpc_bulk_conn *conn)
{
	uint32_t up = 0, closing = 0, again = 0, sent = 0;
	uint64_t under_way[CRPC_BULK_RAILS_MAX] = {0};
	const struct bulk_op *op;
	int rc = 0;

	for (uint32_t i = 0; i < conn->b->conf.tx_chunks; i++) {
		op = &conn->tx.op[i];
		if (op->req == NULL)
			continue;
		again += op->again;
		if (!op->again)
			under_way[op->rail] += op->len;
	}
	for (uint32_t i = 0; i < conn->nrails; i++) {
		up += conn->rail[i].state == RAIL_UP;
		closing +=
			conn->rail[i].state == RAIL_BREAKING || conn->rail[i].state == RAIL_LEAVING;
		sent += sents_count(&conn->rail[i].kept);
		rc |= same(
			conn, "bytes under way on a rail", conn->rail[i].under_way, under_way[i]);
	}
	sent += sents_count(&conn->again) + sents_count(&conn->sent_free);
	return rc | same(conn, "rails up", up, conn->nup) |
		same(conn, "rails closing", closing, conn->nclosing) |
		same(conn, "chunks to be posted again", again, conn->tx.nagain) |
		same(conn, "state of the rail for messages", conn->rail[conn->lead].state,
			RAIL_UP) |
		same(conn, "messages kept and free", sent, conn->nsent);
}

static int
check_rx(const struct crpc_bulk_conn *conn)
{
	uint32_t units = 0, states[SLOT_CONSUMED + 1] = {0}, listed[3] = {0};
	const struct bulk_rx *rx = &conn->rx;
	const struct rx_slots *lists[] = {&rx->arrived, &rx->unpacking, &rx->consumed};
	const struct rx_slot *slot;
	int rc = 0;

	for (uint32_t i = 0; i < conn->b->conf.slots; i++) {
		slot = &rx->slot[i];
		states[slot->state]++;
		if (slot->state == SLOT_FREE || slot->state == SLOT_CONSUMED)
			continue;
		rc |= same(conn, "a slot has an open request",
			slot->req != NULL && slot->req->conn == conn &&
				slot->req->state != CRPC_BULK_DONE,
			true);
		units += pieces_units(&rx->units, slot->piece, slot->npieces);
	}
	for (uint32_t i = 0; i < CRPC_DIM(lists); i++) {
		TAILQ_FOREACH(slot, lists[i], link)
		listed[i]++;
	}
	rc |= same(conn, "slots that have arrived", listed[0], states[SLOT_ARRIVED]) |
		same(conn, "slots that are unpacked", listed[1], states[SLOT_UNPACKING]) |
		same(conn, "slots that are consumed", listed[2], states[SLOT_CONSUMED]);
	/* a chunk that broke the connection may have left some */
	if (conn->err == 0)
		rc |= same(conn, "units of the slots", units, rx->units.used) |
			same(conn, "units taken", units_count(&rx->units), rx->units.used);
	return rc;
}

static int
check_rest(const struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	int rc = same(conn, "sends free", conn->nfree[0], conf->requests) |
		same(conn, "receives free", conn->nfree[1], conf->requests) |
		same(conn, "it is breaking", conn->breaking, false);

	if (rc != 0 || conn->err != 0)
		return rc;
	return same(conn, "ops free", conn->tx.nop_free, conf->tx_chunks) |
		same(conn, "slots of the peer free", conn->tx.nslot_free, conn->tx.nslots) |
		same(conn, "units of the peer taken", conn->tx.units.used, 0) |
		same(conn, "slots to be given back", !TAILQ_EMPTY(&conn->rx.consumed), 0) |
		same(conn, "units taken", conn->rx.units.used, 0) |
		same(conn, "rails closing", conn->nclosing, 0) |
		same(conn, "messages to be sent again", !TAILQ_EMPTY(&conn->again), 0) |
		same(conn, "transfers of the peer", conn->peers_busy + conn->ends_due, 0);
}

int
crpc_bulk_check(const struct crpc_bulk *b, bool at_rest)
{
	const struct crpc_bulk_conn *conn;
	int rc = 0;

	for (uint32_t i = 0; i < b->conns && rc == 0; i++) {
		conn = b->conn[i];
		if (conn == NULL)
			continue;
		rc = check_requests(conn) | check_rx(conn);
		if (conn->err == 0)
			rc |= check_tx(conn) | check_rails(conn);
		if (rc == 0 && at_rest)
			rc = check_rest(conn);
	}
	for (uint32_t i = 0; i < b->conf.nports && rc == 0; i++)
		rc = crpc_mrcache_check(b->cache[i]);
	return rc;
}
