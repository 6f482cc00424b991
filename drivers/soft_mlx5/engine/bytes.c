/* SPDX-License-Identifier: BSD-3-Clause */

/* Copies that appear in order; see bytes.h. */
#include "bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/** How far ahead of a streamed copy its source is prefetched. */
#define STREAM_AHEAD 512
/** A streamed copy appears in order by blocks of so many bytes. */
#define STREAM_BLOCK 4096u
/** From here on the wider vectors of AVX are worth the question whether the CPU has them. */
#define WIDE_FROM 128u

/* The largest store, of a power of two, that can end a copy up to @end and is a single one. */
static inline uint32_t
last_bytes(const uint8_t *end, uint32_t n)
{
	uint32_t bytes = (uint32_t)((uintptr_t)end | 8);

	bytes &= -bytes; /* The alignment of the end, 8 at most. */
	while (bytes > n)
		bytes /= 2;
	return bytes;
}

/* W0: pairs with the acquire of a program that polls the end of a message. */
static inline void
last_store(void *dst, const void *src, uint32_t bytes)
{
	if (bytes == 8)
		crpc_store_release((_Atomic uint64_t *)dst, *(const sm_word *)src);
	else if (bytes == 4)
		crpc_store_release((_Atomic uint32_t *)dst, *(const sm_single *)src);
	else if (bytes == 2)
		crpc_store_release((_Atomic uint16_t *)dst, *(const sm_half *)src);
	else
		crpc_store_release((_Atomic uint8_t *)dst, *(const uint8_t *)src);
}

/* Copy words of a type from @done on, as many as there are. */
#define FORWARD(type)                                                                              \
	_Pragma("GCC unroll 4")                                                                    \
	for (; n - done >= sizeof(type); done += (uint32_t)sizeof(type)) {                         \
		*(type *)(void *)(dst + done) = *(const type *)(const void *)(src + done);         \
		crpc_dma_wmb();                                                                    \
	}

/* Copy without the last store; @n may be 0. */
static inline void
forward(uint8_t *dst, const uint8_t *src, uint32_t n)
{
	uint32_t done = 0;

	FORWARD(sm_wide)
	FORWARD(sm_word)
	FORWARD(uint8_t)
}

#ifdef __x86_64__
typedef uint64_t wider __attribute__((vector_size(32), aligned(1), may_alias));

static __attribute__((target("avx"))) uint32_t
forward_avx(uint8_t *dst, const uint8_t *src, uint32_t n)
{
	uint32_t done = 0;

	FORWARD(wider)
	return done;
}
#define HAS_AVX __builtin_cpu_supports("avx")
#else
#define forward_avx(dst, src, n) 0
#define HAS_AVX 0
#endif

void
sm_copy_any(void *dst, const void *src, uint32_t n)
{
	const uint8_t *s = src;
	uint8_t *d = dst;
	uint32_t last, done = 0;

	if (n == 0)
		return;
	last = last_bytes(d + n, n);
	n -= last;
	if (n >= WIDE_FROM && HAS_AVX)
		done = forward_avx(d, s, n);
	forward(d + done, s + done, n - done);
	last_store(d + n, s + n, last);
}

#ifdef __SSE2__
void
sm_copy_far(void *dst, const void *src, uint32_t n)
{
	uint32_t head = (uint32_t)crpc_min(n, -(uintptr_t)dst & (CRPC_CACHE_LINE - 1));
	const __m128i *s = (const void *)((const uint8_t *)src + head);
	__m128i *d = (void *)((uint8_t *)dst + head);

	forward(dst, src, head);
	for (n -= head; n > CRPC_CACHE_LINE; n -= CRPC_CACHE_LINE, s += 4, d += 4) {
		__m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
		__m128i c = _mm_loadu_si128(s + 2), e = _mm_loadu_si128(s + 3);

		_mm_prefetch((const char *)s + STREAM_AHEAD, _MM_HINT_NTA);
		/* Streamed stores pass each other: the ones before end here. */
		if (((uintptr_t)d & (STREAM_BLOCK - 1)) == 0)
			crpc_dma_wc_flush();
		_mm_stream_si128(d, a);
		_mm_stream_si128(d + 1, b);
		_mm_stream_si128(d + 2, c);
		_mm_stream_si128(d + 3, e);
	}
	crpc_dma_wc_flush(); /* And pass what follows them. */
	sm_copy_any(d, s, n);
}
#else
void
sm_copy_far(void *dst, const void *src, uint32_t n)
{
	sm_copy_any(dst, src, n);
}
#endif
