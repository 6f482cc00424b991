/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LANE_H
#define LANE_H

/**
 * @file
 * Lanes of calls (app_lane.h): one way to call, opened once and measured in slices.
 *
 *     side 0: clients                      side 1: server
 *     open                                 open
 *     meet    <---- at the same time ----> meet
 *     for each slice:                      serve until side 0 is over
 *         warm up, timed calls, drain
 *     close                                close
 *
 * Ways of layer ipc (lane_*.c) do a part of a slice in one call: go() and serve(). Ways of
 * layers net and raw (net_*.c) do it in turns, step(), as one lcore may have both sides.
 *
 * A call is answered with its own bytes (app_msg.h). Its first word names the client (16 bits) and
 * the call.
 *
 * Sides belong to one thread, which opens, meets, calls and closes.
 */

#include <errno.h>

#include "app_msg.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "rpb.h"

/** Bytes of an address of layer ipc, and of an endpoint of the others. */
#define LANE_ADDR_MAX 4096
#define NET_ADDR_LEN  CRPC_COPYRPC_ADDR_LEN
/** Limits of an endpoint of net and raw. */
#define NET_DEPTH_MAX 1024
#define NET_SIZE_MAX  16384
/** Bytes of a message of raw, at most; those of more than NET_INLINE_MAX are not in the WQE. */
#define NET_RAW_MAX    4096
#define NET_INLINE_MAX 256

/** How clients call. */
enum lane_mode {
	LANE_SYNC,   /**< One call at a time: the next client calls when the answer is there. */
	LANE_ASYNC,  /**< Each active client keeps `depth` calls open. */
	LANE_ONEWAY, /**< Messages without an answer; ipc: at most `depth` ahead of the server. */
};

/** What one lane is. */
struct app_case {
	uint32_t transport; /**< Index of its way. */
	uint32_t mode;      /**< enum lane_mode. */
	uint32_t clients;   /**< Connected; net: endpoints of one client. */
	uint32_t active;    /**< Of those, calling; the first ones. */
	uint32_t depth;     /**< Open calls of a client; ipc: 1 in LANE_SYNC. */
	uint32_t burst;     /**< ipc: calls made at a stretch, and answers taken, at most. */
	uint32_t size;      /**< Bytes of a request and of its answer. */
	uint32_t ring_size; /**< copyrpc; 0: as large as the depth needs. */
	uint32_t flush;     /**< enum crpc_copyrpc_flush_policy. */
	uint32_t flow;      /**< enum crpc_copyrpc_flow. */
	uint32_t arrival;   /**< enum crpc_copyrpc_arrival. */
	bool clocked;       /**< The server counts its turns. */
	char name[48];      /**< Unique on this host, for addresses. */
};

/** A client's calls. */
struct lane_one {
	uint64_t seq; /**< Of the next call. */
	uint64_t ack; /**< Of the next answer. */
};

/** A side of a lane. The way's own data stands behind it. */
struct lane_end {
	struct app_case conf;
	struct app_lane *lane;
	struct lane_one *one; /**< By client. */
	uint64_t calls;       /**< ipc: answered, or one-way and sent, since its loop began. */
	uint64_t unsaid; /**< One-way messages of a client that are never said to have come. */
	uint64_t bad;           /**< Answers that were wrong. */
	uint64_t open;          /**< Calls without an answer, of all clients. */
	struct crpc_hist *hist; /**< LANE_SYNC: takes each call's time, ticks; NULL: none. */
	bool server, oneway;
	bool check;  /**< Compare answers. */
	bool broken; /**< A call failed: the lane is of no use any more. */
};

/** What a slice was like at side 1. */
struct lane_served {
	uint64_t calls;
	uint64_t busy_calls;  /**< Of turns that found requests: how many, */
	uint64_t busy_ticks;  /**< and their time. */
	uint64_t empty_turns; /**< Turns that found none, */
	uint64_t empty_ticks; /**< and their time. */
	bool clocked;         /**< Ticks and empty turns were counted. */
};

/** What an end's device did. */
enum lane_count {
	LANE_DOORBELLS,
	LANE_WQEBBS,
	LANE_CQES,
	LANE_READS,      /**< RDMA READs for flow control. */
	LANE_PCIE_BYTES, /**< This and the next only where `card`. */
	LANE_PACKETS,
	LANE_BATCHES,  /**< Writes that carried messages, */
	LANE_MESSAGES, /**< and these. */
	LANE_REPEATED, /**< udrpc: packets. */
	LANE_COUNTS,
};

/** All of them. */
struct lane_ledger {
	uint64_t n[LANE_COUNTS];
	bool card;
};

/** What a lane's figure is. */
enum lane_unit {
	LANE_RATE,    /**< Millions per second. */
	LANE_LATENCY, /**< ns each: one at a time. */
	LANE_BYTES,   /**< GB/s, one at a time. */
};

