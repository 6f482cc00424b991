/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * f32 to bf16 and f16 and back. The reference knows no bit tricks: it looks a number up among all
 * 2^15 values that 16 bits can have and takes the nearest, the even one of two that are as near.
 * Checked with every 16-bit value, with every point where the rounding changes and the floats on
 * both sides of it, and with random floats; `test_tensor_convert --all` takes all 2^32 of them
 * (minutes). Every variant that this CPU has must give the same bits, at every alignment and
 * length, whatever the thread's rounding mode, and touch nothing else.
 */

#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "crpc_tensor_convert.h"
#include "rnd.h"
#include "tensor_convert.h"

/* A format of 16 bits. */
struct format {
	const char *name;
	uint32_t mant_bits;
	uint16_t inf;
	double value[0x8000]; /* of the bits without sign; infinity as the number that is next */
	uint16_t (*narrow)(float f);
	float (*widen)(uint16_t h);
};

static struct format formats[] = {
		{.name = "bf16",
				.mant_bits = 7,
				.inf = 0x7f80,
				.narrow = crpc_tensor_bf16_of,
				.widen = crpc_tensor_of_bf16},
		{.name = "f16",
				.mant_bits = 10,
				.inf = 0x7c00,
				.narrow = crpc_tensor_f16_of,
				.widen = crpc_tensor_of_f16},
};

static uint64_t seed = 1121;

/* value = mantissa * 2^exponent, as IEEE 754 defines it. */
static void
fill_values(struct format *f)
{
	int bias = (1 << (14 - f->mant_bits)) - 1;

	for (uint32_t h = 0; h <= f->inf; h++) {
		int exp = (int)(h >> f->mant_bits);
		uint32_t mant = h & ((1u << f->mant_bits) - 1);

		if (exp == 0)
			exp = 1;
		else
			mant |= 1u << f->mant_bits;
		f->value[h] = ldexp(mant, exp - bias - (int)f->mant_bits);
	}
}

static int
set_up(void **state)
{
	fill_values(&formats[0]);
	fill_values(&formats[1]);
	return 0;
}

static uint16_t
reference(const struct format *f, float x)
{
	uint32_t u = crpc_tensor_f32_bits(x), low = 0, high = f->inf, mid;
	uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
	double a = fabs((double)x), down, up;

	if (isnan(x)) /* quiet: the first bit of the payload; and the payload's upper bits */
		return (uint16_t)(sign | f->inf | 1u << (f->mant_bits - 1) |
				(u >> (23 - f->mant_bits) & ((1u << f->mant_bits) - 1)));
	if (a >= f->value[f->inf])
		return sign | f->inf;
	while (high - low > 1) { /* value[low] <= a < value[high] */
		mid = (low + high) / 2;
		if (f->value[mid] <= a)
			low = mid;
		else
			high = mid;
	}
	down = a - f->value[low];
	up = f->value[high] - a;
	if (down < up || (down == up && low % 2 == 0))
		return (uint16_t)(sign | low);
	return (uint16_t)(sign | high);
}

static void
check_narrow(const struct format *f, float x)
{
	uint16_t want = reference(f, x), found = f->narrow(x);

	if (found != want)
		fail_msg("%s of 0x%08x (%g): expected 0x%04x, found 0x%04x", f->name,
				crpc_tensor_f32_bits(x), (double)x, want, found);
}

TEST(widening_is_exact_and_narrowing_undoes_it)
{
	for (uint32_t i = 0; i < 2; i++) {
		const struct format *f = &formats[i];

		for (uint32_t h = 0; h <= 0xffff; h++) {
			float x = f->widen((uint16_t)h);
			uint32_t sign = h & 0x8000;

			if ((h & 0x7fff) > f->inf) {
				assert_true(isnan(x));
				assert_int_equal(f->narrow(x), h | 1u << (f->mant_bits - 1));
			} else {
				if ((h & 0x7fff) == f->inf)
					assert_true(isinf(x));
				else
					assert_true(fabs((double)x) == f->value[h & 0x7fff]);
				assert_int_equal(signbit(x) != 0, sign != 0);
				assert_int_equal(f->narrow(x), h);
			}
		}
	}
}

