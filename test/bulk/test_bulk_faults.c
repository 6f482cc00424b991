/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong with a transfer, on two devices on paper. In each case every request ends, with
 * success or the error that is named, the pools are full again, and no byte of a buffer is touched
 * after its request has ended.
 */
#include <stdio.h>

#include "test.h"
#include "bulk_rig.h"

#define CHUNK  4096u
#define CHUNKS 151u
#define LEN    ((CHUNKS - 1) * CHUNK + 100)

/* In virtual time, of which a turn takes a microsecond. */
static const struct crpc_bulk_conf quick = {
	.chunk = CHUNK, .slots = 8, .tx_chunks = 6, .timeout_ns = 2000000, .confirm_ns = 1000000};

/* Side 1 unpacks by the engine "test". */
static void
tool_init(enum tool_mode mode, uint64_t seed)
{
	struct crpc_bulk_conf conf = quick;

	conf.engine = crpc_unpack_create("test", NULL);
	rig_init(&quick, &conf, 1, 1, seed);
	tool.mode = mode;
}

/* Broken connections come back and work. */
static void
back_to_work(void)
{
	struct job j;

	for (int side = 0; side < 2; side++)
		crpc_bulk_conn_shutdown(rig.conn[side]);
	for (uint32_t i = 0; i < 10000 &&
		(crpc_bulk_conn_reset(rig.conn[0]) != 0 || crpc_bulk_conn_reset(rig.conn[1]) != 0);
		i++)
		rig_turn(i & 1);
	assert_int_equal(rig_status(0), -ENOTCONN);
	assert_int_equal(rig_status(1), -ENOTCONN);
	rig_connect();
	tool.mode = TOOL_GOES;
	for (uint32_t i = 0; i < 3; i++) {
		job_start(&j, 50000, rig_path(i), 0);
		job_ends(&j, 0);
		job_quiet(&j);
	}
}

/* That, and nothing of an old message is still under way. */
static void
works_again(struct job *old)
{
	struct crpc_unpack *engine = rig.conf[1].engine;

	back_to_work();
	job_quiet(old);
	rig_fini();
	crpc_unpack_free(engine);
}

/*
 * A wire so slow that each message takes longer than timeout_ns, and the last one waits still
 * longer for the window or for slots, is no fault as long as chunks move: the end that sees none of
 * them is notified. Three messages at once by each path, a step of the wire in 1/80 of timeout_ns.
 */
TEST(slow_wire_is_progress)
{
	struct crpc_bulk_conf slow = quick;
	struct job j[3];
	uint64_t began;
	uint32_t i, k, n, c;

	slow.timeout_ns = 8000000;
	slow.confirm_ns = 100000000;
	for (c = 0; c < 4; c++) {
		slow.slots = c == 3 ? 2 : quick.slots;
		rig_init(&slow, &slow, 1, 1, 5);
		began = rig.w.now_ns;
		for (k = 0; k < 3; k++)
			job_start(&j[k], LEN, rig_path(c), 0);
		for (i = 0, n = 0; n < 6 && i < 100000; i++) {
			rig.w.now_ns += slow.timeout_ns / 80;
			crpc_paper_step(&rig.w);
			rig_progress(i & 1);
			for (k = 0; k < 3; k++)
				n += crpc_bulk_test(rig.b[i & 1], i & 1 ? j[k].recv : j[k].send,
					     &j[k].result[i & 1]) == 0;
		}
		assert_int_equal(n, 6);
		assert_true(rig.w.now_ns - began > 6 * slow.timeout_ns);
		for (k = 0; k < 3; k++) {
			assert_int_equal(j[k].result[0].status, 0);
			assert_int_equal(j[k].result[1].status, 0);
			job_over(&j[k]);
			assert_true(j[k].same);
			job_quiet(&j[k]);
		}
	}
}

/* The user never calls consumed: both ends time out, and the slots come back all the same. */
TEST(receiver_stops_consuming)
{
	struct crpc_bulk_chunk chunk[8];
	struct job j;
	uint16_t n;

	rig_init(&quick, &quick, 1, 1, 1);
	job_start(&j, LEN, CRPC_BULK_EAGER, CRPC_BULK_MANUAL);
	rig_turns(200);
	n = crpc_bulk_chunks(rig.b[1], chunk, 8);
	assert_int_equal(n, 8);
	job_ends(&j, -ETIMEDOUT);
	/* its tokens ended with it */
	while (n-- != 0)
		assert_int_equal(rig_consumed(chunk[n].token), -ENOENT);
	assert_ok(rig_status(0));
	works_again(&j);
}

