/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane copyrpc: clients keep depth calls open on each active endpoint; the server echoes. */
#define PROTOCOL crpc_copyrpc
#include "net_calls.h"

/* A batch is gathered up to this, or a quarter of the ring. */
#define RING_MIN 16384u
#define RING_MAX 1048576u

/* A ring that holds every open request of an endpoint twice. */
static uint32_t
ring_size(const struct app_case *c)
{
	uint64_t want = 2 * (uint64_t)c->depth * (c->size + 32) + 4096;

	if (c->ring_size != 0)
		return c->ring_size;
	return (uint32_t)crpc_min(crpc_max(crpc_pow2_ceil(want), RING_MIN), RING_MAX);
}

static struct crpc_copyrpc_ep *
endpoint_new(const struct net_calls *s, uint32_t i)
{
	const struct lane_end *e = &s->base;
	const struct crpc_copyrpc_ep_conf mode = {.flow = (enum crpc_copyrpc_flow)e->conf.flow,
		.arrival = (enum crpc_copyrpc_arrival)e->conf.arrival,
		.transport = e->lane->way == &net_copyrpc_dc.base ? CRPC_RDMA_DC : CRPC_RDMA_RC};

	return crpc_copyrpc_ep_create_as(s->ctx, i, &mode);
}

static bool
has_unsent(const struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc_positions at;

	crpc_copyrpc_ep_positions(ep, &at);
	return at.requests_queued != at.requests_sent;
}

static int
copyrpc_open(struct app_lane *l, int side)
{
	bool many = l->c->clients > 64;
	struct crpc_copyrpc_conf conf = {.max_eps = l->c->clients,
		.ring_size = ring_size(l->c),
		.max_inflight = l->c->depth,
		.flush = (enum crpc_copyrpc_flush_policy)l->c->flush,
		.sq_depth = many ? 16 : 64,
		.rq_depth = many ? 32 : 256,
		.timeout_ns = TIMEOUT_NS};
	uint64_t cq = 64 + (uint64_t)l->c->clients * (conf.sq_depth + conf.rq_depth);
	struct crpc_rdma_conf dev = {.device = net_device(),
		.cq_depth = (uint32_t)crpc_min(crpc_max(cq, 4096), CRPC_RDMA_CQ_DEPTH_MAX)};

	return calls_open(l, side, &dev, &conf);
}

static void
copyrpc_ledger(const struct lane_end *e, struct lane_ledger *l)
{
	const struct net_calls *s = (const struct net_calls *)e;
	const struct crpc_copyrpc_stats *stats = crpc_copyrpc_stats(s->ctx);

	*l = (struct lane_ledger){.n = {[LANE_READS] = stats->reads_sent,
					  [LANE_BATCHES] = stats->batches_sent,
					  [LANE_MESSAGES] = stats->messages_sent}};
	net_ledger_of(s->dev, l);
}

#define COPYRPC_WAY(way, text)                                                                     \
	const struct lane_way way = {                                                              \
		.base = APP_WAY(text, copyrpc_open, calls_meet, calls_close),                      \
		.oneway = true,                                                                    \
		.step = calls_step,                                                                \
		.ledger = copyrpc_ledger,                                                          \
	}

COPYRPC_WAY(net_copyrpc_rc, "copyrpc_rc");
COPYRPC_WAY(net_copyrpc_dc, "copyrpc_dc");
