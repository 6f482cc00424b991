/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ledger, to the byte: work of which every transfer can be counted by hand.
 */
#include <errno.h>
#include <stdio.h>

#include "test.h"
#include "crpc_atomic.h"
#include "engine_rig.h"

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
#define LEDGER_WORDS (sizeof(struct soft_mlx5_ledger) / 8)

static struct rig_host a, b;
static struct rig_qp qa, qb;

static int
pair_open(void **state)
{
	struct rig_qp_conf conf = {.rq_shift = 4};

	rig_pair_open(&qa, &a, &qb, &b, 1 << 20, &conf);
	rig_connect(&qa, &qb);
	return 0;
}

static int
pair_close(void **state)
{
	rig_pair_close(&qa, &qb);
	return 0;
}

static struct soft_mlx5_ledger
ledger(struct rig_qp *q)
{
	struct soft_mlx5_ledger l;

	assert_int_equal(sm_nic_ledger(q->host->nic, q->qpn, &l), 0);
	return l;
}

static void
expect(struct rig_qp *q, const struct soft_mlx5_ledger *want)
{
	struct soft_mlx5_ledger got = ledger(q);

	for (uint32_t i = 0; i < LEDGER_WORDS; i++)
		if (((uint64_t *)&got)[i] != ((const uint64_t *)want)[i])
			fail_msg("word %u of the ledger is %llu, not %llu", i,
				(unsigned long long)((uint64_t *)&got)[i],
				(unsigned long long)((const uint64_t *)want)[i]);
}

static void
write_inline(struct rig_wqe *w, uint8_t op, uint8_t flags, uint32_t imm, uint32_t len)
{
	rig_wqe(w, op, flags, imm);
	rig_wqe_raddr(w, b.mem, b.key);
	rig_wqe_inline(w, a.mem, len);
}

/* Ten WRITE_IMM with 32 bytes inline, a doorbell for each, and each followed by its ACK. */
TEST_FIXTURE(small_inline_writes, pair_open, pair_close)
{
	struct soft_mlx5_ledger tx = {
		.doorbells = 10,
		.wqe_blocks = 20, /* 16 + 16 + 36 bytes. */
		.cqes = 10,
		.dma_reads = 10,
		.dma_read_bytes = 10 * 128,
		.dma_writes = 10,
		.dma_write_bytes = 10 * 64,
		.pcie_to_host = 10 * 24 + 10 * (64 + 24),
		.pcie_to_card = 10 * (8 + 24) + 10 * (128 + 20),
		.tx_packets = 10,
		.tx_bytes = 10 * (26 + 16 + 4 + 32),
		.rx_packets = 10,
		.rx_bytes = 10 * (26 + 4),
	};
	struct soft_mlx5_ledger rx = {
		.recv_wqes = 10, /* Of 16 bytes: three lines. */
		.cqes = 10,
		.dma_reads = 3,
		.dma_read_bytes = 160,
		.dma_writes = 20,
		.dma_write_bytes = 10 * 32 + 10 * 64,
		.pcie_to_host = 3 * 24 + 10 * (32 + 24) + 10 * (64 + 24),
		.pcie_to_card = 160 + 3 * 20,
		.tx_packets = 10,
		.tx_bytes = 10 * (26 + 4),
		.rx_packets = 10,
		.rx_bytes = 10 * (26 + 16 + 4 + 32),
	};
	struct rig_wqe w;

	for (uint32_t i = 0; i < 10; i++) {
		rig_recv(&qb, NULL, 0, 0);
		write_inline(&w, MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALED, i, 32);
		rig_post(&qa, &w);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	}
	rig_run(&a, &b);
	expect(&qa, &tx);
	expect(&qb, &rx);
}

/* Eight in one batch: one doorbell, and WQEs that lie together are read together; one ACK. */
TEST_FIXTURE(batched_writes, pair_open, pair_close)
{
	struct soft_mlx5_ledger l;
	struct rig_wqe w;

	for (uint32_t i = 0; i < 8; i++) {
		write_inline(&w, MLX5_OPCODE_RDMA_WRITE, i == 7 ? SIGNALED : 0, 0, 32);
		rig_queue(&qa, &w);
	}
	rig_ring(&qa);
	rig_run(&a, &b);
	l = ledger(&qa);
	assert_int_equal(l.doorbells, 1);
	assert_int_equal(l.wqe_blocks, 16);
	assert_int_equal(l.dma_reads, 2); /* Of 512 bytes. */
	assert_int_equal(l.cqes, 1);
	assert_int_equal(l.tx_packets, 8);
	assert_int_equal(l.rx_packets, 1);
	assert_int_equal(l.pcie_to_card, 8 + 24 + 1024 + 4 * 20);
}

