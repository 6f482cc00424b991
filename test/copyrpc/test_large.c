/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and replies beyond max_msg: every size around each limit is echoed unchanged,
 * through small queues and beside small calls; what the areas allow is all that is taken, and lies
 * about them close the endpoint.
 */
#include <stdlib.h>

#include "test.h"
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
fill(uint8_t *to, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

/* Poll both sides until side 1 has a request. */
static struct crpc_req
wait_request(void)
{
	struct crpc_req req;

	for (int i = 0; i < 10000; i++) {
		pair_turn(0);
		pair_turn(1);
		if (pair_recv(1, &req, 1) == 1)
			return req;
	}
	fail_msg("no request came");
	return req;
}

static struct crpc_done
wait_done(void)
{
	struct crpc_done done;

	for (int i = 0; i < 10000; i++) {
		pair_turn(1);
		if (pair_poll(0, &done, 1) == 1)
			return done;
	}
	fail_msg("no completion came");
	return done;
}

/* One call of these sizes and its reply, with a copy or written in place. */
static void
round_trip(uint8_t *buf[2], uint32_t len, uint32_t reply, bool in_place)
{
	struct crpc_done done;
	struct crpc_req req;
	void *data;

	pair_turn(0); /* the reply before is no longer read */
	fill(buf[0], len, len);
	fill(buf[1], reply, ~reply);
	assert_ok(pair_call(0, buf[0], len, reply, len));
	req = wait_request();
	assert_int_equal(req.len, len);
	assert_memory_equal(req.data, buf[0], len);
	assert_int_equal(pair_reply(1, req.token, buf[1], reply + 1), -EMSGSIZE);
	if (in_place) {
		assert_ok(
			crpc_copyrpc_reply_reserve(p.ctx[1], p.w.now_ns, req.token, reply, &data));
		memcpy(data, buf[1], reply);
		crpc_copyrpc_reply_commit(p.ctx[1], p.w.now_ns);
	} else {
		assert_ok(pair_reply(1, req.token, buf[1], reply));
	}
	done = wait_done();
	assert_int_equal(done.status, 0);
	assert_int_equal(done.cookie, len);
	assert_int_equal(done.len, reply);
	assert_memory_equal(done.data, buf[1], reply);
	assert_ok(crpc_copyrpc_check(p.ctx[0], false));
	assert_ok(crpc_copyrpc_check(p.ctx[1], false));
}

/* Sizes around each limit, both ways, under every flush policy, with either kind of arrival. */
TEST(every_size_is_echoed)
{
	static const uint32_t sizes[] = {
		0, MSG, MSG + 1, 65535, 65536, 65537, 4 * 65536 + 1, LARGE - 1, LARGE};
	struct crpc_copyrpc_conf c = conf;
	struct crpc_copyrpc_ep_conf mode = {0};
	uint8_t *buf[2] = {malloc(LARGE + 1), malloc(LARGE + 1)};

	for (c.flush = CRPC_COPYRPC_CLOCKED; c.flush <= CRPC_COPYRPC_HOLD; c.flush++) {
		mode.arrival = c.flush % 2 ? CRPC_COPYRPC_IMM : CRPC_COPYRPC_MEMORY;
		pair_init3(&c, &c, 1, c.flush + 1, mode);
		for (size_t i = 0; i < CRPC_DIM(sizes); i++)
			for (size_t k = 0; k < CRPC_DIM(sizes); k++)
				round_trip(buf, sizes[i], sizes[k], (i + k) % 2 != 0);
		pair_at_rest();
	}
	free(buf[0]);
	free(buf[1]);
}

TEST(sixteen_mebibytes_are_echoed)
{
	struct crpc_copyrpc_conf c = conf;
	uint8_t *buf[2] = {malloc((16u << 20) + 1), malloc((16u << 20) + 1)};

	c.max_large = 16u << 20;
	pair_init2(&c, &c, 1, 1);
	round_trip(buf, 16u << 20, 16u << 20, false);
	pair_at_rest();
	assert_int_equal(pair_stats(0)->fragments_sent, 256);
	free(buf[0]);
	free(buf[1]);
}

/* One large request and one large reply at a time; small calls pass them; all complete. */
TEST(one_large_message_of_a_kind_at_a_time)
{
	static uint8_t buf[LARGE + 1];
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint32_t got = 0, seen = 0, i, k, n;

	pair_init2(&conf, &conf, 1, 5);
	fill(buf, sizeof(buf), 9);
	assert_ok(pair_call(0, buf, LARGE, 16, 1));
	assert_int_equal(pair_call(0, buf, LARGE, 16, 2), -EAGAIN);
	assert_ok(pair_call(0, buf, 16, LARGE, 2));
	assert_int_equal(pair_call(0, buf, 16, LARGE, 3), -EAGAIN);
	assert_int_equal(pair_stats(0)->again_large, 2);
	assert_int_equal(pair_call(0, buf, LARGE + 1, 0, 3), -EMSGSIZE);
	assert_int_equal(pair_call(0, buf, 0, LARGE + 1, 3), -EMSGSIZE);
	assert_int_equal(pair_notify(0, buf, MSG + 1), -EMSGSIZE);
	for (i = 3; i < 6; i++)
		assert_ok(pair_call(0, buf, 16, 16, i));
	for (i = 0; i < 200 && got != 5; i++) {
		n = pair_recv(1, req, 8);
		for (k = 0; k < n; k++)
			if (pair_reply(1, req[k].token, buf, LARGE) != 0)
				assert_ok(pair_reply(1, req[k].token, buf, 16));
		n = pair_poll(0, done, 8);
		for (k = 0; k < n; k++) {
			assert_int_equal(done[k].status, 0);
			assert_int_equal(done[k].len, done[k].cookie == 2 ? LARGE : 16);
			assert_memory_equal(done[k].data, buf, done[k].len);
			seen |= 1u << done[k].cookie;
		}
		got += n;
		pair_turn(1);
	}
	assert_int_equal(seen, 0x3e);
	pair_at_rest();
}

/* The reply's area belongs to the user until the next poll, and to no other call. */
TEST(large_reply_stays_readable_until_the_next_poll)
{
	static uint8_t buf[LARGE];
	struct crpc_done done;
	struct crpc_req req;

	pair_init2(&conf, &conf, 1, 6);
	assert_ok(pair_call(0, buf, 1, LARGE, 1));
	req = wait_request();
	fill(buf, LARGE, 3);
	assert_ok(pair_reply(1, req.token, buf, LARGE));
	done = wait_done();
	assert_int_equal(pair_call(0, buf, 1, LARGE, 2), -EAGAIN);
	assert_memory_equal(done.data, buf, LARGE);
	pair_turn(0);
	assert_ok(pair_call(0, buf, 1, LARGE, 2));
}

/* A large call that breaks or is late: ended once, and its area is free when it may be. */
TEST(large_calls_end_as_others_do)
{
	static uint8_t buf[LARGE];
	struct crpc_copyrpc_conf c = conf;
	struct crpc_done done;
	struct crpc_req req;

	c.timeout_ns = 1000000;
	pair_init2(&c, &c, 1, 7);
	assert_ok(pair_call(0, buf, LARGE, LARGE, 1));
	req = wait_request();
	p.w.now_ns += 2000000;
	assert_int_equal(pair_poll(0, &done, 1), 1);
	assert_int_equal(done.status, -ETIMEDOUT);
	/* the peer may still write there */
	assert_int_equal(pair_call(0, buf, LARGE, 1, 2), -EAGAIN);
	assert_ok(crpc_copyrpc_fail(p.ctx[1], p.w.now_ns, req.token, -EBUSY));
	pair_at_rest();
	assert_int_equal(pair_stats(0)->rpc.late, 1);
	assert_ok(pair_call(0, buf, LARGE, 1, 2));
	pair_flush(0);
	crpc_paper_fail(p.dev[0], 0, -ECONNRESET);
	assert_int_equal(pair_poll(0, &done, 1), 1);
	assert_int_equal(done.status, -ECONNRESET);
	assert_ok(crpc_copyrpc_check(p.ctx[0], true));
}

/* Put one message into the next batch of a lane of side 1, as its peer would. */
static void
forge(enum wire_lane lane, const struct wire_msg *msg, uint32_t count)
{
	const struct crpc_copyrpc_ep *ep = p.ep[1][0];
	uint8_t *at = ep->rx[lane] + (ep->conn->rx_pos[lane] & (RING - 1));
	const struct wire_batch head = {.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.lane = (uint8_t)lane,
		.epoch = ep->conn->epoch,
		.len = WIRE_HEAD + count * WIRE_STRIDE_MIN,
		.count = count,
		.pos = ep->conn->rx_pos[lane],
		.released = ep->conn->peer_released};

	memcpy(at, &head, sizeof(head));
	for (uint32_t i = 0; i < count; i++)
		memcpy(at + WIRE_HEAD + i * WIRE_STRIDE_MIN, &msg[i], sizeof(*msg));
	crpc_paper_forge(p.dev[1], 0, wire_imm((enum wire_imm)lane, head.len), NULL, head.len);
	pair_poll(1, &(struct crpc_done){0}, 1);
}

TEST(lies_about_large_requests_close_the_endpoint)
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
		{{{.id = 1, .len = 16, .arg = 16}, {.id = 2, .len = 17, .arg = 16}}, 2, -EPROTO},
		{{{.id = 1, .len = 16, .arg = LARGE}, {.id = 2, .len = 16, .arg = LARGE}}, 2,
			-EPROTO},
		{{{.id = 1, .len = WIRE_LARGE | LARGE, .arg = 16},
			 {.id = 2, .len = WIRE_LARGE | LARGE, .arg = 16}},
			2, -EPROTO},
	};
	struct crpc_req req;

	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		pair_init2(&conf, &conf, 1, 8);
		forge(WIRE_REQ, cases[i].msg, cases[i].count);
		if (pair_status(1) != cases[i].status)
			fail_msg("case %zu: status %d", i, pair_status(1));
		assert_int_equal(pair_recv(1, &req, 1), cases[i].status == 0);
		assert_ok(crpc_copyrpc_check(p.ctx[1], false));
	}
	/* and where there are no areas, none is taken */
	for (size_t i = 0; i < 2; i++) {
		struct crpc_copyrpc_conf none = conf;

		none.max_large = 0;
		pair_init2(i ? &conf : &none, i ? &none : &conf, 1, 8);
		assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 0, &p, MSG + 1, 0, 1), -EMSGSIZE);
		forge(WIRE_REQ, cases[0].msg, 1);
		assert_int_equal(pair_status(1), -EPROTO);
	}
}

