/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_PATH_H
#define COPYRPC_PATH_H

/**
 * @file
 * The state of a context and of its endpoints. Positions are bytes, 64 bits, run free and are
 * masked on access.
 *
 * Request lane, as its sender sees it (positions grow to the right):
 *
 *     peer_released <= tx.sent <= tx.prod <= peer_released + ring_size
 *     [ the peer holds it ][ queued batches ][ free ]
 *
 * and as its receiver sees it:
 *
 *     told <= released <= rx_pos <= released + ring_size
 *     [ free again, peer not notified ][ requests that are open or wait for recv() ]
 *
 * Response lane: the same without positions that are returned. The caller counts, in resv, the
 * worst case of every reply it waits for plus the bytes that its user may still read; that sum,
 * plus the largest of them for the tail that a wrap skips, never exceeds the ring. The live part of
 * the ring crosses its end at most once, and skips less than one reply there, so what the server
 * writes always fits: reply() needs no window. The server computes the same sum in owed, to find a
 * caller that lies.
 *
 * Request entry:  arrived -> open (recv) -> done (reply, fail, release) -> gone when all before it
 *                 are done. An open entry holds its token, a done one the inverted token.
 * Endpoint:       err = -ENOTCONN -> 0 (connect) -> -ECONNRESET or -EPROTO -> -ENOTCONN (reset)
 *
 * A message costs only what differs from message to message: a batch is opened, checked against the
 * window and the flush policy and put into the list of endpoints that have something to send once,
 * and then takes messages up to a limit that was computed then.
 */

#include <errno.h>
#include <sys/queue.h>

#include "copyrpc_wire.h"
#include "crpc_log.h"
#include "crpc_owner.h"
#include "rpc_calls.h"

/**
 * What is left of a ring for a set of replies, which need the sum of their worst cases, and the
 * largest again for a skipped tail: size = sum + max + left.
 */
struct room {
	uint64_t left, max, size;
};

/** One batch that is not sent yet. */
struct pending {
	uint64_t pos;
	uint64_t owed; /**< Responses: the part of the endpoint's owed that it settles. */
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

/** Where a message goes. */
struct place {
	uint64_t pos;
	uint32_t stride;
	bool slow;  /**< It does not just continue the open batch. */
	bool opens; /**< A batch begins in front of it. */
};

/** One call. */
struct call_slot {
	struct rpc_call call;
	uint32_t batch;    /**< Number of the batch with its request. */
	uint32_t resp_max; /**< Of the reply; with WIRE_LARGE: the call has areas. */
	uint32_t areas;    /**< LARGE_*: areas that it has taken. */
};

/** Requests that recv() takes of one endpoint before the next one's turn. */
#define RECV_TURN 32

/** Newest request batches whose time of sending is remembered; a power of two. */
#define BATCH_TIMES 256u

/** One request that lies in our ring. */
struct req_entry {
	union {
		uint64_t token;      /**< From recv() on; inverted, so negative, when it is done. */
		const uint8_t *data; /**< Until then. */
	};
	uint32_t id; /**< The caller's. */
	uint32_t len;
	uint32_t arrived;  /**< Low bits of the time. */
	uint32_t end;      /**< Low bits of the position behind it. */
	uint32_t reply_end; /**< Length of the shortest reply that is too long; 0: a notification,
	                         which has none. */
	uint32_t worst;     /**< Bytes that the reply can need. */
};
_Static_assert(sizeof(struct req_entry) == WIRE_STRIDE_MIN, "the table is as large as the ring");

/** Links of an endpoint in a list of its context; tqe_prev is NULL outside. */
struct ep_link {
	struct crpc_copyrpc_ep *tqe_next, **tqe_prev;
};
TAILQ_HEAD(ep_list, crpc_copyrpc_ep);

/** Memory of two halves: the peer may write the first, never the second. */
struct region {
	uint8_t *mem;
	struct crpc_rdma_mr rx_mr, tx_mr;
};

/** Gets and puts of an endpoint that are open at most; a power of two. */
#define ONESIDED_MAX 64u

/** Gets and puts of an endpoint. */
struct onesided {
	uint32_t head, tail; /**< Completed, posted. */
	struct crpc_done op[ONESIDED_MAX];
};

struct large;
struct flow_ops;
struct flush_ops;
struct arrival_ops;

struct crpc_copyrpc_ep {
	struct crpc_copyrpc *ctx;
	int32_t err;
	uint32_t ring_size;
	uint32_t max_msg; /**< Of both ends, the smaller one. */
	uint32_t trailer; /**< Bytes behind the messages of a batch: its seal, or none. */

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
	struct place put;    /**< Of call_reserve, for its commit. */
	uint32_t put_len, put_resp_max;

