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
	[RB_CK_RING] = "ck_ring",
	[RB_BOOST] = "boost_spsc",
	[RB_MOODYCAMEL] = "moodycamel",
	[RB_ATOMIC_QUEUE] = "atomic_queue",
};

const char *const rb_pattern_names[RB_PATTERNS + 1] = {
	"stream", "rpc", "latency", "flux", "mesh", NULL};

static struct rb_opt opt = {
	.transports = {6, {RB_FASTFORWARD, RB_LAMPORT, RB_ONESIDED, RB_DUPLEX, RB_RTE_RING,
				  RB_RTE_RING_ZC}},
	.patterns = {1, {RB_RPC}},
	.sizes = {1, {32}},
	.bursts = {3, {1, 8, 32}},
	.inflight = 256,
	.repeat = 5,
	.seconds = 0.06};

static const struct app_opt opts[] = {
	{"transport", APP_OPT_CHOICES, "LIST",
		"some of fastforward, lamport, onesided, duplex, rte_ring,\n"
		"                               rte_ring_zc, rte_ring_rts, rte_ring_hts, ck_ring,\n"
		"                               boost_spsc, moodycamel, atomic_queue, or all\n"
		"                              ",
		&opt.transports, 0, 0, rb_transport_names},
	{"pattern", APP_OPT_CHOICES, "LIST", "some of stream, rpc, latency, flux, mesh, or all",
		&opt.patterns, 0, 0, rb_pattern_names},
	{"msg-size", APP_OPT_UINTS, "LIST", "bytes of a message, a power of two", &opt.sizes, 8,
		256, NULL},
	{"burst", APP_OPT_UINTS, "LIST", "messages per call", &opt.bursts, 1, 64,
		NULL},
	{"inflight", APP_OPT_UINT, "N", "open requests, per pair of nodes", &opt.inflight, 1,
		CRPC_FLUX_WINDOW_MAX, NULL},
	{"depth", APP_OPT_UINT, "N",
		"of each ring, a power of two; without it twice the open requests", &opt.depth,
		CRPC_SPSC_DEPTH_MIN, CRPC_SPSC_DEPTH_MAX, NULL},
	{"nodes", APP_OPT_UINT, "N", "of flux and mesh; without it one per lcore", &opt.nodes, 2,
		64, NULL},
	{"seconds", APP_OPT_REAL, "S", "per transport and repeat, in slices of 60 ms", &opt.seconds,
		0.001, 3600, NULL},
	{"repeat", APP_OPT_UINT, "N", "interleaved rounds over all transports", &opt.repeat, 1,
		1000, NULL},
	{"json", APP_OPT_STRING, "FILE", "append one object per result", &opt.json, 0, 0, NULL},
	{"check", APP_OPT_FLAG, NULL, "verify every payload, in slices of their own", &opt.check, 0,
		0, NULL},
	{"counters", APP_OPT_FLAG, NULL,
		"instructions, cycles and cache misses per message, where the CPU counts them",
		&opt.counters, 0, 0, NULL},
};

static int
check(void)
{
	uint32_t i;

	if (opt.depth == 0) /* more only costs cache: the slots are used in turn */
		opt.depth = crpc_pow2_ceil(2 * opt.inflight);
	if (!crpc_is_pow2(opt.depth))
		return app_fail("--depth %lu is not a power of two; give one from %u to %u",
			(unsigned long)opt.depth, CRPC_SPSC_DEPTH_MIN, CRPC_SPSC_DEPTH_MAX);
	/* rte_ring and others hold depth - 1: a window of depth would stand still. */
	if (opt.inflight >= opt.depth)
		return app_fail("--inflight %lu is not below the --depth %lu; give less",
			(unsigned long)opt.inflight, (unsigned long)opt.depth);
	for (i = 0; i < opt.sizes.n; i++)
		if (!crpc_is_pow2(opt.sizes.v[i]))
			return app_fail("--msg-size %lu is not there; give 8, 16, 32, 64, 128, 256",
				(unsigned long)opt.sizes.v[i]);
	return opt.json != NULL ? app_json_check("json", opt.json) : 0;
}

void
rb_opt_help(int argc, char *const *argv)
{
	printf("usage: ringbench [EAL arguments] -- [options]\n\n"
	       "What a message between two lcores costs, by ring and by pattern. Without hugepages "
	       "give the\nEAL --no-huge; -l 0,1 chooses the two lcores.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), stdout);
}

int
rb_opt_parse(const struct rb_opt **o, int argc, char **argv)
{
	int rc;

	*o = &opt;
	rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
	return rc != 0 ? rc : check();
}
