/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_RUN_H
#define IPC_RUN_H

/**
 * @file
 * Runs of responses: one word and fewer lines for many short responses.
 *
 * Short answers that are given together travel as a run, which takes the places of 4 to 16 of them
 * but not the room that each would leave in its line:
 *
 *     place   0                         ...        k - lines  ...  k - 1
 *             word: size, RUN | k       not        k answers side by side,
 *             k slots of requests       used       each at a multiple of 8 bytes
 *
 * The answers stand at the very end, so that no byte of one is in a place before its own, which the
 * server may use again earlier. Where a later response will be polled, no answer may look like its
 * word: so a run is not made if the first bytes of one of its lines, taken as a sequence number,
 * would fall into that very place. And at every 2^30th response one lap is made without runs, so
 * that no word in a place that runs pass over is ever old enough for its number to come round.
 */

#include "ipc_slot.h"

/* Answers in a run, and bytes of each at most; slots of one line only. */
#define IPC_RUN_MIN  4
#define IPC_RUN_MAX  16
#define IPC_RUN_SIZE 32

_Static_assert(8 + 2 * IPC_RUN_MAX <= CRPC_CACHE_LINE, "the slots of a run fit its first line");
_Static_assert(CRPC_CACHE_LINE + IPC_RUN_MIN * IPC_RUN_SIZE < IPC_RUN_MIN * CRPC_CACHE_LINE,
	"even the shortest run saves a line");

/** Bytes from one answer of a run to the next. */
static inline uint32_t
ipc_run_stride(uint32_t size)
{
	return (size + 7) & ~7u;
}

/** Responses after which one lap is made without runs. */
#define IPC_RUN_EPOCH (UINT64_C(1) << 30)

/** Where the answers of a run of @p k begin, in bytes from its first place. */
static inline uint32_t
ipc_run_data(uint32_t k, uint32_t size)
{
	return k * (CRPC_CACHE_LINE - ipc_run_stride(size));
}

#endif
