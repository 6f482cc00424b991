/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer that lies, an application that errs, or a device that fails late can do: every field
 * of a batch is forged once and closes the endpoint with the rule named; addresses and sizes are
 * refused; and seeded mutations of everything that arrives never lead out of bounds (run under the
 * sanitizers).
 */
#include <stdlib.h>

#include "test.h"
#include "pair.h"

#define RING 4096u

static const struct crpc_copyrpc_conf small = {
	.max_eps = PAIR_EPS,
	.ring_size = RING,
	.max_msg = 1024,
	.max_inflight = 8,
	.sq_depth = 16,
};

/* A batch as the peer of side 1 could send it: one request or response of 16 bytes. */
struct forged {
	struct wire_batch head;
	struct wire_msg msg;
	uint32_t imm;
	uint32_t byte_len;
};

static struct forged
forged_make(enum wire_lane lane)
{
	const struct crpc_copyrpc_ep *ep = p.ep[1][0];
	struct forged f = {
		.head = {.magic = WIRE_MAGIC,
			.version = WIRE_VERSION,
			.lane = (uint8_t)lane,
			.epoch = ep->conn->epoch,
			.len = 64,
			.count = 1,
			.pos = ep->conn->rx_pos[lane]},
		.msg = {.id = 0x100, .len = 16, .arg = 16},
		.imm = wire_imm((enum wire_imm)lane, 64),
		.byte_len = 64,
	};

	return f;
}

static void
forged_send(enum wire_lane lane, const struct forged *f)
{
	uint8_t *at = p.ep[1][0]->rx[lane] + (p.ep[1][0]->conn->rx_pos[lane] & (RING - 1));

	memcpy(at, &f->head, sizeof(f->head));
	memcpy(at + WIRE_HEAD, &f->msg, sizeof(f->msg));
	crpc_paper_forge(p.dev[1], 0, f->imm, NULL, f->byte_len);
}

/* Side 1 has one open call with id in its first slot; returns that id. */
static uint32_t
open_call(void)
{
	assert_ok(pair_call(1, "x", 1, 16, 9));
	pair_flush(1);
	return p.ep[1][0]->slots[1].call.id;
}

/* Change the bits that are set in @p lie. */
static void
forged_flip(struct forged *f, const struct forged *lie)
{
	for (size_t i = 0; i < sizeof(*f); i++)
		((uint8_t *)f)[i] ^= ((const uint8_t *)lie)[i];
}

/* What turns the immediate of a request batch of 64 bytes into another one. */
#define IMM_FLIP(kind, bytes)                                                                      \
	((uint32_t)(WIRE_IMM_REQ ^ (kind)) << WIRE_IMM_BITS |                                      \
		(uint32_t)(64 / WIRE_UNIT ^ (bytes) / WIRE_UNIT))

/* Requests of which one thing is not true: old value ^ new value. */
static const struct forged request_lies[] = {
	{.head.magic = 1}, {.head.version = 1}, {.head.lane = WIRE_RESP}, {.head.epoch = 1},
	{.head.len = 64 ^ 80}, {.head.len = 64 ^ UINT32_MAX}, {.head.count = 1 ^ 0},
	{.head.count = 1 ^ 2}, {.head.count = 1 ^ UINT32_MAX}, {.head.pos = 16},
	{.head.released = 16}, {.head.released = UINT64_MAX}, {.msg.len = 16 ^ 17},
	{.msg.len = 16 ^ UINT32_MAX}, {.msg.len = 16 ^ (UINT32_MAX - 15)}, {.msg.len = 16 ^ 1025},
	{.msg.arg = 16 ^ 1025}, {.msg.arg = 16 ^ (UINT32_MAX - 1)},
	{.imm = IMM_FLIP(WIRE_IMM_REQ, 80)}, {.imm = IMM_FLIP(WIRE_IMM_REQ, 0), .byte_len = 64 ^ 0},
	{.imm = IMM_FLIP(WIRE_IMM_ALIVE, 64)},
	{.imm = IMM_FLIP(WIRE_IMM_REQ, 16ull * WIRE_IMM_MASK)}, {.byte_len = 64 ^ 48},
	{.imm = IMM_FLIP(WIRE_IMM_UPDATE, 16), .byte_len = 64 ^ 0},
	{.imm = IMM_FLIP(WIRE_IMM_UPDATE, 0)},
	{.imm = IMM_FLIP(WIRE_IMM_UPDATE, 1ull << 33), .byte_len = 64 ^ 0},
	{.imm = IMM_FLIP(WIRE_IMM_REQ, 96), .byte_len = 64 ^ 96, .head.len = 64 ^ 96},
	{.imm = IMM_FLIP(WIRE_IMM_REQ, 32), .byte_len = 64 ^ 32, .head.len = 64 ^ 32},
	{.imm = 0}, /* none: it is taken */
};
#define REQUEST_LIES (CRPC_DIM(request_lies) - 1)

