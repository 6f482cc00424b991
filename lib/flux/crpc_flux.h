/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_FLUX_H
#define CRPC_FLUX_H

/**
 * @file
 * RPC between lcores: N nodes, each may call each, over pairs of single-producer rings.
 *
 *     node 0 ---- channel 0>1: request ring ---->  node 1       A channel exists per direction that
 *            <--- response ring ----------------                is used: memory grows with used
 *     node 1 ---- channel 1>0 ------------------>  node 0       pairs, not with N * N.
 *
 * The words are those of crpc_rpc.h. Order of calls:
 *
 *     flux = crpc_flux_create(&attr)               one thread
 *     node = crpc_flux_join(flux, id)              the lcore that will own the node
 *     crpc_flux_connect(node, peer)                before the first call to that peer
 *     loop: crpc_flux_call / _burst, crpc_flux_recv, crpc_flux_reply, crpc_flux_poll
 *     crpc_flux_leave(node)                        the owner; the id can join again
 *     crpc_flux_free(flux)                         when all nodes have left
 *
 * Threads: create and free are the setup thread's; join, connect and leave may be called while
 * others run (they lock; of the rest only what frees the channel of a peer that left does);
 * everything that takes a node belongs to the lcore that joined it. One lcore may own several
 * nodes.
 *
 * Ownership: a request's bytes stay readable until its reply or release, in whatever order replies
 * are given and also if its caller leaves; a completion's until the next poll of that node. A token
 * is used once. What was given to call or reply is
 * copied into the channel's slot of that call: the rings carry eight bytes per message, and the
 * answer overwrites its request, so that a payload's lines move once there and once back.
 *
 * Back-pressure: a node has at most `window` calls open to each peer. Beyond, call returns -EAGAIN:
 * poll, then retry. Nothing spins, and nothing waits inside a call. A reply never lacks room: a
 * response ring holds more than a window. So a node that keeps polling always gets on, whoever
 * calls whom.
 *
 * Publication: calls and replies may be held back until a flush; poll and recv flush first. A loop
 * that polls therefore never leaves a message behind.
 *
 * Deadline: a call that is not answered in time, which counts from the first poll after it,
 * completes with -ETIMEDOUT, at most a quarter of the deadline late if the node polls. A call whose
 * answer waits to be polled does not time out. Its place in the window is free when the late reply
 * arrives or the peer leaves: until then the peer may still hold it. A peer that left completes all
 * its open calls with -ECONNRESET. Polls that return full bursts delay neither by more than the
 * answers of a window.
 */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "crpc_rpc.h"
#include "crpc_spsc.h"

CRPC_BEGIN_DECLS

struct crpc_flux;
struct crpc_flux_node;

/** What a flux is. Zero means the default where one is given. */
struct crpc_flux_attr {
	uint32_t nodes;			/**< Ids 0 to nodes-1; 2 to CRPC_FLUX_NODES_MAX. */
	enum crpc_spsc_variant variant; /**< Rings between nodes. */
	uint32_t window;		/**< Calls open per peer: a power of two, default 256. */
	uint32_t msg_size; /**< Bytes of the largest request or response; default 32. */
	uint64_t deadline_ns;		/**< Of a call; 0: none. */
	/** Memory for channels, aligned to CRPC_CACHE_GUARD; NULL: the heap. For hugepages. */
	void *(*alloc)(size_t len, void *arg);
	void (*release)(void *mem, void *arg);
	void *arg;
};

