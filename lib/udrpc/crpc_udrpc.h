/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_UDRPC_H
#define CRPC_UDRPC_H

/**
 * @file
 * RPC between hosts over datagrams that may be lost, duplicated and reordered: the protocol of
 * eRPC, as a baseline for lib/copyrpc, with the same verbs (crpc_rpc.h).
 *
 *     client                                             server
 *     call()    slot of the session --- REQ 0 ------>    poll() puts the pieces together
 *                                   <-- CR 0 --------
 *                                   --- REQ 1 ------>    recv() -> work -> reply()
 *     poll() -> done[]              <-- RESP 0 ------
 *                                   --- RFR 1 ------>    only for a reply of several packets
 *                                   <-- RESP 1 ------
 *
 * The client drives: the server sends a packet only in answer to one, and keeps no timer. A session
 * has a fixed number of slots, each with one call at a time, and credits: packets that may be
 * unanswered. An answer returns its packet's credit: a credit return (CR) or a piece of the
 * response, whose pieces but the first are asked for (RFR). What is not answered within rto_ns is
 * sent again, with all behind it (go back n). A server executes a request at most once: its number
 * is that of its slot's last request plus one, or it is a repetition, which is answered from what
 * is kept.
 *
 * Every endpoint is both client and server: each side may call the other. One datagram queue serves
 * all endpoints of a context. The bytes on the wire are in doc/protocol/udrpc_wire.md.
 *
 * Order of calls:
 *
 *     ctx = crpc_udrpc_create(&conf)
 *     ep = crpc_udrpc_ep_create(ctx, peer_number)
 *     crpc_udrpc_ep_addr(ep, addr)     ---- exchanged by the application ---->  peer
 *     crpc_udrpc_ep_connect(ep, peer_addr)
 *     every turn of the loop:
 *             now = crpc_clock_ns()                        once per turn
 *             n = crpc_udrpc_poll(ctx, now, done, 64)      completions; also drives the NIC
 *             m = crpc_udrpc_recv(ctx, now, req, 64)       requests
 *             crpc_udrpc_reply(ctx, now, token, buf, len)  now or in a later turn, in any order
 *             crpc_udrpc_call(ep, now, buf, len, resp_max, cookie)
 *             crpc_udrpc_flush(ctx, now)                   end of turn: one doorbell for all
 *
 * Both ends must call poll() all the time, also when they wait for nothing: the server's answers
 * and the client's timers are there. What flush() is not called for goes with the next poll().
 *
 * Congestion: TIMELY per session from the round trips of its packets; poll() holds packets back to
 * keep the rate. Both are passed by while a session is not congested.
 *
 * Failure: a peer that answers nothing to `retries` repetitions is declared dead.
 * crpc_udrpc_ep_shutdown() and _ep_free() notify the peer; if that packet is lost, the peer detects
 * the silence. Either way the endpoint ends and its calls complete with -ECONNRESET. It cannot be
 * connected again: make another. Packets of an earlier session have another token and are dropped.
 *
 * Threads: a context, its endpoints and its device belong to one thread (lcore). With
 * -Ddebug_checks=true this is checked from the first call, poll or recv on; another thread may make
 * and connect them before, and free them once that one has ended. Time comes in as nanoseconds of
 * any monotonic clock.
 *
 * Nothing here allocates or makes a system call but create and free of a context, making and
 * connecting an endpoint, and the log lines of errors; the memory of all endpoints is made and
 * registered with the context.
 *
 * A program with an EAL also has telemetry: /crpc/udrpc/list, stats, latency, endpoints, endpoint.
 * The handlers ask, and poll() answers, so they need a context that is polled.
 *
 * Sources: A. Kalia, M. Kaminsky, D. Andersen, Datacenter RPCs can be General and Fast, NSDI 2019;
 * R. Mittal et al., TIMELY, SIGCOMM 2015.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_hist.h"
#include "crpc_rdma.h"
#include "crpc_rpc.h"

CRPC_BEGIN_DECLS

struct crpc_udrpc;    /**< A context: one device, one datagram queue, its endpoints. */
struct crpc_udrpc_ep; /**< One session with one peer. */

