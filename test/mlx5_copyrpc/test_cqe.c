/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions: golden bytes read and shown, the owner bit over many laps, exact accounting of sends
 * and receives, and errors that are reported once, with their cause, and never lost.
 */
#include <errno.h>

#include "crpc_log.h"
#include "plain.h"

#define INITIATOR_QPN 0x999

enum { RC = 1, UD = 2, DCI = 4 };

static unsigned int to_error_calls;

void __wrap_crpc_mlx5_qp_to_error(struct crpc_mlx5_qp *qp);
int __wrap_crpc_ib_state_set(struct ibv_qp *qp, enum ibv_qp_state state);

/* There is no device to move. */
int
__wrap_crpc_ib_state_set(struct ibv_qp *qp, enum ibv_qp_state state)
{
	return 0;
}

void
__wrap_crpc_mlx5_qp_to_error(struct crpc_mlx5_qp *qp)
{
	to_error_calls++;
}

static uint32_t
poll(struct plain *p, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	return crpc_rdma_poll(&p->dev.ib.base, cqe, n);
}

static uint32_t
posted_receives(const struct plain *p)
{
	return be32toh(p->qp_dbrec[0]);
}

TEST(golden_completions)
{
	/* As a card writes them: a receive with immediate, and a remote access error. */
	/* clang-format off */
	static const uint8_t recv[64] = {
		[32] = 0x00, 0x00, 0x00, 0x07, 0xde, 0xad, 0xbe, 0xef,
		0, 0, 0, 0, 0x00, 0x00, 0x01, 0x40,
		0, 0, 0, 0, 0, 0, 0, 1, 0x00, 0x00, 0x12, 0x34, 0x00, 0x09, 0x00, 0x10,
	};
	static const uint8_t err[64] = {
		[54] = 0x88, 0x13, 0x09, 0x00, 0x12, 0x34, 0x00, 0x00, 0x00, 0xd0,
	};
	/* clang-format on */
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	const struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .wr_id = 5};
	struct crpc_rdma_cqe cqe[4];
	char text[256];

	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, &wr, 1), 1);
	memcpy(&p->cq[0], recv, 64);
	memcpy(&p->cq[1], err, 64);
	crpc_mlx5_cqe_text(&p->cq[0], text, sizeof(text));
	assert_string_equal(
		text, "CQE RESP_WR_IMM owner 0 qp 0x1234 counter 9 imm 0xdeadbeef bytes 320");
	crpc_mlx5_cqe_text(&p->cq[1], text, sizeof(text));
	assert_string_equal(text,
		"CQE REQ_ERR owner 0 qp 0x1234 counter 0 RDMA_WRITE_IMM syndrome "
		"0x13 vendor 0x88: remote access error");
	crpc_mlx5_cqe_text(&p->cq[2], text, sizeof(text));
	assert_string_equal(text, "CQE INVALID owner 1 qp 0x0 counter 0");

	assert_int_equal(poll(p, cqe, 4), 2);
	assert_int_equal(cqe[0].type, CRPC_RDMA_CQE_RECV);
	assert_int_equal(cqe[0].qp_id, 77);
	assert_int_equal(cqe[0].imm, 0xdeadbeef);
	assert_int_equal(cqe[0].byte_len, 320);
	assert_int_equal(cqe[1].type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe[1].status, -EACCES);
	assert_int_equal(cqe[1].syndrome, 0x13);
	assert_int_equal(cqe[1].wr_id, 5);
	assert_int_equal(cqe[1].wrs, 1);
	assert_non_null(strstr(crpc_log_last(),
		"qp 0x1234 (id 77): remote access error on send WQE"
		" 0 (syndrome 0x13, vendor 0x88)"));
	assert_int_equal(be32toh(p->cq_dbrec[0]), 2);
}

/* Regression: a reader that takes an entry of the lap before. Bursts of every size, so that
 * polls end at every place of the ring, and the queue is looked at when it is empty after each. */
