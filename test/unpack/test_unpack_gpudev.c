/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine on a GPU, twice: on a library that plays the CUDA driver (FAKE), where devices are
 * late, fail and hang as they are told to, and on a real one, which skips where there is none.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bulk_rig.h"
#include "crpc_clock.h"
#include "crpc_unpack_gpudev.h"
#include "rnd.h"
#ifdef FAKE
#include "fake_cuda.h"

/* The engine's sources are compiled into this program; the fake driver runs no GPU's code. */
extern const unsigned char __crpc_gpudev_fatbin[];
const unsigned char __crpc_gpudev_fatbin[] = {0};
#endif

#define WAIT_NS UINT64_C(60000000000)
#define LEN     300000u
#define PIECE   9000u
#define JOBS    8u
#define DESCS   4u

static uint64_t rng;

static int
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

static int
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
	bool device;
};

static void
bench_make(struct bench *b, uint32_t max_jobs, bool device)
{
	const struct crpc_unpack_conf conf = {.max_jobs = max_jobs};

	*b = (struct bench){.u = crpc_unpack_create("gpudev", &conf), .device = device};
	b->cpu = crpc_unpack_create("cpu", NULL);
	b->src = aligned_alloc(4096, 4096 * (LEN / 4096 + 1));
	b->have = aligned_alloc(4096, 4096 * (LEN / 4096 + 1));
	b->want = malloc(LEN);
	b->dst = device ? crpc_unpack_gpudev_alloc(NULL, LEN) : b->have;
	assert_true(b->u != NULL && b->cpu != NULL && b->src != NULL && b->dst != NULL &&
		b->have != NULL && b->want != NULL);
	assert_int_equal(crpc_unpack_attach(b->u, b->src, LEN), 0);
	assert_int_equal(crpc_unpack_attach(b->u, b->dst, LEN), 0);
}

static void
bench_free(struct bench *b)
{
	crpc_unpack_detach(b->u, b->src);
	crpc_unpack_detach(b->u, b->dst);
	crpc_unpack_free(b->u);
	crpc_unpack_free(b->cpu);
	if (b->device)
		crpc_unpack_gpudev_free(NULL, b->dst);
	free(b->src);
	free(b->have);
	free(b->want);
#ifdef FAKE
	assert_int_equal(fake_cuda_left(), 0);
#endif
}

/* All of dst is 0x5a, and of want. */
static void
bench_clear(struct bench *b)
{
	memset(b->src, 0x5a, LEN);
	memset(b->want, 0x5a, LEN);
	assert_int_equal(job_run(b->u, (struct crpc_unpack_desc){b->src, b->dst, LEN, 0}), 0);
	buf_fill(b->src, LEN, rng);
}

static void
bench_compare(struct bench *b)
{
	if (b->device)
		assert_int_equal(crpc_unpack_gpudev_read(NULL, b->have, b->dst, LEN), 0);
	assert_memory_equal(b->have, b->want, LEN);
}

/*
 * A piece of any op, length and alignment into the at-th part of dst; the cpu engine does it too.
 */
