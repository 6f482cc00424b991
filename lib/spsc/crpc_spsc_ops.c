/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of crpc_spsc.h: those of crpc_spsc_inline.h, of the ring that the end is of. */
#include "crpc_spsc.h"
#include "crpc_spsc_inline.h"

uint32_t
crpc_spsc_enqueue_burst(struct crpc_spsc_prod *p, const void *msgs, uint32_t n)
{
	return crpc_spsc_inline_enqueue_burst(p, p->variant, p->esize, msgs, n);
}

uint32_t
crpc_spsc_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first)
{
	return crpc_spsc_inline_reserve(p, p->variant, p->esize, want, first);
}

void
crpc_spsc_commit(struct crpc_spsc_prod *p, uint32_t n)
{
	crpc_spsc_inline_commit(p, p->variant, p->esize, n);
}

void
crpc_spsc_flush(struct crpc_spsc_prod *p)
{
	crpc_spsc_inline_flush(p, p->variant);
}

uint32_t
crpc_spsc_dequeue_burst(struct crpc_spsc_cons *c, void *msgs, uint32_t n)
{
	return crpc_spsc_inline_dequeue_burst(c, c->variant, c->esize, msgs, n);
}

uint32_t
crpc_spsc_peek(struct crpc_spsc_cons *c, uint32_t want, void **first)
{
	return crpc_spsc_inline_peek(c, c->variant, c->esize, want, first);
}

void
crpc_spsc_release(struct crpc_spsc_cons *c)
{
	crpc_spsc_inline_release(c, c->variant, c->esize);
}
