/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SERVER_H
#define KV_SERVER_H

/**
 * @file
 * A server: what its daemons share, and what belongs to each of them. Built in this order, torn
 * down in the reverse: segments, stores, endpoints, flux.
 */

#include "kv_daemon.h"
#include "kv_snapshot.h"

/** One daemon, and what it is made of. */
struct kv_part {
	struct crpc_kv_daemon *d;
	struct kv_net net;
	struct kv_hop hop;
	struct kv_snapshot snapshot;
	char segment[64];
};

struct crpc_kv_server {
	struct crpc_kv_server_conf conf; /**< With defaults in the place of zeros. */
	struct kv_fate fate;
	struct crpc_flux *flux; /**< Between the daemons; NULL if there is one. */
	uint32_t owners;        /**< Daemons of all ranks. */
	uint32_t first;         /**< The first of this rank among them. */
	char snapshot[256];     /**< Path of what is claimed. */
	struct kv_part part[];  /**< One for each daemon. */
};

/** The arenas belong to the threads of the loops next; after the control thread used a store. */
void __crpc_kv_server_hand_over(struct crpc_kv_server *s);

#endif
