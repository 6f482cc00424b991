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
 *                                the range, for all     W1
 *                                busy = 0              W2
 *     notifies the owner ----------------------------------->  lookup: waits for busy == 0   O0
 *                                                              takes the ranges              O1
 *
 * The kernel lets munmap() return when its event was read, not when it was handled; so busy is set
 * before the read. An owner that looks after a munmap() returned sees it, or what came after.
 *
 * Never a deadlock: the watcher waits for nothing but the kernel. It takes no lock, allocates
 * nothing and unmaps nothing, and the newest ranges lie in a ring that is never emptied; an owner
 * that finds that it missed some removes all its regions.
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

/** A range of addresses. */
struct mr_range {
	uint64_t start, end;
};

/** Reports that are kept; a cache that was not asked for longer forgets all it has. */
#define MRWATCH_RANGES 256u
/**
 * Ranges that are watched at most, counting those that were unmapped: each may split a mapping in
 * three, of which Linux allows a process 65,530. Later ones count as memory that cannot be watched.
 */
#define MRWATCH_ADDED 16384u

/** Have what is unmapped reported from *seen on. 0, or -errno: the kernel does not allow it. */
int __crpc_mrwatch_join(uint64_t *seen);
/** Undoes it. */
void __crpc_mrwatch_leave(void);
/**
 * Watch a range, of whole pages, until it is unmapped or the last cache has left. False: memory of
 * this kind can not be watched, or MRWATCH_ADDED were.
 */
bool __crpc_mrwatch_add(uint64_t start, uint64_t end);
/** Wait until what was unmapped before is reported. */
void __crpc_mrwatch_settle(void);
/** Take the next report after *seen, after settle(). False: there is none. */
bool __crpc_mrwatch_next(uint64_t *seen, struct mr_range *range);
/** Page faults that came to the watcher, which must be none. */
uint64_t __crpc_mrwatch_faults(void);

#endif
