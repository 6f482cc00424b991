/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LANE_H
#define LANE_H

/**
 * @file
 * One way to call another process, opened once and measured in slices: what lane_*.c implement.
 *
 *     first process                        second process
 *     open()  <---- meet each other ---->  serve_open()
 *     for each slice:                      serve() until the pair says stop
 *         go(warm-up), go(timed), drain()
 *     close()                              serve_close()
 *
 * A call is answered with its own bytes. Its first word names the client (16 bits) and the call;
 * word i is the first one plus i. Every word is written by its sender and read by its receiver, in
 * every lane; `check` also compares them.
 *
 * Sizes are whole words of 8 bytes.
 */

#include <string.h>

#include "crpc_clock.h"
#include "crpc_hist.h"
#include "pair.h"

/** Lanes that one run interleaves at most. */
#define LANE_MAX 16
/** Limits of what one lane is asked for. */
#define LANE_CLIENTS_MAX CRPC_IPC_CLIENTS_MAX
#define LANE_DEPTH_MAX   CRPC_IPC_DEPTH_MAX
#define LANE_BURST_MAX   CRPC_BURST_MAX
#define LANE_SIZE_MAX    CRPC_IPC_MSG_MAX

/** How clients call. */
enum lane_mode {
	LANE_SYNC,  /**< One call at a time: the next client calls when the answer is there. */
	LANE_ASYNC, /**< Each active client keeps `depth` calls open. */
	LANE_ONEWAY, /**< Messages without an answer, at most `depth` ahead of the server. */
	LANE_MODES,
};

/** What is compared. */
enum lane_transport {
	LANE_IPC,
	LANE_UNIX,
	LANE_PIPE,
	LANE_UCX,
	LANE_ZMQ_IPC,
	LANE_ZMQ_TCP,
	LANE_TRANSPORTS,
};

/** What one lane is. */
struct lane_conf {
	enum lane_transport transport;
	enum lane_mode mode;
	uint32_t clients; /**< Connected. */
	uint32_t active;  /**< Of those, calling; the first ones. */
	uint32_t depth;   /**< Open calls of a client; 1 in LANE_SYNC. */
	uint32_t burst;   /**< Calls made at a stretch, and answers taken, at most. */
	uint32_t size;    /**< Bytes of a request and of its answer. */
	uint32_t index;   /**< Of the lane, below LANE_MAX. */
	char name[48];    /**< Unique on this host, for addresses. */
};

/** First process: every client of a lane. The transport's own data stands behind it. */
struct lane_client {
	struct lane_conf conf;
	struct rpb_pair *pair;
	uint64_t bad;   /**< Answers that were wrong. */
	uint64_t open;  /**< Calls without an answer, of all clients. */
	struct crpc_hist *hist; /**< LANE_SYNC: takes each call's time, ticks; NULL: none. */
	bool broken;    /**< A call failed: the lane is of no use any more. */
	char why[256];  /**< The cause. */
};

/** Second process: what a slice was like there. */
struct lane_served {
	uint64_t calls;
	uint64_t busy_calls;  /**< Of turns that found requests: how many, */
	uint64_t busy_ticks;  /**< and their time. */
	uint64_t empty_turns; /**< Turns that found none, */
	uint64_t empty_ticks; /**< and their time. */
	uint64_t away_ns;
	bool clocked; /**< Ticks and empty turns were counted. */
};

/** A transport. */
struct lane_ops {
	const char *name;
	const char *package; /**< Debian package that it needs; NULL: nothing. */
	bool built;
	bool oneway;   /**< Has LANE_ONEWAY. */
	bool sleeps;   /**< Waits in the kernel, so its threads lose their cores all the time. */
	uint32_t clients_max;
	/**
	 * Second process: 0 or -errno after rpb_pair_fail(). Returns when all clients are there.
	 */
	int (*serve_open)(struct rpb_pair *p, const struct lane_conf *c, void **server);
	/** Answer until rpb_pair_stopped(); `out` is zero. */
	void (*serve)(struct rpb_pair *p, void *server, struct lane_served *out);
	void (*serve_close)(void *server);
	/** First process: NULL after lane_why(); meets serve_open(). */
	struct lane_client *(*open)(struct rpb_pair *p, const struct lane_conf *c);
	/** Call until the clock's ticks reach `end`: calls answered, or one-way messages sent. */
	uint64_t (*go)(struct lane_client *c, uint64_t end, bool check);
	/** Take answers, make no calls, until none is open or `end` is reached. */
	void (*drain)(struct lane_client *c, uint64_t end);
	void (*close)(struct lane_client *c);
};

extern const struct lane_ops lane_ipc, lane_unix, lane_pipe, lane_ucx, lane_zmq_ipc, lane_zmq_tcp;

/** All of them. */
extern const struct lane_ops *const lane_ops[LANE_TRANSPORTS];

/** Time that both sides of a lane have to meet. */
#define LANE_MEET_MS 20000

/** First process: remember why open() fails. */
void lane_why(const char *fmt, ...) crpc_printf(1, 2);

/** The last lane_why(); forgets it. */
const char *lane_why_take(void);

/** Say that a lane broke while it was measured. */
void lane_break(struct lane_client *c, const char *fmt, ...) crpc_printf(2, 3);

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

/** Write a request. */
LANE_INLINE void
lane_fill(uint64_t *msg, uint32_t size, uint64_t word)
{
	uint32_t i;

	for (i = 0; i < size / 8; i++)
		msg[i] = word + i;
}

/** A word of a message, which may lie at any address. */
LANE_INLINE uint64_t
lane_load(const void *msg, uint32_t i)
{
	uint64_t v;

	memcpy(&v, (const uint8_t *)msg + (size_t)i * sizeof(v), sizeof(v));
	return v;
}

/** Read an answer: 1 if it is wrong, which only `check` can find. */
LANE_INLINE uint64_t
lane_read(const void *msg, uint32_t size, bool check, uint64_t word)
{
	uint64_t sum = 0, bad = 0, v;
	uint32_t i;

	for (i = 0; i < size / 8; i++) {
		v = lane_load(msg, i);
		sum += v;
		if (check)
			bad |= v ^ (word + i);
	}
	__asm__ __volatile__("" : : "r"(sum));
	return bad != 0;
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

/** Ticks of the clock in a time. */
static inline uint64_t
lane_ticks(double ns)
{
	return (uint64_t)(ns * 4294967296.0 / (double)crpc_clock.mult);
}

/** LANE_SYNC: a call that began at *then has ended. */
LANE_INLINE void
lane_call_ended(struct lane_client *c, uint64_t *then)
{
	uint64_t now;

	if (crpc_likely(c->hist == NULL))
		return;
	now = crpc_clock_ticks();
	crpc_hist_record(c->hist, now - *then);
	*then = now;
}

/** True when the time is over; looks at the clock once in 64 turns. */
LANE_INLINE bool
lane_over(uint32_t *turn, uint64_t end)
{
	return (++*turn & 63) == 0 && crpc_clock_ticks() >= end;
}

#endif
