/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk transfer on a device and its driver: two objects of one process, every path, several rails,
 * a peer that is killed, a connection that comes back, and how much memory all of it takes. Any
 * RDMA device will do; the tests start it on the software one. Without a device it is skipped.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "bulk_check.h"
#include "bulk_conn.h"
#include "bulk_end.h"
#include "crpc_clock.h"
#include "crpc_mem.h"
#include "device.h"

#define WAIT_NS UINT64_C(30000000000)
#define LEN     (9u * 1000 * 1000 + 1)

static struct bulk_end end[2];
static uint32_t ring_size = 16384;

static void
connect_ends(void)
{
	if (!ends_connect(end))
		fail_msg("%s", crpc_log_last());
}

static void
make_device(struct bulk_end *e)
{
	const struct crpc_copyrpc_conf conf = {.ring_size = ring_size};

	if (!end_device(e, getenv("DEVICE"), &conf))
		fail_msg("%s", crpc_log_last());
}

static void
make_bulk(struct bulk_end *e, const struct crpc_bulk_conf *conf, uint32_t rails)
{
	if (!end_bulk(e, conf, rails))
		fail_msg("%s", crpc_log_last());
}

static void
make(const struct crpc_bulk_conf *conf, uint32_t rails)
{
	for (int i = 0; i < 2; i++) {
		make_device(&end[i]);
		make_bulk(&end[i], conf, rails);
	}
	connect_ends();
}

static void
unmake(void)
{
	end_close(&end[0]);
	end_close(&end[1]);
}

static void
turn(void)
{
	crpc_bulk_progress(end[0].b, crpc_clock_ns());
	crpc_bulk_progress(end[1].b, crpc_clock_ns());
}

/* One message from 0 to 1 of this path; both statuses. */
static void
transfer(const uint8_t *src, uint8_t *dst, uint64_t len, uint32_t flags, int32_t status[2])
{
	uint64_t until = crpc_clock_ns() + WAIT_NS, now = crpc_clock_ns(), req[2];
	struct crpc_bulk_result result;
	bool ended[2] = {false, false};

	assert_int_equal(crpc_bulk_isend(end[0].conn, now, 1, src, len, flags, 0, &req[0]), 0);
	assert_int_equal(crpc_bulk_irecv(end[1].conn, now, 1, dst, len, 0, 0, &req[1]), 0);
	while (!ended[0] || !ended[1]) {
		if (crpc_clock_ns() > until)
			fail_msg("no end");
		turn();
		for (int i = 0; i < 2; i++) {
			if (ended[i] || crpc_bulk_test(end[i].b, req[i], &result) != 0)
				continue;
			ended[i] = true;
			status[i] = result.status;
		}
	}
}

static void
at_rest(void)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;

	while (bulk_check(end[0].b, true) != 0 || bulk_check(end[1].b, true) != 0) {
		if (crpc_clock_ns() > until)
			fail_msg("%s", crpc_log_last());
		turn();
	}
}

static uint8_t *src, *dst;

static void
check_paths(void)
{
	static const uint32_t flags[] = {CRPC_BULK_EAGER, CRPC_BULK_WRITE, CRPC_BULK_READ,
		CRPC_BULK_EAGER | CRPC_BULK_CRC, CRPC_BULK_WRITE | CRPC_BULK_CRC,
		CRPC_BULK_READ | CRPC_BULK_CRC};
	int32_t status[2];

	for (uint32_t i = 0; i < CRPC_DIM(flags); i++) {
		for (uint32_t k = 0; k < LEN; k++)
			src[k] = (uint8_t)(k * 31 + (k >> 9) + i);
		memset(dst, 0xee, LEN);
		transfer(src, dst, LEN - i, flags[i], status);
		if (status[0] != 0 || status[1] != 0)
			fail_msg("flags 0x%x: %d, %d: %s", flags[i], status[0], status[1],
				crpc_log_last());
		assert_memory_equal(src, dst, LEN - i);
	}
}

TEST(every_path_keeps_the_content)
{
	static const struct crpc_bulk_conf confs[] = {{.slots = 0}, {.chunk = 65536, .slots = 4}};

	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t rails = 1; rails <= 3; rails += 2) {
			make(&confs[i], rails);
			check_paths();
			at_rest();
			unmake();
		}
	}
}

