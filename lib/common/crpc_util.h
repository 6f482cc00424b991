/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_UTIL_H
#define CRPC_UTIL_H

/**
 * @file
 * Small helpers that every part needs: alignment, powers of two, cache lines, branches.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crpc_config.h"

#define crpc_likely(x) __builtin_expect(!!(x), 1)
#define crpc_unlikely(x) __builtin_expect(!!(x), 0)
/** True where the compiler knows the value: a test of it costs nothing at run time. */
#define crpc_constant(x) __builtin_constant_p(x)

#define crpc_aligned(n) __attribute__((aligned(n)))
#define crpc_noinline __attribute__((noinline))
/** A function that is part of its caller, whose state it then keeps in registers. */
#define crpc_inline static inline __attribute__((always_inline))
/** A function that the code of a GPU may call too, where nvcc compiles it. */
#ifdef __CUDACC__
#define crpc_gpu_too __host__ __device__
#else
#define crpc_gpu_too
#endif
#define crpc_printf(fmt, args) __attribute__((format(printf, fmt, args)))

#define CRPC_DIM(a) (sizeof(a) / sizeof((a)[0]))

/** The object of @p type whose member @p member is at @p ptr. */
#define crpc_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/** True if @p v is a power of two; zero is none. */
static inline bool
crpc_is_pow2(uint64_t v)
{
	return v != 0 && (v & (v - 1)) == 0;
}

/** The power of two at or above @p v, which is 1 to 2^63. */
static inline uint64_t
crpc_pow2_ceil(uint64_t v)
{
	return v <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(v - 1));
}

/** log2 of @p v, which is not 0, rounded down. */
static inline unsigned int
crpc_log2(uint64_t v)
{
	return 63 - (unsigned int)__builtin_clzll(v);
}

/** @p v rounded up to a multiple of @p align, a power of two. */
static inline uint64_t
crpc_align_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) & ~(align - 1);
}

/** The smaller of two. */
static inline uint64_t
crpc_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/** The larger of two. */
static inline uint64_t
crpc_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/** The next 64 random bits: SplitMix64 (Steele, Lea, Flood 2014). Any state is a good seed. */
static inline uint64_t
crpc_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/** Hint that the line at @p p is read soon. */
static inline void
crpc_prefetch(const void *p)
{
	__builtin_prefetch(p, 0, 3);
}

#endif
