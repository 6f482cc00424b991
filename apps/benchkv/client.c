/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>

#include "backend.h"
#include "client.h"
#include "ipc_inline.h"
#include "scan.h"

/*
 * The path of a call exists eight times, so that what is not asked for costs nothing on it: with
 * and without verification, plain or with what is out of the ordinary (open loop, several
 * connections, latest, read-modify-write), by ipc or by a backend's link. Inlined by force, or the
 * compiler would decide for one copy: 18 of 359 instructions per operation.
 */
#define INLINE      crpc_inline
#define MODE_VERIFY 1u
#define MODE_EXTRA  2u
#define MODE_LINK   4u

/* How many bits of a plain call's cookie say how it goes; the rest is when it was made. */
#define PLAIN_PATH_BITS 2
_Static_assert(KV_PATHS <= 1 << PLAIN_PATH_BITS, "a path fits");

/* Completions of a link that are taken at once. */
#define LINK_BURST 64

/* What one turn measured. Latencies that are not counted yet: the last n[path] were lat[path]. */
struct turn {
	uint64_t now;
	uint64_t lat[KV_PATHS];
	uint64_t n[KV_PATHS];
	uint32_t work; /* Not 0: calls completed or were made. */
	bool issues;   /* Calls are made. */
};

/* Where a call goes: to the daemon with this number among all owners. */
struct way {
	struct crpc_ipc_client *conn; /* By this connection, without a link. */
	uint32_t to;
};

/* How a call travels that goes to its client's home. */
INLINE uint8_t
path_from_home(const struct kv_work *work, const struct kv_client *c, const void *key)
{
	if (work->owners == 1)
		return KV_LOCAL;
	return (uint8_t)kv_path(kv_owner(kv_hash(key, work->key_size), work->owners), c->home,
		work->first, work->daemons);
}

/* Find the key's owner: whom its call goes to, and how it travels from there. */
INLINE struct way
route(const struct kv_loop *loop, const struct kv_client *c, struct kv_call *call, const void *key,
	uint32_t key_len, unsigned int mode)
{
	const struct kv_work *work = loop->work;
	struct way way = {.conn = c->own, .to = c->home};
	uint32_t owner;

	if ((mode & (MODE_LINK | MODE_EXTRA)) == 0 || work->owners == 1) {
		call->path = path_from_home(work, c, key);
		return way;
	}
	owner = kv_owner(kv_hash(key, key_len), work->owners);
	if ((mode & MODE_LINK) != 0 && !loop->passes) {
		way.to = owner;
		call->path = owner - work->first < work->daemons ? KV_LOCAL : KV_REMOTE;
		return way;
	}
	if ((mode & MODE_EXTRA) != 0 && c->conns > 1) {
		way.to = owner - work->first < work->daemons ? owner : c->home;
		way.conn = c->ipc[way.to - work->first];
	}
	call->path = (uint8_t)kv_path(owner, way.to, work->first, work->daemons);
	return way;
}

/* A block for a large request; NULL: there is none now. */
static void *
block_for(struct kv_loop *loop, const struct kv_client *c, const struct way *way, uint32_t len)
{
	uint32_t k = 0;

	while (k + 1 < c->conns && c->ipc[k] != way->conn)
		k++;
	return c->arena[k] == NULL ? NULL : crpc_arena_alloc(c->arena[k], len, &loop->block);
}

/* A put with extras behind its key, or a large value. @return its length; 0: not now. */
static crpc_noinline uint32_t
call_write_with(struct kv_loop *loop, struct kv_client *c, struct kv_call *call,
	const struct way *way, uint32_t key_len)
{
	const struct kv_work *work = loop->work;
	uint32_t flags = (work->cas ? KV_EXPECT : 0) | (work->ttl_ms != 0 ? KV_TTL : 0);
	uint32_t size = kv_sizes_of(&work->sizes, call->word);
	uint32_t head = (uint32_t)sizeof(struct kv_req_hdr) + key_len, len;
	uint8_t *msg = loop->msg;

	if (size > KV_VALUE_INLINE) {
		msg = block_for(loop, c, way, head + KV_EXTRAS_MAX + size);
		if (msg == NULL)
			return 0;
		memcpy(msg, loop->msg, head); /* the key */
	}
	len = kv_req_write_with(
		msg, KV_PUT, key_len, size, flags, call->version, work->ttl_ms);
	kv_value_fill(msg + len - size, size, call->word);
	if (work->verify)
		kv_history_prefetch(&c->history, call->key);
	return len;
}

