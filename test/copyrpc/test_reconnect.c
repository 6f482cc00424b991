/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints that break and connect again under a new epoch, and that nothing of an earlier
 * connection is taken for one of the next. Over many connections: test/stress.
 */
#include "test.h"
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
works(void)
{
	struct crpc_done done[4];
	struct crpc_req req[4];

	assert_ok(pair_call(0, "hello", 5, 8, 7));
	pair_flush(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 4), 1);
	assert_memory_equal(req[0].data, "hello", 5);
	assert_ok(pair_reply(1, req[0].token, "you", 3));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].cookie, 7);
}

TEST(reset_goes_from_broken_to_fresh_only)
{
	struct crpc_done done[4];

	pair_init(&small);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EISCONN);
	works();
	assert_ok(pair_call(0, "x", 1, 8, 1));
	crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EBUSY);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
	assert_int_equal(pair_status(0), -ENOTCONN);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
	assert_int_equal(pair_call(0, "x", 1, 8, 1), -ENOTCONN);
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	pair_turn(1);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[1][0]));
	pair_join(0);
	works();
	pair_at_rest();
}

/* Small endpoints share memory: one that is freed leaves the others theirs. */
TEST(small_endpoints_share_memory)
{
	const struct crpc_copyrpc_conf tiny = {.max_eps = PAIR_EPS,
		.ring_size = CRPC_COPYRPC_RING_MIN,
		.max_inflight = 8,
		.sq_depth = 8};
	static const uint32_t order[] = {0, 2, 1, 3};

	pair_init2(&tiny, &tiny, PAIR_EPS, 1);
	assert_int_equal((uintptr_t)p.ep[0][3] - (uintptr_t)p.ep[0][0],
		3 * crpc_copyrpc_ep_memory(p.ep[0][0]));
	for (uint32_t k = 0; k < 2 * CRPC_DIM(order); k++) {
		uint32_t i = order[k % CRPC_DIM(order)];

		works();
		for (int side = 0; side < 2; side++)
			crpc_copyrpc_ep_free(p.ep[side][i]);
		if (i != 0)
			works();
		pair_connect(i);
		pair_at_rest();
	}
	for (uint32_t i = 0; i < PAIR_EPS; i++)
		for (int side = 0; side < 2; side++)
			crpc_copyrpc_ep_free(p.ep[side][i]);
	memset(p.ep, 0, sizeof(p.ep));
	p.neps = 0;
}

/* An endpoint that ends before it was ever connected, or again, is in order. */
TEST(unconnected_endpoint_may_end)
{
	struct crpc_copyrpc_ep *ep;

	pair_init(&small);
	ep = crpc_copyrpc_ep_create(p.ctx[0], 7);
	assert_non_null(ep);
	for (int i = 0; i < 2; i++) {
		crpc_copyrpc_ep_shutdown(ep);
		assert_or_log(crpc_copyrpc_check(p.ctx[0], false) == 0);
		pair_turn(0);
		assert_ok(crpc_copyrpc_ep_reset(ep));
	}
	works();
}

/*
 * A reply that comes with the poll in which the endpoint breaks stays readable until the next poll:
 * only then may a new connection use the rings.
 */
TEST(last_completion_outlives_its_connection)
{
	struct crpc_done done[4];
	struct crpc_req req;

	pair_init(&small);
	assert_ok(pair_call(0, "hello", 5, 8, 7));
	req = pair_take(1);
	assert_ok(pair_reply(1, req.token, "last", 4));
	pair_flush(1);
	crpc_paper_run(&p.w);
	crpc_paper_fail(p.dev[0], 0, -ECONNRESET);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(pair_status(0), -ECONNRESET);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EBUSY);
	assert_memory_equal(done[0].data, "last", 4);
	pair_turn(0);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	pair_turn(1);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[1][0]));
	pair_join(0);
	works();
	pair_at_rest();
}

/* Requests, tokens, held bytes and positions of one connection mean nothing in the next. */
TEST(nothing_of_the_old_connection_is_taken)
{
	struct crpc_done done[8];
	struct crpc_req held, req;
	struct wire_batch head;

	pair_init(&small);
	for (int i = 0; i < 3; i++)
		assert_ok(pair_call(0, "old", 3, 8, 1));
	pair_flush(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, &held, 1), 1);
	head = wire_batch_load(p.ep[1][0]->rx[WIRE_REQ]);
	crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	crpc_copyrpc_ep_shutdown(p.ep[1][0]);
	assert_int_equal(pair_poll(0, done, 8), 3);
	pair_turn(1);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
	assert_ok(crpc_copyrpc_ep_reset(p.ep[1][0]));
	assert_int_equal(pair_recv(1, &req, 1), 0);
	assert_int_equal(pair_reply(1, held.token, "late", 4), -ENOENT);
	pair_join(0);
	assert_int_equal(pair_reply(1, held.token, "late", 4), -ENOENT);
	works();
	/* the same batch again, at the place where the next one comes */
	head.pos = p.ep[1][0]->conn->rx_pos[WIRE_REQ];
	memcpy(p.ep[1][0]->rx[WIRE_REQ] + (head.pos & (RING - 1)), &head, sizeof(head));
	crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_REQ, head.len), NULL, head.len);
	pair_turn(1);
	assert_int_equal(pair_status(1), -EPROTO);
	assert_non_null(strstr(crpc_log_last(), "epoch"));
}

TEST_MAIN(NULL, pair_end)
