/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ARENA_CHECK_H
#define ARENA_CHECK_H

/** @file The audit of an arena, which looks into it. */

#include "crpc_arena.h"

/** What arena_check() counted. */
struct arena_report {
	uint32_t units;         /**< All units of 64 KiB. */
	uint32_t units_claimed; /**< Held by a member in the middle of a cut. At rest: 0. */
	uint32_t members; /**< Places taken. */
	uint64_t blocks_cached;
	uint64_t blocks_allocated;
	uint64_t blocks_transit;
	uint64_t bytes_allocated; /**< With those in transit. */
	uint64_t bytes_cached;
	uint64_t unhinted; /**< Spans whose free blocks are not found before the next reclaim. */
	uint64_t errors;   /**< Words that no correct member leaves at rest. */
};

/**
 * Audit a whole arena at rest: every unit in one span or free, every block in one state, in the
 * name of a member whose place is taken. Words change under it if the arena is not at rest.
 *
 * @return
 *   0, or -EPROTO with the first finding said and all counted.
 */
int arena_check(struct crpc_arena *a, struct arena_report *report);

#endif
