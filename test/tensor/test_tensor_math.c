/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on whole arrays: whatever the strides of both sides, each element gets what the index
 * arithmetic says, and no byte beside the elements changes.
 */
#include <stdint.h>

#include "test.h"
#include <errno.h>
#include <string.h>

#include "crpc_tensor_convert.h"
#include "crpc_tensor_math.h"
#include "rnd.h"

#define SIZE 65536

static crpc_aligned(64) uint8_t memory[2][SIZE];
static const struct crpc_tensor_segment segments[] = {{memory[0], SIZE}, {memory[1], SIZE}};
static const struct crpc_tensor_space space = {segments, 2};
static uint64_t seed = 77;

/* The address of the i-th element in row-major order. */
static void *
element(const struct crpc_tensor *t, uint64_t i)
{
	uint64_t off = 0;

	for (uint32_t d = t->rank; d-- > 0; i /= t->shape[d])
		off += i % t->shape[d] * (uint64_t)t->stride[d] * crpc_tensor_dtype_size(t->dtype);
	return (uint8_t *)crpc_tensor_ptr(t, &space) + off;
}

/* An array of that shape with strides of some kind: gaps, and dimensions in any order. */
static struct crpc_tensor
random_array(uint32_t dtype, uint32_t rank, const uint64_t *shape, uint32_t segment)
{
	uint64_t big[CRPC_TENSOR_RANK_MAX] = {0};
	uint32_t perm[CRPC_TENSOR_RANK_MAX], undo[CRPC_TENSOR_RANK_MAX], d, k, swap;
	struct crpc_tensor t;
	bool gaps = rnd(&seed) % 2, shuffle = rnd(&seed) % 2;

	for (d = 0; d < rank; d++)
		perm[d] = d;
	for (d = rank; shuffle && d-- > 1;) {
		k = (uint32_t)(rnd(&seed) % (d + 1));
		swap = perm[d];
		perm[d] = perm[k];
		perm[k] = swap;
	}
	for (d = 0; d < rank; d++) {
		big[d] = shape[perm[d]] * (gaps ? 2 : 1) + gaps;
		undo[perm[d]] = d;
	}
	assert_int_equal(crpc_tensor_init(&t, (enum crpc_tensor_dtype)dtype, rank, big, segment,
					 64 + 8 * (rnd(&seed) % 8)),
			0);
	for (d = 0; d < rank && gaps; d++)
		assert_int_equal(crpc_tensor_slice(&t, &t, d, rnd(&seed) % 2, shape[perm[d]],
						 rnd(&seed) % 2 + 1),
				0);
	assert_int_equal(crpc_tensor_transpose(&t, &t, undo), 0);
	assert_int_equal(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE), 0);
	return t;
}

static uint32_t
random_shape(uint64_t *shape)
{
	uint32_t rank = (uint32_t)(rnd(&seed) % 5), d;

	for (d = 0; d < rank; d++)
		shape[d] = rnd(&seed) % 7 == 0 ? 0 : rnd(&seed) % 4 + 1;
	return rank;
}

static void
fill_random(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rnd(&seed);
}

/* What copying one element makes, by the scalar functions. */
static void
copy_one(uint32_t to, void *dst, uint32_t from, const void *src)
{
	float f;
	uint16_t h;

	if (to == from) {
		memcpy(dst, src, crpc_tensor_dtype_size(to));
	} else if (from == CRPC_TENSOR_F32) {
		memcpy(&f, src, 4);
		h = to == CRPC_TENSOR_BF16 ? crpc_tensor_bf16_of(f) : crpc_tensor_f16_of(f);
		memcpy(dst, &h, 2);
	} else {
		memcpy(&h, src, 2);
		f = from == CRPC_TENSOR_BF16 ? crpc_tensor_of_bf16(h) : crpc_tensor_of_f16(h);
		memcpy(dst, &f, 4);
	}
}

TEST(copies_of_any_strides_and_types_are_right)
{
	static const uint8_t pairs[][2] = {{CRPC_TENSOR_U8, CRPC_TENSOR_U8},
			{CRPC_TENSOR_I16, CRPC_TENSOR_I16}, {CRPC_TENSOR_F32, CRPC_TENSOR_F32},
			{CRPC_TENSOR_F64, CRPC_TENSOR_F64}, {CRPC_TENSOR_F32, CRPC_TENSOR_BF16},
			{CRPC_TENSOR_F32, CRPC_TENSOR_F16}, {CRPC_TENSOR_BF16, CRPC_TENSOR_F32},
			{CRPC_TENSOR_F16, CRPC_TENSOR_F32}};
	static uint8_t want[SIZE];
	uint64_t shape[CRPC_TENSOR_RANK_MAX], start = seed, i;

	for (uint32_t round = 0; round < 2000; round++) {
		const uint8_t *pair = pairs[rnd(&seed) % CRPC_DIM(pairs)];
		uint32_t rank = random_shape(shape);
		struct crpc_tensor src = random_array(pair[0], rank, shape, 0);
		struct crpc_tensor dst = random_array(pair[1], rank, shape, 1);

		if (rnd(&seed) % 8 == 0 && rank != 0) { /* a repeated dimension */
			src.stride[rnd(&seed) % rank] = 0;
			assert_int_equal(crpc_tensor_init_strided(&src,
							 (enum crpc_tensor_dtype)pair[0], rank,
							 shape, src.stride, 0, src.offset),
					0);
		}
		fill_random(memory[0], SIZE);
		fill_random(memory[1], SIZE);
		memcpy(want, memory[1], SIZE);
		for (i = 0; i < crpc_tensor_elems(&dst); i++)
			copy_one(pair[1], want + ((uint8_t *)element(&dst, i) - memory[1]), pair[0],
					element(&src, i));
		assert_int_equal(crpc_tensor_copy(&dst, crpc_tensor_ptr(&dst, &space), &src,
						 crpc_tensor_ptr(&src, &space)),
				0);
		if (memcmp(want, memory[1], SIZE) != 0)
			fail_msg("seed %llu, round %u", (unsigned long long)start, round);
	}
}