/* A send without a receive, and a receive without a send, time out. */
TEST(request_without_a_match_times_out)
{
	struct crpc_bulk_result result[2];
	uint8_t buf[100];

	rig_init(&quick, &quick, 1, 1, 2);
	rig_end(rig_send(0, 1, buf, 100, 0), 0, result);
	assert_int_equal(result[0].status, -ETIMEDOUT);
	rig_end(0, rig_recv(1, 1, buf, 100, 0), result);
	assert_int_equal(result[1].status, -ETIMEDOUT);
	rig_rest();
}

/* One end is gone at any moment, as by kill -9: its peer ends in bounded time, touches nothing
 * afterwards, and a new end can connect. */
TEST(either_end_dies)
{
	uint64_t seed = rig_seed_first(), end = seed + rig_seeds(60);
	struct crpc_bulk_result result;
	uint64_t req;
	struct job j;
	uint32_t i;
	int dead;

	for (; seed < end; seed++) {
		rig_init(&quick, &quick, 1 + seed % 2, 1, seed);
		dead = (int)(seed / 3 & 1);
		job_start(&j, LEN, rig_path(seed), 0);
		req = dead ? j.send : j.recv;
		rig_turns(rig_rnd(250));
		crpc_bulk_free(rig.b[dead]);
		crpc_copyrpc_free(rig.ctx[dead][0]);
		for (i = 0; i < 100000 && crpc_bulk_test(rig.b[!dead], req, &result) != 0; i++)
			rig_turn(!dead);
		assert_true(i < 100000);
		job_over(&j);
		/* it may have been over before */
		if (result.status != -ETIMEDOUT && result.status != -ECONNRESET &&
			(result.status != 0 || !j.same))
			fail_msg("seed %llu: %d", (unsigned long long)seed, result.status);
		rig_context(dead, 0);
		rig_bulk(dead);
		for (i = 0; i < 5000; i++)
			rig_turn(!dead);
		rig_check(true);
		works_again(&j);
	}
}

/* The only queue pair breaks at either end in the middle of each path. */
TEST(queue_pair_breaks)
{
	struct job j;

	for (uint32_t p = 0; p < 6; p++) {
		rig_init(&quick, &quick, 1, 1, 20 + p);
		job_start(&j, LEN, rig_path(p), 0);
		job_middle(&j);
		rig_rail_fail((int)p & 1, 0);
		job_end(&j);
		assert_int_equal(j.result[p & 1].status, -ECONNRESET);
		if (j.result[!(p & 1)].status != -ECONNRESET &&
			j.result[!(p & 1)].status != -ETIMEDOUT)
			fail_msg("case %u: %d", p, j.result[!(p & 1)].status);
		works_again(&j);
	}
}

/* shutdown() ends all, of both kinds and in every state; the connection comes back. */
TEST(shutdown_ends_all)
{
	struct crpc_bulk_result result[4];
	uint64_t req;
	uint8_t buf[64];
	struct job j;
	uint32_t i, n = 0;

	rig_init(&quick, &quick, 1, 1, 30);
	job_start(&j, LEN, 0, 0);
	req = rig_recv(0, 9, buf, 64, 0);
	job_middle(&j);
	req = rig_send(0, 9, buf, 64, 0);
	crpc_bulk_conn_shutdown(rig.conn[0]);
	assert_int_equal(
		crpc_bulk_isend(rig.conn[0], rig.w.now_ns, 9, buf, 64, 0, 0, &req), -ECONNRESET);
	assert_int_equal(crpc_bulk_conn_reset(rig.conn[0]), -EBUSY);
	for (i = 0; i < 100000 && n < 3; i++) {
		rig_turn(0);
		n += crpc_bulk_test_burst(rig.b[0], result + n, (uint16_t)(4 - n));
	}
	assert_int_equal(n, 3);
	while (n-- != 0)
		assert_int_equal(result[n].status, -ECONNRESET);
	rig_end(0, j.recv, j.result);
	job_over(&j);
	works_again(&j);
}

