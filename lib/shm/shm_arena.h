/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHM_ARENA_H
#define SHM_ARENA_H

/**
 * @file
 * The bytes of an arena, layout version 1 (doc/protocol/arena.md), and what its files share.
 *
 *     0           struct arena_header
 *     member_off  struct arena_member [max_members + 1]   place 0 is not used
 *     unit_off    u64 [units]        what each unit of 64 KiB is
 *     word_off    u64 [units][16]    state words of blocks of 4 KiB and more
 *     hint_off    u64 bitmap per class: this span may have free blocks
 *     data_off    the units; state words of smaller blocks stand at the start of their unit
 *
 * Life of a unit. Only a member that has turned all units of a run from FREE to CLAIM, each by
 * compare-and-swap, may store into them.
 *
 *     FREE --cas--> CLAIM m,d --store--> HEAD class     d == 0, published when its words are set
 *      ^              |  ^    `--store--> TAIL d        d > 0, after its head
 *      `----store-----'  `---- store ---- HEAD, TAIL    m has every block of the span cached
 *
 * A claim keeps the distance d to its head. So of a span that its member left half made, the tails
 * are known: behind a head that is published they become tails, else free. When a span is taken
 * apart, the tails go first and the head goes last, and then the same rule mends it.
 */

#include <pthread.h>

#include "crpc_arena.h"
#include "crpc_owner.h"
#include "crpc_atomic.h"
#include "crpc_config.h"
#include "crpc_util.h"

/** "CRPCARN1" in memory, on a little-endian machine. */
#define ARENA_MAGIC   UINT64_C(0x314e524143505243)
#define ARENA_VERSION 1

#define ARENA_ALIGN      4096u
#define ARENA_GRAIN_LOG2 6u  /**< Blocks start at, and sizes are, multiples of 64 bytes. */
#define ARENA_UNIT_LOG2  16u /**< 64 KiB. */
#define ARENA_UNIT       (1u << ARENA_UNIT_LOG2)
#define ARENA_CUT_MAX    (ARENA_UNIT / 2) /**< Larger blocks are whole units. */
#define ARENA_WORDS      16u              /**< State words kept apart, per unit. */
#define ARENA_OUTSIDE    (ARENA_UNIT / ARENA_WORDS) /**< From here on words are kept apart. */
#define ARENA_LEN_MAX    (UINT64_C(1) << 38)        /**< A ref has 32 bits for the grain. */
/** The last lock's number has 32 bits: half a MiB is more than the places of an arena take. */
#define ARENA_OFF_MAX    ((UINT64_C(1) << 37) - (UINT64_C(1) << 19))
#define ARENA_RAW_MAX    96u /**< Sizes, four per power of two. */
#define ARENA_BIN_MAX    64u /**< Blocks of one class in a cache. */

/** Read-only once formatted. All follows from len, max_members and max_block. */
struct arena_header {
	_Atomic uint64_t magic; /**< Stored last. */
	uint32_t version;
	uint32_t header_size;
	uint64_t len;
	uint64_t max_block;
	uint32_t max_members;
	uint32_t unit_size;
	uint32_t units;
	uint32_t classes;
	uint64_t member_off;
	uint64_t unit_off;
	uint64_t word_off;
	uint64_t hint_off;
	uint64_t hint_stride; /**< Bytes of one class's bitmap. */
	uint64_t data_off;
	uint8_t reserved[32]; /**< Zero. */
};

/** Anything but 0: a member joined here, and has not been reclaimed. */
enum arena_place_use {
	ARENA_PLACE_USED = 1,
	ARENA_PLACE_LEFT = 2, /**< It leaves: what is given to it now stays with its giver. */
};

/** A member's place. */
struct arena_member {
	_Atomic uint32_t used; /**< enum arena_place_use */
	_Atomic uint32_t pid;  /**< For people. */
	uint8_t guard[CRPC_CACHE_LINE - 8];
};

_Static_assert(sizeof(struct arena_header) == 128, "layout version 1");
_Static_assert(offsetof(struct arena_header, max_members) == 32, "layout version 1");
_Static_assert(offsetof(struct arena_header, member_off) == 48, "layout version 1");
_Static_assert(offsetof(struct arena_header, data_off) == 88, "layout version 1");
_Static_assert(sizeof(struct arena_member) == 64, "one lock number per place");
_Static_assert((CRPC_ARENA_MEMBERS_MAX + 3) * 64 < 1 << 19, "the last lock's number has 32 bits");
_Static_assert(CRPC_ARENA_BLOCK_MAX / ARENA_UNIT <= UINT16_MAX, "a tail's distance has 16 bits");

/*
 * A word: state in bits 0-3, owner 4-15, receiver (block) or class or distance (unit) 16-31,
 * generation 32-63. The generation of a ref stands in the same bits.
 */
typedef _Atomic uint64_t arena_word;

enum arena_unit_state {
	UNIT_FREE = 1,
	UNIT_CLAIM = 2, /**< Owner is making or unmaking a span; distance to its head. */
	UNIT_HEAD = 3,  /**< Of a span of this class. */
	UNIT_TAIL = 4,  /**< Distance to its head. */
};

