/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_MODES_H
#define COPYRPC_MODES_H

/**
 * @file
 * What differs between flow modes, flush policies and arrival modes. Policies are a table in
 * crpc_copyrpc_policy.c. Of the others, one mode each needs more than the default, and the default
 * path branches to it: crpc_copyrpc_flow.c and crpc_copyrpc_memory.c.
 */

#include "copyrpc_conn.h"

/** Whether the heads of batches carry the released position to the sender of requests. */
static inline bool
flow_in_batches(const struct conn *conn)
{
	return conn->conf.flow != CRPC_COPYRPC_FLOW_NOTIFY;
}

/** When queued messages are sent. */
struct flush_ops {
	bool at_once; /**< Each message when it is queued. */
	bool clocked; /**< Flushes with requests are counted, and some request a completion. */
	bool holds;   /**< What is queued and not due holds up the released position, too. */
	/** Whether what was just queued is sent without waiting for flush(). */
	bool (*queued)(struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns);
	/** Whether flush() sends what is queued. */
	bool (*due)(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
	/** All that was queued is about to be sent. */
	void (*sending)(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
};

extern const struct flush_ops __crpc_copyrpc_flushes[];

/** Kinds of completions, in the two upper bits of a wr_id. */
#define WR_KIND_SHIFT  30
#define WR_SERIAL_MASK ((1u << WR_KIND_SHIFT) - 1)
enum wr_kind {
	WR_FLUSH,    /**< A flush; its number. */
	WR_POSITION, /**< The READ of the peer's released position. */
	WR_ONESIDED, /**< A get or put. */
};

/* crpc_copyrpc_flow.c: only of READ */

/** A request found no room. */
void __crpc_copyrpc_read_wanted(struct crpc_copyrpc_ep *ep);
/** Requests were released. */
void __crpc_copyrpc_read_released(struct crpc_copyrpc_ep *ep);
/** flush() has looked at the endpoint. */
void __crpc_copyrpc_read_flushed(struct crpc_copyrpc_ep *ep);
/** The READ of the peer's position is complete. */
void __crpc_copyrpc_position_take(struct crpc_copyrpc_ep *ep);

/* crpc_copyrpc_memory.c: only of arrivals in memory */

/** Change the work request of a batch, whose head is written. */
void __crpc_copyrpc_memory_batch(
	const struct crpc_copyrpc_ep *ep, const struct pending *batch, struct crpc_rdma_wr *wr);
/** The same of a released position that is sent alone. */
void __crpc_copyrpc_memory_update(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr);
/** Zero what has arrived from one position to another. */
void __crpc_copyrpc_memory_clear(
	const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t from, uint64_t to);
/** Completions of the last poll are not readable any more. */
void __crpc_copyrpc_memory_given(struct crpc_copyrpc_ep *ep);

#endif
