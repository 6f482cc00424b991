/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_VERIFY_H
#define APP_VERIFY_H

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
#include "app_sizes.h"

#define APP_WORD_KEY_BITS    24
#define APP_WORD_WRITER_BITS 16
#define APP_WORD_SEQ_BITS    24
/** Keys of all ranks at most: each has a tag of its own in the value. */
#define APP_KEYS_MAX (1u << APP_WORD_KEY_BITS)
/** Writer ids, 0 is who loads the stores. */
#define APP_WRITERS_MAX (1u << APP_WORD_WRITER_BITS)

/** What went wrong with an answer. */
enum app_fault {
	APP_FAULT_NONE,
	APP_FAULT_MALFORMED, /**< The message itself. */
	APP_FAULT_STATUS,    /**< An answer that the request cannot have. */
	APP_FAULT_LENGTH,    /**< A value of another size. */
	APP_FAULT_FOREIGN,   /**< The value of another key. */
	APP_FAULT_TORN,      /**< Bytes of two writes. */
	APP_FAULT_WRITER,    /**< A writer that does not exist. */
	APP_FAULT_STALE,     /**< An older version than seen before. */
	APP_FAULT_FORKED,    /**< One version, two values. */
	APP_FAULT_INVENTED,  /**< A value of ours that we have not written. */
	APP_FAULT_MISSING,   /**< Not found, though no client deletes. */
	APP_FAULT_LOST,      /**< A call without an answer. */
	APP_FAULTS,
};

/** What a client saw last of one key. */
struct app_seen {
	uint64_t
		/** Of what it saw; of an absent key, the version it can come back with. */
		version;
	uint64_t word; /**< 0: absent, or never seen. */
};

/** Memory of one client. */
struct app_verify {
	struct app_seen *seen; /**< One per key of all ranks. */
	uint32_t keys;
	uint32_t value_size;
	const struct app_sizes *sizes; /**< Of values; NULL: all have value_size. */
	uint32_t writer;               /**< Ours. */
	uint32_t writers;              /**< Ids are below this. */
	uint32_t seq;                  /**< Of our newest put. */
	bool may_miss;                 /**< Somebody deletes: not found is an answer. */
	bool may_refuse; /**< The store may be full: no space is an answer to a put. */
	bool restored;   /**< Words of an earlier run, or holder of our id, may stand there. */
	uint64_t faults[APP_FAULTS];
};

/** The first word of a value. */
static inline uint64_t
app_word(uint32_t key, uint32_t writer, uint32_t seq)
{
	return (uint64_t)key << (APP_WORD_WRITER_BITS + APP_WORD_SEQ_BITS) |
		(uint64_t)writer << APP_WORD_SEQ_BITS | (seq & ((1u << APP_WORD_SEQ_BITS) - 1));
}

static inline uint32_t
app_word_key(uint64_t word)
{
	return (uint32_t)(word >> (APP_WORD_WRITER_BITS + APP_WORD_SEQ_BITS));
}

static inline uint32_t
app_word_writer(uint64_t word)
{
	return (uint32_t)(word >> APP_WORD_SEQ_BITS) & (APP_WRITERS_MAX - 1);
}

static inline uint32_t
app_word_seq(uint64_t word)
{
	return (uint32_t)word & ((1u << APP_WORD_SEQ_BITS) - 1);
}

/** The i-th word of the pattern behind a first word. */
static inline uint64_t
app_pattern(uint64_t word, uint32_t i)
{
	uint64_t z = word + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ (z >> 32);
}

/** Write the bytes behind the first word, for app_value_fill(). */
void app_value_fill_rest(uint8_t *value, uint32_t len, uint64_t word);

/** Write a value of @p len bytes, 8 at least. */
static inline void
app_value_fill(void *value, uint32_t len, uint64_t word)
{
	memcpy(value, &word, 8);
	if (len > 8)
		app_value_fill_rest((uint8_t *)value + 8, len - 8, word);
}

/** True if the bytes behind the first word belong to it, for app_value_whole(). */
bool app_value_whole_rest(const uint8_t *value, uint32_t len, uint64_t word);

