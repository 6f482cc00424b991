/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_BACKEND_H
#define KV_BACKEND_H

/**
 * @file
 * How requests travel between clients and stores, chosen by --backend. Store, load, lcores and
 * measuring code are the same for all, so that a difference is the backend's.
 *
 *     copyrpc      client -ipc-> its daemon -copyrpc-> the owner's daemon
 *     delegation   client -ring-> its daemon -copyrpc-> the owner's daemon
 *     direct       client -copyrpc--------------------> the owner's daemon
 *     ucx          client -UCX active messages--------> the owner's daemon
 *     erpc         client -udrpc datagrams------------> the owner's daemon
 *
 * copyrpc is the one that the program is about: its clients are connections of ipc, which the load
 * and lib/kv_server use without a table between. The others bring links and ports (app_backend.h).
 * Every link is connected to every port that its clients ask: to those of its rank where daemons
 * pass on what other ranks own (`passes`), else to those of all ranks. Order of calls:
 *
 *     kv_backend_open(w, ...)            the ranks exchange their numbers of links; ends are made
 *     kv_backend_connect(w)              addresses are exchanged, every end connected
 *     every turn: poll() or recv(), call() or reply(), flush()
 *     kv_backend_close(w)                all of them, links first
 *
 * Where a daemon and clients sit on one lcore, the link may use what the port has (`beside`).
 */

#include "app_backend.h"
#include "app_boot.h"
#include "app_kv.h"
#include "options.h"
#include "place.h"
#include "result.h"

/** Cookie of a call whose answer is ignored. */
#define KV_COOKIE_NONE (UINT64_MAX >> 1)

extern const struct app_backend kv_backend_delegation;
extern const struct app_backend kv_backend_ucx;

/** Every call has ended after that, whatever happened. */
#define KV_LONGEST_NS (APP_KV_PATIENCE_NS * 5 / 4)

/** Deadline of a call to another rank: without a watch it finds a dead one. */
static inline uint64_t
kv_timeout_ns(const struct app_boot *boot)
{
	return boot->watched ? APP_KV_PATIENCE_NS : CRPC_KV_TIMEOUT_NS;
}

/** Bytes of an address at most. */
#define KV_ADDRESS_MAX (256 * 1024)

/** All ends of a rank. */
struct kv_wire {
	const struct app_backend *backend;
	struct app_boot *boot;
	uint32_t daemons;                   /**< Of each rank. */
	uint32_t links;                     /**< Of this rank. */
	uint32_t first_link;                /**< The first of them among those of all ranks. */
	uint32_t links_all;                 /**< Of all ranks. */
	uint32_t rank_links[APP_RANKS_MAX]; /**< Of each. */
	void *port[CRPC_KV_DAEMONS_MAX];
	void *link[KV_SEATS_MAX]; /**< By seat; NULL: no clients there. */
	uint32_t seats;
};

/** The backend of this number, in the order of kv_backend_names. */
const struct app_backend *kv_backend(unsigned int number);

/**
 * Make all ends of this rank; the ranks exchange how many they have.
 *
 * @param w
 *   Zeroed, but for backend; filled.
 * @param conf
 *   What options say, service, req_max and resp_max.
 * @param place, seats
 *   Who sits where.
 * @return
 *   0, or APP_EXIT_USAGE after app_fail().
 */
int kv_backend_open(struct kv_wire *w, struct app_boot *boot, const struct app_end_conf *conf,
	const struct kv_place *place, uint32_t seats);

/** Exchange addresses and connect; all ranks call it. @return as kv_backend_open(). */
int kv_backend_connect(struct kv_wire *w);

void kv_backend_close(struct kv_wire *w);

#endif
