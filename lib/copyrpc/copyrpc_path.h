/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_PATH_H
#define COPYRPC_PATH_H

/**
 * @file
 * What call, poll, recv and reply work on, and what they leave to other files. How batches travel,
 * and what belongs to modes, is in copyrpc_conn.h.
 *
 * A message costs only what differs from message to message: a batch is opened, checked against the
 * window and the flush policy and put into the list of endpoints that have something to send once,
 * and then takes messages up to a limit that was computed then.
 *
 * Room for replies: the caller counts, in resv, the worst case of every reply it waits for plus the
 * bytes that its user may still read; that sum, plus the largest of them for the tail that a wrap
 * skips, never exceeds its response ring. The live part of the ring crosses its end at most once,
 * and skips less than one reply there, so what the server writes always fits: reply() needs no
 * window.
 *
 * Request entry:  arrived -> open (recv) -> done (reply, fail, release) -> gone when all before it
 *                 are done. An open entry holds its token, a done one the inverted token.
 * Endpoint:       err = -ENOTCONN -> 0 (connect) -> -ECONNRESET, -ETIMEDOUT or -EPROTO -> -ENOTCONN
 *                 (reset)
 */

#include <errno.h>
#include <sys/queue.h>

#include "copyrpc_msg.h"
#include "crpc_owner.h"
#include "rpc_calls.h"

/** What is left of a ring for a set of replies: size = sum of worst cases + largest + left. */
struct room {
	uint64_t left, max, size;
};

/** One batch that is not sent yet. */
struct pending {
	uint64_t pos;
	uint64_t resv; /**< Responses: what their callers have reserved for them. */
	uint32_t len;  /**< Set when it takes no more messages. */
	uint32_t count;
};

/** What we send on one lane. */
struct tx_lane {
	uint8_t *next;  /**< Where the next message goes, in stage. */
	uint8_t *limit; /**< The open batch takes short messages that end here or before it without
	                     another check; NULL: none. */
	uint8_t *stage; /**< Ring of the same size and offsets as the peer's. */
	uint64_t lap;   /**< Position of the ring's first byte in this lap. */
	uint64_t sent;  /**< Behind the newest batch that the device has taken. */
	uint64_t raddr; /**< The peer's ring. */
	uint32_t npend; /**< 2: closed and open; 1: open; 0: nothing is queued. */
	struct pending open;   /**< Where the next message goes. */
	struct pending closed; /**< Only if the queue crosses the end of the ring. */
};

/** One call. */
struct call_slot {
	struct rpc_call call;
	uint32_t batch;    /**< Number of the batch with its request. */
	uint32_t resp_max; /**< Of the reply; with WIRE_LARGE: the call has areas. */
	uint32_t areas;    /**< LARGE_*: areas that it has taken. */
};

/** One request that lies in our ring. */
struct req_entry {
	union {
		uint64_t token;      /**< From recv() on; inverted, so negative, when it is done. */
		const uint8_t *data; /**< Until then. */
	};
	uint32_t id; /**< The caller's. */
	uint32_t len;
	uint32_t arrived;   /**< Low bits of the time. */
	uint32_t end;       /**< Low bits of the position behind it. */
	uint32_t reply_end; /**< Length of the shortest reply that is too long; 0: a notification,
	                         which has none. */
	uint32_t worst;     /**< Bytes that the reply can need. */
};
_Static_assert(sizeof(struct req_entry) == WIRE_STRIDE_MIN, "the table is as large as the ring");

/** Requests that recv() takes of one endpoint before the next one's turn. */
#define RECV_TURN 32

/** Newest request batches whose time of sending is remembered at most; a power of two. */
#define BATCH_TIMES_MAX 256u

/** Links of an endpoint in a list of its context; tqe_prev is NULL outside. */
struct ep_link {
	struct crpc_copyrpc_ep *tqe_next, **tqe_prev;
};
TAILQ_HEAD(ep_list, crpc_copyrpc_ep);

struct crpc_copyrpc_ep {
	struct crpc_copyrpc *ctx;
	struct conn *conn;   /**< Of copyrpc_conn.h; in the same allocation. */
	struct large *large; /**< Of copyrpc_large.h; NULL: no message beyond max_msg. */
	int32_t err;
	uint32_t ring_size;
	uint32_t max_msg; /**< Of both ends, the smaller one. */
	uint32_t trailer; /**< Bytes behind the messages of a batch: its seal, or none. */
	uint32_t id, user_id;
	bool given_matters; /**< __crpc_copyrpc_given() is to be called. */

