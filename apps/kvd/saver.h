/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_SAVER_H
#define KVD_SAVER_H

/**
 * @file
 * Snapshots while the daemons run: on SIGHUP, on an interval, and at the end.
 *
 *     each loop in turn stands, again and again, while some of its keys are copied; they are
 *         written, and other control work is done, while it runs
 *     a child process makes the files lasting and gives them their names
 *     the control thread takes its status
 *
 * So a key is in a file as it was at one moment of that, with every change that was acknowledged
 * before the snapshot began. A loop stands for some 100 us at a time.
 */

#include "loops.h"

struct kvd_saver {
	const char *path; /**< NULL: there are no snapshots. */
	struct crpc_kv_server *server;
	struct kvd_loops *loops;
	uint32_t places;            /**< Of a store, that are copied while a loop stands. */
	uint64_t every_ns, next_ns; /**< 0: only on request. */
	uint64_t begin_ns;          /**< Of the one that is written. */
	uint64_t stood_ns;          /**< The longest that a loop may have stood for it. */
	uint64_t keys;              /**< Of the last, or that were read at the start. */
	uint32_t missing;           /**< Files at the start. */
	bool copying;               /**< Keys are copied, each turn some: */
	uint32_t loop, daemon;      /**< Of these next. */
	pid_t writer;               /**< 0: none is written. */
};

/**
 * Claim the files, and begin with what is in them.
 *
 * @param may_miss
 *   Some of the files may be missing.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int kvd_saver_start(struct kvd_saver *v, bool may_miss);

/**
 * Begin a snapshot if it is time or was asked for, take the end of one; every 10 ms or so, and at
 * once while it is `copying`. Takes 5 ms and a slice at most.
 */
void kvd_saver_turn(struct kvd_saver *v, uint64_t now_ns);

/** The loops have ended: write the last one. @return 0 or -errno, after one line. */
int kvd_saver_end(struct kvd_saver *v);

#endif
