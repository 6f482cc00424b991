/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_PROGRESS_H
#define SOFT_MLX5_PROGRESS_H

/**
 * @file
 * Who runs the NIC. There is no processor on a card, so some thread of the program must:
 *
 * - a poll loop that knows us calls soft_mlx5_progress() when it found nothing (soft_mlx5.h);
 * - any other program is driven from its own empty ibv_poll_cq() or ibv_start_poll(), which are
 *   wrapped when it opens the device or makes the queue, or from UCX's progress function (ucx.h);
 * - a program that waits elsewhere (blocked for an event, watching memory, a passive target) is
 *   driven by a helper thread. It sleeps, looks every millisecond whether anybody else drives, and
 *   works only where no thread does; while it finds work it comes back sooner. Between two looks it
 *   yields its core, unless a yield took as long as a tick of the scheduler a short time ago.
 *
 * SOFT_MLX5_PROGRESS: inline (the first only), hook (all three, the default), thread (first and
 * third; the helper works always), step (a test alone, soft_mlx5_step.h).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** Who drives; by default poll loops do, as hooks. */
enum sm_progress_mode {
	SM_PROGRESS_UNKNOWN,
	SM_PROGRESS_INLINE,
	SM_PROGRESS_HOOK,
	SM_PROGRESS_THREAD,
	SM_PROGRESS_STEP, /**< Nothing but soft_mlx5_step.h. */
};

enum sm_progress_mode sm_progress_mode(void);
/** The mode, as SOFT_MLX5_PROGRESS names it. */
const char *sm_progress_name(void);

struct uv_ctx;
/** Drive a context from a poll that found nothing; true: it may find something now. */
bool sm_progress_empty(struct uv_ctx *ctx);
/** Drive a context, with the clock set to @p now; what it did, as sm_nic_progress() counts. */
uint32_t sm_progress_at(struct uv_ctx *ctx, uint64_t now);

/** The number of a context that is opened now (step.c). */
uint32_t sm_step_number(void);

/** A context was opened: start the helper thread if the mode has one and it does not run. */
void sm_progress_start(void);

/**
 * Held by the helper thread while it drives: whoever frees a context that was in the list, or
 * forks, takes it.
 */
extern pthread_mutex_t sm_drive_lock;

/** In a forked child, where the thread does not exist. */
void sm_progress_fork_child(void);

/** A thread of the library's own, detached and without signals: 0 or an errno value. */
int sm_thread_start(void *(*fn)(void *arg), void *arg, const char *name);

#endif
