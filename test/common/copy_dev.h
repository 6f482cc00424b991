/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPY_DEV_H
#define COPY_DEV_H

/**
 * @file
 * What the devices that only copy, copy_nic.c and copy_ud.c, have in common: limits, and regions of
 * which nothing is kept. The device is one block of memory.
 */

#include <stdlib.h>

#include "crpc_rdma_driver.h"

#define COPY_MTU 4096u

static inline void
copy_close(struct crpc_rdma *dev)
{
	free(dev);
}

static inline void
copy_info(const struct crpc_rdma *dev, struct crpc_rdma_info *info)
{
	info->inline_max = 220;
	info->mtu = COPY_MTU;
}

static inline int
copy_mr_reg(struct crpc_rdma *dev, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	*mr = (struct crpc_rdma_mr){.addr = addr, .len = len, .lkey = 1, .rkey = 1, .priv = addr};
	return 0;
}

static inline void
copy_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr)
{
}

#endif