	/* calls */
	struct rpc_calls calls;
	struct call_slot *slots;
	struct room resv;
	/** The newest call's resp_max and what it reserved, as most calls need the same; UINT32_MAX
	 *  bytes: the next call is not taken for one like it. */
	uint32_t last_resp_max, last_worst;
	uint32_t hold;       /**< Part of resv that is free with the next poll. */
	uint32_t batch;      /**< Number of the newest request batch. */
	uint32_t batch_sent; /**< Number of the newest one that was sent. */
	uint32_t flush_seq;  /**< CLOCKED: flushes that count; the wr_id of those with a signal. */
	uint32_t done_seq;   /**< The newest that is known to have arrived. */
	uint32_t req_seq;    /**< The newest that had requests. */
	struct tx_lane tx[WIRE_LANES];

	/* requests, by their numbers: req_head <= req_next <= req_tail */
	struct req_entry *reqs;
	uint32_t req_mask;
	uint32_t turn;           /**< Requests recv() took in this turn. */
	uint64_t req_head;       /**< The oldest that is not gone. */
	uint64_t req_next;       /**< The next one for recv(). */
	uint64_t req_tail;       /**< The next one to arrive. */
	uint8_t *rx[WIRE_LANES]; /**< Rings that the peer writes. */

	struct ep_link dirty, ready, broken, held, memory; /**< See struct crpc_copyrpc. */
	uint64_t *batch_ns;  /**< When request batches were sent, by their number. */
	uint32_t batch_mask; /**< A power of two of them, less 1. */
};

/** Put an endpoint at the end of a list of its context, if it is not in it. */
#define ep_list_add(ep, link)                                                                      \
	do {                                                                                       \
		if ((ep)->link.tqe_prev == NULL)                                                   \
			TAILQ_INSERT_TAIL(&(ep)->ctx->link, ep, link);                             \
	} while (0)

/** Take it out, if it is in it. */
#define ep_list_del(ep, link)                                                                      \
	do {                                                                                       \
		if ((ep)->link.tqe_prev != NULL)                                                   \
			TAILQ_REMOVE(&(ep)->ctx->link, ep, link);                                  \
		(ep)->link.tqe_prev = NULL;                                                        \
	} while (0)

struct crpc_copyrpc {
	struct crpc_rdma *dev;
	struct crpc_tel_box *tel;
	struct crpc_copyrpc_conf conf;
	struct crpc_owner owner;
	/* endpoints with something to send; with requests for recv(); whose open calls, gets and
	   puts must end; with a hold; whose rings are looked at */
	struct ep_list dirty, ready, broken, held, memory;
	struct crpc_copyrpc_ep *memory_at; /**< The next one of this round. */
	struct rpc_sweep sweep;
	uint64_t alive_ns; /**< When the next look at silent peers begins. */
	uint32_t bursts;   /**< Whole ones in a row, given by polls that sent nothing. */
	bool full;         /**< The last poll was. */
	bool untimed;      /**< Round trips are not recorded. */

	/* completions of the device that wait, and the response batch that is being parsed */
	uint16_t cqe_i, cqe_n;
	struct crpc_copyrpc_ep *cur; /**< NULL: none. */
	uint32_t cur_off, cur_end;   /**< In cur's response ring. */
	uint32_t cur_left;           /**< Messages. */
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];

	struct crpc_copyrpc_ep *eps[CRPC_COPYRPC_EPS_MAX];
	struct crpc_copyrpc_stats stats;

	/* not of the default path */
	const struct flush_ops *flush; /**< Of conf.flush. */
	uint32_t inline_max, neps, epoch;
	uint32_t alive_at;              /**< Where the look at silent peers is. */
	struct crpc_copyrpc_ep *put_ep; /**< Of reply_reserve, for its commit. */
	struct req_entry *put_req;
	uint32_t put_len;
	uint64_t hold_gap_ns, hold_ns, hold_last_ns; /**< HOLD: between messages; of replies. */
	bool hold_off; /**< The last batch was as large as holding could make it. */
	struct rpc_calls *calls[CRPC_COPYRPC_EPS_MAX]; /**< Of the sweep. */
	uint64_t serial[CRPC_COPYRPC_EPS_MAX]; /**< First request of a slot's next endpoint. */
};

/*
 * A token: number of the request, index of the endpoint. A context never gives one twice (within
 * 2^51 requests, years), and the top bit is never set.
 */
#define TOKEN_EP_BITS 12
#define TOKEN_EP_MASK ((1u << TOKEN_EP_BITS) - 1)
_Static_assert(CRPC_COPYRPC_EPS_MAX == 1 << TOKEN_EP_BITS, "any index of a token is in the table");

static inline uint64_t
token_make(uint32_t id, uint64_t req)
{
	return (req << TOKEN_EP_BITS & INT64_MAX) | id;
}

