/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One behaviour per test, on two contexts joined by the stepped device. Many are regressions: bugs
 * that RPC over rings of remote memory has had elsewhere, each under the name of its symptom.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "pair.h"

#define RING 4096u

static const struct crpc_copyrpc_conf small = {
		.max_eps = PAIR_EPS,
		.ring_size = RING,
		.max_msg = CRPC_COPYRPC_MSG_MAX(RING),
		.max_inflight = 64,
		.sq_depth = 16,
};

/* Receive exactly one request at a side. */
static struct crpc_req
recv_one(struct pair *p, int side)
{
	struct crpc_req req[2];

	pair_turn(p, side);
	assert_int_equal(crpc_copyrpc_recv(p->ctx[side], p->w.now_ns, req, 2), 1);
	return req[0];
}

/* Receive all there is at a side and answer each with its own bytes. */
static uint32_t
echo_all(struct pair *p, int side)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n = crpc_copyrpc_recv(p->ctx[side], p->w.now_ns, req, CRPC_BURST_MAX), i;

	for (i = 0; i < n; i++)
		assert_int_equal(crpc_copyrpc_reply(p->ctx[side], p->w.now_ns, req[i].token,
						 req[i].data, req[i].len),
				0);
	return n;
}

/* A call and its reply: data, cookie, peer; the round trip's three parts are exact. */
static void
call_completes_with_its_reply(void **state)
{
	const struct crpc_copyrpc_stats *stats;
	struct crpc_done done[2];
	struct crpc_req req;
	struct pair p;

	pair_init(&p, &small);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "ping!", 5, 8, 77), 0);
	assert_int_equal(crpc_copyrpc_ep_open_calls(p.ep[0][0]), 1);
	p.w.now_ns += 30;
	assert_int_equal(crpc_copyrpc_flush(p.ctx[0], p.w.now_ns), 1);
	p.w.now_ns += 900;
	req = recv_one(&p, 1);
	assert_int_equal(req.len, 5);
	assert_int_equal(req.peer, 100);
	assert_memory_equal(req.data, "ping!", 5);
	assert_int_equal(crpc_copyrpc_reply_max(p.ctx[1], req.token), 8);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns + 500, req.token, "pong", 4), 0);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns), 1);
	p.w.now_ns += 2000;
	assert_int_equal(pair_poll(&p, 0, done, 2), 1);
	assert_int_equal(done[0].cookie, 77);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].len, 4);
	assert_memory_equal(done[0].data, "pong", 4);
	stats = crpc_copyrpc_stats(p.ctx[0]);
	assert_int_equal(stats->queue.max, 30);
	assert_int_equal(stats->peer.max, 500);
	assert_int_equal(stats->wire.max, 900 + 100 + 2000 + 100 - 500);
	assert_int_equal(stats->rpc.completions, 1);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* 16 callers of depth 1 in one turn are one batch: one WQE, one doorbell, one receive, no READ. */
static void
sixteen_callers_at_depth_one_are_one_wqe_and_one_doorbell(void **state)
{
	struct crpc_done done[CRPC_BURST_MAX];
	const struct crpc_paper_counts *counts[2];
	struct crpc_rdma_stats rdma;
	struct pair p;
	int round, i;

	pair_init(&p, &(struct crpc_copyrpc_conf){.ring_size = 65536});
	for (round = 1; round <= 50; round++) {
		for (i = 0; i < 16; i++)
			assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "12345678", 8, 8,
							 (uint64_t)i),
					0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		pair_turn(&p, 1);
		assert_int_equal(echo_all(&p, 1), 16);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		assert_int_equal(pair_poll(&p, 0, done, CRPC_BURST_MAX), 16);
	}
	for (i = 0; i < 2; i++) {
		counts[i] = crpc_paper_counts(p.dev[i]);
		assert_int_equal(counts[i]->write_imms, 50);
		assert_int_equal(counts[i]->writes + counts[i]->reads, 0);
		crpc_rdma_stats_get(p.dev[i], &rdma);
		assert_int_equal(rdma.doorbells, 50);
		assert_int_equal(crpc_copyrpc_stats(p.ctx[i])->updates_sent, 0);
		assert_int_equal(crpc_copyrpc_stats(p.ctx[i])->batch_size[4], 50);
	}
	pair_at_rest(&p);
	pair_fini(&p);
}

