/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The form of RoCEv2: the ICRC of a packet that a real card sent; each opcode's bytes as the
 * specification has them, there and back; messages of a ring in packets of each MTU; and what is
 * too short, too long or of no meaning is refused, byte for byte.
 */
#include <stdlib.h>

#include "test.h"
#include "engine/roce.h"

/* Headers of each opcode, BTH included, from the specification's table. */
#define IMM    4 /* ImmDt or IETH. */
#define RETH   16
#define AETH   4
#define DETH   8
#define DCETH  16
#define ATOMIC 28
#define WORD   8 /* AtomicAckETH, or a cookie. */
static const uint8_t headers_of[256] = {
	[0x00 ... 0x02] = 12,
	[0x03] = 12 + IMM,
	[0x04] = 12,
	[0x05] = 12 + IMM,
	[0x06] = 12 + RETH,
	[0x07 ... 0x08] = 12,
	[0x09] = 12 + IMM,
	[0x0a] = 12 + RETH,
	[0x0b] = 12 + RETH + IMM,
	[0x0c] = 12 + RETH,
	[0x0d] = 12 + AETH,
	[0x0e] = 12,
	[0x0f ... 0x11] = 12 + AETH,
	[0x12] = 12 + AETH + WORD,
	[0x13 ... 0x14] = 12 + ATOMIC,
	[0x16 ... 0x17] = 12 + IMM,
	[0x20 ... 0x22] = 12,
	[0x23] = 12 + IMM,
	[0x24] = 12,
	[0x25] = 12 + IMM,
	[0x26] = 12 + RETH,
	[0x27 ... 0x28] = 12,
	[0x29] = 12 + IMM,
	[0x2a] = 12 + RETH,
	[0x2b] = 12 + RETH + IMM,
	[0x64] = 12 + DETH,
	[0x65] = 12 + DETH + IMM,
	[0xc4] = 12 + DCETH,
	[0xca] = 12 + DCETH + RETH,
	[0xcc] = 12 + DCETH + RETH,
	[0xd0 ... 0xd1] = 12 + AETH,
	[0xd3] = 12 + DCETH + ATOMIC,
	[0xd8] = 12 + DCETH + WORD,
	[0xd9] = 12 + DCETH,
	[0xda] = 12 + WORD,
};

static bool
has_payload(uint8_t opcode)
{
	uint8_t op = opcode & 0x1f;

	return op <= 0x0b || (op >= 0x0d && op <= 0x10) || op == 0x16 || op == 0x17;
}

/*
 * Goal: others accept our ICRC. A congestion notification that a ConnectX-4 Lx sent, as it was
 * captured and published: all that a switch may change is set to something, and the identification
 * is not 0.
 */
TEST(icrc_of_a_card)
{
	static const uint8_t frame[] = {0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11,
		0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7,
		0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a};
	uint8_t icrc[SM_ROCE_ICRC];

	sm_roce_init();
	sm_roce_icrc(
		frame, frame + SM_ROCE_IP_UDP, sizeof(frame) - SM_ROCE_IP_UDP - 4, icrc);
	assert_memory_equal(icrc, frame + sizeof(frame) - 4, 4);
}

static void
path_icrc(const struct sm_roce_path *path, const uint8_t *packet, uint32_t n, uint8_t icrc[4])
{
	uint8_t headers[SM_ROCE_IP_UDP];

	sm_roce_ip_udp(path, n + SM_ROCE_ICRC, headers);
	sm_roce_icrc(headers, packet, n, icrc);
}

/* The ICRC covers addresses, ports and every byte but the one that switches mark. */
TEST(icrc_covers)
{
	struct sm_roce_path path = {0x0a000001, 0x0a000002, 4791, 4791}, other;
	uint8_t packet[97], icrc[4], again[4];

	sm_roce_init();
	for (uint32_t n = 12; n <= sizeof(packet); n++) {
		for (uint32_t i = 0; i < n; i++)
			packet[i] = (uint8_t)(i * 41 + n);
		path_icrc(&path, packet, n, icrc);
		for (uint32_t i = 0; i < n; i++) {
			packet[i] ^= 0x10;
			path_icrc(&path, packet, n, again);
			assert_int_equal(memcmp(icrc, again, 4) == 0, i == 4);
			packet[i] ^= 0x10;
		}
	}
	for (uint32_t i = 0; i < 4; i++) {
		other = path;
		other.src ^= i == 0;
		other.dst ^= i == 1;
		other.sport ^= i == 2;
		other.dport ^= i == 3;
		path_icrc(&path, packet, 40, icrc);
		path_icrc(&other, packet, 40, again);
		assert_memory_not_equal(icrc, again, 4);
	}
}

