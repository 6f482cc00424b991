/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_ATOMIC_H
#define CRPC_ATOMIC_H

/**
 * @file
 * C11 atomics with the ordering in the name of the access.
 *
 * A word that another thread or process touches is declared `_Atomic` and read or written only by
 * these. There is no standalone fence here on purpose: an ordering that belongs to no access cannot
 * be named, and the thread sanitizer does not follow it. Each acquire says in a comment which
 * release it pairs with ("A1 pairs with R1").
 */

#include "crpc_config.h"

#ifndef __cplusplus
#include <stdatomic.h>

#include "crpc_crash.h"

/* Between two writes a test may kill the process. */
#define __crpc_write(op, p, v, order)                                                              \
	(CRPC_CRASH_HERE, atomic_##op##_explicit(p, v, memory_order_##order))

#define crpc_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define crpc_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define crpc_store_relaxed(p, v) __crpc_write(store, (p), (v), relaxed)
#define crpc_store_release(p, v) __crpc_write(store, (p), (v), release)

#define crpc_fetch_add_relaxed(p, v) __crpc_write(fetch_add, (p), (v), relaxed)
#define crpc_fetch_add_acq_rel(p, v) __crpc_write(fetch_add, (p), (v), acq_rel)
#define crpc_fetch_or_acq_rel(p, v) __crpc_write(fetch_or, (p), (v), acq_rel)
#define crpc_fetch_and_acq_rel(p, v) __crpc_write(fetch_and, (p), (v), acq_rel)
#define crpc_exchange_acq_rel(p, v) __crpc_write(exchange, (p), (v), acq_rel)

/*
 * Where two sides each write a word and then read the other's (Dekker), and one must see: all four
 * accesses are of these.
 */
#define crpc_load_seq_cst(p) atomic_load_explicit((p), memory_order_seq_cst)
#define crpc_exchange_seq_cst(p, v) __crpc_write(exchange, (p), (v), seq_cst)

/** Strong compare-and-swap; acquire and release on success, acquire on failure. */
#define crpc_cas_acq_rel(p, expected, v)                                                           \
	(CRPC_CRASH_HERE, atomic_compare_exchange_strong_explicit(                                 \
		(p), (expected), (v), memory_order_acq_rel, memory_order_acquire))

#else
/* C++ has no _Atomic: words of the same layout, and the builtins that C's accesses are made of. */
#define _Atomic
#define crpc_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define crpc_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define crpc_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define crpc_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define crpc_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define crpc_fetch_add_acq_rel(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define crpc_fetch_or_acq_rel(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define crpc_fetch_and_acq_rel(p, v) __atomic_fetch_and((p), (v), __ATOMIC_ACQ_REL)
#define crpc_exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define crpc_load_seq_cst(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define crpc_exchange_seq_cst(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define crpc_cas_acq_rel(p, expected, v)                                                           \
	__atomic_compare_exchange_n(                                                               \
		(p), (expected), (v), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#endif

#endif
