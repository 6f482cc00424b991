/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHMBENCH_H
#define SHMBENCH_H

/*
 * shmbench: what its files share. main.c reads options and plans, allocation.c, lookup.c and
 * transfer.c hold one benchmark each, copy.c the ways to copy, out.c sums up and prints.
 */

#include "app_measure.h"
#include "app_opt.h"
#include "app_stop.h"
#include "crpc_clock.h"

#define SB_METHODS_MAX 16

enum sb_bench { SB_ALLOCATION, SB_LOOKUP, SB_TRANSFER, SB_BENCHES };

extern const char *const sb_bench_names[SB_BENCHES + 1];

struct sb_opt {
	enum sb_bench bench;
	const char *json;
	uint64_t repeat;
	bool eal; /* The EAL runs: its allocator is measured too. */
	uint64_t count;        /* Allocations, look-ups, transfers. */
	struct app_list sizes; /* Of blocks, of transfers. */
	/* lookup */
	uint64_t segments;
	uint64_t segment_size;
	uint64_t seed;
	/* transfer */
	bool use_memcpy;
	bool huge;
	bool verify;
};

/* ---- out.c ---- */

/* The figures of one method, one per repeat. */
struct sb_series {
	const char *method;
	const char *place; /* Where the bytes are; NULL: does not matter. */
	struct app_series value;
	const struct sb_series *other; /* NULL: compared with none. */
	const char *ratio;             /* Key of that: how many times better. */
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
	struct app_trial trial;
	double line_ns;
	uint64_t begin_ns;
	uint64_t away_ns;
};

struct app_out;
struct crpc_shm;
/* Begin a point; forgets the last one's figures. */
void sb_point_begin(struct sb_point *p, const struct sb_opt *o, uint64_t size, uint64_t segments);
/* Add a method, and later its figures. */
struct sb_series *sb_point_add(struct sb_point *p, const char *method, const char *place);
void sb_series_put(struct sb_series *s, double value);
/* Print it: table and JSON. 0 or APP_EXIT_RUN. */
int sb_point_end(struct sb_point *p, struct app_out *out);

/* A segment without a name in a file system; NULL after crpc_err(). */
struct crpc_shm *sb_segment(uint64_t size, bool prefault, bool huge);

/* ---- the benchmarks: 0, or an exit code after one line on stderr ---- */

int sb_allocation(const struct sb_opt *o, struct app_out *out);
/* Remove the kernel's blocks of runs that were killed while one had a name. */
void sb_allocation_sweep(void);
int sb_lookup(const struct sb_opt *o, struct app_out *out);
int sb_transfer(const struct sb_opt *o, struct app_out *out);

/* ---- copy.c ---- */

struct sb_copy {
	const char *name;
	void (*copy)(void *to, const void *from, uint64_t len);
};

/* memcpy first. Ends with a NULL name. */
extern const struct sb_copy sb_copies[];

#endif
