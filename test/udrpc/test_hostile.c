/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that no peer of ours sends: each field wrong by itself, in front of both sides of a
 * session that is in the middle of calls; and millions of random ones whose heads are nearly right.
 * Each is counted and dropped; nothing that it says is believed, the audit holds, and the calls go
 * on.
 */
#include "test.h"
#include "pair.h"

#define MTU    256
#define RANDOM 60000

struct packet {
	struct wire_pkt h;
	uint8_t data[MTU - sizeof(struct wire_pkt)];
};

static const struct crpc_udrpc_conf conf = {.max_eps = 2, .slots = 2, .max_msg = 1000};

static uint64_t
dropped(const struct crpc_udrpc *ctx)
{
	const struct crpc_udrpc_stats *s = crpc_udrpc_stats(ctx);

	return s->rpc.malformed + s->bad_sessions + s->stale + s->out_of_order;
}

/* A head that side `to` would take, of request 1 in slot 0. */
static struct packet
packet(int to, enum wire_type type)
{
	const struct crpc_udrpc_ep *ep = p.ep[to][0];

	return (struct packet){.h = {.magic = WIRE_MAGIC,
				       .kind = WIRE_KIND(type),
				       .session = ep->id,
				       .token = ep->token,
				       .req = 1}};
}

/* The packet comes and is dropped; returns what that left of the poll. */
static void
refused(int to, const struct packet *pkt, uint32_t bytes)
{
	uint64_t before = dropped(p.ctx[to]);
	struct crpc_done done[4];
	struct crpc_req req[4];

	crpc_paper_forge(p.dev[to], 0, 0, pkt, bytes);
	assert_int_equal(crpc_udrpc_poll(p.ctx[to], p.w.now_ns, done, 4), 0);
	assert_int_equal(dropped(p.ctx[to]), before + 1);
	assert_int_equal(pair_recv(to, req, 4), 0);
	assert_ok(crpc_udrpc_check(p.ctx[to], false));
}

TEST(heads_that_lie_are_dropped)
{
	struct packet pkt;

	pair_init(&conf, 1, 1, 188, MTU);
	pkt = packet(1, WIRE_REQ);
	for (uint32_t i = 0; i < WIRE_HEAD; i++)
		refused(1, &pkt, i);
	pkt.h.magic ^= 1;
	refused(1, &pkt, WIRE_HEAD);
	pkt = packet(1, WIRE_REQ);
	pkt.h.kind += 16;
	refused(1, &pkt, WIRE_HEAD);
	pkt = packet(1, WIRE_TYPES);
	refused(1, &pkt, WIRE_HEAD);
	pkt = packet(1, WIRE_REQ);
	pkt.h.session = 2;
	refused(1, &pkt, WIRE_HEAD);
	pkt.h.session = 1;
	refused(1, &pkt, WIRE_HEAD);
	pkt.h.session = UINT32_MAX;
	refused(1, &pkt, WIRE_HEAD);
	pkt = packet(1, WIRE_BYE);
	pkt.h.token++;
	refused(1, &pkt, WIRE_HEAD);
	assert_ok(pair_status(1));
}

