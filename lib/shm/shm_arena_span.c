/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the cache and the units: filling, flushing, cutting spans and taking them apart.
 *
 * Hints. A bit of a class's map says that a span may have free blocks. It is set after a block
 * became free, and cleared before the span is searched: so a bit that is missing though a block is
 * free can only be left by a member that died in between, and the sweep that frees its blocks sets
 * it again. Until then no member looks there: a search costs in proportion to the bits that are
 * set, and not to the blocks of the arena.
 *
 * All loops run over this process's own numbers of units, blocks and words, whatever stands in the
 * arena.
 */
#include <errno.h>
#include <string.h>

#include "shm_arena.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

__attribute__((noinline, no_sanitize("thread"))) uint64_t
__crpc_arena_peek(const arena_word *word)
{
	return crpc_load_acquire(word);
}

__attribute__((noinline, no_sanitize("thread"))) bool
__crpc_arena_cas(arena_word *word, uint64_t *expected, uint64_t to)
{
	bool done;

	__tsan_release(word);
	done = crpc_cas_acq_rel(word, expected, to);
	if (done)
		__tsan_acquire(word);
	return done;
}
#endif

/* Spans without a free block that a fill looks at before it cuts a new one. */
#define MISSES_MAX 64u

/* ---- back to the arena ---- */

/* Make a cached block free. False if its word was damaged: then it stays as it is. */
static bool
release_block(struct crpc_arena_cache *c, const struct arena_entry *e)
{
	uint64_t gen = word_gen(e->ref);

	if (crpc_unlikely(crpc_load_relaxed(e->word) != (gen | c->word_cached))) {
		c->damaged++;
		return false;
	}
	/* R4: our last use of the block, for the member that allocates it next. */
	crpc_store_release(e->word, gen | WORD_FREE);
	return true;
}

void
__crpc_arena_put(struct crpc_arena_cache *c, uint32_t cls, const struct arena_entry *e)
{
	c->held -= c->bin[cls].size;
	if (release_block(c, e))
		arena_hint_set(c->a, cls, arena_ref_unit(c->a, e->ref));
}

void
__crpc_arena_flush_bin(struct crpc_arena_cache *c, uint32_t cls, uint32_t n)
{
	struct arena_bin *bin = &c->bin[cls];
	uint32_t u, last = UINT32_MAX;

	/* Neighbours mostly: one bit for all blocks of a span that follow each other. */
	for (uint32_t i = 0; i < n; i++) {
		u = arena_ref_unit(c->a, bin->e[i].ref);
		if (last != UINT32_MAX && u != last)
			arena_hint_set(c->a, cls, last);
		if (release_block(c, &bin->e[i]))
			last = u;
		else if (u != last)
			last = UINT32_MAX;
	}
	if (last != UINT32_MAX)
		arena_hint_set(c->a, cls, last);
	c->held -= (uint64_t)n * bin->size;
	c->cached -= (uint64_t)n * bin->size;
	bin->n -= n;
	memmove(bin->e, bin->e + n, bin->n * sizeof(bin->e[0]));
}

void
crpc_arena_flush(struct crpc_arena_cache *c)
{
	crpc_owner_check(&c->owner, "arena cache");
	for (uint32_t cls = 0; cls < c->a->l.h.classes; cls++)
		__crpc_arena_flush_bin(c, cls, c->bin[cls].n);
}

bool
__crpc_arena_at_limit(struct crpc_arena_cache *c, uint64_t size)
{
	crpc_arena_flush(c);
	/* Another process changed a unit's class: more was given back than was held. */
	if ((int64_t)c->held < 0)
		c->held = 0;
	return c->held + size > c->limit;
}

/* ---- from a span with free blocks ---- */

static void
push(struct crpc_arena_cache *c, uint32_t cls, arena_word *word, uint64_t off, uint64_t gen)
{
	struct arena_bin *bin = &c->bin[cls];

	bin->e[bin->n].ref = arena_ref_make(off, gen);
	bin->e[bin->n].word = word;
	bin->n++;
	c->cached += bin->size;
	c->held += bin->size;
}

