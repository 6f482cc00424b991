/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a block of shared memory costs: from the kernel (shm_open, ftruncate, mmap, the first touch
 * of each page, and the way back), and from an arena. The figure of a slice is the middle of its
 * samples; a sample is one call of the kernel's, or a batch of allocations.
 */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_malloc.h>

#include "app_fail.h"
#include "crpc_arena.h"
#include "crpc_log.h"
#include "shmbench.h"

#define SAMPLES_MAX 4096u
#define BATCH_MAX   64u
#define BATCH_BYTES (UINT64_C(32) << 20)
#define ARENA_OFF   4096u
/* A batch of a method that needs no system call is some microseconds: so many give a middle. */
#define BATCHES_MIN 32u

enum { OPEN, TRUNCATE, MAP, TOUCH, CLEANUP, THREE, CALLS };

static const char *const call_names[CALLS] = {
	"shm_open", "ftruncate", "mmap", "touch", "cleanup", "three_calls"};

struct allocation {
	const struct sb_opt *o;
	struct crpc_shm *seg;
	struct crpc_arena *arena;
	struct crpc_arena_cache *cache;
	struct sb_point point;
	struct sb_series *call[CALLS];
	struct sb_series *arena_alloc, *arena_free, *malloc, *rte_malloc;
	double sample[CALLS][SAMPLES_MAX];
	uint32_t n; /* samples of this slice */
	char name[64];
	void *block[BATCH_MAX];
	uint64_t ref[BATCH_MAX];
};

