/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_OWN_H
#define APP_OWN_H

/**
 * @file
 * A backend whose links have endpoints of their own to every port, over a protocol of calls:
 * app_direct.c and app_erpc.c are this text, once with each protocol, so that no call goes through
 * one more pointer. The includer defines, before:
 *
 *     PROTOCOL        the prefix of its functions, which is also the name of its context
 *     API_ADDR_LEN    bytes of an endpoint's address
 *     DEVICE_EPS      endpoints that a device is opened for at least
 *
 * and, behind, own_context(), own_count() and own_parts(), and its struct app_backend with OWN_OPS.
 *
 * On a lcore that has a daemon as well, the link's endpoints are in the port's context: it is
 * polled once per turn, and one flush sends what both queued.
 */
#include <stdlib.h>

#include "app_backend.h"

#define OWN_PASTE(a, b) a##_##b
#define OWN_NAME(a, b) OWN_PASTE(a, b)
#define API(name) OWN_NAME(PROTOCOL, name)

/* Port and link are the same but for whom their endpoints lead to. */
struct own {
	struct crpc_rdma *dev;
	struct PROTOCOL *ctx;
	struct crpc_kv_server *service;
	bool server;
	bool shared;     /* Port: a link polls and flushes. Link: the port's context. */
	uint32_t self;
	uint32_t peers;
	uint32_t daemons; /* Of each rank. */
	uint32_t rank;
	char name[64];
	struct API(ep) *ep[];
};

/* Make a context of the device, for this many endpoints: NULL and errno. */
static struct PROTOCOL *own_context(
	const struct own *d, const struct app_end_conf *conf, uint32_t eps);
/* Add what was counted. */
static void own_count(const struct own *d, struct app_net_counts *counts);

static void
own_close(void *end)
{
	struct own *d = end;

	if (d->server || !d->shared) {
		API(free)(d->ctx);
		crpc_rdma_close(d->dev);
	} else {
		for (uint32_t i = 0; i < d->peers; i++)
			API(ep_free)(d->ep[i]);
	}
	free(d);
}

static void *
own_open(const struct app_end_conf *conf, int *rc)
{
	struct own *d = calloc(1, sizeof(*d) + conf->peers * sizeof(d->ep[0])), *port;
	uint32_t eps;

	*rc = -ENOMEM;
	if (d == NULL)
		return NULL;
	d->service = conf->service;
	d->server = conf->server;
	d->self = conf->self;
	d->peers = conf->peers;
	d->daemons = conf->daemons;
	d->rank = conf->rank;
	*rc = 0;
	port = conf->beside;
	if (port != NULL) {
		d->dev = port->dev;
		d->ctx = port->ctx;
		d->shared = port->shared = true;
	} else {
		/* A link may join a port's context: room for both. */
		eps = d->peers + (d->server ? conf->owners : 0);
		*rc = app_device_open(
			conf->device, crpc_max(eps, DEVICE_EPS), &d->dev, d->name);
		d->ctx = *rc != 0 ? NULL : own_context(d, conf, eps);
		*rc = *rc == 0 && d->ctx == NULL ? -errno : *rc;
	}
	for (uint32_t i = 0; i < d->peers && *rc == 0; i++) {
		d->ep[i] = API(ep_create)(d->ctx, i);
		if (d->ep[i] == NULL)
			*rc = -errno;
	}
	if (*rc == 0)
		return d;
	own_close(d);
	return NULL;
}

/* The addresses of all our endpoints: each peer takes the one that has its number. */
static size_t
own_address(void *end, void *buf, size_t max)
{
	struct own *d = end;
	uint8_t *at = buf;

	if ((size_t)d->peers * API_ADDR_LEN > max)
		return 0;
	for (uint32_t i = 0; i < d->peers; i++)
		API(ep_addr)(d->ep[i], at + (size_t)i * API_ADDR_LEN);
	return (size_t)d->peers * API_ADDR_LEN;
}

static int
own_connect(void *end, uint32_t peer, const void *addr, size_t len)
{
	struct own *d = end;
	size_t at = (size_t)d->self * API_ADDR_LEN;

	if (len % API_ADDR_LEN != 0 || at >= len)
		return -EPROTO;
	return API(ep_connect)(d->ep[peer], (const uint8_t *)addr + at);
}

static int
own_call(void *end, uint64_t now, uint32_t to, const void *msg, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct own *d = end;

	return API(call)(d->ep[to], now, msg, len, resp_max, cookie);
}

static uint32_t
own_poll(void *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct own *d = end;

	return API(poll)(d->ctx, now, done, (uint16_t)n);
}

static uint32_t
own_recv(void *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct own *d = end;
	struct crpc_done done[4];

	/* A port of its own makes no calls, so nothing completes. */
	if (!d->shared)
		API(poll)(d->ctx, now, done, CRPC_DIM(done));
	return API(recv)(d->ctx, now, req, (uint16_t)n);
}

static int
own_reply(void *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct own *d = end;

	return API(reply)(d->ctx, now, token, msg, len);
}

static void
own_fail(void *end, uint64_t now, uint64_t token, int status)
{
	struct own *d = end;

	API(fail)(d->ctx, now, token, status);
}

static void
own_flush(void *end, uint64_t now)
{
	struct own *d = end;

	if (!d->server || !d->shared)
		API(flush)(d->ctx, now);
}

static void
own_watch(void *end, uint64_t now)
{
	struct own *d = end;
	uint32_t rank;
	int rc;

	for (uint32_t i = 0; i < d->peers && !d->server; i++) {
		rank = i / d->daemons;
		if (rank == d->rank)
			continue;
		rc = API(ep_status)(d->ep[i]);
		if (rc == 0 && crpc_kv_server_peer_why(d->service, rank) != NULL)
			API(ep_shutdown)(d->ep[i]);
		else if (rc != 0)
			crpc_kv_server_lose(d->service, rank, "its connection broke");
	}
}

static void
own_counts(const void *end, struct app_net_counts *counts)
{
	const struct own *d = end;

	if (d->server || !d->shared)
		own_count(d, counts);
}

static const char *
own_device(const void *end)
{
	return ((const struct own *)end)->name;
}

/* What a struct app_backend is but for its name. */
#define OWN_OPS                                                                                    \
	.open = own_open, .address = own_address, .connect = own_connect, .close = own_close,      \
	.counts = own_counts, .device = own_device, .parts = own_parts,                            \
	.load = {.call = own_call, .poll = own_poll, .flush = own_flush},                          \
	.front = {.recv = own_recv,                                                                \
		.reply = own_reply,                                                                \
		.fail = own_fail,                                                                  \
		.flush = own_flush,                                                                \
		.watch = own_watch}

#endif