TEST(owner_bit_holds_over_many_laps)
{
	struct plain *p = plain_new(64, 16, 92, 8, 16);
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint32_t burst, i, n, imm = 0, seen = 0;

	while (imm < 5000) {
		burst = 1 + imm % 16;
		for (i = 0; i < burst; i++)
			plain_cqe(p, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, 0)->ok.imm_inval_pkey =
				htobe32(imm++);
		while ((n = poll(p, cqe, (uint16_t)(1 + imm % 5))) != 0) {
			for (i = 0; i < n; i++)
				assert_int_equal(cqe[i].imm, seen++);
		}
		assert_int_equal(seen, imm);
		assert_int_equal(be32toh(p->cq_dbrec[0]), imm & 0xffffff);
	}
	assert_int_equal(p->dev.ib.base.stats.recv_cqes, imm);
}

/* Regression: receives were consumed and their index never moved, so that after one queue's
 * worth the refill failed silently and both sides hung. Here more receives arrive than the
 * 16-bit record can count, and after each poll the device holds exactly rq_depth of them. */
TEST(srq_consumer_index_never_advanced)
{
	const uint32_t depth = 128;
	struct plain *p = plain_new(64, 16, 92, depth, 256);
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint32_t consumed = 0, burst, i, got;

	p->qp_dbrec[0] = htobe32(depth);
	while (consumed < 200000) {
		burst = 1 + consumed % depth;
		/* The device never has fewer receives than what arrives. */
		assert_true(burst <= ((posted_receives(p) - consumed) & 0xffff));
		for (i = 0; i < burst; i++)
			plain_cqe(p, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, (uint16_t)(consumed + i));
		for (got = 0; got < burst;) {
			i = poll(p, cqe, CRPC_BURST_MAX);
			assert_int_not_equal(i, 0);
			got += i;
			assert_int_equal((posted_receives(p) - consumed - got) & 0xffff, depth);
		}
		consumed += burst;
	}
	assert_int_equal(p->dev.ib.base.stats.recv_posted, consumed);
	assert_int_equal(p->dev.ib.base.stats.recv_cqes, consumed);
}

/* Executes WQEs [*ci, record) like hardware: a completion where the WQE asks for one. */
static void
hw_send(struct plain *p, uint32_t *ci, uint32_t max)
{
	uint32_t ds;

	while (max-- > 0 && ((be32toh(p->qp_dbrec[1]) - *ci) & 0xffff) != 0) {
		const struct crpc_mlx5_ctrl *ctrl =
			(const void *)(p->sq + (*ci & p->qp.own.bb_mask) * CRPC_MLX5_BB);

		assert_int_equal(be32toh(ctrl->opmod_idx_opcode) >> 8 & 0xffff, *ci & 0xffff);
		ds = be32toh(ctrl->qpn_ds) & CRPC_MLX5_DS_MASK;
		if (be32toh(ctrl->flags) & MLX5_WQE_CTRL_CQ_UPDATE)
			plain_cqe(p, MLX5_CQE_REQ, 8u << 24 | PLAIN_QPN, (uint16_t)*ci);
		*ci += (ds + 3) / 4;
	}
}

/* Regression: a queue of unsignalled sends that fills up for good, and space that is given back
 * twice or not at all. Random bursts, sizes and signals; what comes back adds up to what was
 * posted. */
TEST(send_queue_fills_and_recovers_with_exact_accounting)
{
	struct plain *p = plain_new(32, 16, 92, 16, 64);
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	struct crpc_rdma_wr wr[20];
	uint64_t posted = 0, done = 0, refused = 0;
	uint32_t seed = 1, ci = 0, i, n, got;
	static uint8_t data[64];

	while (posted < 300000) {
		seed = seed * 1664525 + 1013904223;
		n = 1 + (seed >> 24) % 20;
		memset(wr, 0, sizeof(wr));
		for (i = 0; i < n; i++) {
			wr[i].op = CRPC_RDMA_WRITE;
			wr[i].wr_id = (uint32_t)(posted + i);
			wr[i].num_sge = 1;
			wr[i].flags = (seed >> i) % 7 == 0 ? CRPC_RDMA_WR_SIGNAL : 0;
			wr[i].flags |= CRPC_RDMA_WR_INLINE;
			wr[i].sge[0].addr = data;
			wr[i].sge[0].len = (seed >> i) % 65;
		}
		got = crpc_rdma_post(&p->qp.ib.base, wr, (uint16_t)n);
		posted += got;
		refused += n - got;
		/* Never more outstanding than asked for. */
		assert_true(p->qp.ib.posted - p->qp.ib.retired <= 16);
		hw_send(p, &ci, (seed >> 8) % 24);
		n = poll(p, cqe, CRPC_BURST_MAX);
		for (i = 0; i < n; i++) {
			assert_int_equal(cqe[i].type, CRPC_RDMA_CQE_SEND);
			done += cqe[i].wrs;
			/* Its own wr_id: all before it, and nothing after it, is done. */
			assert_int_equal(cqe[i].wr_id, (uint32_t)(done - 1));
		}
	}
	assert_true(refused > 1000);
	/* Drained: room for all of them again but for a tail that no completion covers. */
	hw_send(p, &ci, 1000);
	poll(p, cqe, CRPC_BURST_MAX);
	assert_true(p->qp.ib.posted - p->qp.ib.retired < p->qp.ib.signal_every);
	assert_int_equal(p->dev.ib.base.stats.wqes, posted);
}

