/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: how they begin, and how they are over.
 */
#include "bulk_conn.h"

/* A handle: serial (45 bits), connection (10), receive (1), slot (8). */
static struct bulk_req *
handle_find(const struct crpc_bulk *b, uint64_t handle)
{
	struct crpc_bulk_conn *conn = b->conn[handle >> 9 & 0x3ff];
	struct bulk_req *req;

	if (conn == NULL || handle == 0 || (handle & 0xff) >= b->conf.requests)
		return NULL;
	req = &conn->req[(handle >> 8 & 1) * b->conf.requests + (handle & 0xff)];
	return req->handle == handle ? req : NULL;
}

/* Take a free one; the rest of it is set when it is matched. */
static struct bulk_req *
req_take(struct crpc_bulk_conn *conn, bool recv, uint64_t now_ns, uint64_t tag, const void *buf,
	uint64_t len, uint32_t flags, uint64_t cookie)
{
	struct bulk_req *req = TAILQ_FIRST(&conn->free[recv]);

	TAILQ_REMOVE(&conn->free[recv], req, link);
	conn->nfree[recv]--;
	conn->b->now = now_ns;
	*req = (struct bulk_req){.conn = conn,
		.slot = req->slot,
		.recv = recv,
		.state = CRPC_BULK_POSTED,
		.tag = tag,
		.cookie = cookie,
		.buf = (uint8_t *)(uintptr_t)buf,
		.max = len,
		.len = recv ? 0 : len,
		.flags = flags,
		.posted_ns = now_ns,
		.moved_ns = now_ns};
	req->handle = ++conn->b->serial << 19 | (uint64_t)conn->index << 9 | (uint64_t)recv << 8 |
		req->slot;
	return req;
}

static void
req_free(struct bulk_req *req)
{
	req->handle = 0;
	req->state = CRPC_BULK_FREE;
	TAILQ_INSERT_HEAD(&req->conn->free[req->recv], req, link);
	req->conn->nfree[req->recv]++;
}

static void
req_unregister(struct bulk_req *req)
{
	struct crpc_bulk *b = req->conn->b;

	for (uint32_t i = 0; i < b->conf.nports; i++) {
		if (req->mr[i] != NULL)
			crpc_mrcache_put(b->cache[i], req->mr[i]);
		req->mr[i] = NULL;
	}
}

void
__crpc_bulk_req_forget(struct bulk_req *req)
{
	struct crpc_bulk *b = req->conn->b;

	req_unregister(req);
	if (req->state == CRPC_BULK_DONE) {
		TAILQ_REMOVE(&b->done, req, link);
		b->ndone--;
	}
}

int
__crpc_bulk_req_register(struct bulk_req *req)
{
	struct crpc_bulk *b = req->conn->b;
	int rc;

	for (uint32_t i = 0; i < b->ndevs && i < req->conn->nrails && req->len != 0; i++) {
		rc = crpc_mrcache_get(b->cache[i], req->buf, req->len, &req->mr[i]);
		if (rc != 0) {
			req_unregister(req);
			return rc;
		}
	}
	return 0;
}

void
__crpc_bulk_req_activate(struct bulk_req *req, uint8_t path)
{
	struct crpc_bulk_conn *conn = req->conn;

	req->state = CRPC_BULK_ACTIVE;
	req->path = path;
	req->chunk = path == CRPC_BULK_EAGER ? conn->eager_chunk : conn->b->conf.chunk;
	req->nchunks = (uint32_t)((req->len + req->chunk - 1) / req->chunk);
	req->matched_ns = bulk_clock(conn->b);
	req->moved_ns = conn->b->now;
}

static int
begin_check(const struct crpc_bulk_conn *conn, const void *buf, uint64_t len, uint32_t flags,
	uint32_t allowed, uint32_t nfree)
{
	if ((flags & ~allowed) != 0 || (buf == NULL && len != 0))
		return -EINVAL;
	if (len > CRPC_BULK_LEN_MAX)
		return -EMSGSIZE;
	if (conn->err != 0)
		return conn->err;
	if (nfree == 0) {
		conn->b->stats.again++;
		return -EAGAIN;
	}
	return 0;
}

