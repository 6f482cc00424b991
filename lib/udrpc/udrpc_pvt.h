/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDRPC_PVT_H
#define UDRPC_PVT_H

/**
 * @file
 * Inside of lib/udrpc.
 *
 * A call of N request and M response packets is a row of client packets, each with one answer:
 *
 *     client    REQ 0  ...  REQ N-2   REQ N-1   RFR 1  ...  RFR M-1
 *     server    CR 0   ...  CR N-2    RESP 0    RESP 1 ...  RESP M-1
 *     number    0           N-2       N-1       N           N+M-2
 *
 *     num_rx <= num_tx <= num_hi <= total    num_tx - num_rx of the endpoint's credits are out
 *     [ answered ][ sent ][ was sent ][ may be sent ]    total is N until RESP 0 has M
 *
 * The server takes pieces of a request in order only, so an answer to number k answers all before
 * it that are request pieces. Going back is num_tx = num_rx; credits come home with it. Answers to
 * what was sent before, up to num_hi, still count.
 *
 * Client slot:  as rpc_calls.h draws it. An ENDED call is repeated until it is answered, too: the
 *     peer may have executed it. A notification is ENDED from the start, and free when the server
 *     has released it.
 *     drain: the call went back and sends nothing until what it sent before has left the send
 *     queue, so that no two copies of a packet are in it. A copy that leaves later than the last
 *     answer came finds its request complete at the server, which does not look at its data.
 * Server slot:  IDLE -> PARTS (first piece) -> READY (last piece) -> OPEN (recv) -> DONE (reply)
 *     -> PARTS (first piece of the next request) ...
 *     A copy of an old response may still be in the send queue when the slot's next response is
 *     written: the head of each packet lies apart from its data, so such a copy carries the old
 *     request's number, which its client has ended, and is dropped there.
 * Endpoint:     free -> live: err = -ENOTCONN -> 0 (connect) -> -ECONNRESET, by silence -ETIMEDOUT
 *     -> leaving (ep_free) -> free, when nothing of it is in the send queue.
 *
 * Datagrams are numbered from 1 as they are put; `retired` is the last one that has left. Lists of
 * endpoints with something to do, and of their slots, keep a poll's cost that of the
 * active.
 */

#include <string.h>
#include <sys/queue.h>

#include "crpc_atomic.h"
#include "crpc_log.h"
#include "crpc_owner.h"
#include "crpc_tel.h"
#include "crpc_udrpc.h"
#include "rpc_calls.h"
#include "rpc_copy.h"
#include "udrpc_timely.h"
#include "udrpc_wire.h"

/** Datagrams that wait for the doorbell: a burst of our own and answers to one poll. */
#define TX_MAX   128u
#define TX_BURST 64u
_Static_assert(TX_MAX >= TX_BURST + CRPC_BURST_MAX, "each packet of a poll can be answered");
/** Head of a datagram in registered memory. */
#define TX_HEAD 32u
/** What a pacer that was polled late may catch up, ns. */
#define PACE_BURST_NS 20000

/** Client slot. */
struct udrpc_call {
	struct rpc_call call;
	bool oneway; /**< A notification. */
	bool drain;  /**< Nothing is sent before tx_seq has left. */
	bool again;  /**< Something was sent twice: round trips mean nothing. */
	bool wants;  /**< It is in the endpoint's list of what is to be sent. */
	uint16_t index;
	uint32_t req; /**< Number of the slot's request. */
	uint32_t num_tx, num_rx, num_hi, total;
	uint32_t parts;    /**< N. */
	uint32_t len;      /**< Of the request. */
	uint32_t resp_max;
	uint32_t resp_len; /**< Once RESP 0 has come. */
	uint32_t turn_ns;  /**< The same. */
	uint64_t call_ns;
	uint64_t progress_ns; /**< Last packet sent or answered. */
	uint64_t tx_seq;      /**< Last datagram put. */
	uint64_t *sent_ns;    /**< When a packet was put, by its number modulo the credits. */
	uint8_t *req_buf;     /**< Registered. */
	uint8_t *resp_buf;
	TAILQ_ENTRY(udrpc_call) want;
};
TAILQ_HEAD(call_list, udrpc_call);

