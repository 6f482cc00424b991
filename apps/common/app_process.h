/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_PROCESS_H
#define APP_PROCESS_H

/**
 * @file
 * A second process of this program: a fork without exec, before the EAL and before any thread, so
 * what was allocated before is there at the same addresses. Both run the same steps, and exchange
 * messages in the same order, so neither is ever more than one message ahead.
 *
 * The second process ignores signals while the first one lives. When that one ends, however it
 * does, what it waits for fails.
 *
 * Threads: one in each process.
 */

#include <sys/types.h>

#include "app_measure.h"

/** Bytes of a message at most. */
#define APP_PROCESS_MAX 8192
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
	struct app_process_memory *m;
	struct app_shared *shared; /**< In it. */
	pid_t pid[2];
	int side;          /**< 0 in the first process, 1 in the second one. */
	int sock[2];       /**< Of the first and of the second process. */
	uint32_t taken;    /**< Messages. */
	uint32_t spins;    /**< In this wait, */
	uint64_t since_ns; /**< and when it began to sleep. */
	bool gone;
	char why[128];     /**< In the first process: how the second one ended. */
};

/** Start it: returns in both processes. NULL with errno: there is none. */
struct app_process *app_process_start(void);

/** Leave it; the first process waits until the second one has ended, or kills it. NULL is fine. */
void app_process_end(struct app_process *p);

/** False if the peer is gone. A system call. */
bool app_process_alive(struct app_process *p);

/** Send a message: 0. */
int app_process_send(struct app_process *p, const void *msg, size_t len);

/**
 * Receive the next message.
 *
 * @return
 *   0; -EAGAIN: call again after app_process_idle(); -EPROTO: it has another length; -ECONNRESET:
 *   the peer is gone; -ETIMEDOUT.
 */
int app_process_recv(struct app_process *p, void *msg, size_t len);

/** Between calls of app_process_recv() that give -EAGAIN: spin for a while, then sleep. */
void app_process_idle(struct app_process *p);

/** In the first process: send descriptors to the second one: 0 or -errno. */
int app_process_give_fds(struct app_process *p, const int *fd, uint32_t n);

/** In the second process: wait for descriptors: 0 or -errno. */
int app_process_take_fds(struct app_process *p, int *fd, uint32_t n);

#endif