TEST(each_lie_of_a_request_batch_closes_the_endpoint)
{
	struct crpc_req req;
	struct forged f;

	for (uint32_t i = 0; i <= REQUEST_LIES; i++) {
		pair_init(&small);
		f = forged_make(WIRE_REQ);
		forged_flip(&f, &request_lies[i]);
		crpc_log_clear();
		forged_send(WIRE_REQ, &f);
		pair_turn(1);
		if (i == REQUEST_LIES) { /* the same without a lie is taken */
			assert_ok(pair_status(1));
			assert_int_equal(pair_recv(1, &req, 1), 1);
		} else {
			if (pair_status(1) != -EPROTO)
				fail_msg("lie %u was believed", i);
			assert_non_null(strstr(crpc_log_last(), "expected"));
			assert_int_equal(pair_recv(1, &req, 1), 0);
		}
		assert_ok(crpc_copyrpc_check(p.ctx[1], false));
	}
}

/* More bytes than the window allows, though each batch is well formed. */
TEST(requests_beyond_the_window_close_the_endpoint)
{
	struct forged f;

	pair_init(&small);
	for (uint32_t i = 0; i < RING / 64; i++) {
		assert_ok(pair_status(1));
		f = forged_make(WIRE_REQ);
		f.msg.id = 0;
		f.msg.arg = WIRE_ONEWAY;
		forged_send(WIRE_REQ, &f);
		pair_turn(1);
	}
	assert_ok(pair_status(1));
	f = forged_make(WIRE_REQ);
	forged_send(WIRE_REQ, &f);
	pair_turn(1);
	assert_int_equal(pair_status(1), -EPROTO);
}

/*
 * A caller that reserves more replies than its ring holds would make us overrun our own staging
 * ring.
 */
TEST(replies_reserved_beyond_the_ring_close_the_endpoint)
{
	uint32_t i;

	pair_init(&small);
	for (i = 0; i < 8 && pair_status(1) == 0; i++) {
		struct forged f = forged_make(WIRE_REQ);

		f.msg.arg = 1024;
		forged_send(WIRE_REQ, &f);
		pair_turn(1);
	}
	assert_int_equal(i, 3); /* 2 * 1072 and the skip fit 4096 bytes, 3 do not */
	assert_non_null(strstr(crpc_log_last(), "reserved"));
}

TEST(each_lie_of_a_response_batch_closes_the_endpoint)
{
	static const struct forged response_lies[] = {
		{.msg.len = 16 ^ 17}, {.msg.len = 16 ^ UINT32_MAX}, {.msg.arg = 1},
		{.msg.arg = (uint32_t)-5000}, {.msg.arg = (uint32_t)-5}, /* an error with data */
		{.imm = 0},                                              /* none: it is taken */
	};
	struct crpc_done done[4];
	struct forged f;
	uint32_t i, n;

	for (i = 0; i < CRPC_DIM(response_lies); i++) {
		pair_init(&small);
		p.w.frozen = true;
		f = forged_make(WIRE_RESP);
		f.msg.id = open_call();
		f.msg.arg = 0;
		forged_flip(&f, &response_lies[i]);
		forged_send(WIRE_RESP, &f);
		n = pair_poll(1, done, 4);
		assert_int_equal(n, 1);
		assert_int_equal(done[0].cookie, 9);
		assert_int_equal(done[0].status, i < 5 ? -ECONNRESET : 0);
		assert_int_equal(pair_status(1), i < 5 ? -EPROTO : 0);
		assert_int_equal(pair_poll(1, done, 4), 0);
	}
}

