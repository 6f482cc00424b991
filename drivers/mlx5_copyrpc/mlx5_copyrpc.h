/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_COPYRPC_H
#define CRPC_MLX5_COPYRPC_H

/**
 * @file
 * Private to the driver.
 *
 *     crpc_mlx5_dev                            crpc_mlx5_qp
 *     +----------------------+                 +----------------------+
 *     | ib: crpc_ib          | <-- base.dev -- | ib: crpc_ib_qp       |   what verbs knows
 *     | cq, qp table         | -- by QPN ----> | counts, own ring     |   datapath
 *     | initiators, bf       |                 | srq, ah, memory      |   control
 *     +----------------------+                 +----------------------+
 *
 * All kinds of queue pairs send in the same way: WQEs go into the ring that crpc_mlx5_qp.sq names,
 * and each is recorded there with its owner. An RC or UD queue pair uses its own ring. DC queue
 * pairs share the rings of the device's initiators:
 *
 *     blocks   | done | A A B A C C | free |        A, B, C: WQEs of queue pairs
 *                     ci            pi
 *
 * States of a queue pair (enum crpc_ib_state):
 *
 *     create -> IDLE --connect--> READY --error CQE, or a WR that cannot be built--> ERROR -> free
 *
 * A DC queue pair ends in RETIRED, from any state, while its initiator still has WQEs of it. An
 * initiator:
 *
 *     READY --WQEs of a retired one are among others'--> DRAINING --all are done--> READY
 *       |                                                   |
 *       +--------- error CQE, or no progress ---------------+--> ERROR --all flushed--> READY
 *
 * Everything here belongs to the one thread that uses the device. The only other party is the
 * device: it reads WQEs and doorbell records and writes CQEs.
 */

#include <stdbool.h>
#include <stdio.h>

#include "crpc_atomic.h"
#include "crpc_ib.h"
#include "crpc_tel.h"
#include "mlx5_prm.h"

/** Blocks of a DC initiator's send queue, as WRs of the largest WQE. */
#define CRPC_MLX5_DCI_DEPTH 128
/** WQEs between two completions of a DC initiator, at most. */
#define CRPC_MLX5_DCI_SIGNAL_EVERY 32

/** A doorbell (BlueFlame) register. QPs may share one, so the half in turn is kept with it. */
struct crpc_mlx5_bf {
	uint8_t *reg;
	uint32_t size;             /**< Bytes of a half; 0: a doorbell only, no BlueFlame. */
	uint32_t offset;           /**< Of the half to write next: 0 or size. */
	struct crpc_mlx5_bf *next; /**< Of the device. */
};

/** Record of a send WQE, by the index of its first block. */
struct crpc_mlx5_sent {
	struct crpc_mlx5_qp *owner; /**< NULL: none any more, or the driver itself. */
	uint32_t start;             /**< First block, running free. */
	uint32_t wr_id;
	uint8_t bb; /**< Blocks. */
	bool user;  /**< The user requested its completion. */
};

/** A ring of send WQEs. The device reads buf and dbrec; the rest is the owner thread's. */
struct crpc_mlx5_sq {
	uint8_t *buf;
	uint8_t *end;
	struct crpc_mlx5_sent *sent; /**< One per block. */
	_Atomic uint32_t *dbrec;
	struct crpc_mlx5_bf *bf;
	uint32_t bb_mask;     /**< Blocks - 1. */
	uint32_t pi;          /**< Next block, running free. */
	uint32_t ci;          /**< Oldest block that is not known to be done. */
	uint32_t newest;      /**< First block of the newest WQE. */
	uint32_t reserved;    /**< Blocks that a post leaves free. */
	uint32_t qpn_shl8;    /**< QPN where qpn_ds has it. */
	uint32_t unsignalled; /**< WQEs since the last one that gives a completion. */
	uint32_t signal_every;
	uint32_t signals; /**< WQEs that give a completion, ever. */
};

enum crpc_mlx5_rq_state {
	CRPC_MLX5_RQ_CLEAN,
	CRPC_MLX5_RQ_DIRTY,  /**< posted is ahead of dbrec; only inside a poll. */
	CRPC_MLX5_RQ_NO_IMM, /**< No write with immediate can arrive: of UD and of an initiator. */
};

/** Receive queue: WQEs are written once; a refill only moves the counter. */
struct crpc_mlx5_rq {
	_Atomic uint32_t *dbrec;
	uint32_t posted;         /**< Receives ever handed to the device, running free. */
	uint8_t state;           /**< enum crpc_mlx5_rq_state. */
	struct crpc_mlx5_ud *ud; /**< Whose datagrams come here; NULL: none may. */
};

