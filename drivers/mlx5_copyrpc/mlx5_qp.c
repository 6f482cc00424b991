/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs: made by rdma-core, taken over by mlx5dv_init_obj(), connected through verbs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "mlx5_copyrpc.h"

/* Local acknowledge timeout 4.096 us << 14 = 67 ms, seven tries: a dead peer is known within about
 * half a second (a card may take up to four times that), a busy switch is not taken for one. */
#define ACK_TIMEOUT 14
#define RETRY_COUNT 7
/* A receiver that polls too slowly is waited for; 7 is for ever, and deadlines are the
 * protocol's. */
#define RNR_RETRY 7
/* Code of 60 us: how long a sender holds back when the peer had no receive. */
#define MIN_RNR_TIMER 5
#define HOP_LIMIT     64

uint32_t
crpc_mlx5_wqebb_max(uint32_t inline_max)
{
	uint64_t head = sizeof(struct crpc_mlx5_ctrl) + sizeof(struct crpc_mlx5_raddr);
	uint64_t gather = CRPC_RDMA_SGE_MAX * sizeof(struct crpc_mlx5_data);
	uint64_t inl = crpc_align_up(sizeof(struct crpc_mlx5_inline) + inline_max, CRPC_MLX5_SEG);

	return (uint32_t)(crpc_align_up(head + crpc_max(gather, inl), CRPC_MLX5_BB) / CRPC_MLX5_BB);
}

/* What fits behind the headers when a WQE uses all blocks that were set aside for it. */
static uint32_t
inline_max_of(uint32_t wqebb_max)
{
	return (uint32_t)(wqebb_max * CRPC_MLX5_BB - sizeof(struct crpc_mlx5_ctrl) -
		sizeof(struct crpc_mlx5_raddr) - sizeof(struct crpc_mlx5_inline));
}

void
crpc_mlx5_rq_prefill(void *buf, uint32_t wqe_cnt, uint32_t stride)
{
	/* The list of a receive's buffers ends at this key: this one has none. */
	const struct crpc_mlx5_data none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	uint8_t *wqe = buf;
	uint32_t i;

	for (i = 0; i < wqe_cnt; i++, wqe += stride) {
		memset(wqe, 0, stride);
		memcpy(wqe, &none, sizeof(none));
	}
}

int
crpc_mlx5_table_init(struct crpc_mlx5_table *t, uint32_t num)
{
	uint32_t slots = (uint32_t)crpc_pow2_ceil(crpc_max(2 * (uint64_t)num, 16));

	t->slot = calloc(slots, sizeof(*t->slot));
	if (t->slot == NULL)
		return -ENOMEM;
	t->mask = slots - 1;
	t->shift = 32 - crpc_log2(slots);
	return 0;
}

void
crpc_mlx5_table_add(struct crpc_mlx5_table *t, struct crpc_mlx5_qp *qp)
{
	uint32_t i = crpc_mlx5_table_home(t, qp->qpn);

	while (t->slot[i].qpn != 0)
		i = (i + 1) & t->mask;
	t->slot[i] = (struct crpc_mlx5_slot){.qpn = qp->qpn, .qp = qp};
}

/* Makes the table anew from the list: no tombstones, and it grows and shrinks with the QPs. */
static int
table_rebuild(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_table fresh;
	struct crpc_mlx5_qp_ctl *qp;
	int rc;

	rc = crpc_mlx5_table_init(&fresh, dev->num_qps);
	if (rc != 0)
		return rc;
	for (qp = dev->qps; qp != NULL; qp = qp->next)
		crpc_mlx5_table_add(&fresh, &qp->dp);
	free(dev->dp.table.slot);
	dev->dp.table = fresh;
	return 0;
}

static int
list_add(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	int rc;

	qp->next = dev->qps;
	dev->qps = qp;
	dev->num_qps++;
	rc = table_rebuild(dev);
	if (rc != 0) {
		dev->qps = qp->next;
		dev->num_qps--;
	}
	return rc;
}

