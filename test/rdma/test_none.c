/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that forgot to link a driver whole is reported as such, and not that it has no device.
 */
#include <errno.h>
#include <string.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_rdma.h"

TEST(open_without_a_driver_says_so)
{
	const struct crpc_rdma_conf conf = {.device = "mlx5_0"};

	errno = 0;
	assert_null(crpc_rdma_open(&conf));
	assert_int_equal(errno, ENODEV);
	assert_non_null(strstr(crpc_log_last(), "no RDMA driver is linked in"));
}

TEST_MAIN(NULL, NULL)
