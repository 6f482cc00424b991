/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crpc-lincheck: known histories, right and wrong, are told apart; random small ones get the
 * verdict of an exhaustive search; long ones of a simulated store pass, and fail when one answer is
 * changed.
 */
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "history.h"
#include "rnd.h"
#include "wgl.h"

#define MAX UINT64_C(10000000)

/* Read a history that is given as text. */
static int
read_text(const char *text, struct history *h)
{
	FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int rc;

	assert_non_null(in);
	*h = (struct history){0};
	rc = hist_read(in, "text", h);
	fclose(in);
	if (rc == 0)
		assert_true(hist_sort(h));
	return rc;
}

static enum wgl_verdict
verdict_of(const char *lines)
{
	struct wgl_report report;
	enum wgl_verdict v;
	struct history h;
	char text[2048];

	snprintf(text, sizeof(text), "# crpc-history 1\n%s", lines);
	assert_int_equal(read_text(text, &h), 0);
	v = wgl_check(h.op, h.n, MAX, &report);
	free(h.op);
	return v;
}

/* A snapshot from 2 to 3, a restart from 6 to 8. */
#define BEFORE "1 1 0 1 put 5 ok\n0 1 2 3 snapshot - ok\n"
#define AFTER  "0 1 6 8 restart - ok\n"