/** How to make a context. Zero fields take the default. */
struct crpc_udrpc_conf {
	struct crpc_rdma *dev; /**< The device, for this context alone; it must outlive it. */
	/** Endpoints at most; default 16, at most CRPC_UDRPC_EPS_MAX. */
	uint32_t max_eps;
	/**
	 * Calls open per endpoint; default 8, at most CRPC_UDRPC_SLOTS_MAX. The smaller one of both
	 * ends counts.
	 */
	uint32_t slots;
	/** Packets per endpoint that may be unanswered; default 32, at most
	 *  CRPC_UDRPC_CREDITS_MAX. */
	uint32_t credits;
	/** Bytes of the largest request or reply; default 16 KiB, at most CRPC_UDRPC_MSG_MAX; the
	 *  smaller one of both ends counts. A context takes max_eps * slots * 4 times that much
	 *  memory, half of it registered. */
	uint32_t max_msg;
	/** Bytes of the largest datagram; default and at most the device's MTU, at least
	 *  CRPC_UDRPC_PKT_MIN; the smaller one of both ends counts. */
	uint32_t pkt_max;
	uint32_t sq_depth; /**< Datagrams to be sent at most; default 256, at least 8. */
	/**
	 * Receive buffers; default 2 * credits * max_eps, within 512 and 2048. With less than all
	 * peers' credits and our own together, a burst can lose packets, which then are repeated.
	 */
	uint32_t rq_depth;
	uint32_t retries; /**< Repetitions without any answer of the peer; default 100. */
	/** Until a packet without answer is repeated, or up to a quarter later; default 5 ms. */
	uint64_t rto_ns;
	/**
	 * Deadline of every call; default 1 s. A call completes with -ETIMEDOUT at most an eighth
	 * of it later, if poll() is called all the time. Its slot stays taken until the answer
	 * comes or the endpoint ends.
	 */
	uint64_t timeout_ns;
	uint64_t link_bytes_per_s; /**< Rate of the link; default 12.5e9, 100 Gbit/s. */
	uint64_t t_low_ns;  /**< TIMELY: round trips that never slow a session; default 50 us. */
	uint64_t t_high_ns; /**< TIMELY: round trips that always do; default 1 ms. */
	bool no_congestion_control; /**< Never slow a session down. For comparison. */
	/** Of the endpoints' tokens, for tests, as a peer could compute them. Default 0: each comes
	 *  from the system. */
	uint64_t seed;
};

/** Counters of a context since create or the last crpc_udrpc_stats_reset(). */
struct crpc_udrpc_stats {
	struct crpc_rpc_counts rpc;
	uint64_t bursts; /**< crpc_rdma_post() calls that posted something: doorbells. */
	uint64_t packets_sent;
	uint64_t packets_received;
	uint64_t bytes_sent; /**< Heads included. */
	uint64_t credit_returns; /**< CRs sent. */
	uint64_t response_requests; /**< RFRs sent. */
	uint64_t drains;   /**< Packets sent only to know that all before them have left. */
	uint64_t rtos;     /**< Times that a call went back because nothing came. */
	uint64_t repeated; /**< Packets that it had to send again. */
	uint64_t duplicates;   /**< Packets of requests that were there already; answered again. */
	uint64_t out_of_order; /**< Packets that came before those they follow; dropped. */
	uint64_t stale;        /**< Packets of requests that have ended; dropped. */
	uint64_t bad_sessions; /**< Packets to a session that there is not, or not any more. */
	uint64_t tx_full;      /**< Answers dropped because the send queue was full. */
	uint64_t paced;        /**< Packets held back by the rate. */
	uint64_t rtt_samples;  /**< Round trips that TIMELY computed with; the others passed by. */
	uint64_t ep_errors;    /**< Endpoints that ended without our doing. */
	/** Every successful call's round trip, split in two, in ns: */
	struct crpc_hist wire; /**< call() to completion, without the server's part. */
	/** The whole request's arrival to its reply(), as the server reports it. */
	struct crpc_hist peer;
};

