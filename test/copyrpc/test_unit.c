/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One behaviour per test, on two contexts joined by the stepped device. Many are regressions: bugs
 * that RPC over rings of remote memory has had elsewhere, each under the name of its symptom.
 */
#include "test.h"
#include "pair.h"

#define RING 4096u

static const struct crpc_copyrpc_conf small = {
	.max_eps = PAIR_EPS,
	.ring_size = RING,
	.max_msg = CRPC_COPYRPC_MSG_MAX(RING),
	.max_inflight = 64,
	.sq_depth = 16,
};

/* Receive all there is at a side and answer each with its own bytes. */
static uint32_t
echo_all(int side)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n = pair_recv(side, req, CRPC_BURST_MAX), i;

	for (i = 0; i < n; i++)
		assert_ok(pair_reply(side, req[i].token, req[i].data, req[i].len));
	return n;
}

/* A call and its reply: data, cookie, peer; the round trip's three parts are exact. */
TEST(call_completes_with_its_reply)
{
	const struct crpc_copyrpc_stats *stats;
	struct crpc_done done[2];
	struct crpc_req req;

	pair_init(&small);
	assert_ok(pair_call(0, "ping!", 5, 8, 77));
	assert_int_equal(p.ep[0][0]->calls.open, 1);
	p.w.now_ns += 30;
	assert_int_equal(pair_flush(0), 1);
	p.w.now_ns += 900;
	req = pair_take(1);
	assert_int_equal(req.len, 5);
	assert_int_equal(req.peer, 100);
	assert_memory_equal(req.data, "ping!", 5);
	assert_int_equal(pair_reply(1, req.token, "pong pong", 9), -EMSGSIZE);
	assert_ok(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns + 500, req.token, "pong", 4));
	assert_int_equal(pair_flush(1), 1);
	p.w.now_ns += 2000;
	assert_int_equal(pair_poll(0, done, 2), 1);
	assert_int_equal(done[0].cookie, 77);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].len, 4);
	assert_memory_equal(done[0].data, "pong", 4);
	stats = pair_stats(0);
	assert_int_equal(stats->queue.max, 30);
	assert_int_equal(stats->peer.max, 500);
	assert_int_equal(stats->wire.max, 900 + 100 + 2000 + 100 - 500);
	assert_int_equal(stats->rpc.completions, 1);
	pair_at_rest();
}

/* 16 callers of depth 1 in one turn are one batch: one WQE, one doorbell, one receive, no READ. */
TEST(sixteen_callers_at_depth_one_are_one_wqe_and_one_doorbell)
{
	struct crpc_done done[CRPC_BURST_MAX];
	const struct crpc_paper_counts *counts[2];
	struct crpc_rdma_stats rdma;

	pair_init(&(struct crpc_copyrpc_conf){.ring_size = 65536});
	for (int round = 1; round <= 50; round++) {
		for (int i = 0; i < 16; i++)
			assert_ok(pair_call(0, "12345678", 8, 8, (uint64_t)i));
		pair_flush(0);
		pair_turn(1);
		assert_int_equal(echo_all(1), 16);
		pair_flush(1);
		assert_int_equal(pair_poll(0, done, CRPC_BURST_MAX), 16);
	}
	for (int i = 0; i < 2; i++) {
		counts[i] = crpc_paper_counts(p.dev[i]);
		assert_int_equal(counts[i]->write_imms, 50);
		assert_int_equal(counts[i]->writes + counts[i]->reads, 0);
		crpc_rdma_stats_get(p.dev[i], &rdma);
		assert_int_equal(rdma.doorbells, 50);
		assert_int_equal(pair_stats(i)->updates_sent, 0);
		assert_int_equal(pair_stats(i)->batch_size[4], 50);
	}
	pair_at_rest();
}

