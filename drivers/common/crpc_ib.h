/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_IB_H
#define CRPC_IB_H

/**
 * @file
 * What the drivers on rdma-core share, for them alone: the device as verbs knows it, found by name,
 * with its port, GID and protection domain; regions; addresses on the wire; routes to a peer; and
 * how a queue pair moves through its states. Functions log the cause of an error.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "crpc_atomic.h"
#include "crpc_rdma_driver.h"

/** What a datagram has in front of its payload where it arrives: a GRH, or room for one. */
#define CRPC_IB_GRH 40
/** Where the payload lies in a receive buffer: the GRH before it, and it on a line of its own. */
#define CRPC_IB_UD_PAYLOAD 64
/**
 * Room for a payload: the largest MTU there is. A port receives what fits its frames, which may be
 * more than its own MTU, and a datagram that is longer than its buffer breaks the queue pair.
 */
#define CRPC_IB_UD_LEN_MAX 4096u
#define CRPC_IB_UD_STRIDE  (CRPC_IB_UD_PAYLOAD + CRPC_IB_UD_LEN_MAX)
#define CRPC_IB_QPN_MASK   0xffffffu

/** What a queue pair is to the device; the first three have addresses, and are numbers there. */
enum crpc_ib_kind {
	CRPC_IB_RC,
	CRPC_IB_UD,
	CRPC_IB_DC,  /**< The user's: a DC target, which receives; sends go to an initiator. */
	CRPC_IB_DCI, /**< An initiator, a driver's own. */
};

/** Of a queue pair. The last two are of the mlx5 driver alone. */
enum crpc_ib_state {
	CRPC_IB_IDLE,
	CRPC_IB_READY,
	CRPC_IB_ERROR,
	CRPC_IB_RETIRED,  /**< A DC one that takes and reports nothing any more. */
	CRPC_IB_DRAINING, /**< An initiator that takes nothing until all of it is done. */
};

/** What a queue pair of either driver begins with. */
struct crpc_ib_qp {
	struct crpc_rdma_qp base;
	uint8_t state;  /**< enum crpc_ib_state. */
	uint8_t kind;   /**< enum crpc_ib_kind. */
	bool is_failed; /**< The cause of ERROR was reported to the user. */
	bool connected;
	int16_t fault; /**< -errno that poll has to report before anything else; 0: none. */
	uint32_t fault_wr_id;
	uint32_t qpn;
	uint32_t depth;       /**< WRs outstanding at most. */
	uint32_t posted;      /**< WRs ever posted, running free. */
	uint32_t retired;     /**< Of these: known to be done. */
	uint32_t reported;    /**< Of these: reported to the user. */
	uint32_t unsignalled; /**< WRs since the last completion that covers all of its own. */
	uint32_t signal_every;
	uint32_t inline_max;
	uint32_t rq_depth;
	uint32_t cq_share; /**< Completions set aside for it. */
	uint32_t psn;
	uint64_t key;            /**< That a sender needs: Q_Key of datagrams, DC access key. */
	struct ibv_qp *ibqp;     /**< DC: the target; NULL once it has ended. */
	struct crpc_ib_qp *next; /**< Of the device, or of those that are kept. */
	struct crpc_ib_qp *next_fault; /**< In ib->faults. */
};

/** What an address of datagrams begins with. */
struct crpc_ib_ah {
	struct crpc_rdma_ah base;
	struct ibv_ah *ibah;
};

struct crpc_ib_addr;

/** What drives a NIC in software from our poll loop. */
typedef uint32_t (*crpc_ib_progress)(struct ibv_context *context);

/** An open device as far as verbs knows it: what the device of either driver begins with. */
struct crpc_ib {
	struct crpc_rdma base;
	/** Not 0: a poll has to look at faults, failed, and what else its driver has. */
	_Atomic uint32_t attention;
	_Atomic uint32_t failed;   /**< Nothing completes any more; set by another thread. */
	struct crpc_ib_qp *faults; /**< Queue pairs whose error has no completion. */
	struct crpc_ib_qp *qps;    /**< All of them. */
	struct crpc_ib_qp *kept;   /**< Freed, but the device did not destroy them. */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;         /**< The driver's. */
	crpc_ib_progress progress; /**< NULL on a card. */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct ibv_gid_entry gid; /**< Its index counts without a GID, too. */
	bool has_gid;
	uint8_t mtu; /**< enum ibv_mtu: what this port sends at most. */
	uint8_t port;
	uint16_t pkey_index;
	struct crpc_rdma_conf conf; /**< As the device was opened, without its name. */
	uint8_t rd_atomic;          /**< READs that one QP may have open, either way. */
	uint32_t cq_depth;          /**< Completions that QPs may share out. */
	uint32_t cq_used;
	uint32_t num_qps;
	uint32_t num_mrs;
	uint32_t num_ahs;
	_Atomic uint32_t stale; /**< The port is another one: crpc_ib_refresh(). */
	pthread_t watcher;      /**< Reads the device's events. */
	int wake;               /**< An eventfd: the watcher ends. */
	pid_t watcher_pid;      /**< Whose it is; 0: there is none. */
	/** Connects a DC queue pair: the driver's, if it has some. */
	int (*dc_connect)(struct crpc_ib_qp *qp, const struct crpc_ib_addr *peer);
};

