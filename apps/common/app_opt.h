/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_OPT_H
#define APP_OPT_H

/**
 * @file
 * Command-line options from a table: strict ranges, one line for each mistake.
 *
 *     static const struct app_opt opts[] = {
 *             {"clients", APP_OPT_UINT, "N", "clients of this rank", &o.clients, 1, 1024},
 *             {"dist", APP_OPT_CHOICE, "NAME", "key distribution", &o.dist, .choices = dists},
 *     };
 *     rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
 *
 * `--name value` and `--name=value` both work; a later option replaces an earlier one.
 */

#include <stdio.h>

#include "crpc_util.h"

/** What an option takes. */
enum app_opt_type {
	APP_OPT_FLAG, /**< Nothing; `bool *` becomes true. */
	/** Whole number within min..max, with k or K, M, G (1000) or Ki, Mi, Gi; `uint64_t *`. */
	APP_OPT_UINT,
	APP_OPT_REAL,   /**< Number within min..max; `double *`. */
	APP_OPT_STRING, /**< Anything that is not empty; `const char **`. */
	APP_OPT_CHOICE, /**< One of choices; `unsigned int *` becomes its index. */
	/** Whole numbers within min..max, with commas between; `struct app_list *`. */
	APP_OPT_UINTS,
	/** Some of choices, each at most once, or "all"; `struct app_list *` gets their indexes. */
	APP_OPT_CHOICES,
};

/** Values of a list at most. */
#define APP_LIST_MAX 16

/** What a list option gives. */
struct app_list {
	uint32_t n;
	uint64_t v[APP_LIST_MAX];
};

/** One option. */
struct app_opt {
	const char *name; /**< Without the dashes. */
	enum app_opt_type type;
	const char *arg; /**< What its value is called in the help. */
	const char *help;
	void *dest;
	double min, max;
	const char *const *choices; /**< Ends with NULL. */
};

/**
 * Parse the program's own arguments.
 *
 * @param opts, n
 *   The table.
 * @param argc, argv
 *   Arguments only, without the program's name.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int app_opt_parse(const struct app_opt *opts, size_t n, int argc, char *const *argv);

/**
 * The last value given to one option, before the rest is parsed.
 *
 * @return
 *   The value; NULL if the option does not occur or has no value.
 */
const char *app_opt_find(const char *name, int argc, char *const *argv);

/**
 * Read a whole number with such a unit.
 *
 * @param at
 *   Text that starts with it; then what follows it.
 * @return
 *   False: no number is there, or it is too large.
 */
bool app_opt_number(const char **at, uint64_t *v);

/** True if `--name` occurs. */
bool app_opt_has(const char *name, int argc, char *const *argv);

/**
 * Print one line per option, with its range and its default: what its dest has, so ask before
 * anything is parsed. A number that is out of its range stands for none, and is not reported.
 */
void app_opt_help(const struct app_opt *opts, size_t n, FILE *out);

#endif
