/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <sys/random.h>

#include <rte_jhash.h>

#include "crpc_log.h"
#include "crpc_mem.h"
#include "kv_store_quick.h"
#include "kv_store_size.h"

/* A value above CRPC_KV_VALUE_INLINE: it stands in its place instead of the value. */
struct kv_large {
	uint64_t ref;
	uint64_t size; /* of the block */
	void *value;
};

struct kv_store {
	struct kv_quick_store q; /* first: see store_quick.h */
	struct rte_hash *hash;
	uint8_t *slots;
	uint32_t slot_size;
	uint32_t value_max;
	uint32_t secret; /* of places in the table */
	uint32_t key_size;
	uint32_t entries;    /* Slots. */
	uint32_t now_ms;     /* Since the first tick. */
	uint32_t sweep_at;   /* The slot where the search for ended ones goes on. */
	uint32_t room_slots; /* That puts may still look at before the next tick. */
	uint64_t tick0_ns;
	struct crpc_arena_cache *arena;
	uint64_t block_limit;
	struct crpc_ipc_block offer; /* What the request came in. */
	uint64_t stat[CRPC_KV_STATS_N];
	uint64_t *young; /* A bit per place: filled since a copy began. */
	bool copying;
	bool has_near; /* 8-byte keys, and not too many. */
};

_Static_assert(offsetof(struct kv_store, q) == 0, "store_quick.h finds it there");

/* Slots that one tick looks at for keys whose life has ended. */
#define SWEEP_SLOTS 128
/*
 * Slots that a put looks at when it finds no place; all puts between two ticks look at so many, or
 * those that a store of living keys refuses would keep its daemon busy.
 */
#define ROOM_SLOTS      256u
#define ROOM_SLOTS_TICK 4096u

/* The table compares through a pointer; for 8-byte keys this is all there is to compare. */
static int
cmp_key8(const void *a, const void *b, size_t len)
{
	uint64_t x, y;

	memcpy(&x, a, 8);
	memcpy(&y, b, 8);
	return x != y;
}

/*
 * Clients know kv_hash(), so one of them can find any number of keys with the same value, and the
 * look-ups of all others would walk past them. Places follow from a secret of the store instead.
 */
static inline hash_sig_t
place_of(const struct kv_store *s, const void *key)
{
	return rte_jhash(key, s->key_size, s->secret);
}

static inline int32_t
table_lookup(const struct kv_store *s, const void *key)
{
	return rte_hash_lookup_with_hash(s->hash, key, place_of(s, key));
}

static bool
near_create(struct kv_store *s, const struct crpc_kv_server_conf *conf)
{
	uint32_t n = kv_size_near(conf);

	s->has_near = n != 0;
	s->q.near_mask = n - s->has_near;
	s->q.near = crpc_mem_alloc("kv_near", ((size_t)s->q.near_mask + 1) * sizeof(s->q.near[0]),
		CRPC_CACHE_GUARD, NULL);
	return s->q.near != NULL;
}

struct kv_store *
__crpc_kv_store_create(const struct crpc_kv_server_conf *conf, const char *name, int socket,
	struct crpc_arena_cache *arena)
{
	struct rte_hash_parameters params = {
		.name = name,
		.entries = kv_size_entries(conf->capacity),
		.key_len = conf->key_size,
		.hash_func = rte_jhash,
		.socket_id = socket,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	struct kv_store *s = crpc_mem_alloc("kv_store", sizeof(*s), CRPC_CACHE_GUARD, NULL);

