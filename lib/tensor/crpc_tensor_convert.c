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

const struct tensor_convert __crpc_tensor_convert_plain = TENSOR_CONVERT(plain, always);

const struct tensor_convert *const __crpc_tensor_convert[] = {
#if defined(__x86_64__)
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

#define CHOOSE(conversion, to, from)                                                               \
	void crpc_tensor_##conversion(to *dst, const from *src, size_t n)                          \
	{                                                                                          \
		best()->conversion(dst, src, n, n >= CRPC_TENSOR_STREAM_BYTES / sizeof(*dst));     \
	}

CHOOSE(f32_to_bf16, uint16_t, float)
CHOOSE(bf16_to_f32, float, uint16_t)
CHOOSE(f32_to_f16, uint16_t, float)
CHOOSE(f16_to_f32, float, uint16_t)
