/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena, call by call: sizes and places of blocks, every wrong use with an error of its own and
 * without effect, hands that change, limits, and that memory comes back from wherever it is.
 */
#include "arena_test.h"

#define DATA (4 * MIB)

static int
setup(void **state)
{
	const struct crpc_arena_conf conf = {.max_members = 8};

	test_arena_make(DATA, &conf);
	return 0;
}

/* The three members of most tests. */
static struct crpc_arena_cache *c1, *c2, *c3;

static int
setup_members(void **state)
{
	setup(state);
	c1 = test_join(0, 0);
	c2 = test_join(0, 0);
	c3 = test_join(0, 0);
	return 0;
}

static int
teardown(void **state)
{
	crpc_arena_leave(c1);
	crpc_arena_leave(c2);
	crpc_arena_leave(c3);
	c1 = c2 = c3 = NULL;
	test_arena_empty();
	test_arena_remove();
	return 0;
}

/* ---- sizes ---- */

TEST_FIXTURE(a_size_gets_a_block_that_is_little_larger, setup, teardown)
{
	uint64_t size, block, last = 0;

	for (size = 1; size <= MIB; size += size < 5000 ? 1 : size / 97) {
		block = crpc_arena_block_size(test_arena, size);
		assert_in_range(block, size, UINT64_MAX);
		assert_true(block >= last);
		assert_int_equal(block % 64, 0);
		/* Four steps per doubling, until few blocks fit into a unit. */
		if (size > 256 && size <= 12288)
			assert_in_range(block, size, size + size / 4 + 64);
		if (size > 65536)
			assert_in_range(block, size, size + size / 4 + 65536);
		assert_int_equal(crpc_arena_block_size(test_arena, block), block);
		last = block;
	}
	assert_int_equal(crpc_arena_block_size(test_arena, 0), 0);
	assert_int_equal(crpc_arena_block_size(test_arena, MIB), MIB);
	assert_int_equal(crpc_arena_block_size(test_arena, MIB + 1), 0);
}

TEST_FIXTURE(blocks_of_all_sizes_lie_apart_and_aligned, setup_members, teardown)
{
	static uint8_t *at[4096];
	static uint64_t len[4096], ref[4096];
	uint64_t size = 1, k;
	uint32_t n = 0, i;

	while (n < 4096) {
		at[n] = crpc_arena_alloc(c1, size, &ref[n]);
		if (at[n] == NULL)
			break;
		len[n] = crpc_arena_block_size(test_arena, size);
		assert_int_equal((uintptr_t)at[n] % 64, 0);
		if (size % 4096 == 0)
			assert_int_equal((uintptr_t)at[n] % 4096, 0);
		memset(at[n], (int)(n % 251), len[n]);
		n++;
		size = size * 5 / 4 + 63;
		if (size > 300 * KIB)
			size = n;
	}
	assert_int_equal(errno, ENOMEM);
	assert_in_range(n, 40, 4096);
	for (i = 0; i < n; i++) {
		for (k = 0; k < len[i]; k++)
			if (at[i][k] != i % 251)
				fail_msg("block %u of %u: byte %llu is of another block", i, n,
						(unsigned long long)k);
		assert_int_equal(crpc_arena_free(c1, ref[i]), 0);
	}
}

/* All memory of one size, then all of another: what was cut small is one piece again. */
TEST_FIXTURE(memory_moves_between_sizes, setup_members, teardown)
{
	static const uint64_t sizes[] = {64, MIB, 4096, 100 * KIB, 192, MIB};
	static uint64_t ref[DATA / 64];
	uint64_t bytes;
	uint32_t i, n;

	for (i = 0; i < CRPC_DIM(sizes); i++) {
		for (n = 0; crpc_arena_alloc(c1, sizes[i], &ref[n]) != NULL; n++)
			;
		assert_int_equal(errno, ENOMEM);
		bytes = n * crpc_arena_block_size(test_arena, sizes[i]);
		/* 64 bytes have a word of 8 each; 128 KiB do not divide an odd number of units. */
		assert_in_range(bytes, DATA * 85 / 100, DATA);
		while (n-- > 0)
			assert_int_equal(crpc_arena_free(c1, ref[n]), 0);
	}
}