int
crpc_bulk_isend(struct crpc_bulk_conn *conn, uint64_t now_ns, uint64_t tag, const void *buf,
	uint64_t len, uint32_t flags, uint64_t cookie, uint64_t *handle)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct bulk_req *req;
	int rc = begin_check(conn, buf, len, flags, PATHS | CRPC_BULK_CRC, conn->nfree[0]);

	if (rc != 0)
		return rc;
	if ((flags & PATHS) == 0)
		flags |= len < conf->rendezvous_min ? CRPC_BULK_EAGER
						    : CRPC_BULK_WRITE | CRPC_BULK_EAGER;
	if (conn->b->link->has_payload)
		flags &= ~(PATHS & ~CRPC_BULK_EAGER);
	if ((flags & PATHS) == 0)
		return -EOPNOTSUPP;
	req = req_take(conn, false, now_ns, tag, buf, len, flags, cookie);
	rc = __crpc_bulk_req_register(req);
	if (rc != 0) {
		req_free(req);
		return rc;
	}
	req->id = ++conn->serial << 16 | req->slot;
	TAILQ_INSERT_TAIL(&conn->sends, req, link);
	conn->b->stats.sends++;
	*handle = req->handle;
	return 0;
}

/* What the flags of a receive allow; 0: they contradict each other. */
static uint32_t
recv_paths(uint32_t flags)
{
	uint32_t paths = (flags & PATHS) != 0 ? flags & PATHS : PATHS;

	if ((flags & (CRPC_BULK_MANUAL | CRPC_BULK_UNREGISTERED)) != 0 || flags >> 8 != 0)
		paths &= CRPC_BULK_EAGER;
	return paths;
}

int
crpc_bulk_irecv(struct crpc_bulk_conn *conn, uint64_t now_ns, uint64_t tag, void *buf, uint64_t len,
	uint32_t flags, uint64_t cookie, uint64_t *handle)
{
	const struct crpc_unpack_ops *engine = crpc_unpack_engine(conn->b->engine);
	uint32_t op = flags >> 8, paths = recv_paths(flags);
	struct bulk_req *req;
	int rc = begin_check(conn, buf, len, flags,
		PATHS | CRPC_BULK_MANUAL | CRPC_BULK_UP_TO | CRPC_BULK_UNREGISTERED |
			CRPC_BULK_CONVERT(0xff),
		conn->nfree[1]);

	if (rc != 0)
		return rc;
	if (op >= CRPC_UNPACK_OPS || paths == 0 || len % crpc_unpack_elem(op, true) != 0)
		return -EINVAL;
	if (conn->b->link->has_payload)
		paths &= CRPC_BULK_EAGER;
	if (paths == 0 ||
		(op != CRPC_UNPACK_COPY && (engine->flags & CRPC_UNPACK_CAN_CONVERT) == 0))
		return -EOPNOTSUPP;
	req = req_take(conn, true, now_ns, tag, buf, len, (flags & ~PATHS) | paths, cookie);
	TAILQ_INSERT_TAIL(&conn->posted, req, link);
	conn->b->stats.recvs++;
	*handle = req->handle;
	__crpc_bulk_match(req);
	return 0;
}

/* ---- the end ---- */

void
__crpc_bulk_req_done(struct bulk_req *req, int32_t status)
{
	struct crpc_bulk_conn *conn = req->conn;
	struct crpc_bulk *b = conn->b;

	if (!req->recv)
		TAILQ_REMOVE(&conn->sends, req, link);
	else if (req->id == 0)
		TAILQ_REMOVE(&conn->posted, req, link);
	else
		TAILQ_REMOVE(&conn->recvs, req, link);
	req_unregister(req);
	req->state = CRPC_BULK_DONE;
	req->status = status;
	req->done_ns = bulk_clock(b);
	b->stats.ended++;
	b->stats.failed += status != 0;
	TAILQ_INSERT_TAIL(&b->done, req, link);
	b->ndone++;
}

void
__crpc_bulk_req_stop(struct bulk_req *req, int32_t status)
{
	if (req->stopping || req->judged)
		return;
	req->stopping = true;
	req->stop_ns = req->conn->b->now;
	req->status = status;
	if (req->recv)
		req->judged = true;
	else
		req->end_sent = false; /* one with success is superseded */
}

int
crpc_bulk_cancel(struct crpc_bulk *b, uint64_t now_ns, uint64_t handle)
{
	struct bulk_req *req = handle_find(b, handle);

	if (req == NULL)
		return -ENOENT;
	if (req->state == CRPC_BULK_DONE || req->stopping || req->judged || req->conn->err != 0)
		return -EALREADY;
	b->now = now_ns;
	if (req->recv ? req->id == 0 : !req->offered)
		__crpc_bulk_req_done(req, -ECANCELED);
	else
		__crpc_bulk_req_stop(req, -ECANCELED);
	return 0;
}

