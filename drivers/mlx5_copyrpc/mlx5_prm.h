/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_PRM_H
#define CRPC_MLX5_PRM_H

/**
 * @file
 * What the device reads and writes, as words.
 *
 * A send WQE is a row of 16-byte segments, at most CRPC_MLX5_WQEBB_MAX blocks of 64 bytes:
 *
 *     byte  0        16         32
 *           | ctrl    | raddr    | data | data | ...          gathered: 16 bytes per element
 *           | ctrl    | raddr    | 0x80000000 + len, bytes... inline, padded to 16
 *           | ctrl    | raddr    |                            no payload
 *           | ctrl    | av (48)  | data ...                   a datagram
 *           | ctrl    | av (48 or 16)      | raddr | data ...  a DC initiator
 *
 * Segments are those of infiniband/mlx5dv.h. Two layouts are described again, tied to that header
 * by the asserts below: the control segment, in whole words where that header has single bytes, and
 * the completion, whose end, with its owner bit, is one atomic word. All words are big endian. An
 * element of length 0 gets no data segment: a byte count of 0 means 2^31. An address vector may end
 * after 16 bytes where no global route is needed (without MLX5_EXTENDED_UD_AV). Sections: PRM
 * (Ethernet Adapters Programming Manual) "Send WQE Construction" and "Completion Queue Entries".
 */

#include <endian.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/mlx5dv.h>

#define CRPC_MLX5_BB  64 /**< Bytes of a WQE block (WQEBB). */
#define CRPC_MLX5_SEG 16 /**< Bytes of a segment; the unit of ds. */
#define CRPC_MLX5_CQE 64 /**< Bytes of a completion. */
/** Blocks of the largest WQE this driver builds. A device takes 16. */
#define CRPC_MLX5_WQEBB_MAX 8
/** Bytes of one message or of one gather element. Bit 31 of a length would mean inline data. */
#define CRPC_MLX5_MSG_MAX (1u << 30)
/** Bits that a doorbell record counts. */
#define CRPC_MLX5_WQE_CTR_MASK 0xffffu
/** Blocks of a send queue, at most, so that a full one is no empty one. */
#define CRPC_MLX5_BLOCKS_MAX   (1u << 15)
#define CRPC_MLX5_CQE_CTR_MASK 0xffffffu
/** ds field of qpn_ds. */
#define CRPC_MLX5_DS_MASK 0x3fu

/** Control segment. */
struct crpc_mlx5_ctrl {
	uint32_t opmod_idx_opcode; /**< opmod 31:24, index of the first block 23:8, opcode 7:0. */
	uint32_t qpn_ds;           /**< QPN 31:8, length in segments 5:0. */
	uint32_t flags;            /**< Signature 31:24, stream 23:8, fm_ce_se 7:0. */
	uint32_t imm;              /**< Arrives verbatim in the peer's completion. */
};

/** Bytes between the start of a WQE and its payload. */
#define CRPC_MLX5_RC_HEAD (sizeof(struct crpc_mlx5_ctrl) + sizeof(struct mlx5_wqe_raddr_seg))
#define CRPC_MLX5_UD_HEAD (sizeof(struct crpc_mlx5_ctrl) + sizeof(struct mlx5_wqe_av))
#define CRPC_MLX5_DC_HEAD (CRPC_MLX5_UD_HEAD + sizeof(struct mlx5_wqe_raddr_seg))

/** Largest inline payload: what the largest WQE leaves beside these headers. */
#define CRPC_MLX5_INLINE_MAX_OF(head)                                                              \
	(CRPC_MLX5_WQEBB_MAX * CRPC_MLX5_BB - (head) - sizeof(struct mlx5_wqe_inl_data_seg))
#define CRPC_MLX5_INLINE_MAX CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_RC_HEAD)

/** Completion. */
union crpc_mlx5_cqe {
	struct mlx5_cqe64 ok;
	struct mlx5_err_cqe err;
	struct {
		uint8_t body[56];
		/** QPN, counter, opcode, owner: the device writes them last, we read them
		 *  first. */
		_Atomic uint64_t tail;
	};
};

/** Format, in op_own: not 0 where data lies inside or the entry is compressed: never on. */
#define CRPC_MLX5_CQE_FORMAT 0xcu

/* The parts of crpc_mlx5_cqe.tail, in the CPU's byte order. */
#define CRPC_MLX5_TAIL_QPN(tail)     ((uint32_t)((tail) >> 32) & CRPC_IB_QPN_MASK)
#define CRPC_MLX5_TAIL_COUNTER(tail) ((uint32_t)((tail) >> 16) & CRPC_MLX5_WQE_CTR_MASK)
#define CRPC_MLX5_TAIL_OPCODE(tail)  ((uint32_t)((tail) >> 4) & 0xf)
#define CRPC_MLX5_TAIL_OWNER(tail)   ((uint32_t)(tail)&MLX5_CQE_OWNER_MASK)
#define CRPC_MLX5_TAIL_FORMAT(tail)  ((uint32_t)(tail)&CRPC_MLX5_CQE_FORMAT)

_Static_assert(sizeof(struct crpc_mlx5_ctrl) == sizeof(struct mlx5_wqe_ctrl_seg) &&
		offsetof(struct crpc_mlx5_ctrl, qpn_ds) ==
			offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds) &&
		offsetof(struct crpc_mlx5_ctrl, flags) + 3 ==
			offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) &&
		offsetof(struct crpc_mlx5_ctrl, imm) == offsetof(struct mlx5_wqe_ctrl_seg, imm),
	"fm_ce_se is the low byte of flags, the rest has the names of that header");
_Static_assert(CRPC_MLX5_UD_HEAD == CRPC_MLX5_BB, "control and address fill one block");
_Static_assert(CRPC_MLX5_INLINE_MAX < 1024, "the length field of inline data has 10 bits");
_Static_assert(CRPC_MLX5_BB == MLX5_SEND_WQE_BB, "a block");
_Static_assert(CRPC_MLX5_WQEBB_MAX *CRPC_MLX5_BB / CRPC_MLX5_SEG <= CRPC_MLX5_DS_MASK, "ds");

_Static_assert(sizeof(union crpc_mlx5_cqe) == CRPC_MLX5_CQE, "a completion is one line");
_Static_assert(offsetof(union crpc_mlx5_cqe, tail) == offsetof(struct mlx5_cqe64, sop_drop_qpn) &&
		offsetof(union crpc_mlx5_cqe, err.s_wqe_opcode_qpn) ==
			offsetof(struct mlx5_cqe64, sop_drop_qpn),
	"the end is the same in both");

#endif
