/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SPSC_BURST_H
#define SPSC_BURST_H

/* Messages copied into a ring and out of it, for the tests. */

#include <string.h>

#include "crpc_spsc_inline.h"

/* Messages to ask for at a time: one of those that own their lines, without a loop to unroll. */
crpc_inline uint32_t
spsc_want(enum crpc_spsc_variant variant, uint32_t n)
{
	return variant != CRPC_SPSC_LAMPORT && crpc_spsc_per(variant) == 1 ? 1 : n;
}

/* Enqueue up to @p n messages that lie side by side. Returns how many; fewer: it is full. */
crpc_inline uint32_t
spsc_enqueue_burst(struct crpc_spsc_prod *p, enum crpc_spsc_variant variant,
	uint32_t esize, const void *msgs, uint32_t n)
{
	const char *src = (const char *)msgs;
	uint32_t done, run;
	void *first;

	for (done = 0; done < n; done += run) {
		run = crpc_spsc_inline_reserve(
			p, variant, esize, spsc_want(variant, n - done), &first);
		if (run == 0)
			break;
		for (uint32_t i = 0; i < run; i++, src += esize)
			memcpy((char *)first + (size_t)i * esize, src, esize);
		crpc_spsc_inline_commit(p, variant, esize, run);
	}
	return done;
}

/* Dequeue up to @p n messages to @p msgs; ends an open peek. Returns how many; 0: it is empty. */
crpc_inline uint32_t
spsc_dequeue_burst(struct crpc_spsc_cons *c, enum crpc_spsc_variant variant,
	uint32_t esize, void *msgs, uint32_t n)
{
	char *dst = (char *)msgs;
	uint32_t done, run;
	void *first;

	for (done = 0; done < n; done += run) {
		run = crpc_spsc_inline_peek(
			c, variant, esize, spsc_want(variant, n - done), &first);
		if (run == 0)
			break;
		for (uint32_t i = 0; i < run; i++, dst += esize)
			memcpy(dst, (const char *)first + (size_t)i * esize, esize);
	}
	crpc_spsc_inline_release(c, variant, esize);
	return done;
}

#endif
