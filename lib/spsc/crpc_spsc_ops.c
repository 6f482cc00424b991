/* SPDX-License-Identifier: BSD-3-Clause */
/* The variants behind the run-time handle. OPS() makes the seven functions of one variant. */
#include "crpc_spsc.h"
#include "crpc_spsc_inline.h"

#define OPS(name, variant)                                                                         \
	static uint32_t name##_enqueue_burst(                                                      \
		struct crpc_spsc_prod *p, const void *msgs, uint32_t n)                            \
	{                                                                                          \
		return crpc_spsc_inline_enqueue_burst(p, variant, p->esize, msgs, n);              \
	}                                                                                          \
	static uint32_t name##_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first)      \
	{                                                                                          \
		return crpc_spsc_inline_reserve(p, variant, p->esize, want, first);                \
	}                                                                                          \
	static void name##_commit(struct crpc_spsc_prod *p, uint32_t n)                            \
	{                                                                                          \
		crpc_spsc_inline_commit(p, variant, p->esize, n);                                  \
	}                                                                                          \
	static void name##_flush(struct crpc_spsc_prod *p)                                         \
	{                                                                                          \
		crpc_spsc_inline_flush(p, variant);                                                \
	}                                                                                          \
	static uint32_t name##_dequeue_burst(struct crpc_spsc_cons *c, void *msgs, uint32_t n)     \
	{                                                                                          \
		return crpc_spsc_inline_dequeue_burst(c, variant, c->esize, msgs, n);              \
	}                                                                                          \
	static uint32_t name##_peek(struct crpc_spsc_cons *c, uint32_t want, void **first)         \
	{                                                                                          \
		return crpc_spsc_inline_peek(c, variant, c->esize, want, first);                   \
	}                                                                                          \
	static void name##_release(struct crpc_spsc_cons *c)                                       \
	{                                                                                          \
		crpc_spsc_inline_release(c, variant, c->esize);                                    \
	}

OPS(lamport, CRPC_SPSC_LAMPORT)
OPS(fastforward, CRPC_SPSC_FASTFORWARD)
OPS(fastforward_aligned, CRPC_SPSC_FASTFORWARD_ALIGNED)
OPS(onesided, CRPC_SPSC_ONESIDED)
OPS(onesided_aligned, CRPC_SPSC_ONESIDED_ALIGNED)

#define TABLE(name)                                                                                \
	{                                                                                          \
		name##_enqueue_burst, name##_reserve, name##_commit, name##_flush,                 \
			name##_dequeue_burst, name##_peek, name##_release                          \
	}

const struct crpc_spsc_ops __crpc_spsc_ops[CRPC_SPSC_VARIANTS] = {
	[CRPC_SPSC_LAMPORT] = TABLE(lamport),
	[CRPC_SPSC_FASTFORWARD] = TABLE(fastforward),
	[CRPC_SPSC_FASTFORWARD_ALIGNED] = TABLE(fastforward_aligned),
	[CRPC_SPSC_ONESIDED] = TABLE(onesided),
	[CRPC_SPSC_ONESIDED_ALIGNED] = TABLE(onesided_aligned),
};
