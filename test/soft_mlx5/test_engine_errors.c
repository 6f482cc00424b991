/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a ConnectX answers to wrong work: syndromes on both sides, flushes, retries, refusals.
 */
#include <errno.h>

#include "test.h"
#include "engine_rig.h"

static struct rig_host a, b;
static struct rig_qp qa, qb;

static int
pair_open(void **state)
{
	rig_pair_open(&qa, &a, &qb, &b, 1 << 20, NULL);
	rig_connect(&qa, &qb);
	return 0;
}

static int
pair_close(void **state)
{
	rig_pair_close(&qa, &qb);
	return 0;
}

static void
expect_error(struct rig_cq *cq, uint8_t op, uint8_t synd, uint16_t counter)
{
	struct mlx5_cqe64 *c = rig_expect(&a, &b, cq);

	assert_int_equal(c->op_own >> 4, op);
	assert_int_equal(RIG_SYND(c), synd);
	assert_int_equal(be16toh(c->wqe_counter), counter);
	assert_int_equal(be32toh(c->srqn_uidx), 0x1234);
}

/* The WQE fails with the syndrome, unsignalled or not, and the queue pair goes to ERR. */
static void
expect_send_error(struct rig_wqe *w, uint8_t synd)
{
	uint16_t at = rig_post(&qa, w);

	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, synd, at);
	assert_int_equal(rig_state(&qa), IBV_QPS_ERR);
	rig_run(&a, &b);
}

static void
write_to(struct rig_wqe *w, uint8_t op, const void *raddr, uint32_t rkey, uint32_t len)
{
	rig_wqe_rdma(w, op, raddr, rkey, a.mem, len, a.key);
}

/* Every byte of an error CQE. */
TEST_FIXTURE(error_cqe_golden, pair_open, pair_close)
{
	struct mlx5_err_cqe want, *e;
	struct rig_wqe w;

	write_to(&w, MLX5_OPCODE_RDMA_WRITE, b.mem, b.key + 1, 8);
	rig_post(&qa, &w);
	e = (struct mlx5_err_cqe *)(void *)rig_expect(&a, &b, &qa.scq);
	memset(&want, 0, sizeof(want));
	((struct mlx5_cqe64 *)(void *)&want)->slid = htobe16(SM_LID);
	want.srqn = htobe32(0x1234);
	want.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	want.s_wqe_opcode_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_WRITE << 24 | qa.qpn);
	want.op_own = MLX5_CQE_REQ_ERR << 4;
	assert_memory_equal(e, &want, sizeof(want));
}

/* The ctrl segment is taken at its word. */
TEST_FIXTURE(malformed_wqes, pair_open, pair_close)
{
	for (uint32_t i = 0; i < 8; i++) {
		struct rig_wqe w;
		uint8_t *ctrl = qa.sq;

		rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
		rig_wqe_inline(&w, "0123456789", 10);
		if (i == 6) {
			/* Short of a segment. */
			write_to(&w, MLX5_OPCODE_ATOMIC_FA, b.mem, b.key, 8);
			w.len = 32;
		} else if (i == 7) {
			rig_wqe(&w, 0x25, 0, 0); /* UMR: not supported. */
		}
		rig_queue(&qa, &w);
		switch (i) {
		case 0: ctrl[2]++; break;                /* Index. */
		case 1: ctrl[6]++; break;                /* Queue pair. */
		case 2: ctrl[3] = 0x3f; break;           /* Opcode. */
		case 3: ctrl[7] = 0; break;              /* No segments at all. */
		case 4: ctrl[7] = 20; break;             /* More blocks than were posted. */
		case 5: ctrl[16 + 3] = 200; break;       /* Inline data longer than the WQE. */
		default: break;
		}
		rig_ring(&qa);
		expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
		assert_int_equal(rig_state(&qa), IBV_QPS_ERR);
		rig_reconnect(&qa, &qb);
	}
}

/* A doorbell record beyond the queue: nothing of it can be believed. */
TEST_FIXTURE(insane_doorbell_record, pair_open, pair_close)
{
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_NOP, 0, 0);
	rig_queue(&qa, &w);
	qa.sq_pi = 1000;
	rig_ring(&qa);
	rig_run(&a, &b);
	assert_int_equal(a.async[IBV_EVENT_QP_FATAL], 1);
	assert_int_equal(rig_state(&qa), IBV_QPS_ERR);
}

