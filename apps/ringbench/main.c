/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringbench: what a message between two lcores costs, beside rte_ring and other queues, and beside
 * what the machine can do at all.
 */
#include <rte_lcore.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_config.h"
#include "rb.h"

unsigned int rb_lcore[RB_LCORES_MAX];
uint32_t rb_lcores;

const char *const rb_transport_names[RB_TRANSPORTS + 1] = {
	[RB_FASTFORWARD] = "fastforward",
	[RB_LAMPORT] = "lamport",
	[RB_ONESIDED] = "onesided",
	[RB_DUPLEX] = "duplex",
	[RB_RTE_RING] = "rte_ring",
	[RB_RTE_RING_ZC] = "rte_ring_zc",
	[RB_RTE_RING_RTS] = "rte_ring_rts",
	[RB_RTE_RING_HTS] = "rte_ring_hts",
};

const char *const rb_pattern_names[RB_PATTERNS + 1] = {
	"stream", "rpc", "latency", "flux", "mesh", NULL};

static struct rb_opt opt = {
	.transports = {6,
		{RB_FASTFORWARD, RB_LAMPORT, RB_ONESIDED, RB_DUPLEX, RB_RTE_RING, RB_RTE_RING_ZC}},
	.patterns = {1, {RB_RPC}},
	.sizes = {1, {32}},
	.bursts = {3, {1, 8, 32}},
	.depth = 256,
	.repeat = APP_REPEAT_DEFAULT,
	.seconds = 0.06};

static const struct app_opt opts[] = {
	APP_TRANSPORT(&opt.transports, "messages", rb_transport_names),
	APP_CHOICE("pattern", &opt.patterns, "how they travel", rb_pattern_names),
	APP_SIZE(&opt.sizes, "a message, a power of two", 8, 256, .pow2 = true),
	APP_BURST(&opt.bursts, "per call of the ring"),
	APP_DEPTH(&opt.depth, "each pair of nodes", CRPC_FLUX_WINDOW_MAX),
	APP_OPT("slots", "N", &opt.slots,
		"slots of each ring, a power of two; without it twice the open calls",
		CRPC_SPSC_DEPTH_MIN, CRPC_SPSC_DEPTH_MAX, .pow2 = true),
	APP_OPT("nodes", "N", &opt.nodes, "of flux and mesh; without it one per lcore", 2, 64),
	APP_SECONDS(&opt.seconds, " per transport and round, in slices of 60 ms"),
	APP_REPEAT(&opt.repeat, "transports, interleaved"),
	APP_VERIFY(&opt.verify, "every payload, in slices of their own"),
	APP_CPU_COUNTERS(&opt.counters, "message"),
	APP_JSON(&opt.json),
};

static int
check(void)
{
	if (opt.slots == 0) /* more only costs cache: the slots are used in turn */
		opt.slots = crpc_pow2_ceil(2 * opt.depth);
	/* rte_ring and others hold slots - 1: a window of all slots would stand still. */
	if (opt.depth >= opt.slots)
		return app_fail("--depth %lu is not below the --slots %lu; give less",
			(unsigned long)opt.depth, (unsigned long)opt.slots);
	return app_json_check("json", opt.json);
}

static struct app_party party = {.lcores_max = RB_LCORES_MAX};

static int
run(void *arg)
{
	struct app_case c = {.depth = (uint32_t)opt.slots};
	const struct app_axis axes[] = {
		{&opt.patterns, &c.pattern}, {&opt.sizes, &c.size}, {&opt.bursts, &c.burst}};
	int rc = 0;

	rb_env_limits(&party);
	c.nodes = opt.nodes != 0 ? (uint32_t)opt.nodes : rb_lcores;
	for (uint64_t at = 0; rc == 0 && !app_party_stopped(&party) &&
		app_axes_set(axes, CRPC_DIM(axes), at);
		at++) {
		c.inflight = (uint32_t)opt.depth;
		if (c.pattern == RB_LATENCY) { /* One at a time: there are no bursts. */
			if (at % opt.bursts.n != 0)
				continue;
			c.inflight = c.burst = 1;
		}
		rc = rb_case_run(&opt, &c, &party);
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

static void
help(int argc, char *const *argv)
{
	printf("usage: ringbench [EAL arguments] -- [options]\n\n"
	       "What a message between two lcores costs, by ring and by pattern. Without\n"
	       "hugepages give the EAL --no-huge; -l 0,1 chooses the two lcores.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), stdout);
}

int
main(int argc, char **argv)
{
	struct app_args args;
	int rc;

	app_fail_name("ringbench");
	if (app_args_answer("ringbench", argc, argv, help))
		return APP_EXIT_OK;
	app_args_split(&args, argc, argv, false);
	rc = app_opt_parse(opts, CRPC_DIM(opts), args.argc, args.argv);
	if (rc == 0)
		rc = check();
	if (rc != 0)
		return rc;
	crpc_clock_init();
	rc = app_party_start(&party, &args, NULL);
	if (rc != 0)
		return rc;
	return app_party_run(
		&party, &(struct app_bench){"ringbench", opt.json, prepare, run, NULL});
}
