/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "app_backend.h"
#include "app_fail.h"
#include "crpc_log.h"

int
app_device_fail(const char *device)
{
	return app_fail("cannot use RDMA device %s: %s (%s); give an active device with --device, "
			"or start under usertools/soft-mlx5, the software one",
		device == NULL ? "(any)" : device, strerror(errno), crpc_log_last());
}

int
app_device_open(const char *device, uint32_t eps, struct crpc_rdma **dev, char name[64])
{
	struct crpc_rdma_conf conf = {
		.device = device,
		.cq_depth = (uint32_t)crpc_pow2_ceil(crpc_max(eps, 1u) * UINT64_C(192)),
	};
	struct crpc_rdma_info info;

	crpc_log_clear();
	*dev = crpc_rdma_open(&conf);
	if (*dev == NULL)
		return app_device_fail(device);
	crpc_rdma_info_get(*dev, &info);
	memcpy(name, info.name, 64);
	return 0;
}

void
app_net_count_device(struct crpc_rdma *dev, struct app_net_counts *counts)
{
	struct crpc_rdma_stats r;

	crpc_rdma_stats_get(dev, &r);
	counts->doorbells += r.doorbells;
	counts->wqes += r.wqes;
	counts->wqebbs += r.wqebbs;
	counts->send_cqes += r.send_cqes;
	counts->recv_cqes += r.recv_cqes;
}

void
app_net_count(const struct crpc_copyrpc *ctx, struct crpc_rdma *dev, struct app_net_counts *counts)
{
	const struct crpc_copyrpc_stats *c = crpc_copyrpc_stats(ctx);

	app_net_count_device(dev, counts);
	counts->calls += c->rpc.calls;
	counts->messages += c->messages_sent;
	counts->batches += c->batches_sent;
	counts->updates += c->updates_sent;
	counts->bytes += c->bytes_sent;
	counts->again += c->again_window + c->again_reply + c->again_inflight;
	for (uint32_t i = 0; i < CRPC_COPYRPC_BATCH_BUCKETS; i++)
		counts->batch_size[i] += c->batch_size[i];
	counts->round_trips += c->wire.count;
	counts->queue_ns += c->queue.sum;
	counts->wire_ns += c->wire.sum;
	counts->peer_ns += c->peer.sum;
}
