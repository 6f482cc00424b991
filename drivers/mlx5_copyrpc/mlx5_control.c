/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device: found by its verbs name, opened through rdma-core, with one protection domain and one
 * completion queue, whose memory the datapath then reads itself; and its queue pairs.
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

	crpc_ib_events_close(&dev->dp.ib); /* Before what they are about goes. */
	while ((bf = dev->bfs) != NULL) {
		dev->bfs = bf->next;
		free(bf);
	}
	if (dev->cq != NULL)
		ibv_destroy_cq(dev->cq);
	free(dev->dp.table.slot);
	crpc_ib_close(&dev->dp.ib);
	free(dev);
}

static int
objects_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	int rc;

	dev->dcis = conf->dcis;
	dev->dp.drain_ns = conf->drain_ns;
	dev->dp.ib.dc_connect = crpc_mlx5_dc_connect;
	rc = crpc_ib_open(&dev->dp.ib, conf, mlx5dv_is_supported);
	if (rc == 0)
		rc = crpc_mlx5_table_init(&dev->dp.table, 0);
	if (rc == 0)
		rc = crpc_mlx5_cq_init(dev, conf->cq_depth);
	if (rc == 0)
		rc = crpc_ib_events_open(&dev->dp.ib);
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
	dev->dp.ib.base.fp.post = crpc_mlx5_post;
	dev->dp.ib.base.fp.poll = crpc_mlx5_poll;
	dev->dp.ib.base.ops = &mlx5_ops;
	rc = objects_init(dev, conf);
	if (rc != 0) {
		objects_fini(dev);
		return crpc_null(rc);
	}
	dev->dp.progress = crpc_ib_progress_find();
	return &dev->dp.ib.base;
}

static struct crpc_rdma_qp *
qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	uint8_t kind = crpc_ib_kind_of(conf);
	struct crpc_mlx5_qp_ctl *qp;

	if (kind == CRPC_IB_DC && !crpc_mlx5_dcis_make(dev))
		return NULL;
	qp = crpc_mlx5_qp_make(dev, kind, conf);
	return qp != NULL ? &qp->dp.ib.base : NULL;
}

static void
qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);

	if (qp->dp.ib.kind == CRPC_IB_UD)
		crpc_mlx5_ud_forget(crpc_container_of(qp, struct crpc_mlx5_ud, qp));
	if (crpc_mlx5_qp_drain(base) == 0) {
		crpc_mlx5_qp_end(qp);
		return;
	}
	/* Its completions still need their room, so it stays among the device's queue pairs. */
	qp->next_ending = dev->dp.ending;
	dev->dp.ending = qp;
	crpc_store_relaxed(&dev->dp.ib.attention, 1);
}

static void
dev_close(struct crpc_rdma *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_ib_qp *qp, *next;

	crpc_mlx5_dcis_stop(&dev->dp);
	while (crpc_mlx5_ending_take(&dev->dp))
		;
	crpc_ib_left_check(&dev->dp.ib, dev->dp.num_dcis);
	for (qp = dev->dp.ib.qps; qp != NULL; qp = next) {
		next = qp->next;
		if (qp->kind != CRPC_IB_DCI)
			qp_free(&qp->base);
	}
	for (uint32_t i = 0; i < dev->dp.num_dcis; i++)
		crpc_mlx5_qp_end(&dev->dp.dci[i]->qp);
	crpc_ib_kept_free(&dev->dp.ib, crpc_mlx5_objects_free);
	crpc_tel_free(dev->dp.tel);
	objects_fini(dev);
}

static void
dev_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct crpc_mlx5_dev_ctl *dev = (const struct crpc_mlx5_dev_ctl *)(const void *)base;

	crpc_ib_info_get(&dev->dp.ib, info);
	info->inline_max = CRPC_MLX5_INLINE_MAX;
	info->inline_max_dc = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD);
	info->inline_max_ud = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_UD_HEAD);
}

static const struct crpc_rdma_ops mlx5_ops = {
	.name = "mlx5_copyrpc",
	.open = dev_open,
	.close = dev_close,
	.info_get = dev_info_get,
	.mr_reg = crpc_ib_mr_reg,
	.mr_dereg = crpc_ib_mr_dereg,
	.qp_create = qp_create,
	.qp_free = qp_free,
	.qp_drain = crpc_mlx5_qp_drain,
	.qp_addr = crpc_ib_qp_addr,
	.qp_connect = crpc_ib_qp_connect,
	.qp_in_order = crpc_ib_qp_in_order,
	.ah_create = crpc_mlx5_ah_create,
	.ah_free = crpc_ib_ah_free,
	.card_get = crpc_ib_card_get,
	.dump = crpc_mlx5_dump,
};

CRPC_RDMA_DRIVER(mlx5, mlx5_ops)
