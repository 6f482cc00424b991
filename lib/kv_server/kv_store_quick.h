/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_STORE_QUICK_H
#define KV_STORE_QUICK_H

/**
 * @file
 * The short way through the store, inline: a plain get or put of an 8-byte key that was found here
 * lately, from its message straight into its answer.
 *
 *     kv_quick_read(&q, msg, len)             a plain get or put? Its bytes are loaded once
 *     slot = kv_quick_find(s, q.key, hash)    NULL: ask by a batch
 *     len = kv_quick_serve(s, slot, &q, resp) 0: likewise
 *     __crpc_kv_quick_count(s, n, puts)              of some of them
 *
 * Only where nothing waits in a batch, or their order would change. Belongs to the store's thread.
 *
 * Half of an even load's operations are puts, in no order that could be predicted, so with values
 * of 8 bytes nothing branches on what an operation is.
 */

#include "kv_store.h"

/** Head of a plain get with a key of 8 bytes. */
#define KV_QUICK_GET (CRPC_KV_GET | UINT64_C(8) << 16)

/** kv_hash() of a key of 8 bytes. */
static inline uint32_t
kv_hash8(uint64_t key)
{
	uint64_t h = (8 ^ key) * UINT64_C(0xff51afd7ed558ccd);

	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return (uint32_t)(h >> 32);
}

/** A value in its place. The value follows. */
struct kv_slot {
	uint64_t version;
	uint32_t len;
	uint32_t end_ms; /**< When its life ends; 0: never. */
};

/**
 * Where a key was found last, in a table that a key's hash points into: for 8-byte keys a look-up
 * is then one comparison instead of a walk of buckets, signatures and keys, 20 instructions instead
 * of 130. Only what rte_hash would say stands here: a key that leaves it leaves this too.
 */
struct kv_near {
	uint64_t key;
	struct kv_slot *slot; /**< NULL: nothing stands here. */
};

/** What the short way touches of a store; struct kv_store begins with it. */
struct kv_quick_store {
	struct kv_near *near; /**< Without a table: one entry where nothing stands. */
	uint64_t version;     /**< The newest given out. */
	uint32_t near_mask;
	uint32_t mortal; /**< Keys with an end of their life; with an arena one more. */
};

_Static_assert(sizeof(struct kv_quick_store) <= CRPC_CACHE_LINE, "one line");

/** A plain get or put, as it was when it was read. */
struct kv_quick {
	uint64_t key;
	const uint8_t *value; /**< In the message. */
	uint32_t len;         /**< Its bytes; of a get 0. */
	uint32_t put;         /**< 1 or 0. */
};

/** Take a message apart. @return false: it is not that simple. */
static inline bool
kv_quick_read(struct kv_quick *q, const uint8_t *msg, uint32_t len)
{
	uint64_t head;

	if (crpc_unlikely(len < sizeof(head) + sizeof(q->key)))
		return false;
	memcpy(&head, msg, sizeof(head));
	memcpy(&q->key, msg + sizeof(head), sizeof(q->key));
	q->value = msg + sizeof(head) + sizeof(q->key);
	q->len = (uint32_t)(head >> 32);
	q->put = (uint32_t)head - (uint32_t)KV_QUICK_GET;
	return q->put <= 1 && q->len == len - sizeof(head) - sizeof(q->key);
}

/** Both values are words: that which stands there and, of a put, that which comes. */
static inline bool
kv_quick_is_word(const struct kv_slot *slot, const struct kv_quick *q)
{
	return slot->len == 8 && q->len == q->put * 8;
}

/**
 * kv_quick_find() where another key stands in the table, or none. One key is asked for so, and not
 * the rest of its burst with it.
 */
struct kv_slot *__crpc_kv_quick_far(struct kv_store *s, uint64_t key, uint32_t hash);

/** The place of the key, whose kv_hash() is @p hash; NULL: it is not that simple. */
static inline struct kv_slot *
kv_quick_find(struct kv_store *store, uint64_t key, uint32_t hash)
{
	const struct kv_quick_store *s = (const void *)store;
	const struct kv_near *near = &s->near[hash & s->near_mask];

	if (crpc_unlikely(near->key != key || near->slot == NULL || s->mortal != 0))
		return __crpc_kv_quick_far(store, key, hash);
	return near->slot;
}

/** Bytes that kv_quick_serve_word() writes. */
#define KV_QUICK_ROOM (sizeof(struct kv_resp_hdr) + 8)

/** kv_quick_serve() where kv_quick_is_word(). */
static inline uint32_t
kv_quick_serve_word(
	struct kv_store *store, struct kv_slot *slot, const struct kv_quick *q, void *resp)
{
	struct kv_quick_store *s = (void *)store;
	uint64_t version = slot->version, word, put = q->put, len = 8 - put * 8;
	uintptr_t from = (uintptr_t)(slot + 1);

	/* Choices by arithmetic, which no compiler makes branches. */
	from += ((uintptr_t)q->value - from) & -put;
	memcpy(&word, (const void *)from, sizeof(word));
	s->version += put;
	version += (s->version - version) & -put;
	slot->version = version;
	memcpy(slot + 1, &word, sizeof(word));
	kv_resp_write(resp, CRPC_KV_OK, CRPC_KV_GET + q->put, len, version);
	/* Bytes behind the answer to a put are not read. */
	memcpy((uint8_t *)resp + sizeof(struct kv_resp_hdr), &word, sizeof(word));
	return (uint32_t)(sizeof(struct kv_resp_hdr) + len);
}

/** kv_quick_serve() for values of any size. */
uint32_t __crpc_kv_quick_serve_any(
	struct kv_store *s, struct kv_slot *slot, const struct kv_quick *q, void *resp);

/**
 * Serve it.
 *
 * @param resp
 *   Filled with the answer. May lie over the message.
 * @return
 *   Bytes of the answer; 0: it is not that simple, nothing was done.
 */
static inline uint32_t
kv_quick_serve(struct kv_store *s, struct kv_slot *slot, const struct kv_quick *q, void *resp)
{
	if (crpc_likely(kv_quick_is_word(slot, q)))
		return kv_quick_serve_word(s, slot, q, resp);
	return __crpc_kv_quick_serve_any(s, slot, q, resp);
}

/** Count operations that were served like this. @param puts: of the n. */
void __crpc_kv_quick_count(struct kv_store *s, uint32_t n, uint32_t puts);

#endif
