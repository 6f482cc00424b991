/* SPDX-License-Identifier: BSD-3-Clause */
/* The variants behind the run-time handle. OPS() makes the seven functions of one variant. */
#include <errno.h>

#include "crpc_spsc.h"
#include "crpc_spsc_fastforward.h"
#include "crpc_spsc_lamport.h"
#include "crpc_spsc_onesided.h"

/* What stands between the end and the other arguments: lamport has no packing. */
#define PLAIN(end)   (end)->esize
#define PACKED(end)  (end)->esize, CRPC_SPSC_PACKED
#define ALIGNED(end) (end)->esize, CRPC_SPSC_ALIGNED

/* lamport's commit and release need no size. */
#define WITH(...) , __VA_ARGS__
#define WITHOUT(...)

#define OPS(name, calls, sig, opt)                                                                 \
	static uint32_t name##_enqueue_burst(                                                      \
		struct crpc_spsc_prod *p, const void *msgs, uint32_t n)                            \
	{                                                                                          \
		return crpc_spsc_##calls##_enqueue_burst(p, sig(p), msgs, n);                      \
	}                                                                                          \
	static uint32_t name##_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first)      \
	{                                                                                          \
		return crpc_spsc_##calls##_reserve(p, sig(p), want, first);                        \
	}                                                                                          \
	static void name##_commit(struct crpc_spsc_prod *p, uint32_t n)                            \
	{                                                                                          \
		crpc_spsc_##calls##_commit(p opt(sig(p)), n);                                      \
	}                                                                                          \
	static uint32_t name##_dequeue_burst(struct crpc_spsc_cons *c, void *msgs, uint32_t n)     \
	{                                                                                          \
		return crpc_spsc_##calls##_dequeue_burst(c, sig(c), msgs, n);                      \
	}                                                                                          \
	static uint32_t name##_peek(struct crpc_spsc_cons *c, uint32_t want, void **first)         \
	{                                                                                          \
		return crpc_spsc_##calls##_peek(c, sig(c), want, first);                           \
	}                                                                                          \
	static void name##_release(struct crpc_spsc_cons *c)                                       \
	{                                                                                          \
		crpc_spsc_##calls##_release(c opt(sig(c)));                                        \
	}

OPS(lamport, lamport, PLAIN, WITHOUT)
OPS(fastforward, fastforward, PACKED, WITH)
OPS(fastforward_aligned, fastforward, ALIGNED, WITH)
OPS(onesided, onesided, PACKED, WITH)
OPS(onesided_aligned, onesided, ALIGNED, WITH)

#define TABLE(name, calls)                                                                         \
	{                                                                                          \
		name##_enqueue_burst, name##_reserve, name##_commit, crpc_spsc_##calls##_flush,    \
			name##_dequeue_burst, name##_peek, name##_release                          \
	}

const struct crpc_spsc_ops __crpc_spsc_ops[CRPC_SPSC_VARIANTS] = {
	[CRPC_SPSC_LAMPORT] = TABLE(lamport, lamport),
	[CRPC_SPSC_FASTFORWARD] = TABLE(fastforward, fastforward),
	[CRPC_SPSC_FASTFORWARD_ALIGNED] = TABLE(fastforward_aligned, fastforward),
	[CRPC_SPSC_ONESIDED] = TABLE(onesided, onesided),
	[CRPC_SPSC_ONESIDED_ALIGNED] = TABLE(onesided_aligned, onesided),
};

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