	if (s == NULL)
		goto err;
	/* Without random bytes it is a table as good, but for hostile clients. */
	(void)!getrandom(&s->secret, sizeof(s->secret), GRND_NONBLOCK);
	params.hash_func_init_val = s->secret;
	s->value_max = conf->value_max;
	s->key_size = conf->key_size;
	s->stat[CRPC_KV_STAT_CAPACITY] = conf->capacity;
	s->entries = params.entries;
	s->now_ms = 1;
	s->arena = conf->value_max > CRPC_KV_VALUE_INLINE ? arena : NULL;
	s->q.mortal = s->arena != NULL; /* no short cuts */
	s->block_limit = conf->block_bytes != 0 ? conf->block_bytes : UINT64_MAX;
	s->slot_size = kv_size_slot(conf->value_max);
	s->hash = rte_hash_create(&params);
	s->young = calloc(params.entries / 64 + 1, sizeof(*s->young));
	if (s->hash == NULL || s->young == NULL)
		goto err;
	s->slots = crpc_mem_alloc(
		"kv_slots", (uint64_t)params.entries * s->slot_size, CRPC_CACHE_GUARD, NULL);
	if (s->slots == NULL)
		goto err;
	if (s->key_size == 8)
		rte_hash_set_cmp_func(s->hash, cmp_key8);
	if (!near_create(s, conf))
		goto err;
	return s;
err:
	__crpc_kv_store_free(s);
	errno = ENOMEM;
	return NULL;
}

void
__crpc_kv_store_free(struct kv_store *s)
{
	if (s == NULL)
		return;
	rte_hash_free(s->hash);
	crpc_mem_free(s->q.near);
	crpc_mem_free(s->slots);
	free(s->young);
	crpc_mem_free(s);
}

static inline struct kv_slot *
slot_at(const struct kv_store *s, int32_t pos)
{
	return (struct kv_slot *)(s->slots + (uint64_t)(uint32_t)pos * s->slot_size);
}

static inline int32_t
pos_of(const struct kv_store *s, const struct kv_slot *slot)
{
	return (int32_t)((uint64_t)((const uint8_t *)slot - s->slots) / s->slot_size);
}

static inline struct kv_near *
near_at(const struct kv_store *s, hash_sig_t hash)
{
	return &s->q.near[hash & s->q.near_mask];
}

/* Not near: ask the hash, and remember what it said. */
static crpc_noinline int32_t
lookup_far(struct kv_store *s, const void *key, hash_sig_t hash)
{
	int32_t pos = table_lookup(s, key);
	struct kv_near *near = near_at(s, hash);

	if (pos < 0)
		return pos;
	memcpy(&near->key, key, sizeof(near->key));
	near->slot = slot_at(s, pos);
	return pos;
}

struct kv_slot *
__crpc_kv_quick_far(struct kv_store *s, uint64_t key, uint32_t hash)
{
	int32_t pos;

	if (!s->has_near || s->q.mortal != 0)
		return NULL;
	pos = lookup_far(s, &key, hash);
	return pos < 0 ? NULL : slot_at(s, pos);
}

static void
lookup_near(struct kv_store *s, struct kv_batch *b)
{
	const struct kv_near *near;
	uint64_t key;

	for (uint32_t i = 0; i < b->n; i++) {
		near = near_at(s, b->hash[i]);
		memcpy(&key, b->key[i], sizeof(key));
		if (crpc_likely(near->key == key && near->slot != NULL))
			b->pos[i] = pos_of(s, near->slot);
		else
			b->pos[i] = lookup_far(s, b->key[i], b->hash[i]);
		if (crpc_likely(b->pos[i] >= 0))
			crpc_prefetch(slot_at(s, b->pos[i]));
	}
}

void
__crpc_kv_store_lookup(struct kv_store *s, struct kv_batch *b)
{
	hash_sig_t place[KV_BATCH_MAX];

	b->moved = false;
	if (b->n == 0)
		return;
	if (s->has_near) {
		lookup_near(s, b);
		return;
	}
	for (uint32_t i = 0; i < b->n; i++)
		place[i] = place_of(s, b->key[i]);
	rte_hash_lookup_with_hash_bulk(s->hash, b->key_ptr, place, b->n, b->pos);
	for (uint32_t i = 0; i < b->n; i++)
		if (b->pos[i] >= 0)
			crpc_prefetch(slot_at(s, b->pos[i]));
}

static inline bool
has_ended(const struct kv_store *s, const struct kv_slot *slot)
{
	return slot->end_ms != 0 && (int32_t)(s->now_ms - slot->end_ms) >= 0;
}

/* The value that comes to a place has an end of its life, or the one before it had. */
static void
life_write(struct kv_store *s, struct kv_slot *slot, uint32_t ttl_ms)
{
	s->q.mortal -= slot->end_ms != 0;
	s->q.mortal += ttl_ms != 0;
	/* 0 means never, so one that would end then ends a millisecond later */
	slot->end_ms = ttl_ms == 0 ? 0 : crpc_max(s->now_ms + ttl_ms, 1u);
}

static inline void
slot_write(struct kv_store *s, struct kv_slot *slot, const void *value, uint32_t len)
{
	slot->version = ++s->q.version;
	slot->len = len;
	if (len == 8)
		memcpy(slot + 1, value, 8);
	else
		memcpy(slot + 1, value, len);
}

static inline struct kv_large *
large_at(struct kv_slot *slot)
{
	return (struct kv_large *)(void *)(slot + 1);
}

static const void *
value_at(struct kv_slot *slot)
{
	return slot->len > CRPC_KV_VALUE_INLINE ? large_at(slot)->value : (const void *)(slot + 1);
}

/* The value that stood here goes. */
static void
slot_clear(struct kv_store *s, struct kv_slot *slot)
{
	if (slot->len > CRPC_KV_VALUE_INLINE) {
		s->stat[CRPC_KV_STAT_BLOCK_BYTES] -= large_at(slot)->size;
		crpc_arena_free(s->arena, large_at(slot)->ref);
	}
	slot->len = 0;
}

/* A block that was not made for this value would waste what it has more. */
static bool
is_kept(const struct kv_store *s, uint32_t len)
{
	return s->offer.ref != 0 &&
		s->offer.size <= 2 * crpc_arena_block_size(crpc_arena_of(s->arena), len);
}

/*
 * A block with a value, as it came or a copy; the one that it replaces stays for now. False: there
 * is no room.
 */
static bool
large_make(
	struct kv_store *s, const void *value, uint32_t len, uint64_t replaced, struct kv_large *to)
{
	struct crpc_arena *arena = crpc_arena_of(s->arena);