enum serve_state {
	SERVE_IDLE,
	SERVE_PARTS,
	SERVE_READY,
	SERVE_OPEN,
	SERVE_DONE,
};

/** Server slot. */
struct udrpc_serve {
	uint8_t state; /**< enum serve_state. */
	bool unsent;   /**< DONE, and RESP 0 found no room. */
	uint16_t index;
	uint16_t status; /**< Of the response: 0 or an errno. */
	uint32_t req;    /**< Number of the last request that was begun. */
	uint32_t num_rx, parts;
	uint32_t len;
	uint32_t resp_max; /**< Or WIRE_ONEWAY. */
	uint32_t resp_len;
	uint32_t turn_ns;
	uint64_t token; /**< OPEN. */
	uint64_t whole_ns;
	struct crpc_udrpc_ep *ep;
	TAILQ_ENTRY(udrpc_serve) list; /**< READY: the context's; unsent: the endpoint's. */
	uint8_t *req_buf;
	uint8_t *resp_buf; /**< Registered. */
};
TAILQ_HEAD(serve_list, udrpc_serve);

struct crpc_udrpc_ep {
	struct crpc_udrpc *ctx;
	struct crpc_rdma_ah *ah;
	struct rpc_calls calls; /**< Of struct udrpc_call. */
	struct udrpc_serve *serves;
	int32_t err;      /**< crpc_udrpc_ep_status(). */
	uint32_t id;      /**< Index. */
	uint32_t token;   /**< In packets to us; */
	uint32_t peer_id; /**< these two in packets to the peer. */
	uint32_t peer_token;
	uint32_t slots;   /**< Of calls; 0 before connect. */
	uint32_t piece;   /**< Bytes of a packet without its head. */
	uint32_t max_msg;
	uint32_t credits; /**< At home. */
	uint32_t user_id;
	uint64_t tx_seq;  /**< Last datagram put. */
	bool live;        /**< Made, and not freed. */
	bool leaving;     /**< Freed, not to be used again yet. */
	bool bye;         /**< The peer is notified of the end when there is room. */
	bool heard;       /**< A packet came since the last look. */
	uint32_t silent;  /**< Looks in a row with repetitions and nothing heard. */

	struct call_list want;    /**< Calls with something to send. */
	struct serve_list unsent; /**< Server slots whose RESP 0 found no room. */
	bool in_sending, in_ending;
	TAILQ_ENTRY(crpc_udrpc_ep) sending, ending;

	bool timed;       /**< In the timers: while slots of calls are in use. */
	uint64_t look_ns; /**< When its timer is due. */
	TAILQ_ENTRY(crpc_udrpc_ep) timer;
	bool paced; /**< The rate holds packets back until next_tx_ns. */
	uint64_t next_tx_ns;
	struct timely timely;
};
TAILQ_HEAD(ep_list, crpc_udrpc_ep);

struct crpc_udrpc {
	struct crpc_rdma *dev;
	struct crpc_rdma_qp *ud;
	uint64_t now_ns;
	uint64_t busy_ns;   /**< Since when every poll was full and timers wait; 0: they do not. */
	int32_t err;        /**< The queue broke. */
	struct crpc_tel_box *tel;

	uint32_t nbatch;
	uint32_t inline_max;
	uint32_t head_mask;
	uint32_t lkey;
	uint64_t put, signalled, retired; /**< Numbers of datagrams. */
	uint32_t signal_every, unsignalled;
	uint32_t credit_mask;
	uint8_t *heads;
	struct ep_list sending; /**< With something to send that had to wait. */
	struct ep_list ending;  /**< Broken, with calls to complete. */
	struct rpc_sweep sweep;
	struct serve_list ready; /**< What recv() gives next. */
	uint64_t next_token;
	struct ep_list timers; /**< All are as long, so the first one is due first. */
	struct timely_conf timely;

	struct crpc_udrpc_conf conf;
	struct crpc_owner owner;
	struct crpc_rdma_mr mr;
	uint8_t *tx_mem, *rx_mem; /**< Request and response bytes to be sent, and received. */
	struct udrpc_call *calls; /**< slots + 1 of each endpoint. */
	struct rpc_calls **tables; /**< The sweep's. */
	struct udrpc_serve *serves;
	uint64_t *sent_ns;
	struct crpc_udrpc_ep *eps;
	uint64_t rng;
	struct crpc_rdma_cqe cqe[CRPC_BURST_MAX];
	struct crpc_rdma_wr batch[TX_MAX];
	struct crpc_udrpc_stats stats;
};

