/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory windows of both types: what they let through and what not, who may use them, and how they
 * end: by a bind of nothing, by the owner's or the peer's invalidation, by their destruction.
 */
#include <endian.h>
#include <errno.h>

#include "test.h"
#include "engine_rig.h"

#define REMOTE_WRITE MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE
#define REMOTE_READ MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ

static struct rig_host a, b;
static struct rig_qp qa, qb;
static struct sm_mr *mr;
static uint32_t lkey; /* Of b's second region, which windows can be bound to. */

static int
pair_open(void **state)
{
	rig_retry = 7;
	rig_pair_open(&qa, &a, &qb, &b, 1 << 16, NULL);
	rig_connect(&qa, &qb);
	mr = rig_mr_open(&b, b.pd, b.mem, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &lkey);
	return 0;
}

static int
pair_close(void **state)
{
	assert_int_equal(sm_destroy(b.nic, mr), 0);
	rig_pair_close(&qa, &qb);
	return 0;
}

/* Post on @p q what rdma-core makes of a bind, or, with length 0, of an invalidation. */
static struct mlx5_cqe64 *
umr(struct rig_qp *q, uint32_t key, uint32_t next, uint32_t of, const void *addr, uint64_t len,
	uint8_t access)
{
	struct mlx5_wqe_umr_ctrl_seg ctrl = {.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE};
	struct mlx5_wqe_mkey_context_seg mkey = {
		.free = len == 0 ? MLX5_WQE_MKEY_CONTEXT_FREE : 0,
		.access_flags = access,
		.qpn_mkey = htobe32(q->qpn << 8 | (next & 0xff)),
		.start_addr = htobe64((uintptr_t)addr),
		.len = htobe64(len),
	};
	struct mlx5_wqe_umr_klm_seg klm = {
		.byte_count = htobe32((uint32_t)len),
		.mkey = htobe32(of),
		.address = htobe64((uintptr_t)addr),
	};
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_UMR, MLX5_WQE_CTRL_CQ_UPDATE, key);
	memcpy(w.b + w.len, &ctrl, sizeof(ctrl));
	w.len += sizeof(ctrl);
	memcpy(w.b + w.len, &mkey, sizeof(mkey));
	w.len += sizeof(mkey);
	if (len != 0) {
		memcpy(w.b + w.len, &klm, sizeof(klm));
		w.len += 64;
	}
	rig_post(q, &w);
	return rig_expect(&a, &b, &q->scq);
}

static uint8_t
outcome(const struct mlx5_cqe64 *c)
{
	return c->op_own >> 4 == MLX5_CQE_REQ ? 0 : RIG_SYND(c);
}

/* WRITE, or READ, 8 bytes of b by a's @p q; the syndrome. */
static uint8_t
access_by(struct rig_qp *q, uint8_t op, const void *raddr, uint32_t rkey)
{

	rig_rdma(q, op, 0, raddr, rkey, a.mem, 8);
	return outcome(rig_expect(&a, &b, &q->scq));
}

static uint8_t
write_to(const void *raddr, uint32_t rkey)
{
	return access_by(&qa, MLX5_OPCODE_RDMA_WRITE, raddr, rkey);
}

static void
denied(uint8_t op, const void *raddr, uint32_t rkey)
{
	assert_int_equal(access_by(&qa, op, raddr, rkey), 0x13);
	rig_reconnect(&qa, &qb);
}

