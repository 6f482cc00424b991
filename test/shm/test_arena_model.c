/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena against a model: a list of who holds which bytes. Random operations of several members,
 * right ones and wrong ones; the model says what each must answer, that blocks never overlap, and
 * what the audit must count.
 */
#include "arena_test.h"

#define DATA    (3 * MIB)
#define MEMBERS 5u
#define BLOCKS  2000u
#define STEPS   400000u
#define AUDIT   1000u /* steps between audits */
#define GRAIN   64u

enum where {
	HELD,
	TRANSIT,
	GONE
};

struct block {
	uint64_t ref;
	uint8_t *at;
	uint64_t size;
	enum where where;
	uint32_t owner; /* index of a member */
	uint32_t to;
};

static struct crpc_arena_cache *cache[MEMBERS];
static struct block block[BLOCKS];
static uint32_t blocks;
static uint64_t gone[64]; /* refs of freed blocks */
static uint32_t gone_next;
static uint8_t *taken; /* per grain of the arena: some block has it */
static uint8_t *lowest;
static uint64_t limit[MEMBERS];
/* How often what was met, so that no step tests nothing. */
static uint32_t met_enomem, met_edquot, met_eperm, met_estale, met_take;

static uint64_t
below(uint64_t n)
{
	return random_below(&seed, n);
}

static uint32_t
id_of(uint32_t m)
{
	return crpc_arena_member(cache[m]);
}

/* ---- the model ---- */

static void
model_mark(const struct block *b, bool on)
{
	uint64_t first = (uint64_t)(b->at - lowest) / GRAIN, i;

	for (i = first; i < first + b->size / GRAIN; i++) {
		if (taken[i] == on)
			fail_msg("grain %llu of ref %#llx is %s", (unsigned long long)i,
					(unsigned long long)b->ref, on ? "another's" : "free");
		taken[i] = on;
	}
}

static uint64_t
model_held(uint32_t m)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < blocks; i++)
		if (block[i].where == HELD && block[i].owner == m)
			n += block[i].size;
	return n;
}

static void
model_remove(uint32_t i)
{
	model_mark(&block[i], false);
	gone[gone_next++ % CRPC_DIM(gone)] = block[i].ref;
	block[i] = block[--blocks];
}

/* ---- steps ---- */

/* First and last byte: cheap, and a neighbour that is too long hits one of them. */
static void
stamp(const struct block *b)
{
	b->at[0] = b->at[b->size - 1] = (uint8_t)(b->ref * 31 >> 3);
}

static void
check_stamp(const struct block *b)
{
	assert_int_equal(b->at[0], (uint8_t)(b->ref * 31 >> 3));
	assert_int_equal(b->at[b->size - 1], (uint8_t)(b->ref * 31 >> 3));
}

static void
step_alloc(uint32_t m)
{
	uint64_t size = 1 + below(UINT64_C(1) << (4 + below(16))), held;
	struct block *b = &block[blocks];
	struct crpc_arena_cache_stats before, st;

	if (blocks == BLOCKS)
		return;
	crpc_arena_cache_stats(cache[m], &before);
	b->at = crpc_arena_alloc(cache[m], size, &b->ref);
	if (b->at == NULL) {
		held = model_held(m) + crpc_arena_block_size(test_arena, size);
		if (errno == EDQUOT)
			assert_in_range(held, limit[m] + 1, UINT64_MAX);
		else
			assert_int_equal(errno, ENOMEM);
		met_edquot += errno == EDQUOT;
		met_enomem += errno == ENOMEM;
		return;
	}
	b->size = crpc_arena_block_size(test_arena, size);
	assert_in_range(b->size, size, DATA);
	b->where = HELD;
	b->owner = m;
	model_mark(b, true);
	stamp(b);
	blocks++;
	crpc_arena_cache_stats(cache[m], &st);
	/* Only what it revoked can have brought it above. */
	if (st.held > limit[m] && st.held > before.held)
		fail_msg("member %u holds %llu bytes, limit %llu", m, (unsigned long long)st.held,
				(unsigned long long)limit[m]);
}