static void
list_del(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	struct crpc_mlx5_qp **fault = &dev->dp.faults;
	struct crpc_mlx5_qp_ctl **at = &dev->qps;
	struct crpc_mlx5_slot *slot;
	uint32_t i;

	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	dev->num_qps--;
	for (; *fault != NULL; fault = &(*fault)->next_fault) {
		if (*fault == &qp->dp) {
			*fault = qp->dp.next_fault;
			break;
		}
	}
	if (table_rebuild(dev) == 0)
		return;
	/* No memory for a new table: leave the place taken, but by nobody, so chains stay whole. */
	for (i = 0; i <= dev->dp.table.mask; i++) {
		slot = &dev->dp.table.slot[i];
		if (slot->qp == &qp->dp)
			*slot = (struct crpc_mlx5_slot){.qpn = UINT32_MAX, .qp = NULL};
	}
}

/* The register of a QP; several QPs may have been given the same one. */
static struct crpc_mlx5_bf *
bf_get(struct crpc_mlx5_dev_ctl *dev, void *reg, uint32_t size)
{
	uint32_t i;

	for (i = 0; i < dev->num_bfs; i++) {
		if (dev->bf[i].reg == reg)
			return &dev->bf[i];
	}
	if (dev->num_bfs == CRPC_MLX5_BF_MAX)
		return NULL;
	dev->bf[i] = (struct crpc_mlx5_bf){.reg = reg, .size = size};
	dev->num_bfs++;
	return &dev->bf[i];
}

static struct ibv_qp *
ibqp_create(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_qp_conf *conf, uint32_t inl)
{
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		/* A READ's bytes must land in its memory, never in the CQE. */
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.cap =
			{
				.max_send_wr = conf->sq_depth,
				.max_recv_wr = conf->rq_depth,
				.max_send_sge = CRPC_RDMA_SGE_MAX,
				.max_recv_sge = 1,
				.max_inline_data = inl,
			},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev->pd,
		/* Without these rdma-core sizes the ring for memory window binds: twice as
		 * large. */
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_READ,
	};

	return mlx5dv_create_qp(dev->dp.context, &attr, &dv_attr);
}

/* Takes the queues' memory over from rdma-core. */
static int
queues_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_rdma_qp_conf *conf, uint32_t wqebb_max)
{
	struct mlx5dv_qp raw = {0};
	struct mlx5dv_obj obj = {.qp = {.in = qp->ibqp, .out = &raw}};
	struct crpc_mlx5_sq *sq = &qp->dp.sq;
	struct crpc_mlx5_rq *rq = &qp->dp.rq;

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) != 0 || raw.sq.stride != CRPC_MLX5_BB ||
		!crpc_is_pow2(raw.sq.wqe_cnt) || raw.sq.wqe_cnt < conf->sq_depth * wqebb_max ||
		!crpc_is_pow2(raw.rq.wqe_cnt) || raw.rq.wqe_cnt < conf->rq_depth ||
		raw.rq.stride < sizeof(struct crpc_mlx5_data)) {
		crpc_err(
			"qp_create: rdma-core gave %u send blocks of %u and %u receives of %u bytes, "
			"needed are %u of 64 and %u: ask for shorter queues",
			raw.sq.wqe_cnt, raw.sq.stride, raw.rq.wqe_cnt, raw.rq.stride,
			conf->sq_depth * wqebb_max, conf->rq_depth);
		return -EINVAL;
	}
	sq->bf = bf_get(dev, raw.bf.reg, raw.bf.size);
	sq->sent = calloc(raw.sq.wqe_cnt, sizeof(*sq->sent));
	if (sq->bf == NULL || sq->sent == NULL) {
		crpc_err("qp_create: no %s for one more queue pair",
			sq->sent == NULL ? "memory" : "doorbell register");
		return -ENOMEM;
	}
	sq->buf = raw.sq.buf;
	sq->end = sq->buf + (size_t)raw.sq.wqe_cnt * CRPC_MLX5_BB;
	sq->bb_mask = raw.sq.wqe_cnt - 1;
	sq->dbrec = (_Atomic uint32_t *)(void *)&raw.dbrec[MLX5_SND_DBR];
	sq->qpn_shl8 = qp->ibqp->qp_num << 8;
	sq->depth = conf->sq_depth;
	sq->signal_every =
		(uint32_t)crpc_min(crpc_max(conf->sq_depth / 4, 1), CRPC_MLX5_SIGNAL_EVERY_MAX);
	sq->inline_max = inline_max_of(wqebb_max);
	rq->dbrec = (_Atomic uint32_t *)(void *)&raw.dbrec[MLX5_RCV_DBR];
	crpc_mlx5_rq_prefill(raw.rq.buf, raw.rq.wqe_cnt, raw.rq.stride);
	return 0;
}

