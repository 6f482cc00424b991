/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single operations that lib/rdma has not, by verbs: SEND over RC and UD, and WRITE and READ of
 * memory with relaxed ordering. libmlx5 writes one WQE posted alone through BlueFlame and rings a
 * doorbell for a list.
 *
 * send, ud_send: inline, 32 to a doorbell, at most `depth` ahead of the server, which sends every
 * CREDIT messages how many it has seen. send_blueflame: one to a doorbell, 32 ahead, each answered
 * for by its completion. send_lat, ud_lat: one at a time, and one back.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "lane.h"
#include "net.h"
#include "soft_mlx5.h"

#define BURST   32
#define POLL    32
#define CREDIT  256u
#define RQ      (2u * NET_DEPTH_MAX)
#define GRH     40u
#define SLOT    320u
#define QKEY    0x11111111u
#define PSN     0x123456u
#define BF_OPEN 32u

/* What each end publishes to its peer. */
struct verbs_addr {
	uint32_t qpn;
	uint32_t rkey;
	uint64_t raddr;
	uint16_t lid;
	uint8_t has_gid;
	uint8_t mtu;
	uint8_t gid[16];
};

struct net_verbs {
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
	uint64_t posted, ended, credited; /* as in net_raw.c */
	uint8_t *buf;   /* What is sent, or written and read. */
	uint8_t *slots; /* Receives. */
};

static bool
is_relaxed(const struct net_end *e)
{
	return e->conf.transport == NET_WRITE_RELAXED || e->conf.transport == NET_READ_RELAXED;
}

/* ---- control ---- */

static void
verbs_close(struct net_end *e)
{
	struct net_verbs *s = e->priv;

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
	free(s->buf);
	free(s);
}

static struct ibv_context *
device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list != NULL && list[i] != NULL && context == NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), net_device()) == 0)
			context = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	return context;
}

/* Room to send from, then the receives' slots, in one region. */
static int
memory_make(struct net_end *e, struct net_verbs *s)
{
	size_t send = crpc_max((size_t)e->conf.size, 4096u), len = send + (size_t)RQ * SLOT;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	len = (len + 4095) & ~(size_t)4095;
	s->buf = aligned_alloc(4096, len);
	if (s->buf == NULL)
		return -ENOMEM;
	memset(s->buf, 0, len);
	s->slots = s->buf + send;
	s->mr = ibv_reg_mr(
		s->pd, s->buf, len, access | (is_relaxed(e) ? IBV_ACCESS_RELAXED_ORDERING : 0));
	return s->mr != NULL ? 0 : -ENOMEM;
}

static int
receives_post(struct net_verbs *s, const uint64_t *slot, uint32_t n)
{
	struct ibv_recv_wr wr[POLL], *bad;
	struct ibv_sge sge[POLL];
	uint32_t i;

	for (i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uint64_t)(uintptr_t)(s->slots + slot[i] * SLOT),
			.length = SLOT,
			.lkey = s->mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = slot[i], .sg_list = &sge[i], .num_sge = 1,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	return n == 0 ? 0 : -ibv_post_recv(s->qp, wr, &bad);
}

