/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process killed between any two stores that others can see leaves the arena whole: survivors go
 * on before anybody reclaims, and after it every block and unit is back.
 *
 * Built with the crash points. First one victim runs through everything that a member does and is
 * killed at its 1st, 2nd, 3rd, ... pass of a point, until it gets to its end. Then members that
 * work with each other are killed, at a random point or at a random time, for hundreds of rounds.
 */
#include "arena_work.h"

#include <sys/mman.h>
#include <time.h>

#include "crash.h"
#include "shm_arena.h"

#define DATA     (2 * MIB)
#define SMALL    MIB /* for the victim: it passes fewer points */
#define BASE     12u
#define VICTIM   2u /* the place that the victim gets */
#define WORKERS  4u
#define ROUNDS   250u
#define ROUND_US 3000u

/* What victim and survivor exchange. */
struct talk {
	_Atomic uint64_t to_victim;
	_Atomic uint64_t to_survivor;
	_Atomic uint32_t missed; /* points that a whole run did not pass */
	char name[40];           /* one of them */
	struct work_mail mail;
};

static struct talk *talk;

static int
setup_size(uint64_t data)
{
	const struct crpc_arena_conf conf = {.max_members = WORK_MEMBERS, .max_block = 512 * KIB};

	test_arena_make(data, &conf);
	talk = mmap(NULL, sizeof(*talk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return talk == MAP_FAILED;
}

static int
setup_small(void **state)
{
	return setup_size(SMALL);
}

static int
setup(void **state)
{
	return setup_size(DATA);
}

static int
teardown(void **state)
{
	test_arena_empty();
	test_arena_remove();
	munmap(talk, sizeof(*talk));
	return 0;
}

/* ---- the victim ---- */

/* Everything of one size, as far as there is memory, and all of it back. */
static void
take_all_and_free(struct crpc_arena_cache *c, uint64_t size)
{
	static uint64_t ref[DATA / 4096];
	uint32_t n = 0;

	while (n < CRPC_DIM(ref) && crpc_arena_alloc(c, size, &ref[n]) != NULL)
		n++;
	while (n-- > 0)
		need(crpc_arena_free(c, ref[n]) == 0);
}

/* Leave what a member leaves that dies while it cuts a span of three units. */
static void
die_halfway(void)
{
	struct crpc_arena_cache *c = crpc_arena_join(test_arena, NULL);
	uint64_t ref, given;
	arena_word *unit = test_arena->unit;
	uint32_t u, i;

	need(c != NULL);
	need(crpc_arena_alloc(c, 3 * 65536, &ref) != NULL);
	u = arena_ref_unit(test_arena, ref);
	crpc_store_relaxed(&unit[u + 2], word_make(UNIT_CLAIM, c->id, 2));
	need(crpc_arena_alloc(c, 100, &given) != NULL);
	need(crpc_arena_give(c, given, 1) == 0);
	for (i = 0; i < test_arena->units; i++) {
		if (word_state(crpc_load_relaxed(&unit[i])) != UNIT_FREE)
			continue;
		crpc_store_relaxed(&unit[i], word_make(UNIT_CLAIM, c->id, 0));
		break;
	}
	/* The kernel drops the lock of the dead; nothing else happens. */
	crpc_shm_lock_drop(c->lock);
	free(c);
}

static void
victim_hands(struct crpc_arena_cache *c)
{
	uint64_t ref;

	need(crpc_arena_alloc(c, 200, &ref) != NULL);
	crpc_store_relaxed(&talk->to_survivor, ref);
	need(crpc_arena_give(c, ref, 1) == 0);
	need(crpc_arena_alloc(c, 300, &ref) != NULL);
	need(crpc_arena_give(c, ref, 1) == 0);
	need(crpc_arena_revoke(c, ref) == 0);
	need(crpc_arena_take(c, crpc_load_relaxed(&talk->to_victim), 1, NULL, NULL) == 0);
	need(crpc_arena_free(c, crpc_load_relaxed(&talk->to_victim)) == 0);
}

static struct crpc_arena_cache *rival;
static uint64_t rival_ref;

static void
rival_allocates(void)
{
	need(crpc_arena_alloc(rival, 20 * KIB, &rival_ref) != NULL);
}

/* Not before: the first block of the span is claimed then. */
static void
rival_waits(void)
{
	crpc_crash_call("arena.block.2", rival_allocates);
}

/* Another member gets a block of a span that is just being taken apart. */
static void
victim_collides(struct crpc_arena_cache *c)
{
	rival = crpc_arena_join(test_arena, NULL);
	need(rival != NULL);
	take_all_and_free(c, 20 * KIB);
	crpc_crash_call("arena.trim.1", rival_waits);
	take_all_and_free(c, 192 * KIB);
	crpc_arena_leave(rival);
}

static void
victim_work(void)
{
	const struct crpc_arena_join_conf conf = {.cache_bytes = 48 * KIB};
	struct crpc_arena_cache *c = crpc_arena_join(test_arena, &conf);
	uint64_t ref[24];

	need(c != NULL && crpc_arena_member(c) == VICTIM);
	victim_hands(c);
	for (uint32_t i = 0; i < CRPC_DIM(ref); i++)
		need(crpc_arena_alloc(c, i % 2 != 0 ? 2048 : 4096, &ref[i]) != NULL);
	for (uint32_t i = 0; i < CRPC_DIM(ref); i++)
		need(crpc_arena_free(c, ref[i]) == 0);
	/* Spans of one kind are taken apart for the other, first those of several units. */
	take_all_and_free(c, 192 * KIB);
	victim_collides(c);
	die_halfway();
	need(crpc_arena_reclaim(test_arena, 0, NULL) == 0);
	need(crpc_arena_alloc(c, 500, &ref[0]) != NULL);
	crpc_arena_leave(c);
}

/* The arena was there before: what formats one is not the victim's. */
static bool
is_of_a_member(const struct crpc_crash_point *point)
{
	static const char *const places[] = {"arena.", "/crpc_arena.c", "/shm_arena.h",
		"/shm_arena_member.c", "/shm_arena_span.c"};

	for (uint32_t i = 0; i < CRPC_DIM(places); i++)
		if (strstr(point->name, places[i]) != NULL)
			return true;
	return false;
}

static void
report_missed_points(void)
{
	struct crpc_crash_point *const *p;
	uint32_t n = crpc_crash_points(&p), i;

	for (i = 0; i < n; i++) {
		if (!is_of_a_member(p[i]) || crpc_crash_passes(p[i]->name) != 0)
			continue;
		crpc_fetch_add_relaxed(&talk->missed, 1);
		snprintf(talk->name, sizeof(talk->name), "%s", p[i]->name);
	}
}

/* Run the victim until its pass @p nth of a point. True if it died there, false at its end. */
static bool
victim_run(uint32_t nth)
{
	pid_t pid = fork_mortal();
	int status;

	if (pid == 0) {
		crpc_crash_arm_nth(nth);
		victim_work();
		report_missed_points();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return true;
	}
	if (WEXITSTATUS(status) != 0)
		fail_msg("victim %u: exit %d", nth, WEXITSTATUS(status));
	return false;
}

/* ---- the survivor ---- */

static void
survivor_works(struct crpc_arena_cache *c)
{
	static const uint64_t sizes[] = {64, 300, 2048, 4096, 16 * KIB, 64 * KIB, 192 * KIB};
	uint64_t ref;

	for (uint32_t i = 0; i < CRPC_DIM(sizes); i++) {
		if (crpc_arena_alloc(c, sizes[i], &ref) == NULL) {
			/* All may be the dead one's until it is reclaimed. */
			assert_int_equal(errno, ENOMEM);
			continue;
		}
		work_mark(ref);
		assert_true(work_marked(ref));
		assert_int_equal(crpc_arena_free(c, ref), 0);
	}
}

/* The block is free; its unit may have been cut for another size since. */
static bool
is_gone(int rc)
{
	return rc == -ESTALE || rc == -EINVAL;
}

/* Whatever was on its way when the victim died is the survivor's or free. */
static void
survivor_settles(struct crpc_arena_cache *c, uint32_t nth, bool killed)
{
	uint64_t ref = crpc_load_relaxed(&talk->to_victim);
	int rc = crpc_arena_revoke(c, ref);

	if (rc == 0)
		assert_int_equal(crpc_arena_free(c, ref), 0);
	else if (!is_gone(rc))
		fail_msg("victim %u: revoke says %d", nth, rc);
	ref = crpc_load_relaxed(&talk->to_survivor);
	if (ref == 0)
		return;
	rc = crpc_arena_take(c, ref, VICTIM, NULL, NULL);
	if (rc == 0)
		assert_int_equal(crpc_arena_free(c, ref), 0);
	else if (!is_gone(rc))
		fail_msg("victim %u: take says %d", nth, rc);
	/* One that left in good order has given it for good. */
	if (!killed)
		assert_int_equal(rc, 0);
}

static void
everything_is_back(struct crpc_arena_cache *c, uint32_t nth)
{
	struct arena_report r;
	uint64_t ref;

	crpc_arena_flush(c);
	test_arena_whole(&r);
	if (r.members != 1 || r.blocks_allocated != BASE || r.blocks_cached + r.blocks_transit != 0)
		fail_msg("victim %u: %u members, %llu blocks allocated, %llu cached, %llu on "
			 "their way",
				nth, r.members, (unsigned long long)r.blocks_allocated,
				(unsigned long long)r.blocks_cached,
				(unsigned long long)r.blocks_transit);
	assert_non_null(crpc_arena_alloc(c, 512 * KIB, &ref));
	assert_int_equal(crpc_arena_free(c, ref), 0);
	crpc_arena_flush(c);
}

TEST_FIXTURE(each_point_may_be_the_last, setup_small, teardown)
{
	struct crpc_arena_cache *c = test_join(0, 64 * KIB);
	uint64_t base[BASE], ref;
	uint32_t i, nth;
	bool killed = true;

	for (i = 0; i < BASE; i++) {
		assert_non_null(crpc_arena_alloc(c, 100u << i % 8, &base[i]));
		work_mark(base[i]);
	}
	for (nth = 1; killed; nth++) {
		assert_non_null(crpc_arena_alloc(c, 5000, &ref));
		assert_int_equal(crpc_arena_give(c, ref, VICTIM), 0);
		crpc_store_relaxed(&talk->to_victim, ref);
		crpc_store_relaxed(&talk->to_survivor, 0);
		killed = victim_run(nth);
		survivor_works(c);
		assert_int_equal(crpc_arena_reclaim(test_arena, 0, NULL), 0);
		survivor_settles(c, nth, killed);
		everything_is_back(c, nth);
		for (i = 0; i < BASE; i++)
			assert_true(work_marked(base[i]));
	}
	print_message("killed at %u passes of a point\n", nth - 2);
	assert_in_range(nth, 200, 100000);
	if (crpc_load_relaxed(&talk->missed) != 0)
		fail_msg("%u points were never passed, one of them %s", talk->missed, talk->name);
	crpc_arena_leave(c);
}

/* ---- rounds ---- */

static void
worker_main(uint64_t mine, uint32_t nth)
{
	/* With a small cache it cuts and takes apart all the time. */
	const struct crpc_arena_join_conf conf = {.cache_bytes = 1024u << mine % 9};
	struct work w = {.rng = mine | 1, .mail = &talk->mail, .max_size = 256 * KIB};

	crpc_crash_arm_nth(nth);
	w.c = crpc_arena_join(test_arena, &conf);
	if (w.c == NULL)
		_exit(4);
	for (;;) {
		int rc = work_step(&w);

		if (rc == 0 && rnd(&w.rng) % 512 == 0)
			rc = crpc_arena_reclaim(test_arena, 16, NULL) < 0 ? -EREMOTEIO : 0;
		if (rc == 0 && rnd(&w.rng) % 4096 == 0) {
			crpc_arena_leave(w.c);
			w.n = 0;
			w.c = crpc_arena_join(test_arena, &conf);
			rc = w.c == NULL ? -errno : 0;
		}
		if (rc != 0)
			_exit(-rc);
	}
}

static pid_t
worker_start(void)
{
	uint64_t mine = rnd(&seed);
	/* Half of them die by themselves, at a point; the others when we kill them. */
	uint32_t nth = mine % 2 != 0 ? (uint32_t)(mine >> 32) % 4000 + 1 : 0;
	pid_t pid = fork_mortal();

	if (pid == 0)
		worker_main(mine, nth);
	return pid;
}

static void
worker_end(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("a worker found: %s", strerror(WEXITSTATUS(status)));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

TEST_FIXTURE(members_die_and_others_go_on, setup, teardown)
{
	struct crpc_arena_reclaimed found = {0};
	struct arena_report r;
	pid_t pid[WORKERS];
	uint32_t round, i;

	for (i = 0; i < WORKERS; i++)
		pid[i] = worker_start();
	for (round = 0; round < ROUNDS; round++) {
		struct timespec t = {.tv_nsec = (long)(rnd(&seed) % ROUND_US) * 1000};

		nanosleep(&t, NULL);
		i = (uint32_t)(rnd(&seed) % WORKERS);
		worker_end(pid[i]);
		/* Some passes are whole, some go on over several rounds, some are left to join. */
		if (round % 4 != 3)
			assert_in_range(
				crpc_arena_reclaim(test_arena, round % 4 * 8, &found), 0, 1);
		pid[i] = worker_start();
	}
	for (i = 0; i < WORKERS; i++)
		worker_end(pid[i]);
	while (crpc_arena_reclaim(test_arena, 0, &found) != 0)
		;
	/* A pass that was under way does not see those that died after it began. */
	assert_int_equal(crpc_arena_reclaim(test_arena, 0, &found), 0);
	print_message("%u members and %llu blocks came back, %llu units half cut\n", found.members,
			(unsigned long long)found.blocks, (unsigned long long)found.units);
	test_arena_whole(&r);
	assert_int_equal(r.members, 0);
	assert_true(found.members > 0 && found.blocks > 0);
}

TEST_MAIN(make_dir, remove_dir)