/* A large request of a batch that lies is given neither at once nor on the next connection. */
TEST(large_request_of_a_lie_is_forgotten)
{
	static const struct wire_msg lies[] = {{.id = 1, .len = WIRE_LARGE | LARGE, .arg = 16},
		{.id = 2, .len = MSG + 1, .arg = 16}};
	struct crpc_req req;

	pair_init2(&conf, &conf, 1, 8);
	forge(WIRE_REQ, lies, 2);
	assert_int_equal(pair_status(1), -EPROTO);
	pair_reset();
	assert_ok(pair_call(0, "hello", 5, 8, 7));
	pair_flush(0);
	req = wait_request();
	assert_int_equal(req.len, 5);
	assert_memory_equal(req.data, "hello", 5);
}

TEST(lies_about_large_replies_close_the_endpoint)
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

	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		pair_init2(&conf, &conf, 1, 9);
		p.w.frozen = true;
		assert_ok(pair_call(1, "x", 1, cases[i].resp_max, 1));
		pair_flush(1);
		msg = (struct wire_msg){.id = p.ep[1][0]->slots[1].call.id,
			.len = cases[i].len,
			.arg = (uint32_t)cases[i].arg};
		forge(WIRE_RESP, &msg, 1);
		if (pair_status(1) != cases[i].status)
			fail_msg("case %zu: status %d", i, pair_status(1));
		assert_int_equal(p.ep[1][0]->calls.open, 0);
		assert_ok(crpc_copyrpc_check(p.ctx[1], false));
	}
}

