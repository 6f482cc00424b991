/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ARENA_TEST_H
#define ARENA_TEST_H

/** @file What the tests of the arena share: an arena of their own in a directory of their own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crpc_arena.h"
#include "crpc_log.h"

#define KIND  CRPC_SHM_KIND('T', 'E', 'S', 'T')
#define KIB   UINT64_C(1024)
#define MIB   (UINT64_C(1024) * 1024)
/** Not at the start of its segment: offsets of the two differ. */
#define A_OFF UINT64_C(12288)

static char test_dir[64];
static struct crpc_shm *test_seg;
static struct crpc_arena *test_arena;

/** The test's own random numbers, so that a seed repeats a run: xorshift64*. */
static inline uint64_t
test_random(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

/** SEED in the environment, or a new one; printed when a test starts that uses it. */
static inline uint64_t
test_seed(void)
{
	const char *env = getenv("SEED");
	uint64_t seed = env != NULL ? strtoull(env, NULL, 0)
				    : ((uint64_t)getpid() << 32 | (uint32_t)clock()) | 1;

	print_message("seed %#llx (SEED=... repeats it)\n", (unsigned long long)seed);
	return seed == 0 ? 1 : seed;
}

static inline int
test_dir_make(void **state)
{
	(void)state;
	snprintf(test_dir, sizeof(test_dir), "/dev/shm/crpc_arena_XXXXXX");
	return mkdtemp(test_dir) == NULL;
}

static inline int
test_dir_remove(void **state)
{
	(void)state;
	return rmdir(test_dir);
}

/** A segment with an arena of @p data bytes of units in it, attached. */
static inline void
test_arena_make(uint64_t data, const struct crpc_arena_conf *conf)
{
	uint64_t len = crpc_arena_size(conf, data);
	struct crpc_shm_conf seg = {.name = "arena",
			.dir = test_dir,
			.size = A_OFF + len,
			.kind = KIND,
			.kind_version = 1};

	assert_true(len != 0);
	test_seg = crpc_shm_create(&seg);
	assert_non_null(test_seg);
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, len, conf), 0);
	crpc_shm_ready(test_seg);
	test_arena = crpc_arena_attach(test_seg, A_OFF);
	assert_non_null(test_arena);
}

static inline void
test_arena_remove(void)
{
	crpc_arena_detach(test_arena);
	crpc_shm_free(test_seg);
	test_arena = NULL;
	test_seg = NULL;
}

/** The arena is whole; what it holds is in *r. */
static inline void
test_arena_whole(struct crpc_arena_report *r)
{
	int rc = crpc_arena_check(test_arena, r);

	if (rc != 0)
		fail_msg("audit: %s (%llu findings)", crpc_log_last(),
				(unsigned long long)r->errors);
	assert_int_equal(r->units_claimed, 0);
	assert_int_equal(r->unhinted, 0);
}

/** The arena is whole, and nobody holds anything. */
static inline void
test_arena_empty(void)
{
	struct crpc_arena_report r;

	test_arena_whole(&r);
	assert_int_equal(r.members, 0);
	assert_int_equal(r.blocks_allocated + r.blocks_cached + r.blocks_transit, 0);
}

static inline struct crpc_arena_cache *
test_join(uint64_t limit, uint64_t cache_bytes)
{
	struct crpc_arena_join_conf conf = {.limit = limit, .cache_bytes = cache_bytes};
	struct crpc_arena_cache *c = crpc_arena_join(test_arena, &conf);

	if (c == NULL)
		fail_msg("join: %s", crpc_log_last());
	return c;
}

#endif
