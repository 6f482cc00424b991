/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_MSG_H
#define COPYRPC_MSG_H

/**
 * @file
 * Messages on the wire, version 3. doc/protocol/copyrpc_wire.md is the specification; test/golden
 * holds examples. All words are little endian.
 *
 * These structs lie in memory that the peer can still write: wire_msg_load(), wire_batch_load() and
 * wire_word() read every word once, and only the copy is checked and used.
 */

#include <string.h>

#include "crpc_atomic.h"
#include "crpc_copyrpc.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little endian and the structs are written as they are: add swaps for this CPU"
#endif

/** Batches and messages start at multiples of this. */
#define WIRE_UNIT 16u
/** Largest status of a response, as a negative errno. */
#define WIRE_STATUS_MIN (-4095)

/** Lanes of one direction. */
enum wire_lane {
	WIRE_REQ,
	WIRE_RESP,
	WIRE_LANES,
};

/** Head of a message; its data follows, padded to WIRE_UNIT, at least one unit. */
struct wire_msg {
	uint32_t id;  /**< Call id of the caller; notification: 0. */
	uint32_t len; /**< Bytes of data; with WIRE_LARGE: in the lane's area, none follow. */
	union {
		struct {
			/** Request: largest reply, or WIRE_ONEWAY; response: status, a negative
			 *  errno or 0. */
			uint32_t arg;
			uint32_t turn_ns; /**< Response: arrival to reply; request: 0. */
		};
		uint64_t arg_turn; /**< Both, to compare them at once. */
	};
};

/** In wire_msg.len: the data lies in the area for large messages of its lane. */
#define WIRE_LARGE UINT32_C(0x80000000)
_Static_assert(sizeof(struct wire_msg) == WIRE_UNIT, "one unit");

/** In wire_msg.arg: a notification, which has no reply. */
#define WIRE_ONEWAY UINT32_MAX

/** Smallest message. */
#define WIRE_STRIDE_MIN 32u

/** Head of a batch. */
#define WIRE_HEAD 32u

/** Bytes that a message of @p len data bytes takes in a batch: 32 or more. No length overflows. */
static inline size_t
wire_stride(uint32_t len)
{
	return ((size_t)len + (len == 0) + sizeof(struct wire_msg) + WIRE_UNIT - 1) &
		~(size_t)(WIRE_UNIT - 1);
}

/** Bytes that a reply of @p len data bytes takes at most: alone in its batch. */
static inline size_t
wire_worst(uint32_t len)
{
	return WIRE_HEAD + wire_stride(len);
}

/** One word of memory that the peer writes. */
static inline uint64_t
wire_word(const void *p)
{
	return crpc_load_relaxed((const _Atomic uint64_t *)p);
}

static inline struct wire_msg
wire_msg_load(const void *p)
{
	const uint8_t *b = p;
	uint64_t w[2] = {wire_word(b), wire_word(b + 8)};
	struct wire_msg m;

	memcpy(&m, w, sizeof(m));
	return m;
}

/** Bytes that a message takes in its batch: a large one has no data there. */
static inline size_t
wire_msg_bytes(const struct wire_msg *m)
{
	return m->len & WIRE_LARGE ? WIRE_STRIDE_MIN : wire_stride(m->len);
}

#endif