TEST(known_histories_are_told_apart)
{
	static const struct {
		const char *lines;
		enum wgl_verdict verdict;
	} known[] = {
		{"", WGL_YES},
		{"1 1 0 9 get - none\n", WGL_YES},
		{"1 1 0 9 get - 5\n", WGL_NO}, /* nobody wrote it */
		/* a get beside a put may see it or not; after it, it must */
		{"1 1 0 9 put 5 ok\n2 1 1 8 get - none\n", WGL_YES},
		{"1 1 0 9 put 5 ok\n2 1 1 8 get - 5\n", WGL_YES},
		{"1 1 0 9 put 5 ok\n2 1 10 12 get - none\n", WGL_NO},
		/* time goes back: seen and then not */
		{"1 1 0 20 put 5 ok\n2 1 1 8 get - 5\n2 1 9 12 get - none\n", WGL_NO},
		/* two readers, two orders */
		{"1 1 0 20 put 5 ok\n2 1 0 20 put 6 ok\n3 1 21 22 get - 5\n4 1 23 24 get - 6\n",
			WGL_NO},
		{"1 1 0 20 put 5 ok\n2 1 0 20 put 6 ok\n3 1 2 4 get - 5\n4 1 5 9 get - 6\n",
			WGL_YES},
		/* a lost acknowledged write */
		{"1 1 0 2 put 5 ok\n1 1 3 4 put 6 ok\n1 1 5 6 get - 5\n", WGL_NO},
		/* no answer: it may have happened late, or never, but not before its call */
		{"1 1 0 ? put 5 ?\n2 1 3 4 get - none\n2 1 5 6 get - 5\n", WGL_YES},
		{"1 1 0 ? put 5 ?\n2 1 3 4 get - none\n", WGL_YES},
		{"2 1 3 4 get - 5\n1 1 5 ? put 5 ?\n", WGL_NO},
		{"1 1 0 ? put 5 ?\n2 1 3 4 get - 5\n2 1 5 6 get - none\n", WGL_NO},
		/* deletes, and compare-and-swap */
		{"1 1 0 1 put 5 ok\n1 1 2 3 del - ok\n1 1 4 5 get - none\n", WGL_YES},
		{"1 1 0 1 del - ok\n", WGL_NO},
		{"1 1 0 9 cas none:5 ok\n2 1 0 9 cas none:6 5\n", WGL_YES},
		{"1 1 0 9 cas none:5 ok\n2 1 0 9 cas none:6 ok\n", WGL_NO},
		{"1 1 0 9 cas 7:5 none\n", WGL_YES},
		{"1 1 0 9 cas 7:5 7\n", WGL_NO}, /* it was as expected and yet refused */
		/* at the same moment either order is right */
		{"1 1 0 5 put 5 ok\n2 1 5 9 get - none\n", WGL_YES},
		/* a restart without a snapshot leaves nothing */
		{"1 1 0 1 put 5 ok\n0 1 4 8 restart - ok\n1 1 9 10 get - none\n", WGL_YES},
		{"1 1 0 1 put 5 ok\n0 1 4 8 restart - ok\n1 1 9 10 get - 5\n", WGL_NO},
		/* what was acknowledged before the snapshot is kept ... */
		{BEFORE AFTER "1 1 9 10 get - 5\n", WGL_YES},
		{BEFORE AFTER "1 1 9 10 get - none\n", WGL_NO},
		/* ... during it perhaps, and perhaps all of it ... */
		{BEFORE "1 1 2 3 put 6 ok\n" AFTER "1 1 9 10 get - 5\n", WGL_YES},
		{BEFORE "1 1 2 3 put 6 ok\n" AFTER "1 1 9 10 get - 6\n", WGL_YES},
		/* ... after it not, also if it was read before the restart */
		{BEFORE "1 1 4 5 put 6 ok\n" AFTER "1 1 9 10 get - 5\n", WGL_YES},
		{BEFORE "1 1 4 5 put 6 ok\n" AFTER "1 1 9 10 get - 6\n", WGL_NO},
		{BEFORE "1 1 4 5 put 6 ok\n1 1 5 5 get - 6\n" AFTER "1 1 9 10 get - 5\n", WGL_YES},
		/* within one epoch nothing is lost or stale */
		{BEFORE "1 1 4 4 put 6 ok\n1 1 5 5 get - 5\n" AFTER, WGL_NO},
		{BEFORE AFTER "1 1 9 10 put 6 ok\n1 1 11 12 get - 5\n", WGL_NO},
		{BEFORE AFTER "1 1 9 10 get - 5\n1 1 11 12 get - none\n", WGL_NO},
		/* what is asked while it starts comes before or after; both cannot be */
		{BEFORE "1 1 4 5 put 6 ok\n" AFTER "1 1 6 12 get - 6\n1 1 9 10 get - 5\n", WGL_YES},
		/* the later snapshot counts; one that may not have been completed, perhaps */
		{BEFORE "1 1 4 4 put 6 ok\n0 1 5 5 snapshot - ok\n" AFTER "1 1 9 10 get - 5\n",
			WGL_NO},
		{BEFORE "1 1 4 4 put 6 ok\n0 1 5 ? snapshot - ?\n" AFTER "1 1 9 10 get - 5\n",
			WGL_YES},
		{BEFORE "1 1 4 4 put 6 ok\n0 1 5 ? snapshot - ?\n" AFTER "1 1 9 10 get - 6\n",
			WGL_YES},
		/* a second restart leads to the same snapshot */
		{BEFORE AFTER "1 1 9 10 put 6 ok\n0 1 11 12 restart - ok\n1 1 13 14 get - 6\n",
			WGL_NO},
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (verdict_of(known[i].lines) != known[i].verdict)
			fail_msg("expected %d: %s", (int)known[i].verdict, known[i].lines);
}

TEST(what_is_no_history_is_refused)
{
	static const char *const bad[] = {
		"",
		"# crpc-history 2\n",
		"1 1 0 1 put 5 ok\n",
		"# crpc-history 1\n1 1 0 1 put 5 ok",
		"# crpc-history 1\n1 1 0 1 put 5\n",
		"# crpc-history 1\n1 1 0 1 put 5 ok more\n",
		"# crpc-history 1\n1 1 2 1 put 5 ok\n",
		"# crpc-history 1\n1 1 0 1 put 0 ok\n",
		"# crpc-history 1\n1 1 0 1 put none ok\n",
		"# crpc-history 1\n1 1 0 1 put 5 none\n",
		"# crpc-history 1\n1 1 0 ? put 5 ok\n",
		"# crpc-history 1\n1 1 0 1 get 5 5\n",
		"# crpc-history 1\n1 1 0 1 get - ok\n",
		"# crpc-history 1\n1 1 0 1 cas 5 ok\n",
		"# crpc-history 1\n1 1 0 1 swap 5 ok\n",
		"# crpc-history 1\nx 1 0 1 put 5 ok\n",
		"# crpc-history 1\n1 * 0 1 put 5 ok\n",
		"# crpc-history 1\n1 * 0 1 snapshot 5 ok\n",
		"# crpc-history 1\n1 * 0 1 restart - none\n",
		"# crpc-history 1\n1 -1 0 1 put 5 ok\n",
		"# crpc-history 1\n1 1 0 99999999999999999999 put 5 ok\n",
	};
	struct history h;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (bad[i][0] != '\0' && read_text(bad[i], &h) == 0)
			fail_msg("accepted: %s", bad[i]);
}

static uint32_t
draw(uint64_t *rng, uint32_t below)
{
	return (uint32_t)((rnd(rng) >> 32) * below >> 32);
}

/* A random history of few operations, times and values: about half of them are right. */
static size_t
random_history(uint64_t *rng, struct app_history_op *op)
{
	size_t n = 1 + draw(rng, 6), i;
	uint32_t answers;

	/* In some histories half have no answer. */
	answers = draw(rng, 3) == 0 ? 2 : 6;
	for (i = 0; i < n; i++) {
		op[i] = (struct app_history_op){.call = draw(rng, 12), .ret = UINT64_MAX,
			.kind = (uint8_t)draw(rng, 4), .client = (uint32_t)i};
		if (draw(rng, answers) != 0) {
			op[i].ret = op[i].call + draw(rng, 6);
			op[i].state = op[i].kind == APP_HISTORY_PUT || draw(rng, 2) != 0
				? APP_HISTORY_OK
				: APP_HISTORY_NONE;
		}
		op[i].value = draw(rng, 4) == 0 ? 8 + i : 1 + draw(rng, 2); /* Seen by nobody. */
		op[i].expected = draw(rng, 3);
		op[i].found = draw(rng, 3);
	}
	return n;
}

/* The value behind an operation in one order, or false if its answer cannot be. */
static bool
step(const struct app_history_op *op, uint64_t *value)
{
	uint64_t before = *value;

	if (op->kind == APP_HISTORY_PUT || (op->kind == APP_HISTORY_CAS && before == op->expected))
		*value = op->value;
	if (op->kind == APP_HISTORY_DEL)
		*value = HIST_NONE;
	if (!hist_done(op) || op->kind == APP_HISTORY_PUT)
		return true;
	if (op->kind == APP_HISTORY_GET)
		return op->found == before;
	if (op->kind == APP_HISTORY_DEL)
		return hist_ok(op) == (before != HIST_NONE);
	return hist_ok(op) == (before == op->expected) && (hist_ok(op) || op->found == before);
}

/* All orders, one after the other. */
static bool
exhaustive(const struct app_history_op *op, size_t n, uint32_t taken, uint64_t value)
{
	uint64_t next, first_ret = UINT64_MAX;
	size_t i, open = 0;

	for (i = 0; i < n; i++) {
		if (taken & 1u << i || !hist_done(&op[i]))
			continue;
		open++;
		if (op[i].ret < first_ret)
			first_ret = op[i].ret;
	}
	if (open == 0)
		return true;
	for (i = 0; i < n; i++) {
		next = value;
		if (!(taken & 1u << i) && op[i].call <= first_ret && step(&op[i], &next) &&
			exhaustive(op, n, taken | 1u << i, next))
			return true;
	}
	return false;
}

TEST(random_histories_get_the_verdict_of_all_orders)
{
	uint64_t seed = 1, rng;
	struct wgl_report report;
	uint32_t right = 0, runs;
	struct app_history_op op[8];
	bool expected;
	size_t n;

	for (runs = 0; runs < 100000; runs++, seed++) {
		rng = seed * UINT64_C(0x9e3779b97f4a7c15);
		n = random_history(&rng, op);
		expected = exhaustive(op, n, 0, HIST_NONE);
		right += expected;
		if (wgl_check(op, n, MAX, &report) != (expected ? WGL_YES : WGL_NO))
			fail_msg("seed %llu: expected %d", (unsigned long long)seed, expected);
	}
	/* the test is worth something only if both verdicts are frequent */
	assert_in_range(right, runs / 10, runs - runs / 10);
}

/* The single copy does it: what its answer will be, enum app_history_state. */
static uint8_t
effect(struct app_history_op *op, uint64_t *value)
{
	bool ok = op->kind == APP_HISTORY_PUT ||
		(op->kind == APP_HISTORY_CAS ? *value == op->expected : *value != HIST_NONE);

	op->found = *value;
	step(op, value);
	return ok ? APP_HISTORY_OK : APP_HISTORY_NONE;
}

/* Clients of a store: an operation takes effect with its call, or just before its answer. */
static size_t
simulate(uint64_t seed, struct app_history_op *op, size_t n, uint32_t clients)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15), now = 0, value = HIST_NONE;
	struct app_history_op *open[64] = {NULL};
	uint8_t answer[64]; /* OPEN: it has no effect before. */
	size_t i = 0;
	uint32_t c;

	while (i < n) {
		c = draw(&rng, clients);
		now += 1 + draw(&rng, 3);
		if (open[c] == NULL) {
			open[c] = &op[i++];
			*open[c] = (struct app_history_op){.call = now, .ret = UINT64_MAX,
				.client = c, .kind = (uint8_t)draw(&rng, 4), .value = i,
				.expected = draw(&rng, 2) != 0 ? value : 1 + draw(&rng, 3)};
			answer[c] = draw(&rng, 2) != 0 ? APP_HISTORY_OPEN : effect(open[c], &value);
			continue;
		}
		if (answer[c] == APP_HISTORY_OPEN)
			answer[c] = effect(open[c], &value);
		open[c]->state = answer[c];
		open[c]->ret = now;
		open[c] = NULL;
	}
	return i;
}

