/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs and addresses, the control path. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "verbs_copyrpc.h"

/* NULL with errno. Some devices take any inline size, and say in the answer what they have. */
static struct ibv_qp *
ibqp_create(struct crpc_verbs_dev *dev, uint8_t kind, uint32_t sq_depth, uint32_t rq_depth,
	uint32_t inline_max)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
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

/* Frees what there is of it. False: the device may still use it, so it is kept. */
static bool
objects_free(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	int rc = qp->ibqp != NULL ? ibv_destroy_qp(qp->ibqp) : 0;

	if (rc != 0) {
		qp->next = dev->kept;
		dev->kept = qp;
		crpc_err("qp_free: qp 0x%x: %s: its memory stays until the device is closed",
			qp->ibqp->qp_num, strerror(rc));
		return false;
	}
	if (qp->mr != NULL)
		ibv_dereg_mr(qp->mr);
	free(qp->buf);
	free(qp->recv_sge);
	free(qp->recv);
	free(qp->sent);
	free(qp);
	return true;
}

void
crpc_verbs_kept_free(struct crpc_verbs_dev *dev)
{
	struct crpc_verbs_qp *qp = dev->kept, *next;

	for (dev->kept = NULL; qp != NULL; qp = next) {
		next = qp->next;
		objects_free(dev, qp);
	}
}

/* The receives, as work requests; 0 or -ENOMEM. */
static int
recvs_make(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	bool ud = qp->kind == CRPC_IB_UD;

	qp->recv = calloc(qp->rq_depth, sizeof(*qp->recv));
	if (ud) {
		qp->recv_sge = calloc(qp->rq_depth, sizeof(*qp->recv_sge));
		qp->buf = crpc_ib_buffers_make(&dev->ib, qp->rq_depth, &qp->mr);
	}
	if (qp->recv == NULL || (ud && (qp->recv_sge == NULL || qp->buf == NULL)))
		return -ENOMEM;
	for (uint32_t i = 0; i < qp->rq_depth; i++) {
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
	qp->next = dev->qps;
	dev->qps = qp;
	dev->ib.num_qps++;
	dev->ib.cq_used += qp->depth + qp->rq_depth;
}

/* To its first state of use, with its receives posted. */
static int
qp_start(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp)
{
	struct ibv_qp_attr attr = crpc_ib_attr(&dev->ib, qp->psn, qp->key);
	int rc = crpc_ib_move(qp->kind, qp->ibqp, &attr, IBV_QPS_INIT);

	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < qp->rq_depth; i++)
		crpc_verbs_recv_link(dev, qp, i);
	crpc_verbs_recv_return(dev, qp->kind);
	if (qp->fault != 0)
		return qp->fault;
	if (qp->kind != CRPC_IB_UD)
		return 0;
	qp->state = CRPC_VERBS_READY;
	return crpc_ib_move(qp->kind, qp->ibqp, &attr, IBV_QPS_RTS);
}

static void
list_remove(struct crpc_verbs_qp **list, struct crpc_verbs_qp *qp, size_t next)
{
	while (*list != NULL && *list != qp)
		list = (struct crpc_verbs_qp **)(void *)((char *)*list + next);
	if (*list != NULL)
		*list = *(struct crpc_verbs_qp **)(void *)((char *)qp + next);
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
		got = num != 0 ? ibv_poll_cq(dev->cq, (int)num, &dev->ahead[dev->ahead_end]) : 0;
		if (got > 0)
			ahead_add(dev, dev->ahead_end, (uint32_t)got);
	} while (got > 0);
}

static void
qp_end(struct crpc_verbs_qp *qp)
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(qp->base.dev);
	uint32_t share = qp->depth + qp->rq_depth;

	list_remove(&dev->qps, qp, offsetof(struct crpc_verbs_qp, next));
	list_remove(&dev->faults, qp, offsetof(struct crpc_verbs_qp, next_fault));
	list_remove(&dev->back[qp->kind], qp, offsetof(struct crpc_verbs_qp, next_back));
	dev->slot[qp->tag >> 32 & (CRPC_RDMA_QPS_MAX - 1)] = NULL;
	dev->ib.num_qps--;
	if (objects_free(dev, qp))
		dev->ib.cq_used -= share;
	completions_forget(dev);
}

