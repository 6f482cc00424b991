/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TENSOR_OPS_H
#define TENSOR_OPS_H

/*
 * Operations for tests of batches, on arrays without gaps: y = x, f32 and bf16 into each other;
 * y = value * y and y = value * x + y of f32.
 */

#include <errno.h>
#include <string.h>

#include "crpc_tensor_batch.h"
#include "crpc_tensor_convert.h"

enum {
	TEST_OP_COPY = CRPC_TENSOR_OP_USER + 50,
	TEST_OP_SCALE,
	TEST_OP_AXPY,
};

static inline int
test_op_copy(void *ctx, const struct crpc_tensor_call *call)
{
	const struct crpc_tensor *x = call->t[0], *y = call->t[1];
	uint64_t n = crpc_tensor_elems(x);

	if (n != crpc_tensor_elems(y) || !crpc_tensor_is_contiguous(x))
		return -EINVAL;
	if (x->dtype == y->dtype)
		memcpy(call->ptr[1], call->ptr[0], x->length);
	else if (x->dtype == CRPC_TENSOR_F32 && y->dtype == CRPC_TENSOR_BF16)
		crpc_tensor_f32_to_bf16(call->ptr[1], call->ptr[0], n);
	else if (x->dtype == CRPC_TENSOR_BF16 && y->dtype == CRPC_TENSOR_F32)
		crpc_tensor_bf16_to_f32(call->ptr[1], call->ptr[0], n);
	else
		return -ENOTSUP;
	return 0;
}

/* AXPY has an input, x; SCALE adds nothing. */
static inline int
test_op_axpy(void *ctx, const struct crpc_tensor_call *call)
{
	const struct crpc_tensor *y = call->t[call->nin];
	const float *x = call->nin != 0 ? call->ptr[0] : NULL;
	float value = (float)call->value, *to = call->ptr[call->nin];

	if (!crpc_tensor_is_contiguous(call->t[0]) ||
		crpc_tensor_elems(y) != crpc_tensor_elems(call->t[0]))
		return -EINVAL;
	if (y->dtype != CRPC_TENSOR_F32 || call->t[0]->dtype != CRPC_TENSOR_F32)
		return -ENOTSUP;
	for (uint64_t i = 0; i < crpc_tensor_elems(y); i++)
		to[i] = x != NULL ? value * x[i] + to[i] : value * to[i];
	return 0;
}

/* True: the runner has them. */
static inline bool
test_ops_add(struct crpc_tensor_runner *r)
{
	return crpc_tensor_runner_add(r, TEST_OP_COPY, 1, 1, test_op_copy, NULL) == 0 &&
	       crpc_tensor_runner_add(r, TEST_OP_SCALE, 0, 1, test_op_axpy, NULL) == 0 &&
	       crpc_tensor_runner_add(r, TEST_OP_AXPY, 1, 1, test_op_axpy, NULL) == 0;
}

#endif