/* Nothing queued and nothing to report: polls and flushes post nothing. */
static void
idle_endpoints_ring_no_doorbell(void **state)
{
	struct crpc_rdma_stats rdma;
	struct pair p;
	int i;

	pair_init2(&p, &small, &small, PAIR_EPS, 1);
	for (i = 0; i < 1000; i++) {
		p.w.now_ns += 1000000;
		pair_turn(&p, i & 1);
		assert_int_equal(crpc_copyrpc_flush(p.ctx[i & 1], p.w.now_ns), 0);
	}
	for (i = 0; i < 2; i++) {
		crpc_rdma_stats_get(p.dev[i], &rdma);
		assert_int_equal(rdma.doorbells, 0);
	}
	pair_fini(&p);
}

/* A flush that the send queue cuts short or refuses loses neither data nor released room. */
static void
credit_survives_a_send_queue_that_is_full_during_flush(void **state)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint32_t got = 0, i, j;
	struct pair p;

	pair_init(&p, &small);
	for (i = 0; i < 400; i++) {
		for (j = 0; j < 4; j++)
			assert_int_equal(crpc_copyrpc_call(
							 p.ep[0][0], p.w.now_ns, done, 200, 200, i),
					0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		pair_turn(&p, 1);
		crpc_paper_post_limit(p.dev[1], i % 3 == 0 ? 0 : 1);
		assert_int_equal(echo_all(&p, 1), 4);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		crpc_paper_post_limit(p.dev[1], UINT32_MAX);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		got = pair_poll(&p, 0, done, CRPC_BURST_MAX);
		while (got < 4) {
			pair_turn(&p, 1);
			got += pair_poll(&p, 0, done, CRPC_BURST_MAX);
		}
		assert_int_equal(got, 4);
	}
	assert_true(crpc_copyrpc_stats(p.ctx[1])->sq_full > 100);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* One-way sends until the lane is at `target` (from 0), each answered and acknowledged. */
static void
advance_to(struct pair *p, uint64_t target)
{
	const struct tx_lane *lane = &p->ep[0][0]->tx[WIRE_REQ];
	static uint8_t buf[RING];
	struct crpc_req req;
	uint32_t len;

	while (lane_prod(lane) != target) {
		assert_true(lane_prod(lane) < target);
		len = (uint32_t)crpc_min(target - lane_prod(lane), 1024) - WIRE_HEAD - 16;
		if (target - lane_prod(lane) > 1024 && target - lane_prod(lane) < 1024 + 64)
			len -= 64;
		assert_int_equal(crpc_copyrpc_notify(p->ep[0][0], p->w.now_ns, buf, len), 0);
		crpc_copyrpc_flush(p->ctx[0], p->w.now_ns);
		req = recv_one(p, 1);
		assert_int_equal(crpc_copyrpc_release(p->ctx[1], p->w.now_ns, req.token), 0);
		p->w.now_ns += 1000000;
		pair_turn(p, 1);
		pair_turn(p, 0);
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
	struct pair p;
	int i;

	pair_init(&p, &small);
	advance_to(&p, RING - 96);
	lane = &p.ep[0][0]->tx[WIRE_REQ];
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data, len), 0);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data, 16), 0);
	assert_int_equal(lane->npend, first == second ? 1 : 2);
	assert_int_equal((lane->npend == 2 ? &lane->closed : &lane->open)->pos, first);
	assert_int_equal(lane->open.pos, second);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->wraps, wraps);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 3), 2);
	assert_int_equal(req[0].len, len);
	assert_memory_equal(req[0].data, data, len);
	assert_memory_equal(req[1].data, data, 16);
	for (i = 0; i < 2; i++)
		assert_int_equal(crpc_copyrpc_release(p.ctx[1], p.w.now_ns, req[i].token), 0);
	pair_at_rest(&p);
	pair_fini(&p);
}

