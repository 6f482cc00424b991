/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_LANE_H
#define COPYRPC_LANE_H

/**
 * @file
 * How a message gets into the batch of its lane.
 *
 *     may it go at lane->next, below lane->limit?       yes: put it there, count it, done
 *     no: lane_place() (takes nothing) -> lane_put() -> __crpc_copyrpc_ep_queued()
 *
 * The first line is written out where each message passes (call, reply); the second one is for all
 * that a batch needs once.
 */

#include "copyrpc_pvt.h"

/** Where a message goes. */
struct place {
	uint8_t *at;    /**< Its head in the staging ring. */
	uint64_t start; /**< Position of a new batch's head. */
	uint64_t end;   /**< Position behind the message. */
	bool anew;      /**< A new batch starts. */
};

/**
 * A batch never crosses the end of the ring. The open one goes on if the message fits before the
 * end; else a new batch starts, behind it or, skipping the tail, at the start of the ring. The
 * receiver derives the same from the batch's length (wire_batch_pos()): a new batch is at least as
 * long as its first message, and a batch that goes on never passes the end.
 */
static inline struct place
lane_place(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint32_t stride)
{
	uint32_t ring_size = ep->ring_size, trailer = ep->trailer;
	uint64_t prod = lane_prod(lane);
	uint32_t off = (uint32_t)prod & (ring_size - 1);
	struct place p;

	p.anew = lane->npend == 0 || off == 0 || stride + trailer > ring_size - off;
	if (!p.anew) {
		p.start = prod;
		p.end = prod + stride;
		p.at = lane->stage + off;
		return p;
	}
	p.start = wire_batch_pos(lane_end(ep, lane), WIRE_HEAD + stride + trailer, ring_size);
	p.end = p.start + WIRE_HEAD + stride;
	p.at = lane->stage + ((uint32_t)p.start & (ring_size - 1)) + WIRE_HEAD;
	return p;
}

/** Whether a place is within the room that the peer has released. */
static inline bool
place_in_window(const struct crpc_copyrpc_ep *ep, const struct place *p)
{
	return p->end + ep->trailer - ep->peer_released <= ep->ring_size;
}

/** Take a place for a message of @p owed bytes of replies: its batch is opened or goes on. */
void __crpc_copyrpc_lane_put(struct crpc_copyrpc_ep *ep, struct tx_lane *lane,
		const struct place *p, uint32_t stride, uint32_t owed, uint64_t now_ns);

/** After that: what the policy sends without waiting for flush(). */
void __crpc_copyrpc_ep_queued(
	struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t now_ns);

/** The same with a message that found its place in the open batch. */
static inline void
lane_append(struct tx_lane *lane, uint8_t *end)
{
	lane->next = end;
	lane->count++;
}

/** Write a message's head, word by word: putting it together first costs more. Returns where its
 * data goes. */
static inline uint8_t *
msg_put(uint8_t *at, uint32_t id, uint32_t len, uint32_t arg, uint32_t turn_ns)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)(void *)at;

	crpc_store_relaxed(&word[0], id);
	crpc_store_relaxed(&word[1], len);
	crpc_store_relaxed(&word[2], arg);
	crpc_store_relaxed(&word[3], turn_ns);
	return at + sizeof(struct wire_msg);
}

/*
 * Most messages are short. Those of DATA_SHORT_MIN to DATA_SHORT_MAX bytes have paths of their own:
 * the length is known to be within bounds, and two moves that may overlap copy the data. So call()
 * and reply() are compiled twice, and the short one calls nothing.
 */
#define DATA_SHORT_MIN 16u
#define DATA_SHORT_MAX 32u

static inline bool
data_is_short(uint32_t len)
{
	return len - DATA_SHORT_MIN <= DATA_SHORT_MAX - DATA_SHORT_MIN;
}

/** wire_stride(), where a constant says that the data is short. */
static inline size_t
msg_stride(uint32_t len, bool is_short)
{
	return is_short ? ((size_t)len + 31) & ~(size_t)15 : wire_stride(len);
}

static inline void
data_put(uint8_t *to, const void *from, uint32_t len, bool is_short)
{
	const uint8_t *src = from;
	uint8_t head[16], tail[16];
	uint64_t a, b;

	if (is_short) {
		memcpy(head, src, 16);
		memcpy(tail, src + len - 16, 16);
		memcpy(to, head, 16);
		memcpy(to + len - 16, tail, 16);
	} else if (len >= 8 && len < 16) {
		memcpy(&a, src, 8);
		memcpy(&b, src + len - 8, 8);
		memcpy(to, &a, 8);
		memcpy(to + len - 8, &b, 8);
	} else if (len != 0) {
		memcpy(to, src, len);
	}
}

#endif