TEST_FIXTURE(a_window_shows_its_part, pair_open, pair_close)
{
	uint32_t key, next;
	struct sm_mw *mw;

	for (uint8_t type = 1; type <= 2; type++) {
		assert_int_equal(sm_mw_create(b.nic, b.pd, type, &mw, &key), 0);
		denied(MLX5_OPCODE_RDMA_WRITE, b.mem, key); /* Bound to nothing yet. */
		next = (key & ~0xffu) | ((key + 1) & 0xff);
		assert_int_equal(outcome(umr(&qb, key, next, lkey, b.mem + 100, 64, REMOTE_WRITE)),
			0);
		memset(a.mem, 0x40 + type, 8);
		assert_int_equal(write_to(b.mem + 100, next), 0);
		assert_int_equal(write_to(b.mem + 156, next), 0);
		assert_memory_equal(b.mem + 156, a.mem, 8);
		denied(MLX5_OPCODE_RDMA_WRITE, b.mem + 99, next);
		denied(MLX5_OPCODE_RDMA_WRITE, b.mem + 157, next);
		denied(MLX5_OPCODE_RDMA_READ, b.mem + 100, next);
		denied(MLX5_OPCODE_RDMA_WRITE, b.mem + 100, key); /* The key before. */
		/* A window is no memory of one's own, and its region stays while it is bound. */
		assert_int_equal(sm_destroy(b.nic, mr), EBUSY);
		{
			struct rig_wqe w;

			rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, 0, 0);
			rig_wqe_raddr(&w, a.mem, a.key);
			rig_wqe_data(&w, b.mem + 100, 8, next);
			rig_post(&qb, &w);
			assert_int_equal(outcome(rig_expect(&a, &b, &qb.scq)), 0x04);
			rig_reconnect(&qa, &qb);
		}
		assert_int_equal(sm_destroy(b.nic, mw), 0);
		denied(MLX5_OPCODE_RDMA_WRITE, b.mem + 100, next);
	}
	assert_int_equal(sm_mw_create(b.nic, b.pd, 3, &mw, &key), EINVAL);
}

TEST_FIXTURE(type_1_is_bound_anew, pair_open, pair_close)
{
	struct sm_mw *mw;
	uint32_t key;

	assert_int_equal(sm_mw_create(b.nic, b.pd, 1, &mw, &key), 0);
	assert_int_equal(outcome(umr(&qb, key, key + 1, lkey, b.mem, 64, REMOTE_WRITE)), 0);
	assert_int_equal(outcome(umr(&qb, key + 1, key + 2, lkey, b.mem + 64, 64, REMOTE_READ)), 0);
	denied(MLX5_OPCODE_RDMA_WRITE, b.mem, key + 1);
	assert_int_equal(access_by(&qa, MLX5_OPCODE_RDMA_READ, b.mem + 64, key + 2), 0);
	assert_int_equal(outcome(umr(&qb, key + 2, key + 3, 0, NULL, 0, 0)), 0);
	denied(MLX5_OPCODE_RDMA_READ, b.mem + 64, key + 2);
	denied(MLX5_OPCODE_RDMA_READ, b.mem + 64, key + 3);
	assert_int_equal(sm_destroy(b.nic, mw), 0);
}

static void
send_inval(uint32_t key)
{

	rig_recv(&qb, b.mem + 2048, 8, lkey);
	rig_send(&qa, MLX5_OPCODE_SEND_INVAL, key, a.mem, 8);
}

