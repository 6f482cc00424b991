/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <rte_telemetry.h>

#include "crpc_atomic.h"
#include "crpc_tel_put.h"
#include "kv_daemon.h"

/* A client is active if it asked something within this many looks, about 0.1 s. */
#define ACTIVE_WATCHES 100

/* Counters of copyrpc. A round trip is recorded in all three parts at once: they have one count. */
#define NET(name, member)                                                                          \
	{                                                                                          \
		"net_" name, offsetof(struct crpc_copyrpc_stats, member)                           \
	}
static const struct crpc_tel_counter net[] = {
	NET("calls", rpc.calls),
	NET("batches", batches_sent),
	NET("messages", messages_sent),
	NET("bytes", bytes_sent),
	NET("doorbells", flushes),
	NET("again_window", again_window),
	NET("again_reply", again_reply),
	NET("again_inflight", again_inflight),
	NET("send_queue_full", sq_full),
	NET("age_flushes", age_flushes),
	NET("timeouts", rpc.timeouts),
	NET("again_large", again_large),
	NET("resets", rpc.resets),
	NET("round_trips", queue.count),
	NET("queue_ns", queue.sum),
	NET("wire_ns", wire.sum),
	NET("peer_ns", peer.sum),
};

/* What a daemon publishes: words. */
struct counters {
	struct crpc_kv_stats own; /* First, as in it is stat: crpc_kv_tel_sum(). */
	uint64_t active, flux_again;
	uint64_t net[CRPC_DIM(net)];
	uint64_t batch[CRPC_COPYRPC_BATCH_BUCKETS];
};
#define WORDS (sizeof(struct counters) / sizeof(uint64_t))

/* Static: telemetry's thread lives as long as the process, and may look at any time. */
static struct live {
	_Atomic uint64_t word[WORDS];
} crpc_aligned(CRPC_CACHE_GUARD) live[CRPC_KV_DAEMONS_MAX];
static uint32_t live_rank;
static _Atomic uint32_t live_daemons;

/* Clients that asked something since the last time. */
static uint32_t
take_active(struct crpc_kv_daemon *d)
{
	uint32_t n = 0;
	uint64_t asked;

	for (uint32_t i = 0; d->front == NULL && i < CRPC_DIM(d->asked); i++) {
		asked = crpc_ipc_server_requests(d->ipc, i);
		n += asked != d->asked[i];
		d->asked[i] = asked;
	}
	return n;
}

static void
count_net(const struct crpc_copyrpc_stats *n, struct counters *c)
{
	for (uint32_t i = 0; i < CRPC_DIM(net); i++)
		c->net[i] = crpc_tel_value(n, &net[i]);
	memcpy(c->batch, n->batch_size, sizeof(c->batch));
}

void
__crpc_kv_tel_publish(struct crpc_kv_daemon *d)
{
	_Atomic uint64_t *word = live[d->self - d->first].word;
	struct counters c = {0};

	if (++d->watches % ACTIVE_WATCHES == 0)
		d->active = take_active(d);
	c.active = d->active;
	crpc_kv_daemon_stats(d, &c.own);
	if (d->hop != NULL)
		c.flux_again = crpc_flux_node_stats(d->hop->node)->rpc.again;
	if (d->net != NULL)
		count_net(crpc_copyrpc_stats(d->net->ctx), &c);
	for (uint32_t i = 0; i < WORDS; i++)
		crpc_store_relaxed(&word[i], ((const uint64_t *)&c)[i]);
}

static void
add_histogram(struct rte_tel_data *d, const char *name, const uint64_t *bucket, uint32_t n)
{
	struct rte_tel_data *list = rte_tel_data_alloc();

	if (list == NULL)
		return;
	rte_tel_data_start_array(list, RTE_TEL_U64_VAL);
	for (uint32_t i = 0; i < n; i++)
		rte_tel_data_add_array_u64(list, bucket[i]);
	rte_tel_data_add_dict_container(d, name, list, 0);
}

