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

/** Version of the keys and their meaning: doc/protocol/results.md. */
#define APP_JSON_SCHEMA 1

/**
 * Find out at the start of a run whether a result can be written at its end. Makes no file.
 *
 * @param option
 *   Name of the option that gave the path.
 * @param path
 *   NULL: none is wanted.
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

/**
 * Append the object as one line, and drop it; without a file, drop it. Lines of several processes
 * do not mix.
 *
 * @return
 *   0, or -errno, the first time after one line on stderr.
 */
int app_json_write(FILE *out, json_t *obj);

#endif