static struct crpc_unpack_desc
piece(struct bench *b, uint32_t at)
{
	uint32_t op = rnd_below(&rng, CRPC_UNPACK_OPS), elem = crpc_unpack_elem(op, true);
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
static void
jobs_move_each_byte(void **state)
{
	struct crpc_unpack_desc desc[DESCS];
	uint64_t job[JOBS];
	uint32_t i, k, round;
	struct bench b;
	int device;

	for (device = 0; device < 2; device++) {
		bench_make(&b, JOBS, device);
		for (round = 0; round < 20; round++) {
			bench_clear(&b);
			for (i = 0; i < JOBS; i++) {
				for (k = 0; k < DESCS; k++)
					desc[k] = piece(&b, i * DESCS + k);
				assert_int_equal(crpc_unpack_submit(b.u, desc, DESCS, &job[i]), 0);
				if (rnd_below(&rng, 3) == 0)
					crpc_unpack_kick(b.u);
			}
			/* max_jobs are open. */
			assert_int_equal(crpc_unpack_submit(b.u, desc, 1, &job[0]), -EAGAIN);
			for (i = 0, k = rnd_below(&rng, JOBS); i < JOBS; i++)
				assert_int_equal(job_wait(b.u, job[(i * 3 + k) % JOBS]), 0);
			bench_compare(&b);
		}
		assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
		bench_free(&b);
	}
}

/* Every half float widened, and around every one of them the floats that narrow to it. */
static void
conversions_agree(void **state)
{
	struct crpc_unpack_desc d;
	uint32_t i, op, at, bits;
	uint64_t job;
	struct bench b;

	bench_make(&b, 0, true);
	for (op = CRPC_UNPACK_F32_TO_BF16; op < CRPC_UNPACK_OPS; op++)
		for (at = 0; at < 65536; at += 32768) {
			bench_clear(&b);
			for (i = 0; i < 32768; i++) {
				bits = (at + i) << 16 |
					(i % 2 != 0 ? 0x7fff + rnd_below(&rng, 3)
						    : rnd_below(&rng, 65536));
				if (crpc_unpack_elem(op, true) == 4)
					memcpy(b.src + i * 4, &bits, 4);
				else
					memcpy(b.src + i * 2, &(uint16_t){(uint16_t)(at + i)}, 2);
			}
			d = (struct crpc_unpack_desc){
				b.src, b.want, 32768 * crpc_unpack_elem(op, true), op};
			assert_int_equal(crpc_unpack_submit(b.cpu, &d, 1, &job), 0);
			d.dst = b.dst;
			assert_int_equal(job_run(b.u, d), 0);
			bench_compare(&b);
		}
	bench_free(&b);
}

/* Descriptors that name what was not attached are refused, and nothing of their job is taken. */
static void
memory_must_be_attached(void **state)
{
	struct crpc_unpack_desc desc[2];
	static uint8_t other[8192];
	struct bench b;
	uint64_t job;

	bench_make(&b, 4, false);
	desc[0] = (struct crpc_unpack_desc){b.src, b.dst, 100, CRPC_UNPACK_COPY};
	desc[1] = (struct crpc_unpack_desc){other, b.dst + 100, 100, CRPC_UNPACK_COPY};
	assert_int_equal(crpc_unpack_submit(b.u, desc, 2, &job), -EFAULT);
	assert_non_null(strstr(crpc_log_last(), "the source of 100 bytes"));
	assert_non_null(strstr(crpc_log_last(), "crpc_unpack_attach()"));
	desc[1] = (struct crpc_unpack_desc){b.src, b.dst + LEN - 99, 100, CRPC_UNPACK_COPY};
	assert_int_equal(crpc_unpack_submit(b.u, desc, 2, &job), -EFAULT);
	assert_non_null(strstr(crpc_log_last(), "the destination of 100 bytes"));
	/* Twice the bytes go out. */
	desc[1] = (struct crpc_unpack_desc){b.src, b.dst + LEN - 100, 52, CRPC_UNPACK_F16_TO_F32};
	assert_int_equal(crpc_unpack_submit(b.u, desc, 2, &job), -EFAULT);
	desc[1] = (struct crpc_unpack_desc){b.src + 1, b.dst, 4, CRPC_UNPACK_F16_TO_F32};
	assert_int_equal(crpc_unpack_submit(b.u, desc, 2, &job), -EINVAL);
	assert_non_null(strstr(crpc_log_last(), "alignment"));
	assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
	/* Nothing has to be known for no bytes. */
	assert_int_equal(job_run(b.u, (struct crpc_unpack_desc){other, other, 0, 0}), 0);

	assert_int_equal(crpc_unpack_attach(b.u, b.src + 4096, 4096), -EEXIST);
	assert_int_equal(crpc_unpack_attach(b.u, b.src - 4096, 8192), -EEXIST);
	assert_int_equal(crpc_unpack_attach(b.u, other, 0), -EINVAL);
	assert_int_equal(crpc_unpack_attach(b.u, other, UINT64_MAX), -EINVAL);
	crpc_unpack_detach(b.u, other);
	crpc_unpack_detach(b.u, b.src + 1);
	crpc_unpack_detach(b.u, b.src);
	assert_int_equal(crpc_unpack_submit(b.u, desc, 1, &job), -EFAULT);
	assert_int_equal(crpc_unpack_attach(b.u, b.src, LEN), 0);
	assert_int_equal(job_run(b.u, desc[0]), 0);
	bench_free(&b);
}

/*
 * Launches and jobs are limited: more are refused, nothing of them is taken, and room comes back.
 */
static void
full_is_told(void **state)
{
	struct crpc_unpack_desc desc[16];
	static uint64_t job[4096];
	struct bench b;
	uint32_t i, n;

	bench_make(&b, 4096, true);
	bench_clear(&b);
	for (i = 0; i < 16; i++) {
		desc[i] = (struct crpc_unpack_desc){b.src + i, b.dst + i, 1, CRPC_UNPACK_COPY};
		b.want[i] = b.src[i];
	}
	for (n = 0; n < 4096 && crpc_unpack_submit(b.u, desc, 16, &job[n]) == 0; n++)
		;
	assert_int_equal(n, CRPC_GPUDEV_WAVES * (CRPC_UNPACK_DESCS_MAX / 16));
	assert_int_equal(crpc_unpack_open_jobs(b.u), n);
	for (i = 0; i < n; i++)
		assert_int_equal(job_wait(b.u, job[i]), 0);
	bench_compare(&b);
	assert_int_equal(job_run(b.u, desc[0]), 0);
	bench_free(&b);
}

/* Jobs that are given up end, those never handed over too; no memory is touched behind it. */
static void
stop_gets_all_back(void **state)
{
	uint64_t job, until = crpc_clock_ns() + WAIT_NS;
	struct bench b;
	uint32_t i;

	bench_make(&b, 0, false);
	memset(b.src, 0x11, LEN);
	for (i = 0; i < 8; i++) {
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
	for (i = 0; i < LEN; i++)
		assert_int_equal(b.dst[i], 0x77);
	/* It goes on. */
	assert_int_equal(job_run(b.u, (struct crpc_unpack_desc){b.src, b.dst, LEN, 0}), 0);
	assert_int_equal(b.dst[LEN - 1], 0x11);
	bench_free(&b);
}

/* The device has a clock of its own. */
static void
turn(struct rig *r, int side)
{
	rig_turn(r, side);
	if (crpc_unpack_open_jobs(r->conf[1].engine) != 0)
		usleep(5);
}

static void
consume(struct rig *r, const struct crpc_bulk_chunk *chunk)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	int rc;

	while ((rc = crpc_bulk_consumed(r->b[1], r->w.now_ns, chunk->token)) == -EBUSY) {
		assert_true(crpc_clock_ns() < until);
		turn(r, 0);
		turn(r, 1);
	}
	assert_int_equal(rc, 0);
}

/*
 * An eager message into the device's memory, whose chunks the GPU unpacks: its content, its
 * checksum, and that a chunk can not be consumed before the engine has said done.
 */
static void
bulk_unpacks_through_it(void **state)
{
	struct crpc_bulk_conf conf[2] = {
		{.chunk = 16384, .slots = 4}, {.chunk = 16384, .slots = 4}};
	uint64_t req[2], until = crpc_clock_ns() + WAIT_NS, made;
	struct crpc_bulk_result result[2];
	bool have[2] = {false, false};
	struct crpc_bulk_chunk chunk;
	int side = 0;
#ifdef FAKE
	uint32_t i;
#endif
	struct bench b;
	struct rig r;

	bench_make(&b, 0, true);
	buf_fill(b.src, LEN, 3);
	crpc_unpack_detach(b.u, b.src);
	conf[1].engine = b.u;
	rig_init(&r, &conf[0], &conf[1], 1, 1, 7);
	made = crpc_unpack_states_made();
	req[0] = rig_send(&r, 0, 1, b.src, LEN, CRPC_BULK_EAGER | CRPC_BULK_CRC);
	req[1] = rig_recv(&r, 1, 1, b.dst, LEN, CRPC_BULK_EAGER | CRPC_BULK_MANUAL);
#ifdef FAKE
	fake_cuda_hold(true);
	while (crpc_bulk_chunks(r.b[1], &chunk, 1) == 0)
		turn(&r, side ^= 1);
	for (i = 0; i < 100; i++) {
		turn(&r, side ^= 1);
		assert_int_equal(crpc_bulk_consumed(r.b[1], r.w.now_ns, chunk.token), -EBUSY);
	}
	assert_int_not_equal(crpc_unpack_open_jobs(b.u), 0);
	fake_cuda_hold(false);
	consume(&r, &chunk);
#endif
	while (!have[0] || !have[1]) {
		turn(&r, side ^= 1);
		while (crpc_bulk_chunks(r.b[1], &chunk, 1) == 1)
			consume(&r, &chunk);
		if (!have[side])
			have[side] = crpc_bulk_test(r.b[side], req[side], &result[side]) == 0;
		assert_true(crpc_clock_ns() < until);
	}
	assert_int_equal(result[0].status, 0);
	assert_int_equal(result[1].status, 0);
	memcpy(b.want, b.src, LEN);
	bench_compare(&b);
	assert_int_equal(crpc_unpack_states_made(), made);
	rig_fini(&r);
	bench_free(&b);
}

#ifdef FAKE
/* A device that does nothing: no call waits for it, and a turn of polls asks it once. */
static void
polls_never_wait(void **state)
{
	const struct crpc_unpack_conf conf = {.arg = "0000:3b:00.0"};
	struct crpc_unpack *other;
	uint32_t i, turn, asked;
	uint64_t job[24], of_other;
	struct bench b;

	bench_make(&b, 0, true);
	bench_clear(&b);
	other = crpc_unpack_create("gpudev", &conf);
	assert_non_null(other);
	fake_cuda_hold(true);
	for (i = 0; i < 24; i++) {
		struct crpc_unpack_desc d = piece(&b, i);

		assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job[i]), 0);
		if (i % 2 == 0)
			crpc_unpack_kick(b.u);
	}
	asked = fake_cuda_calls("cuEventQuery");
	for (turn = 0; turn < 50; turn++) {
		crpc_unpack_kick(b.u);
		for (i = 0; i < 24; i++)
			assert_int_equal(crpc_unpack_done(b.u, job[i]), -EAGAIN);
	}
	assert_int_equal(fake_cuda_calls("cuEventQuery") - asked, 50);
	assert_int_equal(crpc_unpack_stop(b.u), -EAGAIN);
	assert_int_equal(crpc_unpack_open_jobs(b.u), 24);
	/* States share nothing, but the device. */
	assert_int_equal(crpc_unpack_submit(other, &(struct crpc_unpack_desc){0}, 1, &of_other), 0);
	fake_cuda_hold(false);
	assert_int_equal(job_wait(other, of_other), 0);
	crpc_unpack_free(other);
	/* The last one alone, without a kick: it comes to its end, too. */
	for (i = 0; i < 24; i++)
		while (crpc_unpack_done(b.u, job[23 - i]) == -EAGAIN)
			usleep(10);
	bench_compare(&b);
	bench_free(&b);
}

