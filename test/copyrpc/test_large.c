/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and replies beyond max_msg: every size around each limit is echoed unchanged,
 * through small queues and beside small calls; what the areas allow is all that is taken, and lies
 * about them close the endpoint.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

#define RING  8192u
#define MSG   1024u
#define LARGE 300000u

static const struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS,
		.ring_size = RING,
		.max_msg = MSG,
		.max_inflight = 16,
		.max_large = LARGE,
		.sq_depth = 8,
};

static void
fill(uint8_t *p, uint32_t len, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

/* Poll both sides until side 1 has a request. */
static struct crpc_req
wait_request(struct pair *p)
{
	struct crpc_req req;
	int i;

	for (i = 0; i < 10000; i++) {
		pair_turn(p, 0);
		pair_turn(p, 1);
		if (crpc_copyrpc_recv(p->ctx[1], p->w.now_ns, &req, 1) == 1)
			return req;
	}
	fail_msg("no request came");
	return req;
}

static struct crpc_done
wait_done(struct pair *p)
{
	struct crpc_done done;
	int i;

	for (i = 0; i < 10000; i++) {
		pair_turn(p, 1);
		if (pair_poll(p, 0, &done, 1) == 1)
			return done;
	}
	fail_msg("no completion came");
	return done;
}

/* One call of these sizes and its reply, with copies or written in place. */
static void
round_trip(struct pair *p, uint8_t *buf[2], uint32_t len, uint32_t reply, bool in_place)
{
	struct crpc_done done;
	struct crpc_req req;
	void *data;

	pair_turn(p, 0); /* the reply before is no longer read */
	fill(buf[0], len, len);
	fill(buf[1], reply, ~reply);
	if (in_place) {
		assert_int_equal(
			crpc_copyrpc_call_reserve(p->ep[0][0], p->w.now_ns, len, reply, &data), 0);
		memcpy(data, buf[0], len);
		crpc_copyrpc_call_commit(p->ep[0][0], p->w.now_ns, len);
	} else {
		assert_int_equal(crpc_copyrpc_call(
						 p->ep[0][0], p->w.now_ns, buf[0], len, reply, len),
				0);
	}
	req = wait_request(p);
	assert_int_equal(req.len, len);
	assert_memory_equal(req.data, buf[0], len);
	assert_int_equal(crpc_copyrpc_reply_max(p->ctx[1], req.token), reply);
	assert_int_equal(crpc_copyrpc_reply(p->ctx[1], p->w.now_ns, req.token, buf[1], reply + 1),
			-EMSGSIZE);
	if (in_place) {
		assert_int_equal(
			crpc_copyrpc_reply_reserve(p->ctx[1], p->w.now_ns, req.token, reply, &data),
			0);
		memcpy(data, buf[1], reply);
		crpc_copyrpc_reply_commit(p->ctx[1], p->w.now_ns);
	} else {
		assert_int_equal(crpc_copyrpc_reply(
						 p->ctx[1], p->w.now_ns, req.token, buf[1], reply),
				0);
	}
	done = wait_done(p);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.cookie, len);
	assert_int_equal(done.len, reply);
	assert_memory_equal(done.data, buf[1], reply);
	assert_int_equal(crpc_copyrpc_check(p->ctx[0], false), 0);
	assert_int_equal(crpc_copyrpc_check(p->ctx[1], false), 0);
}

/* Sizes around each limit, both ways, under every flush policy, with either kind of arrival. */
static void
every_size_is_echoed(void **state)
{
	static const uint32_t sizes[] = {
			0, MSG, MSG + 1, 65535, 65536, 65537, 4 * 65536 + 1, LARGE - 1, LARGE};
	struct crpc_copyrpc_conf c = conf;
	struct crpc_copyrpc_ep_conf mode = {0};
	uint8_t *buf[2] = {malloc(LARGE + 1), malloc(LARGE + 1)};
	struct pair p;
	size_t i, k;

	for (c.flush = CRPC_COPYRPC_CLOCKED; c.flush <= CRPC_COPYRPC_HOLD; c.flush++) {
		mode.arrival = c.flush % 2 ? CRPC_COPYRPC_IMM : CRPC_COPYRPC_MEMORY;
		pair_init3(&p, &c, &c, 1, c.flush + 1, mode);
		for (i = 0; i < CRPC_DIM(sizes); i++)
			for (k = 0; k < CRPC_DIM(sizes); k++)
				round_trip(&p, buf, sizes[i], sizes[k], (i + k) % 2 != 0);
		pair_at_rest(&p);
		pair_fini(&p);
	}
	free(buf[0]);
	free(buf[1]);
}

