/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side: calls, their packets and the answers to them, going back, and ends that are
 * not replies. udrpc_pvt.h draws the numbers.
 */
#include "udrpc_pvt.h"

/* Whether all copies of what was sent have left; if not, see that it becomes known. */
static bool
call_drained(struct crpc_udrpc_ep *ep, const struct udrpc_call *c)
{
	if (ep->ctx->retired >= c->tx_seq)
		return true;
	__crpc_udrpc_drain(ep, c->tx_seq);
	return false;
}

/* Bytes that packet number k moves: its own, or those that it asks for. */
static uint32_t
packet_weight(const struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k)
{
	return WIRE_HEAD + (k < c->parts ? wire_piece(c->len, ep->piece, k)
					 : wire_piece(c->resp_len, ep->piece, k - c->parts + 1));
}

/* Whether the rate lets packet number k go now; if not, the wheel brings the endpoint back. */
static crpc_noinline bool
pace(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k)
{
	struct crpc_udrpc *ctx = ep->ctx;
	uint64_t from;

	if (ep->next_tx_ns > ctx->now_ns) {
		if (ep->pace.at == NULL) {
			__crpc_udrpc_wheel_add(
				&ctx->pace_wheel, &ep->pace, ctx->now_ns, ep->next_tx_ns);
			ctx->stats.paced++;
		}
		return false;
	}
	/* who was polled late catches up a little */
	from = crpc_max(ep->next_tx_ns, crpc_max(ctx->now_ns, PACE_BURST_NS) - PACE_BURST_NS);
	ep->next_tx_ns = from + (uint64_t)(packet_weight(ep, c, k) * 1e9 / ep->timely.rate);
	return true;
}

/* Packet number k of the call. False: no room. */
static bool
packet_send(struct crpc_udrpc_ep *ep, struct udrpc_call *c, uint32_t k)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct wire_pkt *h;
	uint32_t at, bytes;

	if (crpc_unlikely(k >= c->parts)) {
		if (!__crpc_udrpc_tx_short(ep, WIRE_RFR, c->index, c->req,
			    (uint16_t)(k - c->parts + 1)))
			return false;
		ctx->stats.response_requests++;
	} else {
		at = k * ep->piece;
		bytes = wire_piece(c->len, ep->piece, k);
		h = tx_put(ep, c->req_buf + at, bytes);
		if (h == NULL)
			return false;
		h->kind = wire_kind(WIRE_REQ);
		h->slot = c->index;
		h->req = c->req;
		h->pkt = (uint16_t)k;
		h->status = 0;
		h->len = c->len;
		h->arg = c->oneway ? WIRE_ONEWAY : c->resp_max;
	}
	c->sent_ns[k & ctx->credit_mask] = ctx->now_ns;
	c->progress_ns = ctx->now_ns;
	c->tx_seq = ctx->put;
	return true;
}

bool
__crpc_udrpc_call_send(struct crpc_udrpc_ep *ep, struct udrpc_call *c)
{
	struct crpc_udrpc *ctx = ep->ctx;

	if (crpc_unlikely(c->call.deadline_ns == RPC_FREE || ep->err != 0))
		return false;
	if (crpc_unlikely(c->drain) && !call_drained(ep, c))
		return true;
	c->drain = false;
	while (c->num_tx != c->total) {
		if (ep->credits == 0 || !tx_room(ctx))
			return true;
		if (crpc_unlikely(ep->timely.rate < ctx->timely.link) && !pace(ep, c, c->num_tx))
			return true;
		if (!packet_send(ep, c, c->num_tx))
			return true;
		ep->credits--;
		if (++c->num_tx > c->num_hi)
			c->num_hi = c->num_tx;
	}
	return false;
}

/* Send now what may go, and the rest when it may. */
static void
call_push(struct crpc_udrpc_ep *ep, struct udrpc_call *c)
{
	/* who waits already goes first */
	if (crpc_likely(!ep->in_tx) && !__crpc_udrpc_call_send(ep, c))
		return;
	slot_set(ep->want, c->index);
	if (ep->pace.at == NULL)
		__crpc_udrpc_tx_want(ep);
}

