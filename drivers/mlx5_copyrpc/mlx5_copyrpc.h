/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_COPYRPC_H
#define CRPC_MLX5_COPYRPC_H

/**
 * @file
 * Private to the driver: what the datapath touches, apart from what only the control path does.
 *
 *     crpc_mlx5_dev_ctl                        crpc_mlx5_qp_ctl
 *     +----------------------+                 +----------------------+
 *     | dp: crpc_mlx5_dev    | <-- base.dev -- | dp: crpc_mlx5_qp     |   datapath
 *     |   cq, qp table, bf   | -- by QPN ----> |   sq, rq             |
 *     +----------------------+                 +----------------------+
 *     | context, pd, cq, ... |                 | ibv_qp, connected    |   control
 *     +----------------------+                 +----------------------+
 *
 * A datagram queue pair holds one of these, for its send queue, and has its own receive side.
 *
 * A queue pair's life (crpc_mlx5_qp.state):
 *
 *     create -> IDLE --connect--> READY --error CQE, or a WR that cannot be built--> ERROR -> free
 *
 * One of the kind DC ends in RETIRED, from any state, while its initiator still has WRs of it. An
 * initiator:
 *
 *     READY --a retired one's WRs are among others'--> DRAINING --all are done--> READY
 *       |                                                 |
 *       +--------- error CQE, or nothing moves -----------+--> ERROR --all came back--> READY
 *
 * Everything here belongs to the one thread that uses the device. The only other party is the
 * device: it reads WQEs and doorbell records and writes CQEs.
 */

#include <stdbool.h>
#include <stdio.h>

#include <infiniband/verbs.h>

#include "crpc_atomic.h"
#include "crpc_rdma_driver.h"
#include "crpc_tel.h"
#include "mlx5_prm.h"

/** Sends between two completions that the driver asks for by itself, at most. */
#define CRPC_MLX5_SIGNAL_EVERY_MAX 64
/** Registers (of one UAR page and of all pages of a context) that are told apart. */
#define CRPC_MLX5_BF_MAX 64

/** What a software NIC offers to poll loops; looked up by name when a device is opened. */
typedef uint32_t (*crpc_mlx5_progress)(struct ibv_context *context);

/** Blocks of a DC initiator's send queue, as WRs of the largest WQE. */
#define CRPC_MLX5_DCI_DEPTH 128
/** Sends between two completions of a DC initiator, at most. */
#define CRPC_MLX5_DCI_SIGNAL_EVERY 32

/** What a queue pair is to the device; the first three have addresses, and are numbers there. */
enum crpc_mlx5_kind {
	CRPC_MLX5_RC,
	CRPC_MLX5_UD,
	CRPC_MLX5_DC,  /**< The user's: a DC target, and a place on an initiator. */
	CRPC_MLX5_DCI, /**< An initiator, the driver's own. */
};

enum crpc_mlx5_qp_state {
	CRPC_MLX5_QP_IDLE,
	CRPC_MLX5_QP_READY,
	CRPC_MLX5_QP_ERROR,
	CRPC_MLX5_QP_DC_READY, /**< READY of the kind DC, so that RC pays nothing for it. */
	CRPC_MLX5_QP_RETIRED,  /**< A DC one that takes and tells nothing any more. */
	CRPC_MLX5_QP_DRAINING, /**< An initiator that takes nothing until all of it is done. */
};

/** A doorbell (BlueFlame) register. QPs may share one, so the half in turn is kept with it. */
struct crpc_mlx5_bf {
	uint8_t *reg;
	uint32_t size;   /**< Bytes of a half; 0: a doorbell only, no BlueFlame. */
	uint32_t offset; /**< Of the half to write next: 0 or size. */
};

/** What is remembered of a send WQE, by the index of its first block. */
struct crpc_mlx5_sent {
	uint32_t wr_id;
	uint32_t seq; /**< Number of the WR on its QP, running free. */
	uint8_t user; /**< The user asked for its completion. */
};