/* The failed WQE first, then everything behind it in order, receives too, and what comes later. */
TEST_FIXTURE(flush_everything, pair_open, pair_close)
{
	struct rig_wqe w;
	uint16_t at[4];

	for (uint32_t i = 0; i < 3; i++)
		rig_recv(&qa, a.mem, 8, a.key);
	for (uint32_t i = 0; i < 4; i++) {
		write_to(&w, MLX5_OPCODE_RDMA_WRITE, b.mem, i == 1 ? 0 : b.key, 8);
		if (i == 3)
			for (uint32_t k = 0; k < 9; k++)
				rig_wqe_data(&w, a.mem, 1, a.key);
		at[i] = rig_queue(&qa, &w);
	}
	rig_ring(&qa);
	/* The first succeeds without a word. */
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, at[1]);
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, at[2]);
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, at[3]);
	for (uint16_t i = 0; i < 3; i++)
		expect_error(&qa.rcq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, i);
	rig_recv(&qa, a.mem, 8, a.key);
	expect_error(&qa.rcq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 3);
	write_to(&w, MLX5_OPCODE_RDMA_WRITE, b.mem, b.key, 8);
	at[0] = rig_post(&qa, &w);
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, at[0]);
	rig_run(&a, &b);
	assert_null(rig_poll(&qa.scq));
	assert_null(rig_poll(&qa.rcq));
}

/* An error in the middle of a message: the receive WQE that it holds is flushed as well. */
TEST_FIXTURE(error_in_mid_message, pair_open, pair_close)
{
	struct rig_wqe w;

	rig_recv(&qb, b.mem, 1 << 20, b.key);
	rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
	rig_wqe_data(&w, a.mem, 500000, a.key);
	rig_post(&qa, &w);
	while (sm_nic_progress(a.nic, rig_now) != 0)
		;
	sm_nic_progress(b.nic, rig_now);
	rig_set_state(&qb, IBV_QPS_ERR);
	expect_error(&qb.rcq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0);
}

/* No receive posted: the message waits for the timer and comes, whole and once. */
TEST_FIXTURE(rnr_then_posted, pair_open, pair_close)
{
	static const uint8_t ops[] = {MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_RDMA_WRITE_IMM};

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t len = i < 2 ? 8 : 30000;
		struct rig_wqe w;
		uint64_t t0;

		memset(a.mem, (int)i + 1, len);
		rig_wqe(&w, ops[i % 2], MLX5_WQE_CTRL_CQ_UPDATE, i);
		if (i % 2 == 1)
			rig_wqe_raddr(&w, b.mem, b.key);
		rig_wqe_data(&w, a.mem, len, a.key);
		rig_queue(&qa, &w);
		rig_send(&qa, MLX5_OPCODE_NOP, 0, NULL, 0);
		t0 = rig_now;
		rig_run(&a, &b);
		assert_null(rig_poll(&qa.scq));
		rig_recv(&qb, b.mem, 65536, b.key);
		assert_int_equal(be32toh(rig_expect(&a, &b, &qb.rcq)->imm_inval_pkey), i);
		assert_true(rig_now - t0 >= 10000); /* Timer code 1. */
		assert_memory_equal(a.mem, b.mem, len);
		assert_int_equal(
			be32toh(rig_expect(&a, &b, &qa.scq)->sop_drop_qpn) >> 24, ops[i % 2]);
		assert_int_equal(be32toh(rig_expect(&a, &b, &qa.scq)->sop_drop_qpn) >> 24,
			MLX5_OPCODE_NOP);
		rig_run(&a, &b);
		assert_null(rig_poll(&qb.rcq));
	}
}

/* The peer is alive and the queue pair is not: retries by the timeout attribute, then the error. */
TEST_FIXTURE(no_such_queue_pair, pair_open, pair_close)
{
	struct rig_qp x, y;
	struct rig_wqe w;
	uint64_t t0 = rig_now;

	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &y, NULL);
	rig_to_rts(&x, y.qpn);
	rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
	rig_wqe_inline(&w, "x", 1);
	rig_post(&x, &w);
	expect_error(&x.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0);
	/* Over UDP nothing comes back, and silence counts for less. */
	assert_in_range(rig_now - t0, 3 * 4096 << 8, (rig_udp ? 8 : 1) * 4 * 4096 << 8);
	/* A peer that comes to RTR a little late loses nothing. */
	rig_set_state(&x, IBV_QPS_RESET);
	rig_to_rts(&x, y.qpn);
	for (uint32_t i = 0; i < 5; i++) {
		rig_send(&x, MLX5_OPCODE_SEND_IMM, i, NULL, 0);
		rig_run(&a, &b);
	}
	rig_to_rts(&y, x.qpn);
	for (uint32_t i = 0; i < 5; i++)
		rig_recv(&y, b.mem, 8, b.key);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(be32toh(rig_expect(&a, &b, &y.rcq)->imm_inval_pkey), i);
		assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	}
	rig_link_close(&x, &y);
}

