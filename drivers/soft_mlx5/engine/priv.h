/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_PRIV_H
#define SOFT_MLX5_ENGINE_PRIV_H

/**
 * @file
 * The engine's objects, and which file does what. This file is long because they name each other,
 * and what is inline on the paths needs all of them.
 *
 *     nic.c        life, lock, UAR pages, the progress pass
 *     mr.c         keys and the only way to application memory
 *     window.c     keys to parts of regions, bound by WQEs
 *     cq.c         CQEs, overrun, arming
 *     srq.c        receive WQEs of RQs and SRQs
 *     qp.c         objects, state machine, flush
 *     requester.c  send queue: WQEs -> request packets; acknowledgements and responses -> CQEs
 *     responder.c  request packets -> memory, receive CQEs, acknowledgements, responses
 *     datagram.c   UD: both ways
 *     dc.c         which target a DCI is connected to, and a DCT's connections
 *     peer.c       the rings to and from another context
 *     direct.c     large payloads past the rings
 *     bytes.c      copies into application memory
 *     ledger.c     what the work would have cost a card
 *     dump.c       the state of everything, as text
 *     retry.c      timers of requesters, where packets may get lost
 *     fault.c      a bad network, on request
 *     wire_shm.c   the net: slots, liveness, ring files
 *     wire_udp.c   instead of rings to others: RoCEv2 over UDP
 *     roce.c       the form of RoCEv2's packets
 *     pcap.c       captures of either wire
 *
 * One progress pass:
 *
 *     active QPs, doorbells: send -> rings in: requests, responses -> answers out -> timers, events
 *
 * Over UDP a peer's ring is private: sockets are read where rings are, and what was written to
 * rings is sent at the end of the pass, so that all system calls are there.
 *
 * Everything below sm_nic_progress() runs with the nic's lock held.
 */

#include <sys/queue.h>

#include <infiniband/mlx5dv.h>

#include "bytes.h"
#include "count.h"
#include "direct.h"
#include "wire.h"

/** Syndromes of error CQEs, as in the PRM. */
enum sm_syndrome {
	SM_SYND_LOCAL_LENGTH = 0x01,
	SM_SYND_LOCAL_QP_OP = 0x02,
	SM_SYND_LOCAL_PROT = 0x04,
	SM_SYND_FLUSH = 0x05,
	SM_SYND_MW_BIND = 0x06,
	SM_SYND_BAD_RESP = 0x10,
	SM_SYND_LOCAL_ACCESS = 0x11,
	SM_SYND_REMOTE_INVAL = 0x12,
	SM_SYND_REMOTE_ACCESS = 0x13,
	SM_SYND_REMOTE_OP = 0x14,
	SM_SYND_RETRY_EXC = 0x15,
	SM_SYND_RNR_EXC = 0x16,
};

/** CQE opcodes. */
enum sm_cqe_op {
	SM_CQE_REQ = 0,
	SM_CQE_RESP_WR_IMM = 1,
	SM_CQE_RESP_SEND = 2,
	SM_CQE_RESP_SEND_IMM = 3,
	SM_CQE_RESP_SEND_INV = 4,
	SM_CQE_RESIZE_CQ = 5,
	SM_CQE_REQ_ERR = 13,
	SM_CQE_RESP_ERR = 14,
};

/** Send WQE opcodes. */
enum sm_wqe_op {
	SM_OP_NOP = 0x00,
	SM_OP_SEND_INV = 0x01,
	SM_OP_WRITE = 0x08,
	SM_OP_WRITE_IMM = 0x09,
	SM_OP_SEND = 0x0a,
	SM_OP_SEND_IMM = 0x0b,
	SM_OP_READ = 0x10,
	SM_OP_ATOMIC_CS = 0x11,
	SM_OP_ATOMIC_FA = 0x12,
	SM_OP_UMR = 0x25, /**< Bind a memory window, or invalidate one. */
};

#define SM_WQEBB 64u
_Static_assert((int)MLX5_OPCODE_RDMA_WRITE_IMM == SM_OP_WRITE_IMM, "PRM");
_Static_assert((int)MLX5_OPCODE_ATOMIC_FA == SM_OP_ATOMIC_FA, "PRM");
_Static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && MLX5_SEND_WQE_BB == SM_WQEBB, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_raddr_seg, rkey) == 8, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rlid) == 14, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, hop_limit) == 16 + 11, "PRM");
_Static_assert(offsetof(struct mlx5_wqe_av, rgid) == 32, "PRM");
#define SM_ACCESS_LOCAL_WRITE 1u
#define SM_ACCESS_REMOTE_WRITE 2u
#define SM_ACCESS_REMOTE_READ 4u
#define SM_ACCESS_REMOTE_ATOMIC 8u
#define SM_RD_MAX 16u          /**< READs and atomics that a QP has open, each way. */
#define SM_KEYS_MAX (1u << 20) /**< Regions of one context. */
#define SM_CQE_MAX (1u << 22)
#define SM_PSN_MASK 0xffffffu
#define SM_BF_REGS 4u          /**< Doorbell registers of a UAR page. */
#define SM_CQ_CI_MASK 0xffffffu
/** How often a silent peer is checked for life. */
#define SM_ALIVE_NS UINT64_C(20000000)

