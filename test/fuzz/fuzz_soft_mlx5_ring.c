/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another process of the same host can write into the ring to us: packets with any head, to
 * queue pairs of each type that are ready and have a READ open. None may reach outside the
 * registered region; who writes nonsense is cut off.
 *
 * Input: steps of 24 bytes and a payload. A step says which fields of the packet are set right.
 */
#include <endian.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#include <infiniband/verbs.h>

#include "engine/priv.h"

#define STEPS 64u
#define MEMORY 16384u
#define RECEIVES 64u
#define DC_KEY 0x77u

enum { RC, UC, UD, DCT, DCI, TYPES };

enum {
	TRUE_TO = 1,    /* The number of one of our queue pairs, */
	TRUE_FROM = 2,  /* and of whom it is connected to. */
	TRUE_PSN = 4,   /* The number that is expected next. */
	TRUE_MEMORY = 8,
	TRUE_LEN = 16,  /* As many bytes as there are. */
	TRUE_KEY = 32,  /* Of the DCT, or Q_Key. */
	TIME = 64,
};

struct step {
	uint8_t how, qp, type, flags;
	uint16_t len, bytes;
	uint32_t psn, imm;
	uint64_t raddr;
};
_Static_assert(sizeof(struct step) == 24, "an input's");

static struct {
	struct sm_nic *nic, *theirs;
	struct sm_mr *mr;
	struct sm_peer *way; /* Theirs, to us. */
	struct sm_qp *qp[TYPES];
	uint32_t qpn[TYPES], key, far;
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
		.dest_qpn = f.far, .rq_psn = 0, .max_dest_rd_atomic = 4};
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

/* READs are open, so that responses have somebody who waits for them. */
static void
post_reads(uint32_t type)
{
	for (uint32_t i = 0; i < 3; i++) {
		uint8_t *w = f.sq[type] + 64 * (size_t)i;
		uint32_t words[4] = {htobe32(i << 8 | SM_OP_READ), htobe32(f.qpn[type] << 8 | 3),
			htobe32(8), 0};

		memset(w, 0, 64);
		memcpy(w, words, 16);
		data_seg(w + 32, 1000);
	}
	f.dbrec[type][1] = htobe32(3);
	sm_sq_ring(f.nic, f.qp[type]);
}

static void
queues_make(struct sm_pd *pd, struct sm_cq *cq, struct sm_srq *srq)
{
	static const enum sm_qp_type types[TYPES] = {
		SM_QPT_RC, SM_QPT_UC, SM_QPT_UD, SM_QPT_DCT, SM_QPT_DCI};

	for (uint32_t i = 0; i < TYPES; i++) {
		struct sm_qp_attr a = {.type = types[i], .pd = pd, .send_cq = cq, .recv_cq = cq,
			.dbrec = f.dbrec[i], .uar_page = 1, .dc_key = DC_KEY};

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
}

static void
adapters_open(void)
{
	struct sm_cq_attr cqa = {.buf = f.cq, .dbrec = f.dbrec[TYPES], .ncqe = 1024,
		.cqe_size = 64, .ignore_overrun = true};
	struct sm_srq_attr sa = {.buf = f.srq, .dbrec = f.dbrec[TYPES + 1], .nwqe = RECEIVES,
		.wqe_shift = 5, .max_sge = 1};
	struct sm_nic_attr attr = {0};
	char net[64];
	struct sm_srq *srq;
	struct sm_cq *cq;
	struct sm_pd *pd;
	uint32_t id, rkey;

	snprintf(net, sizeof(net), "fuzz-ring-%d", (int)getpid());
	attr.net = net;
	fuzz_check(sm_nic_create(&attr, &f.nic) == 0 && sm_nic_create(&attr, &f.theirs) == 0);
	f.far = sm_nic_slot(f.theirs) << 16 | 77;
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
	queues_make(pd, cq, srq);
	post_reads(RC);
	f.way = sm_peer_look(f.theirs, sm_nic_slot(f.nic));
	fuzz_check(f.way != NULL && f.way->tx.ring != NULL);
}

/* The packet of a step, with the fields set right that it says. */
static uint32_t
packet_head(const struct step *s, struct sm_hdr *h)
{
	const struct sm_qp *qp = f.qp[s->qp % TYPES];
	bool answer = s->type >= SM_PKT_ACK && s->type <= SM_PKT_ATOMIC_RESP;

	*h = (struct sm_hdr){.dst = s->psn, .src = s->imm, .psn = s->psn, .raddr = s->raddr,
		.rkey = s->imm, .imm = s->imm};
	if (s->how & TRUE_TO)
		h->dst = f.qpn[s->qp % TYPES] | (uint32_t)qp->epoch << 24;
	if (s->how & TRUE_FROM)
		h->src = f.far;
	if (s->how & TRUE_PSN)
		h->psn = answer ? (qp->psn_acked + 1) & SM_PSN_MASK : qp->psn_rx;
	if (s->how & TRUE_MEMORY) {
		h->raddr = (uintptr_t)f.memory + s->raddr % MEMORY;
		h->rkey = f.key;
	}
	if ((s->how & TRUE_KEY) && s->type >= SM_PKT_CONNECT)
		h->raddr = DC_KEY;
	if ((s->how & TRUE_KEY) && s->type == SM_PKT_DATAGRAM)
		h->rkey = 5;
	return (s->how & TRUE_LEN) != 0 ? s->bytes : s->len;
}

static void
packet_send(const struct step *s, const uint8_t *payload)
{
	struct sm_pkt_room room;
	struct sm_hdr h;
	uint32_t len = packet_head(s, &h);

	if (!sm_tx_room(&f.way->tx, s->bytes, 0, &room))
		return;
	if (s->bytes != 0)
		memcpy(room.payload, payload, s->bytes);
	sm_pkt_put(room.pkt, &h);
	sm_tx_commit(&f.way->tx, &room, len & 0xffff, (enum sm_pkt_type)s->type, s->flags);
}

static void
adapters_close(void)
{
	sm_mr_destroy(f.nic, f.mr);
	sm_nic_free(f.nic);
	sm_nic_free(f.theirs);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step s;

	memset(&f, 0, sizeof(f));
	f.uar = aligned_alloc(4096, 4096);
	f.memory = malloc(MEMORY); /* The sanitizer watches its ends. */
	fuzz_check(f.uar != NULL && f.memory != NULL);
	memset(f.uar, 0, 4096);
	memset(f.memory, 1, MEMORY);
	memset(f.cq, 0xf1, sizeof(f.cq));
	adapters_open();
	for (uint32_t i = 0; i < STEPS && size >= sizeof(s); i++) {
		memcpy(&s, data, sizeof(s));
		data += sizeof(s);
		size -= sizeof(s);
		s.type %= SM_PKT_DISCONNECT + 3;
		s.bytes = (uint16_t)crpc_min(s.bytes % (SM_FRAG + 1), size);
		packet_send(&s, data);
		data += s.bytes;
		size -= s.bytes;
		f.now += (s.how & TIME) != 0 ? 1000000000 : 1000;
		sm_nic_progress(f.nic, f.now);
		sm_nic_progress(f.theirs, f.now);
	}
	for (uint32_t i = 0; i < 4; i++)
		sm_nic_progress(f.nic, f.now += 1000);
	adapters_close();
	free(f.uar);
	free(f.memory);
	return 0;
}
