/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_CONN_H
#define COPYRPC_CONN_H

/**
 * @file
 * How batches travel: the part of an endpoint that call, poll, recv and reply do not touch.
 * Positions are bytes, 64 bits, run free and are masked on access.
 *
 * Request lane, as its sender sees it (positions grow to the right):
 *
 *     peer_released <= tx.sent <= tx.prod <= peer_released + ring_size
 *     [ the peer holds it ][ queued batches ][ free ]
 *
 * and as its receiver sees it:
 *
 *     reported <= released <= rx_pos <= released + ring_size
 *     [ free again, peer not notified ][ requests that are open or wait for recv() ]
 *
 * Response lane: the same without positions that are returned. The server computes the caller's
 * reservations again, in peer_resv, to find a caller that lies.
 */

#include "copyrpc_path.h"
#include "copyrpc_wire.h"
#include "crpc_log.h"

/** Where a message goes. */
struct place {
	uint64_t pos;
	uint32_t stride;
	bool slow;  /**< It does not just continue the open batch. */
	bool opens; /**< A batch begins in front of it. */
};

/** Gets and puts of an endpoint that are open at most. */
#define ONESIDED_MAX 64u

/** Gets and puts of an endpoint. */
struct onesided {
	uint32_t first, open; /**< The oldest that is open, and how many are. */
	uint32_t max;
	struct crpc_done *op; /**< Array of max. */
};

struct conn {
	struct crpc_rdma_qp *qp; /**< NULL: a broken endpoint whose gets and puts have ended. */
	uint64_t peer_released;
	uint64_t queued_ns; /**< When the oldest pending message was queued. */
	uint32_t rkey, peer_epoch;

	uint64_t rx_pos[WIRE_LANES]; /**< Where the next batch comes. */
	uint64_t released;
	uint64_t reported;    /**< The part of released that was reported to the peer. */
	uint64_t released_ns; /**< When released passed reported. */
	struct room peer_resv;

	/* modes, and what belongs to them and to gets and puts */
	struct onesided onesided;
	_Atomic uint64_t *rx_words; /**< The peer's access to positions: WIRE_WORD_*. */
	_Atomic uint64_t *tx_words; /**< What is read lands here, what is written starts here. */
	uint64_t words_raddr;       /**< The peer's. */
	uint64_t cleared; /**< Arrivals in memory: up to here, responses are zero again. */
	bool in_memory;   /**< Arrivals are. */
	bool reading;     /**< READ flow: a READ of the peer's position is on its way. */
	bool want_read;   /**< A request was refused for want of room. */
	uint8_t single[WIRE_LANES];     /**< CLOCKED: batches of one message since a larger one. */
	uint64_t single_ns[WIRE_LANES]; /**< The turn in which one was sent at once. */

	/* control */
	uint8_t alive;      /**< Bits of enum wire_alive to send. */
	uint32_t probes;    /**< Unanswered since heard_ns. */
	uint64_t alive_yes; /**< Answers to probes. */
	uint64_t heard;     /**< Sum of all that moves when something arrives, when ... */
	uint64_t heard_ns;  /**< ... it was last seen to have moved. */
	uint64_t probed_ns; /**< When the last probe was sent. */
	uint32_t epoch;
	struct crpc_copyrpc_ep_conf conf;
	/** Memory in two halves, requests then responses: the peer may write the first. */
	struct crpc_rdma_mr rx_mr, tx_mr;
};

static inline bool
req_is_done(const struct req_entry *req)
{
	return (int64_t)req->token < 0;
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

/** Something waits to be sent. */
static inline bool
ep_pending(const struct crpc_copyrpc_ep *ep)
{
	return (ep->tx[WIRE_REQ].npend | ep->tx[WIRE_RESP].npend) != 0;
}

/** What a call gives where the endpoint does not work: a peer that is silent has gone. */
static inline int
ep_refusal(const struct crpc_copyrpc_ep *ep)
{
	return ep->err == -ETIMEDOUT ? -ECONNRESET : ep->err;
}

static inline uint32_t
ep_outstanding(const struct crpc_copyrpc_ep *ep)
{
	return ep->flush_seq - ep->done_seq;
}

/* crpc_copyrpc_lane.c */

/** Where a message goes that does not just continue the open batch; -EAGAIN: not in the window. */
int __crpc_copyrpc_lane_find(struct crpc_copyrpc_ep *ep, enum wire_lane which, struct place *p);
/** Put a message whose data is in place: its batch is opened if it needs one. */
void __crpc_copyrpc_lane_put(struct crpc_copyrpc_ep *ep, enum wire_lane which,
	const struct place *p, const struct wire_msg *msg, uint32_t resv, uint64_t now_ns);
/** After that: what the flush policy sends without waiting for flush(). */
void __crpc_copyrpc_lane_queued(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns);
/** Move released over the requests that are done. */
void __crpc_copyrpc_release(struct crpc_copyrpc_ep *ep, uint64_t now_ns);

/* crpc_copyrpc_rx.c */

/** A released position from a word of memory, which may be older than what is known. */
bool __crpc_copyrpc_word_take(struct crpc_copyrpc_ep *ep, uint64_t released);
/** A batch has arrived: requests are noted, responses become the current batch of the context. */
void __crpc_copyrpc_batch_take(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint32_t len,
	uint32_t byte_len, uint64_t now_ns);

/* crpc_copyrpc_ep.c */

/** An endpoint breaks: nothing more is sent or taken, its open calls fail in the next polls. */
void __crpc_copyrpc_break(struct crpc_copyrpc_ep *ep, int err);

/* crpc_copyrpc_alive.c */

/** The peer probes us, or answers. */
void __crpc_copyrpc_alive_take(struct crpc_copyrpc_ep *ep, uint32_t what, uint32_t byte_len);
/** Send what conn->alive has, as far as the send queue has room. */
void __crpc_copyrpc_alive_post(struct crpc_copyrpc_ep *ep);

/* crpc_copyrpc_onesided.c */

/** The oldest get or put has succeeded. Returns 1 if *done was filled. */
uint16_t __crpc_copyrpc_onesided_take(struct crpc_copyrpc_ep *ep, struct crpc_done *done);
/** End those of a broken endpoint, at most n. */
uint16_t __crpc_copyrpc_onesided_fail(
	struct crpc_copyrpc_ep *ep, struct crpc_done *done, uint16_t n);

/* crpc_copyrpc_tel.c */

int __crpc_copyrpc_tel_open(struct crpc_copyrpc *ctx);

#endif
