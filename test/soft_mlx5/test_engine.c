/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software ConnectX without rdma-core: hand-made WQEs in plain memory give the CQEs and the
 * bytes that a ConnectX gives.
 */
#include <errno.h>

#include "test.h"
#include "crpc_util.h"
#include "engine_rig.h"

static struct rig_host a, b;
static struct rig_qp qa, qb;

static int
pair_open(void **state)
{
	rig_pair_open(&qa, &a, &qb, &b, 4 << 20, NULL);
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
fill(uint8_t *p, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

/* Every byte of the two CQEs of a WRITE_IMM, and of the receive WQE that it takes. */
TEST_FIXTURE(write_imm_golden, pair_open, pair_close)
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
TEST_FIXTURE(data_of_all_sizes, pair_open, pair_close)
{
	static const uint32_t sizes[] = {
		0, 1, 31, 32, 33, 4096, 8191, 8192, 8193, 16384, 65537, 1 << 20};

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i];
		struct mlx5_cqe64 *c;

		fill(a.mem, n, i);
		memset(b.mem, 0, 2 << 20);
		rig_recv(&qb, b.mem, 2 << 20, b.key);
		rig_send(&qa, MLX5_OPCODE_SEND_IMM, i, a.mem, n);
		c = rig_expect(&a, &b, &qb.rcq);
		assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
		assert_int_equal(be32toh(c->byte_cnt), n);
		assert_int_equal(be32toh(c->imm_inval_pkey), i);
		assert_memory_equal(a.mem, b.mem, n);
		assert_int_equal(b.mem[n], 0);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);

		memset(b.mem, 0, 2 << 20);
		rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + 3, b.key, a.mem, n);
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		assert_memory_equal(a.mem, b.mem + 3, n);
		assert_int_equal(b.mem[3 + n], 0);

		memset(a.mem, 0, 2 << 20);
		rig_rdma(&qa, MLX5_OPCODE_RDMA_READ, 0, b.mem + 3, b.key, a.mem + 1, n);
		c = rig_expect(&a, &b, &qa.scq);
		assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
		assert_int_equal(be32toh(c->byte_cnt), n);
		assert_memory_equal(a.mem + 1, b.mem + 3, n);
		assert_int_equal(a.mem[1 + n], 0);
	}
}

/* Every small size, which has copies of its own: all bytes of it and none beside them. */
TEST_FIXTURE(small_sizes, pair_open, pair_close)
{
	uint8_t want[256];
	struct rig_wqe w;

	for (uint32_t n = 0; n < 200; n++) {
		uint8_t *to = b.mem + 4096 + n % 13, *back = a.mem + 4096 + n % 7;

		fill(a.mem, n, n);
		memset(want, 0xee, sizeof(want));
		memcpy(want + 16, a.mem, n);
		memset(to - 16, 0xee, sizeof(want));
		memset(back - 16, 0xee, sizeof(want));
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, 0, 0);
		rig_wqe_raddr(&w, to, b.key);
		rig_wqe_inline(&w, a.mem, n);
		rig_queue(&qa, &w);
		rig_rdma(&qa, MLX5_OPCODE_RDMA_READ, 0, to, b.key, back, n);
		assert_int_equal(be32toh(rig_expect(&a, &b, &qa.scq)->byte_cnt), n);
		assert_memory_equal(to - 16, want, sizeof(want));
		assert_memory_equal(back - 16, want, sizeof(want));
	}
}

/* A send queue of 8 blocks: WQEs of several segments go round its end at every place. */
TEST_FIXTURE(gather_and_wrap, pair_open, pair_close)
{
	struct rig_qp_conf conf = {.sq_nbb = 8};
	struct rig_qp x, y;
	uint8_t want[1024];

	rig_link_open(&a, &x, &b, &y, &conf);
	fill(a.mem, 4096, 5);
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t inl = i % 97, one = i % 53, two = 1 + i % 31, n = 0;
		struct rig_wqe w;

		rig_recv(&y, b.mem, 1024, b.key);
		rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		memcpy(want, a.mem + i, inl);
		rig_wqe_inline(&w, a.mem + i, inl);
		n = inl;
		rig_wqe_data(&w, a.mem + 7 * i, one, a.key); /* Length 0 now and then: skipped. */
		memcpy(want + n, a.mem + 7 * i, one);
		n += one;
		for (uint32_t k = 0; k < i % 7; k++) {
			rig_wqe_data(&w, a.mem + k, two, a.key);
			memcpy(want + n, a.mem + k, two);
			n += two;
		}
		rig_post(&x, &w);
		assert_int_equal(be32toh(rig_expect(&a, &b, &y.rcq)->byte_cnt), n);
		assert_memory_equal(b.mem, want, n);
		assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	}
	rig_link_close(&x, &y);
}