static void
sixteen_mebibytes_are_echoed(void **state)
{
	struct crpc_copyrpc_conf c = conf;
	uint8_t *buf[2] = {malloc((16u << 20) + 1), malloc((16u << 20) + 1)};
	struct pair p;

	c.max_large = 16u << 20;
	pair_init2(&p, &c, &c, 1, 1);
	round_trip(&p, buf, 16u << 20, 16u << 20, false);
	pair_at_rest(&p);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->fragments_sent, 256);
	pair_fini(&p);
	free(buf[0]);
	free(buf[1]);
}

/* One large request and one large reply at a time; small calls pass them; all complete. */
static void
one_large_message_of_a_kind_at_a_time(void **state)
{
	static uint8_t buf[LARGE + 1];
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint32_t got = 0, seen = 0, i, k, n;
	struct pair p;

	pair_init2(&p, &conf, &conf, 1, 5);
	fill(buf, sizeof(buf), 9);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE, 16, 1), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE, 16, 2), -EAGAIN);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 16, LARGE, 2), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 16, LARGE, 3), -EAGAIN);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->again_large, 2);
	assert_int_equal(
		crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE + 1, 0, 3), -EMSGSIZE);
	assert_int_equal(
		crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 0, LARGE + 1, 3), -EMSGSIZE);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], p.w.now_ns, buf, MSG + 1), -EMSGSIZE);
	for (i = 3; i < 6; i++)
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 16, 16, i), 0);
	for (i = 0; i < 200 && got != 5; i++) {
		n = crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 8);
		for (k = 0; k < n; k++)
			assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[k].token, buf,
							 crpc_copyrpc_reply_max(p.ctx[1],
									 req[k].token)),
					0);
		n = pair_poll(&p, 0, done, 8);
		for (k = 0; k < n; k++) {
			assert_int_equal(done[k].status, 0);
			assert_int_equal(done[k].len, done[k].cookie == 2 ? LARGE : 16);
			assert_memory_equal(done[k].data, buf, done[k].len);
			seen |= 1u << done[k].cookie;
		}
		got += n;
		pair_turn(&p, 1);
	}
	assert_int_equal(seen, 0x3e);
	pair_at_rest(&p);
	pair_fini(&p);
}

/* The reply's area belongs to the user until the next poll, and to no other call. */
static void
large_reply_stays_readable_until_the_next_poll(void **state)
{
	static uint8_t buf[LARGE];
	struct crpc_done done;
	struct crpc_req req;
	struct pair p;

	pair_init2(&p, &conf, &conf, 1, 6);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 1, LARGE, 1), 0);
	req = wait_request(&p);
	fill(buf, LARGE, 3);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req.token, buf, LARGE), 0);
	done = wait_done(&p);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 1, LARGE, 2), -EAGAIN);
	assert_memory_equal(done.data, buf, LARGE);
	pair_turn(&p, 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, 1, LARGE, 2), 0);
	pair_fini(&p);
}

/* A large call that breaks or is late: ended once, and its area is free when it may be. */
static void
large_calls_end_as_others_do(void **state)
{
	static uint8_t buf[LARGE];
	struct crpc_copyrpc_conf c = conf;
	struct crpc_done done;
	struct crpc_req req;
	struct pair p;

	c.timeout_ns = 1000000;
	pair_init2(&p, &c, &c, 1, 7);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE, LARGE, 1), 0);
	req = wait_request(&p);
	p.w.now_ns += 2000000;
	assert_int_equal(pair_poll(&p, 0, &done, 1), 1);
	assert_int_equal(done.status, -ETIMEDOUT);
	/* the peer may still write there */
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE, 1, 2), -EAGAIN);
	assert_int_equal(crpc_copyrpc_fail(p.ctx[1], p.w.now_ns, req.token, -EBUSY), 0);
	pair_at_rest(&p);
	assert_int_equal(crpc_copyrpc_stats(p.ctx[0])->rpc.late, 1);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, buf, LARGE, 1, 2), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	crpc_paper_fail(p.dev[0], 0, -ECONNRESET);
	assert_int_equal(pair_poll(&p, 0, &done, 1), 1);
	assert_int_equal(done.status, -ECONNRESET);
	assert_int_equal(crpc_copyrpc_check(p.ctx[0], true), 0);
	pair_fini(&p);
}

