/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every telemetry command of bulk, over the real socket of an EAL, with good and with bad
 * parameters, while another thread drives both ends: counters, windows, and a rail that broke.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "test.h"
#include "bulk_rig.h"
#include "copyrpc_path.h"
#include "tel_ask.h"

#define CHUNK 4096u
#define LEN   (20u * CHUNK)

static _Atomic bool stop, paused;

/* The owner of both ends. */
static void *
owner(void *arg)
{
	while (!crpc_load_acquire(&stop)) {
		if (!crpc_load_relaxed(&paused))
			rig_turns(2);
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

TEST(every_command_answers)
{
	static const char *const commands[] = {
		"/crpc/bulk/stats", "/crpc/bulk/connections", "/crpc/bulk/connection"};
	json_t *answer;

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
	tel_refuses(commands, CRPC_DIM(commands));
}

/* A transfer whose user does not consume: what stands where, at both ends. */
TEST(connection_tells_what_it_waits_for)
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

TEST(object_that_stands_still_gives_no_answer)
{
	tel_waits_for_poll(&paused, "/crpc/bulk/stats", "sends", 2);
}

static void
owner_changes(void)
{
#ifdef CRPC_DEBUG
	rig.ctx[0][0]->owner.thread = NULL; /* while no thread uses them */
	rig.ctx[1][0]->owner.thread = NULL;
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

	rig_init(&conf, &conf, 3, 1, 1);
	send = rig_send(0, 1, src, LEN, CRPC_BULK_WRITE);
	recv = rig_recv(1, 1, dst, LEN, 0);
	rig_end(send, recv, result);
	assert_int_equal(result[0].status, 0);
	send = rig_send(0, 1, src, LEN, CRPC_BULK_EAGER);
	recv = rig_recv(1, 1, dst, LEN, CRPC_BULK_MANUAL);
	rig_turns(300);
	rig_rail_fail(1, 1);
	rig_turns(300);
	owner_changes();
	assert_ok(pthread_create(&thread, NULL, owner, NULL));
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
	rig_fini();
	return 0;
}

int
main(int argc, char **argv)
{
	return tel_run(argv[0], setup, teardown);
}
