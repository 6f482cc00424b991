/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The datapath of an arena: a word per block changes hands. None of it calls the kernel or logs.
 *
 * A word in this member's name is stored to by this thread alone, unless a process breaks rules,
 * but for a block in transit, which its giver, its receiver and (once one is dead) a reclaimer
 * change by compare-and-swap. So alloc, free and give are a load, a comparison and a store.
 *
 * Crash points are numbered in program order. A point before and one after each store that another
 * process can see is all there is to be killed at.
 */
#include <errno.h>

#include "crpc_log.h"
#include "shm_arena.h"

/* ---- refs ---- */

/* Where the block is whose place a ref names: in a span, at a block's start. 0 or -EINVAL. */
static inline int
locate(const struct crpc_arena *a, uint64_t ref, struct arena_place *at)
{
	uint64_t d = arena_ref_off(ref) - a->data_off, w;
	const struct arena_class *ci;
	uint32_t u, x, idx;

	if (crpc_unlikely(d >= a->data_len))
		return -EINVAL;
	u = (uint32_t)(d >> ARENA_UNIT_LOG2);
	/* A1 pairs with R1: the span's words are set. */
	w = crpc_load_acquire(&a->unit[u]);
	ci = arena_span(a, u, w);
	if (crpc_unlikely(ci == NULL))
		return -EINVAL;
	/* Below the first block x is huge, and no index comes out. */
	x = (((uint32_t)d & (ARENA_UNIT - 1)) - ci->first) >> ARENA_GRAIN_LOG2;
	idx = (uint32_t)((uint64_t)x * ci->recip >> 20);
	if (crpc_unlikely(idx >= ci->blocks || idx * ci->grains != x))
		return -EINVAL;
	at->word = arena_words(a, ci, u) + idx;
	at->head = w;
	at->cls = word_arg(w);
	at->unit = u;
	return 0;
}

/* The block's word; 0, which no block has, if its unit was cut again meanwhile. */
static inline uint64_t
look(const struct crpc_arena *a, const struct arena_place *at)
{
	/* A2 pairs with R2: what stands in a block that was given. A7 with R7. */
	uint64_t w = arena_peek(at->word);

	return arena_same_span(a, at->unit, at->head) ? w : 0;
}

/* Why a word is not what the caller of free or give needs. */
static crpc_noinline int
why_not(uint64_t w, uint64_t ref)
{
	if (word_gen(w) != word_gen(ref))
		return -ESTALE;
	return word_state(w) == BLOCK_ALLOCATED || word_state(w) == BLOCK_TRANSIT ? -EPERM
										  : -ESTALE;
}

/* The block that this member holds under that ref. 0, or why not. */
static inline int
locate_held(const struct crpc_arena_cache *c, uint64_t ref, struct arena_place *at)
{
	int rc = locate(c->a, ref, at);
	uint64_t w;

	if (crpc_unlikely(rc != 0))
		return rc;
	w = look(c->a, at);
	if (crpc_likely(w == (word_gen(ref) | c->word_alloc)))
		return 0;
	return why_not(w, ref);
}

/* ---- alloc and free ---- */

static crpc_noinline void *
refuse(const struct crpc_arena_cache *c, uint64_t size)
{
	errno = size == 0 ? EINVAL : EMSGSIZE;
	return NULL;
}

/* A block from a bin that has some; NULL if its word was damaged: the block is dropped. */
static inline void *
take_from_bin(struct crpc_arena_cache *c, struct arena_bin *bin, uint64_t *ref)
{
	const struct arena_entry *e = &bin->e[--bin->n];
	uint64_t gen = word_gen(e->ref);

	c->cached -= bin->size;
	if (crpc_unlikely(crpc_load_relaxed(e->word) != (gen | c->word_cached))) {
		c->damaged++;
		c->held -= bin->size;
		return NULL;
	}
	crpc_store_relaxed(e->word, gen | c->word_alloc);
	*ref = e->ref;
	return c->base + arena_ref_off(e->ref);
}

