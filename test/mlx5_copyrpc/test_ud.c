/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams on a device, through the public interface only: two contexts of one process and one
 * thread that polls both, as test_loop.c. Without a device it is skipped.
 *
 *     DEVICE=mlx5_0               which device; default the first
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "device_end.h"

#define BUF_LEN 65536
#define WAIT_NS 30000000000ull
/* Long enough for what may still be on its way between two contexts that are polled. */
#define QUIET_POLLS 1000

static uint32_t mtu; /* Of the device opened last. */

static void
end_open(struct end *to, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_rdma_info info;

	end_device(to, &(struct crpc_rdma_conf){0}, BUF_LEN);
	crpc_rdma_info_get(to->dev, &info);
	mtu = info.mtu;
	fill(to->buf, BUF_LEN);
	to->ud = crpc_rdma_qp_create(to->dev, conf);
	assert_or_log(to->ud != NULL);
}

static void
pair_open(const struct crpc_rdma_qp_conf *conf)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	end_open(&e[0], conf);
	end_open(&e[1], conf);
	for (int i = 0; i < 2; i++) {
		crpc_rdma_qp_addr(e[!i].ud, addr);
		e[i].ah = crpc_rdma_ah_create(e[i].ud, addr);
		assert_or_log(e[i].ah != NULL);
	}
}

/* A datagram of `len` bytes of the region, cut into elements. */
static void
dgram_cut(struct crpc_rdma_wr *d, const struct end *from, uint32_t len)
{
	d->num_sge = cut(d->sge, from->buf + rnd_below(&seed, BUF_LEN - len), len, from->mr.lkey);
}

/* Whatever goes in at one end comes out at the other, inline and gathered, up to one MTU, with its
 * length, its immediate and its queue's number. The queues go round many times. */
TEST(datagrams_keep_their_data)
{
	const struct crpc_rdma_qp_conf conf = {.transport = CRPC_RDMA_UD,
		.id = 7,
		.sq_depth = 16,
		.rq_depth = 33,
		.inline_max = 100};
	struct crpc_rdma_wr d;
	struct crpc_rdma_cqe cqe;
	uint32_t round, len;

	seed = 0x5eed0011;
	pair_open(&conf);
	for (round = 0; round < 20000; round++) {
		struct end *a = &e[round & 1];

		d = (struct crpc_rdma_wr){.op = CRPC_RDMA_SEND_IMM, .ah = a->ah};
		d.flags = rnd_below(&seed, 2) ? CRPC_RDMA_WR_INLINE : 0;
		len = d.flags & CRPC_RDMA_WR_INLINE
			? rnd_below(&seed, 101)
			: rnd_below(&seed, rnd_below(&seed, 20) ? 256 : mtu + 1);
		d.imm = rnd_below(&seed, UINT32_MAX);
		dgram_cut(&d, a, len);
		assert_int_equal(crpc_rdma_post(a->ud, &d, 1), 1);
		if (!wait_type(!(round & 1), CRPC_RDMA_CQE_DGRAM, WAIT_NS, &cqe) ||
			cqe.imm != d.imm || cqe.byte_len != len || cqe.qp_id != 7 ||
			memcmp(cqe.data, d.sge[0].addr, len) != 0)
			fail_msg("round %u of seed 0x5eed0011: type %u imm %x/%x len %u/%u", round,
				cqe.type, cqe.imm, d.imm, cqe.byte_len, len);
		assert_int_equal((uintptr_t)cqe.data % 64, 0);
	}
}

/* Bursts both ways. A receiver that polls often enough misses nothing, the immediates come in
 * order, and every buffer is handed back: the queue of 32 is used thousands of times. */