/** A queue pair; the datapath first. */
struct crpc_mlx5_qp {
	struct crpc_ib_qp ib;
	struct crpc_mlx5_sq *sq; /**< Where its WQEs go: own, or an initiator's. */
	uint32_t signals;        /**< sq->signals when unsignalled began to count. */
	uint32_t bb_max;         /**< Blocks of its largest WQE. */
	uint32_t av_len;         /**< DC: 48, or 16 where the compact form will do; else 0. */
	struct mlx5_wqe_av av;   /**< DC: the peer's, as a WQE has it. */
	struct crpc_mlx5_rq rq;
	struct crpc_mlx5_sq own;          /**< Unused in a DC queue pair. */
	struct ibv_srq *srq;              /**< DC: what the target receives from. */
	struct ibv_ah *ibah;              /**< DC: of the peer. */
	struct ibv_mr *mr;                /**< UD: of the receive buffers. */
	void *memory;                     /**< UD: these. DCI: for what is posted again. */
	struct crpc_mlx5_qp *next_ending; /**< DC: in dev->ending. */
};

/** The receivers of datagrams. */
struct crpc_mlx5_ah {
	struct crpc_ib_ah ib;
	struct mlx5_wqe_av av; /**< As a WQE has it. */
};

/** Completion queue. The device writes buf and reads dbrec. */
struct crpc_mlx5_cq {
	union crpc_mlx5_cqe *buf;
	_Atomic uint32_t *dbrec;
	uint32_t mask; /**< Entries - 1. */
	uint32_t ci;   /**< Next entry to read, running free. */
};

/** One place of the table from QPN to queue pair; qpn 0 is an empty one. */
struct crpc_mlx5_slot {
	uint32_t qpn;
	struct crpc_mlx5_qp *qp;
};

/** Open addressing, at most half full, so that a look-up ends soon at an empty place. */
struct crpc_mlx5_table {
	struct crpc_mlx5_slot *slot;
	uint32_t mask;
	uint32_t shift;
};

/** A device. */
struct crpc_mlx5_dev {
	/** Its attention is not 0: there are faults, one of the next two is not empty, an initiator
	 *  drains or failed, the device failed, or telemetry asks. */
	struct crpc_ib ib;
	struct crpc_mlx5_cq cq;
	struct crpc_mlx5_table table;
	struct crpc_mlx5_ud *held;   /**< Those with buffers to hand back at the next poll. */
	struct crpc_mlx5_qp *ending; /**< Freed, but the device still has WQEs of theirs. */
	struct crpc_tel_box *tel;
	uint32_t num_dcis;
	struct crpc_mlx5_dci *dci[CRPC_RDMA_DCIS_MAX];
	struct crpc_mlx5_bf *bfs; /**< All registers that queue pairs were given. */
};

/**
 * A datagram queue pair. WQE i of its receive queue always names buffer i, so handing buffers back
 * moves the counter only.
 */
struct crpc_mlx5_ud {
	struct crpc_mlx5_qp qp;
	uint8_t *buf; /**< Buffers, UD_STRIDE bytes each; a payload starts at UD_PAYLOAD. */
	uint32_t lkey;
	uint32_t mask;                  /**< Receive WQEs - 1. */
	uint32_t mtu;                   /**< Of what it sends. */
	uint32_t held;                  /**< Buffers that the user reads until the next poll. */
	struct crpc_mlx5_ud *next_held; /**< In dev->held. */
};

/** A DC initiator: the send ring that many DC queue pairs share. */
struct crpc_mlx5_dci {
	struct crpc_mlx5_qp qp;
	struct crpc_mlx5_sent *again; /**< The WQEs to post again, in order, as own.sent[]. */
	uint8_t *copy;                /**< Their bytes. */
	uint32_t flushed;             /**< In ERROR: blocks up to here were flushed. */
	uint32_t resets;              /**< Times that it was taken out of an error. */
	bool stopped;          /**< DRAINING took too long: it was stopped, and flushes all. */
	uint64_t rest_ns;      /**< DRAINING, ERROR: time that the device has to complete all. */
	uint64_t rest_part_ns; /**< The most that counts of it between two looks. */
	uint64_t looked_ns;    /**< When some of that was counted. */
};

