/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_NIC_H
#define SOFT_MLX5_NIC_H

/**
 * @file
 * The software ConnectX itself: objects, the engine that executes WQEs, and the wire.
 *
 *     application (unmodified)                         another process
 *         | ioctl, open, sysfs         | loads and stores
 *     preload.c sysfs.c uverbs.c       |                    |
 *         | commands (this header)     |                    |
 *     nic: pd mr cq srq qp  <--- engine: doorbells, WQEs -> packets -> wire_shm.c
 *
 * One struct sm_nic is what the kernel would call a context's view of the device: it is made when a
 * program opens the device and owns all objects made through that context. It has its own slot on
 * the wire, and its QPNs carry the slot (qpn = slot << 16 | index), so contexts share nothing and a
 * packet finds its way without a table.
 *
 * This layer knows nothing of ioctls, sysfs or file descriptors: it can be linked into a test and
 * driven step by step with time given by the caller.
 *
 * Threads: each function but sm_nic_progress() takes the nic's lock; sm_nic_progress() tries it and
 * returns if another thread has it, so any number of threads may drive the same nic.
 *
 * Errors are positive errno values as a kernel would return them, 0 on success; out-parameters are
 * set only on success.
 *
 * Memory: buffers, doorbell records and regions are plain pointers into the process that made the
 * objects, as a real NIC would reach them by DMA. Structures in them are big endian as in the PRM.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "soft_mlx5.h"

#define SM_SLOTS              256        /**< Contexts on one host: 8 bits of a QPN. */
#define SM_QPS_MAX            65536      /**< QPs of one context: 16 bits of a QPN. */
#define SM_MSG_MAX            (1u << 30) /**< Bytes of one message, as a ConnectX allows. */
#define SM_INLINE_SCATTER_MAX 32
/** From where on a payload is worth the way past the ring; shorter ones never take it. */
#define SM_DIRECT_DEFAULT 16384u
#define SM_DIRECT_LEAST   8193u

/** A walk of a TAILQ in which @p var may leave it. */
#define SM_FOREACH_SAFE(var, head, field, next)                                                    \
	for ((var) = TAILQ_FIRST(head); (var) != NULL && ((next) = TAILQ_NEXT(var, field), true);  \
		(var) = (next))

/**
 * A descriptor that the program did not ask for: never its standard input, output or error, which
 * it may have closed, and another number then.
 *
 * @return
 *   The descriptor, or -1 with errno, also if @p fd is -1.
 */
int sm_fd_hide(int fd);

struct sm_nic;
struct sm_pd;
struct sm_mr;
struct sm_mw;
struct sm_cq;
struct sm_srq;
struct sm_qp;
struct sm_uar;

/**
 * QP types, as bits of a set. Of DC, which verbs call a driver's own, there are the two ends: a DCI
 * sends, to a target that each WQE names, a DCT receives into an SRQ.
 */
enum sm_qp_type {
	SM_RC = 1,
	SM_UC = 2,
	SM_UD = 4,
	SM_DCI = 8,
	SM_DCT = 16,
};

#define SM_DCT_CONNS 1024u /**< See sm_nic_attr.dct_conns. */
#define SM_DCI_STREAMS_LOG 4 /**< Streams of a DCI, and those of them in error, at most. */

