/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_SWEEP_H
#define APP_SWEEP_H

/**
 * @file
 * A curve in one call: --sweep clients=1,2,4,8,16/backend=copyrpc,ucx
 *
 * The first axis is the curve's; the others make a curve each. Any option that takes a value can be
 * an axis: a point is the command line with the axes' options behind it, parsed again.
 *
 * The plan goes through the first axis upwards, then downwards, as often as there are passes, and
 * at each stop through all curves. So curves are interleaved, slow changes of the machine reach all
 * of them alike, and a curve that depends on the direction (two stable states) shows.
 *
 *     pass 0   1:A 1:B   2:A 2:B   4:A 4:B      rising
 *     pass 1   4:A 4:B   2:A 2:B   1:A 1:B      falling
 */

#include "app_json.h"

#define APP_AXES_MAX        3
#define APP_AXIS_VALUES_MAX 32
#define APP_SWEEP_RUNS_MAX  4096

/** One option and its values. */
struct app_sweep_axis {
	char *option; /**< With its dashes. */
	uint32_t n;
	char *value[APP_AXIS_VALUES_MAX];
};

/** A plan. */
struct app_sweep {
	uint32_t axes;
	struct app_sweep_axis axis[APP_AXES_MAX];
	uint32_t passes;
	uint32_t points; /**< Of a pass. */
	uint32_t runs;   /**< Of all passes. */
	char *text;      /**< What the axes point into. */
};

/** One run of the plan. */
struct app_sweep_point {
	const struct app_sweep *sweep;
	uint32_t pass;
	bool rising;
	uint32_t number;           /**< The same in all passes. */
	uint32_t at[APP_AXES_MAX]; /**< Which value of each axis. */
};

/**
 * Take a plan apart.
 *
 * @param s
 *   Filled.
 * @param spec
 *   The axes; NULL: none, each pass is one point.
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int app_sweep_parse(struct app_sweep *s, const char *spec, uint32_t passes);

void app_sweep_fini(struct app_sweep *s);

/** Which point run number @p run is. */
void app_sweep_point(const struct app_sweep *s, uint32_t run, struct app_sweep_point *p);

/**
 * The arguments of a point.
 *
 * @param argc
 *   Of the command line; replaced.
 * @return
 *   An array to be freed; NULL after one line.
 */
char **app_sweep_args(const struct app_sweep_point *p, int *argc, char *const *argv);

/** Add the value of each axis under its option's name. */
void app_sweep_add(const struct app_sweep_point *p, json_t *row);

#endif