/* Put one message into the next batch of a lane of side 1, as its peer would. */
static void
forge(struct pair *p, enum wire_lane lane, const struct wire_msg *msg, uint32_t count)
{
	const struct crpc_copyrpc_ep *ep = p->ep[1][0];
	uint8_t *at = ep->rx[lane] + (ep->conn->rx_pos[lane] & (RING - 1));
	const struct wire_batch head = {.magic = WIRE_MAGIC,
			.version = WIRE_VERSION,
			.lane = (uint8_t)lane,
			.epoch = ep->conn->epoch,
			.len = WIRE_HEAD + count * WIRE_STRIDE_MIN,
			.count = count,
			.pos = ep->conn->rx_pos[lane],
			.released = ep->conn->peer_released};
	uint32_t i;

	memcpy(at, &head, sizeof(head));
	for (i = 0; i < count; i++)
		memcpy(at + WIRE_HEAD + i * WIRE_STRIDE_MIN, &msg[i], sizeof(*msg));
	crpc_paper_forge(p->dev[1], 0, wire_imm((enum wire_imm)lane, head.len), NULL, head.len);
	pair_poll(p, 1, &(struct crpc_done){0}, 1);
}

static void
lies_about_large_requests_close_the_endpoint(void **state)
{
	static const struct {
		struct wire_msg msg[2];
		uint32_t count;
		int status;
	} cases[] = {
		{{{.id = 1, .len = WIRE_LARGE | LARGE, .arg = 16}}, 1, 0},
		{{{.id = 1, .len = WIRE_LARGE | (MSG + 1), .arg = LARGE}}, 1, 0},
		{{{.id = 1, .len = WIRE_LARGE | (LARGE + 1), .arg = 16}}, 1, -EPROTO},
		{{{.id = 1, .len = WIRE_LARGE | MSG, .arg = 16}}, 1, -EPROTO},
		{{{.id = 1, .len = WIRE_LARGE, .arg = 16}}, 1, -EPROTO},
		{{{.id = 1, .len = UINT32_MAX, .arg = 16}}, 1, -EPROTO},
		{{{.id = 0, .len = WIRE_LARGE | LARGE, .arg = WIRE_ONEWAY}}, 1, -EPROTO},
		{{{.id = 1, .len = 16, .arg = LARGE + 1}}, 1, -EPROTO},
		{{{.id = 1, .len = 16, .arg = LARGE}, {.id = 2, .len = 16, .arg = LARGE}}, 2,
			-EPROTO},
		{{{.id = 1, .len = WIRE_LARGE | LARGE, .arg = 16},
			 {.id = 2, .len = WIRE_LARGE | LARGE, .arg = 16}},
			2, -EPROTO},
	};
	struct crpc_req req;
	struct pair p;
	size_t i;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		pair_init2(&p, &conf, &conf, 1, 8);
		forge(&p, WIRE_REQ, cases[i].msg, cases[i].count);
		if (crpc_copyrpc_ep_status(p.ep[1][0]) != cases[i].status)
			fail_msg("case %zu: status %d", i, crpc_copyrpc_ep_status(p.ep[1][0]));
		assert_int_equal(
			crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, &req, 1), cases[i].status == 0);
		assert_int_equal(crpc_copyrpc_check(p.ctx[1], false), 0);
		pair_fini(&p);
	}
	/* and where there are no areas, none is taken */
	for (i = 0; i < 2; i++) {
		struct crpc_copyrpc_conf none = conf;

		none.max_large = 0;
		pair_init2(&p, i ? &conf : &none, i ? &none : &conf, 1, 8);
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, &p, MSG + 1, 0, 1), -EMSGSIZE);
		forge(&p, WIRE_REQ, cases[0].msg, 1);
		assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), -EPROTO);
		pair_fini(&p);
	}
}

/* A large request of a batch that lies is given neither at once nor on the next connection. */
static void
large_request_of_a_lie_is_forgotten(void **state)
{
	static const struct wire_msg lies[] = {
			{.id = 1, .len = WIRE_LARGE | LARGE, .arg = 16},
			{.id = 2, .len = MSG + 1, .arg = 16}};
	struct crpc_req req;
	struct pair p;

	pair_init2(&p, &conf, &conf, 1, 8);
	forge(&p, WIRE_REQ, lies, 2);
	assert_int_equal(crpc_copyrpc_ep_status(p.ep[1][0]), -EPROTO);
	pair_reset(&p);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "hello", 5, 8, 7), 0);
	crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
	req = wait_request(&p);
	assert_int_equal(req.len, 5);
	assert_memory_equal(req.data, "hello", 5);
	pair_fini(&p);
}

