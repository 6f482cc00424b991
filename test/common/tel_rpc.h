/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEL_RPC_H
#define TEL_RPC_H

/**
 * @file
 * What the tests of copyrpc's and udrpc's telemetry have in common: every command, over the real
 * socket of an EAL, with good and with bad parameters, while another thread polls the contexts.
 * Include it after pair.h.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tel_ask.h"

#define TEL_TEXT(lib, name)    "/crpc/" #lib "/" #name
#define TEL_COMMAND(lib, name) TEL_TEXT(lib, name)
#define COMMAND(name)          TEL_COMMAND(LIBRARY, name)

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
		p.w.now_ns += 1000;
		crpc_paper_run(&p.w);
		API(poll)(p.ctx[0], p.w.now_ns, done, 4);
		API(poll)(p.ctx[1], p.w.now_ns, done, 4);
		n = pair_recv(1, req, 4);
		while (n-- != 0)
			pair_reply(1, req[n].token, "x", 1);
	}
	return NULL;
}

/* Debug builds know the thread: contexts change hands here, while nobody uses them. */
static void
hand_over(void)
{
#ifdef CRPC_DEBUG
	memset(&p.ctx[0]->owner, 0, sizeof(p.ctx[0]->owner));
	memset(&p.ctx[1]->owner, 0, sizeof(p.ctx[1]->owner));
#endif
}

/* With the pair made: three calls and their answers, then another thread owns it. */
static void
owner_start(void **state)
{
	static pthread_t thread;
	struct crpc_done done[4];
	struct crpc_req req[4];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pair_call(0, "x", 1, 8, 1), 0);
	pair_flush(0);
	assert_int_equal(pair_poll(1, done, 4), 0);
	assert_int_equal(pair_recv(1, req, 4), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pair_reply(1, req[i].token, "y", 1), 0);
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 3);
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

TEST(contexts_are_told)
{
	json_t *answer = ask(COMMAND(list), "");

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

TEST(bad_parameters_get_no_answer)
{
	static const char *const commands[] = {
		COMMAND(stats), COMMAND(latency), COMMAND(endpoints), COMMAND(endpoint)};

	tel_refuses(commands, 4);
}

TEST(context_that_is_not_polled_gives_no_answer)
{
	tel_waits_for_poll(&paused, COMMAND(stats), "calls", 3);
}

static int setup(void **state);
static int teardown(void **state);

int
main(int argc, char **argv)
{
	return tel_run(argv[0], setup, teardown);
}

#endif
