/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context: sizes checked once, all memory made and registered, counters.
 */
#include <stdlib.h>

#include "crpc_conf.h"
#include "crpc_mem.h"
#include "udrpc_pvt.h"

/*
 * Datagrams up to this go inline: a WQE of four 64-byte blocks (control 16, address 48, inline head
 * 4), which is also what fits one BlueFlame register. Longer ones are cheaper fetched by DMA.
 */
#define INLINE_MAX 188u
/* How often free() polls for what is still to be sent. */
#define DRAIN_POLLS 10000
#define PAGE        4096u

/* Put the defaults in, and check each size. */
static int
conf_complete(struct crpc_udrpc_conf *conf, const struct crpc_rdma_info *info)
{
	uint64_t rq_depth;

	CRPC_CONF_DEFAULT(conf->retries, 100);
	CRPC_CONF_DEFAULT(conf->rto_ns, 5000000);
	CRPC_CONF_DEFAULT(conf->timeout_ns, 1000000000);
	CRPC_CONF_DEFAULT(conf->link_bytes_per_s, UINT64_C(12500000000));
	CRPC_CONF_DEFAULT(conf->t_low_ns, 50000);
	if (CRPC_CONF(conf, max_eps, 16, 1, CRPC_UDRPC_EPS_MAX) ||
		CRPC_CONF(conf, slots, 8, 1, CRPC_UDRPC_SLOTS_MAX) ||
		CRPC_CONF(conf, credits, 32, 1, CRPC_UDRPC_CREDITS_MAX) ||
		CRPC_CONF(conf, max_msg, 16u << 10, 1, CRPC_UDRPC_MSG_MAX) ||
		CRPC_CONF(conf, pkt_max, info->mtu, CRPC_UDRPC_PKT_MIN, info->mtu) ||
		CRPC_CONF(conf, sq_depth, 256, 8, CRPC_RDMA_QUEUE_DEPTH_MAX) ||
		CRPC_CONF(conf, t_high_ns, 1000000, conf->t_low_ns, UINT64_MAX))
		return -EINVAL;
	rq_depth = crpc_pow2_ceil(2ull * conf->credits * conf->max_eps);
	rq_depth = crpc_max(512, crpc_min(2048, rq_depth));
	return CRPC_CONF(conf, rq_depth, (uint32_t)rq_depth, 1, CRPC_RDMA_QUEUE_DEPTH_MAX);
}

/* Bytes of one message buffer. */
static uint64_t
buf_size(const struct crpc_udrpc_conf *conf)
{
	return crpc_align_up(conf->max_msg, CRPC_CACHE_LINE);
}

/* Deal the memory out: each slot of each endpoint has two buffers to send from and two to fill. */
static void
slots_init(struct crpc_udrpc *ctx)
{
	uint64_t size = buf_size(&ctx->conf);
	uint32_t slots = ctx->conf.slots;
	struct udrpc_serve *s;
	struct udrpc_call *c;

	for (uint64_t i = 0; i < (uint64_t)ctx->conf.max_eps * slots; i++) {
		c = &ctx->calls[i + i / slots + 1];
		c->index = (uint16_t)(i % slots);
		c->req_buf = ctx->tx_mem + 2 * i * size;
		c->resp_buf = ctx->rx_mem + 2 * i * size;
		c->sent_ns = ctx->sent_ns + i * (ctx->credit_mask + 1);
		s = &ctx->serves[i];
		s->index = c->index;
		s->resp_buf = c->req_buf + size;
		s->req_buf = c->resp_buf + size;
		s->ep = &ctx->eps[i / slots];
	}
	for (uint64_t i = 0; i < ctx->conf.max_eps; i++) {
		ctx->eps[i].ctx = ctx;
		ctx->eps[i].id = (uint32_t)i;
		ctx->tables[i] = &ctx->eps[i].calls;
		ctx->eps[i].serves = ctx->serves + i * slots;
	}
	__crpc_sweep_init(
		&ctx->sweep, ctx->tables, ctx->conf.max_eps, &ctx->stats.rpc, ctx->conf.timeout_ns);
}

static void
memory_free(struct crpc_udrpc *ctx)
{
	crpc_rdma_mr_dereg(ctx->dev, &ctx->mr);
	crpc_mem_free(ctx->heads);
	crpc_mem_free(ctx->rx_mem);
	free(ctx->calls);
	free(ctx->tables);
	free(ctx->serves);
	free(ctx->sent_ns);
	free(ctx->eps);
}

