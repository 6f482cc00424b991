/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What takes two members at one moment, made to happen: the second acts while the first stands
 * between two steps. Each test is a look at a span that is not the same span any more when the
 * first goes on: it was taken apart and its unit cut for another class. Then the first must not get
 * anything there.
 */
#include "arena_work.h"

#include "crash.h"
#include "shm_arena.h"

#define BIG   (64 * KIB) /* the span that is looked at: one block */
#define SMALL (16 * KIB) /* what it becomes: four */

static struct crpc_arena_cache *first, *second;
static uint64_t big[2], small[4];
static bool acted;
static uint32_t spare; /* which of the small ones is free */

/* Two units, one of them in use for good; nothing is cached. */
static int
setup(void **state)
{
	const struct crpc_arena_conf conf = {.max_members = 4, .max_block = BIG};

	test_arena_make(2 * BIG, &conf);
	first = test_join(0, 1);
	second = test_join(0, 1);
	acted = false;
	spare = 0;
	assert_non_null(crpc_arena_alloc(second, BIG, &big[0]));
	assert_non_null(crpc_arena_alloc(second, BIG, &big[1]));
	work_mark(big[0]);
	return 0;
}

static int
teardown(void **state)
{
	struct arena_report r;

	assert_true(acted);
	test_arena_whole(&r);
	assert_true(work_marked(big[0]));
	crpc_arena_leave(first);
	crpc_arena_leave(second);
	test_arena_empty();
	test_arena_remove();
	return 0;
}

static uint32_t
unit_of(uint64_t ref)
{
	return arena_ref_unit(test_arena, ref);
}

/* Whoever looks there now has an old hint. */
static void
hint(uint64_t size, uint64_t ref)
{
	arena_hint_set(test_arena, test_arena->l.raw_class[arena_raw_of(size)], unit_of(ref));
}

/* The big block's unit becomes four small ones; one of them is free, the others are held. */
static void
second_recuts(void)
{
	hint(BIG, big[1]);
	for (uint32_t i = 0; i < 4; i++) {
		assert_non_null(crpc_arena_alloc(second, SMALL, &small[i]));
		assert_int_equal(unit_of(small[i]), unit_of(big[1]));
		work_mark(small[i]);
	}
	assert_int_equal(crpc_arena_free(second, small[spare]), 0);
	acted = true;
}

static void
second_frees_and_recuts(void)
{
	assert_int_equal(crpc_arena_free(second, big[1]), 0);
	second_recuts();
}

/* What the second holds was not touched, and there is no room for a big block. */
static void
first_got_nothing(void)
{
	uint64_t ref;

	for (uint32_t i = 0; i < 4; i++)
		assert_true(i == spare || work_marked(small[i]));
	assert_null(crpc_arena_alloc(first, BIG, &ref));
	assert_int_equal(errno, ENOMEM);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(crpc_arena_free(second, small[i]), i == spare ? -ESTALE : 0);
	/* All free: now there is. */
	assert_non_null(crpc_arena_alloc(first, BIG, &ref));
	assert_int_equal(crpc_arena_free(first, ref), 0);
}

/* Filling: recut after its unit's word was read, before a block's. */
TEST_FIXTURE(a_span_is_recut_before_its_block_is_looked_at, setup, teardown)
{
	uint64_t ref;

	hint(BIG, big[1]);
	crpc_crash_call("arena.fill.2", second_frees_and_recuts);
	assert_null(crpc_arena_alloc(first, BIG, &ref));
	first_got_nothing();
}

/* Filling: recut after the block was seen free, before it is claimed. */
TEST_FIXTURE(a_span_is_recut_before_its_block_is_claimed, setup, teardown)
{
	uint64_t ref;

	assert_int_equal(crpc_arena_free(second, big[1]), 0);
	crpc_crash_call("arena.block.1", second_recuts);
	assert_null(crpc_arena_alloc(first, BIG, &ref));
	first_got_nothing();
}

/* Taking apart: recut by somebody else who was faster. The first wants 4 KiB. */
TEST_FIXTURE(a_span_is_recut_before_it_is_taken_apart, setup, teardown)
{
	uint64_t ref;

	assert_int_equal(crpc_arena_free(second, big[1]), 0);
	crpc_crash_call("arena.trim.1", second_recuts);
	assert_null(crpc_arena_alloc(first, 4 * KIB, &ref));
	first_got_nothing();
}

/* Taking: the giver revokes and frees it, and its unit is recut. */
static void
second_revokes_and_recuts(void)
{
	assert_int_equal(crpc_arena_revoke(second, big[1]), 0);
	second_frees_and_recuts();
}

TEST_FIXTURE(a_block_is_revoked_before_it_is_taken, setup, teardown)
{
	assert_int_equal(crpc_arena_give(second, big[1], crpc_arena_member(first)), 0);
	crpc_crash_call("arena.take.1", second_revokes_and_recuts);
	assert_int_equal(crpc_arena_take(first, big[1], 0, NULL, NULL), -ESTALE);
	first_got_nothing();
}

/* Sweeping: while its receiver leaves, the giver revokes a block, and its unit is recut. */
TEST_FIXTURE(a_block_is_revoked_before_it_is_swept, setup, teardown)
{
	assert_int_equal(crpc_arena_give(second, big[1], crpc_arena_member(first)), 0);
	spare = 3;
	crpc_crash_call("arena.sweep.1", second_revokes_and_recuts);
	crpc_arena_leave(first);
	first = test_join(0, 1);
	first_got_nothing();
}

/* Leaving: behind the first's sweep the second gives it a block, and leaves, too. */
static void
second_gives_and_leaves(void)
{
	assert_int_equal(crpc_arena_give(second, big[1], crpc_arena_member(first)), 0);
	crpc_arena_leave(second);
	acted = true;
}

TEST_FIXTURE(a_block_is_given_to_who_has_swept, setup, NULL)
{
	crpc_crash_call("arena.leave.3", second_gives_and_leaves);
	crpc_arena_leave(first);
	assert_true(acted);
	test_arena_empty();
	test_arena_remove();
}

/* The same, if the second has seen that the first stays and stands before its swap. */
static void
first_leaves(void)
{
	crpc_arena_leave(first);
	acted = true;
}

TEST_FIXTURE(a_block_is_handed_to_who_has_left, setup, NULL)
{
	assert_int_equal(crpc_arena_free(second, big[0]), 0);
	assert_int_equal(crpc_arena_give(second, big[1], crpc_arena_member(first)), 0);
	crpc_crash_call("arena.sweep.1", first_leaves);
	crpc_arena_leave(second);
	assert_true(acted);
	test_arena_empty();
	test_arena_remove();
}

TEST_MAIN(make_dir, remove_dir)
