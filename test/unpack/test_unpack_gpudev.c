/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine on a GPU, twice: on a library that plays the CUDA driver (FAKE), where devices are
 * late, fail and hang as a test wants, and on a real one, which skips where there is none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_unpack_gpudev.h"
#ifdef FAKE
#include "fake_cuda.h"

/* The engine's sources are compiled into this program; the fake driver runs no GPU's code. */
extern const unsigned char __crpc_gpudev_fatbin[];
const unsigned char __crpc_gpudev_fatbin[] = {0};
#endif

#define ENGINE        "gpudev"
#define DEVICE_MEMORY 1
#include "unpack_bench.h"

/* Every half float widened, and around every one of them the floats that narrow to it. */
TEST(conversions_agree)
{
	struct crpc_unpack_desc d;
	uint64_t job;
	struct bench b;

	bench_make(&b, 0, true);
	for (uint32_t op = CRPC_UNPACK_F32_TO_BF16; op < CRPC_UNPACK_OPS; op++)
		for (uint32_t at = 0; at < 65536; at += 32768) {
			bench_clear(&b);
			for (uint32_t i = 0; i < 32768; i++) {
				uint32_t bits = (at + i) << 16 |
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
TEST(memory_must_be_attached)
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

/* Launches are limited. */
TEST(full_engine_refuses)
{
	assert_int_equal(engine_filled(), CRPC_GPUDEV_WAVES * (CRPC_UNPACK_DESCS_MAX / 16));
}

#ifdef FAKE
/* A device that does nothing: no call waits for it, and a turn of polls asks it once. */
TEST(polls_never_wait)
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

/* Whatever fails while a state is made or memory attached is logged by its name, and undone. */
TEST(making_fails_by_name)
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
 * A launch that fails fails its jobs; the next one is a new try. Without an event the stream is
 * queried.
 */
TEST(launches_fail_alone)
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
	bench_free(&b);
}

/* A fault of the device ends every job with an error, and later ones; its name is logged. */
TEST(faults_end_the_state)
{
	struct crpc_unpack_desc d;
	struct bench b;
	uint64_t job[6];

	bench_make(&b, 0, true);
	bench_clear(&b);
	fake_cuda_hold(true);
	for (uint32_t i = 0; i < 6; i++) {
		d = piece(&b, i);
		assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job[i]), 0);
		if (i % 2 == 1)
			crpc_unpack_kick(b.u);
	}
	fake_cuda_fault(719);
	fake_cuda_hold(false);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(job_wait(b.u, job[i]), -EIO);
	assert_non_null(strstr(crpc_log_last(), "CUDA_ERROR_LAUNCH_FAILED"));
	assert_int_equal(crpc_unpack_submit(b.u, &d, 1, &job[0]), -EIO);
	assert_int_equal(crpc_unpack_open_jobs(b.u), 0);
	bench_free(&b);
}

/* A device that hangs: stop() comes to its end all the same, and no byte changes behind it. */
TEST(stop_is_bounded)
{
	struct crpc_unpack_desc d;
	struct bench b;
	uint64_t job, until = crpc_clock_ns() + WAIT_NS;

	bench_make(&b, 0, false);
	bench_clear(&b);
	memcpy(b.want, b.have, LEN);
	d = (struct crpc_unpack_desc){b.src, b.dst, LEN, CRPC_UNPACK_COPY};
	fake_cuda_hold(true);
	for (uint32_t i = 0; i < 3; i++)
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
	return test_run(NULL, NULL);
}
