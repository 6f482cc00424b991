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

#include "crpc_log.h"
#include "crpc_tensor_batch.h"

/* The fields are little endian in memory wherever this runs; the head is written in place. */
static struct crpc_tensor_batch_head *
head_of(struct crpc_tensor_batch *b)
{
	return (struct crpc_tensor_batch_head *)(void *)b->bytes;
}

void
crpc_tensor_batch_init(struct crpc_tensor_batch *b, uint32_t flags)
{
	const struct crpc_tensor_batch_head head = {.magic = CRPC_TENSOR_BATCH_MAGIC,
		.version = CRPC_TENSOR_BATCH_VERSION,
		.flags = (uint8_t)flags};

	memcpy(b->bytes, &head, sizeof(head));
	b->len = sizeof(head);
}

int
crpc_tensor_batch_array(struct crpc_tensor_batch *b, const struct crpc_tensor *t)
{
	struct crpc_tensor_batch_head *head = head_of(b);
	size_t ops = head->nops * sizeof(struct crpc_tensor_op);
	uint8_t *at = b->bytes + CRPC_TENSOR_BATCH_BYTES(head->ntensors, 0);

	if (head->ntensors == CRPC_TENSOR_BATCH_TENSORS_MAX)
		return crpc_fail(
			-ENOSPC, "tensor: a batch holds %d arrays", CRPC_TENSOR_BATCH_TENSORS_MAX);
	if (ops != 0) /* they stand behind all arrays */
		memmove(at + sizeof(*t), at, ops);
	memcpy(at, t, sizeof(*t));
	b->len += (uint32_t)sizeof(*t);
	return head->ntensors++;
}

int
crpc_tensor_batch_op(
	struct crpc_tensor_batch *b, uint32_t code, const struct crpc_tensor_args *args)
{
	struct crpc_tensor_batch_head *head = head_of(b);
	struct crpc_tensor_op op = {
		.code = (uint16_t)code, .nin = args->nin, .nout = args->nout, .value = args->value};
	uint32_t n = (uint32_t)args->nin + args->nout;

	if (head->nops == CRPC_TENSOR_BATCH_OPS_MAX)
		return crpc_fail(
			-ENOSPC, "tensor: a batch holds %d operations", CRPC_TENSOR_BATCH_OPS_MAX);
	if (code == 0 || code > UINT16_MAX || n > CRPC_TENSOR_OP_ARGS_MAX)
		return crpc_fail(-EINVAL,
			"tensor: operation %u with %u arrays: expected 1 to %u with at most %d",
			code, n, UINT16_MAX, CRPC_TENSOR_OP_ARGS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		if (args->arg[i] < 0 || args->arg[i] >= head->ntensors)
			return crpc_fail(-EINVAL,
				"tensor: operation names array %d: the batch has %u", args->arg[i],
				head->ntensors);
		op.arg[i] = (uint8_t)args->arg[i];
	}
	memcpy(b->bytes + b->len, &op, sizeof(op));
	b->len += (uint32_t)sizeof(op);
	return head->nops++;
}

uint32_t
crpc_tensor_batch_ops(const struct crpc_tensor_batch *b)
{
	struct crpc_tensor_batch_head head;

	memcpy(&head, b->bytes, sizeof(head));
	return head.nops;
}

int
crpc_tensor_batch_statuses(const void *data, uint32_t len, int32_t *status, uint32_t n)
{
	if (len != n * sizeof(status[0]))
		return crpc_fail(
			-EPROTO, "tensor: an answer of %u bytes: expected %u statuses", len, n);
	if (n != 0)
		memcpy(status, data, len);
	for (uint32_t i = 0; i < n; i++)
		if (status[i] > 0 || status[i] < -4095)
			return crpc_fail(-EPROTO,
				"tensor: status %d of operation %u: expected 0 or an errno",
				status[i], i);
	return 0;
}
