/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device: found by its verbs name, opened through rdma-core, with one protection domain and one
 * completion queue, whose memory the datapath then reads itself.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

/* A software NIC that is driven by its users exports this; on a card nobody does. */
#define PROGRESS_SYMBOL "soft_mlx5_progress"
/* READs that a QP may have open, if the card allows that many. */
#define RD_ATOMIC_MAX 16

static const struct crpc_rdma_ops mlx5_ops;

static void
dev_list(char *buf, size_t len)
{
	struct ibv_device **list;
	size_t used = 0;
	int i, n, num;

	buf[0] = '\0';
	list = ibv_get_device_list(&num);
	if (list == NULL)
		return;
	for (i = 0; i < num && used < len; i++) {
		n = snprintf(buf + used, len - used, "%s%s%s", i == 0 ? "" : " ",
			ibv_get_device_name(list[i]),
			mlx5dv_is_supported(list[i]) ? "" : " (not mlx5)");
		used += n > 0 ? (size_t)n : 0;
	}
	ibv_free_device_list(list);
}

/* Opens by name. errno says why not; EACCES where the device file is not ours to open. */
static struct ibv_context *
context_open(struct ibv_device *device)
{
	struct ibv_context *context;
	char path[80];
	int err;

	errno = 0;
	context = ibv_open_device(device);
	if (context != NULL)
		return context;
	err = errno != 0 ? errno : EIO;
	/* rdma-core tries several ways in, and the errno of the last may hide this one. */
	snprintf(path, sizeof(path), "/dev/infiniband/%.60s", device->dev_name);
	if (err == EPERM || (access(path, R_OK | W_OK) != 0 && errno == EACCES))
		err = EACCES;
	crpc_err("open: device %s: %s%s%s", ibv_get_device_name(device), strerror(err),
		err == EACCES ? ": the user needs read and write permission on " : "",
		err == EACCES ? path : "");
	errno = err;
	return NULL;
}

static bool
port_is_active(struct ibv_context *context, uint8_t port)
{
	struct ibv_port_attr attr;

	return ibv_query_port(context, port, &attr) == 0 && attr.state == IBV_PORT_ACTIVE;
}

/* The named device; errno ENODEV or ENOTSUP, or why it does not open. */
static struct ibv_context *
open_named(struct ibv_device **list, int num, const char *name)
{
	int i;

	for (i = 0; i < num; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) != 0)
			continue;
		if (mlx5dv_is_supported(list[i]))
			return context_open(list[i]);
		crpc_err(
			"open: device %s is not a ConnectX that the mlx5 driver of rdma-core takes: "
			"ConnectX-4 or newer is needed",
			name);
		errno = ENOTSUP;
		return NULL;
	}
	errno = ENODEV;
	return NULL;
}

/* The first mlx5 device whose port is active, or else the first one. */
static struct ibv_context *
open_first(struct ibv_device **list, int num, uint8_t port)
{
	struct ibv_context *context, *fallback = NULL;
	int i, err = ENODEV;

	for (i = 0; i < num; i++) {
		if (!mlx5dv_is_supported(list[i]))
			continue;
		context = context_open(list[i]);
		if (context == NULL) {
			err = errno;
			continue;
		}
		if (port_is_active(context, port)) {
			if (fallback != NULL)
				ibv_close_device(fallback);
			return context;
		}
		if (fallback == NULL)
			fallback = context;
		else
			ibv_close_device(context);
	}
	errno = err;
	return fallback;
}

static struct ibv_context *
device_open(const struct crpc_rdma_conf *conf)
{
	struct ibv_context *context;
	struct ibv_device **list;
	int num, err;

	list = ibv_get_device_list(&num);
	if (list == NULL) {
		errno = errno == ENOMEM ? ENOMEM : ENODEV;
		return NULL;
	}
	context = conf->device != NULL ? open_named(list, num, conf->device)
				       : open_first(list, num, conf->port);
	err = errno;
	ibv_free_device_list(list);
	errno = err;
	return context;
}