static int
qp_make(struct net_end *e, struct net_verbs *s)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = s->ud ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = {.max_send_wr = RQ,
			.max_recv_wr = RQ,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = e->conf.size <= 256 ? e->conf.size : 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	int rc;

	s->qp = ibv_create_qp(s->pd, &init);
	if (s->qp == NULL)
		return -errno;
	rc = ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						 (s->ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	return -rc;
}

static int
verbs_make(struct net_end *e, struct net_verbs *s)
{
	uint64_t slot;
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
	rc = memory_make(e, s);
	if (rc == 0)
		rc = qp_make(e, s);
	for (slot = 0; slot < RQ && rc == 0; slot++)
		rc = receives_post(s, &slot, 1);
	return rc;
}

static int
verbs_open(struct net_end *e)
{
	struct net_verbs *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	e->priv = s;
	s->ud = e->conf.transport == NET_UD_SEND || e->conf.transport == NET_UD_LAT;
	rc = verbs_make(e, s);
	if (rc != 0) {
		net_why(e, "verbs: %s", strerror(-rc));
		verbs_close(e);
	}
	return rc;
}

static void
verbs_addr(const struct net_end *e, uint32_t i, uint8_t addr[NET_ADDR_LEN])
{
	const struct net_verbs *s = e->priv;
	struct verbs_addr mine = {.qpn = s->qp->qp_num,
		.rkey = s->mr->rkey,
		.raddr = (uint64_t)(uintptr_t)s->buf};
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
	int rc;

	rc = ibv_modify_qp(s->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
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
verbs_connect(struct net_end *e, uint32_t i, const uint8_t addr[NET_ADDR_LEN])
{
	struct net_verbs *s = e->priv;
	int rc;

	memcpy(&s->peer, addr, sizeof(s->peer));
	rc = s->ud ? ud_connect(s) : rc_connect(s);
	if (rc != 0)
		net_why(e, "verbs: connect: %s", strerror(-rc));
	return rc;
}

/* ---- datapath ---- */

/* Post n copies of one request, the last one signalled. */
static void
send_post(struct net_end *e, enum ibv_wr_opcode op, uint32_t len, uint32_t n)
{
	struct net_verbs *s = e->priv;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)s->buf, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr wr[BURST], *bad;
	uint32_t i;

	for (i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = op,
			.send_flags = len <= 256 ? IBV_SEND_INLINE : 0,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
		if (s->ud) {
			wr[i].wr.ud.ah = s->ah;
			wr[i].wr.ud.remote_qpn = s->peer.qpn;
			wr[i].wr.ud.remote_qkey = QKEY;
		} else {
			wr[i].wr.rdma.remote_addr = s->peer.raddr;
			wr[i].wr.rdma.rkey = s->peer.rkey;
		}
	}
	wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	if (ibv_post_send(s->qp, wr, &bad) != 0)
		net_break(e, "ibv_post_send failed");
	s->posted += n;
	if (s->progress != NULL)
		s->progress(s->context);
}

/* Take completions; a receive goes back at once. Word is the first one of the newest message. */
static void
verbs_poll(struct net_end *e, uint32_t *sends, uint32_t *recvs, uint64_t *word)
{
	struct net_verbs *s = e->priv;
	uint32_t back = 0;
	uint64_t slot[POLL];
	struct ibv_wc wc[POLL];
	int n = ibv_poll_cq(s->cq, POLL, wc), i;

	if (n < POLL && s->progress != NULL && s->progress(s->context) != 0 && n == 0)
		n = ibv_poll_cq(s->cq, POLL, wc);
	for (i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			net_break(e, "a completion failed: %s", ibv_wc_status_str(wc[i].status));
		} else if (wc[i].opcode == IBV_WC_RECV) {
			memcpy(word, s->slots + wc[i].wr_id * SLOT + (s->ud ? GRH : 0),
				sizeof(*word));
			slot[back++] = wc[i].wr_id;
			*recvs += 1;
		} else {
			*sends += 1;
		}
	}
	if (receives_post(s, slot, back) != 0)
		net_break(e, "ibv_post_recv failed");
}

static uint32_t
send_serve(struct net_end *e)
{
	struct net_verbs *s = e->priv;
	uint32_t sends = 0, recvs = 0;
	uint64_t word;

	verbs_poll(e, &sends, &recvs, &word);
	s->ended += recvs;
	if (s->ended - s->credited < CREDIT && (recvs != 0 || s->ended == s->credited))
		return recvs;
	lane_fill((uint64_t *)(void *)s->buf, 8, s->ended);
	send_post(e, IBV_WR_SEND, 8, 1);
	s->credited = s->ended;
	return recvs;
}

static uint32_t
send_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_verbs *s = e->priv;
	uint64_t seen = s->ended;
	uint32_t sends = 0, recvs = 0, n;

	if (e->server)
		return send_serve(e);
	verbs_poll(e, &sends, &recvs, &seen);
	n = (uint32_t)(seen - s->ended);
	s->ended = seen;
	e->open = s->posted - s->ended;
	if (!more || e->conf.depth - e->open < BURST)
		return n;
	lane_fill((uint64_t *)(void *)s->buf, e->conf.size, s->posted);
	send_post(e, IBV_WR_SEND, e->conf.size, BURST);
	e->open = s->posted - s->ended;
	return n;
}

