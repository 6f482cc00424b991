/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flush policies: CLOCKED, the default, is in crpc_copyrpc_lane.c; the others are for comparison.
 */
#include "copyrpc_modes.h"

#define HOLD_NS_MIN 500
#define HOLD_NS_MAX 100000

static bool
immediate_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	return true;
}

static bool
deferred_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	return false;
}

static bool
deferred_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	return true;
}

static void
deferred_sending(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
}

/*
 * HOLD: requests go with every flush; replies wait until there is one for each peer, or no request
 * is left to answer, or a time has passed that follows from how fast messages go. This is
 * the adaptive batch hold of the original.
 */
static bool
hold_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	return ep->tx[WIRE_REQ].npend != 0 || ctx->hold_off || ep->req_head == ep->req_tail ||
		ep->tx[WIRE_RESP].open.count >= ctx->neps ||
		now_ns - ep->conn->queued_ns >= ctx->hold_ns;
}

/* The hold is the time in which as many messages pass as there are peers. */
static void
hold_sending(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint32_t messages = ep->tx[WIRE_RESP].npend != 0 ? ep->tx[WIRE_RESP].open.count : 1;
	uint64_t gap = (now_ns - ctx->hold_last_ns) / crpc_max(messages, 1);

	ctx->hold_gap_ns = (ctx->hold_gap_ns * 7 + gap) / 8;
	if (ctx->conf.hold_ns != 0) {
		/* hold_off stays false: the fixed hold does not look at the last batch */
		ctx->hold_ns = ctx->conf.hold_ns;
		return;
	}
	ctx->hold_ns = crpc_min(crpc_max(ctx->neps * ctx->hold_gap_ns, HOLD_NS_MIN), HOLD_NS_MAX);
	ctx->hold_last_ns = now_ns;
	ctx->hold_off = messages >= ctx->neps;
}

const struct flush_ops __crpc_copyrpc_flushes[] = {
	[CRPC_COPYRPC_CLOCKED] = {.clocked = true,
		.queued = __crpc_copyrpc_clocked_queued,
		.due = __crpc_copyrpc_clocked_due,
		.sending = __crpc_copyrpc_clocked_sending},
	[CRPC_COPYRPC_IMMEDIATE] = {.at_once = true,
		.queued = immediate_queued,
		.due = deferred_due,
		.sending = deferred_sending},
	[CRPC_COPYRPC_DEFERRED] = {.queued = deferred_queued,
		.due = deferred_due,
		.sending = deferred_sending},
	[CRPC_COPYRPC_HOLD] = {.holds = true,
		.queued = deferred_queued,
		.due = hold_due,
		.sending = hold_sending},
};
