/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Start of a rank that was launched by nobody: alone it is rank 0 of 1 with all its cores, a
 * launcher without PMIx is refused, and a command line divides at the first "--".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_eal.h"
#include "app_fail.h"
#include "app_lcore.h"
#include "crpc_clock.h"

static void
alone_is_rank_0_of_1(void **state)
{
	struct app_boot boot;
	cpu_set_t mine, set;
	char text[64];
	bool shared = true;

	unsetenv("PMIX_NAMESPACE");
	assert_int_equal(app_boot_open(&boot), 0);
	/* What waits for other ranks knows how long. */
	assert_true(crpc_clock.mult != 0);
	assert_int_equal(boot.rank, 0);
	assert_int_equal(boot.size, 1);
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	assert_int_equal(app_lcore_choose(&boot, NULL, 1024, &set), 0);
	assert_true(CPU_EQUAL(&mine, &set));
	assert_int_equal(app_lcore_choose(&boot, NULL, 1, &set), 0);
	assert_int_equal(CPU_COUNT(&set), 1);
	assert_int_equal(app_lcore_shared(&boot, &set, &shared), 0);
	assert_false(shared);
	CPU_ZERO(&set);
	CPU_SET(3, &set);
	CPU_SET(17, &set);
	app_lcore_text(&set, text, sizeof(text));
	assert_string_equal(text, "3,17");
	assert_int_equal(app_boot_put(&boot, "x", "y", 1), 0);
	assert_int_equal(app_boot_fence(&boot, 10), 0);
	app_boot_close(&boot);
}

static void
launcher_without_pmix_is_refused(void **state)
{
	struct app_boot boot;

	app_fail_hold(true);
	setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
	assert_int_equal(app_boot_open(&boot), APP_EXIT_USAGE);
	assert_non_null(strstr(app_fail_held(), "PMIx"));
	setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
	assert_int_equal(app_boot_open(&boot), 0);
	unsetenv("OMPI_COMM_WORLD_SIZE");
	app_fail_hold(false);
}

static void
arguments_divide_at_the_first_dashes(void **state)
{
	char *both[] = {(char[]){"p"}, (char[]){"-l"}, (char[]){"0"}, (char[]){"--"},
		(char[]){"--a"}, (char[]){"--"}};
	struct app_args args;

	assert_true(app_args_split(&args, 6, both, false));
	assert_int_equal(args.eal_argc, 3);
	assert_int_equal(args.argc, 2);
	assert_string_equal(args.argv[0], "--a");
	assert_true(app_eal_has_lcores(&args));
	assert_false(app_args_split(&args, 3, both, true));
	assert_int_equal(args.eal_argc, 1);
	assert_int_equal(args.argc, 2);
	assert_string_equal(args.argv[0], both[1]);
	assert_false(app_args_split(&args, 1, both, false));
	assert_int_equal(args.eal_argc, 1);
	assert_int_equal(args.argc, 0);
	assert_false(app_eal_has_lcores(&args));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_is_rank_0_of_1),
		cmocka_unit_test(launcher_without_pmix_is_refused),
		cmocka_unit_test(arguments_divide_at_the_first_dashes),
	};

	return cmocka_run_group_tests_name("app_lcore", tests, NULL, NULL);
}
