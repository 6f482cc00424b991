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

static void
dci_memory_free(struct crpc_mlx5_dci *dci)
{
	free(dci->again);
	free(dci->copy);
	free(dci);
}

static int
dci_create(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_sizes sizes = {
		CRPC_MLX5_DCI_DEPTH, 0, CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD), 0};
	struct mlx5dv_qp raw = {0};
	struct crpc_mlx5_dci *dci;
	int rc;

	dci = crpc_mlx5_zalloc(sizeof(*dci));
	if (dci == NULL)
		return -ENOMEM;
	rc = crpc_mlx5_qp_make(dev, &dci->qp, CRPC_MLX5_DCI, 0, &sizes, NULL, &raw);
	if (rc == 0) {
		dci->again = calloc(raw.sq.wqe_cnt, sizeof(*dci->again));
		dci->copy = malloc((size_t)raw.sq.wqe_cnt * CRPC_MLX5_BB);
		rc = dci->again != NULL && dci->copy != NULL
			? crpc_mlx5_qp_start(&dci->qp, IBV_QPS_RTS)
			: -ENOMEM;
	}
	if (rc != 0) {
		crpc_mlx5_qp_unmake(&dci->qp);
		dci_memory_free(dci);
		return rc;
	}
	dci->qp.dp.state = CRPC_MLX5_QP_READY;
	dev->dp.dci[dev->dp.num_dcis++] = dci;
	return 0;
}

bool
crpc_mlx5_dci_free(struct crpc_mlx5_dci *dci)
{
	if (!crpc_mlx5_list_del(&dci->qp))
		return false;
	dci_memory_free(dci);
	return true;
}

/* Frees what was given up. No queue pair has anything outstanding there. */
static void
dcis_gone_free(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_qp_ctl *qp;
	struct crpc_mlx5_dci *dci;
	uint32_t i = 0;

	while (i < dev->dp.num_dcis) {
		dci = dev->dp.dci[i++];
		if (!crpc_mlx5_dci_is_gone(dci))
			continue;
		for (qp = dev->qps; qp != NULL; qp = qp->next) {
			if (qp != &dci->qp && qp->dp.sq == &dci->qp.dp.own)
				qp->dp.sq = &qp->dp.own;
		}
		if (crpc_mlx5_dci_free(dci))
			dev->dp.dci[--i] = dev->dp.dci[--dev->dp.num_dcis];
	}
}

/* The pool is made as a whole, or what there is of it stays for the next try. */
static int
dcis_create(struct crpc_mlx5_dev_ctl *dev)
{
	int rc = 0;

	dcis_gone_free(dev);
	while (rc == 0 && dev->dp.num_dcis < dev->dcis)
		rc = dci_create(dev);
	return rc;
}

/* ---- targets ---- */

static int
srq_create(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dc *dc)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = dc->qp.rq_depth, .max_sge = 1}};
	struct mlx5dv_srq raw = {0};
	struct mlx5dv_obj obj = {.srq = {.out = &raw}};
	uint32_t num;

	dc->srq = ibv_create_srq(dev->pd, &attr);
	if (dc->srq == NULL)
		return crpc_mlx5_verbs_errno("shared receive queue");
	obj.srq.in = dc->srq;
	num = mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ) == 0 ? raw.tail - raw.head + 1 : 0;
	if (raw.head != 0 || num < dc->qp.rq_depth + 1 || num > 1u << 16 ||
		raw.stride < sizeof(struct mlx5_wqe_srq_next_seg) + sizeof(struct crpc_mlx5_data))
		return crpc_fail(-EINVAL,
			"qp_create: rdma-core gave a shared receive queue of entries %u to %u of "
			"%u bytes, needed are %u from 0",
			raw.head, raw.tail, raw.stride, dc->qp.rq_depth + 1);
	crpc_mlx5_rq_prefill(CRPC_MLX5_DC, NULL, raw.buf, num, raw.stride);
	dc->qp.dp.rq.dbrec = (_Atomic uint32_t *)(void *)raw.dbrec;
	return 0;
}

static void
dc_objects_free(struct crpc_mlx5_dc *dc)
{
	crpc_mlx5_qp_unmake(&dc->qp);
	if (dc->srq != NULL)
		ibv_destroy_srq(dc->srq);
	free(dc);
}

