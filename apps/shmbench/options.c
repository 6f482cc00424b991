/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_fail.h"
#include "app_json.h"
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

int
sb_options_parse(struct sb_opt **o, int argc, char **argv)
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
	*o = &opt;
	rc = app_opt_parse(tables[i].opts, tables[i].n, argc - 1, argv + 1);
	return rc != 0 ? rc : app_json_check("json", opt.json);
}

void
sb_options_help(int argc, char *const *argv)
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
