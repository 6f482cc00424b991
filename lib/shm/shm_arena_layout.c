/* SPDX-License-Identifier: BSD-3-Clause */
/* Size classes, where the parts of an arena lie, and its header. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "shm_arena.h"
#include "shm_private.h"

#define MEMBERS_DEFAULT   64u
#define BLOCK_DEFAULT     (UINT64_C(64) << 20)
#define RECIP_LOG2        20u
#define LOCK_BASE         (UINT64_C(1) << 31)
#define WORD_BYTES        sizeof(arena_word)
#define OUTSIDE_WORD_LOG2 7u

_Static_assert(ARENA_WORDS * sizeof(arena_word) == 1u << OUTSIDE_WORD_LOG2, "words of a unit");

/* ---- classes ---- */

static uint64_t
raw_size(uint32_t raw)
{
	uint64_t grains = raw < 4 ? raw + 1 : (uint64_t)(5 + raw % 4) << (raw / 4 - 1);

	return grains << ARENA_GRAIN_LOG2;
}

/* How one unit is cut into blocks of this size, with their words or without. */
static void
cut_unit(struct arena_class *ci)
{
	uint32_t word = ci->size < ARENA_OUTSIDE ? WORD_BYTES : 0, first = 0;

	ci->units = 1;
	ci->blocks = ARENA_UNIT / (ci->size + word);
	if (word != 0) {
		first = (uint32_t)crpc_align_up(ci->blocks * word, 1u << ARENA_GRAIN_LOG2);
		while (first + ci->blocks * ci->size > ARENA_UNIT)
			ci->blocks--;
	}
	ci->first = first;
	ci->grains = ci->size >> ARENA_GRAIN_LOG2;
	ci->recip = ((1u << RECIP_LOG2) + ci->grains - 1) / ci->grains;
}

static void
class_make(struct arena_class *ci, uint32_t raw)
{
	uint64_t size = raw_size(raw);

	memset(ci, 0, sizeof(*ci));
	ci->size = (uint32_t)size;
	if (size <= ARENA_CUT_MAX) {
		cut_unit(ci);
		return;
	}
	ci->units = (uint32_t)(crpc_align_up(size, ARENA_UNIT) >> ARENA_UNIT_LOG2);
	ci->size = ci->units << ARENA_UNIT_LOG2;
	ci->blocks = 1;
}

/* Sizes of which equally many fit into equally many units are one class: the largest of them. */
static void
classes_make(struct arena_layout *l)
{
	struct arena_class next;
	uint32_t n = 0;

	l->raws = arena_raw_of(l->h.max_block) + 1;
	for (uint32_t raw = 0; raw < l->raws; raw++) {
		class_make(&next, raw);
		if (n != 0 && next.units == l->cls[n - 1].units &&
				next.blocks == l->cls[n - 1].blocks)
			n--;
		l->cls[n] = next;
		l->raw_class[raw] = (uint8_t)n;
		n++;
	}
	l->h.classes = n;
	l->h.max_block = l->cls[n - 1].size;
}

/* ---- parts ---- */

/* Offsets for a number of units; h.data_off is where they would start. */
static void
place_parts(struct arena_header *h, uint32_t units)
{
	h->units = units;
	h->member_off = sizeof(*h);
	h->unit_off = h->member_off + (h->max_members + UINT64_C(1)) * sizeof(struct arena_member);
	h->word_off = crpc_align_up(h->unit_off + units * WORD_BYTES, CRPC_CACHE_GUARD);
	h->hint_off = h->word_off + ((uint64_t)units << OUTSIDE_WORD_LOG2);
	h->hint_stride = crpc_align_up((units + 7) / 8, CRPC_CACHE_LINE);
	h->data_off = crpc_align_up(h->hint_off + h->classes * h->hint_stride, ARENA_ALIGN);
}

static uint64_t
units_bytes(uint32_t units)
{
	return (uint64_t)units << ARENA_UNIT_LOG2;
}

/* The three numbers that all others follow from. 0 or -EINVAL. */
static int
check_numbers(const struct arena_header *h, const char *path)
{
	if (crpc_outside(path, "number of the arena's members", h->max_members, 1,
		    CRPC_ARENA_MEMBERS_MAX) ||
		crpc_outside(path, "size of the arena's largest block", h->max_block, 1,
			CRPC_ARENA_BLOCK_MAX) ||
		crpc_outside(path, "length of the arena", h->len, 0, ARENA_LEN_MAX))
		return -EINVAL;
	return 0;
}

