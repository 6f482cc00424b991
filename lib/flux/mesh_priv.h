/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MESH_PRIV_H
#define MESH_PRIV_H

/* The two transports of a mesh, and what they share. crpc_mesh.c has flux, mesh_rte.c rte_ring. */

#include <pthread.h>

#include "crpc_atomic.h"
#include "crpc_mesh.h"

/*
 * The verbs of a transport, with the types of flux's own. A transport's nodes and endpoints are
 * passed by the names of flux's: mesh_rte.c converts them.
 */
struct mesh_ops {
	struct crpc_flux_node *(*join)(struct crpc_mesh *mesh, uint32_t id);
	__typeof__(crpc_flux_leave) *leave;
	__typeof__(crpc_flux_connect) *connect;
	__typeof__(crpc_flux_notify) *notify;
	__typeof__(crpc_flux_call_burst) *call_burst;
	__typeof__(crpc_flux_call) *call;
	__typeof__(crpc_flux_poll) *poll;
	__typeof__(crpc_flux_recv) *recv;
	__typeof__(crpc_flux_reply) *reply;
	__typeof__(crpc_flux_release) *release;
	__typeof__(crpc_flux_flush) *flush;
	__typeof__(crpc_flux_pending) *pending;
};

extern const struct mesh_ops __crpc_mesh_rte_ops;

struct crpc_mesh_ep {
	const struct mesh_ops *ops;
	struct crpc_flux_ep *ep; /* the transport's */
};

struct crpc_mesh_node {
	const struct mesh_ops *ops;
	struct crpc_flux_node *node; /* the transport's */
	struct crpc_mesh_ep ep[CRPC_FLUX_NODES_MAX];
};

struct rte_ring;

struct crpc_mesh {
	const struct mesh_ops *ops;
	struct crpc_flux *flux;
	/* Of rte_ring. */
	enum crpc_mesh_backend backend;
	struct crpc_flux_attr attr; /* with the defaults filled in */
	pthread_mutex_t lock;
	_Atomic uint32_t changes;                            /* nodes that left */
	_Atomic uint32_t epoch[CRPC_FLUX_NODES_MAX];         /* odd: joined */
	struct rte_ring *_Atomic inbox[CRPC_FLUX_NODES_MAX]; /* from the first join to the end */
};

#endif
