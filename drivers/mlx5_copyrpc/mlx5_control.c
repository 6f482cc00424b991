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

/* A software NIC that is driven by its users exports this; on a card it is missing. */
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

/* Opens by name. errno is the cause; EACCES where the device file cannot be opened. */
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

/*
 * The named device, or else the first mlx5 device whose port is active, or else the first one.
 * errno: ENODEV or ENOTSUP, or why it does not open.
 */
static struct ibv_context *
open_listed(struct ibv_device **list, int num, const struct crpc_rdma_conf *conf)
{
	struct ibv_context *context, *fallback = NULL;
	int i, err = ENODEV;

	for (i = 0; i < num; i++) {
		if (conf->device != NULL && strcmp(ibv_get_device_name(list[i]), conf->device) != 0)
			continue;
		if (!mlx5dv_is_supported(list[i])) {
			if (conf->device == NULL)
				continue;
			crpc_err("open: device %s is not a ConnectX that the mlx5 driver of "
				 "rdma-core takes: ConnectX-4 or newer is needed",
				conf->device);
			errno = ENOTSUP;
			return NULL;
		}
		context = context_open(list[i]);
		if (context == NULL) {
			err = errno;
		} else if (conf->device != NULL || port_is_active(context, conf->port)) {
			if (fallback != NULL)
				ibv_close_device(fallback);
			return context;
		} else if (fallback == NULL) {
			fallback = context;
		} else {
			ibv_close_device(context);
		}
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
	context = open_listed(list, num, conf);
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
	if (rc != 0)
		return crpc_fail(-EINVAL, "open: device %s has no port %u: %s",
			ibv_get_device_name(context->device), conf->port, strerror(rc));
	if (dev->port_attr.state != IBV_PORT_ACTIVE)
		return crpc_fail(-ENETDOWN, "open: device %s port %u is %s: bring the link up",
			conf->device != NULL ? conf->device : ibv_get_device_name(context->device),
			conf->port, ibv_port_state_str(dev->port_attr.state));
	dev->gid_index =
		conf->gid_index >= 0 ? (uint32_t)conf->gid_index : gid_choose(context, dev);
	dev->has_gid = ibv_query_gid(context, conf->port, (int)dev->gid_index, &dev->gid) == 0 &&
		memcmp(&dev->gid, &none, sizeof(none)) != 0;
	if (!dev->has_gid && dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET)
		return crpc_fail(-EINVAL,
			"open: device %s port %u has no GID %u: give the interface an address, or "
			"another gid_index",
			ibv_get_device_name(context->device), conf->port, dev->gid_index);
	return 0;
}

/* What belongs to the context, as far as it was made. */
static void
objects_fini(struct crpc_mlx5_dev_ctl *dev)
{
	if (dev->cq != NULL)
		ibv_destroy_cq(dev->cq);
	if (dev->pd != NULL)
		ibv_dealloc_pd(dev->pd);
	free(dev->dp.table.slot);
}

static int
objects_init(struct crpc_mlx5_dev_ctl *dev, const struct crpc_rdma_conf *conf)
{
	struct ibv_device_attr attr;
	int rc;

	rc = port_init(dev, conf);
	if (rc != 0)
		return rc;
	rc = ibv_query_device(dev->dp.context, &attr);
	if (rc != 0)
		return crpc_fail(-EIO, "open: query of device %s: %s",
			ibv_get_device_name(dev->dp.context->device), strerror(rc));
	dev->rd_atomic = (uint8_t)crpc_min(RD_ATOMIC_MAX,
		crpc_min((uint64_t)attr.max_qp_rd_atom, (uint64_t)attr.max_qp_init_rd_atom));
	dev->pd = ibv_alloc_pd(dev->dp.context);
	if (dev->pd == NULL)
		return crpc_fail(-ENOMEM, "open: a protection domain: %s", strerror(errno));
	rc = crpc_mlx5_table_init(&dev->dp.table, 0);
	if (rc == 0)
		rc = crpc_mlx5_cq_init(dev, conf);
	return rc != 0 ? rc : crpc_mlx5_tel_open(dev);
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
		goto err_objects;
	/* ISO C has no conversion from an object pointer to a function pointer; POSIX dlsym()
	 * does. */
	*(void **)&dev->dp.progress = dlsym(RTLD_DEFAULT, PROGRESS_SYMBOL);
	return &dev->dp.base;

err_objects:
	objects_fini(dev);
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
			crpc_mlx5_ud_free(&qp->dp.ud);
		else if (qp->dp.kind != CRPC_MLX5_DCI)
			crpc_mlx5_qp_free(&qp->dp.base);
	}
	for (i = 0; i < dev->dp.num_dcis; i++)
		crpc_mlx5_qp_end(&dev->dp.dci[i]->qp);
	crpc_mlx5_kept_free(dev);
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
	if (ibmr == NULL)
		return crpc_fail(errno == EINVAL || errno == EFAULT ? -EINVAL : -ENOMEM,
			"mr_reg: %llu bytes at %p: %s%s", (unsigned long long)len, addr,
			strerror(errno),
			errno == ENOMEM || errno == EAGAIN
				? ": check the limit of locked memory (ulimit -l)"
				: "");
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

static void
dev_hand_over(struct crpc_rdma *base)
{
	crpc_mlx5_dev_ctl(base)->dp.owner = (struct crpc_owner){0};
}

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
	.hand_over = dev_hand_over,
	.card_get = crpc_mlx5_card_get,
	.dump = crpc_mlx5_dump,
};

CRPC_RDMA_DRIVER(mlx5, mlx5_ops)
