/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The auditor, and the state as text.
 */
#include "bulk_pvt.h"

static int
wrong(const struct crpc_bulk_conn *conn, const char *rule, uint64_t found, uint64_t expected)
{
	crpc_err("connection %u: %s: %llu, expected %llu", conn->index, rule,
			(unsigned long long)found, (unsigned long long)expected);
	return -EFAULT;
}

static uint32_t
units_count(const uint64_t *bits)
{
	uint32_t i, n = 0;

	for (i = 0; i < UNITS_MAX / 64; i++)
		n += (uint32_t)__builtin_popcountll(bits[i]);
	return n;
}

static int
check_requests(const struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	const struct bulk_req *req;
	uint32_t sends = 0, recvs = 0, done[2] = {0, 0};

	TAILQ_FOREACH(req, &conn->sends, link)
		sends++;
	TAILQ_FOREACH(req, &conn->recvs, link)
		recvs++;
	TAILQ_FOREACH(req, &conn->posted, link)
		recvs++;
	TAILQ_FOREACH(req, &conn->b->done, link)
		done[req->recv] += req->conn == conn;
	if (sends + done[0] + conn->nsend_free != conf->requests)
		return wrong(conn, "sends open, done and free", sends + done[0] + conn->nsend_free,
				conf->requests);
	if (recvs + done[1] + conn->nrecv_free != conf->requests)
		return wrong(conn, "receives open, done and free",
				recvs + done[1] + conn->nrecv_free, conf->requests);
	return 0;
}

/* What is under way, counted from both sides. */
static int
check_tx(const struct crpc_bulk_conn *conn)
{
	uint32_t i, ops = 0, taken = 0, units = 0, p;
	const struct tx_slot *slot;
	const struct bulk_req *req;
	uint64_t bytes = 0;

	for (i = 0; i < conn->b->conf.tx_chunks; i++) {
		if (conn->op[i].req == NULL)
			continue;
		ops++;
		bytes += conn->op[i].len;
	}
	if (ops + conn->nop_free != conn->b->conf.tx_chunks)
		return wrong(conn, "ops taken and free", ops + conn->nop_free,
				conn->b->conf.tx_chunks);
	if (bytes != conn->tx_bytes)
		return wrong(conn, "bytes of the ops", bytes, conn->tx_bytes);
	TAILQ_FOREACH(req, &conn->sends, link)
		ops -= req->ops;
	TAILQ_FOREACH(req, &conn->recvs, link)
		ops -= req->ops;
	if (ops != 0)
		return wrong(conn, "ops that no request counts", ops, 0);
	for (i = 0; i < conn->peer_slots; i++) {
		slot = &conn->tx_slot[i];
		taken += slot->taken;
		for (p = 0; slot->taken && p < slot->npieces; p++)
			units += chunks_of(slot->piece[p].len, conn->peer_unit);
	}
	if (taken + conn->nslot_free != conn->peer_slots)
		return wrong(conn, "slots taken and free", taken + conn->nslot_free,
				conn->peer_slots);
	if (units + conn->nunits_free != conn->nunits ||
			units_count(conn->unit_free) != conn->nunits_free)
		return wrong(conn, "units taken and free", units + conn->nunits_free, conn->nunits);
	return 0;
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
	uint32_t i, up = 0, closing = 0, again = 0, sent = 0;
	uint64_t under_way[CRPC_BULK_RAILS_MAX] = {0};
	const struct bulk_op *op;

	for (i = 0; i < conn->b->conf.tx_chunks; i++) {
		op = &conn->op[i];
		if (op->req == NULL)
			continue;
		again += op->again;
		if (!op->again)
			under_way[op->rail] += op->len;
	}
	for (i = 0; i < conn->nrails; i++) {
		up += conn->rail[i].state == RAIL_UP;
		closing += conn->rail[i].state == RAIL_CLOSING;
		sent += sents_count(&conn->rail[i].sent);
		if (under_way[i] != conn->rail[i].under_way)
			return wrong(conn, "bytes under way on a rail", conn->rail[i].under_way,
					under_way[i]);
	}
	sent += sents_count(&conn->again);
	if (up != conn->nup || closing != conn->nclosing || again != conn->nagain)
		return wrong(conn, "rails up and closing, chunks to go again",
				up << 16 | closing << 8 | again,
				conn->nup << 16 | conn->nclosing << 8 | conn->nagain);
	if (up == 0 || conn->rail[conn->lead].state != RAIL_UP)
		return wrong(conn, "the rail for messages is not up", conn->lead, up);
	if (conn->sent != NULL && (sents_count(&conn->sent_free) != conn->nsent_free ||
						  sent + conn->nsent_free != conn->nsent))
		return wrong(conn, "messages kept and free", sent + conn->nsent_free, conn->nsent);
	return 0;
}

static int
check_rx(const struct crpc_bulk_conn *conn)
{
	uint32_t i, p, units = 0, states[4] = {0}, listed[2] = {0};
	const struct rx_slot *slot;

	for (i = 0; i < conn->b->conf.slots; i++) {
		slot = &conn->rx_slot[i];
		states[slot->state]++;
		if (slot->state == SLOT_FREE)
			continue;
		if (slot->req == NULL || slot->req->conn != conn ||
				slot->req->state == CRPC_BULK_DONE)
			return wrong(conn, "a slot without an open request", i, 0);
		for (p = 0; p < slot->npieces; p++)
			units += chunks_of(slot->piece[p].len, conn->unit);
	}
	TAILQ_FOREACH(slot, &conn->waiting, link)
		listed[0]++;
	TAILQ_FOREACH(slot, &conn->unpacking, link)
		listed[1]++;
	if (listed[0] != states[SLOT_ARRIVED] || listed[1] != states[SLOT_UNPACKING])
		return wrong(conn, "slots in lists", listed[0] + listed[1],
				states[SLOT_ARRIVED] + states[SLOT_UNPACKING]);
	/* a chunk that broke the connection may have left some */
	if (conn->err == 0 && units_count(conn->unit_held) != units)
		return wrong(conn, "units held", units_count(conn->unit_held), units);
	return 0;
}

