/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_REPORT_H
#define KV_REPORT_H

/**
 * @file
 * Results: rows (app_out.h), and distributions of latency for plotters (.hgrm).
 */

#include "sweep.h"

/** Conditions of the run that the results do not carry. */
struct kv_conditions {
	const char *app;     /**< "benchkv". */
	const char *backend; /**< How ranks reach each other: "copyrpc", or "none" for one rank. */
	enum app_state state;
	const struct app_sweep_point *point; /**< Of a sweep; NULL: a run of its own. */
};

/** What the run is, before it starts. */
void kv_report_head(const struct kv_options *o, const struct kv_conditions *cond,
	const struct kv_result *r, uint32_t ranks);

/**
 * The row of one rank (record "rank") or of all ("total").
 *
 * @param json
 *   File that it is appended to; NULL: none.
 * @param label
 *   Printed above what it says; NULL: nothing is printed.
 * @return
 *   0 or -EIO.
 */
int kv_report(FILE *json, const struct kv_conditions *cond, const struct kv_options *o,
	const char *record, const char *label, const struct kv_result *r);

/** The row of one daemon of a rank (record "daemon"). @return 0 or -EIO. */
int kv_report_daemon(
	FILE *json, const struct kv_conditions *cond, const struct kv_result *r, uint32_t daemon);

/**
 * Write the latency distribution to @p path; where operations went several ways also one for each
 * beside it ("x.hgrm", "x.local.hgrm", "x.forwarded.hgrm", "x.remote.hgrm").
 *
 * @return
 *   0, or -errno after one line on stderr.
 */
int kv_report_hgrm(const char *path, const struct kv_result *r);

#endif