/** Send queue. The device reads buf and dbrec; the rest is the owner thread's. */
struct crpc_mlx5_sq {
	uint8_t *buf;
	uint8_t *end;
	struct crpc_mlx5_sent *sent; /**< One per block. */
	_Atomic uint32_t *dbrec;
	struct crpc_mlx5_bf *bf;
	uint32_t bb_mask;     /**< Blocks - 1. */
	uint32_t pi;          /**< Next block, running free. */
	uint32_t qpn_shl8;    /**< QPN where qpn_ds has it. */
	uint32_t depth;       /**< WRs outstanding at most. */
	uint32_t posted;      /**< WRs ever posted, running free. */
	uint32_t retired;     /**< Of these: known to be done. */
	uint32_t reported;    /**< Of these: told to the user. */
	uint32_t unsignalled; /**< WRs since the last one that gives a completion. */
	uint32_t signal_every;
	uint32_t inline_max;
};

/** Receive queue: WQEs without a buffer, written once; a refill only moves the counter. */
struct crpc_mlx5_rq {
	_Atomic uint32_t *dbrec;
	uint32_t posted;         /**< Receives ever handed to the device, running free. */
	bool dirty;              /**< posted is ahead of dbrec; true only inside a poll. */
	struct crpc_mlx5_ud *ud; /**< Whose datagrams come here; NULL: none may. */
};

/** A queue pair's datapath. */
struct crpc_mlx5_qp {
	struct crpc_rdma_qp base;
	uint8_t state; /**< enum crpc_mlx5_qp_state. */
	uint8_t kind;  /**< enum crpc_mlx5_kind. */
	bool reported; /**< The cause of ERROR was told to the user. */
	int16_t fault; /**< -errno that poll has to report before anything else; 0: none. */
	uint32_t fault_wr_id;
	uint32_t qpn;
	struct crpc_mlx5_sq sq;
	struct crpc_mlx5_rq rq;
	struct crpc_mlx5_qp *next_fault; /**< In dev->faults. */
};

/**
 * A datagram queue pair. Its receives lie still: WQE i names buffer i, for ever, so handing
 * buffers back moves the counter only.
 */
struct crpc_mlx5_ud {
	struct crpc_rdma_ud base;
	struct crpc_mlx5_qp *qp; /**< Its send queue, and what the table finds. */
	uint8_t *buf;            /**< Buffers, stride bytes each; a payload starts at PAYLOAD. */
	uint32_t stride;
	uint32_t mask; /**< Receive WQEs - 1. */
	uint32_t mtu;                   /**< Of what it sends. */
	uint32_t held;                  /**< Buffers that the user reads until the next poll. */
	struct crpc_mlx5_ud *next_held; /**< In dev->held. */
};

/** Where the payload lies in a receive buffer: the GRH before it, and it on a line of its own. */
#define CRPC_MLX5_UD_PAYLOAD 64
/**
 * Room for a payload: the largest MTU there is. A port receives what fits its frames, which may be
 * more than its own MTU, and a datagram that is longer than its buffer breaks the queue pair.
 */
#define CRPC_MLX5_UD_LEN_MAX 4096u

/** To whom datagrams go. */
struct crpc_mlx5_ah {
	struct crpc_rdma_ah base;
	struct crpc_mlx5_av av; /**< As a WQE has it. */
	struct ibv_ah *ibah;
};

/**
 * What is remembered of a WQE of a DC initiator beside crpc_mlx5_sent, by the index of its first
 * block.
 */
struct crpc_mlx5_dc_sent {
	struct crpc_mlx5_dc *owner; /**< Whose WR; NULL: nobody's any more. */
	uint32_t bb;                /**< Blocks of the WQE. */
};

