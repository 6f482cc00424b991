/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_RESPONDER_H
#define SOFT_MLX5_ENGINE_RESPONDER_H

/**
 * @file
 * The part of a queue pair that receives: requests, receive WQEs, and what is pending for them.
 */

#include "mr.h"

struct sm_srq {
	struct sm_obj obj;
	struct sm_srq_attr attr;
	uint16_t next;  /**< WQE that is used next. */
	uint16_t taken; /**< WQEs used so far. */
	uint32_t nback;
	uint16_t back[]; /**< Taken and not used up: they go before next. */
};

/** An accepted READ or atomic whose response is due. */
struct sm_rd {
	uint8_t pkt; /**< SM_PKT_READ_RESP or SM_PKT_ATOMIC_RESP. */
	uint8_t epoch;
	uint32_t psn; /**< Of its first packet. */
	uint32_t rkey;
	uint32_t len;
	uint32_t off;
	uint64_t raddr;
	uint64_t value;
};

/** The message that is being received. */
struct sm_recv {
	bool open;
	uint8_t pkt;
	uint32_t len;  /**< Of a WRITE, as announced; a SEND has what comes. */
	uint32_t off;
	uint64_t raddr;
	uint32_t rkey;
	uint16_t counter; /**< Of the receive WQE. */
	struct sm_cursor cur;
};

/** What an atomic did, for a request that comes twice. */
struct sm_atomic {
	uint32_t psn;
	uint64_t value;
};

struct sm_responder {
	uint32_t psn;     /**< Expected. */
	uint32_t msn;     /**< Messages completed, as acknowledgements say. */
	uint32_t unacked; /**< Messages received since the last acknowledgement. */
	uint32_t held;    /**< How many there were when it was last put off. */
	uint8_t nak;      /**< enum sm_nak to be sent. */
	/** Everything of refuse_epoch is dropped. Always set where packets are sorted otherwise. */
	bool refusing;
	uint8_t refuse_epoch;
	uint16_t head, tail;
	struct sm_recv rx;
	uint32_t ans_head, ans_tail;
	struct sm_rd ans[SM_RD_MAX];
	struct sm_atomic atomics[SM_RD_MAX]; /**< The last ones, by count. */
	uint32_t natomics;
};

/** A request packet, whose bytes follow it or, with @p pull, are referred to. */
void sm_resp_request(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h,
	const uint8_t *payload, struct sm_pull *pull);
/**
 * Refuse the packet at hand: nothing behind it counts until the requester goes back to it. What
 * came of its message stays, unless it is refused for good.
 */
void sm_resp_nak(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h, enum sm_nak nak);
/** Send what is pending; true: nothing is left. */
bool sm_resp_serve(struct sm_nic *nic, struct sm_qp *qp);
/** Settle what is pending before the queue pair goes. */
void sm_resp_settle(struct sm_nic *nic, struct sm_qp *qp);

/**
 * Refuse a request as if there were @p why; false: it is none that can be refused so. RNR is for
 * one that would use a receive WQE.
 */
bool sm_resp_refuse(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why);
/** The message at hand ends here: its receive WQE, if it has one, serves again. */
void sm_recv_abandon(struct sm_qp *qp);

/* ---- datagram.c ---- */

void sm_datagram_receive(struct sm_nic *nic, const struct sm_hdr *h, const uint8_t *payload);

/* ---- srq.c ---- */

/** Take the next receive WQE of a queue pair; false: none is posted. */
bool sm_recv_take(struct sm_nic *nic, struct sm_qp *qp);
/** The WQE that was taken as @p counter was not used up: another message gets it. */
void sm_srq_return(struct sm_srq *srq, uint16_t counter);
/** Point at the segments of the receive WQE that was taken. */
void sm_recv_cursor(struct sm_qp *qp);

#endif
