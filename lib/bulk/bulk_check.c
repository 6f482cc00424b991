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
pieces_units(const struct units *units, const struct bulk_wire_piece *piece, uint32_t n)
{
	uint32_t sum = 0;

	while (n-- != 0)
		sum += units_of(units, piece[n].len);
	return sum;
}

/* What is under way, counted from both sides. */
static int
check_tx(const struct crpc_bulk_conn *conn)
{
	uint32_t ops = 0, counted = 0, taken = 0, units = 0, again = 0;
	const struct bulk_tx *tx = &conn->tx;
	uint64_t under_way = 0;

	for (uint32_t i = 0; i < conn->b->conf.tx_chunks; i++) {
		if (tx->op[i].req == NULL)
			continue;
		ops++;
		again += tx->op[i].again;
		under_way += tx->op[i].again ? 0 : tx->op[i].len;
	}
	for (uint32_t i = 0; i < 2 * conn->b->conf.requests; i++)
		counted += conn->req[i].handle != 0 ? conn->req[i].ops : 0;
	for (uint32_t i = 0; i < tx->nslots; i++) {
		taken += tx->slot[i].npieces != 0;
		units += pieces_units(&tx->units, tx->slot[i].piece, tx->slot[i].npieces);
	}
	for (uint32_t i = 0; i < conn->nrails; i++)
		under_way -= conn->rail[i].under_way;
	return same(conn, "ops taken and free", ops + tx->nop_free, conn->b->conf.tx_chunks) |
		same(conn, "bytes of the ops that are not under way on a rail", under_way, 0) |
		same(conn, "chunks to be posted again", again, tx->nagain) |
		same(conn, "ops of the requests", counted, ops) |
		same(conn, "slots taken and free", taken + tx->nslot_free, tx->nslots) |
		same(conn, "units of the slots", units, tx->units.used);
}

static int
check_rx(const struct crpc_bulk_conn *conn)
{
	const struct bulk_rx *rx = &conn->rx;
	const struct rx_slot *slot;
	uint32_t units = 0;
	int rc = 0;

	for (uint32_t i = 0; i < conn->b->conf.slots; i++) {
		slot = &rx->slot[i];
		if (slot->state == SLOT_FREE || slot->state == SLOT_CONSUMED)
			continue;
		rc |= same(conn, "a slot has an open request",
			slot->req != NULL && slot->req->conn == conn &&
				slot->req->state != CRPC_BULK_DONE,
			true);
		units += pieces_units(&rx->units, slot->piece, slot->npieces);
	}
	/* a chunk that broke the connection may have left some */
	return conn->err != 0 ? rc : rc | same(conn, "units of the slots", units, rx->units.used);
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
		rc = check_rx(conn);
		if (conn->err == 0)
			rc |= check_tx(conn);
		if (rc == 0 && at_rest)
			rc = check_rest(conn);
	}
	return rc;
}
