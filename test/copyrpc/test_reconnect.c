/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints that break and connect again under a new epoch: each call
 * ends exactly once, is executed at most once, and nothing of an earlier connection is taken for
 * one of the next.
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
		.max_msg = 512,
		.max_inflight = 32,
		.max_large = 20000,
		.sq_depth = 16,
		.timeout_ns = 1000000000,
};

/* One call and its reply. */
static void
works(struct pair *p)
{
	struct crpc_done done[4];
	struct crpc_req req[4];

	assert_int_equal(crpc_copyrpc_call(p->ep[0][0], p->w.now_ns, "hello", 5, 8, 7), 0);
	crpc_copyrpc_flush(p->ctx[0], p->w.now_ns);
	pair_turn(p, 1);
	assert_int_equal(crpc_copyrpc_recv(p->ctx[1], p->w.now_ns, req, 4), 1);
	assert_memory_equal(req[0].data, "hello", 5);
	assert_int_equal(crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, req[0].token, "you", 3), 0);
	crpc_copyrpc_flush(p->ctx[1], p->w.now_ns);
	assert_int_equal(pair_poll(p, 0, done, 4), 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].cookie, 7);
}

static void
reset_goes_from_broken_to_fresh_only(void **state)
{
	struct crpc_done done[4];
	struct pair p;

	pair_init(&p, &small);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EISCONN);
	works(&p);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 1), 0);
	crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EBUSY);
	assert_int_equal(pair_poll(&p, 0, done, 4), 1);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), 0);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), -ENOTCONN);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "x", 1, 8, 1), -ENOTCONN);
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[1][0]), 0);
	pair_join(&p, 0);
	works(&p);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* An endpoint that ends before it was ever connected, or again, is in order. */
static void
unconnected_endpoint_may_end(void **state)
{
	struct crpc_copyrpc_ep *ep;
	struct pair p;
	int i;

	pair_init(&p, &small);
	ep = crpc_copyrpc_ep_create(p.ctx[0], 7);
	assert_non_null(ep);
	for (i = 0; i < 2; i++) {
		crpc_copyrpc_ep_shutdown(ep);
		if (crpc_copyrpc_check(p.ctx[0], false) != 0)
			fail_msg("%s", crpc_log_last());
		pair_turn(&p, 0);
		assert_int_equal(crpc_copyrpc_ep_reset(ep), 0);
	}
	works(&p);
	pair_fini(&p);
}

/*
 * A reply that comes with the poll in which the endpoint breaks stays readable until the next poll:
 * only then may a new connection use the rings.
 */
static void
last_completion_outlives_its_connection(void **state)
{
	struct crpc_done done[4];
	struct crpc_req req;
	struct pair p;

	pair_init(&p, &small);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "hello", 5, 8, 7), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, &req, 1), 1);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req.token, "last", 4), 0);
	crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
	crpc_paper_run(&p.w);
	crpc_paper_fail(p.dev[0], 0, -ECONNRESET);
	assert_int_equal(pair_poll(&p, 0, done, 4), 1);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[0][0]), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EBUSY);
	assert_memory_equal(done[0].data, "last", 4);
	pair_turn(&p, 0);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), 0);
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[1][0]), 0);
	pair_join(&p, 0);
	works(&p);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* Requests, tokens, held bytes and positions of one connection mean nothing in the next. */
static void
nothing_of_the_old_connection_is_taken(void **state)
{
	struct crpc_done done[8];
	struct crpc_req held, req;
	struct wire_batch head;
	struct pair p;
	int i;

	pair_init(&p, &small);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "old", 3, 8, 1), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, &held, 1), 1);
	head = wire_batch_load(p.ep[1][0]->rx[WIRE_REQ]);
	crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	assert_int_equal(pair_poll(&p, 0, done, 8), 3);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), 0);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[1][0]), 0);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, &req, 1), 0);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, held.token, "late", 4), -ENOENT);
	pair_join(&p, 0);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, held.token, "late", 4), -ENOENT);
	works(&p);
	/* the same batch again, at the place where the next one comes */
	head.pos = p.ep[1][0]->conn->rx_pos[WIRE_REQ];
	memcpy(p.ep[1][0]->rx[WIRE_REQ] + (head.pos & (RING - 1)), &head, sizeof(head));
	crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_REQ, head.len), NULL, head.len);
	pair_turn(&p, 1);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), -EPROTO);
	assert_non_null(strstr(crpc_log_last(), "epoch"));
	pair_fini(&p);
}

#define IDS 4096

struct connections {
	struct pair p;
	uint32_t made, ended;
	uint8_t executed[IDS];
	uint8_t ends[IDS];
	bool good[IDS];
	struct crpc_req held[8];
	uint32_t nheld;
};

