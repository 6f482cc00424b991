/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An arena in which somebody writes whatever he likes: every call of an honest member returns, with
 * success or an error, and no block that it is given, and nothing that it stores, lies outside of
 * the arena's units and its own words.
 *
 * Each round lays an arena out, damages one part of it, then works in it. Last, a thread damages it
 * all the time.
 */
#include "arena_test.h"

#include <pthread.h>
#include <sys/mman.h>

#include "shm_arena.h"
#include "shm_private.h"

#define DATA   (20 * 65536u)
#define MARGIN (64 * KIB) /* of the segment on both sides of the arena; never written */
#define ROUNDS 1200u
#define STEPS  300u
#define HELD   64u

static const struct crpc_arena_conf layout = {.max_members = 6, .max_block = 512 * KIB};
static uint8_t *seg_base;
static uint64_t arena_len;

static uint64_t
below(uint64_t n)
{
	return random_below(&seed, n);
}

/* ---- the segment ---- */

static int
setup(void **state)
{
	assert_int_equal(make_dir(state), 0);
	arena_len = crpc_arena_size(&layout, DATA);
	test_seg = create_as("hostile", 2 * MARGIN + arena_len, false);
	assert_non_null(test_seg);
	seg_base = crpc_shm_ptr(test_seg, 0, 2 * MARGIN + arena_len);
	memset(seg_base + 4096, 0x5a, MARGIN - 4096);
	memset(seg_base + MARGIN + arena_len, 0x5a, MARGIN);
	return 0;
}

static int
teardown(void **state)
{
	crpc_shm_free(test_seg);
	return remove_dir(state);
}

static void
lay_out(void)
{
	assert_int_equal(crpc_arena_format(test_seg, MARGIN, arena_len, &layout), 0);
	test_arena = crpc_arena_attach(test_seg, MARGIN);
	assert_non_null(test_arena);
}

static void
margins_are_whole(void)
{
	for (uint64_t i = 4096; i < MARGIN; i++)
		assert_int_equal(seg_base[i], 0x5a);
	for (uint64_t i = 0; i < MARGIN; i++)
		assert_int_equal(seg_base[MARGIN + arena_len + i], 0x5a);
}

/* ---- the enemy ---- */

/* A word that looks like something, or like nothing. */
static uint64_t
evil_word(uint64_t *r)
{
	uint64_t w = rnd(r), low = w >> 40;

	switch (w % 8) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2: /* a unit: any state, any class or distance */
		return w << 32 | word_make(low % 6, low / 6 % 8, (uint32_t)(low / 48) % 80);
	case 3: /* a head of the largest blocks */
		return w << 32 | word_make(UNIT_HEAD, 0, (uint32_t)(low % 64));
	case 4: /* a block of anybody in any state */
		return word_make(low % 6, low / 6 % 8, (uint32_t)(low / 48) % 8);
	case 5:
		return WORD_GEN_ONE * (low % 4) | WORD_FREE;
	case 6:
		return WORD_GEN_ONE * (low % 4) | word_make(BLOCK_ALLOCATED, low / 4 % 8, 0);
	default:
		return rnd(r);
	}
}

static void
damage_range(uint64_t *r, uint64_t off, uint64_t len, uint32_t words)
{
	while (words-- > 0) {
		uint64_t i = rnd(r) % (len / 8);

		crpc_store_relaxed((arena_word *)(void *)(seg_base + MARGIN + off) + i,
				evil_word(r));
	}
}

/* Somewhere in one part of the arena, by its layout. */
static void
damage(uint64_t *r, uint32_t part)
{
	const struct arena_header *h = &test_arena->l.h;
	uint32_t words = 1u << rnd(r) % 8;

	switch (part % 6) {
	case 0:
		damage_range(r, h->member_off, h->unit_off - h->member_off, words);
		break;
	case 1:
		damage_range(r, h->unit_off, h->units * UINT64_C(8), words);
		break;
	case 2:
		damage_range(r, h->word_off, h->hint_off - h->word_off, words);
		break;
	case 3:
		damage_range(r, h->hint_off, h->data_off - h->hint_off, words);
		break;
	case 4: /* words of small blocks stand at the start of a unit */
		damage_range(r, h->data_off + rnd(r) % h->units * ARENA_UNIT, 8192, words);
		break;
	default: /* anything, the header too: it was copied */
		damage_range(r, 0, h->len, words * 8);
		break;
	}
}

/* ---- the honest ---- */

struct honest {
	struct crpc_arena_cache *c;
	uint64_t ref[HELD];
	uint32_t n;
};

/* What a call gave us lies in the units. */
static void
check_block(const uint8_t *p, uint64_t size)
{
	const uint8_t *first = test_arena->base + test_arena->data_off;

	if (p < first || size > test_arena->data_len ||
			(uint64_t)(p - first) > test_arena->data_len - size)
		fail_msg("a block of %llu bytes at %lld", (unsigned long long)size,
				(long long)(p - first));
}

