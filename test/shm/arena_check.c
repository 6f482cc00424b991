/* SPDX-License-Identifier: BSD-3-Clause */
/* An audit of a whole arena at rest. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "arena_check.h"
#include "crpc_log.h"
#include "shm_arena.h"

struct audit {
	struct crpc_arena *a;
	struct arena_report *r;
};

/* One finding; the first one is said. */
static void
found(struct audit *t, uint32_t u, const char *what, uint64_t expected, uint64_t word)
{
	if (t->r->errors++ == 0)
		crpc_err("%s: arena unit %u: %s; expected %#" PRIx64 ", found word %#" PRIx64,
				crpc_shm_path(t->a->seg), u, what, expected, word);
}

/* A block that a member has. */
static void
audit_held(struct audit *t, uint32_t u, uint64_t w, uint32_t size)
{
	struct arena_report *r = t->r;
	uint32_t to = word_arg(w);

	if (!arena_place_used(t->a, word_owner(w)))
		found(t, u, "a block of a member whose place is free", 0, w);
	if (word_state(w) == BLOCK_TRANSIT ? to == 0 || to > t->a->l.h.max_members : to != 0)
		found(t, u, "a block with a wrong receiver", 0, w);
	if (word_state(w) == BLOCK_CACHED) {
		r->blocks_cached++;
		r->bytes_cached += size;
		return;
	}
	if (word_state(w) == BLOCK_TRANSIT)
		r->blocks_transit++;
	else
		r->blocks_allocated++;
	r->bytes_allocated += size;
}

static void
audit_blocks(struct audit *t, const struct arena_class *ci, uint32_t u)
{
	const struct crpc_arena *a = t->a;
	uint32_t cls = (uint32_t)(ci - a->l.cls);
	arena_word *word = arena_words(a, ci, u);
	uint64_t w, bits;
	bool any = false;

	for (uint32_t i = 0; i < ci->blocks; i++) {
		w = arena_peek(&word[i]);
		switch (word_state(w)) {
		case BLOCK_FREE:
			if ((uint32_t)w != WORD_FREE)
				found(t, u, "a free block with an owner", WORD_FREE, w);
			any = true;
			break;
		case BLOCK_CACHED:
		case BLOCK_ALLOCATED:
		case BLOCK_TRANSIT:
			audit_held(t, u, w, ci->size);
			break;
		default:
			found(t, u, "a block in no state", WORD_FREE, w);
		}
	}
	bits = crpc_load_relaxed(arena_hint(a, cls, u));
	if (any && (bits >> u % 64 & 1) == 0)
		t->r->unhinted++;
}

/* A span: its tails follow its head. Returns how many units it has. */
static uint32_t
audit_span(struct audit *t, const struct arena_class *ci, uint32_t u)
{
	uint64_t w;

	for (uint32_t i = 1; i < ci->units; i++) {
		w = crpc_load_acquire(&t->a->unit[u + i]); /* A1 pairs with R1. */
		if (word_state(w) == UNIT_CLAIM && word_arg(w) == i &&
			arena_place_used(t->a, word_owner(w)))
			t->r->units_claimed++;
		else if ((uint32_t)w != word_make(UNIT_TAIL, 0, i))
			found(t, u + i, "not the tail of its span", word_make(UNIT_TAIL, 0, i), w);
	}
	audit_blocks(t, ci, u);
	return ci->units;
}

int
arena_check(struct crpc_arena *a, struct arena_report *report)
{
	struct arena_report mine;
	struct audit t = {.a = a, .r = report == NULL ? &mine : report};
	const struct arena_class *ci;
	uint64_t w;

	memset(t.r, 0, sizeof(*t.r));
	t.r->units = a->units;
	for (uint32_t id = 1; id <= a->l.h.max_members; id++)
		t.r->members += arena_place_used(a, id);
	for (uint32_t u = 0; u < a->units;) {
		/* A1 pairs with R1. */
		w = crpc_load_acquire(&a->unit[u]);
		ci = arena_span(a, u, w);
		if (ci != NULL) {
			u += audit_span(&t, ci, u);
			continue;
		}
		if (word_state(w) == UNIT_CLAIM && arena_place_used(a, word_owner(w)))
			t.r->units_claimed++;
		else if ((uint32_t)w != word_make(UNIT_FREE, 0, 0))
			found(&t, u, "neither free nor of a span", word_make(UNIT_FREE, 0, 0), w);
		u++;
	}
	return t.r->errors == 0 ? 0 : -EPROTO;
}
