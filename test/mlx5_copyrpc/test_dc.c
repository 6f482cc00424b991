/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic connections: what their queue pairs share must not show. Two contexts of one process and
 * one thread, as test_loop.c, which runs over them, too. Without a device it is skipped. Seeds are
 * printed when a check fails.
 *
 *     DEVICE=mlx5_0               which device; default the first
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "device_end.h"
#include "mlx5_copyrpc.h"

#define PAIRS   24
#define BUF_LEN 65536
#define WAIT_NS 20000000000ull

/* One queue pair of an end, and what a test knows of it. */
struct side {
	struct crpc_rdma_qp *qp;
	uint32_t posted;  /* Sends taken by post. */
	uint32_t retired; /* Of these: reported as done, by wrs. */
	uint32_t arrived; /* At this end. */
	uint32_t errors;  /* CRPC_RDMA_CQE_ERROR. */
	int32_t status;   /* Of the first of them. */
	uint32_t last_id; /* wr_id of the last completion of a send. */
};

static struct side side[2][PAIRS];
static uint64_t drain_ns;     /* 0: the default. */
static uint32_t inline_max = 60;
static uint8_t transport = CRPC_RDMA_DC;
static uint32_t cq_depth = 8192;

/* ---- a device that fails the driver: the linker puts these before the real ones ---- */

int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __real_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
uint16_t __real_crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);
uint16_t __wrap_crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);

static bool no_resets;    /* The device refuses to take a queue pair to RESET. */
static bool no_ends;      /* It refuses to destroy one. */
static uint32_t resets;   /* Those that it did. */
static uint32_t no_flush; /* 1: after the next error it flushes nothing; 2: so it is. */

int
__wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (no_resets && (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET)
		return EIO;
	resets += (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET;
	return __real_ibv_modify_qp(qp, attr, mask);
}

int
__wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	return no_ends ? EBUSY : __real_ibv_destroy_qp(qp);
}

uint16_t
__wrap_crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out)
{
	if (no_flush == 2)
		return 0;
	if (no_flush == 1)
		no_flush = 2;
	return __real_crpc_mlx5_dci_error(dev, dci, cqe, out);
}

static void
qp_make(int who, uint32_t i, uint32_t depth)
{
	const struct crpc_rdma_qp_conf conf = {.id = i,
		.sq_depth = depth,
		.rq_depth = 64,
		.inline_max = inline_max,
		.transport = transport};
	struct side *s = &side[who][i];

	memset(s, 0, sizeof(*s));
	s->qp = crpc_rdma_qp_create(e[who].dev, &conf);
	assert_or_log(s->qp != NULL);
}

static void
qp_connect(uint32_t i)
{
	uint8_t addr[2][CRPC_RDMA_ADDR_LEN];

	for (int who = 0; who < 2; who++)
		crpc_rdma_qp_addr(side[who][i].qp, addr[who]);
	for (int who = 0; who < 2; who++)
		assert_or_log(crpc_rdma_qp_connect(side[who][i].qp, addr[!who]) == 0);
}

static void
teardown(void)
{
	for (uint32_t i = 0; i < 2 * PAIRS; i++)
		crpc_rdma_qp_free(side[i / PAIRS][i % PAIRS].qp);
	memset(side, 0, sizeof(side));
	pair_close();
}

/* `pairs` queue pairs at each end, each connected to its twin, on `dcis` initiators. */
static void
setup(uint32_t pairs, uint32_t dcis, uint32_t depth)
{
	const struct crpc_rdma_conf conf = {.dcis = dcis,
		.cq_depth = cq_depth,
		.drain_ns = drain_ns};

	teardown();
	for (int who = 0; who < 2; who++) {
		end_device(&e[who], &conf, BUF_LEN);
		memset(e[who].buf, who, BUF_LEN);
		for (uint32_t i = 0; i < pairs; i++)
			qp_make(who, i, depth);
	}
	for (uint32_t i = 0; i < pairs; i++)
		qp_connect(i);
}

