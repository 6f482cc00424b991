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
 * A rank is lost when its process, or its host, is found dead (app_watch.h), which is known at once
 * and for all backends in the same way; when an endpoint to it breaks; or when an answer does not
 * come in time: every KV_NET_PING_NS each peer is asked whether it is there, and a call ends at
 * most a quarter after its deadline. Where every rank is watched, this deadline is for one that
 * hangs: it is long, so that a peer which only was not given a core is not called dead. Where one
 * cannot be watched, the deadline finds it dead, and it is reported within 2 s all the
 * same. A lost rank stays lost, for all daemons of the rank that lost it (struct kv_fate).
 *
 * Belongs to the daemon's thread.
 */

#include "app_boot.h"
#include "crpc_atomic.h"
#include "crpc_copyrpc.h"
#include "crpc_kv_proto.h"
#include "result.h"

/** How long the exchange of addresses may take. */
#define KV_NET_EXCHANGE_MS 30000
/** Time between two questions to a peer. */
#define KV_NET_PING_NS UINT64_C(100000000)
/** Deadline of every call, where not every rank is watched. */
#define KV_NET_TIMEOUT_NS UINT64_C(1200000000)
_Static_assert(KV_NET_PING_NS + KV_NET_TIMEOUT_NS * 5 / 4 < 1700000000, "reported in time");
/** And where every rank is. */
#define KV_NET_PATIENCE_NS UINT64_C(4000000000)
/** Every call has ended after that, whatever happened. */
#define KV_NET_LONGEST_NS (KV_NET_PATIENCE_NS * 5 / 4)
/** Endpoints to one daemon, in a run with large values. */
#define KV_NET_LANES 4
/** Endpoints of one daemon at most. */
#define KV_NET_PEERS_MAX (KV_OWNERS_MAX * KV_NET_LANES)
/** Cookies of our own calls; those of ipc tokens are below (KV_NET_COOKIE_OWN is never a token). */
#define KV_NET_COOKIE_OWN (UINT64_MAX - 2 * KV_NET_PEERS_MAX)

/** What the daemons of a rank learn about the run, each for all: words that only ever rise. */
struct kv_fate {
	_Atomic uint32_t stop;               /**< Another rank was interrupted. */
	_Atomic uint32_t lost;               /**< Ranks that are lost. */
	_Atomic uint8_t gone[APP_RANKS_MAX]; /**< Which. */
};

/** Deadline of a call to another rank. */
static inline uint64_t
kv_net_timeout_ns(const struct app_boot *boot)
{
	return boot->watched ? KV_NET_PATIENCE_NS : KV_NET_TIMEOUT_NS;
}

/** Whether a rank is lost; for watch(). */
static inline bool
kv_fate_gone(const struct kv_fate *fate, uint32_t rank)
{
	return crpc_load_relaxed(&fate->gone[rank]) != 0;
}

/** How to make it. */
struct kv_net_conf {
	const char *device; /**< NULL: the first that fits. */
	enum crpc_copyrpc_flush_policy flush;
	uint64_t hold_ns;      /**< As copyrpc's. */
	uint32_t daemon;       /**< Which of this rank we are. */
	uint32_t daemons;      /**< Of each rank. */
	bool by_number;        /**< Endpoints to one daemon of each rank only. */
	uint32_t max_inflight; /**< Calls that clients of this daemon can have open. */
	uint32_t req_max;      /**< Bytes of the largest request and response of this run. */
	uint32_t resp_max;
	bool large; /**< They may not fit the rings. */
	struct kv_fate *fate; /**< The rank's. */
};

/** A request that waits for room. Its bytes follow. */
struct kv_waiting {
	struct kv_waiting *next;
	uint64_t token;
	uint32_t len;
	uint32_t resp_max;
};

