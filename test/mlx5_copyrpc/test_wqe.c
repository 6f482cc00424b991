/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send WQE, byte by byte: golden bytes per kind, the same WQE cut at the end of the ring,
 * limits that follow from the layout, and the doorbell.
 */
#include "mlx5_doorbell.h"
#include "mlx5_wqe.h"
#include "plain.h"

/* clang-format off */
static const uint8_t payload[512] = {
	0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
	0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
	0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
	0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
};
/* clang-format on */

/* An address that only shows up as a number: gathered data is not read by the builder. */
static const void *
at(uint64_t addr)
{
	return (const void *)(uintptr_t)addr;
}

static uint32_t
build(struct plain *p, const struct crpc_rdma_wr *wr, bool signal)
{
	struct crpc_mlx5_req req = crpc_mlx5_wr_req(&p->qp, wr);

	return crpc_mlx5_wqe_build(&p->qp.own, &req, signal);
}

static uint32_t
build_datagram(struct plain *p, const struct crpc_rdma_wr *dgram, uint32_t mtu)
{
	const struct crpc_mlx5_ud ud = {.qp.ib.inline_max = p->qp.ib.inline_max, .mtu = mtu};
	struct crpc_mlx5_req req = crpc_mlx5_dgram_req(&ud, dgram);

	return crpc_mlx5_wqe_build(&p->qp.own, &req, true);
}