static void
lies_about_large_replies_close_the_endpoint(void **state)
{
	static const struct {
		uint32_t resp_max, len;
		int32_t arg;
		int status;
	} cases[] = {
			{LARGE, WIRE_LARGE | LARGE, 0, 0},
			{LARGE, 16, 0, 0},
			{LARGE - 1, WIRE_LARGE | LARGE, 0, -EPROTO},
			{LARGE, WIRE_LARGE | MSG, 0, -EPROTO},
			{LARGE, WIRE_LARGE | LARGE, -5, -EPROTO},
			{16, WIRE_LARGE | 16, 0, -EPROTO},
			{16, WIRE_LARGE | LARGE, 0, -EPROTO},
			{LARGE, UINT32_MAX, 0, -EPROTO},
	};
	struct wire_msg msg;
	struct pair p;
	size_t i;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		pair_init2(&p, &conf, &conf, 1, 9);
		p.w.frozen = true;
		assert_int_equal(crpc_copyrpc_call(p.ep[1][0], p.w.now_ns, "x", 1,
						 cases[i].resp_max, 1),
				0);
		crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		msg = (struct wire_msg){.id = p.ep[1][0]->slots[1].call.id,
			.len = cases[i].len,
			.arg = (uint32_t)cases[i].arg};
		forge(&p, WIRE_RESP, &msg, 1);
		if (crpc_copyrpc_ep_status(p.ep[1][0]) != cases[i].status)
			fail_msg("case %zu: status %d", i, crpc_copyrpc_ep_status(p.ep[1][0]));
		assert_int_equal(crpc_copyrpc_ep_open_calls(p.ep[1][0]), 0);
		assert_int_equal(crpc_copyrpc_check(p.ctx[1], false), 0);
		pair_fini(&p);
	}
}

/*
 * Batches are counted in 32 bits. Calls of all sizes continue where the count has its upper bit for
 * the first time, and where it begins again; and a reply that comes 2^31 batches after its call was
 * made is no other call's.
 */
static void
any_number_of_batches_may_have_gone_before(void **state)
{
	static const uint32_t lens[] = {16, MSG, MSG + 1, 65537};
	static const uint64_t starts[] = {(1u << 31) - 8, UINT32_MAX - 8};
	uint8_t *buf[2] = {malloc(LARGE + 1), malloc(LARGE + 1)};
	struct crpc_copyrpc_conf c = conf;
	struct pair p;
	size_t i, k;

	for (i = 0; i < CRPC_DIM(starts); i++) {
		c.initial_pos = starts[i] * WIRE_UNIT;
		pair_init2(&p, &c, &c, 1, i);
		for (k = 0; k < 32; k++)
			round_trip(&p, buf, lens[k % 4], lens[k / 4 % 4], k % 2 != 0);
		pair_at_rest(&p);
		pair_fini(&p);
	}
	free(buf[0]);
	free(buf[1]);
}

static void
a_reply_to_a_very_old_call_is_taken(void **state)
{
	static const uint32_t ages[] = {(1u << 31) - 1, 1u << 31, UINT32_MAX - 8};
	struct crpc_done done;
	struct crpc_req req;
	struct pair p;
	size_t i;

	for (i = 0; i < CRPC_DIM(ages); i++) {
		pair_init2(&p, &conf, &conf, 1, i);
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], p.w.now_ns, "old", 3, 8, 7), 0);
		crpc_copyrpc_flush(p.ctx[0], p.w.now_ns);
		req = wait_request(&p);
		/* so many batches in between */
		p.ep[0][0]->batch += ages[i];
		p.ep[0][0]->batch_sent += ages[i];
		crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req.token, "yes", 3);
		done = wait_done(&p);
		assert_int_equal(done.cookie, 7);
		assert_int_equal(done.status, 0);
		pair_at_rest(&p);
		pair_fini(&p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_is_echoed),
		cmocka_unit_test(sixteen_mebibytes_are_echoed),
		cmocka_unit_test(one_large_message_of_a_kind_at_a_time),
		cmocka_unit_test(large_reply_stays_readable_until_the_next_poll),
		cmocka_unit_test(large_calls_end_as_others_do),
		cmocka_unit_test(any_number_of_batches_may_have_gone_before),
		cmocka_unit_test(a_reply_to_a_very_old_call_is_taken),
		cmocka_unit_test(lies_about_large_requests_close_the_endpoint),
		cmocka_unit_test(large_request_of_a_lie_is_forgotten),
		cmocka_unit_test(lies_about_large_replies_close_the_endpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
