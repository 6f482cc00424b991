/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LINCHECK_WGL_H
#define LINCHECK_WGL_H

/**
 * @file
 * Is there an order of the operations on one key, each at some moment between its call and its
 * answer, in which a single copy of the value would have given all the answers?
 *
 * The search is that of J. Wing and C. Gong, Testing and Verifying Concurrent Objects, Journal of
 * Parallel and Distributed Computing 17, 1993, with the memory of configurations (operations taken,
 * value) of G. Lowe, Testing for Linearizability, Concurrency and Computation 29(4), 2017. A
 * configuration is remembered by a 128-bit hash of the set, so that its size does not grow with the
 * history; two of 2^40 configurations collide with a probability of 2^-49.
 *
 * An operation without an answer may take effect at any time after its call, or never.
 *
 * The copy keeps a second value: APP_HISTORY_SNAPSHOT copies the value there, APP_HISTORY_RESTART
 * copies it back.
 */

#include "history.h"

enum wgl_verdict {
	WGL_YES,
	WGL_NO,
	WGL_UNDECIDED, /**< More configurations than allowed. */
	WGL_NOMEM,
};

struct wgl_report {
	/** WGL_NO: the furthest that any order got: operations taken ... */
	size_t taken;
	/** ... the answer that none of these orders could explain ... */
	size_t stuck;
	/** ... and the value that stood there. */
	uint64_t value;
	uint64_t configurations; /**< Looked at. */
};

/**
 * Check the operations on one key.
 *
 * @param op
 *   Sorted by call.
 * @param n
 *   How many.
 * @param max
 *   Configurations to remember at most.
 * @param report
 *   Filled.
 * @return
 *   The verdict.
 */
enum wgl_verdict wgl_check(
	const struct app_history_op *op, size_t n, uint64_t max, struct wgl_report *report);

#endif
