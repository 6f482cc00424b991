/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections: their memory, addresses, and how they break.
 */
#include <stdlib.h>

#include "bulk_pvt.h"

/* Memory that is counted. */
static void *
take(struct crpc_bulk_conn *conn, uint64_t n, uint64_t size)
{
	void *p = calloc(n, size);

	if (p != NULL)
		conn->bytes += n * size;
	return p;
}

static void
pool_init(struct bulk_req *req, struct bulk_req **list, uint32_t n, struct crpc_bulk_conn *conn)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		req[i].conn = conn;
		req[i].slot = (uint16_t)i;
		list[i] = &req[n - 1 - i];
	}
}

static int
tables_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint32_t i;

	conn->send = take(conn, conf->requests, sizeof(*conn->send));
	conn->recv = take(conn, conf->requests, sizeof(*conn->recv));
	conn->send_free = take(conn, conf->requests, sizeof(*conn->send_free));
	conn->recv_free = take(conn, conf->requests, sizeof(*conn->recv_free));
	conn->peer = take(conn, CRPC_BULK_REQUESTS_MAX, sizeof(*conn->peer));
	conn->op = take(conn, conf->tx_chunks, sizeof(*conn->op));
	conn->op_free = take(conn, conf->tx_chunks, sizeof(*conn->op_free));
	conn->tx_slot = take(conn, CRPC_BULK_SLOTS_MAX, sizeof(*conn->tx_slot));
	conn->slot_free = take(conn, CRPC_BULK_SLOTS_MAX, sizeof(*conn->slot_free));
	conn->rx_slot = take(conn, conf->slots, sizeof(*conn->rx_slot));
	conn->consumed = take(conn, conf->slots, sizeof(*conn->consumed));
	if (conn->send == NULL || conn->recv == NULL || conn->send_free == NULL ||
			conn->recv_free == NULL || conn->peer == NULL || conn->op == NULL ||
			conn->op_free == NULL || conn->tx_slot == NULL || conn->slot_free == NULL ||
			conn->rx_slot == NULL || conn->consumed == NULL)
		return -ENOMEM;
	pool_init(conn->send, conn->send_free, conf->requests, conn);
	pool_init(conn->recv, conn->recv_free, conf->requests, conn);
	conn->nsend_free = conn->nrecv_free = conf->requests;
	for (i = 0; i < conf->slots; i++)
		conn->rx_slot[i].conn = conn;
	return 0;
}

static void
tables_fini(struct crpc_bulk_conn *conn)
{
	free(conn->send);
	free(conn->recv);
	free(conn->send_free);
	free(conn->recv_free);
	free(conn->peer);
	free(conn->op);
	free(conn->op_free);
	free(conn->tx_slot);
	free(conn->slot_free);
	free(conn->rx_slot);
	free(conn->consumed);
}

static int
bounce_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint64_t len = (uint64_t)conf->slots * conf->chunk;
	uint32_t i;
	int rc;

	conn->unit = conf->chunk / CRPC_BULK_PIECES_MAX;
	conn->bounce = aligned_alloc(4096, len);
	if (conn->bounce == NULL)
		return -ENOMEM;
	/* what arrives must not find the memory missing, and old heap is nobody's to read */
	memset(conn->bounce, 0, len);
	for (i = 0; i < conf->nports; i++) {
		rc = crpc_rdma_mr_reg(conf->port[i].dev, conn->bounce, len, &conn->bounce_mr[i]);
		if (rc != 0)
			return rc;
	}
	return crpc_unpack_attach(conn->b->engine, conn->bounce, len);
}

static void
bounce_fini(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint32_t i;

	crpc_unpack_detach(conn->b->engine, conn->bounce);
	for (i = 0; i < conf->nports; i++) {
		if (conn->bounce_mr[i].addr != NULL)
			crpc_rdma_mr_dereg(conf->port[i].dev, &conn->bounce_mr[i]);
	}
	free(conn->bounce);
}

