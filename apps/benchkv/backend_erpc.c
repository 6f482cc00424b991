/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * erpc: the clients of each lcore have sessions of their own, over one queue of datagrams per
 * lcore, with every daemon of every rank, their own rank's too. Loss, order and congestion are the
 * library's affair (lib/udrpc, after eRPC); every message is a datagram of its own.
 *
 * On a lcore that has a daemon as well, the link's sessions are in the port's context.
 */
#include <stdlib.h>

#include "backend.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "net.h"

/* Port and link are the same but for whom their endpoints lead to. */
struct erpc {
	struct kv_end end;
	struct crpc_rdma *dev;
	struct crpc_udrpc *ctx;
	struct kv_fate *fate;
	struct crpc_rdma_stats begin;
	bool server;
	bool shared;     /* Port: a link polls and flushes. Link: the port's context. */
	uint32_t self;
	uint32_t peers;
	uint32_t daemons; /* Of each rank. */
	uint32_t rank;
	char name[64];
	struct crpc_udrpc_ep *ep[];
};

/* Endpoints that a device is opened for at least: its queue of datagrams is one for all. */
#define DEVICE_EPS 32

static int
open_context(struct erpc *d, const struct kv_end_conf *conf)
{
	/* A link may join a port's context: room for both. */
	uint32_t eps = d->peers + (conf->server ? conf->owners : 0);
	struct kv_net_conf net = {.device = conf->opt->device};
	struct crpc_udrpc_conf c = {
		.max_eps = eps,
		.slots = (uint32_t)crpc_min(conf->calls, CRPC_UDRPC_SLOTS_MAX),
		.max_msg = (uint32_t)crpc_max(conf->req_max, conf->resp_max),
		.timeout_ns = KV_NET_TIMEOUT_NS,
		.seed = conf->opt->seed * 4096 + conf->self * 2 + conf->server + 1,
	};
	int rc = kv_net_open_device(
		&net, (uint32_t)crpc_max(eps, DEVICE_EPS), &d->dev, d->name);

	if (rc != 0)
		return rc;
	c.dev = d->dev;
	d->ctx = crpc_udrpc_create(&c);
	return d->ctx == NULL ? -errno : 0;
}

static void
erpc_close(struct kv_end *end)
{
	struct erpc *d = (struct erpc *)end;
	uint32_t i;

	if (d->server || !d->shared) {
		crpc_udrpc_free(d->ctx);
		crpc_rdma_close(d->dev);
	} else {
		for (i = 0; i < d->peers; i++)
			crpc_udrpc_ep_free(d->ep[i]);
	}
	free(d);
}

static struct kv_end *
erpc_open(const struct kv_end_conf *conf, int *rc)
{
	struct erpc *d = calloc(1, sizeof(*d) + conf->peers * sizeof(d->ep[0])), *port;
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
	port = (struct erpc *)conf->beside;
	if (port != NULL) {
		d->dev = port->dev;
		d->ctx = port->ctx;
		d->shared = port->shared = true;
	} else {
		*rc = open_context(d, conf);
	}
	for (i = 0; i < d->peers && *rc == 0; i++) {
		d->ep[i] = crpc_udrpc_ep_create(d->ctx, i);
		if (d->ep[i] == NULL)
			*rc = -errno;
	}
	if (*rc == 0)
		return &d->end;
	erpc_close(&d->end);
	return NULL;
}

/* The addresses of all our endpoints: each peer takes the one that has its number. */
static size_t
erpc_address(struct kv_end *end, void *buf, size_t max)
{
	struct erpc *d = (struct erpc *)end;
	uint8_t *at = buf;
	uint32_t i;

	if ((size_t)d->peers * CRPC_UDRPC_ADDR_LEN > max)
		return 0;
	for (i = 0; i < d->peers; i++)
		crpc_udrpc_ep_addr(d->ep[i], at + (size_t)i * CRPC_UDRPC_ADDR_LEN);
	return (size_t)d->peers * CRPC_UDRPC_ADDR_LEN;
}

