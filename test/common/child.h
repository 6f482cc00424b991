/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHILD_H
#define CHILD_H

/**
 * @file
 * Processes of a test: each dies with the test, and in a bounded time. Include it after cmocka.h.
 */

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child: end it if something is not as it must be. */
#define need(ok)                                                                                   \
	do {                                                                                       \
		if (!(ok))                                                                         \
			_exit(3);                                                                  \
	} while (0)

/* As fork(), but the child dies with its parent, and in a bounded time: no test hangs. */
static inline pid_t
fork_mortal(void)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
		if (getppid() != parent) /* it died before */
			_exit(5);
	}
	return pid;
}

/* Start a child that calls fn, and then turn, unless NULL, until it is killed; returns after fn. */
static inline pid_t
child_start(void (*fn)(void), void (*turn)(void))
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork_mortal();
	if (pid == 0) {
		fn();
		need(write(ready[1], "", 1) == 1);
		for (;; usleep(500))
			if (turn != NULL)
				turn();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static inline void
child_kill(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Wait for a child that ends by itself. Its exit status. */
static inline int
child_status(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The child returns from fn with 0, or with 77 if the machine does not let it. */
static inline void
child_runs(int (*fn)(void))
{
	pid_t pid = fork_mortal();
	int status;

	if (pid == 0)
		_exit(fn());
	status = child_status(pid);
	if (status == 77)
		skip();
	assert_int_equal(status, 0);
}

#endif
