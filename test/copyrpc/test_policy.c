/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When batches go: the three flush policies, the clock of completions, the age limit, full batches,
 * the order of service over endpoints, and what poll() does when its caller gives it little room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

static const struct crpc_copyrpc_conf base = {
		.max_eps = PAIR_EPS,
		.ring_size = 16384,
		.max_inflight = 512,
		.batch_max = 4096,
		.sq_depth = 32,
		.max_outstanding = 2,
};

static uint64_t
batches(const struct pair *p, int side)
{
	return crpc_copyrpc_stats(p->ctx[side])->batches_sent;
}

static void
call_n(struct pair *p, uint32_t n)
{
	while (n-- != 0)
		assert_int_equal(crpc_copyrpc_call(p->ep[0][0], p->w.now_ns, "12345678", 8, 8, n),
				0);
}

/* An open batch is no reason to wait any longer. */
static void
policy_holds_from_the_next_call_on(void **state)
{
	struct pair p;

	pair_init(&p, &base);
	call_n(&p, 1);
	assert_int_equal(batches(&p, 0), 0);
	assert_int_equal(crpc_copyrpc_flush_set(p.ctx[0], CRPC_COPYRPC_IMMEDIATE), 0);
	call_n(&p, 1);
	assert_int_equal(batches(&p, 0), 1);
	call_n(&p, 1);
	assert_int_equal(batches(&p, 0), 2);
	pair_fini(&p);
}

/* Nothing is sent by call(); the first two flushes go, the third waits for a completion. */
static void
clocked_waits_for_a_completion(void **state)
{
	struct crpc_done done[4];
	struct pair p;
	int i;

	pair_init(&p, &base);
	p.w.frozen = true;
	for (i = 0; i < 5; i++) {
		call_n(&p, 3);
		assert_int_equal(batches(&p, 0), i < 2 ? i : 2);
		assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns), i < 2 ? 1 : 0);
	}
	/* the data has arrived, but only the completion is the clock */
	p.w.frozen = false;
	p.w.hold_acks = true;
	pair_poll(&p, 0, done, 4);
	assert_int_equal(batches(&p, 0), 2);
	p.w.hold_acks = false;
	pair_poll(&p, 0, done, 4);
	/* all that has gathered meanwhile is one batch */
	assert_int_equal(batches(&p, 0), 3);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->messages_sent, 15);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->batch_size[3], 1);
	pair_fini(&p);
}

static void
clocked_sends_at_the_age_limit(void **state)
{
	struct crpc_copyrpc_conf conf = base;
	struct pair p;
	int i;

	conf.age_ns = 7000;
	pair_init(&p, &conf);
	p.w.frozen = true;
	for (i = 0; i < 2; i++) {
		call_n(&p, 1);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	}
	call_n(&p, 1);
	p.w.now_ns += 3000;
	call_n(&p, 1);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns + 3999), 0);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns + 4000), 1);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->age_flushes, 1);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->messages_sent, 4);
	pair_fini(&p);
}

/* Replies leave with each flush and request no completion; waiting requests go with them. */
static void
clocked_replies_are_never_delayed(void **state)
{
	struct crpc_req req[8];
	struct pair p;
	uint32_t i;

	pair_init(&p, &base);
	call_n(&p, 6);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 8), 6);
	p.w.frozen = true;
	for (i = 0; i < 5; i++) {
		crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[i].token, "x", 1);
		assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns), 1);
	}
	for (i = 0; i < 3; i++) {
		assert_int_equal(crpc_copyrpc_call(p.ep[1][0], p.w.now_ns, "q", 1, 8, i), 0);
		assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns), i < 2 ? 1 : 0);
	}
	assert_int_equal(batches(&p, 1), 7);
	crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[5].token, "x", 1);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns), 1);
	assert_int_equal(batches(&p, 1), 9);
	/* that of the second flush with requests, and of what went beyond the two */
	assert_int_equal(crpc_paper_counts(p.dev[1])->signalled, 2);
	pair_fini(&p);
}

/* A call that is like many before it, alone in its turn, does not wait for the turn's end. */
static void
clocked_sends_at_once_what_will_be_alone(void **state)
{
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct pair p;
	uint32_t i;

	pair_init(&p, &base);
	for (i = 0; i < 20; i++) {
		p.w.now_ns += 1000;
		call_n(&p, 1);
		assert_int_equal(batches(&p, 0), i < 8 ? i : i + 1);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		assert_int_equal(batches(&p, 0), i + 1);
		while (crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 1) == 0)
			pair_turn(&p, 1);
		crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[0].token, "x", 1);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		while (pair_poll(&p, 0, done, 4) == 0)
			;
	}
	/* two in one turn: the first one went, the others wait, and so do those of the next turn */
	p.w.now_ns += 1000;
	call_n(&p, 3);
	assert_int_equal(batches(&p, 0), 21);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	assert_int_equal(batches(&p, 0), 22);
	p.w.now_ns += 1000;
	call_n(&p, 1);
	assert_int_equal(batches(&p, 0), 22);
	pair_fini(&p);
}

