/* SPDX-License-Identifier: BSD-3-Clause */
/* What lanes share, and the limits: memcpy() of a message by one core, and by both at once. */
#include <string.h>

#include "xb.h"

/* ---- patterns ---- */

static inline uint64_t
pattern(uint64_t i, uint64_t seed)
{
	return (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd6e8feb86659fd93);
}

void
xb_fill(uint8_t *p, uint64_t len, uint64_t seed)
{
	uint64_t word;

	for (uint64_t i = 0; i < len; i += sizeof(word)) {
		word = pattern(i, seed);
		memcpy(p + i, &word, crpc_min(sizeof(word), len - i));
	}
}

uint64_t
xb_compare(const uint8_t *p, uint64_t len, uint64_t seed)
{
	uint64_t word, have;

	for (uint64_t i = 0; i < len; i += sizeof(word)) {
		have = word = pattern(i, seed);
		memcpy(&have, p + i, crpc_min(sizeof(word), len - i));
		if (have != word)
			return i + 1;
	}
	return 0;
}

/* ---- memcpy ---- */

static int
copy_open(struct app_lane *l, int side)
{
	return 0;
}

/*
 * The receiving side copies, the sender waits: that is the limit of one core. Or each copies its
 * half of every message. Ranks do it in memory of their own, and prove all.
 */
static int
copy_turn(struct app_lane *l, int side)
{
	uint64_t size = l->c->size, half = l->c->transport == XB_MEMCPY_TWO ? size / 2 : 0;
	uint64_t from = side == 0 ? 0 : half, to = side == 0 ? half : size;

	if (l->c->prove && l->party->place == APP_PLACE_RANK) {
		from = 0;
		to = size;
	}
	for (uint64_t i = 0; from != to && i < l->c->messages; i++)
		memcpy(xb_place(l->c, l->c->mem[1].recv, i) + from,
			xb_place(l->c, l->c->mem[0].send, i) + from, to - from);
	return 1;
}

/* Has no state to close. */
#define COPY_WAY(text)                                                                             \
	{                                                                                          \
		.base = {.name = text, .built = true, .open = {copy_open, copy_open}},             \
		.turn = copy_turn                                                                  \
	}

static const struct xb_way copies[] = {COPY_WAY("memcpy"), COPY_WAY("memcpy_two")};

extern const struct xb_way xb_way_bulk, xb_way_bulk_tcp, xb_way_tensor, xb_way_tensor_bf16;

#ifdef XB_HAVE_UCX
extern const struct xb_way xb_way_ucx;
#else
static const struct xb_way xb_way_ucx = {.base = {"ucx", "libucx-dev"}};
#endif
#ifdef XB_HAVE_ZMQ
extern const struct xb_way xb_way_zmq;
#else
static const struct xb_way xb_way_zmq = {.base = {"zmq_tcp", "libzmq3-dev"}};
#endif
const struct app_way *const xb_ways[XB_TRANSPORTS] = {
	[XB_BULK] = &xb_way_bulk.base,
	[XB_BULK_TCP] = &xb_way_bulk_tcp.base,
	[XB_MEMCPY] = &copies[0].base,
	[XB_MEMCPY_TWO] = &copies[1].base,
	[XB_UCX] = &xb_way_ucx.base,
	[XB_ZMQ] = &xb_way_zmq.base,
	[XB_TENSOR] = &xb_way_tensor.base,
	[XB_TENSOR_BF16] = &xb_way_tensor_bf16.base,
};
