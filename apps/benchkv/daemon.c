/* SPDX-License-Identifier: BSD-3-Clause */
#include "app_fail.h"
#include "crpc_clock.h"
#include "ipc_inline.h"
#include "daemon.h"
#include "store_quick.h"

_Static_assert(KV_BATCH_BUCKETS == CRPC_COPYRPC_BATCH_BUCKETS, "as copyrpc counts batches");
_Static_assert(CRPC_BURST_MAX < 1 << KV_TAKEN_BUCKETS, "a bucket for every burst");

/* Requests of clients come by ipc, or by the port of another backend. */
static inline uint32_t
front_recv(struct kv_daemon *d)
{
	if (crpc_likely(d->port == NULL))
		return crpc_ipc_server_recv(d->ipc, d->now, d->req, CRPC_BURST_MAX);
	return d->port->backend->recv(d->port, d->now, d->req, CRPC_BURST_MAX);
}

static inline int
front_reply(struct kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	if (crpc_likely(d->port == NULL))
		return crpc_ipc_server_reply(d->ipc, d->now, token, data, len);
	return d->port->backend->reply(d->port, d->now, token, data, len);
}

static void
ipc_fail(struct kv_daemon *d, uint64_t token, int status)
{
	d->stats.failed++;
	if (d->port == NULL)
		crpc_ipc_server_fail(d->ipc, d->now, token, status);
	else
		d->port->backend->fail(d->port, d->now, token, status);
}

/* Answer, or fail a call that allows no answer of that length. */
static inline void
reply_or_fail(struct kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	if (crpc_unlikely(front_reply(d, token, data, len) == -EMSGSIZE))
		ipc_fail(d, token, -EMSGSIZE);
}

/* Requests that came in blocks become the messages in those; none, where a block has none. */
static crpc_noinline void
blocks_open(struct kv_daemon *d, uint32_t n)
{
	struct crpc_ipc_block block;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!crpc_ipc_token_block(d->req[i].token) ||
			crpc_ipc_server_block(d->ipc, d->req[i].token, &block) != 0)
			continue;
		if (!crpc_kv_block_read(&block, &d->req[i].data, &d->req[i].len))
			d->req[i].len = 0;
	}
}

/* A block for an answer of len bytes; NULL: the request has failed. */
static void *
block_alloc(struct kv_daemon *d, uint64_t token, uint64_t len, uint64_t *ref)
{
	void *msg = d->blocks.cache == NULL ? NULL : crpc_arena_alloc(d->blocks.cache, len, ref);

	if (msg == NULL)
		ipc_fail(d, token, d->blocks.cache == NULL ? -EPROTO : -ENOMEM);
	return msg;
}

/* Answer with what stands in a block, which is gone afterwards. */
static void
block_reply(struct kv_daemon *d, uint64_t token, uint64_t ref, uint64_t len)
{
	int rc = crpc_ipc_server_reply_ref(d->ipc, d->now, token, ref, &len, sizeof(len));

	if (rc == 0)
		return;
	crpc_arena_free(d->blocks.cache, ref);
	/* -ECONNRESET: the client has gone. Else: it came without an arena. */
	if (rc != -ECONNRESET)
		ipc_fail(d, token, -EPROTO);
}

/* An answer that is too large for ipc. */
static crpc_noinline void
ipc_pass_large(struct kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	uint64_t ref;
	void *msg = block_alloc(d, token, len, &ref);

	if (msg == NULL)
		return;
	memcpy(msg, data, len);
	block_reply(d, token, ref, len);
}

/* An answer of another daemon goes to the client that waits for it, as the bytes it is. */
static void
ipc_pass(struct kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	if (crpc_unlikely(front_reply(d, token, data, len) == -EMSGSIZE))
		ipc_pass_large(d, token, data, len);
}

/* Phase 1: answers of other ranks. */
static void
pass_answer(struct kv_daemon *d, const struct crpc_done *done)
{
	if (crpc_unlikely(done->cookie >= KV_NET_COOKIE_OWN))
		kv_net_own_done(d->net, done);
	else if (crpc_likely(done->status == 0))
		ipc_pass(d, done->cookie, done->data, done->len);
	else
		ipc_fail(d, done->cookie,
			done->status == -ECONNRESET ? -EHOSTDOWN : done->status);
}

