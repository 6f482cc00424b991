/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup and inspection: everything of the rings that is not on a datapath. */
#include <errno.h>
#include <inttypes.h>

#include "crpc_log.h"
#include "crpc_spsc.h"
#include "crpc_spsc_block.h"
#include "crpc_spsc_duplex.h"
#include "spsc_private.h"

static const char *const variant_names[CRPC_SPSC_LAYOUTS] = {
	[CRPC_SPSC_LAMPORT] = "lamport",
	[CRPC_SPSC_FASTFORWARD] = "fastforward",
	[CRPC_SPSC_FASTFORWARD_ALIGNED] = "fastforward_aligned",
	[CRPC_SPSC_ONESIDED] = "onesided",
	[CRPC_SPSC_ONESIDED_ALIGNED] = "onesided_aligned",
	[CRPC_SPSC_DUPLEX] = "duplex",
	[CRPC_SPSC_DUPLEX_LONE] = "duplex_lone",
};

const char *
crpc_spsc_variant_name(enum crpc_spsc_variant variant)
{
	return (unsigned int)variant < CRPC_SPSC_LAYOUTS ? variant_names[variant] : "?";
}

static bool
is_fastforward(uint32_t variant)
{
	return variant == CRPC_SPSC_FASTFORWARD || variant == CRPC_SPSC_FASTFORWARD_ALIGNED;
}

/* Messages per flag; 0 for variants that have none. */
static uint32_t
per_of(uint32_t variant)
{
	return is_fastforward(variant) || crpc_spsc_is_onesided(variant) ? crpc_spsc_per(variant)
									 : 0;
}

/* Blocks for depth messages wherever the oldest lies in its block: see crpc_spsc_block.h. */
static uint32_t
blocks_of(uint32_t depth, uint32_t per)
{
	return (depth + per - 1) / per + 1;
}

static int
attr_check(const struct crpc_spsc_attr *a)
{
	if ((unsigned int)a->variant >= CRPC_SPSC_LAYOUTS)
		return crpc_fail(-EINVAL, "ring variant %u is unknown: 0 to %u exist",
			(unsigned int)a->variant, CRPC_SPSC_LAYOUTS - 1);
	if (!crpc_is_pow2(a->depth) || a->depth < CRPC_SPSC_DEPTH_MIN ||
		a->depth > CRPC_SPSC_DEPTH_MAX)
		return crpc_fail(-EINVAL, "ring depth %u is not a power of two from %u to %u",
			a->depth, CRPC_SPSC_DEPTH_MIN, CRPC_SPSC_DEPTH_MAX);
	if (a->esize < CRPC_SPSC_ESIZE_MIN || a->esize > CRPC_SPSC_ESIZE_MAX || a->esize % 8 != 0)
		return crpc_fail(-EINVAL,
			"message size %u is not a multiple of 8 from %u to %u bytes", a->esize,
			CRPC_SPSC_ESIZE_MIN, CRPC_SPSC_ESIZE_MAX);
	if (a->lazy > a->depth)
		return crpc_fail(-EINVAL, "lazy %u is above the ring depth %u", a->lazy, a->depth);
	if (a->caller_credit && !crpc_spsc_is_onesided(a->variant))
		return crpc_fail(-EINVAL,
			"%s rings give room back by themselves: caller credit is for onesided",
			crpc_spsc_variant_name(a->variant));
	return 0;
}

static size_t
data_len(const struct crpc_spsc_attr *a)
{
	uint32_t per = per_of(a->variant);

	if (a->variant == CRPC_SPSC_DUPLEX_LONE)
		return (size_t)a->depth * crpc_spsc_lone_stride(a->esize);
	if (per == 0)
		return (size_t)a->depth * a->esize;
	return (size_t)blocks_of(a->depth, per) * crpc_spsc_block_len(a->esize, per);
}

