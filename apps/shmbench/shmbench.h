/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHMBENCH_H
#define SHMBENCH_H

/*
 * shmbench: what its files share. main.c plans, options.c reads options, allocation.c, lookup.c and
 * transfer.c hold one benchmark each, copy.c the ways to copy, out.c sums up and prints.
 */

#include <stdbool.h>
#include <stdint.h>

#include "app_measure.h"
#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_util.h"

#define SB_REPEAT_MAX 1000
#define SB_METHODS_MAX 16

enum sb_bench { SB_ALLOCATION, SB_LOOKUP, SB_TRANSFER, SB_BENCHES };

extern const char *const sb_bench_names[SB_BENCHES + 1];

struct sb_opt {
	enum sb_bench bench;
	const char *json;
	uint64_t repeat;
	bool eal; /* The EAL runs: its allocator is measured too. */
	/* allocation */
	uint64_t iterations;
	uint64_t min_size_kb;
	uint64_t max_size_kb;
	bool mmap_only;
	bool cleanup;
	/* lookup */
	uint64_t segments;
	uint64_t lookups;
	uint64_t segment_size_mb;
	/* transfer */
	uint64_t transfer_size_kb;
	uint64_t max_transfer_size_mb;
	uint64_t transfers;
	bool use_memcpy;
	bool huge;
	bool verify;
};

/* 0; APP_EXIT_USAGE after one line on stderr. */
int sb_options_parse(struct sb_opt *o, int argc, char **argv);
void sb_options_help(int argc, char *const *argv);

/* Set by SIGINT and SIGTERM: finish the slice, print what there is. */
extern _Atomic int sb_stop;

/* ---- out.c ---- */

/* The figures of one method, one per repeat. */
struct sb_series {
	const char *method;
	const char *place; /* Where the bytes are; NULL: does not matter. */
	struct app_series value;
	double ratio; /* To what ratio_key says; 0: none. */
	const char *ratio_key;
};

/* One point of a benchmark: all methods at one size and number of segments. */
struct sb_point {
	enum sb_bench bench;
	uint64_t size;
	uint64_t segments;
	uint64_t page_size; /* 0: does not matter. */
	bool rate;          /* GB/s instead of ns. */
	struct sb_series series[SB_METHODS_MAX];
	uint32_t nseries;
	/* How the machine was. */
	struct app_steal steal;
	double line_ns;
	uint64_t wall_ns;
	uint64_t cpu_ns;
};

struct sb_out;
/* NULL after one line on stderr. */
struct sb_out *sb_out_open(const struct sb_opt *o, const char *lcores);
void sb_out_close(struct sb_out *out);
/* Begin a point; forgets the last one's figures. */
void sb_point_begin(struct sb_point *p, const struct sb_opt *o, uint64_t size, uint64_t segments);
/* Add a method, and later its figures. */
struct sb_series *sb_point_add(struct sb_point *p, const char *method, const char *place);
void sb_series_put(struct sb_series *s, double value);
/* a / b, round by round; 0: none. */
double sb_series_ratio(const struct sb_series *a, const struct sb_series *b);
/* Print it: table and JSON. 0 or APP_EXIT_RUN. */
int sb_point_end(struct sb_point *p, struct sb_out *out);

/* ---- the benchmarks: 0, or an exit code after one line on stderr ---- */

int sb_allocation(const struct sb_opt *o, struct sb_out *out);
/* Remove the kernel's blocks of runs that were killed while one had a name. */
void sb_allocation_sweep(void);
int sb_lookup(const struct sb_opt *o, struct sb_out *out);
int sb_transfer(const struct sb_opt *o, struct sb_out *out);

/* ---- copy.c ---- */

struct sb_copy {
	const char *name;
	void (*copy)(void *to, const void *from, uint64_t len);
};

/* memcpy first. Ends with a NULL name. */
extern const struct sb_copy sb_copies[];

#endif
