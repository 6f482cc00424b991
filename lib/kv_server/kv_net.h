/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_NET_H
#define KV_NET_H

/**
 * @file
 * The other ranks, as one daemon sees them: copyrpc endpoints to their daemons, who is alive, and
 * what waits for room.
 *
 *     direct       an endpoint to every daemon of every other rank: a request goes to its owner
 *     by number    an endpoint to one daemon of every other rank, the one with our own number,
 *                  which forwards by flux what it does not own: fewer connections, one hop more
 *
 * Where values may not fit the rings there are KV_NET_LANES endpoints to each of these daemons, and
 * a request takes the first that has room: an endpoint carries one large request and one large
 * reply at a time, and the next one should be on its way while that is copied.
 *
 * A request that copyrpc cannot take now (-EAGAIN) waits in the peer's backlog, a copy of its own,
 * first in, first out; so nothing ever spins for room inside a handler. There are at most as many
 * waiting requests as ipc calls can be open, and the pool has a place for each.
 *
 * A rank is lost when the program finds it dead (crpc_kv_server_lose()), or when an endpoint to it
 * breaks, as it does at most a quarter after the deadline of a call if nothing arrives
 * (crpc_copyrpc_conf.peer_timeout_ns). A lost rank is lost for all daemons of the rank that lost it
 * (struct kv_fate).
 *
 * Belongs to the daemon's thread.
 */

#include "crpc_kv_server.h"
#include "kv_wait.h"

_Static_assert(CRPC_KV_TIMEOUT_NS * 5 / 4 < 1700000000, "a lost rank is reported in time");
/** Endpoints to one daemon, in a run with large values. */
#define KV_NET_LANES 4
/** Cookie of our own calls, whose answers nothing waits for; never a token of ipc. */
#define KV_NET_COOKIE_OWN UINT64_MAX

/**
 * Another rank, for all daemons. `want` is the step that each of them shall take: it rises, odd is
 * to connect, even to make endpoints fresh. A daemon that has taken it stores it as its `seen`.
 *
 *     control thread                                     each daemon's watch()
 *     connect: addresses, want = odd        R1 ->  A1    connects to the addresses
 *     renew:   want = even                  R1 ->  A1    resets its endpoints, or makes them
 *     peer():  all have seen it             A2 <-  R2    seen = want
 *     wanted()                              A3 <-  R3    a request for it waits
 *
 * With conf.on_use there are no endpoints until want is 2: the first address makes them.
 */
struct kv_other {
	_Atomic uint32_t want;
	const char *_Atomic why; /**< It is lost; NULL: it is not. */
	_Atomic uint32_t here;   /**< With on_use: requests for it may wait. */
	_Atomic uint32_t asked;  /**< A request waits for it to be connected. */
	uint8_t *addresses;      /**< That want was raised for. */
	bool renewing;           /**< The control thread's, as is ... */
	bool made;               /**< There are endpoints, fresh or not. */
};

/** What the daemons of a rank learn from each other and from the control thread. */
struct kv_fate {
	_Atomic uint32_t started;  /**< A daemon's loop runs: the endpoints are its own. */
	_Atomic uint32_t stop;     /**< Another rank was interrupted. */
	_Atomic uint32_t ask_stop; /**< Ours was: daemon 0 sends it to all. */
	_Atomic uint32_t leave; /**< Peers may leave without harm: they are not asked any more. */
	_Atomic uint32_t lost;  /**< Ranks that were lost. */
	_Atomic uint32_t asked; /**< That of a rank may be set. */
	struct kv_other *other; /**< Array of ranks. */
};

/** Whether there are values that fit neither ipc's slots nor, maybe, the rings. */
static inline bool
kv_is_large(const struct crpc_kv_server_conf *c)
{
	return c->value_max > CRPC_KV_VALUE_INLINE;
}

/** Bytes of the largest request, and response. */
static inline uint32_t
kv_req_max(const struct crpc_kv_server_conf *c)
{
	return (uint32_t)sizeof(struct kv_req_hdr) + c->key_size + c->value_max +
		(c->plain ? 0 : CRPC_KV_EXTRAS_MAX);
}