/* Another LID than the host's, or a slot that is free: no context is there. */
TEST_FIXTURE(no_such_place, pair_open, pair_close)
{
	if (rig_udp) /* Has neither. */
		skip();
	for (uint32_t i = 0; i < 2; i++) {
		struct ib_uverbs_modify_qp m;
		struct rig_wqe w;

		rig_set_state(&qa, IBV_QPS_RESET);
		rig_init_mod(&m);
		assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), 0);
		rig_rtr_mod(&m, i == 0 ? qb.qpn : 0xff0123);
		m.dest.dlid = i == 0 ? SM_LID + 1 : SM_LID;
		assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), 0);
		rig_rts_mod(&m);
		assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), 0);
		rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
		expect_send_error(&w, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	}
}

/* Messages that were taken are acknowledged even if the queue pair goes before its next pass. */
TEST_FIXTURE(destroyed_after_receive, pair_open, pair_close)
{
	struct rig_qp x, y;

	rig_link_open(&a, &x, &b, &y, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		rig_recv(&y, NULL, 0, 0);
		rig_send(&x, MLX5_OPCODE_SEND, 0, NULL, 0);
		sm_nic_progress(a.nic, rig_now);
		sm_nic_progress(b.nic, rig_now);
		assert_non_null(rig_poll(&y.rcq));
	}
	rig_qp_close(&y);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_qp_close(&x);
}

TEST_FIXTURE(cq_overrun, pair_open, pair_close)
{
	struct rig_qp_conf conf = {.ncqe = 4};
	struct rig_qp x, y;

	rig_qp_open(&a, &x, &conf);
	rig_qp_open(&b, &y, NULL);
	rig_connect(&x, &y);
	for (uint32_t i = 0; i < 5; i++) {
		rig_send(&x, MLX5_OPCODE_NOP, 0, NULL, 0);
	}
	rig_run(&a, &b);
	assert_int_equal(a.async[IBV_EVENT_CQ_ERR], 1);
	assert_int_equal(a.async[IBV_EVENT_QP_FATAL], 1);
	assert_int_equal(rig_state(&x), IBV_QPS_ERR);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(be16toh(rig_poll(&x.scq)->wqe_counter), i);
	rig_run(&a, &b);
	assert_null(rig_poll(&x.scq)); /* It stays broken. */
	rig_link_close(&x, &y);
}

/* Every pair of states: exactly the transitions of the InfiniBand specification. */
TEST_FIXTURE(transitions, pair_open, pair_close)
{
	struct ib_uverbs_modify_qp m, init, rtr, rts;

	rig_set_state(&qa, IBV_QPS_RESET);
	rig_init_mod(&init);
	rig_rtr_mod(&rtr, qb.qpn);
	rig_rts_mod(&rts);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rtr), EINVAL);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rts), EINVAL);
	for (uint32_t bit = 1; bit < 1u << 21; bit <<= 1) { /* Each attribute is needed. */
		m = init;
		m.attr_mask &= ~bit;
		assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m),
			m.attr_mask == init.attr_mask ? 0 : EINVAL);
		rig_set_state(&qa, IBV_QPS_RESET);
	}
	m = init;
	m.port_num = 2;
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
	m = init;
	m.attr_mask |= IBV_QP_QKEY;
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &init), 0);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rts), EINVAL);
	m = rtr;
	m.attr_mask &= ~(uint32_t)IBV_QP_DEST_QPN;
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
	m = rtr;
	m.max_dest_rd_atomic = 17;
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rtr), 0);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rtr), EINVAL);
	m = rts;
	m.attr_mask |= IBV_QP_CUR_STATE;
	m.cur_qp_state = IBV_QPS_RTS;
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &m), EINVAL);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &rts), 0);
	sm_qp_query(a.nic, qa.qp, &m);
	assert_int_equal(m.qp_state, IBV_QPS_RTS);
	assert_int_equal(m.dest_qp_num, qb.qpn);
	assert_int_equal(m.sq_psn, rts.sq_psn);
	assert_int_equal(m.rnr_retry, 3);
	rig_set_state(&qa, IBV_QPS_SQD);
	rig_set_state(&qa, IBV_QPS_RTS);
	rig_set_state(&qa, IBV_QPS_ERR);
	assert_int_equal(sm_qp_modify(a.nic, qa.qp, &init), EINVAL);
}

