/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In every program with cmocka: its list of tests, and the end of one that waits for ever, wherever
 * that is, the processes that it forks included. A test may set a shorter alarm() of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "test.h"

#define LIMIT_S   1200
#define TESTS_MAX 100

static struct CMUnitTest tests[TESTS_MAX];
static size_t ntests;

void
test_add(const char *name, void (*run)(void **), int (*setup)(void **), int (*teardown)(void **))
{
	if (ntests == TESTS_MAX)
		abort();
	tests[ntests++] = (struct CMUnitTest){name, run, setup, teardown, NULL};
}

uint32_t
test_open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

int
test_run(int (*setup)(void **), int (*teardown)(void **))
{
	return _cmocka_run_group_tests(
		program_invocation_short_name, tests, ntests, setup, teardown);
}

int
test_run_with(const char *group, const void *state)
{
	for (size_t i = 0; i < ntests; i++)
		tests[i].initial_state = (void *)(uintptr_t)state;
	return _cmocka_run_group_tests(group, tests, ntests, NULL, NULL);
}

static void
limit_start(void)
{
	const char *text = getenv("CRPC_TEST_LIMIT_S");

	alarm(text != NULL ? (unsigned int)strtoul(text, NULL, 10) : LIMIT_S);
}

static void
limit_is_over(int number)
{
	static const char text[] = "the test has not ended in CRPC_TEST_LIMIT_S seconds\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)n;
	abort();
}

__attribute__((constructor)) static void
limit_init(void)
{
	signal(SIGALRM, limit_is_over);
	pthread_atfork(NULL, NULL, limit_start);
	limit_start();
}