/* A token: count of requests given, slot, endpoint. Never 0, never twice within 2^41 requests. */
#define TOKEN_EP_BITS   15
#define TOKEN_SLOT_BITS 8
_Static_assert(CRPC_UDRPC_EPS_MAX == 1 << TOKEN_EP_BITS, "a token holds an endpoint");
_Static_assert(CRPC_UDRPC_SLOTS_MAX == 1 << TOKEN_SLOT_BITS, "and a slot");

/** The call slot of this number on the wire. */
static inline struct udrpc_call *
call_at(const struct crpc_udrpc_ep *ep, uint32_t i)
{
	return crpc_container_of(rpc_call_at(&ep->calls, i + 1), struct udrpc_call, call);
}

/* path */

/** Send what a call may. True: there is more, for later. */
bool __crpc_udrpc_call_send(struct crpc_udrpc_ep *ep, struct udrpc_call *c);
/** Send a piece of the response. False: no room. */
bool __crpc_udrpc_resp_send(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint32_t pkt);

/* packet */

/** The call of which this is the next piece of a response; NULL: there is none. */
struct udrpc_call *__crpc_udrpc_resp_check(
	struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes);
/** The slot of which this is the next piece of a request; NULL: it is dropped or answered. */
struct udrpc_serve *__crpc_udrpc_req_check(
	struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes);
/** Answer a piece of a request, for the first time or again. */
void __crpc_udrpc_req_answer(struct crpc_udrpc_ep *ep, struct udrpc_serve *s, uint16_t pkt);
/** A packet that is no piece of a request or of a response. */
void __crpc_udrpc_packet_other(struct crpc_udrpc_ep *ep, const struct wire_pkt *h, uint32_t bytes);

/* tx */

/** Post what waits. */
void __crpc_udrpc_tx_post(struct crpc_udrpc *ctx);
/** Send what endpoints wanted to send and could not. */
void __crpc_udrpc_tx_run(struct crpc_udrpc *ctx);
/** This call has something to send when there is room, credit and time. */
void __crpc_udrpc_want(struct crpc_udrpc_ep *ep, struct udrpc_call *c);
/** A response finds no room now. */
void __crpc_udrpc_resp_later(struct udrpc_serve *s);
/** Whether the datagram of this number has left; if not, see that it becomes known. */
bool __crpc_udrpc_drained(struct crpc_udrpc_ep *ep, uint64_t seq);
/** A packet without data. False: no room. */
bool __crpc_udrpc_tx_short(struct crpc_udrpc_ep *ep, enum wire_type type, uint16_t slot,
	uint32_t req, uint16_t pkt);
/** Send the peer the end of the session; later, if there is no room. */
void __crpc_udrpc_tx_bye(struct crpc_udrpc_ep *ep);

/* time */

/** Whether the rate lets packet number k go now. */
bool __crpc_udrpc_pace(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k);
/** Look at an endpoint, whose timer does not run, in a quarter of rto_ns. */
void __crpc_udrpc_timer_start(struct crpc_udrpc_ep *ep);
void __crpc_udrpc_timer_stop(struct crpc_udrpc_ep *ep);
/** Repeat what was not answered in time, and give up peers that are silent. */
void __crpc_udrpc_timers_run(struct crpc_udrpc *ctx);

/* endpoints */

/** End an endpoint with an error; its calls end in the polls that follow. */
void __crpc_udrpc_ep_break(struct crpc_udrpc_ep *ep, int32_t err);
/** The datagram queue is in error: nothing is sent or received on it any more. */
void __crpc_udrpc_queue_broke(struct crpc_udrpc *ctx, const struct crpc_rdma_cqe *cqe);
/** Calls of endpoints that have ended; returns completions. */
uint16_t __crpc_udrpc_calls_end(struct crpc_udrpc *ctx, struct crpc_done *done, uint16_t n);

/* telemetry */

