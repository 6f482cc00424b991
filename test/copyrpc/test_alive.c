/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Silent peers: one that polls stays, even if it sends nothing; one that does not is declared lost
 * in time, but only after it was probed in time; and nothing is probed by default.
 */
#include "test.h"
#include "pair.h"

#define LIMIT 8000000u /* ns */
#define STEP  (LIMIT / 64)

static const struct crpc_copyrpc_conf watch = {
	.max_eps = PAIR_EPS, .ring_size = 4096, .peer_timeout_ns = LIMIT};
static const struct crpc_copyrpc_conf plain = {.max_eps = PAIR_EPS, .ring_size = 4096};

/* Some time in which the given sides poll. */
static void
pass(uint64_t ns, bool first, bool second)
{
	uint64_t end = p.w.now_ns + ns;

	while (p.w.now_ns < end) {
		p.w.now_ns += STEP;
		if (first)
			pair_turn(0);
		if (second)
			pair_turn(1);
	}
}

/* Only one end probes; that is enough for it, and costs few messages. */
TEST(an_idle_peer_that_polls_stays)
{
	static const enum crpc_copyrpc_arrival arrivals[] = {CRPC_COPYRPC_IMM, CRPC_COPYRPC_MEMORY};

	for (uint32_t i = 0; i < 2; i++) {
		pair_init3(&watch, &plain, 2, 1,
			(struct crpc_copyrpc_ep_conf){.arrival = arrivals[i]});
		pass(100 * (uint64_t)LIMIT, true, true);
		assert_ok(pair_status(0));
		assert_ok(crpc_copyrpc_ep_status(p.ep[0][1]));
		/* about three in a limit's time; at least one, and no more than the sweeps */
		assert_in_range(pair_stats(0)->alive_sent, 2 * 100, 2 * 8 * 100);
		assert_in_range(pair_stats(1)->alive_sent, 2 * 100, 2 * 8 * 100);
		pair_at_rest();
	}
}

/* Both ends stood still, as when a machine sleeps: the first to resume has to probe again. */
TEST(a_caller_that_was_away_probes_before_it_breaks)
{
	pair_init2(&watch, &watch, 1, 1);
	pass(LIMIT, true, true);
	p.w.now_ns += 100 * (uint64_t)LIMIT;
	pair_turn(0);
	pass(LIMIT / 4, true, false);
	assert_ok(pair_status(0));
	pass(10 * LIMIT, true, true);
	assert_ok(pair_status(0));
	assert_ok(pair_status(1));
}

/*
 * Neither calls that are canceled in every turn nor a deadline much shorter than the limit make
 * questions follow each other faster, though both have the endpoints looked at more often.
 */
TEST(probes_keep_their_distance)
{
	struct crpc_copyrpc_conf conf = watch;
	struct crpc_done done[4];
	uint64_t probes, end;

	for (int cancels = 0; cancels < 2; cancels++) {
		conf.timeout_ns = cancels ? 0 : LIMIT / 100;
		pair_init2(&conf, &conf, 1, 1);
		pass(LIMIT, true, true);
		probes = pair_stats(0)->alive_sent;
		p.w.now_ns += 100 * (uint64_t)LIMIT;
		for (end = p.w.now_ns + LIMIT / 4; p.w.now_ns < end; p.w.now_ns += STEP) {
			if (cancels && pair_call(0, "x", 1, 8, 7) == 0)
				crpc_copyrpc_cancel(p.ep[0][0], p.w.now_ns, 7);
			pair_poll(0, done, 4);
		}
		assert_ok(pair_status(0));
		assert_in_range(pair_stats(0)->alive_sent - probes, 1, 4);
	}
}

TEST(nothing_is_probed_by_default)
{
	pair_init(&plain);
	pass(20 * LIMIT, true, true);
	assert_int_equal(pair_stats(0)->alive_sent, 0);
	assert_ok(crpc_paper_counts(p.dev[0])->write_imms);
	pass(20 * LIMIT, true, false);
	assert_ok(pair_status(0));
}

