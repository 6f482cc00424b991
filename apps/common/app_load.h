/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LOAD_H
#define APP_LOAD_H

/**
 * @file
 * The load of a key-value service: clients that call its daemons, keep score of latencies and check
 * every answer. A turn neither reads a clock nor sleeps, starts a thread or prints: time comes in
 * as an argument, that of a history by the caller's function (app_records.h). So the same load runs
 * on lcores, in a process without DPDK, and in virtual time.
 *
 *                 app_load_turn(now)
 *     clients of one lcore                       the service
 *       client 0: depth open calls --requests-->   daemons, each owns its part of the keys
 *       client 1: ...               <--answers--
 *          |
 *          counts: operations, failures, latencies; faults of the answers (app_verify.h)
 *
 * Order of calls:
 *
 *     app_load_init(&load, &conf, n)     with load.ops and load.link set, where ipc is not used
 *     app_load_join(&load, i, ...)       each client, i = 0 to n - 1
 *     app_load_record(&load, &records)   if there is to be a history (app_records.h)
 *     every turn: app_load_turn(&load, now)          answers, checks, new calls
 *     app_load_measure(&load, now)       ends the warm-up: the counts start from zero
 *     app_load_freeze(&load, now)        ends the measured window; calls are still made (cool-down)
 *     app_load_stop(&load, now)          no new calls
 *     ... turns until app_load_open() is 0, or time is up ...
 *     app_load_audit(&load)              calls without an answer become faults
 *     load.counts, load.client[i].verify.faults
 *     app_load_fini(&load)
 *
 * A closed load replaces each answered call at once: n x depth calls are open all the time. With
 * gap_ns it is open: calls are due at the times of a Poisson process, independent of answers, and a
 * latency counts from the time that a call was due, also if all depth places were taken then. One
 * `now` is the end of all calls that complete in its turn, and the begin of all that it makes: a
 * latency is exact to one turn.
 *
 * Requests reach the daemons by connections of ipc, or by a link, which all clients of the load
 * share: struct app_load_ops.
 *
 * Determinism: operations and keys depend on the seed, the writer ids and the order of the answers
 * only. With a link whose answers are a function of its calls and of `now`, the same sequence of
 * calls of these functions gives the same requests and the same counts.
 *
 * Units: all times are ns of one clock that the caller chooses and that never goes back; it is at
 * least 1 at the first turn. Sizes are bytes.
 * Threads: a load belongs to one thread; any thread may read `served_pub`. A conf is shared and
 * read-only from app_load_init() to app_load_fini().
 * Ownership: the caller owns load, conf and link, which outlive app_load_fini(), and the records,
 * which outlive the last turn. A request is the load's again when call() returns, an answer is
 * readable until the next poll().
 */

#include "app_keys.h"
#include "app_records.h"
#include "app_verify.h"
#include "crpc_hist.h"
#include "crpc_kv_blocks.h"

/** Open calls of a client at most. */
#define APP_LOAD_DEPTH_MAX 64
/** Clients of a load at most. */
#define APP_LOAD_CLIENTS_MAX 512
/** Keys of a scan at most. */
#define APP_LOAD_SCAN_MAX 10000

/** Bytes of the shortest put. */
#define APP_LOAD_ROOM_MIN (sizeof(struct kv_req_hdr) + CRPC_KV_KEY_MIN + CRPC_KV_VALUE_MIN)

/** How requests travel where the clients have no connections of ipc. All of them are called. */
struct app_load_ops {
	/** A daemon that is asked also serves the keys of other ranks: `to` is below conf.daemons.
	 *  Else every key is asked of its owner: `to` is below conf.owners. */
	bool passes;
	/**
	 * Send a request.
	 *
	 * @param resp_max
	 *   Bytes of the largest answer.
	 * @param cookie
	 *   Of the answer: the client's number << 8, and the call's place, which is below depth.
	 * @return
	 *   0: it completes by poll(); -EAGAIN: not taken, called again in a later turn; else the
	 *   operation has failed with that -errno.
	 */
	int (*call)(void *link, uint64_t now, uint32_t to, const void *msg, uint32_t len,
		uint32_t resp_max, uint64_t cookie);
	/** Take up to @p n completions. Those whose cookie names no client are ignored. */
	uint32_t (*poll)(void *link, uint64_t now, struct crpc_done *done, uint32_t n);
	/** All calls of this turn are made. */
	void (*flush)(void *link, uint64_t now);
};

