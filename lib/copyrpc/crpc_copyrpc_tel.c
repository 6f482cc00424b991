/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers. */
#include <stdlib.h>

#include "copyrpc_pvt.h"
#include "crpc_tel_put.h"

/* What the owner knows of one endpoint. */
struct tel_ep {
	uint32_t id, peer, epoch, open_calls, outstanding;
	int32_t status;
	struct crpc_copyrpc_positions pos;
};

/* One context's mailbox. */
struct copyrpc_tel {
	struct crpc_tel_box box;
	struct crpc_copyrpc_stats stats;
	uint32_t neps;
	struct tel_ep *eps;
};

static struct crpc_tel contexts = CRPC_TEL_INIT;

int
__crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel *tel = calloc(1, sizeof(*tel));

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
__crpc_copyrpc_tel_close(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel *tel = (struct copyrpc_tel *)ctx->tel;

	crpc_tel_close(&contexts, ctx->tel);
	free(tel->eps);
	free(tel);
}

crpc_noinline void
__crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel *tel = (struct copyrpc_tel *)ctx->tel;
	const struct crpc_copyrpc_ep *ep;
	uint32_t i;
	struct tel_ep *out;

	if (!crpc_tel_begin(ctx->tel))
		return;
	tel->stats = ctx->stats;
	tel->neps = 0;
	for (i = 0; i < ctx->conf.max_eps; i++) {
		ep = ctx->eps[i];
		if (ep == NULL)
			continue;
		out = &tel->eps[tel->neps++];
		*out = (struct tel_ep){.id = i,
				.peer = ep->user_id,
				.epoch = ep->epoch,
				.open_calls = ep_open(ep),
				.outstanding = ep_outstanding(ep),
				.status = ep->err};
		crpc_copyrpc_ep_positions(ep, &out->pos);
	}
	crpc_tel_end(ctx->tel);
}

/*
 * The answer of the context that the parameters name; *rest is behind the first comma. NULL: no
 * such context, or its owner does not poll.
 */
static struct copyrpc_tel *
ask(const char *params, const char **rest)
{
	uint32_t id;

	*rest = params;
	if (!crpc_tel_number(rest, 10, &id))
		return NULL;
	return (struct copyrpc_tel *)crpc_tel_ask(&contexts, id, 0);
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	crpc_tel_put_list(&contexts, d);
	return 0;
}

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_copyrpc_stats, name)

static const struct crpc_tel_counter counters[] = {
	COUNTER(calls),
	COUNTER(sends),
	COUNTER(completions),
	COUNTER(timeouts),
	COUNTER(cancels),
	COUNTER(resets),
	COUNTER(late_responses),
	COUNTER(unknown_responses),
	COUNTER(requests),
	COUNTER(replies),
	COUNTER(flushes),
	COUNTER(batches_sent),
	COUNTER(messages_sent),
	COUNTER(bytes_sent),
	COUNTER(batches_received),
	COUNTER(messages_received),
	COUNTER(updates_sent),
	COUNTER(updates_received),
	COUNTER(reads_sent),
	COUNTER(fragments_sent),
	COUNTER(onesided),
	COUNTER(peers_lost),
	COUNTER(alive_sent),
	COUNTER(age_flushes),
	COUNTER(full_flushes),
	COUNTER(sq_full),
	COUNTER(again_window),
	COUNTER(again_reply),
	COUNTER(again_inflight),
	COUNTER(again_large),
	COUNTER(wraps),
	COUNTER(ep_errors),
};

static int
tel_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct copyrpc_tel *tel;
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
	const struct copyrpc_tel *tel;
	const char *rest;

	tel = ask(params, &rest);
	if (tel == NULL)
		return -EINVAL;
	rte_tel_data_start_dict(d);
	crpc_tel_put_hist(d, "queue", &tel->stats.queue);
	crpc_tel_put_hist(d, "wire", &tel->stats.wire);
	crpc_tel_put_hist(d, "peer", &tel->stats.peer);
	crpc_tel_done(&contexts);
	return 0;
}

static int
tel_endpoints(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct copyrpc_tel *tel;
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
	const struct crpc_copyrpc_positions *pos = &ep->pos;

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "status", ep->status);
	crpc_tel_add_dict_uint(d, "peer", ep->peer);
	crpc_tel_add_dict_uint(d, "epoch", ep->epoch);
	crpc_tel_add_dict_uint(d, "open_calls", ep->open_calls);
	crpc_tel_add_dict_uint(d, "flushes_outstanding", ep->outstanding);
	crpc_tel_add_dict_uint(d, "requests_queued_to", pos->requests_queued);
	crpc_tel_add_dict_uint(d, "requests_sent", pos->requests_sent);
	crpc_tel_add_dict_uint(d, "requests_released_by_peer", pos->requests_released_by_peer);
	crpc_tel_add_dict_uint(d, "responses_sent", pos->responses_sent);
	crpc_tel_add_dict_uint(d, "requests_arrived", pos->requests_arrived);
	crpc_tel_add_dict_uint(d, "requests_released", pos->requests_released);
	crpc_tel_add_dict_uint(d, "released_told", pos->released_told);
	crpc_tel_add_dict_uint(d, "responses_arrived", pos->responses_arrived);
	crpc_tel_add_dict_uint(d, "reply_room_reserved", pos->reply_room_reserved);
	crpc_tel_add_dict_uint(d, "reply_room_owed", pos->reply_room_owed);
}

static int
tel_endpoint(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct tel_ep *found = NULL;
	const struct copyrpc_tel *tel;
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
		"/crpc/copyrpc/list", tel_list, "Numbers of the contexts. No parameters");
	rte_telemetry_register_cmd(
		"/crpc/copyrpc/stats", tel_stats, "Counters. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/latency", tel_latency,
		"Round trips in three parts. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/endpoints", tel_endpoints,
		"Numbers of the endpoints. Parameters: context");
	rte_telemetry_register_cmd("/crpc/copyrpc/endpoint", tel_endpoint,
		"State and positions. Parameters: context,endpoint");
}