/* Nothing queued and nothing to report: polls and flushes post nothing. */
TEST(idle_endpoints_ring_no_doorbell)
{
	struct crpc_rdma_stats rdma;

	pair_init2(&small, &small, PAIR_EPS, 1);
	for (int i = 0; i < 1000; i++) {
		p.w.now_ns += 1000000;
		pair_turn(i & 1);
		assert_int_equal(pair_flush(i & 1), 0);
	}
	for (int i = 0; i < 2; i++) {
		crpc_rdma_stats_get(p.dev[i], &rdma);
		assert_int_equal(rdma.doorbells, 0);
	}
}

/* A flush that the send queue cuts short or refuses loses neither data nor released room. */
TEST(credit_survives_a_send_queue_that_is_full_during_flush)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint32_t got = 0, i, j;

	pair_init(&small);
	for (i = 0; i < 400; i++) {
		for (j = 0; j < 4; j++)
			assert_ok(pair_call(0, done, 200, 200, i));
		pair_flush(0);
		pair_turn(1);
		crpc_paper_post_limit(p.dev[1], i % 3 == 0 ? 0 : 1);
		assert_int_equal(echo_all(1), 4);
		pair_flush(1);
		pair_flush(1);
		crpc_paper_post_limit(p.dev[1], UINT32_MAX);
		pair_flush(1);
		got = pair_poll(0, done, CRPC_BURST_MAX);
		while (got < 4) {
			pair_turn(1);
			got += pair_poll(0, done, CRPC_BURST_MAX);
		}
		assert_int_equal(got, 4);
	}
	assert_true(pair_stats(1)->sq_full > 100);
	pair_at_rest();
}

/* One-way sends until the lane is at `target` (from 0), each answered and acknowledged. */
static void
advance_to(uint64_t target)
{
	const struct tx_lane *lane = &p.ep[0][0]->tx[WIRE_REQ];
	static uint8_t buf[RING];
	struct crpc_req req;
	uint32_t len;

	while (lane_prod(lane) != target) {
		assert_true(lane_prod(lane) < target);
		len = (uint32_t)crpc_min(target - lane_prod(lane), 1024) - WIRE_HEAD - 16;
		if (target - lane_prod(lane) > 1024 && target - lane_prod(lane) < 1024 + 64)
			len -= 64;
		assert_ok(pair_notify(0, buf, len));
		req = pair_take(1);
		assert_ok(pair_release(1, req.token));
		p.w.now_ns += 1000000;
		pair_turn(1);
		pair_turn(0);
	}
}

/*
 * Two sends from RING - 96, of which the first is len bytes: where the batches lie, and that all
 * arrives.
 */
static void
wrap_case(uint32_t len, uint64_t first, uint64_t second, uint64_t wraps)
{
	static const uint8_t data[64] =
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";
	const struct tx_lane *lane;
	struct crpc_req req[3];

	pair_init(&small);
	advance_to(RING - 96);
	lane = &p.ep[0][0]->tx[WIRE_REQ];
	assert_ok(pair_notify(0, data, len));
	assert_ok(pair_notify(0, data, 16));
	assert_int_equal(lane->npend, first == second ? 1 : 2);
	assert_int_equal((lane->npend == 2 ? &lane->closed : &lane->open)->pos, first);
	assert_int_equal(lane->open.pos, second);
	assert_int_equal(pair_stats(0)->wraps, wraps);
	pair_flush(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 3), 2);
	assert_int_equal(req[0].len, len);
	assert_memory_equal(req[0].data, data, len);
	assert_memory_equal(req[1].data, data, 16);
	for (int i = 0; i < 2; i++)
		assert_ok(pair_release(1, req[i].token));
	pair_at_rest();
}

/*
 * With 96 bytes before the end: a batch that fills them exactly skips nothing and the next one
 * starts at the ring's start; one unit more and the batch itself starts there; a second message
 * that fits the rest exactly continues the batch; and one that does not leaves 16 bytes skipped.
 */
TEST(wrap_at_exact_fit)
{
	wrap_case(48, RING - 96, RING, 0);
	wrap_case(49, RING, RING, 1);
	wrap_case(16, RING - 96, RING - 96, 0);
	wrap_case(32, RING - 96, RING, 1);
}

