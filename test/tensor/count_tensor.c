/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work on descriptors for callgrind to count; only counted_*() is collected, and
 * test/golden/instructions.py divides by what is printed behind the case. Conversions count 1,000
 * elements as one.
 */
#include <stdio.h>
#include <string.h>

#include "crpc_tensor_batch.h"
#include "tensor_convert.h"

#define ROUNDS 1000u
#define ELEMS  1000u

static crpc_aligned(64) uint8_t block[65536];
static crpc_aligned(64) float f32[ELEMS];
static crpc_aligned(64) uint16_t half[ELEMS];
static const struct crpc_tensor_segment segments[] = {{block, sizeof(block)}};
static const struct crpc_tensor_space space = {segments, 1};
static struct crpc_tensor tensor;
static struct crpc_tensor_batch batch;
static struct crpc_tensor_runner *runner;
static uint64_t bad;

typedef void counted_fn(const struct tensor_convert *v);

counted_fn counted_init, counted_take, counted_batch, counted_run, counted_bf16, counted_f32;

crpc_noinline void
counted_init(const struct tensor_convert *v)
{
	static const uint64_t shape[] = {16, 10, 100};

	for (uint32_t i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_init(&tensor, CRPC_TENSOR_F32, 3, shape, 0, 64) != 0;
}

crpc_noinline void
counted_take(const struct tensor_convert *v)
{
	struct crpc_tensor t;

	for (uint32_t i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_take(&t, &tensor, &space, CRPC_TENSOR_WRITE) != 0;
}

/* One array, one operation. */
crpc_noinline void
counted_batch(const struct tensor_convert *v)
{
	static const struct crpc_tensor_args args = {.nin = 1};

	for (uint32_t i = 0; i < ROUNDS; i++) {
		crpc_tensor_batch_init(&batch, 0);
		bad += crpc_tensor_batch_array(&batch, &tensor) != 0;
		bad += crpc_tensor_batch_op(&batch, CRPC_TENSOR_OP_NONE, &args) != 0;
	}
}

crpc_noinline void
counted_run(const struct tensor_convert *v)
{
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];

	for (uint32_t i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_runner_run(runner, batch.bytes, batch.len, block, sizeof(block),
				       0, status) != 1 ||
		       status[0] != 0;
}

crpc_noinline void
counted_bf16(const struct tensor_convert *v)
{
	for (uint32_t i = 0; i < ROUNDS; i++)
		v->f32_to_bf16(half, f32, ELEMS, false);
}

crpc_noinline void
counted_f32(const struct tensor_convert *v)
{
	for (uint32_t i = 0; i < ROUNDS; i++)
		v->bf16_to_f32(f32, half, ELEMS, false);
}

static const struct tensor_convert *
variant(const char *name)
{
	for (uint32_t i = 0; __crpc_tensor_convert[i] != NULL; i++)
		if (strcmp(__crpc_tensor_convert[i]->name, name) == 0 &&
				__crpc_tensor_convert[i]->usable())
			return __crpc_tensor_convert[i];
	return NULL;
}

static const struct {
	const char *name;
	counted_fn *fn;
	const char *variant; /* NULL: none */
} cases[] = {
	{"init", counted_init, NULL},
	{"take", counted_take, NULL},
	{"batch", counted_batch, NULL},
	{"run", counted_run, NULL},
	{"plain_bf16", counted_bf16, "plain"},
	{"plain_f32", counted_f32, "plain"},
	{"avx2_bf16", counted_bf16, "avx2"},
	{"avx2_f32", counted_f32, "avx2"},
};

/* Run the named case, or list all of this CPU. */
static void
work(const char *name)
{
	bad += name != NULL;
	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		const struct tensor_convert *v =
			cases[i].variant == NULL ? NULL : variant(cases[i].variant);

		if (cases[i].variant != NULL && v == NULL)
			continue;
		if (name == NULL) {
			puts(cases[i].name);
		} else if (strcmp(name, cases[i].name) == 0) {
			cases[i].fn(v);
			printf("%s %u\n", name, ROUNDS);
			bad--;
		}
	}
}

int
main(int argc, char **argv)
{
	static const struct crpc_tensor_runner_conf conf;
	static const struct crpc_tensor_args args = {.nin = 1};
	static const uint64_t shape[] = {16, 10, 100};

	runner = crpc_tensor_runner_create(&conf);
	if (runner == NULL || crpc_tensor_init(&tensor, CRPC_TENSOR_F32, 3, shape, 0, 64) != 0)
		return 2;
	crpc_tensor_batch_init(&batch, 0);
	crpc_tensor_batch_array(&batch, &tensor);
	crpc_tensor_batch_op(&batch, CRPC_TENSOR_OP_NONE, &args);
	work(argc == 2 ? argv[1] : NULL);
	crpc_tensor_runner_free(runner);
	return bad != 0;
}
