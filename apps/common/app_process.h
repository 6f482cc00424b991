/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_PROCESS_H
#define APP_PROCESS_H

/**
 * @file
 * A second process of this program: a fork without exec, before the EAL and before any thread, so
 * what was allocated before is there at the same addresses. Both run the same steps, and exchange
 * bytes by a socket (app_link.h).
 *
 * The second process ignores signals while the first one lives. When that one ends, however it
 * does, what it waits for fails.
 *
 * Threads: one in each process.
 */

#include <sys/types.h>

#include "app_measure.h"

/** Descriptors in one message. */
#define APP_PROCESS_FDS_MAX 4

/** How far a side of a slice is; on a line of its own, as the other side polls it. */
struct app_flag {
	_Atomic uint32_t over crpc_aligned(CRPC_CACHE_GUARD);
};

/** Memory of both processes. */
struct app_shared {
	struct app_flag flag[2];
	struct app_court court;
};

/** One of the two, as it sees both. */
struct app_process {
	struct app_shared *shared;
	pid_t pid[2];
	int side; /**< 0 in the first process, 1 in the second one. */
	/** Of the first and of the second process: for bytes, for descriptors. */
	int link[2], sock[2];
	bool gone;
	char why[128]; /**< In the first process: how the second one ended. */
};

/** Start it: returns in both processes. NULL with errno: there is none. */
struct app_process *app_process_start(void);

/** Leave it; the first process waits until the second one has ended, or kills it. NULL is fine. */
void app_process_end(struct app_process *p);

/** In the first process: whether the second one has ended; waits for that. `why` says how. */
bool app_process_ended(struct app_process *p, uint32_t wait_ms);

/** In the first process: send descriptors to the second one: 0 or -errno. */
int app_process_give_fds(struct app_process *p, const int *fd, uint32_t n);

/** In the second process: wait for descriptors: 0 or -errno. */
int app_process_take_fds(struct app_process *p, int *fd, uint32_t n);

#endif
