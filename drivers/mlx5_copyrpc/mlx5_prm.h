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
 * infiniband/mlx5dv.h describes the same layouts; the asserts below tie the two together. The names
 * here differ in what the datapath needs: whole words where that header has single bytes, and the
 * end of a completion, with its owner bit, as one atomic word. All words are big endian. Sections:
 * PRM (Ethernet Adapters Programming Manual) "Send WQE Construction" and "Completion Queue
 * Entries".
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
/** Blocks of a send queue, at most, so that the record tells a full one from an empty one. */
#define CRPC_MLX5_BLOCKS_MAX   (1u << 15)
#define CRPC_MLX5_CQE_CTR_MASK 0xffffffu
#define CRPC_MLX5_QPN_MASK     0xffffffu
/** ds field of qpn_ds. */
#define CRPC_MLX5_DS_MASK 0x3fu

/** Control segment. */
struct crpc_mlx5_ctrl {
	uint32_t opmod_idx_opcode; /**< opmod 31:24, index of the first block 23:8, opcode 7:0. */
	uint32_t qpn_ds;           /**< QPN 31:8, length in segments 5:0. */
	uint32_t flags;            /**< Signature 31:24, stream 23:8, fm_ce_se 7:0. */
	uint32_t imm;              /**< Arrives verbatim in the peer's completion. */
};

/** Remote address segment. */
struct crpc_mlx5_raddr {
	uint64_t raddr;
	uint32_t rkey;
	uint32_t reserved;
};

/** Data segment. A length of 0 means 2^31 bytes, so an empty element gets no segment at all. */
struct crpc_mlx5_data {
	uint32_t byte_count;
	uint32_t lkey;
	uint64_t addr;
};

/** Header of inline data; the bytes follow it at once. */
struct crpc_mlx5_inline {
	uint32_t byte_count; /**< MLX5_INLINE_SEG | length. */
};

/**
 * Address vector: to whom the WQE of a datagram or of a DC initiator goes. A device takes it whole
 * or, where no global route is needed, its first 16 bytes alone (without MLX5_EXTENDED_UD_AV).
 */
struct crpc_mlx5_av {
	union {
		uint32_t qkey; /**< UD; the word behind it is 0. */
		uint64_t dc_key;
	};
	uint32_t dqp_dct; /**< MLX5_EXTENDED_UD_AV | QPN. */
	uint8_t stat_rate_sl;
	uint8_t fl_mlid;
	uint16_t rlid;
	uint8_t route[32]; /**< rmac, tclass, hop limit, flow label and GIDs. */
};

/** Bytes between the start of a WQE and its payload. */
#define CRPC_MLX5_RC_HEAD (sizeof(struct crpc_mlx5_ctrl) + sizeof(struct crpc_mlx5_raddr))
#define CRPC_MLX5_UD_HEAD (sizeof(struct crpc_mlx5_ctrl) + sizeof(struct crpc_mlx5_av))
#define CRPC_MLX5_DC_HEAD (CRPC_MLX5_UD_HEAD + sizeof(struct crpc_mlx5_raddr))

/** Largest inline payload: what the largest WQE leaves beside these headers. */
#define CRPC_MLX5_INLINE_MAX_OF(head)                                                              \
	(CRPC_MLX5_WQEBB_MAX * CRPC_MLX5_BB - (head) - sizeof(struct crpc_mlx5_inline))
#define CRPC_MLX5_INLINE_MAX CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_RC_HEAD)

/** What a datagram has in front of its payload where it arrives: a GRH, or room for one. */
#define CRPC_MLX5_GRH 40