TEST(long_histories_pass_and_one_wrong_answer_shows)
{
	enum { OPS = 20000 };
	struct app_history_op *op = calloc(OPS, sizeof(*op));
	struct wgl_report report;
	size_t n, i;
	uint64_t seed;

	assert_non_null(op);
	for (seed = 1; seed <= 8; seed++) {
		n = simulate(seed, op, OPS, (uint32_t)seed);
		if (wgl_check(op, n, MAX, &report) != WGL_YES)
			fail_msg("seed %llu", (unsigned long long)seed);
		/* somewhere in the middle a get sees what nobody wrote */
		for (i = n / 2; op[i].kind != APP_HISTORY_GET || !hist_done(&op[i]); i++)
			;
		op[i].found = UINT64_MAX;
		if (wgl_check(op, n, MAX, &report) != WGL_NO)
			fail_msg("seed %llu, wrong answer in %zu", (unsigned long long)seed, i);
		assert_int_equal(report.stuck, i);
	}
	free(op);
}

TEST(a_restart_of_every_key_is_one_of_each)
{
	static const char text[] = "# crpc-history 1\n"
				   "0 * 6 8 restart - ok\n"
				   "1 7 0 1 put 5 ok\n"
				   "1 3 0 1 put 6 ok\n"
				   "0 * 2 4 snapshot - ok\n"
				   "1 7 9 10 get - 5\n"
				   "1 3 9 10 get - none\n";
	struct wgl_report report;
	struct history h;

	assert_int_equal(read_text(text, &h), 0);
	assert_int_equal(h.n, 8);
	assert_int_equal(h.op[0].key, 3);
	assert_int_equal(wgl_check(h.op, 4, MAX, &report), WGL_NO);
	assert_int_equal(h.op[4].key, 7);
	assert_int_equal(wgl_check(h.op + 4, 4, MAX, &report), WGL_YES);
	free(h.op);
	assert_int_equal(read_text("# crpc-history 1\n0 * 6 8 restart - ok\n", &h), 0);
	assert_int_equal(h.n, 0);
	free(h.op);
}