/* Whatever fails while a state is made or memory attached is told by its name, and undone. */
static void
making_fails_by_name(void **state)
{
	static const struct {
		const char *call;
		uint32_t after;
	} fail[] = {{"cuInit", 0}, {"cuDeviceGet", 0}, {"cuDevicePrimaryCtxRetain", 0},
		{"cuCtxPushCurrent_v2", 0}, {"cuModuleLoadData", 0}, {"cuModuleGetFunction", 0},
		{"cuStreamCreate", 0}, {"cuEventCreate", 0}, {"cuEventCreate", 31}};
	static const char *const bad[] = {"", "one", "-1", "7", "0 ", "0000:00:00.0"};
	struct crpc_unpack_conf conf = {.max_jobs = 65537};
	static uint8_t other[8192];
	struct crpc_unpack *u;
	struct bench b;
	uint32_t i;

	assert_null(crpc_unpack_create("gpudev", &conf));
	assert_int_equal(errno, EINVAL);
	for (i = 0; i < CRPC_DIM(fail); i++) {
		fake_cuda_fail(fail[i].call, 2, fail[i].after);
		assert_null(crpc_unpack_create("gpudev", NULL));
		assert_int_equal(errno, ENODEV);
		assert_non_null(strstr(crpc_log_last(), "CUDA_ERROR_OUT_OF_MEMORY"));
		assert_int_equal(fake_cuda_left(), 0);
	}
	for (i = 0; i < CRPC_DIM(bad); i++) {
		conf = (struct crpc_unpack_conf){.arg = bad[i]};
		assert_null(crpc_unpack_create("gpudev", &conf));
		assert_non_null(strstr(crpc_log_last(), bad[i]));
	}
	bench_make(&b, 0, true);
	fake_cuda_fail("cuMemHostRegister_v2", 2, 0);
	assert_int_equal(crpc_unpack_attach(b.u, other, sizeof(other)), -ENOMEM);
	fake_cuda_fail("cuMemHostGetDevicePointer_v2", 1, 1);
	assert_int_equal(crpc_unpack_attach(b.u, other, sizeof(other)), -ENOMEM);
	assert_non_null(strstr(crpc_log_last(), "CUDA_ERROR_INVALID_VALUE"));
	fake_cuda_fail("cuMemAlloc_v2", 2, 0);
	assert_null(crpc_unpack_gpudev_alloc(NULL, LEN));
	assert_int_equal(errno, ENOMEM);
	fake_cuda_fail("cuMemcpyDtoH_v2", 719, 0);
	assert_int_equal(crpc_unpack_gpudev_read(NULL, b.have, b.dst, LEN), -EIO);
	/* Somebody else may have locked the pages; then they are not ours to unlock. */
	u = crpc_unpack_create("gpudev", NULL);
	assert_non_null(u);
	assert_int_equal(crpc_unpack_attach(b.u, other, sizeof(other)), 0);
	assert_int_equal(crpc_unpack_attach(u, other, sizeof(other)), 0);
	i = fake_cuda_calls("cuMemHostUnregister");
	crpc_unpack_detach(u, other);
	assert_int_equal(fake_cuda_calls("cuMemHostUnregister"), i);
	crpc_unpack_detach(b.u, other);
	assert_int_equal(fake_cuda_calls("cuMemHostUnregister"), i + 1);
	crpc_unpack_free(u);
	bench_free(&b);
}

