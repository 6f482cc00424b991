/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane udrpc: clients keep depth calls open on each active endpoint; the server echoes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "lane.h"
#include "net.h"

/* Requests and answers of one turn at most. */
#define BURST 256
/* Datagrams of a context on their way at most. */
#define SQ_DEPTH 1024u
#define RQ_DEPTH 2048u
#define TIMEOUT_NS UINT64_C(20000000000)

struct net_udrpc {
	struct crpc_rdma *dev;
	struct crpc_udrpc *ctx;
	struct crpc_udrpc_ep **ep;
	uint64_t *seq;   /* By endpoint: calls made. */
	uint64_t *again; /* By endpoint: calls to make. */
	uint64_t missing; /* Their sum. */
	uint64_t msg[NET_SIZE_MAX / 8];
};

static int
device_open(struct net_end *e, struct net_udrpc *s)
{
	struct crpc_rdma_conf conf = {.gid_index = -1, .cq_depth = 2 * (SQ_DEPTH + RQ_DEPTH)};

	s->dev = crpc_rdma_open(&conf);
	if (s->dev != NULL)
		return 0;
	net_why(e, "%s", crpc_log_last());
	return -errno;
}

static void
udrpc_close(struct net_end *e)
{
	struct net_udrpc *s = e->priv;

	crpc_udrpc_free(s->ctx);
	crpc_rdma_close(s->dev);
	free(s->again);
	free(s->seq);
	free(s->ep);
	free(s);
}

static int
endpoints_open(struct net_end *e, struct net_udrpc *s, const struct crpc_udrpc_conf *conf)
{
	uint32_t i;

	s->ctx = crpc_udrpc_create(conf);
	s->ep = calloc(e->conf.endpoints, sizeof(*s->ep));
	s->seq = calloc(e->conf.endpoints, sizeof(*s->seq));
	s->again = calloc(e->conf.endpoints, sizeof(*s->again));
	if (s->ctx == NULL || s->ep == NULL || s->seq == NULL || s->again == NULL)
		return -ENOMEM;
	for (i = 0; i < e->conf.endpoints; i++) {
		s->ep[i] = crpc_udrpc_ep_create(s->ctx, i);
		if (s->ep[i] == NULL)
			return -errno;
	}
	return 0;
}

static int
udrpc_open(struct net_end *e)
{
	struct crpc_udrpc_conf conf = {.max_eps = e->conf.endpoints,
		.slots = e->conf.depth,
		.credits = crpc_min(crpc_max(e->conf.depth, 32u), CRPC_UDRPC_CREDITS_MAX),
		.max_msg = crpc_max(e->conf.size, 1024u),
		.sq_depth = SQ_DEPTH,
		.rq_depth = RQ_DEPTH,
		.timeout_ns = TIMEOUT_NS};
	struct net_udrpc *s = calloc(1, sizeof(*s));
	uint32_t i;
	int rc;

	if (s == NULL)
		return -ENOMEM;
	e->priv = s;
	if (e->conf.oneway) {
		net_why(e, "it has no one-way requests");
		free(s);
		return -EOPNOTSUPP;
	}
	rc = device_open(e, s);
	conf.dev = s->dev;
	if (rc == 0) {
		rc = endpoints_open(e, s, &conf);
		if (rc != 0)
			net_why(e, "%s", crpc_log_last());
	}
	if (rc != 0) {
		udrpc_close(e);
		return rc;
	}
	for (i = 0; i < e->conf.active && !e->server; i++)
		s->again[i] = e->conf.depth;
	s->missing = e->server ? 0 : e->conf.active * e->conf.depth;
	return 0;
}

static void
udrpc_addr(const struct net_end *e, uint32_t i, uint8_t addr[NET_ADDR_LEN])
{
	const struct net_udrpc *s = e->priv;

	crpc_udrpc_ep_addr(s->ep[i], addr);
}

static int
udrpc_connect(struct net_end *e, uint32_t i, const uint8_t addr[NET_ADDR_LEN])
{
	struct net_udrpc *s = e->priv;
	int rc = crpc_udrpc_ep_connect(s->ep[i], addr);

	if (rc != 0)
		net_why(e, "%s", crpc_log_last());
	return rc;
}

/* Make the calls that an endpoint lacks, as far as it takes them. */
static void
refill(struct net_end *e, struct net_udrpc *s, uint32_t i, uint64_t now)
{
	uint32_t size = e->conf.size;
	int rc;

	while (s->again[i] != 0) {
		lane_fill(s->msg, size, lane_word(i, s->seq[i]));
		rc = crpc_udrpc_call(s->ep[i], now, s->msg, size, size, lane_word(i, s->seq[i]));
		if (rc == -EAGAIN)
			return;
		if (rc != 0) {
			net_break(e, "a call was refused: %s", strerror(-rc));
			return;
		}
		s->seq[i]++;
		s->again[i]--;
		s->missing--;
		e->open++;
	}
}

static uint32_t
client_step(struct net_end *e, uint64_t now, bool more)
{
	struct net_udrpc *s = e->priv;
	uint32_t ended = 0, size = e->conf.size, i;
	struct crpc_done done[BURST];
	uint16_t n, k;

	do {
		n = crpc_udrpc_poll(s->ctx, now, done, BURST);
		for (k = 0; k < n; k++) {
			i = lane_word_client(done[k].cookie);
			if (crpc_unlikely(done[k].status != 0 || done[k].len != size)) {
				net_break(e, "a call ended with %d, %u bytes", done[k].status,
					done[k].len);
				return ended;
			}
			e->bad += lane_read(done[k].data, size, e->conf.check, done[k].cookie);
			s->again[i]++;
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
	crpc_udrpc_flush(s->ctx, now);
	return ended;
}

static uint32_t
server_step(struct net_end *e, uint64_t now)
{
	struct net_udrpc *s = e->priv;
	struct crpc_done done[BURST];
	struct crpc_req req[BURST];
	uint32_t served = 0;
	uint16_t n, k;
	int rc = 0;

	crpc_udrpc_poll(s->ctx, now, done, BURST);
	do {
		n = crpc_udrpc_recv(s->ctx, req, BURST);
		for (k = 0; k < n; k++)
			rc |= crpc_udrpc_reply(
				s->ctx, now, req[k].token, req[k].data, req[k].len);
		served += n;
	} while (n == BURST);
	crpc_udrpc_flush(s->ctx, now);
	if (crpc_unlikely(rc != 0))
		net_break(e, "a reply was refused");
	return served;
}

static uint32_t
udrpc_step(struct net_end *e, uint64_t now, bool more)
{
	return e->server ? server_step(e, now) : client_step(e, now, more);
}

static void
udrpc_ledger(const struct net_end *e, struct net_ledger *l)
{
	const struct net_udrpc *s = e->priv;
	const struct crpc_udrpc_stats *stats = crpc_udrpc_stats(s->ctx);

	*l = (struct net_ledger){.repeated = stats->repeated};
	net_ledger_of(s->dev, l);
}

const struct net_ops net_ops_udrpc = {
	.name = "udrpc",
	.unit = NET_RATE,
	.built = true,
	.open = udrpc_open,
	.close = udrpc_close,
	.addr = udrpc_addr,
	.connect = udrpc_connect,
	.step = udrpc_step,
	.ledger = udrpc_ledger,
};
