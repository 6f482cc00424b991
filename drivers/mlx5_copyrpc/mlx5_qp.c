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
	return qp != NULL ? &qp->dp.base : NULL;
}

void
crpc_mlx5_qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);

	if (qp->dp.kind == CRPC_IB_DC) {
		crpc_mlx5_dc_free(base);
		return;
	}
	if (qp->dp.kind == CRPC_IB_UD)
		crpc_mlx5_ud_forget(crpc_container_of(qp, struct crpc_mlx5_ud, qp));
	crpc_mlx5_qp_end(qp);
}

int
crpc_mlx5_qp_drain(struct crpc_rdma_qp *base)
{
	return crpc_mlx5_qp_ctl(base)->dp.kind == CRPC_IB_DC ? crpc_mlx5_dc_drain(base) : 0;
}

void
crpc_mlx5_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	const struct crpc_mlx5_qp_ctl *qp = (const struct crpc_mlx5_qp_ctl *)(const void *)base;
	struct crpc_ib_addr a;

	crpc_ib_refresh(&dev->ib);
	a = crpc_ib_addr_of(&dev->ib, qp->dp.kind, qp->dp.qpn, qp->psn, qp->key);
	crpc_ib_addr_encode(&a, addr);
}

/* From INIT to RTS, with what only the peer's address has. */
static int
rc_connect(struct crpc_mlx5_qp_ctl *qp, const struct crpc_ib_addr *peer)
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(qp->dp.base.dev);
	struct ibv_qp_attr attr = crpc_ib_attr(&dev->ib, qp->psn, qp->key);
	int rc;

	attr.qp_state = IBV_QPS_INIT;
	rc = crpc_ib_rc_fill(&dev->ib, peer, &attr);
	return rc != 0 ? rc : crpc_ib_move(CRPC_IB_RC, qp->ibqp, &attr, IBV_QPS_RTS);
}

int
crpc_mlx5_qp_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);
	struct crpc_ib_addr peer;
	int rc;

	if (qp->connected)
		return crpc_fail(-EISCONN, "connect: qp 0x%x is connected already: make a new one",
			qp->dp.qpn);
	if (qp->dp.state != CRPC_MLX5_QP_IDLE)
		return crpc_fail(-EIO, "connect: qp 0x%x is broken: make a new one", qp->dp.qpn);
	crpc_ib_refresh(&crpc_mlx5_dev_ctl(base->dev)->ib);
	rc = crpc_ib_addr_decode(bytes, qp->dp.kind, &peer);
	if (rc == 0 && qp->dp.kind == CRPC_IB_DC)
		rc = crpc_mlx5_dc_connect(qp, &peer);
	else if (rc == 0)
		rc = rc_connect(qp, &peer);
	if (rc != 0)
		return rc;
	qp->connected = true;
	qp->dp.state = CRPC_MLX5_QP_READY;
	return 0;
}
