/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams, the control path: the queue pair with its receive buffers, and address handles.
 *
 *     receive WQE i --> buffer i:  | 24 unused | GRH 40 | payload, up to 4096 |
 *                                  0           24       64
 *
 * WQEs and buffers belong together for ever. The device takes receives in the order of the ring, so
 * which buffer a completion means is its index, and handing buffers back is adding to a counter.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

#define BUF_ALIGN 4096

void
crpc_mlx5_ud_prefill(void *buf, uint32_t stride, const struct crpc_mlx5_ud *ud, uint32_t lkey)
{
	struct crpc_mlx5_data data = {
		.byte_count = htobe32(CRPC_MLX5_GRH + CRPC_MLX5_UD_LEN_MAX),
		.lkey = htobe32(lkey),
	};
	const struct crpc_mlx5_data none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	uint8_t *wqe = buf;
	uint32_t i;

	for (i = 0; i <= ud->mask; i++, wqe += stride) {
		memset(wqe, 0, stride);
		data.addr = htobe64((uintptr_t)ud->buf + (uint64_t)i * ud->stride +
			CRPC_MLX5_UD_PAYLOAD - CRPC_MLX5_GRH);
		memcpy(wqe, &data, sizeof(data));
		/* A WQE with room for more elements ends its list. */
		if (stride >= 2 * sizeof(data))
			memcpy(wqe + sizeof(data), &none, sizeof(none));
	}
}

static struct ibv_qp *
ibqp_create(struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_sizes *sizes)
{
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		/* A short datagram must land in its buffer, never in the CQE. */
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_UD,
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.cap =
			{
				.max_send_wr = sizes->sq_depth,
				.max_recv_wr = sizes->rq_depth,
				.max_send_sge = CRPC_RDMA_SGE_MAX,
				.max_recv_sge = 1,
				.max_inline_data = sizes->inline_max,
			},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};

	return mlx5dv_create_qp(dev->dp.context, &attr, &dv_attr);
}

/* Receive buffers for the whole ring, registered, and named by its WQEs. */
static int
buffers_init(
	struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_ud_ctl *ctl, const struct mlx5dv_qp *raw)
{
	struct crpc_mlx5_ud *ud = &ctl->ud;
	size_t len;

	ud->mtu = 128u << dev->port_attr.active_mtu;
	ud->stride = CRPC_MLX5_UD_PAYLOAD + CRPC_MLX5_UD_LEN_MAX;
	ud->mask = raw->rq.wqe_cnt - 1;
	len = crpc_align_up((uint64_t)raw->rq.wqe_cnt * ud->stride, BUF_ALIGN);
	ud->buf = aligned_alloc(BUF_ALIGN, len);
	if (ud->buf == NULL) {
		crpc_err("ud_create: no memory for %u receive buffers of %u bytes", raw->rq.wqe_cnt,
			ud->stride);
		return -ENOMEM;
	}
	memset(ud->buf, 0, len);
	ctl->mr = ibv_reg_mr(dev->pd, ud->buf, len, IBV_ACCESS_LOCAL_WRITE);
	if (ctl->mr == NULL) {
		crpc_err("ud_create: %zu bytes of receive buffers: %s: check the limit of locked "
			 "memory (ulimit -l)",
			len, strerror(errno));
		return -ENOMEM;
	}
	crpc_mlx5_ud_prefill(raw->rq.buf, raw->rq.stride, ud, ctl->mr->lkey);
	return 0;
}

/* To the state in which it sends and receives: there is no peer to wait for. */
static int
ud_start(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_ud_ctl *ctl, uint32_t rq_depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = dev->port,
		.qkey = ctl->qkey,
	};
	int rc;

	rc = ibv_modify_qp(
		ctl->qp.ibqp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (rc == 0) {
		crpc_mlx5_rq_start(dev, &ctl->qp.dp, rq_depth);
		attr.qp_state = IBV_QPS_RTR;
		rc = ibv_modify_qp(ctl->qp.ibqp, &attr, IBV_QP_STATE);
	}
	if (rc == 0) {
		attr.qp_state = IBV_QPS_RTS;
		rc = ibv_modify_qp(ctl->qp.ibqp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	}
	if (rc != 0) {
		crpc_err("ud_create: qp 0x%x to state %d on port %u: %s", ctl->qp.dp.qpn,
			(int)attr.qp_state, dev->port, strerror(rc));
		return -EIO;
	}
	ctl->qp.dp.state = CRPC_MLX5_QP_READY;
	return 0;
}

static int
ud_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_ud_ctl *ctl,
	const struct crpc_mlx5_sizes *sizes, uint32_t id)
{
	struct mlx5dv_qp raw = {0};
	int rc;

	ctl->qp.dp.base = (struct crpc_rdma_qp){.dev = &dev->dp.base, .id = id};
	ctl->qp.dp.kind = CRPC_MLX5_UD;
	ctl->ud.base = (struct crpc_rdma_ud){.dev = &dev->dp.base, .id = id};
	ctl->ud.qp = &ctl->qp.dp;
	ctl->qp.dp.rq.ud = &ctl->ud;
	if (getrandom(&ctl->qkey, sizeof(ctl->qkey), 0) != sizeof(ctl->qkey))
		return -EIO;
	/* With the highest bit it would stand for the sender's own. */
	ctl->qkey &= 0x7fffffff;
	rc = crpc_mlx5_queues_init(dev, &ctl->qp, sizes, &raw);
	if (rc == 0)
		rc = buffers_init(dev, ctl, &raw);
	if (rc == 0)
		rc = ud_start(dev, ctl, sizes->rq_depth);
	if (rc == 0)
		rc = crpc_mlx5_list_add(dev, &ctl->qp, sizes->sq_depth + sizes->rq_depth);
	return rc;
}

