/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Array descriptors: what is not exactly a descriptor of an array within a segment is refused, each
 * lie with its own error; what is let pass touches no byte outside, and no byte twice if it is to
 * be written; the builders make what the index arithmetic says; the bytes are those of the format.
 */
#include <stdint.h>

#include "test.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_tensor.h"
#include "golden.h"
#include "rnd.h"

#define SIZE 4096

static crpc_aligned(64) uint8_t memory[SIZE];
/* Segment 0 is there, 1 is a hole in the table, 2 is as large as a segment can be said to be. */
static const struct crpc_tensor_segment segments[] = {
		{memory, SIZE},
		{NULL, 0},
		{memory, INT64_MAX},
};
static const struct crpc_tensor_space space = {segments, CRPC_DIM(segments)};

static uint64_t seed = 20261121;

/* The i-th element in row-major order: its offset in the segment. */
static uint64_t
offset_of(const struct crpc_tensor *t, uint64_t i)
{
	uint64_t off = t->offset;

	for (uint32_t d = t->rank; d-- > 0; i /= t->shape[d])
		off += i % t->shape[d] * (uint64_t)t->stride[d] * crpc_tensor_dtype_size(t->dtype);
	return off;
}

static struct crpc_tensor
make(enum crpc_tensor_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t offset)
{
	struct crpc_tensor t;

	memset(&t, 0xee, sizeof(t));
	assert_int_equal(crpc_tensor_init(&t, dtype, rank, shape, 0, offset), 0);
	return t;
}

/* The dimensions in another order: dimension i is dimension perm[i] of what was there. */
static void
permute(struct crpc_tensor *t, const uint32_t *perm)
{
	uint64_t shape[CRPC_TENSOR_RANK_MAX];
	int64_t stride[CRPC_TENSOR_RANK_MAX];

	for (uint32_t i = 0; i < t->rank; i++) {
		shape[i] = t->shape[perm[i]];
		stride[i] = t->stride[perm[i]];
	}
	assert_int_equal(crpc_tensor_init_strided(t, (enum crpc_tensor_dtype)t->dtype, t->rank,
					 shape, stride, t->segment, t->offset),
			0);
}

/* ---- the checker ---- */