/*
 * Turn one block of the span whose unit's word is @p head from free to cached. Its generation goes
 * to *gen.
 */
static bool
claim_block(struct crpc_arena_cache *c, uint32_t u, uint64_t head, arena_word *word, uint64_t *gen)
{
	/* A4 pairs with R4: the last use of the block by its last holder; A7 with R7. */
	uint64_t w = arena_peek(word);

	if ((uint32_t)w != WORD_FREE || !arena_same_span(c->a, u, head))
		return false;
	*gen = word_gen(w);
	CRPC_CRASH_POINT("arena.block.1");
	if (!arena_cas(word, &w, word_gen(w) | c->word_cached))
		return false;
	CRPC_CRASH_POINT("arena.block.2");
	return true;
}

/* Claim up to @p want free blocks of span @p u, if it is of that class. Returns how many. */
static uint32_t
claim_from(struct crpc_arena_cache *c, uint32_t cls, uint32_t u, uint32_t want)
{
	const struct crpc_arena *a = c->a;
	const struct arena_class *ci;
	uint64_t head, gen = 0;
	arena_word *word;
	uint32_t i, n = 0;

	/* A3 pairs with R3: a block that is made free after this sets the bit again. */
	crpc_fetch_and_acq_rel(arena_hint(a, cls, u), ~(UINT64_C(1) << u % 64));
	/* A1 pairs with R1. */
	head = crpc_load_acquire(&a->unit[u]);
	ci = arena_span(a, u, head);
	if (ci == NULL || word_arg(head) != cls)
		return 0;
	CRPC_CRASH_POINT("arena.fill.2");
	word = arena_words(a, ci, u);
	for (i = 0; i < ci->blocks && n < want; i++) {
		if (!claim_block(c, u, head, &word[i], &gen))
			continue;
		push(c, cls, &word[i], arena_block_off(a, ci, u, i), gen);
		n++;
	}
	if (i < ci->blocks)
		arena_hint_set(a, cls, u);
	return n;
}

/*
 * Look where the hints point, starting where the last search ended. Gives up after @p misses spans
 * without a free block: each clears its hint, but others may set all of them.
 */
static uint32_t
fill_by_hint(struct crpc_arena_cache *c, uint32_t cls, uint32_t want, uint32_t misses)
{
	const struct crpc_arena *a = c->a;
	struct arena_bin *bin = &c->bin[cls];
	uint32_t u, got, n = 0, k = bin->cursor;
	uint64_t bits;

	for (uint32_t i = 0; i < a->hint_words; i++) {
		bits = crpc_load_relaxed(arena_hint(a, cls, k * 64));
		for (; bits != 0; bits &= bits - 1) {
			u = k * 64 + (uint32_t)__builtin_ctzll(bits);
			if (u >= a->units)
				break;
			got = claim_from(c, cls, u, want - n);
			n += got;
			if (n == want || (got == 0 && misses-- == 0)) {
				bin->cursor = k;
				return n;
			}
		}
		k = k + 1 == a->hint_words ? 0 : k + 1;
	}
	return n;
}

/* ---- cutting ---- */

/* Make units that this member claimed free again. */
static void
release_units(struct crpc_arena_cache *c, uint32_t u, uint32_t n)
{
	uint64_t w;

	for (uint32_t i = 0; i < n; i++) {
		w = crpc_load_relaxed(&c->a->unit[u + i]);
		/* R5: our last use of what stands in the unit. */
		crpc_store_release(&c->a->unit[u + i],
				word_gen(w) | word_make(UNIT_FREE, 0, 0));
	}
}

