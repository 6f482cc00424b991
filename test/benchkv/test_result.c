/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results: Little's law holds where it must and not where calls were lost, sums over ranks are
 * sums, and the JSON line has every key that readers rely on and is whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "app_env.h"
#include "app_json.h"
#include "report.h"

static struct kv_result *
sample(uint32_t rank)
{
	struct kv_result *r = calloc(1, sizeof(*r));
	uint32_t i;

	assert_non_null(r);
	r->size = sizeof(*r);
	r->rank = rank;
	r->clients = 16;
	r->qd = 1;
	r->in_flight = 16;
	r->window_ns = 1000000000;
	for (i = 0; i < 1000; i++) {
		crpc_hist_record(&r->counts.lat[CRPC_KV_LOCAL], 2000 + i);
		crpc_hist_record(&r->counts.lat[CRPC_KV_REMOTE], 20000 + i);
	}
	r->counts.ops[CRPC_KV_LOCAL] = r->counts.ops[CRPC_KV_REMOTE] = 1000;
	r->counts.lat_sum = UINT64_C(16) * 1000000000;
	r->net.batches = 100;
	r->net.messages = 500;
	r->net.doorbells = 100;
	r->net.wqebbs = 300;
	r->net.send_cqes = 50;
	r->net.recv_cqes = 100;
	r->sent = r->answered = 2000;
	return r;
}

static void
little_tells_lost_calls(void **state)
{
	struct kv_result *r = sample(0);

	assert_true(kv_result_little(r) > 0.999 && kv_result_little(r) < 1.001);
	assert_true(kv_result_little_holds(r));
	r->counts.lat_sum /= 2;
	assert_true(kv_result_little(r) < 0.501);
	assert_false(kv_result_little_holds(r));
	/* A quiet run of which the law does not hold fails; one that was disturbed does not. */
	assert_true(kv_result_distrusted(r, APP_STATE_NEAR));
	assert_false(kv_result_distrusted(r, APP_STATE_MIXED));
	r->interrupted = 1;
	assert_false(kv_result_distrusted(r, APP_STATE_NEAR));
	r->interrupted = 0;
	assert_true(kv_little_holds(0.96, 0) && kv_little_holds(1.04, 0));
	assert_false(kv_little_holds(0.94, 0) || kv_little_holds(1.06, 0));
	/* A call of a tenth of the window may be half outside. */
	assert_true(kv_little_holds(0.94, 0.1) && kv_little_holds(1.14, 0.1));
	assert_false(kv_little_holds(1.16, 0.1));
	r->window_ns = 0;
	assert_true(kv_result_little(r) == 0);
	free(r);
}

/* Open loop: Little's law says nothing; what was offered is summed, of lags the worst counts. */
static void
open_loop_is_summed(void **state)
{
	struct kv_result *a = sample(0), *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	a->in_flight = 0;
	a->offered = 5e5;
	a->counts.lag_ns = 7;
	kv_result_add(t, a);
	a->counts.lag_ns = 3;
	kv_result_add(t, a);
	assert_true(t->offered == 1e6);
	assert_int_equal(t->counts.lag_ns, 7);
	assert_true(kv_result_little(t) == 0);
	free(a);
	free(t);
}

static void
total_is_the_sum(void **state)
{
	struct kv_result *a = sample(0), *b = sample(1), *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	b->faults[APP_FAULT_TORN] = 3;
	kv_result_add(t, a);
	kv_result_add(t, b);
	assert_int_equal(t->ranks, 2);
	assert_int_equal(t->clients, 32);
	assert_int_equal(t->sent, 4000);
	assert_int_equal(t->counts.lat[CRPC_KV_REMOTE].count, 2000);
	assert_int_equal(kv_result_faults(t), 3);
	assert_true(kv_result_ops(t) == 4000);
	assert_true(kv_result_little(t) > 0.999 && kv_result_little(t) < 1.001);
	free(a);
	free(b);
	free(t);
}

/* What another rank sent: too many daemons, texts without an end, or another build's. */
static void
results_of_other_ranks_are_checked(void **state)
{
	struct kv_result *r = sample(0);

	assert_true(kv_result_take(r));
	r->daemons = CRPC_KV_DAEMONS_MAX + 1;
	assert_false(kv_result_take(r));
	r->daemons = CRPC_KV_DAEMONS_MAX;
	memset(r->lcores, 'x', sizeof(r->lcores));
	memset(r->device, 'x', sizeof(r->device));
	assert_true(kv_result_take(r));
	assert_int_equal(strnlen(r->lcores, sizeof(r->lcores)), sizeof(r->lcores) - 1);
	assert_int_equal(strnlen(r->device, sizeof(r->device)), sizeof(r->device) - 1);
	r->size--;
	assert_false(kv_result_take(r));
	free(r);
}

