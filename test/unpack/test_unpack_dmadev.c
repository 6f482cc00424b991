/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine on a DPDK DMA device, with the software one of DPDK's skeleton driver: content, a ring
 * that is full, jobs that are given up, and a transfer by bulk that unpacks through it. Skipped
 * where DPDK has no such driver.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"
#include <rte_eal.h>

#include "crpc_log.h"
#include "crpc_unpack_dmadev.h"

#define ENGINE        "dmadev"
#define DEVICE_MEMORY 0
#include "unpack_bench.h"

/* The ring is limited. */
TEST(full_ring_refuses)
{
	uint32_t n = engine_filled();

	assert_true(n >= 1 && n < 4096);
}

/* One device, one state; no conversion; a wrong name is logged. */
TEST(what_it_can_not_do)
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

int
main(int argc, char **argv)
{
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
	rc = test_run(NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