/** A queue pair's address, as ib_addr.c has it on the wire, in the CPU's byte order. */
struct crpc_ib_addr {
	uint32_t magic;
	uint8_t version;
	uint8_t link_layer;
	uint8_t mtu;      /**< enum ibv_mtu. */
	uint8_t gid_kind; /**< 0: it has none; 1 + enum ibv_gid_type. */
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t rd_atomic;
	uint8_t kind; /**< enum crpc_ib_kind. */
	uint32_t rsvd20;
	uint8_t gid[16];
	uint64_t key; /**< UD: the Q_Key. DC: the access key. */
	uint8_t rsvd48[16];
};

static inline struct crpc_ib *
crpc_ib_of(const struct crpc_rdma *dev)
{
	return crpc_container_of((struct crpc_rdma *)(uintptr_t)dev, struct crpc_ib, base);
}

static inline struct crpc_ib_qp *
crpc_ib_qp_of(const struct crpc_rdma_qp *qp)
{
	return crpc_container_of((struct crpc_rdma_qp *)(uintptr_t)qp, struct crpc_ib_qp, base);
}

/** WRs that are not known to be done. */
static inline uint32_t
crpc_ib_outstanding(const struct crpc_ib_qp *qp)
{
	return qp->posted - qp->retired;
}

/** WRs that were retired since the last report; now they are reported. */
static inline uint32_t
crpc_ib_report_take(struct crpc_ib_qp *qp)
{
	uint32_t wrs = qp->retired - qp->reported;

	qp->reported = qp->retired;
	return wrs;
}

/* ib_device.c; those that take a struct crpc_rdma are operations of both drivers. */
/**
 * Opens the named device, or else the first one that @p takes and whose port is active, or else the
 * first that it takes; with its protection domain, and a thread that reads its events.
 *
 * @param size
 *   Of the driver's device, which begins with a struct crpc_ib.
 * @param base
 *   Its operations. close() is called for what was made if an error follows.
 * @param init
 *   Makes what the driver has besides, the completion queue first of all.
 * @return
 *   As crpc_rdma_ops.open(): ENOTSUP where there is the device but it is not taken.
 */
struct crpc_rdma *crpc_ib_open(size_t size, const struct crpc_rdma *base,
	const struct crpc_rdma_conf *conf, bool (*takes)(struct ibv_device *device),
	int (*init)(struct crpc_ib *ib));
/** Undoes it and frees the device, and with @p end the queue pairs that are kept. */
void crpc_ib_close(struct crpc_ib *ib, bool (*end)(struct crpc_ib_qp *qp));
/** Warns of what the user has not freed; @p qps of the queue pairs are the driver's own. */
void crpc_ib_left_check(const struct crpc_ib *ib, uint32_t qps);
/**
 * Reads the port again if an event said that it is another one, and it is active: LID, GID, MTU,
 * P_Key. Queue pairs and addresses that are made from then on have what is new; those that exist
 * break, or go on, as the fabric has it.
 */
void crpc_ib_refresh(struct crpc_ib *ib);
/** See crpc_rdma_ops.list(). */
void crpc_ib_list(char *buf, size_t len);
/** Fills all but the limits of a work request. */
void crpc_ib_info_get(const struct crpc_ib *ib, struct crpc_rdma_info *info);
int crpc_ib_mr_reg(
	struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags, struct crpc_rdma_mr *mr);
void crpc_ib_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr);
/** Makes @p num receive buffers of CRPC_IB_UD_STRIDE bytes, registered; NULL: no memory. */
void *crpc_ib_buffers_make(const struct crpc_ib *ib, uint32_t num, struct ibv_mr **mr);

/* ib_events.c */
/**
 * Has the device's events read by a thread, until the device is closed: it sets ib->failed, and
 * then ib->attention, when the device or its completion queue failed.
 *
 * @return
 *   0 or -ENOMEM.
 */
