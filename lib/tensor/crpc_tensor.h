/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_H
#define CRPC_TENSOR_H

/**
 * @file
 * Array descriptors that need no serialization: the bytes of the struct are the message.
 *
 *     who has the array                          who is handed it
 *     crpc_tensor_init(&t, CRPC_TENSOR_F32,
 *             2, shape, segment, offset)
 *     crpc_tensor_slice(&t, &t, 0, 10, 5, 1)
 *             -- 160 bytes, by any way -->       crpc_tensor_take(&t, bytes, &space, 0)
 *                                                p = crpc_tensor_ptr(&t, &space)
 *
 *     segment  |................[e0 . e1 . e2 . . . . eN]..............|
 *              0                ^offset   length bytes  ^              ^size
 *
 * The array itself is not moved: both sides have mapped the same segments, each at an address of
 * its own, and number them alike (struct crpc_tensor_space). A descriptor holds offsets only.
 *
 * What a descriptor means. Element (i0, i1, ...) lies at offset + size * (i0 * stride[0] + i1 *
 * stride[1] + ...): strides count elements, so that an aligned offset makes every element aligned.
 * `length` is the number of bytes from the first byte of the first element to the last byte of the
 * last; it follows from shape and strides, and a descriptor whose statements disagree is refused.
 *
 * Strides. Negative ones are refused: element 0 is then the lowest, and one comparison bounds all
 * of them. A stride of 0 repeats elements (a broadcast); it may be read and never be written.
 * A check for writing needs CRPC_TENSOR_WRITE, which refuses arrays whose elements may
 * overlap: sorted by stride, each dimension must step over everything that the smaller ones span.
 * That holds for whatever the builders make of an array without repetition.
 *
 * Trust. A descriptor from another process is hostile. crpc_tensor_take() copies it once and checks
 * the copy with arithmetic that cannot overflow; what it lets pass can be read, or written, without
 * leaving the segment. The elements stay in memory that the other side can write: they may change
 * at any time, so values that decide something (an index, a length) are copied first.
 *
 * Ownership: a descriptor owns nothing. Who may write or free the bytes is defined by the RPC.
 *
 * Threads: plain values and pure functions; any thread. Nothing allocates. Nothing needs EAL.
 *
 * Bytes and golden examples: doc/protocol/tensor.md. The model of shape and strides is that of
 * NumPy (Harris et al., Nature 585, 2020) and DLPack.
 */

#include <stddef.h>
#include <stdint.h>

#include "crpc_config.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** "TNSR" in memory, on a little-endian machine. */
#define CRPC_TENSOR_MAGIC UINT32_C(0x52534e54)
/** Version of struct crpc_tensor. */
#define CRPC_TENSOR_VERSION 1

/** Types of elements. The numbers are part of the format. */
enum crpc_tensor_dtype {
	CRPC_TENSOR_U8 = 1,
	CRPC_TENSOR_I8 = 2,
	CRPC_TENSOR_U16 = 3,
	CRPC_TENSOR_I16 = 4,
	CRPC_TENSOR_U32 = 5,
	CRPC_TENSOR_I32 = 6,
	CRPC_TENSOR_U64 = 7,
	CRPC_TENSOR_I64 = 8,
	CRPC_TENSOR_F16 = 9,   /**< IEEE 754 binary16. */
	CRPC_TENSOR_BF16 = 10, /**< The upper half of a binary32. */
	CRPC_TENSOR_F32 = 11,
	CRPC_TENSOR_F64 = 12,
};

/** An array in a segment. All bytes count; those that mean nothing are 0. */
struct crpc_tensor {
	uint32_t magic;   /**< CRPC_TENSOR_MAGIC. */
	uint8_t version;  /**< CRPC_TENSOR_VERSION. */
	uint8_t dtype;    /**< enum crpc_tensor_dtype. */
	uint8_t rank;     /**< 0 (one element) to CRPC_TENSOR_RANK_MAX. */
	uint8_t zero;     /**< 0. */
	uint32_t segment; /**< Which one, by number. */
	uint32_t zero2;   /**< 0. */
	uint64_t offset;  /**< Of the first element; a multiple of the element's size. */
	uint64_t length;  /**< Bytes from there to the end of the last element. */
	uint64_t shape[CRPC_TENSOR_RANK_MAX]; /**< Elements; 0 from [rank] on. */
	int64_t stride[CRPC_TENSOR_RANK_MAX]; /**< In elements, not below 0; 0 from [rank] on. */
};

_Static_assert(sizeof(struct crpc_tensor) == 160, "format version 1");
_Static_assert(offsetof(struct crpc_tensor, dtype) == 5, "format version 1");
_Static_assert(offsetof(struct crpc_tensor, segment) == 8, "format version 1");
_Static_assert(offsetof(struct crpc_tensor, offset) == 16, "format version 1");
_Static_assert(offsetof(struct crpc_tensor, shape) == 32, "format version 1");
_Static_assert(offsetof(struct crpc_tensor, stride) == 96, "format version 1");

