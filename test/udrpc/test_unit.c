/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/udrpc one behaviour at a time, over a network that does what the test says: sizes, slots,
 * credits, statuses, repetition, draining, deadlines, ends, pacing.
 */

#include <sys/random.h>

#include "test.h"
#include "pair.h"

#define MTU   1024
#define PIECE (MTU - WIRE_HEAD)
#define RTO   5000000u

static const struct crpc_udrpc_conf small = {.max_eps = 4};
static uint8_t bytes[1 << 20];

static void
bytes_fill(void)
{
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static void
call(uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	assert_ok(pair_call(0, bytes, len, resp_max, cookie));
	pair_flush(0);
}

static void
rest(void)
{
	struct crpc_done done[4];

	for (int i = 0; i < 4; i++) {
		pair_poll(i % 2, done, 4);
		pair_flush(i % 2);
	}
	for (int i = 0; i < 2; i++) {
		if (crpc_udrpc_check(p.ctx[i], true) != 0)
			fail_msg("side %d: %s", i, crpc_log_last());
	}
}

/* Every length around the borders of pieces, there and back, to 1 MiB. */
TEST(messages_of_every_size_arrive_whole)
{
	static const uint32_t lens[] = {0, 1, 32, 160, 161, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE,
		2 * PIECE + 1, 33 * PIECE, 100000, 1 << 20};
	struct crpc_udrpc_conf conf = {.max_eps = 1, .slots = 2, .max_msg = 1 << 20};
	struct crpc_done done[4];
	uint32_t i, turns;
	uint16_t n;

	pair_init(&conf, 1, 1, 188, MTU);
	for (i = 0; i < CRPC_DIM(lens); i++) {
		call(lens[i], lens[i], i);
		for (turns = 0, n = 0; n == 0; turns++) {
			assert_true(turns < 10000);
			pair_echo(1);
			n = pair_poll(0, done, 4);
			pair_flush(0);
			assert_ok(crpc_udrpc_check(p.ctx[0], false));
		}
		assert_int_equal(n, 1);
		assert_int_equal(done[0].status, 0);
		assert_int_equal(done[0].cookie, i);
		assert_int_equal(done[0].len, lens[i]);
		assert_memory_equal(done[0].data, bytes, lens[i]);
	}
	assert_int_equal(pair_stats(0)->rtos, 0);
	assert_int_equal(pair_stats(1)->duplicates, 0);
	rest();
}

TEST(a_burst_is_one_doorbell)
{
	struct crpc_done done[16];

	pair_init(&small, 1, 1, 188, MTU);
	for (uint32_t i = 0; i < 8; i++)
		assert_ok(pair_call(0, bytes, 32, 32, i));
	assert_int_equal(pair_flush(0), 1);
	pair_echo(1);
	assert_int_equal(pair_poll(0, done, 16), 8);
	assert_int_equal(pair_stats(0)->bursts, 1);
	assert_int_equal(pair_stats(1)->bursts, 1);
	assert_int_equal(pair_stats(1)->packets_sent, 8);
}

/* However long the message, no more packets than credits are ever unanswered. */
TEST(credits_bound_what_is_out)
{
	struct crpc_udrpc_conf conf = {.max_eps = 1, .credits = 5, .max_msg = 65536};
	struct crpc_done done[4];

	pair_init(&conf, 1, 1, 188, MTU);
	call(60000, 60000, 1);
	call(60000, 0, 2);
	assert_int_equal(pair_stats(0)->packets_sent, 5);
	assert_int_equal(p.ep[0][0]->credits, 0);
	pair_poll(1, done, 4);
	pair_flush(1);
	pair_poll(0, done, 4);
	pair_flush(0);
	assert_in_range(pair_stats(0)->packets_sent, 6, 10);
	assert_ok(crpc_udrpc_check(p.ctx[0], false));
}

/* The request is lost, then the reply: each is repeated, and executed once. */
TEST(what_is_lost_is_repeated_and_executed_once)
{
	struct crpc_done done[4];

	for (int lost = 0; lost < 2; lost++) {
		pair_init(&small, 1, 1, 188, MTU);
		call(500, 500, 7);
		p.w.drop = lost == 0 ? 10000 : 0;
		crpc_paper_run(&p.w);
		p.w.drop = 0;
		if (lost == 1) {
			pair_echo(1);
			p.w.drop = 10000;
			crpc_paper_run(&p.w);
			p.w.drop = 0;
		}
		assert_int_equal(pair_poll(0, done, 4), 0);
		p.w.now_ns += RTO - 100000;
		assert_int_equal(pair_poll(0, done, 4), 0);
		assert_int_equal(pair_stats(0)->rtos, 0);
		p.w.now_ns += 2 * RTO;
		assert_int_equal(pair_poll(0, done, 4), 0);
		assert_int_equal(pair_stats(0)->rtos, 1);
		/* its copy is not known to have left: a datagram of no meaning finds out */
		pair_poll(0, done, 4);
		assert_int_equal(pair_stats(0)->drains, 1);
		assert_int_equal(pair_poll(0, done, 4), 0);
		pair_flush(0);
		pair_echo(1);
		assert_int_equal(pair_poll(0, done, 4), 1);
		assert_int_equal(done[0].status, 0);
		assert_memory_equal(done[0].data, bytes, 500);
		assert_int_equal(pair_stats(1)->rpc.requests, 1);
		assert_int_equal(pair_stats(1)->duplicates, lost);
		rest();
	}
}

/* Answers that came while there was no poll are taken before their time is looked at. */
TEST(who_was_away_repeats_nothing_that_was_answered)
{
	struct crpc_udrpc_conf conf = {.max_eps = 1, .slots = 200, .credits = 200};
	struct crpc_done done[64];

	pair_init(&conf, 1, 1, 188, MTU);
	for (uint32_t i = 0; i < 200; i++)
		call(32, 32, i);
	for (uint32_t i = 0; i < 200; i += 16)
		pair_echo(1);
	for (uint32_t ends = 0; ends < 200; p.w.now_ns += RTO / 10) {
		p.w.now_ns += ends == 0 ? 100 * RTO : 0;
		ends += pair_poll(0, done, 64);
	}
	assert_int_equal(pair_stats(0)->rtos, 0);
	rest();
}

/* While the send queue stands still nothing is repeated, however long it takes. */
TEST(nothing_is_repeated_while_a_copy_is_in_the_send_queue)
{
	struct crpc_done done[4];

	pair_init(&small, 1, 1, 188, MTU);
	call(500, 500, 7);
	for (int i = 0; i < 20; i++) {
		p.w.now_ns += RTO;
		assert_int_equal(crpc_udrpc_poll(p.ctx[0], p.w.now_ns, done, 4), 0);
	}
	/* the request, and what asks whether it has left */
	assert_int_equal(pair_stats(0)->packets_sent, 2);
	assert_int_equal(pair_stats(0)->rtos, 1);
	pair_echo(1);
	while (pair_poll(0, done, 4) == 0)
		pair_echo(1);
	assert_int_equal(pair_stats(1)->rpc.requests, 1);
	rest();
}

/* A server that takes long says that it works: the client does not give it up. */
TEST(a_slow_server_is_not_given_up)
{
	struct crpc_udrpc_conf conf = {.max_eps = 1, .retries = 3, .timeout_ns = 100000u * RTO};
	struct crpc_done done[4];
	struct crpc_req req;

	pair_init(&conf, 1, 1, 188, MTU);
	call(32, 32, 7);
	req = pair_take(1);
	for (int i = 0; i < 200; i++) {
		p.w.now_ns += RTO;
		assert_int_equal(pair_poll(0, done, 4), 0);
		pair_flush(0);
		pair_poll(1, done, 4);
		pair_flush(1);
	}
	assert_ok(pair_status(0));
	assert_true(pair_stats(1)->credit_returns > 10);
	assert_ok(pair_reply(1, req.token, bytes, 32));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].status, 0);
	rest();
}