TEST(bursts_arrive_in_order)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .id = 1, .sq_depth = 32, .rq_depth = 32};
	struct crpc_rdma_wr d[8] = {{0}};
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	uint32_t sent[2] = {0}, arrived[2] = {0}, who, i, n;
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_stats s;

	seed = 0x5eed0012;
	pair_open(&conf);
	for (who = 0; arrived[0] + arrived[1] < 200000; who = !who) {
		for (i = 0; i < 8; i++) {
			d[i].op = CRPC_RDMA_SEND_IMM;
			d[i].ah = e[who].ah;
			d[i].imm = sent[who] + i;
			dgram_cut(&d[i], &e[who], rnd_below(&seed, 64));
		}
		/* Never more on the way than the receiver has buffers: not even those it holds. */
		n = (uint32_t)crpc_min(
			1 + rnd_below(&seed, 8), (uint64_t)24 - (sent[who] - arrived[!who]));
		i = crpc_rdma_post(e[who].ud, d, (uint16_t)n);
		sent[who] += i;
		n = crpc_rdma_poll(e[who].dev, cqe, (uint16_t)(1 + rnd_below(&seed, 8)));
		for (i = 0; i < n; i++) {
			assert_int_equal(cqe[i].type, CRPC_RDMA_CQE_DGRAM);
			assert_int_equal(cqe[i].imm, arrived[who]++);
		}
		if (crpc_clock_ns() > end)
			fail_msg("stuck: sent %u, %u, arrived %u, %u", sent[0], sent[1], arrived[1],
				arrived[0]);
	}
	crpc_rdma_poll(e[0].dev, cqe, 0); /* Hands the last ones back. */
	crpc_rdma_stats_get(e[0].dev, &s);
	assert_int_equal(s.recv_cqes, arrived[0]);
	assert_int_equal(s.recv_posted, arrived[0] + 32);
	assert_int_equal(s.error_cqes, 0);
}

/*
 * Far more is sent than the receiver has buffers for. What it took stays as it was until its next
 * poll, whatever comes meanwhile; what it had no buffer for is lost, and nothing else: sends
 * complete, what arrives is whole and in order, and it goes on.
 */
TEST(lent_buffers_stay_and_what_has_none_is_lost)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .id = 1, .sq_depth = 64, .rq_depth = 4};
	struct crpc_rdma_wr d = {
		.op = CRPC_RDMA_SEND_IMM, .num_sge = 1, .flags = CRPC_RDMA_WR_SIGNAL};
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX], sent;
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t round, i, n, next = 0, posted = 0, done = 0;

	seed = 0x5eed0013;
	pair_open(&conf);
	d.ah = e[0].ah;
	d.sge[0] = (struct crpc_rdma_sge){.len = 50, .lkey = e[0].mr.lkey};
	for (round = 0; round < 50; round++) {
		do {
			if (done == posted) {
				d.imm = posted++;
				d.sge[0].addr = e[0].buf + d.imm % 1000 * 50;
				assert_int_equal(crpc_rdma_post(e[0].ud, &d, 1), 1);
			}
			done += crpc_rdma_poll(e[0].dev, &sent, 1);
			n = crpc_rdma_poll(e[1].dev, cqe, CRPC_BURST_MAX);
			assert_true(crpc_clock_ns() < until);
		} while (n == 0);
		/* While these are borrowed, eight more, for at most three buffers. */
		for (i = 0; i < 8; i++) {
			d.imm = posted++;
			d.sge[0].addr = e[0].buf + d.imm % 1000 * 50;
			assert_int_equal(crpc_rdma_post(e[0].ud, &d, 1), 1);
		}
		while (done < posted) {
			done += crpc_rdma_poll(e[0].dev, &sent, 1);
			assert_true(crpc_clock_ns() < until);
		}
		for (i = 0; i < n; i++) {
			assert_true(cqe[i].imm >= next && cqe[i].imm < posted);
			next = cqe[i].imm + 1;
			assert_memory_equal(cqe[i].data, e[0].buf + cqe[i].imm % 1000 * 50, 50);
		}
	}
	d.imm = UINT32_MAX;
	do {
		crpc_rdma_post(e[0].ud, &d, 1);
		crpc_rdma_poll(e[0].dev, &sent, 1);
		n = crpc_rdma_poll(e[1].dev, cqe, 1);
		assert_true(crpc_clock_ns() < until);
	} while (n == 0 || cqe[0].imm != UINT32_MAX);
}

/* Completions of sends are those of a queue pair: a signalled one retires those before it, and a
 * queue without signalled sends makes room by itself. One burst is one doorbell. */
