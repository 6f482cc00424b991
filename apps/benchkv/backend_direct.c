/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct: the clients of each lcore have copyrpc endpoints of their own to every daemon of every
 * rank, their own rank's too, which they reach through the NIC's loopback. Nothing is gathered from
 * several lcores, and the number of connections grows with both.
 *
 * On a lcore that has a daemon as well, the link's endpoints are in the port's context: one
 * completion queue is polled per turn, and one flush sends what both queued.
 */
#include <stdlib.h>

#include "backend.h"
#include "crpc_log.h"
#include "net.h"

/* Port and link are the same but for whom their endpoints lead to. */
struct direct {
	struct kv_end end;
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct kv_fate *fate;
	struct crpc_rdma_stats begin;
	bool server;
	bool shared;     /* Port: a link polls and flushes. Link: the port's context. */
	uint32_t self;
	uint32_t peers;
	uint32_t daemons; /* Of each rank. */
	uint32_t rank;
	char name[64];
	struct crpc_copyrpc_ep *ep[];
};

static int
open_context(struct direct *d, const struct kv_end_conf *conf)
{
	/* A link may join a port's context: room for both. */
	uint32_t eps = d->peers + (conf->server ? conf->owners : 0);
	struct kv_net_conf net = {.device = conf->opt->device,
		.max_inflight = conf->calls,
		.req_max = conf->req_max,
		.resp_max = conf->resp_max};
	struct crpc_copyrpc_conf c = {
		.max_eps = eps,
		.ring_size = kv_net_ring_size(&net),
		.max_inflight = kv_net_inflight(conf->calls),
		.flush = (enum crpc_copyrpc_flush_policy)conf->opt->flush,
		.hold_ns = (uint64_t)(conf->opt->hold_us * 1e3),
		.timeout_ns = KV_NET_TIMEOUT_NS,
	};
	int rc = kv_net_open_device(&net, eps, &d->dev, d->name);

	if (rc != 0)
		return rc;
	c.dev = d->dev;
	d->ctx = crpc_copyrpc_create(&c);
	return d->ctx == NULL ? -errno : 0;
}

static void
direct_close(struct kv_end *end)
{
	struct direct *d = (struct direct *)end;
	uint32_t i;

	if (d->server || !d->shared) {
		crpc_copyrpc_free(d->ctx);
		crpc_rdma_close(d->dev);
	} else {
		for (i = 0; i < d->peers; i++)
			crpc_copyrpc_ep_free(d->ep[i]);
	}
	free(d);
}

static struct kv_end *
direct_open(const struct kv_end_conf *conf, int *rc)
{
	struct direct *d = calloc(1, sizeof(*d) + conf->peers * sizeof(d->ep[0])), *port;
	uint32_t i;

	*rc = -ENOMEM;
	if (d == NULL)
		return NULL;
	d->fate = conf->fate;
	d->server = conf->server;
	d->self = conf->self;
	d->peers = conf->peers;
	d->daemons = (uint32_t)conf->opt->daemons;
	d->rank = conf->rank;
	*rc = 0;
	port = (struct direct *)conf->beside;
	if (port != NULL) {
		d->dev = port->dev;
		d->ctx = port->ctx;
		d->shared = port->shared = true;
	} else {
		*rc = open_context(d, conf);
	}
	for (i = 0; i < d->peers && *rc == 0; i++) {
		d->ep[i] = crpc_copyrpc_ep_create(d->ctx, i);
		if (d->ep[i] == NULL)
			*rc = -errno;
	}
	if (*rc == 0)
		return &d->end;
	direct_close(&d->end);
	return NULL;
}

/* The addresses of all our endpoints: each peer takes the one that has its number. */
static size_t
direct_address(struct kv_end *end, void *buf, size_t max)
{
	struct direct *d = (struct direct *)end;
	uint8_t *at = buf;
	uint32_t i;

	if ((size_t)d->peers * CRPC_COPYRPC_ADDR_LEN > max)
		return 0;
	for (i = 0; i < d->peers; i++)
		crpc_copyrpc_ep_addr(d->ep[i], at + (size_t)i * CRPC_COPYRPC_ADDR_LEN);
	return (size_t)d->peers * CRPC_COPYRPC_ADDR_LEN;
}

static int
direct_connect(struct kv_end *end, uint32_t peer, const void *addr, size_t len)
{
	struct direct *d = (struct direct *)end;
	size_t at = (size_t)d->self * CRPC_COPYRPC_ADDR_LEN;

	if (len % CRPC_COPYRPC_ADDR_LEN != 0 || at >= len)
		return -EPROTO;
	return crpc_copyrpc_ep_connect(d->ep[peer], (const uint8_t *)addr + at);
}

static int
direct_call(struct kv_end *end, uint64_t now, uint32_t to, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct direct *d = (struct direct *)end;

	return crpc_copyrpc_call(d->ep[to], now, msg, len, resp_max, cookie);
}

static uint32_t
direct_poll(struct kv_end *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct direct *d = (struct direct *)end;

	return crpc_copyrpc_poll(d->ctx, now, done, (uint16_t)n);
}

static uint32_t
direct_recv(struct kv_end *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct direct *d = (struct direct *)end;
	struct crpc_done done[4];

	/* A port of its own calls nobody, so nothing completes. */
	if (!d->shared)
		crpc_copyrpc_poll(d->ctx, now, done, CRPC_DIM(done));
	return crpc_copyrpc_recv(d->ctx, req, (uint16_t)n);
}

static int
direct_reply(struct kv_end *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct direct *d = (struct direct *)end;

	return crpc_copyrpc_reply(d->ctx, now, token, msg, len);
}

static void
direct_fail(struct kv_end *end, uint64_t now, uint64_t token, int status)
{
	struct direct *d = (struct direct *)end;

	crpc_copyrpc_reject(d->ctx, now, token, status);
}

static void
direct_flush(struct kv_end *end, uint64_t now)
{
	struct direct *d = (struct direct *)end;

	if (!d->server || !d->shared)
		crpc_copyrpc_flush(d->ctx, now);
}

static void
direct_watch(struct kv_end *end, uint64_t now)
{
	struct direct *d = (struct direct *)end;
	uint32_t i, rank;

	for (i = 0; i < d->peers && !d->server; i++) {
		rank = i / d->daemons;
		if (rank != d->rank && crpc_copyrpc_ep_status(d->ep[i]) != 0)
			kv_fate_lose(d->fate, d->rank, rank, "its connection broke");
	}
}

static void
direct_measure(struct kv_end *end)
{
	struct direct *d = (struct direct *)end;

	if (!d->server && d->shared)
		return;
	crpc_copyrpc_stats_reset(d->ctx);
	crpc_rdma_stats_get(d->dev, &d->begin);
}

static void
direct_counts(const struct kv_end *end, struct kv_net_counts *counts)
{
	const struct direct *d = (const struct direct *)end;

	if (d->server || !d->shared)
		kv_net_count(d->ctx, d->dev, &d->begin, counts);
}

static const char *
direct_device(const struct kv_end *end)
{
	return ((const struct direct *)end)->name;
}

const struct kv_backend kv_backend_direct = {
	.name = "direct",
	.open = direct_open,
	.address = direct_address,
	.connect = direct_connect,
	.close = direct_close,
	.call = direct_call,
	.poll = direct_poll,
	.recv = direct_recv,
	.reply = direct_reply,
	.fail = direct_fail,
	.flush = direct_flush,
	.watch = direct_watch,
	.measure = direct_measure,
	.counts = direct_counts,
	.device = direct_device,
};
