/* SPDX-License-Identifier: BSD-3-Clause */
/* Unpack engines: their names, what all check, and the engine of the CPU. */
#include <errno.h>
#include <string.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_tensor_convert.h"
#include "crpc_unpack.h"
#include "rnd.h"

static uint64_t seed = 88172645463325252u;

/* Through and around the caches: every length from and to every alignment, and nothing beside. */
TEST(every_copy_copies)
{
	static uint8_t src[9000], dst[9000], expected[9000];

	for (uint32_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)rnd_below(&seed, 256);
	for (uint64_t around = 0; around < 2; around++) {
		struct crpc_unpack_conf conf = {.stream_bytes = around ? 1 : UINT64_MAX};
		struct crpc_unpack *u = crpc_unpack_create(NULL, &conf);
		struct crpc_unpack_desc desc;
		uint64_t job;

		for (uint32_t i = 0; i < 4000; i++) {
			uint32_t len = i < 300 ? i : rnd_below(&seed, 8000);
			uint32_t from = rnd_below(&seed, 200);
			uint32_t to = rnd_below(&seed, 200);

			memset(dst, 0x77, sizeof(dst));
			memset(expected, 0x77, sizeof(expected));
			memcpy(expected + to, src + from, len);
			desc = (struct crpc_unpack_desc){
				.src = src + from, .dst = dst + to, .len = len};
			assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job), 0);
			assert_int_equal(crpc_unpack_done(u, job), 0);
			if (memcmp(dst, expected, sizeof(dst)) != 0)
				fail_msg("%u bytes from %u to %u", len, from, to);
		}
		crpc_unpack_free(u);
	}
}

/* Jobs of many descriptors, below and above where stores go around the caches, with conversions. */
TEST(cpu_engine_gathers)
{
	static float src[100000];
	static uint8_t dst[600000], expected[600000];
	struct crpc_unpack_conf conf = {.stream_bytes = 20000};
	struct crpc_unpack *u = crpc_unpack_create(NULL, &conf);
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
	uint32_t round, i, n, at, op;
	uint64_t job, out;

	assert_non_null(u);
	for (i = 0; i < 100000; i++)
		src[i] = (float)rnd_below(&seed, 1000) - 500.5f;
	for (round = 0; round < 300; round++) {
		memset(dst, 0, sizeof(dst));
		memset(expected, 0, sizeof(expected));
		n = 1 + rnd_below(&seed, CRPC_UNPACK_DESCS_MAX);
		for (i = 0, at = 0; i < n;
			i++, at += (uint32_t)crpc_align_up(out, 4) + 4 * rnd_below(&seed, 3)) {
			op = rnd_below(&seed, 3) == 0 ? rnd_below(&seed, CRPC_UNPACK_OPS)
						      : CRPC_UNPACK_COPY;
			desc[i] = (struct crpc_unpack_desc){.src = src + rnd_below(&seed, 90000),
					.dst = dst + at,
					.len = rnd_below(&seed, 1000) * 4,
					.op = op};
			out = crpc_unpack_out_len(op, desc[i].len);
			if (op == CRPC_UNPACK_COPY)
				memcpy(expected + at, desc[i].src, out);
			else if (op == CRPC_UNPACK_F32_TO_BF16)
				crpc_tensor_f32_to_bf16((void *)(expected + at), desc[i].src,
						desc[i].len / 4);
			else if (op == CRPC_UNPACK_F32_TO_F16)
				crpc_tensor_f32_to_f16((void *)(expected + at), desc[i].src,
						desc[i].len / 4);
			else if (op == CRPC_UNPACK_BF16_TO_F32)
				crpc_tensor_bf16_to_f32((void *)(expected + at), desc[i].src,
						desc[i].len / 2);
			else
				crpc_tensor_f16_to_f32((void *)(expected + at), desc[i].src,
						desc[i].len / 2);
		}
		/* an empty descriptor names no memory */
		if (desc[0].len == 0)
			desc[0].src = desc[0].dst = NULL;
		assert_int_equal(crpc_unpack_submit(u, desc, n, &job), 0);
		crpc_unpack_kick(u);
		assert_int_equal(crpc_unpack_done(u, job), 0);
		assert_memory_equal(dst, expected, sizeof(dst));
	}
	assert_int_equal(crpc_unpack_open_jobs(u), 0);
	assert_int_equal(crpc_unpack_stop(u), 0);
	crpc_unpack_free(u);
}

static int
bad_create(const struct crpc_unpack_conf *conf, void **state)
{
	return -ENODEV;
}

static void
bad_free(void *state)
{
}

static int
bad_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job)
{
	return -EIO;
}

static int
bad_done(void *state, uint64_t job)
{
	return -EIO;
}

static int
bad_stop(void *state)
{
	return 0;
}

static int
bad_attach(void *state, void *mem, uint64_t len)
{
	return -EIO;
}

/* Names are unique and found; what can not be done is refused. */
TEST(engines_have_names)
{
	static const struct crpc_unpack_ops ops = {"bad", 0, bad_create, bad_free, bad_submit, NULL,
			bad_done, bad_stop};
	static const struct crpc_unpack_ops half = {.name = "half", .create = bad_create};
	static const struct crpc_unpack_ops cpu = {"cpu", 0, bad_create, bad_free, bad_submit, NULL,
			bad_done, bad_stop};
	static const struct crpc_unpack_ops one_way = {"one way", 0, bad_create, bad_free,
		bad_submit, NULL, bad_done, bad_stop, bad_attach};
	struct crpc_unpack_desc desc = {.len = 2, .op = CRPC_UNPACK_F32_TO_F16};
	struct crpc_unpack_conf conf = {.max_jobs = 2};
	struct crpc_unpack *u;
	uint64_t job[3];

	assert_int_equal(crpc_unpack_register(&half), -EINVAL);
	assert_int_equal(crpc_unpack_register(&one_way), -EINVAL);
	assert_int_equal(crpc_unpack_register(&cpu), -EEXIST);
	assert_int_equal(crpc_unpack_register(&ops), 0);
	assert_ptr_equal(crpc_unpack_find("bad"), &ops);
	assert_null(crpc_unpack_create("nothing", NULL));
	assert_int_equal(errno, ENOENT);
	assert_non_null(strstr(crpc_log_last(), "cpu bad"));
	assert_null(crpc_unpack_create("bad", NULL));
	assert_int_equal(errno, ENODEV);
	u = crpc_unpack_create("cpu", &conf);
	/* Any memory will do for the CPU. */
	assert_int_equal(crpc_unpack_attach(u, &desc, sizeof(desc)), 0);
	assert_int_equal(crpc_unpack_attach(u, &desc, 0), -EINVAL);
	crpc_unpack_detach(u, &desc);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), -EINVAL);
	desc.op = CRPC_UNPACK_OPS;
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), -EINVAL);
	desc = (struct crpc_unpack_desc){.len = 0};
	assert_int_equal(crpc_unpack_submit(u, &desc, 0, &job[0]), -EINVAL);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[1]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[2]), -EAGAIN);
	assert_int_equal(crpc_unpack_done(u, job[0]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[2]), 0);
	crpc_unpack_free(u);
}

TEST_MAIN(NULL, NULL)
