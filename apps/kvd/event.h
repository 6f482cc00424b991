/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_EVENT_H
#define KVD_EVENT_H

/**
 * @file
 * What happens, as a line each on stderr: "kvd: lost rank 1: its connection broke".
 */

#include "crpc_log.h"

/** Print lines up to a level: 0, errors, to 4, debug; those of the libraries too. */
void kvd_event_level(unsigned int level);

/** One line, if the level is wanted. Any thread. */
void kvd_event(enum crpc_log_level level, const char *fmt, ...) crpc_printf(2, 3);

#endif
