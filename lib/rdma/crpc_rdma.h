/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_RDMA_H
#define CRPC_RDMA_H

/**
 * @file
 * What copyrpc needs of a NIC: open it by name, register memory, connect queue pairs, post
 * bursts of RDMA WRITE WITH IMMEDIATE, poll completions. Nothing of a vendor shows here; a driver
 * registers itself (crpc_rdma_driver.h) and fills the operations.
 *
 *     dev = crpc_rdma_open(&conf)                     one per lcore: PD, CQ, its own doorbell page
 *     crpc_rdma_mr_reg(dev, ring, len, &mr)           memory that peers write to
 *     qp = crpc_rdma_qp_create(dev, &qp_conf)
 *     crpc_rdma_qp_addr(qp, addr)      ---- exchanged by the application ---->  peer
 *     crpc_rdma_qp_connect(qp, peer_addr)
 *     loop:
 *             crpc_rdma_post(qp, wr, n)               n WQEs, one doorbell
 *             crpc_rdma_poll(dev, cqe, CRPC_BURST_MAX)
 *
 * Threads: a device and all that came from it belong to one thread. Devices share nothing with each
 * other, so every lcore opens its own.
 *
 * Receives: every connected QP owns a receive queue whose entries carry no buffer (a WRITE WITH
 * IMMEDIATE needs none); the driver fills it at creation and refills it as completions are polled,
 * so a receive can not be lost silently: when the driver cannot keep it filled it reports a
 * CRPC_RDMA_CQE_ERROR.
 *
 * Send accounting: crpc_rdma_post() refuses (short count) what does not fit the send queue. Slots
 * come back by completions: each successful completion of a signalled WR also retires all
 * unsignalled WRs posted before it on that QP. The driver signals by itself often enough that a
 * queue of unsignalled WRs cannot fill up for good.
 *
 * Connections: a queue pair is reliable connected (RC) or dynamically connected (DC). Both are used
 * in the same way. A DC one is a target of its own for what arrives, and sends through one of the
 * device's few initiators (conf.dcis), which all its DC queue pairs share; it keeps to one of them
 * while it has something outstanding, so its own order holds. If the device fails all initiators a
 * DC queue pair gets a CRPC_RDMA_CQE_ERROR of status -EIO, at the latest after its next post;
 * making a DC queue pair replaces them.
 *
 * Datagrams (UD) have queue pairs without a connection, for protocols that bring their own
 * reliability:
 *
 *     ud = crpc_rdma_qp_create(dev, &ud_conf)         receives posted, buffers of the driver's
 *     crpc_rdma_qp_addr(ud, addr)      ---- exchanged by the application ---->  peers
 *     ah = crpc_rdma_ah_create(ud, peer_addr)         one per peer
 *     loop:
 *             crpc_rdma_post(ud, wr, n)               n WQEs, one doorbell
 *             crpc_rdma_poll(dev, cqe, n)             CRPC_RDMA_CQE_DGRAM: one arrived
 *
 * Errors: functions return 0 or -errno and log the cause once through crpc_log.h. Out-parameters
 * are set only on success. What a device completes that it cannot have done breaks the queue pair
 * that it names, with -EIO.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "crpc_owner.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

struct crpc_rdma;    /**< An open device with its PD and CQ. */
struct crpc_rdma_qp; /**< A queue pair, connected to one of a peer. */
struct crpc_rdma_ah; /**< Where datagrams can go. */