enum arena_block_state {
	BLOCK_FREE = 1,
	BLOCK_CACHED = 2,    /**< In the owner's cache. */
	BLOCK_ALLOCATED = 3, /**< By the owner. */
	BLOCK_TRANSIT = 4,   /**< From the owner to the receiver. */
};

#define WORD_GEN_MASK UINT64_C(0xffffffff00000000)
#define WORD_GEN_ONE  (UINT64_C(1) << 32)
/* A free block's low half: no owner, and a value that data are unlikely to have. */
#define WORD_FREE UINT64_C(0xb10cf4e1)

static inline uint64_t
word_make(uint32_t state, uint32_t owner, uint32_t arg)
{
	return (uint64_t)state | (uint64_t)owner << 4 | (uint64_t)arg << 16;
}

static inline uint32_t
word_state(uint64_t w)
{
	return (uint32_t)w & 0xf;
}

static inline uint32_t
word_owner(uint64_t w)
{
	return (uint32_t)w >> 4 & 0xfff;
}

/** Receiver, class or distance. */
static inline uint32_t
word_arg(uint64_t w)
{
	return (uint32_t)w >> 16;
}

static inline uint64_t
word_gen(uint64_t w)
{
	return w & WORD_GEN_MASK;
}

/** Derived from the header's numbers; private, so no other process can change it. */
struct arena_class {
	uint32_t size;  /**< Bytes of a block. */
	uint32_t units; /**< Of a span. */
	uint32_t blocks;
	uint32_t first;     /**< Bytes of the span before its first block. */
	uint64_t word_base; /**< Offset of the words of unit 0. */
	uint32_t word_log2; /**< Bytes from the words of one unit to those of the next. */
	uint32_t grains;    /**< Of a block that is cut; 0 for whole units. */
	uint32_t recip;     /**< x / grains == x * recip >> 20 for x < 1024. */
};

/** The numbers of a layout. */
struct arena_layout {
	struct arena_header h;
	uint32_t raws;
	uint8_t raw_class[ARENA_RAW_MAX];
	struct arena_class cls[ARENA_RAW_MAX];
};

/** A pass of crpc_arena_reclaim() that may span several calls. */
struct arena_pass {
	uint32_t member; /**< Next place to look at; 0: no pass. */
	uint32_t unit;   /**< Next unit. */
	uint32_t dead;   /**< Members whose locks are held. */
	pid_t pid;       /**< Whose pass it is: a child after fork() has none of the locks. */
	struct crpc_shm_lock **lock; /**< [max_members + 1] */
	uint64_t set[(CRPC_ARENA_MEMBERS_MAX + 64) / 64];
};

struct crpc_arena {
	uint8_t *base;
	arena_word *unit;
	uint64_t data_off;
	uint64_t data_len;
	uint64_t max_block;
	uint32_t units;
	uint32_t hint_words; /**< Per class. */
	struct arena_layout l;
	struct arena_member *member;
	struct crpc_shm *seg;
	uint64_t off;       /**< In the segment. */
	uint32_t lock_base; /**< Lock of member i: lock_base + i. */
	pthread_mutex_t mutex; /**< Of what is not datapath. */
	struct arena_pass pass;
};

/** A block in a cache. */
struct arena_entry {
	uint64_t ref;
	arena_word *word;
};

struct arena_bin {
	struct arena_entry *e;
	uint32_t n;
	uint32_t max; /**< 0: blocks of this class are not cached. */
	uint32_t size;
	uint32_t cursor; /**< Word of the hint map where the last search ended. */
};

struct crpc_arena_cache {
	struct crpc_arena *a;
	uint8_t *base;
	uint64_t word_cached; /**< Of this member, generation 0. */
	uint64_t word_alloc;
	uint64_t cached; /**< Bytes. */
	uint64_t cache_bytes;
	uint64_t held; /**< Bytes, those cached included. */
	uint64_t limit;
	uint32_t id;
	uint32_t unit_cursor;
	uint64_t damaged; /**< As in struct crpc_arena_cache_stats. */
	struct crpc_shm_lock *lock;
	struct crpc_owner owner; /**< Each thread joins for itself. */
	struct arena_bin bin[ARENA_RAW_MAX];
	struct arena_entry entry[ARENA_RAW_MAX][ARENA_BIN_MAX]; /**< Of the bins. */
};

/*
 * Load, or compare and swap, the state word of a block in a span that may be taken apart at any
 * moment, so that its memory is a block's data. What was loaded is believed only by
 * arena_same_span(), and a swap from it fails then. The thread sanitizer cannot know that: it does
 * not see these two; they report to it what a swap releases and acquires.
 */
#if defined(__SANITIZE_THREAD__)
uint64_t __crpc_arena_peek(const arena_word *word);
bool __crpc_arena_cas(arena_word *word, uint64_t *expected, uint64_t to);
#define arena_peek(word) __crpc_arena_peek(word)
#define arena_cas(word, expected, to) __crpc_arena_cas(word, expected, to)
#else
#define arena_peek(word) crpc_load_acquire(word)
#define arena_cas(word, expected, to) crpc_cas_acq_rel(word, expected, to)
#endif