/* Write the request of a call whose key and operation are known. @return its length. */
static inline uint32_t
call_write(struct kv_loop *loop, struct kv_client *c, struct kv_call *call, struct way *way,
	unsigned int mode)
{
	const struct kv_work *work = loop->work;
	uint8_t *key = loop->msg + sizeof(struct kv_req_hdr);
	bool put = call->op == KV_PUT;
	uint32_t value_len = 0, key_len = work->key_size;

	if (crpc_unlikely(!kv_sizes_fixed(&work->key_sizes)))
		key_len = kv_sizes_of(&work->key_sizes, call->key);
	kv_key_write(key, key_len, call->key);
	*way = route(loop, c, call, key, key_len, mode);
	call->word = kv_history_put_if(&c->history, call->key, put);
	if (put)
		value_len = kv_sizes_of(&work->sizes, call->word);
	if (put && loop->with)
		return call_write_with(loop, c, call, way, key_len);
	if (put)
		kv_value_fill(key + key_len, value_len, call->word);
	if ((mode & MODE_VERIFY) != 0)
		kv_history_prefetch(&c->history, call->key);
	return kv_req_write(loop->msg, call->op, key_len, value_len);
}

/* What a put writes behind the first word of a longer value. */
static crpc_noinline void
call_value_rest(const struct kv_work *work, uint8_t *value, uint32_t op, uint64_t word)
{
	if (op == KV_PUT)
		kv_value_fill_rest(value + sizeof(word), work->value_size - 8, word);
}

/*
 * Draw the next operation and write its request to msg, without anything out of the ordinary. Half
 * of the draws of an even load would be predicted wrongly, so nothing branches on them: a value's
 * first word is written in any case. @return its length.
 */
INLINE uint32_t
call_draw_plain(struct kv_loop *loop, struct kv_client *c, struct kv_call *call, uint8_t *msg,
	struct way *way, unsigned int mode)
{
	const struct kv_work *work = loop->work;
	uint8_t *key = msg + sizeof(struct kv_req_hdr), *value = key + work->key_size;
	uint32_t draw, number = app_keys_next_with(&work->keys, &c->rng, &draw);
	uint32_t op = KV_GET + (draw >= work->read_below) + (draw >= work->delete_from);
	const struct kv_form *form = &loop->form[op];
	uint64_t word = kv_history_put_if(&c->history, number, op == KV_PUT);

	memcpy(msg, &form->head, sizeof(form->head));
	kv_key_write(key, work->key_size, number);
	*way = route(loop, c, call, key, work->key_size, mode);
	memcpy(value, &word, sizeof(word));
	if (crpc_unlikely(work->value_size > sizeof(word)))
		call_value_rest(work, value, op, word);
	if (mode != 0) {
		call->key = number;
		call->op = (uint8_t)op;
		call->word = word;
		kv_history_prefetch(&c->history, number);
	}
	return (uint32_t)form->len;
}

/* The same for a load with scans; apart, so that others pay one branch for it. */
static crpc_noinline uint32_t
call_draw_scan(struct kv_loop *loop, struct kv_client *c, struct kv_call *call, struct way *way,
	unsigned int mode)
{
	kv_scan_draw(loop, c, call);
	return call_write(loop, c, call, way, mode);
}

