/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_tensor_convert.h"
#include "crpc_tensor_math.h"

/*
 * Two arrays of one shape walked side by side. dims[0 .. rank - 1], outermost first; the last one
 * is a run that a row function does. Strides in bytes.
 */
struct walk {
	uint32_t rank;
	struct {
		uint64_t n, dst, src;
	} dim[CRPC_TENSOR_RANK_MAX];
	uint32_t dst_size, src_size;
	double a;
};

/* A run of n elements; steps in bytes. */
typedef void (*row_fn)(const struct walk *w, uint8_t *dst, uint64_t dst_step, const uint8_t *src,
	uint64_t src_step, uint64_t n);

/* Leave out dimensions of 1, and join those that follow each other without a gap in both arrays. */
static void
walk_init(struct walk *w, const struct crpc_tensor *dst, const struct crpc_tensor *src)
{
	uint64_t n, ds, ss;
	uint32_t last;

	w->rank = 0;
	w->dst_size = crpc_tensor_dtype_size(dst->dtype);
	w->src_size = crpc_tensor_dtype_size(src->dtype);
	for (uint32_t i = 0; i < dst->rank; i++) {
		n = dst->shape[i];
		ds = (uint64_t)dst->stride[i] * w->dst_size;
		ss = (uint64_t)src->stride[i] * w->src_size;
		if (n == 1)
			continue;
		last = w->rank - 1;
		if (w->rank != 0 && w->dim[last].dst == n * ds && w->dim[last].src == n * ss) {
			w->dim[last].n *= n;
		} else {
			last = w->rank++;
			w->dim[last].n = n;
		}
		w->dim[last].dst = ds;
		w->dim[last].src = ss;
	}
	if (w->rank == 0) { /* one element */
		w->rank = 1;
		w->dim[0].n = 1;
		w->dim[0].dst = w->dst_size;
		w->dim[0].src = w->src_size;
	}
}

/* Call row for each run. */
static void
walk_run(const struct walk *w, uint8_t *dst, const uint8_t *src, row_fn row)
{
	uint64_t at[CRPC_TENSOR_RANK_MAX] = {0};
	uint32_t last = w->rank - 1, i;

	for (;;) {
		row(w, dst, w->dim[last].dst, src, w->dim[last].src, w->dim[last].n);
		/* Count on like an odometer, from the second dimension from the right. */
		for (i = last; i-- > 0;) {
			dst += w->dim[i].dst;
			src += w->dim[i].src;
			if (++at[i] < w->dim[i].n)
				break;
			dst -= w->dim[i].n * w->dim[i].dst;
			src -= w->dim[i].n * w->dim[i].src;
			at[i] = 0;
		}
		if (i == UINT32_MAX)
			return;
	}
}

/* ---- rows ---- */

static void
row_copy(const struct walk *w, uint8_t *dst, uint64_t dst_step, const uint8_t *src,
	uint64_t src_step, uint64_t n)
{
	if (dst_step == w->dst_size && src_step == w->src_size) {
		memcpy(dst, src, n * w->dst_size);
		return;
	}
	switch (w->dst_size) {
	case 1:
		for (uint64_t i = 0; i < n; i++)
			dst[i * dst_step] = src[i * src_step];
		break;
	case 2:
		for (uint64_t i = 0; i < n; i++)
			memcpy(dst + i * dst_step, src + i * src_step, 2);
		break;
	case 4:
		for (uint64_t i = 0; i < n; i++)
			memcpy(dst + i * dst_step, src + i * src_step, 4);
		break;
	default:
		for (uint64_t i = 0; i < n; i++)
			memcpy(dst + i * dst_step, src + i * src_step, 8);
	}
}

#define ROW_CONVERT(from, to, from_t, to_t, one)                                                   \
	static void row_##from##_to_##to(const struct walk *w, uint8_t *dst, uint64_t dst_step,    \
		const uint8_t *src, uint64_t src_step, uint64_t n)                                 \
	{                                                                                          \
		uint64_t i;                                                                        \
                                                                                                   \
		if (dst_step == w->dst_size && src_step == w->src_size) {                          \
			crpc_tensor_##from##_to_##to((void *)dst, (const void *)src, n);           \
			return;                                                                    \
		}                                                                                  \
		for (i = 0; i < n; i++)                                                            \
			*(to_t *)(void *)(dst + i * dst_step) =                                    \
				one(*(const from_t *)(const void *)(src + i * src_step));          \
	}

ROW_CONVERT(f32, bf16, float, uint16_t, crpc_tensor_bf16_of)
ROW_CONVERT(f32, f16, float, uint16_t, crpc_tensor_f16_of)
ROW_CONVERT(bf16, f32, uint16_t, float, crpc_tensor_of_bf16)
ROW_CONVERT(f16, f32, uint16_t, float, crpc_tensor_of_f16)

