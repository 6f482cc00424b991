/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_clock.h"
#include "daemon.h"

/* Phase 1: an answer of another rank goes to the client that waits for it. */
static void
pass_answer(struct kv_daemon *d, const struct crpc_done *done)
{
	int rc;

	if (crpc_unlikely(done->cookie >= KV_NET_COOKIE_OWN)) {
		kv_net_own_done(d->net, done);
		return;
	}
	if (crpc_likely(done->status == 0)) {
		rc = crpc_ipc_server_reply(d->ipc, done->cookie, done->data, done->len);
		/* -ECONNRESET: the client has gone, and nobody waits. */
		if (crpc_likely(rc != -EMSGSIZE))
			return;
	}
	d->stats.failed++;
	crpc_ipc_server_fail(d->ipc, done->cookie,
		done->status == -ECONNRESET ? -EHOSTUNREACH
			: done->status == 0 ? -EPROTO
					    : done->status);
}

static void
reply_head(struct kv_daemon *d, uint64_t now, uint64_t token, enum kv_status status, uint8_t op)
{
	uint8_t msg[sizeof(struct kv_resp_hdr)];

	kv_resp_write(msg, status, op, 0, 0);
	crpc_copyrpc_reply(d->net->ctx, now, token, msg, sizeof(msg));
}

/* A request of another rank that is none for the store. */
static crpc_noinline void
net_other(struct kv_daemon *d, uint64_t now, uint64_t token, uint8_t op)
{
	if (op == KV_STOP)
		d->stop = true;
	else if (op != KV_PING)
		d->stats.bad++;
	reply_head(d, now, token, op == KV_STOP || op == KV_PING ? KV_OK : KV_BAD_REQUEST, op);
}

static bool
is_store_op(const struct kv_daemon *d, const struct kv_req *req)
{
	return req->op >= KV_GET && req->op <= KV_DELETE && req->key_len == d->key_size;
}

/* The answer is written straight into the batch that goes out. */
static void
net_reply(struct kv_daemon *d, uint64_t now, uint64_t token, const struct kv_served *served)
{
	uint32_t len = (uint32_t)(sizeof(struct kv_resp_hdr) + served->value_len);
	void *msg;

	if (crpc_unlikely(crpc_copyrpc_reply_reserve(d->net->ctx, token, len, &msg) != 0)) {
		/* The caller reserved less than it asked for, or its connection broke. */
		d->stats.failed++;
		crpc_copyrpc_reject(d->net->ctx, now, token, -EMSGSIZE);
		return;
	}
	kv_resp_write(msg, served->status, served->op, served->value_len, served->version);
	if (served->value_len == 8)
		memcpy((uint8_t *)msg + sizeof(struct kv_resp_hdr), served->value, 8);
	else if (served->value_len != 0)
		memcpy((uint8_t *)msg + sizeof(struct kv_resp_hdr), served->value,
			served->value_len);
	crpc_copyrpc_reply_commit(d->net->ctx, now);
}

/* Phase 2: requests of other ranks, as one batch of lookups. */
static uint32_t
serve_peers(struct kv_daemon *d, uint64_t now)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t i, n, hash;

	n = crpc_copyrpc_recv(d->net->ctx, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	for (i = 0; i < n; i++) {
		if (crpc_unlikely(kv_req_read(d->req[i].data, d->req[i].len, &req) != 0)) {
			net_other(d, now, d->req[i].token, 0);
			continue;
		}
		if (crpc_unlikely(!is_store_op(d, &req))) {
			net_other(d, now, d->req[i].token, req.op);
			continue;
		}
		hash = kv_hash(req.key, req.key_len);
		d->index[kv_batch_add(b, &req, hash)] = i;
	}
	kv_store_lookup(d->store, b);
	/* A reply's time less its request's is the turnaround that the caller is told. */
	if (b->n != 0)
		now = crpc_clock_ns();
	for (i = 0; i < b->n; i++) {
		/* The copy of the key decides: the bytes of the message may have changed since. */
		if (crpc_unlikely(kv_owner(kv_hash(b->key[i], d->key_size), d->ranks) != d->rank)) {
			net_other(d, now, d->req[d->index[i]].token, b->req[i].op);
			continue;
		}
		kv_store_exec(d->store, b, i, &served);
		net_reply(d, now, d->req[d->index[i]].token, &served);
	}
	d->stats.served += n;
	return n;
}