#define BUSY_SLOTS   128
#define BUSY_TURN_NS 20000u

/*
 * One turn in which as many answers to calls of the first endpoint are there as a poll can take;
 * completions of sends are among what it takes. The status of the call with cookie 77, or 1 while
 * it is open.
 */
static int
busy_turn(uint16_t room)
{
	struct crpc_done done[64];
	struct crpc_req req[64];
	int status = 1;
	uint16_t n, i;

	while (pair_call(0, bytes, 8, 8, 0) == 0)
		;
	pair_flush(0);
	pair_poll(1, done, 64);
	pair_poll(1, done, 64);
	while ((n = pair_recv(1, req, 64)) != 0)
		for (i = 0; i < n; i++)
			if (req[i].peer == 100)
				pair_reply(1, req[i].token, bytes, 8);
	pair_flush(1);
	p.w.now_ns += BUSY_TURN_NS;
	n = pair_poll(0, done, room);
	for (i = 0; i < n; i++)
		if (done[i].cookie == 77)
			status = done[i].status;
	return status;
}

/* In the time that was configured, though another peer fills every poll. */
TEST(a_dead_peer_is_given_up_beside_a_busy_one)
{
	struct crpc_udrpc_conf conf = {.max_eps = 3,
		.slots = BUSY_SLOTS,
		.max_msg = 64,
		.credits = BUSY_SLOTS,
		.retries = 3,
		.no_congestion_control = true,
		.seed = 9};
	struct crpc_udrpc_ep *ours, *theirs;
	struct crpc_udrpc *ctx;
	uint64_t start;
	int status;

	pair_init(&conf, 2, 1, 188, MTU);
	conf.dev = crpc_paper_open(&p.w, &(struct crpc_paper_conf){.inline_max = 188, .mtu = MTU});
	ctx = crpc_udrpc_create(&conf);
	ours = crpc_udrpc_ep_create(p.ctx[0], 5);
	theirs = crpc_udrpc_ep_create(ctx, 5);
	pair_join(ours, theirs);
	crpc_paper_kill(conf.dev);
	start = p.w.now_ns;
	assert_ok(crpc_udrpc_call(ours, p.w.now_ns, bytes, 8, 8, 77));
	do {
		status = busy_turn(4);
		assert_true(p.w.now_ns - start < 3u * (conf.retries + 1) * RTO);
	} while (status == 1);
	assert_int_equal(status, -ECONNRESET);
	assert_int_equal(crpc_udrpc_ep_status(ours), -ETIMEDOUT);
	assert_ok(pair_status(0));
	crpc_udrpc_free(ctx);
	crpc_rdma_close(conf.dev);
}

