/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LCORE_H
#define APP_LCORE_H

/**
 * @file
 * Which cores a rank runs on, and whether it shares them with another rank of the host.
 *
 * A launcher may bind each rank to cores of its own, or leave all ranks on all cores. The ranks
 * exchange their affinity: where masks are disjoint each rank keeps its own; where several
 * ranks have the same mask they divide it, the best cores first (app_cores.h); where there are
 * fewer cores than ranks they share, and their loops must yield (crpc_idle.h).
 */

#include "app_boot.h"
#include "app_eal.h"
#include "crpc_idle.h"

/**
 * Choose the cores of this rank from the process's affinity.
 *
 * @param boot
 *   The ranks; all of them call this.
 * @param device
 *   RDMA device near which cores are taken first; NULL: the first one if there are other ranks.
 * @param max
 *   Cores that the rank can use at most.
 * @param set
 *   Filled: at least one core.
 * @return
 *   0, or -EIO if the exchange failed.
 */
int app_lcore_choose(struct app_boot *boot, const char *device, uint32_t max, cpu_set_t *set);

/**
 * Exchange with the other ranks which cores each one uses.
 *
 * @param boot
 *   The ranks; all of them call this.
 * @param set
 *   Cores of this rank's busy loops.
 * @param shared
 *   Set to true if another rank of this host uses one of them too.
 * @return
 *   0, or -EIO.
 */
int app_lcore_shared(struct app_boot *boot, const cpu_set_t *set, bool *shared);

/**
 * Start the EAL on all ranks, each on cores of its own where there are enough, and catch signals.
 *
 * @param device
 *   As of app_lcore_choose().
 * @param set
 *   Filled: the cores of the EAL's lcores, at most @p max.
 * @param shared
 *   As of app_lcore_shared().
 * @return
 *   0, or an exit code after a line; the same on all ranks.
 */
int app_lcore_start(struct app_boot *boot, const struct app_args *args, const char *device,
	uint32_t max, cpu_set_t *set, bool *shared);

/**
 * When the loops of a rank yield.
 *
 * @param choice
 *   enum app_idle, of --idle.
 * @param crowded
 *   Another rank, or another loop of ours, uses a core of the set.
 * @param served
 *   Clients of other processes need a core of this host, too.
 */
enum crpc_idle_policy app_lcore_idle(
	unsigned int choice, bool crowded, const cpu_set_t *set, bool served);

/** Write the set as "0,2,3". */
void app_lcore_text(const cpu_set_t *set, char *buf, size_t len);

#endif
