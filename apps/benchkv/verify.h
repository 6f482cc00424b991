/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_VERIFY_H
#define KV_VERIFY_H

/**
 * @file
 * Proof that every answer is right: what a value carries, and what one client remembers.
 *
 * A value's first word names its key (24 bits), its writer (16 bits) and the writer's sequence
 * number (24 bits); all further bytes are a pattern made from that word. So a torn value, whose
 * bytes come from two writes, shows at any size, and a foreign key's value shows by its first word.
 *
 * A client remembers of each key the newest version it has seen completed, and the first word that
 * came with it. Against that memory it holds every answer:
 *
 *   - a version older than what was seen before the call was made: stale;
 *   - the seen version with another word, or a version that already named another word: forked;
 *   - a word of the client's own that it has not sent yet: invented.
 *
 * Versions come from the key's owner and only grow, so with these rules the history that a client
 * sees of one key is that of a single copy.
 *
 * Belongs to one thread.
 */

#include "crpc_kv_proto.h"
#include "sizes.h"

#define KV_WORD_KEY_BITS    24
#define KV_WORD_WRITER_BITS 16
#define KV_WORD_SEQ_BITS    24
/** Keys of all ranks at most: each has a tag of its own in the value. */
#define KV_KEYS_MAX (1u << KV_WORD_KEY_BITS)
/** Writer ids, 0 is who loads the stores. */
#define KV_WRITERS_MAX (1u << KV_WORD_WRITER_BITS)

/** What went wrong with an answer. */
enum kv_fault {
	KV_FAULT_NONE,
	KV_FAULT_MALFORMED, /**< The message itself. */
	KV_FAULT_STATUS,    /**< An answer that the request cannot have. */
	KV_FAULT_LENGTH,    /**< A value of another size. */
	KV_FAULT_FOREIGN,   /**< The value of another key. */
	KV_FAULT_TORN,      /**< Bytes of two writes. */
	KV_FAULT_WRITER,    /**< A writer that does not exist. */
	KV_FAULT_STALE,     /**< An older version than seen before. */
	KV_FAULT_FORKED,    /**< One version, two values. */
	KV_FAULT_INVENTED,  /**< A value of ours that we have not written. */
	KV_FAULT_MISSING,   /**< Not found, though no client deletes. */
	KV_FAULT_LOST,      /**< A call without an answer. */
	KV_FAULTS,
};

/** What a client saw last of one key. */
struct kv_seen {
	uint64_t
		/** Of what it saw; of an absent key, the version it can come back with. */
		version;
	uint64_t word;   /**< 0: absent, or never seen. */
};

/** Memory of one client. */
struct kv_history {
	struct kv_seen *seen; /**< One per key of all ranks. */
	uint32_t keys;
	uint32_t value_size;
	const struct kv_sizes *sizes; /**< Of values; NULL: all have value_size. */
	uint32_t writer;  /**< Ours. */
	uint32_t writers; /**< Ids are below this. */
	uint32_t seq;     /**< Of our newest put. */
	bool may_miss;    /**< Somebody deletes: not found is an answer. */
	bool may_refuse;  /**< The store may be full: no space is an answer to a put. */
	bool restored; /**< Words of an earlier run, or holder of our id, may stand there. */
	uint64_t faults[KV_FAULTS];
};

/** The first word of a value. */
static inline uint64_t
kv_word(uint32_t key, uint32_t writer, uint32_t seq)
{
	return (uint64_t)key << (KV_WORD_WRITER_BITS + KV_WORD_SEQ_BITS) |
		(uint64_t)writer << KV_WORD_SEQ_BITS | (seq & ((1u << KV_WORD_SEQ_BITS) - 1));
}

static inline uint32_t
kv_word_key(uint64_t word)
{
	return (uint32_t)(word >> (KV_WORD_WRITER_BITS + KV_WORD_SEQ_BITS));
}

static inline uint32_t
kv_word_writer(uint64_t word)
{
	return (uint32_t)(word >> KV_WORD_SEQ_BITS) & (KV_WRITERS_MAX - 1);
}

static inline uint32_t
kv_word_seq(uint64_t word)
{
	return (uint32_t)word & ((1u << KV_WORD_SEQ_BITS) - 1);
}

/** The i-th word of the pattern behind a first word. */
static inline uint64_t
kv_pattern(uint64_t word, uint32_t i)
{
	uint64_t z = word + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ (z >> 32);
}

/** Write the bytes behind the first word, for kv_value_fill(). */
void kv_value_fill_rest(uint8_t *value, uint32_t len, uint64_t word);

/** Write a value of @p len bytes, 8 at least. */
static inline void
kv_value_fill(void *value, uint32_t len, uint64_t word)
{
	memcpy(value, &word, 8);
	if (len > 8)
		kv_value_fill_rest((uint8_t *)value + 8, len - 8, word);
}

/** True if the bytes behind the first word belong to it, for kv_value_whole(). */
bool kv_value_whole_rest(const uint8_t *value, uint32_t len, uint64_t word);

/** True if all bytes belong to the first word, which is returned too. */
static inline bool
kv_value_whole(const void *value, uint32_t len, uint64_t *word)
{
	if (len < 8)
		return false;
	memcpy(word, value, 8);
	return len == 8 || kv_value_whole_rest((const uint8_t *)value + 8, len - 8, *word);
}

/**
 * Prepare a client's memory.
 *
 * @return
 *   0 or -ENOMEM.
 */
int kv_history_init(struct kv_history *h, uint32_t keys, uint32_t value_size, uint32_t writer,
	uint32_t writers, bool may_miss);

void kv_history_fini(struct kv_history *h);

/** The first word of our next put to a key, which is made now if @p put. */
static inline uint64_t
kv_history_put_if(struct kv_history *h, uint32_t key, bool put)
{
	h->seq += put;
	return kv_word(key, h->writer, h->seq);
}

/** The first word of our next put to a key. */
static inline uint64_t
kv_history_put(struct kv_history *h, uint32_t key)
{
	return kv_history_put_if(h, key, true);
}

/** Fetch what kv_history_floor() and the check will read. */
static inline void
kv_history_prefetch(const struct kv_history *h, uint32_t key)
{
	__builtin_prefetch(&h->seen[key], 1, 3);
}

/** What a call must not be older than; ask before any completion that comes after the call. */
static inline uint64_t
kv_history_floor(const struct kv_history *h, uint32_t key)
{
	return h->seen[key].version;
}

/** One answered call, as the check needs it. */
struct kv_answer {
	uint32_t key;
	uint8_t op;     /**< enum kv_op of the request. */
	uint64_t floor; /**< kv_history_floor() before the call. */
	uint64_t word;  /**< KV_PUT: what was written. */
	bool conditional; /**< KV_PUT: only if the key had some version. */
	struct kv_resp_hdr hdr;
	const uint8_t *value;
};

/**
 * Hold an answer against the memory, and remember it.
 *
 * @return
 *   KV_FAULT_NONE, or the fault, which is counted.
 */
enum kv_fault kv_history_check(struct kv_history *h, const struct kv_answer *a);

/** Count a fault that was found elsewhere. */
static inline enum kv_fault
kv_history_fault(struct kv_history *h, enum kv_fault fault)
{
	h->faults[fault]++;
	return fault;
}

/** A fault in words. */
const char *kv_fault_name(enum kv_fault fault);

#endif