/* A [4,3] f32 array at 64, and one thing wrong with it. */
TEST(each_lie_is_refused_with_its_error)
{
	static const uint64_t shape[] = {4, 3};
	static const struct {
		const char *what;
		size_t at, size;
		uint64_t value;
		int want;
	} lies[] = {
#define FIELD(f) offsetof(struct crpc_tensor, f), sizeof(((struct crpc_tensor *)0)->f)
			{"magic", FIELD(magic), 0x524e5354, -EPROTO},
			{"version 0", FIELD(version), 0, -EPROTO},
			{"next version", FIELD(version), 2, -EPROTO},
			{"reserved byte", FIELD(zero), 1, -EPROTO},
			{"reserved word", FIELD(zero2), 0x80000000, -EPROTO},
			{"shape behind the rank", FIELD(shape[2]), 1, -EPROTO},
			{"stride behind the rank", FIELD(stride[7]), 1, -EPROTO},
			{"smaller rank", FIELD(rank), 1, -EPROTO},
			{"larger rank", FIELD(rank), 3, -EINVAL},
			{"rank 9", FIELD(rank), 9, -EINVAL},
			{"rank 255", FIELD(rank), 255, -EINVAL},
			{"type 0", FIELD(dtype), 0, -EINVAL},
			{"type 13", FIELD(dtype), 13, -EINVAL},
			{"type 255", FIELD(dtype), 255, -EINVAL},
			{"wider type", FIELD(dtype), CRPC_TENSOR_F64, -EINVAL},
			{"narrower type", FIELD(dtype), CRPC_TENSOR_BF16, -EINVAL},
			{"no such segment", FIELD(segment), 3, -ENOENT},
			{"last segment number", FIELD(segment), UINT32_MAX, -ENOENT},
			{"hole in the table", FIELD(segment), 1, -ENOENT},
			{"misaligned", FIELD(offset), 66, -EINVAL},
			{"one element too far", FIELD(offset), SIZE - 44, -ERANGE},
			{"at the end", FIELD(offset), SIZE, -ERANGE},
			{"behind the end", FIELD(offset), SIZE + 4, -ERANGE},
			{"offset that wraps", FIELD(offset), UINT64_MAX - 3, -ERANGE},
			{"offset of 2^63", FIELD(offset), UINT64_C(1) << 63, -ERANGE},
			{"short length", FIELD(length), 47, -EINVAL},
			{"length 0", FIELD(length), 0, -EINVAL},
			{"long length", FIELD(length), 49, -EINVAL},
			{"length 2^64 - 1", FIELD(length), UINT64_MAX, -EINVAL},
			{"one more row", FIELD(shape[0]), 5, -EINVAL},
			{"no row", FIELD(shape[0]), 0, -EINVAL},
			{"2^40 rows", FIELD(shape[0]), UINT64_C(1) << 40, -EOVERFLOW},
			{"2^62 rows", FIELD(shape[0]), UINT64_C(1) << 62, -EOVERFLOW},
			{"2^64 - 1 rows", FIELD(shape[0]), UINT64_MAX, -EOVERFLOW},
			{"rows that wrap to 12", FIELD(shape[0]), 0x5555555555555556, -EOVERFLOW},
			{"stride -1", FIELD(stride[0]), UINT64_MAX, -EINVAL},
			{"stride -2^63", FIELD(stride[1]), UINT64_C(1) << 63, -EINVAL},
			{"stride 2^61", FIELD(stride[1]), UINT64_C(1) << 61, -EOVERFLOW},
			{"stride 2^62", FIELD(stride[0]), UINT64_C(1) << 62, -EOVERFLOW},
			{"stride 2^63 - 1", FIELD(stride[1]), INT64_MAX, -EOVERFLOW},
			{"stride whose span wraps to 0", FIELD(stride[0]), 0x5555555555555555,
					-EOVERFLOW},
#undef FIELD
	};
	struct crpc_tensor t, copy;

	for (uint32_t i = 0; i < CRPC_DIM(lies); i++) {
		t = make(CRPC_TENSOR_F32, 2, shape, 64);
		assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
		memcpy((uint8_t *)&t + lies[i].at, &lies[i].value, lies[i].size);
		crpc_log_clear();
		if (crpc_tensor_check(&t, &space, 0) != lies[i].want)
			fail_msg("%s: expected %d, found %d: %s", lies[i].what, lies[i].want,
					crpc_tensor_check(&t, &space, 0), crpc_log_last());
		assert_string_not_equal(crpc_log_last(), "");
		assert_int_equal(crpc_tensor_take(&copy, &t, &space, 0), lies[i].want);
	}
}

/* Both in the last byte of the segment, and in the largest segment there can be. */
TEST(bounds_are_exact)
{
	static const uint64_t all[] = {SIZE}, huge[] = {2}, none[] = {5, 0};
	static const int64_t apart[] = {INT64_MAX - 1};
	struct crpc_tensor t = make(CRPC_TENSOR_U8, 1, all, 0);

	assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
	t.offset = 1;
	assert_int_equal(crpc_tensor_check(&t, &space, 0), -ERANGE);
	t = make(CRPC_TENSOR_F64, 0, NULL, SIZE - 8);
	assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
	assert_int_equal(t.length, 8);
	t.offset = SIZE - 4;
	assert_int_equal(crpc_tensor_check(&t, &space, 0), -EINVAL);
	t = make(CRPC_TENSOR_F32, 2, none, SIZE);
	assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
	t.offset = SIZE + 4;
	assert_int_equal(crpc_tensor_check(&t, &space, 0), -ERANGE);

	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_U8, 1, huge, apart, 2, 0), 0);
	assert_int_equal(t.length, INT64_MAX);
	assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_U8, 1, huge, apart, 2, 1),
			-EOVERFLOW);
	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_U16, 1, huge, apart, 2, 0),
			-EOVERFLOW);
}

