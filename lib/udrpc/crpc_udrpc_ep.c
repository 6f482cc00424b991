/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: made from the context's memory, connected by addresses, ended.
 */
#include <sys/random.h>

#include "crpc_conf.h"
#include "udrpc_pvt.h"

/*
 * A packet with the right token can end the session, or answer in it. So tokens must not follow
 * from others: they come from the system, or, in a test, from the seed.
 */
static bool
token_next(struct crpc_udrpc *ctx, uint32_t *token)
{
	if (ctx->conf.seed == 0)
		return getrandom(token, sizeof(*token), 0) == sizeof(*token);
	*token = (uint32_t)(crpc_random(&ctx->rng) >> 32);
	return true;
}

/* An endpoint of which nothing is in the send queue any more is free for use. */
static bool
ep_usable(struct crpc_udrpc_ep *ep)
{
	if (ep->live || (ep->leaving && (ep->bye || ep->ctx->retired < ep->tx_seq)))
		return false;
	if (ep->leaving) {
		crpc_rdma_ah_free(ep->ah);
		ep->ah = NULL;
		ep->leaving = false;
	}
	return true;
}

static void
slots_reset(struct crpc_udrpc_ep *ep)
{
	struct udrpc_call *calls = ep->ctx->calls + ep->id * (ep->ctx->conf.slots + 1);

	TAILQ_INIT(&ep->want);
	TAILQ_INIT(&ep->unsent);
	for (uint32_t i = 0; i < ep->ctx->conf.slots; i++) {
		calls[i + 1].req = 0;
		calls[i + 1].wants = false;
		ep->serves[i].state = SERVE_IDLE;
		ep->serves[i].unsent = false;
		ep->serves[i].req = 0;
	}
}

struct crpc_udrpc_ep *
crpc_udrpc_ep_create(struct crpc_udrpc *ctx, uint32_t user_id)
{
	struct crpc_udrpc_ep *ep;
	uint32_t i;

	if (ctx->err != 0)
		return crpc_null(crpc_fail(
			-EIO, "ep_create: the datagram queue of the context is broken: free it"));
	for (i = 0; i < ctx->conf.max_eps && !ep_usable(&ctx->eps[i]); i++)
		;
	if (i == ctx->conf.max_eps)
		return crpc_null(crpc_fail(
			-ENOSPC, "ep_create: all %u endpoints (conf.max_eps) are in use", i));
	ep = &ctx->eps[i];
	if (!token_next(ctx, &ep->token))
		return crpc_fail(NULL, "ep_create: getrandom: %s", strerror(errno));
	ep->live = true;
	ep->err = -ENOTCONN;
	ep->user_id = user_id;
	ep->slots = 0;
	ep->credits = ctx->conf.credits;
	ep->heard = false;
	ep->silent = 0;
	ep->paced = false;
	ep->next_tx_ns = 0;
	ep->timely = (struct timely){.rate = ctx->timely.link};
	slots_reset(ep);
	return ep;
}

void
crpc_udrpc_ep_addr(const struct crpc_udrpc_ep *ep, uint8_t addr[CRPC_UDRPC_ADDR_LEN])
{
	const struct crpc_udrpc_conf *conf = &ep->ctx->conf;
	struct wire_addr a = {.magic = WIRE_ADDR_MAGIC,
		.version = WIRE_VERSION,
		.session = ep->id,
		.token = ep->token,
		.slots = conf->slots,
		.max_msg = conf->max_msg,
		.pkt_max = conf->pkt_max};

	crpc_rdma_qp_addr(ep->ctx->ud, a.ud);
	memcpy(addr, &a, sizeof(a));
}

/* The peer's bytes, checked. */
static int
addr_check(const struct crpc_udrpc_ep *ep, const struct wire_addr *a)
{
	const struct crpc_field fields[] = {{"magic", a->magic, WIRE_ADDR_MAGIC, WIRE_ADDR_MAGIC},
		{"version", a->version, WIRE_VERSION, WIRE_VERSION},
		{"flags", a->flags, 0, 0},
		{"session", a->session, 0, CRPC_UDRPC_EPS_MAX - 1},
		{"slots", a->slots, 1, UINT32_MAX},
		{"max_msg", a->max_msg, 1, UINT32_MAX},
		{"pkt_max", a->pkt_max, CRPC_UDRPC_PKT_MIN, UINT32_MAX}};

	return crpc_address_check(ep->user_id, fields, CRPC_DIM(fields));
}

