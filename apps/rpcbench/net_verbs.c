/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single operations that lib/rdma has not, by verbs: SEND over RC and UD. libmlx5 writes one WQE
 * posted alone through BlueFlame and rings a doorbell for a list. A message is a SEND, inline; its
 * first word is its number.
 *
 * send_blueflame: one to a doorbell, 32 ahead, each answered for by its completion.
 */
#include "crpc_ib.h"

#define CREDIT_LEN 8
#include "net_messages.h"

#define POLL    32
#define RQ      (2u * NET_DEPTH_MAX)
#define SLOT    320u
#define BF_OPEN 32u

/* The control path is that of the drivers. */
struct net_verbs {
	struct messages base;
	struct crpc_ib_qp qp;
	struct ibv_cq *cq;
	struct crpc_ib_ah *ah;    /* Datagrams: where they go, */
	struct crpc_ib_addr peer; /* and to whom. */
	crpc_ib_progress progress;
	uint8_t *slots; /* Receives. */
};

/* ---- control ---- */

static void
verbs_close(struct app_lane *l, int side)
{
	struct net_verbs *s = l->state[side];

	if (s->ah != NULL)
		crpc_ib_ah_free(&s->ah->base);
	if (s->qp.ibqp != NULL)
		ibv_destroy_qp(s->qp.ibqp);
	if (s->cq != NULL)
		ibv_destroy_cq(s->cq);
	messages_close(&s->base);
}

static int
receives_post(struct net_verbs *s, const uint64_t *slot, uint32_t n)
{
	struct ibv_recv_wr wr[POLL], *bad;
	struct ibv_sge sge[POLL];

	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uint64_t)(uintptr_t)(s->slots + slot[i] * SLOT),
			.length = SLOT,
			.lkey = s->base.mr.lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = slot[i], .sg_list = &sge[i], .num_sge = 1,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	return n == 0 ? 0 : -ibv_post_recv(s->qp.ibqp, wr, &bad);
}

/* A queue pair for datagrams is ready then. */
static int
qp_make(const struct app_case *c, struct net_verbs *s, bool ud)
{
	const struct crpc_rdma_qp_conf conf = {
		.sq_depth = RQ, .rq_depth = RQ, .inline_max = c->size};
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = ud ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = {.max_send_wr = RQ,
			.max_recv_wr = RQ,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = c->size}};
	struct crpc_ib *ib = crpc_ib_of(s->base.dev);
	uint8_t kind = ud ? CRPC_IB_UD : CRPC_IB_RC;
	struct ibv_qp_attr attr;
	int rc = crpc_ib_qp_init(ib, &s->qp, kind, &conf, c->size);

	if (rc != 0)
		return rc;
	s->qp.ibqp = ibv_create_qp(ib->pd, &init);
	if (s->qp.ibqp == NULL)
		return crpc_ib_errno("queue pair");
	s->qp.qpn = s->qp.ibqp->qp_num;
	attr = crpc_ib_attr(ib, s->qp.psn, s->qp.key);
	return crpc_ib_move(kind, s->qp.ibqp, &attr, ud ? IBV_QPS_RTS : IBV_QPS_INIT);
}

/* Room to send from, then the receives' slots, in one region. */
static int
verbs_make(const struct app_case *c, struct net_verbs *s, bool ud)
{
	const size_t send = 4096;
	int rc = messages_open(&s->base, send + (size_t)RQ * SLOT);

	if (rc != 0)
		return rc;
	s->slots = (uint8_t *)s->base.buf + send;
	s->progress = crpc_ib_progress_find();
	s->cq = ibv_create_cq(
		crpc_ib_of(s->base.dev)->context, (int)(2 * RQ), NULL, NULL, 0);
	rc = s->cq == NULL ? crpc_ib_errno("completion queue") : qp_make(c, s, ud);
	for (uint64_t slot = 0; slot < RQ && rc == 0; slot++)
		rc = receives_post(s, &slot, 1);
	return rc;
}