/*
 * With 96 bytes before the end: a batch that fills them exactly skips nothing and the next one
 * starts at the ring's start; one unit more and the batch itself starts there; a second message
 * that fits the rest exactly continues the batch; and one that does not leaves 16 bytes skipped.
 */
static void
wrap_at_exact_fit(void **state)
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
	struct pair *p = w->hook_arg;
	const struct crpc_copyrpc_ep *ep = p->ep[1][0];

	if (dst >= ep->rx[WIRE_REQ] && dst < ep->rx[WIRE_REQ] + RING)
		assert_true(dst + len <= ep->rx[WIRE_REQ] + RING);
}

static void
batch_never_spans_the_end_of_the_ring(void **state)
{
	static const uint8_t data[RING];
	struct crpc_req req[4];
	struct pair p;
	uint16_t n;
	int i, k;

	pair_init(&p, &small);
	p.w.hook = never_across;
	p.w.hook_arg = &p;
	for (i = 0; i < 4000; i++) {
		for (k = i % 3; k >= 0; k--)
			crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data,
				(uint32_t)(crpc_paper_rnd(&p.w) % (small.max_msg + 1)));
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		pair_turn(&p, 1);
		n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 4);
		while (n != 0)
			crpc_copyrpc_release(p.ctx[1], p.w.now_ns, req[--n].token);
		p.w.now_ns += 100000;
		pair_turn(&p, 1);
		pair_turn(&p, 0);
	}
	assert_true(crpc_copyrpc_stats(p.ctx[0])->wraps > 100);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* Fill the request window of a side. Returns how many calls went in. */
static uint32_t
fill_window(struct pair *p, int side)
{
	static const uint8_t data[16];
	uint32_t n = 0;

	while (crpc_copyrpc_call(p->ep[side][0], p->w.now_ns, data, 16, 16, n) == 0)
		n++;
	return n;
}

/* Both sides fill both rings before either answers: all is answered all the same. */
static void
both_sides_full_is_no_deadlock(void **state)
{
	struct crpc_copyrpc_conf conf = small;
	struct crpc_done done[CRPC_BURST_MAX];
	uint32_t left[2], i;
	struct pair p;
	int side, round;

	conf.max_inflight = 4096;
	for (round = 0; round < 2; round++) {
		conf.max_msg = round ? 16 : CRPC_COPYRPC_MSG_MAX(RING);
		pair_init(&p, &conf);
		for (side = 0; side < 2; side++) {
			left[side] = fill_window(&p, side);
			assert_true(left[side] > 60);
			crpc_copyrpc_flush(p.ctx[side], p.w.now_ns);
		}
		for (i = 0; i < 1000 && (left[0] | left[1]) != 0; i++) {
			left[i & 1] -= pair_poll(&p, i & 1, done, CRPC_BURST_MAX);
			if (i > 10)
				echo_all(&p, i & 1);
		}
		assert_int_equal(left[0] | left[1], 0);
		pair_at_rest(&p);
		pair_fini(&p);
	}
}

/* At least 95 % of a request ring carries batches: one big batch, and small ones beside it. */
static void
request_window_is_the_ring(void **state)
{
	static const uint8_t data[RING];
	uint64_t used;
	struct pair p;

	pair_init(&p, &small);
	while (crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data, 48) == 0)
		;
	used = lane_prod(&p.ep[0][0]->tx[WIRE_REQ]);
	assert_in_range(used, RING * 95 / 100, RING);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_check(p.ctx[1], false), 0);
	pair_fini(&p);
}

