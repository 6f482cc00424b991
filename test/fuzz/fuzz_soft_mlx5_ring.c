/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another process of the same host can write into the ring to us: packets with any head, to
 * queue pairs of each type that are ready and have a READ open. None may reach outside the
 * registered region; who writes nonsense is cut off.
 *
 * Input: steps of 24 bytes and a payload. A step says which fields of the packet are set right.
 */
#include "fuzz_adapter.h"

#define STEPS 64u
#define MEMORY 16384u

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

static struct adapter f;
static struct sm_nic *theirs;
static struct sm_peer *way; /* Theirs, to us. */
static uint32_t far;

static void
start(void)
{
	const char *net = rig_net();
	struct sm_nic_attr attr = {.net = net};
	struct sm_av to = {.dlid = SM_LID};

	adapter_host(&f, net, MEMORY);
	fuzz_check(sm_nic_create(&attr, &theirs) == 0);
	far = sm_nic_slot(theirs) << 16 | 77;
	adapter_open(&f, far, 0);
	adapter_reads(&f, RC, 3);
	to.qpn = sm_nic_slot(f.host.nic) << 16;
	fuzz_check(sm_peer_av(theirs, &to, &way) == 0);
	fuzz_check(way != NULL && way->tx.ring != NULL);
}

/* The packet of a step, with the fields set right that it says. */
static uint32_t
packet_head(const struct step *s, struct sm_hdr *h)
{
	const struct rig_qp *to = adapter_qp(&f, s->qp % TYPES);
	const struct sm_qp *qp = to->qp;
	bool answer = s->type >= SM_PKT_ACK && s->type <= SM_PKT_ATOMIC_RESP;

	*h = (struct sm_hdr){.dst = s->psn, .src = s->imm, .psn = s->psn, .raddr = s->raddr,
		.rkey = s->imm, .imm = s->imm};
	if (s->how & TRUE_TO)
		h->dst = to->qpn | (uint32_t)qp->req.epoch << 24;
	if (s->how & TRUE_FROM)
		h->src = far;
	if (s->how & TRUE_PSN)
		h->psn = answer ? (qp->req.acked + 1) & SM_PSN_MASK : qp->resp.psn;
	if (s->how & TRUE_MEMORY) {
		h->raddr = (uintptr_t)f.host.mem + s->raddr % MEMORY;
		h->rkey = f.host.key;
	}
	if ((s->how & TRUE_KEY) && s->type >= SM_PKT_CONNECT)
		h->raddr = DC_KEY;
	if ((s->how & TRUE_KEY) && s->type == SM_PKT_DATAGRAM)
		h->rkey = QKEY;
	return (s->how & TRUE_LEN) != 0 ? s->bytes : s->len;
}

static void
packet_send(const struct step *s, const uint8_t *payload)
{
	struct sm_pkt_room room;
	struct sm_hdr h;
	uint32_t len = packet_head(s, &h);

	if (!sm_tx_room(&way->tx, s->bytes, 0, &room))
		return;
	if (s->bytes != 0)
		memcpy(room.payload, payload, s->bytes);
	sm_tx_commit(&way->tx, &room, &h, len & 0xffff, (enum sm_pkt_type)s->type, s->flags);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct step s;

	start();
	for (uint32_t i = 0; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++) {
		s.type %= SM_PKT_DISCONNECT + 3;
		s.bytes = (uint16_t)crpc_min(s.bytes % (SM_FRAG + 1), in.left);
		packet_send(&s, in.p);
		fuzz_skip(&in, s.bytes);
		rig_now += (s.how & TIME) != 0 ? 1000000000 : 1000;
		sm_nic_progress(f.host.nic, rig_now);
		sm_nic_progress(theirs, rig_now);
	}
	for (uint32_t i = 0; i < 4; i++)
		sm_nic_progress(f.host.nic, rig_now += 1000);
	sm_nic_free(theirs);
	adapter_close(&f);
	return 0;
}