static void
reply_head(struct kv_daemon *d, uint64_t now, uint64_t token, enum kv_status status, uint8_t op)
{
	uint8_t msg[sizeof(struct kv_resp_hdr)];

	kv_resp_write(msg, status, op, 0, 0);
	crpc_copyrpc_reply(d->net->ctx, now, token, msg, sizeof(msg));
}

/*
 * A request of another rank that is none for the store. What a client sent is passed on as bytes
 * that may have changed meanwhile, but is never as short as a ping or a stop.
 */
static crpc_noinline void
net_other(struct kv_daemon *d, uint64_t now, const struct crpc_req *r, uint8_t op)
{
	bool ours = r->len == sizeof(struct kv_req_hdr) && (op == KV_STOP || op == KV_PING);

	if (ours && op == KV_STOP)
		crpc_store_relaxed(&d->fate->stop, 1);
	else if (!ours)
		d->stats.bad++;
	reply_head(d, now, r->token, ours ? KV_OK : KV_BAD_REQUEST, op);
}

static bool
is_store_op(const struct kv_daemon *d, const struct kv_req *req)
{
	return req->op >= KV_GET && req->op <= KV_DELETE &&
		req->key_len - d->key_min <= d->key_size - d->key_min;
}

/* Write an answer. @return its length. */
static inline uint32_t
answer_write(uint8_t *msg, const struct kv_served *served)
{
	kv_resp_write(msg, served->status, served->op, served->value_len, served->version);
	if (served->value_len == 8)
		memcpy(msg + sizeof(struct kv_resp_hdr), served->value, 8);
	else if (served->value_len != 0)
		memcpy(msg + sizeof(struct kv_resp_hdr), served->value, served->value_len);
	return (uint32_t)(sizeof(struct kv_resp_hdr) + served->value_len);
}

/* The caller reserved less than it asked for, or its connection broke. */
static crpc_noinline void
net_refuse(struct kv_daemon *d, uint64_t now, uint64_t token)
{
	d->stats.failed++;
	crpc_copyrpc_fail(d->net->ctx, now, token, -EMSGSIZE);
}

/* The answer is written straight into the batch that goes out. */
static void
net_reply(struct kv_daemon *d, uint64_t now, uint64_t token, const struct kv_served *served)
{
	uint32_t len = (uint32_t)(sizeof(struct kv_resp_hdr) + served->value_len);
	void *msg;

	if (crpc_unlikely(crpc_copyrpc_reply_reserve(d->net->ctx, now, token, len, &msg) != 0)) {
		net_refuse(d, now, token);
		return;
	}
	answer_write(msg, served);
	crpc_copyrpc_reply_commit(d->net->ctx, now);
}

/* --delegate flux: the request of another rank is for another daemon of ours. It goes no further.
 */
static bool
relay(struct kv_daemon *d, uint64_t now, const struct crpc_req *r, uint32_t hash)
{
	uint32_t mate = kv_owner(hash, d->owners) - d->first;
	int rc;

	if (mate == d->self - d->first || mate >= d->daemons)
		return false;
	d->stats.relayed++;
	rc = kv_hop_call(d->hop, now, mate, r->data, r->len, KV_FROM_RANK, r->token);
	if (crpc_unlikely(rc != 0)) {
		d->stats.failed++;
		crpc_copyrpc_fail(d->net->ctx, now, r->token, rc);
	}
	return true;
}

/*
 * Write the answer to a plain request of another rank or daemon whose key the store has at hand,
 * without a batch. Its bytes are loaded once, so what is checked is what is served. @return its
 * length; 0: it is not that simple.
 */
static inline uint32_t
quick_answer(struct kv_daemon *d, const struct crpc_req *r, void *msg)
{
	struct kv_slot *slot;
	struct kv_quick q;
	uint32_t hash, len;

	if (!kv_quick_read(&q, r->data, r->len))
		return 0;
	hash = kv_hash8(q.key);
	if (d->owners > 1 && kv_owner(hash, d->owners) != d->self)
		return 0;
	slot = kv_quick_find(d->store, &q, hash);
	if (slot == NULL)
		return 0;
	len = kv_quick_serve(d->store, slot, &q, msg);
	if (crpc_likely(len != 0))
		kv_quick_count(d->store, 1, q.put);
	return len;
}

