/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_PVT_H
#define BULK_PVT_H

/**
 * @file
 * Inside of crpc_bulk.
 *
 * A transfer, at its sender:
 *
 *     POSTED --ACCEPT--> ACTIVE --chunk--> TRANSMITTING        stopping: no new chunks
 *        any --R_END, cancel, deadline--> stopping
 *        ops == 0 (eager: last DATA sent) --> S_END sent       end_sent
 *        R_END got (verdict) and end_sent and ops == 0 --> DONE
 *
 * and at its receiver, where the request and the peer's entry have lives of their own:
 *
 *     request  POSTED --OFFER--> ACTIVE --chunk--> TRANSMITTING --verdict--> DONE
 *              the verdict waits for ops == 0 and jobs == 0; of a written one also for S_END
 *     entry    FREE --OFFER--> OFFERED --irecv--> MATCHED --verdict--> ENDED
 *              R_END sent and S_END got --> FREE
 *
 * The verdict is the receiver's, at both ends. S_END says that nothing of the sender is under way
 * to or from the buffers any more.
 *
 * A chunk under way by our device is an op (eager and written at the sender, read at the receiver).
 * An eager chunk has a slot beside it, at both ends, which outlives op and request: the receiver
 * gives it back.
 *
 *     slot at the sender     free -> taken -> announced (DATA) -> free (CONSUMED)
 *     slot at the receiver   FREE -> ARRIVED (DATA) -> UNPACKING (submit) -> UNPACKED (done)
 *                                 -> FREE (consumed, or its request ended)
 *
 * A rail, of which a connection has one or more:
 *
 *     UP --error, or the peer's RAIL_DOWN--> CLOSING --destroyed, told, heard--> DOWN
 *      ^                                        ^  ^                              |
 *      +--READY-- JOINED <--ADDR of the peer-- MEETING <--ADDR is told, in time---+
 *                    +------- as UP ------------+
 *
 * Progress. A request's moved_ns is when something of its own moved last; the sweep ends it when
 * that is long ago. The end whose device does not move the chunks of a written or read message sees
 * none of them: the other one tells it by S_MOVES or R_MOVES, now and then. A request that waits
 * for the window, or for slots, while the chunks of others that fill it move is not late either.
 *
 * Messages that were sent on a rail are kept until the peer has released them. In DOWN nothing of
 * the rail can happen any more at either end, and it is known what the peer has taken from it: so
 * the messages that it has not, and the chunks that were under way, go again over other rails, each
 * once. While a rail is CLOSING nothing else is sent, so that messages keep their order.
 *
 * RAIL_DOWN itself does not wait for that, as two rails may each have lost the news of the other:
 * it is sent anew at once when the rail that it went by breaks, and taken once.
 *
 * A connection that breaks, with its last rail that was up: err is set, its endpoints are shut
 * down; when each could be reset, which destroys the queue pair, and the engine has no job of it,
 * its requests end.
 */

#include <errno.h>
#include <string.h>
#include <sys/queue.h>

#include "bulk_wire.h"
#include "crpc_bulk.h"
#include "crpc_log.h"
#include "crpc_tel.h"

/** Chunks of a transfer between the oldest that is missing and the newest. */
#define WINDOW_CHUNKS 256u
/** Bytes that one turn checks or makes a checksum of. */
#define CRC_TURN (UINT64_C(1) << 20)
#define UNITS_MAX (CRPC_BULK_SLOTS_MAX * CRPC_BULK_PIECES_MAX)
#define PATHS (CRPC_BULK_EAGER | CRPC_BULK_WRITE | CRPC_BULK_READ)
#define NONE UINT32_MAX

/** Which chunks are there: all below low, and those with a bit. */
struct window {
	uint32_t low;
	uint64_t bits[WINDOW_CHUNKS / 64];
};

