/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_COPYRPC_H
#define CRPC_COPYRPC_H

/**
 * @file
 * RPC between nodes: requests and responses are packed into batches, and each batch moves with one
 * RDMA WRITE WITH IMMEDIATE into a ring in the receiver's memory.
 *
 *     client                                                  server
 *     call() ... call()   [ batch in the request lane  ] -->  poll() parses it
 *                                                             recv() -> work -> reply()
 *     poll() -> done[] <--[ batch in the response lane ]      reply() ... reply()
 *
 * Every endpoint is both: each side may call the other. An endpoint has two lanes in each direction
 * (requests, responses), each a ring of ring_size bytes in the receiver's memory. The bytes on the
 * wire are in doc/protocol/copyrpc_wire.md.
 *
 * Order of calls:
 *
 *     ctx = crpc_copyrpc_create(&conf)
 *     ep = crpc_copyrpc_ep_create(ctx, peer_number)
 *     crpc_copyrpc_ep_addr(ep, addr)     ---- exchanged by the application ---->  peer
 *     crpc_copyrpc_ep_connect(ep, peer_addr)
 *     every turn of the loop:
 *             now = crpc_clock_ns()                          once per turn
 *             n = crpc_copyrpc_poll(ctx, now, done, 64)      completions; also drives the NIC
 *             m = crpc_copyrpc_recv(ctx, now, req, 64)       requests
 *             crpc_copyrpc_reply(ctx, now, token, buf, len)  now or in a later turn, in any order
 *             crpc_copyrpc_call(ep, now, buf, len, resp_max, cookie)
 *             crpc_copyrpc_flush(ctx, now)                   end of turn: queued batches go out
 *
 * Both ends must call poll() all the time, also when they wait for nothing: window updates,
 * deadlines and the refill of receives happen there.
 *
 * Ownership: buf is free again when call() or reply() returns. A request's data stays readable
 * until its reply(), fail() or release(), also over a whole cycle of the ring: its space is
 * returned to the peer only then (and, as space is returned in order, a request held for long holds
 * up those behind it). A completion's data stays readable until the next poll().
 *
 * Flow control: a call takes room in the peer's request ring and, at the same time, reserves in our
 * own response ring the worst case that its reply can need. So a reply always fits and the response
 * lane always drains: there is no deadlock, whatever both sides do. call() gives -EAGAIN where
 * there is no room yet.
 *
 * Large messages: requests and replies beyond max_msg, up to max_large of both ends, go in
 * fragments into memory that is set aside for them, and are given in one piece. An endpoint has one
 * such request and one such reply at a time, in each direction: call() gives -EAGAIN until the call
 * before it has ended. Small messages pass large ones, so their order is that of their last
 * fragments.
 *
 * Threads: a context and all its endpoints belong to one thread (lcore). With -Ddebug_checks=true
 * this is checked. Time comes in as nanoseconds of any monotonic clock; the library reads none.
 *
 * Nothing here allocates or makes a system call but the functions of the control path (create,
 * free, ep_create, ep_connect, ep_reset, ep_free, dump, check), and a poll() that ends gets and
 * puts of an endpoint that broke: it destroys the queue pair.
 *
 * A program with an EAL also has telemetry: /crpc/copyrpc/list, stats, latency, endpoints,
 * endpoint. poll() answers the handlers, so they need a context that is polled.
 *
 * Sources: batches moved by one WRITE WITH IMMEDIATE into the peer's ring, with flow control in
 * their heads, are the design of copyrpc (github.com/namachan10777/copyrpc); the clocking by
 * completions is the self-clocking of V. Jacobson, Congestion Avoidance and Control, SIGCOMM 1988.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_hist.h"
#include "crpc_rdma.h"
#include "crpc_rpc.h"

CRPC_BEGIN_DECLS

struct crpc_copyrpc;    /**< A context: one device, its endpoints, its queues. */
struct crpc_copyrpc_ep; /**< One connection to one peer. */

/** When queued messages are sent. */
enum crpc_copyrpc_flush_policy {
	/** poll() and flush() send replies, and requests along with them; requests alone if fewer
	 *  than max_outstanding flushes with requests wait for their completion or an answer, or
	 *  the oldest that is queued is older than age_ns, or the batch is full. So batches grow
	 *  with load by themselves. Where all recent batches had one message, the next one goes
	 *  in call() or reply() already. The default. */
	CRPC_COPYRPC_CLOCKED,
	/** call() and reply() send at once: one batch per message. */
	CRPC_COPYRPC_IMMEDIATE,
	/** poll() and flush() send all that is queued. */
	CRPC_COPYRPC_DEFERRED,
	/**
	 * As DEFERRED, but replies are held until there is one for each endpoint, or no request is
	 * left to answer, or the time has passed in which, by the recent rate, as many messages go
	 * as there are endpoints (0.5 to 100 us). For comparison with CLOCKED.
	 */
	CRPC_COPYRPC_HOLD,
};