/* An engine that fails, refuses, has no room, writes wrongly or hangs. */
TEST(engine_goes_wrong)
{
	static const struct {
		enum tool_mode mode;
		int32_t status;
	} cases[] = {{TOOL_FAILS, -EIO}, {TOOL_REFUSES, -EFAULT}, {TOOL_FULL, -ETIMEDOUT},
		{TOOL_SPOILS, -EBADMSG}, {TOOL_HOLDS, -ETIMEDOUT}};
	struct job j;

	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		tool_init(cases[i].mode, 40 + i);
		job_start(&j, LEN, CRPC_BULK_EAGER | CRPC_BULK_CRC, 0);
		job_ends(&j, cases[i].status);
		assert_int_equal(tool.stops != 0, cases[i].mode == TOOL_HOLDS);
		assert_ok(rig_status(1));
		works_again(&j);
	}
}

/* An engine that is slow, and for a while does nothing, holds chunks up but spoils none. */
TEST(slow_engine_succeeds)
{
	struct job j;

	tool_init(TOOL_GOES, 48);
	job_start(&j, LEN, CRPC_BULK_EAGER | CRPC_BULK_CRC, 0);
	for (uint32_t i = 0; i < 12; i++) {
		tool.mode = i % 3 == 0 ? TOOL_FULL : TOOL_HOLDS;
		rig_turns(500);
		assert_true(rig_state(1, j.recv) == CRPC_BULK_TRANSMITTING);
		/* what is not unpacked holds its slot */
		assert_true(rig.conn[0]->tx.nslot_free == 0 || i == 0);
		tool.mode = TOOL_GOES;
		rig_turns(4);
	}
	job_ends(&j, 0);
	assert_int_equal(tool.stops, 0);
	job_quiet(&j);
	rig_fini();
	crpc_unpack_free(rig.conf[1].engine);
}

/* An engine that hangs while the connection breaks, or is freed: nothing ends before it stopped. */
TEST(engine_hangs_in_a_break)
{
	struct job j;

	tool_init(TOOL_HOLDS, 50);
	job_start(&j, LEN, CRPC_BULK_EAGER, 0);
	rig_turns(200);
	assert_true(crpc_unpack_open_jobs(rig.conf[1].engine) != 0);
	crpc_bulk_conn_shutdown(rig.conn[1]);
	rig_turns(100);
	assert_int_equal(rig_state(1, j.recv), CRPC_BULK_TRANSMITTING);
	job_end(&j);
	assert_int_equal(tool.stops, 1);
	assert_int_equal(j.result[1].status, -ECONNRESET);
	back_to_work();
	job_quiet(&j);

	tool.mode = TOOL_HOLDS;
	job_start(&j, LEN, CRPC_BULK_EAGER, 0);
	rig_turns(200);
	crpc_bulk_conn_free(rig.conn[1]);
	assert_int_equal(tool.stops, 2);
	assert_int_equal(crpc_unpack_open_jobs(rig.conf[1].engine), 0);
	buf_free(j.dst);
	rig_fini();
	buf_free(j.src);
	crpc_unpack_free(rig.conf[1].engine);
}

/* A connection that ends after a pause of its owner: the engine still has confirm_ns for its
 * jobs. */
TEST(engine_has_its_time_after_a_pause)
{
	struct job j;

	tool_init(TOOL_HOLDS, 52);
	job_start(&j, LEN, CRPC_BULK_EAGER, 0);
	rig_turns(200);
	crpc_bulk_conn_shutdown(rig.conn[1]);
	rig.w.now_ns += 2 * quick.confirm_ns;
	rig_turns(20);
	assert_int_equal(tool.stops, 0);
	tool.mode = TOOL_GOES;
	job_end(&j);
	assert_int_equal(tool.stops, 0);
	assert_int_equal(j.result[1].status, -ECONNRESET);
	works_again(&j);
}

static void
flip(struct crpc_paper *w, uint8_t *dst, uint32_t len, uint32_t *imm, uint32_t *byte_len)
{
	uint32_t *left = w->hook_arg;

	if (len == CHUNK && *left != 0 && --*left == 0)
		dst[100] ^= 4;
}

/* A byte changes on the way: the checksum finds it, wherever the chunk was. */
TEST(byte_changes_on_the_way)
{
	struct job j;
	uint32_t p, left;

	for (p = 0; p < 6; p++) {
		rig_init(&quick, &quick, 1, 1, 60 + p);
		left = 1 + p * 7;
		rig.w.hook = flip;
		rig.w.hook_arg = &left;
		job_start(&j, LEN, rig_path(p % 2) | CRPC_BULK_CRC, 0);
		job_ends(&j, -EBADMSG);
		assert_int_equal(left, 0);
		job_quiet(&j);
	}
}

