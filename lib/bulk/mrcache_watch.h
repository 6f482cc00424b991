/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MRCACHE_WATCH_H
#define MRCACHE_WATCH_H

/**
 * @file
 * How caches of registrations learn that memory was unmapped: from the kernel, by userfaultfd.
 *
 *     who unmaps                 the watcher, a thread         a cache's owner
 *     munmap() ... waits         poll(): there is news
 *          .                     busy = 1              W0
 *          .                     read()
 *     returns <----------------- (the kernel)
 *                                news into each cache  W1
 *                                busy = 0              W2
 *     tells the owner  ------------------------------------->  lookup: waits for busy == 0   O0
 *                                                              takes the news                O1
 *
 * The kernel lets munmap() return when its news was read, not when it was handled; so busy is set
 * before the read. An owner that looks after a munmap() returned sees it, or what came after.
 *
 * Never a deadlock: the watcher waits for nothing but the kernel. It takes no lock, allocates
 * nothing and unmaps nothing, and its owners' news lie in rings that it writes; a ring that is full
 * is told as lost, and then the owner forgets all.
 *
 * Never a fault that waits: memory is registered for write protection, and no page of it is ever
 * protected. (Pages that are missing would wait for an answer in the mode for those.)
 *
 * A mapping can be watched by one userfaultfd only, so all caches of the process share one, with
 * its thread; the first one that joins makes them, and the last one that leaves ends them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_atomic.h"

#define MRWATCH_NEWS 256u

/** What was unmapped, for one cache. */
struct mrwatch {
	_Atomic uint32_t tail; /**< The watcher's. */
	_Atomic uint32_t head; /**< The owner's. */
	_Atomic uint32_t lost; /**< 1: there was no room. */
	struct {
		uint64_t start, end;
	} range[MRWATCH_NEWS];
};

/** A cache wants to know. 0, or -errno: this kernel or its rules do not allow it. */
int __crpc_mrwatch_join(struct mrwatch *w);
/** It does not any more; nobody touches it afterwards. */
void __crpc_mrwatch_leave(struct mrwatch *w);
/** Watch a range, of whole pages. 0, or -errno: memory of this kind can not be watched. */
int __crpc_mrwatch_add(uint64_t start, uint64_t end);
/** One that watched this range does not any more. */
void __crpc_mrwatch_remove(uint64_t start, uint64_t end);
/** Wait until the news of what was unmapped before is there. */
void __crpc_mrwatch_settle(void);
/** Page faults that came to the watcher, which must be none. */
uint64_t __crpc_mrwatch_faults(void);

/** Is there news? After settle(). */
static inline bool
mrwatch_any(struct mrwatch *w)
{
	/* O1: acquire, pairs with W1 */
	return crpc_load_acquire(&w->tail) != crpc_load_relaxed(&w->head) ||
	       crpc_load_acquire(&w->lost) != 0;
}

#endif
