/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The variants behind the run-time handle. OPS(name, calls, sig, esize) makes the seven functions
 * and the table of one variant and message size; size 0 reads the size from the end.
 */
#include <errno.h>

#include "crpc_spsc.h"
#include "crpc_spsc_fastforward.h"
#include "crpc_spsc_lamport.h"
#include "crpc_spsc_onesided.h"

/* The arguments between the end and the rest: lamport takes a size, the others a packing too. */
#define SIG_LAMPORT(size) (size)
#define SIG_PACKED(size) (size), CRPC_SPSC_PACKED
#define SIG_ALIGNED(size) (size), CRPC_SPSC_ALIGNED

#define SIZE(end, esize_const) ((esize_const) != 0 ? (esize_const) : (end)->esize)

#define OPS(name, calls, sig, commit_args, release_args, size)                                     \
	static uint32_t name##_enqueue_burst(                                                      \
		struct crpc_spsc_prod *p, const void *msgs, uint32_t n)                            \
	{                                                                                          \
		return crpc_spsc_##calls##_enqueue_burst(p, sig(SIZE(p, size)), msgs, n);          \
	}                                                                                          \
	static uint32_t name##_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first)      \
	{                                                                                          \
		return crpc_spsc_##calls##_reserve(p, sig(SIZE(p, size)), want, first);            \
	}                                                                                          \
	static void name##_commit(struct crpc_spsc_prod *p, uint32_t n)                            \
	{                                                                                          \
		crpc_spsc_##calls##_commit(p commit_args(sig(SIZE(p, size))), n);                  \
	}                                                                                          \
	static uint32_t name##_dequeue_burst(struct crpc_spsc_cons *c, void *msgs, uint32_t n)     \
	{                                                                                          \
		return crpc_spsc_##calls##_dequeue_burst(c, sig(SIZE(c, size)), msgs, n);          \
	}                                                                                          \
	static uint32_t name##_peek(struct crpc_spsc_cons *c, uint32_t want, void **first)         \
	{                                                                                          \
		return crpc_spsc_##calls##_peek(c, sig(SIZE(c, size)), want, first);               \
	}                                                                                          \
	static void name##_release(struct crpc_spsc_cons *c)                                       \
	{                                                                                          \
		crpc_spsc_##calls##_release(c release_args(sig(SIZE(c, size))));                   \
	}                                                                                          \
	static const struct crpc_spsc_ops name = {                                                 \
		.enqueue_burst = name##_enqueue_burst,                                             \
		.reserve = name##_reserve,                                                         \
		.commit = name##_commit,                                                           \
		.flush = crpc_spsc_##calls##_flush,                                                \
		.dequeue_burst = name##_dequeue_burst,                                             \
		.peek = name##_peek,                                                               \
		.release = name##_release,                                                         \
	};

/* lamport's commit and release need no size. */
#define WITH(...) , __VA_ARGS__
#define WITHOUT(...)

#define OPS_OF_SIZE(size)                                                                          \
	OPS(lamport_##size, lamport, SIG_LAMPORT, WITHOUT, WITHOUT, size)                          \
	OPS(fastforward_##size, fastforward, SIG_PACKED, WITH, WITH, size)                         \
	OPS(fastforward_aligned_##size, fastforward, SIG_ALIGNED, WITH, WITH, size)                \
	OPS(onesided_##size, onesided, SIG_PACKED, WITH, WITH, size)                               \
	OPS(onesided_aligned_##size, onesided, SIG_ALIGNED, WITH, WITH, size)                      \
	static const struct crpc_spsc_ops *const ops_##size[CRPC_SPSC_VARIANTS] = {                \
		[CRPC_SPSC_LAMPORT] = &lamport_##size,                                             \
		[CRPC_SPSC_FASTFORWARD] = &fastforward_##size,                                     \
		[CRPC_SPSC_FASTFORWARD_ALIGNED] = &fastforward_aligned_##size,                     \
		[CRPC_SPSC_ONESIDED] = &onesided_##size,                                           \
		[CRPC_SPSC_ONESIDED_ALIGNED] = &onesided_aligned_##size,                           \
	};

OPS_OF_SIZE(0)
OPS_OF_SIZE(8)
OPS_OF_SIZE(16)
OPS_OF_SIZE(24)
OPS_OF_SIZE(32)
OPS_OF_SIZE(40)
OPS_OF_SIZE(64)
OPS_OF_SIZE(128)
OPS_OF_SIZE(256)

const struct crpc_spsc_ops *
__crpc_spsc_ops_get(enum crpc_spsc_variant variant, uint32_t esize)
{
	switch (esize) {
	case 8:
		return ops_8[variant];
	case 16:
		return ops_16[variant];
	case 24:
		return ops_24[variant];
	case 32:
		return ops_32[variant];
	case 40:
		return ops_40[variant];
	case 64:
		return ops_64[variant];
	case 128:
		return ops_128[variant];
	case 256:
		return ops_256[variant];
	default:
		return ops_0[variant];
	}
}

int
crpc_spsc_enqueue(struct crpc_spsc_prod *p, const void *msg)
{
	return p->ops->enqueue_burst(p, msg, 1) == 1 ? 0 : -EAGAIN;
}

int
crpc_spsc_dequeue(struct crpc_spsc_cons *c, void *msg)
{
	return c->ops->dequeue_burst(c, msg, 1) == 1 ? 0 : -EAGAIN;
}
