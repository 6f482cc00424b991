/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEM_SOURCE_H
#define MEM_SOURCE_H

#include <pthread.h>

#include "crpc_mem.h"

#define MEM_HUGE_PAGE ((size_t)2 << 20)

/* A source of memory other than the kernel: lib/mem_eal. */
struct mem_source {
	/* Zeros on hugepages of the node, or NULL. Itself NULL: it has none. */
	void *(*alloc)(const char *name, size_t size, size_t align, int node);
	void (*free)(void *mem);
	struct crpc_mem_place (*here)(void);
};

CRPC_BEGIN_DECLS
/* What is allocated from now on comes from the source; NULL: from the kernel. */
void __crpc_mem_source_set(const struct mem_source *source);
CRPC_END_DECLS

/* One allocation. */
struct mem_entry {
	const char *name;
	char *mem;
	size_t size;
	void *map; /* The kernel's; NULL: the source's, without one somebody else's. */
	size_t map_len;
	const struct mem_source *source;
	struct crpc_mem_place at;
};

/* All of them, in order of their addresses: a tree of tsearch(3). */
struct mem_table {
	pthread_mutex_t lock;
	void *root;
	uint32_t n;
};
extern struct mem_table __crpc_mem_table;

/*
 * Zeros from the kernel, of the entry's size, on its node: sets mem, map and map_len. A page
 * without access is behind them. What needs no page's boundary begins anywhere in its first page,
 * or the heads of all channels would share a set of a cache.
 */
void __crpc_mem_map(struct mem_entry *e, size_t align);

#endif