static double
get(const struct crpc_tensor *t, uint64_t i)
{
	return t->dtype == CRPC_TENSOR_F32 ? (double)*(float *)element(t, i) :
					     *(double *)element(t, i);
}

static void
set(const struct crpc_tensor *t, uint64_t i, double v)
{
	if (t->dtype == CRPC_TENSOR_F32)
		*(float *)element(t, i) = (float)v;
	else
		*(double *)element(t, i) = v;
}

/* With small whole numbers, which are exact however they are computed. */
TEST(scale_and_axpy_of_any_strides_are_right)
{
	uint64_t shape[CRPC_TENSOR_RANK_MAX], start = seed, i;

	for (uint32_t round = 0; round < 1000; round++) {
		uint32_t dtype = rnd(&seed) % 2 ? CRPC_TENSOR_F32 : CRPC_TENSOR_F64;
		uint32_t rank = random_shape(shape);
		struct crpc_tensor x = random_array(dtype, rank, shape, 0);
		struct crpc_tensor y = random_array(dtype, rank, shape, 1);

		memset(memory, 0, sizeof(memory));
		for (i = 0; i < crpc_tensor_elems(&x); i++) {
			set(&x, i, (double)(i % 100));
			set(&y, i, (double)(i % 7));
		}
		assert_int_equal(crpc_tensor_scale(&y, crpc_tensor_ptr(&y, &space), 3), 0);
		assert_int_equal(crpc_tensor_axpy(&y, crpc_tensor_ptr(&y, &space), -2, &x,
						 crpc_tensor_ptr(&x, &space)),
				0);
		for (i = 0; i < crpc_tensor_elems(&x); i++) {
			if (get(&y, i) != (double)(i % 7) * 3 - (double)(i % 100) * 2)
				fail_msg("seed %llu, round %u, element %llu is %g",
						(unsigned long long)start, round,
						(unsigned long long)i, get(&y, i));
			set(&y, i, 0);
		}
		for (i = 0; i < SIZE; i++)
			assert_int_equal(memory[1][i], 0);
	}
}

TEST(what_does_not_fit_is_refused)
{
	static const uint64_t s23[] = {2, 3}, s32[] = {3, 2}, s6[] = {6};
	struct crpc_tensor a, b, c, d;

	assert_int_equal(crpc_tensor_init(&a, CRPC_TENSOR_F32, 2, s23, 0, 0), 0);
	assert_int_equal(crpc_tensor_init(&b, CRPC_TENSOR_F32, 2, s32, 1, 0), 0);
	assert_int_equal(crpc_tensor_init(&c, CRPC_TENSOR_F32, 1, s6, 1, 0), 0);
	assert_int_equal(crpc_tensor_init(&d, CRPC_TENSOR_F64, 2, s23, 1, 0), 0);
	memset(memory[1], 0xee, SIZE);
	assert_int_equal(crpc_tensor_copy(&b, memory[1], &a, memory[0]), -EINVAL);
	assert_int_equal(crpc_tensor_copy(&c, memory[1], &a, memory[0]), -EINVAL);
	assert_int_equal(crpc_tensor_copy(&d, memory[1], &a, memory[0]), -ENOTSUP);
	assert_int_equal(crpc_tensor_axpy(&b, memory[1], 1, &a, memory[0]), -EINVAL);
	assert_int_equal(crpc_tensor_axpy(&d, memory[1], 1, &a, memory[0]), -ENOTSUP);
	assert_int_equal(crpc_tensor_init(&a, CRPC_TENSOR_BF16, 2, s23, 0, 0), 0);
	assert_int_equal(crpc_tensor_init(&b, CRPC_TENSOR_F16, 2, s23, 1, 0), 0);
	assert_int_equal(crpc_tensor_copy(&b, memory[1], &a, memory[0]), -ENOTSUP);
	assert_int_equal(crpc_tensor_scale(&b, memory[1], 2), -ENOTSUP);
	assert_int_equal(memory[1][0], 0xee);
	assert_int_equal(memory[1][23], 0xee);
}

TEST_MAIN(NULL, NULL)
