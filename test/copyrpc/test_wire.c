/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire format against its specification: sizes, immediates, where batches lie, and whole
 * batches byte by byte against test/golden (`CRPC_GOLDEN_WRITE=1` writes the files again, after a
 * change of version).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

static void
messages_take_whole_units_and_at_least_two(void **state)
{
	static const struct {
		uint32_t len, stride;
	} t[] = {{0, 32}, {1, 32}, {16, 32}, {17, 48}, {32, 48}, {33, 64}, {4096, 4112}};
	uint32_t i;

	for (i = 0; i < CRPC_DIM(t); i++) {
		assert_int_equal(wire_stride(t[i].len), t[i].stride);
		assert_int_equal(wire_worst(t[i].len), t[i].stride + 32);
	}
	/* two worst cases of the largest message fit every ring */
	for (i = CRPC_COPYRPC_RING_MIN; i != 0 && i <= CRPC_COPYRPC_RING_MAX; i <<= 1)
		assert_in_range(2ull * wire_worst(CRPC_COPYRPC_MSG_MAX(i)), i / 2, i);
}

static void
immediates_hold_kind_and_units(void **state)
{
	assert_int_equal(wire_imm(WIRE_IMM_REQ, 64), 4);
	assert_int_equal(wire_imm(WIRE_IMM_RESP, 64), 0x40000004);
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, 0x40), 0x80000004);
	/* a position keeps its low 30 bits of units */
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, (1ull << 34) + 16), 0x80000001);
	assert_int_equal(wire_imm(WIRE_IMM_UPDATE, -16ull), 0xbfffffff);
	assert_int_equal(wire_imm(WIRE_IMM_REQ, CRPC_COPYRPC_RING_MAX), 1u << 26);
}

static void
a_batch_starts_anew_where_the_ring_would_end_in_it(void **state)
{
	assert_int_equal(wire_batch_pos(0, 4096, 4096), 0);
	assert_int_equal(wire_batch_pos(4096 - 64, 64, 4096), 4096 - 64);
	assert_int_equal(wire_batch_pos(4096 - 64, 80, 4096), 4096);
	assert_int_equal(wire_batch_pos(4096 - 16, 64, 4096), 4096);
	assert_int_equal(wire_batch_pos(4096, 64, 4096), 4096);
	assert_int_equal(wire_batch_pos(-16ull, 16, 4096), -16ull);
	assert_int_equal(wire_batch_pos(-16ull, 64, 4096), 0);
}

/* Compare with a golden file of hex lines, or write it. */
static void
golden(const char *name, const uint8_t *bytes, uint32_t len)
{
	char path[512];
	unsigned int v;
	uint32_t i;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", CRPC_GOLDEN_DIR, name);
	if (getenv("CRPC_GOLDEN_WRITE") != NULL) {
		f = fopen(path, "w");
		assert_non_null(f);
		for (i = 0; i < len; i++)
			fprintf(f, "%02x%c", bytes[i], i % 16 == 15 || i == len - 1 ? '\n' : ' ');
		fclose(f);
	}
	f = fopen(path, "r");
	if (f == NULL)
		fail_msg("%s: no such file", path);
	for (i = 0; i < len; i++) {
		assert_int_equal(fscanf(f, "%2x", &v), 1);
		if (v != bytes[i])
			fail_msg("%s: byte %u: expected %02x, found %02x", path, i, v, bytes[i]);
	}
	assert_int_equal(fscanf(f, "%2x", &v), EOF);
	fclose(f);
}

/* Two calls and a notification; a reply and a failure. */
static void
batches_are_byte_by_byte_as_specified(void **state)
{
	static const struct crpc_copyrpc_conf conf = {.ring_size = 4096, .initial_pos = 0x1000};
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct pair p;

	pair_init(&p, &conf);
	p.w.now_ns = 5000;
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 5000, "first request", 13, 20, 1), 0);
	assert_int_equal(crpc_copyrpc_call(p.ep[0][0], 5000, "0123456789abcdefg", 17, 0, 2), 0);
	assert_int_equal(crpc_copyrpc_notify(p.ep[0][0], 5000, NULL, 0), 0);
	crpc_copyrpc_flush(p.ctx[0], 5000);
	pair_turn(&p, 1);
	golden("copyrpc_v3_requests.hex", p.ep[1][0]->rx[WIRE_REQ], 144);
	assert_int_equal(crpc_copyrpc_recv(p.ctx[1], p.w.now_ns, req, 4), 3);
	assert_int_equal(crpc_copyrpc_reply(p.ctx[1], p.w.now_ns + 777, req[0].token, "yes", 3), 0);
	assert_int_equal(crpc_copyrpc_fail(p.ctx[1], p.w.now_ns + 888, req[1].token, -ENOENT), 0);
	assert_int_equal(crpc_copyrpc_release(p.ctx[1], p.w.now_ns, req[2].token), 0);
	crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
	assert_int_equal(pair_poll(&p, 0, done, 4), 2);
	golden("copyrpc_v3_responses.hex", p.ep[0][0]->rx[WIRE_RESP], 96);
	pair_fini(&p);
}

static void
address_is_byte_by_byte_as_specified(void **state)
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
	struct pair p;

	memset(addr.qp, 0xab, sizeof(addr.qp));
	memcpy(bytes, &addr, sizeof(bytes));
	golden("copyrpc_v3_address.hex", bytes, sizeof(bytes));
	/* and a real one has the same words in the same places */
	pair_init(&p, &conf);
	ep = p.ep[0][0];
	crpc_copyrpc_ep_addr(ep, real);
	addr.epoch = ep->conn->epoch;
	addr.rkey = ep->conn->rings.rx_mr.rkey;
	addr.raddr = (uintptr_t)ep->rx[WIRE_REQ];
	assert_memory_equal(real, &addr, offsetof(struct wire_addr, qp));
	pair_fini(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
			cmocka_unit_test(messages_take_whole_units_and_at_least_two),
			cmocka_unit_test(immediates_hold_kind_and_units),
			cmocka_unit_test(a_batch_starts_anew_where_the_ring_would_end_in_it),
			cmocka_unit_test(batches_are_byte_by_byte_as_specified),
			cmocka_unit_test(address_is_byte_by_byte_as_specified),
	};

	return cmocka_run_group_tests_name("copyrpc wire", tests, NULL, NULL);
}