/* A receive list of several segments is filled in order, a short message leaves the rest alone. */
TEST_FIXTURE(scatter_list, pair_open, pair_close)
{
	struct rig_qp_conf conf = {.rq_shift = 6};
	struct mlx5_wqe_data_seg *s;
	struct rig_qp x, y;
	struct rig_wqe w;

	rig_link_open(&a, &x, &b, &y, &conf);
	rig_recv(&y, b.mem, 10, b.key);
	s = (void *)y.rq;
	s[1].byte_count = 0; /* Skipped: its key is not the end mark. */
	s[1].lkey = htobe32(b.key);
	s[2].byte_count = htobe32(20000);
	s[2].lkey = htobe32(b.key);
	s[2].addr = htobe64((uintptr_t)b.mem + 100);
	s[3].lkey = htobe32(MLX5_INVALID_LKEY);
	fill(a.mem, 20000, 9);
	rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
	rig_wqe_data(&w, a.mem, 15000, a.key);
	rig_post(&x, &w);
	assert_int_equal(be32toh(rig_expect(&a, &b, &y.rcq)->byte_cnt), 15000);
	assert_memory_equal(b.mem, a.mem, 10);
	assert_memory_equal(b.mem + 100, a.mem + 10, 14990);
	assert_int_equal(b.mem[10], 0);
	assert_int_equal(b.mem[100 + 14990], 0);
	rig_link_close(&x, &y);
}

/* Only signalled WQEs complete, in order, NOPs too; the counter is the WQE's first block. */
TEST_FIXTURE(signalling_order, pair_open, pair_close)
{
	static const uint8_t ops[] = {MLX5_OPCODE_NOP, MLX5_OPCODE_RDMA_WRITE,
		MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_NOP,
		MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_NOP};
	uint16_t at[sizeof(ops)];
	struct rig_wqe w;

	for (uint32_t i = 0; i < sizeof(ops); i++) {
		rig_wqe(&w, ops[i], i % 2 == 0 ? MLX5_WQE_CTRL_CQ_UPDATE : 0, 0);
		if (ops[i] != MLX5_OPCODE_NOP) {
			rig_wqe_raddr(&w, b.mem, b.key);
			for (uint32_t k = 0; k < 1 + i; k++)
				rig_wqe_data(&w, a.mem + 100 * k, 10, a.key);
		}
		at[i] = rig_queue(&qa, &w);
	}
	rig_ring(&qa);
	for (uint32_t i = 0; i < sizeof(ops); i += 2) {
		struct mlx5_cqe64 *c = rig_expect(&a, &b, &qa.scq);

		assert_int_equal(be16toh(c->wqe_counter), at[i]);
		assert_int_equal(be32toh(c->sop_drop_qpn) >> 24, ops[i]);
	}
	rig_run(&a, &b);
	assert_null(rig_poll(&qa.scq));
}

/* The device acts on the doorbell register, not on the doorbell record alone. */
TEST_FIXTURE(no_doorbell_no_work, pair_open, pair_close)
{
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_NOP, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	rig_queue(&qa, &w);
	qa.dbrec[1] = htobe32(qa.sq_pi);
	rig_run(&a, &b);
	assert_null(rig_poll(&qa.scq));
	rig_ring(&qa);
	assert_non_null(rig_expect(&a, &b, &qa.scq));
}

/* Doorbells of many queue pairs fall into the same two registers and overwrite each other. */
TEST_FIXTURE(doorbells_overwritten, pair_open, pair_close)
{
	enum { N = 100 };
	static struct rig_qp x[N], y[N];
	struct rig_qp_conf conf = {.sq_nbb = 4, .rq_nwqe = 4, .ncqe = 8};
	struct rig_wqe w;

	for (uint32_t i = 0; i < N; i++) {
		rig_qp_open(&a, &x[i], &conf);
		rig_qp_open(&b, &y[i], &conf);
		rig_connect(&x[i], &y[i]);
		rig_recv(&y[i], NULL, 0, 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_WQE_CTRL_CQ_UPDATE, i);
		rig_wqe_raddr(&w, b.mem + i, b.key);
		rig_wqe_inline(&w, &i, 1);
		rig_post(&x[i], &w);
	}
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(be32toh(rig_expect(&a, &b, &y[i].rcq)->imm_inval_pkey), i);
		assert_non_null(rig_expect(&a, &b, &x[i].scq));
		assert_int_equal(b.mem[i], i);
	}
	for (uint32_t i = 0; i < N; i++) {
		rig_link_close(&x[i], &y[i]);
	}
}