static void
clocked_sends_a_full_batch_at_once(void **state)
{
	struct pair p;

	pair_init(&p, &base);
	p.w.frozen = true;
	call_n(&p, 126); /* 32 + 126 * 32 = 4064 */
	assert_int_equal(batches(&p, 0), 0);
	call_n(&p, 1);
	assert_int_equal(batches(&p, 0), 1);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->full_flushes, 1);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->bytes_sent, 4096);
	pair_fini(&p);
}

static void
immediate_sends_in_call_and_reply(void **state)
{
	struct crpc_copyrpc_conf conf = base;
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct pair p;
	uint32_t i;

	conf.flush = CRPC_COPYRPC_IMMEDIATE;
	pair_init(&p, &conf);
	call_n(&p, 3);
	assert_int_equal(batches(&p, 0), 3);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 4), 3);
	for (i = 0; i < 3; i++) {
		crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[i].token, "x", 1);
		assert_int_equal(batches(&p, 1), i + 1);
	}
	assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns), 0);
	assert_int_equal(pair_poll(&p, 0, done, 4), 3);
	/* far more than the send queue holds: the driver's own signals free its slots */
	for (i = 0; i < 1000; i++) {
		while (crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "12345678", 8, 8, i) == 0)
			;
		pair_poll(&p, 1, done, 4);
		while (crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 1) == 1)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[0].token, "x", 1);
		while (pair_poll(&p, 0, done, 4) != 0)
			;
	}
	assert_true(crpc_copyrpc_stats(p.ctx[0])->sq_full > 0);
	for (i = 0; i < 100; i++) {
		pair_poll(&p, 1, done, 4);
		while (crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 1) == 1)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[0].token, "x", 1);
		while (pair_poll(&p, 0, done, 4) != 0)
			;
	}
	pair_at_rest(&p);
	pair_fini(&p);
}

static void
deferred_sends_all_at_flush_whatever_is_outstanding(void **state)
{
	struct crpc_copyrpc_conf conf = base;
	struct pair p;
	uint32_t i;

	conf.flush = CRPC_COPYRPC_DEFERRED;
	pair_init(&p, &conf);
	p.w.frozen = true;
	for (i = 0; i < 10; i++) {
		call_n(&p, 2);
		assert_int_equal(batches(&p, 0), i);
		assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns), 1);
	}
	assert_int_equal(batches(&p, 0), 10);
	pair_fini(&p);
}

/*
 * What was outstanding under one policy does not disturb another, nor the first when it is set
 * again.
 */
static void
policy_changes_while_calls_are_open(void **state)
{
	static const enum crpc_copyrpc_flush_policy turn[] = {CRPC_COPYRPC_CLOCKED,
		CRPC_COPYRPC_IMMEDIATE, CRPC_COPYRPC_DEFERRED, CRPC_COPYRPC_HOLD};
	struct crpc_done done[64];
	struct crpc_req req[64];
	uint64_t before;
	uint32_t i, k, n, answered = 0;
	struct pair p;

	pair_init(&p, &base);
	assert_int_equal(crpc_copyrpc_flush_set(p.ctx[0],
				 (enum crpc_copyrpc_flush_policy)(CRPC_COPYRPC_HOLD + 1)),
		-EINVAL);
	for (i = 0; i < 400; i++) {
		for (k = 0; k < 2; k++)
			assert_int_equal(
				crpc_copyrpc_flush_set(p.ctx[k], turn[(i / 3) % CRPC_DIM(turn)]),
				0);
		before = batches(&p, 0);
		call_n(&p, 2);
		if (turn[(i / 3) % CRPC_DIM(turn)] == CRPC_COPYRPC_IMMEDIATE)
			assert_true(batches(&p, 0) > before);
		pair_turn(&p, 1);
		n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 64);
		for (k = 0; k < n; k++)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[k].token, "x", 1);
		answered += pair_poll(&p, 0, done, 64);
	}
	for (i = 0; i < 100; i++) {
		pair_turn(&p, 1);
		n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 64);
		for (k = 0; k < n; k++)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[k].token, "x", 1);
		answered += pair_poll(&p, 0, done, 64);
	}
	assert_int_equal(answered, 800);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* Requests and responses of one flush share one doorbell. */
static void
both_lanes_go_down_in_one_post(void **state)
{
	struct crpc_rdma_stats rdma;
	struct crpc_req req[2];
	struct pair p;

	pair_init(&p, &base);
	call_n(&p, 2);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 2), 2);
	crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[0].token, "x", 1);
	assert_int_equal(crpc_copyrpc_call(p.ep[1][0], p.w.now_ns, "back", 4, 8, 1), 0);
	crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[1].token, "y", 1);
	crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
	crpc_rdma_stats_get(p.dev[1], &rdma);
	assert_int_equal(rdma.doorbells, 1);
	assert_int_equal(rdma.wqes, 2);
	assert_int_equal(crpc_paper_counts(p.dev[1])->post_max, 2);
	pair_fini(&p);
}