/* Pieces of requests with each field wrong, before and within a request. */
TEST(requests_that_lie_are_dropped)
{
	static const struct {
		uint16_t slot, pkt;
		uint32_t req, len, arg, bytes;
	} bad[] = {
		{2, 0, 1, 8, 8, 8},
		{UINT16_MAX, 0, 1, 8, 8, 8},
		{0, 1, 1, 8, 8, 8},
		{0, 0, 0, 8, 8, 8},
		{0, 0, 3, 8, 8, 8},
		{0, 0, UINT32_MAX, 8, 8, 8},
		{0, 0, 1, 1001, 8, 228},
		{0, 0, 1, UINT32_MAX, 8, 228},
		{0, 0, 1, 8, 1001, 8},
		{0, 0, 1, 8, UINT32_MAX - 1, 8},
		{0, 0, 1, 8, 8, 7},
		{0, 0, 1, 8, 8, 9},
		{0, 0, 1, 300, 8, 8},
		{0, 1, 1, 300, 8, 73},
		{0, 2, 1, 300, 8, 0},
		{0, 1, 1, 300, 8, 72},
		{0, UINT16_MAX, 1, 300, 8, 72},
	};
	struct crpc_done done[4];
	struct packet pkt;

	pair_init(&conf, 1, 1, 188, MTU);
	for (uint32_t within = 0; within < 2; within++) {
		for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
			pkt = packet(1, WIRE_REQ);
			pkt.h.slot = bad[i].slot;
			pkt.h.pkt = bad[i].pkt;
			pkt.h.req = bad[i].req;
			pkt.h.len = bad[i].len;
			pkt.h.arg = bad[i].arg;
			refused(1, &pkt, WIRE_HEAD + bad[i].bytes);
		}
		/* the first of three pieces: now all that differs from it is a lie */
		pkt = packet(1, WIRE_REQ);
		pkt.h.len = 500;
		crpc_paper_forge(p.dev[1], 0, 0, &pkt, MTU);
		crpc_udrpc_poll(p.ctx[1], p.w.now_ns, done, 4);
	}
	/* a new request before the answer to the last one */
	pkt = packet(1, WIRE_REQ);
	pkt.h.req = 2;
	refused(1, &pkt, WIRE_HEAD);
}

/* Answers to what was not asked, beyond what was sent, larger than was allowed. */
TEST(answers_that_lie_are_dropped)
{
	static const struct {
		uint8_t type;
		uint16_t slot, pkt, status;
		uint32_t req, len, bytes;
	} bad[] = {
		{WIRE_RESP, 2, 0, 0, 1, 8, 8},
		{WIRE_RESP, 1, 0, 0, 1, 8, 8},
		{WIRE_RESP, 0, 0, 0, 2, 8, 8},
		{WIRE_RESP, 0, 0, 0, 0, 8, 8},
		{WIRE_RESP, 0, 0, 0, 1, 601, 228},
		{WIRE_RESP, 0, 0, 0, 1, UINT32_MAX, 228},
		{WIRE_RESP, 0, 0, 4096, 1, 0, 0},
		{WIRE_RESP, 0, 0, 2, 1, 8, 8},
		{WIRE_RESP, 0, 0, 0, 1, 8, 9},
		{WIRE_RESP, 0, 1, 0, 1, 300, 72},
		{WIRE_RESP, 0, 0, 0, 1, 8, 8}, /* not all of the request has been sent */
		{WIRE_CR, 2, 0, 0, 1, 0, 0},
		{WIRE_CR, 0, 3, 0, 1, 0, 0},
		{WIRE_CR, 0, 0, 0, 1, 0, 1},
		{WIRE_CR, 0, 1, 0, 1, 0, 0},
		{WIRE_RFR, 0, 1, 0, 1, 0, 0},
		{WIRE_RFR, 9, 1, 0, 1, 0, 0},
		{WIRE_RFR, 0, 1, 0, 1, 0, 1},
	};
	struct crpc_udrpc_conf one = conf;
	uint8_t bytes[600] = {0};

	one.credits = 1;
	pair_init(&one, 1, 1, 188, MTU);
	assert_ok(pair_call(0, bytes, 600, 600, 1));
	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		struct packet pkt = packet(0, (enum wire_type)bad[i].type);

		pkt.h.slot = bad[i].slot;
		pkt.h.pkt = bad[i].pkt;
		pkt.h.req = bad[i].req;
		pkt.h.len = bad[i].len;
		pkt.h.status = bad[i].status;
		refused(0, &pkt, WIRE_HEAD + bad[i].bytes);
	}
}

