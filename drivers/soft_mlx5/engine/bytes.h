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
#include "crpc_util.h"

/* ---- big endian words in application memory ---- */

static inline uint16_t
sm_be16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t
sm_be32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t
sm_be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline uint32_t
sm_dbrec(_Atomic uint32_t *word)
{
	/* The program's store follows its WQEs by a barrier; see crpc_dma_wmb(). */
	return __builtin_bswap32(crpc_load_acquire(word));
}

/* 16 bytes that one instruction moves, at any address. */
typedef uint64_t sm_wide __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t sm_word __attribute__((aligned(1), may_alias));

/** memcpy(), never expanded in place: what a compiler makes of it there is slow to start. */
void sm_copy_any(void *dst, const void *src, uint32_t n);

/** memcpy() that moves 8 to 128 bytes, the payload of a small packet, without a call or a loop. */
static inline void
sm_copy(void *dst, const void *src, uint32_t n)
{
	const sm_wide *s = src, *se = (const void *)((const uint8_t *)src + n);
	sm_wide *d = dst, *de = (void *)((uint8_t *)dst + n);

	if (crpc_unlikely(n - 8 > 120)) {
		sm_copy_any(dst, src, n);
		return;
	}
	if (n < 16) {
		*(sm_word *)dst = *(const sm_word *)src;
		*((sm_word *)(void *)de - 1) = *((const sm_word *)(const void *)se - 1);
		return;
	}
	/* From both ends to the middle, where they may overlap. */
	d[0] = s[0];
	de[-1] = se[-1];
	if (n <= 32)
		return;
	d[1] = s[1];
	de[-2] = se[-2];
	if (n <= 64)
		return;
	d[2] = s[2];
	d[3] = s[3];
	de[-3] = se[-3];
	de[-4] = se[-4];
}

#endif