/* Calls stop when one of the two rings that they need is used to 95 % or more, whichever it is. */
static void
calls_use_one_ring_to_95_percent(void **state)
{
	static const struct {
		uint32_t len, resp_max, max_msg;
	} cases[] = {{16, 16, 16}, {32, 16, 32}, {64, 16, 64}, {16, 32, 32}, {100, 0, 100}};
	struct crpc_copyrpc_conf conf = small;
	static const uint8_t data[128];
	const struct crpc_copyrpc_ep *ep;
	uint64_t used, reserved;
	struct pair p;
	size_t i;

	conf.max_inflight = 4096;
	for (i = 0; i < CRPC_DIM(cases); i++) {
		conf.max_msg = cases[i].max_msg;
		pair_init(&p, &conf);
		ep = p.ep[0][0];
		while (crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, data, cases[i].len,
				       cases[i].resp_max, 0) == 0)
			;
		used = lane_prod(&ep->tx[WIRE_REQ]);
		reserved = ep->ring_size - ep->resv.left;
		assert_in_range(crpc_max(used, reserved), RING * 95 / 100, RING);
		pair_fini(&p);
	}
}

/*
 * More than 4 GiB, and positions, counts, ids and tokens that begin again: windows and wraps
 * continue as before.
 */
static void
traffic_beyond_4_gib_keeps_its_window(void **state)
{
	static const uint64_t starts[] = {(1ull << 32) - 6000 / 16 * 16, (1ull << 34) - 8192,
			-4096ull, (1ull << 63) - 16};
	struct crpc_copyrpc_conf conf[2] = {small, small};
	struct crpc_done done[CRPC_BURST_MAX];
	struct pair p;
	uint32_t i, k, n;

	conf[0].flush = CRPC_COPYRPC_DEFERRED;
	conf[1].flush = CRPC_COPYRPC_DEFERRED;
	for (i = 0; i < CRPC_DIM(starts); i++) {
		conf[0].initial_pos = starts[i];
		conf[1].initial_pos = starts[(i + 1) % CRPC_DIM(starts)];
		pair_init2(&p, &conf[0], &conf[1], 1, i);
		for (k = 1; k <= small.max_inflight; k++) /* eight calls before their end */
			p.ep[0][0]->slots[k].call.id -= 8 * (p.ep[0][0]->calls.mask + 1);
		for (k = 0; k < 300; k++) {
			for (n = 0; crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, &conf, 100, 100, n) ==
					0;)
				n++;
			assert_true(n > 0);
			crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
			pair_turn(&p, 1);
			assert_int_equal(echo_all(&p, 1), n);
			crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
			assert_int_equal(pair_poll(&p, 0, done, CRPC_BURST_MAX), n);
			pair_turn(&p, 0); /* frees the room of the completions */
			assert_int_equal(crpc_copyrpc_check(p.ctx[0], false), 0);
		}
		/* and window updates alone, whose position is cut to 30 bits */
		for (k = 0; k < 300; k++) {
			assert_int_equal(
				crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, &conf, 100), 0);
			crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
			crpc_copyrpc_release(p.ctx[1], p.w.now_ns, recv_one(&p, 1).token);
			p.w.now_ns += 100000;
			pair_turn(&p, 1);
			pair_turn(&p, 0);
		}
		assert_int_equal(crpc_copyrpc_stats(p.ctx[1])->updates_sent, 300);
		pair_at_rest(&p);
		pair_fini(&p);
	}
}

static void
message_larger_than_the_limit_is_refused_for_ever(void **state)
{
	struct crpc_copyrpc_conf other = small;
	uint8_t bytes[512] = {0};
	struct pair p;
	void *data;

	other.max_msg = 512;
	pair_init2(&p, &small, &other, 1, 3);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 513, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, RING * 2, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, UINT32_MAX, 0, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 1, UINT32_MAX, 1), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_notify(p.ep[1][0], 0, bytes, 513), -EMSGSIZE);
	assert_int_equal(
		crpc_copyrpc_call_reserve(p.ep[0][0], p.w.now_ns, 513, 0, &data), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_ep_open_calls(p.ep[0][0]), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, bytes, 512, 512, 1), 0);
	pair_fini(&p);
}

