/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup and inspection of the ring whose replies overwrite their requests. */
#include <errno.h>
#include <inttypes.h>

#include "crpc_log.h"
#include "crpc_spsc_duplex.h"
#include "spsc_private.h"

/* The header of a duplex ring, and where its slots end. */
static int
duplex_read(struct crpc_spsc_hdr *h, char *mem, size_t len, char **end)
{
	uint32_t stride;
	int rc;

	rc = __crpc_spsc_hdr_read(h, mem, len);
	if (rc != 0)
		return rc;
	if (h->variant < CRPC_SPSC_DUPLEX)
		return crpc_fail(-EINVAL, "no duplex ring: variant %u", h->variant);
	stride = h->variant == CRPC_SPSC_DUPLEX ? h->esize : crpc_spsc_lone_stride(h->esize);
	*end = mem + CRPC_SPSC_DATA_OFFSET + (size_t)h->depth * stride;
	return 0;
}

static _Atomic uint32_t *
word_at(char *base, size_t offset)
{
	return (_Atomic uint32_t *)(void *)(base + offset);
}

int
crpc_spsc_duplex_client_attach(struct crpc_spsc_duplex_client *c, void *mem, size_t len)
{
	char *base = mem, *slots = base + CRPC_SPSC_DATA_OFFSET, *end;
	struct crpc_spsc_hdr h;
	int rc;

	rc = duplex_read(&h, mem, len, &end);
	if (rc != 0)
		return rc;
	*c = (struct crpc_spsc_duplex_client){
		.slots = slots,
		.head = word_at(base, CRPC_SPSC_HEAD_OFFSET),
		.done = word_at(base, CRPC_SPSC_TAIL_OFFSET),
		.depth = h.depth,
		.next = h.start,
		.published = h.start,
		.read = h.start,
		.freed = h.start,
		.limit = h.start,
		.fetched = h.start,
		.lazy = h.lazy,
		.esize = h.esize,
		.sent = h.start,
		.got = h.start,
		.end = end,
		.at = slots,
		.oldest = slots,
	};
	return 0;
}

int
crpc_spsc_duplex_server_attach(struct crpc_spsc_duplex_server *s, void *mem, size_t len)
{
	char *base = mem, *slots = base + CRPC_SPSC_DATA_OFFSET, *end;
	struct crpc_spsc_hdr h;
	int rc;

	rc = duplex_read(&h, mem, len, &end);
	if (rc != 0)
		return rc;
	*s = (struct crpc_spsc_duplex_server){
		.slots = slots,
		.head = word_at(base, CRPC_SPSC_HEAD_OFFSET),
		.done = word_at(base, CRPC_SPSC_TAIL_OFFSET),
		.depth = h.depth,
		.next = h.start,
		.answered = h.start,
		.published = h.start,
		.limit = h.start,
		.fetched = h.start,
		.lazy = h.lazy,
		.esize = h.esize,
		.taken = h.start,
		.end = end,
		.at = slots,
		.open = slots,
	};
	return 0;
}

int
crpc_spsc_duplex_check(
	const struct crpc_spsc_duplex_client *c, const struct crpc_spsc_duplex_server *s, FILE *out)
{
	unsigned int bad = 0;

	if (c->depth != s->depth || c->esize != s->esize)
		return (int)spsc_say(out, "the ends are of two rings: %u x %u, %u x %u\n", c->depth,
			c->esize, s->depth, s->esize);
	if (c->next != c->published)
		bad += spsc_say(out, "%u requests are unpublished\n", c->next - c->published);
	if (c->read != c->next || c->freed != c->read)
		bad += spsc_say(out, "client: next %u, read %u, freed %u: not at rest\n", c->next,
			c->read, c->freed);
	if (s->next != c->next || s->answered != s->next || s->published != s->answered)
		bad += spsc_say(out, "server: next %u, answered %u, published %u, client at %u\n",
			s->next, s->answered, s->published, c->next);
	if (crpc_load_acquire(s->head) != c->published)
		bad += spsc_say(
			out, "head %u, published %u\n", crpc_load_acquire(s->head), c->published);
	if (crpc_load_acquire(c->done) != s->published)
		bad += spsc_say(
			out, "done %u, published %u\n", crpc_load_acquire(c->done), s->published);
	if (c->sent != c->got || c->sent != s->taken)
		bad += spsc_say(out,
			"lone: sent %" PRIu64 ", got %" PRIu64 ", served %" PRIu64
			": not at rest\n",
			c->sent, c->got, s->taken);
	return (int)bad;
}
