/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TEL_RPC_H
#define CRPC_TEL_RPC_H

/**
 * @file
 * Telemetry of a library of contexts and endpoints: the commands list, stats, latency, endpoints
 * and endpoint, from tables. For the one file of the library that defines tel_rpc:
 *
 *     static struct crpc_tel_rpc tel_rpc = {.library = "udrpc", .counters = ..., ...};
 *
 *     program start:  /crpc/LIBRARY/list and the others are registered
 *     context made:   crpc_tel_rpc_open(&ctx->tel, NULL, max_eps)
 *     asked:          crpc_tel_rpc_answer(ctx->tel, ctx, &ctx->stats, max_eps)
 *     context freed:  crpc_tel_free(ctx->tel)
 *
 * Threads and bounds are those of crpc_tel.h. Inline, as crpc_tel_put.h is.
 */

#include <errno.h>
#include <inttypes.h>

#include "crpc_rpc.h"
#include "crpc_tel_put.h"

/** What is reported; all contexts of the library. */
struct crpc_tel_rpc {
	const char *library;                     /**< In names of commands, and */
	const char *endpoint;                    /**< what they call an endpoint. */
	struct crpc_tel contexts;                /**< CRPC_TEL_INIT. */
	size_t stats_size;                       /**< The counters' struct, */
	const struct crpc_tel_counter *counters; /**< counters of 64 bits in it, */
	size_t num_counters;
	const struct crpc_tel_counter *hists; /**< and its histograms, of ns. */
	size_t num_hists;
	size_t ep_size; /**< Of what is kept of an endpoint; it begins with crpc_tel_rpc_ep. */
	/** Reports what endpoint number i of a context is now. false: there is none. */
	bool (*ep_fill)(void *ep, void *ctx, uint32_t i);
	/** Writes what else there is of an endpoint; NULL: nothing. */
	void (*ep_more)(struct rte_tel_data *d, const void *ep);
};

/** The includer's. */
static struct crpc_tel_rpc tel_rpc;

/** A counter that every layer has. */
#define CRPC_TEL_RPC_COUNTER(counter) CRPC_TEL_COUNTER(struct crpc_rpc_counts, counter)

/** All of them, for the table of a struct that begins with struct crpc_rpc_counts. */
#define CRPC_TEL_RPC_COUNTERS                                                                      \
	CRPC_TEL_RPC_COUNTER(calls), CRPC_TEL_RPC_COUNTER(notifies),                               \
		CRPC_TEL_RPC_COUNTER(completions), CRPC_TEL_RPC_COUNTER(timeouts),                 \
		CRPC_TEL_RPC_COUNTER(cancels), CRPC_TEL_RPC_COUNTER(resets),                       \
		CRPC_TEL_RPC_COUNTER(late), CRPC_TEL_RPC_COUNTER(requests),                        \
		CRPC_TEL_RPC_COUNTER(replies), CRPC_TEL_RPC_COUNTER(again),                        \
		CRPC_TEL_RPC_COUNTER(malformed)

/** A number of an endpoint. */
struct crpc_tel_rpc_field {
	const char *name; /**< Constant. */
	uint64_t value;
};

/** Of an endpoint at most. */
#define CRPC_TEL_RPC_FIELDS_MAX 24

/** What every endpoint has. */
struct crpc_tel_rpc_ep {
	uint32_t id;
	int32_t status;
	uint32_t num_fields;
	struct crpc_tel_rpc_field field[CRPC_TEL_RPC_FIELDS_MAX];
};

/** Say what an endpoint is. */
static inline void
crpc_tel_rpc_fill(struct crpc_tel_rpc_ep *ep, uint32_t id, int32_t status,
	const struct crpc_tel_rpc_field *field, uint32_t n)
{
	ep->id = id;
	ep->status = status;
	ep->num_fields = (uint32_t)crpc_min(n, CRPC_TEL_RPC_FIELDS_MAX);
	memcpy(ep->field, field, ep->num_fields * sizeof(*field));
}

/** A context's mailbox; behind it the counters, then the endpoints. */
struct crpc_tel_rpc_box {
	struct crpc_tel_box box;
	uint32_t neps;
};