/* A write with immediate of pair `i`: the immediate is the pair and its number there. */
static uint16_t
send(int who, uint32_t i, uint8_t flags, uint32_t lkey_off)
{
	struct side *s = &side[who][i];
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM,
		.flags = (uint8_t)(flags | (rnd_below(&seed, 2) ? CRPC_RDMA_WR_INLINE : 0)),
		.imm = i << 24 | s->posted,
		.wr_id = s->posted,
		.raddr = (uintptr_t)e[!who].buf + i * 64,
		.rkey = e[!who].mr.rkey,
		.num_sge = 1,
		.sge = {{e[who].buf, 1 + rnd_below(&seed, 60), e[who].mr.lkey + lkey_off}},
	};
	uint16_t n;

	if (lkey_off != 0)
		wr.flags &= (uint8_t)~CRPC_RDMA_WR_INLINE;
	n = crpc_rdma_post(s->qp, &wr, 1);
	s->posted += n;
	return n;
}

static void
take(int who, const struct crpc_rdma_cqe *cqe)
{
	struct side *s = &side[who][cqe->qp_id];

	assert_true(cqe->qp_id < PAIRS);
	switch (cqe->type) {
	case CRPC_RDMA_CQE_RECV:
		/* Each once and in the order of its queue pair. */
		if (cqe->imm != (cqe->qp_id << 24 | s->arrived))
			fail_msg("seed 0x%llx: pair %u got %x, expected %x",
				(unsigned long long)seed, cqe->qp_id, cqe->imm,
				cqe->qp_id << 24 | s->arrived);
		s->arrived++;
		break;
	case CRPC_RDMA_CQE_ERROR:
		if (s->errors++ == 0)
			s->status = cqe->status;
		s->retired += cqe->wrs;
		s->last_id = cqe->wr_id;
		break;
	default:
		s->retired += cqe->wrs;
		/* What it retires goes up to itself, and no further. */
		assert_int_equal(s->retired, cqe->wr_id + 1);
		s->last_id = cqe->wr_id;
	}
}

static void
turn(void)
{
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];

	for (int who = 0; who < 2; who++) {
		uint16_t n = crpc_rdma_poll(e[who].dev, cqe, CRPC_BURST_MAX);

		for (uint16_t i = 0; i < n; i++)
			take(who, &cqe[i]);
	}
}

/* Until everything that pairs [from, to) of both ends sent has arrived. */
static void
settle(uint32_t from, uint32_t to)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t i, open;

	do {
		turn();
		open = 0;
		for (int who = 0; who < 2; who++) {
			for (i = from; i < to; i++)
				open += side[who][i].posted - side[!who][i].arrived;
		}
		if (crpc_clock_ns() > until)
			fail_msg("%u messages of pairs %u to %u never came", open, from, to);
	} while (open != 0);
}

static void
wait_errors(int who, uint32_t i, uint32_t errors)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;

	while (side[who][i].errors < errors) {
		turn();
		if (crpc_clock_ns() > until)
			fail_msg("pair %u: %u errors of %u", i, side[who][i].errors, errors);
	}
}

/* Text of the dump. */
static char *
dump(int who)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(crpc_rdma_dump(e[who].dev, f), 0);
	fclose(f);
	return text;
}

/* 24 pairs on one, on three and on many initiators, both ways, signalled and not, with queues that
 * fill: each message arrives once, in the order of its pair, and completions count the sends of
 * their own pair only. */