/* By anybody, of any block: only its holder may. */
static void
step_free(uint32_t m)
{
	uint32_t i;
	int rc;

	if (blocks == 0)
		return;
	i = (uint32_t)below(blocks);
	if (below(8) != 0 && block[i].where == HELD)
		m = block[i].owner;
	check_stamp(&block[i]);
	rc = crpc_arena_free(cache[m], block[i].ref);
	if (block[i].where == HELD && block[i].owner == m) {
		assert_int_equal(rc, 0);
		model_remove(i);
	} else {
		assert_int_equal(rc, -EPERM);
		met_eperm++;
	}
}

static void
step_give(uint32_t m)
{
	uint32_t i, to = (uint32_t)below(MEMBERS);
	int rc;

	if (blocks == 0)
		return;
	i = (uint32_t)below(blocks);
	if (below(8) != 0)
		m = block[i].owner;
	rc = crpc_arena_give(cache[m], block[i].ref, id_of(to));
	if (block[i].where == HELD && block[i].owner == m) {
		assert_int_equal(rc, 0);
		block[i].where = TRANSIT;
		block[i].to = to;
	} else {
		assert_int_equal(rc, -EPERM);
	}
}

static void
step_take(uint32_t m)
{
	uint32_t i, from;
	uint64_t size;
	void *p;
	int rc;

	if (blocks == 0)
		return;
	i = (uint32_t)below(blocks);
	if (below(4) != 0 && block[i].where == TRANSIT)
		m = block[i].to;
	from = (uint32_t)below(3) == 0 ? (uint32_t)below(MEMBERS) : block[i].owner;
	rc = crpc_arena_take(cache[m], block[i].ref, id_of(from), &p, &size);
	if (block[i].where != TRANSIT) {
		assert_int_equal(rc, -ESTALE);
	} else if (block[i].to != m || (block[i].owner != from && block[i].owner != m)) {
		assert_int_equal(rc, -EPERM);
	} else if (rc == -EDQUOT) {
		assert_in_range(model_held(m) + block[i].size, limit[m] + 1, UINT64_MAX);
	} else {
		assert_int_equal(rc, 0);
		assert_ptr_equal(p, block[i].at);
		assert_int_equal(size, block[i].size);
		check_stamp(&block[i]);
		block[i].where = HELD;
		block[i].owner = m;
		met_take++;
	}
}

static void
step_revoke(uint32_t m)
{
	uint32_t i;
	int rc;

	if (blocks == 0)
		return;
	i = (uint32_t)below(blocks);
	if (below(4) != 0)
		m = block[i].owner;
	rc = crpc_arena_revoke(cache[m], block[i].ref);
	if (block[i].where != TRANSIT) {
		assert_int_equal(rc, -ESTALE);
	} else if (block[i].owner != m) {
		assert_int_equal(rc, -EPERM);
	} else {
		assert_int_equal(rc, 0);
		block[i].where = HELD;
	}
}

/* A ref that was freed is no ref for anybody, for ever. */
static void
step_stale(uint32_t m)
{
	uint64_t ref = gone[below(CRPC_DIM(gone))];
	int rc = crpc_arena_free(cache[m], ref);

	if (rc != -ESTALE && rc != -EINVAL)
		fail_msg("free of stale ref %#llx: %d", (unsigned long long)ref, rc);
	rc = crpc_arena_take(cache[m], ref, 0, NULL, NULL);
	assert_true(rc == -ESTALE || rc == -EINVAL);
	met_estale += rc == -ESTALE;
	assert_null(crpc_arena_view(test_arena, ref, NULL));
}

