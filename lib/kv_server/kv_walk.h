/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_WALK_H
#define KV_WALK_H

/**
 * @file
 * CRPC_KV_SCAN and CRPC_KV_STATS at the owner that they name: its keys and its counters, as many as
 * fit an answer. A scan looks at CRPC_KV_SCAN_PLACES places of the store, so a turn stays short.
 */

#include "kv_daemon.h"

/**
 * The owner that a request is for.
 *
 * @param r
 *   Any request.
 * @param room
 *   Set to the bytes that the value of its answer may have.
 * @return
 *   Its number; UINT32_MAX: it is no walk.
 */
uint32_t __crpc_kv_walk_owner(const struct crpc_req *r, uint32_t *room);

/** All counters now, its own and those of its store, as enum kv_stat numbers them. */
void __crpc_kv_walk_count(const struct crpc_kv_daemon *d, uint64_t word[CRPC_KV_STATS_N]);

/**
 * Serve a request.
 *
 * @param r
 *   Any request. Its bytes may be where the answer goes.
 * @param msg, max
 *   Where that is, and its bytes.
 * @return
 *   Bytes of the answer; 0: it is no walk, or another owner's.
 */
uint32_t __crpc_kv_walk_serve(
	const struct crpc_kv_daemon *d, const struct crpc_req *r, void *msg, uint32_t max);

#endif
