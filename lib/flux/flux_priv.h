/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLUX_PRIV_H
#define FLUX_PRIV_H

/*
 * What the two files of flux share: crpc_flux.c owns life (create, join, connect, leave),
 * flux_path.c the datapath.
 *
 * A channel belongs to two nodes. Each side writes its own half only; the halves meet in the rings
 * and in two flags, caller_gone and server_gone. The last to let go frees it.
 *
 *     slot (caller):  free -> open -> free              call, answer
 *                             open -> LATE -> free      call, deadline, answer (or the peer leaves)
 *     held (server):  id 0 -> id -> 0                   recv, reply
 *
 * and to its server, which has at most one channel of a caller in in[]:
 *
 *     inbox -> arriving -> in[] -> departed -> gone     the caller connects; the requests of its
 *                                                       earlier channel were received; it left and
 *                                                       all was received; the last held is ended
 */

#include <pthread.h>

#include "crpc_flux.h"
#include "crpc_log.h"
#include "crpc_spsc_fastforward.h"
#include "crpc_spsc_lamport.h"
#include "crpc_spsc_onesided.h"

/*
 * Slots per window: a window of calls may be open while the answers of the last poll, at most
 * another window, are still being read where they lie.
 */
#define SLOTS_PER_WINDOW 2u

/*
 * An id is a slot and a count of uses, which a caller's next channel continues: none is used twice
 * (43 bits). A token is the caller's node above the id.
 */
#define ID_BITS 56
#define ID_MASK ((UINT64_C(1) << ID_BITS) - 1)
#define ID_SLOT_BITS 13
#define ID_SLOT_MASK ((1u << ID_SLOT_BITS) - 1)
#define ID_STEP (UINT64_C(1) << ID_SLOT_BITS)
/* In a slot's id: no answer completes the call. */
#define ID_CLOSED (UINT64_C(1) << 63)
_Static_assert(SLOTS_PER_WINDOW * CRPC_FLUX_WINDOW_MAX <= 1u << ID_SLOT_BITS, "an id holds a slot");
_Static_assert(CRPC_FLUX_NODES_MAX <= 1u << (64 - ID_BITS), "a token holds a node");

/*
 * What goes through a ring: the id above the length. The payload lies in the channel's slot that
 * the id names: the answer overwrites the request there, and so each of its lines moves once per
 * direction.
 */
#define FLUX_ESIZE ((uint32_t)sizeof(uint64_t))
#define MSG_LEN_BITS (64 - ID_BITS)
#define MSG_LEN_MASK ((1u << MSG_LEN_BITS) - 1)
_Static_assert(FLUX_ESIZE == CRPC_SPSC_ESIZE_MIN, "seven and a flag are one line");
_Static_assert(CRPC_FLUX_MSG_MAX <= MSG_LEN_MASK, "a message holds its length");

/* Of a slot that is not free and whose answer completes nothing. */
enum slot_state {
	SLOT_NONE,
	SLOT_ONEWAY, /* a notification */
	SLOT_LATE,   /* timed out and told so; the answer may still come */
};

/* What every call touches. */
struct flux_slot {
	uint64_t cookie;
	uint64_t id; /* of its last use; with ID_CLOSED unless an answer completes the call */
};
_Static_assert(sizeof(struct flux_slot) == 16, "four per line");

/* What some calls touch: kept where there is a deadline, or the rings ask for credit. */
struct flux_track {
	uint64_t since_ns; /* of the first poll after the call */
	uint32_t pos; /* of the request in its ring: the answer proves it and all before it read */
	uint32_t state; /* enum slot_state */
};

struct flux_chan {
	/* Read-only once connected. */
	uint32_t caller;
	uint32_t server;
	uint32_t window;
	uint32_t nslots;
	uint32_t msg_size;
	uint32_t stride; /* bytes from one slot's payload to the next */
	uint32_t hints;
	char *buf; /* payloads: the caller's from the answer to the call, the server's meanwhile */
	struct crpc_flux *flux;
	struct flux_chan *next; /* in the server's inbox, its arriving or its departed */
	size_t len;
	_Atomic uint32_t refs;
	/* Each written once, by the side that leaves. */
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t caller_gone;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t server_gone;
	/* The caller's half. */
	crpc_aligned(CRPC_CACHE_GUARD) struct crpc_spsc_prod req_p;
	struct crpc_spsc_cons resp_c;
	struct flux_slot *slot;
	struct flux_track *track;
	bool tracks;
	uint16_t *free; /* stack of free slots: the hottest first */
	uint16_t *back; /* slots whose answers were given out by the last poll */
	uint32_t nfree;
	uint32_t nback;
	uint32_t nlate;
	uint32_t nstamped;	/* nfree at the last poll: what was taken since has no since_ns */
	uint32_t judge_pos;	/* in the response ring: see judge() */
	uint64_t judge_ns;	/* 0: none */
	uint64_t next_scan_ns;
	/* The server's half. */
	crpc_aligned(CRPC_CACHE_GUARD) struct crpc_spsc_cons req_c;
	struct crpc_spsc_prod resp_p;
	uint64_t *held; /* id of the request that each slot holds; 0 none */
	uint32_t taken;	   /* requests taken, free running */
	uint32_t index;	   /* in the server's in[] */
	uint32_t nheld;	   /* once departed: requests that are not ended */
	uint64_t token_hi; /* the caller's node, above the ids of its tokens */
};