/** How the position up to which request room is free again returns to the sender. */
enum crpc_copyrpc_flow {
	/** With every batch, and alone if there is none: the default. */
	CRPC_COPYRPC_FLOW_WINDOW,
	/**
	 * With every batch, and if less than a quarter of the room is left the sender READs it. The
	 * receiver sends nothing for it. For comparison.
	 */
	CRPC_COPYRPC_FLOW_READ,
	/** Always alone, by a WRITE WITH IMMEDIATE without data. For comparison. */
	CRPC_COPYRPC_FLOW_NOTIFY,
};

/** How the arrival of a batch is noticed. */
enum crpc_copyrpc_arrival {
	/** By its immediate: a receive and a completion per batch. The default. */
	CRPC_COPYRPC_IMM,
	/** By looking at the ring's memory at each poll(): no receive, no completion, but a look at
	 *  each such endpoint, and all that arrived is cleared once it was used. It needs a device
	 *  that writes the bytes of one WRITE in their order, the last one last, and says so:
	 *  crpc_rdma_qp_in_order(). With adaptive routing it does not. */
	CRPC_COPYRPC_MEMORY,
};

/** What an endpoint may have of its own. Zero fields are the defaults. */
struct crpc_copyrpc_ep_conf {
	enum crpc_copyrpc_flow flow;       /**< The same at both ends. */
	enum crpc_copyrpc_arrival arrival; /**< The same at both ends. */
	/**
	 * The queue pair's; the same at both ends. Over CRPC_RDMA_DC a peer can write from the
	 * moment it has our address, not only when we have connected: with arrival by memory, or
	 * flow NOTIFY or READ, both ends connect before the first of them sends.
	 */
	enum crpc_rdma_transport transport;
};

/** How to make a context. Zero fields take the default. */
struct crpc_copyrpc_conf {
	struct crpc_rdma *dev; /**< The device; it must outlive the context. */
	/** Endpoints at most; default 16, at most CRPC_COPYRPC_EPS_MAX. */
	uint32_t max_eps;
	/** Bytes of one lane; a power of two; default 256 KiB; the same at both ends. An endpoint
	 *  takes four of them, and a table of requests that is as large as one. */
	uint32_t ring_size;
	/** Bytes of the largest request or reply; default ring_size / 4, at most
	 *  CRPC_COPYRPC_MSG_MAX(ring_size). */
	uint32_t max_msg;
	/** Bytes of the largest request or reply that goes in fragments, beside the rings; default
	 *  0: none beyond max_msg; at most CRPC_COPYRPC_LARGE_MAX. An endpoint takes four times
	 *  that much memory. */
	uint32_t max_large;
	/** Calls open per endpoint; rounded up to a power of two; default 256, at most
	 *  CRPC_COPYRPC_INFLIGHT_MAX. */
	uint32_t max_inflight;
	enum crpc_copyrpc_flush_policy flush; /**< Default CLOCKED. */
	/** CLOCKED: flushes with requests per endpoint that wait for their completion or an answer;
	 *  default 4. */
	uint32_t max_outstanding;
	/** Queued bytes of a lane that count as a full batch; default ring_size / 4. */
	uint32_t batch_max;
	uint32_t sq_depth; /**< Send queue of each QP, work requests; default 64, at least 8. */
	uint32_t rq_depth; /**< Receive queue of each QP; default 128. */
	uint64_t age_ns;   /**< CLOCKED: oldest that a queued message gets; default 50 us. */
	/** HOLD: how long replies are held at most, always; default 0: by the recent rate. */
	uint64_t hold_ns;
	/** Freed request room is reported to the peer within this time, if no batch carried it
	 *  before; default 20 us. */
	uint64_t update_ns;
	/**
	 * Deadline of every call; default 1 s. A call ends with -ETIMEDOUT between timeout_ns and
	 * 1.25 times that, if poll() is called all the time; where replies fill every poll(), it
	 * may end later, by twice as many replies as calls are open on all endpoints.
	 */
	uint64_t timeout_ns;
	/**
	 * Silence after which a peer counts as lost and its endpoint breaks with -ETIMEDOUT;
	 * default 0: never, only the device reports it. A peer that sends nothing for a quarter of
	 * it is probed, and its poll() answers, whatever its own setting is. The endpoint breaks
	 * between this time and 1.25 times that, if poll() is called all the time. Choose it longer
	 * than the peer may be away from its core.
	 */
	uint64_t peer_timeout_ns;
	/** Where our lanes' positions start; a multiple of 16; default 0. The counts of batches,
	 *  flushes and requests start at a sixteenth of it. For tests of what happens after 2^32
	 *  and 2^64 bytes, 2^31 batches, ... */
	uint64_t initial_pos;
};

