/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry and the dump, from the same tables. crpc_tel.h says how the owner answers,
 * crpc_tel_rpc.h what the commands are.
 */
#include "udrpc_pvt.h"
#include "crpc_tel_rpc.h"

/* What is reported of one endpoint. */
struct tel_ep {
	struct crpc_tel_rpc_ep base;
	uint64_t peer, open_calls, credits_at_home, rate_bytes_per_s;
	uint64_t silent_looks; /* In a row, without a sign of life. */
};

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

#define FIELD(name) CRPC_TEL_COUNTER(struct tel_ep, name)

static const struct crpc_tel_counter fields[] = {FIELD(peer), FIELD(open_calls),
	FIELD(credits_at_home), FIELD(rate_bytes_per_s), FIELD(silent_looks)};

static bool
ep_fill(void *to, const void *of, uint32_t i)
{
	const struct crpc_udrpc *ctx = of;
	const struct crpc_udrpc_ep *ep = &ctx->eps[i];

	if (ep->live)
		*(struct tel_ep *)to = (struct tel_ep){.base = {.id = i, .status = ep->err},
			.peer = ep->user_id,
			.open_calls = ep->calls.open,
			.credits_at_home = ep->credits,
			.rate_bytes_per_s = crpc_udrpc_ep_rate(ep),
			.silent_looks = ep->silent};
	return ep->live;
}

static struct crpc_tel_rpc tel_rpc = {.library = "udrpc",
	.endpoint = "endpoint",
	.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct crpc_udrpc_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.hists = hists,
	.num_hists = CRPC_DIM(hists),
	.ep_size = sizeof(struct tel_ep),
	.fields = fields,
	.num_fields = CRPC_DIM(fields),
	.ep_fill = ep_fill};

int
__crpc_udrpc_tel_open(struct crpc_udrpc *ctx)
{
	return crpc_tel_rpc_open(&ctx->tel, ctx->conf.max_eps);
}

crpc_noinline void
__crpc_udrpc_tel_answer(struct crpc_udrpc *ctx)
{
	crpc_tel_rpc_answer(ctx->tel, ctx, &ctx->stats, ctx->conf.max_eps);
}

static void
call_dump(const struct udrpc_call *c, uint64_t now_ns, FILE *out)
{
	if (c->call.deadline_ns == RPC_FREE)
		return;
	fprintf(out,
		"    call slot %u: request %u of %u bytes, packets %u answered, %u sent, %u known, "
		"open for %" PRIu64 " ns%s%s%s\n",
		c->index, c->req, c->len, c->num_rx, c->num_tx, c->total, now_ns - c->call_ns,
		c->again ? ", sent again" : "", c->drain ? ", drains" : "",
		c->oneway                            ? ", a notification"
			: rpc_call_is_open(&c->call) ? ""
						     : ", ended early");
}

static void
serve_dump(const struct udrpc_serve *s, FILE *out)
{
	static const char *const names[] = {"idle", "in pieces", "whole", "given", "answered"};

	if (s->state == SERVE_IDLE || s->state == SERVE_DONE)
		return;
	fprintf(out, "    server slot %u: request %u of %u bytes, %u of %u pieces, %s\n", s->index,
		s->req, s->len, s->num_rx, s->parts, names[s->state]);
}

int
crpc_udrpc_dump(const struct crpc_udrpc *ctx, FILE *out)
{
	struct crpc_udrpc_ep *ep;
	struct tel_ep view;

	fprintf(out, "udrpc: %" PRIu64 " datagrams put, %" PRIu64 " have left, %u wait%s\n",
		ctx->put, ctx->retired, ctx->nbatch, ctx->err != 0 ? ", the queue is broken" : "");
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		if (!ep_fill(&view, ctx, i))
			continue;
		crpc_tel_rpc_dump(&view, out);
		ep = &ctx->eps[i];
		for (uint32_t k = 0; k < ep->slots; k++)
			call_dump(call_at(ep, k), ctx->now_ns, out);
		for (uint32_t k = 0; k < ctx->conf.slots; k++)
			serve_dump(&ep->serves[k], out);
	}
	crpc_rdma_dump(ctx->dev, out);
	return ferror(out) ? -EIO : 0;
}
