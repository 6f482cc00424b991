/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs as verbs knows them: whether there is room for one, its address, its states, and the
 * route to a peer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crpc_clock.h"
#include "crpc_ib.h"
#include "crpc_log.h"

#define HOP_LIMIT 64
/* Local acknowledge timeout 4.096 us << 14 = 67 ms, seven tries: a dead peer is detected within
 * about half a second (a card may take up to four times that), a busy switch is not mistaken for
 * one. */
#define ACK_TIMEOUT 14
#define RETRY_COUNT 7
/* A sender waits for a receiver that polls too slowly; 7 is for ever, and deadlines are the
 * protocol's. */
#define RNR_RETRY 7
/* Code of 60 us: how long a sender holds back when the peer had no receive. */
#define MIN_RNR_TIMER 5

/* WRs between two completions that a driver requests by itself, at most. */
#define SIGNAL_EVERY_MAX 64

#define INIT_COMMON (IBV_QP_PKEY_INDEX | IBV_QP_PORT)

#define RTS_REQUESTER                                                                              \
	(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                    \
		IBV_QP_MAX_QP_RD_ATOMIC)

/* What INIT, RTR and RTS set. */
static const int states[][3] = {
	[CRPC_IB_RC] = {INIT_COMMON | IBV_QP_ACCESS_FLAGS,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		RTS_REQUESTER},
	[CRPC_IB_UD] = {INIT_COMMON | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN},
	[CRPC_IB_DC] = {INIT_COMMON | IBV_QP_ACCESS_FLAGS,
		IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU},
	[CRPC_IB_DCI] = {INIT_COMMON, IBV_QP_PATH_MTU, RTS_REQUESTER},
};

uint8_t
crpc_ib_kind_of(const struct crpc_rdma_qp_conf *conf)
{
	static const uint8_t kinds[] = {[CRPC_RDMA_RC] = CRPC_IB_RC,
		[CRPC_RDMA_DC] = CRPC_IB_DC,
		[CRPC_RDMA_UD] = CRPC_IB_UD};

	return kinds[conf->transport];
}

/* 0, -EINVAL or -ENOSPC. */
static int
room_check(const struct crpc_ib *ib, const struct crpc_rdma_qp_conf *conf, uint32_t share,
	size_t inline_max)
{
	if (conf->inline_max > inline_max)
		return crpc_fail(-EINVAL, "queue pair: inline_max %u is above %zu",
			conf->inline_max, inline_max);
	if (ib->num_qps == CRPC_RDMA_QPS_MAX)
		return crpc_fail(-ENOSPC,
			"queue pair: the device has %u already, the most there may be",
			CRPC_RDMA_QPS_MAX);
	if (share > ib->cq_depth - ib->cq_used)
		return crpc_fail(-ENOSPC,
			"queue pair: sq_depth %u + rq_depth %u do not fit: %u of the %u "
			"completions of cq_depth are set aside already: open the device with a "
			"larger cq_depth",
			conf->sq_depth, conf->rq_depth, ib->cq_used, ib->cq_depth);
	return 0;
}

int
crpc_ib_errno(const char *what)
{
	int err = errno;

	crpc_err("queue pair: no %s: %s%s", what, strerror(err),
		err == EOPNOTSUPP ? ": the device has no such transport" : "");
	return err == EINVAL || err == EOPNOTSUPP ? -err : -ENOMEM;
}

int
crpc_ib_qp_init(struct crpc_ib *ib, struct crpc_ib_qp *qp, uint8_t kind,
	const struct crpc_rdma_qp_conf *conf, size_t inline_max)
{
	int rc;

	/* What an initiator has outstanding is set aside with the queue pairs that use it. */
	qp->cq_share = kind == CRPC_IB_DCI ? 1 : conf->sq_depth + conf->rq_depth;
	rc = room_check(ib, conf, qp->cq_share, inline_max);
	if (rc != 0)
		return rc;
	crpc_ib_refresh(ib);
	qp->base = (struct crpc_rdma_qp){.dev = &ib->base, .id = conf->id};
	qp->kind = kind;
	qp->depth = conf->sq_depth;
	qp->rq_depth = conf->rq_depth;
	qp->inline_max = conf->inline_max;
	qp->signal_every = (uint32_t)crpc_min(crpc_max(conf->sq_depth / 4, 1), SIGNAL_EVERY_MAX);
	if (kind == CRPC_IB_RC)
		qp->psn = (uint32_t)crpc_clock_ticks() & 0xffffff;
	if (kind != CRPC_IB_UD && kind != CRPC_IB_DC)
		return 0;
	if (getrandom(&qp->key, sizeof(qp->key), 0) != sizeof(qp->key))
		return -EIO;
	/* With its highest bit a Q_Key would stand for the sender's own. */
	if (kind == CRPC_IB_UD)
		qp->key &= 0x7fffffff;
	return 0;
}

