/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers, crpc_tel_rpc.h what the commands are. */
#include "udrpc_pvt.h"
#include "crpc_tel_rpc.h"

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_udrpc_stats, name)

static const struct crpc_tel_counter counters[] = {CRPC_TEL_RPC_COUNTERS, COUNTER(bursts),
	COUNTER(packets_sent), COUNTER(packets_received), COUNTER(bytes_sent),
	COUNTER(credit_returns), COUNTER(response_requests), COUNTER(drains), COUNTER(rtos),
	COUNTER(repeated), COUNTER(duplicates), COUNTER(out_of_order), COUNTER(stale),
	COUNTER(bad_sessions), COUNTER(tx_full), COUNTER(paced), COUNTER(rtt_samples),
	COUNTER(ep_errors)};
_Static_assert(offsetof(struct crpc_udrpc_stats, wire) == CRPC_DIM(counters) * sizeof(uint64_t),
	"every counter is in the table");

static const struct crpc_tel_counter hists[] = {COUNTER(wire), COUNTER(peer)};

static bool
ep_fill(void *to, void *of, uint32_t i)
{
	const struct crpc_udrpc *ctx = of;
	const struct crpc_udrpc_ep *ep = &ctx->eps[i];
	const struct crpc_tel_rpc_field fields[] = {{"peer", ep->user_id},
		{"open_calls", ep->calls.open}, {"credits_at_home", ep->credits},
		{"rate_bytes_per_s", (uint64_t)ep->timely.rate},
		{"silent_looks", ep->silent}}; /* in a row, without a sign of life */

	if (ep->live)
		crpc_tel_rpc_fill(to, i, ep->err, fields, CRPC_DIM(fields));
	return ep->live;
}

CRPC_TEL_RPC_OF(udrpc)
