/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_BASE_H
#define CRPC_SPSC_BASE_H

/**
 * @file
 * What the rings of lib/spsc share: attributes, memory layout, the two ends.
 *
 * A ring is memory of the caller (heap, hugepage, shared between processes) that carries messages
 * of one fixed size from one producer to one consumer:
 *
 *     offset 0     header      written by init, read-only afterwards
 *            128   head word   written by the producer only
 *            256   tail word   written by the consumer only
 *            384   messages
 *
 * Each end keeps what it alone knows (positions, the cached position of its peer) in a struct
 * of its own, crpc_spsc_prod or crpc_spsc_cons, in private memory: no line of the ring is
 * written by both ends but, in the fastforward variant, the flags.
 *
 * Order of calls:
 *
 *     len = crpc_spsc_memsize(&attr)         how much memory
 *     crpc_spsc_init(mem, len, &attr)        once, by whoever owns the memory
 *     crpc_spsc_prod_attach(&p, mem, len)    once, by the producer
 *     crpc_spsc_cons_attach(&c, mem, len)    once, by the consumer
 *     ... enqueue, flush ... dequeue ...     (crpc_spsc_inline.h)
 *
 * Threads: a crpc_spsc_prod belongs to one thread, a crpc_spsc_cons to one, which may be the same.
 *
 * Positions run free over 32 bits and are masked on access; distances are unsigned differences.
 * What the peer wrote is bounded before use, so that a corrupted or hostile word makes a ring
 * look full or empty, and never leads outside its memory.
 */

#include <string.h>
#include <sys/types.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** How an end of a ring publishes what is valid. */
enum crpc_spsc_variant {
	CRPC_SPSC_LAMPORT,             /**< Head and tail words. */
	CRPC_SPSC_FASTFORWARD,         /**< A flag per block of seven messages. */
	CRPC_SPSC_FASTFORWARD_ALIGNED, /**< A flag per message, each on lines of its own. */
	CRPC_SPSC_ONESIDED,            /**< A generation per block of seven messages. */
	CRPC_SPSC_ONESIDED_ALIGNED,    /**< A generation per message, each on lines of its own. */
	CRPC_SPSC_VARIANTS,
	/* Not one-way rings: crpc_spsc_duplex.h. */
	CRPC_SPSC_DUPLEX = CRPC_SPSC_VARIANTS, /**< Replies overwrite requests. */
	CRPC_SPSC_DUPLEX_LONE,                 /**< The same, for one call at a time. */
	CRPC_SPSC_LAYOUTS,
};

/** Messages behind one flag word. */
#define CRPC_SPSC_PACKED  7u
#define CRPC_SPSC_ALIGNED 1u
/** Bytes of that word. */
#define CRPC_SPSC_FLAG_LEN 8u

/** What a ring is. */
struct crpc_spsc_attr {
	enum crpc_spsc_variant variant;
	uint32_t depth; /**< Messages in flight, a power of two. */
	uint32_t esize; /**< Bytes of a message: 8 to 256, a multiple of 8. */
	/**
	 * Messages that the producer may hold back between two flushes. 0 and 1: every enqueue is
	 * visible when it returns. n: the producer publishes at every n messages (lamport) or at
	 * every full block (the others), at every flush, and whenever the ring is full, so that
	 * nothing waits for room that only its own publication can make.
	 */
	uint32_t lazy;
	uint32_t start; /**< First position; a test starts near 2^32 to see the wrap. */
	/**
	 * onesided only. False: the consumer writes its position to the tail word once per
	 * quarter of the depth. True: the consumer writes nothing at all; the producer learns
	 * what was consumed by crpc_spsc_onesided_credit(), for instance by each reply.
	 */
	bool caller_credit;
};

/** First line of a ring's memory. */
struct crpc_spsc_hdr {
	uint64_t magic;
	uint32_t version;
	uint32_t variant;
	uint32_t depth;
	uint32_t esize;
	uint32_t start;
	uint32_t lazy;
	uint32_t caller_credit;
	uint32_t blocks; /**< Flagged variants: blocks in the ring. */
};

/** "CRPCSPSC" in a little-endian dump. */
#define CRPC_SPSC_MAGIC       UINT64_C(0x4353505343505243)
#define CRPC_SPSC_VERSION     1u
#define CRPC_SPSC_HEAD_OFFSET CRPC_CACHE_GUARD
#define CRPC_SPSC_TAIL_OFFSET (2 * CRPC_CACHE_GUARD)
#define CRPC_SPSC_DATA_OFFSET (3 * CRPC_CACHE_GUARD)

_Static_assert(sizeof(struct crpc_spsc_hdr) <= CRPC_CACHE_LINE, "the header is one line");
_Static_assert(__GCC_ATOMIC_INT_LOCK_FREE == 2, "positions are plain words in shared memory");
_Static_assert(__GCC_ATOMIC_LLONG_LOCK_FREE == 2, "flags are plain words in shared memory");