static struct crpc_bulk_conn *
conn_place(struct crpc_bulk *b, uint32_t rails)
{
	struct crpc_bulk_conn *conn;
	uint32_t i = 0;

	if (rails == 0 || rails > CRPC_BULK_RAILS_MAX) {
		crpc_err("connection: %u rails, expected 1 to %u", rails, CRPC_BULK_RAILS_MAX);
		errno = EINVAL;
		return NULL;
	}
	while (i < b->conf.max_conns && b->conn[i] != NULL)
		i++;
	if (i == b->conf.max_conns) {
		crpc_err("no connection left: all %u of conf.max_conns are taken", i);
		errno = ENOSPC;
		return NULL;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return NULL;
	*conn = (struct crpc_bulk_conn){.b = b,
			.index = i,
			.nrails = rails,
			.err = -ENOTCONN,
			.bytes = sizeof(*conn)};
	return conn;
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
	TAILQ_INIT(&conn->offers);
	rc = tables_init(conn);
	if (rc == 0)
		rc = bounce_init(conn);
	if (rc == 0)
		rc = __crpc_bulk_rails_init(conn);
	if (rc != 0) {
		__crpc_bulk_rails_fini(conn);
		bounce_fini(conn);
		tables_fini(conn);
		free(conn);
		errno = -rc;
		return NULL;
	}
	__crpc_bulk_rx_init(conn);
	b->conn[conn->index] = conn;
	b->conns = (uint32_t)crpc_max(b->conns, conn->index + 1);
	return conn;
}

/* Every job of a connection has ended: asked for a while, then the engine is stopped. */
static void
jobs_wait(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b = conn->b;
	uint32_t tries;

	for (tries = 0; tries < 1000000 && !TAILQ_EMPTY(&conn->unpacking); tries++) {
		crpc_unpack_kick(b->engine);
		__crpc_bulk_jobs_turn(conn);
	}
	if (TAILQ_EMPTY(&conn->unpacking))
		return;
	crpc_err("connection %u is freed while its jobs hang: the engine %s is stopped",
			conn->index, crpc_unpack_engine(b->engine)->name);
	while (crpc_unpack_stop(b->engine) != 0)
		;
	__crpc_bulk_jobs_fail(b);
}

static void
req_forget(struct crpc_bulk *b, struct bulk_req *req)
{
	uint32_t i;

	if (req->handle != 0 && req->state == CRPC_BULK_DONE) {
		TAILQ_REMOVE(&b->done, req, link);
		b->ndone--;
	}
	for (i = 0; i < b->conf.nports; i++) {
		if (req->mr[i] != NULL)
			crpc_mrcache_put(b->cache[i], req->mr[i]);
	}
}

void
crpc_bulk_conn_free(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b;
	uint32_t i;

	if (conn == NULL)
		return;
	b = conn->b;
	__crpc_bulk_rails_fini(conn);
	jobs_wait(conn);
	for (i = 0; i < b->conf.slots; i++) {
		if (conn->rx_slot[i].in_chunks)
			TAILQ_REMOVE(&b->chunks, &conn->rx_slot[i], given);
	}
	for (i = 0; i < b->conf.requests; i++) {
		req_forget(b, &conn->send[i]);
		req_forget(b, &conn->recv[i]);
	}
	b->conn[conn->index] = NULL;
	bounce_fini(conn);
	tables_fini(conn);
	free(conn);
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
			.bounce = (uintptr_t)conn->bounce};
	uint32_t i;

	memset(addr, 0, CRPC_BULK_ADDR_LEN);
	for (i = 0; i < conf->nports; i++)
		head.rkey[i] = conn->bounce_mr[i].rkey;
	memcpy(addr, &head, sizeof(head));
	for (i = 0; i < conn->nrails; i++)
		crpc_copyrpc_ep_addr(conn->rail[i].ep,
				addr + sizeof(head) + i * CRPC_COPYRPC_ADDR_LEN);
}

static int
addr_wrong(const struct crpc_bulk_conn *conn, const char *what, uint64_t found, uint64_t expected)
{
	crpc_err("connection %u: the peer's address has %s 0x%llx, expected 0x%llx", conn->index,
			what, (unsigned long long)found, (unsigned long long)expected);
	return -EPROTO;
}

static int
addr_check(const struct crpc_bulk_conn *conn, const struct bulk_wire_addr *a)
{
	if (a->magic != BULK_WIRE_ADDR_MAGIC)
		return addr_wrong(conn, "magic", a->magic, BULK_WIRE_ADDR_MAGIC);
	if (a->version != BULK_WIRE_VERSION)
		return addr_wrong(conn, "version", a->version, BULK_WIRE_VERSION);
	if (a->rails != conn->nrails)
		return addr_wrong(conn, "rails", a->rails, conn->nrails);
	if (a->nports == 0 || a->nports > CRPC_BULK_PORTS_MAX)
		return addr_wrong(conn, "ports", a->nports, CRPC_BULK_PORTS_MAX);
	if (a->requests == 0 || a->requests > CRPC_BULK_REQUESTS_MAX)
		return addr_wrong(conn, "requests", a->requests, CRPC_BULK_REQUESTS_MAX);
	if (a->slots == 0 || a->slots > CRPC_BULK_SLOTS_MAX)
		return addr_wrong(conn, "slots", a->slots, CRPC_BULK_SLOTS_MAX);
	if (!crpc_is_pow2(a->chunk) || a->chunk < CRPC_BULK_CHUNK_MIN ||
			a->chunk > CRPC_BULK_CHUNK_MAX)
		return addr_wrong(conn, "chunk", a->chunk, conn->b->conf.chunk);
	return 0;
}

