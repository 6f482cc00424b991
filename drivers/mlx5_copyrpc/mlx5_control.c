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

static int
dev_init(struct crpc_ib *ib)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(&ib->base);
	int rc = crpc_mlx5_table_init(&dev->table, 0);

	ib->dc_connect = crpc_mlx5_dc_connect;
	if (rc == 0)
		rc = crpc_mlx5_cq_init(dev, ib->conf.cq_depth);
	return rc != 0 ? rc : crpc_mlx5_tel_open(dev);
}

static struct crpc_rdma *
dev_open(const struct crpc_rdma_conf *conf)
{
	const struct crpc_rdma base = {.fp = {crpc_mlx5_post, crpc_mlx5_poll}, .ops = &mlx5_ops};

	return crpc_ib_open(
		sizeof(struct crpc_mlx5_dev), &base, conf, mlx5dv_is_supported, dev_init);
}

static struct crpc_rdma_qp *
qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(base);
	uint8_t kind = crpc_ib_kind_of(conf);
	struct crpc_mlx5_qp *qp;

	if (kind == CRPC_IB_DC && !crpc_mlx5_dcis_make(dev))
		return NULL;
	qp = crpc_mlx5_qp_make(dev, kind, conf);
	return qp != NULL ? &qp->ib.base : NULL;
}

static void
qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(base->dev);
	struct crpc_mlx5_qp *qp = crpc_mlx5_qp(crpc_ib_qp_of(base));

	if (qp->ib.kind == CRPC_IB_UD)
		crpc_mlx5_ud_forget(crpc_container_of(qp, struct crpc_mlx5_ud, qp));
	if (crpc_mlx5_qp_drain(base) == 0) {
		crpc_mlx5_qp_end(qp);
		return;
	}
	/* Its completions still need their room, so it stays among the device's queue pairs. */
	qp->next_ending = dev->ending;
	dev->ending = qp;
	crpc_store_relaxed(&dev->ib.attention, 1);
}

static void
dev_close(struct crpc_rdma *base)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(base);
	struct crpc_ib_qp *qp, *next;
	struct crpc_mlx5_bf *bf;

	crpc_mlx5_dcis_stop(dev);
	while (crpc_mlx5_ending_take(dev))
		;
	crpc_ib_left_check(&dev->ib, dev->num_dcis);
	for (qp = dev->ib.qps; qp != NULL; qp = next) {
		next = qp->next;
		if (qp->kind != CRPC_IB_DCI)
			qp_free(&qp->base);
	}
	for (uint32_t i = 0; i < dev->num_dcis; i++)
		crpc_mlx5_qp_end(&dev->dci[i]->qp);
	while ((bf = dev->bfs) != NULL) {
		dev->bfs = bf->next;
		free(bf);
	}
	crpc_tel_free(dev->tel);
	free(dev->table.slot);
	crpc_ib_close(&dev->ib, crpc_mlx5_objects_free);
}

static void
dev_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	crpc_ib_info_get(crpc_ib_of(base), info);
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
