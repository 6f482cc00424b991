/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program can put where the software ConnectX looks: send and receive WQEs, doorbell
 * records, doorbells, the links of shared receives, and consumer indexes, in any bytes and at any
 * time, on queue pairs of every type. The card must stay within the queues and the registered
 * regions, complete nothing that was not there, and come to an end of its work.
 *
 * Input: a byte of modes (type of the queue pairs in bits 1-0, scatter to CQE in bit 2, a bad
 * network in bit 3, a small completion queue in bit 4), then steps of four bytes, some with data.
 * One context has both ends, so an input touches no other process.
 */
#include <endian.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>

#include "fuzz.h"
#include "nic.h"

#define SQ_NBB   16u
#define RQ_NWQE  8u
#define RQ_SHIFT 5u
#define SRQ_NWQE 8u
#define REGION   4096u
#define GUARD    256u
#define DC_KEY   UINT64_C(0x1122334455667788)
#define QKEY     0x01020304u

enum {
	STEP_WQE,     /* a: true fields, b: blocks; its bytes follow. */
	STEP_RECV,    /* Likewise, into the receive queue. */
	STEP_DBREC,   /* a: which, b: value. */
	STEP_RING,    /* a: register, b: how. */
	STEP_CONSUME, /* a: which queue, b: how far. */
	STEP_PASS,    /* a: passes, b: time. */
	STEP_STATE,   /* a: which queue pair, b: state. */
	STEP_REGION,  /* The region goes, and comes back with another key. */
	STEPS,
};

/* True fields of a WQE: the others are the input's. */
enum {
	TRUE_CTRL = 1,
	TRUE_LEN = 2,
	TRUE_RADDR = 4,
	TRUE_DATA = 8,
	TRUE_AV = 16,
};

struct queue {
	struct sm_cq *cq;
	uint8_t *buf;
	uint32_t *dbrec;
	uint32_t ncqe, ci;
};

struct pair {
	struct sm_qp *qp;
	uint32_t qpn;
	uint8_t *sq, *rq;
	uint32_t *dbrec;
	uint16_t sq_pi, rq_pi;
};

struct bench {
	struct sm_nic *nic;
	struct sm_pd *pd;
	struct sm_mr *mr;
	struct sm_mw *mw;
	struct sm_srq *srq;
	uint32_t key;
	uint8_t *uar, *srq_buf, *mem;
	uint32_t *srq_dbrec;
	struct queue cq[2];
	struct pair end[2];
	enum sm_qp_type type[2];
	uint64_t now;
};

static void *
memory(size_t n)
{
	void *p = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);

	fuzz_check(p != NULL);
	memset(p, 0, n);
	return p;
}

/* ---- life ---- */

static void
region_make(struct bench *b)
{
	uint32_t lkey, rkey;

	fuzz_check(sm_mr_create(b->nic, b->pd, (uintptr_t)b->mem + GUARD, REGION,
			   (uintptr_t)b->mem + GUARD, 31, &b->mr, &lkey, &b->key) == 0);
	fuzz_check(sm_mw_create(b->nic, b->pd, 2, &b->mw, &rkey) == 0);
}

/* First the window: a region with one that is bound to it stays. */
static void
region_drop(struct bench *b)
{
	fuzz_check(sm_mw_destroy(b->nic, b->mw) == 0);
	fuzz_check(sm_mr_destroy(b->nic, b->mr) == 0);
}

static void
queue_make(struct bench *b, struct queue *q, uint32_t ncqe)
{
	struct sm_cq_attr attr = {.ncqe = ncqe, .cqe_size = 64};
	uint32_t cqn;

	q->ncqe = ncqe;
	attr.buf = q->buf = memory((size_t)ncqe * 64);
	attr.dbrec = q->dbrec = memory(64);
	memset(q->buf, 0xf0, (size_t)ncqe * 64); /* The opcode of an entry never written. */
	fuzz_check(sm_cq_create(b->nic, &attr, &q->cq, &cqn) == 0);
}