TEST_FIXTURE(sizes_out_of_range_are_refused, setup_members, teardown)
{
	uint64_t ref = 77;

	assert_fails(crpc_arena_alloc(c1, 0, &ref), EINVAL);
	assert_fails(crpc_arena_alloc(c1, MIB + 1, &ref), EMSGSIZE);
	assert_fails(crpc_arena_alloc(c1, UINT64_MAX, &ref), EMSGSIZE);
	assert_int_equal(ref, 77);
}

/* ---- wrong refs ---- */

TEST_FIXTURE(a_block_is_freed_once, setup_members, teardown)
{
	static const uint64_t sizes[] = {64, 1000, 4096, 20000, 65536, 300 * KIB, MIB};
	uint64_t ref, again;

	for (uint32_t i = 0; i < CRPC_DIM(sizes); i++) {
		assert_non_null(crpc_arena_alloc(c1, sizes[i], &ref));
		assert_int_equal(crpc_arena_free(c1, ref), 0);
		assert_int_equal(crpc_arena_free(c1, ref), -ESTALE);
		/* The same block, allocated again: the old ref is not the new one. */
		assert_non_null(crpc_arena_alloc(c1, sizes[i], &again));
		assert_int_equal((uint32_t)again, (uint32_t)ref);
		assert_int_not_equal(again, ref);
		assert_int_equal(crpc_arena_free(c1, ref), -ESTALE);
		assert_int_equal(crpc_arena_give(c1, ref, 1), -ESTALE);
		assert_null(crpc_arena_view(test_arena, ref, NULL));
		assert_int_equal(crpc_arena_free(c1, again), 0);
		crpc_arena_flush(c1);
		assert_int_equal(crpc_arena_free(c1, again), -ESTALE);
	}
}

/* Also after its unit was cut for another class. */
TEST_FIXTURE(a_ref_stays_stale_when_its_unit_is_cut_again, setup_members, teardown)
{
	static uint64_t ref[DATA / 65536], big[4], now[DATA / 65536];
	uint32_t n, i, round;

	for (n = 0; crpc_arena_alloc(c1, 64 * KIB, &ref[n]) != NULL; n++)
		;
	for (i = 0; i < n; i++)
		assert_int_equal(crpc_arena_free(c1, ref[i]), 0);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < CRPC_DIM(big); i++)
			if (crpc_arena_alloc(c1, MIB, &big[i]) == NULL)
				break;
		assert_in_range(i, 3, 4);
		while (i-- > 0)
			assert_int_equal(crpc_arena_free(c1, big[i]), 0);
		for (i = 0; i < n; i++)
			assert_non_null(crpc_arena_alloc(c1, 64 * KIB, &now[i]));
		for (i = 0; i < n; i++) {
			assert_int_equal(crpc_arena_free(c1, ref[i]), -ESTALE);
			assert_null(crpc_arena_view(test_arena, ref[i], NULL));
		}
		for (i = 0; i < n; i++)
			assert_int_equal(crpc_arena_free(c1, now[i]), 0);
	}
}

TEST_FIXTURE(foreign_refs_are_refused, setup_members, teardown)
{
	uint64_t ref, bad;

	assert_non_null(crpc_arena_alloc(c1, 640, &ref));
	/* Every grain of 64 bytes of the arena and behind it. */
	for (bad = 0; bad < 2 * DATA / 64; bad++)
		if (bad != (uint32_t)ref && crpc_arena_free(c1, bad) == 0)
			fail_msg("ref %#llx was freed", (unsigned long long)bad);
	assert_int_equal(crpc_arena_free(c1, 0), -EINVAL);
	assert_int_equal(crpc_arena_free(c1, UINT64_MAX), -EINVAL);
	assert_int_equal(crpc_arena_free(c1, ref + 1), -EINVAL);
	assert_int_equal(crpc_arena_free(c1, ref), 0);
}

