/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow modes, ways of noticing arrivals, the held flush, and gets and puts: what each one posts and
 * does not post, that both ends must agree, and that lies in memory are none until they are whole.
 */
#include "test.h"
#include "pair.h"
#include "crpc_rdma_driver.h"

#define RING 4096u

static const struct crpc_copyrpc_conf small = {
	.max_eps = PAIR_EPS, .ring_size = RING, .max_msg = 512, .max_inflight = 64};

static void
init_mode(enum crpc_copyrpc_flow flow, enum crpc_copyrpc_arrival arrival)
{
	pair_init3(&small, &small, 1, 3,
		(struct crpc_copyrpc_ep_conf){.flow = flow, .arrival = arrival});
}

/* One-way messages through a tiny ring, as fast as it lets. Returns the turns that it took. */
static uint32_t
one_way(uint32_t messages)
{
	static const uint8_t data[100];
	struct crpc_req req[CRPC_BURST_MAX];
	uint32_t sent = 0, got = 0, turns;
	uint16_t n;

	for (turns = 0; got < messages; turns++) {
		assert_true(turns < 100 * messages);
		while (sent < messages && pair_notify(0, data, 100) == 0)
			sent++;
		pair_flush(0);
		pair_turn(1);
		n = pair_recv(1, req, CRPC_BURST_MAX);
		got += n;
		while (n != 0)
			assert_ok(pair_release(1, req[--n].token));
		pair_flush(1);
		pair_turn(0);
	}
	return turns;
}

/* The window needs no READ and no more turns than READs do; each mode posts what it says. */
TEST(one_way_traffic_in_a_tiny_ring)
{
	const struct crpc_copyrpc_stats *stats[2];
	uint32_t turns[3][2], flow, arrival;
	const struct crpc_paper_counts *counts[2];

	for (flow = CRPC_COPYRPC_FLOW_WINDOW; flow <= CRPC_COPYRPC_FLOW_NOTIFY; flow++) {
		for (arrival = CRPC_COPYRPC_IMM; arrival <= CRPC_COPYRPC_MEMORY; arrival++) {
			init_mode(flow, arrival);
			turns[flow][arrival] = one_way(2000);
			for (int side = 0; side < 2; side++) {
				stats[side] = pair_stats(side);
				counts[side] = crpc_paper_counts(p.dev[side]);
				if (arrival == CRPC_COPYRPC_MEMORY)
					assert_int_equal(counts[side]->write_imms, 0);
				else
					assert_int_equal(counts[side]->writes, 0);
			}
			assert_int_equal(stats[0]->reads_sent, counts[0]->reads);
			assert_int_equal(counts[0]->reads != 0, flow == CRPC_COPYRPC_FLOW_READ);
			assert_int_equal(
				stats[1]->updates_sent == 0, flow == CRPC_COPYRPC_FLOW_READ);
			pair_at_rest();
		}
	}
	for (arrival = CRPC_COPYRPC_IMM; arrival <= CRPC_COPYRPC_MEMORY; arrival++)
		assert_true(turns[CRPC_COPYRPC_FLOW_WINDOW][arrival] <=
			turns[CRPC_COPYRPC_FLOW_READ][arrival]);
}

/* Under NOTIFY the heads of batches carry no new position, under WINDOW they do. */
TEST(positions_return_as_the_mode_says)
{
	struct crpc_req req;

	for (uint32_t flow = CRPC_COPYRPC_FLOW_WINDOW; flow <= CRPC_COPYRPC_FLOW_NOTIFY; flow++) {
		init_mode(flow, CRPC_COPYRPC_IMM);
		assert_ok(pair_call(0, "x", 1, 8, 1));
		req = pair_take(1);
		assert_ok(pair_reply(1, req.token, "y", 1));
		pair_flush(1);
		crpc_paper_run(&p.w);
		assert_int_equal(wire_batch_load(p.ep[0][0]->rx[WIRE_RESP]).released,
			flow == CRPC_COPYRPC_FLOW_NOTIFY ? 0 : 64);
		assert_int_equal(pair_stats(1)->updates_sent, flow == CRPC_COPYRPC_FLOW_NOTIFY);
	}
}

