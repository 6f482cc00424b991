/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What only a NIC on paper does: nothing moves but by steps, a seed repeats a run, faults are those
 * that were asked for. What every device does is tested by test/mlx5_copyrpc/test_loop.c and
 * test_ud.c, which run over this one, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "crpc_paper_nic.h"

#define BYTES 4096u

/* Two devices with a region, a queue pair (1) and a datagram queue (2) each. */
static struct crpc_paper net;
static struct crpc_rdma *dev[2];
static struct crpc_rdma_mr mr[2];
static struct crpc_rdma_qp *qp[2];
static struct crpc_rdma_qp *ud[2];
static struct crpc_rdma_ah *ah; /* of side 0, to side 1 */
static uint8_t mem[2][BYTES];

static void
rig_open(uint8_t transport, uint32_t rq_depth)
{
	const struct crpc_rdma_qp_conf ud_conf = {
		.transport = CRPC_RDMA_UD, .id = 2, .sq_depth = 1024, .rq_depth = 2048};
	const struct crpc_rdma_qp_conf conf = {
		.id = 1, .transport = transport, .sq_depth = 64, .rq_depth = rq_depth};
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	memset(&net, 0, sizeof(net));
	net.rng = 42;
	for (int i = 0; i < 2; i++) {
		dev[i] = crpc_paper_open(&net, &(struct crpc_paper_conf){.mtu = 1024});
		assert_int_equal(crpc_rdma_mr_reg(dev[i], mem[i], BYTES, &mr[i]), 0);
		qp[i] = crpc_rdma_qp_create(dev[i], &conf);
		ud[i] = crpc_rdma_qp_create(dev[i], &ud_conf);
		assert_true(qp[i] != NULL && ud[i] != NULL);
		memset(mem[i], i, BYTES);
	}
	crpc_rdma_qp_addr(ud[1], addr);
	ah = crpc_rdma_ah_create(ud[0], addr);
	assert_non_null(ah);
}

static int
rig_connect(int i)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	crpc_rdma_qp_addr(qp[!i], addr);
	return crpc_rdma_qp_connect(qp[i], addr);
}

static void
rig_connected(uint8_t transport, uint32_t rq_depth)
{
	rig_open(transport, rq_depth);
	assert_int_equal(rig_connect(0) | rig_connect(1), 0);
}

static void
rig_close(void)
{
	crpc_rdma_ah_free(ah);
	for (int i = 0; i < 2; i++) {
		crpc_rdma_qp_free(qp[i]);
		crpc_rdma_qp_free(ud[i]);
		crpc_rdma_mr_dereg(dev[i], &mr[i]);
		crpc_rdma_close(dev[i]);
	}
}

/* Side 0 moves len bytes from the start of its region to, or from, the start of the other's. */
static uint16_t
post_key(uint8_t op, uint32_t len, uint32_t rkey)
{
	const struct crpc_rdma_wr wr = {.op = op,
		.flags = CRPC_RDMA_WR_SIGNAL,
		.imm = len,
		.num_sge = 1,
		.raddr = (uintptr_t)mem[1],
		.rkey = rkey,
		.sge = {{mem[0], len, mr[0].lkey}}};

	return crpc_rdma_post(qp[0], &wr, 1);
}

static uint16_t
post(uint8_t op, uint32_t len)
{
	return post_key(op, len, mr[1].rkey);
}

/* The next completion of a side, which must be there. */
static struct crpc_rdma_cqe
next(int side, uint8_t type, int status)
{
	struct crpc_rdma_cqe cqe = {0};

	assert_int_equal(crpc_rdma_poll(dev[side], &cqe, 1), 1);
	assert_int_equal(cqe.type, type);
	assert_int_equal(cqe.status, status);
	return cqe;
}

static void
nothing(int side)
{
	struct crpc_rdma_cqe cqe;

	assert_int_equal(crpc_rdma_poll(dev[side], &cqe, 1), 0);
}