int
crpc_udrpc_ep_connect(struct crpc_udrpc_ep *ep, const uint8_t peer[CRPC_UDRPC_ADDR_LEN])
{
	const struct crpc_udrpc_conf *conf = &ep->ctx->conf;
	struct wire_addr a;
	int rc;

	if (ep->err != -ENOTCONN)
		return -EISCONN;
	if (ep->ctx->err != 0)
		return -EIO;
	memcpy(&a, peer, sizeof(a));
	rc = addr_check(ep, &a);
	if (rc != 0)
		return rc;
	ep->ah = crpc_rdma_ah_create(ep->ctx->ud, a.ud);
	if (ep->ah == NULL)
		return -errno;
	ep->peer_id = a.session;
	ep->peer_token = a.token;
	ep->slots = (uint32_t)crpc_min(conf->slots, a.slots);
	ep->max_msg = (uint32_t)crpc_min(conf->max_msg, a.max_msg);
	ep->piece = (uint32_t)crpc_min(conf->pkt_max, a.pkt_max) - WIRE_HEAD;
	__crpc_calls_init(&ep->calls, ep->ctx->calls + ep->id * (conf->slots + 1), ep->slots,
		sizeof(struct udrpc_call), 0);
	ep->err = 0;
	return 0;
}

void
__crpc_udrpc_ep_break(struct crpc_udrpc_ep *ep, int32_t err)
{
	struct crpc_udrpc *ctx = ep->ctx;

	ep->err = err;
	__crpc_udrpc_timer_stop(ep);
	for (struct udrpc_serve *s = ep->serves; s != ep->serves + ctx->conf.slots; s++) {
		if (s->state != SERVE_READY)
			continue;
		TAILQ_REMOVE(&ctx->ready, s, list);
		s->state = SERVE_IDLE;
	}
	if (rpc_calls_in_use(&ep->calls) == 0)
		return;
	ep->in_ending = true;
	TAILQ_INSERT_HEAD(&ctx->ending, ep, ending);
}

void
__crpc_udrpc_queue_broke(struct crpc_udrpc *ctx, const struct crpc_rdma_cqe *cqe)
{
	if (ctx->err != 0)
		return;
	crpc_err("the datagram queue broke: status %d, syndrome 0x%x: all endpoints end",
		cqe->status, cqe->syndrome);
	ctx->err = cqe->status;
	ctx->nbatch = 0;
	for (uint32_t i = 0; i < ctx->conf.max_eps; i++) {
		if (!ctx->eps[i].live || ctx->eps[i].err != 0)
			continue;
		ctx->stats.ep_errors++;
		__crpc_udrpc_ep_break(&ctx->eps[i], -ECONNRESET);
	}
	/* what was in the send queue is flushed, not read */
	ctx->retired = ctx->put;
}

uint16_t
__crpc_udrpc_calls_end(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n)
{
	struct crpc_udrpc_ep *ep;
	uint16_t k = 0;

	while ((ep = TAILQ_FIRST(&ctx->ending)) != NULL) {
		k += __crpc_calls_drop(
			&ep->calls, -ECONNRESET, &ctx->stats.rpc, done + k, (uint16_t)(n - k));
		if (rpc_calls_in_use(&ep->calls) != 0)
			break;
		TAILQ_REMOVE(&ctx->ending, ep, ending);
		ep->in_ending = false;
	}
	return k;
}

uint32_t
crpc_udrpc_cancel(struct crpc_udrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&ep->ctx->owner, "udrpc context");
	ep->ctx->now_ns = now_ns;
	return __crpc_calls_cancel(&ep->calls, &ep->ctx->sweep, cookie);
}

void
crpc_udrpc_ep_shutdown(struct crpc_udrpc_ep *ep)
{
	crpc_owner_check(&ep->ctx->owner, "udrpc context");
	if (ep->err == 0)
		__crpc_udrpc_tx_bye(ep);
	if (ep->err == 0 || ep->err == -ENOTCONN)
		__crpc_udrpc_ep_break(ep, -ECONNRESET);
}

void
crpc_udrpc_ep_free(struct crpc_udrpc_ep *ep)
{
	struct crpc_udrpc *ctx;

	if (ep == NULL)
		return;
	ctx = ep->ctx;
	crpc_rdma_hand_over(ctx->dev); /* Another thread may free it. */
	if (ep->err == 0)
		__crpc_udrpc_ep_break(ep, -ECONNRESET);
	if (ep->in_ending)
		TAILQ_REMOVE(&ctx->ending, ep, ending);
	if (ep->in_sending)
		TAILQ_REMOVE(&ctx->sending, ep, sending);
	ep->in_ending = ep->in_sending = false;
	ep->calls = (struct rpc_calls){0};
	for (uint32_t i = 0; i < ctx->conf.slots; i++)
		ep->serves[i].state = SERVE_IDLE;
	ep->live = false;
	ep->leaving = ep->ah != NULL;
	/* its completion also proves that all before it have left */
	if (ep->leaving)
		__crpc_udrpc_tx_bye(ep);
}

int
crpc_udrpc_ep_status(const struct crpc_udrpc_ep *ep)
{
	return ep->err;
}