TEST(a_shutdown_notifies_the_peer)
{
	struct crpc_done done[4];
	struct crpc_req req;

	pair_init(&small, 2, 1, 188, MTU);
	call(32, 32, 7);
	req = pair_take(1);
	crpc_udrpc_ep_shutdown(p.ep[1][0]);
	assert_int_equal(crpc_udrpc_reply(p.ctx[1], 0, req.token, bytes, 1), -ECONNRESET);
	assert_int_equal(crpc_udrpc_reply(p.ctx[1], 0, req.token, bytes, 1), -ENOENT);
	pair_poll(0, done, 4);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_int_equal(pair_status(0), -ECONNRESET);
	assert_ok(crpc_udrpc_ep_status(p.ep[0][1]));
	assert_ok(crpc_udrpc_check(p.ctx[0], false));
}

/* Fill side 0's batch and its send queue: it answers over one endpoint, and nothing leaves. */
static void
batch_fill(void)
{
	struct crpc_done done[4];
	struct crpc_req req[64];
	uint32_t i, n;

	for (i = 0; i < 200; i++)
		assert_ok(pair_call(1, bytes, 8, 8, i));
	pair_flush(1);
	crpc_paper_post_limit(p.dev[0], 0);
	for (i = 0; i < 200; i += n) {
		pair_poll(0, done, 4);
		n = pair_recv(0, req, 64);
		for (uint32_t k = 0; k < n; k++)
			assert_ok(pair_reply(0, req[k].token, bytes, 8));
		pair_poll(1, done, 4);
		pair_flush(1);
	}
}

/* The peer is notified of an end when there is room, if there is none at once. */
TEST(the_peer_is_notified_though_the_send_queue_is_full)
{
	static const struct crpc_udrpc_conf conf = {
		.max_eps = 2, .slots = 200, .credits = 256, .max_msg = 64, .sq_depth = 8};
	struct crpc_done done[64];

	for (uint32_t how = 0; how < 6; how++) {
		pair_init(&conf, 2, 1, 188, MTU);
		batch_fill();
		/* of the endpoint that answers, or of one that is idle */
		if (how / 2 == 0)
			crpc_udrpc_ep_shutdown(p.ep[0][how % 2]);
		else if (how / 2 == 1)
			crpc_udrpc_ep_free(p.ep[0][how % 2]);
		crpc_paper_post_limit(p.dev[0], UINT32_MAX);
		if (how / 2 == 2) {
			/* the queue is full, and then so is the batch behind it */
			pair_flush(0);
			p.w.autorun = true;
			crpc_udrpc_free(p.ctx[0]);
			p.ctx[0] = NULL;
		}
		for (uint32_t i = 0; i < 100; i++) {
			if (p.ctx[0] != NULL) {
				pair_poll(0, done, 64);
				pair_flush(0);
			}
			pair_poll(1, done, 64);
		}
		if (crpc_udrpc_ep_status(p.ep[1][how % 2]) != -ECONNRESET)
			fail_msg("way %u: the peer was not notified", how);
		assert_int_equal(
			crpc_udrpc_ep_status(p.ep[1][1 - how % 2]), how / 2 == 2 ? -ECONNRESET : 0);
		if (how / 2 == 1) {
			p.ep[0][2] = crpc_udrpc_ep_create(p.ctx[0], 0);
			assert_non_null(p.ep[0][2]);
		}
		if (p.ctx[0] == NULL)
			crpc_rdma_close(p.dev[0]);
	}
}

