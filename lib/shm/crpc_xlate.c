/* SPDX-License-Identifier: BSD-3-Clause */
/* The slow side of references: the window, who is in it, and the look-ups that search. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "crpc_log.h"
#include "crpc_xlate.h"
#include "shm_private.h"

/* Slots are no smaller: huge pages fit them. */
#define STRIDE_MIN (UINT64_C(1) << 21)

/* What the inline functions do not need. */
struct xlate {
	struct crpc_xlate pub;
	void *reserved; /* What was asked of the kernel. */
	uint64_t reserved_len;
	uint32_t count;
	uint32_t *order; /* Numbers of the segments, by ascending base. */
};

static struct xlate *
xlate_of(struct crpc_xlate *x)
{
	return crpc_container_of(x, struct xlate, pub);
}

static const struct xlate *
xlate_of_const(const struct crpc_xlate *x)
{
	return (const struct xlate *)(const void *)((const char *)x - offsetof(struct xlate, pub));
}

static uint64_t
stride_of(const struct crpc_xlate *x)
{
	return UINT64_C(1) << x->shift;
}

static uintptr_t
slot_of(const struct crpc_xlate *x, uint32_t id)
{
	return x->window + ((uintptr_t)(id - 1) << x->shift);
}

/* Addresses for all slots, at a multiple of a slot's size. */
static int
reserve(struct xlate *x)
{
	uint64_t stride = stride_of(&x->pub);
	void *p;

	x->reserved_len = x->pub.slots * stride; /* one slot more than there are, to align */
	p = mmap(NULL, x->reserved_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			0);
	if (p == MAP_FAILED)
		return __crpc_shm_failed("translation table",
			"cannot reserve addresses; use fewer or smaller segments", -errno);
	x->reserved = p;
	x->pub.window = (uintptr_t)crpc_align_up((uintptr_t)p, stride);
	return 0;
}

struct crpc_xlate *
crpc_xlate_create(uint32_t max_segments, uint64_t max_size)
{
	struct xlate *x;
	uint64_t stride;
	int rc = -ENOMEM;

	if (max_segments == 0 || max_segments > CRPC_XLATE_SEGS_MAX || max_size == 0 ||
			max_size > CRPC_XLATE_OFF_MASK + 1 ||
			crpc_pow2_ceil(max_size) > CRPC_XLATE_WINDOW_MAX / max_segments) {
		crpc_err("translation table of %u segments of %" PRIu64 " bytes: expected 1 to %u, "
			 "%" PRIu64 " at most, and together %" PRIu64,
				max_segments, max_size, CRPC_XLATE_SEGS_MAX,
				CRPC_XLATE_OFF_MASK + 1, CRPC_XLATE_WINDOW_MAX);
		errno = EINVAL;
		return NULL;
	}
	stride = crpc_max(crpc_pow2_ceil(max_size), STRIDE_MIN);
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		goto err;
	x->pub.slots = max_segments + 1;
	x->pub.shift = crpc_log2(stride);
	x->pub.seg = aligned_alloc(CRPC_CACHE_LINE,
			crpc_align_up(x->pub.slots * sizeof(*x->pub.seg), CRPC_CACHE_LINE));
	x->order = calloc(max_segments, sizeof(*x->order));
	if (x->pub.seg == NULL || x->order == NULL)
		goto err_tables;
	memset(x->pub.seg, 0, x->pub.slots * sizeof(*x->pub.seg));
	rc = reserve(x);
	if (rc == 0)
		return &x->pub;

err_tables:
	free(x->pub.seg);
	free(x->order);
	free(x);
err:
	errno = -rc;
	return NULL;
}

void
crpc_xlate_free(struct crpc_xlate *x)
{
	struct xlate *full;

	if (x == NULL)
		return;
	full = xlate_of(x);
	munmap(full->reserved, full->reserved_len);
	free(full->order);
	free(x->seg);
	free(full);
}

/* Place in the order of the first segment whose base is above the address. */
static uint32_t
order_find(const struct xlate *x, uintptr_t addr)
{
	uint32_t low = 0, n = x->count, half;

	/* Without a branch on the outcome, which nothing could predict. */
	while (n != 0) {
		half = (n + 1) / 2;
		low += x->pub.seg[x->order[low + half - 1]].base <= addr ? half : 0;
		n -= half;
	}
	return low;
}

static void
publish(struct xlate *x, uint32_t id, uintptr_t base, uint64_t size)
{
	uint32_t at = order_find(x, base);

	memmove(x->order + at + 1, x->order + at, (x->count - at) * sizeof(*x->order));
	x->order[at] = id;
	x->count++;
	x->pub.seg[id].base = base;
	/*
	 * R21 pairs with A21; R20 with A20 and A22. In this order: who has got a pointer can make a
	 * reference of it.
	 */
	if (base == slot_of(&x->pub, id))
		crpc_store_release(&x->pub.seg[id].window, size);
	crpc_store_release(&x->pub.seg[id].size, size);
}

