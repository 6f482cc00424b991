/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire format against its specification: sizes, immediates, where batches lie, and whole
 * batches byte by byte against test/golden (`CRPC_GOLDEN_WRITE=1` writes the files again, after a
 * change of version).
 */
#include <stdio.h>

#include "test.h"
#include "golden.h"
#include "pair.h"

TEST(messages_take_whole_units_and_at_least_two)
{
	static const struct {
		uint32_t len, stride;
	} t[] = {{0, 32}, {1, 32}, {16, 32}, {17, 48}, {32, 48}, {33, 64}, {4096, 4112}};

	for (uint32_t i = 0; i < CRPC_DIM(t); i++) {
		assert_int_equal(wire_stride(t[i].len), t[i].stride);
		assert_int_equal(wire_worst(t[i].len), t[i].stride + 32);
	}
	/* two worst cases of the largest message fit every ring */
	for (uint32_t i = CRPC_COPYRPC_RING_MIN; i != 0 && i <= CRPC_COPYRPC_RING_MAX; i <<= 1)
		assert_in_range(2ull * wire_worst(CRPC_COPYRPC_MSG_MAX(i)), i / 2, i);
}

TEST(immediates_hold_kind_and_units)
{
	assert_int_equal(wire_imm(WIRE_IMM_REQ, 64), 4);
	assert_int_equal(wire_imm(WIRE_IMM_RESP, 64), 0x40000004);
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, 0x40), 0x80000004);
	/* a position keeps its low 30 bits of units */
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, (1ull << 34) + 16), 0x80000001);
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, -16ull), 0xbfffffff);
	assert_int_equal(wire_imm(WIRE_IMM_REQ, CRPC_COPYRPC_RING_MAX), 1u << 26);
}

TEST(a_batch_starts_anew_where_the_ring_would_end_in_it)
{
	assert_int_equal(wire_batch_pos(0, 4096, 4096), 0);
	assert_int_equal(wire_batch_pos(4096 - 64, 64, 4096), 4096 - 64);
	assert_int_equal(wire_batch_pos(4096 - 64, 80, 4096), 4096);
	assert_int_equal(wire_batch_pos(4096 - 16, 64, 4096), 4096);
	assert_int_equal(wire_batch_pos(4096, 64, 4096), 4096);
	assert_int_equal(wire_batch_pos(-16ull, 16, 4096), -16ull);
	assert_int_equal(wire_batch_pos(-16ull, 64, 4096), 0);
}

/* Two calls and a notification; a reply and a failure. */
TEST(batches_are_byte_by_byte_as_specified)
{
	static const struct crpc_copyrpc_conf conf = {.ring_size = 4096, .initial_pos = 0x1000};
	struct crpc_done done[4];
	struct crpc_req req[4];

	pair_init(&conf);
	p.w.now_ns = 5000;
	assert_ok(crpc_copyrpc_call(p.ep[0][0], 5000, "first request", 13, 20, 1));
	assert_ok(crpc_copyrpc_call(p.ep[0][0], 5000, "0123456789abcdefg", 17, 0, 2));
	assert_ok(crpc_copyrpc_notify(p.ep[0][0], 5000, NULL, 0));
	crpc_copyrpc_flush(p.ctx[0], 5000);
	pair_turn(1);
	golden_hex(CRPC_GOLDEN_DIR "/copyrpc_v3_requests.hex", p.ep[1][0]->rx[WIRE_REQ], 144);
	assert_int_equal(pair_recv(1, req, 4), 3);
	assert_ok(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns + 777, req[0].token, "yes", 3));
	assert_ok(crpc_copyrpc_fail(p.ctx[1], p.w.now_ns + 888, req[1].token, -ENOENT));
	assert_ok(pair_release(1, req[2].token));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 2);
	golden_hex(CRPC_GOLDEN_DIR "/copyrpc_v3_responses.hex", p.ep[0][0]->rx[WIRE_RESP], 96);
}

TEST(address_is_byte_by_byte_as_specified)
{
	struct wire_addr addr = {
		.magic = WIRE_ADDR_MAGIC,
		.version = WIRE_VERSION,
		.ring_size = 0x40000,
		.max_msg = 0x10000,
		.epoch = 7,
		.rkey = 0x11223344,
		.raddr = 0x00007f1234567000,
		.pos = 0x10,
	};
	uint8_t bytes[CRPC_COPYRPC_ADDR_LEN], real[CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_conf conf = {.ring_size = 0x40000, .initial_pos = 0x10};
	struct crpc_copyrpc_ep *ep;

	memset(addr.qp, 0xab, sizeof(addr.qp));
	memcpy(bytes, &addr, sizeof(bytes));
	golden_hex(CRPC_GOLDEN_DIR "/copyrpc_v3_address.hex", bytes, sizeof(bytes));
	/* and a real one has the same words in the same places */
	pair_init(&conf);
	ep = p.ep[0][0];
	crpc_copyrpc_ep_addr(ep, real);
	addr.epoch = ep->conn->epoch;
	addr.rkey = ep->conn->rx_mr.rkey;
	addr.raddr = (uintptr_t)ep->rx[WIRE_REQ];
	assert_memory_equal(real, &addr, offsetof(struct wire_addr, qp));
}

TEST_MAIN(NULL, pair_end)
