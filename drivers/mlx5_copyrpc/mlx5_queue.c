/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all kinds of queue pairs share: how they are made, the memory taken over by
 * mlx5dv_init_obj(), the table from QPN to queue pair, and the address vector of a peer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_ring.h"

/* Blocks kept for the WQE whose completion ends DRAINING. */
#define DRAIN_BLOCKS 2
/* grh_gid_fl of an address vector: there is a global route. */
#define AV_GRH (1u << 30)

#define OPS_REMOTE                                                                                 \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)

/* How the kinds of queue pairs differ where rdma-core makes them. */
static const struct shape {
	size_t size; /* Of the object. */
	size_t head; /* Bytes of a WQE before its payload. */
	enum ibv_qp_type type;
	enum mlx5dv_dc_type dc_type;
	uint64_t ops;
	enum ibv_qp_state first; /* The state in which it is made. */
	/* Memory of its own, once its queues are known; NULL: none. 0 or -errno. */
	int (*memory_init)(struct crpc_mlx5_qp *qp, const struct mlx5dv_qp *raw);
} shapes[] = {
	[CRPC_IB_RC] =
		{
			.size = sizeof(struct crpc_mlx5_qp),
			.head = CRPC_MLX5_RC_HEAD,
			.type = IBV_QPT_RC,
			.ops = OPS_REMOTE,
			.first = IBV_QPS_INIT,
		},
	[CRPC_IB_UD] =
		{
			.size = sizeof(struct crpc_mlx5_ud),
			.head = CRPC_MLX5_UD_HEAD,
			.type = IBV_QPT_UD,
			.ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
			.first = IBV_QPS_RTS,
			.memory_init = crpc_mlx5_ud_memory_init,
		},
	[CRPC_IB_DC] =
		{
			.size = sizeof(struct crpc_mlx5_qp),
			.head = CRPC_MLX5_DC_HEAD,
			.type = IBV_QPT_DRIVER,
			.dc_type = MLX5DV_DCTYPE_DCT,
			.first = IBV_QPS_RTR,
		},
	[CRPC_IB_DCI] =
		{
			.size = sizeof(struct crpc_mlx5_dci),
			.head = CRPC_MLX5_DC_HEAD,
			.type = IBV_QPT_DRIVER,
			.dc_type = MLX5DV_DCTYPE_DCI,
			.ops = OPS_REMOTE,
			.first = IBV_QPS_RTS,
			.memory_init = crpc_mlx5_dci_memory_init,
		},
};

uint32_t
crpc_mlx5_wqebb_max(size_t head, uint32_t inline_max)
{
	uint64_t gather = CRPC_RDMA_SGE_MAX * sizeof(struct mlx5_wqe_data_seg);
	uint64_t inl =
		crpc_align_up(sizeof(struct mlx5_wqe_inl_data_seg) + inline_max, CRPC_MLX5_SEG);

	return (uint32_t)(crpc_align_up(head + crpc_max(gather, inl), CRPC_MLX5_BB) / CRPC_MLX5_BB);
}

/* The sizes of a queue pair, if there is room for it. */
static int
sizes_init(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, uint8_t kind,
	const struct crpc_rdma_qp_conf *conf)
{
	size_t head = shapes[kind].head;
	int rc = crpc_ib_qp_init(&dev->ib, &qp->ib, kind, conf, CRPC_MLX5_INLINE_MAX_OF(head));

	if (rc != 0)
		return rc;
	qp->bb_max = crpc_mlx5_wqebb_max(head, conf->inline_max);
	/* What fits behind the headers when a WQE uses all its blocks. */
	qp->ib.inline_max =
		(uint32_t)(qp->bb_max * CRPC_MLX5_BB - head - sizeof(struct mlx5_wqe_inl_data_seg));
	return 0;
}

