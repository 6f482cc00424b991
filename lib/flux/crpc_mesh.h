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
 * Verbs, threads, ownership and errors are those of crpc_flux.h. What differs over rte_ring:
 *
 * - Requests and responses come through the same ring, so both poll and recv take from it, and each
 *   keeps what the other returns. A node that others call or notify must call recv even if it only
 *   makes calls: requests that it does not take fill its receiver, and replies to it wait behind.
 * - A full receiver is -EAGAIN to callers and notifiers. A reply that finds it full is kept and
 *   sent at a later poll, recv or flush: reply never fails for that.
 * - connect allocates, and the peer does nothing for it.
 * - A reply may have msg_size bytes, whatever the call's resp_max.
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
struct crpc_mesh_ep;

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
int crpc_mesh_connect(struct crpc_mesh_node *node, uint32_t peer, struct crpc_mesh_ep **ep);

/** One way: as crpc_flux_notify(); over rte_ring it takes no place in the window. */
int crpc_mesh_notify(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *buf, uint32_t len);

/** As crpc_flux_call(). */
int crpc_mesh_call(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie);

/** As crpc_flux_call_burst(). */
uint16_t crpc_mesh_call_burst(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *msgs,
	uint32_t len, uint32_t resp_max, const uint64_t *cookies, uint16_t n);

/** As crpc_flux_poll(). */
uint16_t crpc_mesh_poll(
	struct crpc_mesh_node *node, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/** As crpc_flux_recv(). */
uint16_t crpc_mesh_recv(
	struct crpc_mesh_node *node, uint64_t now_ns, struct crpc_req *req, uint16_t n);

/** As crpc_flux_reply(). */
int crpc_mesh_reply(struct crpc_mesh_node *node, uint64_t now_ns, uint64_t token, const void *buf,
	uint32_t len);

/** As crpc_flux_release(). */
int crpc_mesh_release(struct crpc_mesh_node *node, uint64_t now_ns, uint64_t token);

/** As crpc_flux_flush(). */
void crpc_mesh_flush(struct crpc_mesh_node *node, uint64_t now_ns);

/** Calls of this node that are open. */
uint32_t crpc_mesh_pending(const struct crpc_mesh_node *node);

CRPC_END_DECLS

#endif
