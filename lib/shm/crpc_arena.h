/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_ARENA_H
#define CRPC_ARENA_H

/**
 * @file
 * An allocator in shared memory, for processes that may die at any moment.
 *
 *     owner of the segment                      every process
 *     crpc_arena_format(seg, off, len, &conf)
 *     crpc_shm_ready(seg)              -->      a = crpc_arena_attach(seg, off)
 *                                               c = crpc_arena_join(a, &conf)     one per thread
 *                                               p = crpc_arena_alloc(c, size, &ref)
 *                                               crpc_arena_free(c, ref)
 *                                               crpc_arena_leave(c)
 *                                               crpc_arena_detach(a)
 *
 * and a block goes from one process to another without a copy:
 *
 *     c1                                                 c2
 *     crpc_arena_give(c1, ref, crpc_arena_member(c2))
 *     send the ref by any channel             -->        crpc_arena_take(c2, ref, from, &p, &size)
 *                                                        crpc_arena_free(c2, ref), or give it on
 *
 * A block is named by a ref: where it lies in the arena, and its generation, which changes when it
 * is freed. So a ref is the same number in all processes, at whatever address each has mapped the
 * segment, and one that outlived its block is recognised: -ESTALE, or -EINVAL if its unit was cut
 * for another size since, so that no block starts there any more. 0 is no ref.
 *
 * Who holds a block. Every block has one state word, outside of it, and the word is all the truth
 * there is: free, or in the cache of member m, or allocated by m, or in transit from m to n. All
 * lists are private to a process and die with it. A change of hands is one store or one
 * compare-and-swap, so a process that is killed between any two instructions leaves each block in
 * one place, and whatever stands in a dead member's name is free again after crpc_arena_reclaim():
 *
 *          alloc (from the cache)           give               take
 *     CACHED m <=============> ALLOCATED m -----> TRANSIT m>n -----> ALLOCATED n
 *        |  ^       free                   <-----
 *  flush |  | fill                         revoke
 *        v  |
 *        FREE   <--- reclaim, from all of them, once m (of a transit: m or n) is dead
 *
 * Only the holder may free, give or resize what is in a block: that is what makes free() of a block
 * twice, or of another member's, an error rather than damage, and why no lock and no atomic
 * read-modify-write is needed to allocate. A thread is a member like a process: threads that pass
 * blocks to each other give and take too.
 *
 * Life. A member holds a kernel lock on a byte of the segment's file (crpc_shm_lock_take()). The
 * lock of member i of an arena whose member table lies at byte t of the segment is on byte
 * 2^31 + t / 64 + i, far above the bytes that users of the segment number from 1, and different for
 * each arena in a segment. It drops when the process dies, or leaves.
 *
 * Sizes. A request is rounded up to one of up to 81 classes: 64, 128, 192, 256 bytes, then four per
 * power of two, up to the arena's largest block; above 32 KiB to whole units of 64 KiB. Blocks are
 * aligned to 64 bytes of the segment, and those of n * 4 KiB to 4 KiB. Small blocks come from units
 * cut into one class; a unit whose blocks are all free can be cut again for another class, which
 * is done when memory is wanted and nothing else is left.
 *
 * Trust. Every process that has mapped the arena may write all of it. Nothing it writes makes
 * another process read or write outside of the arena, loop without bound, or fail: words are copied
 * once, checked and then used, and what does not fit is an error to the call that meets it. What
 * the blocks hold can be changed by any process at any time: copy what is checked.
 *
 * Threads: a cache (member) belongs to one thread. An arena handle may be shared by all threads of
 * a process; join and reclaim take a lock in the handle. A child after fork() must not use its
 * parent's caches: it joins by itself.
 *
 * Cost: alloc and free of a cached block are some 60 and 80 instructions, no system call, no
 * atomic read-modify-write. When the cache is empty, one search through words of the class's hint
 * map fills half of it; when it is full, half of it is flushed.
 *
 * Sources: free lists in caches per thread, in front of spans cut into one size, are those of
 * tcmalloc (Ghemawat and Menage) and of Bonwick's magazines (USENIX ATC 2001); that recovery needs
 * nothing but owner words is close to Ralloc and LRMalloc (Cai et al., ISMM 2020), which
 * rebuild their lists by a walk as reclaim and check do here.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_shm.h"

CRPC_BEGIN_DECLS

/** An arena that this process has attached. */
struct crpc_arena;
/** A member: one thread's place in an arena, with its cache of free blocks. */
struct crpc_arena_cache;