int crpc_ib_events_open(struct crpc_ib *ib);
/** No event of it is read any more, and neither word is written. */
void crpc_ib_events_close(struct crpc_ib *ib);

/* ib_qp.c */
/** What a configuration asks for. */
uint8_t crpc_ib_kind_of(const struct crpc_rdma_qp_conf *conf);
/** What texts call a queue pair of this kind. */
const char *crpc_ib_kind_name(uint8_t kind);
/**
 * Begins a queue pair: its sizes, if there is room for them, the first sequence number of a
 * reliable connection, and the key that senders to a datagram or DC queue pair need. 0, -EINVAL
 * (conf's inline_max is above @p inline_max), -ENOSPC or -EIO.
 */
int crpc_ib_qp_init(struct crpc_ib *ib, struct crpc_ib_qp *qp, uint8_t kind,
	const struct crpc_rdma_qp_conf *conf, size_t inline_max);
/** It is one of the device's from now on, or was. Those that were are not reported, either. */
void crpc_ib_qp_add(struct crpc_ib *ib, struct crpc_ib_qp *qp);
void crpc_ib_qp_remove(struct crpc_ib *ib, struct crpc_ib_qp *qp);
/** Destroys qp->ibqp, if there is one; false: the device did not, and the queue pair is kept. */
bool crpc_ib_qp_destroy(struct crpc_ib_qp *qp);
/** The queue pair cannot go on and no completion reports it: poll will. Logs the cause. */
void crpc_ib_fault(struct crpc_ib_qp *qp, int status, uint32_t wr_id, const char *why);
/** The device failed: all queue pairs of the user do. */
void crpc_ib_all_fault(struct crpc_ib *ib);
/**
 * Reports faults, also of a device that failed, and moves queue pairs to the error state by
 * @p to_error; how many. More are left: attention is set.
 */
uint16_t crpc_ib_faults_take(struct crpc_ib *ib, struct crpc_rdma_cqe *out, uint16_t n,
	void (*to_error)(struct crpc_ib_qp *qp));
/** Moves it to the error state, so that the device flushes what is outstanding on it. */
void crpc_ib_to_error(struct crpc_ib_qp *qp);
/** Operations of both drivers. */
void crpc_ib_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
int crpc_ib_qp_in_order(struct crpc_rdma_qp *qp);
void crpc_ib_ah_free(struct crpc_rdma_ah *ah);
/** See crpc_rdma_qp_connect(). */
int crpc_ib_qp_connect(struct crpc_rdma_qp *qp, const uint8_t bytes[CRPC_RDMA_ADDR_LEN]);
/** An address of @p size bytes, which begins with a struct crpc_ib_ah; NULL with errno. */
void *crpc_ib_ah_new(const struct crpc_rdma_qp *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN],
	size_t size, struct crpc_ib_addr *peer);
/** Logs that a verbs object could not be made, and why: errno. -EINVAL, -EOPNOTSUPP or -ENOMEM. */
int crpc_ib_errno(const char *what);
/** What the states of a queue pair set, where the peer does not matter. */
struct ibv_qp_attr crpc_ib_attr(const struct crpc_ib *ib, uint32_t psn, uint64_t key);
/** Moves a queue pair from state attr->qp_state to @p last, through those between; 0 or -EIO. */
int crpc_ib_move(uint8_t kind, struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state last);
/** Sets one state that needs nothing else; 0 or a positive errno. */
int crpc_ib_state_set(struct ibv_qp *qp, enum ibv_qp_state state);
/** Fills the route to the peer; 0 or -EHOSTUNREACH. */
int crpc_ib_route_fill(
	const struct crpc_ib *ib, const struct crpc_ib_addr *peer, struct ibv_ah_attr *ah);
/** Makes an address handle for the peer; NULL with errno EHOSTUNREACH or ENOMEM. */
struct ibv_ah *crpc_ib_ah_make(const struct crpc_ib *ib, const struct crpc_ib_addr *peer);

/* ib_addr.c */
void crpc_ib_addr_encode(const struct crpc_ib_addr *a, uint8_t out[CRPC_RDMA_ADDR_LEN]);
/** 0, or -EPROTO (no address of that kind) with the reason in the log. */
int crpc_ib_addr_decode(
	const uint8_t in[CRPC_RDMA_ADDR_LEN], uint8_t kind, struct crpc_ib_addr *out);

/* ib_card.c: what a software NIC offers, each looked up by name. */
/** NULL on a card. */
crpc_ib_progress crpc_ib_progress_find(void);
int crpc_ib_card_get(const struct crpc_rdma *dev, struct crpc_rdma_card *card);

#endif
