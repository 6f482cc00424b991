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
 * Call slot:      free -> open (call) -> free (its response) or expired (deadline)
 *                                      expired: the slot and its reservation stay until the
 *                                      response comes or the endpoint ends -> free
 *                 call_ns tells the state; a free slot has the id of its next call already.
 * Request entry:  arrived -> open (recv) -> done (reply, release) -> gone when all before it are
 *                 done. An open entry holds its token, a done one the inverted token.
 * Endpoint:       err = -ENOTCONN -> 0 (connect) -> -ECONNRESET or -EPROTO -> -ENOTCONN (reset)
 *
 * What each message pays for is only what differs from message to message: a batch is opened,
 * checked against the window and the policy and put into the lists once (slow paths, out of line),
 * and then takes messages up to a limit that was computed then. Released positions are moved when
 * a flush looks at the endpoint, the round trip's parts are recorded once per run of equal ones.
 */

#include <errno.h>

#include "copyrpc_wire.h"
#include "crpc_log.h"
#include "crpc_tel.h"

/** No endpoint. */
#define NIL 0xffffu
/** Requests that recv() takes of one endpoint before the next one's turn. */
#define RECV_TURN 32
/** Call slots that the deadline sweep looks at in one poll. */
#define SWEEP_SLOTS 256
/** Polls that give a whole burst, of which one sends. */
#define BURSTS_JOINED 4
/** Batches, both lanes, and one window update. */
#define FLUSH_WRS 5

_Static_assert(CRPC_COPYRPC_EPS_MAX < NIL, "an endpoint's index has 16 bits");
/** In call_slot.call_ns: the slot is not open. */
#define SLOT_FREE    UINT64_MAX
#define SLOT_EXPIRED (UINT64_MAX - 1)
/** In call_slot.call_ns of an open call: canceled, to end with the next sweep. */
#define SLOT_CANCELED (UINT64_MAX - 2)

/** What calls that follow each other mostly have in common. */
struct call_kind {
	uint32_t batch; /**< Number of the batch they go in. */
	uint32_t resp_max;
};

/** One call. */
struct call_slot {
	union {
		uint64_t cookie;
		struct call_slot *next; /**< Free list. */
	};
	struct call_kind kind;
	uint64_t call_ns; /**< When it was made; SLOT_*. */
	uint32_t id;    /**< Generation and slot index, which is never 0. */
	uint32_t large; /**< CALL_LARGE_*: the areas that it has taken. */
};
_Static_assert(sizeof(struct call_slot) == 32, "two in a line");

/** In call_slot.large: request, reply do not fit the ring and go through an area. */
#define CALL_LARGE_REQ  (1u << WIRE_REQ)
#define CALL_LARGE_RESP (1u << WIRE_RESP)
/** Inverted in call_kind.batch of a call with a large request: no other one made at that time is of
 * the same kind. */
#define BATCH_LARGE (1u << 31)

/** Newest request batches whose time of sending is remembered; a power of two. */
#define BATCH_TIMES 256u

/** One request that lies in our ring. */
struct req_entry {
	union {
		uint64_t token; /**< From recv() on; inverted, so negative, when it is done. */
		const uint8_t *data; /**< Until then. */
	};
	uint32_t id; /**< The caller's. */
	uint32_t len;
	uint32_t arrived;   /**< Low bits of the time. */
	uint32_t end;       /**< Low bits of the position behind it. */
	uint32_t reply_end; /**< Length of the shortest reply that is too long, for the ring or
	                         for the caller; 0: one-way. */
	uint32_t worst;     /**< Bytes that its reply can need; 0: one-way. */
};
_Static_assert(sizeof(struct req_entry) == WIRE_STRIDE_MIN, "the table is as large as the ring");

/** Room for the worst cases of a set of replies: ring_size = their sum + their maximum + left. */
struct room {
	uint64_t left;
	uint64_t max;
};

/** One batch that is not sent yet. */
struct pending {
	uint64_t pos;
	uint32_t len;
	uint32_t count;
	uint64_t owed; /**< Responses: the part of the endpoint's owed that it settles. */
};

