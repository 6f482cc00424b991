/* SPDX-License-Identifier: BSD-3-Clause */
/* The slow side of references: the window, who is in it, and the look-ups that search. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
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
	int rc;

	if (max_segments == 0 || max_segments > CRPC_XLATE_SEGS_MAX || max_size == 0 ||
		max_size > CRPC_XLATE_OFF_MASK + 1 ||
		crpc_pow2_ceil(max_size) > CRPC_XLATE_WINDOW_MAX / max_segments)
		return crpc_null(crpc_fail(-EINVAL,
			"translation table of %u segments of %" PRIu64 " bytes: expected 1 to %u, "
			"%" PRIu64 " at most, and together %" PRIu64,
			max_segments, max_size, CRPC_XLATE_SEGS_MAX, CRPC_XLATE_OFF_MASK + 1,
			CRPC_XLATE_WINDOW_MAX));
	x = calloc(1, sizeof(*x) + (max_segments + 1) * sizeof(x->seg[0]));
	if (x == NULL)
		return NULL;
	x->slots = max_segments + 1;
	x->shift = crpc_log2(crpc_max(crpc_pow2_ceil(max_size), STRIDE_MIN));
	rc = reserve(x);
	if (rc != 0) {
		free(x);
		return crpc_null(rc);
	}
	for (uint32_t id = 1; id < x->slots; id++)
		x->seg[id].base = x->window + ((uintptr_t)(id - 1) << x->shift);
	return x;
}

void
crpc_xlate_free(struct crpc_xlate *x)
{
	if (x != NULL)
		munmap(x->reserved, x->reserved_len);
	free(x);
}

void *
crpc_xlate_map(struct crpc_xlate *x, uint32_t id, const struct crpc_shm *seg)
{
	void *p;

	if (crpc_outside("translation table", "number of a segment", id, 1, x->slots - 1))
		return crpc_null(-EINVAL);
	if (crpc_load_relaxed(&x->seg[id].size) != 0)
		return crpc_null(crpc_fail(-EEXIST, "segment number %u: is taken", id));
	if (crpc_outside(seg->path, "size of the segment", seg->size, 1, stride_of(x)))
		return crpc_null(-EFBIG);
	p = mmap((void *)x->seg[id].base, seg->size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_FIXED, seg->fd, 0);
	if (p == MAP_FAILED)
		return crpc_null(
			__crpc_shm_failed(seg->path, "cannot map it into its slot", -errno));
	/* R20 pairs with A20: the mapping. */
	crpc_store_release(&x->seg[id].size, seg->size);
	return p;
}

/* The reference if all of the bytes lie in that segment, or 0. */
static uint64_t
ref_in(const struct crpc_xlate *x, uint32_t id, const void *ptr, uint64_t len)
{
	uint64_t size = crpc_load_acquire(&x->seg[id].size); /* A20 pairs with R20. */
	uint64_t off = (uintptr_t)ptr - x->seg[id].base;

	return off >= size || len > size - off ? 0 : (uint64_t)id << CRPC_XLATE_OFF_BITS | off;
}

uint64_t
crpc_xlate_ref_tree(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	uint32_t below = 0, n = x->slots - 1, half;

	/* Slots that begin at it or below; without a branch, which nothing could predict. */
	while (n != 0) {
		half = (n + 1) / 2;
		below += x->seg[below + half].base <= (uintptr_t)ptr ? half : 0;
		n -= half;
	}
	return below == 0 ? 0 : ref_in(x, below, ptr, len);
}

uint64_t
crpc_xlate_ref_linear(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	uint64_t ref = 0;

	for (uint32_t id = 1; id < x->slots && ref == 0; id++)
		ref = ref_in(x, id, ptr, len);
	return ref;
}
