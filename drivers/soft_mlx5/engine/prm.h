/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_PRM_H
#define SOFT_MLX5_ENGINE_PRM_H

/**
 * @file
 * What the PRM says of WQEs and CQEs, and the limits of this card.
 */

#include <stddef.h>

#include <infiniband/mlx5dv.h>

/** Syndromes of error CQEs, as in the PRM. */
enum sm_syndrome {
	SM_SYND_LOCAL_LENGTH = 0x01,
	SM_SYND_LOCAL_QP_OP = 0x02,
	SM_SYND_LOCAL_PROT = 0x04,
	SM_SYND_FLUSH = 0x05,
	SM_SYND_MW_BIND = 0x06,
	SM_SYND_BAD_RESP = 0x10,
	SM_SYND_LOCAL_ACCESS = 0x11,
	SM_SYND_REMOTE_INVAL = 0x12,
	SM_SYND_REMOTE_ACCESS = 0x13,
	SM_SYND_REMOTE_OP = 0x14,
	SM_SYND_RETRY_EXC = 0x15,
	SM_SYND_RNR_EXC = 0x16,
};

/** CQE opcodes. */
enum sm_cqe_op {
	SM_CQE_REQ = 0,
	SM_CQE_RESP_WR_IMM = 1,
	SM_CQE_RESP_SEND = 2,
	SM_CQE_RESP_SEND_IMM = 3,
	SM_CQE_RESP_SEND_INV = 4,
	SM_CQE_RESIZE_CQ = 5,
	SM_CQE_REQ_ERR = 13,
	SM_CQE_RESP_ERR = 14,
};

/** Send WQE opcodes. */
enum sm_wqe_op {
	SM_OP_NOP = 0x00,
	SM_OP_SEND_INV = 0x01,
	SM_OP_WRITE = 0x08,
	SM_OP_WRITE_IMM = 0x09,
	SM_OP_SEND = 0x0a,
	SM_OP_SEND_IMM = 0x0b,
	SM_OP_READ = 0x10,
	SM_OP_ATOMIC_CS = 0x11,
	SM_OP_ATOMIC_FA = 0x12,
	SM_OP_UMR = 0x25, /**< Bind a memory window, or invalidate one. */
};

#define SM_WQEBB 64u
_Static_assert((int)MLX5_OPCODE_RDMA_WRITE_IMM == SM_OP_WRITE_IMM, "PRM");
_Static_assert((int)MLX5_OPCODE_ATOMIC_FA == SM_OP_ATOMIC_FA, "PRM");
_Static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && MLX5_SEND_WQE_BB == SM_WQEBB, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_raddr_seg, rkey) == 8, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rlid) == 14, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, hop_limit) == 16 + 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rgid) == 32, "PRM");
#define SM_ACCESS_LOCAL_WRITE 1u
#define SM_ACCESS_REMOTE_WRITE 2u
#define SM_ACCESS_REMOTE_READ 4u
#define SM_ACCESS_REMOTE_ATOMIC 8u
#define SM_RD_MAX 16u          /**< READs and atomics that a QP has open, each way. */
#define SM_PSN_MASK 0xffffffu
#define SM_CQ_CI_MASK 0xffffffu

#endif
