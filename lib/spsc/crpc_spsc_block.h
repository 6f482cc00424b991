/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_BLOCK_H
#define CRPC_SPSC_BLOCK_H

/**
 * @file
 * The body of the flagged rings, fastforward and onesided: a block's own flag says what is in
 * it, and no index is shared. Called by crpc_spsc_inline.h.
 *
 *     block   | flag | m | m | m | m | m | m | m | pad |     per = 7: a block of 8-byte messages is
 *              8 bytes                                       exactly one cache line
 *     block   | flag | m | pad |                             per = 1: a message owns its lines
 *
 * The flag says how many messages of the block are valid, so a consumer needs no shared index: the
 * line that says "there is something" also holds it. The producer raises the count when the block
 * is full or at a flush; a block may be published in several steps, and the next messages go
 * on in the same block.
 *
 *                     fastforward                       onesided
 *     flag            count; 0: free                    (lap << 3) | count
 *     consumer        writes 0 when done with a block   writes nothing here
 *     full            flag of the next block is not 0   next - (what the consumer reported) = depth
 *     seen            by a probe ahead, for many blocks  in the tail word, or by the caller
 *
 * A block is free only as a whole, so the ring has one block more than depth messages fill: depth
 * messages fit wherever the oldest of them lies in its block.
 *
 * fastforward is after J. Giacomoni, T. Moseley, M. Vachharajani, "FastForward for efficient
 * pipeline parallelism" (PPoPP 2008), with a count for seven messages where the paper has one
 * NULL per message. A message and its flag travel in one line, so a lone message arrives after
 * one line transfer; CRPC_SPSC_ALIGNED keeps it so for every message, CRPC_SPSC_PACKED moves
 * fewer lines.
 *
 * `one` in the calls below is a constant: true is onesided.
 */

#include "crpc_spsc_base.h"

crpc_inline _Atomic uint64_t *
__crpc_spsc_flag(char *block)
{
	return (_Atomic uint64_t *)(void *)block;
}

crpc_inline void
__crpc_spsc_block_publish(struct crpc_spsc_prod *p, bool one)
{
	/* R3: the messages before the count that covers them. Pairs with A3. */
	crpc_store_release(__crpc_spsc_flag(p->pos), (one ? (uint64_t)p->lap << 3 : 0) | p->fill);
	p->published = p->next;
}

crpc_inline void
__crpc_spsc_block_flush(struct crpc_spsc_prod *p, bool one)
{
	uint32_t n = p->next - p->published;

	if (n == 0)
		return;
	__crpc_spsc_block_publish(p, one);
	if (n == 1)
		__crpc_spsc_demote(p->pos);
}

/* onesided: the window is short. Look whether the consumer has read more. */
crpc_inline uint32_t
__crpc_spsc_block_refill(struct crpc_spsc_prod *p)
{
	uint32_t tail;

	if (p->tail != NULL) {
		/* A4: the consumer has read what lies before its tail. Pairs with R4. */
		tail = crpc_load_acquire(p->tail);
		if (crpc_likely(p->next - tail <= p->depth))
			p->limit = tail + p->depth;
	}
	if (p->limit == p->next)
		__crpc_spsc_block_flush(p, true);
	return p->limit - p->next;
}

/*
 * fastforward: no block is known to be free. Blocks become free in order, so one that is free
 * proves all before it: look a quarter of the ring ahead, nearer if that one is still taken
 * (B-Queue's backtracking). A producer so reads one flag for many blocks, and not the line it
 * writes next.
 */
crpc_inline bool
__crpc_spsc_block_probe(struct crpc_spsc_prod *p, uint32_t len)
{
	uint32_t to_end = (uint32_t)(p->end - p->pos) / len;
	uint32_t blocks = (uint32_t)(p->end - p->slots) / len, ahead = blocks / 4, at;

	for (ahead = ahead > 0 ? ahead : 1; ahead > 0; ahead /= 2) {
		at = ahead - 1;
		/* A5: the consumer has read that block and those before it. Pairs with R5. */
		if (crpc_load_acquire(__crpc_spsc_flag(at < to_end
				    ? p->pos + (size_t)at * len
				    : p->slots + (size_t)(at - to_end) * len)) == 0) {
			p->limit = ahead;
			return true;
		}
	}
	return false;
}

crpc_inline uint32_t
__crpc_spsc_block_reserve(struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, bool one,
	uint32_t want, void **first)
{
	uint32_t n = per - p->fill, room;

	*first = p->pos + CRPC_SPSC_FLAG_LEN + (size_t)p->fill * esize;
	if (one) {
		room = p->limit - p->next;
		if (crpc_constant(want) && want == 1)
			return crpc_likely(room != 0) || __crpc_spsc_block_refill(p) != 0;
		if (crpc_unlikely(room < want))
			room = __crpc_spsc_block_refill(p);
		n = n < room ? n : room;
	} else if (crpc_unlikely(p->limit == 0) &&
		!__crpc_spsc_block_probe(p, crpc_spsc_block_len(esize, per))) {
		return 0;
	}
	return n < want ? n : want;
}