/* One end is freed in the middle, queue pairs and all; the other ends, and a new one connects. */
TEST(peer_goes_and_comes_back)
{
	struct crpc_bulk_conf conf = {
		.chunk = 4096, .timeout_ns = 300000000, .confirm_ns = 200000000};
	uint64_t until, req[2];
	struct crpc_bulk_result result;

	for (uint32_t i = 0; i < 3; i++) {
		make(&conf, 2);
		crpc_bulk_isend(end[0].conn, crpc_clock_ns(), 1, src, LEN, CRPC_BULK_EAGER << i, 0,
			&req[0]);
		crpc_bulk_irecv(end[1].conn, crpc_clock_ns(), 1, dst, LEN, 0, 0, &req[1]);
		for (uint32_t k = 0; k < 100; k++)
			turn();
		crpc_bulk_free(end[0].b);
		until = crpc_clock_ns() + WAIT_NS;
		while (crpc_bulk_test(end[1].b, req[1], &result) != 0) {
			assert_true(crpc_clock_ns() < until);
			crpc_bulk_progress(end[1].b, crpc_clock_ns());
		}
		assert_true(result.status == -ETIMEDOUT || result.status == -ECONNRESET);
		memset(dst, 0xee, LEN);
		make_bulk(&end[0], &conf, 2);
		crpc_bulk_conn_shutdown(end[1].conn);
		until = crpc_clock_ns() + WAIT_NS;
		while (crpc_bulk_conn_reset(end[1].conn) != 0) {
			assert_true(crpc_clock_ns() < until);
			turn();
		}
		for (uint32_t k = 0; k < LEN; k++)
			assert_true(dst[k] == 0xee);
		connect_ends();
		check_paths();
		at_rest();
		unmake();
	}
}

/* What a transfer asked of the devices of both ends, without window updates and empty polls. */
struct ledger {
	double doorbells, wqebbs, cqes;
};

static void
ledger_add(struct ledger *l, double sign)
{
	struct crpc_rdma_stats s;

	for (int i = 0; i < 2; i++) {
		crpc_rdma_stats_get(end[i].dev, &s);
		l->doorbells += sign * (double)s.doorbells;
		l->wqebbs += sign * (double)s.wqebbs;
		l->cqes += sign * (double)(s.send_cqes + s.recv_cqes);
	}
}

/*
 * Doorbells, blocks of WQEs and CQEs of both devices per chunk, message and all: counts, so they do
 * not depend on the machine but for how often the ends take turns. A put or get is one of each; an
 * eager chunk has a DATA and its part of a CONSUMED beside it.
 */
TEST(chunks_cost_the_device_little)
{
	static const struct {
		uint32_t path;
		double doorbells, wqebbs, cqes;
	} most[] = {{CRPC_BULK_EAGER, 1.8, 2.5, 2.5}, {CRPC_BULK_WRITE, 1.1, 1.2, 1.1},
		{CRPC_BULK_READ, 1.1, 1.2, 1.1}};
	struct crpc_bulk_conf conf = {.chunk = 4096};
	uint32_t i, chunks = 256;
	struct ledger l;
	int32_t status[2];

	make(&conf, 1);
	for (i = 0; i < CRPC_DIM(most); i++) {
		/* registration and the like are no part of it */
		transfer(src, dst, chunks * 4096, most[i].path, status);
		at_rest();
		l = (struct ledger){0};
		ledger_add(&l, -1);
		transfer(src, dst, chunks * 4096, most[i].path, status);
		ledger_add(&l, 1);
		assert_int_equal(status[1], 0);
		l.doorbells /= chunks;
		l.wqebbs /= chunks;
		l.cqes /= chunks;
		print_message("path %u, per chunk: %.2f doorbells, %.2f WQE blocks, %.2f CQEs\n",
			most[i].path, l.doorbells, l.wqebbs, l.cqes);
		if (l.doorbells > most[i].doorbells || l.wqebbs > most[i].wqebbs ||
			l.cqes > most[i].cqes)
			fail_msg("at most %.2f, %.2f, %.2f are allowed", most[i].doorbells,
				most[i].wqebbs, most[i].cqes);
		/* nor can it be less than the chunks themselves */
		assert_true(l.wqebbs >= 1 && l.doorbells > 0.2);
	}
	at_rest();
	unmake();
}

static void
part_add(const struct crpc_mem_part *part, void *sum)
{
	*(uint64_t *)sum += part->bytes;
}

/* Of this process: what malloc() and crpc_mem_alloc() gave. */
static uint64_t
memory_used(void)
{
	struct mallinfo2 heap = mallinfo2();
	uint64_t sum = heap.uordblks + heap.hblkhd;

	assert_int_equal(crpc_mem_walk(part_add, &sum), 0);
	return sum;
}

/* Beyond the users' buffers a connection takes slots x chunk and less than 1 MiB, its rails with
 * their rings included, and a transfer takes nothing more. */
