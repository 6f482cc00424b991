/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPY_UD_H
#define COPY_UD_H

/**
 * @file
 * The cheapest device with datagrams: a post is a memcpy into a buffer of the peer and a
 * completion, in one process. Its two functions have names of their own (copy_ud_*), so that a
 * profile can leave them out.
 */

#include "crpc_rdma.h"

/** Make one; all of them reach each other. NULL: no memory, or too many. */
struct crpc_rdma *copy_ud_open(void);

#endif
