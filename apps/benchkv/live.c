/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_telemetry.h>

#include "daemon.h"
#include "place.h"

/* Static: telemetry's thread lives as long as the process, and may look at any time. */
static struct kv_live live[KV_DAEMONS_MAX];
static struct kv_live_load load[KV_SEATS_MAX];
static uint32_t live_rank;
static _Atomic uint32_t live_daemons;

/* Counters, but for the gauges clients, active_clients, open, waiting and keys. */
static const char *const names[KV_LIVE_WORDS] = {
	[KV_LIVE_LOCAL] = "local",
	[KV_LIVE_FORWARDED] = "forwarded",
	[KV_LIVE_REMOTE] = "remote",
	[KV_LIVE_OF_DAEMONS] = "of_daemons",
	[KV_LIVE_OF_RANKS] = "of_ranks",
	[KV_LIVE_RELAYED] = "relayed",
	[KV_LIVE_FAILED] = "failed",
	[KV_LIVE_BAD] = "bad",
	[KV_LIVE_TURNS] = "turns",
	[KV_LIVE_EMPTY] = "empty_turns",
	[KV_LIVE_CLIENTS] = "clients",
	[KV_LIVE_ACTIVE] = "active_clients",
	[KV_LIVE_OPEN] = "open",
	[KV_LIVE_WAITING] = "waiting",
	[KV_LIVE_WAITED] = "waited",
	[KV_LIVE_FLUX_AGAIN] = "flux_again",
	[KV_LIVE_TIMED] = "timed_turns",
	[KV_LIVE_KEYS] = "keys",
	[KV_LIVE_NET + 0] = "net_calls",
	[KV_LIVE_NET + 1] = "net_batches",
	[KV_LIVE_NET + 2] = "net_messages",
	[KV_LIVE_NET + 3] = "net_bytes",
	[KV_LIVE_NET + 4] = "net_doorbells",
	[KV_LIVE_NET + 5] = "net_again_window",
	[KV_LIVE_NET + 6] = "net_again_reply",
	[KV_LIVE_NET + 7] = "net_again_inflight",
	[KV_LIVE_NET + 8] = "net_send_queue_full",
	[KV_LIVE_NET + 9] = "net_age_flushes",
	[KV_LIVE_NET + 10] = "net_timeouts",
	[KV_LIVE_NET + 11] = "net_again_large",
	[KV_LIVE_NET + 12] = "net_resets",
	[KV_LIVE_NET + 13] = "net_round_trips",
	[KV_LIVE_NET + 14] = "net_queue_ns",
	[KV_LIVE_NET + 15] = "net_wire_ns",
	[KV_LIVE_NET + 16] = "net_peer_ns",
};

static const char *const load_names[KV_LOAD_WORDS] = {
	[KV_LOAD_OPS] = "client_ops",
	[KV_LOAD_FAILED] = "client_failed",
	[KV_LOAD_LAT_NS] = "client_lat_ns",
	[KV_LOAD_OPEN_NS] = "client_open_ns",
	[KV_LOAD_CALLS] = "client_calls",
};

static void
net_words(const struct kv_daemon *d, uint64_t word[KV_LIVE_NET_WORDS])
{
	const struct crpc_copyrpc_stats *c = crpc_copyrpc_stats(d->net->ctx);

	word[0] = c->rpc.calls;
	word[1] = c->batches_sent;
	word[2] = c->messages_sent;
	word[3] = c->bytes_sent;
	word[4] = c->flushes;
	word[5] = c->again_window;
	word[6] = c->again_reply;
	word[7] = c->again_inflight;
	word[8] = c->sq_full;
	word[9] = c->age_flushes;
	word[10] = c->rpc.timeouts;
	word[11] = c->again_large;
	word[12] = c->rpc.resets;
	/* A round trip is recorded in all three parts at once, so they have one count. */
	word[13] = c->queue.count;
	word[14] = c->queue.sum;
	word[15] = c->wire.sum;
	word[16] = c->peer.sum;
}