/* Draw the next operation and write its request. @return its length. */
static inline uint32_t
call_draw(struct kv_loop *loop, struct kv_client *c, struct kv_call *call, struct way *way,
	unsigned int mode)
{
	const struct kv_work *work = loop->work;
	uint32_t draw;

	if (crpc_unlikely(work->scan != 0))
		return call_draw_scan(loop, c, call, way, mode);
	call->key = app_keys_next_with(&work->keys, &c->rng, &draw);
	call->op = (uint8_t)(KV_GET + (draw >= work->read_below) + (draw >= work->delete_from));
	if (work->latest)
		call->key = kv_recent(work, c, call->key, call->op == KV_PUT);
	call->reads = work->rmw && call->op == KV_PUT;
	if (call->reads)
		call->op = KV_GET;
	return call_write(loop, c, call, way, mode);
}

static crpc_noinline void
count_failed(struct kv_counts *counts, int32_t status)
{
	enum kv_cause cause = KV_CAUSE_OTHER;

	if (status == -EHOSTDOWN || status == -EHOSTUNREACH || status == -ECONNRESET)
		cause = KV_CAUSE_LOST;
	else if (status == -ETIMEDOUT)
		cause = KV_CAUSE_TIME;
	else if (status == -ENOMEM || status == -ENOBUFS)
		cause = KV_CAUSE_MEMORY;
	counts->failed++;
	counts->failed_of[cause]++;
}

/* A link refused a call for good: its daemon is lost. That is the end of this call only. */
static crpc_noinline void
call_refused(struct kv_loop *loop, struct kv_client *c, int status)
{
	c->sent++;
	c->answered++;
	if (loop->phase < KV_COOLDOWN)
		count_failed(&loop->counts, status);
}

/* By the link that all clients share: its cookie names the client too. */
INLINE bool
link_send(struct kv_loop *loop, struct kv_client *c, uint32_t slot, uint32_t len, uint32_t to,
	uint64_t now)
{
	const struct kv_work *work = loop->work;
	uint32_t resp_max = (uint32_t)sizeof(struct kv_resp_hdr) +
		(c->call[slot].op == KV_GET || work->cas ? work->value_size : 0);
	int rc = loop->link->backend->call(loop->link, now, loop->passes ? to - work->first : to,
		loop->msg, len, resp_max, (uint64_t)c->number << 8 | slot);

	if (crpc_unlikely(rc != 0 && rc != -EAGAIN))
		call_refused(loop, c, rc);
	return rc == 0;
}

/* A request in a block, which is the daemon's from then on. */
static crpc_noinline int
block_send(struct kv_loop *loop, const struct kv_client *c, uint32_t slot, uint64_t len,
	struct crpc_ipc_client *conn, uint64_t now)
{
	uint64_t block = loop->block;
	uint32_t k = 0;
	int rc;

	if (len == 0)
		return -EAGAIN;
	loop->block = 0;
	rc = crpc_ipc_client_call_ref(conn, now, block, &len, sizeof(len), loop->answer, slot);
	while (k + 1 < c->conns && c->ipc[k] != conn)
		k++;
	if (rc != 0)
		crpc_arena_free(c->arena[k], block);
	return rc;
}

/* By a connection of the client's own. What stands in place goes without a copy. */
INLINE bool
conn_send(struct kv_loop *loop, struct kv_client *c, uint64_t cookie, uint8_t *msg, uint32_t len,
	const struct way *way, uint64_t now, unsigned int mode)
{
	int rc;

	if ((mode & MODE_EXTRA) == 0 && crpc_likely(msg != loop->msg)) {
		crpc_ipc_client_call_commit(c->own, now, msg, len, cookie);
		return true;
	}
	if ((mode & MODE_EXTRA) != 0 && crpc_unlikely(len == 0 || loop->block != 0))
		rc = block_send(loop, c, (uint32_t)cookie, len, way->conn, now);
	else
		rc = crpc_ipc_client_call(way->conn, now, loop->msg, len, loop->answer, cookie);
	if (crpc_likely(rc == 0))
		return true;
	c->dead = rc != -EAGAIN;
	loop->dead += c->dead;
	return false;
}

