/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TENSOR_CONVERT_H
#define TENSOR_CONVERT_H

/*
 * The variants of the conversions, one table each. They differ in speed and in nothing else; the
 * tests run every one that the CPU has.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_convert {
	const char *name;
	bool (*usable)(void); /* by this CPU and kernel */
	/* stream: go around the caches. */
	void (*f32_to_bf16)(uint16_t *dst, const float *src, size_t n, bool stream);
	void (*bf16_to_f32)(float *dst, const uint16_t *src, size_t n, bool stream);
	void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n, bool stream);
	void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n, bool stream);
};

/* The table of a variant, whose functions are named after it. */
#define TENSOR_CONVERT(variant, is_usable)                                                         \
	{                                                                                          \
		.name = #variant, .usable = is_usable, .f32_to_bf16 = variant##_f32_to_bf16,       \
		.bf16_to_f32 = variant##_bf16_to_f32, .f32_to_f16 = variant##_f32_to_f16,          \
		.f16_to_f32 = variant##_f16_to_f32,                                                \
	}

/* Best first; the last one, in plain C, is always usable. Ends with NULL. */
extern const struct tensor_convert *const __crpc_tensor_convert[];

extern const struct tensor_convert __crpc_tensor_convert_plain;
#if defined(__x86_64__)
extern const struct tensor_convert __crpc_tensor_convert_avx2;
#endif

#endif
