/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_DAEMON_H
#define KV_DAEMON_H

/**
 * @file
 * One daemon of a rank: one loop on one lcore between its clients, its store, the other daemons of
 * the rank and the other ranks.
 *
 * One turn, each phase at most CRPC_BURST_MAX items, no phase calls another:
 *
 *     1 copyrpc poll   answers of other ranks       -> ipc reply
 *     2 copyrpc recv   requests of other ranks      -> store -> copyrpc reply
 *                                                   -> --delegate flux, not ours: flux call
 *     3 flux poll      answers of other daemons     -> ipc reply, or copyrpc reply
 *     4 flux recv      requests of other daemons    -> store -> flux reply
 *     5 ipc recv       requests of our clients      -> local: store -> ipc reply
 *                                                   -> another daemon's: flux call, or backlog
 *                                                   -> another rank's: copyrpc call, or backlog
 *     6 backlogs       what waited for room         -> flux call, copyrpc call
 *     7 flush          batches leave
 *
 * With another backend than copyrpc the requests of 5 come by its port instead of ipc (backend.h).
 *
 * 3 and 4 are there where the rank has several daemons, 1 and 2 where there are several ranks.
 *
 * The cookie of a call to another rank is the ipc token it answers: nothing is looked up on the way
 * back. A request is passed on, and a response handed on, as the bytes they are. Every key has one
 * owner, so each store has one user.
 *
 * A value above KV_VALUE_INLINE comes from a client in a block of the daemon's arena, as its whole
 * request; the store keeps that block, and a get is answered with a copy in another one. All others
 * take and give such messages as they do small ones, in one piece.
 *
 * Every millisecond or two, outside of the phases, kv_daemon_watch() does what may cost a system
 * call.
 */

#include "backend.h"
#include "crpc_ipc.h"
#include "crpc_kv_blocks.h"
#include "hop.h"
#include "live.h"
#include "net.h"
#include "result.h"
#include "store.h"

/** One turn in this many is timed; a power of two. */
#define KV_PHASE_SAMPLE 64

/** Counters since creation. */
struct kv_daemon_stats {
	uint64_t turns, busy; /**< Turns of the loop; of these: with work. */
	/** Requests of clients, by enum kv_path: served here, passed to another daemon, to a rank.
	 */
	uint64_t path[KV_PATHS];
	uint64_t ranks;   /**< Requests of other ranks. */
	uint64_t relayed; /**< Of these: passed to another daemon. */
	uint64_t mates;   /**< Requests of other daemons of the rank. */
	uint64_t failed;  /**< Requests that ended with an error. */
	uint64_t bad;     /**< Malformed requests. */
	uint64_t timed;   /**< Turns, one in KV_PHASE_SAMPLE, whose phases were timed. */
	uint64_t phase_ns[KV_TURN_PHASES]; /**< In those. */
	uint64_t taken[KV_TAKEN_BUCKETS];  /**< Turns by the requests of clients that they took. */
};

/** The service. */
struct kv_daemon {
	struct crpc_ipc_server *ipc;
	struct kv_end *port; /**< Instead of ipc; NULL: ipc. */
	uint64_t now;        /**< Of this turn; for the port. */
	bool blind;          /**< Without insight: nothing that only is to be looked at. */
	uint32_t link_first, links; /**< Peers of the port that are of this rank. */
	struct kv_store *store;
	/** Of values above KV_VALUE_INLINE; zeroed: there are none. */
	struct crpc_kv_blocks blocks;
	struct kv_net *net; /**< NULL: no other rank. */
	struct kv_hop *hop; /**< NULL: no other daemon in this rank. */
	struct kv_fate *fate;
	uint32_t self;    /**< Our number among all owners. */
	uint32_t first;   /**< That of daemon 0 of this rank. */
	uint32_t daemons; /**< Of this rank. */
	uint32_t owners;  /**< Of all ranks. */
	uint32_t keys;    /**< That it owned at the start. */
	bool relay;       /**< Other ranks may send what another daemon of ours owns. */
	uint32_t key_min, key_size; /**< Of the shortest and the longest key. */
	uint32_t value_size;
	struct kv_info info; /**< Answer to KV_INFO; .writer is the next one. */
	uint32_t writer_first, writer_end; /**< Writer ids for client processes. */
	uint32_t writer_of[CRPC_IPC_CLIENTS_MAX]; /**< That each client was given last. */
	struct kv_daemon_stats stats;
	struct kv_batch batch;
	struct crpc_req req[CRPC_BURST_MAX];
	struct crpc_done done[CRPC_BURST_MAX];
	struct kv_answered answered[CRPC_BURST_MAX];
	uint64_t asked[CRPC_IPC_CLIENTS_MAX]; /**< What each client had asked at the last look. */
	uint32_t watches;
	uint64_t deaths; /**< Of client processes, that were reported. */
	uint32_t index[CRPC_BURST_MAX]; /**< Batch entry i came with req[index[i]]. */
	uint8_t msg[KV_RESP_MAX] crpc_aligned(CRPC_CACHE_LINE);

	/** At the begin of the measured window, and what was counted in it. */
	struct kv_daemon_stats begin;
	struct crpc_rdma_stats rdma_begin;
	uint64_t waited_begin;
	struct kv_live_carry carry;
	struct kv_daemon_counts counts;
	struct kv_net_counts net_counts;
};

/** One turn. @return how many things were done. */
uint32_t kv_daemon_turn(struct kv_daemon *d, uint64_t now);

/** Look into what it does, or not, from now on. */
void kv_daemon_insight(struct kv_daemon *d, bool on);

/** Go on with this flush policy towards other ranks. */
void kv_daemon_flush(struct kv_daemon *d, enum crpc_copyrpc_flush_policy policy);

/** Look after clients and peers; every millisecond or two. */
void kv_daemon_watch(struct kv_daemon *d, uint64_t now, bool ask_peers);

/** Requests that ever waited for room. */
uint64_t kv_daemon_waited(const struct kv_daemon *d);

/** The measured window begins. */
void kv_daemon_measure(struct kv_daemon *d);

/** It ends: fill in counts and net_counts. */
void kv_daemon_freeze(struct kv_daemon *d);

#endif