/* Time of each phase in the turns that were timed, or its mean, ns. */
static void
add_phases(struct rte_tel_data *d, const char *name, const uint64_t *ns, uint64_t turns)
{
	struct rte_tel_data *dict = rte_tel_data_alloc();

	if (dict == NULL)
		return;
	rte_tel_data_start_dict(dict);
	for (uint32_t i = 0; i < CRPC_KV_TURN_PHASES; i++)
		rte_tel_data_add_dict_u64(
			dict, crpc_kv_phase_name(i), turns == 0 ? 0 : ns[i] / turns);
	rte_tel_data_add_dict_container(d, name, dict, 0);
}

/* Which daemons are asked for: "" all, else one number and nothing else. */
static int
parse_daemon(const char *params, uint32_t daemons, uint32_t *from, uint32_t *to)
{
	*from = 0;
	*to = daemons;
	if (params == NULL || *params == '\0')
		return 0;
	if (!crpc_tel_number(&params, 10, from) || params != NULL || *from >= daemons)
		return -EINVAL;
	*to = *from + 1;
	return 0;
}

/* What the daemons of this process published in their last watch(). */
static int
handle_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint32_t daemons = crpc_load_acquire(&live_daemons), from, to, i, k; /* A1 pairs with R1 */
	struct counters c = {0};

	if (parse_daemon(params, daemons, &from, &to) != 0)
		return -EINVAL;
	for (i = from; i < to; i++)
		for (k = 0; k < WORDS; k++)
			((uint64_t *)&c)[k] += crpc_load_relaxed(&live[i].word[k]);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "rank", live_rank);
	rte_tel_data_add_dict_u64(d, "daemons", daemons);
	rte_tel_data_add_dict_u64(d, "ops",
		c.own.stat[CRPC_KV_STAT_LOCAL] + c.own.stat[CRPC_KV_STAT_FORWARDED] +
			c.own.stat[CRPC_KV_STAT_REMOTE]);
	for (i = 0; i < CRPC_KV_STATS_N; i++)
		if (i != CRPC_KV_STAT_VERSION) /* No sum. */
			rte_tel_data_add_dict_u64(d, crpc_kv_stat_name(i), c.own.stat[i]);
	rte_tel_data_add_dict_u64(d, "timed_turns", c.own.timed);
	rte_tel_data_add_dict_u64(d, "turns", c.own.turns);
	/* Words are read one by one, while a daemon may publish. */
	rte_tel_data_add_dict_u64(
		d, "empty_turns", c.own.turns - crpc_min(c.own.busy, c.own.turns));
	rte_tel_data_add_dict_u64(d, "relayed", c.own.relayed);
	rte_tel_data_add_dict_u64(d, "active_clients", c.active);
	rte_tel_data_add_dict_u64(d, "waited", c.own.waited);
	rte_tel_data_add_dict_u64(d, "flux_again", c.flux_again);
	for (i = 0; i < CRPC_DIM(net); i++)
		rte_tel_data_add_dict_u64(d, net[i].name, c.net[i]);
	add_phases(d, "phase_ns", c.own.phase_ns, 1);
	add_phases(d, "phase_mean_ns", c.own.phase_ns, c.own.timed);
	add_histogram(d, "taken_per_turn", c.own.taken, CRPC_KV_TAKEN_BUCKETS);
	add_histogram(d, "net_batch_size", c.batch, CRPC_COPYRPC_BATCH_BUCKETS);
	return 0;
}

uint64_t
crpc_kv_tel_sum(enum kv_stat stat)
{
	uint32_t daemons = crpc_load_acquire(&live_daemons); /* A1 pairs with R1 */
	uint64_t sum = 0;

	for (uint32_t i = 0; i < daemons; i++)
		sum += crpc_load_relaxed(&live[i].word[stat]);
	return sum;
}

int
crpc_kv_tel_start(const char *command, uint32_t rank, uint32_t daemons)
{
	static bool registered;
	int rc = 0;

	live_rank = rank;
	crpc_store_release(&live_daemons, daemons); /* R1 */
	if (!registered)
		rc = rte_telemetry_register_cmd(command, handle_stats,
			"Counters of this rank's daemons. Parameters: [daemon]");
	registered = rc == 0;
	return rc;
}
