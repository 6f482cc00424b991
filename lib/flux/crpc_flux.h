/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_FLUX_H
#define CRPC_FLUX_H

/**
 * @file
 * RPC between lcores: N nodes, each may call each. The verbs and statuses are those of crpc_rpc.h.
 *
 *     node 0 ---- channel 0>1: requests -------->  node 1       A channel exists per direction that
 *            <--- replies, in the same memory ---               is used: memory grows with used
 *     node 1 ---- channel 1>0 ------------------>  node 0       pairs, not with N * N.
 *
 * Order of calls:
 *
 *     flux = crpc_flux_create(&attr)               one thread
 *     node = crpc_flux_join(flux, id)              the lcore that will own the node
 *     crpc_flux_connect(node, peer, &ep)           before the first call to that peer
 *     loop: crpc_flux_call / _burst, crpc_flux_recv, crpc_flux_reply, crpc_flux_poll
 *     crpc_flux_leave(node)                        the owner; the id can join again
 *     crpc_flux_free(flux)                         when all nodes have left
 *
 * Threads: create and free are the setup thread's; join, connect and leave may be called while
 * others run. They lock, allocate and free; nothing else does. Everything else that takes a node or
 * an endpoint belongs to one lcore. One lcore may own several nodes.
 *
 * Ownership: a request's bytes stay readable until its reply, fail or release, in whatever order
 * these are given and also if its caller leaves; a completion's until the next poll of that node.
 * What was given to call or reply is copied into the channel's slot of that call, where the reply
 * overwrites its request: a payload's lines move once there and once back. Nodes trust each other.
 * The memory of a channel that both have left is released by the next of these calls.
 *
 * Back-pressure: a node has at most `window` calls and notifications open to each peer. Beyond,
 * call returns -EAGAIN: poll, then retry. Nothing spins, and nothing waits inside a call. A reply
 * never lacks room. So a node that keeps polling always makes progress, whoever calls whom.
 *
 * Publication: calls and replies may be held back until a flush; poll and recv flush first. A loop
 * that polls therefore never leaves a message behind.
 *
 * Deadline: a call that is not answered in time completes with -ETIMEDOUT, at most a quarter of the
 * deadline late if the node polls. Its place in the window is free when the late reply arrives or
 * the peer leaves: until then the peer may still hold it. A peer that left completes all its open
 * calls with -ECONNRESET. Polls that return full bursts delay both as crpc_rpc.h says.
 */

#include <stdint.h>
#include <sys/types.h>

#include "crpc_rpc.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

struct crpc_flux;
struct crpc_flux_node;
/** A node's way to one peer; it lives until the node leaves. */
struct crpc_flux_ep;

/**
 * How a node learns of messages in a channel: the default, or to compare it with, a pair of rings
 * that carry their order, or a mesh: one rte_ring of many producers per node, which has a token for
 * each message.
 */
enum crpc_flux_variant {
	CRPC_FLUX_DUPLEX, /**< Replies overwrite requests: flux_path.c has the picture. */
	CRPC_FLUX_LAMPORT,
	CRPC_FLUX_FASTFORWARD,
	CRPC_FLUX_FASTFORWARD_ALIGNED,
	CRPC_FLUX_ONESIDED,
	CRPC_FLUX_ONESIDED_ALIGNED,
	CRPC_FLUX_RTE_RING,     /**< A mesh. */
	CRPC_FLUX_RTE_RING_RTS, /**< A mesh with DPDK's relaxed tail of producers, */
	CRPC_FLUX_RTE_RING_HTS, /**< and with its producers one after another. */
	CRPC_FLUX_VARIANTS,
};

/** What a flux is. Zero means the default where one is given. */
struct crpc_flux_attr {
	uint32_t nodes;                 /**< Ids 0 to nodes-1; 2 to CRPC_FLUX_NODES_MAX. */
	enum crpc_flux_variant variant; /**< What is between two nodes. */
	uint32_t window;                /**< Calls open per peer: a power of two, default 256. */
	uint32_t msg_size;              /**< Bytes of the largest message; default 32. */
	uint64_t deadline_ns;           /**< Of a call; 0: none. */
	uint32_t start; /**< First value of all counters; a test starts near their end. */
};

/** Counters of one node, written by its owner. */
struct crpc_flux_stats {
	struct crpc_rpc_counts rpc;
};

/**
 * Create a flux.
 *
 * @param attr
 *   What it is.
 * @return
 *   The flux, or NULL with errno EINVAL (crpc_log_last() names value and range) or ENOMEM.
 */
struct crpc_flux *crpc_flux_create(const struct crpc_flux_attr *attr);

/** Free a flux that all nodes have left; NULL is fine. */
void crpc_flux_free(struct crpc_flux *flux);

/**
 * Become node @p id.
 *
 * @param flux
 *   The flux.
 * @param id
 *   0 to nodes-1.
 * @return
 *   The node, or NULL with errno EINVAL (no such id), EBUSY (joined already) or ENOMEM.
 */
struct crpc_flux_node *crpc_flux_join(struct crpc_flux *flux, uint32_t id);