/* Small batches travel inside the WQE, larger ones are fetched; both arrive. */
static void
small_batches_go_inline(void **state)
{
	struct pair p;

	pair_init(&p, &base);
	call_n(&p, 5); /* 32 + 160 = 192 bytes */
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	assert_int_equal(crpc_paper_counts(p.dev[0])->inlined, 1);
	call_n(&p, 6); /* 224 bytes */
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	assert_int_equal(crpc_paper_counts(p.dev[0])->inlined, 1);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[1])->messages_received, 11);
	pair_fini(&p);
}

/* One endpoint with many requests does not keep the others waiting; each one's order stays. */
static void
recv_is_fair_over_endpoints_and_fifo_within(void **state)
{
	struct crpc_req req[200];
	uint32_t seen[PAIR_EPS] = {0}, first_of_last = 0, i, e, v;
	struct pair p;
	uint16_t n = 0;

	pair_init2(&p, &base, &base, PAIR_EPS, 1);
	for (i = 0; i < 100; i++)
		assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, &i, 4), 0);
	for (e = 1; e < PAIR_EPS; e++)
		for (i = 0; i < 5; i++)
			assert_int_equal(crpc_copyrpc_notify(p.ep[0][e], p.w.now_ns, &i, 4), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	while (n < 115) /* in bites that do not fit the turns */
		n += crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req + n, 7);
	for (i = 0; i < n; i++) {
		e = req[i].peer - 100;
		memcpy(&v, req[i].data, 4);
		assert_int_equal(v, seen[e]++);
		if (e == PAIR_EPS - 1 && first_of_last == 0)
			first_of_last = i;
	}
	assert_int_equal(seen[0], 100);
	assert_true(first_of_last <= RECV_TURN * (PAIR_EPS - 1));
	pair_fini(&p);
}

static void
dump_shows_every_endpoint(void **state)
{
	char *text = NULL;
	size_t len = 0;
	struct pair p;
	FILE *f;

	pair_init2(&p, &base, &base, 2, 1);
	call_n(&p, 2);
	f = open_memstream(&text, &len);
	assert_non_null(f);
	assert_int_equal(crpc_copyrpc_dump(p.ctx[0], f), 0);
	fclose(f);
	assert_non_null(strstr(text, "context: endpoints 2"));
	assert_non_null(strstr(text, "endpoint 1: peer 101, status 0"));
	assert_non_null(strstr(text, "requests_queued_to 96\n  requests_sent 0\n"));
	free(text);
	crpc_copyrpc_stats_reset(p.ctx[0]);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->rpc.calls, 0);
	pair_fini(&p);
}

/*
 * Polls that give a whole burst leave the calls that follow it to the next ones: four bursts' calls
 * go in one batch. A poll that gives less sends all there is.
 */
static void
calls_of_whole_bursts_go_together(void **state)
{
	struct crpc_copyrpc_conf conf = base;
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[CRPC_BURST_MAX];
	uint64_t before;
	struct pair p;
	uint16_t n, i;
	int polls;

	conf.flush = CRPC_COPYRPC_DEFERRED;
	conf.ring_size = 65536;
	conf.batch_max = 0;
	pair_init(&p, &conf);
	call_n(&p, 5 * CRPC_BURST_MAX + 8);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	while ((n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, CRPC_BURST_MAX)) != 0)
		for (i = 0; i < n; i++)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[i].token, "y", 1);
	crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
	before = batches(&p, 0);
	for (polls = 1; polls <= 6; polls++) {
		call_n(&p, 8);
		n = pair_poll(&p, 0, done, CRPC_BURST_MAX);
		assert_int_equal(n, polls < 6 ? CRPC_BURST_MAX : 8);
		assert_int_equal(batches(&p, 0) - before, polls < 4 ? 0 : polls < 6 ? 1 : 2);
	}
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->messages_sent, 5 * CRPC_BURST_MAX + 8 + 48);
	pair_fini(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clocked_waits_for_a_completion),
		cmocka_unit_test(clocked_sends_at_the_age_limit),
		cmocka_unit_test(clocked_replies_are_never_delayed),
		cmocka_unit_test(clocked_sends_at_once_what_will_be_alone),
		cmocka_unit_test(clocked_sends_a_full_batch_at_once),
		cmocka_unit_test(immediate_sends_in_call_and_reply),
		cmocka_unit_test(deferred_sends_all_at_flush_whatever_is_outstanding),
		cmocka_unit_test(policy_holds_from_the_next_call_on),
		cmocka_unit_test(policy_changes_while_calls_are_open),
		cmocka_unit_test(both_lanes_go_down_in_one_post),
		cmocka_unit_test(small_batches_go_inline),
		cmocka_unit_test(recv_is_fair_over_endpoints_and_fifo_within),
		cmocka_unit_test(calls_of_whole_bursts_go_together),
		cmocka_unit_test(dump_shows_every_endpoint),
	};

	return cmocka_run_group_tests_name("copyrpc policy", tests, NULL, NULL);
}