	/* lanes */
	struct tx_lane tx[WIRE_LANES];
	struct crpc_rdma_qp *qp; /**< NULL: a broken endpoint whose gets and puts have ended. */
	uint64_t peer_released;
	uint64_t queued_ns; /**< When the oldest pending message was queued. */
	uint32_t flush_seq; /**< CLOCKED: flushes that count; the wr_id of those with a signal. */
	uint32_t done_seq;  /**< The newest that is known to have arrived. */
	uint32_t req_seq;   /**< The newest that had requests. */
	uint32_t rkey, peer_epoch;

	/* requests */
	struct req_entry *reqs;
	uint32_t req_mask;
	uint32_t turn; /**< Requests recv() took in this turn. */
	uint8_t *rx[WIRE_LANES];
	uint64_t rx_pos[WIRE_LANES]; /**< Where the next batch comes. */
	uint64_t released;
	uint64_t told;        /**< The part of released that was reported to the peer. */
	uint64_t released_ns; /**< When released passed told. */
	uint64_t req_head;    /**< The oldest that is not gone. */
	uint64_t req_next;    /**< The next one for recv(). */
	uint64_t req_tail;    /**< The next one to arrive. */
	struct room owed;

	/* links of the context's lists; see ep_list_add() */
	struct ep_link dirty, ready, broken, held, memory;

	/* modes, and what belongs to them and to large messages, gets and puts */
	const struct flow_ops *flow;
	const struct arrival_ops *arrival;
	struct large *large; /**< NULL: none beyond max_msg. */
	struct onesided onesided;
	_Atomic uint64_t *rx_words; /**< The peer's access to positions: WIRE_WORD_*. */
	_Atomic uint64_t *tx_words; /**< What is read lands here, what is written starts here. */
	uint64_t words_raddr;       /**< The peer's. */
	uint64_t cleared; /**< Arrivals in memory: up to here, responses are zero again. */
	bool reading;     /**< READ flow: a READ of the peer's position is on its way. */
	bool want_read;   /**< A request was refused for want of room. */
	uint8_t single[WIRE_LANES];     /**< CLOCKED: batches of one message since a larger one. */
	uint64_t single_ns[WIRE_LANES]; /**< The turn in which one was sent at once. */

	/* control */
	uint16_t id;
	uint8_t alive;      /**< Bits of enum wire_alive to send. */
	uint32_t probes;    /**< Unanswered since heard_ns. */
	uint64_t alive_yes; /**< Answers to probes. */
	uint64_t heard;     /**< Sum of all that moves when something arrives, when ... */
	uint64_t heard_ns;  /**< ... it was last seen to have moved. */
	uint64_t probed_ns; /**< When the last probe was sent. */
	uint32_t user_id, epoch;
	struct crpc_copyrpc_ep_conf conf;
	struct region rings; /**< rx requests, rx responses; tx requests, tx responses. */
	uint64_t batch_ns[BATCH_TIMES]; /**< When request batches were sent, by their number. */
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
	const struct flush_ops *flush; /**< Of conf.flush. */
	struct crpc_owner owner;
	uint32_t inline_max;
	uint32_t neps, epoch;
	/* endpoints with something to send; with requests for recv(); whose open calls, gets and
	   puts must end; with a hold; whose rings are looked at */
	struct ep_list dirty, ready, broken, held, memory;
	struct crpc_copyrpc_ep *memory_at; /**< The next one of this round. */
	struct rpc_sweep sweep;
	uint32_t bursts; /**< Whole ones in a row, given by polls that sent nothing. */
	bool full;       /**< The last poll was. */
	bool untimed;    /**< Round trips are not recorded. */

	/* completions of the device that wait, and the response batch that is being parsed */
	uint16_t cqe_i, cqe_n;
	struct crpc_copyrpc_ep *cur; /**< NULL: none. */
	uint32_t cur_off, cur_end;   /**< In cur's response ring. */
	uint32_t cur_left;           /**< Messages. */
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];

	struct crpc_copyrpc_ep *put_ep; /**< Of reply_reserve, for its commit. */
	struct req_entry *put_req;
	struct place put;
	uint32_t put_len;
	int32_t put_status;

	uint64_t alive_ns; /**< When the next look at silent peers begins, and where it is. */
	uint32_t alive_at;
	uint64_t hold_gap_ns, hold_ns, hold_last_ns; /**< HOLD: between messages; of replies. */
	bool hold_off; /**< The last batch was as large as holding could make it. */

	struct crpc_copyrpc_ep *eps[CRPC_COPYRPC_EPS_MAX];
	struct rpc_calls *calls[CRPC_COPYRPC_EPS_MAX];
	uint64_t serial[CRPC_COPYRPC_EPS_MAX]; /**< First request of a slot's next endpoint. */
	struct crpc_copyrpc_stats stats;
};

