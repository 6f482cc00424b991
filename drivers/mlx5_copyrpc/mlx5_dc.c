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
#include <sys/random.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

/* As of reliable connections, see mlx5_qp.c. */
#define ACK_TIMEOUT   14
#define RETRY_COUNT   7
#define RNR_RETRY     7
#define MIN_RNR_TIMER 5
#define HOP_LIMIT     64

/* Queue pairs freed by the user that one poll looks at. */
#define ENDING_PER_POLL 8

static struct ibv_qp *
dc_ibqp_create(struct crpc_mlx5_dev_ctl *dev, struct ibv_srq *srq, uint64_t key,
	const struct crpc_mlx5_sizes *sizes)
{
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.dc_init_attr = {.dc_type = srq != NULL ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI},
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.srq = srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev->pd,
	};

	if (srq != NULL) {
		dv_attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv_attr.create_flags = 0;
		dv_attr.dc_init_attr.dct_access_key = key;
	} else {
		attr.cap.max_send_wr = sizes->sq_depth;
		attr.cap.max_send_sge = CRPC_RDMA_SGE_MAX;
		attr.cap.max_inline_data = sizes->inline_max;
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE |
			IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
	}
	return mlx5dv_create_qp(dev->dp.context, &attr, &dv_attr);
}

/* -errno of a verbs object that could not be made: what says that there is no DC is kept. */
static int
dc_errno(const char *what)
{
	int err = errno;

	crpc_err("qp_create: %s: %s%s", what, strerror(err),
		err == EOPNOTSUPP ? ": the device has no dynamic connections" : "");
	return err == EINVAL || err == EOPNOTSUPP ? -err : -ENOMEM;
}

/* ---- initiators ---- */

int
crpc_mlx5_dci_start(struct crpc_mlx5_dci *dci)
{
	const struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(dci->qp.dp.base.dev);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = dev->port,
		.path_mtu = dev->port_attr.active_mtu,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RNR_RETRY,
		.max_rd_atomic = dev->rd_atomic,
	};
	int rc;

	rc = ibv_modify_qp(dci->qp.ibqp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	if (rc != 0)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	rc = ibv_modify_qp(dci->qp.ibqp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU);
	if (rc != 0)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(dci->qp.ibqp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN);
}

/* What is made of an initiator whose verbs queue pair is there. */
static int
dci_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dci *dci,
	const struct crpc_mlx5_sizes *sizes)
{
	struct crpc_mlx5_qp *qp = &dci->qp.dp;
	struct mlx5dv_qp raw = {0};
	int rc;

	rc = crpc_mlx5_queues_init(dev, &dci->qp, sizes, &raw);
	if (rc != 0)
		return rc;
	dci->sent = calloc(raw.sq.wqe_cnt, sizeof(*dci->sent));
	dci->again = calloc(raw.sq.wqe_cnt, sizeof(*dci->again));
	dci->again_sent = calloc(raw.sq.wqe_cnt, sizeof(*dci->again_sent));
	dci->copy = malloc((size_t)raw.sq.wqe_cnt * CRPC_MLX5_BB);
	if (dci->sent == NULL || dci->again == NULL || dci->again_sent == NULL || dci->copy == NULL)
		return -ENOMEM;
	/* Some blocks are kept free, so the ring does not hold as many of the largest WQEs. */
	dci->signal_every =
		crpc_mlx5_signal_every(dev, CRPC_MLX5_DCI_DEPTH, CRPC_MLX5_DCI_SIGNAL_EVERY);
	dci->signal_every = (uint32_t)crpc_min(dci->signal_every, CRPC_MLX5_DCI_DEPTH / 2);
	rc = crpc_mlx5_dci_start(dci);
	if (rc != 0) {
		crpc_err("qp_create: DC initiator 0x%x on port %u: %s", qp->qpn, dev->port,
			strerror(rc));
		return -EIO;
	}
	qp->state = CRPC_MLX5_QP_READY;
	/* What it has outstanding is set aside with the queue pairs; one more is the driver's. */
	return crpc_mlx5_list_add(dev, &dci->qp, 1);
}