/** How to open a device. Zero fields take the default. */
struct crpc_rdma_conf {
	/**
	 * RDMA device name ("mlx5_0"); NULL or "": the first that a driver takes. What follows a
	 * comma sets fields below, which users thus can without an option of the program for each:
	 * "mlx5_0,gid=3,sl=3". Keys: port, gid (its index), mtu, sl, class, flow, pkey.
	 */
	const char *device;
	uint32_t port; /**< Port, from 1; default 1. */
	/** CRPC_RDMA_GID(index) of the GID for RoCE or a global route. 0: choose: RoCE v2 before
	 *  v1, and of these a routable one before a link-local one. Both need the same kind. */
	uint32_t gid;
	/** Bytes of the largest packet, 256 to 4096; default: the port's. DC needs the same one at
	 *  both ends, and datagrams none that is larger than the receiver's. */
	uint32_t mtu;
	uint32_t sl;            /**< Service level, or priority of RoCE; up to 15, default 0. */
	uint32_t traffic_class; /**< Of the GRH, or DSCP << 2 of RoCE v2; default 0. */
	/** Of the GRH, 20 bits; RoCE v2 makes its UDP source port of it. Default 0: RoCE spreads
	 *  connections over the paths of a fabric by itself. */
	uint32_t flow_label;
	/** P_Key. Default 0: the first of a full member in the port's table, else the first. */
	uint32_t pkey;
	/** Completions that fit; default 4096. Bounds the QPs, see qp_create. */
	uint32_t cq_depth;
	/** DC initiators that the device's DC queue pairs share; default 4, at most
	 *  CRPC_RDMA_DCIS_MAX. Made with the first such queue pair. */
	uint32_t dcis;
	/** How long the end of a DC queue pair waits for a target that answers but takes nothing,
	 *  in ns; default 4 s, which is longer than all retries towards a dead one. Then the queue
	 *  pair that keeps the initiator busy breaks. */
	uint64_t drain_ns;
};

/** crpc_rdma_conf.gid: this index of the port's GID table. */
#define CRPC_RDMA_GID(index) ((uint32_t)(index) + 1)
#define CRPC_RDMA_GID_MAX    254 /**< The largest index. */

/** What an open device is. */
struct crpc_rdma_info {
	char name[64];          /**< RDMA device name. */
	char driver[32];        /**< Driver that took it. */
	uint32_t inline_max;    /**< Largest inline payload of one WR, bytes. */
	uint32_t inline_max_dc; /**< The same of a DC queue pair; 0: there is no DC. */
	uint32_t inline_max_ud; /**< The same of a datagram. */
	uint32_t sge_max;       /**< Gather elements of one WR. */
	uint8_t port;
	uint8_t link_layer; /**< 1 InfiniBand, 2 Ethernet, as in verbs. */
	uint16_t lid;
	uint32_t mtu; /**< Active path MTU, bytes. */
};

/** A registered region. Filled by crpc_rdma_mr_reg(). */
struct crpc_rdma_mr {
	void *addr;
	uint64_t len;
	uint32_t lkey;
	uint32_t rkey;
	void *priv; /**< The driver's. */
};

/** How a queue pair moves its data; the same at all ends. */
enum crpc_rdma_transport {
	CRPC_RDMA_RC, /**< A connection of the device per queue pair. The default. */
	CRPC_RDMA_DC, /**< Connections made by the device as they are needed. */
	CRPC_RDMA_UD, /**< Datagrams, without a connection. */
};

/** How to make a queue pair. Zero fields take the default. */
struct crpc_rdma_qp_conf {
	/** Comes back in every completion of this QP; the user's own number. */
	uint32_t id;
	uint32_t sq_depth; /**< WRs outstanding at most; default 64, of datagrams 256. */
	/** Receives kept posted; default 128. Of datagrams 512, each with a buffer of the largest
	 *  MTU there is (4096 bytes). */
	uint32_t rq_depth;
	uint32_t inline_max; /**< Inline bytes wanted per WR; default 0. */
	uint8_t transport;   /**< enum crpc_rdma_transport. */
};

/** WR flags. */
#define CRPC_RDMA_WR_SIGNAL 0x1u /**< Give a completion for it. */
#define CRPC_RDMA_WR_INLINE 0x2u /**< Copy the payload into the WQE; len within inline_max. */

/** What a WR does. */
enum crpc_rdma_op {
	CRPC_RDMA_WRITE,     /**< Write sge[] to raddr. */
	CRPC_RDMA_WRITE_IMM, /**< The same, and complete one receive at the peer with imm. */
	CRPC_RDMA_READ,      /**< Read raddr into sge[]. */
	/** Send sge[], at most info.mtu bytes, and imm as a datagram to ah: all that a datagram
	 *  queue pair does, and no other. */
	CRPC_RDMA_SEND_IMM,
};

/** One piece of local memory. */
struct crpc_rdma_sge {
	const void *addr;
	uint32_t len; /**< Bytes; all of a WR together at most 2^30. */
	uint32_t lkey;
};

