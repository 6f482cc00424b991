/* SPDX-License-Identifier: BSD-3-Clause */

/* One copy by two threads; see share.h. */
#include <sched.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "crpc_idle.h"
#include "share.h"

#define STREAM_AHEAD 512
#define BLOCKS(word) ((uint32_t)((word) >> 16) & 0xffff)
#define TAKEN(word) ((uint32_t)(word) & 0xffff)

#ifdef __SSE2__
/* memcpy() past the caches, which reads no line that it is going to overwrite. */
static void
stream(uint8_t *dst, const uint8_t *src, uint32_t n)
{
	uint32_t head = (uint32_t)crpc_min(n, -(uintptr_t)dst & (CRPC_CACHE_LINE - 1));
	const __m128i *s;
	__m128i *d;

	memcpy(dst, src, head);
	s = (const void *)(src + head);
	d = (void *)(dst + head);
	for (n -= head; n >= CRPC_CACHE_LINE; n -= CRPC_CACHE_LINE, s += 4, d += 4) {
		__m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
		__m128i c = _mm_loadu_si128(s + 2), e = _mm_loadu_si128(s + 3);

		_mm_prefetch((const char *)s + STREAM_AHEAD, _MM_HINT_NTA);
		_mm_stream_si128(d, a);
		_mm_stream_si128(d + 1, b);
		_mm_stream_si128(d + 2, c);
		_mm_stream_si128(d + 3, e);
	}
	memcpy(d, s, n);
	_mm_sfence(); /* A release does not order such stores. */
}
#else
#define stream memcpy
#endif

/*
 * Take a block and copy it; its length, or 0: none is left. The word tells that what was read
 * belongs to the copy whose block was taken: it holds the number of the copy.
 */
static uint32_t
block_copy(struct sm_share *s)
{
	uint64_t word = crpc_load_acquire(&s->word); /* H1 pairs with H0 in sm_share_copy(). */
	uint32_t len, at, far;
	uint64_t dst, src;
	const uint8_t *from;
	uint8_t *to;

	do {
		if (TAKEN(word) >= BLOCKS(word))
			return 0;
		dst = crpc_load_relaxed(&s->dst);
		src = crpc_load_relaxed(&s->src);
		len = crpc_load_relaxed(&s->len);
		far = crpc_load_relaxed(&s->far);
		/* H1, again: what another one took before may be of another copy. */
	} while (!crpc_cas_acq_rel(&s->word, &word, word + 1));
	at = TAKEN(word) * SM_SHARE_BLOCK;
	len = (uint32_t)crpc_min(len - at, SM_SHARE_BLOCK);
	to = (uint8_t *)(uintptr_t)dst + at;
	from = (const uint8_t *)(uintptr_t)src + at;
	if (far != 0)
		stream(to, from, len);
	else
		memcpy(to, from, len);
	return len;
}

void
sm_share_copy(struct sm_share *s, void *dst, const void *src, uint32_t len, bool far)
{
	uint32_t blocks = (len + SM_SHARE_BLOCK - 1) / SM_SHARE_BLOCK, own = 0, tries = 0;
	uint64_t number = (crpc_load_relaxed(&s->word) >> 32) + 1;

	if (len < SM_SHARE_LEAST || blocks > 0xffff) {
		memcpy(dst, src, len);
		return;
	}
	crpc_store_relaxed(&s->dst, (uintptr_t)dst);
	crpc_store_relaxed(&s->src, (uintptr_t)src);
	crpc_store_relaxed(&s->len, len);
	crpc_store_relaxed(&s->far, far);
	crpc_store_relaxed(&s->helped, 0);
	crpc_store_release(&s->word, number << 32 | (uint64_t)blocks << 16); /* H0 */
	while (block_copy(s) != 0)
		own++;
	/* H2 pairs with H3. A helper that lost its core in a block gets ours. */
	while (crpc_load_acquire(&s->helped) != blocks - own)
		if (++tries < 1000)
			crpc_pause();
		else
			sched_yield();
}

uint32_t
sm_share_help(struct sm_share *s)
{
	uint32_t sum = 0, len;

	while ((len = block_copy(s)) != 0) {
		sum += len;
		atomic_fetch_add_explicit(&s->helped, 1, memory_order_release); /* H3 */
	}
	return sum;
}