static inline struct crpc_mlx5_dev *
crpc_mlx5_dev(const struct crpc_rdma *dev)
{
	return crpc_container_of((struct crpc_rdma *)(uintptr_t)dev, struct crpc_mlx5_dev, ib.base);
}

static inline struct crpc_mlx5_qp *
crpc_mlx5_qp(const struct crpc_ib_qp *qp)
{
	return crpc_container_of((struct crpc_ib_qp *)(uintptr_t)qp, struct crpc_mlx5_qp, ib);
}

/* mlx5_datapath.c */
uint16_t crpc_mlx5_post(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n);
uint16_t crpc_mlx5_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
/** Notifies the device of @p n new WQEs, from block @p start on. */
void crpc_mlx5_sq_ring(
	struct crpc_mlx5_dev *dev, struct crpc_mlx5_sq *sq, uint16_t n, uint32_t start);

/* mlx5_cq.c: the rare side of the completion queue. */
int crpc_mlx5_cq_init(struct crpc_mlx5_dev *dev, uint32_t depth);
/** Takes the unread completions of a destroyed QP out of the queue: its QPN may be given to another
 *  one, as is its room. The device may overwrite what was read before. */
void crpc_mlx5_cq_forget(struct crpc_mlx5_cq *cq, uint32_t qpn);

/* mlx5_error.c: the rare side of the datapath. */
/** The queue pair that a completion names cannot go on; an initiator is given up. */
void crpc_mlx5_cqe_fault(struct crpc_mlx5_qp *qp, const char *why);
/** Decodes an error CQE; 1 if out was written, 0 if there is nothing new to report. */
uint16_t crpc_mlx5_error_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);
/** Logs the first error of a queue pair in words, with the WQE of @p sq that it is about. */
void crpc_mlx5_error_log(const struct crpc_mlx5_qp *qp, const struct crpc_mlx5_sq *sq,
	const union crpc_mlx5_cqe *cqe);
/** Reports an error of a queue pair to the user, with all WRs that it retired; sent: NULL if it is
 *  not of a send. 1. */
uint16_t crpc_mlx5_error_report(struct crpc_mlx5_qp *qp, const union crpc_mlx5_cqe *cqe,
	const struct crpc_mlx5_sent *sent, struct crpc_rdma_cqe *out);
/** What a card says of an error: -errno that the user gets, and words. */
struct crpc_mlx5_syndrome {
	uint8_t number;
	int16_t status;
	const char *name;
};
const struct crpc_mlx5_syndrome *crpc_mlx5_syndrome_find(uint8_t number);

/* mlx5_queue.c: what all kinds of queue pairs share. */
/** Blocks of the largest WQE with @p head bytes of headers and @p inline_max inline bytes or
 *  CRPC_RDMA_SGE_MAX elements. */
uint32_t crpc_mlx5_wqebb_max(size_t head, uint32_t inline_max);
/**
 * Makes a queue pair of any kind, in its first state of use, and adds it to the device's.
 *
 * @return
 *   It, or NULL with errno EINVAL, ENOSPC, ENOMEM, EOPNOTSUPP or EIO, and the cause in the log.
 */
struct crpc_mlx5_qp *crpc_mlx5_qp_make(
	struct crpc_mlx5_dev *dev, uint8_t kind, const struct crpc_rdma_qp_conf *conf);
/** Destroys it, and forgets its completions. What the device does not destroy stays in memory until
 *  the device is closed, and what it completes there is skipped. */
void crpc_mlx5_qp_end(struct crpc_mlx5_qp *qp);
/** Frees what there is of it. False: the device may still use it, so it is kept. */
bool crpc_mlx5_objects_free(struct crpc_ib_qp *qp);
/** Moves it to the error state, so that the device flushes what is outstanding on it. */
void crpc_mlx5_qp_to_error(struct crpc_ib_qp *qp);
/** Hands the device its first receives: after INIT, on whose way rdma-core clears the records. */
void crpc_mlx5_rq_start(struct crpc_mlx5_qp *qp);
/** Writes the receives of a whole queue, which have no buffers but for UD. */
void crpc_mlx5_rq_prefill(
	uint8_t kind, const struct crpc_mlx5_ud *ud, void *buf, uint32_t num, uint32_t stride);
/** Copies the vector of the peer that an address handle is of; *full: a WQE needs all of it. 0 or
 *  -EHOSTUNREACH. */
int crpc_mlx5_av_get(const struct crpc_mlx5_dev *dev, struct ibv_ah *ah,
	const struct crpc_ib_addr *peer, struct mlx5_wqe_av *av, bool *full);
