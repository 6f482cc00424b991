/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_CLIENT_H
#define KV_CLIENT_H

/**
 * @file
 * The load: clients that keep `qd` calls open each, many of them on one lcore.
 *
 *     kv_loop_init(&loop, &work, n)             clients of one lcore
 *     kv_loop_join(&loop, i, ...)               each is connected to its daemon
 *     every turn: kv_loop_turn(&loop, now)      completions, checks, new calls
 *     kv_loop_measure(&loop, now)               forget the warm-up, count from here
 *     kv_loop_freeze(&loop, now)                freeze the figures, go on (cool-down)
 *     kv_loop_stop(&loop, now)                  make no new calls
 *     ... turns until kv_loop_open() is 0 ...
 *     kv_loop_fini(&loop)
 *
 * The loop is closed: an answered call is replaced at once, so that clients x qd calls are open all
 * the time. With gap_ns it is open: calls are due at times of a Poisson process, whatever was
 * answered, and a latency counts from the time that a call was due, also if all qd places were
 * taken then. The clock is read once per turn; it is the end of every call that completed in the
 * turn and the begin of every call made in it, so a latency is exact to one turn.
 *
 * Belongs to one thread, but for `served_pub`. No DPDK here: a client process is built from the
 * same file.
 *
 * A client's connections are those of ipc, or, with a backend that has links (backend.h), all
 * clients of the loop share one link: then set loop.link, and join with no connection.
 */

#include "app_keys.h"
#include "crpc_atomic.h"
#include "crpc_hist.h"
#include "crpc_ipc.h"
#include "crpc_kv_blocks.h"
#include "record.h"
#include "sizes.h"
#include "verify.h"

struct kv_end;

#define KV_QD_MAX      64
#define KV_CLIENTS_MAX 512
#define KV_SCAN_MAX    10000

/** What the clients do; shared, read-only. */
struct kv_work {
	struct app_keys keys; /**< Over the keys of all ranks. */
	uint32_t rank;    /**< Of the daemons that the clients are connected to. */
	uint32_t owners;  /**< Daemons of all ranks. */
	uint32_t first;   /**< The first of this rank, among all owners. */
	uint32_t daemons; /**< Of this rank. */
	uint32_t key_size; /**< Of the longest. */
	struct kv_sizes key_sizes; /**< A key's follows from its number. */
	uint32_t value_size; /**< Of the largest. */
	struct kv_sizes sizes;
	uint32_t qd;
	uint32_t writers;
	uint64_t read_below;  /**< Of 2^32: an operation whose draw is below this is a get. */
	uint64_t delete_from; /**< Of 2^32: from here on it is a delete, between them a put. */
	uint64_t seed;
	double gap_ns; /**< Mean time between two calls of a client; 0: closed loop. */
	bool latest;   /**< keys draws ages: puts go round the keys, gets want recent ones. */
	uint32_t scan; /**< Reads are scans of 1 to so many keys (scan.h); 0: they are not. */
	bool rmw;      /**< A put reads its key first: one operation of two calls. */
	bool cas;      /**< And takes place only if its key is still what was read. */
	uint64_t ttl_ms; /**< Of what puts write; 0: it stays. */
	bool verify;
	bool may_miss;
	bool may_refuse; /**< The stores may be full. */
	bool restored; /**< The stores began with what an earlier run left. */
};

/** Divide the draws of 32 bits between gets, puts and, what is left, deletes. */
static inline void
kv_work_ratios(struct kv_work *work, double gets, double puts)
{
	work->read_below = (uint64_t)(gets * 4294967296.0);
	work->delete_from =
		puts + gets >= 1 ? UINT64_C(1) << 32 : (uint64_t)((gets + puts) * 4294967296.0);
}

/** One open call. First what every call needs. */
struct kv_call {
	uint64_t start; /**< Time of the call, ns. */
	uint32_t key;
	uint8_t op;
	uint8_t path; /**< enum kv_path. */
	bool reads;   /**< rmw: the first half of a put. */
	bool open;
	uint64_t floor; /**< kv_history_floor() then. */
	uint64_t word;
	uint64_t version; /**< rmw: what was read: version ... */
	uint64_t read;    /**< ... and first word; 0, 0: nothing. */
	uint64_t record;  /**< Its number in the history. */
} crpc_aligned(CRPC_CACHE_LINE);

/** What all plain requests of an operation have in common. */
struct kv_form {
	uint64_t head;
	uint64_t len; /**< Bytes of the whole request. */
};

/** One client. Its first line and the first call are what a plain call needs of it. */
struct kv_client {
	struct crpc_ipc_client *own; /**< ipc[0]. */
	uint64_t rng;
	uint64_t sent, answered; /**< Since connect. */
	uint32_t home;           /**< Its daemon's number among all owners. */
	uint32_t number;         /**< In its loop. */
	uint32_t free_n;
	uint32_t fresh_n;
	uint32_t again_n;
	uint32_t newest; /**< latest, scan: the key that was put last. */
	bool dead;       /**< Its daemon is gone: makes no more calls. */
	struct kv_history history;
	uint64_t due_ns; /**< When the next call is due; 0: not known yet. */
	uint32_t conns;
	uint32_t scan_key, scan_left; /**< The key that its scan is at, and how many from it on. */
	bool put_off; /**< The call that was drawn last was not taken, for now. */
	uint8_t free[KV_QD_MAX];
	uint8_t fresh[KV_QD_MAX]; /**< Calls made since the last completion. */
	uint8_t again[KV_QD_MAX]; /**< rmw: calls that have read and are to write. */
	struct kv_call call[KV_QD_MAX];
	/** To its home; where it chooses the owner itself, to each daemon of the rank. */
	struct crpc_ipc_client *ipc[KV_DAEMONS_MAX];
	/** Of each connection, for values above KV_VALUE_INLINE; NULL: there are none. */
	struct crpc_arena_cache *arena[KV_DAEMONS_MAX];
} crpc_aligned(CRPC_CACHE_GUARD);