static double
number(const json_t *o, const char *a, const char *b, const char *c)
{
	const json_t *v = json_object_get(o, a);

	if (b != NULL)
		v = json_object_get(v, b);
	if (c != NULL)
		v = json_object_get(v, c);
	if (!json_is_number(v))
		fail_msg("no number at %s.%s.%s", a, b == NULL ? "" : b, c == NULL ? "" : c);
	return json_number_value(v);
}

/* What the daemons of a rank counted stays apart in the rank and is summed in both. */
static void
daemons_are_kept_and_summed(void **state)
{
	struct kv_result *r = sample(0), *t = calloc(1, sizeof(*t));
	const struct app_net_counts net = {.batches = 7, .again = 2, .batch_size = {1, 2}};
	struct kv_daemon_counts c = {.of = {.turns = 10, .busy = 4, .timed = 2}, .keys = 100};
	uint32_t i;

	assert_non_null(t);
	c.of.phase_ns[CRPC_KV_TURN_SEND] = 50;
	c.of.taken[3] = 6;
	c.of.stat[CRPC_KV_STAT_OF_DAEMONS] = 3;
	c.of.stat[CRPC_KV_STAT_OF_RANKS] = 2;
	for (i = 0; i < 2; i++) {
		c.of.stat[CRPC_KV_STAT_LOCAL] = 5 + i;
		c.of.stat[CRPC_KV_STAT_FORWARDED] = 20;
		kv_result_add_daemon(r, &c, &net);
	}
	assert_int_equal(r->daemons, 2);
	assert_int_equal(r->daemon[1].of.stat[CRPC_KV_STAT_LOCAL], 6);
	assert_int_equal(r->sum.of.stat[CRPC_KV_STAT_LOCAL], 11);
	assert_int_equal(r->served, 11 + 40 + 6 + 4);
	assert_int_equal(r->net.batches, 100 + 14);
	assert_int_equal(r->net.again, 4);
	assert_int_equal(r->net.batch_size[1], 4);
	kv_result_add(t, r);
	kv_result_add(t, r);
	assert_int_equal(t->daemons, 4);
	assert_int_equal(t->sum.of.stat[CRPC_KV_STAT_FORWARDED], 80);
	assert_int_equal(t->sum.of.turns, 40);
	assert_int_equal(t->sum.keys, 400);
	assert_int_equal(t->sum.of.timed, 8);
	assert_int_equal(t->sum.of.phase_ns[CRPC_KV_TURN_SEND], 200);
	assert_int_equal(t->sum.of.taken[3], 24);
	free(r);
	free(t);
}

static void
daemon_line_has_every_key(void **state)
{
	static const char *const counts[] = {"local", "forwarded", "remote", "of_daemons",
		"of_ranks", "relayed", "failed", "bad", "waited", "turns", "busy_turns"};
	struct kv_conditions cond = {
		.app = "benchkv", .backend = "copyrpc", .state = APP_STATE_NEAR};
	struct kv_daemon_counts c = {.lcore = 3, .cpu = 7, .node = 1, .clients = 8, .keys = 512};
	const struct app_net_counts net = {0};
	struct kv_result *r = sample(1);
	char *text = NULL;
	size_t len = 0, i;
	FILE *f = open_memstream(&text, &len);
	json_t *o;

	assert_non_null(f);
	c.of.stat[CRPC_KV_STAT_FORWARDED] = 9;
	kv_result_add_daemon(r, &c, &net);
	kv_result_add_daemon(r, &c, &net);
	assert_int_equal(kv_report_daemon(f, &cond, r, 1), 0);
	fclose(f);
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	assert_string_equal(json_string_value(json_object_get(o, "record")), "daemon");
	assert_string_equal(json_string_value(json_object_get(o, "lcores")), "7");
	assert_true(number(o, "daemon", NULL, NULL) == 1);
	assert_true(number(o, "lcore", NULL, NULL) == 3);
	assert_true(number(o, "node", NULL, NULL) == 1);
	assert_true(number(o, "clients", NULL, NULL) == 8);
	assert_true(number(o, "keys", NULL, NULL) == 512);
	assert_true(number(o, "endpoints", NULL, NULL) == 0);
	for (i = 0; i < CRPC_DIM(counts); i++)
		number(o, "requests", counts[i], NULL);
	assert_true(number(o, "requests", "forwarded", NULL) == 9);
	json_decref(o);
	free(text);
	free(r);
}

