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
		crpc_udrpc_poll(pair.ctx[0], pair.w.now_ns, done, 4);
		crpc_udrpc_poll(pair.ctx[1], pair.w.now_ns, done, 4);
		n = crpc_udrpc_recv(pair.ctx[1], req, 4);
		while (n-- != 0)
			crpc_udrpc_reply(pair.ctx[1], pair.w.now_ns, req[n].token, "x", 1);
	}
	return NULL;
}

static void
every_command_answers(void **state)
{
	static const char *const commands[] = {"/crpc/udrpc/stats", "/crpc/udrpc/latency",
			"/crpc/udrpc/endpoints", "/crpc/udrpc/endpoint"};
	json_t *answer;

	answer = ask("/crpc/udrpc/list", "");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask("/crpc/udrpc/stats", "0");
	assert_int_equal(number(answer, "calls"), 3);
	assert_int_equal(number(answer, "completions"), 3);
	assert_int_equal(number(answer, "packets_sent"), 3);
	json_decref(answer);
	answer = ask("/crpc/udrpc/stats", "1");
	assert_int_equal(number(answer, "replies"), 3);
	json_decref(answer);
	answer = ask("/crpc/udrpc/latency", "0");
	assert_true(number(answer, "wire_max_ns") > 0);
	assert_true(number(answer, "peer_p50_ns") <= number(answer, "peer_p999_ns"));
	json_decref(answer);
	answer = ask("/crpc/udrpc/endpoints", "0");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask("/crpc/udrpc/endpoint", "0,1");
	assert_int_equal(number(answer, "status"), 0);
	assert_int_equal(number(answer, "peer"), 1);
	assert_int_equal(number(answer, "open_calls"), 0);
	assert_int_equal(number(answer, "credits_at_home"), 32);
	assert_true(number(answer, "rate_bytes_per_s") > 0);
	json_decref(answer);
	tel_refuses(commands, CRPC_DIM(commands));
}

static void
context_that_is_not_polled_gives_no_answer(void **state)
{
	tel_waits_for_poll(&paused, "/crpc/udrpc/stats", "calls", 3);
}

static int
setup(void **state)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2};
	struct crpc_done done[4];
	struct crpc_req req[4];
	static pthread_t thread;
	int i;

	pair_init(&pair, &conf, 2, 1, 188, 1024);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_udrpc_call(pair.ep[0][0], pair.w.now_ns, "x", 1, 8, 1), 0);
	crpc_udrpc_flush(pair.ctx[0], pair.w.now_ns);
	pair_poll(&pair, 1, done, 4);
	assert_int_equal(crpc_udrpc_recv(pair.ctx[1], req, 4), 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_udrpc_reply(
						 pair.ctx[1], pair.w.now_ns, req[i].token, "y", 1),
				0);
	crpc_udrpc_flush(pair.ctx[1], pair.w.now_ns);
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

/* With the owner gone: the audit of both ends, which finds a leak, and the dump. */
static int
teardown(void **state)
{
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
	for (i = 0; i < 2; i++)
		assert_int_equal(crpc_udrpc_check(pair.ctx[i], true), 0);
	pair.ep[0][0]->credits--; /* one that leaked */
	assert_int_equal(crpc_udrpc_check(pair.ctx[0], false), -EFAULT);
	assert_non_null(strstr(crpc_log_last(), "credits"));
	pair.ep[0][0]->credits++;
	out = open_memstream(&text, &len);
	assert_int_equal(crpc_udrpc_dump(pair.ctx[0], out), 0);
	fclose(out);
	assert_non_null(strstr(text, "endpoint 1 (peer 1): status 0"));
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
