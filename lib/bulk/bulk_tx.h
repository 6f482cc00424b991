/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_TX_H
#define BULK_TX_H

/**
 * @file
 * Chunks that our device moves: eager and written ones at the sender, read ones at the receiver.
 *
 * A chunk under way by our device is an op. An eager chunk also has a slot, at both ends, which
 * outlives op and request: the receiver gives it back.
 *
 *     slot at the sender     free -> taken -> announced (DATA) -> free (CONSUMED)
 */

#include <sys/queue.h>

#include "bulk_units.h"

#define NONE UINT32_MAX
/** A cookie: CRPC_BULK_COOKIE (16 bits), connection (10), op (8), turn (30). */
#define TURN_MASK ((1u << 30) - 1)

struct bulk_req;
struct crpc_bulk_conn;

/** One chunk that our device moves. */
struct bulk_op {
	SLIST_ENTRY(bulk_op) link; /**< Of op_free. */
	struct bulk_req *req;      /**< NULL: free. */
	uint32_t turn;
	uint32_t index, len;
	uint32_t puts; /**< Not completed yet. */
	uint32_t slot; /**< Eager; else NONE. */
	uint8_t rail;
	uint8_t posted; /**< Pieces. */
	bool complete;  /**< All is posted, eager: DATA sent. */
	bool again;     /**< Its rail broke: to be posted again. */
	bool counted;   /**< In the statistics of posting. */
	uint64_t post_ns;
};

/** Sender: one of the receiver's slots. */
struct tx_slot {
	SLIST_ENTRY(tx_slot) link; /**< Of slot_free. */
	struct bulk_req *req;      /**< May have ended; then its id is another. */
	uint64_t id;
	bool announced; /**< DATA was sent: the receiver may give it back. */
	uint32_t turn;
	uint32_t index;
	uint32_t npieces; /**< 0: free. */
	uint64_t post_ns;
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX];
};

/** Of a connection. */
struct bulk_tx {
	struct bulk_op *op;
	SLIST_HEAD(, bulk_op) op_free;
	uint32_t nop_free;
	uint32_t nagain;            /**< Chunks to be posted again. */
	struct bulk_op *unfinished; /**< Must be posted to its end before another. */
	uint64_t posts;             /**< Chunks posted: for the probes of rails. */
	struct tx_slot slot[CRPC_BULK_SLOTS_MAX];
	SLIST_HEAD(, tx_slot) slot_free;
	uint32_t nslots, nslot_free;
	struct units units;
};

/** Windows as at the beginning, with the chunk size and slots of the peer. */
void __crpc_bulk_tx_init(struct crpc_bulk_conn *conn, uint32_t chunk, uint32_t slots);
/** Post chunks, as far as the windows allow. */
void __crpc_bulk_chunks_post(struct crpc_bulk_conn *conn);
/** What keeps a request from posting its next chunk. */
enum bulk_wait {
	WAIT_NOTHING,
	WAIT_CHUNKS, /**< It has none. */
	WAIT_SLOTS,  /**< Of the receiver. */
	WAIT_WINDOW, /**< Which all requests share. */
};
enum bulk_wait __crpc_bulk_waits_for(const struct bulk_req *req);
/** One get or put is complete. */
void __crpc_bulk_op_take(struct crpc_bulk_conn *conn, uint32_t op, uint32_t turn);
/** CONSUMED. False: the connection broke. */
bool __crpc_bulk_consumed_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/**
 * The peer did not take the DATA of this chunk, whose slot is therefore still the chunk's. False:
 * the peer has given the slot back, and the connection broke.
 */
bool __crpc_bulk_op_unannounce(struct crpc_bulk_conn *conn, struct bulk_op *op);
/** A rail is gone at both ends: its chunks have arrived, or are posted again. */
void __crpc_bulk_ops_again(struct crpc_bulk_conn *conn, uint32_t rail);

#endif
