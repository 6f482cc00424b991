/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CRASH_H
#define CRPC_CRASH_H

/**
 * @file
 * Places where a test kills the process: between two stores that another process can see.
 *
 *     crpc_store_release(&slot->word, w);
 *     CRPC_CRASH_POINT("ipc.call.1");           nothing at all, but in a test build
 *     crpc_store_release(&bell->ring, r);
 *
 * Without CRPC_CRASH_POINTS a point compiles to nothing. With it (the libraries `*_crash` that
 * test/crash/meson.build makes) each point is an object in a section of its own, so that a test can
 * list all of them, and the process kills itself by SIGKILL at the one that was armed:
 *
 *     n = crpc_crash_points(&points);           every point that is linked in
 *     fork; child: crpc_crash_arm("ipc.call.1", 3); work     dies when it is there for the 3rd time
 *           child: crpc_crash_arm_nth(k); work               dies at the k-th point of any name
 *     parent: waitpid(), then looks at what was left
 *
 * A name is "library.operation.number"; the numbers of an operation count up in program order. The
 * name may stand at several places, which are then one point.
 *
 * Threads: arm and disarm while no other thread works; the points may be passed by any thread.
 */

#ifdef CRPC_CRASH_POINTS

#include <stdatomic.h>
#include <stdint.h>

/** One place. */
struct crpc_crash_point {
	const char *name;
	_Atomic uint32_t passes; /**< How often this process got here. */
};

/** Called at a point; returns unless it is the armed one. */
void crpc_crash_here(struct crpc_crash_point *point);

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

#define CRPC_CRASH_POINT(point_name)                                                               \
	do {                                                                                       \
		static struct crpc_crash_point crash_point_ = {.name = (point_name)};              \
		static struct crpc_crash_point *const crash_link_                                  \
				__attribute__((section("crpc_crash"), used)) = &crash_point_;      \
		crpc_crash_here(crash_link_);                                                      \
	} while (0)

#else
#define CRPC_CRASH_POINT(point_name) ((void)0)
#endif

#endif
