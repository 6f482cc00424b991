/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry and the dump, from the same tables. crpc_tel.h says how the owner answers,
 * crpc_tel_rpc.h what the commands are.
 */
#include "copyrpc_large.h"
#include "crpc_tel_rpc.h"

/* What the owner knows of one endpoint. */
struct tel_ep {
	struct crpc_tel_rpc_ep base;
	uint64_t peer, epoch, ring_size, flow, arrival, open_calls, flushes_outstanding;
	uint64_t gets_and_puts_open, batches_queued, requests_waiting, requests_open;
	uint64_t large_areas_of_calls, large_areas_of_requests;
	struct crpc_copyrpc_positions pos;
};

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_copyrpc_stats, name)

static const struct crpc_tel_counter counters[] = {CRPC_TEL_RPC_COUNTERS, COUNTER(flushes),
	COUNTER(batches_sent), COUNTER(messages_sent), COUNTER(bytes_sent),
	COUNTER(batches_received), COUNTER(messages_received), COUNTER(updates_sent),
	COUNTER(updates_received), COUNTER(reads_sent), COUNTER(fragments_sent), COUNTER(onesided),
	COUNTER(peers_lost), COUNTER(alive_sent), COUNTER(age_flushes), COUNTER(full_flushes),
	COUNTER(sq_full), COUNTER(again_window), COUNTER(again_reply), COUNTER(again_inflight),
	COUNTER(again_large), COUNTER(wraps), COUNTER(ep_errors)};
_Static_assert(
	offsetof(struct crpc_copyrpc_stats, batch_size) == CRPC_DIM(counters) * sizeof(uint64_t),
	"every counter is reported");

static const struct crpc_tel_counter hists[] = {COUNTER(queue), COUNTER(wire), COUNTER(peer)};

#define FIELD(name) CRPC_TEL_COUNTER(struct tel_ep, name)
#define POSITION(name)                                                                             \
	{                                                                                          \
#name, offsetof(struct tel_ep, pos.name)                                           \
	}

static const struct crpc_tel_counter fields[] = {FIELD(peer), FIELD(epoch), FIELD(ring_size),
	FIELD(flow), FIELD(arrival), FIELD(open_calls), FIELD(flushes_outstanding),
	FIELD(gets_and_puts_open), FIELD(batches_queued), FIELD(requests_waiting),
	FIELD(requests_open), FIELD(large_areas_of_calls), FIELD(large_areas_of_requests),
	{"requests_queued_to", offsetof(struct tel_ep, pos.requests_queued)},
	POSITION(requests_sent), POSITION(requests_released_by_peer), POSITION(responses_sent),
	POSITION(requests_arrived), POSITION(requests_released), POSITION(requests_reported),
	POSITION(responses_arrived), POSITION(reply_room_reserved),
	POSITION(reply_room_reserved_by_peer)};

static bool
ep_fill(void *to, const void *of, uint32_t i)
{
	const struct crpc_copyrpc *ctx = of;
	const struct crpc_copyrpc_ep *ep = ctx->eps[i];
	struct tel_ep *out = to;
	const struct conn *conn;

	if (ep == NULL)
		return false;
	conn = ep->conn;
	*out = (struct tel_ep){.base = {.id = ep->id, .status = ep->err},
		.peer = ep->user_id,
		.epoch = conn->epoch,
		.ring_size = ep->ring_size,
		.flow = conn->conf.flow,
		.arrival = conn->conf.arrival,
		.open_calls = ep->calls.open,
		.flushes_outstanding = ep_outstanding(ep),
		.gets_and_puts_open = conn->onesided.tail - conn->onesided.head,
		.batches_queued = ep->tx[WIRE_REQ].npend + ep->tx[WIRE_RESP].npend,
		.requests_waiting = ep->req_tail - ep->req_next,
		.requests_open = ep->req_next - ep->req_head,
		.large_areas_of_calls = ep->large != NULL ? ep->large->taken : 0,
		.large_areas_of_requests = ep->large != NULL ? ep->large->served : 0};
	crpc_copyrpc_ep_positions(ep, &out->pos);
	return true;
}

static struct crpc_tel_rpc tel_rpc = {.library = "copyrpc",
	.endpoint = "endpoint",
	.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct crpc_copyrpc_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.hists = hists,
	.num_hists = CRPC_DIM(hists),
	.ep_size = sizeof(struct tel_ep),
	.fields = fields,
	.num_fields = CRPC_DIM(fields),
	.ep_fill = ep_fill};

int
__crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx)
{
	return crpc_tel_rpc_open(&ctx->tel, ctx->conf.max_eps);
}

crpc_noinline void
__crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx)
{
	crpc_tel_rpc_answer(ctx->tel, ctx, &ctx->stats, ctx->conf.max_eps);
}

int
crpc_copyrpc_dump(const struct crpc_copyrpc *ctx, FILE *out)
{
	struct tel_ep view;

	fprintf(out, "context: endpoints %u\n", ctx->neps);
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++)
		if (ep_fill(&view, ctx, i))
			crpc_tel_rpc_dump(&view, out);
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}
