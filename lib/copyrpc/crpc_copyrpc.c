/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context: sizes checked once, counters.
 */
#include <stdlib.h>

#include "crpc_conf.h"
#include "copyrpc_modes.h"
#include "crpc_tel.h"

/*
 * Batches up to this go inline: a WQE of four 64-byte blocks (control 16, remote address 16, inline
 * head 4), which is also what fits one BlueFlame register. Longer ones are cheaper fetched by DMA.
 */
#define INLINE_MAX 220

/* Put the defaults in, and check each size and how they relate. */
static int
conf_complete(struct crpc_copyrpc_conf *conf)
{
	CRPC_CONF_DEFAULT(conf->ring_size, 256u << 10);
	if (!crpc_is_pow2(conf->ring_size))
		return crpc_fail(-EINVAL, "conf.ring_size: expected a power of two, found %u",
			conf->ring_size);
	CRPC_CONF_DEFAULT(conf->batch_max, conf->ring_size / 4);
	CRPC_CONF_DEFAULT(conf->age_ns, 50000);
	CRPC_CONF_DEFAULT(conf->update_ns, 20000);
	CRPC_CONF_DEFAULT(conf->timeout_ns, 1000000000);
	conf->timeout_ns = crpc_min(conf->timeout_ns, UINT64_MAX / 4); /* no deadline wraps */
	if (CRPC_CONF(conf, max_eps, 16, 1, CRPC_COPYRPC_EPS_MAX) ||
		crpc_conf_range("ring_size", conf->ring_size, CRPC_COPYRPC_RING_MIN,
			CRPC_COPYRPC_RING_MAX) ||
		CRPC_CONF(conf, max_msg, conf->ring_size / 4, 1,
			CRPC_COPYRPC_MSG_MAX(conf->ring_size)) ||
		CRPC_CONF(conf, max_inflight, 256, 1, CRPC_COPYRPC_INFLIGHT_MAX) ||
		crpc_conf_range("max_large", conf->max_large, 0, CRPC_COPYRPC_LARGE_MAX) ||
		crpc_conf_range("flush", conf->flush, CRPC_COPYRPC_CLOCKED, CRPC_COPYRPC_HOLD) ||
		CRPC_CONF(conf, sq_depth, 64, 8, 32768) ||
		CRPC_CONF(conf, rq_depth, 128, 1, 32768) ||
		CRPC_CONF(conf, max_outstanding, 4, 1, conf->sq_depth))
		return -EINVAL;
	if (conf->initial_pos % WIRE_UNIT != 0)
		return crpc_fail(-EINVAL, "conf.initial_pos: expected a multiple of %u, found %llu",
			WIRE_UNIT, (unsigned long long)conf->initial_pos);
	conf->max_inflight = (uint32_t)crpc_pow2_ceil(conf->max_inflight);
	return 0;
}

struct crpc_copyrpc *
crpc_copyrpc_create(const struct crpc_copyrpc_conf *conf)
{
	struct crpc_copyrpc_conf full;
	struct crpc_rdma_info info;
	struct crpc_copyrpc *ctx;

	if (conf == NULL || conf->dev == NULL)
		return crpc_null(
			crpc_fail(-EINVAL, "conf.dev: expected an open device, found NULL"));
	full = *conf;
	if (conf_complete(&full) != 0)
		return crpc_null(-EINVAL);
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL)
		return NULL;
	crpc_rdma_info_get(full.dev, &info);
	ctx->dev = full.dev;
	ctx->conf = full;
	ctx->inline_max = (uint32_t)crpc_min(info.inline_max, INLINE_MAX);
	ctx->flush = &__crpc_copyrpc_flushes[full.flush];
	TAILQ_INIT(&ctx->dirty);
	TAILQ_INIT(&ctx->ready);
	TAILQ_INIT(&ctx->broken);
	TAILQ_INIT(&ctx->held);
	TAILQ_INIT(&ctx->memory);
	__crpc_sweep_init(&ctx->sweep, ctx->calls, full.max_eps, &ctx->stats.rpc, full.timeout_ns);
	ctx->alive_ns = full.peer_timeout_ns != 0 ? 0 : UINT64_MAX;
	for (uint32_t i = 0; i < CRPC_COPYRPC_EPS_MAX; i++)
		ctx->serial[i] = full.initial_pos / WIRE_UNIT;
	if (__crpc_copyrpc_tel_open(ctx) == 0)
		return ctx;
	free(ctx);
	return crpc_null(-ENOMEM);
}

void
crpc_copyrpc_free(struct crpc_copyrpc *ctx)
{
	if (ctx == NULL)
		return;
	crpc_tel_free(ctx->tel);
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++)
		crpc_copyrpc_ep_free(ctx->eps[i]);
	free(ctx);
}

const struct crpc_copyrpc_stats *
crpc_copyrpc_stats(const struct crpc_copyrpc *ctx)
{
	return &ctx->stats;
}

void
crpc_copyrpc_stats_round_trips(struct crpc_copyrpc *ctx, bool on)
{
	ctx->untimed = !on;
}

void
crpc_copyrpc_stats_reset(struct crpc_copyrpc *ctx)
{
	memset(&ctx->stats, 0, sizeof(ctx->stats));
}