struct sm_pd {
	uint32_t pdn;
	uint32_t users; /**< Regions and queues in it. */
	TAILQ_ENTRY(sm_pd) link;
};

/** What a key stands for; in a table by key >> 8. */
struct sm_mkey {
	uint64_t iova;
	uint64_t len;
	uint8_t *base; /**< Memory at iova. */
	struct sm_pd *pd; /**< NULL: free. Of a window: see window.c. */
	uint32_t key;
	uint32_t access;
};

struct sm_cq {
	uint8_t *cqe; /**< The 64 bytes that are written of entry 0. */
	_Atomic uint32_t *dbrec;
	uint32_t pi;
	uint32_t ci; /**< As last read from the doorbell record. */
	uint32_t ncqe;
	uint32_t log_ncqe;
	uint32_t log_size;
	uint32_t arm;       /**< The arm word that was served last. */
	uint32_t solicited; /**< pi behind the newest solicited or error CQE. */
	bool ignore_overrun;
	bool failed;
	bool touched; /**< Got a CQE in this pass. */
	void *user;
	uint32_t cqn;
	uint32_t users;
	TAILQ_ENTRY(sm_cq) link;
	struct sm_cq *next_touched;
};

struct sm_srq {
	struct sm_pd *pd;
	uint8_t *buf;
	_Atomic uint32_t *dbrec;
	uint32_t nwqe;
	uint32_t wqe_shift;
	uint32_t max_sge;
	uint32_t limit;
	uint16_t next;  /**< WQE that is used next. */
	uint16_t taken; /**< WQEs used so far. */
	uint32_t srqn;
	uint32_t users;
	void *user;
	TAILQ_ENTRY(sm_srq) link;
	uint32_t nback;
	uint16_t back[]; /**< Taken and not used up: they go before next. */
};

/** A position in the segments of a WQE. */
struct sm_cursor {
	const uint8_t *seg;  /**< The segment at hand. */
	const uint8_t *wrap; /**< Where the queue ends ... */
	const uint8_t *base; /**< ... and goes on. */
	uint32_t left;       /**< 16-byte units from seg to the end of the WQE. */
	uint32_t off;        /**< Bytes of the segment already used. */
};

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
};

/** Where a WQE of a queue pair without a connection goes, as its address vector says. */
struct sm_av {
	uint64_t key; /**< DCI: of the DCT. UD: Q_Key. */
	uint64_t grh; /**< See SM_GRH_PRESENT. */
	uint32_t qpn;
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
	struct sm_peer *peer; /**< UD: whom it goes to; NULL: nobody. */
};

/** An accepted READ or atomic whose response is due. */
struct sm_rd {
	uint8_t pkt; /**< SM_PKT_READ_RESP or SM_PKT_ATOMIC_RESP. */
	uint8_t epoch;
	uint32_t psn; /**< Of its first packet. */
	uint32_t rkey;
	uint32_t len;
	uint32_t off;
	uint64_t raddr;
	uint64_t value;
};

/** The message that is being received. */
struct sm_recv {
	bool open;
	uint8_t pkt;
	uint32_t len;  /**< Of a WRITE, as announced; a SEND has what comes. */
	uint32_t off;
	uint64_t raddr;
	uint32_t rkey;
	uint16_t counter; /**< Of the receive WQE. */
	struct sm_cursor cur;
};

struct sm_uar {
	uint32_t id;
	uint8_t *page;
	/** What each register held last: another value is a doorbell. */
	uint64_t seen[SM_BF_REGS];
	uint32_t nqps;
	uint32_t rung;  /**< Doorbells since a look at all QPs began. */
	struct sm_qp *sweep; /**< Where that look goes on; NULL: none is under way. */
	TAILQ_HEAD(, sm_qp) qps;
};

struct sm_qp {
	/* Requester. */
	uint8_t *sq;
	struct sm_swr *swr;
	_Atomic uint32_t *dbrec;
	struct sm_peer *peer;
	uint32_t sq_nbb;
	uint16_t sq_head; /**< Posted, as last seen. */
	uint16_t sq_tx;   /**< Taken. */
	uint32_t wr_tx;   /**< WQEs taken ... */
	uint32_t wr_done; /**< ... and completed. */
	uint32_t psn_tx;  /**< Of the next packet. */
	uint32_t psn_acked;
	uint32_t qpn;
	uint32_t simple_qpn; /**< qpn if WQEs may take the short way, else what no WQE holds. */
	uint32_t dest_qpn;
	uint8_t type; /**< enum sm_qp_type. */
	uint8_t state;
	uint8_t epoch;  /**< Counts rewinds, so that answers to what was sent before are known. */
	bool halted;    /**< A WQE failed: nothing more is sent. */
	bool waiting;   /**< For `retry_at`. */
	bool lost;      /**< It waits because nobody was there, not for a receive WQE. */
	bool gap;       /**< A response went missing: asked again, until one comes that fits. */
	bool active;    /**< On nic->active. */
	bool answering; /**< On nic->answers. */
	bool failed;    /**< On nic->failed: in state ERR. */
	bool wakes;     /**< A WQE may wait until all before it are done: DCI, and for a UMR. */
	bool with_av;   /**< UD, DCI: WQEs carry an address vector. */
	bool connected; /**< DCI: CONNECT was sent to dest_qpn at peer. */
	bool scatter_cqe; /**< What a SEND brings goes into the CQE if it fits. */
	struct sm_cq *send_cq;
	uint32_t uidx;
	struct sm_send tx;