TEST(what_repeats_or_overlaps_is_not_written)
{
	static const uint64_t s33[] = {3, 3}, s1[] = {1}, s313[] = {3, 1, 3};
	static const struct {
		uint32_t rank;
		const uint64_t *shape;
		int64_t stride[3];
		int want;
	} cases[] = {
			{2, s33, {3, 1}, 0},
			{2, s33, {1, 3}, 0},
			{2, s33, {100, 7}, 0},
			{2, s33, {5, 2}, 0},
			{2, s33, {4, 2}, -ENOTUNIQ}, /* [0][2] is [1][0] */
			{2, s33, {2, 1}, -ENOTUNIQ},
			{2, s33, {1, 1}, -ENOTUNIQ},
			{2, s33, {3, 2}, -ENOTUNIQ}, /* no overlap, but refused */
			{2, s33, {0, 1}, -ENOTUNIQ},
			{2, s33, {1, 0}, -ENOTUNIQ},
			{1, s1, {0}, 0}, /* nothing is repeated */
			{3, s313, {3, 0, 1}, 0},
			{3, s313, {3, 77, 1}, 0},
	};
	struct crpc_tensor t;

	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_F32, cases[i].rank,
						 cases[i].shape, cases[i].stride, 0, 0),
				0);
		assert_int_equal(crpc_tensor_check(&t, &space, 0), 0);
		assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), cases[i].want);
	}
}

/*
 * What the checker should say, in numbers that are wide enough for everything: each factor is below
 * 2^64, and sums stop as soon as they are too large.
 */
static int
model(const struct crpc_tensor *t, uint64_t size)
{
	unsigned __int128 elems = 1, last = 0, limit = (unsigned __int128)1 << 63;
	uint32_t esize = crpc_tensor_dtype_size(t->dtype), i;
	bool empty = false;

	if (esize == 0 || t->rank > 8 || t->offset % esize != 0)
		return -EINVAL;
	for (i = 0; i < t->rank; i++) {
		if (t->stride[i] < 0)
			return -EINVAL;
	}
	for (i = 0; i < t->rank; i++) {
		if (t->shape[i] == 0)
			empty = true;
		else
			elems *= t->shape[i];
		if (elems > CRPC_TENSOR_ELEMS_MAX)
			return -EOVERFLOW;
	}
	for (i = 0; i < t->rank && !empty; i++) {
		last += (unsigned __int128)(t->shape[i] - 1) * (uint64_t)t->stride[i];
		if (last >= limit)
			return -EOVERFLOW;
	}
	last = empty ? 0 : (last + 1) * esize;
	if (last >= limit)
		return -EOVERFLOW;
	if (t->length != (uint64_t)last)
		return -EINVAL;
	return last + t->offset > size ? -ERANGE : 0;
}

/* Numbers near what matters, or small ones. */
static uint64_t
tricky(void)
{
	static const uint64_t pool[] = {0, 1, 2, 3, SIZE - 1, SIZE, SIZE + 1, 1u << 31, UINT32_MAX,
			UINT64_C(1) << 32, CRPC_TENSOR_ELEMS_MAX, CRPC_TENSOR_ELEMS_MAX + 1,
			UINT64_C(1) << 61, UINT64_C(1) << 62, INT64_MAX, UINT64_C(1) << 63,
			UINT64_MAX};
	uint64_t r = rnd(&seed);

	switch (r & 3) {
	case 0:
		return pool[(r >> 8) % CRPC_DIM(pool)];
	case 1:
		return pool[(r >> 8) % CRPC_DIM(pool)] + (r >> 40) % 5 - 2;
	case 2:
		return rnd(&seed) >> (r >> 8) % 64;
	default:
		return (r >> 8) % 6;
	}
}