/** Completion queue. The device writes buf and reads dbrec. */
struct crpc_mlx5_cq {
	struct crpc_mlx5_cqe *buf;
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

/** A device's datapath. */
struct crpc_mlx5_dev {
	struct crpc_rdma base;
	struct crpc_mlx5_cq cq;
	struct crpc_mlx5_table table;
	struct crpc_mlx5_qp *faults; /**< QPs whose error has no CQE. */
	struct crpc_mlx5_ud *held;   /**< Those with buffers to hand back at the next poll. */
	struct crpc_mlx5_dc *ending; /**< Freed, but the device still has WRs of theirs. */
	/** Not 0: one of these three is not empty, an initiator drains or failed, or telemetry
	 *  asks. That is another thread's. */
	_Atomic uint32_t attention;
	struct crpc_tel_box *tel;
	uint32_t num_dcis;
	struct crpc_mlx5_dci *dci[CRPC_RDMA_DCIS_MAX];
	uint64_t drain_ns;
	crpc_mlx5_progress progress; /**< NULL on a real card. */
	struct ibv_context *context;
	struct crpc_rdma_stats stats;
#ifdef CRPC_DEBUG
	const void *owner; /**< Names the thread that polled or posted first. */
#endif
};

/** A device. */
struct crpc_mlx5_dev_ctl {
	struct crpc_mlx5_dev dp;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_port_attr port_attr;
	union ibv_gid gid;
	uint32_t gid_index;
	bool has_gid;
	uint8_t port;
	uint8_t rd_atomic; /**< READs that one QP may have open, either way. */
	uint32_t cq_depth; /**< Completions that QPs may share out. */
	uint32_t cq_used;
	uint32_t num_qps;
	uint32_t num_ending; /**< Of num_qps: freed by the user. */
	uint32_t num_mrs;
	uint32_t num_ahs;
	uint32_t num_bfs;
	uint32_t dcis;         /**< Initiators to make with the first DC queue pair. */
	uint32_t signal_every; /**< As configured; 0: by the queue's depth. */
	uint8_t blueflame;     /**< enum crpc_rdma_blueflame. */
	bool compressed;       /**< The device may compress completions. */
	struct crpc_mlx5_bf bf[CRPC_MLX5_BF_MAX];
	struct crpc_mlx5_qp_ctl *qps; /**< All of them; the table is made from this list. */
};

/** A queue pair. */
struct crpc_mlx5_qp_ctl {
	struct crpc_mlx5_qp dp;
	struct ibv_qp *ibqp;
	uint32_t psn;
	uint32_t cq_share; /**< Completions set aside for it. */
	bool connected;
	struct crpc_mlx5_qp_ctl *next;
};

/** A datagram queue pair with all that belongs to it. */
struct crpc_mlx5_ud_ctl {
	struct crpc_mlx5_qp_ctl qp;
	struct crpc_mlx5_ud ud;
	struct ibv_mr *mr; /**< Of the receive buffers. */
	uint32_t qkey;
};

/**
 * A DC queue pair. ibqp is its target, which receives; sends go through an initiator. Of its send
 * queue only the counts of WRs are used.
 */
struct crpc_mlx5_dc {
	struct crpc_mlx5_qp_ctl qp;
	struct crpc_mlx5_dci *dci; /**< Where it has WRs outstanding, or had the last ones. */
	struct crpc_mlx5_av av;    /**< The peer's, as a WQE has it. */
	uint32_t av_len;           /**< 48, or 16 where the compact form will do. */
	uint32_t wqebb_max;        /**< Blocks of its largest WQE. */
	uint32_t inline_max;
	uint32_t signals; /**< dci->signals when sq.unsignalled began to count. */
	uint32_t rq_depth;
	uint64_t key;
	struct ibv_srq *srq;
	struct ibv_ah *ibah;
	struct crpc_mlx5_dc *next_ending; /**< In dev->ending. */
};

/**
 * A DC initiator: the send queue that many DC queue pairs share.
 *
 *     blocks   | done | A A B A C C | free |        A, B, C: WRs of queue pairs
 *                     ci            sq.pi
 *
 * Its own counts in sq stay 0, so its completions leave the path of the others where those check
 * them.
 */
struct crpc_mlx5_dci {
	struct crpc_mlx5_qp_ctl qp;
	struct crpc_mlx5_dc_sent *sent;  /**< One per block. */
	struct crpc_mlx5_dc_sent *again; /**< Of the WRs to post again, in order, as sent[]. */
	struct crpc_mlx5_sent *again_sent;
	uint8_t *copy;        /**< Their WQEs. */
	uint32_t ci;          /**< Oldest block that is not known to be done. */
	uint32_t newest;      /**< First block of the newest WQE. */
	uint32_t flushed;     /**< In ERROR: blocks up to here came back. */
	uint32_t unsignalled; /**< WRs since the last one that gives a completion. */
	uint32_t signal_every;
	uint32_t signals; /**< WRs that give a completion, ever. */
	uint32_t resets;  /**< Times that it was taken out of an error. */
	bool stopped;     /**< DRAINING took too long: it was stopped, and gives all back. */
	uint64_t rest_ns; /**< DRAINING, ERROR: time that the device has to give all back. */
	uint64_t looked_ns; /**< When some of that was counted. */
};

/** Sizes of a queue pair to make. */
struct crpc_mlx5_sizes {
	uint32_t sq_depth;
	uint32_t rq_depth;
	uint32_t wqebb_max; /**< Blocks set aside per WR. */
	uint32_t inline_max;
};

/** A queue pair's address, decoded. */
struct crpc_mlx5_addr {
	uint8_t kind; /**< enum crpc_mlx5_kind. */
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t link_layer;
	uint8_t mtu; /**< enum ibv_mtu. */
	uint8_t rd_atomic;
	bool has_gid;
	uint8_t gid[16];
	uint64_t key; /**< UD: the Q_Key. DC: the access key. */
};

/** The first place to look for @p qpn. The multiplier is 2^32 / golden ratio: neighbours spread. */
static inline uint32_t
crpc_mlx5_table_home(const struct crpc_mlx5_table *t, uint32_t qpn)
{
	return (qpn * 0x9e3779b1u) >> t->shift;
}

/** The queue pair of @p qpn, or NULL (it was freed). */
static inline struct crpc_mlx5_qp *
crpc_mlx5_table_find(const struct crpc_mlx5_table *t, uint32_t qpn)
{
	uint32_t i = crpc_mlx5_table_home(t, qpn);

	for (;; i = (i + 1) & t->mask) {
		if (crpc_likely(t->slot[i].qpn == qpn))
			return t->slot[i].qp;
		if (t->slot[i].qpn == 0)
			return NULL;
	}
}

/** Whether an initiator was given up: it never sends again. */
static inline bool
crpc_mlx5_dci_is_gone(const struct crpc_mlx5_dci *dci)
{
	return dci->qp.dp.state == CRPC_MLX5_QP_ERROR && dci->ci == dci->qp.dp.sq.pi;
}

static inline struct crpc_mlx5_dev_ctl *
crpc_mlx5_dev_ctl(struct crpc_rdma *dev)
{
	return crpc_container_of(dev, struct crpc_mlx5_dev_ctl, dp.base);
}

static inline struct crpc_mlx5_qp_ctl *
crpc_mlx5_qp_ctl(struct crpc_rdma_qp *qp)
{
	return crpc_container_of(qp, struct crpc_mlx5_qp_ctl, dp.base);
}

/* mlx5_datapath.c */
uint16_t crpc_mlx5_post(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n);
uint16_t crpc_mlx5_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
/** The same where the device may compress completions. */
uint16_t crpc_mlx5_poll_zip(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
/**
 * Writes a compressed session that starts at cq->ci out as single entries, in place. False: it is
 * not one that a device writes.
 */
bool crpc_mlx5_cq_expand(struct crpc_mlx5_cq *cq);
uint16_t crpc_mlx5_ud_post(
	struct crpc_rdma_ud *ud, const struct crpc_rdma_dgram *dgram, uint16_t n);
/** Tells the device of n new WQEs: from block start on, the newest wqe, of bb blocks. */
void crpc_mlx5_sq_ring(struct crpc_mlx5_dev *dev, struct crpc_mlx5_sq *sq, uint16_t n,
	uint32_t start, const uint8_t *wqe, uint32_t bb);
/** Takes the unread completions of a destroyed QP out of the queue: its QPN may come back, and its
 *  room is given to others. The device may overwrite what was read before. */
void crpc_mlx5_cq_forget(struct crpc_mlx5_cq *cq, uint32_t qpn);

/* mlx5_error.c: the rare side of the datapath. */
/** The QP cannot go on and there is no CQE to say so: poll will. Says why in the log. */
void crpc_mlx5_qp_fault(struct crpc_mlx5_qp *qp, int status, uint32_t wr_id, const char *why);
/** Reports faults; how many completions were written. */
uint16_t crpc_mlx5_faults_take(struct crpc_mlx5_dev *dev, struct crpc_rdma_cqe *out, uint16_t n);
/** Decodes an error CQE; 1 if out was written, 0 if there is nothing new to tell. */
uint16_t crpc_mlx5_error_take(struct crpc_mlx5_dev *dev, struct crpc_mlx5_qp *qp,
	const struct crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);
/** Logs an error of a queue pair in words, with the WQE of @p sq that it is about. */
void crpc_mlx5_error_log(const struct crpc_mlx5_qp *qp, const struct crpc_mlx5_sq *sq, bool dc,
	const struct crpc_mlx5_cqe *cqe);
/** -errno that the user gets for a syndrome. */
int16_t crpc_mlx5_syndrome_errno(uint8_t syndrome);
/** A syndrome in words. */
const char *crpc_mlx5_syndrome_name(uint8_t syndrome);

/* mlx5_queue.c: what all kinds of queue pairs share. */
/** Blocks of the largest WQE with @p head bytes of headers and @p inline_max inline bytes or
 *  CRPC_RDMA_SGE_MAX elements. */
uint32_t crpc_mlx5_wqebb_max(size_t head, uint32_t inline_max);
/** Sizes for WQEs with @p head bytes of headers; 0, or -EINVAL or -ENOSPC and why in the log. */
int crpc_mlx5_sizes_init(const struct crpc_mlx5_dev_ctl *dev, size_t head, uint32_t sq_depth,
	uint32_t rq_depth, uint32_t inline_max, struct crpc_mlx5_sizes *sizes);
/** Sends of a queue of this depth between two completions. */
uint32_t crpc_mlx5_signal_every(const struct crpc_mlx5_dev_ctl *dev, uint32_t depth, uint32_t most);
/** Takes the send queue and the receive record of qp->ibqp over from rdma-core; *raw is filled. */
int crpc_mlx5_queues_init(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp,
	const struct crpc_mlx5_sizes *sizes, struct mlx5dv_qp *raw);
/** Hands the device its first receives: after INIT, on whose way rdma-core clears the records. */
void crpc_mlx5_rq_start(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp *qp, uint32_t num);
/** Writes the buffer-less receives of a whole queue. */
void crpc_mlx5_rq_prefill(void *buf, uint32_t wqe_cnt, uint32_t stride);
/** Puts a queue pair, with its base and ibqp set, among the device's; 0 or -ENOMEM. */
int crpc_mlx5_list_add(
	struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp, uint32_t cq_share);
/** Destroys the verbs queue pair and forgets ours; false: it could not be, its memory must stay. */
bool crpc_mlx5_list_del(struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_qp_ctl *qp);
/** Zeroed memory of the alignment that queue pairs need, or NULL. */
void *crpc_mlx5_zalloc(size_t size);
/** Fills the way to the peer; 0 or -EHOSTUNREACH. */
int crpc_mlx5_route_fill(const struct crpc_mlx5_dev_ctl *dev, const struct crpc_mlx5_addr *peer,
	struct ibv_ah_attr *ah);
/** The parts of an address that are the port's. */
void crpc_mlx5_addr_fill(const struct crpc_mlx5_dev_ctl *dev, struct crpc_mlx5_addr *a);
/** Makes an address handle for the peer, and copies its vector; full: a WQE needs all of it. NULL
 *  with errno. */
struct ibv_ah *crpc_mlx5_av_make(const struct crpc_mlx5_dev_ctl *dev,
	const struct crpc_mlx5_addr *peer, struct crpc_mlx5_av *av, bool *full);
/** Makes an empty table with room for @p num QPs; 0 or -ENOMEM. */
int crpc_mlx5_table_init(struct crpc_mlx5_table *t, uint32_t num);
void crpc_mlx5_table_add(struct crpc_mlx5_table *t, struct crpc_mlx5_qp *qp);
/** Moves the QP to the error state, so that the device flushes what is outstanding on it. */
void crpc_mlx5_qp_to_error(struct crpc_mlx5_qp *qp);

/** The state of a verbs queue pair; 0 or a positive errno. */
int crpc_mlx5_state_set(struct ibv_qp *qp, enum ibv_qp_state state);

/* mlx5_dc.c: targets and initiators, the control path. */
struct crpc_rdma_qp *crpc_mlx5_dc_create(
	struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);
void crpc_mlx5_dc_free(struct crpc_rdma_qp *qp);
/** See crpc_rdma_qp_drain(). */
int crpc_mlx5_dc_drain(struct crpc_rdma_qp *qp);
/** Frees what was freed by the user and is over now, some at a time; true: there may be more. */
bool crpc_mlx5_ending_take(struct crpc_mlx5_dev *dev);
void crpc_mlx5_dc_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
int crpc_mlx5_dc_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
/** False: the device does not let go of it, and its memory stays. */
bool crpc_mlx5_dci_free(struct crpc_mlx5_dci *dci);
/** Takes an initiator to the state in which it sends; 0 or a positive errno. */
int crpc_mlx5_dci_start(struct crpc_mlx5_dci *dci);
/** Ends the target of a DC queue pair: nothing is received any more. */
void crpc_mlx5_dct_end(struct crpc_mlx5_dc *dc);

/* mlx5_dci.c: initiators, the datapath. */
/** Posts what is not a ready RC queue pair's: those of a ready DC one, or nothing. */
uint16_t crpc_mlx5_dc_post(struct crpc_mlx5_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n);
/** A good completion of an initiator; 1 if out was written. */
uint16_t crpc_mlx5_dci_take(struct crpc_mlx5_dci *dci, uint64_t tail, struct crpc_rdma_cqe *out);
/** An error of an initiator; 1 if out was written. */
uint16_t crpc_mlx5_dci_error(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dci *dci,
	const struct crpc_mlx5_cqe *cqe, struct crpc_rdma_cqe *out);
/** Begins or goes on with the end of a queue pair; true: the device has no WR of it any more. */
bool crpc_mlx5_dc_retire(struct crpc_mlx5_dev *dev, struct crpc_mlx5_dc *dc);
/** Whether all that the queue pair posted is over. */
bool crpc_mlx5_dc_idle(const struct crpc_mlx5_dc *dc);
/** Looks after the initiators that drain or failed; true: there are some. */
bool crpc_mlx5_dcis_turn(struct crpc_mlx5_dev *dev);
/** Stops all initiators at once: what they have outstanding is lost. */
void crpc_mlx5_dcis_stop(struct crpc_mlx5_dev *dev);

/* mlx5_qp.c */
struct crpc_rdma_qp *crpc_mlx5_qp_create(
	struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);
void crpc_mlx5_qp_free(struct crpc_rdma_qp *qp);
int crpc_mlx5_qp_drain(struct crpc_rdma_qp *qp);
void crpc_mlx5_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
int crpc_mlx5_qp_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);

/* mlx5_ud.c */
struct crpc_rdma_ud *crpc_mlx5_ud_create(
	struct crpc_rdma *dev, const struct crpc_rdma_ud_conf *conf);
void crpc_mlx5_ud_free(struct crpc_rdma_ud *ud);
void crpc_mlx5_ud_addr(const struct crpc_rdma_ud *ud, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
struct crpc_rdma_ah *crpc_mlx5_ah_create(
	struct crpc_rdma_ud *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
void crpc_mlx5_ah_free(struct crpc_rdma_ah *ah);
/** Writes the receives of a whole queue, each with the buffer of its number. */
void crpc_mlx5_ud_prefill(void *buf, uint32_t stride, const struct crpc_mlx5_ud *ud, uint32_t lkey);

/* mlx5_ledger.c */
int crpc_mlx5_card_get(const struct crpc_rdma *dev, struct crpc_rdma_card *card);

/* mlx5_addr.c */
void crpc_mlx5_addr_encode(const struct crpc_mlx5_addr *a, uint8_t out[CRPC_RDMA_ADDR_LEN]);
/** 0, or -EPROTO (no address of that kind) with the reason in the log. */
int crpc_mlx5_addr_decode(
	const uint8_t in[CRPC_RDMA_ADDR_LEN], uint8_t kind, struct crpc_mlx5_addr *a);

/* mlx5_dump.c: text of what the device sees; never more than len bytes with the 0, as snprintf. */
/** The send WQE whose first block is @p idx, in the ring of @p bb_count blocks at @p ring; dc: the
 *  ring of an initiator, whose writes have an address vector. */
size_t crpc_mlx5_wqe_text(
	const void *ring, uint32_t bb_count, uint32_t idx, bool dc, char *text, size_t len);
/** What a queue pair is, and its state, as words. */
const char *crpc_mlx5_kind_name(const struct crpc_mlx5_qp *qp);
const char *crpc_mlx5_state_name(const struct crpc_mlx5_qp *qp);
/** The newest send WQE of a queue pair; an empty text if there is none. */
size_t crpc_mlx5_newest_text(const struct crpc_mlx5_qp *qp, char *text, size_t len);
/** The state of the completion queue and of every queue pair, with its newest WQE. */
void crpc_mlx5_dump(const struct crpc_rdma *dev, FILE *out);
size_t crpc_mlx5_cqe_text(const struct crpc_mlx5_cqe *cqe, char *text, size_t len);

/* mlx5_tel.c: the device's place among the commands of telemetry. */
int crpc_mlx5_tel_open(struct crpc_mlx5_dev_ctl *dev);
void crpc_mlx5_tel_close(struct crpc_mlx5_dev_ctl *dev);
/** The owner's part, at a poll. */
void crpc_mlx5_tel_answer(struct crpc_mlx5_dev *dev);

#endif