/* Neighbours apart, so that the compiler makes vectors of them. */
#define ROW_AXPY(type)                                                                             \
	static void row_axpy_##type(const struct walk *w, uint8_t *dst, uint64_t dst_step,         \
		const uint8_t *src, uint64_t src_step, uint64_t n)                                 \
	{                                                                                          \
		type *restrict y = (void *)dst;                                                    \
		const type *restrict x = (const void *)src;                                        \
		uint64_t i, ys = dst_step / sizeof(type), xs = src_step / sizeof(type);            \
		type a = (type)w->a;                                                               \
                                                                                                   \
		if (ys == 1 && xs == 1) {                                                          \
			for (i = 0; i < n; i++)                                                    \
				y[i] = a * x[i] + y[i];                                            \
			return;                                                                    \
		}                                                                                  \
		for (i = 0; i < n; i++)                                                            \
			y[i * ys] = a * x[i * xs] + y[i * ys];                                     \
	}

#define ROW_SCALE(type)                                                                            \
	static void row_scale_##type(const struct walk *w, uint8_t *dst, uint64_t dst_step,        \
		const uint8_t *src, uint64_t src_step, uint64_t n)                                 \
	{                                                                                          \
		type *y = (void *)dst;                                                             \
		uint64_t i, ys = dst_step / sizeof(type);                                          \
		type a = (type)w->a;                                                               \
                                                                                                   \
		for (i = 0; i < n; i++)                                                            \
			y[i * ys] *= a;                                                            \
	}

ROW_AXPY(float)
ROW_AXPY(double)
ROW_SCALE(float)
ROW_SCALE(double)

/* ---- operations ---- */

static int
check_shapes(const struct crpc_tensor *dst, const struct crpc_tensor *src)
{
	char d[CRPC_TENSOR_TEXT_MAX], s[CRPC_TENSOR_TEXT_MAX];

	if (crpc_tensor_same_shape(dst, src))
		return 0;
	return crpc_fail(-EINVAL, "tensor: expected the same shape, found %s and %s",
		crpc_tensor_text(dst, d, sizeof(d)), crpc_tensor_text(src, s, sizeof(s)));
}

static int
refuse_types(const char *what, const struct crpc_tensor *dst, const struct crpc_tensor *src)
{
	return crpc_fail(-ENOTSUP, "tensor: cannot %s %s and %s", what,
		crpc_tensor_dtype_name(dst->dtype), crpc_tensor_dtype_name(src->dtype));
}

static void
apply(const struct crpc_tensor *dst, void *dst_ptr, const struct crpc_tensor *src,
	const void *src_ptr, double a, row_fn row)
{
	struct walk w;

	if (dst->length == 0)
		return;
	w.a = a;
	walk_init(&w, dst, src);
	walk_run(&w, dst_ptr, src_ptr, row);
}

static row_fn
row_of_copy(uint32_t to, uint32_t from)
{
	static const row_fn rows[CRPC_TENSOR_F64 + 1][CRPC_TENSOR_F64 + 1] = {
		[CRPC_TENSOR_F32][CRPC_TENSOR_BF16] = row_f32_to_bf16,
		[CRPC_TENSOR_F32][CRPC_TENSOR_F16] = row_f32_to_f16,
		[CRPC_TENSOR_BF16][CRPC_TENSOR_F32] = row_bf16_to_f32,
		[CRPC_TENSOR_F16][CRPC_TENSOR_F32] = row_f16_to_f32,
	};

	if (to == from)
		return row_copy;
	return from < CRPC_DIM(rows) && to < CRPC_DIM(rows) ? rows[from][to] : NULL;
}

int
crpc_tensor_copy(const struct crpc_tensor *dst, void *dst_ptr, const struct crpc_tensor *src,
	const void *src_ptr)
{
	row_fn row = row_of_copy(dst->dtype, src->dtype);
	int rc = check_shapes(dst, src);

	if (rc != 0)
		return rc;
	if (row == NULL)
		return refuse_types("convert between", dst, src);
	apply(dst, dst_ptr, src, src_ptr, 0, row);
	return 0;
}

int
crpc_tensor_scale(const struct crpc_tensor *y, void *y_ptr, double a)
{
	if (y->dtype != CRPC_TENSOR_F32 && y->dtype != CRPC_TENSOR_F64)
		return refuse_types("scale", y, y);
	apply(y, y_ptr, y, y_ptr, a,
		y->dtype == CRPC_TENSOR_F32 ? row_scale_float : row_scale_double);
	return 0;
}

int
crpc_tensor_axpy(const struct crpc_tensor *y, void *y_ptr, double a, const struct crpc_tensor *x,
	const void *x_ptr)
{
	int rc = check_shapes(y, x);

	if (rc != 0)
		return rc;
	if (x->dtype != y->dtype || (y->dtype != CRPC_TENSOR_F32 && y->dtype != CRPC_TENSOR_F64))
		return refuse_types("add", y, x);
	apply(y, y_ptr, x, x_ptr, a,
		y->dtype == CRPC_TENSOR_F32 ? row_axpy_float : row_axpy_double);
	return 0;
}
