/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops here make at most eight turns. Unrolled and made vectors of, they would be four times as
 * much code, and fetching code is what a message costs that comes now and then.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O2", "no-tree-vectorize")
#endif

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_tensor_batch.h"

#define ELEMS_MAX_DEFAULT (UINT64_C(1) << 30)
#define ANY               UINT8_MAX /* number of arrays that is not checked */

struct op {
	crpc_tensor_op_fn fn;
	void *ctx;
	uint8_t nin, nout;
};

/* What every message needs lies together in front: between two messages the caches forget it. */
struct crpc_tensor_runner {
	uint64_t elems_max;
	struct crpc_tensor_space space;
	struct crpc_tensor_segment segment[CRPC_TENSOR_SEGMENTS_MAX];
	struct op user[CRPC_TENSOR_BATCH_OPS_MAX];
	/* The one copy of the message that is looked at. */
	uint8_t bytes[CRPC_TENSOR_BATCH_BYTES_MAX] crpc_aligned(8);
};

/* A message that was found to be one. */
struct batch {
	const struct crpc_tensor_batch_head *head;
	const struct crpc_tensor *t;
	const struct crpc_tensor_op *op;
};

/* What every runner has. */
static int
op_none(void *ctx, const struct crpc_tensor_call *call)
{
	return 0;
}

static const struct op none = {op_none, NULL, ANY, ANY};

/* The operation of that code, or NULL. */
static const struct op *
find_op(const struct crpc_tensor_runner *r, uint32_t code)
{
	const struct op *op = NULL;

	if (code == CRPC_TENSOR_OP_NONE)
		op = &none;
	else if (code >= CRPC_TENSOR_OP_USER && code - CRPC_TENSOR_OP_USER < CRPC_DIM(r->user))
		op = &r->user[code - CRPC_TENSOR_OP_USER];
	return op != NULL && op->fn != NULL ? op : NULL;
}

/* True if it takes that many arrays. */
static inline bool
takes(const struct op *op, const struct crpc_tensor_op *in)
{
	return (op->nin == ANY || op->nin == in->nin) && (op->nout == ANY || op->nout == in->nout);
}

/* ---- life ---- */

struct crpc_tensor_runner *
crpc_tensor_runner_create(const struct crpc_tensor_runner_conf *conf)
{
	const struct crpc_tensor_space *offered = conf->offered;
	struct crpc_tensor_runner *r;

	if (offered != NULL && offered->count > CRPC_TENSOR_SEGMENTS_MAX)
		return crpc_null(
			crpc_fail(-EINVAL, "tensor: %u segments offered: expected at most %d",
				offered->count, CRPC_TENSOR_SEGMENTS_MAX));
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return crpc_null(crpc_fail(
			-ENOMEM, "tensor: no memory for a runner of %zu bytes", sizeof(*r)));
	r->elems_max = conf->elems_max != 0 ? conf->elems_max : ELEMS_MAX_DEFAULT;
	r->space.segment = r->segment;
	r->space.count = offered != NULL && offered->count > 1 ? offered->count : 1;
	for (uint32_t i = 1; i < r->space.count; i++)
		r->segment[i] = offered->segment[i];
	return r;
}

void
crpc_tensor_runner_free(struct crpc_tensor_runner *r)
{
	free(r);
}

int
crpc_tensor_runner_add(struct crpc_tensor_runner *r, uint32_t code, uint32_t nin, uint32_t nout,
	crpc_tensor_op_fn fn, void *ctx)
{
	struct op *op;

	if (code < CRPC_TENSOR_OP_USER || code - CRPC_TENSOR_OP_USER >= CRPC_DIM(r->user) ||
		nin > CRPC_TENSOR_OP_ARGS_MAX || nout > CRPC_TENSOR_OP_ARGS_MAX - nin)
		return crpc_fail(-EINVAL,
			"tensor: operation %u with %u inputs and %u outputs: expected %d to %d "
			"with at most %d arrays",
			code, nin, nout, CRPC_TENSOR_OP_USER,
			(int)(CRPC_TENSOR_OP_USER + CRPC_DIM(r->user) - 1),
			CRPC_TENSOR_OP_ARGS_MAX);
	op = &r->user[code - CRPC_TENSOR_OP_USER];
	if (op->fn != NULL)
		return crpc_fail(-EEXIST, "tensor: operation %u is there already", code);
	*op = (struct op){fn, ctx, (uint8_t)nin, (uint8_t)nout};
	return 0;
}

/* ---- running ---- */