/* Either end gives up at any moment: both end with the same verdict. */
TEST(cancel_at_any_moment)
{
	struct job j;
	uint32_t p, canceled = 0;
	int side, rc;

	for (p = 0; p < 240; p++) {
		side = (int)(p / 3 & 1);
		rig_init(&quick, &quick, 1 + p % 2, 1, 100 + p);
		job_start(&j, LEN, rig_path(p), 0);
		rig_turns(p / 2);
		rc = crpc_bulk_cancel(rig.b[side], rig.w.now_ns, side ? j.recv : j.send);
		if (rc != 0 && rc != -EALREADY)
			fail_msg("case %u: %d", p, rc);
		job_end(&j);
		if (j.result[0].status != j.result[1].status &&
			j.result[!side].status != -ETIMEDOUT)
			fail_msg("case %u: %d, %d", p, j.result[0].status, j.result[1].status);
		canceled += j.result[0].status == -ECANCELED;
		/* nothing is known to have been read of a message that failed */
		if (rig_path(p) == CRPC_BULK_READ && j.result[0].status != 0)
			assert_int_equal(rig_stats(0)->bytes_sent, 0);
		job_quiet(&j);
	}
	assert_true(canceled > 50);
}

/* ---- a peer that lies ---- */

struct lie {
	const char *what;
	uint32_t len;
	union bulk_wire msg;
};

static struct lie lies[40];
static uint32_t nlies;

static union bulk_wire *
lie(const char *what, uint8_t type, uint32_t len, uint64_t id)
{
	struct lie *l = &lies[nlies++];

	memset(l, 0, sizeof(*l));
	l->what = what;
	l->len = len;
	l->msg.head = bulk_wire_head(type, len, id);
	return &l->msg;
}

static union bulk_wire *
lie_data(const char *what, uint64_t id)
{
	union bulk_wire *m = lie(what, BULK_DATA, 48, id);

	m->data.index = 30;
	m->data.len = CHUNK;
	m->data.slot = 1 << 8 | 7;
	m->data.npieces = 1;
	m->data.piece[0] = (struct bulk_wire_piece){.line = 7 * CHUNK / 64, .len = CHUNK};
	return m;
}

/*
 * Of a transfer whose first chunks lie in the slots from 0 to 6; id is its true one.
 */
static void
lies_make(uint64_t id)
{
	union bulk_wire *m;

	nlies = 0;
	lie("a type that is none", 99, 24, id);
	lie("no body", BULK_OFFER, 16, id);
	lie("wrong magic", BULK_S_END, 24, id)->head.magic = 1;
	lie("wrong version", BULK_S_END, 24, id)->head.version = 1;
	lie("wrong length", BULK_S_END, 24, id)->head.len = 25;
	lie("a verdict on no message of ours", BULK_R_END, 24, id);
	lie("an id that never was", BULK_S_END, 24, id + (5 << 16))->end.status = -5;
	lie("progress of no message of ours", BULK_R_MOVES, 16, id);
	lie("progress of an id that never was", BULK_S_MOVES, 16, id + (5 << 16));
	lie("progress with a body", BULK_S_MOVES, 24, id);
	lie("an id beyond the pool", BULK_S_END, 24, id | 0xff)->end.status = -5;
	lie("a positive status", BULK_S_END, 24, id)->end.status = 5;
	lie("a huge status", BULK_S_END, 24, id)->end.status = -5000;
	lie("an accept of nothing", BULK_ACCEPT, 48, id)->accept.path = 1;
	lie("an offer in a taken slot", BULK_OFFER, 64, id + (1 << 16))->offer.flags = 1;
	m = lie("an offer too long", BULK_OFFER, 64, id + (9 << 16) + 5);
	m->offer.len = CRPC_BULK_LEN_MAX + 1;
	m->offer.flags = 1;
	lie("an offer without a path", BULK_OFFER, 64, id + (9 << 16) + 5);
	lie("an offer with strange flags", BULK_OFFER, 64, id + (9 << 16) + 5)->offer.flags = 0x901;
	m = lie("consumed, more than there are", BULK_CONSUMED, 24, 0);
	m->consumed.count = 1000;
	m = lie("consumed, not taken", BULK_CONSUMED, 24, 0);
	m->consumed.count = 1;
	m->consumed.slot[0] = 1 << 8 | 3;
	m = lie("consumed, no slot", BULK_CONSUMED, 24, 0);
	m->consumed.count = 1;
	m->consumed.slot[0] = 255;
	lie_data("no pieces", id)->data.npieces = 0;
	lie_data("more pieces than bytes", id)->data.npieces = 8;
	lie_data("a million pieces", id)->data.npieces = 1u << 20;
	lie_data("a piece behind the memory", id)->data.piece[0].line = 8 * CHUNK / 64;
	lie_data("a piece that ends behind it", id)->data.piece[0].line = (8 * CHUNK - 512) / 64;
	lie_data("a piece far away", id)->data.piece[0].line = UINT32_MAX;
	lie_data("a piece of 4 GiB", id)->data.piece[0].len = UINT32_MAX;
	lie_data("an empty piece", id)->data.piece[0].len = 0;
	lie_data("a piece between units", id)->data.piece[0].line++;
	lie_data("a piece that is held", id)->data.piece[0].line = 0;
	lie_data("a slot that is held", id)->data.slot = 1 << 8;
	lie_data("a slot that is not there", id)->data.slot = 8;
	m = lie_data("a chunk too short", id);
	m->data.len = m->data.piece[0].len = 512;
	lie_data("a sum that differs", id)->data.piece[0].len = 512;
	lie_data("an index behind the end", id)->data.index = CHUNKS;
	lie_data("an index far away", id)->data.index = UINT32_MAX;
	lie_data("a chunk twice", id)->data.index = 0;
	lie_data("a chunk of an id that never was", id + (5 << 16));
	assert_true(nlies <= CRPC_DIM(lies));
}

