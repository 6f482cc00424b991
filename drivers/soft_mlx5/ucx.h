/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_UCX_H
#define SOFT_MLX5_UCX_H

/**
 * @file
 * Programs that read completion queues in memory themselves call nothing of libibverbs while they
 * poll. UCX, the most common of them, does so from uct_worker_progress(): each of its workers gets
 * a callback that drives the contexts whose queues are read that way.
 */

struct uv_ctx;

/** The context goes: no worker drives it when this returns. */
void sm_ucx_forget(struct uv_ctx *ctx);

/** In a forked child, where no context lives. */
void sm_ucx_fork_child(void);

#endif