/** The largest max_msg that a ring allows: two worst-case batches of one message fit the ring. */
#define CRPC_COPYRPC_MSG_MAX(ring_size) ((ring_size) / 2 - 64)

/** Buckets of the batch-size histogram: bucket i counts batches of 2^i to 2^(i+1)-1 messages. */
#define CRPC_COPYRPC_BATCH_BUCKETS 16

/** Counters of a context since create or the last crpc_copyrpc_stats_reset(). */
struct crpc_copyrpc_stats {
	struct crpc_rpc_counts rpc; /**< What every layer counts. */
	uint64_t flushes;           /**< crpc_rdma_post() calls that posted something: doorbells. */
	uint64_t batches_sent;      /**< Batches posted: WQEs, without window updates. */
	uint64_t messages_sent;     /**< Messages in them. */
	uint64_t bytes_sent;        /**< Bytes of them, headers included. */
	uint64_t batches_received;
	uint64_t messages_received;
	uint64_t updates_sent; /**< Window updates that went alone. */
	uint64_t updates_received;
	uint64_t reads_sent;     /**< FLOW_READ: READs of the peer's position. */
	uint64_t onesided;       /**< Gets and puts completed. */
	uint64_t fragments_sent; /**< Pieces of requests and replies beyond max_msg. */
	uint64_t age_flushes;    /**< CLOCKED: flushes because of age_ns. */
	uint64_t full_flushes;   /**< CLOCKED: flushes because of batch_max. */
	uint64_t sq_full;      /**< Flushes cut short by a full send queue; the rest went later. */
	uint64_t again_window; /**< -EAGAIN: no room in the peer's request ring. */
	uint64_t again_reply;  /**< -EAGAIN: no room to reserve for the reply. */
	uint64_t again_inflight; /**< -EAGAIN: max_inflight calls are open. */
	uint64_t again_large;    /**< -EAGAIN: another large request, or large reply, is open. */
	uint64_t wraps;          /**< Times that the tail of a ring was skipped. */
	uint64_t ep_errors;      /**< Endpoints that broke. */
	uint64_t peers_lost;     /**< Of these: nothing arrived for peer_timeout_ns. */
	uint64_t alive_sent;     /**< Probes whether a peer is alive, and answers. */
	uint64_t batch_size[CRPC_COPYRPC_BATCH_BUCKETS]; /**< See CRPC_COPYRPC_BATCH_BUCKETS. */
	/** Every successful call's round trip, split in three, in ns: */
	struct crpc_hist queue; /**< call() to flush. */
	struct crpc_hist wire;  /**< Flush to completion, without the peer's part. */
	struct crpc_hist peer; /**< Arrival at the server's poll() to its reply(), as it reports. */
};

/**
 * Make a context.
 *
 * @param conf
 *   Device and sizes; copied.
 * @return
 *   The context, or NULL with errno: EINVAL (a size out of range; the log names it), ENOMEM.
 */
struct crpc_copyrpc *crpc_copyrpc_create(const struct crpc_copyrpc_conf *conf);

/** Free a context and the endpoints it still has (see crpc_copyrpc_ep_free()). NULL is allowed. */
void crpc_copyrpc_free(struct crpc_copyrpc *ctx);

/**
 * Make an endpoint: memory for its rings, a queue pair with posted receives.
 *
 * @param ctx
 *   The context.
 * @param user_id
 *   Your number of the peer; crpc_req.peer of its requests.
 * @return
 *   The endpoint, or NULL with errno: ENOSPC (max_eps, or the device's completion queue), ENOMEM,
 *   EINVAL.
 */
struct crpc_copyrpc_ep *crpc_copyrpc_ep_create(struct crpc_copyrpc *ctx, uint32_t user_id);