/* Posted is not moved, moved is not acknowledged; a dump shows which. */
TEST(nothing_moves_but_by_steps)
{
	char text[400] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	rig_connected(CRPC_RDMA_RC, 4);
	assert_int_equal(post(CRPC_RDMA_WRITE_IMM, 10), 1);
	nothing(1);
	assert_int_equal(mem[1][0], 1);
	net.frozen = true;
	assert_false(crpc_paper_step(&net));
	net.frozen = false;
	net.hold_acks = true;
	mem[0][0] = 8; /* the payload is read with the step, not with post */
	crpc_paper_run(&net);
	assert_int_equal(mem[1][0], 8);
	assert_int_equal(next(1, CRPC_RDMA_CQE_RECV, 0).imm, 10);
	nothing(0);
	assert_int_equal(crpc_rdma_dump(dev[0], out), 0);
	fclose(out);
	assert_non_null(strstr(text, "0x1 RC: ready; posted 1, carried out 1, acknowledged 0"));
	assert_int_equal(net.nactive, 1);
	net.hold_acks = false;
	crpc_paper_run(&net);
	assert_int_equal(next(0, CRPC_RDMA_CQE_SEND, 0).wrs, 1);
	assert_int_equal(net.nactive, 0);
	assert_int_equal(crpc_paper_counts(dev[0])->write_imms, 1);
	rig_close();
}

/* A WRITE in pieces: what has arrived is its beginning, and the completion comes with its end. */
TEST(bytes_of_a_write_appear_in_increasing_order)
{
	uint32_t round, i, pieces = 0, have, before;

	rig_connected(CRPC_RDMA_RC, 4);
	net.tear = 8000;
	for (round = 0; round < 50; round++) {
		memset(mem[1], 1, BYTES);
		assert_int_equal(post(CRPC_RDMA_WRITE_IMM, BYTES), 1);
		for (before = 0; before < BYTES; before = have, pieces++) {
			nothing(1);
			assert_true(crpc_paper_step(&net));
			for (have = 0; have < BYTES && mem[1][have] == 0; have++)
				;
			for (i = have; i < BYTES; i++)
				assert_int_equal(mem[1][i], 1);
			assert_true(have >= before);
		}
		next(1, CRPC_RDMA_CQE_RECV, 0);
		crpc_paper_run(&net);
		next(0, CRPC_RDMA_CQE_SEND, 0);
	}
	assert_true(pieces > 150);
	rig_close();
}

/* A key is for one region, for peers or for the owner, until the region is deregistered. */
TEST(keys_and_bounds_are_checked)
{
	struct crpc_rdma_mr old;

	for (uint32_t i = 0; i < 12; i++) {
		uint8_t op = i % 3;

		rig_connected(CRPC_RDMA_RC, 4);
		if (i / 3 == 0) { /* its number is used again */
			assert_int_equal(crpc_rdma_mr_reg(dev[1], mem[1], BYTES, &old), 0);
			post_key(op, 1, old.rkey);
			crpc_rdma_mr_dereg(dev[1], &old);
			assert_int_equal(crpc_rdma_mr_reg(dev[1], mem[1], BYTES, &old), 0);
		}
		if (i / 3 == 1)
			post_key(op, 1, mr[1].lkey);
		if (i / 3 == 2)
			post_key(op, BYTES + 1, mr[1].rkey);
		if (i / 3 == 3)
			post_key(op, 1, 0);
		post(op, 1);
		crpc_paper_run(&net);
		next(0, CRPC_RDMA_CQE_ERROR, -EACCES);
		next(0, CRPC_RDMA_CQE_ERROR, -ECANCELED);
		nothing(0);
		nothing(1);
		rig_close();
	}
}

/*
 * What was carried out before a request that fails has its completion. Where the peer is gone it
 * was not acknowledged, so it is the first that fails.
 */
