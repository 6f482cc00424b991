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
 *                                                   -> by_number, not ours: flux call
 *     3 flux poll      answers of other daemons     -> ipc reply, or copyrpc reply
 *     4 flux recv      requests of other daemons    -> store -> flux reply
 *     5 ipc recv       requests of our clients      -> local: store -> ipc reply
 *                                                   -> another daemon's: flux call, or backlog
 *                                                   -> another rank's: copyrpc call, or backlog
 *     6 backlogs       what waited for room         -> flux call, copyrpc call
 *     7 flush          batches leave
 *
 * With a struct crpc_kv_front the requests of 5 come by it instead of ipc.
 *
 * 3 and 4 are there where the rank has several daemons, 1 and 2 where there are several ranks.
 *
 * The cookie of a call to another rank is the ipc token it answers: nothing is looked up on the way
 * back. A request is passed on, and a response handed on, as the bytes they are. Every key has one
 * owner, so each store has one user.
 *
 * A value above CRPC_KV_VALUE_INLINE comes from a client in a block of the daemon's arena, as its
 * whole request; the store keeps that block, and a get is answered with a copy in another one. All
 * others take and give such messages as they do small ones, in one piece.
 *
 * Every millisecond or two, outside of the phases, crpc_kv_daemon_watch() does what may cost a
 * system call.
 */

#include "crpc_ipc.h"
#include "crpc_kv_blocks.h"
#include "kv_hop.h"
#include "kv_net.h"
#include "kv_store.h"

/** The service. */
struct crpc_kv_daemon {
	struct crpc_ipc_server *ipc;
	const struct crpc_kv_front *front; /**< Instead of ipc; NULL: ipc. */
	void *end;                         /**< Of the front. */
	uint64_t now;                      /**< Of this turn. */
	bool blind;                 /**< Without insight: nothing that only is to be looked at. */
	uint32_t link_first, links; /**< Peers of the front that are of this rank. */
	struct kv_store *store;
	struct crpc_kv_daemon *here[CRPC_KV_DAEMONS_MAX]; /**< Others of this thread, by number. */
	uint32_t joined;                                  /**< How many. */
	/** Of values above CRPC_KV_VALUE_INLINE; zeroed: there are none. */
	struct crpc_kv_blocks blocks;
	struct kv_net *net; /**< NULL: no other rank. */
	struct kv_hop *hop; /**< NULL: no other daemon in this rank. */
	struct kv_fate *fate;
	uint32_t self;              /**< Our number among all owners. */
	uint32_t first;             /**< That of daemon 0 of this rank. */
	uint32_t daemons;           /**< Of this rank. */
	const char *segment;        /**< Name of ipc's. */
	uint32_t owners;            /**< Of all ranks. */
	bool relay;                 /**< Other ranks may send what another daemon of ours owns. */
	uint32_t key_size;
	uint32_t value_size;
	struct kv_info info;               /**< Answer to CRPC_KV_INFO; .writer is the next one. */
	uint32_t writer_first, writer_end; /**< Writer ids for client processes. */
	uint32_t writer_of[CRPC_IPC_CLIENTS_MAX]; /**< That each client was given last. */
	struct crpc_kv_stats stats;               /**< But for `waited`. */
	struct kv_batch batch;
	struct crpc_req req[CRPC_BURST_MAX];
	struct crpc_done done[CRPC_BURST_MAX];
	struct kv_answered answered[CRPC_BURST_MAX];
	uint64_t asked[CRPC_IPC_CLIENTS_MAX]; /**< What each client had asked at the last look. */
	uint32_t watches, active;             /**< Looks, and clients that were active at one. */
	uint32_t index[CRPC_BURST_MAX];       /**< Batch entry i came with req[index[i]]. */
	uint8_t msg[CRPC_KV_RESP_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

/** End a client's request with an error, and a one-way message without. */
void __crpc_kv_daemon_fail(struct crpc_kv_daemon *d, uint64_t token, int status);
/** The same of a request of another rank. */
void __crpc_kv_daemon_net_fail(struct crpc_kv_daemon *d, uint64_t now, uint64_t token, int status);

/**
 * Publish its counters for telemetry; every millisecond or two, its thread. A reader gets each as
 * it was a millisecond ago: the datapath has no lock, system call or shared line for it.
 */
void __crpc_kv_tel_publish(struct crpc_kv_daemon *d);

#endif