TEST_FIXTURE(only_the_holder_frees_and_gives, setup_members, teardown)
{
	uint64_t ref, size;
	uint8_t *p = crpc_arena_alloc(c1, 5000, &ref);

	assert_non_null(p);
	assert_int_equal(crpc_arena_free(c2, ref), -EPERM);
	assert_int_equal(crpc_arena_give(c2, ref, crpc_arena_member(c2)), -EPERM);
	assert_int_equal(crpc_arena_take(c2, ref, 0, NULL, NULL), -ESTALE);
	assert_int_equal(crpc_arena_revoke(c2, ref), -ESTALE);
	assert_ptr_equal(crpc_arena_view(test_arena, ref, &size), p);
	assert_int_equal(size, crpc_arena_block_size(test_arena, 5000));
	assert_int_equal(crpc_arena_free(c1, ref), 0);
}

/* ---- hands ---- */

TEST_FIXTURE(a_block_goes_from_hand_to_hand, setup_members, teardown)
{
	uint32_t m1 = crpc_arena_member(c1), m2 = crpc_arena_member(c2);
	uint64_t ref, size = 0;
	uint8_t *p = crpc_arena_alloc(c1, 100 * KIB, &ref);
	void *q = NULL;

	assert_non_null(p);
	assert_int_equal(crpc_arena_give(c1, ref, 0), -EINVAL);
	assert_int_equal(crpc_arena_give(c1, ref, 9), -EINVAL);
	assert_int_equal(crpc_arena_give(c1, ref, m2), 0);
	/* In transit it is neither's. */
	assert_int_equal(crpc_arena_free(c1, ref), -EPERM);
	assert_int_equal(crpc_arena_free(c2, ref), -EPERM);
	assert_int_equal(crpc_arena_give(c1, ref, m2), -EPERM);
	assert_int_equal(crpc_arena_take(c3, ref, 0, &q, &size), -EPERM);
	assert_int_equal(crpc_arena_take(c1, ref, 0, &q, &size), -EPERM);
	assert_int_equal(crpc_arena_take(c2, ref, m2 + 1, &q, &size), -EPERM);
	assert_int_equal(crpc_arena_take(c2, ref + (UINT64_C(1) << 32), m1, &q, &size), -ESTALE);
	assert_int_equal(crpc_arena_revoke(c2, ref), -EPERM);
	assert_null(q);
	assert_ptr_equal(crpc_arena_view(test_arena, ref, NULL), p);
	assert_int_equal(crpc_arena_take(c2, ref, m1, &q, &size), 0);
	assert_ptr_equal(q, p);
	assert_int_equal(size, 128 * KIB);
	/* Once taken it is taken. */
	assert_int_equal(crpc_arena_take(c2, ref, m1, NULL, NULL), -ESTALE);
	assert_int_equal(crpc_arena_revoke(c1, ref), -ESTALE);
	/* And back, and revoked. */
	assert_int_equal(crpc_arena_give(c2, ref, m1), 0);
	assert_int_equal(crpc_arena_revoke(c2, ref), 0);
	assert_int_equal(crpc_arena_take(c1, ref, 0, NULL, NULL), -ESTALE);
	assert_int_equal(crpc_arena_free(c2, ref), 0);
}