/** Why an operation failed. */
enum kv_cause {
	KV_CAUSE_LOST,   /**< Its owner, or its daemon, is lost. */
	KV_CAUSE_TIME,   /**< No answer in time. */
	KV_CAUSE_MEMORY, /**< No room for a large value on its way. */
	KV_CAUSE_OTHER,
	KV_CAUSES,
};

/** What was counted in the measured window. */
struct kv_counts {
	uint64_t ops[KV_PATHS]; /**< Answered by a store, by the way they went. */
	uint64_t failed;        /**< Ended with an error ... */
	uint64_t failed_of[KV_CAUSES]; /**< ... by its cause. */
	uint64_t misses;        /**< Of the answered: not found. */
	uint64_t conflicts;     /**< Of the answered: a value had changed since it was read. */
	uint64_t refused;       /**< Of the answered: the store was full. */
	uint64_t scans;         /**< All of whose keys were asked for. */
	uint64_t lat_sum;       /**< Of all, ns. */
	uint64_t window_ns;
	uint64_t lag_ns; /**< Open loop: how late the most belated client was at the end. */
	struct crpc_hist lat[KV_PATHS];
};

/** Where in its life a loop is. */
enum kv_phase {
	KV_WARMUP,
	KV_MEASURE,
	KV_COOLDOWN,
	KV_STOPPED,
};

/** The clients of one lcore. */
struct kv_loop {
	const struct kv_work *work;
	struct kv_client *client; /**< Array of n. */
	uint32_t n;
	struct kv_end *link; /**< Of all of them; NULL: each has connections of its own. */
	bool passes;         /**< The daemon that is asked passes on what other ranks own. */
	enum kv_phase phase;
	bool with;  /**< Puts have extras, or may be large. */
	bool plain; /**< A closed loop, one connection per client, nothing out of the ordinary. */
	uint64_t measure_from;
	uint32_t room;   /**< Bytes of the largest plain request, as it is written. */
	uint32_t answer; /**< Bytes of the largest answer that is not in a block. */
	struct kv_form form[KV_DELETE + 1]; /**< By operation. */
	uint32_t dead;   /**< Clients whose daemon is gone. */
	struct kv_records *records; /**< Where to note every call; NULL: nowhere. */
	uint64_t served; /**< Answered by a store since the begin. */
	struct kv_counts counts;
	_Atomic uint64_t served_pub crpc_aligned(CRPC_CACHE_GUARD); /**< For the progress line. */
	uint64_t block; /**< The request was written to this block instead of msg; 0: it was not. */
	/** The memberships in the arenas of the rank's daemons, where values may be large. */
	struct crpc_kv_blocks blocks[KV_DAEMONS_MAX];
	uint8_t msg[KV_REQ_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

/**
 * Make the clients of one lcore.
 *
 * @param loop
 *   Zeroed, filled.
 * @param work
 *   The load; it must outlive the loop.
 * @param n
 *   Clients.
 * @return
 *   0 or -ENOMEM.
 */
int kv_loop_init(struct kv_loop *loop, const struct kv_work *work, uint32_t n);

/**
 * Connect one of them.
 *
 * @param i
 *   Which.
 * @param conf
 *   How to reach its daemons.
 * @param conns
 *   1: conf is its home, which passes on what it does not own. More: conf[d] is daemon d of the
 *   rank, all of them, and the client asks the owner itself. 0: it uses the loop's link.
 * @param home
 *   Number of its home among all owners: whom it asks for keys of other ranks.
 * @param writer
 *   Its writer id.
 * @return
 *   0 or -errno; the cause is in crpc_log_last() if it is one of ipc.
 */
int kv_loop_join(struct kv_loop *loop, uint32_t i, const struct crpc_ipc_client_conf *conf,
	uint32_t conns, uint32_t home, uint32_t writer);

void kv_loop_fini(struct kv_loop *loop);

/** One turn. @return how many calls completed or were made. */
uint32_t kv_loop_turn(struct kv_loop *loop, uint64_t now);

/** The warm-up is over. */
void kv_loop_measure(struct kv_loop *loop, uint64_t now);

/** The measured window is over; calls go on. */
void kv_loop_freeze(struct kv_loop *loop, uint64_t now);

/** No new calls; the measured window is over if it was not. */
void kv_loop_stop(struct kv_loop *loop, uint64_t now);

/** With a link that reaches all ranks: notify every daemon that the run was interrupted here. */
void kv_loop_send_stop(struct kv_loop *loop, uint64_t now);

/** Calls still open. */
static inline uint32_t
kv_loop_open(const struct kv_loop *loop)
{
	uint32_t i, open = 0;

	for (i = 0; i < loop->n; i++)
		open += (uint32_t)(loop->client[i].sent - loop->client[i].answered);
	return open;
}

/** Count calls that got no answer as faults; after the last turn. */
static inline void
kv_loop_audit(struct kv_loop *loop)
{
	struct kv_client *c;
	uint32_t i;

	for (i = 0; i < loop->n; i++) {
		c = &loop->client[i];
		c->history.faults[KV_FAULT_LOST] += c->sent - c->answered;
	}
}

#endif
