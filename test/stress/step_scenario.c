/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios through the whole stack: copyrpc, its mlx5 driver and rdma-core, on software
 * cards that are stepped by hand (soft_mlx5_step.h). Two or three contexts of one process, several
 * connections between them, reliable or dynamic; random calls, gets and puts, one-way sends,
 * replies, sizes, flow, arrival and flush modes, short queues; a network that loses, doubles,
 * delays and corrupts; queue pairs that fail in any state, completion queues that overrun, cards
 * that vanish, and connections that come back under a new epoch.
 *
 * What must hold, whatever happens:
 *
 * - each accepted call completes exactly once, with the right data or an error that something
 *   explains;
 * - a request is executed at most once, unchanged, in its life, small ones in order;
 * - where nothing broke, every call and one-way send arrives;
 * - at any time the auditor finds each context in order, and at rest no credit is missing.
 */
#include "step_rig.h"

#define SOON_NS   UINT64_C(100000)
#define SILENT_NS UINT64_C(10000000)
#define LONG_NS   (UINT64_C(1) << 60)
#define REST_TURN 400000

static void
audit(bool at_rest)
{
	uint32_t i;

	for (i = 0; i < scene.nnodes; i++)
		if (!scene.node[i].gone && crpc_copyrpc_check(scene.node[i].ctx, at_rest) != 0)
			fail("the auditor finds fault with context %u", i);
}

static void
turn(bool calls)
{
	struct node *n = &scene.node[rnd(scene.nnodes)];
	uint32_t k = rnd(16);

	scene.now += rnd(1000);
	switch (rnd(calls ? 13 : 8)) {
	case 0:
		if (!n->gone)
			crpc_copyrpc_flush(n->ctx, scene.now);
		break;
	case 1:
	case 2:
		if (!n->gone)
			do_poll(n);
		break;
	case 3:
		if (!n->gone)
			do_recv(n);
		break;
	case 4:
		for (; k != 0 && !n->gone; k--)
			do_answer(n);
		break;
	case 5:
	case 6:
	case 7:
		do_steps(k);
		break;
	case 8:
		if (scene.troubles != 0)
			do_trouble();
		break;
	case 9:
		if (one_in(2))
			do_mend(false);
		if (one_in(8))
			do_cancel();
		if (scene.troubles != 0 && one_in(8))
			scene.now += rnd(30000000);
		break;
	case 10:
		for (; k != 0 && scene.onesided; k--)
			do_onesided();
		break;
	default:
		for (; k != 0; k--)
			do_call();
		break;
	}
}

/* Nothing is open, held or under way. */
static bool
is_over(void)
{
	uint32_t i;

	for (i = 0; i < scene.nlinks; i++)
		if (scene.link[i].broken || scene.one[i][0].done != scene.one[i][0].posted ||
				scene.one[i][1].done != scene.one[i][1].posted)
			return false;
	for (i = 0; i < scene.nnodes; i++)
		if (scene.node[i].nheld != 0)
			return false;
	for (i = 1; i <= scene.nids; i++) {
		const struct record *r = &scene.id[i];
		const struct link *l = &scene.link[r->link];

		if (r->open || (r->oneway && r->executed == 0 && r->life == l->life && !l->broken))
			return false;
	}
	return true;
}

/* Go on without new calls until everything has ended. */
static void
come_to_rest(void)
{
	uint32_t i, t;

	if (scene.troubles != 0)
		(void)step.faults(SOFT_MLX5_STEP_ALL, "");
	for (t = 0; t < REST_TURN; t++) {
		turn(false);
		if (t % 16 != 0)
			continue;
		do_mend(true);
		if (step.idle() == 1)
			scene.now += 100000 + rnd(1000000);
		if (is_over())
			break;
	}
	for (i = 1; i <= scene.nids; i++)
		if (scene.id[i].open)
			fail("call %u of life %u on link %u (life %u, broken %d) does not end", i,
				scene.id[i].life, scene.id[i].link,
				scene.link[scene.id[i].link].life,
				scene.link[scene.id[i].link].broken);
	if (!is_over())
		fail("a one-way request does not arrive, or something stays held");
}

/* Both ends' positions say the same, once the last window updates have arrived. */
static void
credits_match(void)
{
	struct crpc_copyrpc_positions pos[2];
	struct link *l;
	uint32_t i, t;
	bool ok = false;
	int side;

	for (t = 0; t < 2000 && !ok; t++) {
		scene.now += 50000;
		for (i = 0; i < scene.nnodes; i++) {
			do_poll(&scene.node[i]);
			do_recv(&scene.node[i]); /* What a caller gave up is to be served. */
			while (scene.node[i].nheld != 0)
				do_answer(&scene.node[i]);
		}
		check(step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL) == 0);
		ok = t % 8 == 7;
		for (i = 0; ok && i < scene.nnodes; i++)
			ok = crpc_copyrpc_check(scene.node[i].ctx, true) == 0;
	}
	audit(true);
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		link_look(l);
		if (l->broken)
			fail("link %u broke at rest", i);
		for (side = 0; side < 2; side++)
			crpc_copyrpc_ep_positions(l->ep[side], &pos[side]);
		if (crpc_copyrpc_positions_match(&pos[0], &pos[1], scene.mode[i].flow) != 0)
			fail("link %u: the ends' positions differ", i);
	}
}

