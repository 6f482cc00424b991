/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The card in virtual time: each stage adds its latency, or makes the next one wait; and the same
 * seed gives the same times.
 */
#include <errno.h>
#include <string.h>

#include "test.h"
#include "crpc_paper_nic.h"

#define BYTES   65536u
#define DEVICES 3

static struct crpc_paper net;
static struct crpc_paper_time cost;
static struct crpc_rdma *dev[DEVICES];
static struct crpc_rdma_mr mr[DEVICES];
static struct crpc_rdma_qp *qp[DEVICES]; /* Of 1 and 2 the peers are qp[0] and `more`. */
static struct crpc_rdma_qp *more;
static uint8_t mem[DEVICES][BYTES];
static const char *card; /* Of 1 and 2; NULL: each has its own. */
static uint64_t woken;

static void
wake(void *arg, uint64_t now_ns, bool received)
{
	(void)arg;
	woken = now_ns;
}

static void
join(struct crpc_rdma_qp *a, struct crpc_rdma_qp *b)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	crpc_rdma_qp_addr(a, addr);
	assert_int_equal(crpc_rdma_qp_connect(b, addr), 0);
	crpc_rdma_qp_addr(b, addr);
	assert_int_equal(crpc_rdma_qp_connect(a, addr), 0);
}

/* Devices 1 and 2 write to device 0. */
static void
rig_open(uint8_t transport, uint32_t rq_depth)
{
	const struct crpc_rdma_qp_conf conf = {
		.id = 1, .transport = transport, .sq_depth = 64, .rq_depth = rq_depth};

	net = (struct crpc_paper){.rng = 7, .time = &cost};
	for (int i = 0; i < DEVICES; i++) {
		dev[i] = crpc_paper_open(
			&net, &(struct crpc_paper_conf){.dcis = 1, .name = i == 0 ? NULL : card});
		assert_non_null(dev[i]);
		assert_int_equal(crpc_rdma_mr_reg(dev[i], mem[i], BYTES, &mr[i]), 0);
		qp[i] = crpc_rdma_qp_create(dev[i], &conf);
		assert_non_null(qp[i]);
	}
	more = crpc_rdma_qp_create(dev[0], &conf);
	assert_non_null(more);
	join(qp[0], qp[1]);
	join(more, qp[2]);
	crpc_paper_on_cqe(dev[0], wake, NULL);
}

static void
rig_close(void)
{
	crpc_rdma_qp_free(more);
	for (int i = 0; i < DEVICES; i++) {
		crpc_rdma_qp_free(qp[i]);
		crpc_rdma_mr_dereg(dev[i], &mr[i]);
		crpc_rdma_close(dev[i]);
	}
	cost = (struct crpc_paper_time){0};
}

/* n requests of device i with one doorbell; the last one is signalled. */
static void
post(int i, uint8_t op, uint32_t len, uint16_t n)
{
	struct crpc_rdma_wr wr[8] = {0};

	for (uint16_t k = 0; k < n; k++)
		wr[k] = (struct crpc_rdma_wr){.op = op,
			.flags = k + 1 == n ? CRPC_RDMA_WR_SIGNAL : 0,
			.num_sge = len != 0,
			.raddr = (uintptr_t)mem[0],
			.rkey = mr[0].rkey,
			.sge = {{.addr = mem[i], .len = len, .lkey = mr[i].lkey}}};
	assert_int_equal(crpc_rdma_post(qp[i], wr, n), n);
}

/* Completions of a device until a time. */
static uint16_t
cqes(int i, uint64_t until)
{
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];

	crpc_paper_advance(&net, until);
	return crpc_rdma_poll(dev[i], cqe, CRPC_BURST_MAX);
}

/* Latencies add up, and nothing happens before its time. */
static void
test_latency(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.mmio = 100000,
		.fetch = 10000000, /* It came with the doorbell. */
		.qp = 20000,
		.wqe = 3000,
		.read = 300000,
		.send = 200000,
		.propagation = 500000,
		.recv = 7000,
		.recv_queue = 40000,
		.write = 250000,
		.ack = 600000};
	rig_open(CRPC_RDMA_RC, 8);
	net.now_ns = 1000;
	assert_true(crpc_paper_next(&net) == UINT64_MAX);
	memset(mem[1], 5, 8);
	post(1, CRPC_RDMA_WRITE_IMM, 8, 1);
	assert_false(crpc_paper_step(&net));
	assert_int_equal(cqes(0, 1000 + 1419), 0);
	assert_int_equal(mem[0][7], 0);
	assert_int_equal(cqes(0, 1000 + 1420), 1);
	assert_int_equal(mem[0][7], 5);
	assert_int_equal(woken, 1000 + 1420);
	assert_int_equal(cqes(1, 1000 + 2019), 0);
	assert_int_equal(cqes(1, 1000 + 2020), 1);
	assert_true(crpc_paper_next(&net) == UINT64_MAX);
	rig_close();
	memset(mem, 0, sizeof(mem));
}