/**
 * Make a context.
 *
 * @param conf
 *   Device and sizes; copied.
 * @return
 *   The context, or NULL with errno: EINVAL (a size out of range; the log names it), ENOMEM, ENOSPC
 *   (the device's completion queue), EOPNOTSUPP (the device has no datagrams).
 */
struct crpc_udrpc *crpc_udrpc_create(const struct crpc_udrpc_conf *conf);

/** Free a context and the endpoints it still has (see crpc_udrpc_ep_free()). NULL is allowed. */
void crpc_udrpc_free(struct crpc_udrpc *ctx);

/**
 * Make an endpoint.
 *
 * @param ctx
 *   The context.
 * @param user_id
 *   Your number of the peer; crpc_req.peer of its requests.
 * @return
 *   The endpoint, or NULL with errno: ENOSPC (max_eps, those that were just freed and still have
 *   packets in the send queue included: poll, then retry), EIO (the datagram queue is broken),
 *   or that of getrandom().
 */
struct crpc_udrpc_ep *crpc_udrpc_ep_create(struct crpc_udrpc *ctx, uint32_t user_id);

/**
 * Free an endpoint, connected or not, and notify the peer if it works. Its open calls get no
 * completion and its requests' tokens and data end here; crpc_udrpc_ep_shutdown() and polling
 * before it gives every call its end. NULL is allowed.
 */
void crpc_udrpc_ep_free(struct crpc_udrpc_ep *ep);

/**
 * The address that the peer needs, as bytes for the wire (little endian, versioned).
 *
 * @param ep
 *   The endpoint.
 * @param addr
 *   CRPC_UDRPC_ADDR_LEN bytes, filled.
 */
void crpc_udrpc_ep_addr(const struct crpc_udrpc_ep *ep, uint8_t addr[CRPC_UDRPC_ADDR_LEN]);

/**
 * Connect to a peer's endpoint, once. A call may be made at once; it reaches the peer when that has
 * connected too.
 *
 * @param ep
 *   A fresh endpoint.
 * @param peer
 *   What crpc_udrpc_ep_addr() gave at the peer. Untrusted: checked before use.
 * @return
 *   0, -EPROTO (no address, another version), -EISCONN, -EHOSTUNREACH, -ENOMEM, -EIO (the
 *   datagram queue is broken).
 */
int crpc_udrpc_ep_connect(struct crpc_udrpc_ep *ep, const uint8_t peer[CRPC_UDRPC_ADDR_LEN]);

/**
 * End an endpoint, and notify the peer: every open call completes with -ECONNRESET in the polls
 * that follow, later calls are refused. Does nothing if it has ended already.
 */
void crpc_udrpc_ep_shutdown(struct crpc_udrpc_ep *ep);

/**
 * Whether an endpoint works.
 *
 * @return
 *   0, -ENOTCONN (not connected yet), or why it ended, for ever: -ECONNRESET (shutdown here or at
 *   the peer, or the datagram queue broke), -ETIMEDOUT (the peer does not answer any more).
 */
int crpc_udrpc_ep_status(const struct crpc_udrpc_ep *ep);

/**
 * Make a call. It goes with the next flush() or poll().
 *
 * @param ep
 *   A connected endpoint.
 * @param now_ns
 *   The time.
 * @param buf
 *   The request, copied; NULL if len is 0.
 * @param len
 *   Its bytes, at most max_msg of both ends.
 * @param resp_max
 *   The largest reply the server may give, bytes, at most max_msg of both ends.
 * @param cookie
 *   Comes back in the completion.
 * @return
 *   0: taken, it completes exactly once. -EAGAIN: all slots are taken; poll, then call again.
 *   -EMSGSIZE: len or resp_max is too large, for ever. -ENOTCONN: not connected yet. -ECONNRESET:
 *   the endpoint has ended.
 */