/* Every lie breaks the connection with -EPROTO and its own text, and nothing else. */
TEST(lies_break_the_connection)
{
	struct job j;
	struct crpc_bulk_chunk chunk[8];
	uint32_t i, n = 1;

	for (i = 0; i < n; i++) {
		rig_init(&quick, &quick, 1, 1, 400 + i);
		job_start(&j, LEN, CRPC_BULK_EAGER, CRPC_BULK_MANUAL);
		rig_turns(200);
		/* slot 7 is free, with its memory, for what the lies say */
		assert_int_equal(crpc_bulk_chunks(rig.b[1], chunk, 8), 8);
		assert_int_equal(chunk[7].token & 0xff, 7);
		assert_ok(rig_consumed(chunk[7].token));
		while (rig.conn[1]->rx.slot[7].state == SLOT_CONSUMED)
			rig_turn(1);
		lies_make(TAILQ_FIRST(&rig.conn[0]->sends)->id);
		n = nlies;
		crpc_log_clear();
		rig_say(0, &lies[i].msg, lies[i].len);
		rig_progress(1);
		if (rig_status(1) != -EPROTO || crpc_log_last()[0] == 0)
			fail_msg("%s: status %d, \"%s\"", lies[i].what, rig_status(1),
				crpc_log_last());
		job_end(&j);
		assert_int_equal(j.result[1].status, -EPROTO);
		works_again(&j);
	}
}

/* The receiver, played by the test, sends a message about the only send of side 0. */
static void
receiver_says(uint64_t id, uint8_t type, uint32_t word)
{
	union bulk_wire msg = {0};
	uint32_t len = type == BULK_ACCEPT ? sizeof(msg.accept) : sizeof(msg.end);

	msg.head = bulk_wire_head(type, len, id);
	if (type == BULK_ACCEPT) {
		msg.accept.path = word;
		msg.accept.raddr = (uintptr_t)rig.conn[1]->rx.bounce;
		msg.accept.rkey[0] = rig.conn[1]->rx.mr[0].rkey;
	} else {
		msg.end.status = (int32_t)word;
	}
	rig_say(1, &msg, len);
}

/*
 * A receiver accepts twice, or sends two verdicts: at once, or the second one after a turn, in
 * which a send ends unless its chunks are under way. Each breaks the connection with its own text.
 */
