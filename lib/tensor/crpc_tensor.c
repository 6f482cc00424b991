/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops here make at most eight turns. Unrolled and made vectors of, they would be four times as
 * much code, and fetching code is what a message costs that comes now and then.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O2", "no-tree-vectorize")
#endif

#include <errno.h>
#include <string.h>

#include "crpc_conf.h"
#include "crpc_tensor.h"

/* Offsets and lengths stay below it, so that their sum with a base is no pointer overflow. */
#define BYTES_MAX ((uint64_t)INT64_MAX)

_Static_assert(CRPC_TENSOR_RANK_MAX <= UINT8_MAX, "rank is a byte");
_Static_assert(CRPC_TENSOR_ELEMS_MAX <= BYTES_MAX / 8, "the bytes of all elements can be counted");

/* ---- what follows from shape and strides ---- */

static int
refuse_many(const uint64_t *shape, uint32_t i)
{
	return crpc_fail(-EOVERFLOW, "tensor: shape[%u] is %llu: more than %llu elements", i,
		(unsigned long long)shape[i], (unsigned long long)CRPC_TENSOR_ELEMS_MAX);
}

/*
 * Multiply the number of elements by one more dimension; one of 0 sets *empty and counts as 1, so
 * that the limit holds for the others too.
 */
static inline bool
count_dim(uint64_t *elems, uint64_t dim, bool *empty)
{
	if (dim == 0) {
		*empty = true;
		return true;
	}
	return dim <= CRPC_TENSOR_ELEMS_MAX && !__builtin_mul_overflow(*elems, dim, elems) &&
		*elems <= CRPC_TENSOR_ELEMS_MAX;
}

/* Bytes from the first element's first to the last one's last. Strides are not below 0. */
static int
count_bytes(const struct crpc_tensor *t, uint32_t size, uint64_t *bytes)
{
	uint64_t elems = 1, step, last = 0;
	bool empty = false, wide = false;

	for (uint32_t i = 0; i < t->rank; i++) {
		if (!count_dim(&elems, t->shape[i], &empty))
			return refuse_many(t->shape, i);
		wide |= __builtin_mul_overflow(t->shape[i] - 1, (uint64_t)t->stride[i], &step);
		wide |= __builtin_add_overflow(last, step, &last);
	}
	*bytes = 0;
	if (empty) /* and then strides may be any */
		return 0;
	if (wide || __builtin_add_overflow(last, 1, &last) ||
		__builtin_mul_overflow(last, size, bytes) || *bytes > BYTES_MAX)
		return crpc_fail(-EOVERFLOW, "tensor: shape and strides span more than 2^63 bytes");
	return 0;
}

/* Which field it is. Out of the way of what is in order, of which there should be little code. */
static crpc_noinline int
refuse_field(const struct crpc_tensor *t)
{
	uint32_t size = crpc_tensor_dtype_size(t->dtype);

	if (crpc_outside("tensor", "type", t->dtype, 1, CRPC_TENSOR_F64) ||
		crpc_outside("tensor", "rank", t->rank, 0, CRPC_TENSOR_RANK_MAX) ||
		crpc_outside("tensor", "offset within an element", t->offset % size, 0, 0))
		return -EINVAL;
	for (uint32_t i = 0; i < t->rank; i++)
		crpc_outside("tensor", "stride", (uint64_t)t->stride[i], 0, INT64_MAX);
	return -EINVAL;
}

/* Type, rank, offset and strides by themselves. */
static int
check_fields(const struct crpc_tensor *t, uint32_t size)
{
	int64_t sign = 0;

	if (size == 0 || t->rank > CRPC_TENSOR_RANK_MAX || (t->offset & (size - 1)) != 0)
		return refuse_field(t);
	for (uint32_t i = 0; i < t->rank; i++)
		sign |= t->stride[i];
	return sign < 0 ? refuse_field(t) : 0;
}