TEST_FIXTURE(atomics, pair_open, pair_close)
{
	uint64_t *word = (void *)(b.mem + 64), *got = (void *)a.mem;
	struct rig_wqe w;

	*word = 100;
	rig_fetch_add(&qa, word, b.key, 5, got, 8);
	assert_int_equal(be32toh(rig_expect(&a, &b, &qa.scq)->byte_cnt), 8);
	assert_int_equal(*got, 100);
	assert_int_equal(*word, 105);
	for (uint64_t compare = 104; compare <= 105; compare++) {
		rig_wqe(&w, MLX5_OPCODE_ATOMIC_CS, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_raddr(&w, word, b.key);
		rig_wqe_atomic(&w, 7, compare);
		rig_wqe_data(&w, got + 1, 8, a.key);
		rig_post(&qa, &w);
		assert_non_null(rig_expect(&a, &b, &qa.scq));
		assert_int_equal(got[1], 105);
		assert_int_equal(*word, compare == 105 ? 7 : 105);
	}
}

/* More READs than max_rd_atomic, and fenced SENDs that carry what the READ before them brought. */
TEST_FIXTURE(reads_and_fences, pair_open, pair_close)
{
	struct rig_wqe w;

	for (uint32_t i = 0; i < 10; i++) {
		b.mem[4096 + i] = (uint8_t)(i + 1);
		rig_recv(&qb, b.mem + i, 1, b.key);
	}
	for (uint32_t i = 0; i < 10; i++) {
		rig_wqe(&w, MLX5_OPCODE_RDMA_READ, 0, 0);
		rig_wqe_raddr(&w, b.mem + 4096 + i, b.key);
		rig_wqe_data(&w, a.mem + i, 1, a.key);
		rig_queue(&qa, &w);
		rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_data(&w, a.mem + i, 1, a.key);
		rig_queue(&qa, &w);
	}
	rig_ring(&qa);
	for (uint32_t i = 0; i < 10; i++) {
		assert_non_null(rig_expect(&a, &b, &qa.scq));
		assert_non_null(rig_expect(&a, &b, &qb.rcq));
		assert_int_equal(b.mem[i], i + 1);
	}
	for (uint32_t i = 0; i < 12; i++) /* Without fences, more than four at a time. */
		rig_rdma(&qa, MLX5_OPCODE_RDMA_READ, 0, b.mem + 4096, b.key, a.mem + 65536 * i,
			65536);
	fill(b.mem + 4096, 65536, 3);
	for (uint32_t i = 0; i < 12; i++) {
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		assert_memory_equal(a.mem + 65536 * i, b.mem + 4096, 65536);
	}
}

/* The receiver does nothing: the sender stops at a full ring, does not spin, loses nothing. */
TEST_FIXTURE(ring_full, pair_open, pair_close)
{
	enum { N = 30 };
	uint32_t before, after = 0;

	fill(a.mem, 65536, 1);
	for (uint32_t i = 0; i < N; i++)
		rig_rdma(
			&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + 65536 * i, b.key, a.mem + i, 65536);
	for (before = 0; sm_nic_progress(a.nic, rig_now) != 0; before++)
		assert_in_range(before, 0, 1000);
	for (uint32_t i = 0; i < 100; i++)
		after += sm_nic_progress(a.nic, rig_now);
	assert_int_equal(after, 0);
	assert_null(rig_poll(&qa.scq));
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	for (uint32_t i = 0; i < N; i++)
		assert_memory_equal(b.mem + 65536 * i, a.mem + i, 65536);
}

/* Both directions full of READ responses and requests at once: no deadlock. */
TEST_FIXTURE(rings_full_both_ways, pair_open, pair_close)
{

	fill(a.mem, 1 << 20, 1);
	fill(b.mem, 1 << 20, 2);
	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t k = 0; k < 2; k++) {
			struct rig_qp *q = k == 0 ? &qa : &qb;
			struct rig_host *far = k == 0 ? &b : &a;

			rig_rdma(q, MLX5_OPCODE_RDMA_READ, 0, far->mem, far->key,
				q->host->mem + (2 << 20), 1 << 20);
			rig_rdma(q, MLX5_OPCODE_RDMA_WRITE, 0, far->mem + (3 << 20), far->key,
				q->host->mem, 1 << 20);
		}
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		assert_int_equal(rig_expect(&a, &b, &qb.scq)->op_own >> 4, MLX5_CQE_REQ);
	}
	assert_memory_equal(a.mem + (2 << 20), b.mem, 1 << 20);
	assert_memory_equal(b.mem + (3 << 20), a.mem, 1 << 20);
}