static void
result_take(struct crpc_bulk *b, struct bulk_req *req, struct crpc_bulk_result *result)
{
	*result = (struct crpc_bulk_result){.req = req->handle,
		.cookie = req->cookie,
		.tag = req->tag,
		.len = req->len,
		.conn = req->conn,
		.status = req->status,
		.path = req->path,
		.recv = req->recv,
		.posted_ns = req->posted_ns,
		.matched_ns = req->matched_ns,
		.first_ns = req->first_ns,
		.done_ns = req->done_ns};
	__crpc_bulk_req_forget(req);
	req_free(req);
}

int
crpc_bulk_test(struct crpc_bulk *b, uint64_t handle, struct crpc_bulk_result *result)
{
	struct bulk_req *req = handle_find(b, handle);

	if (req == NULL)
		return -ENOENT;
	if (req->state != CRPC_BULK_DONE)
		return -EAGAIN;
	result_take(b, req, result);
	return 0;
}

uint16_t
crpc_bulk_test_burst(struct crpc_bulk *b, struct crpc_bulk_result *result, uint16_t n)
{
	uint16_t i;

	for (i = 0; i < n && !TAILQ_EMPTY(&b->done); i++)
		result_take(b, TAILQ_FIRST(&b->done), &result[i]);
	return i;
}

/* ---- deadlines ---- */

static bool
overdue(uint64_t now, uint64_t since, uint64_t limit)
{
	return now > since && now - since > limit;
}

/* False: the connection is to break. */
static bool
req_sweep(struct bulk_req *req)
{
	struct crpc_bulk *b = req->conn->b;

	if (!req->stopping && overdue(b->now, req->moved_ns, b->conf.timeout_ns)) {
		crpc_warn("connection %u: %s with tag 0x%llx had no progress for %llu ns, state %u",
			req->conn->index, req->recv ? "receive" : "send",
			(unsigned long long)req->tag, (unsigned long long)b->conf.timeout_ns,
			req->state);
		__crpc_bulk_req_stop(req, -ETIMEDOUT);
		return true;
	}
	/* an engine that hangs is stopped before: the peer waits for its jobs */
	if (req->stopping && req->jobs != 0 &&
		overdue(b->now, req->stop_ns, b->conf.confirm_ns / 2))
		b->stopping = true;
	return !req->stopping || req->jobs != 0 ||
		!overdue(b->now, req->stop_ns, b->conf.confirm_ns);
}

/* The last progress of those that have chunks under way. */
static uint64_t
list_moved(const struct bulk_reqs *list, uint64_t last)
{
	const struct bulk_req *req;

	TAILQ_FOREACH(req, list, link)
		if (has_under_way(req))
			last = crpc_max(last, req->moved_ns);
	return last;
}

/* Requests that wait for the chunks of others are as late as these. */
static bool
list_sweep(const struct bulk_reqs *list, uint64_t moved_ns)
{
	struct bulk_req *req;
	bool fine = true;

	TAILQ_FOREACH(req, list, link)
	{
		if (moved_ns > req->moved_ns && !has_under_way(req) &&
			__crpc_bulk_waits_for(req) >= WAIT_SLOTS)
			req->moved_ns = moved_ns;
		__crpc_bulk_moves_report(req);
		fine = req_sweep(req) && fine;
	}
	return fine;
}

void
__crpc_bulk_sweep(struct crpc_bulk_conn *conn)
{
	struct crpc_bulk *b = conn->b;
	uint64_t moved_ns;
	struct bulk_req *next;
	bool fine;

	if (b->now < conn->sweep_ns)
		return;
	conn->sweep_ns = b->now + crpc_min(b->conf.timeout_ns, b->conf.confirm_ns) / 8;
	for (struct bulk_req *req = TAILQ_FIRST(&conn->posted); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		if (overdue(b->now, req->moved_ns, b->conf.timeout_ns))
			__crpc_bulk_req_done(req, -ETIMEDOUT);
	}
	moved_ns = list_moved(&conn->recvs, list_moved(&conn->sends, 0));
	fine = list_sweep(&conn->sends, moved_ns);
	fine = list_sweep(&conn->recvs, moved_ns) && fine;
	for (uint32_t i = 0; i < CRPC_BULK_REQUESTS_MAX && conn->peers_busy != 0; i++)
		fine = fine &&
			(conn->peer[i].state != PEER_ENDED || conn->peer[i].end_got ||
				!overdue(b->now, conn->peer[i].ended_ns, b->conf.confirm_ns));
	if (!fine) {
		crpc_err("connection %u to peer %u: the peer did not confirm an end in %llu ns",
			conn->index, conn->user_id, (unsigned long long)b->conf.confirm_ns);
		__crpc_bulk_conn_break(conn, -ETIMEDOUT);
	}
}