/** One work request. */
struct crpc_rdma_wr {
	uint8_t op;       /**< enum crpc_rdma_op. */
	uint8_t flags;    /**< CRPC_RDMA_WR_*. */
	uint16_t num_sge; /**< 0 (no payload) to CRPC_RDMA_SGE_MAX; inline sends use them too. */
	uint32_t imm;     /**< In the CPU's byte order; arrives as it was. */
	union {
		uint64_t raddr;
		const struct crpc_rdma_ah *ah; /**< SEND_IMM: the peer. */
	};
	uint32_t rkey;
	uint32_t wr_id; /**< Comes back in the completion if it is signalled or fails. */
	struct crpc_rdma_sge sge[CRPC_RDMA_SGE_MAX];
};

/** What a completion reports. */
enum crpc_rdma_cqe_type {
	CRPC_RDMA_CQE_SEND, /**< A signalled WR, and all before it on the QP, are done. */
	CRPC_RDMA_CQE_RECV, /**< A WRITE WITH IMMEDIATE of the peer has arrived, data first. */
	/**
	 * The QP is in error: post takes nothing more, and nothing more arrives, but for messages
	 * that had arrived already: their completions may follow. At least one comes per broken QP,
	 * first the cause. Each WR that was still outstanding follows with -ECANCELED; but of a DC
	 * queue pair that no WR of its own broke they may also succeed, or not be reported:
	 * crpc_rdma_qp_drain() says when they are over.
	 */
	CRPC_RDMA_CQE_ERROR,
	/** A datagram has arrived in one of the driver's buffers. */
	CRPC_RDMA_CQE_DGRAM,
};

/** One completion. */
struct crpc_rdma_cqe {
	uint8_t type;      /**< enum crpc_rdma_cqe_type. */
	uint8_t syndrome;  /**< ERROR: the device's code, for the log. */
	int16_t status;    /**< 0, or for ERROR -errno: -ECONNRESET (peer gone), -EACCES (keys,
	                         bounds), -ECANCELED (flushed), -EINVAL (a WR that post() could
	                         not build), -EIO. */
	uint32_t qp_id;    /**< conf.id of the QP. */
	uint32_t imm;      /**< RECV, DGRAM. */
	uint32_t byte_len; /**< RECV: bytes written. DGRAM: its payload; of a port of a larger MTU
	                         it may be longer than info.mtu. */
	uint32_t wr_id;    /**< SEND, ERROR of a send. */
	uint32_t wrs;      /**< SEND, ERROR of a send: WRs that this completion retires, itself
	                         included; those before an ERROR succeeded. 0: not of a send. */
	const void *data;  /**< DGRAM: the payload, readable until the next poll of the device. */
};

/** Counters of a device since open; exact. */
struct crpc_rdma_stats {
	uint64_t doorbells; /**< Register writes, BlueFlame ones included. */
	uint64_t blueflame; /**< Of these: whole WQEs written through the register. */
	uint64_t wqes;      /**< Send WQEs. */
	/** 64-byte blocks of send WQEs; 0, as blueflame, in a driver that does not see them. */
	uint64_t wqebbs;
	uint64_t send_cqes;
	uint64_t recv_cqes;
	uint64_t error_cqes;
	uint64_t recv_posted; /**< Receive WQEs handed to the device. */
	uint64_t polls;
	uint64_t empty_polls;
};

/**
 * What the card itself did since open, where it counts: a software NIC does, as a card would have
 * done it.
 */
struct crpc_rdma_card {
	uint64_t doorbells;  /**< BlueFlame ones included. */
	uint64_t wqebbs;     /**< 64-byte blocks of send WQEs that it fetched. */
	uint64_t cqes;       /**< That it wrote. */
	uint64_t pcie_bytes; /**< In both directions, framing included. */
	uint64_t packets;    /**< Sent. */
	uint64_t wire_bytes; /**< Of these, headers included. */
};

/**
 * Let one driver alone open devices from now on; at the start of a program.
 *
 * @param name
 *   Its name, or the part before the '_': "mlx5", "verbs". NULL: the first that takes the device,
 *   as without a choice. A driver that takes every device is asked after the others.
 * @return
 *   0, -ENOENT (there is none; the log lists what there is).
 */
int crpc_rdma_driver_choose(const char *name);

/**
 * Open a device.
 *
 * @param conf
 *   Which and how.
 * @return
 *   The device, or NULL with errno: ENODEV (no such device, or none at all; the log lists what was
 *   found), ENOTSUP (no driver takes it), EACCES (no permission on the device file), ENETDOWN (the
 *   port is not active), EINVAL, ENOMEM, EIO or another one of rdma-core (the device does not
 *   open).
 */
