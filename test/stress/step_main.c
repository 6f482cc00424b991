/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * step_scenario: which random scenarios are run. Everything of one comes from its kind and its
 * seed. The last line of a failure names them:
 *
 *     step_scenario [--kind rc|dc|ud] [--seed N] [--from N] [--seeds N] [--seconds N] [--file FILE]
 *                   [--verbose]
 *
 * --kind says what the connections are, default rc; --seed runs one, --seeds that many from --from
 * on (default 1), --seconds as many as fit, --file those that a file lists, each with its kind.
 * Must be started in step mode (soft-mlx5 --progress step).
 */
#include <errno.h>
#include <getopt.h>
#include <unistd.h>

#include "crpc_clock.h"
#include "step_rig.h"

/* KINDS: it is none. */
static enum kind
kind_of(const char *name)
{
	return strcmp(name, "rc") == 0 ? KIND_RC
		: strcmp(name, "dc") == 0 ? KIND_DC
		: strcmp(name, "ud") == 0 ? KIND_UD
					  : KINDS;
}


static void
run_file(const char *name)
{
	FILE *f = fopen(name, "r");
	uint64_t seed;
	char line[256], kind[3];

	if (f == NULL) {
		fprintf(stderr, "%s: %s\n", name, strerror(errno));
		exit(2);
	}
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%2s %" SCNu64, kind, &seed) == 2 && kind_of(kind) != KINDS)
			scenario_run(seed, kind_of(kind));
	fclose(f);
}

#define RPC  (1u << KIND_RC | 1u << KIND_DC)
#define ALL  (RPC | 1u << KIND_UD)

/* What seeds of a kind, all together, must have met, or they test less than they say. */
static const struct {
	const char *what;
	const uint64_t *n;
	uint32_t kinds;
	uint64_t seeds; /* Asked for from so many seeds on. */
} wanted[] = {
	{"calls", &met.calls, ALL},
	{"good", &met.good, ALL},
	{"reset", &met.reset, ALL},
	{"late", &met.late, ALL},
	{"cancelled", &met.cancelled, ALL},
	{"rejected", &met.rejected, ALL},
	{"large", &met.large, ALL},
	{"one-way", &met.oneway, RPC},
	{"puts", &met.puts, RPC},
	{"gets", &met.gets, RPC},
	{"lives", &met.lives, ALL},
	{"of them dynamic", &met.dynamic, 1u << KIND_DC},
	{"cards replaced", &met.restarts, ALL},
	{"completion queues lost", &met.sick, RPC},
	{"peers lost", &met.lost, 1u << KIND_RC, 1000},
	{"peers lost", &met.lost, 1u << KIND_DC, 10000}, /* One in a thousand seeds. */
	{"send queues full", &met.sq_full, RPC},
	{"wraps", &met.wraps, RPC},
	{"packets repeated", &met.repeated, 1u << KIND_UD},
	{"ends that took several polls", &met.busy, 1u << KIND_DC},
	{"passes", &met.passes, ALL},
};

static void
check_met(enum kind kind, uint64_t seeds)
{
	const char *never = NULL;

	printf("%" PRIu64 " seeds:", seeds);
	for (uint32_t i = 0; i < CRPC_DIM(wanted); i++) {
		if ((wanted[i].kinds >> kind & 1) == 0)
			continue;
		printf(" %s %" PRIu64, wanted[i].what, *wanted[i].n);
		if (*wanted[i].n == 0 && seeds >= wanted[i].seeds)
			never = wanted[i].what;
	}
	printf("\n");
	if (seeds >= 100 && never != NULL) {
		fprintf(stderr, "among other things there never were: %s\n", never);
		exit(1);
	}
}

/** The scene's time is the stepping thread's: what a driver's watcher says has none. */
static void
log_sink(enum crpc_log_level level, const char *type, const char *line)
{
	if (verbose && gettid() == getpid())
		printf("%12" PRIu64 " %s: %s\n", scene.now, type, line);
	else if (verbose)
		printf("%12s %s: %s\n", "-", type, line);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"kind", required_argument, NULL, 'k'},
		{"seed", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'b'},
		{"seeds", required_argument, NULL, 's'},
		{"seconds", required_argument, NULL, 't'},
		{"file", required_argument, NULL, 'f'},
		{"verbose", no_argument, NULL, 'v'},
		{0},
	};
	uint64_t from = 1, seeds = 0, seconds = 0, one = 0, n = 0, until;
	const char *file = NULL;
	enum kind kind = KIND_RC;
	int c;

	program = argv[0];
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'k' && kind_of(optarg) != KINDS)
			kind = kind_of(optarg);
		else if (c == 'n')
			one = strtoull(optarg, NULL, 0);
		else if (c == 'b')
			from = strtoull(optarg, NULL, 0);
		else if (c == 's')
			seeds = strtoull(optarg, NULL, 0);
		else if (c == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (c == 'f')
			file = optarg;
		else if (c == 'v')
			verbose = true;
		else
			return 2;
	}
	crpc_clock_init();
	crpc_log_set_sink(log_sink, CRPC_LOG_INFO);
	if (soft_mlx5_step_find(&step) != 0 || step.start(0) != 0) {
		fprintf(stderr, "start it by: soft-mlx5 --progress step -- %s\n", argv[0]);
		return 77;
	}
	if (one != 0) {
		scenario_run(one, kind);
		return 0;
	}
	if (file != NULL)
		run_file(file);
	until = crpc_clock_ns() + seconds * UINT64_C(1000000000);
	while (n < seeds || (seconds != 0 && crpc_clock_ns() < until))
		scenario_run(from + n++, kind);
	check_met(kind, n);
	return 0;
}
