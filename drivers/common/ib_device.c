/* SPDX-License-Identifier: BSD-3-Clause */
/* The device: found by its verbs name, opened through rdma-core, with its port, GID and protection
 * domain; and memory that is registered with it. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_ib.h"
#include "crpc_log.h"

/* READs that a QP may have open, if the card allows that many. */
#define RD_ATOMIC_MAX 16
#define BUF_ALIGN     4096

void
crpc_ib_list(char *buf, size_t len)
{
	struct ibv_device **list;
	size_t used = 0;
	int n, num;

	buf[0] = '\0';
	list = ibv_get_device_list(&num);
	if (list == NULL)
		return;
	for (int i = 0; i < num && used < len; i++) {
		n = snprintf(buf + used, len - used, "%s%s", i == 0 ? "" : " ",
			ibv_get_device_name(list[i]));
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

/*
 * The named device, or else the first one that is taken and whose port is active, or else the first
 * that is taken. errno: ENODEV or ENOTSUP, or why it does not open.
 */
static struct ibv_context *
open_listed(struct ibv_device **list, int num, const struct crpc_rdma_conf *conf,
	bool (*takes)(struct ibv_device *device))
{
	struct ibv_context *context, *fallback = NULL;
	struct ibv_port_attr port;
	int err = ENODEV;

	for (int i = 0; i < num; i++) {
		if (conf->device != NULL && strcmp(ibv_get_device_name(list[i]), conf->device) != 0)
			continue;
		if (!takes(list[i])) {
			err = conf->device != NULL ? ENOTSUP : err;
			continue;
		}
		context = context_open(list[i]);
		if (context == NULL) {
			err = errno;
		} else if (conf->device != NULL ||
			(ibv_query_port(context, (uint8_t)conf->port, &port) == 0 &&
				port.state == IBV_PORT_ACTIVE)) {
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

static bool
gid_read(const struct crpc_ib *ib, uint32_t index, struct ibv_gid_entry *entry)
{
	static const union ibv_gid none;

	return ibv_query_gid_ex(ib->context, ib->port, index, entry, 0) == 0 &&
		memcmp(&entry->gid, &none, sizeof(none)) != 0;
}

/* How good a GID is: of RoCE v2, which routers pass, and not link-local, which they do not. */
static uint32_t
gid_rank(const struct ibv_gid_entry *entry)
{
	bool local = entry->gid.raw[0] == 0xfe && (entry->gid.raw[1] & 0xc0) == 0x80;

	return (entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 3 : 1) + !local;
}

/* The GID that the user chose; else the best one, and the first of those. On InfiniBand that is
 * the first of all: others are aliases. */
static int
gid_choose(struct crpc_ib *ib)
{
	bool ethernet = ib->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	uint32_t best = 0, first = ib->conf.gid != 0 ? ib->conf.gid - 1 : 0;
	uint32_t end =
		ib->conf.gid != 0 || !ethernet ? first + 1 : (uint32_t)ib->port_attr.gid_tbl_len;
	struct ibv_gid_entry entry;

	ib->gid = (struct ibv_gid_entry){.gid_index = first};
	for (uint32_t i = first; i < end; i++) {
		if (!gid_read(ib, i, &entry) || gid_rank(&entry) <= best)
			continue;
		best = gid_rank(&entry);
		ib->gid = entry;
		ib->gid.gid_index = i;
	}
	ib->has_gid = best != 0;
	if (best == 0 && (ethernet || ib->conf.gid != 0))
		return crpc_fail(-EINVAL,
			"open: device %s port %u has no GID%s: give the interface an address, or "
			"another gid",
			ibv_get_device_name(ib->context->device), ib->port,
			ib->conf.gid != 0 ? " of that index" : "");
	return 0;
}

/* The index of the P_Key: the one that the user chose, by its lower 15 bits; else the first of a
 * full member, as limited ones do not reach each other. */
static int
pkey_choose(struct crpc_ib *ib)
{
	uint16_t wanted = (uint16_t)(ib->conf.pkey & 0x7fff), pkey;
	__be16 raw;

	ib->pkey_index = 0;
	for (uint16_t i = 0; i < ib->port_attr.pkey_tbl_len; i++) {
		if (ibv_query_pkey(ib->context, ib->port, i, &raw) != 0)
			break;
		pkey = be16toh(raw);
		if (ib->conf.pkey != 0 ? pkey != 0 && (pkey & 0x7fff) == wanted
				       : (pkey & 0x8000) != 0) {
			ib->pkey_index = i;
			return 0;
		}
	}
	return ib->conf.pkey == 0
		? 0
		: crpc_fail(-EINVAL, "open: device %s port %u has no P_Key 0x%x",
			  ibv_get_device_name(ib->context->device), ib->port, ib->conf.pkey);
}

/* What the user asked for, within what the port has. */
static int
mtu_choose(struct crpc_ib *ib)
{
	uint32_t most = 128u << ib->port_attr.active_mtu;

	if (ib->conf.mtu > most)
		return crpc_fail(-EINVAL, "open: device %s port %u has an MTU of %u bytes, not %u",
			ibv_get_device_name(ib->context->device), ib->port, most, ib->conf.mtu);
	ib->mtu = (uint8_t)(ib->conf.mtu != 0 ? crpc_log2(ib->conf.mtu) - 7
					      : (uint32_t)ib->port_attr.active_mtu);
	return 0;
}

static int
port_init(struct crpc_ib *ib)
{
	const char *name = ibv_get_device_name(ib->context->device);
	int rc = ibv_query_port(ib->context, ib->port, &ib->port_attr);

	if (rc != 0)
		return crpc_fail(-EINVAL, "open: device %s has no port %u: %s", name, ib->port,
			strerror(rc));
	if (ib->port_attr.state != IBV_PORT_ACTIVE)
		return crpc_fail(-ENETDOWN, "open: device %s port %u is %s: bring the link up",
			name, ib->port, ibv_port_state_str(ib->port_attr.state));
	rc = gid_choose(ib);
	if (rc == 0)
		rc = pkey_choose(ib);
	return rc != 0 ? rc : mtu_choose(ib);
}

void
crpc_ib_refresh(struct crpc_ib *ib)
{
	struct crpc_ib now = {.context = ib->context, .port = ib->port, .conf = ib->conf};

	/* Acquire: pairs with set_stale(). An event that comes from now on counts again. */
	if (crpc_load_relaxed(&ib->stale) == 0 || crpc_exchange_acq_rel(&ib->stale, 0) == 0)
		return;
	if (port_init(&now) != 0) {
		crpc_store_relaxed(&ib->stale, 1);
		return;
	}
	if (now.port_attr.lid != ib->port_attr.lid || now.mtu != ib->mtu)
		crpc_notice("device %s port %u: LID 0x%x, MTU %u bytes; before 0x%x, %u",
			ibv_get_device_name(ib->context->device), ib->port, now.port_attr.lid,
			128u << now.mtu, ib->port_attr.lid, 128u << ib->mtu);
	ib->port_attr = now.port_attr;
	ib->gid = now.gid;
	ib->has_gid = now.has_gid;
	ib->pkey_index = now.pkey_index;
	ib->mtu = now.mtu;
}

static int
objects_init(struct crpc_ib *ib, const struct crpc_rdma_conf *conf)
{
	int rc;

	ib->conf = *conf;
	ib->conf.device = NULL; /* The caller's. */
	ib->port = (uint8_t)conf->port;
	rc = port_init(ib);
	if (rc != 0)
		return rc;
	rc = ibv_query_device(ib->context, &ib->attr);
	if (rc != 0)
		return crpc_fail(-EIO, "open: query of device %s: %s",
			ibv_get_device_name(ib->context->device), strerror(rc));
	ib->rd_atomic = (uint8_t)crpc_min(RD_ATOMIC_MAX,
		crpc_min(
			(uint64_t)ib->attr.max_qp_rd_atom, (uint64_t)ib->attr.max_qp_init_rd_atom));
	ib->pd = ibv_alloc_pd(ib->context);
	return ib->pd != NULL
		? 0
		: crpc_fail(-ENOMEM, "open: a protection domain: %s", strerror(errno));
}

static int
device_open(struct crpc_ib *ib, const struct crpc_rdma_conf *conf,
	bool (*takes)(struct ibv_device *device))
{
	int num, rc;
	struct ibv_device **list = ibv_get_device_list(&num);

	if (list == NULL)
		return errno == ENOMEM ? -ENOMEM : -ENODEV;
	ib->context = open_listed(list, num, conf, takes);
	rc = ib->context != NULL ? 0 : -errno;
	ibv_free_device_list(list);
	return rc != 0 ? rc : objects_init(ib, conf);
}

struct crpc_rdma *
crpc_ib_open(size_t size, const struct crpc_rdma *base, const struct crpc_rdma_conf *conf,
	bool (*takes)(struct ibv_device *device), int (*init)(struct crpc_ib *ib))
{
	struct crpc_ib *ib;
	int rc;

	size = crpc_align_up(size, CRPC_CACHE_GUARD);
	ib = aligned_alloc(CRPC_CACHE_GUARD, size);
	if (ib == NULL)
		return NULL;
	memset(ib, 0, size);
	ib->base = *base;
	rc = device_open(ib, conf, takes);
	if (rc == 0)
		rc = init(ib);
	if (rc == 0)
		rc = crpc_ib_events_open(ib);
	if (rc != 0) {
		base->ops->close(&ib->base);
		return crpc_null(rc);
	}
	ib->progress = crpc_ib_progress_find();
	return &ib->base;
}

void
crpc_ib_close(struct crpc_ib *ib, bool (*end)(struct crpc_ib_qp *qp))
{
	struct crpc_ib_qp *qp = ib->kept, *next;

	/* What the device did not destroy before. */
	for (ib->kept = NULL; qp != NULL; qp = next) {
		next = qp->next;
		end(qp);
	}
	crpc_ib_events_close(ib); /* Before what they are about goes. */
	if (ib->cq != NULL)
		ibv_destroy_cq(ib->cq);
	if (ib->pd != NULL)
		ibv_dealloc_pd(ib->pd);
	if (ib->context != NULL)
		ibv_close_device(ib->context);
	free(ib);
}

void
crpc_ib_left_check(const struct crpc_ib *ib, uint32_t qps)
{
	if (ib->num_qps != qps || ib->num_mrs != 0 || ib->num_ahs != 0)
		crpc_warn("close: device %s still has %u queue pairs, %u regions and %u addresses: "
			  "free them first",
			ibv_get_device_name(ib->context->device), ib->num_qps - qps, ib->num_mrs,
			ib->num_ahs);
}

void
crpc_ib_info_get(const struct crpc_ib *ib, struct crpc_rdma_info *info)
{
	snprintf(info->name, sizeof(info->name), "%s", ibv_get_device_name(ib->context->device));
	info->port = ib->port;
	info->link_layer = ib->port_attr.link_layer;
	info->lid = ib->port_attr.lid;
	info->mtu = 128u << ib->mtu;
	info->sge_max = CRPC_RDMA_SGE_MAX;
}

int
crpc_ib_mr_reg(
	struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags, struct crpc_rdma_mr *mr)
{
	struct crpc_ib *ib = crpc_ib_of(dev);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *ibmr;

	/* A kernel without it ignores it. */
	if ((flags & CRPC_RDMA_MR_RELAXED) != 0)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	ibmr = ibv_reg_mr(ib->pd, addr, len, access);
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
	ib->num_mrs++;
	return 0;
}

void
crpc_ib_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr)
{
	int rc = ibv_dereg_mr(mr->priv);

	if (rc != 0)
		crpc_err("mr_dereg: %p: %s", mr->addr, strerror(rc));
	else
		crpc_ib_of(dev)->num_mrs--;
}

void *
crpc_ib_buffers_make(const struct crpc_ib *ib, uint32_t num, struct ibv_mr **mr)
{
	size_t len = crpc_align_up((uint64_t)num * CRPC_IB_UD_STRIDE, BUF_ALIGN);
	void *buf = aligned_alloc(BUF_ALIGN, len);

	if (buf != NULL) {
		memset(buf, 0, len);
		/* A completion says when a payload is there, and no reader looks before. */
		*mr = ibv_reg_mr(
			ib->pd, buf, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
		if (*mr != NULL)
			return buf;
	}
	crpc_err("ud_create: %zu bytes of receive buffers: %s%s", len, strerror(errno),
		buf != NULL ? ": check the limit of locked memory (ulimit -l)" : "");
	free(buf);
	return NULL;
}
