/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_IPC_H
#define CRPC_TENSOR_IPC_H

/**
 * @file
 * Operations on arrays in another process: batches of lib/tensor over lib/ipc, arrays by reference.
 *
 *     client thread                                server thread
 *     p = crpc_arena_alloc(cache, bytes, &ref)
 *     ... arrays at p, described in segment 0,
 *     and a batch of operations on them ...
 *     crpc_tensor_ipc_call(c, now, &b, ref, cookie)
 *            -- batch and block -->                n = crpc_ipc_server_recv(s, now, req, 32)
 *                                                  crpc_tensor_ipc_serve(s, now, &req[i], runner)
 *     n = crpc_ipc_client_poll(c, now, done, 32)
 *            <-- statuses and block --
 *     crpc_tensor_ipc_status(&done[i], status, n)
 *     crpc_ipc_client_take(c, &done[i], &block)
 *
 * The arrays of a call lie in one block of an arena that both sides have attached. The block goes
 * to the server with the call and comes back with the answer, as in crpc_ipc.h: it belongs to one
 * process at a time. So no other process can get that memory while the server works in it, even if
 * the client dies; and a client can name no memory but its own.
 *
 * Errors of a call as a whole come as its completion's status, those of single operations in its
 * bytes. A call that fails as a whole costs its block, but for -ENOBUFS and the like at call().
 *
 * Threads: as the ipc objects and the runner, which belong to one thread each.
 *
 * Format: doc/protocol/tensor.md.
 */

#include "crpc_ipc.h"
#include "crpc_tensor_batch.h"

CRPC_BEGIN_DECLS

/** Bytes of a request at most (req_max of the server's conf): so many arrays and operations. */
#define CRPC_TENSOR_IPC_REQ_MAX(ntensors, nops) (8 + CRPC_TENSOR_BATCH_BYTES(ntensors, nops))
/** Bytes of an answer at most (resp_max): so many operations. */
#define CRPC_TENSOR_IPC_RESP_MAX(nops) (8 + (nops) * sizeof(int32_t))

_Static_assert(CRPC_TENSOR_IPC_REQ_MAX(CRPC_TENSOR_BATCH_TENSORS_MAX, CRPC_TENSOR_BATCH_OPS_MAX) <=
		CRPC_IPC_MSG_MAX,
	"the longest batch fits a request");

/**
 * Send a batch.
 *
 * @param c
 *   The client.
 * @param now_ns
 *   Time of the clock that the client's other calls are given.
 * @param b
 *   The batch; the caller's again on return.
 * @param ref
 *   The block that its segment 0 is, which goes to the server if the return value is 0; 0: none.
 * @param cookie
 *   Comes back with the completion, whose status may be -EPROTO (the server found no batch) beside
 *   those of crpc_ipc_client_call_ref().
 * @return
 *   As crpc_ipc_client_call_ref(); -EMSGSIZE also where the statuses would not fit an answer.
 */
int crpc_tensor_ipc_call(struct crpc_ipc_client *c, uint64_t now_ns,
	const struct crpc_tensor_batch *b, uint64_t ref, uint64_t cookie);

/**
 * Read the statuses of a batch's operations out of a completion.
 *
 * @param done
 *   Of a call of crpc_tensor_ipc_call().
 * @param status
 *   Room for @p n: 0, or a negative errno as of crpc_tensor_runner_run().
 * @param n
 *   Operations of the batch: crpc_tensor_batch_ops().
 * @return
 *   0, whatever the statuses are; or the status of a call that failed; or -EPROTO: the server gave
 *   another number of statuses, or one that is none.
 */
int crpc_tensor_ipc_status(const struct crpc_done *done, int32_t *status, uint32_t n);

/**
 * Run the batch of a request, and answer it with the statuses and its block.
 *
 * @param s
 *   The server.
 * @param now_ns
 *   Time of the clock that the server's other calls are given.
 * @param req
 *   A request as crpc_ipc_server_recv() gave it. It is ended in any case.
 * @param r
 *   Runs the batch; req->peer is its operations' peer.
 * @return
 *   Number of operations run; -EPROTO: it was no batch (the call fails so); or an error of
 *   crpc_ipc_server_reply().
 */
int crpc_tensor_ipc_serve(struct crpc_ipc_server *s, uint64_t now_ns, const struct crpc_req *req,
	struct crpc_tensor_runner *r);

CRPC_END_DECLS

#endif