/* Claim @p n free units from @p u. Returns how many it got; fewer than n: none is kept. */
static uint32_t
claim_units(struct crpc_arena_cache *c, uint32_t u, uint32_t n)
{
	uint32_t i;
	uint64_t w;

	for (i = 0; i < n; i++) {
		w = crpc_load_relaxed(&c->a->unit[u + i]);
		/* A5 pairs with R5. */
		if (word_state(w) != UNIT_FREE ||
				!crpc_cas_acq_rel(&c->a->unit[u + i], &w,
						word_gen(w) | word_make(UNIT_CLAIM, c->id, i)))
			break;
	}
	if (i < n)
		release_units(c, u, i);
	return i;
}

/* Find and claim a run of free units, from where the last search ended. */
static bool
find_units(struct crpc_arena_cache *c, uint32_t n, uint32_t *at)
{
	const struct crpc_arena *a = c->a;
	uint32_t u = c->unit_cursor, seen = 0, run = 0;
	uint32_t got;

	if (n > a->units)
		return false;
	/* Once around, and on to the end of a run that crosses the start. */
	while (seen < a->units + n) {
		if (u == a->units)
			u = run = 0;
		run = word_state(crpc_load_relaxed(&a->unit[u])) == UNIT_FREE ? run + 1 : 0;
		u++;
		seen++;
		if (run < n)
			continue;
		got = claim_units(c, u - n, n);
		if (got == n) {
			*at = u - n;
			c->unit_cursor = u == a->units ? 0 : u;
			return true;
		}
		run = n - got - 1;
	}
	return false;
}

/*
 * Cut claimed units into blocks of class @p cls, the first @p want of them for our cache. Their
 * generations go on from the unit's, which is past all that its blocks ever had.
 */
static void
publish_span(struct crpc_arena_cache *c, uint32_t cls, uint32_t u, uint32_t want)
{
	const struct crpc_arena *a = c->a;
	const struct arena_class *ci = &a->l.cls[cls];
	arena_word *word = arena_words(a, ci, u);
	uint64_t gen = word_gen(crpc_load_relaxed(&a->unit[u])), w;

	/* R7: the claim of the unit, for members that still see words of an earlier span here. */
	for (uint32_t i = 0; i < ci->blocks; i++)
		crpc_store_release(&word[i],
				gen | (i < want ? c->word_cached : WORD_FREE));
	/* R1: the words. */
	crpc_store_release(&a->unit[u], gen | word_make(UNIT_HEAD, 0, cls));
	for (uint32_t i = 1; i < ci->units; i++) {
		w = crpc_load_relaxed(&a->unit[u + i]);
		crpc_store_relaxed(&a->unit[u + i], word_gen(w) | word_make(UNIT_TAIL, 0, i));
	}
	for (uint32_t i = want; i > 0; i--)
		push(c, cls, &word[i - 1], arena_block_off(a, ci, u, i - 1), gen);
	if (want != ci->blocks)
		arena_hint_set(a, cls, u);
}

/* Cut a new span. Returns how many blocks are in the cache now. */
static uint32_t
carve(struct crpc_arena_cache *c, uint32_t cls, uint32_t want)
{
	const struct arena_class *ci = &c->a->l.cls[cls];
	uint32_t u;

	if (!find_units(c, ci->units, &u))
		return 0;
	want = (uint32_t)crpc_min(want, ci->blocks);
	publish_span(c, cls, u, want);
	return want;
}

/* ---- taking apart ---- */

/* Claim all blocks of a span, or none. On success *gen is past all their generations. */
static bool
claim_all(struct crpc_arena_cache *c, const struct arena_class *ci, uint32_t u, uint64_t head,
		uint64_t *gen)
{
	arena_word *word = arena_words(c->a, ci, u);
	uint64_t g = 0, w;
	uint32_t n;

	for (uint32_t i = 0; i < ci->blocks; i++)
		if ((uint32_t)arena_peek(&word[i]) != WORD_FREE)
			return false;
	for (n = 0; n < ci->blocks && claim_block(c, u, head, &word[n], &g); n++)
		if ((int64_t)(g - *gen) >= 0)
			*gen = g + WORD_GEN_ONE;
	if (n == ci->blocks)
		return true;
	for (uint32_t i = 0; i < n; i++) {
		w = crpc_load_relaxed(&word[i]);
		crpc_store_release(&word[i], word_gen(w) | WORD_FREE);
	}
	/* Who searched the span meanwhile cleared its hint. */
	if (n != 0)
		arena_hint_set(c->a, word_arg(head), u);
	return false;
}