static void
use(uint8_t *p, uint64_t size, bool write)
{
	check_block(p, size);
	if (write)
		memset(p, (int)below(256), size);
}

static void
step_alloc(struct honest *h, bool write)
{
	uint64_t size = 1 + below(UINT64_C(1) << (5 + below(15))), ref;
	uint8_t *p = crpc_arena_alloc(h->c, size, &ref);

	if (p == NULL)
		return;
	use(p, crpc_arena_block_size(test_arena, size), write);
	h->ref[h->n % HELD] = ref;
	h->n++;
}

static void
step_other(struct honest *h, uint64_t ref, bool write)
{
	uint64_t size;
	void *p;

	switch (below(6)) {
	case 0:
		crpc_arena_give(h->c, ref, 1 + (uint32_t)below(7));
		break;
	case 1:
		if (crpc_arena_take(h->c, ref, (uint32_t)below(7), &p, &size) == 0)
			use(p, size, write);
		break;
	case 2:
		crpc_arena_revoke(h->c, ref);
		break;
	case 3:
		p = crpc_arena_view(test_arena, ref, &size);
		if (p != NULL)
			use(p, size, false);
		break;
	default:
		crpc_arena_free(h->c, ref);
		break;
	}
}

static void
step(struct honest *h, bool write)
{
	uint64_t ref = below(4) == 0 ? rnd(&seed) : h->ref[below(HELD)];

	switch (below(64)) {
	case 0:
		crpc_arena_flush(h->c);
		break;
	case 1:
		assert_in_range(crpc_arena_reclaim(test_arena, (uint32_t)below(30), NULL), 0, 1);
		break;
	default:
		if (below(2) == 0)
			step_alloc(h, write);
		else
			step_other(h, ref, write);
	}
}

/* The call that walks everything. */
static void
walk(void)
{
	struct arena_report r;
	int rc = arena_check(test_arena, &r);

	assert_true(rc == 0 || rc == -EPROTO);
	assert_in_range(r.bytes_allocated + r.bytes_cached, 0, DATA);
}

/* A damaged arena may refuse members, but only by an error of its own. */
static bool
join(struct honest *h)
{
	const struct crpc_arena_join_conf conf = {.cache_bytes = 1024u << below(9)};

	memset(h, 0, sizeof(*h));
	h->c = crpc_arena_join(test_arena, &conf);
	if (h->c == NULL)
		assert_int_equal(errno, EUSERS);
	return h->c != NULL;
}

/* ---- tests ---- */

TEST(damage_of_any_part_stays_inside)
{
	struct honest h[3];
	uint32_t round, i, k;

	for (round = 0; round < ROUNDS; round++) {
		lay_out();
		for (k = 0; k < 2; k++)
			assert_true(join(&h[k]));
		for (i = 0; i < STEPS; i++)
			step(&h[below(2)], true);
		damage(&seed, round);
		k = 2;
		if (join(&h[2]))
			k = 3;
		for (i = 0; i < STEPS; i++) {
			step(&h[below(k)], true);
			if (below(64) == 0)
				damage(&seed, (uint32_t)below(6));
		}
		walk();
		assert_int_equal(crpc_arena_reclaim(test_arena, 0, NULL), 0);
		while (k-- > 0)
			crpc_arena_leave(h[k].c);
		crpc_arena_detach(test_arena);
	}
	margins_are_whole();
}

static _Atomic bool stop;

static void *
enemy(void *arg)
{
	uint64_t r = *(const uint64_t *)arg;

	for (uint32_t i = 0; !crpc_load_relaxed(&stop); i++)
		damage(&r, i);
	return NULL;
}

/*
 * Between any load and its use the word may change. Blocks are not written: that would be a race.
 */
TEST(damage_at_any_time_stays_inside)
{
	struct honest h[2];
	uint64_t theirs = rnd(&seed);
	pthread_t t;

	for (uint32_t round = 0; round < ROUNDS / 20; round++) {
		lay_out();
		for (uint32_t k = 0; k < 2; k++)
			assert_true(join(&h[k]));
		crpc_store_relaxed(&stop, false);
		assert_int_equal(pthread_create(&t, NULL, enemy, &theirs), 0);
		for (uint32_t i = 0; i < 10 * STEPS; i++)
			step(&h[below(2)], false);
		walk();
		crpc_store_relaxed(&stop, true);
		assert_int_equal(pthread_join(t, NULL), 0);
		for (uint32_t k = 0; k < 2; k++)
			crpc_arena_leave(h[k].c);
		crpc_arena_detach(test_arena);
		theirs++;
	}
	margins_are_whole();
}

