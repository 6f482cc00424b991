/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that break and come back, on two paper devices: as long as one is left, every request ends
 * with success and the right content, each chunk and each message is taken once, and nothing
 * touches a buffer after its request has ended.
 */
#include <stdio.h>

#include "test.h"
#include "bulk_rig.h"

#define CHUNK  4096u
#define CHUNKS 151u
#define LEN    ((CHUNKS - 1) * CHUNK + 100)

/* In virtual time, of which a turn takes a microsecond. */
static const struct crpc_bulk_conf quick = {.chunk = CHUNK,
	.slots = 8,
	.tx_chunks = 6,
	.timeout_ns = 20000000,
	.confirm_ns = 5000000,
	.rail_retry_ns = UINT64_MAX};

/* Any rail, also that of the messages, at either end, at any moment of each path. */
TEST(others_take_over)
{
	uint64_t seed = rig_seed_first(), n = rig_seeds(300), end = seed + n;
	uint64_t again = 0, messages = 0;
	struct job j;

	for (; seed < end; seed++) {
		rig_init(&quick, &quick, 2 + seed % 3, 1 + seed % 2, seed);
		job_start(&j, LEN, rig_path(seed) | (seed & 8 ? CRPC_BULK_CRC : 0), 0);
		rig_turns(rig_rnd(100));
		rig_rail_fail((int)(seed / 3 & 1), rig_rnd(rig.rails));
		job_ends(&j, 0);
		job_quiet(&j);
		for (int side = 0; side < 2; side++) {
			assert_ok(rig_status(side));
			assert_int_equal(rig.conn[side]->nup, rig.rails - 1);
			again += rig_stats(side)->chunks_again;
			messages += rig_stats(side)->messages_again;
		}
	}
	print_message("%llu chunks and %llu messages went again\n", (unsigned long long)again,
		(unsigned long long)messages);
	/* chunks and messages were under way in many of them; TCP delivers before a turn is over */
	assert_true(n < 60 || (again > n / 4 && messages > n / (rig.tcp ? 40 : 10)));
}

/*
 * Each end loses the rail by which its peer reports the rail that it lost: both reports come by the
 * third one only.
 */
TEST(reports_of_broken_rails_are_lost)
{
	struct job j;

	for (uint32_t p = 0; p < 12; p++) {
		rig_init(&quick, &quick, 3, 1, 7600 + p);
		job_start(&j, LEN, rig_path(p), 0);
		rig_turns(10 + p);
		rig_rail_fail(0, 0);
		rig_rail_fail(1, 1);
		job_ends(&j, 0);
		job_quiet(&j);
		assert_int_equal(rig.conn[0]->nup, 1);
		assert_int_equal(rig.conn[1]->nup, 1);
	}
}

/* One rail after the other, until the last one takes the connection down. */
TEST(last_rail_breaks_the_connection)
{
	struct job j;

	for (uint32_t p = 0; p < 3; p++) {
		rig_init(&quick, &quick, 4, 2, 7700 + p);
		job_start(&j, LEN, rig_path(p), 0);
		for (uint32_t i = 0; i < 4; i++) {
			assert_ok(rig_status(i & 1));
			rig_turns(8);
			rig_rail_fail((int)i & 1, i);
		}
		job_end(&j);
		if (j.result[1].status != -ECONNRESET)
			fail_msg("path %u: %d", rig_path(p), j.result[1].status);
		assert_true(j.result[0].status == -ECONNRESET || j.result[0].status == -ETIMEDOUT);
		job_quiet(&j);
	}
}

/* All at once. */
TEST(all_rails_break)
{
	struct job j;

	for (uint32_t p = 0; p < 6; p++) {
		rig_init(&quick, &quick, 3, 1, 7800 + p);
		job_start(&j, LEN, rig_path(p), 0);
		rig_turns(40);
		for (uint32_t i = 0; i < 3; i++)
			rig_rail_fail((int)(p / 3), i);
		job_end(&j);
		assert_int_equal(j.result[p / 3].status, -ECONNRESET);
		job_quiet(&j);
	}
}

/* The rail comes back after its time, takes chunks again, and may break again. */
TEST(rail_comes_back)
{
	struct crpc_bulk_conf conf = quick;
	const struct bulk_rail *rail;
	struct job j;
	uint32_t i, k, life;

	conf.rail_retry_ns = 50000;
	rig_init(&conf, &conf, 2, 1, 7900);
	for (life = 1; life < 8; life++) {
		uint64_t before = rig_stats(0)->rail_bytes[life & 1];

		job_start(&j, LEN, rig_path(life), 0);
		rig_turns(50);
		rig_rail_fail((int)life & 1, 1);
		job_ends(&j, 0);
		for (i = 0; i < 100000; i++) {
			rig_turn(i & 1);
			for (k = 0; k < 2; k++) {
				rail = &rig.conn[k]->rail[1];
				if (rail->state != RAIL_UP || rail->life != life + 1)
					break;
			}
			if (k == 2)
				break;
		}
		assert_int_equal(k, 2);
		assert_int_equal(rig.conn[0]->nup, 2);
		assert_true(rig_stats(0)->rail_bytes[life & 1] > before || life % 3 == 2);
		job_quiet(&j);
	}
	assert_int_equal(rig_stats(0)->rails_back, 7);
}