static void
memory_of(uint32_t rails)
{
	struct crpc_bulk_conf conf = {.slots = 0};
	uint64_t bounce, other, before, made, after;
	int32_t status[2];

	for (int i = 0; i < 2; i++)
		make_device(&end[i]);
	before = memory_used();
	for (int i = 0; i < 2; i++)
		make_bulk(&end[i], &conf, rails);
	connect_ends();
	made = memory_used() - before;
	crpc_bulk_memory(end[0].b, &bounce, &other);
	assert_int_equal(bounce, 16u << 19);
	assert_true(other < 1u << 20);
	print_message(
		"%u rails, per end: %llu KiB, of these bounce memory %llu KiB, ours beside it "
		"%llu KiB\n",
		rails, (unsigned long long)made / 2048, (unsigned long long)bounce / 1024,
		(unsigned long long)other / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(made >= 2 * bounce);
	/* what it says is what there is, but for what the devices have: a queue pair's 64 KiB */
	assert_true(made / 2 >= bounce + other);
	assert_true(made / 2 <= bounce + other + (rails + 2) * 65536);
	assert_true(made / 2 <= bounce + (1u << 20));
#endif
	for (int i = 0; i < 3; i++) {
		transfer(src, dst, LEN, CRPC_BULK_EAGER << i, status);
		assert_int_equal(status[1], 0);
	}
	after = memory_used() - before;
	assert_true(after <= made + 65536);
	unmake();
}

TEST(memory_is_bounded)
{
	memory_of(1);
	memory_of(2);
	memory_of(4);
	ring_size = 4096; /* so many are within the limit with smaller rings */
	memory_of(8);
	ring_size = 16384;
}

/* A write that no key allows: the device breaks the queue pair at both ends. */
static void
rail_fail(int side, uint32_t rail)
{
	static uint8_t bytes[64];
	struct crpc_rdma_mr mr = {.addr = bytes, .len = sizeof(bytes)};

	assert_int_equal(crpc_rdma_mr_reg(end[side].dev, bytes, sizeof(bytes), &mr), 0);
	while (crpc_copyrpc_put(end[side].conn->rail[rail].ep, crpc_clock_ns(), &mr, bytes, 8, 4096,
		       0xdeadbeef, 1) == -EAGAIN)
		turn();
	/* its entry is needed until the rail has broken */
	while (end[side].conn->rail[rail].state == RAIL_UP)
		turn();
	crpc_rdma_mr_dereg(end[side].dev, &mr);
}

/*
 * Queue pairs of the device break in the middle of transfers, also the one of the messages: the
 * others take over, and each comes back and is used again.
 */
TEST(rails_break_and_come_back)
{
	struct crpc_bulk_conf conf = {.chunk = 4096, .rail_retry_ns = 1000000};
	uint64_t until, req[2];
	struct crpc_bulk_result result[2];
	const struct bulk_rail *rail;

	make(&conf, 3);
	for (uint32_t k = 0; k < LEN; k++)
		src[k] = (uint8_t)(k * 7 + (k >> 11));
	for (uint32_t i = 0; i < 6; i++) {
		memset(dst, 0xee, LEN);
		crpc_bulk_isend(end[0].conn, crpc_clock_ns(), 1, src, LEN, CRPC_BULK_EAGER << i % 3,
			0, &req[0]);
		crpc_bulk_irecv(end[1].conn, crpc_clock_ns(), 1, dst, LEN, 0, 0, &req[1]);
		for (uint32_t k = 0; k < 100; k++)
			turn();
		rail_fail((int)(i / 3), i % 2);
		until = crpc_clock_ns() + WAIT_NS;
		for (uint32_t k = 0; k < 2; k++) {
			while (crpc_bulk_test(end[k].b, req[k], &result[k]) != 0) {
				assert_true(crpc_clock_ns() < until);
				turn();
			}
			assert_int_equal(result[k].status, 0);
		}
		assert_memory_equal(src, dst, LEN);
		for (uint32_t k = 0; k < 2; k++) {
			do {
				assert_true(crpc_clock_ns() < until);
				turn();
				rail = &end[k].conn->rail[i % 2];
			} while (rail->state != RAIL_UP || rail->life != i / 2 + 2);
		}
	}
	for (uint32_t k = 0; k < 2; k++) {
		assert_int_equal(end[k].conn->err, 0);
		assert_int_equal(crpc_bulk_stats(end[k].b)->rails_back, 6);
	}
	at_rest();
	unmake();
}

int
main(void)
{
	int rc;

	crpc_clock_init();
	if (device_missing())
		return 77;
	src = malloc(LEN);
	dst = malloc(LEN);
	memset(src, 1, LEN);
	rc = test_run(NULL, NULL);
	free(src);
	free(dst);
	return rc;
}
