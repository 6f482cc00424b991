/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NET_MESSAGES_H
#define NET_MESSAGES_H

/**
 * @file
 * What lanes of single operations have in common: net_raw.c and net_verbs.c include it, so that no
 * operation goes through one more pointer. State of an end begins with struct messages.
 *
 * Rates: messages of `size` bytes, MESSAGES to a doorbell, at most `depth` of them ahead of the
 * server, which sends every CREDIT messages how many it has seen. Latencies: one at a time, and one
 * back.
 */

#include <stdlib.h>

#include "crpc_log.h"
#include "net.h"

#define MESSAGES 32u
#define CREDIT   256u

struct messages {
	struct lane_end base;
	struct crpc_rdma *dev;
	struct crpc_rdma_mr mr; /* Of buf. */
	uint64_t posted;
	uint64_t ended;    /* Client: seen by the server. Server: seen, */
	uint64_t credited; /* and reported to the peer. */
	uint64_t *buf;     /* What is sent, at its begin. */
};

/* Open a device, and register so many bytes of memory or a page: 0 or -errno. */
static int
messages_open(struct messages *s, size_t len)
{
	struct crpc_rdma_conf conf = {.device = net_device(), .cq_depth = 8192};

	len = crpc_align_up(crpc_max(len, 1u), 4096);
	s->buf = aligned_alloc(4096, len);
	if (s->buf == NULL)
		return -ENOMEM;
	memset(s->buf, 0, len);
	s->dev = crpc_rdma_open(&conf);
	return s->dev == NULL ? -errno : crpc_rdma_mr_reg(s->dev, s->buf, len, &s->mr);
}

static void
messages_close(struct messages *s)
{
	if (s->mr.addr != NULL)
		crpc_rdma_mr_dereg(s->dev, &s->mr);
	crpc_rdma_close(s->dev);
	free(s->buf);
	free(s);
}

static void
messages_ledger(const struct lane_end *e, struct lane_ledger *l)
{
	*l = (struct lane_ledger){0};
	net_ledger_of(((const struct messages *)e)->dev, l);
}

/*
 * Post n messages of len bytes, the first of them with this number, the last of them signalled: how
 * many were posted.
 */
static uint32_t message_post(struct lane_end *e, uint32_t len, uint32_t n, uint64_t number);

/* Take completions: sends that ended, messages that came, the newest number among them. */
static void message_poll(struct lane_end *e, uint32_t *sends, uint32_t *recvs, uint32_t *number);

/* Server of a rate: count, and report it now and then, or at once if nothing more comes. */
static uint32_t
rate_serve(struct lane_end *e, struct messages *s)
{
	uint32_t sends = 0, recvs = 0, number;

	message_poll(e, &sends, &recvs, &number);
	s->ended += recvs;
	if (s->ended - s->credited < CREDIT && (recvs != 0 || s->ended == s->credited))
		return recvs;
	if (message_post(e, CREDIT_LEN, 1, s->ended) == 1)
		s->credited = s->ended;
	return recvs;
}

static uint32_t
rate_step(struct lane_end *e, uint64_t now, bool more)
{
	struct messages *s = (struct messages *)e;
	uint32_t sends = 0, recvs = 0, number = (uint32_t)s->ended, n;

	if (e->server)
		return rate_serve(e, s);
	message_poll(e, &sends, &recvs, &number);
	n = number - (uint32_t)s->ended;
	s->ended += n;
	e->open = s->posted - s->ended;
	if (!more || e->conf.depth - e->open < MESSAGES)
		return n;
	s->posted += message_post(e, e->conf.size, MESSAGES, s->posted);
	e->open = s->posted - s->ended;
	return n;
}

/* There, and back: the client's turn ends with a round trip, and the next one begins. */
static uint32_t
lat_step(struct lane_end *e, uint64_t now, bool more)
{
	struct messages *s = (struct messages *)e;
	uint32_t sends = 0, recvs = 0, number;

	message_poll(e, &sends, &recvs, &number);
	if (!e->server) {
		e->open -= recvs;
		if (!more || e->open != 0)
			return recvs;
	} else if (recvs == 0) {
		return 0;
	}
	if (message_post(e, e->conf.size, 1, s->posted) != 1)
		lane_break(e, "the send queue is full");
	s->posted++;
	e->open += !e->server;
	return recvs;
}

#endif
