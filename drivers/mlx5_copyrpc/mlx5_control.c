/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device: found by its verbs name, opened through rdma-core, with one protection domain and one
 * completion queue, whose memory the datapath then reads itself.
 */
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

static const struct crpc_rdma_ops mlx5_ops;

/* What the driver made, as far as it did. */
static void
objects_fini(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_bf *bf;

	crpc_ib_events_close(&dev->ib); /* Before what they are about goes. */
	while ((bf = dev->bfs) != NULL) {
		dev->bfs = bf->next;
		free(bf);
	}
	if (dev->cq != NULL)
		ibv_destroy_cq(dev->cq);
	free(dev->dp.table.slot);
	crpc_ib_close(&dev->ib);
	free(dev);
}

static int
objects_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	int rc;

	dev->dcis = conf->dcis;
	dev->dp.drain_ns = conf->drain_ns;
	rc = crpc_ib_open(&dev->ib, conf, mlx5dv_is_supported);
	if (rc == 0)
		rc = crpc_mlx5_table_init(&dev->dp.table, 0);
	dev->dp.context = dev->ib.context;
	if (rc == 0)
		rc = crpc_mlx5_cq_init(dev, conf->cq_depth);
	if (rc == 0)
		rc = crpc_ib_events_open(&dev->ib, &dev->dp.failed, &dev->dp.attention);
	return rc != 0 ? rc : crpc_mlx5_tel_open(dev);
}

static struct crpc_rdma *
dev_open(const struct crpc_rdma_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev;
	int rc;

	dev = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*dev), CRPC_CACHE_GUARD));
	if (dev == NULL)
		return NULL;
	memset(dev, 0, sizeof(*dev));
	dev->dp.base.fp.post = crpc_mlx5_post;
	dev->dp.base.fp.poll = crpc_mlx5_poll;
	dev->dp.base.fp.ud_post = crpc_mlx5_ud_post;
	dev->dp.base.ops = &mlx5_ops;
	rc = objects_init(dev, conf);
	if (rc != 0) {
		objects_fini(dev);
		return crpc_null(rc);
	}
	dev->dp.progress = crpc_ib_progress_find();
	return &dev->dp.base;
}

static void
dev_close(struct crpc_rdma *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_qp_ctl *qp, *next;

	crpc_mlx5_dcis_stop(&dev->dp);
	while (crpc_mlx5_ending_take(&dev->dp))
		;
	crpc_ib_left_check(&dev->ib, dev->dp.num_dcis);
	for (qp = dev->qps; qp != NULL; qp = next) {
		next = qp->next;
		if (qp->dp.kind != CRPC_IB_DCI)
			crpc_mlx5_qp_free(&qp->dp.base);
	}
	for (uint32_t i = 0; i < dev->dp.num_dcis; i++)
		crpc_mlx5_qp_end(&dev->dp.dci[i]->qp);
	crpc_mlx5_kept_free(dev);
	crpc_mlx5_tel_close(dev);
	objects_fini(dev);
}

static void
dev_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct crpc_mlx5_dev_ctl *dev = (const struct crpc_mlx5_dev_ctl *)(const void *)base;

	crpc_ib_info_get(&dev->ib, info);
	info->inline_max = CRPC_MLX5_INLINE_MAX;
	info->inline_max_dc = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD);
	info->inline_max_ud = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_UD_HEAD);
}

static int
dev_mr_reg(struct crpc_rdma *base, void *addr, uint64_t len, uint32_t flags,
	struct crpc_rdma_mr *mr)
{
	return crpc_ib_mr_reg(&crpc_mlx5_dev_ctl(base)->ib, addr, len, flags, mr);
}

static void
dev_mr_dereg(struct crpc_rdma *base, struct crpc_rdma_mr *mr)
{
	crpc_ib_mr_dereg(&crpc_mlx5_dev_ctl(base)->ib, mr);
}

static int
qp_in_order(struct crpc_rdma_qp *base)
{
	return ibv_query_qp_data_in_order(crpc_mlx5_qp_ctl(base)->ibqp, IBV_WR_RDMA_WRITE, 0);
}

static int
dev_card_get(const struct crpc_rdma *base, struct crpc_rdma_card *card)
{
	return crpc_ib_card_get(&((const struct crpc_mlx5_dev_ctl *)(const void *)base)->ib, card);
}

static const struct crpc_rdma_ops mlx5_ops = {
	.name = "mlx5_copyrpc",
	.open = dev_open,
	.close = dev_close,
	.info_get = dev_info_get,
	.mr_reg = dev_mr_reg,
	.mr_dereg = dev_mr_dereg,
	.qp_create = crpc_mlx5_qp_create,
	.qp_free = crpc_mlx5_qp_free,
	.qp_drain = crpc_mlx5_qp_drain,
	.qp_addr = crpc_mlx5_qp_addr,
	.qp_connect = crpc_mlx5_qp_connect,
	.qp_in_order = qp_in_order,
	.ah_create = crpc_mlx5_ah_create,
	.ah_free = crpc_mlx5_ah_free,
	.card_get = dev_card_get,
	.dump = crpc_mlx5_dump,
};

CRPC_RDMA_DRIVER(mlx5, mlx5_ops)