TEST(random_descriptors_are_judged_as_by_the_model)
{
	uint64_t start = seed, accepted = 0;
	struct crpc_tensor t;
	int want, found;

	for (uint32_t i = 0; i < 400000; i++) {
		memset(&t, 0, sizeof(t));
		t.magic = CRPC_TENSOR_MAGIC;
		t.version = CRPC_TENSOR_VERSION;
		t.dtype = (uint8_t)(rnd(&seed) % 14);
		t.rank = (uint8_t)(rnd(&seed) % 10);
		t.offset = tricky();
		if (rnd(&seed) % 4 != 0)
			t.offset &= ~UINT64_C(7);
		for (uint32_t k = 0; k < t.rank && k < 8; k++) {
			t.shape[k] = rnd(&seed) % 3 ? rnd(&seed) % 4 : tricky();
			t.stride[k] = (int64_t)(rnd(&seed) % 3 ? rnd(&seed) % 40 : tricky());
		}
		/* The right length where there is one, so that the last checks are reached. */
		t.length = tricky();
		if (rnd(&seed) % 8 != 0) {
			struct crpc_tensor right;

			if (t.rank <= 8 && crpc_tensor_init_strided(&right,
						(enum crpc_tensor_dtype)t.dtype, t.rank, t.shape,
						t.stride, 0, 0) == 0)
				t.length = right.length;
		}
		want = model(&t, SIZE);
		found = crpc_tensor_check(&t, &space, 0);
		if (found != want)
			fail_msg("seed %llu, number %u: expected %d, found %d: %s",
					(unsigned long long)start, i, want, found, crpc_log_last());
		accepted += found == 0;
	}
	assert_true(accepted > 1000); /* both outcomes are seen */
}

/* Go to every element of what is let pass. */
TEST(accepted_arrays_stay_inside_and_apart)
{
	static uint8_t touched[SIZE];
	uint64_t start = seed, e, off, shape[4], written = 0;
	int64_t stride[4];
	struct crpc_tensor t;
	uint32_t i, k, size, rank, dtype;
	bool apart;

	for (i = 0; i < 20000; i++) {
		rank = (uint32_t)(rnd(&seed) % 5);
		dtype = (uint32_t)(rnd(&seed) % 12 + 1);
		for (k = 0; k < rank; k++) {
			shape[k] = rnd(&seed) % 5;
			stride[k] = (int64_t)(rnd(&seed) % 30);
		}
		size = crpc_tensor_dtype_size(dtype);
		if (crpc_tensor_init_strided(&t, (enum crpc_tensor_dtype)dtype, rank, shape, stride,
				    0, rnd(&seed) % SIZE / size * size) != 0 ||
				crpc_tensor_check(&t, &space, 0) != 0)
			continue;
		memset(touched, 0, sizeof(touched));
		apart = true;
		for (e = 0; e < crpc_tensor_elems(&t); e++) {
			off = offset_of(&t, e);
			if (off < t.offset || off + size > t.offset + t.length ||
					off + size > SIZE || off % size != 0)
				fail_msg("seed %llu, number %u: element %llu at %llu",
						(unsigned long long)start, i, (unsigned long long)e,
						(unsigned long long)off);
			apart = apart && touched[off] == 0;
			touched[off] = 1;
		}
		if (t.length != 0) /* the last byte belongs to an element: length is not generous */
			assert_int_equal(touched[t.offset + t.length - size], 1);
		if (crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE) == 0) {
			written++;
			if (!apart)
				fail_msg("seed %llu, number %u: written twice",
						(unsigned long long)start, i);
		}
	}
	assert_true(written > 500);
}

/* A descriptor may lie anywhere in a message. */
TEST(take_copies_from_any_address)
{
	static const uint64_t shape[] = {2, 2};
	struct crpc_tensor t = make(CRPC_TENSOR_I16, 2, shape, 8), copy;
	uint8_t bytes[sizeof(t) + 8];

	for (uint32_t i = 0; i < 8; i++) {
		memcpy(bytes + i, &t, sizeof(t));
		assert_int_equal(crpc_tensor_take(&copy, bytes + i, &space, CRPC_TENSOR_WRITE), 0);
		memset(bytes, 0xff, sizeof(bytes)); /* the copy is what counts */
		assert_memory_equal(&copy, &t, sizeof(t));
		assert_ptr_equal(crpc_tensor_ptr(&copy, &space), memory + 8);
	}
}

/* ---- the builders ---- */

TEST(init_lays_rows_after_each_other)
{
	static const uint64_t shape[] = {2, 3, 4}, flat[] = {6, 0, 2};
	struct crpc_tensor t = make(CRPC_TENSOR_F32, 3, shape, 16);

	assert_int_equal(t.length, 96);
	assert_int_equal(crpc_tensor_elems(&t), 24);
	assert_true(crpc_tensor_is_contiguous(&t));
	for (uint64_t i = 0; i < 24; i++)
		assert_int_equal(offset_of(&t, i), 16 + 4 * i);
	t = make(CRPC_TENSOR_F32, 3, flat, 16);
	assert_int_equal(t.length, 0);
	assert_int_equal(crpc_tensor_elems(&t), 0);
	assert_true(crpc_tensor_is_contiguous(&t));
}

