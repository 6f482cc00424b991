/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libibverbs would ask the kernel about fork(): pages that a device reads are copied for the
 * child, as kernels do since 5.12, so nothing has to be protected. It asks through a netlink socket
 * that this library has not; without that answer it protects each queue and region by itself, and
 * under RDMAV_HUGEPAGES_SAFE, which DPDK sets, it reads /proc/self/smaps for each of them: a
 * thousand queue pairs take minutes.
 *
 * It is true of this device: it reads and writes a process's memory by its own addresses.
 */
#include <infiniband/verbs.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int
ibv_fork_init(void)
{
	return 0;
}

EXPORT enum ibv_fork_status
ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
