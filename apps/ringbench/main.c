/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringbench: what a message between two lcores costs, beside rte_ring and other queues, and beside
 * what the machine can do at all.
 */
#include <rte_lcore.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "rb.h"

unsigned int rb_lcore[RB_LCORES_MAX];
uint32_t rb_lcores;

static struct app_party party = {.lcores_max = RB_LCORES_MAX};

static int
run(void *arg)
{
	const struct rb_opt *o = arg;
	struct app_case c = {.depth = (uint32_t)o->slots};
	struct app_group g;
	int rc = 0;

	rb_env_limits(&party);
	c.nodes = o->nodes != 0 ? (uint32_t)o->nodes : rb_lcores;
	for (uint32_t p = 0; p < o->patterns.n; p++)
		for (uint32_t m = 0; m < o->sizes.n; m++)
			for (uint32_t b = 0;
				b < o->bursts.n && rc == 0 && !app_party_stopped(&party); b++) {
				bool one = o->patterns.v[p] == RB_LATENCY;

				if (one && b != 0)
					continue;
				c.pattern = (enum rb_pattern)o->patterns.v[p];
				c.size = (uint32_t)o->sizes.v[m];
				c.burst = one ? 1 : (uint32_t)o->bursts.v[b];
				c.inflight = one ? 1 : (uint32_t)o->depth;
				g = (struct app_group){.party = &party, .what = "ringbench"};
				rc = rb_case_run(o, &c, &g);
			}
	return rc;
}

/* Find all lcores, of which the party has the first two. */
static int
prepare(void *arg)
{
	size_t at = 0;
	unsigned int id;

	if (party.place != APP_PLACE_LCORE)
		return app_fail("lcores of one process: %s; two are needed: -l 0,1", party.lcores);
	rb_lcore[rb_lcores++] = rte_get_main_lcore();
	RTE_LCORE_FOREACH_WORKER(id)
	if (rb_lcores < RB_LCORES_MAX)
		rb_lcore[rb_lcores++] = id;
	for (id = 0; id < rb_lcores; id++)
		at += (size_t)snprintf(party.lcores + at, sizeof(party.lcores) - at, "%s%u",
			id == 0 ? "" : ",", rb_lcore[id]);
	return 0;
}

int
main(int argc, char **argv)
{
	struct rb_opt *o;
	struct app_args args;
	int rc;

	app_fail_name("ringbench");
	if (app_args_answer("ringbench", argc, argv, rb_opt_help))
		return APP_EXIT_OK;
	app_args_split(&args, argc, argv, false);
	rc = rb_opt_parse(&o, args.argc, args.argv);
	if (rc != 0)
		return rc;
	crpc_clock_init();
	rc = app_party_start(&party, &args, NULL);
	if (rc != 0)
		return rc;
	return app_party_run(
		&party, &(struct app_bench){"ringbench", o->json, prepare, run, o});
}
