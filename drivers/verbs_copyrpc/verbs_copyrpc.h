/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_VERBS_COPYRPC_H
#define CRPC_VERBS_COPYRPC_H

/**
 * @file
 * Private to the driver: lib/rdma on ibv_post_send(), ibv_post_recv() and ibv_poll_cq().
 *
 * The id of a work request finds its queue pair in the device's table, and its record or receive:
 *
 *      63     62..48       47..32    31..0
 *     recv  generation      slot     position
 *
 * Whatever completes for a queue pair that was freed has an old generation, and is skipped.
 *
 * Receives are made once, as work requests that are linked and posted again:
 *
 *     recv[rq_depth]: { wr_id, the buffer (UD) or none (RC), next }
 *     back -> recv[3] -> recv[4] -> NULL
 *
 * Those in back are to be posted: of RC at the end of the poll that took them, of UD at the next
 * one, as the user reads their buffers until then.
 *
 * States of a queue pair: IDLE --connect--> READY --error--> ERROR -> free.
 */

#include "crpc_ib.h"

/** In the id of a work request. */
#define CRPC_VERBS_RECV     (UINT64_C(1) << 63)
#define CRPC_VERBS_TAG_MASK UINT64_C(0x7fffffff00000000)

enum crpc_verbs_state {
	CRPC_VERBS_IDLE,
	CRPC_VERBS_READY,
	CRPC_VERBS_ERROR,
};

/** Record of a send. */
struct crpc_verbs_sent {
	uint32_t wr_id;
	bool user; /**< The user requested its completion. */
};

/** A queue pair, of either kind. */
struct crpc_verbs_qp {
	struct crpc_rdma_qp base;
	struct ibv_qp *ibqp;
	uint64_t tag;   /**< Generation and slot, where a work request's id has them. */
	uint8_t state;  /**< enum crpc_verbs_state. */
	uint8_t kind;   /**< enum crpc_ib_kind: RC or UD. */
	bool is_failed; /**< The cause of ERROR was reported to the user. */
	bool connected;
	int16_t fault; /**< -errno that poll has to report; 0: none. */
	uint32_t fault_wr_id;
	uint32_t depth; /**< WRs outstanding at most. */
	uint32_t sent_mask;
	uint32_t posted;      /**< WRs ever posted, running free. */
	uint32_t retired;     /**< Of these: known to be done. */
	uint32_t reported;    /**< Of these: reported to the user. */
	uint32_t unsignalled; /**< WRs since the last one that gives a completion. */
	uint32_t signal_every;
	uint32_t inline_max;
	uint32_t rq_depth;
	uint32_t recv_next; /**< The receive that completes next: they are posted in a circle. */
	uint32_t msg_max;             /**< Bytes of one WR. */
	struct crpc_verbs_sent *sent; /**< By position. */
	struct ibv_recv_wr *recv;     /**< All receives. */
	struct ibv_sge *recv_sge;     /**< UD: their buffers. */
	uint8_t *buf;                 /**< UD: the memory of these. */
	struct ibv_mr *mr;            /**< UD: of buf. */
	struct ibv_recv_wr *back;     /**< To be posted, and the last of them. */
	struct ibv_recv_wr *back_last;
	struct crpc_verbs_qp *next_back; /**< In dev->back[kind]. */
	struct crpc_verbs_qp *next_fault;
	struct crpc_verbs_qp *next; /**< Of the device. */
	uint32_t psn;
	uint64_t key;
};

/** The receiver of datagrams. */
struct crpc_verbs_ah {
	struct crpc_rdma_ah base;
	struct ibv_ah *ibah;
	uint32_t qpn;
	uint32_t qkey;
};

/** A device. */
struct crpc_verbs_dev {
	struct crpc_rdma base;
	struct crpc_ib ib;
	struct ibv_cq *cq;
	crpc_ib_progress progress; /**< NULL on a card. */
	uint32_t inline_max[CRPC_IB_UD + 1]; /**< By kind. */
	uint16_t generation;
	struct crpc_verbs_qp *qps;
	struct crpc_verbs_qp *kept; /**< Freed, but the device did not destroy them. */
	struct crpc_verbs_qp *faults;
	struct crpc_verbs_qp *back[CRPC_IB_UD + 1]; /**< With receives to post, by kind. */
	/** Completions that were taken out of the queue when a queue pair was freed, as its own had
	 *  to leave; the next polls give them first. */
	struct ibv_wc *ahead;
	uint32_t ahead_first, ahead_end;
	_Atomic uint32_t failed; /**< All queue pairs break; another thread's. */
	struct ibv_send_wr wr[CRPC_BURST_MAX]; /**< What one ibv_post_send() gets. */
	struct ibv_sge sge[CRPC_BURST_MAX][CRPC_RDMA_SGE_MAX];
	struct crpc_verbs_qp *slot[CRPC_RDMA_QPS_MAX];
};

static inline struct crpc_verbs_dev *
crpc_verbs_dev(struct crpc_rdma *dev)
{
	return crpc_container_of(dev, struct crpc_verbs_dev, base);
}

static inline struct crpc_verbs_qp *
crpc_verbs_qp(struct crpc_rdma_qp *qp)
{
	return crpc_container_of(qp, struct crpc_verbs_qp, base);
}

/** The queue pair that the id of a work request names; NULL: it was freed. */
static inline struct crpc_verbs_qp *
crpc_verbs_find(const struct crpc_verbs_dev *dev, uint64_t wr_id)
{
	struct crpc_verbs_qp *qp = dev->slot[wr_id >> 32 & (CRPC_RDMA_QPS_MAX - 1)];

	return qp != NULL && qp->tag == (wr_id & CRPC_VERBS_TAG_MASK) ? qp : NULL;
}

/* verbs_datapath.c */
uint16_t crpc_verbs_post(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n);
uint16_t crpc_verbs_ud_post(
	struct crpc_rdma_ud *ud, const struct crpc_rdma_dgram *dgram, uint16_t n);
uint16_t crpc_verbs_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
/** Hands all receives that wait for it back to the device; a queue pair where that fails breaks. */
void crpc_verbs_recv_return(struct crpc_verbs_dev *dev, uint8_t kind);
/** Links a receive to those that recv_return() hands back. */
void crpc_verbs_recv_link(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, uint32_t at);

/* verbs_qp.c */
struct crpc_rdma_qp *crpc_verbs_qp_create(
	struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);
void crpc_verbs_qp_free(struct crpc_rdma_qp *qp);
void crpc_verbs_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
int crpc_verbs_qp_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
struct crpc_rdma_ah *crpc_verbs_ah_create(
	struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
void crpc_verbs_ah_free(struct crpc_rdma_ah *ah);
/** Tries again to destroy what was kept. */
void crpc_verbs_kept_free(struct crpc_verbs_dev *dev);
/** The most inline bytes that a queue pair of this kind gets from the device. */
uint32_t crpc_verbs_inline_probe(struct crpc_verbs_dev *dev, uint8_t kind);

#endif
