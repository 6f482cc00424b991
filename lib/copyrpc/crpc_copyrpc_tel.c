/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry and the dump, from the same tables. crpc_tel.h says how the owner answers,
 * crpc_tel_rpc.h what the commands are.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "copyrpc_large.h"
#include "crpc_tel_rpc.h"

/* What the owner knows of one endpoint. */
struct tel_ep {
	struct crpc_tel_rpc_ep base;
	uint64_t peer, epoch, ring_size, flow, arrival, open_calls, outstanding, onesided;
	uint64_t batches, requests_waiting, requests_open, large_taken, large_served;
	struct crpc_copyrpc_positions pos;
};

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_copyrpc_stats, name)

static const struct crpc_tel_counter counters[] = {
	CRPC_TEL_RPC_COUNTERS,
	COUNTER(flushes),
	COUNTER(batches_sent),
	COUNTER(messages_sent),
	COUNTER(bytes_sent),
	COUNTER(batches_received),
	COUNTER(messages_received),
	COUNTER(updates_sent),
	COUNTER(updates_received),
	COUNTER(reads_sent),
	COUNTER(fragments_sent),
	COUNTER(onesided),
	COUNTER(peers_lost),
	COUNTER(alive_sent),
	COUNTER(age_flushes),
	COUNTER(full_flushes),
	COUNTER(sq_full),
	COUNTER(again_window),
	COUNTER(again_reply),
	COUNTER(again_inflight),
	COUNTER(again_large),
	COUNTER(wraps),
	COUNTER(ep_errors),
};

_Static_assert(
	offsetof(struct crpc_copyrpc_stats, batch_size) == CRPC_DIM(counters) * sizeof(uint64_t),
	"every counter is reported");

static const struct crpc_tel_counter hists[] = {COUNTER(queue), COUNTER(wire), COUNTER(peer)};

#define FIELD(name, member)                                                                        \
	{                                                                                          \
		name, offsetof(struct tel_ep, member)                                              \
	}

static const struct crpc_tel_counter fields[] = {
	FIELD("peer", peer),
	FIELD("epoch", epoch),
	FIELD("ring_size", ring_size),
	FIELD("flow", flow),
	FIELD("arrival", arrival),
	FIELD("open_calls", open_calls),
	FIELD("flushes_outstanding", outstanding),
	FIELD("gets_and_puts_open", onesided),
	FIELD("batches_queued", batches),
	FIELD("requests_waiting", requests_waiting),
	FIELD("requests_open", requests_open),
	FIELD("large_areas_of_calls", large_taken),
	FIELD("large_areas_of_requests", large_served),
	FIELD("requests_queued_to", pos.requests_queued),
	FIELD("requests_sent", pos.requests_sent),
	FIELD("requests_released_by_peer", pos.requests_released_by_peer),
	FIELD("responses_sent", pos.responses_sent),
	FIELD("requests_arrived", pos.requests_arrived),
	FIELD("requests_released", pos.requests_released),
	FIELD("requests_reported", pos.requests_reported),
	FIELD("responses_arrived", pos.responses_arrived),
	FIELD("reply_room_reserved", pos.reply_room_reserved),
	FIELD("reply_room_reserved_by_peer", pos.reply_room_reserved_by_peer),
};

static struct crpc_tel_rpc tel_rpc = {.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct crpc_copyrpc_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.hists = hists,
	.num_hists = CRPC_DIM(hists),
	.ep_size = sizeof(struct tel_ep),
	.fields = fields,
	.num_fields = CRPC_DIM(fields)};

int
__crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx)
{
	struct crpc_tel_rpc_box *b = calloc(1, crpc_tel_rpc_size(ctx->conf.max_eps));

	if (b == NULL)
		return -ENOMEM;
	ctx->tel = &b->box;
	crpc_tel_open(&tel_rpc.contexts, ctx->tel);
	return 0;
}

void
__crpc_copyrpc_tel_close(struct crpc_copyrpc *ctx)
{
	crpc_tel_close(&tel_rpc.contexts, ctx->tel);
	free(ctx->tel);
}

static void
tel_ep_fill(struct tel_ep *out, const struct crpc_copyrpc_ep *ep)
{
	const struct conn *conn = ep->conn;

	*out = (struct tel_ep){.base = {.id = ep->id, .status = ep->err},
		.peer = ep->user_id,
		.epoch = conn->epoch,
		.ring_size = ep->ring_size,
		.flow = conn->conf.flow,
		.arrival = conn->conf.arrival,
		.open_calls = ep->calls.open,
		.outstanding = ep_outstanding(ep),
		.onesided = conn->onesided.tail - conn->onesided.head,
		.batches = ep->tx[WIRE_REQ].npend + ep->tx[WIRE_RESP].npend,
		.requests_waiting = ep->req_tail - ep->req_next,
		.requests_open = ep->req_next - ep->req_head,
		.large_taken = ep->large != NULL ? ep->large->taken : 0,
		.large_served = ep->large != NULL ? ep->large->served : 0};
	crpc_copyrpc_ep_positions(ep, &out->pos);
}

crpc_noinline void
__crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_begin(ctx->tel, &ctx->stats);
	uint32_t i;

	for (i = 0; b != NULL && i < ctx->conf.max_eps; i++) {
		if (ctx->eps[i] != NULL)
			tel_ep_fill(crpc_tel_rpc_ep_add(b), ctx->eps[i]);
	}
	if (b != NULL)
		crpc_tel_end(&b->box);
}

int
crpc_copyrpc_dump(const struct crpc_copyrpc *ctx, FILE *out)
{
	struct tel_ep view;
	uint32_t i, k;
	uint64_t value;

	fprintf(out, "context: endpoints %u\n", ctx->neps);
	for (i = 0; i < ctx->conf.max_eps; i++) {
		if (ctx->eps[i] == NULL)
			continue;
		tel_ep_fill(&view, ctx->eps[i]);
		fprintf(out, "endpoint %u: peer %" PRIu64 ", status %d\n", i, view.peer,
			view.base.status);
		for (k = 0; k < CRPC_DIM(fields); k++) {
			memcpy(&value, (const char *)&view + fields[k].at, sizeof(value));
			fprintf(out, "  %s %" PRIu64 "\n", fields[k].name, value);
		}
	}
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd(
		"/crpc/copyrpc/list", crpc_tel_rpc_list, "Numbers of the contexts. No parameters");
	rte_telemetry_register_cmd(
		"/crpc/copyrpc/stats", crpc_tel_rpc_stats, "Counters. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/latency", crpc_tel_rpc_latency,
		"Round trips in three parts. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/endpoints", crpc_tel_rpc_endpoints,
		"Numbers of the endpoints. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/endpoint", crpc_tel_rpc_endpoint,
		"State and positions. Parameters: context,endpoint");
}
