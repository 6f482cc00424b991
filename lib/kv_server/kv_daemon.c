/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_clock.h"
#include "ipc_inline.h"
#include "kv_daemon.h"
#include "kv_store_quick.h"
#include "kv_walk.h"

_Static_assert(CRPC_BURST_MAX < 1 << CRPC_KV_TAKEN_BUCKETS, "a bucket for every burst");

/* Requests of clients come by ipc, or by a front. */
static inline uint32_t
front_recv(struct crpc_kv_daemon *d)
{
	if (crpc_likely(d->front == NULL))
		return crpc_ipc_server_recv(d->ipc, d->now, d->req, CRPC_BURST_MAX);
	return d->front->recv(d->end, d->now, d->req, CRPC_BURST_MAX);
}

static inline int
front_reply(struct crpc_kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	if (crpc_likely(d->front == NULL))
		return crpc_ipc_server_reply(d->ipc, d->now, token, data, len);
	return d->front->reply(d->end, d->now, token, data, len);
}

/* Answer, or fail a call that allows no answer of that length. */
static inline void
reply_or_fail(struct crpc_kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	int rc = front_reply(d, token, data, len);

	if (crpc_unlikely(rc == -EMSGSIZE || rc == -EOPNOTSUPP))
		__crpc_kv_daemon_fail(d, token, rc);
}

/* Requests that came in blocks become the messages in those; none, where a block has none. */
static crpc_noinline void
blocks_open(struct crpc_kv_daemon *d, uint32_t n)
{
	struct crpc_ipc_block block;

	for (uint32_t i = 0; i < n; i++) {
		if (!crpc_ipc_token_block(d->req[i].token) ||
			crpc_ipc_server_block(d->ipc, d->req[i].token, &block) != 0)
			continue;
		if (!crpc_kv_block_read(&block, &d->req[i].data, &d->req[i].len))
			d->req[i].len = 0;
	}
}

/* A block for an answer of len bytes; NULL: the request has failed. */
static void *
block_alloc(struct crpc_kv_daemon *d, uint64_t token, uint64_t len, uint64_t *ref)
{
	void *msg = d->blocks.cache == NULL ? NULL : crpc_arena_alloc(d->blocks.cache, len, ref);

	if (msg == NULL)
		__crpc_kv_daemon_fail(d, token, d->blocks.cache == NULL ? -EPROTO : -ENOMEM);
	return msg;
}

/* Answer with what stands in a block, which is gone afterwards. */
static void
block_reply(struct crpc_kv_daemon *d, uint64_t token, uint64_t ref, uint64_t len)
{
	int rc = crpc_ipc_server_reply_ref(d->ipc, d->now, token, ref, &len, sizeof(len));

	if (rc == 0)
		return;
	crpc_arena_free(d->blocks.cache, ref);
	/* -ECONNRESET: the client has gone. Else: it came without an arena. */
	if (rc != -ECONNRESET)
		__crpc_kv_daemon_fail(d, token, -EPROTO);
}

/* An answer that is too large for ipc. */
static crpc_noinline void
ipc_pass_large(struct crpc_kv_daemon *d, uint64_t token, const void *data, uint32_t len)
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
ipc_pass(struct crpc_kv_daemon *d, uint64_t token, const void *data, uint32_t len)
{
	int rc = front_reply(d, token, data, len);

	if (crpc_unlikely(rc == -EMSGSIZE))
		ipc_pass_large(d, token, data, len);
	else if (crpc_unlikely(rc == -EOPNOTSUPP))
		__crpc_kv_daemon_fail(d, token, rc);
}

/* Phase 1: answers of other ranks. */
static void
pass_answer(struct crpc_kv_daemon *d, const struct crpc_done *done)
{
	if (crpc_unlikely(done->cookie == KV_NET_COOKIE_OWN))
		return;
	if (crpc_likely(done->status == 0))
		ipc_pass(d, done->cookie, done->data, done->len);
	else
		__crpc_kv_daemon_fail(
			d, done->cookie, done->status == -ECONNRESET ? -EHOSTDOWN : done->status);
}