/** How to attach a nic to its host's wire. */
struct sm_nic_attr {
	/** Name of the wire: contexts of the same net (and user) see each other. */
	const char *net;
	uint8_t gid[16]; /**< The port's GID: in the GRH of datagrams, and theirs must match. */
	uint16_t lid;    /**< Of the host's first device; 0: SM_LID. */
	uint8_t gid_ipv4[16]; /**< On Ethernet, through shared memory: another one, IPv4-mapped. */
	uint32_t roce_v1;     /**< Bit i: GID i is of RoCE v1. */
	uint32_t pkeys;       /**< P_Keys of the port; 0: one. */
	bool pkey_limited;    /**< The first of them is of a limited member. */
	bool ethernet;        /**< Each packet has a GRH, and address vectors no bit for it. */
	bool flush_signalled; /**< What was flushed completes only where that was asked for. */
	bool grh_required;    /**< What has none is refused, or lost. */
	/**
	 * How bad the network is for what this context receives, and its seed, such as
	 * "seed=7,drop=0.01,dup=0.01,delay=0.01,reorder=0.01,corrupt=0.001,rnr=0.01". NULL: good.
	 * Its requesters then have retransmission timers, which they otherwise do without.
	 */
	const char *faults;
	/**
	 * IPv4 address of ours over which packets go, as RoCEv2 over UDP; 0: through shared memory.
	 * The net then only gives numbers to the contexts that share the address.
	 */
	uint32_t udp_addr;
	uint8_t mtu; /**< enum ibv_mtu: the largest of a path; 0: 4096 bytes. */
	/**
	 * Payloads of so many bytes and more are copied straight from their source if it is in the
	 * same process; 0: none is. None is with faults, captures and over UDP, which look at
	 * packets.
	 */
	uint32_t direct;
	/** Which of how many devices of the host; 0 of 0: the only one. */
	uint32_t device, devices;
	/** File that gets what is received (over UDP also what is sent) as RoCEv2; NULL: none. */
	const char *pcap;
	uint64_t pcap_epoch_ns; /**< What to add to times to have those of day. */
	/** Connections of a DCT, where packets get lost, at most; 0: SM_DCT_CONNS. */
	uint32_t dct_conns;
	/**
	 * A completion queue that was armed has something. Called with the nic's lock held: must
	 * not be NULL, nor call back into the nic. @p user is sm_cq_attr.user.
	 */
	void (*comp_event)(void *user);
	/** An asynchronous event of a QP, CQ or SRQ; @p user is its attr's user. Same rules. */
	void (*async_event)(void *user, enum ibv_event_type type);
};

/** The memory of a region, the addresses that it has on the wire, and who may do what there. */
struct sm_region {
	uint64_t start, len, iova;
	uint32_t access; /**< Verbs flags. */
};

/** CREATE_CQ, as mlx5_ib_create_cq carries it. */
struct sm_cq_attr {
	void *buf;         /**< ncqe entries of cqe_size. */
	void *dbrec;       /**< Two big-endian words: consumer index, arm. */
	uint32_t ncqe;     /**< Entries, a power of two. */
	uint32_t cqe_size; /**< 64 or 128. */
	bool ignore_overrun;
	void *user;
};

/** CREATE_SRQ. The SRQ buffer is a linked list of WQEs of 1 << wqe_shift bytes. */
struct sm_srq_attr {
	struct sm_pd *pd;
	uint8_t *buf;
	void *dbrec;   /**< A big-endian word: the receive counter. */
	uint32_t nwqe; /**< Entries, a power of two. */
	uint32_t wqe_shift;
	uint32_t max_sge; /**< As it was asked for. */
	uint32_t limit;   /**< Raise IBV_EVENT_SRQ_LIMIT_REACHED below it, once; 0: never. */
	void *user;
};

/** CREATE_QP, as mlx5_ib_create_qp carries it: the RQ lies at buf, the SQ behind it or apart. */
struct sm_qp_attr {
	enum sm_qp_type type;
	struct sm_pd *pd;
	struct sm_cq *send_cq;
	struct sm_cq *recv_cq;
	struct sm_srq *srq; /**< NULL: the QP has its own RQ (or none, rq_nwqe 0). */
	uint8_t *rq_buf;
	uint8_t *sq_buf;
	void *dbrec;        /**< Two big-endian words: receive counter, send counter. */
	uint32_t sq_nwqebb; /**< 64-byte blocks, a power of two; 0: no SQ. */
	uint32_t rq_nwqe;   /**< Entries, a power of two. */
	uint32_t rq_wqe_shift;
	uint32_t uidx;     /**< Goes into srqn_uidx of every CQE (cqe_version 1). */
	uint32_t uar_page; /**< Id of the UAR page that this QP rings. */
	bool scatter_cqe;  /**< Payloads up to 32 bytes may go into the CQE. */
	uint64_t dc_key;   /**< DCT: what a WQE must name to reach it. */
	/** DCI: with so many streams in error the queue pair is in error; 0: it has no streams. */
	uint32_t bad_streams;
	void *user;
};

