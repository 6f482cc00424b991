/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNPACK_CPU_H
#define UNPACK_CPU_H

/*
 * The variants of the copy, which differ in speed and in nothing else; the tests run every one that
 * the CPU has.
 */

#include <stddef.h>

#include "crpc_unpack.h"

struct unpack_copy {
	const char *name;
	bool (*usable)(void); /* by this CPU and kernel */
	/* Around the caches; dst and src of any alignment, not overlapping. The caller orders it
	 * before what it stores later: crpc_dma_wc_flush(). */
	void (*stream)(void *dst, const void *src, size_t len);
};

/* Best first; the last one, in plain C, is always usable. Ends with NULL. */
extern const struct unpack_copy *const __crpc_unpack_copy[];

extern const struct crpc_unpack_ops __crpc_unpack_cpu;

#endif