/* Whatever was called, sent or large before: a reply of 4 GiB is refused and takes nothing. */
static void
reply_of_any_impossible_size_is_refused(void **state)
{
	static const uint32_t sizes[] = {RING, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
	struct crpc_copyrpc_conf conf = small;
	struct crpc_done done[2];
	struct crpc_req req;
	struct pair p;
	uint32_t what;
	void *data;
	size_t i;

	conf.max_large = 20000;
	for (what = 0; what < 4; what++) {
		pair_init(&p, &conf);
		if (what == 1)
			assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, "x", 1), 0);
		else if (what != 0)
			assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1,
							 what == 2 ? 8 : 20000, 7),
					0);
		for (i = 0; i < CRPC_DIM(sizes); i++) {
			assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, "0123456789abcdef", 16,
							 RING * 8 | sizes[i], 1),
					-EMSGSIZE);
			assert_int_equal(crpc_copyrpc_call_reserve(p.ep[0][0], p.w.now_ns, 16,
						 RING * 8 | sizes[i], &data),
				-EMSGSIZE);
		}
		assert_int_equal(crpc_copyrpc_ep_open_calls(p.ep[0][0]), what >= 2);
		assert_int_equal(crpc_copyrpc_check(p.ctx[0], false), 0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		if (what != 0) {
			req = recv_one(&p, 1);
			assert_int_equal(crpc_copyrpc_release(p.ctx[1], p.w.now_ns, req.token), 0);
			crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
			assert_int_equal(pair_poll(&p, 0, done, 2), what >= 2);
		}
		pair_at_rest(&p);
		pair_fini(&p);
	}
}

/*
 * A held request keeps its bytes though the peer sends until it may send no more; then all
 * continues.
 */
static void
request_held_over_a_full_ring_cycle_keeps_its_bytes(void **state)
{
	static const uint8_t junk[64] = {0xee};
	struct crpc_req held, req[CRPC_BURST_MAX];
	uint32_t cycle, rounds, n, k;
	struct pair p;

	pair_init(&p, &small);
	for (cycle = 0; cycle < 5; cycle++) {
		assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, "precious", 8), 0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		held = recv_one(&p, 1);
		n = 0;
		for (rounds = 0; rounds < 200; rounds++) {
			while (crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, junk, 64) == 0)
				n++;
			p.w.now_ns += 100000;
			pair_turn(&p, 0);
			pair_turn(&p, 1);
			k = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, CRPC_BURST_MAX);
			while (k != 0)
				assert_int_equal(crpc_copyrpc_release(p.ctx[1], p.w.now_ns,
								 req[--k].token),
						0);
		}
		assert_in_range(n, RING / 2 / 112, RING / 80);
		assert_int_equal(held.len, 8);
		assert_memory_equal(held.data, "precious", 8);
		assert_int_equal(crpc_copyrpc_release(p.ctx[1], p.w.now_ns, held.token), 0);
		pair_at_rest(&p);
	}
	pair_fini(&p);
}

/*
 * A pure receiver returns the window by updates: at a quarter of the ring at once, less after a
 * time.
 */
static void
one_way_traffic_returns_its_window_by_updates(void **state)
{
	static const uint8_t data[240];
	const struct crpc_copyrpc_stats *stats;
	struct pair p;
	uint32_t i;

	pair_init(&p, &small);
	stats = crpc_copyrpc_stats(p.ctx[1]);
	for (i = 1; i <= 64; i++) {
		assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data, 240), 0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		crpc_copyrpc_release(p.ctx[1], p.w.now_ns, recv_one(&p, 1).token);
		pair_turn(&p, 1);
		pair_turn(&p, 0);
		/* 288 bytes each: the fourth passes RING / 4 */
		assert_int_equal(stats->updates_sent, i / 4);
	}
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->updates_received, 16);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, data, 16), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	crpc_copyrpc_release(p.ctx[1], p.w.now_ns, recv_one(&p, 1).token);
	p.w.now_ns += 19000;
	pair_turn(&p, 1);
	assert_int_equal(stats->updates_sent, 16);
	p.w.now_ns += 1000;
	pair_turn(&p, 1);
	assert_int_equal(stats->updates_sent, 17);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* What one poll gave, and a copy of it. */
struct given {
	struct crpc_done done[CRPC_BURST_MAX];
	uint8_t bytes[CRPC_BURST_MAX][1024];
	uint16_t n;
};

