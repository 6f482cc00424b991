/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of the path's MTU: each has its number, on either wire; who has to send again begins
 * where the other side stopped, not with the message; two sides with different MTUs do not agree.
 */
#include <errno.h>

#include "test.h"
#include "crpc_util.h"
#include "engine_rig.h"

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
#define FIRST_PSN 0xfffff0u /* Of the rig. */

static struct rig_host a, b;
static struct rig_qp qa, qb;

static int
pair_open(void **state)
{
	rig_pair_open(&qa, &a, &qb, &b, 1 << 20, NULL);
	for (uint32_t i = 0; i < a.bytes; i++)
		a.mem[i] = (uint8_t)(i * 13 + (i >> 9));
	return 0;
}

static int
pair_close(void **state)
{
	rig_pair_close(&qa, &qb);
	rig_mtu = IBV_MTU_4096;
	rig_rnr_retry = 3;
	return 0;
}

static void
psns(uint32_t *sent, uint32_t *expected)
{
	struct ib_uverbs_modify_qp m;

	sm_qp_query(a.nic, qa.qp, &m);
	*sent = m.sq_psn;
	sm_qp_query(b.nic, qb.qp, &m);
	*expected = m.rq_psn;
}

static void
send_one(uint8_t op, uint32_t len)
{
	struct rig_wqe w;

	if (op == MLX5_OPCODE_SEND || op == MLX5_OPCODE_RDMA_WRITE_IMM)
		rig_recv(&qb, b.mem, 1 << 18, b.key);
	rig_wqe(&w, op, SIGNALED, 7);
	if (op != MLX5_OPCODE_SEND && op != MLX5_OPCODE_NOP)
		rig_wqe_raddr(&w, b.mem, b.key);
	if (op == MLX5_OPCODE_ATOMIC_FA)
		rig_wqe_atomic(&w, 1, 0);
	if (op != MLX5_OPCODE_NOP)
		rig_wqe_data(&w, a.mem + (op == MLX5_OPCODE_RDMA_READ ? 1 << 19 : 0), len, a.key);
	rig_post(&qa, &w);
}

TEST_FIXTURE(numbers, pair_open, pair_close)
{
	static const uint8_t ops[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_RDMA_WRITE,
		MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA,
		MLX5_OPCODE_NOP};
	static const uint32_t lens[] = {
		0, 1, 256, 257, 1024, 4096, 4097, 8192, 8193, 30000, 200000};
	uint32_t psn = FIRST_PSN, sent, expected;

	rig_set_state(&qa, IBV_QPS_RESET);
	rig_set_state(&qb, IBV_QPS_RESET);
	for (rig_mtu = IBV_MTU_256; rig_mtu <= IBV_MTU_4096; rig_mtu++) {
		uint32_t mtu = 128u << rig_mtu;

		rig_connect(&qa, &qb);
		qa.sq_pi = qb.rq_pi = 0;
		psn = FIRST_PSN;
		for (uint32_t i = 0; i < CRPC_DIM(ops) * CRPC_DIM(lens); i++) {
			uint8_t op = ops[i % CRPC_DIM(ops)];
			uint32_t len = lens[i / CRPC_DIM(ops)];

			if (op == MLX5_OPCODE_ATOMIC_FA)
				len = 8;
			send_one(op, len);
			assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
			while (rig_poll(&qb.rcq) != NULL)
				assert_int_equal(be32toh(qb.rcq.last.byte_cnt), len);
			if (op != MLX5_OPCODE_NOP)
				psn += len == 0 ? 1 : (len + mtu - 1) / mtu;
			psns(&sent, &expected);
			assert_int_equal(sent, psn & 0xffffff);
			assert_int_equal(expected, psn & 0xffffff);
			if (op == MLX5_OPCODE_RDMA_READ)
				assert_memory_equal(a.mem + (1 << 19), b.mem, len);
		}
		rig_set_state(&qa, IBV_QPS_RESET);
		rig_set_state(&qb, IBV_QPS_RESET);
		qa.bf = 0;
		memset(qa.dbrec, 0, 8);
		memset(qb.dbrec, 0, 8);
	}
}

/*
 * Goal: a message goes on where it was refused. Method: the receive WQE of a WRITE_IMM is missing,
 * which is noticed at its last packet; the others do not go over the wire again.
 */
TEST_FIXTURE(goes_on_in_the_middle, pair_open, pair_close)
{
	struct soft_mlx5_ledger l;
	uint64_t before;

	rig_mtu = IBV_MTU_1024;
	rig_rnr_retry = 7;
	rig_connect(&qa, &qb);
	assert_int_equal(sm_nic_ledger(a.nic, qa.qpn, &l), 0);
	before = l.tx_packets;
	rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE_IMM, 9, b.mem, b.key, a.mem, 200000);
	rig_run(&a, &b);
	rig_run(&a, &b);
	assert_null(rig_poll(&qa.scq));
	rig_recv(&qb, NULL, 0, 0);
	assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	assert_int_equal(rig_expect(&a, &b, &qb.rcq)->op_own >> 4, MLX5_CQE_RESP_WR_IMM);
	assert_int_equal(be32toh(qb.rcq.last.byte_cnt), 200000);
	assert_memory_equal(b.mem, a.mem, 200000);
	assert_int_equal(sm_nic_ledger(a.nic, qa.qpn, &l), 0);
	/* 196 packets, and again those of the last entry of a ring, not more than 8, some times. */
	assert_in_range(l.tx_packets - before, 197, 196 + 64);
}

TEST_FIXTURE(mtus_differ, pair_open, pair_close)
{
	struct rig_wqe w;

	rig_mtu = IBV_MTU_1024;
	rig_to_rts(&qa, qb.qpn);
	rig_mtu = IBV_MTU_2048;
	rig_to_rts(&qb, qa.qpn);
	rig_recv(&qb, b.mem, 1 << 18, b.key);
	rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
	rig_wqe_data(&w, a.mem, 30000, a.key);
	rig_post(&qa, &w);
	assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ_ERR);
	while (rig_poll(&qb.rcq) != NULL)
		assert_int_equal(qb.rcq.last.op_own >> 4, MLX5_CQE_RESP_ERR);
}

/* A path cannot have more than the port. */
TEST_FIXTURE(mtu_of_the_port, pair_open, pair_close)
{
	struct ib_uverbs_modify_qp m;

	rig_init_mod(&m);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), 0);
	rig_mtu = IBV_MTU_4096 + 1;
	rig_rtr_mod(&m, qb.qpn);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
}

TEST_MAIN(NULL, NULL)
