/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver on a device, through the public interface only: two contexts of one process, a queue
 * pair between them, and one thread that polls both. Any mlx5 device will do; the tests start it on
 * the software one. Without a device it is skipped. Seeds are printed when a check fails.
 *
 *     test_mlx5_loop [dc]         over reliable or dynamic connections
 *     DEVICE=mlx5_0               which device; default the first
 *     DRIVER=verbs                which driver; default mlx5
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "device_end.h"

#define BUF_LEN (1u << 20)
/* Nothing here takes longer, but the retries to a peer that is gone. */
#define WAIT_NS 10000000000ull

static uint8_t transport; /* Of every queue pair. */
static uint32_t cq_depth; /* Of every device. 0: the default. */

static struct crpc_rdma_qp *
qp_new(struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_rdma_qp_conf with = *conf;

	with.transport = transport;
	return crpc_rdma_qp_create(dev, &with);
}

static void
end_open(struct end *to, const struct crpc_rdma_qp_conf *conf)
{
	/* Each initiator takes an entry of the completion queue. */
	end_device(
		to, &(struct crpc_rdma_conf){.cq_depth = cq_depth, .dcis = cq_depth != 0}, BUF_LEN);
	to->qp = qp_new(to->dev, conf);
	assert_or_log(to->qp != NULL);
}

static void
connect_qps(struct crpc_rdma_qp *a, struct crpc_rdma_qp *b)
{
	uint8_t addr[2][CRPC_RDMA_ADDR_LEN];

	crpc_rdma_qp_addr(a, addr[0]);
	crpc_rdma_qp_addr(b, addr[1]);
	assert_or_log(
		crpc_rdma_qp_connect(a, addr[1]) == 0 && crpc_rdma_qp_connect(b, addr[0]) == 0);
}

static void
pair_open(const struct crpc_rdma_qp_conf *conf)
{
	end_open(&e[0], conf);
	end_open(&e[1], conf);
	connect_qps(e[0].qp, e[1].qp);
}

/* Polls e[who] for one completion while both ends make progress; fails after WAIT_NS. */
static struct crpc_rdma_cqe
wait_one(int who)
{
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_cqe cqe = {0}, other;

	while (crpc_rdma_poll(e[who].dev, &cqe, 1) == 0) {
		if (crpc_rdma_poll(e[!who].dev, &other, 1) != 0)
			fail_msg("end %d got type %u status %d while %d was waited for", !who,
				other.type, other.status, who);
		if (crpc_clock_ns() > end)
			fail_msg("no completion at end %d in %llu ms", who, WAIT_NS / 1000000);
	}
	return cqe;
}

/* Whatever goes in at one end comes out at the other: all ways to send, random sizes and places, in
 * turn from both ends, with the bytes around the target untouched. */
TEST(ping_pong_keeps_data)
{
	const struct crpc_rdma_qp_conf conf = {.id = 3, .sq_depth = 8, .inline_max = 200};
	struct crpc_rdma_cqe cqe;
	struct crpc_rdma_wr wr;
	uint32_t round, len, src, dst;

	seed = 0x5eed0001;
	pair_open(&conf);
	for (round = 0; round < 20000; round++) {
		struct end *a = &e[round & 1];
		struct end *b = &e[!(round & 1)];

		memset(&wr, 0, sizeof(wr));
		wr.flags = CRPC_RDMA_WR_SIGNAL | (rnd_below(&seed, 2) ? CRPC_RDMA_WR_INLINE : 0);
		len = wr.flags & CRPC_RDMA_WR_INLINE
			? rnd_below(&seed, 201)
			: rnd_below(&seed, rnd_below(&seed, 20) ? 4096 : 65536);
		src = rnd_below(&seed, BUF_LEN / 2 - len);
		dst = BUF_LEN / 2 + 1 + rnd_below(&seed, BUF_LEN / 2 - len - 2);
		fill(a->buf + src, len);
		b->buf[dst - 1] = b->buf[dst + len] = 0xa5;
		wr.op = CRPC_RDMA_WRITE_IMM;
		wr.imm = rnd_below(&seed, UINT32_MAX);
		wr.wr_id = round;
		wr.raddr = (uintptr_t)(b->buf + dst);
		wr.rkey = b->mr.rkey;
		wr.num_sge = cut(wr.sge, a->buf + src, len, a->mr.lkey);
		assert_int_equal(crpc_rdma_post(a->qp, &wr, 1), 1);

		if (!wait_type(!(round & 1), CRPC_RDMA_CQE_RECV, WAIT_NS, &cqe) ||
			cqe.imm != wr.imm || cqe.byte_len != len || cqe.qp_id != 3 ||
			memcmp(a->buf + src, b->buf + dst, len) != 0 || b->buf[dst - 1] != 0xa5 ||
			b->buf[dst + len] != 0xa5)
			fail_msg("round %u of seed 0x5eed0001: type %u imm %x/%x len %u/%u", round,
				cqe.type, cqe.imm, wr.imm, cqe.byte_len, len);
	}
}