TEST(pairs_do_not_mix)
{
	static const uint32_t dcis[] = {1, 3, CRPC_RDMA_DCIS_MAX};
	uint32_t round, k, i, who, shorts = 0;

	for (k = 0; k < CRPC_DIM(dcis); k++) {
		seed = 0x5eed0021 + k;
		setup(PAIRS, dcis[k], 4);
		for (round = 0; round < 20000; round++) {
			who = rnd_below(&seed, 2);
			i = rnd_below(&seed, PAIRS);
			shorts += send((int)who, i, rnd_below(&seed, 4) ? 0 : CRPC_RDMA_WR_SIGNAL,
					  0) == 0;
			if (rnd_below(&seed, 8) == 0)
				turn();
		}
		settle(0, PAIRS);
	}
	assert_true(shorts > 100);
}

/*
 * Signals are asked for per send queue. Each of 24 pairs sends three and waits: if they were
 * counted per pair, none would ever be asked for, and a queue shared by all would fill for good.
 */
TEST(a_shared_queue_never_fills_for_good)
{
	uint32_t round, i, sent = 0;
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_stats s;

	seed = 0x5eed0024;
	setup(PAIRS, 1, 64);
	for (round = 0; sent < 30000; round++) {
		for (i = 0; i < PAIRS; i++)
			sent += send(0, i, 0, 0);
		turn();
		assert_true(crpc_clock_ns() < until);
	}
	settle(0, PAIRS);
	crpc_rdma_stats_get(e[0].dev, &s);
	/* About one in 32, not one in 16 for each pair, nor for each WR. */
	assert_in_range(s.send_cqes, sent / 40, sent / 20);
}

/* Nor where WQEs are as large as they get, so that the initiator's ring is full before as many WRs
 * are posted as it was made for. */
TEST(large_requests_never_fill_a_shared_queue)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE, .flags = CRPC_RDMA_WR_INLINE, .num_sge = 1};
	struct crpc_rdma_info info;
	uint32_t sent = 0;

	inline_max = 400;
	setup(1, 1, 256);
	crpc_rdma_info_get(e[0].dev, &info);
	wr.raddr = (uintptr_t)e[1].buf;
	wr.rkey = e[1].mr.rkey;
	wr.sge[0] = (struct crpc_rdma_sge){e[0].buf, info.inline_max_dc, 0};
	while (sent < 1000) {
		sent += crpc_rdma_post(side[0][0].qp, &wr, 1);
		turn();
		if (crpc_clock_ns() > until)
			fail_msg("stuck after %u", sent);
	}
	teardown();
	inline_max = 60;
}

/* Whose peer is gone breaks alone: all its WRs come back, the first with the cause. What others had
 * behind it on the same initiator was given back too, and still arrives, once. */
TEST(one_broken_peer_breaks_one_pair)
{
	uint32_t round, i, sent;
	char *text;

	seed = 0x5eed0025;
	setup(6, 1, 32);
	for (round = 0; round < 2; round++) {
		crpc_rdma_qp_free(side[1][5].qp);
		side[1][5].qp = NULL;
		for (i = 0; i < 60; i++)
			send(0, i % 6, i % 7 == 0 ? CRPC_RDMA_WR_SIGNAL : 0, 0);
		sent = side[0][5].posted;
		assert_int_equal(sent, round == 0 ? 10 : 11);
		settle(0, 5);
		wait_errors(0, 5, 10);
		assert_int_equal(side[0][5].status, -ECONNRESET);
		assert_int_equal(side[0][5].retired, sent);
		assert_int_equal(side[0][5].last_id, sent - 1);
		assert_int_equal(send(0, 5, 0, 0), 0);
		for (i = 0; i < 5; i++)
			assert_int_equal(side[0][i].errors, 0);
		/* A new one in its place works. */
		crpc_rdma_qp_free(side[0][5].qp);
		qp_make(0, 5, 32);
		qp_make(1, 5, 32);
		qp_connect(5);
		send(0, 5, 0, 0);
		settle(0, 6);
	}
	text = dump(0);
	assert_non_null(strstr(text, " resets 2 "));
	free(text);
}

