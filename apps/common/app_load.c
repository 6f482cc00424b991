/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>

#include "app_load.h"
#include "ipc_inline.h"
#include "app_load_scan.h"

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
_Static_assert(CRPC_KV_PATHS <= 1 << PLAIN_PATH_BITS, "a path fits");

/* Completions of a link that are taken at once. */
#define LINK_BURST 64

/* What one turn measured. Latencies that are not counted yet: the last n[path] were lat[path]. */
struct turn {
	uint64_t now;
	uint64_t lat[CRPC_KV_PATHS];
	uint64_t n[CRPC_KV_PATHS];
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
path_from_home(const struct app_load_conf *conf, const struct app_load_client *c, const void *key)
{
	if (conf->owners == 1)
		return CRPC_KV_LOCAL;
	return (uint8_t)kv_path(kv_owner(kv_hash(key, conf->key_size), conf->owners), c->home,
		conf->first, conf->daemons);
}

/* Find the key's owner: whom its call goes to, and how it travels from there. */
INLINE struct way
route(const struct app_load *load, const struct app_load_client *c, struct app_load_call *call,
	const void *key, uint32_t key_len, unsigned int mode)
{
	const struct app_load_conf *conf = load->conf;
	struct way way = {.conn = c->own, .to = c->home};
	uint32_t owner;

	if ((mode & (MODE_LINK | MODE_EXTRA)) == 0 || conf->owners == 1) {
		call->path = path_from_home(conf, c, key);
		return way;
	}
	owner = kv_owner(kv_hash(key, key_len), conf->owners);
	if ((mode & MODE_LINK) != 0 && !load->ops->passes) {
		way.to = owner;
		call->path = owner - conf->first < conf->daemons ? CRPC_KV_LOCAL : CRPC_KV_REMOTE;
		return way;
	}
	if ((mode & MODE_EXTRA) != 0 && c->conns > 1) {
		way.to = owner - conf->first < conf->daemons ? owner : c->home;
		way.conn = c->ipc[way.to - conf->first];
	}
	call->path = (uint8_t)kv_path(owner, way.to, conf->first, conf->daemons);
	return way;
}

/* The arena that a connection's blocks are from; NULL: it has none. */
static struct crpc_arena_cache *
arena_of(const struct app_load_client *c, const struct crpc_ipc_client *conn)
{
	uint32_t k = 0;

	while (k + 1 < c->conns && c->ipc[k] != conn)
		k++;
	return c->arena[k];
}

/* A put with extras behind its key, or a large value. @return its length; 0: not now. */
static crpc_noinline uint32_t
call_write_with(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	const struct way *way, uint32_t key_len)
{
	const struct app_load_conf *conf = load->conf;
	uint32_t flags = (conf->cas ? CRPC_KV_EXPECT : 0) | (conf->ttl_ms != 0 ? CRPC_KV_TTL : 0);
	uint32_t size = app_sizes_of(&conf->sizes, call->word);
	uint32_t head = (uint32_t)sizeof(struct kv_req_hdr) + key_len, len;
	struct crpc_arena_cache *arena;
	uint8_t *msg = load->msg;

	if (size > CRPC_KV_VALUE_INLINE) {
		arena = arena_of(c, way->conn);
		msg = arena == NULL
			? NULL
			: crpc_arena_alloc(arena, head + CRPC_KV_EXTRAS_MAX + size, &load->block);
		if (msg == NULL)
			return 0;
		memcpy(msg, load->msg, head); /* the key */
	}
	len = kv_req_write_with(
		msg, CRPC_KV_PUT, key_len, size, flags, call->version, conf->ttl_ms);
	app_value_fill(msg + len - size, size, call->word);
	return len;
}

/* Write the request of a call whose key and operation are known. @return its length. */
static inline uint32_t
call_write(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	struct way *way, unsigned int mode)
{
	const struct app_load_conf *conf = load->conf;
	uint8_t *key = load->msg + sizeof(struct kv_req_hdr);
	bool put = call->op == CRPC_KV_PUT;
	uint32_t value_len = 0, key_len = conf->key_size;

	if ((mode & MODE_VERIFY) != 0)
		call->floor = app_verify_floor(&c->verify, call->key);
	kv_key_write(key, key_len, call->key);
	*way = route(load, c, call, key, key_len, mode);
	call->word = app_verify_put_if(&c->verify, call->key, put);
	if (put)
		value_len = app_sizes_of(&conf->sizes, call->word);
	if (put && load->extras)
		return call_write_with(load, c, call, way, key_len);
	if (put)
		app_value_fill(key + key_len, value_len, call->word);
	return kv_req_write(load->msg, call->op, key_len, value_len);
}

/* A key and a value that are longer than the words they begin with. */
static crpc_noinline void
call_write_rest(
	const struct app_load_conf *conf, uint8_t *key, uint32_t number, uint32_t op, uint64_t word)
{
	kv_key_write(key, conf->key_size, number);
	if (op == CRPC_KV_PUT)
		app_value_fill(key + conf->key_size, conf->value_size, word);
}

/*
 * Draw the next operation and write its request to msg, without anything out of the ordinary. Half
 * of the draws of an even load would be predicted wrongly, so nothing branches on them: a value's
 * first word is written in any case. @return its length.
 */
INLINE uint32_t
call_draw_plain(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	uint8_t *msg, struct way *way, unsigned int mode)
{
	const struct app_load_conf *conf = load->conf;
	uint8_t *key = msg + sizeof(struct kv_req_hdr), *value = key + conf->key_size;
	uint32_t draw, number = app_keys_next_with(&conf->keys, &c->rng, &draw);
	uint32_t op = CRPC_KV_GET + (draw >= conf->read_below) + (draw >= conf->delete_from);
	const struct app_load_form *form = &load->form[op];
	uint64_t word = app_verify_put_if(&c->verify, number, op == CRPC_KV_PUT);

	memcpy(msg, &form->head, sizeof(form->head));
	kv_key_write(key, CRPC_KV_KEY_MIN, number);
	memcpy(value, &word, sizeof(word));
	if (crpc_unlikely(load->room > APP_LOAD_ROOM_MIN))
		call_write_rest(conf, key, number, op, word);
	*way = route(load, c, call, key, conf->key_size, mode);
	if (mode != 0) {
		call->key = number;
		call->op = (uint8_t)op;
		call->word = word;
	}
	if ((mode & MODE_VERIFY) != 0)
		call->floor = app_verify_floor(&c->verify, number);
	return (uint32_t)form->len;
}

/* The same for a load with scans; apart, so that others pay one branch for it. */
static crpc_noinline uint32_t
call_draw_scan(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	struct way *way, unsigned int mode)
{
	app_load_scan_draw(load, c, call);
	return call_write(load, c, call, way, mode);
}

/* Draw the next operation and write its request. @return its length. */
static inline uint32_t
call_draw(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	struct way *way, unsigned int mode)
{
	if (crpc_unlikely(load->conf->scan != 0))
		return call_draw_scan(load, c, call, way, mode);
	app_load_draw(load->conf, c, call, false);
	return call_write(load, c, call, way, mode);
}

static crpc_noinline void
count_failed(struct app_load_counts *counts, int32_t status)
{
	enum app_load_cause cause = APP_LOAD_OTHER;

	if (status == -EHOSTDOWN || status == -EHOSTUNREACH || status == -ECONNRESET)
		cause = APP_LOAD_LOST;
	else if (status == -ETIMEDOUT)
		cause = APP_LOAD_TIME;
	else if (status == -ENOMEM || status == -ENOBUFS)
		cause = APP_LOAD_MEMORY;
	counts->failed++;
	counts->failed_of[cause]++;
}

/* A link refused a call for good: its daemon is lost. That is the end of this call only. */
static crpc_noinline void
call_refused(struct app_load *load, struct app_load_client *c, int status)
{
	c->sent++;
	c->answered++;
	if (load->phase < APP_LOAD_COOLDOWN)
		count_failed(&load->counts, status);
}

/* By the link that all clients share: its cookie names the client too. */
INLINE bool
link_send(struct app_load *load, struct app_load_client *c, uint32_t slot, uint32_t len,
	uint32_t to, uint64_t now)
{
	const struct app_load_conf *conf = load->conf;
	uint32_t resp_max = (uint32_t)sizeof(struct kv_resp_hdr) +
		(c->call[slot].op == CRPC_KV_GET || conf->cas ? conf->value_size : 0);
	int rc = load->ops->call(load->link, now, load->ops->passes ? to - conf->first : to,
		load->msg, len, resp_max, (uint64_t)c->number << 8 | slot);

	if (crpc_unlikely(rc != 0 && rc != -EAGAIN))
		call_refused(load, c, rc);
	return rc == 0;
}

/* A request in a block, which is the daemon's from then on. */
static crpc_noinline int
block_send(struct app_load *load, const struct app_load_client *c, uint32_t slot, uint64_t len,
	struct crpc_ipc_client *conn, uint64_t now)
{
	uint64_t block = load->block;
	int rc;

