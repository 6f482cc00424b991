/* SPDX-License-Identifier: BSD-3-Clause */
/* What only copyrpc has: its modes and sizes, reserved calls and replies, positions, and ends that
 * are reset under a new epoch. */
#include <errno.h>

#include "crpc_copyrpc.h"
#include "step_rig.h"

#define SOON_NS   UINT64_C(100000)
#define SILENT_NS UINT64_C(10000000)
#define LONG_NS   (UINT64_C(1) << 60)

static struct crpc_copyrpc_conf conf_of[NODES];
static struct crpc_copyrpc_ep_conf mode_of[LINKS];

VERBS_MAKE(copyrpc)

/* From other draws than the rest: a seed is the same scenario over both transports. */
static void
dynamic_make(void)
{
	uint64_t h = mix(scene.seed * 11 + 5);

	for (uint32_t i = 0; i < scene.nlinks; i++)
		mode_of[i].transport = (h >> (8 + 2 * i) & 3) != 0 ? CRPC_RDMA_DC : CRPC_RDMA_RC;
	scene.dcis = 1 + (uint32_t)(h & 3);
	/* A peer whose target failed keeps others on the same initiator waiting until all tries are
	 * over: that must not be taken for their peers' silence. */
	for (uint32_t i = 0; i < scene.nnodes; i++)
		conf_of[i].peer_timeout_ns *= 64;
}

static void
conf_make(void)
{
	uint32_t i, ring = 4096u << (one_in(3) ? rnd(3) : 0);
	struct crpc_copyrpc_conf conf = {.max_eps = LINKS * 2, .ring_size = ring};

	memset(mode_of, 0, sizeof(mode_of));
	/* One draw in a statement: a seed must mean the same to every compiler. */
	conf.max_msg = one_in(2) ? CRPC_COPYRPC_MSG_MAX(ring) : 16 + rnd(300);
	conf.max_large = one_in(3) ? ring + rnd(MSG_ROOM - 64 - ring) : 0;
	conf.timeout_ns = scene.timeouts ? SOON_NS << rnd(12) : LONG_NS;
	/* Longer than the turns that a context may have to wait for. */
	conf.peer_timeout_ns = scene.timeouts && one_in(2) ? SILENT_NS << rnd(4) : 0;
	for (i = 0; i < scene.nnodes; i++) {
		conf_of[i] = conf;
		conf_of[i].max_inflight = 1u << rnd(8);
		conf_of[i].flush = (enum crpc_copyrpc_flush_policy)rnd(4);
		conf_of[i].max_outstanding = 1 + rnd(3);
		conf_of[i].batch_max = one_in(2) ? ring : 512;
		conf_of[i].sq_depth = one_in(2) ? 8 : 64;
		conf_of[i].rq_depth = 1 + rnd(16);
		conf_of[i].age_ns = 1000 + rnd(50000);
	}
	for (i = 0; i < scene.nlinks; i++) {
		mode_of[i].flow = (enum crpc_copyrpc_flow)rnd(3);
		mode_of[i].arrival = (enum crpc_copyrpc_arrival)rnd(2);
	}
	if (scene.kind == KIND_DC)
		dynamic_make();
}

static void
ctx_make(struct node *n)
{
	struct crpc_copyrpc_conf *conf = &conf_of[n - scene.node];

	conf->dev = n->dev;
	n->ctx = crpc_copyrpc_create(conf);
	if (crpc_rdma_mr_reg(n->dev, scene.one, sizeof(scene.one), &n->mr) != 0)
		fail("region of a context");
}

static void
ctx_end(struct node *n)
{
	const struct crpc_copyrpc_stats *stats = crpc_copyrpc_stats(n->ctx);

	met.sq_full += stats->sq_full;
	met.wraps += stats->wraps;
	met.lost += stats->peers_lost;
	crpc_copyrpc_free(n->ctx);
	crpc_rdma_mr_dereg(n->dev, &n->mr);
}

static bool
end_make(struct link *l, int side)
{
	uint32_t i = (uint32_t)(l - scene.link);

	l->dynamic = mode_of[i].transport == CRPC_RDMA_DC;
	l->ep[side] = crpc_copyrpc_ep_create_as(
		scene.node[l->node[side]].ctx, i * 2 + (uint32_t)side, &mode_of[i]);
	return l->ep[side] != NULL;
}

static bool
ends_renew(struct link *l)
{
	for (int side = 0; side < 2; side++) {
		int rc = crpc_copyrpc_ep_reset(l->ep[side]);

		met.busy += rc == -EBUSY;
		if (rc == -EBUSY)
			return false;
		if (rc != 0)
			fail("reset of link %d: %d", (int)(l - scene.link), rc);
	}
	return true;
}

static uint32_t
size_rnd(bool large)
{
	uint32_t max = large ? conf_of[0].max_large : conf_of[0].max_msg;

	switch (rnd(8)) {
	case 0:
		return rnd(max + 1);
	case 1:
		return max - rnd((uint32_t)crpc_min(17, max + 1));
	default:
		return rnd((uint32_t)crpc_min(100, max + 1));
	}
}

static void
sizes_make(struct record *r)
{
	bool large = conf_of[0].max_large != 0 && one_in(12);

	r->len = (uint32_t)crpc_max(REQ_HEAD, size_rnd(large));
	r->large = r->len > conf_of[0].max_msg;
	r->resp_max = size_rnd(conf_of[0].max_large != 0 && one_in(12));
	r->oneway = one_in(6) && !r->large;
}

static int
call_make(void *ep, const struct record *r, const uint8_t *buf, uint32_t id)
{
	if (r->oneway)
		return crpc_copyrpc_notify(ep, scene.now, buf, r->len);
	return crpc_copyrpc_call(ep, scene.now, buf, r->len, r->resp_max, id);
}

static int
reply_make(void *ctx, uint64_t token, const uint8_t *buf, uint32_t len)
{
	void *data;
	int rc;

	if (len > conf_of[0].max_msg || !one_in(2))
		return crpc_copyrpc_reply(ctx, scene.now, token, buf, len);
	rc = crpc_copyrpc_reply_reserve(ctx, scene.now, token, len, &data);
	if (rc == 0) {
		memcpy(data, buf, len);
		crpc_copyrpc_reply_commit(ctx, scene.now);
	}
	return rc;
}

static bool
ends_match(const struct link *l)
{
	struct crpc_copyrpc_positions pos[2];

	for (int side = 0; side < 2; side++)
		crpc_copyrpc_ep_positions(l->ep[side], &pos[side]);
	for (int side = 0; side < 2; side++)
		if (pos[side].requests_sent != pos[!side].requests_arrived ||
			pos[side].responses_sent != pos[!side].responses_arrived ||
			pos[side].reply_room_reserved != 0 ||
			pos[side].reply_room_reserved_by_peer != 0)
			return false;
	return true;
}

const struct protocol copyrpc_protocol = {
	.ids_max = IDS - 1,
	.conf_make = conf_make,
	.ctx_make = ctx_make,
	.ctx_end = ctx_end,
	.end_make = end_make,
	.ends_renew = ends_renew,
	.sizes_make = sizes_make,
	.call = call_make,
	.reply_make = reply_make,
	.ends_match = ends_match,
	VERBS(copyrpc),
};