/* Its queue pair's alone; unbound by its owner or by the peer before it is bound again. */
TEST_FIXTURE(type_2_is_invalidated, pair_open, pair_close)
{
	struct rig_qp xa, xb;
	struct mlx5_cqe64 *c;
	struct sm_mw *mw;
	uint32_t key;

	rig_link_open(&a, &xa, &b, &xb, NULL);
	assert_int_equal(sm_mw_create(b.nic, b.pd, 2, &mw, &key), 0);
	assert_int_equal(outcome(umr(&qb, key, key + 1, lkey, b.mem, 64, REMOTE_WRITE)), 0);
	assert_int_equal(access_by(&xa, MLX5_OPCODE_RDMA_WRITE, b.mem, key + 1), 0x13);
	assert_int_equal(write_to(b.mem, key + 1), 0);
	assert_int_equal(outcome(umr(&qb, key + 1, key + 2, lkey, b.mem, 64, REMOTE_WRITE)), 0x06);
	rig_reconnect(&qa, &qb);
	assert_int_equal(outcome(umr(&qb, key + 1, 0, 0, NULL, 0, 0)), 0);
	denied(MLX5_OPCODE_RDMA_WRITE, b.mem, key + 1);
	assert_int_equal(outcome(umr(&qb, key + 1, key + 2, lkey, b.mem, 64, REMOTE_WRITE)), 0);
	send_inval(key + 2);
	c = rig_expect(&a, &b, &qb.rcq);
	assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_INV);
	assert_int_equal(be32toh(c->imm_inval_pkey), key + 2);
	assert_int_equal(outcome(rig_expect(&a, &b, &qa.scq)), 0);
	denied(MLX5_OPCODE_RDMA_WRITE, b.mem, key + 2);
	/* Once is enough: there is nothing left to invalidate. */
	send_inval(key + 2);
	assert_int_equal(outcome(rig_expect(&a, &b, &qa.scq)), 0x13);
	assert_int_equal(sm_destroy(b.nic, mw), 0);
	rig_link_close(&xa, &xb);
}

/* Behind work that is lost and sent again, each is done once and in its place. */
TEST_FIXTURE(in_order_under_loss, pair_open, pair_close)
{
	struct sm_mw *mw;
	struct rig_wqe w;
	uint32_t key, i;

	assert_int_equal(sm_mw_create(b.nic, b.pd, 2, &mw, &key), 0);
	assert_int_equal(sm_nic_faults(a.nic, "seed=5,drop=0.2"), 0);
	assert_int_equal(sm_nic_faults(b.nic, "seed=6,drop=0.2"), 0);
	for (i = 0; i < 40; i++) {
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, 0, 0);
		rig_wqe_raddr(&w, a.mem + 4096, a.key);
		rig_wqe_data(&w, b.mem, 64, b.key);
		rig_post(&qb, &w);
		assert_int_equal(
			outcome(umr(&qb, key, key + 1, lkey, b.mem, 64, REMOTE_WRITE)), 0);
		rig_post(&qb, (rig_wqe(&w, MLX5_OPCODE_NOP, 0, 0), &w));
		assert_int_equal(write_to(b.mem, key + 1), 0);
		assert_int_equal(outcome(umr(&qb, key + 1, 0, 0, NULL, 0, 0)), 0);
	}
	assert_int_equal(sm_destroy(b.nic, mw), 0);
}

/* What a bind asks for and does not get. */
TEST_FIXTURE(binds_that_fail, pair_open, pair_close)
{
	const struct {
		uint32_t of;
		uint32_t off;
		uint64_t len;
	} bad[] = {{lkey + 1, 0, 64}, {0, 0, 64}, {b.key, 0, 64}, {lkey, 4090, 7}, {lkey, 0, 4097},
		{UINT32_MAX, 0, 64}};
	struct sm_mw *mw;
	uint32_t key;

	assert_int_equal(sm_mw_create(b.nic, b.pd, 1, &mw, &key), 0);
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(outcome(umr(&qb, key, key + 1, bad[i].of, b.mem + bad[i].off,
					 bad[i].len, REMOTE_WRITE)), 0x06);
		rig_reconnect(&qa, &qb);
	}
	/* No window: a region's key, another's, none at all. */
	assert_int_equal(outcome(umr(&qb, lkey, lkey + 1, lkey, b.mem, 8, 0)), 0x06);
	rig_reconnect(&qa, &qb);
	assert_int_equal(outcome(umr(&qb, key + 0x100, 0, lkey, b.mem, 8, 0)), 0x06);
	rig_reconnect(&qa, &qb);
	assert_int_equal(outcome(umr(&qb, UINT32_MAX, 0, lkey, b.mem, 8, 0)), 0x06);
	rig_reconnect(&qa, &qb);
	assert_int_equal(sm_destroy(b.nic, mw), 0);
}

TEST_MAIN(NULL, NULL)