/* The same for an error of our own side: a key that is none, in the midst of others' WRs. */
TEST(one_bad_key_breaks_one_pair)
{
	uint32_t i, bad;

	seed = 0x5eed0026;
	setup(4, 1, 64);
	for (i = 0; i < 40; i++)
		send(0, i % 4, 0, 0);
	bad = side[0][2].posted;
	assert_int_equal(send(0, 2, 0, 0x5500), 1);
	for (i = 0; i < 40; i++)
		send(0, i % 4, 0, 0);
	wait_errors(0, 2, 1);
	assert_int_equal(side[0][2].status, -EACCES);
	for (i = 0; i < 4; i++) {
		if (i != 2)
			settle(i, i + 1);
	}
	/* What went before it arrived; it and what came behind it did not. */
	assert_int_equal(side[1][2].arrived, bad);
	for (i = 0; i < 4; i++)
		assert_int_equal(side[0][i].errors != 0, i == 2);
}

/* A WR that cannot be built closes its pair, and the initiator goes on for others. */
TEST(a_bad_request_breaks_one_pair)
{
	const struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .num_sge = 5, .wr_id = 7};

	seed = 0x5eed0027;
	setup(3, 1, 8);
	assert_int_equal(crpc_rdma_post(side[0][1].qp, &wr, 1), 0);
	wait_errors(0, 1, 1);
	assert_int_equal(side[0][1].status, -EINVAL);
	assert_int_equal(side[0][1].last_id, 7);
	for (uint32_t i = 0; i < 2000; i++) {
		send(0, i % 2 * 2, 0, 0);
		turn();
	}
	settle(0, 1);
	settle(2, 3);
	/* The peer notices it: its writes find no queue pair. */
	assert_int_equal(send(1, 1, 0, 0), 1);
	wait_errors(1, 1, 1);
	assert_int_equal(side[1][1].status, -ECONNRESET);
}

/* Freed with sends outstanding, alone and beside others on its initiator: the others lose nothing,
 * and nothing of it is reported any more. */
TEST(freed_with_sends_outstanding)
{
	seed = 0x5eed0028;
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t pairs = round % 2 ? 1 : 5;

		setup(pairs, 1, 32);
		for (uint32_t i = 0; i < 5 + rnd_below(&seed, 40); i++)
			send(0, i % pairs, rnd_below(&seed, 3) ? 0 : CRPC_RDMA_WR_SIGNAL, 0);
		crpc_rdma_qp_free(side[0][0].qp);
		memset(&side[0][0], 0, sizeof(side[0][0]));
		settle(1, pairs);
		for (uint32_t i = 0; i < 50; i++)
			turn();
		assert_int_equal(side[0][0].retired, 0);
		/* The initiator is as good as new. */
		crpc_rdma_qp_free(side[1][0].qp);
		qp_make(0, 0, 32);
		qp_make(1, 0, 32);
		qp_connect(0);
		for (uint32_t i = 0; i < 100; i++) {
			send(0, 0, 0, 0);
			turn();
		}
		settle(0, pairs);
	}
}

/* A queue pair is freed while its flushed sends lie unread in the completion queue, which has no
 * room for them and for another one: that one can be made when they were read. */
TEST(flushed_sends_keep_their_room)
{
	const struct crpc_rdma_qp_conf conf = {
		.sq_depth = 32, .rq_depth = 64, .transport = CRPC_RDMA_DC};
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct side *s = &side[0][0];
	struct crpc_rdma_cqe cqe;

	seed = 0x5eed002b;
	cq_depth = 128;
	setup(1, 1, 32);
	cq_depth = 8192;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(send(0, 0, 0, i == 0 ? 0x5500 : 0), 1);
	while (crpc_rdma_poll(e[0].dev, &cqe, 1) == 0 && crpc_clock_ns() < until)
		;
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
	crpc_rdma_qp_free(s->qp);
	s->qp = crpc_rdma_qp_create(e[0].dev, &conf);
	assert_null(s->qp);
	assert_int_equal(errno, ENOSPC);
	while (s->qp == NULL && crpc_clock_ns() < until) {
		assert_int_equal(crpc_rdma_poll(e[0].dev, &cqe, 1), 0);
		s->qp = crpc_rdma_qp_create(e[0].dev, &conf);
	}
	assert_non_null(s->qp);
}