static void
srq_make(struct bench *b)
{
	struct sm_srq_attr attr = {
		.pd = b->pd, .nwqe = SRQ_NWQE, .wqe_shift = RQ_SHIFT, .max_sge = 1};
	uint32_t srqn, i;

	attr.buf = b->srq_buf = memory(SRQ_NWQE << RQ_SHIFT);
	attr.dbrec = b->srq_dbrec = memory(64);
	for (i = 0; i < SRQ_NWQE; i++) {
		uint16_t next = htobe16((uint16_t)((i + 1) % SRQ_NWQE));

		memcpy(b->srq_buf + (i << RQ_SHIFT) + 2, &next, sizeof(next));
	}
	fuzz_check(sm_srq_create(b->nic, &attr, &b->srq, &srqn) == 0);
}

static void
end_make(struct bench *b, int i, bool scatter)
{
	struct pair *e = &b->end[i];
	bool dct = b->type[i] == SM_QPT_DCT, dci = b->type[i] == SM_QPT_DCI;
	struct sm_qp_attr attr = {
		.type = b->type[i],
		.pd = b->pd,
		.send_cq = b->cq[0].cq,
		.recv_cq = b->cq[1].cq,
		.srq = dct ? b->srq : NULL,
		.sq_nwqebb = dct ? 0 : SQ_NBB,
		.rq_nwqe = dct || dci ? 0 : RQ_NWQE,
		.rq_wqe_shift = RQ_SHIFT,
		.uar_page = 1,
		.scatter_cqe = scatter,
		.dc_key = DC_KEY,
	};

	attr.sq_buf = e->sq = memory((size_t)SQ_NBB * 64);
	attr.rq_buf = e->rq = memory(RQ_NWQE << RQ_SHIFT);
	attr.dbrec = e->dbrec = memory(64);
	fuzz_check(sm_qp_create(b->nic, &attr, &e->qp, &e->qpn) == 0);
}

/* To a state, by all attributes that the type takes; what is refused is no matter. */
static void
end_state(struct bench *b, int i, enum sm_qp_state state)
{
	struct pair *e = &b->end[i];
	enum sm_qp_type type = b->type[i];
	bool rc = type == SM_QPT_RC, dci = type == SM_QPT_DCI, dct = type == SM_QPT_DCT;
	bool ud = type == SM_QPT_UD;
	struct sm_qp_mod m = {
		.state = state,
		.port = 1,
		.access = 14,
		.qkey = QKEY,
		.dest_qpn = b->end[!i].qpn,
		.dlid = SM_LID,
		.path_mtu = IBV_MTU_1024,
		.min_rnr_timer = 1,
		.timeout = 1,
		.retry_cnt = 1,
		.rnr_retry = 1,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
	};

	m.mask = IBV_QP_STATE;
	if (state == SM_QPS_INIT)
		m.mask |= (uint32_t)IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(ud ? IBV_QP_QKEY : dci ? 0 : IBV_QP_ACCESS_FLAGS);
	else if (state == SM_QPS_RTR && !ud)
		m.mask |= (uint32_t)IBV_QP_PATH_MTU | (dci ? 0 : IBV_QP_AV) |
			(dci || dct ? 0 : IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC : 0) |
			(rc || dct ? IBV_QP_MIN_RNR_TIMER : 0);
	else if (state == SM_QPS_RTS)
		m.mask |= (dci ? 0 : (uint32_t)IBV_QP_SQ_PSN) |
			(rc || dci ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
				   : 0);
	if (sm_qp_modify(b->nic, e->qp, &m) == 0 && state == SM_QPS_RESET) {
		e->dbrec[0] = e->dbrec[1] = 0;
		e->sq_pi = e->rq_pi = 0;
	}
}

static void
bench_open(struct bench *b, uint8_t modes)
{
	static const enum sm_qp_type types[4][2] = {{SM_QPT_RC, SM_QPT_RC}, {SM_QPT_UC, SM_QPT_UC},
		{SM_QPT_UD, SM_QPT_UD}, {SM_QPT_DCI, SM_QPT_DCT}};
	struct sm_nic_attr attr = {0};
	char net[32];
	uint32_t pdn;
	int i;

	memset(b, 0, sizeof(*b));
	b->now = 1;
	snprintf(net, sizeof(net), "fuzz-%d", (int)getpid());
	attr.net = net;
	attr.faults = modes & 8 ? "seed=1,drop=0.1,dup=0.1,delay=0.1,reorder=0.1,rnr=0.1" : NULL;
	fuzz_check(sm_nic_create(&attr, &b->nic) == 0);
	b->uar = memory(4096);
	b->mem = memory(REGION + 2 * GUARD);
	memset(b->mem, 0xa5, REGION + 2 * GUARD);
	fuzz_check(sm_uar_add(b->nic, 1, b->uar) == 0);
	fuzz_check(sm_pd_create(b->nic, &b->pd, &pdn) == 0);
	region_make(b);
	for (i = 0; i < 2; i++)
		queue_make(b, &b->cq[i], modes & 16 ? 4 : 64);
	srq_make(b);
	for (i = 0; i < 2; i++) {
		b->type[i] = types[modes & 3][i];
		end_make(b, i, (modes & 4) != 0);
	}
	for (i = 0; i < 2; i++) {
		end_state(b, i, SM_QPS_INIT);
		end_state(b, i, SM_QPS_RTR);
		end_state(b, i, SM_QPS_RTS);
	}
}