TEST(both_ends_must_have_the_same_modes)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_ep_conf mode = {0};
	struct crpc_copyrpc_ep *ep[2];

	pair_init(&small);
	for (uint32_t i = 1; i < 6; i++) {
		mode.flow = (enum crpc_copyrpc_flow)(i / 2);
		mode.arrival = (enum crpc_copyrpc_arrival)(i % 2);
		ep[0] = crpc_copyrpc_ep_create(p.ctx[0], 1);
		ep[1] = crpc_copyrpc_ep_create_as(p.ctx[1], 1, &mode);
		crpc_copyrpc_ep_addr(ep[0], addr[0]);
		crpc_copyrpc_ep_addr(ep[1], addr[1]);
		assert_int_equal(crpc_copyrpc_ep_connect(ep[0], addr[1]), -EPROTO);
		assert_int_equal(crpc_copyrpc_ep_connect(ep[1], addr[0]), -EPROTO);
		crpc_copyrpc_ep_free(ep[0]);
		crpc_copyrpc_ep_free(ep[1]);
	}
	mode.flow = (enum crpc_copyrpc_flow)3;
	assert_null(crpc_copyrpc_ep_create_as(p.ctx[0], 1, &mode));
	mode = (struct crpc_copyrpc_ep_conf){.arrival = (enum crpc_copyrpc_arrival)2};
	assert_null(crpc_copyrpc_ep_create_as(p.ctx[0], 1, &mode));
}

/* A batch that comes piece by piece is taken when its last bytes are there, and not before. */
TEST(batch_in_memory_counts_when_it_is_whole)
{
	uint8_t whole[RING], *ring;
	struct crpc_done done;
	struct crpc_req req;
	uint32_t len, i;

	init_mode(CRPC_COPYRPC_FLOW_WINDOW, CRPC_COPYRPC_MEMORY);
	assert_ok(pair_call(0, "0123456789", 10, 8, 1));
	assert_ok(pair_call(0, "abcdefghij", 10, 8, 2));
	pair_flush(0);
	crpc_paper_run(&p.w);
	ring = p.ep[1][0]->rx[WIRE_REQ];
	len = wire_batch_load(ring).len;
	assert_int_equal(len, 32 + 2 * 32 + 16);
	memcpy(whole, ring, len);
	for (i = 0; i < len; i++) {
		memset(ring, 0xa5, RING); /* bytes of another lap */
		memcpy(ring, whole, i);
		assert_int_equal(crpc_copyrpc_poll(p.ctx[1], p.w.now_ns, &done, 1), 0);
		assert_int_equal(pair_recv(1, &req, 1), 0);
		assert_ok(pair_status(1));
	}
	memcpy(ring, whole, len);
	assert_int_equal(crpc_copyrpc_poll(p.ctx[1], p.w.now_ns, &done, 1), 0);
	assert_int_equal(pair_recv(1, &req, 1), 1);
	assert_memory_equal(req.data, "0123456789", 10);
	/* and it is taken once */
	pair_turn(1);
	assert_int_equal(pair_stats(1)->batches_received, 1);
}

/* Replies that lie in memory in batches of their own are all given before a deadline counts. */
TEST(replies_in_memory_are_given_though_their_deadline_passed)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS, .timeout_ns = 1000000, .flush = CRPC_COPYRPC_IMMEDIATE};
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[3];

	pair_init3(
		&conf, &conf, 1, 3, (struct crpc_copyrpc_ep_conf){.arrival = CRPC_COPYRPC_MEMORY});
	for (uint32_t i = 0; i < 3; i++)
		assert_ok(pair_call(0, "c", 1, 16, i));
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 3), 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_ok(pair_reply(1, req[i].token, "r", 1));
	p.w.now_ns += 5 * conf.timeout_ns;
	assert_int_equal(pair_poll(0, done, CRPC_BURST_MAX), 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(done[i].status, 0);
}

