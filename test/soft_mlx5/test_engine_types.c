/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs other than RC: datagrams, unreliable connections, dynamic connections; and completion
 * queues that change their size.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "test.h"
#include "crpc_util.h"
#include "engine_rig.h"
#include "rnd.h"

#define QKEY     0x11111111u
#define DC_KEY   UINT64_C(0x0badc0de12345678)
#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE

static struct rig_host a, b;
static const char *host_net;

static int
hosts_open(void **state)
{
	host_net = rig_net();
	rig_host_open(&a, host_net, 1 << 20);
	rig_host_open(&b, host_net, 1 << 20);
	for (uint32_t i = 0; i < a.bytes; i++)
		a.mem[i] = (uint8_t)(i * 7 + i / 251);
	return 0;
}

static int
hosts_close(void **state)
{
	rig_host_close(&a);
	rig_host_close(&b);
	return 0;
}

static void
type_open(struct rig_host *h, struct rig_qp *q, enum sm_qp_type type)
{
	struct rig_qp_conf conf = {.type = type};

	rig_qp_open(h, q, &conf);
}

static void
expect_ok(struct rig_cq *cq, uint8_t op)
{
	assert_int_equal(rig_expect(&a, &b, cq)->op_own >> 4, op);
}

static void
expect_error(struct rig_cq *cq, uint8_t op, uint8_t synd)
{
	struct mlx5_cqe64 *c = rig_expect(&a, &b, cq);

	assert_int_equal(c->op_own >> 4, op);
	assert_int_equal(RIG_SYND(c), synd);
}

static void
expect_nothing(struct rig_cq *cq)
{
	rig_run(&a, &b);
	assert_null(rig_poll(cq));
}

/* ---- UD ---- */

static void
ud_send(struct rig_qp *q, uint32_t qpn, uint32_t qkey, const uint8_t *dgid, uint32_t len)
{
	rig_send_to(q, 0xabcd0123, qkey, qpn, dgid, a.mem + 64, len);
}

/* A datagram arrives behind 40 bytes, which hold the GRH if there was one. */
TEST_FIXTURE(ud_arrives, hosts_open, hosts_close)
{
	struct rig_host *to[] = {&b, &a};
	struct rig_qp qa, q[2];

	rig_ready_open(&a, &qa, SM_UD, QKEY);
	for (uint32_t i = 0; i < 2; i++) {
		rig_ready_open(to[i], &q[i], SM_UD, QKEY);
	}
	for (uint32_t i = 0; i < 200; i++) {
		struct rig_qp *r = &q[i % 2];
		const uint8_t *dgid = i % 3 == 0 ? NULL : rig_gid;
		uint32_t len = i % 5 == 0 ? 4096 : i % 5 == 1 ? 0 : i;
		uint8_t *buf = r->host->mem + 8192;
		struct mlx5_cqe64 *c;

		rig_recv(r, buf, 40 + 4096, r->host->key);
		ud_send(&qa, r->qpn, QKEY, dgid, len);
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		c = rig_expect(&a, &b, &r->rcq);
		assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
		assert_int_equal(be32toh(c->byte_cnt), len + 40);
		assert_int_equal(be32toh(c->imm_inval_pkey), 0xabcd0123);
		assert_int_equal(
			be32toh(c->flags_rqpn), qa.qpn | (dgid != NULL || rig_udp ? 1u << 28 : 0));
		assert_int_equal(be16toh(c->slid), SM_LID);
		assert_memory_equal(buf + 40, a.mem + 64, len);
		if (rig_udp) /* The header of IPv4 in the second half. */
			assert_int_equal(buf[20], 0x45);
		if (dgid == NULL || rig_udp)
			continue;
		assert_int_equal(be32toh(*(uint32_t *)(void *)buf), 0x61256789);
		assert_int_equal(be16toh(*(uint16_t *)(void *)(buf + 4)),
			12 + 8 + 4 + ((len + 3) & ~3u) + 4);
		assert_int_equal(buf[6], 0x1b);
		assert_int_equal(buf[7], 0x34);
		assert_memory_equal(buf + 8, rig_gid, 16);
		assert_memory_equal(buf + 24, rig_gid, 16);
	}
	for (uint32_t i = 0; i < 2; i++)
		rig_qp_close(&q[i]);
	rig_qp_close(&qa);
}

