/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CRASH_H
#define CRPC_CRASH_H

/**
 * @file
 * Places where a test kills the process: between two steps that another process can see.
 *
 * Each write of crpc_atomic.h has such a point before it, whose name is the place in the source,
 * "../lib/ipc/ipc_run.c:83". What has no such write, as a call of the system, and where a test has
 * to be at one certain place, has a point of its own:
 *
 *     chmod(path, 0600);
 *     CRPC_CRASH_POINT("shm.door.3");           nothing at all, but in a test build
 *     listen(fd, 8);
 *
 * Without CRPC_CRASH_POINTS a point compiles to nothing. With it (the libraries `*_crash` that
 * test/crash/meson.build makes) each point is an object in a section of its own, and the process
 * kills itself by SIGKILL at the one that was armed (test/crash/crash.h).
 *
 * Such a name is "library.operation.number"; the numbers of an operation count up in program order.
 * The name may stand at several places, which are then one point.
 */

#ifndef __cplusplus
#include <stdatomic.h>
#include <stdint.h>

/** One place. */
struct crpc_crash_point {
	const char *name;
	_Atomic uint32_t passes; /**< How often this process got here. */
};

/** Called at a point; returns unless it is the armed one. */
void crpc_crash_here(struct crpc_crash_point *point);
#endif

#ifdef CRPC_CRASH_POINTS
#define CRPC_CRASH_POINT(point_name)                                                               \
	__extension__({                                                                            \
		static struct crpc_crash_point crash_point_ = {.name = (point_name)};              \
		static struct crpc_crash_point *const crash_link_                                  \
			__attribute__((section("crpc_crash"), used)) = &crash_point_;              \
		crpc_crash_here(crash_link_);                                                      \
	})
#else
#define CRPC_CRASH_POINT(point_name) ((void)0)
#endif

#define CRPC_CRASH_NAME(file, line) file ":" #line
#define CRPC_CRASH_AT(file, line)   CRPC_CRASH_POINT(CRPC_CRASH_NAME(file, line))
/** The point of this very place. */
#define CRPC_CRASH_HERE CRPC_CRASH_AT(__FILE__, __LINE__)

#endif
