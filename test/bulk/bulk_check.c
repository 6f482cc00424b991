/* SPDX-License-Identifier: BSD-3-Clause */
#include "bulk_check.h"
#include "bulk_conn.h"
#include "rpc_audit.h"

static uint32_t
pieces_units(const struct units *units, const struct bulk_wire_piece *piece, uint32_t n)
{
	uint32_t sum = 0;

	while (n-- != 0)
		sum += units_of(units, piece[n].len);
	return sum;
}

/* What is under way, counted from both sides. */
static bool
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
	return rpc_rules_hold(conn->index, conn->user_id,
		(const struct rpc_rule[]){
			{"ops taken and free", conn->b->conf.tx_chunks, ops + tx->nop_free},
			{"bytes of the ops that are not under way on a rail", 0, under_way},
			{"chunks to be posted again", tx->nagain, again},
			{"ops of the requests", ops, counted},
			{"slots taken and free", tx->nslots, taken + tx->nslot_free},
			{"units of the slots", tx->units.used, units}, {0}});
}

static bool
check_rx(const struct crpc_bulk_conn *conn)
{
	const struct bulk_rx *rx = &conn->rx;
	const struct rx_slot *slot;
	uint32_t units = 0, orphans = 0;

	for (uint32_t i = 0; i < conn->b->conf.slots; i++) {
		slot = &rx->slot[i];
		if (slot->state == SLOT_FREE || slot->state == SLOT_CONSUMED)
			continue;
		orphans += slot->state != SLOT_DUE &&
			(slot->req == NULL || slot->req->conn != conn ||
				slot->req->state == CRPC_BULK_DONE);
		units += pieces_units(&rx->units, slot->piece, slot->npieces);
	}
	if (conn->err != 0) /* a chunk that broke the connection may have left some */
		units = rx->units.used;
	return rpc_rules_hold(conn->index, conn->user_id,
		(const struct rpc_rule[]){{"slots without an open request", 0, orphans},
			{"units of the slots", rx->units.used, units}, {0}});
}

static bool
check_rest(const struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	const struct rpc_rule always[] = {{"sends free", conf->requests, conn->nfree[0]},
		{"receives free", conf->requests, conn->nfree[1]},
		{"it is breaking", false, conn->breaking}, {0}};
	const struct rpc_rule whole[] = {{"ops free", conf->tx_chunks, conn->tx.nop_free},
		{"slots of the peer free", conn->tx.nslots, conn->tx.nslot_free},
		{"slots to be given back", 0, !TAILQ_EMPTY(&conn->rx.consumed)},
		{"units taken", 0, conn->rx.units.used}, {"rails closing", 0, conn->nclosing},
		{"messages to be sent again", 0, !TAILQ_EMPTY(&conn->again)},
		{"transfers of the peer", 0, conn->peers_busy + conn->ends_due}, {0}};

	return rpc_rules_hold(conn->index, conn->user_id, always) &&
		(conn->err != 0 || rpc_rules_hold(conn->index, conn->user_id, whole));
}

int
bulk_check(const struct crpc_bulk *b, bool at_rest)
{
	const struct crpc_bulk_conn *conn;

	for (uint32_t i = 0; i < b->conns; i++) {
		conn = b->conn[i];
		if (conn != NULL &&
			(!check_rx(conn) || (conn->err == 0 && !check_tx(conn)) ||
				(at_rest && !check_rest(conn))))
			return -EFAULT;
	}
	return 0;
}