/* Instead of the system's. */
static uint32_t randoms;

ssize_t
getrandom(void *buf, size_t len, unsigned int flags)
{
	uint32_t word = 0x1234567 * ++randoms;

	assert_int_equal(len, sizeof(word));
	memcpy(buf, &word, sizeof(word));
	return sizeof(word);
}

/* A peer that knows the tokens of some sessions cannot compute those of others. */
TEST(each_token_comes_from_the_system)
{
	struct crpc_udrpc_conf conf = {.max_eps = 8};
	uint32_t i;

	pair_init(&small, 1, 1, 188, MTU);
	conf.dev = crpc_paper_open(&p.w, &(struct crpc_paper_conf){.mtu = MTU});
	crpc_udrpc_free(p.ctx[1]);
	p.ctx[1] = crpc_udrpc_create(&conf);
	assert_non_null(p.ctx[1]);
	for (i = 0, randoms = 0; i < conf.max_eps; i++)
		assert_int_equal(crpc_udrpc_ep_create(p.ctx[1], i)->token, 0x1234567 * (i + 1));
	crpc_rdma_close(p.dev[1]);
	p.dev[1] = conf.dev;
}

/* An endpoint can be made, used and freed for ever; packets of its earlier lives do not count. */
TEST(endpoints_come_and_go)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2};
	struct crpc_done done[4];

	pair_init(&conf, 1, 1, 188, MTU);
	for (uint32_t life = 0; life < 50; life++) {
		call(32, 32, life);
		if (life % 2) {
			pair_echo(1);
			assert_int_equal(pair_poll(0, done, 4), 1);
		}
		crpc_udrpc_ep_free(p.ep[0][0]);
		crpc_udrpc_ep_free(p.ep[1][0]);
		pair_poll(0, done, 4);
		pair_poll(1, done, 4);
		p.ep[0][0] = crpc_udrpc_ep_create(p.ctx[0], 0);
		p.ep[1][0] = crpc_udrpc_ep_create(p.ctx[1], 100);
		assert_non_null(p.ep[0][0]);
		assert_non_null(p.ep[1][0]);
		pair_join(p.ep[0][0], p.ep[1][0]);
	}
	assert_int_equal(pair_stats(1)->rpc.requests, 25);
	assert_true(pair_stats(1)->bad_sessions > 0);
}

TEST(addresses_that_are_none_are_refused)
{
	static const struct {
		uint32_t at;
		uint8_t value;
	} bad[] = {{0, 0}, {4, 9}, {6, 1}, {11, 0xff}, {64, 0}};
	uint8_t addr[CRPC_UDRPC_ADDR_LEN], good[CRPC_UDRPC_ADDR_LEN];
	struct crpc_udrpc_ep *ep;

	pair_init(&small, 1, 1, 188, MTU);
	ep = crpc_udrpc_ep_create(p.ctx[0], 9);
	assert_int_equal(crpc_udrpc_ep_status(ep), -ENOTCONN);
	assert_int_equal(crpc_udrpc_call(ep, 0, NULL, 0, 0, 0), -ENOTCONN);
	crpc_udrpc_ep_addr(p.ep[1][0], good);
	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		memcpy(addr, good, sizeof(addr));
		addr[bad[i].at] = bad[i].value;
		assert_int_equal(crpc_udrpc_ep_connect(ep, addr), -EPROTO);
	}
	for (uint32_t i = 16; i < 28; i += 4) { /* slots, max_msg, pkt_max */
		memcpy(addr, good, sizeof(addr));
		memset(addr + i, 0, 4);
		assert_int_equal(crpc_udrpc_ep_connect(ep, addr), -EPROTO);
	}
	assert_ok(crpc_udrpc_ep_connect(ep, good));
	assert_int_equal(crpc_udrpc_ep_connect(ep, good), -EISCONN);
}

