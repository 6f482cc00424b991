/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every telemetry command, over the real socket of an EAL, with good and with bad parameters, while
 * another thread polls the context; and the dump.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "pair.h"
#include "tel_ask.h"

static struct pair pair;
static _Atomic bool stop, paused;

/* The owner of both contexts: polls all the time, but when it is paused. */
static void *
owner(void *arg)
{
	struct crpc_done done[4];
	struct crpc_req req[4];
	uint16_t n;

	while (!crpc_load_acquire(&stop)) {
		if (crpc_load_relaxed(&paused))
			continue;
		pair.w.now_ns += 1000;
		fake_run(&pair.w);
		crpc_copyrpc_poll(pair.ctx[0], pair.w.now_ns, done, 4);
		crpc_copyrpc_poll(pair.ctx[1], pair.w.now_ns, done, 4);
		n = crpc_copyrpc_recv(pair.ctx[1], req, 4);
		while (n-- != 0)
			crpc_copyrpc_reply(pair.ctx[1], pair.w.now_ns, req[n].token, "x", 1);
	}
	return NULL;
}

static void
every_command_answers(void **state)
{
	static const char *const commands[] = {"/crpc/copyrpc/stats", "/crpc/copyrpc/latency",
			"/crpc/copyrpc/endpoints", "/crpc/copyrpc/endpoint"};
	json_t *answer;

	answer = ask("/crpc/copyrpc/list", "");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask("/crpc/copyrpc/stats", "0");
	assert_int_equal(number(answer, "calls"), 3);
	assert_int_equal(number(answer, "completions"), 3);
	assert_int_equal(number(answer, "messages_sent"), 3);
	json_decref(answer);
	answer = ask("/crpc/copyrpc/stats", "1");
	assert_int_equal(number(answer, "replies"), 3);
	json_decref(answer);
	answer = ask("/crpc/copyrpc/latency", "0");
	assert_true(number(answer, "wire_max_ns") > 0);
	assert_true(number(answer, "peer_p50_ns") <= number(answer, "peer_p999_ns"));
	json_decref(answer);
	answer = ask("/crpc/copyrpc/endpoints", "0");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask("/crpc/copyrpc/endpoint", "0,1");
	assert_int_equal(number(answer, "status"), 0);
	assert_int_equal(number(answer, "peer"), 101);
	assert_int_equal(number(answer, "open_calls"), 0);
	assert_int_equal(number(answer, "requests_sent"), 0);
	json_decref(answer);
	answer = ask("/crpc/copyrpc/endpoint", "0,0");
	assert_int_equal(number(answer, "requests_sent"), number(answer, "requests_queued_to"));
	assert_true(number(answer, "requests_sent") > 0);
	json_decref(answer);
	tel_refuses(commands, CRPC_DIM(commands));
}

static void
context_that_is_not_polled_gives_no_answer(void **state)
{
	tel_waits_for_poll(&paused, "/crpc/copyrpc/stats", "calls", 3);
}

static int
setup(void **state)
{
	static const struct crpc_copyrpc_conf conf = {
			.max_eps = PAIR_EPS, .ring_size = 4096, .max_msg = 512, .max_inflight = 8};
	struct crpc_done done[4];
	struct crpc_req req[4];
	static pthread_t thread;
	int i;

	pair_init2(&pair, &conf, &conf, 2, 1);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_copyrpc_call(pair.ep[0][0], pair.w.now_ns, "x", 1, 8, 1), 0);
	pair_turn(&pair, 0);
	pair_turn(&pair, 1);
	assert_int_equal(crpc_copyrpc_recv(pair.ctx[1], req, 4), 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_copyrpc_reply(
						 pair.ctx[1], pair.w.now_ns, req[i].token, "y", 1),
				0);
	pair_turn(&pair, 1);
	assert_int_equal(pair_poll(&pair, 0, done, 4), 3);
#ifdef CRPC_DEBUG
	pair.ctx[0]->owner = NULL; /* it changes hands here, while nobody uses it */
	pair.ctx[1]->owner = NULL;
#endif
	assert_int_equal(pthread_create(&thread, NULL, owner, NULL), 0);
	*state = &thread;
	tel_connect();
	return 0;
}

/* With the owner gone: the audit of both ends, from their positions alone, and the dump. */
static int
teardown(void **state)
{
	struct crpc_copyrpc_positions pos[2];
	char *text = NULL;
	size_t len;
	FILE *out;
	int i;

	close(tel_fd);
	crpc_store_release(&stop, true);
	pthread_join(**(pthread_t **)state, NULL);
#ifdef CRPC_DEBUG
	pair.ctx[0]->owner = NULL;
	pair.ctx[1]->owner = NULL;
#endif
	pair_at_rest(&pair);
	for (i = 0; i < 2; i++)
		crpc_copyrpc_ep_positions(pair.ep[i][0], &pos[i]);
	assert_int_equal(crpc_copyrpc_positions_match(
					 &pos[0], &pos[1], CRPC_COPYRPC_FLOW_WINDOW),
			0);
	pos[0].requests_released_by_peer -= 16; /* a credit that leaked */
	assert_int_equal(crpc_copyrpc_positions_match(
					 &pos[0], &pos[1], CRPC_COPYRPC_FLOW_WINDOW),
			-EFAULT);
	assert_non_null(strstr(crpc_log_last(), "released"));
	out = open_memstream(&text, &len);
	assert_int_equal(crpc_copyrpc_dump(pair.ctx[0], out), 0);
	fclose(out);
	assert_non_null(strstr(text, "endpoint 1: peer 101"));
	free(text);
	pair_fini(&pair);
	return 0;
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command_answers),
		cmocka_unit_test(context_that_is_not_polled_gives_no_answer),
	};

	return tel_run(argv[0], tests, CRPC_DIM(tests), setup, teardown);
}