/* A time that is longer than any program runs is not over at once, whatever it is doubled to. */
TEST(rail_that_is_left_alone_stays_down)
{
	struct crpc_bulk_conf conf = quick;
	const struct bulk_rail *rail;

	conf.rail_retry_ns = UINT64_C(1) << 63;
	rig_init(&conf, &conf, 2, 1, 7950);
	rig_rail_fail(0, 1);
	rig_turns(500);
	rail = &rig.conn[0]->rail[1];
	assert_int_equal(rail->state, RAIL_DOWN);
}

/* A rail breaks again and again while it comes back, also in the middle of the introduction. */
TEST(rails_flap)
{
	struct crpc_bulk_conf conf = quick;
	uint64_t seed = rig_seed_first(), n = rig_seeds(60), end = seed + n, back = 0;
	struct job j;

	conf.rail_retry_ns = 2000;
	for (; seed < end; seed++) {
		rig_init(&conf, &conf, 3, 1, seed);
		job_start(&j, LEN, rig_path(seed), 0);
		for (uint32_t i = 0; i < 1500; i++) {
			rig_turn((int)rig_rnd(2));
			/* rail 0 stays, so none of it ends the connection */
			if (rig_rnd(40) == 0)
				rig_rail_fail((int)rig_rnd(2), 1 + rig_rnd(2));
			if (i % 16 == 0)
				rig_check(false);
		}
		job_ends(&j, 0);
		back += rig_stats(0)->rails_back;
		job_quiet(&j);
	}
	assert_true(back > 3 * n);
}

/* A peer that never says that its end is closed: the connection breaks, in bounded time. */
TEST(peer_does_not_confirm)
{
	struct job j;

	rig_init(&quick, &quick, 2, 1, 8500);
	job_start(&j, LEN, rig_path(1), 0);
	rig_turns(30);
	rig_rail_fail(0, 1);
	for (uint32_t i = 0; i < 20000 && rig_status(0) == 0; i++)
		rig_turn(0);
	assert_int_equal(rig_status(0), -ETIMEDOUT);
	assert_non_null(strstr(crpc_log_last(), "confirm"));
	job_end(&j);
	assert_int_equal(j.result[0].status, -ETIMEDOUT);
	job_quiet(&j);
}

/* Requests are canceled while a rail closes: they end, and their chunks are not posted again.
 */
TEST(canceled_while_a_rail_closes)
{
	uint64_t seed = rig_seed_first(), n = rig_seeds(120), end = seed + n;
	struct job j;
	int side, rc;

	for (; seed < end; seed++) {
		rig_init(&quick, &quick, 2 + seed % 2, 1, seed);
		job_start(&j, LEN, rig_path(seed), 0);
		rig_turns(30 + rig_rnd(100));
		rig_rail_fail((int)(seed / 3 & 1), rig_rnd(rig.rails));
		rig_turns(rig_rnd(12));
		side = (int)(seed / 6 & 1);
		rc = crpc_bulk_cancel(rig.b[side], rig.w.now_ns, side ? j.recv : j.send);
		assert_true(rc == 0 || rc == -EALREADY);
		job_end(&j);
		if (j.result[0].status != j.result[1].status ||
			(j.result[0].status != 0 && j.result[0].status != -ECANCELED))
			fail_msg("seed %llu: %d, %d", (unsigned long long)seed, j.result[0].status,
				j.result[1].status);
		job_quiet(&j);
		assert_ok(rig_status(0));
	}
}

/*
 * The contexts are polled by the program, which uses them for calls too: bulk takes what is its own
 * and leaves the rest. It gets its requests one turn late, while a rail breaks.
 */