/* @return false: it has to go into the batch. */
static inline bool
serve_rank_quick(struct kv_daemon *d, uint64_t now, const struct crpc_req *r)
{
	uint32_t len = quick_answer(d, r, d->msg);

	if (len == 0)
		return false;
	if (crpc_unlikely(crpc_copyrpc_reply(d->net->ctx, now, r->token, d->msg, len) == -EMSGSIZE))
		net_refuse(d, now, r->token);
	return true;
}

/* Phase 2: requests of other ranks, as one batch of lookups. */
static uint32_t
serve_ranks(struct kv_daemon *d, uint64_t now)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t i, n, hash;

	n = crpc_copyrpc_recv(d->net->ctx, now, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	/* A reply's time less its request's is the turnaround that the caller receives. */
	if (n != 0)
		now = crpc_clock_ns();
	for (i = 0; i < n; i++) {
		/* What comes behind one that waits in the batch waits too. */
		if (crpc_likely(b->n == 0 && serve_rank_quick(d, now, &d->req[i])))
			continue;
		if (crpc_unlikely(kv_req_read(d->req[i].data, d->req[i].len, &req) != 0)) {
			net_other(d, now, &d->req[i], 0);
			continue;
		}
		if (crpc_unlikely(!is_store_op(d, &req))) {
			net_other(d, now, &d->req[i], req.op);
			continue;
		}
		hash = kv_batch_key(b, &req);
		if (d->relay && relay(d, now, &d->req[i], hash))
			continue;
		if (crpc_unlikely(kv_owner(hash, d->owners) != d->self))
			net_other(d, now, &d->req[i], req.op);
		else
			d->index[kv_batch_add(b, &req, hash)] = i;
	}
	kv_store_lookup(d->store, b);
	for (i = 0; i < b->n; i++) {
		kv_store_exec(d->store, b, i, &served);
		net_reply(d, now, d->req[d->index[i]].token, &served);
	}
	d->stats.ranks += n;
	return n;
}

/* Phase 3: answers of other daemons, to clients of ours or to other ranks. */
static uint32_t
pass_answers_of_mates(struct kv_daemon *d, uint64_t now)
{
	uint32_t i, n = kv_hop_poll(d->hop, now, d->answered, CRPC_BURST_MAX);
	struct kv_answered *a;

	for (i = 0; i < n; i++) {
		a = &d->answered[i];
		if (crpc_unlikely(a->status != 0 && a->origin == KV_FROM_CLIENT)) {
			ipc_fail(d, a->token, a->status);
		} else if (a->origin == KV_FROM_CLIENT) {
			ipc_pass(d, a->token, a->data, a->len);
		} else if (crpc_unlikely(a->status != 0 ||
				   crpc_copyrpc_reply(d->net->ctx, now, a->token, a->data,
					   a->len) == -EMSGSIZE)) {
			d->stats.failed++;
			crpc_copyrpc_fail(
				d->net->ctx, now, a->token, a->status != 0 ? a->status : -EMSGSIZE);
		}
	}
	return n;
}

static void
mate_answer(struct kv_daemon *d, uint64_t now, const struct crpc_req *r,
	const struct kv_served *served)
{
	kv_hop_answer(d->hop, now, r, answer_write(kv_hop_answer_at(d->hop, r), served));
}

/* @return false: it has to go into the batch. */
static inline bool
serve_mate_quick(struct kv_daemon *d, uint64_t now, const struct crpc_req *r)
{
	uint32_t len = quick_answer(d, r, kv_hop_answer_at(d->hop, r));

	if (len == 0)
		return false;
	kv_hop_answer(d->hop, now, r, len);
	return true;
}