/** What crpc_arena_format() makes. Zero it, then set what is wanted. */
struct crpc_arena_conf {
	uint32_t max_members; /**< Threads of all processes; 0: 64; at most 4,095. */
	/** Bytes of the largest block, at most 1 GiB; 0: a quarter of the arena, at most 64 MiB. */
	uint64_t max_block;
};

/** How a thread joins. Zero it, then set what is wanted. NULL: all zero. */
struct crpc_arena_join_conf {
	/** Bytes that this member may hold, its cache included; 0: no limit. */
	uint64_t limit;
	/**
	 * Bytes of free blocks that it may keep for itself. 0: an eighth of the arena shared among
	 * max_members, but at least 256 KiB (of a small arena: that eighth) and at most 8 MiB. A
	 * block above half of it is not cached.
	 */
	uint64_t cache_bytes;
};

/**
 * Bytes of segment that an arena needs so that @p data_bytes of units fit.
 *
 * @param conf
 *   As for crpc_arena_format(); NULL: all zero.
 * @param data_bytes
 *   Rounded up to whole units of 64 KiB.
 * @return
 *   A multiple of 4,096, or 0 if conf or data_bytes is out of range.
 */
uint64_t crpc_arena_size(const struct crpc_arena_conf *conf, uint64_t data_bytes);

/**
 * Lay an empty arena out. By the owner of the segment, before another process attaches the arena.
 *
 * @param seg
 *   The segment. Other parts of it belong to their users.
 * @param off, len
 *   Where in the segment; off is a multiple of 4,096 and below 128 GiB - 512 KiB; len at most
 *   256 GiB.
 * @param conf
 *   NULL: all zero.
 * @return
 *   0, -EINVAL (off, len or conf; said), -ENOSPC (len is too small for one block of max_block).
 */
int crpc_arena_format(struct crpc_shm *seg, uint64_t off, uint64_t len,
		const struct crpc_arena_conf *conf);

/**
 * Use the arena at @p off of a segment. Holds a reference to the segment.
 *
 * @return
 *   The arena, or NULL with errno: EPROTO (magic, version, sizes: what was expected and found is
 *   said), EINVAL (off), ENOMEM.
 */
struct crpc_arena *crpc_arena_attach(struct crpc_shm *seg, uint64_t off);

/** Forget the arena. All caches of this handle were left before. NULL is fine. */
void crpc_arena_detach(struct crpc_arena *a);

/**
 * Become a member. The calling thread owns the cache.
 *
 * If no place is free, those of the dead are reclaimed first (then it may take as long as
 * crpc_arena_reclaim() without a budget).
 *
 * @return
 *   The cache, or NULL with errno: EUSERS (max_members live), ENOMEM, ECONNREFUSED (the segment's
 *   file was replaced), or what the kernel gave for the lock.
 */
struct crpc_arena_cache *crpc_arena_join(struct crpc_arena *a,
		const struct crpc_arena_join_conf *conf);

/**
 * Give everything back that this member holds, and end the membership. NULL is fine.
 *
 * Blocks that it gave and that were not taken yet stay with the one they were given to. Its
 * allocated blocks are freed: a ref to one is stale then. Takes time in proportion to the arena.
 */
void crpc_arena_leave(struct crpc_arena_cache *c);

/** The next thread that uses the cache owns it, not this one: nothing but debug checks know. */
void crpc_arena_hand_over(struct crpc_arena_cache *c);

/** The number under which others give blocks to this member: 1 to max_members. */
uint32_t crpc_arena_member(const struct crpc_arena_cache *c);

/** The arena that it is a member of. */
struct crpc_arena *crpc_arena_of(const struct crpc_arena_cache *c);

/**
 * Allocate a block of at least @p size bytes. Its contents are what was there.
 *
 * @param c, size
 *   The member and the bytes.
 * @param ref
 *   Set on success.
 * @return
 *   The block, or NULL with errno: ENOMEM (no room), EDQUOT (the member's limit), EMSGSIZE (above
 *   max_block), EINVAL (0 bytes).
 */
void *crpc_arena_alloc(struct crpc_arena_cache *c, uint64_t size, uint64_t *ref);

