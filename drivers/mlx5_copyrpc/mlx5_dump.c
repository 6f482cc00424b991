/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text of a WQE, of a CQE and of all queues, for logs and golden tests. It decodes what lies in
 * memory and knows nothing of who wrote it: every length is bounded by the ring.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "mlx5_copyrpc.h"

/* Bytes of inline data that are shown. */
#define INLINE_SHOWN 32

struct text {
	char *buf;
	size_t len;
	size_t used; /* Without the 0; at most len - 1. */
};

static void put(struct text *t, const char *fmt, ...) crpc_printf(2, 3);

static void
put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->used, t->len - t->used, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->used = crpc_min(t->used + (size_t)n, t->len - 1);
}

static const char *
opcode_name(uint32_t opcode)
{
	static const char *const names[] = {
		[MLX5_OPCODE_NOP] = "NOP",
		[MLX5_OPCODE_RDMA_WRITE] = "RDMA_WRITE",
		[MLX5_OPCODE_RDMA_WRITE_IMM] = "RDMA_WRITE_IMM",
		[MLX5_OPCODE_SEND] = "SEND",
		[MLX5_OPCODE_SEND_IMM] = "SEND_IMM",
		[MLX5_OPCODE_RDMA_READ] = "RDMA_READ",
	};

	return opcode < CRPC_DIM(names) && names[opcode] != NULL ? names[opcode] : "opcode?";
}

static const char *
cqe_name(uint32_t opcode)
{
	static const char *const names[16] = {
		[MLX5_CQE_REQ] = "REQ",
		[MLX5_CQE_RESP_WR_IMM] = "RESP_WR_IMM",
		[MLX5_CQE_RESP_SEND] = "RESP_SEND",
		[MLX5_CQE_RESP_SEND_IMM] = "RESP_SEND_IMM",
		[MLX5_CQE_REQ_ERR] = "REQ_ERR",
		[MLX5_CQE_RESP_ERR] = "RESP_ERR",
		[MLX5_CQE_INVALID] = "INVALID",
	};

	return names[opcode] != NULL ? names[opcode] : "cqe?";
}

/* Shows the first bytes of inline data that starts `at` bytes into the ring. */
static void
put_inline(struct text *t, const uint8_t *ring, size_t ring_len, size_t at, uint32_t len)
{
	put(t, " | inline %u:", len);
	for (uint32_t i = 0; i < len && i < INLINE_SHOWN; i++)
		put(t, "%s%02x", i % 4 == 0 ? " " : "", ring[(at + i) % ring_len]);
	if (len > INLINE_SHOWN)
		put(t, " ...");
}

/* The segments from number `i` on, which end after `ds` segments. */
static void
put_payload(
	struct text *t, const uint8_t *ring, size_t ring_len, size_t at, uint32_t i, uint32_t ds)
{
	struct mlx5_wqe_data_seg data;
	uint32_t count, n;

	for (; i < ds; i += n) {
		memcpy(&data, ring + (at + (size_t)i * CRPC_MLX5_SEG) % ring_len, sizeof(data));
		count = be32toh(data.byte_count);
		n = 1;
		if (count & MLX5_INLINE_SEG) {
			count &= 0x3ff;
			put_inline(t, ring, ring_len,
				at + (size_t)i * CRPC_MLX5_SEG +
					sizeof(struct mlx5_wqe_inl_data_seg),
				count);
			n = (count + (uint32_t)sizeof(struct mlx5_wqe_inl_data_seg) + 15) /
				CRPC_MLX5_SEG;
		} else {
			put(t, " | data 0x%" PRIx64 " len %u lkey 0x%x", be64toh(data.addr), count,
				be32toh(data.lkey));
		}
	}
}

/* The address vector behind control; its segments. */
static uint32_t
put_av(struct text *t, const uint8_t *wqe, bool dc)
{
	struct mlx5_wqe_av av;
	uint32_t dest;

	/* Both lie in the first block. */
	memcpy(&av, wqe + CRPC_MLX5_SEG, sizeof(av));
	dest = be32toh(av.dqp_dct);
	put(t, " | to 0x%x lid %u%s", dest & CRPC_IB_QPN_MASK, be16toh(av.rlid),
		dest & MLX5_EXTENDED_UD_AV ? "" : " compact");
	if (!dc)
		put(t, " qkey 0x%x", be32toh(av.key.qkey.qkey));
	return dest & MLX5_EXTENDED_UD_AV ? sizeof(av) / CRPC_MLX5_SEG : 1;
}