TEST(only_unsignalled_sends_never_block)
{
	struct plain *p = plain_new(64, 1, 92, 16, 64);
	const struct crpc_rdma_wr wr[2] = {{.op = CRPC_RDMA_WRITE}, {.op = CRPC_RDMA_WRITE}};
	struct crpc_rdma_cqe cqe[1];
	uint32_t ci = 0, i;

	for (i = 0; i < 1000; i++) {
		assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 2), 1);
		assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 2), 0);
		hw_send(p, &ci, 1);
		/* The driver's own completion makes room and is not reported. */
		assert_int_equal(poll(p, cqe, 1), 0);
	}
	assert_int_equal(p->dev.ib.base.stats.send_cqes, 1000);
}

static union crpc_mlx5_cqe *
hw_error(struct plain *p, uint8_t opcode, uint8_t syndrome, uint16_t counter)
{
	union crpc_mlx5_cqe *cqe = plain_cqe(p, opcode, PLAIN_QPN, counter);

	cqe->err.syndrome = syndrome;
	return cqe;
}

TEST(error_is_told_with_its_cause_and_each_send)
{
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	struct crpc_rdma_wr wr[6] = {{.wr_id = 10}, {.wr_id = 11}, {.wr_id = 12}, {.wr_id = 13},
		{.wr_id = 14}, {.wr_id = 15}};
	struct crpc_rdma_cqe cqe;

	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 6), 6);
	/* WRs 10 and 11 succeeded without a word, 12 failed, the rest is flushed, and the
	 * receives. */
	hw_error(p, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 2);
	for (uint16_t i = 0; i < 16; i++)
		hw_error(p, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, i);
	for (uint16_t i = 3; i < 6; i++)
		hw_error(p, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, i);

	/* One at a time: a small array loses nothing. */
	assert_int_equal(poll(p, &cqe, 1), 1);
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe.status, -ECONNRESET);
	assert_int_equal(cqe.wr_id, 12);
	assert_int_equal(cqe.wrs, 3);
	assert_non_null(strstr(crpc_log_last(), "does not answer"));
	for (uint16_t i = 3; i < 6; i++) {
		assert_int_equal(poll(p, &cqe, 1), 1);
		assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
		assert_int_equal(cqe.status, -ECANCELED);
		assert_int_equal(cqe.wr_id, 10 + i);
		assert_int_equal(cqe.wrs, 1);
	}
	assert_int_equal(poll(p, &cqe, 1), 0);
	assert_int_equal(p->dev.ib.base.stats.error_cqes, 20);
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 1), 0);
}

TEST(error_of_an_idle_qp_is_told_once)
{
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	struct crpc_rdma_cqe cqe[4];

	/* Nothing outstanding: the flushed receives are all that shows it. */
	for (uint16_t i = 0; i < 16; i++)
		hw_error(p, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, i);
	assert_int_equal(poll(p, cqe, 4), 1);
	assert_int_equal(cqe[0].type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe[0].status, -ECANCELED);
	assert_int_equal(cqe[0].wrs, 0);
	/* Flushed receives are not handed out again. */
	assert_int_equal(p->qp.rq.posted, 16);
}

