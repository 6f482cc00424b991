/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_LAYOUT_H
#define IPC_LAYOUT_H

/**
 * @file
 * The bytes that server and clients share, layout version 4: doc/protocol/ipc_shm.md.
 *
 *     0      struct crpc_shm_header        owner, before it is ready
 *     128    struct ipc_header             server, before it is ready
 *     256    struct ipc_server_line        server: heartbeat
 *     384    struct ipc_bell               clients: who came, went, or calls from its sleep
 *     640    struct ipc_ctl [max_clients]  256 bytes each: a part of the client, one of the server
 *     req_off   request slots, one region per client (that client writes), and behind them
 *               its lone slot of one line (both write, in turn), and, of 2 bytes per slot, the
 *               bytes of a reply that the slot's call allows
 *     resp_off  response slots, one region per client (the server writes)
 */

#include <stdint.h>
#include <string.h>

#include "crpc_atomic.h"
#include "crpc_config.h"
#include "crpc_shm.h"
#include "ipc_slot.h"

#define IPC_KIND    CRPC_SHM_KIND('I', 'P', 'C', ' ')
#define IPC_VERSION 4

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
	uint64_t lone_off;    /**< Of the lone slot in its client's request region. */
	uint64_t allow_off;   /**< Of what its calls allow, likewise. */
	uint8_t reserved[40]; /**< Zero. */
};

/** Written by the server; the beat in reap(). */
struct ipc_server_line {
	_Atomic uint64_t beat;
	uint32_t member; /**< The server's number in the arena; 0: no blocks. Before it is ready. */
	uint8_t guard[CRPC_CACHE_GUARD - 12];
};

/** Words of the doorbell: a bit per place. */
#define IPC_BELL_WORDS (CRPC_IPC_CLIENTS_MAX / 64)

/**
 * Rung by a client that connects, closes, or calls while it sleeps: its bit first, then the summary
 * bit of its word. The server takes them in the other order, so a bit that it misses has a summary
 * bit yet to come. recv() looks at the summary alone.
 */
struct ipc_bell {
	_Atomic uint64_t summary; /**< Bit w: look at word w. */
	uint8_t guard[CRPC_CACHE_GUARD - 8];
	_Atomic uint64_t word[IPC_BELL_WORDS];
};

/** Life of a client's place: the low half of `claim`. The high half counts its ends. */
enum ipc_claim {
	IPC_FREE = 0,   /**< Server: zeroed, take it. */
	IPC_OPEN = 1,   /**< Client, by compare-and-swap, holding the place's kernel lock. */
	IPC_CLOSED = 2, /**< Client, before it gives the lock up. */
	/** As CLOSED, and what it published is still to be read: one-way messages are among it. */
	IPC_LEAVING = 0x4c,
};

#define IPC_CLAIM(gen, state) ((uint64_t)(gen) << 32 | (uint64_t)(state))

struct ipc_ctl {
	_Atomic uint64_t claim; /**< IPC_CLAIM(). Client takes, server frees. */
	uint32_t pid;           /**< For people. */
	/** Client: sequence number of the last request that it made sure of; see "Sleep" below. */
	_Atomic uint32_t announced;
	uint32_t member; /**< The client's number in the arena; 0: no blocks. Before the claim. */
	uint8_t guard0[CRPC_CACHE_GUARD - 20];
	_Atomic uint32_t verdict; /**< Server: 0, or the errno for which it dropped the client. */
	_Atomic uint32_t sleep;   /**< Server: odd while it does not look at this client's slots. */
	uint8_t guard1[CRPC_CACHE_GUARD - 8];
};

/*
 * Sleep. The server stops looking at a client's slots when it found nothing there for long. Neither
 * a call nor a poll has a fence, so this must be right without one on the datapath:
 *
 *     client                                     server
 *     C1  store slot.word = n      (release)     S1  exchange sleep = odd     (seq_cst)
 *     C2  if sleep is new and odd: ring          S2  load announced           (seq_cst)
 *     ... some polls later, or at a flush:       S3  ahead of what was read: sleep = even,
 *     C3  exchange announced = n   (seq_cst)         go on looking; else leave the list
 *     C4  load sleep               (seq_cst)
 *     C5  if sleep is new and odd: ring
 *
 * C2 catches all but the race: there the load may pass the store before it. C3, C4, S1 and S2 are
 * in one total order. If C4 comes before S1 (and so does not see it), C3 comes before S2, which
 * sees n: the server stays. Otherwise C4 sees odd, and the client rings. So after C5 request n is
 * looked at, and a client that polls or flushes reaches C5.
 *
 * A ring that comes between S1 and S3 is kept in the doorbell, and read after S3. The client rings
 * once for each odd value: "new" is another value than the one it last acted on.
 *
 * Behind all that, reap() looks at each sleeper's slot: a client that neither polls nor flushes
 * after its call, or lies in `announced`, is found then.
 */

_Static_assert(sizeof(struct ipc_header) == 128, "layout version 4");
_Static_assert(offsetof(struct ipc_header, req_off) == 32, "layout version 4");
_Static_assert(offsetof(struct ipc_header, total_size) == 64, "layout version 4");
_Static_assert(sizeof(struct ipc_server_line) == CRPC_CACHE_GUARD, "a writer of its own");
_Static_assert(sizeof(struct ipc_bell) == 2 * CRPC_CACHE_GUARD, "layout version 4");
_Static_assert(CRPC_IPC_CLIENTS_MAX % 64 == 0 && IPC_BELL_WORDS <= 64, "a summary bit per word");
_Static_assert(sizeof(struct ipc_ctl) == 2 * CRPC_CACHE_GUARD, "two writers");
_Static_assert(offsetof(struct ipc_ctl, verdict) == CRPC_CACHE_GUARD, "two writers");
_Static_assert(offsetof(struct ipc_ctl, announced) == 12, "layout version 4");

#define IPC_HEADER_OFF sizeof(struct crpc_shm_header)
#define IPC_SERVER_OFF (IPC_HEADER_OFF + sizeof(struct ipc_header))
#define IPC_BELL_OFF   (IPC_SERVER_OFF + sizeof(struct ipc_server_line))
#define IPC_CTL_OFF    (IPC_BELL_OFF + sizeof(struct ipc_bell))

_Static_assert(IPC_HEADER_OFF == 128 && IPC_SERVER_OFF == 256, "layout version 4");
_Static_assert(IPC_BELL_OFF == 384 && IPC_CTL_OFF == 640, "layout version 4");

/** The kernel lock of client @p id: byte 0 is the server's. */
#define IPC_LOCK_BYTE(id) (1 + (id))

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
