/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNPACK_BENCH_H
#define UNPACK_BENCH_H

/**
 * @file
 * What the tests of every engine on a device have in common: jobs whose bytes are compared with
 * those of the cpu engine, jobs that are given up, and a transfer by bulk that unpacks through the
 * engine. Include it after test.h; ENGINE, defined before, is its name. DEVICE_MEMORY is 1 if the
 * destination may be in the device's memory, that of crpc_unpack_gpudev_alloc().
 */

#include <unistd.h>

#include "bulk_rig.h"
#include "crpc_clock.h"
#include "rnd.h"

#define WAIT_NS UINT64_C(60000000000)
#define LEN     300000u
#define PIECE   9000u
#define JOBS    8u
#define DESCS   4u

static uint64_t rng;

static inline int
job_wait(struct crpc_unpack *u, uint64_t job)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	int rc;

	crpc_unpack_kick(u);
	while ((rc = crpc_unpack_done(u, job)) == -EAGAIN) {
		assert_true(crpc_clock_ns() < until);
		usleep(10);
	}
	return rc;
}

static inline int
job_run(struct crpc_unpack *u, struct crpc_unpack_desc desc)
{
	uint64_t job;

	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job), 0);
	return job_wait(u, job);
}

/* An engine with two buffers that it knows, one of them on the device if asked for. */
struct bench {
	struct crpc_unpack *u, *cpu;
	uint8_t *src, *dst, *have, *want;
	bool device, converts;
};

static inline void
bench_make(struct bench *b, uint32_t max_jobs, bool device)
{
	const struct crpc_unpack_conf conf = {.max_jobs = max_jobs};

	*b = (struct bench){.u = crpc_unpack_create(ENGINE, &conf), .device = device};
	b->cpu = crpc_unpack_create("cpu", NULL);
	b->src = aligned_alloc(4096, 4096 * (LEN / 4096 + 1));
	b->have = aligned_alloc(4096, 4096 * (LEN / 4096 + 1));
	b->want = malloc(LEN);
	b->dst = b->have;
#if DEVICE_MEMORY
	if (device)
		b->dst = crpc_unpack_gpudev_alloc(NULL, LEN);
#endif
	assert_true(b->u != NULL && b->cpu != NULL && b->src != NULL && b->dst != NULL &&
		b->have != NULL && b->want != NULL);
	b->converts = (crpc_unpack_engine(b->u)->flags & CRPC_UNPACK_CAN_CONVERT) != 0;
	assert_int_equal(crpc_unpack_attach(b->u, b->src, LEN), 0);
	assert_int_equal(crpc_unpack_attach(b->u, b->dst, LEN), 0);
}

static inline void
bench_free(struct bench *b)
{
	crpc_unpack_detach(b->u, b->src);
	crpc_unpack_detach(b->u, b->dst);
	crpc_unpack_free(b->u);
	crpc_unpack_free(b->cpu);
#if DEVICE_MEMORY
	if (b->device)
		crpc_unpack_gpudev_free(NULL, b->dst);
#endif
	free(b->src);
	free(b->have);
	free(b->want);
#ifdef FAKE
	assert_int_equal(fake_cuda_left(), 0);
#endif
}

/* All of dst is 0x5a, and of want. */
static inline void
bench_clear(struct bench *b)
{
	memset(b->src, 0x5a, LEN);
	memset(b->want, 0x5a, LEN);
	assert_int_equal(job_run(b->u, (struct crpc_unpack_desc){b->src, b->dst, LEN, 0}), 0);
	buf_fill(b->src, LEN, rng);
}

static inline void
bench_compare(struct bench *b)
{
#if DEVICE_MEMORY
	if (b->device)
		assert_int_equal(crpc_unpack_gpudev_read(NULL, b->have, b->dst, LEN), 0);
#endif
	assert_memory_equal(b->have, b->want, LEN);
}