/*
 * A token: number of the request, index of the endpoint. A context never gives one twice (within
 * 2^51 requests, years), and the top bit is never set.
 */
#define TOKEN_EP_BITS 12
#define TOKEN_EP_MASK ((1u << TOKEN_EP_BITS) - 1)
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

static inline uint64_t
room_sum(const struct room *r)
{
	return r->size - r->max - r->left;
}

/** Whether one more of @p worst fits, which may be larger than those before it. */
bool __crpc_copyrpc_room_grow(struct room *r, uint64_t worst);

/** Whether one more of @p worst fits. It is taken by subtracting it from left. */
static inline bool
room_fits(struct room *r, uint64_t worst)
{
	return crpc_likely(worst <= r->max && worst <= r->left) ||
		__crpc_copyrpc_room_grow(r, worst);
}

/* crpc_copyrpc_lane.c */

/** Where a message goes that does not just continue the open batch; -EAGAIN: not in the window. */
int __crpc_copyrpc_lane_find(struct crpc_copyrpc_ep *ep, enum wire_lane which, struct place *p);
/** Put a message whose data is in place: its batch is opened if it needs one. */
void __crpc_copyrpc_lane_put(struct crpc_copyrpc_ep *ep, enum wire_lane which,
	const struct place *p, const struct wire_msg *msg, uint32_t owed, uint64_t now_ns);
/** After that: what the flush policy sends without waiting for flush(). */
void __crpc_copyrpc_lane_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns);
/** Move released over the requests that are done. */
void __crpc_copyrpc_release(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
/** crpc_copyrpc_flush() from inside. */
uint32_t __crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns);

static inline uint8_t *
lane_at(const struct crpc_copyrpc_ep *ep, const struct tx_lane *lane, uint64_t pos)
{
	return lane->stage + (pos & (ep->ring_size - 1));
}

/** Position behind the newest message. */
static inline uint64_t
lane_prod(const struct tx_lane *lane)
{
	return lane->lap + (uint64_t)(lane->next - lane->stage);
}

/** Append a message to the open batch, which has room for it. Returns where its head goes. */
static inline void *
lane_append(struct tx_lane *lane, size_t stride)
{
	void *at = lane->next;

	lane->next += stride;
	lane->open.count++;
	return at;
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

/* crpc_copyrpc_rx.c */

/** Take one completion of the device. Returns 1 if *done was filled. */
uint16_t __crpc_copyrpc_cqe_take(struct crpc_copyrpc *ctx, const struct crpc_rdma_cqe *cqe,
	uint64_t now_ns, struct crpc_done *done);
/** A released position from a word of memory, which may be older than what is known. */
bool __crpc_copyrpc_word_take(struct crpc_copyrpc_ep *ep, uint64_t released);
/** A batch has arrived: requests are noted, responses become the current batch of the context. */
void __crpc_copyrpc_batch_take(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len,
	uint32_t byte_len, uint64_t now_ns);

/* crpc_copyrpc_ep.c */

/** An endpoint breaks: nothing more is sent or taken, its open calls fail in the next polls. */
void __crpc_copyrpc_break(struct crpc_copyrpc_ep *ep, int err);
/** The peer broke the protocol: log which rule, break the endpoint with -EPROTO, return false. */
bool __crpc_copyrpc_lie(
	struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found);
/** Complete what is open of broken endpoints, as far as done[] has room. */
uint16_t __crpc_copyrpc_broken_take(struct crpc_copyrpc *ctx, struct crpc_done *done, uint16_t n);

/* crpc_copyrpc_alive.c */

/** Look whether peers are alive, at a bounded number of endpoints. */
void __crpc_copyrpc_alive_turn(struct crpc_copyrpc *ctx, uint64_t now_ns);
/** The peer probes us, or answers. */
void __crpc_copyrpc_alive_take(struct crpc_copyrpc_ep *ep, uint32_t what, uint32_t byte_len);
/** Send what ep->alive has, as far as the send queue has room. */
void __crpc_copyrpc_alive_post(struct crpc_copyrpc_ep *ep);

/* crpc_copyrpc_onesided.c */

/** The oldest get or put has succeeded. Returns 1 if *done was filled. */
uint16_t __crpc_copyrpc_onesided_take(struct crpc_copyrpc_ep *ep, struct crpc_done *done);
/** End those of a broken endpoint, at most n. */
uint16_t __crpc_copyrpc_onesided_fail(
	struct crpc_copyrpc_ep *ep, struct crpc_done *done, uint16_t n);

/* crpc_copyrpc_tel.c */

int __crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx);
void __crpc_copyrpc_tel_close(struct crpc_copyrpc *ctx);
void __crpc_copyrpc_tel_answer(struct crpc_copyrpc *ctx);

#endif