TEST(syndromes_map_to_errno)
{
	/* clang-format off */
	static const int16_t want[] = {
		[0x01] = -EIO, [0x02] = -EIO, [0x04] = -EACCES, [0x05] = -ECANCELED,
		[0x06] = -EACCES, [0x10] = -EIO, [0x11] = -EACCES, [0x12] = -EIO,
		[0x13] = -EACCES, [0x14] = -EIO,
		[0x15] = -ECONNRESET, [0x16] = -ECONNRESET, [0x22] = -ECONNRESET, [0xff] = -EIO,
	};
	/* clang-format on */

	for (uint32_t i = 0; i < CRPC_DIM(want); i++) {
		if (want[i] != 0)
			assert_int_equal(crpc_mlx5_syndrome_find((uint8_t)i)->status, want[i]);
	}
	assert_string_equal(crpc_mlx5_syndrome_find(0xff)->name, "unknown syndrome");
}

TEST(work_request_that_cannot_be_built_breaks_the_qp)
{
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	const struct crpc_rdma_wr wr[3] = {
		{.op = CRPC_RDMA_WRITE}, {.op = CRPC_RDMA_WRITE, .num_sge = 9, .wr_id = 99}};
	struct crpc_rdma_cqe cqe[4];

	to_error_calls = 0;
	/* The good one before it is posted and rung; then poll reports it, once. */
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 3), 1);
	assert_int_equal(be32toh(p->qp_dbrec[1]), 1);
	assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 1), 0);
	assert_int_equal(poll(p, cqe, 4), 1);
	assert_int_equal(cqe[0].type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe[0].status, -EINVAL);
	assert_int_equal(cqe[0].wr_id, 99);
	assert_int_equal(to_error_calls, 1);
	assert_int_equal(poll(p, cqe, 4), 0);
}

/* An initiator that the queue pair of p, now a DC one, sends through. */
static void
initiator_make(struct plain *p, struct crpc_mlx5_dci *dci)
{
	memset(dci, 0, sizeof(*dci));
	dci->qp = p->qp;
	dci->qp.ib.kind = CRPC_IB_DCI;
	dci->qp.ib.qpn = INITIATOR_QPN;
	dci->qp.ib.base.id = 0;
	dci->qp.rq.state = CRPC_MLX5_RQ_NO_IMM;
	crpc_mlx5_table_add(&p->dev.table, &dci->qp);
	p->dev.dci[p->dev.num_dcis++] = dci;
	p->qp.ib.kind = CRPC_IB_DC;
	memset(&p->qp.own, 0, sizeof(p->qp.own));
}

/*
 * Completions that no device writes, after one request that is in block 0: that of a request never
 * made (5), of one a lap of the ring later (64); of a message that this kind of queue pair never
 * gets; of no known kind; with data in the completion; compressed. The queue pair
 * breaks, and nothing counts as done. An initiator ends, and with it the queue pair that used it:
 * none of number 0, which is an initiator's, is reported.
 */
TEST(completion_that_makes_no_sense_breaks_the_qp)
{
	static const struct {
		uint8_t opcode, format, counter;
		uint8_t kinds;
	} bad[] = {
		{MLX5_CQE_REQ, 0, 5, RC | UD | DCI},
		{MLX5_CQE_REQ, 0, 64, RC | UD | DCI},
		{MLX5_CQE_REQ, 1, 0, RC | UD | DCI},
		{MLX5_CQE_REQ, 2, 0, RC | UD | DCI},
		{MLX5_CQE_REQ, 3, 0, RC | UD | DCI},
		{MLX5_CQE_RESP_WR_IMM, 0, 0, UD | DCI},
		{MLX5_CQE_RESP_WR_IMM, 1, 0, RC | UD | DCI},
		{MLX5_CQE_RESP_SEND, 0, 0, RC | DCI},
		{MLX5_CQE_NO_PACKET, 0, 0, RC | UD | DCI},
		{MLX5_CQE_REQ_ERR, 0, 5, DCI},
	};
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE, .flags = CRPC_RDMA_WR_SIGNAL};
	struct crpc_mlx5_dci dci;
	struct crpc_rdma_cqe cqe[4];
	struct plain *p;

	for (uint32_t i = 0; i < 3 * CRPC_DIM(bad); i++) {
		if ((bad[i / 3].kinds >> i % 3 & 1) == 0)
			continue;
		p = plain_new(64, 16, 92, 16, 64);
		if (1 << i % 3 == DCI)
			initiator_make(p, &dci);
		assert_int_equal(crpc_rdma_post(&p->qp.ib.base, &wr, 1), 1);
		if (1 << i % 3 == UD)
			plain_ud(p); /* What its requests do is the same to completions. */
		plain_cqe(p, bad[i / 3].opcode, 1 << i % 3 == DCI ? INITIATOR_QPN : PLAIN_QPN,
			bad[i / 3].counter)
			->ok.op_own |= (uint8_t)(bad[i / 3].format << 2);
		assert_int_equal(poll(p, cqe, 4), 0);
		assert_int_equal(poll(p, cqe, 4), 1);
		assert_int_equal(cqe[0].type, CRPC_RDMA_CQE_ERROR);
		assert_int_equal(cqe[0].qp_id, 77);
		assert_int_equal(cqe[0].status, -EIO);
		assert_int_equal(poll(p, cqe, 4), 0);
		if (1 << i % 3 == DCI)
			assert_true(crpc_mlx5_dci_is_gone(&dci));
		else
			assert_int_equal(p->qp.ib.retired, 0);
	}
}

