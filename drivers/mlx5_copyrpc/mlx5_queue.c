/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all kinds of queue pairs share: how they are made and moved through their states, the memory
 * taken over by mlx5dv_init_obj(), the table from QPN to queue pair, and the route to a peer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "mlx5_ring.h"

#define HOP_LIMIT 64
/* Local acknowledge timeout 4.096 us << 14 = 67 ms, seven tries: a dead peer is detected within
 * about half a second (a card may take up to four times that), a busy switch is not mistaken for
 * one. */
#define ACK_TIMEOUT 14
#define RETRY_COUNT 7
/* A sender waits for a receiver that polls too slowly; 7 is for ever, and deadlines are the
 * protocol's. */
#define RNR_RETRY 7
/* Code of 60 us: how long a sender holds back when the peer had no receive. */
#define MIN_RNR_TIMER 5
/* Blocks kept for the WQE whose completion ends DRAINING. */
#define DRAIN_BLOCKS 2

#define OPS_REMOTE                                                                                 \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)
#define INIT_COMMON (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define RTS_REQUESTER                                                                              \
	(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                    \
		IBV_QP_MAX_QP_RD_ATOMIC)

/* How the kinds of queue pairs differ where rdma-core makes them and moves their states. */
static const struct shape {
	const char *name;
	size_t size; /* Of the object. */
	size_t head; /* Bytes of a WQE before its payload. */
	enum ibv_qp_type type;
	enum mlx5dv_dc_type dc_type;
	uint64_t ops;
	int to[3];               /* What INIT, RTR and RTS set. */
	enum ibv_qp_state first; /* The state in which it is made. */
	/* Memory of its own, once its queues are known; NULL: none. 0 or -errno. */
	int (*memory_init)(struct crpc_mlx5_qp_ctl *qp, const struct mlx5dv_qp *raw);
} shapes[] = {
	[CRPC_MLX5_RC] =
		{
			.name = "reliable connection",
			.size = sizeof(struct crpc_mlx5_qp_ctl),
			.head = CRPC_MLX5_RC_HEAD,
			.type = IBV_QPT_RC,
			.ops = OPS_REMOTE,
			.to = {INIT_COMMON | IBV_QP_ACCESS_FLAGS,
				IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				RTS_REQUESTER},
			.first = IBV_QPS_INIT,
		},
	[CRPC_MLX5_UD] =
		{
			.name = "datagram queue pair",
			.size = sizeof(struct crpc_mlx5_ud),
			.head = CRPC_MLX5_UD_HEAD,
			.type = IBV_QPT_UD,
			.ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
			.to = {INIT_COMMON | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN},
			.first = IBV_QPS_RTS,
			.memory_init = crpc_mlx5_ud_memory_init,
		},
	[CRPC_MLX5_DC] =
		{
			.name = "DC target",
			.size = sizeof(struct crpc_mlx5_dc),
			.head = CRPC_MLX5_DC_HEAD,
			.type = IBV_QPT_DRIVER,
			.dc_type = MLX5DV_DCTYPE_DCT,
			.to = {INIT_COMMON | IBV_QP_ACCESS_FLAGS,
				IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU},
			.first = IBV_QPS_RTR,
		},
	[CRPC_MLX5_DCI] =
		{
			.name = "DC initiator",
			.size = sizeof(struct crpc_mlx5_dci),
			.head = CRPC_MLX5_DC_HEAD,
			.type = IBV_QPT_DRIVER,
			.dc_type = MLX5DV_DCTYPE_DCI,
			.ops = OPS_REMOTE,
			.to = {INIT_COMMON, IBV_QP_PATH_MTU, RTS_REQUESTER},
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

/* Sends of a queue of this depth between two completions. */
static uint32_t
signal_every(const struct crpc_mlx5_dev_ctl *dev, uint32_t depth, uint32_t most)
{
	if (dev->signal_every != 0)
		return (uint32_t)crpc_min(dev->signal_every, depth);
	return (uint32_t)crpc_min(crpc_max(depth / 4, 1), most);
}

/* The sizes of a queue pair, if there is room for it; 0, or -EINVAL or -ENOSPC. */
static int
sizes_init(const struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_rdma_qp_conf *conf)
{
	size_t head = shapes[qp->dp.kind].head;

	/* What an initiator has outstanding is set aside with the queue pairs that use it. */
	qp->cq_share = qp->dp.kind == CRPC_MLX5_DCI ? 1 : conf->sq_depth + conf->rq_depth;
	if (conf->inline_max > CRPC_MLX5_INLINE_MAX_OF(head))
		return crpc_fail(-EINVAL, "queue pair: inline_max %u is above %zu",
			conf->inline_max, CRPC_MLX5_INLINE_MAX_OF(head));
	if (dev->num_qps == CRPC_RDMA_QPS_MAX)
		return crpc_fail(-ENOSPC,
			"queue pair: the device has %u already, the most there may be",
			CRPC_RDMA_QPS_MAX);
	if (qp->cq_share > dev->cq_depth - dev->cq_used)
		return crpc_fail(-ENOSPC,
			"queue pair: sq_depth %u + rq_depth %u do not fit: %u of the %u "
			"completions of cq_depth are set aside already: open the device with a "
			"larger cq_depth",
			conf->sq_depth, conf->rq_depth, dev->cq_used, dev->cq_depth);
	qp->rq_depth = conf->rq_depth;
	qp->dp.depth = conf->sq_depth;
	qp->dp.bb_max = crpc_mlx5_wqebb_max(head, conf->inline_max);
	/* What fits behind the headers when a WQE uses all its blocks. */
	qp->dp.inline_max = (uint32_t)(qp->dp.bb_max * CRPC_MLX5_BB - head -
		sizeof(struct mlx5_wqe_inl_data_seg));
	qp->dp.signal_every = signal_every(dev, conf->sq_depth, CRPC_MLX5_SIGNAL_EVERY_MAX);
	return 0;
}

int
crpc_mlx5_verbs_errno(const char *what)
{
	int err = errno;

	crpc_err("queue pair: no %s: %s%s", what, strerror(err),
		err == EOPNOTSUPP ? ": the device has no such transport" : "");
	return err == EINVAL || err == EOPNOTSUPP ? -err : -ENOMEM;
}

static int
ibqp_create(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	const struct shape *shape = &shapes[qp->dp.kind];
	bool sends = qp->dp.kind != CRPC_MLX5_DC;
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = (shape->dc_type != 0 ? MLX5DV_QP_INIT_ATTR_MASK_DC : 0) |
			(sends ? MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS : 0),
		/* The bytes of a READ or a datagram must land in their memory, never in the CQE. */
		.create_flags = sends ? MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE : 0,
		.dc_init_attr = {.dc_type = shape->dc_type},
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = shape->type,
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.srq = qp->srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev->pd,
	};

	if (sends) {
		attr.cap = (struct ibv_qp_cap){
			.max_send_wr = qp->dp.depth,
			.max_recv_wr = qp->rq_depth,
			.max_send_sge = CRPC_RDMA_SGE_MAX,
			.max_recv_sge = qp->rq_depth != 0,
			.max_inline_data = qp->dp.inline_max,
		};
		/* Without these rdma-core sizes the ring for memory window binds: twice as
		 * large. */
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = shape->ops;
	} else {
		dv_attr.dc_init_attr.dct_access_key = qp->key;
	}
	qp->ibqp = mlx5dv_create_qp(dev->dp.context, &attr, &dv_attr);
	return qp->ibqp != NULL ? 0 : crpc_mlx5_verbs_errno(shape->name);
}

void
crpc_mlx5_rq_prefill(
	uint8_t kind, const struct crpc_mlx5_ud *ud, void *buf, uint32_t num, uint32_t stride)
{
	/* The list of a receive's buffers ends at this key. */
	const struct mlx5_wqe_data_seg none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	struct mlx5_wqe_data_seg data = {
		.byte_count = htobe32(CRPC_MLX5_GRH + CRPC_MLX5_UD_LEN_MAX)};
	struct mlx5_wqe_srq_next_seg next = {0};
	uint8_t *wqe = buf, *seg;
	uint32_t i;

	for (i = 0; i < num; i++, wqe += stride) {
		memset(wqe, 0, stride);
		seg = wqe;
		if (kind == CRPC_MLX5_DC) { /* A shared queue is a list; ours is a circle. */
			next.next_wqe_index = htobe16((uint16_t)((i + 1) % num));
			memcpy(seg, &next, sizeof(next));
			seg += sizeof(next);
		} else if (kind == CRPC_MLX5_UD) {
			data.lkey = htobe32(ud->lkey);
			data.addr = htobe64((uintptr_t)ud->buf + (uint64_t)i * CRPC_MLX5_UD_STRIDE +
				CRPC_MLX5_UD_PAYLOAD - CRPC_MLX5_GRH);
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
	uint32_t i = crpc_mlx5_table_home(t, qp->qpn);

	while (t->slot[i].qpn != 0)
		i = (i + 1) & t->mask;
	t->slot[i] = (struct crpc_mlx5_slot){.qpn = qp->qpn, .qp = qp};
}

void
crpc_mlx5_table_fill(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_table *t = &dev->dp.table;
	struct crpc_mlx5_qp_ctl *qp;

	memset(t->slot, 0, (t->mask + 1) * sizeof(*t->slot));
	for (qp = dev->qps; qp != NULL; qp = qp->next) {
		if (qp->ibqp != NULL && qp->dp.state != CRPC_MLX5_QP_RETIRED)
			crpc_mlx5_table_add(t, &qp->dp);
	}
}

static int
list_add(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	struct crpc_mlx5_slot *old = dev->dp.table.slot;

	if (2 * (dev->num_qps + 1) > dev->dp.table.mask + 1) {
		if (crpc_mlx5_table_init(&dev->dp.table, dev->num_qps + 1) != 0)
			return -ENOMEM;
		free(old);
	}
	qp->next = dev->qps;
	dev->qps = qp;
	dev->num_qps++;
	dev->cq_used += qp->cq_share;
	crpc_mlx5_table_fill(dev);
	return 0;
}

/* Frees what there is of it. False: the device may still use it, so nothing is given back. */
static bool
objects_free(struct crpc_mlx5_qp_ctl *qp)
{
	int rc = qp->ibqp != NULL ? ibv_destroy_qp(qp->ibqp) : 0;

	if (rc != 0) {
		crpc_err("qp_free: qp 0x%x: %s: its memory stays until the device is closed",
			qp->ibqp->qp_num, strerror(rc));
		return false;
	}
	if (qp->srq != NULL)
		ibv_destroy_srq(qp->srq);
	if (qp->ibah != NULL)
		ibv_destroy_ah(qp->ibah);
	if (qp->mr != NULL)
		ibv_dereg_mr(qp->mr);
	free(qp->memory);
	free(qp->dp.own.sent);
	free(qp);
	return true;
}

void
crpc_mlx5_qp_end(struct crpc_mlx5_qp_ctl *qp)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(qp->dp.base.dev);
	uint32_t qpn = qp->dp.qpn, share = qp->cq_share;
	struct crpc_mlx5_qp **fault = &dev->dp.faults;
	bool had_number = qp->ibqp != NULL;
	struct crpc_mlx5_qp_ctl **at = &dev->qps;

	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	while (*fault != NULL && *fault != &qp->dp)
		fault = &(*fault)->next_fault;
	if (*fault != NULL)
		*fault = qp->dp.next_fault;
	dev->num_qps--;
	/* The number of one that was destroyed before may be another one's by now. */
	if (!objects_free(qp)) {
		qp->next = dev->kept;
		dev->kept = qp;
	} else {
		dev->cq_used -= share;
		if (had_number)
			crpc_mlx5_cq_forget(&dev->dp.cq, qpn);
	}
	crpc_mlx5_table_fill(dev);
}

void
crpc_mlx5_kept_free(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_qp_ctl *qp;

	while ((qp = dev->kept) != NULL) {
		dev->kept = qp->next;
		objects_free(qp);
	}
}

/* The register of a QP; several QPs may have been given the same one. */
static struct crpc_mlx5_bf *
bf_get(struct crpc_mlx5_dev_ctl *dev, void *reg, uint32_t size)
{
	uint32_t i;

	for (i = 0; i < dev->num_bfs; i++) {
		if (dev->bf[i].reg == reg)
			return &dev->bf[i];
	}
	if (dev->num_bfs == CRPC_MLX5_BF_MAX)
		return NULL;
	if (dev->blueflame == CRPC_RDMA_BLUEFLAME_NEVER)
		size = 0;
	dev->bf[i] = (struct crpc_mlx5_bf){.reg = reg, .size = size};
	dev->num_bfs++;
	return &dev->bf[i];
}

/* Takes the send ring and the receive queue of qp->ibqp over from rdma-core. */
static int
queues_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp, struct mlx5dv_qp *raw)
{
	struct mlx5dv_obj obj = {.qp = {.in = qp->ibqp, .out = raw}};
	uint32_t blocks = qp->dp.depth * qp->dp.bb_max;
	struct crpc_mlx5_sq *sq = &qp->dp.own;

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) != 0 || raw->sq.stride != CRPC_MLX5_BB ||
		!crpc_is_pow2(raw->sq.wqe_cnt) || raw->sq.wqe_cnt < blocks ||
		raw->sq.wqe_cnt > CRPC_MLX5_BLOCKS_MAX ||
		(qp->rq_depth != 0 &&
			(!crpc_is_pow2(raw->rq.wqe_cnt) || raw->rq.wqe_cnt < qp->rq_depth ||
				raw->rq.stride < sizeof(struct mlx5_wqe_data_seg))))
		return crpc_fail(-EINVAL,
			"queue pair: rdma-core gave %u send blocks of %u and %u receives of %u "
			"bytes, needed are %u of 64 and %u: use shorter queues",
			raw->sq.wqe_cnt, raw->sq.stride, raw->rq.wqe_cnt, raw->rq.stride, blocks,
			qp->rq_depth);
	sq->bf = bf_get(dev, raw->bf.reg, raw->bf.size);
	sq->sent = calloc(raw->sq.wqe_cnt, sizeof(*sq->sent));
	if (sq->bf == NULL || sq->sent == NULL)
		return crpc_fail(-ENOMEM, "queue pair: no %s for one more",
			sq->sent == NULL ? "memory" : "doorbell register");
	sq->buf = raw->sq.buf;
	sq->end = sq->buf + (size_t)raw->sq.wqe_cnt * CRPC_MLX5_BB;
	sq->bb_mask = raw->sq.wqe_cnt - 1;
	sq->dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_SND_DBR];
	sq->qpn_shl8 = qp->ibqp->qp_num << 8;
	sq->signal_every = qp->dp.signal_every;
	if (qp->dp.kind == CRPC_MLX5_DCI) {
		/* Some blocks are kept free, so the ring does not hold as many of the largest. */
		sq->reserved = DRAIN_BLOCKS;
		sq->signal_every = (uint32_t)crpc_min(CRPC_MLX5_DCI_DEPTH / 2,
			signal_every(dev, CRPC_MLX5_DCI_DEPTH, CRPC_MLX5_DCI_SIGNAL_EVERY));
	}
	qp->dp.rq.dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_RCV_DBR];
	if (shapes[qp->dp.kind].memory_init != NULL)
		return shapes[qp->dp.kind].memory_init(qp, raw);
	crpc_mlx5_rq_prefill(CRPC_MLX5_RC, NULL, raw->rq.buf, raw->rq.wqe_cnt, raw->rq.stride);
	return 0;
}

