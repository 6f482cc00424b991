/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_REQUESTER_H
#define SOFT_MLX5_ENGINE_REQUESTER_H

/**
 * @file
 * The send queue of a queue pair: WQEs on their way to request packets, and to their completion.
 */

#include "mr.h"

/** What became of a send WQE that was taken from the queue. */
enum sm_swr_wait {
	SM_SWR_DONE,
	SM_SWR_ACK,
	SM_SWR_RESPONSE,
};

/** A send WQE between transmission and completion; in a ring by WQE number. */
struct sm_swr {
	uint32_t psn; /**< Of its last packet. */
	uint32_t len;
	uint16_t bb;     /**< WQEBB index where it starts. */
	uint8_t op;
	uint8_t wait;    /**< enum sm_swr_wait. */
	uint8_t syndrome; /**< Not 0: failed, completes as an error in its turn. */
	bool signaled;
	uint16_t stream; /**< Of a DCI. */
};

/** Where a WQE of a queue pair without a connection goes, as its address vector says. */
struct sm_av {
	uint64_t key; /**< DCI: of the DCT. UD: Q_Key. */
	uint64_t grh; /**< See SM_GRH_PRESENT. */
	uint32_t qpn;
	uint32_t kind; /**< SM_SRC_ROCE_V1 or 0. */
	uint16_t dlid;
	const uint8_t *dgid; /**< In the WQE; with a GRH. */
};

/** The WQE that is being sent. */
struct sm_send {
	bool started;
	bool fence; /**< Waits for open READs and atomics. */
	uint8_t pkt;  /**< enum sm_pkt_type. */
	uint8_t last; /**< Flags of its last packet. */
	uint8_t nbb;
	struct sm_swr swr; /**< What is remembered of it. */
	uint32_t off;
	uint64_t raddr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t atomic[2]; /**< compare and swap, or what to add. */
	struct sm_cursor cur;
	struct sm_av av;
};

/** The part of a queue pair that sends. */
struct sm_requester {
	struct sm_swr *swr;
	uint16_t head;    /**< Posted, as last seen. */
	uint16_t taken;
	uint32_t wr_tx;   /**< WQEs taken ... */
	uint32_t wr_done; /**< ... and completed. */
	uint32_t psn;     /**< Of the next packet. */
	uint32_t acked;
	uint32_t simple_qpn; /**< Its number if WQEs may take the short way, else none. */
	uint8_t epoch;  /**< Counts rewinds, so that answers to what was sent before are known. */
	bool halted;    /**< A WQE failed: nothing more is sent. */
	bool lost;      /**< It waits because there was no queue pair, not for a receive WQE. */
	bool gap;       /**< A response went missing: asked again, until one comes that fits. */
	bool wakes;     /**< A WQE may wait until all before it are done: DCI, and for a UMR. */
	uint8_t retries, rnr_retries;
	uint8_t lost_tries;
	struct sm_send tx;
	/* READs and atomics that we asked for. */
	uint32_t rd_head, rd_tail;
	uint32_t rd_wr[SM_RD_MAX]; /**< WQE numbers. */
	uint32_t rd_off;           /**< Bytes of the oldest that came. */
	struct sm_cursor rd_cur;
	/** Packets of the next WQE that the peer has: it goes on behind them. */
	uint32_t resume;
	uint64_t retry_at;
	uint64_t rto_at, rto_mark; /**< With faults: the retransmission timer, and what moved it. */
	uint32_t rto_spoke, rto_silent;
};

enum sm_step {
	SM_STEP_ON,      /**< Go on. */
	SM_STEP_FULL,    /**< The ring is full: again in the next pass. */
	SM_STEP_BLOCKED, /**< Something else wakes it. */
};

/** The WQE in qp->req.tx leaves the queue and waits for its completion. */
void sm_sq_taken(struct sm_qp *qp);
/** Report WQE @p w, which failed or is flushed. */
void sm_sq_error(struct sm_nic *nic, struct sm_qp *qp, const struct sm_swr *w);
/** Complete, in order, whatever is done. */
void sm_sq_complete(struct sm_nic *nic, struct sm_qp *qp);
/**
 * The next WQE fails with @p synd, once everything before it has completed. SM_STEP_FULL if that
 * was at once and ends a stream alone, else SM_STEP_BLOCKED.
 */
enum sm_step sm_sq_fail(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd);

/** Look at the doorbell record and send; what does not fit goes on the active list. */
void sm_sq_ring(struct sm_nic *nic, struct sm_qp *qp);
/** Send; true: may be able to go on in the next pass. */
bool sm_sq_serve(struct sm_nic *nic, struct sm_qp *qp);
void sm_sq_activate(struct sm_nic *nic, struct sm_qp *qp);
/** The timer of a waiting QP. */
void sm_sq_timer(struct sm_nic *nic, struct sm_qp *qp);
/** The peer died. */
void sm_sq_peer_dead(struct sm_nic *nic, struct sm_qp *qp);
/** The peer has everything up to @p psn. */
void sm_sq_acked(struct sm_nic *nic, struct sm_qp *qp, uint32_t psn);
/** An acknowledgement or response, whose bytes follow it or, with @p pull, are referred to. */
void sm_sq_answer(struct sm_nic *nic, const struct sm_peer *peer, const struct sm_hdr *h,
	const uint8_t *payload, struct sm_pull *pull);
/** The data segments of the WQE at @p bb, behind all that the opcode has before them. */
void sm_sq_cursor(const struct sm_qp *qp, uint16_t bb, struct sm_cursor *cur);
/** No answer in time: once more, or, if it @p counts and was the last time, the end. */
void sm_sq_timeout(struct sm_nic *nic, struct sm_qp *qp, bool counts);

/** How long an RNR timer's code means. */
uint64_t sm_retry_rnr_ns(uint32_t code);
/** Requesters that wait too long, and late packets. */
void sm_retry_timers(struct sm_nic *nic);

/* ---- datagram.c ---- */

/** Send the WQE at hand of a UD queue pair. */
enum sm_step sm_datagram_send(struct sm_nic *nic, struct sm_qp *qp);

#endif