/** Where the counters lie. */
static inline void *
crpc_tel_rpc_stats_of(struct crpc_tel_rpc_box *b)
{
	return b + 1;
}

/** Where the i-th endpoint lies. */
static inline void *
crpc_tel_rpc_ep_at(struct crpc_tel_rpc_box *b, uint32_t i)
{
	return (char *)(b + 1) + tel_rpc.stats_size + i * tel_rpc.ep_size;
}

/**
 * Owner: a context that has so many endpoints at most may be asked; attention as in struct
 * crpc_tel_box. 0, or -ENOMEM.
 */
static inline int
crpc_tel_rpc_open(struct crpc_tel_box **box, _Atomic uint32_t *attention, uint32_t max_eps)
{
	*box = crpc_tel_create(&tel_rpc.contexts, attention,
		sizeof(struct crpc_tel_rpc_box) + tel_rpc.stats_size + max_eps * tel_rpc.ep_size);
	return *box != NULL ? 0 : -ENOMEM;
}

/** Owner: answer what is asked, unless it was given up, of a context and its counters. */
static inline void
crpc_tel_rpc_answer(struct crpc_tel_box *box, void *ctx, const void *stats, uint32_t max_eps)
{
	struct crpc_tel_rpc_box *b = (struct crpc_tel_rpc_box *)box;

	if (!crpc_tel_begin(box))
		return;
	memcpy(crpc_tel_rpc_stats_of(b), stats, tel_rpc.stats_size);
	b->neps = 0;
	for (uint32_t i = 0; i < max_eps; i++)
		b->neps += tel_rpc.ep_fill(crpc_tel_rpc_ep_at(b, b->neps), ctx, i);
	crpc_tel_end(box);
}

/**
 * The answer of the context that the parameters name, which knows of the number behind it, 0 if
 * there is none; *rest is behind the first comma. NULL: no such context, or its owner does not
 * poll.
 */
static inline struct crpc_tel_rpc_box *
crpc_tel_rpc_ask(const char *params, const char **rest)
{
	uint32_t id, want = 0;

	if (!crpc_tel_number(&params, 0, &id))
		return NULL;
	*rest = params;
	crpc_tel_number(&params, 0, &want);
	return (struct crpc_tel_rpc_box *)crpc_tel_ask(&tel_rpc.contexts, id, want);
}

/** Numbers of the contexts. No parameters. */
static inline int
crpc_tel_rpc_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	pthread_mutex_lock(&tel_rpc.contexts.lock);
	for (const struct crpc_tel_box *b = tel_rpc.contexts.boxes; b != NULL; b = b->next)
		rte_tel_data_add_array_int(d, (int)b->id);
	pthread_mutex_unlock(&tel_rpc.contexts.lock);
	return 0;
}

/** Counters. Parameters: context. */
static inline int
crpc_tel_rpc_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_ask(params, &params);

	if (b == NULL)
		return -EINVAL;
	rte_tel_data_start_dict(d);
	crpc_tel_put_counters(d, tel_rpc.counters, tel_rpc.num_counters, crpc_tel_rpc_stats_of(b));
	crpc_tel_done(&tel_rpc.contexts);
	return 0;
}

/** Round trips in parts. Parameters: context. */
static inline int
crpc_tel_rpc_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_ask(params, &params);
	const char *stats;

	if (b == NULL)
		return -EINVAL;
	stats = (const char *)crpc_tel_rpc_stats_of(b);
	rte_tel_data_start_dict(d);
	for (size_t i = 0; i < tel_rpc.num_hists; i++)
		crpc_tel_put_hist(d, tel_rpc.hists[i].name,
			(const struct crpc_hist *)(const void *)(stats + tel_rpc.hists[i].at));
	crpc_tel_done(&tel_rpc.contexts);
	return 0;
}

