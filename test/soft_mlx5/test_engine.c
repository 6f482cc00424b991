/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software ConnectX without rdma-core: hand-made WQEs in plain memory give the CQEs and the
 * bytes that a ConnectX gives.
 */
#include "engine_rig.h"

static struct rig_host a, b;
static struct rig_qp qa, qb;

static int
pair_open(void **state)
{
	const char *net = rig_net();

	rig_host_open(&a, net, 4 << 20);
	rig_host_open(&b, net, 4 << 20);
	rig_qp_open(&a, &qa, NULL);
	rig_qp_open(&b, &qb, NULL);
	rig_connect(&qa, &qb);
	return 0;
}

static int
pair_close(void **state)
{
	rig_qp_close(&qa);
	rig_qp_close(&qb);
	rig_host_close(&a);
	rig_host_close(&b);
	return 0;
}

static void
fill(uint8_t *p, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

/* Every byte of the two CQEs of a WRITE_IMM, and of the receive WQE that it takes. */
static void
write_imm_golden(void **state)
{
	static const char text[] = "thirty-two bytes of inline data";
	struct mlx5_cqe64 want, *c;
	struct rig_wqe w;

	rig_recv(&qb, NULL, 0, 0);
	rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_WQE_CTRL_CQ_UPDATE, 0xcafe0001);
	rig_wqe_raddr(&w, b.mem + 100, b.key);
	rig_wqe_inline(&w, text, 32);
	rig_post(&qa, &w);

	c = rig_expect(&a, &b, &qb.rcq);
	memset(&want, 0, sizeof(want));
	want.slid = htobe16(SM_LID);
	want.flags_rqpn = htobe32(qa.qpn);
	want.srqn_uidx = htobe32(0x1234);
	want.imm_inval_pkey = htobe32(0xcafe0001);
	want.byte_cnt = htobe32(32);
	want.timestamp = c->timestamp;
	want.sop_drop_qpn = htobe32(qb.qpn);
	want.op_own = MLX5_CQE_RESP_WR_IMM << 4;
	assert_memory_equal(c, &want, sizeof(want));
	assert_memory_equal(b.mem + 100, text, 32);

	c = rig_expect(&a, &b, &qa.scq);
	want.flags_rqpn = want.imm_inval_pkey = 0;
	want.timestamp = c->timestamp;
	want.sop_drop_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_WRITE_IMM << 24 | qa.qpn);
	want.op_own = MLX5_CQE_REQ << 4;
	assert_memory_equal(c, &want, sizeof(want));
	assert_null(rig_poll(&qa.scq));
	assert_null(rig_poll(&qb.rcq));
}

/* Sizes around the packet and ring sizes, every data opcode. */
static void
data_of_all_sizes(void **state)
{
	static const uint32_t sizes[] = {0, 1, 31, 32, 33, 4096, 8191, 8192, 8193, 16384, 65537,
		1 << 20};
	struct rig_wqe w;

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i];
		struct mlx5_cqe64 *c;

		fill(a.mem, n, i);
		memset(b.mem, 0, 2 << 20);
		rig_recv(&qb, b.mem, 2 << 20, b.key);
		rig_wqe(&w, MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_CQ_UPDATE, i);
		rig_wqe_data(&w, a.mem, n, a.key);
		rig_post(&qa, &w);
		c = rig_expect(&a, &b, &qb.rcq);
		assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
		assert_int_equal(be32toh(c->byte_cnt), n);
		assert_int_equal(be32toh(c->imm_inval_pkey), i);
		assert_memory_equal(a.mem, b.mem, n);
		assert_int_equal(b.mem[n], 0);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);

		memset(b.mem, 0, 2 << 20);
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_raddr(&w, b.mem + 3, b.key);
		rig_wqe_data(&w, a.mem, n, a.key);
		rig_post(&qa, &w);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		assert_memory_equal(a.mem, b.mem + 3, n);
		assert_int_equal(b.mem[3 + n], 0);

		memset(a.mem, 0, 2 << 20);
		rig_wqe(&w, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_raddr(&w, b.mem + 3, b.key);
		rig_wqe_data(&w, a.mem + 1, n, a.key);
		rig_post(&qa, &w);
		c = rig_expect(&a, &b, &qa.scq);
		assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
		assert_int_equal(be32toh(c->byte_cnt), n);
		assert_memory_equal(a.mem + 1, b.mem + 3, n);
		assert_int_equal(a.mem[1 + n], 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(write_imm_golden, pair_open, pair_close),
		cmocka_unit_test_setup_teardown(data_of_all_sizes, pair_open, pair_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