/* What a sender needs. With its highest bit a Q_Key would stand for the sender's own. */
static int
keys_make(struct crpc_mlx5_qp_ctl *qp)
{
	if (qp->dp.kind == CRPC_MLX5_RC)
		qp->psn = (uint32_t)crpc_clock_ticks() & 0xffffff;
	if (qp->dp.kind != CRPC_MLX5_UD && qp->dp.kind != CRPC_MLX5_DC)
		return 0;
	if (getrandom(&qp->key, sizeof(qp->key), 0) != sizeof(qp->key))
		return -EIO;
	if (qp->dp.kind == CRPC_MLX5_UD)
		qp->key &= 0x7fffffff;
	return 0;
}

struct ibv_qp_attr
crpc_mlx5_attr(const struct crpc_mlx5_qp_ctl *qp)
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(qp->dp.base.dev);

	return (struct ibv_qp_attr){
		.port_num = dev->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.qkey = (uint32_t)qp->key,
		.path_mtu = dev->port_attr.active_mtu,
		.sq_psn = qp->psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RNR_RETRY,
		.min_rnr_timer = MIN_RNR_TIMER,
		.max_rd_atomic = dev->rd_atomic,
		.max_dest_rd_atomic = dev->rd_atomic,
		.ah_attr =
			{
				.port_num = dev->port,
				.is_global = dev->has_gid,
				.grh = {.sgid_index = (uint8_t)dev->gid_index,
					.hop_limit = HOP_LIMIT},
			},
	};
}

