/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup and inspection of the ring whose replies overwrite their requests. */
#include <errno.h>
#include <inttypes.h>

#include "crpc_log.h"
#include "crpc_spsc_duplex.h"
#include "spsc_private.h"

/* First line of the memory; the words and the messages lie where crpc_spsc_base.h says. */
struct duplex_hdr {
	uint64_t magic;
	uint32_t version;
	uint32_t depth;
	uint32_t esize;
	uint32_t start;
	uint32_t lazy;
	uint32_t lone;
};

/* "CRPCDPLX" in a little-endian dump. */
#define DUPLEX_MAGIC UINT64_C(0x584c504443505243)
#define DUPLEX_VERSION 1u

static size_t
slots_len(uint32_t depth, uint32_t esize, bool lone)
{
	return (size_t)depth * (lone ? crpc_spsc_lone_stride(esize) : esize);
}

/* The ranges are those of every ring: let the one that knows them say what is wrong. */
static ssize_t
data_len(const struct crpc_spsc_duplex_attr *a)
{
	struct crpc_spsc_attr attr = {.variant = CRPC_SPSC_LAMPORT, .depth = a->depth,
		.esize = a->esize, .lazy = a->lazy, .start = a->start};

	if (crpc_spsc_memsize(&attr) < 0)
		return -EINVAL;
	return (ssize_t)slots_len(a->depth, a->esize, a->lone);
}

ssize_t
crpc_spsc_duplex_memsize(const struct crpc_spsc_duplex_attr *attr)
{
	ssize_t data = data_len(attr);

	if (data < 0)
		return data;
	return (ssize_t)crpc_align_up(CRPC_SPSC_DATA_OFFSET + (size_t)data, CRPC_CACHE_GUARD);
}

static _Atomic uint32_t *
word_at(char *base, size_t offset)
{
	return (_Atomic uint32_t *)(void *)(base + offset);
}

int
crpc_spsc_duplex_init(void *mem, size_t len, const struct crpc_spsc_duplex_attr *attr)
{
	ssize_t need = crpc_spsc_duplex_memsize(attr);
	struct duplex_hdr *h = mem;
	int rc;

	if (need < 0)
		return (int)need;
	rc = spsc_mem_check(mem, len, (size_t)need);
	if (rc != 0)
		return rc;
	memset(mem, 0, (size_t)need);
	h->version = DUPLEX_VERSION;
	h->depth = attr->depth;
	h->esize = attr->esize;
	h->start = attr->start;
	h->lazy = attr->lazy > 1 ? attr->lazy : 1;
	h->lone = attr->lone;
	crpc_store_relaxed(word_at(mem, CRPC_SPSC_HEAD_OFFSET), attr->start);
	crpc_store_relaxed(word_at(mem, CRPC_SPSC_TAIL_OFFSET), attr->start);
	h->magic = DUPLEX_MAGIC;
	return 0;
}

/* The header as this side uses it: copied once, then checked. */
static int
hdr_read(struct duplex_hdr *h, const void *mem, size_t len)
{
	struct crpc_spsc_duplex_attr a;
	ssize_t need;
	int rc;

	rc = spsc_mem_check(mem, len, CRPC_SPSC_DATA_OFFSET);
	if (rc != 0)
		return rc;
	memcpy(h, mem, sizeof(*h));
	if (h->magic != DUPLEX_MAGIC || h->version != DUPLEX_VERSION) {
		crpc_err("no duplex ring: magic 0x%" PRIx64 " version %u, expected 0x%" PRIx64
			 " version %u",
				h->magic, h->version, DUPLEX_MAGIC, DUPLEX_VERSION);
		return -EINVAL;
	}
	a = (struct crpc_spsc_duplex_attr){.depth = h->depth, .esize = h->esize, .lazy = h->lazy,
		.lone = h->lone != 0};
	need = crpc_spsc_duplex_memsize(&a);
	if (need < 0)
		return (int)need;
	return spsc_mem_check(mem, len, (size_t)need);
}

int
crpc_spsc_duplex_client_attach(struct crpc_spsc_duplex_client *c, void *mem, size_t len)
{
	char *base = mem, *slots = base + CRPC_SPSC_DATA_OFFSET;
	struct duplex_hdr h;
	int rc;

	rc = hdr_read(&h, mem, len);
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
		.hints = crpc_spsc_cpu_hints(),
		.esize = h.esize,
		.sent = h.start,
		.got = h.start,
		.end = slots + slots_len(h.depth, h.esize, h.lone != 0),
		.at = slots,
		.oldest = slots,
	};
	return 0;
}

int
crpc_spsc_duplex_server_attach(struct crpc_spsc_duplex_server *s, void *mem, size_t len)
{
	char *base = mem, *slots = base + CRPC_SPSC_DATA_OFFSET;
	struct duplex_hdr h;
	int rc;

	rc = hdr_read(&h, mem, len);
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
		.hints = crpc_spsc_cpu_hints(),
		.esize = h.esize,
		.taken = h.start,
		.end = slots + slots_len(h.depth, h.esize, h.lone != 0),
		.at = slots,
		.open = slots,
	};
	return 0;
}

int
crpc_spsc_duplex_check(const struct crpc_spsc_duplex_client *c,
	const struct crpc_spsc_duplex_server *s, FILE *out)
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
		bad += spsc_say(out, "head %u, published %u\n", crpc_load_acquire(s->head),
				c->published);
	if (crpc_load_acquire(c->done) != s->published)
		bad += spsc_say(out, "done %u, published %u\n", crpc_load_acquire(c->done),
				s->published);
	if (c->sent != c->got || c->sent != s->taken)
		bad += spsc_say(out,
				"lone: sent %" PRIu64 ", got %" PRIu64 ", served %" PRIu64
				": not at rest\n",
				c->sent, c->got, s->taken);
	return (int)bad;
}

void
crpc_spsc_duplex_dump(const struct crpc_spsc_duplex_client *c,
	const struct crpc_spsc_duplex_server *s, FILE *out)
{
	if (c != NULL)
		fprintf(out,
				"client duplex depth %u esize %u next %u published %u read %u freed %u "
				"limit %u lazy %u lone sent %" PRIu64 " got %" PRIu64 "\n",
				c->depth, c->esize, c->next, c->published, c->read, c->freed,
				c->limit, c->lazy, c->sent, c->got);
	if (s != NULL)
		fprintf(out,
				"server duplex depth %u esize %u next %u answered %u published %u "
				"limit %u lazy %u lone taken %" PRIu64 "\n",
				s->depth, s->esize, s->next, s->answered, s->published, s->limit,
				s->lazy, s->taken);
}