	if (is_kept(s, len)) {
		*to = (struct kv_large){.ref = s->offer.ref,
			.size = s->offer.size,
			.value = (void *)(uintptr_t)value};
		return s->stat[CRPC_KV_STAT_BLOCK_BYTES] - replaced + to->size <= s->block_limit;
	}
	to->size = crpc_arena_block_size(arena, len);
	if (s->stat[CRPC_KV_STAT_BLOCK_BYTES] - replaced + to->size > s->block_limit)
		return false;
	to->value = crpc_arena_alloc(s->arena, len, &to->ref);
	if (to->value == NULL)
		return false;
	memcpy(to->value, value, len);
	return true;
}

/* Write a value of any size; false: there is no room, and nothing has changed. */
static bool
slot_replace(struct kv_store *s, struct kv_slot *slot, const void *value, uint32_t len)
{
	uint64_t replaced = slot->len > CRPC_KV_VALUE_INLINE ? large_at(slot)->size : 0;
	struct kv_large large;

	if (len <= CRPC_KV_VALUE_INLINE) {
		slot_clear(s, slot);
		slot_write(s, slot, value, len);
		return true;
	}
	if (!large_make(s, value, len, replaced, &large))
		return false;
	slot_clear(s, slot);
	if (large.ref == s->offer.ref)
		s->offer.ref = 0;
	s->stat[CRPC_KV_STAT_BLOCK_BYTES] += large.size;
	slot->version = ++s->q.version;
	slot->len = len;
	*large_at(slot) = large;
	return true;
}

/* Take a key out. Its place is as good as new. */
static void
key_remove(struct kv_store *s, const void *key, hash_sig_t hash, int32_t pos)
{
	struct kv_slot *slot = slot_at(s, pos);

	s->q.mortal -= slot->end_ms != 0;
	slot->end_ms = 0;
	slot_clear(s, slot);
	if (near_at(s, hash)->slot == slot)
		near_at(s, hash)->slot = NULL;
	rte_hash_del_key_with_hash(s->hash, key, place_of(s, key));
}

/*
 * Go on through the slots, so many at most, to the next key whose life has ended, and take it out.
 * @return false: there was none.
 */
static bool
sweep(struct kv_store *s, uint32_t *slots)
{
	void *key;
	int32_t pos;

	while (*slots != 0 && s->q.mortal != (s->arena != NULL)) {
		(*slots)--;
		pos = (int32_t)s->sweep_at;
		s->sweep_at = s->sweep_at + 1 < s->entries ? s->sweep_at + 1 : 0;
		/* A slot without a key has no end. */
		if (!has_ended(s, slot_at(s, pos)) ||
			rte_hash_get_key_with_position(s->hash, pos, &key) != 0)
			continue;
		key_remove(s, key, kv_hash(key, s->key_size), pos);
		s->stat[CRPC_KV_STAT_EXPIRED]++;
		s->q.version++; /* its end is a change as a delete is */
		return true;
	}
	return false;
}

/* There is no room for a put: a key whose life has ended makes some, if one is near. */
static crpc_noinline bool
make_room(struct kv_store *s, uint32_t *slots)
{
	uint32_t may = crpc_min(*slots, s->room_slots), left = may;
	bool found = sweep(s, &left);

	*slots -= may - left;
	s->room_slots -= may - left;
	return found;
}

/* A place for a new key, or -1: the store is full. */
static int32_t
key_add(struct kv_store *s, const void *key)
{
	uint32_t slots = ROOM_SLOTS;
	int32_t pos;

	if (__crpc_kv_store_count(s) >= s->stat[CRPC_KV_STAT_CAPACITY] && !make_room(s, &slots))
		return -1;
	pos = rte_hash_add_key_with_hash(s->hash, key, place_of(s, key));
	if (crpc_unlikely(s->copying) && pos >= 0)
		s->young[pos / 64] |= UINT64_C(1) << pos % 64;
	return pos;
}

static void
not_found(struct kv_store *s, struct kv_served *out)
{
	s->stat[CRPC_KV_STAT_MISSES]++;
	out->status = CRPC_KV_NOT_FOUND;
	out->version = s->q.version;
}

static void
found(const struct kv_slot *slot, struct kv_served *out)
{
	out->version = slot->version;
	out->value_len = slot->len;
	out->value = slot + 1;
}

/* The same for a value of any size. */
static void
found_any(struct kv_slot *slot, struct kv_served *out)
{
	found(slot, out);
	out->value = value_at(slot);
}

/* Whether the key has the version that the request depends on; if not, *out says what it has. */
static bool
is_expected(struct kv_store *s, const struct kv_req *req, int32_t pos, struct kv_served *out)
{
	if (req->extras.expect == (pos < 0 ? 0 : slot_at(s, pos)->version))
		return true;
	s->stat[CRPC_KV_STAT_MISMATCHES]++;
	if (pos < 0) {
		not_found(s, out);
		return false;
	}
	out->status = CRPC_KV_MISMATCH;
	found_any(slot_at(s, pos), out);
	return false;
}

/* A place for the key of a request; -1: the store is full, and *out says so. */
static int32_t
put_new(struct kv_store *s, struct kv_batch *b, uint32_t i, struct kv_served *out)
{
	int32_t pos = key_add(s, b->key[i]);

	b->moved = true;
	if (pos < 0) {
		s->stat[CRPC_KV_STAT_REFUSED]++;
		out->status = CRPC_KV_NO_SPACE;
	}
	return pos;
}

/* slot_replace(), with the room of keys whose life has ended if there is no other. */
static bool
put_value(struct kv_store *s, struct kv_batch *b, uint32_t i, struct kv_slot *slot)
{
	const struct kv_req *req = &b->req[i];
	uint32_t slots = ROOM_SLOTS;

	while (!slot_replace(s, slot, req->value, req->value_len)) {
		if (!make_room(s, &slots))
			return false;
		b->moved = true;
	}
	return true;
}

static void
exec_put(struct kv_store *s, struct kv_batch *b, uint32_t i, int32_t pos, struct kv_served *out)
{
	const struct kv_req *req = &b->req[i];
	struct kv_slot *slot;
	bool fresh = pos < 0;

	s->stat[CRPC_KV_STAT_PUTS]++;
	if (fresh) {
		pos = put_new(s, b, i, out);
		if (pos < 0)
			return;
	}
	slot = slot_at(s, pos);
	if (!put_value(s, b, i, slot)) {
		if (fresh)
			key_remove(s, b->key[i], b->hash[i], pos);
		s->stat[CRPC_KV_STAT_REFUSED]++;
		out->status = CRPC_KV_NO_SPACE;
		return;
	}
	if ((slot->end_ms | req->flags) != 0)
		life_write(s, slot, req->flags & CRPC_KV_TTL ? (uint32_t)req->extras.ttl_ms : 0);
	out->version = s->q.version;
}

static void
exec_delete(struct kv_store *s, struct kv_batch *b, uint32_t i, int32_t pos, struct kv_served *out)
{
	s->stat[CRPC_KV_STAT_DELETES]++;
	if (pos < 0) {
		not_found(s, out);
		return;
	}
	key_remove(s, b->key[i], b->hash[i], pos);
	b->moved = true;
	out->version = ++s->q.version;
}

/* The life of the value that stands there has ended: it is not there. */
static int32_t
expire(struct kv_store *s, struct kv_batch *b, uint32_t i, int32_t pos)
{
	key_remove(s, b->key[i], b->hash[i], pos);
	s->stat[CRPC_KV_STAT_EXPIRED]++;
	s->q.version++; /* its end is a change as a delete is */
	b->moved = true;
	return -1;
}

/* Any request. */
static crpc_noinline void
exec_any(struct kv_store *s, struct kv_batch *b, uint32_t i, struct kv_served *out)
{
	const struct kv_req *req = &b->req[i];
	int32_t pos = b->pos[i];

	if (b->moved)
		pos = table_lookup(s, b->key[i]);
	if (pos >= 0 && has_ended(s, slot_at(s, pos)))
		pos = expire(s, b, i, pos);
	*out = (struct kv_served){.status = CRPC_KV_OK, .op = req->op};
	if ((req->flags & CRPC_KV_EXPECT) && !is_expected(s, req, pos, out))
		return;
	if (req->op == CRPC_KV_GET && req->value_len == 0) {
		s->stat[CRPC_KV_STAT_GETS]++;
		if (pos < 0)
			not_found(s, out);
		else
			found_any(slot_at(s, pos), out);
	} else if (req->op == CRPC_KV_PUT && req->value_len >= CRPC_KV_VALUE_MIN &&
		req->value_len <= s->value_max) {
		exec_put(s, b, i, pos, out);
	} else if (req->op == CRPC_KV_DELETE && req->value_len == 0) {
		exec_delete(s, b, i, pos, out);
	} else {
		s->stat[CRPC_KV_STAT_REFUSED]++;
		out->status = CRPC_KV_BAD_REQUEST;
	}
}

/* What nearly all are, at once: plain gets and puts of keys that are there, for good. */
void
__crpc_kv_store_exec(struct kv_store *s, struct kv_batch *b, uint32_t i, struct kv_served *out)
{
	const struct kv_req *req = &b->req[i];
	struct kv_slot *slot = slot_at(s, b->pos[i]);
	uint32_t put_len = req->value_len - CRPC_KV_VALUE_MIN;

	if (crpc_unlikely((s->q.mortal | req->flags | b->moved) != 0 || b->pos[i] < 0)) {
		exec_any(s, b, i, out);
	} else if (req->op == CRPC_KV_GET && req->value_len == 0) {
		s->stat[CRPC_KV_STAT_GETS]++;
		*out = (struct kv_served){.status = CRPC_KV_OK, .op = CRPC_KV_GET};
		found(slot, out);
	} else if (req->op == CRPC_KV_PUT && put_len <= s->value_max - CRPC_KV_VALUE_MIN) {
		s->stat[CRPC_KV_STAT_PUTS]++;
		slot_write(s, slot, req->value, req->value_len);
		*out = (struct kv_served){
			.status = CRPC_KV_OK, .op = CRPC_KV_PUT, .version = s->q.version};
	} else {
		exec_any(s, b, i, out);
	}
}

bool
__crpc_kv_store_exec_block(struct kv_store *s, struct kv_batch *b, uint32_t i,
	struct kv_served *out, const struct crpc_ipc_block *block)
{
	bool kept;

