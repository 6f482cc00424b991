/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ARENA_TEST_H
#define ARENA_TEST_H

/** @file What the tests of the arena share: an arena of their own. Include it first. */

#include "shm_test.h"

#include "arena_check.h"
#include "crpc_util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * 1024)
/** Not at the start of its segment: offsets of the two differ. */
#define A_OFF UINT64_C(12288)

static struct crpc_shm *test_seg;
static struct crpc_arena *test_arena;

/** One of 0 to n - 1, of any size. */
static inline uint64_t
random_below(uint64_t *s, uint64_t n)
{
	return (rnd(s) >> 8) % n;
}

/** A segment with an arena of @p data bytes of units in it, attached. */
static inline void
test_arena_make(uint64_t data, const struct crpc_arena_conf *conf)
{
	uint64_t len = crpc_arena_size(conf, data);

	assert_true(len != 0);
	test_seg = create_as("arena", A_OFF + len, false);
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
test_arena_whole(struct arena_report *r)
{
	int rc = arena_check(test_arena, r);

	if (rc != 0)
		fail_msg("audit: %s (%llu findings)", crpc_log_last(),
				(unsigned long long)r->errors);
	assert_int_equal(r->units_claimed, 0);
	assert_int_equal(r->unhinted, 0);
}

/** The arena is whole, and no member holds anything. */
static inline void
test_arena_empty(void)
{
	struct arena_report r;

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
