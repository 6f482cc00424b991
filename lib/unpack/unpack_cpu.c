/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine "cpu": the work is done in submit(), and done() always returns 0.
 *
 * Small jobs are copied through the caches by memcpy(), which picks its own vectors; large ones go
 * around them with 32-byte stores, where the CPU has these: then the destination's lines are not
 * read only to be overwritten, and what the caches hold stays.
 */
#include "unpack_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_dma.h"
#include "crpc_tensor_convert.h"

/* Bytes to ask for ahead: a page is fetched before its turn comes. */
#define AHEAD 1024

struct cpu {
	uint64_t stream_bytes; /* UINT64_MAX: the CPU has no such stores. */
	uint64_t job;
};

#if defined(__x86_64__)

#include <immintrin.h>

static bool
stream_usable(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2");
}

/* The caller orders it before what it stores later: crpc_dma_wc_flush(). */
__attribute__((target("avx2"))) static void
stream(void *dst, const void *src, size_t len)
{
	size_t to_line = -(uintptr_t)dst & 63, head = crpc_min(to_line, len);
	const uint8_t *s = (const uint8_t *)src + head;
	uint8_t *d = (uint8_t *)dst + head;
	__m256i a, b;

	memcpy(dst, src, head);
	for (len -= head; len >= 64; s += 64, d += 64, len -= 64) {
		_mm_prefetch((const char *)s + AHEAD, _MM_HINT_NTA);
		a = _mm256_loadu_si256((const __m256i *)s);
		b = _mm256_loadu_si256((const __m256i *)(s + 32));
		_mm256_stream_si256((__m256i *)d, a);
		_mm256_stream_si256((__m256i *)(d + 32), b);
	}
	memcpy(d, s, len);
}

#else

#define stream          memcpy
#define stream_usable() false

#endif

static int
cpu_create(const struct crpc_unpack_conf *conf, void **state)
{
	struct cpu *cpu = calloc(1, sizeof(*cpu));

	if (cpu == NULL)
		return -ENOMEM;
	cpu->stream_bytes = stream_usable() ? conf->stream_bytes : UINT64_MAX;
	*state = cpu;
	return 0;
}

static void
convert(const struct crpc_unpack_desc *d)
{
	size_t n = d->len / crpc_unpack_elem(d->op, true);

	if (d->op == CRPC_UNPACK_F32_TO_BF16)
		crpc_tensor_f32_to_bf16(d->dst, d->src, n);
	else if (d->op == CRPC_UNPACK_BF16_TO_F32)
		crpc_tensor_bf16_to_f32(d->dst, d->src, n);
	else if (d->op == CRPC_UNPACK_F32_TO_F16)
		crpc_tensor_f32_to_f16(d->dst, d->src, n);
	else
		crpc_tensor_f16_to_f32(d->dst, d->src, n);
}

static int
cpu_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job)
{
	struct cpu *cpu = state;
	uint64_t bytes = 0;
	bool around;

	for (uint32_t i = 0; i < n; i++)
		bytes += desc[i].len;
	around = bytes >= cpu->stream_bytes;
	for (uint32_t i = 0; i < n; i++) {
		if (desc[i].len == 0)
			continue;
		if (desc[i].op != CRPC_UNPACK_COPY)
			convert(&desc[i]);
		else if (around)
			stream(desc[i].dst, desc[i].src, desc[i].len);
		else
			memcpy(desc[i].dst, desc[i].src, desc[i].len);
	}
	if (around)
		crpc_dma_wc_flush();
	*job = ++cpu->job;
	return 0;
}

const struct crpc_unpack_ops __crpc_unpack_cpu = {
	.name = "cpu",
	.flags = CRPC_UNPACK_CAN_CONVERT,
	.create = cpu_create,
	.free = free,
	.submit = cpu_submit,
};
