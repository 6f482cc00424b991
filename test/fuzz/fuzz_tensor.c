/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors and batches that anybody may have written. Whatever the bytes are: a descriptor that
 * the checker lets pass has all its elements in the segment, and a batch writes nothing outside of
 * its block.
 *
 * Input: a byte of flags, then a descriptor or a batch.
 */
#include <errno.h>
#include <string.h>

#include "crpc_tensor_batch.h"
#include "fuzz.h"

#define SIZE  1024
#define GUARD 64

enum {
	BATCH = 1,   /* The bytes are a batch. */
	MEND = 2,    /* The heads of the batch and its descriptors are made right first. */
	NO_BLOCK = 4, /* It comes without a block. */
};

static crpc_aligned(64) uint8_t memory[SIZE + 2 * GUARD];
static crpc_aligned(64) uint8_t offered_bytes[64];
static const struct crpc_tensor_segment offered[] = {
		{NULL, 0}, {offered_bytes, sizeof(offered_bytes)}};

/* Read every element where there are few, and the outermost ones where there are many. */
static void
touch(const struct crpc_tensor *t, const struct crpc_tensor_space *space)
{
	const uint8_t *base = space->segment[t->segment].base, *last;
	uint32_t size = crpc_tensor_dtype_size(t->dtype), d;
	uint64_t off = t->offset;

	if (t->length == 0)
		return;
	for (d = 0; d < t->rank; d++)
		off += (t->shape[d] - 1) * (uint64_t)t->stride[d] * size;
	last = base + off + size - 1;
	fuzz_check(off + size == t->offset + t->length);
	fuzz_check(off + size <= space->segment[t->segment].size);
	fuzz_check(t->offset % size == 0 && off % size == 0);
	fuzz_check((base[t->offset] | *last | 1) != 0);
}

static void
try_descriptor(const uint8_t *data, size_t size)
{
	static const struct crpc_tensor_segment segments[] = {
			{memory, sizeof(memory)}, {offered_bytes, sizeof(offered_bytes)}};
	static const struct crpc_tensor_space space = {segments, 2};
	uint8_t bytes[sizeof(struct crpc_tensor)] = {0};
	struct crpc_tensor t, slice;

	memcpy(bytes, data, crpc_min(size, sizeof(bytes)));
	if (crpc_tensor_take(&t, bytes, &space, 0) == 0) {
		touch(&t, &space);
		if (t.rank != 0 && crpc_tensor_slice(&slice, &t, 0, t.shape[0] / 2,
						   t.shape[0] - t.shape[0] / 2, 1) == 0) {
			fuzz_check(crpc_tensor_check(&slice, &space, 0) == 0);
			touch(&slice, &space);
		}
	} else {
		fuzz_check(crpc_tensor_check(&t, &space, CRPC_TENSOR_WRITE) != 0);
	}
}

/* So that what is behind the first checks is reached. */
static void
mend(uint8_t *bytes, size_t *size)
{
	struct crpc_tensor_batch_head *head = (void *)bytes;
	struct crpc_tensor *t = (void *)(bytes + sizeof(*head));

	if (*size < sizeof(*head))
		return;
	head->magic = CRPC_TENSOR_BATCH_MAGIC;
	head->version = CRPC_TENSOR_BATCH_VERSION;
	head->flags &= CRPC_TENSOR_BATCH_STOP;
	head->ntensors %= 8;
	head->nops %= 8;
	head->zero = 0;
	*size = CRPC_TENSOR_BATCH_BYTES(head->ntensors, head->nops);
	for (uint32_t i = 0; i < head->ntensors; i++) {
		t[i].magic = CRPC_TENSOR_MAGIC;
		t[i].version = CRPC_TENSOR_VERSION;
		t[i].zero = 0;
		t[i].zero2 = 0;
	}
}

static int
look(void *ctx, const struct crpc_tensor_call *call)
{
	for (uint32_t i = 0; i < call->nin + call->nout; i++)
		touch(call->t[i], ctx);
	return call->value < 0 ? -1 : 0;
}

static void
try_batch(uint8_t flags, const uint8_t *data, size_t size)
{
	static crpc_aligned(8) uint8_t bytes[CRPC_TENSOR_BATCH_BYTES_MAX + 64];
	const struct crpc_tensor_space offer = {offered, 2};
	const struct crpc_tensor_runner_conf conf = {.offered = &offer, .elems_max = 4096};
	const struct crpc_tensor_segment all[] = {{memory + GUARD, SIZE}, offered[1]};
	struct crpc_tensor_space space = {all, 2};
	struct crpc_tensor_runner *r = crpc_tensor_runner_create(&conf);
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];
	bool block = !(flags & NO_BLOCK);
	int n;

	fuzz_check(r != NULL);
	fuzz_check(crpc_tensor_runner_add(r, 256, 2, 1, look, &space) == 0);
	memset(bytes, 0, sizeof(bytes));
	size = crpc_min(size, sizeof(bytes));
	memcpy(bytes, data, size);
	if (flags & MEND)
		mend(bytes, &size);
	memset(memory, 0x11, sizeof(memory));
	memset(offered_bytes, 0x22, sizeof(offered_bytes));
	n = crpc_tensor_runner_run(r, bytes, (uint32_t)size, block ? memory + GUARD : NULL,
			block ? SIZE : 0, 3, status);
	fuzz_check(n >= 0 || n == -EPROTO);
	fuzz_check(n <= CRPC_TENSOR_BATCH_OPS_MAX);
	for (size_t i = 0; n > 0 && i < (size_t)n; i++)
		fuzz_check(status[i] <= 0 && status[i] >= -4095);
	for (size_t i = 0; i < GUARD; i++)
		fuzz_check(memory[i] == 0x11 && memory[GUARD + SIZE + i] == 0x11 &&
				offered_bytes[i] == 0x22);
	crpc_tensor_runner_free(r);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] & BATCH)
		try_batch(data[0], data + 1, size - 1);
	else
		try_descriptor(data + 1, size - 1);
	return 0;
}
