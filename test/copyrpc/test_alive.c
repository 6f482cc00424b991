/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Silent peers: one that polls stays, even if it sends nothing; one that does not is declared lost
 * in time, but only after it was probed in time; and nothing is probed by default.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "pair.h"

#define LIMIT 8000000u /* ns */
#define STEP  (LIMIT / 64)

static const struct crpc_copyrpc_conf watch = {
		.max_eps = PAIR_EPS, .ring_size = 4096, .peer_timeout_ns = LIMIT};
static const struct crpc_copyrpc_conf plain = {.max_eps = PAIR_EPS, .ring_size = 4096};

/* Some time in which the given sides poll. */
static void
pass(struct pair *p, uint64_t ns, bool first, bool second)
{
	uint64_t end = p->w.now_ns + ns;

	while (p->w.now_ns < end) {
		p->w.now_ns += STEP;
		if (first)
			pair_turn(p, 0);
		if (second)
			pair_turn(p, 1);
	}
}

/* Only one end probes; that is enough for it, and costs few messages. */
static void
an_idle_peer_that_polls_stays(void **state)
{
	static const enum crpc_copyrpc_arrival arrivals[] = {CRPC_COPYRPC_IMM, CRPC_COPYRPC_MEMORY};
	struct pair p;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		pair_init3(&p, &watch, &plain, 2, 1,
				(struct crpc_copyrpc_ep_conf){.arrival = arrivals[i]});
		pass(&p, 100 * (uint64_t)LIMIT, true, true);
		assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), 0);
		assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][1]), 0);
		/* about three in a limit's time; at least one, and no more than the sweeps */
		assert_in_range(crpc_copyrpc_stats(p.ctx[0])->alive_sent, 2 * 100, 2 * 8 * 100);
		assert_in_range(crpc_copyrpc_stats(p.ctx[1])->alive_sent, 2 * 100, 2 * 8 * 100);
		pair_at_rest(&p);
		pair_fini(&p);
	}
}

static void
a_peer_that_stops_is_lost_in_time(void **state)
{
	struct crpc_done done[4];
	uint64_t stopped;
	struct pair p;
	uint16_t n;

	pair_init2(&p, &watch, &watch, 1, 1);
	pass(&p, 3 * LIMIT, true, true);
	stopped = p.w.now_ns;
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 7), 0);
	do {
		p.w.now_ns += STEP;
		n = pair_poll(&p, 0, done, 4);
		assert_true(p.w.now_ns - stopped < 2 * LIMIT);
	} while (n == 0);
	assert_in_range(p.w.now_ns - stopped, LIMIT - LIMIT / 2, LIMIT + LIMIT / 4 + 4 * STEP);
	assert_int_equal(n, 1);
	assert_int_equal(done[0].cookie, 7);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->peers_lost, 1);
	pair_fini(&p);
}

/* Both ends stood still, as when a machine sleeps: the first to resume has to probe again. */
static void
a_caller_that_was_away_probes_before_it_breaks(void **state)
{
	struct pair p;

	pair_init2(&p, &watch, &watch, 1, 1);
	pass(&p, LIMIT, true, true);
	p.w.now_ns += 100 * (uint64_t)LIMIT;
	pair_turn(&p, 0);
	pass(&p, LIMIT / 4, true, false);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), 0);
	pass(&p, 10 * LIMIT, true, true);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), 0);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), 0);
	pair_fini(&p);
}

/*
 * Neither calls that are canceled in every turn nor a deadline much shorter than the limit make
 * questions follow each other faster, though both have the endpoints looked at more often.
 */
static void
probes_keep_their_distance(void **state)
{
	struct crpc_copyrpc_conf conf = watch;
	struct crpc_done done[4];
	uint64_t probes, end;
	struct pair p;
	int cancels;

	for (cancels = 0; cancels < 2; cancels++) {
		conf.timeout_ns = cancels ? 0 : LIMIT / 100;
		pair_init2(&p, &conf, &conf, 1, 1);
		pass(&p, LIMIT, true, true);
		probes = crpc_copyrpc_stats(p.ctx[0])->alive_sent;
		p.w.now_ns += 100 * (uint64_t)LIMIT;
		for (end = p.w.now_ns + LIMIT / 4; p.w.now_ns < end; p.w.now_ns += STEP) {
			if (cancels &&
				crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 7) == 0)
				crpc_copyrpc_cancel(p.ep[0][0], p.w.now_ns, 7);
			pair_poll(&p, 0, done, 4);
		}
		assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), 0);
		assert_in_range(crpc_copyrpc_stats(p.ctx[0])->alive_sent - probes, 1, 4);
		pair_fini(&p);
	}
}

