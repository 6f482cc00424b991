/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

/**
 * @file
 * Results of simkv: a row for each run, with what was published for it.
 */

#include "app_out.h"
#include "sim.h"

/**
 * The row of a run.
 *
 * @param point
 *   The value of the sweep's axis; NULL: there is none.
 */
json_t *sim_report_row(const struct app_out *out, const struct sim_options *o,
	const struct sim_result *r, const char *axis, const char *point);

#endif