/* Head and unused places: what has no meaning is 0, so that a later version can give it one. */
static int
check_frame(const struct crpc_tensor *t)
{
	uint64_t rest = t->zero | t->zero2;

	for (uint32_t i = t->rank; i < CRPC_TENSOR_RANK_MAX; i++)
		rest |= t->shape[i] | (uint64_t)t->stride[i];
	if (t->magic != CRPC_TENSOR_MAGIC || t->version != CRPC_TENSOR_VERSION)
		return crpc_fail(-EPROTO, "tensor: magic 0x%x version %u: expected 0x%x version %u",
			t->magic, t->version, CRPC_TENSOR_MAGIC, CRPC_TENSOR_VERSION);
	if (rest != 0)
		return crpc_fail(-EPROTO, "tensor: a byte that must be 0 is not, rank %u", t->rank);
	return 0;
}

static int
check_place(const struct crpc_tensor *t, const struct crpc_tensor_space *space)
{
	const struct crpc_tensor_segment *seg = &space->segment[t->segment];

	if (t->segment >= space->count || seg->base == NULL)
		return crpc_fail(-ENOENT, "tensor: segment %u is not there: expected one of %u",
			t->segment, space->count);
	if (t->offset > seg->size || t->length > seg->size - t->offset)
		return crpc_fail(-ERANGE, "tensor: %llu bytes at %llu: segment %u has %llu",
			(unsigned long long)t->length, (unsigned long long)t->offset, t->segment,
			(unsigned long long)seg->size);
	return 0;
}

/*
 * Refuse what may write an element twice. Sorted by stride, a dimension that steps over all that
 * the smaller ones span cannot meet them. Some arrays without overlap fail this, such as two
 * strides of 2 and 3; to find that out in general is a hard number problem.
 */
static int
check_unique(const struct crpc_tensor *t)
{
	uint64_t shape[CRPC_TENSOR_RANK_MAX], stride[CRPC_TENSOR_RANK_MAX], span = 1;
	uint32_t k, n = 0;

	if (crpc_tensor_is_contiguous(t))
		return 0;
	for (uint32_t i = 0; i < t->rank; i++) {
		if (t->shape[i] == 1)
			continue;
		for (k = n++; k > 0 && stride[k - 1] > (uint64_t)t->stride[i]; k--) {
			stride[k] = stride[k - 1];
			shape[k] = shape[k - 1];
		}
		stride[k] = (uint64_t)t->stride[i];
		shape[k] = t->shape[i];
	}
	for (uint32_t i = 0; i < n; i++) {
		if (stride[i] < span)
			return crpc_fail(-ENOTUNIQ,
				"tensor: stride %llu is below the %llu elements that it must step "
				"over: the array can be read, not written",
				(unsigned long long)stride[i], (unsigned long long)span);
		span += (shape[i] - 1) * stride[i]; /* bounded by length */
	}
	return 0;
}

int
crpc_tensor_check(const struct crpc_tensor *t, const struct crpc_tensor_space *space, uint32_t how)
{
	uint32_t size = crpc_tensor_dtype_size(t->dtype);
	uint64_t bytes;
	int rc = check_frame(t);

	if (rc == 0)
		rc = check_fields(t, size);
	if (rc == 0)
		rc = count_bytes(t, size, &bytes);
	if (rc != 0)
		return rc;
	if (t->length != bytes)
		return crpc_fail(-EINVAL, "tensor: length %llu: shape and strides make %llu bytes",
			(unsigned long long)t->length, (unsigned long long)bytes);
	rc = check_place(t, space);
	if (rc == 0 && (how & CRPC_TENSOR_WRITE) != 0)
		rc = check_unique(t);
	return rc;
}

int
crpc_tensor_take(struct crpc_tensor *t, const void *bytes, const struct crpc_tensor_space *space,
	uint32_t how)
{
	memcpy(t, bytes, sizeof(*t));
	/* The compiler must not read the other side's bytes again in place of the copy. */
	__asm__ __volatile__("" : : "r"(t) : "memory");
	return crpc_tensor_check(t, space, how);
}

/* ---- building ---- */

/* Hand a descriptor over that is whole, but for its offset's limit. */
static int
hand_over(struct crpc_tensor *dst, const struct crpc_tensor *t)
{
	if (t->offset > BYTES_MAX - t->length)
		return crpc_fail(-EOVERFLOW, "tensor: offset %llu is beyond 2^63",
			(unsigned long long)t->offset);
	*dst = *t;
	return 0;
}