TEST(sends_are_accounted_for)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .id = 9, .sq_depth = 16, .inline_max = 64};
	struct crpc_rdma_wr d[32] = {{0}};
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_cqe cqe;
	struct crpc_rdma_stats s;
	uint32_t i, sent = 0;

	seed = 0x5eed0014;
	pair_open(&conf);
	for (i = 0; i < 32; i++)
		d[i] = (struct crpc_rdma_wr){.op = CRPC_RDMA_SEND_IMM, .ah = e[0].ah};
	d[4].flags = CRPC_RDMA_WR_SIGNAL;
	d[4].wr_id = 1234;
	assert_int_equal(crpc_rdma_post(e[0].ud, d, 5), 5);
	assert_true(wait_type(0, CRPC_RDMA_CQE_SEND, WAIT_NS, &cqe));
	assert_int_equal(cqe.wr_id, 1234);
	assert_int_equal(cqe.wrs, 5);
	assert_int_equal(cqe.qp_id, 9);
	crpc_rdma_stats_get(e[0].dev, &s);
	assert_int_equal(s.doorbells, 1);
	assert_int_equal(s.wqes, 5);
	if (device_shows_wqes(e[0].dev))
		assert_int_equal(
			s.wqebbs, 5); /* Without payload: control and address, one block. */

	d[0].flags = CRPC_RDMA_WR_INLINE;
	d[0].num_sge = 1;
	d[0].sge[0] = (struct crpc_rdma_sge){.addr = e[0].buf, .len = 60};
	assert_int_equal(crpc_rdma_post(e[0].ud, d, 1), 1);
	crpc_rdma_stats_get(e[0].dev, &s);
	if (device_shows_wqes(e[0].dev)) {
		assert_int_equal(s.blueflame, 1);
		assert_int_equal(s.wqebbs, 7);
	}
	d[4].flags = 0;
	while (sent < 5000) {
		sent += crpc_rdma_post(e[0].ud, d, 32);
		crpc_rdma_poll(e[0].dev, &cqe, 0);
		crpc_rdma_poll(e[0].dev, &cqe, 1);
		crpc_rdma_poll(e[1].dev, &cqe, 1);
		assert_true(crpc_clock_ns() < until);
	}
}

static void
expect_fault(const struct crpc_rdma_wr *d, int status)
{
	struct crpc_rdma_cqe cqe;
	uint16_t n = crpc_rdma_post(e[0].ud, d, 1);

	assert_int_equal(n, status == -EINVAL ? 0 : 1);
	assert_true(wait_type(0, CRPC_RDMA_CQE_ERROR, WAIT_NS, &cqe));
	assert_int_equal(cqe.status, status);
	assert_int_equal(cqe.wr_id, d->wr_id);
	assert_int_equal(cqe.qp_id, 3);
	assert_int_equal(crpc_rdma_post(e[0].ud, d, 1), 0);
}

/* What cannot be built, and what the device refuses, closes the queue pair and is reported. */
TEST(errors_are_told)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .id = 3, .inline_max = 32};
	struct crpc_rdma_wr d[5] = {
		{.wr_id = 1},
		{.wr_id = 2, .num_sge = CRPC_RDMA_SGE_MAX + 1},
		{.wr_id = 3, .num_sge = 1},
		{.wr_id = 4, .num_sge = 1},
		{.wr_id = 5, .num_sge = 1},
	};

	seed = 0x5eed0015;
	for (int i = 0; i < 5; i++) {
		pair_open(&conf);
		if (i != 0)
			d[i].ah = e[0].ah;
		if (i != 4)
			d[i].op = CRPC_RDMA_SEND_IMM;
		/* One byte more than a datagram can have; a key that is none; a write. */
		d[i].sge[0] = (struct crpc_rdma_sge){
			e[0].buf, i == 2 ? mtu + 1 : 10, e[0].mr.lkey ^ (i == 3 ? 0x5500 : 0)};
		expect_fault(&d[i], i == 3 ? -EACCES : -EINVAL);
	}
}

/* Addresses of other kinds and damaged ones are refused; a datagram with another queue's key is not
 * taken, and neither end hears of it. */
