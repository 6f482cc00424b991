/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_QP_H
#define SOFT_MLX5_ENGINE_QP_H

/**
 * @file
 * Queue pairs: what each type of them is, and the parts of one.
 */

#include "count.h"
#include "dc.h"
#include "requester.h"
#include "responder.h"

/** Whom a queue pair sends to. */
enum sm_sends {
	SM_SENDS_NOTHING, /**< It is a target. */
	SM_SENDS_TO_PEER, /**< As the command that made it ready says. */
	SM_SENDS_TO_TARGETS, /**< As each WQE says, with a connection for a while. */
	SM_SENDS_DATAGRAMS, /**< As each WQE says. */
};

/** What a queue pair receives. */
enum sm_takes {
	SM_TAKES_NOTHING,
	SM_TAKES_IN_ORDER, /**< Packets with the numbers that are expected; it answers. */
	SM_TAKES_NEWEST,   /**< What begins a message, with any number, and what follows it. */
	SM_TAKES_DATAGRAMS,
};

/** What a type of queue pair is: a row of the table in qp.c. */
struct sm_qp_kind {
	uint8_t type; /**< enum sm_qp_type. */
	const char *name;
	uint8_t transport; /**< enum sm_roce_transport. */
	uint8_t sends;     /**< enum sm_sends. */
	uint8_t takes;     /**< enum sm_takes. */
	bool reliable;     /**< What it sends is acknowledged, or sent again. */
	uint32_t attrs;    /**< Attributes that it has, of enum ibv_qp_attr_mask. */
};

struct sm_qp {
	struct sm_obj obj;
	const struct sm_qp_kind *kind;
	struct sm_requester req;
	struct sm_responder resp;
	struct sm_dc dc;
	_Atomic uint32_t *dbrec;
	struct sm_peer *peer;
	uint32_t qpn;
	uint32_t dest_qpn;
	/** Both as packets name them: a number, and the kind of RoCE (SM_SRC_KIND). */
	uint32_t from, far;
	uint8_t state;
	uint8_t mtu_shift; /**< Of the path's MTU, in bytes. */
	uint8_t headers;   /**< Bytes of headers that each packet has on the wire. */
	bool on[SM_TURNS]; /**< Whether it is on nic->turn[]. */
	struct sm_qp_attr made; /**< As it was asked for, less what its type lacks. */
	struct ib_uverbs_modify_qp attr;
	struct sm_uar *uar;
	TAILQ_ENTRY(sm_qp) turn_link[SM_TURNS];
	TAILQ_ENTRY(sm_qp) uar_link;
	TAILQ_ENTRY(sm_qp) peer_link;
	struct sm_count n;
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

/** Have its turn, if it does not wait for it already. */
static inline void
sm_turn_add(struct sm_nic *nic, struct sm_qp *qp, enum sm_turn turn)
{
	if (qp->on[turn])
		return;
	qp->on[turn] = true;
	TAILQ_INSERT_TAIL(&nic->turn[turn], qp, turn_link[turn]);
}

static inline void
sm_turn_del(struct sm_nic *nic, struct sm_qp *qp, enum sm_turn turn)
{
	if (qp->on[turn])
		TAILQ_REMOVE(&nic->turn[turn], qp, turn_link[turn]);
	qp->on[turn] = false;
}

/** The kind of RoCE of the port's GID @p index, as packets name it. */
static inline uint32_t
sm_gid_kind(const struct sm_nic *nic, uint8_t index)
{
	return index < 32 && (nic->attr.roce_v1 >> index & 1) != 0 ? SM_SRC_ROCE_V1 : 0;
}

/** The number of a queue pair and the kind of route, and that of its peer, as packets have them. */
static inline void
sm_qp_names(const struct sm_nic *nic, struct sm_qp *qp, uint32_t kind)
{
	if (qp->attr.pkey_index != 0)
		kind |= SM_SRC_PKEY;
	qp->from = qp->qpn | kind;
	qp->far = qp->dest_qpn | kind;
	if (nic->attr.pkey_limited && qp->attr.pkey_index == 0)
		qp->from |= SM_SRC_LIMITED;
}

/** WQEs carry an address vector. */
static inline bool
sm_qp_has_av(const struct sm_qp *qp)
{
	return qp->kind->sends >= SM_SENDS_TO_TARGETS;
}

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
/** It goes. */
void sm_qp_forget(struct sm_nic *nic, struct sm_qp *qp);
/** Enter ERR and flush; @p event: what to raise, or -1. */
void sm_qp_fail(struct sm_nic *nic, struct sm_qp *qp, int event);
/** Complete in error what was posted to a queue pair in ERR. */
uint32_t sm_qp_flush(struct sm_nic *nic, struct sm_qp *qp);

/** The domain in which receive buffers must lie. */
static inline const struct sm_pd *
sm_recv_pd(const struct sm_qp *qp)
{
	return qp->made.srq != NULL ? qp->made.srq->obj.pd : qp->made.pd;
}

/* ---- uar.c ---- */

/** Ring at the page @p id from now on; false: there is none. */
bool sm_uar_join(struct sm_nic *nic, struct sm_qp *qp, uint32_t id);
void sm_uar_leave(struct sm_qp *qp);
/** Forget what the doorbell registers held, before a queue pair starts to count from 0. */
void sm_uar_forget(struct sm_uar *uar);
/** Look at all registers; number of doorbells. */
uint32_t sm_uars_poll(struct sm_nic *nic);
/** Nothing rang. */
bool sm_uars_quiet(const struct sm_nic *nic);

/* ---- ledger.c ---- */

/** A queue pair goes: keep what it counted. */
void sm_ledger_keep(struct sm_nic *nic, const struct sm_qp *qp);

#endif
