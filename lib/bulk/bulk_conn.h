/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_CONN_H
#define BULK_CONN_H

/**
 * @file
 * The object and its connections.
 *
 * A connection breaks with its last rail that was up, or for what the peer sent: err is set and its
 * endpoints are shut down; when each could be reset, which destroys the queue pair, and the engine
 * has no job of it, its requests end.
 */

#include <errno.h>
#include <string.h>

#include "bulk_rail.h"
#include "bulk_req.h"
#include "bulk_rx.h"
#include "bulk_tx.h"
#include "crpc_log.h"
#include "crpc_tel.h"

/* Places of these numbers in handles, tokens, cookies and user ids. */
_Static_assert(CRPC_BULK_CONNS_MAX <= 1024, "10 bits");
_Static_assert(CRPC_BULK_REQUESTS_MAX <= 256 && CRPC_BULK_SLOTS_MAX <= 256, "8 bits");
_Static_assert(CRPC_BULK_RAILS_MAX <= 8, "3 bits");

struct crpc_bulk_conn {
	struct crpc_bulk *b;
	uint32_t index, user_id, nrails;
	int32_t err;
	bool breaking;
	uint64_t break_ns; /**< Of the first turn in which it breaks; 0: none yet. */
	struct bulk_rail rail[CRPC_BULK_RAILS_MAX];
	uint32_t lead;          /**< The rail that takes control messages. */
	uint32_t nup;           /**< Rails that are UP. */
	uint32_t nclosing;      /**< Rails that are BREAKING or LEAVING. */
	struct bulk_sent *sent; /**< Pool; NULL: there is one rail. */
	uint32_t nsent;
	struct bulk_sents sent_free;
	struct bulk_sents again; /**< To be sent again, before anything new. */
	/* the peer's */
	uint32_t peer_ports, peer_requests;
	uint64_t peer_bounce;
	uint32_t peer_rkey[CRPC_BULK_PORTS_MAX];
	uint32_t eager_chunk;
	/* requests */
	struct bulk_req *req;     /**< The pools: sends, then receives. */
	struct bulk_reqs free[2]; /**< Indexed by recv. */
	uint32_t nfree[2];
	struct bulk_reqs sends, recvs, posted; /**< Open; recvs that were matched; those not. */
	uint64_t serial;
	struct bulk_peer peer[CRPC_BULK_REQUESTS_MAX];
	struct bulk_peers offers; /**< Not matched. */
	uint32_t ends_due;        /**< R_ENDs to be sent. */
	uint32_t peers_busy;      /**< Entries that are not free. */
	struct bulk_tx tx;
	struct bulk_rx rx;
	uint64_t sweep_ns;
	uint64_t bytes; /**< Of memory, without bounce. */
};

struct crpc_bulk {
	struct crpc_bulk_conf conf;
	const struct bulk_link *link; /**< Of all rails. */
	uint32_t ndevs;               /**< Ports that are RDMA devices: all, or none. */
	struct crpc_mrcache *cache[CRPC_BULK_PORTS_MAX];
	struct crpc_unpack *engine;
	bool stopping; /**< The engine is being stopped. */
	uint64_t now;
	uint64_t serial;
	uint32_t ndone;
	struct bulk_reqs done;
	struct rx_slots chunks; /**< MANUAL ones that were not given yet. */
	struct crpc_bulk_conn *conn[CRPC_BULK_CONNS_MAX];
	uint32_t conns; /**< Highest index in use, plus 1. */
	struct crpc_bulk_stats stats;
	struct crpc_tel_box *tel;
};

static inline uint64_t
bulk_clock(const struct crpc_bulk *b)
{
	return b->conf.clock_ns != NULL ? b->conf.clock_ns() : b->now;
}

static inline void
stage_add(struct crpc_bulk_stage *stage, uint64_t from, uint64_t to)
{
	uint64_t ns = to > from ? to - from : 0;

	stage->n++;
	stage->sum_ns += ns;
	stage->max_ns = crpc_max(stage->max_ns, ns);
}

/** Break a connection, for a cause that was logged; its requests end in the turns that follow. */
void __crpc_bulk_conn_break(struct crpc_bulk_conn *conn, int status);
/** Continue to break it. */
void __crpc_bulk_conn_break_on(struct crpc_bulk_conn *conn);
/** Break it for what the peer sent. Returns false. */
bool __crpc_bulk_proto(struct crpc_bulk_conn *conn, const char *what, uint64_t id, uint64_t found,
	uint64_t expected);

/* ---- bulk_tcp.c ---- */
/** Memory of @p len bytes for pages that sockets have, if there can be. */
void __crpc_bulk_tcp_map(struct crpc_bulk_conn *conn, uint64_t len);
/** Send what is queued, and take what has arrived. */
void __crpc_bulk_tcp_turn(struct crpc_bulk_conn *conn);

/* ---- bulk_tel.c ---- */
/** A mailbox for telemetry. 0, or -ENOMEM. */
int __crpc_bulk_tel_open(struct crpc_bulk *b);
/** Answer a question of telemetry. */
void __crpc_bulk_tel_answer(struct crpc_bulk *b);

#endif
