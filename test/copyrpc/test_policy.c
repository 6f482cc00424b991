/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When batches go: the three flush policies, the clock of completions, the age limit, full batches,
 * the order of service over endpoints, and what poll() does when its caller gives it little room.
 */
#include <stdio.h>
#include <stdlib.h>

#include "test.h"
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
batches(int side)
{
	return pair_stats(side)->batches_sent;
}

static void
call_n(uint32_t n)
{
	while (n-- != 0)
		assert_ok(pair_call(0, "12345678", 8, 8, n));
}

/* Nothing is sent by call(); the first two flushes go, the third waits for a completion. */
TEST(clocked_waits_for_a_completion)
{
	struct crpc_done done[4];

	pair_init(&base);
	p.w.frozen = true;
	for (int i = 0; i < 5; i++) {
		call_n(3);
		assert_int_equal(batches(0), i < 2 ? i : 2);
		assert_int_equal(pair_flush(0), i < 2 ? 1 : 0);
	}
	/* the data has arrived, but only the completion is the clock */
	p.w.frozen = false;
	p.w.hold_acks = true;
	pair_poll(0, done, 4);
	assert_int_equal(batches(0), 2);
	p.w.hold_acks = false;
	pair_poll(0, done, 4);
	/* all that has gathered meanwhile is one batch */
	assert_int_equal(batches(0), 3);
	assert_int_equal(pair_stats(0)->messages_sent, 15);
	assert_int_equal(pair_stats(0)->batch_size[3], 1);
}

TEST(clocked_sends_at_the_age_limit)
{
	struct crpc_copyrpc_conf conf = base;

	conf.age_ns = 7000;
	pair_init(&conf);
	p.w.frozen = true;
	for (int i = 0; i < 2; i++) {
		call_n(1);
		pair_flush(0);
	}
	call_n(1);
	p.w.now_ns += 3000;
	call_n(1);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns + 3999), 0);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns + 4000), 1);
	assert_int_equal(pair_stats(0)->age_flushes, 1);
	assert_int_equal(pair_stats(0)->messages_sent, 4);
}

/* Replies leave with each flush and request no completion; waiting requests go with them. */
TEST(clocked_replies_are_never_delayed)
{
	struct crpc_req req[8];

	pair_init(&base);
	call_n(6);
	pair_flush(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 8), 6);
	p.w.frozen = true;
	for (uint32_t i = 0; i < 5; i++) {
		pair_reply(1, req[i].token, "x", 1);
		assert_int_equal(pair_flush(1), 1);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_ok(pair_call(1, "q", 1, 8, i));
		assert_int_equal(pair_flush(1), i < 2 ? 1 : 0);
	}
	assert_int_equal(batches(1), 7);
	pair_reply(1, req[5].token, "x", 1);
	assert_int_equal(pair_flush(1), 1);
	assert_int_equal(batches(1), 9);
	/* that of the second flush with requests, and of what went beyond the two */
	assert_int_equal(crpc_paper_counts(p.dev[1])->signalled, 2);
}

/* A call that is like many before it, alone in its turn, does not wait for the turn's end. */
TEST(clocked_sends_at_once_what_will_be_alone)
{
	struct crpc_done done[4];
	struct crpc_req req[4];

	pair_init(&base);
	for (uint32_t i = 0; i < 20; i++) {
		p.w.now_ns += 1000;
		call_n(1);
		assert_int_equal(batches(0), i < 8 ? i : i + 1);
		pair_flush(0);
		assert_int_equal(batches(0), i + 1);
		while (pair_recv(1, req, 1) == 0)
			pair_turn(1);
		pair_reply(1, req[0].token, "x", 1);
		pair_flush(1);
		while (pair_poll(0, done, 4) == 0)
			;
	}
	/* two in one turn: the first one went, the others wait, and so do those of the next turn */
	p.w.now_ns += 1000;
	call_n(3);
	assert_int_equal(batches(0), 21);
	pair_flush(0);
	assert_int_equal(batches(0), 22);
	p.w.now_ns += 1000;
	call_n(1);
	assert_int_equal(batches(0), 22);
}

TEST(clocked_sends_a_full_batch_at_once)
{
	pair_init(&base);
	p.w.frozen = true;
	call_n(126); /* 32 + 126 * 32 = 4064 */
	assert_int_equal(batches(0), 0);
	call_n(1);
	assert_int_equal(batches(0), 1);
	assert_int_equal(pair_stats(0)->full_flushes, 1);
	assert_int_equal(pair_stats(0)->bytes_sent, 4096);
}