/* Pieces of a response that are not those of its first piece. */
TEST(a_response_keeps_its_length)
{
	struct crpc_done done[4];
	struct crpc_req req;
	struct packet pkt;
	uint8_t bytes[600] = {1, 2, 3};

	pair_init(&conf, 1, 1, 188, MTU);
	assert_ok(pair_call(0, NULL, 0, 600, 1));
	req = pair_take(1);
	assert_ok(pair_reply(1, req.token, bytes, 600));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 0);
	pkt = packet(0, WIRE_RESP);
	pkt.h.pkt = 1;
	pkt.h.len = 599;
	refused(0, &pkt, MTU);
	pkt.h.pkt = 2;
	pkt.h.len = 600;
	refused(0, &pkt, WIRE_HEAD + 144);
	pkt.h.pkt = 0;
	refused(0, &pkt, MTU);
	pkt = packet(1, WIRE_RFR); /* nor are pieces sent that it has not */
	pkt.h.pkt = 3;
	refused(1, &pkt, WIRE_HEAD);
	pair_flush(0);
	pair_poll(1, done, 4);
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].len, 600);
	assert_memory_equal(done[0].data, bytes, 600);
}

/* What answers a notification has no data, whatever its head says. */
TEST(a_notification_takes_no_response_with_data)
{
	struct packet pkt;

	pair_init(&conf, 1, 1, 188, MTU);
	assert_ok(pair_notify(0, NULL, 0));
	pkt = packet(0, WIRE_RESP);
	pkt.h.len = 1;
	refused(0, &pkt, WIRE_HEAD + 1);
	pkt.h.len = UINT32_MAX;
	refused(0, &pkt, MTU);
}

/* Nearly right packets of every kind to both sides, while they call each other. */
TEST(random_packets_break_nothing)
{
	struct crpc_done done[4];
	struct crpc_req req[4];
	uint8_t bytes[1000] = {0};
	uint16_t n;

	pair_init(&conf, 2, 3, 188, MTU);
	for (uint32_t i = 0; i < RANDOM; i++) {
		int to = (int)(crpc_paper_rnd(&p.w) % 2);
		struct packet pkt = packet(to, (enum wire_type)(crpc_paper_rnd(&p.w) % WIRE_BYE));

		pkt.h.slot = (uint16_t)(crpc_paper_rnd(&p.w) % 3);
		pkt.h.req = p.ep[to][0]->serves[0].req + (uint32_t)(crpc_paper_rnd(&p.w) % 3);
		pkt.h.pkt = (uint16_t)(crpc_paper_rnd(&p.w) % 5);
		pkt.h.len = (uint32_t)(crpc_paper_rnd(&p.w) % 1100);
		pkt.h.arg = (uint32_t)(crpc_paper_rnd(&p.w) % 1100);
		if (pkt.h.arg == 1099)
			pkt.h.arg = WIRE_ONEWAY;
		n = (uint16_t)(crpc_paper_rnd(&p.w) % 3);
		if (n == 0)
			crpc_paper_forge(
				p.dev[to], 0, 0, &pkt, (uint32_t)(crpc_paper_rnd(&p.w) % MTU));
		else
			crpc_paper_forge(p.dev[to], 0, 0, &pkt,
				WIRE_HEAD +
					(pkt.h.pkt * 228u < pkt.h.len
							? wire_piece(pkt.h.len, 228, pkt.h.pkt)
							: 0));
		pair_call(to, bytes, pkt.h.len % 1000, 900, i);
		p.w.now_ns += crpc_paper_rnd(&p.w) % 100000;
		crpc_paper_step(&p.w);
		crpc_udrpc_poll(p.ctx[to], p.w.now_ns, done, 4);
		n = pair_recv(to, req, 4);
		while (n-- != 0)
			if (pair_reply(to, req[n].token, req[n].data,
				    (uint32_t)crpc_min(req[n].len, 8)) == -EOPNOTSUPP)
				pair_release(to, req[n].token);
		if (i % 16 == 0)
			assert_ok(crpc_udrpc_check(p.ctx[to], false));
	}
	assert_true(dropped(p.ctx[0]) > RANDOM / 8);
	assert_true(pair_stats(0)->rpc.requests > RANDOM / 100);
	assert_ok(pair_status(0));
	/* the other session never noticed */
	assert_ok(crpc_udrpc_ep_status(p.ep[0][1]));
}

TEST_MAIN(NULL, pair_end)
