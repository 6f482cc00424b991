/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_OUT_H
#define APP_OUT_H

/**
 * @file
 * What all programs that measure print in the same way: the machine, how far they are, under which
 * conditions a trial stands, and how a figure stands to its target.
 */

#include "app_json.h"
#include "app_measure.h"

/** The first line of a run: CPU, "lcores 0,1" or whatever `where` calls them, commit. */
void app_out_machine(const char *where, const char *lcores);

/** "slices near 9, far 0, mixed 1; stolen 0.02 %; near", or NOISY in place of the state. */
void app_out_trial(const struct app_trial *t);

/** The keys that all results share, of a figure from so many slices. */
struct app_json_base app_out_base(
	const struct app_trial *t, const char *app, const char *lcores, uint64_t repeats);

/** On a terminal: "what: round 3 of 60", in a line that the next one overwrites. */
void app_out_progress(const char *what, uint64_t done, uint64_t all);

/** A figure and its bound. */
struct app_target {
	const char *what;
	double value; /**< Below 0: not measured. */
	double bound;
	bool at_most; /**< Else at least. */
	bool counted; /**< A count: it does not depend on how quiet the machine was. */
	bool bounded; /**< Where it misses: something that we cannot change keeps it from more. */
	const char *unit;       /**< NULL: none. */
	const char *unmeasured; /**< The verdict without a value; NULL: "not measured". */
	const char *why;        /**< What explains the value; NULL: nothing. */
};

/** "pass", "miss", "bounded", "noisy", or that there is no value. */
const char *app_target_verdict(const struct app_target *t, bool noisy);

/**
 * Print a target and its verdict; append it to a file as well.
 *
 * @param obj
 *   What the line of JSON begins with; taken. NULL: print only.
 * @return
 *   0, -EIO or -ENOMEM.
 */
int app_out_target(const struct app_target *t, bool noisy, json_t *obj, FILE *json);

#endif