/* A member leaves and joins again: what it held is free, what it gave is its receiver's. */
static void
step_leave(uint32_t m)
{
	uint32_t i = 0, id = id_of(m);

	while (i < blocks) {
		struct block *b = &block[i];

		if ((b->where == HELD && b->owner == m) || (b->where == TRANSIT && b->to == m)) {
			model_remove(i);
			continue;
		}
		if (b->where == TRANSIT && b->owner == m)
			b->owner = b->to;
		i++;
	}
	crpc_arena_leave(cache[m]);
	limit[m] = below(2) != 0 ? 300 * KIB + below(DATA) : DATA;
	cache[m] = test_join(limit[m], UINT64_C(1) << (8 + below(14)));
	assert_int_equal(id_of(m), id);
}

static void
one_step(void)
{
	uint32_t m = (uint32_t)below(MEMBERS), what = (uint32_t)below(100);

	if (what < 40)
		step_alloc(m);
	else if (what < 70)
		step_free(m);
	else if (what < 80)
		step_give(m);
	else if (what < 90)
		step_take(m);
	else if (what < 94)
		step_revoke(m);
	else if (what < 99)
		step_stale(m);
	else if (below(10) == 0)
		step_leave(m);
	else
		crpc_arena_flush(cache[m]);
}

/* ---- tests ---- */

static void
audit(void)
{
	uint64_t held = 0, transit = 0, bytes = 0, cached = 0;
	struct crpc_arena_cache_stats st;
	struct arena_report r;

	test_arena_whole(&r);
	for (uint32_t i = 0; i < blocks; i++) {
		held += block[i].where == HELD;
		transit += block[i].where == TRANSIT;
		bytes += block[i].size;
	}
	for (uint32_t i = 0; i < MEMBERS; i++) {
		crpc_arena_cache_stats(cache[i], &st);
		assert_int_equal(st.held, model_held(i) + st.cached);
		assert_int_equal(st.damaged, 0);
		cached += st.cached;
	}
	assert_int_equal(r.members, MEMBERS);
	assert_int_equal(r.blocks_allocated, held);
	assert_int_equal(r.blocks_transit, transit);
	assert_int_equal(r.bytes_allocated, bytes);
	assert_int_equal(r.bytes_cached, cached);
}

TEST(the_arena_answers_as_the_model)
{
	const struct crpc_arena_conf conf = {.max_members = MEMBERS, .max_block = MIB};

	test_arena_make(DATA, &conf);
	lowest = (uint8_t *)crpc_shm_header(test_seg);
	taken = calloc(crpc_shm_size(test_seg) / GRAIN + 1, 1);
	assert_non_null(taken);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		limit[i] = DATA;
		cache[i] = test_join(limit[i], 0);
	}
	for (uint32_t i = 0; i < STEPS; i++) {
		one_step();
		if (i % AUDIT == 0)
			audit();
	}
	audit();
	print_message("no memory %u, limit %u, not permitted %u, stale %u, taken %u\n", met_enomem,
			met_edquot, met_eperm, met_estale, met_take);
	assert_true(met_enomem > 100 && met_edquot > 100 && met_eperm > 100 && met_estale > 100 &&
			met_take > 100);
	/* All back: the largest block, as often as it fits, for a member alone. */
	while (blocks > 0) {
		if (block[0].where == TRANSIT)
			assert_int_equal(crpc_arena_revoke(cache[block[0].owner], block[0].ref), 0);
		assert_int_equal(crpc_arena_free(cache[block[0].owner], block[0].ref), 0);
		model_remove(0);
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		crpc_arena_leave(cache[i]);
	cache[0] = test_join(0, 0);
	for (uint32_t i = 0; i < DATA / MIB; i++)
		assert_non_null(crpc_arena_alloc(cache[0], MIB, &block[i].ref));
	crpc_arena_leave(cache[0]);
	free(taken);
	test_arena_empty();
	test_arena_remove();
}

TEST_MAIN(make_dir, remove_dir)