struct crpc_rdma_qp *
crpc_mlx5_dc_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_sizes sizes = {conf->sq_depth, conf->rq_depth, conf->inline_max, 0};
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_dc *dc;
	int rc;

	rc = dcis_create(dev);
	dc = rc == 0 ? crpc_mlx5_zalloc(sizeof(*dc)) : NULL;
	if (dc == NULL) {
		errno = rc != 0 ? -rc : ENOMEM;
		return NULL;
	}
	dc->qp.rq_depth = conf->rq_depth;
	rc = srq_create(dev, dc);
	if (rc == 0)
		rc = crpc_mlx5_qp_make(dev, &dc->qp, CRPC_MLX5_DC, conf->id, &sizes, dc->srq, NULL);
	if (rc == 0)
		rc = crpc_mlx5_qp_start(&dc->qp, IBV_QPS_RTR);
	if (rc == 0)
		return &dc->qp.dp.base;
	dc_objects_free(dc);
	errno = -rc;
	return NULL;
}

void
crpc_mlx5_dct_end(struct crpc_mlx5_dc *dc)
{
	int rc;

	if (dc->qp.ibqp == NULL)
		return;
	rc = ibv_destroy_qp(dc->qp.ibqp);
	if (rc != 0) {
		crpc_warn("DC target 0x%x: %s", dc->qp.dp.qpn, strerror(rc));
		return;
	}
	dc->qp.ibqp = NULL;
	/* Its number may come back. The table drops it when it is filled again, before that. */
	crpc_mlx5_cq_forget(&crpc_mlx5_dev_ctl(dc->qp.dp.base.dev)->dp.cq, dc->qp.dp.qpn);
}

/* The last step: the device has nothing of it. */
static void
dc_destroy(struct crpc_mlx5_dc *dc)
{
	if (!crpc_mlx5_list_del(&dc->qp))
		return;
	dc->qp.ibqp = NULL;
	if (dc->ibah != NULL)
		ibv_destroy_ah(dc->ibah);
	dc_objects_free(dc);
}

int
crpc_mlx5_dc_drain(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dc *dc = crpc_container_of(base, struct crpc_mlx5_dc, qp.dp.base);

	crpc_mlx5_dct_end(dc);
	return crpc_mlx5_dc_retire(dc) ? 0 : -EAGAIN;
}

void
crpc_mlx5_dc_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_dc *dc = crpc_container_of(base, struct crpc_mlx5_dc, qp.dp.base);

	if (crpc_mlx5_dc_drain(base) == 0) {
		dc_destroy(dc);
		return;
	}
	/* Its completions still need their room, so it stays among the device's queue pairs. */
	dc->next_ending = dev->dp.ending;
	dev->dp.ending = dc;
	crpc_store_relaxed(&dev->dp.attention, 1);
}

bool
crpc_mlx5_ending_take(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_dc **at = &dev->ending, *dc;
	uint32_t i;

	for (i = 0; i < ENDING_PER_POLL && *at != NULL; i++) {
		dc = *at;
		if (crpc_mlx5_outstanding(&dc->qp.dp) != 0) {
			at = &dc->next_ending;
			continue;
		}
		*at = dc->next_ending;
		dc_destroy(dc);
	}
	return dev->ending != NULL;
}

int
crpc_mlx5_dc_connect(struct crpc_mlx5_dc *dc, const struct crpc_mlx5_addr *peer)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(dc->qp.dp.base.dev);
	struct crpc_mlx5_qp *qp = &dc->qp.dp;
	bool full;

	/* Packets of one MTU are refused by a target of another one. */
	if (peer->mtu != (uint8_t)dev->port_attr.active_mtu)
		return crpc_fail(-EHOSTUNREACH,
			"connect: DC target 0x%x has an MTU of %u bytes, and the initiators of "
			"this port have %u: set the same MTU at both ports",
			peer->qpn, 128u << peer->mtu, 128u << dev->port_attr.active_mtu);
	dc->ibah = crpc_mlx5_av_make(dev, peer, &qp->av, &full);
	if (dc->ibah == NULL)
		return -errno;
	qp->av.dc_key = htobe64(peer->key);
	qp->av_len = sizeof(qp->av);
	if (!full) {
		qp->av_len = CRPC_MLX5_SEG;
		qp->av.dqp_dct = htobe32(peer->qpn);
	}
	crpc_mlx5_rq_start(&dc->qp);
	return 0;
}