TEST(read_fetches_what_the_peer_has)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	struct crpc_rdma_cqe cqe;

	seed = 0x5eed0002;
	pair_open(&conf);
	for (uint32_t round = 0; round < 500; round++) {
		uint32_t len = 1 + rnd_below(&seed, round % 10 ? 64 : 50000);

		fill(e[1].buf, len);
		struct crpc_rdma_wr wr = {
			.op = CRPC_RDMA_READ,
			.flags = CRPC_RDMA_WR_SIGNAL,
			.wr_id = round,
			.raddr = (uintptr_t)e[1].buf,
			.rkey = e[1].mr.rkey,
		};
		wr.num_sge = cut(wr.sge, e[0].buf, len, e[0].mr.lkey);
		assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 1);
		cqe = wait_one(0);
		assert_int_equal(cqe.type, CRPC_RDMA_CQE_SEND);
		assert_int_equal(cqe.wr_id, round);
		assert_int_equal(cqe.wrs, 1);
		assert_memory_equal(e[0].buf, e[1].buf, len);
	}
}

/*
 * The send queue fills, takes a short count, wraps many times and loses nothing: every immediate
 * arrives, in order, although none of the sends asks for a completion. Each of the 32 receives is
 * used thousands of times, and the 16-bit record wraps twice (regression: after one queue's worth
 * the refill failed silently and both ends hung).
 */
TEST(full_queues_recover_and_lose_nothing)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1, .sq_depth = 16, .rq_depth = 32};
	struct crpc_rdma_wr wr[40];
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint32_t sent = 0, arrived = 0, shorts = 0, i, n, got;
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_stats stats;

	seed = 0x5eed0003;
	pair_open(&conf);
	while (arrived < 150000) {
		memset(wr, 0, sizeof(wr));
		n = 1 + rnd_below(&seed, 40);
		for (i = 0; i < n; i++) {
			wr[i].op = CRPC_RDMA_WRITE_IMM;
			wr[i].imm = sent + i;
			wr[i].raddr = (uintptr_t)e[1].buf;
			wr[i].rkey = e[1].mr.rkey;
			wr[i].num_sge =
				cut(wr[i].sge, e[0].buf, rnd_below(&seed, 100), e[0].mr.lkey);
		}
		got = crpc_rdma_post(e[0].qp, wr, (uint16_t)n);
		sent += got;
		shorts += got < n;
		assert_int_equal(crpc_rdma_poll(e[0].dev, cqe, CRPC_BURST_MAX), 0);
		n = crpc_rdma_poll(e[1].dev, cqe, CRPC_BURST_MAX);
		for (i = 0; i < n; i++) {
			assert_int_equal(cqe[i].type, CRPC_RDMA_CQE_RECV);
			assert_int_equal(cqe[i].imm, arrived++);
		}
		if (crpc_clock_ns() > end)
			fail_msg("stuck: %u sent, %u arrived", sent, arrived);
	}
	assert_true(shorts > 100);
	crpc_rdma_stats_get(e[1].dev, &stats);
	assert_int_equal(stats.recv_cqes, arrived);
	assert_int_equal(stats.recv_posted, arrived + 32);
}

