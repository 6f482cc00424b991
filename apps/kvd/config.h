/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_CONFIG_H
#define KVD_CONFIG_H

/**
 * @file
 * What an operator can ask of kvd: options, and a JSON file with the same names. An option of the
 * command line replaces the file's.
 */

#include <sys/types.h>

#include "crpc_util.h"

/** All options; the defaults are in config.c. */
struct kvd_config {
	const char *file; /**< The JSON file; NULL: none. */
	const char *name; /**< Of the segments that clients attach to. */
	uint64_t keys;    /**< That a rank takes. */
	uint64_t key_size, value_size;
	uint64_t
		/** Of values above CRPC_KV_VALUE_INLINE, each rank; 0: for all keys. */
		memory_limit;
	uint64_t daemons;
	const char *device;
	unsigned int idle; /**< enum app_idle */

	uint64_t clients, depth, client_memory;
	const char *mode_text, *group;
	mode_t mode; /**< The same, read. */
	gid_t gid;   /**< Likewise; 0: the process's. */

	const char *snapshot;         /**< Path of the files; NULL: none are written. */
	uint64_t snapshot_s;          /**< Time between two; 0: only at the end and on request. */
	unsigned int restore_missing; /**< 1: begin without what is not there. */

	const char *hosts, *secret_file;
	unsigned int connect; /**< enum app_connect. */
	uint64_t rank; /**< In the hosts file; KVD_RANK_FIND: by address. */
	const char *ready_file;
	unsigned int log_level; /**< 0: errors only, to 4: debug. */

	char **text; /**< The file's options; the strings above point into them. */
	uint32_t texts;
};

#define KVD_RANK_FIND UINT64_MAX

/**
 * Fill in the defaults, then the file, then the options.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int kvd_config_parse(struct kvd_config *c, int argc, char *const *argv);

void kvd_config_fini(struct kvd_config *c);

/** Print the help on stdout. */
void kvd_config_help(int argc, char *const *argv);

#endif
