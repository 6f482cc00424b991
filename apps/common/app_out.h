/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_OUT_H
#define APP_OUT_H

/**
 * @file
 * Results of a run: rows, which are printed as tables of at most APP_OUT_WIDTH columns and appended
 * to a file as lines of JSON. doc/protocol/results.md lists the keys of a row.
 *
 *     app_out_open(&out, "ringbench", "lcores", lcores, path)    prints the machine
 *     for each trial
 *             row = app_row(&out, "result", &trial)
 *             app_row_set(row, "{s:s, s:i}", "transport", name, "size", size)
 *             app_row_figure(row, "rate", &figure, "Mops/s")
 *             json_array_append_new(rows, row)
 *             app_out_rows(&out, "rpc", &trial, rows)            prints and appends
 *     app_out_close(&out, app_stopped())
 *
 *     rpc, size 32, burst 8, depth 256; medians of 5 slices      what all rows have in common
 *       transport   Mops/s   min   max vs rte_ring               units; "vs": how many times better
 *       fastforward  34.03 33.80 34.11       2.118
 *       quiet: cores near, 0.00 % stolen, 0.64 % away            whether the figures can be trusted
 *
 * A table has a column for the first key of its rows, for each key whose values differ, for figures
 * and for ratios; long texts stand below their row. Other numbers with a fraction, and objects, are
 * in the JSON, and with --verbose below their row.
 */

#include "app_json.h"
#include "app_measure.h"

struct crpc_hist;

/** Columns of a terminal that a table may take. */
#define APP_OUT_WIDTH 80

/** Where the results of a run go. */
struct app_out {
	const char *app;
	const char *lcores;
	json_t *common; /**< Keys of each row; NULL: none. */
	FILE *json;     /**< NULL: none. */
};

/**
 * Print the machine, "lcores 0,1" or whatever @p where calls them, and the commit.
 *
 * @param json
 *   File that rows are appended to; NULL: none, or out->json is open.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int app_out_open(struct app_out *out, const char *app, const char *where, const char *lcores,
	const char *json);

/** Close the file; report on stderr if the run was interrupted. */
void app_out_close(struct app_out *out, bool interrupted);

/** A new row, with the keys that all rows have. */
json_t *app_row(const struct app_out *out, const char *record, const struct app_trial *t);

/** Add keys, as json_pack() takes them. */
void app_row_set(json_t *row, const char *fmt, ...);

/** Add key: {median, min, max, unit, n}, unless there is no slice in it. */
void app_row_figure(json_t *row, const char *key, const struct app_figure *f, const char *unit);

/** The same of the slices in the state of the trial. */
void app_row_series(json_t *row, const char *key, const struct app_series *s,
	const struct app_trial *t, const char *unit);

/** Add key: {mean, p50, p90, p99, p999, max} of a distribution, in another unit. */
void app_row_hist(json_t *row, const char *key, const struct crpc_hist *h, double scale);

/** Add key: what the CPU counted per operation, without what it lacks. */
void app_row_counters(json_t *row, const char *key, const uint64_t *counter, double ops);

/** Add key: a ratio, or null where it is 0, because one of its two figures is missing. */
void app_row_ratio(json_t *row, const char *key, double ratio);

/**
 * Print the rows of a trial as a table and append them to the file. An empty array prints nothing.
 *
 * @param title
 *   Stands before what the rows have in common; NULL: nothing.
 * @param rows
 *   Array; taken.
 * @return
 *   0, -EIO or -ENOMEM.
 */
int app_out_rows(struct app_out *out, const char *title, const struct app_trial *t, json_t *rows);

/** Print rows that are not results; taken. */
void app_out_table(const char *title, json_t *rows);

/**
 * Print "key value, ..." of a row, without conditions and lists, and without what is zero unless
 * --verbose is given.
 *
 * @param keys
 *   Which; the last one is NULL. NULL: all.
 */
void app_out_pairs(const json_t *row, const char *const *keys);

/** Print in a line whether a trial was quiet. */
void app_out_verdict(const struct app_trial *t);

/** Print a text, word by word, in lines that begin with @p indent spaces but for the first. */
void app_out_text(uint32_t indent, const char *text);

/** On a terminal: "what: round 3 of 60", in a line that the next one overwrites. */
void app_out_progress(const char *what, uint64_t done, uint64_t all);

#endif