/* Between two neighbours the result changes at one point: half-way. */
TEST(narrowing_rounds_to_nearest_even)
{
	for (uint32_t i = 0; i < 2; i++) {
		const struct format *f = &formats[i];

		for (uint32_t h = 0; h < f->inf; h++) {
			/* For bf16 the last one is half-way to 2^128, which f32 has too. */
			float x = (float)((f->value[h] + f->value[h + 1]) / 2);

			check_narrow(f, x);
			check_narrow(f, -x);
			check_narrow(f, nextafterf(x, 0));
			check_narrow(f, nextafterf(x, INFINITY));
			check_narrow(f, -nextafterf(x, 0));
			check_narrow(f, -nextafterf(x, INFINITY));
			check_narrow(f, nextafterf((float)f->value[h], INFINITY));
		}
	}
}

static const uint32_t edges[] = {0, 0x80000000, 1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
		0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7fa5a5a5,
		0x7f801fff, 0x7f802000, 0x7f80ffff, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001,
		0x32ffffff, 0x387fffff, 0x38800000, 0x7f7f7fff, 0x7f7f8000, 0x3f808000, 0x3f818000};

TEST(edges_and_random_floats_as_the_reference)
{
	uint64_t start = seed;

	for (uint32_t i = 0; i < CRPC_DIM(edges); i++) {
		for (uint32_t k = 0; k < 2; k++)
			check_narrow(&formats[k], crpc_tensor_f32_of_bits(edges[i]));
	}
	print_message("seed %llu\n", (unsigned long long)start);
	for (uint32_t i = 0; i < 1000000; i++) {
		uint32_t u = (uint32_t)rnd(&seed);

		check_narrow(&formats[0], crpc_tensor_f32_of_bits(u));
		/* Most floats are no f16: half of these have one of its exponents. */
		if (i % 2)
			u = (u & 0x807fffff) | (uint32_t)(rnd(&seed) % 48 + 96) << 23;
		check_narrow(&formats[1], crpc_tensor_f32_of_bits(u));
	}
}

/* ---- variants ---- */

#define N    (4096 + 67) /* more than a page, and no whole number of vectors */
#define EDGE 96

/* Floats of all kinds, the edges among them. */
static void
fill_floats(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t u = (uint32_t)rnd(&seed);

		if (i % 3 == 0)
			u = edges[u % CRPC_DIM(edges)];
		else if (i % 3 == 1)
			u = (u & 0x807fffff) | (uint32_t)(rnd(&seed) % 48 + 96) << 23;
		x[i] = crpc_tensor_f32_of_bits(u);
	}
}

/* One call of each function, at these offsets from aligned memory. */
static void
check_variant(const struct tensor_convert *v, size_t n, size_t dst_at, size_t src_at, bool stream)
{
	static crpc_aligned(64) float f[N + 2 * EDGE], out_f[N + 2 * EDGE];
	static crpc_aligned(64) uint16_t h[N + 2 * EDGE], out_h[N + 2 * EDGE];

	fill_floats(f + src_at, n);
	for (size_t i = 0; i < n; i++)
		h[src_at + i] = (uint16_t)rnd(&seed);
	for (uint32_t kind = 0; kind < 2; kind++) {
		memset(out_h, 0xee, sizeof(out_h));
		memset(out_f, 0xee, sizeof(out_f));
		if (kind == 0) {
			v->f32_to_bf16(out_h + dst_at, f + src_at, n, stream);
			v->bf16_to_f32(out_f + dst_at, h + src_at, n, stream);
		} else {
			v->f32_to_f16(out_h + dst_at, f + src_at, n, stream);
			v->f16_to_f32(out_f + dst_at, h + src_at, n, stream);
		}
		for (size_t i = 0; i < N + 2 * EDGE; i++) {
			bool in = i >= dst_at && i < dst_at + n;
			size_t k = i - dst_at + src_at;
			uint16_t want_h = in ? formats[kind].narrow(f[k]) : 0xeeee;
			uint32_t want_f = in ? crpc_tensor_f32_bits(formats[kind].widen(h[k])) :
					       0xeeeeeeee;

			if (out_h[i] != want_h || crpc_tensor_f32_bits(out_f[i]) != want_f)
				fail_msg("%s %s, %zu from %zu to %zu, element %zu: expected "
					 "0x%04x 0x%08x, found 0x%04x 0x%08x",
						v->name, formats[kind].name, n, src_at, dst_at, i,
						want_h, want_f, out_h[i],
						crpc_tensor_f32_bits(out_f[i]));
		}
	}
}

