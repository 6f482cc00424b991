/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_CLUSTER_H
#define KVD_CLUSTER_H

/**
 * @file
 * The other ranks: who is there, the exchange of addresses with them, who was lost.
 *
 * By a hosts file, a TCP connection between each two ranks, which the higher one makes and makes
 * again when it breaks:
 *
 *     rank 1                                          rank 0
 *     DIALING   --- connect --->                      a stranger, one of KVD_STRANGERS
 *     HELLO     --- hello --->                        its hello is checked
 *               <--- hello ---
 *     MET       with --connect use: until a request of one of the two waits for the other    MET
 *     ADDRESS   <-- length, crpc_kv_server_address() of both --> ADDRESS
 *     OPEN      crpc_kv_server_connect() of both      OPEN
 *               --- 'B' when it is stopped --->
 *               <--- 'T' when another process is that rank too ---
 *
 * When a connection ends, its rank is lost and all endpoints towards it are renewed. Then it may
 * connect again, with the same epoch or, if it was started again, with a higher one. Its epoch
 * counts while it exchanges addresses, at most KVD_ADDRESS_MS, and once it is up.
 *
 * A connection that is not from the address of a higher rank is closed at once. A stranger has
 * KVD_HELLO_MS for its hello; if there are too many of them, or of them from one address, the
 * oldest goes. They need no memory. A rank has KVD_ADDRESS_MS for its addresses.
 *
 * All functions belong to the control thread.
 */

#include "hello.h"
#include "hosts.h"

#define KVD_STRANGERS        16
#define KVD_STRANGERS_SOURCE 4
#define KVD_HELLO_MS         2000
#define KVD_ADDRESS_MS       10000
#define KVD_DIAL_MS          200

struct kvd_cluster;

/**
 * Wait for connections at our line of the hosts file.
 *
 * @param hello
 *   Ours; a copy is kept.
 * @param on_use
 *   Addresses are exchanged when requests wait.
 * @return
 *   NULL after one line on stderr.
 */
struct kvd_cluster *kvd_cluster_create(const struct kvd_hosts *hosts, const struct kvd_hello *hello,
	struct crpc_kv_server *s, bool on_use);

/** Whether a rank is there, be it connected or not. */
bool kvd_cluster_met(const struct kvd_cluster *c, uint32_t r);

/** Sleep until something comes, at most wait_ms, and do what there is to do. */
void kvd_cluster_turn(struct kvd_cluster *c, uint64_t now_ns, int wait_ms);

/** Take leave of all. NULL is fine. */
void kvd_cluster_free(struct kvd_cluster *c);

#endif