/**
 * The same with a flow mode and a way of noticing arrivals.
 *
 * @param ctx
 *   The context.
 * @param user_id
 *   As crpc_copyrpc_ep_create().
 * @param conf
 *   The modes; copied. The peer's endpoint must have the same.
 * @return
 *   As crpc_copyrpc_ep_create().
 */
struct crpc_copyrpc_ep *crpc_copyrpc_ep_create_as(
	struct crpc_copyrpc *ctx, uint32_t user_id, const struct crpc_copyrpc_ep_conf *conf);

/**
 * Free an endpoint, connected or not. Its open calls get no completion, and its requests' tokens
 * and data and the data of its last completions end here; crpc_copyrpc_ep_shutdown() and polling
 * before it gives every call its end. It does not wait for the peer. So over DC a get or put that
 * is still open may continue until the region of its memory is deregistered; a
 * crpc_copyrpc_ep_reset() that gave 0 before ends that, too. NULL is allowed.
 */
void crpc_copyrpc_ep_free(struct crpc_copyrpc_ep *ep);

/**
 * The address that the peer needs, as bytes for the wire (little endian, versioned).
 *
 * @param ep
 *   The endpoint.
 * @param addr
 *   CRPC_COPYRPC_ADDR_LEN bytes, filled.
 */
void crpc_copyrpc_ep_addr(const struct crpc_copyrpc_ep *ep, uint8_t addr[CRPC_COPYRPC_ADDR_LEN]);

/**
 * Connect to a peer's endpoint, once. A call may be made at once, but the peer gets it only after
 * it has connected too: exchange a barrier before the first call.
 *
 * @param ep
 *   A fresh endpoint.
 * @param peer
 *   What crpc_copyrpc_ep_addr() gave at the peer. Untrusted: checked before use.
 * @return
 *   0, -EPROTO (no address, another version, another ring_size), -EISCONN, -EIO; the status of an
 *   endpoint that is broken: crpc_copyrpc_ep_reset() first.
 */
int crpc_copyrpc_ep_connect(struct crpc_copyrpc_ep *ep, const uint8_t peer[CRPC_COPYRPC_ADDR_LEN]);

/**
 * End an endpoint: every open call completes with -ECONNRESET in the polls that follow, later calls
 * are refused. The peer is not notified. Does nothing if it is broken already.
 */
void crpc_copyrpc_ep_shutdown(struct crpc_copyrpc_ep *ep);

/**
 * Make a broken endpoint fit for a new connection: a fresh queue pair, a new epoch, empty lanes.
 * Then exchange addresses and crpc_copyrpc_ep_connect() as for a new one; the peer does the same,
 * at its own time. It keeps its memory, user_id and counters.
 *
 * No call is ever made again by the library: a call is executed at most once, also across this.
 * Requests of the old connection that were not taken by recv() are never given; the tokens and the
 * data of those that were end here. What was written for the old epoch can not arrive: its queue
 * pair is gone.
 *
 * @param ep
 *   The endpoint; after crpc_copyrpc_ep_shutdown() if it still works.
 * @return
 *   0 (also if it was never connected). -EISCONN: it works. -EBUSY: poll() has not given the ends
 *   of all its calls yet, the replies that the last poll() gave are still readable, or (over DC)
 *   the device is not done with what it was given for a peer that may be dead; poll, and try again:
 *   it takes as long as the retries towards that peer, at most a little more than
 *   crpc_rdma_conf.drain_ns. -ENOMEM, -ENOSPC, -EINVAL: no queue pair; it
 *   may be tried again.
 */
int crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep);

/**
 * Whether an endpoint works.
 *
 *     ep_create --> -ENOTCONN --ep_connect--> 0 --error, ep_shutdown--> -ECONNRESET ...
 *                       ^                                                     |
 *                       +----------------------- ep_reset --------------------+
 *
 * @return
 *   0, -ENOTCONN (not connected yet), -ECONNRESET (the QP broke, or shutdown), -ETIMEDOUT (nothing
 *   arrived for peer_timeout_ns), -EPROTO (the peer sent what the protocol forbids). A broken
 *   endpoint stays so until crpc_copyrpc_ep_reset().
 */
int crpc_copyrpc_ep_status(const struct crpc_copyrpc_ep *ep);