/* Answer another rank with what stands in d->msg. */
static inline void
net_answer(struct crpc_kv_daemon *d, uint64_t now, uint64_t token, uint32_t len)
{
	/* The caller reserved less than it asked for, wants no answer, or its connection broke. */
	if (crpc_unlikely(crpc_copyrpc_reply(d->net->ctx, now, token, d->msg, len) != 0))
		__crpc_kv_daemon_net_fail(d, now, token, -EMSGSIZE);
}

/*
 * A request of another rank that is none for the store. What a client sent is passed on as bytes
 * that may have changed meanwhile, but is never as short as a stop.
 */
static crpc_noinline void
net_other(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r, uint8_t op)
{
	bool stop = r->len == sizeof(struct kv_req_hdr) && op == CRPC_KV_STOP;
	uint32_t len = __crpc_kv_walk_serve(d, r, d->msg, sizeof(d->msg));

	if (len != 0) {
		net_answer(d, now, r->token, len);
		return;
	}
	if (stop)
		crpc_store_relaxed(&d->fate->stop, 1);
	else
		d->stats.stat[CRPC_KV_STAT_BAD]++;
	kv_resp_write(d->msg, stop ? CRPC_KV_OK : CRPC_KV_BAD_REQUEST, op, 0, 0);
	net_answer(d, now, r->token, sizeof(struct kv_resp_hdr));
}

static bool
is_store_op(const struct crpc_kv_daemon *d, const struct kv_req *req)
{
	return req->op >= CRPC_KV_GET && req->op <= CRPC_KV_DELETE &&
		req->key_len == d->key_size;
}

/*
 * Copy the key of a request to where the batch wants it. @return its owner, UINT32_MAX: the request
 * is none for a store, and req->op is what it asks, or 0.
 */
