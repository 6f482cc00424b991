/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References: each way and by each look-up the same answer; nothing but bytes of a segment has one;
 * what another process made up gives NULL; what one thread publishes others read.
 */
#include "shm_test.h"

#include <pthread.h>
#include <sys/mman.h>

#include "crpc_xlate.h"

#define SEGS 100u
#define WINDOW_STRIDE (64u << 20)
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

TEST(memory_outside_the_window)
{
	struct crpc_xlate *x = crpc_xlate_create(8, 1 << 20);
	struct crpc_shm *seg = create(1, 8192);
	uint8_t *mem = malloc(3 * 4096), *base;

	assert_non_null(x);
	assert_non_null(mem);
	base = crpc_xlate_map(x, 1, seg);
	assert_non_null(base);
	assert_int_equal(crpc_xlate_add(x, 2, mem + 4096, 4096), 0);
	assert_int_equal(crpc_xlate_add(x, 3, mem + 8192, 4096), 0);
	assert_int_equal(crpc_xlate_add(x, 4, mem, 4097), -EINVAL);
	assert_int_equal(crpc_xlate_add(x, 4, mem + 8191, 1), -EINVAL);
	assert_int_equal(crpc_xlate_add(x, 4, base + 4096, 1), -EINVAL);
	assert_int_equal(crpc_xlate_add(x, 4, (void *)4096, CRPC_XLATE_OFF_MASK + 2), -EINVAL);
	assert_int_equal(crpc_xlate_add(x, 4, mem, 0), -EINVAL);
	assert_int_equal(crpc_xlate_add(x, 4, mem, 4096), 0);
	check_ref(x, mem, 4096, REF(4, 0));
	check_ref(x, mem + 4095, 1, REF(4, 4095));
	check_ref(x, mem + 4095, 2, 0); /* two segments, though neighbours */
	check_ref(x, mem + 4096, 1, REF(2, 0));
	check_ref(x, mem + 3 * 4096 - 1, 1, REF(3, 4095));
	check_ref(x, mem + 3 * 4096, 1, 0);
	check_ref(x, base + 5, 5, REF(1, 5));
	/* The slot of memory outside is empty: its addresses mean nothing. */
	check_ref(x, base + (2 << 20), 1, 0);
	assert_int_equal(crpc_xlate_del(x, 2), 0);
	check_ref(x, mem + 4096, 1, 0);
	assert_null(crpc_xlate_ptr(x, REF(2, 0), 1));
	check_ref(x, mem + 8192, 1, REF(3, 0));
	crpc_xlate_free(x);
	crpc_shm_free(seg);
	free(mem);
}

/* A page that is not ours yet, as near below the window as there is one. */
static void *
page_below(uint8_t *window)
{
	for (uint32_t i = 1; i <= WINDOW_STRIDE / 4096; i++) {
		void *p = mmap(window - i * 4096, 4096, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (p != MAP_FAILED)
			return p;
	}
	fail_msg("no free page in the %u bytes below the window", WINDOW_STRIDE);
	return NULL;
}

/*
 * Memory that is registered within one slot's size of the window's start is found as all other
 * memory outside is. Numbers start at 1, so these addresses once were those of a slot 0.
 */
TEST(memory_just_below_the_window)
{
	struct crpc_xlate *x = crpc_xlate_create(3, WINDOW_STRIDE);
	struct crpc_shm *seg = create(1, 8192);
	uint8_t *first, *page;

	assert_non_null(x);
	first = crpc_xlate_map(x, 1, seg);
	assert_non_null(first);
	page = page_below(first);
	check_ref(x, page, 1, 0);
	assert_int_equal(crpc_xlate_add(x, 2, page, 4096), 0);
	check_ref(x, page, 4096, REF(2, 0));
	check_ref(x, page + 4095, 1, REF(2, 4095));
	check_ref(x, page + 4095, 2, 0);
	check_ref(x, first - 1, 1, first - 1 == page + 4095 ? REF(2, 4095) : 0);
	check_ref(x, first, 1, REF(1, 0));
	crpc_xlate_free(x);
	munmap(page, 4096);
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
	assert_int_equal(crpc_xlate_del(x, 2), -ENOENT);
	assert_int_equal(crpc_xlate_del(x, 3), -ENOENT);
	assert_int_equal(crpc_xlate_del(x, 1), 0);
	assert_int_equal(crpc_xlate_del(x, 1), -ENOENT);
	assert_non_null(crpc_xlate_map(x, 1, small)); /* and again */
	crpc_xlate_free(x);
	crpc_xlate_free(NULL);
	crpc_shm_free(small);
	crpc_shm_free(big);
}

/* Random maps and deletions beside a plain model of what is there. */
TEST(as_a_simple_model)
{
	struct crpc_xlate *x = crpc_xlate_create(16, 1 << 20);
	struct crpc_shm *seg[17];
	uint8_t *base[17] = {NULL}, *p;
	uint64_t size[17], off;
	uint32_t step, id, other;

	assert_non_null(x);
	for (id = 1; id <= 16; id++) {
		seg[id] = create(id, 4096 * id);
		size[id] = crpc_shm_size(seg[id]);
	}
	for (step = 0; step < 4000; step++) {
		id = 1 + (uint32_t)next_random() % 16;
		if (base[id] == NULL) {
			base[id] = crpc_xlate_map(x, id, seg[id]);
			assert_non_null(base[id]);
		} else {
			assert_int_equal(crpc_xlate_del(x, id), 0);
			check_ref(x, base[id], 1, 0);
			base[id] = NULL;
		}
		other = 1 + (uint32_t)next_random() % 16;
		off = next_random() % size[other];
		p = crpc_xlate_ptr(x, REF(other, off), 1);
		assert_ptr_equal(p, base[other] == NULL ? NULL : base[other] + off);
		if (p != NULL)
			check_ref(x, p, 1, REF(other, off));
	}
	crpc_xlate_free(x);
	for (id = 1; id <= 16; id++)
		crpc_shm_free(seg[id]);
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
