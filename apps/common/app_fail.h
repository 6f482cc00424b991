/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_FAIL_H
#define APP_FAIL_H

/**
 * @file
 * How a program reports that it cannot continue: one line, exit code 2.
 *
 * The line says what was wrong, what was tried and what to do. Every rank of a run finds the same
 * mistake in the arguments, so such a line is said by rank 0 alone (app_fail_once()). What only one
 * rank finds while all of them start is held back (app_fail_hold()) until they have agreed who says
 * it.
 */

#include "crpc_util.h"

/** Exit codes of every program here. */
enum app_exit {
	APP_EXIT_OK = 0,
	APP_EXIT_RUN = 1,   /**< The run itself went wrong: a peer was lost, verification failed. */
	APP_EXIT_USAGE = 2, /**< It could not start: bad arguments, no device, no memory. */
};

/** Set the name that starts each line; kept, not copied. The first call of main(). */
void app_fail_name(const char *name);

/**
 * Say "name: text" on stderr, as one line.
 *
 * @return
 *   APP_EXIT_USAGE, so that `return app_fail(...)` reads well.
 */
int app_fail(const char *fmt, ...) crpc_printf(1, 2);

/** The same, but only rank 0 of a launched run says it, or the one that app_fail_speak() chose. */
int app_fail_once(const char *fmt, ...) crpc_printf(1, 2);

/** Rank 0 is lost: from now on this rank says what all ranks could say. */
void app_fail_speak(void);

/**
 * From now on app_fail() and app_fail_once() keep their text instead of saying it; false: say it
 * again. The first text of a hold is kept.
 */
void app_fail_hold(bool hold);

/** The text kept by the last hold; "" if there was none. */
const char *app_fail_held(void);

/**
 * Another rank says why the run fails: at exit, with everything cleaned up, wait a moment for it. A
 * launcher ends all ranks as soon as the first leaves with an error.
 */
void app_fail_let_speak(void);

/** Say "name: text" on stderr and go on. */
void app_note(const char *fmt, ...) crpc_printf(1, 2);

#endif
