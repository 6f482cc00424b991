/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes over UDP: the parser, alone and in front of a whole adapter with a queue pair of each
 * type that is ready. An input is a run of packets, each behind two bytes of length; their ICRC is
 * made right, except where the length says not to. None may reach outside the registered region,
 * and what the parser takes must be the same again after it was written.
 */
#include <endian.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#include <infiniband/verbs.h>

#include "engine/priv.h"
#include "engine/roce.h"

#define PACKETS 64u
#define MEMORY 8192u
#define GUARD 4096u
#define RECEIVES 64u
#define THEIRS 0x7f4d4d02u /* 127.77.77.2 */
#define KEEP_ICRC 0x8000u

enum { RC, UC, UD, DCT, DCI, TYPES };

static struct {
	struct sm_nic *nic;
	struct sm_mr *mr;
	struct sm_qp *qp[TYPES];
	uint32_t qpn[TYPES], key;
	uint64_t now;
	uint8_t *uar, *memory;
	_Alignas(64) uint32_t dbrec[TYPES + 3][2];
	_Alignas(64) uint8_t cq[1024 * 64];
	_Alignas(64) uint8_t rq[TYPES][RECEIVES * 16];
	_Alignas(64) uint8_t sq[TYPES][64 * 64];
	_Alignas(64) uint8_t srq[RECEIVES * 32];
} f;

static void
modify(uint32_t type, uint32_t mask, struct sm_qp_mod m)
{
	m.mask = mask | IBV_QP_STATE;
	fuzz_check(sm_qp_modify(f.nic, f.qp[type], &m) == 0);
}

