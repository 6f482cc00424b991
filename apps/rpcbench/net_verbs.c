/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single operations that lib/rdma has not, by verbs: SEND over RC and UD. libmlx5 writes one WQE
 * posted alone through BlueFlame and rings a doorbell for a list. A message is a SEND, inline; its
 * first word is its number.
 *
 * send_blueflame: one to a doorbell, 32 ahead, each answered for by its completion.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "soft_mlx5.h"

#define CREDIT_LEN 8
#include "net_messages.h"

#define POLL    32
#define RQ      (2u * NET_DEPTH_MAX)
#define GRH     40u
#define SLOT    320u
#define QKEY    0x11111111u
#define PSN     0x123456u
#define BF_OPEN 32u

/* What each end publishes to its peer. */
struct verbs_addr {
	uint32_t qpn;
	uint16_t lid;
	uint8_t has_gid;
	uint8_t mtu;
	uint8_t gid[16];
};

struct net_verbs {
	struct messages base;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	bool ud;
	uint32_t (*progress)(struct ibv_context *context);
	int (*ledger)(struct ibv_context *context, uint32_t qpn, struct soft_mlx5_ledger *ledger,
		uint64_t size);
	struct verbs_addr peer;
	uint8_t *slots; /* Receives. */
};

/* ---- control ---- */

static void
verbs_close(struct app_lane *l, int side)
{
	struct net_verbs *s = l->state[side];

	if (s->ah != NULL)
		ibv_destroy_ah(s->ah);
	if (s->qp != NULL)
		ibv_destroy_qp(s->qp);
	if (s->cq != NULL)
		ibv_destroy_cq(s->cq);
	if (s->mr != NULL)
		ibv_dereg_mr(s->mr);
	if (s->pd != NULL)
		ibv_dealloc_pd(s->pd);
	if (s->context != NULL)
		ibv_close_device(s->context);
	free(s->base.buf);
	free(s);
}

static struct ibv_context *
device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list != NULL && list[i] != NULL && context == NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), net_device()) == 0)
			context = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	return context;
}

/* Room to send from, then the receives' slots, in one region. */
static int
memory_make(struct net_verbs *s)
{
	size_t send = 4096, len = crpc_align_up(send + (size_t)RQ * SLOT, 4096);

	s->base.buf = aligned_alloc(4096, len);
	if (s->base.buf == NULL)
		return -ENOMEM;
	memset(s->base.buf, 0, len);
	s->slots = (uint8_t *)s->base.buf + send;
	s->mr = ibv_reg_mr(s->pd, s->base.buf, len, IBV_ACCESS_LOCAL_WRITE);
	return s->mr != NULL ? 0 : -ENOMEM;
}

static int
receives_post(struct net_verbs *s, const uint64_t *slot, uint32_t n)
{
	struct ibv_recv_wr wr[POLL], *bad;
	struct ibv_sge sge[POLL];

	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uint64_t)(uintptr_t)(s->slots + slot[i] * SLOT),
			.length = SLOT,
			.lkey = s->mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = slot[i], .sg_list = &sge[i], .num_sge = 1,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	return n == 0 ? 0 : -ibv_post_recv(s->qp, wr, &bad);
}

static int
qp_make(const struct app_case *c, struct net_verbs *s)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = s->ud ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = {.max_send_wr = RQ,
			.max_recv_wr = RQ,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = c->size}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	int rc;

	s->qp = ibv_create_qp(s->pd, &init);
	if (s->qp == NULL)
		return -errno;
	rc = ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						 (s->ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	return -rc;
}

static int
verbs_make(const struct app_lane *l, struct net_verbs *s)
{
	int rc;

	s->context = device_open();
	if (s->context == NULL)
		return -ENODEV;
	/* POSIX dlsym() has what ISO C lacks; with a card these names do not exist. */
	*(void **)&s->progress = dlsym(RTLD_DEFAULT, SOFT_MLX5_PROGRESS_SYMBOL);
	*(void **)&s->ledger = dlsym(RTLD_DEFAULT, SOFT_MLX5_LEDGER_SYMBOL);
	s->pd = ibv_alloc_pd(s->context);
	s->cq = ibv_create_cq(s->context, (int)(2 * RQ), NULL, NULL, 0);
	if (s->pd == NULL || s->cq == NULL)
		return -ENOMEM;
	rc = memory_make(s);
	if (rc == 0)
		rc = qp_make(l->c, s);
	for (uint64_t slot = 0; slot < RQ && rc == 0; slot++)
		rc = receives_post(s, &slot, 1);
	return rc;
}

static void
verbs_addr(const struct net_verbs *s, uint8_t *addr)
{
	struct verbs_addr mine = {.qpn = s->qp->qp_num};
	struct ibv_port_attr port;
	union ibv_gid gid;

	if (ibv_query_port(s->context, 1, &port) == 0) {
		mine.lid = port.lid;
		mine.mtu = (uint8_t)port.active_mtu;
		mine.has_gid = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	}
	if (ibv_query_gid(s->context, 1, 0, &gid) == 0)
		memcpy(mine.gid, &gid, sizeof(mine.gid));
	memcpy(addr, &mine, sizeof(mine));
}

