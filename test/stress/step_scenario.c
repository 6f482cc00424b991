/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios through the whole stack: copyrpc or udrpc, the mlx5 driver and rdma-core, on
 * software cards that are stepped by hand (soft_mlx5_step.h). Two or three contexts of one process,
 * several connections between them, reliable, dynamic or over datagrams; random calls, gets and
 * puts, one-way sends, replies, sizes, flow, arrival and flush modes, short queues; a network that
 * loses, doubles, delays and corrupts; queue pairs that fail in any state, completion queues that
 * overrun, cards that vanish, and connections that are made again.
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

#define REST_TURN 400000

static void
audit(bool at_rest)
{
	for (uint32_t i = 0; i < scene.nnodes; i++)
		if (!scene.node[i].gone && scene.protocol->audit(scene.node[i].ctx, at_rest) != 0)
			fail("the auditor finds fault with context %u", i);
}

static void
turn(bool calls)
{
	struct node *n = &scene.node[rnd(scene.nnodes)];
	uint32_t k = rnd(16), what;

	scene.now += rnd(1000);
	what = rnd(calls ? 13 : 8);
	if (n->gone && what < 5)
		return;
	switch (what) {
	case 0:
		scene.protocol->flush(n->ctx, scene.now);
		break;
	case 1:
	case 2:
		do_poll(n);
		break;
	case 3:
		do_recv(n);
		break;
	case 4:
		for (; k != 0; k--)
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
	for (uint32_t i = 0; i < scene.nlinks; i++)
		if (scene.link[i].broken || scene.one[i][0].done != scene.one[i][0].posted ||
				scene.one[i][1].done != scene.one[i][1].posted)
			return false;
	for (uint32_t i = 0; i < scene.nnodes; i++)
		if (scene.node[i].nheld != 0)
			return false;
	for (uint32_t i = 1; i <= scene.nids; i++) {
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
	if (scene.troubles != 0)
		(void)step.faults(SOFT_MLX5_STEP_ALL, "");
	for (uint32_t t = 0; t < REST_TURN; t++) {
		turn(false);
		if (t % 16 != 0)
			continue;
		do_mend(true);
		if (step.idle() == 1)
			scene.now += 100000 + rnd(1000000);
		if (is_over())
			break;
	}
	for (uint32_t i = 1; i <= scene.nids; i++)
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
	bool ok = false;

	for (uint32_t t = 0; t < 2000 && !ok; t++) {
		scene.now += 50000;
		for (uint32_t i = 0; i < scene.nnodes; i++) {
			do_poll(&scene.node[i]);
			do_recv(&scene.node[i]); /* What a caller gave up is to be served. */
			while (scene.node[i].nheld != 0)
				do_answer(&scene.node[i]);
		}
		check(step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL) == 0);
		ok = t % 8 == 7;
		for (uint32_t i = 0; ok && i < scene.nnodes; i++)
			ok = scene.protocol->audit(scene.node[i].ctx, true) == 0;
	}
	audit(true);
	for (uint32_t i = 0; i < scene.nlinks; i++) {
		struct link *l = &scene.link[i];

		link_look(l);
		if (l->broken)
			fail("link %u broke at rest", i);
		if (scene.protocol->ends_match != NULL && !scene.protocol->ends_match(l))
			fail("link %u: the ends' positions differ", i);
	}
}

static void
scene_open(uint64_t seed, enum kind kind)
{
	scene_begin(seed, kind);
	scene.troubles = one_in(4) ? 0 : rnd(kind == KIND_UD ? REFUSALS : 2 * REFUSALS);
	scene.onesided = one_in(2) && kind != KIND_UD;
	scene.timeouts = (scene.troubles & DEATHS) != 0 || one_in(8);
	scene.nnodes = 2 + one_in(3);
	scene.nlinks = 1 + rnd(LINKS);
	scene.protocol->conf_make();
	say("seed %" PRIu64 ": %u contexts, %u links, troubles %u\n", seed, scene.nnodes,
		scene.nlinks, scene.troubles);
	for (uint32_t i = 0; i < scene.nnodes; i++)
		node_open(&scene.node[i]);
	for (uint32_t i = 0; i < scene.nlinks; i++) {
		struct link *l = &scene.link[i];

		l->node[0] = (int)rnd(scene.nnodes);
		l->node[1] = kind != KIND_UD && one_in(8)
			? l->node[0]
			: (l->node[0] + 1 + (int)rnd(scene.nnodes - 1)) % (int)scene.nnodes;
		check(scene.protocol->end_make(l, 0) && scene.protocol->end_make(l, 1));
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
	for (uint32_t t = 0; t < ms; t++) {
		scene.now += 1000000;
		for (uint32_t i = 0; i < scene.nnodes; i++)
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
	for (uint32_t i = 0; i < 8; i++)
		do_call();
	for (uint32_t i = 0; i < scene.nlinks * 2 && scene.kind == KIND_DC; i++)
		call_on(&scene.link[i / 2], (int)(i & 1));
	come_to_rest();
	if (scene.kind != KIND_DC || (scene.troubles & BREAKS) == 0)
		return;
	let_timers_end(1500);
	come_to_rest();
}

void
scenario_run(uint64_t seed, enum kind kind)
{
	scene_open(seed, kind);
	for (uint32_t i = 0; i < TURNS; i++) {
		turn(true);
		if (i % 64 == 0)
			audit(false);
	}
	come_to_rest();
	if ((scene.troubles & LOSSES) != 0)
		let_timers_end(300);
	work_again();
	credits_match();
	for (uint32_t i = 0; i < scene.nnodes; i++)
		node_close(&scene.node[i]);
}
