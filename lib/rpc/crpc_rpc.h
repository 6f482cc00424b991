/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_RPC_H
#define CRPC_RPC_H

/**
 * @file
 * The contract of every RPC layer: flux (between lcores), ipc (between processes), copyrpc and
 * udrpc (between hosts). The verbs, their order of arguments, their statuses and the lifetime of
 * memory are the same in each; layers differ in how an endpoint is made.
 *
 *     client                                     server
 *     call(ep, now, buf, len, resp_max, cookie)
 *                                 --------->     recv(ctx, now, req[], n)
 *     poll(ctx, now, done[], n)   <---------     reply(ctx, now, token, buf, len)
 *     flush(ctx, now)                            flush(ctx, now)
 *
 *     call     Queue one request. 0, or -EAGAIN (nothing was taken: poll, then call again), or a
 *              final error. resp_max is the room that the caller needs for the reply.
 *     notify   Queue one request that has no reply and no completion. As call.
 *     poll     Completions of calls. It also drives deadlines, acknowledgements and sending.
 *     recv     Requests that have arrived. Each is ended once, by reply, fail or release.
 *     reply    Answer a request, now or in a later turn, in any order.
 *     fail     End a request with an error, which completes its call.
 *     release  End a request without an answer; the end of a notification.
 *     cancel   Complete the open calls of a cookie with -ECANCELED. The server is not notified.
 *     flush    Send what is queued and not yet sent.
 *
 * An accepted call completes exactly once, in bounded time if the owner polls:
 *
 *     0             the reply, or release: then without data
 *     -ETIMEDOUT    its deadline passed
 *     -ECANCELED    cancel
 *     -ECONNRESET   the peer left, died or broke the protocol, or the endpoint ended
 *     others        what the server gave to fail, -1 to -CRPC_ERRNO_MAX
 *
 * reply, fail and release return 0, or
 *
 *     -ENOENT       the token is not open: ended before, or never given
 *     -ECONNRESET   the caller has gone; the request ends
 *     -EMSGSIZE     longer than the caller allows; the request stays open
 *     -EOPNOTSUPP   reply or fail of a notification, whether or not its caller has gone; it
 *                   stays open
 *     -EINVAL       fail with a status out of range; the request stays open
 *
 * Memory: buf belongs to the caller again when call or reply returns. The bytes of a request stay
 * readable and unchanged until its reply, fail or release, those of a completion until the next
 * poll of the same object, whatever happens in between: late answers, cancels, peers that leave.
 *
 * A reply that waits to be polled when the deadline of its call passes is still delivered. Full
 * bursts delay deadlines, by as many replies as there were calls if every connection had as many
 * open as the busiest one.
 *
 * poll and recv give at most n and at most CRPC_BURST_MAX, never block and never call back. Back
 * pressure is a short count or -EAGAIN.
 *
 * Threads: an object belongs to the one thread (lcore) that uses it; builds with
 * -Ddebug_checks=true check this. now_ns is the time of any clock that does not go back, the same
 * one in every call.
 *
 * Peers are hostile: the bytes of a message lie in memory that the peer may still write. Copy a
 * field once, check the copy, use the copy.
 */

#include <stdint.h>

/** Largest errno that fail() takes. */
#define CRPC_ERRNO_MAX 4095

/** One completed call. */
struct crpc_done {
	uint64_t cookie;  /**< As given to call(). */
	const void *data; /**< The reply's bytes; NULL if status is not 0. */
	uint32_t len;     /**< Their number. */
	int32_t status;   /**< 0 or -errno. */
};

/** One request that has arrived. */
struct crpc_req {
	uint64_t token; /**< Names the request to reply(), fail() and release(); never repeated. */
	const void *data; /**< The request's bytes. */
	uint32_t len;     /**< Their number. */
	uint32_t peer;    /**< The client or endpoint that it came from. */
};

/** What every layer counts, the first member of its statistics. */
struct crpc_rpc_counts {
	uint64_t calls;       /**< Calls accepted. */
	uint64_t notifies;    /**< Notifications accepted. */
	uint64_t completions; /**< Completions given, errors included. */
	uint64_t timeouts;    /**< Of these: -ETIMEDOUT by the deadline. */
	uint64_t cancels;     /**< Of these: -ECANCELED. */
	uint64_t resets;      /**< Of these: -ECONNRESET. */
	uint64_t late;        /**< Replies to calls that had completed before; dropped. */
	uint64_t requests;    /**< Requests given by recv. */
	uint64_t replies;     /**< Requests ended by reply, fail or release. */
	uint64_t again;       /**< Calls and notifications refused with -EAGAIN. */
	uint64_t malformed;   /**< Messages dropped that no correct peer sends. */
};

#endif