/* All memory of all endpoints. What is sent, with the heads in front, is one region. */
static int
memory_init(struct crpc_udrpc *ctx)
{
	const struct crpc_udrpc_conf *conf = &ctx->conf;
	uint64_t heads = crpc_pow2_ceil(conf->sq_depth + TX_MAX), n, len;

	n = (uint64_t)conf->max_eps * conf->slots;
	ctx->head_mask = (uint32_t)heads - 1;
	ctx->credit_mask = (uint32_t)crpc_pow2_ceil(conf->credits) - 1;
	len = crpc_align_up(heads * TX_HEAD, PAGE) + 2 * n * buf_size(conf);
	ctx->heads = crpc_mem_alloc("udrpc_requests", len, PAGE, NULL);
	ctx->rx_mem = crpc_mem_alloc("udrpc_arrivals", 2 * n * buf_size(conf), PAGE, NULL);
	if (ctx->heads == NULL || ctx->rx_mem == NULL)
		return -ENOMEM;
	ctx->tx_mem = ctx->heads + crpc_align_up(heads * TX_HEAD, PAGE);
	ctx->calls = calloc(n + conf->max_eps, sizeof(*ctx->calls));
	ctx->tables = calloc(conf->max_eps, sizeof(struct rpc_calls *));
	ctx->serves = calloc(n, sizeof(*ctx->serves));
	ctx->sent_ns = calloc(n * (ctx->credit_mask + 1), sizeof(*ctx->sent_ns));
	ctx->eps = calloc(conf->max_eps, sizeof(*ctx->eps));
	if (ctx->calls == NULL || ctx->tables == NULL || ctx->serves == NULL ||
		ctx->sent_ns == NULL || ctx->eps == NULL)
		return -ENOMEM;
	if (crpc_rdma_mr_reg(ctx->dev, ctx->heads, len, &ctx->mr) != 0)
		return -ENOMEM;
	ctx->lkey = ctx->mr.lkey;
	slots_init(ctx);
	return 0;
}

/* Everything of the context that does not need memory of its own. */
static void
state_init(struct crpc_udrpc *ctx, const struct crpc_rdma_info *info)
{
	const struct crpc_udrpc_conf *conf = &ctx->conf;

	ctx->inline_max = (uint32_t)crpc_min(info->inline_max_ud, INLINE_MAX);
	ctx->signal_every = conf->sq_depth / 4;
	TAILQ_INIT(&ctx->sending);
	TAILQ_INIT(&ctx->ending);
	TAILQ_INIT(&ctx->timers);
	TAILQ_INIT(&ctx->ready);
	ctx->next_token = 1;
	ctx->timely = (struct timely_conf){.link = (double)conf->link_bytes_per_s,
		.t_low_ns = conf->t_low_ns,
		.t_high_ns = conf->t_high_ns};
	ctx->rng = conf->seed;
}

static int
parts_init(struct crpc_udrpc *ctx)
{
	struct crpc_rdma_qp_conf ud = {.transport = CRPC_RDMA_UD,
		.sq_depth = ctx->conf.sq_depth,
		.rq_depth = ctx->conf.rq_depth,
		.inline_max = ctx->inline_max};
	int rc = memory_init(ctx);

	if (rc != 0)
		return rc;
	ctx->ud = crpc_rdma_qp_create(ctx->dev, &ud);
	return ctx->ud != NULL ? __crpc_udrpc_tel_open(ctx) : -errno;
}

/* Free a context that may be made in part only. */
static void
ctx_destroy(struct crpc_udrpc *ctx)
{
	crpc_rdma_qp_free(ctx->ud);
	memory_free(ctx);
	free(ctx);
}

struct crpc_udrpc *
crpc_udrpc_create(const struct crpc_udrpc_conf *conf)
{
	struct crpc_rdma_info info;
	struct crpc_udrpc *ctx;
	int rc;

	if (conf == NULL || conf->dev == NULL)
		return crpc_null(
			crpc_fail(-EINVAL, "conf.dev: expected an open device, found NULL"));
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL)
		return NULL;
	ctx->conf = *conf;
	ctx->dev = conf->dev;
	crpc_rdma_info_get(ctx->dev, &info);
	rc = conf_complete(&ctx->conf, &info);
	if (rc == 0) {
		state_init(ctx, &info);
		rc = parts_init(ctx);
	}
	if (rc == 0)
		return ctx;
	ctx_destroy(ctx);
	return crpc_null(rc);
}

/* Wait, within bounds, until the send queue is empty: goodbyes are in it. */
static void
drain(struct crpc_udrpc *ctx)
{
	uint16_t n;

	for (uint32_t turn = 0; turn < DRAIN_POLLS && ctx->err == 0 &&
		(ctx->retired != ctx->put || !TAILQ_EMPTY(&ctx->sending));
		turn++) {
		if (tx_room(ctx)) /* All that is left are goodbyes. */
			__crpc_udrpc_tx_run(ctx);
		__crpc_udrpc_tx_post(ctx);
		n = crpc_rdma_poll(ctx->dev, ctx->cqe, CRPC_BURST_MAX);
		for (uint16_t i = 0; i < n; i++) {
			if (ctx->cqe[i].type == CRPC_RDMA_CQE_SEND)
				ctx->retired += ctx->cqe[i].wrs;
			else if (ctx->cqe[i].type == CRPC_RDMA_CQE_ERROR)
				ctx->err = ctx->cqe[i].status;
		}
	}
}

void
crpc_udrpc_free(struct crpc_udrpc *ctx)
{
	if (ctx == NULL)
		return;
	crpc_tel_free(ctx->tel);
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++)
		if (ctx->eps[i].live)
			crpc_udrpc_ep_free(&ctx->eps[i]);
	crpc_rdma_hand_over(ctx->dev);
	drain(ctx);
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++)
		crpc_rdma_ah_free(ctx->eps[i].ah);
	ctx_destroy(ctx);
}

const struct crpc_udrpc_stats *
crpc_udrpc_stats(const struct crpc_udrpc *ctx)
{
	return &ctx->stats;
}

void
crpc_udrpc_stats_reset(struct crpc_udrpc *ctx)
{
	memset(&ctx->stats, 0, sizeof(ctx->stats));
}