/* A BlueFlame doorbell brings its WQE: nothing is fetched. */
TEST_FIXTURE(blueflame, pair_open, pair_close)
{
	struct soft_mlx5_ledger l;
	struct rig_wqe w;

	for (uint32_t i = 0; i < 6; i++) {
		uint8_t *reg = a.uar + 0x800 + (qa.bf++ & 1) * 0x100;

		write_inline(&w, MLX5_OPCODE_RDMA_WRITE, SIGNALED, 0, i % 2 == 0 ? 8 : 64);
		rig_queue(&qa, &w);
		crpc_store_release((_Atomic uint32_t *)&qa.dbrec[1], htobe32(qa.sq_pi));
		memcpy(reg, w.b, (w.len + 63) / 64 * 64);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	}
	l = ledger(&qa);
	assert_int_equal(l.doorbells, 6);
	assert_int_equal(l.blueflame, 6);
	assert_int_equal(l.blueflame_blocks, 3 * 1 + 3 * 2);
	assert_int_equal(l.wqe_blocks, 0);
	assert_int_equal(l.dma_reads, 0);
	assert_int_equal(l.pcie_to_card, 9 * (64 + 24));
	/* A plain doorbell after it is one. */
	write_inline(&w, MLX5_OPCODE_RDMA_WRITE, SIGNALED, 0, 8);
	rig_post(&qa, &w);
	rig_run(&a, &b);
	l = ledger(&qa);
	assert_int_equal(l.doorbells, 7);
	assert_int_equal(l.blueflame, 6);
	assert_int_equal(l.wqe_blocks, 1);
}

/* Long transfers are cut: by the MTU of 4096 bytes on the wire, by 256 and 512 over PCIe. */
TEST_FIXTURE(long_transfers, pair_open, pair_close)
{
	struct soft_mlx5_ledger x, y;

	rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 100000);
	rig_run(&a, &b);
	x = ledger(&qa);
	y = ledger(&qb);
	assert_int_equal(x.tx_packets, 25);
	assert_int_equal(x.tx_bytes, 100000 + 25 * 26 + 16);
	assert_int_equal(y.rx_packets, x.tx_packets);
	assert_int_equal(y.rx_bytes, x.tx_bytes);
	assert_int_equal(x.dma_read_bytes, 100000 + 64);
	assert_int_equal(y.dma_write_bytes, 100000);
	/* 391 pieces of 256; the last of the 13 packets of the software's wire is short. */
	assert_int_equal(y.pcie_to_host, 100000 + 391 * 24);
	assert_int_equal(x.pcie_to_card, 8 + 24 + 64 + 20 + 100000 + 391 * 20);
	assert_int_equal(x.pcie_to_host, (1 + 196) * 24 + 64 + 24);

	rig_rdma(&qa, MLX5_OPCODE_RDMA_READ, 0, b.mem, b.key, a.mem, 8192);
	rig_run(&a, &b);
	assert_int_equal(ledger(&qa).tx_bytes - x.tx_bytes, 26 + 16);
	assert_int_equal(ledger(&qb).tx_packets - y.tx_packets, 2);
	assert_int_equal(ledger(&qb).dma_read_bytes - y.dma_read_bytes, 8192);
	assert_int_equal(ledger(&qa).rx_bytes - x.rx_bytes, 8192 + 2 * 26 + 4);
	assert_int_equal(ledger(&qa).dma_write_bytes - x.dma_write_bytes, 8192 + 64);
}

/* Of a context: all its queue pairs, those that are gone too; and who asks gets it as a text. */
TEST_FIXTURE(totals, pair_open, pair_close)
{
	struct soft_mlx5_ledger x, sum, after;
	struct rig_qp more;

	rig_qp_open(&a, &more, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 100);
		rig_run(&a, &b);
	}
	x = ledger(&qa);
	assert_int_equal(sm_nic_ledger(a.nic, 0, &sum), 0);
	assert_memory_equal(&x, &sum, sizeof(x));
	rig_qp_close(&qa);
	assert_int_equal(sm_nic_ledger(a.nic, 0, &after), 0);
	assert_memory_equal(&after, &sum, sizeof(x));
	assert_int_equal(sm_nic_ledger(a.nic, qa.qpn, &x), ENOENT);
	rig_qp_open(&a, &qa, NULL);
	rig_qp_close(&more);
}

TEST_MAIN(NULL, NULL)
