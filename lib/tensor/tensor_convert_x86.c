/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conversions with AVX2 and with AVX-512. Functions are compiled for their instructions by
 * attribute, so that the library runs on any x86-64 and picks at run time.
 *
 * bf16 is done in integers: the CPU's own bf16 instructions flush denormals to zero.
 *
 * Each loop first goes element by element to where whole vectors can be stored aligned, which
 * storing around the caches requires.
 */
#include "crpc_dma.h"
#include "tensor_convert.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx2,f16c")))
#define ROUND  (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* Elements from p to the next address aligned to `align`, n at most. */
static inline size_t
to_aligned(const void *p, size_t size, size_t align, size_t n)
{
	size_t head = (-(uintptr_t)p & (align - 1)) / size;

	return head < n ? head : n;
}

/* The kernel saves the registers of what __builtin_cpu_supports() names; it knows no F16C. */
static bool
usable_avx2(void)
{
	unsigned int a, b, c, d;

	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
	       (c & bit_F16C) != 0;
}

static bool
usable_avx512(void)
{
	return usable_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
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

AVX512 static inline void
put512(void *dst, __m512i v, bool stream)
{
	if (stream)
		_mm512_stream_si512(dst, v);
	else
		_mm512_store_si512(dst, v);
}

/*
 * A conversion: as many elements as fill `bytes` at a time, from any address s to an aligned one,
 * by `value`; the rest is done element by element. Stores around the caches are in no order: what
 * the caller publishes next must come after them.
 */
#define CONVERT(isa, variant, plain, to, from, bytes, put, value)                                  \
	isa static void variant##_##plain(to *dst, const from *src, size_t n, bool stream)         \
	{                                                                                          \
		const size_t step = (bytes) / sizeof(*dst);                                        \
		size_t i = to_aligned(dst, sizeof(*dst), bytes, n);                                \
                                                                                                   \
		__crpc_tensor_convert_plain.plain(dst, src, i, false);                             \
		for (const from *s = src + i; i + step <= n; i += step, s += step)                 \
			put(dst + i, value, stream);                                               \
		if (stream)                                                                        \
			crpc_dma_wc_flush();                                                       \
		__crpc_tensor_convert_plain.plain(dst + i, src + i, n - i, false);                 \
	}

/* ---- AVX2 ---- */

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
CONVERT(AVX2, avx2, f32_to_bf16, uint16_t, float, 32, put256,
	_mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_8(s), bf16_8(s + 8)), 0xd8))
CONVERT(AVX2, avx2, bf16_to_f32, float, uint16_t, 32, put256,
	_mm256_slli_epi32(_mm256_cvtepu16_epi32(WORDS_8(s)), 16))
CONVERT(AVX2, avx2, f32_to_f16, uint16_t, float, 32, put256,
	_mm256_set_m128i(F16_8(s + 8), F16_8(s)))
CONVERT(AVX2, avx2, f16_to_f32, float, uint16_t, 32, put256,
	_mm256_castps_si256(_mm256_cvtph_ps(WORDS_8(s))))

const struct tensor_convert __crpc_tensor_convert_avx2 = TENSOR_CONVERT(avx2, usable_avx2);

/* ---- AVX-512 ---- */

/* Sixteen floats as bf16. */
AVX512 static inline __m256i
bf16_16(const float *src)
{
	__m512 f = _mm512_loadu_ps(src);
	__m512i u = _mm512_castps_si512(f);
	__m512i upper = _mm512_srli_epi32(u, 16);
	__m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
	__m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
	__m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
	__mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);

	return _mm512_cvtepi32_epi16(
			_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}

AVX512 static inline __m512i
join(__m256i low, __m256i high)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Sixteen words of 16 bits, and sixteen floats as f16. */
#define WORDS_16(s) _mm256_loadu_si256((const void *)(s))
#define F16_16(s)   _mm512_cvtps_ph(_mm512_loadu_ps(s), ROUND)

CONVERT(AVX512, avx512, f32_to_bf16, uint16_t, float, 64, put512,
	join(bf16_16(s), bf16_16(s + 16)))
CONVERT(AVX512, avx512, bf16_to_f32, float, uint16_t, 64, put512,
	_mm512_slli_epi32(_mm512_cvtepu16_epi32(WORDS_16(s)), 16))
CONVERT(AVX512, avx512, f32_to_f16, uint16_t, float, 64, put512, join(F16_16(s), F16_16(s + 16)))
CONVERT(AVX512, avx512, f16_to_f32, float, uint16_t, 64, put512,
	_mm512_castps_si512(_mm512_cvtph_ps(WORDS_16(s))))

const struct tensor_convert __crpc_tensor_convert_avx512 = TENSOR_CONVERT(avx512, usable_avx512);

#endif
