/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers. */
#include <stdlib.h>

#include "udrpc_pvt.h"
#include "crpc_tel_put.h"

/* What the owner knows of one endpoint. */
struct tel_ep {
	uint32_t id, peer, open_calls, credits;
	int32_t status;
	uint64_t rate;
};

/* One context's mailbox. */
struct udrpc_tel {
	struct crpc_tel_box box;
	struct crpc_udrpc_stats stats;
	uint32_t neps;
	struct tel_ep *eps;
};

static struct crpc_tel contexts = CRPC_TEL_INIT;

int
__crpc_udrpc_tel_open(struct crpc_udrpc *ctx)
{
	struct udrpc_tel *tel = calloc(1, sizeof(*tel));

	if (tel == NULL)
		return -ENOMEM;
	tel->eps = calloc(ctx->conf.max_eps, sizeof(*tel->eps));
	if (tel->eps == NULL) {
		free(tel);
		return -ENOMEM;
	}
	ctx->tel = &tel->box;
	crpc_tel_open(&contexts, ctx->tel);
	return 0;
}

void
__crpc_udrpc_tel_close(struct crpc_udrpc *ctx)
{
	struct udrpc_tel *tel = (struct udrpc_tel *)ctx->tel;

	crpc_tel_close(&contexts, ctx->tel);
	free(tel->eps);
	free(tel);
}

crpc_noinline void
__crpc_udrpc_tel_answer(struct crpc_udrpc *ctx)
{
	struct udrpc_tel *tel = (struct udrpc_tel *)ctx->tel;
	const struct crpc_udrpc_ep *ep;
	uint32_t i;

	if (!crpc_tel_begin(ctx->tel))
		return;
	tel->stats = ctx->stats;
	tel->neps = 0;
	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = &ctx->eps[i];
		if (!ep->live)
			continue;
		tel->eps[tel->neps++] = (struct tel_ep){.id = i,
			.peer = ep->user_id,
			.open_calls = ep->open,
			.credits = ep->credits,
			.status = ep->err,
			.rate = crpc_udrpc_ep_rate(ep)};
	}
	crpc_tel_end(ctx->tel);
}

/*
 * The answer of the context that the parameters name; *rest is behind the first comma. NULL: no
 * such context, or its owner does not poll.
 */
static struct udrpc_tel *
ask(const char *params, const char **rest)
{
	uint32_t id;

	*rest = params;
	if (!crpc_tel_number(rest, 10, &id))
		return NULL;
	return (struct udrpc_tel *)crpc_tel_ask(&contexts, id, 0);
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	crpc_tel_put_list(&contexts, d);
	return 0;
}

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_udrpc_stats, name)

static const struct crpc_tel_counter counters[] = {
	COUNTER(calls),
	COUNTER(completions),
	COUNTER(timeouts),
	COUNTER(cancels),
	COUNTER(resets),
	COUNTER(late_responses),
	COUNTER(requests),
	COUNTER(replies),
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
	COUNTER(bad_packets),
	COUNTER(bad_sessions),
	COUNTER(tx_full),
	COUNTER(paced),
	COUNTER(rtt_samples),
	COUNTER(again_slots),
	COUNTER(ep_errors),
};

static int
tel_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct udrpc_tel *tel;
	const char *rest;

	tel = ask(params, &rest);
	if (tel == NULL)
		return -EINVAL;
	crpc_tel_put_counters(d, counters, CRPC_DIM(counters), &tel->stats);
	crpc_tel_done(&contexts);
	return 0;
}

static int
tel_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct udrpc_tel *tel;
	const char *rest;

	tel = ask(params, &rest);
	if (tel == NULL)
		return -EINVAL;
	rte_tel_data_start_dict(d);
	crpc_tel_put_hist(d, "wire", &tel->stats.wire);
	crpc_tel_put_hist(d, "peer", &tel->stats.peer);
	crpc_tel_done(&contexts);
	return 0;
}

static int
tel_endpoints(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct udrpc_tel *tel;
	const char *rest;
	uint32_t i;

	tel = ask(params, &rest);
	if (tel == NULL)
		return -EINVAL;
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	for (i = 0; i < tel->neps; i++)
		rte_tel_data_add_array_int(d, (int)tel->eps[i].id);
	crpc_tel_done(&contexts);
	return 0;
}

static void
endpoint_put(struct rte_tel_data *d, const struct tel_ep *ep)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "status", ep->status);
	crpc_tel_add_dict_uint(d, "peer", ep->peer);
	crpc_tel_add_dict_uint(d, "open_calls", ep->open_calls);
	crpc_tel_add_dict_uint(d, "credits_at_home", ep->credits);
	crpc_tel_add_dict_uint(d, "rate_bytes_per_s", ep->rate);
}

static int
tel_endpoint(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct tel_ep *found = NULL;
	const struct udrpc_tel *tel;
	const char *rest;
	uint32_t id, i;

	tel = ask(params, &rest);
	if (tel == NULL)
		return -EINVAL;
	if (crpc_tel_number(&rest, 10, &id) && rest == NULL) {
		for (i = 0; i < tel->neps; i++) {
			if (tel->eps[i].id == id)
				found = &tel->eps[i];
		}
	}
	if (found != NULL)
		endpoint_put(d, found);
	crpc_tel_done(&contexts);
	return found != NULL ? 0 : -EINVAL;
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd(
		"/crpc/udrpc/list", tel_list, "Numbers of the contexts. No parameters");
	rte_telemetry_register_cmd(
		"/crpc/udrpc/stats", tel_stats, "Counters. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/latency", tel_latency,
		"Round trips in two parts. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/endpoints", tel_endpoints,
		"Numbers of the endpoints. Parameters: context");
	rte_telemetry_register_cmd("/crpc/udrpc/endpoint", tel_endpoint,
		"Status, credits and rate. Parameters: context,endpoint");
}