/*
 * A piece of any op, length and alignment into the at-th part of dst; the cpu engine does it too.
 */
static inline struct crpc_unpack_desc
piece(struct bench *b, uint32_t at)
{
	uint32_t op = b->converts ? rnd_below(&rng, CRPC_UNPACK_OPS) : CRPC_UNPACK_COPY;
	uint32_t elem = crpc_unpack_elem(op, true);
	uint32_t to = at * PIECE + rnd_below(&rng, 40) * crpc_unpack_elem(op, false);
	struct crpc_unpack_desc d = {.src = b->src + rnd_below(&rng, LEN / elem - PIECE) * elem,
		.dst = b->want + to,
		.len = rnd_below(&rng, 8) == 0 ? rnd_below(&rng, 20) * elem
					       : rnd_below(&rng, 4000) / elem * elem,
		.op = op};
	uint64_t job;

	assert_int_equal(crpc_unpack_submit(b->cpu, &d, 1, &job), 0);
	assert_int_equal(crpc_unpack_done(b->cpu, job), 0);
	d.dst = b->dst + to;
	return d;
}

/*
 * Scattered pieces of any kind, many jobs open, asked about in any order: each byte is what the cpu
 * engine makes it, in host memory and in the device's, and no other byte changes.
 */
TEST(jobs_move_each_byte)
{
	struct crpc_unpack_desc desc[DESCS];
	uint64_t job[JOBS];
	struct bench b;

	for (uint32_t device = 0; device <= DEVICE_MEMORY; device++) {
		bench_make(&b, JOBS, device != 0);
		for (uint32_t round = 0; round < 20; round++) {
			bench_clear(&b);
			for (uint32_t i = 0; i < JOBS; i++) {
				for (uint32_t k = 0; k < DESCS; k++)
					desc[k] = piece(&b, i * DESCS + k);
				assert_int_equal(crpc_unpack_submit(b.u, desc, DESCS, &job[i]), 0);
				if (rnd_below(&rng, 3) == 0)
					crpc_unpack_kick(b.u);
			}
			/* max_jobs are open. */
			assert_int_equal(crpc_unpack_submit(b.u, desc, 1, &job[0]), -EAGAIN);
			for (uint32_t i = 0, k = rnd_below(&rng, JOBS); i < JOBS; i++)
				assert_int_equal(job_wait(b.u, job[(i * 3 + k) % JOBS]), 0);
			bench_compare(&b);
		}
		assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
		bench_free(&b);
	}
}

/*
 * More than there is room for is refused, nothing of it is taken, and room comes back. Returns the
 * jobs, of 16 descriptors each, that were taken.
 */
static inline uint32_t
engine_filled(void)
{
	struct crpc_unpack_desc desc[16];
	static uint64_t job[4096];
	struct bench b;
	uint32_t i, n;

	bench_make(&b, 4096, DEVICE_MEMORY);
	bench_clear(&b);
	for (i = 0; i < 16; i++) {
		desc[i] = (struct crpc_unpack_desc){b.src + i, b.dst + i, 1, CRPC_UNPACK_COPY};
		b.want[i] = b.src[i];
	}
	for (n = 0; n < 4096 && crpc_unpack_submit(b.u, desc, 16, &job[n]) == 0; n++)
		;
	assert_int_equal(crpc_unpack_open_jobs(b.u), n);
	for (i = 0; i < n; i++)
		assert_int_equal(job_wait(b.u, job[i]), 0);
	bench_compare(&b);
	assert_int_equal(crpc_unpack_submit(b.u, desc, 16, &job[0]), 0);
	assert_int_equal(job_wait(b.u, job[0]), 0);
	bench_free(&b);
	return n;
}

