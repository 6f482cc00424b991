/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_PLACE_H
#define KV_PLACE_H

/**
 * @file
 * Who sits where: the daemons and clients of one rank on its lcores.
 *
 *     more lcores than daemons     a lcore for each daemon, the clients divided over the others
 *     else, or colocated           the daemons divided over the lcores, each client on the lcore
 *                                  of its daemon
 *
 * A client's home is the daemon that it is connected to; homes are dealt in equal, consecutive
 * parts. Pure arithmetic, so that a test can try every size.
 */

#include "crpc_kv_proto.h"

/** Lcores that a rank uses at most: one for each daemon, and client loops. */
#define KV_SEATS_MAX 128

/** What one lcore runs: daemons and clients of these numbers, `to` excluded. */
struct kv_place {
	uint32_t daemon_from, daemon_to;
	uint32_t client_from, client_to;
};

/** The home of a client. */
static inline uint32_t
kv_home(uint32_t client, uint32_t clients, uint32_t daemons)
{
	return (uint32_t)((uint64_t)client * daemons / clients);
}

/** Clients that a daemon is home of, at most. */
static inline uint32_t
kv_home_max(uint32_t clients, uint32_t daemons)
{
	return (clients + daemons - 1) / daemons;
}

/** The first client whose home is @p daemon or above. */
uint32_t kv_home_first(uint32_t daemon, uint32_t clients, uint32_t daemons);

/**
 * Give out the places.
 *
 * @param place
 *   KV_SEATS_MAX of them; place[i] is what the i-th lcore runs.
 * @param lcores
 *   That there are, at least 1.
 * @param daemons
 *   1 to CRPC_KV_DAEMONS_MAX.
 * @param clients
 *   0 or more.
 * @param colocate
 *   Clients on their daemon's lcore although there are others.
 * @return
 *   Lcores that are used.
 */
uint32_t kv_place(struct kv_place *place, uint32_t lcores, uint32_t daemons, uint32_t clients,
	bool colocate);

/**
 * Bring lcores into the order in which kv_place() takes them: those on the NIC's NUMA node first,
 * so that daemons get them, then clients.
 *
 * @param lcore, node
 *   Lcores, which are reordered, and their nodes; at most KV_SEATS_MAX. The first is the main lcore
 *   and stays.
 * @param nic
 *   The NIC's node; below 0: unknown, that of the main lcore counts.
 */
void kv_place_order(unsigned int *lcore, const int *node, uint32_t n, int nic);

#endif
