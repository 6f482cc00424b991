/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup of the ring whose replies overwrite their requests. */
#include <errno.h>

#include "crpc_log.h"
#include "crpc_spsc_duplex.h"
#include "spsc_private.h"

/* The header of a duplex ring, and where its slots end. */
static int
duplex_read(struct crpc_spsc_hdr *h, char *mem, size_t len, char **end)
{
	int rc = __crpc_spsc_hdr_read(h, mem, len, end);

	if (rc == 0 && h->variant < CRPC_SPSC_DUPLEX)
		return crpc_fail(-EINVAL, "no duplex ring: variant %u", h->variant);
	return rc;
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
	int rc = duplex_read(&h, base, len, &end);

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
	int rc = duplex_read(&h, base, len, &end);

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
