/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References: each way and by each look-up the same answer; nothing but bytes of a segment has one;
 * what another process made up gives NULL; what one thread publishes others read.
 */
#include "shm_test.h"

#include <pthread.h>

#include "crpc_xlate.h"

#define SEGS 100u
#define REF(id, off) ((uint64_t)(id) << CRPC_XLATE_OFF_BITS | (off))

static uint64_t
next_random(void)
{
	return rnd(&seed);
}

static struct crpc_shm *
create(uint32_t number, uint64_t size)
{
	struct crpc_shm *seg;
	char name[16];

	snprintf(name, sizeof(name), "s%u", number);
	seg = create_as(name, size, false);
	assert_non_null(seg);
	return seg;
}

/* All look-ups agree that these bytes have that reference, or none. */
static void
check_ref(const struct crpc_xlate *x, const void *ptr, uint64_t len, uint64_t ref)
{
	assert_true(crpc_xlate_ref(x, ptr, len) == ref);
	assert_true(crpc_xlate_ref_tree(x, ptr, len) == ref);
	assert_true(crpc_xlate_ref_linear(x, ptr, len) == ref);
	if (ref != 0)
		assert_ptr_equal(crpc_xlate_ptr(x, ref, len), ptr);
}

TEST(both_ways_over_many_segments)
{
	struct crpc_xlate *x = crpc_xlate_create(SEGS, 3 << 20);
	uint64_t size[SEGS + 1], off, len;
	uint8_t *base[SEGS + 1];

	assert_non_null(x);
	for (uint32_t id = SEGS; id >= 1; id--) {
		struct crpc_shm *seg =
			create(id, 1 + next_random() % 100000 + sizeof(struct crpc_shm_header));

		size[id] = crpc_shm_size(seg);
		base[id] = crpc_xlate_map(x, id, seg);
		assert_non_null(base[id]);
		((struct crpc_shm_header *)base[id])->owner_start = id;
		assert_int_equal(crpc_shm_header(seg)->owner_start, id); /* the same memory */
		crpc_shm_free(seg); /* the slot keeps it */
	}
	for (uint32_t id = 1; id <= SEGS; id++) {
		check_ref(x, base[id], size[id], REF(id, 0));
		check_ref(x, base[id], size[id] + 1, 0);
		check_ref(x, base[id] + size[id] - 1, 1, REF(id, size[id] - 1));
		check_ref(x, base[id] + size[id], 0, 0);
		check_ref(x, base[id] - 1, 1, 0);
		check_ref(x, base[id] + 1, UINT64_MAX, 0);
		for (uint32_t i = 0; i < 20; i++) {
			off = next_random() % size[id];
			len = next_random() % (size[id] - off + 1);
			check_ref(x, base[id] + off, len, REF(id, off));
		}
		assert_int_equal(((struct crpc_shm_header *)base[id])->owner_start, id);
	}
	assert_int_equal((uintptr_t)base[7] % (4 << 20), 0);
	crpc_xlate_free(x);
}

TEST(hostile_references_give_null)
{
	struct crpc_xlate *x = crpc_xlate_create(4, 1 << 20);
	struct crpc_shm *seg = create(1, 8192);
	uint8_t *base, *p;

	assert_non_null(x);
	base = crpc_xlate_map(x, 2, seg);
	assert_non_null(base);
	assert_null(crpc_xlate_ptr(x, 0, 0));
	assert_null(crpc_xlate_ptr(x, 0, 1));
	assert_null(crpc_xlate_ptr(x, REF(1, 0), 0));
	assert_null(crpc_xlate_ptr(x, REF(3, 0), 1));
	assert_null(crpc_xlate_ptr(x, REF(5, 0), 1));
	assert_null(crpc_xlate_ptr(x, REF(6, 0), 1));
	assert_null(crpc_xlate_ptr(x, UINT64_MAX, 1));
	assert_null(crpc_xlate_ptr(x, UINT64_MAX, UINT64_MAX));
	assert_null(crpc_xlate_ptr(x, REF(2, 8192), 0));
	assert_null(crpc_xlate_ptr(x, REF(2, 8191), 2));
	assert_null(crpc_xlate_ptr(x, REF(2, 1), UINT64_MAX));
	assert_null(crpc_xlate_ptr(x, REF(2, CRPC_XLATE_OFF_MASK), 1));
	assert_ptr_equal(crpc_xlate_ptr(x, REF(2, 8191), 1), base + 8191);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t ref = next_random() >> next_random() % 64;

		if (i % 2 == 0)
			ref = REF(2, ref & CRPC_XLATE_OFF_MASK);
		p = crpc_xlate_ptr(x, ref, i % 9);
		assert_true(p == NULL || (p >= base && p + i % 9 <= base + 8192));
		p = (uint8_t *)(next_random() >> next_random() % 64); /* as a pointer */
		assert_true(crpc_xlate_ref(x, p, 1) == crpc_xlate_ref_linear(x, p, 1));
	}
	crpc_xlate_free(x);
	crpc_shm_free(seg);
}