/** A segment as this process sees it. */
struct crpc_tensor_segment {
	void *base;    /**< Its first byte, aligned to CRPC_CACHE_LINE; NULL: no such segment. */
	uint64_t size; /**< Bytes that are mapped: as the kernel reports, never as a peer does. */
};

/** All segments that a descriptor may name, by number. */
struct crpc_tensor_space {
	const struct crpc_tensor_segment *segment;
	uint32_t count; /**< At most CRPC_TENSOR_SEGMENTS_MAX. */
};

/** For the checker: the array is to be written, not only read. */
#define CRPC_TENSOR_WRITE 1u

/* ---- checking ---- */

/**
 * Check a descriptor against the segments that there are.
 *
 * @param t
 *   The descriptor, in memory that no other process can write: else crpc_tensor_take().
 * @param space
 *   The segments.
 * @param how
 *   0, or CRPC_TENSOR_WRITE.
 * @return
 *   0; or, with the cause in crpc_log_last():
 *   -EPROTO: magic, version, or a byte that must be 0.
 *   -EINVAL: type, rank, a negative stride, a misaligned offset, or a length that does not follow
 *   from shape and strides.
 *   -EOVERFLOW: more elements than CRPC_TENSOR_ELEMS_MAX, or bytes beyond 2^63.
 *   -ENOENT: no such segment.
 *   -ERANGE: not all bytes lie in the segment.
 *   -ENOTUNIQ: CRPC_TENSOR_WRITE, and elements may overlap.
 */
int crpc_tensor_check(
	const struct crpc_tensor *t, const struct crpc_tensor_space *space, uint32_t how);

/**
 * Copy a descriptor once from memory that others can write, and check the copy.
 *
 * @param t
 *   Set in any case; usable only after 0.
 * @param bytes
 *   sizeof(struct crpc_tensor) of them, of any alignment.
 * @param space, how
 *   As crpc_tensor_check().
 * @return
 *   As crpc_tensor_check().
 */
int crpc_tensor_take(struct crpc_tensor *t, const void *bytes,
	const struct crpc_tensor_space *space, uint32_t how);

/** The address of a checked array's first element in this process. */
static inline void *
crpc_tensor_ptr(const struct crpc_tensor *t, const struct crpc_tensor_space *space)
{
	return (uint8_t *)space->segment[t->segment].base + t->offset;
}

/* ---- building; each sets *dst only on success, and dst may be src ---- */

/**
 * Describe an array without gaps, the last dimension running fastest.
 *
 * @param dst
 *   Set on success.
 * @param dtype
 *   Type of the elements.
 * @param rank, shape
 *   0 to CRPC_TENSOR_RANK_MAX dimensions. A dimension of 0 makes an array without elements.
 * @param segment, offset
 *   Where its first element is.
 * @return
 *   0, -EINVAL (type, rank, misaligned offset), -EOVERFLOW.
 */
int crpc_tensor_init(struct crpc_tensor *dst, enum crpc_tensor_dtype dtype, uint32_t rank,
	const uint64_t *shape, uint32_t segment, uint64_t offset);

/**
 * Describe an array whose strides are given, in elements; NULL: as crpc_tensor_init().
 *
 * @return
 *   As crpc_tensor_init(); -EINVAL also for a negative stride.
 */
int crpc_tensor_init_strided(struct crpc_tensor *dst, enum crpc_tensor_dtype dtype, uint32_t rank,
	const uint64_t *shape, const int64_t *stride, uint32_t segment, uint64_t offset);

/**
 * Take `count` entries of one dimension: first, first + step, ...
 *
 * @return
 *   0, -EINVAL (no such dimension, or a step of 0), -ERANGE (not all of the entries exist).
 */
int crpc_tensor_slice(struct crpc_tensor *dst, const struct crpc_tensor *src, uint32_t dim,
	uint64_t first, uint64_t count, uint64_t step);

/* ---- asking; of descriptors that were built or checked ---- */

/** Bytes of an element; 0 for no such type. */
static inline uint32_t
crpc_tensor_dtype_size(uint32_t dtype)
{
	/* A digit for each type, the first from the right for number 0, which is none. */
	return dtype <= CRPC_TENSOR_F64 ? UINT64_C(0x8422884422110) >> 4 * dtype & 0xf : 0;
}

/** Number of elements. */
uint64_t crpc_tensor_elems(const struct crpc_tensor *t);

/** True if it has no gaps and the last dimension runs fastest. */
bool crpc_tensor_is_contiguous(const struct crpc_tensor *t);

CRPC_END_DECLS

#endif
