/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_INLINE_H
#define CRPC_SPSC_INLINE_H

/**
 * @file
 * The calls of every ring of lib/spsc, as part of the caller.
 *
 *     producer                                    consumer
 *     n = crpc_spsc_inline_reserve(&p, ...)       n = crpc_spsc_inline_peek(&c, ...)
 *     write n messages, p.esize bytes apart       read n messages, c.esize bytes apart
 *     crpc_spsc_inline_commit(&p, ...)            crpc_spsc_inline_release(&c, ...)
 *     crpc_spsc_inline_flush(&p, ...)
 *
 * @p variant and @p esize of every call are the ring's own. Pass constants, and a call becomes the
 * code of that variant for that size, without a test or a call in it; or p.variant and p.esize.
 *
 *     lamport                                 crpc_spsc_lamport.h
 *     fastforward, onesided, packed or        crpc_spsc_block.h
 *     aligned
 *
 * Which one: doc/guides/spsc.md. Setup, threads and ownership: crpc_spsc_base.h.
 *
 * A short count is back-pressure (full, or empty), never an error; nothing here blocks or spins. A
 * producer with attr.lazy above 1 calls flush whenever it stops producing, a poll loop once per
 * turn.
 */

#include "crpc_spsc_block.h"
#include "crpc_spsc_lamport.h"

/** Publish what was written. Producer's thread. */
crpc_inline void
crpc_spsc_inline_flush(struct crpc_spsc_prod *p, enum crpc_spsc_variant variant)
{
	if (variant == CRPC_SPSC_LAMPORT)
		crpc_spsc_lamport_flush(p);
	else
		__crpc_spsc_block_flush(p, crpc_spsc_is_onesided(variant));
}

/**
 * Room for up to @p want messages, in place.
 *
 * @param p
 *   The producer's end.
 * @param variant, esize
 *   Of the ring.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes.
 * @return
 *   How many, up to the end of the memory or of a block; 0: full. Write them, then commit.
 */
crpc_inline uint32_t
crpc_spsc_inline_reserve(struct crpc_spsc_prod *p, enum crpc_spsc_variant variant, uint32_t esize,
	uint32_t want, void **first)
{
	if (variant == CRPC_SPSC_LAMPORT)
		return crpc_spsc_lamport_reserve(p, esize, want, first);
	return __crpc_spsc_block_reserve(
		p, esize, crpc_spsc_per(variant), crpc_spsc_is_onesided(variant), want, first);
}

/** Enqueue @p n messages that were written where reserve said. */
crpc_inline void
crpc_spsc_inline_commit(
	struct crpc_spsc_prod *p, enum crpc_spsc_variant variant, uint32_t esize, uint32_t n)
{
	bool one = crpc_spsc_is_onesided(variant);

	if (variant == CRPC_SPSC_LAMPORT) {
		crpc_spsc_lamport_commit(p, n);
		return;
	}
	__crpc_spsc_block_commit(p, esize, crpc_spsc_per(variant), one, n);
	if (p->next - p->published >= p->lazy)
		__crpc_spsc_block_flush(p, one);
}

/**
 * Up to @p want messages to read in place; they count as read.
 *
 * @param c
 *   The consumer's end.
 * @param variant, esize
 *   Of the ring.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes. Readable until the next release.
 * @return
 *   How many; 0: empty, or depth messages are peeked and not released.
 */
crpc_inline uint32_t
crpc_spsc_inline_peek(struct crpc_spsc_cons *c, enum crpc_spsc_variant variant, uint32_t esize,
	uint32_t want, void **first)
{
	if (variant == CRPC_SPSC_LAMPORT)
		return crpc_spsc_lamport_peek(c, esize, want, first);
	return __crpc_spsc_block_peek(
		c, esize, crpc_spsc_per(variant), crpc_spsc_is_onesided(variant), want, first);
}

/** Give back everything that was peeked. */
crpc_inline void
crpc_spsc_inline_release(struct crpc_spsc_cons *c, enum crpc_spsc_variant variant, uint32_t esize)
{
	if (variant == CRPC_SPSC_LAMPORT)
		crpc_spsc_lamport_release(c);
	else
		__crpc_spsc_block_release(
			c, esize, crpc_spsc_per(variant), crpc_spsc_is_onesided(variant));
}

#endif