struct bulk_req {
	TAILQ_ENTRY(bulk_req) link; /**< Of its connection's open ones, or of b->done. */
	struct crpc_bulk_conn *conn;
	uint64_t handle; /**< 0: free. */
	uint64_t id;     /**< The transfer's; recv: 0 until it is matched. */
	uint64_t tag, cookie;
	uint64_t max;    /**< recv: room. */
	uint64_t len;    /**< Of the message. */
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
	uint8_t state; /**< enum crpc_bulk_state. */
	uint8_t path;
	bool recv;
	bool offered;  /**< OFFER, recv: ACCEPT, was sent. */
	bool stopping; /**< No new chunks. */
	bool judged;   /**< status is the verdict. */
	bool end_sent;
	bool end_got;
	int32_t status;
	uint64_t moved_ns; /**< Last progress. */
	uint64_t told_ns;  /**< When the peer was told of it by *_MOVES. */
	uint64_t stop_ns;  /**< Since when it is stopping. */
	uint64_t posted_ns, matched_ns, first_ns, done_ns;
};
TAILQ_HEAD(bulk_reqs, bulk_req);

/** What the receiver knows of one slot of the sender's pool. */
struct bulk_peer {
	TAILQ_ENTRY(bulk_peer) link; /**< Of conn->offers, in order of arrival. */
	enum { PEER_FREE, PEER_OFFERED, PEER_MATCHED, PEER_ENDED } state;
	uint64_t id; /**< Of the last one if it is free. */
	uint64_t tag, len, raddr;
	uint32_t flags;
	uint32_t rkey[CRPC_BULK_PORTS_MAX];
	int32_t status;
	uint64_t ended_ns;
	bool end_owed, end_got;
	struct bulk_req *req;
};
TAILQ_HEAD(bulk_peers, bulk_peer);

/** One chunk that our device moves. */
struct bulk_op {
	struct bulk_req *req; /**< NULL: free. */
	uint32_t turn;
	uint32_t index, len;
	uint32_t puts; /**< Not completed yet. */
	uint32_t slot; /**< Eager; else NONE. */
	uint8_t rail;
	uint8_t posted;  /**< Pieces. */
	bool complete;   /**< All is posted, eager: DATA sent. */
	bool again;      /**< Its rail broke: to be posted again. */
	bool counted;    /**< In the statistics of posting. */
	uint64_t post_ns;
};

/** A control message that the peer may not have taken; of connections with several rails. */
struct bulk_sent {
	TAILQ_ENTRY(bulk_sent) link; /**< Of a rail's, conn->again or conn->sent_free. */
	uint64_t number;             /**< Among those of its rail, from 1. */
	uint64_t end;                /**< Position behind it in its endpoint's lane. */
	struct bulk_op *op;          /**< DATA: of this chunk, */
	uint32_t turn;               /**< if it is still the same. */
	union bulk_wire msg;
};
TAILQ_HEAD(bulk_sents, bulk_sent);

/** Sender: one of the receiver's slots. */
struct tx_slot {
	struct bulk_req *req; /**< NULL: free, or the request has ended. */
	uint64_t id;
	bool taken;
	bool announced; /**< DATA was sent: the receiver may give it back. */
	uint32_t turn;
	uint32_t index;
	uint32_t npieces;
	uint64_t post_ns;
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX];
};

/** Receiver: one of our slots. */
struct rx_slot {
	TAILQ_ENTRY(rx_slot) link;  /**< Of conn->waiting or conn->unpacking. */
	TAILQ_ENTRY(rx_slot) given; /**< Of b->chunks. */
	struct crpc_bulk_conn *conn;
	struct bulk_req *req; /**< NULL: its request has ended. */
	enum { SLOT_FREE, SLOT_ARRIVED, SLOT_UNPACKING, SLOT_UNPACKED } state;
	bool in_chunks;
	bool untold; /**< Free, but the sender does not know yet. */
	uint32_t turn;
	uint32_t index, len, crc;
	uint32_t npieces;
	uint64_t token; /**< MANUAL; else 0. */
	uint64_t job;
	uint64_t at_ns; /**< Entry to the state. */
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX];
};
TAILQ_HEAD(rx_slots, rx_slot);

