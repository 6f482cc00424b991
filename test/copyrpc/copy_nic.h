/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPY_NIC_H
#define COPY_NIC_H

/**
 * @file
 * The cheapest device: a post is a memcpy to the peer and a completion, in one process. Its two
 * functions have names of their own (copy_nic_*), so that a profile can leave them out.
 */

#include "crpc_rdma.h"

#define COPY_NIC_CQ 65536u

struct copy_nic {
	struct crpc_rdma base;
	uint32_t head, tail;
	struct crpc_rdma_cqe cq[COPY_NIC_CQ];
};

/** Make one; the queue pairs of all of them reach each other. NULL: no memory. */
struct copy_nic *copy_nic_open(void);

#endif
