/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SWEEP_H
#define KV_SWEEP_H

/**
 * @file
 * A curve in one call: --sweep clients=1,2,4,8,16/backend=copyrpc,ucx
 *
 * The first axis is the curve's; the others make a curve each. Any option that takes a value can be
 * an axis: a point is the command line with the axes' options behind it, parsed again.
 *
 * The plan goes through the first axis upwards, then downwards, as often as --repeat says, and at
 * each stop through all curves. So curves are interleaved, slow changes of the machine reach all of
 * them alike, and a curve that depends on the direction (two stable states) shows.
 *
 *     pass 0   1:A 1:B   2:A 2:B   4:A 4:B      rising
 *     pass 1   4:A 4:B   2:A 2:B   1:A 1:B      falling
 *
 * All ranks make the same plan from the same command line.
 */

#include <stdio.h>

#include "options.h"
#include "result.h"

#define KV_AXES_MAX        3
#define KV_AXIS_VALUES_MAX 32
#define KV_SWEEP_RUNS_MAX  4096

/** One option and its values. */
struct kv_axis {
	char *option; /**< With its dashes. */
	uint32_t n;
	char *value[KV_AXIS_VALUES_MAX];
};

/** What is kept of a run. */
struct kv_sweep_run {
	double ops, p99; /**< Per second; us. */
	bool done;
};

/** A plan, and what came of it. */
struct kv_sweep {
	uint32_t axes;
	struct kv_axis axis[KV_AXES_MAX];
	uint32_t passes;
	uint32_t points; /**< Of a pass. */
	uint32_t runs;   /**< Of all passes. */
	struct kv_sweep_run *run; /**< The passes of a point stand together. */
	char *text; /**< What the axes point into. */
};

/** One run of the plan. */
struct kv_sweep_point {
	const struct kv_sweep *sweep;
	uint32_t pass;
	bool rising;
	uint32_t number;          /**< The same in all passes. */
	uint32_t at[KV_AXES_MAX]; /**< Which value of each axis. */
};

/**
 * Take a plan apart; each point is parsed once, so a value that does not fit is reported before
 * anything runs.
 *
 * @param s
 *   Filled.
 * @param ranks
 *   As for kv_options_check_ranks().
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int kv_sweep_parse(
	struct kv_sweep *s, const char *spec, uint32_t passes, int argc, char *const *argv,
	uint32_t ranks, struct kv_options *largest);

void kv_sweep_fini(struct kv_sweep *s);

/** Which point run number @p run is. */
void kv_sweep_point(const struct kv_sweep *s, uint32_t run, struct kv_sweep_point *p);

/** The options of a point. @return as kv_options_parse(). */
int kv_sweep_options(const struct kv_sweep_point *p, int argc, char *const *argv,
	struct kv_options *o);

/** Keep what a run measured, and print one line. */
void kv_sweep_note(struct kv_sweep *s, uint32_t run, const struct kv_result *total, bool noisy);

/** Print the curves: medians over the passes, and how far rising and falling are apart. */
void kv_sweep_table(const struct kv_sweep *s);

#endif
