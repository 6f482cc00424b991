/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all kinds of queue pairs share: how large their WQEs get, the memory taken over by
 * mlx5dv_init_obj(), the table from QPN to queue pair, and the way to a peer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

#define HOP_LIMIT 64

uint32_t
crpc_mlx5_wqebb_max(size_t head, uint32_t inline_max)
{
	uint64_t gather = CRPC_RDMA_SGE_MAX * sizeof(struct crpc_mlx5_data);
	uint64_t inl = crpc_align_up(sizeof(struct crpc_mlx5_inline) + inline_max, CRPC_MLX5_SEG);

	return (uint32_t)(crpc_align_up(head + crpc_max(gather, inl), CRPC_MLX5_BB) / CRPC_MLX5_BB);
}

int
crpc_mlx5_sizes_init(const struct crpc_mlx5_dev_ctl *dev, size_t head, uint32_t sq_depth,
	uint32_t rq_depth, uint32_t inline_max, struct crpc_mlx5_sizes *sizes)
{
	uint32_t blocks;

	if (inline_max > CRPC_MLX5_INLINE_MAX_OF(head)) {
		crpc_err("queue pair: inline_max %u is above %zu", inline_max,
			CRPC_MLX5_INLINE_MAX_OF(head));
		return -EINVAL;
	}
	if (dev->num_qps == CRPC_RDMA_QPS_MAX) {
		crpc_err("queue pair: the device has %u already, the most there may be",
			CRPC_RDMA_QPS_MAX);
		return -ENOSPC;
	}
	if (sq_depth + rq_depth > dev->cq_depth - dev->cq_used) {
		crpc_err("queue pair: sq_depth %u + rq_depth %u do not fit: %u of the %u "
			 "completions of cq_depth are set aside already: open the device with a "
			 "larger cq_depth",
			sq_depth, rq_depth, dev->cq_used, dev->cq_depth);
		return -ENOSPC;
	}
	blocks = crpc_mlx5_wqebb_max(head, inline_max);
	*sizes = (struct crpc_mlx5_sizes){
		.sq_depth = sq_depth,
		.rq_depth = rq_depth,
		.wqebb_max = blocks,
		/* What fits behind the headers when a WQE uses all its blocks. */
		.inline_max =
			(uint32_t)(blocks * CRPC_MLX5_BB - head - sizeof(struct crpc_mlx5_inline)),
	};
	return 0;
}

void *
crpc_mlx5_zalloc(size_t size)
{
	void *mem = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(size, CRPC_CACHE_GUARD));

	if (mem != NULL)
		memset(mem, 0, size);
	return mem;
}

void
crpc_mlx5_rq_prefill(void *buf, uint32_t wqe_cnt, uint32_t stride)
{
	/* The list of a receive's buffers ends at this key: this one has none. */
	const struct crpc_mlx5_data none = {.lkey = htobe32(MLX5_INVALID_LKEY)};
	uint8_t *wqe = buf;
	uint32_t i;

	for (i = 0; i < wqe_cnt; i++, wqe += stride) {
		memset(wqe, 0, stride);
		memcpy(wqe, &none, sizeof(none));
	}
}