/* Many questions of a peer are answered once per turn; what is neither breaks the endpoint. */
TEST(probes_are_checked_and_answered_once)
{
	static const struct {
		uint32_t what, len;
	} lies[] = {{WIRE_ALIVES, 0}, {WIRE_IMM_MASK, 0}, {WIRE_ALIVE_ASK, 16}};
	uint32_t ask = (uint32_t)WIRE_IMM_ALIVE << WIRE_IMM_BITS, i;

	for (i = 0; i < 3; i++) {
		pair_init(&plain);
		crpc_paper_forge(p.dev[1], 0, ask | WIRE_ALIVE_ASK, NULL, 0);
		crpc_paper_forge(p.dev[1], 0, ask | WIRE_ALIVE_ASK, NULL, 0);
		pair_turn(1);
		assert_int_equal(pair_stats(1)->alive_sent, 1);
		crpc_paper_forge(p.dev[1], 0, ask | lies[i].what, NULL, lies[i].len);
		pair_turn(1);
		assert_int_equal(pair_status(1), -EPROTO);
	}
}

/* A third context, whose end of a connection with the first one is never polled. */
struct mute {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ours, *theirs;
};

static void
mute_join(struct mute *m, struct crpc_copyrpc_ep_conf mode)
{
	struct crpc_copyrpc_conf conf = watch;
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];

	m->dev = conf.dev = crpc_paper_open(&p.w, &(struct crpc_paper_conf){.inline_max = 256});
	m->ctx = crpc_copyrpc_create(&conf);
	m->ours = crpc_copyrpc_ep_create_as(p.ctx[0], 1, &mode);
	m->theirs = crpc_copyrpc_ep_create_as(m->ctx, 1, &mode);
	crpc_copyrpc_ep_addr(m->ours, addr[0]);
	crpc_copyrpc_ep_addr(m->theirs, addr[1]);
	assert_ok(crpc_copyrpc_ep_connect(m->ours, addr[1]));
	assert_ok(crpc_copyrpc_ep_connect(m->theirs, addr[0]));
}

/* Another peer has more to say than a poll can give: the silent one is noticed in the same time. */
TEST(a_silent_peer_is_noticed_beside_a_busy_one)
{
	struct crpc_done done[4];
	struct crpc_req req[64];
	uint64_t stopped;
	struct mute m;
	uint16_t n, i;

	pair_init2(&watch, &watch, 1, 1);
	mute_join(&m, (struct crpc_copyrpc_ep_conf){0});
	assert_ok(crpc_copyrpc_call(m.ours, p.w.now_ns, "x", 1, 8, 77));
	for (stopped = p.w.now_ns;;) {
		assert_true(p.w.now_ns - stopped < 2 * LIMIT);
		while (pair_call(0, "x", 1, 8, 0) == 0)
			;
		pair_flush(0);
		pair_turn(1);
		while ((n = pair_recv(1, req, 64)) != 0)
			for (i = 0; i < n; i++)
				pair_reply(1, req[i].token, "y", 1);
		pair_flush(1);
		p.w.now_ns += STEP;
		n = pair_poll(0, done, 4);
		assert_int_equal(n, 4);
		for (i = 0; i < n && done[i].cookie != 77; i++)
			;
		if (i != n)
			break;
	}
	assert_in_range(p.w.now_ns - stopped, LIMIT, LIMIT + LIMIT / 4 + 4 * STEP);
	assert_int_equal(done[i].status, -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_status(m.ours), -ETIMEDOUT);
	crpc_copyrpc_free(m.ctx);
	crpc_rdma_close(m.dev);
}