static bool
tails_whole(const struct crpc_arena *a, const struct arena_class *ci, uint32_t u)
{
	for (uint32_t i = 1; i < ci->units; i++)
		if ((uint32_t)crpc_load_relaxed(&a->unit[u + i]) != word_make(UNIT_TAIL, 0, i))
			return false;
	return true;
}

/* If all blocks of the span at @p u are free, make its units free. */
static bool
take_apart(struct crpc_arena_cache *c, const struct arena_class *ci, uint32_t u, uint64_t head)
{
	const struct crpc_arena *a = c->a;
	uint64_t gen = word_gen(head), w;

	CRPC_CRASH_POINT("arena.trim.1");
	if (!tails_whole(a, ci, u) || !claim_all(c, ci, u, head, &gen))
		return false;
	for (uint32_t i = 1; i < ci->units; i++) {
		w = crpc_load_relaxed(&a->unit[u + i]);
		crpc_store_relaxed(&a->unit[u + i],
				word_gen(w) | word_make(UNIT_CLAIM, c->id, i));
	}
	crpc_store_release(&a->unit[u], gen | word_make(UNIT_CLAIM, c->id, 0));
	release_units(c, u, ci->units);
	return true;
}

/*
 * Take apart every span of another class that is wholly free, and cut the units again. Returns how
 * many blocks are in the cache now.
 */
static uint32_t
search_all(struct crpc_arena_cache *c, uint32_t cls, uint32_t want)
{
	const struct crpc_arena *a = c->a;
	const struct arena_class *ci;
	uint32_t n;
	uint64_t w;

	crpc_arena_flush(c);
	for (uint32_t u = 0; u < a->units; u += ci == NULL ? 1 : ci->units) {
		/* A1 pairs with R1. */
		w = crpc_load_acquire(&a->unit[u]);
		ci = arena_span(a, u, w);
		if (ci != NULL && word_arg(w) != cls &&
			(crpc_load_relaxed(arena_hint(a, word_arg(w), u)) >> u % 64 & 1) != 0)
			take_apart(c, ci, u, w);
	}
	n = carve(c, cls, want);
	return n != 0 ? n : fill_by_hint(c, cls, want, UINT32_MAX);
}

/* ---- filling ---- */

/* How many blocks of the class the cache should get: at least one. 0 or -EDQUOT. */
static int
how_many(struct crpc_arena_cache *c, const struct arena_bin *bin, uint32_t *want)
{
	uint64_t n = crpc_max(bin->max / 2, 1), room;

	if (c->held + bin->size > c->limit && __crpc_arena_at_limit(c, bin->size))
		return -EDQUOT;
	n = crpc_min(n, (c->limit - c->held) / bin->size);
	room = c->cached < c->cache_bytes ? c->cache_bytes - c->cached : 0;
	n = crpc_min(n, crpc_max(room / bin->size, 1));
	*want = (uint32_t)n;
	return 0;
}

int
__crpc_arena_fill(struct crpc_arena_cache *c, uint32_t cls)
{
	uint32_t want;
	int rc = how_many(c, &c->bin[cls], &want);

	if (rc != 0)
		return rc;
	if (fill_by_hint(c, cls, want, MISSES_MAX) != 0 || carve(c, cls, want) != 0 ||
			search_all(c, cls, want) != 0)
		return 0;
	return -ENOMEM;
}
