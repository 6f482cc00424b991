/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_RPC_H
#define CRPC_RPC_H

/**
 * @file
 * The vocabulary that flux (lcores), ipc (processes) and copyrpc (nodes) share.
 *
 *     client                                   server
 *     call(ep, buf, len, cookie)  --------->   recv(ctx, req[], n)
 *     poll(ctx, done[], n)        <---------   reply(ctx, token, buf, len)
 *     flush(ctx)                               flush(ctx)
 *
 * - call() queues one request: 0, or -EAGAIN (nothing was taken: poll, then call again), or a final
 *   error. Every accepted call completes exactly once, in bounded time, with success or an error.
 * - poll() and recv() fill an array and return how many; 0 is normal. They never block and never
 *   call back.
 * - reply() answers a request now or later and in any order; release() ends a request that wants no
 *   answer.
 * - flush() sends what is queued, where the flush policy has not done it already.
 *
 * Ownership: the bytes of a request stay readable until its reply or release, those of a completion
 * until the next poll() of the same object. The caller's buf is free again when call() or reply()
 * returns.
 *
 * Threads: an object belongs to the one thread (lcore) that uses it. Nothing here locks.
 *
 * Both peers may be hostile: a message's bytes lie in memory that the peer can still write. Copy a
 * field once, check the copy, use the copy.
 */

#include <stdint.h>

/** One finished call. */
struct crpc_done {
	uint64_t cookie;  /**< As given to call(). */
	const void *data; /**< The reply's bytes; NULL if status is not 0. */
	uint32_t len;     /**< Their number. */
	int32_t status;   /**< 0, or -errno: -ETIMEDOUT, -ECONNRESET (peer died), -EMSGSIZE, ... */
};

/** One request that arrived. */
struct crpc_req {
	uint64_t token;   /**< Names it to reply() and release(); unique, never a slot index. */
	const void *data; /**< The request's bytes. */
	uint32_t len;     /**< Their number. */
	uint32_t peer;    /**< Which client or endpoint it came from. */
};

#endif
