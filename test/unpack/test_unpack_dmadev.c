/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine on a DPDK DMA device, with the software one of DPDK's skeleton driver: content, a ring
 * that is full, jobs that are given up, and a transfer by bulk that unpacks through it. Skipped
 * where DPDK has no such driver.
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
#include <rte_eal.h>

#include "bulk_rig.h"
#include "crpc_clock.h"
#include "crpc_unpack_dmadev.h"
#include "rnd.h"

#define WAIT_NS UINT64_C(30000000000)
#define LEN     300000u

static uint64_t rng;

static int
job_wait(struct crpc_unpack *u, uint64_t job)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	int rc;

	while ((rc = crpc_unpack_done(u, job)) == -EAGAIN) {
		assert_true(crpc_clock_ns() < until);
		usleep(10);
	}
	return rc;
}

/* Scattered pieces of any length and place, many jobs open, asked about in any order. */
static void
jobs_move_each_byte(void **state)
{
	const struct crpc_unpack_conf conf = {.max_jobs = 8};
	struct crpc_unpack *u = crpc_unpack_create("dmadev", &conf);
	struct crpc_unpack_desc desc[8][4];
	uint8_t *src = malloc(LEN), *dst = malloc(LEN), *want = malloc(LEN);
	uint64_t job[8];
	uint32_t i, k, round, at;

	assert_true(u != NULL && src != NULL && dst != NULL && want != NULL);
	for (round = 0; round < 30; round++) {
		buf_fill(src, LEN, rng);
		memset(dst, 0x5a, LEN);
		memset(want, 0x5a, LEN);
		for (i = 0, at = 0; i < 8; i++) {
			for (k = 0; k < 4; k++, at += 9000) {
				desc[i][k] = (struct crpc_unpack_desc){
					.src = src + rnd_below(&rng, LEN - 9000),
					.dst = dst + at + rnd_below(&rng, 500),
					.len = rnd_below(&rng, 8) == 0 ? 0 : rnd_below(&rng, 8000)};
				memcpy(want + ((uint8_t *)desc[i][k].dst - dst), desc[i][k].src,
					desc[i][k].len);
			}
			while (crpc_unpack_submit(u, desc[i], 4, &job[i]) == -EAGAIN)
				crpc_unpack_kick(u);
		}
		/* max_jobs are open. */
		assert_int_equal(crpc_unpack_submit(u, desc[0], 4, &job[0]), -EAGAIN);
		crpc_unpack_kick(u);
		for (i = 0, k = rnd_below(&rng, 8); i < 8; i++)
			assert_int_equal(job_wait(u, job[(i * 3 + k) % 8]), 0);
		assert_memory_equal(dst, want, LEN);
	}
	assert_int_equal(crpc_unpack_open_jobs(u), 0);
	crpc_unpack_free(u);
	free(src);
	free(dst);
	free(want);
}

/*
 * More copies than the ring has room for are refused, nothing of them is taken, and room comes
 * back.
 */
static void
full_ring_is_told(void **state)
{
	const struct crpc_unpack_conf conf = {.max_jobs = 4096};
	struct crpc_unpack *u = crpc_unpack_create("dmadev", &conf);
	struct crpc_unpack_desc desc[16];
	static uint8_t src[16], dst[16];
	static uint64_t job[4096];
	uint32_t i, n;

	assert_non_null(u);
	for (i = 0; i < 16; i++) {
		src[i] = (uint8_t)(i + 1);
		desc[i] = (struct crpc_unpack_desc){.src = src + i, .dst = dst + i, .len = 1};
	}
	for (n = 0; n < 4096 && crpc_unpack_submit(u, desc, 16, &job[n]) == 0; n++)
		;
	assert_true(n >= 1 && n < 4096);
	assert_int_equal(crpc_unpack_open_jobs(u), n);
	crpc_unpack_kick(u);
	for (i = 0; i < n; i++)
		assert_int_equal(job_wait(u, job[i]), 0);
	assert_memory_equal(src, dst, 16);
	assert_int_equal(crpc_unpack_submit(u, desc, 16, &job[0]), 0);
	crpc_unpack_kick(u);
	assert_int_equal(job_wait(u, job[0]), 0);
	crpc_unpack_free(u);
}

