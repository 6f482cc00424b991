/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flux: a ring of lib/spsc under each order of a channel, to compare it with the default. Each end
 * has an order of its own, and publishing moves its entries through the ring: see flux_path.c.
 *
 * A ring holds two windows. At most a window of entries is unread, and a reader publishes at least
 * every half window how far it is, so no ring is ever full. Where nothing is published (onesided),
 * what comes through the other ring of the channel proves as much: see look().
 */
#include "crpc_spsc_inline.h"
#include "crpc_spsc_onesided.h"
#include "flux_life.h"

/* Bytes of a message. */
#define ESIZE CRPC_SPSC_ESIZE_MIN

/* One way: its ring, and the entries of its reader's order, follow. */
struct way {
	struct flux_ring ring;
	struct crpc_spsc_prod prod;
	crpc_aligned(CRPC_CACHE_GUARD) struct crpc_spsc_cons cons;
	struct crpc_spsc_prod *credit; /* of the other way: what this one brings proves it read */
};

static struct crpc_spsc_attr
ring_attr(const struct crpc_flux_attr *attr)
{
	return (struct crpc_spsc_attr){
		.variant = (enum crpc_spsc_variant)(attr->variant - CRPC_FLUX_LAMPORT),
		.depth = 2 * attr->window,
		.esize = ESIZE,
		.lazy = attr->window < FLUX_LAZY ? attr->window : FLUX_LAZY,
		.start = attr->start,
		.caller_credit = attr->variant >= CRPC_FLUX_ONESIDED,
	};
}

/* Bytes of one way, and where its ring lies. */
static size_t
way_len(const struct crpc_flux_attr *attr, size_t *ring_at, size_t *ring_len)
{
	struct crpc_spsc_attr a = ring_attr(attr);

	*ring_at = crpc_align_up(
		sizeof(struct way) + FLUX_SLOTS_PER_WINDOW * attr->window * sizeof(uint32_t),
		CRPC_CACHE_GUARD);
	*ring_len = (size_t)crpc_spsc_memsize(&a);
	return *ring_at + *ring_len;
}

static void
publish(struct flux_order *o)
{
	struct crpc_spsc_prod *p = &((struct way *)(void *)o->ring)->prod;
	uint32_t n;
	void *first;

	for (uint32_t pos = o->known; pos != o->next; pos += n) {
		n = crpc_spsc_inline_reserve(p, p->variant, ESIZE, o->next - pos, &first);
		if (n == 0)
			break;
		for (uint32_t i = 0; i < n; i++)
			((uint64_t *)first)[i] = o->entry[(pos + i) & o->mask];
		crpc_spsc_inline_commit(p, p->variant, ESIZE, n);
	}
	crpc_spsc_inline_flush(p, p->variant);
	o->known = o->next;
}

static void
look(struct flux_order *o)
{
	struct way *way = (struct way *)(void *)o->ring;
	struct crpc_spsc_cons *c = &way->cons;
	void *first;
	uint32_t n;

	while ((n = crpc_spsc_inline_peek(c, c->variant, ESIZE, o->mask + 1, &first)) != 0) {
		/*
		 * The caller has read as many replies, but a window, as requests have come; the
		 * server has read as many requests as replies have come.
		 */
		if (way->credit != NULL)
			crpc_spsc_onesided_credit(way->credit, n);
		for (; n != 0; n--, first = (uint64_t *)first + 1)
			o->entry[o->known++ & o->mask] = (uint32_t) * (uint64_t *)first;
	}
	crpc_spsc_inline_release(c, c->variant, ESIZE);
}

size_t
__crpc_flux_rings_len(const struct crpc_flux_attr *attr)
{
	size_t at, len;

	if (flux_is_mesh(attr))
		return __crpc_flux_mesh_len();
	return attr->variant == CRPC_FLUX_DUPLEX ? 0 : 2 * way_len(attr, &at, &len);
}

int
__crpc_flux_rings_init(struct flux_chan *ch, const struct crpc_flux_attr *attr, void *mem)
{
	struct flux_order *const writer[] = {&ch->requests, &ch->answers};
	struct flux_order *const reader[] = {&ch->arrived, &ch->replies};
	struct crpc_spsc_attr a = ring_attr(attr);
	struct way *way[2];
	size_t at, len, size;
	int rc = 0;

	if (flux_is_mesh(attr))
		__crpc_flux_mesh_init(ch, mem);
	if (attr->variant == CRPC_FLUX_DUPLEX || flux_is_mesh(attr))
		return 0;
	size = way_len(attr, &at, &len);
	for (int i = 0; i < 2 && rc == 0; i++) {
		way[i] = (struct way *)(void *)((char *)mem + (size_t)i * size);
		way[i]->ring = (struct flux_ring){publish, look};
		writer[i]->ring = reader[i]->ring = &way[i]->ring;
		reader[i]->entry = (uint32_t *)(void *)(way[i] + 1);
		rc = crpc_spsc_init((char *)way[i] + at, len, &a);
		if (rc == 0)
			rc = crpc_spsc_prod_attach(&way[i]->prod, (char *)way[i] + at, len);
		if (rc == 0)
			rc = crpc_spsc_cons_attach(&way[i]->cons, (char *)way[i] + at, len);
	}
	if (rc == 0 && a.caller_credit) {
		way[0]->credit = &way[1]->prod;
		way[1]->credit = &way[0]->prod;
	}
	return rc;
}
