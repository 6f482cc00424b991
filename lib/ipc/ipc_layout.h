/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_LAYOUT_H
#define IPC_LAYOUT_H

/**
 * @file
 * The bytes that server and clients share, layout version 1: doc/protocol/ipc_segment.md.
 *
 *     0      struct crpc_shm_header        owner, before it is ready
 *     128    struct ipc_header             server, before it is ready
 *     256    struct ipc_server_line        server: heartbeat
 *     384    struct ipc_bell_line          clients: somebody came or went
 *     512    struct ipc_ctl [max_clients]  256 bytes each: a part of the client, one of the server
 *     req_off   request slots, one region per client (that client writes)
 *     resp_off  response slots, one region per client (the server writes)
 *
 * A slot is one or more lines: an 8-byte word, then the message. The word is stored last, with
 * release, and says everything about the slot: its sequence number, the size, and
 *     in a request   the slot where this client's next request will be
 *     in a response  the slot of the request that it answers.
 * So a reader polls one line, and learns from it where to poll next.
 *
 * Requests lie in slots that the client picks: the next in order that no open call holds, so a slow
 * call is stepped over. There is one slot more than `depth`, so a free one can always be named
 * ahead. Responses lie in a ring in order of reply. It has at least 2 * depth slots: depth that the
 * client's last poll() returned and still reads, and depth for the calls it may have made since.
 */

#include <stdint.h>
#include <string.h>

#include "crpc_atomic.h"
#include "crpc_config.h"
#include "crpc_shm.h"

#define IPC_KIND    CRPC_SHM_KIND('I', 'P', 'C', ' ')
#define IPC_VERSION 1

/** Read-only once the segment is ready. Everything follows from the first four numbers. */
struct ipc_header {
	uint32_t max_clients;
	uint32_t depth;
	uint32_t req_max;
	uint32_t resp_max;
	uint32_t req_slots;  /**< Per client: the power of two at or above depth + 1. */
	uint32_t resp_slots; /**< Per client: the power of two at or above 2 * depth. */
	uint32_t req_slot;   /**< Bytes of a slot: 8 + req_max in whole lines. */
	uint32_t resp_slot;
	uint64_t req_off;    /**< Of the first client's region. */
	uint64_t req_stride; /**< From one client's region to the next. */
	uint64_t resp_off;
	uint64_t resp_stride;
	uint64_t total_size;  /**< Bytes used. */
	uint8_t reserved[56]; /**< Zero. */
};

/** Written by the server in reap(). */
struct ipc_server_line {
	_Atomic uint64_t beat;
	uint8_t guard[CRPC_CACHE_GUARD - 8];
};

/** Written by clients that connect or close. */
struct ipc_bell_line {
	_Atomic uint32_t ring;
	uint8_t guard[CRPC_CACHE_GUARD - 4];
};

/** Life of a client's place: the low half of `claim`. The high half counts its ends. */
enum ipc_claim {
	IPC_FREE = 0,   /**< Server: zeroed, take it. */
	IPC_OPEN = 1,   /**< Client, by compare-and-swap, holding the place's kernel lock. */
	IPC_CLOSED = 2, /**< Client, before it gives the lock up. */
};

#define IPC_CLAIM(gen, state) ((uint64_t)(gen) << 32 | (uint64_t)(state))

struct ipc_ctl {
	_Atomic uint64_t claim; /**< IPC_CLAIM(). Client takes, server frees. */
	uint32_t pid;           /**< For people. */
	uint8_t guard0[CRPC_CACHE_GUARD - 12];
	_Atomic uint32_t verdict; /**< Server: 0, or the errno for which it dropped the client. */
	uint8_t guard1[CRPC_CACHE_GUARD - 4];
};

/** A slot: the word, then the message. */
struct ipc_slot {
	_Atomic uint64_t word;
	uint8_t data[];
};

_Static_assert(sizeof(struct ipc_header) == 128, "layout version 1");
_Static_assert(offsetof(struct ipc_header, req_off) == 32, "layout version 1");
_Static_assert(offsetof(struct ipc_header, total_size) == 64, "layout version 1");
_Static_assert(sizeof(struct ipc_server_line) == CRPC_CACHE_GUARD, "a writer of its own");
_Static_assert(sizeof(struct ipc_bell_line) == CRPC_CACHE_GUARD, "a writer of its own");
_Static_assert(sizeof(struct ipc_ctl) == 2 * CRPC_CACHE_GUARD, "two writers");
_Static_assert(offsetof(struct ipc_ctl, verdict) == CRPC_CACHE_GUARD, "two writers");
_Static_assert(offsetof(struct ipc_slot, data) == 8, "layout version 1");