int crpc_udrpc_call(struct crpc_udrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie);

/**
 * Send a request that has no reply and no completion. It takes a slot until the server has released
 * it; that is the back pressure. One that the server's recv() has not given when the session ends
 * is lost.
 *
 * @param ep
 *   A connected endpoint.
 * @param now_ns
 *   The time.
 * @param buf
 *   The request, copied; NULL if len is 0.
 * @param len
 *   Its bytes, at most max_msg of both ends.
 * @return
 *   As crpc_udrpc_call().
 */
int crpc_udrpc_notify(struct crpc_udrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len);

/**
 * Cancel calls: each open call of this endpoint with this cookie completes with -ECANCELED in the
 * polls that follow. The server is not notified, and the slot stays taken as after a deadline.
 * Looks at all slots: not for each call.
 *
 * @return
 *   The number of calls found.
 */
uint32_t crpc_udrpc_cancel(struct crpc_udrpc_ep *ep, uint64_t now_ns, uint64_t cookie);

/**
 * Take completions, and drive everything: arrived packets, timers, sending.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time; it must not go back.
 * @param done
 *   Filled, with the statuses of crpc_rpc.h. A reply of one packet lies where the device put it,
 *   at an address that is a multiple of 4.
 * @param n
 *   Room in it, at least 1; at most CRPC_BURST_MAX are given. Packets are taken from the NIC, n at
 *   a time, until one completes a call, at most 2 * CRPC_BURST_MAX.
 * @return
 *   The number of completions; 0 is normal.
 */
uint16_t
crpc_udrpc_poll(struct crpc_udrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/**
 * Take requests that poll() has received, in the order in which they became whole.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @param req
 *   Filled. Each one must be ended by reply(), fail() or release(), once.
 * @param n
 *   Room in it; at most CRPC_BURST_MAX are given.
 * @return
 *   The number of requests; 0 is normal.
 */
uint16_t crpc_udrpc_recv(struct crpc_udrpc *ctx, uint64_t now_ns, struct crpc_req *req, uint16_t n);

/**
 * Answer a request; its data is gone after it. The reply is kept for repetitions until the slot's
 * next request.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @param token
 *   Of a request that recv() gave.
 * @param buf
 *   The reply, copied; may point into the request itself. NULL if len is 0.
 * @param len
 *   Its bytes.
 * @return
 *   0. -ENOENT: the token is not open (ended before, or of a freed endpoint). -EOPNOTSUPP: a
 *   notification; it stays open. -ECONNRESET: the endpoint has ended, and the request ends.
 *   -EMSGSIZE: longer than the caller allows; the request stays open.
 */
int crpc_udrpc_reply(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf,
	uint32_t len);

/**
 * End a request without an answer: a call completes at the caller with status 0 and no data.
 *
 * @return
 *   0, -ENOENT, -ECONNRESET: as crpc_udrpc_reply().
 */
int crpc_udrpc_release(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token);

/**
 * End a request with an error: the call completes at the caller with this status and no data.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @param token
 *   Of a request that recv() gave.
 * @param status
 *   -1 to -CRPC_ERRNO_MAX, a negative errno.
 * @return
 *   0; -EINVAL: another status, the request stays open; or as crpc_udrpc_reply().
 */
int crpc_udrpc_fail(struct crpc_udrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status);

/**
 * Send what is queued. Call it at the end of a turn; costs nothing if there is nothing.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @return
 *   Bursts posted (doorbells): 0 or more.
 */
uint32_t crpc_udrpc_flush(struct crpc_udrpc *ctx, uint64_t now_ns);

/** The counters, live; read them from the context's thread or after it stopped. */
const struct crpc_udrpc_stats *crpc_udrpc_stats(const struct crpc_udrpc *ctx);

/** Zero the counters and histograms. */
void crpc_udrpc_stats_reset(struct crpc_udrpc *ctx);

CRPC_END_DECLS

#endif
