/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How dynamically connected queue pairs end while the device still has their requests, on cards
 * that are stepped by hand. What is proved: no call waits for the peer (nothing moves inside one,
 * so one that waited would wait for ever), a dead target stops nobody but who has something behind
 * it on the same initiator, those lose nothing, and memory is not touched once it is said to be
 * free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"
#include "soft_mlx5_step.h"

#define US   UINT64_C(1000)
#define MS   UINT64_C(1000000)
#define PAGE 4096u
#define QPS  3

enum card { OURS, ALIVE, DEAD, CARDS };

static struct soft_mlx5_step step;
static uint64_t now;

static void
pass(void)
{
	now += 200 * US;
	assert_int_equal(step.pass(SOFT_MLX5_STEP_ALL, now, NULL), 0);
}

/* It hears nothing any more; that it is gone is known only when all tries are over. */
static void
card_dies(void)
{
	assert_int_equal(step.faults(SOFT_MLX5_STEP_ALL, ""), 0);
	assert_int_equal(step.faults(DEAD + 1, "drop=1"), 0);
}

static struct crpc_rdma *
card_open(uint32_t dcis, uint64_t drain_ns)
{
	const struct crpc_rdma_conf conf = {
		.dcis = dcis, .cq_depth = 1024, .drain_ns = drain_ns};
	struct crpc_rdma *dev = crpc_rdma_open(&conf);

	assert_or_log(dev != NULL);
	return dev;
}

/* ---- calls ---- */

/* An endpoint of ours, and its peer's. */
struct line {
	struct crpc_copyrpc_ep *ours, *theirs;
	uint32_t done, failed, served;
};

static struct crpc_rdma *dev[CARDS];
static struct crpc_copyrpc *ctx[CARDS];
static struct line line[QPS];

static void
line_make(struct line *l, enum card to)
{
	const struct crpc_copyrpc_ep_conf conf = {.transport = CRPC_RDMA_DC};
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	uint32_t id = (uint32_t)(l - line);

	l->ours = crpc_copyrpc_ep_create_as(ctx[OURS], id, &conf);
	l->theirs = crpc_copyrpc_ep_create_as(ctx[to], id, &conf);
	assert_non_null(l->ours);
	assert_non_null(l->theirs);
	crpc_copyrpc_ep_addr(l->ours, addr[0]);
	crpc_copyrpc_ep_addr(l->theirs, addr[1]);
	assert_int_equal(crpc_copyrpc_ep_connect(l->ours, addr[1]), 0);
	assert_int_equal(crpc_copyrpc_ep_connect(l->theirs, addr[0]), 0);
}

/* Line 0 goes to the card that dies, the others to the one that stays. */
static void
lines_open(uint32_t dcis)
{
	struct crpc_copyrpc_conf conf = {.timeout_ns = 60000 * MS};

	now = MS;
	memset(line, 0, sizeof(line));
	assert_int_equal(step.start(1), 0);
	for (uint32_t i = 0; i < CARDS; i++) {
		conf.dev = dev[i] = card_open(dcis, 0);
		ctx[i] = crpc_copyrpc_create(&conf);
		assert_non_null(ctx[i]);
	}
	for (uint32_t i = 0; i < QPS; i++)
		line_make(&line[i], i == 0 ? DEAD : ALIVE);
}

static void
lines_close(void)
{
	for (uint32_t i = 0; i < CARDS; i++) {
		crpc_copyrpc_free(ctx[i]);
		crpc_rdma_close(dev[i]);
	}
}

static void
call(uint32_t i)
{
	assert_int_equal(crpc_copyrpc_call(line[i].ours, now, "ask", 3, 8, i), 0);
	crpc_copyrpc_flush(ctx[OURS], now);
}

/* One turn of our loop and of the living peer's. */
static void
turn(void)
{
	struct crpc_done done[16];
	struct crpc_req req[16];
	uint16_t n = crpc_copyrpc_poll(ctx[ALIVE], now, done, 16);

	assert_int_equal(n, 0);
	n = crpc_copyrpc_recv(ctx[ALIVE], now, req, 16);
	for (uint16_t i = 0; i < n; i++) {
		line[req[i].peer].served++;
		assert_int_equal(crpc_copyrpc_reply(ctx[ALIVE], now, req[i].token, "yes", 3), 0);
	}
	crpc_copyrpc_flush(ctx[ALIVE], now);
	n = crpc_copyrpc_poll(ctx[OURS], now, done, 16);
	for (uint16_t i = 0; i < n; i++) {
		line[done[i].cookie].failed += done[i].status != 0;
		line[done[i].cookie].done += done[i].status == 0;
	}
	crpc_copyrpc_flush(ctx[OURS], now);
	pass();
}

/* Line 0 has calls open to a card that is gone, and line 2 one behind them on their initiator. */
static void
line_strand(void)
{
	card_dies();
	call(0);
	call(1);
	call(2);
	crpc_copyrpc_ep_shutdown(line[0].ours);
	turn();
	assert_int_equal(line[0].failed, 1);
	assert_int_equal(crpc_copyrpc_ep_reset(line[0].ours), -EBUSY);
}