static uint64_t
clock_of(void *arg)
{
	return *(uint64_t *)arg;
}

/* Requests pass a server one after the other; a doorbell for several has its latency once. */
static void
test_occupancy(void **state)
{
	uint64_t clock = 5000;

	(void)state;
	cost = (struct crpc_paper_time){.fetch = 400000, .doorbell = 50000, .qp = 100000};
	rig_open(CRPC_RDMA_RC, 16);
	net.clock = clock_of;
	net.clock_arg = &clock;
	post(1, CRPC_RDMA_WRITE_IMM, 0, 4);
	assert_int_equal(cqes(0, 5000 + 549), 0);
	assert_int_equal(cqes(0, 5000 + 550), 1);
	assert_int_equal(cqes(0, 5000 + 849), 2);
	assert_int_equal(cqes(0, 5000 + 850), 1);
	rig_close();
}

/* Two senders share the receiver's port, and its device. */
static void
test_incast(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.wire = 1024 * 1000, .recv = 1000};
	rig_open(CRPC_RDMA_RC, 16);
	post(1, CRPC_RDMA_WRITE_IMM, 922, 1); /* 1000 bytes with its head */
	post(2, CRPC_RDMA_WRITE_IMM, 922, 1);
	assert_int_equal(cqes(0, 1001), 1);
	assert_int_equal(cqes(0, 2000), 0);
	assert_int_equal(cqes(0, 2001), 1);
	rig_close();
}

/* Two devices of one name wait for the card that they share; two completion queues do not. */
static void
test_shared_card(void **state)
{
	(void)state;
	for (int shared = 0; shared < 2; shared++) {
		card = shared ? "paper1" : NULL;
		cost = (struct crpc_paper_time){.wqe = 100000};
		rig_open(CRPC_RDMA_RC, 16);
		post(1, CRPC_RDMA_WRITE_IMM, 0, 1);
		post(2, CRPC_RDMA_WRITE_IMM, 0, 1);
		assert_int_equal(cqes(0, 100), shared ? 1 : 2);
		assert_int_equal(cqes(0, 199), 0);
		assert_int_equal(cqes(0, 200), shared ? 1 : 0);
		rig_close();
	}
	card = NULL;
}

/* Messages to two queues of a device pass its completion queue one after the other. */
static void
test_completion_queue(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.recv_queue = 50000, .recv_cq = 100000};
	rig_open(CRPC_RDMA_RC, 16);
	post(1, CRPC_RDMA_WRITE_IMM, 0, 1);
	post(2, CRPC_RDMA_WRITE_IMM, 0, 1);
	assert_int_equal(cqes(0, 149), 0);
	assert_int_equal(cqes(0, 150), 1);
	assert_int_equal(cqes(0, 249), 0);
	assert_int_equal(cqes(0, 250), 1);
	rig_close();
}

/* A READ brings the bytes back over the same wire. */
static void
test_read(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.propagation = 500000, .read = 300000};
	rig_open(CRPC_RDMA_RC, 16);
	memset(mem[0], 9, 8);
	post(1, CRPC_RDMA_READ, 8, 1);
	assert_int_equal(cqes(1, 1299), 0);
	assert_int_equal(cqes(1, 1300), 1);
	assert_int_equal(mem[1][7], 9);
	rig_close();
}

/* Without a receive a request comes again; those behind it keep their order. */
static void
test_retry(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.retry = 1000000};
	rig_open(CRPC_RDMA_RC, 1);
	post(1, CRPC_RDMA_WRITE_IMM, 8, 3);
	assert_int_equal(cqes(0, 10), 1); /* Its receive is posted again by this poll. */
	assert_int_equal(cqes(0, 999), 0);
	assert_int_equal(cqes(0, 1000), 1);
	assert_int_equal(cqes(0, 2000), 1);
	assert_int_equal(cqes(1, 2000), 1);
	assert_int_equal(crpc_paper_counts(dev[1])->retries, 2);
	rig_close();
}