/* Two queue pairs of one context: the same path through a ring of its own. */
TEST_FIXTURE(loopback, pair_open, pair_close)
{
	struct rig_qp x, y;

	rig_link_open(&a, &x, &a, &y, NULL);
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t n = i % 100 == 0 ? 300000 : i % 64;

		fill(a.mem, n, i);
		rig_recv(&y, NULL, 0, 0);
		rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE_IMM, i, a.mem + (1 << 20), a.key, a.mem, n);
		assert_int_equal(be32toh(rig_expect(&a, NULL, &y.rcq)->imm_inval_pkey), i);
		assert_memory_equal(a.mem, a.mem + (1 << 20), n);
		assert_non_null(rig_expect(&a, NULL, &x.scq));
	}
	rig_link_close(&x, &y);
}

/*
 * An acknowledgement to ourselves takes no ring, a response does: what was acknowledged behind an
 * open READ must complete when its response comes, though nothing follows.
 */
TEST_FIXTURE(loopback_read_ahead, pair_open, pair_close)
{
	struct rig_qp x, y;
	struct rig_wqe w;

	rig_link_open(&a, &x, &a, &y, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		fill(a.mem, 64, i);
		rig_rdma(&x, MLX5_OPCODE_RDMA_READ, 0, a.mem, a.key, a.mem + 4096, 64);
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_raddr(&w, a.mem + 8192, a.key);
		rig_wqe_inline(&w, &i, sizeof(i));
		rig_post(&x, &w);
		rig_run(&a, NULL);
		assert_non_null(rig_poll(&x.scq));
		assert_memory_equal(a.mem, a.mem + 4096, 64);
		assert_non_null(rig_poll(&x.scq));
		assert_memory_equal(a.mem + 8192, &i, sizeof(i));
	}
	rig_link_close(&x, &y);
}