int
crpc_mlx5_qp_move(struct crpc_mlx5_qp_ctl *qp, struct ibv_qp_attr *attr, enum ibv_qp_state last)
{
	const struct shape *shape = &shapes[qp->dp.kind];
	int rc;

	while (attr->qp_state < last) {
		attr->qp_state++;
		rc = ibv_modify_qp(
			qp->ibqp, attr, IBV_QP_STATE | shape->to[attr->qp_state - IBV_QPS_INIT]);
		if (rc != 0)
			return crpc_fail(-EIO, "%s 0x%x to state %d on port %u: %s", shape->name,
				qp->ibqp->qp_num, (int)attr->qp_state, attr->port_num,
				strerror(rc));
		if (attr->qp_state == IBV_QPS_INIT && qp->dp.kind <= CRPC_MLX5_UD)
			crpc_mlx5_rq_start(qp);
	}
	return 0;
}

/* Moves it to its first state of use, and adds it to the device's. */
static int
qp_start(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	struct ibv_qp_attr attr = crpc_mlx5_attr(qp);
	int rc = crpc_mlx5_qp_move(qp, &attr, shapes[qp->dp.kind].first);

	if (rc != 0)
		return rc;
	/* A DC target has its number only now. */
	qp->dp.qpn = qp->ibqp->qp_num;
	if (attr.qp_state == IBV_QPS_RTS)
		qp->dp.state = CRPC_MLX5_QP_READY;
	return list_add(dev, qp);
}

