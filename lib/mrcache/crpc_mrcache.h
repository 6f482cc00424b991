/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MRCACHE_H
#define CRPC_MRCACHE_H

/**
 * @file
 * A cache of memory registrations: a buffer that is sent again is not registered again.
 *
 *     get(addr, len)  -->  a region that covers it?  yes: one more user of it
 *                                                    no:  register [addr, addr + len), aligned
 *     put(mr)         -->  one user less; the region stays registered
 *     invalidate(addr, len)   before the memory is unmapped or freed for good
 *
 * Regions of the cache do not overlap: where a new range overlaps old ones, one region that covers
 * all takes their place. An old one that is in use goes when its last user puts it. If the new one
 * cannot be registered, regions of add() stay.
 *
 * Bounds: at most max_regions regions and max_bytes bytes; when one more would not fit, the least
 * recently used region without users goes. If all are in use, get() is refused.
 *
 * Alignment: a range is widened to the pages that it lies in: 4 KiB, or 2 MiB where the mapping is
 * of a file or of anonymous huge pages and begins and ends at multiples of that, as those of huge
 * pages do (/proc/self/maps). It never goes beyond its mapping. So buffers in one huge page
 * are one region, and a device may use one entry for it.
 *
 * Unmapping. A region that outlives its mapping goes on naming the old pages (they stay pinned
 * until it is evicted), so that memory mapped later at the same address would be read and written
 * in its old place: wrong bytes, never another process's. There are two ways to avoid that:
 *
 *   - The user calls crpc_mrcache_invalidate() before it unmaps. Memory from malloc() that is freed
 *     and allocated again at the same address is safe as long as the allocator did not give it back
 *     to the kernel in between; long lived pools, EAL memory and segments of crpc_shm are.
 *
 *   - conf.watch: the kernel reports munmap(), mremap(), mapping over it, madvise(MADV_DONTNEED)
 *     and brk(), by userfaultfd, and a thread of the process reads it (mrcache_watch.h has the
 *     picture). The call that unmaps waits until the thread has read that, some 10 us, but for
 *     nothing else; so it never waits for the cache's owner, and the owner may unmap, too. The next
 *     get() or progress() then gives the region out no more, and deregisters it with its
 *     last user. A get() after the call returned never gives an old region, unless another get() of
 *     that range ran during a madvise(), which is reported before the pages go. Page faults are not
 *     concerned: no page is protected, so none waits. Memory that can not be watched (before Linux
 *     6.7 mappings of files) stays registered only as long as it has users.
 *
 *     It needs no privilege, but a container may forbid the system call, and kernels before 5.11
 *     want vm.unprivileged_userfaultfd = 1 or CAP_SYS_PTRACE. Where it is refused, it is logged
 *     once, crpc_mrcache_watches() is false, and the first way remains.
 *
 *     Not reported: pages that a file loses while it is mapped (ftruncate(), or a hole made).
 *     A mapping that another userfaultfd watches counts as one that can not be watched. After
 *     fork() the child must not use the cache.
 *
 * Pools: get() of a whole pool or segment, which is put back before it is unmapped, makes every
 * buffer in it a hit, and is not evicted.
 *
 * Trust: a peer that was given a key can read and write the whole region as long as it is
 * registered, not the buffer alone.
 *
 * Threads: as the device's; any thread may unmap. get() on a hit is a search of max_regions at
 * most, without a system call; a miss registers, which is one or more system calls.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_rdma.h"

CRPC_BEGIN_DECLS

struct crpc_mrcache;

/** How to make a cache. Zero fields take the default. */
struct crpc_mrcache_conf {
	struct crpc_rdma *dev; /**< It must outlive the cache. */
	uint32_t max_regions;  /**< Default 128, at most CRPC_MRCACHE_REGIONS_MAX. */
	uint64_t max_bytes;    /**< Registered at most; default: no limit. */
	bool watch;            /**< Have the kernel report what is unmapped, if it allows that. */
};

/** Counters since create; exact. */
struct crpc_mrcache_stats {
	uint64_t hits;
	uint64_t misses;      /**< Registrations made by get(). */
	uint64_t merges;      /**< Regions that a larger one took the place of. */
	uint64_t evictions;   /**< Regions that went for want of room. */
	uint64_t invalidated; /**< Regions that went by invalidate(). */
	uint64_t unmapped;    /**< Regions removed because the kernel reported it. */
	uint64_t unwatched;   /**< Registrations of memory that can not be watched. */
	uint64_t failed;      /**< get() refused. */
	uint32_t regions;     /**< Now registered, those that wait for their last user included. */
	uint64_t bytes;       /**< Of them. */
	uint32_t users;       /**< get() less put(). */
};

/**
 * Make a cache.
 *
 * @return
 *   The cache, or NULL with errno: EINVAL, ENOMEM.
 */
struct crpc_mrcache *crpc_mrcache_create(const struct crpc_mrcache_conf *conf);

/** Deregister everything and free. No users are left. NULL is allowed. */
void crpc_mrcache_free(struct crpc_mrcache *c);

/**
 * A region that covers a range.
 *
 * @param c
 *   The cache.
 * @param addr, len
 *   The range, mapped; len at least 1.
 * @param mr
 *   Set on success; it stays valid, and registered, until crpc_mrcache_put().
 * @return
 *   0. -EINVAL (len, or a range that wraps). -ENOSPC: max_regions or max_bytes are in use. -ENOMEM
 *   and others: as crpc_rdma_mr_reg().
 */
int crpc_mrcache_get(
	struct crpc_mrcache *c, const void *addr, uint64_t len, const struct crpc_rdma_mr **mr);

/** Give back what get() gave; the region stays registered for the next user. */
void crpc_mrcache_put(struct crpc_mrcache *c, const struct crpc_rdma_mr *mr);

/**
 * Forget every region that overlaps a range, before it is unmapped.
 *
 * @return
 *   0: all are deregistered. -EBUSY: some are in use; they are given out no more and go with
 *   their last user. Do not unmap yet: end the transfers, then call it again.
 */
int crpc_mrcache_invalidate(struct crpc_mrcache *c, const void *addr, uint64_t len);

/**
 * Deregister what was unmapped, with conf.watch. get() does it too; without it, this
 * gives the memory back: two loads if there is nothing.
 */
void crpc_mrcache_progress(struct crpc_mrcache *c);

/** Whether the kernel reports what is unmapped: conf.watch, and it was allowed. */
bool crpc_mrcache_watches(const struct crpc_mrcache *c);

/** The counters. */
const struct crpc_mrcache_stats *crpc_mrcache_stats(const struct crpc_mrcache *c);

CRPC_END_DECLS

#endif