size_t
crpc_mlx5_wqe_text(
	const void *ring, uint32_t bb_count, uint32_t idx, bool dc, char *buf, size_t len)
{
	size_t ring_len = (size_t)bb_count * CRPC_MLX5_BB;
	size_t at = (size_t)(idx & (bb_count - 1)) * CRPC_MLX5_BB;
	struct text t = {.buf = buf, .len = len};
	struct crpc_mlx5_ctrl ctrl;
	struct mlx5_wqe_raddr_seg raddr;
	uint32_t word, ds, opcode, i = 1;

	if (len == 0 || !crpc_is_pow2(bb_count))
		return 0;
	memcpy(&ctrl, (const uint8_t *)ring + at, sizeof(ctrl));
	word = be32toh(ctrl.opmod_idx_opcode);
	opcode = word & 0xff;
	ds = be32toh(ctrl.qpn_ds) & CRPC_MLX5_DS_MASK;
	put(&t, "WQE %u qp 0x%x %s ds %u", word >> 8 & CRPC_MLX5_WQE_CTR_MASK,
		be32toh(ctrl.qpn_ds) >> 8, opcode_name(opcode), ds);
	if (be32toh(ctrl.flags) & MLX5_WQE_CTRL_CQ_UPDATE)
		put(&t, " cqe");
	if (opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_SEND_IMM)
		put(&t, " imm 0x%x", be32toh(ctrl.imm));
	if (opcode == MLX5_OPCODE_SEND_IMM || (dc && opcode != MLX5_OPCODE_NOP))
		i += put_av(&t, (const uint8_t *)ring + at, dc);
	if (opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
		opcode == MLX5_OPCODE_RDMA_READ) {
		memcpy(&raddr,
			(const uint8_t *)ring + (at + (size_t)i++ * CRPC_MLX5_SEG) % ring_len,
			sizeof(raddr));
		put(&t, " | raddr 0x%" PRIx64 " rkey 0x%x", be64toh(raddr.raddr),
			be32toh(raddr.rkey));
	}
	if (i > 1)
		put_payload(&t, ring, ring_len, at, i, ds);
	return t.used;
}

size_t
crpc_mlx5_cqe_text(const union crpc_mlx5_cqe *cqe, char *buf, size_t len)
{
	struct text t = {.buf = buf, .len = len};
	uint8_t op_own = cqe->ok.op_own;
	uint32_t word = be32toh(cqe->ok.sop_drop_qpn);
	uint32_t opcode = op_own >> 4;

	if (len == 0)
		return 0;
	put(&t, "CQE %s owner %u qp 0x%x counter %u", cqe_name(opcode),
		op_own & MLX5_CQE_OWNER_MASK, word & CRPC_IB_QPN_MASK,
		be16toh(cqe->ok.wqe_counter));
	if (opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR)
		put(&t, " %s", opcode_name(word >> 24));
	if (opcode == MLX5_CQE_RESP_WR_IMM || opcode == MLX5_CQE_RESP_SEND_IMM)
		put(&t, " imm 0x%x", be32toh(cqe->ok.imm_inval_pkey));
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		put(&t, " syndrome 0x%02x vendor 0x%02x: %s", cqe->err.syndrome,
			cqe->err.vendor_err_synd, crpc_mlx5_syndrome_find(cqe->err.syndrome)->name);
	else if (opcode != MLX5_CQE_INVALID)
		put(&t, " bytes %u", be32toh(cqe->ok.byte_cnt));
	return t.used;
}

void
crpc_mlx5_newest_text(const struct crpc_mlx5_qp *qp, char *text, size_t len)
{
	const struct crpc_mlx5_sq *sq = &qp->own;

	text[0] = '\0';
	if (sq->pi != 0)
		crpc_mlx5_wqe_text(sq->buf, sq->bb_mask + 1, sq->newest, qp->ib.kind == CRPC_IB_DCI,
			text, len);
}

void
crpc_mlx5_dump(const struct crpc_rdma *base, FILE *out)
{
	const struct crpc_mlx5_dev *dev = crpc_mlx5_dev(base);

	fprintf(out,
		"cq: %u read, %u entries, %u of %u set aside; %" PRIu64 " doorbells, %" PRIu64
		" WQEs, %" PRIu64 " polls, %" PRIu64 " of them empty\n",
		dev->cq.ci, dev->cq.mask + 1, dev->ib.cq_used, dev->ib.cq_depth,
		base->stats.doorbells, base->stats.wqes, base->stats.polls,
		base->stats.empty_polls);
	for (const struct crpc_ib_qp *qp = dev->ib.qps; qp != NULL; qp = qp->next)
		crpc_mlx5_queue_dump(crpc_mlx5_qp(qp), out);
}
