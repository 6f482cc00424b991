/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLUX_LIFE_H
#define FLUX_LIFE_H

/* What the files of flux share beyond flux_priv.h and the datapath does not need. */

#include <pthread.h>

#include "crpc_log.h"
#include "flux_priv.h"

/* Slots per window: see flux_path.c. */
#define FLUX_SLOTS_PER_WINDOW 2u
/* Entries that an end holds back at most before it publishes by itself. */
#define FLUX_LAZY 64u

_Static_assert(FLUX_SLOTS_PER_WINDOW *CRPC_FLUX_WINDOW_MAX < FLUX_SLOT_MASK, "slots from 1");
_Static_assert(CRPC_FLUX_MSG_MAX < 0xff, "8 bits for a length, and for the room of a reply and 1");
_Static_assert(CRPC_ERRNO_MAX <= 0xfff, "an entry has 12 bits for an errno");
_Static_assert(CRPC_FLUX_NODES_MAX == 256, "a token has 8 bits for a node");

struct rte_ring;

struct crpc_flux {
	struct crpc_flux_attr attr;
	pthread_mutex_t lock; /* node[], receiver[], serial, recvs */
	uint64_t serial; /* of the newest channel */
	uint64_t recvs; /* above those in all tokens of nodes that left */
	struct crpc_flux_node *node[CRPC_FLUX_NODES_MAX];
	/* Of each node id that ever joined, in a mesh. */
	struct rte_ring *receiver[CRPC_FLUX_NODES_MAX];
	/* Channels that both sides have left. The datapath pushes them: freeing one may lock. */
	struct flux_chan *_Atomic dead;
};

/* One side will not use a channel again. The next join, connect or leave frees it after both. */
void __crpc_flux_chan_put(struct flux_chan *ch);

/* Forget out[i], whose server left and whose calls are all completed. */
void __crpc_flux_out_drop(struct crpc_flux_node *node, uint32_t i);

/* Whether nodes have a receiver each. */
static inline bool
flux_is_mesh(const struct crpc_flux_attr *attr)
{
	return attr->variant >= CRPC_FLUX_RTE_RING;
}

/* flux_mesh.c: a receiver, NULL without memory; bytes that it takes of a channel, their set-up. */
struct rte_ring *__crpc_flux_receiver_create(const struct crpc_flux_attr *attr);
size_t __crpc_flux_mesh_len(void);
void __crpc_flux_mesh_init(struct flux_chan *ch, void *mem);

/* flux_rings.c: bytes that the rings of a channel take, and their set-up. */
size_t __crpc_flux_rings_len(const struct crpc_flux_attr *attr);
int __crpc_flux_rings_init(struct flux_chan *ch, const struct crpc_flux_attr *attr, void *mem);

#endif