TEST(numbers_and_sizes_are_checked)
{
	struct crpc_xlate *x;
	struct crpc_shm *small = create(1, 4096), *big = create(2, (2 << 20) + 1);

	assert_fails(crpc_xlate_create(0, 4096), EINVAL);
	assert_null(crpc_xlate_create(CRPC_XLATE_SEGS_MAX + 1, 4096));
	assert_null(crpc_xlate_create(1, 0));
	assert_null(crpc_xlate_create(1, CRPC_XLATE_OFF_MASK + 2));
	assert_fails(crpc_xlate_create(CRPC_XLATE_SEGS_MAX, CRPC_XLATE_OFF_MASK), EINVAL);
	assert_logged("4096 segments");
	x = crpc_xlate_create(2, 4096);
	assert_non_null(x);
	assert_fails(crpc_xlate_map(x, 0, small), EINVAL);
	assert_fails(crpc_xlate_map(x, 3, small), EINVAL);
	assert_fails(crpc_xlate_map(x, 1, big), EFBIG);
	assert_non_null(crpc_xlate_map(x, 1, small));
	assert_fails(crpc_xlate_map(x, 1, small), EEXIST);
	crpc_xlate_free(x);
	crpc_xlate_free(NULL);
	crpc_shm_free(small);
	crpc_shm_free(big);
}

/*
 * Another process, in which everything lies elsewhere: it reads by our references, and we by its.
 * What it writes down for each segment is a reference to itself.
 */
TEST(references_mean_the_same_everywhere)
{
	struct crpc_xlate *x;
	struct crpc_shm *seg[9];
	uint64_t *word, ref;
	uint32_t id, pass;
	pid_t pid;

	for (id = 1; id <= 8; id++) {
		seg[id] = create(id, 4096 * id);
		crpc_shm_ready(seg[id]);
	}
	pid = fork_mortal();
	/* The child's window is of another size and comes from another place. */
	x = crpc_xlate_create(pid == 0 ? 200 : 8, pid == 0 ? 64 << 20 : 1 << 20);
	for (id = 1; id <= 8; id++)
		if (x == NULL || crpc_xlate_map(x, id, seg[id]) == NULL) {
			assert_int_not_equal(pid, 0);
			fail();
		}
	for (id = 1; id <= 8 && pid == 0; id++) {
		word = crpc_xlate_ptr(x, REF(id, 4000), 8);
		*word = crpc_xlate_ref(x, word, 8);
		word[1] = (uintptr_t)word;
	}
	if (pid == 0)
		_exit(0);
	assert_int_equal(child_status(pid), 0);
	for (id = 1, pass = 0; id <= 8; id++) {
		ref = *(uint64_t *)crpc_shm_ptr(seg[id], 4000, 8);
		assert_true(ref == REF(id, 4000));
		word = crpc_xlate_ptr(x, ref, 16);
		assert_non_null(word);
		assert_true(word[0] == ref);
		pass += word[1] != (uintptr_t)word;
	}
	assert_int_equal(pass, 8); /* it was mapped elsewhere there */
	crpc_xlate_free(x);
	for (id = 1; id <= 8; id++)
		crpc_shm_free(seg[id]);
}

static _Atomic uint32_t stop;

static void *
translate(void *arg)
{
	const struct crpc_xlate *x = arg;

	while (crpc_load_relaxed(&stop) == 0)
		for (uint32_t id = 1; id <= 64; id++) {
			const struct crpc_shm_header *h = crpc_xlate_ptr(x, REF(id, 0), sizeof(*h));

			/* What is there has its mapping and its header. */
			if (h != NULL && (h->magic != CRPC_SHM_MAGIC ||
							 crpc_xlate_ref(x, h, 1) != REF(id, 0)))
				return (void *)1;
		}
	return NULL;
}

TEST(others_translate_while_one_maps)
{
	struct crpc_xlate *x = crpc_xlate_create(64, 1 << 20);
	struct crpc_shm *seg[65];
	pthread_t thread[2];
	void *rc;

	assert_non_null(x);
	for (uint32_t id = 1; id <= 64; id++)
		seg[id] = create(id, 4096);
	assert_int_equal(pthread_create(&thread[0], NULL, translate, x), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, translate, x), 0);
	for (uint32_t id = 1; id <= 64; id++) {
		assert_non_null(crpc_xlate_map(x, id, seg[id]));
		usleep(200);
	}
	crpc_store_relaxed(&stop, 1);
	for (uint32_t id = 0; id < 2; id++) {
		assert_int_equal(pthread_join(thread[id], &rc), 0);
		assert_null(rc);
	}
	crpc_xlate_free(x);
	for (uint32_t id = 1; id <= 64; id++)
		crpc_shm_free(seg[id]);
}

TEST_MAIN(make_dir, remove_dir)