/* Blocks ahead of pos that the producer fetches to write. */
#define __CRPC_SPSC_BLOCK_AHEAD 2u

/*
 * Fetch the lines of a block that is written soon, if it is known to be free: stores leave a core
 * in order, so one that waits for its line holds up all behind it.
 */
crpc_inline void
__crpc_spsc_block_ahead(struct crpc_spsc_prod *p, uint32_t len, uint32_t per, bool one)
{
	char *at = p->pos + (size_t)__CRPC_SPSC_BLOCK_AHEAD * len;

	if (one ? p->limit - p->next < (__CRPC_SPSC_BLOCK_AHEAD + 1) * per
		: p->limit <= __CRPC_SPSC_BLOCK_AHEAD)
		return;
	at -= at >= p->end ? p->end - p->slots : 0;
	for (uint32_t i = 0; i < len; i += CRPC_CACHE_LINE)
		__crpc_spsc_prefetchw(at + i);
}

crpc_inline void
__crpc_spsc_block_commit(
	struct crpc_spsc_prod *p, uint32_t esize, uint32_t per, bool one, uint32_t n)
{
	uint32_t len = crpc_spsc_block_len(esize, per);

	p->fill += n;
	p->next += n;
	if (p->fill < per)
		return;
	__crpc_spsc_block_publish(p, one);
	if (per == 1 && p->lazy == 1)
		__crpc_spsc_demote(p->pos);
	p->fill = 0;
	if (!one)
		p->limit--;
	p->pos += len;
	if (crpc_unlikely(p->pos == p->end)) {
		p->pos = p->slots;
		p->lap++;
	}
	__crpc_spsc_block_ahead(p, len, per, one);
}

/* Nothing known is left of the block at pos: look at its flag. */
crpc_inline uint32_t
__crpc_spsc_block_look(struct crpc_spsc_cons *c, uint32_t per, bool one)
{
	uint64_t flag;
	uint32_t n;

	/* A3: the messages before the count that covers them. Pairs with R3. */
	flag = crpc_load_acquire(__crpc_spsc_flag(c->pos));
	n = !one || (uint32_t)(flag >> 3) == c->lap ? (uint32_t)(flag & 7) : 0;
	/* A count that is too high, or falls, was never written by a producer. */
	if (n <= c->taken || n > per) {
		if (one && c->tail != NULL && c->freed != c->released)
			__crpc_spsc_report(c);
		return 0;
	}
	c->avail = n;
	return n - c->taken;
}

crpc_inline uint32_t
__crpc_spsc_block_peek(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, bool one,
	uint32_t want, void **first)
{
	uint32_t n = c->avail - c->taken, len = crpc_spsc_block_len(esize, per);
	/* At most depth messages are held, so pos cannot come round to blocks still held. */
	uint32_t room = c->depth - (c->next - c->freed);

	if (n == 0) {
		n = room != 0 ? __crpc_spsc_block_look(c, per, one) : 0;
		if (n == 0)
			return 0;
	}
	/* Below one there is nothing to bound: a block is entered only where there is room. */
	if (crpc_constant(want) && want == 1) {
		n = 1;
	} else {
		n = n < want ? n : want;
		n = n < room ? n : room;
	}
	*first = c->pos + CRPC_SPSC_FLAG_LEN + (size_t)c->taken * esize;
	c->taken += n;
	c->next += n;
	if (c->taken == per) {
		c->taken = 0;
		c->avail = 0;
		c->pos += len;
		if (crpc_unlikely(c->pos == c->end)) {
			c->pos = c->slots;
			c->lap++;
		}
	}
	return n;
}

crpc_inline void
__crpc_spsc_block_release(struct crpc_spsc_cons *c, uint32_t esize, uint32_t per, bool one)
{
	uint32_t len = crpc_spsc_block_len(esize, per);
	char *rel = c->rel;

	c->freed = c->next;
	if (one) {
		if (c->tail != NULL && c->freed - c->released >= c->batch)
			__crpc_spsc_report(c);
		return;
	}
	while (rel != c->pos) {
		/* R5: the reads before the flag that gives the block away. Pairs with A5. */
		crpc_store_release(__crpc_spsc_flag(rel), 0);
		rel += len;
		if (crpc_unlikely(rel == c->end))
			rel = c->slots;
	}
	c->rel = rel;
}

#endif
