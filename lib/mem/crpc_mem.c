/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of parts, and where each comes from. */
#include <errno.h>
#include <sched.h>
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

/* The first entry at mem or behind it, under the lock. */
static uint32_t
entry_find(const struct mem_table *t, const char *mem)
{
	uint32_t low = 0, high = t->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (t->entry[mid].mem < mem)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int
entry_add(struct mem_table *t, const struct mem_entry *e)
{
	struct mem_entry *entry;
	uint32_t max, at;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	if (t->n == t->max) {
		max = (uint32_t)crpc_max(2 * t->n, 64);
		entry = realloc(t->entry, max * sizeof(*entry));
		if (entry == NULL) {
			rc = -ENOMEM;
			goto unlock;
		}
		t->entry = entry;
		t->max = max;
	}
	at = entry_find(t, e->mem);
	memmove(&t->entry[at + 1], &t->entry[at], (t->n - at) * sizeof(*e));
	t->entry[at] = *e;
	t->n++;
unlock:
	pthread_mutex_unlock(&t->lock);
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
	if (e.source != NULL)
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
	struct mem_entry e = {.mem = NULL};
	uint32_t at;

	if (mem == NULL)
		return;
	pthread_mutex_lock(&t->lock);
	at = entry_find(t, mem);
	if (at < t->n && t->entry[at].mem == mem) {
		e = t->entry[at];
		memmove(&t->entry[at], &t->entry[at + 1], (--t->n - at) * sizeof(e));
	}
	pthread_mutex_unlock(&t->lock);
	if (e.mem == NULL)
		crpc_err("%p: is no memory of crpc_mem_alloc(), or was freed; left alone", mem);
	else
		entry_release(&e);
}
