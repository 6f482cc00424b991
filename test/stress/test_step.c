/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Step mode and faults at run time (soft_mlx5_step.h), seen through the device class: nothing moves
 * but by a pass, each fault does what it says and leaves the rest alone, and each gives the
 * syndrome that a card gives. Run in step mode; in any other all functions must refuse.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_rdma.h"
#include "soft_mlx5_step.h"

#define MS UINT64_C(1000000)

struct end {
	struct crpc_rdma *dev;
	struct crpc_rdma_qp *qp;
	struct crpc_rdma_mr mr;
	uint32_t number;
	uint8_t mem[4096];
};

static struct soft_mlx5_step step;
static struct end end[2];
static uint64_t now;

static void
open_two(void)
{
	uint8_t addr[2][CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_conf conf = {.cq_depth = 64};
	struct crpc_rdma_qp_conf qp = {.sq_depth = 16, .rq_depth = 16};

	now = MS;
	assert_int_equal(step.start(1), 0);
	for (int i = 0; i < 2; i++) {
		memset(end[i].mem, i + 1, sizeof(end[i].mem));
		end[i].dev = crpc_rdma_open(&conf);
		assert_non_null(end[i].dev);
		end[i].number = step.last();
		assert_int_equal(end[i].number, i + 1);
		assert_int_equal(crpc_rdma_mr_reg(end[i].dev, end[i].mem, sizeof(end[i].mem),
					 &end[i].mr),
			0);
		end[i].qp = crpc_rdma_qp_create(end[i].dev, &qp);
		assert_non_null(end[i].qp);
		crpc_rdma_qp_addr(end[i].qp, addr[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(crpc_rdma_qp_connect(end[i].qp, addr[!i]), 0);
}

static void
close_two(void)
{
	for (int i = 0; i < 2; i++) {
		crpc_rdma_qp_free(end[i].qp);
		crpc_rdma_mr_dereg(end[i].dev, &end[i].mr);
		crpc_rdma_close(end[i].dev);
	}
}

static void
post(enum crpc_rdma_op op, uint32_t len)
{
	struct crpc_rdma_wr wr = {
		.op = (uint8_t)op,
		.flags = CRPC_RDMA_WR_SIGNAL,
		.num_sge = 1,
		.imm = 7,
		.raddr = (uintptr_t)end[1].mem,
		.rkey = end[1].mr.rkey,
		.sge = {{end[0].mem, len, end[0].mr.lkey}},
	};

	assert_int_equal(crpc_rdma_post(end[0].qp, &wr, 1), 1);
}

static uint16_t
poll_one(int i, struct crpc_rdma_cqe *cqe)
{
	return crpc_rdma_poll(end[i].dev, cqe, 1);
}

/* Passes of all cards until one end has a completion; its number, or 0 after @ms. */
static bool
comes(int i, struct crpc_rdma_cqe *cqe, uint32_t ms)
{
	uint64_t until = now + ms * MS;

	for (; now < until; now += MS / 20) {
		assert_int_equal(step.pass(SOFT_MLX5_STEP_ALL, now, NULL), 0);
		if (poll_one(i, cqe) != 0)
			return true;
	}
	return false;
}

TEST(nothing_moves_but_by_a_pass)
{
	struct crpc_rdma_cqe cqe;
	uint32_t i, work;

	open_two();
	assert_int_equal(step.start(1), EBUSY);
	assert_int_equal(step.pass(SOFT_MLX5_STEP_ALL, now, NULL), 0);
	assert_int_equal(step.idle(), 1);
	post(CRPC_RDMA_WRITE_IMM, 100);
	for (i = 0; i < 1000; i++)
		assert_int_equal(poll_one(0, &cqe) + poll_one(1, &cqe), 0);
	assert_int_equal(step.idle(), 0);
	/* The receiver's pass finds nothing: the sender had none. */
	assert_int_equal(step.pass(2, now, &work), 0);
	assert_int_equal(work, 0);
	assert_int_equal(step.pass(1, now, &work), 0);
	assert_true(work != 0);
	assert_int_equal(poll_one(1, &cqe), 0);
	assert_int_equal(step.pass(2, now, NULL), 0);
	assert_int_equal(poll_one(1, &cqe), 1);
	assert_int_equal(cqe.imm, 7);
	assert_memory_equal(end[0].mem, end[1].mem, 100);
	assert_int_equal(poll_one(0, &cqe), 0);
	for (i = 0; i < 100 && poll_one(0, &cqe) == 0; i++)
		assert_int_equal(step.step(now, NULL), 0);
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_SEND);
	assert_int_equal(step.pass(3, now, NULL), ENOENT);
	close_two();
	assert_int_equal(step.step(now, NULL), ENOENT);
	assert_int_equal(step.pass(1, now, NULL), ENOENT);
}

TEST(faults_begin_and_end_at_run_time)
{
	struct crpc_rdma_cqe cqe;

	open_two();
	assert_int_equal(step.faults(9, "drop=1"), ENOENT);
	assert_int_equal(step.faults(1, "drop=2"), EINVAL);
	assert_int_equal(step.faults(1, "drip=1"), EINVAL);
	assert_int_equal(step.faults(1, "drop=0.5,,"), EINVAL);
	assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), 0);
	assert_int_equal(step.faults(2, "drop=1"), 0);
	post(CRPC_RDMA_WRITE_IMM, 100);
	assert_false(comes(1, &cqe, 30));
	/* What was lost is sent again when its timer ends. */
	assert_int_equal(step.faults(2, ""), 0);
	assert_true(comes(1, &cqe, 5000));
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_RECV);
	assert_true(comes(0, &cqe, 5000));
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_SEND);
	/* Of another queue pair: this one has no fault. */
	assert_int_equal(step.faults(2, "drop=1,qp=1"), 0);
	post(CRPC_RDMA_WRITE_IMM, 100);
	assert_true(comes(1, &cqe, 10));
	/* A dead card, and one that is slow. */
	assert_int_equal(step.faults(2, "dead=1"), 0);
	post(CRPC_RDMA_WRITE_IMM, 100);
	assert_false(comes(1, &cqe, 30));
	assert_int_equal(step.faults(2, "slow=20000000"), 0);
	assert_true(comes(1, &cqe, 10));
	post(CRPC_RDMA_WRITE_IMM, 100);
	assert_false(comes(1, &cqe, 10));
	assert_true(comes(1, &cqe, 100));
	close_two();
}

