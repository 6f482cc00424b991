/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program can put where the software ConnectX looks: send and receive WQEs, doorbell
 * records, doorbells, the links of shared receives, and consumer indexes, in any bytes and at any
 * time, on queue pairs of every type. The card must stay within the queues and the registered
 * regions, complete nothing that was not there, and come to an end of its work.
 *
 * Input: a byte of modes (type of the queue pairs in bits 1-0, scatter to CQE in bit 2, a bad
 * network in bit 3, a small completion queue in bit 4, streams of a DCI in bit 5), then steps of
 * four bytes, some with data.
 * One context has both ends, so an input touches no other process.
 */
#include "cmocka.h"
#include "engine_rig.h"

#define SQ_NBB   16u
#define RQ_NWQE  8u
#define RQ_SHIFT 5u
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

static struct rig_host host;
static struct rig_srq srq;
static struct rig_qp end[2];
static uint8_t *mem; /* The region, between guards. */
static struct sm_mr *mr;
static struct sm_mw *mw;
static uint32_t key;

/* ---- life ---- */

static void
region_make(void)
{
	uint32_t rkey;

	mr = rig_mr_open(&host, host.pd, mem + GUARD, REGION, 31, &key);
	fuzz_check(sm_mw_create(host.nic, host.pd, 2, &mw, &rkey) == 0);
}

/* First the window: a region with one that is bound to it stays. */
static void
region_drop(void)
{
	fuzz_check(sm_destroy(host.nic, mw) == 0);
	fuzz_check(sm_destroy(host.nic, mr) == 0);
}

/* To a state, by all attributes that the type takes; what is refused is no matter. */
static void
end_state(uint32_t i, enum ibv_qp_state state)
{
	struct ib_uverbs_modify_qp m = {.attr_mask = IBV_QP_STATE, .qp_state = state};
	struct rig_qp *q = &end[i];

	if (state >= IBV_QPS_INIT && state <= IBV_QPS_RTS)
		rig_mod(q, state, end[1 - i].qpn, QKEY, &m);
	if (sm_qp_modify(host.nic, q->qp, &m) == 0 && state == IBV_QPS_RESET) {
		q->dbrec[0] = q->dbrec[1] = 0;
		q->sq_pi = q->rq_pi = 0;
	}
}

static void
bench_open(uint8_t modes)
{
	static const enum sm_qp_type types[4][2] = {
		{SM_RC, SM_RC}, {SM_UC, SM_UC}, {SM_UD, SM_UD}, {SM_DCI, SM_DCT}};

	rig_now = 1;
	rig_psn = 0;
	rig_mtu = IBV_MTU_1024;
	rig_timeout = rig_retry = rig_rnr_retry = 1;
	rig_faults = modes & 8 ? "seed=1,drop=0.1,dup=0.1,delay=0.1,reorder=0.1,rnr=0.1" : NULL;
	rig_host_open(&host, rig_net(), 4096);
	mem = malloc(REGION + 2 * GUARD);
	fuzz_check(mem != NULL);
	memset(mem, 0xa5, REGION + 2 * GUARD);
	region_make();
	rig_srq_open(&host, &srq, RQ_NWQE, RQ_SHIFT);
	for (uint32_t i = 0; i < RQ_NWQE; i++) /* Linked, as a driver does before it posts any. */
		rig_srq_recv(&srq, i, (i + 1) % RQ_NWQE, NULL, 0, 0);
	srq.posted = srq.dbrec[0] = 0;
	for (uint32_t i = 0; i < 2; i++) {
		struct rig_qp_conf conf = {.type = types[modes & 3][i],
			.dc_key = DC_KEY,
			.sq_nbb = SQ_NBB,
			.rq_nwqe = RQ_NWQE,
			.rq_shift = RQ_SHIFT,
			.ncqe = modes & 16 ? 4 : 64,
			.scatter_cqe = (modes & 4) != 0};

		conf.bad_streams = conf.type == SM_DCI && modes & 32 ? 2 : 0;
		conf.srq = conf.type == SM_DCT ? &srq : NULL;
		rig_qp_open(&host, &end[i], &conf);
	}
	for (uint32_t i = 0; i < 2; i++) {
		enum ibv_qp_state last = end[i].type == SM_DCT ? IBV_QPS_RTR : IBV_QPS_RTS;

		for (enum ibv_qp_state to = IBV_QPS_INIT; to <= last; to++)
			end_state(i, to);
		fuzz_check(rig_state(&end[i]) == last);
	}
}