void
kv_live_carry(struct kv_daemon *d)
{
	const struct crpc_copyrpc_stats *c = crpc_copyrpc_stats(d->net->ctx);
	uint64_t word[KV_LIVE_NET_WORDS];
	uint32_t i;

	net_words(d, word);
	for (i = 0; i < KV_LIVE_NET_WORDS; i++)
		d->carry.word[i] += word[i];
	for (i = 0; i < CRPC_COPYRPC_BATCH_BUCKETS; i++)
		d->carry.batch[i] += c->batch_size[i];
}

static void
publish_net(const struct kv_daemon *d, struct kv_live *l)
{
	const struct crpc_copyrpc_stats *c = crpc_copyrpc_stats(d->net->ctx);
	uint64_t word[KV_LIVE_NET_WORDS];
	uint32_t i;

	net_words(d, word);
	for (i = 0; i < KV_LIVE_NET_WORDS; i++)
		crpc_store_relaxed(&l->word[KV_LIVE_NET + i], d->carry.word[i] + word[i]);
	for (i = 0; i < CRPC_COPYRPC_BATCH_BUCKETS; i++)
		crpc_store_relaxed(&l->batch[i], d->carry.batch[i] + c->batch_size[i]);
}

/* Clients that asked something since the last time. */
static uint32_t
take_active(struct kv_daemon *d)
{
	uint32_t i, n = 0;
	uint64_t asked;

	for (i = 0; d->port == NULL && i < CRPC_DIM(d->asked); i++) {
		asked = crpc_ipc_server_requests(d->ipc, i);
		n += asked != d->asked[i];
		d->asked[i] = asked;
	}
	return n;
}

void
kv_live_publish(struct kv_daemon *d)
{
	const struct kv_daemon_stats *s = &d->stats;
	struct kv_live *l = &live[d->self - d->first];
	struct crpc_ipc_server_stats ipc = {0};
	uint32_t i, waiting = 0;

	if (d->port == NULL)
		crpc_ipc_server_stats(d->ipc, &ipc);
	if (d->hop != NULL) {
		waiting += d->hop->waiting;
		crpc_store_relaxed(&l->word[KV_LIVE_FLUX_AGAIN],
			crpc_flux_node_stats(d->hop->node)->rpc.again);
	}
	if (d->net != NULL) {
		waiting += d->net->waiting;
		publish_net(d, l);
	}
	crpc_store_relaxed(&l->word[KV_LIVE_LOCAL], s->path[KV_LOCAL]);
	crpc_store_relaxed(&l->word[KV_LIVE_FORWARDED], s->path[KV_FORWARDED]);
	crpc_store_relaxed(&l->word[KV_LIVE_REMOTE], s->path[KV_REMOTE]);
	crpc_store_relaxed(&l->word[KV_LIVE_OF_DAEMONS], s->mates);
	crpc_store_relaxed(&l->word[KV_LIVE_OF_RANKS], s->ranks);
	crpc_store_relaxed(&l->word[KV_LIVE_RELAYED], s->relayed);
	crpc_store_relaxed(&l->word[KV_LIVE_FAILED], s->failed);
	crpc_store_relaxed(&l->word[KV_LIVE_BAD], s->bad);
	crpc_store_relaxed(&l->word[KV_LIVE_TURNS], s->turns);
	crpc_store_relaxed(&l->word[KV_LIVE_EMPTY], s->turns - s->busy);
	crpc_store_relaxed(&l->word[KV_LIVE_CLIENTS], ipc.clients);
	if (++d->watches % KV_LIVE_ACTIVE_WATCHES == 0)
		crpc_store_relaxed(&l->word[KV_LIVE_ACTIVE], take_active(d));
	crpc_store_relaxed(&l->word[KV_LIVE_OPEN], ipc.open);
	crpc_store_relaxed(&l->word[KV_LIVE_WAITING], waiting);
	crpc_store_relaxed(&l->word[KV_LIVE_WAITED], kv_daemon_waited(d));
	crpc_store_relaxed(&l->word[KV_LIVE_TIMED], s->timed);
	crpc_store_relaxed(&l->word[KV_LIVE_KEYS], kv_store_count(d->store));
	for (i = 0; i < KV_TURN_PHASES; i++)
		crpc_store_relaxed(&l->phase_ns[i], s->phase_ns[i]);
	for (i = 0; i < KV_TAKEN_BUCKETS; i++)
		crpc_store_relaxed(&l->taken[i], s->taken[i]);
}

