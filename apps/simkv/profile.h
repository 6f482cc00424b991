/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

/**
 * @file
 * What things cost: profiles/NAME.json, in which each number has its source.
 *
 *     {"about": "...", "wqe_ns": {"value": 50.8, "source": "..."}, ...}
 *
 * A number that is missing is 0; one that is not known is refused.
 */

#include "crpc_paper_nic.h"

/**
 * Costs of a CPU, ps. A daemon's turn costs the sum over what it did, as the layers' own
 * statistics count it.
 */
struct sim_cpu {
	uint64_t turn;        /**< A turn of the daemon's loop that finds nothing. */
	uint64_t cqe;         /**< A completion of the device. */
	/** A card that is software takes in a message, on the daemon's core; 0: a card apart. */
	uint64_t recv;
	uint64_t message_in;  /**< A request or reply of another host. */
	uint64_t message_out; /**< The same to another host. */
	uint64_t wqe;         /**< A work request is written. */
	uint64_t doorbell;
	uint64_t client_in;  /**< A client's request is taken. */
	uint64_t client_out; /**< Its answer is written. */
	uint64_t store;      /**< A get or put. */
	uint64_t client;     /**< A client takes an answer and makes its next call. */
	uint64_t hop;        /**< Latency of a line from one core to another. */
	/* Of delegation, whose clients share a ring. */
	uint64_t line;    /**< A client has the line for which all fight. */
	uint64_t ring_in; /**< A request is taken from the ring, in the place of client_in. */
};

/** A model: a card, a CPU, and how many numbers were changed by --set. */
struct sim_model {
	struct crpc_paper_time nic;
	struct sim_cpu cpu;
	uint32_t changed;
};

/**
 * Read both profiles, then apply changes.
 *
 * @param nic, cpu
 *   Names of profiles, or paths of files.
 * @param set
 *   "recv_ns=570,hop_ns=80": numbers that replace those of the profiles; NULL: none.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int sim_model_read(struct sim_model *m, const char *nic, const char *cpu, const char *set);

#endif
