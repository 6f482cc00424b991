/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory from the kernel: hugepages, transparent ones, pages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/mman.h>
#include <numaif.h>

#include "crpc_atomic.h"
#include "crpc_file.h"
#include "mem_source.h"

#define NODES_MAX 1024u
/* From here on it is asked whether there is as much. */
#define ASK_MIN    ((size_t)64 << 20)
#define GUARD_MIN  ((size_t)64 << 10)
#define WORD_BITS  (8 * sizeof(unsigned long))
#define HUGE_FLAGS (MAP_HUGETLB | MAP_HUGE_2MB)

/*
 * A page behind memory stops who writes too far. Small ones have none, so that neighbours are one
 * mapping of the kernel, which allows a process 65,530 (vm.max_map_count).
 */
static size_t
guard_of(size_t len)
{
	return len < GUARD_MIN ? 0 : (size_t)sysconf(_SC_PAGESIZE);
}

/*
 * Nothing is mapped with MAP_FIXED: where that fails, it may leave a hole, in which other threads
 * map their memory before this one gives the rest back.
 */
static char *
map(char *wish, size_t len, int prot, int flags)
{
	char *mem = mmap(wish, len, prot, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

/* Where the kernel has no policies, or a container forbids them, memory lies where it can. */
static void
prefer(char *mem, size_t len, int node, int mode)
{
	unsigned long mask[NODES_MAX / WORD_BITS] = {0};

	if (node < 0 || node >= (int)NODES_MAX)
		return;
	mask[(size_t)node / WORD_BITS] |= 1ul << ((size_t)node % WORD_BITS);
	mbind(mem, len, mode, mask, NODES_MAX + 1, 0);
}

/*
 * The kernel promises more pages than it has, and kills who touches them: ask it what it has, by
 * the name of a line of /proc/meminfo.
 */
static bool
fits(size_t len, const char *name)
{
	return len < ASK_MIN || len >> 10 < __crpc_meminfo(name);
}

uint64_t
crpc_mem_huge_free(int node)
{
	char path[96] = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
	int64_t pages;

	if (node >= 0)
		snprintf(path, sizeof(path),
			"/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/free_hugepages",
			node);
	pages = __crpc_file_number(path);
	return pages < 0 ? 0 : (uint64_t)pages * MEM_HUGE_PAGE;
}

/* A guard behind memory, where nothing is mapped yet. Its bytes, 0 if it cannot be. */
static size_t
guard_add(char *end, size_t guard)
{
	char *at = map(end, guard, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);

	if (at != NULL && at != end) /* Linux before 4.17 takes the address for a wish. */
		munmap(at, guard);
	return at == end ? guard : 0;
}

/* Sets *mapped: bytes with the guard. */
static char *
map_huge(size_t len, int node, size_t *mapped)
{
	size_t room = len + 2 * MEM_HUGE_PAGE;
	char *mem, *wish = NULL;

	if (fits(len, "MemTotal:"))
		wish = map(NULL, room, PROT_NONE, MAP_NORESERVE);
	if (wish == NULL)
		return NULL;
	/* Here a guard has room behind them, if nobody else maps meanwhile. */
	munmap(wish, room);
	wish += -(uintptr_t)wish & (MEM_HUGE_PAGE - 1);
	mem = map(wish, len, PROT_READ | PROT_WRITE, HUGE_FLAGS);
	if (mem == NULL)
		return NULL;
	prefer(mem, len, node, MPOL_BIND);
	/* What a touch would answer with SIGBUS is an error here: the node has too few. */
	if (madvise(mem, len, MADV_POPULATE_WRITE) == 0) {
		*mapped = len + guard_add(mem + len, guard_of(len));
		return mem;
	}
	munmap(mem, len);
	return NULL;
}

/* Of 2 MiB and more transparent hugepages, if the kernel has them. Sets *mapped, too. */
static char *
map_pages(size_t len, size_t align, int node, size_t *mapped)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), guard = guard_of(len), room, front;
	bool large = len >= MEM_HUGE_PAGE;
	char *base, *mem;

	align = large ? MEM_HUGE_PAGE : crpc_max(align, page);
	room = len + align - page + guard;
	base = fits(len, "MemAvailable:") ? map(NULL, room, PROT_READ | PROT_WRITE, 0) : NULL;
	if (base == NULL)
		return NULL;
	front = -(uintptr_t)base & (align - 1);
	mem = base + front;
	*mapped = len + guard;
	if (front != 0)
		munmap(base, front);
	if (front + *mapped != room)
		munmap(mem + *mapped, room - front - *mapped);
	if (guard != 0)
		mprotect(mem + len, guard, PROT_NONE);
	prefer(mem, len, node, MPOL_PREFERRED);
	if (large)
		madvise(mem, len, MADV_HUGEPAGE);
	if (madvise(mem, len, MADV_POPULATE_WRITE) == 0)
		return mem;
	if (errno == EINVAL) /* Linux before 5.14 */
		return memset(mem, 0, len);
	munmap(mem, *mapped);
	return NULL;
}

/* Where the next one begins in its page. */
static size_t
colour(size_t page)
{
	static _Atomic uint32_t next;

	return crpc_fetch_add_relaxed(&next, 1) * (size_t)CRPC_CACHE_GUARD % page;
}

void
__crpc_mem_map(struct mem_entry *e, size_t align)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), at = 0;
	size_t len = crpc_align_up(e->size, MEM_HUGE_PAGE);
	char *mem = NULL;

	if (e->size >= MEM_HUGE_PAGE / 2)
		mem = map_huge(len, e->at.node, &e->map_len);
	if (mem == NULL) {
		at = align <= CRPC_CACHE_GUARD && e->size < MEM_HUGE_PAGE / 2 ? colour(page) : 0;
		len = crpc_align_up(e->size + at, page);
		mem = map_pages(len, align, e->at.node, &e->map_len);
	}
	if (mem == NULL)
		return;
	e->map = mem;
	e->mem = mem + at;
}
