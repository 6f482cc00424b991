/* SPDX-License-Identifier: BSD-3-Clause */
/* What lanes share, and the limits: memcpy() of a message by one core, and by both at once. */
#include <stdarg.h>
#include <string.h>

#include "xb.h"

int
xb_lane_fail(struct xb_lane *l, int rc, const char *fmt, ...)
{
	va_list ap;

	/* The first one writes; the other side fails for the same cause, or because of this one. */
	if (crpc_exchange_acq_rel(&l->failed, 1) != 0)
		return rc;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- patterns ---- */

static inline uint64_t
pattern(uint64_t i, uint64_t seed)
{
	return (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd6e8feb86659fd93);
}

void
xb_fill(uint8_t *p, uint64_t len, uint64_t seed)
{
	uint64_t i, word;

	for (i = 0; i < len; i += sizeof(word)) {
		word = pattern(i, seed);
		memcpy(p + i, &word, crpc_min(sizeof(word), len - i));
	}
}

uint64_t
xb_compare(const uint8_t *p, uint64_t len, uint64_t seed)
{
	uint64_t i, word, have;

	for (i = 0; i < len; i += sizeof(word)) {
		have = word = pattern(i, seed);
		memcpy(&have, p + i, crpc_min(sizeof(word), len - i));
		if (have != word)
			return i + 1;
	}
	return 0;
}

void
xb_ops_expect(const struct xb_lane *l, uint8_t *p)
{
	float *y = (float *)(void *)p;
	uint32_t i, k;

	for (i = 0; i < l->point.ops; i++)
		for (k = 0; k < XB_OP_ELEMS; k++)
			y[i * XB_OP_ELEMS + k] = (float)xb_op_value(i);
}

/* ---- memcpy ---- */

static int
copy_open(struct xb_lane *l, int side)
{
	return 0;
}

/*
 * The receiving side copies, the sender waits: that is the limit of one core. Ranks prove
 * theirs.
 */
static int
copy_turn(struct xb_lane *l, int side)
{
	bool copies = side == 1 || (l->prove && l->team->link != NULL);
	uint64_t i;

	for (i = 0; copies && i < l->messages; i++)
		memcpy(xb_place(l, l->mem[1].recv, i), xb_place(l, l->mem[0].send, i),
			l->point.size);
	return 1;
}

/* Each side copies its half of every message. Ranks do it in memory of their own, and prove all. */
static int
copy_two_turn(struct xb_lane *l, int side)
{
	uint64_t half = l->point.size / 2, from = side == 0 ? 0 : half, i;
	uint64_t len = side == 0 ? half : l->point.size - half;

	if (l->prove && l->team->link != NULL) {
		from = 0;
		len = l->point.size;
	}
	for (i = 0; i < l->messages; i++)
		memcpy(xb_place(l, l->mem[1].recv, i) + from,
			xb_place(l, l->mem[0].send, i) + from, len);
	return 1;
}

static void
copy_close(struct xb_lane *l, int side)
{
}

static const struct xb_lane_ops lane_memcpy = {
	.built = true,
	.open = copy_open,
	.start = copy_open,
	.turn = copy_turn,
	.close = copy_close,
};

static const struct xb_lane_ops lane_memcpy_two = {
	.built = true,
	.open = copy_open,
	.start = copy_open,
	.turn = copy_two_turn,
	.close = copy_close,
};

extern const struct xb_lane_ops xb_lane_bulk, xb_lane_tensor;

#ifdef XB_HAVE_UCX
extern const struct xb_lane_ops xb_lane_ucx;
#else
static const struct xb_lane_ops xb_lane_ucx = {.package = "libucx-dev"};
#endif
#ifdef XB_HAVE_ZMQ
extern const struct xb_lane_ops xb_lane_zmq;
#else
static const struct xb_lane_ops xb_lane_zmq = {.package = "libzmq3-dev"};
#endif
#ifdef XB_HAVE_MSGPACK
extern const struct xb_lane_ops xb_lane_msgpack;
#else
static const struct xb_lane_ops xb_lane_msgpack = {.package = "libzmq3-dev libmsgpack-dev"};
#endif

const struct xb_lane_ops *const xb_lane_ops[XB_TRANSPORTS] = {
	[XB_BULK] = &xb_lane_bulk,
	[XB_MEMCPY] = &lane_memcpy,
	[XB_MEMCPY_TWO] = &lane_memcpy_two,
	[XB_UCX] = &xb_lane_ucx,
	[XB_ZMQ] = &xb_lane_zmq,
	[XB_TENSOR] = &xb_lane_tensor,
	[XB_TENSOR_BF16] = &xb_lane_tensor,
	[XB_MSGPACK] = &xb_lane_msgpack,
};