static void
given_poll(struct pair *p, struct given *g, uint16_t room)
{
	uint16_t i;

	g->n = pair_poll(p, 0, g->done, room);
	for (i = 0; i < g->n; i++)
		if (g->done[i].len != 0)
			memcpy(g->bytes[i], g->done[i].data, g->done[i].len);
}

static void
given_check(const struct given *g)
{
	uint16_t i;

	for (i = 0; i < g->n; i++)
		if (g->done[i].len != 0)
			assert_memory_equal(g->done[i].data, g->bytes[i], g->done[i].len);
}

/* Answer all there is, each reply full of a byte of its own. */
static void
answer_all(struct pair *p, uint8_t *mark)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint8_t reply[1024];
	uint16_t n, i;

	pair_turn(p, 1);
	while ((n = crpc_copyrpc_recv(p->ctx[1], p->w.now_ns, req, CRPC_BURST_MAX)) != 0) {
		for (i = 0; i < n; i++) {
			memset(reply, ++*mark, sizeof(reply));
			assert_int_equal(crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, req[i].token,
							 reply,
							 (uint32_t)crpc_copyrpc_reply_max(
								 p->ctx[1], req[i].token)),
					0);
		}
	}
	crpc_copyrpc_flush(p->ctx[1], p->w.now_ns);
	crpc_paper_run(&p->w);
}

/* Make so many calls of 1,000 bytes, from this cookie on. */
static void
thousands_call(struct pair *p, uint64_t from, uint32_t n)
{
	for (; n != 0; n--, from++)
		assert_int_equal(crpc_copyrpc_call(p->ep[0][0], p->w.now_ns, "x", 1, 1000, from),
				0);
	crpc_copyrpc_flush(p->ctx[0], p->w.now_ns);
}

/*
 * Late replies lie among those that were just given. Their room is not free before the next poll
 * either: replies to new calls must not pass them and reach what the user still reads.
 */
static void
late_replies_leave_completions_readable(void **state)
{
	struct crpc_copyrpc_conf conf = {.ring_size = 65536, .max_inflight = 256};
	struct crpc_done done[CRPC_BURST_MAX];
	struct given given;
	uint8_t mark = 0;
	uint32_t n, i;
	struct pair p;

	pair_init(&p, &conf);
	thousands_call(&p, 1, 61);
	for (i = 2; i <= 51; i++)
		assert_int_equal(crpc_copyrpc_cancel(p.ep[0][0], p.w.now_ns, i), 1);
	assert_int_equal(pair_poll(&p, 0, done, CRPC_BURST_MAX), 50);
	answer_all(&p, &mark);
	given_poll(&p, &given, CRPC_BURST_MAX);
	assert_int_equal(given.n, 11);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->rpc.late, 50);
	for (n = 0; crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 1000, n) == 0;)
		n++;
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	answer_all(&p, &mark);
	given_check(&given);
	assert_int_equal(crpc_copyrpc_check(p.ctx[0], false), 0);
	/* with the next poll all of it is free */
	for (i = 0; i < n; i += given.n)
		given_poll(&p, &given, CRPC_BURST_MAX);
	pair_turn(&p, 0);
	thousands_call(&p, 100, 61);
	pair_fini(&p);
}

