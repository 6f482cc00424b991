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

/** An open device as far as verbs knows it. */
struct crpc_ib {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct ibv_gid_entry gid; /**< Its index counts without a GID, too. */
	bool has_gid;
	uint8_t mtu; /**< enum ibv_mtu: what this port sends at most. */
	uint8_t port;
	uint16_t pkey_index;
	struct crpc_rdma_conf conf; /**< As the device was opened, without its name. */
	uint8_t rd_atomic; /**< READs that one QP may have open, either way. */
	uint32_t cq_depth; /**< Completions that QPs may share out. */
	uint32_t cq_used;
	uint32_t num_qps;
	uint32_t num_mrs;
	uint32_t num_ahs;
	_Atomic uint32_t stale;      /**< The port is another one: crpc_ib_refresh(). */
	_Atomic uint32_t *failed;    /**< The owner's: set when nothing completes any more, ... */
	_Atomic uint32_t *attention; /**< ... and then this. */
	pthread_t watcher;           /**< Reads the device's events. */
	int wake;                    /**< An eventfd: the watcher ends. */
	pid_t watcher_pid;           /**< Whose it is; 0: there is none. */
};

/** A queue pair's address, as ib_addr.c has it on the wire, in the CPU's byte order. */
struct crpc_ib_addr {
	uint32_t magic;
	uint8_t version;
	uint8_t link_layer;
	uint8_t mtu; /**< enum ibv_mtu. */
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

/* ib_device.c */
/**
 * Opens the named device, or else the first one that @p takes and whose port is active, or else the
 * first that it takes; and its protection domain.
 *
 * @return
 *   0, or what crpc_rdma_ops.open() leaves in errno, negative: -ENOTSUP where there is the device
 *   but it is not taken.
 */
int crpc_ib_open(struct crpc_ib *ib, const struct crpc_rdma_conf *conf,
	bool (*takes)(struct ibv_device *device));
/** Undoes it, as far as it was done. */
void crpc_ib_close(struct crpc_ib *ib);
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
/** See crpc_rdma_mr_reg_flags(). */
int crpc_ib_mr_reg(
	struct crpc_ib *ib, void *addr, uint64_t len, uint32_t flags, struct crpc_rdma_mr *mr);
void crpc_ib_mr_dereg(struct crpc_ib *ib, struct crpc_rdma_mr *mr);
/** Makes @p num receive buffers of CRPC_IB_UD_STRIDE bytes, registered; NULL: no memory. */
void *crpc_ib_buffers_make(const struct crpc_ib *ib, uint32_t num, struct ibv_mr **mr);

/* ib_events.c */
/**
 * Has the device's events read by a thread, until the device is closed. Both words are the owner's:
 * the thread sets @p failed, and then @p attention, when the device or its completion queue failed.
 *
 * @return
 *   0, -EIO or -ENOMEM.
 */
int crpc_ib_events_open(
	struct crpc_ib *ib, _Atomic uint32_t *failed, _Atomic uint32_t *attention);
/** No event of it is read any more, and neither word is written. */
void crpc_ib_events_close(struct crpc_ib *ib);

/* ib_qp.c */
/** What a configuration asks for. */
uint8_t crpc_ib_kind_of(const struct crpc_rdma_qp_conf *conf);
/** What texts call a queue pair of this kind. */
const char *crpc_ib_kind_name(uint8_t kind);
/** Whether there is room for a queue pair of these sizes, which sets @p share completions aside: 0,
 *  -EINVAL (inline_max is above @p inline_max) or -ENOSPC. */
int crpc_ib_room_check(const struct crpc_ib *ib, const struct crpc_rdma_qp_conf *conf,
	uint32_t share, size_t inline_max);
/** Sends of a queue of this depth between two completions. */
uint32_t crpc_ib_signal_every(uint32_t depth);
/** Logs that a verbs object could not be made, and why: errno. -EINVAL, -EOPNOTSUPP or -ENOMEM. */
int crpc_ib_errno(const char *what);
/** The first sequence number of a reliable connection, and the key that senders to a datagram or DC
 *  queue pair need; 0 or -EIO. */
int crpc_ib_keys_make(uint8_t kind, uint32_t *psn, uint64_t *key);
/** The address of a queue pair of this port. */
struct crpc_ib_addr crpc_ib_addr_of(
	const struct crpc_ib *ib, uint8_t kind, uint32_t qpn, uint32_t psn, uint64_t key);
/** What the states of a queue pair set, where the peer does not matter. */
struct ibv_qp_attr crpc_ib_attr(const struct crpc_ib *ib, uint32_t psn, uint64_t key);
/** Moves a queue pair from state attr->qp_state to @p last, through those between; 0 or -EIO. */
int crpc_ib_move(uint8_t kind, struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state last);
/** Sets one state that needs nothing else; 0 or a positive errno. */
int crpc_ib_state_set(struct ibv_qp *qp, enum ibv_qp_state state);
/** Fills what INIT to RTS need of a reliable connection's peer; 0 or -EHOSTUNREACH. */
int crpc_ib_rc_fill(
	const struct crpc_ib *ib, const struct crpc_ib_addr *peer, struct ibv_qp_attr *attr);
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
typedef uint32_t (*crpc_ib_progress)(struct ibv_context *context);
/** What drives it from our poll loop; NULL on a card. */
crpc_ib_progress crpc_ib_progress_find(void);
/** See crpc_rdma_ops.card_get(). */
int crpc_ib_card_get(const struct crpc_ib *ib, struct crpc_rdma_card *card);

#endif