void
crpc_ib_qp_add(struct crpc_ib *ib, struct crpc_ib_qp *qp)
{
	qp->next = ib->qps;
	ib->qps = qp;
	ib->num_qps++;
	ib->cq_used += qp->cq_share;
}

void
crpc_ib_qp_remove(struct crpc_ib *ib, struct crpc_ib_qp *qp)
{
	struct crpc_ib_qp **at = &ib->qps, **fault = &ib->faults;

	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	while (*fault != NULL && *fault != qp)
		fault = &(*fault)->next_fault;
	if (*fault != NULL)
		*fault = qp->next_fault;
	ib->num_qps--;
}

bool
crpc_ib_qp_destroy(struct crpc_ib_qp *qp)
{
	struct crpc_ib *ib = crpc_ib_of(qp->base.dev);
	int rc = qp->ibqp != NULL ? ibv_destroy_qp(qp->ibqp) : 0;

	if (rc == 0)
		return true;
	qp->next = ib->kept;
	ib->kept = qp;
	crpc_err("qp_free: qp 0x%x: %s: its memory stays until the device is closed",
		qp->ibqp->qp_num, strerror(rc));
	return false;
}

/* ---- errors ---- */

crpc_noinline void
crpc_ib_fault(struct crpc_ib_qp *qp, int status, uint32_t wr_id, const char *why)
{
	struct crpc_ib *ib = crpc_ib_of(qp->base.dev);

	qp->state = CRPC_IB_ERROR;
	if (qp->fault != 0)
		return;
	crpc_err("qp 0x%x (id %u): %s (wr_id %u): the QP is closed", qp->qpn, qp->base.id, why,
		wr_id);
	qp->fault = (int16_t)status;
	qp->fault_wr_id = wr_id;
	qp->next_fault = ib->faults;
	ib->faults = qp;
	crpc_store_relaxed(&ib->attention, 1);
}

crpc_noinline void
crpc_ib_all_fault(struct crpc_ib *ib)
{
	for (struct crpc_ib_qp *qp = ib->qps; qp != NULL; qp = qp->next) {
		if (qp->kind != CRPC_IB_DCI && qp->state != CRPC_IB_RETIRED)
			crpc_ib_fault(qp, -EIO, 0, "the device or its completion queue has failed");
	}
}

crpc_noinline uint16_t
crpc_ib_faults_take(struct crpc_ib *ib, struct crpc_rdma_cqe *out, uint16_t n,
	void (*to_error)(struct crpc_ib_qp *qp))
{
	struct crpc_ib_qp *qp;
	uint16_t got = 0;

	if (crpc_load_relaxed(&ib->failed) != 0) {
		crpc_store_relaxed(&ib->failed, 0);
		crpc_ib_all_fault(ib);
	}
	while (ib->faults != NULL && got < n) {
		qp = ib->faults;
		ib->faults = qp->next_fault;
		to_error(qp);
		if (qp->state == CRPC_IB_RETIRED)
			continue;
		out[got++] = (struct crpc_rdma_cqe){
			.type = CRPC_RDMA_CQE_ERROR,
			.status = qp->fault,
			.qp_id = qp->base.id,
			.wr_id = qp->fault_wr_id,
		};
		qp->is_failed = true;
	}
	if (ib->faults != NULL)
		crpc_store_relaxed(&ib->attention, 1);
	return got;
}

void
crpc_ib_to_error(struct crpc_ib_qp *qp)
{
	int rc = crpc_ib_state_set(qp->ibqp, IBV_QPS_ERR);

	if (rc != 0)
		crpc_warn("qp 0x%x to ERR: %s", qp->qpn, strerror(rc));
}

/* ---- addresses and states ---- */

int
crpc_ib_qp_in_order(struct crpc_rdma_qp *base)
{
	return ibv_query_qp_data_in_order(crpc_ib_qp_of(base)->ibqp, IBV_WR_RDMA_WRITE, 0);
}

