/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * erpc: the clients of each lcore have sessions of their own, over one queue of datagrams per
 * lcore, with every daemon of every rank, their own rank's too. Loss, order and congestion are the
 * library's affair (lib/udrpc, after eRPC); every message is a datagram of its own.
 */
#include "crpc_udrpc.h"

#define PROTOCOL crpc_udrpc
#define API_ADDR_LEN CRPC_UDRPC_ADDR_LEN
/* The queue of datagrams is one for all. */
#define DEVICE_EPS 32u
#include "app_own.h"

/* A peer is given up when it was silent for as long as a call may take. */
#define RTO_NS UINT64_C(5000000)

static struct crpc_udrpc *
own_context(const struct own *d, const struct app_end_conf *conf, uint32_t eps)
{
	const struct crpc_udrpc_conf c = {
		.dev = d->dev,
		.max_eps = eps,
		.slots = (uint32_t)crpc_min(conf->calls, CRPC_UDRPC_SLOTS_MAX),
		.max_msg = (uint32_t)crpc_max(conf->req_max, conf->resp_max),
		.timeout_ns = conf->timeout_ns,
		.rto_ns = RTO_NS,
		.retries = (uint32_t)(conf->timeout_ns / RTO_NS),
		.seed = conf->seed * 4096 + conf->self * 2 + conf->server + 1,
	};

	return crpc_udrpc_create(&c);
}

static void
own_count(const struct own *d, struct app_net_counts *counts)
{
	const struct crpc_udrpc_stats *c = crpc_udrpc_stats(d->ctx);

	app_net_count_device(d->dev, counts);
	counts->calls += c->rpc.calls;
	counts->messages += c->packets_sent;
	counts->batches += c->packets_sent;
	counts->bytes += c->bytes_sent;
	counts->again += c->rpc.again;
	counts->repeated += c->repeated;
	counts->round_trips += c->wire.count;
	counts->wire_ns += c->wire.sum;
	counts->peer_ns += c->peer.sum;
}

static struct app_end_parts
own_parts(const void *end)
{
	const struct own *d = end;

	return (struct app_end_parts){.device = d->dev, .udrpc = d->ctx};
}

const struct app_backend app_erpc = {.name = "erpc", OWN_OPS};
