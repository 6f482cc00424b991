/* SPDX-License-Identifier: BSD-3-Clause */
/* What a daemon does beside its turns: kv_daemon.c has those. */
#include <errno.h>

#include "kv_walk.h"

void
__crpc_kv_daemon_fail(struct crpc_kv_daemon *d, uint64_t token, int status)
{
	d->stats.stat[CRPC_KV_STAT_FAILED]++;
	if (d->front == NULL) {
		/* A one-way message cannot fail, but it holds its place until it is released. */
		if (crpc_ipc_server_fail(d->ipc, d->now, token, status) == -EOPNOTSUPP)
			crpc_ipc_server_release(d->ipc, d->now, token);
	} else {
		d->front->fail(d->end, d->now, token, status);
	}
}

void
__crpc_kv_daemon_net_fail(struct crpc_kv_daemon *d, uint64_t now, uint64_t token, int status)
{
	d->stats.stat[CRPC_KV_STAT_FAILED]++;
	if (crpc_copyrpc_fail(d->net->ctx, now, token, status) == -EOPNOTSUPP)
		crpc_copyrpc_release(d->net->ctx, now, token);
}

/* All daemons that one thread runs count together what they sent to one another. */
static void
count_together(struct crpc_kv_daemon *d, uint32_t *under_way)
{
	if (d != NULL && d->hop != NULL)
		d->hop->under_way = under_way;
}

void
crpc_kv_daemon_join(struct crpc_kv_daemon *d, struct crpc_kv_daemon *mate)
{
	d->here[mate->self - mate->first] = mate;
	mate->here[d->self - d->first] = d;
	d->joined++;
	mate->joined++;
	for (uint32_t i = 0; d->hop != NULL && i < CRPC_DIM(d->here); i++) {
		count_together(d->here[i], d->hop->under_way);
		count_together(mate->here[i], d->hop->under_way);
	}
}

void
crpc_kv_daemon_watch(struct crpc_kv_daemon *d, uint64_t now)
{
	crpc_store_relaxed(&d->fate->started, 1);
	if (d->front != NULL)
		d->front->watch(d->end, now);
	else
		crpc_ipc_server_reap(d->ipc);
	__crpc_kv_store_tick(d->store, now);
	if (!d->blind)
		__crpc_kv_tel_publish(d);
	if (d->net == NULL)
		return;
	__crpc_kv_net_watch(d->net, now);
	if (crpc_unlikely(crpc_load_relaxed(&d->fate->ask_stop) != 0) && d->self == d->first &&
		crpc_exchange_acq_rel(&d->fate->ask_stop, 0) != 0)
		__crpc_kv_net_send_stop(d->net, now);
}

void
crpc_kv_daemon_insight(struct crpc_kv_daemon *d, bool on)
{
	d->blind = !on;
	if (d->net != NULL)
		crpc_copyrpc_stats_round_trips(d->net->ctx, on);
}

void
crpc_kv_daemon_stats(const struct crpc_kv_daemon *d, struct crpc_kv_stats *stats)
{
	*stats = d->stats;
	__crpc_kv_walk_count(d, stats->stat);
	stats->waited = (d->net == NULL ? 0 : d->net->wait.waited) +
		(d->hop == NULL ? 0 : d->hop->wait.waited);
}

void
crpc_kv_daemon_parts(const struct crpc_kv_daemon *d, struct crpc_kv_parts *parts)
{
	*parts = (struct crpc_kv_parts){
		.ipc = d->ipc,
		.segment = d->segment,
		.blocks = &d->blocks,
		.memory = __crpc_kv_store_memory(d->store),
	};
	if (d->net == NULL)
		return;
	parts->copyrpc = d->net->ctx;
	parts->device = d->net->dev;
	parts->endpoints = d->net->peers;
}