TEST(counters_are_exact)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1, .sq_depth = 64, .inline_max = 200};
	struct crpc_rdma_wr wr[4] = {{0}};
	struct crpc_rdma_stats s;
	struct crpc_rdma_cqe cqe;

	pair_open(&conf);
	for (int i = 0; i < 4; i++)
		wr[i].op = CRPC_RDMA_WRITE_IMM;
	wr[3].flags = CRPC_RDMA_WR_SIGNAL;
	/* One burst: one doorbell, four WQEs of one block. */
	assert_int_equal(crpc_rdma_post(e[0].qp, wr, 4), 4);
	assert_true(wait_type(0, CRPC_RDMA_CQE_SEND, WAIT_NS, &cqe));
	assert_int_equal(cqe.wrs, 4);
	/* One small WQE of four blocks through the register. */
	wr[3].flags |= CRPC_RDMA_WR_INLINE;
	wr[3].num_sge = 1;
	wr[3].raddr = (uintptr_t)e[1].buf;
	wr[3].rkey = e[1].mr.rkey;
	wr[3].sge[0] = (struct crpc_rdma_sge){.addr = e[0].buf, .len = 200};
	assert_int_equal(crpc_rdma_post(e[0].qp, &wr[3], 1), 1);
	assert_true(wait_type(0, CRPC_RDMA_CQE_SEND, WAIT_NS, &cqe));
	assert_int_equal(cqe.wrs, 1);

	crpc_rdma_stats_get(e[0].dev, &s);
	assert_int_equal(s.doorbells, 2);
	if (s.wqebbs == 8)
		assert_int_equal(s.blueflame, 1);
	assert_int_equal(s.wqes, 5);
	/* A DC WQE holds the peer's address, too, in one of two lengths. */
	if (device_shows_wqes(e[0].dev))
		assert_in_range(s.wqebbs, 8, transport == CRPC_RDMA_DC ? 13 : 8);
	assert_int_equal(s.send_cqes, 2);
	assert_int_equal(s.recv_cqes, 0);
	assert_int_equal(s.error_cqes, 0);
	assert_int_equal(s.recv_posted, 128);
	assert_true(s.empty_polls <= s.polls);
}

/* What is refused, where and why, and that nothing of it arrives. The queue pair takes nothing
 * after it. A WR that cannot be built is not posted at all. */
TEST(refused_request_breaks_the_qp)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	static const struct {
		const char *log;
		int status;
		int64_t off; /* Of the target in the region. */
		uint32_t rkey, lkey;
		uint16_t num_sge;
	} t[] = {
		{"remote access error", -EACCES, 0, 0x5500, 0, 1},
		{"remote access error", -EACCES, BUF_LEN - 63, 0, 0, 1},
		{"remote access error", -EACCES, -1, 0, 0, 1},
		{"local", -EACCES, 0, 0, 0x5500, 1},
		{"", -EINVAL, 0, 0, 0, CRPC_RDMA_SGE_MAX + 1},
	};
	struct crpc_rdma_cqe cqe;

	for (size_t i = 0; i < CRPC_DIM(t); i++) {
		pair_open(&conf);
		memset(e[0].buf, 0xff, 64);
		crpc_log_clear();
		struct crpc_rdma_wr wr = {
			.op = CRPC_RDMA_WRITE_IMM,
			.raddr = (uintptr_t)e[1].buf + (uint64_t)t[i].off,
			.rkey = e[1].mr.rkey ^ t[i].rkey,
			.num_sge = t[i].num_sge,
			.wr_id = 42,
			.sge = {{.addr = e[0].buf, .len = 64, .lkey = e[0].mr.lkey ^ t[i].lkey}},
		};
		assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), t[i].status != -EINVAL);
		assert_true(wait_type(0, CRPC_RDMA_CQE_ERROR, WAIT_NS, &cqe));
		assert_int_equal(cqe.status, t[i].status);
		assert_int_equal(cqe.wr_id, 42);
		assert_int_equal(cqe.wrs, t[i].status != -EINVAL);
		assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 0);
		assert_non_null(strstr(crpc_log_last(), t[i].log));
		assert_int_equal(e[1].buf[BUF_LEN - 1] | e[1].buf[0], 0);
	}
}

/* The peer's queue pair is gone: each send that was outstanding comes back, the first with the
 * cause. */
TEST(freed_peer_gives_an_error_for_each_send)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	struct crpc_rdma_wr wr[3] = {
		{.op = CRPC_RDMA_WRITE_IMM, .wr_id = 0},
		{.op = CRPC_RDMA_WRITE_IMM, .wr_id = 1},
		{.op = CRPC_RDMA_WRITE_IMM, .wr_id = 2},
	};

	pair_open(&conf);
	crpc_rdma_qp_free(e[1].qp);
	e[1].qp = NULL;
	assert_int_equal(crpc_rdma_post(e[0].qp, wr, 3), 3);
	for (uint32_t i = 0; i < 3; i++) {
		struct crpc_rdma_cqe cqe = wait_one(0);

		assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
		assert_int_equal(cqe.status, i == 0 ? -ECONNRESET : -ECANCELED);
		assert_int_equal(cqe.wr_id, i);
		assert_int_equal(cqe.wrs, 1);
	}
}