	s->offer = *block;
	__crpc_kv_store_exec(s, b, i, out);
	kept = s->offer.ref == 0;
	s->offer.ref = 0;
	return kept;
}

uint32_t
__crpc_kv_quick_serve_any(
	struct kv_store *s, struct kv_slot *slot, const struct kv_quick *q, void *resp)
{
	const uint8_t *value = q->value;
	uint32_t len = q->len;

	if (q->put != 0) {
		if (len < CRPC_KV_VALUE_MIN || len > s->value_max)
			return 0;
		slot_write(s, slot, value, len);
		kv_resp_write(resp, CRPC_KV_OK, CRPC_KV_PUT, 0, s->q.version);
		return (uint32_t)sizeof(struct kv_resp_hdr);
	}
	if (len != 0)
		return 0;
	kv_resp_write(resp, CRPC_KV_OK, CRPC_KV_GET, slot->len, slot->version);
	memcpy((uint8_t *)resp + sizeof(struct kv_resp_hdr), slot + 1, slot->len);
	return (uint32_t)sizeof(struct kv_resp_hdr) + slot->len;
}

void
__crpc_kv_quick_count(struct kv_store *s, uint32_t n, uint32_t puts)
{
	s->stat[CRPC_KV_STAT_GETS] += n - puts;
	s->stat[CRPC_KV_STAT_PUTS] += puts;
}

void
__crpc_kv_store_tick(struct kv_store *s, uint64_t now_ns)
{
	uint32_t slots = SWEEP_SLOTS;

	if (s->tick0_ns == 0)
		s->tick0_ns = now_ns;
	s->now_ms = (uint32_t)((now_ns - s->tick0_ns) / 1000000) + 1;
	s->room_slots = ROOM_SLOTS_TICK;
	while (sweep(s, &slots))
		;
}

void
__crpc_kv_store_copying(struct kv_store *s, bool copying)
{
	s->copying = copying;
	if (copying)
		memset(s->young, 0, (s->entries / 64 + 1) * sizeof(*s->young));
}

bool
__crpc_kv_store_young(const struct kv_store *s, uint32_t at)
{
	return at < s->entries && (s->young[at / 64] >> at % 64 & 1) != 0;
}

int
__crpc_kv_store_slot(const struct kv_store *s, uint32_t at, struct kv_item *item)
{
	struct kv_slot *slot = slot_at(s, (int32_t)at);
	void *key;

	if (at >= s->entries)
		return -ENOENT;
	/* A place without a key has no value, so the table is not asked for what stands there. */
	if (slot->len == 0 || has_ended(s, slot) ||
		rte_hash_get_key_with_position(s->hash, (int32_t)at, &key) != 0)
		return 0;
	*item = (struct kv_item){
		.key = key,
		.value = value_at(slot),
		.len = slot->len,
		.version = slot->version,
		.ttl_ms = slot->end_ms == 0 ? 0 : slot->end_ms - s->now_ms,
	};
	return 1;
}

/* Add a key, or replace its value. @return its place; -ENOSPC: nothing has changed. */
static int32_t
key_load(struct kv_store *s, const void *key, const void *value, uint32_t len)
{
	bool was_there = table_lookup(s, key) >= 0;
	int32_t pos = len > s->value_max ? -1 : key_add(s, key);

	if (pos < 0)
		return -ENOSPC;
	if (slot_replace(s, slot_at(s, pos), value, len))
		return pos;
	if (!was_there)
		key_remove(s, key, kv_hash(key, s->key_size), pos);
	return -ENOSPC;
}

int
__crpc_kv_store_restore(struct kv_store *s, const struct kv_item *item)
{
	int32_t pos;

	if (item->ttl_ms > CRPC_KV_TTL_MAX_MS || table_lookup(s, item->key) >= 0)
		return -EINVAL;
	pos = key_load(s, item->key, item->value, item->len);
	if (pos < 0)
		return pos;
	life_write(s, slot_at(s, pos), item->ttl_ms);
	slot_at(s, pos)->version = item->version;
	__crpc_kv_store_version_raise(s, item->version);
	return 0;
}

uint64_t
__crpc_kv_store_version(const struct kv_store *s)
{
	return s->q.version;
}

void
__crpc_kv_store_version_raise(struct kv_store *s, uint64_t version)
{
	s->q.version = crpc_max(s->q.version, version);
}

int
__crpc_kv_store_load(struct kv_store *s, const void *key, const void *value, uint32_t len)
{
	return key_load(s, key, value, len) < 0 ? -ENOSPC : 0;
}

void *
__crpc_kv_store_memory(const struct kv_store *s)
{
	return s->slots;
}

uint32_t
__crpc_kv_store_count(const struct kv_store *s)
{
	int32_t n = rte_hash_count(s->hash);

	return n < 0 ? 0 : (uint32_t)n;
}

const uint64_t *
__crpc_kv_store_stats(const struct kv_store *s)
{
	return s->stat;
}
