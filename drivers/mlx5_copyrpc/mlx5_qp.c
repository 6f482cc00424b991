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
	bool dc = conf->transport == CRPC_RDMA_DC;
	struct crpc_mlx5_qp_ctl *qp;

	if (dc && !crpc_mlx5_dcis_make(dev))
		return NULL;
	qp = crpc_mlx5_qp_make(dev, dc ? CRPC_MLX5_DC : CRPC_MLX5_RC, conf);
	return qp != NULL ? &qp->dp.base : NULL;
}

void
crpc_mlx5_qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);

	if (qp->dp.kind == CRPC_MLX5_DC)
		crpc_mlx5_dc_free(base);
	else
		crpc_mlx5_qp_end(qp);
}

int
crpc_mlx5_qp_drain(struct crpc_rdma_qp *base)
{
	return crpc_mlx5_qp_ctl(base)->dp.kind == CRPC_MLX5_DC ? crpc_mlx5_dc_drain(base) : 0;
}

void
crpc_mlx5_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	const struct crpc_mlx5_qp_ctl *qp = (const struct crpc_mlx5_qp_ctl *)(const void *)base;
	struct crpc_mlx5_addr a = {
		.kind = qp->dp.kind,
		.qpn = qp->dp.qpn,
		.psn = qp->psn,
		.lid = dev->port_attr.lid,
		.link_layer = dev->port_attr.link_layer,
		.mtu = (uint8_t)dev->port_attr.active_mtu,
		.rd_atomic = qp->dp.kind == CRPC_MLX5_RC ? dev->rd_atomic : 0,
		.has_gid = dev->has_gid,
		.key = qp->key,
	};

	memcpy(a.gid, dev->gid.raw, sizeof(a.gid));
	crpc_mlx5_addr_encode(&a, addr);
}

/* From INIT to RTS, with what only the peer's address has. */
static int
rc_connect(struct crpc_mlx5_qp_ctl *qp, const struct crpc_mlx5_addr *peer)
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(qp->dp.base.dev);
	struct ibv_qp_attr attr = crpc_mlx5_attr(qp);
	int rc;

	attr.qp_state = IBV_QPS_INIT;
	attr.path_mtu = (enum ibv_mtu)crpc_min(peer->mtu, attr.path_mtu);
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_rd_atomic = (uint8_t)crpc_min(dev->rd_atomic, peer->rd_atomic);
	rc = crpc_mlx5_route_fill(dev, peer, &attr.ah_attr);
	return rc != 0 ? rc : crpc_mlx5_qp_move(qp, &attr, IBV_QPS_RTS);
}

int
crpc_mlx5_qp_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_qp_ctl *qp = crpc_mlx5_qp_ctl(base);
	struct crpc_mlx5_addr peer;
	int rc;

	if (qp->connected)
		return crpc_fail(-EISCONN, "connect: qp 0x%x is connected already: make a new one",
			qp->dp.qpn);
	if (qp->dp.state != CRPC_MLX5_QP_IDLE)
		return crpc_fail(-EIO, "connect: qp 0x%x is broken: make a new one", qp->dp.qpn);
	rc = crpc_mlx5_addr_decode(bytes, qp->dp.kind, &peer);
	if (rc == 0 && qp->dp.kind == CRPC_MLX5_DC)
		rc = crpc_mlx5_dc_connect(crpc_container_of(qp, struct crpc_mlx5_dc, qp), &peer);
	else if (rc == 0)
		rc = rc_connect(qp, &peer);
	if (rc != 0)
		return rc;
	qp->connected = true;
	qp->dp.state = CRPC_MLX5_QP_READY;
	return 0;
}
