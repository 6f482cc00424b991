/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COPYRPC_LARGE_H
#define COPYRPC_LARGE_H

/** @file Requests and replies beyond max_msg: crpc_copyrpc_large.c. */

#include "copyrpc_conn.h"

/** Areas that calls and requests take: one for a large request, one for a large reply. */
#define LARGE_REQ  (1u << WIRE_REQ)
#define LARGE_RESP (1u << WIRE_RESP)

/** Areas for messages beyond max_msg, two in each half of the memory; the peer writes those of the
 *  first. */
enum large_area {
	LARGE_RX_REQ,
	LARGE_RX_RESP,
	LARGE_TX_REQ,
	LARGE_TX_RESP,
};

/** A large message on its way. */
struct large_tx {
	struct wire_msg msg; /**< len 0: none. */
	uint32_t posted;     /**< Bytes whose fragments the device has taken. */
	uint32_t resv;       /**< What its caller has reserved for it. */
};

/** Large messages of an endpoint. */
struct large {
	struct large_tx tx[WIRE_LANES];
	uint32_t max; /**< Of both ends, the smaller one; 0: none. */
	uint32_t rkey;
	uint64_t raddr[WIRE_LANES]; /**< The peer's areas. */
	uint32_t taken;             /**< LARGE_*: areas that calls of ours have taken. */
	uint32_t held;      /**< Part of taken, that the user may read until the next poll. */
	uint32_t served;    /**< LARGE_*: areas that requests of the peer have taken. */
	uint32_t reply_max; /**< Of the request with LARGE_RESP. */
	uint64_t req_at[WIRE_LANES]; /**< Number of the request with LARGE_*. */
};

/** The endpoint's connection begins: what the peer's address says. */
void __crpc_copyrpc_large_connect(struct crpc_copyrpc_ep *ep, const struct wire_addr *peer);
/** Where an area starts. */
uint8_t *__crpc_copyrpc_large_area(const struct crpc_copyrpc_ep *ep, enum large_area which);
/** Whether a call of these sizes may be made: 0, -EMSGSIZE, -EAGAIN. Takes nothing. */
int __crpc_copyrpc_large_ask(struct crpc_copyrpc_ep *ep, uint32_t len, uint32_t resp_max);
/** The call takes its areas; a request beyond max_msg that lies in its area is sent. */
void __crpc_copyrpc_large_call(struct crpc_copyrpc_ep *ep, struct call_slot *slot,
	const struct wire_msg *msg, uint64_t now_ns);
/** Completions of the last poll are not readable any more. */
void __crpc_copyrpc_large_given(struct crpc_copyrpc_ep *ep);
/** Check what a request of the peer takes of the areas, and take it. False: it lies. */
bool __crpc_copyrpc_large_check(struct crpc_copyrpc_ep *ep, uint64_t number, struct req_entry *req);
/** The largest reply of a request, if it may be beyond max_msg; or 0. */
uint32_t __crpc_copyrpc_large_reply_max(
	const struct crpc_copyrpc_ep *ep, const struct req_entry *req);
/** Send what lies in the area of a lane: fragments, then the announcement. */
void __crpc_copyrpc_large_send(struct crpc_copyrpc_ep *ep, enum wire_lane which,
	const struct wire_msg *msg, uint32_t resv, uint64_t now_ns);
/** Areas of requests that are done are free. */
void __crpc_copyrpc_large_release(struct crpc_copyrpc_ep *ep);
/** Whether one is on its way. */
bool __crpc_copyrpc_large_sending(const struct crpc_copyrpc_ep *ep);
/** Post fragments; announce messages whose fragments are posted. */
void __crpc_copyrpc_large_pump(struct crpc_copyrpc_ep *ep, uint64_t now_ns);

#endif