static inline uint32_t
kv_resp_max(const struct crpc_kv_server_conf *c)
{
	return (uint32_t)sizeof(struct kv_resp_hdr) + c->value_max;
}

/** One endpoint to one daemon of another rank. */
struct kv_peer {
	struct crpc_copyrpc_ep *ep;
	uint32_t rank;
	uint32_t daemon;
	uint32_t lane;         /**< Which of those to this daemon. */
	bool down;             /**< Not there or not connected, or lost. */
	_Atomic uint32_t seen; /**< Of a rank's first endpoint: see struct kv_other. */
	uint32_t tries;        /**< Of it: resets in a row that were not possible. */
	uint64_t retry_ns;     /**< When the next one is due. */
};

/** All other ranks. */
struct kv_net {
	uint32_t rank, ranks, daemon, daemons;
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct kv_fate *fate;
	uint64_t timeout_ns;
	uint32_t req_max;          /**< Bytes of a request that may wait. */
	struct kv_peer *peer;      /**< Array of peers. */
	struct kv_peer **by_owner; /**< Through whom an owner is reached; NULL for our rank. */
	uint32_t peers;
	uint32_t lanes;      /**< Consecutive ones that lead to the same daemon. */
	struct kv_wait wait; /**< A queue for each endpoint: a daemon's first one's is for all. */
	bool by_number;
	struct crpc_copyrpc_ep_conf link;
	char device[64];
	char silence[48]; /**< Why a rank that does not answer is lost. */
};

/** A rank is lost; the first daemon or lcore that finds it gives the reason. */
void __crpc_kv_fate_lose(struct kv_fate *fate, uint32_t rank, const char *why);

/** The first endpoint to a rank; the others to it follow. */
static inline struct kv_peer *
kv_net_first(const struct kv_net *net, uint32_t rank)
{
	return &net->peer[(rank - (rank > net->rank)) * (net->peers / (net->ranks - 1))];
}

/**
 * Open the device and make the endpoints of a daemon to all other ranks.
 *
 * @return
 *   0, or -errno; then close it all the same.
 */
int __crpc_kv_net_open(struct kv_net *net, const struct crpc_kv_server_conf *c, uint32_t daemon,
	struct kv_fate *fate);

/** Endpoints to one rank. */
static inline uint32_t
kv_net_endpoints(const struct kv_net *net)
{
	return net->peers / (net->ranks - 1);
}

/**
 * Write the addresses that a rank needs to reach us: kv_net_endpoints() of them, in the order of
 * its daemons.
 */
void __crpc_kv_net_address(const struct kv_net *net, uint32_t rank, uint8_t *buf);

/** Take the steps that the control thread wants; in watch(), or, now 0, before the first turn. */
void __crpc_kv_net_attend(struct kv_net *net, uint64_t now);

void __crpc_kv_net_close(struct kv_net *net);

/**
 * Send a client's request towards its owner, now or as soon as there is room.
 *
 * @return
 *   0: it completes through crpc_copyrpc_poll() with the token as cookie; -EHOSTUNREACH: that rank
 *   is not connected, was not asked, and does not come soon (kv_other.here); -ENOBUFS: more
 *   waiting than calls can be open; -EMSGSIZE: larger than any request of this run; or another
 *   final error.
 */
int __crpc_kv_net_call(struct kv_net *net, uint64_t now, uint32_t owner, const void *msg,
	uint32_t len, uint32_t resp_max, uint64_t token);

/** Send a request that waits: a kv_wait_send, of a struct kv_net. */
int __crpc_kv_net_send(void *of, uint32_t peer, struct kv_record *rec, uint64_t now);

/** Every few milliseconds: look at the endpoints. */
void __crpc_kv_net_watch(struct kv_net *net, uint64_t now);

/** Notify every rank that the run was interrupted here. */
void __crpc_kv_net_send_stop(struct kv_net *net, uint64_t now);

#endif
