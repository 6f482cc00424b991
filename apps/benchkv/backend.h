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
 * and lib/kv_server use without a table between. The others bring two kinds of ends:
 *
 *     link   of the clients of one lcore          call(), poll()
 *     port   of one daemon                        recv(), reply(), fail()
 *
 * Every link is connected to every port that its clients ask: to those of its rank where daemons
 * pass on what other ranks own (`passes`), else to those of all ranks. Order of calls:
 *
 *     kv_backend_open(w, ...)            the ranks exchange their numbers of links; ends are made
 *     kv_backend_connect(w)              addresses are exchanged, every end connected
 *     every turn: poll() or recv(), call() or reply(), flush()
 *     kv_backend_close(w)                all of them, links first
 *
 * Where a daemon and clients sit on one lcore, the link may use what the port has (`beside`).
 *
 * Threads: an end belongs to the lcore of its loop or daemon. Ownership of bytes is that of
 * crpc_rpc.h: a request is readable until its reply, a completion until the next poll().
 */

#include "app_boot.h"
#include "app_kv.h"
#include "crpc_kv_server.h"
#include "options.h"
#include "place.h"
#include "result.h"

struct kv_backend;

/** Cookie of a call whose answer is ignored. */
#define KV_COOKIE_NONE (UINT64_MAX >> 1)

/** How to make an end. */
struct kv_end_conf {
	const struct kv_options *opt;
	/** Where lost ranks are reported and found: watch(). */
	struct crpc_kv_server *service;
	uint64_t timeout_ns; /**< Deadline of a call. */
	bool server;         /**< A port; else a link. */
	uint32_t self;       /**< Our number: of a port among owners, of a link among links. */
	uint32_t rank;
	uint32_t owners;  /**< Ports that a link is connected to. */
	uint32_t peers;   /**< Ends of the other kind that we are connected to. */
	uint32_t calls;   /**< Calls that one link has open at most; the same for all. */
	uint32_t req_max; /**< Bytes of the largest request and response. */
	uint32_t resp_max;
	void *beside; /**< Link: the port on the same lcore, whose queues it may use. */
};

/** A backend. */
struct kv_backend {
	const char *name;
	/** NULL; or it was not built in: the package that it needs. */
	const char *package;
	/** Clients are connections of ipc: there are no ends, and what follows is not set. */
	bool ipc;

	/** Make an end. @return it; NULL with *rc, -errno or an exit code after app_fail(). */
	void *(*open)(const struct kv_end_conf *conf, int *rc);
	/** Our address, for all our peers. @return its bytes, 0 if they do not fit. */
	size_t (*address)(void *end, void *buf, size_t max);
	/**
	 * Connect to peer number @p peer, whose address() gave these bytes. @return 0 or -errno.
	 */
	int (*connect)(void *end, uint32_t peer, const void *addr, size_t len);
	void (*close)(void *end);

	/**
	 * A link, as the load uses it: `to` is the number of a port among all that the link is
	 * connected to.
	 */
	struct app_load_ops load;
	/**
	 * Of a port: requests, whose peer is the link's number; with `passes`, links are connected
	 * within the rank only. watch() is a link's too: it ends with an error all its calls to a
	 * rank for whose loss crpc_kv_server_peer_why() has a reason, and refuses new ones with
	 * -EHOSTUNREACH or another final error.
	 */
	struct crpc_kv_front front;
	/** The device that it uses, for the map; NULL or empty: none. */
	const char *(*device)(const void *end);
	/** Add what it has counted; NULL: nothing. */
	void (*counts)(const void *end, struct kv_net_counts *counts);
};

extern const struct kv_backend kv_backend_direct;
extern const struct kv_backend kv_backend_delegation;
extern const struct kv_backend kv_backend_ucx;
extern const struct kv_backend kv_backend_erpc;

/** Every call has ended after that, whatever happened. */
#define KV_LONGEST_NS (APP_KV_PATIENCE_NS * 5 / 4)

/** Deadline of a call to another rank: without a watch it finds a dead one. */
static inline uint64_t
kv_timeout_ns(const struct app_boot *boot)
{
	return boot->watched ? APP_KV_PATIENCE_NS : CRPC_KV_TIMEOUT_NS;
}

/** No such device can be opened: one line, with errno. @return APP_EXIT_USAGE. */
int kv_device_fail(const char *device);

/**
 * Open a device for this many endpoints.
 *
 * @param name
 *   64 bytes; what it is called.
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int kv_device_open(const char *device, uint32_t eps, struct crpc_rdma **dev, char name[64]);

/** Add what a device has counted. */
void kv_net_count_device(struct crpc_rdma *dev, struct kv_net_counts *counts);

/** Add what a context and its device have counted. */
void kv_net_count(
	const struct crpc_copyrpc *ctx, struct crpc_rdma *dev, struct kv_net_counts *counts);

/** Bytes of an address at most. */
#define KV_ADDRESS_MAX (256 * 1024)

/** All ends of a rank. */
struct kv_wire {
	const struct kv_backend *backend;
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
const struct kv_backend *kv_backend(unsigned int number);

/**
 * Make all ends of this rank; the ranks exchange how many they have.
 *
 * @param w
 *   Zeroed, filled.
 * @param conf
 *   opt, service, req_max and resp_max.
 * @param place, seats
 *   Who sits where.
 * @return
 *   0, or APP_EXIT_USAGE after app_fail().
 */
int kv_backend_open(struct kv_wire *w, struct app_boot *boot, const struct kv_end_conf *conf,
	const struct kv_place *place, uint32_t seats);

/** Exchange addresses and connect; all ranks call it. @return as kv_backend_open(). */
int kv_backend_connect(struct kv_wire *w);

void kv_backend_close(struct kv_wire *w);

#endif