/** Where a block is. */
struct arena_place {
	arena_word *word;
	uint64_t head; /**< Word of its unit at that time. */
	uint32_t cls;
	uint32_t unit;
};

/** Index of a size of 1 byte and more among the sizes, four per power of two. */
static inline uint32_t
arena_raw_of(uint64_t size)
{
	uint64_t g = (size - 1) >> ARENA_GRAIN_LOG2;
	uint32_t e;

	if (g < 4)
		return (uint32_t)g;
	e = 63 - (uint32_t)__builtin_clzll(g);
	return 4 * e - 4 + ((uint32_t)(g >> (e - 2)) & 3);
}

/** Offset in the arena of the block that a ref names. */
static inline uint64_t
arena_ref_off(uint64_t ref)
{
	return (uint64_t)(uint32_t)ref << ARENA_GRAIN_LOG2;
}

static inline uint64_t
arena_ref_make(uint64_t off, uint64_t gen)
{
	return gen | off >> ARENA_GRAIN_LOG2;
}

/** The unit of a ref that is known to lie in the units. */
static inline uint32_t
arena_ref_unit(const struct crpc_arena *a, uint64_t ref)
{
	return (uint32_t)((arena_ref_off(ref) - a->data_off) >> ARENA_UNIT_LOG2);
}

/** The state words of the span that starts at unit @p u. */
static inline arena_word *
arena_words(const struct crpc_arena *a, const struct arena_class *ci, uint32_t u)
{
	return (arena_word *)(void *)(a->base + ci->word_base + ((uint64_t)u << ci->word_log2));
}

/** Offset in the arena of block @p idx of the span that starts at unit @p u. */
static inline uint64_t
arena_block_off(const struct crpc_arena *a, const struct arena_class *ci, uint32_t u, uint32_t idx)
{
	return a->data_off + ((uint64_t)u << ARENA_UNIT_LOG2) + ci->first +
			(uint64_t)idx * ci->size;
}

/**
 * The class of the span that starts at unit @p u, all of it within the arena.
 *
 * @param w
 *   A copy of the unit's word.
 * @return
 *   NULL if no span starts there.
 */
static inline const struct arena_class *
arena_span(const struct crpc_arena *a, uint32_t u, uint64_t w)
{
	const struct arena_class *ci;

	if (word_state(w) != UNIT_HEAD || word_arg(w) >= a->l.h.classes)
		return NULL;
	ci = &a->l.cls[word_arg(w)];
	return ci->units <= a->units - u ? ci : NULL;
}

/**
 * Whether unit @p u is still what @p head says: to be asked after a word of the span was loaded
 * (with acquire), and before it is believed.
 *
 * A span may be taken apart, and its unit become a block's data, between two looks at it. But a
 * unit's generation grows each time, so if the unit's word is the same before and after, then what
 * was loaded in between was a state word of this span. If that word says that a member holds the
 * block, the span cannot be taken apart as long as the word stays; if it says free, the word does
 * not come back once the span is taken apart. Either way a compare-and-swap from it is safe.
 */
static inline bool
arena_same_span(const struct crpc_arena *a, uint32_t u, uint64_t head)
{
	return crpc_likely(crpc_load_relaxed(&a->unit[u]) == head);
}

/** Word of the hint map where the bit of span @p u stands. */
static inline arena_word *
arena_hint(const struct crpc_arena *a, uint32_t cls, uint32_t u)
{
	uint64_t off = a->l.h.hint_off + cls * a->l.h.hint_stride;

	return (arena_word *)(void *)(a->base + off) + u / 64;
}

static inline void
arena_hint_set(const struct crpc_arena *a, uint32_t cls, uint32_t u)
{
	/* R3: behind the stores that made blocks of the span free. */
	crpc_fetch_or_acq_rel(arena_hint(a, cls, u), UINT64_C(1) << u % 64);
}

/** Whether @p id is the number of a place that is taken. */
static inline bool
arena_place_used(const struct crpc_arena *a, uint32_t id)
{
	/* A6 pairs with R6: a place that is free has nothing in its name. */
	return id - 1 < a->l.h.max_members && crpc_load_acquire(&a->member[id].used) != 0;
}

/** Drop the locks of a pass that is not over; in a child after fork(), forget them. */
void __crpc_arena_pass_drop(struct crpc_arena *a);

/**
 * Put free blocks of class @p cls into the cache.
 *
 * @return
 *   0: at least one; -ENOMEM, -EDQUOT.
 */
int __crpc_arena_fill(struct crpc_arena_cache *c, uint32_t cls);

/** Give all cached blocks back. True: even so this member may hold no @p size bytes more. */
bool __crpc_arena_at_limit(struct crpc_arena_cache *c, uint64_t size);

/** Give the @p n oldest blocks of a bin back to the arena. */
void __crpc_arena_flush_bin(struct crpc_arena_cache *c, uint32_t cls, uint32_t n);

/** Give one block back that is cached in its word but in no bin. */
void __crpc_arena_put(struct crpc_arena_cache *c, uint32_t cls, const struct arena_entry *e);

#endif
