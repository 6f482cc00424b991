/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The default path, top to bottom: call, poll, recv, reply. udrpc_pvt.h draws the numbers.
 *
 * What a message needs only sometimes is behind a function of another file: packets are checked,
 * and those that repeat or move pieces of long messages are answered (packet), sending waits for
 * room or credits (tx), for its rate, or repeats (time), an endpoint ends (ep).
 */
#include "udrpc_pvt.h"

/* ---- call ---- */

/* Packet number k of the call. False: no room. */
static bool
packet_send(struct crpc_udrpc_ep *ep, struct udrpc_call *c, uint32_t k)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct wire_pkt *h;
	uint32_t at, bytes;

	if (crpc_unlikely(k >= c->parts)) {
		if (!__crpc_udrpc_tx_short(
			    ep, WIRE_RFR, c->index, c->req, (uint16_t)(k - c->parts + 1)))
			return false;
		ctx->stats.response_requests++;
	} else {
		at = k * ep->piece;
		bytes = wire_piece(c->len, ep->piece, k);
		h = tx_put(ep, c->req_buf + at, bytes);
		if (h == NULL)
			return false;
		h->kind = WIRE_KIND(WIRE_REQ);
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
	if (crpc_unlikely(c->drain) && !__crpc_udrpc_drained(ep, c->tx_seq))
		return true;
	c->drain = false;
	while (c->num_tx != c->total) {
		if (ep->credits == 0 || !tx_room(ctx))
			return true;
		if (crpc_unlikely(ep->timely.rate < ctx->timely.link) &&
			!__crpc_udrpc_pace(ep, c, c->num_tx))
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
	/* what waits already goes first */
	if (crpc_likely(!ep->in_sending) && !__crpc_udrpc_call_send(ep, c))
		return;
	__crpc_udrpc_want(ep, c);
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
	if (crpc_unlikely(!ep->timed))
		__crpc_udrpc_timer_start(ep);
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

/* ---- poll ---- */

/* Copy the head of a datagram. Returns the session that it is for; NULL, counted: there is none. */
static inline struct crpc_udrpc_ep *
packet_check(struct crpc_udrpc *ctx, const uint8_t *data, uint32_t byte_len, struct wire_pkt *h)
{
	struct crpc_udrpc_ep *ep;

	ctx->stats.packets_received++;
	if (crpc_unlikely(byte_len < WIRE_HEAD)) {
		ctx->stats.rpc.malformed++;
		return NULL;
	}
	memcpy(h, data, WIRE_HEAD);
	if (crpc_unlikely(h->magic != WIRE_MAGIC || h->kind >> 4 != WIRE_VERSION)) {
		ctx->stats.rpc.malformed++;
		return NULL;
	}
	ep = &ctx->eps[crpc_min(h->session, ctx->conf.max_eps - 1)];
	if (crpc_unlikely(
		    ep->id != h->session || !ep->live || ep->token != h->token || ep->err != 0)) {
		ctx->stats.bad_sessions++;
		return NULL;
	}
	ep->heard = true;
	return ep;
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

/* A piece of a response. Returns completions: 0 or 1. */
static uint16_t
resp_take(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, const uint8_t *data, uint32_t bytes,
	struct crpc_done *done)
{
	struct udrpc_call *c = __crpc_udrpc_resp_check(ep, h, bytes);
	uint32_t k;

	if (crpc_unlikely(c == NULL))
		return 0;
	k = c->parts - 1 + h->pkt;
	answered(ep, c, k, h->pkt == 0 ? h->arg : 0);
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

/* A piece of a request that was not there yet: all before it are. */
static void
req_take(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, const uint8_t *data, uint32_t bytes)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct udrpc_serve *s = __crpc_udrpc_req_check(ep, h, bytes);

	if (crpc_unlikely(s == NULL))
		return;
	rpc_copy(s->req_buf + h->pkt * ep->piece, data, bytes);
	if (crpc_unlikely(++s->num_rx != s->parts)) {
		__crpc_udrpc_req_answer(ep, s, h->pkt);
		return;
	}
	s->state = SERVE_READY;
	s->whole_ns = ctx->now_ns;
	TAILQ_INSERT_TAIL(&ctx->ready, s, list);
}

/* One datagram. Returns completions: 0 or 1. */
static inline uint16_t
packet_take(struct crpc_udrpc *ctx, const struct crpc_rdma_cqe *cqe, struct crpc_done *done)
{
	const uint8_t *data = cqe->data;
	uint32_t bytes = cqe->byte_len - WIRE_HEAD;
	struct wire_pkt h;
	struct crpc_udrpc_ep *ep = packet_check(ctx, data, cqe->byte_len, &h);

	if (crpc_unlikely(ep == NULL))
		return 0;
	data += WIRE_HEAD;
	switch (h.kind) {
	case WIRE_KIND(WIRE_RESP):
		return resp_take(ep, &h, data, bytes, done);
	case WIRE_KIND(WIRE_REQ):
		req_take(ep, &h, data, bytes);
		return 0;
	default:
		__crpc_udrpc_packet_other(ep, &h, bytes);
		return 0;
	}
}

/* Take at most n entries of the completion queue, and return their number. */
static uint16_t
entries_take(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n, uint16_t *completions)
{
	const struct crpc_rdma_cqe *cqe = ctx->cqe;
	uint16_t got, k = 0;

	got = crpc_rdma_poll(ctx->dev, ctx->cqe, n);
	for (uint16_t i = 0; i < got; i++, cqe++) {
		if (crpc_likely(cqe->type == CRPC_RDMA_CQE_DGRAM)) {
			k += packet_take(ctx, cqe, &done[k]);
		} else if (cqe->type == CRPC_RDMA_CQE_ERROR) {
			__crpc_udrpc_queue_broke(ctx, cqe);
		} else if (cqe->type == CRPC_RDMA_CQE_SEND && ctx->err == 0) {
			ctx->retired += cqe->wrs;
		}
	}
	ctx->sweep.taken += k;
	rpc_sweep_saw(&ctx->sweep, got, (uint64_t)ctx->conf.sq_depth + ctx->conf.rq_depth);
	*completions = k;
	return got;
}

/*
 * Take entries until a call completes, whose data lies in the device's memory until it is polled
 * again, or the queue is empty, or as many were taken as a poll can give. Returns completions.
 */
static uint16_t
rx_run(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n, bool *empty)
{
	uint16_t got, k, taken = 0;

	do {
		got = entries_take(ctx, done, n, &k);
		taken = (uint16_t)(taken + got);
		*empty = got < n;
	} while (crpc_unlikely(k == 0 && !*empty && taken < CRPC_BURST_MAX));
	return k;
}

uint16_t
crpc_udrpc_poll(struct crpc_udrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t k = 0;
	bool empty;

	crpc_owner_check(&ctx->owner, "udrpc context");
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	ctx->now_ns = now_ns;
	if (crpc_unlikely(crpc_tel_asked(ctx->tel)))
		__crpc_udrpc_tel_answer(ctx);
	__crpc_udrpc_tx_post(ctx);
	if (crpc_unlikely(!TAILQ_EMPTY(&ctx->ending)))
		k = __crpc_udrpc_calls_end(ctx, done, n);
	k += rpc_sweep_turn(&ctx->sweep, now_ns, false, done + k, (uint16_t)(n - k));
	if (crpc_likely(k != n)) {
		k += rx_run(ctx, done + k, (uint16_t)(n - k), &empty);
		k += rpc_sweep_turn(&ctx->sweep, now_ns, empty, done + k, (uint16_t)(n - k));
		/* Answers that arrived during a long time without polls come before timers. */
		if (empty)
			ctx->busy_ns = 0;
		else if (ctx->busy_ns == 0)
			ctx->busy_ns = now_ns;
		if (crpc_unlikely(timer_due(ctx) != NULL) &&
			(empty || now_ns - ctx->busy_ns >= ctx->conf.rto_ns))
			__crpc_udrpc_timers_run(ctx);
	}
	ctx->stats.rpc.completions += k;
	if (crpc_unlikely(!TAILQ_EMPTY(&ctx->sending)))
		__crpc_udrpc_tx_run(ctx);
	return k;
}

uint32_t
crpc_udrpc_flush(struct crpc_udrpc *ctx, uint64_t now_ns)
{
	uint64_t before = ctx->stats.bursts;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	if (crpc_unlikely(!TAILQ_EMPTY(&ctx->sending)))
		__crpc_udrpc_tx_run(ctx);
	__crpc_udrpc_tx_post(ctx);
	return (uint32_t)(ctx->stats.bursts - before);
}

/* ---- recv ---- */

uint16_t
crpc_udrpc_recv(struct crpc_udrpc *ctx, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	struct udrpc_serve *s;
	uint16_t k;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	for (k = 0; k < n && (s = TAILQ_FIRST(&ctx->ready)) != NULL; k++) {
		TAILQ_REMOVE(&ctx->ready, s, list);
		s->state = SERVE_OPEN;
		s->token = ctx->next_token++ << (TOKEN_EP_BITS + TOKEN_SLOT_BITS) |
			(uint64_t)s->index << TOKEN_EP_BITS | s->ep->id;
		req[k] = (struct crpc_req){.token = s->token,
			.data = s->req_buf,
			.len = s->len,
			.peer = s->ep->user_id};
	}
	ctx->stats.rpc.requests += k;
	return k;
}

/* ---- reply ---- */

bool
__crpc_udrpc_resp_send(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint32_t pkt)
{
	struct wire_pkt *h =
		tx_put(ep, s->resp_buf + pkt * ep->piece, wire_piece(s->resp_len, ep->piece, pkt));

	if (h == NULL)
		return false;
	h->kind = WIRE_KIND(WIRE_RESP);
	h->slot = s->index;
	h->req = s->req;
	h->pkt = (uint16_t)pkt;
	h->status = s->status;
	h->len = s->resp_len;
	h->arg = s->turn_ns;
	return true;
}

/* The open request that a token names, or NULL. */
static struct udrpc_serve *
serve_of(const struct crpc_udrpc *ctx, uint64_t token)
{
	uint32_t id = token & (CRPC_UDRPC_EPS_MAX - 1);
	uint32_t slot = token >> TOKEN_EP_BITS & (CRPC_UDRPC_SLOTS_MAX - 1);
	struct udrpc_serve *s;

	if (id >= ctx->conf.max_eps || slot >= ctx->conf.slots)
		return NULL;
	s = &ctx->eps[id].serves[slot];
	return s->state == SERVE_OPEN && s->token == token ? s : NULL;
}

/* End a request, and send the first piece of the answer. */
crpc_inline int
serve_end(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len,
	int32_t status, bool release)
{
	struct udrpc_serve *s = serve_of(ctx, token);
	uint64_t took;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	if (crpc_unlikely(s == NULL))
		return -ENOENT;
	if (crpc_unlikely(s->resp_max == WIRE_ONEWAY && !release))
		return -EOPNOTSUPP;
	if (crpc_unlikely(s->ep->err != 0)) {
		s->state = SERVE_IDLE;
		ctx->stats.rpc.replies++;
		return -ECONNRESET;
	}
	if (crpc_unlikely(len > s->resp_max))
		return -EMSGSIZE;
	rpc_copy(s->resp_buf, buf, len);
	took = now_ns - s->whole_ns;
	s->state = SERVE_DONE;
	s->resp_len = len;
	s->status = (uint16_t)-status;
	s->turn_ns = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
	ctx->stats.rpc.replies++;
	if (crpc_likely(__crpc_udrpc_resp_send(s->ep, s, 0)))
		return 0;
	__crpc_udrpc_resp_later(s);
	return 0;
}

int
crpc_udrpc_reply(
	struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	return serve_end(ctx, now_ns, token, buf, len, 0, false);
}

int
crpc_udrpc_fail(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status)
{
	if (status >= 0 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	return serve_end(ctx, now_ns, token, NULL, 0, status, false);
}

int
crpc_udrpc_release(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token)
{
	return serve_end(ctx, now_ns, token, NULL, 0, 0, true);
}