/* Phase 4: requests of other daemons of this rank; what is not ours they may not ask for. */
static uint32_t
serve_mates(struct kv_daemon *d, uint64_t now)
{
	const struct kv_served bad = {.status = KV_BAD_REQUEST};
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t i, n, hash;

	n = kv_hop_recv(d->hop, now, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	for (i = 0; i < n; i++) {
		if (b->n == 0 && serve_mate_quick(d, now, &d->req[i]))
			continue;
		hash = 0;
		if (crpc_likely(kv_req_read(d->req[i].data, d->req[i].len, &req) == 0 &&
			    is_store_op(d, &req)))
			hash = kv_batch_key(b, &req);
		else
			req.key_len = 0;
		/* The key may have changed after its daemon looked: this copy will not. */
		if (crpc_unlikely(req.key_len == 0 || kv_owner(hash, d->owners) != d->self)) {
			d->stats.bad++;
			mate_answer(d, now, &d->req[i], &bad);
			continue;
		}
		d->index[kv_batch_add(b, &req, hash)] = i;
	}
	if (b->n != 0)
		kv_store_lookup(d->store, b);
	for (i = 0; i < b->n; i++) {
		kv_store_exec(d->store, b, i, &served);
		mate_answer(d, now, &d->req[d->index[i]], &served);
	}
	d->stats.mates += n;
	return n;
}

/* Whether a connected client was given this writer id last. */
static bool
writer_is_held(const struct kv_daemon *d, uint32_t id)
{
	uint32_t peer;

	for (peer = 0; peer < CRPC_DIM(d->writer_of); peer++)
		if (d->writer_of[peer] == id && crpc_ipc_server_requests(d->ipc, peer) != 0)
			return true;
	return false;
}

/* A writer id for a client, in turn, so that the one that is free for longest is next; 0: none. */
static uint32_t
writer_take(struct kv_daemon *d, uint32_t peer)
{
	uint32_t tries, id;

	if (d->port != NULL || d->writer_first == d->writer_end)
		return 0;
	d->writer_of[peer] = 0;
	for (tries = 0; tries <= CRPC_DIM(d->writer_of); tries++) {
		if (d->info.writer == d->writer_end) {
			d->info.writer = d->writer_first;
			d->info.generation++;
		}
		id = d->info.writer++;
		if (d->info.generation != 0 && writer_is_held(d, id))
			continue;
		d->writer_of[peer] = id;
		return id;
	}
	return 0;
}

/* A client's request that is none for a store. */
static crpc_noinline void
ipc_other(struct kv_daemon *d, const struct crpc_req *r, uint8_t op)
{
	uint8_t *value = d->msg + sizeof(struct kv_resp_hdr);
	struct kv_info info;
	uint32_t len = 0, writer;

	if (op == KV_INFO) {
		writer = writer_take(d, r->peer);
		info = d->info;
		info.writer = writer;
		len = sizeof(info);
		memcpy(value, &info, len);
		kv_resp_write(d->msg, KV_OK, op, len, 0);
	} else if (op == KV_STOP && d->port != NULL) {
		crpc_store_relaxed(&d->fate->stop, 1);
		kv_resp_write(d->msg, KV_OK, op, 0, 0);
	} else {
		d->stats.bad++;
		kv_resp_write(d->msg, KV_BAD_REQUEST, op, 0, 0);
	}
	reply_or_fail(d, r->token, d->msg, (uint32_t)sizeof(struct kv_resp_hdr) + len);
}

static void
ipc_reply(struct kv_daemon *d, uint64_t token, const struct kv_served *served)
{
	reply_or_fail(d, token, d->msg, answer_write(d->msg, served));
}

/* Serve the batch of clients' requests where values may be large. */
static crpc_noinline void
serve_batch_large(struct kv_daemon *d)
{
	struct crpc_ipc_block block;
	struct kv_served served;
	uint64_t token, ref;
	uint32_t i;
	void *msg;

	for (i = 0; i < d->batch.n; i++) {
		token = d->req[d->index[i]].token;
		if (!crpc_ipc_token_block(token) ||
			crpc_ipc_server_block(d->ipc, token, &block) != 0)
			kv_store_exec(d->store, &d->batch, i, &served);
		else if (kv_store_exec_block(d->store, &d->batch, i, &served, &block))
			crpc_ipc_server_take(d->ipc, token, &block);
		if (served.value_len <= KV_VALUE_INLINE) {
			ipc_reply(d, token, &served);
			continue;
		}
		msg = block_alloc(
			d, token, sizeof(struct kv_resp_hdr) + served.value_len, &ref);
		if (msg != NULL)
			block_reply(d, token, ref, answer_write(msg, &served));
	}
}

/*
 * A client's request whose key another daemon owns. @param value_max: bytes of the value that its
 * answer may have.
 */
static void
pass_on(struct kv_daemon *d, uint64_t now, const struct crpc_req *r, enum kv_op op,
	uint32_t value_max, uint32_t owner)
{
	uint32_t mate = owner - d->first;
	int rc;

	if (crpc_unlikely(d->port != NULL && !d->port->backend->passes)) {
		ipc_other(d, r, op); /* They are to ask the owner. */
		return;
	}
	if (mate < d->daemons) {
		d->stats.path[KV_FORWARDED]++;
		rc = kv_hop_call(d->hop, now, mate, r->data, r->len, KV_FROM_CLIENT, r->token);
	} else {
		d->stats.path[KV_REMOTE]++;
		rc = kv_net_call(d->net, now, owner, r->data, r->len,
			(uint32_t)sizeof(struct kv_resp_hdr) + value_max, r->token);
	}
	if (crpc_unlikely(rc != 0))
		ipc_fail(d, r->token, rc);
}

/*
 * Values of other sizes, and answers without room in place. @return false: it is not that simple.
 */
static crpc_noinline bool
serve_client_copy(struct kv_daemon *d, uint64_t token, struct kv_slot *slot, const uint8_t *value,
	uint32_t len, uint32_t put)
{
	struct kv_quick q = {.value = value, .len = len, .put = put};

	len = kv_quick_serve_any(d->store, slot, &q, d->msg);
	if (len != 0)
		reply_or_fail(d, token, d->msg, len);
	return len != 0;
}

/*
 * Serve the plain requests of clients from number i of n on, or pass them on, as far as they are
 * that simple; a function of its own, whose loop has registers enough. @return how far it came.
 */
static crpc_noinline uint32_t
serve_clients_quick(struct kv_daemon *d, uint64_t now, uint32_t i, uint32_t n)
{
	uint32_t hash, owner, local = 0, puts = 0;
	const struct crpc_req *r;
	struct kv_slot *slot;
	struct kv_quick q;
	void *room;

	for (r = &d->req[i]; i < n; i++, r++) {
		if (!kv_quick_read(&q, r->data, r->len))
			break;
		hash = kv_hash8(q.key);
		if (d->owners > 1) {
			owner = kv_owner(hash, d->owners);
			if (owner != d->self) {
				pass_on(d, now, r, KV_GET + q.put, q.put ? 0 : d->value_size,
					owner);
				continue;
			}
		}
		slot = kv_quick_find(d->store, &q, hash);
		if (crpc_unlikely(slot == NULL))
			break;
		room = NULL;
		if (crpc_likely(kv_quick_is_word(slot, &q)))
			room = crpc_ipc_server_reply_reserve(d->ipc, r->token, KV_QUICK_ROOM);
		if (crpc_likely(room != NULL))
			crpc_ipc_server_reply_commit(d->ipc, now, r->token,
				kv_quick_serve_word(d->store, slot, &q, room));
		else if (!serve_client_copy(d, r->token, slot, q.value, q.len, q.put))
			break;
		local++;
		puts += q.put;
	}
	d->stats.path[KV_LOCAL] += local;
	kv_quick_count(d->store, local, puts);
	return i;
}

/* A client's request that is not: it leaves, or waits in the batch, or is refused. */
static inline void
serve_client(struct kv_daemon *d, uint64_t now, uint32_t i)
{
	const struct crpc_req *r = &d->req[i];
	uint32_t hash, owner = d->self;
	struct kv_req req;

	if (crpc_unlikely(kv_req_read(r->data, r->len, &req) != 0)) {
		ipc_other(d, r, 0);
		return;
	}
	if (crpc_unlikely(!is_store_op(d, &req))) {
		ipc_other(d, r, req.op);
		return;
	}
	hash = kv_batch_key(&d->batch, &req);
	if (d->owners > 1)
		owner = kv_owner(hash, d->owners);
	if (owner == d->self)
		d->index[kv_batch_add(&d->batch, &req, hash)] = i;
	else
		pass_on(d, now, r, (enum kv_op)req.op,
			req.op == KV_GET || (req.flags & KV_EXPECT) ? d->value_size : 0, owner);
}

/* Serve the clients' requests that wait in the batch. */
static void
serve_batch(struct kv_daemon *d)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	uint32_t i, strangers = 0;

	kv_store_lookup(d->store, b);
	for (i = 0; d->port != NULL && i < b->n; i++)
		strangers += d->req[d->index[i]].peer - d->link_first >= d->links;
	if (crpc_unlikely(d->blocks.cache != NULL))
		serve_batch_large(d);
	for (i = 0; d->blocks.cache == NULL && i < b->n; i++) {
		kv_store_exec(d->store, b, i, &served);
		ipc_reply(d, d->req[d->index[i]].token, &served);
	}
	d->stats.path[KV_LOCAL] += b->n - strangers;
	d->stats.ranks += strangers;
}

