/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire format against its specification: sizes of pieces, and a whole conversation with every
 * type of packet, byte by byte, against test/golden (`CRPC_GOLDEN_WRITE=1` writes the files
 * again, after a change of version).
 */
#include <stdio.h>

#include "test.h"
#include "golden.h"
#include "pair.h"

#define MTU   256
#define SHOWN (WIRE_HEAD + 4u) /* bytes of a packet that the file keeps */

static FILE *trace;

TEST(messages_are_cut_into_pieces)
{
	static const struct {
		uint32_t len, pkts, last;
	} t[] = {{0, 1, 0}, {1, 1, 1}, {228, 1, 228}, {229, 2, 1}, {456, 2, 228}, {457, 3, 1}};

	for (uint32_t i = 0; i < CRPC_DIM(t); i++) {
		assert_int_equal(wire_pkts(t[i].len, 228), t[i].pkts);
		assert_int_equal(wire_piece(t[i].len, 228, t[i].pkts - 1), t[i].last);
	}
	assert_in_range(wire_pkts(CRPC_UDRPC_MSG_MAX, CRPC_UDRPC_PKT_MIN - WIRE_HEAD), 1, 65535);
}

static void
line(const uint8_t *data, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		fprintf(trace, "%02x%c", data[i], i == len - 1 ? '\n' : ' ');
}

static void
tap(struct crpc_paper *w, uint8_t *data, uint32_t len, uint32_t *imm, uint32_t *byte_len)
{
	/* the token is of the seed, the time that the server took of the test's clock */
	line(data, (uint32_t)crpc_min(len, SHOWN));
}

/* A call of two pieces each way; one that fails; a drain; a notification; an end. */
TEST(packets_are_byte_by_byte_as_specified)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2, .slots = 2};
	uint8_t bytes[300];
	struct crpc_done done[4];
	struct crpc_req req;
	char *text = NULL;
	size_t size, i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 0x40);
	pair_init(&conf, 2, 42, 188, MTU);
	trace = open_memstream(&text, &size);
	assert_non_null(trace);
	p.w.hook = tap;
	assert_ok(crpc_udrpc_call(p.ep[0][1], p.w.now_ns, bytes, 300, 1000, 1));
	req = pair_take(1);
	assert_ok(crpc_udrpc_reply(p.ctx[1], p.w.now_ns + 777, req.token, bytes, 230));
	pair_flush(1);
	pair_poll(0, done, 4);
	pair_flush(0);
	pair_poll(1, done, 4);
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_ok(crpc_udrpc_call(p.ep[0][1], p.w.now_ns, "query", 5, 0, 2));
	req = pair_take(1);
	assert_ok(crpc_udrpc_fail(p.ctx[1], p.w.now_ns + 5, req.token, -ENOENT));
	(void)__crpc_udrpc_drained(p.ep[1][1], p.ctx[1]->put);
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 1);
	assert_ok(crpc_udrpc_notify(p.ep[0][1], p.w.now_ns, "note", 4));
	req = pair_take(1);
	assert_ok(crpc_udrpc_release(p.ctx[1], p.w.now_ns + 5, req.token));
	pair_flush(1);
	assert_int_equal(pair_poll(0, done, 4), 0);
	crpc_udrpc_ep_shutdown(p.ep[0][1]);
	crpc_paper_run(&p.w);
	fclose(trace);
	golden_text(CRPC_GOLDEN_DIR "/udrpc_v2_packets.hex", text);
	p.w.hook = NULL;
}

TEST(address_is_byte_by_byte_as_specified)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2, .slots = 3, .max_msg = 70000};
	uint8_t addr[CRPC_UDRPC_ADDR_LEN];

	pair_init(&conf, 2, 42, 188, MTU);
	crpc_udrpc_ep_addr(p.ep[0][1], addr);
	golden_hex(CRPC_GOLDEN_DIR "/udrpc_v2_address.hex", addr, sizeof(addr));
}

TEST_MAIN(NULL, pair_end)
