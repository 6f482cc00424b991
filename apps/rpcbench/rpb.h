/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPB_H
#define RPB_H

/**
 * @file
 * rpcbench: what main.c and the layers share.
 *
 *     rpcbench [EAL arguments] -- LAYER [options]
 *
 *     main.c      finds the layer, starts the second process and the EAL
 *     pair.c      the second process
 *     ipc*.c      layer ipc: options, slices, results; lane_*.c: what it compares
 *     tensor*.c   layer tensor
 *     net*.c      layers net and raw
 *
 * A layer parses its options before anything is started, then runs on the first lcore, which is the
 * calling thread, with a second process for the second lcore if it wants one, or in two ranks.
 */

#include <stdio.h>

#include "app_boot.h"
#include "crpc_util.h"
#include "pair.h"

/** What main has set up when a layer runs. */
struct rpb {
	struct rpb_pair *pair; /**< The second process, pinned to cpu[1]; NULL if not wanted. */
	/** Of the first lcore, to which the caller is pinned; the second. */
	int cpu[2];
	char lcores[32];       /**< Both, as text. */
	struct app_boot boot;  /**< The ranks, if the layer may have two; else one. */
	bool shared;           /**< The other rank uses one of our cores, too. */
};

/** A layer of rpcbench. */
struct rpb_layer {
	const char *name;
	const char *what; /**< One line of the help. */
	bool pair;        /**< Wants the second process. */
	bool ranks;       /**< May run as two ranks, and on one lcore. */
	void (*help)(FILE *out);
	/** Parse the options: 0, or an exit code after one line on stderr. */
	int (*parse)(int argc, char **argv);
	/** Measure: an exit code. */
	int (*run)(struct rpb *rpb);
};

extern const struct rpb_layer rpb_layer_ipc;
extern const struct rpb_layer rpb_layer_tensor;
extern const struct rpb_layer rpb_layer_net;
extern const struct rpb_layer rpb_layer_raw;

/** True after SIGINT or SIGTERM: finish the slice, print what is known, exit. */
bool rpb_interrupted(void);

#endif