TEST(a_broken_queue_ends_all)
{
	struct crpc_done done[4];

	pair_init(&small, 2, 1, 188, MTU);
	call(32, 32, 7);
	crpc_paper_fail(p.dev[0], 0, -EIO);
	pair_poll(0, done, 4);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_int_equal(crpc_udrpc_ep_status(p.ep[0][1]), -ECONNRESET);
	assert_null(crpc_udrpc_ep_create(p.ctx[0], 1));
	assert_int_equal(errno, EIO);
}

/* With a send queue that takes nothing, calls and replies wait; then they go. */
TEST(a_full_send_queue_delays_and_loses_nothing)
{
	struct crpc_udrpc_conf conf = {.max_eps = 4, .slots = 64, .sq_depth = 8, .credits = 64};
	struct crpc_done done[64];
	uint32_t i, ends = 0;

	pair_init(&conf, 4, 1, 188, MTU);
	crpc_paper_post_limit(p.dev[0], 3);
	for (i = 0; i < 256; i++)
		assert_ok(crpc_udrpc_call(p.ep[0][i / 64], p.w.now_ns, bytes, 32, 32, i));
	pair_flush(0);
	assert_ok(crpc_udrpc_check(p.ctx[0], false));
	crpc_paper_post_limit(p.dev[0], UINT32_MAX);
	for (i = 0; i < 1000 && ends < 256; i++) {
		pair_echo(1);
		ends += pair_poll(0, done, 64);
		pair_flush(0);
	}
	assert_int_equal(ends, 256);
	assert_int_equal(pair_stats(0)->rtos, 0);
	rest();
}

/* Round trips that grow slow a session down and its packets wait for the rate; it recovers. */
TEST(congestion_slows_a_session_down_and_then_not)
{
	struct crpc_udrpc_conf conf = {
		.max_eps = 1, .max_msg = 65536, .slots = 1, .link_bytes_per_s = 100000000};
	struct crpc_done done[4];
	uint64_t rate, least;

	pair_init(&conf, 1, 1, 188, MTU);
	least = rate = (uint64_t)p.ep[0][0]->timely.rate;
	assert_int_equal(rate, 100000000);
	for (uint32_t i = 0; i < 40; i++) {
		call(20000, 32, i);
		for (uint32_t n = 0; n == 0;) {
			p.w.now_ns += 1500000; /* a round trip above t_high */
			pair_echo(1);
			n = pair_poll(0, done, 4);
			pair_flush(0);
			least = crpc_min(least, (uint64_t)p.ep[0][0]->timely.rate);
		}
	}
	assert_int_equal(done[0].status, 0);
	assert_true(least < rate / 2);
	assert_true(pair_stats(0)->paced > 0);
	assert_true(pair_stats(0)->rtt_samples > 0);
	for (uint32_t i = 0; i < 10000 && (uint64_t)p.ep[0][0]->timely.rate < rate; i++) {
		call(32, 32, i);
		for (uint32_t n = 0; n == 0;) {
			pair_echo(1);
			n = pair_poll(0, done, 4);
			pair_flush(0);
		}
	}
	assert_int_equal((uint64_t)p.ep[0][0]->timely.rate, rate);
	rest();
}

TEST(sizes_out_of_range_are_refused)
{
	struct crpc_paper w = {.rng = 1};
	struct crpc_rdma *dev =
		crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 188, .mtu = MTU});
	const struct crpc_udrpc_conf bad[] = {{.dev = NULL}, {.dev = dev, .slots = 257},
		{.dev = dev, .credits = 257}, {.dev = dev, .max_eps = CRPC_UDRPC_EPS_MAX + 1},
		{.dev = dev, .max_msg = CRPC_UDRPC_MSG_MAX + 1}, {.dev = dev, .pkt_max = MTU + 1},
		{.dev = dev, .pkt_max = CRPC_UDRPC_PKT_MIN - 1}, {.dev = dev, .sq_depth = 7}};

	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		assert_null(crpc_udrpc_create(&bad[i]));
		assert_int_equal(errno, EINVAL);
	}
	crpc_rdma_close(dev);
}

int
main(void)
{
	bytes_fill();
	return test_run(NULL, pair_end);
}
