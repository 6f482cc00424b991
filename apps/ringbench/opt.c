/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: every wrong value is one line with the value and the range. */
#include "app_fail.h"
#include "app_json.h"
#include "crpc_config.h"
#include "rb.h"

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

void
rb_opt_help(int argc, char *const *argv)
{
	printf("usage: ringbench [EAL arguments] -- [options]\n\n"
	       "What a message between two lcores costs, by ring and by pattern. Without\n"
	       "hugepages give the EAL --no-huge; -l 0,1 chooses the two lcores.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), stdout);
}

int
rb_opt_parse(struct rb_opt **o, int argc, char **argv)
{
	int rc;

	*o = &opt;
	rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
	return rc != 0 ? rc : check();
}