/* What the loop has counted since it forgot the last time. */
static struct kv_live_load *
load_words(uint32_t seat, const struct kv_loop *loop, uint64_t now, uint64_t word[KV_LOAD_WORDS])
{
	const struct kv_counts *c = &loop->counts;
	struct kv_live_load *l = &load[seat];

	if (l->from == 0)
		l->from = now;
	/* What is counted ends with the window. */
	if (loop->phase >= KV_COOLDOWN)
		now = loop->measure_from + c->window_ns;
	word[KV_LOAD_OPS] = kv_counts_ops(c);
	word[KV_LOAD_FAILED] = c->failed;
	word[KV_LOAD_LAT_NS] = c->lat_sum;
	word[KV_LOAD_CALLS] =
		loop->work->gap_ns > 0 ? 0 : (uint64_t)loop->n * loop->work->qd;
	word[KV_LOAD_OPEN_NS] = word[KV_LOAD_CALLS] * (now - l->from);
	return l;
}

void
kv_live_load(uint32_t seat, const struct kv_loop *loop, uint64_t now)
{
	uint64_t word[KV_LOAD_WORDS];
	struct kv_live_load *l = load_words(seat, loop, now, word);
	uint32_t i;

	for (i = 0; i < KV_LOAD_WORDS; i++)
		crpc_store_relaxed(&l->word[i], l->before[i] + word[i]);
}

void
kv_live_load_carry(uint32_t seat, const struct kv_loop *loop, uint64_t now)
{
	uint64_t word[KV_LOAD_WORDS];
	struct kv_live_load *l = load_words(seat, loop, now, word);
	uint32_t i;

	for (i = 0; i < KV_LOAD_CALLS; i++) /* But for that gauge. */
		l->before[i] += word[i];
	l->from = now;
}

static void
add_words(uint64_t *sum, const _Atomic uint64_t *word, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		sum[i] += crpc_load_relaxed(&word[i]);
}

static void
add_histogram(struct rte_tel_data *d, const char *name, const uint64_t *bucket, uint32_t n)
{
	struct rte_tel_data *list = rte_tel_data_alloc();
	uint32_t i;

	if (list == NULL)
		return;
	rte_tel_data_start_array(list, RTE_TEL_U64_VAL);
	for (i = 0; i < n; i++)
		rte_tel_data_add_array_u64(list, bucket[i]);
	rte_tel_data_add_dict_container(d, name, list, 0);
}

/* Time of each phase in the turns that were timed, or its mean, ns. */
static void
add_phases(struct rte_tel_data *d, const char *name, const uint64_t *ns, uint64_t turns)
{
	struct rte_tel_data *dict = rte_tel_data_alloc();
	uint32_t i;

	if (dict == NULL)
		return;
	rte_tel_data_start_dict(dict);
	for (i = 0; i < KV_TURN_PHASES; i++)
		rte_tel_data_add_dict_u64(
			dict, kv_turn_phase_name(i), turns == 0 ? 0 : ns[i] / turns);
	rte_tel_data_add_dict_container(d, name, dict, 0);
}