/* clang-format off */
static const uint8_t write_imm_inline[] = {
	0x00, 0x00, 0x03, 0x09, 0x00, 0x12, 0x34, 0x05,
	0, 0, 0, 0x08, 0xde, 0xad, 0xbe, 0xef,
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0,
	0x80, 0x00, 0x00, 0x20, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
	0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
	0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
};
static const uint8_t write_imm_empty[] = {
	0, 0, 0, 0x09, 0x00, 0x12, 0x34, 0x02, 0, 0, 0, 0x08, 0x00, 0x00, 0x00, 0x01,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t read_one[] = {
	0x00, 0x00, 0x01, 0x10, 0x00, 0x12, 0x34, 0x03, 0, 0, 0, 0x08, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0x20, 0x00, 0x00, 0x00, 0x00, 0x09, 0, 0, 0, 0,
	0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x0a, 0, 0, 0, 0, 0, 0, 0x30, 0x00,
};
/* clang-format on */

#define EMPTY_TEXT "WQE 0 qp 0x1234 RDMA_WRITE_IMM ds 2 cqe imm 0x1 | raddr 0x0 rkey 0x0"

/* Of a reliable connection, with a completion: bytes, and the text of a dump. */
TEST(golden_requests)
{
	static const struct {
		struct crpc_rdma_wr wr;
		uint32_t pi;
		const uint8_t *want;
		size_t len;
		const char *text;
	} t[] = {
		{{.op = CRPC_RDMA_WRITE_IMM,
			 .flags = CRPC_RDMA_WR_INLINE,
			 .num_sge = 1,
			 .imm = 0xdeadbeef,
			 .raddr = 0x0102030405060708,
			 .rkey = 0x0a0b0c0d,
			 .sge = {{.addr = payload, .len = 32, .lkey = 0x999}}},
			3, write_imm_inline, sizeof(write_imm_inline),
			"WQE 3 qp 0x1234 RDMA_WRITE_IMM ds 5 cqe imm 0xdeadbeef | raddr "
			"0x102030405060708 rkey 0xa0b0c0d | inline 32: 00010203 04050607 08090a0b "
			"0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f"},
		{{.op = CRPC_RDMA_READ,
			 .num_sge = 1,
			 .imm = 3,
			 .raddr = 0x2000,
			 .rkey = 9,
			 .sge = {{.addr = (void *)0x3000, .len = 8, .lkey = 10}}},
			1, read_one, sizeof(read_one),
			"WQE 1 qp 0x1234 RDMA_READ ds 3 cqe | raddr 0x2000 rkey 0x9 | data 0x3000 "
			"len 8 lkey 0xa"},
		/* Without payload: no elements, or empty ones, gathered and inline. */
		{{.op = CRPC_RDMA_WRITE_IMM, .imm = 1}, 0, write_imm_empty, 32, EMPTY_TEXT},
		{{.op = CRPC_RDMA_WRITE_IMM, .imm = 1, .flags = CRPC_RDMA_WR_INLINE}, 0,
			write_imm_empty, 32, EMPTY_TEXT},
		{{.op = CRPC_RDMA_WRITE_IMM, .imm = 1, .num_sge = 2, .sge = {{.addr = payload}}}, 0,
			write_imm_empty, 32, EMPTY_TEXT},
		{{.op = CRPC_RDMA_WRITE_IMM, .imm = 1, .num_sge = 2, .flags = CRPC_RDMA_WR_INLINE},
			0, write_imm_empty, 32, EMPTY_TEXT},
	};
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	char text[512];

	for (size_t i = 0; i < CRPC_DIM(t); i++) {
		p->qp.own.pi = t[i].pi;
		assert_int_equal(build(p, &t[i].wr, true), (t[i].len + 15) / 16);
		assert_memory_equal(p->sq + t[i].pi * CRPC_MLX5_BB, t[i].want, t[i].len);
		crpc_mlx5_wqe_text(p->sq, 64, t[i].pi, false, text, sizeof(text));
		assert_string_equal(text, t[i].text);
	}
}

TEST(golden_write_gathered)
{
	/* Not signalled, no immediate although the WR has one; the empty element leaves no
	 * trace. */
	/* clang-format off */
	static const uint8_t want[] = {
		0x00, 0xff, 0xff, 0x08, 0x00, 0x12, 0x34, 0x05, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0x10, 0x00, 0x00, 0x00, 0x00, 0x07, 0, 0, 0, 0,
		0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x01, 0x01, 0, 0, 0, 0, 0xaa, 0xaa, 0, 0x01,
		0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x7f, 0xff, 0, 0, 0, 0, 0, 0,
		0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x04, 0x04, 0, 0, 0, 0, 0, 0, 0, 0x05,
	};
	/* clang-format on */
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	const struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE,
		.num_sge = 4,
		.imm = 0x5555,
		.raddr = 0x1000,
		.rkey = 7,
		.sge = {{.addr = at(0xaaaa0001), .len = 32, .lkey = 0x101},
			{.addr = at(0x7fff000000000000), .len = 1 << 20, .lkey = 0x202},
			{.addr = at(0x1), .len = 0, .lkey = 0x303},
			{.addr = at(0x5), .len = 1, .lkey = 0x404}},
	};

	memset(p->sq, 0xee, sizeof(p->sq));
	p->qp.own.pi = 0x1ffff; /* Only 16 bits of the index are in the WQE; block 63 of 64. */
	p->qp.own.end = p->sq + 256 * CRPC_MLX5_BB;
	p->qp.own.bb_mask = 255;
	assert_int_equal(build(p, &wr, false), 5);
	/* Four segments at the last block, the fifth at the start of the ring. */
	assert_memory_equal(p->sq + 255 * CRPC_MLX5_BB, want, 64);
	assert_memory_equal(p->sq, want + 64, 16);
	assert_int_equal(p->sq[16], 0xee);
}

/* Regression: a message that crosses the end of the ring. Every size at every place must give the
 * bytes that it gives where there is no end. */
TEST(wqe_spanning_ring_end_equals_one_that_does_not)
{
	static uint8_t data[512];
	struct plain *ring = plain_new(16, 2, 476, 16, 64);
	struct plain *flat = plain_new(PLAIN_BB_MAX, 2, 476, 16, 64);
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .flags = CRPC_RDMA_WR_INLINE};
	uint32_t len, start, ds, i;

	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 1);
	for (len = 1; len <= 476; len++) {
		wr.num_sge = 3;
		wr.sge[0] = (struct crpc_rdma_sge){.addr = data, .len = len / 3};
		wr.sge[1] = (struct crpc_rdma_sge){.addr = data + len / 3, .len = len / 2};
		wr.sge[2] = (struct crpc_rdma_sge){
			.addr = data + len / 3 + len / 2, .len = len - len / 3 - len / 2};
		for (start = 0; start < 16; start++) {
			memset(ring->sq, 0xcc, sizeof(ring->sq));
			memset(flat->sq, 0xcc, 2048);
			ring->qp.own.pi = flat->qp.own.pi = start;
			ds = build(flat, &wr, true);
			assert_int_equal(build(ring, &wr, true), ds);
			for (i = 0; i < ds * 16; i++)
				assert_int_equal(ring->sq[(start * 64 + i) % 1024],
					flat->sq[start * 64 + i]);
			/* Nothing behind the ring and nothing behind the WQE is touched. */
			assert_int_equal(ring->sq[1024], 0xcc);
			assert_int_equal(ring->sq[(start * 64 + ds * 16) % 1024], 0xcc);
		}
	}
}