/* More entries than a poll of the device takes lie before the reply to a call that is overdue. */
TEST(a_reply_behind_many_completions_is_given)
{
	struct crpc_copyrpc_conf conf = {.max_eps = PAIR_EPS,
		.ring_size = 65536,
		.timeout_ns = 1000000,
		.flush = CRPC_COPYRPC_IMMEDIATE};
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[4];
	uint32_t i, n = 0;

	pair_init(&conf);
	assert_ok(pair_call(0, "c", 1, 16, 7));
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 4), 1);
	for (i = 0; i < CRPC_BURST_MAX + 16; i++) {
		assert_ok(pair_notify(1, "n", 1));
		pair_turn(1);
	}
	assert_ok(pair_reply(1, req[0].token, "r", 1));
	pair_turn(1);
	p.w.now_ns += 5000000;
	for (i = 0; i < 8 && n == 0; i++)
		n = pair_poll(0, done, CRPC_BURST_MAX);
	assert_int_equal(n, 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].cookie, 7);
}

/* The second side answers what it receives, one reply in each batch. */
static void
answer(uint32_t turns)
{
	struct crpc_req req;

	while (turns-- != 0) {
		pair_turn(1);
		if (pair_recv(1, &req, 1) != 0)
			assert_ok(pair_reply(1, req.token, "r", 1));
	}
}

/*
 * Replies that arrived in time count, though more entries than the queues hold follow them before
 * the last of them is given: a burst taken from the device, and a full receive queue.
 */
TEST(replies_that_arrived_in_time_do_not_time_out)
{
	struct crpc_copyrpc_conf conf = {.max_eps = 1,
		.ring_size = 65536,
		.sq_depth = 8,
		.rq_depth = 100,
		.timeout_ns = 1000000000};
	struct crpc_copyrpc_conf server = conf;
	struct crpc_done done;
	uint32_t i, left = 200;

	server.flush = CRPC_COPYRPC_IMMEDIATE;
	server.sq_depth = 512;
	pair_init2(&conf, &server, 1, 42);
	for (i = 0; i < left; i++)
		assert_ok(pair_call(0, "c", 1, 8, i));
	pair_flush(0);
	answer(300);
	left -= pair_poll(0, &done, 1);
	answer(300);
	p.w.now_ns += 1500000000;
	for (i = 0; i < 2000 && left > 0; i++) {
		if (pair_poll(0, &done, 1) != 0) {
			left--;
			if (done.cookie < conf.rq_depth + CRPC_BURST_MAX)
				assert_int_equal(done.status, 0);
		}
		answer(1);
	}
	assert_int_equal(left, 0);
}

/* Gets that fill every poll are no replies, and delay no deadline for ever. */
TEST(deadlines_are_kept_while_gets_fill_every_poll)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS, .ring_size = 65536, .timeout_ns = 1000000};
	static uint8_t there[8], here[8];
	struct crpc_rdma_mr mr[2];
	struct crpc_done done[4];
	uint32_t i, k, n, timeouts = 0;

	pair_init(&conf);
	assert_ok(crpc_rdma_mr_reg(p.dev[0], here, sizeof(here), &mr[0]));
	assert_ok(crpc_rdma_mr_reg(p.dev[1], there, sizeof(there), &mr[1]));
	assert_ok(pair_call(0, "c", 1, 16, 7));
	for (i = 0; i < 2000 && timeouts == 0; i++) {
		for (k = 0; k < 8; k++)
			crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], here, sizeof(here),
				(uint64_t)(uintptr_t)there, mr[1].rkey, 9);
		p.w.now_ns += 10000;
		n = pair_poll(0, done, 4);
		for (k = 0; k < n; k++)
			timeouts += done[k].cookie == 7 && done[k].status == -ETIMEDOUT;
	}
	assert_int_equal(timeouts, 1);
	crpc_rdma_mr_dereg(p.dev[0], &mr[0]);
	crpc_rdma_mr_dereg(p.dev[1], &mr[1]);
}

TEST_MAIN(NULL, pair_end)