TEST_FIXTURE(refused_objects, pair_open, pair_close)
{
	struct sm_cq_attr cq = {.ncqe = 3, .cqe_size = 64, .buf = a.mem, .dbrec = a.mem + 4096};
	struct sm_qp_attr qp = {.type = (enum sm_qp_type)32,
		.pd = a.pd,
		.send_cq = qa.scq.cq,
		.recv_cq = qa.rcq.cq,
		.dbrec = a.mem,
		.uar_page = a.uar_id};
	const struct sm_region bad[] = {{0, 64, 0, 2}, {0, 64, 0, 8}, {UINT64_MAX - 3, 64, 0, 1}};
	struct sm_mr *mr;
	struct sm_cq *c;
	struct sm_qp *q;
	uint32_t n;

	assert_int_equal(sm_cq_create(a.nic, &cq, &c, &n), EINVAL);
	cq.ncqe = 4;
	cq.cqe_size = 96;
	assert_int_equal(sm_cq_create(a.nic, &cq, &c, &n), EINVAL);
	assert_int_equal(sm_qp_create(a.nic, &qp, &q, &n), EOPNOTSUPP);
	qp.type = SM_RC;
	qp.sq_nwqebb = 48;
	qp.sq_buf = a.mem;
	assert_int_equal(sm_qp_create(a.nic, &qp, &q, &n), EINVAL);
	qp.sq_nwqebb = 64;
	qp.uar_page = 999;
	assert_int_equal(sm_qp_create(a.nic, &qp, &q, &n), EINVAL);
	assert_int_equal(sm_mr_create(a.nic, a.pd, &bad[0], &mr, &n), EINVAL);
	assert_int_equal(sm_mr_create(a.nic, a.pd, &bad[1], &mr, &n), EINVAL);
	assert_int_equal(sm_mr_create(a.nic, a.pd, &bad[2], &mr, &n), EINVAL);
	assert_int_equal(sm_destroy(a.nic, qa.scq.cq), EBUSY);
	assert_int_equal(sm_destroy(a.nic, a.pd), EBUSY);
	assert_int_equal(sm_destroy(a.nic, a.uar_obj), EBUSY);
}

/* A key does not live again: neither after dereg nor in the next region; rereg keeps it. */
TEST_FIXTURE(keys_are_not_reused, pair_open, pair_close)
{
	struct sm_mr *mr;
	const struct sm_region all = {(uintptr_t)a.mem, 64, 0x1000, 15};
	struct sm_region local = all, wrong = all;
	uint32_t lkey, old = 0;

	local.access = 1;
	wrong.access = 2;
	for (uint32_t i = 0; i < 600; i++) {
		assert_int_equal(sm_mr_create(a.nic, a.pd, &all, &mr, &lkey), 0);
		assert_int_not_equal(lkey, old);
		assert_int_not_equal(lkey >> 8, 1);
		old = lkey;
		assert_int_equal(sm_mr_rereg(a.nic, mr, NULL, &local, &lkey), 0);
		assert_int_equal(lkey, old);
		assert_int_equal(sm_mr_rereg(a.nic, mr, NULL, &wrong, &lkey), EINVAL);
		assert_int_equal(sm_mr_region(a.nic, mr).access, local.access);
		assert_int_equal(sm_destroy(a.nic, mr), 0);
	}
}

/* Addresses on the wire are those of the region's own space, whatever lies behind. */
TEST_FIXTURE(region_with_its_own_addresses, pair_open, pair_close)
{
	struct sm_mr *mr;
	const struct sm_region region = {(uintptr_t)b.mem + 4096, 4096, 0x7000, 15};
	struct rig_wqe w;
	uint32_t key;

	assert_int_equal(sm_mr_create(b.nic, b.pd, &region, &mr, &key), 0);
	memset(a.mem, 0x5a, 8);
	rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, (void *)(uintptr_t)0x7010, key, a.mem, 8);
	assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	assert_memory_equal(b.mem + 4096 + 16, a.mem, 8);
	assert_int_equal(sm_destroy(b.nic, mr), 0);
	write_to(&w, MLX5_OPCODE_RDMA_WRITE, (void *)(uintptr_t)0x7010, key, 8);
	expect_send_error(&w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

TEST_MAIN(NULL, NULL)