static void
some_packet(struct sm_roce *p, uint8_t opcode, const uint8_t *payload, uint32_t len)
{
	*p = (struct sm_roce){.opcode = opcode, .solicited = true, .ack_req = true,
		.syndrome = 0x1f,
		.h = {.dst = 0x123456, .psn = 0xabcdef, .src = 0x654321,
			.raddr = UINT64_C(0x0102030405060708), .rkey = 0x090a0b0c,
			.imm = 0x55667788},
		.dma_len = 0x0d0e0f10, .msn = 0x998877,
		.key = UINT64_C(0x7172737475767778), .life = 0x79, .age = 0x7a,
		.word = {UINT64_C(0x2122232425262728), UINT64_C(0x3132333435363738)},
		.payload = payload, .len = has_payload(opcode) ? len : 0};
}

TEST(there_and_back)
{
	uint8_t bytes[SM_ROCE_BYTES], again[SM_ROCE_BYTES], payload[1000], *exact;

	for (uint32_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7);
	for (uint32_t op = 0; op < 256; op++) {
		for (uint32_t len = 0; len < 9 && headers_of[op] != 0; len++) {
			struct sm_roce p, q;
			uint32_t n, pad;

			some_packet(&p, (uint8_t)op, payload, len == 8 ? sizeof(payload) : len);
			pad = -p.len & 3;
			n = sm_roce_put(&p, bytes);
			assert_int_equal(n, headers_of[op] + p.len + pad);
			assert_int_equal(bytes[0], op);
			assert_int_equal(bytes[1], 0x80 | 0x40 | pad << 4);
			assert_memory_equal(
				bytes + 2, "\xff\xff\x00\x12\x34\x56\x80\xab\xcd\xef", 10);
			exact = malloc(n);
			assert_non_null(exact);
			memcpy(exact, bytes, n);
			assert_true(sm_roce_get(exact, n, &q));
			assert_int_equal(q.len, p.len);
			if (op == 0xd8) /* CONNECT. */
				assert_int_equal(q.age, p.age);
			if (p.len != 0)
				assert_memory_equal(q.payload, payload, p.len);
			assert_int_equal(sm_roce_put(&q, again), n);
			assert_memory_equal(bytes, again, n);
			free(exact);
		}
	}
}

TEST(refused)
{
	uint8_t bytes[SM_ROCE_BYTES + 8] = {0}, payload[64] = {0};
	struct sm_roce p;

	for (uint32_t op = 0; op < 256; op++) {
		uint32_t headers = headers_of[op];

		if (headers == 0)
			continue;
		some_packet(&p, (uint8_t)op, payload, 0);
		assert_int_equal(sm_roce_put(&p, bytes), headers);
		for (uint32_t n = 0; n < headers; n++) {
			uint8_t *exact = malloc(n + 1);

			assert_non_null(exact);
			memcpy(exact, bytes, n);
			assert_false(sm_roce_get(exact, n, &p));
			free(exact);
		}
		assert_true(sm_roce_get(bytes, headers, &p));
		assert_int_equal(sm_roce_get(bytes, headers + 4, &p), has_payload((uint8_t)op));
		assert_false(sm_roce_get(bytes, headers + SM_MTU_BYTES + 4, &p));
		bytes[1] |= 0x30; /* More padding than payload. */
		assert_false(sm_roce_get(bytes, headers, &p));
		bytes[1] = 1; /* A version that is none. */
		assert_false(sm_roce_get(bytes, headers, &p));
	}
	for (uint32_t op = 0; op < 256; op++) {
		memset(bytes, 0, sizeof(bytes));
		bytes[0] = (uint8_t)op;
		if (op >> 5 != 6 && headers_of[op] == 0)
			for (uint32_t n = 12; n < 80; n++)
				assert_false(sm_roce_get(bytes, n, &p));
	}
}

/* A message of a ring comes out in packets of the MTU, numbered on, and is the same again. */
TEST(pieces)
{
	static uint8_t payload[SM_FRAG];
	uint8_t bytes[SM_ROCE_BYTES];

	for (uint32_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i ^ i >> 8);
	for (uint32_t shift = 8; shift <= 12; shift++) {
		for (uint32_t len = 0; len <= SM_FRAG; len += len < 5 ? 1 : 509) {
			struct sm_hdr in = {.head = len | (uint32_t)SM_PKT_WRITE << 16 |
						      (uint32_t)(SM_PKT_FIRST | SM_PKT_LAST |
							      SM_PKT_IMM | SM_PKT_SE)
							      << 24,
					      .dst = 7,
					      .src = 9,
					      .psn = 0xfffffe,
					      .raddr = 0x1000,
					      .rkey = 5,
					      .imm = 0x01020304},
				      out;
			uint32_t n = 0, sum = 0;
			struct sm_roce p, q;

			for (; sm_roce_piece(&in, payload, shift, SM_ROCE_RC, n, &p); n++) {
				uint32_t size = sm_roce_put(&p, bytes), flags;

				assert_true(sm_roce_get(bytes, size, &q));
				assert_true(sm_roce_hdr(&q));
				out = q.h;
				flags = out.head >> 24;
				assert_int_equal(out.head >> 16 & 0xff, SM_PKT_WRITE);
				assert_int_equal(out.psn, (0xfffffe + n) & 0xffffff);
				assert_int_equal((flags & SM_PKT_FIRST) != 0, n == 0);
				assert_memory_equal(q.payload, payload + sum, q.len);
				sum += q.len;
				assert_int_equal((flags & SM_PKT_LAST) != 0, sum == len);
				assert_int_equal((flags & SM_PKT_IMM) != 0, sum == len);
				assert_int_equal((flags & SM_PKT_SE) != 0, sum == len);
				if (n == 0) {
					assert_int_equal(q.dma_len, len);
					assert_int_equal(out.raddr, 0x1000);
					assert_int_equal(out.rkey, 5);
				}
				if (sum == len)
					assert_int_equal(out.imm, 0x01020304);
				else
					assert_int_equal(q.len, 1u << shift);
			}
			assert_int_equal(sum, len);
			assert_int_equal(n, len == 0 ? 1 : (len + (1u << shift) - 1) >> shift);
		}
	}
}