/* Whatever sizes go, no WRITE crosses the end of the peer's ring. */
static void
never_across(struct crpc_paper *w, uint8_t *dst, uint32_t len, uint32_t *imm, uint32_t *byte_len)
{
	const struct crpc_copyrpc_ep *ep = p.ep[1][0];

	if (dst >= ep->rx[WIRE_REQ] && dst < ep->rx[WIRE_REQ] + RING)
		assert_true(dst + len <= ep->rx[WIRE_REQ] + RING);
}

TEST(batch_never_spans_the_end_of_the_ring)
{
	static const uint8_t data[RING];
	struct crpc_req req[4];
	uint16_t n;

	pair_init(&small);
	p.w.hook = never_across;
	for (int i = 0; i < 4000; i++) {
		for (int k = i % 3; k >= 0; k--)
			pair_notify(
				0, data, (uint32_t)(crpc_paper_rnd(&p.w) % (small.max_msg + 1)));
		pair_flush(0);
		pair_turn(1);
		n = pair_recv(1, req, 4);
		while (n != 0)
			pair_release(1, req[--n].token);
		p.w.now_ns += 100000;
		pair_turn(1);
		pair_turn(0);
	}
	assert_true(pair_stats(0)->wraps > 100);
	pair_at_rest();
}

/* Fill the request window of a side. Returns how many calls went in. */
static uint32_t
fill_window(int side)
{
	static const uint8_t data[16];
	uint32_t n = 0;

	while (pair_call(side, data, 16, 16, n) == 0)
		n++;
	return n;
}

/* Both sides fill both rings before either answers: all is answered all the same. */
TEST(both_sides_full_is_no_deadlock)
{
	struct crpc_copyrpc_conf conf = small;
	struct crpc_done done[CRPC_BURST_MAX];
	uint32_t left[2], i;

	conf.max_inflight = 4096;
	for (int round = 0; round < 2; round++) {
		conf.max_msg = round ? 16 : CRPC_COPYRPC_MSG_MAX(RING);
		pair_init(&conf);
		for (int side = 0; side < 2; side++) {
			left[side] = fill_window(side);
			assert_true(left[side] > 60);
			pair_flush(side);
		}
		for (i = 0; i < 1000 && (left[0] | left[1]) != 0; i++) {
			left[i & 1] -= pair_poll(i & 1, done, CRPC_BURST_MAX);
			if (i > 10)
				echo_all(i & 1);
		}
		assert_int_equal(left[0] | left[1], 0);
		pair_at_rest();
	}
}

/* At least 95 % of a request ring carries batches: one big batch, and small ones beside it. */
TEST(request_window_is_the_ring)
{
	static const uint8_t data[RING];
	uint64_t used;

	pair_init(&small);
	while (pair_notify(0, data, 48) == 0)
		;
	used = lane_prod(&p.ep[0][0]->tx[WIRE_REQ]);
	assert_in_range(used, RING * 95 / 100, RING);
	pair_flush(0);
	pair_turn(1);
	assert_ok(crpc_copyrpc_check(p.ctx[1], false));
}

/* Calls stop when one of the two rings that they need is used to 95 % or more, whichever it is. */
TEST(calls_use_one_ring_to_95_percent)
{
	static const struct {
		uint32_t len, resp_max, max_msg;
	} cases[] = {{16, 16, 16}, {32, 16, 32}, {64, 16, 64}, {16, 32, 32}, {100, 0, 100}};
	struct crpc_copyrpc_conf conf = small;
	static const uint8_t data[128];
	const struct crpc_copyrpc_ep *ep;
	uint64_t used, reserved;

	conf.max_inflight = 4096;
	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		conf.max_msg = cases[i].max_msg;
		pair_init(&conf);
		ep = p.ep[0][0];
		while (pair_call(0, data, cases[i].len, cases[i].resp_max, 0) == 0)
			;
		used = lane_prod(&ep->tx[WIRE_REQ]);
		reserved = ep->ring_size - ep->resv.left;
		assert_in_range(crpc_max(used, reserved), RING * 95 / 100, RING);
	}
}

