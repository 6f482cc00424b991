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
	crpc_mlx5_rq_start(dev, &qp->dp, rq_depth);
	return 0;
}

struct crpc_rdma_qp *
crpc_mlx5_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_sizes sizes;
	struct crpc_mlx5_qp_ctl *qp;
	struct mlx5dv_qp raw = {0};
	int rc;

	if (conf->transport == CRPC_RDMA_DC)
		return crpc_mlx5_dc_create(base, conf);
	rc = crpc_mlx5_sizes_init(
		dev, CRPC_MLX5_RC_HEAD, conf->sq_depth, conf->rq_depth, conf->inline_max, &sizes);
	if (rc != 0)
		goto err_none;
	qp = crpc_mlx5_zalloc(sizeof(*qp));
	if (qp == NULL) {
		rc = -ENOMEM;
		goto err_none;
	}
	qp->dp.base = (struct crpc_rdma_qp){.dev = base, .id = conf->id};
	qp->ibqp = ibqp_create(dev, conf, sizes.inline_max);
	if (qp->ibqp == NULL) {
		rc = errno == EINVAL ? -EINVAL : -ENOMEM;
		crpc_err("qp_create: %u sends, %u receives, %u bytes inline: %s", conf->sq_depth,
			conf->rq_depth, conf->inline_max, strerror(errno));
		goto err_free;
	}
	rc = crpc_mlx5_queues_init(dev, qp, &sizes, &raw);
	if (rc != 0)
		goto err_qp;
	crpc_mlx5_rq_prefill(raw.rq.buf, raw.rq.wqe_cnt, raw.rq.stride);
	rc = qp_to_init(dev, qp, conf->rq_depth);
	if (rc != 0)
		goto err_qp;
	qp->psn = (uint32_t)crpc_clock_ticks() & 0xffffff;
	rc = crpc_mlx5_list_add(dev, qp, conf->sq_depth + conf->rq_depth);
	if (rc != 0)
		goto err_qp;
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

	if (qp->dp.kind == CRPC_MLX5_DC)
		crpc_mlx5_dc_free(base);
	else if (crpc_mlx5_list_del(dev, qp))
		free(qp);
}

int
crpc_mlx5_qp_drain(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);

	return qp->dp.kind == CRPC_MLX5_DC ? crpc_mlx5_dc_drain(base) : 0;
}

void
crpc_mlx5_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	const struct crpc_mlx5_qp_ctl *qp = (const struct crpc_mlx5_qp_ctl *)(const void *)base;
	struct crpc_mlx5_addr a = {
		.kind = CRPC_MLX5_RC,
		.qpn = qp->dp.qpn,
		.psn = qp->psn,
		.rd_atomic = dev->rd_atomic,
	};

	if (qp->dp.kind == CRPC_MLX5_DC) {
		crpc_mlx5_dc_addr(base, addr);
		return;
	}
	crpc_mlx5_addr_fill(dev, &a);
	crpc_mlx5_addr_encode(&a, addr);
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

	rc = crpc_mlx5_route_fill(dev, peer, &attr.ah_attr);
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
	if (qp->dp.kind == CRPC_MLX5_DC)
		return crpc_mlx5_dc_connect(base, bytes);
	rc = crpc_mlx5_addr_decode(bytes, CRPC_MLX5_RC, &peer);
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
