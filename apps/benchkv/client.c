/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "client.h"

int
kv_loop_init(struct kv_loop *loop, const struct kv_work *work, uint32_t n)
{
	loop->work = work;
	if (n == 0)
		return 0;
	loop->client = aligned_alloc(CRPC_CACHE_GUARD, n * sizeof(*loop->client));
	if (loop->client == NULL)
		return -ENOMEM;
	memset(loop->client, 0, n * sizeof(*loop->client));
	loop->n = n;
	return 0;
}

int
kv_loop_join(struct kv_loop *loop, uint32_t i, const struct crpc_ipc_client_conf *conf,
	uint32_t conns, uint32_t home, uint32_t writer)
{
	const struct kv_work *work = loop->work;
	struct kv_client *c = &loop->client[i];
	uint32_t k;

	c->home = home;
	c->rng = work->seed + writer * UINT64_C(0x9e3779b97f4a7c15);
	for (k = 0; k < work->qd; k++)
		c->free[c->free_n++] = (uint8_t)(work->qd - 1 - k);
	if (kv_history_init(&c->history, work->verify ? work->keys.n : 1, work->value_size, writer,
		    work->writers, work->may_miss) != 0)
		return -ENOMEM;
	for (k = 0; k < conns; k++) {
		c->ipc[k] = crpc_ipc_client_connect(&conf[k]);
		if (c->ipc[k] == NULL)
			return -errno;
		c->conns++;
	}
	return 0;
}

void
kv_loop_fini(struct kv_loop *loop)
{
	uint32_t i, k;

	for (i = 0; i < loop->n; i++) {
		for (k = 0; k < loop->client[i].conns; k++)
			crpc_ipc_client_close(loop->client[i].ipc[k]);
		kv_history_fini(&loop->client[i].history);
	}
	free(loop->client);
	loop->client = NULL;
	loop->n = 0;
}

/* Find the key's owner: which connection its call takes, and how it travels from there. */
static inline struct crpc_ipc_client *
route(const struct kv_work *work, const struct kv_client *c, struct kv_call *call, const void *key)
{
	uint32_t owner, conn = 0, to = c->home;

	if (work->owners == 1) {
		call->path = KV_LOCAL;
		return c->ipc[0];
	}
	owner = kv_owner(kv_hash(key, work->key_size), work->owners);
	if (c->conns > 1) {
		to = owner - work->first < work->daemons ? owner : c->home;
		conn = to - work->first;
	}
	call->path = (uint8_t)kv_path(owner, to, work->first, work->daemons);
	return c->ipc[conn];
}

/*
 * Draw the next operation and write its request. Half of the draws of an even load would be
 * predicted wrongly, so nothing branches on them: a value's first word is written in any case.
 * @return its length.
 */
static inline uint32_t
call_draw(struct kv_loop *loop, struct kv_client *c, struct kv_call *call,
	struct crpc_ipc_client **conn)
{
	const struct kv_work *work = loop->work;
	uint32_t draw = (uint32_t)app_rng(&c->rng), value_len, fill;
	uint8_t *key = loop->msg + sizeof(struct kv_req_hdr);
	bool put;

	call->key = app_keys_next(&work->keys, &c->rng);
	call->op = (uint8_t)(KV_GET + (draw >= work->read_below) + (draw >= work->delete_from));
	kv_key_write(key, work->key_size, call->key);
	*conn = route(work, c, call, key);
	put = call->op == KV_PUT;
	value_len = -(uint32_t)put & work->value_size;
	call->word = kv_history_put_if(&c->history, call->key, put);
	fill = work->value_size > 8 && put ? work->value_size : 8;
	kv_value_fill(key + work->key_size, fill, call->word);
	if (work->verify)
		kv_history_prefetch(&c->history, call->key);
	return kv_req_write(loop->msg, call->op, work->key_size, value_len);
}

/* Make calls until qd are open. @return how many. */
static uint32_t
client_issue(struct kv_loop *loop, struct kv_client *c, uint64_t now)
{
	struct crpc_ipc_client *conn;
	struct kv_call *call;
	uint32_t len, slot, made = 0;
	int rc;

	while (c->free_n > 0 && !c->dead) {
		slot = c->free[c->free_n - 1];
		call = &c->call[slot];
		len = call_draw(loop, c, call, &conn);
		rc = crpc_ipc_client_call(conn, loop->msg, len, slot);
		if (crpc_unlikely(rc != 0)) {
			c->dead = rc != -EAGAIN;
			loop->dead += c->dead;
			break;
		}
		call->start = now;
		call->open = true;
		if (loop->work->verify)
			c->fresh[c->fresh_n++] = (uint8_t)slot;
		c->free_n--;
		c->sent++;
		made++;
	}
	return made;
}

/*
 * What the calls made last turn must not be older than. The memory changes only with completions,
 * so before the first of this turn it is what it was when they were made; and the line that was
 * fetched then, one of many, is here by now.
 */
