/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options: every mistake ends with exit code 2 and exactly one line that names the option; presets
 * are what they say and give way to other options; limits are the first and last values that work.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_fail.h"
#include "app_json.h"
#include "app_keys.h"
#include "options.h"

#define ARGS_MAX 12

/* Parse a line of arguments separated by blanks; what goes to stderr comes back in said. */
static int
parse(struct kv_options *o, enum kv_program program, const char *line, uint32_t ranks, char *said,
	size_t len)
{
	int fd = memfd_create("stderr", 0), old = dup(STDERR_FILENO), argc = 0, rc;
	static char text[512];
	char *argv[ARGS_MAX], *save = NULL, *p;
	ssize_t n;

	assert_true(fd >= 0 && old >= 0);
	snprintf(text, sizeof(text), "%s", line);
	for (p = strtok_r(text, " ", &save); p != NULL; p = strtok_r(NULL, " ", &save))
		argv[argc++] = p;
	dup2(fd, STDERR_FILENO);
	rc = kv_options_parse(o, program, argc, argv);
	if (rc == 0)
		rc = kv_options_check_ranks(o, ranks);
	fflush(stderr);
	dup2(old, STDERR_FILENO);
	n = pread(fd, said, len - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(fd);
	close(old);
	return rc;
}

static void
refused(enum kv_program program, const char *line, uint32_t ranks, const char *names)
{
	struct kv_options o;
	char said[2048];
	int rc = parse(&o, program, line, ranks, said, sizeof(said));

	if (rc != APP_EXIT_USAGE || strchr(said, '\n') == NULL || strchr(said, '\n')[1] != '\0' ||
		strncmp(said, "benchkv: ", 9) != 0 || strstr(said, names) == NULL)
		fail_msg("'%s' gave %d and: %s", line, rc, said);
}

static void
taken(const char *line, uint32_t ranks, struct kv_options *o)
{
	char said[2048];
	int rc = parse(o, KV_PROGRAM_DAEMON, line, ranks, said, sizeof(said));

	if (rc != 0 || said[0] != '\0')
		fail_msg("'%s' gave %d and: %s", line, rc, said);
}

/* What follows from the number of ranks; bad_input.py has what follows from the options alone. */
static void
mistakes_get_one_line_and_code_2(void **state)
{
	app_fail_name("benchkv");
	refused(KV_PROGRAM_DAEMON, "--keys 9M", 2, "--keys");
	refused(KV_PROGRAM_DAEMON, "--clients 512", 1000, "writers");
	refused(KV_PROGRAM_DAEMON, "--daemons 32", 200, "--daemons");
	refused(KV_PROGRAM_CLIENT, "--attach x --daemons 2", 1, "--daemons");
}

static void
limits_are_taken(void **state)
{
	struct kv_options o;

	taken("--clients 1 --depth 1 --keys 1 --key-size 8 --value-size 8", 1, &o);
	/* Units of 1000 for numbers, of 1024 for bytes. */
	taken("--keys 1K --value-size 64-1K", 1, &o);
	assert_int_equal(o.keys, 1000);
	assert_int_equal(o.sizes.max, 1024);
	taken("--keys 2k --seed 3G --history-ops 1Gi", 1, &o);
	assert_int_equal(o.keys, 2000);
	assert_int_equal(o.seed, UINT64_C(3000000000));
	assert_int_equal(o.history_ops, 1 << 30);
	taken("--clients 512 --depth 64 --key-size 64 --value-size 4Ki", 1, &o);
	assert_int_equal(o.value_size, 4096);
	taken("--keys 16777216 --read-ratio 0 --delete-ratio 1", 1, &o);
	taken("--seconds=0.1 --warmup=0 --seed 0 --dist=zipf --flush=immediate", 1, &o);
	assert_int_equal(o.dist, APP_DIST_ZIPF);
	assert_int_equal(o.flush, 1);
	taken("--daemons 32 --delegate flux --route client", 128, &o);
	assert_int_equal(o.daemons, 32);
	assert_int_equal(o.delegate, KV_DELEGATE_FLUX);
	assert_int_equal(o.route, KV_ROUTE_CLIENT);
}

static void
preset_gives_way(void **state)
{
	struct kv_options o;

	taken("--preset seed001", 2, &o);
	assert_int_equal(o.clients, 16);
	assert_int_equal(o.qd, 1);
	assert_int_equal(o.keys, 1024);
	assert_int_equal(o.key_size, 8);
	assert_int_equal(o.value_size, 8);
	assert_true(o.read_ratio == 0.5);
	assert_int_equal(o.dist, APP_DIST_UNIFORM);
	taken("--clients 3 --preset seed001", 2, &o);
	assert_int_equal(o.clients, 3);
	taken("--preset=seed001 --depth 4 --value-size 64", 2, &o);
	assert_int_equal(o.clients, 16);
	assert_int_equal(o.qd, 4);
	assert_int_equal(o.value_size, 64);
	taken("--preset seed000", 2, &o);
	assert_int_equal(o.daemons, 2);
	assert_int_equal(o.clients, 8);
	assert_int_equal(o.qd, 4);
	taken("--preset paper --clients 8", 2, &o);
	assert_int_equal(o.backend, KV_BACKEND_DELEGATION);
	assert_int_equal(o.clients, 8);
	assert_true(o.hold_us == 10);
}

/* Sizes come as often as was asked, never others, and always the same for the same word. */
static void
sizes_as_asked(void **state)
{
	static const char *const bad[] = {"", "8-", "7-9", "9-8", "8-5000", "8:1,", "8:0", "8:1,x",
		"8", "8:1,7:1", "8;9", "8:1,16:1,24:1,32:1,40:1,48:1,56:1,64:1,72:1"};
	uint32_t i, n, large = 0, seen[1025] = {0};
	struct kv_options o;
	struct app_sizes s;

	taken("--value-size 8-1024", 1, &o);
	assert_int_equal(o.value_size, 1024);
	for (i = 0; i < 1000000; i++) {
		n = app_sizes_of(&o.sizes, i * UINT64_C(0x10001));
		assert_true(n >= 8 && n <= 1024);
		assert_int_equal(n, app_sizes_of(&o.sizes, i * UINT64_C(0x10001)));
		seen[n]++;
	}
	/* About 983 of each: six standard deviations are 188. */
	for (i = 8; i <= 1024; i++)
		assert_true(seen[i] > 795 && seen[i] < 1171);
	taken("--value-size 8:9,1000:1", 1, &o);
	assert_int_equal(o.value_size, 1000);
	for (i = 0; i < 1000000; i++) {
		n = app_sizes_of(&o.sizes, i);
		assert_true(n == 8 || n == 1000);
		large += n == 1000;
	}
	assert_true(large > 98000 && large < 102000);
	for (i = 0; i < CRPC_DIM(bad); i++)
		if (strcmp(bad[i], "8") != 0 && app_sizes_parse(&s, bad[i], 8, 4096) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(app_sizes_parse(&s, "8", 8, 4096), 0);
	assert_true(app_sizes_fixed(&s));
}

static void
ycsb_gives_way(void **state)
{
	struct kv_options o;

	taken("--ycsb b", 1, &o);
	assert_true(o.read_ratio == 0.95 && o.dist == APP_DIST_ZIPF && o.skew == 0.99 && !o.rmw);
	taken("--ycsb=d --preset seed001", 2, &o);
	assert_true(o.read_ratio == 0.95 && o.dist == APP_DIST_LATEST);
	assert_int_equal(o.clients, 16);
	taken("--read-ratio 0.2 --ycsb f --skew 1.2", 1, &o);
	assert_true(o.read_ratio == 0.2 && o.skew == 1.2 && o.rmw);
	taken("--ycsb e", 1, &o);
	assert_true(o.read_ratio == 0.95 && o.dist == APP_DIST_ZIPF && o.scan == 100 && !o.rmw);
	taken("--ycsb e --scan 0 --read-ratio 0.5", 1, &o);
	assert_true(o.read_ratio == 0.5 && o.scan == 0);
	taken("--ycsb c --dist uniform --rate 1.5e6 --cooldown 0.5", 1, &o);
	assert_true(o.read_ratio == 1 && o.dist == APP_DIST_UNIFORM && o.rate == 1.5e6);
}

/* A folder where a file for results is asked for is found before the run, not at its end. */
static void
results_go_to_a_file(void **state)
{
	char folder[] = "/tmp/test_options.XXXXXX", file[64];

	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/results.jsonl", folder);
	app_fail_hold(true);
	assert_int_equal(app_json_check("json", file), 0);
	assert_string_equal(app_fail_held(), "");
	assert_int_equal(app_json_check("json", folder), APP_EXIT_USAGE);
	assert_non_null(strstr(app_fail_held(), "Is a directory"));
	app_fail_hold(false);
	assert_int_equal(access(file, F_OK), -1);
	rmdir(folder);
}

/* A result that cannot be written is an error that says so. */
static void
results_that_cannot_be_written_are_named(void **state)
{
	FILE *full = fopen("/dev/full", "a");

	assert_non_null(full);
	app_fail_hold(true);
	assert_int_not_equal(app_json_write(full, json_pack("{s:i}", "a", 1)), 0);
	assert_non_null(strstr(app_fail_held(), "No space left"));
	app_fail_hold(false);
	fclose(full);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mistakes_get_one_line_and_code_2),
		cmocka_unit_test(limits_are_taken),
		cmocka_unit_test(preset_gives_way),
		cmocka_unit_test(sizes_as_asked),
		cmocka_unit_test(ycsb_gives_way),
		cmocka_unit_test(results_go_to_a_file),
		cmocka_unit_test(results_that_cannot_be_written_are_named),
	};

	return cmocka_run_group_tests_name("benchkv_options", tests, NULL, NULL);
}