/* Forty puts at once and a get that none explains: the memory is bounded. */
TEST(too_many_configurations_are_undecided)
{
	struct app_history_op op[40] = {{0}};
	struct wgl_report report;
	size_t i;

	for (i = 0; i < 40; i++)
		op[i] = (struct app_history_op){.call = i, .ret = 100, .state = APP_HISTORY_OK,
			.kind = APP_HISTORY_PUT, .value = i + 1};
	op[39] = (struct app_history_op){.call = 101, .ret = 102, .state = APP_HISTORY_OK,
		.kind = APP_HISTORY_GET, .found = 1000};
	assert_int_equal(wgl_check(op, 40, 1000, &report), WGL_UNDECIDED);
}

/* What a lost peer leaves: thousands of calls without an answer, most of which nobody saw. */
TEST(many_lost_calls_are_no_more_work)
{
	enum { LOST = 3000, EACH = 3, N = LOST * EACH };
	struct app_history_op *op = calloc(N, sizeof(*op)), *seen, *read;
	struct wgl_report report;
	uint64_t i;

	(void)state;
	assert_non_null(op);
	for (i = 0; i < LOST; i++) {
		op[EACH * i] = (struct app_history_op){.call = 10 * i,
			.kind = i % 5 == 0 ? APP_HISTORY_GET : APP_HISTORY_PUT,
			.value = 100000 + i};
		op[EACH * i + 1] = (struct app_history_op){.call = 10 * i + 1, .ret = 10 * i + 3,
			.kind = APP_HISTORY_PUT, .value = 1 + i, .state = APP_HISTORY_OK};
		op[EACH * i + 2] = (struct app_history_op){.call = 10 * i + 4, .ret = 10 * i + 6,
			.kind = APP_HISTORY_GET, .found = 1 + i, .state = APP_HISTORY_OK};
	}
	/* One of them was seen, late. */
	seen = &op[EACH * 501];
	read = &op[EACH * 2000 + 2];
	read->found = seen->value;
	assert_int_equal(wgl_check(op, N, 5 * N, &report), WGL_YES);
	/* Seen twice, with another write between: not so. */
	op[EACH * 2002 + 2].found = seen->value;
	assert_int_equal(wgl_check(op, N, 5 * N, &report), WGL_NO);
	free(op);
}