TEST(contexts_may_be_shared)
{
	struct crpc_bulk_conf conf = quick;
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_ep *ep[2];
	struct crpc_done done[16];
	struct crpc_req in[2][16];
	uint32_t i, p, calls, made;
	uint16_t n[2] = {0, 0}, k;
	bool ended[2];
	struct job j;
	int side;

	if (rig_over_tcp())
		skip();
	conf.shared = true;
	for (p = 0; p < 30; p++) {
		rig_init(&conf, &conf, 2, 1, 8900 + p);
		for (side = 0; side < 2; side++) {
			ep[side] = crpc_copyrpc_ep_create(rig.ctx[side][0], 1);
			crpc_copyrpc_ep_addr(ep[side], addr[side]);
		}
		for (side = 0; side < 2; side++)
			assert_ok(crpc_copyrpc_ep_connect(ep[side], addr[!side]));
		job_start(&j, LEN, rig_path(p), 0);
		ended[0] = ended[1] = false;
		calls = made = 0;
		for (i = 0; i < 400 || (i < 100000 && !(ended[0] && ended[1] && calls == 50));
			i++) {
			side = i & 1;
			if (i == 20 + 2 * p)
				rig_rail_fail((int)(p / 3 & 1), p / 6 % 2);
			if (made < 50 &&
				crpc_copyrpc_call(ep[0], rig.w.now_ns, "x", 1, 1, made) == 0)
				made++;
			rig.w.now_ns += 1000;
			for (k = 0; k < 8; k++)
				crpc_paper_step(&rig.w);
			k = crpc_bulk_take_req(rig.b[side], 0, rig.w.now_ns, in[side], n[side]);
			while (k-- != 0)
				crpc_copyrpc_reply(
					rig.ctx[side][0], rig.w.now_ns, in[side][k].token, "y", 1);
			k = crpc_copyrpc_poll(rig.ctx[side][0], rig.w.now_ns, done, 16);
			calls += crpc_bulk_take_done(rig.b[side], rig.w.now_ns, done, k);
			n[side] = crpc_copyrpc_recv(rig.ctx[side][0], rig.w.now_ns, in[side], 16);
			rig_progress(side);
			if (!ended[side])
				ended[side] = crpc_bulk_test(rig.b[side], side ? j.recv : j.send,
						      &j.result[side]) == 0;
		}
		assert_true(ended[0] && ended[1]);
		assert_int_equal(calls, 50);
		assert_int_equal(j.result[0].status, 0);
		assert_int_equal(j.result[1].status, 0);
		job_over(&j);
		assert_true(j.same);
		assert_int_equal(rig.conn[0]->nup, 1);
		rig_fini();
		buf_free(j.src);
		buf_free(j.dst);
		n[0] = n[1] = 0;
	}
}

/* ---- a peer that lies about rails ---- */

TEST(lies_about_rails_break_the_connection)
{
	static const struct {
		const char *what;
		uint8_t type;
		uint32_t rail, life;
		uint64_t taken;
		bool breaks;
	} lies[] = {{"a rail that is not there", BULK_RAIL_DOWN, 2, 1, 0, true},
		{"a rail far away", BULK_RAIL_DOWN, UINT32_MAX, 1, 0, true},
		{"a life to come", BULK_RAIL_DOWN, 1, 2, 0, true},
		{"a life that never was", BULK_RAIL_DOWN, 1, 0, 0, true},
		{"more messages than were sent", BULK_RAIL_DOWN, 1, 1, 1000000, true},
		{"an address of a rail that works", BULK_RAIL_ADDR, 1, 1, 0, true},
		{"an address of a life to come", BULK_RAIL_ADDR, 1, 2, 0, true},
		{"ready, but it works", BULK_RAIL_READY, 1, 1, 0, true},
		{"ready in a life to come", BULK_RAIL_READY, 1, 5, 0, true},
		{"ready in a life that has ended", BULK_RAIL_READY, 1, 0, 0, false}};
	union bulk_wire msg;
	struct job j;
	uint32_t i, len;

	for (i = 0; i < CRPC_DIM(lies); i++) {
		rig_init(&quick, &quick, 2, 1, 9000 + i);
		job_start(&j, LEN, rig_path(1), 0);
		rig_turns(40);
		len = lies[i].type == BULK_RAIL_ADDR ? sizeof(msg.rail_addr) : sizeof(msg.rail);
		memset(&msg, 0, sizeof(msg));
		msg.rail.head = bulk_wire_head(lies[i].type, len, 0);
		msg.rail.rail = lies[i].rail;
		msg.rail.life = lies[i].life;
		if (lies[i].type != BULK_RAIL_ADDR)
			msg.rail.taken = lies[i].taken;
		rig_say(0, &msg, len);
		rig_progress(1);
		if ((rig_status(1) == -EPROTO) != lies[i].breaks)
			fail_msg("%s: %d", lies[i].what, rig_status(1));
		job_end(&j);
		if (lies[i].breaks)
			assert_int_equal(j.result[1].status, -EPROTO);
		job_quiet(&j);
	}
}

/* ---- a receiver that gives slots back and denies that it took their chunks ---- */

