/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_DRIVER_H
#define APP_DRIVER_H

/** @file What programs with --device make of --driver: they, and no others, link lib/rdma. */

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

#endif
