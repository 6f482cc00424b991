/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

/**
 * @file
 * Results of simkv: a row for each run, with what was published for it.
 */

#include "app_out.h"
#include "app_sweep.h"
#include "sim.h"

/**
 * The row of a run.
 *
 * @param point
 *   Where in a sweep it is.
 */
json_t *sim_report_row(const struct app_out *out, const struct sim_options *o,
	const struct sim_result *r, const struct app_sweep_point *point);

#endif