/*
 * Lost deletes are alike, and so are lost puts that nobody saw: hundreds of each, among deletes
 * that found something, are no more work either. Each explains one answer, and no two.
 */
TEST(lost_calls_that_are_alike_are_taken_in_turn)
{
	enum { LOST = 300, EACH = 4, N = LOST * EACH };
	struct app_history_op *op = calloc(N, sizeof(*op));
	struct wgl_report report;
	uint64_t i, t;

	(void)state;
	assert_non_null(op);
	for (i = 0; i < LOST; i++) {
		t = 10 * i;
		op[EACH * i] = (struct app_history_op){.call = t, .ret = UINT64_MAX,
			.kind = i % 2 == 0 ? APP_HISTORY_DEL : APP_HISTORY_PUT,
			.value = 100000 + i};
		op[EACH * i + 1] = (struct app_history_op){.call = t + 1, .ret = t + 2,
			.kind = APP_HISTORY_PUT, .value = 1 + i, .state = APP_HISTORY_OK};
		op[EACH * i + 2] = (struct app_history_op){.call = t + 3, .ret = t + 4,
			.kind = APP_HISTORY_GET, .found = 1 + i, .state = APP_HISTORY_OK};
		/* Every second time a lost delete was faster. */
		op[EACH * i + 3] = (struct app_history_op){.call = t + 5, .ret = t + 6,
			.kind = APP_HISTORY_DEL,
			.state = i % 2 == 0 ? APP_HISTORY_OK : APP_HISTORY_NONE};
	}
	assert_int_equal(wgl_check(op, N, UINT64_C(100) * N, &report), WGL_YES);
	/* More deletes have found nothing than lost ones were faster. */
	for (i = 0; i < 20; i++)
		op[EACH * i + 3].state = APP_HISTORY_NONE;
	assert_int_equal(wgl_check(op, EACH * 20, UINT64_C(100) * N, &report), WGL_NO);
	free(op);
}

TEST_MAIN(NULL, NULL)