/** True if all bytes belong to the first word, which is returned too. */
static inline bool
app_value_whole(const void *value, uint32_t len, uint64_t *word)
{
	if (len < 8)
		return false;
	memcpy(word, value, 8);
	return len == 8 || app_value_whole_rest((const uint8_t *)value + 8, len - 8, *word);
}

/**
 * Prepare a client's memory.
 *
 * @return
 *   0 or -ENOMEM.
 */
int app_verify_init(struct app_verify *h, uint32_t keys, uint32_t value_size, uint32_t writer,
	uint32_t writers, bool may_miss);

void app_verify_fini(struct app_verify *h);

/** The first word of our next put to a key, which is made now if @p put. */
static inline uint64_t
app_verify_put_if(struct app_verify *h, uint32_t key, bool put)
{
	h->seq += put;
	return app_word(key, h->writer, h->seq);
}

/** What a call must not be older than; ask before any completion that comes after the call. */
static inline uint64_t
app_verify_floor(const struct app_verify *h, uint32_t key)
{
	return h->seen[key].version;
}

/** One answered call, as the check needs it. */
struct app_answer {
	uint32_t key;
	uint8_t op;       /**< enum kv_op of the request. */
	uint64_t floor;   /**< app_verify_floor() before the call. */
	uint64_t word;    /**< CRPC_KV_PUT: what was written. */
	bool conditional; /**< CRPC_KV_PUT: only if the key had some version. */
	struct kv_resp_hdr hdr;
	const uint8_t *value;
};

/**
 * Hold an answer against the memory, and remember it.
 *
 * @return
 *   APP_FAULT_NONE, or the fault, which is counted.
 */
enum app_fault app_verify_check(struct app_verify *h, const struct app_answer *a);

/**
 * app_verify_check() of what nearly all answers are: to a get or put, with a value of one word, and
 * right. What was asked, who wrote it and whether it is newer cannot be predicted, so nothing
 * branches on that, which saves half of the time of a check.
 *
 * @param key, op, floor, put_word
 *   As in struct app_answer.
 * @return
 *   False: it is another one. Nothing was remembered.
 */
static inline bool
app_verify_word(struct app_verify *h, uint32_t key, uint32_t op, uint64_t floor,
	const uint64_t *put_word, struct kv_resp_hdr hdr, const uint8_t *value)
{
	uint64_t put = op - (uint64_t)CRPC_KV_GET, version = hdr.version, want[2], head, newer,
		 word;
	struct app_seen *seen = &h->seen[key];
	uintptr_t from = (uintptr_t)value;
	bool foreign, unknown, invented, forked;
	uint32_t ahead;

	memcpy(&head, &hdr, sizeof(head));
	kv_resp_write(want, CRPC_KV_OK, op, 8 - put * 8, version);
	if (crpc_unlikely(h->value_size != 8 || put > 1 || head != want[0] || version < floor))
		return false;
	from += ((uintptr_t)put_word - from) & -put;
	memcpy(&word, (const void *)from, sizeof(word));
	/* Our next put or one of many behind it, in the arithmetic of 24 bits. */
	ahead = (app_word_seq(word) - h->seq - 1) & ((1u << APP_WORD_SEQ_BITS) - 1);
	invented = (app_word_writer(word) == h->writer) &
		(ahead < (1u << (APP_WORD_SEQ_BITS - 1)) - 1);
	forked = (version == seen->version) & (seen->word != 0) & (word != seen->word);
	foreign = app_word_key(word) != key;
	unknown = app_word_writer(word) >= h->writers;
	if (crpc_unlikely(foreign | unknown | (word == 0) | invented | forked))
		return false;
	newer = version >= seen->version;
	seen->version += (version - seen->version) & -newer;
	seen->word += (word - seen->word) & -newer;
	return true;
}

/** Count a fault that was found elsewhere. */
static inline enum app_fault
app_verify_fault(struct app_verify *h, enum app_fault fault)
{
	h->faults[fault]++;
	return fault;
}

/** A fault in words. */
const char *app_fault_name(enum app_fault fault);

#endif
