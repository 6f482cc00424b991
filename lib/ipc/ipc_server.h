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
 *        |                                +------- lock is free ---------+--> LEFT
 *        |                                                                     |
 *        +-- no request is held: zero the slots, claim = FREE, gen + 1 --------+
 *
 * and within SERVED, by whether recv() looks at its slots:
 *
 *     awake (in the list `active`) --quiet for long--> asleep --rang, or found by reap()--> awake
 */

#include "crpc_ipc.h"
#include "crpc_owner.h"
#include "crpc_util.h"
#include "ipc_layout.h"

CRPC_BEGIN_DECLS

/** Clients whose slots are prefetched ahead of the one that recv() looks at. */
#define IPC_PREFETCH 3

/** Clients that recv() goes on looking at though they are quiet: it costs nothing to speak of. */
#define IPC_AWAKE_MIN 4
/** Visits in a row that found nothing, after which a client may be put to sleep. */
#define IPC_SLEEP_VISITS 256

/*
 * A token, and the table of a client's tokens, one entry per request slot:
 *
 *     63     62 .. 52      51     50 .. 12       11     10      9 .. 0
 *     free   client + 1    dead   serial number  block  oneway  slot; req_slots is the lone one
 *
 * The table goes on to the power of two behind the lone slot, with entries that are always free.
 * An entry with `free` set is no open request's, and no token has it: such a client's index is out
 * of range. The serial number counts the uses of the slot, and wraps. `dead` stands beside `free`
 * only: the client is gone, which the first use of the token returns.
 */
#define IPC_TOKEN_SLOT_BITS 10
#define IPC_TOKEN_SLOT_MASK ((1u << IPC_TOKEN_SLOT_BITS) - 1)
#define IPC_TOKEN_STEP      (UINT64_C(1) << 12)
#define IPC_TOKEN_DEAD      (UINT64_C(1) << 51)
#define IPC_TOKEN_ID_SHIFT  52
#define IPC_TOKEN_FREE      (UINT64_C(1) << 63)
#define IPC_TOKEN_FLAGS     (CRPC_IPC_TOKEN_ONEWAY | CRPC_IPC_TOKEN_BLOCK)

_Static_assert(CRPC_IPC_CLIENTS_MAX < 1 << (63 - IPC_TOKEN_ID_SHIFT), "a client fits a token");
_Static_assert(2 * CRPC_IPC_DEPTH_MAX < 1 << IPC_TOKEN_SLOT_BITS, "a slot's index fits a token");
_Static_assert(CRPC_IPC_TOKEN_ONEWAY == 1 << IPC_TOKEN_SLOT_BITS, "flags above the slot");
_Static_assert(IPC_TOKEN_STEP == CRPC_IPC_TOKEN_BLOCK << 1, "the serial number above the flags");

enum ipc_peer_state {
	IPC_PEER_ABSENT,
	IPC_PEER_SERVED,
	IPC_PEER_DROPPED,
	IPC_PEER_LEFT, /**< Gone, and the server has not ended all its requests. */
};

/** Reaps after which the arena's dead are looked for, though no client is known to have died. */
#define IPC_RECLAIM_REAPS 1024
/** Places and units of the arena that one reap() looks at. */
#define IPC_RECLAIM_BURST 64

/** One client. The first line is what recv() and reply() touch. */
struct ipc_peer {
	struct ipc_slot *head;  /**< Where its next request will be, if not in the lone slot. */
	uint64_t *tokens;      /**< Per request slot and for the lone one, as above. */
	uint8_t *resp;         /**< Its response ring. */
	uint8_t *req;          /**< Its request slots. */
	uint64_t req_seq;      /**< Of the next request; its low half travels. */
	uint64_t resp_seq;     /**< And of the next response. */
	/** In shared memory, per request slot and for the lone one: bytes that its call allows. */
	const _Atomic uint16_t *allow;
	uint16_t open;         /**< Requests not yet ended. */
	uint16_t limit;        /**< depth while served, else 0: so many open, and it is skipped. */
	uint16_t head_slot;    /**< Index of head. */
	uint16_t idle;         /**< Visits in a row that found nothing. */
	uint32_t id;
	uint32_t lone_seq;   /**< Of the request in the lone slot. */
	uint32_t active_pos; /**< Its place in the list of active clients, or IPC_NOT_ACTIVE. */
	uint32_t state;      /**< enum ipc_peer_state. */
	uint32_t gen;        /**< Of its claim. */
	uint32_t sleep;      /**< Odd: asleep. */
	uint32_t member;     /**< Its number in the arena; 0: none. */
	uint32_t dead;       /**< Requests held since it was dropped or left. */
	struct ipc_ctl *ctl;
	struct crpc_ipc_block *blocks; /**< Per request slot: what came with the open request. */
	uint64_t block_bytes;          /**< Their sum. */
	uint64_t *given; /**< Per response slot: the block of the last answer there that had one. */
} crpc_aligned(CRPC_CACHE_LINE);

