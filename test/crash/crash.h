/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRASH_H
#define CRASH_H

/**
 * @file
 * Which of the points of crpc_crash.h kills the process.
 *
 *     n = crpc_crash_points(&points);           every point that is linked in
 *     fork; child: crpc_crash_arm("shm.door.1", 3); work     dies when it is there for the 3rd time
 *           child: crpc_crash_arm_nth(k); work               dies at the k-th point of any name
 *     parent: waitpid(), then looks at what was left
 *
 * Threads: arm and disarm while no other thread works; the points may be passed by any thread.
 */

#include "crpc_crash.h"

/** Die at the @p nth pass (1: the next) of point @p name. NULL disarms. */
void crpc_crash_arm(const char *name, uint32_t nth);

/** Die at the @p nth pass (1: the next) of any point. 0 disarms. */
void crpc_crash_arm_nth(uint32_t nth);

/**
 * Call @p fn, once, at the next pass of point @p name: what another process does there, for a test
 * that needs it to happen just then. What fn passes meanwhile counts, but does not call it again.
 */
void crpc_crash_call(const char *name, void (*fn)(void));

/**
 * All points of the program.
 *
 * @param points
 *   Set to an array of pointers, in no order.
 * @return
 *   Their number.
 */
uint32_t crpc_crash_points(struct crpc_crash_point *const **points);

/** How often this process got to a point of that name. */
uint32_t crpc_crash_passes(const char *name);

#endif