/* The same with any mixture of sizes, cancels, deadlines and full arrays, from a seed. */
static void
completions_keep_their_bytes_whatever_ends_early(void **state)
{
	struct crpc_copyrpc_conf conf = {.ring_size = 8192, .max_inflight = 64};
	struct given given;
	uint64_t cookie, seed;
	uint32_t turn, i;
	uint8_t mark = 0;
	struct pair p;

	conf.max_msg = 1000;
	conf.timeout_ns = 5000;
	for (seed = 1; seed <= 20; seed++) {
		pair_init2(&p, &conf, &conf, 1, seed);
		for (cookie = 0, turn = 0; turn < 1000; turn++) {
			given_poll(&p, &given, (uint16_t)(1 + crpc_paper_rnd(&p.w) % 32));
			for (i = (uint32_t)(crpc_paper_rnd(&p.w) % 16); i != 0; i--)
				crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1,
					(uint32_t)(crpc_paper_rnd(&p.w) % 1001), cookie++);
			crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
			if (crpc_paper_rnd(&p.w) % 4 == 0)
				for (i = 0; i < 8; i++)
					crpc_copyrpc_cancel(p.ep[0][0], p.w.now_ns,
						cookie - crpc_paper_rnd(&p.w) % 32);
			if (crpc_paper_rnd(&p.w) % 3 == 0)
				answer_all(&p, &mark);
			if (crpc_copyrpc_check(p.ctx[0], false) != 0)
				fail_msg("seed %u: %s", (uint32_t)seed, crpc_log_last());
			given_check(&given);
		}
		assert_true(crpc_copyrpc_stats(p.ctx[0])->rpc.late > 100);
		assert_true(crpc_copyrpc_stats(p.ctx[0])->rpc.completions > 1000);
		pair_fini(&p);
	}
}

#define TURN_NS  5000u

/* A peer that answers what came over the first endpoint, and nothing else. */
static void
first_answer(struct pair *p)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n, i;

	pair_turn(p, 1);
	while ((n = crpc_copyrpc_recv(p->ctx[1], p->w.now_ns, req, CRPC_BURST_MAX)) != 0)
		for (i = 0; i < n; i++)
			if (req[i].peer == 100)
				crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, req[i].token, "y", 1);
	crpc_copyrpc_flush(p->ctx[1], p->w.now_ns);
}

/*
 * One turn in which as many replies are there as a poll can give, and more. Returns the last
 * completion with this cookie; status 1 if there was none.
 */
static struct crpc_done
busy_turn(struct pair *p, uint16_t room, uint64_t cookie)
{
	struct crpc_done done[CRPC_BURST_MAX], found = {.status = 1};
	uint16_t n, i;

	while (crpc_copyrpc_call(p->ep[0][0], p->w.now_ns, "x", 1, 8, 0) == 0)
		;
	crpc_copyrpc_flush(p->ctx[0], p->w.now_ns);
	first_answer(p);
	p->w.now_ns += TURN_NS;
	n = pair_poll(p, 0, done, room);
	assert_int_equal(n, room);
	for (i = 0; i < n; i++)
		if (done[i].cookie == cookie)
			found = done[i];
	return found;
}

/* Completions of the device that fill every poll keep no endpoint waiting that has none. */
static void
memory_is_looked_at_while_completions_fill_every_poll(void **state)
{
	struct crpc_copyrpc_conf conf = {
			.max_eps = PAIR_EPS, .ring_size = 65536, .max_inflight = 128};
	static const uint16_t rooms[] = {1, 4};
	struct crpc_done done;
	uint8_t mark = 0;
	uint32_t turns;
	struct pair p;
	size_t i;

	for (i = 0; i < CRPC_DIM(rooms); i++) {
		pair_init(&p, &conf);
		p.mode.arrival = CRPC_COPYRPC_MEMORY;
		pair_connect(&p, 1);
		for (turns = 0; turns < 3; turns++)
			busy_turn(&p, rooms[i], 77);
		assert_int_equal(crpc_copyrpc_call(p.ep[0][1], p.w.now_ns, "x", 1, 8, 77), 0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		answer_all(&p, &mark);
		/* behind the batch that is being given, which has all calls of the busy one */
		for (turns = 0, done.status = 1; done.status == 1; turns++) {
			assert_true(turns < 128u / rooms[i] + 8);
			done = busy_turn(&p, rooms[i], 77);
		}
		assert_int_equal(done.status, 0);
		pair_fini(&p);
	}
}

/*
 * A broken queue pair ends every open call once, a few per poll; the endpoint refuses from then on.
 */
static void
broken_queue_pair_fails_each_open_call_once(void **state)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint64_t ended = 0;
	struct pair p;
	uint32_t i, k, n;

	pair_init(&p, &small);
	for (i = 0; i < 40; i++) {
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, i), 0);
		if (i == 20)
			crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	}
	crpc_paper_fail(p.dev[0], 0, -ECONNRESET);
	for (i = 0; i < 10; i++) {
		n = pair_poll(&p, 0, done, 7);
		assert_int_equal(n, i < 5 ? 7 : i == 5 ? 5 : 0);
		for (k = 0; k < n; k++) {
			assert_int_equal(done[k].status, -ECONNRESET);
			assert_int_equal(ended >> done[k].cookie & 1, 0);
			ended |= 1ull << done[k].cookie;
		}
	}
	assert_int_equal(ended, (1ull << 40) - 1);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 0), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, "x", 1), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_check(p.ctx[0], true), 0);
	pair_fini(&p);
}

