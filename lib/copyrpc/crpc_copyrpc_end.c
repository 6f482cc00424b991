/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How calls end without a reply: their endpoint broke, their deadline passed, or they were given
 * up. All of it is carried on by poll(), a bounded piece at a time.
 */
#include "copyrpc_pvt.h"

/* One more that ends because its endpoint broke. */
static inline struct crpc_done
reset_done(uint64_t cookie)
{
	return (struct crpc_done){.cookie = cookie, .status = -ECONNRESET};
}

/* End the open calls of a broken endpoint, at most n; fail_at is where the next time begins. */
static uint16_t
calls_fail(struct crpc_copyrpc_ep *ep, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct call_slot *slot;
	uint16_t k = 0;

	for (; ep->fail_at <= ctx->conf.max_inflight; ep->fail_at++) {
		slot = &ep->slots[ep->fail_at];
		if (slot->call_ns == SLOT_FREE)
			continue;
		if (slot_is_open(slot)) {
			if (k == n)
				return k;
			done[k++] = reset_done(slot->cookie);
			ep->ended++;
			ctx->stats.completions++;
			ctx->stats.resets++;
		}
		room_sub(&ep->resv, ep_worst(ep, slot->kind.resp_max));
		__crpc_copyrpc_large_end(ep, slot, 0);
		slot_free(ep, slot);
	}
	return k;
}

/*
 * End its gets and puts, at most n. The queue pair may work as well as ever, so it goes first: with
 * it the device lets go of their memory.
 */
static uint16_t
onesided_fail(struct crpc_copyrpc_ep *ep, struct crpc_done *done, uint16_t n)
{
	uint16_t k;

	if (ep->op_head == ep->op_tail || (ep->qp != NULL && crpc_rdma_qp_drain(ep->qp) != 0))
		return 0;
	crpc_rdma_qp_free(ep->qp);
	ep->qp = NULL;
	for (k = 0; k < n && ep->op_head != ep->op_tail; k++) {
		__crpc_copyrpc_onesided_take(ep, &done[k]);
		done[k] = reset_done(done[k].cookie);
	}
	return k;
}

/* What is open of broken endpoints ends, as far as done[] has room; each has its turn. */
static uint16_t
broken_take(struct crpc_copyrpc *ctx, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep;
	uint32_t left;
	uint16_t k = 0;

	for (left = ctx->broken.n; left != 0 && k < n; left--) {
		ep = ctx->eps[ctx->broken.head];
		ctx->broken.head = ep->broken_next;
		ctx->broken.n--;
		ep->flags &= ~EP_BROKEN;
		k += calls_fail(ep, done + k, n - k);
		k += onesided_fail(ep, done + k, n - k);
		if (ep->fail_at <= ctx->conf.max_inflight || ep->op_head != ep->op_tail)
			__crpc_copyrpc_ep_broken(ep);
	}
	return k;
}

/* Expire the overdue calls among the next slots of one endpoint. Returns slots looked at. */
static uint32_t
sweep_ep(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint32_t budget, struct crpc_done *done,
		uint16_t n, uint16_t *filled)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint32_t i, seen = 0;
	struct call_slot *slot;
	bool canceled;

	for (i = ctx->sweep_slot; i <= ctx->conf.max_inflight && seen < budget && *filled < n;
			i++, seen++) {
		slot = &ep->slots[i];
		if (!slot_is_open(slot))
			continue;
		canceled = slot->call_ns == SLOT_CANCELED;
		if (!canceled && now_ns - slot->call_ns < ctx->conf.timeout_ns)
			continue;
		slot->call_ns = SLOT_EXPIRED;
		done[(*filled)++] = (struct crpc_done){.cookie = slot->cookie,
				.status = canceled ? -ECANCELED : -ETIMEDOUT};
		ep->ended++;
		ctx->stats.completions++;
		ctx->stats.timeouts += !canceled;
		ctx->stats.cancels += canceled;
	}
	ctx->sweep_slot = i;
	return seen;
}

/* From the start of one sweep to the next: an eighth of the shorter timeout. */
static uint64_t
sweep_period(const struct crpc_copyrpc_conf *conf)
{
	uint64_t peer = conf->peer_timeout_ns != 0 ? conf->peer_timeout_ns : UINT64_MAX;

	return crpc_min(conf->timeout_ns, peer) / 8;
}

static void
sweep_start(struct crpc_copyrpc *ctx)
{
	ctx->sweep_ep = 0;
	ctx->sweep_slot = 0;
	ctx->sweeping = true;
}

void
__crpc_copyrpc_sweep_ask(struct crpc_copyrpc *ctx)
{
	/* a sweep under way continues: the endpoints that it has not seen yet are due */
	ctx->sweeps = ctx->sweeping ? 2 : 1;
	if (!ctx->sweeping)
		sweep_start(ctx);
}

/*
 * Deadlines: every eighth of the timeout a sweep over the slots of endpoints with open calls
 * starts, and each poll carries it on by a bounded number of slots. So a call costs nothing for its
 * deadline. The same sweep looks whether the peers are still there.
 */
static uint16_t
sweep(struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint32_t budget = SWEEP_SLOTS, seen;
	struct crpc_copyrpc_ep *ep;
	uint16_t k = 0;

	if (!ctx->sweeping) {
		ctx->sweep_ns = now_ns + sweep_period(&ctx->conf);
		sweep_start(ctx);
	}
	while (ctx->sweep_ep < ctx->conf.max_eps) {
		if (budget == 0 || k == n)
			return k;
		ep = ctx->eps[ctx->sweep_ep];
		if (ep != NULL && ctx->sweep_slot == 0)
			__crpc_copyrpc_alive_check(ep, now_ns);
		if (ep != NULL && ep_open(ep) != 0 && ep->err == 0) {
			seen = sweep_ep(ep, now_ns, budget, done, n, &k);
			budget -= seen;
			if (ctx->sweep_slot <= ctx->conf.max_inflight)
				continue;
		} else {
			budget--;
		}
		ctx->sweep_ep++;
		ctx->sweep_slot = 0;
	}
	ctx->sweeping = false;
	if (ctx->sweeps != 0 && --ctx->sweeps != 0)
		sweep_start(ctx);
	return k;
}

uint16_t
__crpc_copyrpc_ends_take(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t k = 0;

	if (ctx->broken.n != 0)
		k = broken_take(ctx, done, n);
	if (k < n && (ctx->sweeping || (int64_t)(now_ns - ctx->sweep_ns) >= 0))
		k += sweep(ctx, now_ns, done + k, n - k);
	return k;
}

/*
 * Replies have filled every poll since full_ns. So now the ends go first, and after a poll that
 * they fill, replies do. For deadlines that is only when replies have come for a while: who was
 * away takes what waits for it first, as it may be the reply to a call whose time is over.
 */
uint16_t
__crpc_copyrpc_ends_starved(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	bool turn = !ctx->ends_filled;
	uint16_t k = 0;

	if (turn && (ctx->broken.n != 0 || ctx->sweeps != 0 ||
				    now_ns - ctx->full_ns >= sweep_period(&ctx->conf) / 2))
		k = __crpc_copyrpc_ends_take(ctx, now_ns, done, n);
	ctx->ends_filled = k == n;
	return k;
}