static inline uint32_t
key_take(struct crpc_kv_daemon *d, const struct crpc_req *r, struct kv_req *req, uint32_t *hash)
{
	if (crpc_unlikely(kv_req_read(r->data, r->len, req) != 0)) {
		req->op = 0;
		return UINT32_MAX;
	}
	if (crpc_unlikely(!is_store_op(d, req)))
		return UINT32_MAX;
	*hash = kv_batch_key(&d->batch, req);
	return kv_owner(*hash, d->owners);
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

/* The answer is written straight into the batch that goes out. */
static void
net_reply(struct crpc_kv_daemon *d, uint64_t now, uint64_t token, const struct kv_served *served)
{
	uint32_t len = (uint32_t)(sizeof(struct kv_resp_hdr) + served->value_len);
	void *msg;

	if (crpc_unlikely(crpc_copyrpc_reply_reserve(d->net->ctx, now, token, len, &msg) != 0)) {
		__crpc_kv_daemon_net_fail(d, now, token, -EMSGSIZE);
		return;
	}
	answer_write(msg, served);
	crpc_copyrpc_reply_commit(d->net->ctx, now);
}

/* By number: the request of another rank is for another daemon of ours. It goes no further. */
static bool
relay(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r, uint32_t owner)
{
	uint32_t mate = owner - d->first;
	int rc;

	if (mate == d->self - d->first || mate >= d->daemons)
		return false;
	d->stats.relayed++;
	rc = __crpc_kv_hop_call(d->hop, now, mate, r->data, r->len, KV_FROM_RANK, r->token);
	if (crpc_unlikely(rc != 0))
		__crpc_kv_daemon_net_fail(d, now, r->token, rc);
	return true;
}

/* The daemon that is an owner, if this thread runs it; NULL: it runs elsewhere. */
static inline struct crpc_kv_daemon *
owner_here(struct crpc_kv_daemon *d, uint32_t owner)
{
	uint32_t mate = owner - d->first;

	if (crpc_likely(owner == d->self))
		return d;
	return mate < d->daemons ? d->here[mate] : NULL;
}

/*
 * Write the answer to a plain request of another rank or daemon whose key the store has at hand,
 * without a batch. Its bytes are loaded once, so what is checked is what is served. @return its
 * length; 0: it is not that simple.
 */
static inline uint32_t
quick_answer(struct crpc_kv_daemon *d, const struct crpc_req *r, void *msg)
{
	struct crpc_kv_daemon *at = d;
	struct kv_slot *slot;
	uint32_t hash, len;
	struct kv_quick q;

	if (!kv_quick_read(&q, r->data, r->len))
		return 0;
	hash = kv_hash8(q.key);
	if (d->owners > 1)
		at = owner_here(d, kv_owner(hash, d->owners));
	slot = at == NULL ? NULL : kv_quick_find(at->store, q.key, hash);
	if (slot == NULL)
		return 0;
	len = kv_quick_serve(at->store, slot, &q, msg);
	if (crpc_likely(len != 0))
		__crpc_kv_quick_count(at->store, 1, q.put);
	if (len != 0 && at != d) {
		d->stats.relayed++;
		at->stats.stat[CRPC_KV_STAT_OF_DAEMONS]++;
	}
	return len;
}

/* @return false: it has to go into the batch. */
static inline bool
serve_rank_quick(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r)
{
	uint32_t len = quick_answer(d, r, d->msg);

	if (len == 0)
		return false;
	net_answer(d, now, r->token, len);
	return true;
}

/* Phase 2: requests of other ranks, as one batch of lookups. */
static uint32_t
serve_ranks(struct crpc_kv_daemon *d, uint64_t now)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t n, hash = 0, owner, room;
	bool walk;

	n = crpc_copyrpc_recv(d->net->ctx, now, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	/* A reply's time less its request's is the turnaround that the caller receives. */
	if (n != 0 && !d->blind)
		now = crpc_clock_ns();
	for (uint32_t i = 0; i < n; i++) {
		/* What comes behind one that waits in the batch waits too. */
		if (crpc_likely(b->n == 0 && serve_rank_quick(d, now, &d->req[i])))
			continue;
		owner = key_take(d, &d->req[i], &req, &hash);
		walk = owner == UINT32_MAX;
		if (crpc_unlikely(walk))
			owner = __crpc_kv_walk_owner(&d->req[i], &room);
		if (d->relay && relay(d, now, &d->req[i], owner))
			continue;
		if (crpc_unlikely(walk || owner != d->self))
			net_other(d, now, &d->req[i], req.op);
		else
			d->index[kv_batch_add(b, &req, hash)] = i;
	}
	__crpc_kv_store_lookup(d->store, b);
	for (uint32_t i = 0; i < b->n; i++) {
		__crpc_kv_store_exec(d->store, b, i, &served);
		net_reply(d, now, d->req[d->index[i]].token, &served);
	}
	d->stats.stat[CRPC_KV_STAT_OF_RANKS] += n;
	return n;
}

static void
fail_from(struct crpc_kv_daemon *d, uint64_t now, enum kv_origin origin, uint64_t token, int status)
{
	if (origin == KV_FROM_CLIENT)
		__crpc_kv_daemon_fail(d, token, status);
	else
		__crpc_kv_daemon_net_fail(d, now, token, status);
}

/* Phase 3: answers of other daemons, to clients of ours or to other ranks. */
static uint32_t
pass_answers_of_mates(struct crpc_kv_daemon *d, uint64_t now)
{
	uint32_t n = __crpc_kv_hop_poll(d->hop, now, d->answered, CRPC_BURST_MAX);
	struct kv_answered *a;

	for (uint32_t i = 0; i < n; i++) {
		a = &d->answered[i];
		if (crpc_unlikely(a->status != 0))
			fail_from(d, now, a->origin, a->token, a->status);
		else if (a->origin == KV_FROM_CLIENT)
			ipc_pass(d, a->token, a->data, a->len);
		else if (crpc_copyrpc_reply(d->net->ctx, now, a->token, a->data, a->len) != 0)
			__crpc_kv_daemon_net_fail(d, now, a->token, -EMSGSIZE);
	}
	return n;
}

static void
mate_answer(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r,
	const struct kv_served *served)
{
	__crpc_kv_hop_answer(d->hop, now, r, answer_write(kv_hop_answer_at(d->hop, r), served));
}

/* A request of another daemon that is none for the store. */
static crpc_noinline void
mate_other(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r)
{
	const struct kv_served bad = {.status = CRPC_KV_BAD_REQUEST};
	uint32_t len = __crpc_kv_walk_serve(d, r, kv_hop_answer_at(d->hop, r), d->hop->msg_max);

	if (len != 0) {
		__crpc_kv_hop_answer(d->hop, now, r, len);
		return;
	}
	d->stats.stat[CRPC_KV_STAT_BAD]++;
	mate_answer(d, now, r, &bad);
}

/* @return false: it has to go into the batch. */
static inline bool
serve_mate_quick(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r)
{
	uint32_t len = quick_answer(d, r, kv_hop_answer_at(d->hop, r));

	if (len == 0)
		return false;
	__crpc_kv_hop_answer(d->hop, now, r, len);
	return true;
}

/* Phase 4: requests of other daemons of this rank; what is not ours they may not ask for. */
static uint32_t
serve_mates(struct crpc_kv_daemon *d, uint64_t now)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	struct kv_req req;
	uint32_t n, hash = 0;

	n = __crpc_kv_hop_recv(d->hop, now, d->req, CRPC_BURST_MAX);
	kv_batch_reset(b);
	for (uint32_t i = 0; i < n; i++) {
		if (b->n == 0 && serve_mate_quick(d, now, &d->req[i]))
			continue;
		/* The key may have changed after its daemon looked: this copy will not. */
		if (crpc_unlikely(key_take(d, &d->req[i], &req, &hash) != d->self))
			mate_other(d, now, &d->req[i]);
		else
			d->index[kv_batch_add(b, &req, hash)] = i;
	}
	if (b->n != 0)
		__crpc_kv_store_lookup(d->store, b);
	for (uint32_t i = 0; i < b->n; i++) {
		__crpc_kv_store_exec(d->store, b, i, &served);
		mate_answer(d, now, &d->req[d->index[i]], &served);
	}
	d->stats.stat[CRPC_KV_STAT_OF_DAEMONS] += n;
	return n;
}

