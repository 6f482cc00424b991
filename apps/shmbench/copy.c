/* SPDX-License-Identifier: BSD-3-Clause */
/* Three ways to copy. Each is a function of its own, called through a pointer: none is inlined. */
#include <string.h>

#include <rte_memcpy.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "shmbench.h"

static void
by_memcpy(void *to, const void *from, uint64_t len)
{
	memcpy(to, from, len);
}

static void
by_rte_memcpy(void *to, const void *from, uint64_t len)
{
	rte_memcpy(to, from, len);
}

#ifdef __x86_64__
/* Stores that go past the caches: the target is not read first, and evicts nothing. */
static void
by_stream(void *to, const void *from, uint64_t len)
{
	const __m128i *f = from;
	__m128i *t = to;

	for (uint64_t i = 0; i < len / 16; i += 4) {
		__m128i a = _mm_loadu_si128(f + i), b = _mm_loadu_si128(f + i + 1);
		__m128i c = _mm_loadu_si128(f + i + 2), d = _mm_loadu_si128(f + i + 3);

		_mm_stream_si128(t + i, a);
		_mm_stream_si128(t + i + 1, b);
		_mm_stream_si128(t + i + 2, c);
		_mm_stream_si128(t + i + 3, d);
	}
	_mm_sfence(); /* part of the cost: before it, others do not see the bytes */
}
#endif

const struct sb_copy sb_copies[] = {
	{"memcpy", by_memcpy},
	{"rte_memcpy", by_rte_memcpy},
#ifdef __x86_64__
	{"non_temporal", by_stream},
#endif
	{NULL, NULL},
};
