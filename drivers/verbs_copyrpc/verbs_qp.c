/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs and addresses, the control path. */
#include <errno.h>
#include <stdlib.h>

#include "crpc_log.h"
#include "verbs_copyrpc.h"

/* NULL with errno. Some devices take any inline size, and say in the answer what they have. */
static struct ibv_qp *
ibqp_create(struct crpc_verbs_dev *dev, uint8_t kind, uint32_t sq_depth, uint32_t rq_depth,
	uint32_t inline_max)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = dev->ib.cq,
		.recv_cq = dev->ib.cq,
		.cap = {.max_send_wr = sq_depth,
			.max_recv_wr = rq_depth,
			.max_send_sge = CRPC_RDMA_SGE_MAX,
			.max_recv_sge = 1,
			.max_inline_data = inline_max},
		.qp_type = kind == CRPC_IB_UD ? IBV_QPT_UD : IBV_QPT_RC,
	};

	struct ibv_qp *qp = ibv_create_qp(dev->ib.pd, &attr);

	if (qp == NULL || attr.cap.max_inline_data >= inline_max)
		return qp;
	ibv_destroy_qp(qp);
	errno = EINVAL;
	return NULL;
}

uint32_t
crpc_verbs_inline_probe(struct crpc_verbs_dev *dev, uint8_t kind)
{
	static const uint16_t sizes[] = {512, 448, 400, 256, 192, 128, 64, 32};
	struct ibv_qp *qp;

	for (size_t i = 0; i < CRPC_DIM(sizes); i++) {
		qp = ibqp_create(dev, kind, 1, 1, sizes[i]);
		if (qp != NULL) {
			ibv_destroy_qp(qp);
			return sizes[i];
		}
	}
	return 0;
}

bool
crpc_verbs_objects_free(struct crpc_ib_qp *ib)
{
	struct crpc_verbs_qp *qp = crpc_container_of(ib, struct crpc_verbs_qp, ib);

	if (!crpc_ib_qp_destroy(ib))
		return false;
	if (qp->mr != NULL)
		ibv_dereg_mr(qp->mr);
	free(qp->buf);
	free(qp->recv_sge);
	free(qp->recv);
	free(qp->sent);
	free(qp);
	return true;
}

/* The receives, as work requests; 0 or -ENOMEM. */
static int
recvs_make(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	bool ud = qp->ib.kind == CRPC_IB_UD;

	qp->recv = calloc(qp->ib.rq_depth, sizeof(*qp->recv));
	if (ud) {
		qp->recv_sge = calloc(qp->ib.rq_depth, sizeof(*qp->recv_sge));
		qp->buf = crpc_ib_buffers_make(&dev->ib, qp->ib.rq_depth, &qp->mr);
	}
	if (qp->recv == NULL || (ud && (qp->recv_sge == NULL || qp->buf == NULL)))
		return -ENOMEM;
	for (uint32_t i = 0; i < qp->ib.rq_depth; i++) {
		qp->recv[i].wr_id = CRPC_VERBS_RECV | qp->tag | i;
		if (!ud)
			continue;
		qp->recv_sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)qp->buf + (size_t)i * CRPC_IB_UD_STRIDE +
				CRPC_IB_UD_PAYLOAD - CRPC_IB_GRH,
			.length = CRPC_IB_GRH + CRPC_IB_UD_LEN_MAX,
			.lkey = qp->mr->lkey,
		};
		qp->recv[i].sg_list = &qp->recv_sge[i];
		qp->recv[i].num_sge = 1;
	}
	return 0;
}

/* A place of the table and a generation, for the ids of its work requests. There is room. */
static void
slot_take(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	uint32_t slot = 0;

	while (dev->slot[slot] != NULL)
		slot++;
	dev->slot[slot] = qp;
	dev->generation = (uint16_t)(dev->generation + 1) & 0x7fff;
	qp->tag = (uint64_t)dev->generation << 48 | (uint64_t)slot << 32;
	crpc_ib_qp_add(&dev->ib, &qp->ib);
}

/* To its first state of use, with its receives posted. */
static int
qp_start(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	struct ibv_qp_attr attr = crpc_ib_attr(&dev->ib, qp->ib.psn, qp->ib.key);
	int rc;

	qp->ib.qpn = qp->ib.ibqp->qp_num;
	rc = crpc_ib_move(qp->ib.kind, qp->ib.ibqp, &attr, IBV_QPS_INIT);

	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < qp->ib.rq_depth; i++)
		crpc_verbs_recv_link(dev, qp, i);
	crpc_verbs_recv_return(dev, qp->ib.kind);
	if (qp->ib.fault != 0)
		return qp->ib.fault;
	if (qp->ib.kind != CRPC_IB_UD)
		return 0;
	qp->ib.state = CRPC_IB_READY;
	return crpc_ib_move(qp->ib.kind, qp->ib.ibqp, &attr, IBV_QPS_RTS);
}

