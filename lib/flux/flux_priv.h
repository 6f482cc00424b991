/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLUX_PRIV_H
#define FLUX_PRIV_H

/*
 * What all files of flux share: crpc_flux.c has create, join, connect and leave, flux_path.c call,
 * poll, recv and reply, flux_end.c all other ends of calls and requests, flux_rings.c and
 * flux_mesh.c the rings that can be chosen instead of the default.
 *
 * A channel carries the calls of one node, its caller, to another, its server. Each side writes its
 * own half only. The last of the two to leave frees it.
 *
 *     slot (caller):  see rpc_calls.h
 *     held (server):  closed -> open -> closed          recv, reply
 *
 *     inbox -> arriving -> in[] -> departed -> dead     the caller connects; the requests of its
 *                                                       earlier channel were received; it left and
 *                                                       all was received; no request is open
 *
 * Both sides are threads of one process, which could overwrite each other anyway: what the peer
 * wrote to a channel is used without a check. Tokens come from the application and are checked.
 */

#include "crpc_atomic.h"
#include "crpc_flux.h"
#include "crpc_mem.h"
#include "crpc_owner.h"
#include "rpc_calls.h"

/*
 * An entry of an order: a slot, and what is in it.
 *
 *     request  slot, len, room
 *     reply    slot, len; FLAG: no data; the value is an errno, or 0 for the end of a notification
 *
 * Room is what a reply must be shorter than: 0 of a notification, resp_max + 1 of a call.
 */
#define FLUX_SLOT_BITS   14
#define FLUX_SLOT_MASK   ((1u << FLUX_SLOT_BITS) - 1)
#define FLUX_ROOM_SHIFT  (FLUX_SLOT_BITS + 8)
#define FLUX_LEN(entry)  ((entry) >> FLUX_SLOT_BITS & 0xffu)
#define FLUX_ROOM(entry) ((entry) >> FLUX_ROOM_SHIFT)
#define FLUX_FLAG        (1u << 31)

/*
 * A token is a slot, above it the caller's node, above that the number of the server's recv, which
 * gives each slot at most once. 2^42 of them pass until one is repeated.
 */
#define FLUX_CALLER_SHIFT FLUX_SLOT_BITS
#define FLUX_RECV_SHIFT   (FLUX_CALLER_SHIFT + 8)

struct flux_order;

/* What reports entries to a reader in place of the order's word. */
struct flux_ring {
	void (*publish)(struct flux_order *o); /* what is written, as far as there is room */
	void (*look)(struct flux_order *o);    /* sets known */
};

/* One end of an order: the slots that were filled, in the sequence in which they were. */
struct flux_order {
	uint32_t *entry;        /* as many as the window */
	_Atomic uint32_t *word; /* position up to which entries are published */
	struct flux_ring *ring; /* NULL in the default */
	uint32_t mask;
	uint32_t next;  /* position of the next entry to write, or to read */
	uint32_t known; /* position up to which they are published, as far as this end knows */
};

struct flux_chan {
	/* Read-only once connected. */
	uint32_t caller;
	uint32_t server;
	uint32_t window;
	uint32_t nslots;
	uint32_t msg_size;
	uint32_t stride; /* bytes from one slot's payload to the next */
	uint32_t lazy; /* entries that an end holds back before it publishes by itself */
	uint64_t deadline_ns;
	char *buf; /* payloads, of slot 0 first: the server's from the call to its reply */
	struct crpc_flux *flux;
	uint64_t serial;        /* of the flux's channels */
	struct flux_chan *next; /* in the server's inbox, arriving or departed, or in the dead */
	_Atomic uint32_t left; /* sides that will not use it again */
	/* Each written once, by the side that leaves. */
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t caller_gone;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t server_gone;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t head; /* of requests: the caller writes */
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t done; /* of replies: the server writes */
	/* The caller's half. */
	crpc_aligned(CRPC_CACHE_GUARD) struct flux_order requests;
	struct flux_order replies;
	struct rpc_calls calls;
	/* The server's half. */
	crpc_aligned(CRPC_CACHE_GUARD) struct flux_order arrived;
	struct flux_order answers;
	uint64_t *held;     /* the token of each slot; 0: closed */
	uint32_t held_mask; /* of the slot in any token: held[] has an entry for each value */
	uint8_t *room;      /* of the request in each slot */
	uint32_t index;    /* in the server's in[] */
	uint32_t nheld;    /* once departed: requests that are open */
};

