/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every telemetry command of bulk, over the real socket of an EAL, with good and with bad
 * parameters, while another thread drives both ends: counters, windows, and a rail that broke.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "bulk_rig.h"
#include "copyrpc_pvt.h"
#include "tel_ask.h"

#define CHUNK 4096u
#define LEN   (20u * CHUNK)

static struct rig rig;
static _Atomic bool stop, paused;

/* The owner of both ends. */
static void *
owner(void *arg)
{
	while (!crpc_load_acquire(&stop)) {
		if (!crpc_load_relaxed(&paused))
			rig_turns(&rig, 2);
	}
	return NULL;
}

static const char *
text(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	if (s == NULL)
		fail_msg("%s is not there", key);
	return s;
}

static void
every_command_answers(void **state)
{
	static const char *const bad[] = {"", "x", "-1", "99", "0x", "0,", "0,x", "0,99", "0,0,0",
			"4294967296"};
	static const char *const commands[] = {"/crpc/bulk/stats", "/crpc/bulk/connections",
			"/crpc/bulk/connection"};
	json_t *answer;
	size_t i, k;

	answer = ask("/crpc/bulk/list", "");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask("/crpc/bulk/stats", "0");
	assert_int_equal(number(answer, "sends"), 2);
	assert_int_equal(number(answer, "ended"), 1);
	assert_int_equal(number(answer, "bytes_sent"), LEN + 8 * CHUNK);
	assert_int_equal(number(answer, "post_n"), number(answer, "chunks_sent"));
	assert_true(number(answer, "wire_max_ns") > 0);
	assert_true(number(answer, "blocked_slots") > 0);
	assert_int_equal(number(answer, "rails_broken"), 1);
	assert_int_equal(number(answer, "memory_bounce"), 8 * CHUNK);
	json_decref(answer);
	answer = ask("/crpc/bulk/connections", "1");
	assert_int_equal(json_array_size(answer), 1);
	json_decref(answer);
	for (i = 0; i < CRPC_DIM(bad); i++) {
		for (k = 0; k < CRPC_DIM(commands); k++) {
			/* what follows an object's number is of no interest to some */
			if (bad[i][0] == '0' && k != 2)
				continue;
			answer = ask(commands[k], bad[i]);
			if (!json_is_null(answer))
				fail_msg("%s,%s was answered", commands[k], bad[i]);
			json_decref(answer);
		}
	}
}

/* A transfer whose user does not consume: what stands where, at both ends. */
static void
connection_tells_what_it_waits_for(void **state)
{
	json_t *answer = ask("/crpc/bulk/connection", "0,0");

	assert_int_equal(number(answer, "status"), 0);
	assert_int_equal(number(answer, "peer"), 7);
	assert_int_equal(number(answer, "sends_open"), 1);
	assert_int_equal(number(answer, "window_chunks"), 0);
	assert_int_equal(number(answer, "window_chunks_max"), 6);
	assert_int_equal(number(answer, "peer_slots"), 8);
	assert_int_equal(number(answer, "peer_slots_free"), 0);
	assert_int_equal(number(answer, "peer_units_free"), 0);
	assert_string_equal(text(answer, "blocked_by"), "slots");
	assert_int_equal(number(answer, "rails"), 3);
	assert_string_equal(text(answer, "rail0_state"), "up");
	assert_string_equal(text(answer, "rail1_state"), "down");
	assert_string_equal(text(answer, "rail2_state"), "up");
	assert_true(number(answer, "rail0_megabytes_per_s") > 0);
	assert_int_equal(number(answer, "rail0_life"), 1);
	json_decref(answer);
	answer = ask("/crpc/bulk/connection", "1,0");
	assert_int_equal(number(answer, "receives_open"), 1);
	assert_int_equal(number(answer, "slots_not_consumed"), 8);
	assert_int_equal(number(answer, "slots_free"), 0);
	json_decref(answer);
}

/* An object that nobody drives is told by null, in time, and answers again when it is driven. */
static void
object_that_stands_still_gives_no_answer(void **state)
{
	json_t *answer;

	crpc_store_relaxed(&paused, true);
	usleep(50000);
	answer = ask("/crpc/bulk/stats", "0");
	assert_true(json_is_null(answer));
	json_decref(answer);
	crpc_store_relaxed(&paused, false);
	answer = ask("/crpc/bulk/stats", "0");
	assert_int_equal(number(answer, "sends"), 2);
	json_decref(answer);
}

static void
owner_changes(void)
{
#ifdef CRPC_DEBUG
	rig.ctx[0][0]->owner = NULL; /* while nobody uses them */
	rig.ctx[1][0]->owner = NULL;
#endif
}

static int
setup(void **state)
{
	static const struct crpc_bulk_conf conf = {.chunk = CHUNK,
			.slots = 8,
			.tx_chunks = 6,
			.timeout_ns = UINT64_MAX,
			.rail_retry_ns = UINT64_MAX};
	static uint8_t src[LEN], dst[LEN];
	struct crpc_bulk_result result[2];
	static pthread_t thread;
	uint64_t send, recv;

	rig_init(&rig, &conf, &conf, 3, 1, 1);
	crpc_bulk_isend(rig.conn[0], rig.w.now_ns, 1, src, LEN, CRPC_BULK_WRITE, 0, &send);
	crpc_bulk_irecv(rig.conn[1], rig.w.now_ns, 1, dst, LEN, 0, 0, &recv);
	rig_end(&rig, send, recv, result);
	assert_int_equal(result[0].status, 0);
	crpc_bulk_isend(rig.conn[0], rig.w.now_ns, 1, src, LEN, CRPC_BULK_EAGER, 0, &send);
	crpc_bulk_irecv(rig.conn[1], rig.w.now_ns, 1, dst, LEN, CRPC_BULK_MANUAL, 0, &recv);
	rig_turns(&rig, 300);
	fake_qp_fail(rig_rail_qp(&rig, 1, 1));
	rig_turns(&rig, 300);
	owner_changes();
	assert_int_equal(pthread_create(&thread, NULL, owner, NULL), 0);
	*state = &thread;
	tel_connect();
	return 0;
}

static int
teardown(void **state)
{
	close(tel_fd);
	crpc_store_release(&stop, true);
	pthread_join(**(pthread_t **)state, NULL);
	owner_changes();
	rig_fini(&rig);
	return 0;
}

int
main(int argc, char **argv)
{
	static char prefix[64];
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, prefix,
		(char[]){"--log-level=4"}, NULL};
	const struct CMUnitTest tests[] = {
			cmocka_unit_test(every_command_answers),
			cmocka_unit_test(connection_tells_what_it_waits_for),
			cmocka_unit_test(object_that_stands_still_gives_no_answer),
	};
	int rc;

	snprintf(prefix, sizeof(prefix), "--file-prefix=bulk_tel_%d", (int)getpid());
	if (rte_eal_init((int)CRPC_DIM(eal) - 1, eal) < 0)
		return 77;
	rc = cmocka_run_group_tests(tests, setup, teardown);
	rte_eal_cleanup();
	return rc;
}