/* A status that there is not, behind one that there is: it is no success like the ones before. */
TEST(positive_status_behind_an_error_closes_the_endpoint)
{
	struct crpc_done done[4];
	struct wire_msg second;
	struct forged f;

	pair_init(&small);
	p.w.frozen = true;
	assert_ok(pair_call(1, "x", 1, 16, 8));
	open_call();
	f = forged_make(WIRE_RESP);
	f.head.len = f.byte_len = 96;
	f.head.count = 2;
	f.imm = wire_imm(WIRE_IMM_RESP, 96);
	f.msg = (struct wire_msg){.id = p.ep[1][0]->slots[1].call.id, .arg = (uint32_t)-5};
	second = (struct wire_msg){.id = p.ep[1][0]->slots[2].call.id, .len = 16, .arg = 1};
	memcpy(p.ep[1][0]->rx[WIRE_RESP] + 64, &second, sizeof(second));
	forged_send(WIRE_RESP, &f);
	assert_int_equal(pair_poll(1, done, 4), 2);
	assert_int_equal(done[0].cookie, 8);
	assert_int_equal(done[0].status, -5);
	assert_int_equal(done[1].status, -ECONNRESET);
	assert_int_equal(pair_status(1), -EPROTO);
}

/*
 * A response for no call, for one that is not sent, or a second one for the same call changes
 * nothing.
 */
TEST(duplicate_and_unknown_responses_are_counted_and_dropped)
{
	const struct crpc_copyrpc_stats *stats;
	struct crpc_done done[4];
	struct forged f;
	uint32_t id;

	pair_init(&small);
	p.w.frozen = true;
	stats = pair_stats(1);
	id = open_call();
	assert_ok(pair_call(1, "x", 1, 16, 10));
	f = forged_make(WIRE_RESP);
	f.msg.arg = 0;
	f.msg.id = p.ep[1][0]->slots[2].call.id; /* queued, not sent */
	forged_send(WIRE_RESP, &f);
	assert_int_equal(crpc_copyrpc_poll(p.ctx[1], p.w.now_ns, done, 4), 0);
	assert_int_equal(stats->rpc.malformed, 1);
	f = forged_make(WIRE_RESP);
	f.msg.arg = 0;
	f.msg.id = id + 16; /* another generation */
	forged_send(WIRE_RESP, &f);
	assert_int_equal(pair_poll(1, done, 4), 0);
	assert_int_equal(stats->rpc.malformed, 2);
	for (int i = 0; i < 3; i++) {
		f = forged_make(WIRE_RESP);
		f.msg.arg = 0;
		f.msg.id = id;
		forged_send(WIRE_RESP, &f);
		assert_int_equal(pair_poll(1, done, 4), i == 0);
	}
	assert_int_equal(stats->rpc.malformed, 4);
	assert_ok(pair_status(1));
	assert_ok(crpc_copyrpc_check(p.ctx[1], false));
}

/* A batch of more responses than calls can be open is a lie: there is no window on their lane. */
TEST(more_responses_than_calls_close_the_endpoint)
{
	struct crpc_done done[4];
	struct wire_msg *msg;
	struct forged f;

	for (uint32_t n = small.max_inflight; n <= small.max_inflight + 1; n++) {
		pair_init(&small);
		p.w.frozen = true;
		f = forged_make(WIRE_RESP);
		f.msg = (struct wire_msg){.id = 0x7f00};
		f.head.count = n;
		f.head.len = WIRE_HEAD + n * WIRE_STRIDE_MIN;
		f.byte_len = f.head.len;
		f.imm = wire_imm(WIRE_IMM_RESP, f.head.len);
		msg = (struct wire_msg *)(void *)(p.ep[1][0]->rx[WIRE_RESP] + WIRE_HEAD);
		for (uint32_t i = 0; i < n; i++)
			memcpy((uint8_t *)msg + i * WIRE_STRIDE_MIN, &f.msg, sizeof(f.msg));
		forged_send(WIRE_RESP, &f);
		assert_int_equal(crpc_copyrpc_poll(p.ctx[1], p.w.now_ns, done, 4), 0);
		assert_int_equal(pair_status(1), n > small.max_inflight ? -EPROTO : 0);
	}
}

/*
 * The room that a server grants is judged by the replies that are due, not by a larger one of the
 * past: a caller that reserves as the wire document says is no liar.
 */
