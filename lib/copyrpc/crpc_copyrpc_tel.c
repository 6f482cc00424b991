/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers, crpc_tel_rpc.h what the commands are. */
#include "copyrpc_large.h"
#include "crpc_tel_rpc.h"

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

static void
ep_report(struct crpc_tel_rpc_ep *to, const struct crpc_copyrpc_ep *ep)
{
	const struct tx_lane *req = &ep->tx[WIRE_REQ], *resp = &ep->tx[WIRE_RESP];
	const struct large *large = ep->large;
	const struct conn *conn = ep->conn;
	const struct crpc_tel_rpc_field fields[] = {{"peer", ep->user_id}, {"epoch", conn->epoch},
		{"ring_size", ep->ring_size}, {"flow", conn->conf.flow},
		{"arrival", conn->conf.arrival}, {"open_calls", ep->calls.open},
		{"flushes_outstanding", ep_outstanding(ep)},
		{"gets_and_puts_open", conn->onesided.open},
		{"batches_queued", req->npend + resp->npend},
		{"requests_waiting", ep->req_tail - ep->req_next},
		{"requests_open", ep->req_next - ep->req_head},
		{"large_areas_of_calls", large != NULL ? large->taken : 0},
		{"large_areas_of_requests", large != NULL ? large->served : 0},
		{"requests_queued_to", lane_prod(req)}, {"requests_sent", req->sent},
		{"requests_released_by_peer", conn->peer_released}, {"responses_sent", resp->sent},
		{"requests_arrived", conn->rx_pos[WIRE_REQ]}, {"requests_released", conn->released},
		{"requests_reported", conn->reported},
		{"responses_arrived", conn->rx_pos[WIRE_RESP]},
		{"reply_room_reserved", room_sum(&ep->resv) - ep->hold},
		{"reply_room_reserved_by_peer", room_sum(&conn->peer_resv)}};

	crpc_tel_rpc_fill(to, ep->id, ep->err, fields, CRPC_DIM(fields));
}

static bool
ep_fill(void *to, void *of, uint32_t i)
{
	const struct crpc_copyrpc *ctx = of;

	if (ctx->eps[i] != NULL)
		ep_report(to, ctx->eps[i]);
	return ctx->eps[i] != NULL;
}

CRPC_TEL_RPC_OF(copyrpc)
