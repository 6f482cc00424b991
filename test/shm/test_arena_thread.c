/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of one process, each a member, that allocate, free, and pass blocks to each other, while
 * one joins and leaves and one reclaims. For the thread sanitizer above all.
 */
#include "arena_work.h"

#include <pthread.h>

#define THREADS 4u
#define STEPS   100000u

static struct work_mail mail;
static _Atomic uint32_t running;

/* Returns what was wrong, as a pointer. */
static void *
worker(void *arg)
{
	uint32_t k = *(const uint32_t *)arg, i;
	struct work w = {.rng = seed + k * 7919 + 1, .mail = &mail, .max_size = 128 * KIB};
	intptr_t rc = 0;

	w.c = crpc_arena_join(test_arena, NULL);
	if (w.c == NULL)
		rc = -errno;
	for (i = 0; i < STEPS && rc == 0; i++) {
		rc = work_step(&w);
		/* One of them comes and goes: what it holds is dropped. */
		if (k == 0 && i % 1000 == 999 && rc == 0) {
			crpc_arena_leave(w.c);
			w.n = 0;
			w.c = crpc_arena_join(test_arena, NULL);
			rc = w.c == NULL ? -errno : 0;
		}
	}
	crpc_arena_leave(w.c);
	crpc_fetch_add_acq_rel(&running, UINT32_MAX);
	return (void *)rc;
}

/* All live, so it finds no dead member; what was given to an empty place it may free. */
static void *
reclaimer(void *arg)
{
	struct crpc_arena_reclaimed found = {0};
	intptr_t rc = 0;

	while (rc >= 0 && crpc_load_acquire(&running) != 0)
		rc = crpc_arena_reclaim(test_arena, 4, &found);
	return (void *)(found.members != 0 ? -EEXIST : rc < 0 ? rc : 0);
}

TEST(members_in_threads_work_with_each_other)
{
	const struct crpc_arena_conf conf = {.max_members = WORK_MEMBERS, .max_block = 256 * KIB};
	uint32_t k[THREADS], i;
	pthread_t t[THREADS + 1];
	void *rc;

	test_arena_make(2 * MIB, &conf);
	crpc_store_release(&running, THREADS);
	for (i = 0; i < THREADS; i++) {
		k[i] = i;
		assert_int_equal(pthread_create(&t[i], NULL, worker, &k[i]), 0);
	}
	assert_int_equal(pthread_create(&t[i], NULL, reclaimer, NULL), 0);
	for (i = 0; i <= THREADS; i++) {
		assert_int_equal(pthread_join(t[i], &rc), 0);
		if (rc != NULL)
			fail_msg("thread %u: %s", i, strerror(-(int)(intptr_t)rc));
	}
	test_arena_empty();
	test_arena_remove();
}

TEST_MAIN(make_dir, remove_dir)
