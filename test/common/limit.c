/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends a program that waits for ever, wherever that is: every test with cmocka has this in it, and
 * so do the processes that it forks. A test may set a shorter alarm() of its own.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LIMIT_S 1200

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
