/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_ONESIDED_H
#define CRPC_SPSC_ONESIDED_H

/**
 * @file
 * The one-sided ring: each block carries its generation, and the consumer writes nothing to it.
 *
 *     lap 4:  | 4:7 a b c d e f g | 4:3 h i j . . . . | 3:7 . . . . . . . |
 *               ^ consumer reads    ^ producer writes   ^ last lap's: not there yet
 *
 * So memory that the consumer may only read is enough, and no line goes back to the producer to be
 * cleared. What protects unread messages is the window: the producer has at most depth messages
 * that it does not know to be read. It learns that from crpc_spsc_onesided_credit()
 * (attr.caller_credit), for instance because a reply to a request implies that the request and
 * everything before it was read; or by the tail word, which the consumer writes once per quarter of
 * the depth. A ring is created with a window no larger than it can hold; it cannot be overwritten.
 *
 * Publication: as crpc_spsc_fastforward.h. crpc_spsc_block.h has the layout.
 */

#include "crpc_spsc_block.h"

/** Publish what was written. Producer's thread. */
crpc_inline void
crpc_spsc_onesided_flush(struct crpc_spsc_prod *p)
{
	__crpc_spsc_block_flush(p, true);
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
crpc_spsc_onesided_reserve(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, uint32_t want, void **first)
{
	return __crpc_spsc_block_reserve(p, esize, per, true, want, first);
}

/** Enqueue @p n messages that were written where reserve said. */
crpc_inline void
crpc_spsc_onesided_commit(struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, uint32_t n)
{
	__crpc_spsc_block_commit(p, esize, per, true, n);
	if (p->next - p->published >= p->lazy)
		__crpc_spsc_block_flush(p, true);
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
crpc_spsc_onesided_enqueue_burst(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, const void *msgs, uint32_t n)
{
	return __crpc_spsc_block_enqueue(p, esize, per, true, msgs, n);
}

/** Enqueue one message: true; false: the ring is full. As enqueue_burst. */
crpc_inline bool
crpc_spsc_onesided_enqueue(struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, const void *msg)
{
	return __crpc_spsc_block_enqueue(p, esize, per, true, msg, 1) == 1;
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
crpc_spsc_onesided_peek(
	struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, uint32_t want, void **first)
{
	return __crpc_spsc_block_peek(c, esize, per, true, want, first);
}

/** Give back everything that was peeked. */
crpc_inline void
crpc_spsc_onesided_release(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per)
{
	__crpc_spsc_block_release(c, esize, per, true);
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
crpc_spsc_onesided_dequeue_burst(
	struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, void *msgs, uint32_t n)
{
	return __crpc_spsc_block_dequeue(c, esize, per, true, msgs, n);
}

/** Dequeue one message: true; false: the ring is empty. As dequeue_burst. */
crpc_inline bool
crpc_spsc_onesided_dequeue(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, void *msg)
{
	return __crpc_spsc_block_dequeue(c, esize, per, true, msg, 1) == 1;
}

/**
 * Credit: the consumer has read the @p n oldest messages that are outstanding.
 *
 * @param p
 *   The producer's end of a ring with attr.caller_credit.
 * @param n
 *   Messages; more than are outstanding is bounded to those.
 */
crpc_inline void
crpc_spsc_onesided_credit(struct crpc_spsc_prod *p, uint32_t n)
{
	uint32_t open = p->next - (p->limit - p->depth);

	p->limit += n < open ? n : open;
}

/**
 * The position of the next message: a token of 32 bits that no other message within 2^32 has. It is
 * not a slot index: two messages that share a slot differ in it, in whatever order replies come.
 */
crpc_inline uint32_t
crpc_spsc_onesided_token(const struct crpc_spsc_prod *p)
{
	return p->next;
}

#endif