/* Whole batches that lie close the endpoint, and so does an immediate that should not come. */
TEST(lies_in_memory_close_the_endpoint)
{
	struct crpc_done done;
	struct wire_batch head;
	struct wire_seal seal;
	struct wire_msg msg;
	uint8_t *ring;

	for (uint32_t i = 0; i < 9; i++) {
		init_mode(CRPC_COPYRPC_FLOW_WINDOW, CRPC_COPYRPC_MEMORY);
		ring = p.ep[1][0]->rx[WIRE_REQ];
		head = (struct wire_batch){.magic = WIRE_MAGIC,
			.version = WIRE_VERSION,
			.lane = i == 1 ? WIRE_RESP : WIRE_REQ,
			.epoch = p.ep[1][0]->conn->epoch,
			.len = 80,
			.count = i == 2 ? 2 : 1,
			.released = i == 3 ? 16 : 0};
		msg = (struct wire_msg){.id = 5, .len = i == 4 ? 17 : 16, .arg = i == 5 ? 513 : 8};
		seal = (struct wire_seal){.len = 80, .epoch = p.ep[1][0]->conn->epoch};
		if (i == 6) /* never whole: no lie */
			seal.len = 96;
		if (i == 7)
			crpc_store_relaxed(&p.ep[1][0]->conn->rx_words[WIRE_WORD_REPORTED / 8], 16);
		if (i == 8)
			crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_REQ, 80), NULL, 80);
		memcpy(ring, &head, sizeof(head));
		memcpy(ring + 32, &msg, sizeof(msg));
		memcpy(ring + 64, &seal, sizeof(seal));
		crpc_copyrpc_poll(p.ctx[1], p.w.now_ns, &done, 1);
		if (pair_status(1) != (i == 0 || i == 6 ? 0 : -EPROTO))
			fail_msg("case %u: status %d", i, pair_status(1));
		assert_ok(crpc_copyrpc_check(p.ctx[1], false));
	}
}

/* A whole batch of one message with 16 bytes, as it could come for an endpoint. */
struct imitation {
	struct wire_batch head;
	struct wire_msg msg;
	char data[16];
	struct wire_seal seal;
};

#define BIG 448u /* bytes of data in a batch of 512, an eighth of the ring */

/*
 * A message of a batch at the ring's start: it holds what could be the second batch of the next
 * lap, behind a first one of 80 bytes.
 */
static void
imitate(uint8_t big[BIG], enum wire_lane lane, uint32_t epoch, uint64_t pos, uint32_t id)
{
	const struct imitation fake = {.head = {.magic = WIRE_MAGIC,
					       .version = WIRE_VERSION,
					       .lane = (uint8_t)lane,
					       .epoch = epoch,
					       .len = sizeof(fake),
					       .count = 1,
					       .pos = pos},
		.msg = {.id = id, .len = 16, .arg = lane == WIRE_REQ ? 16 : 0},
		.data = "not what I sent",
		.seal = {.pos = pos, .len = sizeof(fake), .epoch = epoch}};

	_Static_assert(sizeof(fake) == 80, "as the first one");
	memset(big, 0, BIG);
	memcpy(big + 80 - WIRE_HEAD - sizeof(struct wire_msg), &fake, sizeof(fake));
}

/* One message to side 1, which takes and keeps it. */
static struct crpc_req
send_flush(const void *data, uint32_t len)
{
	struct crpc_req req;

	assert_ok(pair_notify(0, data, len));
	pair_flush(0);
	pair_turn(1);
	pair_turn(0);
	assert_int_equal(pair_recv(1, &req, 1), 1);
	assert_int_equal(req.len, len);
	assert_memory_equal(req.data, data, len);
	return req;
}

/* The same to its end, when its room is known to be free. */
static void
send_one(const void *data, uint32_t len)
{
	struct crpc_req req = send_flush(data, len);

	assert_ok(pair_release(1, req.token));
	p.w.now_ns += 100000;
	pair_turn(1);
	pair_turn(0);
}

static uint32_t
epoch_of(const struct crpc_copyrpc_ep *ep)
{
	struct wire_addr addr;

	crpc_copyrpc_ep_addr(ep, (uint8_t *)&addr);
	return addr.epoch;
}