/* Jobs that are given up end, those never handed over too; no memory is touched behind it. */
TEST(stop_gets_all_back)
{
	uint64_t job, until = crpc_clock_ns() + WAIT_NS;
	struct bench b;

	bench_make(&b, 0, false);
	memset(b.src, 0x11, LEN);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(crpc_unpack_submit(b.u,
					 &(struct crpc_unpack_desc){b.src, b.dst, LEN, 0}, 1, &job),
			0);
		if (i % 3 == 0)
			crpc_unpack_kick(b.u);
	}
	while (crpc_unpack_stop(b.u) == -EAGAIN)
		assert_true(crpc_clock_ns() < until);
	assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
	memset(b.dst, 0x77, LEN);
	usleep(2000);
	for (uint32_t i = 0; i < LEN; i++)
		assert_int_equal(b.dst[i], 0x77);
	/* It goes on. */
	assert_int_equal(job_run(b.u, (struct crpc_unpack_desc){b.src, b.dst, LEN, 0}), 0);
	assert_int_equal(b.dst[LEN - 1], 0x11);
	bench_free(&b);
}

/* The device has a clock of its own. */
static inline void
bulk_turn(int side)
{
	rig_turn(side);
	if (crpc_unpack_open_jobs(rig.conf[1].engine) != 0)
		usleep(5);
}

static inline void
bulk_consume(const struct crpc_bulk_chunk *chunk)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	int rc;

	while ((rc = rig_consumed(chunk->token)) == -EBUSY) {
		assert_true(crpc_clock_ns() < until);
		bulk_turn(0);
		bulk_turn(1);
	}
	assert_int_equal(rc, 0);
}

/*
 * An eager message whose chunks the device unpacks: its content, its checksum, and that a chunk can
 * not be consumed before the engine has reported done.
 */
TEST(bulk_unpacks_through_it)
{
	struct crpc_bulk_conf conf[2] = {
		{.chunk = 16384, .slots = 4}, {.chunk = 16384, .slots = 4}};
	uint64_t req[2], until = crpc_clock_ns() + WAIT_NS, made;
	struct crpc_bulk_result result[2];
	bool have[2] = {false, false};
	struct crpc_bulk_chunk chunk;
	int side = 0;
#ifdef FAKE
#endif
	struct bench b;

	bench_make(&b, 0, DEVICE_MEMORY);
	buf_fill(b.src, LEN, 3);
	crpc_unpack_detach(b.u, b.src);
	conf[1].engine = b.u;
	rig_init(&conf[0], &conf[1], 1, 1, 7);
	made = crpc_unpack_states_made();
	req[0] = rig_send(0, 1, b.src, LEN, CRPC_BULK_EAGER | CRPC_BULK_CRC);
	req[1] = rig_recv(1, 1, b.dst, LEN, CRPC_BULK_EAGER | CRPC_BULK_MANUAL);
#ifdef FAKE
	fake_cuda_hold(true);
	while (crpc_bulk_chunks(rig.b[1], &chunk, 1) == 0)
		bulk_turn(side ^= 1);
	for (uint32_t i = 0; i < 100; i++) {
		bulk_turn(side ^= 1);
		assert_int_equal(rig_consumed(chunk.token), -EBUSY);
	}
	assert_int_not_equal(crpc_unpack_open_jobs(b.u), 0);
	fake_cuda_hold(false);
	bulk_consume(&chunk);
#endif
	while (!have[0] || !have[1]) {
		bulk_turn(side ^= 1);
		while (crpc_bulk_chunks(rig.b[1], &chunk, 1) == 1)
			bulk_consume(&chunk);
		if (!have[side])
			have[side] = crpc_bulk_test(rig.b[side], req[side], &result[side]) == 0;
		assert_true(crpc_clock_ns() < until);
	}
	assert_int_equal(result[0].status, 0);
	assert_int_equal(result[1].status, 0);
	memcpy(b.want, b.src, LEN);
	bench_compare(&b);
	assert_int_equal(rig_stats(1)->bytes_received, LEN);
	assert_int_equal(crpc_unpack_states_made(), made);
	rig_fini();
	bench_free(&b);
}

#endif