/* Whether the number can be given to a segment. */
static int
check_id(const struct crpc_xlate *x, uint32_t id)
{
	if (__crpc_shm_outside("translation table", "number of a segment", id, 1, x->slots - 1))
		return -EINVAL;
	if (crpc_load_relaxed(&x->seg[id].size) != 0)
		return crpc_fail(-EEXIST, "segment number %u: is taken", id);
	return 0;
}

void *
crpc_xlate_map(struct crpc_xlate *x, uint32_t id, const struct crpc_shm *seg)
{
	int rc = check_id(x, id);
	void *p = NULL;

	if (rc == 0 &&
		__crpc_shm_outside(seg->path, "size of the segment", seg->size, 1, stride_of(x)))
		rc = -EFBIG;
	if (rc == 0)
		p = mmap((void *)slot_of(x, id), seg->size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED, seg->fd, 0);
	if (p == MAP_FAILED)
		rc = __crpc_shm_failed(seg->path, "cannot map it into its slot", -errno);
	if (rc != 0) {
		errno = -rc;
		return NULL;
	}
	publish(xlate_of(x), id, (uintptr_t)p, seg->size);
	return p;
}

/* True if the bytes touch the window, or a segment outside it. */
static bool
overlaps(const struct xlate *x, uintptr_t base, uint64_t size)
{
	uintptr_t first = slot_of(&x->pub, 1), end = slot_of(&x->pub, x->pub.slots), low;
	uint32_t at;

	if (base < end && size > (base < first ? first - base : 0))
		return true;
	at = order_find(x, base);
	if (at < x->count && x->pub.seg[x->order[at]].base - base < size)
		return true;
	if (at == 0)
		return false;
	low = x->pub.seg[x->order[at - 1]].base;
	return base - low < crpc_load_relaxed(&x->pub.seg[x->order[at - 1]].size);
}

int
crpc_xlate_add(struct crpc_xlate *x, uint32_t id, void *base, uint64_t size)
{
	int rc = check_id(x, id);

	if (rc != 0)
		return rc;
	if (size == 0 || size > CRPC_XLATE_OFF_MASK + 1 || (uintptr_t)base + size < size ||
		overlaps(xlate_of(x), (uintptr_t)base, size))
		return crpc_fail(-EINVAL,
			"segment number %u: %" PRIu64 " bytes at %p: expected 1 to %" PRIu64
			" bytes that no other segment has",
			id, size, base, CRPC_XLATE_OFF_MASK + 1);
	publish(xlate_of(x), id, (uintptr_t)base, size);
	return 0;
}

int
crpc_xlate_del(struct crpc_xlate *x, uint32_t id)
{
	struct xlate *full = xlate_of(x);
	uintptr_t base;
	uint64_t size;
	uint32_t at;

	if (id == 0 || id >= x->slots || crpc_load_relaxed(&x->seg[id].size) == 0)
		return -ENOENT;
	base = x->seg[id].base;
	size = crpc_load_relaxed(&x->seg[id].size);
	crpc_store_release(&x->seg[id].size, 0);
	crpc_store_release(&x->seg[id].window, 0);
	at = order_find(full, base) - 1;
	full->count--;
	memmove(full->order + at, full->order + at + 1, (full->count - at) * sizeof(*full->order));
	/* The addresses stay ours: nothing else may come to lie in the window. */
	if (base == slot_of(x, id) &&
			mmap((void *)base, size, PROT_NONE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
					0) == MAP_FAILED)
		crpc_err("segment number %u: cannot unmap it: %s", id, strerror(errno));
	return 0;
}

/* The reference if all of the bytes lie in that segment, or 0. */
static uint64_t
ref_in(const struct crpc_xlate *x, uint32_t id, const void *ptr, uint64_t len)
{
	/* A22 pairs with R20. */
	uint64_t size = crpc_load_acquire(&x->seg[id].size), off;

	if (size == 0)
		return 0;
	off = (uintptr_t)ptr - x->seg[id].base;
	if (off >= size || len > size - off)
		return 0;
	return (uint64_t)id << CRPC_XLATE_OFF_BITS | off;
}

uint64_t
crpc_xlate_ref_tree(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	const struct xlate *full = xlate_of_const(x);
	uint32_t at = order_find(full, (uintptr_t)ptr);

	return at == 0 ? 0 : ref_in(x, full->order[at - 1], ptr, len);
}

uint64_t
crpc_xlate_ref_linear(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	uint64_t ref = 0;
	uint32_t id;

	for (id = 1; id < x->slots && ref == 0; id++)
		ref = ref_in(x, id, ptr, len);
	return ref;
}
