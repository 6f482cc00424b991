/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic connections, the control path: a target with a shared receive queue of its own per queue
 * pair, and the device's initiators.
 *
 * The receive queue is a list. Ours goes round in a circle, is written once and holds no buffers,
 * so handing receives out is adding to a counter, as with the ring of a reliable connection. A
 * target can be reached from the moment it has a number, which its address needs; so receives are
 * handed out by connect only, and a peer that writes with immediate before waits for us.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_ring.h"

/* Queue pairs freed by the user that one poll looks at. */
#define ENDING_PER_POLL 8

/* ---- initiators ---- */

/* Room for what is posted again after an error: records, and the bytes of their WQEs. */
int
crpc_mlx5_dci_memory_init(struct crpc_mlx5_qp *qp, const struct mlx5dv_qp *raw)
{
	struct crpc_mlx5_dci *dci = crpc_container_of(qp, struct crpc_mlx5_dci, qp);

	qp->memory = malloc((size_t)raw->sq.wqe_cnt * (sizeof(*dci->again) + CRPC_MLX5_BB));
	if (qp->memory == NULL)
		return -ENOMEM;
	dci->again = qp->memory;
	dci->copy = (uint8_t *)(dci->again + raw->sq.wqe_cnt);
	return 0;
}

/* Ends what was given up. No queue pair has anything outstanding there. */
static void
dcis_gone_end(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_qp *qp;
	struct crpc_mlx5_dci *dci;
	uint32_t i = 0;

	while (i < dev->num_dcis) {
		dci = dev->dci[i++];
		if (!crpc_mlx5_dci_is_gone(dci))
			continue;
		for (struct crpc_ib_qp *ib = dev->ib.qps; ib != NULL; ib = ib->next) {
			qp = crpc_mlx5_qp(ib);
			if (qp != &dci->qp && qp->sq == &dci->qp.own)
				qp->sq = &qp->own;
		}
		crpc_mlx5_qp_end(&dci->qp);
		dev->dci[--i] = dev->dci[--dev->num_dcis];
	}
}

bool
crpc_mlx5_dcis_make(struct crpc_mlx5_dev *dev)
{
	const struct crpc_rdma_qp_conf conf = {.sq_depth = CRPC_MLX5_DCI_DEPTH,
		.inline_max = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD)};
	struct crpc_mlx5_qp *qp;

	dcis_gone_end(dev);
	while (dev->num_dcis < dev->ib.conf.dcis) {
		qp = crpc_mlx5_qp_make(dev, CRPC_IB_DCI, &conf);
		if (qp == NULL)
			return false;
		dev->dci[dev->num_dcis++] = crpc_container_of(qp, struct crpc_mlx5_dci, qp);
	}
	return true;
}

/* ---- targets ---- */

int
crpc_mlx5_srq_init(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = qp->ib.rq_depth, .max_sge = 1}};
	struct mlx5dv_srq raw = {0};
	struct mlx5dv_obj obj = {.srq = {.out = &raw}};
	uint32_t num;

	qp->srq = ibv_create_srq(dev->ib.pd, &attr);
	if (qp->srq == NULL)
		return crpc_ib_errno("shared receive queue");
	obj.srq.in = qp->srq;
	num = mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ) == 0 ? raw.tail - raw.head + 1 : 0;
	if (raw.head != 0 || num < qp->ib.rq_depth + 1 || num > 1u << 16 ||
		raw.stride <
			sizeof(struct mlx5_wqe_srq_next_seg) + sizeof(struct mlx5_wqe_data_seg))
		return crpc_fail(-EINVAL,
			"qp_create: rdma-core gave a shared receive queue of entries %u to %u of "
			"%u bytes, needed are %u from 0",
			raw.head, raw.tail, raw.stride, qp->ib.rq_depth + 1);
	crpc_mlx5_rq_prefill(CRPC_IB_DC, NULL, raw.buf, num, raw.stride);
	qp->rq.dbrec = (_Atomic uint32_t *)(void *)raw.dbrec;
	return 0;
}

void
crpc_mlx5_dct_end(struct crpc_mlx5_qp *dc)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(dc->ib.base.dev);
	int rc;

	if (dc->ib.ibqp == NULL)
		return;
	rc = ibv_destroy_qp(dc->ib.ibqp);
	if (rc != 0) {
		crpc_warn("DC target 0x%x: %s", dc->ib.qpn, strerror(rc));
	} else {
		dc->ib.ibqp = NULL;
		/* Its number may come back. */
		crpc_mlx5_cq_forget(&dev->cq, dc->ib.qpn);
	}
	crpc_mlx5_table_fill(dev);
}

int
crpc_mlx5_qp_drain(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_qp *dc = crpc_mlx5_qp(crpc_ib_qp_of(base));

	if (dc->ib.kind != CRPC_IB_DC)
		return 0;
	dc->ib.state = CRPC_IB_RETIRED;
	crpc_mlx5_dct_end(dc);
	return crpc_mlx5_dc_retire(dc) ? 0 : -EAGAIN;
}

bool
crpc_mlx5_ending_take(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_qp **at = &dev->ending, *dc;

	for (uint32_t i = 0; i < ENDING_PER_POLL && *at != NULL; i++) {
		dc = *at;
		if (crpc_ib_outstanding(&dc->ib) != 0) {
			at = &dc->next_ending;
			continue;
		}
		*at = dc->next_ending;
		crpc_mlx5_qp_end(dc);
	}
	return dev->ending != NULL;
}

int
crpc_mlx5_dc_connect(struct crpc_ib_qp *ib, const struct crpc_ib_addr *peer)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(ib->base.dev);
	struct crpc_mlx5_qp *qp = crpc_mlx5_qp(ib);
	bool full;

	qp->ibah = crpc_ib_ah_make(&dev->ib, peer);
	if (qp->ibah == NULL)
		return -errno;
	if (crpc_mlx5_av_get(dev, qp->ibah, peer, &qp->av, &full) != 0) {
		ibv_destroy_ah(qp->ibah);
		qp->ibah = NULL;
		return -EHOSTUNREACH;
	}
	qp->av.key.dc_key = htobe64(peer->key);
	qp->av_len = sizeof(qp->av);
	if (!full) {
		qp->av_len = CRPC_MLX5_SEG;
		qp->av.dqp_dct = htobe32(peer->qpn);
	}
	crpc_mlx5_rq_start(qp);
	return 0;
}