TEST(immediate_sends_in_call_and_reply)
{
	struct crpc_copyrpc_conf conf = base;
	struct crpc_done done[4];
	struct crpc_req req[4];

	conf.flush = CRPC_COPYRPC_IMMEDIATE;
	pair_init(&conf);
	call_n(3);
	assert_int_equal(batches(0), 3);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 4), 3);
	for (uint32_t i = 0; i < 3; i++) {
		pair_reply(1, req[i].token, "x", 1);
		assert_int_equal(batches(1), i + 1);
	}
	assert_int_equal(pair_flush(1), 0);
	assert_int_equal(pair_poll(0, done, 4), 3);
	/* far more than the send queue holds: the driver's own signals free its slots */
	for (uint32_t i = 0; i < 1000; i++) {
		while (pair_call(0, "12345678", 8, 8, i) == 0)
			;
		pair_poll(1, done, 4);
		while (pair_recv(1, req, 1) == 1)
			pair_reply(1, req[0].token, "x", 1);
		while (pair_poll(0, done, 4) != 0)
			;
	}
	assert_true(pair_stats(0)->sq_full > 0);
	for (uint32_t i = 0; i < 100; i++) {
		pair_poll(1, done, 4);
		while (pair_recv(1, req, 1) == 1)
			pair_reply(1, req[0].token, "x", 1);
		while (pair_poll(0, done, 4) != 0)
			;
	}
	pair_at_rest();
}

TEST(deferred_sends_all_at_flush_whatever_is_outstanding)
{
	struct crpc_copyrpc_conf conf = base;

	conf.flush = CRPC_COPYRPC_DEFERRED;
	pair_init(&conf);
	p.w.frozen = true;
	for (uint32_t i = 0; i < 10; i++) {
		call_n(2);
		assert_int_equal(batches(0), i);
		assert_int_equal(pair_flush(0), 1);
	}
	assert_int_equal(batches(0), 10);
}

/* Requests and responses of one flush share one doorbell. */
TEST(both_lanes_go_down_in_one_post)
{
	struct crpc_rdma_stats rdma;
	struct crpc_req req[2];

	pair_init(&base);
	call_n(2);
	pair_flush(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 2), 2);
	pair_reply(1, req[0].token, "x", 1);
	assert_ok(pair_call(1, "back", 4, 8, 1));
	pair_reply(1, req[1].token, "y", 1);
	pair_flush(1);
	crpc_rdma_stats_get(p.dev[1], &rdma);
	assert_int_equal(rdma.doorbells, 1);
	assert_int_equal(rdma.wqes, 2);
	assert_int_equal(crpc_paper_counts(p.dev[1])->post_max, 2);
}

/* Small batches travel inside the WQE, larger ones are fetched; both arrive. */
TEST(small_batches_go_inline)
{
	pair_init(&base);
	call_n(5); /* 32 + 160 = 192 bytes */
	pair_flush(0);
	assert_int_equal(crpc_paper_counts(p.dev[0])->inlined, 1);
	call_n(6); /* 224 bytes */
	pair_flush(0);
	assert_int_equal(crpc_paper_counts(p.dev[0])->inlined, 1);
	pair_turn(1);
	assert_int_equal(pair_stats(1)->messages_received, 11);
}

/* One endpoint with many requests does not keep the others waiting; each one's order stays. */
TEST(recv_is_fair_over_endpoints_and_fifo_within)
{
	struct crpc_req req[200];
	uint32_t seen[PAIR_EPS] = {0}, first_of_last = 0, i, e, v;
	uint16_t n = 0;

	pair_init2(&base, &base, PAIR_EPS, 1);
	for (i = 0; i < 100; i++)
		assert_ok(pair_notify(0, &i, 4));
	for (e = 1; e < PAIR_EPS; e++)
		for (i = 0; i < 5; i++)
			assert_ok(crpc_copyrpc_notify(p.ep[0][e], p.w.now_ns, &i, 4));
	pair_flush(0);
	pair_turn(1);
	while (n < 115) /* in bites that do not fit the turns */
		n += pair_recv(1, req + n, 7);
	for (i = 0; i < n; i++) {
		e = req[i].peer - 100;
		memcpy(&v, req[i].data, 4);
		assert_int_equal(v, seen[e]++);
		if (e == PAIR_EPS - 1 && first_of_last == 0)
			first_of_last = i;
	}
	assert_int_equal(seen[0], 100);
	assert_true(first_of_last <= RECV_TURN * (PAIR_EPS - 1));
}

/*
 * Polls that give a whole burst leave the calls that follow it to the next ones: four bursts' calls
 * go in one batch. A poll that gives less sends all there is.
 */
TEST(calls_of_whole_bursts_go_together)
{
	struct crpc_copyrpc_conf conf = base;
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[CRPC_BURST_MAX];
	uint64_t before;
	uint16_t n, i;

	conf.flush = CRPC_COPYRPC_DEFERRED;
	conf.ring_size = 65536;
	conf.batch_max = 0;
	pair_init(&conf);
	call_n(5 * CRPC_BURST_MAX + 8);
	pair_flush(0);
	pair_turn(1);
	while ((n = pair_recv(1, req, CRPC_BURST_MAX)) != 0)
		for (i = 0; i < n; i++)
			pair_reply(1, req[i].token, "y", 1);
	pair_flush(1);
	before = batches(0);
	for (int polls = 1; polls <= 6; polls++) {
		call_n(8);
		n = pair_poll(0, done, CRPC_BURST_MAX);
		assert_int_equal(n, polls < 6 ? CRPC_BURST_MAX : 8);
		assert_int_equal(batches(0) - before, polls < 4 ? 0 : polls < 6 ? 1 : 2);
	}
	assert_int_equal(pair_stats(0)->messages_sent, 5 * CRPC_BURST_MAX + 8 + 48);
}

TEST_MAIN(NULL, pair_end)
