/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_STOP_H
#define APP_STOP_H

/**
 * @file
 * SIGINT and SIGTERM: the first one asks the program to finish its slice and to print the results
 * so far, the second one ends it at once, with status 128 + signal as a shell reports it.
 */

#include "crpc_atomic.h"

/** A signal sent to a process and again to its group, as timeout(1) does, is one signal, ms. */
#define APP_STOP_SAME_MS 200

extern _Atomic int app_stop_signal;

/** Catch them from now on. SIGPIPE is ignored: writes return EPIPE. */
void app_stop_catch(void);

/** The signal that has come; 0: none. */
static inline int
app_stopped(void)
{
	return crpc_load_relaxed(&app_stop_signal);
}

#endif
