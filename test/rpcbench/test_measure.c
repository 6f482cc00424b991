/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From slices to figures: the state of a slice, the state that subjects are compared in, medians of
 * that state alone, a ping-pong whose partner does not come; and options that take lists.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app_fail.h"
#include "app_measure.h"
#include "app_opt.h"
#include "crpc_clock.h"

#define NEAR 120.0
#define FAR  700.0

static void
add(struct app_series *s, double value, double before, double after, uint64_t away_ns)
{
	const struct app_slice slice = {
		.value = value, .line_ns = {before, after}, .ns = 50, .away_ns = away_ns};

	assert_int_equal(app_series_add(s, &slice), 0);
}

static void
states_are_told_by_both_ping_pongs(void **state)
{
	assert_int_equal(app_state_of(NEAR, NEAR), APP_STATE_NEAR);
	assert_int_equal(app_state_of(FAR, FAR), APP_STATE_FAR);
	assert_int_equal(app_state_of(NEAR, FAR), APP_STATE_MIXED);
	assert_int_equal(app_state_of(FAR, NEAR), APP_STATE_MIXED);
	/* Without an answer nobody knows. */
	assert_int_equal(app_state_of(APP_COURT_LATE_NS, APP_COURT_LATE_NS), APP_STATE_MIXED);
	assert_int_equal(app_state_of(NEAR, APP_COURT_LATE_NS), APP_STATE_MIXED);
}

/* Two subjects: the one with fewest slices of a state decides, and mixed slices decide nothing. */
static void
subjects_are_compared_in_one_state(void **state)
{
	struct app_series s[3] = {0}; /* The third has no slices, and does not count. */
	uint32_t count[APP_STATES], i;

	for (i = 0; i < 5; i++)
		add(&s[0], 1, NEAR, NEAR, 0);
	for (i = 0; i < 2; i++) {
		add(&s[0], 1, FAR, FAR, 0);
		add(&s[1], 1, FAR, FAR, 0);
	}
	add(&s[1], 1, NEAR, NEAR, 0);
	add(&s[1], 1, NEAR, FAR, 0);
	assert_int_equal(app_series_state(s, 3, count), APP_STATE_FAR);
	assert_int_equal(count[APP_STATE_NEAR], 6);
	assert_int_equal(count[APP_STATE_FAR], 4);
	assert_int_equal(count[APP_STATE_MIXED], 1);
	s[1].n = 0;
	add(&s[1], 1, NEAR, FAR, 0);
	assert_int_equal(app_series_state(s, 3, count), APP_STATE_MIXED);
	for (i = 0; i < 3; i++)
		app_series_fini(&s[i]);
}

static void
figures_are_of_their_state_alone(void **state)
{
	static const double near[] = {7, 3, 5, 9};
	struct app_series s = {0};
	struct app_figure f;
	uint32_t i;

	f = app_series_figure(&s, APP_STATE_NEAR);
	assert_int_equal(f.n, 0);
	assert_true(f.median == 0);
	for (i = 0; i < CRPC_DIM(near); i++)
		add(&s, near[i], NEAR, NEAR + 10 * i, i);
	add(&s, 1000, FAR, FAR, 0);
	add(&s, 2000, NEAR, FAR, 0);
	f = app_series_figure(&s, APP_STATE_NEAR);
	assert_true(f.n == 4 && f.median == 6 && f.min == 3 && f.max == 9);
	f = app_series_figure(&s, APP_STATE_FAR);
	assert_true(f.n == 1 && f.median == 1000);
	f = app_series_figure(&s, APP_STATE_MIXED); /* All of them. */
	assert_true(f.n == 6 && f.median == 8 && f.max == 2000);
	assert_true(app_series_line_ns(&s, APP_STATE_FAR) == FAR);
	assert_int_equal(app_series_disturbed(&s), 2);
	app_series_fini(&s);
}

/* Grows as far as it is asked to, in order. */
static void
a_series_grows(void **state)
{
	struct app_series s = {0};
	struct app_figure f;
	uint32_t i;

	for (i = 0; i < 5001; i++)
		add(&s, i, NEAR, NEAR, 0);
	f = app_series_figure(&s, APP_STATE_NEAR);
	assert_true(f.n == 5001 && f.median == 2500 && f.max == 5000);
	app_series_fini(&s);
}

static void *
pong(void *arg)
{
	app_court_pong(arg);
	return NULL;
}

static void
a_partner_that_comes_is_timed_and_one_that_does_not_is_late(void **state)
{
	static struct app_court court;
	pthread_t t;
	double ns;

	crpc_clock_init();
	app_court_reset(&court);
	assert_true(app_court_ping(&court) == APP_COURT_LATE_NS);
	app_court_reset(&court);
	assert_int_equal(pthread_create(&t, NULL, pong, &court), 0);
	ns = app_court_ping(&court);
	pthread_join(t, NULL);
	assert_true(ns > 1 && ns <= APP_COURT_LATE_NS);
}

/* ---- lists ---- */

static struct app_list numbers, names;

static int
parse(const char *option, const char *value)
{
	static const char *const choices[] = {"red", "green", "blue", NULL};
	const struct app_opt opts[] = {
		APP_OPT("numbers", "N", &numbers, "", 1, 100),
		APP_CHOICE("names", &names, "", choices),
		APP_SIZE(&numbers, "", 1 << 10, 1 << 20),
	};
	char *argv[] = {strdup(option), strdup(value)};
	int rc;

	app_fail_hold(true);
	rc = app_opt_parse(opts, CRPC_DIM(opts), 2, argv);
	app_fail_hold(false);
	free(argv[0]);
	free(argv[1]);
	return rc;
}