/*
 * A launch that fails fails its jobs; the next one is a new try. Without an event the stream tells.
 */
static void
launches_fail_alone(void **state)
{
	struct crpc_unpack_desc d;
	struct bench b;

	bench_make(&b, 0, true);
	bench_clear(&b);
	d = piece(&b, 0);
	fake_cuda_fail("cuLaunchKernel", 2, 0);
	assert_int_equal(job_run(b.u, d), -EIO);
	assert_non_null(strstr(crpc_log_last(), "CUDA_ERROR_OUT_OF_MEMORY"));
	fake_cuda_fail("cuEventRecord", 2, 0);
	assert_int_equal(job_run(b.u, d), 0);
	assert_true(fake_cuda_calls("cuStreamQuery") != 0);
	bench_compare(&b);
	assert_int_equal(job_run(b.u, d), 0);
	assert_int_equal(crpc_unpack_stats(b.u)->failed, 1);
	bench_free(&b);
}

/* A fault of the device ends every job with an error, and what comes later; its name is told. */
static void
faults_end_the_state(void **state)
{
	struct crpc_unpack_desc d;
	struct bench b;
	uint64_t job[6];
	uint32_t i;

	bench_make(&b, 0, true);
	bench_clear(&b);
	fake_cuda_hold(true);
	for (i = 0; i < 6; i++) {
		d = piece(&b, i);
		assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job[i]), 0);
		if (i % 2 == 1)
			crpc_unpack_kick(b.u);
	}
	fake_cuda_fault(719);
	fake_cuda_hold(false);
	for (i = 0; i < 6; i++)
		assert_int_equal(job_wait(b.u, job[i]), -EIO);
	assert_non_null(strstr(crpc_log_last(), "CUDA_ERROR_LAUNCH_FAILED"));
	assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job[0]), -EIO);
	assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
	bench_free(&b);
}