/** What we send on one lane. */
struct tx_lane {
	uint8_t *next;  /**< Where the next message goes; the end of what is queued. */
	uint8_t *limit; /**< The open batch takes messages that end here or before it without
	                     asking for ring, window, batch_max or policy; NULL: it does not. */
	uint32_t count; /**< Messages of the open batch. */
	uint32_t npend;
	uint64_t owed; /**< Responses: the part of the endpoint's owed that it settles. */
	uint64_t lap;    /**< Position of the staging ring's first byte in this lap. */
	uint64_t sent;
	uint8_t *stage; /**< Ring of the same size and offsets as the peer's. */
	uint64_t raddr; /**< The peer's ring. */
	struct pending pend[2]; /**< Two only if the queue crosses the end of the ring; the last one
	                             is open, and but for pos it is set when that one is closed. */
};
_Static_assert(offsetof(struct tx_lane, pend) == CRPC_CACHE_LINE, "what a message needs: one line");

/** Areas for messages beyond max_msg, in this order; the peer writes the first two. */
enum large_area {
	LARGE_RX_REQ,
	LARGE_RX_RESP,
	LARGE_TX_REQ,
	LARGE_TX_RESP,
	LARGE_AREAS,
};

/** A large message on its way; len 0: none. */
struct large_tx {
	uint32_t len;
	uint32_t posted; /**< Bytes whose fragments the device has taken. */
	uint32_t id;     /**< These go into the announcement. */
	uint32_t arg;
	uint32_t turn_ns;
	uint32_t owed;
};

/** Large messages of an endpoint; all zero if conf.max_large is. */
struct large {
	struct large_tx tx[WIRE_LANES];
	uint32_t max;       /**< Of both ends, the smaller one; 0: none. */
	uint32_t rkey;
	uint64_t raddr[WIRE_LANES]; /**< The peer's areas. */
	uint32_t taken;     /**< CALL_LARGE_*: areas that calls of ours have taken. */
	uint32_t held;      /**< Part of taken, that the user may read until the next poll. */
	uint32_t served;    /**< CALL_LARGE_*: areas that requests of the peer have taken. */
	uint32_t arrived;   /**< Length of a large request in the batch that is checked; or 0. */
	uint32_t reply_max; /**< Of the request with CALL_LARGE_RESP. */
	uint64_t req_at[WIRE_LANES]; /**< Number of the request with CALL_LARGE_*. */
	uint8_t *mem;
	struct crpc_rdma_mr rx_mr, tx_mr;
};

/** Flags of an endpoint. */
#define EP_DIRTY  0x1u /* in the list of those with something to send */
#define EP_READY  0x2u /* in the list of those with requests for recv() */
#define EP_BROKEN 0x4u /* in the list of those whose open calls, gets and puts must fail */
#define EP_MEMORY 0x8u /* in the table of those whose rings are looked at */
/* the peer is to be asked whether it is there, or to be told that we are; one after the other */
#define EP_ALIVE_SHIFT 4
#define EP_ALIVE(what) (1u << (EP_ALIVE_SHIFT + (what)))
#define EP_ALIVE_MASK  (EP_ALIVE(WIRE_ALIVE_YES) | EP_ALIVE(WIRE_ALIVE_ASK))

/** Kinds of completions, in the two upper bits of a wr_id. */
#define WR_KIND_SHIFT 30
#define WR_SERIAL_MASK ((1u << WR_KIND_SHIFT) - 1)
enum wr_kind {
	WR_FLUSH,    /**< A flush; its number. */
	WR_POSITION, /**< The READ of the peer's released position. */
	WR_ONESIDED, /**< A get or put; its number. */
};

/** Gets and puts of an endpoint that are open at most; a power of two. */
#define ONESIDED_MAX 64u

/** A get or a put. */
struct onesided {
	uint64_t cookie;
	const void *data;
	uint32_t len;
};

struct crpc_copyrpc_ep {
	/* call */
	struct crpc_copyrpc *ctx;
	struct call_slot *slots;
	struct call_slot *free;
	struct call_kind kind; /**< Of the newest call; its batch is the newest one. */
	uint64_t kind_worst;   /**< Bytes that its reply can need. */
	uint32_t id_step; /**< From one generation of a slot's ids to the next: the slots. */
	uint32_t max_msg; /**< Of both ends, the smaller one. */
	struct room resv;
	uint32_t calls; /**< Accepted, running free; those that have ended; those in the stats. */
	uint32_t ended;
	uint32_t counted;
	uint16_t id;
	uint32_t hold; /**< Part of resv: of the last poll's completions, which the user may read
	                    until the next one, and of late replies among them. */
	uint32_t flags;
	/* reply, recv */
	struct req_entry *reqs;
	uint32_t req_mask;
	uint32_t turn;     /**< Requests recv() took in this turn. */

