/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: every wrong value is one line with the value and the range. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_config.h"
#include "rb.h"

const char *const rb_transport_names[RB_TRANSPORTS] = {
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

const char *const rb_pattern_names[RB_PATTERNS] = {"stream", "rpc", "latency", "flux", "mesh"};

static const char usage[] =
		"ringbench [EAL arguments] -- [options]\n"
		"  --transport LIST  "
		"fastforward,lamport,onesided,duplex,rte_ring,rte_ring_zc,rte_ring_rts,\n"
		"                    rte_ring_hts,ck_ring,boost_spsc,moodycamel,atomic_queue, or all (default: "
		"ours and rte_ring's)\n"
		"  --pattern LIST    stream,rpc,latency,flux,mesh (default rpc)\n"
		"  --msg-size LIST   8,16,32,64,128,256 bytes (default 32)\n"
		"  --burst LIST      messages per call, 1 to 64 (default 1,8,32)\n"
		"  --inflight N      open requests, per pair of nodes (default 256)\n"
		"  --depth N         of each ring, a power of two (default: above twice the open "
		"requests)\n"
		"  --nodes N         of flux and mesh, spread over the lcores (default: one per "
		"lcore)\n"
		"  --seconds S       per transport and repeat, in slices of 60 ms (default 0.06)\n"
		"  --repeat N        interleaved rounds over all transports (default 5)\n"
		"  --json FILE       append one object per result\n"
		"  --check           verify every payload, in slices of their own that are not "
		"timed\n"
		"  --counters        instructions, cycles and cache misses per message, where the "
		"CPU tells\n";

static int
bad(const char *opt, const char *value, const char *range)
{
	fprintf(stderr, "ringbench: --%s %s: %s\n", opt, value, range);
	return 2;
}

static int
parse_u32(const char *opt, const char *text, uint32_t lo, uint32_t hi, uint32_t *out)
{
	char *end, range[80];
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 0);
	if (errno != 0 || *end != '\0' || end == text || text[0] == '-' || v < lo || v > hi) {
		snprintf(range, sizeof(range), "expected a number from %u to %u", lo, hi);
		return bad(opt, text, range);
	}
	*out = (uint32_t)v;
	return 0;
}

static int
parse_numbers(const char *opt, char *text, uint32_t lo, uint32_t hi, uint32_t *list, uint32_t *n)
{
	char *save, *tok;

	*n = 0;
	for (tok = strtok_r(text, ",", &save); tok != NULL; tok = strtok_r(NULL, ",", &save)) {
		if (*n == RB_LIST_MAX)
			return bad(opt, tok, "at most 16 values");
		if (parse_u32(opt, tok, lo, hi, &list[*n]) != 0)
			return 2;
		(*n)++;
	}
	return *n > 0 ? 0 : bad(opt, "", "expected a list");
}

/* Names from a list, each at most once; "all" is all of them. */
static int
parse_names(const char *opt, char *text, const char *const *names, uint32_t count, uint32_t *list,
	uint32_t *n)
{
	char *save, *tok;
	uint32_t i, k;

	*n = 0;
	for (tok = strtok_r(text, ",", &save); tok != NULL; tok = strtok_r(NULL, ",", &save)) {
		if (strcmp(tok, "all") == 0) {
			for (*n = 0; *n < count; (*n)++)
				list[*n] = *n;
			continue;
		}
		for (i = 0; i < count && strcmp(tok, names[i]) != 0; i++)
			;
		if (i == count)
			return bad(opt, tok, "unknown; --help lists what exists");
		for (k = 0; k < *n && list[k] != i; k++)
			;
		if (k == *n)
			list[(*n)++] = i;
	}
	return *n > 0 ? 0 : bad(opt, "", "expected a list");
}

static const struct option options[] = {
	{"transport", required_argument, NULL, 't'}, {"pattern", required_argument, NULL, 'p'},
	{"msg-size", required_argument, NULL, 'm'}, {"burst", required_argument, NULL, 'b'},
	{"inflight", required_argument, NULL, 'i'}, {"depth", required_argument, NULL, 'd'},
	{"nodes", required_argument, NULL, 'n'}, {"seconds", required_argument, NULL, 's'},
	{"repeat", required_argument, NULL, 'r'}, {"json", required_argument, NULL, 'j'},
	{"check", no_argument, NULL, 'c'}, {"counters", no_argument, NULL, 'C'},
	{"help", no_argument, NULL, 'h'}, {0},
};

