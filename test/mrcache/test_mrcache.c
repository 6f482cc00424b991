/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of registrations, on a fake device. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_mrcache.h"
#include "crpc_paper_nic.h"
#include "rnd.h"

static uint64_t seed = 88172645463325252u;

struct cache {
	struct crpc_paper w;
	struct crpc_rdma *dev;
	struct crpc_mrcache *c;
	uint8_t *mem;
};

#define MEM (1u << 20)

static void
cache_make(struct cache *k, uint32_t regions, uint64_t bytes)
{
	struct crpc_mrcache_conf conf = {.max_regions = regions, .max_bytes = bytes};

	memset(k, 0, sizeof(*k));
	k->dev = conf.dev = crpc_paper_open(&k->w, &(struct crpc_paper_conf){.inline_max = 64});
	k->c = crpc_mrcache_create(&conf);
	assert_non_null(k->c);
	k->mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(k->mem, MAP_FAILED);
}

static void
cache_free(struct cache *k)
{
	crpc_mrcache_free(k->c);
	crpc_rdma_close(k->dev);
	munmap(k->mem, MEM);
}

/* A range is registered once, in whole pages; what lies in it is found. */
TEST(cache_finds_what_it_has)
{
	const struct crpc_rdma_mr *a, *b;
	struct cache k;

	cache_make(&k, 0, 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 5000, 10000, &a), 0);
	assert_ptr_equal(a->addr, k.mem + 4096);
	assert_int_equal(a->len, 3 * 4096);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4096, 3 * 4096, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 9999, 1, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(crpc_mrcache_stats(k.c)->misses, 1);
	assert_int_equal(crpc_mrcache_stats(k.c)->hits, 2);
	assert_int_equal(crpc_mrcache_stats(k.c)->users, 3);
	/* the neighbour is another region; what overlaps both replaces both */
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4 * 4096, 100, &b), 0);
	assert_ptr_not_equal(a, b);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4 * 4096 - 10, 20, &b), 0);
	assert_ptr_equal(b->addr, k.mem + 4096);
	assert_int_equal(b->len, 4 * 4096);
	assert_int_equal(crpc_mrcache_stats(k.c)->merges, 2);
	/* the old ones are in use, and still valid */
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 3);
	crpc_mrcache_put(k.c, a);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 3);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 2);
	assert_int_equal(crpc_mrcache_get(k.c, NULL, 5, &a), -EINVAL);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 0, &a), -EINVAL);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, UINT64_MAX - 5, &a), -EINVAL);
	cache_free(&k);
}

/* Full: the least recently used goes; those in use stay. */
TEST(cache_is_bounded)
{
	const struct crpc_rdma_mr *mr[5];
	struct cache k;

	cache_make(&k, 4, 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 100, &mr[4]), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(crpc_mrcache_get(k.c, k.mem + i * 8192, 100, &mr[i]), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 100, &mr[3]), -ENOSPC);
	crpc_mrcache_put(k.c, mr[1]);
	crpc_mrcache_put(k.c, mr[0]);
	/* 0 was given before 1 */
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 100, &mr[3]), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->evictions, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 8192, 100, &mr[1]), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->hits, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 100, &mr[0]), -ENOSPC);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 50, &mr[4]), 0);
	cache_free(&k);

	cache_make(&k, 0, 64 << 10);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 65537, &mr[0]), -ENOSPC);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 40000, &mr[0]), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 40000, &mr[1]), -ENOSPC);
	crpc_mrcache_put(k.c, mr[0]);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 40000, &mr[1]), 0);
	cache_free(&k);
}

/* Invalidated: it is given out no more, and its users keep it until put. */
TEST(cache_forgets_what_is_unmapped)
{
	const struct crpc_rdma_mr *a, *b;
	struct cache k;

	cache_make(&k, 0, 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 5000, &a), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 5000, &b), 0);
	crpc_mrcache_put(k.c, b);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem + 0x80000, 4096), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 2);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), -EBUSY);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 100, &b), 0);
	assert_ptr_not_equal(a, b);
	crpc_mrcache_put(k.c, b);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), -EBUSY);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 0);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), 0);
	cache_free(&k);
}

/* In a mapping that may be of huge pages all of a huge page is one region; in others it is not. */
TEST(cache_widens_to_huge_pages)
{
	const uint64_t huge = 2u << 20;
	const struct crpc_rdma_mr *mr;
	uint8_t *place, *at;
	struct cache k;
	int fd = memfd_create("bulk_huge", 0);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(2 * huge)), 0);
	for (int i = 0; i < 2; i++) {
		cache_make(&k, 0, 0);
		place = mmap(NULL, 4 * huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(place, MAP_FAILED);
		at = (uint8_t *)(uintptr_t)crpc_align_up((uintptr_t)place, huge);
		at = mmap(at, 2 * huge - (i ? 4096 : 0), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_FIXED, fd, 0);
		assert_ptr_not_equal(at, MAP_FAILED);
		assert_int_equal(crpc_mrcache_get(k.c, at + huge + 5000, 10, &mr), 0);
		assert_ptr_equal(mr->addr, at + huge + (i ? 4096 : 0));
		assert_int_equal(mr->len, i ? 4096 : huge);
		cache_free(&k);
		munmap(place, 4 * huge);
	}
	close(fd);
}

/* Random use against a model of users: what is given covers what was asked, and all ends even. */
TEST(cache_survives_random_use)
{
	const struct crpc_rdma_mr *mr[64];
	uint32_t i, at, len, n = 0, victim;
	struct cache k;

	cache_make(&k, 12, 700 << 10);
	for (i = 0; i < 4000; i++) {
		at = rnd_below(&seed, MEM - 1);
		len = 1 +
			rnd_below(&seed,
				(uint32_t)crpc_min(MEM - at, rnd_below(&seed, 4) ? 20000 : 200000));
		if (n < 64 && rnd_below(&seed, 2) &&
			crpc_mrcache_get(k.c, k.mem + at, len, &mr[n]) == 0) {
			assert_true((uint8_t *)mr[n]->addr <= k.mem + at);
			assert_true((uint8_t *)mr[n]->addr + mr[n]->len >= k.mem + at + len);
			n++;
		} else if (n != 0) {
			victim = rnd_below(&seed, n);
			crpc_mrcache_put(k.c, mr[victim]);
			mr[victim] = mr[--n];
		}
		if (rnd_below(&seed, 50) == 0)
			crpc_mrcache_invalidate(k.c, k.mem + at, len);
		assert_int_equal(crpc_mrcache_stats(k.c)->users, n);
	}
	while (n-- != 0)
		crpc_mrcache_put(k.c, mr[n]);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->bytes, 0);
	cache_free(&k);
}

TEST_MAIN(NULL, NULL)
