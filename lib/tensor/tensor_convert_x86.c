/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conversions with AVX2. Functions are compiled for its instructions by attribute, so that the
 * library runs on any x86-64 and picks at run time.
 *
 * bf16 is done in integers: the CPU's own bf16 instructions flush denormals to zero.
 *
 * Each loop first goes element by element to where whole vectors can be stored aligned, which
 * storing around the caches requires.
 */
#include "crpc_dma.h"
#include "crpc_util.h"
#include "tensor_convert.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,f16c")))
#define VECTOR 32
#define ROUND  (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* The kernel saves the registers of what __builtin_cpu_supports() names; it knows no F16C. */
static bool
usable_avx2(void)
{
	unsigned int a, b, c, d;

	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
	       (c & bit_F16C) != 0;
}

/* Whole vectors to an aligned address. */
AVX2 static inline void
put256(void *dst, __m256i v, bool stream)
{
	if (stream)
		_mm256_stream_si256(dst, v);
	else
		_mm256_store_si256(dst, v);
}

/*
 * A conversion: as many elements as fill VECTOR bytes at a time, from any address s to an aligned
 * one, by `value`; the rest is done element by element. Stores around the caches are in no order:
 * what the caller publishes next must come after them.
 */
#define CONVERT(name, to, from, value)                                                             \
	AVX2 static void avx2_##name(to *dst, const from *src, size_t n, bool stream)              \
	{                                                                                          \
		const size_t step = VECTOR / sizeof(*dst);                                         \
		size_t i = crpc_min(-(uintptr_t)dst % VECTOR / sizeof(*dst), n);                   \
                                                                                                   \
		__crpc_tensor_convert_plain.name(dst, src, i, false);                              \
		for (const from *s = src + i; i + step <= n; i += step, s += step)                 \
			put256(dst + i, value, stream);                                            \
		if (stream)                                                                        \
			crpc_dma_wc_flush();                                                       \
		__crpc_tensor_convert_plain.name(dst + i, src + i, n - i, false);                  \
	}

/* Eight floats as bf16, each in the low half of 32 bits. */
AVX2 static inline __m256i
bf16_8(const float *src)
{
	__m256 f = _mm256_loadu_ps(src);
	__m256i u = _mm256_castps_si256(f);
	__m256i upper = _mm256_srli_epi32(u, 16);
	__m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
	__m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
	__m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
	__m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
	__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));

	return _mm256_blendv_epi8(rounded, quiet, nan);
}

/* Eight words of 16 bits, and eight floats as f16. */
#define WORDS_8(s) _mm_loadu_si128((const void *)(s))
#define F16_8(s)   _mm256_cvtps_ph(_mm256_loadu_ps(s), ROUND)

/* pack works within halves of 128 bits: put the quarters in order again */
CONVERT(f32_to_bf16, uint16_t, float,
	_mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_8(s), bf16_8(s + 8)), 0xd8))
CONVERT(bf16_to_f32, float, uint16_t, _mm256_slli_epi32(_mm256_cvtepu16_epi32(WORDS_8(s)), 16))
CONVERT(f32_to_f16, uint16_t, float, _mm256_set_m128i(F16_8(s + 8), F16_8(s)))
CONVERT(f16_to_f32, float, uint16_t, _mm256_castps_si256(_mm256_cvtph_ps(WORDS_8(s))))

const struct tensor_convert __crpc_tensor_convert_avx2 = TENSOR_CONVERT(avx2, usable_avx2);

#endif