struct lane_loop;

/** A way to call; state[0] is a struct lane_end, and state[1] of one with step(). */
struct lane_way {
	struct app_way base;
	enum lane_unit unit;   /**< ipc: LANE_SYNC gives latencies. */
	bool oneway;           /**< Has LANE_ONEWAY. */
	uint32_t files_client; /**< As of base, for each client. */
	/** Side 1: answer until `over` is not 0; `out` is zero but for `clocked`. */
	void (*serve)(struct app_lane *l, const _Atomic uint32_t *over, struct lane_served *out);
	/** Call until the clock's ticks reach `end`: calls answered, or one-way messages sent. */
	uint64_t (*go)(struct lane_end *e, uint64_t end, bool check);
	const struct lane_loop *loop; /**< How answers are taken when no calls are made. */
	/**
	 * In place of these: one turn of the loop. The client makes new calls only if `more`.
	 *
	 * @return
	 *   Client: calls that ended; server: those that it served.
	 */
	uint32_t (*step)(struct lane_end *e, uint64_t now_ns, bool more);
	/** All since the device was opened; may be NULL. */
	void (*ledger)(const struct lane_end *e, struct lane_ledger *ledger);
};

/* ---- calls.c ---- */

/** Series of a lane. */
enum lane_series {
	LANE_VALUE, /**< In its unit. */
	LANE_COST,  /**< The server's ns per call, where it counts them. */
	LANE_EMPTY, /**< The server's ns per poll that finds nothing. */
};

/** A lane of calls in a group. */
struct call_lane {
	struct app_lane base;
	struct app_case c;
	const struct rpb_run *run;
	enum lane_unit unit;
	struct call_report {
		struct app_report base;
		uint64_t calls;            /**< Side 0: of the timed part, */
		uint64_t all;              /**< and of what stands before and behind it. */
		struct lane_served served; /**< Side 1. */
		struct lane_ledger ledger; /**< Since the device was opened. */
	} report[APP_SIDES];
	/* a slice */
	enum { CALL_WARM, CALL_TIMED, CALL_DRAIN, CALL_REST } phase;
	uint64_t slice_ns;                    /**< Length of the timed part. */
	uint64_t since_ns, until_ns, away_ns; /**< Of the phase. */
	bool check;
	struct crpc_hist *slice_hist;
	/* results */
	struct crpc_hist hist[APP_STATES]; /**< --percentiles: ticks of each call. */
	uint64_t counted; /**< --counters: calls meanwhile. */
	struct lane_ledger at[APP_SIDES];                     /**< Since the devices were opened. */
	struct lane_ledger sum[APP_SIDES]; /**< Of the slices, from rest to rest, together, */
	uint64_t calls;                    /**< which had so many calls. */
};

/** A group, without lanes. */
struct app_group call_group(struct rpb_run *run);
/** Add a lane: NULL if this build lacks it. */
struct call_lane *call_add(struct rpb_run *run, struct app_group *g, const struct app_case *c);
/** Measure, print, free the lanes: 0 or -EIO. */
int call_run(struct app_group *g);
/** Percentiles of the calls in the group's state: false if there are none. */
bool call_hist(const struct app_group *g, const struct app_lane *l, struct crpc_hist *hist);

/** Memory for a side that begins with struct lane_end; NULL after app_lane_fail(). */
void *lane_end_new(struct app_lane *l, int side, size_t size);
/** Keep why a lane broke while it was measured. */
#define lane_break(e, ...) ((e)->broken = true, app_lane_fail((e)->lane, -EIO, __VA_ARGS__))

/* ---- inline, for the timed loops ---- */

#define LANE_INLINE static inline __attribute__((always_inline))

/** First word of call number seq of a client. */
LANE_INLINE uint64_t
lane_word(uint32_t client, uint64_t seq)
{
	return (uint64_t)client << 48 | (seq & UINT64_C(0xffffffffffff));
}

/** The client that a first word names. */
LANE_INLINE uint32_t
lane_word_client(uint64_t word)
{
	return (uint32_t)(word >> 48);
}

/** The number of the call that a first word names. */
LANE_INLINE uint64_t
lane_word_seq(uint64_t word)
{
	return word & UINT64_C(0xffffffffffff);
}

/** A server's turn that takes longer has lost its core, and is not counted. */
#define LANE_TURN_MAX_NS 200000

/** Count one turn of a server that found n requests. */
LANE_INLINE void
lane_turn(struct lane_served *out, uint32_t n, uint64_t ticks, uint64_t ticks_max)
{
	out->calls += n;
	if (crpc_unlikely(ticks > ticks_max))
		return;
	if (n != 0) {
		out->busy_calls += n;
		out->busy_ticks += ticks;
	} else {
		out->empty_turns++;
		out->empty_ticks += ticks;
	}
}

#endif