static int
check_rest(const struct crpc_bulk_conn *conn)
{
	uint32_t n = conn->b->conf.requests;

	if (conn->nsend_free != n || conn->nrecv_free != n)
		return wrong(conn, "requests free", conn->nsend_free + conn->nrecv_free, 2 * n);
	if (conn->breaking)
		return wrong(conn, "it is breaking", 1, 0);
	if (conn->err != 0)
		return 0;
	if (conn->nop_free != conn->b->conf.tx_chunks)
		return wrong(conn, "ops free", conn->nop_free, conn->b->conf.tx_chunks);
	if (conn->nslot_free != conn->peer_slots || conn->nunits_free != conn->nunits)
		return wrong(conn, "slots free", conn->nslot_free, conn->peer_slots);
	if (conn->nconsumed != 0 || units_count(conn->unit_held) != 0)
		return wrong(conn, "units held", units_count(conn->unit_held), 0);
	if (conn->nclosing != 0 || !TAILQ_EMPTY(&conn->again))
		return wrong(conn, "rails closing", conn->nclosing, 0);
	if (conn->peers_busy != 0 || conn->peers_owed != 0)
		return wrong(conn, "transfers of the peer", conn->peers_busy, 0);
	return 0;
}

int
crpc_bulk_check(const struct crpc_bulk *b, bool at_rest)
{
	const struct crpc_bulk_conn *conn;
	uint32_t i;
	int rc;

	for (i = 0; i < b->conns; i++) {
		conn = b->conn[i];
		if (conn == NULL)
			continue;
		rc = check_requests(conn);
		if (rc == 0 && conn->err == 0)
			rc = check_tx(conn);
		if (rc == 0 && conn->err == 0)
			rc = check_rails(conn);
		if (rc == 0)
			rc = check_rx(conn);
		if (rc == 0 && at_rest)
			rc = check_rest(conn);
		if (rc != 0)
			return rc;
	}
	for (i = 0; i < b->conf.nports; i++) {
		rc = crpc_mrcache_check(b->cache[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static void
dump_req(const struct bulk_req *req, FILE *out)
{
	static const char *const states[] = {
			"free", "posted", "active", "transmitting", "done"};

	fprintf(out, "    %s 0x%llx tag 0x%llx %s path %u, %llu bytes, chunk %u: posted %u, "
		     "landed %u of %u; ops %u, jobs %u%s%s%s, status %d\n",
			req->recv ? "receive" : "send", (unsigned long long)req->handle,
			(unsigned long long)req->tag, states[req->state], req->path,
			(unsigned long long)req->len, req->chunk, req->next, req->landed,
			req->nchunks, req->ops, req->jobs, req->stopping ? ", stopping" : "",
			req->end_sent ? ", end sent" : "", req->end_got ? ", end got" : "",
			req->status);
}

static void
dump_rail(const struct crpc_bulk_conn *conn, uint32_t i, FILE *out)
{
	static const char *const states[] = {"up", "closing", "down", "meeting", "joined"};
	const struct bulk_rail *rail = &conn->rail[i];

	fprintf(out, "  rail %u%s: %s%s%s, life %u, status %d, %llu bytes under way, %.3f GB/s, "
		     "messages %llu, taken %llu\n",
			i, i == conn->lead ? " (for messages)" : "", states[rail->state],
			rail->told || (rail->state == RAIL_CLOSING && rail->down_via != NONE)
					? ", told" : "", rail->heard ? ", heard" : "", rail->life,
			crpc_copyrpc_ep_status(rail->ep), (unsigned long long)rail->under_way,
			rail->rate, (unsigned long long)rail->nsent,
			(unsigned long long)rail->ntaken);
}

static void
dump_conn(const struct crpc_bulk_conn *conn, FILE *out)
{
	const struct bulk_req *req;
	uint32_t i;

	fprintf(out, "connection %u to peer %u: status %d%s\n", conn->index, conn->user_id,
			conn->err, conn->breaking ? ", breaking" : "");
	fprintf(out, "  window: %u of %u chunks, %llu bytes; the peer's slots free %u of %u, "
		     "units %u of %u; to be told %u\n",
			conn->b->conf.tx_chunks - conn->nop_free, conn->b->conf.tx_chunks,
			(unsigned long long)conn->tx_bytes, conn->nslot_free, conn->peer_slots,
			conn->nunits_free, conn->nunits, conn->nconsumed);
	for (i = 0; i < conn->nrails; i++)
		dump_rail(conn, i, out);
	TAILQ_FOREACH(req, &conn->sends, link)
		dump_req(req, out);
	TAILQ_FOREACH(req, &conn->posted, link)
		dump_req(req, out);
	TAILQ_FOREACH(req, &conn->recvs, link)
		dump_req(req, out);
}

int
crpc_bulk_dump(const struct crpc_bulk *b, FILE *out)
{
	uint32_t i;

	fprintf(out, "bulk: %u ended requests wait; engine %s, %u jobs\n", b->ndone,
			crpc_unpack_engine(b->engine)->name, crpc_unpack_open_jobs(b->engine));
	for (i = 0; i < b->conns; i++) {
		if (b->conn[i] != NULL)
			dump_conn(b->conn[i], out);
	}
	return ferror(out) ? -EIO : 0;
}
