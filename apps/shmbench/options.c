/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "app_fail.h"
#include "app_json.h"
#include "app_opt.h"
#include "shmbench.h"

#define COMMON 2

const char *const sb_bench_names[SB_BENCHES + 1] = {"allocation", "lookup", "transfer", NULL};

/* The options of one benchmark, those of all of them first. Returns how many. */
static size_t
table(struct sb_opt *o, enum sb_bench bench, struct app_opt *t)
{
	const struct app_opt common[COMMON] = {
		{"repeat", APP_OPT_UINT, "N", "rounds; in each, all methods take turns", &o->repeat,
			1, SB_REPEAT_MAX},
		{"json", APP_OPT_STRING, "FILE", "append one object per result", &o->json},
	};
	const struct app_opt allocation[] = {
		{"num-iterations", APP_OPT_UINT, "N", "allocations per method and size",
			&o->iterations, 1, 10000000},
		{"min-size-kb", APP_OPT_UINT, "KIB", "smallest block", &o->min_size_kb, 1, 1048576},
		{"max-size-kb", APP_OPT_UINT, "KIB", "largest block; sizes double",
			&o->max_size_kb, 1, 1048576},
		{"measure-mmap-only", APP_OPT_FLAG, NULL, "of the system calls, time mmap alone",
			&o->mmap_only},
		{"cleanup", APP_OPT_FLAG, NULL, "time munmap, close and shm_unlink too",
			&o->cleanup},
	};
	const struct app_opt lookup[] = {
		{"num-segments", APP_OPT_UINT, "N", "segments of the largest point", &o->segments,
			1, CRPC_XLATE_SEGS_MAX},
		{"num-lookups", APP_OPT_UINT, "N", "look-ups per method and point", &o->lookups, 1,
			1000000000},
		{"segment-size-mb", APP_OPT_UINT, "MIB", "bytes of each segment",
			&o->segment_size_mb, 1, 1024},
	};
	const struct app_opt transfer[] = {
		{"transfer-size-kb", APP_OPT_UINT, "KIB", "smallest transfer",
			&o->transfer_size_kb, 1, 1048576},
		{"max-transfer-size-mb", APP_OPT_UINT, "MIB", "largest transfer; sizes go by 4",
			&o->max_transfer_size_mb, 1, 4096},
		{"num-transfers", APP_OPT_UINT, "N", "transfers per slice, which ends after 20 ms",
			&o->transfers, 1, 1000000},
		{"use-memcpy", APP_OPT_FLAG, NULL, "memcpy alone", &o->use_memcpy},
		{"huge", APP_OPT_FLAG, NULL, "segment and private memory of reserved huge pages",
			&o->huge},
		{"verify-data", APP_OPT_FLAG, NULL, "compare after every slice, not timed",
			&o->verify},
	};

	memcpy(t, common, sizeof(common));
	if (bench == SB_ALLOCATION) {
		memcpy(t + COMMON, allocation, sizeof(allocation));
		return COMMON + CRPC_DIM(allocation);
	}
	if (bench == SB_LOOKUP) {
		memcpy(t + COMMON, lookup, sizeof(lookup));
		return COMMON + CRPC_DIM(lookup);
	}
	memcpy(t + COMMON, transfer, sizeof(transfer));
	return COMMON + CRPC_DIM(transfer);
}

static void
defaults(struct sb_opt *o)
{
	*o = (struct sb_opt){.repeat = 9,
		.iterations = 1000,
		.min_size_kb = 4,
		.max_size_kb = 1024,
		.segments = 100,
		.lookups = 1000000,
		.segment_size_mb = 1,
		.transfer_size_kb = 4,
		.max_transfer_size_mb = 16,
		.transfers = 1000};
}

static int
check(const struct sb_opt *o)
{
	if (o->bench == SB_ALLOCATION && o->min_size_kb > o->max_size_kb)
		return app_fail("--min-size-kb %lu is above --max-size-kb %lu; give 1 to %lu",
			(unsigned long)o->min_size_kb, (unsigned long)o->max_size_kb,
			(unsigned long)o->max_size_kb);
	if (o->bench == SB_TRANSFER && o->transfer_size_kb > o->max_transfer_size_mb * 1024)
		return app_fail(
			"--transfer-size-kb %lu is above --max-transfer-size-mb %lu; give 1 "
			"to %lu",
			(unsigned long)o->transfer_size_kb, (unsigned long)o->max_transfer_size_mb,
			(unsigned long)o->max_transfer_size_mb * 1024);
	return o->json == NULL ? 0 : app_json_check("json", o->json);
}

int
sb_options_parse(struct sb_opt *o, int argc, char **argv)
{
	struct app_opt t[16];
	unsigned int i;
	size_t n;
	int rc;

	defaults(o);
	for (i = 0; argc > 0 && i < SB_BENCHES; i++)
		if (strcmp(argv[0], sb_bench_names[i]) == 0)
			break;
	if (argc == 0 || i == SB_BENCHES)
		return app_fail("'%s' is no benchmark; say allocation, lookup or transfer first",
			argc == 0 ? "" : argv[0]);
	o->bench = (enum sb_bench)i;
	n = table(o, o->bench, t);
	rc = app_opt_parse(t, n, argc - 1, argv + 1);
	return rc != 0 ? rc : check(o);
}

void
sb_options_help(int argc, char *const *argv)
{
	struct app_opt t[16];
	struct sb_opt o;
	unsigned int i;
	size_t n;

	defaults(&o);
	printf("usage: shmbench [EAL arguments --] BENCHMARK [options]\n\n"
	       "allocation  a block of shared memory: the system calls, beside the arena\n"
	       "lookup      a pointer's segment among many: linear, tree, arithmetic\n"
	       "transfer    copies inside a segment, beside the same in private memory\n\n"
	       "With EAL arguments, DPDK's allocator is measured too; nothing else needs it.\n\n"
	       "of all benchmarks:\n");
	app_opt_help(t, table(&o, SB_ALLOCATION, t) == 0 ? 0 : COMMON, stdout);
	for (i = 0; i < SB_BENCHES; i++) {
		printf("\nof %s:\n", sb_bench_names[i]);
		n = table(&o, (enum sb_bench)i, t);
		app_opt_help(t + COMMON, n - COMMON, stdout);
	}
}