static void
slices_give_median_and_range(void **state)
{
	double slice[] = {5e6, 1e6, 4e6, 2e6, 3e6};
	struct kv_result *r = sample(0);

	kv_result_slices(r, slice, 5);
	assert_true(r->rate.median == 3 && r->rate.min == 1 && r->rate.max == 5);
	free(r);
}

static void
json_line_has_every_key(void **state)
{
	static const char *const texts[] = {
		"app", "version", "commit", "cpu", "lcores", "state", "record", "backend"};
	static const char *const quantiles[] = {"mean", "p50", "p90", "p99", "p999", "max"};
	struct kv_conditions cond = {
		.app = "benchkv", .backend = "copyrpc", .state = APP_STATE_NEAR};
	struct kv_options opt = {.keys = 1024};
	struct kv_result *r = sample(1);
	char *text = NULL;
	size_t len = 0, i;
	FILE *f = open_memstream(&text, &len);
	json_t *o;

	assert_non_null(f);
	r->sum.of.timed = 100;
	r->sum.of.phase_ns[CRPC_KV_TURN_SEND] = 12000;
	r->sum.of.busy_ns = 9000;
	r->sum.of.phase_time[CRPC_KV_TURN_PHASES][crpc_hist_log_index(100, CRPC_KV_TIME_BITS)] = 98;
	r->sum.of.phase_time[CRPC_KV_TURN_PHASES][crpc_hist_log_index(1000, CRPC_KV_TIME_BITS)] = 2;
	assert_int_equal(kv_report(f, &cond, &opt, "rank", NULL, r), 0);
	fclose(f);
	assert_int_equal(text[len - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + len - 1);
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	for (i = 0; i < CRPC_DIM(texts); i++)
		assert_true(json_is_string(json_object_get(o, texts[i])));
	assert_true(json_is_boolean(json_object_get(o, "noisy")));
	number(o, "steal_pct", NULL, NULL);
	number(o, "away_pct", NULL, NULL);
	assert_true(number(o, "rank", NULL, NULL) == 1);
	assert_true(number(o, "ops_per_s", NULL, NULL) == 2000);
	assert_true(number(o, "local_ops_per_s", NULL, NULL) == 1000);
	assert_true(number(o, "forwarded_ops_per_s", NULL, NULL) == 0);
	number(o, "daemons", NULL, NULL);
	number(o, "offered_ops_per_s", NULL, NULL);
	number(o, "lag_us", NULL, NULL);
	number(o, "requests", "of_daemons", NULL);
	number(o, "loop", "timed_turns", NULL);
	for (i = 0; i < CRPC_KV_TURN_PHASES; i++)
		number(o, "loop", "phase_mean_ns", crpc_kv_phase_name((uint32_t)i));
	/* Buckets are a quarter of a power of two wide: 100 ns lies in that from 96 to 111. */
	assert_true(number(o, "loop", "phase_p50_ns", "turn") == 111);
	assert_true(number(o, "loop", "phase_p99_ns", "turn") == 1023);
	assert_true(number(o, "loop", "busy_time", NULL) == 0.75);
	assert_int_equal(json_array_size(json_object_get(json_object_get(o, "net"), "batch_size")),
		CRPC_COPYRPC_BATCH_BUCKETS);
	assert_true(number(o, "remote_ops_per_s", NULL, NULL) == 1000);
	for (i = 0; i < CRPC_DIM(quantiles); i++) {
		assert_true(number(o, "lat_us", "local", quantiles[i]) >= 2);
		assert_true(number(o, "lat_us", "remote", quantiles[i]) >= 20);
	}
	number(o, "rtt_split_us", "queue", NULL);
	number(o, "rtt_split_us", "wire", NULL);
	number(o, "rtt_split_us", "peer", NULL);
	assert_true(number(o, "batch_mean", NULL, NULL) == 5);
	assert_true(number(o, "per_op", "doorbells", NULL) == 0.1);
	assert_true(number(o, "per_op", "wqebb", NULL) == 0.3);
	assert_true(number(o, "per_op", "cqes", NULL) == 0.15);
	assert_true(number(o, "little_ratio", NULL, NULL) > 0.99);
	assert_true(number(o, "verify_errors", NULL, NULL) == 0);
	json_decref(o);
	free(text);
	free(r);
}

/* Time that the host or another program took makes figures no verdict, whichever rank lost it. */
static void
total_is_noisy_if_one_rank_was(void **state)
{
	struct kv_result *r = calloc(2, sizeof(*r));

	assert_non_null(r);
	r[1].steal_pct = APP_STEAL_PCT_NOISY;
	r[1].away_pct = APP_AWAY_PCT_NOISY;
	kv_result_add(&r[0], &r[1]);
	assert_false(kv_result_noisy(&r[0], APP_STATE_NEAR));
	assert_true(kv_result_noisy(&r[0], APP_STATE_MIXED));
	r[1].away_pct += 0.1;
	kv_result_add(&r[0], &r[1]);
	r[1].away_pct = 0;
	kv_result_add(&r[0], &r[1]);
	assert_true(kv_result_noisy(&r[0], APP_STATE_NEAR));
	free(r);
}

/* Two ranks that lost each other both report: each line is whole, however long it is. */
static void
lines_of_several_processes_do_not_mix(void **state)
{
	enum { WRITERS = 4, LINES = 50, LENGTH = 30000 };
	char path[] = "/tmp/test_result.XXXXXX", text[LENGTH + 1], line[LENGTH + 64];
	uint32_t w, i, seen[WRITERS] = {0};
	int status;
	json_t *obj;
	FILE *f;

	assert_true(close(mkstemp(path)) == 0);
	for (w = 0; w < WRITERS; w++) {
		if (fork() != 0)
			continue;
		f = app_json_open("json", path);
		memset(text, (int)('a' + w), LENGTH);
		text[LENGTH] = '\0';
		for (i = 0; f != NULL && i < LINES; i++) {
			obj = json_object();
			json_object_set_new(obj, "text", json_string(text));
			if (app_json_write(f, obj) != 0)
				break;
		}
		_exit(i != LINES);
	}
	for (w = 0; w < WRITERS; w++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	f = fopen(path, "r");
	for (i = 0; fgets(line, sizeof(line), f) != NULL; i++) {
		obj = json_loads(line, 0, NULL);
		assert_non_null(obj);
		seen[json_string_value(json_object_get(obj, "text"))[LENGTH - 1] - 'a']++;
		json_decref(obj);
	}
	fclose(f);
	unlink(path);
	for (w = 0; w < WRITERS; w++)
		assert_int_equal(seen[w], LINES);
}

/* Of a second in which a thread stood still 100 times for 1 ms, a twentieth waits over 500 us. */
static void
pauses_are_a_part_of_the_time(void **state)
{
	static const double known[APP_PAUSES] = {0.5, 0.2, 0.05, 0.02, 0.009};
	double over[APP_PAUSES] = {0};
	uint32_t i;

	for (i = 0; i < 100; i++)
		app_env_pause(over, 1000000);
	for (i = 0; i < APP_PAUSES; i++)
		assert_float_equal(over[i] / 1e6,
			app_pause_us[i] < 1000 ? 0.1 - app_pause_us[i] / 1e4 : 0, 1e-6);
	assert_float_equal(app_env_pause_floor(known, 0.01), 100, 0);
	assert_float_equal(app_env_pause_floor(known, 0.3), 20, 0);
	assert_float_equal(app_env_pause_floor(known, 0.6), 0, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_several_processes_do_not_mix),
		cmocka_unit_test(little_tells_lost_calls),
		cmocka_unit_test(open_loop_is_summed),
		cmocka_unit_test(total_is_the_sum),
		cmocka_unit_test(results_of_other_ranks_are_checked),
		cmocka_unit_test(daemons_are_kept_and_summed),
		cmocka_unit_test(daemon_line_has_every_key),
		cmocka_unit_test(slices_give_median_and_range),
		cmocka_unit_test(pauses_are_a_part_of_the_time),
		cmocka_unit_test(json_line_has_every_key),
		cmocka_unit_test(total_is_noisy_if_one_rank_was),
	};

	return cmocka_run_group_tests_name("benchkv_result", tests, NULL, NULL);
}
