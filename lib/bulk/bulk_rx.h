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
 *
 * Over TCP the chunk follows its DATA: DUE is between them, and FREE again if the rail breaks.
 */

#include <sys/queue.h>

#include "bulk_units.h"
#include "crpc_rdma.h"
#include "crpc_unpack.h"

struct bulk_req;
struct crpc_bulk;
struct crpc_bulk_conn;

enum rx_state { SLOT_FREE, SLOT_DUE, SLOT_ARRIVED, SLOT_UNPACKING, SLOT_UNPACKED, SLOT_CONSUMED };

/** Bytes of a chunk that lie together. */
struct rx_frag {
	const uint8_t *at;
	uint32_t len;
};

/** Receiver: one of our slots. */
struct rx_slot {
	TAILQ_ENTRY(rx_slot) link;  /**< Of arrived, unpacking or consumed. */
	TAILQ_ENTRY(rx_slot) given; /**< Of b->chunks. */
	struct crpc_bulk_conn *conn;
	struct bulk_req *req; /**< NULL: its request has ended. */
	enum rx_state state;
	bool in_chunks;
	uint32_t turn;
	uint32_t index, len, crc;
	uint32_t npieces;
	uint64_t token; /**< MANUAL; else 0. */
	uint64_t job;
	uint64_t at_ns; /**< Entry to the state. */
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX];
	bool maps;            /**< Its pages may stay where the kernel has them. */
	uint32_t nfrags;
	struct rx_frag frag[CRPC_UNPACK_DESCS_MAX]; /**< Where its bytes are, in order. */
};
TAILQ_HEAD(rx_slots, rx_slot);

/** Of a connection. */
struct bulk_rx {
	uint8_t *bounce;
	struct crpc_rdma_mr mr[CRPC_BULK_PORTS_MAX]; /**< Of bounce. */
	uint8_t *map; /**< As large as bounce: where sockets map pages; NULL: nowhere. */
	uint32_t frags; /**< Of a chunk with pages, at most. */
	struct units units;
	struct rx_slot *slot;
	struct rx_slots arrived, unpacking, consumed;
};

/** The next bytes of a chunk are there. */
static inline void
rx_frag_add(struct rx_slot *slot, const uint8_t *at, uint32_t len)
{
	struct rx_frag *last = &slot->frag[slot->nfrags];

	if (slot->nfrags != 0 && last[-1].at + last[-1].len == at)
		last[-1].len += len;
	else
		slot->frag[slot->nfrags++] = (struct rx_frag){at, len};
}

/** All slots are free. */
void __crpc_bulk_rx_init(struct crpc_bulk_conn *conn);
/** DATA. False: the connection broke. Over TCP its chunk is DUE then. */
bool __crpc_bulk_data_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** The chunk of this DATA is there. False: the connection broke. */
bool __crpc_bulk_data_arrive(struct crpc_bulk_conn *conn, const struct bulk_wire_data *data);
/** It will not be, as its rail broke: the sender sends it again. */
void __crpc_bulk_data_lose(struct rx_slot *slot);
/** What the engine has to do for a chunk; desc has room for CRPC_UNPACK_DESCS_MAX. Their number. */
uint32_t __crpc_bulk_slot_descs(const struct rx_slot *slot, struct crpc_unpack_desc *desc);
/** Submit chunks, ask about jobs, consume, and give slots back. */
void __crpc_bulk_unpack_turn(struct crpc_bulk_conn *conn);
/** Ask about jobs only. */
void __crpc_bulk_jobs_turn(struct crpc_bulk_conn *conn);
/** The request has ended: give its slots back. */
void __crpc_bulk_slots_drop(struct bulk_req *req);
/** The engine is stopped: every open job has failed. */
void __crpc_bulk_jobs_fail(struct crpc_bulk *b);

#endif