	if (len == 0)
		return -EAGAIN;
	load->block = 0;
	rc = crpc_ipc_client_call_ref(conn, now, block, &len, sizeof(len), load->answer, slot);
	if (rc != 0)
		crpc_arena_free(arena_of(c, conn), block);
	return rc;
}

/* A connection did not take a call. */
static crpc_noinline void
conn_refused(struct app_load *load, struct app_load_client *c, int rc)
{
	if (rc == -EAGAIN)
		return;
	load->dead += !c->dead;
	c->dead = true;
}

/* By a connection of the client's own. */
INLINE bool
conn_send(struct app_load *load, struct app_load_client *c, uint32_t slot, uint32_t len,
	const struct way *way, uint64_t now)
{
	int rc;

	if (crpc_unlikely(len == 0 || load->block != 0))
		rc = block_send(load, c, slot, len, way->conn, now);
	else
		rc = crpc_ipc_client_call(way->conn, now, load->msg, len, load->answer, slot);
	if (crpc_unlikely(rc != 0))
		conn_refused(load, c, rc);
	return rc == 0;
}

/* Note a call in the history, before it is made. */
static crpc_noinline void
call_record(struct app_load *load, const struct app_load_client *c, struct app_load_call *call)
{
	static const uint8_t kinds[] = {[CRPC_KV_GET] = APP_HISTORY_GET,
		[CRPC_KV_PUT] = APP_HISTORY_PUT,
		[CRPC_KV_DELETE] = APP_HISTORY_DEL};
	bool cas = call->op == CRPC_KV_PUT && load->conf->cas;

	call->record = app_records_call(load->records,
		&(struct app_history_op){.key = call->key,
			.value = call->op == CRPC_KV_PUT ? call->word : 0,
			.expected = cas ? call->read : 0,
			.client = c->verify.writer,
			.kind = cas ? APP_HISTORY_CAS : kinds[call->op]});
}

/* Note its answer. */
static crpc_noinline void
answer_record(struct app_load *load, const struct app_load_call *call,
	const struct kv_resp_hdr *hdr, const uint8_t *value)
{
	uint64_t word = 0;

	if (hdr->value_len >= sizeof(word))
		memcpy(&word, value, sizeof(word));
	app_records_answer(load->records, call->record, hdr, word);
}

/* Send the request that was written. @return true if it was taken. */
INLINE bool
call_send(struct app_load *load, struct app_load_client *c, uint32_t slot, uint32_t len,
	const struct way *way, uint64_t now, unsigned int mode)
{
	bool records = (mode & MODE_EXTRA) != 0 && load->records != NULL;

	if (records)
		call_record(load, c, &c->call[slot]);
	if ((mode & MODE_LINK) != 0 ? !link_send(load, c, slot, len, way->to, now)
				    : !conn_send(load, c, slot, len, way, now)) {
		if (records)
			app_records_undo(load->records, c->call[slot].record);
		return false;
	}
	c->call[slot].open = true;
	c->sent++;
	return true;
}

/* rmw: write what was read. @return how many calls. */
static crpc_noinline uint32_t
client_issue_again(
	struct app_load *load, struct app_load_client *c, uint64_t now, unsigned int mode)
{
	uint64_t ended;
	struct way way;
	struct app_load_call *call;
	uint32_t len, slot, made = 0;