/* Phase 5: requests of our clients; those of others' keys leave, the rest is one batch. */
static uint32_t
serve_clients(struct kv_daemon *d, uint64_t now)
{
	bool quick = d->port == NULL && d->key_size == 8;
	uint32_t i, n = front_recv(d);

	if (n == 0)
		return 0;
	kv_batch_reset(&d->batch);
	if (crpc_unlikely(d->blocks.cache != NULL))
		blocks_open(d, n);
	for (i = 0; i < n; i++) {
		if (quick) {
			i = serve_clients_quick(d, now, i, n);
			if (i == n)
				break;
		}
		serve_client(d, now, i);
		/* What comes behind one that waits in the batch waits too. */
		quick &= d->batch.n == 0;
	}
	if (d->batch.n != 0)
		serve_batch(d);
	if (crpc_likely(!d->blind))
		d->stats.taken[31 - (uint32_t)__builtin_clz(n)]++;
	return n;
}

/* Phases 6 and 7. */
static uint32_t
send_waiting(struct kv_daemon *d, uint64_t now)
{
	uint32_t work = 0;

	if (d->hop != NULL) {
		if (crpc_unlikely(d->hop->waiting != 0))
			work += kv_hop_drain(d->hop, now);
		crpc_flux_flush(d->hop->node, now);
	}
	if (d->net != NULL) {
		if (crpc_unlikely(d->net->waiting != 0))
			work += kv_net_drain(d->net, now);
		crpc_copyrpc_flush(d->net->ctx, now);
	}
	if (d->port != NULL)
		d->port->backend->flush(d->port, now);
	return work;
}

