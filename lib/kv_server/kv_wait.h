/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_WAIT_H
#define KV_WAIT_H

/**
 * @file
 * Requests that are passed on: a record for each that can be open, so nothing can overflow, and a
 * queue of those that wait for room towards each peer, another daemon of the rank or of another
 * one. First in, first out; nothing ever spins for room inside a handler.
 *
 * Belongs to the daemon's thread.
 */

#include <sys/queue.h>

#include "crpc_atomic.h"
#include "crpc_kv_proto.h"

/** Who waits for the answer. */
enum kv_origin {
	KV_FROM_CLIENT, /**< Token of ipc. */
	KV_FROM_RANK,   /**< Token of copyrpc. */
};

/** One request. Its bytes follow. */
struct kv_record {
	STAILQ_ENTRY(kv_record) link; /**< In a queue, or among those that are free. */
	uint64_t token;
	uint64_t since_ns; /**< When it began to wait. */
	uint32_t len;
	uint32_t resp_max; /**< Of the answer; kv_net.h. */
	uint8_t origin;
	_Atomic uint8_t borrowed; /**< Another daemon may still access the bytes: kv_hop.h. */
	int32_t status;           /**< Why it failed. */
};

STAILQ_HEAD(kv_queue, kv_record);

/** All of them. */
struct kv_wait {
	uint8_t *pool;  /**< Array of records. */
	uint32_t place; /**< Bytes of each. */
	struct kv_queue free, failed;
	struct kv_queue *queue; /**< Array of queues. */
	uint32_t queues;
	uint32_t waiting; /**< In all queues. */
	uint32_t next;    /**< The queue that a drain begins with. */
	uint64_t waited;  /**< Requests that ever waited. */
};

/**
 * Pass a request on, which is in no queue now. @return 0: the record is the function's; -EAGAIN: it
 * goes on waiting; else the request has failed.
 */
typedef int (*kv_wait_send)(void *of, uint32_t queue, struct kv_record *rec, uint64_t now);

/** Make @p calls records of @p msg_max bytes, and queues. @return 0 or -ENOMEM; then free it. */
int __crpc_kv_wait_init(struct kv_wait *w, uint32_t calls, uint32_t msg_max, uint32_t queues);

void __crpc_kv_wait_free(struct kv_wait *w);

/** Take a free record; NULL: there is none. */
static inline struct kv_record *
kv_wait_take(struct kv_wait *w)
{
	struct kv_record *rec = STAILQ_FIRST(&w->free);

	if (crpc_likely(rec != NULL))
		STAILQ_REMOVE_HEAD(&w->free, link);
	return rec;
}

/** Give it back. */
static inline void
kv_wait_put(struct kv_wait *w, struct kv_record *rec)
{
	STAILQ_INSERT_HEAD(&w->free, rec, link);
}

/** Take a request that has failed, to report it; its record is free. NULL: there is none. */
static inline struct kv_record *
kv_wait_failed(struct kv_wait *w)
{
	struct kv_record *rec = STAILQ_FIRST(&w->failed);

	if (rec != NULL) {
		STAILQ_REMOVE_HEAD(&w->failed, link);
		kv_wait_put(w, rec);
	}
	return rec;
}

/** Let a record that was filled wait. */
void __crpc_kv_wait_add(struct kv_wait *w, uint32_t queue, struct kv_record *rec, uint64_t now);

/** Send what waits, as far as there is room. @return how many wait no more. */
uint32_t __crpc_kv_wait_drain(struct kv_wait *w, uint64_t now, kv_wait_send send, void *of);

#endif
