/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NET_CALLS_H
#define NET_CALLS_H

/**
 * @file
 * What lanes of calls have in common: clients keep depth calls open on each active endpoint.
 * net_copyrpc.c and net_udrpc.c include it, once with each protocol, so that no call goes through
 * one more pointer. PROTOCOL, defined before, is the prefix of the protocol's functions, and the
 * name of its context; endpoint_new(), behind, makes an endpoint of a context, has_unsent() looks
 * at one.
 */
#include <stdlib.h>

#include "crpc_log.h"
#include "net.h"

#define CALLS_PASTE(a, b) a##_##b
#define CALLS_NAME(a, b)  CALLS_PASTE(a, b)
#define API(name)         CALLS_NAME(PROTOCOL, name)

/* Requests and answers of one turn at most. */
#define BURST CRPC_BURST_MAX
#define TIMEOUT_NS UINT64_C(20000000000)

struct net_calls {
	struct lane_end base;
	struct crpc_rdma *dev;
	struct PROTOCOL *ctx;
	struct API(ep) **ep;
	uint64_t missing; /* Calls to make, of all endpoints. */
	uint64_t msg[NET_SIZE_MAX / 8];
};

/* Make endpoint number i of the context; NULL and errno. */
static struct API(ep) * endpoint_new(const struct net_calls *s, uint32_t i);

/* Whether one-way requests of the endpoint were not sent yet, after a flush. */
static bool has_unsent(const struct API(ep) * ep);

static void
calls_close(struct app_lane *l, int side)
{
	struct net_calls *s = l->state[side];

	API(free)(s->ctx);
	crpc_rdma_close(s->dev);
	free(s->ep);
	free(s);
}

/* Make the end: a device, the context and what belongs to each endpoint. */
static int
calls_open(struct app_lane *l, int side, struct crpc_rdma_conf *dev, struct API(conf) *conf)
{
	struct net_calls *s = lane_end_new(l, side, sizeof(*s));
	uint32_t n = l->c->clients;
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->dev = crpc_rdma_open(dev);
	conf->dev = s->dev;
	s->ctx = s->dev == NULL ? NULL : API(create)(conf);
	s->ep = calloc(n, sizeof(*s->ep));
	rc = s->ctx == NULL || s->ep == NULL ? -ENOMEM : 0;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		s->ep[i] = endpoint_new(s, i);
		rc = s->ep[i] == NULL ? -errno : 0;
	}
	if (rc != 0)
		return app_lane_fail(l, rc, "%s", crpc_log_last());
	l->addr[side].len = n * NET_ADDR_LEN;
	for (uint32_t i = 0; i < n; i++)
		API(ep_addr)(s->ep[i], l->addr[side].bytes + i * NET_ADDR_LEN);
	s->missing = side == 0 ? l->c->active * l->c->depth : 0;
	return 0;
}

static int
calls_meet(struct app_lane *l, int side)
{
	const uint8_t *addr = net_peer(l, side);
	struct net_calls *s = l->state[side];
	int rc = addr == NULL ? -EPROTO : 0;

	for (uint32_t i = 0; i < l->c->clients && rc == 0; i++)
		rc = API(ep_connect)(s->ep[i], addr + i * NET_ADDR_LEN);
	return rc == 0 ? 0 : app_lane_fail(l, rc, "%s", crpc_log_last());
}

/* Make the calls that an endpoint lacks, as far as it takes them. */
static void
refill(struct lane_end *e, struct net_calls *s, uint32_t i, uint64_t now)
{
	struct lane_one *o = &e->one[i];
	uint32_t size = e->conf.size;
	int rc;

	while (o->seq - o->ack < e->conf.depth) {
		app_msg_fill(s->msg, size, lane_word(i, o->seq));
		rc = API(call)(s->ep[i], now, s->msg, size, size, lane_word(i, o->seq));
		if (rc == -EAGAIN)
			return;
		if (rc != 0) {
			lane_break(e, "a call was refused: %s", strerror(-rc));
			return;
		}
		o->seq++;
		s->missing--;
		e->open++;
	}
}

static uint32_t
client_step(struct lane_end *e, uint64_t now, bool more)
{
	struct net_calls *s = (struct net_calls *)e;
	uint32_t ended = 0, size = e->conf.size, i;
	struct crpc_done done[BURST];
	uint16_t n;

	do {
		n = API(poll)(s->ctx, now, done, BURST);
		for (uint16_t k = 0; k < n; k++) {
			i = lane_word_client(done[k].cookie);
			if (crpc_unlikely(done[k].status != 0 || done[k].len != size)) {
				lane_break(e, "a call ended with %d, %u bytes", done[k].status,
					done[k].len);
				return ended;
			}
			e->bad += app_msg_read(done[k].data, size, e->check, done[k].cookie);
			e->one[i].ack++;
			s->missing++;
			e->open--;
			if (more)
				refill(e, s, i, now);
		}
		ended += n;
	} while (n == BURST);
	if (crpc_unlikely(more && s->missing != 0))
		for (i = 0; i < e->conf.active; i++)
			refill(e, s, i, now);
	API(flush)(s->ctx, now);
	return ended;
}

/* One-way: as many as the flow control lets through; what has left has ended. */
static uint32_t
oneway_step(struct lane_end *e, uint64_t now, bool more)
{
	struct net_calls *s = (struct net_calls *)e;
	struct crpc_done done[BURST];
	uint32_t i, n = 0;
	int rc;

	if (API(poll)(s->ctx, now, done, BURST) != 0)
		lane_break(e, "a one-way request ended");
	for (i = 0; more && i < e->conf.active; i++)
		for (uint32_t k = 0; k < e->conf.depth; k++, n++) {
			app_msg_fill(s->msg, e->conf.size, lane_word(i, e->one[i].seq));
			rc = API(notify)(s->ep[i], now, s->msg, e->conf.size);
			if (rc == -EAGAIN)
				break;
			if (rc != 0) {
				lane_break(e, "a request was refused: %s", strerror(-rc));
				return n;
			}
			e->one[i].seq++;
		}
	API(flush)(s->ctx, now);
	for (i = 0, e->open = 0; !more && i < e->conf.active; i++)
		e->open += has_unsent(s->ep[i]);
	return n;
}

static uint32_t
server_step(struct lane_end *e, uint64_t now)
{
	struct net_calls *s = (struct net_calls *)e;
	struct crpc_done done[BURST];
	struct crpc_req req[BURST];
	uint32_t served = 0;
	uint16_t n;
	int rc = 0;

	API(poll)(s->ctx, now, done, BURST);
	do {
		n = API(recv)(s->ctx, now, req, BURST);
		for (uint16_t k = 0; k < n; k++) {
			if (e->oneway) {
				app_msg_read(req[k].data, req[k].len, false, 0);
				rc |= API(release)(s->ctx, now, req[k].token);
			} else {
				rc |= API(reply)(
					s->ctx, now, req[k].token, req[k].data, req[k].len);
			}
		}
		served += n;
	} while (n == BURST);
	API(flush)(s->ctx, now);
	if (crpc_unlikely(rc != 0))
		lane_break(e, "a reply was refused");
	return served;
}

static uint32_t
calls_step(struct lane_end *e, uint64_t now, bool more)
{
	if (e->server)
		return server_step(e, now);
	return e->oneway ? oneway_step(e, now, more) : client_step(e, now, more);
}

#endif
