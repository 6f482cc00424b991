/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_WIRE_H
#define COPYRPC_WIRE_H

/**
 * @file
 * What carries the messages of copyrpc_msg.h: batches, immediates, and the addresses that endpoints
 * exchange.
 */

#include "copyrpc_msg.h"

#define WIRE_MAGIC      0x5243u /* "CR" */
#define WIRE_VERSION    3u
#define WIRE_ADDR_MAGIC 0x43505243u /* "CRPC" */

/** Head of a batch. */
struct wire_batch {
	uint16_t magic;    /**< WIRE_MAGIC. */
	uint8_t version;   /**< WIRE_VERSION. */
	uint8_t lane;      /**< enum wire_lane. */
	uint32_t epoch;    /**< The receiver's, from its address. */
	uint32_t len;      /**< Bytes of the batch with this head, a multiple of WIRE_UNIT. */
	uint32_t count;    /**< Messages, at least 1. */
	uint64_t pos;      /**< Position of this head in its lane. */
	uint64_t released; /**< The sender has released its request ring up to here. */
};

/** Areas for large messages are multiples of this. */
#define WIRE_AREA_UNIT 4096u

/**
 * End of a batch whose arrival its receiver notices in memory: it is written last, and no other
 * batch has the same.
 */
struct wire_seal {
	uint64_t pos;   /**< Of the batch. */
	uint32_t len;   /**< Of the batch, this included. */
	uint32_t epoch; /**< The receiver's. */
};
_Static_assert(sizeof(struct wire_seal) == WIRE_UNIT, "one unit");

/** In wire_addr.flags: how positions return, and how batches are noticed. */
#define WIRE_FLAG_MEMORY 0x4u

/** Behind the two rings: the position that the owner has released, for the peer to read ... */
#define WIRE_WORD_RELEASED 0u
/** ... and the one that the peer has released, for the peer to write. */
#define WIRE_WORD_REPORTED 64u
/** Bytes of both. */
#define WIRE_WORDS 128u

/** Where the areas for large messages start, behind them. */
#define WIRE_AREAS(ring_size) ((size_t)(ring_size) * WIRE_LANES + WIRE_WORDS)

/** An endpoint's address. */
struct wire_addr {
	uint32_t magic; /**< WIRE_ADDR_MAGIC. */
	uint16_t version;
	uint16_t flags;       /**< WIRE_FLAG_*; the same at both ends. */
	uint32_t ring_size;   /**< Bytes of a lane. */
	uint32_t max_msg;     /**< Bytes of the largest message taken. */
	uint32_t epoch;       /**< Batches for this endpoint carry it. */
	uint32_t rkey;        /**< Of the ring memory. */
	uint64_t raddr;       /**< Of the request ring; the response ring follows it. */
	uint64_t pos;         /**< Where the positions of the lanes it sends start. */
	uint32_t large_max;   /**< Bytes of the largest message that comes in fragments; or 0. */
	uint32_t large_rkey;  /**< Of the region of the two areas. */
	uint64_t large_raddr; /**< Of the request area; the reply area follows it. */
	uint8_t reserved[40]; /**< 0. */
	uint8_t qp[CRPC_RDMA_ADDR_LEN];
};

_Static_assert(sizeof(struct wire_batch) == WIRE_HEAD, "no padding");
_Static_assert(offsetof(struct wire_batch, len) == 8, "as in the specification");
_Static_assert(offsetof(struct wire_batch, pos) == 16, "as in the specification");
_Static_assert(sizeof(struct wire_addr) == CRPC_COPYRPC_ADDR_LEN, "no padding");
_Static_assert(offsetof(struct wire_addr, large_max) == 40, "as in the specification");
_Static_assert(offsetof(struct wire_addr, qp) == 96, "as in the specification");
_Static_assert(CRPC_COPYRPC_LARGE_MAX < WIRE_LARGE, "a length leaves the flag alone");

/** Bytes of an area for messages of up to @p max bytes. */
static inline uint64_t
wire_area(uint32_t max)
{
	return crpc_align_up(max, WIRE_AREA_UNIT);
}

/*
 * The immediate: what came in the two upper bits, a number of units in the others.
 */
#define WIRE_IMM_BITS 30
#define WIRE_IMM_MASK ((1u << WIRE_IMM_BITS) - 1)

/** Kinds of immediates. */
enum wire_imm {
	WIRE_IMM_REQ = WIRE_REQ,   /**< A batch of requests; its length. */
	WIRE_IMM_RESP = WIRE_RESP, /**< A batch of responses; its length. */
	WIRE_IMM_UPDATE = 2,       /**< No bytes; the released position, low bits. */
	WIRE_IMM_ALIVE = 3,        /**< No bytes; enum wire_alive. */
};

/** What an immediate of kind WIRE_IMM_ALIVE means. */
enum wire_alive {
	WIRE_ALIVE_YES, /**< The answer to a probe. */
	WIRE_ALIVE_ASK, /**< A probe. */
	WIRE_ALIVES,
};

static inline uint32_t
wire_imm(enum wire_imm kind, uint64_t bytes)
{
	return (uint32_t)kind << WIRE_IMM_BITS | ((uint32_t)(bytes / WIRE_UNIT) & WIRE_IMM_MASK);
}

_Static_assert(CRPC_COPYRPC_RING_MAX / WIRE_UNIT <= WIRE_IMM_MASK / 4,
	"a released position differs from any other within two rings");

/**
 * Where a batch of @p len bytes lies that comes after position @p pos: a batch never crosses the
 * end of the ring, so one that does not fit before it starts at the next multiple of the ring's
 * size. Both ends derive this, nothing is sent for the skipped bytes.
 */
static inline uint64_t
wire_batch_pos(uint64_t pos, uint32_t len, uint32_t ring_size)
{
	uint32_t tail = ring_size - ((uint32_t)pos & (ring_size - 1));

	return len <= tail ? pos : pos + tail;
}

static inline struct wire_batch
wire_batch_load(const void *p)
{
	const uint8_t *b = p;
	uint64_t w[4] = {wire_word(b), wire_word(b + 8), wire_word(b + 16), wire_word(b + 24)};
	struct wire_batch h;

	memcpy(&h, w, sizeof(h));
	return h;
}

#endif
