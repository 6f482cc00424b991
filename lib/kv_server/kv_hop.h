/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_HOP_H
#define KV_HOP_H

/**
 * @file
 * The other daemons of this rank, as one of them sees them: a flux node, the calls that are open on
 * it, and what waits for room.
 *
 *     home daemon                                     owner of the key
 *     call(mate, request, origin, token)    --flux->  recv(): requests
 *                                                     store
 *     poll(): answers with origin, token    <-flux--  answer_at(), answer()
 *
 * A request is answered by the home daemon when the owner's answer comes: `origin` says whether a
 * client of ours or another rank waits for it, `token` is the one to reply to. Both lie in a record
 * whose index is flux's cookie. There is a record for each call that can be open, so nothing can
 * overflow (kv_wait.h); beyond flux's window a request waits in its record, in the queue of
 * its mate.
 *
 * A message of up to CRPC_FLUX_MSG_MAX bytes travels in flux's ring. Where the run's messages are
 * larger, the ring carries the record's address: the request lies in the record, and its answer
 * replaces it there. After a timeout such a record is borrowed until the owner releases it.
 *
 * Belongs to the daemon's thread.
 */

#include "crpc_flux.h"
#include "kv_wait.h"

/** Deadline of a call to another daemon of the rank, which lives and dies with us. */
#define KV_HOP_TIMEOUT_NS UINT64_C(4000000000)

/** One daemon's view. */
struct kv_hop {
	struct crpc_flux_node *node;
	struct crpc_flux_ep *ep[CRPC_KV_DAEMONS_MAX];
	struct kv_wait wait;
	struct kv_queue borrowed; /**< Timed out, the owner may still access them. */
	uint32_t msg_max;
	bool by_address;
	uint32_t daemons;
	uint32_t open;       /**< Calls under way. */
	uint32_t *under_way; /**< Those of all daemons of this thread, or ours. */
	uint8_t msg[CRPC_FLUX_MSG_MAX] crpc_aligned(8); /**< The answer in the making. */
};

/** An answer that came back. */
struct kv_answered {
	const void *data; /**< Until the next poll or call; NULL if status is not 0. */
	uint32_t len;
	int32_t status; /**< 0, or -ETIMEDOUT, -ECONNRESET. */
	enum kv_origin origin;
	uint64_t token;
};

/** Attributes of a flux that carries messages of up to @p msg_max bytes, @p calls of them open. */
struct crpc_flux_attr __crpc_kv_hop_flux_attr(uint32_t daemons, uint32_t calls, uint32_t msg_max);

/**
 * Join the flux of the rank, which has a node for each of its daemons.
 *
 * @param daemon, daemons
 *   Which of them we are.
 * @param calls
 *   Open at most.
 * @param msg_max
 *   Bytes of the run's largest request or answer.
 * @return
 *   0 or -errno; the cause is in crpc_log_last().
 */
int __crpc_kv_hop_open(struct kv_hop *hop, struct crpc_flux *flux, uint32_t daemon,
	uint32_t daemons, uint32_t calls, uint32_t msg_max);

/** Connect to all others, which have joined. @return as __crpc_kv_hop_open(). */
int __crpc_kv_hop_connect(struct kv_hop *hop, uint32_t daemon);

/** Leave. Zeroed memory is fine. */
void __crpc_kv_hop_close(struct kv_hop *hop);

/**
 * Pass a request to the daemon that owns its key, now or as soon as there is room.
 *
 * @param mate
 *   Number of that daemon.
 * @return
 *   0: __crpc_kv_hop_poll() gives its answer. -ENOBUFS: more are open than were planned for;
 *   -EHOSTDOWN: that daemon has stopped; or another final error.
 */
int __crpc_kv_hop_call(struct kv_hop *hop, uint64_t now, uint32_t mate, const void *msg,
	uint32_t len, enum kv_origin origin, uint64_t token);

/** Pass on a request that waits: a kv_wait_send, of a struct kv_hop. */
int __crpc_kv_hop_send(void *of, uint32_t mate, struct kv_record *rec, uint64_t now);

/**
 * Requests of the others. Their data may be read until they are answered.
 *
 * @return
 *   How many.
 */
uint32_t __crpc_kv_hop_recv(struct kv_hop *hop, uint64_t now, struct crpc_req *req, uint32_t n);

/** Where the answer to a request goes: msg_max bytes. The request's own bytes may be there. */
static inline void *
kv_hop_answer_at(struct kv_hop *hop, const struct crpc_req *req)
{
	return hop->by_address ? (void *)(uintptr_t)req->data : hop->msg;
}

/** The answer is there: send it. */
void __crpc_kv_hop_answer(
	struct kv_hop *hop, uint64_t now, const struct crpc_req *req, uint32_t len);

/**
 * Answers that came.
 *
 * @return
 *   How many of @p n.
 */
uint32_t __crpc_kv_hop_poll(
	struct kv_hop *hop, uint64_t now, struct kv_answered *answer, uint32_t n);

#endif
