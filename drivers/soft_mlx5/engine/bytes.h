/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_BYTES_H
#define SOFT_MLX5_ENGINE_BYTES_H

/**
 * @file
 * Words and payloads in application memory.
 */

#include <stdint.h>
#include <string.h>

#include "crpc_atomic.h"
#include "crpc_dma.h"
#include "crpc_util.h"

/* Words at any address, and 16 bytes that one instruction moves. */
typedef uint16_t sm_half __attribute__((aligned(1), may_alias));
typedef uint32_t sm_single __attribute__((aligned(1), may_alias));
typedef uint64_t sm_word __attribute__((aligned(1), may_alias));
typedef uint64_t sm_wide __attribute__((vector_size(16), aligned(1), may_alias));

/* Big endian words. */
#define sm_be16(p) __builtin_bswap16(*(const sm_half *)(const void *)(p))
#define sm_be32(p) __builtin_bswap32(*(const sm_single *)(const void *)(p))
#define sm_be64(p) __builtin_bswap64(*(const sm_word *)(const void *)(p))

static inline uint32_t
sm_dbrec(_Atomic uint32_t *word)
{
	/* The program's store follows its WQEs by a barrier; see crpc_dma_wmb(). */
	return __builtin_bswap32(crpc_load_acquire(word));
}

/**
 * Copies into memory that a program may poll, as a card's writes appear there: in increasing order
 * of addresses, each byte once, and the last word, or what of it is aligned, by a store of its own
 * that releases all the rest. A program that sees the end of a message sees the message.
 *
 * memcpy() has no order: what it copies by overlapping vectors appears from both ends.
 */
void sm_copy_any(void *dst, const void *src, uint32_t n);

/** The same past the caches. Its order is by blocks of 4 KiB, and the last line comes last. */
void sm_copy_far(void *dst, const void *src, uint32_t n);

/** sm_copy_any() that moves the payload of a small packet without a call or a loop. */
static inline void
sm_copy(void *dst, const void *src, uint32_t n)
{
	const uint8_t *s = src;
	uint8_t *d = dst;
	sm_wide v;

	if (crpc_unlikely(((uintptr_t)dst & 7) != 0 || (n & 15) != 0 || n - 16 > 240)) {
		sm_copy_any(dst, src, n);
		return;
	}
	n -= 16;
	for (uint32_t i = 0; i != n; i += 16) {
		*(sm_wide *)(void *)(d + i) = *(const sm_wide *)(const void *)(s + i);
		crpc_dma_wmb();
	}
	/* Loaded at once, as what comes from another copy was stored. */
	v = *(const sm_wide *)(const void *)(s + n);
	*(sm_word *)(void *)(d + n) = v[0];
	/* W0: pairs with the acquire of a program that polls the end of a message. */
	crpc_store_release((_Atomic uint64_t *)(void *)(d + n + 8), v[1]);
}

#endif