void
sb_allocation_sweep(void)
{
	glob_t found;
	char end;
	int pid;

	glob("/dev/shm/shmbench.*", 0, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++)
		if (sscanf(found.gl_pathv[i], "/dev/shm/shmbench.%d%c", &pid, &end) == 1 &&
			pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
			unlink(found.gl_pathv[i]);
	globfree(&found);
}

static double
ns_between(uint64_t begin, uint64_t end)
{
	return (double)crpc_clock_ticks_to_ns(end - begin);
}

static int
kernel_failed(const struct allocation *a, int fd, const char *call)
{
	int rc = errno;

	if (fd >= 0)
		close(fd);
	shm_unlink(a->name);
	return app_fail("%s of %lu bytes (%s): %s; give a smaller --size", call,
		(unsigned long)a->point.size, a->name, strerror(rc));
}

/* One block from the kernel and back; t[i] is when step i was done. */
static int
kernel_once(struct allocation *a, uint64_t t[CALLS])
{
	uint64_t size = a->point.size, page = a->point.page_size;
	char *p;
	int fd;

	t[OPEN] = crpc_clock_ticks();
	fd = shm_open(a->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	t[TRUNCATE] = crpc_clock_ticks();
	if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
		return kernel_failed(a, fd, fd < 0 ? "shm_open" : "ftruncate");
	t[MAP] = crpc_clock_ticks();
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	t[TOUCH] = crpc_clock_ticks();
	if (p == MAP_FAILED)
		return kernel_failed(a, fd, "mmap");
	for (uint64_t off = 0; off < size; off += page)
		p[off] = 1;
	t[CLEANUP] = crpc_clock_ticks();
	munmap(p, size);
	close(fd);
	shm_unlink(a->name);
	t[THREE] = crpc_clock_ticks();
	return 0;
}

static int
kernel_slice(struct allocation *a, uint64_t n)
{
	uint64_t t[CALLS] = {0};
	int rc = 0;

	for (a->n = 0; a->n < n && rc == 0; a->n++) {
		rc = kernel_once(a, t);
		for (int i = 0; i < THREE; i++)
			a->sample[i][a->n] = ns_between(t[i], t[i + 1]);
		a->sample[THREE][a->n] = ns_between(t[OPEN], t[TOUCH]);
	}
	if (rc != 0)
		return rc;
	for (int i = 0; i < CALLS; i++)
		sb_series_put(a->call[i], app_median(a->sample[i], a->n));
	return 0;
}

static uint64_t
batch_of(uint64_t size)
{
	return crpc_max(crpc_min(BATCH_BYTES / size, BATCH_MAX), 1);
}

/* A batch of allocations, then a batch of frees. */
static int
arena_slice(struct allocation *a, uint64_t batches)
{
	uint64_t size = a->point.size, batch = batch_of(size), t[3];
	int rc = 0;

	for (a->n = 0; a->n < batches; a->n++) {
		t[0] = crpc_clock_ticks();
		for (uint64_t i = 0; i < batch; i++)
			a->block[i] = crpc_arena_alloc(a->cache, size, &a->ref[i]);
		t[1] = crpc_clock_ticks();
		if (a->block[batch - 1] == NULL)
			return app_fail("the arena has no block of %lu bytes: %s",
				(unsigned long)size, strerror(errno));
		for (uint64_t i = 0; i < batch; i++)
			rc |= crpc_arena_free(a->cache, a->ref[i]);
		t[2] = crpc_clock_ticks();
		if (rc != 0)
			return app_fail("the arena does not take a block of %lu bytes back",
				(unsigned long)size);
		a->sample[0][a->n] = ns_between(t[0], t[1]) / (double)batch;
		a->sample[1][a->n] = ns_between(t[1], t[2]) / (double)batch;
	}
	sb_series_put(a->arena_alloc, app_median(a->sample[0], a->n));
	sb_series_put(a->arena_free, app_median(a->sample[1], a->n));
	return 0;
}

/* Private memory, for comparison: allocations of malloc, or of DPDK's heap. */
static int
private_slice(struct allocation *a, struct sb_series *s, uint64_t batches)
{
	uint64_t size = a->point.size, batch = batch_of(size), t0, t1;
	bool dpdk = s == a->rte_malloc;

	for (a->n = 0; a->n < batches; a->n++) {
		t0 = crpc_clock_ticks();
		for (uint64_t i = 0; i < batch; i++)
			a->block[i] = dpdk ? rte_malloc(NULL, size, 64) : malloc(size);
		t1 = crpc_clock_ticks();
		if (a->block[batch - 1] == NULL)
			return app_fail("%s has no %lu blocks of %lu bytes; give more with -m "
					"before the --",
				s->method, (unsigned long)batch, (unsigned long)size);
		for (uint64_t i = 0; i < batch; i++) {
			/* The compiler must not see that the block is not used. */
			__asm__ __volatile__("" : : "r"(a->block[i]) : "memory");
			if (dpdk)
				rte_free(a->block[i]);
			else
				free(a->block[i]);
		}
		a->sample[0][a->n] = ns_between(t0, t1) / (double)batch;
	}
	sb_series_put(s, app_median(a->sample[0], a->n));
	return 0;
}

static void
methods_add(struct allocation *a)
{
	for (int i = 0; i < CALLS; i++)
		a->call[i] = sb_point_add(&a->point, call_names[i], "kernel");
	a->arena_alloc = sb_point_add(&a->point, "arena_alloc", "segment");
	a->arena_alloc->other = a->call[THREE];
	a->arena_alloc->ratio = "ratio_three_calls";
	a->arena_free = sb_point_add(&a->point, "arena_free", "segment");
	a->malloc = sb_point_add(&a->point, "malloc", "private");
	a->rte_malloc = a->o->eal ? sb_point_add(&a->point, "rte_malloc", "private") : NULL;
}

static int
round_run(struct allocation *a)
{
	uint64_t n = crpc_max(a->o->count / a->o->repeat, 1), batches;
	int rc;

	n = crpc_min(n, SAMPLES_MAX);
	batches = crpc_min(crpc_max(n, BATCHES_MIN), SAMPLES_MAX);
	rc = kernel_slice(a, n);
	if (rc == 0)
		rc = arena_slice(a, batches);
	if (rc == 0)
		rc = private_slice(a, a->malloc, batches);
	if (rc == 0 && a->rte_malloc != NULL)
		rc = private_slice(a, a->rte_malloc, batches);
	return rc;
}

static int
size_run(struct allocation *a, struct app_out *out, uint64_t size)
{
	int rc = 0;

	sb_point_begin(&a->point, a->o, size, 1);
	a->point.page_size = (uint64_t)sysconf(_SC_PAGESIZE);
	methods_add(a);
	/* The first round warms the caches of the kernel, the arena and the heaps. */
	rc = round_run(a);
	for (uint64_t round = 0; round < a->point.nseries; round++)
		a->point.series[round].value.n = 0;
	for (uint64_t round = 0; round < a->o->repeat && rc == 0 && app_stopped() == 0; round++)
		rc = round_run(a);
	if (rc != 0)
		return rc;
	return a->arena_alloc->value.n != 0 ? sb_point_end(&a->point, out) : 0;
}

/* A segment whose arena has room for a batch of the largest blocks, all of them in our cache. */
static int
arena_open(struct allocation *a, uint64_t largest)
{
	uint64_t bytes = crpc_max(4 * largest, 4 * BATCH_BYTES);
	const struct crpc_arena_conf conf = {
		.max_members = 1, .max_block = crpc_max(largest, UINT64_C(1) << 20)};
	const struct crpc_arena_join_conf join = {.cache_bytes = bytes};
	size_t len = crpc_arena_size(&conf, bytes);

	a->seg = sb_segment(ARENA_OFF + len, true, false);
	if (a->seg == NULL)
		return app_fail("%s; give a smaller --size", crpc_log_last());
	if (crpc_arena_format(a->seg, ARENA_OFF, len, &conf) != 0)
		return app_fail("%s", crpc_log_last());
	crpc_shm_ready(a->seg);
	a->arena = crpc_arena_attach(a->seg, ARENA_OFF);
	if (a->arena != NULL)
		a->cache = crpc_arena_join(a->arena, &join);
	return a->cache != NULL ? 0 : app_fail("%s", crpc_log_last());
}

int
sb_allocation(const struct sb_opt *o, struct app_out *out)
{
	static struct allocation a;
	int rc;

	memset(&a, 0, sizeof(a));
	a.o = o;
	snprintf(a.name, sizeof(a.name), "/shmbench.%d", (int)getpid());
	rc = arena_open(&a, app_list_max(&o->sizes));
	for (uint32_t i = 0; rc == 0 && i < o->sizes.n && app_stopped() == 0; i++)
		rc = size_run(&a, out, o->sizes.v[i]);
	crpc_arena_leave(a.cache);
	crpc_arena_detach(a.arena);
	crpc_shm_free(a.seg);
	return rc;
}