/* The QPN of a freed queue pair may be given to the next one: what the old one left unread must not
 * be taken for the new one's. */
TEST(completions_of_a_freed_qp_are_forgotten)
{
	struct plain *p = plain_new(64, 16, 92, 16, 16);
	struct crpc_mlx5_qp other = p->qp;
	struct crpc_rdma_cqe cqe[16];

	other.ib.qpn = 0x999;
	other.ib.base.id = 5;
	crpc_mlx5_table_add(&p->dev.table, &other);
	for (uint32_t lap = 0; lap < 5; lap++) {
		for (uint32_t i = 0; i < 14; i++)
			plain_cqe(p, MLX5_CQE_RESP_WR_IMM, i % 2 ? PLAIN_QPN : 0x999, 0);
		crpc_mlx5_cq_forget(&p->dev.cq, PLAIN_QPN);
		assert_int_equal(poll(p, cqe, 16), 7);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(cqe[i].qp_id, 5);
		assert_int_equal(be32toh(p->cq_dbrec[0]), 14 * (lap + 1));
	}
	/* A ring that is full to the last entry is walked once. */
	for (uint32_t i = 0; i < 16; i++)
		plain_cqe(p, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, 0);
	crpc_mlx5_cq_forget(&p->dev.cq, PLAIN_QPN);
	assert_int_equal(poll(p, cqe, 16), 0);
}

/* Datagrams on plain memory: which buffer is the completion's index, a buffer is the user's until
 * the next poll, and the record moves once per poll, after the completion queue's. Buffers have
 * room for the largest MTU. */
TEST(datagram_buffers_are_lent_until_the_next_poll)
{
	struct plain *p = plain_new(64, 16, 92, 8, 64);
	struct mlx5_wqe_data_seg wqe[8];
	struct crpc_rdma_cqe cqe[8];

	plain_ud(p);
	crpc_mlx5_rq_prefill(CRPC_IB_UD, &p->ud, wqe, 8, sizeof(wqe[0]));
	assert_int_equal(be32toh(wqe[3].byte_count), 4136);
	assert_int_equal(be32toh(wqe[3].lkey), 0x77);
	assert_int_equal(be64toh(wqe[3].addr), (uintptr_t)p->ud.buf + 3 * 4160 + 24);
	p->qp_dbrec[0] = htobe32(8);
	for (uint32_t round = 0; round < 10000; round++) {
		for (uint32_t i = 0; i < 3; i++) {
			union crpc_mlx5_cqe *c =
				plain_cqe(p, i == 1 ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_SEND_IMM,
					PLAIN_QPN, (uint16_t)(3 * round + i));

			c->ok.byte_cnt = htobe32(40 + i * 128);
			c->ok.imm_inval_pkey = htobe32(round);
		}
		assert_int_equal(poll(p, cqe, 8), 3);
		/* Of this poll's none is back, of the one before all are. */
		assert_int_equal(posted_receives(p), (8 + 3 * round) & 0xffff);
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(cqe[i].type, CRPC_RDMA_CQE_DGRAM);
			assert_int_equal(cqe[i].byte_len, i * 128);
			assert_int_equal(cqe[i].imm, round);
			assert_ptr_equal(cqe[i].data, p->ud.buf + (3 * round + i) % 8 * 4160 + 64);
		}
	}
	assert_int_equal(poll(p, cqe, 8), 0);
	assert_int_equal(posted_receives(p), (8 + 30000) & 0xffff);
	/* A port of a larger MTU sends more than ours could. */
	plain_cqe(p, MLX5_CQE_RESP_SEND_IMM, PLAIN_QPN, 0)->ok.byte_cnt = htobe32(40 + 4096);
	assert_int_equal(poll(p, cqe, 8), 1);
	assert_int_equal(cqe[0].byte_len, 4096);
	/* Longer than a buffer, or shorter than its GRH: a device that lies is not read. */
	plain_cqe(p, MLX5_CQE_RESP_SEND_IMM, PLAIN_QPN, 0)->ok.byte_cnt = htobe32(4137);
	assert_int_equal(poll(p, cqe, 8), 0);
	assert_int_equal(poll(p, cqe, 8), 1);
	assert_int_equal(cqe[0].status, -EIO);
}

