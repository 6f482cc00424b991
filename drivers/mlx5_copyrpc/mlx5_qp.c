/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs as the device class sees them: reliable connections, and the operations that those
 * have in common with DC queue pairs (mlx5_dc.c).
 */
#include <errno.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

struct crpc_rdma_qp *
crpc_mlx5_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	uint8_t kind = crpc_ib_kind_of(conf);
	struct crpc_mlx5_qp_ctl *qp;

	if (kind == CRPC_IB_DC && !crpc_mlx5_dcis_make(dev))
		return NULL;
	qp = crpc_mlx5_qp_make(dev, kind, conf);
	return qp != NULL ? &qp->dp.ib.base : NULL;
}

void
crpc_mlx5_qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);

	if (qp->dp.ib.kind == CRPC_IB_DC) {
		crpc_mlx5_dc_free(base);
		return;
	}
	if (qp->dp.ib.kind == CRPC_IB_UD)
		crpc_mlx5_ud_forget(crpc_container_of(qp, struct crpc_mlx5_ud, qp));
	crpc_mlx5_qp_end(qp);
}