TEST(requests_before_a_failure_are_accounted_for)
{
	struct crpc_rdma_cqe cqe;

	for (uint32_t i = 0; i < 2; i++) {
		rig_connected(CRPC_RDMA_RC, 4);
		net.hold_acks = true;
		assert_int_equal(post(CRPC_RDMA_WRITE, 1), 1);
		crpc_paper_run(&net);
		nothing(0);
		if (i == 0)
			post_key(CRPC_RDMA_WRITE, 1, 0);
		else
			crpc_paper_kill(dev[1]);
		post(CRPC_RDMA_WRITE, 1);
		crpc_paper_run(&net);
		if (i == 0)
			assert_int_equal(next(0, CRPC_RDMA_CQE_SEND, 0).wrs, 1);
		cqe = next(0, CRPC_RDMA_CQE_ERROR, i == 0 ? -EACCES : -ECONNRESET);
		assert_int_equal(cqe.wrs, 1);
		next(0, CRPC_RDMA_CQE_ERROR, -ECANCELED);
		nothing(0);
		rig_close();
	}
}

/* RC waits for a peer that connects to it. DC writes before, and only immediates wait. */
TEST(requests_wait_for_the_connection_and_for_receives)
{
	for (uint8_t transport = CRPC_RDMA_RC; transport <= CRPC_RDMA_DC; transport++) {
		rig_open(transport, 2);
		assert_int_equal(rig_connect(0), 0);
		assert_int_equal(post(CRPC_RDMA_WRITE, 1), 1);
		for (uint8_t i = 0; i < 3; i++)
			assert_int_equal(post(CRPC_RDMA_WRITE_IMM, 1), 1);
		crpc_paper_run(&net);
		assert_int_equal(mem[1][0], transport == CRPC_RDMA_DC ? 0 : 1);
		nothing(1);
		assert_int_equal(rig_connect(1), 0);
		crpc_paper_run(&net);
		/* two receives: the third request waits until one is posted again */
		for (uint8_t i = 0; i < 2; i++)
			next(1, CRPC_RDMA_CQE_RECV, 0);
		nothing(1);
		crpc_paper_run(&net);
		next(1, CRPC_RDMA_CQE_RECV, 0);
		rig_close();
	}
}

/* A DC queue pair that drains carries its requests out, without completions. */
TEST(a_drained_queue_pair_ends_its_requests_in_silence)
{
	rig_connected(CRPC_RDMA_DC, 4);
	assert_int_equal(post(CRPC_RDMA_WRITE, 1), 1);
	assert_int_equal(crpc_rdma_qp_drain(qp[0]), -EAGAIN);
	assert_int_equal(post(CRPC_RDMA_WRITE, 1), 0);
	crpc_paper_run(&net);
	assert_int_equal(mem[1][0], 0);
	assert_int_equal(crpc_rdma_qp_drain(qp[0]), 0);
	nothing(0);
	rig_close();
}

#define DGRAMS 1000u

/* Datagrams of 100 bytes: how many arrived, how many after a later one, how many with another
 * length. */
struct tally {
	uint32_t arrived, late, resized;
};

static struct tally
dgrams_send(void)
{
	struct crpc_rdma_wr d = {.op = CRPC_RDMA_SEND_IMM,
		.ah = ah,
		.num_sge = 1,
		.sge = {{mem[0], 100, mr[0].lkey}}};
	struct tally t = {0};
	struct crpc_rdma_cqe cqe;
	uint32_t last = 0;

	for (; d.imm < DGRAMS; d.imm++)
		assert_int_equal(crpc_rdma_post(ud[0], &d, 1), 1);
	crpc_paper_run(&net);
	for (; crpc_rdma_poll(dev[1], &cqe, 1) == 1; t.arrived++) {
		t.late += cqe.imm < last;
		t.resized += cqe.byte_len != 100;
		last = cqe.imm;
	}
	return t;
}