ssize_t
crpc_spsc_memsize(const struct crpc_spsc_attr *attr)
{
	if (attr_check(attr) != 0)
		return -EINVAL;
	return (ssize_t)crpc_align_up(CRPC_SPSC_DATA_OFFSET + data_len(attr), CRPC_CACHE_GUARD);
}

int
crpc_spsc_init(void *mem, size_t len, const struct crpc_spsc_attr *attr)
{
	ssize_t need = crpc_spsc_memsize(attr);
	uint32_t per = per_of(attr->variant);
	struct crpc_spsc_hdr *h = mem;
	char *block = (char *)mem + CRPC_SPSC_DATA_OFFSET;
	int rc;

	if (need < 0)
		return (int)need;
	rc = spsc_mem_check(mem, len, (size_t)need);
	if (rc != 0)
		return rc;
	memset(mem, 0, (size_t)need);
	h->version = CRPC_SPSC_VERSION;
	h->variant = attr->variant;
	h->depth = attr->depth;
	h->esize = attr->esize;
	h->start = attr->start;
	h->lazy = attr->lazy > 1 ? attr->lazy : 1;
	h->caller_credit = attr->caller_credit;
	h->blocks = per != 0 ? blocks_of(attr->depth, per) : 0;
	crpc_store_relaxed(
		(_Atomic uint32_t *)(void *)((char *)mem + CRPC_SPSC_HEAD_OFFSET), attr->start);
	crpc_store_relaxed(
		(_Atomic uint32_t *)(void *)((char *)mem + CRPC_SPSC_TAIL_OFFSET), attr->start);
	/* onesided: every block is full of the lap before the first: zeroes mean nothing. */
	for (uint32_t i = 0; crpc_spsc_is_onesided(attr->variant) && i < h->blocks; i++) {
		crpc_store_relaxed(
			__crpc_spsc_flag(block), (uint64_t)(uint32_t)(attr->start - 1) << 3 | per);
		block += crpc_spsc_block_len(attr->esize, per);
	}
	h->magic = CRPC_SPSC_MAGIC;
	return 0;
}

int
__crpc_spsc_hdr_read(struct crpc_spsc_hdr *h, const void *mem, size_t len)
{
	struct crpc_spsc_attr a;
	ssize_t need;
	int rc;

	rc = spsc_mem_check(mem, len, CRPC_SPSC_DATA_OFFSET);
	if (rc != 0)
		return rc;
	memcpy(h, mem, sizeof(*h));
	if (h->magic != CRPC_SPSC_MAGIC || h->version != CRPC_SPSC_VERSION)
		return crpc_fail(-EINVAL,
			"no ring: magic 0x%" PRIx64 " version %u, expected 0x%" PRIx64
			" version %u",
			h->magic, h->version, CRPC_SPSC_MAGIC, CRPC_SPSC_VERSION);
	a = (struct crpc_spsc_attr){.variant = h->variant,
		.depth = h->depth,
		.esize = h->esize,
		.lazy = h->lazy,
		.caller_credit = h->caller_credit != 0};
	need = crpc_spsc_memsize(&a);
	if (need < 0)
		return (int)need;
	return spsc_mem_check(mem, len, (size_t)need);
}

static _Atomic uint32_t *
tail_of(char *base)
{
	return (_Atomic uint32_t *)(void *)(base + CRPC_SPSC_TAIL_OFFSET);
}

/* The header of a ring that has a producer and a consumer. */
static int
one_way(struct crpc_spsc_hdr *h, const void *mem, size_t len)
{
	int rc = __crpc_spsc_hdr_read(h, mem, len);

	if (rc == 0 && h->variant >= CRPC_SPSC_VARIANTS)
		return crpc_fail(-EINVAL, "a duplex ring has a client and a server");
	return rc;
}