/* From other draws than the rest: a seed is the same scenario over both transports. */
static void
dynamic_make(void)
{
	uint64_t h = mix(scene.seed * 11 + 5);
	uint32_t i;

	for (i = 0; i < scene.nlinks; i++)
		scene.mode[i].transport = (h >> (8 + 2 * i) & 3) != 0 ? CRPC_RDMA_DC : CRPC_RDMA_RC;
	scene.dcis = 1 + (uint32_t)(h & 3);
	/* A peer whose target failed keeps others on the same initiator waiting until all tries are
	 * over: that must not be taken for their peers' silence. */
	for (i = 0; i < scene.nnodes; i++)
		scene.conf[i].peer_timeout_ns *= 64;
}

static void
conf_make(void)
{
	uint32_t i, ring = 4096u << (one_in(3) ? rnd(3) : 0);
	struct crpc_copyrpc_conf conf = {.max_eps = LINKS * 2, .ring_size = ring};

	/* One draw in a statement: a seed must mean the same to every compiler. */
	conf.max_msg = one_in(2) ? CRPC_COPYRPC_MSG_MAX(ring) : 16 + rnd(300);
	conf.max_large = one_in(3) ? ring + rnd(MSG_ROOM - 64 - ring) : 0;
	conf.timeout_ns = scene.timeouts ? SOON_NS << rnd(12) : LONG_NS;
	/* Longer than the turns that a context may have to wait for. */
	conf.peer_timeout_ns = scene.timeouts && one_in(2) ? SILENT_NS << rnd(4) : 0;
	for (i = 0; i < scene.nnodes; i++) {
		scene.conf[i] = conf;
		scene.conf[i].max_inflight = 1u << rnd(8);
		scene.conf[i].flush = (enum crpc_copyrpc_flush_policy)rnd(4);
		scene.conf[i].max_outstanding = 1 + rnd(3);
		scene.conf[i].batch_max = one_in(2) ? ring : 512;
		scene.conf[i].sq_depth = one_in(2) ? 8 : 64;
		scene.conf[i].rq_depth = 1 + rnd(16);
		scene.conf[i].age_ns = 1000 + rnd(50000);
	}
	for (i = 0; i < scene.nlinks; i++) {
		scene.mode[i].flow = (enum crpc_copyrpc_flow)rnd(3);
		scene.mode[i].arrival = (enum crpc_copyrpc_arrival)rnd(2);
	}
	if (scene.kind == KIND_DC)
		dynamic_make();
}

static void
scene_open(uint64_t seed, enum kind kind)
{
	struct link *l;
	uint32_t i;

	scene_begin(seed, kind);
	scene.troubles = one_in(4) ? 0 : rnd(16);
	scene.onesided = one_in(2);
	scene.timeouts = (scene.troubles & DEATHS) != 0 || one_in(8);
	scene.nnodes = 2 + one_in(3);
	scene.nlinks = 1 + rnd(LINKS);
	conf_make();
	say("seed %" PRIu64 ": %u contexts, %u links, troubles %u\n", seed, scene.nnodes,
		scene.nlinks, scene.troubles);
	for (i = 0; i < scene.nnodes; i++)
		node_open(&scene.node[i]);
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		l->node[0] = (int)rnd(scene.nnodes);
		l->node[1] = one_in(8) ? l->node[0]
				       : (l->node[0] + 1 + (int)rnd(scene.nnodes - 1)) %
				(int)scene.nnodes;
		link_make_end(l, 0);
		link_make_end(l, 1);
		link_connect(l);
	}
	if (scene.troubles != 0)
		check(step.faults(SOFT_MLX5_STEP_ALL, "") == 0);
}

/*
 * What was lost last is sent again after a timeout of the card, 67 ms, in which a context with a
 * shorter patience may take its peer for dead: let that happen before credits are compared.
 */
static void
let_timers_end(uint32_t ms)
{
	uint32_t i, t;

	for (t = 0; t < ms; t++) {
		scene.now += 1000000;
		for (i = 0; i < scene.nnodes; i++)
			do_poll(&scene.node[i]);
		check(step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL) == 0);
		do_mend(true);
	}
}

/*
 * It still works. A target that failed shows only to who sends to it, and when all its tries have
 * failed, so over DC each side sends, and time is given.
 */
static void
work_again(void)
{
	uint32_t i;

	for (i = 0; i < 8; i++)
		do_call();
	for (i = 0; i < scene.nlinks * 2 && scene.kind == KIND_DC; i++)
		call_on(&scene.link[i / 2], (int)(i & 1));
	come_to_rest();
	if (scene.kind != KIND_DC || (scene.troubles & BREAKS) == 0)
		return;
	let_timers_end(1500);
	come_to_rest();
}

void
copyrpc_run(uint64_t seed, enum kind kind)
{
	uint32_t i;

	scene_open(seed, kind);
	for (i = 0; i < TURNS; i++) {
		turn(true);
		if (i % 64 == 0)
			audit(false);
	}
	come_to_rest();
	if ((scene.troubles & LOSSES) != 0)
		let_timers_end(300);
	work_again();
	credits_match();
	for (i = 0; i < scene.nnodes; i++)
		node_close(&scene.node[i]);
}
