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

/* An id is a slot and how often the slot was used: unique among the calls that can be open. */
#define ID_SLOT_BITS 13
#define ID_SLOT_MASK ((1u << ID_SLOT_BITS) - 1)
#define ID_STEP (1u << ID_SLOT_BITS)
_Static_assert(SLOTS_PER_WINDOW * CRPC_FLUX_WINDOW_MAX <= 1u << ID_SLOT_BITS, "an id holds a slot");

/*
 * What goes through a ring. The payload lies in the channel's slot that the id names: the answer
 * overwrites the request there, and so each of its lines moves once per direction.
 */
struct flux_msg {
	uint32_t id;
	uint32_t len;
};
#define FLUX_ESIZE ((uint32_t)sizeof(struct flux_msg))
_Static_assert(sizeof(struct flux_msg) == CRPC_SPSC_ESIZE_MIN, "seven and a flag are one line");

/* Of a slot that is not free and whose answer completes nothing. */
enum slot_state {
	SLOT_NONE,
	SLOT_ONEWAY, /* a notification */
	SLOT_LATE,   /* timed out and told so; the answer may still come */
};

/* What every call touches. */
struct flux_slot {
	uint64_t cookie;
	uint32_t id;
	uint32_t open; /* the id while an answer completes the call, else 0 */
};
_Static_assert(sizeof(struct flux_slot) == 16, "four per line");

/* What some calls touch: kept where there is a deadline, or the rings ask for credit. */
struct flux_track {
	uint64_t since_ns;
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
	struct flux_chan *inbox_next; /* until the server takes it */
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
	/* The server's half. */
	crpc_aligned(CRPC_CACHE_GUARD) struct crpc_spsc_cons req_c;
	struct crpc_spsc_prod resp_p;
	uint32_t *held; /* id of the request that each slot holds; 0 none */
	uint32_t taken;	   /* requests taken, free running */
	uint32_t index;	   /* in the server's in[] */
	uint64_t token_hi; /* upper half of its tokens */
};

struct crpc_flux_node {
	struct crpc_flux *flux;
	uint32_t id;
	uint32_t nout;
	uint32_t nin; /* in[0..nin-1] may be in use */
	uint32_t next_out;
	uint32_t next_in;
	uint64_t now_ns;
	uint64_t next_scan_ns;
	struct flux_chan *by_peer[CRPC_FLUX_NODES_MAX]; /* outgoing, by the peer's id */
	struct flux_chan *out[CRPC_FLUX_NODES_MAX];	/* the same, side by side */
	struct flux_chan *in[CRPC_FLUX_NODES_MAX];
	uint16_t in_gen[CRPC_FLUX_NODES_MAX];
	struct crpc_flux_stats stats;
	/* New channels, pushed by callers. Under the flux's lock to push, by exchange to take. */
	crpc_aligned(CRPC_CACHE_GUARD) struct flux_chan *_Atomic inbox;
};

struct crpc_flux {
	struct crpc_flux_attr attr;
	pthread_mutex_t lock; /* node[], memory */
	size_t memory;
	struct crpc_flux_node *node[CRPC_FLUX_NODES_MAX];
};

/* Drop one side's hold on a channel. */
void __crpc_flux_chan_put(struct flux_chan *ch);

/* The server's part of recv that is rare: take channels from the inbox. */
void __crpc_flux_inbox_take(struct crpc_flux_node *node);

/* A server forgets in[i], whose caller left. */
void __crpc_flux_in_drop(struct crpc_flux_node *node, uint32_t i);

/* A caller forgets out[i], whose server left and whose calls are all completed. */
void __crpc_flux_out_drop(struct crpc_flux_node *node, uint32_t i);

static inline bool
flux_is_onesided(const struct crpc_spsc_prod *p)
{
	return p->variant == CRPC_SPSC_ONESIDED || p->variant == CRPC_SPSC_ONESIDED_ALIGNED;
}

/* Calls whose slot is not free: open, timed out, or told of as such. */
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