static void
ipc_fail(struct kv_daemon *d, uint64_t token, int status)
{
	d->stats.failed++;
	crpc_ipc_server_fail(d->ipc, token, status);
}

/* A client's request that is none for a store. */
static crpc_noinline void
ipc_other(struct kv_daemon *d, uint64_t token, uint8_t op)
{
	uint8_t *value = d->msg + sizeof(struct kv_resp_hdr);
	uint32_t len = 0;

	if (op == KV_INFO && d->info.writer < d->writer_end) {
		len = sizeof(d->info);
		memcpy(value, &d->info, len);
		d->info.writer++;
		kv_resp_write(d->msg, KV_OK, op, len, 0);
	} else {
		d->stats.bad++;
		kv_resp_write(d->msg, KV_BAD_REQUEST, op, 0, 0);
	}
	crpc_ipc_server_reply(d->ipc, token, d->msg, (uint32_t)sizeof(struct kv_resp_hdr) + len);
}

static void
ipc_reply(struct kv_daemon *d, uint64_t token, const struct kv_served *served)
{
	uint8_t *value = d->msg + sizeof(struct kv_resp_hdr);

	kv_resp_write(d->msg, served->status, served->op, served->value_len, served->version);
	if (served->value_len == 8)
		memcpy(value, served->value, 8);
	else if (served->value_len != 0)
		memcpy(value, served->value, served->value_len);
	crpc_ipc_server_reply(
		d->ipc, token, d->msg, (uint32_t)(sizeof(struct kv_resp_hdr) + served->value_len));
}

static void
forward(struct kv_daemon *d, uint64_t now, const struct crpc_req *r, const struct kv_req *req,
	uint32_t owner)
{
	uint32_t resp_max =
		(uint32_t)sizeof(struct kv_resp_hdr) + (req->op == KV_GET ? d->value_size : 0);
	int rc = kv_net_call(d->net, now, owner, r->data, r->len, resp_max, r->token);

	d->stats.remote++;
	if (crpc_unlikely(rc != 0))
		ipc_fail(d, r->token, rc);
}

/* Phase 3: requests of our clients; those of other ranks' keys leave, the others are one batch. */
static uint32_t
serve_clients(struct kv_daemon *d, uint64_t now)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t i, n, hash, owner = d->rank;

	n = crpc_ipc_server_recv(d->ipc, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	for (i = 0; i < n; i++) {
		if (crpc_unlikely(kv_req_read(d->req[i].data, d->req[i].len, &req) != 0)) {
			ipc_other(d, d->req[i].token, 0);
			continue;
		}
		if (crpc_unlikely(!is_store_op(d, &req))) {
			ipc_other(d, d->req[i].token, req.op);
			continue;
		}
		hash = kv_hash(req.key, req.key_len);
		if (d->ranks > 1)
			owner = kv_owner(hash, d->ranks);
		if (owner == d->rank)
			d->index[kv_batch_add(b, &req, hash)] = i;
		else
			forward(d, now, &d->req[i], &req, owner);
	}
	kv_store_lookup(d->store, b);
	for (i = 0; i < b->n; i++) {
		kv_store_exec(d->store, b, i, &served);
		ipc_reply(d, d->req[d->index[i]].token, &served);
	}
	d->stats.local += b->n;
	return n;
}

uint32_t
kv_daemon_turn(struct kv_daemon *d, uint64_t now)
{
	uint32_t i, n = 0, work = 0;

	if (d->net != NULL) {
		n = crpc_copyrpc_poll(d->net->ctx, now, d->done, CRPC_BURST_MAX);
		for (i = 0; i < n; i++)
			pass_answer(d, &d->done[i]);
		work = n + serve_peers(d, now);
	}
	work += serve_clients(d, now);
	if (d->net != NULL) {
		if (crpc_unlikely(d->net->waiting != 0))
			work += kv_net_drain(d->net, now);
		crpc_copyrpc_flush(d->net->ctx, now);
	}
	d->stats.turns++;
	d->stats.busy += work != 0;
	return work;
}

void
kv_daemon_watch(struct kv_daemon *d, uint64_t now, bool ask_peers)
{
	uint64_t token;

	crpc_ipc_server_reap(d->ipc);
	if (d->net == NULL)
		return;
	kv_net_watch(d->net, now, ask_peers);
	while (kv_net_pop_lost(d->net, &token))
		ipc_fail(d, token, -EHOSTUNREACH);
}