	/* READs and atomics that we asked for. */
	uint32_t rd_head, rd_tail;
	uint32_t rd_wr[SM_RD_MAX]; /**< WQE numbers. */
	uint32_t rd_off;           /**< Bytes of the oldest that came. */
	struct sm_cursor rd_cur;

	/* Responder. */
	uint32_t psn_rx; /**< Expected. */
	uint32_t msn;    /**< Messages completed, as acknowledgements tell. */
	uint32_t unacked; /**< Messages received since the last acknowledgement. */
	uint32_t held;    /**< How many there were when it was last put off. */
	uint8_t nak;     /**< enum sm_nak to be sent. */
	/**
	 * Everything of refuse_epoch is dropped. UC and DCI: always set: one sorts packets
	 * otherwise, the other takes none.
	 */
	bool refusing;
	uint8_t refuse_epoch;
	uint16_t rq_head, rq_tail;
	uint32_t rq_nwqe;
	uint32_t rq_shift;
	uint8_t *rq;
	struct sm_srq *srq;
	struct sm_pd *pd;
	struct sm_cq *recv_cq;
	uint32_t access;
	struct sm_recv rx;
	uint32_t ans_head, ans_tail;
	struct sm_rd ans[SM_RD_MAX];
	struct {
		uint32_t psn;
		uint64_t value;
	} atomics[SM_RD_MAX]; /**< The last ones, for requests that come twice; by count. */
	uint32_t natomics;

	/* DC. */
	uint64_t dc_key;          /**< DCT: its own. DCI: that of the target. */
	uint32_t dc_life;         /**< DCI: another after each RESET; connection: the DCI's. */
	bool forgot;              /**< DCT: it dropped a connection that was silent. */
	uint32_t nconns;          /**< DCT. */
	uint64_t dc_at; /**< DCI: when all was acknowledged; connection: when it was heard. */
	struct sm_qp *dct;        /**< Connection: whose it is. NULL: this is a queue pair. */
	LIST_HEAD(, sm_qp) conns; /**< DCT: its connections, the last one used first. */
	LIST_ENTRY(sm_qp) conn_link;

	/* Control. */
	struct sm_uar *uar;
	struct sm_qp_mod attr;
	uint8_t retries, rnr_retries;
	uint8_t lost_tries;
	uint64_t rto_at, rto_mark; /**< With faults: the retransmission timer, and what moved it. */
	uint32_t rto_spoke, rto_silent;
	uint8_t mtu_shift; /**< Of the path's MTU, in bytes. */
	uint8_t headers;   /**< Bytes of headers that each packet has on the wire. */
	/** Packets of the next WQE that the far side has: it goes on behind them. */
	uint32_t resume;
	uint64_t retry_at;
	void *user;
	TAILQ_ENTRY(sm_qp) active_link;
	TAILQ_ENTRY(sm_qp) answer_link;
	TAILQ_ENTRY(sm_qp) wait_link;
	TAILQ_ENTRY(sm_qp) failed_link;
	TAILQ_ENTRY(sm_qp) uar_link;
	TAILQ_ENTRY(sm_qp) peer_link;
	struct sm_count n;
};

/** Another context, or ourselves. */
struct sm_peer {
	uint32_t slot;
	uint32_t gen;
	bool self;
	bool dead;
	bool busy;     /**< Sent us something in this pass ... */
	bool was_busy; /**< ... and in the one before. */
	bool heard;    /**< Since the last check for life. */
	struct sm_tx tx; /**< ring NULL: none yet. */
	struct sm_rx rx;
	uint64_t full_limit; /**< tx.limit when a datagram found no room last ... */
	uint64_t full_at;    /**< ... and since when it is that. */
	struct sm_rx out; /**< UDP: reads what tx wrote, to send it. */
	uint32_t piece;   /**< UDP: packets that were made of the oldest one there. */
	uint32_t checks;  /**< UDP: for life, since it was heard. */
	uint64_t cookie;  /**< UDP: what it wants to see in a CONNECT of ours. */
	bool guest;       /**< UDP: it came by itself. */
	struct sm_hdr *late; /**< NAKs of no queue pair that found the ring full. */
	uint32_t nlate, late_room;
	uint32_t quiet;   /**< Polls in a row that found nothing. */
	uint32_t spoke;   /**< On a lossy wire: packets that came, lost ones too. */
	uint8_t polled;   /**< enum sm_polled. */
	TAILQ_HEAD(, sm_qp) qps;
	TAILQ_ENTRY(sm_peer) link;
	TAILQ_ENTRY(sm_peer) poll_link;
	LIST_ENTRY(sm_peer) name_link;
};