static int
ibqp_create(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp)
{
	const struct shape *shape = &shapes[qp->ib.kind];
	bool sends = qp->ib.kind != CRPC_IB_DC;
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = (shape->dc_type != 0 ? MLX5DV_QP_INIT_ATTR_MASK_DC : 0) |
			(sends ? MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS : 0),
		/* The bytes of a READ or a datagram must land in their memory, never in the CQE. */
		.create_flags = sends ? MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE : 0,
		.dc_init_attr = {.dc_type = shape->dc_type},
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = shape->type,
		.send_cq = dev->ib.cq,
		.recv_cq = dev->ib.cq,
		.srq = qp->srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev->ib.pd,
	};

	if (sends) {
		attr.cap = (struct ibv_qp_cap){
			.max_send_wr = qp->ib.depth,
			.max_recv_wr = qp->ib.rq_depth,
			.max_send_sge = CRPC_RDMA_SGE_MAX,
			.max_recv_sge = qp->ib.rq_depth != 0,
			.max_inline_data = qp->ib.inline_max,
		};
		/* Without these rdma-core sizes the ring for memory window binds: twice as
		 * large. */
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = shape->ops;
	} else {
		dv_attr.dc_init_attr.dct_access_key = qp->ib.key;
	}
	qp->ib.ibqp = mlx5dv_create_qp(dev->ib.context, &attr, &dv_attr);
	return qp->ib.ibqp != NULL ? 0 : crpc_ib_errno(crpc_ib_kind_name(qp->ib.kind));
}

void
crpc_mlx5_rq_prefill(
	uint8_t kind, const struct crpc_mlx5_ud *ud, void *buf, uint32_t num, uint32_t stride)
{
	/* The list of a receive's buffers ends at this key. */
	const struct mlx5_wqe_data_seg none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	struct mlx5_wqe_data_seg data = {.byte_count = htobe32(CRPC_IB_GRH + CRPC_IB_UD_LEN_MAX)};
	struct mlx5_wqe_srq_next_seg next = {0};
	uint8_t *wqe = buf, *seg;

	for (uint32_t i = 0; i < num; i++, wqe += stride) {
		memset(wqe, 0, stride);
		seg = wqe;
		if (kind == CRPC_IB_DC) { /* A shared queue is a list; ours is a circle. */
			next.next_wqe_index = htobe16((uint16_t)((i + 1) % num));
			memcpy(seg, &next, sizeof(next));
			seg += sizeof(next);
		} else if (kind == CRPC_IB_UD) {
			data.lkey = htobe32(ud->lkey);
			data.addr = htobe64((uintptr_t)ud->buf + (uint64_t)i * CRPC_IB_UD_STRIDE +
				CRPC_IB_UD_PAYLOAD - CRPC_IB_GRH);
			memcpy(seg, &data, sizeof(data));
			seg += sizeof(data);
		}
		if (seg + sizeof(none) <= wqe + stride)
			memcpy(seg, &none, sizeof(none));
	}
}

int
crpc_mlx5_table_init(struct crpc_mlx5_table *t, uint32_t num)
{
	uint32_t slots = (uint32_t)crpc_pow2_ceil(crpc_max(2 * (uint64_t)num, 16));
	struct crpc_mlx5_slot *slot = calloc(slots, sizeof(*slot));

	if (slot == NULL)
		return -ENOMEM;
	*t = (struct crpc_mlx5_table){slot, slots - 1, 32 - crpc_log2(slots)};
	return 0;
}

void
crpc_mlx5_table_add(struct crpc_mlx5_table *t, struct crpc_mlx5_qp *qp)
{
	uint32_t i = crpc_mlx5_table_home(t, qp->ib.qpn);

	while (t->slot[i].qpn != 0)
		i = (i + 1) & t->mask;
	t->slot[i] = (struct crpc_mlx5_slot){.qpn = qp->ib.qpn, .qp = qp};
}

void
crpc_mlx5_table_fill(struct crpc_mlx5_dev *dev)
{
	struct crpc_mlx5_table *t = &dev->table;

	memset(t->slot, 0, (t->mask + 1) * sizeof(*t->slot));
	for (const struct crpc_ib_qp *qp = dev->ib.qps; qp != NULL; qp = qp->next) {
		if (qp->ibqp != NULL && qp->state != CRPC_IB_RETIRED)
			crpc_mlx5_table_add(t, crpc_mlx5_qp(qp));
	}
}

static int
list_add(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp)
{
	struct crpc_mlx5_slot *old = dev->table.slot;

	if (2 * (dev->ib.num_qps + 1) > dev->table.mask + 1) {
		if (crpc_mlx5_table_init(&dev->table, dev->ib.num_qps + 1) != 0)
			return -ENOMEM;
		free(old);
	}
	crpc_ib_qp_add(&dev->ib, &qp->ib);
	crpc_mlx5_table_fill(dev);
	return 0;
}

