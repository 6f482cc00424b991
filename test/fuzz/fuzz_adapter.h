/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_ADAPTER_H
#define FUZZ_ADAPTER_H

/**
 * @file
 * An adapter of soft_mlx5 with a queue pair of each type that is ready, for targets that hand it
 * packets: in this order
 *
 *     adapter_memory(&a, bytes)             zeroes, memory; the sanitizer watches its ends
 *     adapter_open(&a, &attr)               the adapter, its region, queues for completions, SRQ
 *     adapter_queues(&a, &rtr)              connected as rtr says
 *     adapter_reads(&a, type, n)            open, so that responses have somebody who waits
 *     adapter_close(&a)
 */

#include <endian.h>
#include <string.h>

#include "fuzz.h"

#include <infiniband/verbs.h>

#include "engine/qp.h"

#define RECEIVES 64u
#define DC_KEY 0x77u

enum { RC, UC, UD, DCT, DCI, TYPES };

struct adapter {
	uint32_t bytes; /* Of memory. */
	struct sm_nic *nic;
	struct sm_mr *mr;
	struct sm_pd *pd;
	struct sm_cq *scq;
	struct sm_srq *shared;
	struct sm_qp *qp[TYPES];
	uint32_t qpn[TYPES], key;
	uint64_t now;
	uint8_t *uar, *memory;
	_Alignas(64) uint32_t dbrec[TYPES + 3][2];
	_Alignas(64) uint8_t cq[1024 * 64];
	_Alignas(64) uint8_t rq[TYPES][RECEIVES * 16];
	_Alignas(64) uint8_t sq[TYPES][64 * 64];
	_Alignas(64) uint8_t srq[RECEIVES * 32];
};

static inline void
adapter_memory(struct adapter *a, uint32_t bytes)
{
	memset(a, 0, sizeof(*a));
	a->bytes = bytes;
	a->uar = aligned_alloc(4096, 4096);
	a->memory = malloc(bytes);
	fuzz_check(a->uar != NULL && a->memory != NULL);
	memset(a->uar, 0, 4096);
	memset(a->memory, 1, bytes);
	memset(a->cq, 0xf1, sizeof(a->cq));
}

static inline void
adapter_modify(struct adapter *a, uint32_t type, uint32_t mask, struct sm_qp_mod m)
{
	m.mask = mask | IBV_QP_STATE;
	fuzz_check(sm_qp_modify(a->nic, a->qp[type], &m) == 0);
}

static inline void
adapter_ready(struct adapter *a, uint32_t type, const struct sm_qp_mod *rtr)
{
	struct sm_qp_mod m = {.state = SM_QPS_INIT, .port = 1, .access = 14, .qkey = 5};
	bool connected = type == RC || type == UC;
	uint32_t base = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	adapter_modify(a, type,
		base | (type == UD ? IBV_QP_QKEY : type == DCI ? 0 : IBV_QP_ACCESS_FLAGS), m);
	adapter_modify(a, type,
		(type == UD ? 0 : IBV_QP_PATH_MTU) |
			(connected ? IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
			(type == RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0) |
			(type == DCT ? IBV_QP_AV | IBV_QP_MIN_RNR_TIMER : 0), *rtr);
	if (type == DCT)
		return;
	m = (struct sm_qp_mod){.state = SM_QPS_RTS, .timeout = 8, .retry_cnt = 2, .rnr_retry = 2,
		.max_rd_atomic = 4};
	adapter_modify(a, type,
		IBV_QP_SQ_PSN | (type == RC || type == DCI ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
						: 0), m);
}

static inline void
adapter_data_seg(const struct adapter *a, uint8_t *at, uint32_t len)
{
	uint64_t va = htobe64((uintptr_t)a->memory);
	uint32_t words[2] = {htobe32(len), htobe32(a->key)};

	memcpy(at, words, 8);
	memcpy(at + 8, &va, 8);
}

static inline void
adapter_open(struct adapter *a, const struct sm_nic_attr *attr)
{
	struct sm_cq_attr cqa = {.buf = a->cq, .dbrec = a->dbrec[TYPES], .ncqe = 1024,
		.cqe_size = 64, .ignore_overrun = true};
	struct sm_srq_attr sa = {.buf = a->srq, .dbrec = a->dbrec[TYPES + 1], .nwqe = RECEIVES,
		.wqe_shift = 5, .max_sge = 1};
	uint32_t id, rkey;

	fuzz_check(sm_nic_create(attr, &a->nic) == 0);
	fuzz_check(sm_uar_add(a->nic, 1, a->uar) == 0 && sm_pd_create(a->nic, &a->pd, &id) == 0);
	fuzz_check(sm_mr_create(a->nic, a->pd, (uintptr_t)a->memory, a->bytes,
			   (uintptr_t)a->memory, 15, &a->mr, &a->key, &rkey) == 0);
	fuzz_check(sm_cq_create(a->nic, &cqa, &a->scq, &id) == 0);
	sa.pd = a->pd;
	fuzz_check(sm_srq_create(a->nic, &sa, &a->shared, &id) == 0);
	for (uint32_t i = 0; i < RECEIVES; i++) {
		a->srq[i * 32 + 3] = (uint8_t)(i + 1);
		adapter_data_seg(a, a->srq + i * 32 + 16, a->bytes);
	}
	a->dbrec[TYPES + 1][0] = htobe32(RECEIVES - 1);
}

static inline void
adapter_queues(struct adapter *a, const struct sm_qp_mod *rtr)
{
	static const enum sm_qp_type types[TYPES] = {
		SM_QPT_RC, SM_QPT_UC, SM_QPT_UD, SM_QPT_DCT, SM_QPT_DCI};

	for (uint32_t i = 0; i < TYPES; i++) {
		struct sm_qp_attr qa = {.type = types[i], .pd = a->pd, .send_cq = a->scq,
			.recv_cq = a->scq, .dbrec = a->dbrec[i], .uar_page = 1, .dc_key = DC_KEY};

		if (i == DCT) {
			qa.srq = a->shared;
		} else {
			qa.sq_buf = a->sq[i];
			qa.sq_nwqebb = 64;
		}
		if (i < DCT) {
			qa.rq_buf = a->rq[i];
			qa.rq_nwqe = RECEIVES;
			qa.rq_wqe_shift = 4;
			for (uint32_t k = 0; k < RECEIVES; k++)
				adapter_data_seg(a, a->rq[i] + 16 * (size_t)k, a->bytes);
		}
		fuzz_check(sm_qp_create(a->nic, &qa, &a->qp[i], &a->qpn[i]) == 0);
		a->dbrec[i][0] = htobe32(i < DCT ? RECEIVES - 1 : 0);
		adapter_ready(a, i, rtr);
	}
}

static inline void
adapter_reads(struct adapter *a, uint32_t type, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *w = a->sq[type] + 64 * (size_t)i;
		uint32_t words[4] = {htobe32(i << 8 | SM_OP_READ), htobe32(a->qpn[type] << 8 | 3),
			htobe32(8), 0};

		memset(w, 0, 64);
		memcpy(w, words, 16);
		adapter_data_seg(a, w + 32, 1000);
	}
	a->dbrec[type][1] = htobe32(n);
	sm_sq_ring(a->nic, a->qp[type]);
}

static inline void
adapter_close(struct adapter *a)
{
	sm_mr_destroy(a->nic, a->mr);
	sm_nic_free(a->nic);
	free(a->uar);
	free(a->memory);
}

#endif