/* The first GID of RoCE v2, which routers pass; an IPv4-mapped or global one before link-local. */
static uint32_t
gid_choose(struct ibv_context *context, const struct crpc_mlx5_dev_ctl *dev)
{
	struct ibv_gid_entry entry;
	uint32_t i, found = 0;
	bool any = false;

	if (dev->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	for (i = 0; i < (uint32_t)dev->port_attr.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(context, dev->port, i, &entry, 0) != 0 ||
			entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (entry.gid.raw[0] != 0xfe || entry.gid.raw[1] != 0x80)
			return i;
		if (!any)
			found = i;
		any = true;
	}
	return found;
}

static int
port_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	struct ibv_context *context = dev->dp.context;
	static const union ibv_gid none;
	int rc;

	dev->port = conf->port;
	dev->dcis = conf->dcis;
	dev->dp.drain_ns = conf->drain_ns;
	dev->signal_every = conf->signal_every;
	dev->blueflame = conf->blueflame;
	rc = ibv_query_port(context, conf->port, &dev->port_attr);
	if (rc != 0) {
		crpc_err("open: device %s has no port %u: %s", ibv_get_device_name(context->device),
			conf->port, strerror(rc));
		return -EINVAL;
	}
	if (dev->port_attr.state != IBV_PORT_ACTIVE) {
		crpc_err("open: device %s port %u is %s: bring the link up",
			conf->device != NULL ? conf->device : ibv_get_device_name(context->device),
			conf->port, ibv_port_state_str(dev->port_attr.state));
		return -ENETDOWN;
	}
	dev->gid_index =
		conf->gid_index >= 0 ? (uint32_t)conf->gid_index : gid_choose(context, dev);
	dev->has_gid = ibv_query_gid(context, conf->port, (int)dev->gid_index, &dev->gid) == 0 &&
		memcmp(&dev->gid, &none, sizeof(none)) != 0;
	if (!dev->has_gid && dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
		crpc_err("open: device %s port %u has no GID %u: give the interface an address, or "
			 "another gid_index",
			ibv_get_device_name(context->device), conf->port, dev->gid_index);
		return -EINVAL;
	}
	return 0;
}

/* Whether the device can compress completions in the format that we read. */
static bool
can_compress(struct ibv_context *context)
{
	struct mlx5dv_context attr = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};

	return mlx5dv_query_device(context, &attr) == 0 &&
		(attr.comp_mask & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) != 0 &&
		attr.cqe_comp_caps.max_num > 1 &&
		(attr.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_HASH) != 0;
}

static int
cq_init(struct crpc_mlx5_dev_ctl *dev, uint32_t depth, bool compressed)
{
	struct mlx5dv_cq_init_attr dv_attr = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		.cqe_size = CRPC_MLX5_CQE,
	};
	/* rdma-core adds one before it rounds to a power of two. */
	struct ibv_cq_init_attr_ex attr = {.cqe = depth > 1 ? depth - 1 : 1};
	struct crpc_mlx5_cq *cq = &dev->dp.cq;
	struct mlx5dv_cq raw = {0};
	struct mlx5dv_obj obj = {.cq = {.out = &raw}};
	struct ibv_cq_ex *ex;
	uint32_t i;

	dev->compressed = compressed && can_compress(dev->dp.context);
	if (dev->compressed) {
		dv_attr.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
		dv_attr.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH;
		dev->dp.base.fp.poll = crpc_mlx5_poll_zip;
	} else if (compressed) {
		crpc_notice("open: device %s does not compress completions",
			ibv_get_device_name(dev->dp.context->device));
	}
	ex = mlx5dv_create_cq(dev->dp.context, &attr, &dv_attr);
	if (ex == NULL) {
		crpc_err("open: a completion queue of %u: %s", depth, strerror(errno));
		return errno == EINVAL ? -EINVAL : -ENOMEM;
	}
	dev->cq = ibv_cq_ex_to_cq(ex);
	obj.cq.in = dev->cq;
	/* This also tells rdma-core to keep its hands off the queue when a QP is destroyed: its own
	 * consumer index never moved, and it would write that one back. */
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ) != 0 || raw.cqe_size != CRPC_MLX5_CQE ||
		!crpc_is_pow2(raw.cqe_cnt) || raw.cqe_cnt < depth) {
		crpc_err(
			"open: rdma-core gave a completion queue of %u entries of %u bytes, needed "
			"are %u of %u",
			raw.cqe_cnt, raw.cqe_size, depth, CRPC_MLX5_CQE);
		ibv_destroy_cq(dev->cq);
		return -EINVAL;
	}
	cq->buf = raw.buf;
	/* The first lap's owner is 0: what the device has not written yet must not have it. */
	for (i = 0; i < raw.cqe_cnt; i++)
		cq->buf[i].op_own |= MLX5_CQE_OWNER_MASK;
	cq->dbrec = (_Atomic uint32_t *)(void *)&raw.dbrec[0];
	cq->mask = raw.cqe_cnt - 1;
	dev->cq_depth = depth;
	return 0;
}