/** Numbers of the endpoints. Parameters: context. */
static inline int
crpc_tel_rpc_endpoints(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_ask(params, &params);
	const struct crpc_tel_rpc_ep *ep;

	if (b == NULL)
		return -EINVAL;
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	for (uint32_t i = 0; i < b->neps; i++) {
		ep = (const struct crpc_tel_rpc_ep *)crpc_tel_rpc_ep_at(b, i);
		rte_tel_data_add_array_int(d, (int)ep->id);
	}
	crpc_tel_done(&tel_rpc.contexts);
	return 0;
}

/** What an endpoint is now. Parameters: context,endpoint. */
static inline int
crpc_tel_rpc_endpoint(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_ask(params, &params);
	const struct crpc_tel_rpc_ep *ep = NULL;
	uint32_t id;

	if (b == NULL)
		return -EINVAL;
	if (crpc_tel_number(&params, 0, &id) && params == NULL)
		for (uint32_t i = 0; i < b->neps && ep == NULL; i++) {
			ep = (const struct crpc_tel_rpc_ep *)crpc_tel_rpc_ep_at(b, i);
			ep = ep->id == id ? ep : NULL;
		}
	if (ep != NULL) {
		rte_tel_data_start_dict(d);
		rte_tel_data_add_dict_int(d, "status", ep->status);
		for (uint32_t i = 0; i < ep->num_fields; i++)
			crpc_tel_add_dict_uint(d, ep->field[i].name, ep->field[i].value);
		if (tel_rpc.ep_more != NULL)
			tel_rpc.ep_more(d, ep);
	}
	crpc_tel_done(&tel_rpc.contexts);
	return ep != NULL ? 0 : -EINVAL;
}

/** Register a command, whose name ends in @p noun and @p plural. */
static inline void
crpc_tel_rpc_command(const char *noun, const char *plural, telemetry_cb fn, const char *help)
{
	char name[RTE_TEL_MAX_STRING_LEN];

	snprintf(name, sizeof(name), "/crpc/%s/%s%s", tel_rpc.library, noun, plural);
	rte_telemetry_register_cmd(name, fn, help);
}

/** Register all of the library's. */
__attribute__((constructor)) static void
crpc_tel_rpc_register(void)
{
	crpc_tel_rpc_command(
		"list", "", crpc_tel_rpc_list, "Numbers of the objects. No parameters");
	crpc_tel_rpc_command("stats", "", crpc_tel_rpc_stats, "Counters. Parameters: object");
	if (tel_rpc.num_hists != 0)
		crpc_tel_rpc_command("latency", "", crpc_tel_rpc_latency,
			"Parts of the round trips. Parameters: object");
	crpc_tel_rpc_command(tel_rpc.endpoint, "s", crpc_tel_rpc_endpoints,
		"Numbers of its peers. Parameters: object");
	crpc_tel_rpc_command(tel_rpc.endpoint, "", crpc_tel_rpc_endpoint,
		"State of one of them. Parameters: object,number");
}

/**
 * The rest of such a file, for a library of contexts whose stats are struct crpc_NAME_stats: its
 * tables are counters and hists, and ep_fill() is there.
 */
#define CRPC_TEL_RPC_OF(name)                                                                      \
	static struct crpc_tel_rpc tel_rpc = {.library = #name,                                    \
		.endpoint = "endpoint",                                                            \
		.contexts = CRPC_TEL_INIT,                                                         \
		.stats_size = sizeof(struct crpc_##name##_stats),                                  \
		.counters = counters,                                                              \
		.num_counters = CRPC_DIM(counters),                                                \
		.hists = hists,                                                                    \
		.num_hists = CRPC_DIM(hists),                                                      \
		.ep_size = sizeof(struct crpc_tel_rpc_ep),                                         \
		.ep_fill = ep_fill};                                                               \
                                                                                                   \
	int __crpc_##name##_tel_open(struct crpc_##name *ctx)                                      \
	{                                                                                          \
		return crpc_tel_rpc_open(&ctx->tel, NULL, ctx->conf.max_eps);                      \
	}                                                                                          \
                                                                                                   \
	crpc_noinline void __crpc_##name##_tel_answer(struct crpc_##name *ctx)                     \
	{                                                                                          \
		crpc_tel_rpc_answer(ctx->tel, ctx, &ctx->stats, ctx->conf.max_eps);                \
	}

#endif