/* Copy the message, and find its parts. */
static int
take_batch(struct crpc_tensor_runner *r, const void *bytes, uint32_t len, struct batch *b)
{
	const struct crpc_tensor_batch_head *head = (const void *)r->bytes;

	if (len < sizeof(*head) || len > sizeof(r->bytes))
		return crpc_fail(-EPROTO, "tensor: a batch of %u bytes: expected %zu to %zu", len,
			sizeof(*head), CRPC_TENSOR_BATCH_BYTES_MAX);
	memcpy(r->bytes, bytes, len);
	/* The compiler must not read the other side's bytes again in place of the copy. */
	__asm__ __volatile__("" : : "r"(r->bytes) : "memory");
	if (head->magic != CRPC_TENSOR_BATCH_MAGIC || head->version != CRPC_TENSOR_BATCH_VERSION)
		return crpc_fail(-EPROTO,
			"tensor: batch with magic 0x%x version %u: expected 0x%x version %u",
			head->magic, head->version, CRPC_TENSOR_BATCH_MAGIC,
			CRPC_TENSOR_BATCH_VERSION);
	if ((head->flags & ~CRPC_TENSOR_BATCH_STOP) != 0 || head->zero != 0 ||
		head->ntensors > CRPC_TENSOR_BATCH_TENSORS_MAX ||
		head->nops > CRPC_TENSOR_BATCH_OPS_MAX ||
		len != CRPC_TENSOR_BATCH_BYTES(head->ntensors, head->nops))
		return crpc_fail(-EPROTO,
			"tensor: batch of %u bytes with flags 0x%x, %u arrays and %u operations: "
			"expected %zu bytes and flag 0x%x at most",
			len, head->flags, head->ntensors, head->nops,
			CRPC_TENSOR_BATCH_BYTES(head->ntensors, head->nops),
			CRPC_TENSOR_BATCH_STOP);
	b->head = head;
	b->t = (const void *)(r->bytes + CRPC_TENSOR_BATCH_BYTES(0, 0));
	b->op = (const void *)(r->bytes + CRPC_TENSOR_BATCH_BYTES(head->ntensors, 0));
	return 0;
}

/* One array by itself. */
static inline int
take_arg(const struct crpc_tensor_runner *r, const struct crpc_tensor *t, bool written)
{
	int rc = crpc_tensor_check(t, &r->space, written ? CRPC_TENSOR_WRITE : 0);

	if (rc == 0 && crpc_tensor_elems(t) > r->elems_max)
		return crpc_fail(-E2BIG, "tensor: %llu elements: this runner takes %llu",
			(unsigned long long)crpc_tensor_elems(t), (unsigned long long)r->elems_max);
	if (rc == 0 && written && t->segment != 0)
		return crpc_fail(
			-EACCES, "tensor: output in segment %u, which is for reading", t->segment);
	return rc;
}

/* Whether some byte may belong to both. */
static inline bool
overlap(const struct crpc_tensor *a, const struct crpc_tensor *b)
{
	return a->segment == b->segment && a->length != 0 && b->length != 0 &&
		a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

/* No output may meet another array: the code would read what it has just written. */
static inline int
check_apart(const struct crpc_tensor_call *call)
{
	for (uint32_t i = call->nin; i < call->nin + call->nout; i++) {
		for (uint32_t k = 0; k < i; k++)
			if (overlap(call->t[i], call->t[k]))
				return crpc_fail(-ENOTUNIQ,
					"tensor: arrays %u and %u of an operation overlap, and one "
					"is written",
					k, i);
	}
	return 0;
}

/* An operation by itself: known, and with as many arrays as it takes, all of them in the batch. */
static inline int
take_op(const struct op *op, const struct batch *b, const struct crpc_tensor_op *in)
{
	uint32_t n = (uint32_t)in->nin + in->nout;

	if (op == NULL)
		return crpc_fail(-ENOSYS, "tensor: operation %u is unknown", in->code);
	if (n > CRPC_TENSOR_OP_ARGS_MAX || !takes(op, in))
		return crpc_fail(-EINVAL,
			"tensor: operation %u with %u inputs and %u outputs: expected %d and %d, "
			"255 for any, %d at most",
			in->code, in->nin, in->nout, op->nin, op->nout, CRPC_TENSOR_OP_ARGS_MAX);
	for (uint32_t i = 0; i < CRPC_TENSOR_OP_ARGS_MAX; i++)
		if (i < n ? in->arg[i] >= b->head->ntensors : in->arg[i] != 0)
			return crpc_fail(-EINVAL,
				"tensor: operation %u names arrays %u %u %u %u: the batch has %u",
				in->code, in->arg[0], in->arg[1], in->arg[2], in->arg[3],
				b->head->ntensors);
	return 0;
}

/* Check one operation and all that it names, and call its code. */
static int
run_op(const struct crpc_tensor_runner *r, const struct batch *b, const struct crpc_tensor_op *in,
	uint32_t peer)
{
	struct crpc_tensor_call call = {.code = in->code,
		.peer = peer,
		.nin = in->nin,
		.nout = in->nout,
		.value = in->value};
	const struct op *op = find_op(r, in->code);
	int rc = take_op(op, b, in);

	for (uint32_t i = 0; rc == 0 && i < call.nin + call.nout; i++) {
		call.t[i] = &b->t[in->arg[i]];
		rc = take_arg(r, call.t[i], i >= call.nin);
		if (rc == 0)
			call.ptr[i] = crpc_tensor_ptr(call.t[i], &r->space);
	}
	if (rc == 0)
		rc = check_apart(&call);
	if (rc != 0)
		return rc;
	rc = op->fn(op->ctx, &call);
	return rc <= 0 && rc >= -4095 ? rc : -EIO;
}

int
crpc_tensor_runner_run(struct crpc_tensor_runner *r, const void *bytes, uint32_t len, void *block,
	uint64_t size, uint32_t peer, int32_t *status)
{
	struct batch b = {0};
	bool canceled = false;
	int rc = take_batch(r, bytes, len, &b);

	if (rc != 0)
		return rc;
	r->segment[0] = (struct crpc_tensor_segment){block, size};
	for (uint32_t i = 0; i < b.head->nops; i++) {
		status[i] = canceled ? -ECANCELED : run_op(r, &b, &b.op[i], peer);
		canceled = status[i] != 0 && (b.head->flags & CRPC_TENSOR_BATCH_STOP) != 0;
	}
	r->segment[0] = (struct crpc_tensor_segment){NULL, 0};
	return b.head->nops;
}
