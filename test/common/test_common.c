/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/common: the clock keeps pace with the kernel's, errors are kept per thread and reach the sink
 * by level, the idle policy spins first and yields then.
 */
#include <string.h>

#include "test.h"
#include "crpc_clock.h"
#include "crpc_idle.h"
#include "crpc_log.h"

static int sink_lines;

static void
count_lines(enum crpc_log_level level, const char *type, const char *line)
{
	sink_lines++;
}

TEST(clock_keeps_pace)
{
	struct timespec ts = {.tv_nsec = 50000000}, a, b;
	uint64_t t0, t1, real_ns;

	crpc_clock_init();
	clock_gettime(CLOCK_MONOTONIC, &a);
	t0 = crpc_clock_ns();
	nanosleep(&ts, NULL);
	t1 = crpc_clock_ns();
	clock_gettime(CLOCK_MONOTONIC, &b);
	real_ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec -
		(uint64_t)a.tv_nsec;
	assert_in_range(t1 - t0, 49000000, real_ns + real_ns / 100);
}

TEST(errors_are_kept_and_sunk)
{
	crpc_log_clear();
	crpc_log_set_sink(NULL, CRPC_LOG_DEBUG);
	crpc_err("expected %d, found %d", 1, 2);
	assert_string_equal(crpc_log_last(), "crpc: expected 1, found 2");
	crpc_log_set_sink(count_lines, CRPC_LOG_WARNING);
	crpc_err("x");
	crpc_warn("y");
	crpc_info("z");
	assert_int_equal(sink_lines, 2);
	crpc_log_set_sink(NULL, CRPC_LOG_ERR);
}

TEST(idle_spins_then_yields)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};

	for (int i = 0; i < CRPC_IDLE_SPINS + 3; i++)
		crpc_idle_turn(&idle, 0);
	assert_int_equal(idle.yields, 3);
	crpc_idle_turn(&idle, 1);
	assert_int_equal(idle.empty, 0);
}

TEST(powers_and_alignment)
{
	assert_int_equal(crpc_pow2_ceil(0), 1);
	assert_int_equal(crpc_pow2_ceil(64), 64);
	assert_int_equal(crpc_pow2_ceil(65), 128);
	assert_int_equal(crpc_log2(4096), 12);
	assert_int_equal(crpc_align_up(65, 64), 128);
	assert_false(crpc_is_pow2(0));
}

TEST_MAIN(NULL, NULL)
