/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPB_H
#define RPB_H

/**
 * @file
 * rpcbench: what main.c and the layers share.
 *
 *     rpcbench [EAL arguments] -- LAYER [options]
 *
 *     main.c      finds the layer, reads its options, starts the EAL and the second side
 *     calls.c     lanes of calls: their slices, counters and targets
 *     ipc.c       layer ipc; lane_*.c: what it compares
 *     net.c       layers net and raw; net_*.c: what they compare
 *     tensor.c    layer tensor; tensor_*.c: what it compares
 *
 * A layer parses its options before anything is started, then runs with its second side in a second
 * process, or on a second lcore or in a second rank if there is one.
 */

#include "app_lane.h"
#include "app_stop.h"

/** What the user asked for; a layer has some of it. */
struct rpb_opt {
	struct app_list transports, modes, clients, depths, sizes, flushes, flows, arrivals;
	uint64_t burst, active, ring;
	uint64_t connected; /**< 0: not asked for. */
	struct app_length length;
	const char *json, *device;
	unsigned int preset, compute;
	bool oneway, verify, percentiles, counters;
};

struct rpb_layer;

/** Conditions of the whole run. */
struct rpb_run {
	const struct rpb_layer *layer;
	const struct rpb_opt *opt;
	struct app_party *party;
	uint32_t lanes;   /**< Opened so far: for their names. */
};

/** A layer of rpcbench. */
struct rpb_layer {
	const char *name;
	const char *what;  /**< One line of the list of layers. */
	const char *about; /**< The begin of its help, */
	const char *notes; /**< and what stands behind its options; NULL: nothing. */
	struct rpb_opt *opt;
	const struct app_opt *opts;
	uint32_t nopts;
	const struct app_way *const *ways; /**< What --transport chooses from. */
	uint32_t nways;
	bool device;   /**< It runs over a device; else it needs a second process. */
	/** More about the options: 0, or an exit code after one line on stderr. May be NULL. */
	int (*check)(void);
	/** What may fail before a struct rpb_run: 0, or an exit code after a line. May be NULL. */
	int (*prepare)(void *run);
	/** Measure a struct rpb_run: 0, -EIO, or an exit code. */
	int (*run)(void *run);
	/** Layers of calls: add to the row of a lane what it is, and its figures. */
	void (*row)(const struct app_group *g, const struct app_lane *l, json_t *row);
};

/** What a layer's options are, and what its ways. */
#define RPB_TABLES(options, table, list)                                                           \
	.opt = options, .opts = table, .nopts = CRPC_DIM(table), .ways = list,                     \
	.nways = CRPC_DIM(list)

extern const struct rpb_layer rpb_layer_ipc, rpb_layer_tensor, rpb_layer_net, rpb_layer_raw;

/** Time that both sides of a lane have to meet, and for one pass of an array. */
#define RPB_MEET_MS 20000

struct crpc_ipc_server;

/** Wait until so many clients are admitted: 0 or -ETIMEDOUT. */
int rpb_admit(struct app_lane *l, struct crpc_ipc_server *s, uint32_t clients);

/** Names of the layer's ways, for its option. */
extern const char *rpb_transports[];

#endif