static void
bench_close(void)
{
	rig_link_close(&end[0], &end[1]);
	rig_srq_close(&host, &srq);
	region_drop();
	rig_host_close(&host);
	free(mem);
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
point(uint8_t *seg, size_t addr_at, size_t key_at)
{
	uint16_t off;

	memcpy(&off, seg + addr_at, sizeof(off));
	put64(seg + addr_at, (uintptr_t)mem + GUARD + off % (REGION + 8));
	put32(seg + key_at, key);
}

static void
do_wqe(struct rig_qp *e, uint8_t how, uint8_t blocks, struct fuzz_input *in)
{
	uint8_t wqe[SQ_NBB * 64];
	uint32_t n = blocks % SQ_NBB + 1u, i, ds, at = 16;
	size_t used = fuzz_take_some(in, wqe, (size_t)n * 64);

	ds = wqe[7] & 0x3f;
	if (how & TRUE_CTRL) {
		wqe[0] = 0;
		wqe[1] = (uint8_t)(e->sq_pi >> 8);
		wqe[2] = (uint8_t)e->sq_pi;
		ds = how & TRUE_LEN ? (uint32_t)(used + 15) / 16 : ds;
		put32(wqe + 4, e->qpn << 8 | (ds & 0x3f));
	}
	if (how & TRUE_AV) {
		put32(wqe + 16, end[0].type == SM_DCI ? (uint32_t)(DC_KEY >> 32) : QKEY);
		put32(wqe + 20, (uint32_t)DC_KEY);
		put32(wqe + 24, end[1].qpn | (wqe[24] & 0x80u) << 24);
		wqe[30] = 0;
		wqe[31] = SM_LID;
		at += wqe[24] & 0x80 ? 48 : 16;
	}
	if (wqe[3] == MLX5_OPCODE_UMR && how & TRUE_RADDR) { /* What a bind names. */
		put64(wqe + 80, (uintptr_t)mem + GUARD);
		put32(wqe + 132, key);
		how &= ~(TRUE_RADDR | TRUE_DATA) & 0xff;
	}
	if (how & TRUE_RADDR) {
		point(wqe + at, 0, 8);
		at += (wqe[3] & 0xf0) == 0x10 && wqe[3] != MLX5_OPCODE_RDMA_READ ? 32 : 16;
	}
	for (; how & TRUE_DATA && at + 16 <= ds * 16 && (wqe[at] & 0x80) == 0; at += 16) {
		point(wqe + at, 8, 4);
		wqe[at] = wqe[at + 1] = 0;
	}
	for (i = 0; i < n; i++)
		memcpy(e->sq + (size_t)((e->sq_pi + i) & (SQ_NBB - 1)) * 64, wqe + (size_t)i * 64,
			64);
	e->sq_pi = (uint16_t)(e->sq_pi + (ds != 0 ? (ds + 3) / 4 : n));
	e->dbrec[1] = htobe32(e->sq_pi);
}

static void
do_recv(struct rig_qp *e, uint8_t how, struct fuzz_input *in)
{
	bool shared = end[1].type == SM_DCT;
	uint8_t *wqe =
		(shared ? srq.buf : e->rq) + ((size_t)(e->rq_pi & (RQ_NWQE - 1)) << RQ_SHIFT);

	if (!shared && e->rq_nwqe == 0)
		return;
	(void)fuzz_take_some(in, wqe, 1u << RQ_SHIFT);
	if (how & TRUE_DATA) {
		point(wqe + (shared ? 16 : 0), 8, 4);
		wqe[shared ? 16 : 0] = 0;
	}
	if (shared && how & TRUE_CTRL) {
		wqe[2] = 0;
		wqe[3] = (uint8_t)((e->rq_pi + 1) & (RQ_NWQE - 1));
	}
	e->rq_pi++;
	*(shared ? srq.dbrec : e->dbrec) = htobe32(e->rq_pi);
}

static void
do_ring(struct rig_qp *e, uint8_t reg, uint8_t how)
{
	uint64_t word[2];

	if (e->sq_nbb == 0)
		return;
	memcpy(word, e->sq + (size_t)((e->sq_pi - 1u) & (SQ_NBB - 1)) * 64, sizeof(word));
	if (how & 1)
		put32((uint8_t *)word + 4, e->qpn << 8 | how);
	memcpy(host.uar + 0x800 + (reg & 3) * 0x100u, word, how & 2 ? 16 : 8);
}

static void
do_pass(uint8_t passes, uint8_t time)
{
	for (uint32_t i = 0; i < passes % 32u + 1; i++) {
		rig_now += (uint64_t)time << (time % 16);
		sm_nic_progress(host.nic, rig_now);
	}
}

static void
do_consume(struct rig_qp *e, uint8_t which, uint8_t far)
{
	struct rig_cq *q = which & 1 ? &e->rcq : &e->scq;

	q->ci += far & 0x80 ? far * 7919u : far % q->ncqe;
	q->dbrec[0] = htobe32(q->ci & 0xffffff);
	if (far & 0x40)
		q->dbrec[1] = htobe32(far);
}

static void
check_cq(const struct rig_cq *q)
{
	for (uint32_t i = 0; i < q->ncqe; i++) {
		uint8_t op = q->buf[i * 64 + 63] >> 4;

		fuzz_check(op <= MLX5_CQE_RESP_SEND_INV || op >= MLX5_CQE_REQ_ERR);
	}
}

/* Only the region was written, and completions are of the kinds that there are. */
static void
check_all(void)
{
	for (uint32_t i = 0; i < GUARD; i++)
		fuzz_check(mem[i] == 0xa5 && mem[GUARD + REGION + i] == 0xa5);
	for (uint32_t i = 0; i < 2; i++) {
		check_cq(&end[i].scq);
		check_cq(&end[i].rcq);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t modes, s[4];

	if (!fuzz_take(&in, &modes, 1))
		return 0;
	bench_open(modes);
	while (fuzz_take(&in, s, sizeof(s))) {
		struct rig_qp *e = &end[s[1] & 1];
		uint8_t how = s[2], far = s[3];

		switch (s[0] % STEPS) {
		case STEP_WQE:
			if (e->sq_nbb != 0)
				do_wqe(e, how, far, &in);
			break;
		case STEP_RECV:
			do_recv(e, how, &in);
			break;
		case STEP_DBREC:
			e->dbrec[how & 1] = htobe32(far & 1 ? far * 65521u : far);
			break;
		case STEP_RING:
			do_ring(e, how, far);
			break;
		case STEP_CONSUME:
			do_consume(e, how, far);
			break;
		case STEP_PASS:
			do_pass(how, far);
			break;
		case STEP_STATE:
			end_state(how & 1, (enum ibv_qp_state)(far % 7));
			break;
		default:
			region_drop();
			region_make();
		}
	}
	do_pass(31, 200);
	check_all();
	bench_close();
	return 0;
}