/**
 * Free a block that this member holds.
 *
 * @return
 *   0; -EINVAL (no block of this arena starts there), -ESTALE (it was freed before), -EPERM
 *   (another member holds it, or it was given away).
 */
int crpc_arena_free(struct crpc_arena_cache *c, uint64_t ref);

/**
 * Hand a block over. From here on this member must not touch it, or only read it until it is taken.
 *
 * @param c, ref
 *   The member that holds the block, and the block.
 * @param to
 *   Member who may take it; the caller itself is allowed.
 * @return
 *   0; -EINVAL, -ESTALE, -EPERM as crpc_arena_free(); -EINVAL if there is no such number.
 */
int crpc_arena_give(struct crpc_arena_cache *c, uint64_t ref, uint32_t to);

/**
 * Accept a block that was given to this member. What it wrote before give() can be read then.
 *
 * @param c, ref
 *   The member that takes, and the block.
 * @param from
 *   Who must have given it; 0: any member.
 * @param ptr, size
 *   Set on success: the block, all of it within the arena. Each may be NULL.
 * @return
 *   0; -EINVAL (no block), -ESTALE (it is not in transit any more: its giver died or revoked it, or
 *   it was taken), -EPERM (given to or by another member), -EDQUOT (the member's limit; it stays in
 *   transit).
 */
int crpc_arena_take(struct crpc_arena_cache *c, uint64_t ref, uint32_t from, void **ptr,
		uint64_t *size);

/**
 * Take back what this member gave, before it is taken: the receiver died, or the message was lost.
 * The limit does not apply.
 *
 * @return
 *   0: it is held again. -EINVAL, -ESTALE (taken, or reclaimed with the receiver), -EPERM.
 */
int crpc_arena_revoke(struct crpc_arena_cache *c, uint64_t ref);

/**
 * Free a block in transit that this member gave, or that was given to it. The limit does not apply.
 *
 * @param c, ref
 *   The member, and the block.
 * @param from, to
 *   Who must have given it, and to whom: one of them is this member.
 * @return
 *   0; -EINVAL (no block), -ESTALE (it is not in transit any more), -EPERM (given by or to another
 *   member).
 */
int crpc_arena_drop(struct crpc_arena_cache *c, uint64_t ref, uint32_t from, uint32_t to);

/**
 * The address of a block, by whomever it is held. Any thread.
 *
 * @param a, ref
 *   The arena and the block.
 * @param size
 *   Set to its bytes unless NULL.
 * @return
 *   The block, all of it within the arena, or NULL: it is none, or it is not allocated or in
 *   transit under this generation at this moment.
 */
void *crpc_arena_view(const struct crpc_arena *a, uint64_t ref, uint64_t *size);

/** Bytes that a request for @p size gets; 0 if it is 0 or above max_block. Any thread. */
uint64_t crpc_arena_block_size(const struct crpc_arena *a, uint64_t size);

/** Give all cached blocks back to the arena. */
void crpc_arena_flush(struct crpc_arena_cache *c);

/** Numbers of one member, counted by itself. */
struct crpc_arena_cache_stats {
	uint64_t held;    /**< Bytes allocated and cached. */
	uint64_t cached;  /**< Bytes cached. */
	uint64_t damaged; /**< Words of its own that another process had overwritten. */
};

/** Read the numbers of a cache. By its thread. */
void crpc_arena_cache_stats(const struct crpc_arena_cache *c, struct crpc_arena_cache_stats *st);

/** What one pass of crpc_arena_reclaim() found. */
struct crpc_arena_reclaimed {
	uint32_t members; /**< Dead members whose places are free again. */
	uint64_t blocks;  /**< Blocks that are free again. */
	uint64_t units;   /**< Units that were half cut when their member died. */
};

/**
 * Free what the dead hold. Any process may; several at once share the work.
 *
 * @param a
 *   The arena.
 * @param budget
 *   Units and member places to look at in this call, at least 1; 0: all, to the end of the pass. A
 *   unit costs about a microsecond, a place one system call.
 * @param found
 *   Adds what this call did. May be NULL.
 * @return
 *   1: the pass is not over, call again; 0: it is; or -errno (said): what the kernel gave for a
 *   lock, and the pass starts over.
 */
int crpc_arena_reclaim(struct crpc_arena *a, uint32_t budget, struct crpc_arena_reclaimed *found);

CRPC_END_DECLS

#endif