/*
 * A writer id for a client, in turn, so that the one that is free for longest is next; 0: none. Of
 * one more than there are clients one is free.
 */
static uint32_t
writer_take(struct crpc_kv_daemon *d, uint32_t peer)
{
	bool held[CRPC_IPC_CLIENTS_MAX + 1] = {false}; /* The ids from the next one on. */
	uint32_t ids = d->writer_end - d->writer_first, next = d->info.writer - d->writer_first;
	uint32_t n = crpc_min(ids, CRPC_DIM(held)), i;

	d->writer_of[peer] = 0;
	if (d->front != NULL || n == 0)
		return 0;
	for (uint32_t p = 0; p < CRPC_DIM(d->writer_of); p++) {
		i = (d->writer_of[p] - d->writer_first + 2 * ids - next) % ids;
		if (d->writer_of[p] != 0 && i < n && crpc_ipc_server_requests(d->ipc, p) != 0)
			held[i] = true;
	}
	for (i = 0; i < n && held[i]; i++)
		;
	if (i == n)
		return 0;
	if (next + i >= ids) {
		d->info.generation++;
		next -= ids;
	}
	d->info.writer = d->writer_first + next + i + 1;
	d->writer_of[peer] = d->info.writer - 1;
	return d->writer_of[peer];
}

/* A client's request that is none for a store. */
static crpc_noinline void
ipc_other(struct crpc_kv_daemon *d, const struct crpc_req *r, uint8_t op)
{
	uint8_t *value = d->msg + sizeof(struct kv_resp_hdr);
	struct kv_info info;
	uint32_t len = __crpc_kv_walk_serve(d, r, d->msg, sizeof(d->msg)), writer;

	if (len != 0) {
		d->stats.stat[CRPC_KV_STAT_LOCAL]++;
		len -= (uint32_t)sizeof(struct kv_resp_hdr);
	} else if (op == CRPC_KV_INFO) {
		writer = writer_take(d, r->peer);
		info = d->info;
		info.writer = writer;
		len = sizeof(info);
		memcpy(value, &info, len);
		kv_resp_write(d->msg, CRPC_KV_OK, op, len, 0);
	} else if (op == CRPC_KV_STOP && d->front != NULL) {
		crpc_store_relaxed(&d->fate->stop, 1);
		kv_resp_write(d->msg, CRPC_KV_OK, op, 0, 0);
	} else {
		d->stats.stat[CRPC_KV_STAT_BAD]++;
		kv_resp_write(d->msg, CRPC_KV_BAD_REQUEST, op, 0, 0);
	}
	reply_or_fail(d, r->token, d->msg, (uint32_t)sizeof(struct kv_resp_hdr) + len);
}