struct bulk_rail {
	struct crpc_copyrpc_ep *ep;
	uint64_t under_way; /**< Bytes. */
	uint64_t acc;       /**< Bytes completed since acc_ns. */
	uint64_t acc_ns;
	double rate; /**< Bytes per ns; 0: not known. */
	enum { RAIL_UP, RAIL_CLOSING, RAIL_DOWN, RAIL_MEETING, RAIL_JOINED } state;
	bool gone;   /**< Its queue pair is destroyed. */
	bool told;   /**< MEETING: our address was sent; JOINED: READY. */
	bool heard;  /**< CLOSING: RAIL_DOWN has come; JOINED: READY. */
	uint32_t life;
	uint32_t fails; /**< Lives that ended without a chunk. */
	uint64_t since_ns; /**< Entry to the state. */
	/* the RAIL_DOWN of its last life that has ended; life 0: there is none */
	uint32_t down_life;
	uint32_t down_via; /**< The rail that it went by; NONE: it is to be sent. */
	uint64_t down_taken;
	/* control messages of this life */
	uint64_t nsent, ntaken;
	uint64_t nknown; /**< Of ours, known to be taken by the peer. */
	struct bulk_sents sent;
	bool invited; /**< DOWN: the peer's address of the next life is in addr. */
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN]; /**< MEETING: the peer's, once heard. */
};

struct crpc_bulk_conn {
	struct crpc_bulk *b;
	uint32_t index, user_id, nrails;
	int32_t err;
	bool breaking;
	uint64_t break_ns;
	struct bulk_rail rail[CRPC_BULK_RAILS_MAX];
	uint32_t lead;     /**< The rail that takes control messages. */
	uint32_t nup;      /**< Rails that are UP. */
	uint32_t nclosing; /**< Rails that are CLOSING. */
	struct bulk_sent *sent; /**< Pool; NULL: there is one rail. */
	struct bulk_sents sent_free;
	uint32_t nsent, nsent_free;
	struct bulk_sents again; /**< To be sent again, before anything new. */
	uint32_t nagain;         /**< Chunks to be posted again. */
	/* the peer's */
	uint32_t peer_ports, peer_requests, peer_slots, peer_unit;
	uint64_t peer_bounce;
	uint32_t peer_rkey[CRPC_BULK_PORTS_MAX];
	uint32_t eager_chunk;
	/* requests */
	struct bulk_req *send, *recv; /**< Pools. */
	struct bulk_req **send_free, **recv_free;
	uint32_t nsend_free, nrecv_free;
	struct bulk_reqs sends, recvs, posted; /**< Open; recvs that were matched; those not. */
	uint64_t serial;
	struct bulk_peer *peer;
	struct bulk_peers offers; /**< Not matched. */
	uint32_t peers_owed;      /**< R_ENDs. */
	uint32_t peers_busy;      /**< Entries that are not free. */
	/* chunks of ours */
	struct bulk_op *op;
	uint16_t *op_free;
	uint32_t nop_free;
	struct bulk_op *unfinished; /**< Must be posted to its end before another. */
	uint64_t tx_bytes;          /**< Under way. */
	uint64_t posts;             /**< Chunks posted: for the probes of rails. */
	struct tx_slot *tx_slot;
	uint16_t *slot_free;
	uint32_t nslot_free;
	uint32_t nunits, nunits_free;
	uint64_t unit_free[UNITS_MAX / 64];
	/* chunks that arrive */
	uint8_t *bounce;
	struct crpc_rdma_mr bounce_mr[CRPC_BULK_PORTS_MAX];
	uint32_t unit;
	struct rx_slot *rx_slot;
	struct rx_slots waiting, unpacking;
	uint64_t unit_held[UNITS_MAX / 64];
	uint32_t *consumed; /**< Slots to be given back. */
	uint32_t nconsumed;
	uint64_t sweep_ns;
	uint64_t bytes; /**< Of memory, without bounce. */
};