struct crpc_flux_node {
	struct crpc_flux *flux;
	uint32_t id;
	uint32_t nout;
	uint32_t nin;
	uint32_t next_out;
	uint32_t next_in;
	uint64_t now_ns;
	struct flux_chan *arriving; /* from the inbox, oldest first */
	struct flux_chan *departed;
	struct flux_chan *by_peer[CRPC_FLUX_NODES_MAX]; /* outgoing, by the peer's id */
	struct flux_chan *out[CRPC_FLUX_NODES_MAX];	/* the same, side by side */
	struct flux_chan *in[CRPC_FLUX_NODES_MAX];
	struct flux_chan *from[CRPC_FLUX_NODES_MAX]; /* the same, by the caller's id */
	struct crpc_flux_stats stats;
	/* New channels, pushed by callers. Under the flux's lock to push, by exchange to take. */
	crpc_aligned(CRPC_CACHE_GUARD) struct flux_chan *_Atomic inbox;
};

struct crpc_flux {
	struct crpc_flux_attr attr;
	pthread_mutex_t lock; /* node[], memory, next_id */
	size_t memory;
	uint64_t next_id; /* above the ids of all channels that were let go by their callers */
	struct crpc_flux_node *node[CRPC_FLUX_NODES_MAX];
};

/* Drop the server's hold on a channel. */
void __crpc_flux_chan_put(struct flux_chan *ch);

/* The server's part of recv that is rare: take channels from the inbox. */
void __crpc_flux_inbox_take(struct crpc_flux_node *node);

/* A server takes a channel, whose caller left, out of in[]. It stays while a request is held. */
void __crpc_flux_in_drop(struct crpc_flux_node *node, struct flux_chan *ch);

/* A caller forgets out[i], whose server left and whose calls are all completed. */
void __crpc_flux_out_drop(struct crpc_flux_node *node, uint32_t i);

static inline bool
flux_is_onesided(const struct crpc_spsc_prod *p)
{
	return p->variant == CRPC_SPSC_ONESIDED || p->variant == CRPC_SPSC_ONESIDED_ALIGNED;
}

/* True if the caller left and all that it sent is received. A22 pairs with R21. */
static inline bool
flux_is_drained(const struct flux_chan *ch)
{
	return crpc_unlikely(crpc_load_acquire(&ch->caller_gone) != 0) &&
		crpc_spsc_count(&ch->req_c) == 0;
}

/* Calls whose slot is not free: open, timed out, or reported as such. */
static inline uint32_t
flux_open(const struct flux_chan *ch)
{
	return ch->nslots - ch->nfree - ch->nback;
}

static inline char *
flux_payload(const struct flux_chan *ch, uint32_t slot)
{
	return ch->buf + (size_t)slot * ch->stride;
}

/* The packed variants by a switch that predicts well: cheaper than a call, and it inlines. */
static inline uint32_t
flux_reserve(struct crpc_spsc_prod *p, uint32_t want, void **first)
{
	switch (p->variant) {
	case CRPC_SPSC_LAMPORT:
		return crpc_spsc_lamport_reserve(p, FLUX_ESIZE, want, first);
	case CRPC_SPSC_FASTFORWARD:
		return crpc_spsc_fastforward_reserve(p, FLUX_ESIZE, CRPC_SPSC_PACKED, want, first);
	case CRPC_SPSC_ONESIDED:
		return crpc_spsc_onesided_reserve(p, FLUX_ESIZE, CRPC_SPSC_PACKED, want, first);
	default:
		return crpc_spsc_reserve(p, want, first);
	}
}

static inline void
flux_commit(struct crpc_spsc_prod *p, uint32_t n)
{
	switch (p->variant) {
	case CRPC_SPSC_LAMPORT:
		crpc_spsc_lamport_commit(p, n);
		break;
	case CRPC_SPSC_FASTFORWARD:
		crpc_spsc_fastforward_commit(p, FLUX_ESIZE, CRPC_SPSC_PACKED, n);
		break;
	case CRPC_SPSC_ONESIDED:
		crpc_spsc_onesided_commit(p, FLUX_ESIZE, CRPC_SPSC_PACKED, n);
		break;
	default:
		crpc_spsc_commit(p, n);
	}
}

static inline uint32_t
flux_peek(struct crpc_spsc_cons *c, uint32_t want, void **first)
{
	switch (c->variant) {
	case CRPC_SPSC_LAMPORT:
		return crpc_spsc_lamport_peek(c, FLUX_ESIZE, want, first);
	case CRPC_SPSC_FASTFORWARD:
		return crpc_spsc_fastforward_peek(c, FLUX_ESIZE, CRPC_SPSC_PACKED, want, first);
	case CRPC_SPSC_ONESIDED:
		return crpc_spsc_onesided_peek(c, FLUX_ESIZE, CRPC_SPSC_PACKED, want, first);
	default:
		return crpc_spsc_peek(c, want, first);
	}
}

static inline void
flux_ring_release(struct crpc_spsc_cons *c)
{
	if (c->next != c->freed)
		crpc_spsc_release(c);
}

/* Copy a payload: the sizes that matter inline, the rest by the library. In place, nothing. */
static inline void
flux_copy(void *dst, const void *src, uint32_t len)
{
	if (crpc_unlikely(dst == src))
		return;
	switch (len) {
	case 8:
		memcpy(dst, src, 8);
		break;
	case 16:
		memcpy(dst, src, 16);
		break;
	case 32:
		memcpy(dst, src, 32);
		break;
	case 64:
		memcpy(dst, src, 64);
		break;
	default:
		if (len != 0)
			memcpy(dst, src, len);
	}
}

#endif