/* Until so many calls of a line have ended well, and no more. */
static void
wait_done(uint32_t i, uint32_t done, uint32_t turns)
{
	for (; turns != 0 && line[i].done < done; turns--)
		turn();
	assert_int_equal(line[i].done, done);
}

/* One more of line 1, to its end. Nobody else is asked to wait for it. */
static void
call_one(void)
{
	call(1);
	wait_done(1, line[1].done + 1, 100);
}

/*
 * While one endpoint ends, calls to a living peer over another initiator are as fast as ever. What
 * waits behind it on its own initiator is answered once, as soon as the device gave the dead one
 * up.
 */
TEST(a_dead_target_does_not_stop_a_living_one)
{
	uint64_t until;
	uint32_t during = 0;

	lines_open(2);
	line_strand();
	until = now + 20000 * MS;
	while (crpc_copyrpc_ep_reset(line[0].ours) == -EBUSY) {
		assert_true(now < until);
		/* Its end is what line 2 waits for. */
		assert_int_equal(line[2].done, 0);
		call_one();
		during++;
	}
	assert_in_range(during, 20, UINT32_MAX);
	wait_done(2, 1, 100);
	assert_int_equal(line[2].served, 1);
	assert_int_equal(line[1].failed + line[2].failed, 0);
	/* It is as good as new. */
	crpc_copyrpc_ep_free(line[1].theirs);
	crpc_copyrpc_ep_free(line[0].ours);
	line_make(&line[0], ALIVE);
	call(0);
	wait_done(0, 1, 100);
	lines_close();
}

/* The same with all of it on one initiator, and freed at once: rings and regions are gone while the
 * device still has their requests. The others go on when it has given them up. */
TEST(freed_at_once_and_the_rest_goes_on)
{
	lines_open(1);
	line_strand();
	crpc_copyrpc_ep_free(line[0].ours);
	wait_done(1, 1, 100000);
	wait_done(2, 1, 100000);
	for (uint32_t i = 0; i < 20; i++)
		call_one();
	assert_int_equal(line[1].served, 21);
	assert_int_equal(line[2].served, 1);
	assert_int_equal(line[1].failed + line[2].failed, 0);
	lines_close();
}

/* A device that is closed takes with it what has not come to its end. */
TEST(closed_in_the_midst)
{
	lines_open(1);
	line_strand();
	crpc_copyrpc_ep_free(line[0].ours);
	lines_close();
}

/* ---- memory ---- */

/* A queue pair of ours with memory of its own, and its peer's. */
struct pair {
	struct crpc_rdma_qp *ours, *theirs;
	uint8_t *mem;
	struct crpc_rdma_mr mr;
	uint32_t posted, arrived, errors;
};

static struct pair pair[QPS];
static uint8_t target[CARDS][PAGE];
static struct crpc_rdma_mr target_mr[CARDS];

static void
pair_make(uint32_t i, enum card to)
{
	const struct crpc_rdma_qp_conf conf = {
		.id = i, .sq_depth = 16, .rq_depth = 1, .transport = CRPC_RDMA_DC};
	struct pair *p = &pair[i];
	uint8_t addr[2][CRPC_RDMA_ADDR_LEN];

	p->mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p->mem, MAP_FAILED);
	memset(p->mem, (int)i + 1, PAGE);
	assert_int_equal(crpc_rdma_mr_reg(dev[OURS], p->mem, PAGE, &p->mr), 0);
	p->ours = crpc_rdma_qp_create(dev[OURS], &conf);
	p->theirs = crpc_rdma_qp_create(dev[to], &conf);
	assert_non_null(p->ours);
	assert_non_null(p->theirs);
	crpc_rdma_qp_addr(p->ours, addr[0]);
	crpc_rdma_qp_addr(p->theirs, addr[1]);
	assert_int_equal(crpc_rdma_qp_connect(p->ours, addr[1]), 0);
	assert_int_equal(crpc_rdma_qp_connect(p->theirs, addr[0]), 0);
}

/* All on one initiator. */
static void
pairs_open(const enum card to[QPS], uint64_t drain_ns)
{
	now = MS;
	memset(pair, 0, sizeof(pair));
	assert_int_equal(step.start(1), 0);
	for (uint32_t i = 0; i < CARDS; i++) {
		dev[i] = card_open(1, drain_ns);
		assert_int_equal(crpc_rdma_mr_reg(dev[i], target[i], PAGE, &target_mr[i]), 0);
	}
	for (uint32_t i = 0; i < QPS; i++)
		pair_make(i, to[i]);
}

static void
pairs_close(void)
{
	for (uint32_t i = 0; i < QPS; i++) {
		crpc_rdma_qp_free(pair[i].ours);
		crpc_rdma_qp_free(pair[i].theirs);
		crpc_rdma_mr_dereg(dev[OURS], &pair[i].mr);
		munmap(pair[i].mem, PAGE);
	}
	for (uint32_t i = 0; i < CARDS; i++) {
		crpc_rdma_mr_dereg(dev[i], &target_mr[i]);
		crpc_rdma_close(dev[i]);
	}
}