int
crpc_mlx5_table_init(struct crpc_mlx5_table *t, uint32_t num)
{
	uint32_t slots = (uint32_t)crpc_pow2_ceil(crpc_max(2 * (uint64_t)num, 16));

	t->slot = calloc(slots, sizeof(*t->slot));
	if (t->slot == NULL)
		return -ENOMEM;
	t->mask = slots - 1;
	t->shift = 32 - crpc_log2(slots);
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

/* Makes the table anew from the list: no tombstones, and it grows and shrinks with the QPs. */
static int
table_rebuild(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_table fresh;
	struct crpc_mlx5_qp_ctl *qp;
	int rc;

	rc = crpc_mlx5_table_init(&fresh, dev->num_qps);
	if (rc != 0)
		return rc;
	for (qp = dev->qps; qp != NULL; qp = qp->next) {
		if (qp->ibqp != NULL)
			crpc_mlx5_table_add(&fresh, &qp->dp);
	}
	free(dev->dp.table.slot);
	dev->dp.table = fresh;
	return 0;
}

int
crpc_mlx5_list_add(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp, uint32_t cq_share)
{
	int rc;

	qp->next = dev->qps;
	dev->qps = qp;
	dev->num_qps++;
	rc = table_rebuild(dev);
	if (rc != 0) {
		dev->qps = qp->next;
		dev->num_qps--;
		return rc;
	}
	qp->cq_share = cq_share;
	dev->cq_used += cq_share;
	return 0;
}

static void
faults_del(struct crpc_mlx5_dev *dev, const struct crpc_mlx5_qp *qp)
{
	struct crpc_mlx5_qp **at = &dev->faults;

	while (*at != NULL && *at != qp)
		at = &(*at)->next_fault;
	if (*at == qp)
		*at = qp->next_fault;
}

bool
crpc_mlx5_list_del(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp)
{
	struct crpc_mlx5_qp_ctl **at = &dev->qps;
	struct crpc_mlx5_slot *slot;
	uint32_t i;
	int rc;

	rc = qp->ibqp != NULL ? ibv_destroy_qp(qp->ibqp) : 0;
	if (rc != 0) {
		/* The device may still use the queues: what it may write to is not given back. */
		crpc_err("qp_free: qp 0x%x: %s: its memory stays", qp->dp.qpn, strerror(rc));
		return false;
	}
	/* The number of one that was destroyed before may be another's by now. */
	if (qp->ibqp != NULL)
		crpc_mlx5_cq_forget(&dev->dp.cq, qp->dp.qpn);
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	dev->num_qps--;
	dev->cq_used -= qp->cq_share;
	faults_del(&dev->dp, &qp->dp);
	free(qp->dp.sq.sent);
	if (table_rebuild(dev) == 0)
		return true;
	/* No memory for a new table: leave the place taken, but by nobody, so chains stay whole. */
	for (i = 0; i <= dev->dp.table.mask; i++) {
		slot = &dev->dp.table.slot[i];
		if (slot->qp == &qp->dp)
			*slot = (struct crpc_mlx5_slot){.qpn = UINT32_MAX, .qp = NULL};
	}
	return true;
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

uint32_t
crpc_mlx5_signal_every(const struct crpc_mlx5_dev_ctl *dev, uint32_t depth, uint32_t most)
{
	if (dev->signal_every != 0)
		return (uint32_t)crpc_min(dev->signal_every, depth);
	return (uint32_t)crpc_min(crpc_max(depth / 4, 1), most);
}

int
crpc_mlx5_queues_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_mlx5_sizes *sizes, struct mlx5dv_qp *raw)
{
	struct mlx5dv_obj obj = {.qp = {.in = qp->ibqp, .out = raw}};
	uint32_t blocks = sizes->sq_depth * sizes->wqebb_max;
	struct crpc_mlx5_sq *sq = &qp->dp.sq;

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) != 0 || raw->sq.stride != CRPC_MLX5_BB ||
		!crpc_is_pow2(raw->sq.wqe_cnt) || raw->sq.wqe_cnt < blocks ||
		(sizes->rq_depth != 0 &&
			(!crpc_is_pow2(raw->rq.wqe_cnt) || raw->rq.wqe_cnt < sizes->rq_depth ||
				raw->rq.stride < sizeof(struct crpc_mlx5_data)))) {
		crpc_err("queue pair: rdma-core gave %u send blocks of %u and %u receives of %u "
			 "bytes, needed are %u of 64 and %u: ask for shorter queues",
			raw->sq.wqe_cnt, raw->sq.stride, raw->rq.wqe_cnt, raw->rq.stride, blocks,
			sizes->rq_depth);
		return -EINVAL;
	}
	sq->bf = bf_get(dev, raw->bf.reg, raw->bf.size);
	sq->sent = calloc(raw->sq.wqe_cnt, sizeof(*sq->sent));
	if (sq->bf == NULL || sq->sent == NULL) {
		crpc_err("queue pair: no %s for one more",
			sq->sent == NULL ? "memory" : "doorbell register");
		return -ENOMEM;
	}
	sq->buf = raw->sq.buf;
	sq->end = sq->buf + (size_t)raw->sq.wqe_cnt * CRPC_MLX5_BB;
	sq->bb_mask = raw->sq.wqe_cnt - 1;
	sq->dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_SND_DBR];
	sq->qpn_shl8 = qp->ibqp->qp_num << 8;
	sq->depth = sizes->sq_depth;
	sq->signal_every = crpc_mlx5_signal_every(dev, sizes->sq_depth, CRPC_MLX5_SIGNAL_EVERY_MAX);
	sq->inline_max = sizes->inline_max;
	qp->dp.rq.dbrec = (_Atomic uint32_t *)(void *)&raw->dbrec[MLX5_RCV_DBR];
	qp->dp.qpn = qp->ibqp->qp_num;
	return 0;
}

void
crpc_mlx5_rq_start(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp *qp, uint32_t num)
{
	qp->rq.posted = num;
	dev->dp.stats.recv_posted += num;
	crpc_store_release(qp->rq.dbrec, htobe32(num & CRPC_MLX5_WQE_CTR_MASK));
}

int
crpc_mlx5_route_fill(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct ibv_ah_attr *ah)
{
	bool ethernet = dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	bool lid_is_enough = !ethernet && peer->lid != 0 &&
		(dev->port_attr.flags & IBV_QPF_GRH_REQUIRED) == 0 &&
		!(dev->has_gid && peer->has_gid && memcmp(dev->gid.raw, peer->gid, 8) != 0);

	if (peer->link_layer != dev->port_attr.link_layer) {
		crpc_err("connect: the peer's port is %s and this one is %s",
			peer->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
			ethernet ? "Ethernet" : "InfiniBand");
		return -EHOSTUNREACH;
	}
	ah->port_num = dev->port;
	ah->dlid = peer->lid;
	if (lid_is_enough)
		return 0;
	if (!dev->has_gid || !peer->has_gid) {
		crpc_err("connect: the route needs a GID, and %s has none: check gid_index",
			dev->has_gid ? "the peer" : "this port");
		return -EHOSTUNREACH;
	}
	ah->is_global = 1;
	ah->grh.sgid_index = (uint8_t)dev->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	return 0;
}

void
crpc_mlx5_addr_fill(const struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_addr *a)
{
	a->lid = dev->port_attr.lid;
	a->link_layer = dev->port_attr.link_layer;
	a->mtu = (uint8_t)dev->port_attr.active_mtu;
	a->has_gid = dev->has_gid;
	memcpy(a->gid, dev->gid.raw, sizeof(a->gid));
}

struct ibv_ah *
crpc_mlx5_av_make(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct crpc_mlx5_av *av, bool *full)
{
	struct ibv_ah_attr attr = {0};
	struct mlx5dv_ah raw = {0};
	struct mlx5dv_obj obj = {.ah = {.out = &raw}};
	struct ibv_ah *ah;

	if (crpc_mlx5_route_fill(dev, peer, &attr) != 0) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	/* This also asks for the peer's MAC where the port is Ethernet. */
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
	av->dc_key = 0;
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
