/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The second process of rpcbench: functions run in it, with their argument and result; bytes and
 * descriptors reach the other side; whoever waits is told when the other fails, returns early,
 * stays away or dies; it leaves nothing behind when the first ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "crpc_clock.h"
#include "pair.h"

#define SOON_MS 20000

static int
open_pair(void **state)
{
	crpc_clock_init();
	*state = rpb_pair_start();
	return *state == NULL ? -1 : 0;
}

static int
close_pair(void **state)
{
	rpb_pair_end(*state);
	return 0;
}

/* ---- what runs in the second process ---- */

static int
twice(struct rpb_pair *p, void *arg)
{
	return 2 * *(int *)arg;
}

static int
fails(struct rpb_pair *p, void *arg)
{
	return rpb_pair_fail(p, -EPERM, "no %s today", (char *)arg);
}

static int
until_stopped(struct rpb_pair *p, void *arg)
{
	rpb_pair_set_ready(p);
	while (!rpb_pair_stopped(p))
		usleep(100);
	return 7;
}

static int
mirror(struct rpb_pair *p, void *arg)
{
	char text[64];
	int n = rpb_pair_see(p, RPB_SECOND, text, sizeof(text), SOON_MS), i;

	if (n < 0)
		return n;
	for (i = 0; i < n / 2; i++) {
		char c = text[i];

		text[i] = text[n - 1 - i];
		text[n - 1 - i] = c;
	}
	return rpb_pair_show(p, RPB_SECOND, text, (size_t)n);
}

static int
write_to_fds(struct rpb_pair *p, void *arg)
{
	int fd[2], rc = rpb_pair_take_fds(p, fd, 2);

	if (rc != 0)
		return rc;
	rc = write(fd[0], "a", 1) == 1 && write(fd[1], "b", 1) == 1 ? 0 : -EIO;
	close(fd[0]);
	close(fd[1]);
	return rc;
}

static int
dies(struct rpb_pair *p, void *arg)
{
	raise(SIGKILL);
	return 0;
}

/* ---- tests ---- */

static void
functions_run_with_their_argument(void **state)
{
	int v, i;

	for (i = 0; i < 100; i++) {
		v = i;
		assert_int_equal(rpb_pair_run(*state, twice, &v, sizeof(v)), 0);
		v = -1; /* It has a copy. */
		assert_int_equal(rpb_pair_join(*state, SOON_MS), 2 * i);
	}
	assert_int_equal(rpb_pair_run(*state, twice, &v, RPB_PAIR_ARG_MAX + 1), -EMSGSIZE);
}

static void
its_errors_are_told(void **state)
{
	char buf[8];

	assert_int_equal(rpb_pair_run(*state, fails, "sun", 4), 0);
	assert_int_equal(rpb_pair_join(*state, SOON_MS), -EPERM);
	assert_string_equal(rpb_pair_why(*state), "no sun today");
	/* Who waits for a blob of a function that has returned is not left waiting. */
	assert_int_equal(rpb_pair_run(*state, fails, "rain", 5), 0);
	assert_int_equal(
		rpb_pair_see(*state, RPB_FIRST, buf, sizeof(buf), 10 * SOON_MS), -ECHILD);
	assert_int_equal(rpb_pair_join(*state, SOON_MS), -EPERM);
}

static void
it_works_until_it_is_stopped(void **state)
{
	assert_int_equal(rpb_pair_run(*state, until_stopped, NULL, 0), 0);
	while (!rpb_pair_ready(*state))
		assert_true(rpb_pair_alive(*state));
	assert_int_equal(rpb_pair_join(*state, 20), -ETIMEDOUT);
	rpb_pair_stop(*state);
	assert_int_equal(rpb_pair_join(*state, SOON_MS), 7);
}