/* WQEs are used in the order of the list, whatever their place in the buffer. */
TEST_FIXTURE(srq_order, pair_open, pair_close)
{
	static const uint32_t order[] = {0, 5, 2, 7, 1};
	struct rig_qp_conf conf = {0};
	struct rig_srq s;
	struct rig_qp x, y;
	struct rig_wqe w;

	rig_srq_open(&b, &s, 8, 5);
	assert_int_equal(sm_srq_limit(b.nic, s.srq, 8), EINVAL);
	conf.srq = &s;
	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &y, &conf);
	rig_connect(&x, &y);
	for (uint32_t i = 0; i < 5; i++)
		rig_srq_recv(&s, order[i], i < 4 ? order[i + 1] : 3, b.mem + 64 * i, 64, b.key);
	assert_int_equal(sm_srq_limit(b.nic, s.srq, 3), 0);
	for (uint32_t i = 0; i < 5; i++) {
		struct mlx5_cqe64 *c;

		rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
		rig_wqe_inline(&w, &i, sizeof(i));
		rig_post(&x, &w);
		c = rig_expect(&a, &b, &y.rcq);
		assert_int_equal(be16toh(c->wqe_counter), order[i]);
		assert_int_equal(be32toh(c->srqn_uidx), 0x1234);
		assert_memory_equal(b.mem + 64 * i, &i, sizeof(i));
		assert_int_equal(b.async[IBV_EVENT_SRQ_LIMIT_REACHED], i >= 2 ? 1 : 0);
	}
	assert_int_equal(sm_destroy(b.nic, s.srq), EBUSY);
	rig_set_state(&y, IBV_QPS_ERR);
	assert_int_equal(b.async[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
	rig_link_close(&x, &y);
	rig_srq_close(&b, &s);
}

static void
arm(struct rig_cq *c, struct rig_host *h, uint32_t sn, uint32_t cmd)
{
	uint32_t word = sn << 28 | cmd | (c->ci & 0xffffff);
	uint64_t v = htobe64((uint64_t)word << 32 | c->cqn);

	c->dbrec[1] = htobe32(word);
	memcpy(h->uar + MLX5_CQ_DOORBELL, &v, 8);
}

static void
send_one(uint8_t fm)
{
	struct rig_wqe w;

	rig_recv(&qb, NULL, 0, 0);
	rig_wqe(&w, MLX5_OPCODE_SEND, fm, 0);
	rig_post(&qa, &w);
	assert_non_null(rig_expect(&a, &b, &qb.rcq));
	rig_run(&a, &b);
}

/* One event for one arm, whichever of CQE and arm came first; solicited only if so asked. */
TEST_FIXTURE(cq_events, pair_open, pair_close)
{
	send_one(0);
	assert_int_equal(b.comp_events, 0); /* Never armed. */
	arm(&qb.rcq, &b, 0, 0);
	rig_run(&a, &b);
	assert_int_equal(b.comp_events, 0); /* Nothing new since. */
	send_one(0);
	assert_int_equal(b.comp_events, 1);
	send_one(0);
	assert_int_equal(b.comp_events, 1); /* Not armed again. */
	qb.rcq.ci--;
	arm(&qb.rcq, &b, 1, 0); /* What was polled since does not count, */
	qb.rcq.ci++;
	rig_run(&a, &b);
	assert_int_equal(b.comp_events, 1);
	qb.rcq.dbrec[0] = htobe32((qb.rcq.ci - 1) & 0xffffff);
	qb.rcq.ci--;
	arm(&qb.rcq, &b, 2, 0); /* but what is there already and was not polled does. */
	qb.rcq.ci++;
	rig_run(&a, &b);
	assert_int_equal(b.comp_events, 2);
	qb.rcq.dbrec[0] = htobe32(qb.rcq.ci & 0xffffff);
	arm(&qb.rcq, &b, 3, MLX5_CQ_DB_REQ_NOT_SOL);
	send_one(0);
	assert_int_equal(b.comp_events, 2);
	send_one(MLX5_WQE_CTRL_SOLICITED);
	assert_int_equal(qb.rcq.last.op_own & 2, 2);
	assert_int_equal(b.comp_events, 3);
}

/*
 * However many CQEs were consumed since a queue was armed, also more than it has entries: the next
 * one that the arm asks for raises its event.
 */
TEST_FIXTURE(an_arm_outlasts_many_completions, pair_open, pair_close)
{
	struct rig_qp_conf conf = {.ncqe = 2};
	static const uint32_t counts[] = {1, 2, 3, 4, 9, 1000};
	struct rig_qp x, y;
	struct rig_wqe w;

	rig_link_open(&a, &x, &b, &y, &conf);
	for (uint32_t k = 0; k < CRPC_DIM(counts); k++) {
		b.comp_events = 0;
		arm(&y.rcq, &b, k, MLX5_CQ_DB_REQ_NOT_SOL);
		for (uint32_t i = 0; i <= counts[k]; i++) {
			assert_int_equal(b.comp_events, 0);
			rig_recv(&y, NULL, 0, 0);
			rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE |
				(i == counts[k] ? MLX5_WQE_CTRL_SOLICITED : 0), 0);
			rig_post(&x, &w);
			assert_non_null(rig_expect(&a, &b, &y.rcq));
			assert_non_null(rig_expect(&a, &b, &x.scq));
		}
		assert_int_equal(b.comp_events, 1);
	}
	rig_link_close(&x, &y);
}

/* RESET starts all counters again, and the same WQE with the same doorbell is a new one. */
TEST_FIXTURE(reset_and_reuse, pair_open, pair_close)
{
	struct rig_wqe w;

	for (uint32_t i = 0; i < 5; i++) {
		rig_recv(&qb, NULL, 0, 0);
		rig_wqe(&w, MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_CQ_UPDATE, i);
		assert_int_equal(rig_post(&qa, &w), 0);
		assert_int_equal(be32toh(rig_expect(&a, &b, &qb.rcq)->imm_inval_pkey), i);
		assert_int_equal(be16toh(qb.rcq.last.wqe_counter), 0);
		assert_int_equal(be16toh(rig_expect(&a, &b, &qa.scq)->wqe_counter), 0);
		rig_set_state(&qa, IBV_QPS_RESET);
		rig_set_state(&qb, IBV_QPS_RESET);
		qa.bf = 0; /* The same register as before. */
		rig_connect(&qa, &qb);
	}
}

TEST_MAIN(NULL, NULL)