	while (c->again_n > 0 && !c->dead) {
		slot = c->again[c->again_n - 1];
		call = &c->call[slot];
		call->op = CRPC_KV_PUT;
		call->reads = false;
		len = call_write(load, c, call, &way, mode | MODE_EXTRA);
		ended = c->answered;
		if (call_send(load, c, slot, len, &way, now, mode))
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
is_due(const struct app_load_conf *conf, struct app_load_client *c, uint64_t now, uint64_t *start)
{
	double u;

	if (!(conf->gap_ns > 0))
		return true;
	if (c->due_ns == 0)
		c->due_ns = now;
	if (c->due_ns > now)
		return false;
	*start = c->due_ns;
	/* Exponential gaps; u is above 0 and at most 1. */
	u = (double)((crpc_random(&c->rng) >> 11) + 1) * 0x1p-53;
	c->due_ns += (uint64_t)(-log(u) * conf->gap_ns) + 1;
	return true;
}

/*
 * Draw a plain call and make it by the client's connection: it is written where it travels. Without
 * verification nothing is kept of it but when it was made and how it goes, which is its cookie: it
 * needs no slot. @return true if it was taken.
 */
INLINE bool
call_make_plain(struct app_load *load, struct app_load_client *c, uint32_t slot, uint64_t now,
	unsigned int mode)
{
	struct app_load_call plain, *call = mode == 0 ? &plain : &c->call[slot];
	struct crpc_ipc_call_room room;
	int rc = crpc_ipc_client_call_reserve(c->own, load->room, load->answer, &room);
	uint64_t cookie = slot;
	struct way way;
	uint32_t len;

	if (crpc_unlikely(rc != 0)) {
		conn_refused(load, c, rc);
		return false;
	}
	len = call_draw_plain(load, c, call, room.slot->data, &way, mode);
	if (mode == 0) {
		cookie = now << PLAIN_PATH_BITS | call->path;
	} else {
		call->start = now;
		call->open = true;
	}
	crpc_ipc_client_call_commit(c->own, now, &room, len, cookie);
	c->sent++;
	return true;
}

/* Draw a call and make it. @return true if it was taken. */
INLINE bool
call_make(struct app_load *load, struct app_load_client *c, uint32_t slot, uint64_t start,
	uint64_t now, unsigned int mode)
{
	struct app_load_call *call = &c->call[slot];
	struct way way;
	uint32_t len;

	if ((mode & (MODE_EXTRA | MODE_LINK)) == 0)
		return call_make_plain(load, c, slot, now, mode);
	if ((mode & MODE_EXTRA) != 0)
		len = call_draw(load, c, call, &way, mode);
	else
		len = call_draw_plain(load, c, call, load->msg, &way, mode);
	call->start = start;
	return call_send(load, c, slot, len, &way, now, mode);
}

/* Make calls until qd are open, or none is due. */
INLINE void
client_issue(struct app_load *load, struct app_load_client *c, struct turn *turn, unsigned int mode)
{
	uint64_t now = turn->now, start = now, ended = c->answered;

	while (c->free_n > 0 && !c->dead) {
		if ((mode & MODE_EXTRA) != 0 && !is_due(load->conf, c, now, &start))
			break;
		if (!call_make(load, c, c->free[c->free_n - 1], start, now, mode)) {
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

/* What is out of the ordinary: the history, and what a put that follows depends on. */
static crpc_noinline void
answer_extra(struct app_load *load, struct app_load_call *call, struct kv_resp_hdr hdr,
	const uint8_t *value)
{
	if (load->records != NULL)
		answer_record(load, call, &hdr, value);
	if (!call->reads)
		return;
	call->version = hdr.status == CRPC_KV_OK ? hdr.version : 0;
	call->read = 0;
	if (hdr.status == CRPC_KV_OK && hdr.value_len >= sizeof(call->read))
		memcpy(&call->read, value, sizeof(call->read));
}

/* No store answered. */
static crpc_noinline void
answer_failed(struct app_load *load, const struct app_load_call *call, int32_t status)
{
	if (load->records != NULL && status == -EHOSTUNREACH)
		app_records_answer(load->records, call->record, NULL, 0);
}

/* Check an answer. @return true if a store gave it; *status is what it said, else an errno. */
INLINE bool
answer_check(struct app_load *load, struct app_load_client *c, struct app_load_call *call,
	const struct crpc_done *done, uint32_t *status, unsigned int mode)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	*status = CRPC_KV_OK;
	if (crpc_unlikely(done->status != 0)) {
		*status = (uint32_t)done->status;
		if ((mode & MODE_EXTRA) != 0)
			answer_failed(load, call, done->status);
		return false;
	}
	if (crpc_unlikely(kv_resp_read(done->data, done->len, &hdr, &value) != 0)) {
		app_verify_fault(&c->verify, APP_FAULT_MALFORMED);
		return true;
	}
	*status = hdr.status;
	if ((mode & MODE_EXTRA) != 0 && (load->records != NULL || call->reads))
		answer_extra(load, call, hdr, value);
	if ((mode & MODE_VERIFY) != 0 &&
		((mode & MODE_EXTRA) != 0 ||
			crpc_unlikely(!app_verify_word(&c->verify, call->key, call->op,
				call->floor, &call->word, hdr, value))))
		app_verify_check(&c->verify,
			&(struct app_answer){.key = call->key,
				.op = call->op,
				.floor = call->floor,
				.word = call->word,
				.conditional = (mode & MODE_EXTRA) != 0 && load->conf->cas,
				.hdr = hdr,
				.value = value});
	return true;
}

/* Count the calls that took turn->lat[path]. */
static inline void
count_lat(struct app_load *load, const struct turn *turn, uint32_t path)
{
	struct app_load_counts *counts = &load->counts;
	uint64_t lat = turn->lat[path], n = turn->n[path];

	if (n == 0)
		return;
	load->served += n;
	if (load->phase >= APP_LOAD_COOLDOWN)
		return;
	counts->ops[path] += n;
	counts->lat_sum += lat * n;
	crpc_hist_record_n(&counts->lat[path], lat, n);
}

/* Calls that end in one turn were often made in one turn too: those are counted together. */
static inline void
note_lat(struct app_load *load, struct turn *turn, uint32_t path, uint64_t lat)
{
	if (lat != turn->lat[path]) {
		count_lat(load, turn, path);
		turn->lat[path] = lat;
		turn->n[path] = 0;
	}
	turn->n[path]++;
}

/* An answer that is not "ok", or, if no store gave it, an error. */
static crpc_noinline void
count_other(struct app_load *load, bool served, uint32_t status, uint64_t lat)
{
	struct app_load_counts *counts = &load->counts;

	if (load->phase >= APP_LOAD_COOLDOWN)
		return;
	if (!served) {
		count_failed(counts, (int32_t)status);
		counts->lat_sum += lat;
		return;
	}
	counts->misses += status == CRPC_KV_NOT_FOUND;
	counts->conflicts += status == CRPC_KV_MISMATCH;
	counts->refused += status == CRPC_KV_NO_SPACE;
}

/* A call has ended. */
static inline void
count_call(struct app_load *load, const struct app_load_call *call, struct turn *turn, bool served,
	uint32_t status)
{
	uint64_t lat = turn->now - call->start;

	if (crpc_likely(served))
		note_lat(load, turn, call->path, lat);
	if (crpc_unlikely(status != CRPC_KV_OK))
		count_other(load, served, status, lat);
}

/* The call that this was the answer to, and its slot; or NULL. */
INLINE struct app_load_call *
call_of(const struct app_load *load, struct app_load_client *c, uint64_t cookie,
	struct app_load_call *plain, uint32_t *slot, unsigned int mode)
{
	*slot = 0;
	if (mode == 0) {
		plain->path = cookie & ((1u << PLAIN_PATH_BITS) - 1);
		plain->start = cookie >> PLAIN_PATH_BITS;
		return plain;
	}
	*slot = (uint32_t)cookie & ((mode & MODE_LINK) != 0 ? 0xff : UINT32_MAX);
	if (crpc_unlikely(*slot >= load->conf->depth || !c->call[*slot].open)) {
		app_verify_fault(&c->verify, APP_FAULT_MALFORMED);
		return NULL;
	}
	c->call[*slot].open = false;
	return &c->call[*slot];
}

/* Take a completion of a client's. By a plain connection the next call follows at once. */
INLINE void
client_take(struct app_load *load, struct app_load_client *c, const struct crpc_done *done,
	struct turn *turn, unsigned int mode)
{
	struct app_load_call plain, *call;
	uint32_t status, slot;
	bool served;

	call = call_of(load, c, done->cookie, &plain, &slot, mode);
	if (mode != 0 && call == NULL)
		return;
	c->answered++;
	served = answer_check(load, c, call, done, &status, mode);
	if ((mode & MODE_EXTRA) != 0 && call->reads && served && load->phase != APP_LOAD_STOPPED) {
		c->again[c->again_n++] = (uint8_t)slot;
		return;
	}
	count_call(load, call, turn, served, status);
	if ((mode & (MODE_EXTRA | MODE_LINK)) != 0 || crpc_unlikely(!turn->issues) ||
		!call_make(load, c, slot, turn->now, turn->now, mode))
		c->free[c->free_n++] = (uint8_t)slot;
}

/* A connection brought something that did not come plainly. */
static crpc_noinline void
client_poll_all(struct app_load *load, struct app_load_client *c, uint32_t conn, struct turn *turn,
	unsigned int mode)
{
	struct crpc_done done[APP_LOAD_DEPTH_MAX];
	uint32_t n = crpc_ipc_client_poll(
		c->ipc[conn], turn->now, done, (uint16_t)load->conf->depth);

	if (crpc_unlikely(c->arena[conn] != NULL))
		crpc_kv_blocks_answers(c->ipc[conn], done, n);
	for (uint32_t k = 0; k < n; k++)
		client_take(load, c, &done[k], turn, mode);
	turn->work += n;
}

/* What the connections of one client brought. */
INLINE void
client_poll(struct app_load *load, struct app_load_client *c, struct turn *turn, unsigned int mode)
{
	uint32_t conn = 0, n = load->conf->depth;
	struct crpc_ipc_client *ipc = c->own;
	struct crpc_done done;
	int rc;

	do {
		if ((mode & MODE_EXTRA) != 0)
			ipc = c->ipc[conn];
		while (n-- != 0 && (rc = crpc_ipc_client_poll_plain(ipc, turn->now, &done)) != 0) {
			if (crpc_unlikely(rc < 0)) {
				client_poll_all(load, c, conn, turn, mode);
				break;
			}
			client_take(load, c, &done, turn, mode);
			turn->work++;
		}
		if ((mode & MODE_EXTRA) != 0)
			n = load->conf->depth;
	} while ((mode & MODE_EXTRA) != 0 && ++conn < c->conns);
}

/* What the link brought to all clients. */
INLINE uint32_t
link_poll(struct app_load *load, struct turn *turn, unsigned int mode)
{
	struct crpc_done done[LINK_BURST];
	uint32_t n = load->ops->poll(load->link, turn->now, done, LINK_BURST);

	for (uint32_t k = 0; k < n; k++) {
		if (crpc_unlikely(done[k].cookie >> 8 >= load->n)) /* None of our calls. */
			continue;
		client_take(load, &load->client[done[k].cookie >> 8], &done[k], turn, mode);
	}
	return n;
}

INLINE uint32_t
load_turn(struct app_load *load, uint64_t now, unsigned int mode)
{
	struct app_load_client *end = load->client + load->n;
	struct turn turn = {.now = now, .issues = load->phase != APP_LOAD_STOPPED};

	if ((mode & MODE_LINK) != 0)
		turn.work = link_poll(load, &turn, mode);
	for (struct app_load_client *c = load->client; c != end; c++) {
		if ((mode & MODE_LINK) == 0)
			client_poll(load, c, &turn, mode);
		if ((mode & MODE_EXTRA) != 0 && c->again_n != 0)
			turn.work += client_issue_again(load, c, now, mode);
		if (crpc_unlikely(c->free_n != 0) && turn.issues)
			client_issue(load, c, &turn, mode);
	}
	if ((mode & MODE_LINK) != 0)
		load->ops->flush(load->link, now);
	for (uint32_t k = 0; k < CRPC_KV_PATHS; k++)
		count_lat(load, &turn, k);
	crpc_store_relaxed(&load->served_pub, load->served);
	return turn.work;
}

/* The eight of them, each a function of its own. */
#define TURN(name, mode)                                                                           \
	static crpc_noinline uint32_t name(struct app_load *load, uint64_t now)                    \
	{                                                                                          \
		return load_turn(load, now, mode);                                                 \
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
app_load_turn(struct app_load *load, uint64_t now)
{
	static uint32_t (*const turns[])(struct app_load *, uint64_t) = {
		turn_plain,
		turn_verify,
		turn_extra,
		turn_extra_verify,
		turn_link,
		turn_link_verify,
		turn_link_extra,
		turn_link_extra_verify,
	};

	return turns[(load->conf->verify ? MODE_VERIFY : 0) | (load->plain ? 0 : MODE_EXTRA) |
		(load->link != NULL ? MODE_LINK : 0)](load, now);
}
