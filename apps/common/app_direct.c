/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct: the clients of each lcore have copyrpc endpoints of their own to every daemon of every
 * rank, their own rank's too, which they reach through the NIC's loopback. Nothing is gathered from
 * several lcores, and the number of connections grows with both.
 */
#define PROTOCOL     crpc_copyrpc
#define API_ADDR_LEN CRPC_COPYRPC_ADDR_LEN
#define DEVICE_EPS   1u
#include "app_own.h"

static struct crpc_copyrpc *
own_context(const struct own *d, const struct app_end_conf *conf, uint32_t eps)
{
	const struct crpc_copyrpc_conf c = {
		.dev = d->dev,
		.max_eps = eps,
		.ring_size = conf->ring_size != 0
			? conf->ring_size
			: crpc_kv_ring_size(conf->calls,
				  (uint32_t)crpc_max(conf->req_max, conf->resp_max), 2),
		.max_inflight = crpc_kv_inflight(conf->calls),
		.flush = conf->flush,
		.hold_ns = conf->hold_ns,
		.timeout_ns = conf->timeout_ns,
		.peer_timeout_ns = conf->timeout_ns,
	};

	return crpc_copyrpc_create(&c);
}

static void
own_count(const struct own *d, struct app_net_counts *counts)
{
	app_net_count(d->ctx, d->dev, counts);
}

static struct app_end_parts
own_parts(const void *end)
{
	const struct own *d = end;

	return (struct app_end_parts){.device = d->dev, .copyrpc = d->ctx};
}

const struct app_backend app_direct = {.name = "direct", OWN_OPS};
