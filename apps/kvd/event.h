/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_EVENT_H
#define KVD_EVENT_H

/**
 * @file
 * What happens, as a line each on stderr: "kvd: lost rank 1: its connection broke".
 */

#include "crpc_log.h"

/**
 * Print lines up to a level: 0, errors, to 4, debug; those of the libraries too. Called by the
 * control thread: lines of other threads wait for its next kvd_event_turn().
 */
void kvd_event_level(unsigned int level);

/** Print the lines of other threads. Control thread. */
void kvd_event_turn(void);

/** One line, if the level is wanted. Control thread. */
void kvd_event(enum crpc_log_level level, const char *fmt, ...) crpc_printf(2, 3);

#endif