/* Only CONNECT and what answers it have a cookie, and both have it whole. */
TEST(cookies)
{
	struct sm_hdr in = {.head = (uint32_t)SM_PKT_NAK << 16, .imm = SM_NAK_COOKIE, .dst = 3,
		.src = 4, .psn = 77, .raddr = UINT64_C(0x0123456789abcdef)}, out;
	uint8_t bytes[SM_ROCE_BYTES];
	struct sm_roce p;

	assert_false(sm_roce_piece(&in, NULL, 12, SM_ROCE_RC, 0, &p));
	assert_true(sm_roce_piece(&in, NULL, 12, SM_ROCE_DC, 0, &p));
	assert_int_equal(p.opcode, 0xda);
	assert_int_not_equal(p.opcode, SM_ROCE_OP_CONNECT);
	assert_int_equal(sm_roce_put(&p, bytes), 20);
	assert_true(sm_roce_get(bytes, 20, &p));
	assert_true(sm_roce_hdr(&p));
	out = p.h;
	assert_int_equal(out.head, in.head);
	assert_int_equal(out.imm, in.imm);
	assert_int_equal(out.raddr, in.raddr);
	assert_int_equal(out.psn, in.psn);
	in = (struct sm_hdr){.head = (uint32_t)SM_PKT_CONNECT << 16, .raddr = 5};
	assert_true(sm_roce_piece(&in, NULL, 12, SM_ROCE_DC, 0, &p));
	assert_int_equal(p.opcode, SM_ROCE_OP_CONNECT);
	p.word[0] = UINT64_C(0x0123456789abcdef);
	assert_int_equal(sm_roce_put(&p, bytes), 36);
	/* Without it, as contexts sent it before there were cookies. */
	assert_false(sm_roce_get(bytes, 28, &p));
	assert_true(sm_roce_get(bytes, 36, &p));
	assert_int_equal(p.word[0], UINT64_C(0x0123456789abcdef));
}

/* Acknowledgements: each reason has the syndrome of the specification, and comes back as itself. */
TEST(syndromes)
{
	static const struct {
		uint32_t type, imm, rkey;
		uint8_t syndrome;
	} list[] = {
		{SM_PKT_ACK, 0, 0, 0x1f}, {SM_PKT_NAK, SM_NAK_RNR, 14, 0x20 | 14},
		{SM_PKT_NAK, SM_NAK_SEQUENCE, 0, 0x60}, {SM_PKT_NAK, SM_NAK_INVALID, 0, 0x61},
		{SM_PKT_NAK, SM_NAK_ACCESS, 0, 0x62}, {SM_PKT_NAK, SM_NAK_OP, 0, 0x63},
	};
	struct sm_hdr in = {.dst = 3, .src = 4, .psn = 77, .raddr = 1234};
	struct sm_roce p;

	for (uint32_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		in.head = list[i].type << 16;
		in.imm = list[i].imm;
		in.rkey = list[i].rkey;
		assert_true(sm_roce_piece(&in, NULL, 12, SM_ROCE_RC, 0, &p));
		assert_false(sm_roce_piece(&in, NULL, 12, SM_ROCE_RC, 1, &p) && p.len != 0);
		assert_true(sm_roce_piece(&in, NULL, 12, SM_ROCE_RC, 0, &p));
		assert_int_equal(p.opcode, 0x11);
		assert_int_equal(p.syndrome, list[i].syndrome);
		assert_int_equal(p.msn, 1234);
		assert_true(sm_roce_hdr(&p));
		assert_int_equal(p.h.head, in.head);
		assert_int_equal(p.h.imm, in.imm);
	}
	/* "No such queue pair" has no packet: on a network it is silence. */
	in.head = (uint32_t)SM_PKT_NAK << 16;
	in.imm = SM_NAK_LOST;
	assert_false(sm_roce_piece(&in, NULL, 12, SM_ROCE_RC, 0, &p));
	for (uint32_t s = 0; s < 256; s++) {
		p = (struct sm_roce){.opcode = 0x11, .syndrome = (uint8_t)s};
		assert_int_equal(sm_roce_hdr(&p),
			s < 0x40 || (s >= 0x60 && s <= 0x63));
	}
}

TEST_MAIN(NULL, NULL)
