/* SPDX-License-Identifier: BSD-3-Clause */
/* What only udrpc has: its sizes, a context that waits for its last datagrams when it ends, and
 * sessions that are freed and made again. */
#include <errno.h>

#include "step_rig.h"
#include "udrpc_audit.h"

#define UD_MSG_MAX 6000u
#define UD_CALLS   2000u

static struct crpc_udrpc_conf conf_of_all;

VERBS_MAKE(udrpc)

static void
conf_make(void)
{
	struct crpc_udrpc_conf conf = {.max_eps = LINKS * 4};

	conf.slots = 1 + rnd(8);
	conf.credits = 1 + rnd(32);
	conf.max_msg = one_in(2) ? UD_MSG_MAX : 64 + rnd(UD_MSG_MAX - 64);
	conf.pkt_max = one_in(2) ? 0 : CRPC_UDRPC_PKT_MIN + rnd(800);
	conf.sq_depth = 8u << rnd(5);
	conf.rq_depth = one_in(2) ? 0 : 8 + rnd(56);
	conf.retries = (scene.troubles & DEATHS) != 0 ? 3 + rnd(10) : 1000;
	conf.rto_ns = 200000u << rnd(4);
	conf.timeout_ns = scene.timeouts ? UINT64_C(1000000) << rnd(6) : UINT64_C(1) << 60;
	conf.no_congestion_control = one_in(3);
	conf_of_all = conf;
}

static void
ctx_make(struct node *n)
{
	struct crpc_udrpc_conf conf = conf_of_all;

	conf.dev = n->dev;
	conf.seed = scene.rng | 1;
	n->ctx = crpc_udrpc_create(&conf);
}

static void
ctx_end(struct node *n)
{
	met.repeated += crpc_udrpc_stats(n->ctx)->repeated;
	scene.waits = true;
	crpc_udrpc_free(n->ctx);
	scene.waits = false;
}

/* Endpoints that were freed may keep their place until what they sent has left. */
static bool
end_make(struct link *l, int side)
{
	uint32_t id = (uint32_t)(l - scene.link) * 2 + (uint32_t)side;
	struct node *n = &scene.node[l->node[side]];

	if (l->ep[side] == NULL)
		l->ep[side] = crpc_udrpc_ep_create(n->ctx, id);
	if (l->ep[side] == NULL && errno == EIO)
		n->gone = true; /* Its queue broke. */
	else if (l->ep[side] == NULL && errno != ENOSPC)
		fail("create of an endpoint");
	return l->ep[side] != NULL;
}

static bool
ends_renew(struct link *l)
{
	for (int side = 0; side < 2; side++) {
		crpc_udrpc_ep_free(l->ep[side]);
		l->ep[side] = NULL;
	}
	return end_make(l, 0) && end_make(l, 1);
}

static void
sizes_make(struct record *r)
{
	uint32_t max = conf_of_all.max_msg, small = (uint32_t)crpc_min(200u, max);

	r->len = rnd(one_in(6) ? max + 1 : small);
	r->len = (uint32_t)crpc_max(REQ_HEAD, r->len);
	r->resp_max = rnd(one_in(6) ? max + 1 : small);
	r->large = r->len > 4096 || r->resp_max > 4096;
}

static int
call_make(void *ep, const struct record *r, const uint8_t *buf, uint32_t id)
{
	return crpc_udrpc_call(ep, scene.now, buf, r->len, r->resp_max, id);
}

const struct protocol udrpc_protocol = {
	.ids_max = UD_CALLS,
	.conf_make = conf_make,
	.ctx_make = ctx_make,
	.ctx_end = ctx_end,
	.end_make = end_make,
	.ends_renew = ends_renew,
	.sizes_make = sizes_make,
	.call = call_make,
	VERBS(udrpc),
};