TEST(room_is_judged_by_the_replies_that_are_due)
{
	struct crpc_done done[4];
	struct crpc_req req[4];

	pair_init(&small);
	assert_ok(pair_call(0, "x", 1, 1024, 1));
	pair_turn(0);
	pair_turn(1);
	assert_int_equal(pair_recv(1, req, 4), 1);
	assert_true(p.ep[1][0]->conn->peer_resv.max >= 1024);
	assert_ok(pair_reply(1, req[0].token, "y", 1));
	pair_turn(1);
	assert_int_equal(p.ep[1][0]->conn->peer_resv.max, 0);
	assert_int_equal(p.ep[1][0]->conn->peer_resv.left, RING);
	assert_int_equal(pair_poll(0, done, 4), 1);
}

/* A released position that comes twice or late is harmless. */
TEST(repeated_and_old_window_updates_change_nothing)
{
	pair_init(&small);
	for (int i = 0; i < 8; i++) {
		assert_ok(pair_notify(1, "x", 1));
		pair_flush(1);
		pair_turn(1);
	}
	for (int i = 0; i < 3; i++) {
		crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_UPDATE, 128), NULL, 0);
		crpc_paper_forge(p.dev[1], 0, wire_imm(WIRE_IMM_UPDATE, 64), NULL, 0);
		pair_turn(1);
		assert_int_equal(p.ep[1][0]->conn->peer_released, 128);
	}
	assert_ok(pair_status(1));
}

/* Flip bits in memory, immediates and lengths on their way. */
static void
mutate(struct crpc_paper *w, uint8_t *dst, uint32_t len, uint32_t *imm, uint32_t *byte_len)
{
	uint64_t r = crpc_paper_rnd(w), bits = crpc_paper_rnd(w) % 4;

	if (r % 16 != 0)
		return;
	switch (r >> 8 & 7) {
	case 0:
		*imm ^= 1u << (r >> 16 & 31);
		break;
	case 1:
		*byte_len ^= 1u << (r >> 16 & 31);
		break;
	case 2:
		*imm = (uint32_t)crpc_paper_rnd(w);
		break;
	default:
		for (; bits != 0 && len != 0; bits--)
			dst[crpc_paper_rnd(w) % crpc_min(len, 96)] ^=
				(uint8_t)(1u << (crpc_paper_rnd(w) & 7));
		break;
	}
}

/*
 * One connection of a pair under mutation, until both ends have closed; what was accepted ends
 * once.
 */
static void
mutated_connection(uint64_t seed)
{
	struct crpc_done done[16];
	struct crpc_req req[16];
	uint64_t accepted[2] = {0}, ended[2] = {0};
	uint16_t n;
	int i, side;

	pair_init2(&small, &small, 2, seed);
	p.w.hook = mutate;
	for (i = 0; i < 400; i++) {
		side = i & 1;
		while (crpc_paper_rnd(&p.w) % 4)
			accepted[side] +=
				crpc_copyrpc_call(p.ep[side][crpc_paper_rnd(&p.w) % 2], p.w.now_ns,
					done, (uint32_t)(crpc_paper_rnd(&p.w) % 200), 64, 0) == 0;
		ended[side] += pair_poll(side, done, 16);
		n = pair_recv(side, req, 16);
		while (n != 0) {
			n--;
			pair_reply(side, req[n].token, req[n].data,
				(uint32_t)crpc_min(req[n].len, 64));
		}
		assert_ok(crpc_copyrpc_check(p.ctx[side], false));
	}
	for (side = 0; side < 2; side++) {
		crpc_copyrpc_ep_shutdown(p.ep[side][0]);
		crpc_copyrpc_ep_shutdown(p.ep[side][1]);
		do {
			n = crpc_copyrpc_poll(p.ctx[side], p.w.now_ns, done, 16);
			ended[side] += n;
		} while (n != 0);
		assert_int_equal(ended[side], accepted[side]);
		assert_ok(crpc_copyrpc_check(p.ctx[side], true));
	}
}

TEST(mutated_batches_never_lead_out_of_bounds)
{
	const char *many = getenv("CRPC_SEEDS");
	uint64_t seeds = many != NULL ? strtoull(many, NULL, 0) : 2000, seed;

	for (seed = 1; seed <= seeds; seed++)
		mutated_connection(seed);
}