/* Either end of a transfer may free the block, and no other member; limits are no obstacle. */
TEST_FIXTURE(a_block_in_transit_is_dropped_by_either_end, setup, teardown)
{
	uint32_t m1 = 1, m2 = 2, m3 = 3, i;
	struct crpc_arena_cache_stats st;
	uint64_t ref;

	c1 = test_join(0, 0);
	c2 = test_join(64 * KIB, 0);
	c3 = test_join(0, 0);
	for (i = 0; i < 40; i++) {
		assert_non_null(crpc_arena_alloc(c1, 100 * KIB, &ref));
		assert_int_equal(crpc_arena_drop(c1, ref, m1, m2), -ESTALE);
		assert_int_equal(crpc_arena_give(c1, ref, m2), 0);
		assert_int_equal(crpc_arena_take(c2, ref, m1, NULL, NULL), -EDQUOT);
		assert_int_equal(crpc_arena_drop(c3, ref, m1, m2), -EPERM);
		assert_int_equal(crpc_arena_drop(c1, ref, m1, m3), -EPERM);
		assert_int_equal(crpc_arena_drop(c2, ref, m3, m2), -EPERM);
		assert_int_equal(crpc_arena_drop(c2, 0, m1, m2), -EINVAL);
		assert_int_equal(crpc_arena_drop(i % 2 == 0 ? c1 : c2, ref, m1, m2), 0);
		assert_int_equal(crpc_arena_drop(i % 2 == 0 ? c2 : c1, ref, m1, m2), -ESTALE);
		crpc_arena_cache_stats(c2, &st);
		assert_true(st.held <= 64 * KIB);
	}
}

TEST_FIXTURE(leaving_gives_back_what_was_held_and_keeps_what_was_given, setup_members, teardown)
{
	uint32_t m1 = crpc_arena_member(c1), m2 = crpc_arena_member(c2);
	uint64_t kept, given, to_c1;
	struct arena_report r;

	assert_non_null(crpc_arena_alloc(c1, 5000, &kept));
	assert_non_null(crpc_arena_alloc(c1, 6000, &given));
	assert_non_null(crpc_arena_alloc(c2, 7000, &to_c1));
	assert_int_equal(crpc_arena_give(c1, given, m2), 0);
	assert_int_equal(crpc_arena_give(c2, to_c1, m1), 0);
	crpc_arena_leave(c1);
	c1 = NULL;
	assert_null(crpc_arena_view(test_arena, kept, NULL));
	/* What was given to it is free, and its giver gets an error. */
	assert_int_equal(crpc_arena_revoke(c2, to_c1), -ESTALE);
	assert_int_equal(crpc_arena_take(c2, given, m1, NULL, NULL), 0);
	crpc_arena_flush(c2);
	test_arena_whole(&r);
	assert_int_equal(r.blocks_allocated, 1);
	assert_int_equal(r.blocks_cached + r.blocks_transit, 0);
	assert_int_equal(crpc_arena_free(c2, given), 0);
}

/* ---- limits ---- */

TEST_FIXTURE(a_member_holds_no_more_than_its_limit, setup, teardown)
{
	struct crpc_arena_cache_stats st;
	uint64_t ref[65], one;
	uint32_t n;

	c1 = test_join(256 * KIB, 128 * KIB);
	c2 = test_join(0, 0);
	for (n = 0; n < 65 && crpc_arena_alloc(c1, 4096, &ref[n]) != NULL; n++)
		;
	assert_int_equal(errno, EDQUOT);
	assert_int_equal(n, 64);
	crpc_arena_cache_stats(c1, &st);
	assert_int_equal(st.held, 256 * KIB);
	/* A block from somebody else counts, too. */
	assert_non_null(crpc_arena_alloc(c2, 4096, &one));
	assert_int_equal(crpc_arena_give(c2, one, crpc_arena_member(c1)), 0);
	assert_int_equal(crpc_arena_take(c1, one, 0, NULL, NULL), -EDQUOT);
	assert_int_equal(crpc_arena_free(c1, ref[--n]), 0);
	/* The freed one is cached; another class and a taken block push it out. */
	assert_int_equal(crpc_arena_take(c1, one, 0, NULL, NULL), 0);
	assert_fails(crpc_arena_alloc(c1, 64, &ref[n]), EDQUOT);
	/* Given away is not held. */
	assert_int_equal(crpc_arena_give(c1, one, crpc_arena_member(c2)), 0);
	assert_non_null(crpc_arena_alloc(c1, 64, &ref[n++]));
	assert_int_equal(crpc_arena_revoke(c1, one), 0);
	crpc_arena_cache_stats(c1, &st);
	assert_in_range(st.held, 256 * KIB, 256 * KIB + 4096);
}

