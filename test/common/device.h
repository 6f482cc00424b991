/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEVICE_H
#define DEVICE_H

/**
 * @file
 * Tests that want an RDMA device: the one that DEVICE names, or the first; by the driver that
 * DRIVER names, or the first that takes it.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_rdma.h"

/** Whether it is a NIC on paper: in this process, and in none other. */
static inline bool
device_on_paper(void)
{
	return getenv("DEVICE") != NULL && strncmp(getenv("DEVICE"), "paper", 5) == 0;
}

/** Says so if there is none: the test is skipped with status 77. */
static inline bool
device_missing(void)
{
	const struct crpc_rdma_conf conf = {.device = getenv("DEVICE")};
	struct crpc_rdma *dev =
		crpc_rdma_driver_choose(getenv("DRIVER")) == 0 ? crpc_rdma_open(&conf) : NULL;

	if (dev == NULL) {
		fprintf(stderr, "skipped: %s\n", crpc_log_last());
		return true;
	}
	crpc_rdma_close(dev);
	return false;
}

#endif
