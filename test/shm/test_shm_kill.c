/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An owner killed between any two steps that others can see leaves nothing that stops anybody: who
 * attaches is refused at once, the name can be taken again, and a tool removes what is left.
 *
 * Built with the crash points. The victim goes through everything that an owner does, over a
 * leftover, and is killed at its 1st, 2nd, 3rd, ... pass of a point, until it gets to its end.
 */
#include "shm_test.h"

#include "crash.h"

#define PASSES 500 /* more than the victim makes */

static struct crpc_shm *
create(bool memfd)
{
	return create_as("a", 4096, memfd);
}

static bool
nothing_left(void)
{
	return rmdir(dir) == 0 && mkdir(dir, 0700) == 0;
}

/* ---- the victim ---- */

/* One life of an owner; without `end` it leaves all behind. */
static void
live(bool memfd, bool end)
{
	struct crpc_shm *seg = create(memfd);
	int fd;

	need(seg != NULL);
	crpc_shm_ready(seg);
	if (memfd) {
		/* Served by the same process: connect, and leave the answer unread. */
		need((fd = sock_connect("a")) >= 0);
		need(crpc_shm_serve(seg) == 1);
		close(fd);
	}
	need(crpc_shm_lock_take(seg, 1) != NULL);
	if (end)
		crpc_shm_free(seg);
}

/* Leave a segment whose owner is dead. */
static void
leave_one(bool memfd)
{
	pid_t pid = fork_mortal();

	if (pid == 0) {
		crpc_crash_arm_nth(0);
		live(memfd, false);
		_exit(0);
	}
	need(child_status(pid) == 0);
}

static void
victim(uint32_t nth)
{
	struct crpc_crash_point *const *points;
	uint32_t i, n;

	leave_one(true);
	crpc_crash_arm_nth(nth);
	live(true, true);
	live(false, true);
	leave_one(false);
	need(crpc_shm_remove(dir, "a") == 0);
	/* Here it lives on: everything was passed, or the test does not see it all. */
	n = crpc_crash_points(&points);
	for (i = 0; i < n; i++) {
		if (strncmp(points[i]->name, "shm.", 4) != 0 ||
				crpc_load_relaxed(&points[i]->passes) != 0)
			continue;
		fprintf(stderr, "%s is never passed\n", points[i]->name);
		_exit(4);
	}
	_exit(0);
}

/* ---- the survivors ---- */

/* Run the victim to its nth pass. False if it came to its end. */
static bool
killed_at(uint32_t nth)
{
	pid_t pid = fork_mortal();
	int status;

	if (pid == 0)
		victim(nth);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status)) {
		assert_int_equal(WEXITSTATUS(status), 0);
		return false;
	}
	assert_int_equal(WTERMSIG(status), SIGKILL);
	return true;
}

static void
attach_is_refused(uint32_t nth)
{
	struct crpc_shm *seg = attach("a");

	if (seg != NULL || (errno != ENOENT && errno != ECONNREFUSED))
		print_message("after pass %u: %s\n", nth, crpc_log_last());
	assert_null(seg);
	assert_true(errno == ENOENT || errno == ECONNREFUSED);
}

TEST(the_name_can_be_taken_again)
{
	struct crpc_shm *seg;
	uint32_t nth;

	for (nth = 1; killed_at(nth); nth++) {
		assert_true(nth < PASSES);
		attach_is_refused(nth);
		seg = create(nth % 2 == 0);
		if (seg == NULL)
			print_message("after pass %u: %s\n", nth, crpc_log_last());
		assert_non_null(seg);
		crpc_shm_ready(seg);
		assert_true(crpc_shm_owner_alive(seg));
		crpc_shm_free(seg);
		assert_true(nothing_left());
	}
	print_message("killed at %u passes of points\n", nth - 1);
	assert_true(nth > 40);
	assert_true(nothing_left());
}

TEST(a_tool_removes_what_is_left)
{
	struct crpc_shm_info info;

	for (uint32_t nth = 1; killed_at(nth); nth++) {
		int rc = crpc_shm_inspect(dir, "crpc.a", &info);

		assert_true(rc == -ENOENT || (rc == 0 && info.living == 0 && info.ours));
		assert_int_equal(crpc_shm_remove(dir, "a"), 0);
		assert_true(nothing_left());
	}
}

/* Of names that begin so; what lives, and what has another name, stays. */
TEST(a_sweep_removes_what_is_left)
{
	struct crpc_shm *other;
	int n;

	for (uint32_t nth = 1; killed_at(nth); nth++) {
		bool left = !nothing_left();

		assert_non_null(other = create_as("ab", 4096, nth % 2 == 0));
		crpc_shm_ready(other);
		assert_int_equal(crpc_shm_sweep(dir, "b"), 0);
		n = crpc_shm_sweep(dir, "a");
		assert_true(n == left);
		assert_true(crpc_shm_owner_alive(other));
		crpc_shm_free(other);
		assert_true(nothing_left());
	}
	assert_int_equal(crpc_shm_sweep("/dev/shm/not/there", "a"), -ENOENT);
}

/* ---- who comes while a leftover is removed ---- */

static struct crpc_shm *old;
static uint32_t came;

/* What others do while the remover stands before, or behind, the removal. */
static void
no_owner_lives(void)
{
	attach_is_refused(0);
	assert_false(crpc_shm_owner_alive(old));
	came++;
}

static void
another_removes_too(void)
{
	no_owner_lives();
	assert_int_equal(crpc_shm_remove(dir, "a"), -EBUSY);
}

/* Its lock shows that an owner lives, not the bytes; the remover has a lock, too. */
static void
live_on(void)
{
	live(false, false);
}

TEST(who_comes_while_it_is_removed_finds_no_owner)
{
	const char *const points[] = {"shm.remove.1", "shm.remove.3"};
	struct crpc_shm *seg;

	for (uint32_t i = 0; i < 4; i++) {
		pid_t pid = child_start(live_on, NULL);

		assert_non_null(old = attach("a"));
		assert_true(crpc_shm_owner_alive(old));
		child_kill(pid);
		crpc_crash_call(points[i % 2], i == 0 ? another_removes_too : no_owner_lives);
		if (i < 2) {
			assert_non_null(seg = create(false));
			crpc_shm_free(seg);
		} else {
			assert_int_equal(crpc_shm_remove(dir, "a"), 0);
		}
		assert_int_equal(came, i + 1);
		crpc_shm_detach(old);
	}
	assert_true(nothing_left());
}

TEST_MAIN(make_dir, remove_dir)
