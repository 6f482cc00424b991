/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEAK_ATOMIC_H
#define WEAK_ATOMIC_H

/**
 * @file
 * Included before each source of the tested library (-include): its atomic accesses and its memory
 * copies call the model of weak.h instead of the machine. Each access is a site, listed in the
 * section weak_sites, whether it runs or not. Plain accesses arrive by -fsanitize=thread, whose
 * calls weak.c answers. The library itself is unchanged.
 */

#include <stdbool.h>
#include <string.h>

#include "crpc_atomic.h"
#include "weak.h"

#undef crpc_load_relaxed
#undef crpc_load_acquire
#undef crpc_load_seq_cst
#undef crpc_store_relaxed
#undef crpc_store_release
#undef crpc_fetch_add_relaxed
#undef crpc_fetch_add_acq_rel
#undef crpc_fetch_or_acq_rel
#undef crpc_fetch_and_acq_rel
#undef crpc_exchange_acq_rel
#undef crpc_exchange_seq_cst
#undef crpc_cas_acq_rel

/* It is not the sanitizer's library that is called: no code is left out for its sake. */
#undef __SANITIZE_THREAD__

/* A site within an argument of another one hides it. */
#pragma GCC diagnostic ignored "-Wshadow"

#define WEAK_SITE(orders)                                                                          \
	static struct weak_site weak_here = {__FILE__, __func__, __LINE__, orders};                \
	static struct weak_site *const weak_ref                                                    \
		__attribute__((section("weak_sites"), used)) = &weak_here
/* The type without _Atomic and const. */
#define WEAK_TYPE(p) __typeof__((void)0, *(p))

#define WEAK_LOAD(p, orders)                                                                       \
	__extension__({                                                                            \
		WEAK_SITE(orders);                                                                 \
		WEAK_TYPE(p) weak_v;                                                               \
		weak_load(&weak_here, (p), &weak_v, sizeof(weak_v));                               \
		weak_v;                                                                            \
	})
#define WEAK_STORE(p, v, orders)                                                                   \
	__extension__({                                                                            \
		WEAK_SITE(orders);                                                                 \
		WEAK_TYPE(p) weak_v = (v);                                                         \
		weak_store(&weak_here, (p), &weak_v, sizeof(weak_v));                              \
	})
#define WEAK_RMW(p, v, orders, op)                                                                 \
	__extension__({                                                                            \
		WEAK_SITE(orders);                                                                 \
		WEAK_TYPE(p) weak_v = (v);                                                         \
		weak_rmw(&weak_here, (p), &weak_v, sizeof(weak_v), op);                            \
		weak_v;                                                                            \
	})
#define WEAK_CAS(p, expected, v, orders)                                                           \
	__extension__({                                                                            \
		WEAK_SITE(orders);                                                                 \
		WEAK_TYPE(p) weak_v = (v);                                                         \
		weak_cas(&weak_here, (p), (expected), &weak_v, sizeof(weak_v));                    \
	})

#define crpc_load_relaxed(p) WEAK_LOAD(p, 0)
#define crpc_load_acquire(p) WEAK_LOAD(p, WEAK_ACQUIRE)
#define crpc_load_seq_cst(p) WEAK_LOAD(p, WEAK_ACQUIRE | WEAK_SEQ_CST)
#define crpc_store_relaxed(p, v) WEAK_STORE(p, v, 0)
#define crpc_store_release(p, v) WEAK_STORE(p, v, WEAK_RELEASE)
#define crpc_fetch_add_relaxed(p, v) WEAK_RMW(p, v, 0, WEAK_ADD)
#define crpc_fetch_add_acq_rel(p, v) WEAK_RMW(p, v, WEAK_ACQUIRE | WEAK_RELEASE, WEAK_ADD)
#define crpc_fetch_or_acq_rel(p, v) WEAK_RMW(p, v, WEAK_ACQUIRE | WEAK_RELEASE, WEAK_OR)
#define crpc_fetch_and_acq_rel(p, v) WEAK_RMW(p, v, WEAK_ACQUIRE | WEAK_RELEASE, WEAK_AND)
#define crpc_exchange_acq_rel(p, v) WEAK_RMW(p, v, WEAK_ACQUIRE | WEAK_RELEASE, WEAK_SET)
#define crpc_exchange_seq_cst(p, v)                                                                \
	WEAK_RMW(p, v, WEAK_ACQUIRE | WEAK_RELEASE | WEAK_SEQ_CST, WEAK_SET)
#define crpc_cas_acq_rel(p, expected, v) WEAK_CAS(p, expected, v, WEAK_ACQUIRE | WEAK_RELEASE)

#define memcpy(to, from, n) weak_memcpy(to, from, n)
#define memset(to, byte, n) weak_memset(to, byte, n)

#endif
