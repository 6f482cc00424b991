/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_BULK_H
#define CRPC_TENSOR_BULK_H

/**
 * @file
 * Arrays to another host, and operations on them there: one request for all.
 *
 *     caller                                            owner of the memory
 *     call(arrays, batch)
 *       -- head, where each array goes, batch ------->  checked; a receive posted for each array
 *       == array 0 ==================================>  segment 0, converted on the way
 *       == array 1 ==================================>  segment 0
 *                                                       all there: the batch is run on them
 *       <-- a status for each operation --------------
 *     poll() gives the end
 *
 * The head is a call of lib/copyrpc, the data are messages of lib/bulk, the arrays and the batch
 * those of lib/tensor. Several operations are fused into one request: they travel together, and
 * what one makes the next one uses, without coming back in between. A call may also bring arrays
 * alone, or operations alone on what is there already.
 *
 * Conversion: an array goes in its own type; where the destination's type is another one, the
 * unpack engine converts f32 to bf16 or f16, or these to f32, while it moves the chunks. So bf16 at
 * the caller and f32 at the owner is half the bytes on the wire. Other pairs are refused.
 *
 * Memory: the owner offers a peer one block, which is segment 0 of what that peer's descriptors
 * name; it may write there and nowhere else. Arrays that are sent, and their destinations, have no
 * gaps. Calls that are open at the same time and name the same bytes see them in any order.
 *
 * Order of calls: contexts, endpoint and bulk object are the user's; the bulk object is made with
 * conf.shared, and this one polls for it.
 *
 *     n = crpc_tensor_bulk_create(&conf)                ep and conn are connected to the peer's
 *     crpc_tensor_bulk_call(n, now, put, nput, &batch, cookie)
 *     every turn of the loop:
 *             crpc_tensor_bulk_progress(n, now)         drives ctx and bulk, and serves
 *             k = crpc_tensor_bulk_poll(n, done, 16)    calls that ended
 *
 * One object has one peer, and both roles; ctx and bulk object are used for nothing else.
 *
 * Ownership: the arrays of a call may be read until poll() has given its end. The batch is copied.
 *
 * Ends: every accepted call ends once. The statuses of single operations come with status 0; a call
 * that fails as a whole has run none of them, and its destinations are undefined.
 *
 * Trust: a head is copied once and checked; descriptors as crpc_tensor_take() does. What it
 * announces is received for it and for nothing else, as tags carry the call's number. A peer that
 * never sends what it announced costs one of CRPC_TENSOR_BULK_CALLS places until timeout_ns of the
 * bulk object.
 *
 * Threads: as the context: one. Nothing allocates but create.
 *
 * Format: doc/protocol/tensor.md.
 */

#include <stdint.h>

#include "crpc_bulk.h"
#include "crpc_tensor_batch.h"

CRPC_BEGIN_DECLS

/** Calls open at a time, each way. */
#define CRPC_TENSOR_BULK_CALLS 8
/** Arrays of one call. */
#define CRPC_TENSOR_BULK_ARRAYS_MAX 8

struct crpc_tensor_bulk;

/** How to make an object. */
struct crpc_tensor_bulk_conf {
	struct crpc_copyrpc *ctx;    /**< Of ep; the only port of bulk. */
	struct crpc_copyrpc_ep *ep;  /**< For heads; its user_id is not one of bulk's. */
	struct crpc_bulk *bulk;      /**< Made with shared. */
	struct crpc_bulk_conn *conn; /**< To the same peer. */
	void *block;                 /**< What the peer may write; NULL: nothing. */
	uint64_t block_len;          /**< Aligned to CRPC_CACHE_LINE as block is. */
	/** Runs the peer's operations; NULL: they are refused. */
	struct crpc_tensor_runner *runner;
};

/** One array of a call. */
struct crpc_tensor_bulk_put {
	const void *data; /**< The array as it lies here. */
	uint32_t dtype;   /**< Its type, enum crpc_tensor_dtype. */
	/** Where it goes, in segment 0 of the peer; of as many elements. */
	struct crpc_tensor dst;
};

/** How a call ended. */
struct crpc_tensor_bulk_done {
	uint64_t cookie;
	/**
	 * 0. -EPROTO: no such head. As crpc_tensor_check(): a destination. -EOPNOTSUPP: a
	 * conversion, or operations where no runner is. -ENOBUFS: too many calls are open there. As
	 * struct crpc_bulk_result: an array did not arrive. -ETIMEDOUT, -ECONNRESET: of the call.
	 */
	int32_t status;
	uint32_t nops; /**< Statuses below; of crpc_tensor_runner_run(). */
	int32_t op[CRPC_TENSOR_BATCH_OPS_MAX];
};

/** Counters since create. */
struct crpc_tensor_bulk_stats {
	uint64_t calls, served;
	uint64_t refused; /**< Requests that ended with an error before or instead of operations. */
	uint64_t arrays_received, bytes_received; /**< On the wire. */
};

/**
 * Make an object.
 *
 * @return
 *   The object, or NULL with errno: EINVAL (something is NULL, or the block is misaligned), ENOMEM.
 */
struct crpc_tensor_bulk *crpc_tensor_bulk_create(const struct crpc_tensor_bulk_conf *conf);

/** Free it. Open calls get no end; free or reset the connection first. NULL is allowed. */
void crpc_tensor_bulk_free(struct crpc_tensor_bulk *n);

/**
 * Send arrays, and operations to be run when all of them are there.
 *
 * @param n
 *   The object.
 * @param now_ns
 *   The time.
 * @param put, nput
 *   0 to CRPC_TENSOR_BULK_ARRAYS_MAX arrays; put[] is free again on return, what it names is not.
 * @param b
 *   Operations on arrays of segment 0; NULL: none.
 * @param cookie
 *   Comes back.
 * @return
 *   0. -EAGAIN: no place or room now, nothing was taken. -EINVAL: too many, or types or lengths
 *   that do not fit. -EOPNOTSUPP: a conversion that there is not. -EMSGSIZE, or as
 *   crpc_copyrpc_call().
 *   What fails later is reported by poll().
 */
int crpc_tensor_bulk_call(struct crpc_tensor_bulk *n, uint64_t now_ns,
	const struct crpc_tensor_bulk_put *put, uint32_t nput, const struct crpc_tensor_batch *b,
	uint64_t cookie);

/** Drive everything: polls the context, serves the peer's calls. */
void crpc_tensor_bulk_progress(struct crpc_tensor_bulk *n, uint64_t now_ns);

/**
 * Take calls that have ended.
 *
 * @return
 *   How many; 0 is normal.
 */
uint32_t crpc_tensor_bulk_poll(
	struct crpc_tensor_bulk *n, struct crpc_tensor_bulk_done *done, uint32_t max);

/** The counters. */
const struct crpc_tensor_bulk_stats *crpc_tensor_bulk_stats(const struct crpc_tensor_bulk *n);

CRPC_END_DECLS

#endif