/* What the contract demands of reply() holds of its first half, and where the endpoint broke. */
static void
replies_in_halves_are_refused_like_whole_ones(void **state)
{
	struct crpc_req req[3], next;
	struct pair p;
	uint64_t now;
	void *data;

	pair_init(&p, &small);
	now = p.w.now_ns;
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], now, NULL, 0, 31, 1), 0);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], now, "b", 1), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], now, "c", 1, 8, 2), 0);
	crpc_copyrpc_flush(p.ctx[0], now);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], now, req, 3), 3);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[0].token, 32, &data), -EMSGSIZE);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[1].token, 1, &data), -EOPNOTSUPP);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], now, req[0].token), 0);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[0].token, 1, &data), -ENOENT);
	assert_int_equal(crpc_copyrpc_reply_max(p.ctx[1], req[0].token), -ENOENT);
	/* the endpoint of the others breaks: they end with that */
	crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_REQ, 16), NULL, 16);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), -EPROTO);
	assert_int_equal(crpc_copyrpc_fail(p.ctx[1], now, req[1].token, -1), -EOPNOTSUPP);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], now, req[1].token), -ECONNRESET);
	assert_int_equal(
		crpc_copyrpc_reply_reserve(p.ctx[1], now, req[2].token, 1, &data), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], now, req[2].token), -ENOENT);
	/* nor is a token good for the next endpoint in the same place */
	crpc_copyrpc_ep_free(p.ep[0][0]);
	crpc_copyrpc_ep_free(p.ep[1][0]);
	pair_connect(&p, 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], now, "a", 1, 8, 2), 0);
	crpc_copyrpc_flush(p.ctx[0], now);
	next = recv_one(&p, 1);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], now, req[0].token, "b", 1), -ENOENT);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], now, next.token, "b", 1), 0);
	pair_fini(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(call_completes_with_its_reply),
		cmocka_unit_test(sixteen_callers_at_depth_one_are_one_wqe_and_one_doorbell),
		cmocka_unit_test(idle_endpoints_ring_no_doorbell),
		cmocka_unit_test(credit_survives_a_send_queue_that_is_full_during_flush),
		cmocka_unit_test(wrap_at_exact_fit),
		cmocka_unit_test(batch_never_spans_the_end_of_the_ring),
		cmocka_unit_test(both_sides_full_is_no_deadlock),
		cmocka_unit_test(request_window_is_the_ring),
		cmocka_unit_test(calls_use_one_ring_to_95_percent),
		cmocka_unit_test(traffic_beyond_4_gib_keeps_its_window),
		cmocka_unit_test(message_larger_than_the_limit_is_refused_for_ever),
		cmocka_unit_test(reply_of_any_impossible_size_is_refused),
		cmocka_unit_test(request_held_over_a_full_ring_cycle_keeps_its_bytes),
		cmocka_unit_test(one_way_traffic_returns_its_window_by_updates),
		cmocka_unit_test(late_replies_leave_completions_readable),
		cmocka_unit_test(completions_keep_their_bytes_whatever_ends_early),
		cmocka_unit_test(memory_is_looked_at_while_completions_fill_every_poll),
		cmocka_unit_test(broken_queue_pair_fails_each_open_call_once),
		cmocka_unit_test(replies_in_halves_are_refused_like_whole_ones),
	};

	return cmocka_run_group_tests_name("copyrpc", tests, NULL, NULL);
}
