/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REREAD_H
#define REREAD_H

/** @file Included before a source of lib/ipc, which is compiled with a step behind each acquire. */

#include <stddef.h>

#include "crpc_atomic.h"

/** The step; NULL: none. */
extern void (*reread_between)(void);

#undef crpc_load_acquire
#define crpc_load_acquire(p)                                                                       \
	__extension__({                                                                            \
		__auto_type value = atomic_load_explicit((p), memory_order_acquire);               \
                                                                                                   \
		if (reread_between != NULL)                                                        \
			reread_between();                                                          \
		value;                                                                             \
	})

#endif