void
crpc_ib_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_ib_qp *qp = crpc_ib_qp_of(base);
	struct crpc_ib *ib = crpc_ib_of(base->dev);
	struct crpc_ib_addr a;

	crpc_ib_refresh(ib);
	a = (struct crpc_ib_addr){
		.kind = qp->kind,
		.qpn = qp->qpn,
		.psn = qp->psn,
		.lid = ib->port_attr.lid,
		.link_layer = ib->port_attr.link_layer,
		.mtu = ib->mtu,
		.rd_atomic = qp->kind == CRPC_IB_RC ? ib->rd_atomic : 0,
		.gid_kind = ib->has_gid ? (uint8_t)(1 + ib->gid.gid_type) : 0,
		.key = qp->key,
	};
	memcpy(a.gid, ib->gid.gid.raw, sizeof(a.gid));
	crpc_ib_addr_encode(&a, addr);
}

/* What all routes of this port have in common. */
static struct ibv_ah_attr
ah_attr(const struct crpc_ib *ib, bool is_global)
{
	struct ibv_ah_attr ah = {.port_num = ib->port, .sl = (uint8_t)ib->conf.sl};

	if (!is_global)
		return ah;
	ah.is_global = 1;
	ah.grh = (struct ibv_global_route){
		.sgid_index = (uint8_t)ib->gid.gid_index,
		.hop_limit = HOP_LIMIT,
		.traffic_class = (uint8_t)ib->conf.traffic_class,
		.flow_label = ib->conf.flow_label,
	};
	return ah;
}

struct ibv_qp_attr
crpc_ib_attr(const struct crpc_ib *ib, uint32_t psn, uint64_t key)
{
	return (struct ibv_qp_attr){
		.port_num = ib->port,
		.pkey_index = ib->pkey_index,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.qkey = (uint32_t)key,
		.path_mtu = (enum ibv_mtu)ib->mtu,
		.sq_psn = psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RNR_RETRY,
		.min_rnr_timer = MIN_RNR_TIMER,
		.max_rd_atomic = ib->rd_atomic,
		.max_dest_rd_atomic = ib->rd_atomic,
		.ah_attr = ah_attr(ib, ib->has_gid),
	};
}

int
crpc_ib_move(uint8_t kind, struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state last)
{
	int rc;

	while (attr->qp_state < last) {
		attr->qp_state++;
		rc = ibv_modify_qp(
			qp, attr, IBV_QP_STATE | states[kind][attr->qp_state - IBV_QPS_INIT]);
		if (rc != 0)
			return crpc_fail(-EIO, "%s 0x%x to state %d on port %u: %s",
				crpc_ib_kind_name(kind), qp->qp_num, (int)attr->qp_state,
				attr->port_num, strerror(rc));
	}
	return 0;
}

