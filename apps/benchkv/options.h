/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_OPTIONS_H
#define KV_OPTIONS_H

/**
 * @file
 * What a user can ask of benchkv and of benchkv-client. All ranks of a run get the same.
 */

#include "app_load.h"

/** Backends (backend.h), in the order of kv_backend_names. */
enum kv_backend_number {
	KV_BACKEND_COPYRPC,
	KV_BACKEND_DELEGATION,
	KV_BACKEND_DIRECT,
	KV_BACKEND_UCX,
	KV_BACKEND_ERPC,
	KV_BACKENDS,
};

/** Names of enum app_dist; ends with NULL. */
extern const char *const kv_dist_names[];

/** Their names; ends with NULL. */
extern const char *const kv_backend_names[KV_BACKENDS + 1];

/** Who finds the daemon of a rank that owns a key. */
enum kv_route {
	KV_ROUTE_DAEMON, /**< The client's daemon, which passes the request on by flux. */
	KV_ROUTE_CLIENT, /**< The client, which is connected to all daemons of its rank. */
};

/** How requests of other ranks reach the daemon that owns a key. */
enum kv_delegate {
	KV_DELEGATE_NONE, /**< They come to it: endpoints from every daemon to every other. */
	KV_DELEGATE_FLUX, /**< They come to the daemon with the sender's number, which passes on. */
};

/** Whether the run is looked into: times of phases, histograms, telemetry. */
enum kv_insight {
	KV_INSIGHT_ON,
	KV_INSIGHT_OFF,
};

/** All options; the defaults stand in options.c. */
struct kv_options {
	uint64_t daemons; /**< Of each rank. */
	uint64_t clients; /**< Of each rank, in its process. */
	uint64_t qd;
	uint64_t keys; /**< Of each rank. */
	uint64_t key_size;
	uint64_t value_size;     /**< Of the largest. */
	const char *value_sizes; /**< Their distribution; NULL: all have value_size. */
	struct app_sizes sizes;  /**< The same. */
	double read_ratio;
	double delete_ratio;
	unsigned int dist; /**< enum app_dist. */
	double skew;
	double seconds;
	double warmup;
	double cooldown;
	double rate;  /**< Operations per second of each rank's clients; 0: closed loop. */
	uint64_t scan; /**< Keys of the longest scan, which reads are then; 0: they are not. */
	bool rmw;     /**< Writes read their key first. */
	bool cas;     /**< And take place only if no other client wrote meanwhile. */
	uint64_t ttl_ms; /**< Life of what is written; 0: it stays. */
	const char *history; /**< File for the operations of the clients and their results. */
	uint64_t history_ops, history_keys;
	unsigned int ycsb;
	uint64_t seed;
	unsigned int backend; /**< enum kv_backend_number. */
	const char *ucx_tls; /**< Transports of UCX; NULL: as it chooses. */
	const char *device;
	unsigned int transport; /**< enum crpc_rdma_transport. */
	unsigned int flow;      /**< enum crpc_copyrpc_flow. */
	unsigned int flush; /**< enum crpc_copyrpc_flush_policy. */
	double hold_us;     /**< Flush hold: the longest; 0: it adapts itself. */
	unsigned int idle;  /**< enum app_idle. */
	unsigned int route;    /**< enum kv_route. */
	unsigned int delegate; /**< enum kv_delegate. */
	unsigned int insight; /**< enum kv_insight. */
	bool verify;
	bool counters; /**< The CPU's, of the lcores in the measured window. */
	bool colocate;
	bool quiet;
	const char *sweep; /**< Axes of a sweep (sweep.h); NULL: one run. */
	uint64_t repeat;   /**< Passes over them, rising and falling in turn. */
	const char *json;
	const char *hgrm;
	unsigned int preset;
	const char *name; /**< Of the ipc segment; NULL: from the job and rank. */
	uint64_t trust_uid; /**< Clients attach to this user's, too; 0: no other. */
};

/** Which program parses. */
enum kv_program {
	KV_PROGRAM_DAEMON,
	KV_PROGRAM_CLIENT,
};

/**
 * Fill in the defaults, then the preset, then what was given.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int kv_options_parse(struct kv_options *o, enum kv_program program, int argc, char *const *argv);

/**
 * Check what depends on the number of ranks.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line.
 */
int kv_options_check_ranks(const struct kv_options *o, uint32_t ranks);

/**
 * What a load takes from the options, and its distribution of @p keys keys, which is to be freed by
 * app_keys_fini(); all else of @p conf stays.
 *
 * @return
 *   0 or -ENOMEM.
 */
int kv_options_load(const struct kv_options *o, struct app_load_conf *conf, uint32_t keys);

/** Print the help on stdout. */
void kv_options_help(enum kv_program program);

#endif
