/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_PRM_H
#define SOFT_MLX5_ENGINE_PRM_H

/**
 * @file
 * What the PRM says of WQEs and CQEs, and the limits of this card.
 */

#include <stddef.h>

#include <infiniband/mlx5dv.h>

#define SM_WQEBB 64u
_Static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && MLX5_SEND_WQE_BB == SM_WQEBB, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_raddr_seg, rkey) == 8, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rlid) == 14, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, hop_limit) == 16 + 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rgid) == 32, "PRM");
#define SM_RD_MAX 16u          /**< READs and atomics that a QP has open, each way. */
#define SM_PSN_MASK 0xffffffu
#define SM_CQ_CI_MASK 0xffffffu

#endif
