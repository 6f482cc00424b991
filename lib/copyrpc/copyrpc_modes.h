/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_MODES_H
#define COPYRPC_MODES_H

/**
 * @file
 * What differs between flow modes, flush policies and arrival modes: three tables, indexed by the
 * enums of crpc_copyrpc.h. The first row of each is the default; its functions are in the file that
 * the default path is in, those of the others in crpc_copyrpc_flow.c, crpc_copyrpc_policy.c and
 * crpc_copyrpc_memory.c.
 */

#include "copyrpc_conn.h"

/** How the released position returns to the sender of requests. */
struct flow_ops {
	bool in_batches; /**< The heads of batches carry it. */
	bool may_be_old; /**< It has two ways, one of which may be slower by any amount. */
	void (*wanted)(struct crpc_copyrpc_ep *ep);   /**< A request found no room. */
	void (*released)(struct crpc_copyrpc_ep *ep); /**< Requests were released. */
	void (*flushed)(struct crpc_copyrpc_ep *ep);  /**< flush() has looked at the endpoint. */
};

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

/** How a batch is written, and how its arrival is noticed. */
struct arrival_ops {
	bool in_memory;   /**< The functions are called only then. */
	uint32_t trailer; /**< Bytes behind the messages of a batch. */
	/** Change the work request of a batch, whose head is written. */
	void (*batch)(const struct crpc_copyrpc_ep *ep, const struct pending *batch,
		struct crpc_rdma_wr *wr);
	/** The same of a released position that is sent alone. */
	void (*update)(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr);
	/** Bytes of the request ring are released to the peer. */
	void (*released)(const struct crpc_copyrpc_ep *ep, uint64_t from, uint64_t to);
	/** Completions of the last poll are not readable any more. */
	void (*given)(struct crpc_copyrpc_ep *ep);
};

extern const struct flow_ops __crpc_copyrpc_flows[];
extern const struct flush_ops __crpc_copyrpc_flushes[];
extern const struct arrival_ops __crpc_copyrpc_arrivals[];

/** Kinds of completions, in the two upper bits of a wr_id. */
#define WR_KIND_SHIFT  30
#define WR_SERIAL_MASK ((1u << WR_KIND_SHIFT) - 1)
enum wr_kind {
	WR_FLUSH,    /**< A flush; its number. */
	WR_POSITION, /**< The READ of the peer's released position. */
	WR_ONESIDED, /**< A get or put. */
};

/* crpc_copyrpc_lane.c: the default policy */
bool __crpc_copyrpc_clocked_queued(
	struct crpc_copyrpc_ep *ep, enum wire_lane which, uint64_t now_ns);
bool __crpc_copyrpc_clocked_due(struct crpc_copyrpc_ep *ep, uint64_t now_ns);
void __crpc_copyrpc_clocked_sending(struct crpc_copyrpc_ep *ep, uint64_t now_ns);

/* crpc_copyrpc_flow.c */

/** The READ of the peer's position is complete. */
void __crpc_copyrpc_position_take(struct crpc_copyrpc_ep *ep);

#endif
