/* SPDX-License-Identifier: BSD-3-Clause */
/* What each part lies on: the kernel is asked, not what was asked of it. */
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <numaif.h>

#include "crpc_log.h"
#include "mem_source.h"

/* A mapping of /proc/self/smaps. */
struct mapping {
	uintptr_t from, to;
	size_t page_size, thp_bytes;
};

/* The next mapping; false: there is none. */
static bool
mapping_next(FILE *f, struct mapping *m)
{
	char line[512];
	size_t kib;

	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &m->from, &m->to) == 2)
			continue;
		if (sscanf(line, "KernelPageSize: %zu", &kib) == 1)
			m->page_size = kib << 10;
		else if (sscanf(line, "AnonHugePages: %zu", &kib) == 1)
			m->thp_bytes = kib << 10;
		else if (sscanf(line, "ShmemPmdMapped: %zu", &kib) == 1)
			m->thp_bytes += kib << 10;
		else if (strncmp(line, "VmFlags:", 8) == 0)
			return true;
	}
	return false;
}

static int
node_of(void *mem)
{
	int node;

	return get_mempolicy(&node, NULL, 0, mem, MPOL_F_NODE | MPOL_F_ADDR) == 0 ? node : -1;
}

/* What is known of one allocation; f and *m stand at or before it. */
static struct crpc_mem_part
part_of(const struct mem_entry *e, FILE *f, struct mapping *m)
{
	struct crpc_mem_part part = {.name = e->name,
		.count = 1,
		.bytes = e->size,
		.node = node_of(e->mem),
		.lcore = e->at.lcore};

	while (f != NULL && m->to <= (uintptr_t)e->mem && mapping_next(f, m))
		;
	if (m->from <= (uintptr_t)e->mem && m->to > (uintptr_t)e->mem) {
		part.page_size = m->page_size;
		part.thp_bytes = crpc_min(m->thp_bytes, e->size);
	}
	return part;
}

static bool
alike(const struct crpc_mem_part *a, const struct crpc_mem_part *b)
{
	return strcmp(a->name, b->name) == 0 && a->page_size == b->page_size &&
		a->node == b->node && a->lcore == b->lcore;
}

/* What a walk has: as many parts as there are alike, in an array as long as there are entries. */
struct walk {
	FILE *f;
	struct mapping m;
	struct crpc_mem_part *part;
	uint32_t n;
};

/* The next entry in order of addresses, under the lock. */
static void
entry_take(const void *node, VISIT visit, void *arg)
{
	struct walk *w = arg;
	struct crpc_mem_part one;
	uint32_t k = 0;

	if (visit != postorder && visit != leaf)
		return;
	one = part_of(*(struct mem_entry *const *)node, w->f, &w->m);
	while (k < w->n && !alike(&w->part[k], &one))
		k++;
	if (k == w->n) {
		w->part[w->n++] = one;
		return;
	}
	w->part[k].count++;
	w->part[k].bytes += one.bytes;
	w->part[k].thp_bytes += one.thp_bytes;
}

int
crpc_mem_walk(void (*fn)(const struct crpc_mem_part *part, void *arg), void *arg)
{
	struct mem_table *t = &__crpc_mem_table;
	struct walk w = {.f = fopen("/proc/self/smaps", "re")};

	pthread_mutex_lock(&t->lock);
	w.part = calloc(t->n + 1, sizeof(*w.part));
	if (w.part != NULL)
		twalk_r(t->root, entry_take, &w);
	pthread_mutex_unlock(&t->lock);
	if (w.f != NULL)
		fclose(w.f);
	if (w.part == NULL)
		return crpc_fail(-ENOMEM, "no memory for the list of parts");
	for (uint32_t i = 0; i < w.n; i++)
		fn(&w.part[i], arg);
	free(w.part);
	return 0;
}