/* After an error of a datagram that was sent a card goes on to receive: the driver ends that, once.
 * A DC target has no ring of its own: an error of a send that names it reads none. */
TEST(errors_of_sends_end_the_receives_too)
{
	static const uint8_t kinds[] = {CRPC_IB_UD, CRPC_IB_DC};
	struct crpc_rdma_wr wr[2] = {{.wr_id = 1}, {.wr_id = 2}};
	struct crpc_rdma_cqe cqe[8];

	for (uint32_t i = 0; i < CRPC_DIM(kinds); i++) {
		struct plain *p = plain_new(64, 16, 92, 8, 64);

		to_error_calls = 0;
		if (kinds[i] == CRPC_IB_UD)
			assert_int_equal(crpc_rdma_post(&p->qp.ib.base, wr, 2), 2);
		else
			memset(&p->qp.own, 0, sizeof(p->qp.own));
		p->qp.ib.kind = kinds[i];
		hw_error(p, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0);
		hw_error(p, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 1);
		assert_int_equal(poll(p, cqe, 8), kinds[i] == CRPC_IB_UD ? 2 : 1);
		assert_int_equal(cqe[0].status, -EACCES);
		assert_int_equal(cqe[0].wrs, kinds[i] == CRPC_IB_UD);
		assert_int_equal(to_error_calls, 1);
	}
}

static uint32_t progress_result;
static unsigned int progress_calls;
static struct plain *progress_plain;

static uint32_t
progress(struct ibv_context *context)
{
	progress_calls++;
	if (progress_result != 0)
		plain_cqe(progress_plain, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, 0);
	return progress_result;
}

TEST(software_nic_is_driven_by_doorbells_and_dry_polls)
{
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .flags = CRPC_RDMA_WR_SIGNAL};
	struct plain *p = plain_new(64, 16, 92, 16, 64);
	struct crpc_rdma_cqe cqe[4];

	progress_plain = p;
	p->dev.ib.progress = progress;
	assert_int_equal(poll(p, cqe, 4), 0);
	assert_int_equal(progress_calls, 1);
	plain_cqe(p, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, 0);
	assert_int_equal(poll(p, cqe, 4), 1);
	assert_int_equal(progress_calls, 2);
	/* A poll that found all it had room for takes what there is first. */
	plain_cqe(p, MLX5_CQE_RESP_WR_IMM, PLAIN_QPN, 0);
	assert_int_equal(poll(p, cqe, 1), 1);
	assert_int_equal(progress_calls, 2);
	assert_int_equal(crpc_mlx5_post(&p->qp.ib.base, &wr, 1), 1);
	assert_int_equal(progress_calls, 3);
	/* What it just did is found in the same poll. */
	progress_result = 1;
	assert_int_equal(poll(p, cqe, 4), 1);
	assert_int_equal(progress_calls, 4);
	assert_int_equal(p->dev.ib.base.stats.polls, 4);
	assert_int_equal(p->dev.ib.base.stats.empty_polls, 1);
}

TEST_MAIN(NULL, NULL)