/* Note a call in the history, before it is made. */
static crpc_noinline void
call_record(struct kv_loop *loop, const struct kv_client *c, struct kv_call *call)
{
	static const uint8_t kinds[] = {[KV_GET] = APP_HISTORY_GET, [KV_PUT] = APP_HISTORY_PUT,
		[KV_DELETE] = APP_HISTORY_DEL};
	bool cas = call->op == KV_PUT && loop->work->cas;

	call->record = kv_records_call(loop->records,
		&(struct app_history_op){.key = call->key,
			.value = call->op == KV_PUT ? call->word : 0,
			.expected = cas ? call->read : 0,
			.client = c->history.writer,
			.kind = cas ? APP_HISTORY_CAS : kinds[call->op]});
}

/* Note its answer. */
static crpc_noinline void
answer_record(struct kv_loop *loop, const struct kv_call *call, const struct kv_resp_hdr *hdr,
	const uint8_t *value)
{
	uint64_t word = 0;

	if (hdr->value_len >= sizeof(word))
		memcpy(&word, value, sizeof(word));
	kv_records_answer(loop->records, call->record, hdr, word);
}

/* Send the request that was written. @return true if it was taken. */
INLINE bool
call_send(struct kv_loop *loop, struct kv_client *c, uint64_t cookie, uint8_t *msg, uint32_t len,
	const struct way *way, uint64_t now, unsigned int mode)
{
	uint32_t slot = (uint32_t)cookie; /* But of a plain call. */
	bool records = (mode & MODE_EXTRA) != 0 && loop->records != NULL;

	if (records)
		call_record(loop, c, &c->call[slot]);
	if ((mode & MODE_LINK) != 0 ? !link_send(loop, c, slot, len, way->to, now)
				    : !conn_send(loop, c, cookie, msg, len, way, now, mode)) {
		if (records)
			kv_records_undo(loop->records, c->call[slot].record);
		return false;
	}
	if (mode != 0)
		c->call[slot].open = true;
	if ((mode & MODE_VERIFY) != 0)
		c->fresh[c->fresh_n++] = (uint8_t)slot;
	c->sent++;
	return true;
}

/* rmw: write what was read. @return how many calls. */
static crpc_noinline uint32_t
client_issue_again(struct kv_loop *loop, struct kv_client *c, uint64_t now, unsigned int mode)
{
	uint64_t ended;
	struct way way;
	struct kv_call *call;
	uint32_t len, slot, made = 0;

	while (c->again_n > 0 && !c->dead) {
		slot = c->again[c->again_n - 1];
		call = &c->call[slot];
		call->op = KV_PUT;
		call->reads = false;
		len = call_write(loop, c, call, &way, mode | MODE_EXTRA);
		ended = c->answered;
		if (call_send(loop, c, slot, loop->msg, len, &way, now, mode))
			made++;
		else if (c->answered != ended) /* Refused for good: that ends it. */
			c->free[c->free_n++] = (uint8_t)slot;
		else
			break;
		c->again_n--;
	}
	return made;
}

/* Open loop: is a call due? Then *start is when it was, and the next one gets its time. */
static bool
is_due(const struct kv_work *work, struct kv_client *c, uint64_t now, uint64_t *start)
{
	double u;

	if (!(work->gap_ns > 0))
		return true;
	if (c->due_ns == 0)
		c->due_ns = now;
	if (c->due_ns > now)
		return false;
	*start = c->due_ns;
	/* Exponential gaps; u is above 0 and at most 1. */
	u = (double)((crpc_random(&c->rng) >> 11) + 1) * 0x1p-53;
	c->due_ns += (uint64_t)(-log(u) * work->gap_ns) + 1;
	return true;
}

/* Where the next request is written. */
INLINE uint8_t *
call_room(struct kv_loop *loop, const struct kv_client *c, unsigned int mode)
{
	void *msg = NULL;

	if ((mode & (MODE_EXTRA | MODE_LINK)) == 0)
		msg = crpc_ipc_client_call_reserve(c->own, loop->room, loop->answer);
	return msg != NULL ? msg : loop->msg;
}

/*
 * Draw a call and make it. Of a plain call nothing is kept but when it was made and how it goes,
 * which is its cookie: it needs no slot. @return true if it was taken.
 */
