/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shmbench: what shared memory costs. One benchmark a run: blocks of it, pointers into it, copies
 * within it.
 */
#include <string.h>

#include "app_fail.h"
#include "app_lcore.h"
#include "app_out.h"
#include "crpc_shm.h"
#include "shmbench.h"

const char *const sb_bench_names[SB_BENCHES + 1] = {"allocation", "lookup", "transfer", NULL};

static struct sb_opt opt;

#define COMMON         3 /* options, which come first */
#define COMMON_OPTIONS APP_REPEAT(&opt.repeat, "methods, which take turns"), APP_JSON(&opt.json)

static const struct app_opt allocation[] = {
	COMMON_OPTIONS,
	APP_OPT("count", "N", &opt.count, "allocations per method and size", 1, 1e7),
	APP_SIZE(&opt.sizes, "a block", 1 << 10, 1 << 30),
};

static const struct app_opt lookup[] = {
	COMMON_OPTIONS,
	APP_OPT("count", "N", &opt.count, "look-ups per method and point", 1, 1e9),
	APP_SIZE(&opt.segment_size, "each segment", 1 << 20, 1 << 30),
	APP_OPT("segments", "N", &opt.segments, "segments of the largest point", 1,
		CRPC_XLATE_SEGS_MAX),
	APP_SEED(&opt.seed),
};

static const struct app_opt transfer[] = {
	COMMON_OPTIONS,
	APP_OPT("count", "N", &opt.count, "transfers per slice, which ends after 20 ms", 1, 1e6),
	APP_SIZE(&opt.sizes, "a transfer", 1 << 10, UINT64_C(1) << 32),
	APP_FLAG("use-memcpy", &opt.use_memcpy, "memcpy alone"),
	APP_FLAG("huge", &opt.huge, "segment and private memory of reserved huge pages"),
	APP_VERIFY(&opt.verify, "every slice's bytes, not timed"),
};

static const struct {
	const struct app_opt *opts;
	size_t n;
} tables[SB_BENCHES] = {
	{allocation, CRPC_DIM(allocation)},
	{lookup, CRPC_DIM(lookup)},
	{transfer, CRPC_DIM(transfer)},
};

static void
defaults(enum sb_bench bench)
{
	uint64_t most = bench == SB_ALLOCATION ? 1 << 20 : 16 << 20;

	opt = (struct sb_opt){.bench = bench,
		.repeat = APP_REPEAT_DEFAULT,
		.count = bench == SB_LOOKUP ? 1000000 : 1000,
		.seed = 1,
		.segments = 100,
		.segment_size = 1 << 20};
	for (uint64_t size = 4 << 10; size <= most; size *= bench == SB_ALLOCATION ? 2 : 4)
		opt.sizes.v[opt.sizes.n++] = size;
}

static int
parse(int argc, char **argv)
{
	unsigned int i;
	int rc;

	for (i = 0; argc > 0 && i < SB_BENCHES; i++)
		if (strcmp(argv[0], sb_bench_names[i]) == 0)
			break;
	if (argc == 0 || i == SB_BENCHES)
		return app_fail("'%s' is no benchmark; give allocation, lookup or transfer first",
			argc == 0 ? "" : argv[0]);
	defaults((enum sb_bench)i);
	rc = app_opt_parse(tables[i].opts, tables[i].n, argc - 1, argv + 1);
	return rc != 0 ? rc : app_json_check("json", opt.json);
}

static void
help(int argc, char *const *argv)
{
	printf("usage: shmbench [EAL arguments --] BENCHMARK [options]\n\n"
	       "allocation  a block of shared memory: the system calls, and the arena\n"
	       "lookup      a pointer's segment among many: linear, tree, arithmetic\n"
	       "transfer    copies inside a segment, and the same in private memory\n\n"
	       "With EAL arguments, DPDK's allocator is measured too; nothing else needs it.\n\n"
	       "of all benchmarks:\n");
	defaults(SB_ALLOCATION);
	app_opt_help(allocation, COMMON, stdout);
	for (unsigned int i = 0; i < SB_BENCHES; i++) {
		printf("\nof %s:\n", sb_bench_names[i]);
		defaults((enum sb_bench)i);
		app_opt_help(tables[i].opts + COMMON, tables[i].n - COMMON, stdout);
	}
}

/* Stay on the core where we are: a move in the middle of a slice is no property of memory. */
static void
pin(cpu_set_t *set)
{
	int cpu = sched_getcpu();

	CPU_ZERO(set);
	CPU_SET(cpu < 0 ? 0 : cpu, set);
	sched_setaffinity(0, sizeof(*set), set);
}

static int
run(const char *lcores)
{
	static int (*const benches[SB_BENCHES])(const struct sb_opt *, struct app_out *) = {
		sb_allocation, sb_lookup, sb_transfer};
	struct app_out out = {0};
	int rc;

	app_stop_catch();
	crpc_shm_sweep(NULL, "shmbench."); /* Of runs that were killed. */
	sb_allocation_sweep();
	crpc_clock_init();
	rc = app_out_open(&out, "shmbench", "lcore", lcores, opt.json);
	if (rc != 0)
		return rc;
	rc = benches[opt.bench](&opt, &out);
	app_out_close(&out, app_stopped() != 0);
	return rc;
}

int
main(int argc, char **argv)
{
	struct app_args args;
	bool eal = app_args_split(&args, argc, argv, true);
	char lcores[32];
	cpu_set_t set;
	int rc;

	app_fail_name("shmbench");
	if (app_args_answer("shmbench", argc, argv, help))
		return APP_EXIT_OK;
	rc = parse(args.argc, args.argv);
	if (rc != 0)
		return rc;
	pin(&set);
	opt.eal = eal;
	if (eal) {
		rc = app_eal_start(&args, &set);
		if (rc != 0)
			return rc;
		app_eal_lcores(1, &set);
	}
	app_lcore_text(&set, lcores, sizeof(lcores));
	rc = run(lcores);
	app_eal_stop();
	return rc;
}