/* The rare part: the bin is empty, or its last block was damaged. */
static crpc_noinline void *
alloc_fill(struct crpc_arena_cache *c, uint32_t cls, uint64_t *ref)
{
	struct arena_bin *bin = &c->bin[cls];
	void *p = NULL;
	int rc = 0;

	for (uint32_t tries = 0; p == NULL && rc == 0 && tries < 2; tries++) {
		if (bin->n == 0)
			rc = __crpc_arena_fill(c, cls);
		while (p == NULL && bin->n != 0)
			p = take_from_bin(c, bin, ref);
	}
	if (p == NULL)
		errno = rc != 0 ? -rc : ENOMEM;
	return p;
}

void *
crpc_arena_alloc(struct crpc_arena_cache *c, uint64_t size, uint64_t *ref)
{
	const struct crpc_arena *a = c->a;
	uint32_t cls;
	void *p;

	crpc_owner_check(&c->owner, "arena cache");
	if (crpc_unlikely(size - 1 >= a->max_block))
		return refuse(c, size);
	cls = a->l.raw_class[arena_raw_of(size)];
	if (crpc_likely(c->bin[cls].n != 0)) {
		p = take_from_bin(c, &c->bin[cls], ref);
		if (crpc_likely(p != NULL))
			return p;
	}
	return alloc_fill(c, cls, ref);
}

/* The rare part: the bin is full, or the cache, or blocks of this size are not cached. */
static crpc_noinline void
free_full(struct crpc_arena_cache *c, uint32_t cls, uint64_t ref, arena_word *word)
{
	const struct arena_entry e = {.ref = ref, .word = word};
	struct arena_bin *bin = &c->bin[cls];

	if (bin->max != 0) {
		__crpc_arena_flush_bin(c, cls, (bin->n + 1) / 2);
		if (c->cached + bin->size > c->cache_bytes)
			crpc_arena_flush(c);
		bin->e[bin->n++] = e;
		c->cached += bin->size;
		return;
	}
	__crpc_arena_put(c, cls, &e);
}

int
crpc_arena_free(struct crpc_arena_cache *c, uint64_t ref)
{
	struct arena_place at;
	struct arena_bin *bin;
	uint64_t bytes;
	int rc;

	crpc_owner_check(&c->owner, "arena cache");
	rc = locate_held(c, ref, &at);
	if (crpc_unlikely(rc != 0))
		return rc;
	/* From here on the caller's ref is stale. */
	ref += WORD_GEN_ONE;
	crpc_store_relaxed(at.word, word_gen(ref) | c->word_cached);
	bin = &c->bin[at.cls];
	bytes = c->cached + bin->size;
	if (crpc_unlikely(bin->n >= bin->max || bytes > c->cache_bytes)) {
		free_full(c, at.cls, ref, at.word);
		return 0;
	}
	/* Field by field: a copy of both would wait for the two stores that made it. */
	bin->e[bin->n].ref = ref;
	bin->e[bin->n].word = at.word;
	bin->n++;
	c->cached = bytes;
	return 0;
}

/* ---- from hand to hand ---- */

int
crpc_arena_give(struct crpc_arena_cache *c, uint64_t ref, uint32_t to)
{
	struct arena_place at;
	int rc;

	crpc_owner_check(&c->owner, "arena cache");
	if (crpc_unlikely(to - 1 >= c->a->l.h.max_members))
		return -EINVAL;
	rc = locate_held(c, ref, &at);
	if (crpc_unlikely(rc != 0))
		return rc;
	/* R2: what stands in the block. */
	crpc_store_release(at.word, word_gen(ref) | word_make(BLOCK_TRANSIT, c->id, to));
	c->held -= c->bin[at.cls].size;
	return 0;
}