/** What the clients do; shared, read-only. */
struct app_load_conf {
	struct app_keys keys;       /**< Over the keys of all ranks. */
	uint32_t owners;            /**< Daemons of all ranks. */
	uint32_t first;             /**< Of this rank's daemons, the first one among all owners. */
	uint32_t daemons;           /**< Of this rank. */
	uint32_t key_size;
	uint32_t value_size;        /**< Of the largest. */
	struct app_sizes sizes;     /**< A value's size follows from its first word. */
	uint32_t depth;             /**< Open calls of a client, at most APP_LOAD_DEPTH_MAX. */
	uint32_t writers;           /**< Writer ids of all clients are below this. */
	uint64_t read_below;        /**< Of 2^32: an operation whose draw is below this is a get. */
	uint64_t delete_from; /**< Of 2^32: from here on it is a delete, between them a put. */
	uint64_t seed;
	double gap_ns; /**< Mean time between two calls of a client; 0: closed load. */
	bool latest;   /**< keys draws ages: puts take the keys in turn, gets favor recent ones. */
	uint32_t scan; /**< Reads are scans of 1 to this many keys; 0: gets. */
	bool rmw;      /**< A put reads its key first: one operation of two calls. */
	bool cas;      /**< With rmw: the put takes place only if its key is still what was read. */
	uint64_t ttl_ms; /**< Life of what puts write; 0: it stays. */
	bool verify;     /**< Check every answer. */
	bool may_miss;   /**< Keys may be absent. */
	bool may_refuse; /**< The stores may be full. */
};

/** Divide the draws of 32 bits between gets, puts and, what is left, deletes. */
static inline void
app_load_ratios(struct app_load_conf *conf, double gets, double puts)
{
	conf->read_below = (uint64_t)(gets * 4294967296.0);
	conf->delete_from =
		puts + gets >= 1 ? UINT64_C(1) << 32 : (uint64_t)((gets + puts) * 4294967296.0);
}

/** One open call. First what every call needs. */
struct app_load_call {
	uint64_t start; /**< Time of the call, ns. */
	uint32_t key;
	uint8_t op;
	uint8_t path; /**< enum kv_path. */
	bool reads;   /**< rmw: the first half of a put. */
	bool open;
	uint64_t floor; /**< app_verify_floor() then. */
	uint64_t word;
	uint64_t version; /**< rmw: what was read: version ... */
	uint64_t read;    /**< ... and first word; 0, 0: nothing. */
	uint64_t record;  /**< Its number in the history. */
} crpc_aligned(CRPC_CACHE_LINE);

/** What all plain requests of an operation have in common. */
struct app_load_form {
	uint64_t head;
	uint64_t len; /**< Bytes of the whole request. */
};

/** One client. Its first line and the first call are what a plain call needs of it. */
struct app_load_client {
	struct crpc_ipc_client *own; /**< ipc[0]. */
	uint64_t rng;
	uint64_t sent, answered; /**< Since connect. */
	uint32_t home;           /**< Its daemon's number among all owners. */
	uint32_t number;         /**< In its load. */
	uint32_t free_n;
	uint32_t again_n;
	uint32_t newest; /**< latest, scan: the key that was put last. */
	bool dead;       /**< Its daemon is gone: makes no more calls. */
	struct app_verify verify;
	uint64_t due_ns; /**< When the next call is due; 0: not known yet. */
	uint32_t conns;
	uint32_t scan_key, scan_left; /**< The key that its scan is at, and how many from it on. */
	bool put_off;                 /**< The call that was drawn last was not taken, for now. */
	uint8_t free[APP_LOAD_DEPTH_MAX];
	uint8_t again[APP_LOAD_DEPTH_MAX]; /**< rmw: calls that have read and are to write. */
	struct app_load_call call[APP_LOAD_DEPTH_MAX];
	/** To its home; where it chooses the owner itself, to each daemon of the rank. */
	struct crpc_ipc_client *ipc[CRPC_KV_DAEMONS_MAX];
	/** Of each connection, for values above CRPC_KV_VALUE_INLINE; NULL: there are none. */
	struct crpc_arena_cache *arena[CRPC_KV_DAEMONS_MAX];
} crpc_aligned(CRPC_CACHE_GUARD);

/** Why an operation failed. */
enum app_load_cause {
	APP_LOAD_LOST,   /**< Its owner, or its daemon, is lost. */
	APP_LOAD_TIME,   /**< No answer in time. */
	APP_LOAD_MEMORY, /**< No room for a large value on its way. */
	APP_LOAD_OTHER,
	APP_LOAD_CAUSES,
};

/** What was counted in the measured window. */
struct app_load_counts {
	uint64_t ops[CRPC_KV_PATHS];         /**< Answered by a store, by the way they went. */
	uint64_t failed;                     /**< Ended with an error ... */
	uint64_t failed_of[APP_LOAD_CAUSES]; /**< ... by its cause. */
	uint64_t misses;                     /**< Of the answered: not found. */
	uint64_t conflicts; /**< Of the answered: a value had changed since it was read. */
	uint64_t refused;   /**< Of the answered: the store was full. */
	uint64_t scans;     /**< All of whose keys were asked for. */
	uint64_t lat_sum;   /**< Of all, ns. */
	uint64_t window_ns;
	uint64_t lag_ns; /**< Open load: how late the most belated client was at the end. */
	struct crpc_hist lat[CRPC_KV_PATHS];
};

