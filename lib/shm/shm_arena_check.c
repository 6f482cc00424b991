/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking at a whole arena: an audit at rest, what a member holds, a text for people. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "crpc_log.h"
#include "shm_arena.h"

/* ---- audit ---- */

struct audit {
	struct crpc_arena *a;
	struct crpc_arena_report *r;
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
	struct crpc_arena_report *r = t->r;
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
			t->r->blocks_free++;
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

	t->r->spans++;
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
crpc_arena_check(struct crpc_arena *a, struct crpc_arena_report *report)
{
	struct crpc_arena_report mine;
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
		if ((uint32_t)w == word_make(UNIT_FREE, 0, 0))
			t.r->units_free++;
		else if (word_state(w) == UNIT_CLAIM && arena_place_used(a, word_owner(w)))
			t.r->units_claimed++;
		else
			found(&t, u, "neither free nor of a span", word_make(UNIT_FREE, 0, 0), w);
		u++;
	}
	return t.r->errors == 0 ? 0 : -EPROTO;
}

/* ---- counting ---- */

/* Called with a copy of a block's word. */
typedef void (*block_fn)(void *arg, const struct arena_class *ci, uint64_t w);

static void
each_block(const struct crpc_arena *a, block_fn fn, void *arg)
{
	const struct arena_class *ci;

	for (uint32_t u = 0; u < a->units; u += ci == NULL ? 1 : ci->units) {
		/* A1 pairs with R1. */
		ci = arena_span(a, u, crpc_load_acquire(&a->unit[u]));
		for (uint32_t i = 0; ci != NULL && i < ci->blocks; i++)
			fn(arg, ci, arena_peek(&arena_words(a, ci, u)[i]));
	}
}

/* Bytes of one member. */
struct member_count {
	uint32_t member;
	struct crpc_arena_usage *u;
};

static void
count_member(void *arg, const struct arena_class *ci, uint64_t w)
{
	const struct member_count *n = arg;
	uint32_t state = word_state(w), size = ci->size;

	if (word_owner(w) == n->member) {
		n->u->cached += state == BLOCK_CACHED ? size : 0;
		n->u->allocated += state == BLOCK_ALLOCATED ? size : 0;
		n->u->given += state == BLOCK_TRANSIT ? size : 0;
	}
	n->u->to_it += state == BLOCK_TRANSIT && word_arg(w) == n->member ? size : 0;
}

int
crpc_arena_usage(struct crpc_arena *a, uint32_t member, struct crpc_arena_usage *usage)
{
	struct member_count n = {.member = member, .u = usage};

	if (member - 1 >= a->l.h.max_members)
		return -EINVAL;
	memset(usage, 0, sizeof(*usage));
	each_block(a, count_member, &n);
	return 0;
}

/* Blocks of each class, by enum arena_block_state; 0: in none. */
struct class_count {
	const struct arena_class *first;
	uint64_t state[ARENA_RAW_MAX][BLOCK_TRANSIT + 1];
};

static void
count_class(void *arg, const struct arena_class *ci, uint64_t w)
{
	struct class_count *n = arg;
	uint32_t state = word_state(w);

	n->state[ci - n->first][state <= BLOCK_TRANSIT ? state : 0]++;
}

/* ---- text ---- */

static void
dump_member(struct crpc_arena *a, uint32_t id, FILE *out)
{
	struct crpc_arena_usage u = {0};
	int held;

	if (!arena_place_used(a, id))
		return;
	held = crpc_shm_lock_held(a->seg, a->lock_base + id);
	crpc_arena_usage(a, id, &u);
	fprintf(out,
			"  member %u pid %u %s: allocated %" PRIu64 " cached %" PRIu64
			" given %" PRIu64 " to it %" PRIu64 "\n",
			id, crpc_load_relaxed(&a->member[id].pid),
			held == 1 ? "lives" : "is dead", u.allocated, u.cached, u.given, u.to_it);
}

void
crpc_arena_dump(struct crpc_arena *a, FILE *out)
{
	struct class_count n = {.first = a->l.cls};
	const struct arena_header *h = &a->l.h;
	struct crpc_arena_report r;
	uint64_t *s, blocks;
	int rc = crpc_arena_check(a, &r);

	fprintf(out,
		"arena at %" PRIu64 " of %s: %" PRIu64 " bytes, %u units, %u free, %u spans, "
		"blocks to %" PRIu64 ", %u of %u members%s\n",
		a->off, crpc_shm_path(a->seg), h->len, r.units, r.units_free, r.spans, h->max_block,
		r.members, h->max_members, rc == 0 ? "" : ", in use or damaged");
	each_block(a, count_class, &n);
	for (uint32_t i = 0; i < h->classes; i++) {
		s = n.state[i];
		blocks = s[0] + s[BLOCK_FREE] + s[BLOCK_CACHED] + s[BLOCK_ALLOCATED] +
			s[BLOCK_TRANSIT];
		if (blocks != 0)
			fprintf(out,
				"  class %u: %u bytes, spans %" PRIu64 ", free %" PRIu64
				" cached %" PRIu64 " allocated %" PRIu64 " in transit %" PRIu64
				"\n",
				i, a->l.cls[i].size, blocks / a->l.cls[i].blocks, s[BLOCK_FREE],
				s[BLOCK_CACHED], s[BLOCK_ALLOCATED], s[BLOCK_TRANSIT]);
	}
	for (uint32_t i = 1; i <= h->max_members; i++)
		dump_member(a, i, out);
}
