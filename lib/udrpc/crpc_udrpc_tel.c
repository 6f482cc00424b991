/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers, crpc_tel_rpc.h what the commands are. */
#include <stdlib.h>

#include "udrpc_pvt.h"
#include "crpc_tel_rpc.h"

/* What is reported of one endpoint. */
struct tel_ep {
	struct crpc_tel_rpc_ep base;
	uint64_t peer, open_calls, credits_at_home, rate_bytes_per_s;
};

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_udrpc_stats, name)

static const struct crpc_tel_counter counters[] = {
	CRPC_TEL_RPC_COUNTERS,
	COUNTER(bursts),
	COUNTER(packets_sent),
	COUNTER(packets_received),
	COUNTER(bytes_sent),
	COUNTER(credit_returns),
	COUNTER(response_requests),
	COUNTER(drains),
	COUNTER(rtos),
	COUNTER(repeated),
	COUNTER(duplicates),
	COUNTER(out_of_order),
	COUNTER(stale),
	COUNTER(bad_sessions),
	COUNTER(tx_full),
	COUNTER(paced),
	COUNTER(rtt_samples),
	COUNTER(ep_errors),
};

_Static_assert(offsetof(struct crpc_udrpc_stats, wire) == CRPC_DIM(counters) * sizeof(uint64_t),
	"every counter is in the table");

static const struct crpc_tel_counter hists[] = {COUNTER(wire), COUNTER(peer)};

#define FIELD(name) CRPC_TEL_COUNTER(struct tel_ep, name)

static const struct crpc_tel_counter fields[] = {
	FIELD(peer), FIELD(open_calls), FIELD(credits_at_home), FIELD(rate_bytes_per_s)};

static struct crpc_tel_rpc tel_rpc = {.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct crpc_udrpc_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.hists = hists,
	.num_hists = CRPC_DIM(hists),
	.ep_size = sizeof(struct tel_ep),
	.fields = fields,
	.num_fields = CRPC_DIM(fields)};

int
__crpc_udrpc_tel_open(struct crpc_udrpc *ctx)
{
	struct crpc_tel_rpc_box *b = calloc(1, crpc_tel_rpc_size(ctx->conf.max_eps));

	if (b == NULL)
		return -ENOMEM;
	ctx->tel = &b->box;
	crpc_tel_open(&tel_rpc.contexts, ctx->tel);
	return 0;
}

void
__crpc_udrpc_tel_close(struct crpc_udrpc *ctx)
{
	crpc_tel_close(&tel_rpc.contexts, ctx->tel);
	free(ctx->tel);
}

crpc_noinline void
__crpc_udrpc_tel_answer(struct crpc_udrpc *ctx)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_begin(ctx->tel, &ctx->stats);
	const struct crpc_udrpc_ep *ep;
	uint32_t i;

	for (i = 0; b != NULL && i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (ep->live)
			*(struct tel_ep *)crpc_tel_rpc_ep_add(b) =
				(struct tel_ep){.base = {.id = i, .status = ep->err},
					.peer = ep->user_id,
					.open_calls = ep->calls.open,
					.credits_at_home = ep->credits,
					.rate_bytes_per_s = crpc_udrpc_ep_rate(ep)};
	}
	if (b != NULL)
		crpc_tel_end(&b->box);
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd("/crpc/udrpc/list", crpc_tel_rpc_list,
		"Numbers of the contexts. No parameters");
	rte_telemetry_register_cmd(
		"/crpc/udrpc/stats", crpc_tel_rpc_stats, "Counters. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/latency", crpc_tel_rpc_latency,
		"Round trips in two parts. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/endpoints", crpc_tel_rpc_endpoints,
		"Numbers of the endpoints. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/endpoint", crpc_tel_rpc_endpoint,
		"Status, credits and rate. Parameters: context,endpoint");
}