TEST(lies_of_a_receiver_break_the_connection)
{
	static const struct {
		uint8_t path; /* accepted before; 0: none */
		uint8_t type;
		bool turn;
		uint32_t word[2];
		const char *text;
	} cases[] = {{0, BULK_R_END, false, {-ECANCELED, -ECANCELED}, "a second verdict"},
		{CRPC_BULK_EAGER, BULK_R_END, true, {-ECANCELED, 0}, "a second verdict"},
		{CRPC_BULK_WRITE, BULK_R_END, true, {-EIO, -ECANCELED}, "a second verdict"},
		{CRPC_BULK_READ, BULK_R_END, false, {0, 0}, "a second verdict"},
		{CRPC_BULK_READ, BULK_R_END, true, {0, 0}, "an id of ours"},
		{0, BULK_ACCEPT, false, {CRPC_BULK_EAGER, CRPC_BULK_WRITE}, "an accepted path"}};
	union bulk_wire offer;
	struct job j;

	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		rig_init(&quick, &quick, 1, 1, 500 + i);
		job_start(&j, 8 * CHUNK, PATHS, 0);
		rig_progress(0);
		assert_int_not_equal(rig_hear(1, &offer), 0);
		rig.w.hold_acks = true;
		if (cases[i].path != 0)
			receiver_says(offer.head.id, BULK_ACCEPT, cases[i].path);
		rig_progress(0);
		crpc_log_clear();
		receiver_says(offer.head.id, cases[i].type, cases[i].word[0]);
		if (cases[i].turn)
			rig_progress(0);
		receiver_says(offer.head.id, cases[i].type, cases[i].word[1]);
		rig_progress(0);
		rig.w.hold_acks = false;
		if (rig_status(0) != -EPROTO || strstr(crpc_log_last(), cases[i].text) == NULL)
			fail_msg("case %u: status %d, \"%s\"", i, rig_status(0), crpc_log_last());
		job_end(&j);
		/* it had a verdict, and nothing under way, before the second message */
		assert_int_equal(j.result[0].status,
			cases[i].path == CRPC_BULK_READ && cases[i].turn ? 0 : -EPROTO);
		works_again(&j);
	}
}

/* A random byte of a DATA, CONSUMED, S_END or R_END that passes by changes now and then. */
static void
garble(struct crpc_paper *w, uint8_t *dst, uint32_t len, uint32_t *imm, uint32_t *byte_len)
{
	struct bulk_wire_head head;

	for (uint32_t i = 0; len < CHUNK && i + sizeof(head) <= len; i += 16) {
		memcpy(&head, dst + i, sizeof(head));
		if (head.magic != BULK_WIRE_MAGIC || head.version != BULK_WIRE_VERSION ||
			head.type < BULK_DATA || head.type > BULK_R_END || head.len > len - i ||
			crpc_paper_rnd(w) % 40 != 0)
			continue;
		dst[i + crpc_paper_rnd(w) % head.len] ^= (uint8_t)(1u << crpc_paper_rnd(w) % 8);
		++*(uint32_t *)w->hook_arg;
	}
}

/* Whatever such a message says then, every request ends and nothing is lost. */
TEST(garbled_messages_do_no_harm)
{
	uint32_t seed, changes = 0, broken = 0;
	struct job j;

	for (seed = 0; seed < 150; seed++) {
		rig_init(&quick, &quick, 1 + seed % 3, 1, 1000 + seed);
		rig.w.hook = garble;
		rig.w.hook_arg = &changes;
		job_start(&j, LEN, rig_path(seed) | CRPC_BULK_CRC, 0);
		job_end(&j);
		rig_check(false);
		broken += rig_status(0) != 0 || rig_status(1) != 0;
		rig.w.hook = NULL;
		works_again(&j);
	}
	assert_true(changes > 50 && broken > 10);
}

/* Addresses that are none, or of another kind, are refused. */
TEST(addresses_are_checked)
{
	struct bulk_wire_addr *a;
	uint8_t addr[CRPC_BULK_ADDR_LEN] __attribute__((aligned(8)));

	rig_init(&quick, &quick, 1, 1, 70);
	for (uint32_t i = 0; i < 8; i++) {
		struct crpc_bulk_conn *conn = crpc_bulk_conn_create(rig.b[0], 1, 9);

		assert_non_null(conn);
		crpc_bulk_conn_addr(rig.conn[1], addr);
		a = (struct bulk_wire_addr *)addr;
		a->magic += i == 0;
		a->version = (uint16_t)(a->version + (i == 1));
		a->rails = (uint8_t)(a->rails + (i == 2));
		a->nports = i == 3 ? 200 : a->nports;
		a->requests = i == 4 ? 100000 : a->requests;
		a->chunk = i == 5 ? 5000 : a->chunk;
		a->slots = i == 6 ? 257 : a->slots;
		a->slots = i == 7 ? 0 : a->slots;
		assert_int_equal(crpc_bulk_conn_connect(conn, addr), -EPROTO);
		crpc_bulk_conn_free(conn);
	}
	assert_int_equal(crpc_bulk_conn_connect(rig.conn[0], addr), -EISCONN);
}

int
main(void)
{
	crpc_unpack_register(&tool_ops);
	return test_run(NULL, rig_close);
}