INLINE bool
call_make(struct kv_loop *loop, struct kv_client *c, uint32_t slot, uint64_t start, uint64_t now,
	unsigned int mode)
{
	struct kv_call plain, *call = mode == 0 ? &plain : &c->call[slot];
	uint8_t *msg = call_room(loop, c, mode);
	uint64_t cookie = slot;
	struct way way;
	uint32_t len;

	if ((mode & MODE_EXTRA) != 0)
		len = call_draw(loop, c, call, &way, mode);
	else
		len = call_draw_plain(loop, c, call, msg, &way, mode);
	call->start = start;
	if (mode == 0)
		cookie = start << PLAIN_PATH_BITS | call->path;
	return call_send(loop, c, cookie, msg, len, &way, now, mode);
}

/* Make calls until qd are open, or none is due. */
INLINE void
client_issue(struct kv_loop *loop, struct kv_client *c, struct turn *turn, unsigned int mode)
{
	uint64_t now = turn->now, start = now, ended = c->answered;

	while (c->free_n > 0 && !c->dead) {
		if ((mode & MODE_EXTRA) != 0 && !is_due(loop->work, c, now, &start))
			break;
		if (!call_make(loop, c, c->free[c->free_n - 1], start, now, mode)) {
			/* What could not be taken now is still due when it was. */
			if ((mode & MODE_EXTRA) != 0 && c->due_ns != 0 && c->answered == ended)
				c->due_ns = start;
			if ((mode & MODE_EXTRA) != 0)
				c->put_off = c->answered == ended;
			break;
		}
		c->free_n--;
		turn->work++;
	}
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

/* What is out of the ordinary: the history, and what a put that follows depends on. */
static crpc_noinline void
answer_extra(struct kv_loop *loop, struct kv_call *call, struct kv_resp_hdr hdr,
	const uint8_t *value)
{
	if (loop->records != NULL)
		answer_record(loop, call, &hdr, value);
	if (!call->reads)
		return;
	call->version = hdr.status == KV_OK ? hdr.version : 0;
	call->read = 0;
	if (hdr.status == KV_OK && hdr.value_len >= sizeof(call->read))
		memcpy(&call->read, value, sizeof(call->read));
}

/* No store answered. */
static crpc_noinline void
answer_failed(struct kv_loop *loop, const struct kv_call *call, int32_t status)
{
	if (loop->records != NULL && status == -EHOSTUNREACH)
		kv_records_refuse(loop->records, call->record);
}

/* Check an answer. @return true if a store gave it; *status is what it said, else an errno. */
INLINE bool
answer_check(struct kv_loop *loop, struct kv_client *c, struct kv_call *call,
	const struct crpc_done *done, uint32_t *status, unsigned int mode)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	*status = KV_OK;
	if (crpc_unlikely(done->status != 0)) {
		*status = (uint32_t)done->status;
		if ((mode & MODE_EXTRA) != 0)
			answer_failed(loop, call, done->status);
		return false;
	}
	if (crpc_unlikely(kv_resp_read(done->data, done->len, &hdr, &value) != 0)) {
		kv_history_fault(&c->history, KV_FAULT_MALFORMED);
		return true;
	}
	*status = hdr.status;
	if ((mode & MODE_EXTRA) != 0 && (loop->records != NULL || call->reads))
		answer_extra(loop, call, hdr, value);
	if ((mode & MODE_VERIFY) != 0)
		kv_history_check(&c->history,
			&(struct kv_answer){.key = call->key,
				.op = call->op,
				.floor = call->floor,
				.word = call->word,
				.conditional = (mode & MODE_EXTRA) != 0 && loop->work->cas,
				.hdr = hdr,
				.value = value});
	return true;
}

static inline void
count_lat(struct kv_counts *counts, const struct turn *turn, uint32_t path)
{
	uint64_t lat = turn->lat[path], n = turn->n[path];

	if (n == 0)
		return;
	counts->ops[path] += n;
	counts->lat_sum += lat * n;
	crpc_hist_record_n(&counts->lat[path], lat, n);
}

