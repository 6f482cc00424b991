/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_JSON_H
#define APP_JSON_H

/**
 * @file
 * Results for machines: one JSON object per line, appended to a file.
 */

#include <stdio.h>

#include <jansson.h>

#include "crpc_util.h"

/** What every result line carries. */
struct app_json_base {
	const char *app;
	const char *lcores; /**< As text: "0" or "0,1". */
	const char *state;  /**< app_env_state(). */
	double steal_pct;
	bool noisy; /**< No verdict: the machine was not quiet. */
	uint64_t repeats;
};

/**
 * Find out at the start of a run whether a result can be written at its end. Makes no file.
 *
 * @param option
 *   Name of the option that gave the path.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int app_json_check(const char *option, const char *path);

/**
 * Open the file that lines are appended to.
 *
 * @return
 *   The file, or NULL after one line on stderr.
 */
FILE *app_json_open(const char *option, const char *path);

/** A new object with the shared keys: app, version, commit, cpu, lcores, state, ... */
json_t *app_json_new(const struct app_json_base *base);

/** Add key: {median, min, max, unit}. */
void app_json_figure(
	json_t *obj, const char *key, double median, double min, double max, const char *unit);

/** Add key: a ratio, or null where it is 0, because one of its two figures is missing. */
void app_json_ratio(json_t *obj, const char *key, double ratio);

/**
 * Append the object as one line, and drop it. Lines of several processes do not mix.
 *
 * @return
 *   0, or -errno, the first time after one line on stderr.
 */
int app_json_write(FILE *out, json_t *obj);

#endif