/* Data of an earlier lap, or of an earlier connection, that looks like the next batch is none. */
TEST(data_that_looks_like_a_batch_of_requests_is_none)
{
	struct crpc_req req;
	uint8_t big[BIG];

	for (uint32_t flow = CRPC_COPYRPC_FLOW_WINDOW; flow <= CRPC_COPYRPC_FLOW_NOTIFY; flow++) {
		for (uint32_t again = 0; again < 2; again++) {
			init_mode(flow, CRPC_COPYRPC_MEMORY);
			imitate(big, WIRE_REQ, epoch_of(p.ep[1][0]) + again, again ? 80 : RING + 80,
				0);
			for (uint32_t i = 0; i < 8; i++) {
				if (again)
					send_flush(big, BIG);
				else
					send_one(big, BIG);
			}
			if (again)
				pair_reset();
			send_one("sixteen bytes...", 16);
			pair_turn(1);
			assert_int_equal(pair_recv(1, &req, 1), 0);
			assert_ok(pair_status(1));
			for (uint32_t i = 0; i < 20; i++)
				send_one(big, BIG);
		}
	}
}

/* The server answers its oldest request with these bytes; the client is given them. */
static void
answer_one(const void *data, uint32_t len)
{
	struct crpc_done done[2];
	struct crpc_req req;

	pair_turn(1);
	assert_int_equal(pair_recv(1, &req, 1), 1);
	assert_ok(pair_reply(1, req.token, data, len));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 2), 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[0].len, len);
	assert_memory_equal(done[0].data, data, len);
}

static void
ask(uint64_t cookie)
{
	assert_ok(pair_call(0, "x", 1, BIG, cookie));
	pair_flush(0);
}

TEST(data_that_looks_like_a_batch_of_responses_is_none)
{
	struct crpc_done done;
	uint8_t big[BIG];

	init_mode(CRPC_COPYRPC_FLOW_WINDOW, CRPC_COPYRPC_MEMORY);
	/* the first call of the second slot: one more is open then */
	imitate(big, WIRE_RESP, epoch_of(p.ep[0][0]), RING + 80, 2 + 2 * small.max_inflight);
	for (uint32_t i = 0; i < 8; i++) {
		ask(i);
		answer_one(big, BIG);
	}
	ask(8);
	ask(9);
	answer_one("sixteen bytes...", 16);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(pair_poll(0, &done, 1), 0);
	assert_int_equal(p.ep[0][0]->calls.open, 1);
	answer_one("what was sent...", 16);
	for (uint32_t i = 0; i < 20; i++) {
		ask(i);
		answer_one(big, BIG);
	}
}

/* HOLD: replies wait for each other, for the last request, or for the time; requests do not. */
TEST(held_replies_go_when_there_is_no_more_to_wait_for)
{
	struct crpc_copyrpc_conf conf = small;
	struct crpc_req req[4];

	conf.flush = CRPC_COPYRPC_HOLD;
	pair_init2(&conf, &conf, 3, 1);
	for (uint32_t i = 0; i < 4; i++) {
		assert_ok(pair_call(0, "x", 1, 8, i));
		assert_int_equal(pair_flush(0), 1);
	}
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 4), 4);
	p.ctx[1]->hold_ns = 5000;
	pair_reply(1, req[0].token, "y", 1);
	assert_int_equal(pair_flush(1), 0);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns + 4999), 0);
	assert_int_equal(crpc_copyrpc_flush(p.ctx[1], p.w.now_ns + 5000), 1);
	p.ctx[1]->hold_ns = 100000;
	pair_reply(1, req[1].token, "y", 1);
	pair_reply(1, req[2].token, "y", 1);
	assert_int_equal(pair_flush(1), 0);
	pair_reply(1, req[3].token, "y", 1);
	assert_int_equal(pair_flush(1), 1);
	assert_in_range(p.ctx[1]->hold_ns, 500, 100000);
}

