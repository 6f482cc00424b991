/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_H
#define CRPC_SPSC_H

/**
 * @file
 * One handle for every ring of lib/spsc: the variant and the message size are chosen at run time.
 *
 *     producer                                      consumer
 *     crpc_spsc_enqueue_burst(&p, msgs, n)          crpc_spsc_dequeue_burst(&c, msgs, n)
 *     or, in place:                                 or, in place:
 *     n = crpc_spsc_reserve(&p, want, &first)       n = crpc_spsc_peek(&c, want, &first)
 *     write n messages, p.esize bytes apart         read n messages, c.esize bytes apart
 *     crpc_spsc_commit(&p, n)                       crpc_spsc_release(&c)
 *     crpc_spsc_flush(&p)
 *
 * Every call is a function call, and reads the variant and the size from the end. Where that
 * matters, use crpc_spsc_inline.h instead: same ends, same memory, a constant variant and size.
 *
 * Which one: doc/guides/spsc.md. Setup, threads and ownership: crpc_spsc_base.h.
 *
 * A short count is back-pressure (full, or empty), never an error; nothing here blocks or spins. A
 * producer with attr.lazy above 1 calls flush whenever it stops producing, a poll loop once per
 * turn.
 */

#include <errno.h>

#include "crpc_spsc_base.h"

CRPC_BEGIN_DECLS

/**
 * Enqueue up to @p n messages.
 *
 * @param p
 *   The producer's end; its thread only.
 * @param msgs
 *   The messages, side by side; free again on return.
 * @param n
 *   Their number.
 * @return
 *   How many; fewer than n: the ring is full.
 */
uint32_t crpc_spsc_enqueue_burst(struct crpc_spsc_prod *p, const void *msgs, uint32_t n);

/** Enqueue one message: 0, or -EAGAIN (full). */
static inline int
crpc_spsc_enqueue(struct crpc_spsc_prod *p, const void *msg)
{
	return crpc_spsc_enqueue_burst(p, msg, 1) == 1 ? 0 : -EAGAIN;
}

/**
 * Room for up to @p want messages in the ring itself.
 *
 * @param p
 *   The producer's end; its thread only.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the next ones follow at p->esize bytes.
 * @return
 *   How many in one stretch; 0 is full. Fewer than want: ask again after commit.
 */
uint32_t crpc_spsc_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first);

/** Enqueue the first @p n of the reserved messages. */
void crpc_spsc_commit(struct crpc_spsc_prod *p, uint32_t n);

/** Make everything enqueued visible. Cheap where nothing is held back. */
void crpc_spsc_flush(struct crpc_spsc_prod *p);

/**
 * Dequeue up to @p n messages.
 *
 * @param c
 *   The consumer's end; its thread only.
 * @param msgs
 *   Takes them, side by side.
 * @param n
 *   Room in msgs.
 * @return
 *   How many; 0 is empty. Fewer than n does not mean empty.
 */
uint32_t crpc_spsc_dequeue_burst(struct crpc_spsc_cons *c, void *msgs, uint32_t n);

/** Dequeue one message: 0, or -EAGAIN (empty). */
static inline int
crpc_spsc_dequeue(struct crpc_spsc_cons *c, void *msg)
{
	return crpc_spsc_dequeue_burst(c, msg, 1) == 1 ? 0 : -EAGAIN;
}

/**
 * Up to @p want messages to read in the ring itself; they count as read.
 *
 * @param c
 *   The consumer's end; its thread only.
 * @param want
 *   Messages wished for.
 * @param first
 *   Set to the first; the next ones follow at c->esize bytes. Readable until the next release.
 * @return
 *   How many in one stretch; 0 is empty. May be called again before release.
 */
uint32_t crpc_spsc_peek(struct crpc_spsc_cons *c, uint32_t want, void **first);

/** Give back everything that was peeked. */
void crpc_spsc_release(struct crpc_spsc_cons *c);

CRPC_END_DECLS

#endif