	/* sending */
	struct tx_lane tx[WIRE_LANES] crpc_aligned(CRPC_CACHE_LINE);
	int32_t err;
	uint32_t ring_size;
	struct crpc_rdma_qp *qp; /**< NULL: a broken endpoint whose gets and puts have ended. */
	uint64_t peer_released;
	uint64_t queued_ns;  /**< When the oldest pending message was queued. */
	uint32_t flush_seq;  /**< CLOCKED: flushes that count; the wr_id of those with a signal. */
	uint32_t done_seq;   /**< The newest that is known to have arrived. */
	uint32_t req_seq;    /**< The newest that had requests. */
	uint32_t batch_sent; /**< Number of the newest request batch that was sent. */
	uint32_t rkey;
	uint32_t stage_lkey;
	uint32_t peer_epoch;
	uint32_t trailer; /**< Bytes behind the messages of a batch: its seal, or none. */
	uint8_t lone[WIRE_LANES]; /**< CLOCKED: batches of one message since a larger one. */
	uint64_t lone_ns[WIRE_LANES]; /**< The turn in which one was sent at once. */
	uint8_t flow;     /**< enum crpc_copyrpc_flow. */
	uint8_t transport; /**< enum crpc_rdma_transport. */
	bool memory;      /**< Arrivals are noticed in memory. */
	bool reading;     /**< A READ of the peer's position is on its way. */
	bool want_read;   /**< A call was refused for want of room. */
	_Atomic uint64_t *rx_words; /**< The peer's access to positions: WIRE_WORD_*. */
	_Atomic uint64_t *tx_words; /**< What is read lands here, what is written starts here. */
	uint64_t words_raddr;       /**< The peer's. */
	uint32_t op_head, op_tail;  /**< Gets and puts: completed, posted. */
	uint64_t alive_yes; /**< Answers to whether the peer is there. */
	uint64_t heard;     /**< Sum of all that moves when something arrives, when ... */
	uint64_t heard_ns;  /**< ... it was last seen to have moved. */
	uint64_t asked_ns;  /**< When the last question was put. */
	uint32_t asks;      /**< Questions since heard_ns. */

	/* requests */
	uint8_t *rx[WIRE_LANES];
	uint64_t rx_pos[WIRE_LANES]; /**< Where the next batch comes. */
	uint64_t released;
	uint64_t cleared;     /**< Arrivals in memory: up to here, responses are zero again. */
	uint64_t told;        /**< What the peer knows of released. */
	uint64_t released_ns; /**< When released passed told. */
	uint64_t req_head;    /**< The oldest that is not gone. */
	uint64_t req_next;    /**< The next one for recv(). */
	uint64_t req_tail;    /**< The next one to arrive. */
	struct room owed;

	uint16_t dirty_next;
	uint16_t ready_next;
	uint16_t broken_next;
	uint32_t fail_at; /**< Slot where failing goes on. */
	uint32_t put_len; /**< Of call_reserve, for its commit. */
	uint32_t put_resp_max;
	struct large large;

	/* control */
	uint32_t user_id;
	uint32_t epoch;
	void *mem; /**< rx requests, rx responses, tx requests, tx responses. */
	struct crpc_rdma_mr rx_mr, tx_mr;

	struct onesided ops[ONESIDED_MAX];
	uint64_t batch_ns[BATCH_TIMES]; /**< When request batches were sent, by their number. */
};

/** A FIFO of endpoints, linked by their indexes. */
struct ep_list {
	uint16_t head;
	uint16_t tail;
	uint32_t n;
};

struct crpc_copyrpc {
	struct crpc_rdma *dev;
	struct crpc_tel_box *tel;
	struct crpc_copyrpc_conf conf;
	uint32_t inline_max;
	uint32_t slot_mask;
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
	uint8_t sweeps;   /**< To be ended at once, as calls were given up: this one, the next. */
	bool ends_filled; /**< The last poll was full of calls that ended without a reply. */
	uint8_t bursts;   /**< Whole ones in a row, given by polls that sent nothing. */
	uint64_t full_ns; /**< Since when every poll was full; 0: the last one was not. */

	struct crpc_copyrpc_ep *put_ep; /**< Of reply_reserve, for its commit. */
	struct req_entry *put_req;
	uint32_t put_len;

	uint32_t epoch;
	const void *owner; /**< Debug: the thread. */
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	/* endpoints whose rings are looked at, and where we are among them */
	uint32_t nmemory, memory_at;
	bool memory_first; /**< Before completions of the device. */
	uint16_t memory[CRPC_COPYRPC_EPS_MAX];

	bool untimed; /**< Round trips are not recorded. */