TEST(message_larger_than_the_limit_is_refused_for_ever)
{
	struct crpc_copyrpc_conf other = small;
	uint8_t bytes[512] = {0};

	other.max_msg = 512;
	pair_init2(&small, &other, 1, 3);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 513, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, RING * 2, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, UINT32_MAX, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 1, UINT32_MAX, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_notify(p.ep[1][0], 0, bytes, 513), -EMSGSIZE);
	assert_int_equal(p.ep[0][0]->calls.open, 0);
	assert_ok(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 512, 512, 1));
}

/* Whatever was called, sent or large before: a reply of 4 GiB is refused and takes nothing. */
TEST(reply_of_any_impossible_size_is_refused)
{
	static const uint32_t sizes[] = {RING, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
	struct crpc_copyrpc_conf conf = small;
	struct crpc_done done[2];

	conf.max_large = 20000;
	for (uint32_t what = 0; what < 4; what++) {
		pair_init(&conf);
		if (what == 1)
			assert_ok(pair_notify(0, "x", 1));
		else if (what != 0)
			assert_ok(pair_call(0, "x", 1, what == 2 ? 8 : 20000, 7));
		for (size_t i = 0; i < CRPC_DIM(sizes); i++)
			assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, "0123456789abcdef", 16,
						 RING * 8 | sizes[i], 1),
				-EMSGSIZE);
		assert_int_equal(p.ep[0][0]->calls.open, what >= 2);
		assert_ok(crpc_copyrpc_check(p.ctx[0], false));
		pair_flush(0);
		if (what != 0) {
			struct crpc_req req = pair_take(1);

			assert_ok(pair_release(1, req.token));
			pair_flush(1);
			assert_int_equal(pair_poll(0, done, 2), what >= 2);
		}
		pair_at_rest();
	}
}

/*
 * A pure receiver returns the window by updates: at a quarter of the ring at once, less after a
 * time.
 */
TEST(one_way_traffic_returns_its_window_by_updates)
{
	static const uint8_t data[240];
	const struct crpc_copyrpc_stats *stats;

	pair_init(&small);
	stats = pair_stats(1);
	for (uint32_t i = 1; i <= 64; i++) {
		assert_ok(pair_notify(0, data, 240));
		pair_release(1, pair_take(1).token);
		pair_turn(1);
		pair_turn(0);
		/* 288 bytes each: the fourth passes RING / 4 */
		assert_int_equal(stats->updates_sent, i / 4);
	}
	assert_int_equal(pair_stats(0)->updates_received, 16);
	assert_ok(pair_notify(0, data, 16));
	pair_release(1, pair_take(1).token);
	p.w.now_ns += 19000;
	pair_turn(1);
	assert_int_equal(stats->updates_sent, 16);
	p.w.now_ns += 1000;
	pair_turn(1);
	assert_int_equal(stats->updates_sent, 17);
	pair_at_rest();
}

/* Answer all there is, calls that allow 8 bytes, each reply full of a byte of its own. */
static void
answer_all(uint8_t *mark)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint8_t reply[8];
	uint16_t n, i;

	pair_turn(1);
	while ((n = pair_recv(1, req, CRPC_BURST_MAX)) != 0) {
		for (i = 0; i < n; i++) {
			memset(reply, ++*mark, sizeof(reply));
			assert_ok(pair_reply(1, req[i].token, reply, sizeof(reply)));
		}
	}
	pair_flush(1);
	crpc_paper_run(&p.w);
}

#define TURN_NS 5000u

/* A peer that answers what came over the first endpoint, and nothing else. */
static void
first_answer(void)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n, i;

	pair_turn(1);
	while ((n = pair_recv(1, req, CRPC_BURST_MAX)) != 0)
		for (i = 0; i < n; i++)
			if (req[i].peer == 100)
				pair_reply(1, req[i].token, "y", 1);
	pair_flush(1);
}