/* Where the words of each class's blocks are. */
static void
place_words(struct arena_layout *l)
{
	for (struct arena_class *ci = l->cls; ci < l->cls + l->h.classes; ci++) {
		bool outside = ci->size >= ARENA_OUTSIDE;

		ci->word_base = outside ? l->h.word_off : l->h.data_off;
		ci->word_log2 = outside ? OUTSIDE_WORD_LOG2 : ARENA_UNIT_LOG2;
	}
}

/* Compute the layout from h.len, h.max_members and h.max_block. 0, or -EINVAL or -ENOSPC, said. */
static int
layout_make(struct arena_layout *l, const char *path)
{
	struct arena_header *h = &l->h;
	uint32_t units, want;
	int rc = check_numbers(h, path);

	if (rc != 0)
		return rc;
	classes_make(l);
	units = (uint32_t)(h->len >> ARENA_UNIT_LOG2);
	place_parts(h, units);
	/* What the parts take is well below 1 % of a large arena, so this ends soon. */
	while (units > 0 && h->data_off + units_bytes(units) > h->len)
		place_parts(h, --units);
	want = l->cls[h->classes - 1].units;
	if (units < want) {
		place_parts(h, want);
		return crpc_fail(-ENOSPC,
			"%s: arena of %" PRIu64 " bytes; expected at least %" PRIu64
			" for one block of %" PRIu64 " bytes and %u members",
			path, h->len, h->data_off + units_bytes(want), h->max_block,
			h->max_members);
	}
	/* What is left behind the last whole unit is not used. */
	h->len = h->data_off + units_bytes(units);
	place_words(l);
	return 0;
}

/* A new layout; the default of the largest block is for that many bytes of data. */
static struct arena_layout
layout_new(uint64_t len, const struct crpc_arena_conf *conf, uint64_t data)
{
	struct arena_layout l = {.h = {.version = ARENA_VERSION,
					 .header_size = sizeof(l.h),
					 .unit_size = ARENA_UNIT,
					 .len = len,
					 .max_members = MEMBERS_DEFAULT}};

	if (conf != NULL && conf->max_members != 0)
		l.h.max_members = conf->max_members;
	if (conf != NULL)
		l.h.max_block = conf->max_block;
	if (l.h.max_block != 0)
		return l;
	/* The largest power of two that the data have room for several of. */
	l.h.max_block = BLOCK_DEFAULT;
	while (l.h.max_block > ARENA_UNIT && l.h.max_block > data / 4)
		l.h.max_block /= 2;
	return l;
}

uint64_t
crpc_arena_size(const struct crpc_arena_conf *conf, uint64_t data_bytes)
{
	static const char what[] = "size of an arena";
	/* The default of the whole length, which is less than twice this. */
	struct arena_layout l = layout_new(ARENA_LEN_MAX, conf, 2 * data_bytes);
	uint64_t units;

	if (crpc_outside(what, "bytes of data", data_bytes, 1, ARENA_LEN_MAX / 2) ||
		check_numbers(&l.h, what) != 0)
		return 0;
	classes_make(&l);
	units = crpc_align_up(data_bytes, ARENA_UNIT) >> ARENA_UNIT_LOG2;
	units = crpc_max(units, l.cls[l.h.classes - 1].units);
	place_parts(&l.h, (uint32_t)units);
	return l.h.data_off + units_bytes((uint32_t)units);
}

/* ---- header ---- */

static int
check_off(const struct crpc_shm *seg, uint64_t off)
{
	if (off % ARENA_ALIGN == 0 && off >= sizeof(struct crpc_shm_header) &&
			off < ARENA_OFF_MAX && crpc_shm_ptr(seg, off, ARENA_ALIGN) != NULL)
		return 0;
	return crpc_fail(-EINVAL,
		"%s: arena at byte %" PRIu64 "; expected a multiple of %u within the "
		"segment and below %" PRIu64,
		crpc_shm_path(seg), off, ARENA_ALIGN, ARENA_OFF_MAX);
}

/* Every unit is free; everything else is zero: no member, no hint. */
static void
write_parts(uint8_t *base, const struct arena_layout *l)
{
	arena_word *unit = (arena_word *)(void *)(base + l->h.unit_off);

	memset(base, 0, l->h.data_off);
	for (uint32_t u = 0; u < l->h.units; u++)
		crpc_store_relaxed(&unit[u], word_make(UNIT_FREE, 0, 0));
}

