/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_ROOM_H
#define APP_ROOM_H

#include <stdint.h>

/**
 * Whether this process may open that many more descriptors and map that much more memory. DPDK, UCX
 * and ZeroMQ abort where they lack either, so ask before they start.
 *
 * @param files
 *   Descriptors.
 * @param mib
 *   MiB of address space.
 * @return
 *   NULL; or what is missing and how to raise the limit, in a buffer of the calling thread.
 */
const char *app_room_lacks(uint32_t files, uint64_t mib);

#endif