int
crpc_ib_state_set(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Whether an address is an IPv4 one: the two families of RoCE v2 do not reach each other. */
static bool
is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* Both ends need a GID, and of the same kind: else what is sent is dropped without a report. */
static int
gids_check(const struct crpc_ib *ib, const struct crpc_ib_addr *peer)
{
	static const char *const kinds[] = {"InfiniBand", "RoCE v1", "RoCE v2"};

	if (!ib->has_gid || peer->gid_kind == 0)
		return crpc_fail(-EHOSTUNREACH,
			"connect: the route needs a GID, and %s has none: check gid",
			ib->has_gid ? "the peer" : "this port");
	if (peer->gid_kind != 1 + ib->gid.gid_type)
		return crpc_fail(-EHOSTUNREACH,
			"connect: the peer's GID is of %s and this port's, index %u, of %s: set "
			"gid at one end to one of the other's kind",
			kinds[peer->gid_kind - 1], ib->gid.gid_index, kinds[ib->gid.gid_type]);
	if (is_ipv4(peer->gid) != is_ipv4(ib->gid.gid.raw))
		return crpc_fail(-EHOSTUNREACH,
			"connect: the peer's GID is an IPv%d address and this port's, index %u, is "
			"not: set gid at one end to one of the other's kind",
			is_ipv4(peer->gid) ? 4 : 6, ib->gid.gid_index);
	return 0;
}

int
crpc_ib_route_fill(
	const struct crpc_ib *ib, const struct crpc_ib_addr *peer, struct ibv_ah_attr *ah)
{
	bool ethernet = ib->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	bool lid_is_enough = !ethernet && peer->lid != 0 &&
		(ib->port_attr.flags & IBV_QPF_GRH_REQUIRED) == 0 &&
		!(ib->has_gid && peer->gid_kind != 0 && memcmp(ib->gid.gid.raw, peer->gid, 8) != 0);

	if (peer->link_layer != ib->port_attr.link_layer)
		return crpc_fail(-EHOSTUNREACH, "connect: the peer's port is %s and this one is %s",
			peer->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
			ethernet ? "Ethernet" : "InfiniBand");
	if (!lid_is_enough && gids_check(ib, peer) != 0)
		return -EHOSTUNREACH;
	*ah = ah_attr(ib, !lid_is_enough);
	ah->dlid = peer->lid;
	if (!lid_is_enough)
		memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	return 0;
}

/* From INIT to RTS, with what only the peer's address has. */
static int
rc_connect(struct crpc_ib_qp *qp, const struct crpc_ib_addr *peer)
{
	const struct crpc_ib *ib = crpc_ib_of(qp->base.dev);
	struct ibv_qp_attr attr = crpc_ib_attr(ib, qp->psn, qp->key);
	int rc;

	attr.qp_state = IBV_QPS_INIT;
	attr.path_mtu = (enum ibv_mtu)crpc_min(peer->mtu, attr.path_mtu);
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_rd_atomic = (uint8_t)crpc_min(ib->rd_atomic, peer->rd_atomic);
	rc = crpc_ib_route_fill(ib, peer, &attr.ah_attr);
	return rc != 0 ? rc : crpc_ib_move(CRPC_IB_RC, qp->ibqp, &attr, IBV_QPS_RTS);
}

int
crpc_ib_qp_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_ib *ib = crpc_ib_of(base->dev);
	struct crpc_ib_qp *qp = crpc_ib_qp_of(base);
	struct crpc_ib_addr peer;
	int rc;

	if (qp->connected)
		return crpc_fail(
			-EISCONN, "connect: qp 0x%x is connected already: make a new one", qp->qpn);
	if (qp->state != CRPC_IB_IDLE)
		return crpc_fail(-EIO, "connect: qp 0x%x is broken: make a new one", qp->qpn);
	crpc_ib_refresh(ib);
	rc = crpc_ib_addr_decode(bytes, qp->kind, &peer);
	if (rc == 0)
		rc = qp->kind == CRPC_IB_DC ? ib->dc_connect(qp, &peer) : rc_connect(qp, &peer);
	if (rc != 0)
		return rc;
	qp->connected = true;
	qp->state = CRPC_IB_READY;
	return 0;
}

struct ibv_ah *
crpc_ib_ah_make(const struct crpc_ib *ib, const struct crpc_ib_addr *peer)
{
	struct ibv_ah_attr attr = {0};
	struct ibv_ah *ah;

	/* A connection agrees on the smaller one; here no packet may be larger than the receiver's,
	 * and those to a DC target must have its size. */
	if (peer->kind == CRPC_IB_DC ? peer->mtu != ib->mtu : peer->mtu < ib->mtu) {
		crpc_err("connect: %s 0x%x has an MTU of %u bytes and this port %u: set mtu at one "
			 "end",
			crpc_ib_kind_name(peer->kind), peer->qpn, 128u << peer->mtu,
			128u << ib->mtu);
		errno = EHOSTUNREACH;
		return NULL;
	}
	if (crpc_ib_route_fill(ib, peer, &attr) != 0) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	/* This also resolves the peer's MAC where the port is Ethernet. */
	ah = ibv_create_ah(ib->pd, &attr);
	if (ah != NULL)
		return ah;
	crpc_err("connect: no address handle for qp 0x%x: %s", peer->qpn, strerror(errno));
	errno = errno == ENOMEM ? ENOMEM : EHOSTUNREACH;
	return NULL;
}

void *
crpc_ib_ah_new(const struct crpc_rdma_qp *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN], size_t size,
	struct crpc_ib_addr *peer)
{
	struct crpc_ib *ib = crpc_ib_of(ud->dev);
	struct crpc_ib_ah *ah;

	crpc_ib_refresh(ib);
	if (crpc_ib_addr_decode(bytes, CRPC_IB_UD, peer) != 0)
		return crpc_null(-EPROTO);
	ah = calloc(1, size);
	if (ah == NULL)
		return NULL;
	ah->base.dev = ud->dev;
	ah->ibah = crpc_ib_ah_make(ib, peer);
	if (ah->ibah == NULL) {
		free(ah); /* errno stays. */
		return NULL;
	}
	ib->num_ahs++;
	return ah;
}

void
crpc_ib_ah_free(struct crpc_rdma_ah *base)
{
	struct crpc_ib_ah *ah = crpc_container_of(base, struct crpc_ib_ah, base);
	int rc = ibv_destroy_ah(ah->ibah);

	if (rc != 0)
		crpc_err("ah_free: %s", strerror(rc));
	crpc_ib_of(base->dev)->num_ahs--;
	free(ah);
}