bool
crpc_mlx5_objects_free(struct crpc_ib_qp *ib)
{
	struct crpc_mlx5_qp *qp = crpc_mlx5_qp(ib);

	if (!crpc_ib_qp_destroy(ib))
		return false;
	if (qp->srq != NULL)
		ibv_destroy_srq(qp->srq);
	if (qp->ibah != NULL)
		ibv_destroy_ah(qp->ibah);
	if (qp->mr != NULL)
		ibv_dereg_mr(qp->mr);
	free(qp->memory);
	free(qp->own.sent);
	free(qp);
	return true;
}

void
crpc_mlx5_qp_end(struct crpc_mlx5_qp *qp)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(qp->ib.base.dev);
	uint32_t qpn = qp->ib.qpn, share = qp->ib.cq_share;
	bool had_number = qp->ib.ibqp != NULL;

	crpc_ib_qp_remove(&dev->ib, &qp->ib);
	/* The number of one that was destroyed before may be another one's by now. */
	if (crpc_mlx5_objects_free(&qp->ib)) {
		dev->ib.cq_used -= share;
		if (had_number)
			crpc_mlx5_cq_forget(&dev->cq, qpn);
	}
	crpc_mlx5_table_fill(dev);
}

/* The register of a QP; several QPs may have been given the same one. */
static struct crpc_mlx5_bf *
bf_get(struct crpc_mlx5_dev *dev, void *reg, uint32_t size)
{
	struct crpc_mlx5_bf *bf;

	for (bf = dev->bfs; bf != NULL; bf = bf->next) {
		if (bf->reg == reg)
			return bf;
	}
	bf = malloc(sizeof(*bf));
	if (bf == NULL)
		return NULL;
	*bf = (struct crpc_mlx5_bf){.reg = reg, .size = size, .next = dev->bfs};
	dev->bfs = bf;
	return bf;
}

/* Takes the send ring and the receive queue of qp->ib.ibqp over from rdma-core. */
static int
queues_init(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp, struct mlx5dv_qp *raw)
{
	struct mlx5dv_obj obj = {.qp = {.in = qp->ib.ibqp, .out = raw}};
	uint32_t blocks = qp->ib.depth * qp->bb_max;
	struct crpc_mlx5_sq *sq = &qp->own;

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) != 0 || raw->sq.stride != CRPC_MLX5_BB ||
		!crpc_is_pow2(raw->sq.wqe_cnt) || raw->sq.wqe_cnt < blocks ||
		raw->sq.wqe_cnt > CRPC_MLX5_BLOCKS_MAX ||
		(qp->ib.rq_depth != 0 &&
			(!crpc_is_pow2(raw->rq.wqe_cnt) || raw->rq.wqe_cnt < qp->ib.rq_depth ||
				raw->rq.stride < sizeof(struct mlx5_wqe_data_seg))))
		return crpc_fail(-EINVAL,
			"queue pair: rdma-core gave %u send blocks of %u and %u receives of %u "
			"bytes, needed are %u of 64 and %u: use shorter queues",
			raw->sq.wqe_cnt, raw->sq.stride, raw->rq.wqe_cnt, raw->rq.stride, blocks,
			qp->ib.rq_depth);
	sq->bf = bf_get(dev, raw->bf.reg, raw->bf.size);
	sq->sent = calloc(raw->sq.wqe_cnt, sizeof(*sq->sent));
	if (sq->bf == NULL || sq->sent == NULL)
		return -ENOMEM;
	sq->buf = raw->sq.buf;
	sq->end = sq->buf + (size_t)raw->sq.wqe_cnt * CRPC_MLX5_BB;
	sq->bb_mask = raw->sq.wqe_cnt - 1;
	sq->dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_SND_DBR];
	sq->qpn_shl8 = qp->ib.ibqp->qp_num << 8;
	sq->signal_every = qp->ib.signal_every;
	if (qp->ib.kind == CRPC_IB_DCI) {
		/* Some blocks are kept free, so the ring does not hold as many of the largest. */
		sq->reserved = DRAIN_BLOCKS;
		sq->signal_every = CRPC_MLX5_DCI_SIGNAL_EVERY;
	}
	qp->rq.dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_RCV_DBR];
	if (shapes[qp->ib.kind].memory_init != NULL)
		return shapes[qp->ib.kind].memory_init(qp, raw);
	crpc_mlx5_rq_prefill(CRPC_IB_RC, NULL, raw->rq.buf, raw->rq.wqe_cnt, raw->rq.stride);
	return 0;
}

