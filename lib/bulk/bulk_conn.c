/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections: their memory, addresses, and how they break.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "bulk_conn.h"
#include "crpc_conf.h"
#include "crpc_mem.h"

/* The tables, behind the connection. */
static void
tables_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct bulk_req *req;

	conn->req = (void *)(conn + 1);
	conn->tx.op = (void *)(conn->req + 2 * conf->requests);
	conn->rx.slot = (void *)(conn->tx.op + conf->tx_chunks);
	for (uint32_t i = 0; i < 2 * conf->requests; i++) {
		req = &conn->req[i];
		req->conn = conn;
		req->recv = i >= conf->requests;
		req->slot = (uint16_t)(i % conf->requests);
		TAILQ_INSERT_TAIL(&conn->free[req->recv], req, link);
	}
	conn->nfree[0] = conn->nfree[1] = conf->requests;
	for (uint32_t i = 0; i < conf->slots; i++)
		conn->rx.slot[i].conn = conn;
}

static int
bounce_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint64_t len = (uint64_t)conf->slots * conf->chunk;
	struct bulk_rx *rx = &conn->rx;
	int rc;

	rx->bounce = crpc_mem_alloc("bulk_bounce", len, 4096, NULL);
	if (rx->bounce == NULL)
		return -ENOMEM;
	if (conn->b->link->has_payload)
		__crpc_bulk_tcp_map(conn, len);
	for (uint32_t i = 0; i < conn->b->ndevs; i++) {
		/* Each chunk is announced by its immediate. */
		rc = crpc_rdma_mr_reg_flags(conf->port[i].dev, rx->bounce, len,
			CRPC_RDMA_MR_RELAXED, &rx->mr[i]);
		if (rc != 0)
			return rc;
	}
	return crpc_unpack_attach(conn->b->engine, rx->bounce, len);
}

/* Free what a connection has, of what was made. */
static void
memory_free(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;

	crpc_unpack_detach(conn->b->engine, conn->rx.bounce);
	for (uint32_t i = 0; i < conf->nports; i++)
		if (conn->rx.mr[i].addr != NULL)
			crpc_rdma_mr_dereg(conf->port[i].dev, &conn->rx.mr[i]);
	if (conn->rx.map != NULL)
		munmap(conn->rx.map, (uint64_t)conf->slots * conf->chunk);
	crpc_mem_free(conn->rx.bounce);
	free(conn);
}

static struct crpc_bulk_conn *
conn_place(struct crpc_bulk *b, uint32_t rails)
{
	size_t size = sizeof(struct crpc_bulk_conn) +
		2 * b->conf.requests * sizeof(struct bulk_req) +
		b->conf.tx_chunks * sizeof(struct bulk_op) +
		b->conf.slots * sizeof(struct rx_slot);
	struct crpc_bulk_conn *conn;
	uint32_t i = 0;

	if (rails == 0 || rails > CRPC_BULK_RAILS_MAX)
		return crpc_null(crpc_fail(-EINVAL, "connection: %u rails, expected 1 to %u", rails,
			CRPC_BULK_RAILS_MAX));
	while (i < b->conf.max_conns && b->conn[i] != NULL)
		i++;
	if (i == b->conf.max_conns)
		return crpc_null(crpc_fail(
			-ENOSPC, "no connection left: all %u of conf.max_conns are taken", i));
	conn = calloc(1, size);
	if (conn == NULL)
		return NULL;
	conn->b = b;
	conn->index = i;
	conn->nrails = rails;
	conn->err = -ENOTCONN;
	conn->bytes = size;
	return conn;
}

/* Nothing has arrived. */
static void
arrivals_clear(struct crpc_bulk_conn *conn)
{
	memset(conn->peer, 0, sizeof(conn->peer));
	TAILQ_INIT(&conn->offers);
	conn->ends_due = 0;
	conn->peers_busy = 0;
	__crpc_bulk_rx_init(conn);
}

