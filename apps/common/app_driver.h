/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_DRIVER_H
#define APP_DRIVER_H

/** @file What programs with --device and --driver do: they, and no others, link lib/rdma. */

#include "app_fail.h"
#include "app_opt.h"
#include "crpc_log.h"
#include "crpc_rdma.h"

/** From now on devices are opened by the driver that --driver names. 0, or fails. */
static inline int
app_driver_choose(void)
{
	return crpc_rdma_driver_choose(app_opt_driver) == 0
		? 0
		: app_fail("--driver %s: %s", app_opt_driver, crpc_log_last());
}

/**
 * The same, and a device that was named must open, also if a program without a peer uses none.
 *
 * @param info
 *   What the device is, or the first one; zeros: there is none. NULL: it is not asked.
 * @return
 *   0, or an exit code after a line.
 */
static inline int
app_driver_check(const char *device, struct crpc_rdma_info *info)
{
	const struct crpc_rdma_conf conf = {.device = device};
	struct crpc_rdma *dev;

	if (app_driver_choose() != 0)
		return APP_EXIT_USAGE;
	if (info != NULL)
		*info = (struct crpc_rdma_info){0};
	if (device == NULL && info == NULL)
		return 0;
	dev = crpc_rdma_open(&conf);
	if (dev == NULL)
		return device == NULL ? 0
				      : app_fail("--device %s: %s; give an active device, or start "
						 "under usertools/soft-mlx5, the software one",
						device, crpc_log_last());
	if (info != NULL)
		crpc_rdma_info_get(dev, info);
	crpc_rdma_close(dev);
	return 0;
}

#endif
