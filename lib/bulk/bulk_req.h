/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_REQ_H
#define BULK_REQ_H

/**
 * @file
 * Requests, and the receiver's view of the requests of its peer.
 *
 * A transfer, at its sender:
 *
 *     POSTED --ACCEPT--> ACTIVE --chunk--> TRANSMITTING        stopping: no new chunks
 *        any --R_END, cancel, deadline--> stopping
 *        ops == 0 (eager: last DATA sent) --> S_END sent       end_sent
 *        R_END received (verdict) and end_sent and ops == 0 --> DONE
 *
 * and at its receiver, where the request and the peer's entry have states of their own:
 *
 *     request  POSTED --OFFER--> ACTIVE --chunk--> TRANSMITTING --verdict--> DONE
 *              the verdict waits for ops == 0 and jobs == 0; of a written one also for S_END
 *     entry    FREE --OFFER--> OFFERED --irecv--> MATCHED --verdict--> ENDED
 *              R_END sent and S_END received --> FREE
 *
 * The receiver decides the verdict for both ends. S_END means that the sender has no operation on
 * the buffers outstanding.
 *
 * A request's moved_ns is the time of its last progress; the sweep ends it when that is too long
 * ago. Of a written or read message one end sees no chunks: its peer reports them from time to time
 * by S_MOVES or R_MOVES. A request that waits for the window, or for slots, while the chunks
 * of others that fill it move is not late either.
 */

#include <sys/queue.h>

#include "bulk_wire.h"
#include "crpc_bulk.h"

/** Chunks of a transfer between the oldest that is missing and the newest. */
#define WINDOW_CHUNKS 256u
#define PATHS         (CRPC_BULK_EAGER | CRPC_BULK_WRITE | CRPC_BULK_READ)

/** Which chunks have arrived: all below low, and those with a bit. */
struct window {
	uint32_t low;
	uint64_t bits[WINDOW_CHUNKS / 64];
};

/** State of a request. */
enum bulk_state {
	CRPC_BULK_FREE,
	CRPC_BULK_POSTED,
	CRPC_BULK_ACTIVE,
	CRPC_BULK_TRANSMITTING,
	CRPC_BULK_DONE,
};

struct bulk_req {
	TAILQ_ENTRY(bulk_req) link; /**< Of its connection's lists, or of b->done. */
	struct crpc_bulk_conn *conn;
	uint64_t handle; /**< 0: free. */
	uint64_t id;     /**< The transfer's; recv: 0 until it is matched. */
	uint64_t tag, cookie;
	uint64_t max; /**< recv: room. */
	uint64_t len; /**< Of the message. */
	uint8_t *buf;
	const struct crpc_rdma_mr *mr[CRPC_BULK_PORTS_MAX];
	uint64_t raddr; /**< The peer's memory. */
	uint32_t rkey[CRPC_BULK_PORTS_MAX];
	uint32_t flags; /**< CRPC_BULK_*. */
	uint32_t chunk, nchunks;
	uint32_t next;   /**< The next chunk to post. */
	uint32_t landed; /**< Chunks that are where they belong. */
	uint32_t ops;    /**< Of our device, open. */
	uint32_t again;  /**< Of these, to be posted again. */
	uint32_t jobs;   /**< Of the engine, open. */
	uint32_t crc, peer_crc;
	uint64_t crc_at; /**< Bytes in crc. */
	struct window window;
	uint16_t slot; /**< In the pool. */
	uint8_t state; /**< enum bulk_state. */
	uint8_t path;
	bool recv;
	bool offered;  /**< OFFER, recv: ACCEPT, was sent. */
	bool stopping; /**< No new chunks. */
	bool judged;   /**< status is the verdict. */
	bool end_sent;
	bool end_got;
	int32_t status;
	uint64_t moved_ns;  /**< Last progress. */
	uint64_t report_ns; /**< When *_MOVES was sent. */
	uint64_t stop_ns;   /**< Since when it is stopping. */
	uint64_t posted_ns, matched_ns, first_ns, done_ns;
};
TAILQ_HEAD(bulk_reqs, bulk_req);