/* Gets and puts beside calls: right bytes, in order, each one reported once; bounds are kept. */
TEST(gets_and_puts_complete_in_order)
{
	static uint8_t ours[RING], theirs[RING];
	struct crpc_rdma_mr mr[2];
	struct crpc_done done[80];
	uint32_t i, n;

	pair_init(&small);
	for (i = 0; i < RING; i++) {
		ours[i] = (uint8_t)i;
		theirs[i] = (uint8_t)(i * 7);
	}
	assert_ok(crpc_rdma_mr_reg(p.dev[0], ours, RING, &mr[0]));
	assert_ok(crpc_rdma_mr_reg(p.dev[1], theirs, RING, &mr[1]));
	assert_ok(crpc_copyrpc_put(p.ep[0][0], p.w.now_ns, &mr[0], ours + 16, 100,
		(uintptr_t)theirs + 8, mr[1].rkey, 1));
	assert_ok(crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours + 2048, 1000,
		(uintptr_t)theirs + 500, mr[1].rkey, 2));
	assert_ok(pair_call(0, "x", 1, 8, 3));
	assert_int_equal(pair_poll(0, done, 80), 2);
	for (i = 0; i < 2; i++) {
		assert_int_equal(done[i].cookie, i + 1);
		assert_int_equal(done[i].status, 0);
	}
	assert_ptr_equal(done[1].data, ours + 2048);
	assert_int_equal(done[1].len, 1000);
	assert_memory_equal(theirs + 8, ours + 16, 100);
	assert_memory_equal(ours + 2048, theirs + 500, 1000);
	assert_int_equal(
		crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours, 0, 0, 0, 4), -EINVAL);
	assert_int_equal(
		crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], theirs, 1, 0, 0, 4), -EINVAL);
	assert_int_equal(
		crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours + RING, 1, 0, 0, 4), -EINVAL);
	assert_int_equal(
		crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours + 1, RING, 0, 0, 4), -EINVAL);
	p.w.frozen = true;
	for (n = 0; crpc_copyrpc_put(p.ep[0][0], p.w.now_ns, &mr[0], ours, 1, (uintptr_t)theirs,
			    mr[1].rkey, n) == 0;)
		n++;
	assert_in_range(n, 32, 64);
	p.w.frozen = false;
	for (i = 0; i < n;) {
		uint16_t got = pair_poll(0, done, 7), k;

		for (k = 0; k < got; k++, i++)
			assert_int_equal(done[k].cookie, i);
	}
	/* a key that is wrong breaks the endpoint: all that is open from there on ends, once */
	for (i = 0; i < 5; i++)
		assert_ok(crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours, 1,
			(uintptr_t)theirs, i == 2 ? 77 : mr[1].rkey, i));
	n = pair_poll(0, done, 80);
	assert_int_equal(n, 6);
	for (i = 0; i < n; i++)
		assert_int_equal(done[i].status, i < 2 ? 0 : -ECONNRESET);
	assert_int_equal(
		crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &mr[0], ours, 1, 0, 0, 4), -ECONNRESET);
	crpc_rdma_mr_dereg(p.dev[0], &mr[0]);
	crpc_rdma_mr_dereg(p.dev[1], &mr[1]);
}

/* Regions of both ends for gets and puts. */
struct regions {
	uint8_t ours[256], theirs[256];
	struct crpc_rdma_mr mr[2];
};

static void
regions_open(struct regions *r)
{
	memset(r->ours, 1, sizeof(r->ours));
	memset(r->theirs, 2, sizeof(r->theirs));
	assert_ok(crpc_rdma_mr_reg(p.dev[0], r->ours, sizeof(r->ours), &r->mr[0]));
	assert_ok(crpc_rdma_mr_reg(p.dev[1], r->theirs, sizeof(r->theirs), &r->mr[1]));
}

static void
regions_close(struct regions *r)
{
	crpc_rdma_mr_dereg(p.dev[0], &r->mr[0]);
	crpc_rdma_mr_dereg(p.dev[1], &r->mr[1]);
}

/* A get into the first half and a put from the second one. */
static void
regions_use(struct regions *r)
{
	assert_ok(crpc_copyrpc_get(p.ep[0][0], p.w.now_ns, &r->mr[0], r->ours, 128,
		(uintptr_t)r->theirs, r->mr[1].rkey, 1));
	assert_ok(crpc_copyrpc_put(p.ep[0][0], p.w.now_ns, &r->mr[0], r->ours + 128, 128,
		(uintptr_t)r->theirs + 128, r->mr[1].rkey, 2));
}