/* Calls that end in one turn were often made in one turn too: those are counted together. */
static inline void
note_lat(struct kv_counts *counts, struct turn *turn, uint32_t path, uint64_t lat)
{
	if (lat != turn->lat[path]) {
		count_lat(counts, turn, path);
		turn->lat[path] = lat;
		turn->n[path] = 0;
	}
	turn->n[path]++;
}

/* An answer that is not "ok". */
static crpc_noinline void
count_other(struct kv_counts *counts, uint32_t status)
{
	counts->misses += status == KV_NOT_FOUND;
	counts->conflicts += status == KV_MISMATCH;
	counts->refused += status == KV_NO_SPACE;
}

/* A call has ended. */
static inline void
count_call(struct kv_loop *loop, const struct kv_call *call, struct turn *turn, bool served,
	uint32_t status)
{
	struct kv_counts *counts = &loop->counts;
	uint64_t lat = turn->now - call->start;

	loop->served += served;
	if (loop->phase >= KV_COOLDOWN)
		return;
	if (crpc_unlikely(!served)) {
		count_failed(counts, (int32_t)status);
		counts->lat_sum += lat;
	} else {
		note_lat(counts, turn, call->path, lat);
	}
	if (crpc_unlikely(status != KV_OK))
		count_other(counts, status);
}

/* The call that this was the answer to, and its slot; or NULL. */
INLINE struct kv_call *
call_of(const struct kv_loop *loop, struct kv_client *c, uint64_t cookie, struct kv_call *plain,
	uint32_t *slot, unsigned int mode)
{
	*slot = 0;
	if (mode == 0) {
		plain->path = cookie & ((1u << PLAIN_PATH_BITS) - 1);
		plain->start = cookie >> PLAIN_PATH_BITS;
		return plain;
	}
	*slot = (uint32_t)cookie & ((mode & MODE_LINK) != 0 ? 0xff : UINT32_MAX);
	if (crpc_unlikely(*slot >= loop->work->qd || !c->call[*slot].open)) {
		kv_history_fault(&c->history, KV_FAULT_MALFORMED);
		return NULL;
	}
	c->call[*slot].open = false;
	return &c->call[*slot];
}

/* Take a completion of a client's. In a plain loop the next call follows at once in its place. */
INLINE void
client_take(struct kv_loop *loop, struct kv_client *c, const struct crpc_done *done,
	struct turn *turn, unsigned int mode)
{
	struct kv_call plain, *call;
	uint32_t status, slot;
	bool served;

	if ((mode & MODE_VERIFY) != 0 && c->fresh_n != 0) {
		note_floors(c);
		c->fresh_n = 0;
	}
	call = call_of(loop, c, done->cookie, &plain, &slot, mode);
	if (mode != 0 && call == NULL)
		return;
	c->answered++;
	served = answer_check(loop, c, call, done, &status, mode);
	if ((mode & MODE_EXTRA) != 0 && call->reads && served && loop->phase != KV_STOPPED) {
		c->again[c->again_n++] = (uint8_t)slot;
		return;
	}
	count_call(loop, call, turn, served, status);
	if (mode != 0 || crpc_unlikely(!turn->issues || c->dead) ||
		!call_make(loop, c, slot, turn->now, turn->now, mode))
		c->free[c->free_n++] = (uint8_t)slot;
}

/* A connection brought something that did not come plainly. */
static crpc_noinline void
client_poll_all(struct kv_loop *loop, struct kv_client *c, uint32_t conn, struct turn *turn,
	unsigned int mode)
{
	struct crpc_done done[KV_QD_MAX];
	uint32_t k, n;

	n = crpc_ipc_client_poll(c->ipc[conn], turn->now, done, (uint16_t)loop->work->qd);
	if (crpc_unlikely(c->arena[conn] != NULL))
		crpc_kv_blocks_answers(c->ipc[conn], done, n);
	for (k = 0; k < n; k++)
		client_take(loop, c, &done[k], turn, mode);
	turn->work += n;
}

