/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_BACKEND_H
#define APP_BACKEND_H

/**
 * @file
 * A way of requests between clients and stores in the place of ipc: two kinds of ends,
 *
 *     link   of the clients of one lcore          call(), poll()
 *     port   of one daemon                        recv(), reply(), fail()
 *
 * made by open() and connected by address() and connect(), each link to every port that its clients
 * ask. An end belongs to the lcore of its loop or daemon. Ownership of bytes is that of crpc_rpc.h:
 * a request is readable until its reply, a completion until the next poll().
 */

#include "app_load.h"
#include "crpc_kv_server.h"

/** Figures of the network, since the begin or in the measured window: words, all of them. */
struct app_net_counts {
	uint64_t calls, messages, batches, updates, bytes;
	uint64_t doorbells, wqes, wqebbs, send_cqes, recv_cqes;
	uint64_t waited;   /**< Requests that waited in a backlog. */
	uint64_t again;    /**< Calls that were refused for now and made again later. */
	uint64_t repeated; /**< Backend erpc: packets that were sent again. */
	uint64_t batch_size[CRPC_COPYRPC_BATCH_BUCKETS];
	/** Round trips, and the sums of their three parts. */
	uint64_t round_trips, queue_ns, wire_ns, peer_ns;
};

/** How to make an end. */
struct app_end_conf {
	/* What options say. */
	const char *device; /**< RDMA device; NULL: the first that fits. */
	enum crpc_copyrpc_flush_policy flush;
	uint64_t hold_ns;
	uint32_t daemons; /**< Of each rank. */
	uint32_t depth;   /**< Of a client. */
	uint64_t seed;
	const char *ucx_tls;

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
	uint32_t ring_size; /**< Of direct's endpoints; 0: for `calls`. */
	void *beside; /**< Link: the port on the same lcore, whose queues it may use. */
};

/** What an end consists of: one of the contexts, the other is NULL; and its device. */
struct app_end_parts {
	struct crpc_rdma *device;
	struct crpc_copyrpc *copyrpc;
	struct crpc_udrpc *udrpc;
};

/** A backend. */
struct app_backend {
	const char *name;
	/** NULL; or it was not built in: the package that it needs. */
	const char *package;
	/** Clients are connections of ipc: there are no ends, and what follows is not set. */
	bool ipc;

	/** Make an end. @return it; NULL with *rc, -errno or an exit code after app_fail(). */
	void *(*open)(const struct app_end_conf *conf, int *rc);
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
	void (*counts)(const void *end, struct app_net_counts *counts);
	/** What an end consists of; NULL: of neither context. */
	struct app_end_parts (*parts)(const void *end);
};

/** For what an end of a backend need not do. */
static inline void
app_end_nothing(void *end, uint64_t now)
{
}

/** Links have copyrpc endpoints, or udrpc sessions, of their own to every port; see app_own.h. */
extern const struct app_backend app_direct, app_erpc;

/** No such device can be opened: one line, with errno. @return APP_EXIT_USAGE. */
int app_device_fail(const char *device);

/**
 * Open a device for this many endpoints.
 *
 * @param name
 *   64 bytes; what it is called.
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int app_device_open(const char *device, uint32_t eps, struct crpc_rdma **dev, char name[64]);

/** Add what a device has counted. */
void app_net_count_device(struct crpc_rdma *dev, struct app_net_counts *counts);

/** Add what a context and its device have counted. */
void app_net_count(
	const struct crpc_copyrpc *ctx, struct crpc_rdma *dev, struct app_net_counts *counts);

#endif