/* Check a descriptor that is whole but for its length, complete it, and hand it over. */
static int
finish(struct crpc_tensor *dst, struct crpc_tensor *t)
{
	uint32_t size = crpc_tensor_dtype_size(t->dtype);
	int rc = check_fields(t, size);

	if (rc == 0)
		rc = count_bytes(t, size, &t->length);
	return rc == 0 ? hand_over(dst, t) : rc;
}

/* Strides and length of an array without gaps. A dimension of 0 counts as 1 in strides. */
static int
set_dense(struct crpc_tensor *t, uint32_t size)
{
	uint64_t step = 1;
	bool empty = false;

	if (size == 0 || (t->offset & (size - 1)) != 0)
		return refuse_field(t);
	for (uint32_t i = t->rank; i-- > 0;) {
		t->stride[i] = (int64_t)step;
		if (!count_dim(&step, t->shape[i], &empty))
			return refuse_many(t->shape, i);
	}
	t->length = empty ? 0 : step * size; /* limits of both: no overflow */
	return 0;
}

int
crpc_tensor_init_strided(struct crpc_tensor *dst, enum crpc_tensor_dtype dtype, uint32_t rank,
	const uint64_t *shape, const int64_t *stride, uint32_t segment, uint64_t offset)
{
	struct crpc_tensor t = {.magic = CRPC_TENSOR_MAGIC,
		.version = CRPC_TENSOR_VERSION,
		.dtype = (uint8_t)dtype,
		.rank = (uint8_t)rank,
		.segment = segment,
		.offset = offset};
	int rc;

	if (rank > CRPC_TENSOR_RANK_MAX)
		return crpc_outside("tensor", "rank", rank, 0, CRPC_TENSOR_RANK_MAX);
	for (uint32_t i = 0; i < rank; i++) {
		t.shape[i] = shape[i];
		t.stride[i] = stride != NULL ? stride[i] : 0;
	}
	if (stride != NULL)
		return finish(dst, &t);
	rc = set_dense(&t, crpc_tensor_dtype_size(dtype));
	return rc == 0 ? hand_over(dst, &t) : rc;
}

int
crpc_tensor_init(struct crpc_tensor *dst, enum crpc_tensor_dtype dtype, uint32_t rank,
	const uint64_t *shape, uint32_t segment, uint64_t offset)
{
	return crpc_tensor_init_strided(dst, dtype, rank, shape, NULL, segment, offset);
}

int
crpc_tensor_slice(struct crpc_tensor *dst, const struct crpc_tensor *src, uint32_t dim,
	uint64_t first, uint64_t count, uint64_t step)
{
	struct crpc_tensor t = *src;
	uint64_t have, size = crpc_tensor_dtype_size(src->dtype);

	if (dim >= src->rank || step == 0)
		return crpc_fail(-EINVAL, "tensor: slice of dimension %u of %u by steps of %llu",
			dim, src->rank, (unsigned long long)step);
	have = src->shape[dim];
	if (count != 0 && (first >= have || (count - 1) > (have - 1 - first) / step))
		return crpc_fail(-ERANGE,
			"tensor: slice of %llu entries from %llu on by steps of %llu: dimension "
			"%u has %llu",
			(unsigned long long)count, (unsigned long long)first,
			(unsigned long long)step, dim, (unsigned long long)have);
	t.shape[dim] = count;
	/* Both products stay within the span of *src. An array without elements spans nothing. */
	if (count > 1 && src->length != 0)
		t.stride[dim] *= (int64_t)step;
	if (count != 0 && src->length != 0)
		t.offset += first * (uint64_t)src->stride[dim] * size;
	return finish(dst, &t);
}

/* ---- asking ---- */

uint64_t
crpc_tensor_elems(const struct crpc_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < t->rank; i++)
		n *= t->shape[i];
	return n;
}

bool
crpc_tensor_is_contiguous(const struct crpc_tensor *t)
{
	uint64_t step = 1;

	if (t->length == 0)
		return true;
	for (uint32_t i = t->rank; i-- > 0;) {
		if (t->shape[i] != 1 && (uint64_t)t->stride[i] != step)
			return false;
		step *= t->shape[i];
	}
	return true;
}