/** The producer's end. Private to its thread; set by crpc_spsc_prod_attach(). */
struct crpc_spsc_prod {
	char *slots;            /* first message (lamport) or block */
	_Atomic uint32_t *head; /* lamport: the head word */
	const _Atomic uint32_t
		*tail; /* lamport, onesided: the tail word; NULL: credit by the caller */
	uint32_t depth;
	uint32_t next;      /* position of the next message */
	uint32_t published; /* position up to which the consumer may see */
	uint32_t limit;     /* position that next may reach; fastforward: blocks known free */
	uint32_t lazy;
	/* flagged variants */
	uint32_t fill; /* messages in the block at pos */
	uint32_t lap;  /* onesided: generation of the block at pos */
	char *pos;
	char *end;
	/* the run-time handle */
	uint32_t esize;
	enum crpc_spsc_variant variant;
};

/** The consumer's end. Private to its thread; set by crpc_spsc_cons_attach(). */
struct crpc_spsc_cons {
	char *slots;
	const _Atomic uint32_t *head; /* lamport: the head word */
	_Atomic uint32_t *tail;       /* the tail word; NULL where nothing is written there */
	uint32_t depth;
	uint32_t next;     /* position of the next message to read */
	uint32_t limit;    /* lamport: position up to which messages are there, as far as known */
	uint32_t freed;    /* everything before it is no longer read */
	uint32_t released; /* ... and this was published */
	uint32_t batch;    /* publish after that many */
	/* flagged variants */
	uint32_t taken; /* messages read of the block at pos */
	uint32_t avail; /* messages known to be in it */
	uint32_t lap;
	char *pos;
	char *rel; /* oldest block not yet given back */
	char *end;
	/* the run-time handle */
	uint32_t esize;
	enum crpc_spsc_variant variant;
};

/** Messages behind one flag of a flagged variant. */
static inline uint32_t
crpc_spsc_per(enum crpc_spsc_variant variant)
{
	return variant == CRPC_SPSC_FASTFORWARD || variant == CRPC_SPSC_ONESIDED
		? CRPC_SPSC_PACKED
		: CRPC_SPSC_ALIGNED;
}

/** Whether blocks carry a generation. */
static inline bool
crpc_spsc_is_onesided(enum crpc_spsc_variant variant)
{
	return variant == CRPC_SPSC_ONESIDED || variant == CRPC_SPSC_ONESIDED_ALIGNED;
}

/** Bytes of one block of @p per messages behind one flag: whole lines. */
static inline uint32_t
crpc_spsc_block_len(uint32_t esize, uint32_t per)
{
	return (uint32_t)crpc_align_up(CRPC_SPSC_FLAG_LEN + (uint64_t)per * esize, CRPC_CACHE_LINE);
}

/*
 * Two hints on lines. A CPU that does not know prefetchw or cldemote takes it for a nop (Intel SDM
 * 2B, AMD APM 3), which costs less than to ask whether it does.
 */

/** Ask for the line at @p p, to write it. */
static inline void
__crpc_spsc_prefetchw(const void *p)
{
#if defined(__x86_64__)
	__asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1, 3);
#endif
}

/** Push the line at @p p down, where the CPU can: its reader then finds it a level nearer. */
static inline void
__crpc_spsc_demote(const void *p)
{
#if defined(__x86_64__)
	__asm__ __volatile__("cldemote %0" : : "m"(*(const char *)p));
#endif
}

/**
 * Bytes that a ring of @p attr takes.
 *
 * @param attr
 *   The ring.
 * @return
 *   The bytes, or -EINVAL: crpc_log_last() names the attribute, its value and its range.
 */
ssize_t crpc_spsc_memsize(const struct crpc_spsc_attr *attr);

/**
 * Make a ring in @p mem.
 *
 * @param mem
 *   Memory, aligned to CRPC_CACHE_GUARD. It stays the caller's and must outlive both ends.
 * @param len
 *   Its bytes.
 * @param attr
 *   The ring.
 * @return
 *   0, or -EINVAL (attribute, alignment), or -ENOSPC (len below crpc_spsc_memsize()).
 */
int crpc_spsc_init(void *mem, size_t len, const struct crpc_spsc_attr *attr);

/**
 * Attach the producer's end to a ring that no message passed through yet.
 *
 * @param p
 *   The end; set only on success.
 * @param mem
 *   The ring's memory as this process maps it.
 * @param len
 *   Its bytes.
 * @return
 *   0, or -EINVAL (no ring, other version, attributes out of range), or -ENOSPC (len too small).
 */
int crpc_spsc_prod_attach(struct crpc_spsc_prod *p, void *mem, size_t len);

/** Attach the consumer's end; as crpc_spsc_prod_attach(). */
int crpc_spsc_cons_attach(struct crpc_spsc_cons *c, void *mem, size_t len);

/* lamport, and onesided with a tail word: publish how far the consumer is. */
crpc_inline void
__crpc_spsc_report(struct crpc_spsc_cons *c)
{
	/* R2, R4: the reads before the tail that gives their places away. Pair with A2 and A4. */
	crpc_store_release(c->tail, c->freed);
	c->released = c->freed;
}

CRPC_END_DECLS

#endif