/* What each fault gives at the sender, and whether the receiver's queue pair fails with it. */
static const struct {
	const char *text;
	int side; /* Whose fault. */
	enum crpc_rdma_op op;
	uint8_t syndrome;
	bool receiver_fails;
} errors[] = {
	{"prot=1", 0, CRPC_RDMA_WRITE_IMM, 0x04, false},
	{"badresp=1", 0, CRPC_RDMA_READ, 0x10, false},
	{"inval=1", 1, CRPC_RDMA_WRITE_IMM, 0x12, true},
	{"access=1", 1, CRPC_RDMA_WRITE_IMM, 0x13, true},
	{"op=1", 1, CRPC_RDMA_WRITE_IMM, 0x14, true},
	{"op=1", 1, CRPC_RDMA_READ, 0x14, true},
	{"drop=1", 1, CRPC_RDMA_WRITE_IMM, 0x15, false},
	{"dead=1", 1, CRPC_RDMA_WRITE_IMM, 0x15, false},
};

TEST(each_fault_gives_its_syndrome)
{
	struct crpc_rdma_cqe cqe;
	bool failed;

	for (uint32_t i = 0; i < CRPC_DIM(errors); i++) {
		open_two();
		assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), 0);
		assert_int_equal(step.faults(end[errors[i].side].number, errors[i].text), 0);
		post(errors[i].op, 64);
		if (!comes(0, &cqe, 20000))
			fail_msg("%s: no completion", errors[i].text);
		if (cqe.type != CRPC_RDMA_CQE_ERROR || cqe.syndrome != errors[i].syndrome)
			fail_msg("%s: type %u, syndrome 0x%x, expected 0x%x", errors[i].text,
				cqe.type, cqe.syndrome, errors[i].syndrome);
		assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), 0);
		/* A card that was dead takes what lay before it when it comes to life. */
		failed = comes(1, &cqe, 1) && cqe.type == CRPC_RDMA_CQE_ERROR;
		if (failed != errors[i].receiver_fails)
			fail_msg("%s: the receiver %s", errors[i].text,
				failed ? "failed" : "did not fail");
		close_two();
	}
}

