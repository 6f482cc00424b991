/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MESH_H
#define CRPC_MESH_H

/**
 * @file
 * N nodes with one receiver each: notify, request and response, over one of two transports.
 *
 *     CRPC_MESH_FLUX        a ring per pair of nodes (crpc_flux.h); a receiver looks at each
 *     CRPC_MESH_RTE_RING    one rte_ring per node: many producers, one consumer
 *     CRPC_MESH_RTE_RING_RTS, _HTS   the same with DPDK's other producer synchronisations
 *
 * The words, threads, ownership and errors are those of crpc_flux.h; what differs over rte_ring:
 *
 * - Requests and responses come through the same ring, so both poll and recv take from it, each
 *   keeping what the other will want. A node must call recv now and then
 *   even if it only makes calls, as soon as others call or notify it: what it
 *   does not take fills its receiver, and answers to it stand behind.
 * - A full receiver is -EAGAIN to callers and notifiers. A reply that finds it full is kept and
 *   sent at a later poll, recv or flush: reply never fails for that.
 * - connect opens nothing and only returns whether the peer has joined.
 * - A call's time counts from the first look at deadlines after it: -ETIMEDOUT may be half of the
 *   deadline late.
 *
 * A receiver cannot tell a notification from a call: what it releases is ended without an answer.
 */

#include "crpc_flux.h"

CRPC_BEGIN_DECLS

/** What carries the messages. */
enum crpc_mesh_backend {
	CRPC_MESH_FLUX,
	CRPC_MESH_RTE_RING,
	CRPC_MESH_RTE_RING_RTS,
	CRPC_MESH_RTE_RING_HTS,
	CRPC_MESH_BACKENDS,
};

struct crpc_mesh;
struct crpc_mesh_node;

/** What a mesh is. */
struct crpc_mesh_attr {
	enum crpc_mesh_backend backend;
	struct crpc_flux_attr flux; /**< Nodes, window, message size, deadline; variant for flux. */
};

/** Create; NULL with errno EINVAL or ENOMEM. */
struct crpc_mesh *crpc_mesh_create(const struct crpc_mesh_attr *attr);

/** Free a mesh that all nodes have left; NULL is fine. */
void crpc_mesh_free(struct crpc_mesh *mesh);

/** As crpc_flux_join(). */
struct crpc_mesh_node *crpc_mesh_join(struct crpc_mesh *mesh, uint32_t id);

/** As crpc_flux_leave(). */
void crpc_mesh_leave(struct crpc_mesh_node *node);

/** As crpc_flux_connect(). */
int crpc_mesh_connect(struct crpc_mesh_node *node, uint32_t peer);

/** One way: as crpc_flux_notify(); over rte_ring it takes no place in the window. */
int crpc_mesh_notify(
	struct crpc_mesh_node *node, uint32_t peer, const void *buf, uint32_t len);

/** As crpc_flux_call_burst(). */
uint32_t crpc_mesh_call_burst(struct crpc_mesh_node *node, uint32_t peer, const void *msgs,
	uint32_t len, const uint64_t *cookies, uint32_t n);

/** As crpc_flux_call(), without -EHOSTDOWN over rte_ring. */
int crpc_mesh_call(
	struct crpc_mesh_node *node, uint32_t peer, const void *buf, uint32_t len, uint64_t cookie);

/** As crpc_flux_poll(). */
uint32_t crpc_mesh_poll(
	struct crpc_mesh_node *node, struct crpc_done *done, uint32_t n, uint64_t now_ns);

/** As crpc_flux_recv(). */
uint32_t crpc_mesh_recv(struct crpc_mesh_node *node, struct crpc_req *req, uint32_t n);

/** As crpc_flux_reply(). */
int crpc_mesh_reply(struct crpc_mesh_node *node, uint64_t token, const void *buf, uint32_t len);

/** As crpc_flux_release(). */
int crpc_mesh_release(struct crpc_mesh_node *node, uint64_t token);

/** As crpc_flux_flush(). */
void crpc_mesh_flush(struct crpc_mesh_node *node);

/** Calls of this node that are open. */
uint32_t crpc_mesh_pending(const struct crpc_mesh_node *node);

CRPC_END_DECLS

#endif