/* Regression: an inline limit that was a constant, and too large for the WQE. Here it follows from
 * the layout: the longest inline payload fills its blocks to the last byte and not one more. */
/* Of a datagram: the address vector fills the block of the control segment. */
TEST(golden_datagram)
{
	/* clang-format off */
	static const uint8_t want[] = {
		0x00, 0x00, 0x3f, 0x0b, 0x00, 0x12, 0x34, 0x05, 0, 0, 0, 0x08, 0, 0, 0, 0x2a,
		0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0x80, 0xab, 0xcd, 0xef, 0x00, 0x00, 0x01, 0x02,
		0, 0, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0, 0x40, 0x40, 0, 0, 0,
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x07,
		0x80, 0x00, 0x00, 0x05, 0x00, 0x01, 0x02, 0x03, 0x04,
	};
	/* clang-format on */
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	struct crpc_mlx5_ah ah;
	struct crpc_rdma_wr d = {.op = CRPC_RDMA_SEND_IMM,
		.ah = &ah.ib.base,
		.flags = CRPC_RDMA_WR_INLINE,
		.num_sge = 2,
		.imm = 42,
		.sge = {{.addr = payload, .len = 2}, {.addr = payload + 2, .len = 3}}};
	char text[256];

	memset(&ah, 0, sizeof(ah));
	memcpy(&ah.av, want + 16, sizeof(ah.av));
	/* The last block of the ring: the payload lies at its start. */
	p->qp.own.pi = 63;
	assert_int_equal(build_datagram(p, &d, 256), 5);
	assert_memory_equal(p->sq + 63 * CRPC_MLX5_BB, want, 64);
	assert_memory_equal(p->sq, want + 64, sizeof(want) - 64);
	crpc_mlx5_wqe_text(p->sq, 64, 63, false, text, sizeof(text));
	assert_string_equal(text,
		"WQE 63 qp 0x1234 SEND_IMM ds 5 cqe imm 0x2a | to 0xabcdef lid 258 qkey 0x11223344 | "
		"inline 5: 00010203 04");
	/* One byte more than the MTU; no peer to send to. */
	assert_int_equal(build_datagram(p, &d, 5), 5);
	assert_int_equal(build_datagram(p, &d, 4), 0);
	d.ah = NULL;
	assert_int_equal(build_datagram(p, &d, 256), 0);
}

/* Of a DC initiator: with the whole address vector, the remote address starts the next block; with
 * its short form all is in one. */