static void
ipc_reply(struct crpc_kv_daemon *d, uint64_t token, const struct kv_served *served)
{
	reply_or_fail(d, token, d->msg, answer_write(d->msg, served));
}

/* Serve the batch of clients' requests where values may be large. */
static crpc_noinline void
serve_batch_large(struct crpc_kv_daemon *d)
{
	struct crpc_ipc_block block;
	struct kv_served served;
	uint64_t token, ref;
	void *msg;

	for (uint32_t i = 0; i < d->batch.n; i++) {
		token = d->req[d->index[i]].token;
		if (!crpc_ipc_token_block(token) ||
			crpc_ipc_server_block(d->ipc, token, &block) != 0)
			__crpc_kv_store_exec(d->store, &d->batch, i, &served);
		else if (__crpc_kv_store_exec_block(d->store, &d->batch, i, &served, &block))
			crpc_ipc_server_take(d->ipc, token, &block);
		if (served.value_len <= CRPC_KV_VALUE_INLINE) {
			ipc_reply(d, token, &served);
			continue;
		}
		msg = block_alloc(d, token, sizeof(struct kv_resp_hdr) + served.value_len, &ref);
		if (msg != NULL)
			block_reply(d, token, ref, answer_write(msg, &served));
	}
}

/*
 * Bytes of the value that an answer may have. Small ones always may, since copyrpc handles calls
 * that allow the same together. A large one takes an area, of which there are few.
 */
static inline uint32_t
answer_max(const struct crpc_kv_daemon *d, bool has_value)
{
	return has_value || d->value_size <= CRPC_KV_VALUE_INLINE ? d->value_size : 0;
}

/*
 * A client's request whose key another daemon owns. @param value_max: bytes of the value that its
 * answer may have.
 */
static void
pass_on(struct crpc_kv_daemon *d, uint64_t now, const struct crpc_req *r, enum kv_op op,
	uint32_t value_max, uint32_t owner)
{
	uint32_t mate = owner - d->first;
	int rc;

	if (crpc_unlikely(d->front != NULL && !d->front->passes)) {
		ipc_other(d, r, op); /* They are to ask the owner. */
		return;
	}
	if (mate < d->daemons) {
		d->stats.stat[CRPC_KV_STAT_FORWARDED]++;
		rc = __crpc_kv_hop_call(
			d->hop, now, mate, r->data, r->len, KV_FROM_CLIENT, r->token);
	} else {
		d->stats.stat[CRPC_KV_STAT_REMOTE]++;
		rc = __crpc_kv_net_call(d->net, now, owner, r->data, r->len,
			(uint32_t)sizeof(struct kv_resp_hdr) + value_max, r->token);
	}
	if (crpc_unlikely(rc != 0))
		__crpc_kv_daemon_fail(d, r->token, rc);
}

/*
 * Values of other sizes, and answers without room in place. @return false: it is not that simple.
 */
static crpc_noinline bool
serve_client_copy(struct crpc_kv_daemon *d, struct kv_store *store, uint64_t token,
	struct kv_slot *slot, const uint8_t *value, uint32_t len, uint32_t put)
{
	struct kv_quick q = {.value = value, .len = len, .put = put};

	len = __crpc_kv_quick_serve_any(store, slot, &q, d->msg);
	if (len != 0)
		reply_or_fail(d, token, d->msg, len);
	return len != 0;
}

/*
 * Serve the plain requests of clients from number i of n on, or pass them on, as far as they are
 * that simple; a function of its own, whose loop has registers enough. @return how far it came.
 */