/*
 * One turn in which as many replies are there as a poll can give, and more. Returns the last
 * completion with this cookie; status 1 if there was none.
 */
static struct crpc_done
busy_turn(uint16_t room, uint64_t cookie)
{
	struct crpc_done done[CRPC_BURST_MAX], found = {.status = 1};
	uint16_t n, i;

	while (pair_call(0, "x", 1, 8, 0) == 0)
		;
	pair_flush(0);
	first_answer();
	p.w.now_ns += TURN_NS;
	n = pair_poll(0, done, room);
	assert_int_equal(n, room);
	for (i = 0; i < n; i++)
		if (done[i].cookie == cookie)
			found = done[i];
	return found;
}

/* Completions of the device that fill every poll keep no endpoint waiting that has none. */
TEST(memory_is_looked_at_while_completions_fill_every_poll)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS, .ring_size = 65536, .max_inflight = 128};
	static const uint16_t rooms[] = {1, 4};
	struct crpc_done done;
	uint8_t mark = 0;
	uint32_t turns;

	for (size_t i = 0; i < CRPC_DIM(rooms); i++) {
		pair_init(&conf);
		p.mode.arrival = CRPC_COPYRPC_MEMORY;
		pair_connect(1);
		for (turns = 0; turns < 3; turns++)
			busy_turn(rooms[i], 77);
		assert_ok(crpc_copyrpc_call(p.ep[0][1], p.w.now_ns, "x", 1, 8, 77));
		pair_flush(0);
		answer_all(&mark);
		/* behind the batch that is being given, which has all calls of the busy one */
		for (turns = 0, done.status = 1; done.status == 1; turns++) {
			assert_true(turns < 128u / rooms[i] + 8);
			done = busy_turn(rooms[i], 77);
		}
		assert_int_equal(done.status, 0);
	}
}

/* What the contract demands of reply() holds of its first half, and where the endpoint broke. */
TEST(replies_in_halves_are_refused_like_whole_ones)
{
	struct crpc_req req[3], next;
	uint64_t now;
	void *data;

	pair_init(&small);
	now = p.w.now_ns;
	assert_ok(crpc_copyrpc_call(p.ep[0][0], now, NULL, 0, 31, 1));
	assert_ok(crpc_copyrpc_notify(p.ep[0][0], now, "b", 1));
	assert_ok(crpc_copyrpc_call(p.ep[0][0], now, "c", 1, 8, 2));
	crpc_copyrpc_flush(p.ctx[0], now);
	pair_turn(1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], now, req, 3), 3);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[0].token, 32, &data), -EMSGSIZE);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[1].token, 1, &data), -EOPNOTSUPP);
	assert_ok(crpc_copyrpc_release(p.ctx[1], now, req[0].token));
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[0].token, 1, &data), -ENOENT);
	/* the endpoint of the others breaks: they end with that */
	crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_REQ, 16), NULL, 16);
	pair_turn(1);
	assert_int_equal(pair_status(1), -EPROTO);
	assert_int_equal(crpc_copyrpc_fail(p.ctx[1], now, req[1].token, -1), -EOPNOTSUPP);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], now, req[1].token), -ECONNRESET);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[2].token, 1, &data), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], now, req[2].token), -ENOENT);
	/* nor is a token good for the next endpoint in the same place */
	crpc_copyrpc_ep_free(p.ep[0][0]);
	crpc_copyrpc_ep_free(p.ep[1][0]);
	pair_connect(0);
	assert_ok(crpc_copyrpc_call(p.ep[0][0], now, "a", 1, 8, 2));
	crpc_copyrpc_flush(p.ctx[0], now);
	next = pair_take(1);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], now, req[0].token, "b", 1), -ENOENT);
	assert_ok(crpc_copyrpc_reply(p.ctx[1], now, next.token, "b", 1));
}

TEST_MAIN(NULL, pair_end)