int __crpc_udrpc_tel_open(struct crpc_udrpc *ctx);
void __crpc_udrpc_tel_answer(struct crpc_udrpc *ctx);

/** The endpoint whose timer is due; NULL: none. */
static inline struct crpc_udrpc_ep *
timer_due(const struct crpc_udrpc *ctx)
{
	struct crpc_udrpc_ep *ep = TAILQ_FIRST(&ctx->timers);

	return ep != NULL && ctx->now_ns >= ep->look_ns ? ep : NULL;
}

/** Room for a client's packet: answers keep theirs. */
static inline bool
tx_room(struct crpc_udrpc *ctx)
{
	if (crpc_likely(ctx->nbatch < TX_BURST))
		return true;
	__crpc_udrpc_tx_post(ctx);
	return ctx->nbatch < TX_BURST;
}

/**
 * One datagram more in the batch, with len bytes of registered memory behind its head. Returns
 * where the head goes; NULL: no room.
 */
static inline struct wire_pkt *
tx_put(struct crpc_udrpc_ep *ep, const void *data, uint32_t len)
{
	struct crpc_udrpc *ctx = ep->ctx;
	struct crpc_rdma_wr *d;
	struct wire_pkt *h;

	if (crpc_unlikely(ctx->nbatch >= TX_MAX)) {
		__crpc_udrpc_tx_post(ctx);
		if (ctx->nbatch >= TX_MAX)
			return NULL;
	}
	d = &ctx->batch[ctx->nbatch++];
	ep->tx_seq = ++ctx->put;
	h = (struct wire_pkt *)(void *)(ctx->heads + (ctx->put & ctx->head_mask) * TX_HEAD);
	d->op = CRPC_RDMA_SEND_IMM;
	d->ah = ep->ah;
	d->flags = 0;
	if (WIRE_HEAD + len <= ctx->inline_max)
		d->flags = CRPC_RDMA_WR_INLINE;
	if (++ctx->unsignalled >= ctx->signal_every) {
		d->flags |= CRPC_RDMA_WR_SIGNAL;
		ctx->signalled = ctx->put;
		ctx->unsignalled = 0;
	}
	d->imm = 0;
	d->wr_id = (uint32_t)ctx->put;
	d->num_sge = len != 0 ? 2 : 1;
	d->sge[0] = (struct crpc_rdma_sge){.addr = h, .len = WIRE_HEAD, .lkey = ctx->lkey};
	d->sge[1] = (struct crpc_rdma_sge){.addr = data, .len = len, .lkey = ctx->lkey};
	h->magic = WIRE_MAGIC;
	h->session = ep->peer_id;
	h->token = ep->peer_token;
	ctx->stats.bytes_sent += WIRE_HEAD + len;
	return h;
}

/** A round trip of packet number k, less what the server took. */
static inline void
rtt_sample(struct crpc_udrpc_ep *ep, const struct udrpc_call *c, uint32_t k, uint32_t turn_ns)
{
	struct crpc_udrpc *ctx = ep->ctx;
	uint64_t rtt = ctx->now_ns - c->sent_ns[k & ctx->credit_mask];

	/* which copy was answered is not known (P. Karn) */
	if (crpc_unlikely(c->again || ctx->conf.no_congestion_control))
		return;
	rtt -= crpc_min(turn_ns, rtt);
	if (crpc_likely(timely_bypass(&ep->timely, &ctx->timely, rtt)))
		return;
	__crpc_udrpc_timely_sample(&ep->timely, &ctx->timely, ctx->now_ns, rtt);
	ctx->stats.rtt_samples++;
}

/**
 * All of a call up to packet k has been answered; after going back perhaps before it was sent
 * again. The credits of what was out come home. turn_ns is what the server took.
 */
static inline void
answered(struct crpc_udrpc_ep *ep, struct udrpc_call *c, uint32_t k, uint32_t turn_ns)
{
	uint32_t upto = crpc_likely(k < c->num_tx) ? k + 1 : c->num_tx;

	rtt_sample(ep, c, k, turn_ns);
	ep->credits += upto - c->num_rx;
	c->num_rx = k + 1;
	c->num_tx += k + 1 - upto;
	c->progress_ns = ep->ctx->now_ns;
}

#endif