/* What a cache keeps is bounded, and what it says it holds is what the words say. */
TEST_FIXTURE(a_cache_keeps_no_more_than_it_may, setup, teardown)
{
	struct crpc_arena_cache *c = test_join(0, 64 * KIB);
	struct crpc_arena_cache_stats st;
	struct arena_report r;
	static uint64_t ref[3000];
	uint32_t i, n = 0;

	for (i = 0; i < 3000; i++)
		if (crpc_arena_alloc(c, 64 + i % 50 * 100, &ref[n]) != NULL)
			n++;
	assert_in_range(n, 1000, 3000);
	for (i = 0; i < n; i++) {
		assert_int_equal(crpc_arena_free(c, ref[i]), 0);
		crpc_arena_cache_stats(c, &st);
		assert_in_range(st.cached, 0, 64 * KIB);
	}
	test_arena_whole(&r);
	assert_int_equal(r.bytes_cached, st.cached);
	assert_int_equal(r.bytes_allocated, 0);
	assert_int_equal(st.held, st.cached);
	assert_int_equal(st.damaged, 0);
	crpc_arena_leave(c);
}

/* ---- members ---- */

TEST_FIXTURE(places_are_taken_and_given_back, setup, teardown)
{
	struct crpc_arena_cache *c[8];

	for (uint32_t i = 0; i < 8; i++) {
		c[i] = test_join(0, 0);
		assert_int_equal(crpc_arena_member(c[i]), i + 1);
	}
	assert_fails(crpc_arena_join(test_arena, NULL), EUSERS);
	for (uint32_t k = 0; k < 3; k++) {
		crpc_arena_leave(c[5]);
		c[5] = test_join(0, 0);
		assert_int_equal(crpc_arena_member(c[5]), 6);
	}
	for (uint32_t i = 0; i < 8; i++)
		crpc_arena_leave(c[i]);
	crpc_arena_leave(NULL);
	crpc_arena_detach(NULL);
}

/* A child that joins, does as asked, and dies without leaving. */
static void
child_dies(void (*fn)(struct crpc_arena_cache *))
{
	pid_t pid = fork_mortal();
	struct crpc_arena_cache *c;

	if (pid == 0) {
		need((c = crpc_arena_join(test_arena, NULL)) != NULL);
		fn(c);
		_exit(0);
	}
	assert_int_equal(child_status(pid), 0);
}

static void
hold_many(struct crpc_arena_cache *c)
{
	uint64_t ref;

	for (uint32_t i = 0; i < 300; i++) {
		if (crpc_arena_alloc(c, 64 << i % 9, &ref) == NULL)
			_exit(2);
		if (i % 3 == 0 && crpc_arena_free(c, ref) != 0)
			_exit(3);
		if (i % 3 == 1 && crpc_arena_give(c, ref, 1 + i % 8) != 0)
			_exit(4);
	}
}

TEST_FIXTURE(what_the_dead_held_comes_back, setup, teardown)
{
	struct crpc_arena_cache *c = test_join(0, 0);
	struct crpc_arena_reclaimed found = {0};
	struct arena_report r;
	uint32_t calls = 1;

	child_dies(hold_many);
	child_dies(hold_many);
	assert_int_equal(arena_check(test_arena, &r), 0);
	assert_int_equal(r.members, 3);
	assert_true(r.blocks_allocated >= 200);
	/* In small steps; each is bounded, and the arena is whole between them. */
	while (crpc_arena_reclaim(test_arena, 3, &found) == 1) {
		calls++;
		assert_int_equal(arena_check(test_arena, &r), 0);
	}
	assert_in_range(calls, (8 + DATA / 65536) / 3, (8 + DATA / 65536) / 3 + 2);
	assert_int_equal(found.members, 2);
	assert_true(found.blocks >= 400);
	test_arena_whole(&r);
	assert_int_equal(r.members, 1);
	assert_int_equal(r.blocks_allocated + r.blocks_cached + r.blocks_transit, 0);
	/* Another pass finds nothing. */
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, &found), 0);
	assert_int_equal(found.members, 2);
	crpc_arena_leave(c);
}