static void
client_turn(struct connections *l)
{
	struct crpc_done done[8];
	struct pair *p = &l->p;
	uint8_t buf[20000] = {0};
	uint32_t id, len;
	uint16_t n;

	if (l->made < IDS && crpc_paper_rnd(&p->w) % 2) {
		memcpy(buf, &l->made, sizeof(l->made));
		len = crpc_paper_rnd(&p->w) % 16 == 0 ? 20000
						      : 4 + (uint32_t)(crpc_paper_rnd(&p->w) % 100);
		if (crpc_copyrpc_call(p->ep[0][0], p->w.now_ns, buf, len, 100, l->made) == 0)
			l->made++;
	}
	n = crpc_copyrpc_poll(p->ctx[0], p->w.now_ns, done, 8);
	while (n-- != 0) {
		id = (uint32_t)done[n].cookie;
		l->ends[id]++;
		l->good[id] = done[n].status == 0;
		l->ended++;
		if (done[n].status == 0)
			assert_memory_equal(done[n].data, &id, sizeof(id));
	}
}

static void
server_turn(struct connections *l)
{
	struct pair *p = &l->p;
	struct crpc_done done[4];
	uint32_t id, i;

	assert_int_equal(crpc_copyrpc_poll(p->ctx[1], p->w.now_ns, done, 4), 0);
	l->nheld += crpc_copyrpc_recv(
		p->ctx[1], p->w.now_ns, l->held + l->nheld, 8 - (uint16_t)l->nheld);
	while (l->nheld != 0 && crpc_paper_rnd(&p->w) % 3) {
		i = (uint32_t)(crpc_paper_rnd(&p->w) % l->nheld);
		/* of an earlier connection: its bytes are gone, and reply() reports it */
		if (crpc_copyrpc_reply_max(p->ctx[1], l->held[i].token) >= 0) {
			memcpy(&id, l->held[i].data, sizeof(id));
			l->executed[id]++;
			crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, l->held[i].token, &id, 4);
		}
		l->held[i] = l->held[--l->nheld];
	}
}

/* Queue pairs break at random times, at either end; both ends connect again as they notice. */
static void
calls_are_executed_at_most_once_over_many_connections(void **state)
{
	static struct connections l;
	uint32_t seed, i, breaks, good, bad, all_breaks = 0, all_good = 0, all_bad = 0;
	int side;

	for (seed = 1; seed <= 30; seed++) {
		memset(&l, 0, sizeof(l));
		pair_init2(&l.p, &small, &small, 1, seed);
		for (i = 0, breaks = 0; i < 6000 || l.ended != l.made; i++) {
			l.p.w.now_ns += 1000;
			if (i > 6000 && i % 1000 == 0)
				l.p.w.now_ns += 2000000000;
			for (side = 0; side < 8; side++)
				crpc_paper_step(&l.p.w);
			if (i < 6000)
				client_turn(&l);
			else if (crpc_copyrpc_ep_status(l.p.ep[0][0]) == 0)
				crpc_copyrpc_ep_shutdown(l.p.ep[0][0]);
			else
				client_turn(&l);
			server_turn(&l);
			if (crpc_paper_rnd(&l.p.w) % 300 == 0)
				crpc_paper_fail(
					l.p.dev[crpc_paper_rnd(&l.p.w) % 2], 0, -ECONNRESET);
			if (crpc_copyrpc_ep_status(l.p.ep[0][0]) == 0 ||
					crpc_copyrpc_ep_status(l.p.ep[1][0]) == 0 || i >= 6000)
				continue;
			if (crpc_copyrpc_ep_reset(l.p.ep[0][0]) != 0 ||
					crpc_copyrpc_ep_reset(l.p.ep[1][0]) != 0)
				continue;
			pair_join(&l.p, 0);
			breaks++;
		}
		for (i = 0, good = 0, bad = 0; i < l.made; i++) {
			if (l.ends[i] != 1 || l.executed[i] > 1 ||
				(l.good[i] && l.executed[i] != 1))
				fail_msg("seed %u: call %u ended %u times (%s), executed %u times",
						seed, i, l.ends[i], l.good[i] ? "well" : "badly",
						l.executed[i]);
			good += l.good[i];
			bad += !l.good[i];
		}
		all_breaks += breaks;
		all_good += good;
		all_bad += bad;
		assert_int_equal(crpc_copyrpc_check(l.p.ctx[0], false), 0);
		assert_int_equal(crpc_copyrpc_check(l.p.ctx[1], false), 0);
		pair_fini(&l.p);
	}
	/* All of it happened, and often. */
	assert_true(all_breaks > 30 * 5 && all_good > 30 * 100 && all_bad > 30 * 10);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unconnected_endpoint_may_end),
		cmocka_unit_test(last_completion_outlives_its_connection),
		cmocka_unit_test(reset_goes_from_broken_to_fresh_only),
		cmocka_unit_test(nothing_of_the_old_connection_is_taken),
		cmocka_unit_test(calls_are_executed_at_most_once_over_many_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
