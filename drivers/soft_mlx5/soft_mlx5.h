/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_H
#define SOFT_MLX5_H

/**
 * @file
 * The one symbol that the software ConnectX offers to poll loops.
 *
 * A program never links it: it looks the name up once with dlsym(RTLD_DEFAULT) when it opened a
 * device. Where the program runs on a real card the symbol is not there.
 */

#include <stdint.h>

struct ibv_context;

/**
 * Drive the software NIC behind a verbs context from the calling thread, a bounded amount.
 *
 * Call it after ringing a doorbell and whenever a poll emptied the completion queue. Contexts share
 * nothing, so lcores with contexts of their own never meet here.
 *
 * @param context
 *   What ibv_open_device() gave.
 * @return
 *   How much was done; 0: nothing to do, another thread is at it, or not one of ours.
 */
uint32_t soft_mlx5_progress(struct ibv_context *context);

#define SOFT_MLX5_PROGRESS_SYMBOL "soft_mlx5_progress"

#endif