struct crpc_rdma *crpc_rdma_open(const struct crpc_rdma_conf *conf);

/**
 * Close a device whose queue pairs, addresses and regions are all freed. NULL is allowed. What is
 * left of freed DC queue pairs is stopped at once.
 */
void crpc_rdma_close(struct crpc_rdma *dev);

/**
 * The thread that used the device has ended, or will not use it any more: the next one that posts
 * or polls owns it. Matters to debug builds only, which check that there is one.
 */
void crpc_rdma_hand_over(struct crpc_rdma *dev);

/**
 * Write the state of every queue of a device as text: the completion queue, and of each queue pair
 * what was posted, retired and handed to the device. For a look at a program that stands still.
 *
 * @return
 *   0, -EOPNOTSUPP (the driver has none), -EIO (a write failed).
 */
int crpc_rdma_dump(const struct crpc_rdma *dev, FILE *out);

/** Describe an open device. */
void crpc_rdma_info_get(const struct crpc_rdma *dev, struct crpc_rdma_info *info);

/** Copy the counters. */
void crpc_rdma_stats_get(const struct crpc_rdma *dev, struct crpc_rdma_stats *stats);

/**
 * Ask what the card did. Not for the timed part of a loop.
 *
 * @return
 *   0, -EOPNOTSUPP (the card does not count).
 */
int crpc_rdma_card_get(const struct crpc_rdma *dev, struct crpc_rdma_card *card);

/**
 * The bytes of what peers write, and of what is read from them, may appear in any order, also
 * relative to other memory, until a completion of this device says that they are there. It spares
 * the host's bus on some machines. Not for memory that is looked at without a completion.
 */
#define CRPC_RDMA_MR_RELAXED 0x1u

/**
 * Register memory for local access and for writes and reads of the peers; in order, unless flags
 * say otherwise.
 *
 * @param dev
 *   The device.
 * @param addr
 *   Start; the memory must stay mapped until mr_dereg.
 * @param len
 *   Bytes, at least 1.
 * @param mr
 *   Filled on success.
 * @return
 *   0, -EINVAL, -ENOMEM (often: the memlock limit).
 */
int crpc_rdma_mr_reg(struct crpc_rdma *dev, void *addr, uint64_t len, struct crpc_rdma_mr *mr);

/** The same with CRPC_RDMA_MR_* flags. */
int crpc_rdma_mr_reg_flags(struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags,
	struct crpc_rdma_mr *mr);

/** Undo crpc_rdma_mr_reg(). */
void crpc_rdma_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr);

/**
 * Make a queue pair with its receives posted. One of datagrams is ready to send and to receive.
 *
 * @param dev
 *   The device.
 * @param conf
 *   Sizes. The sum of sq_depth + rq_depth over all QPs, and one for each initiator of DC, must not
 *   exceed the device's cq_depth, so that the completion queue cannot overrun.
 * @return
 *   The QP, or NULL with errno: EINVAL, ENOSPC (completion queue too small for one more, or
 *   CRPC_RDMA_QPS_MAX of them), ENOMEM, EOPNOTSUPP (the device has no such transport), EIO (the
 *   device refuses a state).
 */
struct crpc_rdma_qp *crpc_rdma_qp_create(
	struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);

/**
 * End a DC queue pair without waiting: it takes no request any more, nothing arrives, and what is
 * outstanding on it gets no completion. It is good for crpc_rdma_qp_free() only then.
 *
 * A queue pair with a send queue of its own (RC) is stopped by crpc_rdma_qp_free() itself, and
 * works until then: 0. One that shares it (DC) cannot be: the device continues its requests until
 * they are over, or have failed. To use their memory again, call this until it returns 0.
 *
 * @param qp
 *   The queue pair. NULL is allowed.
 * @return
 *   0: once crpc_rdma_qp_free() has returned, the device reads and writes no memory of its
 *   requests. -EAGAIN: it still may; poll the device, and ask again. That ends when the peer has
 *   acknowledged or the retries are over, at the latest a little after conf.drain_ns.
 */
int crpc_rdma_qp_drain(struct crpc_rdma_qp *qp);