static void
nothing(struct crpc_arena_cache *c)
{
}

/* More deaths than places: join makes room by itself. */
TEST_FIXTURE(join_makes_room_from_the_dead, setup, teardown)
{
	for (uint32_t i = 0; i < 20; i++)
		child_dies(nothing);
	crpc_arena_leave(test_join(0, 0));
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, NULL), 0);
}

static void
join_only(void)
{
	need(crpc_arena_join(test_arena, NULL) != NULL);
}

/* So it does while a pass is under way that has looked at the dead as they lived. */
TEST_FIXTURE(join_finds_the_dead_behind_a_pass_that_began_before, setup, teardown)
{
	pid_t pid = child_start(join_only, NULL);
	struct crpc_arena_cache *c[7];

	for (uint32_t i = 0; i < 7; i++)
		c[i] = test_join(0, 0);
	assert_int_equal(crpc_arena_reclaim(test_arena, 4, NULL), 1);
	child_kill(pid);
	crpc_arena_leave(test_join(0, 0));
	for (uint32_t i = 0; i < 7; i++)
		crpc_arena_leave(c[i]);
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, NULL), 0);
}

/* The living are not touched, however often anybody reclaims. */
TEST_FIXTURE(the_living_keep_what_they_hold, setup_members, teardown)
{
	struct crpc_arena_reclaimed found = {0};
	uint64_t ref, cached;

	assert_non_null(crpc_arena_alloc(c1, 1000, &ref));
	assert_non_null(crpc_arena_alloc(c1, 2000, &cached));
	assert_int_equal(crpc_arena_free(c1, cached), 0);
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, &found), 0);
	child_dies(hold_many);
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, &found), 0);
	assert_int_equal(found.members, 1);
	assert_non_null(crpc_arena_view(test_arena, ref, NULL));
	assert_int_equal(crpc_arena_free(c1, ref), 0);
}

/* The same where the segment has no name: the locks are on the memory file. */
TEST_FIXTURE(a_memory_file_has_members_too, setup, teardown)
{
	const struct crpc_arena_conf conf = {.max_members = 4};
	uint64_t len = crpc_arena_size(&conf, MIB);
	struct crpc_shm *s = create_as("memfd", A_OFF + len, true);
	struct crpc_arena *usual = test_arena;
	struct crpc_arena_reclaimed found = {0};

	assert_non_null(s);
	assert_int_equal(crpc_arena_format(s, A_OFF, len, &conf), 0);
	test_arena = crpc_arena_attach(s, A_OFF);
	assert_non_null(test_arena);
	child_dies(nothing);
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, &found), 0);
	assert_int_equal(found.members, 1);
	test_arena_empty();
	crpc_arena_detach(test_arena);
	crpc_shm_free(s);
	test_arena = usual;
}

/* ---- format and attach ---- */

TEST_FIXTURE(bad_layouts_are_refused, setup, teardown)
{
	struct crpc_arena_conf conf = {.max_members = 4};
	uint64_t size = crpc_shm_size(test_seg);

	assert_int_equal(crpc_arena_format(test_seg, 100, MIB, &conf), -EINVAL);
	assert_int_equal(crpc_arena_format(test_seg, 0, MIB, &conf), -EINVAL);
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, size, &conf), -EINVAL);
	assert_int_equal(crpc_arena_format(test_seg, size + 4096, 4096, &conf), -EINVAL);
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, UINT64_MAX, &conf), -EINVAL);
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, 4096, &conf), -ENOSPC);
	conf.max_members = 4096;
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, MIB, &conf), -EINVAL);
	conf.max_members = 4;
	conf.max_block = UINT64_C(1) << 31;
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, MIB, &conf), -EINVAL);
	conf.max_block = 2 * MIB;
	assert_int_equal(crpc_arena_format(test_seg, A_OFF, MIB, &conf), -ENOSPC);
	assert_int_equal(crpc_arena_size(&conf, 0), 0);
	assert_int_equal(crpc_arena_size(&conf, UINT64_MAX), 0);
	assert_fails(crpc_arena_attach(test_seg, 4096 + A_OFF), EPROTO);
	assert_fails(crpc_arena_attach(test_seg, 77), EINVAL);
}