static void
dci_memory_free(struct crpc_mlx5_dci *dci)
{
	free(dci->sent);
	free(dci->again);
	free(dci->again_sent);
	free(dci->copy);
	free(dci);
}

static int
dci_create(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_sizes sizes;
	struct crpc_mlx5_dci *dci;
	int rc;

	rc = crpc_mlx5_sizes_init(
		dev, CRPC_MLX5_DC_HEAD, 1, 0, CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD), &sizes);
	if (rc != 0)
		return rc;
	sizes.sq_depth = CRPC_MLX5_DCI_DEPTH;
	dci = crpc_mlx5_zalloc(sizeof(*dci));
	if (dci == NULL)
		return -ENOMEM;
	dci->qp.dp.base.dev = &dev->dp.base;
	dci->qp.dp.kind = CRPC_MLX5_DCI;
	dci->qp.ibqp = dc_ibqp_create(dev, NULL, 0, &sizes);
	if (dci->qp.ibqp == NULL) {
		rc = dc_errno("a DC initiator");
		free(dci);
		return rc;
	}
	rc = dci_init(dev, dci, &sizes);
	if (rc != 0) {
		ibv_destroy_qp(dci->qp.ibqp);
		free(dci->qp.dp.sq.sent);
		dci_memory_free(dci);
		return rc;
	}
	dev->dp.dci[dev->dp.num_dcis++] = dci;
	return 0;
}

bool
crpc_mlx5_dci_free(struct crpc_mlx5_dci *dci)
{
	if (!crpc_mlx5_list_del(crpc_mlx5_dev_ctl(dci->qp.dp.base.dev), &dci->qp))
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
		dci = dev->dp.dci[i];
		if (!crpc_mlx5_dci_is_gone(dci) || !crpc_mlx5_dci_free(dci)) {
			i++;
			continue;
		}
		dev->dp.dci[i] = dev->dp.dci[--dev->dp.num_dcis];
		for (qp = dev->qps; qp != NULL; qp = qp->next) {
			struct crpc_mlx5_dc *dc = crpc_container_of(qp, struct crpc_mlx5_dc, qp);

			if (qp->dp.kind == CRPC_MLX5_DC && dc->dci == dci)
				dc->dci = NULL;
		}
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

/* Receives without a buffer in a circle of `num`, from the first that the device will take. */
static void
srq_prefill(uint8_t *buf, uint32_t num, uint32_t stride)
{
	const struct crpc_mlx5_data none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	struct mlx5_wqe_srq_next_seg next = {0};
	uint32_t i;

	for (i = 0; i < num; i++, buf += stride) {
		next.next_wqe_index = htobe16((uint16_t)((i + 1) % num));
		memset(buf, 0, stride);
		memcpy(buf, &next, sizeof(next));
		memcpy(buf + sizeof(next), &none, sizeof(none));
	}
}

static int
srq_create(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dc *dc)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = dc->rq_depth, .max_sge = 1}};
	struct mlx5dv_srq raw = {0};
	struct mlx5dv_obj obj = {.srq = {.out = &raw}};
	uint32_t num;

	dc->srq = ibv_create_srq(dev->pd, &attr);
	if (dc->srq == NULL)
		return dc_errno("a shared receive queue");
	obj.srq.in = dc->srq;
	num = mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ) == 0 ? raw.tail - raw.head + 1 : 0;
	if (raw.head != 0 || num < dc->rq_depth + 1 || num > 1u << 16 ||
		raw.stride < sizeof(struct mlx5_wqe_srq_next_seg) + sizeof(struct crpc_mlx5_data)) {
		crpc_err("qp_create: rdma-core gave a shared receive queue of entries %u to %u of "
			 "%u bytes, needed are %u from 0",
			raw.head, raw.tail, raw.stride, dc->rq_depth + 1);
		return -EINVAL;
	}
	srq_prefill(raw.buf, num, raw.stride);
	dc->qp.dp.rq.dbrec = (_Atomic uint32_t *)(void *)raw.dbrec;
	return 0;
}

