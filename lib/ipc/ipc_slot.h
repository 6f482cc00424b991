/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_SLOT_H
#define IPC_SLOT_H

/**
 * @file
 * Slots, in which requests and responses lie, and their words: doc/protocol/ipc_shm.md.
 *
 * A slot is one or more lines: an 8-byte word, then the message. The word is stored last, with
 * release, and says everything about the slot: its sequence number, the size, and
 *     in a request   the slot where this client's next request will be
 *     in a response  the slot of the request that it answers.
 * So a reader polls one line, and learns from it where to poll next. It bets that this is the next
 * slot in order, so that its loads do not wait for one another.
 *
 * A short request that is made while none is open lies in the lone slot, and is answered there,
 * over the request, in place: the line that the last such call has left in both caches makes one
 * trip there and back. Its answer is copied away, so that the next call may follow at once. All
 * else goes through the rings:
 *
 * Requests lie in slots that the client picks: the next in order that no open call holds, so a slow
 * call is stepped over. There is one slot more than `depth`, so a free one can always be named
 * ahead. Responses lie in a ring in order of reply. It has at least 2 * depth slots: depth that the
 * client's last poll() returned and still reads, and depth for the calls it may have made since.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crpc_atomic.h"
#include "crpc_config.h"

/** A slot: the word, then the message. */
struct ipc_slot {
	_Atomic uint64_t word;
	uint8_t data[];
};

_Static_assert(offsetof(struct ipc_slot, data) == 8, "layout version 4");

/* A slot's word: sequence number, size, a slot's index, and flags above the index. */

#define IPC_SIZE_MAX 0xffffu

/** The message starts with the 8-byte reference of a block. */
#define IPC_SLOT_BLOCK 0x4000u
/** In a request: no call waits for its answer. */
#define IPC_SLOT_ONEWAY 0x8000u
/** In a response: a run, of as many as the rest of the field says. */
#define IPC_SLOT_RUN 0x8000u
/** In the lone slot: the answer to the request with that sequence number. */
#define IPC_SLOT_REPLY 0x8000u
#define IPC_SLOT_MASK  0x3fffu
/** Bytes of a block's reference. */
#define IPC_REF_LEN 8

/** From here on the size field is a status: 0x8000 + errno. */
#define IPC_SIZE_STATUS 0x8000u

_Static_assert(CRPC_IPC_MSG_MAX < IPC_SIZE_STATUS, "sizes and statuses share a field");
_Static_assert(2 * CRPC_IPC_DEPTH_MAX <= IPC_SLOT_MASK, "a slot's index fits its field");

static inline uint64_t
ipc_word(uint32_t seq, uint32_t size, uint32_t slot)
{
	return (uint64_t)seq | (uint64_t)size << 32 | (uint64_t)slot << 48;
}

static inline uint32_t
ipc_word_seq(uint64_t word)
{
	return (uint32_t)word;
}

static inline uint32_t
ipc_word_size(uint64_t word)
{
	return (uint32_t)(word >> 32) & 0xffff;
}

/** The slot's index with the flags: an index that is in range has none. */
static inline uint32_t
ipc_word_slot(uint64_t word)
{
	return (uint32_t)(word >> 48);
}

/**
 * The size in a word of which all else is as in @p expected, whose size is 0; or a number above
 * IPC_SIZE_MAX.
 */
static inline uint64_t
ipc_word_differs(uint64_t word, uint64_t expected)
{
	word ^= expected;
	return word << 32 | word >> 32;
}

/** The slot's address is base + index * stride: indexes are checked before. */
static inline struct ipc_slot *
ipc_slot_at(uint8_t *base, uint32_t index, uint32_t stride)
{
	return (struct ipc_slot *)(void *)(base + (uint64_t)index * stride);
}

/** Write what no reader takes for the word of number @p seq, nor of one in the same place. */
static inline void
ipc_spoil(struct ipc_slot *s, uint32_t seq)
{
	crpc_store_relaxed(&s->word, ipc_word(seq - 1, 0, 0));
}

#endif