/** How often a peer's ring is looked at. */
enum sm_polled {
	SM_POLLED_NEVER, /**< No ring, or dead. */
	SM_POLLED_HOT,   /**< In each pass. */
	SM_POLLED_COLD,  /**< In turn: silent, and there are many. */
};

TAILQ_HEAD(sm_peer_list, sm_peer);
LIST_HEAD(sm_peer_bucket, sm_peer);
#define SM_PEER_BUCKETS 1024u

TAILQ_HEAD(sm_qp_list, sm_qp);

struct sm_nic {
	_Atomic uint32_t lock;
	_Atomic uint32_t waiters; /**< Commands that want the lock: progress steps back. */
	_Atomic uint32_t busy;    /**< Calls of progress that found the lock taken. */
	uint64_t now;
	uint32_t work; /**< Things done in this pass. */
	const struct sm_qp *serving; /**< The responder at work: windows of type 2 ask. */
	uint32_t slot;
	uint32_t qpn_base; /**< slot << 16. */
	uint32_t rings_seen;
	const _Atomic uint32_t *rings; /**< Counts rings made to us. */
	struct sm_peer *by_slot[SM_SLOTS]; /**< The newest known in each slot. */
	struct sm_peer_bucket by_name[SM_PEER_BUCKETS]; /**< All, by slot and generation. */
	struct sm_peer nowhere; /**< Of queue pairs that have no connection (yet). */
	uint8_t gid[16];
	uint8_t waste[SM_MTU_BYTES]; /**< Where datagrams to nobody go. */
	LIST_HEAD(, sm_qp) spare_conns;
	uint32_t dct_conns; /**< Connections of a DCT at most. */
	uint32_t dc_lives;  /**< Of DCIs so far: no two have the same. */
	struct soft_mlx5_ledger gone; /**< Of queue pairs that were destroyed. */
	struct sm_fault *fault; /**< NULL: the network is good. */
	bool lossy; /**< Packets may not come, so who waits for an answer has a timer. */
	bool watched; /**< Rings are looked at behind their writers: UDP, captures. */
	bool paced; /**< Who does not get acknowledgements stops after PACE packets. */
	uint8_t mtu; /**< enum ibv_mtu: the largest of a path. */
	uint32_t device, devices; /**< Which one of the host's this is. */
	uint32_t addr;        /**< IPv4, over UDP; else 0. */
	struct sm_udp *udp;   /**< NULL: the wire is shared memory. */
	struct sm_pcap *pcap; /**< NULL: nothing is captured. */
	uint64_t retry_timers_at;
	uint64_t awake; /**< Time for them: what of it this process was there to see. */
	uint64_t check_at; /**< With faults: when peers are looked after. */
	struct sm_uar **uars;
	uint32_t nuars;
	uint32_t nkeys;
	struct sm_mkey *keys;
	struct sm_qp **qps; /**< SM_QPS_MAX. */
	struct sm_qp_list active;
	struct sm_qp_list answers;
	struct sm_qp_list waiting;
	struct sm_qp_list failed;
	struct sm_peer_list peers;
	struct sm_peer_list hot, cold; /**< Those with a ring to us. */
	uint32_t nhot, ncold;
	struct sm_cq *touched;
	uint64_t alive_at;
	struct sm_wire *wire;
	bool orphan; /**< In a forked child. */
	bool vanished; /**< Off the net for good. */
	bool stopping; /**< By faults: it may have to stand still. */
	bool stopped;  /**< Progress has to ask whether it may work: any of the above. */
	uint32_t next_qp, next_cqn, next_srqn, next_pdn;
	uint32_t free_key; /**< Head of the list of free keys, chained by len. */
	uint32_t direct_min; /**< Payloads from here on are referred to; 0: none. */
	bool direct_kernel; /**< Also from other processes. */
	bool settling; /**< What is sent now outlives the queue pair: no references to memory. */
	struct sm_direct_count direct;
	uint64_t datagrams_dropped; /**< For which a ring had no room. */
	struct sm_trail trail;
	TAILQ_HEAD(, sm_mw) mws;
	TAILQ_HEAD(, sm_mr) mrs;
	TAILQ_HEAD(, sm_cq) cqs;
	TAILQ_HEAD(, sm_srq) srqs;
	TAILQ_HEAD(, sm_pd) pds;
	void (*comp_event)(void *user);
	void (*async_event)(void *user, enum sm_async_type type);
};

/** a - b of packet numbers. */
static inline int32_t
sm_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/** How many packets of the path's MTU, at least one, hold @p len bytes. */
static inline uint32_t
sm_psn_packets(const struct sm_qp *qp, uint32_t len)
{
	/* No MTU is smaller than a TLP. */
	return crpc_unlikely(len > SM_TLP_PAYLOAD) ? 1 + sm_count_more(len, qp->mtu_shift) : 1;
}