static void
buffers_free(struct crpc_mlx5_ud_ctl *ctl)
{
	if (ctl->mr != NULL)
		ibv_dereg_mr(ctl->mr);
	free(ctl->ud.buf);
}

struct crpc_rdma_ud *
crpc_mlx5_ud_create(struct crpc_rdma *base, const struct crpc_rdma_ud_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_sizes sizes;
	struct crpc_mlx5_ud_ctl *ctl;
	int rc;

	rc = crpc_mlx5_sizes_init(
		dev, CRPC_MLX5_UD_HEAD, conf->sq_depth, conf->rq_depth, conf->inline_max, &sizes);
	if (rc != 0)
		goto err_none;
	ctl = crpc_mlx5_zalloc(sizeof(*ctl));
	if (ctl == NULL) {
		rc = -ENOMEM;
		goto err_none;
	}
	ctl->qp.ibqp = ibqp_create(dev, &sizes);
	if (ctl->qp.ibqp == NULL) {
		rc = errno == EINVAL ? -EINVAL : -ENOMEM;
		crpc_err("ud_create: %u sends, %u receives, %u bytes inline: %s", conf->sq_depth,
			conf->rq_depth, conf->inline_max, strerror(errno));
		goto err_free;
	}
	rc = ud_init(dev, ctl, &sizes, conf->id);
	if (rc != 0)
		goto err_qp;
	return &ctl->ud.base;

err_qp:
	ibv_destroy_qp(ctl->qp.ibqp);
	free(ctl->qp.dp.sq.sent);
	buffers_free(ctl);
err_free:
	free(ctl);
err_none:
	errno = -rc;
	return NULL;
}

void
crpc_mlx5_ud_free(struct crpc_rdma_ud *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_ud_ctl *ctl = crpc_container_of(base, struct crpc_mlx5_ud_ctl, ud.base);
	struct crpc_mlx5_ud **at = &dev->dp.held;

	while (*at != NULL && *at != &ctl->ud)
		at = &(*at)->next_held;
	if (*at != NULL)
		*at = ctl->ud.next_held;
	if (!crpc_mlx5_list_del(dev, &ctl->qp))
		return;
	buffers_free(ctl);
	free(ctl);
}

void
crpc_mlx5_ud_addr(const struct crpc_rdma_ud *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_mlx5_ud_ctl *ctl =
		(const struct crpc_mlx5_ud_ctl *)(const void *)((const uint8_t *)base -
			offsetof(struct crpc_mlx5_ud_ctl, ud.base));
	struct crpc_mlx5_addr a = {
		.kind = CRPC_MLX5_UD,
		.qpn = ctl->qp.dp.qpn,
		.key = ctl->qkey,
	};

	crpc_mlx5_addr_fill(crpc_mlx5_dev_ctl(base->dev), &a);
	crpc_mlx5_addr_encode(&a, addr);
}

struct crpc_rdma_ah *
crpc_mlx5_ah_create(struct crpc_rdma_ud *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(ud->dev);
	struct crpc_mlx5_addr peer;
	struct crpc_mlx5_ah *ah;
	bool full;
	int err;

	if (crpc_mlx5_addr_decode(bytes, CRPC_MLX5_UD, &peer) != 0) {
		errno = EPROTO;
		return NULL;
	}
	ah = crpc_mlx5_zalloc(sizeof(*ah));
	if (ah == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	ah->ibah = crpc_mlx5_av_make(dev, &peer, &ah->av, &full);
	if (ah->ibah == NULL) {
		err = errno;
		free(ah);
		errno = err;
		return NULL;
	}
	ah->base.dev = ud->dev;
	ah->av.qkey = htobe32((uint32_t)peer.key);
	dev->num_ahs++;
	return &ah->base;
}

void
crpc_mlx5_ah_free(struct crpc_rdma_ah *base)
{
	struct crpc_mlx5_ah *ah = crpc_container_of(base, struct crpc_mlx5_ah, base);
	int rc;

	crpc_mlx5_dev_ctl(base->dev)->num_ahs--;
	rc = ibv_destroy_ah(ah->ibah);
	if (rc != 0)
		crpc_err("ah_free: %s", strerror(rc));
	free(ah);
}
