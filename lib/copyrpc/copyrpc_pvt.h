/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_PVT_H
#define COPYRPC_PVT_H

/**
 * @file
 * Inside of crpc_copyrpc. Positions are bytes, 64 bits, run free and are masked on access.
 *
 * Request lane, as its sender sees it (positions grow to the right):
 *
 *     peer_released <= tx.sent <= tx.prod <= peer_released + ring_size
 *     [ the peer holds it ][ queued: pend[] ][ free ]
 *
 * and as its receiver sees it:
 *
 *     told <= released <= rx.pos <= released + ring_size
 *     [ free again, peer not told ][ requests that are open or wait for recv() ]
 *
 * Response lane: the same without positions that come back. The caller counts, in resv, the worst
 * case of every reply it waits for plus the bytes that its user may still read; that sum, plus the
 * largest of them for the tail that a wrap skips, never exceeds the ring. The live part of the ring
 * crosses its end at most once, and skips less than one reply there, so what the server writes
 * always fits: reply() needs no window. The server repeats the sum in owed, to find a caller that
 * lies.
 *
 * Call slot:      FREE -> QUEUED -> SENT -> FREE       a deadline sets EXPIRED beside QUEUED or
 * SENT:
 *                                                      the slot and its reservation stay until the
 *                                                      response comes or the endpoint ends
 * Request entry:  ARRIVED -> OPEN (recv) -> DONE (reply, release) -> gone when all before it are
 * DONE Endpoint:       err = -ENOTCONN -> 0 (connect) -> -ECONNRESET or -EPROTO, for ever
 */

#include <errno.h>

#include "copyrpc_wire.h"
#include "crpc_log.h"

/** No slot, no endpoint. */
#define NIL 0xffffu
/** Requests that recv() takes of one endpoint before the next one's turn. */
#define RECV_TURN 16
/** Call slots that the deadline sweep looks at in one poll. */
#define SWEEP_SLOTS 256
/** Batches, both lanes, and one window update. */
#define FLUSH_WRS 5

_Static_assert(CRPC_COPYRPC_EPS_MAX < NIL, "an endpoint's index has 16 bits");
_Static_assert(CRPC_COPYRPC_INFLIGHT_MAX < NIL, "a call slot's index has 16 bits");

#define SLOT_FREE    0u
#define SLOT_QUEUED  1u
#define SLOT_SENT    2u
#define SLOT_EXPIRED 4u /* beside one of the two */

/** One open call. */
struct call_slot {
	uint64_t cookie;
	uint64_t call_ns;
	uint32_t id; /**< Generation and slot index; never 0. */
	uint32_t resp_max;
	uint32_t queue_ns; /**< call() to flush. */
	uint16_t next;     /**< Free list, or list of the queued calls. */
	uint8_t state;
	uint8_t pad;
};
_Static_assert(sizeof(struct call_slot) == 32, "two in a line");

/** State of a request. */
enum req_state {
	REQ_ARRIVED,
	REQ_OPEN,
	REQ_DONE,
};

/** One request that lies in our ring. */
struct req_entry {
	uint64_t arrived_ns;
	uint32_t id; /**< The caller's; 0: one-way. */
	uint32_t len;
	uint32_t resp_max;
	uint32_t end; /**< Low bits of the position behind it. */
	uint32_t state;
	uint32_t pad;
};
_Static_assert(sizeof(struct req_entry) == WIRE_STRIDE_MIN, "the table is as large as the ring");

/** Room for the worst cases of a set of replies: ring_size = their sum + their maximum + left. */
struct room {
	uint32_t left;
	uint32_t max;
};

/** One batch that is not sent yet. */
struct pending {
	uint64_t pos;
	uint32_t len;
	uint32_t count;
	uint32_t owed; /**< Responses: the part of the endpoint's owed that it settles. */
};

/** What we send on one lane. */
struct tx_lane {
	uint8_t *next; /**< Where the open batch goes on. */
	uint64_t prod;
	uint32_t left; /**< Bytes that the open batch takes without asking for ring, window,
	                    batch_max or policy; may be too few; 0 if no batch is open. */
	uint32_t npend;
	struct pending pend[2]; /**< Two only if the queue crosses the end of the ring; the last one
	                             is open, its len is set when it is closed or posted. */
	uint64_t sent;
	uint8_t *stage; /**< Ring of the same size and offsets as the peer's. */
	uint64_t raddr; /**< The peer's ring. */
};