static inline void
note_floors(struct kv_client *c)
{
	struct kv_call *call;
	uint32_t i;

	for (i = 0; i < c->fresh_n; i++) {
		call = &c->call[c->fresh[i]];
		call->floor = kv_history_floor(&c->history, call->key);
	}
}

/* Check an answer. @return true if a store gave it; *missed if it was "not found". */
static bool
answer_check(struct kv_loop *loop, struct kv_client *c, const struct kv_call *call,
	const struct crpc_done *done, bool *missed)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	*missed = false;
	if (crpc_unlikely(done->status != 0))
		return false;
	if (crpc_unlikely(kv_resp_read(done->data, done->len, &hdr, &value) != 0)) {
		kv_history_fault(&c->history, KV_FAULT_MALFORMED);
		return true;
	}
	*missed = hdr.status == KV_NOT_FOUND;
	if (loop->work->verify)
		kv_history_check(&c->history,
			&(struct kv_answer){.key = call->key,
				.op = call->op,
				.floor = call->floor,
				.word = call->word,
				.hdr = hdr,
				.value = value});
	return true;
}

/* Latencies that are not yet counted: the last n were the same. */
struct same_lat {
	uint64_t lat;
	uint64_t n;
};

/* What one turn measured. */
struct turn {
	uint64_t now;
	struct same_lat same[KV_PATHS];
};

static inline void
count_lat(struct kv_counts *counts, const struct turn *turn, uint32_t path)
{
	const struct same_lat *same = &turn->same[path];

	if (same->n == 0)
		return;
	counts->ops[path] += same->n;
	counts->lat_sum += same->lat * same->n;
	crpc_hist_record_n(&counts->lat[path], same->lat, same->n);
}

/* Calls that end in one turn were often made in one turn too: those are counted together. */
static inline void
note_lat(struct kv_counts *counts, struct turn *turn, uint32_t path, uint64_t lat)
{
	struct same_lat *same = &turn->same[path];

	if (lat != same->lat) {
		count_lat(counts, turn, path);
		*same = (struct same_lat){.lat = lat};
	}
	same->n++;
}

static inline void
client_done(
	struct kv_loop *loop, struct kv_client *c, const struct crpc_done *done, struct turn *turn)
{
	struct kv_counts *counts = &loop->counts;
	struct kv_call *call;
	uint64_t lat;
	bool served, missed;

	if (crpc_unlikely(done->cookie >= loop->work->qd || !c->call[done->cookie].open)) {
		kv_history_fault(&c->history, KV_FAULT_MALFORMED);
		return;
	}
	call = &c->call[done->cookie];
	call->open = false;
	c->free[c->free_n++] = (uint8_t)done->cookie;
	c->answered++;
	served = answer_check(loop, c, call, done, &missed);
	loop->served += served;
	if (loop->phase == KV_STOPPED)
		return;
	lat = turn->now - call->start;
	if (crpc_unlikely(!served)) {
		counts->failed++;
		counts->lat_sum += lat;
	} else {
		note_lat(counts, turn, call->path, lat);
	}
	counts->misses += missed;
}

uint32_t
kv_loop_turn(struct kv_loop *loop, uint64_t now)
{
	struct turn turn = {.now = now};
	struct crpc_done done[KV_QD_MAX];
	struct kv_client *c;
	uint32_t i, k, conn, n, work = 0;

	for (i = 0; i < loop->n; i++) {
		c = &loop->client[i];
		conn = 0;
		do {
			n = crpc_ipc_client_poll(c->ipc[conn], done, (uint16_t)loop->work->qd);
			if (n != 0) {
				if (loop->work->verify)
					note_floors(c);
				c->fresh_n = 0;
			}
			for (k = 0; k < n; k++)
				client_done(loop, c, &done[k], &turn);
			work += n;
		} while (++conn < c->conns);
		if (loop->phase != KV_STOPPED && c->free_n != 0)
			work += client_issue(loop, c, now);
	}
	for (k = 0; k < KV_PATHS; k++)
		count_lat(&loop->counts, &turn, k);
	crpc_store_relaxed(&loop->served_pub, loop->served);
	return work;
}

void
kv_loop_measure(struct kv_loop *loop, uint64_t now)
{
	loop->counts = (struct kv_counts){0};
	loop->measure_from = now;
	loop->phase = KV_MEASURE;
}

void
kv_loop_stop(struct kv_loop *loop, uint64_t now)
{
	if (loop->phase == KV_WARMUP)
		kv_loop_measure(loop, now);
	loop->counts.window_ns = now - loop->measure_from;
	loop->phase = KV_STOPPED;
}

uint32_t
kv_loop_open(const struct kv_loop *loop)
{
	uint32_t i, open = 0;

	for (i = 0; i < loop->n; i++)
		open += (uint32_t)(loop->client[i].sent - loop->client[i].answered);
	return open;
}

void
kv_loop_audit(struct kv_loop *loop)
{
	struct kv_client *c;
	uint32_t i;

	for (i = 0; i < loop->n; i++) {
		c = &loop->client[i];
		c->history.faults[KV_FAULT_LOST] += c->sent - c->answered;
	}
}