int
crpc_arena_format(struct crpc_shm *seg, uint64_t off, uint64_t len,
		const struct crpc_arena_conf *conf)
{
	struct arena_layout l = layout_new(len, conf, len);
	uint64_t size = crpc_shm_size(seg);
	struct arena_header *to;
	uint8_t *base;
	int rc = check_off(seg, off);

	if (rc != 0)
		return rc;
	if (crpc_outside(crpc_shm_path(seg), "length of the arena", len, 0, size - off))
		return -EINVAL;
	rc = layout_make(&l, crpc_shm_path(seg));
	if (rc != 0)
		return rc;
	base = crpc_shm_ptr(seg, off, len);
	write_parts(base, &l);
	to = (struct arena_header *)(void *)base;
	*to = l.h;
	/* R0: the arena is whole. */
	crpc_store_release(&to->magic, ARENA_MAGIC);
	return 0;
}

/* Copy the header once, and compare it with what its three numbers give. */
static int
header_read(const struct crpc_shm *seg, const uint8_t *base, uint64_t off, struct arena_layout *l)
{
	const struct arena_header *from = (const struct arena_header *)(const void *)base;
	const char *path = crpc_shm_path(seg);
	struct crpc_arena_conf conf;
	struct arena_header got;
	/* A0 pairs with R0. */
	uint64_t magic = crpc_load_acquire(&from->magic);

	memcpy(&got, (const void *)from, sizeof(got));
	if (__crpc_shm_wrong(path, "arena's magic", ARENA_MAGIC, magic) ||
		__crpc_shm_wrong(path, "arena's version", ARENA_VERSION, got.version) ||
		crpc_outside(path, "length of the arena", got.len, 0, crpc_shm_size(seg) - off))
		return -EPROTO;
	conf = (struct crpc_arena_conf){got.max_members, got.max_block};
	*l = layout_new(got.len, &conf, got.len);
	crpc_store_relaxed(&l->h.magic, ARENA_MAGIC);
	if (layout_make(l, path) != 0)
		return -EPROTO;
	crpc_store_relaxed(&got.magic, ARENA_MAGIC);
	if (memcmp(&got, &l->h, sizeof(got)) == 0)
		return 0;
	return crpc_fail(-EPROTO,
		"%s: arena's header (%u units, data at %" PRIu64
		") does not follow from its length; expected %u units, data at %" PRIu64,
		path, got.units, got.data_off, l->h.units, l->h.data_off);
}

static void
point_to_parts(struct crpc_arena *a)
{
	const struct arena_header *h = &a->l.h;

	a->unit = (arena_word *)(void *)(a->base + h->unit_off);
	a->member = (struct arena_member *)(void *)(a->base + h->member_off);
	a->data_off = h->data_off;
	a->data_len = units_bytes(h->units);
	a->max_block = h->max_block;
	a->units = h->units;
	a->hint_words = (h->units + 63) / 64;
	/* No two places share 64 bytes of the segment, so no two share a number. */
	a->lock_base = (uint32_t)(LOCK_BASE +
			(a->off + h->member_off) / sizeof(struct arena_member));
}

struct crpc_arena *
crpc_arena_attach(struct crpc_shm *seg, uint64_t off)
{
	struct crpc_arena *a;
	int rc = check_off(seg, off);

	if (rc != 0)
		goto err;
	a = calloc(1, sizeof(*a));
	rc = -ENOMEM;
	if (a == NULL)
		goto err;
	a->off = off;
	a->base = crpc_shm_ptr(seg, off, ARENA_ALIGN);
	rc = header_read(seg, a->base, off, &a->l);
	if (rc != 0)
		goto err_free;
	point_to_parts(a);
	a->pass.lock = calloc(a->l.h.max_members + 1, sizeof(struct crpc_shm_lock *));
	rc = -ENOMEM;
	if (a->pass.lock == NULL)
		goto err_free;
	rc = -pthread_mutex_init(&a->mutex, NULL);
	if (rc != 0)
		goto err_locks;
	a->seg = crpc_shm_ref(seg);
	return a;

err_locks:
	free(a->pass.lock);
err_free:
	free(a);
err:
	return crpc_null(rc);
}

void
crpc_arena_detach(struct crpc_arena *a)
{
	if (a == NULL)
		return;
	__crpc_arena_pass_drop(a);
	pthread_mutex_destroy(&a->mutex);
	free(a->pass.lock);
	crpc_shm_detach(a->seg);
	free(a);
}

uint64_t
crpc_arena_block_size(const struct crpc_arena *a, uint64_t size)
{
	if (size - 1 >= a->max_block)
		return 0;
	return a->l.cls[a->l.raw_class[arena_raw_of(size)]].size;
}