/* Moves it to its first state of use, and adds it to the device's. */
static int
qp_start(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp)
{
	struct ibv_qp_attr attr = crpc_ib_attr(&dev->ib, qp->ib.psn, qp->ib.key);
	int rc = crpc_ib_move(qp->ib.kind, qp->ib.ibqp, &attr, IBV_QPS_INIT);

	if (rc == 0 && qp->ib.kind <= CRPC_IB_UD)
		crpc_mlx5_rq_start(qp);
	if (rc == 0)
		rc = crpc_ib_move(qp->ib.kind, qp->ib.ibqp, &attr, shapes[qp->ib.kind].first);
	if (rc != 0)
		return rc;
	/* A DC target has its number only now. */
	qp->ib.qpn = qp->ib.ibqp->qp_num;
	if (attr.qp_state == IBV_QPS_RTS)
		qp->ib.state = CRPC_IB_READY;
	return list_add(dev, qp);
}

struct crpc_mlx5_qp *
crpc_mlx5_qp_make(struct crpc_mlx5_dev *dev, uint8_t kind, const struct crpc_rdma_qp_conf *conf)
{
	size_t size = crpc_align_up(shapes[kind].size, CRPC_CACHE_GUARD);
	struct crpc_mlx5_qp *qp = aligned_alloc(CRPC_CACHE_GUARD, size);
	struct mlx5dv_qp raw = {0};
	int rc;

	if (qp == NULL)
		return NULL;
	memset(qp, 0, size);
	qp->sq = &qp->own;
	if (kind == CRPC_IB_UD || kind == CRPC_IB_DCI)
		qp->rq.state = CRPC_MLX5_RQ_NO_IMM;
	rc = sizes_init(dev, qp, kind, conf);
	if (rc == 0 && kind == CRPC_IB_DC)
		rc = crpc_mlx5_srq_init(dev, qp);
	if (rc == 0)
		rc = ibqp_create(dev, qp);
	if (rc == 0 && kind != CRPC_IB_DC)
		rc = queues_init(dev, qp, &raw);
	if (rc == 0)
		rc = qp_start(dev, qp);
	if (rc == 0)
		return qp;
	crpc_mlx5_objects_free(&qp->ib);
	return crpc_null(rc);
}

void
crpc_mlx5_rq_start(struct crpc_mlx5_qp *qp)
{
	qp->rq.posted = qp->ib.rq_depth;
	crpc_mlx5_dev(qp->ib.base.dev)->ib.base.stats.recv_posted += qp->ib.rq_depth;
	crpc_store_release(qp->rq.dbrec, htobe32(qp->ib.rq_depth & CRPC_MLX5_WQE_CTR_MASK));
}

int
crpc_mlx5_av_get(const struct crpc_mlx5_dev *dev, struct ibv_ah *ah,
	const struct crpc_ib_addr *peer, struct mlx5_wqe_av *av, bool *full)
{
	struct mlx5dv_ah raw = {0};
	struct mlx5dv_obj obj = {.ah = {.in = ah, .out = &raw}};

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH) != 0)
		return crpc_fail(
			-EHOSTUNREACH, "connect: rdma-core does not show the address vector");
	memcpy(av, raw.av, sizeof(*av));
	/* A global route needs all, which on Ethernet each is, without the bit; rdma-core sets the
	 * other bit where the card knows the long form only. */
	*full = dev->ib.port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ||
		((be32toh(av->grh_gid_fl) & AV_GRH) |
			(be32toh(av->dqp_dct) & MLX5_EXTENDED_UD_AV)) != 0;
	av->dqp_dct = htobe32(peer->qpn | MLX5_EXTENDED_UD_AV);
	av->key.dc_key = 0;
	return 0;
}

void
crpc_mlx5_qp_to_error(struct crpc_ib_qp *qp)
{
	if (qp->kind == CRPC_IB_DC)
		crpc_mlx5_dct_end(crpc_mlx5_qp(qp));
	else
		crpc_ib_to_error(qp);
}