/** Completion, good or in error (vendor_err and syndrome lie over the timestamp). */
struct crpc_mlx5_cqe {
	uint8_t rsvd0[32];
	uint32_t srqn_uidx;
	uint32_t imm;
	uint8_t rsvd40[4];
	uint32_t byte_cnt;
	uint8_t rsvd48[6];
	uint8_t vendor_err;
	uint8_t syndrome;
	union {
		struct {
			uint32_t opcode_qpn;  /**< WQE opcode 31:24 (requester), QPN 23:0. */
			uint16_t wqe_counter; /**< Requester: first block. Responder: receive. */
			uint8_t signature;
			uint8_t op_own; /**< CQE opcode 7:4, format 3:2, owner 0. */
		};
		_Atomic uint64_t
			tail; /**< All four: the device writes them last, we read them first. */
	};
};

/**
 * One completion of a compressed session. A session takes as many entries as it has completions:
 *
 *     entry  0        1                2..7      8                9..       count - 1
 *            title    8 of these       stale     8 of these       stale
 *            for 0    for 0 to 7                 for 8 to 15
 *
 * The title is a completion like others, but with format 3 and the count where its bytes would be;
 * what is not here is the same for all. (The second array follows 7 entries behind the first, the
 * next ones 8.)
 */
struct crpc_mlx5_mini_cqe {
	union {
		struct {
			uint16_t wqe_counter;
			uint8_t wqe_opcode;
			uint8_t reserved;
		};             /**< Of a requester. */
		uint32_t hash; /**< Of a responder, whose counter is the title's plus its place. */
	};
	uint32_t byte_cnt;
};

#define CRPC_MLX5_MINI_PER_CQE (CRPC_MLX5_CQE / sizeof(struct crpc_mlx5_mini_cqe))
/** Format, in op_own: 0 for most; with data inside, which this driver turns off; a title. */
#define CRPC_MLX5_CQE_FORMAT     0xcu
#define CRPC_MLX5_CQE_COMPRESSED 0xcu

/* The parts of crpc_mlx5_cqe.tail, in the CPU's byte order. */
#define CRPC_MLX5_TAIL_QPN(tail)     ((uint32_t)((tail) >> 32) & CRPC_MLX5_QPN_MASK)
#define CRPC_MLX5_TAIL_COUNTER(tail) ((uint32_t)((tail) >> 16) & CRPC_MLX5_WQE_CTR_MASK)
#define CRPC_MLX5_TAIL_OPCODE(tail)  ((uint32_t)((tail) >> 4) & 0xf)
#define CRPC_MLX5_TAIL_OWNER(tail)   ((uint32_t)(tail)&MLX5_CQE_OWNER_MASK)
#define CRPC_MLX5_TAIL_FORMAT(tail)  ((uint32_t)(tail)&CRPC_MLX5_CQE_FORMAT)

#define CRPC_MLX5_SAME(ours, a, theirs, b)                                                         \
	_Static_assert(offsetof(struct ours, a) == offsetof(struct theirs, b), #ours "." #a)

_Static_assert(sizeof(struct crpc_mlx5_ctrl) == sizeof(struct mlx5_wqe_ctrl_seg), "ctrl");
CRPC_MLX5_SAME(crpc_mlx5_ctrl, opmod_idx_opcode, mlx5_wqe_ctrl_seg, opmod_idx_opcode);
CRPC_MLX5_SAME(crpc_mlx5_ctrl, qpn_ds, mlx5_wqe_ctrl_seg, qpn_ds);
CRPC_MLX5_SAME(crpc_mlx5_ctrl, flags, mlx5_wqe_ctrl_seg, signature);
_Static_assert(
	offsetof(struct crpc_mlx5_ctrl, flags) + 3 == offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se),
	"fm_ce_se is the low byte of flags");
CRPC_MLX5_SAME(crpc_mlx5_ctrl, imm, mlx5_wqe_ctrl_seg, imm);

_Static_assert(sizeof(struct crpc_mlx5_raddr) == sizeof(struct mlx5_wqe_raddr_seg), "raddr");
CRPC_MLX5_SAME(crpc_mlx5_raddr, raddr, mlx5_wqe_raddr_seg, raddr);
CRPC_MLX5_SAME(crpc_mlx5_raddr, rkey, mlx5_wqe_raddr_seg, rkey);