static struct crpc_verbs_qp *
qp_make(struct crpc_verbs_dev *dev, uint8_t kind, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_verbs_qp *qp;
	int rc = crpc_ib_room_check(
		&dev->ib, conf, conf->sq_depth + conf->rq_depth, dev->inline_max[kind]);

	if (rc != 0)
		return crpc_null(rc);
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return NULL;
	crpc_ib_refresh(&dev->ib);
	qp->base = (struct crpc_rdma_qp){.dev = &dev->base, .id = conf->id};
	qp->kind = kind;
	qp->depth = conf->sq_depth;
	qp->rq_depth = conf->rq_depth;
	qp->inline_max = conf->inline_max;
	qp->msg_max = kind == CRPC_IB_UD ? 128u << dev->ib.mtu : 1u << 30;
	qp->signal_every = crpc_ib_signal_every(conf->sq_depth);
	qp->sent_mask = (uint32_t)crpc_pow2_ceil(conf->sq_depth) - 1;
	qp->sent = calloc(qp->sent_mask + 1, sizeof(*qp->sent));
	slot_take(dev, qp);
	rc = qp->sent == NULL ? -ENOMEM : crpc_ib_keys_make(kind, &qp->psn, &qp->key);
	if (rc == 0)
		rc = recvs_make(dev, qp);
	if (rc == 0) {
		qp->ibqp = ibqp_create(dev, kind, qp->depth, qp->rq_depth, qp->inline_max);
		rc = qp->ibqp != NULL ? qp_start(dev, qp) : crpc_ib_errno(crpc_ib_kind_name(kind));
	}
	if (rc == 0)
		return qp;
	qp_end(qp);
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
	return qp != NULL ? &qp->base : NULL;
}

void
crpc_verbs_qp_free(struct crpc_rdma_qp *base)
{
	qp_end(crpc_verbs_qp(base));
}

void
crpc_verbs_qp_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_verbs_qp *qp = (const struct crpc_verbs_qp *)(const void *)base;
	struct crpc_ib *ib = &crpc_verbs_dev(base->dev)->ib;
	struct crpc_ib_addr a;

	crpc_ib_refresh(ib);
	a = crpc_ib_addr_of(ib, qp->kind, qp->ibqp->qp_num, qp->psn, qp->key);
	crpc_ib_addr_encode(&a, addr);
}

int
crpc_verbs_qp_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_verbs_qp *qp = crpc_verbs_qp(base);
	struct crpc_ib *ib = &crpc_verbs_dev(base->dev)->ib;
	struct ibv_qp_attr attr;
	struct crpc_ib_addr peer;
	int rc;

	if (qp->connected)
		return crpc_fail(-EISCONN, "connect: qp 0x%x is connected already: make a new one",
			qp->ibqp->qp_num);
	if (qp->state != CRPC_VERBS_IDLE)
		return crpc_fail(
			-EIO, "connect: qp 0x%x is broken: make a new one", qp->ibqp->qp_num);
	crpc_ib_refresh(ib);
	attr = crpc_ib_attr(ib, qp->psn, 0);
	rc = crpc_ib_addr_decode(bytes, CRPC_IB_RC, &peer);
	if (rc == 0)
		rc = crpc_ib_rc_fill(ib, &peer, &attr);
	if (rc == 0) {
		attr.qp_state = IBV_QPS_INIT;
		rc = crpc_ib_move(CRPC_IB_RC, qp->ibqp, &attr, IBV_QPS_RTS);
	}
	if (rc != 0)
		return rc;
	qp->connected = true;
	qp->state = CRPC_VERBS_READY;
	return 0;
}

/* ---- datagrams ---- */

struct crpc_rdma_ah *
crpc_verbs_ah_create(struct crpc_rdma_qp *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(ud->dev);
	struct crpc_ib_addr peer;
	struct crpc_verbs_ah *ah;

	crpc_ib_refresh(&dev->ib);
	if (crpc_ib_addr_decode(bytes, CRPC_IB_UD, &peer) != 0)
		return crpc_null(-EPROTO);
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return NULL;
	*ah = (struct crpc_verbs_ah){
		.base.dev = ud->dev, .qpn = peer.qpn, .qkey = (uint32_t)peer.key};
	ah->ibah = crpc_ib_ah_make(&dev->ib, &peer);
	if (ah->ibah == NULL) {
		free(ah); /* errno stays. */
		return NULL;
	}
	dev->ib.num_ahs++;
	return &ah->base;
}

void
crpc_verbs_ah_free(struct crpc_rdma_ah *base)
{
	struct crpc_verbs_ah *ah = crpc_container_of(base, struct crpc_verbs_ah, base);
	int rc = ibv_destroy_ah(ah->ibah);

	if (rc != 0)
		crpc_err("ah_free: %s", strerror(rc));
	crpc_verbs_dev(base->dev)->ib.num_ahs--;
	free(ah);
}