#define IPC_HEADER_OFF sizeof(struct crpc_shm_header)
#define IPC_SERVER_OFF (IPC_HEADER_OFF + sizeof(struct ipc_header))
#define IPC_BELL_OFF   (IPC_SERVER_OFF + sizeof(struct ipc_server_line))
#define IPC_CTL_OFF    (IPC_BELL_OFF + sizeof(struct ipc_bell_line))

_Static_assert(IPC_HEADER_OFF == 128 && IPC_SERVER_OFF == 256, "layout version 1");
_Static_assert(IPC_BELL_OFF == 384 && IPC_CTL_OFF == 512, "layout version 1");

/** The kernel lock of client @p id: byte 0 is the server's. */
#define IPC_LOCK_BYTE(id) (1 + (id))

/* A slot's word: sequence number, size, and a slot's index. */

/** From here on the size field is a status: 0x8000 + errno. */
#define IPC_SIZE_STATUS 0x8000u
#define IPC_ERRNO_MAX   4095

_Static_assert(CRPC_IPC_MSG_MAX < IPC_SIZE_STATUS, "sizes and statuses share a field");
_Static_assert(2 * CRPC_IPC_DEPTH_MAX <= UINT16_MAX, "a slot's index fits its field");

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

static inline uint32_t
ipc_word_slot(uint64_t word)
{
	return (uint32_t)(word >> 48);
}

/** The slot's address is base + index * stride: indexes are checked before. */
static inline struct ipc_slot *
ipc_slot_at(uint8_t *base, uint32_t index, uint32_t stride)
{
	return (struct ipc_slot *)(void *)(base + (uint64_t)index * stride);
}

/** Messages up to here are copied without a call. */
#define IPC_COPY_SMALL 64

/** Move the 8 bytes at @p at. */
static inline void
ipc_move8(uint8_t *d, const uint8_t *s, uint32_t at)
{
	memcpy(d + at, s + at, 8);
}

/**
 * Copy up to IPC_COPY_SMALL bytes. The two do not overlap.
 *
 * Moves that may overlap each other cover a range of lengths without a loop or a call. A message is
 * often 16 bytes or, with a small value, up to 32, in no order that could be predicted: so these
 * lengths share one path.
 */
static inline void
ipc_copy_small(void *dst, const void *src, uint32_t len)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	if (len > 32) {
		memcpy(d, s, 32);
		memcpy(d + len - 32, s + len - 32, 32);
	} else if (len >= 16) {
		ipc_move8(d, s, 0);
		ipc_move8(d, s, 8);
		ipc_move8(d, s, len - 16);
		ipc_move8(d, s, len - 8);
	} else if (len >= 8) {
		ipc_move8(d, s, 0);
		ipc_move8(d, s, len - 8);
	} else if (len >= 4) {
		memcpy(d, s, 4);
		memcpy(d + len - 4, s + len - 4, 4);
	} else if (len != 0) {
		d[0] = s[0];
		d[len / 2] = s[len / 2];
		d[len - 1] = s[len - 1];
	}
}

/** Debug builds: an object belongs to the thread that used it first. */
#ifdef CRPC_DEBUG
void __crpc_ipc_owner_check(const void **owner, const void *object);
#define IPC_OWNER_CHECK(o) __crpc_ipc_owner_check(&(o)->owner, (o))
#else
#define IPC_OWNER_CHECK(o)
#endif

/**
 * Compute the layout from max_clients, depth, req_max and resp_max.
 *
 * @return
 *   0, or -EINVAL, said.
 */
int __crpc_ipc_layout(struct ipc_header *h, const char *name);

/**
 * Check the layout that a segment claims against what its four numbers give and against its size.
 *
 * @return
 *   0 with a private copy in *h, or -EPROTO, said.
 */
int __crpc_ipc_layout_read(struct ipc_header *h, const struct crpc_shm *seg);

#endif