/* Take a slot for a request of either kind. */
crpc_inline int
request_make(struct crpc_udrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie, bool oneway)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct rpc_call *call;
	struct udrpc_call *c;

	crpc_owner_check(&ctx->owner, "udrpc context");
	if (crpc_unlikely(ep->err != 0))
		return ep->err == -ENOTCONN ? -ENOTCONN : -ECONNRESET;
	if (crpc_unlikely(len > ep->max_msg || resp_max > ep->max_msg))
		return -EMSGSIZE;
	call = rpc_calls_take(&ep->calls, cookie, rpc_deadline(now_ns, ctx->conf.timeout_ns));
	if (crpc_unlikely(call == NULL)) {
		ctx->stats.rpc.again++;
		return -EAGAIN;
	}
	ctx->now_ns = now_ns;
	c = crpc_container_of(call, struct udrpc_call, call);
	c->oneway = oneway;
	if (oneway) { /* Completed now: its slot waits for the release as for a late reply. */
		call->deadline_ns = RPC_ENDED;
		ep->calls.open--;
		ep->calls.ended++;
	}
	c->drain = c->again = false;
	c->req++;
	c->num_tx = c->num_rx = c->num_hi = 0;
	c->parts = c->total = wire_pkts(len, ep->piece);
	c->len = len;
	c->resp_max = resp_max;
	c->call_ns = now_ns;
	rpc_copy(c->req_buf, buf, len);
	if (crpc_unlikely(ep->rto.at == NULL))
		__crpc_udrpc_wheel_add(
			&ctx->rto_wheel, &ep->rto, now_ns, now_ns + ctx->conf.rto_ns);
	call_push(ep, c);
	return 0;
}

int
crpc_udrpc_call(struct crpc_udrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	int rc = request_make(ep, now_ns, buf, len, resp_max, cookie, false);

	ep->ctx->stats.rpc.calls += rc == 0;
	return rc;
}

int
crpc_udrpc_notify(struct crpc_udrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	int rc = request_make(ep, now_ns, buf, len, 0, 0, true);

	ep->ctx->stats.rpc.notifies += rc == 0;
	return rc;
}

/* A round trip of packet number k, less what the server took. */
static void
rtt_sample(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k, uint32_t turn_ns)
{
	struct crpc_udrpc *ctx = ep->ctx;
	uint64_t rtt = ctx->now_ns - c->sent_ns[k & ctx->credit_mask];

	/* of which copy the answer is, is not known (P. Karn) */
	if (crpc_unlikely(c->again || ctx->conf.no_congestion_control))
		return;
	rtt -= crpc_min(turn_ns, rtt);
	if (crpc_likely(timely_bypass(&ep->timely, &ctx->timely, rtt)))
		return;
	__crpc_udrpc_timely_sample(&ep->timely, &ctx->timely, ctx->now_ns, rtt);
	ctx->stats.rtt_samples++;
}

/* The call that a packet to slot and request answers; NULL, counted: none. */
static struct udrpc_call *
call_of(struct crpc_udrpc_ep *ep, const struct wire_pkt *h)
{
	struct udrpc_call *c;

	if (crpc_unlikely(h->slot >= ep->slots)) {
		ep->ctx->stats.rpc.malformed++;
		return NULL;
	}
	c = call_at(ep, h->slot);
	if (crpc_unlikely(c->call.deadline_ns == RPC_FREE || c->req != h->req)) {
		ep->ctx->stats.stale++;
		return NULL;
	}
	return c;
}

/*
 * All up to number k has been answered; after going back perhaps before it was sent again. The
 * credits of those that were out come home.
 */
static void
answered(struct crpc_udrpc_ep *ep, struct udrpc_call *c, uint32_t k)
{
	uint32_t upto = crpc_likely(k < c->num_tx) ? k + 1 : c->num_tx;

	ep->credits += upto - c->num_rx;
	c->num_rx = k + 1;
	c->num_tx += k + 1 - upto;
	c->progress_ns = ep->ctx->now_ns;
}

void
__crpc_udrpc_rx_cr(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes)
{
	struct udrpc_call *c = call_of(ep, h);
	struct crpc_udrpc *ctx = ep->ctx;
	uint32_t k = h->pkt;

	if (c == NULL)
		return;
	if (bytes != 0 || k >= c->parts) {
		ctx->stats.rpc.malformed++;
		return;
	}
	/* the server has the whole request and works on it: no credit, but a sign of life */
	if (k == c->parts - 1)
		return;
	if (k < c->num_rx || k >= c->num_hi) {
		ctx->stats.stale++;
		return;
	}
	rtt_sample(ep, c, k, 0);
	answered(ep, c, k);
}

/* Whether a piece of a response fits its call; counts if not. */
static bool
resp_ok(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, const struct wire_pkt *h,
	uint32_t bytes)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	uint32_t k = c->parts - 1 + h->pkt;

	if (h->len > c->resp_max || h->status > 4095 || (h->status != 0 && h->len != 0) ||
		h->pkt >= wire_pkts(h->len, ep->piece) ||
		bytes != wire_piece(h->len, ep->piece, h->pkt) ||
		(h->pkt != 0 && k < c->total && h->len != c->resp_len)) {
		stats->rpc.malformed++;
		return false;
	}
	if (crpc_unlikely(k < c->num_rx || k >= c->num_hi)) {
		stats->stale++;
		return false;
	}
	/* the first piece answers all of the request; those behind it come one by one */
	if (crpc_unlikely(h->pkt != 0 && k != c->num_rx)) {
		stats->out_of_order++;
		return false;
	}
	return true;
}