/* The other process of killed_peer_is_told_as_reset(): connects, and polls until it is killed. */
static void
peer_process(int fd)
{
	const struct crpc_rdma_conf dev_conf = {.device = getenv("DEVICE")};
	const struct crpc_rdma_qp_conf conf = {.id = 2};
	struct crpc_rdma *dev = crpc_rdma_open(&dev_conf);
	struct crpc_rdma_qp *qp = dev != NULL ? qp_new(dev, &conf) : NULL;
	uint8_t addr[CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_cqe cqe;

	if (qp == NULL)
		_exit(1);
	crpc_rdma_qp_addr(qp, addr);
	if (write(fd, addr, sizeof(addr)) != sizeof(addr) ||
		read(fd, addr, sizeof(addr)) != sizeof(addr) ||
		crpc_rdma_qp_connect(qp, addr) != 0 || write(fd, addr, 1) != 1)
		_exit(1);
	for (;;) {
		crpc_rdma_poll(dev, &cqe, 1);
		sched_yield();
	}
}

/* A peer that is killed, and says nothing to anybody, shows as an error of the next send. */
TEST(killed_peer_is_told_as_reset)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM, .flags = CRPC_RDMA_WR_SIGNAL, .wr_id = 8};
	uint8_t addr[CRPC_RDMA_ADDR_LEN];
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_cqe cqe = {0};
	int fd[2];
	pid_t pid;

	if (device_on_paper())
		skip();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fd[0]);
		peer_process(fd[1]);
	}
	close(fd[1]);
	end_open(&e[0], &conf);
	assert_int_equal(read(fd[0], addr, sizeof(addr)), sizeof(addr));
	assert_int_equal(crpc_rdma_qp_connect(e[0].qp, addr), 0);
	crpc_rdma_qp_addr(e[0].qp, addr);
	assert_int_equal(write(fd[0], addr, sizeof(addr)), sizeof(addr));
	assert_int_equal(read(fd[0], addr, 1), 1);
	/* While it lives the other process takes what is sent. */
	assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 1);
	while (crpc_rdma_poll(e[0].dev, &cqe, 1) == 0 && crpc_clock_ns() < end)
		sched_yield();
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_SEND);
	assert_int_equal(cqe.wrs, 1);

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 1);
	while (crpc_rdma_poll(e[0].dev, &cqe, 1) == 0 && crpc_clock_ns() < end)
		sched_yield();
	assert_int_equal(cqe.type, CRPC_RDMA_CQE_ERROR);
	assert_int_equal(cqe.status, -ECONNRESET);
	assert_int_equal(cqe.wr_id, 8);
	close(fd[0]);
}

#define MANY 48

/* Queue pairs come and go on one completion queue while others carry on; completions of a freed one
 * are never taken for another's. */
TEST(queue_pairs_come_and_go)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1000, .sq_depth = 8, .rq_depth = 8};
	struct crpc_rdma_qp_conf many = {.sq_depth = 8, .rq_depth = 8};
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM};
	struct crpc_rdma_qp *qp[2][MANY];
	struct crpc_rdma_cqe cqe;

	seed = 0x5eed0004;
	pair_open(&conf);
	for (uint32_t round = 0; round < 6; round++) {
		uint32_t n = 1 + rnd_below(&seed, MANY);

		for (uint32_t i = 0; i < n; i++) {
			many.id = round * 100 + i;
			qp[0][i] = qp_new(e[0].dev, &many);
			qp[1][i] = qp_new(e[1].dev, &many);
			assert_non_null(qp[0][i]);
			assert_non_null(qp[1][i]);
			connect_qps(qp[0][i], qp[1][i]);
		}
		for (uint32_t i = 0; i < 4 * n; i++) {
			wr.imm = round * 100 + i % n;
			assert_int_equal(crpc_rdma_post(qp[0][i % n], &wr, 1), 1);
			cqe = wait_one(1);
			assert_int_equal(cqe.qp_id, wr.imm);
			assert_int_equal(cqe.imm, wr.imm);
		}
		/* Leave one unread at the far end, free everything: nothing of it is seen. */
		assert_int_equal(crpc_rdma_post(qp[0][0], &wr, 1), 1);
		for (uint32_t i = 0; i < 100; i++) {
			/* Without room for a completion a poll only drives the device. */
			crpc_rdma_poll(e[0].dev, &cqe, 0);
			crpc_rdma_poll(e[1].dev, &cqe, 0);
		}
		for (uint32_t i = 0; i < n; i++) {
			crpc_rdma_qp_free(qp[0][i]);
			crpc_rdma_qp_free(qp[1][i]);
		}
		assert_false(wait_type(1, CRPC_RDMA_CQE_RECV, 1000000, &cqe));
		assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 1);
		assert_int_equal(wait_one(1).qp_id, 1000);
	}
}