/* What the connections of one client brought. */
INLINE void
client_poll(struct kv_loop *loop, struct kv_client *c, struct turn *turn, unsigned int mode)
{
	uint32_t conn = 0, n = loop->work->qd;
	struct crpc_ipc_client *ipc = c->own;
	struct crpc_done done;
	int rc;

	do {
		if ((mode & MODE_EXTRA) != 0)
			ipc = c->ipc[conn];
		while (n-- != 0 && (rc = crpc_ipc_client_poll_plain(ipc, turn->now, &done)) != 0) {
			if (crpc_unlikely(rc < 0)) {
				client_poll_all(loop, c, conn, turn, mode);
				break;
			}
			client_take(loop, c, &done, turn, mode);
			turn->work++;
		}
		if ((mode & MODE_EXTRA) != 0)
			n = loop->work->qd;
	} while ((mode & MODE_EXTRA) != 0 && ++conn < c->conns);
}

/* What the link brought to all clients. */
INLINE uint32_t
link_poll(struct kv_loop *loop, struct turn *turn, unsigned int mode)
{
	struct crpc_done done[LINK_BURST];
	uint32_t k, n;

	n = loop->link->backend->poll(loop->link, turn->now, done, LINK_BURST);
	for (k = 0; k < n; k++) {
		if (crpc_unlikely(done[k].cookie >> 8 >= loop->n)) /* None of our calls. */
			continue;
		client_take(loop, &loop->client[done[k].cookie >> 8], &done[k], turn, mode);
	}
	return n;
}

INLINE uint32_t
loop_turn(struct kv_loop *loop, uint64_t now, unsigned int mode)
{
	struct kv_client *c, *end = loop->client + loop->n;
	struct turn turn = {.now = now, .issues = loop->phase != KV_STOPPED};
	uint32_t k;

	if ((mode & MODE_LINK) != 0)
		turn.work = link_poll(loop, &turn, mode);
	for (c = loop->client; c != end; c++) {
		if ((mode & MODE_LINK) == 0)
			client_poll(loop, c, &turn, mode);
		if ((mode & MODE_EXTRA) != 0 && c->again_n != 0)
			turn.work += client_issue_again(loop, c, now, mode);
		if (turn.issues && (mode != 0 || crpc_unlikely(c->free_n != 0)))
			client_issue(loop, c, &turn, mode);
	}
	if ((mode & MODE_LINK) != 0)
		loop->link->backend->flush(loop->link, now);
	for (k = 0; k < KV_PATHS; k++)
		count_lat(&loop->counts, &turn, k);
	crpc_store_relaxed(&loop->served_pub, loop->served);
	return turn.work;
}

/* The eight of them, each a function of its own. */
#define TURN(name, mode) \
	static crpc_noinline uint32_t name(struct kv_loop *loop, uint64_t now) \
	{ \
		return loop_turn(loop, now, mode); \
	}

TURN(turn_plain, 0)
TURN(turn_verify, MODE_VERIFY)
TURN(turn_extra, MODE_EXTRA)
TURN(turn_extra_verify, MODE_EXTRA | MODE_VERIFY)
TURN(turn_link, MODE_LINK)
TURN(turn_link_verify, MODE_LINK | MODE_VERIFY)
TURN(turn_link_extra, MODE_LINK | MODE_EXTRA)
TURN(turn_link_extra_verify, MODE_LINK | MODE_EXTRA | MODE_VERIFY)

uint32_t
kv_loop_turn(struct kv_loop *loop, uint64_t now)
{
	static uint32_t (*const turns[])(struct kv_loop *, uint64_t) = {
		turn_plain, turn_verify, turn_extra, turn_extra_verify,
		turn_link, turn_link_verify, turn_link_extra, turn_link_extra_verify,
	};

	return turns[(loop->work->verify ? MODE_VERIFY : 0) | (loop->plain ? 0 : MODE_EXTRA) |
		(loop->link != NULL ? MODE_LINK : 0)](loop, now);
}