#define IPC_NOT_ACTIVE UINT32_MAX

_Static_assert(offsetof(struct ipc_peer, id) == CRPC_CACHE_LINE, "one datapath line");
_Static_assert(2 * CRPC_IPC_DEPTH_MAX <= UINT16_MAX, "open, limit, head_slot");

struct crpc_ipc_server {
	struct ipc_bell *bell;
	uint64_t rung;         /**< Words of the doorbell with bits that wait in rung_word. */
	struct ipc_peer *peers; /**< max_clients. */
	uint32_t n_active;
	uint32_t scan;         /**< Where the next recv() starts. */
	uint32_t req_mask;     /**< req_slots - 1. */
	uint32_t resp_mask;
	uint32_t req_lone_max;   /**< Bytes of a request in the lone slot. */
	uint32_t reply_short;    /**< And of an answer there, or in one line. */
	uint32_t token_mask;     /**< Of an index into a client's table of tokens. */
	uint32_t lone_slot;      /**< The lone slot's index there: req_slots. */
	uint32_t lone_off;     /**< Of the lone slot in a client's request region. */
	uint32_t run_end;      /**< Answers below so many bytes may travel in runs; 0: none. */
	uint16_t sleep_visits; /**< IPC_SLEEP_VISITS; tests set others. */
	uint16_t awake_min;    /**< IPC_AWAKE_MIN. */
	struct ipc_header lay; /**< Private copy: the shared one is for clients. */
	struct crpc_ipc_server_stats stats;
	struct crpc_shm *seg;
	_Atomic uint64_t *beat;
	uint32_t reap_pos;
	uint32_t freed;    /**< Places taken back since the last reap(). */
	uint32_t reclaims; /**< Passes of crpc_arena_reclaim() to be made. */
	struct crpc_owner owner;
	uint64_t *tokens;  /**< All clients' tables. */
	struct crpc_arena_cache *arena; /**< NULL: no blocks. */
	uint64_t client_block_bytes;    /**< One client's limit. */
	struct crpc_ipc_block *blocks;  /**< All clients' blocks. */
	uint64_t *given;                /**< And what they were given. */
	uint64_t rung_word[IPC_BELL_WORDS];
	/** The first n_active are awake; the rest is there to be prefetched from. */
	struct ipc_peer *active[CRPC_IPC_CLIENTS_MAX + IPC_PREFETCH];
};

/** The slot of the client's request that is made while no other is open, and of its answer. */
static inline struct ipc_slot *
ipc_lone(const struct crpc_ipc_server *s, const struct ipc_peer *p)
{
	return (struct ipc_slot *)(void *)(p->req + s->lone_off);
}

/** The slot of a token. */
static inline uint32_t
ipc_token_slot(uint64_t token)
{
	return (uint32_t)token & IPC_TOKEN_SLOT_MASK;
}

/** The client of a token, of a free one too. */
static inline uint32_t
ipc_token_client(uint64_t token)
{
	return ((uint32_t)(token >> IPC_TOKEN_ID_SHIFT) & (CRPC_IPC_CLIENTS_MAX * 2 - 1)) - 1;
}

/**
 * The client whose open request @p token is; NULL: there is none. A free one's is out of range.
 */
static inline struct ipc_peer *
ipc_find_peer(const struct crpc_ipc_server *s, uint64_t token)
{
	uint32_t id = (uint32_t)(token >> IPC_TOKEN_ID_SHIFT) - 1;

	/* The table has entries beyond the lone slot's, which are always free. */
	if (crpc_unlikely(id >= s->lay.max_clients ||
			    s->peers[id].tokens[token & s->token_mask] != token))
		return NULL;
	return &s->peers[id];
}

static inline bool
ipc_is_lone(const struct crpc_ipc_server *s, uint64_t token)
{
	return ipc_token_slot(token) == s->lone_slot;
}