/* A device that hangs: stop() comes to its end all the same, and no byte changes behind it. */
static void
stop_is_bounded(void **state)
{
	struct crpc_unpack_desc d;
	struct bench b;
	uint64_t job, until = crpc_clock_ns() + WAIT_NS;
	uint32_t i;

	bench_make(&b, 0, false);
	bench_clear(&b);
	memcpy(b.want, b.have, LEN);
	d = (struct crpc_unpack_desc){b.src, b.dst, LEN, CRPC_UNPACK_COPY};
	fake_cuda_hold(true);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job), 0);
	crpc_unpack_kick(b.u);
	while (crpc_unpack_stop(b.u) == -EAGAIN) {
		assert_true(crpc_clock_ns() < until);
		usleep(1000);
	}
	assert_non_null(strstr(crpc_log_last(), "does not end 3 jobs"));
	assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
	fake_cuda_hold(false);
	usleep(2000);
	assert_memory_equal(b.have, b.want, LEN);
	assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job), -EIO);
	bench_free(&b);
}
#endif

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_move_each_byte),
		cmocka_unit_test(conversions_agree),
		cmocka_unit_test(memory_must_be_attached),
		cmocka_unit_test(full_is_told),
		cmocka_unit_test(stop_gets_all_back),
		cmocka_unit_test(bulk_unpacks_through_it),
#ifdef FAKE
		cmocka_unit_test(polls_never_wait),
		cmocka_unit_test(making_fails_by_name),
		cmocka_unit_test(launches_fail_alone),
		cmocka_unit_test(faults_end_the_state),
		cmocka_unit_test(stop_is_bounded),
#endif
	};
	struct crpc_unpack *u;

	rng = argc > 1 ? strtoull(argv[1], NULL, 0) : 20241122;
	print_message("seed %llu\n", (unsigned long long)rng);
	crpc_clock_init();
	if (crpc_unpack_gpudev_register() != 0)
		return 1;
	u = crpc_unpack_create("gpudev", NULL);
	if (u == NULL) {
		print_message("skipped: %s\n", crpc_log_last());
		return 77;
	}
	crpc_unpack_free(u);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