/**
 * Destroy a queue pair, in time that does not depend on the peer; what is outstanding on it gets no
 * completion, and datagrams of the last poll are not readable any more. NULL is allowed.
 *
 * Unless crpc_rdma_qp_drain() gave 0 before, the device may go on with the requests of a DC queue
 * pair for a while. The polls of the device see to their end. Until then they keep their room in
 * the completion queue, and their memory must stay mapped until its region is deregistered: after
 * that the device does not touch it.
 */
void crpc_rdma_qp_free(struct crpc_rdma_qp *qp);

/**
 * The address that the peer needs, as bytes for the wire (little endian, versioned).
 *
 * @param qp
 *   The queue pair.
 * @param addr
 *   CRPC_RDMA_ADDR_LEN bytes, filled.
 */
void crpc_rdma_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);

/**
 * Connect to a peer's queue pair, once.
 *
 * @param qp
 *   A fresh queue pair.
 * @param peer
 *   What crpc_rdma_qp_addr() gave at the peer. Untrusted: checked before use.
 * @return
 *   0, -EPROTO (not an address, or another version), -EISCONN, -EHOSTUNREACH (no route: the two
 *   ports' link layers or kinds of GID differ, or for DC their MTUs, or there is no GID), -ENOMEM,
 *   -EIO (it broke before, is of datagrams, or the device refuses a state: free it).
 */
int crpc_rdma_qp_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);

/**
 * Ask whether what a peer writes appears in memory in its order, the last byte last, so that a look
 * at memory can notice its arrival. Adaptive routing, and some hosts, reorder; a completion is in
 * order everywhere.
 *
 * @param qp
 *   A connected queue pair.
 * @return
 *   1; 0: it may not, or the device does not know.
 */
int crpc_rdma_qp_in_order(struct crpc_rdma_qp *qp);

/**
 * Make what a datagram needs to find a peer.
 *
 * @param ud
 *   Our datagram queue pair.
 * @param peer
 *   What crpc_rdma_qp_addr() gave at the peer. Untrusted: checked before use.
 * @return
 *   The address, to be freed before @p ud, or NULL with errno: EPROTO (no address, another version,
 *   not of datagrams), EHOSTUNREACH, ENOMEM.
 */
struct crpc_rdma_ah *crpc_rdma_ah_create(
	struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);

/** Free it; nothing to it may be outstanding. NULL is allowed. */
void crpc_rdma_ah_free(struct crpc_rdma_ah *ah);

/** Operations of a driver's datapath; the inline functions below call them. */
struct crpc_rdma_fp {
	uint16_t (*post)(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n);
	uint16_t (*poll)(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n);
};

/** First member of every driver's device struct. */
struct crpc_rdma {
	struct crpc_rdma_fp fp;
	const struct crpc_rdma_ops *ops; /**< Control path; crpc_rdma_driver.h. */
	struct crpc_rdma_stats stats;    /**< Counted by the driver. */
	struct crpc_owner owner;         /**< The thread that posted or polled first. */
};

/** First member of every driver's queue pair struct. */
struct crpc_rdma_qp {
	struct crpc_rdma *dev;
	uint32_t id;
};

/** First member of every driver's address struct. */
struct crpc_rdma_ah {
	struct crpc_rdma *dev;
};

/**
 * Post a burst of WRs: WQEs are built in place, the doorbell is rung once.
 *
 * @param qp
 *   A queue pair, connected or of datagrams.
 * @param wr
 *   The requests; free again on return (payload memory only with CRPC_RDMA_WR_INLINE).
 * @param n
 *   Their number.
 * @return
 *   How many were posted, from the front. Fewer than n: the send queue is full (poll, then go on),
 *   or the QP is in error (its CRPC_RDMA_CQE_ERROR comes from poll).
 */
static inline uint16_t
crpc_rdma_post(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n)
{
	return qp->dev->fp.post(qp, wr, n);
}

/**
 * Take completions of all QPs of the device, oldest first.
 *
 * A device driven in software makes its progress here, whenever fewer than n were found. Buffers of
 * the datagrams that the poll before gave go back to the device, also with n = 0.
 *
 * @param dev
 *   The device.
 * @param cqe
 *   Filled.
 * @param n
 *   Room, at most CRPC_BURST_MAX.
 * @return
 *   How many; 0 is normal.
 */
static inline uint16_t
crpc_rdma_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	return dev->fp.poll(dev, cqe, n);
}

CRPC_END_DECLS

#endif
