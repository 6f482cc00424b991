/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SPSC_RING_H
#define SPSC_RING_H

/* A ring on the heap with both ends, and payloads that show their position. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "rnd.h"
#include "spsc_burst.h"

struct ring {
	void *mem;
	size_t len;
	struct crpc_spsc_prod p;
	struct crpc_spsc_cons c;
};

static inline int
ring_make(struct ring *r, const struct crpc_spsc_attr *a)
{
	ssize_t len = crpc_spsc_memsize(a);
	int rc;

	if (len < 0)
		return (int)len;
	r->len = (size_t)len;
	r->mem = aligned_alloc(CRPC_CACHE_GUARD, r->len);
	memset(r->mem, 0xa5, r->len);
	rc = crpc_spsc_init(r->mem, r->len, a);
	if (rc == 0)
		rc = crpc_spsc_prod_attach(&r->p, r->mem, r->len);
	if (rc == 0)
		rc = crpc_spsc_cons_attach(&r->c, r->mem, r->len);
	return rc;
}

static inline void
ring_free(struct ring *r)
{
	free(r->mem);
}

/* The calls of the ring that an end is of. */

static inline uint32_t
ring_put(struct crpc_spsc_prod *p, const void *msgs, uint32_t n)
{
	return spsc_enqueue_burst(p, p->variant, p->esize, msgs, n);
}

static inline uint32_t
ring_reserve(struct crpc_spsc_prod *p, uint32_t n, void **first)
{
	return crpc_spsc_inline_reserve(p, p->variant, p->esize, n, first);
}

static inline void
ring_commit(struct crpc_spsc_prod *p, uint32_t n)
{
	crpc_spsc_inline_commit(p, p->variant, p->esize, n);
}

static inline void
ring_flush(struct crpc_spsc_prod *p)
{
	crpc_spsc_inline_flush(p, p->variant);
}

static inline uint32_t
ring_get(struct crpc_spsc_cons *c, void *msgs, uint32_t n)
{
	return spsc_dequeue_burst(c, c->variant, c->esize, msgs, n);
}

static inline uint32_t
ring_peek(struct crpc_spsc_cons *c, uint32_t n, void **first)
{
	return crpc_spsc_inline_peek(c, c->variant, c->esize, n, first);
}

static inline void
ring_release(struct crpc_spsc_cons *c)
{
	crpc_spsc_inline_release(c, c->variant, c->esize);
}

/* One message: 0, or -EAGAIN (full, or empty). */
static inline int
put_one(struct crpc_spsc_prod *p, const void *msg)
{
	return ring_put(p, msg, 1) == 1 ? 0 : -EAGAIN;
}

static inline int
get_one(struct crpc_spsc_cons *c, void *msg)
{
	return ring_get(c, msg, 1) == 1 ? 0 : -EAGAIN;
}

static inline uint64_t
word_of(uint64_t seq, uint32_t i)
{
	return (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static inline void
msg_fill(void *msg, uint32_t esize, uint64_t seq)
{
	uint64_t *w = msg;

	for (uint32_t i = 0; i < esize / 8; i++)
		w[i] = word_of(seq, i);
}

static inline int
msg_good(const void *msg, uint32_t esize, uint64_t seq)
{
	const uint64_t *w = msg;

	for (uint32_t i = 0; i < esize / 8; i++)
		if (w[i] != word_of(seq, i))
			return 0;
	return 1;
}

#endif