static crpc_noinline uint32_t
serve_clients_quick(struct crpc_kv_daemon *d, uint64_t now, uint32_t i, uint32_t n)
{
	const struct crpc_req *const first = &d->req[i], *const end = &d->req[n], *r;
	uint64_t version = __crpc_kv_store_version(d->store);
	struct crpc_kv_daemon *at = d;
	struct crpc_ipc_reply_room room;
	uint32_t hash, owner, local;
	uint32_t others = 0;
	struct kv_slot *slot;
	struct kv_quick q;

	for (r = first; r != end; r++) {
		if (!kv_quick_read(&q, r->data, r->len))
			break;
		hash = kv_hash8(q.key);
		if (d->owners > 1) {
			owner = kv_owner(hash, d->owners);
			at = owner_here(d, owner);
			if (at == NULL) {
				pass_on(d, now, r, CRPC_KV_GET + q.put, answer_max(d, !q.put),
					owner);
				others++;
				continue;
			}
		}
		slot = kv_quick_find(at->store, q.key, hash);
		if (crpc_unlikely(slot == NULL))
			break;
		if (crpc_likely(kv_quick_is_word(slot, &q) &&
			    crpc_ipc_server_reply_reserve(d->ipc, r->token, KV_QUICK_ROOM, &room)))
			crpc_ipc_server_reply_commit(d->ipc, now, r->token, &room,
				kv_quick_serve_word(at->store, slot, &q, room.slot->data));
		else if (!serve_client_copy(d, at->store, r->token, slot, q.value, q.len, q.put))
			break;
		if (crpc_unlikely(at != d)) {
			others++;
			d->stats.stat[CRPC_KV_STAT_FORWARDED]++;
			at->stats.stat[CRPC_KV_STAT_OF_DAEMONS]++;
			__crpc_kv_quick_count(at->store, 1, q.put);
		}
	}
	local = (uint32_t)(r - first) - others;
	d->stats.stat[CRPC_KV_STAT_LOCAL] += local;
	/* A put is a version. */
	__crpc_kv_quick_count(
		d->store, local, (uint32_t)(__crpc_kv_store_version(d->store) - version));
	return (uint32_t)(r - d->req);
}

/* A client's request that is not: it leaves, or waits in the batch, or is refused. */
static inline void
serve_client(struct crpc_kv_daemon *d, uint64_t now, uint32_t i)
{
	const struct crpc_req *r = &d->req[i];
	uint32_t hash = 0, owner, room;
	struct kv_req req;

	owner = key_take(d, r, &req, &hash);
	if (crpc_unlikely(owner == UINT32_MAX)) {
		owner = __crpc_kv_walk_owner(r, &room);
		if (owner < d->owners && owner != d->self)
			pass_on(d, now, r, (enum kv_op)req.op, room, owner);
		else
			ipc_other(d, r, req.op);
		return;
	}
	if (owner == d->self)
		d->index[kv_batch_add(&d->batch, &req, hash)] = i;
	else
		pass_on(d, now, r, (enum kv_op)req.op,
			answer_max(d, req.op == CRPC_KV_GET || (req.flags & CRPC_KV_EXPECT)),
			owner);
}

/* Serve the clients' requests that wait in the batch. */
static void
serve_batch(struct crpc_kv_daemon *d)
{
	struct kv_batch *b = &d->batch;
	struct kv_served served;
	uint32_t strangers = 0;

	__crpc_kv_store_lookup(d->store, b);
	for (uint32_t i = 0; d->front != NULL && i < b->n; i++)
		strangers += d->req[d->index[i]].peer - d->link_first >= d->links;
	if (crpc_unlikely(d->blocks.cache != NULL))
		serve_batch_large(d);
	for (uint32_t i = 0; d->blocks.cache == NULL && i < b->n; i++) {
		__crpc_kv_store_exec(d->store, b, i, &served);
		ipc_reply(d, d->req[d->index[i]].token, &served);
	}
	d->stats.stat[CRPC_KV_STAT_LOCAL] += b->n - strangers;
	d->stats.stat[CRPC_KV_STAT_OF_RANKS] += strangers;
}