/* The reply is whole. Returns completions. */
static uint16_t
call_done(struct crpc_udrpc_ep *ep, struct udrpc_call *c, int status, const void *data,
	struct crpc_done *done)
{
	struct crpc_udrpc_stats *stats = &ep->ctx->stats;
	uint64_t took = ep->ctx->now_ns - c->call_ns, turn = crpc_min(c->turn_ns, took);

	ep->credits += c->num_tx - c->num_rx;
	if (crpc_unlikely(c->oneway)) {
		ep->calls.ended--;
		rpc_calls_free(&ep->calls, &c->call);
		return 0;
	}
	if (!rpc_calls_reply(&ep->calls, &c->call, status == 0 ? data : NULL, c->resp_len, -status,
		    &stats->rpc, done))
		return 0;
	if (crpc_likely(done->status == 0)) {
		crpc_hist_record(&stats->wire, took - turn);
		crpc_hist_record(&stats->peer, turn);
	}
	return 1;
}

uint16_t
__crpc_udrpc_rx_resp(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, const uint8_t *data,
	uint32_t bytes, struct crpc_done *done)
{
	struct udrpc_call *c = call_of(ep, h);
	uint32_t k;

	if (c == NULL || !resp_ok(ep, c, h, bytes))
		return 0;
	k = c->parts - 1 + h->pkt;
	rtt_sample(ep, c, k, h->pkt == 0 ? h->arg : 0);
	answered(ep, c, k);
	if (h->pkt == 0) {
		c->resp_len = h->len;
		c->turn_ns = h->arg;
		c->total = c->parts + wire_pkts(h->len, ep->piece) - 1;
		if (crpc_likely(c->total == c->parts))
			return call_done(ep, c, h->status, data, done);
	}
	rpc_copy(c->resp_buf + h->pkt * ep->piece, data, bytes);
	if (c->num_rx == c->total)
		return call_done(ep, c, 0, c->resp_buf, done);
	call_push(ep, c);
	return 0;
}

/* ---- ends that are not replies ---- */

uint16_t
__crpc_udrpc_calls_end(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n)
{
	struct crpc_udrpc_ep *ep;
	uint16_t k = 0;

	while ((ep = ctx->end_list) != NULL) {
		k += __crpc_calls_drop(
			&ep->calls, -ECONNRESET, &ctx->stats.rpc, done + k, (uint16_t)(n - k));
		if (ep->calls.open + ep->calls.ended != 0)
			break;
		ctx->end_list = ep->end_next;
		ep->in_end = false;
	}
	return k;
}

uint32_t
crpc_udrpc_cancel(struct crpc_udrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&ep->ctx->owner, "udrpc context");
	ep->ctx->now_ns = now_ns;
	return __crpc_calls_cancel(&ep->calls, &ep->ctx->sweep, cookie);
}

/* ---- time ---- */

/* Nothing has come for this call: all that is unanswered goes again, when its copies have left. */
static void
go_back(struct crpc_udrpc_ep *ep, struct udrpc_call *c)
{
	struct crpc_udrpc *ctx = ep->ctx;

	ctx->stats.rtos++;
	ctx->stats.repeated += c->num_tx - c->num_rx;
	ep->credits += c->num_tx - c->num_rx;
	c->num_tx = c->num_rx;
	c->drain = true;
	c->again = true;
	slot_set(ep->want, c->index);
	__crpc_udrpc_tx_want(ep);
}

void
__crpc_udrpc_rto(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx = ep->ctx;
	uint64_t rto_ns = ctx->conf.rto_ns, next = ctx->now_ns + rto_ns;
	struct udrpc_call *c;
	bool back = false;
	uint32_t i;

	for (i = 0; i < ep->slots; i++) {
		c = call_at(ep, i);
		if (c->call.deadline_ns == RPC_FREE || c->num_tx == c->num_rx)
			continue;
		if (ctx->now_ns - c->progress_ns >= rto_ns) {
			go_back(ep, c);
			back = true;
		} else {
			next = crpc_min(next, c->progress_ns + rto_ns);
		}
	}
	if (ep->heard)
		ep->silent = 0;
	else if (back)
		ep->silent++;
	ep->heard = false;
	if (ep->silent > ctx->conf.retries) {
		crpc_err("endpoint %u (peer %u): no answer to %u repetitions: the peer is declared "
			 "dead",
			ep->id, ep->user_id, ctx->conf.retries);
		ctx->stats.ep_errors++;
		__crpc_udrpc_ep_break(ep, -ETIMEDOUT);
	} else if (calls_in_use(ep) != 0) {
		__crpc_udrpc_wheel_add(&ctx->rto_wheel, &ep->rto, ctx->now_ns, next);
	}
}
