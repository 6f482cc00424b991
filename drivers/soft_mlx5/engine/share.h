/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_SHARE_H
#define SOFT_MLX5_ENGINE_SHARE_H

/**
 * @file
 * One copy by two threads of a process: one core alone does not use up the memory's bandwidth.
 *
 *     who copies                                   who waits for it, when it happens to look
 *     sm_share_copy()
 *       offers the blocks  ---- word ---->         sm_share_help(): takes a block, copies it,
 *       takes a block, copies it, ...              and the next one, ...
 *       waits for blocks that the other took  <--- helped
 *
 * A helper need never come. It is in time for as many blocks as are left, and only while a copy is
 * under way does it touch the memory: who called sm_share_copy() waits for it before it returns.
 *
 * Any thread may help; one at a time copies.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

/** What is taken at a time: a few microseconds, the most that one waits for the other. */
#define SM_SHARE_BLOCK (32u << 10)
/** Copies of less are not shared. */
#define SM_SHARE_LEAST (3 * SM_SHARE_BLOCK)

struct sm_share {
	/** Number of the copy << 32 | its blocks << 16 | blocks taken. All taken: none is open. */
	_Atomic uint64_t word;
	_Atomic uint64_t dst, src; /**< Fixed while blocks are taken or being copied. */
	_Atomic uint32_t len;
	_Atomic uint32_t far;
	uint8_t guard0[CRPC_CACHE_GUARD - 32];
	_Atomic uint32_t helped; /**< Blocks that helpers are done with. */
	uint8_t guard1[CRPC_CACHE_GUARD - 4];
};

/** memcpy(), maybe with help; past the caches if @p far. */
void sm_share_copy(struct sm_share *s, void *dst, const void *src, uint32_t len, bool far);
/** Help if there is a copy under way; number of bytes copied. */
uint32_t sm_share_help(struct sm_share *s);

#endif