/*
 * Batches are counted in 32 bits. Calls of all sizes continue where the count has its upper bit for
 * the first time, and where it begins again; and a reply that comes 2^31 batches after its call was
 * made is no other call's.
 */
TEST(any_number_of_batches_may_have_gone_before)
{
	static const uint32_t lens[] = {16, MSG, MSG + 1, 65537};
	static const uint64_t starts[] = {(1u << 31) - 8, UINT32_MAX - 8};
	uint8_t *buf[2] = {malloc(LARGE + 1), malloc(LARGE + 1)};
	struct crpc_copyrpc_conf c = conf;

	for (size_t i = 0; i < CRPC_DIM(starts); i++) {
		c.initial_pos = starts[i] * WIRE_UNIT;
		pair_init2(&c, &c, 1, i);
		for (size_t k = 0; k < 32; k++)
			round_trip(buf, lens[k % 4], lens[k / 4 % 4], k % 2 != 0);
		pair_at_rest();
	}
	free(buf[0]);
	free(buf[1]);
}

TEST(a_reply_to_a_very_old_call_is_taken)
{
	static const uint32_t ages[] = {(1u << 31) - 1, 1u << 31, UINT32_MAX - 8};
	struct crpc_done done;
	struct crpc_req req;

	for (size_t i = 0; i < CRPC_DIM(ages); i++) {
		pair_init2(&conf, &conf, 1, i);
		assert_ok(pair_call(0, "old", 3, 8, 7));
		pair_flush(0);
		req = wait_request();
		/* so many batches in between */
		p.ep[0][0]->batch += ages[i];
		p.ep[0][0]->batch_sent += ages[i];
		pair_reply(1, req.token, "yes", 3);
		done = wait_done();
		assert_int_equal(done.cookie, 7);
		assert_int_equal(done.status, 0);
		pair_at_rest();
	}
}

TEST_MAIN(NULL, pair_end)