/**
 * Leave: peers' calls to this node end with -ECONNRESET, its own open calls end without completion.
 * What it sent before is still received by peers that stay; requests that it holds end.
 *
 * @param node
 *   The node, invalid afterwards with its endpoints; the owner's thread.
 */
void crpc_flux_leave(struct crpc_flux_node *node);

/**
 * Open the channel to @p peer. Allocates; a second call finds it open. When the peer has left and
 * joined again, it makes the endpoint usable again.
 *
 * @param node
 *   The node; the owner's thread.
 * @param peer
 *   The peer's id.
 * @param ep
 *   Set to the endpoint, the same for every call with this peer.
 * @return
 *   0, or -EINVAL (no such id, or itself), -ENOTCONN (has not joined), -ENOMEM, or -EBUSY (calls
 *   to an earlier incarnation of the peer are still to be polled).
 */
int crpc_flux_connect(struct crpc_flux_node *node, uint32_t peer, struct crpc_flux_ep **ep);

/**
 * Queue one call.
 *
 * @param ep
 *   The peer's endpoint; the owner's thread, as for all that follow.
 * @param now_ns
 *   The time, which the call's deadline is counted from.
 * @param buf
 *   The request.
 * @param len
 *   Its bytes, at most msg_size.
 * @param resp_max
 *   Bytes of the longest reply, at most msg_size.
 * @param cookie
 *   For poll.
 * @return
 *   0; -EAGAIN (window full: poll, then retry); -ECONNRESET (the peer left); -EMSGSIZE (len or
 *   resp_max above msg_size).
 */
int crpc_flux_call(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie);

/**
 * Queue up to @p n calls with requests of one length, which lie at @p msgs side by side.
 *
 * @return
 *   How many were taken, fewer than n being back-pressure; 0 also where crpc_flux_call() would
 *   return a final error.
 */
uint16_t crpc_flux_call_burst(struct crpc_flux_ep *ep, uint64_t now_ns, const void *msgs,
	uint32_t len, uint32_t resp_max, const uint64_t *cookies, uint16_t n);

/** Queue one request that has no reply: the server releases it, nothing completes. As call. */
int crpc_flux_notify(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len);

/** Complete the open calls with @p cookie at the next polls: their number. */
uint32_t crpc_flux_cancel(struct crpc_flux_ep *ep, uint64_t now_ns, uint64_t cookie);

/**
 * Completed calls, taken fairly from all peers.
 *
 * @param node
 *   The node.
 * @param now_ns
 *   The time.
 * @param done
 *   Takes them.
 * @param n
 *   Room in done; at most CRPC_BURST_MAX are given out.
 * @return
 *   How many. Their data stays until the next poll.
 */
uint16_t crpc_flux_poll(
	struct crpc_flux_node *node, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/**
 * Requests that arrived: per peer in order, peers in turns. Those of a peer that has left too.
 *
 * @return
 *   How many, at most CRPC_BURST_MAX. Each must be ended by reply, fail or release, now or later:
 *   one that is not, of a caller that left, keeps the memory of its channel.
 */
uint16_t crpc_flux_recv(
	struct crpc_flux_node *node, uint64_t now_ns, struct crpc_req *req, uint16_t n);

/**
 * Answer a request.
 *
 * @return
 *   0; -EMSGSIZE (len above the call's resp_max; the request stays open); -EOPNOTSUPP (a
 *   notification; it stays open); -ECONNRESET (its caller left; the request ends); -ENOENT (no such
 *   request is open).
 */
int crpc_flux_reply(struct crpc_flux_node *node, uint64_t now_ns, uint64_t token, const void *buf,
	uint32_t len);

/**
 * Answer up to @p n requests with replies of one length.
 *
 * @param node
 *   The node.
 * @param now_ns
 *   The time.
 * @param req
 *   The requests, as recv gave them.
 * @param msgs
 *   The replies, side by side; NULL: each lies where its request lay, at req[i].data, whose
 *   msg_size bytes are the server's to write until it answers.
 * @param len
 *   Bytes of each reply.
 * @param n
 *   Their number.
 * @return
 *   How many were answered, from the first on; a short count ends at one that crpc_flux_reply()
 *   refuses, which is ended where its caller left.
 */
uint16_t crpc_flux_reply_burst(struct crpc_flux_node *node, uint64_t now_ns,
	const struct crpc_req *req, const void *msgs, uint32_t len, uint16_t n);

/** End a request with an error: as reply, or -EINVAL (status not in -1 to -CRPC_ERRNO_MAX). */
int crpc_flux_fail(struct crpc_flux_node *node, uint64_t now_ns, uint64_t token, int32_t status);

/** End a request without a reply: a call completes with len 0. As reply, of notifications too. */
int crpc_flux_release(struct crpc_flux_node *node, uint64_t now_ns, uint64_t token);

/** Send what is queued. poll and recv do it too. */
void crpc_flux_flush(struct crpc_flux_node *node, uint64_t now_ns);

/** The node's counters. */
const struct crpc_flux_stats *crpc_flux_node_stats(const struct crpc_flux_node *node);

CRPC_END_DECLS

#endif
