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
 * States of a queue pair (enum crpc_ib_state): IDLE --connect--> READY --error--> ERROR -> free.
 */

#include "crpc_ib.h"

/** In the id of a work request. */
#define CRPC_VERBS_RECV     (UINT64_C(1) << 63)
#define CRPC_VERBS_TAG_MASK UINT64_C(0x7fffffff00000000)

/** Record of a send. */
struct crpc_verbs_sent {
	uint32_t wr_id;
	bool user; /**< The user requested its completion. */
};

/** A queue pair, of either kind. */
struct crpc_verbs_qp {
	struct crpc_ib_qp ib;
	uint64_t tag; /**< Generation and slot, where a work request's id has them. */
	uint32_t sent_mask;
	uint32_t recv_next; /**< The receive that completes next: they are posted in a circle. */
	uint32_t msg_max;   /**< Bytes of one WR. */
	struct crpc_verbs_sent *sent; /**< By position. */
	struct ibv_recv_wr *recv;     /**< All receives. */
	struct ibv_sge *recv_sge;     /**< UD: their buffers. */
	uint8_t *buf;                 /**< UD: the memory of these. */
	struct ibv_mr *mr;            /**< UD: of buf. */
	struct ibv_recv_wr *back;     /**< To be posted, and the last of them. */
	struct ibv_recv_wr *back_last;
	struct crpc_verbs_qp *next_back; /**< In dev->back[kind]. */
};

/** The receiver of datagrams. */
struct crpc_verbs_ah {
	struct crpc_ib_ah ib;
	uint32_t qpn;
	uint32_t qkey;
};

/** A device. */
struct crpc_verbs_dev {
	struct crpc_ib ib;
	uint32_t inline_max[CRPC_IB_UD + 1]; /**< By kind. */
	uint16_t generation;
	struct crpc_verbs_qp *back[CRPC_IB_UD + 1]; /**< With receives to post, by kind. */
	/** Completions that were taken out of the queue when a queue pair was freed, as its own had
	 *  to leave; the next polls give them first. */
	struct ibv_wc *ahead;
	uint32_t ahead_first, ahead_end;
	struct ibv_send_wr wr[CRPC_BURST_MAX]; /**< What one ibv_post_send() gets. */
	struct ibv_sge sge[CRPC_BURST_MAX][CRPC_RDMA_SGE_MAX];
	struct crpc_verbs_qp *slot[CRPC_RDMA_QPS_MAX];
};

static inline struct crpc_verbs_dev *
crpc_verbs_dev(struct crpc_rdma *dev)
{
	return crpc_container_of(dev, struct crpc_verbs_dev, ib.base);
}

static inline struct crpc_verbs_qp *
crpc_verbs_qp(struct crpc_rdma_qp *qp)
{
	return crpc_container_of(qp, struct crpc_verbs_qp, ib.base);
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
uint16_t crpc_verbs_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
/** Hands all receives that wait for it back to the device; a queue pair where that fails breaks. */
void crpc_verbs_recv_return(struct crpc_verbs_dev *dev, uint8_t kind);
/** Links a receive to those that recv_return() hands back. */
void crpc_verbs_recv_link(struct crpc_verbs_dev *dev, struct crpc_verbs_qp *qp, uint32_t at);

/* verbs_qp.c */
struct crpc_rdma_qp *crpc_verbs_qp_create(
	struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);
void crpc_verbs_qp_free(struct crpc_rdma_qp *qp);
struct crpc_rdma_ah *crpc_verbs_ah_create(
	struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
/** Frees what there is of it. False: the device may still use it, so it is kept. */
bool crpc_verbs_objects_free(struct crpc_ib_qp *qp);
/** The most inline bytes that a queue pair of this kind gets from the device. */
uint32_t crpc_verbs_inline_probe(struct crpc_verbs_dev *dev, uint8_t kind);

#endif