/**
 * Attach to the wire.
 *
 * Leftovers of dead processes on the same net are reclaimed here.
 *
 * @param attr
 *   Which net, and the callbacks; copied.
 * @param nic
 *   Filled.
 * @return
 *   0, ENOMEM, EINVAL (the faults), ENOSPC (all SM_SLOTS slots are held by living processes),
 *   EACCES, EPROTO (the net's shared memory is of another version), EADDRINUSE, EADDRNOTAVAIL
 *   (the UDP address), EEXIST (the capture is some other file), or why it cannot be opened.
 */
int sm_nic_create(const struct sm_nic_attr *attr, struct sm_nic **nic);

/** Detach and free, with every object that is still there. */
void sm_nic_free(struct sm_nic *nic);

/**
 * In a forked child: leave the net without touching the parent's slot. Nothing may be called for
 * the nic afterwards, and its memory stays: another thread of the parent may have been changing it.
 */
void sm_nic_fork_child(struct sm_nic *nic);

/**
 * Do a bounded amount of the NIC's work: doorbells, WQEs, packets in, acknowledgements, timers.
 *
 * @param nic
 *   The nic.
 * @param now_ns
 *   Monotonic time in nanoseconds, for RNR and retry timers. The same clock at every call. A
 *   thread that read it and was delayed may come with an older time than another one: the newest
 *   counts.
 * @return
 *   Number of WQEs, packets and completions handled; 0 if idle or if another thread is at it.
 */
uint32_t sm_nic_progress(struct sm_nic *nic, uint64_t now_ns);
/** The next passes are by a thread that knows nothing of what the program does; or no longer. */
void sm_nic_helped(struct sm_nic *nic, bool helped);

/**
 * Make the network bad for what this context receives, or otherwise bad, or good again.
 *
 * @param text
 *   As sm_nic_attr.faults; "": no more faults. The retransmission timers stay: there may be losses
 *   to recover from.
 * @return
 *   0, EINVAL (as it was before), ENOMEM.
 */
int sm_nic_faults(struct sm_nic *nic, const char *text);

/** Have retransmission timers without faults of our own: a peer may lose packets. ENOMEM. */
int sm_nic_timers(struct sm_nic *nic);

/** The LID of the host's first device is another one: the old ones lead nowhere from now on. */
void sm_nic_lid(struct sm_nic *nic, uint16_t first);

/** Its place on the net. */
uint32_t sm_nic_slot(const struct sm_nic *nic);

/**
 * Let the @p which-th (modulo their number) of the connected queue pairs fail as by an error inside
 * the card: IBV_EVENT_QP_FATAL. ENOENT: there is none.
 */
int sm_nic_break(struct sm_nic *nic, uint32_t which);

/**
 * Leave the net as a process leaves it that is killed, and do nothing from now on. Commands go on
 * to work, so that objects can be destroyed.
 */
void sm_nic_vanish(struct sm_nic *nic);

/** The ledger of queue pair @p qpn, or of all if that is 0; ENOENT. */
int sm_nic_ledger(struct sm_nic *nic, uint32_t qpn, struct soft_mlx5_ledger *out);

/**
 * Everything counted, every fault that is on, and where queue pairs and completion queues stand, as
 * the members of a JSON object.
 */
void sm_nic_stat(struct sm_nic *nic, FILE *out);

