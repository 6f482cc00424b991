/* SPDX-License-Identifier: BSD-3-Clause */

/* One copy by two threads; see share.h. */
#include <sched.h>
#include <string.h>

#include "crpc_idle.h"
#include "share.h"

#define BLOCKS(word) ((uint32_t)((word) >> 16) & 0xffff)
#define TAKEN(word) ((uint32_t)(word) & 0xffff)

/*
 * Take a block and copy it; its length, or 0: none is left. The word tells that what was read
 * belongs to the copy whose block was taken: it holds the number of the copy.
 */
static uint32_t
block_copy(struct sm_share *s)
{
	uint64_t word = crpc_load_acquire(&s->word); /* H1 pairs with H0 in sm_share_copy(). */
	uint64_t dst, src;
	uint32_t len, at;

	do {
		if (TAKEN(word) >= BLOCKS(word))
			return 0;
		dst = crpc_load_relaxed(&s->dst);
		src = crpc_load_relaxed(&s->src);
		len = crpc_load_relaxed(&s->len);
		/* H1, again: what another one took before may be of another copy. */
	} while (!crpc_cas_acq_rel(&s->word, &word, word + 1));
	at = TAKEN(word) * SM_SHARE_BLOCK;
	len = (uint32_t)crpc_min(len - at, SM_SHARE_BLOCK);
	memcpy((uint8_t *)(uintptr_t)dst + at, (const uint8_t *)(uintptr_t)src + at, len);
	return len;
}

void
sm_share_copy(struct sm_share *s, void *dst, const void *src, uint32_t len)
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