static int
erpc_connect(struct kv_end *end, uint32_t peer, const void *addr, size_t len)
{
	struct erpc *d = (struct erpc *)end;
	size_t at = (size_t)d->self * CRPC_UDRPC_ADDR_LEN;

	if (len % CRPC_UDRPC_ADDR_LEN != 0 || at >= len)
		return -EPROTO;
	return crpc_udrpc_ep_connect(d->ep[peer], (const uint8_t *)addr + at);
}

static int
erpc_call(struct kv_end *end, uint64_t now, uint32_t to, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct erpc *d = (struct erpc *)end;

	return crpc_udrpc_call(d->ep[to], now, msg, len, resp_max, cookie);
}

static uint32_t
erpc_poll(struct kv_end *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct erpc *d = (struct erpc *)end;

	return crpc_udrpc_poll(d->ctx, now, done, (uint16_t)n);
}

static uint32_t
erpc_recv(struct kv_end *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct erpc *d = (struct erpc *)end;
	struct crpc_done done[4];

	/* A port of its own calls nobody, so nothing completes. */
	if (!d->shared)
		crpc_udrpc_poll(d->ctx, now, done, CRPC_DIM(done));
	return crpc_udrpc_recv(d->ctx, req, (uint16_t)n);
}

static int
erpc_reply(struct kv_end *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct erpc *d = (struct erpc *)end;

	return crpc_udrpc_reply(d->ctx, now, token, msg, len);
}

static void
erpc_fail(struct kv_end *end, uint64_t now, uint64_t token, int status)
{
	struct erpc *d = (struct erpc *)end;

	crpc_udrpc_reject(d->ctx, now, token, status);
}

static void
erpc_flush(struct kv_end *end, uint64_t now)
{
	struct erpc *d = (struct erpc *)end;

	if (!d->server || !d->shared)
		crpc_udrpc_flush(d->ctx, now);
}

static void
erpc_watch(struct kv_end *end, uint64_t now)
{
	struct erpc *d = (struct erpc *)end;
	uint32_t i, rank;

	for (i = 0; i < d->peers && !d->server; i++) {
		rank = i / d->daemons;
		if (rank != d->rank && crpc_udrpc_ep_status(d->ep[i]) != 0)
			kv_fate_lose(d->fate, d->rank, rank, "its connection broke");
	}
}

static void
erpc_measure(struct kv_end *end)
{
	struct erpc *d = (struct erpc *)end;

	if (!d->server && d->shared)
		return;
	crpc_udrpc_stats_reset(d->ctx);
	crpc_rdma_stats_get(d->dev, &d->begin);
}

static void
erpc_counts(const struct kv_end *end, struct kv_net_counts *counts)
{
	const struct erpc *d = (const struct erpc *)end;
	const struct crpc_udrpc_stats *c;
	struct crpc_rdma_stats r;

	if (!d->server && d->shared)
		return;
	c = crpc_udrpc_stats(d->ctx);
	crpc_rdma_stats_get(d->dev, &r);
	counts->calls += c->calls;
	counts->messages += c->packets_sent;
	counts->batches += c->packets_sent;
	counts->bytes += c->bytes_sent;
	counts->doorbells += r.doorbells - d->begin.doorbells;
	counts->wqes += r.wqes - d->begin.wqes;
	counts->wqebbs += r.wqebbs - d->begin.wqebbs;
	counts->send_cqes += r.send_cqes - d->begin.send_cqes;
	counts->recv_cqes += r.recv_cqes - d->begin.recv_cqes;
	counts->again += c->again_slots;
	crpc_hist_merge(&counts->wire, &c->wire);
	crpc_hist_merge(&counts->peer, &c->peer);
}

static const char *
erpc_device(const struct kv_end *end)
{
	return ((const struct erpc *)end)->name;
}

const struct kv_backend kv_backend_erpc = {
	.name = "erpc",
	.open = erpc_open,
	.address = erpc_address,
	.connect = erpc_connect,
	.close = erpc_close,
	.call = erpc_call,
	.poll = erpc_poll,
	.recv = erpc_recv,
	.reply = erpc_reply,
	.fail = erpc_fail,
	.flush = erpc_flush,
	.watch = erpc_watch,
	.measure = erpc_measure,
	.counts = erpc_counts,
	.device = erpc_device,
};