static void
lists_are_taken_in_order_and_once(void **state)
{
	assert_int_equal(parse("--numbers", "3,100,3,1"), 0);
	assert_true(
		numbers.n == 3 && numbers.v[0] == 3 && numbers.v[1] == 100 && numbers.v[2] == 1);
	assert_int_equal(parse("--numbers", "7"), 0); /* Replaces. */
	assert_true(numbers.n == 1 && numbers.v[0] == 7);
	assert_int_equal(parse("--names", "blue,red"), 0);
	assert_true(names.n == 2 && names.v[0] == 2 && names.v[1] == 0);
	assert_int_equal(parse("--names", "green,all"), 0);
	assert_true(names.n == 3 && names.v[0] == 1 && names.v[1] == 0 && names.v[2] == 2);
}

/* K, M and G: thousands of a number, 1024 of bytes; Ki, Mi and Gi always 1024. */
static void
units_are_those_of_what_is_counted(void **state)
{
	uint64_t v;
	const char *at = "3k,";

	assert_true(app_opt_number(&at, false, &v) && v == 3000 && *at == ',');
	at = "3Ki";
	assert_true(app_opt_number(&at, false, &v) && v == 3072 && *at == '\0');
	at = "20000000000G";
	assert_false(app_opt_number(&at, false, &v));
	assert_int_equal(parse("--size", "1K,2k,4Ki,1M"), 0);
	assert_true(numbers.n == 4 && numbers.v[0] == 1024 && numbers.v[1] == 2048 &&
		numbers.v[2] == 4096 && numbers.v[3] == 1 << 20);
}

/* The help tells ranges and defaults: of numbers, of choices and of lists of both. */
static void
the_help_tells_ranges_and_defaults(void **state)
{
	static const char *const choices[] = {"red", "green", "blue", NULL};
	uint64_t n = 7, none = 0;
	double real = 0.25;
	bool flag = false;
	unsigned int choice = 2;
	struct app_list some = {2, {3, 9 << 10}}, colours = {2, {1, 0}}, empty = {0};
	const struct app_opt opts[] = {
		APP_OPT("n", "N", &n, "a", 1, 9),
		APP_OPT("none", "N", &none, "b; without it all", 1, 9),
		APP_OPT("real", "R", &real, "c", 0, 1),
		APP_CHOICE("choice", &choice, "d", choices),
		APP_SIZE(&some, "e", 1, 4 << 20),
		APP_CHOICE("colours", &colours, "f", choices),
		APP_CHOICE("empty", &empty, "words that do not fit one line any more", choices),
		APP_FLAG("flag", &flag, "h"),
	};
	static const char expected[] =
		"  --n N                       a (1 to 9; default 7)\n"
		"  --none N                    b; without it all (1 to 9)\n"
		"  --real R                    c (0 to 1; default 0.25)\n"
		"  --choice NAME               d (red, green, blue; default blue)\n"
		"  --size BYTES[,...]          size of e (1 to 4M; default 3, 9K)\n"
		"  --colours NAME[,...]        f (red, green, blue, or all; default green, red)\n"
		"  --empty NAME[,...]          words that do not fit one line any more (red,\n"
		"                              green, blue, or all)\n"
		"  --flag                      h\n";
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	app_opt_help(opts, CRPC_DIM(opts), out);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void
lists_are_refused_with_the_value_and_the_range(void **state)
{
	static const struct {
		const char *option, *value, *said;
	} bad[] = {
		{"--numbers", "", "'' is not a whole number"},
		{"--numbers", "1,,2", "'' is not a whole number"},
		{"--numbers", "1,2,", "'' is not a whole number"},
		{"--numbers", "1,0", "0 is out of range; give 1 to 100"},
		{"--numbers", "1,101", "101 is out of range; give 1 to 100"},
		{"--numbers", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "more than 16"},
		{"--names", "red,mauve", "'mauve' is unknown; give one of: red, green, blue"},
		{"--names", "", "'' is unknown"},
	};
	size_t i;

	parse("--numbers", "5");
	for (i = 0; i < CRPC_DIM(bad); i++) {
		assert_int_equal(parse(bad[i].option, bad[i].value), APP_EXIT_USAGE);
		if (strstr(app_fail_held(), bad[i].said) == NULL)
			fail_msg("%s %s said: %s", bad[i].option, bad[i].value, app_fail_held());
	}
	assert_true(numbers.n == 1 && numbers.v[0] == 5); /* As it was. */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_are_told_by_both_ping_pongs),
		cmocka_unit_test(subjects_are_compared_in_one_state),
		cmocka_unit_test(figures_are_of_their_state_alone),
		cmocka_unit_test(a_series_grows),
		cmocka_unit_test(a_partner_that_comes_is_timed_and_one_that_does_not_is_late),
		cmocka_unit_test(lists_are_taken_in_order_and_once),
		cmocka_unit_test(units_are_those_of_what_is_counted),
		cmocka_unit_test(the_help_tells_ranges_and_defaults),
		cmocka_unit_test(lists_are_refused_with_the_value_and_the_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