/* To INIT, and hands the device its first receives: rdma-core clears the records on the way. */
static int
qp_to_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp, uint32_t rq_depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = dev->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	int rc;

	rc = ibv_modify_qp(qp->ibqp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc != 0) {
		crpc_err("qp_create: qp 0x%x to INIT on port %u: %s", qp->ibqp->qp_num, dev->port,
			strerror(rc));
		return -EIO;
	}
	qp->dp.rq.posted = rq_depth;
	dev->dp.stats.recv_posted += rq_depth;
	crpc_store_release(qp->dp.rq.dbrec, htobe32(rq_depth & CRPC_MLX5_WQE_CTR_MASK));
	return 0;
}

/* 0, or why one more QP of this size cannot be. */
static int
qp_conf_check(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_qp_conf *conf)
{
	uint32_t share = conf->sq_depth + conf->rq_depth;

	if (conf->inline_max > CRPC_MLX5_INLINE_MAX) {
		crpc_err("qp_create: inline_max %u is above %zu", conf->inline_max,
			(size_t)CRPC_MLX5_INLINE_MAX);
		return -EINVAL;
	}
	if (dev->num_qps == CRPC_RDMA_QPS_MAX) {
		crpc_err("qp_create: the device has %u queue pairs already, the most there may be",
			CRPC_RDMA_QPS_MAX);
		return -ENOSPC;
	}
	if (share > dev->cq_depth - dev->cq_used) {
		crpc_err(
			"qp_create: sq_depth %u + rq_depth %u do not fit: %u of the %u completions of "
			"cq_depth are set aside already: open the device with a larger cq_depth",
			conf->sq_depth, conf->rq_depth, dev->cq_used, dev->cq_depth);
		return -ENOSPC;
	}
	return 0;
}

struct crpc_rdma_qp *
crpc_mlx5_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_qp_ctl *qp;
	uint32_t wqebb_max;
	int rc;

	rc = qp_conf_check(dev, conf);
	if (rc != 0)
		goto err_none;
	qp = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*qp), CRPC_CACHE_GUARD));
	if (qp == NULL) {
		rc = -ENOMEM;
		goto err_none;
	}
	memset(qp, 0, sizeof(*qp));
	wqebb_max = crpc_mlx5_wqebb_max(conf->inline_max);
	qp->ibqp = ibqp_create(dev, conf, inline_max_of(wqebb_max));
	if (qp->ibqp == NULL) {
		rc = errno == EINVAL ? -EINVAL : -ENOMEM;
		crpc_err("qp_create: %u sends, %u receives, %u bytes inline: %s", conf->sq_depth,
			conf->rq_depth, conf->inline_max, strerror(errno));
		goto err_free;
	}
	rc = queues_init(dev, qp, conf, wqebb_max);
	if (rc != 0)
		goto err_qp;
	rc = qp_to_init(dev, qp, conf->rq_depth);
	if (rc != 0)
		goto err_qp;
	qp->dp.base = (struct crpc_rdma_qp){.dev = base, .id = conf->id};
	qp->dp.qpn = qp->ibqp->qp_num;
	qp->psn = (uint32_t)crpc_clock_ticks() & 0xffffff;
	qp->cq_share = conf->sq_depth + conf->rq_depth;
	rc = list_add(dev, qp);
	if (rc != 0)
		goto err_qp;
	dev->cq_used += qp->cq_share;
	return &qp->dp.base;

err_qp:
	ibv_destroy_qp(qp->ibqp);
	free(qp->dp.sq.sent);
err_free:
	free(qp);
err_none:
	errno = -rc;
	return NULL;
}