TEST(golden_dynamic_connection)
{
	/* clang-format off */
	static const uint8_t want[] = {
		0x00, 0x00, 0x3f, 0x09, 0x00, 0x12, 0x34, 0x06, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0x2a,
		0xc0, 0xde, 0xca, 0xfe, 0xd0, 0x0d, 0xbe, 0xef, 0x80, 0xab, 0xcd, 0xef, 0, 0, 1, 2,
		0, 0, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0, 0x40, 0x40, 0, 0, 0,
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x07,
		0, 0, 0, 0, 0, 0, 0x10, 0x00, 0x00, 0x00, 0x00, 0x07, 0, 0, 0, 0,
		0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x01, 0x01, 0, 0, 0, 0, 0xaa, 0xaa, 0, 0x01,
	};
	/* clang-format on */
	const struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM,
		.num_sge = 2,
		.imm = 42,
		.raddr = 0x1000,
		.rkey = 7,
		.sge = {{.addr = at(0x1), .len = 0, .lkey = 0x303},
			{.addr = at(0xaaaa0001), .len = 32, .lkey = 0x101}},
	};
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	char text[256];

	memcpy(&p->qp.av, want + 16, sizeof(p->qp.av));
	p->qp.av_len = sizeof(p->qp.av);
	p->qp.own.pi = 63;
	assert_int_equal(build(p, &wr, false), 6);
	assert_memory_equal(p->sq + 63 * CRPC_MLX5_BB, want, 64);
	assert_memory_equal(p->sq, want + 64, 32);
	crpc_mlx5_wqe_text(p->sq, 64, 63, true, text, sizeof(text));
	assert_string_equal(text,
		"WQE 63 qp 0x1234 RDMA_WRITE_IMM ds 6 imm 0x2a | to 0xabcdef lid 258 | raddr 0x1000 "
		"rkey 0x7 | data 0xaaaa0001 len 32 lkey 0x101");

	p->qp.av.dqp_dct = htobe32(0xabcdef);
	p->qp.av_len = 16;
	assert_int_equal(build(p, &wr, true), 4);
	assert_int_equal(p->sq[63 * CRPC_MLX5_BB + 7], 4);
	assert_memory_equal(p->sq + 63 * CRPC_MLX5_BB + 16, want + 16, 8);
	assert_memory_equal(p->sq + 63 * CRPC_MLX5_BB + 32, want + 64, 32);
	crpc_mlx5_wqe_text(p->sq, 64, 63, true, text, sizeof(text));
	assert_string_equal(text,
		"WQE 63 qp 0x1234 RDMA_WRITE_IMM ds 4 cqe imm 0x2a | to 0xabcdef lid 258 compact | "
		"raddr 0x1000 rkey 0x7 | data 0xaaaa0001 len 32 lkey 0x101");
}

TEST(inline_limit_is_derived_from_layout)
{
	struct plain *p;
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE,
		.flags = CRPC_RDMA_WR_INLINE,
		.num_sge = 1,
		.sge = {{.addr = payload}},
	};

	assert_int_equal(CRPC_MLX5_INLINE_MAX, 512 - 16 - 16 - 4);
	for (uint32_t want = 0; want <= CRPC_MLX5_INLINE_MAX; want++) {
		uint32_t blocks = crpc_mlx5_wqebb_max(CRPC_MLX5_RC_HEAD, want);
		uint32_t max = blocks * 64 - 36;

		assert_true(max >= want && blocks <= CRPC_MLX5_WQEBB_MAX);
		p = plain_new(64, 2, max, 16, 64);
		wr.sge[0].len = max;
		assert_int_equal(crpc_mlx5_ds_to_bb(build(p, &wr, false)), blocks);
		wr.sge[0].len = max + 1;
		assert_int_equal(build(p, &wr, false), 0);
	}
	/* Four elements fit even where no inline data is wanted. */
	assert_int_equal(crpc_mlx5_wqebb_max(CRPC_MLX5_RC_HEAD, 0), 2);
}

TEST(what_cannot_be_built_is_refused)
{
	const struct crpc_rdma_wr bad[] = {
		{.op = 3},
		{.op = 255},
		{.op = CRPC_RDMA_WRITE, .num_sge = CRPC_RDMA_SGE_MAX + 1},
		{.op = CRPC_RDMA_READ, .flags = CRPC_RDMA_WR_INLINE},
		{.op = CRPC_RDMA_WRITE, .num_sge = 1, .sge = {{.len = CRPC_MLX5_MSG_MAX + 1}}},
		/* Bit 31 would turn the element into inline data. */
		{.op = CRPC_RDMA_WRITE, .num_sge = 1, .sge = {{.len = 0x80000010}}},
		/* A sum that is small in 32 bits. */
		{.op = CRPC_RDMA_WRITE,
			.num_sge = 2,
			.flags = CRPC_RDMA_WR_INLINE,
			.sge = {{.len = 0xfffffff0}, {.len = 0x20}}},
	};
	struct plain *p = plain_new(64, 16, 92, 16, 64);

	for (size_t i = 0; i < CRPC_DIM(bad); i++)
		assert_int_equal(build(p, &bad[i], true), 0);
}