/** The number of the first packet of a send WQE. */
static inline uint32_t
sm_swr_first(const struct sm_qp *qp, const struct sm_swr *w)
{
	return (w->psn - (sm_psn_packets(qp, w->len) - 1)) & SM_PSN_MASK;
}

/* ---- nic.c ---- */

void sm_lock(struct sm_nic *nic);
/** Lock for a command; EIO, and not locked, in a forked child. */
int sm_lock_live(struct sm_nic *nic);
/** Forget what the doorbell registers held, before a queue pair starts to count from 0. */
void sm_uar_forget(struct sm_uar *uar);
void sm_unlock(struct sm_nic *nic);
/** What was written to rings is captured, and goes out if the wire is UDP. */
void sm_nic_flush(struct sm_nic *nic);

/* ---- mr.c ---- */

/** A key that is free: its index, with the next variant. ENOMEM. */
int sm_key_alloc(struct sm_nic *nic, uint32_t *index);
void sm_key_free(struct sm_nic *nic, uint32_t index);

/* ---- window.c ---- */

/** As sm_mem(), where a key is none of a region of the domain. */
void *sm_mem_window(const struct sm_nic *nic, const struct sm_pd *pd, const struct sm_mkey *k,
	uint32_t key, uint64_t va, uint64_t len, uint32_t access);
/** Whether a window is bound to the region with the key of that index. */
bool sm_mw_bound_to(const struct sm_nic *nic, uint32_t index);
/** A UMR WQE for the window @p key, by the @p units of 16 bytes behind ctrl: 0 or a syndrome. */
uint32_t sm_mw_umr(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key, const uint8_t *umr,
	uint32_t units);
/** What a SEND WITH INVALIDATE asks for; false: that is no key of a bound window of type 2. */
bool sm_mw_invalidate(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key);
void sm_mws_free(struct sm_nic *nic);
/** Regions that the program left. */
void sm_mrs_free(struct sm_nic *nic);

/**
 * The only way from a key to memory.
 *
 * @return
 *   Where @p va lies, or NULL: no such key, another domain, outside, not allowed.
 */
static inline void *
sm_mem(const struct sm_nic *nic, const struct sm_pd *pd, uint32_t key, uint64_t va, uint64_t len,
	uint32_t access)
{
	const struct sm_mkey *k;

	if (crpc_unlikely(key >> 8 >= nic->nkeys))
		return NULL;
	k = &nic->keys[key >> 8];
	if (crpc_unlikely(k->pd != pd || k->key != key || (k->access & access) != access))
		return sm_mem_window(nic, pd, k, key, va, len, access);
	if (crpc_unlikely(va < k->iova || len > k->len || va - k->iova > k->len - len))
		return NULL;
	return k->base + (va - k->iova);
}

/** Bytes of all segments from @p cur on; UINT64_MAX: an inline segment runs out of its WQE. */
uint64_t sm_cursor_total(const struct sm_cursor *cur);
/** Go @p n bytes on; false: there are not so many. */
bool sm_cursor_skip(struct sm_cursor *cur, uint32_t n);
/** Copy @p n bytes out of the memory that a send WQE's segments name; 0 or a syndrome. */
uint32_t sm_gather(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, uint8_t *dst,
	uint32_t n);
/** Name that memory in @p g, of len bytes, instead; false: not so. */
bool sm_gather_refs(const struct sm_nic *nic, const struct sm_qp *qp, struct sm_cursor *cur,
	struct sm_grant *g);
/** Copy @p n bytes into the segments' memory; 0 or a syndrome (LOCAL_LENGTH: does not fit). */
uint32_t sm_scatter(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd,
	struct sm_cursor *cur, const uint8_t *src, uint32_t n);
/**
 * The same with the bytes that a reference names, which begin @p at bytes behind their message.
 * With 0 see also its syndrome.
 */
uint32_t sm_scatter_pull(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd,
	struct sm_cursor *cur, struct sm_pull *pull, uint32_t at);

/* ---- cq.c ---- */

/** Fields of a completion in native endian; what is 0 is written as 0. */
struct sm_wc {
	uint8_t op;       /**< enum sm_cqe_op. */
	uint8_t syndrome;
	bool solicited;
	uint8_t wqe_op;   /**< Requester: opcode of the WQE. */
	uint16_t counter;
	uint32_t imm;     /**< Big endian. */
	uint32_t len;
	uint32_t src_qpn;
	/** The payload, if it goes into the CQE: up to 32 bytes, or 64 if CQEs have 128. */
	const uint8_t *data;
};

/** The queue has no room, or looks so: true if it overran and is in error. */
bool sm_cq_full(struct sm_nic *nic, struct sm_cq *cq);

/**
 * Write a CQE; false: the queue overran and is in error.
 *
 * Always inlined: @p wc is made of constants and registers at each call, and the line is written by
 * whole words, which a reader's wider loads can be served from.
 */