/* Each has a doorbell and a completion of its own; the server only takes them. */
static uint32_t
bf_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_verbs *s = e->priv;
	uint32_t sends = 0, recvs = 0;
	uint64_t word;

	verbs_poll(e, &sends, &recvs, &word);
	if (e->server)
		return recvs;
	e->open -= sends;
	while (more && e->open < BF_OPEN && !e->broken) {
		lane_fill((uint64_t *)(void *)s->buf, e->conf.size, s->posted);
		send_post(e, IBV_WR_SEND, e->conf.size, 1);
		e->open++;
	}
	return sends;
}

static uint32_t
lat_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_verbs *s = e->priv;
	uint32_t sends = 0, recvs = 0;
	uint64_t word;

	verbs_poll(e, &sends, &recvs, &word);
	if (!e->server) {
		e->open -= recvs;
		if (!more || e->open != 0)
			return recvs;
	} else if (recvs == 0) {
		return 0;
	}
	lane_fill((uint64_t *)(void *)s->buf, e->conf.size, s->posted);
	send_post(e, IBV_WR_SEND, e->conf.size, 1);
	e->open += !e->server;
	return recvs;
}

static uint32_t
bulk_step(struct net_end *e, uint64_t now, bool more)
{
	uint32_t sends = 0, recvs = 0;
	uint64_t word;

	verbs_poll(e, &sends, &recvs, &word);
	if (e->server)
		return 0;
	e->open -= sends;
	if (!more || e->open != 0 || e->broken)
		return sends;
	send_post(e, e->conf.transport == NET_READ_RELAXED ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		e->conf.size, 1);
	e->open++;
	return sends;
}

static void
verbs_ledger(const struct net_end *e, struct net_ledger *l)
{
	const struct net_verbs *s = e->priv;
	struct soft_mlx5_ledger card = {0};

	*l = (struct net_ledger){0};
	if (s->ledger == NULL || s->ledger(s->context, 0, &card, sizeof(card)) != 0)
		return;
	*l = (struct net_ledger){.doorbells = card.doorbells,
		.wqebbs = card.wqe_blocks + card.blueflame_blocks,
		.cqes = card.cqes,
		.pcie_bytes = card.pcie_to_host + card.pcie_to_card,
		.packets = card.tx_packets,
		.card = true};
}

#define VERBS_OPS(id, text, what, turn)                                                            \
	const struct net_ops net_ops_##id = {                                                      \
		.name = text,                                                                      \
		.unit = what,                                                                      \
		.built = true,                                                                     \
		.open = verbs_open,                                                                \
		.close = verbs_close,                                                              \
		.addr = verbs_addr,                                                                \
		.connect = verbs_connect,                                                          \
		.step = turn,                                                                      \
		.ledger = verbs_ledger,                                                            \
	}

VERBS_OPS(send, "send", NET_RATE, send_step);
VERBS_OPS(send_bf, "send_blueflame", NET_RATE, bf_step);
VERBS_OPS(send_lat, "send_lat", NET_LATENCY, lat_step);
VERBS_OPS(ud_send, "ud_send", NET_RATE, send_step);
VERBS_OPS(ud_lat, "ud_lat", NET_LATENCY, lat_step);
VERBS_OPS(write_relaxed, "write_relaxed", NET_BYTES, bulk_step);
VERBS_OPS(read_relaxed, "read_relaxed", NET_BYTES, bulk_step);