TEST(addresses_are_checked)
{
	const struct crpc_rdma_qp_conf conf = {.transport = CRPC_RDMA_UD, .id = 3};
	const struct crpc_rdma_qp_conf qp_conf = {.id = 4};
	uint8_t addr[CRPC_RDMA_ADDR_LEN], other[CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_wr d = {.op = CRPC_RDMA_SEND_IMM};
	struct crpc_rdma_ah *wrong;
	struct crpc_rdma_cqe cqe;
	struct crpc_rdma_qp *qp;
	uint32_t i, got = 0;

	seed = 0x5eed0016;
	pair_open(&conf);
	qp = crpc_rdma_qp_create(e[1].dev, &qp_conf);
	assert_non_null(qp);
	crpc_rdma_qp_addr(qp, other);
	assert_null(crpc_rdma_ah_create(e[0].ud, other));
	assert_int_equal(errno, EPROTO);
	crpc_rdma_qp_addr(e[1].ud, addr);
	assert_int_equal(crpc_rdma_qp_connect(qp, addr), -EPROTO);
	crpc_rdma_qp_free(qp);
	addr[5] ^= 3;
	assert_null(crpc_rdma_ah_create(e[0].ud, addr));
	assert_int_equal(errno, EHOSTUNREACH);
	addr[5] ^= 3;

	addr[40] ^= 1;
	wrong = crpc_rdma_ah_create(e[0].ud, addr);
	assert_non_null(wrong);
	d.ah = wrong;
	d.flags = CRPC_RDMA_WR_SIGNAL;
	assert_int_equal(crpc_rdma_post(e[0].ud, &d, 1), 1);
	assert_true(wait_type(0, CRPC_RDMA_CQE_SEND, WAIT_NS, &cqe));
	for (i = 0; i < QUIET_POLLS; i++) {
		got += crpc_rdma_poll(e[1].dev, &cqe, 1);
		got += crpc_rdma_poll(e[0].dev, &cqe, 1);
	}
	assert_int_equal(got, 0);
	crpc_rdma_ah_free(wrong);
}

/* Limits are reported before anything is made, and a freed queue's completions are dropped. */
TEST(limits_and_frees)
{
	const struct crpc_rdma_qp_conf conf = {.transport = CRPC_RDMA_UD, .id = 3};
	struct crpc_rdma_qp_conf big = {.transport = CRPC_RDMA_UD, .inline_max = 4096};
	struct crpc_rdma_wr d = {.op = CRPC_RDMA_SEND_IMM, .flags = CRPC_RDMA_WR_SIGNAL};
	struct crpc_rdma_cqe cqe;

	seed = 0x5eed0017;
	pair_open(&conf);
	assert_null(crpc_rdma_qp_create(e[0].dev, &big));
	assert_int_equal(errno, EINVAL);
	big = (struct crpc_rdma_qp_conf){
		.transport = CRPC_RDMA_UD, .sq_depth = 2048, .rq_depth = 2048};
	assert_null(crpc_rdma_qp_create(e[0].dev, &big));
	assert_int_equal(errno, ENOSPC);
	d.ah = e[0].ah;
	for (uint32_t i = 0; i < 50; i++) {
		struct crpc_rdma_qp *ud = crpc_rdma_qp_create(e[0].dev, &conf);

		assert_non_null(ud);
		assert_int_equal(crpc_rdma_post(ud, &d, 1), 1);
		crpc_rdma_poll(e[0].dev, &cqe, 0);
		crpc_rdma_qp_free(ud);
	}
	/* One that was received and is still held. */
	d.ah = e[1].ah;
	assert_int_equal(crpc_rdma_post(e[1].ud, &d, 1), 1);
	assert_true(wait_type(0, CRPC_RDMA_CQE_DGRAM, WAIT_NS, &cqe));
	crpc_rdma_ah_free(e[0].ah);
	crpc_rdma_qp_free(e[0].ud);
	e[0].ah = NULL;
	e[0].ud = NULL;
	assert_int_equal(crpc_rdma_poll(e[0].dev, &cqe, 1), 0);
}

int
main(void)
{
	crpc_clock_init();
	if (device_missing())
		return 77;
	return test_run(NULL, pair_end);
}
