/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEST_H
#define TEST_H

/**
 * @file
 * cmocka with the headers that it needs, and tests that add themselves to their program's list, in
 * the order of the file.
 *
 *     TEST(a_sentence_about_behaviour)
 *     {
 *             assert_int_equal(1 + 1, 2);
 *     }
 *
 *     TEST_MAIN(NULL, NULL)
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** The call returns 0. */
#define assert_ok(call) assert_int_equal(call, 0)

/** It holds, or the test fails with the last line of the log; include crpc_log.h, too. */
#define assert_or_log(cond)                                                                        \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail_msg("%s: %s", #cond, crpc_log_last());                                \
	} while (0)

/** Add a test; what TEST() does. */
void test_add(const char *name, void (*run)(void **), int (*setup)(void **),
	int (*teardown)(void **));

/** Run all, after setup and before teardown; either may be NULL. Returns how many failed. */
int test_run(int (*setup)(void **), int (*teardown)(void **));

/** Run all with this state; group is the name of the run. Returns how many failed. */
int test_run_with(const char *group, const void *state);

/** Descriptors that this process has, and two more. */
uint32_t test_open_files(void);

/** A test with a setup and a teardown of its own. */
#define TEST_FIXTURE(name, setup, teardown)                                                        \
	static void name(void **state);                                                            \
	__attribute__((constructor)) static void name##_add(void)                                  \
	{                                                                                          \
		test_add(#name, name, setup, teardown);                                            \
	}                                                                                          \
	static void name(void **state)

#define TEST(name) TEST_FIXTURE(name, NULL, NULL)

/** The main() of a program that has nothing else to do there. */
#define TEST_MAIN(setup, teardown)                                                                 \
	int main(void)                                                                             \
	{                                                                                          \
		return test_run(setup, teardown);                                                  \
	}

#endif