/* The end of a phase, in a turn that is timed. */
static inline void
lap(struct kv_daemon *d, uint64_t *since, enum kv_turn_phase phase)
{
	uint64_t now;

	if (crpc_likely(*since == 0))
		return;
	now = crpc_clock_ns();
	d->stats.phase_ns[phase] += now - *since;
	*since = now;
}

uint32_t
kv_daemon_turn(struct kv_daemon *d, uint64_t now)
{
	uint32_t i, n = 0, work = 0;
	uint64_t since = 0;

	d->now = now;
	if (crpc_unlikely((d->stats.turns & (KV_PHASE_SAMPLE - 1)) == 0) && !d->blind) {
		since = crpc_clock_ns();
		d->stats.timed++;
	}
	if (d->net != NULL) {
		n = crpc_copyrpc_poll(d->net->ctx, now, d->done, CRPC_BURST_MAX);
		for (i = 0; i < n; i++)
			pass_answer(d, &d->done[i]);
		lap(d, &since, KV_TURN_NET_POLL);
		work = n + serve_ranks(d, now);
		lap(d, &since, KV_TURN_NET_RECV);
	}
	if (d->hop != NULL) {
		work += pass_answers_of_mates(d, now);
		work += serve_mates(d, now);
		lap(d, &since, KV_TURN_MATES);
	}
	work += serve_clients(d, now);
	lap(d, &since, KV_TURN_CLIENTS);
	work += send_waiting(d, now);
	lap(d, &since, KV_TURN_SEND);
	d->stats.turns++;
	d->stats.busy += work != 0;
	return work;
}