/* What hangs on the context. On failure nothing of it is left, but the context is. */
static int
objects_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	struct ibv_device_attr attr;
	int rc;

	rc = port_init(dev, conf);
	if (rc != 0)
		return rc;
	rc = ibv_query_device(dev->dp.context, &attr);
	if (rc != 0) {
		crpc_err("open: query of device %s: %s",
			ibv_get_device_name(dev->dp.context->device), strerror(rc));
		return -EIO;
	}
	dev->rd_atomic = (uint8_t)crpc_min(RD_ATOMIC_MAX,
		crpc_min((uint64_t)attr.max_qp_rd_atom, (uint64_t)attr.max_qp_init_rd_atom));
	rc = crpc_mlx5_table_init(&dev->dp.table, 0);
	if (rc != 0)
		return rc;
	dev->pd = ibv_alloc_pd(dev->dp.context);
	if (dev->pd == NULL) {
		crpc_err("open: a protection domain: %s", strerror(errno));
		rc = -ENOMEM;
		goto err_table;
	}
	rc = cq_init(dev, conf->cq_depth, conf->cqe_compression);
	if (rc != 0)
		goto err_pd;
	return 0;

err_pd:
	ibv_dealloc_pd(dev->pd);
err_table:
	free(dev->dp.table.slot);
	return rc;
}

static void
objects_fini(struct crpc_mlx5_dev_ctl *dev)
{
	ibv_destroy_cq(dev->cq);
	ibv_dealloc_pd(dev->pd);
	free(dev->dp.table.slot);
}

static struct crpc_rdma *
dev_open(const struct crpc_rdma_conf *conf)
{
	struct crpc_mlx5_dev_ctl *dev;
	struct ibv_context *context;
	int rc;

	context = device_open(conf);
	if (context == NULL)
		return NULL;
	dev = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*dev), CRPC_CACHE_GUARD));
	if (dev == NULL) {
		rc = -ENOMEM;
		goto err_context;
	}
	memset(dev, 0, sizeof(*dev));
	dev->dp.base.fp.post = crpc_mlx5_post;
	dev->dp.base.fp.poll = crpc_mlx5_poll;
	dev->dp.base.fp.ud_post = crpc_mlx5_ud_post;
	dev->dp.base.ops = &mlx5_ops;
	dev->dp.context = context;
	rc = objects_init(dev, conf);
	if (rc != 0)
		goto err_free;
	/* ISO C has no conversion from an object pointer to a function pointer; POSIX dlsym()
	 * does. */
	*(void **)&dev->dp.progress = dlsym(RTLD_DEFAULT, PROGRESS_SYMBOL);
	rc = crpc_mlx5_tel_open(dev);
	if (rc != 0)
		goto err_objects;
	return &dev->dp.base;

err_objects:
	objects_fini(dev);
err_free:
	free(dev);
err_context:
	ibv_close_device(context);
	errno = -rc;
	return NULL;
}

static void
dev_close(struct crpc_rdma *base)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct ibv_context *context = dev->dp.context;
	struct crpc_mlx5_qp_ctl *qp, *next;
	uint32_t i;

	crpc_mlx5_dcis_stop(&dev->dp);
	while (crpc_mlx5_ending_take(&dev->dp))
		;
	if (dev->num_qps != dev->dp.num_dcis || dev->num_mrs != 0 || dev->num_ahs != 0)
		crpc_warn("close: device %s still has %u queue pairs, %u regions and %u addresses: "
			  "free them first",
			ibv_get_device_name(context->device), dev->num_qps - dev->dp.num_dcis,
			dev->num_mrs, dev->num_ahs);
	for (qp = dev->qps; qp != NULL; qp = next) {
		next = qp->next;
		if (qp->dp.kind == CRPC_MLX5_UD)
			crpc_mlx5_ud_free(&((struct crpc_mlx5_ud_ctl *)(void *)qp)->ud.base);
		else if (qp->dp.kind != CRPC_MLX5_DCI)
			crpc_mlx5_qp_free(&qp->dp.base);
	}
	for (i = 0; i < dev->dp.num_dcis; i++)
		crpc_mlx5_dci_free(dev->dp.dci[i]);
	crpc_mlx5_tel_close(dev);
	objects_fini(dev);
	ibv_close_device(context);
	free(dev);
}

