/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_SERVER_H
#define IPC_SERVER_H

/**
 * @file
 * The server's private memory: nothing here can be written by a client, and nothing that decides
 * where the server reads or writes lies anywhere else.
 *
 * A place's life, as the server sees it:
 *
 *     ABSENT --admit: claim is OPEN--> SERVED --broke the protocol--> DROPPED
 *        ^                                |                              |
 *        +------ lock is free: zero the slots, claim = FREE, gen + 1 ----+
 */

#include "crpc_ipc.h"
#include "ipc_layout.h"

/** Clients whose slots are prefetched ahead of the one that recv() looks at. */
#define IPC_PREFETCH 3

/* A token: 43 bits of serial number, 11 of client + 1, 9 of slot. Never 0, bit 63 never set. */
#define IPC_TOKEN_SLOT_BITS   9
#define IPC_TOKEN_ID_BITS     11
#define IPC_TOKEN_SERIAL_STEP (UINT64_C(1) << (IPC_TOKEN_SLOT_BITS + IPC_TOKEN_ID_BITS))
/** In the table of tokens: its client is gone, and the first to use it is told so. */
#define IPC_TOKEN_DEAD (UINT64_C(1) << 63)

_Static_assert(CRPC_IPC_CLIENTS_MAX < 1 << IPC_TOKEN_ID_BITS, "a client's id fits a token");
_Static_assert(2 * CRPC_IPC_DEPTH_MAX <= 1 << IPC_TOKEN_SLOT_BITS, "a slot's index fits a token");

enum ipc_peer_state {
	IPC_PEER_ABSENT,
	IPC_PEER_SERVED,
	IPC_PEER_DROPPED,
};

/** One client. The first line is what recv() and reply() touch. */
struct ipc_peer {
	struct ipc_slot *head; /**< Where its next request will be. */
	uint64_t *tokens;      /**< Per request slot: its token while open, 0, or a dead one. */
	uint8_t *resp;         /**< Its response ring. */
	uint8_t *req;          /**< Its request slots. */
	uint64_t req_seq;      /**< Of the next request; its low half travels. */
	uint64_t resp_seq;     /**< And of the next response. */
	uint32_t open;         /**< Requests not yet ended. */
	uint32_t limit;        /**< depth while served, else 0: so many open, and it is skipped. */
	uint32_t head_slot;    /**< Index of head. */
	uint32_t token_base;   /**< The client's part of its tokens. */
	/* Second line. */
	uint32_t id;
	uint32_t active_pos; /**< Its place in the list of active clients. */
	uint32_t state;      /**< enum ipc_peer_state. */
	uint32_t gen;        /**< Of its claim. */
	struct ipc_ctl *ctl;
} crpc_aligned(CRPC_CACHE_LINE);

_Static_assert(offsetof(struct ipc_peer, id) == CRPC_CACHE_LINE, "one line for the datapath");

struct crpc_ipc_server {
	_Atomic uint32_t *bell;
	uint32_t bell_seen;
	uint32_t admit_left; /**< Places still to look at since the bell rang. */
	uint32_t admit_pos;
	uint32_t n_active;
	uint32_t scan;         /**< Where the next recv() starts. */
	uint64_t serial;       /**< Of the last token, in its place. */
	uint32_t small_max;    /**< Bytes that the short way of reply() takes. */
	struct ipc_header lay; /**< Private copy: the shared one is for clients. */
	struct crpc_ipc_server_stats stats;
	struct crpc_shm *seg;
	_Atomic uint64_t *beat;
	uint32_t reap_pos;
	uint32_t freed;         /**< Places taken back since the last reap(). */
	const void *owner;      /**< Debug: the thread. */
	uint64_t *tokens;       /**< All clients' tables. */
	struct ipc_peer *peers; /**< max_clients. */
	/** The first n_active are served or dropped; the rest is there to be prefetched from. */
	struct ipc_peer *active[CRPC_IPC_CLIENTS_MAX + IPC_PREFETCH];
};

/** Look at a few places for newcomers; called while admit_left is not 0. */
void __crpc_ipc_admit(struct crpc_ipc_server *s);

/** Stop serving a client that broke the protocol: expected and found are said. */
void __crpc_ipc_drop(struct crpc_ipc_server *s, struct ipc_peer *p, const char *what,
		uint32_t expected, uint32_t found);

#endif
