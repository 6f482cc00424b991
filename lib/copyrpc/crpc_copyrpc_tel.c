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

#include "copyrpc_pvt.h"
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
	uint32_t id, peer, epoch, open_calls, outstanding;
	int32_t status;
	struct crpc_copyrpc_positions pos;
};

/* One context's mailbox. */
struct copyrpc_tel {
	_Atomic uint32_t state;
	uint32_t id;
	struct crpc_copyrpc *ctx;
	struct copyrpc_tel *next;
	struct crpc_copyrpc_stats stats;
	uint32_t neps;
	uint32_t capacity;
	struct tel_ep *eps;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* boxes, next_id; held by handlers */
static struct copyrpc_tel *boxes;
static uint32_t next_id;

int
__crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel *tel = calloc(1, sizeof(*tel));

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
__crpc_copyrpc_tel_close(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel **at = &boxes;

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
__crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx)
{
	struct copyrpc_tel *tel = ctx->tel;
	const struct crpc_copyrpc_ep *ep;
	uint32_t expected = TEL_ASKED, i;
	struct tel_ep *out;

	/* A0: acquire, pairs with the handler's question R1: it has done with the last answer */
	if (!crpc_cas_acq_rel(&tel->state, &expected, TEL_ANSWERING))
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
	/* R0: release, pairs with the handler's A1: the answer is complete */
	crpc_store_release(&tel->state, TEL_IDLE);
}

/* Have the owner of this box fill it; the lock is held. False: it did not poll in time. */
static bool
ask(struct copyrpc_tel *tel)
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
static struct copyrpc_tel *
box_get(const char *params, const char **rest)
{
	struct copyrpc_tel *tel;
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
	const struct copyrpc_tel *tel;

	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	pthread_mutex_lock(&lock);
	for (tel = boxes; tel != NULL; tel = tel->next)
		rte_tel_data_add_array_int(d, (int)tel->id);
	pthread_mutex_unlock(&lock);
	return 0;
}

#define COUNTER(name)                                                                              \
	{                                                                                          \
#name, offsetof(struct crpc_copyrpc_stats, name)                                           \
	}

static const struct {
	const char *name;
	size_t at;
} counters[] = {
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
	static const char *const names[3][5] = {
		{"queue_p50_ns", "queue_p90_ns", "queue_p99_ns", "queue_p999_ns", "queue_max_ns"},
		{"wire_p50_ns", "wire_p90_ns", "wire_p99_ns", "wire_p999_ns", "wire_max_ns"},
		{"peer_p50_ns", "peer_p90_ns", "peer_p99_ns", "peer_p999_ns", "peer_max_ns"},
	};
	const struct copyrpc_tel *tel;
	const struct crpc_hist *h[3];
	const char *rest;
	size_t i, k;

	tel = box_get(params, &rest);
	if (tel != NULL) {
		h[0] = &tel->stats.queue;
		h[1] = &tel->stats.wire;
		h[2] = &tel->stats.peer;
		rte_tel_data_start_dict(d);
		for (i = 0; i < 3; i++) {
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
	const struct copyrpc_tel *tel;
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
