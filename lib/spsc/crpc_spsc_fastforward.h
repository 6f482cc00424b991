/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_FASTFORWARD_H
#define CRPC_SPSC_FASTFORWARD_H

/**
 * @file
 * The in-band ring: a block's own flag says what is in it, and no index is shared.
 *
 *     | 7 a b c d e f g | 3 h i j . . . . | 0 . . . . . . . |
 *       ^ consumer reads  ^ producer writes ^ free: the consumer wrote 0
 *
 * After J. Giacomoni, T. Moseley, M. Vachharajani, "FastForward for efficient pipeline parallelism"
 * (PPoPP 2008), with a count for seven messages where the paper has one NULL per message.
 * crpc_spsc_block.h has the layout. A message and its flag travel in one line, so a lone message
 * arrives after one line transfer; CRPC_SPSC_ALIGNED keeps it so for every message,
 * CRPC_SPSC_PACKED moves fewer lines.
 *
 * Full is seen in the flag of the next block: a ring takes at least depth messages, and less than
 * two blocks more.
 *
 * Publication: a full block at once; a part of one at flush, or at the end of the call where `lazy`
 * says so.
 */

#include "crpc_spsc_block.h"

/** Publish what was written. Producer's thread. */
crpc_inline void
crpc_spsc_fastforward_flush(struct crpc_spsc_prod *p)
{
	__crpc_spsc_block_flush(p, false);
}

/**
 * Room for up to @p want messages, in place.
 *
 * @param p
 *   The producer's end.
 * @param esize
 *   Bytes of a message.
 * @param per
 *   CRPC_SPSC_PACKED or CRPC_SPSC_ALIGNED, as the ring is.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes.
 * @return
 *   How many, up to the end of a block; 0: full. Write them, then commit.
 */
crpc_inline uint32_t
crpc_spsc_fastforward_reserve(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, uint32_t want, void **first)
{
	return __crpc_spsc_block_reserve(p, esize, per, false, want, first);
}

/** Enqueue @p n messages that were written where reserve said. */
crpc_inline void
crpc_spsc_fastforward_commit(struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, uint32_t n)
{
	__crpc_spsc_block_commit(p, esize, per, false, n);
	if (p->next - p->published >= p->lazy)
		__crpc_spsc_block_flush(p, false);
}

/**
 * Enqueue up to @p n messages.
 *
 * @param p
 *   The producer's end.
 * @param esize
 *   Bytes of a message.
 * @param per
 *   CRPC_SPSC_PACKED or CRPC_SPSC_ALIGNED.
 * @param msgs
 *   The messages, side by side.
 * @param n
 *   Their number.
 * @return
 *   How many; fewer than n: the ring is full.
 */
crpc_inline uint32_t
crpc_spsc_fastforward_enqueue_burst(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, const void *msgs, uint32_t n)
{
	return __crpc_spsc_block_enqueue(p, esize, per, false, msgs, n);
}

/** Enqueue one message: true; false: the ring is full. As enqueue_burst. */
crpc_inline bool
crpc_spsc_fastforward_enqueue(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, const void *msg)
{
	return __crpc_spsc_block_enqueue(p, esize, per, false, msg, 1) == 1;
}

/**
 * Up to @p want messages to read in place; they count as read.
 *
 * @param c
 *   The consumer's end.
 * @param esize
 *   Bytes of a message.
 * @param per
 *   CRPC_SPSC_PACKED or CRPC_SPSC_ALIGNED.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes. Readable until the next release.
 * @return
 *   How many, up to the end of a block; 0: empty, or depth messages are peeked and not released.
 */
crpc_inline uint32_t
crpc_spsc_fastforward_peek(
	struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, uint32_t want, void **first)
{
	return __crpc_spsc_block_peek(c, esize, per, false, want, first);
}

/** Give back everything that was peeked. */
crpc_inline void
crpc_spsc_fastforward_release(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per)
{
	__crpc_spsc_block_release(c, esize, per, false);
}

/**
 * Dequeue up to @p n messages; ends an open peek.
 *
 * @param c
 *   The consumer's end.
 * @param esize
 *   Bytes of a message.
 * @param per
 *   CRPC_SPSC_PACKED or CRPC_SPSC_ALIGNED.
 * @param msgs
 *   Takes them, side by side.
 * @param n
 *   Room in msgs.
 * @return
 *   How many; 0 is empty.
 */
crpc_inline uint32_t
crpc_spsc_fastforward_dequeue_burst(
	struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, void *msgs, uint32_t n)
{
	return __crpc_spsc_block_dequeue(c, esize, per, false, msgs, n);
}

/** Dequeue one message: true; false: the ring is empty. As dequeue_burst. */
crpc_inline bool
crpc_spsc_fastforward_dequeue(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, void *msg)
{
	return __crpc_spsc_block_dequeue(c, esize, per, false, msg, 1) == 1;
}

#endif
