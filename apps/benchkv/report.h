/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_REPORT_H
#define KV_REPORT_H

/**
 * @file
 * Results for people (a table), for machines (JSON lines) and for plotters (.hgrm).
 */

#include <stdio.h>

#include "options.h"
#include "result.h"
#include "sweep.h"

/** Conditions of the run that the results do not carry. */
struct kv_conditions {
	const char *app;     /**< "benchkv". */
	const char *backend; /**< How ranks reach each other: "copyrpc", or "none" for one rank. */
	const char *state;   /**< app_env_state(). */
	const struct kv_sweep_point *point; /**< Of a sweep; NULL: a run of its own. */
};

/** What the run is, in one line, before it starts. */
void kv_report_head(FILE *out, const struct kv_options *o, const struct kv_conditions *cond,
	const struct kv_result *r, uint32_t ranks);

/** One rank's figures, or the total's. */
void kv_report_block(FILE *out, const char *label, const struct kv_result *r, bool verify);

/** Stream the JSON line of one rank (scope "rank") or of all ("total"). @return 0 or -EIO. */
int kv_report_json(FILE *out, const struct kv_conditions *cond, const struct kv_options *o,
	const char *scope, const struct kv_result *r);

/** The JSON line of one daemon of a rank (scope "daemon"). @return 0 or -EIO. */
int kv_report_json_daemon(FILE *out, const struct kv_conditions *cond, const struct kv_result *r,
	uint32_t daemon);

/**
 * Write the latency distribution to @p path; where operations went several ways also one for each
 * beside it ("x.hgrm", "x.local.hgrm", "x.forwarded.hgrm", "x.remote.hgrm").
 *
 * @return
 *   0, or -errno after one line on stderr.
 */
int kv_report_hgrm(const char *path, const struct kv_result *r);

#endif