void
crpc_mlx5_qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);
	int rc;

	rc = ibv_destroy_qp(qp->ibqp);
	if (rc != 0) {
		/* The device may still use the queues: what it may write to is not given back. */
		crpc_err("qp_free: qp 0x%x: %s: its memory stays", qp->dp.qpn, strerror(rc));
		return;
	}
	crpc_mlx5_cq_forget(&dev->dp.cq, qp->dp.qpn);
	list_del(dev, qp);
	dev->cq_used -= qp->cq_share;
	free(qp->dp.sq.sent);
	free(qp);
}

void
crpc_mlx5_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	const struct crpc_mlx5_qp_ctl *qp = (const struct crpc_mlx5_qp_ctl *)(const void *)base;
	struct crpc_mlx5_addr a = {
		.qpn = qp->dp.qpn,
		.psn = qp->psn,
		.lid = dev->port_attr.lid,
		.link_layer = dev->port_attr.link_layer,
		.mtu = (uint8_t)dev->port_attr.active_mtu,
		.rd_atomic = dev->rd_atomic,
		.has_gid = dev->has_gid,
	};

	memcpy(a.gid, dev->gid.raw, sizeof(a.gid));
	crpc_mlx5_addr_encode(&a, addr);
}

/* Fills the way to the peer; 0 or -EHOSTUNREACH. */
static int
route_fill(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct ibv_ah_attr *ah)
{
	bool ethernet = dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	bool subnets_differ = dev->has_gid && peer->has_gid && memcmp(dev->gid.raw, peer->gid, 8);

	if (peer->link_layer != dev->port_attr.link_layer) {
		crpc_err("connect: the peer's port is %s and this one is %s",
			peer->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
			ethernet ? "Ethernet" : "InfiniBand");
		return -EHOSTUNREACH;
	}
	ah->port_num = dev->port;
	ah->dlid = peer->lid;
	if (!ethernet && peer->lid != 0 && !subnets_differ)
		return 0;
	if (!dev->has_gid || !peer->has_gid) {
		crpc_err("connect: the route needs a GID, and %s has none: check gid_index",
			dev->has_gid ? "the peer" : "this port");
		return -EHOSTUNREACH;
	}
	ah->is_global = 1;
	ah->grh.sgid_index = (uint8_t)dev->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	return 0;
}

static int
qp_to_rtr(const struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_mlx5_addr *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)crpc_min(peer->mtu, (uint64_t)dev->port_attr.active_mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = dev->rd_atomic,
		.min_rnr_timer = MIN_RNR_TIMER,
	};
	int rc;

	rc = route_fill(dev, peer, &attr.ah_attr);
	if (rc != 0)
		return rc;
	rc = ibv_modify_qp(qp->ibqp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc != 0) {
		crpc_err("connect: qp 0x%x to RTR, peer qp 0x%x lid %u: %s", qp->dp.qpn, peer->qpn,
			peer->lid, strerror(rc));
		return -EIO;
	}
	return 0;
}

static int
qp_to_rts(const struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_mlx5_addr *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qp->psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RNR_RETRY,
		.max_rd_atomic = (uint8_t)crpc_min(dev->rd_atomic, peer->rd_atomic),
	};
	int rc;

	rc = ibv_modify_qp(qp->ibqp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (rc != 0) {
		crpc_err("connect: qp 0x%x to RTS: %s", qp->dp.qpn, strerror(rc));
		return -EIO;
	}
	return 0;
}

int
crpc_mlx5_qp_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);
	struct crpc_mlx5_addr peer;
	int rc;

	if (qp->connected) {
		crpc_err("connect: qp 0x%x is connected already: make a new one", qp->dp.qpn);
		return -EISCONN;
	}
	rc = crpc_mlx5_addr_decode(bytes, &peer);
	if (rc == 0)
		rc = qp_to_rtr(dev, qp, &peer);
	if (rc == 0)
		rc = qp_to_rts(dev, qp, &peer);
	if (rc != 0)
		return rc;
	qp->connected = true;
	qp->dp.state = CRPC_MLX5_QP_READY;
	return 0;
}

void
crpc_mlx5_qp_to_error(struct crpc_mlx5_qp *dp)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_container_of(dp, struct crpc_mlx5_qp_ctl, dp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int rc;

	rc = ibv_modify_qp(qp->ibqp, &attr, IBV_QP_STATE);
	if (rc != 0)
		crpc_warn("qp 0x%x to ERR: %s", dp->qpn, strerror(rc));
}