/* Whatever is wrong at the receiver is silence; the next good one arrives. */
TEST_FIXTURE(ud_is_lost_silently, hosts_open, hosts_close)
{
	static const uint8_t other[16] = {0xfe, 0x80, 1};
	struct rig_qp qa, qb, qc;
	struct rig_wqe w;
	struct {
		uint32_t qpn, qkey;
		uint16_t dlid;
		const uint8_t *dgid;
		bool posted;
	} lost[] = {
		{0, QKEY + 1, SM_LID, NULL, true},
		{1, QKEY, SM_LID, NULL, true},          /* No such queue pair. */
		{0x70 << 16, QKEY, SM_LID, NULL, true}, /* No such context. */
		{0, QKEY, SM_LID + 1, NULL, true}, {0, QKEY, SM_LID, other, true},
		{2, QKEY, SM_LID, NULL, true},  /* An RC queue pair. */
		{0, QKEY, SM_LID, NULL, false}, /* No receive WQE. */
	};

	rig_ready_open(&a, &qa, SM_UD, QKEY);
	rig_ready_open(&b, &qb, SM_UD, QKEY);
	type_open(&b, &qc, SM_RC);
	for (uint32_t i = 0; i < CRPC_DIM(lost); i++) {
		if (rig_udp && (lost[i].dlid != SM_LID || lost[i].dgid != NULL))
			continue; /* The rig knows no wrong ones. */
		uint32_t qpn = lost[i].qpn == 0 ? qb.qpn
			: lost[i].qpn == 2      ? qc.qpn
			: lost[i].qpn == 1      ? qb.qpn + 1000
						: lost[i].qpn;

		if (lost[i].posted)
			rig_recv(&qb, b.mem, 8192, b.key);
		rig_wqe(&w, MLX5_OPCODE_SEND, SIGNALED, 0);
		rig_wqe_av(&w, lost[i].qkey, qpn, lost[i].dlid, lost[i].dgid);
		rig_wqe_data(&w, a.mem, 100, a.key);
		rig_post(&qa, &w);
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		expect_nothing(&qb.rcq);
		if (!lost[i].posted)
			rig_recv(&qb, b.mem, 8192, b.key);
		ud_send(&qa, qb.qpn, QKEY, NULL, 100);
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		expect_ok(&qb.rcq, MLX5_CQE_RESP_SEND_IMM);
	}
	/* A privileged key in the WQE stands for the sender's own. */
	rig_recv(&qb, b.mem, 8192, b.key);
	ud_send(&qa, qb.qpn, 0x80000000, NULL, 1);
	expect_ok(&qa.scq, MLX5_CQE_REQ);
	expect_ok(&qb.rcq, MLX5_CQE_RESP_SEND_IMM);
	rig_link_close(&qa, &qb);
	rig_qp_close(&qc);
}

TEST_FIXTURE(ud_errors, hosts_open, hosts_close)
{
	struct rig_qp qa, qb;
	struct rig_wqe w;
	struct {
		uint8_t op, synd;
		uint32_t len, lkey;
	} bad[] = {
		{MLX5_OPCODE_SEND, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 4097, a.key},
		{MLX5_OPCODE_SEND, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 8, a.key + 1},
		{MLX5_OPCODE_RDMA_WRITE, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 8, a.key},
	};

	rig_ready_open(&b, &qb, SM_UD, QKEY);
	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		rig_ready_open(&a, &qa, SM_UD, QKEY);
		rig_wqe(&w, bad[i].op, 0, 0);
		rig_wqe_av(&w, QKEY, qb.qpn, SM_LID, NULL);
		if (bad[i].op == MLX5_OPCODE_RDMA_WRITE)
			rig_wqe_raddr(&w, b.mem, b.key);
		rig_wqe_data(&w, a.mem, bad[i].len, bad[i].lkey);
		rig_post(&qa, &w);
		expect_error(&qa.scq, MLX5_CQE_REQ_ERR, bad[i].synd);
		assert_int_equal(rig_state(&qa), IBV_QPS_ERR);
		rig_qp_close(&qa);
	}
	rig_ready_open(&a, &qa, SM_UD, QKEY);
	rig_recv(&qb, b.mem, 139, b.key);
	ud_send(&qa, qb.qpn, QKEY, NULL, 100);
	expect_ok(&qa.scq, MLX5_CQE_REQ);
	expect_error(&qb.rcq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	assert_int_equal(rig_state(&qb), IBV_QPS_ERR);
	rig_link_close(&qa, &qb);
}