/**
 * Queue one request. Under IMMEDIATE it is sent, else it goes with the next flush() or poll() that
 * the policy allows.
 *
 * @param ep
 *   A connected endpoint.
 * @param now_ns
 *   The time.
 * @param buf
 *   The request, copied; NULL if len is 0.
 * @param len
 *   Its bytes, at most max_msg of both ends, or else max_large of both.
 * @param resp_max
 *   The largest reply the server may give, bytes, with the same limits. Room is reserved for it
 *   until the reply has come, so do not overstate it.
 * @param cookie
 *   Returned in the completion.
 * @return
 *   0: taken, it completes exactly once. -EAGAIN: nothing was taken; poll, then call again.
 *   -EMSGSIZE: len or resp_max is too large, for ever. -ENOTCONN, -EPROTO, and -ECONNRESET of all
 *   other ends: see crpc_copyrpc_ep_status().
 */
int crpc_copyrpc_call(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie);

/**
 * Queue a notification: a request without reply and without completion. The server ends it by
 * release(). It is delivered in order with the calls, unless the endpoint breaks.
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
 *   As crpc_copyrpc_call().
 */
int crpc_copyrpc_notify(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const void *buf, uint32_t len);

/**
 * Cancel calls: each open call of this endpoint with this cookie completes with -ECANCELED in the
 * polls that follow, also if its reply is found before. The server is not notified: it may have
 * executed the call, or do so later. As with a deadline, the room that is reserved for the
 * reply stays so until the reply has come or the endpoint ends. Looks at all call slots: not for
 * each call.
 *
 * @return
 *   How many calls were found.
 */
uint32_t crpc_copyrpc_cancel(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie);

/**
 * Read memory of the peer. It is done when poll() gives the cookie, with buf and len as its data;
 * with -ECONNRESET if the endpoint broke. In either case the device has done with buf. A key or
 * bound that is wrong breaks the endpoint. At most 64 gets and puts of an endpoint are open; they
 * have no deadline but the queue pair's own. Over DC the device may need as long for those of a
 * broken endpoint as crpc_copyrpc_ep_reset() says, also if the peer is alive.
 *
 * @param ep
 *   A connected endpoint.
 * @param now_ns
 *   The time.
 * @param mr
 *   Registered at the context's device, crpc_rdma_mr_reg(); buf lies in it.
 * @param buf
 *   Filled; yours again with the completion.
 * @param len
 *   Bytes, 1 to CRPC_COPYRPC_ONESIDED_LEN_MAX.
 * @param raddr
 *   The peer's memory: an address in a region that it registered.
 * @param rkey
 *   That region's rkey, as the peer reported it.
 * @param cookie
 *   Returned in the completion.
 * @return
 *   0, -EAGAIN (poll, then retry), -EINVAL (not within mr, or no bytes), -EMSGSIZE, or as
 *   crpc_copyrpc_call().
 */
int crpc_copyrpc_get(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const struct crpc_rdma_mr *mr,
	void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie);

/**
 * Write memory of the peer; as crpc_copyrpc_get(). The bytes are in the peer's memory before any
 * message that is sent after the completion, or after this call, arrives there.
 *
 * @return
 *   As crpc_copyrpc_get().
 */
int crpc_copyrpc_put(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const struct crpc_rdma_mr *mr,
	const void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie);

/**
 * Take completions, and drive everything: NIC completions, arrived batches, deadlines, sending.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time; it must not go back.
 * @param done
 *   Filled. Status 0: data and len are the reply, readable until the next poll(); no data: the
 *   reply is empty, or the server ended the request by release(). -ETIMEDOUT: no reply in time (one
 *   that comes later is dropped). -ECONNRESET: the endpoint broke. -ECANCELED:
 *   crpc_copyrpc_cancel(). Others: what the server gave to crpc_copyrpc_fail().
 * @param n
 *   Room in it, at least 1; at most CRPC_BURST_MAX are given. What does not fit comes with the
 *   next poll(), and until then nothing newer is taken from the NIC. A poll() that gives
 *   CRPC_BURST_MAX leaves sending to flush() or to one of the next three polls. Calls that end
 *   without a reply have their turn also while replies fill every poll().
 * @return
 *   How many; 0 is normal.
 */
