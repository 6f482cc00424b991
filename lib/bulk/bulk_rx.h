/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_RX_H
#define BULK_RX_H

/**
 * @file
 * Eager chunks that arrive.
 *
 *     slot at the receiver   FREE -> ARRIVED (DATA) -> UNPACKING (submit) -> UNPACKED (done)
 *                                 -> CONSUMED (consumed, or its request ended)
 *                                 -> FREE (CONSUMED sent)
 */

#include <sys/queue.h>

#include "bulk_units.h"
#include "crpc_rdma.h"

struct bulk_req;
struct crpc_bulk;
struct crpc_bulk_conn;

enum rx_slot_state { SLOT_FREE, SLOT_ARRIVED, SLOT_UNPACKING, SLOT_UNPACKED, SLOT_CONSUMED };

/** Receiver: one of our slots. */
struct rx_slot {
	TAILQ_ENTRY(rx_slot) link;  /**< Of arrived, unpacking or consumed. */
	TAILQ_ENTRY(rx_slot) given; /**< Of b->chunks. */
	struct crpc_bulk_conn *conn;
	struct bulk_req *req; /**< NULL: its request has ended. */
	enum rx_slot_state state;
	bool in_chunks;
	uint32_t turn;
	uint32_t index, len, crc;
	uint32_t npieces;
	uint64_t token; /**< MANUAL; else 0. */
	uint64_t job;
	uint64_t at_ns; /**< Entry to the state. */
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX];
};
TAILQ_HEAD(rx_slots, rx_slot);

/** Of a connection. */
struct bulk_rx {
	uint8_t *bounce;
	struct crpc_rdma_mr mr[CRPC_BULK_PORTS_MAX]; /**< Of bounce. */
	struct units units;
	struct rx_slot *slot;
	struct rx_slots arrived, unpacking, consumed;
};

/** All slots are free. */
void __crpc_bulk_rx_init(struct crpc_bulk_conn *conn);
/** DATA. False: the connection broke. */
bool __crpc_bulk_data_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** Submit chunks, ask about jobs, consume, and give slots back. */
void __crpc_bulk_unpack_turn(struct crpc_bulk_conn *conn);
/** Ask about jobs only. */
void __crpc_bulk_jobs_turn(struct crpc_bulk_conn *conn);
/** The request has ended: give its slots back. */
void __crpc_bulk_slots_drop(struct bulk_req *req);
/** The engine is stopped: every open job has failed. */
void __crpc_bulk_jobs_fail(struct crpc_bulk *b);

#endif