void
kv_daemon_insight(struct kv_daemon *d, bool on)
{
	d->blind = !on;
	if (d->net != NULL)
		crpc_copyrpc_stats_round_trips(d->net->ctx, on);
}

/* Places came back, of clients that left or died. Only deaths are reported. */
static void
report_deaths(struct kv_daemon *d)
{
	struct crpc_ipc_server_stats ipc;

	crpc_ipc_server_stats(d->ipc, &ipc);
	if (ipc.deaths == d->deaths)
		return;
	app_note(
		"rank %u: %llu clients of daemon %u died with their process; their places are free "
		"again",
		d->info.rank, (unsigned long long)(ipc.deaths - d->deaths), d->info.daemon);
	d->deaths = ipc.deaths;
}

void
kv_daemon_flush(struct kv_daemon *d, enum crpc_copyrpc_flush_policy policy)
{
	if (d->net != NULL)
		crpc_copyrpc_flush_set(d->net->ctx, policy);
}

void
kv_daemon_watch(struct kv_daemon *d, uint64_t now, bool ask_peers)
{
	struct kv_answered lost;
	uint64_t token;

	if (d->port != NULL)
		d->port->backend->watch(d->port, now);
	else if (crpc_ipc_server_reap(d->ipc) != 0)
		report_deaths(d);
	kv_store_tick(d->store, now);
	if (!d->blind)
		kv_live_publish(d);
	while (d->hop != NULL && kv_hop_pop_lost(d->hop, now, &lost)) {
		if (lost.origin == KV_FROM_CLIENT)
			ipc_fail(d, lost.token, lost.status);
		else
			crpc_copyrpc_fail(d->net->ctx, now, lost.token, lost.status);
	}
	if (d->net == NULL)
		return;
	kv_net_watch(d->net, now, ask_peers);
	while (kv_net_pop_lost(d->net, &token))
		ipc_fail(d, token, -EHOSTUNREACH);
}

uint64_t
kv_daemon_waited(const struct kv_daemon *d)
{
	return (d->net == NULL ? 0 : d->net->waited) + (d->hop == NULL ? 0 : d->hop->waited);
}

void
kv_daemon_measure(struct kv_daemon *d)
{
	d->begin = d->stats;
	d->waited_begin = kv_daemon_waited(d);
	if (d->port != NULL)
		d->port->backend->measure(d->port);
	if (d->net == NULL)
		return;
	kv_live_carry(d);
	crpc_copyrpc_stats_reset(d->net->ctx);
	crpc_rdma_stats_get(d->net->dev, &d->rdma_begin);
}

void
kv_daemon_freeze(struct kv_daemon *d)
{
	const struct kv_daemon_stats *s = &d->stats, *b = &d->begin;
	uint32_t i;

	d->net_counts = (struct kv_net_counts){0};
	if (d->net != NULL)
		kv_net_count(d->net->ctx, d->net->dev, &d->rdma_begin, &d->net_counts);
	if (d->port != NULL)
		d->port->backend->counts(d->port, &d->net_counts);
	d->net_counts.waited = kv_daemon_waited(d) - d->waited_begin;
	d->counts = (struct kv_daemon_counts){
		.turns = s->turns - b->turns,
		.busy = s->busy - b->busy,
		.ranks = s->ranks - b->ranks,
		.relayed = s->relayed - b->relayed,
		.mates = s->mates - b->mates,
		.failed = s->failed - b->failed,
		.bad = s->bad - b->bad,
		.waited = d->net_counts.waited,
	};
	for (i = 0; i < KV_PATHS; i++)
		d->counts.path[i] = s->path[i] - b->path[i];
	d->counts.timed = s->timed - b->timed;
	for (i = 0; i < KV_TURN_PHASES; i++)
		d->counts.phase_ns[i] = s->phase_ns[i] - b->phase_ns[i];
	for (i = 0; i < KV_TAKEN_BUCKETS; i++)
		d->counts.taken[i] = s->taken[i] - b->taken[i];
}