uint16_t crpc_copyrpc_poll(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/**
 * Take requests that poll() has found. Those of one endpoint come in the order they were sent;
 * endpoints are served in the order of arrival, at most 32 requests in a row.
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
 *   How many; 0 is normal.
 */
uint16_t crpc_copyrpc_recv(
	struct crpc_copyrpc *ctx, uint64_t now_ns, struct crpc_req *req, uint16_t n);

/**
 * Answer a request; its data is gone after it. Never lacks room (see Flow control above).
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
 *   0. -ENOENT: the token is not open (ended before, or of a freed endpoint or an earlier
 *   connection). -EMSGSIZE: longer than the caller reserved; the request stays open. -EOPNOTSUPP:
 *   the request is a notification; it stays open, release() it. -ECONNRESET: the endpoint broke;
 *   the request has ended, the reply is lost.
 */
int crpc_copyrpc_reply(
	struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len);

/**
 * The first half of a reply that is written straight into the batch: fill the bytes, then
 * crpc_copyrpc_reply_commit(); in between nothing else of this context may be called, but the
 * request stays readable. To give up, just do not commit.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @param token
 *   Of a request that recv() gave.
 * @param len
 *   Exactly the bytes of the reply.
 * @param data
 *   Set on success: where the reply goes; 16-byte aligned.
 * @return
 *   As crpc_copyrpc_reply().
 */
int crpc_copyrpc_reply_reserve(
	struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, uint32_t len, void **data);

/** The second half of crpc_copyrpc_reply_reserve(): the reply is queued, the request ended. */
void crpc_copyrpc_reply_commit(struct crpc_copyrpc *ctx, uint64_t now_ns);

/**
 * End a request without an answer. A notification just ends; a call completes at the caller with
 * status 0 and no data.
 *
 * @return
 *   0, -ENOENT or -ECONNRESET as crpc_copyrpc_reply().
 */
int crpc_copyrpc_release(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token);

/**
 * End a call with an error: it completes at the caller with this status and no data.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @param token
 *   Of a request that recv() gave.
 * @param status
 *   -1 to -4095, a negative errno.
 * @return
 *   0, -EINVAL (status; the request stays open), -ENOENT, -EOPNOTSUPP, -ECONNRESET as
 *   crpc_copyrpc_reply().
 */
int crpc_copyrpc_fail(struct crpc_copyrpc *ctx, uint64_t now_ns, uint64_t token, int32_t status);

/**
 * Send what is queued, as the flush policy allows. Call it at the end of a turn that made calls or
 * replies; costs nothing for idle endpoints.
 *
 * @param ctx
 *   The context.
 * @param now_ns
 *   The time.
 * @return
 *   Flushes made (doorbells).
 */
uint32_t crpc_copyrpc_flush(struct crpc_copyrpc *ctx, uint64_t now_ns);

/** The counters, live; read them from the context's thread or after it stopped. */
const struct crpc_copyrpc_stats *crpc_copyrpc_stats(const struct crpc_copyrpc *ctx);

/**
 * Whether round trips are recorded in the histograms queue, wire and peer, as they are from the
 * start; to find out what that costs. The counters are always kept.
 */
void crpc_copyrpc_stats_round_trips(struct crpc_copyrpc *ctx, bool on);

/** Zero the counters and histograms. */
void crpc_copyrpc_stats_reset(struct crpc_copyrpc *ctx);

/** Where an endpoint stands, in bytes since its lanes began; see crpc_copyrpc_ep_positions(). */
struct crpc_copyrpc_positions {
	uint64_t requests_queued;           /**< End of the requests that were queued. */
	uint64_t requests_sent;             /**< Of these, given to the device. */
	uint64_t requests_released_by_peer; /**< Of these, known to be released. */
	uint64_t responses_sent;
	uint64_t requests_arrived;
	uint64_t requests_released; /**< Of these, ended by the application. */
	uint64_t requests_reported; /**< Of these, reported to the peer. */
	uint64_t responses_arrived;
	uint64_t reply_room_reserved; /**< Bytes of our response ring that open calls may need. */
	/** Bytes of the peer's that open requests may need. */
	uint64_t reply_room_reserved_by_peer;
};

/** Fill in where an endpoint stands. */
void crpc_copyrpc_ep_positions(
	const struct crpc_copyrpc_ep *ep, struct crpc_copyrpc_positions *positions);

/** Bytes of memory that an endpoint has: rings, tables, areas of large messages. What the device
 *  has for its queue pair is not in it. */
uint64_t crpc_copyrpc_ep_memory(const struct crpc_copyrpc_ep *ep);

/**
 * Audit the invariants that hold between any two calls: positions in order, windows within the
 * ring, reservations equal to the sum over open calls and requests. Slow, for tests.
 *
 * @param ctx
 *   The context.
 * @param at_rest
 *   True: also require that nothing is queued, open, unreleased or not reported to the peer.
 * @return
 *   0, or -EFAULT; the log names the endpoint, the rule, expected and found.
 */
int crpc_copyrpc_check(const struct crpc_copyrpc *ctx, bool at_rest);

CRPC_END_DECLS

#endif