struct crpc_mlx5_qp_ctl *
crpc_mlx5_qp_make(struct crpc_mlx5_dev_ctl *dev, uint8_t kind, const struct crpc_rdma_qp_conf *conf)
{
	size_t size = crpc_align_up(shapes[kind].size, CRPC_CACHE_GUARD);
	struct crpc_mlx5_qp_ctl *qp = aligned_alloc(CRPC_CACHE_GUARD, size);
	struct mlx5dv_qp raw = {0};
	int rc;

	if (qp == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	memset(qp, 0, size);
	qp->dp.base = (struct crpc_rdma_qp){.dev = &dev->dp.base, .id = conf->id};
	qp->dp.kind = kind;
	qp->dp.sq = &qp->dp.own;
	if (kind == CRPC_MLX5_UD || kind == CRPC_MLX5_DCI)
		qp->dp.rq.state = CRPC_MLX5_RQ_NO_IMM;
	rc = sizes_init(dev, qp, conf);
	if (rc == 0)
		rc = keys_make(qp);
	if (rc == 0 && kind == CRPC_MLX5_DC)
		rc = crpc_mlx5_srq_init(dev, qp);
	if (rc == 0)
		rc = ibqp_create(dev, qp);
	if (rc == 0 && kind != CRPC_MLX5_DC)
		rc = queues_init(dev, qp, &raw);
	if (rc == 0)
		rc = qp_start(dev, qp);
	if (rc == 0)
		return qp;
	if (!objects_free(qp)) {
		qp->next = dev->kept;
		dev->kept = qp;
	}
	errno = -rc;
	return NULL;
}

void
crpc_mlx5_rq_start(struct crpc_mlx5_qp_ctl *qp)
{
	qp->dp.rq.posted = qp->rq_depth;
	crpc_mlx5_dev_ctl(qp->dp.base.dev)->dp.stats.recv_posted += qp->rq_depth;
	crpc_store_release(qp->dp.rq.dbrec, htobe32(qp->rq_depth & CRPC_MLX5_WQE_CTR_MASK));
}

int
crpc_mlx5_route_fill(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct ibv_ah_attr *ah)
{
	bool ethernet = dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	bool lid_is_enough = !ethernet && peer->lid != 0 &&
		(dev->port_attr.flags & IBV_QPF_GRH_REQUIRED) == 0 &&
		!(dev->has_gid && peer->has_gid && memcmp(dev->gid.raw, peer->gid, 8) != 0);

	if (peer->link_layer != dev->port_attr.link_layer)
		return crpc_fail(-EHOSTUNREACH, "connect: the peer's port is %s and this one is %s",
			peer->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
			ethernet ? "Ethernet" : "InfiniBand");
	*ah = (struct ibv_ah_attr){.port_num = dev->port, .dlid = peer->lid};
	if (lid_is_enough)
		return 0;
	if (!dev->has_gid || !peer->has_gid)
		return crpc_fail(-EHOSTUNREACH,
			"connect: the route needs a GID, and %s has none: check gid_index",
			dev->has_gid ? "the peer" : "this port");
	ah->is_global = 1;
	ah->grh.sgid_index = (uint8_t)dev->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	return 0;
}

struct ibv_ah *
crpc_mlx5_av_make(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct mlx5_wqe_av *av, bool *full)
{
	struct ibv_ah_attr attr = {0};
	struct mlx5dv_ah raw = {0};
	struct mlx5dv_obj obj = {.ah = {.out = &raw}};
	struct ibv_ah *ah;

	if (crpc_mlx5_route_fill(dev, peer, &attr) != 0) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	/* This also resolves the peer's MAC where the port is Ethernet. */
	ah = ibv_create_ah(dev->pd, &attr);
	if (ah == NULL) {
		crpc_err("connect: no address handle for qp 0x%x: %s", peer->qpn, strerror(errno));
		errno = errno == ENOMEM ? ENOMEM : EHOSTUNREACH;
		return NULL;
	}
	obj.ah.in = ah;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH) != 0) {
		crpc_err("connect: rdma-core does not show the address vector");
		ibv_destroy_ah(ah);
		errno = EHOSTUNREACH;
		return NULL;
	}
	memcpy(av, raw.av, sizeof(*av));
	/* rdma-core sets the bit where the card knows the long form only. */
	*full = attr.is_global || (be32toh(av->dqp_dct) & MLX5_EXTENDED_UD_AV) != 0;
	av->dqp_dct = htobe32(peer->qpn | MLX5_EXTENDED_UD_AV);
	av->key.dc_key = 0;
	return ah;
}

int
crpc_mlx5_state_set(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void
crpc_mlx5_qp_to_error(struct crpc_mlx5_qp *dp)
{
	struct crpc_mlx5_qp_ctl *qp = crpc_container_of(dp, struct crpc_mlx5_qp_ctl, dp);
	int rc;

	if (dp->kind == CRPC_MLX5_DC) {
		crpc_mlx5_dct_end(crpc_container_of(qp, struct crpc_mlx5_dc, qp));
		return;
	}
	rc = crpc_mlx5_state_set(qp->ibqp, IBV_QPS_ERR);
	if (rc != 0)
		crpc_warn("qp 0x%x to ERR: %s", dp->qpn, strerror(rc));
}
