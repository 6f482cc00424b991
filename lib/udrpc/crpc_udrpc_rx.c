/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: what may come from anybody is checked here, and goes to the client's or the server's
 * side of its session. And the turn of the loop: completions, timers, sending.
 */
#include "udrpc_pvt.h"

/* The session that a packet is for; NULL, counted: none, or not any more. */
static struct crpc_udrpc_ep *
ep_of(struct crpc_udrpc *ctx, const struct wire_pkt *h)
{
	struct crpc_udrpc_ep *ep;

	if (crpc_likely(h->session < ctx->conf.max_eps)) {
		ep = &ctx->eps[h->session];
		if (crpc_likely(ep->live && ep->token == h->token && ep->err == 0))
			return ep;
	}
	ctx->stats.bad_sessions++;
	return NULL;
}

/* The peer has ended the session. */
static void
rx_bye(struct crpc_udrpc_ep *ep)
{
	ep->ctx->stats.ep_errors++;
	__crpc_udrpc_ep_break(ep, -ECONNRESET);
}

/* One datagram. Returns completions: 0 or 1. */
static uint16_t
rx_packet(struct crpc_udrpc *ctx, const struct crpc_rdma_cqe *cqe, struct crpc_done *done)
{
	const uint8_t *data = cqe->data;
	struct crpc_udrpc_ep *ep;
	struct wire_pkt h;
	uint32_t bytes;

	ctx->stats.packets_received++;
	if (crpc_unlikely(cqe->byte_len < WIRE_HEAD)) {
		ctx->stats.rpc.malformed++;
		return 0;
	}
	memcpy(&h, data, WIRE_HEAD);
	data += WIRE_HEAD;
	bytes = cqe->byte_len - WIRE_HEAD;
	if (crpc_unlikely(h.magic != WIRE_MAGIC || h.kind >> 4 != WIRE_VERSION)) {
		ctx->stats.rpc.malformed++;
		return 0;
	}
	ep = ep_of(ctx, &h);
	if (ep == NULL)
		return 0;
	ep->heard = true;
	switch (h.kind & 15) {
	case WIRE_REQ:
		__crpc_udrpc_rx_req(ep, &h, data, bytes);
		return 0;
	case WIRE_RESP:
		return __crpc_udrpc_rx_resp(ep, &h, data, bytes, done);
	case WIRE_CR:
		__crpc_udrpc_rx_cr(ep, &h, bytes);
		return 0;
	case WIRE_RFR:
		__crpc_udrpc_rx_rfr(ep, &h, bytes);
		return 0;
	case WIRE_NOP:
		return 0;
	case WIRE_BYE:
		rx_bye(ep);
		return 0;
	default:
		ctx->stats.rpc.malformed++;
		return 0;
	}
}

/* The datagram queue is in error: nothing is sent or received on it any more. */
static void
queue_broke(struct crpc_udrpc *ctx, const struct crpc_rdma_cqe *cqe)
{
	uint32_t i;

	if (ctx->err != 0)
		return;
	crpc_err("the datagram queue broke: status %d, syndrome 0x%x: all endpoints end",
		cqe->status, cqe->syndrome);
	ctx->err = cqe->status;
	ctx->nbatch = 0;
	for (i = 0; i < ctx->conf.max_eps; i++) {
		if (!ctx->eps[i].live || ctx->eps[i].err != 0)
			continue;
		ctx->stats.ep_errors++;
		__crpc_udrpc_ep_break(&ctx->eps[i], -ECONNRESET);
	}
	/* what was in the send queue is flushed, not read */
	ctx->retired = ctx->put;
}

/* Take at most n entries of the completion queue, and return their number. */
static uint16_t
entries_take(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n, uint16_t *completions)
{
	const struct crpc_rdma_cqe *cqe = ctx->cqe;
	uint16_t got, k = 0, i;

	got = crpc_rdma_poll(ctx->dev, ctx->cqe, n);
	for (i = 0; i < got; i++, cqe++) {
		if (crpc_likely(cqe->type == CRPC_RDMA_CQE_DGRAM)) {
			k += rx_packet(ctx, cqe, &done[k]);
		} else if (cqe->type == CRPC_RDMA_CQE_ERROR) {
			queue_broke(ctx, cqe);
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

static void
timers_run(struct crpc_udrpc *ctx)
{
	struct wheel_entry *e, *next;

	ctx->busy_ns = 0;
	for (e = __crpc_udrpc_wheel_due(&ctx->rto_wheel, ctx->now_ns); e != NULL; e = next) {
		next = e->next;
		__crpc_udrpc_rto(crpc_container_of(e, struct crpc_udrpc_ep, rto));
	}
}

static void
paces_run(struct crpc_udrpc *ctx)
{
	struct wheel_entry *e, *next;

	for (e = __crpc_udrpc_wheel_due(&ctx->pace_wheel, ctx->now_ns); e != NULL; e = next) {
		next = e->next;
		__crpc_udrpc_tx_want(crpc_container_of(e, struct crpc_udrpc_ep, pace));
	}
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
	if (crpc_unlikely(ctx->end_list != NULL))
		k = __crpc_udrpc_calls_end(ctx, done, n);
	k += rpc_sweep_turn(&ctx->sweep, now_ns, false, done + k, (uint16_t)(n - k));
	if (crpc_likely(k != n)) {
		k += rx_run(ctx, done + k, (uint16_t)(n - k), &empty);
		k += rpc_sweep_turn(&ctx->sweep, now_ns, empty, done + k, (uint16_t)(n - k));
		/* Answers that arrived during a long time without polls come before timers. */
		if (empty)
			timers_run(ctx);
		else if (ctx->busy_ns == 0)
			ctx->busy_ns = now_ns;
		else if (now_ns - ctx->busy_ns >= ctx->conf.rto_ns)
			timers_run(ctx);
	}
	ctx->stats.rpc.completions += k;
	if (crpc_unlikely(ctx->pace_wheel.count != 0))
		paces_run(ctx);
	if (crpc_unlikely(ctx->tx_list != NULL))
		__crpc_udrpc_tx_run(ctx);
	return k;
}

uint32_t
crpc_udrpc_flush(struct crpc_udrpc *ctx, uint64_t now_ns)
{
	uint64_t before = ctx->stats.bursts;

	crpc_owner_check(&ctx->owner, "udrpc context");
	ctx->now_ns = now_ns;
	if (crpc_unlikely(ctx->tx_list != NULL))
		__crpc_udrpc_tx_run(ctx);
	__crpc_udrpc_tx_post(ctx);
	return (uint32_t)(ctx->stats.bursts - before);
}