/* Each fault does what it says and nothing else, about as often as was asked; a seed repeats it. */
TEST(datagrams_suffer_the_faults_that_were_set)
{
	static const struct {
		uint32_t *chance, from, to;
	} t[] = {{&net.stall, DGRAMS, DGRAMS}, {&net.reorder, DGRAMS, DGRAMS},
		{&net.corrupt, DGRAMS, DGRAMS}, {&net.drop, 700, 900},
		{&net.duplicate, 1150, 1350}};
	struct tally first, again;

	for (uint32_t i = 0; i < CRPC_DIM(t); i++) {
		rig_open(CRPC_RDMA_RC, 4);
		*t[i].chance = 2000;
		first = dgrams_send();
		rig_close();
		assert_in_range(first.arrived, t[i].from, t[i].to);
		assert_int_equal(first.late > 50, t[i].chance == &net.reorder);
		assert_int_equal(first.resized > 100, t[i].chance == &net.corrupt);
		assert_int_equal(net.dropped + first.arrived, DGRAMS + net.duplicated);
		rig_open(CRPC_RDMA_RC, 4);
		*t[i].chance = 2000;
		again = dgrams_send();
		rig_close();
		assert_memory_equal(&first, &again, sizeof(first));
	}
}

/* Requests move when their time has come, posts are short, queues break, devices die. */
TEST(queues_suffer_the_faults_that_were_set)
{
	rig_connected(CRPC_RDMA_RC, 64);
	net.delay_ns = 1000000;
	assert_int_equal(post(CRPC_RDMA_WRITE_IMM, 1), 1);
	crpc_paper_run(&net);
	nothing(1);
	net.now_ns += net.delay_ns;
	crpc_paper_run(&net);
	next(1, CRPC_RDMA_CQE_RECV, 0);
	next(0, CRPC_RDMA_CQE_SEND, 0);
	net.delay_ns = 0;
	net.refuse = CRPC_PAPER_CHANCE;
	assert_int_equal(post(CRPC_RDMA_WRITE, 1), 0);
	net.refuse = 0;
	crpc_paper_post_limit(dev[0], 3);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(post(CRPC_RDMA_WRITE, 1), i < 3);
	net.fail = CRPC_PAPER_CHANCE;
	assert_true(crpc_paper_step(&net));
	next(0, CRPC_RDMA_CQE_ERROR, -EIO);
	for (uint32_t i = 0; i < 3; i++)
		next(0, CRPC_RDMA_CQE_ERROR, -ECANCELED);
	assert_int_equal(crpc_paper_fail(dev[1], 9, -EPROTO), -ENOENT);
	assert_int_equal(crpc_paper_fail(dev[1], 2, -EPROTO), 0);
	assert_int_equal(next(1, CRPC_RDMA_CQE_ERROR, -EPROTO).qp_id, 2);
	rig_close();

	/* there is no such operation */
	rig_connected(CRPC_RDMA_RC, 4);
	assert_int_equal(post(CRPC_RDMA_READ + 1, 1), 0);
	next(0, CRPC_RDMA_CQE_ERROR, -EINVAL);
	rig_close();

	/* a device that was killed neither sends nor receives; a peer notices when it sends */
	rig_connected(CRPC_RDMA_RC, 4);
	crpc_paper_kill(dev[1]);
	assert_int_equal(dgrams_send().arrived, 0);
	assert_int_equal(post(CRPC_RDMA_WRITE, 1), 1);
	crpc_paper_run(&net);
	next(0, CRPC_RDMA_CQE_ERROR, -ECONNRESET);
	rig_close();
}

TEST(forged_messages_take_receives)
{
	rig_open(CRPC_RDMA_RC, 1);
	assert_int_equal(crpc_paper_forge(dev[1], 1, 5, NULL, 77), 0);
	assert_int_equal(crpc_paper_forge(dev[1], 1, 5, NULL, 77), -EAGAIN);
	assert_int_equal(crpc_paper_forge(dev[1], 9, 5, NULL, 77), -ENOENT);
	assert_int_equal(next(1, CRPC_RDMA_CQE_RECV, 0).byte_len, 77);
	assert_int_equal(crpc_paper_forge(dev[1], 2, 5, "abc", 4), 0);
	assert_string_equal(next(1, CRPC_RDMA_CQE_DGRAM, 0).data, "abc");
	rig_close();
}

TEST_MAIN(NULL, NULL)