static void
check_all_shapes(const struct tensor_convert *v)
{
	for (size_t n = 0; n <= 70; n++)
		check_variant(v, n, EDGE - n, EDGE, n % 2);
	for (size_t at = 0; at < 33; at++)
		check_variant(v, N, at, 33 - at, at % 2);
}

TEST(variants_give_the_same_bits)
{
	const struct tensor_convert *v;
	uint32_t i;

	for (i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++) {
		print_message("%s: %s\n", v->name, v->usable() ? "checked" : "not on this CPU");
		if (v->usable())
			check_all_shapes(v);
	}
	assert_true(__crpc_tensor_convert[i - 1]->usable());
}

/* Every 16-bit value through every variant, and back. */
TEST(variants_agree_on_every_value)
{
	static uint16_t h[0x10000], back[0x10000];
	static float f[0x10000];
	const struct tensor_convert *v;

	for (uint32_t x = 0; x < 0x10000; x++)
		h[x] = (uint16_t)x;
	for (uint32_t i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++) {
		for (uint32_t k = 0; k < 2 && v->usable(); k++) {
			(k == 0 ? v->bf16_to_f32 : v->f16_to_f32)(f, h, 0x10000, false);
			(k == 0 ? v->f32_to_bf16 : v->f32_to_f16)(back, f, 0x10000, false);
			for (uint32_t x = 0; x < 0x10000; x++) {
				assert_int_equal(crpc_tensor_f32_bits(f[x]),
						crpc_tensor_f32_bits(formats[k].widen(h[x])));
				assert_int_equal(back[x], formats[k].narrow(f[x]));
			}
		}
	}
}

/* A thread that flushes denormals and rounds upwards gets the same bits. */
TEST(the_threads_modes_change_nothing)
{
#if defined(__x86_64__)
	const struct tensor_convert *v;
	unsigned int before = _mm_getcsr();

	_mm_setcsr(before | 0x8000 | 0x0040 | 0x4000); /* flush to zero, denormals are zero, up */
	for (uint32_t i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++) {
		if (v->usable())
			check_variant(v, N, 1, 3, false);
	}
	_mm_setcsr(before);
#else
	skip();
#endif
}

/* What programs call: the choice, and the way around the caches for large arrays. */
TEST(large_arrays_are_converted_whole)
{
	size_t n = CRPC_TENSOR_STREAM_BYTES / sizeof(uint16_t) + 13, i, k;
	float *x = malloc(n * sizeof(*x));
	uint16_t *h = malloc(n * sizeof(*h));

	assert_non_null(x);
	assert_non_null(h);
	for (k = 0; k < 2; k++) {
		for (i = 0; i < n; i++)
			x[i] = (float)(i % 251);
		(k == 0 ? crpc_tensor_f32_to_bf16 : crpc_tensor_f32_to_f16)(h, x, n);
		memset(x, 0, n * sizeof(*x));
		(k == 0 ? crpc_tensor_bf16_to_f32 : crpc_tensor_f16_to_f32)(x, h, n);
		for (i = 0; i < n; i++)
			if (x[i] != (float)(i % 251))
				fail_msg("%s: element %zu is %g", formats[k].name, i, (double)x[i]);
	}
	free(x);
	free(h);
}

/* All floats there are, against the reference, and in every variant. */
static void
all_floats(void **state)
{
	static float x[0x10000];
	static uint16_t want[0x10000], found[0x10000];
	const struct tensor_convert *v;

	for (uint32_t top = 0; top < 0x10000; top++) {
		for (uint32_t low = 0; low < 0x10000; low++)
			x[low] = crpc_tensor_f32_of_bits(top << 16 | low);
		for (uint32_t k = 0; k < 2; k++) {
			for (uint32_t low = 0; low < 0x10000; low++)
				want[low] = reference(&formats[k], x[low]);
			for (uint32_t i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++) {
				if (!v->usable())
					continue;
				(k == 0 ? v->f32_to_bf16 : v->f32_to_f16)(found, x, 0x10000, false);
				if (memcmp(found, want, sizeof(want)) != 0)
					fail_msg("%s %s, floats 0x%04x0000 to 0x%04xffff", v->name,
							formats[k].name, top, top);
			}
		}
	}
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
			cmocka_unit_test(all_floats),
	};

	if (argc > 1 && strcmp(argv[1], "--all") == 0)
		return cmocka_run_group_tests_name("tensor_convert_all", all, set_up, NULL);
	return test_run(set_up, NULL);
}