int
crpc_bulk_conn_connect(struct crpc_bulk_conn *conn, const uint8_t peer[CRPC_BULK_ADDR_LEN])
{
	struct bulk_wire_addr a;
	uint32_t i;
	int rc;

	memcpy(&a, peer, sizeof(a));
	if (conn->err != -ENOTCONN)
		return conn->err == 0 ? -EISCONN : conn->err;
	rc = addr_check(conn, &a);
	if (rc != 0)
		return rc;
	for (i = 0; i < conn->nrails; i++) {
		rc = crpc_copyrpc_ep_connect(conn->rail[i].ep,
				peer + sizeof(a) + i * CRPC_COPYRPC_ADDR_LEN);
		if (rc != 0) {
			if (i != 0)
				__crpc_bulk_conn_break(conn, -ECONNRESET);
			return rc;
		}
	}
	conn->peer_ports = a.nports;
	conn->peer_requests = a.requests;
	conn->peer_slots = a.slots;
	conn->peer_unit = a.chunk / CRPC_BULK_PIECES_MAX;
	conn->peer_bounce = a.bounce;
	memcpy(conn->peer_rkey, a.rkey, sizeof(a.rkey));
	conn->eager_chunk = (uint32_t)crpc_min(a.chunk, conn->b->conf.chunk);
	__crpc_bulk_rails_up(conn);
	__crpc_bulk_tx_init(conn);
	__crpc_bulk_rx_init(conn);
	conn->err = 0;
	return 0;
}

/* ---- breaking ---- */

void
__crpc_bulk_conn_break(struct crpc_bulk_conn *conn, int status)
{
	uint32_t i;

	if (conn->breaking || (conn->err != 0 && conn->err != -ENOTCONN))
		return;
	conn->err = status;
	conn->breaking = true;
	conn->break_ns = conn->b->now;
	conn->b->stats.conn_errors++;
	for (i = 0; i < conn->nrails; i++) {
		conn->rail[i].gone = false;
		crpc_copyrpc_ep_shutdown(conn->rail[i].ep);
	}
}

void
__crpc_bulk_proto(struct crpc_bulk_conn *conn, const char *what, uint64_t id, uint64_t found,
		uint64_t expected)
{
	crpc_err("connection %u to peer %u, transfer 0x%llx: %s is 0x%llx, expected 0x%llx; it is "
		 "ended", conn->index, conn->user_id, (unsigned long long)id, what,
			(unsigned long long)found, (unsigned long long)expected);
	__crpc_bulk_conn_break(conn, -EPROTO);
}

/* The queue pairs are gone and the engine has nothing of it: everything ends. */
static void
break_end(struct crpc_bulk_conn *conn)
{
	struct bulk_reqs *lists[3] = {&conn->posted, &conn->recvs, &conn->sends};
	struct bulk_req *req;
	uint32_t i;

	conn->breaking = false;
	for (i = 0; i < 3; i++) {
		while ((req = TAILQ_FIRST(lists[i])) != NULL) {
			__crpc_bulk_slots_drop(req);
			__crpc_bulk_req_done(
				req, req->judged && req->recv ? req->status : conn->err);
		}
	}
	memset(conn->peer, 0, CRPC_BULK_REQUESTS_MAX * sizeof(*conn->peer));
	TAILQ_INIT(&conn->offers);
	conn->peers_owed = 0;
	conn->peers_busy = 0;
	__crpc_bulk_rx_init(conn);
}

void
__crpc_bulk_conn_break_on(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b = conn->b;
	bool gone = true;
	uint32_t i;

	for (i = 0; i < conn->nrails; i++) {
		/* any answer but -EBUSY comes after the queue pair was destroyed */
		if (!conn->rail[i].gone)
			conn->rail[i].gone = crpc_copyrpc_ep_reset(conn->rail[i].ep) != -EBUSY;
		gone = gone && conn->rail[i].gone;
	}
	__crpc_bulk_jobs_turn(conn);
	if (!TAILQ_EMPTY(&conn->unpacking) && b->now - conn->break_ns > b->conf.confirm_ns)
		b->stopping = true;
	if (gone && TAILQ_EMPTY(&conn->unpacking))
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
	uint32_t i, n = conn->b->conf.requests;
	int rc;

	if (conn->err == 0)
		return -EISCONN;
	if (conn->err == -ENOTCONN)
		return 0;
	if (conn->breaking || conn->nsend_free != n || conn->nrecv_free != n)
		return -EBUSY;
	for (i = 0; i < conn->nrails; i++) {
		rc = crpc_copyrpc_ep_reset(conn->rail[i].ep);
		if (rc != 0)
			return rc;
	}
	conn->err = -ENOTCONN;
	return 0;
}

int
crpc_bulk_conn_status(const struct crpc_bulk_conn *conn)
{
	return conn->err;
}

void
crpc_bulk_pool(const struct crpc_bulk_conn *conn, uint32_t *sends, uint32_t *recvs)
{
	*sends = conn->nsend_free;
	*recvs = conn->nrecv_free;
}
