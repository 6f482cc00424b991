/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane udrpc: clients keep depth calls open on each active endpoint; the server echoes. */
#include "crpc_udrpc.h"

#define PROTOCOL crpc_udrpc
#include "net_calls.h"

/* Datagrams of a context on their way at most. */
#define SQ_DEPTH 1024u
#define RQ_DEPTH 2048u

static int
endpoints_open(struct net_end *e, struct net_calls *s)
{
	uint32_t i;

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
	struct crpc_rdma_conf dev = {.device = net_device(),
		.gid_index = -1,
		.cq_depth = 2 * (SQ_DEPTH + RQ_DEPTH)};

	if (e->conf.oneway) {
		net_why(e, "it measures calls only");
		return -EOPNOTSUPP;
	}
	return calls_open(e, &dev, &conf);
}

static uint32_t
server_step(struct net_end *e, uint64_t now)
{
	struct net_calls *s = e->priv;
	struct crpc_done done[BURST];
	struct crpc_req req[BURST];
	uint32_t served = 0;
	uint16_t n, k;
	int rc = 0;

	crpc_udrpc_poll(s->ctx, now, done, BURST);
	do {
		n = crpc_udrpc_recv(s->ctx, now, req, BURST);
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
	const struct net_calls *s = e->priv;
	const struct crpc_udrpc_stats *stats = crpc_udrpc_stats(s->ctx);

	*l = (struct net_ledger){.repeated = stats->repeated};
	net_ledger_of(s->dev, l);
}

const struct net_ops net_ops_udrpc = {
	.name = "udrpc",
	.unit = NET_RATE,
	.built = true,
	.open = udrpc_open,
	.close = calls_close,
	.addr = calls_addr,
	.connect = calls_connect,
	.step = udrpc_step,
	.ledger = udrpc_ledger,
};
