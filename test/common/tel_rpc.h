/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEL_RPC_H
#define TEL_RPC_H

/**
 * @file
 * What the tests of copyrpc's and udrpc's telemetry have in common: every command, over the real
 * socket of an EAL, with good and with bad parameters, while another thread polls the contexts.
 * Include it after pair.h; LIBRARY, defined before, is the bare name of the library, which
 * commands and functions have.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tel_ask.h"

#define TEL_PASTE(lib, name)   crpc_##lib##_##name
#define TEL_API(lib, name)     TEL_PASTE(lib, name)
#define API(name)              TEL_API(LIBRARY, name)
#define TEL_TEXT(lib, name)    "/crpc/" #lib "/" #name
#define TEL_COMMAND(lib, name) TEL_TEXT(lib, name)
#define COMMAND(name)          TEL_COMMAND(LIBRARY, name)

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
		crpc_paper_run(&pair.w);
		API(poll)(pair.ctx[0], pair.w.now_ns, done, 4);
		API(poll)(pair.ctx[1], pair.w.now_ns, done, 4);
		n = API(recv)(pair.ctx[1], pair.w.now_ns, req, 4);
		while (n-- != 0)
			API(reply)(pair.ctx[1], pair.w.now_ns, req[n].token, "x", 1);
	}
	return NULL;
}

/* Debug builds know the thread: contexts change hands here, while nobody uses them. */
static void
hand_over(void)
{
#ifdef CRPC_DEBUG
	memset(&pair.ctx[0]->owner, 0, sizeof(pair.ctx[0]->owner));
	memset(&pair.ctx[1]->owner, 0, sizeof(pair.ctx[1]->owner));
#endif
}

/* With the pair made: three calls and their answers, then another thread owns it. */
static void
owner_start(void **state)
{
	static pthread_t thread;
	struct crpc_done done[4];
	struct crpc_req req[4];
	int i;

	for (i = 0; i < 3; i++)
		assert_int_equal(API(call)(pair.ep[0][0], pair.w.now_ns, "x", 1, 8, 1), 0);
	API(flush)(pair.ctx[0], pair.w.now_ns);
	assert_int_equal(pair_poll(&pair, 1, done, 4), 0);
	assert_int_equal(API(recv)(pair.ctx[1], pair.w.now_ns, req, 4), 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(
			API(reply)(pair.ctx[1], pair.w.now_ns, req[i].token, "y", 1), 0);
	API(flush)(pair.ctx[1], pair.w.now_ns);
	assert_int_equal(pair_poll(&pair, 0, done, 4), 3);
	hand_over();
	assert_int_equal(pthread_create(&thread, NULL, owner, NULL), 0);
	*state = &thread;
	tel_connect();
}

static void
owner_stop(void **state)
{
	close(tel_fd);
	crpc_store_release(&stop, true);
	pthread_join(**(pthread_t **)state, NULL);
	hand_over();
}

/* The dump of the first context says so. */
static void
dump_says(const char *what)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(API(dump)(pair.ctx[0], out), 0);
	fclose(out);
	assert_non_null(strstr(text, what));
	free(text);
}

static void
contexts_are_told(void **state)
{
	json_t *answer;

	answer = ask(COMMAND(list), "");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
	answer = ask(COMMAND(stats), "0");
	assert_int_equal(number(answer, "calls"), 3);
	assert_int_equal(number(answer, "completions"), 3);
	json_decref(answer);
	answer = ask(COMMAND(stats), "1");
	assert_int_equal(number(answer, "replies"), 3);
	json_decref(answer);
	answer = ask(COMMAND(latency), "0");
	assert_true(number(answer, "wire_max_ns") > 0);
	assert_true(number(answer, "peer_p50_ns") <= number(answer, "peer_p999_ns"));
	json_decref(answer);
	answer = ask(COMMAND(endpoints), "0");
	assert_int_equal(json_array_size(answer), 2);
	json_decref(answer);
}

static void
bad_parameters_get_no_answer(void **state)
{
	static const char *const commands[] = {
		COMMAND(stats), COMMAND(latency), COMMAND(endpoints), COMMAND(endpoint)};

	tel_refuses(commands, 4);
}

static void
context_that_is_not_polled_gives_no_answer(void **state)
{
	tel_waits_for_poll(&paused, COMMAND(stats), "calls", 3);
}

/* What a library says of an endpoint. */
static void endpoints_are_told(void **state);
static int setup(void **state);
static int teardown(void **state);

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_told),
		cmocka_unit_test(endpoints_are_told),
		cmocka_unit_test(bad_parameters_get_no_answer),
		cmocka_unit_test(context_that_is_not_polled_gives_no_answer),
	};

	return tel_run(argv[0], tests, 4, setup, teardown);
}

#endif