static void
ready(uint32_t type)
{
	struct sm_qp_mod m = {.state = SM_QPS_INIT, .port = 1, .access = 14, .qkey = 5};
	bool connected = type == RC || type == UC;
	uint32_t base = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	modify(type, base | (type == UD ? IBV_QP_QKEY : type == DCI ? 0 : IBV_QP_ACCESS_FLAGS), m);
	m = (struct sm_qp_mod){.state = SM_QPS_RTR, .port = 1, .path_mtu = IBV_MTU_256,
		.dest_qpn = 77, .rq_psn = 0, .is_global = true, .max_dest_rd_atomic = 4,
		.dgid = {[10] = 0xff, [11] = 0xff, [12] = 127, [13] = 77, [14] = 77, [15] = 2}};
	modify(type,
		(type == UD ? 0 : IBV_QP_PATH_MTU) |
			(connected ? IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
			(type == RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0) |
			(type == DCT ? IBV_QP_AV | IBV_QP_MIN_RNR_TIMER : 0), m);
	if (type == DCT)
		return;
	m = (struct sm_qp_mod){.state = SM_QPS_RTS, .timeout = 8, .retry_cnt = 2, .rnr_retry = 2,
		.max_rd_atomic = 4};
	modify(type,
		(type == DCI ? 0 : IBV_QP_SQ_PSN) |
			(type == RC || type == DCI ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
						: 0), m);
}

static void
data_seg(uint8_t *at, uint32_t len)
{
	uint64_t va = htobe64((uintptr_t)f.memory);
	uint32_t words[2] = {htobe32(len), htobe32(f.key)};

	memcpy(at, words, 8);
	memcpy(at + 8, &va, 8);
}

/* A READ is open, so that responses have somebody who waits for them. */
static void
post_read(uint32_t type)
{
	uint8_t *w = f.sq[type];
	uint32_t words[4] = {htobe32(SM_OP_READ), htobe32(f.qpn[type] << 8 | 3), htobe32(8), 0};

	memset(w, 0, 64);
	memcpy(w, words, 16);
	data_seg(w + 32, 1000);
	f.dbrec[type][1] = htobe32(1);
}

/* An address of this process alone; what it sends goes to nobody. */
static uint32_t
ours(void)
{
	return 0x7f0000fb | ((uint32_t)getpid() & 0xffff) << 8;
}

static void
adapter_open(void)
{
	static const enum sm_qp_type types[TYPES] = {
		SM_QPT_RC, SM_QPT_UC, SM_QPT_UD, SM_QPT_DCT, SM_QPT_DCI};
	struct sm_nic_attr attr = {.udp_addr = ours()};
	struct sm_cq_attr cqa = {.buf = f.cq, .dbrec = f.dbrec[TYPES], .ncqe = 1024,
		.cqe_size = 64, .ignore_overrun = true};
	struct sm_srq_attr sa = {.buf = f.srq, .dbrec = f.dbrec[TYPES + 1], .nwqe = RECEIVES,
		.wqe_shift = 5, .max_sge = 1};
	char net[64];
	struct sm_srq *srq;
	struct sm_cq *cq;
	struct sm_pd *pd;
	uint32_t id, rkey;

	snprintf(net, sizeof(net), "fuzz-roce-%d", (int)getpid());
	attr.net = net;
	fuzz_check(sm_nic_create(&attr, &f.nic) == 0);
	fuzz_check(sm_uar_add(f.nic, 1, f.uar) == 0 && sm_pd_create(f.nic, &pd, &id) == 0);
	fuzz_check(sm_mr_create(f.nic, pd, (uintptr_t)f.memory, MEMORY, (uintptr_t)f.memory, 15,
			   &f.mr, &f.key, &rkey) == 0);
	fuzz_check(sm_cq_create(f.nic, &cqa, &cq, &id) == 0);
	sa.pd = pd;
	fuzz_check(sm_srq_create(f.nic, &sa, &srq, &id) == 0);
	for (uint32_t i = 0; i < RECEIVES; i++) {
		f.srq[i * 32 + 3] = (uint8_t)(i + 1);
		data_seg(f.srq + i * 32 + 16, MEMORY);
	}
	f.dbrec[TYPES + 1][0] = htobe32(RECEIVES - 1);
	for (uint32_t i = 0; i < TYPES; i++) {
		struct sm_qp_attr a = {.type = types[i], .pd = pd, .send_cq = cq, .recv_cq = cq,
			.dbrec = f.dbrec[i], .uar_page = 1, .dc_key = 0x77};

		if (i == DCT) {
			a.srq = srq;
		} else {
			a.sq_buf = f.sq[i];
			a.sq_nwqebb = 64;
		}
		if (i < DCT) {
			a.rq_buf = f.rq[i];
			a.rq_nwqe = RECEIVES;
			a.rq_wqe_shift = 4;
			for (uint32_t k = 0; k < RECEIVES; k++)
				data_seg(f.rq[i] + 16 * (size_t)k, MEMORY);
		}
		fuzz_check(sm_qp_create(f.nic, &a, &f.qp[i], &f.qpn[i]) == 0);
		f.dbrec[i][0] = htobe32(i < DCT ? RECEIVES - 1 : 0);
		ready(i);
	}
	post_read(RC);
	sm_sq_ring(f.nic, f.qp[RC]);
}

/* A parsed packet, written and parsed again, is the same; and as a message it is within bounds. */
static void
parse(const uint8_t *bytes, uint32_t n)
{
	uint8_t again[SM_ROCE_BYTES];
	struct sm_roce p, q;
	struct sm_hdr h;
	uint32_t size;

	if (!sm_roce_get(bytes, n, &p))
		return;
	fuzz_check(p.len <= SM_MTU_BYTES && p.payload >= bytes && p.payload + p.len <= bytes + n);
	size = sm_roce_put(&p, again);
	fuzz_check(size == n && sm_roce_get(again, size, &q));
	fuzz_check(q.len == p.len && q.psn == p.psn && q.dst == p.dst && q.va == p.va &&
		q.rkey == p.rkey && q.syndrome == p.syndrome && q.word[0] == p.word[0]);
	if (sm_roce_hdr(&q, &h))
		fuzz_check((h.head & 0xffff) <= SM_MTU_BYTES && h.dst <= 0xffffff &&
			h.psn <= 0xffffff);
}

/* Send it to one of ours: an input cannot know the numbers. */
static void
deliver(uint8_t *bytes, uint32_t n, bool right)
{
	struct sm_roce_path path = {THEIRS, ours(), SM_ROCE_PORT, SM_ROCE_PORT};
	uint32_t transport = n > 12 ? bytes[0] >> 5 : 0;
	uint32_t type = transport == 0 ? RC : transport == 1 ? UC : transport == 3 ? UD
			: bytes[n > 12 ? 4 : 0] % 2 != 0 ? DCI : DCT;

	if (n > 12 + SM_ROCE_ICRC && bytes[5] == 0) {
		bytes[5] = (uint8_t)(f.qpn[type] >> 16);
		bytes[6] = (uint8_t)(f.qpn[type] >> 8);
		bytes[7] = (uint8_t)f.qpn[type];
	}
	if (right && n > 12 + SM_ROCE_ICRC)
		sm_roce_icrc(&path, bytes, n - SM_ROCE_ICRC, bytes + n - SM_ROCE_ICRC);
	sm_lock(f.nic);
	sm_udp_packet(f.nic, &path, bytes, n);
	sm_unlock(f.nic);
	sm_nic_progress(f.nic, f.now += 100000);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t packet[SM_ROCE_BYTES];

	sm_roce_init();
	memset(&f, 0, sizeof(f));
	f.uar = aligned_alloc(4096, 4096);
	f.memory = malloc(MEMORY); /* The sanitizer watches its ends. */
	fuzz_check(f.uar != NULL && f.memory != NULL);
	memset(f.uar, 0, 4096);
	memset(f.memory, 1, MEMORY);
	memset(f.cq, 0xf1, sizeof(f.cq));
	adapter_open();
	for (uint32_t i = 0; i < PACKETS && size >= 2; i++) {
		uint32_t want = (uint32_t)data[0] << 8 | data[1];
		uint32_t n =
			crpc_min(want & ~KEEP_ICRC, (uint32_t)crpc_min(size - 2, sizeof(packet)));

		data += 2;
		size -= 2;
		memcpy(packet, data, n);
		data += n;
		size -= n;
		parse(packet, n);
		deliver(packet, n, (want & KEEP_ICRC) == 0);
	}
	sm_mr_destroy(f.nic, f.mr);
	sm_nic_free(f.nic);
	free(f.uar);
	free(f.memory);
	return 0;
}