_Static_assert(sizeof(struct crpc_mlx5_av) == sizeof(struct mlx5_wqe_av), "av");
CRPC_MLX5_SAME(crpc_mlx5_av, dc_key, mlx5_wqe_av, key.dc_key);
CRPC_MLX5_SAME(crpc_mlx5_av, qkey, mlx5_wqe_av, key.qkey.qkey);
CRPC_MLX5_SAME(crpc_mlx5_av, dqp_dct, mlx5_wqe_av, dqp_dct);
CRPC_MLX5_SAME(crpc_mlx5_av, rlid, mlx5_wqe_av, rlid);
CRPC_MLX5_SAME(crpc_mlx5_av, route, mlx5_wqe_av, reserved0);
_Static_assert(CRPC_MLX5_UD_HEAD == CRPC_MLX5_BB, "control and address fill one block");

_Static_assert(sizeof(struct crpc_mlx5_data) == sizeof(struct mlx5_wqe_data_seg), "data");
CRPC_MLX5_SAME(crpc_mlx5_data, byte_count, mlx5_wqe_data_seg, byte_count);
CRPC_MLX5_SAME(crpc_mlx5_data, lkey, mlx5_wqe_data_seg, lkey);
CRPC_MLX5_SAME(crpc_mlx5_data, addr, mlx5_wqe_data_seg, addr);

_Static_assert(sizeof(struct crpc_mlx5_inline) == sizeof(struct mlx5_wqe_inl_data_seg), "inline");
_Static_assert(CRPC_MLX5_INLINE_MAX < 1024, "the length field of inline data has 10 bits");
_Static_assert(CRPC_MLX5_BB == MLX5_SEND_WQE_BB, "a block");
_Static_assert(CRPC_MLX5_WQEBB_MAX *CRPC_MLX5_BB / CRPC_MLX5_SEG <= CRPC_MLX5_DS_MASK, "ds");

_Static_assert(sizeof(struct crpc_mlx5_cqe) == CRPC_MLX5_CQE, "a completion is one line");
_Static_assert(sizeof(struct crpc_mlx5_cqe) == sizeof(struct mlx5_cqe64), "cqe");
_Static_assert(sizeof(struct crpc_mlx5_mini_cqe) == 8, "eight to an entry");
CRPC_MLX5_SAME(crpc_mlx5_cqe, srqn_uidx, mlx5_cqe64, srqn_uidx);
CRPC_MLX5_SAME(crpc_mlx5_cqe, imm, mlx5_cqe64, imm_inval_pkey);
CRPC_MLX5_SAME(crpc_mlx5_cqe, byte_cnt, mlx5_cqe64, byte_cnt);
CRPC_MLX5_SAME(crpc_mlx5_cqe, opcode_qpn, mlx5_cqe64, sop_drop_qpn);
CRPC_MLX5_SAME(crpc_mlx5_cqe, wqe_counter, mlx5_cqe64, wqe_counter);
CRPC_MLX5_SAME(crpc_mlx5_cqe, op_own, mlx5_cqe64, op_own);
_Static_assert(sizeof(struct mlx5_err_cqe) == sizeof(struct mlx5_cqe64), "error cqe");
CRPC_MLX5_SAME(crpc_mlx5_cqe, vendor_err, mlx5_err_cqe, vendor_err_synd);
CRPC_MLX5_SAME(crpc_mlx5_cqe, syndrome, mlx5_err_cqe, syndrome);
CRPC_MLX5_SAME(crpc_mlx5_cqe, opcode_qpn, mlx5_err_cqe, s_wqe_opcode_qpn);
CRPC_MLX5_SAME(crpc_mlx5_cqe, wqe_counter, mlx5_err_cqe, wqe_counter);
CRPC_MLX5_SAME(crpc_mlx5_cqe, op_own, mlx5_err_cqe, op_own);
CRPC_MLX5_SAME(crpc_mlx5_cqe, tail, mlx5_cqe64, sop_drop_qpn);

#endif