/** Flags of an endpoint. */
#define EP_DIRTY  0x1u /* in the list of those with something to send */
#define EP_READY  0x2u /* in the list of those with requests for recv() */
#define EP_BROKEN 0x4u /* in the list of those whose open calls must fail */

struct crpc_copyrpc_ep {
	struct crpc_copyrpc *ctx;
	struct crpc_rdma_qp *qp;
	int32_t err;
	uint32_t ring_size;
	uint32_t max_msg; /**< Of both ends, the smaller one. */
	uint32_t rkey;
	uint32_t flags;
	uint16_t id;
	uint16_t dirty_next;

	/* sending */
	struct tx_lane tx[WIRE_LANES];
	uint64_t peer_released;
	uint64_t queued_ns; /**< When the oldest pending message was queued. */
	uint32_t flush_seq; /**< Flushes with a signal so far: their wr_id. */
	uint32_t done_seq;  /**< The newest that completed. */
	uint32_t stage_lkey;
	uint32_t peer_epoch;

	/* calls */
	struct call_slot *slots;
	struct room resv;
	uint32_t hold; /**< Part of resv: shown to the user by poll number hold_seq. */
	uint32_t hold_seq;
	uint32_t open; /**< Slots that are neither free nor expired. */
	uint16_t free_head;
	uint16_t queued_head;
	uint32_t put_len; /**< Of call_reserve, for its commit. */
	uint32_t put_resp_max;

	/* requests */
	uint8_t *rx[WIRE_LANES];
	uint64_t rx_pos[WIRE_LANES]; /**< Where the next batch comes. */
	uint64_t released;
	uint64_t told;        /**< What the peer knows of released. */
	uint64_t released_ns; /**< When released passed told. */
	struct req_entry *reqs;
	uint32_t req_mask;
	uint32_t turn;     /**< Requests recv() took in this turn. */
	uint64_t req_head; /**< The oldest that is not gone. */
	uint64_t req_next; /**< The next one for recv(). */
	uint64_t req_tail; /**< The next one to arrive. */
	struct room owed;

	uint16_t ready_next;
	uint16_t broken_next;
	uint32_t fail_at; /**< Slot where failing goes on. */

	/* control */
	uint32_t user_id;
	uint32_t epoch;
	void *mem; /**< rx requests, rx responses, tx requests, tx responses. */
	struct crpc_rdma_mr rx_mr, tx_mr;
};

/** A FIFO of endpoints, linked by their indexes. */
struct ep_list {
	uint16_t head;
	uint16_t tail;
	uint32_t n;
};

struct crpc_copyrpc {
	struct crpc_rdma *dev;
	struct crpc_copyrpc_conf conf;
	uint32_t inline_max;
	uint32_t slot_mask;
	uint32_t poll_seq;
	uint32_t neps; /**< Endpoints that exist. */
	struct ep_list dirty, ready, broken;

	/* completions of the device that wait, and the response batch that is being parsed */
	uint16_t cqe_i, cqe_n;
	struct crpc_copyrpc_ep *cur; /**< NULL: none. */
	uint32_t cur_off, cur_end;   /**< In cur's response ring. */
	uint32_t cur_left;           /**< Messages. */

	/* deadlines */
	uint64_t sweep_ns; /**< When the next sweep starts. */
	uint32_t sweep_ep; /**< Where the sweep is. */
	uint32_t sweep_slot;
	bool sweeping;

	struct crpc_copyrpc_ep *put_ep; /**< Of reply_reserve, for its commit. */
	uint64_t put_req;
	uint32_t put_len;

	uint32_t epoch;
	const void *owner; /**< Debug: the thread. */
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	struct crpc_copyrpc_ep *eps[CRPC_COPYRPC_EPS_MAX];
	uint64_t serial[CRPC_COPYRPC_EPS_MAX]; /**< First request of a slot's next endpoint. */
	struct crpc_copyrpc_stats stats;
};