static inline __attribute__((always_inline)) bool
sm_cq_push(struct sm_nic *nic, struct sm_cq *cq, struct sm_qp *qp, const struct sm_wc *wc)
{
	uint64_t *line, stamp = __builtin_bswap64(nic->now);
	uint32_t own;

	if (crpc_unlikely(((cq->pi - cq->ci) & SM_CQ_CI_MASK) >= cq->ncqe) && sm_cq_full(nic, cq))
		return false;
	if (wc->syndrome != 0) /* Bytes 54, vendor syndrome, and 55. */
		stamp = (uint64_t)wc->syndrome << 56;
	line = (uint64_t *)(void *)(cq->cqe + ((size_t)(cq->pi & (cq->ncqe - 1)) << cq->log_size));
	own = wc->op << 4 | (wc->solicited ? 2 : 0) | ((cq->pi >> cq->log_ncqe) & 1);
	line[0] = 0;
	line[1] = 0;
	line[2] = (uint64_t)__builtin_bswap16(SM_LID) << 48;
	line[3] = __builtin_bswap32(wc->src_qpn);
	line[4] = __builtin_bswap32(qp->uidx) | (uint64_t)wc->imm << 32;
	line[5] = (uint64_t)__builtin_bswap32(wc->len) << 32;
	line[6] = stamp;
	((uint32_t *)line)[14] = __builtin_bswap32((uint32_t)wc->wqe_op << 24 | qp->qpn);
	((uint16_t *)line)[30] = __builtin_bswap16(wc->counter);
	((uint8_t *)line)[62] = 0;
	if (wc->data != NULL) {
		bool wide = cq->log_size == 7; /* In the half before. */

		memcpy(line - (wide ? 8 : 0), wc->data, wc->len);
		own |= wide ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32;
	}
	cq->pi++;
	qp->n.cqes[wc->op != SM_CQE_REQ && wc->op != SM_CQE_REQ_ERR]++;
	/* C0: the CQE, and the data that it announces, come before the owner bit in its last byte;
	 * pairs with the barrier of the reader, crpc_dma_rmb(). */
	crpc_store_release((_Atomic uint8_t *)line + 63, (uint8_t)own);
	if (wc->solicited || wc->syndrome != 0)
		cq->solicited = cq->pi;
	if (!cq->touched) {
		cq->touched = true;
		cq->next_touched = nic->touched;
		nic->touched = cq;
	}
	return true;
}

/** The queue overran: it is in error, and nothing is written to it any more. */
void sm_cq_overrun(struct sm_nic *nic, struct sm_cq *cq);
/** Raise the event of an armed queue that has something. */
void sm_cq_arm_check(struct sm_nic *nic, struct sm_cq *cq);

/* ---- ledger.c ---- */

/** A queue pair goes: keep what it counted. */
void sm_ledger_keep(struct sm_nic *nic, const struct sm_qp *qp);
/** RC, UC and so on. */
const char *sm_qp_type_name(const struct sm_qp *qp);

/* ---- srq.c ---- */

/** As sm_recv_take(), where its short way finds nothing. */
bool sm_recv_more(struct sm_nic *nic, struct sm_qp *qp);
/** The WQE that was taken as @p counter was not used up: another message gets it. */
void sm_srq_return(struct sm_srq *srq, uint16_t counter);
/** Point at the segments of the receive WQE that was taken. */
void sm_recv_cursor(struct sm_qp *qp);

/** The domain in which receive buffers must lie. */
static inline const struct sm_pd *
sm_recv_pd(const struct sm_qp *qp)
{
	return qp->srq != NULL ? qp->srq->pd : qp->pd;
}

/** Take the next receive WQE of a queue pair; false: none is posted. */
static inline bool
sm_recv_take(struct sm_nic *nic, struct sm_qp *qp)
{
	if (crpc_unlikely(qp->rq_tail == qp->rq_head)) /* Always so with an SRQ. */
		return sm_recv_more(nic, qp);
	qp->rx.counter = qp->rq_tail++;
	return true;
}

/* ---- qp.c ---- */

static inline struct sm_qp *
sm_qp_find(const struct sm_nic *nic, uint32_t qpn)
{
	uint32_t i = qpn ^ nic->qpn_base;

	return crpc_likely(i < SM_QPS_MAX) ? nic->qps[i] : NULL;
}

/** Where a context starts to number its queue pairs: elsewhere than the slot's last owner. */
uint32_t sm_qp_number_first(uint32_t gen);
/** Decide whether its WQEs may take the short way. */
void sm_qp_way(const struct sm_nic *nic, struct sm_qp *qp);
/** Enter ERR and flush; @p event: what to raise, or -1. */
void sm_qp_fail(struct sm_nic *nic, struct sm_qp *qp, int event);
/** Complete in error what was posted to a queue pair in ERR. */
uint32_t sm_qp_flush(struct sm_nic *nic, struct sm_qp *qp);

/* ---- requester.c ---- */

enum sm_step {
	SM_STEP_ON,      /**< Go on. */
	SM_STEP_FULL,    /**< The ring is full: again in the next pass. */
	SM_STEP_BLOCKED, /**< Something else wakes it. */
};

