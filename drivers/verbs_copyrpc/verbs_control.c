/* SPDX-License-Identifier: BSD-3-Clause */
/* The device: what drivers/common opens, with one completion queue. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "verbs_copyrpc.h"

static const struct crpc_rdma_ops verbs_ops;

/* Of iWARP and other transports there is neither the addressing nor, mostly, a datagram. */
static bool
takes(struct ibv_device *device)
{
	return device != NULL && device->transport_type == IBV_TRANSPORT_IB;
}

static int
dev_init(struct crpc_ib *ib)
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(&ib->base);
	uint32_t depth = ib->conf.cq_depth;

	if (ib->attr.max_sge < CRPC_RDMA_SGE_MAX)
		return crpc_fail(-ENOTSUP, "open: device %s gathers %d elements, needed are %d",
			ibv_get_device_name(ib->context->device), ib->attr.max_sge,
			CRPC_RDMA_SGE_MAX);
	ib->cq_depth = depth;
	dev->ahead = calloc(depth, sizeof(*dev->ahead));
	if (dev->ahead == NULL)
		return -ENOMEM;
	ib->cq = ibv_create_cq(ib->context, (int)depth, NULL, NULL, 0);
	if (ib->cq == NULL)
		return crpc_fail(errno == EINVAL ? -EINVAL : -ENOMEM,
			"open: a completion queue of %u (the device has up to %d): %s", depth,
			ib->attr.max_cqe, strerror(errno));
	for (uint8_t kind = CRPC_IB_RC; kind <= CRPC_IB_UD; kind++)
		dev->inline_max[kind] = crpc_verbs_inline_probe(dev, kind);
	return 0;
}

static struct crpc_rdma *
dev_open(const struct crpc_rdma_conf *conf)
{
	const struct crpc_rdma base = {.fp = {crpc_verbs_post, crpc_verbs_poll}, .ops = &verbs_ops};

	return crpc_ib_open(sizeof(struct crpc_verbs_dev), &base, conf, takes, dev_init);
}

static void
dev_close(struct crpc_rdma *base)
{
	struct crpc_verbs_dev *dev = crpc_verbs_dev(base);

	crpc_ib_left_check(&dev->ib, 0);
	while (dev->ib.qps != NULL)
		crpc_verbs_qp_free(&dev->ib.qps->base);
	free(dev->ahead);
	crpc_ib_close(&dev->ib, crpc_verbs_objects_free);
}

static void
dev_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct crpc_verbs_dev *dev = (const struct crpc_verbs_dev *)(const void *)base;

	crpc_ib_info_get(&dev->ib, info);
	info->inline_max = dev->inline_max[CRPC_IB_RC];
	info->inline_max_ud = dev->inline_max[CRPC_IB_UD];
}

static void
dev_dump(const struct crpc_rdma *base, FILE *out)
{
	static const char *const states[] = {"idle", "ready", "error"};
	const struct crpc_verbs_dev *dev = (const struct crpc_verbs_dev *)(const void *)base;

	fprintf(out,
		"cq: %u of %u set aside; %" PRIu64 " WRs, %" PRIu64 " polls, %" PRIu64
		" of them empty\n",
		dev->ib.cq_used, dev->ib.cq_depth, dev->ib.base.stats.wqes,
		dev->ib.base.stats.polls, dev->ib.base.stats.empty_polls);
	for (const struct crpc_ib_qp *qp = dev->ib.qps; qp != NULL; qp = qp->next)
		fprintf(out, "qp 0x%x %s: %s; depth %u posted %u retired %u reported %u\n", qp->qpn,
			crpc_ib_kind_name(qp->kind), states[qp->state], qp->depth, qp->posted,
			qp->retired, qp->reported);
}

static const struct crpc_rdma_ops verbs_ops = {
	.name = "verbs_copyrpc",
	.is_last = true,
	.open = dev_open,
	.close = dev_close,
	.info_get = dev_info_get,
	.mr_reg = crpc_ib_mr_reg,
	.mr_dereg = crpc_ib_mr_dereg,
	.qp_create = crpc_verbs_qp_create,
	.qp_free = crpc_verbs_qp_free,
	.qp_addr = crpc_ib_qp_addr,
	.qp_connect = crpc_ib_qp_connect,
	.qp_in_order = crpc_ib_qp_in_order,
	.ah_create = crpc_verbs_ah_create,
	.ah_free = crpc_ib_ah_free,
	.list = crpc_ib_list,
	.card_get = crpc_ib_card_get,
	.dump = dev_dump,
};

CRPC_RDMA_DRIVER(verbs, verbs_ops)