/* A target can be reached before its end has connected. What comes so early waits. */
TEST(an_early_write_waits_for_connect)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	seed = 0x5eed0029;
	setup(1, 2, 8);
	qp_make(0, 1, 8);
	qp_make(1, 1, 8);
	crpc_rdma_qp_addr(side[1][1].qp, addr);
	assert_int_equal(crpc_rdma_qp_connect(side[0][1].qp, addr), 0);
	assert_int_equal(send(0, 1, 0, 0), 1);
	for (uint32_t i = 0; i < 2000; i++)
		turn();
	assert_int_equal(side[1][1].arrived, 0);
	assert_int_equal(side[0][1].errors, 0);
	crpc_rdma_qp_addr(side[0][1].qp, addr);
	assert_int_equal(crpc_rdma_qp_connect(side[1][1].qp, addr), 0);
	settle(1, 2);
}

/* Addresses are of their kind, and a target without its key is closed. */
TEST(keys_and_kinds_are_checked)
{
	const struct crpc_rdma_qp_conf rc_conf = {.id = 9};
	struct crpc_rdma_qp_conf big = {.transport = CRPC_RDMA_DC};
	uint8_t addr[CRPC_RDMA_ADDR_LEN], mtu;
	struct crpc_rdma_info info;
	struct crpc_rdma_qp *rc;

	seed = 0x5eed002a;
	setup(1, 2, 8);
	crpc_rdma_info_get(e[0].dev, &info);
	assert_int_equal(info.inline_max_dc, 512 - 16 - 48 - 16 - 4);
	big.inline_max = info.inline_max_dc + 1;
	assert_null(crpc_rdma_qp_create(e[0].dev, &big));
	assert_int_equal(errno, EINVAL);

	rc = crpc_rdma_qp_create(e[0].dev, &rc_conf);
	assert_non_null(rc);
	qp_make(0, 1, 8);
	crpc_rdma_qp_addr(rc, addr);
	assert_int_equal(crpc_rdma_qp_connect(side[0][1].qp, addr), -EPROTO);
	crpc_rdma_qp_addr(side[1][0].qp, addr);
	assert_int_equal(crpc_rdma_qp_connect(rc, addr), -EPROTO);
	crpc_rdma_qp_free(rc);

	/* Initiators have the MTU of their port: with another one nothing would arrive. */
	mtu = addr[6];
	addr[6] = mtu == IBV_MTU_256 ? IBV_MTU_512 : mtu - 1;
	assert_int_equal(crpc_rdma_qp_connect(side[0][1].qp, addr), -EHOSTUNREACH);
	addr[6] = mtu;
	addr[40] ^= 1;
	assert_int_equal(crpc_rdma_qp_connect(side[0][1].qp, addr), 0);
	assert_int_equal(send(0, 1, 0, 0), 1);
	wait_errors(0, 1, 1);
	assert_int_equal(side[0][1].status, -EACCES);
	assert_int_equal(side[1][0].arrived, 0);
	/* The target and its own peer go on. */
	send(0, 0, 0, 0);
	send(1, 0, 0, 0);
	settle(0, 1);
}

static void
remake(uint32_t i)
{
	crpc_rdma_qp_free(side[0][i].qp);
	crpc_rdma_qp_free(side[1][i].qp);
	qp_make(0, i, 16);
	qp_make(1, i, 16);
	qp_connect(i);
}

/*
 * One thing that may happen to pair `i` of random_breaks(). `gone` peers may still be taken away.
 */
