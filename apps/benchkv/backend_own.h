/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_BACKEND_OWN_H
#define KV_BACKEND_OWN_H

/**
 * @file
 * A backend whose links have endpoints of their own to every port, over a protocol of calls:
 * backend_direct.c and backend_erpc.c are this text, once with each protocol, so that no call goes
 * through one more pointer. The includer defines, before:
 *
 *     PROTOCOL        the prefix of its functions, which is also the name of its context
 *     API_ADDR_LEN    bytes of an endpoint's address
 *
 * and, behind, own_context() and own_count(), and its struct kv_backend with OWN_OPS.
 *
 * On a lcore that has a daemon as well, the link's endpoints are in the port's context: it is
 * polled once per turn, and one flush sends what both queued.
 */
#include <stdlib.h>

#include "backend.h"
#include "net.h"

#define OWN_PASTE(a, b) a##_##b
#define OWN_NAME(a, b) OWN_PASTE(a, b)
#define API(name) OWN_NAME(PROTOCOL, name)

/* Port and link are the same but for whom their endpoints lead to. */
struct own {
	struct kv_end end;
	struct crpc_rdma *dev;
	struct PROTOCOL *ctx;
	struct kv_fate *fate;
	struct crpc_rdma_stats begin;
	bool server;
	bool shared;     /* Port: a link polls and flushes. Link: the port's context. */
	uint32_t self;
	uint32_t peers;
	uint32_t daemons; /* Of each rank. */
	uint32_t rank;
	char name[64];
	struct API(ep) *ep[];
};

/* Open the device and make the context, for this many endpoints. */
static int own_context(struct own *d, const struct kv_end_conf *conf, uint32_t eps);
/* Add what was counted. */
static void own_count(const struct own *d, struct kv_net_counts *counts);

static void
own_close(struct kv_end *end)
{
	struct own *d = (struct own *)end;
	uint32_t i;

	if (d->server || !d->shared) {
		API(free)(d->ctx);
		crpc_rdma_close(d->dev);
	} else {
		for (i = 0; i < d->peers; i++)
			API(ep_free)(d->ep[i]);
	}
	free(d);
}

static struct kv_end *
own_open(const struct kv_end_conf *conf, int *rc)
{
	struct own *d = calloc(1, sizeof(*d) + conf->peers * sizeof(d->ep[0])), *port;
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
	port = (struct own *)conf->beside;
	if (port != NULL) {
		d->dev = port->dev;
		d->ctx = port->ctx;
		d->shared = port->shared = true;
	} else {
		/* A link may join a port's context: room for both. */
		*rc = own_context(d, conf, d->peers + (d->server ? conf->owners : 0));
	}
	for (i = 0; i < d->peers && *rc == 0; i++) {
		d->ep[i] = API(ep_create)(d->ctx, i);
		if (d->ep[i] == NULL)
			*rc = -errno;
	}
	if (*rc == 0)
		return &d->end;
	own_close(&d->end);
	return NULL;
}

/* The addresses of all our endpoints: each peer takes the one that has its number. */
static size_t
own_address(struct kv_end *end, void *buf, size_t max)
{
	struct own *d = (struct own *)end;
	uint8_t *at = buf;
	uint32_t i;

	if ((size_t)d->peers * API_ADDR_LEN > max)
		return 0;
	for (i = 0; i < d->peers; i++)
		API(ep_addr)(d->ep[i], at + (size_t)i * API_ADDR_LEN);
	return (size_t)d->peers * API_ADDR_LEN;
}

static int
own_connect(struct kv_end *end, uint32_t peer, const void *addr, size_t len)
{
	struct own *d = (struct own *)end;
	size_t at = (size_t)d->self * API_ADDR_LEN;

	if (len % API_ADDR_LEN != 0 || at >= len)
		return -EPROTO;
	return API(ep_connect)(d->ep[peer], (const uint8_t *)addr + at);
}

static int
own_call(struct kv_end *end, uint64_t now, uint32_t to, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct own *d = (struct own *)end;

	return API(call)(d->ep[to], now, msg, len, resp_max, cookie);
}

static uint32_t
own_poll(struct kv_end *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct own *d = (struct own *)end;

	return API(poll)(d->ctx, now, done, (uint16_t)n);
}

static uint32_t
own_recv(struct kv_end *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct own *d = (struct own *)end;
	struct crpc_done done[4];

	/* A port of its own makes no calls, so nothing completes. */
	if (!d->shared)
		API(poll)(d->ctx, now, done, CRPC_DIM(done));
	return API(recv)(d->ctx, now, req, (uint16_t)n);
}

static int
own_reply(struct kv_end *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct own *d = (struct own *)end;

	return API(reply)(d->ctx, now, token, msg, len);
}

static void
own_fail(struct kv_end *end, uint64_t now, uint64_t token, int status)
{
	struct own *d = (struct own *)end;

	API(fail)(d->ctx, now, token, status);
}

static void
own_flush(struct kv_end *end, uint64_t now)
{
	struct own *d = (struct own *)end;

	if (!d->server || !d->shared)
		API(flush)(d->ctx, now);
}

static void
own_watch(struct kv_end *end, uint64_t now)
{
	struct own *d = (struct own *)end;
	uint32_t i, rank;
	int rc;

	for (i = 0; i < d->peers && !d->server; i++) {
		rank = i / d->daemons;
		if (rank == d->rank)
			continue;
		rc = API(ep_status)(d->ep[i]);
		if (rc == 0 && kv_fate_gone(d->fate, rank))
			API(ep_shutdown)(d->ep[i]);
		else if (rc != 0)
			kv_fate_lose(d->fate, d->rank, rank, "its connection broke");
	}
}

static void
own_measure(struct kv_end *end)
{
	struct own *d = (struct own *)end;

	if (!d->server && d->shared)
		return;
	API(stats_reset)(d->ctx);
	crpc_rdma_stats_get(d->dev, &d->begin);
}

static void
own_counts(const struct kv_end *end, struct kv_net_counts *counts)
{
	const struct own *d = (const struct own *)end;

	if (d->server || !d->shared)
		own_count(d, counts);
}

static const char *
own_device(const struct kv_end *end)
{
	return ((const struct own *)end)->name;
}

/* What a struct kv_backend is but for its name. */
#define OWN_OPS                                                                                    \
	.open = own_open, .address = own_address, .connect = own_connect, .close = own_close,      \
	.call = own_call, .poll = own_poll, .recv = own_recv, .reply = own_reply,                  \
	.fail = own_fail, .flush = own_flush, .watch = own_watch, .measure = own_measure,          \
	.counts = own_counts, .device = own_device

#endif
