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
 * test/crash/meson.build makes) each point is an object in a section of its own, and the process
 * kills itself by SIGKILL at the one that was armed (test/crash/crash.h).
 *
 * A name is "library.operation.number"; the numbers of an operation count up in program order. The
 * name may stand at several places, which are then one point.
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