/* Which daemons are asked for: "" all, else one number and nothing else. */
static int
parse_daemon(const char *params, uint32_t daemons, uint32_t *from, uint32_t *to)
{
	unsigned long n;
	char *end;

	*from = 0;
	*to = daemons;
	if (params == NULL || *params == '\0')
		return 0;
	if (*params < '0' || *params > '9')
		return -EINVAL;
	n = strtoul(params, &end, 10);
	if (*end != '\0' || n >= daemons)
		return -EINVAL;
	*from = (uint32_t)n;
	*to = (uint32_t)n + 1;
	return 0;
}

/* The rank's own clients; they do not distinguish the daemons of operations. */
static void
add_load(struct rte_tel_data *d)
{
	uint64_t word[KV_LOAD_WORDS] = {0};
	char text[64] = "-";
	double little;
	uint32_t i;

	for (i = 0; i < KV_SEATS_MAX; i++)
		add_words(word, load[i].word, KV_LOAD_WORDS);
	for (i = 0; i < KV_LOAD_WORDS; i++)
		rte_tel_data_add_dict_u64(d, load_names[i], word[i]);
	if (word[KV_LOAD_OPEN_NS] != 0) {
		little = (double)word[KV_LOAD_LAT_NS] / (double)word[KV_LOAD_OPEN_NS];
		snprintf(text, sizeof(text), "%.4f: %s", little,
			kv_little_holds(little) ? "holds" : "does NOT hold");
	}
	rte_tel_data_add_dict_string(d, "little", text);
}

static int
handle_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint64_t word[KV_LIVE_WORDS] = {0}, ns[KV_TURN_PHASES] = {0};
	uint64_t taken[KV_TAKEN_BUCKETS] = {0}, batch[CRPC_COPYRPC_BATCH_BUCKETS] = {0};
	uint32_t daemons = crpc_load_acquire(&live_daemons), from, to, i; /* A1 pairs with R1 */

	if (parse_daemon(params, daemons, &from, &to) != 0)
		return -EINVAL;
	for (i = from; i < to; i++) {
		add_words(word, live[i].word, KV_LIVE_WORDS);
		add_words(ns, live[i].phase_ns, KV_TURN_PHASES);
		add_words(taken, live[i].taken, KV_TAKEN_BUCKETS);
		add_words(batch, live[i].batch, CRPC_COPYRPC_BATCH_BUCKETS);
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "rank", live_rank);
	rte_tel_data_add_dict_u64(d, "daemons", daemons);
	rte_tel_data_add_dict_u64(d, "ops",
		word[KV_LIVE_LOCAL] + word[KV_LIVE_FORWARDED] + word[KV_LIVE_REMOTE]);
	for (i = 0; i < KV_LIVE_WORDS; i++)
		rte_tel_data_add_dict_u64(d, names[i], word[i]);
	if (to - from == daemons)
		add_load(d);
	add_phases(d, "phase_ns", ns, 1);
	add_phases(d, "phase_mean_ns", ns, word[KV_LIVE_TIMED]);
	add_histogram(d, "taken_per_turn", taken, KV_TAKEN_BUCKETS);
	add_histogram(d, "net_batch_size", batch, CRPC_COPYRPC_BATCH_BUCKETS);
	return 0;
}

int
kv_live_start(uint32_t rank, uint32_t daemons)
{
	static bool registered;
	uint32_t i, k;

	for (i = 0; i < KV_SEATS_MAX; i++) { /* Another run of a sweep has other seats. */
		for (k = 0; k < KV_LOAD_WORDS; k++)
			crpc_store_relaxed(&load[i].word[k], 0);
		memset(load[i].before, 0, sizeof(load[i].before));
		load[i].from = 0;
	}
	live_rank = rank;
	crpc_store_release(&live_daemons, daemons); /* R1 */
	if (registered) /* The next run of a sweep. */
		return 0;
	registered = true;
	return rte_telemetry_register_cmd("/crpc/benchkv/stats", handle_stats,
		"Counters of this rank's daemons. Parameters: [daemon]");
}