/* Whether the word says that the block is in transit between these two; 0: any. 0, or why not. */
static int
is_between(uint64_t w, uint64_t ref, uint32_t from, uint32_t to)
{
	if (word_gen(w) != word_gen(ref) || word_state(w) != BLOCK_TRANSIT)
		return -ESTALE;
	if (to != 0 && word_arg(w) != to)
		return -EPERM;
	/* A giver that left in good order has made the receiver the owner. */
	return from == 0 || word_owner(w) == from || word_owner(w) == to ? 0 : -EPERM;
}

static int
make_room(struct crpc_arena_cache *c, uint64_t size)
{
	if (crpc_likely(c->held + size <= c->limit))
		return 0;
	return __crpc_arena_at_limit(c, size) ? -EDQUOT : 0;
}

/* Take a block in transit from `from` to `to`, one of which is this member. 0, or why not. */
static inline int
take_between(struct crpc_arena_cache *c, uint64_t ref, uint32_t from, uint32_t to, bool limited,
	struct arena_place *at)
{
	int rc = locate(c->a, ref, at);
	uint64_t w;

	crpc_owner_check(&c->owner, "arena cache");
	if (crpc_unlikely(rc != 0))
		return rc;
	/* Once more if its giver left meanwhile, which changes the owner and nothing else. */
	for (uint32_t tries = 0; tries < 2; tries++) {
		w = look(c->a, at);
		rc = is_between(w, ref, from, to);
		if (rc == 0 && to != c->id && word_owner(w) != c->id)
			rc = -EPERM;
		if (rc == 0 && limited)
			rc = make_room(c, c->bin[at->cls].size);
		if (rc != 0)
			return rc;
		CRPC_CRASH_POINT("arena.take.1");
		/* A2 pairs with R2. */
		if (arena_cas(at->word, &w, word_gen(w) | c->word_alloc)) {
			c->held += c->bin[at->cls].size;
			return 0;
		}
	}
	return -ESTALE;
}

int
crpc_arena_take(struct crpc_arena_cache *c, uint64_t ref, uint32_t from, void **ptr,
		uint64_t *size)
{
	struct arena_place at;
	int rc = take_between(c, ref, from, c->id, true, &at);

	if (crpc_unlikely(rc != 0))
		return rc;
	if (ptr != NULL)
		*ptr = c->base + arena_ref_off(ref);
	if (size != NULL)
		*size = c->bin[at.cls].size;
	return 0;
}

int
crpc_arena_revoke(struct crpc_arena_cache *c, uint64_t ref)
{
	struct arena_place at;

	return take_between(c, ref, c->id, 0, false, &at);
}

int
crpc_arena_drop(struct crpc_arena_cache *c, uint64_t ref, uint32_t from, uint32_t to)
{
	struct arena_place at;
	int rc = to == 0 ? -EPERM : take_between(c, ref, from, to, false, &at);

	if (rc == 0)
		rc = crpc_arena_free(c, ref);
	if (c->held > c->limit)
		crpc_arena_flush(c);
	return rc;
}

/* ---- looking ---- */

void *
crpc_arena_view(const struct crpc_arena *a, uint64_t ref, uint64_t *size)
{
	struct arena_place at;
	uint32_t state;
	uint64_t w;

	if (locate(a, ref, &at) != 0)
		return NULL;
	w = look(a, &at);
	state = word_state(w);
	if (word_gen(w) != word_gen(ref) || (state != BLOCK_ALLOCATED && state != BLOCK_TRANSIT))
		return NULL;
	if (size != NULL)
		*size = a->l.cls[at.cls].size;
	return a->base + arena_ref_off(ref);
}

void
crpc_arena_hand_over(struct crpc_arena_cache *c)
{
	c->owner = (struct crpc_owner){NULL};
}

uint32_t
crpc_arena_member(const struct crpc_arena_cache *c)
{
	return c->id;
}

struct crpc_arena *
crpc_arena_of(const struct crpc_arena_cache *c)
{
	return c->a;
}

void
crpc_arena_cache_stats(const struct crpc_arena_cache *c, struct crpc_arena_cache_stats *st)
{
	*st = (struct crpc_arena_cache_stats){
		.held = c->held, .cached = c->cached, .damaged = c->damaged};
}