TEST(queue_pairs_fail_and_cards_vanish)
{
	struct crpc_rdma_cqe cqe;
	uint32_t received = 0, failures = 0;

	open_two();
	post(CRPC_RDMA_WRITE_IMM, 8);
	assert_int_equal(step.break_qp(1, 5), 0); /* There is one: the index is taken modulo. */
	assert_int_equal(step.break_qp(1, 0), ENOENT);
	assert_true(comes(0, &cqe, 1));
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe.status, -ECANCELED);
	assert_false(comes(1, &cqe, 100));
	close_two();

	open_two();
	assert_int_equal(step.vanish(2), 0);
	assert_int_equal(step.pass(2, now, NULL), ENOENT);
	post(CRPC_RDMA_WRITE_IMM, 8);
	assert_true(comes(0, &cqe, 100));
	assert_int_equal(cqe.syndrome, 0x15);
	assert_int_equal(cqe.status, -ECONNRESET);
	close_two();

	/*
	 * The queue that overran gets nothing more; its queue pair fails, for the peer, too. A
	 * thread reads the device's event, so its owner looks when the peer has its answer.
	 */
	open_two();
	assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), 0);
	assert_int_equal(step.faults(2, "cqfull=1"), 0);
	post(CRPC_RDMA_WRITE_IMM, 8);
	assert_true(comes(0, &cqe, 10)); /* The last one: the queue failed after that pass. */
	post(CRPC_RDMA_WRITE_IMM, 8);
	while (comes(0, &cqe, 5000) && cqe.type == CRPC_RDMA_CQE_SEND)
		;
	assert_int_equal(cqe.syndrome, 0x14);
	for (uint32_t i = 0; i < 5000 && failures == 0; i++, usleep(1000))
		while (comes(1, &cqe, 1)) {
			received += cqe.type != CRPC_RDMA_CQE_ERROR;
			failures += cqe.type == CRPC_RDMA_CQE_ERROR;
		}
	assert_int_equal(failures, 1);
	assert_in_range(received, 0, 1);
	assert_false(comes(1, &cqe, 10));
	close_two();
}

static void
other_modes_refuse(void **state)
{
	assert_int_equal(step.start(1), EPERM);
	assert_int_equal(step.step(1, NULL), EPERM);
	assert_int_equal(step.pass(SOFT_MLX5_STEP_ALL, 1, NULL), EPERM);
	assert_int_equal(step.idle(), -EPERM);
	assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), EPERM);
	assert_int_equal(step.break_qp(1, 0), EPERM);
	assert_int_equal(step.vanish(1), EPERM);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest refused[] = {cmocka_unit_test(other_modes_refuse)};

	crpc_clock_init();
	if (soft_mlx5_step_find(&step) != 0) {
		print_message("skipped: not started by soft-mlx5\n");
		return 77;
	}
	if (argc > 1 && strcmp(argv[1], "--refused") == 0)
		return cmocka_run_group_tests_name("step mode, refused", refused, NULL, NULL);
	return test_run(NULL, NULL);
}