struct crpc_flux_ep {
	struct crpc_flux_node *node;
	struct flux_chan *ch; /* NULL: not connected */
};

struct crpc_flux_node {
	struct crpc_flux *flux;
	uint32_t id;
	uint32_t nout;
	uint32_t nin;
	uint32_t next_out;
	uint32_t next_in;
	uint64_t recvs; /* the number of this recv, shifted as in a token */
	struct crpc_mem_place at; /* where it joined: what it receives lies there */
	struct crpc_owner owner;
	struct crpc_flux_stats stats;
	struct rpc_sweep sweep;
	struct flux_chan *arriving; /* from the inbox, oldest first */
	struct flux_chan *departed;
	struct flux_chan *out[CRPC_FLUX_NODES_MAX];
	struct flux_chan *in[CRPC_FLUX_NODES_MAX];
	struct flux_chan *from[CRPC_FLUX_NODES_MAX];  /* those of in[], by the caller's id */
	struct rpc_calls *calls[CRPC_FLUX_NODES_MAX]; /* those of out[], by the peer's id */
	struct crpc_flux_ep ep[CRPC_FLUX_NODES_MAX];
	/* New channels, pushed by callers. Under the flux's lock to push, by exchange to take. */
	crpc_aligned(CRPC_CACHE_GUARD) struct flux_chan *_Atomic inbox;
};

/* Append what is in the inbox, whose newest is first, to what arrives. */
void __crpc_flux_inbox_append(struct crpc_flux_node *node);

/* The rare part of recv: take channels from the inbox. */
void __crpc_flux_inbox_take(struct crpc_flux_node *node);

/*
 * Take a channel, whose caller left, out of in[], and return true; or false: its requests are not
 * all received. It stays while a request is open.
 */
bool __crpc_flux_in_drop(struct crpc_flux_node *node, struct flux_chan *ch);

/* flux_end.c: take an entry that is no reply to an open call. Returns whether *done was filled. */
bool __crpc_flux_take_other(
	struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_done *done);

/* Complete the calls to servers that left, and if @p forget, the channels without calls. */
uint16_t __crpc_flux_reset(
	struct crpc_flux_node *node, bool forget, struct crpc_done *done, uint16_t n);

/*
 * End the request of any token with an entry, for a reply of len bytes that lies in its slot. Or
 * the reason why not, as crpc_flux_reply().
 */
int __crpc_flux_end(
	struct crpc_flux_node *node, uint64_t token, uint32_t entry, uint32_t len, bool release);

/* Writer: publish what it wrote. */
static inline void
flux_publish(struct flux_order *o)
{
	if (o->known == o->next)
		return;
	if (crpc_unlikely(o->ring != NULL)) {
		o->ring->publish(o);
		return;
	}
	/* R25: entries and payloads before the word that covers them. Pairs with A25. */
	crpc_store_release(o->word, o->next);
	o->known = o->next;
}

/* Reader: how many entries wait. The word is read only if fewer than @p want are known. */
static inline uint32_t
flux_look(struct flux_order *o, uint32_t want)
{
	if (o->known - o->next < want) {
		if (crpc_unlikely(o->ring != NULL))
			o->ring->look(o);
		else /* A25 pairs with R25. */
			o->known = crpc_load_acquire(o->word);
	}
	return o->known - o->next;
}

/* The channel that a token came through; NULL: its caller left. */
static inline struct flux_chan *
flux_chan_of(const struct crpc_flux_node *node, uint64_t token)
{
	return node->from[token >> FLUX_CALLER_SHIFT & 0xff];
}

#endif
