/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_RAIL_H
#define BULK_RAIL_H

/**
 * @file
 * Rails, of which a connection has one or more: how control messages are sent, how a rail breaks
 * without its connection, and how it is connected again.
 *
 *     UP --error, or the peer's RAIL_DOWN--> BREAKING    the queue pair is being destroyed
 *                                               |
 *                                               v
 *                                            LEAVING     RAIL_DOWN is exchanged
 *                                               |
 *                                               v
 *     UP <-- JOINING <-- MEETING <---------- DOWN        after a while, or invited by an ADDR
 *            READY       ADDR is exchanged;
 *                        then both connect
 *
 * MEETING and JOINING break as UP does. Each exchange ends when our message was sent and the peer's
 * was received, in any order. The peer may be one state ahead: its RAIL_DOWN may come in BREAKING,
 * and its ADDR in DOWN; `received` is kept for the next state then.
 *
 * Messages that were sent on a rail are kept until the peer has released them. In DOWN neither end
 * can do anything on the rail any more, and the peer has reported how many messages it took: the
 * others, and the chunks that were under way, are sent again over other rails, each once. From
 * BREAKING to DOWN nothing else is sent, so that messages keep their order.
 *
 * RAIL_DOWN is not kept, as two rails may each have lost that of the other: it is sent again, in
 * any state, when the rail that carried it breaks. The receiver ignores the second one.
 */

#include <sys/queue.h>

#include "bulk_wire.h"
#include "crpc_copyrpc.h"

struct bulk_op;
struct crpc_bulk_conn;

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

/**
 * What carries the rails of an object: endpoints of lib/copyrpc, whose functions these are, or what
 * does the same over TCP (bulk_tcp.c).
 */
struct bulk_link {
	/** The chunk follows its DATA, and is taken with it; else it is put before. */
	bool has_payload;
	/** NULL with errno; adds its memory to that of the connection. */
	struct crpc_copyrpc_ep *(*create)(struct crpc_bulk_conn *conn, uint32_t rail);
	void (*free)(struct crpc_copyrpc_ep *ep);
	void (*addr)(const struct crpc_copyrpc_ep *ep, uint8_t addr[CRPC_COPYRPC_ADDR_LEN]);
	int (*connect)(struct crpc_copyrpc_ep *ep, const uint8_t peer[CRPC_COPYRPC_ADDR_LEN]);
	int (*status)(const struct crpc_copyrpc_ep *ep);
	void (*shutdown)(struct crpc_copyrpc_ep *ep);
	int (*reset)(struct crpc_copyrpc_ep *ep);
	/** Queue a message; DATA is of chunk @p op. 0, -EAGAIN, or why it broke. */
	int (*send)(struct crpc_bulk_conn *conn, struct crpc_copyrpc_ep *ep, struct bulk_op *op,
		const struct bulk_wire_head *msg);
	void (*positions)(const struct crpc_copyrpc_ep *ep, struct crpc_copyrpc_positions *pos);
};

extern const struct bulk_link __crpc_bulk_rdma, __crpc_bulk_tcp;

enum rail_state {
	RAIL_UP,
	RAIL_BREAKING,
	RAIL_LEAVING,
	RAIL_DOWN,
	RAIL_MEETING,
	RAIL_JOINING,
};

struct bulk_rail {
	struct crpc_copyrpc_ep *ep; /**< Of the link. */
	uint64_t under_way; /**< Bytes. */
	uint64_t acc;       /**< Bytes completed since acc_ns. */
	uint64_t acc_ns;
	double rate; /**< Bytes per ns; 0: not known. */
	enum rail_state state;
	bool sent;         /**< MEETING, JOINING: our message of the exchange. */
	bool received;     /**< The peer's. */
	uint32_t life;     /**< Queue pairs are counted, from 1. */
	uint32_t fails;    /**< Queue pairs in a row that broke without a chunk. */
	uint64_t since_ns; /**< Entry to the state. */
	/** The RAIL_DOWN of the last life that has ended; life 0: there is none. */
	struct {
		uint32_t life;
		uint32_t via; /**< The rail that carried it; NONE: it is to be sent. */
		uint64_t taken;
	} down;
	/* control messages of this life */
	uint64_t nsent, ntaken;
	uint64_t nknown; /**< Of ours, known to be taken by the peer. */
	struct bulk_sents kept;
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN]; /**< The peer's, once received. */
};

/** A rail that broke takes no message any more: the peer sends what it carried again. */
static inline bool
rail_takes(const struct bulk_rail *rail)
{
	return rail->state == RAIL_UP || rail->state == RAIL_JOINING;
}

/** A control message has come by this rail. */
void __crpc_bulk_msg_take(
	struct crpc_bulk_conn *conn, struct bulk_rail *rail, const void *data, uint32_t len);

/**
 * Send a control message: DATA by the rail of its chunk @p op, others (NULL) by the rail that takes
 * them. False: not now, or the connection broke.
 */
bool __crpc_bulk_msg(
	struct crpc_bulk_conn *conn, struct bulk_op *op, const struct bulk_wire_head *msg);
/** A rail does not work any more; it may be the last one. */
void __crpc_bulk_rail_break(struct crpc_bulk_conn *conn, uint32_t rail, int status);
/** A message about a rail. False: the connection broke. */
bool __crpc_bulk_rail_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
/** Look at all rails, and continue with those that break or return. */
void __crpc_bulk_rails_turn(struct crpc_bulk_conn *conn);
/** The connection broke, and its rails with it. */
void __crpc_bulk_rails_break(struct crpc_bulk_conn *conn);
/** Destroy their queue pairs. False: not all are destroyed yet. */
bool __crpc_bulk_rails_destroy(struct crpc_bulk_conn *conn);
/** The rail on which a chunk is expected to be done first. */
uint32_t __crpc_bulk_rail_choose(struct crpc_bulk_conn *conn, uint32_t len);
/** A chunk is given to a rail; it is complete, or it goes elsewhere. */
void __crpc_bulk_rail_load(struct crpc_bulk_conn *conn, uint32_t rail, uint32_t len);
void __crpc_bulk_rail_unload(struct crpc_bulk_conn *conn, uint32_t rail, uint32_t len, bool done);
int __crpc_bulk_rails_init(struct crpc_bulk_conn *conn);
void __crpc_bulk_rails_fini(struct crpc_bulk_conn *conn);
/** All are connected, as new. */
void __crpc_bulk_rails_up(struct crpc_bulk_conn *conn);

#endif