/** True if no WQE or packet is pending that this nic could work on now: timers may be. */
bool sm_nic_idle(struct sm_nic *nic);

/** The GID, LID and MTU that all contexts of the net share; constant per host. */
#define SM_LID       1
#define SM_MTU_BYTES 4096

/**
 * Destroy an object of any kind. EBUSY while another one needs it: a domain that
 * is held or has regions or queues, a region to which a window is bound, a queue or UAR page of
 * queue pairs.
 */
int sm_destroy(struct sm_nic *nic, void *obj);

/** No other page has this number. */
int sm_uar_add(struct sm_nic *nic, uint32_t page_id, void *page, struct sm_uar **uar);

int sm_pd_create(struct sm_nic *nic, struct sm_pd **pd, uint32_t *pdn);
/** An address handle, of which the NIC only knows that its domain is in use. */
int sm_ah_create(struct sm_nic *nic, struct sm_pd *pd, void **ah);

/** @p key: local and remote. EINVAL for remote write or atomic without local write. */
int sm_mr_create(struct sm_nic *nic, struct sm_pd *pd, const struct sm_region *region,
	struct sm_mr **mr, uint32_t *key);
/** What a region is now. */
struct sm_region sm_mr_region(const struct sm_nic *nic, const struct sm_mr *mr);
/**
 * Make another region of it, in another domain unless @p pd is NULL. The key stays, as with a
 * ConnectX. EBUSY while a window is bound to it.
 */
int sm_mr_rereg(struct sm_nic *nic, struct sm_mr *mr, struct sm_pd *pd,
	const struct sm_region *region, uint32_t *key);

/**
 * A memory window of @p type 1 or 2, bound to nothing. It is bound and invalidated by WQEs; one of
 * type 2 also by a peer's SEND WITH INVALIDATE, and it serves only the queue pair that bound it.
 */
int sm_mw_create(
	struct sm_nic *nic, struct sm_pd *pd, uint8_t type, struct sm_mw **mw, uint32_t *rkey);

/** Poisons the arm word of the doorbell record, so that the first arm (which writes 0) is seen. */
int sm_cq_create(
	struct sm_nic *nic, const struct sm_cq_attr *attr, struct sm_cq **cq, uint32_t *cqn);
/**
 * Go on in another buffer of @p ncqe entries (and of another size of entry), whose first use is
 * marked by a CQE of opcode 5 in the old one. EINVAL if what is not consumed would not fit.
 */
int sm_cq_resize(struct sm_nic *nic, struct sm_cq *cq, void *buf, uint32_t ncqe, uint32_t cqe_size);

int sm_srq_create(
	struct sm_nic *nic, const struct sm_srq_attr *attr, struct sm_srq **srq, uint32_t *srqn);
int sm_srq_limit(struct sm_nic *nic, struct sm_srq *srq, uint32_t limit);
/** As it was made, with the limit that it has now. */
struct sm_srq_attr sm_srq_query(struct sm_nic *nic, const struct sm_srq *srq);

/** EOPNOTSUPP for a type that the NIC lacks. A DCT has no queues of its own, but an SRQ. */
int sm_qp_create(
	struct sm_nic *nic, const struct sm_qp_attr *attr, struct sm_qp **qp, uint32_t *qpn);
/** Checks the transition and the attributes it needs; EINVAL as a kernel would. */
int sm_qp_modify(struct sm_nic *nic, struct sm_qp *qp, const struct ib_uverbs_modify_qp *mod);
/** The current state and all attributes set so far, as they were set. */
void sm_qp_query(struct sm_nic *nic, struct sm_qp *qp, struct ib_uverbs_modify_qp *out);
/** A stream of a DCI is no longer in error. EINVAL: it was not, or the DCI does not send. */
int sm_dci_stream_reset(struct sm_nic *nic, struct sm_qp *qp, uint32_t stream);

#endif