struct crpc_bulk_conn *
crpc_bulk_conn_create(struct crpc_bulk *b, uint32_t rails, uint32_t user_id)
{
	struct crpc_bulk_conn *conn = conn_place(b, rails);
	int rc;

	if (conn == NULL)
		return NULL;
	conn->user_id = user_id;
	TAILQ_INIT(&conn->sends);
	TAILQ_INIT(&conn->recvs);
	TAILQ_INIT(&conn->posted);
	TAILQ_INIT(&conn->free[0]);
	TAILQ_INIT(&conn->free[1]);
	tables_init(conn);
	rc = bounce_init(conn);
	if (rc == 0)
		rc = __crpc_bulk_rails_init(conn);
	if (rc != 0) {
		__crpc_bulk_rails_fini(conn);
		memory_free(conn);
		return crpc_null(rc);
	}
	arrivals_clear(conn);
	b->conn[conn->index] = conn;
	b->conns = (uint32_t)crpc_max(b->conns, conn->index + 1);
	return conn;
}

/* Wait until every job of a connection has ended; after a while the engine is stopped. */
static void
jobs_wait(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b = conn->b;

	for (uint32_t tries = 0; tries < 1000000 && !TAILQ_EMPTY(&conn->rx.unpacking); tries++) {
		crpc_unpack_kick(b->engine);
		__crpc_bulk_jobs_turn(conn);
	}
	if (TAILQ_EMPTY(&conn->rx.unpacking))
		return;
	crpc_err("connection %u is freed while its jobs hang: the engine %s is stopped",
		conn->index, crpc_unpack_engine(b->engine)->name);
	while (crpc_unpack_stop(b->engine) != 0)
		;
	__crpc_bulk_jobs_fail(b);
}

void
crpc_bulk_conn_free(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b;

	if (conn == NULL)
		return;
	b = conn->b;
	__crpc_bulk_rails_fini(conn);
	jobs_wait(conn);
	for (uint32_t i = 0; i < b->conf.slots; i++)
		if (conn->rx.slot[i].in_chunks)
			TAILQ_REMOVE(&b->chunks, &conn->rx.slot[i], given);
	for (uint32_t i = 0; i < 2 * b->conf.requests; i++)
		__crpc_bulk_req_forget(&conn->req[i]);
	b->conn[conn->index] = NULL;
	memory_free(conn);
}

void
crpc_bulk_conn_addr(struct crpc_bulk_conn *conn, uint8_t addr[CRPC_BULK_ADDR_LEN])
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct bulk_wire_addr head = {.magic = BULK_WIRE_ADDR_MAGIC,
		.version = BULK_WIRE_VERSION,
		.rails = (uint8_t)conn->nrails,
		.nports = (uint8_t)conf->nports,
		.requests = conf->requests,
		.chunk = conf->chunk,
		.slots = conf->slots,
		.bounce = conn->b->ndevs != 0 ? (uintptr_t)conn->rx.bounce : 0};

	memset(addr, 0, CRPC_BULK_ADDR_LEN);
	for (uint32_t i = 0; i < conf->nports; i++)
		head.rkey[i] = conn->rx.mr[i].rkey;
	memcpy(addr, &head, sizeof(head));
	for (uint32_t i = 0; i < conn->nrails; i++)
		conn->b->link->addr(
			conn->rail[i].ep, addr + sizeof(head) + i * CRPC_COPYRPC_ADDR_LEN);
}

static int
addr_check(const struct crpc_bulk_conn *conn, const struct bulk_wire_addr *a)
{
	const struct crpc_field fields[] = {
		{"magic", a->magic, BULK_WIRE_ADDR_MAGIC, BULK_WIRE_ADDR_MAGIC},
		{"version", a->version, BULK_WIRE_VERSION, BULK_WIRE_VERSION},
		{"rails", a->rails, conn->nrails, conn->nrails},
		{"ports", a->nports, 1, CRPC_BULK_PORTS_MAX},
		{"requests", a->requests, 1, CRPC_BULK_REQUESTS_MAX},
		{"slots", a->slots, 1, CRPC_BULK_SLOTS_MAX},
		{"chunk", crpc_is_pow2(a->chunk) ? a->chunk : 0, CRPC_BULK_CHUNK_MIN,
			CRPC_BULK_CHUNK_MAX}};

	return crpc_address_check(conn->user_id, fields, CRPC_DIM(fields));
}

