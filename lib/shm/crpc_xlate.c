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
reserve(struct crpc_xlate *x)
{
	uint64_t stride = stride_of(x);
	void *p;

	x->reserved_len = x->slots * stride; /* one slot more than there are, to align */
	p = mmap(NULL, x->reserved_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			0);
	if (p == MAP_FAILED)
		return __crpc_shm_failed("translation table",
			"cannot reserve addresses; use fewer or smaller segments", -errno);
	x->reserved = p;
	x->window = (uintptr_t)crpc_align_up((uintptr_t)p, stride);
	return 0;
}

struct crpc_xlate *
crpc_xlate_create(uint32_t max_segments, uint64_t max_size)
{
	struct crpc_xlate *x;
	uint64_t stride;
	int rc = -ENOMEM;

	if (max_segments == 0 || max_segments > CRPC_XLATE_SEGS_MAX || max_size == 0 ||
		max_size > CRPC_XLATE_OFF_MASK + 1 ||
		crpc_pow2_ceil(max_size) > CRPC_XLATE_WINDOW_MAX / max_segments)
		return crpc_null(crpc_fail(-EINVAL,
			"translation table of %u segments of %" PRIu64 " bytes: expected 1 to %u, "
			"%" PRIu64 " at most, and together %" PRIu64,
			max_segments, max_size, CRPC_XLATE_SEGS_MAX, CRPC_XLATE_OFF_MASK + 1,
			CRPC_XLATE_WINDOW_MAX));
	stride = crpc_max(crpc_pow2_ceil(max_size), STRIDE_MIN);
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		goto err;
	x->slots = max_segments + 1;
	x->shift = crpc_log2(stride);
	x->seg = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up(x->slots * sizeof(*x->seg), CRPC_CACHE_LINE));
	x->order = calloc(max_segments, sizeof(*x->order));
	if (x->seg == NULL || x->order == NULL)
		goto err_tables;
	memset(x->seg, 0, x->slots * sizeof(*x->seg));
	rc = reserve(x);
	if (rc == 0)
		return x;

err_tables:
	free(x->seg);
	free(x->order);
	free(x);
err:
	return crpc_null(rc);
}

void
crpc_xlate_free(struct crpc_xlate *x)
{
	if (x == NULL)
		return;
	munmap(x->reserved, x->reserved_len);
	free(x->order);
	free(x->seg);
	free(x);
}

/* Place in the order of the first segment whose base is above the address. */
static uint32_t
order_find(const struct crpc_xlate *x, uintptr_t addr)
{
	uint32_t low = 0, n = x->count, half;

	/* Without a branch on the outcome, which nothing could predict. */
	while (n != 0) {
		half = (n + 1) / 2;
		low += x->seg[x->order[low + half - 1]].base <= addr ? half : 0;
		n -= half;
	}
	return low;
}

static void
publish(struct crpc_xlate *x, uint32_t id, uintptr_t base, uint64_t size)
{
	uint32_t at = order_find(x, base);

	memmove(x->order + at + 1, x->order + at, (x->count - at) * sizeof(*x->order));
	x->order[at] = id;
	x->count++;
	x->seg[id].base = base;
	/*
	 * R21 pairs with A21; R20 with A20 and A22. In this order: who has got a pointer can make a
	 * reference of it.
	 */
	if (base == slot_of(x, id))
		crpc_store_release(&x->seg[id].window, size);
	crpc_store_release(&x->seg[id].size, size);
}

/* Whether the number can be given to a segment. */
static int
check_id(const struct crpc_xlate *x, uint32_t id)
{
	if (crpc_outside("translation table", "number of a segment", id, 1, x->slots - 1))
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

	if (rc == 0 && crpc_outside(seg->path, "size of the segment", seg->size, 1, stride_of(x)))
		rc = -EFBIG;
	if (rc == 0)
		p = mmap((void *)slot_of(x, id), seg->size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED, seg->fd, 0);
	if (p == MAP_FAILED)
		rc = __crpc_shm_failed(seg->path, "cannot map it into its slot", -errno);
	if (rc != 0)
		return crpc_null(rc);
	publish(x, id, (uintptr_t)p, seg->size);
	return p;
}

/* True if the bytes touch the window, or a segment outside it. */
static bool
overlaps(const struct crpc_xlate *x, uintptr_t base, uint64_t size)
{
	uintptr_t first = slot_of(x, 1), end = slot_of(x, x->slots), low;
	uint32_t at;

	if (base < end && size > (base < first ? first - base : 0))
		return true;
	at = order_find(x, base);
	if (at < x->count && x->seg[x->order[at]].base - base < size)
		return true;
	if (at == 0)
		return false;
	low = x->seg[x->order[at - 1]].base;
	return base - low < crpc_load_relaxed(&x->seg[x->order[at - 1]].size);
}

int
crpc_xlate_add(struct crpc_xlate *x, uint32_t id, void *base, uint64_t size)
{
	int rc = check_id(x, id);

	if (rc != 0)
		return rc;
	if (size == 0 || size > CRPC_XLATE_OFF_MASK + 1 || (uintptr_t)base + size < size ||
		overlaps(x, (uintptr_t)base, size))
		return crpc_fail(-EINVAL,
			"segment number %u: %" PRIu64 " bytes at %p: expected 1 to %" PRIu64
			" bytes that no other segment has",
			id, size, base, CRPC_XLATE_OFF_MASK + 1);
	publish(x, id, (uintptr_t)base, size);
	return 0;
}

int
crpc_xlate_del(struct crpc_xlate *x, uint32_t id)
{
	uintptr_t base;
	uint64_t size;
	uint32_t at;

	if (id == 0 || id >= x->slots || crpc_load_relaxed(&x->seg[id].size) == 0)
		return -ENOENT;
	base = x->seg[id].base;
	size = crpc_load_relaxed(&x->seg[id].size);
	crpc_store_release(&x->seg[id].size, 0);
	crpc_store_release(&x->seg[id].window, 0);
	at = order_find(x, base) - 1;
	x->count--;
	memmove(x->order + at, x->order + at + 1, (x->count - at) * sizeof(*x->order));
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
	uint32_t at = order_find(x, (uintptr_t)ptr);

	return at == 0 ? 0 : ref_in(x, x->order[at - 1], ptr, len);
}

uint64_t
crpc_xlate_ref_linear(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	uint64_t ref = 0;

	for (uint32_t id = 1; id < x->slots && ref == 0; id++)
		ref = ref_in(x, id, ptr, len);
	return ref;
}
