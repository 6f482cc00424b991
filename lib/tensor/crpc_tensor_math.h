/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_MATH_H
#define CRPC_TENSOR_MATH_H

/**
 * @file
 * A few operations on whole arrays of any strides: copy, convert, scale, add.
 *
 *     crpc_tensor_copy(&dst, dst_ptr, &src, src_ptr)      dst = src, converting f32, f16, bf16
 *     crpc_tensor_scale(&y, y_ptr, a)                     y = a * y
 *     crpc_tensor_axpy(&y, y_ptr, a, &x, x_ptr)           y = a * x + y
 *
 * They are what a batch of lib/tensor_ipc can ask for without code of its own, and examples of such
 * code. Dimensions that follow each other without a gap are joined first, so arrays without gaps
 * are one run, and a run of neighbours goes through the vector conversions.
 *
 * Descriptors are checked by the caller, those that are written with CRPC_TENSOR_WRITE; pointers
 * are those of crpc_tensor_ptr(). Written and read arrays must not overlap. Cost is that of the
 * elements, repeated ones counted as often as they appear. Any thread.
 */

#include "crpc_tensor.h"

CRPC_BEGIN_DECLS

/**
 * Copy the elements of one array to another of the same shape.
 *
 * @return
 *   0; -EINVAL: other shapes; -ENOTSUP: types that differ, other than f32 to f16 or bf16 and back.
 */
int crpc_tensor_copy(const struct crpc_tensor *dst, void *dst_ptr, const struct crpc_tensor *src,
	const void *src_ptr);

/**
 * Multiply an array of f32 or f64 by a number.
 *
 * @return
 *   0, or -ENOTSUP: another type.
 */
int crpc_tensor_scale(const struct crpc_tensor *y, void *y_ptr, double a);

/**
 * Add a multiple of one array to another of the same shape and type, f32 or f64.
 *
 * @return
 *   0; -EINVAL: other shapes; -ENOTSUP: another type.
 */
int crpc_tensor_axpy(const struct crpc_tensor *y, void *y_ptr, double a,
	const struct crpc_tensor *x, const void *x_ptr);

CRPC_END_DECLS

#endif