/* What ends an endpoint whose queue pair works. */
static void
end_by(int how)
{
	if (how == 0)
		crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	else
		crpc_paper_forge(p.dev[0], 0, wire_imm(WIRE_IMM_REQ, 80), NULL, 1);
}

/*
 * Memory of a get or put is the user's with its completion, also if that is -ECONNRESET while the
 * queue pair works and the device has only begun: nothing is read from it or written to it then.
 */
TEST(memory_of_gets_and_puts_is_not_touched_after_their_end)
{
	static uint8_t ones[256];
	struct crpc_done done[4];
	struct regions r;

	memset(ones, 1, sizeof(ones));
	for (int how = 0; how < 2; how++) {
		init_mode(CRPC_COPYRPC_FLOW_WINDOW, CRPC_COPYRPC_IMM);
		regions_open(&r);
		p.w.frozen = true;
		regions_use(&r);
		end_by(how);
		assert_int_equal(pair_poll(0, done, 4), 2);
		for (int i = 0; i < 2; i++)
			assert_int_equal(done[i].status, -ECONNRESET);
		memset(r.ours + 128, 9, 128);
		p.w.frozen = false;
		crpc_paper_run(&p.w);
		assert_memory_equal(r.ours, ones, 128);
		assert_int_equal(r.theirs[128], 2);
		assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
		regions_close(&r);
	}
}

/* A device that cannot stop at once: calls end, gets and puts when it has done with them. */
TEST(gets_and_puts_end_when_the_device_has_released_them)
{
	struct crpc_done done[4];
	struct regions r;

	pair_init3(&small, &small, 1, 42, (struct crpc_copyrpc_ep_conf){.transport = CRPC_RDMA_DC});
	regions_open(&r);
	p.w.frozen = true;
	regions_use(&r);
	assert_ok(pair_call(0, "x", 1, 8, 3));
	crpc_copyrpc_ep_shutdown(p.ep[0][0]);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_int_equal(done[0].cookie, 3);
	assert_int_equal(done[0].status, -ECONNRESET);
	for (int i = 0; i < 5; i++)
		pair_turn(0);
	assert_int_equal(crpc_copyrpc_ep_reset(p.ep[0][0]), -EBUSY);
	p.w.frozen = false;
	crpc_paper_run(&p.w);
	assert_int_equal(r.ours[0], 2);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(pair_poll(0, done, 1), 1);
		assert_int_equal(done[0].cookie, i);
		assert_int_equal(done[0].status, -ECONNRESET);
	}
	pair_turn(0);
	assert_ok(crpc_copyrpc_ep_reset(p.ep[0][0]));
	regions_close(&r);
}

static int
not_in_order(struct crpc_rdma_qp *qp)
{
	return 0;
}

/* A device that may reorder the bytes of a write would show batches before they are whole. */
TEST(arrival_in_memory_is_refused_where_writes_are_out_of_order)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
	struct crpc_rdma_ops ops;

	init_mode(CRPC_COPYRPC_FLOW_WINDOW, CRPC_COPYRPC_IMM);
	ops = *p.dev[0]->ops;
	ops.qp_in_order = not_in_order;
	p.dev[0]->ops = &ops;
	pair_connect(1);
	p.mode.arrival = CRPC_COPYRPC_MEMORY;
	for (int side = 0; side < 2; side++) {
		p.ep[side][2] = crpc_copyrpc_ep_create_as(p.ctx[side], 102, &p.mode);
		assert_non_null(p.ep[side][2]);
	}
	p.neps = 3;
	crpc_copyrpc_ep_addr(p.ep[1][2], addr);
	assert_int_equal(crpc_copyrpc_ep_connect(p.ep[0][2], addr), -EOPNOTSUPP);
	crpc_copyrpc_ep_addr(p.ep[0][2], addr);
	assert_int_equal(crpc_copyrpc_ep_connect(p.ep[1][2], addr), 0);
	pair_fini();
}

TEST_MAIN(NULL, pair_end)