int
crpc_bulk_conn_connect(struct crpc_bulk_conn *conn, const uint8_t peer[CRPC_BULK_ADDR_LEN])
{
	struct bulk_wire_addr a;
	int rc;

	memcpy(&a, peer, sizeof(a));
	if (conn->err != -ENOTCONN)
		return conn->err == 0 ? -EISCONN : conn->err;
	rc = addr_check(conn, &a);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < conn->nrails; i++) {
		rc = conn->b->link->connect(
			conn->rail[i].ep, peer + sizeof(a) + i * CRPC_COPYRPC_ADDR_LEN);
		if (rc != 0) {
			if (i != 0)
				__crpc_bulk_conn_break(conn, -ECONNRESET);
			return rc;
		}
	}
	conn->peer_ports = a.nports;
	conn->peer_requests = a.requests;
	conn->peer_bounce = a.bounce;
	memcpy(conn->peer_rkey, a.rkey, sizeof(a.rkey));
	conn->eager_chunk = (uint32_t)crpc_min(a.chunk, conn->b->conf.chunk);
	__crpc_bulk_rails_up(conn);
	__crpc_bulk_tx_init(conn, a.chunk, a.slots);
	conn->err = 0;
	return 0;
}

/* ---- breaking ---- */

void
__crpc_bulk_conn_break(struct crpc_bulk_conn *conn, int status)
{
	if (conn->breaking || (conn->err != 0 && conn->err != -ENOTCONN))
		return;
	conn->err = status;
	conn->breaking = true;
	conn->break_ns = 0;
	conn->b->stats.conn_errors++;
	__crpc_bulk_rails_break(conn);
}

bool
__crpc_bulk_proto(struct crpc_bulk_conn *conn, const char *what, uint64_t id, uint64_t found,
	uint64_t expected)
{
	crpc_err("connection %u to peer %u, transfer 0x%llx: %s is 0x%llx, expected 0x%llx; it is "
		 "ended",
		conn->index, conn->user_id, (unsigned long long)id, what, (unsigned long long)found,
		(unsigned long long)expected);
	__crpc_bulk_conn_break(conn, -EPROTO);
	return false;
}

/* The queue pairs are destroyed and the engine has no job: everything ends. */
static void
break_end(struct crpc_bulk_conn *conn)
{
	struct bulk_reqs *lists[3] = {&conn->posted, &conn->recvs, &conn->sends};
	struct bulk_req *req;

	conn->breaking = false;
	for (uint32_t i = 0; i < 3; i++) {
		while ((req = TAILQ_FIRST(lists[i])) != NULL) {
			__crpc_bulk_slots_drop(req);
			__crpc_bulk_req_done(
				req, req->judged && req->recv ? req->status : conn->err);
		}
	}
	arrivals_clear(conn);
}

void
__crpc_bulk_conn_break_on(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b = conn->b;
	bool gone = __crpc_bulk_rails_destroy(conn);

	/* its time begins with the first turn: shutdown() may have come long after the last one */
	if (conn->break_ns == 0)
		conn->break_ns = b->now;
	__crpc_bulk_jobs_turn(conn);
	if (!TAILQ_EMPTY(&conn->rx.unpacking) && b->now - conn->break_ns > b->conf.confirm_ns)
		b->stopping = true;
	if (gone && TAILQ_EMPTY(&conn->rx.unpacking))
		break_end(conn);
}

void
crpc_bulk_conn_shutdown(struct crpc_bulk_conn *conn)
{
	__crpc_bulk_conn_break(conn, -ECONNRESET);
}

int
crpc_bulk_conn_reset(struct crpc_bulk_conn *conn)
{
	uint32_t n = conn->b->conf.requests;
	int rc;

	if (conn->err == 0)
		return -EISCONN;
	if (conn->err == -ENOTCONN)
		return 0;
	if (conn->breaking || conn->nfree[0] != n || conn->nfree[1] != n)
		return -EBUSY;
	for (uint32_t i = 0; i < conn->nrails; i++) {
		rc = conn->b->link->reset(conn->rail[i].ep);
		if (rc != 0)
			return rc;
	}
	conn->err = -ENOTCONN;
	return 0;
}

void
crpc_bulk_pool(const struct crpc_bulk_conn *conn, uint32_t *sends, uint32_t *recvs)
{
	*sends = conn->nfree[0];
	*recvs = conn->nfree[1];
}
