/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_STORE_H
#define KV_STORE_H

/**
 * @file
 * The keys that one daemon owns: rte_hash from key to slot, and an array of slots.
 *
 *     kv_batch_reset(b)                                        gather up to 64 requests:
 *     hash = kv_batch_key(b, &req);  kv_batch_add(b, &req, hash) ...
 *     lookup(s, b)                                             one bulk lookup, slots prefetched
 *     for each: exec(s, b, i, &served)                         in order; use it before the next
 *
 * A batch hides the misses of a lookup behind each other: buckets, keys and slots of all its
 * requests are fetched before the first is served. Values have up to value_max bytes, and all keys
 * the same size.
 *
 * What most requests are goes a shorter way: store_quick.h.
 *
 * Places in the hash follow from a secret of the store, so a client cannot choose keys that slow
 * the look-ups of others down.
 *
 * A put or a delete can depend on the version that its key has (compare-and-swap). A value can
 * have an end of its life; __crpc_kv_store_tick() passes the time to the store and removes ended
 * keys, some at a time. A key whose life has ended is not found, whether it was taken out or not. A
 * put that finds no room looks for such keys itself, at some hundred slots at most.
 *
 * All memory is taken at creation, from the EAL; `capacity` keys fit, and a put of one more is
 * refused. Values above CRPC_KV_VALUE_INLINE are the exception: each lies in a block of an arena,
 * which is the very one that the put came in, where it can be; a put for which there is no room is
 * refused, and what was there stays. Belongs to one thread.
 */

#include <rte_hash.h>

#include "crpc_arena.h"
#include "crpc_ipc.h"
#include "crpc_kv_server.h"

#define KV_BATCH_MAX CRPC_BURST_MAX
_Static_assert(KV_BATCH_MAX <= RTE_HASH_LOOKUP_BULK_MAX, "one bulk lookup takes a batch");

struct kv_store;

/** Requests gathered for one lookup. About 8 KiB. */
struct kv_batch {
	uint32_t n;
	bool moved; /**< A key came or went since the lookup: its positions are no longer sure. */
	struct kv_req req[KV_BATCH_MAX];
	hash_sig_t hash[KV_BATCH_MAX];
	int32_t pos[KV_BATCH_MAX];
	const void *key_ptr[KV_BATCH_MAX];
	/** Copies: the client can still write. */
	uint8_t key[KV_BATCH_MAX][CRPC_KV_KEY_MAX] crpc_aligned(8);
};

/**
 * What came of a request. The value points into the store: copy it before the next exec. Whole
 * words, because a narrow field read back as part of a wider one waits for the store buffer.
 */
struct kv_served {
	uint32_t status;
	uint32_t op;
	uint64_t value_len;
	uint64_t version;
	const void *value;
};

/**
 * Make a store.
 *
 * @param conf
 *   Of its server, which has checked it: capacity, key_size, value_max, block_bytes.
 * @param name
 *   Unique in this process.
 * @param socket
 *   NUMA node, or SOCKET_ID_ANY.
 * @param arena
 *   Where values above CRPC_KV_VALUE_INLINE lie, by the daemon's own membership; NULL: none.
 * @return
 *   The store, or NULL with errno: ENOMEM (the EAL has too little memory).
 */
struct kv_store *__crpc_kv_store_create(const struct crpc_kv_server_conf *conf, const char *name,
	int socket, struct crpc_arena_cache *arena);

void __crpc_kv_store_free(struct kv_store *s);

static inline void
kv_batch_reset(struct kv_batch *b)
{
	b->n = 0;
	b->moved = false;
}

/**
 * Copy a request's key, of the store's size, to where kv_batch_add() wants it.
 *
 * @return
 *   kv_hash() of the copy, which the sender cannot change.
 */
static inline uint32_t
kv_batch_key(struct kv_batch *b, const struct kv_req *req)
{
	uint8_t *key = b->key[b->n];

	if (req->key_len == 8)
		memcpy(key, req->key, 8);
	else
		memcpy(key, req->key, req->key_len);
	return kv_hash(key, req->key_len);
}

/** Add a request after kv_batch_key() of it, which gave @p hash. @return its index. */
static inline uint32_t
kv_batch_add(struct kv_batch *b, const struct kv_req *req, uint32_t hash)
{
	uint32_t i = b->n++;

	memcpy(&b->req[i], req, offsetof(struct kv_req, extras));
	if (crpc_unlikely(req->flags != 0))
		b->req[i].extras = req->extras;
	b->hash[i] = hash;
	b->key_ptr[i] = b->key[i];
	return i;
}

/** Find all keys of the batch. */
void __crpc_kv_store_lookup(struct kv_store *s, struct kv_batch *b);

/** Serve request @p i of the batch. */
void __crpc_kv_store_exec(
	struct kv_store *s, struct kv_batch *b, uint32_t i, struct kv_served *out);

/**
 * Serve request @p i, which came in a block of the store's own member.
 *
 * @return
 *   True: its value is stored in that block, which is the store's from now on.
 */
bool __crpc_kv_store_exec_block(struct kv_store *s, struct kv_batch *b, uint32_t i,
	struct kv_served *out, const struct crpc_ipc_block *block);

/** Put one key, outside of any batch: to load the store. @return 0 or -ENOSPC. */
int __crpc_kv_store_load(struct kv_store *s, const void *key, const void *value, uint32_t len);

/**
 * Pass the time, and remove some of the keys whose life has ended; every millisecond or two.
 *
 * @param now_ns
 *   Of a monotonic clock.
 */
void __crpc_kv_store_tick(struct kv_store *s, uint64_t now_ns);

/** One key as __crpc_kv_store_slot() gives it. */
struct kv_item {
	const void *key;
	const void *value;
	uint32_t len;
	uint32_t ttl_ms; /**< That are left; 0: no end. */
	uint64_t version;
};

/**
 * The key in place number @p at; a key keeps its place as long as it exists.
 *
 * @return
 *   1, 0: there is none, or -ENOENT: there is no such place, nor any behind it.
 */
int __crpc_kv_store_slot(const struct kv_store *s, uint32_t at, struct kv_item *item);

/**
 * A copy begins, or has ended: from then on note which places are filled.
 *
 * A key that is deleted and put again has another place, so a copy in several parts would have it
 * twice, and more keys than the store ever had. It leaves out what is young: each key is then as it
 * was at a moment of the copy.
 */
void __crpc_kv_store_copying(struct kv_store *s, bool copying);

/** Whether place @p at was filled since the copy began. */
bool __crpc_kv_store_young(const struct kv_store *s, uint32_t at);

/** Put a key back as it was, into a store that does not have it. @return 0, -ENOSPC or -EINVAL. */
int __crpc_kv_store_restore(struct kv_store *s, const struct kv_item *item);

/** The newest version that was given out. */
uint64_t __crpc_kv_store_version(const struct kv_store *s);

/** Give out none below this. */
void __crpc_kv_store_version_raise(struct kv_store *s, uint64_t version);

/** Where the values lie. */
void *__crpc_kv_store_memory(const struct kv_store *s);

/** Keys now. */
uint32_t __crpc_kv_store_count(const struct kv_store *s);

/** What it counts, as enum kv_stat numbers it; the rest is 0. */
const uint64_t *__crpc_kv_store_stats(const struct kv_store *s);

#endif
