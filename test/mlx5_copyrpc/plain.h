/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEST_MLX5_PLAIN_H
#define TEST_MLX5_PLAIN_H

/*
 * A device in plain memory: the queues are arrays of the test, which plays the hardware by reading
 * records and writing completions. There is no other writer, so each byte can be checked.
 */

#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "mlx5_copyrpc.h"

#define PLAIN_QPN     0x1234
#define PLAIN_BB_MAX  1024
#define PLAIN_CQE_MAX 256
#define PLAIN_BF_SIZE 256

struct plain {
	struct crpc_mlx5_dev dev;
	union { /* A datagram queue pair begins with its queue pair. */
		struct crpc_mlx5_qp qp;
		struct crpc_mlx5_ud ud;
	};
	struct crpc_mlx5_bf bf;
	struct crpc_mlx5_slot slot[16];
	struct crpc_mlx5_sent sent[PLAIN_BB_MAX];
	_Atomic uint32_t cq_dbrec[2];
	_Atomic uint32_t qp_dbrec[2];
	uint32_t pi; /* Completions written by the "hardware". */
	uint8_t sq[PLAIN_BB_MAX * CRPC_MLX5_BB] crpc_aligned(64);
	union crpc_mlx5_cqe cq[PLAIN_CQE_MAX] crpc_aligned(64);
	uint8_t reg[2 * PLAIN_BF_SIZE] crpc_aligned(64);
};

/* A connected QP of `depth` sends in a ring of `blocks`, with `recvs` receives, and `cqes`. It is
 * there until the second one after it is made. */
static inline struct plain *
plain_new(uint32_t blocks, uint32_t depth, uint32_t inline_max, uint32_t recvs, uint32_t cqes)
{
	struct plain *p = aligned_alloc(128, crpc_align_up(sizeof(*p), 128));
	static struct plain *made[2];
	static uint32_t n;

	assert_non_null(p);
	free(made[n % 2]);
	made[n++ % 2] = p;
	memset(p, 0, sizeof(*p));
	p->dev.ib.base.fp.post = crpc_mlx5_post;
	p->dev.ib.base.fp.poll = crpc_mlx5_poll;
	p->dev.table = (struct crpc_mlx5_table){.slot = p->slot, .mask = 15, .shift = 28};
	p->dev.cq = (struct crpc_mlx5_cq){.buf = p->cq, .dbrec = p->cq_dbrec, .mask = cqes - 1};
	for (uint32_t i = 0; i < cqes; i++)
		p->cq[i].ok.op_own = MLX5_CQE_INVALID << 4 | 1;
	p->bf = (struct crpc_mlx5_bf){.reg = p->reg, .size = PLAIN_BF_SIZE};
	p->qp.ib.base.dev = &p->dev.ib.base;
	p->qp.ib.base.id = 77;
	p->qp.ib.qpn = PLAIN_QPN;
	p->qp.ib.state = CRPC_IB_READY;
	p->qp.sq = &p->qp.own;
	p->qp.ib.depth = depth;
	p->qp.ib.signal_every = depth / 4 != 0 ? depth / 4 : 1;
	p->qp.ib.inline_max = inline_max;
	p->qp.bb_max = crpc_mlx5_wqebb_max(CRPC_MLX5_RC_HEAD, inline_max);
	p->qp.own = (struct crpc_mlx5_sq){
		.buf = p->sq,
		.end = p->sq + blocks * CRPC_MLX5_BB,
		.sent = p->sent,
		.dbrec = &p->qp_dbrec[1],
		.bf = &p->bf,
		.bb_mask = blocks - 1,
		.qpn_shl8 = PLAIN_QPN << 8,
		.signal_every = p->qp.ib.signal_every,
	};
	p->qp.rq = (struct crpc_mlx5_rq){.dbrec = &p->qp_dbrec[0], .posted = recvs};
	crpc_mlx5_table_add(&p->dev.table, &p->qp);
	return p;
}

/* Makes it a datagram queue pair of 8 buffers, which are not there for others at the same time. */
static inline void
plain_ud(struct plain *p)
{
	static uint8_t buf[8 * CRPC_IB_UD_STRIDE] crpc_aligned(64);

	p->qp.ib.kind = CRPC_IB_UD;
	p->qp.rq.ud = &p->ud;
	p->qp.rq.state = CRPC_MLX5_RQ_NO_IMM;
	p->ud.buf = buf;
	p->ud.lkey = 0x77;
	p->ud.mask = 7;
}

/* The next completion as hardware writes it: all bytes, then the last ones with the lap's owner. */
static inline union crpc_mlx5_cqe *
plain_cqe(struct plain *p, uint8_t opcode, uint32_t word, uint16_t counter)
{
	union crpc_mlx5_cqe *cqe = &p->cq[p->pi & p->dev.cq.mask];
	uint32_t owner = !!(p->pi & (p->dev.cq.mask + 1));

	memset(cqe, 0, offsetof(union crpc_mlx5_cqe, tail));
	crpc_store_release(&cqe->tail,
		htobe64((uint64_t)word << 32 | (uint32_t)counter << 16 | opcode << 4 | owner));
	p->pi++;
	return cqe;
}

#endif