/** Operations answered by a store. */
static inline uint64_t
app_load_counts_ops(const struct app_load_counts *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < CRPC_KV_PATHS; i++)
		sum += c->ops[i];
	return sum;
}

/** Add @p from, @p sign times, to @p sum: both structs of counters alone, of @p bytes. */
void app_words_add(void *sum, const void *from, size_t bytes, int sign);

/** The same of what two loads counted; the longer window and the longer lag are that of both. */
void app_load_counts_add(struct app_load_counts *sum, const struct app_load_counts *from);

/** Where in its run a load is. */
enum app_load_phase {
	APP_LOAD_WARMUP,
	APP_LOAD_MEASURE,
	APP_LOAD_COOLDOWN,
	APP_LOAD_STOPPED,
};

/** The clients of one lcore. */
struct app_load {
	const struct app_load_conf *conf;
	struct app_load_client *client; /**< Array of n. */
	uint32_t n;
	const struct app_load_ops *ops; /**< Of the link; unused without one. */
	void *link; /**< Of all clients; NULL: each has connections of its own. */
	enum app_load_phase phase;
	bool extras; /**< Puts have extras, or may be large. */
	bool plain;  /**< A closed load, one connection per client, nothing out of the ordinary. */
	uint64_t measure_from;
	/** Bytes of the largest plain request, as it is written; APP_LOAD_ROOM_MIN at least. */
	uint32_t room;
	uint32_t answer; /**< Bytes of the largest answer that is not in a block. */
	struct app_load_form form[CRPC_KV_DELETE + 1]; /**< By operation. */
	uint32_t dead;                            /**< Clients whose daemon is gone. */
	struct app_records *records;              /**< Where to note every call; NULL: nowhere. */
	uint64_t served;                          /**< Answered by a store since the begin. */
	struct app_load_counts counts;
	_Atomic uint64_t served_pub crpc_aligned(CRPC_CACHE_GUARD); /**< For the progress line. */
	uint64_t block; /**< The request was written to this block instead of msg; 0: it was not. */
	/** The memberships in the arenas of the rank's daemons, where values may be large. */
	struct crpc_kv_blocks blocks[CRPC_KV_DAEMONS_MAX];
	uint8_t msg[CRPC_KV_REQ_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

/**
 * Make the clients.
 *
 * @param load
 *   Zeroed, but for link and ops.
 * @param n
 *   Clients, 0 to APP_LOAD_CLIENTS_MAX.
 * @return
 *   0 or -ENOMEM.
 */
int app_load_init(struct app_load *load, const struct app_load_conf *conf, uint32_t n);

/**
 * Connect a client. Connections read the clock and make system calls; a link is not called.
 *
 * @param i
 *   Which, below n.
 * @param to
 *   How to reach its daemons.
 * @param conns
 *   1: *to is its home, which passes on what it does not own. More: to[d] is daemon d of the
 *   rank, all of them, and the client asks the owner itself. 0: it uses the link.
 * @param home
 *   Number of its home among all owners: it is asked for keys of other ranks.
 * @param writer
 *   Its writer id, 1 or above, which no other client of the service has.
 * @return
 *   0, -ENOMEM, or the -errno of crpc_ipc_client_connect(), whose cause is in crpc_log_last().
 */
int app_load_join(struct app_load *load, uint32_t i, const struct crpc_ipc_client_conf *to,
	uint32_t conns, uint32_t home, uint32_t writer);

/** Note every call and answer from now on; before the first turn. */
void app_load_record(struct app_load *load, struct app_records *records);

/** Close the connections and free the clients, also after app_load_init() or a join has failed. */
void app_load_fini(struct app_load *load);

/** One turn. @return not 0 if calls completed or were made. */
uint32_t app_load_turn(struct app_load *load, uint64_t now);

/** The warm-up is over. */
void app_load_measure(struct app_load *load, uint64_t now);

/** The measured window is over; calls are still made. */
void app_load_freeze(struct app_load *load, uint64_t now);

/** No new calls; the measured window is over if it was not. */
void app_load_stop(struct app_load *load, uint64_t now);

/** Calls still open. */
static inline uint32_t
app_load_open(const struct app_load *load)
{
	uint32_t open = 0;

	for (uint32_t i = 0; i < load->n; i++)
		open += (uint32_t)(load->client[i].sent - load->client[i].answered);
	return open;
}

/** Count calls that got no answer as faults; after the last turn. */
static inline void
app_load_audit(struct app_load *load)
{
	struct app_load_client *c;

	for (uint32_t i = 0; i < load->n; i++) {
		c = &load->client[i];
		c->verify.faults[APP_FAULT_LOST] += c->sent - c->answered;
	}
}

#endif
