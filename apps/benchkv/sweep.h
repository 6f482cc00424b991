/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SWEEP_H
#define KV_SWEEP_H

/**
 * @file
 * A curve in one call (app_sweep.h). All ranks make the same plan from the same command line.
 */

#include "app_sweep.h"
#include "options.h"
#include "result.h"

/** What is kept of a run. */
struct kv_sweep_run {
	double ops, p99; /**< Per second; us. */
	bool done;
};

/** A plan, and what came of it. */
struct kv_sweep {
	struct app_sweep plan;
	struct kv_sweep_run *run; /**< The passes of a point stand together. */
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

/** The options of a point. @return as kv_options_parse(). */
int kv_sweep_options(const struct app_sweep_point *p, int argc, char *const *argv,
	struct kv_options *o);

/** Keep what a run measured, and print one line. */
void kv_sweep_note(struct kv_sweep *s, uint32_t run, const struct kv_result *total, bool noisy);

/** Print the curves: medians over the passes, and how far rising and falling are apart. */
void kv_sweep_table(const struct kv_sweep *s);

#endif