/* Jobs that are given up end, those never handed over too; no memory is touched behind it. */
static void
stop_gets_all_back(void **state)
{
	struct crpc_unpack *u = crpc_unpack_create("dmadev", NULL);
	uint8_t *src = calloc(1, LEN), *dst = malloc(LEN);
	struct crpc_unpack_desc desc = {.src = src, .dst = dst, .len = LEN};
	uint64_t job, until = crpc_clock_ns() + WAIT_NS;
	uint32_t i;

	assert_true(u != NULL && src != NULL && dst != NULL);
	for (i = 0; i < 8; i++)
		assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job), 0);
	while (crpc_unpack_stop(u) == -EAGAIN)
		assert_true(crpc_clock_ns() < until);
	assert_int_equal(crpc_unpack_open_jobs(u), 0);
	memset(dst, 0x77, LEN);
	usleep(2000);
	for (i = 0; i < LEN; i++)
		assert_int_equal(dst[i], 0x77);
	/* It goes on. */
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job), 0);
	crpc_unpack_kick(u);
	assert_int_equal(job_wait(u, job), 0);
	assert_int_equal(dst[LEN - 1], 0);
	crpc_unpack_free(u);
	free(src);
	free(dst);
}

/* One device, one state; no conversion; a wrong name is told. */
static void
what_it_can_not_do(void **state)
{
	const struct crpc_unpack_conf wrong = {.arg = "dma_nowhere"};
	struct crpc_unpack *u = crpc_unpack_create("dmadev", NULL);
	static float src;
	static uint16_t dst;
	struct crpc_unpack_desc desc = {&src, &dst, 4, CRPC_UNPACK_F32_TO_BF16};
	uint64_t job;

	assert_non_null(u);
	assert_null(crpc_unpack_create("dmadev", NULL));
	assert_int_equal(errno, ENODEV);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job), -EOPNOTSUPP);
	crpc_unpack_free(u);
	assert_null(crpc_unpack_create("dmadev", &wrong));
	assert_int_equal(errno, ENODEV);
	assert_non_null(strstr(crpc_log_last(), "dma_nowhere"));
	assert_int_equal(crpc_unpack_dmadev_register(), -EEXIST);
}

/* An eager message whose chunks the device unpacks: its content, and consumed only behind it. */
static void
bulk_unpacks_through_it(void **state)
{
	struct crpc_bulk_conf conf[2] = {
		{.chunk = 16384, .slots = 4}, {.chunk = 16384, .slots = 4}};
	struct crpc_bulk_result result[2];
	uint8_t *src = buf_make(LEN), *dst = buf_make(LEN);
	uint64_t req[2], until = crpc_clock_ns() + WAIT_NS;
	bool have[2] = {false, false};
	struct rig r;
	uint32_t i;
	int side;

	conf[1].engine = crpc_unpack_create("dmadev", NULL);
	assert_non_null(conf[1].engine);
	rig_init(&r, &conf[0], &conf[1], 1, 1, 7);
	buf_fill(src, LEN, 3);
	req[0] = rig_send(&r, 0, 1, src, LEN, CRPC_BULK_EAGER | CRPC_BULK_CRC);
	req[1] = rig_recv(&r, 1, 1, dst, LEN, 0);
	for (i = 0; !have[0] || !have[1]; i++) {
		side = i & 1;
		rig_turn(&r, side);
		if (!have[side])
			have[side] = crpc_bulk_test(r.b[side], req[side], &result[side]) == 0;
		assert_true(crpc_clock_ns() < until);
		/* The device has a clock of its own. */
		if (crpc_unpack_open_jobs(conf[1].engine) != 0)
			usleep(5);
	}
	assert_int_equal(result[0].status, 0);
	assert_int_equal(result[1].status, 0);
	assert_memory_equal(src, dst, LEN);
	buf_guards(dst, LEN);
	assert_int_equal(crpc_unpack_stats(conf[1].engine)->bytes, LEN);
	rig_fini(&r);
	crpc_unpack_free(conf[1].engine);
	buf_free(src);
	buf_free(dst);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_move_each_byte),
		cmocka_unit_test(full_ring_is_told),
		cmocka_unit_test(stop_gets_all_back),
		cmocka_unit_test(what_it_can_not_do),
		cmocka_unit_test(bulk_unpacks_through_it),
	};
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-pci"},
		(char[]){"--no-shconf"}, (char[]){"-m64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=4"}, (char[]){"--vdev=dma_skeleton"}, NULL};
	struct crpc_unpack *u;
	int rc;

	rng = argc > 1 ? strtoull(argv[1], NULL, 0) : 20241121;
	print_message("seed %llu\n", (unsigned long long)rng);
	crpc_clock_init();
	rc = rte_eal_init(8, eal);
	u = rc < 0 || crpc_unpack_dmadev_register() != 0 ? NULL
							 : crpc_unpack_create("dmadev", NULL);
	if (u == NULL) {
		print_message("skipped: %s\n", rc < 0 ? "no EAL" : crpc_log_last());
		return 77;
	}
	crpc_unpack_free(u);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