/* As a library does that unmaps first when it ends: the helper drives the adapter meanwhile. */
TEST_FIXTURE(
	memory_that_is_unmapped_while_it_is_registered_ends_no_program, hosts_open, hosts_close)
{
	void *mem = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rig_qp qa, qb;
	struct sm_mr *mr;
	uint32_t key;

	assert_true(mem != MAP_FAILED);
	mr = rig_mr_open(&b, b.pd, mem, 8192, IBV_ACCESS_LOCAL_WRITE, &key);
	rig_ready_open(&a, &qa, SM_UD, QKEY);
	rig_ready_open(&b, &qb, SM_UD, QKEY);
	sm_nic_helped(b.nic, true);
	rig_recv(&qb, mem, 8192, key);
	ud_send(&qa, qb.qpn, QKEY, NULL, 100);
	expect_ok(&qa.scq, MLX5_CQE_REQ);
	expect_ok(&qb.rcq, MLX5_CQE_RESP_SEND_IMM);
	rig_recv(&qb, mem, 8192, key);
	munmap(mem, 8192);
	ud_send(&qa, qb.qpn, QKEY, NULL, 100);
	expect_ok(&qa.scq, MLX5_CQE_REQ);
	expect_error(&qb.rcq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	assert_int_equal(sm_destroy(b.nic, mr), 0);
	rig_link_close(&qa, &qb);
}

/* Files, and so rings, may not be larger than this; RLIM_INFINITY: as they like. */
static void
limit_files(rlim_t bytes)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/*
 * There is no shared memory for a ring to a context that lives, which was heard already or not: its
 * sender learns that, and works once there is some.
 */
TEST_FIXTURE(a_sender_without_a_ring_fails, hosts_open, hosts_close)
{
	struct rig_qp ud[2], dci;
	struct rig_dct dct;

	if (rig_udp) /* Its rings are no files. */
		return;
	rig_dct_open(&b, &dct, DC_KEY);
	type_open(&a, &ud[0], SM_UD);
	type_open(&b, &ud[1], SM_UD);
	type_open(&a, &dci, SM_DCI);
	rig_ready(&ud[1], QKEY);
	limit_files(4096);
	for (uint32_t heard = 0; heard < 2; heard++) {
		rig_ready(&ud[0], QKEY);
		ud_send(&ud[0], ud[1].qpn, QKEY, NULL, 100);
		expect_error(&ud[0].scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
		rig_set_state(&ud[0], IBV_QPS_RESET);
		rig_ready(&dci, 0);
		rig_send_to(&dci, 0, DC_KEY, dct.qp.qpn, NULL, a.mem, 0);
		expect_error(&dci.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
		rig_set_state(&dci, IBV_QPS_RESET);
		limit_files(RLIM_INFINITY); /* Its peer finds room for its ring. */
		rig_send_to(&ud[1], 0, QKEY, ud[0].qpn, NULL, b.mem, 0);
		sm_nic_progress(b.nic, rig_now);
		limit_files(4096);
		expect_ok(&ud[1].scq, MLX5_CQE_REQ);
	}
	limit_files(RLIM_INFINITY);
	rig_ready(&ud[0], QKEY);
	rig_recv(&ud[1], b.mem, 8192, b.key);
	ud_send(&ud[0], ud[1].qpn, QKEY, NULL, 100);
	expect_ok(&ud[0].scq, MLX5_CQE_REQ);
	expect_ok(&ud[1].rcq, MLX5_CQE_RESP_SEND_IMM);
	rig_qp_close(&ud[0]);
	rig_qp_close(&ud[1]);
	rig_qp_close(&dci);
	rig_dct_close(&dct);
}

static uint64_t
datagrams_dropped(struct rig_host *h)
{
	static const char name[] = "\"datagrams_dropped\":";
	unsigned long long n;
	char *text = NULL, *at;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	sm_nic_stat(h->nic, f);
	fclose(f);
	at = strstr(text, name);
	assert_non_null(at);
	n = strtoull(at + strlen(name), NULL, 10);
	free(text);
	return n;
}

/* The next CQE, for 0.1 s at most, while @x works every 0.1 ms, and @y every @slow-th time. */
static struct mlx5_cqe64 *
expect_of(struct rig_host *x, struct rig_host *y, uint32_t slow, struct rig_cq *cq)
{
	struct mlx5_cqe64 *c = NULL;

	for (uint32_t i = 1; i <= 1000 && c == NULL; i++, rig_now += 100000) {
		sm_nic_progress(x->nic, rig_now);
		if (i % slow == 0)
			sm_nic_progress(y->nic, rig_now);
		c = rig_poll(cq);
	}
	return c;
}

/*
 * A context stands still, so that what is sent to it finds no room any more: that is dropped and
 * counted, and others get theirs. To one that is slow nothing is lost.
 */
TEST_FIXTURE(datagrams_to_one_that_stands_still_are_dropped, hosts_open, hosts_close)
{
	enum { N = 200, LEN = 4096 };
	struct rig_host c;
	struct rig_qp from, to_b, to_c;
	uint64_t dropped;

	rig_host_open(&c, host_net, 1 << 20);
	rig_ready_open(&a, &from, SM_UD, QKEY);
	rig_ready_open(&b, &to_b, SM_UD, QKEY);
	rig_ready_open(&c, &to_c, SM_UD, QKEY);
	for (uint32_t i = 0; i < N; i++) { /* Every 10 ms. */
		ud_send(&from, to_b.qpn, QKEY, NULL, LEN);
		assert_non_null(expect_of(&a, &b, 100, &from.scq));
	}
	assert_int_equal(datagrams_dropped(&a), 0);
	for (uint32_t i = 0; i < N; i++) {
		ud_send(&from, to_b.qpn, QKEY, NULL, LEN);
		assert_non_null(expect_of(&a, &c, 1, &from.scq));
	}
	dropped = datagrams_dropped(&a);
	if (!rig_udp)
		assert_in_range(dropped, N / 2, N - 16);
	rig_recv(&to_c, c.mem, 8192, c.key);
	ud_send(&from, to_c.qpn, QKEY, NULL, LEN);
	assert_non_null(expect_of(&a, &c, 1, &to_c.rcq));
	rig_run(&a, &b); /* It goes on, */
	rig_recv(&to_b, b.mem, 8192, b.key);
	ud_send(&from, to_b.qpn, QKEY, NULL, LEN);
	assert_non_null(expect_of(&a, &b, 1, &to_b.rcq)); /* and gets what is sent from then on. */
	assert_int_equal(datagrams_dropped(&a), dropped);
	rig_link_close(&from, &to_b);
	rig_qp_close(&to_c);
	rig_host_close(&c);
}

/* ---- UC ---- */

static void
uc_op(struct rig_qp *q, uint8_t op, uint32_t imm, void *raddr, uint32_t rkey, uint32_t len)
{
	if (op == MLX5_OPCODE_SEND)
		rig_send(q, op, imm, a.mem, len);
	else
		rig_rdma(q, op, imm, raddr, rkey, a.mem, len);
}

/* What is sent is complete; what finds no receive WQE or no right is dropped as a whole. */
TEST_FIXTURE(uc_arrives_or_not, hosts_open, hosts_close)
{
	struct rig_qp qa, qb;

	type_open(&a, &qa, SM_UC);
	type_open(&b, &qb, SM_UC);
	rig_connect(&qa, &qb);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t len = i % 4 == 0 ? 100000 : i % 4 == 1 ? 0 : i;

		memset(b.mem, 0, 100000);
		uc_op(&qa, MLX5_OPCODE_SEND, 0, NULL, 0, len); /* Lost. */
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		uc_op(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + 200000, b.key + 1, len); /* Lost. */
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		uc_op(&qa, MLX5_OPCODE_RDMA_WRITE_IMM, 7, b.mem + 200000, b.key, 8); /* Lost. */
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		expect_nothing(&qb.rcq);
		rig_recv(&qb, b.mem, 100000, b.key);
		rig_recv(&qb, NULL, 0, 0);
		uc_op(&qa, MLX5_OPCODE_SEND, 0, NULL, 0, len);
		uc_op(&qa, MLX5_OPCODE_RDMA_WRITE_IMM, i, b.mem + 200000, b.key, len);
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		expect_ok(&qa.scq, MLX5_CQE_REQ);
		expect_ok(&qb.rcq, MLX5_CQE_RESP_SEND);
		assert_int_equal(be32toh(rig_expect(&a, &b, &qb.rcq)->imm_inval_pkey), i);
		assert_memory_equal(b.mem, a.mem, len);
		assert_memory_equal(b.mem + 200000, a.mem, len);
	}
	uc_op(&qa, MLX5_OPCODE_RDMA_READ, 0, b.mem, b.key, 8);
	expect_error(&qa.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	assert_int_equal(rig_state(&qb), IBV_QPS_RTS);
	rig_link_close(&qa, &qb);
}

/* ---- DC ---- */

struct dct {
	struct rig_dct t;
	uint32_t taken;   /* Receives that were used. */
	uint32_t seen[8]; /* Messages of each sender. */
	uint32_t mem;     /* Number of its first buffer. */
};

static void
dci_reset(struct rig_qp *q)
{
	rig_set_state(q, IBV_QPS_RESET);
	rig_ready(q, 0);
}

static void
dc_send(struct rig_qp *q, const struct rig_dct *to, uint64_t key, uint32_t imm, uint32_t len)
{
	rig_send_to(q, imm, key, to->qp.qpn, imm % 2 == 0 ? NULL : rig_gid,
		q->host->mem + (imm & 0x3ff), len);
}

/* Each operation, with the address vector short and long, inline data round the queue's end. */
TEST_FIXTURE(dc_operations, hosts_open, hosts_close)
{
	uint8_t data[200];
	struct rig_qp q;
	struct rig_dct d;

	rig_dct_open(&b, &d, DC_KEY);
	rig_qp_open(&a, &q, &(struct rig_qp_conf){.type = SM_DCI, .sq_nbb = 8});
	rig_ready(&q, 0);
	for (uint32_t i = 0; i < 400; i++) {
		const uint8_t *dgid = i % 2 != 0 ? rig_gid : NULL;
		uint32_t len = i % 3 == 0 ? 1 + i % 190 : 20000;
		struct rig_wqe w;

		memset(data, (int)i, sizeof(data));
		rig_send(&q, MLX5_OPCODE_NOP, 0, NULL, 0);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		rig_dct_recv(&d, b.mem, 32768);
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALED, i);
		rig_wqe_av(&w, DC_KEY, d.qp.qpn, SM_LID, dgid);
		rig_wqe_raddr(&w, b.mem + 65536, b.key);
		if (len <= sizeof(data))
			rig_wqe_inline(&w, data, len);
		else
			rig_wqe_data(&w, a.mem, len, a.key);
		rig_post(&q, &w);
		assert_int_equal(be32toh(rig_expect(&a, &b, &d.qp.rcq)->imm_inval_pkey), i);
		assert_int_equal(be32toh(d.qp.rcq.last.srqn_uidx), 0x1234);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		assert_memory_equal(b.mem + 65536, len <= sizeof(data) ? data : a.mem, len);

		rig_wqe(&w, MLX5_OPCODE_RDMA_READ, SIGNALED, 0);
		rig_wqe_av(&w, DC_KEY, d.qp.qpn, SM_LID, dgid);
		rig_wqe_raddr(&w, b.mem + 65536, b.key);
		rig_wqe_data(&w, a.mem + 131072, len, a.key);
		rig_post(&q, &w);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		assert_memory_equal(a.mem + 131072, b.mem + 65536, len);

		*(uint64_t *)(void *)(b.mem + 32768) = i;
		rig_wqe(&w, MLX5_OPCODE_ATOMIC_FA, SIGNALED, 0);
		rig_wqe_av(&w, DC_KEY, d.qp.qpn, SM_LID, dgid);
		rig_wqe_raddr(&w, b.mem + 32768, b.key);
		rig_wqe_atomic(&w, 5, 0);
		rig_wqe_data(&w, a.mem + 131072, 8, a.key);
		rig_post(&q, &w);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		assert_int_equal(*(uint64_t *)(void *)(a.mem + 131072), i);
		assert_int_equal(*(uint64_t *)(void *)(b.mem + 32768), i + 5);
	}
	rig_qp_close(&q);
	rig_dct_close(&d);
}

/* A wrong key fails the sender alone. */
TEST_FIXTURE(dc_wrong_key, hosts_open, hosts_close)
{
	struct rig_qp q, good;
	struct rig_dct d;

	rig_dct_open(&b, &d, DC_KEY);
	rig_ready_open(&a, &good, SM_DCI, 0);
	for (uint32_t i = 0; i < 20; i++) {
		rig_ready_open(&a, &q, SM_DCI, 0);
		rig_dct_recv(&d, b.mem, 4096);
		rig_dct_recv(&d, b.mem, 4096);
		dc_send(&good, &d, DC_KEY, i, 100);
		expect_ok(&good.scq, MLX5_CQE_REQ);
		expect_ok(&d.qp.rcq, MLX5_CQE_RESP_SEND_IMM);
		dc_send(&q, &d, DC_KEY + 1, i, 100);
		expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
		expect_nothing(&d.qp.rcq);
		/* After RESET its numbers begin again. */
		dci_reset(&q);
		dc_send(&q, &d, DC_KEY, i, 100);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		expect_ok(&d.qp.rcq, MLX5_CQE_RESP_SEND_IMM);
		rig_qp_close(&q);
	}
	rig_qp_close(&good);
	rig_dct_close(&d);
}

/* Remote errors leave the DCT alive. */
TEST_FIXTURE(dc_remote_errors, hosts_open, hosts_close)
{
	struct rig_qp q;
	struct rig_wqe w;
	struct rig_dct d;

	rig_dct_open(&b, &d, DC_KEY);
	rig_ready_open(&a, &q, SM_DCI, 0);
	for (uint32_t i = 0; i < 10; i++) {
		rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, 0, 0);
		rig_wqe_av(&w, DC_KEY, d.qp.qpn, SM_LID, NULL);
		rig_wqe_raddr(&w, b.mem, b.key + 1);
		rig_wqe_data(&w, a.mem, 8, a.key);
		rig_post(&q, &w);
		expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
		dci_reset(&q);
		rig_dct_recv(&d, b.mem, 4096);
		dc_send(&q, &d, DC_KEY, i, 100);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		expect_ok(&d.qp.rcq, MLX5_CQE_RESP_SEND_IMM);
	}
	assert_int_equal(rig_state(&d.qp), IBV_QPS_RTR);
	rig_qp_close(&q);
	rig_dct_close(&d);
}

TEST_FIXTURE(dc_not_ready, hosts_open, hosts_close)
{
	struct rig_dct d, gone = {.qp.qpn = 0x71 << 16 | 99};
	struct rig_qp q;

	rig_dct_open(&b, &d, DC_KEY);
	rig_ready_open(&a, &q, SM_DCI, 0);
	/* No receive WQE: the NIC tries again by itself, as often as it may. */
	for (uint32_t i = 0; i < 5; i++) {
		dc_send(&q, &d, DC_KEY, i, 100);
		sm_nic_progress(a.nic, rig_now);
		sm_nic_progress(b.nic, rig_now);
		rig_dct_recv(&d, b.mem, 4096);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		assert_int_equal(be32toh(rig_expect(&a, &b, &d.qp.rcq)->imm_inval_pkey), i);
	}
	dc_send(&q, &d, DC_KEY, 9, 100);
	expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	dci_reset(&q);
	/* No such context; a context without such a DCT. */
	dc_send(&q, &gone, DC_KEY, 0, 100);
	expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	dci_reset(&q);
	gone.qp.qpn = d.qp.qpn + 1000;
	dc_send(&q, &gone, DC_KEY, 0, 100);
	expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	rig_qp_close(&q);
	rig_dct_close(&d);
}

/* A context that leaves: what waits for it fails, others are reached as before. */
TEST_FIXTURE(dc_target_leaves, hosts_open, hosts_close)
{
	struct rig_host c;
	struct rig_qp q;
	struct rig_dct d, dc;
	char net[80];

	snprintf(net, sizeof(net), "%s", rig_net());
	rig_host_close(&a);
	rig_host_close(&b);
	rig_host_open(&a, net, 1 << 20);
	rig_host_open(&b, net, 1 << 20);
	rig_dct_open(&b, &d, DC_KEY);
	rig_ready_open(&a, &q, SM_DCI, 0);
	for (uint32_t i = 0; i < 3; i++) {
		rig_host_open(&c, host_net, 1 << 20);
		rig_dct_open(&c, &dc, DC_KEY);
		rig_dct_recv(&dc, c.mem, 4096);
		dc_send(&q, &dc, DC_KEY, i, 100);
		assert_int_equal(rig_expect(&a, &c, &q.scq)->op_own >> 4, MLX5_CQE_REQ);
		assert_non_null(rig_expect(&a, &c, &dc.qp.rcq));
		rig_dct_close(&dc);
		rig_host_close(&c);
		rig_now += 100000000;
		rig_dct_recv(&d, b.mem, 4096);
		dc_send(&q, &d, DC_KEY, i, 100);
		expect_ok(&q.scq, MLX5_CQE_REQ);
		expect_ok(&d.qp.rcq, MLX5_CQE_RESP_SEND_IMM);
		dc_send(&q, &dc, DC_KEY, i, 100);
		expect_error(&q.scq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		dci_reset(&q);
	}
	rig_qp_close(&q);
	rig_dct_close(&d);
}

#define NDCI 4u
#define NDCT 3u

/* Each target on a host has places of its own, behind what senders send. */
static uint8_t *
random_buf(const struct dct *d, uint32_t i)
{
	return d->t.qp.host->mem + 65536 + (d->mem + i % 8) * 32768;
}

static void
random_drain(struct rig_qp *q, struct dct *d, uint32_t *open)
{
	for (uint32_t i = 0; i < NDCI; i++)
		for (struct mlx5_cqe64 *c; (c = rig_poll(&q[i].scq)) != NULL; open[i]--)
			assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
	for (uint32_t i = 0; i < NDCT; i++)
		for (struct mlx5_cqe64 *c; (c = rig_poll(&d[i].t.qp.rcq)) != NULL; d[i].taken++) {
			uint32_t imm = be32toh(c->imm_inval_pkey), from = imm >> 24;

			assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
			/* Of each sender in order, none twice, none left out. */
			assert_int_equal(imm & 0xffffff, d[i].seen[from]++);
			assert_memory_equal(random_buf(&d[i], d[i].taken),
				q[from].host->mem + (imm & 0x3ff), be32toh(c->byte_cnt));
		}
}

/* Several senders on two hosts choose among several targets; receives come late. */
TEST_FIXTURE(dc_random, hosts_open, hosts_close)
{
	uint32_t seed = (uint32_t)rnd_seed(), sent[NDCI][NDCT] = {0}, open[NDCI] = {0};
	struct rig_host *hosts[] = {&a, &b};
	struct rig_qp q[NDCI];
	struct dct d[NDCT];

	srand(seed);
	memcpy(b.mem, a.mem, 65536);
	for (uint32_t i = 0; i < NDCT; i++) {
		d[i] = (struct dct){.mem = i * 8};
		rig_dct_open(hosts[i % 2], &d[i].t, DC_KEY + i);
	}
	rig_rnr_retry = 7; /* For ever. */
	for (uint32_t i = 0; i < NDCI; i++)
		rig_ready_open(hosts[i % 2], &q[i], SM_DCI, 0);
	rig_rnr_retry = 3;
	for (uint32_t n = 0; n < 40000; n++) {
		uint32_t i = (uint32_t)rand() % NDCI, k = (uint32_t)rand() % NDCT;

		if (rand() % 2 == 0 && d[k].t.posted - d[k].taken < 8)
			rig_dct_recv(&d[k].t, random_buf(&d[k], d[k].t.posted), 32768);
		if (open[i] < 8 && d[k].t.posted - d[k].taken > 4) {
			uint32_t len =
				rand() % 4 == 0 ? (uint32_t)rand() % 30000 : (uint32_t)rand() % 64;

			dc_send(&q[i], &d[k].t, DC_KEY + k, i << 24 | sent[i][k]++, len);
			open[i]++;
		}
		if (rand() % 2 == 0)
			sm_nic_progress(hosts[rand() % 2]->nic, rig_now += 1000);
		random_drain(q, d, open);
	}
	for (uint32_t n = 0; n < 100000 && (open[0] | open[1] | open[2] | open[3]) != 0; n++) {
		for (uint32_t k = 0; k < NDCT; k++)
			if (d[k].t.posted - d[k].taken < 8)
				rig_dct_recv(&d[k].t, random_buf(&d[k], d[k].t.posted), 32768);
		sm_nic_progress(a.nic, rig_now += 1000);
		sm_nic_progress(b.nic, rig_now);
		random_drain(q, d, open);
	}
	for (uint32_t i = 0; i < NDCI; i++)
		for (uint32_t k = 0; k < NDCT; k++)
			assert_int_equal(d[k].seen[i], sent[i][k]);
	for (uint32_t i = 0; i < NDCI; i++)
		rig_qp_close(&q[i]);
	for (uint32_t i = 0; i < NDCT; i++)
		rig_dct_close(&d[i].t);
}

TEST_FIXTURE(refused_dc, hosts_open, hosts_close)
{
	struct sm_qp_attr attr = {.type = SM_DCT, .pd = a.pd};
	struct rig_qp rc;
	struct rig_srq s;
	struct sm_qp *q;
	uint32_t n;

	type_open(&a, &rc, SM_RC);
	rig_srq_open(&a, &s, 64, 5);
	attr.send_cq = attr.recv_cq = rc.scq.cq;
	assert_int_equal(sm_qp_create(a.nic, &attr, &q, &n), EINVAL); /* No SRQ. */
	attr.type = SM_DCI;
	attr.srq = s.srq;
	attr.dbrec = a.mem;
	assert_int_equal(sm_qp_create(a.nic, &attr, &q, &n), EINVAL); /* It does not receive. */
	rig_qp_close(&rc);
	rig_srq_close(&a, &s);
}

/* ---- completion queues that change their size ---- */

TEST_FIXTURE(cq_resizes, hosts_open, hosts_close)
{
	struct rig_qp_conf conf = {.ncqe = 16};
	uint32_t sizes[] = {64, 16, 32, 128, 16}, sent = 0, done = 0;
	struct rig_qp qa, qb;

	rig_link_open(&a, &qa, &b, &qb, &conf);
	for (uint32_t i = 0; i < 50; i++) {
		uint32_t n = (i * 7) % 14;

		for (uint32_t k = 0; k < n; k++, sent++) {
			rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 8);
		}
		rig_run(&a, &b);
		/* Too small for what is in it. */
		if (n >= 8)
			assert_int_equal(sm_cq_resize(a.nic, qa.scq.cq, a.mem, 8, 64), EINVAL);
		rig_cq_resize(&a, &qa.scq, sizes[i % CRPC_DIM(sizes)]);
		for (struct mlx5_cqe64 *c; (c = rig_poll(&qa.scq)) != NULL; done++)
			assert_int_equal(be16toh(c->wqe_counter), done & 0xffff);
		assert_int_equal(done, sent);
	}
	assert_int_equal(sm_cq_resize(a.nic, qa.scq.cq, a.mem, 24, 64), EINVAL);
	assert_int_equal(sm_cq_resize(a.nic, qa.scq.cq, a.mem + 8, 16, 64), EINVAL);
	assert_int_equal(sm_cq_resize(a.nic, qa.scq.cq, a.mem, 16, 96), EINVAL);
	rig_link_close(&qa, &qb);
}

/* What a SEND brings stands in the CQE if it fits, and the receive buffer stays as it is. */
TEST_FIXTURE(send_into_cqe, hosts_open, hosts_close)
{
	static const uint32_t lens[] = {1, 31, 32, 33, 63, 64, 65, 200};

	for (uint32_t size = 64; size <= 128; size *= 2) {
		struct rig_qp_conf conf = {.cqe_size = size, .scatter_cqe = true};
		struct rig_qp qa, qb;

		rig_link_open(&a, &qa, &b, &qb, &conf);
		for (uint32_t i = 0; i < CRPC_DIM(lens) * 40; i++) {
			uint32_t len = lens[i % CRPC_DIM(lens)], at = qb.rcq.ci % qb.rcq.ncqe;
			bool in_cqe = len <= size / 2;
			struct mlx5_cqe64 *c;

			memset(b.mem, 0, 256);
			rig_recv(&qb, b.mem, 256, b.key);
			rig_send(&qa, MLX5_OPCODE_SEND_IMM, i, a.mem + i, len);
			expect_ok(&qa.scq, MLX5_CQE_REQ);
			c = rig_expect(&a, &b, &qb.rcq);
			assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
			assert_int_equal(c->op_own & 0xc, in_cqe ? size / 16 : 0);
			assert_int_equal(be32toh(c->byte_cnt), len);
			assert_int_equal(be32toh(c->imm_inval_pkey), i);
			assert_memory_equal(
				in_cqe ? qb.rcq.buf + (size_t)at * size : b.mem, a.mem + i, len);
			assert_int_equal(b.mem[len - 1], in_cqe ? 0 : a.mem[i + len - 1]);
		}
		rig_link_close(&qa, &qb);
	}
}

/* A driver that passes here must pass on a card: what its kernel driver refuses is refused. */
TEST_FIXTURE(transitions_that_a_kernel_refuses, hosts_open, hosts_close)
{
	struct ib_uverbs_modify_qp m = {.attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_ERR};
	struct rig_dct dct;
	struct rig_qp dci;

	type_open(&a, &dci, SM_DCI);
	/* To ERR from RESET. */
	assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), EINVAL);
	/* A DCI to RTS without a packet number. */
	rig_init_mod(&m);
	m.attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), 0);
	rig_rtr_mod(&m, 0);
	m.attr_mask = IBV_QP_STATE | IBV_QP_PATH_MTU;
	assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), 0);
	rig_rts_mod(&m);
	m.attr_mask &= ~(uint32_t)IBV_QP_SQ_PSN;
	assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), EINVAL);
	m.attr_mask |= IBV_QP_SQ_PSN;
	assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), 0);
	/* A DCT to any state behind RTR: it is destroyed. */
	rig_dct_open(&b, &dct, DC_KEY);
	m = (struct ib_uverbs_modify_qp){.attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_ERR};
	assert_int_equal(sm_qp_modify(b.nic, dct.qp.qp, &m), EINVAL);
	m.qp_state = IBV_QPS_RESET;
	assert_int_equal(sm_qp_modify(b.nic, dct.qp.qp, &m), EINVAL);
	rig_qp_close(&dci);
	rig_dct_close(&dct);
}