TEST(builders_refuse_and_leave_the_result_alone)
{
	static const uint64_t shape[] = {4, 6}, many[] = {UINT64_C(1) << 40, 2},
			      nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	static const int64_t back[] = {6, -1};
	struct crpc_tensor t = make(CRPC_TENSOR_F32, 2, shape, 0), before = t;

	assert_int_equal(crpc_tensor_init(&t, (enum crpc_tensor_dtype)0, 2, shape, 0, 0), -EINVAL);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_U8, 9, nine, 0, 0), -EINVAL);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_F32, 2, shape, 0, 2), -EINVAL);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_U8, 2, many, 0, 0), -EOVERFLOW);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_F32, 2, shape, 0, INT64_MAX - 3),
			-EOVERFLOW);
	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_F32, 2, shape, back, 0, 0),
			-EINVAL);
	assert_int_equal(crpc_tensor_slice(&t, &t, 2, 0, 1, 1), -EINVAL);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 0, 1, 0), -EINVAL);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 6, 1, 1), -ERANGE);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 1, 6, 1), -ERANGE);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 0, 4, 2), -ERANGE);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 1, UINT64_MAX, 1), -ERANGE);
	assert_int_equal(crpc_tensor_slice(&t, &t, 1, 0, 2, UINT64_MAX), -ERANGE);
	assert_memory_equal(&t, &before, sizeof(t));
}

/* An array as the list of its elements' offsets, which a model of each builder edits. */
struct listed {
	uint64_t shape[4];
	uint32_t rank;
	uint64_t off[256];
};

static uint64_t
count_of(const struct listed *l)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < l->rank; d++)
		n *= l->shape[d];
	return n;
}

/* Make *to from *from: element index[] of *to is element perm/first/step(index) of *from. */
static void
edit(struct listed *to, const struct listed *from, const uint32_t *perm, const uint64_t *first,
		const uint64_t *step)
{
	uint64_t i, rest, at, index[4];
	uint32_t d;

	for (i = 0; i < count_of(to); i++) {
		for (rest = i, d = to->rank; d-- > 0; rest /= to->shape[d])
			index[perm[d]] = first[d] + rest % to->shape[d] * step[d];
		for (at = 0, d = 0; d < from->rank; d++)
			at = at * from->shape[d] + index[d];
		to->off[i] = from->off[at];
	}
}

static void
random_edit(struct crpc_tensor *t, struct listed *l, bool transpose)
{
	uint32_t perm[4] = {0, 1, 2, 3}, d, k, swap;
	uint64_t first[4] = {0}, step[4] = {1, 1, 1, 1};
	struct listed from = *l;

	if (transpose) {
		for (d = l->rank; d-- > 1;) {
			k = (uint32_t)(rnd(&seed) % (d + 1));
			swap = perm[d];
			perm[d] = perm[k];
			perm[k] = swap;
		}
		for (d = 0; d < l->rank; d++)
			l->shape[d] = from.shape[perm[d]];
		permute(t, perm);
	} else {
		d = (uint32_t)(rnd(&seed) % l->rank);
		step[d] = rnd(&seed) % 3 + 1;
		first[d] = rnd(&seed) % l->shape[d];
		l->shape[d] = rnd(&seed) % ((l->shape[d] - 1 - first[d]) / step[d] + 1) + 1;
		assert_int_equal(
				crpc_tensor_slice(t, t, d, first[d], l->shape[d], step[d]), 0);
	}
	edit(l, &from, perm, first, step);
}

