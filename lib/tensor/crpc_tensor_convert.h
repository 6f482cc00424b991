/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_CONVERT_H
#define CRPC_TENSOR_CONVERT_H

/**
 * @file
 * 32-bit floats to 16 bits and back: bf16 (the upper half) and f16 (IEEE binary16).
 *
 *     sender      crpc_tensor_f32_to_bf16(half, x, n)      4 n bytes read, 2 n written
 *     receiver    crpc_tensor_bf16_to_f32(y, half, n)      2 n bytes read, 4 n written
 *
 * Narrowing rounds to nearest, ties to even. What is too large becomes an infinity, what is too
 * small a denormal or a zero, of the same sign; denormals are exact on both sides. A NaN stays a
 * NaN: it becomes quiet and keeps its sign and the upper bits of its payload. Widening is exact; of
 * a NaN, f16 to f32 makes a quiet one, and bf16 to f32 keeps every bit.
 *
 * Neither the rounding mode nor flush-to-zero of the calling thread changes a result, and no
 * floating-point flag is promised.
 *
 * The array functions choose once, at the first call, the best code that this CPU has:
 * AVX2 with F16C, or plain C. All give the same bits. From CRPC_TENSOR_STREAM_BYTES written on they
 * go around the caches, which saves reading what is overwritten.
 *
 * Pointers are aligned to their elements; source and destination do not overlap. Any thread.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

/**
 * Bytes written from which on the stores go around the caches: several times what a core's own
 * cache holds. An array that goes to another process was last read there, and storing around the
 * caches does not fetch its lines back first: from 10 MB of f32, narrowing took half the time and
 * widening two thirds. Arrays that one core converts again and again would stay in the shared cache
 * and gain nothing; test/tensor/bench_tensor shows it.
 */
#define CRPC_TENSOR_STREAM_BYTES (UINT64_C(4) << 20)

/** f32 to bf16. */
void crpc_tensor_f32_to_bf16(uint16_t *dst, const float *src, size_t n);
/** bf16 to f32. */
void crpc_tensor_bf16_to_f32(float *dst, const uint16_t *src, size_t n);
/** f32 to f16. */
void crpc_tensor_f32_to_f16(uint16_t *dst, const float *src, size_t n);
/** f16 to f32. */
void crpc_tensor_f16_to_f32(float *dst, const uint16_t *src, size_t n);

/** The bits of a float. */
crpc_gpu_too static inline uint32_t
crpc_tensor_f32_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

/** The float of these bits. */
crpc_gpu_too static inline float
crpc_tensor_f32_of_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/** One f32 as bf16. */
crpc_gpu_too static inline uint16_t
crpc_tensor_bf16_of(float f)
{
	uint32_t u = crpc_tensor_f32_bits(f);
	uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	uint32_t nan = u >> 16 | 0x40;

	return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/** One bf16 as f32. */
crpc_gpu_too static inline float
crpc_tensor_of_bf16(uint16_t h)
{
	return crpc_tensor_f32_of_bits((uint32_t)h << 16);
}

/** One f32 as f16. */
crpc_gpu_too static inline uint16_t
crpc_tensor_f16_of(float f)
{
	uint32_t u = crpc_tensor_f32_bits(f);
	uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
	uint32_t shift, mant, rest, half, q;

	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
	if (a >= 0x477ff000) /* 65520 lies half-way to 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (a >= 0x38800000) /* 2^-14: the smallest normal f16 */
		return (uint16_t)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
	shift = 126 - (a >> 23); /* from units of the f32 to those of an f16 denormal, 2^-24 */
	if (shift > 24)
		return (uint16_t)sign;
	mant = (a & 0x7fffff) | 0x800000;
	q = mant >> shift;
	half = 1u << (shift - 1);
	rest = mant & (2 * half - 1);
	q += rest > half || (rest == half && (q & 1) != 0);
	return (uint16_t)(sign | q);
}

/** One f16 as f32. */
crpc_gpu_too static inline float
crpc_tensor_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 0x1f, mant = h & 0x3ff;
	uint32_t shift;

	if (exp == 0x1f)
		return crpc_tensor_f32_of_bits(
			sign | 0x7f800000 | (mant != 0 ? 0x400000 | mant << 13 : 0));
	if (exp != 0)
		return crpc_tensor_f32_of_bits(sign | (exp + 112) << 23 | mant << 13);
	if (mant == 0)
		return crpc_tensor_f32_of_bits(sign);
	shift = (uint32_t)__builtin_clz(mant) - 21; /* its leading bit goes to bit 10 */
	return crpc_tensor_f32_of_bits(sign | (113 - shift) << 23 | (mant << shift & 0x3ff) << 13);
}

CRPC_END_DECLS

#endif