/* Sizes say what they hold: as many units fit as were asked for, and none more for a page less. */
TEST_FIXTURE(size_is_what_the_data_needs, setup, teardown)
{
	static const uint64_t data[] = {1, 64 * KIB, 65 * KIB, 511 * KIB, MIB, 33 * MIB};
	struct crpc_arena_conf conf = {0};
	struct arena_report r;
	uint64_t len;

	for (uint32_t i = 0; i < CRPC_DIM(data); i++) {
		for (uint32_t m = 1; m < 300; m += 149) {
			struct crpc_shm *s;
			struct crpc_arena *a;

			conf.max_members = m;
			len = crpc_arena_size(&conf, data[i]);
			s = create_as("sized", len + 4096, false);
			assert_non_null(s);
			assert_int_equal(crpc_arena_format(s, 4096, len, &conf), 0);
			a = crpc_arena_attach(s, 4096);
			assert_non_null(a);
			assert_int_equal(arena_check(a, &r), 0);
			assert_int_equal(r.units, (data[i] + 65535) / 65536);
			crpc_arena_detach(a);
			crpc_shm_free(s);
		}
	}
}

/* Two arenas in one segment: their members' locks are different ones. */
TEST_FIXTURE(two_arenas_share_a_segment, setup, teardown)
{
	const struct crpc_arena_conf conf = {.max_members = 4};
	uint64_t len = crpc_arena_size(&conf, MIB), r1, r2;
	struct crpc_shm *s = create_as("two", 4096 + 2 * len, false);
	struct crpc_arena *a1, *a2;

	assert_non_null(s);
	assert_int_equal(crpc_arena_format(s, 4096, len, &conf), 0);
	assert_int_equal(crpc_arena_format(s, 4096 + len, len, &conf), 0);
	a1 = crpc_arena_attach(s, 4096);
	a2 = crpc_arena_attach(s, 4096 + len);
	c1 = crpc_arena_join(a1, NULL);
	c2 = crpc_arena_join(a2, NULL);
	assert_int_equal(crpc_arena_member(c1), 1);
	assert_int_equal(crpc_arena_member(c2), 1);
	assert_non_null(crpc_arena_alloc(c1, 1000, &r1));
	assert_non_null(crpc_arena_alloc(c2, 1000, &r2));
	assert_int_equal(crpc_arena_free(c1, r1), 0);
	assert_int_equal(crpc_arena_free(c2, r2), 0);
	crpc_arena_leave(c1);
	crpc_arena_leave(c2);
	c1 = c2 = NULL;
	crpc_arena_detach(a1);
	crpc_arena_detach(a2);
	crpc_shm_free(s);
}

/* Two mappings at different addresses: a ref means the same in both, a pointer does not. */
TEST_FIXTURE(refs_hold_at_any_address, setup_members, teardown)
{
	struct crpc_shm *seg = attach("arena");
	struct crpc_arena *other = crpc_arena_attach(seg, A_OFF);
	struct crpc_arena_cache *far = crpc_arena_join(other, NULL);
	uint64_t ref, size;
	char *p = crpc_arena_alloc(c1, 200, &ref);
	void *q;

	assert_non_null(p);
	strcpy(p, "over there");
	assert_int_equal(crpc_arena_give(c1, ref, crpc_arena_member(far)), 0);
	assert_int_equal(crpc_arena_take(far, ref, crpc_arena_member(c1), &q, &size), 0);
	assert_ptr_not_equal(q, p);
	assert_string_equal(q, "over there");
	assert_int_equal(crpc_arena_free(far, ref), 0);
	crpc_arena_leave(far);
	crpc_arena_detach(other);
	crpc_shm_detach(seg);
}

TEST_MAIN(make_dir, remove_dir)
