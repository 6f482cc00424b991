/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MRCACHE_WATCH_H
#define MRCACHE_WATCH_H

/**
 * @file
 * How caches of registrations learn that memory was unmapped: from the kernel, by userfaultfd.
 *
 *     a thread that unmaps       the watcher, a thread         a cache's owner
 *     munmap() ... waits         poll(): an event
 *          .                     busy = 1              W0
 *          .                     read()
 *     returns <----------------- (the kernel)
 *                                ranges into each cache W1
 *                                busy = 0              W2
 *     notifies the owner ----------------------------------->  lookup: waits for busy == 0   O0
 *                                                              takes the ranges              O1
 *
 * The kernel lets munmap() return when its event was read, not when it was handled; so busy is set
 * before the read. An owner that looks after a munmap() returned sees it, or what came after.
 *
 * Never a deadlock: the watcher waits for nothing but the kernel. It takes no lock, allocates
 * nothing and unmaps nothing, and its ranges lie in a ring per owner; a ring that is full
 * is marked lost, and then the owner removes all its regions.
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

#define MRWATCH_RANGES 256u

/** What was unmapped, for one cache. */
struct mrwatch {
	_Atomic uint32_t tail; /**< The watcher's. */
	_Atomic uint32_t head; /**< The owner's. */
	_Atomic uint32_t lost; /**< 1: there was no room. */
	struct {
		uint64_t start, end;
	} range[MRWATCH_RANGES];
};

/** Report what is unmapped to a cache. 0, or -errno: this kernel or its rules do not allow it. */
int __crpc_mrwatch_join(struct mrwatch *w);
/** Undoes it; the watcher does not touch @p w afterwards. */
void __crpc_mrwatch_leave(struct mrwatch *w);
/** Watch a range, of whole pages. 0, or -errno: memory of this kind can not be watched. */
int __crpc_mrwatch_add(uint64_t start, uint64_t end);
/** One that watched this range does not any more. */
void __crpc_mrwatch_remove(uint64_t start, uint64_t end);
/** Wait until what was unmapped before is reported. */
void __crpc_mrwatch_settle(void);
/** Page faults that came to the watcher, which must be none. */
uint64_t __crpc_mrwatch_faults(void);

/** Whether a range was reported; after settle(). */
static inline bool
mrwatch_any(struct mrwatch *w)
{
	/* O1: acquire, pairs with W1 */
	return crpc_load_acquire(&w->tail) != crpc_load_relaxed(&w->head) ||
		crpc_load_acquire(&w->lost) != 0;
}

#endif