/** The open request of a token, or NULL. */
static inline struct req_entry *
token_find(const struct crpc_copyrpc *ctx, uint64_t token, struct crpc_copyrpc_ep **found)
{
	struct crpc_copyrpc_ep *ep = ctx->eps[token & TOKEN_EP_MASK];
	struct req_entry *req;

	*found = ep;
	if (crpc_unlikely(ep == NULL))
		return NULL;
	req = &ep->reqs[token >> TOKEN_EP_BITS & ep->req_mask];
	return crpc_likely(req->token == token) ? req : NULL;
}

/** The request ends. Its room is returned when the next flush looks at the endpoint. */
static inline void
req_end(struct crpc_copyrpc *ctx, struct req_entry *req)
{
	req->token = ~req->token;
	ctx->stats.rpc.replies++;
}

/** Append a message to the open batch, which has room for it. Returns where its head goes. */
static inline struct wire_msg *
lane_append(struct tx_lane *lane, size_t stride)
{
	void *at = lane->next;

	lane->next += stride;
	lane->open.count++;
	return at;
}

/** Take a slot, of which there is one, and room for the reply. */
static inline struct call_slot *
call_take(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint32_t resp_max, uint32_t worst,
	uint64_t cookie)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	struct call_slot *slot = (struct call_slot *)rpc_calls_take_first(
		&ep->calls, cookie, now_ns + ctx->conf.timeout_ns);

	slot->batch = ep->batch;
	slot->resp_max = resp_max;
	ep->resv.left -= worst;
	ctx->stats.rpc.calls++;
	return slot;
}

/** Bytes of the response ring that a call reserves: a large reply needs those of a message. */
static inline uint32_t
ep_worst(const struct crpc_copyrpc_ep *ep, uint32_t resp_max)
{
	return (uint32_t)wire_worst((uint32_t)crpc_min(resp_max, ep->max_msg)) + ep->trailer;
}

/** The same of an open call. */
static inline uint32_t
slot_worst(const struct crpc_copyrpc_ep *ep, const struct call_slot *slot)
{
	return ep_worst(ep, slot->resp_max & ~WIRE_LARGE);
}

/* What the default path leaves to others. crpc_copyrpc_reserve.c: */

/** A call that opens a batch, is not short, has to wait, or is refused. */
int __crpc_copyrpc_call_slow(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie);
/** A reply that opens a batch, is not short, or is refused. */
int __crpc_copyrpc_reply_slow(struct crpc_copyrpc_ep *ep, struct req_entry *req, uint64_t now_ns,
	const void *buf, uint32_t len);

/* crpc_copyrpc_lane.c: */

/** crpc_copyrpc_flush() from inside. */
uint32_t __crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns);

/* crpc_copyrpc_rx.c: */

/** Take one completion of the device. Returns 1 if *done was filled. */
uint16_t __crpc_copyrpc_cqe_take(struct crpc_copyrpc *ctx, const struct crpc_rdma_cqe *cqe,
	uint64_t now_ns, struct crpc_done *done);
/** Completions of the last poll are not readable any more. */
void __crpc_copyrpc_given(struct crpc_copyrpc_ep *ep);

/* crpc_copyrpc_memory.c: */

/** Look at the rings of the next endpoint of this round. */
void __crpc_copyrpc_memory_look(struct crpc_copyrpc *ctx, uint64_t now_ns);

/* crpc_copyrpc_large.c: */

/** Whether the request of this slot waits for its fragments. */
bool __crpc_copyrpc_large_waits(const struct crpc_copyrpc_ep *ep, const struct call_slot *slot);
/**
 * The response to the call of this slot has come: its areas are free, or with the next poll, if the
 * response is large. Returns its data.
 */
const void *__crpc_copyrpc_large_end(
	struct crpc_copyrpc_ep *ep, struct call_slot *slot, bool large, const void *data);

/* crpc_copyrpc_ep.c, crpc_copyrpc_alive.c, crpc_copyrpc_tel.c: */

/** The peer broke the protocol: log which rule, break the endpoint with -EPROTO, return false. */
bool __crpc_copyrpc_lie(
	struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found);
/** Complete what is open of broken endpoints, as far as done[] has room. */
uint16_t __crpc_copyrpc_broken_take(struct crpc_copyrpc *ctx, struct crpc_done *done, uint16_t n);
/** Look whether peers are alive, at a bounded number of endpoints. */
void __crpc_copyrpc_alive_turn(struct crpc_copyrpc *ctx, uint64_t now_ns);
/** Answer the request of telemetry for counters. */
void __crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx);

#endif