static void
step_random(uint32_t i, uint32_t *gone)
{
	uint32_t what = rnd_below(&seed, 40);

	if (what == 0) {
		send(0, i, 0, 0x5500);
	} else if (what == 1 && *gone != 0) {
		--*gone;
		crpc_rdma_qp_free(side[1][i].qp);
		side[1][i].qp = NULL;
		send(0, i, 0, 0);
	} else if (what == 2) {
		remake(i);
	} else {
		send(0, i, rnd_below(&seed, 4) ? 0 : CRPC_RDMA_WR_SIGNAL, 0);
	}
	if (side[0][i].errors != 0)
		remake(i);
	if (rnd_below(&seed, 6) == 0)
		turn();
}

/* Everything goes wrong at random: pairs break by every kind of error and are remade, with sends
 * outstanding or not, while the others carry on. Nothing is lost, doubled or out of order on those
 * that did not break, and of those that did each send is reported. */
TEST(random_breaks)
{
	const uint32_t pairs = 8;
	uint32_t round, i, step, gone, open;
	uint64_t until, first;

	for (round = 0; round < 16; round++) {
		first = seed = 0x5eed1000 + round * 7919;
		/* Each costs the time of all retries. */
		gone = round < 2;
		setup(pairs, 1 + rnd_below(&seed, 2), 16);
		for (step = 0; step < 150; step++)
			step_random(rnd_below(&seed, pairs), &gone);
		until = crpc_clock_ns() + WAIT_NS;
		do {
			turn();
			for (open = 0, i = 0; i < pairs; i++) {
				const struct side *s = &side[0][i];

				open += s->errors == 0 ? s->posted - side[1][i].arrived
						       : s->posted - s->retired;
			}
			if (crpc_clock_ns() > until)
				fail_msg("seed 0x%llx: %u sends are neither done nor lost",
					(unsigned long long)first, open);
		} while (open != 0);
	}
}

/* Every pair of end 0 breaks, each at the latest when it sends; then each is made again. */
static void
all_break_and_come_again(uint32_t pairs)
{
	for (uint32_t i = 0; i < pairs; i++) {
		if (side[0][i].errors == 0)
			assert_int_equal(send(0, i, 0, 0), 0);
		wait_errors(0, i, 1);
		assert_int_equal(send(0, i, 0, 0), 0);
	}
	for (uint32_t i = 0; i < pairs; i++)
		assert_int_equal(side[0][i].status, i == 2 ? -EACCES : -EIO);
	no_resets = false;
	for (uint32_t i = 0; i < pairs; i++)
		remake(i);
	for (uint32_t i = 0; i < 200; i++) {
		send(0, i % pairs, 0, 0);
		turn();
	}
	settle(0, pairs);
	for (uint32_t i = 0; i < pairs; i++)
		assert_int_equal(side[0][i].errors, 0);
}

/*
 * The device does not take the only initiator out of its error. Pairs with and without something
 * outstanding break, as nothing would ever leave them. New ones have an initiator again.
 */
TEST(an_initiator_that_fails_for_good_is_replaced)
{
	seed = 0x5eed002b;
	setup(4, 1, 64);
	for (uint32_t round = 0; round < 3; round++) {
		no_resets = true;
		resets = 0;
		assert_int_equal(send(0, 2, 0, 0x5500), 1);
		send(0, 1, 0, 0);
		wait_errors(0, 2, 1);
		assert_int_equal(resets, 0);
		all_break_and_come_again(4);
	}
}

/*
 * The device stops at an error, and gives nothing back that was behind it: nothing of that was
 * sent, so others' are posted again, long before the time that a target has.
 */