static void
bytes_go_both_ways(void **state)
{
	char text[64] = "";
	int i;

	for (i = 0; i < 10; i++) { /* Those of an earlier function are gone. */
		assert_int_equal(rpb_pair_run(*state, mirror, NULL, 0), 0);
		assert_int_equal(
			rpb_pair_show(*state, RPB_FIRST, "stressed", 9 - (size_t)i % 2), 0);
		assert_int_equal(
			rpb_pair_see(*state, RPB_FIRST, text, sizeof(text), SOON_MS), 9 - i % 2);
		assert_memory_equal(text + 1 - i % 2, "desserts", 8);
		assert_int_equal(rpb_pair_join(*state, SOON_MS), 0);
	}
	assert_int_equal(rpb_pair_show(*state, RPB_FIRST, text, RPB_PAIR_BLOB_MAX + 1), -EMSGSIZE);
}

static void
descriptors_reach_it(void **state)
{
	int one[2], two[2], give[2];
	char c;

	assert_int_equal(pipe2(one, O_CLOEXEC), 0);
	assert_int_equal(pipe2(two, O_CLOEXEC), 0);
	give[0] = one[1];
	give[1] = two[1];
	assert_int_equal(rpb_pair_run(*state, write_to_fds, NULL, 0), 0);
	assert_int_equal(rpb_pair_give_fds(*state, give, 2), 0);
	assert_int_equal(rpb_pair_join(*state, SOON_MS), 0);
	assert_true(read(one[0], &c, 1) == 1 && c == 'a');
	assert_true(read(two[0], &c, 1) == 1 && c == 'b');
	/* What no function waits for is no command. */
	assert_int_equal(rpb_pair_give_fds(*state, give, 2), 0);
	functions_run_with_their_argument(state);
	close(one[0]);
	close(one[1]);
	close(two[0]);
	close(two[1]);
}

static void
lines_go_between_the_two(void **state)
{
	double ns = rpb_pair_line_ns(*state), rate = rpb_pair_line_rate(*state);

	assert_true(ns > 1 && ns <= APP_COURT_LATE_NS);
	assert_true(rate >= 0);
}

static void
its_death_is_told(void **state)
{
	char buf[8];

	assert_int_equal(rpb_pair_run(*state, dies, NULL, 0), 0);
	assert_int_equal(
		rpb_pair_see(*state, RPB_FIRST, buf, sizeof(buf), 10 * SOON_MS), -ECHILD);
	assert_int_equal(rpb_pair_join(*state, SOON_MS), -ECHILD);
	assert_non_null(strstr(rpb_pair_why(*state), "signal 9"));
	assert_int_equal(rpb_pair_run(*state, twice, buf, sizeof(buf)), -ECHILD);
	assert_non_null(strstr(rpb_pair_why(*state), "signal 9"));
	assert_true(rpb_pair_line_ns(*state) < 0);
	assert_false(rpb_pair_alive(*state));
}

static int quit_pipe[2];

static void
say_goodbye(void)
{
	if (write(quit_pipe[1], "q", 1) != 1)
		_exit(3);
}

static int
promise_goodbye(struct rpb_pair *p, void *arg)
{
	rpb_pair_on_quit(say_goodbye);
	rpb_pair_set_ready(p);
	while (!rpb_pair_stopped(p))
		usleep(100);
	return 0;
}

/* A first process is killed while the second works: that one stops, cleans up and ends. */
static void
it_ends_with_the_first(void **state)
{
	struct rpb_pair *p;
	pid_t first;
	int status;
	char c;

	assert_int_equal(pipe2(quit_pipe, 0), 0);
	first = fork();
	if (first == 0) {
		p = rpb_pair_start();
		if (p == NULL || rpb_pair_run(p, promise_goodbye, NULL, 0) != 0)
			_exit(1);
		while (!rpb_pair_ready(p))
			;
		raise(SIGKILL);
	}
	close(quit_pipe[1]);
	assert_int_equal(waitpid(first, &status, 0), first);
	assert_true(WIFSIGNALED(status));
	assert_true(read(quit_pipe[0], &c, 1) == 1 && c == 'q');
	assert_int_equal(read(quit_pipe[0], &c, 1), 0); /* It is gone. */
	close(quit_pipe[0]);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_pair, close_pair)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(functions_run_with_their_argument),
		TEST(its_errors_are_told),
		TEST(it_works_until_it_is_stopped),
		TEST(bytes_go_both_ways),
		TEST(descriptors_reach_it),
		TEST(lines_go_between_the_two),
		TEST(its_death_is_told),
		cmocka_unit_test(it_ends_with_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