TEST(one_doorbell_per_burst_with_the_newest_wqe)
{
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	struct crpc_rdma_wr wr[3] = {
		{.op = CRPC_RDMA_WRITE_IMM, .imm = 1},
		{.op = CRPC_RDMA_WRITE_IMM,
			.imm = 2,
			.num_sge = 3,
			.sge = {{.addr = payload, .len = 1}, {.addr = payload, .len = 1},
				{.addr = payload, .len = 1}}},
		{.op = CRPC_RDMA_WRITE_IMM, .imm = 3},
	};

	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 3), 3);
	/* 1 + 2 + 1 blocks; the record counts blocks, the register has the last WQE's first 8
	 * bytes. */
	assert_int_equal(be32toh(p->qp_dbrec[1]), 4);
	assert_memory_equal(p->reg, p->sq + 3 * 64, 8);
	assert_int_equal(p->reg[8] | p->reg[15] | p->reg[PLAIN_BF_SIZE], 0);
	/* The other half is next. */
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 2), 2);
	assert_memory_equal(p->reg + PLAIN_BF_SIZE, p->sq + 5 * 64, 8);
	assert_int_equal(p->reg[PLAIN_BF_SIZE + 8], 0);
	assert_int_equal(p->dev.ib.base.stats.doorbells, 2);
	assert_int_equal(p->dev.ib.base.stats.blueflame, 0);
	assert_int_equal(p->dev.ib.base.stats.wqes, 5);
	assert_int_equal(p->dev.ib.base.stats.wqebbs, 7);
}

TEST(blueflame_carries_a_single_small_wqe)
{
	struct plain *p = plain_new(8, 4, 220, 16, 64);
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM,
		.flags = CRPC_RDMA_WR_INLINE,
		.num_sge = 1,
		.sge = {{.addr = payload, .len = 220}},
	};

	/* Four blocks, from the last but one: it goes on at the start of the ring. */
	p->qp.own.pi = p->qp.own.ci = 6;
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, &wr, 1), 1);
	assert_int_equal(be32toh(p->qp_dbrec[1]), 10);
	assert_memory_equal(p->reg, p->sq + 6 * 64, 128);
	assert_memory_equal(p->reg + 128, p->sq, 128);
	assert_int_equal(p->dev.ib.base.stats.blueflame, 1);
	/* A register without BlueFlame takes doorbells only, always at the same place. */
	p->bf.size = 0;
	p->bf.offset = 0;
	memset(p->reg, 0, sizeof(p->reg));
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, &wr, 1), 1);
	assert_memory_equal(p->reg, p->sq + 2 * 64, 8);
	assert_int_equal(p->reg[8], 0);
	assert_int_equal(p->bf.offset, 0);
	assert_int_equal(p->dev.ib.base.stats.blueflame, 1);
	assert_int_equal(p->dev.ib.base.stats.doorbells, 2);
}

TEST(receives_have_no_buffer)
{
	uint8_t rq[4 * 32], want[16] = {[6] = 0x01};

	memset(rq, 0xff, sizeof(rq));
	crpc_mlx5_rq_prefill(CRPC_IB_RC, NULL, rq, 4, 32);
	for (int i = 0; i < 4; i++) {
		assert_memory_equal(rq + i * 32, want, 16);
		assert_int_equal(rq[i * 32 + 31], 0);
	}
}

/* Text of garbage stays within its buffer and its ring, whatever the bytes say. */
TEST(text_of_garbage_is_bounded)
{
	struct plain *p = plain_new(8, 4, 92, 16, 64);
	char text[64];
	uint32_t i, round, seed = 12345;

	for (round = 0; round < 20000; round++) {
		for (i = 0; i < 8 * CRPC_MLX5_BB; i++) {
			seed = seed * 1664525 + 1013904223;
			p->sq[i] = (uint8_t)(seed >> 24);
		}
		p->sq[3] = round % 2 ? MLX5_OPCODE_RDMA_WRITE : p->sq[3];
		text[sizeof(text) - 1] = 'x';
		assert_true(crpc_mlx5_wqe_text(p->sq, 8, seed >> 8, i & 1, text, sizeof(text) - 1) <
			63);
		assert_true(crpc_mlx5_cqe_text((const void *)p->sq, text, sizeof(text) - 1) < 63);
		assert_int_equal(text[sizeof(text) - 1], 'x');
	}
	assert_int_equal(crpc_mlx5_wqe_text(p->sq, 8, 0, false, text, 0), 0);
}

TEST_MAIN(NULL, NULL)