/* A queue pair is freed with completions that were not read, and the next one fills as much of the
 * completion queue, which has room for one of them only. */
TEST(unread_completions_take_no_room_of_the_next)
{
	const struct crpc_rdma_qp_conf conf = {.id = 1, .sq_depth = 64, .rq_depth = 62};
	const struct crpc_rdma_qp_conf far = {.id = 2, .sq_depth = 1, .rq_depth = 62};
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM};
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_cqe cqe;
	uint32_t lap, i;

	end_open(&e[0], &conf);
	cq_depth = 64;
	end_open(&e[1], &far);
	cq_depth = 0;
	for (lap = 0; lap < 4; lap++) {
		connect_qps(e[0].qp, e[1].qp);
		for (i = 0; i < 62; i++) {
			wr.imm = lap * 100 + i;
			wr.flags = i == 61 ? CRPC_RDMA_WR_SIGNAL : 0;
			assert_int_equal(crpc_rdma_post(e[0].qp, &wr, 1), 1);
		}
		/* Without room for a completion a poll only drives the device. */
		while (crpc_rdma_poll(e[0].dev, &cqe, 1) == 0 && crpc_clock_ns() < end)
			crpc_rdma_poll(e[1].dev, &cqe, 0);
		assert_int_equal(cqe.type, CRPC_RDMA_CQE_SEND);
		if (lap == 3)
			break;
		crpc_rdma_qp_free(e[0].qp);
		crpc_rdma_qp_free(e[1].qp);
		e[0].qp = qp_new(e[0].dev, &conf);
		e[1].qp = qp_new(e[1].dev, &far);
		assert_non_null(e[0].qp);
		assert_non_null(e[1].qp);
	}
	for (i = 0; i < 62; i++)
		assert_int_equal(wait_one(1).imm, lap * 100 + i);
}

TEST(limits_and_bad_addresses_are_refused)
{
	const struct crpc_rdma_conf none = {.device = "no_such_device"};
	const struct crpc_rdma_conf port = {.device = getenv("DEVICE"), .port = 77};
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	struct crpc_rdma_qp_conf big = {.inline_max = 4096};
	const struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM};
	uint8_t addr[CRPC_RDMA_ADDR_LEN] = {0};
	struct crpc_rdma_info info;
	struct crpc_rdma_qp *qp;

	pair_open(&conf);
	crpc_rdma_info_get(e[0].dev, &info);
	assert_true(info.inline_max >= 200 && info.sge_max >= 4 && info.mtu >= 256);
	assert_null(crpc_rdma_open(&none));
	assert_int_equal(errno, ENODEV);
	assert_non_null(strstr(crpc_log_last(), info.name));
	assert_null(crpc_rdma_open(&port));
	assert_int_equal(errno, EINVAL);

	assert_null(qp_new(e[0].dev, &big));
	assert_int_equal(errno, EINVAL);
	big = (struct crpc_rdma_qp_conf){.sq_depth = 2048, .rq_depth = 2048};
	assert_null(qp_new(e[0].dev, &big));
	assert_int_equal(errno, ENOSPC);

	qp = qp_new(e[0].dev, &conf);
	assert_non_null(qp);
	assert_int_equal(crpc_rdma_post(qp, &wr, 1), 0);
	assert_int_equal(crpc_rdma_qp_connect(qp, addr), -EPROTO);
	crpc_rdma_qp_addr(e[1].qp, addr);
	assert_int_equal(crpc_rdma_qp_connect(e[0].qp, addr), -EISCONN);
	addr[5] ^= 3;
	assert_int_equal(crpc_rdma_qp_connect(qp, addr), -EHOSTUNREACH);
	crpc_rdma_qp_free(qp);
}

int
main(int argc, char **argv)
{
	crpc_clock_init();
	if (device_missing())
		return 77;
	if (argc > 1 && strcmp(argv[1], "dc") == 0)
		transport = CRPC_RDMA_DC;
	return test_run(NULL, pair_end);
}
