/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MEM_EAL_H
#define CRPC_MEM_EAL_H

/**
 * @file
 * lib/mem in a program with an EAL: memory comes from its hugepages first, the place of a thread is
 * its lcore's, and telemetry has /crpc/mem. Apart from lib/mem, so that clients need no DPDK.
 */

#include "crpc_mem.h"

CRPC_BEGIN_DECLS

/** After rte_eal_init(). An EAL without hugepages (--no-huge) gives none: then the kernel does. */
void crpc_mem_eal_start(void);

/** Before rte_eal_cleanup(). What the EAL gave must have been freed. */
void crpc_mem_eal_stop(void);

CRPC_END_DECLS

#endif