/** One endpoint to one daemon of another rank. */
struct kv_peer {
	struct crpc_copyrpc_ep *ep;
	struct kv_waiting *first, **last; /**< Of a daemon's first endpoint: for all of them. */
	uint64_t ping_ns; /**< When it was asked last. */
	uint32_t rank;
	uint32_t daemon;
	uint32_t lane; /**< Which of those to this daemon. */
	bool ping_open;
	bool lost;
};

/** All other ranks. */
struct kv_net {
	uint32_t rank, ranks, daemon, daemons;
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct kv_fate *fate;
	uint64_t timeout_ns;
	uint32_t req_max; /**< Bytes of a request that may wait. */
	struct kv_peer *peer;      /**< Array of peers. */
	struct kv_peer **by_owner; /**< Through whom an owner is reached; NULL for our rank. */
	uint32_t peers;
	uint32_t lanes; /**< Consecutive ones that lead to the same daemon. */
	uint32_t waiting; /**< In all backlogs. */
	uint8_t *pool;
	struct kv_waiting *pool_free;
	uint64_t waited; /**< Requests that ever waited. */
	char device[64];
};

/** Calls open on one endpoint: those of clients, and our own. */
static inline uint32_t
kv_net_inflight(uint32_t max_inflight)
{
	return (uint32_t)crpc_min(max_inflight + 4, CRPC_COPYRPC_INFLIGHT_MAX);
}

/** Bytes of a lane that holds what max_inflight calls need, without waste at small sizes. */
uint32_t kv_net_ring_size(const struct kv_net_conf *conf);

/**
 * Open a device for this many endpoints.
 *
 * @param name
 *   64 bytes; what it is called.
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int kv_net_open_device(
	const struct kv_net_conf *conf, uint32_t eps, struct crpc_rdma **dev, char name[64]);

/** Add what a context and its device counted since their measured window began. */
void kv_net_count(const struct crpc_copyrpc *ctx, struct crpc_rdma *dev,
	const struct crpc_rdma_stats *begin, struct kv_net_counts *counts);

/** Rank @p self found that another is lost; the first daemon or lcore that finds it says so. */
void kv_fate_lose(struct kv_fate *fate, uint32_t self, uint32_t rank, const char *why);

/**
 * Open the device and make the endpoints.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line (app_fail()).
 */
int kv_net_open(struct kv_net *net, const struct app_boot *boot, const struct kv_net_conf *conf);

/** Publish our addresses; a fence of all ranks follows. @return 0 or -errno. */
int kv_net_publish(struct kv_net *net, struct app_boot *boot);

/** Connect to the published addresses, after that fence. @return as kv_net_open(). */
int kv_net_connect(struct kv_net *net, struct app_boot *boot);

void kv_net_close(struct kv_net *net);

/**
 * Send a client's request towards its owner, now or as soon as there is room.
 *
 * @return
 *   0: it completes through crpc_copyrpc_poll() with the token as cookie; -EHOSTUNREACH: that rank
 *   is lost, and was not asked; -ENOBUFS: more waiting than calls can be open; -EMSGSIZE: larger
 *   than any request of this run; or another final error.
 */
int kv_net_call(struct kv_net *net, uint64_t now, uint32_t owner, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t token);

/** Give waiting requests to copyrpc, as far as there is room. @return how many. */
uint32_t kv_net_drain(struct kv_net *net, uint64_t now);

/** A completion with a cookie of ours (at or above KV_NET_COOKIE_OWN). */
void kv_net_own_done(struct kv_net *net, const struct crpc_done *done);

/**
 * Every few milliseconds: ask the peers, look at the endpoints.
 *
 * @param ask
 *   False at the end of a run, when peers may leave without harm: do nothing.
 */
void kv_net_watch(struct kv_net *net, uint64_t now, bool ask);

/** Notify every rank that the run was interrupted here. */
void kv_net_send_stop(struct kv_net *net, uint64_t now);

/**
 * Take the oldest waiting request of a lost peer, to fail it.
 *
 * @return
 *   True if there was one; *token is set.
 */
bool kv_net_pop_lost(struct kv_net *net, uint64_t *token);

#endif