static int
parse_seconds(const char *text, double *out)
{
	char *end;
	double v = strtod(text, &end);

	if (*end != '\0' || end == text || !(v >= 0.001 && v <= 3600))
		return bad("seconds", text, "expected 0.001 to 3600");
	*out = v;
	return 0;
}

static int
parse_one(struct rb_opt *o, int c)
{
	uint32_t list[RB_LIST_MAX], i;
	int rc = 0;

	switch (c) {
	case 't':
		rc = parse_names("transport", optarg, rb_transport_names, RB_TRANSPORTS, list,
			&o->ntransport);
		for (i = 0; rc == 0 && i < o->ntransport; i++)
			o->transport[i] = (enum rb_transport)list[i];
		return rc;
	case 'p':
		rc = parse_names(
			"pattern", optarg, rb_pattern_names, RB_PATTERNS, list, &o->npattern);
		for (i = 0; rc == 0 && i < o->npattern; i++)
			o->pattern[i] = (enum rb_pattern)list[i];
		return rc;
	case 'm':
		return parse_numbers("msg-size", optarg, 8, 256, o->size, &o->nsize);
	case 'b':
		return parse_numbers("burst", optarg, 1, 64, o->burst, &o->nburst);
	case 'i':
		return parse_u32("inflight", optarg, 1, CRPC_FLUX_WINDOW_MAX, &o->inflight);
	case 'd':
		return parse_u32("depth", optarg, 2, CRPC_SPSC_DEPTH_MAX, &o->depth);
	case 'n':
		return parse_u32("nodes", optarg, 2, 64, &o->nodes);
	case 's':
		return parse_seconds(optarg, &o->seconds);
	case 'r':
		return parse_u32("repeat", optarg, 1, 1000, &o->repeat);
	case 'j':
		o->json = optarg;
		return 0;
	case 'c':
		o->check = true;
		return 0;
	case 'C':
		o->counters = true;
		return 0;
	case 'h':
		fputs(usage, stdout);
		return 1;
	default:
		return 2;
	}
}

int
rb_opt_parse(struct rb_opt *o, int argc, char **argv)
{
	uint32_t i;
	int c, rc;

	*o = (struct rb_opt){
		.transport = {RB_FASTFORWARD, RB_LAMPORT, RB_ONESIDED, RB_DUPLEX, RB_RTE_RING,
			RB_RTE_RING_ZC},
		.ntransport = 6, .pattern = {RB_RPC}, .npattern = 1, .size = {32}, .nsize = 1,
		.burst = {1, 8, 32}, .nburst = 3, .inflight = 256, .depth = 0, .repeat = 5,
		.seconds = 0.06};
	optind = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = parse_one(o, c);
		if (rc != 0)
			return rc;
	}
	if (optind < argc) {
		fprintf(stderr, "ringbench: unexpected argument %s; --help lists options\n",
			argv[optind]);
		return 2;
	}
	if (o->depth == 0) /* more only costs cache: the slots are used in turn */
		o->depth = (uint32_t)crpc_pow2_ceil(2 * (uint64_t)o->inflight);
	if (!crpc_is_pow2(o->depth)) {
		fprintf(stderr, "ringbench: --depth %u is not a power of two from %u to %u\n",
			o->depth, CRPC_SPSC_DEPTH_MIN, CRPC_SPSC_DEPTH_MAX);
		return 2;
	}
	/* rte_ring and others hold depth - 1: a window of depth would stand still. */
	if (o->inflight >= o->depth) {
		fprintf(stderr, "ringbench: --inflight %u is not below the --depth %u\n",
				o->inflight, o->depth);
		return 2;
	}
	for (i = 0; i < o->nsize; i++)
		if (!crpc_is_pow2(o->size[i])) {
			fprintf(stderr,
					"ringbench: --msg-size %u: 8, 16, 32, 64, 128 and 256 "
					"exist\n",
					o->size[i]);
			return 2;
		}
	return 0;
}