int
crpc_spsc_prod_attach(struct crpc_spsc_prod *p, void *mem, size_t len)
{
	char *base = mem;
	struct crpc_spsc_hdr h;
	uint32_t per;
	int rc;

	rc = one_way(&h, mem, len);
	if (rc != 0)
		return rc;
	per = per_of(h.variant);
	*p = (struct crpc_spsc_prod){
		.slots = base + CRPC_SPSC_DATA_OFFSET,
		.head = (_Atomic uint32_t *)(void *)(base + CRPC_SPSC_HEAD_OFFSET),
		.tail = h.caller_credit ? NULL : tail_of(base),
		.depth = h.depth,
		.next = h.start,
		.published = h.start,
		.limit = is_fastforward(h.variant) ? 0 : h.start + h.depth,
		.lazy = h.lazy,
		.lap = h.start,
		.esize = h.esize,
		.variant = h.variant,
		.ops = &__crpc_spsc_ops[h.variant],
	};
	p->pos = p->slots;
	p->block = per != 0 ? crpc_spsc_block_len(h.esize, per) : 0;
	p->end = p->slots + (per != 0 ? (size_t)blocks_of(h.depth, per) * p->block : 0);
	p->stride = h.esize;
	return 0;
}

int
crpc_spsc_cons_attach(struct crpc_spsc_cons *c, void *mem, size_t len)
{
	char *base = mem;
	struct crpc_spsc_hdr h;
	bool has_tail;
	uint32_t per;
	int rc;

	rc = one_way(&h, mem, len);
	if (rc != 0)
		return rc;
	per = per_of(h.variant);
	has_tail = h.variant == CRPC_SPSC_LAMPORT ||
		(crpc_spsc_is_onesided(h.variant) && !h.caller_credit);
	*c = (struct crpc_spsc_cons){
		.slots = base + CRPC_SPSC_DATA_OFFSET,
		.head = (_Atomic uint32_t *)(void *)(base + CRPC_SPSC_HEAD_OFFSET),
		.tail = has_tail ? tail_of(base) : NULL,
		.depth = h.depth,
		.next = h.start,
		.limit = h.start,
		.freed = h.start,
		.released = h.start,
		.batch = h.depth >= 4 ? h.depth / 4 : 1,
		.lap = h.start,
		.esize = h.esize,
		.variant = h.variant,
		.ops = &__crpc_spsc_ops[h.variant],
	};
	c->pos = c->slots;
	c->rel = c->slots;
	c->block = per != 0 ? crpc_spsc_block_len(h.esize, per) : 0;
	c->end = c->slots + (per != 0 ? (size_t)blocks_of(h.depth, per) * c->block : 0);
	c->stride = h.esize;
	return 0;
}

/* The block after one. */
static char *
block_next(char *block, uint32_t len, char *slots, const char *end)
{
	block += len;
	return block == end ? slots : block;
}

/* Messages between two positions; 0 if they are further apart than an honest peer puts them. */
static uint32_t
distance(uint32_t from, uint32_t to, uint32_t depth)
{
	return to - from <= depth ? to - from : 0;
}

uint32_t
crpc_spsc_free_count(const struct crpc_spsc_prod *p)
{
	uint32_t per = per_of(p->variant), n;
	char *b = p->pos;

	if (!is_fastforward(p->variant)) /* A2, A4 pair with R2, R4. */
		return distance(p->next,
			p->tail != NULL ? crpc_load_acquire(p->tail) + p->depth : p->limit,
			p->depth);
	n = p->fill != 0 ? per - p->fill : 0;
	if (p->fill != 0)
		b = block_next(b, p->block, p->slots, p->end);
	do {
		/* A5 pairs with R5. */
		if (crpc_load_acquire(__crpc_spsc_flag(b)) != 0)
			break;
		n += per;
		b = block_next(b, p->block, p->slots, p->end);
	} while (b != p->pos);
	return n;
}