/* Every bit of the header: attach refuses it and says why. */
TEST(a_header_with_one_wrong_bit_is_refused)
{
	lay_out();
	crpc_arena_detach(test_arena);
	for (uint32_t bit = 0; bit < 8 * sizeof(struct arena_header); bit++) {
		seg_base[MARGIN + bit / 8] ^= (uint8_t)(1 << bit % 8);
		crpc_log_clear();
		assert_null(crpc_arena_attach(test_seg, MARGIN));
		assert_int_equal(errno, EPROTO);
		assert_string_not_equal(crpc_log_last(), "");
		seg_base[MARGIN + bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	test_arena = crpc_arena_attach(test_seg, MARGIN);
	assert_non_null(test_arena);
	crpc_arena_detach(test_arena);
}

/* A word of ours that somebody changed costs us that block and nothing else. */
TEST(an_overwritten_word_loses_its_block_only)
{
	struct crpc_arena_cache_stats st;
	struct crpc_arena_cache *c;
	uint64_t ref[8], again;

	lay_out();
	c = test_join(0, 64 * KIB);
	for (uint32_t i = 0; i < 8; i++)
		assert_non_null(crpc_arena_alloc(c, 4096, &ref[i]));
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(crpc_arena_free(c, ref[i]), 0);
	/* Those that it would hand out next. */
	for (uint32_t i = 4; i < 8; i++)
		crpc_store_relaxed(
			c->bin[test_arena->l.raw_class[arena_raw_of(4096)]].e[i].word, 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_non_null(crpc_arena_alloc(c, 4096, &again));
	crpc_arena_cache_stats(c, &st);
	assert_int_equal(st.damaged, 4);
	assert_int_equal(arena_check(test_arena, NULL), -EPROTO);
	crpc_arena_leave(c);
	crpc_arena_detach(test_arena);
}

/*
 * A unit whose word says a larger class while a block of it is freed: the member would have given
 * back more than it holds. It goes on to allocate.
 */
TEST(a_size_changed_between_alloc_and_free_stops_nobody)
{
	struct crpc_arena_cache *c;
	uint64_t ref, again, head;
	arena_word *unit;

	lay_out();
	c = test_join(0, 64 * KIB);
	assert_non_null(crpc_arena_alloc(c, 64 * KIB, &ref));
	unit = &test_arena->unit[arena_ref_unit(test_arena, ref)];
	head = crpc_load_relaxed(unit);
	crpc_store_relaxed(unit, word_gen(head) | word_make(UNIT_HEAD, 0,
			test_arena->l.raw_class[arena_raw_of(512 * KIB)]));
	assert_int_equal(crpc_arena_free(c, ref), 0);
	crpc_store_relaxed(unit, head);
	assert_non_null(crpc_arena_alloc(c, 4096, &again));
	assert_int_equal(crpc_arena_free(c, again), 0);
	crpc_arena_leave(c);
	crpc_arena_detach(test_arena);
}

/* At the end of the offsets that an arena may have, its locks are its own, too. */
TEST(locks_of_a_far_arena_are_no_others)
{
	const uint64_t size = (UINT64_C(1) << 37) + 16 * MIB;
	struct crpc_shm far = {.size = size, .memfd = true, .refs = 1, .path = "far"};
	uint64_t off = size - 16 * MIB;

	far.fd = memfd_create("far", MFD_CLOEXEC);
	assert_true(far.fd >= 0);
	assert_int_equal(ftruncate(far.fd, (off_t)size), 0); /* most of it is never touched */
	far.hdr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, far.fd, 0);
	assert_ptr_not_equal(far.hdr, MAP_FAILED);
	do
		off -= ARENA_ALIGN;
	while (crpc_arena_format(&far, off, MIB, NULL) == -EINVAL);
	assert_in_range(off, (UINT64_C(1) << 37) - MIB, UINT64_C(1) << 37);
	assert_non_null(test_arena = crpc_arena_attach(&far, off));
	assert_in_range(test_arena->lock_base, CRPC_SHM_USERS_LAST + 1,
		UINT32_MAX - CRPC_ARENA_MEMBERS_MAX);
	crpc_arena_detach(test_arena);
	munmap(far.hdr, size);
	close(far.fd);
}

/* A process that declares its own place free, holds blocks, and dies: the next sweep finds them. */
TEST(blocks_in_the_name_of_a_free_place_come_back)
{
	struct crpc_arena_cache *c, *liar;
	struct arena_report r;
	uint64_t ref;
	pid_t pid;

	lay_out();
	c = test_join(0, 0);
	pid = fork_mortal();
	if (pid == 0) {
		liar = crpc_arena_join(test_arena, NULL);
		if (liar == NULL || crpc_arena_alloc(liar, 64 * KIB, &ref) == NULL ||
				crpc_arena_alloc(liar, 100, &ref) == NULL)
			_exit(1);
		crpc_store_relaxed(&test_arena->member[crpc_arena_member(liar)].used, 0);
		_exit(0);
	}
	assert_int_equal(child_status(pid), 0);
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, NULL), 0);
	crpc_arena_leave(c);
	assert_int_equal(arena_check(test_arena, &r), 0);
	assert_int_equal(r.blocks_allocated + r.blocks_cached, 0);
	crpc_arena_detach(test_arena);
}

int
main(void)
{
	alarm(120); /* an endless loop ends here */
	return test_run(setup, teardown);
}