static void
nothing_is_probed_by_default(void **state)
{
	struct pair p;

	pair_init(&p, &plain);
	pass(&p, 20 * LIMIT, true, true);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->alive_sent, 0);
	assert_int_equal(crpc_paper_counts(p.dev[0])->write_imms, 0);
	pass(&p, 20 * LIMIT, true, false);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), 0);
	pair_fini(&p);
}

/* Many questions of a peer are answered once per turn; what is neither breaks the endpoint. */
static void
probes_are_checked_and_answered_once(void **state)
{
	static const struct {
		uint32_t what, len;
	} lies[] = {{WIRE_ALIVES, 0}, {WIRE_IMM_MASK, 0}, {WIRE_ALIVE_ASK, 16}};
	uint32_t ask = (uint32_t)WIRE_IMM_ALIVE << WIRE_IMM_BITS, i;
	struct pair p;

	for (i = 0; i < 3; i++) {
		pair_init(&p, &plain);
		crpc_paper_forge(p.dev[1], 0, ask | WIRE_ALIVE_ASK, NULL, 0);
		crpc_paper_forge(p.dev[1], 0, ask | WIRE_ALIVE_ASK, NULL, 0);
		pair_turn(&p, 1);
		assert_int_equal(crpc_copyrpc_stats(p.ctx[1])->alive_sent, 1);
		crpc_paper_forge(p.dev[1], 0, ask | lies[i].what, NULL, lies[i].len);
		pair_turn(&p, 1);
		assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), -EPROTO);
		pair_fini(&p);
	}
}

/* A third context, whose end of a connection with the first one is never polled. */
struct mute {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ours, *theirs;
};

static void
mute_join(struct pair *p, struct mute *m, struct crpc_copyrpc_ep_conf mode)
{
	struct crpc_copyrpc_conf conf = watch;
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];

	m->dev = conf.dev = crpc_paper_open(&p->w, &(struct crpc_paper_conf){.inline_max = 256});
	m->ctx = crpc_copyrpc_create(&conf);
	m->ours = crpc_copyrpc_ep_create_as(p->ctx[0], 1, &mode);
	m->theirs = crpc_copyrpc_ep_create_as(m->ctx, 1, &mode);
	crpc_copyrpc_ep_addr(m->ours, addr[0]);
	crpc_copyrpc_ep_addr(m->theirs, addr[1]);
	assert_int_equal(crpc_copyrpc_ep_connect(m->ours, addr[1]), 0);
	assert_int_equal(crpc_copyrpc_ep_connect(m->theirs, addr[0]), 0);
}

/* Another peer has more to say than a poll can give: the silent one is noticed in the same time. */
static void
a_silent_peer_is_noticed_beside_a_busy_one(void **state)
{
	struct crpc_done done[4];
	struct crpc_req req[64];
	uint64_t stopped;
	struct mute m;
	struct pair p;
	uint16_t n, i;

	pair_init2(&p, &watch, &watch, 1, 1);
	mute_join(&p, &m, (struct crpc_copyrpc_ep_conf){0});
	assert_int_equal(crpc_copyrpc_call(m.ours, p.w.now_ns, "x", 1, 8, 77), 0);
	for (stopped = p.w.now_ns;;) {
		assert_true(p.w.now_ns - stopped < 2 * LIMIT);
		while (crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 0) == 0)
			;
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		pair_turn(&p, 1);
		while ((n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 64)) != 0)
			for (i = 0; i < n; i++)
				crpc_copyrpc_reply(
					p.ctx[1], p.w.now_ns, req[i].token, "y", 1);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		p.w.now_ns += STEP;
		n = pair_poll(&p, 0, done, 4);
		assert_int_equal(n, 4);
		for (i = 0; i < n && done[i].cookie != 77; i++)
			;
		if (i != n)
			break;
	}
	assert_in_range(p.w.now_ns - stopped, LIMIT, LIMIT + LIMIT / 4 + 4 * STEP);
	assert_int_equal(done[i].status, -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_status(m.ours), -ECONNRESET);
	crpc_copyrpc_free(m.ctx);
	crpc_rdma_close(m.dev);
	pair_fini(&p);
}