static void
bench_close(struct bench *b)
{
	int i;

	for (i = 0; i < 2; i++) {
		fuzz_check(sm_qp_destroy(b->nic, b->end[i].qp) == 0);
		free(b->end[i].sq);
		free(b->end[i].rq);
		free(b->end[i].dbrec);
	}
	for (i = 0; i < 2; i++) {
		fuzz_check(sm_cq_destroy(b->nic, b->cq[i].cq) == 0);
		free(b->cq[i].buf);
		free(b->cq[i].dbrec);
	}
	fuzz_check(sm_srq_destroy(b->nic, b->srq) == 0);
	region_drop(b);
	sm_nic_free(b->nic);
	free(b->srq_buf);
	free(b->srq_dbrec);
	free(b->uar);
	free(b->mem);
}

/* ---- steps ---- */

static void
put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void
put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

/* A data or remote address segment within the region, as far as the input's bytes allow. */
static void
point(const struct bench *b, uint8_t *seg, size_t addr_at, size_t key_at)
{
	uint16_t off;

	memcpy(&off, seg + addr_at, sizeof(off));
	put64(seg + addr_at, (uintptr_t)b->mem + GUARD + off % (REGION + 8));
	put32(seg + key_at, b->key);
}

static size_t
do_wqe(struct bench *b, struct pair *e, uint8_t how, uint8_t blocks, const uint8_t *data,
	size_t avail)
{
	uint8_t wqe[SQ_NBB * 64] = {0};
	uint32_t n = blocks % SQ_NBB + 1u, i, ds, at = 16;
	size_t used = avail < (size_t)n * 64 ? avail : (size_t)n * 64;

	memcpy(wqe, data, used);
	ds = wqe[7] & 0x3f;
	if (how & TRUE_CTRL) {
		wqe[0] = 0;
		wqe[1] = (uint8_t)(e->sq_pi >> 8);
		wqe[2] = (uint8_t)e->sq_pi;
		ds = how & TRUE_LEN ? (uint32_t)(used + 15) / 16 : ds;
		put32(wqe + 4, e->qpn << 8 | (ds & 0x3f));
	}
	if (how & TRUE_AV) {
		put32(wqe + 16, b->type[0] == SM_QPT_DCI ? (uint32_t)(DC_KEY >> 32) : QKEY);
		put32(wqe + 20, (uint32_t)DC_KEY);
		put32(wqe + 24, b->end[1].qpn | (wqe[24] & 0x80u) << 24);
		wqe[30] = 0;
		wqe[31] = SM_LID;
		at += wqe[24] & 0x80 ? 48 : 16;
	}
	if (wqe[3] == MLX5_OPCODE_UMR && how & TRUE_RADDR) { /* What a bind names. */
		put64(wqe + 80, (uintptr_t)b->mem + GUARD);
		put32(wqe + 132, b->key);
		how &= ~(TRUE_RADDR | TRUE_DATA) & 0xff;
	}
	if (how & TRUE_RADDR) {
		point(b, wqe + at, 0, 8);
		at += (wqe[3] & 0xf0) == 0x10 && wqe[3] != MLX5_OPCODE_RDMA_READ ? 32 : 16;
	}
	for (; how & TRUE_DATA && at + 16 <= ds * 16 && (wqe[at] & 0x80) == 0; at += 16) {
		point(b, wqe + at, 8, 4);
		wqe[at] = wqe[at + 1] = 0;
	}
	for (i = 0; i < n; i++)
		memcpy(e->sq + (size_t)((e->sq_pi + i) & (SQ_NBB - 1)) * 64, wqe + (size_t)i * 64,
			64);
	e->sq_pi = (uint16_t)(e->sq_pi + (ds != 0 ? (ds + 3) / 4 : n));
	e->dbrec[1] = htobe32(e->sq_pi);
	return used;
}