static int
verbs_open(struct app_lane *l, int side)
{
	bool ud = l->way == &net_ud_send.base || l->way == &net_ud_lat.base;
	struct net_verbs *s = lane_end_new(l, side, sizeof(*s));
	int rc;

	if (l->c->size > NET_INLINE_MAX)
		return app_lane_fail(
			l, -EMSGSIZE, "a SEND is inline, of %u bytes at most", NET_INLINE_MAX);
	rc = s == NULL ? -ENOMEM : verbs_make(l->c, s, ud);
	if (rc != 0)
		return app_lane_fail(l, rc, "%s", crpc_log_last());
	crpc_ib_qp_addr(&s->qp.base, l->addr[side].bytes);
	l->addr[side].len = NET_ADDR_LEN;
	return 0;
}

static int
verbs_meet(struct app_lane *l, int side)
{
	const uint8_t *addr = net_peer(l, side);
	struct net_verbs *s = l->state[side];
	int rc;

	if (addr == NULL)
		return -EPROTO;
	if (s->qp.kind == CRPC_IB_UD) {
		s->ah = crpc_ib_ah_new(&s->qp.base, addr, sizeof(*s->ah), &s->peer);
		rc = s->ah != NULL ? 0 : -errno;
	} else {
		rc = crpc_ib_qp_connect(&s->qp.base, addr);
	}
	return rc == 0 ? 0 : app_lane_fail(l, rc, "%s", crpc_log_last());
}

/* ---- datapath ---- */

static uint32_t
message_post(struct lane_end *e, uint32_t len, uint32_t n, uint64_t number)
{
	struct net_verbs *s = (struct net_verbs *)e;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)s->base.buf, .length = len, .lkey = s->base.mr.lkey};
	struct ibv_send_wr wr[MESSAGES], *bad;

	app_msg_fill(s->base.buf, len, number);
	for (uint32_t i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
		if (s->ah != NULL) {
			wr[i].wr.ud.ah = s->ah->ibah;
			wr[i].wr.ud.remote_qpn = s->peer.qpn;
			wr[i].wr.ud.remote_qkey = (uint32_t)s->peer.key;
		}
	}
	wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	if (ibv_post_send(s->qp.ibqp, wr, &bad) != 0)
		lane_break(e, "ibv_post_send failed");
	if (s->progress != NULL)
		s->progress(s->qp.ibqp->context);
	return n;
}

/* A receive goes back at once. The payload of a datagram is behind its GRH. */
static void
message_poll(struct lane_end *e, uint32_t *sends, uint32_t *recvs, uint32_t *number)
{
	struct net_verbs *s = (struct net_verbs *)e;
	uint32_t back = 0, at = s->ah != NULL ? CRPC_IB_GRH : 0;
	uint64_t slot[POLL];
	struct ibv_wc wc[POLL];
	int n = ibv_poll_cq(s->cq, POLL, wc);

	if (n < POLL && s->progress != NULL && s->progress(s->qp.ibqp->context) != 0 && n == 0)
		n = ibv_poll_cq(s->cq, POLL, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			lane_break(e, "a completion failed: %s", ibv_wc_status_str(wc[i].status));
		} else if (wc[i].opcode == IBV_WC_RECV) {
			slot[back] = wc[i].wr_id;
			*number = (uint32_t)app_msg_load(s->slots + slot[back++] * SLOT + at, 0);
			*recvs += 1;
		} else {
			*sends += 1;
		}
	}
	if (receives_post(s, slot, back) != 0)
		lane_break(e, "ibv_post_recv failed");
}

/* Each has a doorbell and a completion of its own; the server only takes them. */
static uint32_t
bf_step(struct lane_end *e, uint64_t now, bool more)
{
	struct messages *s = (struct messages *)e;
	uint32_t sends = 0, recvs = 0, number;

	message_poll(e, &sends, &recvs, &number);
	if (e->server)
		return recvs;
	e->open -= sends;
	while (more && e->open < BF_OPEN && !e->broken)
		e->open += message_post(e, e->conf.size, 1, s->posted++);
	return sends;
}

NET_WAY(net_send, verbs, "send", LANE_RATE, rate_step);
NET_WAY(net_send_bf, verbs, "send_blueflame", LANE_RATE, bf_step);
NET_WAY(net_send_lat, verbs, "send_lat", LANE_LATENCY, lat_step);
NET_WAY(net_ud_send, verbs, "ud_send", LANE_RATE, rate_step);
NET_WAY(net_ud_lat, verbs, "ud_lat", LANE_LATENCY, lat_step);