uint32_t
crpc_spsc_count(const struct crpc_spsc_cons *c)
{
	uint32_t per = per_of(c->variant), n = 0, lap = c->lap, here;
	uint32_t blocks = per != 0 ? (uint32_t)((c->end - c->slots) / c->block) : 0;
	char *b = c->pos;
	uint64_t flag;

	if (per == 0) /* A1 pairs with R1. */
		return distance(c->next, crpc_load_acquire(c->head), c->depth);
	for (uint32_t i = 0; i < blocks; i++) {
		/* A3 pairs with R3. */
		flag = crpc_load_acquire(__crpc_spsc_flag(b));
		here = (uint32_t)(flag & 7);
		if ((crpc_spsc_is_onesided(c->variant) && (uint32_t)(flag >> 3) != lap) ||
			here > per)
			break;
		n += here;
		if (here < per)
			break;
		b = block_next(b, c->block, c->slots, c->end);
		lap += b == c->slots;
	}
	return n > c->taken ? n - c->taken : 0;
}

/* Every flag is what the two positions imply: valid from the consumer's block to the producer's. */
static unsigned int
check_flags(const struct crpc_spsc_prod *p, const struct crpc_spsc_cons *c, uint32_t per, FILE *out)
{
	bool one = crpc_spsc_is_onesided(p->variant);
	uint32_t left = p->next - c->next + c->taken, lap = c->lap, here;
	uint32_t blocks = (uint32_t)((p->end - p->slots) / p->block);
	char *b = c->slots + (c->pos - c->slots);
	unsigned int bad = 0;
	uint64_t flag, want;

	for (uint32_t i = 0; i < blocks; i++) {
		here = left < per ? left : per;
		flag = crpc_load_acquire(__crpc_spsc_flag(b));
		want = one ? (here != 0 ? (uint64_t)lap << 3 | here
					: (uint64_t)(uint32_t)(lap - 1) << 3 | per)
			   : here;
		if (flag != want)
			bad += spsc_say(out,
				"block %zu: flag 0x%" PRIx64 ", expected 0x%" PRIx64 "\n",
				(size_t)(b - c->slots) / c->block, flag, want);
		left -= here;
		b = block_next(b, c->block, c->slots, c->end);
		lap += b == c->slots;
	}
	return bad;
}

int
crpc_spsc_check(const struct crpc_spsc_prod *p, const struct crpc_spsc_cons *c, FILE *out)
{
	uint32_t per = per_of(p->variant);
	unsigned int bad = 0;

	if (p->variant != c->variant || p->depth != c->depth || p->esize != c->esize)
		return (int)spsc_say(out, "the ends are of two rings: %s %u x %u, %s %u x %u\n",
			crpc_spsc_variant_name(p->variant), p->depth, p->esize,
			crpc_spsc_variant_name(c->variant), c->depth, c->esize);
	if (p->next != p->published)
		bad += spsc_say(out, "%u messages are unpublished\n", p->next - p->published);
	if (c->next != c->freed)
		bad += spsc_say(
			out, "%u messages are peeked and not released\n", c->next - c->freed);
	if (p->next - c->next > (per != 0 ? p->depth + 2 * per : p->depth))
		bad += spsc_say(out,
			"producer at %u, consumer at %u: more than the depth %u apart\n", p->next,
			c->next, p->depth);
	if (c->tail != NULL && c->next - c->released > c->depth)
		bad += spsc_say(out, "consumer at %u, released %u\n", c->next, c->released);
	if (per == 0 && crpc_load_acquire(p->head) != p->published)
		bad += spsc_say(
			out, "head %u, published %u\n", crpc_load_acquire(p->head), p->published);
	if (c->tail != NULL && crpc_load_acquire(c->tail) != c->released)
		bad += spsc_say(
			out, "tail %u, released %u\n", crpc_load_acquire(c->tail), c->released);
	if (p->limit - p->next > p->depth && !is_fastforward(p->variant))
		bad += spsc_say(out, "limit %u is behind the producer at %u\n", p->limit, p->next);
	if (per != 0)
		bad += check_flags(p, c, per, out);
	return (int)bad;
}