/** Makes an empty table with room for @p num QPs; 0 or -ENOMEM. */
int crpc_mlx5_table_init(struct crpc_mlx5_table *t, uint32_t num);
void crpc_mlx5_table_add(struct crpc_mlx5_table *t, struct crpc_mlx5_qp *qp);
/** Makes the content of the table from the list, so there are no tombstones: all queue pairs that
 *  have a number, but for those that report nothing any more. */
void crpc_mlx5_table_fill(struct crpc_mlx5_dev *dev);

/* mlx5_dc.c: targets and initiators, the control path. */
/** Makes initiators until there are conf.dcis, and replaces those that were given up; false, with
 *  errno: what there is stays for the next try. */
bool crpc_mlx5_dcis_make(struct crpc_mlx5_dev *dev);
int crpc_mlx5_dci_memory_init(struct crpc_mlx5_qp *qp, const struct mlx5dv_qp *raw);
/** Makes what a target receives from; 0, or -EINVAL, -EOPNOTSUPP, -ENOMEM. */
int crpc_mlx5_srq_init(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp);
/** See crpc_rdma_qp_drain(). */
int crpc_mlx5_qp_drain(struct crpc_rdma_qp *qp);
/** Frees what was freed by the user and is over now, some at a time; true: there may be more. */
bool crpc_mlx5_ending_take(struct crpc_mlx5_dev *dev);
int crpc_mlx5_dc_connect(struct crpc_ib_qp *qp, const struct crpc_ib_addr *peer);
/** Ends the target of a DC queue pair: nothing is received any more. */
void crpc_mlx5_dct_end(struct crpc_mlx5_qp *dc);

/* mlx5_dci.c: initiators, the datapath. */
/** Chooses the initiator of the next WRs, the first of which is @p wr_id; false: none takes any. */
bool crpc_mlx5_dci_choose(struct crpc_mlx5_qp *qp, uint32_t wr_id);
/** An error of an initiator; 1 if out was written. */
uint16_t crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const union crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);
/** Nothing that is outstanding can be known, and nothing more will be taken. */
void crpc_mlx5_dci_give_up(struct crpc_mlx5_dci *dci, const char *why);
/** Whether an initiator was given up: it never sends again. */
bool crpc_mlx5_dci_is_gone(const struct crpc_mlx5_dci *dci);
/** Begins or continues the end of a queue pair; true: the device has no WQE of it any more. */
bool crpc_mlx5_dc_retire(struct crpc_mlx5_qp *qp);
/** Attends to the initiators that drain or failed; true: there are some. */
bool crpc_mlx5_dcis_turn(struct crpc_mlx5_dev *dev);
/** Stops all initiators at once: what they have outstanding is lost. */
void crpc_mlx5_dcis_stop(struct crpc_mlx5_dev *dev);

/* mlx5_ud.c */
int crpc_mlx5_ud_memory_init(struct crpc_mlx5_qp *qp, const struct mlx5dv_qp *raw);
void crpc_mlx5_ud_forget(struct crpc_mlx5_ud *ud);
struct crpc_rdma_ah *crpc_mlx5_ah_create(
	struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);

/* mlx5_dump.c: text of what the device sees; never more than len bytes with the 0, as snprintf. */
/** The send WQE whose first block is @p idx, in the ring of @p bb_count blocks at @p ring; dc: the
 *  ring of an initiator, whose writes have an address vector. */
size_t crpc_mlx5_wqe_text(
	const void *ring, uint32_t bb_count, uint32_t idx, bool dc, char *text, size_t len);
/** The newest send WQE of a queue pair; an empty text if there is none. */
void crpc_mlx5_newest_text(const struct crpc_mlx5_qp *qp, char *text, size_t len);
/** The state of the completion queue and of every queue pair, with its newest WQE. */
void crpc_mlx5_dump(const struct crpc_rdma *dev, FILE *out);
size_t crpc_mlx5_cqe_text(const union crpc_mlx5_cqe *cqe, char *text, size_t len);

/* mlx5_tel.c: the device's place among the commands of telemetry. */
int crpc_mlx5_tel_open(struct crpc_mlx5_dev *dev);
/** Writes the state of one queue pair, as telemetry has it, with its newest WQE. */
void crpc_mlx5_queue_dump(const struct crpc_mlx5_qp *qp, FILE *out);
/** The owner's part, at a poll. */
void crpc_mlx5_tel_answer(struct crpc_mlx5_dev *dev);

#endif
