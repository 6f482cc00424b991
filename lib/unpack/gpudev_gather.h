/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUDEV_GATHER_H
#define GPUDEV_GATHER_H

/**
 * @file
 * What one thread of the kernel does, in what C and CUDA have in common: gpudev_gather.cu compiles
 * it for GPUs, and a test compiles it for the CPU and compares it with the engine "cpu".
 *
 * A descriptor is worked on by all its workers at once: worker k takes the units k, k + workers,
 * and so on, so that neighbours touch neighbouring addresses and their accesses become one.
 */

#include <stdint.h>

#include "crpc_tensor_convert.h"
#include "crpc_unpack.h"

#ifdef __CUDACC__
#define GPUDEV_FN static inline __device__
#else
#define GPUDEV_FN static inline
#endif

/** Threads of a block. */
#define GPUDEV_THREADS 256
/** The kernel's name. */
#define GPUDEV_KERNEL "crpc_gpudev_gather"

/** A piece, with addresses as the device sees them. */
struct gpudev_desc {
	uint64_t src, dst;
	uint32_t len, op;
};

/** The kernel's argument: below 4 KiB, which every GPU takes. */
struct gpudev_args {
	struct gpudev_desc desc[CRPC_UNPACK_DESCS_MAX];
};

/* Memory of any type is read and written by these. */
struct gpudev_16 {
	uint64_t a, b;
} __attribute__((aligned(16), may_alias));
typedef uint32_t __attribute__((may_alias)) gpudev_4;
typedef uint16_t __attribute__((may_alias)) gpudev_2;
typedef uint8_t gpudev_1;
typedef float __attribute__((may_alias)) gpudev_f;

/* dst[i] = fn(src[i]) for this worker's share of n elements. */
#define GPUDEV_EACH(to_type, from_type, dst, src, n, fn)                                           \
	do {                                                                                       \
		to_type *to_ = (to_type *)(uintptr_t)(dst);                                        \
		const from_type *from_ = (const from_type *)(uintptr_t)(src);                      \
		uint64_t i_;                                                                       \
                                                                                                   \
		for (i_ = worker; i_ < (n); i_ += workers)                                         \
			to_[i_] = fn(from_[i_]);                                                   \
	} while (0)
#define GPUDEV_SAME(x) (x)

/*
 * Bytes up to the first address that is aligned at both ends, then units as large as both ends'
 * alignment to each other allows, then the rest.
 */
GPUDEV_FN void
gpudev_copy(uint64_t dst, uint64_t src, uint32_t len, uint32_t worker, uint32_t workers)
{
	uint64_t differ = dst ^ src;
	uint32_t unit = (differ & 15) == 0 ? 16 : (differ & 3) == 0 ? 4 : 1;
	uint32_t head = (uint32_t)(-dst & (unit - 1)), n, tail;

	head = head < len ? head : len;
	n = (len - head) / unit;
	tail = head + n * unit;
	GPUDEV_EACH(gpudev_1, gpudev_1, dst, src, head, GPUDEV_SAME);
	if (unit == 16)
		GPUDEV_EACH(
			struct gpudev_16, struct gpudev_16, dst + head, src + head, n, GPUDEV_SAME);
	else if (unit == 4)
		GPUDEV_EACH(gpudev_4, gpudev_4, dst + head, src + head, n, GPUDEV_SAME);
	else
		GPUDEV_EACH(gpudev_1, gpudev_1, dst + head, src + head, n, GPUDEV_SAME);
	GPUDEV_EACH(gpudev_1, gpudev_1, dst + tail, src + tail, len - tail, GPUDEV_SAME);
}

/** The share of one worker in a descriptor. Conversions are those of lib/tensor, bit for bit. */
GPUDEV_FN void
gpudev_gather(const struct gpudev_desc *d, uint32_t worker, uint32_t workers)
{
	switch (d->op) {
	case CRPC_UNPACK_F32_TO_BF16:
		GPUDEV_EACH(gpudev_2, gpudev_f, d->dst, d->src, d->len / 4, crpc_tensor_bf16_of);
		break;
	case CRPC_UNPACK_BF16_TO_F32:
		GPUDEV_EACH(gpudev_f, gpudev_2, d->dst, d->src, d->len / 2, crpc_tensor_of_bf16);
		break;
	case CRPC_UNPACK_F32_TO_F16:
		GPUDEV_EACH(gpudev_2, gpudev_f, d->dst, d->src, d->len / 4, crpc_tensor_f16_of);
		break;
	case CRPC_UNPACK_F16_TO_F32:
		GPUDEV_EACH(gpudev_f, gpudev_2, d->dst, d->src, d->len / 2, crpc_tensor_of_f16);
		break;
	default:
		gpudev_copy(d->dst, d->src, d->len, worker, workers);
		break;
	}
}

#endif
