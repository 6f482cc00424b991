/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_DAEMON_H
#define KV_DAEMON_H

/**
 * @file
 * The service of one rank: one loop on one lcore between its clients, its store and the other
 * ranks.
 *
 * One turn, each phase at most CRPC_BURST_MAX items, no phase calls another:
 *
 *     1 copyrpc poll   answers of other ranks       -> ipc reply
 *     2 copyrpc recv   requests of other ranks      -> store -> copyrpc reply
 *     3 ipc recv       requests of our clients      -> local: store -> ipc reply
 *                                                   -> remote: copyrpc call, or backlog
 *     4 backlogs       what waited for room         -> copyrpc call
 *     5 flush          batches leave
 *
 * The cookie of a forwarded call is the ipc token it answers: nothing is looked up on the way back.
 * A request is forwarded, and a response handed on, as the bytes they are.
 *
 * Every millisecond or two, outside of the phases, kv_daemon_watch() does what may cost a system
 * call.
 */

#include "crpc_ipc.h"
#include "net.h"
#include "store.h"

/** Counters since creation. */
struct kv_daemon_stats {
	uint64_t turns, busy;   /**< Turns of the loop; of these: with work. */
	uint64_t local, remote; /**< Requests of clients: served here, forwarded. */
	uint64_t served;        /**< Requests of other ranks. */
	uint64_t failed;        /**< Requests that ended with an error. */
	uint64_t bad;           /**< Malformed requests. */
};

/** The service. */
struct kv_daemon {
	struct crpc_ipc_server *ipc;
	struct kv_store *store;
	struct kv_net *net; /**< NULL: alone. */
	uint32_t rank, ranks;
	uint32_t key_size, value_size;
	struct kv_info info; /**< Answer to KV_INFO; .writer is the next one. */
	uint32_t writer_end; /**< Writer ids for client processes end here. */
	bool stop;           /**< Another rank was interrupted and told us. */
	struct kv_daemon_stats stats;
	struct kv_batch batch;
	struct crpc_req req[CRPC_BURST_MAX];
	struct crpc_done done[CRPC_BURST_MAX];
	uint32_t index[CRPC_BURST_MAX]; /**< Batch entry i came with req[index[i]]. */
	uint8_t msg[KV_RESP_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

/** One turn. @return how many things were done. */
uint32_t kv_daemon_turn(struct kv_daemon *d, uint64_t now);

/** Look after clients and peers; every millisecond or two. */
void kv_daemon_watch(struct kv_daemon *d, uint64_t now, bool ask_peers);

#endif