/** The receiver's view of one slot of the sender's pool. */
struct bulk_peer {
	TAILQ_ENTRY(bulk_peer) link; /**< Of conn->offers, in order of arrival. */
	enum { PEER_FREE, PEER_OFFERED, PEER_MATCHED, PEER_ENDED } state;
	uint64_t id; /**< Of the last one if it is free. */
	struct bulk_wire_offer offer;
	int32_t status;
	uint64_t ended_ns;
	bool end_due; /**< R_END is to be sent. */
	bool end_got;
	struct bulk_req *req;
};
TAILQ_HEAD(bulk_peers, bulk_peer);

static inline bool
window_has(const struct window *w, uint32_t index)
{
	return index < w->low ||
		(index - w->low < WINDOW_CHUNKS &&
			(w->bits[index % WINDOW_CHUNKS / 64] >> index % 64 & 1));
}

/** index is in the window and was not set. */
static inline void
window_set(struct window *w, uint32_t index)
{
	w->bits[index % WINDOW_CHUNKS / 64] |= UINT64_C(1) << index % 64;
	while ((w->bits[w->low % WINDOW_CHUNKS / 64] >> w->low % 64 & 1) != 0) {
		w->bits[w->low % WINDOW_CHUNKS / 64] &= ~(UINT64_C(1) << w->low % 64);
		w->low++;
	}
}

static inline uint64_t
chunk_off(const struct bulk_req *req, uint32_t index)
{
	return (uint64_t)index * req->chunk;
}

static inline uint32_t
chunk_len(const struct bulk_req *req, uint32_t index)
{
	return (uint32_t)crpc_min(req->chunk, req->len - chunk_off(req, index));
}

static inline uint32_t
req_op(const struct bulk_req *req)
{
	return req->flags >> 8 & 0xff;
}

/** Chunks are with the device, or in slots that the receiver has not given back. */
static inline bool
has_under_way(const struct bulk_req *req)
{
	return req->ops != 0 || (!req->recv && req->landed != req->next);
}

/* ---- bulk_req.c ---- */
/** The request is over and nothing touches its buffer. */
void __crpc_bulk_req_done(struct bulk_req *req, int32_t status);
/** It is to end with this status; no new chunks. */
void __crpc_bulk_req_stop(struct bulk_req *req, int32_t status);
/** Its connection is freed, or its result was taken. */
void __crpc_bulk_req_forget(struct bulk_req *req);
int __crpc_bulk_req_register(struct bulk_req *req);
/** It has a path and moves. */
void __crpc_bulk_req_activate(struct bulk_req *req, uint8_t path);
/** End what is overdue. */
void __crpc_bulk_sweep(struct crpc_bulk_conn *conn);

/* ---- bulk_match.c: messages; false: the connection broke ---- */
bool __crpc_bulk_offer_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
bool __crpc_bulk_accept_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
bool __crpc_bulk_s_end_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
bool __crpc_bulk_r_end_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** *_MOVES. */
bool __crpc_bulk_moves_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** Report progress of a transfer that the peer cannot see, unless it was reported recently. */
void __crpc_bulk_moves_report(struct bulk_req *req);
/** A receive was posted: match it if its offer is there. */
void __crpc_bulk_match(struct bulk_req *req);
/** The entry of an id that the peer names; NULL: of a transfer that is over, or it was no id and
 *  the connection broke. */
struct bulk_peer *__crpc_bulk_peer_find(struct crpc_bulk_conn *conn, uint64_t id);
/** Send the messages that are due and end what can end. */
void __crpc_bulk_sends_turn(struct crpc_bulk_conn *conn);
void __crpc_bulk_recvs_turn(struct crpc_bulk_conn *conn);

#endif
