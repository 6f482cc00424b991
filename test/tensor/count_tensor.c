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

void counted_init(void);
void counted_take(void);
void counted_batch(void);
void counted_run(void);
void counted_bf16(const struct tensor_convert *v);
void counted_f32(const struct tensor_convert *v);

crpc_noinline void
counted_init(void)
{
	static const uint64_t shape[] = {16, 10, 100};
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_init(&tensor, CRPC_TENSOR_F32, 3, shape, 0, 64) != 0;
}

crpc_noinline void
counted_take(void)
{
	struct crpc_tensor t;
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_take(&t, &tensor, &space, CRPC_TENSOR_WRITE) != 0;
}

/* One array, one operation. */
crpc_noinline void
counted_batch(void)
{
	static const struct crpc_tensor_args args = {.nin = 1};
	uint32_t i;

	for (i = 0; i < ROUNDS; i++) {
		crpc_tensor_batch_init(&batch, 0);
		bad += crpc_tensor_batch_array(&batch, &tensor) != 0;
		bad += crpc_tensor_batch_op(&batch, CRPC_TENSOR_OP_NONE, &args) != 0;
	}
}

crpc_noinline void
counted_run(void)
{
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		bad += crpc_tensor_runner_run(runner, batch.bytes, batch.len, block, sizeof(block),
				       0, status) != 1 ||
		       status[0] != 0;
}

crpc_noinline void
counted_bf16(const struct tensor_convert *v)
{
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		v->f32_to_bf16(half, f32, ELEMS, false);
}

crpc_noinline void
counted_f32(const struct tensor_convert *v)
{
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		v->bf16_to_f32(f32, half, ELEMS, false);
}

static const struct tensor_convert *
variant(const char *name)
{
	uint32_t i;

	for (i = 0; __crpc_tensor_convert[i] != NULL; i++)
		if (strcmp(__crpc_tensor_convert[i]->name, name) == 0 &&
				__crpc_tensor_convert[i]->usable())
			return __crpc_tensor_convert[i];
	return NULL;
}

/* Valgrind knows no AVX-512: that variant is not counted. */
static int
list(void)
{
	printf("init\ntake\nbatch\nrun\nplain_bf16\nplain_f32\n");
	if (variant("avx2") != NULL)
		printf("avx2_bf16\navx2_f32\n");
	return 0;
}

static void
work(const char *name)
{
	const struct tensor_convert *plain = variant("plain"), *avx2 = variant("avx2");

	if (strcmp(name, "init") == 0)
		counted_init();
	else if (strcmp(name, "take") == 0)
		counted_take();
	else if (strcmp(name, "batch") == 0)
		counted_batch();
	else if (strcmp(name, "run") == 0)
		counted_run();
	else if (strcmp(name, "plain_bf16") == 0)
		counted_bf16(plain);
	else if (strcmp(name, "plain_f32") == 0)
		counted_f32(plain);
	else if (strcmp(name, "avx2_bf16") == 0 && avx2 != NULL)
		counted_bf16(avx2);
	else if (strcmp(name, "avx2_f32") == 0 && avx2 != NULL)
		counted_f32(avx2);
	else
		bad++;
}

int
main(int argc, char **argv)
{
	static const struct crpc_tensor_runner_conf conf;
	static const struct crpc_tensor_args args = {.nin = 1};
	static const uint64_t shape[] = {16, 10, 100};

	if (argc != 2)
		return list();
	runner = crpc_tensor_runner_create(&conf);
	if (runner == NULL || crpc_tensor_init(&tensor, CRPC_TENSOR_F32, 3, shape, 0, 64) != 0)
		return 2;
	crpc_tensor_batch_init(&batch, 0);
	crpc_tensor_batch_array(&batch, &tensor);
	crpc_tensor_batch_op(&batch, CRPC_TENSOR_OP_NONE, &args);
	work(argv[1]);
	crpc_tensor_runner_free(runner);
	printf("%s %u\n", argv[1], ROUNDS);
	return bad != 0;
}