/* Moves the completions from the first on that are of a queue pair to the end of those ahead. */
static void
ahead_add(struct crpc_verbs_dev *dev, uint32_t first, uint32_t num)
{
	for (uint32_t i = first; i < first + num; i++)
		if (crpc_verbs_find(dev, dev->ahead[i].wr_id) != NULL)
			dev->ahead[dev->ahead_end++] = dev->ahead[i];
}

/* Takes all completions out of the queue, and drops those of freed queue pairs: their room is given
 * to others. What stays has room, as all queue pairs together have no more than cq_depth. */
static void
completions_forget(struct crpc_verbs_dev *dev)
{
	uint32_t first = dev->ahead_first, num = dev->ahead_end - first;
	int got;

	dev->ahead_first = dev->ahead_end = 0;
	ahead_add(dev, first, num);
	do {
		num = dev->ib.cq_depth - dev->ahead_end;
		got = num != 0 ? ibv_poll_cq(dev->ib.cq, (int)num, &dev->ahead[dev->ahead_end]) : 0;
		if (got > 0)
			ahead_add(dev, dev->ahead_end, (uint32_t)got);
	} while (got > 0);
}

void
crpc_verbs_qp_free(struct crpc_rdma_qp *base)
{
	struct crpc_verbs_qp *qp = crpc_verbs_qp(base);
	struct crpc_verbs_dev *dev = crpc_verbs_dev(qp->ib.base.dev);
	struct crpc_verbs_qp **back = &dev->back[qp->ib.kind];
	uint32_t share = qp->ib.cq_share;

	while (*back != NULL && *back != qp)
		back = &(*back)->next_back;
	if (*back != NULL)
		*back = qp->next_back;
	crpc_ib_qp_remove(&dev->ib, &qp->ib);
	dev->slot[qp->tag >> 32 & (CRPC_RDMA_QPS_MAX - 1)] = NULL;
	if (crpc_verbs_objects_free(&qp->ib))
		dev->ib.cq_used -= share;
	completions_forget(dev);
}

static struct crpc_verbs_qp *
qp_make(struct crpc_verbs_dev *dev, uint8_t kind, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_verbs_qp *qp = calloc(1, sizeof(*qp));
	int rc;

	if (qp == NULL)
		return NULL;
	rc = crpc_ib_qp_init(&dev->ib, &qp->ib, kind, conf, dev->inline_max[kind]);
	if (rc != 0) {
		free(qp);
		return crpc_null(rc);
	}
	qp->msg_max = kind == CRPC_IB_UD ? 128u << dev->ib.mtu : 1u << 30;
	qp->sent_mask = (uint32_t)crpc_pow2_ceil(conf->sq_depth) - 1;
	qp->sent = calloc(qp->sent_mask + 1, sizeof(*qp->sent));
	slot_take(dev, qp);
	rc = qp->sent == NULL ? -ENOMEM : recvs_make(dev, qp);
	if (rc == 0) {
		qp->ib.ibqp =
			ibqp_create(dev, kind, qp->ib.depth, qp->ib.rq_depth, qp->ib.inline_max);
		rc = qp->ib.ibqp != NULL ? qp_start(dev, qp)
					 : crpc_ib_errno(crpc_ib_kind_name(kind));
	}
	if (rc == 0)
		return qp;
	crpc_verbs_qp_free(&qp->ib.base);
	return crpc_null(rc);
}

/* ---- connections ---- */

struct crpc_rdma_qp *
crpc_verbs_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_verbs_qp *qp;

	if (conf->transport == CRPC_RDMA_DC)
		return crpc_null(crpc_fail(-EOPNOTSUPP,
			"qp_create: plain verbs have no dynamic connections: use the mlx5 driver"));
	qp = qp_make(crpc_verbs_dev(base), crpc_ib_kind_of(conf), conf);
	return qp != NULL ? &qp->ib.base : NULL;
}

struct crpc_rdma_ah *
crpc_verbs_ah_create(struct crpc_rdma_qp *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_ib_addr peer;
	struct crpc_verbs_ah *ah = crpc_ib_ah_new(ud, bytes, sizeof(*ah), &peer);

	if (ah == NULL)
		return NULL;
	ah->qpn = peer.qpn;
	ah->qkey = (uint32_t)peer.key;
	return &ah->ib.base;
}
