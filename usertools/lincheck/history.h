/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LINCHECK_HISTORY_H
#define LINCHECK_HISTORY_H

/**
 * @file
 * Operations of the clients of a key-value store, with times and results: one per line,
 * words with blanks between them; doc/protocol/history.md is the specification.
 *
 *     # crpc-history 1
 *     CLIENT KEY CALL RETURN put WORD              ok
 *     CLIENT KEY CALL RETURN get -                 WORD, or none
 *     CLIENT KEY CALL RETURN del -                 ok, or none
 *     CLIENT KEY CALL RETURN cas EXPECTED:DESIRED  ok, or WORD, or none: what was found instead
 *     CLIENT KEY CALL RETURN snapshot -            ok: the value then is kept for the next restart
 *     CLIENT KEY CALL RETURN restart -             ok: the value is the one that was kept last
 *
 * The last two may have the key "*": they are of every key.
 *
 * RETURN and the result are "?" where no answer came. A second, binary form is that of
 * apps/common/app_history.h, and that of the operations in memory; `ret` of one without an answer
 * is UINT64_MAX.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "app_history.h"

/** No value: the key is not there. */
#define HIST_NONE 0

/** Zero it; free() frees op. */
struct history {
	struct app_history_op *op;
	size_t n, room;
};

/**
 * Read a history, or a further part of one.
 *
 * @param in
 *   The text, or the binary form.
 * @param name
 *   Of the file, for messages.
 * @param h
 *   The operations are appended.
 * @return
 *   0, or -1 after one line on standard error: then it holds nothing.
 */
int hist_read(FILE *in, const char *name, struct history *h);

/**
 * Append an operation, unless it was refused without effect.
 *
 * @return
 *   NULL, or what is wrong with it; then it is not there.
 */
const char *hist_add(struct history *h, const struct app_history_op *op, uint64_t line);

/** Operations of the same key from op[0] on, of @p n that are sorted. */
size_t hist_same_key(const struct app_history_op *op, size_t n);

/**
 * Give each key its own of those of every key; order by key, then by call.
 *
 * @return
 *   False: there is no memory.
 */
bool hist_sort(struct history *h);

/** Write an operation as its line, without the end of the line. */
void hist_write(FILE *out, const struct app_history_op *op);

/** Write a value: 0x..., or none. */
void hist_write_value(FILE *out, uint64_t word);

/** An answer came. */
static inline bool
hist_done(const struct app_history_op *op)
{
	return op->state != APP_HISTORY_OPEN;
}

/** It was done: a delete found something, a compare-and-swap wrote. */
static inline bool
hist_ok(const struct app_history_op *op)
{
	return op->state == APP_HISTORY_OK;
}

#endif
