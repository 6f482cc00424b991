/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry. A context belongs to one thread and telemetry has another one: so the handler asks,
 * and the owner answers at its next poll by copying what was asked for. The datapath pays one load
 * per poll for it, and no counter is ever read while it is written.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "udrpc_pvt.h"
#include "crpc_compat.h"

/* How long a handler waits for the owner's next poll. */
#define WAIT_MS 200

/* States of a question. */
enum {
	TEL_IDLE,
	TEL_ASKED,
	TEL_ANSWERING,
};

/* What the owner knows of one endpoint. */
struct tel_ep {
	uint32_t id, peer, open_calls, credits;
	int32_t status;
	uint64_t rate;
};

/* One context's mailbox. */
struct udrpc_tel {
	_Atomic uint32_t state;
	uint32_t id;
	struct crpc_udrpc *ctx;
	struct udrpc_tel *next;
	struct crpc_udrpc_stats stats;
	uint32_t neps;
	uint32_t capacity;
	struct tel_ep *eps;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* boxes, next_id; held by handlers */
static struct udrpc_tel *boxes;
static uint32_t next_id;

int
__crpc_udrpc_tel_open(struct crpc_udrpc *ctx)
{
	struct udrpc_tel *tel = calloc(1, sizeof(*tel));

	if (tel == NULL)
		return -ENOMEM;
	tel->capacity = ctx->conf.max_eps;
	tel->eps = calloc(tel->capacity, sizeof(*tel->eps));
	if (tel->eps == NULL) {
		free(tel);
		return -ENOMEM;
	}
	tel->ctx = ctx;
	ctx->tel = tel;
	ctx->tel_state = &tel->state;
	pthread_mutex_lock(&lock);
	tel->id = next_id++;
	tel->next = boxes;
	boxes = tel;
	pthread_mutex_unlock(&lock);
	return 0;
}

void
__crpc_udrpc_tel_close(struct crpc_udrpc *ctx)
{
	struct udrpc_tel **at = &boxes;

	/* a handler that waits for us holds the lock, and gives up soon */
	pthread_mutex_lock(&lock);
	while (*at != ctx->tel)
		at = &(*at)->next;
	*at = ctx->tel->next;
	pthread_mutex_unlock(&lock);
	free(ctx->tel->eps);
	free(ctx->tel);
}

crpc_noinline void
__crpc_udrpc_tel_answer(struct crpc_udrpc *ctx)
{
	struct udrpc_tel *tel = ctx->tel;
	const struct crpc_udrpc_ep *ep;
	uint32_t expected = TEL_ASKED, i;

	/* A0: acquire, pairs with the handler's question R1: it has done with the last answer */
	if (!crpc_cas_acq_rel(&tel->state, &expected, TEL_ANSWERING))
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
	/* R0: release, pairs with the handler's A1: the answer is complete */
	crpc_store_release(&tel->state, TEL_IDLE);
}

/* Have the owner of this box fill it; the lock is held. False: it did not poll in time. */
static bool
ask(struct udrpc_tel *tel)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint32_t expected = TEL_ASKED, waited;

	/* R1: release, pairs with the owner's A0 */
	crpc_store_release(&tel->state, TEL_ASKED);
	for (waited = 0; waited < WAIT_MS; waited++) {
		/* A1: acquire, pairs with the owner's R0 */
		if (crpc_load_acquire(&tel->state) == TEL_IDLE)
			return true;
		nanosleep(&pause, NULL);
	}
	if (crpc_cas_acq_rel(&tel->state, &expected, TEL_IDLE))
		return false;
	while (crpc_load_acquire(&tel->state) != TEL_IDLE) /* A1 */
		nanosleep(&pause, NULL);
	return true;
}

/*
 * The box that the parameters name, filled; *rest is behind the first comma. NULL: no such context,
 * or its owner does not poll. The lock is held on return in any case.
 */
static struct udrpc_tel *
box_get(const char *params, const char **rest)
{
	struct udrpc_tel *tel;
	unsigned long id;
	char *end;

	pthread_mutex_lock(&lock);
	if (params == NULL || *params < '0' || *params > '9')
		return NULL;
	id = strtoul(params, &end, 10);
	if (*end != '\0' && *end != ',')
		return NULL;
	*rest = *end == ',' ? end + 1 : NULL;
	for (tel = boxes; tel != NULL; tel = tel->next) {
		if (tel->id == id)
			return ask(tel) ? tel : NULL;
	}
	return NULL;
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct udrpc_tel *tel;

	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	pthread_mutex_lock(&lock);
	for (tel = boxes; tel != NULL; tel = tel->next)
		rte_tel_data_add_array_int(d, (int)tel->id);
	pthread_mutex_unlock(&lock);
	return 0;
}

#define COUNTER(name)                                                                              \
	{                                                                                          \
#name, offsetof(struct crpc_udrpc_stats, name)                                           \
	}

static const struct {
	const char *name;
	size_t at;
} counters[] = {
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
	uint64_t value;
	size_t i;

	tel = box_get(params, &rest);
	if (tel != NULL) {
		rte_tel_data_start_dict(d);
		for (i = 0; i < CRPC_DIM(counters); i++) {
			memcpy(&value, (const char *)&tel->stats + counters[i].at, sizeof(value));
			crpc_tel_add_dict_uint(d, counters[i].name, value);
		}
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
}

static int
tel_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	static const double q[] = {0.5, 0.9, 0.99, 0.999};
	static const char *const names[2][5] = {
		{"wire_p50_ns", "wire_p90_ns", "wire_p99_ns", "wire_p999_ns", "wire_max_ns"},
		{"peer_p50_ns", "peer_p90_ns", "peer_p99_ns", "peer_p999_ns", "peer_max_ns"},
	};
	const struct udrpc_tel *tel;
	const struct crpc_hist *h[2];
	const char *rest;
	size_t i, k;

	tel = box_get(params, &rest);
	if (tel != NULL) {
		h[0] = &tel->stats.wire;
		h[1] = &tel->stats.peer;
		rte_tel_data_start_dict(d);
		for (i = 0; i < 2; i++) {
			for (k = 0; k < CRPC_DIM(q); k++)
				crpc_tel_add_dict_uint(
					d, names[i][k], crpc_hist_quantile(h[i], q[k]));
			crpc_tel_add_dict_uint(d, names[i][k], h[i]->max);
		}
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
}

static int
tel_endpoints(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct udrpc_tel *tel;
	const char *rest;
	uint32_t i;

	tel = box_get(params, &rest);
	if (tel != NULL) {
		rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
		for (i = 0; i < tel->neps; i++)
			rte_tel_data_add_array_int(d, (int)tel->eps[i].id);
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
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
	const char *rest = NULL;
	unsigned long id;
	uint32_t i;
	char *end;

	tel = box_get(params, &rest);
	if (tel != NULL && rest != NULL && *rest >= '0' && *rest <= '9') {
		id = strtoul(rest, &end, 10);
		for (i = 0; i < tel->neps && *end == '\0'; i++) {
			if (tel->eps[i].id == id)
				found = &tel->eps[i];
		}
	}
	if (found != NULL)
		endpoint_put(d, found);
	pthread_mutex_unlock(&lock);
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
