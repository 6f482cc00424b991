/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_XLATE_H
#define CRPC_XLATE_H

/**
 * @file
 * References: one 64-bit number that names a byte in any of many segments, for every process.
 *
 *     63        40 39                                   0
 *     +-----------+-------------------------------------+
 *     |  segment  |  offset                             |      0 names nothing
 *     +-----------+-------------------------------------+
 *
 * A pointer means nothing in another process, where the same segment is mapped elsewhere. The
 * processes agree on a number for each segment and exchange references instead. A table turns one
 * into the other, each way by one access and whatever the number of segments is:
 *
 *     x = crpc_xlate_create(max_segments, max_size)      reserves addresses, no memory
 *     base = crpc_xlate_map(x, id, seg)                  maps the segment into its slot
 *     ref = crpc_xlate_ref(x, ptr, len)                  pointer -> reference
 *     ptr = crpc_xlate_ptr(x, ref, len)                  reference -> pointer
 *     crpc_xlate_free(x)
 *
 * The addresses are one window of slots of equal size, a power of two. Segment `id` lies at the
 * start of slot `id`, so a shift of (pointer - window) is its number:
 *
 *     window            stride           2 * stride
 *     | segment 1 |.....| segment 2 |....| segment 3   |....|   . reserved, faults when touched
 *
 * Trust. A reference may come from a hostile process: a number that is no segment, and an offset or
 * a length that does not lie in it, give NULL. The sizes are those that the kernel gave.
 *
 * Threads. Any thread may translate. One thread at a time creates and maps, and may do so while
 * others translate. Nothing here needs EAL.
 */

#include <stdint.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

struct crpc_shm;

/** The offset's part of a reference. */
#define CRPC_XLATE_OFF_MASK ((UINT64_C(1) << CRPC_XLATE_OFF_BITS) - 1)

/** One segment. */
struct crpc_xlate_seg {
	_Atomic uint64_t size; /**< Published last; 0: there is none. */
	uintptr_t base;        /**< Where its slot starts. */
};

/** A table. Only the inline functions below look into it. */
struct crpc_xlate {
	uintptr_t window; /**< Start of slot 1, the first one. */
	uint32_t shift;   /**< log2 of a slot's size. */
	uint32_t slots;   /**< One more than the highest number. */
	void *reserved;   /**< What was asked of the kernel. */
	uint64_t reserved_len;
	struct crpc_xlate_seg seg[]; /**< By number; 0 is never used. */
};

/**
 * Make a table, and reserve the addresses of its window.
 *
 * @param max_segments
 *   Segments are numbered 1 to this; at most CRPC_XLATE_SEGS_MAX.
 * @param max_size
 *   Bytes of the largest one, at most 2^CRPC_XLATE_OFF_BITS. Rounded up to a power of two, times
 *   max_segments, it may be at most CRPC_XLATE_WINDOW_MAX.
 * @return
 *   The table, or NULL with errno: EINVAL (said), ENOMEM (no such room in the address space, said).
 */
struct crpc_xlate *crpc_xlate_create(uint32_t max_segments, uint64_t max_size);

/** Unmap every segment of the window, and free the table. NULL is fine. */
void crpc_xlate_free(struct crpc_xlate *x);

/**
 * Map a segment into its slot, besides the mapping that it has.
 *
 * @param x
 *   The table.
 * @param id
 *   Its number, the same in every process.
 * @param seg
 *   The segment. It may be detached afterwards: the slot keeps the memory as long as the table.
 * @return
 *   Where it starts, header included, or NULL with errno: EINVAL (number), EEXIST (the number is
 *   taken), EFBIG (larger than a slot), or what mmap gave; said.
 */
void *crpc_xlate_map(struct crpc_xlate *x, uint32_t id, const struct crpc_shm *seg);

/**
 * crpc_xlate_ref() by binary search: for comparison.
 *
 * @return
 *   The reference, or 0 if not all of @p len bytes lie in one segment.
 */
uint64_t crpc_xlate_ref_tree(const struct crpc_xlate *x, const void *ptr, uint64_t len);

/** The same by asking each segment: for comparison. */
uint64_t crpc_xlate_ref_linear(const struct crpc_xlate *x, const void *ptr, uint64_t len);

/**
 * The address of @p len bytes at a reference.
 *
 * @return
 *   The address, or NULL if the reference names no segment or not all of them lie in it.
 */
static inline void *
crpc_xlate_ptr(const struct crpc_xlate *x, uint64_t ref, uint64_t len)
{
	uint64_t id = ref >> CRPC_XLATE_OFF_BITS, off = ref & CRPC_XLATE_OFF_MASK, size;

	if (crpc_unlikely(id >= x->slots))
		return NULL;
	/* A20 pairs with R20 in crpc_xlate_map(): the mapping before its size. */
	size = crpc_load_acquire(&x->seg[id].size);
	if (crpc_unlikely(off >= size || len > size - off))
		return NULL;
	return (void *)(x->seg[id].base + off);
}

/**
 * The reference of @p len bytes at @p ptr.
 *
 * @return
 *   The reference, or 0 if not all of them lie in one segment.
 */
static inline uint64_t
crpc_xlate_ref(const struct crpc_xlate *x, const void *ptr, uint64_t len)
{
	uint64_t at = (uintptr_t)ptr - x->window, slot = at >> x->shift, id = slot + 1, off, size;

	/* Of an address below the window the number is large, too. */
	if (crpc_unlikely(id >= x->slots))
		return 0;
	/* A20. What is loaded is only compared: the answer does not wait for it. */
	size = crpc_load_acquire(&x->seg[id].size);
	off = at - (slot << x->shift);
	if (crpc_unlikely(off >= size || len > size - off))
		return 0;
	return id << CRPC_XLATE_OFF_BITS | off;
}

CRPC_END_DECLS

#endif