	/* HOLD: mean time between messages and how long replies are held by it */
	uint64_t hold_gap_ns, hold_ns, hold_last_ns;
	bool hold_off; /**< The last batch was as large as holding could make it. */

	uint16_t nheld; /**< Endpoints with a hold. */
	uint16_t held[CRPC_COPYRPC_EPS_MAX];
	struct crpc_copyrpc_ep *eps[CRPC_COPYRPC_EPS_MAX];
	struct crpc_copyrpc_ep *by_token[CRPC_COPYRPC_EPS_MAX]; /**< The same; nobody if none. */
	struct crpc_copyrpc_ep *nobody; /**< An endpoint without any request. */
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

/*
 * A token: number of the request, index of the endpoint. A context never gives one twice (within
 * 2^51 requests, years), and the top bit is never set.
 */
#define TOKEN_EP_BITS 12
#define TOKEN_EP_MASK ((1u << TOKEN_EP_BITS) - 1)
#define TOKEN_SERIALS (UINT64_C(1) << (63 - TOKEN_EP_BITS))
_Static_assert(CRPC_COPYRPC_EPS_MAX == 1 << TOKEN_EP_BITS, "any index of a token is in the table");

static inline uint64_t
token_make(uint16_t id, uint64_t req)
{
	return (req << TOKEN_EP_BITS & INT64_MAX) | id;
}

static inline bool
req_is_done(const struct req_entry *req)
{
	return (int64_t)req->token < 0;
}

/** Two adjacent words as one, to compare them at once. */
static inline uint64_t
kind_word(const struct call_kind *kind)
{
	uint64_t word;

	memcpy(&word, kind, sizeof(word));
	return word;
}

/** Where counts of batches, flushes and requests start, too. */
static inline uint32_t
initial_count(const struct crpc_copyrpc_conf *conf)
{
	return (uint32_t)(conf->initial_pos / WIRE_UNIT);
}

/** Bytes of the response ring that a call reserves: a large reply needs those of a message. */
static inline size_t
ep_worst(const struct crpc_copyrpc_ep *ep, uint32_t resp_max)
{
	return wire_worst((uint32_t)crpc_min(resp_max, ep->max_msg)) + ep->trailer;
}

/** The next call is of another kind, whatever reply it asks for: for this one there is no room. */
static inline void
kind_forget(struct crpc_copyrpc_ep *ep)
{
	ep->kind.resp_max = UINT32_MAX;
	ep->kind_worst = UINT64_MAX;
}

static inline bool
slot_is_open(const struct call_slot *slot)
{
	return slot->call_ns < SLOT_EXPIRED;
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
	return (uint32_t)(ring_size - r->max - r->left);
}

/** Whether one more of @p worst fits: all of them and the largest again, for the skip of a wrap. */
bool __crpc_copyrpc_room_fits(struct room *r, size_t worst, uint32_t ring_size);

/** The same where nothing has to change for it; false: ask __crpc_copyrpc_room_fits(). */
static inline bool
room_fits(const struct room *r, size_t worst)
{
	return worst <= r->max && worst <= r->left;
}

static inline void
room_sub(struct room *r, uint64_t bytes)
{
	r->left += bytes;
}

/** Position behind all that is queued. */
static inline uint64_t
lane_prod(const struct tx_lane *lane)
{
	return lane->lap + (uint64_t)(lane->next - lane->stage);
}

/** Position where the next batch may start. */
static inline uint64_t
lane_end(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane)
{
	return lane_prod(lane) + (lane->npend != 0 ? ep->trailer : 0);
}

static inline uint64_t
lane_queued(const struct tx_lane *lane)
{
	return lane_prod(lane) - lane->sent;
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

static inline uint32_t
ep_open(const struct crpc_copyrpc_ep *ep)
{
	return ep->calls - ep->ended;
}

/** Count the calls made since last time: once per batch, not per call. */
static inline void
ep_count_calls(struct crpc_copyrpc_ep *ep)
{
	ep->ctx->stats.calls += ep->calls - ep->counted;
	ep->counted = ep->calls;
}

/**
 * Give a slot, open or expired, back. Its reservation is the caller's to give back. From now on no
 * response fits: the id is that of the next call, and no response is taken for a free slot.
 */
static inline void
slot_free(struct crpc_copyrpc_ep *ep, struct call_slot *slot)
{
	slot->call_ns = SLOT_FREE;
	slot->id += ep->id_step;
	slot->next = ep->free;
	ep->free = slot;
}

/* crpc_copyrpc_ep.c */

/** An endpoint breaks: nothing more is sent or taken, its open calls fail in the next polls. */
void __crpc_copyrpc_ep_break(struct crpc_copyrpc_ep *ep, int err);
/** Put a broken endpoint behind the others whose open calls, gets and puts must fail. */
void __crpc_copyrpc_ep_broken(struct crpc_copyrpc_ep *ep);
/** The peer broke the protocol; says which rule once and breaks the endpoint with -EPROTO. */
void __crpc_copyrpc_ep_lie(
	struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found);

/** Make ctx->nobody, and let it stand for every endpoint. */
int __crpc_copyrpc_nobody_init(struct crpc_copyrpc *ctx);
/** Take it out of ctx->held. */
void __crpc_copyrpc_hold_drop(struct crpc_copyrpc_ep *ep);

/* crpc_copyrpc_tx.c */

/** Move released over the requests that are done. */
void __crpc_copyrpc_ep_release(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
/** Post what is pending, and the news of released room. Returns 1 if anything was posted. */
uint32_t __crpc_copyrpc_ep_post(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
/** crpc_copyrpc_flush() from inside. */
uint32_t __crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns);

/* crpc_copyrpc_rx.c */

/** Zero what has arrived from one position to another. */
void __crpc_copyrpc_rx_clear(
	const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t from, uint64_t to);

/* crpc_copyrpc_end.c */

/** Up to n calls that end without a reply; how many. */
uint16_t __crpc_copyrpc_ends_take(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n);
/** The same if it is time to, before replies are taken: those have filled the last polls. */
uint16_t __crpc_copyrpc_ends_starved(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n);
/** A call is to end with the next sweep. */
void __crpc_copyrpc_sweep_ask(struct crpc_copyrpc *ctx);

/* crpc_copyrpc_tel.c */

int __crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx);
void __crpc_copyrpc_tel_close(struct crpc_copyrpc *ctx);
/** Answer what telemetry asks. */
void __crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx);

/* crpc_copyrpc_onesided.c */

/** The oldest get or put has ended well. */
void __crpc_copyrpc_onesided_take(struct crpc_copyrpc_ep *ep, struct crpc_done *done);

/* crpc_copyrpc_large.c */

int __crpc_copyrpc_large_init(struct crpc_copyrpc_ep *ep);
void __crpc_copyrpc_large_fini(struct crpc_copyrpc_ep *ep);
/**
 * Look whether anything came of the peer; ask it; give it up. Nothing without a peer_timeout_ns.
 */
void __crpc_copyrpc_alive_check(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
/** The peer asks, or answers. */
void __crpc_copyrpc_alive_take(struct crpc_copyrpc_ep *ep, uint32_t what, uint32_t byte_len);
/** Send what EP_ALIVE_MASK says, as far as the send queue has room. */
void __crpc_copyrpc_alive_post(struct crpc_copyrpc_ep *ep);
/** Where an area starts. */
uint8_t *__crpc_copyrpc_large_area(const struct crpc_copyrpc_ep *ep, enum large_area which);
/** Send what lies in the area of a lane: fragments, then the announcement. */
void __crpc_copyrpc_large_start(struct crpc_copyrpc_ep *ep, enum wire_lane which,
		const struct large_tx *tx, uint64_t now_ns);
/** Post fragments; announce messages whose fragments are posted. */
void __crpc_copyrpc_large_pump(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
/** Check what a request of the peer takes of the areas, and take it. False: it lies. */
bool __crpc_copyrpc_large_check(
	struct crpc_copyrpc_ep *ep, uint64_t number, uint32_t len, uint32_t resp_max);
/** Areas of requests that are done are free again. */
void __crpc_copyrpc_large_release(struct crpc_copyrpc_ep *ep);
/** The call of this slot has ended: its areas are free again, but for those in held. */
void __crpc_copyrpc_large_end(struct crpc_copyrpc_ep *ep, struct call_slot *slot, uint32_t held);

/** Whether a request is the one that may have a large reply. */
static inline bool
req_is_large(const struct crpc_copyrpc_ep *ep, const struct req_entry *req)
{
	return (ep->large.served & CALL_LARGE_RESP) &&
	       req == &ep->reqs[ep->large.req_at[WIRE_RESP] & ep->req_mask];
}

/** Whether one is on its way. */
static inline bool
ep_large_sending(const struct crpc_copyrpc_ep *ep)
{
	return (ep->large.tx[WIRE_REQ].len | ep->large.tx[WIRE_RESP].len) != 0;
}

#endif
