/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup: what of the rings is not on a datapath. */
#include <errno.h>
#include <inttypes.h>

#include "crpc_log.h"
#include "crpc_spsc_block.h"
#include "crpc_spsc_duplex.h"

static int
mem_check(const void *mem, size_t len, size_t need)
{
	if ((uintptr_t)mem % CRPC_CACHE_GUARD != 0)
		return crpc_fail(-EINVAL, "ring memory %p is not aligned to %u bytes", mem,
			CRPC_CACHE_GUARD);
	if (len < need)
		return crpc_fail(-ENOSPC, "ring memory has %zu bytes, %zu are needed", len, need);
	return 0;
}

static _Atomic uint32_t *
word_at(void *mem, size_t offset)
{
	return (_Atomic uint32_t *)(void *)((char *)mem + offset);
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
			"rings of variant %u give room back by themselves: caller credit is for "
			"onesided",
			(unsigned int)a->variant);
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
	rc = mem_check(mem, len, (size_t)need);
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
	crpc_store_relaxed(word_at(mem, CRPC_SPSC_HEAD_OFFSET), attr->start);
	crpc_store_relaxed(word_at(mem, CRPC_SPSC_TAIL_OFFSET), attr->start);
	/* onesided: every block is full of the lap before the first: zeroes mean nothing. */
	for (uint32_t i = 0; crpc_spsc_is_onesided(attr->variant) && i < h->blocks; i++) {
		crpc_store_relaxed(
			__crpc_spsc_flag(block), (uint64_t)(uint32_t)(attr->start - 1) << 3 | per);
		block += crpc_spsc_block_len(attr->esize, per);
	}
	h->magic = CRPC_SPSC_MAGIC;
	return 0;
}

/* The header of a ring in mem, copied once, then checked; and where its messages end. */
static int
hdr_read(struct crpc_spsc_hdr *h, char *mem, size_t len, bool duplex, char **end)
{
	int rc = mem_check(mem, len, CRPC_SPSC_DATA_OFFSET);
	struct crpc_spsc_attr a;
	ssize_t need;

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
	if ((h->variant >= CRPC_SPSC_DUPLEX) != duplex)
		return crpc_fail(-EINVAL,
			"ring variant %u is %s duplex ring: those have a client and a server",
			h->variant, duplex ? "no" : "a");
	*end = mem + CRPC_SPSC_DATA_OFFSET + data_len(&a);
	return mem_check(mem, len, (size_t)need);
}

/* What each kind of end begins with, of a ring at base whose header is h. */
#define END(base, h, at_end)                                                                       \
	.slots = (base) + CRPC_SPSC_DATA_OFFSET, .head = word_at(base, CRPC_SPSC_HEAD_OFFSET),     \
	.depth = (h).depth, .next = (h).start, .esize = (h).esize, .end = (at_end)
#define RING_END(base, h, at_end)                                                                  \
	END(base, h, at_end), .lap = (h).start, .variant = (h).variant,                            \
			      .pos = (base) + CRPC_SPSC_DATA_OFFSET
#define DUPLEX_END(base, h, at_end)                                                                \
	END(base, h, at_end), .done = word_at(base, CRPC_SPSC_TAIL_OFFSET),                        \
			      .published = (h).start, .limit = (h).start, .fetched = (h).start,    \
			      .lazy = (h).lazy, .at = (base) + CRPC_SPSC_DATA_OFFSET

int
crpc_spsc_prod_attach(struct crpc_spsc_prod *p, void *mem, size_t len)
{
	char *base = mem, *end;
	struct crpc_spsc_hdr h;
	int rc = hdr_read(&h, base, len, false, &end);

	if (rc != 0)
		return rc;
	*p = (struct crpc_spsc_prod){RING_END(base, h, end),
		.tail = h.caller_credit ? NULL : word_at(base, CRPC_SPSC_TAIL_OFFSET),
		.published = h.start, .limit = is_fastforward(h.variant) ? 0 : h.start + h.depth,
		.lazy = h.lazy};
	return 0;
}

int
crpc_spsc_cons_attach(struct crpc_spsc_cons *c, void *mem, size_t len)
{
	char *base = mem, *end;
	struct crpc_spsc_hdr h;
	int rc = hdr_read(&h, base, len, false, &end);
	bool has_tail;

	if (rc != 0)
		return rc;
	has_tail = h.variant == CRPC_SPSC_LAMPORT ||
		(crpc_spsc_is_onesided(h.variant) && !h.caller_credit);
	*c = (struct crpc_spsc_cons){RING_END(base, h, end),
		.tail = has_tail ? word_at(base, CRPC_SPSC_TAIL_OFFSET) : NULL, .limit = h.start,
		.freed = h.start, .released = h.start, .batch = h.depth >= 4 ? h.depth / 4 : 1,
		.rel = base + CRPC_SPSC_DATA_OFFSET};
	return 0;
}

int
crpc_spsc_duplex_client_attach(struct crpc_spsc_duplex_client *c, void *mem, size_t len)
{
	char *base = mem, *end;
	struct crpc_spsc_hdr h;
	int rc = hdr_read(&h, base, len, true, &end);

	if (rc != 0)
		return rc;
	*c = (struct crpc_spsc_duplex_client){DUPLEX_END(base, h, end), .read = h.start,
		.freed = h.start, .sent = h.start, .got = h.start,
		.oldest = base + CRPC_SPSC_DATA_OFFSET};
	return 0;
}

int
crpc_spsc_duplex_server_attach(struct crpc_spsc_duplex_server *s, void *mem, size_t len)
{
	char *base = mem, *end;
	struct crpc_spsc_hdr h;
	int rc = hdr_read(&h, base, len, true, &end);

	if (rc != 0)
		return rc;
	*s = (struct crpc_spsc_duplex_server){DUPLEX_END(base, h, end), .answered = h.start,
		.taken = h.start, .open = base + CRPC_SPSC_DATA_OFFSET};
	return 0;
}