/* Debug builds: a context belongs to the thread that used it first. */
#ifdef CRPC_DEBUG
void copyrpc_owner_check(struct crpc_copyrpc *ctx);
#else
static inline void
copyrpc_owner_check(struct crpc_copyrpc *ctx)
{
}
#endif

/** Token of request number @p req of endpoint @p id: never given twice by a context. */
#define TOKEN_EP_SHIFT 48

static inline uint64_t
token_make(uint16_t id, uint64_t req)
{
	return (uint64_t)id << TOKEN_EP_SHIFT | (req & ((UINT64_C(1) << TOKEN_EP_SHIFT) - 1));
}

/** Nothing is in it. */
static inline void
room_reset(struct room *r, uint32_t ring_size)
{
	r->left = ring_size;
	r->max = 0;
}

static inline uint32_t
room_sum(const struct room *r, uint32_t ring_size)
{
	return ring_size - r->max - r->left;
}

/** room_fits() where the maximum must grow, or may shrink because nothing is in it. */
bool __crpc_copyrpc_room_fits_slow(struct room *r, uint32_t worst, uint32_t ring_size);

/** Whether one more of @p worst fits: all of them and the largest again, for the skip of a wrap. */
static inline bool
room_fits(struct room *r, uint32_t worst, uint32_t ring_size)
{
	if (crpc_likely(worst <= r->max && worst <= r->left))
		return true;
	return __crpc_copyrpc_room_fits_slow(r, worst, ring_size);
}

/** Put in what room_fits() found to fit. */
static inline void
room_add(struct room *r, uint32_t worst)
{
	r->left -= worst;
}

static inline void
room_sub(struct room *r, uint32_t bytes)
{
	r->left += bytes;
}

static inline uint64_t
lane_queued(const struct tx_lane *lane)
{
	return lane->prod - lane->sent;
}

/** Something waits to be sent. */
static inline bool
ep_pending(const struct crpc_copyrpc_ep *ep)
{
	return (ep->tx[WIRE_REQ].npend | ep->tx[WIRE_RESP].npend) != 0;
}

static inline uint32_t
ep_outstanding(const struct crpc_copyrpc_ep *ep)
{
	return ep->flush_seq - ep->done_seq;
}

static inline void
ep_mark_dirty(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	if (ep->flags & EP_DIRTY)
		return;
	ep->flags |= EP_DIRTY;
	ep->dirty_next = NIL;
	if (ctx->dirty.n++ == 0)
		ctx->dirty.head = ep->id;
	else
		ctx->eps[ctx->dirty.tail]->dirty_next = ep->id;
	ctx->dirty.tail = ep->id;
}

static inline void
ep_mark_ready(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	if (ep->flags & EP_READY)
		return;
	ep->flags |= EP_READY;
	ep->ready_next = NIL;
	ep->turn = 0;
	if (ctx->ready.n++ == 0)
		ctx->ready.head = ep->id;
	else
		ctx->eps[ctx->ready.tail]->ready_next = ep->id;
	ctx->ready.tail = ep->id;
}

/** Give a call slot back, with its reservation. */
static inline void
ep_slot_free(struct crpc_copyrpc_ep *ep, struct call_slot *slot)
{
	slot->state = SLOT_FREE;
	slot->next = ep->free_head;
	ep->free_head = (uint16_t)(slot - ep->slots);
}

/** The last poll's completions may be overwritten now: take their bytes out of the reservation. */
static inline void
ep_hold_end(struct crpc_copyrpc_ep *ep)
{
	if (ep->hold != 0 && ep->hold_seq != ep->ctx->poll_seq) {
		room_sub(&ep->resv, ep->hold);
		ep->hold = 0;
	}
}

/* crpc_copyrpc_ep.c */

/** An endpoint breaks: nothing more is sent or taken, its open calls fail in the next polls. */
void __crpc_copyrpc_ep_break(struct crpc_copyrpc_ep *ep, int err);
/** The peer broke the protocol; says which rule once and breaks the endpoint with -EPROTO. */
void __crpc_copyrpc_ep_lie(
	struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found);

/* crpc_copyrpc_tx.c */

/** Post what is pending, and the news of released room. Returns 1 if anything was posted. */
uint32_t __crpc_copyrpc_ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns);

#endif
