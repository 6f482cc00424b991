/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of parts, and where each comes from. */
#include <errno.h>
#include <sched.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "crpc_atomic.h"
#include "crpc_log.h"
#include "mem_source.h"

struct mem_table __crpc_mem_table = {.lock = PTHREAD_MUTEX_INITIALIZER};
static const struct mem_source *_Atomic source;
static _Thread_local struct {
	bool set;
	struct crpc_mem_place at;
} here;

void
__crpc_mem_source_set(const struct mem_source *s)
{
	crpc_store_release(&source, s); /* R0 */
}

struct crpc_mem_place
crpc_mem_here(void)
{
	const struct mem_source *s = crpc_load_acquire(&source); /* A0 pairs with R0 */
	struct crpc_mem_place at = {.node = -1, .lcore = -1};
	unsigned int node;

	if (here.set)
		return here.at;
	if (s != NULL)
		at = s->here();
	if (at.node < 0 && getcpu(NULL, &node) == 0)
		at.node = (int)node;
	return at;
}

void
crpc_mem_here_set(const struct crpc_mem_place *at)
{
	here.set = at != NULL;
	if (at != NULL)
		here.at = *at;
}

static int
entry_compare(const void *a, const void *b)
{
	const struct mem_entry *x = a, *y = b;

	return x->mem < y->mem ? -1 : x->mem > y->mem;
}

static int
entry_add(struct mem_table *t, const struct mem_entry *e)
{
	struct mem_entry *entry = malloc(sizeof(*entry)), **node;
	int rc;

	if (entry == NULL)
		return -ENOMEM;
	*entry = *e;
	pthread_mutex_lock(&t->lock);
	node = tsearch(entry, &t->root, entry_compare);
	rc = node != NULL ? 0 : -ENOMEM;
	if (rc == 0 && *node == entry) {
		entry = NULL; /* the tree's */
		t->n++;
	} else if (rc == 0) {
		**node = *e; /* what was there has gone without a word */
	}
	pthread_mutex_unlock(&t->lock);
	free(entry);
	return rc;
}

static void
entry_release(const struct mem_entry *e)
{
	if (e->map == NULL && e->source != NULL)
		e->source->free(e->mem);
	else if (e->map != NULL)
		munmap(e->map, e->map_len);
}

void *
crpc_mem_alloc(const char *name, size_t size, size_t align, const struct crpc_mem_place *at)
{
	struct mem_entry e = {.name = name,
		.size = size,
		.source = crpc_load_acquire(&source), /* A0 pairs with R0 */
		.at = at != NULL ? *at : crpc_mem_here()};

	if (size == 0 || size > PTRDIFF_MAX / 2 || !crpc_is_pow2(align) || align > MEM_HUGE_PAGE)
		return crpc_null(crpc_fail(-EINVAL,
			"%s: %zu bytes aligned to %zu; expected 1 to %zu, and a power of two up "
			"to %zu",
			name, size, align, (size_t)PTRDIFF_MAX / 2, MEM_HUGE_PAGE));
	if (e.source != NULL && e.source->alloc != NULL)
		e.mem = e.source->alloc(name, size, align, e.at.node);
	if (e.mem == NULL)
		__crpc_mem_map(&e, align);
	if (e.mem != NULL && entry_add(&__crpc_mem_table, &e) == 0)
		return e.mem;
	if (e.mem != NULL)
		entry_release(&e);
	return crpc_null(crpc_fail(-ENOMEM,
		"%s: no memory for %zu bytes on node %d; free some, or "
		"ask for less",
		name, size, e.at.node));
}

int
crpc_mem_note(const char *name, void *mem, size_t size)
{
	struct mem_entry e = {.name = name, .mem = mem, .size = size, .at = crpc_mem_here()};

	return entry_add(&__crpc_mem_table, &e);
}

void
crpc_mem_free(void *mem)
{
	struct mem_table *t = &__crpc_mem_table;
	const struct mem_entry key = {.mem = mem};
	struct mem_entry **node, *e = NULL;

	if (mem == NULL)
		return;
	pthread_mutex_lock(&t->lock);
	node = tfind(&key, &t->root, entry_compare);
	if (node != NULL) {
		e = *node;
		tdelete(&key, &t->root, entry_compare);
		t->n--;
	}
	pthread_mutex_unlock(&t->lock);
	if (e == NULL)
		crpc_err("%p: is no memory of crpc_mem_alloc(), or was freed; left alone", mem);
	else
		entry_release(e);
	free(e);
}