/* Sizes out of range: EINVAL, and the log names the field. */
TEST(sizes_out_of_range_are_refused_by_name)
{
	struct crpc_paper w = {.rng = 1};
	struct crpc_rdma *dev = crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 64});
	static const struct {
		struct crpc_copyrpc_conf conf;
		const char *name;
	} bad[] = {
		{{.ring_size = 5000}, "ring_size"},
		{{.ring_size = CRPC_COPYRPC_RING_MIN / 2}, "ring_size"},
		{{.ring_size = 1u << 31}, "ring_size"},
		{{.ring_size = 4096, .max_msg = 2048 - 63}, "max_msg"},
		{{.max_eps = CRPC_COPYRPC_EPS_MAX + 1}, "max_eps"},
		{{.max_inflight = CRPC_COPYRPC_INFLIGHT_MAX + 1}, "max_inflight"},
		{{.flush = (enum crpc_copyrpc_flush_policy)4}, "flush"},
		{{.max_outstanding = 65}, "max_outstanding"},
		{{.sq_depth = 7}, "sq_depth"},
		{{.rq_depth = 40000}, "rq_depth"},
		{{.initial_pos = 8}, "initial_pos"},
	};

	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		struct crpc_copyrpc_conf conf = bad[i].conf;

		conf.dev = dev;
		errno = 0;
		assert_null(crpc_copyrpc_create(&conf));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].name));
	}
	assert_null(crpc_copyrpc_create(&(struct crpc_copyrpc_conf){0}));
	assert_non_null(strstr(crpc_log_last(), "dev"));
	crpc_rdma_close(dev);
}

TEST(addresses_that_are_none_are_refused)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN], bad[CRPC_COPYRPC_ADDR_LEN];
	/* magic, version, flags, ring size, max_msg, position */
	static const uint32_t at[] = {0, 4, 6, 9, 14, 32};
	struct crpc_copyrpc_ep *ep;

	pair_init(&small);
	ep = crpc_copyrpc_ep_create(p.ctx[0], 7);
	assert_non_null(ep);
	assert_int_equal(crpc_copyrpc_ep_status(ep), -ENOTCONN);
	assert_int_equal(crpc_copyrpc_call(ep, 0, "x", 1, 1, 1), -ENOTCONN);
	crpc_copyrpc_ep_addr(p.ep[1][0], addr);
	for (uint32_t i = 0; i < CRPC_DIM(at); i++) {
		memcpy(bad, addr, sizeof(bad));
		bad[at[i]] ^= 1;
		assert_int_equal(crpc_copyrpc_ep_connect(ep, bad), -EPROTO);
	}
	memset(bad, 0, sizeof(bad));
	assert_int_equal(crpc_copyrpc_ep_connect(ep, bad), -EPROTO);
	assert_int_equal(crpc_copyrpc_ep_connect(p.ep[0][0], addr), -EISCONN);
}

/* Endpoints come and go while completions of the old ones are still in flight. */
TEST(endpoint_churn_leaves_nothing_behind)
{
	struct crpc_done done[1];
	struct crpc_req req;

	pair_init2(&small, &small, 3, 5);
	for (uint32_t i = 0; i < 60; i++) {
		for (uint32_t e = 0; e < 3; e++) {
			assert_ok(crpc_copyrpc_call(p.ep[0][e], p.w.now_ns, "x", 1, 8, e));
			assert_ok(crpc_copyrpc_call(p.ep[1][e], p.w.now_ns, "x", 1, 8, e));
		}
		pair_flush(0);
		if (i % 3 == 0)
			crpc_copyrpc_ep_shutdown(p.ep[0][i % 2]);
		if (i % 2 == 0)
			pair_turn(1);
		if (i % 5 == 0)
			pair_recv(1, &req, 1);
		if (i % 7 == 0)
			crpc_copyrpc_poll(p.ctx[0], p.w.now_ns, done, 1);
		for (uint32_t e = 0; e < 3; e++) {
			crpc_copyrpc_ep_free(p.ep[e & 1][e]);
			assert_ok(crpc_copyrpc_check(p.ctx[0], false));
			assert_ok(crpc_copyrpc_check(p.ctx[1], false));
			crpc_copyrpc_ep_free(p.ep[!(e & 1)][e]);
		}
		for (uint32_t e = 0; e < 3; e++)
			pair_connect(e);
		p.w.now_ns += 1000000;
	}
	pair_at_rest();
}

TEST_MAIN(NULL, pair_end)