/* The target, to the state in which it receives: only then it has its number. */
static int
dct_create(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dc *dc)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = dev->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = dev->port_attr.active_mtu,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = {.port_num = dev->port},
	};
	int rc;

	if (getrandom(&dc->key, sizeof(dc->key), 0) != sizeof(dc->key))
		return -EIO;
	dc->qp.ibqp = dc_ibqp_create(dev, dc->srq, dc->key, NULL);
	if (dc->qp.ibqp == NULL)
		return dc_errno("a DC target");
	if (dev->has_gid) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.sgid_index = (uint8_t)dev->gid_index;
		attr.ah_attr.grh.hop_limit = HOP_LIMIT;
	}
	rc = ibv_modify_qp(dc->qp.ibqp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc == 0) {
		attr.qp_state = IBV_QPS_RTR;
		rc = ibv_modify_qp(dc->qp.ibqp, &attr,
			IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
	}
	if (rc != 0) {
		crpc_err("qp_create: DC target to state %d on port %u: %s", (int)attr.qp_state,
			dev->port, strerror(rc));
		return -EIO;
	}
	dc->qp.dp.qpn = dc->qp.ibqp->qp_num;
	return 0;
}

static void
dc_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dc *dc, const struct crpc_mlx5_sizes *sizes,
	uint32_t id)
{
	struct crpc_mlx5_sq *sq = &dc->qp.dp.sq;

	dc->qp.dp.base = (struct crpc_rdma_qp){.dev = &dev->dp.base, .id = id};
	dc->qp.dp.kind = CRPC_MLX5_DC;
	dc->rq_depth = sizes->rq_depth;
	dc->wqebb_max = sizes->wqebb_max;
	dc->inline_max = sizes->inline_max;
	sq->depth = sizes->sq_depth;
	sq->signal_every = crpc_mlx5_signal_every(dev, sizes->sq_depth, CRPC_MLX5_SIGNAL_EVERY_MAX);
}

static void
dc_objects_free(struct crpc_mlx5_dc *dc)
{
	if (dc->qp.ibqp != NULL)
		ibv_destroy_qp(dc->qp.ibqp);
	if (dc->srq != NULL)
		ibv_destroy_srq(dc->srq);
	free(dc);
}

struct crpc_rdma_qp *
crpc_mlx5_dc_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct crpc_mlx5_sizes sizes;
	struct crpc_mlx5_dc *dc;
	int rc;

	rc = dcis_create(dev);
	if (rc == 0)
		rc = crpc_mlx5_sizes_init(dev, CRPC_MLX5_DC_HEAD, conf->sq_depth, conf->rq_depth,
			conf->inline_max, &sizes);
	if (rc != 0)
		goto err_none;
	dc = crpc_mlx5_zalloc(sizeof(*dc));
	if (dc == NULL) {
		rc = -ENOMEM;
		goto err_none;
	}
	dc_init(dev, dc, &sizes, conf->id);
	/* It is looked at if a completion names the target as a sender. */
	dc->qp.dp.sq.sent = calloc(1, sizeof(*dc->qp.dp.sq.sent));
	rc = dc->qp.dp.sq.sent != NULL ? srq_create(dev, dc) : -ENOMEM;
	if (rc == 0)
		rc = dct_create(dev, dc);
	if (rc == 0)
		rc = crpc_mlx5_list_add(dev, &dc->qp, conf->sq_depth + conf->rq_depth);
	if (rc != 0)
		goto err_dc;
	return &dc->qp.dp.base;

err_dc:
	free(dc->qp.dp.sq.sent);
	dc_objects_free(dc);
err_none:
	errno = -rc;
	return NULL;
}

void
crpc_mlx5_dct_end(struct crpc_mlx5_dc *dc)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(dc->qp.dp.base.dev);
	int rc;

	if (dc->qp.ibqp == NULL)
		return;
	rc = ibv_destroy_qp(dc->qp.ibqp);
	if (rc != 0) {
		crpc_warn("DC target 0x%x: %s", dc->qp.dp.qpn, strerror(rc));
		return;
	}
	dc->qp.ibqp = NULL;
	/* Its number may come back. The table drops it when it is made anew, before that. */
	crpc_mlx5_cq_forget(&dev->dp.cq, dc->qp.dp.qpn);
}