static size_t
do_recv(struct bench *b, struct pair *e, uint8_t how, const uint8_t *data, size_t avail)
{
	bool shared = b->type[1] == SM_QPT_DCT;
	uint8_t *wqe = (shared ? b->srq_buf : e->rq) +
		((size_t)(e->rq_pi & (RQ_NWQE - 1)) << RQ_SHIFT);
	size_t used = avail < 1u << RQ_SHIFT ? avail : 1u << RQ_SHIFT;

	memcpy(wqe, data, used);
	if (how & TRUE_DATA) {
		point(b, wqe + (shared ? 16 : 0), 8, 4);
		wqe[shared ? 16 : 0] = 0;
	}
	if (shared && how & TRUE_CTRL) {
		wqe[2] = 0;
		wqe[3] = (uint8_t)((e->rq_pi + 1) & (SRQ_NWQE - 1));
	}
	e->rq_pi++;
	if (shared)
		b->srq_dbrec[0] = htobe32(e->rq_pi);
	else
		e->dbrec[0] = htobe32(e->rq_pi);
	return used;
}

static void
do_ring(struct bench *b, struct pair *e, uint8_t reg, uint8_t how)
{
	uint64_t word[2];

	memcpy(word, e->sq + (size_t)((e->sq_pi - 1u) & (SQ_NBB - 1)) * 64, sizeof(word));
	if (how & 1)
		put32((uint8_t *)word + 4, e->qpn << 8 | how);
	memcpy(b->uar + 0x800 + (reg & 3) * 0x100u, word, how & 2 ? 16 : 8);
}

static void
do_pass(struct bench *b, uint8_t passes, uint8_t time)
{
	uint32_t i;

	for (i = 0; i < passes % 32u + 1; i++) {
		b->now += (uint64_t)time << (time % 16);
		sm_nic_progress(b->nic, b->now);
	}
}

static void
do_consume(struct bench *b, uint8_t which, uint8_t far)
{
	struct queue *q = &b->cq[which & 1];

	q->ci += far & 0x80 ? far * 7919u : far % q->ncqe;
	q->dbrec[0] = htobe32(q->ci & 0xffffff);
	if (far & 0x40)
		q->dbrec[1] = htobe32(far);
}

/* Only the region was written, and completions are of the kinds that there are. */
static void
check_all(const struct bench *b)
{
	uint32_t i, k;

	for (i = 0; i < GUARD; i++)
		fuzz_check(b->mem[i] == 0xa5 && b->mem[GUARD + REGION + i] == 0xa5);
	for (k = 0; k < 2; k++)
		for (i = 0; i < b->cq[k].ncqe; i++) {
			uint8_t op = b->cq[k].buf[i * 64 + 63] >> 4;

			fuzz_check(op <= MLX5_CQE_RESP_SEND_INV || op >= MLX5_CQE_REQ_ERR);
		}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bench b;
	struct pair *e;

	if (size == 0)
		return 0;
	bench_open(&b, data[0]);
	data++;
	size--;
	while (size >= 4) {
		uint8_t kind = data[0] % STEPS, how = data[2], far = data[3];
		size_t used = 0;

		e = &b.end[data[1] & 1];
		data += 4;
		size -= 4;
		if (kind == STEP_WQE) {
			used = do_wqe(&b, e, how, far, data, size);
		} else if (kind == STEP_RECV) {
			used = do_recv(&b, e, how, data, size);
		} else if (kind == STEP_DBREC) {
			e->dbrec[how & 1] = htobe32(far & 1 ? far * 65521u : far);
		} else if (kind == STEP_RING) {
			do_ring(&b, e, how, far);
		} else if (kind == STEP_CONSUME) {
			do_consume(&b, how, far);
		} else if (kind == STEP_PASS) {
			do_pass(&b, how, far);
		} else if (kind == STEP_STATE) {
			end_state(&b, (int)(how & 1), (enum sm_qp_state)(far % 7));
		} else {
			region_drop(&b);
			region_make(&b);
		}
		data += used;
		size -= used;
	}
	do_pass(&b, 31, 200);
	check_all(&b);
	bench_close(&b);
	return 0;
}