/* n writes with immediate, from the memory of the pair. */
static void
writes(uint32_t i, enum card to, uint32_t n)
{
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM,
		.raddr = (uintptr_t)target[to] + i * 64,
		.rkey = target_mr[to].rkey,
		.num_sge = 1,
		.sge = {{pair[i].mem, 64, pair[i].mr.lkey}}};

	for (; n != 0; n--) {
		wr.imm = pair[i].posted++;
		assert_int_equal(crpc_rdma_post(pair[i].ours, &wr, 1), 1);
	}
}

/* A turn in which the card that is stuck does not poll. */
static void
pairs_turn(void)
{
	struct crpc_rdma_cqe cqe[16];
	uint16_t n = crpc_rdma_poll(dev[OURS], cqe, 16);

	for (uint16_t i = 0; i < n; i++)
		pair[cqe[i].qp_id].errors += cqe[i].type == CRPC_RDMA_CQE_ERROR;
	n = crpc_rdma_poll(dev[ALIVE], cqe, 16);
	for (uint16_t i = 0; i < n; i++) {
		assert_int_equal(cqe[i].type, CRPC_RDMA_CQE_RECV);
		/* Each once, in its order. */
		assert_int_equal(cqe[i].imm, pair[cqe[i].qp_id].arrived++);
	}
	pass();
}

static void
drain(uint32_t i)
{
	uint64_t until = now + 60000 * MS;

	assert_int_equal(crpc_rdma_qp_drain(pair[i].ours), -EAGAIN);
	while (crpc_rdma_qp_drain(pair[i].ours) != 0) {
		assert_true(now < until);
		pairs_turn();
	}
	/* Who touches it from here on ends the program. */
	assert_int_equal(mprotect(pair[i].mem, PAGE, PROT_NONE), 0);
}

static void
settle(uint32_t i)
{
	uint64_t until = now + 20000 * MS;

	while (pair[i].arrived != pair[i].posted) {
		assert_true(now < until);
		pairs_turn();
	}
}

/* The target is dead, and the requests that it will never take lie before and between others'. */
TEST(memory_of_a_dead_target_is_free_after_drain)
{
	const enum card to[QPS] = {DEAD, ALIVE, ALIVE};

	pairs_open(to, 0);
	writes(1, ALIVE, 1);
	pairs_turn();
	card_dies();
	for (uint32_t i = 0; i < 3; i++) {
		writes(0, DEAD, 2);
		writes(1, ALIVE, 1);
		writes(2, ALIVE, 2);
	}
	drain(0);
	settle(1);
	settle(2);
	for (uint32_t i = 0; i < 20000; i++)
		pairs_turn();
	assert_int_equal(pair[0].errors + pair[1].errors + pair[2].errors, 0);
	writes(1, ALIVE, 4);
	settle(1);
	pairs_close();
}

/* Without drain: its region is deregistered, and then its memory goes, in the midst of it. */
TEST(memory_is_free_after_dereg)
{
	const enum card to[QPS] = {DEAD, ALIVE, ALIVE};

	pairs_open(to, 0);
	card_dies();
	for (uint32_t i = 0; i < 3; i++) {
		writes(1, ALIVE, 1);
		writes(0, DEAD, 2);
		writes(2, ALIVE, 2);
	}
	crpc_rdma_qp_free(pair[0].ours);
	pair[0].ours = NULL;
	crpc_rdma_mr_dereg(dev[OURS], &pair[0].mr);
	assert_int_equal(mprotect(pair[0].mem, PAGE, PROT_NONE), 0);
	settle(1);
	settle(2);
	assert_int_equal(pair[0].errors + pair[1].errors + pair[2].errors, 0);
	pairs_close();
}

/*
 * A target that answers but takes nothing is waited for no longer than drain_ns. Pair 0 stands
 * before it and is in the way of pair 1, which is to end: pair 0 breaks, and 2 loses nothing.
 */
TEST(a_stuck_target_is_given_up_in_time)
{
	const enum card to[QPS] = {DEAD, ALIVE, ALIVE};

	pairs_open(to, 30 * MS);
	writes(0, DEAD, 4);
	writes(1, ALIVE, 2);
	writes(2, ALIVE, 2);
	drain(1);
	settle(2);
	assert_int_equal(pair[0].errors != 0, 1);
	assert_int_equal(pair[1].errors + pair[2].errors, 0);
	assert_int_equal(pair[1].arrived, 0);
	writes(2, ALIVE, 3);
	settle(2);
	pairs_close();
}

int
main(void)
{
	crpc_clock_init();
	if (soft_mlx5_step_find(&step) != 0) {
		print_message("skipped: not started by soft-mlx5\n");
		return 77;
	}
	return test_run(NULL, NULL);
}
