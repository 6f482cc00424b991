/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_PEER_H
#define SOFT_MLX5_ENGINE_PEER_H

/**
 * @file
 * Another context, or ourselves: the rings to it and from it.
 */

#include <sys/queue.h>

#include "wire.h"

struct sm_av;
struct sm_qp;

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
	bool guest;	  /**< It came by itself. */
	struct sm_hdr *late; /**< NAKs of no queue pair that found the ring full. */
	uint32_t nlate, late_room;
	uint32_t spoke;   /**< On a lossy wire: packets that came, lost ones too. */
	TAILQ_HEAD(, sm_qp) qps;
	TAILQ_ENTRY(sm_peer) link;
	LIST_ENTRY(sm_peer) name_link;
};

TAILQ_HEAD(sm_peer_list, sm_peer);

/** Its ring is read, which needs one to answer by. */
static inline bool
sm_peer_is_heard(const struct sm_peer *p)
{
	return p->rx.ring != NULL && p->tx.ring != NULL && !p->dead;
}

/** How often a silent peer is checked for life. */
#define SM_ALIVE_NS UINT64_C(20000000)

/** Whom a connected queue pair's address means, made if need be; none there: one that is dead. */
int sm_peer_get(struct sm_nic *nic, const struct ib_uverbs_modify_qp *m, struct sm_peer **peer);
/**
 * Whom an address vector means, with a ring to it; @p peer NULL: there is no context. Otherwise why
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
/** Map the rings that were made to us. */
void sm_peer_discover(struct sm_nic *nic);
/** Look for deaths and drop peers that are not needed. */
void sm_peer_check(struct sm_nic *nic);
/** Refuse what no queue pair answers for, now or when the ring has room. */
void sm_peer_nak(struct sm_peer *peer, const struct sm_hdr *h, enum sm_nak why);
void sm_peer_free(struct sm_nic *nic, struct sm_peer *peer);
/** Handle a packet; false: it is another peer's turn. */
bool sm_peer_packet(
	struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h, const uint8_t *payload);

#endif
