/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_atomic.h"
#include "crpc_tensor_convert.h"
#include "tensor_convert.h"

/* ---- plain C; the compiler makes vectors of the bf16 loops ---- */

static bool
always(void)
{
	return true;
}

#define PLAIN(name, to, from, one)                                                                 \
	static void name(to *restrict dst, const from *restrict src, size_t n, bool stream)        \
	{                                                                                          \
		size_t i;                                                                          \
                                                                                                   \
		for (i = 0; i < n; i++)                                                            \
			dst[i] = one(src[i]);                                                      \
	}

PLAIN(plain_f32_to_bf16, uint16_t, float, crpc_tensor_bf16_of)
PLAIN(plain_bf16_to_f32, float, uint16_t, crpc_tensor_of_bf16)
PLAIN(plain_f32_to_f16, uint16_t, float, crpc_tensor_f16_of)
PLAIN(plain_f16_to_f32, float, uint16_t, crpc_tensor_of_f16)

const struct tensor_convert __crpc_tensor_convert_plain = {
		.name = "plain",
		.usable = always,
		.f32_to_bf16 = plain_f32_to_bf16,
		.bf16_to_f32 = plain_bf16_to_f32,
		.f32_to_f16 = plain_f32_to_f16,
		.f16_to_f32 = plain_f16_to_f32,
};

const struct tensor_convert *const __crpc_tensor_convert[] = {
#if defined(__x86_64__)
		&__crpc_tensor_convert_avx512,
		&__crpc_tensor_convert_avx2,
#endif
		&__crpc_tensor_convert_plain,
		NULL,
};

/* ---- the choice ---- */

/*
 * Of this CPU, found at the first use. Threads that meet here find the same; the tables are
 * constants, so relaxed is enough.
 */
static const struct tensor_convert *
best(void)
{
	static const struct tensor_convert *_Atomic chosen;
	const struct tensor_convert *c = crpc_load_relaxed(&chosen);
	uint32_t i;

	if (crpc_likely(c != NULL))
		return c;
	for (i = 0; !__crpc_tensor_convert[i]->usable(); i++)
		;
	crpc_store_relaxed(&chosen, __crpc_tensor_convert[i]);
	return __crpc_tensor_convert[i];
}

void
crpc_tensor_f32_to_bf16(uint16_t *dst, const float *src, size_t n)
{
	best()->f32_to_bf16(dst, src, n, n >= CRPC_TENSOR_STREAM_BYTES / sizeof(*dst));
}

void
crpc_tensor_bf16_to_f32(float *dst, const uint16_t *src, size_t n)
{
	best()->bf16_to_f32(dst, src, n, n >= CRPC_TENSOR_STREAM_BYTES / sizeof(*dst));
}

void
crpc_tensor_f32_to_f16(uint16_t *dst, const float *src, size_t n)
{
	best()->f32_to_f16(dst, src, n, n >= CRPC_TENSOR_STREAM_BYTES / sizeof(*dst));
}

void
crpc_tensor_f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
	best()->f16_to_f32(dst, src, n, n >= CRPC_TENSOR_STREAM_BYTES / sizeof(*dst));
}

const char *
crpc_tensor_convert_name(void)
{
	return best()->name;
}