/* Phase 5: requests of our clients; those of others' keys leave, the rest is one batch. */
static uint32_t
serve_clients(struct crpc_kv_daemon *d, uint64_t now)
{
	bool quick = d->front == NULL && d->key_size == 8;
	uint32_t n = front_recv(d);

	if (n == 0)
		return 0;
	kv_batch_reset(&d->batch);
	if (crpc_unlikely(d->blocks.cache != NULL))
		blocks_open(d, n);
	for (uint32_t i = 0; i < n; i++) {
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

/* Whether other daemons may have sent something: where this thread runs all, it knows. */
static inline bool
hop_is_busy(const struct crpc_kv_daemon *d)
{
	return d->hop != NULL && (d->joined + 1 < d->daemons || *d->hop->under_way != 0);
}

/* Requests that waited leave, or fail. */
static crpc_noinline uint32_t
drain(struct crpc_kv_daemon *d, uint64_t now, struct kv_wait *w, kv_wait_send send, void *of)
{
	uint32_t n = __crpc_kv_wait_drain(w, now, send, of);
	const struct kv_record *rec;

	while ((rec = kv_wait_failed(w)) != NULL)
		fail_from(d, now, (enum kv_origin)rec->origin, rec->token, rec->status);
	return n;
}

/* Phases 6 and 7. */
static uint32_t
send_waiting(struct crpc_kv_daemon *d, uint64_t now)
{
	uint32_t work = 0;

	if (hop_is_busy(d)) {
		if (crpc_unlikely(d->hop->wait.waiting != 0))
			work += drain(d, now, &d->hop->wait, __crpc_kv_hop_send, d->hop);
		crpc_flux_flush(d->hop->node, now);
	}
	if (d->net != NULL) {
		if (crpc_unlikely(d->net->wait.waiting != 0))
			work += drain(d, now, &d->net->wait, __crpc_kv_net_send, d->net);
		crpc_copyrpc_flush(d->net->ctx, now);
	}
	if (d->front != NULL)
		d->front->flush(d->end, now);
	return work;
}

static void
count_time(struct crpc_kv_daemon *d, uint32_t phase, uint64_t ns)
{
	uint32_t i = crpc_hist_log_index(ns, CRPC_KV_TIME_BITS);

	d->stats.phase_time[phase][crpc_min(i, CRPC_KV_TIME_BUCKETS - 1u)]++;
}

/* The end of a phase, in a turn that is timed. */
static inline void
lap(struct crpc_kv_daemon *d, uint64_t *since, enum crpc_kv_phase phase)
{
	uint64_t now;

	if (crpc_likely(*since == 0))
		return;
	now = crpc_clock_ns();
	d->stats.phase_ns[phase] += now - *since;
	count_time(d, phase, now - *since);
	*since = now;
}

uint32_t
crpc_kv_daemon_turn(struct crpc_kv_daemon *d, uint64_t now)
{
	uint32_t n = 0, work = 0;
	uint64_t since = 0, begin;

	d->now = now;
	if (crpc_unlikely((d->stats.turns & (CRPC_KV_PHASE_SAMPLE - 1)) == 0)) {
		crpc_store_relaxed(&d->fate->started, 1);
		since = d->blind ? 0 : crpc_clock_ns();
		d->stats.timed += !d->blind;
	}
	begin = since;
	if (d->net != NULL) {
		n = crpc_copyrpc_poll(d->net->ctx, now, d->done, CRPC_BURST_MAX);
		for (uint32_t i = 0; i < n; i++)
			pass_answer(d, &d->done[i]);
		lap(d, &since, CRPC_KV_TURN_NET_POLL);
		work = n + serve_ranks(d, now);
		lap(d, &since, CRPC_KV_TURN_NET_RECV);
	}
	if (hop_is_busy(d)) {
		work += pass_answers_of_mates(d, now);
		work += serve_mates(d, now);
		lap(d, &since, CRPC_KV_TURN_MATES);
	}
	work += serve_clients(d, now);
	lap(d, &since, CRPC_KV_TURN_CLIENTS);
	work += send_waiting(d, now);
	lap(d, &since, CRPC_KV_TURN_SEND);
	if (crpc_unlikely(begin != 0)) {
		count_time(d, CRPC_KV_TURN_PHASES, since - begin);
		d->stats.busy_ns += work != 0 ? since - begin : 0;
	}
	d->stats.turns++;
	d->stats.busy += work != 0;
	return work;
}