/** The WQE in qp->tx leaves the queue and waits for its completion. */
void sm_sq_taken(struct sm_qp *qp);
/** Complete, in order, whatever is done. */
void sm_sq_complete(struct sm_nic *nic, struct sm_qp *qp);
/** The next WQE fails with @p synd, once everything before it has completed. */
void sm_sq_fail(struct sm_nic *nic, struct sm_qp *qp, uint8_t synd);

/** Look at the doorbell record and send; what does not fit goes on the active list. */
void sm_sq_ring(struct sm_nic *nic, struct sm_qp *qp);
/** Send; true: may be able to go on in the next pass. */
bool sm_sq_serve(struct sm_nic *nic, struct sm_qp *qp);
void sm_sq_activate(struct sm_nic *nic, struct sm_qp *qp);
/** The timer of a waiting QP. */
void sm_sq_timer(struct sm_nic *nic, struct sm_qp *qp);
/** The peer died. */
void sm_sq_peer_dead(struct sm_nic *nic, struct sm_qp *qp);
/** The far side has everything up to @p psn. */
void sm_sq_acked(struct sm_nic *nic, struct sm_qp *qp, uint32_t psn);
/** An acknowledgement or response. */
void sm_sq_answer(struct sm_nic *nic, struct sm_qp *qp, const struct sm_hdr *h,
	const uint8_t *payload);
/** A response that refers to its bytes. */
void sm_sq_answer_direct(struct sm_nic *nic, const struct sm_hdr *h, struct sm_pull *pull);
void sm_sq_unwait(struct sm_nic *nic, struct sm_qp *qp);
/** No answer in time: once more, or, if it @p counts and was the last time, the end. */
void sm_sq_timeout(struct sm_nic *nic, struct sm_qp *qp, bool counts);

/* ---- responder.c ---- */

/** A request packet. */
void sm_resp_request(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h,
	const uint8_t *payload);
/** A request that refers to its bytes. */
void sm_resp_direct(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h,
	struct sm_pull *pull);
/** Send what is owed; true: nothing is left. */
bool sm_resp_serve(struct sm_nic *nic, struct sm_qp *qp);
/** Settle what is owed before the queue pair goes. */
void sm_resp_settle(struct sm_nic *nic, struct sm_qp *qp);

/**
 * Refuse a request as if there were @p why; false: it is none that can be refused so. RNR is for
 * one that would use a receive WQE.
 */
bool sm_resp_refuse(
	struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why);
/** The message at hand ends here: its receive WQE, if it has one, serves again. */
void sm_recv_abandon(struct sm_qp *qp);

/* ---- fault.c ---- */

/** @p text: as SOFT_MLX5_FAULTS. 0, EINVAL or ENOMEM. */
int sm_fault_create(const char *text, uint32_t slot, struct sm_fault **fault);
void sm_fault_free(struct sm_fault *fault);
/** The faults of a context were set: everything that depends on them follows. */
void sm_fault_begin(struct sm_nic *nic);
/** True if send WQEs may fail by faults: none may take the short way. */
bool sm_fault_local(const struct sm_fault *fault);
/** True: the send WQE that @p qp begins fails, as if its memory were not registered. */
bool sm_fault_prot(struct sm_fault *fault, const struct sm_qp *qp);
/** True: the card does nothing now, being dead or busy with a slow DMA. */
bool sm_fault_stops(const struct sm_fault *fault, uint64_t now);
void sm_fault_pass(struct sm_nic *nic, uint32_t work);
/** What is on and what happened, as members of a JSON object. */
void sm_fault_print(const struct sm_fault *fault, FILE *out);
/** What becomes of a packet from a peer. */
void sm_fault_packet(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload);
/** Deliver what is due of a peer's late packets. */
void sm_fault_release(struct sm_nic *nic, struct sm_peer *p);
/** The peer goes, and its late packets with it. */
void sm_fault_forget(struct sm_nic *nic, const struct sm_peer *p);

/* ---- retry.c ---- */

/** How long an RNR timer's code means. */
uint64_t sm_retry_rnr_ns(uint32_t code);
/** Requesters that wait too long, and late packets. */
void sm_retry_timers(struct sm_nic *nic);

/* ---- wire_udp.c, pcap.c ---- */

struct sm_roce;
struct sm_roce_path;

/** ENOMEM, or why the port of @p slot of @p addr cannot be had. */
int sm_udp_open(uint32_t addr, uint32_t slot, struct sm_udp **udp);
void sm_udp_close(struct sm_udp *udp);
/** Read what came, a bounded amount; number of packets. */
uint32_t sm_udp_receive(struct sm_nic *nic);
/** Handle what came in a datagram, from BTH to ICRC; false: it is nothing, or for nobody. */
bool sm_udp_packet(
	struct sm_nic *nic, const struct sm_roce_path *path, const uint8_t *bytes, uint32_t n);
/** Send what lies in the rings. */
void sm_udp_send(struct sm_nic *nic);
/** One more peer may be made; of those that came by themselves there are fewer. */
bool sm_udp_room(const struct sm_nic *nic, bool guest);
void sm_udp_peers(struct sm_nic *nic, const struct sm_peer *peer, int more);
/** The word by which a context of another host shows that our packets reach it. */
uint64_t sm_udp_cookie(const struct sm_nic *nic, uint32_t addr, uint32_t slot);
/** Nobody needs this peer any more. */
bool sm_udp_forgettable(const struct sm_peer *peer);