TEST(slices_of_transposes_of_slices_are_the_right_elements)
{
	uint64_t start = seed, i;
	struct crpc_tensor t;
	struct listed l;

	for (uint32_t round = 0; round < 3000; round++) {
		l.rank = (uint32_t)(rnd(&seed) % 4 + 1);
		for (uint32_t d = 0; d < l.rank; d++)
			l.shape[d] = rnd(&seed) % 4 + 1;
		t = make(CRPC_TENSOR_I32, l.rank, l.shape, 4 * (rnd(&seed) % 100));
		for (i = 0; i < count_of(&l); i++)
			l.off[i] = t.offset + 4 * i;
		for (uint32_t k = 0; k < 4; k++) {
			random_edit(&t, &l, rnd(&seed) % 2);
			assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
			assert_int_equal(crpc_tensor_elems(&t), count_of(&l));
			for (i = 0; i < count_of(&l); i++) {
				if (offset_of(&t, i) != l.off[i])
					fail_msg("seed %llu, round %u, edit %u: element %llu",
							(unsigned long long)start, round, k,
							(unsigned long long)i);
			}
		}
	}
}

TEST(slicing_away_everything_stays_inside)
{
	static const uint64_t shape[] = {4, 6}, none[] = {100, 0};
	static const int64_t far[] = {INT64_MAX, 1};
	struct crpc_tensor t = make(CRPC_TENSOR_F32, 2, shape, SIZE - 96), s;

	assert_int_equal(crpc_tensor_slice(&s, &t, 0, 4, 0, 1), 0);
	assert_int_equal(s.length, 0);
	assert_int_equal(crpc_tensor_check(&s, &space, CRPC_TENSOR_WRITE), 0);
	/* Strides of an array without elements may be any: no arithmetic with them. */
	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_F32, 2, none, far, 0, 8), 0);
	assert_int_equal(crpc_tensor_slice(&s, &t, 0, 50, 3, 7), 0);
	assert_int_equal(crpc_tensor_check(&s, &space, CRPC_TENSOR_WRITE), 0);
}

TEST(types_have_sizes)
{
	static const uint32_t want[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
	uint32_t i;

	for (i = 0; i < CRPC_DIM(want); i++)
		assert_int_equal(crpc_tensor_dtype_size(i), want[i]);
	for (; i < 300; i++)
		assert_int_equal(crpc_tensor_dtype_size(i), 0);
	assert_int_equal(crpc_tensor_dtype_size(UINT32_MAX), 0);
}

/* ---- the format ---- */

static void
print_bytes(FILE *f, const char *what, const struct crpc_tensor *t)
{
	const uint8_t *p = (const uint8_t *)t;

	fprintf(f, "%s\n", what);
	for (size_t i = 0; i < sizeof(*t); i++)
		fprintf(f, "%02x%s", p[i], i % 16 == 15 ? "\n" : " ");
}

static char *
describe(void)
{
	static const uint64_t shape[] = {3, 5}, image[] = {2, 3, 224, 224}, more[] = {7, 5};
	static const int64_t again[] = {0, 1};
	static const uint32_t swap[] = {1, 0};
	struct crpc_tensor t;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_F32, 2, shape, 1, 4096), 0);
	print_bytes(f, "rows: f32[3,5] stride [5,1] segment 1 bytes 4096..4155", &t);
	permute(&t, swap);
	print_bytes(f,
		"transposed: "
		"f32[5,3] stride [1,5] segment 1 bytes 4096..4155",
		&t);
	assert_int_equal(crpc_tensor_slice(&t, &t, 0, 1, 2, 3), 0);
	print_bytes(f,
		"every third from the second: "
		"f32[2,3] stride [3,5] segment 1 bytes 4100..4155",
		&t);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_BF16, 4, image, 0, 128), 0);
	print_bytes(f,
		"images: "
		"bf16[2,3,224,224] stride [150528,50176,224,1] segment 0 bytes 128..602239",
		&t);
	assert_int_equal(crpc_tensor_init_strided(&t, CRPC_TENSOR_F64, 2, more, again, 0, 8), 0);
	print_bytes(f,
		"one row seven times: "
		"f64[7,5] stride [0,1] segment 0 bytes 8..47",
		&t);
	assert_int_equal(crpc_tensor_init(&t, CRPC_TENSOR_U8, 0, NULL, 63, 1), 0);
	print_bytes(f, "scalar: u8[] stride [] segment 63 bytes 1..1", &t);
	fclose(f);
	return text;
}

TEST(format_version_1_has_these_bytes)
{
	golden_text(GOLDEN_FILE, describe());
}

TEST_MAIN(NULL, NULL)