static void
dev_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct crpc_mlx5_dev_ctl *dev = (const struct crpc_mlx5_dev_ctl *)(const void *)base;

	snprintf(
		info->name, sizeof(info->name), "%s", ibv_get_device_name(dev->dp.context->device));
	info->inline_max = CRPC_MLX5_INLINE_MAX;
	info->inline_max_dc = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_DC_HEAD);
	info->inline_max_ud = CRPC_MLX5_INLINE_MAX_OF(CRPC_MLX5_UD_HEAD);
	info->sge_max = CRPC_RDMA_SGE_MAX;
	info->port = dev->port;
	info->link_layer = dev->port_attr.link_layer;
	info->lid = dev->port_attr.lid;
	info->cqe_compression = dev->compressed;
	info->mtu = 128u << dev->port_attr.active_mtu;
}

static void
dev_stats_get(const struct crpc_rdma *base, struct crpc_rdma_stats *stats)
{
	*stats = ((const struct crpc_mlx5_dev *)(const void *)base)->stats;
}

static int
dev_mr_reg(struct crpc_rdma *base, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	struct ibv_mr *ibmr;

	ibmr = ibv_reg_mr(dev->pd, addr, len,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (ibmr == NULL) {
		crpc_err("mr_reg: %llu bytes at %p: %s%s", (unsigned long long)len, addr,
			strerror(errno),
			errno == ENOMEM || errno == EAGAIN
				? ": check the limit of locked memory (ulimit -l)"
				: "");
		return errno == EINVAL || errno == EFAULT ? -EINVAL : -ENOMEM;
	}
	*mr = (struct crpc_rdma_mr){
		.addr = addr,
		.len = len,
		.lkey = ibmr->lkey,
		.rkey = ibmr->rkey,
		.priv = ibmr,
	};
	dev->num_mrs++;
	return 0;
}

static void
dev_mr_dereg(struct crpc_rdma *base, struct crpc_rdma_mr *mr)
{
	struct crpc_mlx5_dev_ctl *dev = crpc_mlx5_dev_ctl(base);
	int rc;

	rc = ibv_dereg_mr(mr->priv);
	if (rc != 0)
		crpc_err("mr_dereg: %p: %s", mr->addr, strerror(rc));
	else
		dev->num_mrs--;
}

#ifdef CRPC_DEBUG
static void
dev_hand_over(struct crpc_rdma *base)
{
	crpc_mlx5_dev_ctl(base)->dp.owner = NULL;
}
#endif

static const struct crpc_rdma_ops mlx5_ops = {
	.name = "mlx5_copyrpc",
	.open = dev_open,
	.close = dev_close,
	.info_get = dev_info_get,
	.stats_get = dev_stats_get,
	.mr_reg = dev_mr_reg,
	.mr_dereg = dev_mr_dereg,
	.qp_create = crpc_mlx5_qp_create,
	.qp_free = crpc_mlx5_qp_free,
	.qp_drain = crpc_mlx5_qp_drain,
	.qp_addr = crpc_mlx5_qp_addr,
	.qp_connect = crpc_mlx5_qp_connect,
	.ud_create = crpc_mlx5_ud_create,
	.ud_free = crpc_mlx5_ud_free,
	.ud_addr = crpc_mlx5_ud_addr,
	.ah_create = crpc_mlx5_ah_create,
	.ah_free = crpc_mlx5_ah_free,
	.list = dev_list,
#ifdef CRPC_DEBUG
	.hand_over = dev_hand_over,
#endif
	.card_get = crpc_mlx5_card_get,
	.dump = crpc_mlx5_dump,
};

CRPC_RDMA_DRIVER(mlx5, mlx5_ops)