/* The last step: the device has nothing of it. */
static void
dc_destroy(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_dc *dc)
{
	if (!crpc_mlx5_list_del(dev, &dc->qp))
		return;
	dc->qp.ibqp = NULL;
	if (dc->ibah != NULL)
		ibv_destroy_ah(dc->ibah);
	dc_objects_free(dc);
}

int
crpc_mlx5_dc_drain(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_dc *dc = crpc_container_of(base, struct crpc_mlx5_dc, qp.dp.base);

	crpc_mlx5_dct_end(dc);
	return crpc_mlx5_dc_retire(&dev->dp, dc) ? 0 : -EAGAIN;
}

void
crpc_mlx5_dc_free(struct crpc_rdma_qp *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_dc *dc = crpc_container_of(base, struct crpc_mlx5_dc, qp.dp.base);

	if (crpc_mlx5_dc_drain(base) == 0) {
		dc_destroy(dev, dc);
		return;
	}
	/* Its completions still need their room, so it stays among the device's queue pairs. */
	dc->next_ending = dev->dp.ending;
	dev->dp.ending = dc;
	dev->num_ending++;
	crpc_store_relaxed(&dev->dp.attention, 1);
}

bool
crpc_mlx5_ending_take(struct crpc_mlx5_dev *dp)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(&dp->base);
	struct crpc_mlx5_dc **at = &dp->ending, *dc;
	uint32_t i;

	for (i = 0; i < ENDING_PER_POLL && *at != NULL; i++) {
		dc = *at;
		if (!crpc_mlx5_dc_idle(dc)) {
			at = &dc->next_ending;
			continue;
		}
		*at = dc->next_ending;
		dev->num_ending--;
		dc_destroy(dev, dc);
	}
	return dp->ending != NULL;
}

void
crpc_mlx5_dc_addr(const struct crpc_rdma_qp *base, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_mlx5_dc *dc = (const struct crpc_mlx5_dc *)(const void *)base;
	struct crpc_mlx5_addr a = {
		.kind = CRPC_MLX5_DC,
		.qpn = dc->qp.dp.qpn,
		.key = dc->key,
	};

	crpc_mlx5_addr_fill(crpc_mlx5_dev_ctl(base->dev), &a);
	crpc_mlx5_addr_encode(&a, addr);
}

int
crpc_mlx5_dc_connect(struct crpc_rdma_qp *base, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base->dev);
	struct crpc_mlx5_dc *dc = crpc_container_of(base, struct crpc_mlx5_dc, qp.dp.base);
	struct crpc_mlx5_addr peer;
	bool full;

	if (crpc_mlx5_addr_decode(bytes, CRPC_MLX5_DC, &peer) != 0)
		return -EPROTO;
	/* Packets of one MTU are refused by a target of another one. */
	if (peer.mtu != (uint8_t)dev->port_attr.active_mtu) {
		crpc_err("connect: DC target 0x%x has an MTU of %u bytes, and the initiators of "
			 "this port have %u: set the same MTU at both ports",
			peer.qpn, 128u << peer.mtu, 128u << dev->port_attr.active_mtu);
		return -EHOSTUNREACH;
	}
	dc->ibah = crpc_mlx5_av_make(dev, &peer, &dc->av, &full);
	if (dc->ibah == NULL)
		return -errno;
	dc->av.dc_key = htobe64(peer.key);
	dc->av_len = sizeof(dc->av);
	if (!full) {
		dc->av_len = CRPC_MLX5_SEG;
		dc->av.dqp_dct = htobe32(peer.qpn);
	}
	crpc_mlx5_rq_start(dev, &dc->qp.dp, dc->rq_depth);
	dc->qp.connected = true;
	dc->qp.dp.state = CRPC_MLX5_QP_DC_READY;
	return 0;
}