struct crpc_bulk {
	struct crpc_bulk_conf conf;
	struct crpc_mrcache *cache[CRPC_BULK_PORTS_MAX];
	struct crpc_unpack *engine;
	bool stopping; /**< The engine is being stopped. */
	uint64_t now;
	uint64_t serial;
	uint32_t ndone;
	struct bulk_reqs done;
	struct rx_slots chunks; /**< MANUAL ones that were not given yet. */
	struct crpc_bulk_conn *conn[CRPC_BULK_CONNS_MAX];
	uint32_t conns; /**< Highest index in use, plus 1. */
	struct crpc_bulk_stats stats;
	struct crpc_tel_box *tel;
};

/* ---- small things ---- */

static inline uint64_t
bulk_clock(const struct crpc_bulk *b)
{
	return b->conf.clock_ns != NULL ? b->conf.clock_ns() : b->now;
}

static inline void
stage_add(struct crpc_bulk_stage *stage, uint64_t from, uint64_t to)
{
	uint64_t ns = to > from ? to - from : 0;

	stage->n++;
	stage->sum_ns += ns;
	stage->max_ns = crpc_max(stage->max_ns, ns);
}

static inline bool
window_has(const struct window *w, uint32_t index)
{
	return index < w->low || (index - w->low < WINDOW_CHUNKS &&
				  (w->bits[index % WINDOW_CHUNKS / 64] >> index % 64 & 1) != 0);
}

/* index is in the window and was not set. */
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
chunks_of(uint64_t len, uint32_t chunk)
{
	return (uint32_t)((len + chunk - 1) / chunk);
}

static inline uint32_t
req_op(const struct bulk_req *req)
{
	return req->flags >> 8 & 0xff;
}

/* ---- bulk_conn.c ---- */
/** Break a connection, for a cause that was said; its requests end in the turns that follow. */
void __crpc_bulk_conn_break(struct crpc_bulk_conn *conn, int status);
/** Go on with a break. */
void __crpc_bulk_conn_break_on(struct crpc_bulk_conn *conn);
/** Break it for what the peer sent. */
void __crpc_bulk_proto(struct crpc_bulk_conn *conn, const char *what, uint64_t id,
		uint64_t found, uint64_t expected);

/* ---- bulk_tel.c ---- */
/** A mailbox for telemetry. 0, or -ENOMEM. */
int __crpc_bulk_tel_open(struct crpc_bulk *b);
void __crpc_bulk_tel_close(struct crpc_bulk *b);
/** Answer what telemetry asks. */
void __crpc_bulk_tel_answer(struct crpc_bulk *b);

/* ---- bulk_rail.c ---- */
/** Send a control message by the rail that takes them. False: not now, or the connection broke. */
bool __crpc_bulk_msg(struct crpc_bulk_conn *conn, const void *msg, uint32_t len);
/** The same for DATA of a chunk, by its rail. */
bool __crpc_bulk_data_msg(
		struct crpc_bulk_conn *conn, struct bulk_op *op, const void *msg, uint32_t len);
/** A rail does not work any more; it may be the last one. */
void __crpc_bulk_rail_break(struct crpc_bulk_conn *conn, uint32_t rail, int status);
/** What the peer says of a rail. */
void __crpc_bulk_rail_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** Look at all rails, and go on with those that break or come back. */
void __crpc_bulk_rails_turn(struct crpc_bulk_conn *conn);
/** The rail on which a chunk is expected to be done first. */
uint32_t __crpc_bulk_rail_choose(struct crpc_bulk_conn *conn, uint32_t len);
/** A chunk is given to a rail; it is complete, or it goes elsewhere. */
void __crpc_bulk_rail_load(struct crpc_bulk_conn *conn, uint32_t rail, uint32_t len);
void __crpc_bulk_rail_unload(struct crpc_bulk_conn *conn, uint32_t rail, uint32_t len, bool done);
int __crpc_bulk_rails_init(struct crpc_bulk_conn *conn);
void __crpc_bulk_rails_fini(struct crpc_bulk_conn *conn);
/** All are connected, as new. */
void __crpc_bulk_rails_up(struct crpc_bulk_conn *conn);