/**
 * Bytes that the call of an open request allows its reply. The client may change them at any time,
 * to its own harm: whatever it writes, no reply is longer than resp_max.
 */
static inline uint32_t
ipc_allowed(const struct crpc_ipc_server *s, const struct ipc_peer *p, uint64_t token)
{
	return crpc_load_relaxed(&p->allow[token & s->token_mask]); /* A1 of the request */
}

/** Where the next response of client p goes, if not to the lone slot. */
static inline struct ipc_slot *
ipc_resp_slot(const struct crpc_ipc_server *s, const struct ipc_peer *p)
{
	return ipc_slot_at(p->resp, (uint32_t)p->resp_seq & s->resp_mask, s->lay.resp_slot);
}

/** Open the request in p's slot: its token. */
static inline uint64_t
ipc_open_request(struct ipc_peer *p, uint32_t slot)
{
	uint64_t token = (p->tokens[slot] + IPC_TOKEN_STEP) & ~(IPC_TOKEN_FREE | IPC_TOKEN_DEAD);

	p->tokens[slot] = token;
	p->open++;
	return token;
}

/** Send the response that stands in p's next slot, and so end the request in @p slot. */
static inline void
ipc_publish(struct ipc_peer *p, uint32_t slot, uint32_t size, struct ipc_slot *r)
{
	p->open--;
	/* R2 pairs with A2 in poll_answers(): the answer, and our reads of the request. */
	crpc_store_release(&r->word, ipc_word((uint32_t)p->resp_seq, size, slot));
	p->resp_seq++;
}

/** The answer to the request in the lone slot is there too: send it. */
static inline void
ipc_publish_lone(
	struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t size, struct ipc_slot *lone)
{
	s->stats.rpc.replies++;
	/* R2 pairs with A2 in ipc_lone_size(): the answer, and our reads of the request. */
	crpc_store_release(&lone->word, ipc_word(p->lone_seq, size, IPC_SLOT_REPLY));
	p->open--;
}

/** The answer to the request in the lone slot goes through the ring: no word is left there. */
static inline void
ipc_leave_lone(const struct crpc_ipc_server *s, const struct ipc_peer *p)
{
	crpc_store_relaxed(&ipc_lone(s, p)->word, ipc_word(p->lone_seq - 1, 0, IPC_SLOT_REPLY));
}

/** Take the request at the head, which is not plain. False: it failed, or its client dropped. */
bool __crpc_ipc_recv_closer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req);

/** Drop a client for the size of its request in the lone slot. Returns 0: requests taken. */
uint32_t __crpc_ipc_drop_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t size);

/**
 * Take over the block whose reference a request in p's slot starts with.
 *
 * @return
 *   0, or the errno with which the request is to fail.
 */
int __crpc_ipc_block_in(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t slot, uint64_t ref);

/**
 * Give a block to the client of an open request, with the answer that is next.
 *
 * @return
 *   0, or what crpc_ipc_server_reply_ref() returns.
 */
int __crpc_ipc_block_out(
	struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, uint64_t ref);

/** Free the block of the request in p's slot, if it still has one. */
void __crpc_ipc_block_end(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t slot);

/** p has gone: free the blocks of answers that it did not take. */
void __crpc_ipc_given_end(struct crpc_ipc_server *s, struct ipc_peer *p);

/**
 * Say which way a token is wrong, and use a dead one up; a notification's only if @p oneway_too.
 */
int __crpc_ipc_refuse_token(struct crpc_ipc_server *s, uint64_t token, bool oneway_too);

/** Take the doorbell's bits, and look at a few of the places that rang. */
void __crpc_ipc_answer_bell(struct crpc_ipc_server *s);

/** Put a quiet client to sleep, if that is worth it and safe. True: it left the list. */
bool __crpc_ipc_doze(struct crpc_ipc_server *s, struct ipc_peer *p);

/** Take a client out of the list that recv() goes through. */
void __crpc_ipc_deactivate(struct crpc_ipc_server *s, struct ipc_peer *p);

/** What a client did against the protocol. */
struct ipc_breach {
	const char *what; /**< NULL: nothing. */
	uint32_t expected;
	uint32_t found;
};

/** Stop serving a client that broke the protocol: what, expected and found are said. */
void __crpc_ipc_drop(
		struct crpc_ipc_server *s, struct ipc_peer *p, const struct ipc_breach *breach);

CRPC_END_DECLS

#endif
