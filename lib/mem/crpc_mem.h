/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MEM_H
#define CRPC_MEM_H

/**
 * @file
 * Memory of the datapath: rings, tables, buffers. It comes from the first of these that has it, on
 * the node that is wanted:
 *
 *     1. the EAL's hugepages         after crpc_mem_eal_start() of lib/mem_eal
 *     2. hugepages of the kernel     1 MiB and more, since Linux 5.14
 *     3. transparent hugepages       2 MiB and more
 *     4. pages
 *
 * A node without free hugepages gives pages of its own: a remote hugepage costs more than the TLB
 * misses that it saves. Memory is zero, and all of it is there: no access faults later.
 *
 *     crpc_mem_here_set(&(struct crpc_mem_place){.node = 1, .lcore = 5});   for a lcore elsewhere
 *     ring = crpc_mem_alloc("ring", len, CRPC_CACHE_GUARD, NULL);
 *     crpc_mem_here_set(NULL);
 *     crpc_mem_walk(print, stdout);                           what each part lies on
 *     crpc_mem_free(ring);
 *
 * Threads: any may call any of these, at any time; they lock and make system calls, so they are not
 * for the datapath. Memory is the caller's until crpc_mem_free(), which any thread may call.
 */

#include <stddef.h>
#include <stdint.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** Where memory is used. */
struct crpc_mem_place {
	int node;  /**< NUMA node; below 0: any. */
	int lcore; /**< Below 0: none. */
};

/** Allocations that lie and are used alike, as the kernel reports them now. */
struct crpc_mem_part {
	const char *name;
	uint64_t count, bytes; /**< Allocations, and what was asked for in all. */
	uint64_t page_size;    /**< Of the mappings; 0: not known. */
	uint64_t thp_bytes;    /**< Of the bytes: on transparent hugepages. */
	int node;              /**< Of the first pages; below 0: not known. */
	int lcore;             /**< Which uses it; below 0: none. */
};

/**
 * Memory of the datapath: zero, and present.
 *
 * @param name
 *   Of the part in reports; a string that stays.
 * @param size
 *   Bytes; not 0.
 * @param align
 *   A power of two, up to 2 MiB.
 * @param at
 *   Where it is used; NULL: crpc_mem_here().
 * @return
 *   The memory, to be given back by crpc_mem_free(). NULL with errno: EINVAL (size or alignment) or
 *   ENOMEM; the cause is in crpc_log_last().
 */
void *crpc_mem_alloc(const char *name, size_t size, size_t align, const struct crpc_mem_place *at);

/**
 * List memory that came from elsewhere and is the datapath's too, such as a segment.
 *
 * @return
 *   0, or -ENOMEM; crpc_mem_free() takes it off the list and leaves the memory.
 */
int crpc_mem_note(const char *name, void *mem, size_t size);

/** Bytes of free hugepages of 2 MiB on a node; below 0: on all. */
uint64_t crpc_mem_huge_free(int node);

/** Give memory back. NULL is allowed. */
void crpc_mem_free(void *mem);

/** Where this thread runs: what crpc_mem_here_set() said, else its lcore and its core's node. */
struct crpc_mem_place crpc_mem_here(void);

/** What this thread allocates is used at @p at. NULL: where the thread runs. */
void crpc_mem_here_set(const struct crpc_mem_place *at);

/**
 * Call @p fn for each part, in order of addresses. It reads /proc/self/smaps, which may take
 * milliseconds.
 *
 * @return
 *   0, or -ENOMEM; the cause is in crpc_log_last().
 */
int crpc_mem_walk(void (*fn)(const struct crpc_mem_part *part, void *arg), void *arg);

CRPC_END_DECLS

#endif
