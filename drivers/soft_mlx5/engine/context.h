/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_CONTEXT_H
#define SOFT_MLX5_ENGINE_CONTEXT_H

/**
 * @file
 * struct sm_nic, which everything belongs to, and which file of the engine does what.
 *
 *     nic.c        life, lock, domains, the progress pass
 *     uar.c        doorbells: registers of UAR pages
 *     mr.c         keys and the only way to application memory       mr.h
 *     window.c     keys to parts of regions, bound by WQEs
 *     cq.c         CQEs, overrun, arming                             cq.h
 *     qp.c         objects, state machine, flush; what types are     qp.h
 *     requester.c  send WQEs -> request packets                      requester.h
 *     answer.c     acknowledgements and responses -> CQEs, going back
 *     responder.c  request packets -> memory, receive CQEs           responder.h
 *     response.c   acknowledgements, responses of READs and atomics
 *     srq.c        receive WQEs of RQs and SRQs
 *     datagram.c   UD: both ways
 *     dc.c         which target a DCI is connected to, and a DCT's connections   dc.h
 *     peer.c       the rings to and from another context             peer.h
 *     direct.c     large payloads past the rings                     direct.h
 *     bytes.c      copies into application memory                    bytes.h
 *     ledger.c     what the work would have cost a card, and where queues stand   count.h
 *     retry.c      timers of requesters, where packets may get lost
 *     fault.c      a bad network, on request                         fault.h
 *     wire_shm.c   the net: slots, liveness, ring files              wire.h
 *     wire_udp.c   instead of rings to others: RoCEv2 over UDP       wire_udp.h
 *     roce.c       the form of RoCEv2's packets                      roce.h
 *     pcap.c       captures of either wire                           pcap.h
 *
 * One progress pass:
 *
 *     active QPs, doorbells: send -> rings in: requests, responses -> answers out -> timers, events
 *
 * Over UDP a peer's ring is private: sockets are read where rings are, and what was written to
 * rings is sent at the end of the pass, so that all system calls are there.
 *
 * Everything below sm_nic_progress() runs with the nic's lock held, and so does every command
 * (SM_LOCKED).
 */

#include <sys/queue.h>

#include "direct.h"
#include "peer.h"

/** Objects of a program, by kind. */
enum sm_obj_kind {
	SM_OBJ_PD,
	SM_OBJ_AH,
	SM_OBJ_MR,
	SM_OBJ_MW,
	SM_OBJ_CQ,
	SM_OBJ_SRQ,
	SM_OBJ_UAR,
	SM_OBJ_QP,
	SM_OBJ_KINDS,
};

/** What each of them begins with. */
struct sm_obj {
	uint8_t kind;
	uint32_t number;  /**< PDN, CQN, SRQN, UAR page; not of a queue pair. */
	uint32_t users;   /**< While there are any, it cannot be destroyed. */
	uint32_t key;     /**< MR, MW: index of its key. */
	struct sm_pd *pd; /**< That it is in; NULL: in none. */
	TAILQ_ENTRY(sm_obj) link;
};

TAILQ_HEAD(sm_obj_list, sm_obj);
TAILQ_HEAD(sm_qp_list, sm_qp);

/** Why a queue pair waits to be looked at: each has a list. */
enum sm_turn {
	SM_TURN_SEND,   /**< It has more to send. */
	SM_TURN_ANSWER, /**< An answer of it is pending. */
	SM_TURN_WAIT,   /**< It sends again at retry_at. */
	SM_TURN_FLUSH,  /**< It is in state ERR. */
	SM_TURNS,
};

LIST_HEAD(sm_peer_bucket, sm_peer);
#define SM_PEER_BUCKETS 1024u

struct sm_nic {
	_Atomic uint32_t lock;
	_Atomic uint32_t waiters; /**< Commands that want the lock: progress steps back. */
	_Atomic uint32_t busy;    /**< Calls of progress that found the lock taken. */
	_Atomic bool helped;      /**< By the helper, while the program may do anything. */
	uint64_t now;
	uint32_t work;               /**< Things done in this pass. */
	const struct sm_qp *serving; /**< The responder at work: windows of type 2 ask. */
	uint32_t slot;
	uint32_t qpn_base; /**< slot << 16. */
	uint32_t rings_seen;
	const _Atomic uint32_t *rings;                  /**< Counts rings made to us. */
	struct sm_peer_bucket by_name[SM_PEER_BUCKETS]; /**< All, by slot and generation. */
	struct sm_peer nowhere;      /**< Of queue pairs that have no connection (yet). */
	struct sm_nic_attr attr;     /**< As it was asked for, with what holds by default. */
	uint8_t waste[SM_MTU_BYTES]; /**< Where datagrams go that are dropped. */
	uint32_t dc_lives;            /**< Of DCIs so far: no two have the same. */
	struct soft_mlx5_ledger gone; /**< Of queue pairs that were destroyed. */
	struct sm_fault *fault;       /**< NULL: the network is good. */
	bool lossy;           /**< Packets may not come, so who waits for an answer has a timer. */
	struct sm_udp *udp;   /**< NULL: the wire is shared memory. */
	struct sm_pcap *pcap; /**< NULL: nothing is captured. */
	uint64_t retry_timers_at;
	uint64_t awake;    /**< Time for them: what of it this process was there to see. */
	uint64_t check_at; /**< When peers are looked after. */
	uint32_t nkeys;
	struct sm_mkey *keys;
	struct sm_qp *qps[SM_QPS_MAX]; /**< By the lower half of their numbers. */
	struct sm_qp_list turn[SM_TURNS];
	struct sm_peer_list peers;
	uint32_t npeers, nguests;                    /**< Of them came by themselves. */
	struct sm_cq *touched;
	struct sm_wire *wire;
	bool vanished; /**< Off the net for good. */
	uint32_t next_qp;
	uint32_t free_key; /**< Head of the list of free keys, chained by len. */
	bool settling; /**< What is sent now outlives the queue pair: no references to memory. */
	struct sm_direct_count direct;
	uint64_t datagrams_dropped; /**< For which a ring had no room. */
	struct sm_trail trail;
	struct sm_obj_list objs[SM_OBJ_KINDS];
	uint32_t next_number[SM_OBJ_KINDS];
};

void sm_lock(struct sm_nic *nic);
void sm_unlock(struct sm_nic *nic);

static inline void
sm_unlock_end(struct sm_nic **nic)
{
	sm_unlock(*nic);
}

/** A command: from here to the end of the block, however it is left, the nic is locked. */
#define SM_LOCKED(nic)                                                                             \
	__attribute__((cleanup(sm_unlock_end))) struct sm_nic *locked = (nic);                     \
	sm_lock(locked)

/** What was captured goes to its file, and what was written to rings out if the wire is UDP. */
void sm_nic_flush(struct sm_nic *nic);

/** A new object of @p size bytes, zero but for number, key and place. NULL: no memory. */
void *sm_obj_new(struct sm_nic *nic, enum sm_obj_kind kind, size_t size, struct sm_pd *pd);
/** An object that has no users leaves everything that knows it. */
void sm_obj_free(struct sm_nic *nic, struct sm_obj *obj);

#endif
