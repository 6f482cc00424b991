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
 * apps/common/app_history.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "app_history.h"

/** No value: the key is not there. */
#define HIST_NONE 0

enum hist_kind {
	HIST_PUT = APP_HISTORY_PUT,
	HIST_GET = APP_HISTORY_GET,
	HIST_DEL = APP_HISTORY_DEL,
	HIST_CAS = APP_HISTORY_CAS,
	HIST_SNAPSHOT,
	HIST_RESTART,
};

/** One operation. */
struct hist_op {
	uint64_t key;
	uint64_t call;     /**< When it was asked, any clock that all clients share. */
	uint64_t ret;      /**< When the answer was there; UINT64_MAX: never. */
	uint64_t expected; /**< CAS. */
	uint64_t value;    /**< PUT, CAS: to write. */
	uint64_t found;    /**< GET, and CAS that failed: what was there. */
	uint32_t client;
	uint32_t line;
	uint8_t kind;      /**< enum hist_kind. */
	bool done;         /**< An answer came. */
	bool ok;           /**< DEL: it was there; CAS: it wrote. */
	bool every_key;    /**< SNAPSHOT, RESTART: until hist_sort() makes one for each key. */
};

struct history {
	struct hist_op *op;
	size_t n, room;
};

/**
 * Read a history, or a further part of one.
 *
 * @param in
 *   The text.
 * @param name
 *   Of the file, for messages.
 * @param h
 *   What was read before, or zeroed; the operations are appended. Free h->op.
 * @return
 *   0, or -1 after one line on standard error: then it holds nothing.
 */
int hist_read(FILE *in, const char *name, struct history *h);

/**
 * Read one operation of the binary form.
 *
 * @param skip
 *   Set if it had no effect and no meaning.
 * @return
 *   NULL, or what is wrong with it.
 */
const char *hist_op_read(const struct app_history_op *in, struct hist_op *op, bool *skip);

/** Operations of the same key from op[0] on, of @p n that are sorted. */
size_t hist_same_key(const struct hist_op *op, size_t n);

/** Order by key, then by call. @return false: there is no memory. */
bool hist_sort(struct history *h);

/** Write an operation as its line, without the end of the line. */
void hist_write(FILE *out, const struct hist_op *op);

/** Write a value: 0x..., or none. */
void hist_write_value(FILE *out, uint64_t word);

#endif