/* The receiver is this test. It has accepted a message, whose chunks the sender is to post next. */
static uint64_t
forger_init(const struct crpc_bulk_conf *conf, uint64_t *send)
{
	static const uint8_t src[LEN];
	struct bulk_wire_accept accept = {.path = CRPC_BULK_EAGER};
	union bulk_wire offer;

	rig_init(conf, conf, 2, 1, 9500);
	*send = rig_send(0, 3, src, LEN, CRPC_BULK_EAGER);
	rig_progress(0);
	assert_int_not_equal(rig_hear(1, &offer), 0);
	assert_int_equal(offer.head.type, BULK_OFFER);
	accept.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), offer.head.id);
	rig_say(1, &accept, sizeof(accept));
	return offer.head.id;
}

/* Slots 0 to n - 1 are consumed for the first time, the message is canceled, rail 1 is down. */
static void
forger_lies(uint64_t id, uint32_t n)
{
	struct bulk_wire_consumed consumed = {.count = n};
	struct bulk_wire_rail down = {
		.head = bulk_wire_head(BULK_RAIL_DOWN, sizeof(down), 0), .rail = 1, .life = 1};
	struct bulk_wire_end end = {
		.head = bulk_wire_head(BULK_R_END, sizeof(end), id), .status = -ECANCELED};
	uint32_t i, len = (uint32_t)offsetof(struct bulk_wire_consumed, slot) + 4 * n;

	consumed.head = bulk_wire_head(BULK_CONSUMED, len, 0);
	for (i = 0; i < n; i++)
		consumed.slot[i] = 1 << 8 | i;
	rig_say(1, &consumed, len);
	rig_say(1, &end, sizeof(end));
	rig_say(1, &down, sizeof(down));
}

/*
 * Each slot of the sender is given back once, whatever the receiver says: that it consumed chunks
 * that were never announced (announced false), or, with the completions of rail 1 outstanding, that
 * it consumed chunks whose announcements it did not take. With all slots that a connection can
 * have, a slot that is freed twice is one place behind the end of the list of free ones.
 */
static void
forger_ends(bool announced)
{
	struct crpc_bulk_conf conf = quick;
	struct crpc_bulk_result result;
	uint64_t id, send;

	if (rig_over_tcp())
		skip();
	conf.slots = CRPC_BULK_SLOTS_MAX;
	id = forger_init(&conf, &send);
	rig.w.hold_acks = announced;
	rig_progress(0);
	if (announced)
		crpc_paper_run(&rig.w);
	else
		rig_rail_fail(0, 1);
	crpc_log_clear();
	forger_lies(id, conf.tx_chunks);
	rig_progress(0); /* no completion of rail 1 comes before them */
	rig.w.hold_acks = false;
	for (uint32_t i = 0; i < 100 && rig_state(0, send) != CRPC_BULK_DONE; i++) {
		rig_turn(0);
		rig_check(false);
	}
	assert_int_equal(rig_status(0), -EPROTO);
	assert_ok(crpc_bulk_test(rig.b[0], send, &result));
	assert_int_equal(result.status, -EPROTO);
}

TEST(consuming_a_chunk_not_announced_breaks_the_connection)
{
	forger_ends(false);
}

TEST(consuming_a_chunk_not_taken_breaks_the_connection)
{
	forger_ends(true);
}

/*
 * A peer that declares a rail down and invites to its next life, again and again: each life costs a
 * queue pair, which takes long to make, so there is one in rail_retry_ns and no more.
 */
TEST(invitations_are_followed_once_in_the_retry_time)
{
	struct bulk_wire_rail down = {
		.head = bulk_wire_head(BULK_RAIL_DOWN, sizeof(down), 0), .rail = 1};
	struct bulk_wire_rail_addr addr = {
		.head = bulk_wire_head(BULK_RAIL_ADDR, sizeof(addr), 0), .rail = 1};
	struct crpc_bulk_conf conf = quick;
	const struct bulk_rail *rail;
	union bulk_wire heard;
	uint32_t i, lives = 0;
	uint64_t start;

	if (rig_over_tcp())
		skip();
	conf.rail_retry_ns = 100000;
	rig_init(&conf, &conf, 2, 1, 9600);
	start = rig.w.now_ns;
	rail = &rig.conn[0]->rail[1];
	for (i = 0; i < 4000 && rig_status(0) == 0; i++) {
		if (i % 20 == 0 && rail->life != lives) {
			down.life = lives = rail->life;
			addr.life = lives + 1;
			rig_say(1, &down, sizeof(down));
		} else if (rail->state == RAIL_DOWN && addr.life == rail->life + 1) {
			crpc_copyrpc_ep_addr(rig.conn[1]->rail[1].ep, addr.addr);
			rig_say(1, &addr, sizeof(addr));
			addr.life = 0;
		}
		rig_turn(0);
		rig_hear(1, &heard);
	}
	assert_ok(rig_status(0));
	assert_true(rail->life > 2);
	assert_true(rail->life - 1 <= (rig.w.now_ns - start) / conf.rail_retry_ns);
}

TEST_MAIN(NULL, rig_close)