/* ---- bulk_req.c ---- */
/** The request is over and nothing touches its buffer. */
void __crpc_bulk_req_done(struct bulk_req *req, int32_t status);
/** It is to end with this status; no new chunks. */
void __crpc_bulk_req_stop(struct bulk_req *req, int32_t status);
int __crpc_bulk_req_register(struct bulk_req *req);
/** End what is overdue. */
void __crpc_bulk_sweep(struct crpc_bulk_conn *conn);

/* ---- bulk_match.c ---- */
void __crpc_bulk_offer_take(struct crpc_bulk_conn *conn, const struct bulk_wire_offer *offer);
void __crpc_bulk_accept_take(struct crpc_bulk_conn *conn, const struct bulk_wire_accept *accept);
void __crpc_bulk_s_end_take(struct crpc_bulk_conn *conn, const struct bulk_wire_end *end);
void __crpc_bulk_r_end_take(struct crpc_bulk_conn *conn, const struct bulk_wire_end *end);
/** News of *_MOVES. */
void __crpc_bulk_moves_take(struct crpc_bulk_conn *conn, const struct bulk_wire_head *head);
/** Tell the peer that a transfer goes on, if it cannot see that and was not told lately. */
void __crpc_bulk_moves_tell(struct bulk_req *req);
/** A receive was posted: match it if its offer is there. */
void __crpc_bulk_match(struct bulk_req *req);
/** The entry of an id that the peer names; NULL: of a transfer that is over, or it was no id and
 *  the connection broke. */
struct bulk_peer *__crpc_bulk_peer_find(struct crpc_bulk_conn *conn, uint64_t id);
/** Send what is owed and end what can end. */
void __crpc_bulk_sends_turn(struct crpc_bulk_conn *conn);
void __crpc_bulk_recvs_turn(struct crpc_bulk_conn *conn);

/* ---- bulk_tx.c ---- */
/** Post chunks, as far as the windows allow. */
void __crpc_bulk_chunks_post(struct crpc_bulk_conn *conn);
/** Has it chunks under way: with the device, or in slots that were not given back? */
static inline bool
has_under_way(const struct bulk_req *req)
{
	return req->ops != 0 || (!req->recv && req->landed != req->next);
}

/** Has it chunks left, none under way, and the window or the slots are full of others'? */
bool __crpc_bulk_waits_for_others(const struct bulk_req *req);
/** One get or put is complete. */
void __crpc_bulk_op_take(struct crpc_bulk_conn *conn, uint32_t op, uint32_t turn);
void __crpc_bulk_consumed_take(
		struct crpc_bulk_conn *conn, const struct bulk_wire_consumed *consumed);
/**
 * The peer did not take the DATA of this chunk, whose slot is therefore still the chunk's. False:
 * the peer has given the slot back, and the connection broke.
 */
bool __crpc_bulk_op_unannounce(struct crpc_bulk_conn *conn, struct bulk_op *op);
/** A rail is gone at both ends: its chunks are there, or go again. */
void __crpc_bulk_ops_again(struct crpc_bulk_conn *conn, uint32_t rail);
/** Windows as at the beginning. */
void __crpc_bulk_tx_init(struct crpc_bulk_conn *conn);

/* ---- bulk_rx.c ---- */
void __crpc_bulk_data_take(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data);
/** Submit, ask, consume, and tell. */
void __crpc_bulk_unpack_turn(struct crpc_bulk_conn *conn);
/** Ask about jobs only. */
void __crpc_bulk_jobs_turn(struct crpc_bulk_conn *conn);
/** The request has ended: its slots are nobody's. */
void __crpc_bulk_slots_drop(struct bulk_req *req);
/** The engine is stopped: every open job has failed. */
void __crpc_bulk_jobs_fail(struct crpc_bulk *b);
void __crpc_bulk_rx_init(struct crpc_bulk_conn *conn);

#endif