static int
verbs_open(struct app_lane *l, int side)
{
	struct net_verbs *s = lane_end_new(l, side, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->ud = l->way == &net_ud_send.base || l->way == &net_ud_lat.base;
	rc = verbs_make(l, s);
	if (rc != 0)
		return app_lane_fail(l, rc, "verbs: %s", strerror(-rc));
	verbs_addr(s, l->addr[side].bytes);
	l->addr[side].len = NET_ADDR_LEN;
	return 0;
}

static struct ibv_ah_attr
path_to(const struct verbs_addr *peer)
{
	struct ibv_ah_attr ah = {.dlid = peer->lid, .port_num = 1, .is_global = peer->has_gid};

	memcpy(&ah.grh.dgid, peer->gid, sizeof(peer->gid));
	ah.grh.hop_limit = 64;
	return ah;
}

static int
rc_connect(struct net_verbs *s)
{
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)s->peer.mtu,
		.dest_qp_num = s->peer.qpn,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = path_to(&s->peer)};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = PSN,
		.max_rd_atomic = 4};
	int rc = ibv_modify_qp(s->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC |
						IBV_QP_MIN_RNR_TIMER);

	if (rc == 0)
		rc = ibv_modify_qp(s->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
							IBV_QP_MAX_QP_RD_ATOMIC);
	return -rc;
}

static int
ud_connect(struct net_verbs *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .sq_psn = PSN};
	struct ibv_ah_attr ah = path_to(&s->peer);
	int rc = ibv_modify_qp(s->qp, &attr, IBV_QP_STATE);

	attr.qp_state = IBV_QPS_RTS;
	if (rc == 0)
		rc = ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	s->ah = rc == 0 ? ibv_create_ah(s->pd, &ah) : NULL;
	return rc == 0 && s->ah == NULL ? -errno : -rc;
}

static int
verbs_meet(struct app_lane *l, int side)
{
	const uint8_t *addr = net_peer(l, side);
	struct net_verbs *s = l->state[side];
	int rc;

	if (addr == NULL)
		return -EPROTO;
	memcpy(&s->peer, addr, sizeof(s->peer));
	rc = s->ud ? ud_connect(s) : rc_connect(s);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "verbs: connect: %s", strerror(-rc));
}

/* ---- datapath ---- */

static uint32_t
message_post(struct lane_end *e, uint32_t len, uint32_t n, uint64_t number)
{
	struct net_verbs *s = (struct net_verbs *)e;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)s->base.buf, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr wr[MESSAGES], *bad;

	app_msg_fill(s->base.buf, len, number);
	for (uint32_t i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
		if (s->ud) {
			wr[i].wr.ud.ah = s->ah;
			wr[i].wr.ud.remote_qpn = s->peer.qpn;
			wr[i].wr.ud.remote_qkey = QKEY;
		}
	}
	wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	if (ibv_post_send(s->qp, wr, &bad) != 0)
		lane_break(e, "ibv_post_send failed");
	if (s->progress != NULL)
		s->progress(s->context);
	return n;
}

/* A receive goes back at once. */
static void
message_poll(struct lane_end *e, uint32_t *sends, uint32_t *recvs, uint32_t *number)
{
	struct net_verbs *s = (struct net_verbs *)e;
	uint32_t back = 0;
	uint64_t slot[POLL];
	struct ibv_wc wc[POLL];
	int n = ibv_poll_cq(s->cq, POLL, wc);

	if (n < POLL && s->progress != NULL && s->progress(s->context) != 0 && n == 0)
		n = ibv_poll_cq(s->cq, POLL, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			lane_break(e, "a completion failed: %s", ibv_wc_status_str(wc[i].status));
		} else if (wc[i].opcode == IBV_WC_RECV) {
			slot[back] = wc[i].wr_id;
			*number = (uint32_t)app_msg_load(
				s->slots + slot[back++] * SLOT + (s->ud ? GRH : 0), 0);
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

static void
verbs_ledger(const struct lane_end *e, struct lane_ledger *l)
{
	const struct net_verbs *s = (const struct net_verbs *)e;
	struct soft_mlx5_ledger card = {0};

	*l = (struct lane_ledger){0};
	if (s->ledger == NULL || s->ledger(s->context, 0, &card, sizeof(card)) != 0)
		return;
	*l = (struct lane_ledger){.card = true,
		.n = {[LANE_DOORBELLS] = card.doorbells,
			[LANE_WQEBBS] = card.wqe_blocks + card.blueflame_blocks,
			[LANE_CQES] = card.cqes,
			[LANE_PCIE_BYTES] = card.pcie_to_host + card.pcie_to_card,
			[LANE_PACKETS] = card.tx_packets}};
}

NET_WAY(net_send, verbs, "send", LANE_RATE, rate_step);
NET_WAY(net_send_bf, verbs, "send_blueflame", LANE_RATE, bf_step);
NET_WAY(net_send_lat, verbs, "send_lat", LANE_LATENCY, lat_step);
NET_WAY(net_ud_send, verbs, "ud_send", LANE_RATE, rate_step);
NET_WAY(net_ud_lat, verbs, "ud_lat", LANE_LATENCY, lat_step);
