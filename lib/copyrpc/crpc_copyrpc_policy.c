/* SPDX-License-Identifier: BSD-3-Clause */
/* Flush policies: CLOCKED is the default; the others are for comparison. */
#include "copyrpc_modes.h"

#define HOLD_NS_MIN 500
#define HOLD_NS_MAX 100000

/* So many batches of one message are taken for a sign that the next one is too. */
#define SINGLE_BATCHES 8

/*
 * CLOCKED: a message goes at once if flush() would send it at the end of the turn and, as recent
 * batches had one message, none will join it until then. A second one in the turn shows that this
 * was wrong.
 */
static bool
clocked_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns)
{
	struct conn *conn = ep->conn;

	if (conn->single[which] < SINGLE_BATCHES)
		return false;
	if (conn->single_ns[which] == now_ns) {
		conn->single[which] = 0;
		return false;
	}
	conn->single_ns[which] = now_ns;
	return ep->tx[WIRE_REQ].npend + ep->tx[WIRE_RESP].npend == 1 &&
		ep_outstanding(ep) < ep->ctx->conf.max_outstanding;
}

/* CLOCKED: requests go along with responses, as that is one doorbell; alone by the clock or age. */
static bool
clocked_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;

	if (ep->tx[WIRE_RESP].npend != 0 || ep_outstanding(ep) < conf->max_outstanding)
		return true;
	if (lane_prod(&ep->tx[WIRE_REQ]) - ep->tx[WIRE_REQ].sent >= conf->batch_max) {
		ep->ctx->stats.full_flushes++;
		return true;
	}
	if (now_ns - ep->conn->queued_ns < conf->age_ns)
		return false;
	ep->ctx->stats.age_flushes++;
	return true;
}

static void
clocked_sending(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	uint32_t which = ep->tx[WIRE_RESP].npend != 0 ? WIRE_RESP : WIRE_REQ;

	if (ep->tx[WIRE_REQ].npend + ep->tx[WIRE_RESP].npend != 1)
		return;
	if (ep->tx[which].open.count != 1)
		ep->conn->single[which] = 0;
	else if (ep->conn->single[which] < SINGLE_BATCHES)
		ep->conn->single[which]++;
}

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
		.queued = clocked_queued,
		.due = clocked_due,
		.sending = clocked_sending},
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
