/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_CLIENT_H
#define KV_CLIENT_H

/**
 * @file
 * The load: clients that keep `qd` calls open each, many of them on one lcore.
 *
 *     kv_loop_init(&loop, &work, ...)           clients of one lcore, connected to the daemon
 *     every turn: kv_loop_turn(&loop, now)      completions, checks, new calls
 *     kv_loop_measure(&loop, now)               forget the warm-up, count from here
 *     kv_loop_stop(&loop, now)                  freeze the figures, make no new calls
 *     ... turns until kv_loop_open() is 0 ...
 *     kv_loop_fini(&loop)
 *
 * The loop is closed: an answered call is replaced at once, so that clients x qd calls are open all
 * the time. The clock is read once per turn; it is the end of every call that completed in the turn
 * and the begin of every call made in it, so a latency is exact to one turn.
 *
 * Belongs to one thread, but for `served_pub`. No DPDK here: a client process is built from the
 * same file.
 */

#include "app_keys.h"
#include "crpc_atomic.h"
#include "crpc_hist.h"
#include "crpc_ipc.h"
#include "verify.h"

#define KV_QD_MAX      64
#define KV_CLIENTS_MAX 512

/** What the clients do; shared, read-only. */
struct kv_work {
	struct app_keys keys; /**< Over the keys of all ranks. */
	uint32_t ranks;
	uint32_t rank; /**< Of the daemon that the clients are connected to. */
	uint32_t key_size;
	uint32_t value_size;
	uint32_t qd;
	uint32_t writers;
	uint64_t read_below;  /**< Of 2^32: an operation whose draw is below this is a get. */
	uint64_t delete_from; /**< Of 2^32: from here on it is a delete, between them a put. */
	uint64_t seed;
	bool verify;
	bool may_miss;
};

/** Divide the draws of 32 bits between gets, puts and, what is left, deletes. */
static inline void
kv_work_ratios(struct kv_work *work, double gets, double puts)
{
	work->read_below = (uint64_t)(gets * 4294967296.0);
	work->delete_from =
		puts + gets >= 1 ? UINT64_C(1) << 32 : (uint64_t)((gets + puts) * 4294967296.0);
}

/** One open call. */
struct kv_call {
	uint64_t start; /**< Time of the call, ns. */
	uint64_t floor; /**< kv_history_floor() then. */
	uint64_t word;
	uint32_t key;
	uint8_t op;
	bool remote;
	bool open;
};

/** One client. */
struct kv_client {
	struct crpc_ipc_client *ipc;
	uint64_t rng;
	uint64_t sent, answered; /**< Since connect. */
	uint32_t free_n;
	uint32_t fresh_n;
	bool dead; /**< Its daemon is gone: makes no more calls. */
	struct kv_history history;
	struct kv_call call[KV_QD_MAX];
	uint8_t free[KV_QD_MAX];
	uint8_t fresh[KV_QD_MAX];  /**< Calls made since the last completion. */
} crpc_aligned(CRPC_CACHE_GUARD);

/** What was counted in the measured window. */
struct kv_counts {
	uint64_t local, remote; /**< Answered by a store. */
	uint64_t failed;        /**< Ended with an error: its owner is lost. */
	uint64_t misses;        /**< Of the answered: not found. */
	uint64_t lat_sum;       /**< Of all three, ns. */
	uint64_t window_ns;
	struct crpc_hist lat_local, lat_remote;
};

/** Where in its life a loop is. */
enum kv_phase {
	KV_WARMUP,
	KV_MEASURE,
	KV_STOPPED,
};

/** The clients of one lcore. */
struct kv_loop {
	const struct kv_work *work;
	struct kv_client *client; /**< Array of n. */
	uint32_t n;
	enum kv_phase phase;
	uint64_t measure_from;
	uint32_t dead;   /**< Clients whose daemon is gone. */
	uint64_t served; /**< Answered by a store since the begin. */
	struct kv_counts counts;
	_Atomic uint64_t served_pub crpc_aligned(CRPC_CACHE_GUARD); /**< For the progress line. */
	uint8_t msg[KV_REQ_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

/**
 * Connect the clients of one lcore.
 *
 * @param loop
 *   Zeroed, filled.
 * @param work
 *   The load; it must outlive the loop.
 * @param conf
 *   How to reach the daemon.
 * @param n
 *   Clients.
 * @param first_writer
 *   The writer id of the first; the others follow.
 * @return
 *   0 or -errno; the cause is in crpc_log_last() if it is one of ipc.
 */
int kv_loop_init(struct kv_loop *loop, const struct kv_work *work,
	const struct crpc_ipc_client_conf *conf, uint32_t n, uint32_t first_writer);

void kv_loop_fini(struct kv_loop *loop);

/** One turn. @return how many calls completed or were made. */
uint32_t kv_loop_turn(struct kv_loop *loop, uint64_t now);

/** The warm-up is over. */
void kv_loop_measure(struct kv_loop *loop, uint64_t now);

/** The measured window is over; no new calls. */
void kv_loop_stop(struct kv_loop *loop, uint64_t now);

/** Calls still open. */
uint32_t kv_loop_open(const struct kv_loop *loop);

/** Count calls that got no answer as faults; after the last turn. */
void kv_loop_audit(struct kv_loop *loop);

#endif
