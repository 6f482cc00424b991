/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane udrpc: clients keep depth calls open on each active endpoint; the server echoes. */
#include "crpc_udrpc.h"

#define PROTOCOL crpc_udrpc
#include "net_calls.h"

/* Datagrams of a context on their way at most. */
#define SQ_DEPTH 1024u
#define RQ_DEPTH 2048u

static struct crpc_udrpc_ep *
endpoint_new(const struct net_calls *s, uint32_t i)
{
	return crpc_udrpc_ep_create(s->ctx, i);
}

/* There is a credit for each slot, so a flush sends all that were taken. */
static bool
has_unsent(const struct crpc_udrpc_ep *ep)
{
	return false;
}

static int
udrpc_open(struct app_lane *l, int side)
{
	struct crpc_udrpc_conf conf = {.max_eps = l->c->clients,
		.slots = l->c->depth,
		.credits = crpc_min(crpc_max(l->c->depth, 32u), CRPC_UDRPC_CREDITS_MAX),
		.max_msg = crpc_max(l->c->size, 1024u),
		.sq_depth = SQ_DEPTH,
		.rq_depth = RQ_DEPTH,
		.timeout_ns = TIMEOUT_NS};
	struct crpc_rdma_conf dev = {.device = net_device(),
		.cq_depth = 2 * (SQ_DEPTH + RQ_DEPTH)};

	return calls_open(l, side, &dev, &conf);
}

static void
udrpc_ledger(const struct lane_end *e, struct lane_ledger *l)
{
	const struct net_calls *s = (const struct net_calls *)e;
	const struct crpc_udrpc_stats *stats = crpc_udrpc_stats(s->ctx);

	*l = (struct lane_ledger){.n = {[LANE_REPEATED] = stats->repeated}};
	net_ledger_of(s->dev, l);
}

const struct lane_way net_udrpc = {
	.base = APP_WAY("udrpc", udrpc_open, calls_meet, calls_close),
	.oneway = true,
	.step = calls_step,
	.ledger = udrpc_ledger,
};