/** Counters of one node, written by its owner. */
struct crpc_flux_stats {
	uint64_t calls;	    /**< Accepted calls and notifications. */
	uint64_t done;	    /**< Completions given out, errors included. */
	uint64_t requests;  /**< Requests given out by recv. */
	uint64_t replies;   /**< Replies and releases. */
	uint64_t again;	    /**< Calls refused with -EAGAIN. */
	uint64_t timeouts;  /**< Calls completed with -ETIMEDOUT. */
	uint64_t late;	    /**< Replies to those. */
	uint64_t resets;    /**< Calls completed with -ECONNRESET. */
	uint64_t malformed; /**< Messages dropped: no such call, bad length. */
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
 *   The node, invalid afterwards; the owner's thread.
 */
void crpc_flux_leave(struct crpc_flux_node *node);

/**
 * Open the channel to @p peer. Allocates; a second call finds it open.
 *
 * @param node
 *   The node; the owner's thread.
 * @param peer
 *   The other's id.
 * @return
 *   0, or -EINVAL (no such id, or itself), -ENOTCONN (has not joined), -ENOMEM, or -EBUSY (calls
 *   to an earlier incarnation of the peer are still to be polled).
 */
int crpc_flux_connect(struct crpc_flux_node *node, uint32_t peer);

/**
 * Queue up to @p n calls with requests of one length.
 *
 * @param node
 *   The node; the owner's thread, as for all that follow.
 * @param peer
 *   Whom to call.
 * @param msgs
 *   The requests, side by side, @p len bytes each.
 * @param len
 *   Bytes of each request, at most msg_size.
 * @param cookies
 *   One per call, for poll.
 * @param n
 *   Their number.
 * @return
 *   How many were taken, fewer than n being back-pressure; 0 also where crpc_flux_call() would
 *   return a final error.
 */
uint32_t crpc_flux_call_burst(struct crpc_flux_node *node, uint32_t peer, const void *msgs,
	uint32_t len, const uint64_t *cookies, uint32_t n);

/**
 * Queue one call.
 *
 * @return
 *   0; -EAGAIN (window full: poll, then retry); -ENOTCONN (not connected, or the peer left);
 *   -EMSGSIZE (len above msg_size); -EHOSTDOWN (the whole window timed out: the peer has stopped;
 *   retry later).
 */
int crpc_flux_call(
	struct crpc_flux_node *node, uint32_t peer, const void *buf, uint32_t len, uint64_t cookie);

/** Queue one request that wants no answer: the receiver releases it, nothing completes. As call. */
int crpc_flux_notify(struct crpc_flux_node *node, uint32_t peer, const void *buf, uint32_t len);

/**
 * Finished calls, taken fairly from all peers.
 *
 * @param node
 *   The node.
 * @param done
 *   Takes them.
 * @param n
 *   Room in done; at most CRPC_BURST_MAX are given out.
 * @param now_ns
 *   The time, from any clock that does not go back; the same clock in every poll.
 * @return
 *   How many. Their data stays until the next poll.
 */
uint32_t crpc_flux_poll(
	struct crpc_flux_node *node, struct crpc_done *done, uint32_t n, uint64_t now_ns);

/**
 * Requests that arrived: per peer in order, peers in turns. Those of a peer that has left too.
 *
 * @param node
 *   The node.
 * @param req
 *   Takes them.
 * @param n
 *   Room in req; at most CRPC_BURST_MAX are given out.
 * @return
 *   How many. Each must be replied to or released, now or later: one that is not, of a caller that
 *   left, keeps the memory of its channel.
 */
uint32_t crpc_flux_recv(struct crpc_flux_node *node, struct crpc_req *req, uint32_t n);

/**
 * Answer a request.
 *
 * @param node
 *   The node.
 * @param token
 *   The request's.
 * @param buf
 *   The response.
 * @param len
 *   Its bytes.
 * @return
 *   0; -EMSGSIZE (len above msg_size; the request stays open); -ENOENT (no such request: answered
 *   already; or its caller left: the request ends).
 */
int crpc_flux_reply(struct crpc_flux_node *node, uint64_t token, const void *buf, uint32_t len);

/**
 * Answer up to @p n requests with responses of one length.
 *
 * @param node
 *   The node.
 * @param req
 *   The requests, as recv gave them.
 * @param msgs
 *   The responses, side by side; NULL: each stands where its request stood, at req[i].data, whose
 *   msg_size bytes are the server's to write until it answers.
 * @param len
 *   Bytes of each response, at most msg_size.
 * @param n
 *   Their number.
 * @return
 *   How many were answered, from the first on; a short count ends at one that crpc_flux_reply()
 *   refuses, which is ended where its caller left.
 */
uint32_t crpc_flux_reply_burst(struct crpc_flux_node *node, const struct crpc_req *req,
	const void *msgs, uint32_t len, uint32_t n);

/** End a request without an answer: a call completes with len 0. As reply: 0 or -ENOENT. */
int crpc_flux_release(struct crpc_flux_node *node, uint64_t token);

/** Send what is queued. poll and recv do it too. */
void crpc_flux_flush(struct crpc_flux_node *node);

/** Calls of this node that are open, to @p peer or, UINT32_MAX, to all; timed-out ones included. */
uint32_t crpc_flux_pending(const struct crpc_flux_node *node, uint32_t peer);

/** The node's counters. */
const struct crpc_flux_stats *crpc_flux_node_stats(const struct crpc_flux_node *node);

/** Bytes of all channels that are open now. Any thread. */
size_t crpc_flux_memory(struct crpc_flux *flux);

/** Validate the node's tables; says violations on @p out (may be NULL) and returns their number. */
int crpc_flux_check(const struct crpc_flux_node *node, FILE *out);

CRPC_END_DECLS

#endif