/* An initiator changes its target; a cache of one queue has to fetch each that follows another. */
static void
test_dc_and_cache(void **state)
{
	(void)state;
	cost = (struct crpc_paper_time){.dc_switch = 1000000, .cache = 1, .cache_miss = 50000};
	rig_open(CRPC_RDMA_DC, 16);
	post(1, CRPC_RDMA_WRITE_IMM, 0, 2);
	assert_int_equal(cqes(0, 1099), 0);
	assert_int_equal(cqes(0, 1100), 2);
	assert_int_equal(crpc_paper_counts(dev[1])->dc_switches, 1);
	post(2, CRPC_RDMA_WRITE_IMM, 0, 1);
	assert_int_equal(cqes(0, 10000), 1);
	post(1, CRPC_RDMA_WRITE_IMM, 0, 1);
	assert_int_equal(cqes(0, 20000), 1);
	assert_int_equal(crpc_paper_counts(dev[0])->cache_misses, 3);
	assert_int_equal(crpc_paper_counts(dev[1])->dc_switches, 1);
	rig_close();
}

/* A peer that is gone is noticed after the retries only. */
static void
test_lost(void **state)
{
	struct crpc_rdma_cqe cqe[4];

	(void)state;
	cost = (struct crpc_paper_time){.retry = 100000, .lost = 5000000};
	rig_open(CRPC_RDMA_RC, 16);
	crpc_paper_kill(dev[0]);
	post(1, CRPC_RDMA_WRITE_IMM, 0, 1);
	assert_int_equal(cqes(1, 4999), 0);
	crpc_paper_advance(&net, 5200);
	assert_int_equal(crpc_rdma_poll(dev[1], cqe, 4), 1);
	assert_int_equal(cqe[0].status, -ECONNRESET);
	assert_true(crpc_paper_next(&net) == UINT64_MAX);
	rig_close();
}

/* Datagrams: read when they leave, lost and doubled as the faults say. */
static void
test_datagram(void **state)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .id = 2, .sq_depth = 8, .rq_depth = 8};
	uint8_t addr[CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_wr d = {.op = CRPC_RDMA_SEND_IMM, .num_sge = 1};
	struct crpc_rdma_cqe cqe[8];
	struct crpc_rdma_qp *from, *to;
	struct crpc_rdma_ah *ah;

	(void)state;
	cost = (struct crpc_paper_time){.send = 100000, .propagation = 500000, .write = 200000};
	rig_open(CRPC_RDMA_RC, 8);
	from = crpc_rdma_qp_create(dev[1], &conf);
	to = crpc_rdma_qp_create(dev[0], &conf);
	assert_true(from != NULL && to != NULL);
	crpc_rdma_qp_addr(to, addr);
	ah = crpc_rdma_ah_create(from, addr);
	assert_non_null(ah);
	d.ah = ah;
	d.sge[0] = (struct crpc_rdma_sge){.addr = mem[1], .len = 8, .lkey = mr[1].lkey};
	memset(mem[1], 1, 8);
	assert_int_equal(crpc_rdma_post(from, &d, 1), 1);
	crpc_paper_advance(&net, 100);
	memset(mem[1], 2, 8); /* It has left. */
	assert_int_equal(cqes(0, 799), 0);
	crpc_paper_advance(&net, 800);
	assert_int_equal(crpc_rdma_poll(dev[0], cqe, 8), 1);
	assert_int_equal(((const uint8_t *)cqe[0].data)[7], 1);
	net.drop = CRPC_PAPER_CHANCE;
	assert_int_equal(crpc_rdma_post(from, &d, 1), 1);
	assert_int_equal(cqes(0, 2000), 0);
	assert_int_equal(net.dropped, 1);
	net.drop = 0;
	assert_int_equal(crpc_rdma_post(from, &d, 1), 1); /* Under way at the end. */
	crpc_rdma_ah_free(ah);
	crpc_rdma_qp_free(from);
	crpc_rdma_qp_free(to);
	rig_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_occupancy),
		cmocka_unit_test(test_incast),
		cmocka_unit_test(test_shared_card),
		cmocka_unit_test(test_completion_queue),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_retry),
		cmocka_unit_test(test_dc_and_cache),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_datagram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
