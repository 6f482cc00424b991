/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_LAMPORT_H
#define CRPC_SPSC_LAMPORT_H

/**
 * @file
 * The index ring: messages side by side, a head word and a tail word.
 *
 *     slots   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      depth 8, esize any: no padding, no flags
 *                   ^tail         ^head   ^next
 *                   |<- to read ->|<lazy->|
 *
 * After L. Lamport, "Specifying Concurrent Program Modules" (1983), with each end's cached copy of
 * the other's index (as in MCRingBuffer), one release store per burst, and a tail that moves once
 * per quarter of the ring, or when the consumer finds it empty.
 *
 * It moves the fewest lines per message of all variants, so it is the one for streams and for
 * requests and replies in bursts. A single message costs two line transfers, data and head.
 *
 * @p esize of every call is the ring's own: pass a constant, and the copies inline.
 */

#include "crpc_spsc_base.h"

/** Publish what was written. Producer's thread. */
crpc_inline void
crpc_spsc_lamport_flush(struct crpc_spsc_prod *p)
{
	if (p->published == p->next)
		return;
	/* R1: the messages before the head that covers them. Pairs with A1. */
	crpc_store_release(p->head, p->next);
	if (p->next - p->published == 1)
		__crpc_spsc_demote(p->head);
	p->published = p->next;
	/* The consumer read it last: fetch it now, or the next head waits for it. */
	__crpc_spsc_prefetchw(p->slots + (size_t)(p->next & (p->depth - 1)) * p->esize);
}

/* The known room is short: look at the tail. */
crpc_inline uint32_t
__crpc_spsc_lamport_refill(struct crpc_spsc_prod *p)
{
	/* A2: the consumer has read what lies before its tail. Pairs with R2. */
	uint32_t tail = crpc_load_acquire(p->tail);

	/* A tail beyond next, or more than a ring behind it, was never written by a consumer. */
	if (crpc_likely(p->next - tail <= p->depth))
		p->limit = tail + p->depth;
	if (p->limit == p->next)
		crpc_spsc_lamport_flush(p);
	return p->limit - p->next;
}

/**
 * Room for up to @p want messages, in place.
 *
 * @param p
 *   The producer's end.
 * @param esize
 *   Bytes of a message.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes.
 * @return
 *   How many, up to the end of the memory; 0: full. Write them, then commit.
 */
crpc_inline uint32_t
crpc_spsc_lamport_reserve(struct crpc_spsc_prod *p, uint32_t esize, uint32_t want, void **first)
{
	uint32_t i = p->next & (p->depth - 1);
	uint32_t n = p->limit - p->next;

	*first = p->slots + (size_t)i * esize;
	if (crpc_constant(want) && want == 1)
		return crpc_likely(n != 0) || __crpc_spsc_lamport_refill(p) != 0;
	if (crpc_unlikely(n < want))
		n = __crpc_spsc_lamport_refill(p);
	n = n < want ? n : want;
	return n < p->depth - i ? n : p->depth - i;
}

/** Enqueue @p n messages that were written where reserve said. */
crpc_inline void
crpc_spsc_lamport_commit(struct crpc_spsc_prod *p, uint32_t n)
{
	p->next += n;
	if (p->next - p->published >= p->lazy)
		crpc_spsc_lamport_flush(p);
}

/* Nothing known is left: look at the head. */
crpc_inline uint32_t
__crpc_spsc_lamport_look(struct crpc_spsc_cons *c)
{
	/* A1: the messages before the head that covers them. Pairs with R1. */
	uint32_t head = crpc_load_acquire(c->head);

	/* A head before next, or more than a ring beyond freed, was never written by a producer. */
	if (crpc_likely(head - c->freed <= c->depth && head - c->next <= c->depth))
		c->limit = head;
	if (c->limit == c->next && c->freed != c->released)
		__crpc_spsc_report(c);
	return c->limit - c->next;
}

/**
 * Up to @p want messages to read in place; they count as read.
 *
 * @param c
 *   The consumer's end.
 * @param esize
 *   Bytes of a message.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes. Readable until the next release.
 * @return
 *   How many; fewer than want does not mean empty, 0 does. May be called again before release.
 */
crpc_inline uint32_t
crpc_spsc_lamport_peek(struct crpc_spsc_cons *c, uint32_t esize, uint32_t want, void **first)
{
	uint32_t i = c->next & (c->depth - 1);
	uint32_t n = c->limit - c->next;

	*first = c->slots + (size_t)i * esize;
	if (n == 0)
		n = __crpc_spsc_lamport_look(c);
	if (crpc_constant(want) && want == 1) {
		c->next += n != 0;
		return n != 0;
	}
	n = n < want ? n : want;
	n = n < c->depth - i ? n : c->depth - i;
	c->next += n;
	return n;
}

/** Give back everything that was peeked. */
crpc_inline void
crpc_spsc_lamport_release(struct crpc_spsc_cons *c)
{
	c->freed = c->next;
	if (c->freed - c->released >= c->batch)
		__crpc_spsc_report(c);
}

#endif