/* More entries than a poll of the device takes lie before the reply to a call that is overdue. */
static void
a_reply_behind_many_completions_is_given(void **state)
{
	struct crpc_copyrpc_conf conf = {.max_eps = PAIR_EPS,
		.ring_size = 65536,
		.timeout_ns = 1000000,
		.flush = CRPC_COPYRPC_IMMEDIATE};
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[4];
	struct pair p;
	uint32_t i, n = 0;

	pair_init(&p, &conf);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "c", 1, 16, 7), 0);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 4), 1);
	for (i = 0; i < CRPC_BURST_MAX + 16; i++) {
		assert_int_equal(crpc_copyrpc_notify(p.ep[1][0], p.w.now_ns, "n", 1), 0);
		pair_turn(&p, 1);
	}
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[0].token, "r", 1), 0);
	pair_turn(&p, 1);
	p.w.now_ns += 5000000;
	for (i = 0; i < 8 && n == 0; i++)
		n = pair_poll(&p, 0, done, CRPC_BURST_MAX);
	assert_int_equal(n, 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].cookie, 7);
	pair_fini(&p);
}

/* The second side answers what it receives, one reply in each batch. */
static void
answer(struct pair *p, uint32_t turns)
{
	struct crpc_req req;

	while (turns-- != 0) {
		pair_turn(p, 1);
		if (crpc_copyrpc_recv(p->ctx[1], p->w.now_ns, &req, 1) != 0)
			assert_int_equal(
				crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, req.token, "r", 1), 0);
	}
}

/*
 * Replies that arrived in time count, though more entries than the queues hold follow them before
 * the last of them is given: a burst taken from the device, and a full receive queue.
 */
static void
replies_that_arrived_in_time_do_not_time_out(void **state)
{
	struct crpc_copyrpc_conf conf = {.max_eps = 1,
		.ring_size = 65536,
		.sq_depth = 8,
		.rq_depth = 100,
		.timeout_ns = 1000000000};
	struct crpc_copyrpc_conf server = conf;
	struct crpc_done done;
	uint32_t i, left = 200;
	struct pair p;

	server.flush = CRPC_COPYRPC_IMMEDIATE;
	server.sq_depth = 512;
	pair_init2(&p, &conf, &server, 1, 42);
	for (i = 0; i < left; i++)
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "c", 1, 8, i), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	answer(&p, 300);
	left -= pair_poll(&p, 0, &done, 1);
	answer(&p, 300);
	p.w.now_ns += 1500000000;
	for (i = 0; i < 2000 && left > 0; i++) {
		if (pair_poll(&p, 0, &done, 1) != 0) {
			left--;
			if (done.cookie < conf.rq_depth + CRPC_BURST_MAX)
				assert_int_equal(done.status, 0);
		}
		answer(&p, 1);
	}
	assert_int_equal(left, 0);
	pair_fini(&p);
}

/* Gets that fill every poll are no replies, and delay no deadline for ever. */
static void
deadlines_are_kept_while_gets_fill_every_poll(void **state)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS, .ring_size = 65536, .timeout_ns = 1000000};
	static uint8_t there[8], here[8];
	struct crpc_rdma_mr mr[2];
	struct crpc_done done[4];
	uint32_t i, k, n, timeouts = 0;
	struct pair p;

	pair_init(&p, &conf);
	assert_int_equal(crpc_rdma_mr_reg(p.dev[0], here, sizeof(here), &mr[0]), 0);
	assert_int_equal(crpc_rdma_mr_reg(p.dev[1], there, sizeof(there), &mr[1]), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "c", 1, 16, 7), 0);
	for (i = 0; i < 2000 && timeouts == 0; i++) {
		for (k = 0; k < 8; k++)
			crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], here, sizeof(here),
				(uint64_t)(uintptr_t)there, mr[1].rkey, 9);
		p.w.now_ns += 10000;
		n = pair_poll(&p, 0, done, 4);
		for (k = 0; k < n; k++)
			timeouts += done[k].cookie == 7 && done[k].status == -ETIMEDOUT;
	}
	assert_int_equal(timeouts, 1);
	crpc_rdma_mr_dereg(p.dev[0], &mr[0]);
	crpc_rdma_mr_dereg(p.dev[1], &mr[1]);
	pair_fini(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_idle_peer_that_polls_stays),
		cmocka_unit_test(a_peer_that_stops_is_lost_in_time),
		cmocka_unit_test(a_caller_that_was_away_probes_before_it_breaks),
		cmocka_unit_test(probes_keep_their_distance),
		cmocka_unit_test(nothing_is_probed_by_default),
		cmocka_unit_test(probes_are_checked_and_answered_once),
		cmocka_unit_test(a_silent_peer_is_noticed_beside_a_busy_one),
		cmocka_unit_test(a_reply_behind_many_completions_is_given),
		cmocka_unit_test(replies_that_arrived_in_time_do_not_time_out),
		cmocka_unit_test(deadlines_are_kept_while_gets_fill_every_poll),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