/** Begin, or go on with, a capture; no @p path: none. */
int sm_pcap_open(const char *path, uint64_t epoch_ns, struct sm_pcap **pcap);
/** @p drop: what is not written yet belongs to somebody else. */
void sm_pcap_close(struct sm_pcap *pcap, bool drop);
void sm_pcap_packet(
	struct sm_pcap *pcap, uint64_t now, uint32_t src, uint32_t dst, const struct sm_roce *p);
/** What was written to a ring since the last time. */
void sm_pcap_ring(struct sm_nic *nic, struct sm_peer *p);
/** The same for all rings, and write it to the file. */
void sm_pcap_pass(struct sm_nic *nic);
/** The transport, an enum sm_roce_transport, of what we send, and its MTU. */
uint8_t sm_roce_of(const struct sm_nic *nic, const struct sm_hdr *h, uint32_t *mtu_shift);

/* ---- datagram.c ---- */

/** Send the WQE at hand of a UD queue pair. */
enum sm_step sm_datagram_send(struct sm_nic *nic, struct sm_qp *qp);
void sm_datagram_receive(struct sm_nic *nic, const struct sm_hdr *h, const uint8_t *payload);

/* ---- dc.c ---- */

/** Be connected to the target of the WQE at hand of a DCI. */
enum sm_step sm_dci_connect(struct sm_nic *nic, struct sm_qp *qp);
/** Leave the target, if it is still there to be told. */
void sm_dci_leave(struct sm_nic *nic, struct sm_qp *qp);
/** CONNECT or DISCONNECT. */
void sm_dct_control(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h);
/**
 * Whether a request that says of which life its DCI is may go on to its connection, or has none
 * yet. If not it was answered, or comes late.
 */
bool sm_dct_knows(struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer,
	const struct sm_hdr *h, uint32_t life);
/** The connection that a request to @p dct belongs to; NULL: none, and it was refused. */
struct sm_qp *sm_dct_conn(
	struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer, const struct sm_hdr *h);
/** A peer was not heard for so long that what it was connected to may be forgotten. */
void sm_dct_silent(struct sm_nic *nic, struct sm_peer *peer);
void sm_dct_drop(struct sm_nic *nic, struct sm_qp *dct);
void sm_dct_conn_free(struct sm_nic *nic, struct sm_qp *conn);

/* ---- peer.c ---- */

/** Whom a connected queue pair's address means, made if need be; nobody: one that is dead. */
int sm_peer_get(struct sm_nic *nic, const struct sm_qp_mod *m, struct sm_peer **peer);
/**
 * Whom an address vector means, with a ring to it; @p peer NULL: nobody lives there. Otherwise why
 * there is no ring, as ENOMEM.
 */
int sm_peer_av(struct sm_nic *nic, const struct sm_av *av, struct sm_peer **peer);
/** Who is known of a (slot, generation), or NULL. */
struct sm_peer *sm_peer_find(struct sm_nic *nic, uint32_t slot, uint32_t gen);
/** UDP: who lives in a slot of a host, with a way there, made if need be. NULL: no more can be. */
struct sm_peer *sm_peer_from(struct sm_nic *nic, uint32_t slot, uint32_t addr, bool guest);
/** Send the NAKs that found the ring full. */
void sm_peer_late(struct sm_peer *peer);
void sm_peer_join(struct sm_peer *peer, struct sm_qp *qp);
void sm_peer_leave(struct sm_nic *nic, struct sm_qp *qp);
/** Read what a peer sent, a bounded amount; number of packets. */
uint32_t sm_peer_poll(struct sm_nic *nic, struct sm_peer *peer);
/** The LID or GID is of one of the host's devices. */
static inline bool
sm_lid_here(const struct sm_nic *nic, uint32_t lid)
{
	return lid - SM_LID < nic->devices;
}

static inline bool
sm_gid_here(const struct sm_nic *nic, const uint8_t gid[16])
{
	uint64_t base = sm_be64(nic->gid + 8) - nic->device;

	return memcmp(gid, nic->gid, 8) == 0 && sm_be64(gid + 8) - base < nic->devices;
}

/** The same for who lives in a slot. */
int sm_peer_look(struct sm_nic *nic, uint32_t slot, struct sm_peer **peer);

/** Move a peer to another list of polled ones. */
void sm_peer_polled(struct sm_nic *nic, struct sm_peer *peer, enum sm_polled polled);
/** Map the rings that were made to us. */
void sm_peer_discover(struct sm_nic *nic);
/** Look for deaths and drop peers that nobody needs. */
void sm_peer_check(struct sm_nic *nic);
/** Refuse what no queue pair answers for, now or when the ring has room. */
void sm_peer_nak(struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why);
void sm_peer_free(struct sm_nic *nic, struct sm_peer *peer);
/** Handle a packet. */
void sm_peer_packet(
	struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h, const uint8_t *payload);

#endif