TEST(a_flush_without_completions_ends_soon)
{
	uint64_t start;

	seed = 0x5eed002c;
	for (uint32_t round = 0; round < 4; round++) {
		setup(4, 1, 64);
		start = crpc_clock_ns();
		no_flush = 1;
		assert_int_equal(send(0, 2, 0, 0x5500), 1);
		for (uint32_t i = 0; i < 20; i++)
			assert_int_equal(send(0, i % 4, 0, 0), 1);
		wait_errors(0, 2, 1);
		assert_int_equal(side[0][2].status, -EACCES);
		settle(0, 2);
		settle(3, 4);
		assert_in_range(crpc_clock_ns() - start, 0, UINT64_C(3000000000));
		no_flush = 0;
		/* Nothing that it had outstanding waits: it can end. */
		assert_int_equal(crpc_rdma_qp_drain(side[0][2].qp), 0);
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(side[0][i].errors != 0, i == 2);
	}
}

/* Of two initiators one is given up: its pairs break, and others go on with what is left. */
TEST(one_of_two_initiators_is_enough)
{
	uint32_t i, broken = 0;

	seed = 0x5eed002d;
	setup(4, 2, 64);
	no_resets = true;
	assert_int_equal(send(0, 2, 0, 0x5500), 1);
	wait_errors(0, 2, 1);
	no_resets = false;
	for (i = 0; i < 400; i++) {
		send(0, i % 4 == 2 ? 3 : i % 4, 0, 0);
		turn();
	}
	settle(0, 2);
	settle(3, 4);
	for (i = 0; i < 4; i++)
		broken += side[0][i].errors != 0;
	assert_int_equal(broken, 1);
}

/*
 * A queue pair that the device does not destroy receives on: nothing of that is reported, although
 * another one may have its number by now. It is destroyed when the device is closed. The same of a
 * target that was drained, and not freed yet.
 */
TEST(what_the_device_keeps_reports_nothing)
{
	struct side *s = &side[1][0];

	seed = 0x5eed002e;
	for (uint32_t k = 0; k < 3; k++) {
		transport = k == 0 ? CRPC_RDMA_RC : CRPC_RDMA_DC;
		setup(2, 1, 8);
		no_ends = true;
		if (k == 2)
			assert_int_equal(crpc_rdma_qp_drain(s->qp), 0);
		else
			crpc_rdma_qp_free(s->qp);
		no_ends = false;
		s->qp = k == 2 ? s->qp : NULL;
		for (uint32_t i = 0; i < 8; i++)
			send(0, 0, 0, 0);
		for (uint32_t i = 0; i < 2000; i++)
			turn();
		assert_int_equal(s->arrived + s->errors, 0);
		send(0, 1, 0, 0);
		settle(1, 2);
	}
}

/* A queue pair that broke before its connection stays so. */
TEST(broken_before_connect_stays_broken)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	seed = 0x5eed0030;
	setup(1, 1, 8);
	qp_make(0, 1, 8);
	crpc_ib_fault((struct crpc_ib_qp *)(void *)side[0][1].qp, -EIO, 0, "a test says so");
	wait_errors(0, 1, 1);
	crpc_rdma_qp_addr(side[1][0].qp, addr);
	assert_int_equal(crpc_rdma_qp_connect(side[0][1].qp, addr), -EIO);
	assert_int_equal(send(0, 1, 0, 0), 0);
}

static int
end_all(void **state)
{
	teardown();
	return 0;
}

static int
dc_missing(void)
{
	const struct crpc_rdma_conf conf = {.device = getenv("DEVICE")};
	const struct crpc_rdma_qp_conf qp_conf = {.transport = CRPC_RDMA_DC};
	struct crpc_rdma *dev = crpc_rdma_open(&conf);
	struct crpc_rdma_qp *qp = dev != NULL ? crpc_rdma_qp_create(dev, &qp_conf) : NULL;

	if (qp == NULL)
		fprintf(stderr, "skipped: %s\n", crpc_log_last());
	crpc_rdma_qp_free(qp);
	crpc_rdma_close(dev);
	return qp == NULL;
}

int
main(void)
{
	crpc_clock_init();
	if (dc_missing())
		return 77;
	return test_run(NULL, end_all);
}