/* Programs that never set it do atomics by DC on a card: one at a time. */
TEST_FIXTURE(a_dci_may_always_have_one_response_open, hosts_open, hosts_close)
{
	struct ib_uverbs_modify_qp m;
	struct rig_dct dct;
	struct rig_qp dci;
	struct rig_wqe w;

	type_open(&a, &dci, SM_DCI);
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		rig_mod(&dci, to, 0, 0, &m);
		m.max_rd_atomic = 0;
		assert_int_equal(sm_qp_modify(a.nic, dci.qp, &m), 0);
	}
	sm_qp_query(a.nic, dci.qp, &m);
	assert_int_equal(m.max_rd_atomic, 1);
	rig_dct_open(&b, &dct, DC_KEY);
	for (uint32_t i = 0; i < 4; i++) {
		rig_wqe(&w, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		rig_wqe_av(&w, DC_KEY, dct.qp.qpn, SM_LID, rig_gid);
		rig_wqe_raddr(&w, b.mem, b.key);
		rig_wqe_atomic(&w, 1, 0);
		rig_wqe_data(&w, a.mem, 8, a.key);
		rig_post(&dci, &w);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_expect(&a, &b, &dci.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_qp_close(&dci);
	rig_dct_close(&dct);
}

TEST_MAIN(NULL, NULL)
